"""`edgefr reproduce fedcar` on an archive of its own, by the real command line."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from edgefr.studies.reproductions.fedcar import recipes
from edgefr.studies.tuning.rules import Rules
from tests.cli import commands
from tests.data.tables import archive

PROTOCOL = "protocol: {name: leave-one-out, min_interactions: 6, negatives: 9}\n"
RECIPE = """\
method: {method}
model: {{dim: 4}}
data: ml-100k
{protocol}rounds: 2
evaluation: {{curve_ranking: full}}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        (kept / f"{method}.yaml").write_text(RECIPE.format(method=method, protocol=PROTOCOL))
        rules = Rules().columns
        (kept / f"{method}.csv").write_text(f"trial,{','.join(rules)}\n0,{','.join(rules.values())}\n")
    (folder / recipes.PROTOCOL).write_text(PROTOCOL)
    (folder / "devices.yaml").write_text((commands.ROOT / "devices.yaml").read_text())
    return folder


def test_rows_that_have_a_recipe_are_run_and_compared(place: Path, tmp_path: Path) -> None:
    asked = ("--table", "2", "--data", "ml-100k", "--rows", "fedmf,fedcar", "--seeds", "2", "--rounds", "1")
    arguments = ("reproduce", "fedcar", *asked, "--data-dir", place, "--out", tmp_path / "out")
    assert "FedCAR Table 2" in commands.done(*arguments, cache=tmp_path / "cache", cwd=place)
    rows = list(csv.DictReader((tmp_path / "out" / "table-2.csv").open()))
    assert {row["method"] for row in rows} == {"fedmf", "fedcar"}
    assert {row["ranking"] for row in rows} == {"full", "sampled"}
    assert all(0 <= float(row["mean"]) <= 1 for row in rows)
    assert sum(bool(row["difference"]) for row in rows) == 1, "FedMF is compared with FedCAR"
    page = (tmp_path / "out" / "table-2.md").read_text()
    assert "popularity" in page
    assert "EASE" not in page


def test_a_row_without_a_recipe_is_refused_in_one_line(place: Path, tmp_path: Path) -> None:
    asked = ("--table", "2", "--data", "ml-100k", "--data-dir", place)
    arguments = ("reproduce", "fedcar", *asked, "--out", tmp_path / "out")
    process = commands.edgefr(*arguments, cache=tmp_path / "cache", cwd=place)
    line = commands.refused(process.returncode, process.stdout, process.stderr)
    assert "edgefr tune" in line
    assert "--rows" in line
    assert not (tmp_path / "out").exists()
