"""A local program is what one client does in a round, written once.

A program is pure functions on the tensors of ONE client. Every function is written over the *last* dimensions only,
so the same lines run for one client, for a shard of clients and in the ONNX graphs that a device runs. A batch
(`export.batches`) stands between the program and the layout: the program asks it for the rows of its items, for the
client's own vectors beside each example, and for the mean over a client's examples. Clients' tensors are disjoint, so
the gradient of the summed losses is each client's own gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.optimiser import BETA_2
from edge.round_init import Normal
from edge.sampling import EVERYTHING, Selection
from edge.sampling import turns as turns
from export.batches import Batch, Window
from privacy.errors import InputError, unknown

Tensors = Mapping[str, Tensor]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TensorSpec:
    """This is one named tensor of a program.

    `shape` is one client's, without the client dimension; for `rows` it is (items, width) of the whole table. `place`:
    "shared" tensors travel, "private" ones never leave the device, "received" rows are made by the server for each
    client and trained by nobody. `kind`: "dense" tensors are copied per client; of "rows" a client holds only the rows
    its examples touch. Private rows begin as zeros. `reset`: "round" tensors are made anew by `init_private` whenever a
    client begins local work, instead of kept. `first` says how `init_private` draws one, which a device has to know
    that is to make it anew.
    """

    shape: tuple[int, ...]
    place: Literal["shared", "private", "received"]
    kind: Literal["dense", "rows"] = "dense"
    reset: Literal["never", "round"] = "never"
    first: Normal | None = None

    def __post_init__(self) -> None:
        if self.reset == "round" and (self.place, self.kind) != ("private", "dense"):
            raise ValueError("only a private dense tensor can be made anew in every round")

    @property
    def size(self) -> int:
        out = 1
        for n in self.shape:
            out *= n
        return out


@dataclass(frozen=True)
class Pull:
    """A pull moves rows of a table that a step does not read: `rate` of their way to the same rows of table `to`.

    So plain SGD moves them on a squared distance over the whole table; rows that it reads the loss pulls. Nobody lays a
    table out for it: after k steps without it a row has (1 - rate)^k of its way left.
    """

    to: str
    rate: float

    def left(self, steps: Tensor) -> Tensor:
        """Return the share of its way that a row has left after so many steps."""
        return torch.pow(torch.tensor(1 - self.rate, dtype=torch.float64), steps)


@dataclass(frozen=True)
class ScoreForm:
    """A form says of a program that all of its scores are w_u · q_i + v_u · p_u + b_u, and what they are judged by.

    q_i is the row of shared table `rows`; the private tensors `weight` = [v_u, w_u], `beside` = p_u and `bias` = b_u
    are the client's own (without `beside`, `weight` is w_u alone). `loss` is an objective's name, "probabilities" for a
    cross-entropy of rounded sigmoids, or "bce-of-pairs" for the mean over pairs of that of a positive and its
    negatives; `temperature` divides scores that are compared.
    """

    rows: str
    weight: str
    beside: str | None = None
    bias: str | None = None
    loss: str = "bce"
    temperature: float = 1.0

    @property
    def names(self) -> tuple[str, str, str | None, str | None]:
        return self.rows, self.weight, self.beside, self.bias


@dataclass(frozen=True)
class System:
    """A system says of a program that its scores are <x_u, y_i> and that x_u solves a linear system, as FCF's.

    y_i is the row of shared table `rows`, `gram` the shared G = Σ_i y_i y_i', `user` the private x_u. What a client
    had counts 1 + `alpha` times, everything else once, `ridge` weighs |x|²; a round sends the gradient by `rows` and
    `gram`.
    """

    rows: str
    gram: str
    user: str
    alpha: float
    ridge: float

    @property
    def names(self) -> tuple[str, str, str]:
        return self.rows, self.gram, self.user


@dataclass(frozen=True)
class Layers:
    """Layers say of a phase that its scores are <u, v_i>, and that it trains what makes v_i of a fixed vector x_i.

    Layer k of `name` is x @ `<name>.<k>.weight` + `<name>.<k>.bias`, with ReLU between layers; `residual` adds x_i to
    the last. x_i is a row of the frozen table `reads`; None: what the program's `vectors` makes of an item, which the
    phase leaves alone. u is the private tensor `user`; None: the mean of v over what the client had, for a positive
    (and what is compared with it) without that one. `loss` and `temperature` are as those of a `ScoreForm`.
    """

    name: str
    reads: str | None
    user: str | None
    residual: bool = False
    loss: str = "bce"
    temperature: float = 1.0


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
    after each step of the phase before it, instead of all its steps after all of that one's. `pulls`: shared tables
    whose rows move in steps that do not read them, too. A phase that `accumulates` leaves dense tensors that travel as
    they were received: its steps read them there, and what each would have moved them adds up to the update. `clip`:
    the largest joint L2 norm of a step's gradients, to which longer ones are cut (of sessions alone; None: none are).
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
    pulls: Mapping[str, Pull] = field(default_factory=dict)
    accumulates: bool = False
    clip: float | None = None

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
    `per_token` are applied to every token. `width` values are an item's finished vector. `below` more layers are under
    those that steps run: nothing trained is in them, so they read a title once (`LocalProgram.prepared`).
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    tokens: int
    parameters: int
    width: int
    per_token: tuple[str, ...] = ()
    below: int = 0


def left_alone(specs: Mapping[str, TensorSpec], phase: Phase) -> list[str]:
    """Name the tensors that accumulating steps read as received. Raises `InputError` where they train tables."""
    if not phase.accumulates:
        return []
    tables = [name for name in phase.trains if specs[name].kind == "rows"]
    if tables:
        raise InputError(f"phase '{phase.name}' adds up gradients, which is for dense tensors, and trains {tables[0]}")
    return [name for name in phase.trains if specs[name].place == "shared"]


class LocalProgram(ABC):
    """The engine, the exporter and the device need this of a method; a method is a class derived from it.

    `specs`: every tensor by name. `phases`: local work in order. `frozen`: tables that never change and every client
    can read (may be empty), e.g. {"text": [items, 312]}. `pointwise`: no dense layers, so `Flat` batches work.
    `needs_history`: batches carry the client's own past positives. `window`: of these a program that reads their order
    is shown the newest so many, as a `Window`, when it scores (None: all of them, in no order).

    `prepared`: per-item tables that follow from frozen ones alone, which a device makes before its steps (`prepare`):
    an empty tensor [0, width] by name, whose rows a step's batch has `beside` it.

    `explains`: it says of a candidate how much it leans on each item of its window (`explain`).

    `publishes`: whose message is sent beside an update, the "received" model's, the "trained" one's, or "none".
    `reply`: the private tensor that holds what came back (None: nothing does; zeros: nothing has).
    """

    name: str
    specs: Mapping[str, TensorSpec]
    phases: tuple[Phase, ...]
    frozen: dict[str, Tensor]
    pointwise: bool = False
    needs_history: bool = False
    window: int | None = None
    publishes: Literal["received", "trained", "none"] = "none"
    reply: str | None = None
    explains: bool = False
    prepared: Mapping[str, Tensor] = MappingProxyType({})

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

    @property
    def score_form(self) -> ScoreForm | System | None:
        """Return the form that all of the program is of, so that it can be compiled; None: of none that is known.

        Whoever changes in a derived class what a client computes says its form anew there, or it has none.
        """
        return None

    def layers_of(self, phase: Phase) -> Layers | None:
        """Return the layers that a phase trains where this is all it does, so that it can be compiled, else None.

        It speaks for the very class that says it: classes derived from it have none but by saying theirs.
        """
        return None

    @abstractmethod
    def init_shared(self, seed: int) -> dict[str, Tensor]:
        """Make the first broadcast: every shared tensor, whole."""

    @abstractmethod
    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        """Make the private tensors of these clients before they ever trained: [C, *shape]."""

    def kept(self, seed: int, shared: Tensors) -> dict[str, Tensor]:
        """Return what recommends of shared tensors that rounds trained, from `init_shared(seed)` on: all of them."""
        return dict(shared)

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

    def gradients(self, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
        """Return the gradients of `loss` by the names of what the phase trains.

        A program may compile them by hand; contract tests hold these to what `loss` says.
        """
        leaves = {name: tensors[name].detach().requires_grad_() for name in phase.trains}
        found = torch.autograd.grad(self.loss({**tensors, **leaves}, batch, phase), list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def prepare(self, name: str, tensors: Tensors, batch: Batch) -> Tensor:
        """Return rows [..., n, width] of the table `name` of `prepared`, from frozen tables and `constants`."""
        raise InputError(f"{self.name} prepares no table")

    def explain(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        """Return how much each candidate leans on each position of the window, [..., K, L]; where it `explains`.

        Arguments as of `user`. A candidate's weights sum to 1 over the positions that hold an item, others have none.
        """
        raise InputError(f"{self.name} does not say what a recommendation leans on")

    def publish(self, tensors: Tensors, batch: Any) -> Tensor | None:
        """Return the message that a client sends beside its update, [..., P]; None for a program that sends none.

        `batch` shows what the client had last: over sessions its window, else the newest of its positives alone as the
        only pair, without negatives, in the context of what came before it.
        """
        return None

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return private tensors a client keeps for its next round, made of those it has at the end of this one."""
        return {}


