"""`privacy.examples` from the shell: what is printed, what is written, what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import edgefr
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from tests.cli.commands import environment, without_progress
from tests.closeness import assert_same
from tests.noises import KEY
from tests.warm import WARM

ROOT = Path(__file__).parents[2]
SMALL = [
    "method=fedmf",
    "model.dim=4",
    "rounds=2",
    "data_options.users=30",
    "data_options.items=200",
    "fleet.share={speaker_512: 1.0}",
]
NOISY = [*SMALL, "privacy.examples.clip=0.5", "privacy.examples.sigma=2"]


def edgefr_simulate(out: Path, *overrides: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    changes = [part for override in overrides for part in ("--set", override)]
    arguments = ["simulate", "--devices", str(ROOT / "devices.yaml"), *changes, "--out", str(out), *options]
    surroundings = environment(out.parent / "cache") | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    return WARM.run(arguments, ROOT, surroundings, seconds=300)


def test_a_run_prints_and_keeps_what_an_interaction_is_guaranteed(tmp_path: Path) -> None:
    refused = edgefr_simulate(tmp_path / "refused", *NOISY, "export.learning=true")
    assert refused.returncode == 2
    assert "no device adds the noise of DP-SGD (privacy.examples); leave export.learning out" in refused.stderr
    assert not (tmp_path / "refused").exists(), "it is said before anything is trained"
    process = edgefr_simulate(tmp_path / "run", *NOISY, options=("--full",))
    assert process.returncode == 0, process.stderr
    run = Run.open(tmp_path / "run")
    found = run.summary["privacy"]
    assert found["eps_guaranteed"] == "inf", "nothing is said about whole clients"
    assert found["examples"]["eps_guaranteed"] == pytest.approx(2.9432, abs=1e-4)  # two releases: mu = sqrt(2) / 2
    assert found["examples"]["unit"] == "interaction"
    assert "eps GUARANTEED, an interaction (delta=1e-05)" in process.stdout
    assert "bundles of this run only recommend" in process.stdout
    for bundle in (run.path / "bundles").iterdir():
        config = json.loads((bundle / "config.json").read_text())
        assert config["learning"] is None, "a device would train without the noise"
        assert "no device adds the noise of DP-SGD" in (bundle / "MODEL_CARD.md").read_text()


def test_the_same_seed_gives_the_same_model_whatever_the_shards(tmp_path: Path) -> None:
    runs = [
        edgefr.simulate(
            load_experiment(overrides=[*NOISY, f"engine.shard_size={size}"]),
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


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine.executor=processes"], "engine.executor: with privacy.examples clients learn one by one"),
        (["method=f3crec"], "privacy.examples: it is not counted over blocks"),
        (["privacy.examples.sigma=0"], "privacy.examples.sigma"),
        (["privacy.examples.clip=0"], "privacy.examples.clip"),
        (["privacy.examples.epsilon=8"], "exactly one of sigma, epsilon; got both"),
        (["privacy.examples.noise=1"], "privacy.examples.noise"),
    ],
)
def test_what_cannot_be_kept_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_experiment(overrides=[*NOISY, *overrides])
    assert "\n" not in str(caught.value)


def test_the_shell_refuses_with_one_line_and_leaves_no_folder(tmp_path: Path) -> None:
    process = edgefr_simulate(tmp_path / "run", *NOISY, "engine.executor=processes")
    assert process.returncode == 2
    assert without_progress(process.stderr).count("\n") == 1
    assert not (tmp_path / "run").exists()
