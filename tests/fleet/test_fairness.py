"""Fairness by device class: literal means, and a world where the slow are left behind."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from edgefr.experiment.experiment import load_experiment
from edgefr.report.fairness import fairness_table, over_runs
from edgefr.report.small_groups import FEWEST, tellable
from edgefr.simulation.prepare import prepare
from edgefr.simulation.summary.summary import with_fairness
from tests.durable.test_state import begun

USERS = 32
DEVICE = np.array([0] * 10 + [1] * 10 + [2] * 4 + [3] * 8)
HIT = np.array([1, 1, 1, *[0] * 7, *[1] * 10, *[0] * 12], float)


class Run:
    """What `with_fairness` asks of a run: 10 users of a phone, 10 of a watch, 4 of a car, 8 of a TV, no speaker."""

    def __init__(self, tested: np.ndarray, values: np.ndarray):
        self.clients = np.arange(USERS)
        self.fleet = type("Fleet", (), {"classes": NAMES, "device_of": DEVICE})()
        counters = type("Counters", (), {"participation": np.array([2] * 10 + [0] * 10 + [1] * 12)})()
        self.federation = type("Federation", (), {"counters": counters})()
        self._tested = tested, {"HR@5": values}

    def tested(self) -> Any:
        return self._tested


NAMES = ["phone", "watch", "car", "tv", "speaker"]
SUMMARY = {"rounds": 4, "classes": {n: {"contributed": c} for n, c in zip(NAMES, (20, 1, 4, 8, 0), strict=True)}}


def test_every_number_by_hand() -> None:
    before = copy.deepcopy(SUMMARY)
    found = with_fairness(SUMMARY, Run(np.arange(USERS), HIT))  # type: ignore[arg-type]
    assert before == SUMMARY
    json.dumps(found, allow_nan=False)
    phone, watch, car, tv, speaker = found["classes"].values()
    assert [row["participation"] for row in found["classes"].values()] == [20 / 40, 1 / 40, None, None, None]
    error = np.sqrt(0.3 * 0.7 * 10 / 9 / 10)
    mean = 13 / 32
    assert phone["metrics"]["HR@5"] == {
        **{"users": 10, "mean": pytest.approx(0.3), "standard_error": pytest.approx(error)},
        "difference": pytest.approx(0.3 - mean),
    }
    assert watch["metrics"]["HR@5"]["mean"] == 1.0
    assert car["metrics"] == tv["metrics"] == speaker["metrics"] == {}
    assert [row["few"] for row in found["classes"].values()] == [False, False, True, True, False]
    whole = found["fairness"]["HR@5"]
    assert (whole["mean"], whole["users"], whole["fewest_users"]) == (pytest.approx(mean), 32, 10)
    assert (whole["worst"]["class"], whole["best"]["class"]) == (
        "phone",
        "watch",
    )
    assert whole["spread"] == pytest.approx(0.7)
    assert whole["sd"] == pytest.approx(np.sqrt((10 * (0.3 - mean) ** 2 + 10 * (1 - mean) ** 2) / 20))
    assert whole["never_took_part"] == {"users": 10, "mean": 1.0, "standard_error": 0.0}
    assert whole["took_part"]["mean"] == pytest.approx(3 / 22)
    assert whole["participation_correlation"] < 0


def test_what_a_round_took_of_a_class_of_a_few_is_not_told() -> None:
    took = {"seconds": {"p10": 1.0, "p50": 2.0, "p90": 3.0}, "total_seconds": 60.0}
    classes = {name: {**row, **took} for name, row in SUMMARY["classes"].items()}
    found = with_fairness({**SUMMARY, "classes": classes}, Run(np.arange(USERS), HIT))["classes"]  # type: ignore[arg-type]
    assert [row["seconds"] is None for row in found.values()] == [False, False, True, True, False]
    assert ["total_seconds" in row for row in found.values()] == [True, True, False, False, True]


@pytest.mark.parametrize(
    ("people", "told"),
    [
        ([30, 12, 40], [True, True, True]),
        ([30, 12, 9], [True, False, False]),  # all less the two others would be a figure of nine
        ([30, 6, 5], [True, False, False]),
        ([12, 3], [False, False]),
        ([11, 11, 3, 0], [False, True, False, False]),
        ([9], [False]),
        ([0, 25], [False, True]),
        ([], []),
    ],
)
def test_no_figure_of_a_few_people_is_told_nor_found_by_difference(people: list[int], told: list[bool]) -> None:
    assert tellable(people) == told
    hidden = sum(number for number, one in zip(people, told, strict=True) if not one)
    assert hidden == 0 or hidden >= FEWEST or not any(told)


def test_who_did_and_never_did_take_part_are_told_together_or_not_at_all() -> None:
    found = with_fairness(SUMMARY, Run(np.arange(15), HIT[:15]))  # type: ignore[arg-type]
    whole = found["fairness"]["HR@5"]
    assert whole["never_took_part"] is whole["took_part"] is None
    assert all(row["metrics"] == {} for row in found["classes"].values())


def test_without_a_class_of_ten_none_is_called_the_worst() -> None:
    found = with_fairness(SUMMARY, Run(np.arange(18, 23), HIT[18:23]))  # type: ignore[arg-type]
    assert (found["fairness"]["HR@5"]["worst"], found["fairness"]["HR@5"]["spread"]) == (None, None)
    shown = printed(found)
    assert "no class has 10 tested users" in shown


def test_seeds_are_summed_up_by_their_worst_class_and_spread() -> None:
    many = with_fairness(SUMMARY, Run(np.arange(USERS), HIT))  # type: ignore[arg-type]
    few = with_fairness(SUMMARY, Run(np.arange(18, 23), HIT[18:23]))  # type: ignore[arg-type]
    found = over_runs([run["fairness"] for run in (many, few, many)])
    assert found == {"HR@5": {"worst": [pytest.approx(0.3)] * 2, "spread": [pytest.approx(0.7)] * 2}}
    assert over_runs([few["fairness"]]) == over_runs([{}, {}]) == {}


def printed(fleet: dict[str, Any]) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(fairness_table(fleet, "1 + 99 sampled"))
    return console.export_text()


def test_the_table_shows_each_class_and_who_is_worst() -> None:
    shown = printed(with_fairness(SUMMARY, Run(np.arange(USERS), HIT)))  # type: ignore[arg-type]
    assert " ".join(re.findall(r"phone .*", shown)[0].split()) == "phone │ 50.0% │ 10 │ 0.3000 ± 0.1528 │ -0.1063 │"
    assert " ".join(re.findall(r"car .*", shown)[0].split()) == "car │ - │ fewer than 10 users │ - │ - │"
    assert " ".join(re.findall(r"speaker .*", shown)[0].split()) == "speaker │ - │ 0 │ - │ - │"
    assert "HR@5: worst phone 0.3000, best watch 1.0000" in shown
    assert "fewer than 10 users: figures of so few people" in shown
    assert fairness_table({"classes": {}}, "full ranking") is None


WORLD = (
    "method=fedmf",
    "data_options={users: 500, items: 200, interactions: 25}",
    "rounds=15",
    "local_epochs=15",
    "model={dim: 8}",
    "evaluation.every=5",
    "engine.shard_size=128",
)
"""Fast devices belong to active users; a laptop needs 0.14 s for a round, a speaker 0.17 s and more."""


def world(deadline: float, *more: str) -> tuple[Any, dict[str, Any]]:
    """A finished run and its fleet's summary."""
    calm = "dropout: 0, availability: null, battery: null, networks: {wifi_home: 1}"
    rounds = f"{{deadline_s: {deadline}, min_fraction: 0, over_select: 1}}"
    mix = "activity_correlation: 0.9, share: {laptop_x86: 0.5, speaker_512: 0.5}"
    fleet = f"fleet={{{mix}, {calm}, rounds: {rounds}}}"
    experiment = load_experiment(overrides=[*WORLD, fleet, *more])
    simulation = begun(experiment, prepare(experiment, None, "cpu", None), [])
    simulation.train()
    counts = np.diff(simulation.prepared.dataset.offsets)
    fast = simulation.fleet.device_of == simulation.fleet.classes.index("laptop_x86")
    assert counts[fast].mean() > 1.3 * counts[~fast].mean()
    return simulation, with_fairness(simulation.fleet.summary(), simulation)


