"""A device starts as somebody new, or as a simulated user that the bundle carries: this makes its first state."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.clients import Clients
from edge.device_ledger import Spending
from edge.learning import Learning
from edge.state import State
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
NUMBER_BITS = 62
"""Of a new device's own number, which keys its draws; drawn, so that it tells nothing."""
NAME_LIMIT = 200  # characters


def first_state(bundle: Bundle, tables: Mapping[str, Floats], user: str | None) -> State:
    """Return the state of a device that has not learned yet; `tables` are the trained tables as the bundle brings them.

    `user` is the name that a server knows the device by. Where the bundle carries users it is one of them, with its
    private tensors; those that only local training after the rounds changes start anew, as in the simulator, and what
    it had trained them to is kept for scoring until then. Raises `InputError` for a user that such a bundle does not
    have, and for a name that cannot be shown.
    """
    clients, learning = Clients(bundle), bundle.config.learning
    number = clients.number(named(user)) if user is not None and clients.ids else None
    private, first, none = clients.private(number), clients.private(None), np.empty(0, np.int64)
    shared = clients.shared()
    if learning is not None:
        check_tensors(bundle, learning, shared, first)
    facts = {
        "bundle": bundle.manifest.bundle_id,
        "catalogue": catalogue_of(bundle),
        "publisher": bundle.signed_by,
        "user": None if user is None else named(user),
        "number": secrets.randbits(NUMBER_BITS) if number is None else clients.client(number),
        "round": learning.round if learning else 0,
        "block": 0 if learning is None else learning.block,
        "learned": None,
        "release": None,
    }
    state = State(facts, {"items.own": none, "items.past": clients.items("history", number)})
    state.put("items", {"seen": clients.items("seen", number)})
    state.put("ledger", Spending().arrays())
    state.put("shared", shared)
    state.put("table", tables)
    if bundle.config.window is not None:
        state.put("session", {"items": clients.items("history", number), "times": clients.times(number)})
    if learning is not None:
        private = nothing_kept(learning) | private
    rounds = list(private) if learning is None else learning.kept
    state.put("private", {n: v if n in rounds or n not in first else first[n] for n, v in private.items()})
    if number is not None and set(private) - set(rounds):
        state.put("personal", private)
    return state


def renewed_state(bundle: Bundle, tables: Mapping[str, Floats], before: State) -> State:
    """Return the first state under another bundle of a device that has lived under one before.

    Its ledger, name and number go on, and its interactions where the catalogue is the same; what it learned does not.
    """
    state = first_state(bundle, tables, before.facts["user"])
    state.facts |= {"number": before.facts["number"], "renewed": len(before.tensors["ledger.round"])}
    kept = ["ledger", *(("items", "session") if before.facts.get("catalogue") == catalogue_of(bundle) else ())]
    for part in kept:
        if state.part(part):
            state.put(part, before.part(part))
    return state


def catalogue_of(bundle: Bundle) -> str:
    """Return the digest of a bundle's items and their order."""
    return next(file.sha256 for file in bundle.manifest.files if file.path == bundle.manifest.ids_file)


def named(user: str) -> str:
    """Return a device's name. Raises `InputError` for one that is empty, too long, or cannot be shown."""
    if not (0 < len(user) <= NAME_LIMIT and user.isprintable()):
        raise InputError(f"a device's name is one line of 1 to {NAME_LIMIT} characters; give another --user")
    return user


def nothing_kept(learning: Learning) -> dict[str, Floats]:
    """Return the zeros that stand for the last session of a device that has learned from none."""
    how = learning.exchange
    kept = () if how is None else (*how.keeps, *how.marks)
    return {name: np.zeros(learning.tensor(name).shape, np.float32) for name in kept}


def check_tensors(
    bundle: Bundle, learning: Learning, shared: Mapping[str, Floats], private: Mapping[str, Floats]
) -> None:
    """Check that the files of a bundle have the tensors that learning names, in their shapes.

    `shared` and `private`: what the files hold, a client's for private ones. Raises `InputError` naming the tensor.
    """
    items, tables = bundle.manifest.item_count, {table.name: table for table in bundle.config.tables}
    how = learning.exchange
    made_here = set() if how is None else {*how.keeps, *how.marks}  # bundles need not bring them
    for tensor in learning.tensors:
        if tensor.kind == "rows":
            table = tables.get(tensor.name)
            got: list[int] | None = None if table is None or table.dtype == "i32" else [items, table.width]
        else:
            found = {"shared": shared, "private": private}[tensor.place].get(tensor.name)
            kept = tensor.shape if tensor.name in made_here else None
            got = kept if found is None else list(found.shape)
        if got != tensor.shape:
            what = f"learning has {tensor.name} as {tensor.shape}, its files {got or 'none'}"
            raise InputError(f"bundle {bundle.root}: {what}; export again")
    if learning.negatives > items:
        raise InputError(
            f"bundle {bundle.root}: learning draws {learning.negatives:,} negatives of {items:,} items; export again"
        )


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
