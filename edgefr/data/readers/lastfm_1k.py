"""This module reads Last.fm-1K: who listened to what and when, as its table of plays has it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.interactions import Catalogue, Dataset, assemble
from edgefr.data.readers.archive import Numbering, Public, Wanted, check_ids, open_archive, read_table
from edgefr.data.readers.events import written
from privacy.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

LASTFM_1K = Public(
    "http://ocelma.net/MusicRecommendationDataset/lastfm-1K.html",
    "non-commercial use, citing Last.fm",
    "An artist or track without a MusicBrainz id is known by its name.",
)

_FILE = "userid-timestamp-artid-artname-traid-traname.tsv"
_COLUMNS = ("user", "time", "artist", "artist name", "track", "track name")
_CLOCK = written("%Y-%m-%dT%H:%M:%SZ", "2009-05-04T23:08:57Z")
_LONGEST_NAME = 200  # characters that are kept


class LastfmOptions(BaseModel):
    """The options say what counts as an item."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    items: Literal["artist", "track"] = Field("artist", description="what counts as an item: artist or track")


def read(data_dir: Path, options: LastfmOptions, progress: Progress | None) -> Dataset:
    """Read 19,150,868 plays of 992 listeners, from the unpacked archive `lastfm-dataset-1K`."""
    titles: dict[str, str] = {}
    users, items, parts = Numbering(), Numbering(), list[tuple[np.ndarray, ...]]()
    wanted: Wanted = dict.fromkeys(("user", "time", options.items, f"{options.items} name"), "str")
    with open_archive(data_dir, "lastfm-dataset-1K", LASTFM_1K) as archive:
        for line, block in read_table(archive, _FILE, wanted, "\t", False, _COLUMNS):
            user = block.column("user")
            check_ids(archive, _FILE, line, user, "the user's id")
            seconds = _CLOCK.read(archive, _FILE, line, block.column("time"))
            item = _named(block.column(options.items), block.column(f"{options.items} name"), titles)
            check_ids(archive, _FILE, line, item, f"the {options.items}'s id")
            parts.append((users.add(user), items.add(item), seconds))
        if not parts:
            raise archive.fault(_FILE, None, "it has no rows")
        source = archive.source([_FILE])
    user_rows, item_rows, time_rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows = (user_rows, item_rows, time_rows)
    return assemble("lastfm-1k", users.ids(), _catalogue(items, titles), rows, (f"{options.items}s",), True, source)


def _named(ids: pa.Array, names: pa.Array, titles: dict[str, str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = names.dictionary_encode()
    digests = [hashlib.blake2b(name.encode(), digest_size=16).hexdigest() for name in coded.dictionary.to_pylist()]
    made = pa.array([f"name-{digest}" for digest in digests], pa.string()).take(coded.indices)
    out = pc.if_else(pc.equal(ids, ""), made, ids)
    found = out.dictionary_encode()
    first = np.unique(found.indices.to_numpy(), return_index=True)[1]
    for item, name in zip(found.dictionary.to_pylist(), names.take(pa.array(first)).to_pylist(), strict=True):
        titles.setdefault(item, name.strip()[:_LONGEST_NAME])
    return out


def _catalogue(items: Numbering, titles: Mapping[str, str]) -> Catalogue:
    names = [titles[item] for item in items.numbers]
    return Catalogue(items.ids(), names, names, np.zeros(len(names), np.uint8))
