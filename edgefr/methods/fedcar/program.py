"""FedCAR scores candidates in context by a private layer, then trains the encoder alone by contrast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from edge.sampling import Selection
from edgefr.config import random_streams as purposes
from edgefr.methods.fedcar.encoder import ContextEncoder
from edgefr.methods.fedcar.parts import NEGATIVES, Shown
from edgefr.methods.fedcar.settings import FedCARSettings, form_of
from edgefr.methods.losses import RATE_OF_ITEMS, init_rows, init_scorer
from export.batches import Batch, Window, rows_at
from export.given import Given
from export.program import LocalProgram, Phase, ScoreForm, Tensors, TensorSpec

ENCODER, PREVIOUS, KNOWN, MESSAGE = "encoder.", "previous.", "previous.known", "message"
SCORER = ("scorer.weight", "scorer.bias")
COMPILED = ("none", "encoder")
"""Negatives whose gradients are compiled."""


class FedCAR(LocalProgram):
    """FedCAR scores S([c, q]): c is what candidate q sees in the items that the client had last (Eq. 8-14).

    Item table and encoder travel; the score function S stays, and so do the encoder as the client trained it last
    (`previous.*`) and what the server relays of another client (`message`; zeros: nothing yet). A round has two phases
    on the same draws: "recommend" trains everything (Eq. 15), "contrast" the encoder alone (Eq. 16-20).

    >>> program = FedCAR(FedCARSettings(dim=4, negative="none"), items=10, local_epochs=1)
    >>> [phase.name for phase in program.phases], program.specs["encoder.position"].shape
    (['recommend'], (5, 4))
    """

    name = "fedcar"
    Encoder = ContextEncoder

    def __init__(self, settings: FedCARSettings, items: int, local_epochs: int):
        self.settings = s = settings
        self.frozen: dict[str, Tensor] = {}
        self.encoder = self.Encoder(**vars(form_of(s)))
        self.negative = None if s.negative == "none" else NEGATIVES[s.negative]
        self.needs_history = self.explains = s.context > 0
        self.window = s.context or None
        shapes = self.encoder.shapes if s.context else {}
        width = (2 if s.context else 1) * s.dim
        self.specs = {"item": TensorSpec((items, s.dim), "shared", "rows")}
        self.specs |= {ENCODER + name: TensorSpec(shape, "shared") for name, shape in shapes.items()}
        self.specs |= {SCORER[0]: TensorSpec((width,), "private"), SCORER[1]: TensorSpec((1,), "private")}
        self.model = tuple(self.specs)
        if self.negative is not None:
            self.publishes, self.reply = "trained", MESSAGE
            kept = {name: TensorSpec(shape, "private") for name, shape in shapes.items()}
            self.specs |= {PREVIOUS + name: spec for name, spec in kept.items()}
            self.specs |= {KNOWN: TensorSpec((1,), "private")}
            self.specs |= {MESSAGE: TensorSpec((self.negative.values(self.encoder),), "private")}
        self.phases = self._phases(items, local_epochs)

    def _phases(self, items: int, epochs: int) -> tuple[Phase, ...]:
        s, which = self.settings, Selection(pairs=True, context=self.settings.context)
        rates = dict.fromkeys(SCORER, s.lr) | {"item": s.item_lr or s.lr * items * RATE_OF_ITEMS}
        encoder = tuple(name for name in self.model if name.startswith(ENCODER))
        first, second = s.encoder_lr or s.lr, s.contrast_lr or s.encoder_lr or s.lr
        rates |= dict.fromkeys(encoder, first)
        first_phase = Phase(
            "recommend", self.model, self.model, epochs, "sgd", rates, draws=purposes.EXAMPLES, which=which
        )
        if self.negative is None:
            return (first_phase,)
        uses, rate = tuple(name for name in self.specs if name not in SCORER), dict.fromkeys(encoder, second)
        contrast = replace(first_phase, name="contrast", uses=uses, trains=encoder, lr=rate, alternates=s.alternates)
        return first_phase, contrast

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        table = init_rows(seed, "item", self.specs["item"].shape, self.settings.init_scale)
        return {"item": table} | (self.encoder.first(seed, ENCODER) if self.settings.context else {})

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        own = {n: s for n, s in self.specs.items() if s.place == "private" and n not in SCORER}
        zeros = {name: torch.zeros(len(clients), *spec.shape) for name, spec in own.items()}
        return zeros | init_scorer(seed, self.specs[SCORER[0]].shape[0], len(clients))

    # --- one client -------------------------------------------------------------------------------------------------

    def _encoder(self, tensors: Tensors, prefix: str = ENCODER) -> dict[str, Tensor]:
        return {name: tensors[prefix + name] for name in self.encoder.shapes}

    def _own_encoder(self, tensors: Tensors) -> dict[str, Tensor]:
        clients = tensors[KNOWN].shape[:-1]
        return {n: v.expand(*clients, *self.encoder.shapes[n]) for n, v in self._encoder(tensors).items()}

    def _shown(self, tensors: Tensors, batch: Batch) -> Shown:
        """Return a batch's candidates [..., P, 1 + k, d] in their contexts; negatives share their positive's."""
        pairs, rows = batch.pairs, self.vectors(tensors, batch)
        assert pairs is not None
        query = rows_at(rows, pairs.candidates)  # FedCAR Eq. 12
        if pairs.context is None or pairs.there is None:
            return Shown(query, query, query)
        return Shown(rows_at(rows, pairs.context), pairs.there, query)  # FedCAR Eq. 8-9

    def _rated(self, tensors: Tensors, shown: Shown) -> Tensor:
        """Return the scores of candidates, [..., P, K] (FedCAR Eq. 14)."""
        weight = tensors[SCORER[0]].unsqueeze(-2).unsqueeze(-1)  # [..., 1, width, 1]
        own = (shown.query @ weight[..., -self.settings.dim :, :]).squeeze(-1) + tensors[SCORER[1]].unsqueeze(-1)
        if not self.settings.context:
            return own
        share, values = self.encoder.attended(self._encoder(tensors), shown)
        return own + (share * (values @ weight[..., : self.settings.dim, :])).sum(-2)

    def _recommend(self, tensors: Tensors, shown: Shown) -> Tensor:
        scores = self._rated(tensors, shown)
        return (softplus(scores).sum(-1) - scores[..., 0]) / scores.shape[-1]

    def _contrast(self, tensors: Tensors, shown: Shown) -> Tensor:
        """Return how far c is from where it should be, and not (FedCAR Eq. 16-20); 0 where there is no other yet."""
        assert self.negative is not None
        now = self.encoder.context(self._encoder(tensors), shown)
        before = self.encoder.context(self._encoder(tensors, PREVIOUS), shown)  # FedCAR Eq. 16
        other = self.negative.heard(self.encoder, tensors[MESSAGE], shown)  # FedCAR Eq. 17-19
        near, far = ((now - one).square().sum(-1) for one in (before, other))
        return torch.relu(near - far + self.settings.margin).mean(-1) * self._heard(tensors)  # FedCAR Eq. 20

    def _heard(self, tensors: Tensors) -> Tensor:
        """Return 1 for clients that have trained before and had a message, [..., 1]."""
        return tensors[KNOWN] * tensors[MESSAGE].abs().amax(-1, keepdim=True).gt(0)

    def publish(self, tensors: Tensors, batch: Batch) -> Tensor | None:
        if self.negative is None:
            return None
        return self.negative.told(self.encoder, self._own_encoder(tensors), self._shown(tensors, batch))

    def remember(self, tensors: Tensors) -> dict[str, Tensor]:
        if self.negative is None:
            return {}
        own = {PREVIOUS + name: value for name, value in self._own_encoder(tensors).items()}
        return own | {KNOWN: torch.ones_like(tensors[KNOWN])}

    # --- the contract -----------------------------------------------------------------------------------------------

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors["item"])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        if not self.settings.context:
            return batch.own(tensors[SCORER[0]])
        return self.encoder.context(self._encoder(tensors), self._looked(batch, history, vectors)).squeeze(-3)

    def _looked(self, batch: Batch, history: Tensor | None, vectors: Tensor) -> Shown:
        """Return candidates to score in the context of what the client had last."""
        assert history is not None
        assert isinstance(batch.history, Window)
        query = vectors if vectors.ndim == 2 else vectors.unsqueeze(-3)
        return Shown(history.unsqueeze(-3), batch.history.label.unsqueeze(-2), query)

    def explain(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        share, _ = self.encoder.attended(self._encoder(tensors), self._looked(batch, history, vectors))
        return share.transpose(-1, -2).squeeze(-3)  # FedCAR Eq. 13

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        weight = tensors[SCORER[0]].unsqueeze(-1)
        own = (vectors @ weight[..., -self.settings.dim :, :]).squeeze(-1) + tensors[SCORER[1]]
        if not self.settings.context:
            return own
        return own + (user @ weight[..., : self.settings.dim, :]).squeeze(-1)

    @property
    def score_form(self) -> ScoreForm | None:
        return None if self.settings.context else ScoreForm("item", SCORER[0], bias=SCORER[1], loss="bce-of-pairs")

    def is_compiled(self, tensors: Tensors, batch: Batch) -> bool:
        """Say whether gradients on these tensors are compiled: those of the paper's encoder, on the host."""
        e, rows, pairs = self.encoder, tensors["item"], batch.pairs
        if e.heads > 1 or not e.norm.after or e.norm.before or e.projected or self.settings.negative not in COMPILED:
            return False
        if not self.needs_history or pairs is None or pairs.context is None:
            return False
        return rows.ndim == 3 and rows.device.type == "cpu" and rows.dtype == torch.float32

    def gradients(self, tensors: Tensors, batch: Batch, phase: Phase) -> dict[str, Tensor]:
        if not self.is_compiled(tensors, batch):
            return super().gradients(tensors, batch, phase)
        from edgefr.methods.fedcar import compiled_losses as compiled

        def arrays(tensors: Tensors) -> Any:
            return compiled.Tensors(**{name: _array(value) for name, value in tensors.items()})

        rows, pairs = tensors["item"], cast(Any, batch.pairs)
        own = {n: tensors[ENCODER + n].expand(len(rows), *shape) for n, shape in self.encoder.shapes.items()}
        now, out = arrays(own), compiled.Tensors(*(np.zeros(value.shape, np.float32) for value in own.values()))
        shown = [_array(v) for v in (rows, pairs.context, pairs.there, pairs.candidates)]
        found: dict[str, Tensor] = {}
        if phase.name == "recommend":
            made = compiled.recommend(
                now, *shown, _array(pairs.share), *(_array(tensors[name]) for name in SCORER), out
            )
            found = dict(zip(("item", *SCORER), map(torch.from_numpy, made), strict=True))
        else:
            before, other = arrays(self._encoder(tensors, PREVIOUS)), arrays(self.encoder.parted(tensors[MESSAGE]))
            weight = _array(pairs.share * self._heard(tensors))
            compiled.contrast(now, before, other, *shown, weight, np.float32(self.settings.margin), out)
        found |= {ENCODER + name: torch.from_numpy(getattr(out, name)) for name in own}
        return {name: found[name] for name in phase.trains}

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        shown, pairs = self._shown(tensors, batch), batch.pairs
        assert pairs is not None
        each = {"recommend": self._recommend, "contrast": self._contrast}[phase.name](tensors, shown)
        return pairs.mean(each)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def build(settings: FedCARSettings, given: Given) -> FedCAR:
    return FedCAR(settings, given.items, given.local_epochs)
