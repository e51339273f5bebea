"""FedRAP and GPFedRec against plain torch modules: scores, losses, a round of training; what they cannot do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge.sampling import Sampler
from edgefr.engine.executors import debug, inline
from edgefr.engine.tables import PrivateRows
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.fedrap.program import FedRAP
from edgefr.methods.fedrap.settings import FedRAPSettings
from edgefr.methods.gpfedrec.program import GPFedRec
from edgefr.methods.gpfedrec.settings import GPFedRecSettings
from edgefr.simulation.bundle_checks import check_shippable
from export.batches import One
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract.programs import ITEMS, work

DIM = 6


def fedrap(**values: object) -> FedRAP:
    return FedRAP(
        FedRAPSettings.model_validate({"dim": DIM, "lr": 0.2, "item_lr": 3.0, "own_lr": 3.0} | values), ITEMS, 1
    )


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
    assert_same(found, plain(ITEMS_OF_BATCH))
    grown = math.tanh(number / 10)
    expected = plain.loss(ITEMS_OF_BATCH, LABEL, 0.3 * grown, 0.05 * grown)
    phase = replace(program.phases[0], number=number)
    assert_same(program.loss(tensors, batch, phase), expected)


@pytest.mark.parametrize("executor", [debug.run, inline.run])
def test_a_round_is_a_step_of_torch_optim_in_the_weights_of_that_round(executor) -> None:
    program = fedrap(apart=0.3, sparse=0.05, curriculum=4.0)
    who = np.array([0])
    table = PrivateRows(ITEMS, DIM)
    table.write(np.zeros(ITEMS, np.int64), np.arange(ITEMS), random_rows())
    todo = replace(work(program, batch_size=1000), tables={"personal": table})
    tensors, plain = start(program)
    found = executor(todo, program.init_shared(3), program.init_private(3, torch.from_numpy(who)), who)
    examples = cast(Sampler, todo.sampler).epoch(who, "federated", todo.round, 0)
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
    assert_same(item.values, change[item.rows], size=1.0)
    assert_same(own.values, plain.own.weight[own.rows])
    assert_same(found.private["scorer.weight"], plain.scorer.weight)


def gpfedrec(**values: object) -> GPFedRec:
    return GPFedRec(GPFedRecSettings.model_validate({"dim": DIM, "lr": 0.2, "item_lr": 3.0} | values), ITEMS, 1)


def held(pull: float) -> tuple[GPFedRec, dict[str, Tensor], nn.Linear]:
    """One client's tensors, with a table the server made for it, and its scorer as a module."""
    program = gpfedrec(pull=pull)
    scorer = {name: value[0] for name, value in program.init_private(3, torch.arange(1)).items()}
    plain = nn.Linear(DIM, 1)
    with torch.no_grad():
        plain.weight.copy_(scorer["scorer.weight"])
        plain.bias.copy_(scorer["scorer.bias"])
    return program, {"item": program.init_shared(3)["item"], "received.item": random_rows(), **scorer}, plain


def test_gpfedrec_pulls_the_rows_of_the_batch_to_those_made_for_the_client() -> None:
    program, tensors, plain = held(pull=4.0)
    item, made = tensors["item"], tensors["received.item"]
    batch = One(ITEMS_OF_BATCH, ITEMS_OF_BATCH, LABEL, torch.full((5,), 0.2))
    bce = nn.functional.binary_cross_entropy_with_logits(plain(item[ITEMS_OF_BATCH]).squeeze(1), LABEL)
    few = ITEMS_OF_BATCH.unique()  # item 0 is there twice, and counts once
    table = item.clone()
    table[[n for n in range(ITEMS) if n not in few]] = made[[n for n in range(ITEMS) if n not in few]]
    expected = bce + 4.0 * nn.functional.mse_loss(table, made)  # over the whole table, as published
    assert_same(program.loss(tensors, batch, program.phases[0]), expected)


@pytest.mark.parametrize("recommends", ["graph", "global"])
def test_gpfedrec_recommends_from_either_table(recommends: str) -> None:
    _, tensors, plain = held(pull=1.0)
    program = gpfedrec(recommends=recommends)
    batch = One(ITEMS_OF_BATCH, ITEMS_OF_BATCH, LABEL, LABEL)
    vectors = program.vectors(tensors, batch)
    found = program.score(tensors, batch, vectors, program.user(tensors, batch, None, vectors))
    table = tensors["received.item" if recommends == "graph" else "item"]
    assert_same(found, plain(table[ITEMS_OF_BATCH]).squeeze(1))


@pytest.mark.parametrize("name", ["fedrap", "gpfedrec"])
def test_what_own_rows_cannot_do_is_said_in_a_line(name: str) -> None:
    with pytest.raises(InputError, match=f"protocol: blocks do not carry .* {name}"):
        load_experiment(overrides=[f"method={name}", "data=ml-100k", "protocol.name=blocks"])
    with pytest.raises(InputError, match="leave bundles out"):
        check_shippable(load_experiment(overrides=[f"method={name}"]))
    check_shippable(load_experiment(overrides=["method=pfedrec"]))


@pytest.mark.parametrize("overrides", [["method=gpfedrec", "aggregation.rule=mean"], ["aggregation.rule=graph"]])
def test_the_graph_is_gpfedrecs_and_gpfedrec_has_no_other_rule(overrides: list[str]) -> None:
    with pytest.raises(InputError, match="an answer for each client are gpfedrec's"):
        load_experiment(overrides=overrides)
