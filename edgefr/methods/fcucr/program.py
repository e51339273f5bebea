"""FCUCR is the local program of a client that learns from one session after another.

    item rows → encoder → features h ┬→ [h, ρ] → the client's own MLP → inner products with items
                                     ├→ self-distillation from an earlier encoder (Eq. 3)
                                     └→ prototype → server → ρ, the fused prototypes of similar users (Eq. 4-6)

Shared: item table and encoder. Private: the MLP, the last reply ρ, the encoder as the client last trained it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from edgefr import purposes
from edgefr.methods.fcucr.parts import DISTILL_WEIGHTS, ENCODERS, LOSSES, PROTOTYPE_FORMS, TEACHERS
from edgefr.methods.fcucr.prediction import init_prediction, prediction, prediction_shapes
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.given import Given
from edgefr.methods.losses import init_rows
from export.batches import Batch, Window
from export.program import Phase, SessionProgram, Tensors, TensorSpec

PREVIOUS = "previous."
"""Private tensors whose names start so are a client's own encoder as it last trained it."""


class Encoder(Protocol):
    """A backbone has pure functions over the last dimensions of one client's tensors."""

    def specs(self) -> dict[str, tuple[int, ...]]: ...

    def init(self, seed: int) -> dict[str, Tensor]: ...

    def encode(self, tensors: Tensors, x: Tensor, real: Tensor, times: Tensor) -> Tensor: ...


def encoder_of(settings: FCUCRSettings) -> Encoder:
    """Return the backbone that the settings name."""
    return ENCODERS[settings.encoder].make(settings)


