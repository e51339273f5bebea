"""FedRAP against a plain torch module: scores, the growing weights of its loss, a round of training."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgefr.engine import debug, inline
from edgefr.engine.tables import PrivateRows
from edgefr.methods import METHODS
from edgefr.methods.fedrap.program import FedRAP
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.program import Flat, One, TensorSpec
from tests.contract.programs import ITEMS, work

DIM = 6


def fedrap(**values: object) -> FedRAP:
    return FedRAP(FedRAPSettings.model_validate({"dim": DIM, "lr": 0.2, "item_lr": 3.0} | values), ITEMS, 1)


class Plain(nn.Module):
    """One client: two embeddings that are added up, and a linear layer."""

    def __init__(self, shared: Tensor, own: Tensor, scorer: dict[str, Tensor]):
        super().__init__()
        self.shared = nn.Embedding.from_pretrained(shared.clone(), freeze=False)
        self.own = nn.Embedding.from_pretrained(own.clone(), freeze=False)
        self.scorer = nn.Linear(DIM, 1)
        with torch.no_grad():
            self.scorer.weight.copy_(scorer["scorer.weight"])
            self.scorer.bias.copy_(scorer["scorer.bias"])

    def forward(self, items: Tensor) -> Tensor:
        return self.scorer(self.shared(items) + self.own(items)).squeeze(1)

    def loss(self, items: Tensor, label: Tensor, apart: float, sparse: float) -> Tensor:
        bce = nn.functional.binary_cross_entropy_with_logits(self(items), label)
        distance = nn.functional.mse_loss(self.own(items), self.shared(items))
        return bce - apart * distance + sparse * self.shared(items).abs().mean()


def random_rows(seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((ITEMS, DIM)).astype(np.float32))


def start(program: FedRAP) -> tuple[dict[str, Tensor], Plain]:
    """One client's tensors, with rows of its own for every item, and the same as a module."""
    scorer = {name: value[0] for name, value in program.init_private(3, torch.arange(1)).items()}
    shared, own = program.init_shared(3)["item"], random_rows()
    return {"item": shared, "personal": own, **scorer}, Plain(shared, own, scorer)


ITEMS_OF_BATCH, LABEL = torch.tensor([5, 0, 33, 7, 0]), torch.tensor([1.0, 0, 0, 1, 0])


@pytest.mark.parametrize("number", [0, 1, 7, 200])
def test_scores_and_loss_are_those_of_a_plain_module_and_its_weights_grow(number: int) -> None:
    program = fedrap(apart=0.3, sparse=0.05, curriculum=10.0)
    tensors, plain = start(program)
    batch = One(ITEMS_OF_BATCH, ITEMS_OF_BATCH, LABEL, torch.full((5,), 0.2))
    vectors = program.vectors(tensors, batch)
    found = program.score(tensors, batch, vectors, program.user(tensors, batch, None, vectors))
    torch.testing.assert_close(found, plain(ITEMS_OF_BATCH), atol=1e-6, rtol=1e-5)
    grown = math.tanh(number / 10)
    expected = plain.loss(ITEMS_OF_BATCH, LABEL, 0.3 * grown, 0.05 * grown)
    phase = replace(program.phases[0], number=number)
    torch.testing.assert_close(program.loss(tensors, batch, phase), expected, atol=1e-6, rtol=1e-5)


def test_without_a_curriculum_the_weights_are_whole_from_the_first_round() -> None:
    assert [fedrap(curriculum=None).grown(n) for n in (0, 1, 50)] == [1.0, 1.0, 1.0]
    assert fedrap(curriculum=5.0).grown(5) == pytest.approx(0.76159416)


@pytest.mark.parametrize("executor", [debug.run, inline.run])
def test_a_round_is_a_step_of_torch_optim_in_the_weights_of_that_round(executor) -> None:
    program = fedrap(apart=0.3, sparse=0.05, curriculum=4.0)
    who = np.array([0])
    table = PrivateRows(ITEMS, DIM)
    table.write(np.zeros(ITEMS, np.int64), np.arange(ITEMS), random_rows())
    todo = replace(work(program, batch_size=1000), tables={"personal": table})
    tensors, plain = start(program)
    found = executor(todo, program.init_shared(3), program.init_private(3, torch.from_numpy(who)), who)
    examples = todo.sampler.epoch(who, "federated", todo.round, 0)
    items, label = torch.from_numpy(examples.items).long(), torch.from_numpy(examples.label)
    grown = math.tanh(todo.round / 4)
    optimiser = torch.optim.SGD(
        [
            {"params": plain.scorer.parameters(), "lr": 0.2},
            {"params": [plain.shared.weight, plain.own.weight], "lr": 3.0},
        ]
    )
    plain.loss(items, label, 0.3 * grown, 0.05 * grown).backward()
    optimiser.step()
    item, own = found.rows["item"], found.tables["personal"]
    touched = items.unique()
    assert sorted(own.rows.tolist()) == touched.tolist()
    change = (plain.shared.weight - tensors["item"]).detach()
    torch.testing.assert_close(item.values, change[item.rows], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(own.values, plain.own.weight.detach()[own.rows], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.private["scorer.weight"], plain.scorer.weight.detach(), atol=1e-5, rtol=1e-4)


def test_the_items_of_a_batch_count_once_in_every_layout() -> None:
    weight = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0])
    items, values = torch.tensor([5, 0, 5, 7, 9]), torch.tensor([1.0, 10.0, 1.0, 100.0, 1000.0])
    assert One(items, items, weight, weight).over_items(values) == 111.0
    two = torch.stack([items, torch.tensor([3, 3, 3, 3, 3])])
    padded = One(two, two, two, weight.expand(2, 5))
    assert padded.over_items(torch.stack([values, torch.full((5,), 2.0)])) == 113.0
    flat = Flat(items[[0, 1, 3]], items[[0, 1, 3]], weight[:3], torch.tensor([0.5, 0.25, 0.25]))
    assert flat.over_items(values[[0, 1, 3]]) == 111.0


def test_the_table_knows_who_has_rows_of_its_own() -> None:
    for row in METHODS.values():
        if row.name in ("fedrap", "fedmf", "pfedrec"):
            made = row.build(row.settings(), ITEMS, None, 1)
            own = [n for n, spec in made.specs.items() if spec.place != "shared" and spec.kind == "rows"]
            assert row.own_rows == bool(own)
    assert fedrap().specs["personal"] == TensorSpec((ITEMS, DIM), "private", "rows")
    assert fedrap(item_lr=None).phases[0].lr["personal"] == pytest.approx(0.2 * ITEMS * 170)
