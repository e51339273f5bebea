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

__all__ = ["Catalogue", "Dataset", "Ragged", "check", "load", "names"]


class NoOptions(BaseModel):
    """A data set with nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class _Reader:
    """`read(data_dir, options, seed, progress)`; `options` checks what the user set; `public` is None when
    generated.
    """

    options: type[BaseModel]
    public: Public | None
    read: Callable[[Path, Any, int, Progress | None], Dataset]


def _fixed(read: Callable[[Path, Progress | None], Dataset], public: Public) -> _Reader:
    return _Reader(NoOptions, public, lambda data_dir, options, seed, progress: read(data_dir, progress))


_READERS: dict[str, _Reader] = {
    "demo": _Reader(demo.DemoOptions, None, lambda data_dir, *rest: demo.generate(*rest)),
    "ml-100k": _fixed(movielens.read_100k, movielens.ML_100K),
    "ml-latest-small": _fixed(movielens.read_latest_small, movielens.ML_LATEST_SMALL),
    "lastfm-2k": _fixed(hetrec.read_lastfm_2k, hetrec.LASTFM_2K),
    "hetrec2011": _fixed(hetrec.read_movielens_2k, hetrec.MOVIELENS_2K),
    "amazon": _Reader(
        amazon.AmazonOptions,
        amazon.AMAZON,
        lambda data_dir, options, seed, progress: amazon.read(data_dir, options, progress),
    ),
    "amazon-arts-office": _fixed(amazon_pairs.read_arts_office, amazon_pairs.ARTS_OFFICE),
    "amazon-movie-book": _fixed(amazon_pairs.read_movie_book, amazon_pairs.MOVIE_BOOK),
    "xing": _fixed(xing.read_sessions, xing.XING),
    "xing-2017": _Reader(
        xing.ChallengeOptions,
        xing.XING_2017,
        lambda data_dir, options, seed, progress: xing.read_challenge(data_dir, options, progress),
    ),
    "retailrocket": _fixed(retailrocket.read, retailrocket.RETAILROCKET),
    "lastfm-1k": _Reader(
        lastfm_1k.LastfmOptions,
        lastfm_1k.LASTFM_1K,
        lambda data_dir, options, seed, progress: lastfm_1k.read(data_dir, options, progress),
    ),
    "tmall": _fixed(tmall.read, tmall.TMALL),
}


def names() -> list[str]:
    """The data sets that `load` knows."""
    return list(_READERS)


def check(name: str, options: dict[str, Any] | None = None) -> None:
    """Whether `load` would know the data set and its options; nothing is read. Raises `InputError`.

    >>> check("demo", {"users": 50})
    """
    if name not in _READERS:
        raise unknown("data set", name, _READERS)
    _checked(name, _READERS[name].options, options or {})


def load(
    name: str,
    data_dir: str | Path | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The data set of that name.

    `data_dir` holds the public archives (zip or unpacked; default: the environment's EDGEFR_DATA); `seed`
    matters to "demo" only; `options` are the reader's own. Raises `InputError` for an unknown name or option,
    an archive that is missing (naming file, public page and licence) or damaged (naming file and row).

    >>> load("demo", options={"users": 50}).statistics()["users"]
    50
    """
    check(name, options)
    reader = _READERS[name]
    settings = _checked(name, reader.options, options or {})
    folder = data_dir or os.environ.get("EDGEFR_DATA") or ""
    if reader.public is not None and not folder:
        raise InputError(
            f"data set '{name}' is read from a folder and none is named: get it from {reader.public.url} "
            f"(licence: {reader.public.licence}) and name its folder by --data-dir or EDGEFR_DATA"
        )
    return reader.read(Path(folder), settings, seed, progress)


def _checked(name: str, model: type[BaseModel], options: dict[str, Any]) -> BaseModel:
    """The options as settings; the first thing wrong with them as one line."""
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
