"""Whole runs whose rounds wait for no one: like a server that waits where nobody is late, the same whoever does the
work, and the same after a kill."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgefr.engine.federation import Federation
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet import Fleet, StepOutcome
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from tests.cli.commands import ROOT, environment, refused
from tests.cli.conftest import Cli, cli, inside
from tests.closeness import assert_all_same
from tests.durable import runs
from tests.durable.test_checkpoint import same
from tests.durable.test_state import begun, kept, untimed

__all__ = ["cli", "inside"]  # fixtures that are used here too

SMALL = (
    "method=fedmf",
    "data_options={users: 60, items: 160, interactions: 12}",
    "rounds=6",
    "model={dim: 4}",
    "engine.shard_size=16",
)
BLOCKS = (
    "method=f3crec",
    "strategy=f3crec",
    "data_options={users: 40, items: 100, interactions: 25}",
    "protocol={name: blocks, min_interactions: 2, increments: 2}",
    "rounds=3",
    "model={dim: 4}",
    "engine.shard_size=16",
)
CALM = "fleet={dropout: 0, availability: null, battery: null, share: {laptop_x86: 0.5, speaker_512: 0.5}, rounds: %s}"
ASYNC = (
    "clients_per_round=8",
    "fleet={rounds: {policy: async, concurrency: 25, max_staleness: 4}, share: {laptop_x86: 0.4, speaker_512: 0.6}}",
)


def ran(*overrides: str, executor: str = "inline") -> tuple[Any, list[Any]]:
    """A whole simulation and its log."""
    experiment = load_experiment(overrides=[*overrides, f"engine.executor={executor}"])
    log: list[Any] = []
    simulation = begun(experiment, prepare(experiment, None, "cpu", None), log)
    try:
        simulation.train()
    finally:
        simulation.federation.backend.close()
    return simulation, log


@pytest.mark.parametrize(
    "privacy", ["privacy={mechanism: none}", "privacy={mechanism: laplace, clip: 0.5, scale: 0.1}"]
)
def test_with_everybody_asked_and_nobody_late_it_is_the_server_that_waits(privacy: str) -> None:
    """All 60 clients work on every round; fast ones wait for slow ones in the buffer, so nobody is ever stale."""
    rules = "{policy: %s, over_select: 1.0, min_fraction: 0.0}"
    whole = [*SMALL, "clients_per_round=1.0", privacy]
    waits, _ = ran(*whole, CALM % (rules % "deadline"))
    buffered, log = ran(*whole, CALM % (rules % "async"))
    assert_all_same(buffered.federation.shared, waits.federation.shared)
    assert all(float(value.std()) > 0 for value in waits.federation.shared.values())
    assert_all_same(buffered.federation.private, waits.federation.private)
    assert buffered.measured.table() == waits.measured.table()
    assert buffered.fleet.now == pytest.approx(waits.fleet.now)
    assert buffered.fleet.summary()["staleness"]["max"] == 0
    assert {event["kind"] for event in log} == {"started", "invited", "uploaded", "closed"}


def test_stale_updates_are_what_makes_the_difference() -> None:
    """The same run with a buffer of 8 and 25 at work: updates are late, and how they are weighted decides the model."""
    runs_ = [ran(*SMALL, *ASYNC, f"fleet.rounds.staleness_power={power}")[0] for power in (0.0, 0.5, 0.5)]
    assert runs_[0].fleet.summary()["staleness"]["mean"] > 0.5
    assert runs_[0].fleet.summary()["staleness"] == runs_[1].fleet.summary()["staleness"]
    item = [run.federation.shared["item"] for run in runs_]
    assert float((item[0] - item[1]).abs().max()) > 1e-4
    assert torch.equal(item[1], item[2])
    assert runs_[0].participation.broadcasts == {}


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_an_old_update_counts_less_and_starts_from_its_broadcast(power: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """FedBuff §5.1: an update that is t aggregates old weighs (1 + t)^-power, in the round that it started in."""
    outs, participation, broadcasts = [], [], []
    step, train = Fleet.step, Federation.round

    def stepped(self: Fleet, *given: Any) -> StepOutcome:
        outs.append(step(self, *given))
        return outs[-1]

    def trained(self: Federation, number: int, cohort: Any, *given: Any) -> None:
        participation.append({client: (g.number, g.weight) for g in cohort for client in g.clients.tolist()})
        broadcasts.append(dict(self.shared))  # every round makes an aggregate, so this is of as many as there were
        versions = dict(zip(outs[-1].clients.tolist(), outs[-1].versions.tolist(), strict=True))
        for group in cohort:
            assert_all_same(group.shared, broadcasts[versions[int(group.clients[0])]])
        train(self, number, cohort, *given)

    monkeypatch.setattr(Fleet, "step", stepped)
    monkeypatch.setattr(Federation, "round", trained)
    ran(*SMALL, *ASYNC, f"fleet.rounds.staleness_power={power}")
    assert len(outs) == len(participation) == 6
    for out, cohort in zip(outs, participation, strict=True):
        weights = ((1.0 + out.staleness) ** -power).tolist()
        began = zip(out.rounds.tolist(), weights, strict=True)
        assert cohort == dict(zip(out.clients.tolist(), began, strict=True))
    assert max(out.staleness.max() for out in outs) > 0


def test_only_broadcasts_in_use_are_kept_and_nobody_is_in_a_round_twice() -> None:
    experiment = load_experiment(overrides=[*SMALL, *ASYNC, "rounds=12"])
    simulation = begun(experiment, prepare(experiment, None, "cpu", None), [])
    sizes = []

    def boundary(run: Training) -> None:
        sizes.append(len(simulation.participation.broadcasts))
        assert set(simulation.participation.broadcasts) == simulation.fleet.versions
        assert simulation.federation.counters.participation.max() <= run.rounds

    simulation.train([boundary])
    assert 1 <= max(sizes) <= 12
    assert simulation.federation.counters.clients == 12 * 8


def test_worker_processes_come_to_the_same_bits() -> None:
    inline, log = ran(*BLOCKS, *ASYNC)
    workers, same_log = ran(*BLOCKS, *ASYNC, executor="processes")
    assert log == same_log
    assert len({event["round"] for event in log if event["kind"] == "uploaded" and event["staleness"]}) > 1
    for name, value in inline.federation.shared.items():
        assert torch.equal(workers.federation.shared[name], value)


def test_one_client_at_a_time_comes_to_the_same_numbers() -> None:
    inline, alone = (ran(*SMALL, *ASYNC, executor=executor)[0] for executor in ("inline", "debug"))
    assert_all_same(alone.federation.shared, inline.federation.shared)


@pytest.mark.parametrize(
    "changes",
    [
        (*SMALL, *ASYNC),
        (*SMALL, *ASYNC, "privacy={mechanism: gaussian, clip: 0.5, sigma: 1}"),
        (*BLOCKS, *ASYNC),
        (*BLOCKS, *ASYNC, "aggregation.rule=median"),
    ],
    ids=["plain", "noise", "blocks", "blocks, median"],
)
def test_every_round_can_be_the_last_before_a_stop(changes: tuple[str, ...], tmp_path: Path) -> None:
    experiment = load_experiment(overrides=changes)
    prepared = prepare(experiment, None, "cpu", None)
    log: list[Any] = []
    whole = begun(experiment, prepared, log)
    states: dict[int, dict[str, Any]] = {}
    lengths: dict[int, int] = {}

    def boundary(run: Training) -> None:
        states[run.rounds], lengths[run.rounds] = kept(run, tmp_path), len(log)

    whole.train([boundary])
    assert any(state["participation"]["broadcasts"] for state in states.values())
    expected = untimed(kept(whole, tmp_path))
    for rounds in sorted(states):
        again: list[Any] = log[: lengths[rounds]]
        resumed = begun(experiment, prepared, again)
        resumed.restore(states[rounds])
        resumed.train()
        assert again == log
        found = untimed(kept(resumed, tmp_path))
        assert [name for name in expected if not same(found[name], expected[name])] == []


def test_at_the_end_of_a_block_everybody_stops_and_the_next_one_starts_anew() -> None:
    simulation, log = ran(*BLOCKS, *ASYNC)
    ends = [event for event in log if event["kind"] == "dismissed"]
    assert {event["round"] for event in ends} == {3, 6, 9}
    started = [event for event in log if event["kind"] == "started"]
    assert [event["at_work"] for event in started if event["round"] in (1, 4, 7)] == [0, 0, 0]
    assert all(event["at_work"] > 0 for event in started if event["round"] in (2, 5, 8))
    assert len(simulation.done) == 3


def test_thrown_away_uploads_are_releases_where_the_server_is_the_adversary() -> None:
    """Local noise: what the server saw counts, aggregated or not. Central: only aggregates are seen."""
    stale = "fleet.rounds.max_staleness=0"
    seen = {}
    for trust in ("local", "central"):
        noise = f"privacy={{mechanism: laplace, trust: {trust}, clip: 0.5, scale: 0.1}}"
        simulation, log = ran(*SMALL, *ASYNC, stale, noise)
        thrown = simulation.fleet.summary()["failures"]["stale"]
        assert thrown > 5
        seen[trust] = int(simulation.federation.counters.participation.sum())
        uploads = sum(event["kind"] == "uploaded" for event in log)
        assert simulation.federation.counters.participation.max() <= 6
        assert seen[trust] == (uploads if trust == "local" else uploads - thrown)


def test_only_who_has_the_frozen_tables_need_not_fetch_them_again() -> None:
    """A client that was away when it was asked still has to fetch them, whatever the policy."""
    for rounds in ("{policy: deadline}", "{policy: async}"):
        more = ("clients_per_round=0.5", f"fleet.rounds={rounds}", "fleet.dropout=0.3")
        simulation, log = ran(*SMALL, *more)
        fine = {e["client"] for e in log if e["kind"] in ("downloaded", "uploaded")}
        met = set(np.flatnonzero(simulation.participation.met).tolist())
        assert fine <= met
        refused_ = {e["client"] for e in log if e["kind"] == "refused"}
        lost = {e["client"] for e in log if e["kind"] in ("lost", "dismissed")}
        never = refused_ - fine - lost
        assert never
        assert not never & met


ASYNC_RUN = """\
name: durable-async
method: fedmf
data_options: {users: 60, items: 160, interactions: 12}
rounds: 4
model: {dim: 4}
clients_per_round: 8
fleet:
  share: {laptop_x86: 0.4, speaker_512: 0.6}
  rounds: {policy: async, concurrency: 25}
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run killed at five moments of its life, and resumed each time."""
    place = tmp_path_factory.mktemp("async")
    (place / "async.yaml").write_text(ASYNC_RUN)
    arguments = ["--experiment", str(place / "async.yaml"), "--no-bundles", "--checkpoint-every", "1"]
    arguments += ["--devices", str(runs.write_fleet(place / "devices.yaml"))]
    job = {"name": "async", "arguments": arguments, "moments": 4, "timed": 1, "each_kind": False}
    done = subprocess.run(
        [sys.executable, "-m", "tests.durable.driver", str(place / "jobs")],
        input=json.dumps([job]),
        cwd=ROOT,
        env=environment(place / "cache") | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((place / "jobs" / "report.json").read_text())["async"]


def test_a_killed_run_comes_to_the_same_end(report: dict[str, Any]) -> None:
    expected = runs.result(Path(report["whole"]))
    assert runs.differences(Path(report["again"]), expected) == []
    assert len(report["runs"]) >= 5
    for run in report["runs"]:
        assert runs.differences(Path(run["out"]), expected) == [], run
    events = [json.loads(line) for line in (Path(report["whole"]) / "events.jsonl").read_text().splitlines()]
    ages = [event["staleness"] for event in events if event["kind"] == "uploaded"]
    assert max(ages) >= 1
    assert np.isin(["invited", "uploaded", "dismissed"], [event["kind"] for event in events]).all()


def test_the_policy_is_chosen_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    """The one way to override the fleet: --set fleet.<field>, and --set fleet.rounds.<field> for the round policy."""
    options = [part for change in SMALL for part in ("--set", change)]
    options += ["--set", "clients_per_round=10", "--no-bundles", "--full", "--out", str(tmp_path / "run")]
    line = refused(*cli("simulate", *options, "--set", "fleet.rounds.buffer=5"))
    assert "rounds.buffer: belongs to policy async, and policy is deadline: drop it, or set policy=async" in line
    code, out, err = cli("simulate", *options, "--set", "fleet.rounds.policy=async", "--set", "fleet.rounds.buffer=5")
    assert (code, err) == (0, "")
    assert "each to a full buffer" in out
    assert "model quality by device class" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["fleet"]["policy"] == "async"
    assert summary["fleet"]["contributed"] == 6 * 5
