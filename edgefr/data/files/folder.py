"""A folder may hold several tables: this finds the interactions and the items.

Owns: names of files, and recognising them by their columns. Does not own: usual column names (`names`).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from edgefr.data.files import names
from edgefr.data.files.formats import ends, format_of, is_folder, open_table
from edgefr.data.files.options import FileOptions
from edgefr.data.files.table import PACKED, bare, files_of, is_there, on_disk
from edgefr.data.files.table_parts import is_part, split_of
from privacy.errors import InputError

INTERACTIONS = (
    "interactions", "ratings", "rating", "reviews", "review", "events", "clicks", "plays", "purchases", "transactions",
    "views",
)  # fmt: skip
ITEMS = (
    "items", "products", "movies", "books", "articles", "news", "tracks", "songs", "artists", "games", "videos",
    "catalogue", "catalog", "meta", "metadata",
)  # fmt: skip
"""What tables are usually called."""

_MOST_OPENED = 100
"""In a folder of more files than this, none is opened to be told apart."""


def is_file(name: str) -> bool:
    """Say whether a name of a data set is a path: it ends like a file of data, has a folder in it, or is there.

    >>> is_file("ratings.csv.gz"), is_file("ml-100k")
    (True, False)
    """
    return "/" in name or "\\" in name or format_of(Path(name)) is not None or os.path.exists(name)


def tables(path: Path, options: FileOptions) -> tuple[Path, Path | None]:
    """Return the file of interactions and that of items (None: there is none); a table in parts is its folder.

    Raises `InputError` for a folder in which they cannot be told apart, and for missing files.
    """
    if is_folder(path):
        there = [p for p in files_of(path) if format_of(p) is not None]
        heads = _heads(there, options)
        chosen = _interactions(path, there, heads, options)
        others = [p for p in there if p != chosen and "user" not in _roles(heads[p], options)]
        items = _called(others, ITEMS) or _atomic_items(chosen) or _only_items(others, heads, options)
    else:
        if not os.path.exists(on_disk(path)):
            raise InputError(f"{path} is not there; --data takes a data set's name, a file or a folder: check the path")
        chosen, items = path, _atomic_items(path)
    return chosen, items if options.items is None else _told(options.items, chosen)


def _heads(there: list[Path], options: FileOptions) -> dict[Path, tuple[str, ...]]:
    """Return the columns of every file, none for one that cannot be opened."""
    heads: dict[Path, tuple[str, ...]] = dict.fromkeys(there, ())
    for path in there if len(there) <= _MOST_OPENED else ():
        with suppress(InputError):
            heads[path] = open_table(path, options).columns
    return heads


def _roles(head: tuple[str, ...], options: FileOptions) -> set[str]:
    out = set()
    for role in ("user", "item"):
        with suppress(InputError):
            if names.find(role, getattr(options.columns, role), head, "") is not None:
                out.add(role)
    return out


def _interactions(folder: Path, there: list[Path], heads: dict[Path, tuple[str, ...]], options: FileOptions) -> Path:
    """Return a folder's file of interactions, by columns, then by name; for parts, the folder."""
    files = [path for path in there if not bare(path).endswith(".item")]
    if not files:
        known = ", ".join(ends())
        raise InputError(f"{folder}: no file in it ends with {known} (and {' or '.join(PACKED)} after it); name a file")
    files = [path for path in files if _roles(heads[path], options) == {"user", "item"}] or files
    if len(files) > 1 and (all(map(is_part, files)) or len({split_of(path) for path in files} - {None}) == len(files)):
        return folder
    atomic = [path for path in files if bare(path).endswith(".inter")]
    called = [path for path in files if _words(path) & set(INTERACTIONS)]
    rest = _without_items(files)
    for some in (atomic, files, called, rest):
        if len(some) == 1:
            beside = [p for p in there if split_of(p) and p.suffix == some[0].suffix]
            return folder if split_of(some[0]) and len(beside) > 1 else some[0]
    best = (atomic or called or rest or files)[0]
    said = ", ".join(path.name for path in files[:10])
    raise InputError(f"{folder}: which of its files has the interactions? Name it by --data {best} (it has: {said})")


def _without_items(files: list[Path]) -> list[Path]:
    return [path for path in files if not _words(path) & set(ITEMS)]


def _called(others: list[Path], usual: tuple[str, ...]) -> Path | None:
    """Return the file called so; the first names and the shortest go before."""
    shortest = sorted(others, key=lambda path: len(_words(path)))
    return next((path for name in usual for path in shortest if name in _words(path)), None)


def _only_items(others: list[Path], heads: dict[Path, tuple[str, ...]], options: FileOptions) -> Path | None:
    found = [
        path
        for path in others
        if _roles(heads[path], options) == {"item"} and names.texts(None, heads[path], str(path), ())
    ]
    return found[0] if len(found) == 1 else None


def _atomic_items(path: Path) -> Path | None:
    """Return the `.item` beside an `.inter`."""
    if not bare(path).endswith(".inter"):
        return None
    wanted = bare(path).removesuffix(".inter") + ".item"
    beside = files_of(path.parent if on_disk(path) == path else on_disk(path))
    return next((p for p in beside if bare(p) == wanted), None)


def _told(name: str, beside: Path) -> Path:
    found = next((path for path in (Path(name), beside.parent / name) if is_there(path)), None)
    if found is None:
        raise InputError(f"data_options.items: {name} is neither there nor beside {beside}; check the path")
    return found


def _words(path: Path) -> set[str]:
    """Return the words of a file's name.

    >>> sorted(_words(Path("BX-Book_Ratings.csv.gz")))
    ['book', 'bx', 'ratings']
    """
    return set(re.split(r"[^a-z0-9]+", bare(path).partition(".")[0]))
