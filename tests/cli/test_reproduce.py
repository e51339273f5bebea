"""`edgefr reproduce` of each paper on small archives of its own, by the real command line."""

import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from edgefr.studies.reproductions.fedcar import recipes
from edgefr.studies.tuning.rules import Rules
from tests.cli import commands
from tests.data.tables import archive

ASKED = (
    "--data", "lastfm-2k", "--data", "ml-100k", "--table", "5", "--table", "7", "--rounds", "2", "--seeds", "2",
    "--set", "aggregation.beta=0.4",
)  # fmt: skip


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tags of 40 users in the layout of Last.fm-2K; a third come late, a third leave early, the others stay."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    rows = []
    for user in range(40):
        start, stop = ((0.0, 1.0), (0.55, 1.0), (0.0, 0.7))[user % 3]
        for artist in rng.choice(60, 40, replace=False):
            rows.append((rng.uniform(start, stop), user + 1, artist + 1))
    lines = [f"{user}\t{artist}\t1\t{1_200_000_000_000 + int(when * 10**10)}" for when, user, artist in sorted(rows)]
    header = "userID\tartistID\ttagID\ttimestamp"
    files = {"user_taggedartists-timestamps.dat": "\n".join([header, *lines]) + "\n"}
    archive(folder, "hetrec2011-lastfm-2k", files)
    return folder


@pytest.fixture(scope="module")
def made(data_dir: Path, tmp_path_factory: pytest.TempPathFactory):
    """The command's end, and its folder."""
    cache, out = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("made") / "out"
    arguments = ("reproduce", "f3crec", "--data-dir", data_dir, *ASKED, "--workers", "2", "--out", out)
    return commands.edgefr(*arguments, cache=cache), out


@pytest.mark.slow
def test_pages_are_printed_and_written(made):
    process, out = made
    assert process.returncode == 0, process.stderr
    assert "F3CRec Table 5" in process.stdout
    assert "F3CRec Table 7" in process.stdout
    (line,) = process.stderr.strip().splitlines()  # the archive that is not there, and what to put where
    assert re.match(r"warning: left out: .*ml-100k\.zip is not there", line)
    assert sorted(path.name for path in out.iterdir()) == [
        "bases", "report.html", "runs", "table-5.csv", "table-5.md", "table-5.tex",
        "table-7.csv", "table-7.md", "table-7.tex",
    ]  # fmt: skip
    text = (out / "table-7.md").read_text()
    for part in (
        "seeds 0, 1",
        "fidelity: released",
        "rounds = 2",
        "by the recipe: aggregation.beta = 0.4",
        "5-core 'lastfm-2k'",
        "versions: python",
        "recipe, ",
    ):
        assert part in text


def test_tables_hold_numbers(made):
    rows = list(csv.DictReader((made[1] / "table-7.csv").open()))
    assert {row["seeds"] for row in rows} == {"2"}
    assert all(float(row["mean"]) >= 0 for row in rows if row["value"] != "diff")
    rows = list(csv.DictReader((made[1] / "table-5.csv").open()))
    assert len(rows) == 3 * 2 * 2
    assert all(0 <= float(row["mean"]) <= 1 for row in rows)
    assert {row["published"] for row in rows if row["method"] == "spp"} == {"0.0634", "0.0368", ""}


def test_runs_are_made_once_and_share_their_bases(made):
    names = [path.name for path in (made[1] / "runs").iterdir()]
    assert len(names) == 4 * 2  # F3CRec, w/o a.r.m, w/o i.t.m, SPP
    assert len(list((made[1] / "bases").iterdir())) == 2


def files(out: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(out.rglob("*")) if path.is_file()}


def assert_kept(before: dict[Path, tuple[int, bytes]], after: dict[Path, tuple[int, bytes]], out: Path) -> None:
    """No file holds anything else than before, and but for pages none was written again."""
    assert {path: content for path, (_, content) in after.items()} == {p: content for p, (_, content) in before.items()}
    assert {path for path in before if path.parent != out and before[path][0] != after[path][0]} == set()


def test_the_same_again_changes_nothing(made, data_dir, cli):
    before = files(made[1])
    assert cli("reproduce", "f3crec", "--data-dir", data_dir, *ASKED, "--out", made[1])[0] == 0
    assert_kept(before, files(made[1]), made[1])


def test_a_failed_run_is_named_and_does_not_stop_the_rest(made, data_dir, cli, monkeypatch, tmp_path):
    from edgefr.studies.jobs import Failed
    from edgefr.studies.reproductions import runs

    out = made[1]
    (gone,) = out.glob("runs/*f3crec-no-itemwise*_seed-1")
    summary = (gone / "summary.json").read_bytes()
    os.remove(gone / "summary.json")

    def broken(call, jobs, *rest):
        yield from ((job, Failed("RuntimeError: on purpose")) for job in jobs)

    monkeypatch.setattr(runs, "run_jobs", broken)
    code, printed, err = cli("reproduce", "f3crec", "--data-dir", data_dir, *ASKED, "--out", out)
    (gone / "summary.json").write_bytes(summary)
    assert code == 1
    assert f"failed: {gone.name}: RuntimeError: on purpose" in err
    assert re.search(r"warning: lastfm-2k_released_fedmf_f3crec-no-itemwise\S*: 1 of 2 seeds are done", err)
    assert "F3CRec Table 7" in printed
    unfinished = r"not finished: lastfm-2k_released_fedmf_f3crec-no-itemwise\S*: 1 of 2"
    assert re.search(unfinished, (out / "table-7.md").read_text())


