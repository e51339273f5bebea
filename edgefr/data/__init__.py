"""Data sets by name: readers of public archives and the built-in demo generator.

Owns: names, options and where archives are looked for. Does not own: splits (`protocols`), text vectors
(`cloud`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from edge.ragged import Ragged
from edgefr.data import amazon, amazon_pairs, demo, hetrec, lastfm_1k, movielens, retailrocket, tmall, xing
from edgefr.data.archive import Public
from edgefr.data.interactions import Catalogue, Dataset, Progress
from privacy.errors import InputError, unknown
from privacy.table import Table

__all__ = ["READERS", "Catalogue", "Dataset", "Ragged", "Reader", "check", "load", "names"]


class NoOptions(BaseModel):
    """These are the options of a data set with nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Reader:
    """A reader makes a data set of a name: `read(data_dir, options, seed, progress)`.

    `options` are its settings, which are the keys of `data_options`; `public` says where its archive is from (None: it
    is generated, and needs no folder).
    """

    name: str
    options: type[BaseModel]
    public: Public | None
    read: Callable[[Path, Any, int, Progress | None], Dataset]


def _fixed(name: str, read: Callable[[Path, Progress | None], Dataset], public: Public) -> Reader:
    """Return the reader of a data set with nothing to choose."""
    return Reader(name, NoOptions, public, lambda data_dir, options, seed, progress: read(data_dir, progress))


def _chosen(
    name: str, options: type[BaseModel], read: Callable[[Path, Any, Progress | None], Dataset], public: Public
) -> Reader:
    """Return the reader of a public data set with options."""
    return Reader(name, options, public, lambda data_dir, options, seed, progress: read(data_dir, options, progress))


READERS: Table[Reader] = Table("data set", Reader)
"""The data sets that `load` knows."""

READERS.register(Reader("demo", demo.DemoOptions, None, lambda data_dir, *rest: demo.generate(*rest)))
READERS.register(_fixed("ml-100k", movielens.read_100k, movielens.ML_100K))
READERS.register(_fixed("ml-latest-small", movielens.read_latest_small, movielens.ML_LATEST_SMALL))
READERS.register(_fixed("lastfm-2k", hetrec.read_lastfm_2k, hetrec.LASTFM_2K))
READERS.register(_fixed("hetrec2011", hetrec.read_movielens_2k, hetrec.MOVIELENS_2K))
READERS.register(_chosen("amazon", amazon.AmazonOptions, amazon.read, amazon.AMAZON))
READERS.register(_fixed("amazon-arts-office", amazon_pairs.read_arts_office, amazon_pairs.ARTS_OFFICE))
READERS.register(_fixed("amazon-movie-book", amazon_pairs.read_movie_book, amazon_pairs.MOVIE_BOOK))
READERS.register(_fixed("xing", xing.read_sessions, xing.XING))
READERS.register(_chosen("xing-2017", xing.ChallengeOptions, xing.read_challenge, xing.XING_2017))
READERS.register(_fixed("retailrocket", retailrocket.read, retailrocket.RETAILROCKET))
READERS.register(_chosen("lastfm-1k", lastfm_1k.LastfmOptions, lastfm_1k.read, lastfm_1k.LASTFM_1K))
READERS.register(_fixed("tmall", tmall.read, tmall.TMALL))


def names() -> list[str]:
    """Return the names of the data sets that `load` knows."""
    return list(READERS)


def check(name: str, options: dict[str, Any] | None = None) -> None:
    """Say whether `load` would know the data set and its options; nothing is read. Raises `InputError`.

    >>> check("demo", {"users": 50})
    """
    _checked(name, READERS[name].options, options or {})


def load(
    name: str,
    data_dir: str | Path | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load the data set of that name.

    `data_dir` holds the public archives (zip or unpacked; default: the environment's EDGEFR_DATA); `seed`
    matters to "demo" only; `options` are the reader's own. Raises `InputError` for an unknown name or option,
    an archive that is missing (naming file, public page and licence) or damaged (naming file and row).

    >>> load("demo", options={"users": 50}).statistics()["users"]
    50
    """
    check(name, options)
    reader = READERS[name]
    settings = _checked(name, reader.options, options or {})
    folder = data_dir or os.environ.get("EDGEFR_DATA") or ""
    if reader.public is not None and not folder:
        raise InputError(
            f"data set '{name}' is read from a folder and none is named: get it from {reader.public.url} "
            f"(licence: {reader.public.licence}) and name its folder by --data-dir or EDGEFR_DATA"
        )
    return reader.read(Path(folder), settings, seed, progress)


def _checked(name: str, model: type[BaseModel], options: dict[str, Any]) -> BaseModel:
    """Return the options as settings; raise the first thing wrong with them as one line."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise unknown(f"option of data set '{name}'", where, model.model_fields) from error
        if first["type"] == "missing":
            about = model.model_fields[where].description
            raise InputError(f"data set '{name}' needs the option {where}: {about}") from error
        raise InputError(f"option {where} of data set '{name}': {first['msg']}, got {first['input']!r}") from error
