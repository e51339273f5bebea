"""Logs of events, one row for each: XING's job postings, RetailRocket's visits, Tmall's actions, Last.fm-1K's plays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.assemble import check_sessions
from edgefr.data.files.options import FileOptions
from edgefr.data.files.parquet import PARQUET
from edgefr.data.files.rows import Published, Rows, texts_of
from edgefr.data.files.table import OpenTable
from edgefr.data.interactions import Catalogue, Dataset, Kinds, assemble
from edgefr.data.readers.archive import Archive, Public, interactions, open_archive
from privacy.errors import InputError

_XING_FILE = "xing-sessions.parquet"
_FOR_RESEARCH = "challenge data of XING, for research; no redistribution"
XING = Public(
    "https://www.recsyschallenge.com/2017/",
    _FOR_RESEARCH,
    "Sessions and parts as released with FCUCR, whose Table 1 counts 29,366 items and 6,165 sessions: that fits a "
    "count before held-out items that were not trained were dropped. The times are of August to November 2015.",
    (_XING_FILE,),
)
XING_2017 = Public("https://www.recsyschallenge.com/2017/", _FOR_RESEARCH, called=("recsys-challenge-2017",))
RETAILROCKET = Public("https://www.kaggle.com/datasets/retailrocket/ecommerce-dataset", "CC BY-NC-SA 4.0")
TMALL = Public(
    "https://tianchi.aliyun.com/dataset/42",
    "Tianchi's terms: research use, no redistribution",
    "The log of the repeat buyers has dates without a year, read as 2014; a day is then a session.",
)
LASTFM_1K = Public(
    "http://ocelma.net/MusicRecommendationDataset/lastfm-1K.html",
    "non-commercial use, citing Last.fm",
    "An artist or track without a MusicBrainz id is known by its name.",
    ("lastfm-dataset-1K",),
)

KINDS = ("impression", "click", "bookmark", "reply", "delete", "recruiter interest")
_DROPPED = ("impression", "delete", "recruiter interest")  # FCUCR names delete; the others are not the user's doing
_XING = {"user": "user_id", "item": "item_id", "kind": "interaction_type", "time": "created_at"}
_WHOLE = f"get a whole copy from {XING.url}"
_PLAYS = "userid-timestamp-artid-artname-traid-traname.tsv"
_LONGEST_NAME = 200  # characters that are kept


class ChallengeOptions(BaseModel):
    """The options say what is read of the challenge's interactions."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    impressions: bool = Field(False, description="also read postings that were only shown, which most rows are")


class LastfmOptions(BaseModel):
    """The options say what counts as an item."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    items: Literal["artist", "track"] = Field("artist", description="what counts as an item: artist or track")


def read_xing(data_dir: Path, *_: Any) -> Dataset:
    """Read the release: 877 users, 24,390 postings, 83,907 interactions in 5,982 sessions, each of one part."""
    path = data_dir / _XING_FILE
    if not path.is_file():
        raise XING.missing(f"{path} is not there")
    archive = Archive(data_dir, XING, {_XING_FILE: path})
    roles = {**_XING, "session": "session_id", "split": "split"}
    rows = interactions(PARQUET.open(path, FileOptions()), roles, "s", Published(KINDS))
    rows.session = cast(Any, _numbers(rows.sessions)[rows.session])
    dataset = _dataset("xing", rows, "jobs", (KINDS, _DROPPED), archive.source([_XING_FILE]))
    check_sessions(dataset)
    _check_people(dataset)
    return dataset


def _numbers(sessions: pa.Array) -> npt.NDArray[np.int64]:
    try:
        return sessions.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise InputError(f"{_XING_FILE}: a session_id is no whole number; {_WHOLE}") from error


def _check_people(dataset: Dataset) -> None:
    """Refuse a session of two users, and a user with two sessions of valid or test, whose tests would not be theirs."""
    session, part = cast("npt.NDArray[np.int64]", dataset.session), cast("npt.NDArray[np.int8]", dataset.part)
    _, first, of = np.unique(session, return_index=True, return_inverse=True)
    shared = dataset.user != dataset.user[first][of]
    if shared.any():
        raise InputError(
            f"{_XING_FILE}: session {session[shared][0]} is of two users; get a whole copy from {XING.url}"
        )
    held = first[part[first] > 0]
    pairs, counts = np.unique(np.stack([dataset.user[held], part[held]]), axis=1, return_counts=True)
    if (counts > 1).any():
        user = dataset.users[pairs[0, counts > 1][0]]
        raise InputError(
            f"{_XING_FILE}: user {user} has two sessions of valid or test; get a whole copy from {XING.url}"
        )


def read_xing_2017(data_dir: Path, options: ChallengeOptions, *_: Any) -> Dataset:
    """Read the challenge's `interactions.csv` (tabs; user_id, item_id, interaction_type, created_at), in one table."""
    with open_archive(data_dir, XING_2017.called[0], XING_2017) as archive:
        table = archive.table("interactions.csv", "\t")
        rows = interactions(table, _XING, "s", Published(KINDS, () if options.impressions else ("impression",)))
        return _dataset("xing-2017", rows, "jobs", (KINDS, _DROPPED), archive.source(["interactions.csv"]))


