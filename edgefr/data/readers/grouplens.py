"""GroupLens' data sets: MovieLens-100K, -1M and latest-small, and HetRec 2011's Last.fm-2K and MovieLens-2K."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.files.rows import Published, texts_of
from edgefr.data.files.streams import printable, stream
from edgefr.data.files.table import OpenTable
from edgefr.data.filtering import rows_of, thinned
from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text
from edgefr.data.readers.archive import Archive, Public, interactions, listed, open_archive, places
from privacy.errors import InputError

_RESEARCH = "research use with acknowledgement; no redistribution, no commercial use without permission"
ML_100K = Public("https://grouplens.org/datasets/movielens/100k/", _RESEARCH)
ML_1M = Public(
    "https://grouplens.org/datasets/movielens/1m/",
    _RESEARCH,
    "users.dat (age, sex, occupation, zip code) is not read: nothing here uses it",
)
ML_LATEST_SMALL = Public(
    "https://grouplens.org/datasets/movielens/latest/",
    "research use with acknowledgement; redistribution under the same terms, no commercial use",
)
_HETREC = "https://grouplens.org/datasets/hetrec-2011/"
LASTFM_2K = Public(
    _HETREC, "non-commercial use, citing Last.fm", "Times are in milliseconds.", ("hetrec2011-lastfm-2k",)
)
MOVIELENS_2K = Public(
    _HETREC, "non-commercial research use with acknowledgement", called=("hetrec2011-movielens-2k-v2",)
)

Films = tuple[list[str], list[str], list[str]]
"""Ids, titles and genres, as a text lists them."""

_RATED = ("user", "item", "rating", "time")
_TWICE = "::"
"""What stands between the columns of MovieLens-1M."""
_MOST_BYTES = 1 << 26  # of a table of names; the published ones are under 6 MB
_LONGEST_ID = 18  # digits
_EARLIEST = -2_208_988_800  # 1900: some tags are dated 1956
_COUNTED = {
    "every": "every tag assignment is an interaction, so an artist tagged several times at once has as many rows",
    "distinct": "an interaction is a distinct (user, artist, time in ms), however many tags were given",
}


def read_100k(data_dir: Path, *_: Any) -> Dataset:
    """Read 943 users, 1,682 films, 100,000 ratings with clock times; every rating is an interaction."""
    with open_archive(data_dir, "ml-100k", ML_100K) as archive:
        names = _genre_names(archive)
        films = archive.table("u.item", "|", ("id", "title", "released", "video", "url", *names), "latin-1")
        ids, titles, *flags = listed(films, "id", "title", *names)
        genres = [
            ", ".join(name for name, on in zip(names, row, strict=True) if on == "1" and name != "unknown")
            for row in zip(*flags, strict=True)
        ]
        ratings, members = archive.table("u.data", "\t", _RATED), ["u.data", "u.item", "u.genre"]
        return _rated(archive, "ml-100k", ratings, _RATED, (ids, titles, genres), members)


def read_1m(data_dir: Path, *_: Any) -> Dataset:
    """Read 6,040 users, 3,883 listed films (3,706 rated; ids go to 3,952), 1,000,209 ratings with clock times."""
    with open_archive(data_dir, "ml-1m", ML_1M) as archive:
        films = archive.table("movies.dat", _TWICE, ("id", "title", "genres"), "latin-1")
        ids, titles, genres = listed(films, "id", "title", "genres")
        ratings, members = archive.table("ratings.dat", _TWICE, _RATED), ["movies.dat", "ratings.dat"]
        return _rated(archive, "ml-1m", ratings, _RATED, (ids, titles, _spoken(genres)), members)


def read_latest_small(data_dir: Path, *_: Any) -> Dataset:
    """Read 610 users, 9,742 listed films (9,724 rated), 100,836 ratings with clock times."""
    with open_archive(data_dir, "ml-latest-small", ML_LATEST_SMALL) as archive:
        ids, titles, genres = listed(archive.table("movies.csv"), "movieId", "title", "genres")
        films, columns = (ids, titles, _spoken(genres)), ("userId", "movieId", "rating", "timestamp")
        ratings, members = archive.table("ratings.csv"), ["movies.csv", "ratings.csv"]
        return _rated(archive, "ml-latest-small", ratings, columns, films, members)


def _spoken(genres: list[str]) -> list[str]:
    """Return genres as a text lists them.

    >>> _spoken(["Comedy|Drama", "(no genres listed)"])
    ['Comedy, Drama', '']
    """
    return [names.replace("|", ", ").replace("(no genres listed)", "") for names in genres]


def _genre_names(archive: Archive) -> list[str]:
    with stream(archive["u.genre"]) as file:
        lines = file.read(1 << 16).decode("latin-1").split()
    names = [line.rpartition("|")[0] for line in lines]
    if not names or [line.rpartition("|")[2] for line in lines] != [str(n) for n in range(len(names))]:
        raise InputError(f"{archive['u.genre']}: genres must be numbered from 0 as name|number")
    return names


def _rated(
    archive: Archive, name: str, table: OpenTable, columns: Sequence[str], films: Films, members: list[str]
) -> Dataset:
    """Return the data set of a table of ratings, whose users, films, stars and times stand in these columns."""
    ids, titles, genres = films
    rows = interactions(table, dict(zip(_RATED, columns, strict=True)), "s", Published(stars=True))
    item = places(table, columns[1], rows, ids)
    categories = [tuple(filter(None, names.split(", "))) for names in genres]
    texts = list(map(item_text, genres, titles))
    catalogue = Catalogue(np.array(ids, np.str_), titles, texts, np.zeros(len(ids), np.uint8), categories)
    by_row = (rows.user, item, rows.time)
    return assemble(name, texts_of(rows.users), catalogue, by_row, ("movies",), True, archive.source(members))


class LastfmOptions(BaseModel):
    """The options are what counts as an interaction, and which users and artists are thin.

    FedCAR's Table 1 is ``user_core: 5`` over every record; F3CRec's is ``records: distinct`` with both cores 5.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    records: Literal["every", "distinct"] = Field(
        "every",
        description="what an interaction is: every tag assignment, or a distinct (user, artist, time in milliseconds)",
    )
    user_core: int = Field(1, ge=1, description="interactions a user needs, repeatedly applied (count)")
    item_core: int = Field(1, ge=1, description="interactions an artist needs, repeatedly applied (count)")


