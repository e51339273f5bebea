"""Runs with noise: what of prototypes, grids and single interactions is counted, printed and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgefr
from edgefr.simulation.runs.run import Run
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.guarantee import Event
from tests.cli.commands import ROOT
from tests.cli.conftest import Cli
from tests.closeness import assert_same
from tests.noises import KEY
from tests.visits import USERS, write_visits

SMALL = ("data=retailrocket", "method=fcucr", "rounds=3", "model.dim=8", "model.length=5", "model.lr=0.01")
TINY = (*SMALL, "engine.shard_size=8", "aggregation.weights=uniform", "evaluation.full_ranking_users=0")
CALM = "fleet={dropout: 0, availability: null, battery: null, share: {laptop_x86: 1.0}, rounds: {over_select: 1.0}}"
QUIET = "model.asks_when_recommending=false"
LOCAL = ("privacy.trust=local", "privacy.clip=1", "privacy.mechanism=gaussian", "privacy.sigma=8", QUIET)
NOISED = Event("discrete-gaussian", multiplier=4.0, steps=1 << 16)
BOTH = "server, other clients (through fused answers)"


def privacy_of(folder: Path, *more: str) -> dict[str, Any]:
    experiment = edgefr.load_experiment(overrides=[*TINY, *more])
    data = write_visits(folder / "data")
    run = edgefr.simulate(experiment, data_dir=data, out=folder / "run", bundles=False, page=False)
    return run.summary["privacy"]


@pytest.mark.parametrize("order", ["received", "trained"])
def test_updates_and_prototypes_are_counted_and_composed(order: str, cli: Cli, tmp_path: Path) -> None:
    more = (*LOCAL, CALM, f"model.prototypes={order}", "knowledge.interval=2", "privacy.prototype_clip=0.5")
    found = privacy_of(tmp_path, *more)
    assert [(row["recipient"], row["releases"]) for row in found["composed"]] == [("server", 3), (BOTH, 2)]
    assert found["eps_guaranteed"] == pytest.approx(composed([(NOISED, 5)], 1e-5).epsilon, rel=1e-8)
    assert found["eps_guaranteed"] == pytest.approx(found["eps_planned"], rel=1e-9)
    assert (found["prototypes"]["clip"], found["prototypes"]["std"]) == (0.5, 4.0)
    assert found["releases_per_client"]["max"] == 5
    out = cli.done("privacy", tmp_path / "run", "--json")
    assert json.loads(out)["ledger"]["eps_guaranteed"] == found["eps_guaranteed"]


def test_noise_is_found_for_an_epsilon_and_a_budget_ends_before_it_is_exceeded(tmp_path: Path) -> None:
    asked = [value for value in LOCAL if "sigma" not in value]
    found = privacy_of(tmp_path / "a", *asked, CALM, "privacy.epsilon=8")
    assert 7.99 < found["eps_guaranteed"] <= 8
    two = composed([(NOISED, 4)], 1e-5).epsilon  # rounds: two releases each
    found = privacy_of(tmp_path / "b", *LOCAL, CALM, f"privacy.budget={two + 1e-3}")
    assert found["eps_guaranteed"] == pytest.approx(two, rel=1e-8)
    assert found["sat_out"] == {"clients": USERS, "times": USERS}


def test_without_a_mechanism_prototypes_and_their_readers_are_named(cli: Cli, tmp_path: Path) -> None:
    found = privacy_of(tmp_path, "model.receiver_noise=0.1")
    assert "a prototype of 8 values as it is, one more for every recommendation" in found["release"]
    assert found["recipients"] == "other clients (through fused answers), server"
    assert (found["eps_guaranteed"], found["eps_nominal"]) == ("inf", "inf")
    assert any("noise on received prototypes does not protect" in line for line in found["not_covered"])
    code, out, _ = cli("audit", tmp_path / "run", "--attacks", "sign-split,membership", "--json")
    report = json.loads(out)
    assert (code, {row["note"] for row in report["attacks"]}) == (
        0,
        {"it is about sets of items, and sasrec reads sessions"},
    )
    assert report["verdict"].startswith("this run's updates have no guarantee")
    text = " ".join(cli("privacy", tmp_path / "run")[1].replace("│", " ").split())
    assert "a prototype of 8 values as it is" in text


def test_the_papers_noise_runs_and_prints_its_epsilon(tmp_path: Path) -> None:
    paper = ("privacy.mechanism=paper-laplace", "privacy.trust=local", f"privacy.scale={0.6 / 2**0.5!r}")
    found = privacy_of(tmp_path, *paper)
    assert found["eps_nominal"] == pytest.approx(8.07, abs=5e-3)
    assert found["eps_guaranteed"] == "inf"
    assert found["prototypes"]["mechanism"] == "none"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((*LOCAL, "privacy.trust=central"), "privacy.trust: the server sees single prototypes, which noise on a sum"),
        ((*LOCAL, "model.asks_when_recommending=true"), "every recommendation would send one more prototype"),
        ((*LOCAL, "model.prototypes=trained", "model.query=next"), "model.query: one more prototype would leave"),
        ((*LOCAL, "privacy.mechanism=none", "privacy.sigma=null", "privacy.trust=central"), "single prototypes"),
        ((*LOCAL, "protocol.stream=cyclic"), "knowledge.replace: it tells the server which session comes back"),
        ((*LOCAL, "privacy.prototype_clip=0"), "privacy.prototype_clip"),
        ((*LOCAL, "privacy.prototype_clip=.inf"), "privacy.prototype_clip"),
        ((*LOCAL[:-1], "model.prototypes=none", "privacy.prototype_clip=1"), "no prototypes are sent: drop it"),
        ((QUIET, "privacy.prototype_clip=1"), "prototype_clip goes beside a clip of the update"),
        ((*LOCAL, "aggregation.weights=size"), "use uniform"),
    ],
)
def test_prototypes_that_would_not_mean_what_is_printed_are_refused(
    changes: tuple[str, ...], words: str, cli: Cli, tmp_path: Path
) -> None:
    chosen = [word for value in (*TINY, *changes) for word in ("--set", value)]
    line = cli.refused("simulate", "--data-dir", write_visits(tmp_path / "data"), *chosen, "--out", tmp_path / "run")
    assert words in line
    assert any(how in line for how in ("model.prototypes=none", "use", "drop", "set", "greater than 0"))


COMMON = ["method=fedmf", "rounds=1", "model.dim=4", "data_options.users=30", "data_options.items=160"]
COMMON += ["data_options.interactions=12", "evaluation.full_ranking_users=0"]
NOISE = ["privacy.mechanism=laplace", "privacy.norm=l1", "privacy.clip=1", "privacy.sigma=1"]
EXAMPLES = ["privacy.examples.clip=0.5", "privacy.examples.sigma=2"]
ASYNC = ["fleet.rounds.policy=async", "fleet.rounds.buffer=5", "clients_per_round=10"]


def simulated(out: Path, *changes: str) -> Run:
    experiment = edgefr.load_experiment(overrides=[*COMMON, *changes])
    return edgefr.simulate(experiment, out=out, bundles=False, page=False)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["privacy.project=1000000"], "a projection keeps 1 to 640 values, as many as the update has"),
        (["privacy.project=0"], "privacy.project"),
        (["privacy.tensors=[items]"], r"fedmf trains no shared tensor 'items' in rounds: \['item'\]"),
        (["privacy.tensors=[]"], "privacy.tensors"),
        (["privacy.tensors=[item]"], r"rounds of fedmf train no other shared tensor than \['item'\]: drop it"),
        (
            ["aggregation.optimiser=adam", "aggregation.optimises=tables", "aggregation.server_lr=0.5"],
            "rounds of fedmf train tables alone.*drop it",
        ),
        (["privacy.at_least=31"], "at_least 31 is more than the"),
        (["privacy.at_least=2", "privacy.trust=local"], "under local trust the server sees each upload"),
        (["privacy.at_least=2", "aggregation.rule=median"], "rule median sees every upload"),
        (["privacy.project=50", "aggregation.rule=median"], "which rule median does not take; use mean"),
        (["privacy.project=50", *ASYNC], "privacy.project needs rounds whose updates all weigh alike"),
        ([*NOISE, "privacy.grid_exponent=-40", "privacy.clip=1000"], r"steps of 2 \*\* -40, and an upload of 32-bit"),
        ([*NOISE, "privacy.grid_exponent=-50", "privacy.sigma=1e-9"], "too many steps of 2 .* -50 to be exact"),
        ([*NOISE, "privacy.mechanism=privunit"], "privacy.mechanism"),
        (
            ["method=fcucr", "model={}", "protocol.name=sessions", "model.prototypes=trained", "privacy.at_least=2"],
            "the server sees every prototype, so secure aggregation gives no anonymity",
        ),
        (
            [*NOISE, "privacy.mechanism=discrete-laplace", "privacy.sampler=opendp"],
            r"unknown sampler 'opendp' \(known: float, grid\)",
        ),
        ([*EXAMPLES, "engine.executor=processes"], "engine.executor: with privacy.examples clients learn one by one"),
        (
            [*EXAMPLES, "method=f3crec", "evaluation.full_ranking_users=9"],
            "privacy.examples: it is not counted over blocks",
        ),
        ([*EXAMPLES, "privacy.examples.sigma=0"], "privacy.examples.sigma"),
        ([*EXAMPLES, "privacy.examples.clip=0"], "privacy.examples.clip"),
        ([*EXAMPLES, "privacy.examples.epsilon=8"], "exactly one of sigma, epsilon; got both"),
        ([*EXAMPLES, "privacy.examples.noise=1"], "privacy.examples.noise"),
    ],
)
def test_what_would_not_mean_what_it_prints_is_refused(changes: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as refused:
        simulated(tmp_path / "run", *changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("trust", ["local", "central"])
def test_a_run_on_a_grid_of_some_projected_values_says_so(trust: str, tmp_path: Path) -> None:
    grid = ["privacy.sampler=grid", "privacy.grid_exponent=-8", f"privacy.trust={trust}"]
    held = ["privacy.project=40", *(["privacy.at_least=3"] if trust == "central" else [])]
    found = simulated(tmp_path / "run", *NOISE, *grid, *held).summary["privacy"]
    assert found["values"] == 40
    assert found["noise"]["mechanism"] == "discrete-laplace"
    assert found["clip"]["sensitivity"] == (2.0 if trust == "local" else 1.0)
    assert found["closed_rounds"] == 0
    assert found["release"].startswith("40 values, a public random projection of the update of all shared")


def test_rounds_that_wait_for_nobody_draw_on_a_grid_too(tmp_path: Path) -> None:
    """A late update's weight multiplies what its device drew, so the noise of every upload is weighted with it."""
    found = simulated(tmp_path / "run", *NOISE, "privacy.trust=local", *ASYNC).summary["privacy"]
    assert (found["noise"]["mechanism"], found["noise"]["where"]) == ("discrete-laplace", "each upload")


FEW_USERS = ("method=fedmf", "model.dim=4", "rounds=2", "data_options={users: 30, items: 200}")
NOISY = (*FEW_USERS, "fleet.share={speaker_512: 1.0}", "privacy.examples.clip=0.5", "privacy.examples.sigma=2")


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
            page=False,
            noise_key=KEY,
        )
        for name, size in (("a", 8), ("b", 8), ("c", 5))
    ]
    first, again, other = (run.read_tensors("model") for run in runs)
    for name in ("shared.item", "private.user"):
        assert first[name].equal(again[name])
        assert_same(other[name], first[name], name=name)  # sums are taken in another order
