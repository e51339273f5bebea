"""The watch asks, while a graph runs, whether it may go on, and ends it where it stands when it may not.

A step is asked about between steps (`edge.limits`), but a graph that never ends has no step after it. onnxruntime looks
at `RunOptions.terminate` before every node. The thread starts with the first graph that runs, looks every 50 ms, and
sleeps while none does; a run of a graph pays about a microsecond.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from privacy.errors import InputError

EVERY_S = 0.05
LONGEST_S = 600.0
"""Seconds that one call of a graph may take where nobody has set a limit."""

IDLE = 20  # looks at nothing before the thread sleeps
Stop = Callable[[], str | None]
"""Says why work should end now ("time", "memory"), or None."""


class Stopped(InputError):
    """A graph was ended while it ran. `reason`: what was exceeded, "time" or "memory"."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Run:
    """This is one call of a graph: the options that onnxruntime is given, and why it was ended, if it was."""

    __slots__ = ("began", "options", "reason", "stop")

    def __init__(self, options: Any, stop: Stop | None) -> None:
        self.options, self.stop = options, stop
        self.began = time.monotonic()
        self.reason: str | None = None

    def look(self, now: float) -> None:
        """End the run if it has taken too long or what it was given says so."""
        reason = "time" if now - self.began > LONGEST_S else None if self.stop is None else self.stop()
        if reason is not None:
            self.reason = reason
            self.options.terminate = True


class Watch:
    """This is the one thread and the runs that it looks at."""

    def __init__(self) -> None:
        self._runs: set[Run] = set()
        self._awake, self._starting = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, options: Any, stop: Stop | None = None) -> Run:
        """Look at a run from now on, by its `RunOptions` and what may end it; it must be handed to `end`."""
        self.start()
        run = Run(options, stop)
        self._runs.add(run)
        if not self._awake.is_set():
            self._awake.set()
        return run

    def end(self, run: Run) -> None:
        """Look at a run no longer."""
        self._runs.discard(run)

    def start(self) -> None:
        """Start the thread that looks, where there is none: under a limit of memory, before anything is charged."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="edgefr-watch", daemon=True)
                thread.start()
                self._thread = thread

    def _look(self) -> None:
        idle = 0
        while True:
            self._awake.wait()
            time.sleep(EVERY_S)
            runs, now = self._runs.copy(), time.monotonic()
            for run in runs:
                try:
                    run.look(now)
                except Exception:  # who runs the graph asks again between steps, and is told there
                    self._runs.discard(run)
            idle = 0 if runs else idle + 1
            if idle > IDLE:
                self._awake.clear()
                if self._runs:  # one came between
                    self._awake.set()


WATCH = Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.__init__)  # type: ignore[misc]  # no thread lives on in a child