def test_who_misses_the_deadline_takes_part_less_and_gets_less() -> None:
    """Without a deadline the two classes are served alike; with it the slow and less active get half as much."""
    patient, hurried = world(100.0)[1], world(0.15)[1]
    took_part = [{name: row["participation"] for name, row in run["classes"].items()} for run in (patient, hurried)]
    assert took_part[0] == {"laptop_x86": 1.0, "speaker_512": 1.0}
    assert took_part[1] == {"laptop_x86": pytest.approx(1.0, abs=0.1), "speaker_512": pytest.approx(0.0, abs=0.1)}
    for metric in ("HR@10", "NDCG@10"):
        before, after = patient["fairness"][metric], hurried["fairness"][metric]
        slow = [run["classes"]["speaker_512"]["metrics"][metric]["mean"] for run in (patient, hurried)]
        assert slow[1] < 0.7 * slow[0]
        assert after["worst"]["class"] == "speaker_512"
        assert after["spread"] > 3 * before["spread"]
        assert before["p_equal"] > 0.1
        assert after["p_equal"] < 0.01
        assert before["participation_correlation"] is None  # everybody took part in every round
        assert after["participation_correlation"] > 0.1
        assert after["never_took_part"]["mean"] < after["took_part"]["mean"]


def test_blocks_are_measured_on_the_last_one() -> None:
    blocks = ("protocol={name: blocks, min_interactions: 2, increments: 2}", "rounds=3", "local_epochs=15")
    simulation, fleet = world(0.15, *blocks)
    share = {name: row["participation"] for name, row in fleet["classes"].items()}
    assert share["laptop_x86"] > 5 * share["speaker_512"]
    last = simulation.measured.final(stage="federated", after="D2", on="D2", mask="as released")
    assert last.keys() == fleet["fairness"].keys()
    for metric, value in last.items():
        cells = [row["metrics"][metric] for row in fleet["classes"].values()]
        assert sum(cell["users"] for cell in cells) == fleet["fairness"][metric]["users"] > 100
        assert sum(cell["users"] * cell["mean"] for cell in cells) / sum(c["users"] for c in cells) == pytest.approx(
            value
        )
