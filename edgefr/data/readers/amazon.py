"""This module reads Amazon reviews in the official layout:

one ratings or reviews file and one metadata file per category.

Found in the folder `amazon` of the data folder, or in the data folder itself, or in a folder below:
`ratings_<Category>.csv` (2014: user, item, rating, unix time), or `<Category>.csv` (2018: item, user, rating, unix
time), which `amazon_ratings` tells apart, or `reviews_<Category>.json.gz`, `reviews_<Category>_5.json.gz`,
`<Category>.json.gz`, `<Category>_5.json.gz`; and `meta_<Category>.json.gz`, without which the category's items have no
texts.
Every rating is an interaction; every category is a domain. The large files are streamed.
"""

from __future__ import annotations

import ast
import html
import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text, k_core
from edgefr.data.readers import amazon_ratings
from edgefr.data.readers.amazon_ratings import Columns, Layout, Order
from edgefr.data.readers.archive import Archive, Numbering, Public, open_archive
from privacy.errors import InputError
from privacy.plain_text import plain
from privacy.progress import Progress

AMAZON = Public(
    "https://cseweb.ucsd.edu/~jmcauley/datasets.html#amazon_reviews",
    "no licence stated; research use with citation",
    "every rating is an interaction",
)
_URL_2018 = "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon_v2/"
_LONGEST_LINE = 1 << 22  # bytes
_DEEPEST = 16  # lists in lists of a field: Amazon's categories are lists in a list
_LONGEST_TEXT = 4000  # characters of a description: more than 512 tokens ever need
_ASIN = re.compile(rb"""["']asin["']\s*:\s*["']([^"']{1,64})["']""")


Places = Mapping[str, Sequence[str]]
"""Where the files of an archive lie, by their bare names."""


class Ordered(BaseModel):
    """The option says in which order the columns of a table of ratings alone stand."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    order: Order = Field(
        "auto",
        description="columns of a table of ratings alone: user,item (as of 2014), item,user (as of 2018), or auto, by "
        "what the ids look like",
    )


class AmazonOptions(Ordered):
    """The options say which categories are read and how thin users and items are dropped, within each category."""

    categories: list[str] = Field(
        min_length=1, max_length=64, description="category names as in the file names, for example Digital_Music"
    )
    user_core: int = Field(20, ge=1, description="interactions a user needs in a category, repeatedly applied (count)")
    item_core: int = Field(30, ge=1, description="interactions an item needs, repeatedly applied (count)")


class CategoryOptions(Ordered):
    """The options are thresholds for thin users and items; ``user_core: 5`` is FedCAR's Amazon-Video."""

    user_core: int = Field(1, ge=1, description="interactions a user needs, repeatedly applied (count)")
    item_core: int = Field(1, ge=1, description="interactions an item needs, repeatedly applied (count)")


def read_category(name: str, data_dir: Path, options: CategoryOptions, progress: Progress | None) -> Dataset:
    """Read one category by its data set's name, as "amazon-video", also from `amazon-video.zip`."""
    category = amazon_ratings.category_of(name)
    chosen = AmazonOptions.model_validate(options.model_dump() | {"categories": [category]})
    with _opened(data_dir, name) as (archive, names):
        if _table(category, archive, names) is None:
            raise InputError(
                f"{data_dir / name}.zip is not there, nor ratings_{category}.csv (2014), nor {category}.csv (2018); "
                f"get it from {AMAZON.url} or {_URL_2018} (licence: {AMAZON.licence}) and name its folder by "
                "--data-dir or EDGEFR_DATA"
            )
        return _read(archive, names, chosen, progress, name)


def category_has_texts(name: str, data_dir: Path, options: CategoryOptions) -> bool:
    """Say whether a category has its metadata."""
    with _opened(data_dir, name) as (_, names):
        return f"meta_{amazon_ratings.category_of(name)}.json.gz" in names


def read(data_dir: Path, options: AmazonOptions, progress: Progress | None) -> Dataset:
    """Read the chosen categories as domains, with clock times. Raises `InputError` naming file and line."""
    archive, names = _find_files(data_dir)
    return _read(archive, names, options, progress, "amazon")


