"""`privacy.examples` from the shell: what is printed, what is written, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import edgefr
from edgefr.simulation.runs.run import Run
from tests.cli.commands import ROOT
from tests.cli.conftest import Cli
from tests.closeness import assert_same
from tests.noises import KEY

SMALL = ("method=fedmf", "model.dim=4", "rounds=2", "data_options={users: 30, items: 200}")
NOISY = (*SMALL, "fleet.share={speaker_512: 1.0}", "privacy.examples.clip=0.5", "privacy.examples.sigma=2")


def test_a_run_prints_and_keeps_what_an_interaction_is_guaranteed(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    simulate = ["simulate", *(part for value in NOISY for part in ("--set", value)), "--out", tmp_path / "run"]
    for change, words in (
        ("export.learning=true", "no device adds the noise of DP-SGD (privacy.examples); leave export.learning out"),
        ("engine.executor=processes", "engine.executor: with privacy.examples clients learn one by one"),
    ):
        assert words in cli.refused(*simulate, "--set", change)
        assert not (tmp_path / "run").exists(), "it is said before anything is trained"
    code, out, err = cli(*simulate, "--full")
    assert code == 0, err
    run = Run.open(tmp_path / "run")
    found = run.summary["privacy"]
    assert found["eps_guaranteed"] == "inf", "nothing is said about whole clients"
    assert found["examples"]["eps_guaranteed"] == pytest.approx(2.9432, abs=1e-4)  # two releases: mu = sqrt(2) / 2
    assert found["examples"]["unit"] == "interaction"
    assert "eps GUARANTEED, an interaction (delta=1e-05)" in out
    assert "bundles of this run only recommend" in out
    for bundle in (run.path / "bundles").iterdir():
        config = json.loads((bundle / "config.json").read_text())
        assert config["learning"] is None, "a device would train without the noise"
        assert "no device adds the noise of DP-SGD" in (bundle / "MODEL_CARD.md").read_text()


def test_the_same_seed_gives_the_same_model_whatever_the_shards(tmp_path: Path) -> None:
    runs = [
        edgefr.simulate(
            edgefr.load_experiment(overrides=[*NOISY, f"engine.shard_size={size}"]),
            ROOT / "devices.yaml",
            out=tmp_path / name,
            bundles=False,
            figures=False,
            noise_key=KEY,
        )
        for name, size in (("a", 8), ("b", 8), ("c", 5))
    ]
    first, again, other = (run.read_tensors("model") for run in runs)
    for name in ("shared.item", "private.user"):
        assert first[name].equal(again[name])
        assert_same(other[name], first[name], name=name)  # sums are taken in another order
