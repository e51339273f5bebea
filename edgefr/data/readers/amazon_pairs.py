"""Two processed Amazon sets in one layout: two domains with overlapping users, an order but no clock times.

`interactions.csv` has a row per interaction with its place in the user's sequence; `items.csv` has the texts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text
from edgefr.data.readers.archive import (
    Archive,
    Numbering,
    Public,
    Wanted,
    check_ids,
    check_times,
    open_archive,
    read_table,
)
from edgefr.data.readers.archive import refuse as refuse_row
from privacy.progress import Progress

_URL = "https://cseweb.ucsd.edu/~jmcauley/datasets.html#amazon_reviews"
ARTS_OFFICE = Public(_URL, "no licence stated; research use with citation", "order only, no clock times")
MOVIE_BOOK = Public(
    _URL,
    "no licence stated; research use with citation; some titles CC BY-SA (DBpedia, goodbooks-10k)",
    "order only, no clock times; most books have no title",
)


def read_arts_office(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 9,577 users in both domains, 208,541 interactions with arts and office supplies."""
    return _read(data_dir, "amazon-arts-office", ("arts", "office"), "attributes", ARTS_OFFICE)


def read_movie_book(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 20,502 users, 8,317 in both domains, 269,443 interactions with films and books; most books have no title."""
    return _read(data_dir, "amazon-movie-book", ("movie", "book"), "categories", MOVIE_BOOK)


def _read(data_dir: Path, name: str, domains: tuple[str, str], category: str, public: Public) -> Dataset:
    with open_archive(data_dir, name, public) as archive:
        catalogue, items = _items(archive, domains, category)
        users, columns = Numbering(), []
        wanted: Wanted = {"user_id": "str", "item_id": "str", "domain": "str", "position": "int"}
        for line, block in read_table(archive, "interactions.csv", wanted):
            member, ids = "interactions.csv", block.column("item_id")
            check_ids(archive, member, line, block.column("user_id"), "user_id")
            found = items.find(ids)
            refuse_row(archive, member, line, found < 0, ids, "item_id must be listed in items.csv")
            domain = _domain(archive, member, line, block.column("domain"), domains)
            wrong = catalogue.domain[found] != domain
            refuse_row(archive, member, line, wrong, block.column("domain"), "domain must be that of items.csv")
            time = check_times(archive, member, line, block.column("position"))
            columns.append((users.add(block.column("user_id")), found, time))
        if not columns:
            raise archive.fault("interactions.csv", None, "it has no rows")
        source = archive.source(["interactions.csv", "items.csv"])
    user, item, time = (np.concatenate(c) for c in zip(*columns, strict=True))
    return assemble(name, users.ids(), catalogue, (user, item, time), domains, False, source)


def _items(archive: Archive, domains: tuple[str, str], category: str) -> tuple[Catalogue, Numbering]:
    items, titles, texts, where = Numbering(), list[str](), list[str](), []
    wanted: Wanted = {"item_id": "str", "domain": "str", "title": "str", category: "str"}
    for line, block in read_table(archive, "items.csv", wanted):
        ids = block.column("item_id")
        check_ids(archive, "items.csv", line, ids, "item_id")
        before = len(items.numbers)
        again = items.add(ids) != before + np.arange(len(ids))
        refuse_row(archive, "items.csv", line, again, ids, "item_id must not repeat")
        where.append(_domain(archive, "items.csv", line, block.column("domain"), domains))
        titles += block["title"].to_pylist()
        texts += map(item_text, block[category].to_pylist(), block["title"].to_pylist())
    return Catalogue(items.ids(), titles, texts, np.concatenate([np.empty(0, np.uint8), *where])), items


def _domain(archive: Archive, member: str, line: int, column, domains: tuple[str, str]) -> np.ndarray:
    names = Numbering()
    names.numbers.update({name: number for number, name in enumerate(domains)})
    found = names.find(column)
    refuse_row(archive, member, line, found < 0, column, f"domain must be {' or '.join(domains)}")
    return found.astype(np.uint8)
