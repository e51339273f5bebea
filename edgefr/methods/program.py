"""The local program: what one client does in a round, written once.

A program is pure functions on the tensors of ONE client. Every function is written over the *last* dimensions only,
so the same lines run

- for one client (`One`: tensors as they are),
- for a shard of clients of similar size (`One` with a leading client dimension: short batches padded and weighted 0),
- for a shard of clients of any size (`Flat`: all clients' examples in one list; for programs without dense layers),
- for clients that learn from sessions (`Window`: one window each, with or without a leading client dimension),

and are traced into the ONNX graphs that a device runs. A batch object stands between the program and the layout: the
program asks it for the rows of its items, for the client's own vectors beside each example, and for the mean over a
client's examples. Clients' tensors are disjoint, so the gradient of the summed losses is each client's own gradient.

Owns: the contract between methods and everything that runs them. Does not own: sampling, optimisers, who trains.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from edge.optimiser import BETA_2

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of a program.

    `shape` is one client's, without the client dimension; for `rows` it is (items, width) of the whole table.
    `place`: "shared" tensors travel, "private" ones never leave the device, "received" rows are made by the server for
    each client and trained by nobody.
    `kind`: "dense" tensors are copied per client; of "rows" a client holds only the rows its examples touch. Private
    rows begin as zeros.
    """

    shape: tuple[int, ...]
    place: Literal["shared", "private", "received"]
    kind: Literal["dense", "rows"] = "dense"

    @property
    def size(self) -> int:
        """Number of values."""
        out = 1
        for n in self.shape:
            out *= n
        return out


@dataclass(frozen=True)
class Phase:
    """One stage of local work: which tensors it trains, for how many epochs, with what optimiser and learning rates.

    `uses` are all tensors the loss reads, `trains` those of them that it changes. `when`: "round" phases run in every
    federated round, "final" ones once after the last round (local training; nothing leaves the device). Phases with the
    same `draws` train on the same examples in the same batches (none: draws of its own). `beta_2` is Adam's decay of
    the second moment. `number` is the round it runs in, for weights that change with it (0: before any round).
    """

    name: str
    uses: tuple[str, ...]
    trains: tuple[str, ...]
    epochs: int
    optimiser: Literal["sgd", "adam"]
    lr: Mapping[str, float]
    when: Literal["round", "final"] = "round"
    draws: str | None = None
    beta_2: float = BETA_2
    number: int = 0

    @property
    def purpose(self) -> str:
        """What keys the phase's draws."""
        return self.draws or self.name


@dataclass(frozen=True)
class Transformer:
    """The language model a program runs for every example (attribute `transformer`): what its cost follows from.

    `tokens` of an example are read by `layers` of width `hidden`; `parameters` are frozen, the tensors of the names
    `per_token` are applied to every token.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    tokens: int
    parameters: int
    per_token: tuple[str, ...] = ()

    @classmethod
    def of(cls, program: object) -> Transformer | None:
        """The program's, or None where clients read no text themselves."""
        return getattr(program, "transformer", None)


@dataclass(frozen=True)
class One:
    """The examples of one client: `items`, `label`, `weight` are [n]; or of several, with a leading client dimension.

    `items` index the rows tensors the engine hands over; `catalogue` are the same items' numbers in the catalogue
    (they index `frozen` tables); `weight` is 1/n for examples, 0 for padding; `history` is the client's own past
    positives as another batch, `label` 1 for real entries (None where the program does not ask for it);
    `training` says that the positives among the examples are in that history.
    """

    items: Tensor
    catalogue: Tensor
    label: Tensor
    weight: Tensor
    history: One | None = None
    training: bool = False

    def rows(self, table: Tensor) -> Tensor:
        """Rows of a `rows` tensor for these items: [..., n, width]."""
        return torch.nn.functional.embedding(self.items, table)

    def frozen(self, table: Tensor) -> Tensor:
        """Rows of a frozen catalogue table (text vectors, item vectors) for these items: [..., n, width]."""
        return torch.nn.functional.embedding(self.catalogue, table)

    def own(self, tensor: Tensor) -> Tensor:
        """A client's own vector beside each of its examples: [..., width] -> [..., 1, width] (broadcasts over n)."""
        return tensor.unsqueeze(-2)

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """A client's own dense layer: x [..., n, in] @ weight [..., in, out] + bias [..., out]."""
        return torch.matmul(x, weight) + bias.unsqueeze(-2)

    def mean(self, values: Tensor) -> Tensor:
        """Mean over each client's examples, summed over clients (a scalar)."""
        return (values * self.weight).sum()

    def over_items(self, values: Tensor) -> Tensor:
        """Sum over the distinct items of each client's batch, summed over clients; values [..., n] of an item agree."""
        real = self.weight > 0
        same = (self.items.unsqueeze(-1) == self.items.unsqueeze(-2)) & real.unsqueeze(-2)
        return (values * real / same.sum(-1).clamp_min(1)).sum()


@dataclass(frozen=True)
class Window(One):
    """A client's session: of `One`, `items` and `catalogue` [..., L] are inputs and `label` is 1 where they are real.

    `weight` [..., L] is each position's share of the loss. `positive` [..., L] and `negative` [..., L, n] index rows
    like `items`; `times` [..., L] are seconds since the first item; `taught` [..., L, d] the teacher's features.
    """

    times: Tensor = field(default_factory=lambda: torch.empty(0))
    positive: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    negative: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    taught: Tensor | None = None