def test_bad_input_is_refused_in_one_line(cli, tmp_path):
    out = tmp_path / "out"
    for paper, arguments, says in (
        ("f3crec", ("--data", "lastfm"), "did you mean"),
        ("f3crec", ("--data", "ml-100k"), "ml-100k.zip is not there"),
        ("f3crec", ("--table", "9"), "'--table'"),
        ("f3crec", ("--fidelity", "true"), "fidelity"),
        ("fcucr", ("--data", "xin"), "did you mean 'xing'"),
        ("fcucr", ("--data", "xing"), "xing-sessions.parquet is not there"),
        ("fcucr", ("--table", "6"), "'--table'"),
        ("fcucr", ("--figure", "11"), "less than or equal to 10"),
        ("fcucr", ("--stream", "twice"), "'--stream'"),
        ("fcucr", ("--set", "model.dim"), "--set takes key=value"),
    ):
        assert says in cli.refused("reproduce", paper, "--data-dir", tmp_path, "--out", out, *arguments)
    (tmp_path / "ml-100k.zip").write_bytes(b"PK\x03\x04 nothing")
    damaged = ("--data-dir", tmp_path, "--out", out, "--data", "ml-100k")
    assert "not a whole zip" in cli.refused("reproduce", "f3crec", *damaged), "it is not left out"
    assert not out.exists()
    assert "--data-dir or EDGEFR_DATA" in cli.refused("reproduce", "f3crec", "--data", "ml-100k")


def test_a_part_of_a_table(data_dir: Path, tmp_path: Path) -> None:
    arguments = ("--data", "lastfm-2k", "--data-dir", data_dir, "--rounds", "1", "--seeds", "1", "--out", tmp_path)
    part = ("--rows", "ft,f3crec", "--backbones", "fedmf")
    commands.done("reproduce", "f3crec", *arguments, *part, cache=tmp_path / "cache")
    names = sorted(path.name.split("_")[3] for path in (tmp_path / "runs").iterdir())
    assert names == ["f3crec", "ft"]
    page = (tmp_path / "table-2.md").read_text()
    assert "a part of the table: rows ft, f3crec; backbones fedmf" in page
    assert "| FT |" in page
    assert "| F3CRec |" in page
    assert "| SPP |" not in page
    assert "## lastfm-2k, FedNCF" not in page
    with (tmp_path / "table-2.csv").open() as file:
        assert {row["method"] for row in csv.DictReader(file)} >= {"ft", "f3crec", "popularity"}


def test_rows_that_no_table_has_are_answered_with_the_nearest(data_dir: Path, tmp_path: Path) -> None:
    arguments = ("--data", "lastfm-2k", "--data-dir", data_dir, "--out", tmp_path, "--rows", "f3crek")
    process = commands.edgefr("reproduce", "f3crec", *arguments, cache=tmp_path / "cache")
    assert process.returncode == 2
    assert "unknown row of table-2 'f3crek'" in process.stderr
    assert "f3crec" in process.stderr
    assert not (tmp_path / "runs").exists()


FCUCR = (
    "--data", "xing", "--table", "3", "--figure", "2", "--rounds", "2", "--seeds", "2", "--set", "model.dim=6",
    "--set", "protocol.negatives=12",
)  # fmt: skip


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def fcucr(sessions: Path, tmp_path_factory: pytest.TempPathFactory):
    """The command's end, and its folder."""
    out = tmp_path_factory.mktemp("made") / "out"
    arguments = ("reproduce", "fcucr", "--data-dir", sessions, *FCUCR, "--out", out)
    return commands.edgefr(*arguments, cache=out.parent / "cache"), out


def test_fcucr_prints_and_writes_pages(fcucr):
    process, out = fcucr
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    for part in ("FCUCR Table 3", "FCUCR Figure 2", "w/o TASD", "seen, then popularity", "set by hand: rounds = 2"):
        assert part in process.stdout
    figure = [f"figure-2.{kind}" for kind in ("csv", "md", "png", "svg", "tex")]
    names = [*figure, "report.html", "runs", "table-3.csv", "table-3.md", "table-3.tex"]
    assert sorted(path.name for path in out.iterdir()) == names
    text = (out / "table-3.md").read_text()
    for part in ("seeds 0, 1", "fidelity: released", "protocol, xing: sessions and parts as released", "stream cyclic"):
        assert part in text
    assert re.search(r"beaten by|not beaten by", text)


