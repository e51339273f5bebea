"""Tables and figures of sweeps, from literal numbers."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.report.figures import drawn
from edgefr.report.pages import Report
from edgefr.studies.sweeps.page import usable
from edgefr.studies.sweeps.report import about, answers, run_record, table, tradeoff
from edgefr.studies.sweeps.results import FinishedSweep, SweepRun, in_full, results, validation
from edgefr.studies.sweeps.tradeoff import Scale, charts, comparables, curves, pareto
from tests.sweep.summaries import entry, summary


def cells(rows):
    return [list(row.values()) for row in rows]


@pytest.fixture
def found():
    return results(
        [
            entry({"privacy.epsilon": 1, "method": "a"}, 0, summary(0.1, 0.99)),
            entry({"privacy.epsilon": 1, "method": "a"}, 1, summary(0.2, 1.0)),
            entry({"privacy.epsilon": 8, "method": "a"}, 0, summary(0.3, 8.0)),
            entry({"privacy.epsilon": 8, "method": "a"}, 1, "ValueError: on purpose"),
            entry({"privacy.epsilon": math.inf, "method": "a"}, 0, summary(0.4, "inf")),
            entry({"privacy.epsilon": 8, "method": "b"}, 0, summary(0.2, 8.0)),
            entry({"privacy.epsilon": 1, "method": "b"}, 0, "ValueError: on purpose"),
        ]
    )


def test_a_point_s_row_is_the_mean_over_its_seeds(found):
    page = table(found)
    assert list(page.sheets[0].rows[0]) == [
        "privacy.\nepsilon", "method", "seeds", "failed", "validation\nNDCG@10\n1 + 99 sampled",
        "NDCG@10\n1 + 99 sampled", "HR@10\n1 + 99 sampled", "helped\nin runs",
        "best without\nlearning\nNDCG@10\n1 + 99 sampled",
    ]  # fmt: skip
    assert cells(page.sheets[0].rows) == [
        ["1", "a", "2", "0", "0.1600 ± 0.0707", "0.1500 ± 0.0707", "0.3000 ± 0.1414", "0", "0.2500 popularity"],
        ["8", "a", "1", "1", "0.3100", "0.3000", "0.6000", "1", "0.2500 popularity"],
        ["inf", "a", "1", "0", "0.4100", "0.4000", "0.8000", "1", "0.2500 popularity"],
        ["8", "b", "1", "0", "0.2100", "0.2000", "0.4000", "0", "0.2500 popularity"],
        ["1", "b", "0", "1", "-", "-", "-", "0", "-"],
    ]
    assert page.sheets[0].words == ["method"]
    record = page.records[0]
    assert record["NDCG@10"] == pytest.approx(0.15)
    assert record["NDCG@10 sd"] == pytest.approx(math.sqrt(0.005))
    assert (record["privacy.epsilon"], record["eps_guaranteed"], record["popularity HR@10"]) == ("1", 1.0, 0.5)


def test_pages_are_reached_by_their_names(found, tmp_path):
    pages = [table(found), tradeoff(comparables(found))]
    report = Report(pages, [path for page in pages for path in page.write(tmp_path, [])], {})
    assert list(report.tables) == list(report.notes) == ["sweep", "tradeoff"]
    assert report.figures == {"tradeoff": tmp_path / "figures" / "tradeoff.png"}


def test_the_front_is_marked_for_each_kind_of_epsilon(found):
    page = tradeoff(comparables(found))
    assert cells(page.sheets[0].rows) == [
        ["1", "a", "0.5", "1", "-", "0.1500 ± 0.0707", "0.2500 popularity", "no"],  # worth no epsilon
        ["8", "a", "4 *", "8 *", "-", "0.3000", "0.2500 popularity", "yes"],
        ["inf", "a", "inf *", "inf *", "-", "0.4000", "0.2500 popularity", "yes"],
        ["8", "b", "4", "8", "-", "0.2000", "0.2500 popularity", "no"],
    ]
    assert [r["front_guaranteed"] for r in page.records] == [False, True, True, False]
    assert [r["front_hypothetical"] for r in page.records] == [False] * 4
    assert page.notes[-2:] == [
        "demo, leave-one-out, front by guaranteed epsilon: privacy.epsilon 8, method a (8, 0.3000); "
        "privacy.epsilon inf, method a (inf, 0.4000)",
        "demo, leave-one-out, front by hypothetical epsilon: none: no run has it",
    ]


@pytest.mark.parametrize("won", [False, True])
def test_terminal_files_picture_and_page_call_the_same_points_usable(won: bool):
    """Means on sampled candidates may lie above popularity where verdicts over full ranking say no."""
    made = [entry({"privacy.epsilon": eps}, 0, summary(0.3, eps, won=of)) for eps, of in ((1.0, False), (8.0, won))]
    compared = comparables(results(made))
    page, (said,) = tradeoff(compared), answers(compared)
    assert [row["usable"] for row in page.sheets[0].rows] == ["no", "yes" if won else "no"]
    assert ["*" in row["eps\nguaranteed"] for row in page.sheets[0].rows] == [False, won]
    assert [(row["usable"], row["helped"]) for row in page.records] == [(False, 0), (won, int(won))]
    assert said["answer"] == ("1 of 2 points" if won else "no usable point")
    assert said["usable"] == said["front"]["guaranteed"] == ["privacy.epsilon 8"] * won
    assert [chart.about.endswith("; no usable point") for chart in charts(compared[0])] == [not won] * 2
    assert ("at which learning helped in every run is 8" in usable(compared)) == won
    nowhere = "front by guaranteed epsilon: no usable point: learning did not help with every seed at any point"
    assert (f"demo, leave-one-out, {nowhere}" in page.notes) == (not won)
    rule = "a point is usable if learning helped with every seed, by NDCG@10 (full ranking)"
    assert rule in page.notes
    assert rule in table(results(made)).sheets[0].caption


def test_every_metric_of_a_sweep_says_its_ranking_and_has_the_best_without_learning_beside_it():
    one = summary(0.3, 8.0)
    one["references"]["main"]["hybrid"] = {"HR@10": 0.56, "NDCG@10": 0.28}
    found = results([entry({"privacy.epsilon": 8}, 0, one)])
    row = table(found).sheets[0].rows[0]
    assert row["best without\nlearning\nNDCG@10\n1 + 99 sampled"] == "0.2800 hybrid"
    (group,) = comparables(found)
    assert (
        tradeoff([group])
        .sheets[0]
        .caption.startswith("* on the Pareto front; NDCG@10 (1 + 99 sampled) of the baselines")
    )
    assert charts(group)[0].y_title == "NDCG@10 (1 + 99 sampled)"
    blocks = summary(0.3, 8.0, protocol="blocks: 3") | {
        "continual": {},
        "blocks": [{"validation": 0.3}],
        "references": {"popularity": {"unmasked": {}}},
    }
    assert comparables(results([entry({"a": 1}, 0, blocks)]))[0].ranking == "full ranking"


def test_the_figure_has_a_panel_per_known_kind_with_curves_front_references_and_infinity(found):
    made = charts(*comparables(found))
    assert [chart.x_title for chart in made] == ["epsilon, nominal, which is no guarantee", "epsilon, guaranteed"]
    panel = drawn(made, 3).axes[1]
    assert panel.get_xscale() == "log"
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1", "8", "∞"]
    assert panel.get_xticks()[-1] == max(panel.get_xticks())
    shown = {container.get_label(): container for container in panel.containers}
    assert list(shown) == ["method a", "method b", "Pareto front"]
    line, _, (bars,) = shown["method a"].lines
    assert list(line.get_xdata())[:2] == [1.0, 8.0]
    assert list(line.get_ydata()) == pytest.approx([0.15, 0.3, 0.4])
    heights = [segment[1][1] - segment[0][1] for segment in bars.get_segments()]
    assert heights == pytest.approx([2 * math.sqrt(0.005), 0, 0])
    assert list(shown["Pareto front"].lines[0].get_ydata()) == pytest.approx([0.3, 0.4])
    levels = {line.get_label(): line.get_ydata()[0] for line in panel.get_lines() if len(set(line.get_ydata())) == 1}
    assert (levels["popularity"], levels["chance"]) == pytest.approx((0.25, 0.05))


def test_other_protocols_and_metrics_are_never_in_one_panel():
    made = [
        entry({"data": "a", "privacy.epsilon": 1}, 0, summary(0.4, 1.0, "a")),
        entry({"data": "b", "privacy.epsilon": 1}, 0, summary(0.9, 1.0, "b")),
        entry({"data": "a", "privacy.epsilon": 2}, 0, summary(0.3, 2.0, "a", "blocks: 3")),
    ]
    compared = comparables(results(made))
    assert [(group.title, group.metric) for group in compared] == [
        ("a, leave-one-out", "NDCG@10"),
        ("b, leave-one-out", "NDCG@10"),
        ("a, blocks", "NDCG@10"),
    ]
    assert all(len(group.front("guaranteed")) == 1 for group in compared)
    assert [len(charts(group)) for group in compared] == [2, 2, 2]
    assert comparables(results(made), "HR@10")[0].metric == "HR@10"


@pytest.mark.parametrize(("other", "worst"), [(5.0, 5.0), (None, math.nan)])
def test_the_guarantee_of_a_point_is_the_worst_of_its_seeds_and_unknown_where_one_is(other, worst):
    (result,) = results([entry({"a": 1}, 0, summary(0.1, 3.0)), entry({"a": 1}, 1, summary(0.1, other))])
    assert result.epsilon("guaranteed") == pytest.approx(worst, nan_ok=True)
    assert math.isnan(result.epsilon("hypothetical"))


@pytest.mark.parametrize(
    ("epsilon", "front"), [(7.99999, ["method b"]), (7.9996, ["method b"]), (7.994, ["method a", "method b"])]
)
def test_calibration_s_last_digits_put_nobody_on_the_front(epsilon, front):
    """Epsilons that share four digits are one."""
    made = [entry({"method": "a"}, 0, summary(0.28, epsilon)), entry({"method": "b"}, 0, summary(0.3, 8.0))]
    (group,) = comparables(results(made))
    assert list(curves(group.front("guaranteed"))) == front


def test_validation_of_blocks_is_the_mean_over_increments():
    blocks = [{"validation": value} for value in (0.9, 0.1, 0.3)]
    assert validation({"continual": {}, "blocks": blocks}, "NDCG@20") == pytest.approx(0.2)
    assert math.isnan(validation({"continual": {}, "blocks": [*blocks, {"validation": None}]}, "NDCG@20"))
    assert validation(summary(0.1, 1.0), "HR@10") == pytest.approx(0.22)
    assert math.isnan(validation(summary(0.1, 1.0), "HR@20"))


def learned(point: dict[str, object], ndcg: float, validated: float, seed: int = 0) -> SweepRun:
    """A run whose validation and test items do not agree, and whose full ranking is half of what it is on samples."""
    one = summary(ndcg, 8.0)
    one["validation"]["main"]["federated"]["NDCG@10"] = validated
    full = {"HR@10": ndcg, "NDCG@10": ndcg / 2, "Recall@10": ndcg}
    one["metrics_full_ranking"] = full
    one["full_ranking"] = {"users": 9, "main": {"federated": full, "popularity": {"HR@10": 0.1, "NDCG@10": 0.04}}}
    return entry(point, seed, in_full(one))


def test_of_settings_the_best_on_validation_items_is_chosen_and_only_that_one_is_tested():
    """The epsilon is a question, so each has a row of its own; the learning rate is a setting."""
    made = [
        learned({"privacy.epsilon": 1, "model.lr": 0.1}, 0.9, 0.20),
        learned({"privacy.epsilon": 1, "model.lr": 1}, 0.3, 0.21),
        learned({"privacy.epsilon": 8, "model.lr": 0.1}, 0.6, 0.50),
        learned({"privacy.epsilon": 8, "model.lr": 1}, 0.8, 0.40),
    ]
    sweep = FinishedSweep(Path(), {"search": None, "seeds": [0]}, tuple(made), tuple(made))
    page = table(sweep.results)
    rows = page.sheets[0].rows
    assert [row["chosen"] for row in rows] == ["", "yes", "yes", ""]
    assert [row["validation\nNDCG@10\n1 + 99 sampled"] for row in rows] == ["0.2000", "0.2100", "0.5000", "0.4000"]
    assert [row["NDCG@10\nfull ranking"] for row in rows] == ["", "0.1500", "0.3000", ""]
    assert [row["best without\nlearning\nNDCG@10\nfull ranking"] for row in rows] == [
        "", "0.0400 popularity", "0.0400 popularity", "",
    ]  # fmt: skip
    assert [row.get("usable") for row in page.records] == [None, True, True, None]
    tested = [math.isfinite(run_record(run, sweep)["NDCG@10"]) for run in made]
    assert tested == [math.isfinite(row["NDCG@10"]) for row in page.records] == [False, True, True, False]
    (group,) = comparables(sweep.results)
    assert [result.point.title() for result in group.results] == [
        "privacy.epsilon 1, model.lr 1", "privacy.epsilon 8, model.lr 0.1",
    ]  # fmt: skip
    assert any("settings are rounds" in line for line in about(sweep))


def test_equals_are_chosen_in_their_order_and_without_validation_items_nobody_is_left_out():
    same = [learned({"rounds": number}, 0.1, 0.2, seed) for number in (1, 2) for seed in (0, 1)]
    assert [one.chosen for one in results(same)] == [True, False]
    blind = [learned({"rounds": number}, 0.1, math.nan) for number in (1, 2)]
    assert [one.chosen for one in results(blind)] == [True, True]
    half = [learned({"rounds": 1}, 0.9, math.nan), learned({"rounds": 2}, 0.1, 0.1)]
    assert [one.chosen for one in results(half)] == [False, True]


def test_settings_that_change_the_guarantee_are_no_rivals():
    """More rounds of the same noise promise less, which is another question; calibrated noise promises the same."""
    made = [entry({"rounds": number}, 0, summary(0.1, float(number))) for number in (1, 2, 3)]
    assert [one.chosen for one in results(made)] == [True, True, True]
    made = [entry({"rounds": number}, 0, summary(0.1 * number, 8 - 0.01 * number)) for number in (1, 2, 3)]
    assert [one.chosen for one in results(made)] == [False, False, True]


def test_a_search_s_objective_chooses_among_its_points_too():
    made = [learned({"rounds": 1}, 0.1, 0.9), learned({"rounds": 2}, 0.4, 0.1)]
    assert [one.chosen for one in results(made)] == [True, False]
    assert [one.chosen for one in results(made, {"rounds=1": "HR@10", "rounds=2": "HR@10"})] == [False, True]


def test_only_failures_still_make_a_table():
    found = results([entry({"rounds": 1}, 0, "ValueError: x")])
    assert cells(table(found).sheets[0].rows) == [["1", "0", "1"]]
    assert comparables(found) == []


def test_the_board_says_how_far_a_sweep_is():
    from rich.console import Console

    from edgefr.cli.progress_table import drawn
    from edgefr.studies.sweeps.run import Standing

    entries = [entry({"rounds": 1}, 0, summary(0.1, 1.0)), entry({"rounds": 1}, 1, summary(0.3, 1.0))]
    standing = Standing(6, 2, [*entries, entry({"rounds": 2}, 0, "x")], [10.0, 20.0, 30.0])
    console = Console(width=80, record=True, file=SimpleNamespace(write=lambda text: None, flush=lambda: None))
    console.print(drawn(standing, 65, 10))
    lines = console.export_text().splitlines()
    assert lines[0][20:].strip() == "3 of 6 runs, 1 failed, 65 s so far, about 30 s left"
    assert [line.split() for line in lines[1:]] == [
        ["point", "done", "failed", "validation", "best"],
        ["rounds", "2", "0", "1", "-", "-"],
        ["rounds", "1", "2", "-", "0.2100", "0.3100"],
    ]
    assert Standing(6, 2).seconds_left is None
    assert Standing(6, 2, entries).seconds_left == 4.0


# The Pareto front and the axis it is drawn on

EPSILONS = st.one_of(st.sampled_from([0.0, 1.0, 8.0, math.inf, math.nan]), st.floats(0, 100))
PLACES = st.lists(st.tuples(EPSILONS, st.one_of(st.sampled_from([0.1, 0.2, math.nan]), st.floats(0, 1))), max_size=12)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and (one[0] < other[0] or one[1] > other[1])


@given(PLACES)
def test_nobody_beats_the_front_and_the_front_beats_the_rest(places):
    front = pareto(places)
    known = [at for at, (epsilon, worth) in enumerate(places) if not (math.isnan(epsilon) or math.isnan(worth))]
    assert set(front) <= set(known)
    assert bool(front) == bool(known)
    for at in known:
        beaten = [other for other in front if beats(places[other], places[at])]
        assert (at in front) == (not beaten)


def test_equals_share_the_front():
    assert pareto([(1, 0.2), (1, 0.2), (2, 0.2), (math.inf, 0.3)]) == [0, 1, 3]


@pytest.mark.parametrize(
    ("epsilons", "labels"),
    [
        ([1, 8, math.inf], ["1", "8", "inf"]),
        ([math.inf], ["inf"]),
        ([0.0, 2.0], ["2", "0"]),
        ([5.0], ["5"]),
        ([], []),
        ([1.0, 1.01, 100.0], ["1", "100"]),
        ([1, 2, 4, 8, 16, math.inf], ["1", "2", "4", "8", "16", "inf"]),
        ([0.1417, 0.243, 0.459, 2.488, math.inf], ["0.14", "0.46", "2.5", "inf"]),  # two labels would touch
        ([373.6, 1.82e3, 3.625e5, 1.856e7], ["374", "3.6e5", "1.9e7"]),
    ],
)
def test_ticks_are_where_the_epsilons_are(epsilons, labels):
    assert list(Scale.of(epsilons).ticks.values()) == labels


@given(st.lists(st.one_of(st.floats(1e-6, 1e6), st.sampled_from([0.0, math.inf])), min_size=1, max_size=10))
def test_every_epsilon_has_a_place_within_the_limits_and_in_order(epsilons):
    scale = Scale.of(epsilons)
    places = [scale.place(epsilon) for epsilon in sorted(set(epsilons))]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert all(scale.limits[0] < place < scale.limits[1] for place in places)
