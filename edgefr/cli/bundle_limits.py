"""A command that works with somebody else's bundle keeps limits: those that are given, else those of the policy."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from privacy.errors import InputError


def confined(state: Path, ram_mb: float | None = None, seconds: float | None = None, resumes: bool = False) -> None:
    """Go on under these limits, each of the device's policy where it is None, in a child process.

    `resumes`: where a limit ends a round that is charged, begin again, so that its release leaves without training.
    """
    from edge.limited_process import Limits, confine
    from edge.policy import Policy
    from edge.release import BEGUN
    from edge.state import Store

    policy = Policy.of(state)
    limits = Limits(policy.max_ram_mb if ram_mb is None else ram_mb, policy.max_seconds if seconds is None else seconds)
    if limits == Limits():
        return

    def begun() -> object:
        store = Store(state)
        return store.read().facts.get(BEGUN) if resumes and store.exists else None

    try:
        confine(limits.ram_mb, limits.seconds, _ready, begun)
    except InputError:
        console = Console(stderr=True)
        if console.is_terminal:  # whose progress was cut off as it stood
            console.show_cursor()
            console.print()
        raise


def _ready() -> None:
    """Import what a device needs, and start its thread: what comes later counts against the limits."""

    import edge.device
    import edge.ort  # noqa: F401
    from edge.graph import WATCH

    WATCH.start()
