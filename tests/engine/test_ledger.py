"""The ledger of a run: charged before a release, kept within the budget, in the summary and in the run's folder."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet.devices import REFUSALS
from edgefr.simulation.prepare import prepare
from edgefr.simulation.summary.summary import summarise
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.guarantee import Event
from tests.cli.commands import refused
from tests.cli.conftest import Cli, cache, cli, inside, place
from tests.durable.test_state import BLOCKS, begun

__all__ = ["cache", "cli", "inside", "place"]  # fixtures that are used here too

DELTA = 1e-5
SMALL = (
    "method=fedmf",
    "data_options={users: 60, items: 160, interactions: 12}",
    "rounds=6",
    "model={dim: 4}",
    "clients_per_round=0.5",
    "engine.shard_size=16",
)
STEPS = 1 << 15  # of the grid in a clip of 0.5, a power of two
NOISED = Event("discrete-gaussian", multiplier=4.0 / math.sqrt(1 + 2 / 20**2), steps=STEPS)
ONE, TWO, THREE, SIX = (composed([(NOISED, count)], DELTA).epsilon for count in (1, 2, 3, 6))  # .929, 1.360, 1.700
NOISE = "privacy={mechanism: gaussian, clip: 0.5, sigma: 4%s}"
BUDGET = NOISE % ", budget: 1.6"  # two releases
CALM = "fleet={dropout: 0, availability: null, battery: null, share: {laptop_x86: 1.0}, rounds: {over_select: 1.0}}"
RESTLESS = "fleet={dropout: 0.3, share: {laptop_x86: 0.4, phone_sd680: 0.3, speaker_512: 0.3}, rounds: %s}"
SYNC, ASYNC = RESTLESS % "{over_select: 1.3}", RESTLESS % "{policy: async, concurrency: 20, max_staleness: 1}"


def ran(*overrides: str) -> tuple[Any, list[Any]]:
    """A trained simulation and its log."""
    experiment = load_experiment(overrides=list(overrides))
    log: list[Any] = []
    simulation = begun(experiment, prepare(experiment, None, "cpu", None), log)
    simulation.train()
    return simulation, log


def test_a_cohort_is_charged_and_whoever_has_spent_the_budget_sits_out() -> None:
    """In a fleet in which nobody fails, releases follow from the participation that are drawn."""
    simulation, _ = ran(*SMALL, BUDGET, CALM)
    drawn = Counter[int]()
    for number in range(1, 7):
        drawn.update(simulation.federation.cohort(number, simulation.clients, 30).tolist())
    ledger = simulation.participation.ledger
    assert ledger.releases().tolist() == [min(drawn[client], 2) for client in range(60)]
    assert ledger.refused().tolist() == [max(drawn[client] - 2, 0) for client in range(60)]
    assert ledger.refused().sum() > 20
    assert simulation.federation.counters.participation.tolist() == ledger.releases().tolist()
    np.testing.assert_allclose(np.unique(ledger.epsilon())[-2:], [ONE, TWO], rtol=1e-9)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_all_that_start_are_charged_and_those_who_refuse_are_not(trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started, refusals = Counter[int](), 0
    from edgefr.fleet import Fleet

    real = Fleet.round

    def watched(self: Fleet, number: int, cohort: Any, work: Any) -> Any:
        nonlocal refusals
        outcome = real(self, number, cohort, work)
        refuses = np.isin(outcome.failure, REFUSALS)
        started.update(np.asarray(cohort)[~refuses].tolist())
        refusals += int(refuses.sum())
        return outcome

    monkeypatch.setattr(Fleet, "round", watched)
    simulation, _ = ran(*SMALL, NOISE % f", trust: {trust}", SYNC)
    released = simulation.participation.ledger.releases()
    assert released.tolist() == [started[client] for client in range(60)]
    took_part = simulation.federation.counters.participation
    assert (released >= took_part).all()
    assert released.sum() > took_part.sum(), "nobody was lost on the way, so the fleet is not what is tested"
    assert refusals > 0


@pytest.mark.parametrize("budget", [math.inf, 1.6])
def test_rounds_that_wait_for_no_one_charge_whoever_is_invited(budget: float) -> None:
    """The log says who was invited, whatever became of it and in whichever round."""
    simulation, log = ran(*SMALL, NOISE % ("" if budget == math.inf else f", budget: {budget}"), ASYNC)
    invited = Counter(event["client"] for event in log if event["kind"] == "invited")
    ledger = simulation.participation.ledger
    assert ledger.releases().tolist() == [invited[client] for client in range(60)]
    outcomes = {event["kind"] for event in log}
    assert {"lost", "uploaded"} <= outcomes
    assert simulation.fleet.summary()["staleness"]["max"] == 1
    assert (ledger.epsilon() <= budget).all()
    if budget == math.inf:
        assert (ledger.releases() > 2).any(), "the budget would not bind"
    else:
        assert ledger.releases().max() == 2
        assert (ledger.releases()[ledger.refused() > 0] == 2).all()
        assert (ledger.refused() > 0).any()


@pytest.mark.parametrize("fleet", [RESTLESS % "{over_select: 1.3, deadline_s: 3}", ASYNC], ids=["deadline", "async"])
def test_an_upload_that_was_thrown_away_was_seen_where_the_server_is_the_adversary(
    fleet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgefr.fleet import Failure, Fleet

    ended = Counter[str]()

    def noting(real: Any) -> Any:
        def call(self: Fleet, *given: Any) -> Any:
            out = real(self, *given)
            ended.update(Failure(code).name for code in out.failure.tolist())
            return out

        return call

    for name in ("round", "step", "adjourn"):
        monkeypatch.setattr(Fleet, name, noting(getattr(Fleet, name)))
    thrown = ("STALE", "VOID") if fleet == ASYNC else ("VOID",)
    for trust in ("local", "central"):
        ended.clear()
        simulation, _ = ran(*SMALL, NOISE % f", trust: {trust}", fleet)
        seen = sum(ended[kind] for kind in ("OK", *(thrown if trust == "local" else ())))
        assert simulation.federation.counters.participation.sum() == seen
        assert min(ended[kind] for kind in thrown[:1]) > 0, ended


@pytest.mark.parametrize("fleet", [SYNC, ASYNC], ids=["deadline", "async"])
def test_a_release_is_charged_before_anything_is_trained(fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgefr.engine.federation import Federation

    def fails(*given: Any) -> None:
        raise RuntimeError("the power went")

    monkeypatch.setattr(Federation, "round", fails)
    experiment = load_experiment(overrides=[*SMALL, NOISE % "", fleet])
    simulation = begun(experiment, prepare(experiment, None, "cpu", None), [])
    with pytest.raises(RuntimeError, match="the power went"):
        simulation.train()
    assert simulation.participation.ledger.releases().sum() >= 10


def test_who_is_still_at_work_when_all_others_have_spent_their_budget_is_waited_for() -> None:
    """Rounds of 25 with 35 at work: after two of them ten are at work, nobody else may be asked, and ten are enough."""
    fleet = CALM.replace("over_select: 1.0", "policy: async, concurrency: 35, max_staleness: 9")
    simulation, log = ran(*SMALL, "rounds=3", "clients_per_round=25", NOISE % ", budget: 1.1", fleet)  # one release
    assert simulation.participation.ledger.releases().tolist() == [1] * 60
    assert [e["outcomes"] for e in log if e["kind"] == "closed"] == [{"ok": 25}, {"ok": 25}, {"ok": 10}]
    assert simulation.federation.counters.participation.tolist() == [1] * 60


@pytest.mark.parametrize("policy", ["deadline", "async"])
def test_when_all_have_spent_their_budget_the_model_stays_as_it_is(policy: str) -> None:
    fleet = CALM.replace("over_select: 1.0", f"over_select: 1.0, policy: {policy}")
    once = NOISE % ", budget: 1.1"  # one release
    simulation, _ = ran(*SMALL, "clients_per_round=1.0", once, fleet)
    ledger = simulation.participation.ledger
    assert ledger.releases().tolist() == [1] * 60
    assert ledger.refused().tolist() == [5] * 60
    alone, _ = ran(*SMALL, "clients_per_round=1.0", "rounds=1", once, fleet)
    for name, value in alone.federation.shared.items():
        assert value.equal(simulation.federation.shared[name])


@pytest.mark.parametrize(
    "privacy",
    [
        "{mechanism: none}",
        "{clip: 0.5}",
        "{mechanism: paper-laplace, scale: 0.1}",
        "{mechanism: gaussian, clip: 1, epsilon: .inf}",
    ],
)
def test_where_nothing_is_guaranteed_nothing_is_counted(privacy: str, tmp_path: Path) -> None:
    experiment = load_experiment(overrides=[*SMALL, "rounds=1", f"privacy={privacy}"])
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False, checkpoint_every=1)
    assert not (run.path / "ledger.parquet").exists()
    found = run.summary["privacy"]
    assert (found["eps_guaranteed"], found["eps_planned"], found["sat_out"]) == ("inf", "inf", None)


@pytest.mark.usefixtures("inside")
def test_summary_file_and_command_tell_of_the_same_releases(tmp_path: Path, cli: Cli) -> None:
    experiment = load_experiment(overrides=[*SMALL, "clients_per_round=1.0", BUDGET, CALM])
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    found = run.summary["privacy"]
    assert found["eps_guaranteed"] == pytest.approx(TWO, rel=1e-9)
    assert found["eps_planned"] == pytest.approx(SIX, rel=1e-9)
    assert (found["budget"], found["sat_out"]) == (1.6, {"clients": 60, "times": 240})
    assert found["releases_per_client"] == {"max": 2, "median": 2.0}
    assert (found["amplification"], found["composed"][0]["releases"]) == ("none", 2)
    code, out, err = cli("privacy", run.path, "--json")
    assert (code, err) == (0, "")
    ledger = json.loads(out)["ledger"]
    assert ledger["eps_guaranteed"] == found["eps_guaranteed"]
    assert (ledger["clients_refused"], ledger["refusals"]) == (60, 240)
    assert "60 of 60 clients, 240 times; budget 1.6" in " ".join(cli("privacy", run.path)[1].replace("│", " ").split())


def test_two_recipients_are_two_entries_and_their_epsilons_are_composed() -> None:
    simulation, _ = ran(*SMALL, "clients_per_round=1.0", "rounds=2", NOISE % "", CALM)
    simulation.participation.ledger.spend([7], replace(NOISED, recipient="another client"))
    found = summarise(simulation, {}, 1.0, 1.0, [])["privacy"]
    assert [(row["recipient"], row["releases"]) for row in found["composed"]] == [("server", 2), ("another client", 1)]
    assert found["recipients"] == "another client, server"
    assert found["eps_guaranteed"] == pytest.approx(THREE, rel=1e-9)


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ("{budget: 1}", "a budget needs a clip and noise"),
        ("{clip: 1, budget: 1}", "a budget needs a clip and noise"),
        ("{mechanism: laplace, scale: 1, budget: 1}", "a budget needs a clip and noise"),
        ("{mechanism: gaussian, clip: 1, epsilon: .inf, budget: 1}", "a budget needs a clip and noise"),
        ("{mechanism: gaussian, clip: 1, sigma: 4, budget: 0}", "greater than 0"),
        ("{mechanism: gaussian, clip: 1, sigma: 4, budget: .nan}", "budget"),
        ("{mechanism: gaussian, clip: 1, sigma: 4, budget: .inf}", "budget"),
        (
            "{mechanism: gaussian, clip: 1, sigma: 4, budget: 0.9}",
            "nobody could take part with a privacy.budget of 0.9",
        ),
    ],
)
@pytest.mark.usefixtures("inside")
def test_budgets_that_cannot_be_kept_are_refused_in_one_line(
    privacy: str, message: str, tmp_path: Path, cli: Cli
) -> None:
    options = [part for change in (*SMALL, f"privacy={privacy}") for part in ("--set", change)]
    assert message in refused(*cli("simulate", *options, "--no-bundles", "--out", tmp_path / "run"))


def test_without_a_budget_everybody_is_charged_and_nobody_sits_out() -> None:
    simulation, _ = ran(*SMALL, NOISE % "", CALM)
    ledger = simulation.participation.ledger
    assert (int(ledger.releases().sum()), int(ledger.refused().sum())) == (6 * 30, 0)


def test_blocks_have_one_budget() -> None:
    """Three blocks of three rounds: a client that is in the first has nothing left for the others."""
    blocks = [*BLOCKS, "method=f3crec", "strategy=f3crec", "clients_per_round=1.0", "continual.patience=3", CALM]
    simulation, _ = ran(*blocks, NOISE % ", budget: 1.9")  # three releases
    asked = np.zeros(40, int)
    for block in simulation.prepared.blocks:
        asked[block.users("train")] += 3
    assert len(simulation.prepared.blocks) == 3
    assert len(np.unique(asked)) > 1
    assert simulation.participation.ledger.releases().tolist() == np.minimum(asked, 3).tolist()
    assert simulation.participation.ledger.refused().tolist() == np.maximum(asked - 3, 0).tolist()


@pytest.mark.usefixtures("inside")
def test_a_run_without_rounds_has_an_empty_ledger(tmp_path: Path, cli: Cli) -> None:
    experiment = load_experiment(overrides=[*SMALL, "rounds=0", BUDGET])
    run = edgefr.simulate(experiment, out=tmp_path / "run", bundles=False, page=False)
    assert (run.path / "ledger.parquet").is_file()
    assert run.summary["privacy"]["eps_guaranteed"] == 0
    code, out, err = cli("privacy", run.path, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ledger"]["eps_guaranteed"] == 0


def test_who_does_the_work_does_not_matter() -> None:
    columns = []
    for executor in ("inline", "debug"):
        simulation, _ = ran(*SMALL, "rounds=3", BUDGET, SYNC, f"engine.executor={executor}")
        columns.append(simulation.participation.ledger.columns())
    assert columns[0].keys() == columns[1].keys()
    assert all(np.array_equal(columns[0][name], columns[1][name]) for name in columns[0])


def test_a_ledger_of_other_settings_is_refused() -> None:
    simulation, _ = ran(*SMALL, "rounds=1", BUDGET, CALM)
    other, _ = ran(*SMALL, "rounds=1", NOISE % ", budget: 1.5", CALM)
    with pytest.raises(InputError, match=r"its budget is '1\.6', here '1\.5'"):
        other.participation.restore(simulation.participation.state())
