"""Losses that compare a positive with its negatives: their values, who asks for them, and where they are refused."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch

from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.methods.objectives import OBJECTIVES, ObjectiveSettings
from export.batches import One, Pairs
from export.given import Given
from privacy.errors import InputError

COMPARING = [name for name, objective in OBJECTIVES.items() if objective.compared is not None]
TAKING = {
    name: get_args(row.settings.model_fields["loss"].annotation) or tuple(OBJECTIVES)
    for name, row in METHODS.items()
    if issubclass(row.settings, ObjectiveSettings)
}
"""The losses that a method takes: all, or those that it lists itself."""


def batch(history: One | None = None) -> One:
    """Two positives (items 0 and 1), each with two negatives: 2 and 3, and 3 twice."""
    items = torch.tensor([0, 1, 2, 3])
    pairs = Pairs(torch.tensor([0, 1]), torch.tensor([[2, 3], [3, 3]]), torch.tensor([0.5, 0.5]))
    label, weight = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 1.0, 3.0]) / 6
    return One(items, items, label, weight, history=history, training=history is not None, pairs=pairs)


def fedmf(**settings: object) -> tuple[torch.Tensor, dict[str, torch.Tensor], object]:
    row = METHODS["fedmf"]
    program = row.program(row.settings.model_validate({"dim": 1, **settings}), Given(4, 1))
    tensors = {"item": torch.tensor([[2.0], [1.0], [0.5], [-1.0]]), "user": torch.tensor([1.0])}
    return program.loss(tensors, batch(), program.phases[0]), tensors, program


def test_bpr_is_how_likely_a_positive_is_above_each_negative() -> None:
    found, _, _ = fedmf(loss="bpr")
    soft = lambda x: math.log1p(math.exp(x))  # noqa: E731 - the only formula of this test
    first = (soft(0.5 - 2.0) + soft(-1.0 - 2.0)) / 2
    second = soft(-1.0 - 1.0)
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_softmax_is_over_a_positive_and_its_own_negatives_at_a_temperature() -> None:
    found, _, _ = fedmf(loss="softmax", temperature=0.5)
    first = -4.0 + math.log(math.exp(4.0) + math.exp(1.0) + math.exp(-2.0))
    second = -2.0 + math.log(math.exp(2.0) + 2 * math.exp(-2.0))
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_negatives_may_count_for_more_items_than_they_are() -> None:
    """Two negatives that count for three items each: exp of the temperature's scores, times three."""
    found, _, _ = fedmf(loss="softmax", temperature=0.5, negative_weight=3.0)
    first = -4.0 + math.log(math.exp(4.0) + 3 * math.exp(1.0) + 3 * math.exp(-2.0))
    second = -2.0 + math.log(math.exp(2.0) + 6 * math.exp(-2.0))
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_a_scale_and_an_offset_stand_between_scores_and_labels() -> None:
    found, tensors, _ = fedmf(loss="bce")
    row = METHODS["fedmf"]
    scaled = row.program(row.settings.model_validate({"dim": 1, "loss": "bce-scaled"}), Given(4, 1))
    own = {"loss.log_scale": torch.zeros(1), "loss.offset": torch.zeros(1)}
    assert scaled.init_shared(0).keys() == {"item", *own}
    assert torch.equal(scaled.loss({**tensors, **own}, batch(), scaled.phases[0]), found), "as bce at first"
    own = {"loss.log_scale": torch.tensor([math.log(2.0)]), "loss.offset": torch.tensor([-1.0])}
    soft = [math.log1p(math.exp(x)) for x in (-(4.0 - 1), -(2.0 - 1), 1.0 - 1, -2.0 - 1)]
    expected = (soft[0] + soft[1] + soft[2] + 3 * soft[3]) / 6
    assert scaled.loss({**tensors, **own}, batch(), scaled.phases[0]).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", [name for name, losses in TAKING.items() if "bce-scaled" in losses])
