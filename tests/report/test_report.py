"""Summary, tables and figures from numbers that are known."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from edge.ragged import Ragged, joined
from edgefr.config.sheet import Sheet, count
from edgefr.experiment.experiment import load_experiment
from edgefr.report.fleet import fleet_table
from edgefr.report.over_seeds import over_seeds
from edgefr.report.pages import Page, comma_separated
from edgefr.report.tables import bundle_table, bundle_tables, engine_line, metric_table, transfer_table, warnings
from edgefr.simulation.simulate import fleet_overrides


def printed(thing: object, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(thing)
    return file.getvalue()


QUANTITIES = {"p10": 0.5, "p50": 1.25, "p90": 1234.5}
EVIDENCE = {
    "seconds": {"fp32_gflops": "derived", "bandwidth": "derived, estimate"},
    "energy_j": {"active_w": "measured"},
    "memory_mb": {"rss_mb": "measured", "app_mb": "proxy"},
}


def device(invited: int = 5, contributed: int = 3, failures: dict[str, int] | None = None) -> dict:
    spreads = {name: dict(QUANTITIES) for name in ("seconds", "energy_j", "bytes_down", "bytes_up", "memory_mb")}
    failed = {"deadline": 2} if failures is None else failures
    counts = {"clients": 9, "invited": invited, "contributed": contributed, "failures": failed}
    return {"label": "a device", **counts, **spreads, "evidence": EVIDENCE}


def fleet(**classes: dict) -> dict:
    known = classes or {"phone": device(), "watch": device(0, 0, {})}
    whole = {k: v for k, v in device().items() if k not in ("label", "evidence")}
    return {"policy": "deadline", "rounds": 1, "virtual_hours": 0.5, **whole, "classes": known}


GAIN = {"value": 0.125, "difference": 0.125, "low": -0.01, "high": 0.26}

LEARNED = {"metric": "NDCG@5", "ranking": "full", "users": 1, "value": 0.25, "against": {"popularity": GAIN}}


def summary(**values: object) -> dict:
    stages = {"federated": {"HR@5": 0.5, "NDCG@5": 0.25, "Recall@5": 0.5}}
    references = {"popularity": {"HR@5": 0.25, "NDCG@5": 0.125, "Recall@5": 0.25}}
    engine = {
        **{"client_updates": 1, "clients_per_second": 2.0, "executor": "inline", "device": "cpu", "shard_size": 3},
        **{"train_seconds": 1.0, "eval_seconds": 2.0, "wall_seconds": 4.0, "peak_rss_mb": 1500.0},
        "dropped_updates": 0,
    }
    return {
        **{"method": "fedmf", "data": "demo", "stage": "federated", "stages": {"main": stages}},
        **{"learning": {"main": {"federated": LEARNED}}},
        **{"references": {"main": references}, "full_ranking": {"users": 1, "main": stages | references}},
        **{"engine": engine, "fleet": fleet(), "bundles": [], "validation": {"main": references}},
        **values,
    }


words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), min_size=1, max_size=30)


@given(st.lists(st.lists(words, min_size=4, max_size=4), min_size=1, max_size=4), st.integers(60, 160))
@limits(max_examples=60, deadline=None)
def test_a_sheet_shows_every_column_once_and_reads_no_markup(rows: list[list[str]], width: int) -> None:
    names = ["name", "words", "one number", "another"]
    sheet = Sheet("title", [dict(zip(names, row, strict=True)) for row in rows], words=["name", "words"])
    parts = sheet.parts(width)
    assert all(part[0] == "name" for part in parts)
    assert [name for part in parts for name in part[1:]] == names[1:]
    lines = printed(sheet, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    numbers = [row[2] for row in rows if row[2].strip() == row[2] and "  " not in row[2]]
    assert all(any(number in line for line in lines) for number in numbers if cell_len(number) == len(number))


def test_names_with_brackets_are_shown_as_they_are() -> None:
    shown = printed(Sheet("[b]t[/b]", [{"item": "Soap [pack of 3] [/x]", "score": "1"}], words=["item"]))
    assert "Soap [pack of 3] [/x]" in shown
    assert shown.startswith("[b]t[/b]")


def test_counts_agree_with_their_nouns() -> None:
    assert [count(n, "round") for n in (0, 1, 2, 1000)] == ["0 rounds", "1 round", "2 rounds", "1,000 rounds"]
    assert "fleet: 1 round in 30.0 virtual minutes" in printed(fleet_table(fleet()))
    assert "on 1 user" in printed(metric_table(summary(), "main"), width=120)
    assert engine_line(summary()).startswith("engine: 1 client update at 2/s (inline, cpu, shards of 3)")


def test_metric_table() -> None:
    shown = printed(metric_table(summary(), "main"), width=120)
    assert "fedmf on demo\n" in shown
    assert "│ federated  │ 0.2500 │ 0.5000 │                          - │  0.2500 │  0.5000 │" in shown
    assert "│ popularity │ 0.1250 │ 0.2500 │ +0.1250 [-0.0100, +0.2600] │  0.1250 │  0.2500 │" in shown
    assert "Recall" not in shown, "with one held-out item it is HR again"
    assert "full" not in printed(metric_table(summary(full_ranking={"users": 0}), "main"))


def test_fleet_table() -> None:
    shown = printed(fleet_table(fleet()), width=200)
    assert "1.25 (1,234)" in shown
    assert "deadline 2" in shown
    for line in shown.splitlines():
        if "watch" in line:
            assert "│       0 │           0 │" in line
    empty = dict.fromkeys(QUANTITIES)
    idle = {**device(0, 0, {}), **dict.fromkeys(("seconds", "energy_j", "bytes_down", "bytes_up", "memory_mb"), empty)}
    (line,) = [line for line in printed(fleet_table(fleet(tv=idle)), width=200).splitlines() if "│ tv " in line]
    assert line.replace(" ", "").startswith("│tv│9│0│0│-│-│-│-│-│")


def test_transfer_table() -> None:
    shown = printed(transfer_table({"HR@5": {"source": 0.5, "target": 0.4, "delta": 0.2}}, "1 + 99 sampled"))
    assert "│ HR@5   │ 0.5000 │ 0.4000 │ 20.0% │" in shown


def test_bundles_that_were_not_compared_show_a_dash() -> None:
    row = {"class": "tv", "variant": "i8", "files_mb": 1.0, "memory_mb": 99.6, "fits": False, "parity_users": 0}
    row |= dict.fromkeys(("max_score_error", "top10_equal", "latency_ms", "overlap", "hr_kept"))
    shown = printed(bundle_table([row]))
    assert "100" in shown
    assert "NO" in shown
    assert bundle_tables([row])[0].title == "bundles"  # of a run that kept no variants


def test_variants_that_were_considered_are_one_table_with_the_chosen_ones_marked() -> None:
    def one(name: str, size: float, ms: float, why: str | None, kept: float = 1.0) -> dict[str, object]:
        figures = {"files_mb": size, "memory_mb": 60 + size, "latency_ms": ms, "overlap": kept, "hr_kept": kept}
        return {"variant": name, "why": why, **figures}

    row = {"class": "tv", "variant": "f16", "files_mb": 2.0, "memory_mb": 62.0, "fits": True, "parity_users": 0}
    row |= dict.fromkeys(("max_score_error", "top10_equal", "latency_ms", "overlap", "hr_kept"))
    row |= {"considered": [one("f16", 2.0, 3.0, None), one("i8", 1.0, 2.0, "keeps 0.900 of HR@10", 0.9)]}
    watch = {**row, "class": "watch"}
    watch["considered"] = [one("f16", 2.0, 30.0, None), one("i8", 1.0, 20.0, "keeps 0.900 of HR@10", 0.9)]
    table = bundle_tables([row, watch])[0]
    assert [list(cells.values()) for cells in table.rows] == [
        ["f16", "2", "2", "62", "3 to 30", "1.000", "1.000"],
        ["i8", "", "1", "61", "2 to 20", "0.900", "0.900"],
    ]
    assert list(table.bold) == [0]
    assert table.caption.splitlines()[1:] == ["not used: i8 keeps 0.900 of HR@10"]


def test_warnings_are_for_what_must_not_be_overlooked() -> None:
    assert warnings(summary()) == []
    engine = summary()["engine"] | {"dropped_updates": 1}
    (line,) = warnings(summary(engine=engine))
    assert line.startswith("warning: 1 client update dropped for NaN or infinite values")
    (line,) = warnings(summary(fleet=fleet() | {"contributed": 0}))
    assert "no client contributed" in line
    (line,) = warnings(summary(no_bundles="a bundle has no history_bonus"))
    assert line == "warning: no bundles were written: a bundle has no history_bonus"
    (line,) = warnings(summary(bundles=[{"class": "watch", "lacks": "needs 97 MB"}, {"class": "tv", "lacks": None}]))
    assert "watch" in line
    assert "tv" not in line


def test_over_seeds_is_mean_and_sample_sd() -> None:
    runs = []
    for seed, value in enumerate([0.1, 0.4, 0.7]):
        stages = {"main": {"federated": {"HR@5": value}}}
        kept = dict.fromkeys(("schema", "experiment", "fidelity", "protocol", "rounds", "split", "versions"), "x")
        rest = {"method": "fedmf", "data": "demo", "stage": "federated", "seed": seed, "metrics": {"HR@5": value}}
        runs.append(kept | rest | {"stages": stages, "references": {"main": {"popularity": {"HR@5": 0.2}}}})
    out = over_seeds(runs)
    assert out["seeds"] == [0, 1, 2]
    assert out["metrics"]["HR@5"] == pytest.approx({"mean": 0.4, "sd": 0.3})
    assert out["stages"]["main"]["federated"]["HR@5"] == pytest.approx({"mean": 0.4, "sd": 0.3})
    assert out["references"]["main"]["popularity"]["HR@5"] == pytest.approx({"mean": 0.2, "sd": 0.0})
    assert over_seeds(runs[:1])["metrics"]["HR@5"] == {"mean": 0.1, "sd": 0.0}


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.lists(st.integers(0, 9), max_size=4)), min_size=1)
)
@limits(max_examples=50, deadline=None)
def test_joined_is_row_by_row(rows: list[tuple[list[int], list[int]]]) -> None:
    first, second = (Ragged.from_lists([np.array(row[side], np.int32) for row in rows]) for side in (0, 1))
    both = joined(first, second)
    assert [both[u].tolist() for u in range(len(rows))] == [a + b for a, b in rows]


PART = {"clients": 1, "invited": 1, "contributed": 1, "failures": {}}
EMPTY_FLEET = {"classes": {}, "policy": "deadline", "rounds": 1, "virtual_hours": 1.0, **PART}


def test_the_caption_tells_mode_and_disagreement():
    steps = {"a": {"ratio": 0.25}, "b": {"ratio": 1.5}}
    told = fleet_table(EMPTY_FLEET | {"cost": {"mode": "host-ratio", "host": None, "steps": steps}}).caption
    assert told.endswith(
        "step times: host-ratio; scaled host measurements give 0.25 to 1.5 times the analytic step time"
    )
    same = {"a": {"ratio": 0.3281}, "b": {"ratio": 0.3279}}
    told = fleet_table(EMPTY_FLEET | {"cost": {"mode": "analytic", "host": None, "steps": same}}).caption
    assert told.endswith("step times: analytic; scaled host measurements give 0.33 times the analytic step time")
    for cost in ({}, {"cost": {"mode": "analytic", "host": None, "steps": {}}}):
        assert "step times" not in fleet_table(EMPTY_FLEET | cost).caption


def test_an_experiment_reaches_the_sections_beside_the_fleet():
    asked = ["fleet.cost.mode=host-ratio", "fleet.cost.calibration=c.json", "fleet.rounds.policy=async"]
    found = fleet_overrides(load_experiment(overrides=[*asked, "fleet.dropout=0.0"]))
    assert found == {
        "fleet": {"dropout": 0.0},
        "rounds": {"policy": "async"},
        "cost": {"mode": "host-ratio", "calibration": "c.json"},
    }


def test_markdown_has_every_part_and_a_cell_cannot_break_the_table():
    sheet = Sheet("first", [{"a": "x|y", "b\nc": "1"}], ["a"], caption="mind this")
    text = Page("table-9", "Title", [sheet], [{"a": 1}], ["a note"]).markdown(["seeds 0"])
    assert text.splitlines() == [
        "# Title", "", "- a note", "", "## first", "", "| a | b c |", "|---|---:|", "| x\\|y | 1 |", "", "mind this",
        "", "## How this was made", "", "- seeds 0",
    ]  # fmt: skip


def test_csv_keeps_full_precision_and_leaves_nan_out():
    rows = list(csv.DictReader(io.StringIO(comma_separated([{"a": 1 / 3}, {"a": math.nan, "b": None}]))))
    assert rows == [{"a": repr(1 / 3), "b": ""}, {"a": "", "b": ""}]


def test_files_are_the_same_for_the_same_numbers(tmp_path):
    from matplotlib.figure import Figure

    def page() -> Page:
        figure = Figure()
        figure.subplots().plot([1, 2], [3, 4])
        return Page("figure-9", "Title", [Sheet("s", [{"a": "b"}], ["a"])], [{"a": 1}], figure=figure)

    files = page().write(tmp_path / "one", [])
    again = page().write(tmp_path / "two", [])
    assert [path.name for path in files] == [
        "figure-9.md",
        "figure-9.csv",
        "figure-9.tex",
        "figure-9.png",
        "figure-9.svg",
    ]
    assert [path.read_bytes() for path in files] == [path.read_bytes() for path in again]
    assert "figure-9.svg" in files[0].read_text()