@dataclass(frozen=True)
class Flat(One):
    """The examples of many clients in one list: every field is [N], rows tensors come in gathered, one row per example.

    `client` [N] says whose example it is (ascending), `ends` [C] counts the examples of clients 0..c together.
    """

    client: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    ends: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def rows(self, table: Tensor) -> Tensor:
        return table

    def over_items(self, values: Tensor) -> Tensor:
        return values.sum()  # a client has an item once

    def own(self, tensor: Tensor) -> Tensor:
        repeated = cast(Tensor, _Repeat.apply(tensor, self.client, self.ends))
        repeated.runs = (tensor, self.ends)  # type: ignore[attr-defined]  # what `inner` needs; any operation drops it
        return repeated

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        raise TypeError("a program with dense layers per client runs in the padded layout; set pointwise = False")


class _Repeat(torch.autograd.Function):
    """Rows repeated for runs of examples; its gradient sums each run (one pass, where a general scatter takes many)."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, client: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(ends)
        return tensor.index_select(0, client)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _sum_runs(gradients[0], ctx.saved_tensors[0]), None, None


class _InnerOfRuns(torch.autograd.Function):
    """(repeated * vectors).sum(-1), whose gradient for the users is summed over their runs at once."""

    @staticmethod
    def forward(ctx: Any, users: Tensor, vectors: Tensor, repeated: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(vectors, repeated, ends)
        return _products_of_runs(users, vectors, ends) if vectors.device.type == "cpu" else (vectors * repeated).sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        vectors, repeated, ends = ctx.saved_tensors
        of_users = _sum_runs(vectors, ends, gradients[0].contiguous()) if ctx.needs_input_grad[0] else None
        return of_users, gradients[0].unsqueeze(-1) * repeated if ctx.needs_input_grad[1] else None, None, None


def _products_of_runs(users: Tensor, vectors: Tensor, ends: Tensor) -> Tensor:
    """Each vector times its run's user: the entries (user, vector) of a product of matrices, with no array between."""
    where = torch.nn.functional.pad(ends, (1, 0)), torch.arange(len(vectors))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        entries = torch.sparse_csr_tensor(
            *where, vectors.new_zeros(len(vectors)), (len(users), len(vectors)), check_invariants=False
        )
    return torch.sparse.sampled_addmm(entries, users, vectors.t(), beta=0.0).values()


def _sum_runs(values: Tensor, ends: Tensor, weight: Tensor | None = None) -> Tensor:
    """Weighted sums of runs of rows: [N, w] -> [C, w]."""
    each = torch.arange(len(values), device=ends.device)
    starts = torch.nn.functional.pad(ends[:-1], (1, 0))
    return torch.nn.functional.embedding_bag(each, values, starts, mode="sum", per_sample_weights=weight)


def inner(user: Tensor, vectors: Tensor) -> Tensor:
    """Inner products of users with item vectors, in every layout: [..., 1 or n, d], [..., n, d] -> [..., n]."""
    runs = getattr(user, "runs", None)
    if runs is not None and vectors.ndim == 2:
        return cast(Tensor, _InnerOfRuns.apply(runs[0], vectors, user.detach(), runs[1]))
    if user.shape[-2] == 1:  # one vector for all of the client's examples: a product of matrices
        return torch.matmul(vectors, user.transpose(-1, -2)).squeeze(-1)
    return (user * vectors).sum(-1)


@runtime_checkable
class LocalProgram(Protocol):
    """What the engine, the exporter and the device need of a method.

    `specs`: every tensor by name. `frozen`: tables that never change and every client can read (may be empty), e.g.
    {"text": [items, 312]}. `phases`: local work in order. `pointwise`: no dense layers, so `Flat` batches work.
    `needs_history`: batches carry the client's own past positives.
    """

    name: str
    frozen: dict[str, Tensor]
    pointwise: bool
    needs_history: bool

    @property
    def specs(self) -> Mapping[str, TensorSpec]: ...

    @property
    def phases(self) -> tuple[Phase, ...]: ...

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        """The first broadcast: every shared tensor, whole."""
        ...

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        """Private tensors of these clients before they ever trained: [C, *shape]."""
        ...

    def vectors(self, tensors: Tensors, batch: One) -> Tensor:
        """Item vectors from the SHARED side alone: [..., n, d]. A device may cache them for the whole catalogue."""
        ...

    def user(self, tensors: Tensors, batch: One, history: Tensor | None, vectors: Tensor) -> Tensor:
        """The user's vector, [..., 1, d] or beside each example [..., n, d].

        `history` are the `vectors` of batch.history (None if the program needs none), `vectors` those of the batch.
        """
        ...

    def score(self, tensors: Tensors, batch: One, vectors: Tensor, user: Tensor) -> Tensor:
        """One score (a logit) per example from `vectors` and `user`; personal layers apply if `tensors` has them."""
        ...

    def loss(self, tensors: Tensors, batch: One, phase: Phase) -> Tensor:
        """The client's loss on a batch, summed over clients."""
        ...
