"""FCUCR is the local program of a client that learns from one session after another.

    item rows → encoder → features h ┬→ [h, ρ] → the client's own MLP → inner products with items
                                     ├→ self-distillation from an earlier encoder (Eq. 3)
                                     └→ prototype → server → ρ, the fused prototypes of similar users (Eq. 4-6)

Shared: item table and encoder. Private: the MLP, the last reply ρ, the encoder as the client last trained it; as
released, running averages of the MLP too, and the features that the last step was taken on.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.fcucr.layers import Drop, Dropping, SequenceEncoder
from edgefr.methods.fcucr.parts import DISTILL_WEIGHTS, ENCODERS, LOSSES, PROTOTYPE_FORMS, TEACHERS
from edgefr.methods.fcucr.prediction import AVERAGES
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.methods.losses import init_rows
from edgefr.methods.prefixes import unit
from export.batches import Batch, Window
from export.given import Given
from export.program import Phase, SessionProgram, Tensors, TensorSpec
from privacy import keyed
from privacy.errors import InputError

Ints = npt.NDArray[np.int64]

PREVIOUS = "previous."
"""Private tensors whose names start so are a client's own encoder as it last trained it."""

KNOWN, SENT = PREVIOUS + "known", "sent"
"""Private tensors: 1 once a client has been in a round; the features of its last step, as they are sent."""


def encoder_of(settings: FCUCRSettings) -> SequenceEncoder:
    return ENCODERS[settings.encoder].make(settings)


