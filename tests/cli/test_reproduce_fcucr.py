"""`edgefr reproduce fcucr` on a small table in the layout of the XING release, by the real command line."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli import commands
from tests.cli.test_reproduce import assert_kept, files

ASKED = (
    "--data", "xing", "--table", "3", "--figure", "2", "--rounds", "2", "--seeds", "2", "--set", "model.dim=6",
    "--set", "protocol.negatives=12",
)  # fmt: skip


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 users with five sessions of four items each: three train, one validates, one is tested."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    rows = []
    for user in range(16):
        for session, part in enumerate(("train", "train", "train", "valid", "test")):
            for at, item in enumerate(rng.integers(0, 60, 4)):
                rows.append((user, int(item), 1, 100_000 * session + 60 * at, 5 * user + session, part))
    names = ("user_id", "item_id", "interaction_type", "created_at", "session_id", "split")
    table = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    parquet.write_table(table, folder / "xing-sessions.parquet")
    return folder


@pytest.fixture(scope="module")
def made(data_dir: Path, tmp_path_factory: pytest.TempPathFactory):
    """The command's end, and its folder."""
    out = tmp_path_factory.mktemp("made") / "out"
    arguments = ("reproduce", "fcucr", "--data-dir", data_dir, *ASKED, "--out", out)
    return commands.edgefr(*arguments, cache=out.parent / "cache"), out


def test_pages_are_printed_and_written(made):
    process, out = made
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    for part in ("FCUCR Table 3", "FCUCR Figure 2", "w/o TASD", "seen, then popularity", "set by hand: rounds = 2"):
        assert part in process.stdout
    figure = [f"figure-2.{kind}" for kind in ("csv", "md", "png", "svg")]
    names = [*figure, "report.html", "runs", "table-3.csv", "table-3.md"]
    assert sorted(path.name for path in out.iterdir()) == names
    text = (out / "table-3.md").read_text()
    for part in ("seeds 0, 1", "fidelity: released", "protocol, xing: sessions and parts as released", "stream cyclic"):
        assert part in text
    assert re.search(r"beaten by|not beaten by", text)


def test_tables_hold_the_numbers_of_the_runs(made):
    rows = list(csv.DictReader((made[1] / "table-3.csv").open()))
    (whole,) = (r for r in rows if r["row"] == "FCUCR (SASRec)" and r["measure"] == "HR@10" and not r["against"])
    paths = made[1].glob("runs/xing_released_fcucr-sasrec_*/summary.json")
    values = [json.loads(path.read_text())["metrics"]["HR@10"] for path in paths]
    assert len(values) == 2
    assert float(whole["mean"]) == pytest.approx(sum(values) / 2)
    assert whole["published"] == "0.2882"
    assert {r["pairs"] for r in rows if r["against"]} == {"2"}


def test_tables_share_their_runs(made):
    names = {path.name.split("_")[2] for path in (made[1] / "runs").iterdir()}
    parts = {"fcucr-sasrec", "no-tasd", "no-iupr", "no-both"}
    assert names == parts | {"sasrec", "gru4rec", "tisasrec", "miasrec", "hearint", "dmi-gnn"}
    assert len(list((made[1] / "runs").iterdir())) == 2 * 10


def test_first_sessions_have_a_point_per_round(made):
    rows = list(csv.DictReader((made[1] / "figure-2.csv").open()))
    curve = [r for r in rows if r["row"] == "Fed-SASRec" and r["measure"] == "first session HR@10"]
    assert [r["at"] for r in curve] == ["1", "2"]
    bins = [float(r["value"]) for r in rows if r["measure"] == "share of targets from probability"]
    assert sum(bins) == pytest.approx(2.0)  # two histograms


def test_the_same_again_runs_nothing(made, data_dir, cli):
    out = made[1]
    before = files(out)
    assert cli("reproduce", "fcucr", "--data-dir", data_dir, *ASKED, "--out", out)[0] == 0
    assert_kept(before, files(out), out)
