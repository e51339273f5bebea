"""A device trusts the key that signed its first bundle, remembers it, and takes nothing from anybody else.

Owns: whether a bundle is from whom the device's earlier ones are from. Does not own: whether a signature holds
(`edge.signature`), what a policy allows (`edge.policy`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from edge.bundle import Bundle
from edge.delta import Delta
from edge.policy import NAME, Policy
from edge.signature import KeyId
from edge.state import PREVIOUS, STATE, Damaged, Store
from privacy.errors import InputError

FACT = "publisher"
"""Of a device's state: the id of the key that it remembers; null: it was let to take what nobody signed."""


def check(bundle: Bundle, store: Store, policy: Policy) -> None:
    """Compare a bundle's key with the one in a device's state, where there is one; where not, any key will do.

    Raises `InputError` for another key than the one remembered, and for a bundle that nobody signed, unless the
    device's policy allows it.
    """
    remembered = _remembered(store)
    if remembered is not None and bundle.signed_by != remembered:
        by = "nobody" if bundle.signed_by is None else f"key {bundle.signed_by[:16]}..."
        raise InputError(
            f"bundle {bundle.root} is signed by {by}, but {store.folder} has trusted key {str(remembered)[:16]}... "
            "since its first use; get the bundle from whom it came from, or start afresh with another --state"
        )
    if bundle.signed_by is None and policy.signed:
        raise InputError(
            f"bundle {bundle.root} is not signed, so nobody can tell who made it; sign it with `edgefr bundle sign`, "
            f"or allow it with `signed: false` in {store.folder / NAME}"
        )


def check_update(delta: Delta, keys: Sequence[KeyId] | None) -> None:
    """Refuse an update that none of the publisher's keys has signed; None: the device was let to take nobody's.

    Raises `InputError`.
    """
    if keys is not None and delta.signed_by not in keys:
        by = "nobody" if delta.signed_by is None else f"key {delta.signed_by[:16]}..."
        raise InputError(
            f"the update is signed by {by}, and this device takes its publisher's alone; get it from there, or sign it "
            "with `export.sign.sign_delta`; nothing was changed"
        )


def _remembered(store: Store) -> str | None:
    """Return the key that a device's state has, the one before where it is damaged; None for a new device."""
    for name in (STATE, PREVIOUS):
        if (store.folder / name).exists():
            with suppress(Damaged):
                found: str | None = store.read(name).facts.get(FACT)
                return found
    return None
