"""This module reads MovieLens-100K, -1M and latest-small as GroupLens distributes them; genres and titles are texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

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

ML_100K = Public(
    "https://grouplens.org/datasets/movielens/100k/",
    "research use with acknowledgement; no redistribution, no commercial use without permission",
)
ML_1M = Public(
    "https://grouplens.org/datasets/movielens/1m/",
    "research use with acknowledgement; no redistribution, no commercial use without permission",
    "users.dat (age, sex, occupation, zip code) is not read: nothing here uses it",
)
ML_LATEST_SMALL = Public(
    "https://grouplens.org/datasets/movielens/latest/",
    "research use with acknowledgement; redistribution under the same terms, no commercial use",
)

_TWICE = "::"
"""What stands between the columns of MovieLens-1M."""


def read_100k(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 943 users, 1,682 films, 100,000 ratings with clock times; every rating is an interaction."""
    with open_archive(data_dir, "ml-100k", ML_100K) as archive:
        genres = _genre_names(archive)
        catalogue, films = _films_100k(archive, genres)
        columns = _ratings(archive, "u.data", films, ("user", "item", "rating", "time"), "\t", header=False)
        source = archive.source(["u.data", "u.item", "u.genre"])
    users, rows = columns
    return assemble("ml-100k", users, catalogue, rows, ("movies",), True, source)


def read_1m(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 6,040 users, 3,883 listed films (3,706 rated; ids go to 3,952), 1,000,209 ratings with clock times."""
    with open_archive(data_dir, "ml-1m", ML_1M) as archive:
        films, titles, genres = Numbering(), list[str](), list[str]()
        wanted: Wanted = {"id": "int", "title": "str", "genres": "str"}
        for line, block in read_table(archive, "movies.dat", wanted, _TWICE, False, encoding="latin-1"):
            _add_films(archive, "movies.dat", line, block.column("id"), films)
            titles += block["title"].to_pylist()
            genres += _listed(block["genres"].to_pylist())
        names = ("user", "item", "rating", "time")
        users, rows = _ratings(archive, "ratings.dat", films, names, _TWICE, header=False)
        source = archive.source(["movies.dat", "ratings.dat"])
    catalogue = _films(films, titles, genres)
    return assemble("ml-1m", users, catalogue, rows, ("movies",), True, source)


def read_latest_small(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read 610 users, 9,742 listed films (9,724 rated), 100,836 ratings with clock times."""
    with open_archive(data_dir, "ml-latest-small", ML_LATEST_SMALL) as archive:
        films, titles, genres = Numbering(), list[str](), list[str]()
        wanted: Wanted = {"movieId": "int", "title": "str", "genres": "str"}
        for line, block in read_table(archive, "movies.csv", wanted):
            _add_films(archive, "movies.csv", line, block.column("movieId"), films)
            titles += block["title"].to_pylist()
            genres += _listed(block["genres"].to_pylist())
        names = ("userId", "movieId", "rating", "timestamp")
        users, rows = _ratings(archive, "ratings.csv", films, names, ",", header=True)
        source = archive.source(["movies.csv", "ratings.csv"])
    catalogue = _films(films, titles, genres)
    return assemble("ml-latest-small", users, catalogue, rows, ("movies",), True, source)


def _listed(genres: list[str]) -> list[str]:
    """Return genres as a text lists them.

    >>> _listed(["Comedy|Drama", "(no genres listed)"])
    ['Comedy, Drama', '']
    """
    return [names.replace("|", ", ").replace("(no genres listed)", "") for names in genres]


def _genre_names(archive: Archive) -> list[str]:
    with archive.open("u.genre") as file:
        lines = file.read(1 << 16).decode("latin-1").split()
    names = [line.rsplit("|", 1)[0] for line in lines]
    if not names or [line.rsplit("|", 1)[-1] for line in lines] != [str(n) for n in range(len(names))]:
        raise archive.fault("u.genre", 1, "genres must be numbered from 0 as name|number")
    return names


def _films_100k(archive: Archive, genres: list[str]) -> tuple[Catalogue, Numbering]:
    films, titles, listed = Numbering(), list[str](), list[str]()
    every = ["id", "title", "released", "video", "url", *genres]
    wanted: Wanted = {"id": "int", "title": "str", **dict.fromkeys(genres, "int")}
    for line, block in read_table(archive, "u.item", wanted, "|", False, every, "latin-1"):
        _add_films(archive, "u.item", line, block.column("id"), films)
        flags = np.stack([block.column(g).to_numpy() for g in genres], axis=1)
        listed += [", ".join(g for g, on in zip(genres, row, strict=True) if on and g != "unknown") for row in flags]
        titles += block["title"].to_pylist()
    return _films(films, titles, listed), films


def _films(films: Numbering, titles: list[str], genres: list[str]) -> Catalogue:
    texts = list(map(item_text, genres, titles))
    categories = [tuple(filter(None, names.split(", "))) for names in genres]
    return Catalogue(films.ids(), titles, texts, np.zeros(len(titles), np.uint8), categories)


def _add_films(archive: Archive, member: str, line: int, ids, films: Numbering) -> None:
    check_ids(archive, member, line, ids, "a film id")
    before = len(films.numbers)
    numbers = films.add(ids)
    refuse_row(archive, member, line, numbers != before + np.arange(len(ids)), ids, "a film id must not repeat")


def _ratings(
    archive: Archive, member: str, films: Numbering, names: tuple[str, str, str, str], separator: str, header: bool
) -> tuple[npt.NDArray[np.str_], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return user ids and the (user, item, time) columns of a ratings table."""
    user, item, rating, time = names
    users, columns = Numbering(), []
    wanted: Wanted = {user: "int", item: "int", rating: "float", time: "int"}
    for line, block in read_table(archive, member, wanted, separator, header):
        for name in (user, item):
            check_ids(archive, member, line, block.column(name), f"{name} id" if not header else name)
        found = films.find(block.column(item))
        refuse_row(archive, member, line, found < 0, block.column(item), "an item must be among the listed films")
        stars = block.column(rating).to_numpy()
        refuse_row(archive, member, line, ~((stars >= 0) & (stars <= 5)), block.column(rating), "a rating is 0 to 5")
        columns.append((users.add(block.column(user)), found, check_times(archive, member, line, block.column(time))))
    if not columns:
        raise archive.fault(member, None, "it has no rows")
    user_rows, item_rows, time_rows = (np.concatenate(c) for c in zip(*columns, strict=True))
    return users.ids(), (user_rows, item_rows, time_rows)
