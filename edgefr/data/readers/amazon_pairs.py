"""Two processed Amazon sets in one layout: two domains with overlapping users, an order but no clock times.

`interactions.csv` has a row per interaction with its place in the user's sequence; `items.csv` has the texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgefr.data.files.rows import texts_of
from edgefr.data.files.table import fault
from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text
from edgefr.data.readers.archive import Public, interactions, listed, open_archive, places

_URL = "https://cseweb.ucsd.edu/~jmcauley/datasets.html#amazon_reviews"
ARTS_OFFICE = Public(_URL, "no licence stated; research use with citation", "order only, no clock times")
MOVIE_BOOK = Public(
    _URL,
    "no licence stated; research use with citation; some titles CC BY-SA (DBpedia, goodbooks-10k)",
    "order only, no clock times; most books have no title",
)


def read_arts_office(data_dir: Path, *_: Any) -> Dataset:
    """Read 9,577 users in both domains, 208,541 interactions with arts and office supplies."""
    return _read(data_dir, "amazon-arts-office", ("arts", "office"), "attributes", ARTS_OFFICE)


def read_movie_book(data_dir: Path, *_: Any) -> Dataset:
    """Read 20,502 users, 8,317 in both domains, 269,443 interactions with films and books; most books have no title."""
    return _read(data_dir, "amazon-movie-book", ("movie", "book"), "categories", MOVIE_BOOK)


def _read(data_dir: Path, name: str, domains: tuple[str, str], category: str, public: Public) -> Dataset:
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
