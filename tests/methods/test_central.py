"""Central references in a run: one stage, the metrics of all others, nothing federated, nothing of what is held out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgefr
from cloud.references.folds import drawn_folds
from edge.ragged import Ragged
from edgefr.data.prepared_data import Prepared
from edgefr.data.protocol import PROTOCOLS
from edgefr.engine.model import Model
from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.methods.central.references import pooled_target
from edgefr.simulation.loop import Training
from edgefr.simulation.runs.run import Run
from edgefr.simulation.stages.stage import Position
from privacy.errors import InputError
from tests.cli.commands import edgefr as command
from tests.federations import begun as begun_run

SMALL = ("data_options={users: 60, items: 160, interactions: 12}", "protocol.negatives=20")
HOW = {
    "mf": ("model={dim: 6, epochs: 12, patience: 3, l2: 0.001, lr: 0.03}", "batch_size=64"),
    "pmf": ("model={dim: 6, epochs: 12, patience: 3, l2: 0.001, lr: 0.03}", "batch_size=64"),
    "neumf": ("model={dim: 4, tower: [8, 4], epochs: 5, lr: 0.02}", "batch_size=64"),
    "ease": ("model.ridge=5",),
}
NAMES = sorted(HOW)
TWO = {
    "cmf": ("model={dim: 4, epochs: 6, patience: 6, lr: 0.03, folds: 3}", "batch_size=64"),
    "emcdr": ("model={dim: 4, epochs: 6, patience: 6, lr: 0.03, folds: 3}", "batch_size=64"),
    "feddcsr": ("model={dim: 4, length: 6, epochs: 3, patience: 3, lr: 0.01, folds: 3}", "batch_size=64"),
}
"""References that learn from two domains."""
ACROSS = (
    "data_options={users: 60, items: 160, interactions: 24}",
    "protocol={name: cross-domain, source: books, target: films, negatives: 20}",
)


def asked(name: str, *overrides: str) -> Any:
    return load_experiment(overrides=[f"method={name}", *SMALL, *(HOW | TWO)[name], *overrides])


def begun(name: str, *overrides: str, prepared: Prepared | None = None) -> Training:
    return begun_run(asked(name, *overrides), prepared)


def test_the_table_names_all_that_are_central() -> None:
    assert sorted(name for name, row in METHODS.items() if row.central is not None) == sorted(HOW | TWO)
    assert all(METHODS[name].stages == ("central", "with target items") for name in TWO)
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
    most = {"mf": 12, "pmf": 12, "neumf": 5, "ease": 1}[name]
    assert done["round"] == most or done["round"] - best == 3
    found = run.measured.final(stage="central", on="main", ranking="full")
    assert found["NDCG@10"] > 0
    assert PROTOCOLS["leave-one-out"].results(run)["blocks"][0]["best_round"] == best
    assert run.measured.final(stage="central", on="main", ranking="full", which="valid")["NDCG@10"] == curve[best]
    assert len(run.measured.users["central", "main", "full"][0]) == len(run.measured.users["chance", "main", "full"][0])


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
        return edgefr.simulate(asked(name), "devices.yaml", out=tmp_path / folder, page=False)

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


@pytest.mark.parametrize("name", NAMES)
def test_what_a_reference_never_saw_is_tied_and_counts_what_is_expected(name: str) -> None:
    run = begun(name, *ACROSS)
    run.train()
    found = run.measured.final(stage="central", on="target", ranking="sampled")
    gains = sum(1 / np.log2(1 + rank) for rank in range(1, 11))
    assert found["HR@10"] == pytest.approx(10 / 21, abs=1e-12), "any of 21 candidates may be the one held out"
    assert found["NDCG@10"] == pytest.approx(gains / 21, abs=1e-12)
    source, target = run.prepared.splits.values()
    users = run.measured.users["central", "target", "full"][0]
    ranked = len(target.pool) - target.train.counts[users] - (target.valid[users] >= 0)
    full = run.measured.final(stage="central", on="target", ranking="full")
    assert full["HR@10"] == pytest.approx(np.mean(10 / ranked), abs=1e-12)
    assert run.measured.final(stage="central", on="source") != run.measured.final(stage="chance", on="source")
    assert not np.isin(target.pool, source.pool).any()


@pytest.mark.parametrize("name", TWO)
def test_one_domain_is_too_few_for_references_of_two(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} learns from two domains: set protocol\.name=cross-domain"):
        load_experiment(overrides=[f"method={name}"])
    task = "protocol={name: cross-domain, source: books, target: [films, games]}"
    with pytest.raises(InputError, match=rf"protocol\.target: {name} learns from two domains: name one target"):
        load_experiment(overrides=[f"method={name}", task])


def learned_in_turns(run: Training) -> list[Model]:
    """Return the model of each turn after all of its epochs, whatever validation says."""
    models = []
    for at in range(len(run.schedule)):
        run.position = Position(at)
        run.learn(())
        run.final = run.stage.model(run).copy(run.federation.program)
        models.append(run.final)
    return models


@pytest.mark.parametrize("name", TWO)
def test_no_turn_learns_from_what_is_held_out_in_either_domain(name: str) -> None:
    first = begun(name, *ACROSS, "model.patience=100")
    splits = {}
    for split in first.prepared.splits.values():
        at = [np.searchsorted(split.pool, np.maximum(held, split.pool[0])) for held in (split.valid, split.test)]
        valid, test = (split.pool[(places + 3) % len(split.pool)].astype(np.int32) for places in at)
        valid, test = np.where(split.valid >= 0, valid, -1), np.where(split.test >= 0, test, -1)
        splits[split.name] = dataclasses.replace(split, valid=valid.astype(np.int32), test=test.astype(np.int32))
    prepared = dataclasses.replace(first.prepared, splits=splits)
    second = begun(name, *ACROSS, "model.patience=100", prepared=prepared)
    turns = [learned_in_turns(run) for run in (first, second)]
    assert len(turns[0]) == {"cmf": 2, "emcdr": 3, "feddcsr": 2}[name]
    for one, two in zip(*turns, strict=True):
        assert all(torch.equal(value, two.flat()[key]) for key, value in one.flat().items())


@pytest.mark.parametrize("name", TWO)
def test_a_user_is_tested_as_cold_by_what_was_learned_without_its_target_items(name: str) -> None:
    """Other items in the place of one fold's: no score of its users changes a bit, and those of others do."""
    first = begun(name, *ACROSS, "model.epochs=2", "model.patience=2")
    source, target = first.prepared.splits.values()
    fold = drawn_folds(0, len(target.test), 3)
    moved = target.train.values.copy()
    cold = fold[target.train.rows] == 1
    moved[cold] = target.pool[(np.searchsorted(target.pool, moved[cold]) + 7) % len(target.pool)]
    changed = dataclasses.replace(target, train=Ragged(moved, target.train.offsets))
    prepared = dataclasses.replace(first.prepared, splits={"source": source, "target": changed})
    second = begun(name, *ACROSS, "model.epochs=2", "model.patience=2", prepared=prepared)
    models = [learned_in_turns(run)[-2] for run in (first, second)]
    scores = [first.scorer(model, target, target.train)(target.users("test"), None) for model in models]
    same = (scores[0] == scores[1]).all(axis=1)
    asked = fold[target.users("test")] == 1
    assert same[asked].all()
    assert asked.any()
    assert not same[~asked].any()


