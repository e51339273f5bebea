"""What a run returns in Python: frames with named columns, recommendations, and texts that fit a screen."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from pandas.api.types import is_float_dtype, is_integer_dtype, is_string_dtype
from rich.text import Text

import edgefr
from edge.ragged import Ragged
from edgefr.config.display import COLUMNS, LINES, MORE, html, text
from edgefr.simulation.runs.recommend import best
from edgefr.simulation.runs.saved_model import open_model
from tests import answers
from tests.cli import commands

METRICS = ["after", "on", "stage", "group", "which", "ranking", "mask", "round", "metric", "value", "users"]
LEDGER = ["mechanism", "norm", "multiplier", "steps", "recipient", "client", "releases", "refused"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> edgefr.Run:
    return edgefr.simulate(answers.experiment(), answers.fleet(), out=tmp_path_factory.mktemp("runs") / "tiny")


def test_metrics_are_tidy(run: edgefr.Run) -> None:
    frame = run.metrics
    assert list(frame.columns) == METRICS
    assert is_float_dtype(frame["value"])
    assert is_integer_dtype(frame["round"])
    assert is_integer_dtype(frame["users"])
    assert all(is_string_dtype(frame[name]) for name in METRICS if name not in ("round", "value", "users"))
    last = frame[(frame["round"].isna()) & (frame["which"] == "test") & (frame["ranking"] == "sampled")]
    found = last[last["stage"] == run.summary["stage"]].set_index("metric")["value"]
    assert found.to_dict() == pytest.approx(run.summary["metrics"])


def test_users_ledger_and_events(run: edgefr.Run) -> None:
    users, ledger, events = run.users, run.ledger, run.events
    assert list(users.columns[:4]) == ["user", "on", "stage", "ranking"]
    assert all(is_float_dtype(users[name]) for name in users.columns[4:])
    assert list(ledger.columns) == LEDGER
    assert is_integer_dtype(ledger["releases"])
    assert ledger["releases"].sum() > 0
    assert list(events.columns[:5]) == ["time", "seq", "round", "client", "kind"]
    assert is_float_dtype(events["time"])
    assert all(is_integer_dtype(events[name]) for name in ("seq", "round", "client"))
    assert events["time"].is_monotonic_increasing
    assert (events["kind"] == "closed").sum() == 2


def test_what_is_not_there(tmp_path: Path) -> None:
    empty = edgefr.Run(tmp_path)
    assert list(empty.ledger.columns) == LEDGER
    assert empty.ledger.empty
    assert empty.events.empty
    for name in ("metrics", "users"):
        with pytest.raises(edgefr.InputError, match=r"cannot read .*; run the experiment again"):
            getattr(empty, name)
    (tmp_path / "metrics.parquet").write_text("x")
    with pytest.raises(edgefr.InputError, match=r"cannot read .*metrics.parquet"):
        _ = empty.metrics
    for content in ("{", "[1]", "3", "\x00"):
        (tmp_path / "events.jsonl").write_text(content)
        with pytest.raises(edgefr.InputError, match=r"cannot read .*events.jsonl"):
            _ = empty.events


def test_recommendations_are_those_of_the_command_line(run: edgefr.Run, tmp_path: Path) -> None:
    from edge.recommender import Recommender

    edgefr.export(run, tmp_path / "carried", with_users=True)
    bundle = tmp_path / "carried" / "laptop_x86"
    user = Recommender(bundle).users[0]
    assert Recommender(run.path / "bundles" / "laptop_x86").users == []
    found = run.recommend(user, k=3)
    assert list(found.columns) == ["item", "title", "score", "basis"]
    assert set(found["basis"]) == {"model"}
    assert is_float_dtype(found["score"])
    shown = commands.edgefr("recommend", bundle, "--user", user, "--k", "3", cache=tmp_path).stdout
    at = [shown.index(item) for item in found["item"]]
    assert at == sorted(at)
    assert all(f"{score:.4f}" in shown for score in found["score"])
    with pytest.raises(edgefr.InputError, match="unknown user '7'"):
        run.recommend(7)  # an id that is a number, as a data frame has it


def test_a_user_without_history_has_no_ranking_where_something_is_promised(run: edgefr.Run) -> None:
    """Two runs of other noise differ in nothing but that: what people had is counted in the one that has none."""
    with pytest.raises(edgefr.InputError, match="no ranking yet, since this device has no history; name a user"):
        run.recommend()
    saved = open_model(run)
    had = [[], *([items.tolist() for items in map(saved.model.seen.__getitem__, range(1, len(saved.model.seen)))])]
    without = replace(saved, model=replace(saved.model, seen=Ragged.from_lists(had)))
    counts = Counter(item for items in had for item in items)
    most = sorted(counts, key=lambda item: (-counts[item], item))[:3]
    plain = run.experiment.model_copy(update={"privacy": edgefr.load_experiment().privacy})
    found = best(plain, without, 0, 3)
    assert (found.basis, [item for item, *_ in found]) == ("popular", [saved.model.names.items[n] for n in most])
    assert (best(run.experiment, without, 0, 3), best(run.experiment, saved, 0, 3).basis) == ([], "model")


def test_the_saved_model_recommends_what_bundles_do(run: edgefr.Run) -> None:
    users = [user for user in run.users["user"].unique()[:10]]
    shipped = [run.recommend(user) for user in users]
    hidden = run.path / "hidden"
    os.rename(run.path / "bundles", hidden)
    try:
        for user, frame in zip(users, shipped, strict=True):
            pd.testing.assert_frame_equal(run.recommend(user), frame, atol=1e-5)
        with pytest.raises(edgefr.InputError, match="has no bundles, which say what a new device shows; name a user"):
            run.recommend()
        with pytest.raises(edgefr.InputError, match="unknown user 'x'"):
            run.recommend("x")
    finally:
        os.rename(hidden, run.path / "bundles")


def test_rows_of_a_clients_own_recommend_too(tmp_path: Path) -> None:
    own = ["method=fedrap", "rounds=1", "protocol.negatives=20", *(o for o in answers.OVERRIDES if "data_" in o)]
    run = edgefr.simulate(edgefr.load_experiment(overrides=own), answers.fleet(), out=tmp_path / "run", bundles=False)
    user = run.users["user"].iloc[0]
    found = run.recommend(user, 5)
    assert len(found) == 5
    assert found["score"].is_monotonic_decreasing


def test_a_run_fits_a_screen(run: edgefr.Run) -> None:
    shown = repr(run)
    assert answers.fits_a_screen(shown), shown
    assert "learning" in shown
    assert shown.splitlines()[-1] == f"run: {run.path}"
    page = run._repr_html_()
    assert page.startswith("<pre")
    assert unescape(re.sub("<[^>]+>", "", page)).split() == shown.split()
    assert len(page) < 10_000


def test_runs_that_did_not_end_and_damaged_ones_are_shown(run: edgefr.Run, tmp_path: Path) -> None:
    assert repr(edgefr.Run(tmp_path)).startswith("a run without a summary: nothing is in it yet")
    (tmp_path / "experiment.yaml").write_text("rounds: 3\n")
    assert "edgefr.resume goes on with it" in repr(edgefr.Run(tmp_path))
    for content in ("{", "{}", "[]", '{"verdicts": 3, "stages": {}}'):
        (tmp_path / "summary.json").write_text(content)
        assert repr(edgefr.Run(tmp_path)).startswith("a run whose summary cannot be read"), content


def test_experiments_say_what_differs() -> None:
    assert repr(edgefr.load_experiment()) == "<Experiment 'demo': as by default>"
    assert repr(edgefr.load_experiment(overrides=["rounds=3"])) == "<Experiment 'demo': rounds=3>"
    shown = str(edgefr.load_experiment(overrides=["method=fcucr", "model.dim=8"]))
    assert shown.startswith("<Experiment 'demo': method=fcucr")
    assert "model.dim=8" in shown
    assert answers.fits_a_screen(repr(answers.experiment()))
    long = edgefr.load_experiment(overrides=[f"data_options={{users: 50, domains: {['x' * 9] * 900}}}"])
    assert answers.fits_a_screen(repr(long))


def test_fleets_and_data_sets_are_short() -> None:
    assert repr(answers.fleet()).endswith("laptop_x86 0.6, phone_sd680 0.4>")
    whole = edgefr.load_fleet(answers.DEVICES)
    assert answers.fits_a_screen(repr(whole))
    assert "&lt;FleetFile" in whole._repr_html_()
    assert answers.fits_a_screen(repr(edgefr.load_data("demo", options={"users": 50})))


def test_what_is_too_long_is_cut_before_the_last_part() -> None:
    lines = text(["\n".join(map(str, range(100))), Text("place")]).splitlines()
    assert len(lines) == LINES
    assert lines[-2:] == [MORE, "place"]
    assert max(len(line) for line in text(["word " * 100]).splitlines()) <= COLUMNS
    assert text(["[bold]3[/bold] a_b"]) == "[bold]3[/bold] a_b"
    assert "&lt;b&gt;" in html(["<b>"])
    assert html(["a"]).startswith('<pre style="font-family: monospace; ')
