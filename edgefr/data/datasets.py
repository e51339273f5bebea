"""Data sets by name or by path: readers of public archives, of people's own files, and the built-in demo generator.

Owns: names, options and where archives are looked for. Does not own: splits (`edgefr.data.splits`), text vectors
(`cloud`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from edge.ragged import Ragged
from edgefr.config.arguments import checked
from edgefr.config.validation import first_fault
from edgefr.data.files import reader as files
from edgefr.data.files.folder import is_file
from edgefr.data.filtering import of_users
from edgefr.data.interactions import Catalogue, Dataset
from edgefr.data.readers import amazon, amazon_ratings, demo, events, grouplens, public_files
from edgefr.data.readers.archive import Public
from privacy.errors import InputError, unknown
from privacy.progress import Progress
from privacy.table import Table

__all__ = ["GIVEN", "READERS", "Catalogue", "Dataset", "Ragged", "Reader", "check", "load", "names"]

GIVEN = "given"
"""An experiment names its data set so where the caller hands it over."""


class NoOptions(BaseModel):
    """These are the options of a data set with nothing to choose."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Reader:
    """A reader makes a data set of a name: `read(data_dir, options, seed, progress)`.

    `options` are its settings (keys of `data_options`); `public`: source of its archive (None: no folder is needed).
    `holds` describes it in a few words.
    """

    name: str
    options: type[BaseModel]
    public: Public | None
    read: Callable[[Path, Any, int, Progress | None], Dataset]
    holds: str = ""

    def is_in(self, folder: Path) -> bool:
        """Say whether a folder of data has what this is read from, by its name; nothing is opened."""
        if self.public is None:
            return self.name != GIVEN
        called = self.public.called or (self.name,)
        return any((folder / f"{name}{end}").exists() for name in called for end in ("", ".zip"))


def _category(name: str) -> Reader:
    about = f"every rating of Amazon's {amazon_ratings.category_of(name)}"
    return Reader(name, amazon.CategoryOptions, amazon.AMAZON, partial(amazon.read_category, name), about)


def _not_given(*_: Any) -> Any:
    raise InputError(
        f"data set '{GIVEN}' is one that a program hands over, and only the program has it: pass it again by data=, as "
        "in edgefr.resume(run, data=dataset), or name a file of your own"
    )


READERS: Table[Reader] = Table("data set", Reader, group="edgefr.readers")
"""The data sets that `load` knows."""

for _reader in (
    Reader("demo", demo.DemoOptions, None, lambda data_dir, *rest: demo.generate(*rest), "books, films, made up"),
    Reader("ml-100k", NoOptions, grouplens.ML_100K, grouplens.read_100k, "943 users, 1,682 films, 100,000 ratings"),
    Reader("ml-1m", NoOptions, grouplens.ML_1M, grouplens.read_1m, "6,040 users, 3,706 rated films, 1,000,209 ratings"),
    Reader(
        "ml-latest-small",
        NoOptions,
        grouplens.ML_LATEST_SMALL,
        grouplens.read_latest_small,
        "610 users, 9,724 rated films, 100,836 ratings",
    ),
    Reader(
        "lastfm-2k",
        grouplens.LastfmOptions,
        grouplens.LASTFM_2K,
        grouplens.read_lastfm_2k,
        "186,479 tags that users gave to artists",
    ),
    Reader(
        "hetrec2011",
        NoOptions,
        grouplens.MOVIELENS_2K,
        grouplens.read_movielens_2k,
        "2,113 users, 10,109 films, 855,598 ratings",
    ),
    Reader(
        "amazon",
        amazon.AmazonOptions,
        amazon.AMAZON,
        amazon.read,
        "categories as domains, of users and items with many ratings",
    ),
    _category("amazon-video"),
    Reader(
        "amazon-arts-office",
        NoOptions,
        amazon.ARTS_OFFICE,
        amazon.read_arts_office,
        "9,577 users of both domains, 208,541 interactions",
    ),
    Reader(
        "amazon-movie-book",
        NoOptions,
        amazon.MOVIE_BOOK,
        amazon.read_movie_book,
        "20,502 users, 8,317 of both domains, 269,443 interactions",
    ),
    Reader("xing", NoOptions, events.XING, events.read_xing, "877 users' 5,982 sessions with job postings"),
    Reader(
        "xing-2017", events.ChallengeOptions, events.XING_2017, events.read_xing_2017, "interactions with job postings"
    ),
    Reader(
        "retailrocket", NoOptions, events.RETAILROCKET, events.read_retailrocket, "1,407,580 visitors' 2,756,101 events"
    ),
    Reader(
        "lastfm-1k", events.LastfmOptions, events.LASTFM_1K, events.read_lastfm_1k, "992 listeners' 19,150,868 plays"
    ),
    Reader(GIVEN, NoOptions, None, _not_given),
    Reader("tmall", NoOptions, events.TMALL, events.read_tmall, "shopping logs"),
):
    READERS.register(_reader)

