"""FedCAR's shape (Eq. 8-20): the last five items as context, and a second phase that trains the encoder by contrast."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from edgefr.methods.losses import init_rows
from export.batches import Batch, Window
from export.program import Phase, SessionProgram, Tensors, TensorSpec

CONTEXT = 5
PREVIOUS, ENCODER = "previous.", "encoder."


class FedCAR(SessionProgram):
    """A candidate looks at the five items before it; a private layer scores what it finds.

    Of each step of the first phase follows one of the second, in which the encoder alone moves: towards what the client
    trained last (`previous.*`, private), away from another client's encoder (`message`, which the server relays).
    """

    name = "fedcar"
    publishes = "trained"
    reply = "message"
    inner = False

    def __init__(self, items: int, length: int, dim: int = 4, epochs: int = 2):
        self.window, self.dim, self.frozen = length, dim, {}
        self.shapes = {f"{ENCODER}{name}": (dim, dim) for name in ("query", "key", "value")}
        self.shapes[f"{ENCODER}position"] = (CONTEXT, dim)
        self.specs = {"item": TensorSpec((items, dim), "shared", "rows")}
        self.specs |= {name: TensorSpec(shape, "shared") for name, shape in self.shapes.items()}
        self.specs |= {"score.weight": TensorSpec((2 * dim,), "private"), "score.bias": TensorSpec((1,), "private")}
        self.specs |= {PREVIOUS + name: TensorSpec(shape, "private") for name, shape in self.shapes.items()}
        self.specs |= {
            PREVIOUS + "known": TensorSpec((1,), "private"),
            "message": TensorSpec((self.values,), "private"),
        }
        everything, encoder = tuple(self.specs), tuple(self.shapes)
        model = ("item", *encoder, "score.weight", "score.bias")
        rate = dict.fromkeys(model, 1e-2)
        self.phases: tuple[Phase, ...] = (
            Phase("recommend", everything, model, epochs, "adam", rate, draws="examples"),
            Phase("contrast", everything, encoder, epochs, "adam", rate, draws="examples", alternates=True),
        )

    @property
    def values(self) -> int:
        """Numbers in an encoder: what travels as a message."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return {n: init_rows(seed, n, spec.shape, 0.5) for n, spec in self.specs.items() if spec.place == "shared"}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        own = {name: spec.shape for name, spec in self.specs.items() if spec.place == "private"}
        zeros = {name: torch.zeros(len(clients), *shape) for name, shape in own.items()}
        return zeros | {"score.weight": init_rows(seed, "score", own["score.weight"], 0.5).repeat(len(clients), 1)}

    # --- one client -------------------------------------------------------------------------------------------------

    def looked(self, encoder: Tensors, rows: Tensor, real: Tensor, query: Tensor) -> Tensor:
        """c of candidates `query` [..., L, K, d] at every position of a window of rows [..., L, d] (Eq. 8-13)."""
        context = pad(rows, (0, 0, CONTEXT - 1, 0)).unfold(-2, CONTEXT, 1).transpose(-1, -2)  # [..., L, 5, d]
        there = pad(real, (CONTEXT - 1, 0)).unfold(-1, CONTEXT, 1).unsqueeze(-2) > 0  # [..., L, 1, 5]
        at = {name: value.unsqueeze(-3) for name, value in encoder.items()}  # beside every position
        z = context + at["position"]
        hidden = z + self._attend(z @ at["query"], z @ at["key"], z @ at["value"], there)
        return self._attend(query, hidden, hidden, there)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, there: Tensor) -> Tensor:
        """Attention over those places of the context that hold an item; zeros where none does."""
        logits = (query @ key.transpose(-1, -2) / math.sqrt(self.dim)).masked_fill(~there, -1e9)
        return (torch.softmax(logits, dim=-1) * there) @ value

    def encoder_of(self, tensors: Tensors, prefix: str = "") -> dict[str, Tensor]:
        """The encoder among tensors, or the one of the round before."""
        return {name.removeprefix(ENCODER): tensors[prefix + name] for name in self.shapes}

    def other(self, message: Tensor) -> dict[str, Tensor]:
        """Another client's encoder, from what the server relays of it."""
        parts = torch.split(message, [math.prod(shape) for shape in self.shapes.values()], dim=-1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name.removeprefix(ENCODER): part.unflatten(-1, shape) for (name, shape), part in named}

    def rated(self, tensors: Tensors, context: Tensor, query: Tensor) -> Tensor:
        """Eq. 14: one layer on [c, q], both [..., L, K, d]."""
        weight = tensors["score.weight"].unsqueeze(-2).unsqueeze(-2)
        return (torch.cat([context, query], dim=-1) * weight).sum(-1) + tensors["score.bias"].unsqueeze(-1)

    def publish(self, tensors: Tensors, batch: Window) -> Tensor | None:
        return torch.cat([tensors[name].flatten(-len(shape)) for name, shape in self.shapes.items()], dim=-1)

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        kept = {PREVIOUS + name: tensors[name].expand_as(tensors[PREVIOUS + name]) for name in self.shapes}
        return kept | {PREVIOUS + "known": torch.ones_like(tensors[PREVIOUS + "known"])}

    # --- the contract -----------------------------------------------------------------------------------------------

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        assert history is not None
        assert isinstance(batch.history, Window)
        real = batch.history.label
        query = vectors.expand(*real.shape[:-1], *vectors.shape[-2:]).unsqueeze(-3)
        rows, real = history[..., -CONTEXT:, :], real[..., -CONTEXT:]
        return self.looked(self.encoder_of(tensors), rows, real, query)[..., -1, :, :]

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return self.rated(tensors, user.unsqueeze(-3), vectors.expand_as(user).unsqueeze(-3)).squeeze(-2)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        assert isinstance(batch, Window)
        rows = batch.rows(tensors["item"])
        positive = torch.nn.functional.embedding(batch.positive, tensors["item"]).unsqueeze(-2)
        if phase.name == "contrast":
            return self._contrast(tensors, rows, positive, batch)
        negative = torch.nn.functional.embedding(batch.negative, tensors["item"])
        query = torch.cat([positive, negative], dim=-2)
        scores = self.rated(tensors, self.looked(self.encoder_of(tensors), rows, batch.label, query), query)
        sign = torch.ones_like(scores)
        sign[..., 0] = -1.0
        return batch.mean(softplus(sign * scores).mean(-1))  # Eq. 15

    def _contrast(self, tensors: Tensors, rows: Tensor, query: Tensor, batch: Window) -> Tensor:
        now, before, other = (
            self.looked(encoder, rows, batch.label, query)
            for encoder in (
                self.encoder_of(tensors),
                self.encoder_of(tensors, PREVIOUS),
                self.other(tensors["message"]),
            )
        )
        apart = [(now - one).square().sum(-1).squeeze(-1) for one in (before, other)]
        each = torch.relu(apart[0] - apart[1] + 1.0)  # Eq. 20
        return batch.mean(each * tensors[PREVIOUS + "known"])
