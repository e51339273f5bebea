"""In a folder or beside a file there may be several tables: this says which holds the interactions, which the items.

Owns: names of files. Does not own: what is in them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from edgefr.data.files.formats import ends, format_of
from edgefr.data.files.opened import PACKED, bare, faults
from edgefr.data.files.options import FileOptions
from privacy.errors import InputError

INTERACTIONS = ("interactions", "ratings", "reviews", "events", "clicks", "plays", "purchases", "transactions", "views")
ITEMS = (
    "items", "products", "movies", "books", "articles", "news", "tracks", "songs", "artists", "games", "videos",
    "catalogue", "catalog", "meta", "metadata",
)  # fmt: skip
"""What tables are usually called."""


def is_file(name: str) -> bool:
    """Say whether a name of a data set is a path: it ends like a file of data, has a folder in it, or is there.

    >>> is_file("ratings.csv.gz"), is_file("ml-100k")
    (True, False)
    """
    return "/" in name or "\\" in name or format_of(Path(name)) is not None or os.path.exists(name)


def tables(path: Path, options: FileOptions) -> tuple[Path, Path | None]:
    """Return the file of interactions and that of items, None where there is none.

    Raises `InputError` for a folder in which they cannot be told, and for files that are not there.
    """
    if os.path.isdir(path):
        with faults(str(path)):
            there = [p for p in sorted(path.iterdir()) if p.is_file() and format_of(p) is not None]
        chosen = _interactions(path, there)
        items = _called(there, ITEMS, chosen) or _atomic_items(chosen)
    else:
        if not os.path.exists(path):
            raise InputError(f"{path} is not there; --data takes a data set's name, a file or a folder: check the path")
        chosen, items = path, _atomic_items(path)
    return chosen, items if options.items is None else _told(options.items, chosen)


def _interactions(folder: Path, there: list[Path]) -> Path:
    """Return the one file of a folder that must hold the interactions."""
    files = [path for path in there if not bare(path).endswith(".item")]
    atomic = [path for path in files if bare(path).endswith(".inter")]
    for some in (atomic, [path for path in files if _words(path) & set(INTERACTIONS)], _without_items(files)):
        if len(some) == 1:
            return some[0]
    if not files:
        known = ", ".join(ends())
        raise InputError(f"{folder}: no file in it ends with {known} (and {' or '.join(PACKED)} after it); name a file")
    names = ", ".join(path.name for path in files[:10])
    raise InputError(
        f"{folder}: which of its files has the interactions? Name it by --data {files[0]} (it has: {names})"
    )


def _without_items(files: list[Path]) -> list[Path]:
    return [path for path in files if not _words(path) & set(ITEMS)]


def _called(there: list[Path], names: tuple[str, ...], besides: Path) -> Path | None:
    """Return the file called so, of those besides the interactions; the first names and the shortest go before."""
    others = sorted((path for path in there if path != besides), key=lambda path: len(_words(path)))
    return next((path for name in names for path in others if name in _words(path)), None)


def _atomic_items(path: Path) -> Path | None:
    """Return the `.item` beside an `.inter`."""
    if not bare(path).endswith(".inter"):
        return None
    wanted = bare(path).removesuffix(".inter") + ".item"
    return next((p for p in sorted(path.parent.iterdir()) if p.is_file() and bare(p) == wanted), None)


def _told(name: str, beside: Path) -> Path:
    """Return the file of items that the options name."""
    found = next((path for path in (Path(name), beside.parent / name) if os.path.isfile(path)), None)
    if found is None:
        raise InputError(f"data_options.items: {name} is neither there nor beside {beside}; check the path")
    return found


def _words(path: Path) -> set[str]:
    """Return the words of a file's name.

    >>> sorted(_words(Path("BX-Book_Ratings.csv.gz")))
    ['book', 'bx', 'ratings']
    """
    return set(re.split(r"[^a-z0-9]+", bare(path).partition(".")[0]))
