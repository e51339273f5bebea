"""This tells which users of a run had devices of which class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefr.fleet import Fleet, load_fleet
from edgefr.simulation.runs.folder import RunFolder

if TYPE_CHECKING:
    from edgefr.simulation.runs.saved_model import Saved


Ints = npt.NDArray[np.int64]


def fleet_of(run: RunFolder, saved: Saved) -> Fleet:
    """Return the fleet of a finished run, each of its users on the device that it had there."""
    return Fleet(load_fleet(run.path / "devices.yaml"), saved.activity, run.experiment.seed)


def users_by_class(run: RunFolder, saved: Saved) -> dict[str, Ints]:
    """Return the numbers, ascending, of the users who learned on devices of each class of the run's fleet."""
    fleet, users = fleet_of(run, saved), saved.learners
    return {name: users[fleet.device_of[users] == n] for n, name in enumerate(fleet.classes)}


def users_of_class(run: RunFolder, bundle_class: str) -> dict[int, str]:
    """Return the names of the users who learned on devices of a class, by their number in the run.

    Bundles do not say it: who is in a run is the run's own. Nobody has a device of a class that the fleet lacks.
    """
    from edgefr.simulation.runs.saved_model import open_model

    saved = open_model(run)
    return {int(user): saved.model.names.users[user] for user in users_by_class(run, saved).get(bundle_class, ())}
