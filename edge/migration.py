"""A device's state goes on under a newer bundle of the same lineage: other items, a later round, the same model.

What the device has made of its owner's data stays: private tensors, interactions, memory, name, number, ledger. What
the server has made is the newer bundle's. Items are matched by id; those that are gone are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.enrol import first_state
from edge.learning import Learning
from edge.state import State
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Carried:
    """This says what of a device's interactions has gone on under a newer bundle, and what its catalogue lacks."""

    kept: int
    gone: int


def check_follows(old: Bundle, new: Bundle) -> None:
    """Check that a bundle is of another's lineage and not older. Raises `InputError` with what does not agree."""
    one, two = old.manifest, new.manifest
    if one.bundle_id == two.bundle_id:
        raise InputError(f"{new.root} is the bundle that this device has already; nothing was changed")
    if two.serial < one.serial:
        raise InputError(f"{new.root} is older than the device's bundle (serial {two.serial}, not {one.serial})")
    said = {
        "method": (one.method, two.method),
        "experiment": tuple(m.provenance.get("experiment") for m in (one, two)),
        "learning": tuple(b.config.learning is not None for b in (old, new)),
        "sessions": tuple(b.config.window is not None for b in (old, new)),
    }
    for name, (before, after) in said.items():
        if before != after:
            raise InputError(
                f"{new.root} is not of the lineage of the device's bundle ({name}: {after}, not {before}): begin anew "
                "under it with --renew; nothing was changed"
            )


def migrated_state(
    old: Catalogue, bundle: Bundle, new: Catalogue, tables: Mapping[str, Floats], before: State
) -> tuple[State, Carried]:
    """Return a device's state under a newer bundle, whose trained tables are `tables`, and what has gone on.

    Raises `InputError` where private tensors have other names or shapes there.
    """
    state = first_state(bundle, tables, before.facts["user"])
    _check_private(bundle, before.part("private"), state.part("private"))
    state.put("private", before.part("private"))
    state.drop("personal")
    state.put("personal", _personal(bundle.config.learning, before.part("personal")))
    state.drop("ledger")
    state.put("ledger", before.part("ledger"))
    number = {item: place for place, item in enumerate(new.ids)}
    places = np.array([number.get(item, -1) for item in old.ids], np.int64)
    for name, items in before.part("items").items():
        state.tensors[f"items.{name}"] = _present(places[items])
    if "session.items" in before.tensors:
        items = places[before.tensors["session.items"]]
        session = {"items": items[items >= 0], "times": before.tensors["session.times"][items >= 0]}
        state.put("session", session)
    state.put("memory", _memory(before.part("memory"), places, new, bundle.config.learning))
    state.facts |= {
        "number": before.facts["number"],
        "block": before.facts["block"],
        "renewed": len(before.tensors["ledger.round"]),
    }
    own = np.unique(np.concatenate([before.tensors["items.own"], before.tensors["items.past"]]))
    kept = len(_present(places[own]))
    return state, Carried(kept, len(own) - kept)


def _check_private(bundle: Bundle, before: Mapping[str, Floats], after: Mapping[str, Floats]) -> None:
    one, two = ({name: list(value.shape) for name, value in part.items()} for part in (before, after))
    if one != two:
        odd = min(name for name in {*one, *two} if one.get(name) != two.get(name))
        raise InputError(
            f"bundle {bundle.root} has private {odd} as {two.get(odd, 'none')}, this device as {one.get(odd, 'none')}: "
            "what it has learned does not fit; begin anew under it with --renew; nothing was changed"
        )


def _personal(learning: Learning | None, personal: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return what local training made, where all of it still fits; else it is made anew when it is asked for."""
    shapes = {} if learning is None else {tensor.name: list(tensor.shape) for tensor in learning.tensors}
    return dict(personal) if all(shapes.get(n) == list(v.shape) for n, v in personal.items()) else {}


def _memory(
    memory: Mapping[str, npt.NDArray[Any]], places: Ints, new: Catalogue, learning: Learning | None
) -> dict[str, npt.NDArray[Any]]:
    """Return what is remembered of items that may still be recommended; nothing where nothing is replayed."""
    if not memory or learning is None or learning.replay is None:
        return {}
    items, labels = memory["items"], memory["labels"]
    moved = np.where(items >= 0, places[np.maximum(items, 0)], -1)
    there = (moved >= 0) & new.offered[np.maximum(moved, 0)]
    return {"items": moved[there].astype(items.dtype), "labels": labels[there]}


def _present(items: Ints) -> Ints:
    found: Ints = items[items >= 0]
    return found