class FCUCR(SessionProgram):
    """FCUCR predicts the next item of a session; see `FCUCRSettings` for the variants.

    >>> program = FCUCR(FCUCRSettings(dim=4, length=3, hidden=5), items=10, local_epochs=4)
    >>> program.specs["item"].shape, program.specs["prediction.0.weight"].shape
    ((10, 4), (8, 5))
    """

    name = "fcucr"

    def __init__(self, settings: FCUCRSettings, items: int, local_epochs: int):
        self.settings, self.encoder = settings, encoder_of(settings)
        self.errors, self.teacher = LOSSES[settings.loss].load(), TEACHERS[settings.teacher]
        self.distill, self.form = DISTILL_WEIGHTS[settings.distill], PROTOTYPE_FORMS[settings.pooling]
        self.window, self.publishes = settings.length, settings.prototypes
        self.reply = "prototype" if settings.reply else None
        self.frozen: dict[str, Tensor] = {}
        dense = {f"encoder.{name}": shape for name, shape in self.encoder.specs().items()}
        own = prediction_shapes(settings.dim, settings.hidden) if settings.personal else {}
        self.specs = {"item": TensorSpec((items, settings.dim + settings.item_bias), "shared", "rows")}
        self.specs |= {name: TensorSpec(shape, "shared") for name, shape in dense.items()}
        self.specs |= {name: TensorSpec(shape, "private") for name, shape in own.items()}
        if settings.reply:
            self.specs["prototype"] = TensorSpec((settings.reply,), "private")
        if self.teacher.kept:
            self.specs |= {PREVIOUS + name: TensorSpec(shape, "private") for name, shape in dense.items()}
            self.specs[PREVIOUS + "known"] = TensorSpec((1,), "private")
        trained = ("item", *dense, *own)
        lr = dict.fromkeys(trained, settings.lr)
        self.phases = (
            Phase(
                "round",
                tuple(self.specs),
                trained,
                local_epochs,
                "adam",
                lr,
                draws=purposes.ROUND,
                beta_2=settings.beta_2,
            ),
        )

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        item = init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)
        return {"item": item} | {f"encoder.{name}": value for name, value in self.encoder.init(seed).items()}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if self.settings.personal:
            out |= init_prediction(seed, self.settings.dim, self.settings.hidden, clients.numpy())
        for name, spec in self.specs.items():
            if spec.place == "private" and name not in out:
                out[name] = torch.zeros(len(clients), *spec.shape)
        return out

    # --- one client's session --------------------------------------------------------------------------------------

    def features(self, tensors: Tensors, batch: Window) -> Tensor:
        """Return h of every position: [..., L, d], zeros at padding."""
        return self._encoded(tensors, batch.rows(tensors["item"]), batch)

    def _encoded(self, tensors: Tensors, rows: Tensor, window: Window) -> Tensor:
        """Return the features [..., L, d] of a window whose items have these rows of the table."""
        own = {name.removeprefix("encoder."): v for name, v in tensors.items() if name.startswith("encoder.")}
        x = rows[..., : self.settings.dim] * window.label.unsqueeze(-1)
        return self.encoder.encode(own, x, window.label, window.times)

    def teach(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return the teacher's features [..., L, d], fixed for a round (FCUCR Eq. 3); `tensors` as before training."""
        return self.teacher.features(self, tensors, batch)

    def earlier(self, tensors: Tensors, batch: Window) -> Tensor:
        """Return the features [..., L, d] of the encoder that the client trained last.

        It reads item vectors as received: a device does not keep a second table of them.
        """
        own = {n.removeprefix(PREVIOUS): v for n, v in tensors.items() if n.startswith(PREVIOUS + "encoder.")}
        return self.features({**tensors, **own}, batch)

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        """Return what a client keeps for its next round: the encoder it has now."""
        if not self.teacher.kept:
            return {}
        own = [name for name in self.specs if name.startswith(PREVIOUS + "encoder.")]
        kept = {name: tensors[name.removeprefix(PREVIOUS)].expand_as(tensors[name]) for name in own}
        return kept | {PREVIOUS + "known": torch.ones_like(tensors[PREVIOUS + "known"])}

    def publish(self, tensors: Tensors, batch: Window) -> Tensor | None:
        """Return the client's prototype (FCUCR Eq. 4), [..., P]: the mean of its features, or all of them."""
        if not self.settings.reply:
            return None
        return self.form.pooled(self.features(tensors, batch), batch.label)

    def predicted(self, tensors: Tensors, features: Tensor, real: Tensor) -> Tensor:
        """Return what is compared with item rows: [..., L, d], and 1 for their bias (FCUCR Eq.

        7, or the features alone).
        """
        out = self._personal(tensors, features, real) if self.settings.personal else features
        return torch.cat([out, torch.ones_like(out[..., :1])], dim=-1) if self.settings.item_bias else out

    def _personal(self, tensors: Tensors, features: Tensor, real: Tensor) -> Tensor:
        if self.settings.reply:
            wide = self.form.spread(tensors["prototype"], features.shape[-2]).expand_as(features)
        else:
            wide = torch.zeros_like(features)
        return prediction(tensors, torch.cat([features, wide], dim=-1), real)

    # --- the contract ----------------------------------------------------------------------------------------------

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        """Return the last position's prediction, [..., 1, d]; `history` are the item vectors of the window."""
        assert history is not None
        window = batch.history
        assert isinstance(window, Window)
        features = self._encoded(tensors, history, window)
        return self.predicted(tensors, features, window.label)[..., -1:, :]

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return torch.matmul(vectors, user.transpose(-1, -2)).squeeze(-1)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        assert isinstance(batch, Window)
        features = self.features(tensors, batch)
        out = self.predicted(tensors, features, batch.label)
        rows = tensors["item"]
        positive = (out * torch.nn.functional.embedding(batch.positive, rows)).sum(-1)
        negative = torch.matmul(torch.nn.functional.embedding(batch.negative, rows), out.unsqueeze(-1)).squeeze(-1)
        own = (self.errors(positive, negative) * batch.weight).sum(-1)  # [...], each client's
        if batch.taught is None:
            return own.sum()
        apart = ((features - batch.taught).square().mean(-1) * batch.weight).sum(-1)  # FCUCR Eq. 3
        weight = self.distill.weight(own, apart, self.settings.distill_weight)
        if self.teacher.kept:
            weight = weight * tensors[PREVIOUS + "known"].squeeze(-1)
        return (own + weight * apart).sum()  # FCUCR Eq. 8


def build(settings: FCUCRSettings, given: Given) -> FCUCR:
    """Build the program by these settings."""
    return FCUCR(settings, given.items, given.local_epochs)
