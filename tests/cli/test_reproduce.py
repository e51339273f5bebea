"""`edgefr reproduce f3crec` on an archive of its own, by the real command line."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest

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
        "bases", "report.html", "runs", "table-5.csv", "table-5.md", "table-7.csv", "table-7.md",
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
