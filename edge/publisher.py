"""A device trusts the key that signed its first bundle, remembers it, and takes nothing from anybody else.

Where the publisher has shown it a set of keys that follows from that one (`follow`), it takes what any of the set has
signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from edge.bundle import Bundle
from edge.delta import Delta
from edge.policy import NAME, Policy
from edge.rollback import NewestSeen, note
from edge.signature import KeyChain, KeyId, KeySet, Trusted, keys_in
from edge.state import PREVIOUS, STATE, Damaged, Store
from privacy.errors import InputError

FACT = "publisher"
"""Of a device's state: the id of the key that it remembers; null: it was let to take what nobody signed."""


def check_key(where: str, signed_by: KeyId | None, store: Store, policy: Policy) -> None:
    """Compare the key that signed a bundle with the one in a device's state; where there is none, any key will do.

    `where` names the bundle in errors. Raises `InputError` for another key than the one remembered, and for a bundle
    that nobody signed, unless the device's policy allows it.
    """
    shown, remembered = NewestSeen.of(store.folder).keys, _remembered(store)
    if shown is not None and signed_by not in shown.ids:
        raise InputError(
            f"{where} is signed by {_by(signed_by)}, which is not among its publisher's keys (set "
            f"{shown.version}): it is revoked, or another's; get the bundle again"
        )
    if shown is None and remembered is not None and signed_by != remembered:
        raise InputError(
            f"{where} is signed by {_by(signed_by)}, but {store.folder} has trusted key {str(remembered)[:16]}... "
            "since its first use; get the bundle from whom it came from, or start afresh with another --state"
        )
    if signed_by is None and policy.signed:
        raise InputError(
            f"{where} is not signed, so its publisher is unknown; sign it with `edgefr bundle sign`, "
            f"or allow it with `signed: false` in {store.folder / NAME}"
        )


def _by(key: str | None) -> str:
    return "nobody" if key is None else f"key {key[:16]}..."


def keys_of(bundle: Bundle, store: Store) -> list[KeyId] | None:
    """Return the keys whose updates a device takes; None where it was let to take what nobody signed."""
    shown = NewestSeen.of(store.folder).keys
    if shown is not None:
        return shown.ids
    return None if bundle.signed_by is None else [bundle.signed_by]


def follow(state: str | Path, path: str | Path, trusted: Trusted = None) -> KeySet:
    """Take a publisher's keys from a file for the device whose state lies in a folder; the newest set.

    It has to follow from the set that the device has, or be signed by the key that it has trusted since its first use;
    for a new device by one of `trusted` (None: it is trusted at first use). Raises `InputError`.
    """
    store = Store(state)
    with store.locked():
        shown, remembered = NewestSeen.of(store.folder).keys, _remembered(store)
        asked = None if trusted is None else keys_in(trusted)
        keys = asked if remembered is None else {KeyId(remembered)}
        newest = KeyChain.read(path).newest(shown, keys)
        if asked is not None and not asked & set(newest.ids):
            raise InputError(f"{path} does not have the key that was asked for; get the publisher's own")
        note(store.folder, keys=newest)
    return newest


def check_update(delta: Delta, keys: Sequence[KeyId] | None) -> None:
    """Raise `InputError` for an update that none of these keys has signed; None: nobody's signature is asked for."""
    if keys is not None and delta.signed_by not in keys:
        raise InputError(
            f"the update is signed by {_by(delta.signed_by)}, and this device takes its publisher's alone; get it from "
            "there, or sign it with `export.sign.sign_delta`; nothing was changed"
        )


def _remembered(store: Store) -> str | None:
    for name in (STATE, PREVIOUS):
        if (store.folder / name).exists():
            with suppress(Damaged):
                found: str | None = store.read(name).facts.get(FACT)
                return found
    return None
