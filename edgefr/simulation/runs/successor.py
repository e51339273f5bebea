"""A run can stand in for another one, as it would have been without somebody who left: for its successor it ends.

    RUN/private/successor.json          which run stands in for this one
    SUCCESSOR/private/population.json   who is in it: nobody else of its data set, whoever reads that again
    SUCCESSOR/private/earlier.parquet   what they had released before, in all rounds of the runs it stands in for

Owns: these files. Does not own: the training (`edgefr.simulation.retrain`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefr.simulation.runs.folder import RunFolder
from edgefr.simulation.runs.layout import CHECKPOINT, EARLIER, POPULATION, PRIVATE, SUCCESSOR
from edgefr.simulation.runs.ledger_file import read_ledger_file, write_ledger_file
from privacy.errors import InputError, unknown
from privacy.files import write_json
from privacy.ledger import Ledger


@dataclass(frozen=True)
class Successor:
    """These are the `users` of a run that stands in for another, and what each of them had released before.

    `earlier`: their ledger, in this order (None: nothing was counted).
    """

    users: list[str]
    earlier: Ledger | None = None

    @classmethod
    def of(cls, run: RunFolder) -> Successor | None:
        """Read that of a run; None for one that stands in for no other. Raises `InputError` for damaged files."""
        path = run.path / PRIVATE / POPULATION
        if not path.exists():
            return None
        try:
            users: list[str] = json.loads(path.read_text(encoding="utf-8"))["users"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(f"{path} does not say who is in the run ({error}); put it back") from error
        earlier = read_ledger_file(run.path / PRIVATE / EARLIER)
        if earlier is not None and len(earlier) != len(users):
            raise InputError(f"{run.path / PRIVATE / EARLIER} is not of the users in {path}; put both back")
        return cls(users, earlier)

    @classmethod
    def without(cls, run: RunFolder, leaving: Sequence[str]) -> Successor:
        """Return that of a finished run without these users. Raises `InputError` for somebody who is not in it."""
        users: list[str] = json.loads((run.path / CHECKPOINT / "names.json").read_text(encoding="utf-8"))["users"]
        for user in leaving:
            if user not in users:
                raise unknown("user", user, users)
        stay = [number for number, user in enumerate(users) if user not in leaving]
        earlier = run.read_ledger(run.summary.get("privacy") or {})
        return cls([users[number] for number in stay], None if earlier is None else earlier.of_clients(stay))

    def write(self, run: RunFolder) -> None:
        """Save it in the private part of a run that is going to begin."""
        folder = run.closed(PRIVATE)
        write_json(folder / POPULATION, {"users": self.users}, mode=0o600)
        if self.earlier is not None:
            write_ledger_file(folder / EARLIER, self.earlier, self.earlier.run)

    def ledger(self, users: Sequence[str]) -> Ledger | None:
        """Return what these users had released before, numbered as they stand; a protocol may have dropped others."""
        number = {user: at for at, user in enumerate(self.users)}
        return None if self.earlier is None else self.earlier.of_clients(np.array([number[user] for user in users]))


def check_last(run: RunFolder, but: Path | None = None) -> None:
    """Raise `InputError` where another run than `but` stands in for this one: its ledger goes on there alone."""
    path = run.path / PRIVATE / SUCCESSOR
    if not path.exists():
        return
    try:
        other = run.path / json.loads(path.read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{path} does not say which run stands in for this one ({error}); put it back") from error
    if other.exists() and (but is None or not but.exists() or not other.samefile(but)):
        raise InputError(f"{os.path.normpath(other)} stands in for {run.path}, whose ledger goes on there: name it")


def mark(run: RunFolder, other: Path) -> None:
    """Note in a run that `other` stands in for it from now on."""
    write_json(run.closed(PRIVATE) / SUCCESSOR, {"run": os.path.relpath(other, run.path)}, mode=0o600)
