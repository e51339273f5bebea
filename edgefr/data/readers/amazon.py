"""This module reads Amazon reviews in the official layout: a ratings or reviews file and a metadata file per category.

Found in the folder `amazon` of the data folder, or in the data folder itself, or in a folder below:
`ratings_<Category>.csv` (2014: user, item, rating, unix time), or `<Category>.csv` (2018: item, user, rating, unix
time), which `amazon_ratings` tells apart, or `reviews_<Category>.json.gz`, `reviews_<Category>_5.json.gz`,
`<Category>.json.gz`, `<Category>_5.json.gz`; and `meta_<Category>.json.gz`, without which the category's items have no
texts.
Every rating is an interaction; every category is a domain. The large files are streamed.

Two processed sets of two domains have an order but no clock times: `interactions.csv` has a row per interaction with
its place in the user's sequence; `items.csv` has the texts.
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.files.jsonl import JSONL
from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import Rows, texts_of
from edgefr.data.files.streams import stream
from edgefr.data.files.table import fault
from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text, k_core
from edgefr.data.readers import amazon_ratings
from edgefr.data.readers.amazon_ratings import Layout, Order
from edgefr.data.readers.archive import (
    Archive,
    Public,
    interactions,
    listed,
    open_archive,
    places,
    without_file_options,
)
from privacy.errors import InputError
from privacy.plain_text import plain
from privacy.progress import Progress

AMAZON = Public(
    "https://cseweb.ucsd.edu/~jmcauley/datasets.html#amazon_reviews",
    "no licence stated; research use with citation",
    "every rating is an interaction",
)
ARTS_OFFICE = Public(AMAZON.url, AMAZON.licence, "order only, no clock times")
MOVIE_BOOK = Public(
    AMAZON.url,
    f"{AMAZON.licence}; some titles CC BY-SA (DBpedia, goodbooks-10k)",
    "order only, no clock times; most books have no title",
)
_URL_2018 = "https://cseweb.ucsd.edu/~jmcauley/datasets/amazon_v2/"
_LONGEST_LINE = 1 << 22  # bytes
_DEEPEST = 16  # lists in lists of a field: Amazon's categories are lists in a list
_LONGEST_TEXT = 4000  # characters of a description: more than 512 tokens ever need
_ASIN = re.compile(rb"""["']asin["']\s*:\s*["']([^"']{1,64})["']""")


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


def read_category(name: str, data_dir: Path, options: CategoryOptions, seed: int, progress: Progress | None) -> Dataset:
    """Read one category by its data set's name, as "amazon-video", also from `amazon-video.zip` or that folder.

    An archive that is called so may hold one table of ratings by any name.
    """
    category = amazon_ratings.category_of(name)
    chosen = AmazonOptions.model_validate(options.model_dump() | {"categories": [category]})
    with _opened(data_dir, name) as archive:
        if _table(category, archive) is None:
            wanted = f"ratings_{category}.csv (2014), nor {category}.csv (2018, {_URL_2018})"
            if archive.path.stem == name:
                there = ", ".join([*archive.members][:5]) or "no table"
                own = f"read it as a file of your own, by its path: {archive.path}"
                raise InputError(f"{archive.path} is there, but has no {wanted}; it has: {there}; {own}")
            raise AMAZON.missing(f"{data_dir / name}.zip is not there, nor {wanted}")
        return _read(archive, chosen, progress, name)


def read(data_dir: Path, options: AmazonOptions, seed: int, progress: Progress | None) -> Dataset:
    """Read the chosen categories as domains, with clock times. Raises `InputError` naming file and line."""
    return _read(_in_folder(data_dir), options, progress, "amazon")


def _read(archive: Archive, options: AmazonOptions, progress: Progress | None, name: str) -> Dataset:
    """Read the chosen categories of an archive."""
    parts, people, catalogues, used = [], list[np.ndarray](), list[Catalogue](), list[str]()
    layouts = list[tuple[str, Layout]]()
    for number, category in enumerate(options.categories):
        table = _table(category, archive)
        if table is None:
            raise AMAZON.missing(
                f"{archive.path} has no ratings_{category}.csv (or reviews_{category}.json.gz), nor {category}.csv of "
                f"{_URL_2018}"
            )
        meta = archive.find(f"meta_{category}.json.gz")
        rows = _rows(archive, table, options.order, layouts)
        keep = k_core(rows.user, rows.item, options.user_core, options.item_core)
        if not keep.any():
            raise InputError(
                f"no user and item of {category} has {options.user_core} and {options.item_core} "
                "interactions; lower user_core and item_core"
            )
        (kept, item), (active, user) = (np.unique(c[keep], return_inverse=True) for c in (rows.item, rows.user))
        parts.append((user + sum(map(len, people)), item + sum(map(len, catalogues)), rows.time[keep]))
        people.append(texts_of(rows.users.take(active)))
        catalogues.append(_describe(archive, meta, texts_of(rows.items.take(kept)), number))
        used += [table] if meta is None else [table, meta]
        if progress is not None:
            progress("read reviews", number + 1, len(options.categories), category)
    user, item, time = (np.concatenate(column) for column in zip(*parts, strict=True))
    users, place = np.unique(np.concatenate(people), return_inverse=True)
    source = archive.source(used)
    source["notes"] += f"; {options.user_core}-core users and {options.item_core}-core items within each category"
    source["notes"] += f"; {amazon_ratings.notes(layouts)}" if layouts else ""
    domains = tuple(options.categories)
    return assemble(name, users, _join(catalogues), (place[user], item, time), domains, True, source)


def _rows(archive: Archive, table: str, order: Order, layouts: list[tuple[str, Layout]]) -> Rows:
    """Return the rows of a table of ratings, whose layout is added to `layouts`, or of a file of reviews."""
    try:
        if table.endswith((".csv", ".csv.gz")):
            rows, layout = amazon_ratings.read_ratings(archive[table], order)
            layouts.append((table, layout))
            return rows
        if order != "auto":
            raise InputError(f"{archive.path}: {table} has named fields, so nothing reads data_options.order; drop it")
        roles = {"user": "reviewerID", "item": "asin", "time": "unixReviewTime"}
        return interactions(JSONL.open(archive[table], FileOptions()), roles, "s")
    except InputError as error:
        raise InputError(without_file_options(str(error))) from error


def _in_folder(data_dir: Path) -> Archive:
    """Return the folder as an archive."""
    folder = data_dir / "amazon" if (data_dir / "amazon").is_dir() else data_dir
    there = [path for path in sorted([*folder.glob("*"), *folder.glob("*/*")]) if path.is_file()]
    ends = (".csv", ".csv.gz", ".json.gz")
    return Archive(folder, AMAZON, {p.relative_to(folder).as_posix(): p for p in there if p.name.endswith(ends)})


@contextmanager
def _opened(data_dir: Path, name: str) -> Iterator[Archive]:
    if not (data_dir / f"{name}.zip").is_file():
        yield _in_folder(data_dir / name if (data_dir / name).is_dir() else data_dir)
        return
    with open_archive(data_dir, name, AMAZON) as archive:
        yield archive


def _table(category: str, archive: Archive) -> str | None:
    tables = amazon_ratings.files_of(category)
    tables += [f"{prefix}{category}{core}.json.gz" for prefix in ("reviews_", "") for core in ("", "_5")]
    return next(filter(None, map(archive.find, tables)), None) or _only_table(category, archive)


def _only_table(category: str, archive: Archive) -> str | None:
    """Return the one table of an archive that is called as the category's data set, whatever the table is called."""
    if amazon_ratings.NAMES.get(archive.path.stem) != category:
        return None
    found = [name for name in archive.members if name.endswith((".csv", ".csv.gz"))]
    return found[0] if len(found) == 1 else None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, bytes) of every line that is not blank. Raises `InputError` for an endless line."""
    with stream(path) as file:
        for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
            if len(text) == _LONGEST_LINE:
                raise InputError(f"{path}: line {number}: longer than {_LONGEST_LINE:,} bytes: this is no metadata")
            if text.strip():
                yield number, text


def _describe(archive: Archive, member: str | None, asins: np.ndarray, domain: int) -> Catalogue:
    """Return titles and texts of these items from the metadata; an item that is not there has none."""
    place = {asin: number for number, asin in enumerate(asins.tolist())}
    titles, texts = [""] * len(asins), [""] * len(asins)
    for line, text in () if member is None else _lines(archive[member]):
        try:
            found = _ASIN.search(text)
            if found is None:
                raise ValueError("not an item with an asin")
            number = place.get(found.group(1).decode("utf8", "replace"))
            if number is None:  # most items are not kept: their lines are not even parsed
                continue
            item = _parse(text)
            categories = _words(item.get("category") or item.get("categories"))
            titles[number] = _clean(_words(item.get("title")))
            description = _clean(_words(item.get("description")))[:_LONGEST_TEXT]
        except ValueError as error:
            raise InputError(f"{archive.path}: {member}: line {line}: {error}") from error
        texts[number] = item_text(_clean(", ".join(dict.fromkeys(categories))), titles[number], description)
    return Catalogue(asins, titles, texts, np.full(len(asins), domain, np.uint8))


def _parse(text: bytes) -> dict[str, Any]:
    """Read one item: JSON, or in files before 2018 a Python dict written out, which only literals may make up."""
    try:
        try:
            item = json.loads(text)
        except ValueError:
            item = ast.literal_eval(text.decode("utf8"))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError("neither JSON nor a Python dict of plain values") from error
    if not isinstance(item, dict):
        raise ValueError("not an item with named fields")
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


def read_arts_office(data_dir: Path, *_: Any) -> Dataset:
    """Read 9,577 users in both domains, 208,541 interactions with arts and office supplies."""
    return _pair(data_dir, "amazon-arts-office", ("arts", "office"), "attributes", ARTS_OFFICE)


def read_movie_book(data_dir: Path, *_: Any) -> Dataset:
    """Read 20,502 users, 8,317 in both domains, 269,443 interactions with films and books; most books have no title."""
    return _pair(data_dir, "amazon-movie-book", ("movie", "book"), "categories", MOVIE_BOOK)


def _pair(data_dir: Path, name: str, domains: tuple[str, str], category: str, public: Public) -> Dataset:
    with open_archive(data_dir, name, public) as archive:
        table = archive.table("items.csv")
        ids, titles, categories, where = listed(table, "item_id", "title", category, "domain")
        for row, domain in enumerate(where, table.first):
            if domain not in domains:
                raise fault(table.name, row, "domain", domain, f"a domain is {' or '.join(domains)}")
        of = np.array([domains.index(domain) for domain in where], np.uint8)
        table = archive.table("interactions.csv")
        roles = {"user": "user_id", "item": "item_id", "domain": "domain", "time": "position"}
        rows = interactions(table, roles, "order")
        item = places(table, "item_id", rows, ids)
        assert rows.domain is not None
        wrong = (
            np.array([domains.index(one) if one in domains else -1 for one in rows.domains])[rows.domain] != of[item]
        )
        if wrong.any():
            row = int(wrong.argmax())
            rule = "a domain is that of the item in items.csv"
            raise fault(table.name, table.first + row, "domain", rows.domains[rows.domain[row]], rule)
        source = archive.source(["interactions.csv", "items.csv"])
    catalogue = Catalogue(np.array(ids, np.str_), titles, list(map(item_text, categories, titles)), of)
    return assemble(name, texts_of(rows.users), catalogue, (rows.user, item, rows.time), domains, False, source)
