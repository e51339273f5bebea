"""What is held out of rows of equal times, and what the protocol's line and its hints say of candidates."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgefr
from edgefr.data.interactions import Dataset
from edgefr.data.splits.leave_one_out import LeaveOneOut
from privacy.errors import InputError

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03", "2024-01-03"]


def written(folder: Path, header: str, rows: list[str]) -> str:
    path = folder / "log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


def log(folder: Path, backward: bool) -> str:
    """A log of two users who had three items on their last day, in the order of the day or against it."""
    rows = [f"{user},{user}{n},{day}" for user in "ab" for n, day in enumerate(DAYS)]
    return written(folder, "user,item,time", rows[::-1] if backward else rows)


def held_out(dataset: Dataset) -> dict[str, tuple[str, str]]:
    """The validation and the test item of every user."""
    (split,) = LeaveOneOut(negatives=1).apply(dataset, 0)
    ids = dataset.catalogue.ids
    pairs = zip(dataset.users, split.valid, split.test, strict=True)
    return {str(user): (str(ids[valid]), str(ids[test])) for user, valid, test in pairs}


@pytest.mark.parametrize(
    ("backward", "ties", "items", "told"),
    [
        (False, "auto", ("a3", "a4"), "last"),
        (True, "auto", ("a3", "a4"), "first"),
        (False, "first", ("a3", "a2"), "first"),
        (True, "last", ("a3", "a2"), "last"),
    ],
)
def test_the_newest_of_a_day_is_as_the_file_goes(
    tmp_path: Path, backward: bool, ties: str, items: tuple[str, str], told: str
) -> None:
    dataset = edgefr.load_data(log(tmp_path, backward), options=dict(ties=ties))
    assert held_out(dataset)["a"] == items
    assert f"of equal times the {told} in the file counts as newest" in LeaveOneOut(negatives=1).describe(dataset)


def test_candidates_that_were_rated_too_low_are_said_to_be_such(tmp_path: Path) -> None:
    rows = [f"{user},i{n},{1 + (n > 0)},{n}" for user in "ab" for n in range(6)]
    path = written(tmp_path, "user,item,rating,time", rows)
    line = LeaveOneOut(negatives=1).describe(edgefr.load_data(path, options=dict(positive=2)))
    assert "listed items the user never had or rated below 2 (no interaction here); full" in line
    assert "listed items the user never had; full" in LeaveOneOut(negatives=1).describe(edgefr.load_data(path))


def test_metrics_that_a_short_list_makes_constant_are_named() -> None:
    dataset = edgefr.load_data("demo", options={"users": 20, "items": 120, "interactions": 12})
    words = "HR@10, Recall@10 of 6 candidates are 1 whatever is learned: raise protocol.negatives"
    for negatives, told in ((5, True), (10, False)):
        asked = ["method=fedmf", "evaluation.k=[5, 10]", f"protocol.negatives={negatives}"]
        experiment = edgefr.load_experiment(overrides=asked)
        line = experiment.protocol.entry.cut(experiment, dataset).protocol
        assert line.endswith(f"; {words}") is told
        assert ("HR@10" in line) is told


def test_a_hint_of_user_most_leaves_somebody_to_be_ranked(tmp_path: Path) -> None:
    path = written(tmp_path, "user,item,time", [f"u{user},i{n},{n}" for user in range(3) for n in range(8)])
    with pytest.raises(InputError, match=r"to draw from; use data with more items$"):
        LeaveOneOut(negatives=2).apply(edgefr.load_data(path), 0)
    with pytest.raises(InputError, match=r"raise data_options.user_most to 8$"):
        edgefr.load_data(path, options=dict(user_most=3))
    assert len(edgefr.load_data(path, options=dict(user_most=8)).users) == 3
