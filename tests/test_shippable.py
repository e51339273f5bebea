"""What no device can do is refused before training, with the reason and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgefr
from edgefr.experiment import load_experiment
from edgefr.shippable import cannot_learn, check_shippable
from privacy.errors import InputError

NOISE = ("method=fedmf", "privacy.mechanism=gaussian", "privacy.scale=0.5", "privacy.trust=local")
CLIPPED = ("privacy.clip=1", "aggregation.weights=uniform")
LOCAL = ("privacy.clip=1", "privacy.trust=local", "aggregation.weights=uniform")
REFUSED = {
    "Reg": (("method=f3crec", "strategy=reg"), "strategy reg remembers or pulls to"),
    "RLP2": (("method=f3crec", "strategy=rlp2"), "strategy rlp2 remembers or pulls to"),
    "SPP": (("method=f3crec", "strategy=spp"), "strategy spp remembers or pulls to"),
    "FedRAP": (("method=fedrap",), "item rows of its own"),
    "GPFedRec": (("method=gpfedrec",), "item rows of its own"),
    "DP-SGD": (("method=fedmf", "privacy.examples={clip: 1.0, sigma: 1.0}"), "the noise of DP-SGD"),
    "history bonus": (("method=fcucr", "sessions.history_bonus=2", "data=xing"), "history_bonus"),
    "FCUCR as released": (
        ("method=fcucr", "fidelity=released", "data=xing"),
        r"session that it meets next \(set model.query=sent\)",
    ),
    "the last step": (
        ("method=fcucr", "fidelity=released", "data=xing", "model.query=sent"),
        "set model.prototype_of=end",
    ),
    "running averages": (("method=fcucr", "data=xing", "model.dice_running=true"), "set model.dice_running=false"),
    "dropout": (("method=sasrec", "fidelity=released", "data=xing"), "set model.dropout=0"),
    "Adam of differences": (("method=transfr", "model.optimiser=adam"), "set model.optimiser=sgd"),
    "noise without a clip": (NOISE, "its noise is not drawn on a grid"),
    "noise in floating point": ((*NOISE, *CLIPPED, "privacy.sampler=float"), "its noise is not drawn on a grid"),
    "clipped prototypes": (
        ("method=fcucr", "data=xing", *LOCAL, "model.asks_when_recommending=false"),
        "clips and noises prototypes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_that_devices_cannot_make_is_refused_before_training(name: str, tmp_path: Path) -> None:
    overrides, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as refused:
        edgefr.simulate(load_experiment(overrides=overrides), "devices.yaml", out=tmp_path / "run")
    assert "simulate --no-bundles" in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("strategy", ["ft", "f3crec"])
def test_what_devices_can_do_is_not_refused(strategy: str) -> None:
    check_shippable(load_experiment(overrides=["method=f3crec", f"strategy={strategy}"]))
    check_shippable(load_experiment(overrides=[*NOISE, *CLIPPED]))
    check_shippable(load_experiment(overrides=["method=transfr", "model.loss=softmax", "model.optimiser=sgd"]))


def test_bundles_that_only_recommend_may_be_asked_for() -> None:
    asked = load_experiment(overrides=["method=f3crec", "strategy=reg", "export.learning=false"])
    assert cannot_learn(asked) is not None
    check_shippable(asked)