@pytest.mark.parametrize("name", TWO)
def test_a_reference_of_two_domains_is_tested_cold_and_with_target_items(name: str) -> None:
    run = begun(name, *ACROSS)
    run.train()
    stages = run.measured.table()
    assert list(stages) == ["source", "target"]
    assert [name for name in stages["target"] if name in ("central", "popularity", "chance", "with target items")] == [
        *("central", "popularity", "chance", "with target items")
    ]
    assert run.measured.final(stage="chance", on="target", ranking="full") != run.measured.final(
        stage="central", on="target", ranking="full"
    )
    assert len({len(run.measured.users[s, "target", "sampled"][0]) for s in ("central", "with target items")}) == 1
    asked = [(done["name"], done["round"] > 0) for done in run.done]
    assert asked == [("source", True)] * (name == "emcdr") + [("target", True)] * 2
    assert PROTOCOLS["cross-domain"].results(run)["transfer"]["NDCG@10"]["target"] > 0


def test_whoever_is_in_the_target_alone_trains_and_is_not_tested() -> None:
    run = begun("emcdr", *ACROSS)
    data, (source, target) = run.prepared.dataset, run.prepared.splits.values()
    films, books = (np.isin(data.item, split.pool) for split in (target, source))
    alone = set(data.user[films]) - set(data.user[books])
    assert alone
    assert not alone & set(target.users("test"))
    found = pooled_target(run.experiment, run.prepared)
    pairs = set(zip(found.user.tolist(), found.item.tolist(), strict=True))
    theirs = {(int(u), int(i)) for u, i in zip(data.user[films], data.item[films], strict=True) if u in alone}
    split = set(zip(target.train.rows.tolist(), target.train.values.tolist(), strict=True))
    assert pairs == theirs | split
    assert len(pairs) == len(found.user)
    held = {(user, int(target.test[user])) for user in target.users("test").tolist()}
    assert not pairs & held
    left_out = np.isin(np.arange(60), list(alone)[:1])
    assert not left_out[pooled_target(run.experiment, run.prepared, left_out).user].any()


def test_what_only_federated_runs_have_is_refused(tmp_path: Path) -> None:
    run = edgefr.simulate(asked("ease"), "devices.yaml", out=tmp_path / "run", page=False)
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
