"""What the tests of the device in TypeScript have in common: where it is, and a build of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "edge-js"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium")
MODULES = HOME / "node_modules"


def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    if NODE is None or not MODULES.is_dir():
        pytest.skip("Node or its modules are not installed: npm ci --ignore-scripts --prefix edge-js")
    return subprocess.run(["npm", *arguments], cwd=HOME, capture_output=True, text=True, timeout=500)


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of what is built."""
    done = npm("run", "build")
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return HOME / "dist"