class FCUCR(SessionProgram):
    """FCUCR predicts the next item of a session; see `FCUCRSettings` for the variants."""

    name = "fcucr"

    def __init__(self, settings: FCUCRSettings, items: int, local_epochs: int):
        self.settings, self.encoder = settings, encoder_of(settings)
        self.errors, self.teacher = LOSSES[settings.loss].load(), TEACHERS[settings.teacher]
        self.whole_catalogue = LOSSES[settings.loss].whole
        self.distill, self.form = DISTILL_WEIGHTS[settings.distill], PROTOTYPE_FORMS[settings.pooling]
        self.window, self.publishes = settings.length, settings.prototypes
        self.reply = "prototype" if settings.reply else None
        self.frozen: dict[str, Tensor] = {}
        dense = {f"encoder.{name}": shape for name, shape in self.encoder.specs().items()}
        self.specs = {"item": TensorSpec((items, settings.dim + settings.item_bias), "shared", "rows")}
        self.specs |= {name: TensorSpec(shape, "shared") for name, shape in dense.items()}
        self.mlp = settings.mlp
        own = {} if self.mlp is None else self.mlp.shapes()
        self.specs |= {name: TensorSpec(shape, "private") for name, shape in own.items()}
        self.specs |= {name: TensorSpec(shape, "private") for name, shape in self._kept(dense).items()}
        trained = ("item", *dense, *own)
        self.phases = (
            Phase(
                "round",
                tuple(self.specs),
                trained,
                local_epochs,
                "adam",
                dict.fromkeys(trained, settings.lr),
                draws=purposes.ROUND,
                beta_2=settings.beta_2,
                clip=settings.gradient_clip,
            ),
        )
        self.one_draw, self.asks = settings.negatives_once, settings.query
        self.begins_alone = settings.starts == "own"
        if settings.dropout:
            if not isinstance(self.encoder, Dropping):
                raise InputError(f"encoder {settings.encoder} does not say where it drops values: set model.dropout=0")
            self.dropout, self.sites = settings.dropout, self.encoder.sites()
        self.notices = tuple(name for name in (SENT, *AVERAGES) if name in self.specs)

    def _kept(self, dense: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Return the private tensors that no gradient trains, by name."""
        settings = self.settings
        out: dict[str, tuple[int, ...]] = {} if self.mlp is None else self.mlp.averages()
        if settings.reply:
            out["prototype"] = (settings.reply,)
        if settings.prototypes == "trained" and settings.prototype_of == "last_step":
            out[SENT] = (settings.reply,)
        if self.teacher.kept:
            out |= {PREVIOUS + name: shape for name, shape in dense.items()}
        self.waits = self.teacher.kept or (settings.teacher == "received_global" and not settings.distill_first)
        if self.waits or SENT in out:
            out[KNOWN] = (1,)
        return out

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        scale = self.settings.init_scale
        item = init_rows(seed, "item", self.specs["item"].shape, scale)
        encoder = self.encoder.init(seed)
        if self.begins_alone:  # what is left of the clients' own where they are averaged
            left = scale / self._spread
            encoder = {name: value * left if value.ndim > 1 else value for name, value in encoder.items()}
        return {"item": item} | {f"encoder.{name}": value for name, value in encoder.items()}

    @property
    def _spread(self) -> float:
        return sqrt(2 / (self.specs["item"].shape[0] + self.settings.dim))

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        out = {} if self.mlp is None else self.mlp.init(seed, clients.numpy())
        for name, spec in self.specs.items():
            if spec.place == "private" and name not in out:
                out[name] = torch.zeros(len(clients), *spec.shape)
        return out

    def begins(self, seed: int, clients: Ints, slots: Ints, items: Ints) -> dict[str, Tensor]:
        """Return each client's own random net: the encoder [C, ...], and of the item table the rows asked for [R]."""
        keys = keyed.fold(keyed.key(seed, purposes.init("own item")), clients)
        width = self.specs["item"].shape[1]
        rows = keyed.normal(keyed.bits(keys[slots], items)[:, None], np.arange(width)) * self._spread
        seeds = keyed.fold(keyed.key(seed, purposes.init("own encoder")), clients) >> np.uint64(1)
        each = [self.encoder.init(int(own)) for own in seeds]
        encoder = {f"encoder.{name}": torch.stack([one[name] for one in each]) for name in each[0]}
        return {"item": torch.from_numpy(rows.astype(np.float32)), **encoder}

    # --- one client's session --------------------------------------------------------------------------------------

    def features(self, tensors: Tensors, batch: Window) -> Tensor:
        """Return h of every position: [..., L, d], zeros at padding."""
        return self._encoded(tensors, batch.rows(tensors["item"]), batch)

    def _encoded(self, tensors: Tensors, rows: Tensor, window: Window) -> Tensor:
        own = {name.removeprefix("encoder."): v for name, v in tensors.items() if name.startswith("encoder.")}
        x = self._read(rows)[..., : self.settings.dim] * window.label.unsqueeze(-1)
        if not window.kept or not isinstance(self.encoder, Dropping):
            return self.encoder.encode(own, x, window.label, window.times)
        drop: Drop = lambda site, values: values * window.kept[site]  # noqa: E731
        return self.encoder.encode(own, x, window.label, window.times, drop)

    def _read(self, rows: Tensor) -> Tensor:
        """Return item rows [..., d] as they are read."""
        return unit(rows) if self.settings.unit else rows

    def teach(self, tensors: Tensors, batch: Window) -> Tensor | None:
        return self.teacher.features(self, tensors, batch)

    def earlier(self, tensors: Tensors, batch: Window) -> Tensor:
        """Return the features [..., L, d] of the encoder that the client trained last, on item vectors as received."""
        own = {n.removeprefix(PREVIOUS): v for n, v in tensors.items() if n.startswith(PREVIOUS + "encoder.")}
        return self.features({**tensors, **own}, batch)

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        own = [name for name in self.specs if name.startswith(PREVIOUS + "encoder.")]
        kept = {name: tensors[name.removeprefix(PREVIOUS)].expand_as(tensors[name]) for name in own}
        return kept | ({KNOWN: torch.ones_like(tensors[KNOWN])} if KNOWN in self.specs else {})

    def publish(self, tensors: Tensors, batch: Window) -> Tensor | None:
        now = self.ask(tensors, batch)
        if now is None or SENT not in self.specs:
            return now
        return torch.where(tensors[KNOWN] > 0, tensors[SENT], now)

    def ask(self, tensors: Tensors, batch: Window) -> Tensor | None:
        return self.form.pooled(self.features(tensors, batch), batch.label) if self.settings.reply else None

    def predicted(self, tensors: Tensors, features: Tensor, real: Tensor, *, scoring: bool = False) -> Tensor:
        """Return what is compared with item rows, [..., L, d], and 1 for their bias (FCUCR Eq. 7)."""
        out = features
        if self.mlp is not None:
            out = self.mlp.apply(tensors, self._beside(tensors, features), real, scoring=scoring)
        return self._compared(out)

    def _compared(self, out: Tensor) -> Tensor:
        """Return predictions [..., d] as they are compared with item rows, [..., d] and 1 for their bias."""
        if self.settings.unit:
            return unit(out)
        return torch.cat([out, torch.ones_like(out[..., :1])], dim=-1) if self.settings.item_bias else out

    def _beside(self, tensors: Tensors, features: Tensor) -> Tensor:
        """Return features with the server's reply beside each, [..., L, 2d]."""
        if self.settings.reply:
            wide = self.form.spread(tensors["prototype"], features.shape[-2]).expand_as(features)
        else:
            wide = torch.zeros_like(features)
        return torch.cat([features, wide], dim=-1)

    # --- the contract ----------------------------------------------------------------------------------------------

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return self._read(batch.rows(tensors["item"]))

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        assert history is not None
        window = batch.history
        assert isinstance(window, Window)
        features = self._encoded(tensors, history, window)
        return self.predicted(tensors, features, window.label, scoring=True)[..., -1:, :]

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return torch.matmul(vectors, user.transpose(-1, -2)).squeeze(-1)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        assert isinstance(batch, Window)
        return self.learned(tensors, batch, phase)[0]

    def learned(self, tensors: Tensors, batch: Window, phase: Phase) -> tuple[Tensor, dict[str, Tensor]]:
        features = self.features(tensors, batch)
        left = {SENT: self.form.pooled(features.detach(), batch.label)} if SENT in self.specs else {}
        out = features
        if self.mlp is not None:
            out, averages = self.mlp.learned(tensors, self._beside(tensors, features), batch.label)
            left |= averages
        return self._loss(tensors, batch, features, self._compared(out)), left

    def _loss(self, tensors: Tensors, batch: Window, features: Tensor, out: Tensor) -> Tensor:
        rows, out = self._read(tensors["item"]), out / self.settings.temperature
        positive = (out * torch.nn.functional.embedding(batch.positive, rows)).sum(-1)
        if self.whole_catalogue:
            others = torch.matmul(out, batch.everything(rows).transpose(-1, -2))
        else:
            others = torch.matmul(torch.nn.functional.embedding(batch.negative, rows), out.unsqueeze(-1)).squeeze(-1)
        own = (self.errors(positive, others) * batch.weight).sum(-1)  # [...], each client's
        if batch.taught is None:
            return own.sum()
        each = (features - batch.taught).square().mean(-1)
        apart = each.mean(-1) if self.settings.distill_over == "all" else (each * batch.weight).sum(-1)  # FCUCR Eq. 3
        weight = self.distill.weight(own, apart, self.settings.distill_weight)
        if self.waits:  # for a teacher, in a client's first round
            weight = weight * tensors[KNOWN].squeeze(-1)
        return (own + weight * apart).sum()  # FCUCR Eq. 8


def build(settings: FCUCRSettings, given: Given) -> FCUCR:
    return FCUCR(settings, given.items, given.local_epochs)
