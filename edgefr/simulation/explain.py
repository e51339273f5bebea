"""A run or a bundle says what one user's recommendations lean on, and how the items of two users lie (FedCAR Fig. 3-4).

    a run: its saved model, in torch      a bundle: its own graph, without torch      the same weights

Owns: whom and which items are asked about, and where it is written. Does not own: weights (a program's `explain`,
`edge.explain`), pictures (`edgefr.report.explanations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge.explain import checked as checked_weights
from edge.explain import named
from edgefr.config.arguments import at_least_one, checked
from edgefr.report.explanations import MAP, Explained, ItemMap
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.files import write_json

if TYPE_CHECKING:
    from edgefr.experiment.experiment import Experiment
    from export.parity import Reference

OWN_ROWS = "clients recommend from item rows of their own in this run, which are not explained yet"
ASKED, BEST, HELD_OUT = "asked for", "recommended", "held out"


def _of_bundle(bundle: Path, user: str | None, items: Sequence[str], k: int) -> Explained:
    from edge.archive import opened
    from edge.recommender import Recommender

    with opened(bundle) as held:
        found = Recommender(held.root).explain(list(items) or None, user=user, k=k)
    return Explained("a new device" if user is None else user, found, [ASKED if items else BEST] * len(found))


def _of_run(run: Run, user: str | None, items: Sequence[str], k: int) -> Explained:
    import torch

    from edge.clients import named as numbered
    from edgefr.simulation.runs.recommend import best
    from edgefr.simulation.runs.saved_model import open_model

    saved = open_model(run)
    model, number = saved.model, user_of(saved.model.names.users, user)
    length = model.program.window
    if not model.program.explains or length is None:
        raise InputError(refusal(run.experiment))
    if model.tables:
        raise InputError(OWN_ROWS)
    places = {name: at for at, name in enumerate(model.names.items)}
    if items:
        asked, why = [numbered("item", item, places) for item in items], [ASKED] * len(items)
    else:
        asked = [places[item] for item, *_ in best(run.experiment, saved, number, k)]
        held = model.held_out
        more = [] if held is None else held.items[held.users == number].tolist()
        why = [f"{BEST}, {HELD_OUT}" if item in more else BEST for item in asked]
        more = [item for item in more if item not in asked]
        asked, why = [*asked, *more], [*why, *[HELD_OUT] * len(more)]
    window = model.window(number, length)
    chosen = np.array(asked, np.int64)
    told = reference_of(model).weights(number, torch.from_numpy(chosen))
    weights, names = checked_weights(told, len(chosen), window, "the model"), model.names
    found = named(lambda item, value: (names.items[item], names.titles[item], value), chosen, window, weights)
    return Explained(str(user), found, why)


def refusal(experiment: Experiment) -> str:
    """Say that a method explains nothing, and which do."""
    from edgefr.experiment.method import METHODS

    method = experiment.row.name
    if experiment.row.ordered:
        return f"{method} looked at nothing that users had last in this run: train one with model.context above 0"
    able = ", ".join(row.name for row in METHODS.values() if row.ordered)
    return (
        f"{method} does not say what a recommendation leans on; methods with attention over what users had do: {able}"
    )


def user_of(users: Sequence[str], user: str | None) -> int:
    """Return the number of a user. Raises `InputError` for none, and with near names for one that is not there."""
    from edge.clients import named as numbered

    if user is None:
        raise InputError("name one of the run's users: --user")
    return numbered("user", user, {name: at for at, name in enumerate(users)})


def reference_of(model: Any) -> Reference:
    """Return a model's users in torch."""
    from export.parity import Reference

    return Reference(model)


def _item_map(model: Any, reference: Reference, user: int, seed: int) -> ItemMap:
    import torch

    from edgefr.config import random_streams as purposes
    from privacy import keyed

    had = np.unique(model.left_out(user))
    others = np.setdiff1d(np.asarray(model.offered, np.int64), had)
    drawn = keyed.choose(keyed.key(seed, purposes.ITEM_MAP, user), others, len(had))
    items = np.concatenate([had, drawn])
    if len(items) < LEAST:
        name = model.names.users[user]
        raise InputError(f"{name} had {len(had)} items, too few for a map; name a user with at least {LEAST // 2}")
    at = _laid_out(reference.conditioned(user, torch.from_numpy(items)), seed)
    return ItemMap(model.names.users[user], [model.names.items[item] for item in items], np.isin(items, had), at)


LEAST = 10
"""Points of the smallest map."""

PERPLEXITY = 30.0  # neighbours that t-SNE keeps near, as usual; a third of the points where that is fewer


def _laid_out(vectors: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
    """Return points of the plane [n, 2] by t-SNE (van der Maaten & Hinton, 2008)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise InputError("maps of items need scikit-learn: pip install 'edgefr[map]'") from error
    near = min(PERPLEXITY, (len(vectors) - 1) / 3)
    placed = TSNE(2, perplexity=near, init="pca", random_state=seed % 2**32, n_jobs=1).fit_transform(vectors)
    return np.asarray(placed, np.float32)


def write_maps(maps: Sequence[ItemMap], out: Path) -> None:
    """Write maps as .json, and beside each other in one picture as .png and .svg."""
    from edgefr.report.explanations import maps_figure
    from edgefr.report.figures import written

    record = [
        {"user": one.user, "items": list(one.items), "positive": one.positive.tolist(), "at": one.at.tolist()}
        for one in maps
    ]
    write_json(out / f"{MAP}.json", {"users": record})
    written(maps_figure(maps), out / MAP)


@checked
def explain(
    source: Run | str | Path,
    user: str | None = None,
    items: Sequence[str] = (),
    *,
    k: int = 3,
    out: str | Path | None = None,
) -> Explained:
    """Say what recommendations for a user lean on among the items that it had last: shares that sum to 1.

    `source`: a run, or a bundle that carries the user (a folder or a zip; None: a new device, which had nothing).
    `items`: ids (none: the `k` best, and of a run the item held out for validation). `out`: a folder for a picture and
    the numbers. Raises `InputError` for a user or an item that is not there, and for a method that says nothing of the
    kind.

    Example: ``edgefr.explain("runs/car", "u0000003").frame``
    """

    at_least_one(k=k)
    given = source.path if isinstance(source, Run) else Path(source)
    bundle = given.suffix == ".zip" or (given / "manifest.json").exists()
    found = _of_bundle(given, user, items, k) if bundle else _of_run(Run.of(source), user, items, k)
    if out is not None:
        found.write(Path(out))
    return found


@checked
def map_items(run: Run | str | Path, users: Sequence[str], *, out: str | Path | None = None) -> list[ItemMap]:
    """Lay out by t-SNE the items that users had, and as many that they had not, as their clients have them.

    Where a client makes something of its own of each item, such as FedCAR's c beside q, that is laid out with the
    item's vector. The same seed gives the same map. `out`: a folder for one picture of them all and the numbers. Raises
    `InputError` for users that are not in the run, for methods whose clients have item rows of their own, and without
    scikit-learn (the extra `map`).

    Example: ``edgefr.map_items("runs/car", ["u0000003", "u0000008"], out="maps")``
    """

    from edgefr.simulation.runs.saved_model import open_model

    opened = Run.of(run)
    model = open_model(opened).model
    if model.tables:
        raise InputError(OWN_ROWS)
    if not users or len(set(users)) < len(users):
        raise InputError("name users to draw, each once")
    numbers = [user_of(model.names.users, user) for user in users]
    reference = reference_of(model)
    found = [_item_map(model, reference, user, opened.experiment.seed) for user in numbers]
    if out is not None:
        write_maps(found, Path(out))
    return found
