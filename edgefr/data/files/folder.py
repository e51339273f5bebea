"""A folder may hold several tables: this finds the interactions and the items, and reads a table in parts as one.

Owns: names of files, recognising them by their columns, and the order of parts. Does not own: usual column names
(`names`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from edgefr.data.files import names
from edgefr.data.files.arrow import pa
from edgefr.data.files.formats import ends, format_of, is_folder, open_table
from edgefr.data.files.options import FileOptions
from edgefr.data.files.streams import PACKED, bare, files_of, is_there, on_disk
from edgefr.data.files.table import OpenTable
from edgefr.data.files.text_layouts import LISTED, open_adjacency
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

_MOST = 20_000
SPLITS = ("train", "training", "valid", "validation", "val", "dev", "test")
"""What files of a split of one's own are called."""
_SPLIT = "split"
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


def is_part(path: Path) -> bool:
    """Say whether a file's name is that of a part, as Spark writes them or Netflix's prize had them.

    >>> is_part(Path("part-00003-c000.snappy.parquet")), is_part(Path("mv_0000001.txt")), is_part(Path("parts.csv"))
    (True, True, False)
    """
    return re.match(r"(part-|mv_|combined_data_)[0-9]", bare(path)) is not None


def split_of(path: Path) -> str | None:
    """Return which part of a split a file is by its name, None for another.

    >>> split_of(Path("ml-100k.train.inter")), split_of(Path("test.txt")), split_of(Path("ratings.csv"))
    ('train', 'test', None)
    """
    words = re.findall(r"[a-z0-9]+", bare(path).rpartition(".")[0])
    return words[-1] if words and words[-1] in SPLITS else None


def parts_of(folder: Path) -> list[Path]:
    """Return the parts in a folder: in the order of their names, or training before validation and test."""
    there = [path for path in files_of(folder) if format_of(path)]
    parts = [path for path in there if is_part(path)]
    split = [path for path in there if split_of(path) and not bare(path).endswith(".item")]
    return parts or sorted(split, key=lambda path: SPLITS.index(str(split_of(path))))


def open_parts(folder: Path, options: FileOptions, paths: Sequence[Path] = ()) -> OpenTable:
    """Open a folder's parts, or `paths`, as one table. Raises `InputError` if their columns differ."""
    paths = paths or parts_of(folder)
    if len(paths) > _MOST:
        raise InputError(f"{folder}: it has {len(paths):,} parts, and {_MOST:,} is the most; write it as fewer files")
    columns = open_table(paths[0], options).columns

    def opened(path: Path) -> OpenTable:
        found = open_table(path, options)
        alike = found.columns == columns or columns != LISTED
        return found if alike else open_adjacency(path, "")  # a line of two numbers says by itself not what it is

    for path in paths[1:]:
        if opened(path).columns != columns:
            raise InputError(f"{path}: its columns are not those of {paths[0].name}; take it out of the folder")

    own = _SPLIT if split_of(paths[0]) and _SPLIT not in columns else None

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        row, schema = 1, None
        for path in paths:
            for _, block in opened(path).read([name for name in wanted if name != own]):
                schema = schema or block.schema
                if block.schema.types != schema.types:
                    raise InputError(f"{path}: its columns have other types than those of {paths[0].name}; mend it")
                yield row, block if own is None else _with_split(block, wanted, str(split_of(path)))
                row += block.num_rows

    return OpenTable(str(folder), columns if own is None else (*columns, _SPLIT), blocks)


def _with_split(block: pa.RecordBatch, wanted: Sequence[str], part: str) -> pa.RecordBatch:
    """Return the block with one more column: the part of the split that all of its rows are of."""
    own = pa.array([part], pa.string()).dictionary_encode().take(pa.array([0] * block.num_rows, pa.int32()))
    arrays = [own if name == _SPLIT else block.column(name) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, names=list(wanted))
