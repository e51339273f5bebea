"""An experiment names files of its user; a name in an experiment file is also looked up from that file's folder.

So a run's experiment.yaml works from any folder. Owns: which fields name files. Does not own: reading them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIELDS = (("data",), ("data_options", "items"), ("encoder", "teacher"), ("encoder", "distill", "teacher"))
"""The fields of an experiment that may name a file or a folder."""


def found_from(folder: Path, values: dict[str, Any]) -> None:
    """Rewrite names of files that exist from `folder` to names from the working folder."""
    _rewrite(values, lambda name: os.path.relpath(folder / name) if (folder / name).exists() else name)


def named_from(folder: Path, values: dict[str, Any]) -> None:
    """Rewrite names of files that exist from the working folder to names from `folder`."""
    _rewrite(values, lambda name: os.path.relpath(name, folder) if os.path.exists(name) else name)


def without_folders(values: dict[str, Any]) -> None:
    """Keep only the last part of names: an experiment does not depend on where its files lie."""
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
