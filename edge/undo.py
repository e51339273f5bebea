"""A device goes back to the model before the last update, or to the bundle before; its ledger never does."""

from __future__ import annotations

from edge.release import BEGUN
from edge.state import EARLIER, LEDGER, PREVIOUS, Damaged, State, Store
from privacy.errors import InputError


def undo(store: Store, own: str) -> None:
    """Put the state before the last update in place of the one of bundle `own`; the caller holds the lock.

    Where there was no update under this bundle, it is the state under the one before, which brings nothing with it but
    the ledger, since its items have other numbers. Raises `InputError` when there is neither, and where nobody knows
    what was released.
    """
    if not store.settled and not _is_of(store, PREVIOUS, own):
        before = store.read(EARLIER)
        if before.facts.get("bundle") != own:
            _with(before, _now(store, own)[0], ["ledger"])
            store.write(before)
            store.settle()
            return
    before = store.read(PREVIOUS)
    if before.facts.get("bundle") != own:
        raise InputError("there is no update of this bundle to go back from; what was before is another bundle's")
    now, kept = _now(store, own)
    _with(before, now, kept)
    before.facts["block"] = now.facts.get("block", before.facts["block"])
    store.write(before)


def _is_of(store: Store, name: str, own: str) -> bool:
    try:
        return bool(store.read(name).facts.get("bundle") == own)
    except Damaged:
        return False


def _with(before: State, now: State, parts: list[str]) -> None:
    """Put parts of the state now in place of those before, where no round is begun: nobody knows what became of it."""
    before.facts.pop(BEGUN, None)
    for part in parts:
        before.drop(part)
        before.put(part, now.part(part))


def _now(store: Store, own: str) -> tuple[State, list[str]]:
    """Return the state, and what of it stays; of a damaged one the ledger beside it."""
    try:
        found = store.read()
    except Damaged:
        return _ledger(store, own), ["ledger"]
    if found.facts.get("bundle") != own:
        raise InputError(f"{store.folder} is the state of another bundle; open it with that one; nothing was changed")
    return found, ["items", "session", "memory", "ledger"]


def _ledger(store: Store, own: str) -> State:
    """Return the ledger beside a damaged state; `InputError` when nobody knows what was released."""
    try:
        found = store.read(LEDGER)
        if found.facts.get("bundle") == own:
            return found
    except InputError:
        pass
    raise InputError(
        f"{store.folder}: the state is damaged, and so is its ledger: what was released can no longer be "
        "counted, so nothing more may be; give a new --state"
    )
