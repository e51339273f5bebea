"""What can be refused is refused before round 1, and whoever asks for a run's privacy later gets the same plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import edgefr
from edgefr.serving.training import plan_of
from edgefr.simulation import bundles as shipping
from edgefr.simulation import simulate as pipeline
from edgefr.simulation.loop import Training
from edgefr.simulation.resolve import Releases
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.target import AttackTarget
from export.variants import NoBundle
from privacy.errors import InputError

WAITS_FOR_NOBODY = ("fleet.rounds.policy=async", "fleet.rounds.buffer=9", "clients_per_round=0.05")


SMALL = (
    "data_options={users: 60, items: 160, interactions: 12}",
    "rounds=2",
    "evaluation.k=[5, 10]",
    "fleet.share={laptop_x86: 1.0}",
)


def small(*overrides: str) -> edgefr.Experiment:
    """An experiment of 60 users, of whom a server step takes 3, or what an asynchronous fleet buffers."""
    model = () if any(text.startswith("method=") for text in overrides) else ("method=fedmf", "model.dim=4")
    return edgefr.load_experiment(overrides=[*SMALL, *model, *overrides])


def test_a_run_that_waits_for_nobody_is_planned_and_finished_and_read_by_its_buffer(tmp_path: Path) -> None:
    """Its server steps take 9 updates, and 3 clients a round; only the plan before round 1 knew that."""
    asked = small(*WAITS_FOR_NOBODY, "privacy.at_least=5")
    run = edgefr.simulate(asked, out=tmp_path / "run", page=False)
    assert [row["class"] for row in run.summary["bundles"]] == ["laptop_x86"]
    assert run.summary["privacy"]["at_least"] == 5
    clients = 60
    for plan in (
        Releases.of_run(run, clients).plan(run.experiment),
        plan_of(run, clients, 2),
        AttackTarget.open(run).plan,
    ):
        assert plan.cohort == 9
    edgefr.export(run, tmp_path / "shipped")
    assert (tmp_path / "shipped" / "laptop_x86" / "manifest.json").is_file()


def test_a_buffer_below_at_least_is_refused_before_round_1(tmp_path: Path) -> None:
    asked = small(*WAITS_FOR_NOBODY, "privacy.at_least=10")
    with pytest.raises(InputError, match="at_least 10 is more than the 9 clients of a round"):
        edgefr.simulate(asked, out=tmp_path / "run", page=False)
    assert not (tmp_path / "run").exists()


def test_a_rule_over_one_broadcast_is_refused_before_round_1_where_nobody_is_waited_for(tmp_path: Path) -> None:
    asked = small("method=gpfedrec", *WAITS_FOR_NOBODY)
    with pytest.raises(InputError, match="one broadcast: use another fleet"):
        edgefr.simulate(asked, out=tmp_path / "run", bundles=False, page=False)
    assert not (tmp_path / "run").exists()


def test_whatever_is_refused_once_rounds_are_done_leaves_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_fits(run: Run, **options: object) -> None:
        raise NoBundle("no bundle for device class laptop_x86")

    monkeypatch.setattr(shipping, "export_run", nothing_fits)
    run = edgefr.simulate(small(), out=tmp_path / "run")
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["no_bundles"] == "no bundle for device class laptop_x86"
    assert summary["bundles"] == []
    assert "NDCG@10" in summary["metrics"]
    assert (run.path / "report.html").is_file()


PROTOCOLS = {
    "leave-one-out": (),
    "blocks": ("protocol.name=blocks", "protocol.min_interactions=3", "protocol.increments=2"),
    "sessions": ("method=fcucr", "model={dim: 4, length: 4}", "protocol.gap_minutes=40000", "protocol.negatives=30"),
    "nobody waits": WAITS_FOR_NOBODY,
}
NOISES = {
    "none": (),
    "central": ("privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.epsilon=8"),
    "local": (
        "privacy.mechanism=laplace",
        "privacy.norm=l1",
        "privacy.trust=local",
        "privacy.clip=0.5",
        "privacy.scale=1",
    ),
    "DP-SGD": ("privacy.examples={clip: 1.0, sigma: 1.0}",),
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("noise", NOISES)
def test_nothing_is_refused_after_the_first_round(
    protocol: str, noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole run with bundles, figures and page: refused before its first round, or not at all."""
    begun = []
    train = Training.train

    def noted(self: Training, *arguments: object, **options: object) -> None:
        begun.append(True)
        train(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Training, "train", noted)
    try:
        asked = small(*PROTOCOLS[protocol], *NOISES[noise])
        run = pipeline.simulate(asked, out=tmp_path / "run")
    except InputError:
        assert not begun
        assert not (tmp_path / "run").exists()
    else:
        assert run.summary["bundles"] or run.summary.get("no_bundles")
