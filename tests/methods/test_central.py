"""Central references in a run: one stage, the metrics of all others, nothing federated, nothing of what is held out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgefr
from edgefr.experiment import load_experiment
from edgefr.fleet import load_fleet
from edgefr.methods import METHODS
from edgefr.pipeline import sized
from edgefr.prepare import Prepared, prepare
from edgefr.protocol import PROTOCOLS
from edgefr.run import Run
from edgefr.training import Training
from privacy.errors import InputError
from tests.cli.commands import edgefr as command

SMALL = ("data_options={users: 60, items: 160, interactions: 12}", "protocol.negatives=20")
HOW = {
    "mf": ("model={dim: 6, epochs: 12, patience: 3, l2: 0.001, lr: 0.03}", "batch_size=64"),
    "neumf": ("model={dim: 4, tower: [8, 4], epochs: 5, lr: 0.02}", "batch_size=64"),
    "ease": ("model.ridge=5",),
}
NAMES = sorted(HOW)


def asked(name: str, *overrides: str) -> Any:
    return load_experiment(overrides=[f"method={name}", *SMALL, *HOW[name], *overrides])


def begun(name: str, *overrides: str, prepared: Prepared | None = None) -> Training:
    chosen = asked(name, *overrides)
    prepared = prepare(chosen, None, "cpu") if prepared is None else prepared
    device = torch.device("cpu")
    return Training.start(sized(chosen, prepared), prepared, load_fleet("devices.yaml"), device, lambda events: None)


def test_the_table_names_all_that_are_central() -> None:
    assert sorted(name for name, row in METHODS.items() if row.central is not None) == NAMES
    assert all(METHODS[name].stages == ("central", None) and "Central" in METHODS[name].paper for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_best_epoch_by_validation_is_tested(name: str) -> None:
    run = begun(name)
    kept: dict[int, dict[str, torch.Tensor]] = {}
    run.train([lambda run: kept.update({run.position.round: run.stage.model(run).copy(run.federation.program).flat()})])
    curve = {
        row["round"]: row["value"]
        for row in run.measured.rows
        if row["metric"] == "NDCG@10" and row["which"] == "valid" and row["round"] is not None
    }
    (done,) = run.done
    best = min(number for number, value in curve.items() if number and value == max(list(curve.values())[1:]))
    assert set(curve) == {0, *kept}
    assert done["best_round"] == best
    assert run.final is not None
    assert all(torch.equal(value, kept[best][key]) for key, value in run.final.flat().items())
    most = {"mf": 12, "neumf": 5, "ease": 1}[name]
    assert done["round"] == most or done["round"] - best == 3
    found = run.measured.final(stage="central", on="main", ranking="full")
    assert found["NDCG@10"] > 0
    assert PROTOCOLS["leave-one-out"].results(run)["blocks"][0]["best_round"] == best
    assert run.measured.final(stage="central", on="main", ranking="sampled", which="valid")["NDCG@10"] == curve[best]
    assert len(run.measured.users["central", "main", "full"][0]) == len(run.measured.users["chance", "main", "full"][0])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_held_out_is_not_learned_from(name: str) -> None:
    """Other held-out items, and the same bytes are learned; without its end, which validation decides."""
    first = begun(name, *(() if name == "ease" else ("model.patience=100",)))
    split = first.prepared.train_split
    moved = np.where(split.test >= 0, (split.test + 1) % len(split.pool), -1).astype(np.int32)
    other = np.where(split.valid >= 0, (split.valid + 2) % len(split.pool), -1).astype(np.int32)
    changed = dataclasses.replace(split, test=moved, valid=other)
    prepared = dataclasses.replace(first.prepared, splits={"main": changed})
    second = begun(name, *(() if name == "ease" else ("model.patience=100",)), prepared=prepared)
    for run in (first, second):
        run.learn(())
    one, two = (run.stage.model(run).flat() for run in (first, second))
    assert all(torch.equal(value, two[key]) for key, value in one.items())


def test_scores_of_a_run_are_those_of_the_learner() -> None:
    run = begun("ease")
    run.train()
    assert run.final is not None
    split, users = run.prepared.train_split, np.arange(4)
    had = np.zeros((60, 160))
    had[split.train.rows, split.train.values] = 1
    p = np.linalg.inv(had.T @ had + 5 * np.eye(160))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0)
    found = run.scorer(run.final, split, split.train)(users, None)
    np.testing.assert_allclose(found, (had @ b)[users][:, split.pool], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_run_whatever_is_asked_beside(name: str, tmp_path: Path) -> None:
    def ran(folder: str) -> Run:
        return edgefr.simulate(asked(name), "devices.yaml", out=tmp_path / folder, figures=False)

    one, two = ran("one"), ran("two")
    for file in ("model.safetensors",):
        assert (one.path / "checkpoint" / file).read_bytes() == (two.path / "checkpoint" / file).read_bytes()
    assert one.metrics.equals(two.metrics)
    assert one.summary["central"]["note"].startswith("central reference: pools everybody's data")
    assert (one.summary["privacy"], one.summary["fleet"], one.summary["bundles"]) == ({}, {}, [])
    assert one.summary["rounds"] == 0
    assert "rounds" not in (one.path / "experiment.yaml").read_text()
    user = str(one.users["user"].iloc[0])
    assert len(one.recommend(user, k=4)) == 4, "the saved model recommends"


def test_seeds_are_put_together(tmp_path: Path) -> None:
    edgefr.simulate_seeds(asked("ease"), 2, tmp_path / "runs", devices="devices.yaml", figures=False)
    found = Run(tmp_path / "runs").summary
    assert found["seeds"] == [0, 1]
    assert found["metrics"]["NDCG@10"]["mean"] > 0


FEDERATED = ("rounds=5", "local_epochs=3", "clients_per_round=5", "privacy.clip=1", "aggregation.server_lr=0.5")
FEDERATED += ("fleet.share={laptop_x86: 1.0}", "export.learning=false", "engine.executor=processes")
FEDERATED += ("engine.shard_size=4", "evaluation.keep=best", "evaluation.tables=own")
FEDERATED += ("protocol.negatives_avoid_held_out=true",)  # so no protocol line claims a leak that is not there


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", FEDERATED)
def test_settings_of_federation_are_refused(name: str, setting: str) -> None:
    with pytest.raises(InputError, match="is a central reference, which pools everybody's data") as refused:
        load_experiment(overrides=[f"method={name}", setting])
    assert setting.partition(".")[0].partition("=")[0] in str(refused.value)


@pytest.mark.parametrize("setting", ["negatives=2", "batch_size=64", "evaluation.every=2"])
def test_a_closed_form_reads_no_batches(setting: str) -> None:
    with pytest.raises(InputError, match="references that learn from batches"):
        load_experiment(overrides=["method=ease", setting])
    assert load_experiment(overrides=["method=mf", setting]).row.central is not None


@pytest.mark.parametrize("protocol", ["blocks", "sessions", "{name: cross-domain, source: a, target: b}"])
def test_other_protocols_are_refused(protocol: str) -> None:
    key = "protocol" if protocol.startswith("{") else "protocol.name"
    with pytest.raises(InputError, match=r"mf is a central reference: set protocol\.name=leave-one-out"):
        load_experiment(overrides=["method=mf", f"{key}={protocol}"])


def test_what_only_federated_runs_have_is_refused(tmp_path: Path) -> None:
    run = edgefr.simulate(asked("ease"), "devices.yaml", out=tmp_path / "run", figures=False)
    words = "ease is a central reference, which pools everybody's data: there is no"
    with pytest.raises(InputError, match=words):
        edgefr.export(run)
    with pytest.raises(InputError, match=words):
        edgefr.audit(run)
    with pytest.raises(InputError, match=words):
        edgefr.simulate(asked("ease"), "devices.yaml", out=tmp_path / "other", checkpoint_every=1)
    assert not (tmp_path / "other").exists()
    for arguments in (("privacy", run.path), ("serve", run.path, "--bundle-class", "laptop_x86", "--rounds", "1")):
        done = command(*arguments, cache=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_command_says_what_it_is(name: str, tmp_path: Path) -> None:
    changes = [part for change in (f"method={name}", *SMALL, *HOW[name]) for part in ("--set", change)]
    done = command("simulate", *changes, "--out", tmp_path / "run", cache=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "central reference: pools everybody's data; no federation, no privacy" in said
    assert "fleet:" not in said
    assert "eps" not in said
    assert f"{name} on demo" in said
    assert sorted(path.name for path in (tmp_path / "run" / "figures").glob("*.png")) == ["learning-curve.png"]
    assert not (tmp_path / "run" / "bundles").exists()
