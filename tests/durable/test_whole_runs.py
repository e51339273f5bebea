"""Runs of every kind that are stopped at a checkpoint and resumed: their folders are those of runs that never stopped.

Through `edgefr.simulate` and `edgefr.resume` alone, whatever a run is made of inside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.engine.backends.backend import Backend
from edgefr.simulation.runs import checkpoint
from privacy.errors import InputError
from tests.cli.commands import ROOT
from tests.durable import runs
from tests.visits import write_visits

LISTS = ("method=fedmf", "data_options={users: 60, items: 160, interactions: 12}", "rounds=4", "model={dim: 4}")
BLOCKS = (
    "method=f3crec",
    "data_options={users: 40, items: 100, interactions: 25}",
    "protocol={name: blocks, min_interactions: 2, increments: 2}",
    "rounds=2",
    "model={dim: 4}",
)
SESSIONS = (
    "data=retailrocket",
    "rounds=3",
    "protocol.negatives=20",
    "evaluation.k=[5]",
    "engine.shard_size=5",
    "model={dim: 6, length: 4, hidden: 5, lr: 0.02, init_scale: 0.1}",
)
ASYNC = "fleet={dropout: 0.2, share: {laptop_x86: 0.4, speaker_512: 0.6}, rounds: {policy: async, concurrency: 25}}"
KINDS = {
    "leave-one-out, the server's Adam": ((*LISTS, "aggregation.optimiser=adam"), 2),
    "leave-one-out, async": ((*LISTS, "clients_per_round=8", ASYNC), 2),
    "attackers": ((*LISTS, "attackers={kind: pieck-ipe, share: 0.2}"), 2),
    "blocks, two proxies": ((*BLOCKS, "strategy=spp"), 3),
    "sessions, prototypes": ((*SESSIONS, "method=fcucr", "knowledge.top_k=3"), 2),
}
"""Experiments, and the round after which each is stopped."""


class Stopped(Exception):
    """As good as a kill: nothing in the run catches it."""


def simulated(overrides: tuple[str, ...], data: Path, out: Path) -> edgefr.Run:
    experiment = edgefr.load_experiment(overrides=list(overrides))
    options = {"data_dir": data, "bundles": False, "page": False, "checkpoint_every": 1}
    return edgefr.simulate(experiment, ROOT / "devices.yaml", out=out, **options)  # type: ignore[arg-type]


def stopped(overrides: tuple[str, ...], data: Path, out: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends when it has written its checkpoint of so many rounds."""
    real = checkpoint.write

    def write(folder: Path, rounds: int, state: dict[str, Any], belongs_to: str) -> None:
        real(folder, rounds, state, belongs_to)
        if rounds == after:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", write)
        with pytest.raises(Stopped):
            simulated(overrides, data, out)


def test_who_works_is_let_go_where_a_run_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Backend] = []

    def refused(*given: Any) -> str:
        raise InputError("of other data")

    monkeypatch.setattr(Backend, "close", lambda self: closed.append(self))
    monkeypatch.setattr("edgefr.simulation.runs.keeper.owner", refused)
    with pytest.raises(InputError, match="of other data"):
        simulated(LISTS, tmp_path, tmp_path / "run")
    assert len(closed) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_stopped_is_the_run_that_did_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, stop = KINDS[kind]
    data, out = write_visits(tmp_path / "data"), tmp_path / "stopped"
    whole = runs.result(simulated(overrides, data, tmp_path / "whole").path)
    stopped(overrides, data, out, stop, monkeypatch)
    assert not (out / "summary.json").exists()
    edgefr.resume(out, data_dir=data, bundles=False, page=False, warn=pytest.fail)
    assert runs.differences(out, whole) == []
