"""A device starts as somebody new, or as a simulated user that the bundle carries: this makes its first state."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from edge.bundle import Bundle
from edge.clients import Clients
from edge.device_ledger import Spending
from edge.learning import Learning
from edge.learning_check import check_tensors
from edge.state import State
from privacy.errors import InputError

NUMBER_BITS = 62
"""Of a new device's own number, which keys its draws; drawn, so that it tells nothing."""
NAME_LIMIT = 200  # characters


def first_state(bundle: Bundle, tables: Mapping[str, npt.NDArray[np.float32]], user: str | None) -> State:
    """Return the state of a device that has not learned yet; `tables` are the trained tables as the bundle brings them.

    `user` is the name that a server knows the device by. Where the bundle carries users it is one of them, who brings
    its private tensors; those that only local training after the rounds changes start anew there, as in the simulator,
    and what it had trained them to is kept for scoring until then. Raises `InputError` with near names for a user that
    such a bundle does not have, and for a name that cannot be shown.
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


def renewed_state(bundle: Bundle, tables: Mapping[str, npt.NDArray[np.float32]], before: State) -> State:
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


def nothing_kept(learning: Learning) -> dict[str, npt.NDArray[np.float32]]:
    """Return the zeros that stand for the last session of a device that has learned from none."""
    how = learning.exchange
    kept = () if how is None else (*how.keeps, *how.marks)
    return {name: np.zeros(learning.tensor(name).shape, np.float32) for name in kept}
