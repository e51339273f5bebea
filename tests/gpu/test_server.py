"""What a server makes of a cohort on a GPU is what it makes on the host: every entry of its tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloud.aggregate import Accumulator, SealedSum
from cloud.fusion import FUSIONS, KnowledgeSettings
from cloud.optimisers import OPTIMISERS
from cloud.prototypes import KnowledgeBase
from cloud.rule import RULES, AggregationSettings, Answer, Received
from cloud.rules.gram import GRAM
from cloud.similarities import SIMILARITIES
from cloud.uploads import Uploads
from privacy import keyed
from privacy.mechanism import MECHANISMS, Additive
from tests.closeness import assert_all_same, assert_same
from tests.noises import noise_of_sum

CLIENTS, ITEMS, WIDTH, PARTS = 12, 40, 6, 4
HOST = torch.device("cpu")

CHOICES: list[dict[str, Any]] = [
    *({"rule": name} for name in RULES),
    *({"rule": "mean", "optimiser": name} for name in OPTIMISERS),
    *({"rule": "graph", "similarity": name} for name in SIMILARITIES),
    *({"rule": "graph", "neighbours": 3}, {"rule": "krum", "keep": 1}, {"rule": "temporal-mean", "itemwise": False}),
    *({"rule": name, "among": "cohort"} for name in ("median", "trimmed-mean")),
]


def normal(*path: object, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(keyed.generator(0, *path).normal(size=shape)).float()


def changes(number: int, client: int) -> tuple[Tensor, Tensor]:
    """Rows that a client changed in a round, and by how much; everybody changed the first row."""
    rows = keyed.generator(0, "rows", number, client).permutation(np.arange(1, ITEMS))[: 3 + client]
    return torch.from_numpy(np.append(0, rows)), normal("values", number, client, shape=(4 + client, WIDTH))


def uploads(number: int, names: list[str], device: torch.device) -> Uploads:
    """A round's uploads: changes of the table, and whole tensors of these names."""
    found = [changes(number, client) for client in range(CLIENTS)]
    slots = torch.repeat_interleave(torch.arange(CLIENTS), torch.tensor([len(rows) for rows, _ in found]))
    parts = torch.cat([rows for rows, _ in found]), slots, torch.cat([values for _, values in found])
    rows, client, values = (part.to(device) for part in parts)
    shapes = {"layer": (3, 5), GRAM + "item": (WIDTH, WIDTH)}
    dense = {name: normal(name, number, shape=(CLIENTS, *shapes[name])).to(device) for name in names}
    return Uploads(dense, {"item": (rows, client, values)}, CLIENTS)


def begun(device: torch.device, grams: bool) -> dict[str, Tensor]:
    shared = {"item": normal("item", shape=(ITEMS, WIDTH)), "layer": normal("layer", shape=(3, 5))}
    if grams:
        shared[GRAM + "item"] = shared["item"].T @ shared["item"]
    return {name: value.to(device) for name, value in shared.items()}


def answers(choice: dict[str, Any], device: torch.device, rounds: int = 2) -> list[Answer]:
    """What the server of a rule answers, round after round: its optimiser has a past in the second."""
    settings = AggregationSettings.model_validate(choice)
    rule = RULES[settings.rule]
    shared = begun(device, rule.grams)
    previous = {"item": (shared["item"] + 0.5, (torch.arange(ITEMS) % 3 > 0).to(device))} if rule.looks_back else {}
    optimiser, found = rule.optimiser(settings), []
    for number in range(rounds):
        sent = uploads(number, [name for name in shared if name != "item"], device)
        total = SealedSum({name: tuple(value.shape) for name, value in shared.items()}, device)
        rows, _, values = sent.rows["item"]
        for part in range(PARTS):
            some = slice(part, None, PARTS)  # a row more than once, as in several shards
            dense = {name: value[some].double().sum(0) for name, value in sent.dense.items()}
            total.add(dense, {"item": (rows[some], values[some].double())}, CLIENTS / PARTS, CLIENTS // PARTS)
            total.end_block()
        opened = total.open((("layer", np.full((3, 5), 0.25)),))
        assert opened is not None
        each = None if rule.is_sum else sent
        found.append(rule.answer(settings, Received(shared, opened, each, ["item"], previous, optimiser)))
        shared = found[-1].after
    return found


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: " ".join(map(str, choice.values())))
def test_every_rule_answers_on_a_gpu_as_on_the_host(choice: dict[str, Any], gpu: torch.device) -> None:
    found, expected = answers(choice, gpu), answers(choice, HOST)
    for here, there in zip(found, expected, strict=True):
        assert all(value.device.type == gpu.type for value in here.after.values())
        assert_all_same(here.after, there.after, size=3.0)
        assert (here.mix is None) == (there.mix is None)
        if here.mix is not None and there.mix is not None:
            assert_same(here.mix, there.mix)


@pytest.mark.parametrize("fusion", list(FUSIONS))
@pytest.mark.parametrize("window", [None, 1])
def test_every_fusion_answers_on_a_gpu_as_on_the_host(fusion: str, window: int | None, gpu: torch.device) -> None:
    """Prototypes of two rounds, some alike, one of no direction, one that is no number."""
    told = []
    for device in (gpu, HOST):
        base = KnowledgeBase(WIDTH, KnowledgeSettings(fusion=fusion, top_k=4, window=window), device)
        for number in (1, 2):
            sent = normal("prototypes", number, shape=(CLIENTS, WIDTH))
            sent[1], sent[2], sent[3] = sent[0], 0.0, torch.nan
            base.add(number, np.arange(CLIENTS), sent.to(device))
        told.append(base.answer(np.arange(CLIENTS), normal("queries", shape=(CLIENTS, WIDTH)).to(device)))
        assert told[-1].device.type == device.type
    assert bool(told[1].any())
    assert_same(*told, size=3.0)


@pytest.mark.parametrize("mechanism", [name for name, entry in MECHANISMS.items() if isinstance(entry, Additive)])
def test_noise_joins_a_sum_on_a_gpu_as_on_the_host(mechanism: str, gpu: torch.device) -> None:
    drawn = noise_of_sum(mechanism, 2.0, 3, (ITEMS, WIDTH), step=2.0**-10 if "discrete" in mechanism else None)
    sums = []
    for device in (gpu, HOST):
        total = Accumulator({"item": torch.zeros(ITEMS, WIDTH)}, device)
        total.add_rows("item", torch.tensor([3, 3, 1]).to(device), normal("sum", shape=(3, WIDTH)).to(device))
        total.noise("item", drawn)
        sums.append(total.sums["item"])
    assert_same(*sums)
