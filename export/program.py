"""A local program is what one client does in a round, written once.

A program is pure functions on the tensors of ONE client. Every function is written over the *last* dimensions only,
so the same lines run for one client, for a shard of clients and in the ONNX graphs that a device runs. A batch
(`export.batches`) stands between the program and the layout: the program asks it for the rows of its items, for the
client's own vectors beside each example, and for the mean over a client's examples. Clients' tensors are disjoint, so
the gradient of the summed losses is each client's own gradient.

Owns: the contract between methods and everything that runs or ships them. Does not own: layouts, sampling, optimisers,
who trains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from edge.optimiser import BETA_2
from edge.sampling import EVERYTHING, Selection
from export.batches import Batch, Window
from privacy.errors import unknown

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class TensorSpec:
    """This is one named tensor of a program.

    `shape` is one client's, without the client dimension; for `rows` it is (items, width) of the whole table.
    `place`: "shared" tensors travel, "private" ones never leave the device, "received" rows are made by the server for
    each client and trained by nobody.
    `kind`: "dense" tensors are copied per client; of "rows" a client holds only the rows its examples touch. Private
    rows begin as zeros.
    `reset`: "round" tensors are made anew by `init_private` whenever a client begins local work, instead of kept.
    """

    shape: tuple[int, ...]
    place: Literal["shared", "private", "received"]
    kind: Literal["dense", "rows"] = "dense"
    reset: Literal["never", "round"] = "never"

    def __post_init__(self) -> None:
        if self.reset == "round" and (self.place, self.kind) != ("private", "dense"):
            raise ValueError("only a private dense tensor can be made anew in every round")

    @property
    def size(self) -> int:
        """Return the number of values."""
        out = 1
        for n in self.shape:
            out *= n
        return out


ON_DEVICES: Mapping[str, bool] = {"sgd": False, "adam": True}
"""Optimisers that bundles can ask for, and whether they keep two moments of every value."""


@dataclass(frozen=True)
class Phase:
    """A phase is one stage of local work: which tensors it trains, for how many epochs, by which optimiser and rates.

    `uses` are all tensors the loss reads, `trains` those of them that it changes. `when`: "round" phases run in every
    federated round, "final" ones once after the last round (local training; nothing leaves the device). Phases with the
    same `draws` train on the same examples in the same batches (none: draws of its own). `beta_2` is Adam's decay of
    the second moment. `number` is the round it runs in, for weights that change with it (0: before any round).

    `which`: the examples it learns from; phases of the same draws have the same. A phase that `alternates` takes a step
    after each step of the phase before it, instead of all its steps after all of that one's.
    """

    name: str
    uses: tuple[str, ...]
    trains: tuple[str, ...]
    epochs: int
    optimiser: str
    lr: Mapping[str, float]
    when: Literal["round", "final"] = "round"
    draws: str | None = None
    beta_2: float = BETA_2
    number: int = 0
    which: Selection = EVERYTHING
    alternates: bool = False

    @property
    def purpose(self) -> str:
        """Return what keys the phase's draws."""
        return self.draws or self.name

    @property
    def moments(self) -> bool:
        """Say whether a device keeps two moments of every value. Raises `InputError` for an optimiser it has not."""
        if self.optimiser not in ON_DEVICES:
            raise unknown("optimiser of devices", self.optimiser, ON_DEVICES)
        return ON_DEVICES[self.optimiser]


@dataclass(frozen=True)
class Transformer:
    """The language model a program runs for every example: what its cost follows from.

    `tokens` of an example are read by `layers` of width `hidden`; `parameters` are frozen, the tensors of the names
    `per_token` are applied to every token. `width` values are an item's finished vector.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    tokens: int
    parameters: int
    width: int
    per_token: tuple[str, ...] = ()


class LocalProgram(ABC):
    """The engine, the exporter and the device need this of a method; a method is a class derived from it.

    `specs`: every tensor by name. `phases`: local work in order. `frozen`: tables that never change and every client
    can read (may be empty), e.g. {"text": [items, 312]}. `pointwise`: no dense layers, so `Flat` batches work.
    `needs_history`: batches carry the client's own past positives.
    """

    name: str
    specs: Mapping[str, TensorSpec]
    phases: tuple[Phase, ...]
    frozen: dict[str, Tensor]
    pointwise: bool = False
    needs_history: bool = False

    @property
    def constants(self) -> Mapping[str, Tensor]:
        """Return frozen tensors that belong to no item (a language model's weights).

        Graphs are traced with them among `tensors`, and then hold them.
        """
        return {}

    @property
    def transformer(self) -> Transformer | None:
        """Return the language model that clients run; None where they read no text themselves."""
        return None

    @abstractmethod
    def init_shared(self, seed: int) -> dict[str, Tensor]:
        """Make the first broadcast: every shared tensor, whole."""

    @abstractmethod
    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        """Make the private tensors of these clients before they ever trained: [C, *shape]."""

    @abstractmethod
    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        """Return item vectors from the SHARED side alone: [..., n, d]. A device may cache them for all items."""

    @abstractmethod
    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        """Return the user's vector, [..., 1, d] or beside each example [..., n, d].

        `history` are the `vectors` of batch.history (None if the program needs none), `vectors` those of the batch.
        """

    @abstractmethod
    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        """Return one score (a logit) per example from `vectors` and `user`.

        Personal layers apply if `tensors` has them.
        """

    @abstractmethod
    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        """Return the client's loss on a batch, summed over clients."""


class SessionProgram(LocalProgram):
    """This is a program that learns from sessions in order:

    its batches, and the histories of those it scores, are windows.

    `window`: positions that a device reads. `publishes`: whose prototype is sent, the "received" encoder's, the
    "trained" one's, or "none". `reply`: the private tensor that holds what came back (None: nothing does).
    `whole_catalogue`: a step reads every row of its tables, in the catalogue's order (a softmax over all items).
    `inner`: a score is the inner product of the user's vector with an item's, the same vector for all items.
    """

    needs_history = True
    window: int
    publishes: Literal["received", "trained", "none"] = "none"
    reply: str | None = None
    whole_catalogue: bool = False
    inner: bool = True

    def teach(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return the teacher's features of a window [..., L, d], fixed before a round; None without a teacher."""
        return None

    def publish(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return the prototype of a window that a client sends, [..., P]; None for a program that sends none."""
        return None

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        """Private tensors a client keeps for its next round, made of those it has at the end of this one."""
        return {}


def turns(phases: Iterable[Phase]) -> list[list[Phase]]:
    """Phases in order, those that take turns step by step together.

    Raises `ValueError` for a phase that alternates with one of other draws, epochs or time.
    """
    out: list[list[Phase]] = []
    for phase in phases:
        if not phase.alternates:
            out.append([phase])
            continue
        if not out or any(
            (p.purpose, p.epochs, p.when, p.which) != (phase.purpose, phase.epochs, phase.when, phase.which)
            for p in out[-1]
        ):
            raise ValueError(f"phase '{phase.name}' alternates, but not with a phase of the same draws and epochs")
        out[-1].append(phase)
    return out


def read_by(phases: Iterable[Phase], when: Literal["round", "final"] | None = None) -> set[str]:
    """Name the tensors that the losses of these phases read (of those in rounds, or of final ones, alone)."""
    return {name for phase in phases if when in (None, phase.when) for name in phase.uses}