def read_lastfm_2k(data_dir: Path, options: LastfmOptions, *_: Any) -> Dataset:
    """Read Last.fm-2K: 186,479 tag assignments with clock times; artists missing in `artists.dat` have no text.

    Artists whom nobody tagged are left out, whatever the options: of `artists.dat` alone they are no candidates.
    """
    with open_archive(data_dir, LASTFM_2K.called[0], LASTFM_2K) as archive:
        roles = {"user": "userID", "item": "artistID", "time": "timestamp"}
        table = _hetrec(archive, "lastfm-2k", "user_taggedartists", roles, "artists", "name")
    repeats: Literal["keep", "once"] = "once" if options.records == "distinct" else "keep"
    table = rows_of(table, np.ones(len(table.user), np.bool_))
    return thinned(table, repeats, options.user_core, options.item_core, _COUNTED[options.records])


def read_movielens_2k(data_dir: Path, *_: Any) -> Dataset:
    """Read HetRec MovieLens-2K: 2,113 users, 855,598 ratings with clock times; every rating is an interaction."""
    with open_archive(data_dir, MOVIELENS_2K.called[0], MOVIELENS_2K) as archive:
        roles = {"user": "userID", "item": "movieID", "time": "timestamp", "rating": "rating"}
        return _hetrec(archive, "hetrec2011", "user_ratedmovies", roles, "movies", "title")


def _hetrec(archive: Archive, name: str, rows: str, roles: dict[str, str], items: str, title: str) -> Dataset:
    """Return a data set of times in ms; what the table of names does not list is an item without a name."""
    members, names = [f"{rows}-timestamps.dat"], dict[str, str]()
    if f"{items}.dat" in archive.members:
        members.append(f"{items}.dat")
        names = _names(archive[members[1]], title)
    found = interactions(archive.table(members[0], "\t"), roles, "ms", Published(stars=True, earliest=_EARLIEST))
    number = {item: place for place, item in enumerate(names)}
    item = np.array([number.setdefault(one, len(number)) for one in found.items.to_pylist()])[found.item]
    titles = [names.get(one, "") for one in number]
    catalogue = Catalogue(np.array(list(number), np.str_), titles, titles, np.zeros(len(titles), np.uint8))
    of = (texts_of(found.users), catalogue, (found.user, item, found.time), (items,), True, archive.source(members))
    return assemble(name, *of, per_second=1000)


def _names(path: Path, title: str) -> dict[str, str]:
    """Return the names of a table of items by id.

    Lines are cut by hand: names hold stray quotes, rows may end early, and the text is UTF-8 in one set and ISO-8859-1
    in the other.
    """
    with stream(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path}: longer than {_MOST_BYTES:,} bytes: this is not a table of names")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    header, *rows = (line.rstrip("\r").split("\t") for line in text.rstrip("\r\n").split("\n"))
    if "id" not in header or title not in header:
        raise InputError(f"{path}: row 1: the header must have id and {title}")
    at, named, out = header.index("id"), header.index(title), dict[str, str]()
    for number, row in enumerate(rows, start=2):
        key = row[at] if len(row) > max(at, named) else ""
        if not (key.isascii() and key.isdecimal() and len(key) <= _LONGEST_ID) or str(int(key)) in out:
            raise InputError(f"{path}: row {number}, column id: '{printable(key)}'; a whole number, each one once")
        out[str(int(key))] = row[named].strip()
    return out
