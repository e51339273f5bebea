"""This package is the simulated fleet: device classes, what a round costs them, and the virtual clock.

Owns: `devices.yaml` and its schema, the cost model, which device and network a client has, when it is
reachable, what a round takes on it, who is still there when the round closes. Does not own: who is invited,
what is trained.
"""

from typing import TYPE_CHECKING

from edgefr.config.faces import face

if TYPE_CHECKING:
    from edgefr.fleet.clock import Fleet, RoundOutcome
    from edgefr.fleet.devices import Failure
    from edgefr.fleet.fedbuff import StepOutcome
    from edgefr.fleet.spec import FleetFile, load_fleet
    from edgefr.fleet.work import Work

_HOMES = {
    "Failure": "devices",
    "Fleet": "clock",
    "FleetFile": "spec",
    "RoundOutcome": "clock",
    "StepOutcome": "fedbuff",
    "Work": "work",
    "load_fleet": "spec",
}

__all__ = ["Failure", "Fleet", "FleetFile", "RoundOutcome", "StepOutcome", "Work", "load_fleet"]


__getattr__ = face("edgefr.fleet", {name: f"edgefr.fleet.{home}" for name, home in _HOMES.items()})
