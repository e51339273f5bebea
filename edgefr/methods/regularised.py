"""Reg is a program whose tensors are pulled towards what they were at the end of the previous block (F3CRec §5.1).

Owns: the term and the tensors it compares with. Does not own: the wrapped program's scores, when a block begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from export.batches import Batch
from export.program import LocalProgram, Phase, Tensors, TensorSpec, Transformer

PREVIOUS = "previous."
KNOWN = PREVIOUS + "known"
"""1 for a client that took part in an earlier block, 0 for a new one, which has no past to be pulled to."""


class Anchored(LocalProgram):
    """`program` with `weight` x the mean squared deviation from the previous block added to its loss.

    Every tensor X has a twin `previous.X` of the same place and kind, which no phase trains. A phase of rounds counts
    the tensors that it trains: of tables the rows of the client's examples (mean over examples and width), of others
    all values. A twin row of zeros pulls nothing, nor does any tensor of a client whose `previous.known` is 0, so zeros
    everywhere change nothing.

    Export the wrapped `program`: only training needs the twins.

    >>> from edgefr.methods.fedmf.program import FedMF
    >>> from edgefr.methods.fedmf.settings import FedMFSettings
    >>> held = Anchored(FedMF(FedMFSettings(dim=4), items=10, local_epochs=1), weight=0.1)
    >>> sorted(held.specs)
    ['item', 'previous.item', 'previous.known', 'previous.user', 'user']
    """

    def __init__(self, program: LocalProgram, weight: float):
        self.program, self.weight = program, weight
        self.name, self.frozen = program.name, program.frozen
        self.pointwise, self.needs_history = program.pointwise, program.needs_history
        self.twins = {PREVIOUS + name: spec for name, spec in program.specs.items()}
        self.twins[KNOWN] = TensorSpec((1,), "private")
        self.specs: Mapping[str, TensorSpec] = {**program.specs, **self.twins}
        self.phases = tuple(
            replace(phase, uses=(*phase.uses, *(PREVIOUS + name for name in phase.trains), KNOWN))
            if phase.when == "round"
            else phase
            for phase in program.phases
        )

    @property
    def constants(self) -> Mapping[str, Tensor]:
        return self.program.constants

    @property
    def transformer(self) -> Transformer | None:
        return self.program.transformer

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        zeros = {name: torch.zeros(spec.shape) for name, spec in self.twins.items() if spec.place == "shared"}
        return self.program.init_shared(seed) | zeros

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        own = {name: spec.shape for name, spec in self.twins.items() if spec.place == "private"}
        zeros = {name: torch.zeros(len(clients), *shape) for name, shape in own.items()}
        return self.program.init_private(seed, clients) | zeros

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return self.program.vectors(tensors, batch)

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return self.program.user(tensors, batch, history, vectors)

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return self.program.score(tensors, batch, vectors, user)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        total = self.program.loss(tensors, batch, phase)
        for name in phase.trains if phase.when == "round" else ():
            pull = self._rows if self.specs[name].kind == "rows" else self._values
            total = total + self.weight * pull(name, tensors, batch)
        return total

    def _rows(self, name: str, tensors: Tensors, batch: Batch) -> Tensor:
        past = batch.rows(tensors[PREVIOUS + name])
        deviation = (batch.rows(tensors[name]) - past).square().mean(-1)
        return batch.mean(deviation * (past != 0).any(-1) * batch.own(tensors[KNOWN]).squeeze(-1))

    def _values(self, name: str, tensors: Tensors, batch: Batch) -> Tensor:
        deviation = (tensors[name] - tensors[PREVIOUS + name]).square().flatten(-len(self.specs[name].shape)).mean(-1)
        return (deviation * tensors[KNOWN].squeeze(-1)).sum()


def anchors(
    shared: Tensors, private: Tensors, known_clients: Tensor, known_rows: Tensors | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return `Anchored`'s own tensors at the start of a block, (shared, private), as copies.

    `shared` and `private` [clients, ...] are the previous block's last model; its twins are ignored. `known_clients`
    bool [clients]: took part earlier. `known_rows` bool [items] by table: existed earlier (a table not named: all).

    >>> table, user = torch.ones(3, 2), torch.ones(2, 2)
    >>> tables, own = anchors({"item": table}, {"user": user}, torch.tensor([True, False]))
    >>> sorted(tables), sorted(own), own["previous.known"].tolist()
    (['previous.item'], ['previous.known', 'previous.user'], [[1.0], [0.0]])
    """
    tables = {PREVIOUS + name: value.clone() for name, value in shared.items() if not name.startswith(PREVIOUS)}
    for name, known in (known_rows or {}).items():
        tables[PREVIOUS + name][~known.to(shared[name].device)] = 0
    own = {PREVIOUS + name: value.clone() for name, value in private.items() if not name.startswith(PREVIOUS)}
    return tables, own | {KNOWN: known_clients.to(torch.float32).unsqueeze(1)}
