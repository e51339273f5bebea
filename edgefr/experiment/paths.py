"""An experiment names files of its user; in an experiment file such a name is found from that file's own folder too.

So a run's experiment.yaml makes the same run again from any folder. Owns: which fields name files.
Does not own: reading them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIELDS = (("data",), ("data_options", "items"), ("encoder", "teacher"), ("encoder", "distill", "teacher"))
"""The fields of an experiment that may name a file or a folder."""


def found_from(folder: Path, values: dict[str, Any]) -> None:
    """Rewrite names that are there from a file's `folder` to names from the working folder."""
    _rewrite(values, lambda name: os.path.relpath(folder / name) if (folder / name).exists() else name)


def named_from(folder: Path, values: dict[str, Any]) -> None:
    """Rewrite names that are there from the working folder to names from `folder`, for a file in it."""
    _rewrite(values, lambda name: os.path.relpath(name, folder) if os.path.exists(name) else name)


def without_folders(values: dict[str, Any]) -> None:
    """Leave only the last part of every name: what an experiment is does not depend on where its files lie."""
    _rewrite(values, lambda name: Path(name).name)


def _rewrite(values: dict[str, Any], change: Callable[[str], str]) -> None:
    from edgefr.data.datasets import is_named

    for *above, last in FIELDS:
        place: Any = values
        for part in above:
            place = place.get(part) if isinstance(place, dict) else None
        name = place.get(last) if isinstance(place, dict) else None
        if isinstance(name, str) and name and not os.path.isabs(name) and not is_named(name):
            place[last] = change(name)
