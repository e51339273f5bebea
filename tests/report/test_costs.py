"""What the page says of the costs of a round, against literal figures of a fleet."""

from __future__ import annotations

from typing import Any

from edgefr.report.fleet import slowest, typical
from edgefr.report.web.costs import first_download
from tests.report.test_report import device, fleet

DOWN = {"p10": 1e6, "p50": 3e6, "p90": 5e6}
UP = {"p10": 0.25e6, "p50": 0.5e6, "p90": 1e6}
SECONDS = {"p10": 1.0, "p50": 2.0, "p90": 4.0}
JOULES = {"p10": 10.0, "p50": 20.0, "p90": 40.0}


def costly(**values: Any) -> dict[str, Any]:
    return device() | {"bytes_down": DOWN, "bytes_up": UP, "seconds": SECONDS, "energy_j": JOULES} | values


def test_what_a_round_moves_is_what_is_fetched_and_what_is_sent() -> None:
    assert typical(costly()) == [(2.0, "s"), (20.0, "J"), (3.5, "MB")]
    assert typical(costly(bytes_up={"p10": None, "p50": None, "p90": None})) == [(2.0, "s"), (20.0, "J")]


def test_a_first_round_is_told_from_each_further_one_with_what_is_sent() -> None:
    travel = {"once": 2.5e6, "down": 4e5, "up": 1e5, "fetched_once": 9}
    said = first_download(fleet() | {"travel": travel})
    assert "also downloads 2.5 MB, once" in said
    assert "Each further round moves 0.5 MB." in said
    assert "9 devices had a first round" in said


def test_the_slowest_is_by_its_slowest_tenth_and_not_by_its_median() -> None:
    rare = costly(label="rarely slow", seconds={"p10": 1.0, "p50": 1.5, "p90": 9.0})
    found = slowest(fleet(steady=costly(label="steady"), rare=rare))
    assert (found[0], found[1]["seconds"]["p90"]) == ("rare", 9.0)
