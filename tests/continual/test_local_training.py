"""A method with local training after its rounds runs over blocks and sessions as it does over leave-one-out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import edgefr
from edgefr.simulation.loop import Training
from tests.continual.runs import ideal_fleet
from tests.federations import begun as begun_run

TINY = [
    "method=transfr",
    "rounds=2",
    "local_epochs=2",
    "clients_per_round=1.0",
    "engine.shard_size=16",
    "encoder.distill.steps=3",
    "evaluation.k=[5]",
]
BLOCKS = [
    "data=demo",
    "data_options={users: 60, items: 120, interactions: 16}",
    "protocol={name: blocks, min_interactions: 2, increments: 2}",
]
SESSIONS = [
    "data=demo",
    "data_options={users: 60, items: 120, interactions: 16}",
    "protocol={name: sessions, gap_minutes: 40000, negatives: 20}",
]


def begun(*overrides: str) -> Training:
    """TransFR before its first round; every client contributes."""
    return begun_run(edgefr.load_experiment(overrides=[*TINY, *overrides]), fleet=ideal_fleet())


@pytest.mark.parametrize("user", ["mean", "vector"])
def test_over_blocks_both_models_are_tested_on_every_block(user: str) -> None:
    run = begun(*BLOCKS, f"model.user_encoder={user}")
    run.train()
    names = [done["name"] for done in run.done]
    assert names == ["D0", "D1", "D2"]
    for stage in ("finetune", "localtrain"):
        matrix = run.measured.matrix(stage, names, "NDCG@5")
        assert [len(row) for row in matrix] == [1, 2, 3]
    together, local = (run.measured.matrix(stage, names, "NDCG@5")[2] for stage in ("finetune", "localtrain"))
    assert together != local, "local training changes what clients recommend"
    assert "text mean" in run.measured.table(ranking="full")["D2"]
    head = [name for name in run.final.private if name not in run.best.private]
    assert head, "the model that users end with has the layers of their own"


def test_local_training_of_a_block_is_not_carried_to_the_next() -> None:
    """Only what rounds learn together is handed on: personal layers are made anew from it."""
    run = begun(*BLOCKS)
    run.train_stage()
    personal = {name: value.clone() for name, value in run.final.private.items()}
    before = {name: value.clone() for name, value in run.best.private.items()}
    run.engage()
    assert all(torch.equal(run.federation.private[name], value) for name, value in before.items())
    assert any(not torch.equal(run.federation.private[name], value) for name, value in personal.items())


def test_over_sessions_a_device_knows_what_it_has_met() -> None:
    run = begun(*SESSIONS, "model.user_encoder=mean")
    sessions = run.prepared.sessions
    for number in (1, 2):
        context = run.stage.context(number)
        for user in (0, 3):
            met = [sessions.items[int(s)] for s in sessions.train[user][:number]]
            assert context[user].tolist() == sorted({int(item) for row in met for item in row})
    run.train()
    table = run.measured.table()["main"]
    assert {"finetune", "localtrain", "popularity", "text mean"} <= table.keys()
    assert table["finetune"] != table["localtrain"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["blocks", "sessions"])
def test_its_bundles_are_written(protocol: str, tmp_path: Path) -> None:
    options = BLOCKS if protocol == "blocks" else SESSIONS
    chosen = edgefr.load_experiment(overrides=[*TINY, *options])
    run = edgefr.simulate(chosen, ideal_fleet(), out=tmp_path / "run", page=False)
    assert run.summary["stage"] == "localtrain"
    assert any(row["variant"] for row in run.summary["bundles"])
