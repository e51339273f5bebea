"""Federated rounds: who takes part, what leaves each device, what the server makes of it.

    cohort → shards → updates → clip → (noise) → one streaming sum → (noise) → shared tensors

Owns: server state, the private tensors of all simulated clients, the order of a round. Does not own: local training
(executors), costs and the clock (`edgefr.fleet`), mechanisms (`privacy`), averaging (`cloud.aggregate`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.aggregate import Accumulator
from cloud.settings import AggregationSettings
from edgefr.data.interactions import Ragged
from edgefr.engine.sampling import Sampler
from edgefr.engine.work import Clients, Executor, LocalWork, Updates, trained
from edgefr.methods.program import LocalProgram, Phase, Tensors
from privacy import keyed
from privacy.clip import clip_factors
from privacy.mechanism import noise_of_sum
from privacy.plan import Plan


@contextmanager
def one_thread() -> Iterator[None]:
    """One maths thread: small products gain nothing from more, and sums keep their order on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Counters:
    """What the engine did, for the summary. `norms` are joint norms of released updates before clipping."""

    clients: int = 0
    seconds: float = 0.0
    dropped: int = 0
    clipped: int = 0
    norms: list[npt.NDArray[np.float64]] = field(default_factory=list)
    participation: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class Federation:
    """A server and its clients, round after round.

    `shared` are the server's tensors; `private` those of all clients, [clients, *shape], on the host. `shard_size`
    clients are trained per vectorised call; results are summed shard by shard in a fixed order, so a run is the same
    bit for bit for a given shard size.
    """

    def __init__(
        self,
        program: LocalProgram,
        *,
        clients: int,
        seed: int,
        executor: Executor,
        shard_size: int,
        aggregation: AggregationSettings,
        plan: Plan,
        device: torch.device,
    ):
        self.program, self.seed, self.executor, self.shard_size = program, seed, executor, shard_size
        self.aggregation, self.plan, self.device = aggregation, plan, device
        program.frozen.update({name: table.to(device) for name, table in program.frozen.items()})
        self.shared = {name: value.to(device) for name, value in program.init_shared(seed).items()}
        self.private = program.init_private(seed, torch.arange(clients))
        self.counters = Counters(participation=np.zeros(clients, np.int64))

    def phases(self, when: str) -> list[Phase]:
        """Phases of local work of one kind that have anything to do."""
        return [p for p in self.program.phases if p.when == when and p.epochs > 0]

    def cohort(self, number: int, population: Clients, size: int) -> Clients:
        """The clients invited to a round: `size` of the population without replacement, keyed by round."""
        return keyed.choose(keyed.key(self.seed, "cohort", number), population, size)

    def shards(self, clients: Clients, activity: npt.NDArray[np.int64]) -> list[Clients]:
        """Clients by falling activity, cut into shards: similar sizes share a call, so little is padded."""
        order = clients[np.lexsort((clients, -activity[clients]))]
        return [order[at : at + self.shard_size] for at in range(0, len(order), self.shard_size)]

    @one_thread()
    def round(self, number: int, cohort: Clients, sampler: Sampler, context: Ragged) -> None:
        """Train `cohort` and move the shared tensors by its aggregate (TransFR Eq. 5, Algorithm 1)."""
        started = time.perf_counter()
        phases = self.phases("round")
        work = LocalWork(self.program, phases, sampler, context, number, self.device)
        total = Accumulator(self.shared, self.device)
        for shard in self.shards(cohort, sampler.train.counts):
            updates = self._run(work, phases, shard, self.private)
            self._release(updates, shard, sampler.train.counts[shard], total)
            for name, value in updates.private.items():
                self.private[name][torch.from_numpy(shard)] = value.cpu()
        self._noise(number, total, len(cohort))
        self.shared = total.apply(self.shared, self.aggregation)
        self.counters.participation[cohort] += 1
        self.counters.clients += len(cohort)
        self.counters.seconds += time.perf_counter() - started

    @one_thread()
    def personalise(
        self, clients: Clients, sampler: Sampler, context: Ragged, private: dict[str, Tensor], number: int
    ) -> dict[str, Tensor]:
        """All private tensors after the "final" phases of `clients` on their own data; nothing leaves a device."""
        phases = self.phases("final")
        out = {name: value.clone() for name, value in private.items()}
        work = LocalWork(self.program, phases, sampler, context, number, self.device)
        started = time.perf_counter()
        for shard in self.shards(clients, sampler.train.counts) if phases else []:
            updates = self._run(work, phases, shard, private)
            for name, value in updates.private.items():
                out[name][torch.from_numpy(shard)] = value.cpu()
        if phases:
            self.counters.clients += len(clients)
            self.counters.seconds += time.perf_counter() - started
        return out

    def _run(self, work: LocalWork, phases: list[Phase], shard: Clients, private: Tensors) -> Updates:
        used = {name for phase in phases for name in phase.uses if name in private}
        own = {name: value[torch.from_numpy(shard)] for name, value in private.items() if name in used}
        return self.executor(work, self.shared, own, shard)

    def _release(self, updates: Updates, shard: Clients, sizes: npt.NDArray[np.int64], total: Accumulator) -> None:
        """What leaves the devices: updates that are finite, clipped jointly, weighted, summed."""
        norms = updates.norms(len(shard), 1 if self.plan.norm == "l1" else 2).cpu().numpy()
        finite = np.isfinite(norms)
        factors = np.where(finite, 1.0, 0.0) if self.plan.clip is None else clip_factors(norms, self.plan.clip)
        self.counters.dropped += int((~finite).sum())
        self.counters.norms.append(norms[finite])
        if self.plan.clip is not None:
            self.counters.clipped += int((norms[finite] > self.plan.clip).sum())
        weights = np.where(finite, sizes if self.aggregation.weights == "size" else 1.0, 0.0)
        scale = torch.from_numpy(factors * weights).to(self.device)
        alive = torch.from_numpy(finite).to(self.device)
        for name, value in updates.dense.items():
            kept = torch.where(alive.view(-1, *[1] * (value.ndim - 1)), value, 0.0)
            total.add_dense(name, torch.tensordot(scale, kept.double(), dims=1))
        for name, update in updates.rows.items():
            kept = torch.where(alive[update.client].unsqueeze(1), update.values, 0.0)
            total.add_rows(name, update.rows, kept.double() * scale[update.client].unsqueeze(1))
        counted = np.ones(len(shard)) if self.plan.guarantees else weights  # a guarantee may not depend on who failed
        total.add_weight(float(counted.sum()), int(finite.sum()))

    def _noise(self, number: int, total: Accumulator, uploads: int) -> None:
        """Noise of a round. Only the sum is visible here, so the law of the sum is drawn once, for every coordinate."""
        noise = self.plan.noise
        if noise is None or not uploads:
            return
        draws = uploads if self.plan.where == "each upload" else 1
        for name in trained(self.program, self.phases("round"), "shared"):
            generator = keyed.generator(self.seed, f"noise {name}", number)
            shape = self.program.specs[name].shape
            total.noise(name, noise_of_sum(noise.kind, noise.scale, draws, shape, generator))
