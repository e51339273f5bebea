"""A process is held to limits by its system, in a child: whatever runs there, however long it hears nothing, ends.

Python cannot end what runs in a library. So the work goes on in a child: the kernel bounds its memory and ends it by
the alarm's signal; the parent waits, and says which limit it was. Time counts while a bundle is worked with, not while
a device waits for its server. Linux bounds memory, macOS time alone, Windows neither: there only training stops by
itself, at `Limits` that are asked about between steps and within them.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from privacy.errors import InputError
from privacy.machine import bound_memory, end_with_parent, resident_mb

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that the parent hands to its child."""
FULL = ("can't start new thread", "failed to map", "cannot allocate")
"""What errors of the system's loader and of threads say where memory is full."""
FAILED = (1, 2)
"""Exit codes of a command that came to nothing."""


@dataclass
class Confinement:
    """The system holds this process to these limits (None: it does not), `until` a time of the monotonic clock."""

    ram_mb: float | None = None
    seconds: float | None = None
    until: float | None = None

    @property
    def left_s(self) -> float | None:
        """Return the seconds until the system ends this process; None where no time is running."""
        return None if self.until is None else max(self.until - time.monotonic(), 0.0)

    def start(self) -> None:
        """Let the time run, from now."""
        if self.seconds is not None:
            self.until = time.monotonic() + self.seconds
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def rest(self) -> None:
        """Stop the time: what follows is somebody else's work."""
        if self.until is not None:
            self.until = None
            signal.setitimer(signal.ITIMER_REAL, 0)


NOW = Confinement()


@contextmanager
def timed() -> Iterator[None]:
    """Let the time of a confined process run for this block alone; elsewhere nothing is timed."""
    NOW.start()
    try:
        yield
    finally:
        NOW.rest()


def under() -> str:
    """Return the memory that this process is held to, for the end of what a library's error is told by."""
    return "" if NOW.ram_mb is None else f" under --max-ram-mb {NOW.ram_mb:g}"


def no_memory() -> str:
    """Return what is said where memory is full."""
    limit = "the memory of this machine" if NOW.ram_mb is None else f"--max-ram-mb {NOW.ram_mb:g}"
    return f"more memory is needed than {limit} allows; finished work is kept, and no file is half written"


def is_no_memory(error: BaseException) -> bool:
    """Say whether an error is how a library says that this process may take no more memory.

    >>> is_no_memory(MemoryError()), is_no_memory(RuntimeError("can't start new thread"))
    (True, False)
    """
    if isinstance(error, MemoryError) or NOW.ram_mb is None:
        return isinstance(error, MemoryError)
    told = isinstance(error, ImportError | RuntimeError) and any(words in str(error) for words in FULL)
    panic = type(error).__name__ == "PanicException"
    return told or panic or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def confine(
    ram_mb: float | None, seconds: float | None, ready: Callable[[], object], again: Callable[[], object] = lambda: None
) -> None:
    """Go on in a child that the system holds to these limits, which returns; this process ends as its child does.

    `ready` is called in the child before limits begin: it imports what takes memory and time of itself. `again`: asked
    before, and when a limit or a failure has ended the child; another begins where it answers with something new.
    Raises `InputError` where a limit ended the child, and in the child for a memory that it has taken already. Where
    the system has no children of this kind, nothing happens.
    """
    if not hasattr(os, "fork"):
        return
    asked, parent = again(), os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who started this process may have it ignored
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _begin(parent, ram_mb, seconds, ready)
            return
        code = _waited(child)
        why = _limit(code, ram_mb, seconds)
        found = again() if why is not None or code in FAILED else None
        if found is not None and found != asked:
            asked = found
        elif why is None:
            _end(code)
        else:
            raise InputError(f"ended: {why}; finished work is kept, and no file is half written")


def _begin(parent: int, ram_mb: float | None, seconds: float | None, ready: Callable[[], object]) -> None:
    """Take up the child's part: signals as a process of its own has them, and limits once everything is there."""
    os.setpgid(0, 0)
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    for number in _passed_on():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number in (signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    os.environ["RUST_BACKTRACE"] = "0"  # which needs memory, and waits for ever where there is none
    ready()
    if ram_mb is not None:
        held = resident_mb() or 0.0
        if held >= ram_mb:
            raise InputError(
                f"max_ram_mb is {ram_mb:g}, and {held:.0f} MB are taken before a bundle is opened; give more"
            )
        if bound_memory(ram_mb - held):
            NOW.ram_mb = ram_mb
    NOW.seconds = seconds
    NOW.start()


def _waited(child: int) -> int:
    """Wait for a child and hand signals on to it; return its exit code, below 0 for the signal that ended it."""

    def hand_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    before = {number: signal.signal(number, hand_on) for number in _passed_on()}
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _passed_on() -> list[signal.Signals]:
    found = [signal.Signals[name] for name in PASSED_ON]
    return [number for number in found if signal.getsignal(number) != signal.SIG_IGN]


def _limit(code: int, ram_mb: float | None, seconds: float | None) -> str | None:
    """Return which limit ended a child, by its exit code; None: it ended by itself, or was told to."""
    if seconds is not None and code == -signal.SIGALRM:
        return f"it took longer than --max-seconds {seconds:g} allows"
    if ram_mb is not None and -code in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL, signal.SIGILL):
        return f"by {signal.Signals(-code).name}, as where more memory is needed than --max-ram-mb {ram_mb:g} allows"
    return None


def _end(code: int) -> NoReturn:
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    raise SystemExit(code)


MOST = 1e9
"""MB or seconds that can be asked for, at most: more is no limit, and no system counts it."""

BEFORE = 0.85
"""Part of what is left of a limit at which training stops, where the system ends the process at the whole."""


@dataclass(frozen=True)
class Limits:
    """Training may take `ram_mb`, resident memory of the process, MB (10^6 bytes), and `seconds` of one call.

    None: no limit.

    >>> Limits(seconds=60).start()() is None
    True
    """

    ram_mb: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_ram_mb", self.ram_mb), ("max_seconds", self.seconds)):
            if value is not None and not 0 < value <= MOST:
                raise InputError(f"{name} must be above 0 and at most {MOST:,.0f}, got {value}; leave it out for none")
        if self.ram_mb is not None and resident_mb() is None:
            raise InputError("max_ram_mb cannot be kept: this system does not tell how much memory a process has")

    def check_room(self, what: str, megabytes: float) -> None:
        """Raise `InputError` where something takes more memory than is allowed."""
        if self.ram_mb is not None and megabytes > self.ram_mb:
            raise InputError(f"{what} take {megabytes:,.0f} MB, more than max_ram_mb {self.ram_mb:g} allows")

    def start(self) -> Callable[[], str | None]:
        """Start from now, and return a function that says what is exceeded ("memory", "time"), or None."""
        began, left = time.monotonic(), NOW.left_s
        seconds = self.seconds if left is None else min(self.seconds or left, BEFORE * left)
        ram_mb = self.ram_mb if NOW.ram_mb is None else BEFORE * NOW.ram_mb

        def exceeded() -> str | None:
            if seconds is not None and time.monotonic() - began > seconds:
                return "time"
            if ram_mb is not None and (resident_mb() or 0.0) > ram_mb:
                return "memory"
            return None

        return exceeded
