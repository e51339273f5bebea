"""Run a script as on a system that has less: `python tests/without_posix.py SCRIPT [LIBRARIES]`.

Libraries that have ports of their own are imported first; then what Windows lacks is taken away, and what macOS lacks
too. What remains is what our own code may use.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

LIBRARIES = "numpy onnxruntime tokenizers safetensors.numpy pydantic cryptography yaml typer rich.console torch pandas"
LIBRARIES += " transformers peft onnx onnxscript dp_accounting pyarrow matplotlib.figure scipy.stats numba"
LIBRARIES += " optuna sklearn concurrent.futures multiprocessing.pool multiprocessing.shared_memory"
MODULES = ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")
CALLS = "fork forkpty sched_getaffinity sched_setaffinity sysconf getuid geteuid getgid killpg getpgid setsid mkfifo"
CALLS += " O_DIRECTORY O_NOFOLLOW O_NONBLOCK statvfs chown wait3 wait4 pread pwrite posix_fallocate posix_spawn"
SIGNALS = ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGBUS", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "setitimer")


def take_away(libraries: str = LIBRARIES) -> None:
    """Take away what other systems lack; from then on an import of it fails, and so does its use."""
    for name in libraries.split():
        with suppress(ImportError):
            importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in CALLS.split():
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        delattr(signal, name)
    machine = importlib.import_module("privacy.machine")
    machine.PROCESS = Path("no-such-folder")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    take_away(*sys.argv[2:])
    exec(sys.argv[1])
