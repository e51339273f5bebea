"""A device remembers the newest that it has seen of its publisher, in a file beside its state.

    seen.json       highest serial of a bundle, highest round of this bundle, latest time of the clock, newest keys

It is not in the state, so going back to an earlier state takes nothing out of it. Whoever had the clock wrong removes
the file. It has a lock of its own, since whoever only looks at a device notes the time too.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from edge.device_ledger import LATEST
from edge.manifest_check import AdmissionTerms
from edge.records import Record, Round, Whole
from edge.signature import KeySet, Trusted
from edge.state import SEEN, Store, held
from edge.verified_files import short
from privacy.errors import InputError
from privacy.files import write_atomic

SCHEMA: Literal["edgefr.seen/1"] = "edgefr.seen/1"
NAME, LOCK = SEEN, "seen.lock"
LIMIT = 1 << 16  # bytes
WAIT_S = 10.0
"""How long the lock is waited for: who has it writes one small file."""
MOST_AHEAD = 10_000
"""Rounds that one update may be ahead of a device: one that said a billion would keep it waiting for ever."""


class NewestSeen(Record):
    """This is the newest that a device has seen; all of it only ever grows, rounds within one bundle.

    >>> NewestSeen(schema_=SCHEMA).after(serial=7, seconds=60).after(serial=3).serial
    7
    """

    schema_: Literal["edgefr.seen/1"] = Field(alias="schema", description="format of this file")
    serial: Whole = Field(0, description="highest serial of a bundle that was taken")
    seconds: int = Field(0, ge=0, le=LATEST, description="latest time of the clock, unix seconds")
    bundle: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="id of the bundle whose rounds these are")
    round: Round = Field(0, description="highest round of an update that was taken")
    keys: KeySet | None = Field(None, description="the publisher's newest set of keys; null: it has shown none")

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return what was seen, nothing where the file is not there; `InputError` where it is damaged."""
        path = folder / NAME
        try:
            if not path.exists():
                return cls(schema_=SCHEMA)
            return cls.model_validate_json(short(path, LIMIT))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} is damaged, so the device cannot recognise old bundles; restore it, or remove it to begin anew"
            ) from error

    def round_of(self, bundle: str) -> int:
        """Return the highest round that was seen under a bundle."""
        return self.round if bundle == self.bundle else 0

    def after(
        self, serial: int = 0, seconds: int = 0, reached: tuple[str, int] | None = None, keys: KeySet | None = None
    ) -> Self:
        """Return what has been seen after this too. `reached`: a bundle's id and a round under it.

        A bundle with a serial below the highest is one before it, whose rounds no longer count.
        """
        bundle, number = self.bundle, 0
        if reached is not None and not 0 < serial < self.serial:
            bundle, number = reached
        highest = max(number, self.round if bundle == self.bundle else 0)
        newest = {"serial": max(self.serial, serial), "seconds": min(max(self.seconds, seconds), LATEST)}
        if keys is None or (self.keys is not None and keys.version < self.keys.version):
            keys = self.keys
        return self.model_copy(update={**newest, "bundle": bundle, "round": highest, "keys": keys})


def note(folder: Path, **found: Any) -> NewestSeen:
    """Add to what a device has seen, on its disk and under a lock; arguments as `NewestSeen.after`."""
    with held(folder, LOCK, WAIT_S):
        before = NewestSeen.of(folder)
        after = before.after(**found)
        if after != before:
            write_atomic(folder / NAME, (after.model_dump_json(by_alias=True) + "\n").encode(), mode=0o600)
    return after


def terms(store: Store, trusted: Trusted, now: datetime | None) -> AdmissionTerms:
    """Return the terms on which a device takes a bundle: no older one than before, and none that has ever expired."""
    before = NewestSeen.of(store.folder)
    if store.exists:  # noted before it is asked about, so what has expired once stays so
        note(store.folder, seconds=unix(now))
    return AdmissionTerms(trusted, now, before.serial, datetime.fromtimestamp(before.seconds, UTC))


def check_round(folder: Path, bundle: str, to_round: int, newest: int) -> None:
    """Check the round that an update of a bundle goes to, where the device is at round `newest`.

    Raises `InputError` for one that is older than what was seen, and for one too far ahead.
    """
    highest = NewestSeen.of(folder).round_of(bundle)
    if to_round < highest:
        raise InputError(
            f"the update goes to round {to_round}, but {highest} was seen here; fetch the newest; nothing was changed"
        )
    if to_round > newest + MOST_AHEAD:
        raise InputError(
            f"the update goes to round {to_round}, more than {MOST_AHEAD:,} after the {newest} of this device; get a "
            "newer bundle; nothing was changed"
        )


def unix(now: datetime | None) -> int:
    """Return a time, the clock's where none is given, in unix seconds."""
    moment = now or datetime.now(UTC)
    return max(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()), 0)
