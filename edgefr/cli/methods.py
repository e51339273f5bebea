"""`edgefr methods` lists the methods: what each needs, what ships to devices, and over which protocols it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefr.cli.output import show_lines

if TYPE_CHECKING:
    from edgefr.experiment.method import Method

HEAD = ("method", "needs", "ships", "protocols, the default first", "paper")
LEGEND = "sequence: items with an order or times. bundle: devices learn with it and recommend from it."


def methods() -> None:
    """List the methods: the data each needs, what ships to devices, the protocols it supports, and its paper.

    Example: `edgefr methods`

    Example: `edgefr methods --plugin mine.py`
    """
    from edgefr.experiment.method import METHODS

    show_lines([HEAD, *((row.name, *facts(row)) for row in METHODS.values())], LEGEND)


def facts(row: Method) -> tuple[str, str, str, str]:
    """Return what a method needs, what ships of it, its protocols with its own first, and its paper."""
    from edgefr.simulation.bundle_checks import unshippable_method

    needs = "texts" if row.needs_text else "sequence" if row.in_order else row.reads
    ships = "-" if row.central is not None or unshippable_method(row) is not None else "bundle"
    return "2 domains" if row.across else needs, ships, " ".join(protocols_of(row)), row.paper


def protocols_of(row: Method) -> Iterator[str]:
    """Yield the protocols over which a method runs, with the one first that it runs over by default."""
    from edgefr.data.protocol import PROTOCOLS

    yield row.protocol
    hands_on = row.defaults.get("strategy", "ft") != "ft"
    for name, protocol in PROTOCOLS.items():
        fits = protocol.hands_on if hands_on else not row.across and protocol.refuses(row) is None
        if fits and name != row.protocol:
            yield name
