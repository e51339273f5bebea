"""The two HetRec 2011 sets of GroupLens: Last.fm-2K (tags of artists) and MovieLens-2K (ratings); names are texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.filtering import thinned
from edgefr.data.interactions import Catalogue, Dataset, assemble
from edgefr.data.readers.archive import Archive, Numbering, Public, Wanted, check_ids, open_archive, read_table, refuse
from privacy.progress import Progress

LASTFM_2K = Public(
    "https://grouplens.org/datasets/hetrec-2011/", "non-commercial use, citing Last.fm", "Times are in milliseconds."
)
MOVIELENS_2K = Public("https://grouplens.org/datasets/hetrec-2011/", "non-commercial research use with acknowledgement")

_MOST_BYTES = 1 << 26  # of a table of names; the published ones are under 6 MB
_STARS = "a rating is 0 to 5"
_PER_SECOND = 1000
_EARLIEST, _LATEST = -2_208_988_800_000, 253_402_300_799_000  # 1900 to 9999 in ms: some tags are dated 1956


@dataclass(frozen=True)
class _Layout:
    """This says which files of an archive hold the interactions and the items' names, and how columns are called."""

    member: str
    user: str
    item: str
    rating: str | None
    listed: str
    title: str
    domain: str


_TAGS = _Layout("user_taggedartists-timestamps.dat", "userID", "artistID", None, "artists.dat", "name", "artists")
_RATINGS = _Layout("user_ratedmovies-timestamps.dat", "userID", "movieID", "rating", "movies.dat", "title", "movies")
_COUNTED = {
    "every": "every tag assignment is an interaction, so an artist tagged several times at once has as many rows",
    "distinct": "an interaction is a distinct (user, artist, time in ms), however many tags were given",
}


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


def read_lastfm_2k(data_dir: Path, options: LastfmOptions, progress: Progress | None) -> Dataset:
    """Read Last.fm-2K: 186,479 tag assignments with clock times; artists missing in `artists.dat` have no text."""
    with open_archive(data_dir, "hetrec2011-lastfm-2k", LASTFM_2K) as archive:
        table = _read(archive, "lastfm-2k", _TAGS)
    repeats: Literal["keep", "once"] = "once" if options.records == "distinct" else "keep"
    return thinned(table, repeats, options.user_core, options.item_core, _COUNTED[options.records])


def read_movielens_2k(data_dir: Path, progress: Progress | None) -> Dataset:
    """Read HetRec MovieLens-2K: 2,113 users, 855,598 ratings with clock times; every rating is an interaction."""
    with open_archive(data_dir, "hetrec2011-movielens-2k-v2", MOVIELENS_2K) as archive:
        return _read(archive, "hetrec2011", _RATINGS)


def _read(archive: Archive, name: str, layout: _Layout) -> Dataset:
    items, titles, members = Numbering(), list[str](), [layout.member]
    if layout.listed in archive.members:
        titles = _names(archive, layout.listed, layout.title, items)
        members.append(layout.listed)
    users, rows = _interactions(archive, layout, items)
    titles += [""] * (len(items.numbers) - len(titles))
    catalogue = Catalogue(items.ids(), titles, titles, np.zeros(len(titles), np.uint8))
    source = archive.source(members)
    return assemble(name, users, catalogue, rows, (layout.domain,), True, source, per_second=_PER_SECOND)


def _interactions(
    archive: Archive, layout: _Layout, items: Numbering
) -> tuple[npt.NDArray[np.str_], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return user ids and the (user, item, ms) columns; unlisted items get the next numbers."""
    member, users, columns = layout.member, Numbering(), []
    wanted: Wanted = {layout.user: "int", layout.item: "int", "timestamp": "int"}
    if layout.rating is not None:
        wanted[layout.rating] = "float"
    for line, block in read_table(archive, member, wanted, "\t"):
        user, item, time = (block.column(name) for name in (layout.user, layout.item, "timestamp"))
        check_ids(archive, member, line, user, layout.user)
        check_ids(archive, member, line, item, layout.item)
        if layout.rating is not None:
            stars = block.column(layout.rating).to_numpy()
            refuse(archive, member, line, ~((stars >= 0) & (stars <= 5)), block.column(layout.rating), _STARS)
        ms = time.to_numpy()
        refuse(archive, member, line, (ms < _EARLIEST) | (ms > _LATEST), time, "a time must be unix milliseconds")
        columns.append((users.add(user), items.add(item), ms))
    if not columns:
        raise archive.fault(member, None, "it has no rows")
    user_rows, item_rows, time_rows = (np.concatenate(c) for c in zip(*columns, strict=True))
    return users.ids(), (user_rows, item_rows, time_rows)


def _names(archive: Archive, member: str, column: str, items: Numbering) -> list[str]:
    """Return the items' names, and add the items to `items`.

    Lines are split by hand: names hold stray quotes, and are UTF-8 in one set and ISO-8859-1 in the other.
    """
    import pyarrow as pa

    header, *rows = _lines(archive, member)
    for needed in ("id", column):
        if needed not in header:
            raise archive.fault(member, 1, f"{needed} is missing from the header")
    at, named = header.index("id"), header.index(column)
    for line, row in enumerate(rows, start=2):
        if len(row) <= max(at, named):
            raise archive.fault(member, line, f"Expected {len(header)} columns, got {len(row)}")
        if not (row[at].isascii() and row[at].isdecimal()):
            raise archive.fault(member, line, f"id must be a whole number, not {row[at][:80]!r}")
    # ids as whole numbers, so that they are written as in the table of interactions
    ids = pa.array([min(int(row[at][:20]), 2**63 - 1) for row in rows], pa.int64())
    check_ids(archive, member, 2, ids, "id")
    refuse(archive, member, 2, items.add(ids) != np.arange(len(rows)), ids, "an id must not repeat")
    return [row[named].strip() for row in rows]


def _lines(archive: Archive, member: str) -> list[list[str]]:
    """Return the member's lines, cut at tabs; empty ones at the end are left out."""
    with archive.open(member) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise archive.fault(member, None, f"longer than {_MOST_BYTES:,} bytes: this is not a table of names")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return [line.rstrip("\r").split("\t") for line in text.rstrip("\r\n").split("\n")]
