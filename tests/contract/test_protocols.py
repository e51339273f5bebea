"""A protocol from somebody else's file works like those that ship; one that is not whole is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

import edgefr
from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.protocol import PROTOCOLS, ProtocolSettings
from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.data.splits.split import Which
from edgefr.experiment.experiment import Experiment
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.loop import Training
from edgefr.simulation.protocols.kinds import over_splits
from edgefr.simulation.protocols.protocol import RunProtocol
from edgefr.simulation.stages.leave_one_out import Local, Rounds
from edgefr.simulation.stages.stage import Stage
from privacy.errors import InputError

SMALL = ["method=fedmf", "rounds=2", "model.dim=4", "evaluation.k=[5]", "protocol.negatives=20"]
SIZE = ["data_options={users: 40, items: 110, interactions: 14}", "fleet.share={laptop_x86: 1.0}"]


class SwappedSettings(ProtocolSettings):
    """Leave-one-out whose validation and test items change places."""

    name: Literal["swapped"] = "swapped"
    negatives: int = Field(20, ge=1)
    rarely: bool = False


class OwnTests(Local):
    compared = (*Local.compared, "popularity once more")

    def references(self, run: Training, which: Which) -> dict[str, Scorer]:
        return {**super().references(run, which), "popularity once more": references.popularity(self.task)}


class Swapped(RunProtocol):
    name = "swapped"
    settings = SwappedSettings
    reads = frozenset({"items"})

    def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
        settings = experiment.protocol
        assert isinstance(settings, SwappedSettings)
        (s,) = LeaveOneOut(negatives=settings.negatives).apply(dataset, experiment.seed)
        tables = {"valid_candidates": s.test_candidates, "test_candidates": s.valid_candidates}
        swapped = replace(s, name="swapped", valid=s.test, test=s.valid, **tables)
        return Prepared(dataset, {"swapped": swapped}, f"swapped, rarely {settings.rarely}")

    def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
        rounds, local = over_splits(experiment, prepared)
        return rounds, OwnTests(local.task, 0, experiment.rounds, learned_on="swapped")


def ran(folder: Path, *overrides: str, bundles: bool = False) -> dict[str, Any]:
    made = edgefr.load_experiment(overrides=[*SMALL, *SIZE, *overrides])
    edgefr.simulate(made, out=folder, bundles=bundles, page=False)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def test_a_protocol_of_ones_own_runs_to_bundles(tmp_path: Path) -> None:
    usual = ran(tmp_path / "usual", "evaluation.curve_ranking=sampled")  # as the references that it is compared with
    with PROTOCOLS.having(Swapped()):
        found = ran(tmp_path / "run", "protocol.name=swapped", "protocol.rarely=true", bundles=True)
        assert edgefr.load_experiment(tmp_path / "run" / "experiment.yaml").protocol.entry.name == "swapped"
    assert found["protocol"] == "swapped, rarely True"
    asked = usual["validation"]["main"]["popularity"]
    compared = found["references"]["swapped"]
    assert compared["popularity"] == compared["popularity once more"] == pytest.approx(asked)
    assert found["stages"]["swapped"].keys() == {"federated"}
    assert found["metrics"]
    assert found["bundles"]
    with pytest.raises(
        InputError, match=r"unknown protocol 'swapped' \(known: blocks, cross-domain, holdout, leave-one-out"
    ):
        ran(tmp_path / "gone", "protocol.name=swapped")


def test_what_it_does_not_say_it_can_is_refused() -> None:
    with PROTOCOLS.having(Swapped()):
        for changes, why in (
            (["method=sasrec"], r"sasrec learns from sessions: set protocol.name=sessions$"),
            (["method=fedmf", "strategy=kd"], r"kd keeps knowledge between blocks: set protocol.name=blocks$"),
            (["method=fedmf", "aggregation.rule=temporal-mean"], "temporal-mean looks back a block"),
            (["method=fedmf", "continual.patience=3"], "belongs to protocol blocks, and protocol is swapped"),
            (["method=fedmf", "protocol.gap_minutes=3"], "gap_minutes belongs to sessions, and name is swapped"),
            (["method=fedmf", "fidelity=released"], "methods whose released code differs"),
            (["method=fedmf", "privacy.examples={clip: 1.0, sigma: 1.0}"], "it is not counted over swapped"),
        ):
            with pytest.raises(InputError, match=why):
                edgefr.load_experiment(overrides=["protocol.name=swapped", *changes])
        with pytest.raises(InputError, match=r"rarely belongs to swapped, and name is leave-one-out"):
            edgefr.load_experiment(overrides=["method=fedmf", "protocol.rarely=true"])


def test_one_that_shares_a_setting_is_among_its_owners() -> None:
    class Continual(Swapped):
        own = ("continual",)
        hands_on = True

    with PROTOCOLS.having(Continual()):
        made = edgefr.load_experiment(overrides=["method=fedmf", "protocol.name=swapped", "strategy=kd"])
        assert made.strategy == "kd"
        with pytest.raises(InputError, match="belongs to protocol blocks or swapped, and protocol is leave-one-out"):
            edgefr.load_experiment(overrides=["method=fedmf", "continual.patience=3"])


def test_a_protocol_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    class Silent(RunProtocol):
        name = "silent"
        settings = SwappedSettings

        def cut(self, experiment: Experiment, dataset: Dataset) -> Prepared:
            raise AssertionError

        def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
            raise AssertionError

    class Twice(Swapped):
        def stages(self, experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
            return (Rounds(prepared.train_split, 1), *over_splits(experiment, prepared))

    with pytest.raises(TypeError, match="abstract"):
        type("Stageless", (RunProtocol,), {"name": "stageless", "settings": SwappedSettings, "cut": Swapped.cut})()
    with pytest.raises(TypeError, match="a protocol says its reads, and Silent does not"):
        PROTOCOLS.register(Silent())
    with PROTOCOLS.having(Twice()), pytest.raises(TypeError, match="speaks of 1 stages with rounds and makes 2"):
        ran(tmp_path / "run", "protocol.name=swapped")
