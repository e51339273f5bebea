"""Commands of `edgefr` in processes of their own, forked from one that has imported other people's libraries already.

    python -m tests.warm      a request a line on standard input, an exit code a line on standard output

A command takes four seconds to import torch, pandas and the like, and a suite gives hundreds. Nothing of edgefr is
imported before the fork, nor anything that looks at the terminal: each command imports the source itself and has its
own folder, surroundings and streams. Tests of what a command imports, of kills, pipes and terminals start Python as a
user does (`COMMAND` of `tests/cli/commands.py`).
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutants.forks import HEAVY

ROOT = Path(__file__).resolve().parents[1]
QUIET = {"hypothesis", "pytest", "rich", "typer.testing"}
"""What is left to the command: these look at the terminal, or are for tests alone."""
MORE = ("matplotlib.figure", "matplotlib.backends.backend_svg", "numba")


def main() -> None:
    """Answer requests until there are no more; a forked child leaves the loop and becomes the command."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT]
    for name in (*HEAVY, *MORE):
        if name not in QUIET:
            with suppress(ImportError):
                importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            become(request)
        print(code_of(child, request["seconds"]), flush=True)


def become(request: dict[str, Any]) -> None:
    """Run the command in this process, and end it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for stream, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        opened = os.open(path, os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, stream)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate("rww"))  # noqa: SIM115
    sys.path[:0] = [request["cwd"], *request["env"].get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = ["edgefr", *request["arguments"]]
    os._exit(ended(lambda: runpy.run_module("edgefr", run_name="__main__", alter_sys=True)))


def ended(command: Callable[[], object]) -> int:
    """Return the exit code of a command, once the interpreter has done what it does at its end.

    What libraries in C do at the very end waits for threads that are not in a fork, so the process ends without it.
    """
    code: object = 0
    try:
        command()
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def code_of(child: int, seconds: float) -> int:
    """Wait for a child that long, and return how it ended: its exit code, or less than zero by a signal."""
    ended = os.pidfd_open(child)
    if not select.select([ended], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass
class Warm:
    """The process that forks, started when it is first asked."""

    process: subprocess.Popen[str] | None = field(default=None)

    def run(
        self, arguments: list[str], cwd: Path, env: dict[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `edgefr arguments` there and return its exit code and what it printed."""
        if self.process is None or self.process.poll() is not None:
            own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            command = [sys.executable, "-m", "tests.warm"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=own, **pipes)  # type: ignore[call-overload]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
            said = {"arguments": arguments, "cwd": str(cwd), "env": env, "out": out.name, "err": err.name}
            self.process.stdin.write(json.dumps({**said, "seconds": seconds}) + "\n")
            self.process.stdin.flush()
            code = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, *(Path(f.name).read_text("utf-8") for f in (out, err)))


WARM = Warm()

if __name__ == "__main__":
    main()
