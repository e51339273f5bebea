"""TransFR has the language model on the device: LoRA inside the encoder's attention instead of frozen text vectors.

Low-rank changes of the query and value projections (Hu et al., 2022) travel with the adapter; the encoder's weights
stay frozen. Scoring is TransFR's own: adapter, head and user vector on top of the text's vector. Nothing below the
lowest layer that has matrices ever changes, so what that layer reads of a title is made once, and no step makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from edgefr.config import random_streams as purposes
from edgefr.methods.transfr.bert import Bert, TitleReader
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import Batch, One
from export.given import Given
from export.program import Tensors, TensorSpec, Transformer
from privacy import keyed

CONSTANT = "encoder."
"""What the names of the encoder's weights begin with, among a program's tensors."""

BLOCK = 128
"""Titles encoded at once where no gradient is kept."""

STATES = "states"
"""The table of what the lowest layer with matrices reads, [items, L x hidden]."""

KEPT = 2**29
"""Bytes of that table up to which a simulation keeps it whole; a larger catalogue is read anew in every step."""


class LoRATransFR(TransFR):
    """This is TransFR with q_i = head_u(adapter(encoder_lora(title_i))), score = <p_u, q_i>.

    `tokens` [items, L] are read with every example. `text` [items, f] are the plain encoder's vectors for
    `adapter_init: pca` (empty where a program is only scored).

    >>> program = LoRATransFR(TransFRSettings(client="lora"), reader, text, local_epochs=2)  # doctest: +SKIP
    >>> program.specs["lora.3.query.a"].shape  # doctest: +SKIP
    (312, 8)
    """

    def __init__(
        self,
        settings: TransFRSettings,
        reader: TitleReader,
        text: Tensor | None,
        local_epochs: int,
        source: Tensor | None = None,
    ):
        bert = reader.bert
        super().__init__(settings, torch.zeros(0, bert.hidden) if text is None else text, local_epochs, source)
        self.bert, self.frozen = bert, {"tokens": reader.tokens}
        self.scale = settings.lora_alpha / settings.lora_rank
        self.lowest = max(bert.layers - settings.lora_layers, 0)
        shapes = lora_shapes(range(self.lowest, bert.layers), bert.hidden, settings.lora_rank, settings.lora_targets)
        self.lora = tuple(shapes)
        self.specs = {name: TensorSpec(shape, "shared") for name, shape in shapes.items()} | self.specs
        self.phases = tuple(
            replace(
                phase,
                uses=self.lora + phase.uses,
                trains=self.lora + phase.trains if phase.when == "round" else phase.trains,
                lr={**dict.fromkeys(self.lora, settings.lora_lr), **phase.lr},
            )
            for phase in self.phases
        )
        wide = reader.tokens.shape[1] * bert.hidden
        self.prepared: dict[str, Tensor] = {STATES: torch.empty(0, wide)} if self.lowest else {}
        self._states: Tensor | None = None
        self._catalogue: tuple[dict[str, Tensor], Tensor] | None = None

    @classmethod
    def build(cls, settings: TransFRSettings, given: Given) -> LoRATransFR:
        assert given.reader is not None
        return cls(settings, given.reader(), given.text, given.local_epochs, given.source)

    @property
    def transformer(self) -> Transformer:
        b, tokens = self.bert, self.frozen["tokens"].shape[1]
        size = (b.hidden, b.heads, b.feed_forward, tokens, b.parameters, self.dim)
        return Transformer(b.layers - self.lowest, *size, self.lora, below=self.lowest)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return init_lora(seed, {name: self.specs[name].shape for name in self.lora}) | super().init_shared(seed)

    def read(self, tensors: Tensors, batch: Batch) -> Tensor:
        lora = {name: tensors[name] for name in self.lora}
        same = not any(matrix.requires_grad or matrix.ndim > 2 for matrix in lora.values())
        if same and isinstance(batch, One):  # one encoder for all of the clients: each title is read once
            return batch.frozen(self._all(lora))
        tokens, bert = batch.frozen(self.frozen["tokens"]), self._weights(tensors)
        return bert.above(self.lowest, self._below(bert, batch, tokens), tokens, lora, self.scale)

    def prepare(self, name: str, tensors: Tensors, batch: Batch) -> Tensor:
        tokens = batch.frozen(self.frozen["tokens"])
        return self._weights(tensors).below(self.lowest, tokens).flatten(-2)

    def _weights(self, tensors: Tensors) -> Bert:
        bert = self._encoder()
        if not self.constants.keys() <= tensors.keys():
            return bert
        return replace(bert, weights={name: tensors[CONSTANT + name] for name in bert.weights})

    def _below(self, bert: Bert, batch: Batch, tokens: Tensor) -> Tensor:
        """Return what the lowest layer with matrices reads, [..., n, L, hidden]: made before, or else here."""
        made = batch.beside(self.prepared[STATES]) if self.prepared else None
        if made is None and isinstance(batch, One):
            whole = self._read_before()
            made = None if whole is None else batch.frozen(whole)
        return bert.below(self.lowest, tokens) if made is None else made.unflatten(-1, (-1, bert.hidden))

    def _read_before(self) -> Tensor | None:
        """Return that of the whole catalogue [items, L x hidden]; None where there is nothing to save, or too much."""
        tokens = self.frozen["tokens"]
        if not self.prepared or 4 * len(tokens) * self.prepared[STATES].shape[1] > KEPT:
            return None
        if self._states is None or self._states.device != tokens.device:
            with torch.inference_mode(False), torch.no_grad():
                bert = self._encoder()
                self._states = torch.cat([bert.below(self.lowest, some).flatten(-2) for some in tokens.split(BLOCK)])
        return self._states

    @property
    def constants(self) -> dict[str, Tensor]:
        return {CONSTANT + name: weight for name, weight in self.bert.weights.items()}

    def _encoder(self) -> Bert:
        self.bert = self.bert.on(self.frozen["tokens"].device)
        return self.bert

    def _all(self, lora: Mapping[str, Tensor]) -> Tensor:
        """Return the vectors of the whole catalogue [items, f]; they are kept until the matrices' values change."""
        if self._catalogue is None or not all(_equal(self._catalogue[0][n], lora[n]) for n in self.lora):
            with torch.inference_mode(False), torch.no_grad():
                mine = {name: matrix.detach().clone() for name, matrix in lora.items()}
                bert, whole, vectors = self._encoder(), self._read_before(), []
                for at in range(0, len(self.frozen["tokens"]), BLOCK):
                    some = self.frozen["tokens"][at : at + BLOCK]
                    if whole is None:
                        states = bert.below(self.lowest, some)
                    else:
                        states = whole[at : at + BLOCK].unflatten(-1, (-1, bert.hidden))
                    vectors.append(bert.above(self.lowest, states, some, mine, self.scale))
                self._catalogue = mine, torch.cat(vectors)
        return self._catalogue[1]


def _equal(kept: Tensor, now: Tensor) -> bool:
    return kept.device == now.device and torch.equal(kept, now)


def lora_shapes(layers: range, hidden: int, rank: int, targets: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the matrices `a` [in, r] and `b` [r, out] of each layer's `targets`, in order."""
    return {
        f"lora.{k}.{module}.{half}": shape
        for k in layers
        for module in targets
        for half, shape in (("a", (hidden, rank)), ("b", (rank, hidden)))
    }


def init_lora(seed: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """A uniform within 1/sqrt(in), as peft starts it; B zero, so the first encoder is the plain one."""
    out: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        values = np.zeros(shape, np.float32)
        if name.endswith(".a"):
            draws = keyed.generator(seed, purposes.init(name)).random(shape, dtype=np.float32)
            values = (2 * draws - 1) * np.float32(shape[0] ** -0.5)
        out[name] = torch.from_numpy(values)
    return out
