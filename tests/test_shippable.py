"""What no device can do is refused before training, with the reason and what to do instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import edgefr
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.bundle_checks import cannot_learn, check_shippable, told, wanted
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


NONE = ("FedRAP", "GPFedRec", "history bonus")
"""What no bundle can hold; the bundles of the others can recommend."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_that_devices_cannot_make_is_refused_before_training_to_who_asks_for_it(
    name: str, tmp_path: Path
) -> None:
    overrides, words = REFUSED[name]
    asked = () if name in NONE else ("export.learning=true",)
    with pytest.raises(InputError, match=words) as refused:
        edgefr.simulate(load_experiment(overrides=[*overrides, *asked]), out=tmp_path / "run", bundles=True)
    assert "simulate --no-bundles" in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", REFUSED)
def test_who_asks_for_nothing_is_told_what_is_not_shipped(name: str) -> None:
    overrides, words = REFUSED[name]
    experiment = load_experiment(overrides=overrides)
    assert wanted(experiment, None)
    line = told(experiment)
    assert line is not None
    assert line.startswith("no bundles will be written: " if name in NONE else "bundles will only recommend: ")
    assert re.search(words, line)


def test_a_run_whose_devices_cannot_learn_ships_bundles_that_recommend(tmp_path: Path) -> None:
    small = ("method=f3crec", "strategy=reg", "rounds=1", "data_options={users: 60, items: 120, interactions: 16}")
    blocks = ("protocol.min_interactions=3", "protocol.increments=1", "fleet.share={laptop_x86: 1.0}")
    run = edgefr.simulate(load_experiment(overrides=[*small, *blocks]), out=tmp_path / "run", page=False)
    assert run.summary["only_recommends"] == "no bundle carries what strategy reg remembers or pulls to"
    (bundle,) = (run.path / "bundles").iterdir()
    config = json.loads((bundle / "config.json").read_text())
    assert config["learning"] is None
    assert "what strategy reg remembers" in (bundle / "MODEL_CARD.md").read_text()
    assert "they recommend only" in str(run)


FEW = ("protocol.negatives=20",)


def test_a_run_that_no_bundle_can_hold_says_so_and_is_whole(tmp_path: Path) -> None:
    small = ("method=fedrap", "rounds=1", "data_options={users: 60, items: 120, interactions: 16}", *FEW)
    run = edgefr.simulate(load_experiment(overrides=small), out=tmp_path / "run", page=False)
    assert run.summary["no_bundles"] == "a bundle cannot hold the item rows of its own that a client of fedrap has"
    assert "no bundles: a bundle cannot hold the item rows" in " ".join(str(run).split())


@pytest.mark.parametrize("strategy", ["ft", "f3crec"])
def test_what_devices_can_do_is_not_refused(strategy: str) -> None:
    check_shippable(load_experiment(overrides=["method=f3crec", f"strategy={strategy}"]))
    check_shippable(load_experiment(overrides=[*NOISE, *CLIPPED]))
    check_shippable(load_experiment(overrides=["method=transfr", "model.loss=softmax", "model.optimiser=sgd"]))


def test_bundles_that_only_recommend_may_be_asked_for() -> None:
    asked = load_experiment(overrides=["method=f3crec", "strategy=reg", "export.learning=false"])
    assert cannot_learn(asked) is not None
    check_shippable(asked)
