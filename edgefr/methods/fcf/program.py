"""FCF is the local program of federated collaborative filtering: a linear system for the user, a gradient for items."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cloud.rules.gram import GRAM, gram
from edge.round_init import Normal
from edge.sampling import Selection
from edgefr.config import random_streams as purposes
from edgefr.methods.fcf.settings import FCFSettings
from edgefr.methods.losses import init_rows
from export.batches import Batch, inner
from export.given import Given
from export.program import LocalProgram, Phase, System, Tensors, TensorSpec

ITEM, USER = "item", "user"
OF_ITEMS = GRAM + ITEM


class FCF(LocalProgram):
    """FCF scores by <x_u, y_i>; x_u [dim] is solved for whenever it is needed, and is not kept.

    A client's loss is Σ_i c_i (p_i - <x, y_i>)² + ridge |x|² over ALL items, with p_i = 1 and c_i = 1 + alpha for its
    own items, else 0 and 1. Other items enter only through G = Σ_i y_i y_i', since Σ_i <x, y_i>² = x'G x. So a client
    reads G, and its gradient is of its own rows and of G.

    >>> program = FCF(FCFSettings(dim=4), items=10)
    >>> [(phase.name, phase.trains) for phase in program.phases]
    [('solution', ('user',)), ('update', ('item', 'gram.item')), ('recommendation', ('user',))]
    """

    name = "fcf"

    def __init__(self, settings: FCFSettings, items: int):
        self.settings = settings
        self.frozen: dict[str, Tensor] = {}
        dim = settings.dim
        self.specs = {
            ITEM: TensorSpec((items, dim), "shared", "rows"),
            OF_ITEMS: TensorSpec((dim, dim), "shared"),
            USER: TensorSpec((dim,), "private", reset="round", first=Normal(purposes.INIT_USER, 0.0)),
        }
        sent, whole = (ITEM, OF_ITEMS), Selection(part="whole")
        solution = Phase(
            "solution", tuple(self.specs), (USER,), 1, "sgd", {USER: 1.0}, draws=purposes.FEDERATED, which=whole
        )
        self.phases = (
            solution,
            replace(solution, name="update", trains=sent, lr=dict.fromkeys(sent, 1.0)),
            replace(solution, name="recommendation", when="final", draws=purposes.RECOMMENDATION),
        )

    @property
    def score_form(self) -> System | None:
        return System(ITEM, OF_ITEMS, USER, self.settings.alpha, self.settings.ridge)

    def init_shared(self, seed: int) -> dict[str, Tensor]:
        table = init_rows(seed, ITEM, self.specs[ITEM].shape, self.settings.init_scale)
        return {ITEM: table, OF_ITEMS: gram(table)}

    def init_private(self, seed: int, clients: Tensor) -> dict[str, Tensor]:
        return {USER: torch.zeros(len(clients), self.settings.dim)}

    def vectors(self, tensors: Tensors, batch: Batch) -> Tensor:
        return batch.rows(tensors[ITEM])

    def user(self, tensors: Tensors, batch: Batch, history: Tensor | None, vectors: Tensor) -> Tensor:
        return batch.own(tensors[USER])

    def score(self, tensors: Tensors, batch: Batch, vectors: Tensor, user: Tensor) -> Tensor:
        return inner(user, vectors)

    def loss(self, tensors: Tensors, batch: Batch, phase: Phase) -> Tensor:
        rows, had = self.vectors(tensors, batch), batch.label  # 1, and 0 for padding
        if USER in phase.trains:  # a step of SGD at rate 1 ends at the solution
            found = self.solution(rows, had, tensors[OF_ITEMS])
            return (tensors[USER] - found).square().sum() / 2
        user = self.user(tensors, batch, None, rows)
        return self.objective(self.score(tensors, batch, rows, user), had, tensors)

    def solution(self, rows: Tensor, had: Tensor, of_items: Tensor) -> Tensor:
        """Solve (G + alpha Σ y y' + ridge I) x = (1 + alpha) Σ y, sums over what the client had: FCF's closed form."""
        own = rows * had.unsqueeze(-1)
        matrix = of_items + self.settings.alpha * torch.matmul(own.transpose(-1, -2), rows)
        return solved(matrix, (1 + self.settings.alpha) * own.sum(-2), self.settings.ridge)

    def objective(self, scores: Tensor, had: Tensor, tensors: Tensors) -> Tensor:
        """Return the loss over the whole catalogue, without what does not change with the items."""
        user = tensors[USER].unsqueeze(-2)
        own = had * ((1 + self.settings.alpha) * (1 - scores).square() - scores.square())
        return own.sum() + (torch.matmul(user, tensors[OF_ITEMS]) * user).sum()


def solved(matrix: Tensor, right: Tensor, ridge: float) -> Tensor:
    """Solve (matrix + ridge I) x = right, [..., d, d] and [..., d], for positive semidefinite matrices by elimination.

    Plain operations only, so that a device's graph can hold it. Every pivot is at least `ridge`, up to rounding.

    >>> solved(torch.tensor([[3.0, 2.0], [2.0, 2.0]]), torch.tensor([8.0, 8.0]), 1.0).tolist()
    [1.0, 2.0]
    """
    rest, reduced = torch.cat([matrix, right.unsqueeze(-1)], -1), []
    for _ in range(right.shape[-1]):
        top = rest[..., :1, 1:] / (rest[..., :1, :1].clamp_min(0.0) + ridge)
        reduced.append(top.squeeze(-2))
        rest = rest[..., 1:, 1:] - rest[..., 1:, :1] * top
    found = reduced.pop()
    while reduced:
        row = reduced.pop()
        found = torch.cat([row[..., -1:] - (row[..., :-1] * found).sum(-1, keepdim=True), found], -1)
    return found


def build(settings: FCFSettings, given: Given) -> FCF:
    return FCF(settings, given.items)
