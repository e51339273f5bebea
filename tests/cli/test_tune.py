"""`edgefr tune` as a user runs it: files, refusals, and a command that is killed and given again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.commands import COMMAND, ROOT, done, environment
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


def test_a_recipe_is_written_that_simulate_takes_and_a_killed_command_goes_on_to_the_same(
    arguments: list[str | Path], cache: Path, tmp_path: Path
) -> None:
    out = Path(arguments[-1])
    assert "wrote" in done(*arguments, "--workers", "2", cache=cache)
    names = sorted(
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and "trials" not in path.parts
    )
    assert names == [
        *("budgets.csv", "budgets.md", "budgets.tex", "fedmf/budget.json", "fedmf/search.journal", "fedmf/tuning.json"),
        *("recipes/fedmf.csv", "recipes/fedmf.md", "recipes/fedmf.tex", "recipes/fedmf.yaml", "tuning.json"),
    ]
    assert {path.name for path in out.rglob("trials/*/*")} == {"trial.json"}
    recipe = out / "recipes/fedmf.yaml"
    done("simulate", "--experiment", recipe, "--no-bundles", "--out", out / "run", cache=cache)

    other = tmp_path / "other"
    again = [*arguments[:-1], other]
    env = environment(cache) | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*COMMAND, *map(str, again)], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    for _ in range(600):
        if list(other.rglob("trial.json")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done(*again, cache=cache)
    assert (other / "recipes" / "fedmf.yaml").read_text() == recipe.read_text()


def test_what_is_wrong_is_one_line(arguments: list[str | Path], cli: Cli) -> None:
    for more, words in (
        (("--seed", "3"), "seed 3 is one that results are reported with"),
        (("--spaces", "nowhere"), "there is no folder nowhere"),
        (("--set", "protocol.negatives=5000"), "protocol.negatives is 5000"),
        (("--metric", "MRR@10"), "unknown --metric 'MRR@10'"),
        (("--metric", "HR@7"), "unknown --metric 'HR@7'"),
        (("--set", "model.lr=1"), "fedmf.yaml searches model.lr"),
        (("--set", "evaluation.curve_ranking=sampled"), "the rules say"),
        (("--set", "model.dim=-1"), "model.dim"),
    ):
        line = cli.refused(*arguments, *more)
        assert words in line
        assert "trial" not in line.replace("--trials", ""), "it is said before any"
    assert "unknown search space 'fedmfx'; did you mean 'fedmf'" in cli.refused("tune", "fedmfx", *arguments[2:])
    assert not Path(arguments[-1]).exists()


def test_in_any_folder_the_spaces_that_ship_are_searched(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "unknown search space 'fedmfx'; did you mean 'fedmf'" in cli.refused("tune", "fedmfx")
