"""A fault is planted in a copy of the source, and tests are run there.

The source itself is never written. Owns: the copy, one fault at a time in it, calls of tests. Does not own:
which faults there are (`faults`), what is asked of the answer (`test_faults`).
"""

from __future__ import annotations

import compileall
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.forks import ROOMS

ROOT = Path(__file__).resolve().parents[2]
BESIDE = "pyproject.toml", "devices.yaml", "README.md"


@dataclass(frozen=True)
class Fault:
    """One thing that could be wrong: in `file`, `new` stands where `old` should, which occurs there once.

    `caught_by`: the test that fails then. `error`: the kinds of error by which it may.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: str
    error: tuple[str, ...] = ("AssertionError", "Failed")

    def stale(self, root: Path = ROOT) -> str | None:
        """Return why it can no longer be planted; None: it can."""
        path = root / self.file
        found = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if found != 1:
            return f"{self.name}: its text occurs {found} times in {self.file}"
        return "it changes nothing" if self.old == self.new else None


@dataclass
class Answer:
    """What became of tests: pytest's exit code, failures (test, phase, kind of error, its first line), modules used."""

    code: int
    failed: list[list[str]]
    passed: list[str]
    used: list[str]
    strays: list[str]
    log: str = field(repr=False)


@dataclass(frozen=True)
class Copy:
    """A copy of the source, and the process that runs its tests."""

    folder: Path
    process: subprocess.Popen[str]

    @classmethod
    @contextmanager
    def made(cls, folder: Path) -> Iterator[Copy]:
        """Copy the source to a folder and start the process there; both end with the block."""
        for room in ROOMS:
            shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
        for name in BESIDE:
            shutil.copy(ROOT / name, folder / name)
        checked = py_compile.PycInvalidationMode.CHECKED_HASH  # times of files do not tell a fault from what was there
        for room in ROOMS[:-1]:
            compileall.compile_dir(folder / room, quiet=2, invalidation_mode=checked)
        command = [sys.executable, str(ROOT / "tests" / "mutants" / "forks.py"), str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(command, cwd=folder, env=alone, **pipes) as process:  # type: ignore[call-overload]
            try:
                yield cls(folder, process)
            finally:
                process.stdin.close()

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Have a fault in the copy while inside."""
        path = self.folder / fault.file
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole.replace(fault.old, fault.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(whole, encoding="utf-8")

    def run(self, tests: Sequence[str]) -> Answer:
        """Run these tests of the copy as it is now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(list(tests)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return Answer(**answer, log=(self.folder / "last.log").read_text(errors="replace"))
