"""What the tests of the device in TypeScript have in common: where it is, and a build of it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "edge-js"
NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium")
MODULES = HOME / "node_modules"


def need_node() -> None:
    """Skip a test where Node is not installed."""
    if NODE is None or not MODULES.is_dir():
        pytest.skip("Node or its modules are not installed: npm ci --ignore-scripts --prefix edge-js")


def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    need_node()
    return subprocess.run(["npm", *arguments], cwd=HOME, capture_output=True, text=True, timeout=500)


def sources() -> str:
    """A digest of all that a build reads."""
    read = [path for folder in ("src", "test", "page") for path in (HOME / folder).rglob("*") if path.is_file()]
    read += [*HOME.glob("*.ts"), *HOME.glob("*.json"), *(ROOT / "docs" / "schemas").glob("*.json")]
    digest = hashlib.sha256()
    for path in sorted(read):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of what is built: once for all processes of a session, and not again of the same sources."""
    need_node()
    dist, now = HOME / "dist", sources()
    with (MODULES / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        of = dist / "sources"
        if not (of.is_file() and of.read_text() == now):
            done = npm("run", "build")
            assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
            of.write_text(now)
    return dist