def read_retailrocket(data_dir: Path, *_: Any) -> Dataset:
    """Read 2,756,101 events of 1,407,580 visitors; sessions are of views unless protocol.drop says otherwise."""
    kinds = ("view", "addtocart", "transaction")
    roles = {"user": "visitorid", "item": "itemid", "time": "timestamp", "kind": "event"}
    with open_archive(data_dir, "retailrocket", RETAILROCKET) as archive:
        rows = interactions(archive.table("events.csv"), roles, "ms", Published(kinds))
        return _dataset("retailrocket", rows, "products", (kinds, kinds[1:]), archive.source(["events.csv"]))


def read_tmall(data_dir: Path, *_: Any) -> Dataset:
    """Read the log that the archive `tmall` holds, of every kind of action: of repeat buyers, or the mobile task."""
    buyers, mobile = "user_log_format1.csv", "tianchi_mobile_recommend_train_user.csv"
    roles = {"user": "user_id", "item": "item_id"}
    with open_archive(data_dir, "tmall", TMALL) as archive:
        member = archive.find(buyers) or archive.find(mobile)
        if member is None:
            raise InputError(f"{archive.path} has neither {buyers} nor {mobile}")
        table = archive.table(member)
        if member.endswith(buyers):
            kinds: tuple[str, ...] = ("click", "addtocart", "purchase", "favourite")
            roles |= {"time": "time_stamp", "kind": "action_type"}
            rows = interactions(_dated(table, "time_stamp"), roles, "auto", Published(kinds))
        else:
            kinds = ("", "click", "favourite", "addtocart", "purchase")
            roles |= {"time": "time", "kind": "behavior_type"}
            rows = interactions(table, roles, "%Y-%m-%d %H", Published(kinds))
        return _dataset("tmall", rows, "products", (kinds, ()), archive.source([member]))


def _dated(table: OpenTable, time: str) -> OpenTable:
    """Return the table with month and day in one number, as 1111, written as a date of 2014."""

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for row, block in table.blocks(wanted):
            padded = pc.utf8_lpad(block[time], 4, "0")
            dates = pc.replace_substring_regex(padded, r"^([0-9]{2})([0-9]{2})$", r"2014-\1-\2")
            yield row, block.set_column(block.schema.get_field_index(time), time, dates)

    return replace(table, blocks=blocks)


def read_lastfm_1k(data_dir: Path, options: LastfmOptions, *_: Any) -> Dataset:
    """Read 19,150,868 plays of 992 listeners, from the unpacked archive `lastfm-dataset-1K`."""
    titles: dict[str, str] = {}
    with open_archive(data_dir, LASTFM_1K.called[0], LASTFM_1K) as archive:
        table = archive.table(_PLAYS, "\t", ("user", "time", "artist", "artist name", "track", "track name"))
        roles = {"user": "user", "item": options.items, "time": "time"}
        rows = interactions(_named(table, options.items, titles), roles, "%Y-%m-%dT%H:%M:%SZ")
        names = [titles[item] for item in rows.items.to_pylist()]
        return _dataset("lastfm-1k", rows, f"{options.items}s", None, archive.source([_PLAYS]), names)


def _named(table: OpenTable, item: str, titles: dict[str, str]) -> OpenTable:
    """Return the table whose items without an id are known by a digest of their name; adds items' first names."""

    def blocks(wanted: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for row, block in table.blocks([*wanted, f"{item} name"]):
            names = block[f"{item} name"].fill_null("").dictionary_encode()
            digests = [hashlib.blake2b(n.encode(), digest_size=16).hexdigest() for n in names.dictionary.to_pylist()]
            made = pa.array([f"name-{digest}" for digest in digests], pa.string()).take(names.indices)
            ids = pc.utf8_trim_whitespace(pc.coalesce(block[item], made))
            for name, title in _firsts(ids, names):
                titles.setdefault(name, title.strip()[:_LONGEST_NAME])
            whole = block.set_column(block.schema.get_field_index(item), item, ids)
            yield row, whole.select(list(wanted))

    return replace(table, blocks=blocks)


def _firsts(ids: pa.Array, names: pa.DictionaryArray) -> Iterator[tuple[str, str]]:
    """Return every id and the name in its first row."""
    rows = pa.table([ids, names.dictionary_decode()], ["id", "name"]).group_by("id", use_threads=False)
    first = rows.aggregate([("name", "first")])
    return zip(first["id"].to_pylist(), first["name_first"].to_pylist(), strict=True)


def _dataset(
    name: str,
    rows: Rows,
    domain: str,
    kinds: tuple[tuple[str, ...], tuple[str, ...]] | None,
    source: dict[str, Any],
    titles: list[str] | None = None,
) -> Dataset:
    """Return the data set of rows of one domain; `kinds`: their names, and those that sessions drop by default."""
    ids = texts_of(rows.items)
    titles = titles or [""] * len(ids)
    catalogue = Catalogue(ids, titles, titles, np.zeros(len(ids), np.uint8))
    of = (name, texts_of(rows.users), catalogue, (rows.user, rows.item, rows.time), (domain,), True, source)
    named = None if kinds is None or rows.kind is None else Kinds(rows.kind, *kinds)
    return assemble(*of, session=rows.session, part=rows.part, kinds=named, per_second=rows.per_second or 1)
