"""Clients planted in one row of a table are told apart by what a fault leaves bare, and no better than allowed else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgefr.studies.audits.canaries import Channel, SumChannel
from edgefr.studies.audits.channels import StepChannel
from edgefr.studies.audits.finding import Finding
from edgefr.studies.audits.games import _worlds, tell_apart
from edgefr.studies.audits.target import AttackTarget
from export.program import TensorSpec
from privacy.example_plan import plan_examples
from privacy.guarantee import Event
from privacy.plan import plan
from privacy.settings import ExampleSettings, PrivacySettings
from tests.audit import test_checks as faults

TABLE = {"item": TensorSpec((16, 4), "shared", "rows")}
TRIALS = 1200
ANYBODY = cast(AttackTarget, SimpleNamespace(experiment=SimpleNamespace(privacy=SimpleNamespace(delta=1e-5))))


def played(way: Channel, event: Event, other: bool) -> Finding:
    return tell_apart("game-rows", way, _worlds(way, other), event, ANYBODY, TRIALS, lambda *told: None)


def summed(trust: str, **settings: Any) -> Finding:
    resolved = plan(PrivacySettings(clip=1.0, trust=trust, **settings), 1, 1, 50, values=64)
    return played(SumChannel(resolved, TABLE), resolved.event, other=trust == "local")


GAUSSIAN: dict[str, Any] = {"mechanism": "gaussian", "epsilon": 2.0}
LAPLACE: dict[str, Any] = {"mechanism": "laplace", "norm": "l1", "epsilon": 2.0}


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("settings", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_right_mechanisms_are_not_accused(trust: str, settings: dict[str, Any]) -> None:
    found = summed(trust, **settings)
    assert found.claimed == pytest.approx(2.0, rel=1e-3)
    assert 0.0 <= found.eps_lb95 < found.claimed
    assert found.auc > 0.6, "an audit that finds nothing would accuse nobody"


@pytest.mark.parametrize(
    "plant",
    [faults.clip_without_tables, faults.noise_where_the_sum_is_not_zero, faults.scaled(0.1)],
    ids=["no clip", "touched rows", "tenth"],
)
@pytest.mark.parametrize("trust", ["central", "local"])
def test_faults_leak_more_than_is_claimed(
    trust: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert summed(trust, **GAUSSIAN).exceeds


@pytest.mark.parametrize(
    ("plant", "accused"),
    [(None, False), (faults.steps_leave_rows_bare, True)],
    ids=["right", "bare rows"],
)
def test_steps_of_dpsgd(
    plant: Callable[[pytest.MonkeyPatch], None] | None, accused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plant is not None:
        plant(monkeypatch)
    examples = plan_examples(ExampleSettings(clip=0.5, sigma=2.0), 1e-5, 1, 1)
    found = played(StepChannel(examples, TABLE, records=1), examples.event, other=False)
    assert found.exceeds == accused


def test_bytes_of_uploads_are_not_accused_and_bare_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = plan(PrivacySettings(clip=1.0, trust="local", **GAUSSIAN), 1, 1, 50, values=64)

    def seen() -> Finding:
        way = faults.upload(resolved)
        way.specs = {name: TABLE[name] for name in TABLE}
        return played(type(way)(resolved, way.learning.release, TABLE), resolved.event, other=True)

    assert not seen().exceeds
    faults.upload_noises_what_changed(monkeypatch)
    assert seen().exceeds
