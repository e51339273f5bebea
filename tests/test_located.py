"""Files that an experiment names are found from its own folder, so a run can be made again anywhere."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest

from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.runs.run import Run
from tests.cli.commands import edgefr

SMALL = ("method=fedmf", "model.dim=4", "rounds=1", "protocol.negatives=5", "fleet.share={laptop_x86: 1.0}")


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """A file of 30 people and 40 items in a folder of its own."""
    lines = ["user,item,time"]
    lines += [f"u{u},i{(7 * u + 3 * k) % 40},{1_600_000_000 + 86_400 * k + u}" for u in range(30) for k in range(8)]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "ratings.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "work" / "ratings.csv"


def test_the_command_on_a_runs_page_makes_it_again_from_the_folder_that_holds_the_run(ratings: Path) -> None:
    """The page says so; the file of ratings lies elsewhere, and was named from the folder where the run was made."""
    here, cache = ratings.parent, ratings.parent / "cache"
    sets = [part for value in (*SMALL, "privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=8")
            for part in ("--set", value)]  # fmt: skip
    first = edgefr("simulate", "--data", "ratings.csv", *sets, "--out", "deep/runs/first", cache=cache, cwd=here)
    assert first.returncode == 0, first.stderr
    page = (here / "deep" / "runs" / "first" / "report.html").read_text()
    shown = re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', page, re.DOTALL)
    (command,) = (text for text in shown if "-again" in text)
    words = shlex.split(html.unescape(command))
    assert words[:2] == ["edgefr", "simulate"]
    again = edgefr(*words[1:], cache=cache, cwd=here / "deep" / "runs")
    assert again.returncode == 0, again.stderr
    runs = [Run.open(here / "deep" / "runs" / name) for name in ("first", "first-again")]
    assert runs[0].summary["metrics"] == runs[1].summary["metrics"]
    for name in ("metrics.parquet", "checkpoint/model.safetensors"):
        assert (runs[0].path / name).read_bytes() == (runs[1].path / name).read_bytes()


def test_a_name_in_a_file_is_found_beside_it_and_else_from_the_working_folder(
    ratings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ratings.parent / "mine.yaml"
    file.write_text("method: fedmf\ndata: ratings.csv\n")
    monkeypatch.chdir(ratings.parent)
    assert load_experiment(file).data == "ratings.csv"
    monkeypatch.chdir(ratings.parent.parent)
    assert load_experiment("work/mine.yaml").data == "work/ratings.csv"
    Path("elsewhere.csv").write_text("user,item\n")
    file.write_text("method: fedmf\ndata: elsewhere.csv\n")
    assert load_experiment("work/mine.yaml").data == "elsewhere.csv"


def test_a_data_set_with_a_name_stays_that_where_a_folder_is_called_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("sub/ml-100k").mkdir()
    Path("sub/mine.yaml").write_text("method: fedmf\ndata: ml-100k\n")
    assert load_experiment("sub/mine.yaml").data == "ml-100k"
