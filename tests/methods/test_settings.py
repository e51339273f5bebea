"""Settings of the methods: what is refused, what belongs together, and the stages before anything is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import edgefr
from edgefr.experiment.method import METHODS, method
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.transfr.program import TransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from export.given import Given
from export.program import TensorSpec
from privacy.errors import InputError

WIDTH, ITEMS = 12, 20
SMALL = {"adapter": [8, 4], "head": [6, 4]}


def text(seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((ITEMS, WIDTH)).astype(np.float32))


def transfr(**values: object) -> TransFR:
    return TransFR(TransFRSettings.model_validate(SMALL | values), text(), local_epochs=3)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("model.head=[64, 16]", None),
        ("model.adapter=[]", ["model.adapter", "at least 1 item"]),
        ("model.lr=0", ["model.lr", "greater than 0"]),
        ("model.user_encoder=median", ["model.user_encoder", "'vector' or 'mean'"]),
        ("model.head_form=resdual", ["model.head_form", "'residual'"]),
        ("model.local_training_epochs=-1", ["model.local_training_epochs", "greater than or equal to 0"]),
        ("model.dim=8", ["model.dim", "unknown key 'dim'"]),
    ],
)
def test_wrong_settings_are_refused_by_name(override: str, parts: list[str] | None) -> None:
    if parts is None:  # each value is fine by itself; the program sees that they do not fit
        edgefr.load_experiment(overrides=[override])
        with pytest.raises(InputError, match=r"model.head ends in 16 but model.adapter in 4: make them equal"):
            transfr(head=[64, 16])
        return
    with pytest.raises(InputError) as caught:
        edgefr.load_experiment(overrides=[override])
    assert str(caught.value).startswith(f"--set {override}: ")
    assert [part for part in parts if part not in str(caught.value)] == []


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown method 'transfer'; did you mean 'transfr'\?"):
        method("transfer")


def test_every_field_of_every_method_says_what_it_is() -> None:
    for row in METHODS.values():
        for name, field in row.settings.model_fields.items():
            assert field.description, f"{row.name}: model.{name}"


def test_a_residual_head_starts_from_what_was_learned_together_and_a_plain_one_does_not() -> None:
    every = torch.arange(ITEMS)
    batch = One(every, every, every, every)
    for form, same in (("residual", True), ("plain", False)):
        program = transfr(head_form=form)
        shared, private = program.init_shared(3), program.init_private(3, torch.arange(2))
        own = {name: value[0] for name, value in private.items()}
        vectors = program.vectors(shared, batch)
        personal = program.personal({**shared, **own}, batch, vectors)
        assert torch.equal(personal, vectors) == same
        assert torch.equal(program.personal(shared, batch, vectors), vectors), "no head, no change"


def test_the_mean_user_is_the_mean_and_leaves_an_example_out_of_its_own_vouching() -> None:
    program = transfr(user_encoder="mean")
    shared = program.init_shared(3)
    own, items = torch.tensor([3, 5, 9]), torch.tensor([5, 7])
    history = One(own, own, torch.ones(3), torch.ones(3))
    vectors = program.vectors(shared, One(items, items, items, items))
    past = program.vectors(shared, history)
    label = torch.tensor([1.0, 0.0])
    asked = program.user(shared, One(items, items, label, label, history), past, vectors)
    torch.testing.assert_close(asked.squeeze(0), past.mean(0))
    trained = program.user(shared, One(items, items, label, label, history, training=True), past, vectors)
    torch.testing.assert_close(trained[0], past[[0, 2]].mean(0))  # item 5 is the example itself
    torch.testing.assert_close(trained[1], past.mean(0))  # item 7 is a negative


def test_the_ablation_starts_with_random_and_pretrain() -> None:
    row = method("transfr")
    settings = TransFRSettings.model_validate(SMALL)
    stages = row.untrained(settings, Given(ITEMS, 1, text(0)), text(1), 5)
    assert [name for name, _, _ in stages] == ["random", "pretrain"]
    assert row.stages == ("finetune", "localtrain")
    for (_, program, shared), table in zip(stages, (text(1), text(0)), strict=True):
        assert torch.equal(program.frozen["text"], table)
        assert program.needs_history, "an untrained user vector says nothing, so the user is the mean of its items"
        assert not any(name.startswith("head") for name in shared)
    assert settings.user_encoder == "vector", "the run's own settings are left alone"
    assert [name for name, _, _ in row.untrained(settings, Given(ITEMS, 1, text(0)), None, 5)] == ["pretrain"]


def test_fedmf_scores_are_inner_products_and_item_rates_follow_the_catalogue() -> None:
    program = FedMF(FedMFSettings(dim=4, lr=0.5), ITEMS, 2)
    assert program.specs == {
        "item": TensorSpec((ITEMS, 4), "shared", "rows"),
        "user": TensorSpec((4,), "private"),
    }
    assert program.phases[0].lr == {"item": 0.5 * ITEMS, "user": 0.5}
    assert FedMF(FedMFSettings(item_lr=3.0), ITEMS, 2).phases[0].lr["item"] == 3.0
    shared, private = program.init_shared(1), program.init_private(1, torch.arange(3))
    items = torch.tensor([4, 0, 7])
    batch = One(items, items, items, items)
    own = {**shared, "user": private["user"][2]}
    vectors = program.vectors(own, batch)
    scores = program.score(own, batch, vectors, program.user(own, batch, None, vectors))
    expected = [float((shared["item"][i] * private["user"][2]).sum()) for i in items.tolist()]
    assert scores.tolist() == pytest.approx(expected, rel=1e-6)
