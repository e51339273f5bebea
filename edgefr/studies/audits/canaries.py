"""Planted clients go through the run's own code: whoever knows what went in knows what is noise in what came out.

A channel is how something leaves devices: the sum that a server opens (`SumChannel`), the bytes of a device's upload
(`bytes`), the steps of DP-SGD (`steps`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.cohort import Group
from edgefr.engine.federation import Federation
from edgefr.engine.noise import NoiseSource, RealNoise, SimulatedNoise
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from export.batches import Batch
from export.program import LocalProgram, Phase, Tensors, TensorSpec
from privacy import keyed
from privacy.compress import Projection
from privacy.noise_key import NoiseKey
from privacy.noise_tests import Law
from privacy.plan import PrivacyPlan

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
PLAIN = AggregationSettings(rule="mean", server_lr=1.0, weights="uniform")
"""The rule under which the server's tensors move by exactly what one client uploaded."""
PROJECTED = "projected"
VALUES, FEWEST, MOST = 30_000, 6, 48
"""Values of noise that are wanted, and how many rounds are played for them at least and at most."""
CHANGED = 4
"""Rows of a table that a planted client changes."""
PUBLIC = NoiseKey(bytes(16))
"""Keys the simulated noise of audits, so that an audit can be repeated; no run has it."""


