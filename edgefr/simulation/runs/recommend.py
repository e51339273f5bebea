"""A run recommends to one of its users by the bundle of the user's device and the user's own part of the run.

Without a bundle, the saved model does.

Owns: which of the two is asked. Does not own: scores (`edge.recommender`, `export.parity`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from edge.catalogue import Recommendations, ranked
from edge.clients import named
from edge.recommender import Recommender
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.runs.folder import RunFolder
    from edgefr.simulation.runs.saved_model import Saved


def recommend(run: RunFolder, user: str | None, k: int) -> Recommendations:
    """Return the k best items for a user as (id, title, score), best first; None is a new device.

    Raises `InputError` for a user that is not in the run, and where nothing can be recommended.
    """
    found = _recommended(run, user, k)
    if found.basis == "none":
        raise InputError(f"{found.said}{'; name a user' if user is None else ''}")
    return found


def _recommended(run: RunFolder, user: str | None, k: int) -> Recommendations:
    from edgefr.simulation.runs.device_users import users_by_class
    from edgefr.simulation.runs.saved_model import open_model

    bundles = sorted(path.parent for path in (run.path / "bundles").glob("*/manifest.json"))
    if user is None:
        if not bundles:
            raise InputError(f"the run in {run.path} has no bundles, which say what a new device shows; name a user")
        return Recommender(bundles[0]).recommend(k)
    saved = open_model(run)
    number = named("user", user, {name: at for at, name in enumerate(saved.model.names.users)})
    classes = users_by_class(run, saved)
    for folder in bundles:
        if number in classes.get(folder.name, ()):
            return Recommender(folder).recommend(k, user=saved.model.state(number))
    return _by_model(run, saved, number, k)


def _by_model(run: RunFolder, saved: Saved, user: int, k: int) -> Recommendations:
    sessions = run.experiment.sessions
    if sessions.history_bonus or sessions.popularity_weight:
        raise InputError("sessions.history_bonus and sessions.popularity_weight rank with more than a model's scores")
    return best(run.experiment, saved, user, k)


def best(experiment: Experiment, saved: Saved, user: int, k: int) -> Recommendations:
    """Return the best of the offered items that the user has not seen; sessions repeat themselves, so all of them."""
    import numpy as np

    from edgefr.simulation.bundle_checks import counted
    from export.cold_start import start_list
    from export.parity import Reference
    from export.program import SessionProgram

    model = saved.model
    items, users = np.arange(len(model.names.items)), np.full(len(model.names.items), user)
    own = {name: table.rows(users, items) for name, table in model.tables.items()}
    had = len(model.left_out(user)) or len(model.past(user))
    scores = Reference(replace(model, shared={**own, **model.shared}), own).scores(user) if had else None
    repeats = isinstance(model.program, SessionProgram)
    left = model.offered if repeats else np.setdiff1d(model.offered, model.left_out(user))
    if not len(left):
        raise InputError(f"nothing to recommend: all {len(items):,} items are seen")
    start = partial(start_list, model, experiment.seed, counted(experiment))
    return ranked(left, k, scores, start, lambda i, value: (model.names.items[i], model.names.titles[i], value))
