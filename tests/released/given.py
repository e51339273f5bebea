"""A federation whose clients learn from given draws in a given order, from given first values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import EVERYTHING, Examples, Sampler, Selection
from edgefr.engine.federation import Federation
from edgefr.engine.tables import OwnTables, first_tables
from edgefr.engine.work import Executor
from edgefr.methods.testing.cases import widened
from export.program import LocalProgram
from privacy.plan import plan
from privacy.settings import PrivacySettings

USERS, ITEMS, DIM, BATCH, ROUNDS, KEPT = 9, 40, 8, 16, 3, (1, 3)
"""Of the runs of PFedRec's and GPFedRec's public codes; tensors are kept after some of the rounds."""

Arrays = Mapping[str, np.ndarray]


class Given(Sampler):
    """These are the draws of the public code's run: `items` and `label` [rounds, N], client after client, `counts`."""

    def __init__(self, given: Arrays, catalogue: int, batch_size: int):
        self.given, self.ends = given, np.cumsum(given["counts"])
        label = given["label"][0]
        own = [given["items"][0][part][label[part] > 0].tolist() for part in self._parts()]
        negatives = int(given["counts"][0] // len(own[0])) - 1
        super().__init__(Ragged.from_lists(own), np.arange(catalogue), catalogue, negatives, batch_size, seed=0)

    def _parts(self) -> list[slice]:
        return [slice(end - n, end) for end, n in zip(self.ends, self.given["counts"], strict=True)]

    def epoch(self, clients: np.ndarray, purpose: str, *path: int, which: Selection = EVERYTHING) -> Examples:
        number, epoch = path
        assert epoch == 0
        parts = [self._parts()[client] for client in clients]
        items, label = (
            np.concatenate([self.given[name][number - 1][part] for part in parts]) for name in ("items", "label")
        )
        return Examples(items, label, self.given["counts"][clients])


def federation(
    program: LocalProgram,
    first: tuple[dict[str, Tensor], dict[str, Tensor]],
    executor: Executor,
    wide: bool,
    rule: str = "mean",
    **settings: object,
) -> Federation:
    """Return a federation of everybody, in float64 if `wide`, from first shared tensors and private ones [C, ...]."""
    kind = torch.float64 if wide else torch.float32
    shared, private = ({name: value.to(kind) for name, value in tensors.items()} for tensors in first)
    clients = len(next(iter(private.values())))
    made = Federation(
        widened(program) if wide else program,
        clients=clients,
        seed=0,
        shard_size=4,
        aggregation=AggregationSettings.model_validate({"rule": rule, **settings}),
        plan=plan(PrivacySettings(), 1, clients, clients, "uniform", 1),
        device=torch.device("cpu"),
        executor=executor,
        keeps=True,
    )
    made.shared, made.private, made.tables = shared, private, first_tables(program, shared)
    for name, table in made.own.items():
        assert isinstance(table, OwnTables)
        table.table = shared[name]
    return made


def whole(table: object, clients: int, items: int) -> np.ndarray:
    """Return every client's own table, [clients, items, width]."""
    who, what = np.repeat(np.arange(clients), items), np.tile(np.arange(items), clients)
    return np.asarray(table.rows(who, what).view(clients, items, -1))  # type: ignore[attr-defined]


def furthest(golden: Arrays, found: Mapping[int, Arrays], kind: str) -> float:
    """Return the largest difference to the public code's numbers, relative to the largest of each array above 1.

    `kind`: what their names begin with; `found`: by round.
    """
    worst = 0.0
    for number, arrays in found.items():
        for name, value in arrays.items():
            expected = golden[f"{kind}.{number}.{name}"]
            assert value.shape == expected.shape
            worst = max(worst, float(np.abs(value - expected).max() / max(1.0, np.abs(expected).max())))
    return worst


def played(made: Federation, golden: Arrays, seen: Callable[[Federation], Arrays]) -> dict[int, Arrays]:
    """Return what is seen of a federation after each of the rounds that were kept, on the public code's draws."""
    sampler, out = Given(golden, ITEMS, BATCH), {}
    for number in range(1, ROUNDS + 1):
        made.round(number, np.arange(USERS), sampler, sampler.train)
        if number in KEPT:
            out[number] = seen(made)
    return out
