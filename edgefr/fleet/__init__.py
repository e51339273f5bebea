"""This package is the simulated fleet: device classes, what a round costs them, and the virtual clock.

Owns: `devices.yaml` and its schema, the cost model, which device and network a client has, when it is
reachable, what a round takes on it, who is still there when the round closes. Does not own: who is invited,
what is trained.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefr.fleet.buffered import StepOutcome
    from edgefr.fleet.clock import Fleet, RoundOutcome
    from edgefr.fleet.devices import Failure
    from edgefr.fleet.spec import FleetFile, load_fleet
    from edgefr.fleet.work import Work

_HOMES = {
    "Failure": "devices",
    "Fleet": "clock",
    "FleetFile": "spec",
    "RoundOutcome": "clock",
    "StepOutcome": "buffered",
    "Work": "work",
    "load_fleet": "spec",
}

__all__ = ["Failure", "Fleet", "FleetFile", "RoundOutcome", "StepOutcome", "Work", "load_fleet"]


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that a fleet file is read without the simulation."""
    if name not in _HOMES:
        raise AttributeError(f"module 'edgefr.fleet' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f"edgefr.fleet.{_HOMES[name]}"), name)