class SessionProgram(LocalProgram):
    """This is a program that learns from sessions in order:

    its batches, and the histories of those it scores, are windows.

    `window`: positions that a device reads. A message is the prototype of its session.
    `whole_catalogue`: a step reads every row of its tables, in the catalogue's order (a softmax over all items).
    `inner`: a score is the inner product of the user's vector with an item's, the same vector for all items.
    `one_draw`: a round's negatives are drawn once, for all its epochs. `asks`: with what a client asks for its reply,
    the prototype that it sent, or one more, of the session it meets "next". `notices`: private tensors that hold what
    a step's forward pass leaves. `begins_alone`: clients start the run's first round from tensors of their own.
    `dropout`: the share of values that training drops, and `sites` where, with one client's shape there.
    """

    needs_history = True
    window: int
    whole_catalogue: bool = False
    inner: bool = True
    one_draw: bool = False
    asks: Literal["sent", "next"] = "sent"
    notices: tuple[str, ...] = ()
    begins_alone: bool = False
    dropout: float = 0.0
    sites: Mapping[str, tuple[int, ...]] = MappingProxyType({})

    def teach(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return the teacher's features of a window [..., L, d], fixed before a round; None without a teacher."""
        return None

    def ask(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return what a client asks the server with about a window, [..., P]: as a rule what it would publish."""
        return self.publish(tensors, batch)

    def learned(self, tensors: Tensors, batch: Window, phase: Phase) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a step's loss, and the private tensors `notices` as its forward pass leaves them."""
        return self.loss(tensors, batch, phase), {}

    def begins(self, seed: int, clients: Ints, slots: Ints, items: Ints) -> dict[str, Tensor]:
        """Return what clients [C] start the run's first round from in place of the broadcast (`begins_alone`).

        Dense tensors [C, ...]; of tables the rows [R] of `items` of the clients `slots`.
        """
        return {}


def read_by(phases: Iterable[Phase], when: Literal["round", "final"] | None = None) -> set[str]:
    """Name the tensors that the losses of these phases read (of those in rounds, or of final ones, alone)."""
    return {name for phase in phases if when in (None, phase.when) for name in phase.uses}
