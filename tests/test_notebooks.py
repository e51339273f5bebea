"""The notebooks run from their first cell to their last, and what their cells made is asked for in one more."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.caches import new_cache

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
ASKED = {
    "first-run": """
assert run.summary["verdicts"] and run.summary["stage"] == "localtrain"
assert list(curve["round"]) == [0, 4, 8, 12] and curve["value"].iloc[-1] > curve["value"].iloc[0]
assert len(run.events) > 100
assert after != before, "the phone learned nothing"
assert not {item for item, *_ in after} & {"i0000003", "i0000042", "i0000007"}, "what its owner has is shown again"
""",
    "own-data-and-method": """
assert shop.statistics()["users"] == 240
assert all(result.passed for result in checked) and len(checked) > 8
rows = compared.frame
assert len(rows) == 1 and rows["low"].iloc[0] < rows["difference"].iloc[0] < rows["high"].iloc[0]
for one in (fedmf, mine):
    assert one.summary["metrics"]["NDCG@10"] > one.summary["references"]["main"]["chance"]["NDCG@10"] + 0.05
""",
    "privacy-utility": """
table = central.tables["tradeoff"].set_index("privacy.epsilon")
assert list(table.index) == ["0.1", "8", "inf"] and (table["seeds"] == 2).all()
assert table["NDCG@10"]["inf"] > table["popularity NDCG@10"]["inf"] > table["NDCG@10"]["0.1"]
assert central.figures["tradeoff"].read_bytes().startswith(b"\\x89PNG")
assert len(said) == 1 and "no usable point" in said[0]
found = {name: audit.attacks["auc"].iloc[0] for name, audit in audits.items()}
assert found["no noise"] > 0.8 and abs(found["local, epsilon 1"] - 0.5) < 0.15, found
""",
}


def test_every_notebook_is_asked_something() -> None:
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_no_outputs_are_kept(name: str) -> None:
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    assert all(not cell.outputs and cell.execution_count is None for cell in book.cells if cell.cell_type == "code")


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("EDGEFR_CACHE", str(new_cache(tmp_path / "cache")))
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    book.cells.append(nbformat.v4.new_code_cell(ASKED[name]))
    place = tmp_path / "elsewhere"  # a notebook needs nothing of the repository's folder
    place.mkdir()
    NotebookClient(book, timeout=550, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
    shutil.rmtree(place)