def _read(archive: Archive, names: Places, options: AmazonOptions, progress: Progress | None, name: str) -> Dataset:
    """Read the chosen categories of an archive, whose files' places are `names`."""
    users, parts, catalogues, used = Numbering(), [], [], []
    layouts = list[tuple[str, Layout]]()
    for number, category in enumerate(options.categories):
        table, meta = _files_of(category, archive, names)
        asins = Numbering()
        if table.endswith((".csv", ".csv.gz")):
            (user, item, time), layout = amazon_ratings.read_ratings(archive, table, options.order, users, asins)
            layouts.append((table, layout))
        elif options.order != "auto":
            raise InputError(f"{archive.path}: {table} has named fields, so nothing reads data_options.order; drop it")
        else:
            user, item, time = _reviews(archive, table, users, asins)
        keep = k_core(user, item, options.user_core, options.item_core)
        if not keep.any():
            raise InputError(
                f"no user and item of {category} has {options.user_core} and {options.item_core} "
                "interactions; lower user_core and item_core"
            )
        kept, item = np.unique(item[keep], return_inverse=True)
        catalogues.append(_describe(archive, meta, asins.ids()[kept], number))
        parts.append((user[keep], item + sum(map(len, catalogues[:-1])), time[keep]))
        used += [table] if meta is None else [table, meta]
        if progress is not None:
            progress("read reviews", number + 1, len(options.categories), category)
    user, item, time = (np.concatenate(column) for column in zip(*parts, strict=True))
    active, user = np.unique(user, return_inverse=True)
    source = archive.source(used)
    source["notes"] += f"; {options.user_core}-core users and {options.item_core}-core items within each category"
    source["notes"] += f"; {amazon_ratings.notes(layouts)}" if layouts else ""
    domains = tuple(options.categories)
    return assemble(name, users.ids()[active], _join(catalogues), (user, item, time), domains, True, source)


def _find_files(data_dir: Path) -> tuple[Archive, Places]:
    """Return the folder as an archive, and its files' places."""
    folder = data_dir / "amazon" if (data_dir / "amazon").is_dir() else data_dir
    found = [
        p
        for p in sorted([*folder.glob("*"), *folder.glob("*/*")])
        if p.is_file() and p.name.endswith((".csv", ".csv.gz", ".json.gz"))
    ]
    members = {p.relative_to(folder).as_posix(): p for p in found}
    return Archive(folder, AMAZON, members), _places(members)


def _places(members: Iterable[str]) -> Places:
    out: dict[str, list[str]] = {}
    for member in members:
        out.setdefault(member.rpartition("/")[2], []).append(member)
    return out


def _place(archive: Archive, names: Places, name: str) -> str | None:
    """Return where the file of this bare name lies, or None. Raises `InputError` where there are several of it."""
    found = names.get(name, ())
    if len(found) > 1:
        raise InputError(f"{archive.path}: {name} is there twice, as {found[0]} and {found[1]}; keep one of them")
    return found[0] if found else None


@contextmanager
def _opened(data_dir: Path, name: str) -> Iterator[tuple[Archive, Places]]:
    if not (data_dir / f"{name}.zip").is_file():
        yield _find_files(data_dir)
        return
    with open_archive(data_dir, name, AMAZON) as archive:
        yield archive, _places(archive.members)


def has_texts(data_dir: Path, options: AmazonOptions) -> bool:
    _, names = _find_files(data_dir)
    return any(f"meta_{category}.json.gz" in names for category in options.categories)


def _files_of(category: str, archive: Archive, names: Places) -> tuple[str, str | None]:
    """Return the files of ratings and, where it is there, of metadata."""
    table = _table(category, archive, names)
    if table is None:
        raise InputError(
            f"{archive.path} has no ratings_{category}.csv (or reviews_{category}.json.gz); get it from "
            f"{AMAZON.url} (licence: {AMAZON.licence}), or {category}.csv from {_URL_2018}, and name its folder by "
            "--data-dir or EDGEFR_DATA"
        )
    return table, _place(archive, names, f"meta_{category}.json.gz")


def _table(category: str, archive: Archive, names: Places) -> str | None:
    tables = amazon_ratings.files_of(category)
    tables += [f"{prefix}{category}{core}.json.gz" for prefix in ("reviews_", "") for core in ("", "_5")]
    return next((_place(archive, names, table) for table in tables if table in names), None)


