"""A run that was killed at any moment and resumed comes to the same result, bit for bit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.commands import ROOT, edgefr, environment
from tests.durable import runs
from tests.durable.conftest import command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and /proc")


@pytest.fixture(scope="module")
def report(place: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of killing three experiments: blocks, one model, one model with two seeds."""
    folder = tmp_path_factory.mktemp("killed")
    few = {"each_kind": False, "timed": 0}
    jobs = [
        {"name": "blocks", "arguments": command(place, "f3crec"), "moments": 10, "timed": 2, "each_kind": True},
        {"name": "one", "arguments": command(place, "fedmf"), "moments": 4, **few},
        {"name": "seeds", "arguments": [*command(place, "fedmf"), "--seeds", "2"], "moments": 5, **few},
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.durable.driver", str(folder)],
        cwd=ROOT,
        env=environment(cache) | {"PYTHONPATH": str(ROOT)},
        input=json.dumps(jobs, default=str),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(("name", "least"), [("blocks", 22), ("one", 4), ("seeds", 5)])
def test_a_killed_run_comes_to_the_same_result(name: str, least: int, report: dict[str, Any]) -> None:
    found = report[name]
    expected = runs.result(Path(found["whole"]))
    assert runs.differences(Path(found["again"]), expected) == [], "two runs that nobody disturbed differ"
    killed = [run for run in found["runs"] if run["first"] == -signal.SIGKILL]
    assert len(killed) >= least
    assert [run for run in found["runs"] if run["first"] not in (0, -signal.SIGKILL)] == []
    wrong = [(run, runs.differences(Path(run["out"]), expected)) for run in found["runs"]]
    assert [(run["what"], parts) for run, parts in wrong if parts] == []


def said(run: dict[str, Any]) -> list[str]:
    """What a run said on stderr beside how far it was, which it says from its third second on."""
    return [line for line in "".join(run["errors"]).splitlines() if not re.match(r"\[\d+ (s|min)\] ", line)]


@pytest.mark.parametrize("name", ["blocks", "one", "seeds"])
def test_a_resumed_run_ends_well_or_says_that_nothing_had_begun(name: str, report: dict[str, Any]) -> None:
    anew = 0
    for run in report[name]["runs"]:
        *before, last = run["codes"] or [0]
        assert last in (0, -signal.SIGKILL), run  # killed again after the last thing it had to do
        assert set(before) <= {2, -signal.SIGKILL}, run
        if 2 in before:
            (line,) = said(run)
            assert "holds no run to continue (no experiment.yaml); start it with" in line
            anew += 1
        else:
            assert said(run) == [], run
    assert anew <= 5, "nearly every moment must leave something that can be gone on with"


@pytest.mark.parametrize(("name", "most"), [("blocks", 12), ("one", 3)])
def test_no_release_is_forgotten_or_charged_twice(name: str, most: int, report: dict[str, Any]) -> None:
    """The ledgers of runs that were killed are the whole run's, byte for byte; in one of them the budget binds."""
    whole = (Path(report[name]["whole"]) / "ledger.parquet").read_bytes()
    table = pq.read_table(pa.BufferReader(whole))
    assert max(table["releases"].to_pylist()) <= most
    assert sum(table["releases"].to_pylist()) >= 100
    assert (sum(table["refused"].to_pylist()) > 0) == (name == "one")
    for run in report[name]["runs"]:
        assert (Path(run["out"]) / "ledger.parquet").read_bytes() == whole, run


def test_the_moments_are_what_they_claim(report: dict[str, Any]) -> None:
    """Kills hit data, rounds, ends of blocks, checkpoints being written and final files; some runs are killed twice."""
    hit = Counter(run["what"].partition("(")[2].rstrip(")") for run in report["blocks"]["runs"])
    for moment in ("prepare", "meet", "append", "round", "lists", "engage", "_carry", "end", "fsync", "rename"):
        assert hit[moment], moment
    for moment in ("rmtree", "state", "write_tensors", "write_metrics", "write_ledger", "write_summary"):
        assert hit[moment], moment
    every = [run for job in report.values() for run in job["runs"]]
    assert sum(run["codes"].count(-signal.SIGKILL) > 0 for run in every) >= 4
    assert Counter(report["blocks"]["calls"])["_carry"] == 2
    events = Path(report["blocks"]["whole"]) / "events.jsonl"
    closed = [json.loads(line) for line in events.read_text().splitlines() if '"closed"' in line]
    assert len(closed) >= 8
    failures = Counter[str]()
    for event in closed:
        failures.update(event["outcomes"])
    assert failures.keys() > {"ok"}, "nobody failed, so the fleet is not what is tested"


@pytest.mark.parametrize("moment", ["import", "checkpoint"])
def test_the_command_line_killed_from_outside(
    moment: str, place: Path, cache: Path, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    seen = {
        "import": lambda: True,
        "checkpoint": lambda: any(out.glob("checkpoint/*round-00000002*")),
    }
    arguments = [*command(place, "fedmf"), "--out", out]
    code, _, err = runs.stopped(["simulate", *arguments], cache, seen[moment], signal.SIGKILL)
    assert (code, err) == (-signal.SIGKILL, "")
    if moment == "import":
        assert not out.exists()
        refusal = edgefr("simulate", "--resume", out, cache=cache)
        assert refusal.returncode == 2
        assert refusal.stderr.endswith(f"(no experiment.yaml); start it with --out {out}\n")
        done = edgefr("simulate", *arguments, cache=cache)
    else:
        assert not (out / "summary.json").exists()
        done = edgefr("simulate", "--no-bundles", "--resume", out, cache=cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith(f"run: {out}")
    assert runs.differences(out, runs.result(whole)) == []
