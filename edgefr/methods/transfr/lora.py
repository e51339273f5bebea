"""TransFR has the language model on the device: LoRA inside the encoder's attention instead of frozen text vectors.

Low-rank changes of the query and value projections (Hu et al., 2022) travel with the adapter; the encoder's weights
stay frozen. Scoring is TransFR's own: adapter, head and user vector on top of the text's vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from edgefr import purposes
from edgefr.methods.transfr.bert import Bert, Reader
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import Batch, One
from export.program import Tensors, TensorSpec, Transformer
from privacy import keyed

CONSTANT = "encoder."
"""What the names of the encoder's weights begin with, among a program's tensors."""

BLOCK = 128
"""Titles encoded at once where no gradient is kept."""


class LoRATransFR(TransFR):
    """This TransFR computes q_i = head_u(adapter(encoder_lora(title_i))), score = <p_u, q_i>; LoRA and adapter travel.

    `tokens` [items, L] are read with every example. `text` [items, f] are the plain encoder's vectors, from which
    `adapter_init: pca` starts (empty where a program is only scored).

    >>> program = LoRATransFR(TransFRSettings(client="lora"), reader, text, local_epochs=2)  # doctest: +SKIP
    >>> program.specs["lora.0.query.a"].shape  # doctest: +SKIP
    (312, 8)
    """

    def __init__(
        self,
        settings: TransFRSettings,
        reader: Reader,
        text: Tensor | None,
        local_epochs: int,
        source: Tensor | None = None,
    ):
        bert = reader.bert
        super().__init__(settings, torch.zeros(0, bert.hidden) if text is None else text, local_epochs, source)
        self.bert, self.frozen = bert, {"tokens": reader.tokens}
        self.scale = settings.lora_alpha / settings.lora_rank
        shapes = lora_shapes(bert.layers, bert.hidden, settings.lora_rank, settings.lora_targets)
        self.lora = tuple(shapes)
        self.specs = {name: TensorSpec(shape, "shared") for name, shape in shapes.items()} | self.specs
        rates = dict.fromkeys(self.lora, settings.lora_lr)
        self.phases = tuple(
            replace(
                phase,
                uses=self.lora + phase.uses,
                trains=self.lora + phase.trains if phase.when == "round" else phase.trains,
                lr={**rates, **phase.lr},
            )
            for phase in self.phases
        )
        self._catalogue: tuple[dict[str, Tensor], Tensor] | None = None

    @property
    def transformer(self) -> Transformer:
        """Return what the language model costs per example."""
        tokens = self.frozen["tokens"].shape[1]
        b = self.bert
        return Transformer(b.layers, b.hidden, b.heads, b.feed_forward, tokens, b.parameters, self.dim, self.lora)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        return init_lora(seed, {name: self.specs[name].shape for name in self.lora}) | super().init_shared(seed)

    def read(self, tensors: Tensors, batch: Batch) -> Tensor:
        lora = {name: tensors[name] for name in self.lora}
        same = not any(matrix.requires_grad or matrix.ndim > 2 for matrix in lora.values())
        if same and isinstance(batch, One):  # one encoder for all of the clients: each title is read once
            return batch.frozen(self._all(lora))
        bert = self._encoder()
        if self.constants.keys() <= tensors.keys():  # a graph takes the frozen weights as inputs
            bert = replace(bert, weights={name: tensors[CONSTANT + name] for name in bert.weights})
        return bert(batch.frozen(self.frozen["tokens"]), lora, self.scale)

    @property
    def constants(self) -> dict[str, Tensor]:
        """Return frozen tensors that belong to no item:

        a graph is traced with them among `tensors`, and then holds them.
        """
        return {CONSTANT + name: weight for name, weight in self.bert.weights.items()}

    def _encoder(self) -> Bert:
        self.bert = self.bert.on(self.frozen["tokens"].device)
        return self.bert

    def _all(self, lora: Mapping[str, Tensor]) -> Tensor:
        """Return the vectors of the whole catalogue [items, f]; they are kept until the matrices' values change."""
        if self._catalogue is None or not all(torch.equal(self._catalogue[0][n], lora[n]) for n in self.lora):
            with torch.inference_mode(False), torch.no_grad():
                mine = {name: matrix.detach().clone() for name, matrix in lora.items()}
                blocks = [self._encoder()(part, mine, self.scale) for part in self.frozen["tokens"].split(BLOCK)]
                self._catalogue = mine, torch.cat(blocks)
        return self._catalogue[1]


def lora_shapes(layers: int, hidden: int, rank: int, targets: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the matrices: `a` [in, r] and `b` [r, out] of each layer's `targets`, in order.

    >>> lora_shapes(1, 312, 8, ["value"])
    {'lora.0.value.a': (312, 8), 'lora.0.value.b': (8, 312)}
    """
    return {
        f"lora.{k}.{module}.{half}": shape
        for k in range(layers)
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
