"""A device's own interactions come from a text file: an item id a line, or an item, a tab and unix seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.device import Device

LINES = 1_000_000
"""Longest file of interactions, lines."""


def read_interactions(path: Path) -> list[str]:
    """Return item ids, one per line, without empty lines and a first line `item`; `InputError` for another file."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line, _ in zip(file, range(LINES + 1), strict=False)]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as a text file of item ids, one per line: {error}") from error
    if len(lines) > LINES:
        raise InputError(f"{path} has more than {LINES:,} lines; give a device its own interactions")
    return [line for number, line in enumerate(lines) if line and not (number == 0 and line == "item")]


def read_stream(path: Path) -> tuple[list[str], list[int] | None]:
    """Return item ids and, where each line says it after a tab, when they were in unix seconds (None: no line does).

    A first line `item` or `item<TAB>time` is passed over. `InputError` for another file.
    """
    parts = [line.partition("\t") for line in read_interactions(path)]
    parts = parts[1:] if parts and parts[0] == ("item", "\t", "time") else parts
    said = [moment for _, tab, moment in parts if tab]
    if not said:
        return [item for item, _, _ in parts], None
    if len(said) < len(parts) or not all(re.fullmatch("[0-9]{1,15}", moment) for moment in said):
        raise InputError(f"{path} has lines without a time, or with one that is no whole number of unix seconds")
    return [item for item, _, _ in parts], [int(moment) for moment in said]


def check_work(one: Device, given: Sequence[str]) -> None:
    """Refuse a release of a device that was given nothing and has nothing: it would spend privacy on noise alone."""
    if not given and not one.has_work:
        raise InputError(
            "nothing to learn from: this device has no interactions yet, and none was given; give its own, an item id "
            "a line (nothing was released)"
        )
