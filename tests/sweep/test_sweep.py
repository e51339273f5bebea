"""`edgefr sweep` as a user runs it: a tiny sweep, killed, gone on with, with runs that fail."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefr.studies.sweeps.plan import RECORD
from privacy.errors import InputError
from tests.cli.commands import COMMAND, ROOT, environment, hear_interrupts
from tests.durable.runs import differences, result
from tests.sweep.conftest import GRID, Made

POINTS = ["privacy.epsilon=8", "privacy.epsilon=inf"]


def records(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_are_folders_and_every_point_has_its_row(whole: Made):
    assert (whole.process.returncode, whole.process.stderr) == (0, "")
    runs = sorted(str(p.parent.relative_to(whole.folder)) for p in whole.folder.rglob("summary.json"))
    assert runs == [f"runs/{point}/seed-{seed}" for point in POINTS for seed in (0, 1)]
    rows, lines = records(whole.folder / "sweep.csv"), records(whole.folder / "runs.csv")
    assert [(row["privacy.epsilon"], row["seeds"], row["failed"]) for row in rows] == [
        (epsilon, "2", "0") for epsilon in ("8", "inf")
    ]
    assert [(row["privacy.epsilon"], row["seed"], row["status"]) for row in lines] == [
        (epsilon, seed, "done") for epsilon in ("8", "inf") for seed in "01"
    ]
    for row in rows:
        own = [float(line["NDCG@10"]) for line in lines if line["privacy.epsilon"] == row["privacy.epsilon"]]
        assert float(row["NDCG@10"]) == pytest.approx(sum(own) / 2)
        assert float(row["NDCG@10 sd"]) == pytest.approx(abs(own[0] - own[1]) / 2**0.5)


def test_a_run_of_a_sweep_is_the_run_of_simulate(whole: Made, tiny: Path, cli, tmp_path: Path):
    out = tmp_path / "alone"
    swept = whole.folder / "runs" / POINTS[0] / "seed-1"
    same = ("--noise-key", swept / "private" / "noise.key")
    options = ("--experiment", tiny, "--set", "privacy.epsilon=8", "--seed", "1", "--no-bundles", "--out", out, *same)
    assert cli("simulate", *options)[0] == 0
    assert [name for name in differences(out, result(swept)) if name != "files"] == []


def test_the_trade_off_is_written_and_drawn(whole: Made):
    rows = records(whole.folder / "tradeoff.csv")
    assert [row["eps_guaranteed"] for row in rows][1] == "inf"
    assert 7.9 < float(rows[0]["eps_guaranteed"]) <= 8
    usable = [row for row in rows if row["usable"] == "True"]
    assert [row["front_guaranteed"] == "True" for row in rows].count(True) == bool(usable)
    page = (whole.folder / "tradeoff.md").read_text()
    assert "![Privacy and utility](figures/tradeoff.svg)" in page
    assert ("front by guaranteed epsilon: no usable point" in page) != bool(usable)
    png = (whole.folder / "figures" / "tradeoff.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20]) > 1000
    assert "popularity" in (whole.folder / "figures" / "tradeoff.svg").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_half_way_it_goes_on_to_the_same_results(
    how: signal.Signals, whole: Made, same: tuple[str, str], tiny: Path, cache: Path, cli, tmp_path: Path
):
    out = tmp_path / "stopped"
    arguments = ["sweep", "--experiment", str(tiny), *GRID]
    process = subprocess.Popen(
        [*COMMAND, *arguments, *same, "--out", str(out)],
        cwd=ROOT,
        env=environment(cache) | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
        preexec_fn=hear_interrupts,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 120
    while not list(out.rglob("summary.json")):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.001)
    os.killpg(process.pid, how)
    err = process.communicate()[1]
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert f"continue with the same command and --resume {out}" in err.splitlines()
    done = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert 1 <= len(done) <= 3
    assert not (out / "sweep.csv").exists()
    code, _, err = cli(*arguments, "--resume", out)
    assert (code, err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in done} == done, "a finished run was run again"
    for name in ("sweep.csv", "sweep.md", "tradeoff.csv", "tradeoff.md", "sweep.json", "figures/tradeoff.svg"):
        assert (out / name).read_bytes() == (whole.folder / name).read_bytes(), name
    for point in POINTS:
        for seed in (0, 1):
            run = Path("runs", point, f"seed-{seed}")
            assert differences(out / run, result(whole.folder / run)) == []


def test_another_command_does_not_go_on_with_it(whole: Made, tiny: Path, cli, tmp_path: Path):
    same = ["sweep", "--experiment", tiny, *GRID, "--resume", whole.folder]
    other = tmp_path / "devices.yaml"
    other.write_text((ROOT / "devices.yaml").read_text().replace("dropout: 0.", "dropout: 0.1", 1))
    before = {path: path.stat().st_mtime_ns for path in whole.folder.rglob("*") if path.is_file()}
    for change, what in (
        (["--grid", "rounds=[1, 2]"], "--grid"),
        (["--seeds", "3"], "seeds"),
        (["--set", "rounds=1"], "experiment"),
        (["--devices", other], "fleet"),
        (["--search", "2", "--search-space", "rounds=int(1,2)"], "search"),
    ):
        code, out, err = cli(*same, *change)
        assert (code, out) == (2, "")
        assert f"was begun by another command: its {what} differs" in err
    code, out, err = cli(*same[:-2], "--out", whole.folder)
    assert (code, out) == (2, "")
    assert f"--resume {whole.folder}" in err.replace("\n", ""), "how the same command goes on"
    assert {path: path.stat().st_mtime_ns for path in whole.folder.rglob("*") if path.is_file()} == before


def test_a_run_that_fails_is_listed_and_stops_nobody(cli, tmp_path: Path):
    out = tmp_path / "out"
    options = ["--set", "method=fedmf", "--set", "rounds=1", "--set", "evaluation.full_ranking_users=0"]
    code, _, err = cli("sweep", *options, "--grid", "data=[ml-100k, demo]", "--out", out)
    assert code == 1
    (line,) = err.splitlines()
    assert line.startswith("failed: runs/data=ml-100k/seed-0: InputError: data set 'ml-100k' is read from a folder")
    assert [(row["data"], row["status"], row["problem"][:10]) for row in records(out / "runs.csv")] == [
        ("ml-100k", "failed", "InputError"), ("demo", "done", ""),
    ]  # fmt: skip
    assert [(row["data"], row["failed"]) for row in records(out / "sweep.csv")] == [("ml-100k", "1"), ("demo", "0")]
    assert not (out / "tradeoff.csv").exists()
    assert not (out / "figures").exists()


def test_a_search_tunes_a_point_and_its_journal_is_enough_to_go_on(tiny: Path, cli, tmp_path: Path):
    out = tmp_path / "out"
    space = ["--search-space", "aggregation.server_lr=log(0.1,10)", "--search-space", "rounds=int(1,3)"]
    grid = ["--grid", "privacy.epsilon=[8]", "--seeds", "2"]
    command = ["sweep", "--experiment", tiny, *grid, "--search", "4", *space]
    code, _, err = cli(*command, "--out", out)
    assert (code, err) == (0, "")
    lines = records(out / "runs.csv")
    assert len(lines) == 4 + 1
    first = [row for row in lines if row["seed"] == "0"]
    assert [row["trial"] for row in first] == list("0123")
    assert all(1 <= int(row["rounds"]) <= 3 and 0.1 <= float(row["aggregation.server_lr"]) <= 10 for row in lines)
    best = max(first, key=lambda row: (float(row["validation NDCG@10"]), -int(row["trial"])))
    stands = {(row["trial"], row["seed"]) for row in lines if row["best"] == "True"}
    assert stands == {(best["trial"], "0"), (best["trial"], "1")}
    (row,) = records(out / "tradeoff.csv")
    assert (row["chosen rounds"], row["seeds"]) == (best["rounds"], "2")
    assert float(row["eps_guaranteed"]) <= 8
    before = {name: (out / name).read_bytes() for name in ("runs.csv", "sweep.md", "tradeoff.csv", "search.journal")}
    (out / "sweep.md").unlink()
    code, _, err = cli(*command, "--resume", out)
    assert (code, err) == (0, "")
    assert {name: (out / name).read_bytes() for name in before} == before


def test_two_processes_do_not_share_a_sweep(whole: Made):
    taken = pytest.raises(InputError, match="another process is at work on the sweep in")
    with RECORD.alone(whole.folder), taken, RECORD.alone(whole.folder):
        pass


REFUSED = [
    ((), "there is nothing to sweep over"),
    (("--grid", "rouns=[1]"), "unknown key 'rouns'; did you mean 'rounds'"),
    (("--grid", "rounds=[1, many]"), "--grid rounds=many: rounds: it should be a valid integer"),
    (("--grid", "privacy.epsilon=[1, 0]"), "privacy.epsilon: it should be greater than 0"),
    (("--grid", "rounds=[1]", "--grid", "rounds=[2]"), "rounds is given twice"),
    (("--grid", "method=[fedmf, fedmv]"), "--grid method=fedmv: unknown method"),
    (("--grid", "data=[demo, dmeo]"), "unknown data set 'dmeo'"),
    (("--grid", "data_options.users=[0]"), "option users of data set 'demo'"),
    (("--grid", "fleet.dropout=[0.1, 2]"), "dropout"),
    (("--grid", "engine.executor=[inline, debug]"), "are the same experiment"),
    (("--grid", "rounds=[1]", "--seed", "2147483647", "--seeds", "2"), "seeds end at"),
    (("--grid", "rounds=[1]", "--search-space", "model.lr=log(1,2)"), "add --search TRIALS"),
    (("--grid", "rounds=[1]", "--objective", "NDCG@10"), "add --search TRIALS"),
    (("--search", "3"), "add --search-space"),
    (("--search", "3", "--search-space", "model.lrr=log(1,2)"), "unknown key 'lrr'"),
    (("--search", "3", "--search-space", "rounds=int(-5,2)"), "--search-space rounds=-5"),
    (("--grid", "rounds=[1]", "--search", "3", "--search-space", "rounds=int(1,2)"), "rounds is given twice"),
    (("--search", "3", "--search-space", "rounds=int(1,2)", "--objective", "MRR"), "unknown validation metric 'MRR'"),
    (
        ("--search", "3", "--search-space", "rounds=int(1,2)", "--objective", "source NDCG@10"),
        "unknown validation metric",
    ),
    (("--grid", "rounds=[1]", "--metric", "NDCG@20"), "unknown metric 'NDCG@20'"),
    (("--grid", "rounds=[1]", "--resume", "nowhere"), "nowhere holds no sweep to continue"),
    (("--grid", "rounds=[1]", "--devices", "none.yaml"), "cannot read none.yaml"),
    (("--grid", "engine.device=[gpu]"), "engine.device"),
    (("--grid", "rounds=[1]", "--workers", "0"), "--workers"),
    (("--search", "2", "--search-space", "rounds=int(1,2)"), "pip install 'edgefr[sweep]'"),
]


def own(arguments: tuple[str, ...]) -> list[str]:
    """An epsilon is one way to name the noise, the experiment's sigma another."""
    return [*arguments, "--set", f"privacy.sigma={'null' if 'privacy.eps' in ' '.join(arguments) else 1}"]


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_cannot_be_swept_is_refused_before_anything_runs(arguments, says, tiny, cli, monkeypatch, tmp_path: Path):
    if "pip install" in says:
        monkeypatch.setitem(sys.modules, "optuna", None)
    place = () if "--resume" in arguments else ("--out", tmp_path / "out")
    code, out, err = cli("sweep", "--experiment", tiny, *own(arguments), *place)
    assert (code, out) == (2, ""), (out, err)
    (line,) = err.splitlines()
    assert says in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"schema": "edgefr.sweep/9"}', "\x00"])
def test_a_damaged_record_is_refused(content: str, tiny: Path, cli, tmp_path: Path):
    (tmp_path / "sweep.json").write_text(content)
    code, _, err = cli("sweep", "--experiment", tiny, *GRID, "--resume", tmp_path)
    assert code == 2
    assert "cannot read" in err
