"""This package is the simulated fleet: device classes, what a round costs them, and the virtual clock.

Owns: `devices.yaml` and its schema, the cost model, which device and network a client has, when it is
reachable, what a round takes on it, who is still there when the round closes. Does not own: who is invited,
what is trained.
"""

from edgefr.fleet.buffered import StepOutcome
from edgefr.fleet.clock import Fleet, RoundOutcome
from edgefr.fleet.devices import Failure
from edgefr.fleet.spec import FleetFile, load_fleet
from edgefr.fleet.table import table
from edgefr.fleet.work import Work

__all__ = ["Failure", "Fleet", "FleetFile", "RoundOutcome", "StepOutcome", "Work", "load_fleet", "table"]
