"""Local training on the device: a client's phases, epoch by epoch, step by step, through the bundle's step graphs.

Owns: what is fed to a step and what is done with its outputs. Does not own: which examples there are (`edge.sampling`,
`edge.steps`), the maths of a step (the graph), what leaves the device (`edge.release`), where state is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.graph import Graph
from edge.learning import Learning, PhaseRecord
from edge.optimiser import corrections
from edge.replay import Replay
from edge.sampling import Sampler
from edge.scorer import Rows, history_feeds
from edge.steps import Steps, steps_of

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Stop = Callable[[], str | None]
"""Asked between steps: why training should end now, or None."""

CLIENT = np.zeros(1, np.int64)  # the device's own row in its sampler


@dataclass(frozen=True)
class Material:
    """What a client trains on in a round: its draws (of one client), its past positives, what it replays (of one
    client), and the rows of the tables that the program reads."""

    sampler: Sampler
    context: Ints
    replay: Replay | None
    tables: Mapping[str, Rows]
    round: int


@dataclass(frozen=True)
class Trained:
    """What local work ended with: trained dense tensors; of each trained table the items read, ascending, and their
    rows. `steps` of `planned` were taken; `stopped` says why not all. `loss`: of the last step, None without one."""

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
    material: Material,
    stop: Stop = lambda: None,
) -> Trained:
    """Run phases from the tensors in `dense` (all that they read); nothing given is changed.

    `graphs`: a loaded step graph by phase name. `stop` is asked before every step.
    """
    now = dict(dense)
    read = _items(phases, material, learning.batch_size)
    rows = {name: material.tables[name](read) for name in _distinct(name for p in phases for name in p.tables)}
    taken, reason, loss = 0, None, None
    for phase in phases:
        work = _Phase(phase, graphs[phase.name], learning, now, read, rows, material)
        for number, (steps, step) in enumerate(_every(phase, material, learning.batch_size), 1):
            reason = stop()
            if reason is not None:
                break
            loss = work.step(steps, step, number)
            taken += 1
        now |= work.dense()
        if reason is not None:
            break
    planned = sum(phase.epochs for phase in phases) * int(material.sampler.steps(CLIENT)[0])
    changed = _distinct(name for phase in phases for name in phase.dense)
    return Trained(
        {name: now[name] for name in changed},
        {name: (read, values) for name, values in rows.items()},
        taken,
        planned,
        reason,
        loss,
    )


class _Phase:
    """One phase while it runs: its flat vector, its moments, and what it is fed in every step.

    `rows` [R, width] are those of the items `read`, ascending, of all trained tables; they are changed in place.
    """

    def __init__(
        self,
        phase: PhaseRecord,
        graph: Graph,
        learning: Learning,
        dense: Mapping[str, Floats],
        read: Ints,
        rows: dict[str, Array],
        material: Material,
    ):
        self.phase, self.graph, self.read, self.rows, self.tables = phase, graph, read, rows, material.tables
        self.shapes = {name: learning.tensor(name).shape for name in phase.dense}
        self.state: dict[str, Array] = {}
        self.given: dict[str, Array] = {
            f"{t.place}.{t.name}": dense[t.name] for t in learning.tensors if t.name in dense and t.kind == "dense"
        }
        if phase.dense:
            sizes = [dense[name].size for name in phase.dense]
            self.state["theta"] = np.concatenate([dense[name].reshape(-1) for name in phase.dense])
            self.given["lr"] = np.repeat(np.array([phase.lr[name] for name in phase.dense], np.float32), sizes)
        self.given |= {f"lr.{name}": np.array([phase.lr[name]], np.float32) for name in phase.tables}
        self.given |= history_feeds(graph, material.context, material.tables)
        for name, shape in [("theta", self.state["theta"].shape)] if phase.dense else []:
            self.state |= self._moments(name, shape)
        self.moments = {t: self._moments(f"items.{t}", rows[t].shape) for t in phase.tables}

    def _moments(self, name: str, shape: tuple[int, ...]) -> dict[str, Floats]:
        if self.phase.optimiser != "adam":
            return {}
        return {f"{name}.{moment}": np.zeros(shape, np.float32) for moment in ("first", "second")}

    def step(self, steps: Steps, step: int, number: int) -> float:
        """Take one step of an epoch, the `number`-th of the phase; its loss."""
        at = slice(*steps.bounds[step : step + 2].tolist())
        items = steps.items[at]
        place = np.searchsorted(self.read, items)
        factor, epsilon = corrections(number)
        feeds = self.given | self.state
        feeds |= {"label": steps.label[at], "weight": steps.weight[at]}
        feeds |= {"factor": factor.astype(np.float32).reshape(1), "epsilon": epsilon.astype(np.float32).reshape(1)}
        for name in self.graph.inputs:
            role, _, table = name.partition(".")
            if role == "items" and table in self.tables:
                feeds[name] = self.rows[table][place] if table in self.rows else self.tables[table](items)
        for moments in self.moments.values():
            feeds |= {name: moment[place] for name, moment in moments.items()}
        out = self.graph.run_all(feeds)
        for name in self.state:
            self.state[name] = out[f"{name}.next"]
        for table, moments in self.moments.items():
            self.rows[table][place] = out[f"items.{table}.next"]
            for name, moment in moments.items():
                moment[place] = out[f"{name}.next"]
        return float(out["loss"][0])

    def dense(self) -> dict[str, Floats]:
        """The phase's dense tensors as they are now."""
        if not self.shapes:
            return {}
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        parts = np.split(self.state["theta"], np.cumsum(sizes)[:-1])
        return {n: part.reshape(shape) for (n, shape), part in zip(self.shapes.items(), parts, strict=True)}


def _every(phase: PhaseRecord, material: Material, batch_size: int) -> Iterator[tuple[Steps, int]]:
    """All steps of a phase, epoch after epoch."""
    replay = material.replay if phase.when == "round" else None
    for epoch in range(phase.epochs):
        drawn = material.sampler.epoch(CLIENT, phase.purpose, material.round, epoch)
        steps = steps_of([drawn], batch_size, material.sampler.catalogue, replay)
        yield from ((steps, step) for step in range(len(steps.lengths)))


def _items(phases: Sequence[PhaseRecord], material: Material, batch_size: int) -> Ints:
    """All items that the examples of phases that train tables read, ascending."""
    read = [np.empty(0, np.int64)]
    for phase in phases:
        if phase.tables:
            read += [steps.items for steps, step in _every(phase, material, batch_size) if step == 0]
    return np.unique(np.concatenate(read))


def _distinct(names: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(names))
