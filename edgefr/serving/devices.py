"""This backend has real devices train its shards: rounds become deltas, their releases become what a round sums.

The server needs no interactions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from edge.learning import Learning
from edge.update import ClientUpdate as Upload
from edgefr.engine.aggregate import SHORT, ReleaseTerms, ShardAggregate, release
from edgefr.engine.backends.backend import Backend
from edgefr.engine.cohort import Group
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from edgefr.serving.broker import RoundBroker
from edgefr.serving.fedbuff import BufferedBroker, Buffering, Waiting
from edgefr.serving.ledger import ServingLedger
from edgefr.serving.origin import Origins
from edgefr.serving.releases import Answers
from edgefr.serving.round_status import telling
from edgefr.serving.secure_sums import SealedRound, SumTerms
from edgefr.simulation.stages.stage import Running
from export.program import Tensors
from privacy.progress import Progress

NOTHING = ShardAggregate({}, {}, 0.0, 0, np.zeros(0), 0, 0, {})
"""The sum of nobody's uploads."""
GRACE_S = 30.0  # how long devices are given to fetch the last word


@dataclass
class Devices(Backend):
    """The backend of real devices takes their uploads as a shard's updates.

    A client without an answer after `timeout_s` is dropped from the round, and counted in `missing`. `ledger`: of the
    lineage, where a round is written before it is offered (None: in tests of one round). A round with fewer answers
    than `min_answers` publishes nothing and is counted in `withheld`. `answers`: releases of the open round on the
    disk. `sums`: terms of masked sums; `given_up` says by round why one stayed closed. `buffering`: terms of
    asynchronous rounds; `taken` are the open one's uploads by client. `progress` shows what an open round waits for.
    """

    broker: RoundBroker
    origins: Origins
    timeout_s: float
    ledger: ServingLedger | None = None
    min_answers: int = 1
    answers: Answers | None = None
    sums: SumTerms | None = None
    given_up: dict[int, str] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    resting: list[str] = field(default_factory=list)
    open: bool = False
    buffering: Buffering | None = None
    taken: dict[int, Waiting] = field(default_factory=dict)
    progress: Progress | None = None

    def invite(self, number: int, cohort: Clients) -> Clients:
        """Return those of a cohort who may release once more; others rest."""
        admitted = self._admitted(number, cohort)
        if not len(admitted):  # there will be nothing to do
            self.broker.open(number, {}, [], self.resting)
            self.missing.append(0)
        return admitted

    def _admitted(self, number: int, cohort: Clients) -> Clients:
        """Write the round down before it is offered; note who rests."""
        admitted = cohort if self.ledger is None else self.ledger.open(number, cohort)
        self.open = self.ledger is not None
        self.resting = [self.origins.users[client] for client in np.setdiff1d(cohort, admitted).tolist()]
        return admitted

    def gather(self, number: int, population: Clients, shared: Tensors) -> list[Group]:
        """Return whose uploads make an asynchronous round, by the round they started in.

        Clients are recorded before they get work; older uploads count less.
        """
        broker, how = self.broker, self.buffering
        assert isinstance(broker, BufferedBroker)
        assert how is not None
        numbers = {user: client for client, user in self.origins.users.items()}
        names = [self.origins.users[client] for client in self._admitted(number, population).tolist()]
        broker.open(number, self.origins.update(number - 1, shared), names, self.resting)

        def started(devices: list[str]) -> None:
            if self.ledger is not None:
                self.ledger.start([numbers[device] for device in devices])

        uploads = broker.gather(
            self.timeout_s, self.min_answers, started, telling(self.progress, number, min(self.min_answers, how.buffer))
        )
        self.taken = {numbers[one.device]: one for one in uploads}
        self.missing.append(how.buffer - len(uploads))
        if not uploads:
            self.withheld.append(number)
        groups = []
        for began in sorted({one.round for one in uploads}):
            clients = np.array(sorted(c for c, one in self.taken.items() if one.round == began), np.int64)
            groups.append(Group(clients, began, shared, how.weight(number - began)))
        return groups

    def resume(self) -> None:
        """Continue work and uploads of asynchronous rounds."""
        if not isinstance(self.broker, BufferedBroker) or self.ledger is None or self.answers is None:
            return
        since = self.ledger.round + 1 - self.broker.terms.max_staleness
        found = {self.origins.users[c]: n for c, n in self.ledger.started(since).items() if c in self.origins.users}
        contents: dict[str, bytes] = {}
        for user, number in found.items():
            contents |= self.answers.of(number, [user])
        self.answers.leave((found[user], user) for user in contents)
        self.broker.resume(found, contents)

    def close(self) -> None:
        started = self.broker.close()
        if self.ledger is not None and self.open:
            clients = {user: client for client, user in self.origins.users.items()}
            self.ledger.close((clients[user] for user in started), self.summed)
            self.open = False
            if self.answers is not None and isinstance(self.broker, BufferedBroker):
                for one in (*self.taken.values(), *self.broker.old()):
                    self.answers.drop(one.round, one.device)
            elif self.answers is not None:
                self.answers.clear()
            self.taken = {}

    @property
    def summed(self) -> list[tuple[int, int]]:
        """Return the clients in the sum of an asynchronous round, with the round each started in."""
        return [(client, one.round) for client, one in sorted(self.taken.items())]

    def closed(self, run: Running) -> None:
        """Close a round whose tensors are on the disk: the callback of the loop."""
        if self.ledger is not None and self.open:
            self.ledger.keep(run.stage.before + run.position.round, run.federation, self.summed)
        self.close()

    def finish(self, number: int, shared: Mapping[str, torch.Tensor]) -> None:
        """Give everybody the last word, the tensors after round `number`."""
        self.broker.finish(number, self.origins.update(number, shared), min(self.timeout_s, GRACE_S))
        if self.answers is not None:  # what waited for a next round waits no more
            self.answers.clear()

    def releases(
        self, work: LocalWork, terms: ReleaseTerms, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[ShardAggregate]:
        if work.memory is not None:
            raise ValueError("what devices replay is in their own memory")
        users = {self.origins.users[client]: client for shard in shards for client in shard.tolist()}
        if self.buffering is not None:
            for shard in shards:
                yield released([self.taken[c].update for c in shard.tolist()], self.origins.learning, terms)
            return
        if self.sums is not None:
            yield self._summed(work.round, self.sums, shared, list(users), len(shards))
            return
        self.broker.open(work.round, self.origins.update(work.round - 1, shared), users, self.resting)
        if self.answers is not None:
            self.broker.put_back(self.answers.of(work.round, users))
        uploads = self.broker.collect(self.timeout_s, telling(self.progress, work.round, self.min_answers))
        self.missing.append(len(users) - len(uploads))
        if len(uploads) < self.min_answers:
            self.withheld.append(work.round)
            uploads = {}
        for shard in shards:
            found = [uploads.get(self.origins.users[client]) for client in shard.tolist()]
            yield released([upload for upload in found if upload is not None], self.origins.learning, terms)

    def _summed(self, number: int, terms: SumTerms, shared: Tensors, users: list[str], shards: int) -> ShardAggregate:
        """Return the masked sum of a round's shards, whose parts are unknown."""
        stands = self.origins.bundle
        sealed = SealedRound(stands, number, terms, users, self.min_answers, told=self.origins.mixed)
        self.broker.open(number, self.origins.update(number - 1, shared), users, self.resting, sealed)
        total = sealed.collect(self.timeout_s, telling(self.progress, number, sealed.fewest))
        self.missing.append(len(users) - (0 if total is None else total.clients))
        if total is None:
            self.withheld.append(number)
            self.given_up[number] = sealed.given_up or ""
            return replace(NOTHING, shards=shards)
        whole = torch.from_numpy(total.steps).double().unsqueeze(0) * terms.grid
        dense = {name: value[0] for name, value in in_tensors(whole, self.origins.learning).items()}
        return replace(NOTHING, dense=dense, weight=float(total.clients), clients=total.clients, shards=shards)

    def updates(
        self, work: LocalWork, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Updates]:
        raise ValueError("local training after the rounds stays on the devices")


def released(uploads: Sequence[Upload], learning: Learning, terms: ReleaseTerms) -> ShardAggregate:
    """Return the partial sum of some devices' releases, under the simulator's terms.

    Clipping again changes nothing; a device that diverged (`dropped`) counts like a simulated client that was dropped.
    """
    terms = replace(terms, joint=None)  # where there is a projection, the devices have done it
    if learning.release.own_noise is not None:  # which is as long as it is, and says nothing of what it hides
        terms = replace(terms, largest=math.inf)
    sound = [upload for upload in uploads if not upload.dropped]
    sizes = np.array([upload.examples or 1 for upload in sound], np.int64)
    part = release(updates_of(sound, learning), sizes, terms) if sound else NOTHING
    dropped = len(uploads) - len(sound)
    return replace(
        part,
        dropped=part.dropped + dropped,
        clipped=0,  # what a device clipped it keeps to itself
        weight=part.weight + (dropped if terms.count_everyone else 0),
    )


def in_tensors(whole: torch.Tensor, learning: Learning) -> dict[str, torch.Tensor]:
    """Return vectors [C, values] by tensor, [C, *shape], with all rows of tables."""
    if learning.release.project is not None:
        return {SHORT: whole}
    shared = [learning.tensor(name) for name in learning.trained("round", "shared")]
    parts = whole.split([int(np.prod(tensor.shape)) for tensor in shared], dim=1)
    return {t.name: part.reshape(len(whole), *t.shape) for t, part in zip(shared, parts, strict=True)}


def updates_of(uploads: Sequence[Upload], learning: Learning) -> Updates:
    """Return releases of at least one device as a shard's updates, without private tensors."""
    shared = [learning.tensor(name) for name in learning.trained("round", "shared")]
    dense, rows, at = {}, {}, 0
    whole = torch.from_numpy(np.stack([upload.update for upload in uploads]))
    step = learning.release.step
    if step is not None:  # whole steps, whose sums in float64 are exact
        whole = whole.double() * step
    if learning.release.project is not None or step is not None:
        return Updates(in_tensors(whole, learning), {}, {})
    for tensor in shared:
        if tensor.kind == "rows":
            parts = [upload.rows[tensor.name] for upload in uploads]
            slots = np.repeat(np.arange(len(parts)), [len(items) for items, _ in parts])
            columns = (np.concatenate([p[0] for p in parts]), slots, np.concatenate([p[1] for p in parts]))
            rows[tensor.name] = RowUpdates(*map(torch.from_numpy, columns))
        else:
            size = int(np.prod(tensor.shape))
            dense[tensor.name] = whole[:, at : at + size].reshape(len(uploads), *tensor.shape)
            at += size
    return Updates(dense, rows, {})
