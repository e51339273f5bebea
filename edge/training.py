"""A device trains locally: a client's phases, epoch by epoch, step by step, through the bundle's step graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.graph import Graph, Stop, Stopped
from edge.learning import LONGEST_CONTEXT, Learning, PhaseRecord
from edge.optimiser import corrections
from edge.replay import Replay
from edge.sampling import Sampler, newest, turns
from edge.scorer import Rows, history_feeds, rows_of, window_feeds
from edge.sessions import Draw, SessionSampler
from edge.steps import Steps, steps_of
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
CLIENT = np.zeros(1, np.int64)  # the device's own row in its sampler


Step = tuple[Ints, dict[str, Array]]
"""The items whose rows a step reads, ascending, and what else it is fed."""


@dataclass(frozen=True)
class Material:
    """This is the work of a client that learns from a set of items: its draws, past positives and replay."""

    sampler: Sampler
    context: Ints
    replay: Replay | None
    tables: Mapping[str, Rows]
    round: int

    def steps(self, phase: PhaseRecord) -> Iterator[Step]:
        replay = self.replay if phase.when == "round" else None
        for epoch in range(phase.epochs):
            drawn = self.sampler.epoch(CLIENT, phase.purpose, self.round, epoch, which=phase.which)
            steps = steps_of([drawn], self.sampler.batch_size, self.sampler.catalogue, replay)
            for number, (start, stop) in enumerate(pairwise(steps.bounds.tolist())):
                at = slice(start, stop)
                yield steps.items[at], {"label": steps.label[at], "weight": steps.weight[at], **_pairs(steps, number)}

    def read(self, phases: Sequence[PhaseRecord]) -> Ints:
        moving = any(phase.tables for phase in phases)  # a phase that trains none of them reads what others have moved
        found = [items for phase in phases if moving for items, _ in self.steps(phase)]
        return np.unique(np.concatenate([np.empty(0, np.int64), *found]))

    def planned(self, phases: Sequence[PhaseRecord]) -> int:
        return sum(phase.epochs * int(self.sampler.steps(CLIENT, phase.which)[0]) for phase in phases)

    def shown(self, graph: Graph, tables: Mapping[str, Rows]) -> dict[str, Array]:
        ((length,), longest) = graph.inputs.get("pairs.there", [0]), LONGEST_CONTEXT
        if not isinstance(length, int) or not 0 <= length <= longest:
            raise InputError(f"{graph.path} is shown a context of {length} items, not of 0 to {longest}; export again")
        items, there = newest(self.sampler.train, length)
        return {"pairs.there": there[0], **rows_of(graph, "items", items[0], tables)}


@dataclass(frozen=True)
class LearningMaterial:
    """This is the work of a client that learns from its session: one window, a step per epoch.

    The rows that any of its `phases` reads take part in all of their steps; of a program that reads the `whole`
    catalogue these are all rows.
    """

    sampler: SessionSampler
    tables: Mapping[str, Rows]
    round: int
    taught: Floats | None
    phases: Sequence[PhaseRecord]
    whole: bool = False
    context: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @cached_property
    def draws(self) -> Mapping[str, Draw]:
        """Return what all phases learn from, by their purpose."""
        epochs: dict[str, int] = {}
        for phase in self.phases:
            epochs[phase.purpose] = max(phase.epochs, epochs.get(phase.purpose, 0))
        return self.sampler.draws(CLIENT, epochs, self.round, self.whole)

    def steps(self, phase: PhaseRecord) -> Iterator[Step]:
        draw = self.draws[phase.purpose]
        real = draw.real[0]
        given: dict[str, Array] = {"label": real, "weight": (real / max(real.sum(), 1.0)).astype(np.float32)}
        given |= {"window.times": draw.times[0], "window.inputs": draw.inputs[0], "window.positives": draw.positives[0]}
        if self.taught is not None:
            given["window.taught"] = self.taught
        for epoch in range(phase.epochs if self.planned([phase]) else 0):
            yield draw.touched, {**given, "window.negatives": draw.negatives[epoch, 0]}

    def shown(self, graph: Graph, tables: Mapping[str, Rows]) -> dict[str, Array]:
        return window_feeds(graph, self.sampler.window(CLIENT), tables)

    def read(self, phases: Sequence[PhaseRecord]) -> Ints:
        drawn = [self.draws[phase.purpose].touched for phase in phases]
        return np.unique(np.concatenate([np.empty(0, np.int64), *drawn]))

    def planned(self, phases: Sequence[PhaseRecord]) -> int:
        return sum(phase.epochs for phase in phases) * int(self.sampler.steps(CLIENT)[0])


Work = Material | LearningMaterial
"""What a client trains on."""


def _pairs(steps: Steps, number: int) -> dict[str, Array]:
    """Return what a step is fed about its pairs, by the places of its items; nothing where there are none."""
    pairs, start = steps.pairs, steps.bounds[number]
    if pairs is None:
        return {}
    at = slice(*pairs.bounds[number : number + 2].tolist())
    found = {"positive": pairs.positive[at] - start, "negative": pairs.negative[at] - start, "share": pairs.share[at]}
    if pairs.context is not None and pairs.there is not None:
        found |= {"context": pairs.context[at] - start, "there": pairs.there[at]}
    return {f"pairs.{name}": value for name, value in found.items()}


@dataclass(frozen=True)
class Trained:
    """Local work ends with this: trained dense tensors, and of each trained table the items read, ascending, and rows.

    `steps` of `planned` were taken; `stopped` says why not all. `loss`: of the last step, None without one.
    """

    dense: dict[str, Floats]
    rows: dict[str, tuple[Ints, Floats]]
    steps: int
    planned: int
    stopped: str | None
    loss: float | None


def train(
    phases: Sequence[PhaseRecord],
    graphs: Mapping[str, Graph],
    learning: Learning,
    dense: Mapping[str, Floats],
    material: Work,
    stop: Stop = lambda: None,
) -> Trained:
    """Run phases from the tensors in `dense` (all that they read); nothing given is changed.

    `graphs`: a loaded step graph by phase name. `stop` is asked before every step, and while one runs: a step that is
    ended changes nothing. Raises `InputError` for graphs that give other than a step gives.
    """
    now = dict(dense)
    read = material.read(phases)
    tables = dict.fromkeys(name for phase in phases for name in phase.tables)
    rows = {name: material.tables[name](read) for name in tables}
    taken, loss = 0, None
    try:
        for together in turns(phases):
            works = [
                _Phase(phase, graphs[phase.name], learning, now, dense, read, rows, material) for phase in together
            ]
            for number, (items, examples) in enumerate(material.steps(together[0]), 1):
                for work in works:
                    if (reason := stop()) is not None:
                        raise Stopped(reason, reason)
                    loss = work.step(items, examples, number, stop)
                    taken += 1
        reason = None
    except Stopped as ended:
        reason = ended.reason
    changed = dict.fromkeys(name for phase in phases for name in phase.dense)
    return Trained(
        {name: now[name] for name in changed},
        {name: (read, values) for name, values in rows.items()},
        taken,
        material.planned(phases),
        reason,
        loss,
    )


class _Phase:
    """This is one phase while it runs: its flat vector, its moments, and what it is fed in every step.

    `dense`: all dense tensors as they are now; a step puts there what it changed. `received`: the shared ones before
    any step. `rows` [R, width]: those of the items `read`, ascending, of all trained tables, changed in place.
    """

    def __init__(
        self,
        phase: PhaseRecord,
        graph: Graph,
        learning: Learning,
        dense: dict[str, Floats],
        received: Mapping[str, Floats],
        read: Ints,
        rows: dict[str, Array],
        material: Work,
    ):
        self.phase, self.graph, self.read, self.rows, self.tables = phase, graph, read, rows, material.tables
        self.dense, places = dense, [(f"{t.place}.{t.name}", t.name) for t in learning.tensors if t.name in dense]
        self.reads = {told: name for told, name in places if told in graph.inputs}
        self.state: dict[str, Array] = {}
        self.given: dict[str, Array] = {}
        shared = {t.name for t in learning.tensors if t.place == "shared"}
        self.received = {n: received[n] for n in phase.dense if phase.accumulates and n in shared}
        sizes = [dense[name].size for name in phase.dense]
        self.ends = np.cumsum(sizes)[:-1]
        if phase.dense:
            self.state |= self._moments("theta", (sum(sizes),))
            self.given["lr"] = np.repeat(np.array([phase.lr[name] for name in phase.dense], np.float32), sizes)
        self.given |= {f"lr.{name}": np.array([phase.lr[name]], np.float32) for name in phase.tables}
        self.given |= history_feeds(graph, material.context, material.tables)
        self.moments = {t: self._moments(f"items.{t}", rows[t].shape) for t in phase.tables}
        self._check_outputs()

    def _moments(self, name: str, shape: tuple[int, ...]) -> dict[str, Floats]:
        if self.phase.optimiser == "sgd":
            return {}
        return {f"{name}.{moment}": np.zeros(shape, np.float32) for moment in ("first", "second")}

    def step(self, items: Ints, examples: Mapping[str, Array], number: int, stop: Stop) -> float:
        """Take the `number`-th step of the phase; its loss. `stop` may end it, which changes nothing."""
        place = np.searchsorted(self.read, items)
        factor, epsilon = corrections(number, self.phase.beta_2)
        feeds = {**self.given, **self.state, **examples, **{t: self.dense[name] for t, name in self.reads.items()}}
        if self.phase.dense:
            read = {**self.dense, **self.received}
            feeds["theta"] = np.concatenate([read[name].reshape(-1) for name in self.phase.dense])
        feeds |= {"factor": factor.astype(np.float32).reshape(1), "epsilon": epsilon.astype(np.float32).reshape(1)}
        for name in self.graph.inputs:
            role, _, table = name.partition(".")
            if role == "items" and table in self.tables:
                feeds[name] = self.rows[table][place] if table in self.rows else self.tables[table](items)
        for moments in self.moments.values():
            feeds |= {name: moment[place] for name, moment in moments.items()}
        out = self.graph.run_all(feeds, stop)
        after = {name: self._after(out, f"{name}.next", feeds[name].shape) for name in self._moving()}
        loss = float(self._after(out, "loss", (1,))[0])
        for name in self.state:
            self.state[name] = after[name]
        if self.phase.dense:
            parts = np.split(after["theta"], self.ends)
            shapes = [self.dense[name].shape for name in self.phase.dense]
            now = {n: p.reshape(s) for n, p, s in zip(self.phase.dense, parts, shapes, strict=True)}
            self.dense |= now | {n: self.dense[n] + (now[n] - at) for n, at in self.received.items()}
        for table, moments in self.moments.items():
            self.rows[table][place] = after[f"items.{table}"]
            for name, moment in moments.items():
                moment[place] = after[name]
        return loss

    def _moving(self) -> list[str]:
        dense = ["theta"] if self.phase.dense else []
        return [*dense, *self.state, *(n for t, moments in self.moments.items() for n in (f"items.{t}", *moments))]

    def _check_outputs(self) -> None:
        wanted = {"loss", *(f"{name}.next" for name in self._moving())}
        if set(self.graph.outputs) != wanted:
            odd = min(set(self.graph.outputs) ^ wanted)
            raise InputError(f"{self.graph.path} does not give what its phase changes: {odd}; export again")

    def _after(self, out: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
        """Return an output of the step; `InputError` when it is not there, or not as what it takes the place of."""
        found = out[name]
        if found.shape != shape or found.dtype != np.float32:
            got = f"{found.dtype} {list(found.shape)}"
            raise InputError(f"{self.graph.path}: {name} is {got} instead of float32 {list(shape)}; export again")
        return found
