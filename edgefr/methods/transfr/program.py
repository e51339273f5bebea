"""TransFR has a frozen text encoder, a federated adapter, a private head and user vector (Zhang et al., 2024)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.losses import (
    compared,
    first_of,
    form_of,
    init_mlp,
    init_vectors,
    learning,
    mlp,
    mlp_shapes,
    scores_of,
    worth,
)
from edgefr.methods.transfr.parts import ADAPTER_INITS, CLIENTS, HEADS
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import Batch, inner, rows_at
from export.given import Given
from export.program import Layers, LocalProgram, Phase, Tensors, TensorSpec
from privacy.errors import InputError


class TransFR(LocalProgram):
    """TransFR computes q_i = head_u(adapter(text_i)), score = <p_u, q_i>, or an MLP of both (Eq. 12, 13).

    `text` [items, f] holds the frozen encoder's vector of every item; it is encoded once and shared by all clients.
    `source`: the items of the domain that is learned in (None: all), of which `adapter_fit: source` starts the adapter.
    The adapter travels; head and p_u stay on the device.

    >>> program = TransFR(TransFRSettings(), text=torch.zeros(5, 16), local_epochs=2)
    >>> [phase.name for phase in program.phases]
    ['federated fine-tuning', 'local training']
    """

    name = "transfr"
    pointwise = False

    def __init__(self, settings: TransFRSettings, text: Tensor, local_epochs: int, source: Tensor | None = None):
        self.settings, self.text, self.form = settings, text, HEADS[settings.head_form]
        self.adapter_widths, head = settings.widths(text.shape[1])
        self.dim = self.adapter_widths[-1]
        if head[-1] != self.dim and not self.form.own_adapter:
            raise InputError(f"model.head ends in {head[-1]} but model.adapter in {self.dim}: make them equal")
        self.source = {"source": source, "all": None}[settings.adapter_fit]
        self.frozen = {"text": text}
        self.head_widths = self.adapter_widths if self.form.own_adapter else head
        self.match_widths = {"inner": [], "neural": [2 * self.dim, self.dim, 1]}[settings.match]
        self.needs_history = {"vector": False, "mean": True}[settings.user_encoder]
        own = mlp_shapes("head", self.head_widths)
        adapter = mlp_shapes("adapter", self.adapter_widths) | mlp_shapes("match", self.match_widths)
        self.specs: dict[str, TensorSpec] = {name: TensorSpec(shape, "shared") for name, shape in adapter.items()}
        self.specs |= {name: TensorSpec(shape, "private") for name, shape in own.items()}
        user = () if self.needs_history else ("user",)
        if user:
            self.specs["user"] = TensorSpec((self.dim,), "private")
        self.phases: tuple[Phase, ...] = self._phases(tuple(adapter), tuple(own), user, local_epochs)
        learning(self, settings)

    @classmethod
    def build(cls, settings: TransFRSettings, given: Given) -> TransFR:
        assert given.text is not None
        return cls(settings, given.text, given.local_epochs, given.source)

    def _phases(
        self, adapter: tuple[str, ...], head: tuple[str, ...], user: tuple[str, ...], epochs: int
    ) -> tuple[Phase, ...]:
        s, both = self.settings, adapter + user
        sums = s.sends == "gradients"  # TransFR Eq. 8: what is sent is their sum, whatever rate others move at
        lr = dict.fromkeys(adapter, 1.0 if sums else s.lr)
        lr |= dict.fromkeys(head, s.head_lr or s.lr) | dict.fromkeys(user, s.user_lr or s.lr)
        draws, which = purposes.FINE_TUNING, replace(s.objective.which, summed=s.reduction == "sum")  # Eq. 6
        federated = Phase(
            "federated fine-tuning", both, both, epochs, s.optimiser, lr, draws=draws, which=which, accumulates=sums
        )
        final = replace(
            federated,
            name="local training",
            uses=adapter + head + user,
            trains=head + {"head": (), "head and user": user}[s.local_trains],
            epochs=s.local_training_epochs,
            when="final",
            draws=purposes.LOCAL_TRAINING,
            accumulates=False,
        )
        return (federated, final)

    def layers_of(self, phase: Phase) -> Layers | None:
        form, user = form_of(self.settings, "text", ""), None if self.needs_history else "user"
        if form is None or self.match_widths or (phase.when == "final" and self.form.own_adapter):
            return None
        adapter, residual = phase.when == "round", phase.when == "final" and self.form.zero
        made = Layers("adapter" if adapter else "head", "text" if adapter else None, user, residual)
        return replace(made, loss=form.loss, temperature=form.temperature)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        adapter = init_mlp(seed, "adapter", self.adapter_widths)
        text = self.text if self.source is None else self.text[self.source]
        ADAPTER_INITS[self.settings.adapter_init].start(adapter, text, self.adapter_widths, self.settings)
        return adapter | init_mlp(seed, "match", self.match_widths) | first_of(self.settings)

    def kept(self, seed: int, shared: Tensors) -> dict[str, Tensor]:
        keep = self.settings.keep
        if keep == 1.0:
            return dict(shared)
        return {n: torch.lerp(first.to(shared[n]), shared[n], keep) for n, first in self.init_shared(seed).items()}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        head = init_mlp(seed, "head", self.head_widths)
        if self.form.own_adapter:
            head = {name: torch.zeros_like(value) for name, value in head.items()}
        if self.form.zero:
            last = f"head.{len(self.head_widths) - 2}.weight"
            head[last] = torch.zeros_like(head[last])
        private = {name: value.expand(len(clients), *value.shape).contiguous() for name, value in head.items()}
        if not self.needs_history:
            private["user"] = init_vectors(seed, purposes.INIT_USER, clients, self.dim, self.settings.init_scale)
        return private

    def read(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.frozen(self.frozen["text"])

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return mlp(tensors, "adapter", len(self.adapter_widths) - 1, self.read(tensors, batch), batch)

    def personal(self, tensors: Tensors, batch: Batch, vectors: Tensor) -> Tensor:
        """Apply the local head to the shared vectors of a batch, where the client has one (§3.2.3)."""
        if "head.0.weight" not in tensors:
            return vectors
        x = vectors
        if self.form.own_adapter:
            x, heads = self.read(tensors, batch), mlp_shapes("head", self.head_widths)
            tensors = {name: tensors[name.replace("head", "adapter", 1)] + tensors[name] for name in heads}
        out = mlp(tensors, "head", len(self.head_widths) - 1, x, batch)
        return self.form.apply(vectors, out)

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        if history is None or batch.history is None:
            return batch.own(tensors["user"])
        total, count = self._had(tensors, batch, history)
        if not batch.training:  # p_u = mean of the user's item vectors (§3.2.3)
            return total / count.clamp(min=1)
        positive = batch.label.unsqueeze(-1)  # an example's own item does not vouch for itself
        return (total - positive * self.personal(tensors, batch, vectors)) / (count - positive).clamp(min=1)

    def _had(self, tensors: Tensors, batch: Batch, history: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum [..., 1, d] of the vectors of what the client had, and how many these are, [..., 1, 1]."""
        assert batch.history is not None
        real = batch.history.label
        total = (self.personal(tensors, batch.history, history) * real.unsqueeze(-1)).sum(-2, keepdim=True)
        return total, real.sum(-1)[..., None, None]

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return self._match(tensors, batch, user, self.personal(tensors, batch, vectors))

    def _match(self, tensors: Tensors, batch: Batch, user: Tensor, vectors: Tensor) -> Tensor:
        """Return f(p_u, q_i) of Eq. 13: users [..., 1 or n, d], vectors [..., n, d] or shared [n, d] -> [..., n]."""
        if not self.match_widths:
            return inner(user, vectors)
        vectors = vectors.expand(*user.shape[:-2], *vectors.shape[-2:])
        both = torch.cat([user.expand_as(vectors), vectors], dim=-1)
        return mlp(tensors, "match", len(self.match_widths) - 1, both, batch).squeeze(-1)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        if batch.pairs is None or batch.history is None:
            return worth(scores_of(self, tensors, batch), batch, self.settings, tensors)
        scores = self._without_its_own(tensors, batch)
        return compared(scores[..., 0], scores[..., 1:], batch, self.settings)

    def _without_its_own(self, tensors: Tensors, batch: Batch) -> Tensor:
        """Return scores of positives with negatives, [..., P, 1 + k]; p_u is the mean without the positive."""
        assert batch.pairs is not None
        assert batch.history is not None
        total, count = self._had(tensors, batch, self.vectors(tensors, batch.history))
        mine = self.personal(tensors, batch, self.vectors(tensors, batch))
        rows = rows_at(mine, batch.pairs.candidates)
        user = (total - rows[..., 0, :]) / (count - 1).clamp(min=1)
        if not self.match_widths:
            return (rows @ user.unsqueeze(-1)).squeeze(-1)
        flat = self._match(tensors, batch, user.unsqueeze(-2).expand_as(rows).flatten(-3, -2), rows.flatten(-3, -2))
        return flat.unflatten(-1, rows.shape[-3:-1])


def build(settings: TransFRSettings, given: Given) -> LocalProgram:
    """Make the program of the clients that the settings name."""
    return CLIENTS[settings.client].build(settings, given)


def untrained_stages(
    settings: TransFRSettings, given: Given, random_text: Tensor | None, seed: int
) -> list[tuple[str, LocalProgram, dict[str, Tensor]]]:
    """Return the stages of the ablation that need no training: (name, program, shared tensors)."""
    mean = settings.model_copy(update={"user_encoder": "mean", "match": "inner"})
    out: list[tuple[str, LocalProgram, dict[str, Tensor]]] = []
    for name, table in (("random", random_text), ("pretrain", given.text)):
        if table is not None:
            program = TransFR(mean, table, 1, given.source)
            out.append((name, program, program.init_shared(seed)))
    return out
