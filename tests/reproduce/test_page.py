"""The web page of a reproduction: published numbers beside ours, pictures, and the command, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from edgefr.config.sheet import Sheet
from edgefr.report.pages import Page
from edgefr.studies.reproductions.page import Reproduction, command, write_reproduction
from tests.report.conftest import browser
from tests.report.test_browser import CONTRAST, OPEN, OUTSIDE, looked_at

__all__ = ["browser"]


def record(method: str, mean: float, published: float | None, on: str = "mean") -> dict[str, Any]:
    head = {"data": "ml-100k", "backbone": "fedmf", "method": method, "metric": "NDCG@20", "on": on}
    return {**head, "mean": mean, "sd": 0.004, "seeds": 5, "published": published}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A table with published numbers and one figure."""
    records = [
        record("ft", 0.09, 0.10),
        record("f3crec", 0.12, 0.10),
        record("ft", 0.5, 0.1, "D1"),
        record("x", 1, None),
    ]
    rows = [{"method": name, **{f"column {n}": "0.1234 ± 0.0056" for n in range(9)}} for name in ("FT", "F3CRec")]
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1], [0, 1])
    table = Page("table-2", "F3CRec Table 2: six methods", [Sheet("ml-100k", rows, ["method"])], records, ["p: paired"])
    drawn = Page("figure-3", "F3CRec Figure 3: gains", [Sheet("gains", rows, ["method"])], [], figure=figure)
    about = ["seeds 0, 1", "protocol, ml-100k: 99 <negatives>", "recipe, ml-100k_ft: lr: 0.1", "versions: edgefr 1"]
    again = command("f3crec", ["table-2", "figure-3"], {"data": ["ml-100k"], "seeds": 2, "set": ["rounds=3"]})
    made = Reproduction("F3CRec", again, [table, drawn], [about, about], {"ml-100k_x": "it <broke>"}, 3, 4)
    return write_reproduction(made, tmp_path)


def test_published_numbers_stand_beside_ours(page: Path, browser: Any) -> None:
    found = looked_at(browser, page)
    assert found.execute_script(OUTSIDE) == []
    cells = "return [...document.querySelectorAll('#table-2 tbody tr')].slice(0, 2).map((row) => row.innerText)"
    first, second = (" ".join(text.split()) for text in found.execute_script(cells))
    assert first == "ft 0.0900 ± 0.0040 0.1000 -10.0 %"
    assert second == "f3crec 0.1200 ± 0.0040 0.1000 +20.0 %"
    rules = "return [...document.querySelectorAll('#table-2 .mean')].map((line) => line.getAttribute('x1'))"
    assert len(set(found.execute_script(rules))) == 1  # the paper's number, the same for both rows
    text = found.execute_script("return document.body.innerText")
    assert "3 of 4 runs" in text
    assert "Ours is lower in 1, the median difference is +5.0 %, from -10 % to +20 %." in text
    assert "edgefr reproduce f3crec --table 2 --figure 3 --data ml-100k --seeds 2 --set rounds=3" in text
    assert "it <broke>" in text
    assert "99 <negatives>" in text
    assert "p: paired" in text


def test_pictures_lie_in_the_page_itself(page: Path, browser: Any) -> None:
    found = looked_at(browser, page)
    size = "const one = document.querySelector('#figure-3 img'); return [one.naturalWidth, one.alt.length]"
    wide, words = found.execute_script(size)
    assert wide > 100
    assert words > 10
    assert page.stat().st_size < 3_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone(scheme: str, page: Path, browser: Any) -> None:
    found = looked_at(browser, page, 390, scheme)
    found.execute_script(OPEN)
    assert found.execute_script("return document.documentElement.scrollWidth") <= 390
    assert found.execute_script(CONTRAST)[1] == []


def test_the_command_has_no_option_that_a_paper_lacks() -> None:
    options = {"data": None, "seeds": 5, "fidelity": "released", "stream": None, "rows": [], "set": []}
    assert command("transfr", ["table-2"], options) == "edgefr reproduce transfr --table 2"
    other = options | {"fidelity": "paper", "seeds": 1}
    assert command("fcucr", ["table-2"], other) == "edgefr reproduce fcucr --table 2 --seeds 1 --fidelity paper"
