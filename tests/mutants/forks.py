"""A process that imports what is slow to import, and forks itself for every call of tests that it is asked for.

    python forks.py FOLDER      a request a line on standard input, an answer a line on standard output, both JSON

FOLDER is a copy of the source; nothing of the source itself is imported before a fork, nor from anywhere else after it.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

HEAVY = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "dp_accounting",
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "hypothesis",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "pytest",
    "rich",
    "safetensors.numpy",
    "safetensors.torch",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "tokenizers",
    "torch",
    "torch.func",
    "typer.testing",
    "yaml",
)
LONGEST_S = 540
"""Seconds until tests are ended that a fault keeps from ending; below the timeout of a test of ours."""

ROOMS = ("privacy", "edge", "cloud", "export", "edgefr", "tests")


class Watcher:
    """A plug-in of pytest that keeps which phase of which test failed, and by what kind of error."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str, str, str]] = []
        self.passed: list[str] = []

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Note a failure, or that a test's own part ended well."""
        if call.excinfo is not None:
            said = (str(call.excinfo.value).splitlines() or [""])[0]
            self.failed.append((item.nodeid, call.when, call.excinfo.type.__name__, said[:300]))
        elif call.when == "call":
            self.passed.append(item.nodeid)


def called(folder: Path, tests: list[str], log: Path) -> dict[str, Any]:
    """Run tests in this process: pytest's exit code, what failed, and whose modules were used."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sources = [path for path in sys.path if (Path(path or ".") / "edgefr" / "__init__.py").is_file()]
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in sources)]
    import pytest

    watcher = Watcher()
    code = pytest.main(["-x", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "-m", "", *tests], plugins=[watcher])
    used = [m for name, m in sys.modules.items() if name.partition(".")[0] in ROOMS and getattr(m, "__file__", None)]
    files = {Path(str(module.__file__)) for module in used}
    return {
        "code": int(code),
        "failed": watcher.failed,
        "passed": watcher.passed,
        "used": sorted(str(file.relative_to(folder)) for file in files if file.is_relative_to(folder)),
        "strays": sorted(str(file) for file in files if not file.is_relative_to(folder)),
    }


def forked(folder: Path, tests: list[str], log: Path) -> dict[str, Any]:
    """Run tests in a child process; code -1 where it ended without an answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as answer:
                answer.write(json.dumps(called(folder, tests, log)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        if not select.select([reader], [], [], LONGEST_S)[0]:
            os.kill(child, signal.SIGKILL)
        content = answer.read()
    os.waitpid(child, 0)
    nothing: dict[str, Any] = {"code": -1, "failed": [], "passed": [], "used": [], "strays": []}
    return json.loads(content) if content else nothing


def main() -> None:
    """Answer requests until there are no more."""
    folder = Path(sys.argv[1]).resolve()
    sys.path.pop(0)  # the folder of this file
    sys.dont_write_bytecode = True
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        found = forked(folder, json.loads(line), folder / "last.log")
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
