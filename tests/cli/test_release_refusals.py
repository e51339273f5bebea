"""What a release may hold: settings that would not mean what they print are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgefr
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError

COMMON = ["method=fedmf", "rounds=1", "model.dim=4", "data_options.users=30", "data_options.items=160"]
COMMON += ["data_options.interactions=12", "evaluation.full_ranking_users=0"]
NOISE = ["privacy.mechanism=laplace", "privacy.norm=l1", "privacy.clip=1", "privacy.sigma=1"]
EXAMPLES = ["privacy.examples.clip=0.5", "privacy.examples.sigma=2"]
ASYNC = ["fleet.rounds.policy=async", "fleet.rounds.buffer=5", "clients_per_round=10"]


def simulated(out: Path, *changes: str) -> Run:
    experiment = edgefr.load_experiment(overrides=[*COMMON, *changes])
    return edgefr.simulate(experiment, out=out, bundles=False, figures=False)


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
            "the server sees every prototype, so a sealed sum hides nobody",
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
