"""An entry added to a table from here works like those that ship: it is named, checked, and does what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.config.executors import BACKENDS, BackendKind
from edgefr.data.datasets import READERS, Reader
from edgefr.data.readers.demo import DemoOptions, generate
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors import inline
from edgefr.fleet.policies import POLICIES, Policy
from edgefr.methods.fcucr.parts import LOSSES, PositionLoss
from edgefr.metrics.cutoffs import METRICS, Metric
from privacy.errors import InputError

SMALL = ["method=fedmf", "rounds=2", "model.dim=4", "protocol.negatives=20", "evaluation.k=[5]"]
SIZE = "data_options={users: 40, items: 110, interactions: 14}"


def ran(folder: Path, *overrides: str) -> dict[str, Any]:
    edgefr.simulate(edgefr.load_experiment(overrides=[*SMALL, *overrides]), out=folder, bundles=False, page=False)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_a_reader_of_ones_own_is_a_data_set(tmp_path: Path) -> None:
    own = Reader("mine", DemoOptions, None, lambda folder, options, seed, progress: generate(options, 7, progress))
    with READERS.having(own):
        assert ran(tmp_path / "run", "data=mine", SIZE)["dataset"]["users"] == 40
    with pytest.raises(InputError, match=r"unknown data set 'mine'"):
        ran(tmp_path / "gone", "data=mine")


def test_a_metric_of_ones_own_is_measured(tmp_path: Path) -> None:
    with METRICS.having(Metric("Misses", lambda found: np.where(found.hits > 0, 0.0, 1.0))):
        found = ran(tmp_path / "run", SIZE)["metrics"]
    assert found["Misses@5"] == pytest.approx(1 - found["HR@5"])


def test_a_backend_of_ones_own_does_the_work(tmp_path: Path) -> None:
    shards: list[int] = []

    def counted(work: Any, shared: Any, private: Any, clients: Any) -> Any:
        shards.append(len(clients))
        return inline.run(work, shared, private, clients)

    with BACKENDS.having(BackendKind("counted", "counts shards", lambda engine: InProcess(counted))):
        found = ran(tmp_path / "run", SIZE, "engine.executor=counted")
    assert shards
    assert found["engine"]["executor"] == "counted"
    assert found["metrics"] == ran(tmp_path / "inline", SIZE)["metrics"]
    with pytest.raises(InputError, match=r"engine.executor: unknown executor 'counted' \(known: debug, inline"):
        edgefr.load_experiment(overrides=["engine.executor=counted"])


def test_a_round_policy_of_ones_own_closes_rounds(tmp_path: Path) -> None:
    first = Policy("first", "each to its first upload", waits=True, enough=lambda wanted: 1)
    asked = [SIZE, "fleet.rounds.policy=first", "fleet.rounds.min_fraction=0.0"]
    with POLICIES.having(first):
        found = ran(tmp_path / "run", *asked)["fleet"]
    assert found["policy"] == "first"
    assert found["contributed"] == 2  # one in each of two rounds
    with pytest.raises(InputError, match=r"rounds.policy: unknown round policy 'first'; did you mean 'first_k'"):
        ran(tmp_path / "gone", *asked)


def test_an_encoder_and_a_loss_of_ones_own_read_sessions(tmp_path: Path) -> None:
    asked = ["method=fcucr", "data_options={users: 40, items: 110, interactions: 14}", "protocol.gap_minutes=40000"]
    asked += ["rounds=1", "local_epochs=1", "model.dim=4", "model.length=4", "protocol.negatives=20"]

    def hinge(positive: Any, negative: Any) -> Any:
        return (1.0 - positive + negative.mean(-1)).clamp(min=0.0)

    def metrics(name: str, *overrides: str) -> dict[str, float]:
        made = edgefr.load_experiment(overrides=[*asked, *overrides])
        run = edgefr.simulate(made, out=tmp_path / name, bundles=False, page=False)
        return {row: value for row, value in run.summary["metrics"].items()}

    with LOSSES.having(PositionLoss("hinge", lambda: hinge)):
        assert set(metrics("hinge", "model.loss=hinge")) == set(metrics("bce"))
    with pytest.raises(InputError, match=r"model.loss: unknown loss 'hinge' \(known: bce, full-softmax, softmax\)"):
        metrics("gone", "model.loss=hinge")
    with pytest.raises(InputError, match=r"model.encoder: unknown encoder 'bert4rec'"):
        metrics("none", "model.encoder=bert4rec")
