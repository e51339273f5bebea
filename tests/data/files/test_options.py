"""What is told of a file is done: which rows count, which time they have, their sessions, splits, domains and texts."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import edgefr
from edgefr.data.datasets import load
from edgefr.data.interactions import Dataset
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.data.splits.sessions import SessionsProtocol
from privacy.errors import InputError


def read(folder: Path, text: str, **options: Any) -> Dataset:
    path = folder / "table.csv"
    path.write_text(text)
    return load(str(path), options=options)


@pytest.mark.parametrize(
    ("written", "how", "seconds"),
    [
        (["1500000000", "1600000000"], "auto", [1500000000, 1600000000]),
        (["1500000000.0", "1.6e9"], "auto", [1500000000, 1600000000]),
        (["1500000000999", "1600000000000"], "auto", [1500000000, 1600000000]),
        (["1500000000999999", "1600000000000000"], "auto", [1500000000, 1600000000]),
        (["1500000000999999999", "1600000000000000000"], "auto", [1500000000, 1600000000]),
        (["2017-07-14", "2020-09-13 12:26:40"], "auto", [1499990400, 1600000000]),
        (["2017-07-14T02:40:00.999Z", "2020-09-13T14:26:40+02:00"], "auto", [1500000000, 1600000000]),
        (["2017-07-14 02:40:00 UTC", "2020-09-13 12:26:40.123456"], "auto", [1500000000, 1600000000]),
        (["14/07/2017 02:40", "13/09/2020 12:26"], "%d/%m/%Y %H:%M", [1500000000, 1599999960]),
        (["20170714", "20200913"], "%Y%m%d", [1499990400, 1599955200]),
        (["15", "16"], "s", [15, 16]),
        (["0", "1600000000"], "s", [0, 1600000000]),
    ],
)
def test_times(tmp_path: Path, written: list[str], how: str, seconds: list[int]) -> None:
    dataset = read(tmp_path, "user,item,time\n" + "".join(f"u,i{n},{at}\n" for n, at in enumerate(written)), time=how)
    assert dataset.clock
    assert dataset.time.tolist() == seconds


@pytest.mark.parametrize(("how", "order"), [("auto", [1, 0, 2]), ("order", [1, 0, 2]), ("none", [0, 1, 2])])
def test_positions_are_an_order(tmp_path: Path, how: str, order: list[int]) -> None:
    dataset = read(tmp_path, "user,item,time\nu,a,7\nu,b,3\nu,c,9\n", time=how)
    assert not dataset.clock
    assert dataset.item.tolist() == order


def test_without_times_the_file_is_the_order(tmp_path: Path) -> None:
    dataset = read(tmp_path, "user,item\nu,a\nv,b\nu,c\n")
    assert (dataset.clock, dataset.time.tolist()) == (False, [0, 2, 1])


REPEATS = "user,item,time,rating\n" + "".join(f"u,{i},{t},{r}\n" for i, t, r in ("a52", "a52", "b64", "a75", "a83"))


@pytest.mark.parametrize(
    ("how", "items", "times"),
    [
        ("keep", "aabaa", [5, 5, 6, 7, 8]),
        ("once", "abaa", [5, 6, 7, 8]),
        ("first", "ab", [5, 6]),
        ("last", "ba", [6, 8]),
    ],
)
def test_repeats(tmp_path: Path, how: str, items: str, times: list[int]) -> None:
    dataset = read(tmp_path, REPEATS, repeats=how)
    assert "".join(dataset.catalogue.ids[dataset.item]) == items
    assert dataset.time.tolist() == times


@pytest.mark.parametrize("unit", ["ms", "auto"])
def test_rows_of_one_second_are_two_moments_where_the_file_is_finer(tmp_path: Path, unit: str) -> None:
    """Rows stand by milliseconds whatever their order in the file, and only those of one millisecond repeat."""
    text = "user,item,time\nu,b,1486479600900\nu,a,1486479600100\nu,a,1486479600500\nu,a,1486479600100\n"
    dataset = read(tmp_path, text, time=unit)
    assert "".join(dataset.catalogue.ids[dataset.item]) == "aab"
    assert dataset.time.tolist() == [1486479600] * 3
    assert dataset.moment.tolist() == [1486479600100, 1486479600500, 1486479600900]


def test_a_threshold_counts_what_it_leaves_out(tmp_path: Path) -> None:
    dataset = read(tmp_path, REPEATS, positive=3)
    assert dataset.time.tolist() == [6, 7, 8]
    assert dataset.source["notes"] == "2 of 5 rows are rated below 3.0 (data_options.positive)"
    assert dataset.source["ratings"] == [2.0, 16 / 5, 5.0]


def test_a_user_who_had_everything_can_be_left_out(tmp_path: Path) -> None:
    """Nothing would be left to rank for it; who has repeats alone is no such user."""
    people = [("bot", n) for n in range(30)] + [(f"u{n % 5}", n) for n in range(25)] + [("u0", 0)] * 40
    text = "user,item,time\n" + "".join(f"{who},i{what},{at}\n" for at, (who, what) in enumerate(people))
    whole = read(tmp_path, text, repeats="first")
    with pytest.raises(
        InputError, match=r"leaves only 0 of 30 items .* out \(of a file by data_options\.user_most=25\)"
    ):
        LeaveOneOut(negatives=5).apply(whole, 0)
    left = read(tmp_path, text, repeats="first", user_most=25)
    assert left.users.tolist() == [f"u{n}" for n in range(5)]
    assert "30 of 95 rows are of users with over 25 interactions" in left.source["notes"]
    LeaveOneOut(negatives=5).apply(left, 0)
    with pytest.raises(InputError, match=r"raise data_options\.user_most"):
        read(tmp_path, text, user_most=1)


def test_a_column_that_is_none_is_left_alone(tmp_path: Path) -> None:
    text = "user,item,rating,split\nu,a,good,north\nu,b,bad,south\n"
    assert len(read(tmp_path, text, columns={"rating": "-", "split": "-"}).user) == 2


def test_an_own_split_is_what_is_held_out(tmp_path: Path) -> None:
    rows = [f"u{u},i{i},{'test' if i == 1 else 'val' if i == 3 and u else 'train'}" for u in range(3) for i in range(6)]
    dataset = read(tmp_path, "user,item,split\n" + "\n".join([*rows, "u9,i1,train", "u9,i2,train", "u9,i9,train"]))
    (split,) = LeaveOneOut(negatives=1).apply(dataset, 0)
    assert split.test.tolist() == [1, 1, 1, -1]
    assert split.valid.tolist() == [5, 3, 3, -1], "without a validation row the newest training item validates"
    assert split.train[0].tolist() == [0, 2, 3, 4]
    assert split.train[3].tolist() == [1, 2, 6]
    assert "as the data's own split" in LeaveOneOut().describe(dataset)


def test_an_own_split_with_several_test_rows_is_refused(tmp_path: Path) -> None:
    dataset = read(tmp_path, "user,item,split\nu,a,train\nu,b,test\nu,c,test\nu,d,train\n")
    with pytest.raises(InputError, match=r"user 'u' has 2 rows of test in the split of 'table'"):
        LeaveOneOut().apply(dataset, 0)


def test_a_test_item_that_the_user_trained_on_does_not_count(tmp_path: Path) -> None:
    dataset = read(tmp_path, "user,item,split\nu,a,train\nu,b,train\nu,c,train\nu,a,test\n")
    with pytest.raises(InputError, match="a test item in its split that is new to the user"):
        LeaveOneOut().apply(dataset, 0)


def test_sessions_of_ones_own(tmp_path: Path) -> None:
    rows = [f"u{u},i{(u + s + k) % 7},s{u}-{s}" for u in range(4) for s in range(4) for k in range(3)]
    dataset = read(tmp_path, "user,item,session\n" + "\n".join(rows))
    split, sessions = SessionsProtocol(negatives=1).apply(dataset, 0)
    assert (len(sessions), len(split.users("test"))) == (16, 4)
    mixed = "user,item,session,split\nu,a,s,train\nu,b,s,test\n"
    with pytest.raises(InputError, match="a session of user 'u' has rows of two parts"):
        read(tmp_path, mixed)


def test_domains_beside_interactions_or_items(tmp_path: Path) -> None:
    domain = ["books"] * 8 + ["films"] * 8
    rows = [(u, i, domain[i]) for u in range(5) for i in range(16) if i % 8 != u]
    beside = read(tmp_path, "user,item,domain\n" + "\n".join(f"u{u},i{i},{d}" for u, i, d in rows))
    items = "\n".join(f"i{i},T{i},{d}" for i, d in enumerate(domain))
    (tmp_path / "list.csv").write_text("item,title,domain\n" + items)
    listed = read(tmp_path, "user,item\n" + "\n".join(f"u{u},i{i}" for u, i, _ in rows), items="list.csv")
    for dataset in (beside, listed):
        assert dataset.domains == ("books", "films")
        source, target = CrossDomain(source="books", target="films", negatives=1).apply(dataset, 0)
        assert (len(source.pool), len(target.pool)) == (8, 8)
    assert listed.catalogue.title[3] == f"T{listed.catalogue.ids[3][1:]}"


def test_one_id_in_two_domains_is_two_items(tmp_path: Path) -> None:
    text = "user,item,domain,title\nu,1,books,Emma\nu,1,films,Emma\nu,2,films,Alien\n"
    dataset = read(tmp_path, text, texts=["title"])
    assert dataset.catalogue.ids.tolist() == ["1", "1", "2"]
    assert dataset.catalogue.domain.tolist() == [0, 1, 1]
    assert dataset.catalogue.title == ["Emma", "Emma", "Alien"]


def test_texts_beside_interactions_have_to_be_told(tmp_path: Path) -> None:
    text = "user,item,title,kind\nu,a,Alien,horror|space\nv,a,Alien!,x\nu,b,,quiet\n"
    assert not any(read(tmp_path, text).catalogue.text)
    dataset = read(tmp_path, text, texts=["kind", "title"])
    assert dataset.catalogue.text == ["horror, space. Alien", "quiet"]
    assert dataset.catalogue.title == ["Alien", ""]


def test_items_without_a_row_have_no_text(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(
        '{"item": "a", "title": "Alien", "genres": [["horror", "space"]]}\n{"item": "z"}\n'
    )
    dataset = read(tmp_path, "user,item\nu,a\nu,b\n", items="items.jsonl")
    assert dataset.catalogue.text == ["horror, space. Alien", ""]
    with pytest.raises(InputError, match=r"its column item has none of the items of 'table' \(the first is 'q'\)"):
        read(tmp_path, "user,item\nu,q\n", items="items.jsonl")


def test_a_repr_fits_a_screen(tmp_path: Path) -> None:
    dataset = load("demo", options={"users": 300})
    assert len(repr(dataset)) < 400
    assert len(repr(dataset).splitlines()) == 2
    assert len(repr(dataset.catalogue)) < 80
    assert "300 users" in repr(dataset)


def test_a_data_set_is_simulated_and_resumed(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"uid": draw.integers(0, 20, 300), "iid": draw.integers(0, 60, 300)})
    dataset = edgefr.Dataset.from_frame(frame, name="mine")
    asked = ["method=fedmf", "rounds=2", "model.dim=4", "protocol.negatives=9", "evaluation.k=[5]"]
    experiment = edgefr.load_experiment(overrides=asked)
    run = edgefr.simulate(experiment, data=dataset, out=tmp_path / "run", bundles=False, page=False)
    assert run.summary["dataset"]["users"] == 20
    assert run.experiment.data == "given"
    (run.path / "summary.json").unlink()
    with pytest.raises(InputError, match="pass it again by data="):
        edgefr.resume(run.path, bundles=False, page=False)
    again = edgefr.resume(run.path, data=dataset, bundles=False, page=False)
    assert again.summary["dataset"]["users"] == 20
    named = edgefr.load_experiment(overrides=[*asked, "data=ml-100k"])
    with pytest.raises(InputError, match="the experiment names another: ml-100k"):
        edgefr.simulate(named, data=dataset, out=tmp_path / "other", bundles=False)
    texts = edgefr.load_experiment(overrides=["protocol.negatives=9"])
    with pytest.raises(InputError, match="transfr reads the texts of items, and 'mine' has none"):
        edgefr.simulate(texts, data=dataset, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


MOMENTS = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=9 * step) for step in range(4)]
COLUMNS: dict[str, Any] = {"user": list("abaa"), "item": list("xyxz")}
TIMES: dict[str, Any] = {
    "polars": lambda: pl.DataFrame({**COLUMNS, "time": MOMENTS}),
    "polars categories": lambda: pl.DataFrame({**COLUMNS, "time": MOMENTS}).with_columns(
        pl.col("user").cast(pl.Enum(["q", "b", "a"])), pl.col("item").cast(pl.Categorical)
    ),
    "pandas": lambda: pd.DataFrame({**COLUMNS, "time": MOMENTS}, index=[5, 5, 6, 6]),
    "pandas without zone": lambda: pd.DataFrame({**COLUMNS, "time": [at.replace(tzinfo=None) for at in MOMENTS]}),
    "pandas text": lambda: pd.DataFrame({**COLUMNS, "time": [at.isoformat() for at in MOMENTS]}, dtype=object),
    "arrow": lambda: pa.table(
        {"user": pa.array(COLUMNS["user"], pa.large_string()), "item": COLUMNS["item"], "time": MOMENTS}
    ),
}


@pytest.mark.parametrize("kind", TIMES)
def test_frames_with_times_and_categories(kind: str) -> None:
    dataset = Dataset.from_frame(TIMES[kind]())
    assert (dataset.users.tolist(), dataset.catalogue.ids.tolist()) == (["a", "b"], ["x", "y", "z"])
    assert dataset.time.tolist() == [int(MOMENTS[row].timestamp()) for row in (0, 2, 3, 1)]


def test_ids_of_64_bits_stay_whole() -> None:
    table = pa.table({"user": pa.array([2**64 - 1, 2**64 - 2], pa.uint64()), "item": pa.array([-5, 2**62])})
    dataset = Dataset.from_frame(table)
    assert dataset.users.tolist() == [str(2**64 - 2), str(2**64 - 1)]
    assert dataset.catalogue.ids.tolist() == [str(2**62), "-5"]