@dataclass(frozen=True)
class Canary:
    """This is what a planted client learned: changes of dense tensors, and items whose rows changed, and how."""

    dense: Mapping[str, Floats] = field(default_factory=dict)
    rows: Mapping[str, tuple[Ints, Floats]] = field(default_factory=dict)

    def whole(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Return all of a tensor's change, zeros where nothing changed."""
        if name in self.dense:
            return self.dense[name]
        out = np.zeros(shape)
        if name in self.rows:
            out[self.rows[name][0]] = self.rows[name][1]
        return out

    def times(self, factor: float) -> Canary:
        """Return this with every change multiplied."""
        rows = {name: (items, values * factor) for name, (items, values) in self.rows.items()}
        return Canary({name: value * factor for name, value in self.dense.items()}, rows)


def flat(seen: Mapping[str, Floats]) -> Floats:
    """Return all values of tensors in one row."""
    return np.concatenate([value.ravel() for value in seen.values()])


class Still(LocalProgram):
    """This is a program with the shared tensors of another one that learns nothing of its own: `known` is planted.

    A step of gradient descent at rate 1 on each of `examples` examples, one an item, changes tensors by `known`.
    """

    name = "planted"
    pointwise = True

    def __init__(self, specs: Mapping[str, TensorSpec], known: Canary | None = None, examples: int = 1):
        self.frozen, self.specs, self.examples = {}, specs, examples
        self.known = {n: torch.from_numpy((known or Canary()).whole(n, s.shape)).float() for n, s in specs.items()}
        names = tuple(specs)
        self.phases = (Phase("planted", names, names, 1, "sgd", dict.fromkeys(names, 1.0)),)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {name: torch.zeros(spec.shape) for name, spec in self.specs.items()}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {}

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.label.unsqueeze(-1)

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return vectors

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return vectors.squeeze(-1)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        total = batch.label.sum() * 0.0
        for name, spec in self.specs.items():
            if spec.kind == "dense":
                total = total - (tensors[name] * self.known[name]).sum() / self.examples
            else:
                total = total - (batch.rows(tensors[name]) * batch.frozen(self.known[name])).sum()
        return total


class Channel(ABC):
    """A channel is how something of clients leaves their devices.

    `specs`: the tensors that leave. `law` of the noise on every value of one client, or of the sum of all; None where
    no noise is promised. `clip` bounds what leaves in `norm` (None: nothing does). `seed` and `key` key
    simulated noise. `projects`: the values that leave instead of the tensors (None: the tensors do).
    """

    name: str
    specs: Mapping[str, TensorSpec]
    law: Law | None
    clip: float | None
    norm: str
    seed: int
    key = PUBLIC
    projects: int | None = None

    @abstractmethod
    def seen(self, clients: Sequence[Canary], number: int, *, who: int = 0, noise: bool = True) -> dict[str, Floats]:
        """Return what an adversary sees of these clients in round `number`: whole tensors, or one projected vector.

        A `SumChannel` shows their sum; of others there is one client, and `who` says which.
        """

    def meant(self, clients: Sequence[Canary], number: int) -> dict[str, Floats]:
        """Return what would be seen if nothing was clipped and there was no noise."""
        total = {n: sum((c.whole(n, s.shape) for c in clients), np.zeros(s.shape)) for n, s in self.specs.items()}
        return total if self.projects is None else {PROJECTED: self.projection(number).forth(flat(total))}

    def projection(self, number: int) -> Projection:
        """Return the projection of round `number`, where the channel projects."""
        assert self.projects is not None
        return Projection.of_round(self.seed, number, sum(spec.size for spec in self.specs.values()), self.projects)

    def tight(self) -> Channel:
        """Return the channel on which an update far beyond the clip leaves with all of its length."""
        return self

    def noise(self, known: Canary, number: int, who: int = 0) -> dict[str, Floats]:
        """Return what the noise of round `number` was, if `known` is within the clip."""
        seen, meant = self.seen([known], number, who=who), self.meant([known], number)
        return {name: seen[name] - meant[name] for name in seen}


class CanaryBackend(InProcess):
    """These are clients who upload what they were given, through the release of every run."""

    def __init__(self, program: LocalProgram, clients: Sequence[Canary]):
        self.program, self.clients = program, clients

    def updates(
        self, work: LocalWork, shared: Tensors, private: Tensors, shards: Sequence[Clients]
    ) -> Iterator[Updates]:
        for shard in shards:
            some, dense, rows = [self.clients[n] for n in shard.tolist()], {}, {}
            for name, spec in self.program.specs.items():
                if spec.kind == "dense":
                    values = np.stack([known.whole(name, spec.shape) for known in some])
                    dense[name] = torch.from_numpy(values.astype(np.float32))
                else:
                    rows[name] = _rows(name, spec.shape[1], some)
            yield Updates(dense, rows, {})


def _rows(name: str, width: int, clients: Sequence[Canary]) -> RowUpdates:
    none = np.zeros(0, np.int64), np.zeros((0, width))
    each = [known.rows.get(name, none) for known in clients]
    slots = np.repeat(np.arange(len(each)), [len(items) for items, _ in each])
    items, values = (np.concatenate([part[n] for part in each]) for n in (0, 1))
    return RowUpdates(torch.from_numpy(items), torch.from_numpy(slots), torch.from_numpy(values.astype(np.float32)))


class SumChannel(Channel):
    """This is the sum of a cohort as `Federation.round` opens it: clipped, rounded and noised by the run's own code.

    Under local trust a cohort of one is a single upload. A projection is taken back to the numbers that were sent.
    """

    name = "sum"

    def __init__(self, plan: PrivacyPlan, specs: Mapping[str, TensorSpec], seed: int = 0):
        self.plan, self.specs, self.seed, self.norm, self.clip = plan, specs, seed, plan.norm, plan.clip
        self.projects, self.law = plan.project, Law.of_noise(plan.noise)

    def law_of(self, clients: int) -> Law | None:
        """Return the law of the noise on the sum of so many clients."""
        each = self.plan.where == "each upload"
        return None if self.law is None else self.law.summed(clients if each else 1)

    def seen(self, clients: Sequence[Canary], number: int, *, who: int = 0, noise: bool = True) -> dict[str, Floats]:
        return next(self.over(clients, [number], noise))

    def over(
        self, clients: Sequence[Canary], numbers: Iterable[int], noise: bool = True, weight: float = 1.0
    ) -> Iterator[dict[str, Floats]]:
        """Yield what is seen of these clients in each of several rounds; a `weight` below 1 is of old updates."""
        program, count = Still(self.specs), len(clients)
        server = Federation(
            program,
            clients=count,
            seed=self.seed,
            shard_size=max(1, count),
            aggregation=PLAIN,
            plan=replace(self.plan, at_least=1) if noise else quiet(self.plan),
            device=torch.device("cpu"),
            backend=CanaryBackend(program, clients),
            noise=self.source(),
        )
        start, everyone = server.shared, np.arange(count)
        rows = Ragged(np.zeros(count, np.int32), np.arange(count + 1))
        sampler = Sampler(rows, np.arange(2), 2, 0, 1, self.seed)
        for number in numbers:
            server.shared = start
            server.round(number, [Group(everyone, number, start, weight)], sampler, rows)
            seen = {name: server.shared[name].double().numpy() * count for name in self.specs}
            if self.projects is not None:  # one value for each of the projection's own
                to = self.projection(number)
                seen = {PROJECTED: (flat(seen) * to.signs)[np.unique(to.buckets, return_index=True)[1]]}
            yield seen

    def source(self) -> NoiseSource:
        """Return where the noise comes from."""
        return SimulatedNoise(self.key, self.seed)


class RealSumChannel(SumChannel):
    """This is the same sum with the exact noise that real updates are summed with."""

    name = "real sum"

    def source(self) -> NoiseSource:
        return RealNoise()


def quiet(plan: PrivacyPlan) -> PrivacyPlan:
    """Return a plan that clips as the plan clips, and adds no noise."""
    return replace(plan, noise=None, where="nowhere", at_least=1)


def through(plan: PrivacyPlan, updates: Floats, seed: int, numbers: Iterable[int]) -> Floats:
    """Return what comes of uploads [C, width] in rounds `numbers`: their sums as the server gets them [rounds, width].

    Where the run projects, these are projected already: the projection is public and comes before the clip.
    """
    channel = SumChannel(replace(plan, project=None), {"vector": TensorSpec(updates.shape[1:], "shared")}, seed)
    clients = [Canary({"vector": update}) for update in updates]
    return np.stack([seen["vector"] for seen in channel.over(clients, numbers)])


# Rounds of a planted client


@dataclass(frozen=True)
class MeasuredChance:
    """This is what one measurement saw: a `figure` of `what`, and the `chance` of one so bad if all is right."""

    what: str
    figure: float
    chance: float


class CanaryRounds:
    """These are rounds of a client with a known small update, on one channel; what was noise in them is kept."""

    def __init__(self, channel: Channel, seed: int = 0):
        self.channel, self.seed = channel, seed
        self.small = planted(channel, seed, (channel.clip or 1.0) / 8.0)
        size = channel.projects or sum(spec.size for spec in channel.specs.values())
        self.rounds = range(1, 1 + max(FEWEST, min(MOST, math.ceil(VALUES / size))))

    @cached_property
    def noise(self) -> dict[str, Floats]:
        """Return the noise of all rounds by tensor, [rounds, values]."""
        each = [self.channel.noise(self.small, number) for number in self.rounds]
        return {name: np.stack([found[name].ravel() for found in each]) for name in each[0]}

    @property
    def law(self) -> Law:
        """Return the law of the noise, where there is any."""
        assert self.channel.law is not None
        return self.channel.law

    def parts(self) -> list[tuple[str, Floats]]:
        """Return the noise of every tensor, that of a table's changed rows and of its others apart."""
        out = []
        for name, values in self.noise.items():
            changed = self._changed(name)
            if changed is None:
                out.append((name, values))
            else:
                out += [(f"{name}, rows changed", values[:, changed]), (f"{name}, other rows", values[:, ~changed])]
        return [(name, values) for name, values in out if values.size]

    def _changed(self, name: str) -> Bools | None:
        if name not in self.small.rows:
            return None
        rows, width = self.channel.specs[name].shape
        found = np.zeros(rows, np.bool_)
        found[self.small.rows[name][0]] = True
        return np.repeat(found, width)


def planted(channel: Channel, seed: int, norm: float, dense: bool = True, rows: bool = True) -> Canary:
    """Make an update of this joint norm, on the grid: keyed signs on the dense tensors, on some rows of the tables."""
    values: dict[str, Floats] = {}
    items = {}
    for name, spec in channel.specs.items():
        if spec.kind == "dense" and dense:
            values[name] = _signs(seed, name, spec.shape)
        if spec.kind == "rows" and rows:
            chosen = keyed.choose(keyed.key(seed, "rows"), np.arange(spec.shape[0]), min(CHANGED, spec.shape[0]))
            items[name] = np.sort(chosen)
            values[name] = _signs(seed, name, (len(chosen), spec.shape[1]))
    count = sum(value.size for value in values.values())
    size = norm / max(1.0, count if channel.norm == "l1" else math.sqrt(count))
    step = None if channel.law is None else channel.law.step
    size = size if step is None else math.floor(size / step) * step
    return Canary(
        {name: size * value for name, value in values.items() if name not in items},
        {name: (items[name], size * values[name]) for name in items},
    )


def _signs(seed: int, name: str, shape: tuple[int, ...]) -> Floats:
    drawn = keyed.integers(keyed.key(seed, f"planted {name}"), np.arange(math.prod(shape)), 2)
    return np.where(drawn.reshape(shape) == 1, 1.0, -1.0)