def test_what_a_loss_learns_travels_and_rounds_alone_train_it(name: str) -> None:
    row, text = METHODS[name], torch.ones(8, 16)
    own = {"loss": "bce-scaled", "loss_lr": 0.3} | ({"adapter_init": "random"} if row.needs_text else {})
    program, learns = row.program(row.settings.model_validate(own), Given(8, 1, text)), OBJECTIVES["bce-scaled"].learns
    assert all(program.specs[tensor].place == "shared" for tensor in learns)
    assert all(set(learns) <= set(phase.uses) for phase in program.phases)
    [trained] = [phase for phase in program.phases if set(learns) & set(phase.trains)]
    assert trained.when == "round"
    assert {trained.lr[tensor] for tensor in learns} == {0.3}


@pytest.mark.parametrize("loss", COMPARING)
def test_a_mean_user_does_not_vouch_for_the_positive_that_is_asked_for(loss: str) -> None:
    """p_u of a pair is the mean over what the client had without the positive, for the positive and its negatives."""
    row = METHODS["transfr"]
    own = {"adapter": [3], "head": [3], "adapter_init": "random", "user_encoder": "mean", "loss": loss}
    text = torch.from_numpy(np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32))
    program = row.program(row.settings.model_validate(own), Given(6, 1, text))
    tensors = program.init_shared(3)
    had = torch.tensor([0, 1, 4, 5])
    past = One(had, had, torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.ones(4))  # the last one is padding
    found = program.loss(tensors, batch(past), program.phases[0])
    q = text @ tensors["adapter.0.weight"] + tensors["adapter.0.bias"]
    expected = 0.0
    for positive, others, negatives in ((0, (1, 4), (2, 3)), (1, (0, 4), (3, 3))):
        user = (q[others[0]] + q[others[1]]) / 2
        right, wrong = (user @ q[positive]).item(), [(user @ q[n]).item() for n in negatives]
        if loss == "bpr":
            expected += sum(math.log1p(math.exp(w - right)) for w in wrong) / 2
        else:
            expected += math.log(sum(math.exp(x) for x in (right, *wrong))) - right
    assert found.item() == pytest.approx(expected / 2, abs=1e-5)


@pytest.mark.parametrize(("name", "loss"), [(name, loss) for name, losses in TAKING.items() for loss in losses])
def test_every_phase_asks_for_what_its_loss_compares(name: str, loss: str) -> None:
    row, text = METHODS[name], torch.ones(8, 16)
    settings = row.settings.model_validate({"loss": loss} | ({"adapter_init": "random"} if row.needs_text else {}))
    phases = row.program(settings, Given(8, 1, text)).phases
    assert {phase.which.pairs for phase in phases} == {OBJECTIVES[loss].compared is not None}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["model.loss=bpr", "negatives=0"], "a positive is compared with its negatives"),
        (["model.loss=softmax", "privacy.examples.epsilon=8"], "privacy.examples"),
        (["method=f3crec", "backbone=fedmf", "strategy=kd", "model.loss=bpr"], "what kd replays has no negatives"),
        (["model.loss=bpr", "model.temperature=0.5"], "belongs to loss softmax"),
        (["method=pfedrec", "model.loss=bpr", "model.bce_of=probabilities"], "belongs to loss bce"),
        (["model.loss=brp"], "bpr"),
        (["model.loss=bce-scaled", "privacy.examples.epsilon=8"], "privacy.examples"),
        (["method=f3crec", "backbone=fedmf", "strategy=kd", "model.loss=bce-scaled"], "labelled by plain scores"),
        (["model.loss=bpr", "model.loss_lr=0.5"], "belongs to loss bce-scaled"),
        (["model.negative_weight=9"], "belongs to loss softmax"),
    ],
)
def test_a_comparison_without_anything_to_compare_is_refused(values: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_experiment(overrides=["method=fedmf", "data=ml-100k", *values])
