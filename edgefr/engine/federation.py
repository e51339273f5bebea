"""Federated rounds: who takes part, what leaves each device, what the server makes of it.

cohort → shards → updates → releases → one streaming sum → (noise) → shared tensors → (temporal mean)

An asynchronous cohort is several groups, one per round its clients started in: each trains from the broadcast of its
start, and its updates count less the older that is (FedBuff, Nguyen et al. 2022). For a rule that needs every update
(`cloud.rules`) all updates are held until the round ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.aggregate import Accumulator, SealedSum
from cloud.host_transfer import wait
from cloud.rule import AggregationSettings, Received, Rule
from cloud.uploads import Uploads, joined
from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler
from edgefr.config import random_streams as purposes
from edgefr.engine.aggregate import SHORT, JointVector, ReleaseTerms, ShardAggregate
from edgefr.engine.backends.backend import Backend, Inline, InProcess, blocks
from edgefr.engine.cohort import Cohort, Counters, Group, uploads_of
from edgefr.engine.device import one_thread
from edgefr.engine.noise import NoiseSource, SimulatedNoise
from edgefr.engine.tables import (
    RECEIVED,
    LaidRows,
    OwnTables,
    check_laid,
    first_tables,
    keep_rows,
    laid_out,
    made_for,
    pulls_of,
    tables_of,
    tensors_of,
)
from edgefr.engine.transfer import Exchange
from edgefr.engine.work import Clients, Executor, LocalWork, Memory, trained
from export.program import LocalProgram, Phase, Tensors
from privacy import keyed
from privacy.compress import Projection
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.noise_key import NoiseKey
from privacy.plan import PrivacyPlan
from privacy.progress import working
from privacy.prototypes import Prototypes


def terms_of(aggregation: AggregationSettings, plan: PrivacyPlan) -> ReleaseTerms:
    """Return how devices release for a rule; a fixed bound on the L2 norm is one more clip.

    Raises `InputError` for noise together with a rule that is not a sum: noise is calibrated to a clipped sum.
    """
    if plan.noise is not None and not aggregation.is_sum:
        raise InputError(f"noise is made for a sum of clipped updates, which rule {aggregation.rule} is not; use mean")
    if plan.project is not None and not aggregation.is_sum:
        raise InputError(f"a projection is made for a plain sum, which rule {aggregation.rule} does not take; use mean")
    if plan.at_least > 1 and not aggregation.is_sum:
        raise InputError(f"rule {aggregation.rule} sees every upload, so privacy.at_least closes nothing; use mean")
    step = None if plan.noise is None else plan.noise.step
    bound = aggregation.entry.bound(aggregation)
    if bound is not None and (plan.clip is None or plan.norm == "l2"):
        return ReleaseTerms(
            bound if plan.clip is None else min(plan.clip, bound), "l2", False, plan.guarantees, step=step
        )
    each = not aggregation.is_sum
    return ReleaseTerms(plan.clip, plan.norm, aggregation.by_size, plan.guarantees, each, step=step)


class Federation:
    """A federation is a server and its clients, round after round.

    `shared` are the server's tensors; `private` all clients' [clients, *shape], on the host. `shard_size` clients are
    trained per call; sums are over blocks of shards in order, so a run is the same bit for bit for a given shard size
    on any `backend` (None: in this process, by `executor`). `noise`: source of noise on sums (None: simulated, with a
    secret key). `keeps`: clients keep the tables of their last round, to recommend from (`own`).
    """

    def __init__(
        self,
        program: LocalProgram,
        *,
        clients: int,
        seed: int,
        shard_size: int,
        aggregation: AggregationSettings,
        plan: PrivacyPlan,
        device: torch.device,
        executor: Executor | None = None,
        backend: Backend | None = None,
        noise: NoiseSource | None = None,
        keeps: bool = False,
    ):
        self.program, self.seed, self.shard_size = program, seed, shard_size
        self.backend: Backend = backend or (Inline() if executor is None else InProcess(executor))
        self.noise: NoiseSource = noise or SimulatedNoise(NoiseKey.new(), seed)
        self.correlated = plan.correlated()
        self.follows, self.plan, self.device = aggregation.server_lr == "auto", plan, device
        self.aggregation = aggregation.under(plan.clip)
        self.counters = Counters(participation=np.zeros(clients, np.int64))
        self.rule: Rule = aggregation.entry
        self.terms = replace(terms_of(aggregation, plan), keeps=keeps)
        self._terms(0, self._shapes())  # a projection to more values than there are is refused before any work
        self.memory: Memory | None = None
        self.transfer: Exchange | None = None
        self.optimiser = self.rule.optimiser(aggregation)
        self.previous: dict[str, tuple[Tensor, Tensor]] = {}  # table after the previous block, and the rows it had
        program.frozen.update({name: table.to(device) for name, table in program.frozen.items()})
        self.shared = {name: value.to(device) for name, value in program.init_shared(seed).items()}
        self.tables = first_tables(program, self.shared)
        trains = trained(program, self.phases("round"), "shared", "rows") if keeps else []
        if keeps and not trains:
            raise InputError(f"evaluation.tables: clients of {program.name} train no table of items: drop it")
        self.own: dict[str, OwnTables | LaidRows] = {n: OwnTables(self.shared[n], clients) for n in trains}
        self.pulls = pulls_of(program)
        check_laid(program, clients, plan.clip is not None, self.rule.personal)
        self.private = program.init_private(seed, torch.arange(clients))

    def phases(self, when: str) -> list[Phase]:
        return [p for p in self.program.phases if p.when == when and p.epochs > 0]

    def cohort(self, number: int, population: Clients, size: int) -> Clients:
        """Draw the clients invited to a round: `size` of the population without replacement, keyed by round."""
        return keyed.choose(keyed.key(self.seed, purposes.COHORT, number), population, size)

    def order(self, number: int, population: Clients) -> Clients:
        """Return the population in the order in which a round asks it: the first `size` are its `cohort` of that."""
        drawn = keyed.fold(keyed.key(self.seed, purposes.COHORT, number), population)
        return population[np.argsort(drawn, kind="stable")]

    def shards(self, clients: Clients, activity: npt.NDArray[np.int64]) -> list[Clients]:
        """Return clients by falling activity, cut into shards: similar sizes share a call, so little is padded."""
        order = clients[np.lexsort((clients, -activity[clients]))]
        return [order[at : at + self.shard_size] for at in range(0, len(order), self.shard_size)]

    @one_thread()
    def round(self, number: int, cohort: Cohort, sampler: Sampler | SessionSampler, context: Ragged) -> None:
        """Train `cohort` and move the shared tensors by its aggregate (TransFR Eq. 5, Algorithm 1; F3CRec Eq. 7).

        A client is in one group of the cohort at most.
        """
        self.backend.start()
        started = working()
        groups = [Group(cohort, number, self.shared)] if isinstance(cohort, np.ndarray) else cohort
        named = np.concatenate([np.zeros(0, np.int64), *(group.clients for group in groups)])
        if len(np.unique(named)) < len(named):
            raise ValueError("a client is named twice in a cohort, and would release twice what is counted once")
        if groups is cohort and self.rule.personal:
            raise ValueError(f"rule {self.rule.name} compares tables of one broadcast")
        phases = self.phases("round")
        shapes = self._shapes()
        terms = self._terms(number, shapes)
        sent = shapes if terms.joint is None else {SHORT: (terms.joint.projection.kept,)}
        total = SealedSum(sent, self.device, self.plan.at_least)
        self.counters.clip_told.begin()
        each: list[tuple[Clients, Uploads]] = []
        for group in groups:
            work = LocalWork(
                self.program, phases, sampler, context, group.number, self.device, self.memory, self.tables
            )
            share, times = self._weights(group)
            under = replace(terms, share=share * terms.share, weighed=times != 1.0)
            each += self._gathered(work, under, group, total, times)
        if self.transfer is not None:
            self.transfer.ended(number, self.private)
        opened = total.open(self._noise(number, sent, groups))
        if opened is None:
            self.counters.closed += 1
        else:
            opened.weight *= 1.0 if self.follows else terms.share
            self.counters.open(opened.clients, self.plan, self.noise, number)
            if terms.joint is not None:
                opened.sums = terms.joint.whole(opened.sums[SHORT])
            if self.correlated is not None:  # what a round takes back has to count as much as when it was added
                opened.weight = float(self.plan.cohort)
            self._move(list(shapes), opened, each)
        for name, table in self.own.items():
            if isinstance(table, OwnTables):
                table.table = self.shared[name]
                table.forget()
        self.counters.seconds += working() - started

    def _weights(self, group: Group) -> tuple[float, float]:
        """Return factors of a group's updates before their release, and of their sum after it.

        Noise on a sum of whole steps needs updates weighed before rounding; with noise on uploads weights follow.
        """
        noise = self.plan.noise
        rounded = noise is not None and noise.step is not None and self.plan.where == "the sum"
        return (group.weight, 1.0) if rounded else (1.0, group.weight)

    def _gathered(
        self, work: LocalWork, terms: ReleaseTerms, group: Group, total: SealedSum, times: float
    ) -> list[tuple[Clients, Uploads]]:
        """Let a group train, and add `times` its releases to the total; who sent what, where the rule needs that."""
        each: list[tuple[Clients, Uploads]] = []
        if self.transfer is not None:
            self.transfer.before(work, group.shared, self.private, group.clients)
        for shard, part in self._released(work, terms, group, total, times):
            total.count(part.weight, part.clients + (part.dropped if terms.count_everyone else 0))
            self._take(shard, part, group)
            if self.transfer is not None and part.message is not None:
                self.transfer.take(shard, part.message)
            if part.each is not None:
                each.append((shard[part.kept], uploads_of(part.each, part.clients, group.weight)))
        self.counters.participation[group.clients] += 1
        self.counters.clients += len(group.clients)
        if self.transfer is not None:
            self.transfer.after(group.number, self.private, work.sampler)
        return each

    def events(self, number: int) -> tuple[Event, ...]:
        told = self._told(number)
        return (self.plan.event,) if told is None else (self.plan.event, told.event)

    def travels(self, number: int) -> tuple[int, int]:
        """Return how many numbers beside the tensors a client sends in round `number`, and how many it receives."""
        told = self._told(number)
        return (0, 0) if told is None else told.travels

    def _told(self, number: int) -> Prototypes | None:
        return self.plan.prototypes if self.transfer is not None and self.transfer.sends(number) else None

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {n: self.program.specs[n].shape for n in trained(self.program, self.phases("round"), "shared")}

    def _terms(self, number: int, shapes: Mapping[str, tuple[int, ...]]) -> ReleaseTerms:
        terms = self.terms.scaled(self.counters.clip_told.scale)
        if self.plan.project is None:
            return terms
        size = sum(math.prod(shape) for shape in shapes.values())
        projection = Projection.of_round(self.seed, number, size, self.plan.project)
        return replace(terms, joint=JointVector(shapes, projection))

    def _released(
        self, work: LocalWork, terms: ReleaseTerms, group: Group, total: SealedSum, times: float
    ) -> Iterator[tuple[Clients, ShardAggregate]]:
        """Add `times` the sums of a group's shards to the total; yield who was in each, and what is known.

        A device is waited for once, after all shards.
        """
        shards = self.shards(group.clients, work.sampler.train.counts)
        ends, done = {0, *(block.stop for block in blocks(len(shards)))}, 0
        coming: list[tuple[Clients, Callable[[], ShardAggregate]]] = []
        for part in (group.backend or self.backend).releases(work, terms, group.shared, self.private, shards):
            first, done = done, done + part.shards
            total.add(part.dense, part.rows, 0.0, 0, times, whole=first in ends and done in ends)
            coming.append((np.concatenate(shards[first:done]), part.facts))
            if self.device.type == "cpu":
                yield from ((shard, facts()) for shard, facts in coming)
                coming.clear()
            if done in ends:
                total.end_block()
        wait(self.device)
        yield from ((shard, facts()) for shard, facts in coming)
        if done != len(shards):
            raise RuntimeError(f"a backend handed back {done} of {len(shards)} shards")

    def _take(self, shard: Clients, part: ShardAggregate, group: Group) -> None:
        """Count a shard's facts and put its private tensors back; dropped clients keep theirs."""
        self.counters.add(part, self.plan)
        index, kept = torch.from_numpy(shard[part.kept]), torch.from_numpy(part.kept)
        for name, value in part.private.items():
            self.private[name].index_copy_(0, index, value.index_select(0, kept))
        keep_rows(self.tables, shard, part.tables, part.kept)
        for name, changes in part.left.items():
            table = self.own[name]
            if isinstance(table, OwnTables) and name not in self.pulls:
                table.leave(group.shared[name], shard, changes)

    def _move(self, changed: list[str], total: Accumulator, each: list[tuple[Clients, Uploads]]) -> None:
        """Move the tensors in `changed` by the rule, and keep clients' own answers until they ask.

        `each` are uploads by shard with their clients, where the rule needs them.
        """
        before = {name: self.shared[name] for name in changed}
        tables = [name for name in changed if self.program.specs[name].kind == "rows"]
        uploads = joined([part for _, part in each if part.clients]) if self.terms.each else None
        cohort = np.concatenate([np.zeros(0, np.int64), *(clients for clients, _ in each)])
        laid = {} if uploads is None else laid_out(self.pulls, uploads, cohort, self.shared, self.tables)
        received = Received(before, total, uploads, tables, self.previous, self.optimiser, laid)
        answer = self.rule.answer(self.aggregation, received)
        if answer.mix is not None and uploads is not None:
            (own,) = (name for name, spec in self.program.specs.items() if spec.place == "received")
            table = own.removeprefix(RECEIVED)
            self.tables[own] = made_for(cohort, before[table], answer, table, uploads.rows[table], laid.get(table))
        self.shared = self.shared | answer.after
        for name, whole in laid.items():
            if name in self.own:
                had = self.own[name]
                had = had if isinstance(had, LaidRows) else LaidRows.first(before[name])
                self.own[name] = had.joined(self.shared[name], cohort, whole)

    def personalise(
        self,
        clients: Clients,
        sampler: Sampler,
        context: Ragged,
        private: dict[str, Tensor],
        number: int,
        shared: Tensors | None = None,
    ) -> dict[str, Tensor]:
        """Return all private tensors after the "final" phases of `clients` on their own data; nothing leaves a device.

        `shared`: of the model that they start from (None: the server's).
        """
        started = working()
        out = self.alone(clients, sampler, context, private, number, shared)
        if self.phases("final"):
            self.counters.clients += len(clients)
            self.counters.seconds += working() - started
        return out

    @one_thread()
    def alone(
        self,
        clients: Clients,
        sampler: Sampler,
        context: Ragged,
        private: dict[str, Tensor],
        number: int,
        shared: Tensors | None = None,
    ) -> dict[str, Tensor]:
        """Do the work of `personalise` without counting it: devices do it whenever they recommend."""
        phases = self.phases("final")
        out = {name: value.clone() for name, value in private.items()}
        if not phases or not len(clients):
            return out
        work = LocalWork(self.program, phases, sampler, context, number, self.device)
        self.backend.start()
        shards = self.shards(clients, sampler.train.counts)
        trained = self.backend.updates(work, self.shared if shared is None else shared, private, shards)
        for shard, updates in zip(shards, trained, strict=True):
            for name, value in updates.private.items():
                out[name][torch.from_numpy(shard)] = value.cpu()
        return out

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs: server and clients' tensors, the previous block's tables, counters."""
        return {
            "shared": self.shared,
            "private": self.private,
            "previous": {name: {"table": table, "known": known} for name, (table, known) in self.previous.items()},
            "counters": self.counters.state(),
            "optimiser": {} if self.optimiser is None else self.optimiser.state(),
            "own": tensors_of(self.own),
            "tables": tensors_of(self.tables),
            "transfer": None if self.transfer is None else self.transfer.state(),
            **({} if self.correlated is None else {"correlated": self.correlated.state()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of a federation of the same experiment (arrays in place of tensors)."""
        self.shared = {name: torch.from_numpy(value).to(self.device) for name, value in state["shared"].items()}
        self.private = {name: torch.from_numpy(value) for name, value in state["private"].items()}
        for name, kept in state["previous"].items():
            table, known = (torch.from_numpy(kept[k]).to(self.device) for k in ("table", "known"))
            self.previous[name] = (table, known)
        self.tables = tables_of(self.program, state["tables"])
        own = tables_of(self.program, state["own"])
        self.own = {name: table for name, table in own.items() if isinstance(table, OwnTables | LaidRows)}
        if self.optimiser is not None:
            self.optimiser.restore(state["optimiser"], self.device)
        if self.transfer is not None:
            self.transfer.restore(state["transfer"])
        if self.correlated is not None:
            self.correlated.restore(state["correlated"])
        self.counters = Counters.restored(state["counters"])

    def _noise(
        self, number: int, sent: Mapping[str, tuple[int, ...]], groups: Sequence[Group]
    ) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
        """Yield the noise of a round.

        The sum's law is drawn once per coordinate, since only the sum is visible. Noise on uploads is weighted like
        them; noise on the sum is not, since the clip bounds every part of it.
        """
        noise = self.plan.noise
        uploads = [(len(group.clients), group.weight) for group in groups if len(group.clients)]
        if noise is None or not uploads:
            return
        draws = uploads if self.plan.where == "each upload" else [(1, 1.0)]
        counts = [count for count, _ in draws]
        for name, shape in sent.items():
            drawn = self.noise.sums(noise, name, number, shape, counts)
            for (_, weight), found in zip(draws, drawn, strict=True):
                found = found if weight == 1.0 else found * weight
                yield name, found if self.correlated is None else self.correlated.of_round(name, number, found)