def test_fcucr_tables_hold_the_numbers_of_the_runs(fcucr):
    rows = list(csv.DictReader((fcucr[1] / "table-3.csv").open()))
    (whole,) = (r for r in rows if r["row"] == "FCUCR (SASRec)" and r["measure"] == "HR@10" and not r["against"])
    paths = fcucr[1].glob("runs/xing_released_fcucr-sasrec_*/summary.json")
    values = [json.loads(path.read_text())["metrics"]["HR@10"] for path in paths]
    assert len(values) == 2
    assert float(whole["mean"]) == pytest.approx(sum(values) / 2)
    assert whole["published"] == "0.2882"
    assert {r["pairs"] for r in rows if r["against"]} == {"2"}


def test_fcucr_tables_share_their_runs(fcucr):
    names = {path.name.split("_")[2] for path in (fcucr[1] / "runs").iterdir()}
    parts = {"fcucr-sasrec", "no-tasd", "no-iupr", "no-both"}
    assert names == parts | {"sasrec", "gru4rec", "tisasrec", "miasrec", "hearint", "dmi-gnn"}
    assert len(list((fcucr[1] / "runs").iterdir())) == 2 * 10


def test_first_sessions_have_a_point_per_round(fcucr):
    rows = list(csv.DictReader((fcucr[1] / "figure-2.csv").open()))
    curve = [r for r in rows if r["row"] == "Fed-SASRec" and r["measure"] == "first session HR@10"]
    assert [r["at"] for r in curve] == ["1", "2"]
    bins = [float(r["value"]) for r in rows if r["measure"] == "share of targets from probability"]
    assert sum(bins) == pytest.approx(2.0)  # two histograms


SPLIT = "protocol: {name: leave-one-out, min_interactions: 6, negatives: 9}\n"
RECIPE = """\
method: {method}
model: {{dim: 4}}
data: ml-100k
{protocol}rounds: 2
evaluation: {{curve_ranking: full}}
"""


@pytest.fixture(scope="module")
def recipes_of_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with recipes of two rows, and ratings of 40 users in the layout of MovieLens-100K."""
    folder = tmp_path_factory.mktemp("fedcar")
    rng = np.random.default_rng(0)
    lines = [
        f"{user + 1}\t{item + 1}\t4\t{n}" for user in range(40) for n, item in enumerate(rng.choice(60, 15, False))
    ]
    titles = [f"{item + 1}|Film {item + 1} (1990)|01-Jan-1990||url|" + "|".join("1" * 19) for item in range(60)]
    genres = [f"genre-{number}|{number}" for number in range(19)]
    tables = {"u.data": lines, "u.item": titles, "u.genre": genres}
    archive(folder, "ml-100k", {name: "\n".join(rows) + "\n" for name, rows in tables.items()})
    kept = folder / recipes.RECIPES / "ml-100k"
    kept.mkdir(parents=True)
    for method in ("fedmf", "fedcar"):
        (kept / f"{method}.yaml").write_text(RECIPE.format(method=method, protocol=SPLIT))
        rules = Rules().columns
        (kept / f"{method}.csv").write_text(f"trial,{','.join(rules)}\n0,{','.join(rules.values())}\n")
    (folder / recipes.PROTOCOL).write_text(SPLIT)
    (folder / "devices.yaml").write_text((commands.ROOT / "devices.yaml").read_text())
    return folder


def test_rows_that_have_a_recipe_are_run_and_compared(recipes_of_two: Path, tmp_path: Path) -> None:
    asked = ("--table", "2", "--data", "ml-100k", "--rows", "fedmf,fedcar", "--seeds", "2", "--rounds", "1")
    arguments = ("reproduce", "fedcar", *asked, "--data-dir", recipes_of_two, "--out", tmp_path / "out")
    assert "FedCAR Table 2" in commands.done(*arguments, cache=tmp_path / "cache", cwd=recipes_of_two)
    rows = list(csv.DictReader((tmp_path / "out" / "table-2.csv").open()))
    assert {row["method"] for row in rows} == {"fedmf", "fedcar"}
    assert {row["ranking"] for row in rows} == {"full", "sampled"}
    assert all(0 <= float(row["mean"]) <= 1 for row in rows)
    assert sum(bool(row["difference"]) for row in rows) == 1, "FedMF is compared with FedCAR"
    page = (tmp_path / "out" / "table-2.md").read_text()
    assert "popularity" in page
    assert "EASE" not in page


def test_a_row_without_a_recipe_is_refused_in_one_line(recipes_of_two: Path, tmp_path: Path) -> None:
    asked = ("--table", "2", "--data", "ml-100k", "--data-dir", recipes_of_two)
    arguments = ("reproduce", "fedcar", *asked, "--out", tmp_path / "out")
    process = commands.edgefr(*arguments, cache=tmp_path / "cache", cwd=recipes_of_two)
    line = commands.refused(process.returncode, process.stdout, process.stderr)
    assert "edgefr tune" in line
    assert "--rows" in line
    assert not (tmp_path / "out").exists()
