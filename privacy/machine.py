"""Systems answer in ways of their own, and are asked here: for memory, locks and folders on the disk.

Nothing is imported at the top that Windows or macOS lacks. Where a system does not tell, None says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

PROCESS = Path("/proc/self")
"""Where Linux tells of this process."""
BEYOND = 1 << 30
"""The byte that is locked on Windows, where nobody may read a locked one: files that are held are shorter."""
SPARE = 32 << 20
"""Bytes that a process whose memory is bounded keeps for the line that it ends with."""
AGAIN_S = 0.005
"""Between two tries to hold a file that another process holds."""


def resident_mb() -> float | None:
    """Return the resident memory of this process, MB (10^6 bytes); its peak where the present one is not told.

    >>> 1 < resident_mb() < 1e6
    True
    """
    try:
        pages = int((PROCESS / "statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (AttributeError, OSError, ValueError):
        return peak_mb()


def peak_mb() -> float | None:
    """Return the peak resident memory of this process, MB (10^6 bytes).

    The kernel's count of this program is taken where there is one: `ru_maxrss` starts from the launching process's.
    """
    try:
        lines = (PROCESS / "status").read_text(encoding="utf-8").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) * 1024 / 1e6
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def give_back() -> bool:
    """Give memory that was freed back to the system; False where the C library keeps it as long as it likes.

    glibc keeps what small arrays lay in, so that a process looks as large as it ever was.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):  # another C library; Windows has none of this name
        return False


def limit_memory(megabytes: float) -> bool:
    """Limit the private writable memory of this process, MB (10^6 bytes); False where the system has no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    resource.setrlimit(resource.RLIMIT_DATA, (int(megabytes * 1e6),) * 2)
    return True


def bound_memory(megabytes: float) -> bool:
    """Let this process's address space grow by so much and no more, MB (10^6 bytes); False where nothing bounds it.

    Files that are mapped count, so that its resident memory is bounded too. Threads share one heap from then on, since
    glibc reserves 64 MB of addresses for every other. `spare_memory` gives the last of it free.
    """
    try:
        import resource

        pages = int((PROCESS / "statm").read_text(encoding="ascii").split()[0])
        with suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX
        most = pages * os.sysconf("SC_PAGE_SIZE") + int(megabytes * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (most - min(SPARE, int(megabytes * 5e5)), most))
    except (ImportError, OSError, ValueError):  # Windows, macOS
        return False
    return True


def spare_memory() -> None:
    """Let this process take what `bound_memory` has kept back, so that it can say what is wrong."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def end_with_parent() -> None:
    """Let Linux kill this process when the one that started it ends."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def files_allowed() -> int | None:
    """Allow this process the most open files that it may have; how many, None without a limit or where not told."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if found == resource.RLIM_INFINITY else found


def memory_bytes() -> int:
    """Return the memory of this machine, bytes; 4 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 4 << 30


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hold(path: Path, wait_s: float = 0.0) -> int:
    """Open a file, made where there is none, and hold it until it is closed, by `os.close`, or this process ends.

    Raises `BlockingIOError` where another process still holds it after `wait_s`, `OSError` where it cannot be opened.
    Where the system has no locks, nothing is locked.
    """
    until = time.monotonic() + wait_s
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not _locked(handle, patient=time.monotonic() < until):
            time.sleep(AGAIN_S)
    except BaseException:
        os.close(handle)
        raise
    return handle


def alone(path: Path) -> int:
    """Hold a file that is deleted when it is let go. Raises `BlockingIOError` where another process holds it.

    Whoever waited for a file that is deleted would hold one that nobody else finds: then the new one is held.
    """
    while True:
        handle = hold(path)
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)


def is_held(path: Path) -> bool:
    """Say whether another process holds a file. Any number may look at once, which takes a moment's lock of its own.

    So who holds what others look at gives `hold` a `wait_s`. On Windows two that look may take each other for one.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        _lock(handle, shared=True)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _locked(handle: int, patient: bool) -> bool:
    """Lock an open file; False where another process has, and `BlockingIOError` there for who is not patient."""
    try:
        _lock(handle)
    except BlockingIOError:
        if not patient:
            raise
        return False
    return True


def _lock(handle: int, shared: bool = False) -> None:
    """Lock an open file without waiting; `shared` with others. Raises `BlockingIOError` where another process has."""
    with suppress(ImportError):
        import fcntl

        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return
    with suppress(ImportError):
        import msvcrt

        os.lseek(handle, BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError(error.errno, "another process holds it") from error


def flush_folder(folder: Path) -> None:
    """Flush to the disk which files a folder has; Windows opens no folders, and keeps such a list by itself."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
