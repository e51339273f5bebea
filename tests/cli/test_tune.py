"""`edgefr tune` as a user runs it: files, refusals, and a command that is killed and given again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, ROOT, edgefr, environment, refused
from tests.cli.conftest import Cli

SPACE = """\
experiment: {method: fedmf, model.dim: 4}
ranges: {model.lr: "log(0.1, 10)", model.item_lr: "log(10, 1000)"}
why: a test
"""
DATA = "data_options={users: 60, items: 160, interactions: 12}"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str | Path]:
    (tmp_path / "fedmf.yaml").write_text(SPACE)
    limits = ("--trials", "5", "--set", "rounds=2", "--set", DATA)
    return ["tune", "fedmf", "--spaces", tmp_path, *limits, "--out", tmp_path / "out"]


def test_the_command_writes_a_recipe_that_simulate_takes(arguments: list[str | Path], cache: Path) -> None:
    out = Path(arguments[-1])
    process = edgefr(*arguments, "--workers", "2", cache=cache)
    assert process.returncode == 0, process.stderr
    names = sorted(
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and "trials" not in path.parts
    )
    assert names == [
        *("budgets.csv", "budgets.md", "fedmf/budget.json", "fedmf/search.journal", "fedmf/tuning.json"),
        *("recipes/fedmf.csv", "recipes/fedmf.md", "recipes/fedmf.yaml", "tuning.json"),
    ]
    assert {path.name for path in out.rglob("trials/*/*")} == {"trial.json"}
    assert "wrote" in process.stdout
    run = edgefr(
        "simulate", "--experiment", out / "recipes/fedmf.yaml", "--no-bundles", "--out", out / "run", cache=cache
    )
    assert run.returncode == 0, run.stderr


def test_a_killed_command_goes_on(arguments: list[str | Path], cache: Path, tmp_path: Path) -> None:
    out = Path(arguments[-1])
    env = environment(cache) | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    for _ in range(600):
        if list(out.rglob("trial.json")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = edgefr(*arguments, cache=cache)
    assert whole.returncode == 0, whole.stderr
    other = [*arguments[:-1], tmp_path / "other"]
    assert edgefr(*other, cache=cache).returncode == 0
    kept = [(place / "recipes" / "fedmf.yaml").read_text() for place in (out, tmp_path / "other")]
    assert kept[0] == kept[1]


def test_what_is_wrong_is_one_line(arguments: list[str | Path], cli: Cli) -> None:
    assert "seed 3 is one that results are reported with" in refused(*cli(*arguments, "--seed", "3"))
    line = refused(*cli("tune", "fedmfx", *arguments[2:]))
    assert "unknown search space 'fedmfx'; did you mean 'fedmf'" in line
    assert "there is no folder nowhere" in refused(*cli(*arguments, "--spaces", "nowhere"))
    few = refused(*cli(*arguments, "--set", "protocol.negatives=5000"))
    assert "protocol.negatives is 5000" in few
    assert "trial" not in few
    assert "unknown --metric 'MRR@10'" in refused(*cli(*arguments, "--metric", "MRR@10"))
    assert "unknown --metric 'HR@7'" in refused(*cli(*arguments, "--metric", "HR@7"))
    assert "fedmf.yaml searches model.lr" in refused(*cli(*arguments, "--set", "model.lr=1"))
    assert "the rules say" in refused(*cli(*arguments, "--set", "evaluation.curve_ranking=sampled"))
    assert "model.dim" in refused(*cli(*arguments, "--set", "model.dim=-1"))
    assert not Path(arguments[-1]).exists()


def test_in_any_folder_the_spaces_that_ship_are_searched(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "unknown search space 'fedmfx'; did you mean 'fedmf'" in refused(*cli("tune", "fedmfx"))
