"""Real devices that continue a run continue its lineage: rounds are counted and charged before they are offered.

A round is on the disk before any device hears of it, and counts its whole cohort while it is open. The order is

round opened → devices asked → sum and noise → tensors on the disk → round closed → the next

and the next server of the bundle continues after a kill: an open round is offered to the same cohort from the same
tensors, with the releases on the disk; one whose sum exists is over, and charges its whole cohort, since takers of work
are unknown. An open round is burnt (charged and never opened again) if it was a secure sum, or if the next server asks
other devices, collects uploads differently, or adds other noise. Otherwise a client is charged when it takes up work,
and clients without budget sit out, as in a simulation.

A sum has the noise that all its uploads were charged for. That noise depends on the number of rounds a server is
started for, where an epsilon is shared among them: a server for another number takes up no round, and sums no upload,
that was charged for other noise.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edgefr.engine.federation import Federation
from edgefr.engine.work import Clients
from edgefr.simulation.participation import ledger_for
from edgefr.simulation.runs.layout import LEDGER
from edgefr.simulation.runs.lineage import (
    FOLDER,
    SHARED,
    Begun,
    Closed,
    Journal,
    LedgerTerms,
    Opened,
    Started,
    digest_of,
)
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.upload_trust import SEEN, Collecting
from privacy.errors import InputError
from privacy.files import packed, sha256_of, write_atomic
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.machine import flush_folder
from privacy.plan import PrivacyPlan
from privacy.report import ledger_report
from privacy.settings import NoiseSettings, PrivacySettings

MODEL = "checkpoint/model.safetensors"
KEPT = "optimiser"  # of the server: what it keeps of each tensor
BEFORE, KNOWN = "previous", "known"  # tables as the block before left them, and the rows that it had


@dataclass
class ServingLedger:
    """This is the clients' releases in a run and all its served rounds, kept by `journal`.

    `begun`: the lineage's first line; `ledger`: None without a guarantee; `plan`: the noise; `bundle`: of the devices;
    `collecting`: how uploads reach the server; `buffered`: rounds are asynchronous; `block`: of time. `resumed`: an
    unfinished round that continues; `lost`: the line that ends one that does not, until it is written.
    """

    run: Run
    journal: Journal
    begun: Begun
    bundle: str
    ledger: Ledger | None
    plan: PrivacyPlan
    resumed: Opened | None = None
    lost: Closed | None = None
    collecting: Collecting = SEEN
    buffered: bool = False
    block: int = 0

    @classmethod
    def of(
        cls,
        run: Run,
        journal: Journal,
        plan: PrivacyPlan,
        clients: int,
        bundle: str,
        collecting: Collecting = SEEN,
        buffered: bool = False,
    ) -> ServingLedger:
        """Continue from the end of a lineage; nothing is written yet.

        Raises `InputError` for a run whose files changed since its beginning.
        """
        empty = ledger_for(run.experiment.privacy, plan, clients)
        total = None if empty is None else _own(run, empty)
        begun, earlier = _beginning(run, clients, total), journal.lineage.begun
        if earlier is not None and earlier != begun:
            raise InputError(
                f"{run.path} is not as it was when devices first went on with it (its experiment, tensors or ledger "
                "have changed); put its files back"
            )
        event = None if total is None else plan.event
        resumed, lost = _left_open(journal, bundle, event, collecting, buffered)
        if total is not None:
            journal.lineage.charge(total, open_too=lost is not None)
        return cls(run, journal, begun, bundle, total, plan, resumed, lost, collecting, buffered)

    @property
    def event(self) -> Event | None:
        """Return what each release in a round is; None where nothing is guaranteed."""
        return None if self.ledger is None else self.plan.event

    @property
    def round(self) -> int:
        """Return the number of the last finished round."""
        return self.journal.lineage.over or self.begun.round

    def check(self, clients: Clients, rounds: int, settings: PrivacySettings) -> None:
        """Raise `InputError` where `rounds` more would cost one of `clients` more than the promised epsilon.

        With a budget spent clients sit out, and it is raised only if all have.
        """
        if self.ledger is None:
            return
        if not deepcopy(self.ledger).admit(clients, *self._events).any():
            raise InputError(
                f"all {len(clients)} clients have spent the budget, an epsilon of {self.ledger.budget:g}: none may "
                "release anything more; make the run anew with a larger privacy.budget or more noise"
            )
        promised = settings.epsilon if isinstance(settings, NoiseSettings) else None
        if promised is None or settings.budget is not None:
            return
        if self._after(rounds, clients) <= promised:
            return
        most = bisect_right(range(1, rounds), promised, key=lambda more: self._after(more, clients))
        spent = float(self.ledger.epsilon(clients).max(initial=0.0))
        fits = f"{most} fit: give --rounds {most}" if most else "none fits any more: make the run anew"
        left = self.journal.lineage.open
        if left is not None and self.lost is not None and self.lost.burnt:
            fits += f" (round {left.round}, which a killed server left, goes on where as many are asked for as then)"
        raise InputError(
            f"an epsilon of {promised:g} is promised, of which {spent:.4g} is spent; of {rounds} rounds more {fits}, "
            "with privacy.sigma in place of privacy.epsilon, or with a privacy.budget above it"
        )

    def rested(self, number: int, clients: Clients, since: Mapping[int, int] | None = None) -> Clients:
        """Return those of `clients` whom no round asked that a plan wants apart from this one.

        `since`: in which round each was asked last, where the lineage does not know it yet.
        """
        if self.plan.apart == 1:
            return clients
        last = self.journal.lineage.last_asked(number) | dict(since or {})
        free = [number - last[client] >= self.plan.apart if client in last else True for client in clients.tolist()]
        return clients[np.array(free, np.bool_)]

    def _after(self, rounds: int, clients: Clients) -> float:
        """Return the largest epsilon of `clients` if all of them released as often as they may in so many rounds."""
        assert self.ledger is not None
        ahead = deepcopy(self.ledger)
        for _ in range(-(-rounds // self.plan.apart)):
            ahead.spend(clients, *self._events)
        return float(ahead.epsilon(clients).max(initial=0.0))

    def settle(self) -> None:
        """Write the line that ends a killed server's round, where it does not continue."""
        if self.lost is not None:
            self.journal.append(self.lost)
            self.lost = None

    def open(self, number: int, cohort: Clients) -> Clients:
        """Return those of a round's cohort who may release once more; the lineage counts all of them."""
        if self.resumed is not None and not self.buffered:  # it is on the disk already
            return np.array(self.resumed.clients, np.int64)
        may = np.ones(len(cohort), np.bool_) if self.ledger is None else self.ledger.admit(cohort, *self._events)
        if self.resumed is not None:
            return cohort[may]
        if self.journal.lineage.begun is None:
            self.journal.append(self.begun)
        how: dict[str, Any] = {"sealed": self.collecting.sealed, "trusted": self.collecting.trusted}
        how |= {"buffered": self.buffered, "block": self.block}
        asked = [] if self.buffered else cohort[may].tolist()
        lines = {"clients": asked, "refused": cohort[~may].tolist(), **how}
        self.journal.append(Opened(round=number, bundle=self.bundle, event=self.event, **lines))
        return cohort[may]

    def start(self, clients: list[int]) -> None:
        """Write that these clients too are offered the open asynchronous round."""
        assert self.journal.lineage.open is not None
        self.journal.append(Started(round=self.journal.lineage.open.round, clients=clients))

    def started(self, since: int) -> dict[int, int]:
        """Return who is at work in asynchronous rounds from `since` on, with the round of the last start.

        Clients in a sum are done; those charged for other noise are given up.
        """
        events = {opened.round: opened.event for opened, _ in self.journal.lineage.rounds}
        found: dict[int, int] = {}
        for opened, closed in self.journal.lineage.rounds:
            if opened.buffered and opened.bundle == self.bundle:
                found |= dict.fromkeys(opened.clients, opened.round)
            for client, number in () if closed is None else closed.summed:
                if found.get(client) == number:
                    del found[client]
        return {c: number for c, number in found.items() if number >= since and events[number] == self.event}

    def keep(self, number: int, federation: Federation, summed: Sequence[tuple[int, int]] = ()) -> None:
        """Write the server's tensors after a round with all that its next step needs.

        `summed`: clients and rounds in an asynchronous sum. Raises `RuntimeError` first where the noise is not the
        charged one.
        """
        self._check_noise(federation.plan, summed)
        kept = {} if federation.optimiser is None else federation.optimiser.state()
        arrays = {f"shared.{name}": value.cpu().numpy() for name, value in federation.shared.items()}
        counts: dict[str, dict[str, int]] = {}
        for name, parts in kept.items():
            counts[name] = {part: value for part, value in parts.items() if isinstance(value, int)}
            arrays |= {f"{KEPT}.{p}.{name}": v.cpu().numpy() for p, v in parts.items() if p not in counts[name]}
        for name, (table, known) in federation.previous.items():
            arrays |= {f"{BEFORE}.{name}": table.cpu().numpy(), f"{KNOWN}.{name}": known.cpu().numpy()}
        facts = {"schema": "edgefr.lineage/1", "round": number, "head": self.journal.lineage.head, "block": self.block}
        facts[KEPT] = counts
        if summed:
            facts["summed"] = list(summed)
        write_atomic(self.path, packed(arrays, {"lineage": json.dumps(facts)}))
        with suppress(OSError):  # not every file system can
            flush_folder(self.path.parent)

    def _check_noise(self, plan: PrivacyPlan, summed: Sequence[tuple[int, int]]) -> None:
        """Raise `RuntimeError` unless the open round and all summed uploads were charged for `plan`."""
        assert self.journal.lineage.open is not None
        numbers = {self.journal.lineage.open.round, *(number for _, number in summed)}
        for opened, _ in self.journal.lineage.rounds:
            if opened.round in numbers and opened.event not in (None, plan.event):
                raise RuntimeError(f"the sum has another noise than round {opened.round} was charged for")

    def close(self, started: Iterable[int], summed: Sequence[tuple[int, int]] = ()) -> None:
        """Close the round and charge those who took up its work; its tensors are on the disk."""
        opened, clients = self.journal.lineage.open, sorted(started)
        assert opened is not None
        if self.resumed is not None or self.buffered:  # nobody can tell who took it up before, or all of them did
            clients, self.resumed = opened.clients, None
        if self.ledger is not None:
            self.ledger.spend(np.array(clients, np.int64), *self._events)
        tensors = digest_of(self.path)
        pairs = list(summed)
        self.journal.append(Closed(round=opened.round, clients=clients, tensors=tensors, burnt=False, summed=pairs))

    def restore(self, federation: Federation) -> None:
        """Set a federation to the lineage's last closed round, in the open block of time.

        Tensors that a rule looks back at are set if that round was in the same block.
        """
        if self.journal.lineage.tensors is None:
            return
        tensors, facts = _read(self.path)
        own = {name: torch.from_numpy(value) for name, value in _named(tensors, "shared").items()}
        if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in federation.shared.items()}:
            raise InputError(f"{self.path} has other tensors than the run; put the run's own there")
        federation.shared = {name: value.to(federation.device) for name, value in own.items()}
        if federation.optimiser is not None:
            kept = {name: dict(counts) for name, counts in facts[KEPT].items()}
            for place, value in _named(tensors, KEPT).items():
                part, _, name = place.partition(".")
                kept[name][part] = value
            federation.optimiser.restore(kept, federation.device)
        if facts.get("block", 0) == self.block:
            before, known = _named(tensors, BEFORE), _named(tensors, KNOWN)
            pairs = {name: (torch.from_numpy(before[name]), torch.from_numpy(known[name])) for name in before}
            federation.previous = {n: (a.to(federation.device), b.to(federation.device)) for n, (a, b) in pairs.items()}

    @property
    def path(self) -> Path:
        return self.run.path / FOLDER / SHARED

    def report(self) -> dict[str, Any] | None:
        """Return the summary's worst spent epsilon in the lineage, and who sat out."""
        return None if self.ledger is None else ledger_report(self.ledger, self.journal.lineage.seen)

    @property
    def _events(self) -> tuple[Event, ...]:
        return () if self.event is None else (self.event,)