def _reviews(archive: Archive, member: str, users: Numbering, asins: Numbering) -> Columns:
    user, item, time = array("i"), array("i"), array("q")
    for line, text in _lines(archive, member):
        try:
            review = json.loads(text)
            who, what, when = review["reviewerID"], review["asin"], review["unixReviewTime"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise archive.fault(member, line, "not a review with reviewerID, asin and unixReviewTime") from error
        if not all(isinstance(i, str) and 0 < len(i) <= 64 and i.isprintable() for i in (who, what)):
            raise archive.fault(member, line, "reviewerID and asin must be 1 to 64 printable characters")
        if type(when) is not int or not 0 <= when < 253_402_300_800:
            raise archive.fault(member, line, "unixReviewTime must be unix seconds")
        user.append(users.numbers.setdefault(who, len(users.numbers)))
        item.append(asins.numbers.setdefault(what, len(asins.numbers)))
        time.append(when)
    if not user:
        raise archive.fault(member, None, "it has no rows")
    return np.frombuffer(user, np.int32), np.frombuffer(item, np.int32), np.frombuffer(time, np.int64)


def _lines(archive: Archive, member: str) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, bytes) of every line that is not blank; damage and endless lines name the line."""
    number = 0
    with archive.open(member) as file:
        while True:
            try:
                text = file.readline(_LONGEST_LINE)
            except (EOFError, zlib.error, OSError) as error:
                raise archive.fault(member, number + 1, f"damaged or cut off ({error})") from error
            number += 1
            if not text:
                return
            if len(text) == _LONGEST_LINE:
                raise archive.fault(member, number, f"longer than {_LONGEST_LINE:,} bytes: this is not the metadata")
            if text.strip():
                yield number, text


def _describe(archive: Archive, member: str | None, asins: np.ndarray, domain: int) -> Catalogue:
    """Return titles and texts of these items from the metadata; an item that is not there has none."""
    place = {asin: number for number, asin in enumerate(asins.tolist())}
    titles, texts = [""] * len(asins), [""] * len(asins)
    for line, text in () if member is None else _lines(archive, member):
        assert member is not None
        found = _ASIN.search(text)
        if found is None:
            raise archive.fault(member, line, "not an item with an asin")
        number = place.get(found.group(1).decode("utf8", "replace"))
        if number is None:  # most items are not kept: their lines are not even parsed
            continue
        item = _parse(archive, member, line, text)
        try:
            categories = _words(item.get("category") or item.get("categories"))
            titles[number] = _clean(_words(item.get("title")))
            description = _clean(_words(item.get("description")))[:_LONGEST_TEXT]
        except ValueError as error:
            raise archive.fault(member, line, str(error)) from error
        texts[number] = item_text(_clean(", ".join(dict.fromkeys(categories))), titles[number], description)
    return Catalogue(asins, titles, texts, np.full(len(asins), domain, np.uint8))


def _parse(archive: Archive, member: str, line: int, text: bytes) -> dict[str, Any]:
    """Read one item: JSON, or in files before 2018 a Python dict written out, which only literals may make up."""
    try:
        try:
            item = json.loads(text)
        except ValueError:
            item = ast.literal_eval(text.decode("utf8"))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise archive.fault(member, line, "neither JSON nor a Python dict of plain values") from error
    if not isinstance(item, dict):
        raise archive.fault(member, line, "not an item with named fields")
    return item


def _words(value: Any, depth: int = 0) -> list[str]:
    """Return the strings of a field, in lists or not. Raises `ValueError` for lists nested too deeply."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    if depth == _DEEPEST:
        raise ValueError(f"lists in lists, more than {_DEEPEST} deep")
    return [word for part in value for word in _words(part, depth + 1)]


def _clean(words: list[str] | str) -> str:
    """Return one line of plain text: entities resolved, tags, extra spaces and what cannot be shown dropped."""
    text = words if isinstance(words, str) else " ".join(words)
    return plain(" ".join(re.sub(r"<[^<>]*>", " ", html.unescape(text)).split()))


def _join(catalogues: list[Catalogue]) -> Catalogue:
    return Catalogue(
        np.concatenate([c.ids for c in catalogues]),
        [title for c in catalogues for title in c.title],
        [text for c in catalogues for text in c.text],
        np.concatenate([c.domain for c in catalogues]),
    )
