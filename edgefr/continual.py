"""A continual run: blocks one after another, each learned in rounds until validation stops improving (F3CRec Alg. 2).

Owns: the order of blocks and rounds, early stopping, what is carried from block to block. Does not own: rounds
(engine), what clients remember (`methods.f3crec`), metrics, files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.replay import preference_shift
from edge.sampling import Sampler
from edgefr.cohorts import Cohorts, Log
from edgefr.data.blocks import Block
from edgefr.engine.federation import Federation
from edgefr.engine.tables import Own
from edgefr.engine.work import MEMORY
from edgefr.experiment import Experiment
from edgefr.fleet import Fleet, FleetFile
from edgefr.measure_blocks import BlockMeasurements, seen
from edgefr.methods.anchored import Anchored, anchors
from edgefr.methods.f3crec.memory import (
    ITEMS,
    ReplayMemory,
    empty,
    remember_best,
    remember_errors,
    without_repeats,
)
from edgefr.methods.f3crec.strategies import Strategy, strategy
from edgefr.metrics import references
from edgefr.prepare import Prepared, Progress
from edgefr.simulation import Boundary, build_program, federate

MODEL, REFERENCES = "model", ("popularity", "popularity, all blocks", "chance")


@dataclass
class Position:
    """Where a run is: `round` rounds of block `block` are done; `best` is the best validation value so far."""

    block: int = 0
    round: int = 0
    begun: bool = False
    best: float = -math.inf
    best_round: int = 0


@dataclass
class Continual:
    """State of a running continual experiment.

    `best` is the state of the block's best round (empty: no round yet): tensors by `shared.<name>`, `private.<name>`.
    `proxies`: SPP's slow averages of shared and private tensors over blocks, named likewise. `kept`: what
    `evaluation.keep_blocks` asks for, by `block<t>.<name>`. `done`: one record per finished block. `spent`: seconds of
    training, client updates and seconds of measuring before this block.
    """

    experiment: Experiment
    prepared: Prepared
    federation: Federation
    cohorts: Cohorts
    measured: BlockMeasurements
    position: Position = field(default_factory=Position)
    best: dict[str, Tensor] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)
    spent: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    @classmethod
    def start(
        cls, experiment: Experiment, prepared: Prepared, devices: FleetFile, device: torch.device, log: Log
    ) -> Continual:
        """Everything as it is before the first round. `experiment.engine.shard_size` must be set."""
        base = prepared.blocks[0]
        rounds = experiment.rounds * len(prepared.blocks)
        federation = federate(experiment, prepared, devices, len(base.users("train")), rounds, device)
        fleet = Fleet(devices, np.diff(prepared.dataset.offsets), experiment.seed)
        cohorts = Cohorts(experiment, federation, fleet, log)
        measured = BlockMeasurements(experiment.evaluation, experiment.seed, len(prepared.dataset.catalogue), device)
        return cls(experiment, prepared, federation, cohorts, measured)

    @property
    def fleet(self) -> Fleet:
        """The devices and their clock."""
        return self.cohorts.fleet

    @property
    def strategy(self) -> Strategy:
        """The experiment's row of the table of strategies."""
        return strategy(self.experiment.strategy)

    @property
    def block(self) -> Block:
        """The block that is being learned."""
        return self.prepared.blocks[self.position.block]

    def train(self, progress: Progress | None = None, boundary: Boundary | None = None) -> None:
        """All blocks from where the run is; `boundary` is called after every round with the number done in all."""
        while self.position.block < len(self.prepared.blocks):
            self.train_block(progress, boundary)

    def train_block(self, progress: Progress | None = None, boundary: Boundary | None = None) -> None:
        """The rest of the current block, to its end: its tests, what is remembered, what is carried on."""
        self.learn(progress, boundary)
        self._end()

    def learn(self, progress: Progress | None = None, boundary: Boundary | None = None) -> None:
        """The rounds of the current block that are left: all of them, or until validation has stopped improving."""
        self.engage()
        at, sampler = self.position, self._sampler(self.block)
        population = self.block.users("train")
        while at.round < self.experiment.rounds and at.round - at.best_round < self.experiment.continual.patience:
            self._round(population, sampler)
            if progress is not None:
                speed = self.federation.counters.clients / max(self.federation.counters.seconds, 1e-9)
                note = f"{speed:,.0f} clients/s, best validation {at.best:.4f} in round {at.best_round}"
                progress(f"block {self.block.name}", at.round, self.experiment.rounds, note)
            if boundary is not None:
                boundary(sum(done["round"] for done in self.done) + at.round)

    def _round(self, population: np.ndarray, sampler: Sampler) -> None:
        at = self.position
        at.round += 1
        number = at.block * self.experiment.rounds + at.round
        contributors = self.cohorts.meet(number, population, sampler)
        if len(contributors):
            self.federation.round(number, contributors, sampler, self.block.train)
        self._keep_shifts()
        if at.round % self.experiment.evaluation.every == 0 or at.round == self.experiment.rounds:
            value = next(v for n, v in self._validate().items() if n.startswith("NDCG"))
            if not value <= at.best:  # nobody to validate on (NaN): the last round counts as best
                at.best, at.best_round, self.best = value, at.round, self._snapshot()

    def _keep_shifts(self) -> None:
        """Preference shifts (F3CRec Eq. 2) of this block's clients after its first round; NaN: nothing remembered."""
        f, at = self.federation, self.position
        asked = self.experiment.evaluation.keep_blocks and self.strategy.remembers == "best"
        if not (asked and at.round == 1 and isinstance(f.memory, ReplayMemory)):
            return
        users = self.block.users("train")
        users = users[(f.private[ITEMS][torch.from_numpy(users), 0] >= 0).numpy()]
        own = {name: value[torch.from_numpy(users)] for name, value in f.private.items()}
        shifts = torch.full((len(self.prepared.dataset.users),), torch.nan)
        shifts[torch.from_numpy(users)] = torch.from_numpy(
            preference_shift(f.memory.ranks(f.program, f.shared, own)).astype(np.float32)
        )
        self.kept[f"block{at.block}.shift"] = shifts

    def _validate(self) -> dict[str, float]:
        f = self.federation
        score = self.measured.scorer(f.program, f.shared, f.private, self.block)
        return self.measured.valid(self.block, score, self.position.round)

    def _sampler(self, block: Block) -> Sampler:
        e, catalogue = self.experiment, len(self.prepared.dataset.catalogue)
        return Sampler(block.train, block.pool, catalogue, e.negatives, e.batch_size, e.seed)

    def _snapshot(self) -> dict[str, Tensor]:
        f = self.federation
        shared = {f"shared.{n}": v.clone() for n, v in f.shared.items()}
        return shared | {f"private.{n}": v.clone() for n, v in f.private.items() if not n.startswith(MEMORY)}

    def _part(self, place: str) -> dict[str, Tensor]:
        """The tensors of one place ("shared" or "private") of the block's best round."""
        return _part(self.best, place)

    # --- between blocks -------------------------------------------------------------------------------------------

    def engage(self) -> None:
        """Make the federation ready for the current block, once: program, memory and server rule (Alg. 2, 4-8)."""
        at, f = self.position, self.federation
        plain = build_program(self.experiment, self.prepared)
        plain.frozen.update(f.program.frozen)
        if at.block == 0:
            at.begun = True
            return
        anchored = Anchored(plain, self.experiment.continual.reg_weight) if self.strategy.anchored else None
        f.program = anchored or plain
        if self.strategy.remembers != "nothing":
            pool, items = self.block.pool.astype(np.int64), len(self.prepared.dataset.catalogue)
            f.memory = ReplayMemory(self.experiment.continual, self.strategy.replays, pool, items, self.experiment.seed)
        if at.begun:
            return
        at.begun = True
        self._begin(anchored)

    def _begin(self, anchored: Anchored | None) -> None:
        """Carry the last block's state into this one. New items and new users start from their initial values."""
        f, e = self.federation, self.experiment
        before = self.prepared.blocks[self.position.block - 1]
        shared, private = self._part("shared"), self._part("private")
        plain = build_program(e, self.prepared)
        known = torch.zeros(len(self.prepared.dataset.catalogue), dtype=torch.bool, device=f.device)
        known[torch.from_numpy(before.pool.astype(np.int64)).to(f.device)] = True
        f.previous = {n: (shared[n], known) for n, spec in plain.specs.items() if spec.kind == "rows" and n in shared}
        if e.carry == "best":
            f.shared = {n: v.clone() for n, v in shared.items()}
            f.private.update({n: v.clone() for n, v in private.items()})
        first = plain.init_shared(e.seed)
        for name, (_, old) in f.previous.items():  # rows of new items have only ever seen noise
            f.shared[name] = torch.where(old.unsqueeze(1), f.shared[name], first[name].to(f.device))
        if e.resets_private:
            f.private.update(plain.init_private(e.seed, torch.arange(len(self.prepared.dataset.users))))
        if anchored is not None:
            existing = dict.fromkeys(f.previous, known)
            tables, own = anchors(f.shared | shared, private, torch.from_numpy(self.block.known), existing)
            f.shared, f.private = f.shared | tables, f.private | own
        self.best = {}

    def _end(self) -> None:
        """Test the best round on every block so far, let clients remember, and step to the next block."""
        at, f, blocks = self.position, self.federation, self.prepared.blocks
        self.cohorts.adjourn()
        if not self.best:  # no round could be measured
            self.best, at.best_round = self._snapshot(), at.round
        shared, private = self._part("shared"), self._part("private")
        score = self.measured.scorer(f.program, shared, private, self.block)
        for earlier in blocks[: at.block + 1]:
            self.measured.test(MODEL, score, self.block, earlier)
        for name, reference in block_references(self.block, self.experiment.seed).items():
            self.measured.test(name, reference, self.block, self.block)
        if self.experiment.evaluation.keep_blocks:
            self.kept |= {f"block{at.block}.{name}": value.clone() for name, value in self.best.items()}
        self._remember(shared, private)
        self.done.append(
            {**asdict(at), "name": self.block.name, "statistics": self.block.statistics(), **self._timing()}
        )
        self.position = Position(at.block + 1)

    def _timing(self) -> dict[str, float]:
        """Speed and seconds of the block that ends."""
        now = [self.federation.counters.seconds, float(self.federation.counters.clients), self.measured.seconds]
        seconds, clients, measuring = (a - b for a, b in zip(now, self.spent, strict=True))
        self.spent = now
        speed = clients / seconds if seconds else 0.0
        return {"clients_per_second": speed, "train_seconds": seconds, "eval_seconds": measuring}

    def _remember(self, shared: dict[str, Tensor], private: dict[str, Tensor]) -> None:
        """Clients of this block refresh what they remember; the others keep what they have."""
        f, block, how = self.federation, self.block, self.experiment.continual
        kind, users, pool = self.strategy.remembers, block.users("train"), block.pool.astype(np.int64)
        if kind == "nothing" or self.position.block == len(self.prepared.blocks) - 1:
            return
        if not any(name.startswith(MEMORY) for name in f.private):
            f.private |= empty(len(self.prepared.dataset.users), how.list_size * (2 if kind == "proxies" else 1))
        state = {name: value for name, value in f.private.items() if name.startswith(MEMORY)}
        own = self._scores(shared, private)
        if kind == "errors":
            number = self.position.block
            remember_errors(state, users, own, pool, self._sampler(block), number, how.list_size)
            return
        if kind == "proxies":
            self._update_proxies(users)
            proxy = self._scores(_part(self.proxies, "shared"), _part(self.proxies, "private"))
            remember_best(state, users, proxy, pool, 0, how.list_size)  # stability
            remember_best(state, users, own, pool, how.list_size, how.list_size)  # plasticity
            without_repeats(state, users)
            return
        remember_best(state, users, own, pool, 0, how.list_size)  # F3CRec Eq. 1

    def _scores(self, shared: dict[str, Tensor], private: dict[str, Tensor]) -> Callable[[np.ndarray], np.ndarray]:
        score = self.measured.scorer(self.federation.program, shared, private, self.block)
        return lambda users: score(users, None)

    def _update_proxies(self, users: np.ndarray) -> None:
        """The stability proxy: a slow average over blocks of the server's and of each client's own tensors."""
        rate, old = self.experiment.continual.proxy_rate, self.proxies
        new = {name: value.clone() for name, value in self.best.items()}
        for name, value in old.items():
            mixed = rate * value + (1 - rate) * new[name]
            if name.startswith("private."):
                active = torch.zeros(len(value), dtype=torch.bool)
                active[torch.from_numpy(users)] = True
                first = torch.from_numpy(~self.block.known)  # newcomers have no slow average yet
                shape = (-1,) + (1,) * (value.ndim - 1)
                mixed = torch.where(first.view(shape), new[name], torch.where(active.view(shape), mixed, value))
            elif name.removeprefix("shared.") in self.federation.previous:  # nor have rows of new items
                known = self.federation.previous[name.removeprefix("shared.")][1]
                mixed = torch.where(known.unsqueeze(1), mixed, new[name])
            new[name] = mixed
        self.proxies = new

    @property
    def tables(self) -> dict[str, Own]:
        """The clients' own item rows that the model has: blocks do not carry any on."""
        return self.federation.tables

    @property
    def clients(self) -> np.ndarray:
        """Everybody who could be invited in some block."""
        return np.unique(np.concatenate([block.users("train") for block in self.prepared.blocks]))

    def finish(self, progress: Progress | None = None) -> None:
        """Nothing is left to do: every block was measured at its end."""

    def tested(self) -> tuple[np.ndarray, dict[str, npt.NDArray[np.float64]]]:
        """Users of the last block [n] and the test metrics of the model after it, float64 [n] each."""
        return self.measured.last[MODEL]

    def shipped(self) -> tuple[Ragged, Ragged, npt.NDArray[np.integer], dict[str, Tensor], dict[str, Tensor]]:
        """What bundles are made of: earlier items, own items and pool of the last block; its best round's tensors."""
        plain = build_program(self.experiment, self.prepared)
        used = {name for phase in plain.phases for name in phase.uses}
        block = self.prepared.blocks[-1]
        shared, private = ({n: v for n, v in self._part(place).items() if n in used} for place in ("shared", "private"))
        return block.past, block.train, block.pool, shared, private

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        measured = {"rows": self.measured.rows, "seconds": self.measured.seconds}
        return {
            "position": asdict(self.position),
            "federation": self.federation.state(),
            "cohorts": self.cohorts.state(),
            "measured": measured,
            "best": self.best,
            "proxies": self.proxies,
            "kept": self.kept,
            "done": self.done,
            "spent": self.spent,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of the same experiment."""
        self.position = Position(**state["position"])
        self.federation.restore(state["federation"])
        self.cohorts.restore(state["cohorts"])
        self.measured.rows, self.measured.seconds = state["measured"]["rows"], state["measured"]["seconds"]
        on = self.federation.device
        self.kept = {key: torch.from_numpy(value) for key, value in state["kept"].items()}
        for name in ("best", "proxies"):
            tensors = {key: torch.from_numpy(value) for key, value in state[name].items()}
            setattr(self, name, {k: v.to(on) if k.startswith("shared.") else v for k, v in tensors.items()})
        self.done, self.spent = state["done"], state["spent"]


def _part(tensors: dict[str, Tensor], place: str) -> dict[str, Tensor]:
    return {name.removeprefix(place + "."): v for name, v in tensors.items() if name.startswith(place + ".")}


def block_references(block: Block, seed: int) -> dict[str, Any]:
    """What needs no learning: popularity in the block's training items, in everything so far, and chance."""
    scorers = (
        references.popularity_of(block.train, block.pool),
        references.popularity_of(seen(block), block.pool),
        references.random(seed, block),  # type: ignore[arg-type]
    )
    return dict(zip(REFERENCES, scorers, strict=True))