for _set in public_files.SETS:
    _public = replace(_set.public, called=(*_set.folders, *_set.files))
    READERS.register(Reader(_set.name, files.FileOptions, _public, partial(public_files.read, _set), _set.holds))


ARCHIVES = {
    **{name: name for name in ("ml-100k", "ml-1m")},
    "hetrec2011-lastfm-2k": "lastfm-2k",
    "hetrec2011-movielens-2k-v2": "hetrec2011",
}
"""The data sets whose archives, by what they are called, hold tables that need their own reader."""


def names() -> list[str]:
    return [name for name in READERS if name != GIVEN]


def is_named(name: str) -> bool:
    """Say whether a data set is one of `names`, or a category of Amazon's by its name; others are somebody's own.

    >>> is_named("ml-1m"), is_named("amazon-digital-music"), is_named("orders.csv")
    (True, True, False)
    """
    return name in names() or name in amazon_ratings.NAMES


def bare_name(name: str) -> str:
    """Return a data set's name as it may leave this machine: without the folders of a path.

    >>> bare_name("/home/ada/orders.csv"), bare_name("ml-100k")
    ('orders.csv', 'ml-100k')
    """
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2]


def plain_name(name: str) -> str:
    """Return a name for an experiment on a data set: its own, or its file's without folder and ending.

    >>> plain_name("/home/ada/my orders.csv.gz"), plain_name("ml-100k")
    ('my-orders', 'ml-100k')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", bare_name(name).partition(".")[0]).strip("-._")[:100] or "data"


def reader(name: str) -> Reader:
    """Return the reader of a data set: by its name, or of a file or folder by its path."""
    if name not in READERS and is_file(name):
        return _of_archive(name) or _of_files(name)
    if name not in READERS and name.startswith("amazon-"):
        return _category(name)
    if name not in READERS:
        raise unknown("data set", name, names())
    return READERS[name]


def _of_archive(path: str) -> Reader | None:
    """Return the reader of a public archive that lies at a path under its own name, None for other files."""
    stem, end = os.path.splitext(os.path.basename(path))
    if end != ".zip" or stem not in ARCHIVES:
        return None
    found = READERS[ARCHIVES[stem]]
    return Reader(path, found.options, None, lambda _, *rest: found.read(Path(path).parent, *rest), found.holds)


def _of_files(path: str) -> Reader:
    return Reader(
        path,
        files.FileOptions,
        None,
        lambda data_dir, options, seed, progress: files.read(Path(path), options, progress),
    )


def check(name: str, options: dict[str, Any] | None = None) -> None:
    """Say whether `load` would know the data set and its options; nothing is read. Raises `InputError`.

    >>> check("demo", {"users": 50})
    """
    _checked(name, reader(name).options, options or {})


@checked
def load(
    name: str,
    data_dir: str | Path | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    progress: Progress | None = None,
    users: Sequence[str] | None = None,
) -> Dataset:
    """Load the data set of that name, or of a file or folder of one's own by its path.

    `data_dir` holds the public archives (zip or unpacked; default: the environment's EDGEFR_DATA); `seed`
    matters to "demo" only; `options` are the reader's own; `users`: of these alone (None: of all). Raises
    `InputError` for an unknown name or option, an archive that is missing (naming file, public page and licence) or
    damaged (naming file and row).

    >>> load("demo", options={"users": 50}).statistics()["users"]
    50
    """
    found = reader(name)
    settings = _checked(name, found.options, options or {})
    folder = data_dir or os.environ.get("EDGEFR_DATA") or ""
    if found.public is not None and not folder:
        raise found.public.missing(f"data set '{name}' is read from a folder and none is named")
    place = Path(folder)
    if place.suffix == ".zip" and place.is_file():  # who names the archive means the folder that it lies in
        place = place.parent
    dataset = found.read(place, settings, seed, progress)
    if users is None:
        return dataset
    return of_users(dataset, users, getattr(settings, "user_core", 1), getattr(settings, "item_core", 1))


def _checked(name: str, model: type[BaseModel], options: dict[str, Any]) -> BaseModel:
    """Return the options as settings; raise the first thing wrong with them as one line."""
    try:
        return model.model_validate(options)
    except ValidationError as error:
        place, problem = first_fault(error, model)
        raise InputError(f"option {'.'.join(map(str, place))} of data set '{name}': {problem}") from None
