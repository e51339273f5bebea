"""The first screen from summaries that are known: what it says, and that it stays one screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgefr.report.screen import COLUMNS, LINES, first_screen, seeds_screen
from edgefr.report.verdict import Verdict, Worth
from tests.report.test_report import device, fleet
from tests.report.test_report import summary as small

PLACE = Path("runs/demo")
BETTER, WORSE, UNCLEAR, SAME = (0.125, 0.0625, 0.1875), (-0.125, -0.25, -0.0625), (0.01, -0.1, 0.12), (0.0, 0.0, 0.0)
NOBODY: tuple[Any, ...] = (0.125, None, None)


def record(**against: tuple[float, Any, Any]) -> dict[str, Any]:
    """What a learned model of NDCG@10 0.5 is beside others: its gain over each, and the ends of the interval."""
    rows = {
        name.replace("_", " "): {"value": 0.5 - gain, "difference": gain, "low": low, "high": high}
        for name, (gain, low, high) in against.items()
    }
    return {"metric": "NDCG@10", "ranking": "full", "users": 90, "value": 0.5, "against": rows}


PRIVACY = {
    **{"eps_guaranteed": "inf", "eps_nominal": 6.85, "eps_hypothetical": 68.6, "eps_lb95": None, "delta": 1e-5},
    **{"label": "no meaningful guarantee", "method": "no noise", "adjacency": "zero-out", "sat_out": None},
    **{"adversary": "observers of the broadcasts", "not_covered": ["everything: no noise was added"]},
}


def summary(learning: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    found = record(before_any_round=BETTER, popularity=BETTER) if learning is None else learning
    about = {"protocol": "leave-one-out by clock time; newest item = test", "split": "main", "privacy": PRIVACY}
    return small(learning={"main": {"federated": found}}) | about | values


def shown(of: dict[str, Any], width: int = COLUMNS) -> list[str]:
    lines = [line.plain for line in first_screen(of, PLACE, width)]
    assert len(lines) <= LINES, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    return lines


def said(of: dict[str, Any]) -> str:
    return " ".join(" ".join(shown(of)).split())


@pytest.mark.parametrize(
    ("against", "worth", "words"),
    [
        ({"before_any_round": BETTER, "popularity": BETTER}, Worth.HELPED, "learning helped (NDCG@10 0.5000 trained"),
        (
            {"before_any_round": WORSE, "popularity": BETTER},
            Worth.HURT,
            "learning HURT (NDCG@10 0.5000 trained, 0.6250",
        ),
        ({"before_any_round": BETTER, "popularity": WORSE}, Worth.BEATEN, "NOT worth it: the baseline 'popularity' is"),
        (
            {"before_any_round": BETTER, "popularity": UNCLEAR},
            Worth.UNCLEAR,
            "did NOT clearly beat the baseline 'popularity'",
        ),
        ({"before_any_round": UNCLEAR, "popularity": BETTER}, Worth.UNCLEAR, "learning did NOT clearly help"),
        ({"before_any_round": SAME, "popularity": UNCLEAR}, Worth.UNCLEAR, "NOTHING was learned"),
        ({"before_any_round": NOBODY, "popularity": NOBODY}, Worth.UNKNOWN, "too few users to say"),
        ({"popularity": BETTER, "chance": BETTER}, Worth.HELPED, "0.3750 by popularity"),
    ],
)
def test_the_first_line_says_what_learning_came_to(against: Any, worth: Worth, words: str) -> None:
    found = record(**against)
    assert Verdict.of("main", "federated", found).worth is worth
    assert words in shown(summary(found))[0]


def test_a_split_on_which_learning_hurts_is_said_first() -> None:
    hurt, helped = record(before_any_round=WORSE), record(before_any_round=BETTER)
    found = {"source": {"finetune": helped, "localtrain": hurt}, "target": {"localtrain": helped}}
    lines = shown(summary(learning=None, **{"split": "target"}) | {"learning": found})
    assert lines[0].startswith("fedmf on demo: on source learning HURT")
    assert "on target learning helped" in " ".join(lines[:2])
    assert any(line.startswith("after on-device training (localtrain)") for line in lines), (
        "the table is that of the last split"
    )
    assert sum("before any round" in line for line in lines) == 1
    assert any("+0.1250 [+0.0625, +0.1875]  better" in line for line in lines)


def test_many_references_are_cut_but_never_the_model_not_learned() -> None:
    names = {f"reference_{number}": (number / 100, -0.5, 0.5) for number in range(40)}
    lines = shown(summary(record(**names, before_any_round=(0.5, 0.25, 0.75))))
    assert any(line.startswith("before any round") for line in lines)
    assert any(line.startswith("reference 0 ") for line in lines), "the best reference"
    assert any("more: --full" in line for line in lines)


def test_what_a_model_is_before_rounds_is_said_once() -> None:
    lines = shown(summary(record(before_any_round=BETTER, pretrain=BETTER, popularity=UNCLEAR)))
    assert not any(line.startswith("pretrain") for line in lines)


def test_costs_are_those_of_the_typical_client_and_of_the_class_with_the_slowest_tenth() -> None:
    slow = device() | {"seconds": {"p10": 1.0, "p50": 1.1, "p90": 9000.0}}
    lines = shown(summary(fleet=fleet(phone=device(), watch=slow)))
    typical, slowest = (line.split() for line in lines if line.startswith("  "))
    assert typical[:4] == ["typical", "client", "1.25", "(1,234)"]
    assert slowest[:5] == ["slowest", "tenth:", "watch", "1.1", "(9,000)"]
    assert slowest[-3:] == ["estimate", "or", "better"], "no figure is better known than its weakest input"


def test_what_is_downloaded_once_is_told_from_what_a_round_moves() -> None:
    travel = {"once": 2.5e6, "down": 4e5, "up": 1e5, "fetched_once": 9}
    assert "  MB (2.5 once)  RAM MB" in "\n".join(shown(summary(fleet=fleet() | {"travel": travel})))
    assert "once" not in "\n".join(shown(summary(fleet=fleet() | {"travel": travel | {"once": 0.0}})))


def test_who_is_left_out_is_said_with_the_reason() -> None:
    never = {name: device(4, 0, {"memory": 3, "unavailable": 1}) for name in ("watch", "speaker", "toy", "lamp", "pot")}
    words = said(summary(fleet=fleet(phone=device(), **never), privacy={**PRIVACY, "sat_out": {"clients": 7}}))
    assert "2 of 5 client invitations failed (deadline 2)" in words
    assert "watch, speaker, toy and 2 more never contributed: training does not fit in what the device gives" in words
    assert "7 clients sat out with a spent privacy budget" in words
    assert "left out nobody" in said(summary(fleet=fleet() | {"contributed": 5}))


@pytest.mark.parametrize("unequal", [0.001, 0.4])
def test_a_class_is_served_least_where_that_is_more_than_chance(unequal: float) -> None:
    ends = {"worst": {"class": "watch", "mean": 0.1}, "best": {"class": "phone", "mean": 0.3}}
    words = said(summary(fleet=fleet() | {"fairness": {"NDCG@5": {**ends, "p_equal": unequal}}}))
    assert ("least served: watch, best served: phone" in words) == (unequal < 0.05)


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({}, "privacy nothing is guaranteed: no noise was added."),
        (
            {"eps_guaranteed": 3.214, "label": ""},
            "each client has epsilon 3.21 guaranteed at delta 1e-05, against observers of the broadcasts (zero-out).",
        ),
        ({"eps_guaranteed": 12.0, "label": "weak"}, "epsilon 12 guaranteed at delta 1e-05, which is weak, against"),
        (
            {"eps_guaranteed": 0.0, "label": "", "eps_planned": "inf"},
            "nothing has been released yet; nothing would be guaranteed of a release: no noise was added.",
        ),
        (
            {"eps_guaranteed": 0.0, "label": "", "eps_planned": 1.386, "rounds": 1},
            "nothing has been released yet; one release would cost a client epsilon 1.39 at delta 1e-05.",
        ),
        (
            {"examples": {**PRIVACY, "eps_guaranteed": 1.5, "label": "", "adversary": "the server"}},
            "each single interaction has epsilon 1.5 guaranteed at delta 1e-05, against the server.",
        ),
    ],
)
def test_privacy_is_one_sentence_with_the_guaranteed_epsilon_alone(privacy: dict[str, Any], words: str) -> None:
    found = said(summary(privacy={**PRIVACY, **privacy}))
    assert words in found
    assert "6.85" not in found
    assert "68.6" not in found


def test_bundles_and_warnings() -> None:
    row = {"variant": "f16", "files_mb": 0.5, "fits": True, "hr_kept": 0.975, "top10_equal": 1.0, "lacks": None}
    lacks = "has too little memory"
    rows = [{**row, "class": "phone"}, {**row, "class": "watch", "variant": "i8", "fits": False, "lacks": lacks}]
    words = said(summary(bundles=rows))
    assert "a bundle for each of 2 device classes (1 f16, 1 i8; 0.5 MB), in bundles/" in words
    assert "too big for watch; they keep at least 97.5% of the model's HR@10" in words
    assert "warning the smallest bundle for watch has too little memory" in words
    assert "(and 1 more: --full)" in said(summary(bundles=rows, no_bundles="none"))
    assert "shipped no bundles" in said(summary())


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ([], "devices release what they learn by default"),
        (["epsilon: 12"], "devices release nothing by default: set epsilon: 12 in each policy.yaml"),
        (["trust: central"], "default: set trust: central in each policy.yaml, or privacy.trust=local"),
        (
            ["trust: central", "least_cohort: 1"],
            "nothing by default: set trust: central, least_cohort: 1 in each policy.yaml "
            "(privacy.at_least=10 in place of least_cohort), or privacy.trust=local",
        ),
        (["unprotected: true"], None),
        (None, None),
    ],
)
def test_a_private_run_says_whether_devices_release_by_default(needs: list[str] | None, words: str | None) -> None:
    row = {"class": "phone", "variant": "f16", "files_mb": 0.5, "fits": True, "hr_kept": 0.975, "lacks": None}
    found = said(summary(bundles=[{**row, "policy_needs": needs}, {**row, "class": "tv", "policy_needs": needs}]))
    assert ("by default" not in found) if words is None else (words in found)


def test_a_central_reference_costs_no_device() -> None:
    note = "central reference: pools everybody's data; no federation, no privacy"
    lines = shown(summary(central={"note": note}, fleet={}, privacy={}))
    assert any(line.endswith(note) for line in lines)
    assert not any(line.startswith(("cost", "privacy", "left out")) for line in lines)


def test_the_longest_of_everything_is_one_screen_still() -> None:
    never = {
        f"a_device_class_of_a_very_long_name_indeed_longer_than_any_{n}": device(4, 0, {"memory": 3}) for n in range(9)
    }
    row = {"files_mb": 0.5, "fits": False, "hr_kept": 0.9, "lacks": "lacks " + "room " * 90, "top10_equal": 1.0}
    row |= {"policy_needs": ["trust: central", "least_cohort: 1", "least_noise: 0.01", "largest_clip: 1000"]}
    found = summary(
        record(**{f"reference_{number}": (number / 100, -0.5, 0.5) for number in range(40)}),
        fleet=fleet(phone=device(), **never),
        bundles=[{**row, "class": f"class_{n}", "variant": f"variant-{n}"} for n in range(17)],
        privacy={**PRIVACY, "sat_out": {"clients": 3}, "not_covered": ["everything: " + "because " * 90]},
        protocol="a protocol " * 90,
    )
    for width in (60, 80, 100):
        assert shown(found, width)[-1] == "run: runs/demo"


def test_the_report_is_named_where_there_is_one(tmp_path: Path) -> None:
    assert [line.plain for line in first_screen(summary(), tmp_path)][-1] == f"run: {tmp_path}"
    (tmp_path / "report.html").touch()
    lines = [line.plain for line in first_screen(summary(), tmp_path)]
    assert lines[-2:] == [f"report: {tmp_path}/report.html", f"run: {tmp_path}"]


def test_seeds_are_counted_and_averaged() -> None:
    helped, hurt = summary(record(popularity=BETTER)), summary(record(popularity=WORSE))
    lines = [line.plain for line in seeds_screen([helped, hurt, helped], PLACE)]
    first = " ".join(lines[: lines.index("")])
    assert "3 seeds: learning is NOT worth it: the baseline 'popularity' is better in 1" in first
    assert "learning helped in 2 (mean NDCG@10 0.5000 trained, 0.4583 by popularity)" in first
    assert any(line.startswith("popularity") and "0.4583 ± 0.1443  +0.0417 ± 0.1443" in line for line in lines)
    assert lines[-1] == "runs: runs/demo"
    assert len(lines) <= LINES
    cost, private = (next(line for line in lines if line.startswith(name)) for name in ("cost", "privacy"))
    assert re.search(r" s, .* J, .* MB of a typical client in a round; slowest tenth: \w+", cost)
    assert "guaranteed" in private


@pytest.mark.parametrize(
    ("epsilons", "words"), [([2.0, 7.5, 4.0], "epsilon 7.5 guaranteed"), ([2.0, "inf"], "nothing is guaranteed")]
)
def test_seeds_are_worth_the_privacy_of_the_worst_of_them(epsilons: list[Any], words: str) -> None:
    for order in (epsilons, epsilons[::-1]):
        runs = [summary(privacy={**PRIVACY, "eps_guaranteed": value, "label": ""}) for value in order]
        assert words in " ".join(line.plain for line in seeds_screen(runs, PLACE))