def _own(run: Run, empty: Ledger) -> Ledger:
    """Return the ledger of a run's own rounds; `empty` where it had none."""
    found = run.simulated_ledger({"delta": empty.delta, "adjacency": empty.adjacency})
    if found is None and run.experiment.rounds:
        raise InputError(f"{run.path} has no {LEDGER} of its {run.experiment.rounds} rounds; put it back")
    if found is not None and len(found) != len(empty):
        raise InputError(f"the ledger of {run.path} has {len(found)} clients, the run {len(empty)}; run it again")
    return found or empty


def _beginning(run: Run, clients: int, ledger: Ledger | None) -> Begun:
    """Return the first line of the run's lineage."""
    terms = None
    if ledger is not None:
        budget = ledger.budget if math.isfinite(ledger.budget) else None
        terms = LedgerTerms(delta=ledger.delta, adjacency=ledger.adjacency, budget=budget)
    return Begun(
        run=sha256_of(run.path / "experiment.yaml"),
        model=sha256_of(run.path / MODEL),
        ledger=digest_of(run.path / LEDGER),
        round=run.experiment.total_rounds,
        clients=clients,
        terms=terms,
    )


def _left_open(
    journal: Journal, bundle: str, event: Event | None, collecting: Collecting, buffered: bool
) -> tuple[Opened | None, Closed | None]:
    """Return the round that a killed server left open, or the line that ends it where these devices cannot continue.

    It is closed if its tensors are on the disk. It is burnt if its bundle, `event` or way of collecting differs, or if
    it was sealed, since devices held its keys in memory. Raises `InputError` for tensors that are not the lineage's.
    """
    lineage, path = journal.lineage, journal.run / FOLDER / SHARED
    for left in path.parent.glob(".*.part"):  # of a server that was killed while it wrote
        left.unlink(missing_ok=True)
    there, opened = digest_of(path), lineage.open
    facts = None if opened is None or there is None else _read(path)[1]
    stepped = facts is not None and facts["head"] == lineage.head
    if there != lineage.tensors and not stepped:
        raise InputError(f"{path} is not what the last served round left; put it back")
    if opened is None:
        return None, None
    again = opened.bundle == bundle and not opened.sealed and opened.event == event
    how = collecting.sealed, collecting.trusted, buffered
    if not stepped and again and (opened.sealed, opened.trusted, opened.buffered) == how:
        return opened, None
    summed = [] if facts is None or not stepped else [(int(a), int(b)) for a, b in facts.get("summed", [])]
    lines = {"clients": opened.clients, "tensors": there, "burnt": not stepped, "summed": summed}
    return None, Closed(round=opened.round, **lines)


def _read(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the tensors of a lineage, and the facts beside them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        facts = json.loads(header["__metadata__"]["lineage"])
        if not {"head", "round", KEPT} <= facts.keys():
            raise ValueError("its header says too little")
        return load(content), facts
    except (OSError, SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"cannot read {path}: {error}; put it back") from error


def _named(tensors: Mapping[str, npt.NDArray[Any]], part: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}
