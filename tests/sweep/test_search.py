"""A search: the same trials whatever is killed, within their ranges, and better than chance."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from edgefr.studies.sweeps.grid import Range
from edgefr.studies.sweeps.search import BATCH, JOURNAL, EndedTrial, Study, Trial, available, open_journal

RANGES = [Range("privacy.clip", "log", 0.01, 100.0), Range("rounds", "int", 1, 50)]


@pytest.fixture(autouse=True)
def quiet():
    available()


def study(folder: Path, trials: int = 11, name: str = "p", seed: int = 0, place: int = 0) -> Study:
    return Study(open_journal(folder), name, RANGES, trials, seed, place)


def value(trial: Trial) -> float:
    """Best at clip 1 and 20 rounds; NaN, a failed run, for every fifth trial."""
    if trial.number % 5 == 4:
        return math.nan
    return -(math.log10(trial.values["privacy.clip"]) ** 2) - abs(trial.values["rounds"] - 20) / 50


def whole(searched: Study) -> list[EndedTrial]:
    while batch := searched.ask():
        searched.tell([EndedTrial(trial, value(trial)) for trial in batch])
    return searched.ended


def test_trials_come_in_batches_within_their_ranges(tmp_path):
    searched, sizes = study(tmp_path), []
    while batch := searched.ask():
        assert searched.ask() == batch, "asking twice is asking once"
        sizes.append(len(batch))
        searched.tell([EndedTrial(trial, value(trial)) for trial in reversed(batch)])
    assert sizes == [BATCH, BATCH, 3]
    told = searched.ended
    assert [one.trial.number for one in told] == list(range(11))
    assert all(0.01 <= one.trial.values["privacy.clip"] <= 100 for one in told)
    assert all(isinstance(one.trial.values["rounds"], int) and 1 <= one.trial.values["rounds"] <= 50 for one in told)
    assert len({str(one.trial.values) for one in told}) == 11
    assert searched.best == max((one for one in told if one.value == one.value), key=lambda one: one.value)


def test_the_same_search_after_any_kill(tmp_path):
    expected = whole(study(tmp_path))
    content = (tmp_path / JOURNAL).read_bytes()
    for cut in (0, 1, len(content) // 3, len(content) // 2, len(content) - 1):
        folder = tmp_path / f"cut {cut}"
        folder.mkdir()
        (folder / JOURNAL).write_bytes(content[:cut])
        (folder / f"{JOURNAL}.lock").symlink_to("gone")
        assert repr(whole(study(folder))) == repr(expected), cut  # NaN is a value like any other


def test_seed_and_point_decide_the_trials(tmp_path):
    first = study(tmp_path, name="a").ask()
    assert study(tmp_path, name="b").ask() == first
    assert study(tmp_path, name="c", seed=1).ask() != first
    assert study(tmp_path, name="d", place=1).ask() != first


def test_a_longer_search_begins_with_the_shorter(tmp_path):
    short = whole(study(tmp_path, trials=BATCH, name="short"))
    assert repr(whole(study(tmp_path, trials=2 * BATCH, name="long"))[:BATCH]) == repr(short)


def test_a_search_learns(tmp_path):
    told = whole(study(tmp_path, trials=40))
    known = [one.value for one in told if not math.isnan(one.value)]
    assert sum(known[-12:]) / 12 > sum(known[:8]) / 8 + 0.3


def test_where_all_fail_nothing_is_best(tmp_path):
    searched = study(tmp_path, trials=2)
    searched.tell([EndedTrial(trial, math.nan) for trial in searched.ask()])
    assert searched.best is None
    assert searched.ask() == []
