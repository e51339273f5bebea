"""Public data sets that are tables like anybody's: which files they come in, and how these are read.

Owns: one entry of `SETS` for each data set. Does not own: reading (`files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefr.data.files import reader as files
from edgefr.data.files.formats import is_folder
from edgefr.data.files.streams import PACKED, files_of
from edgefr.data.interactions import Dataset
from edgefr.data.readers.archive import Public
from privacy.progress import Progress

_NONE_STATED = "none stated"


@dataclass(frozen=True)
class PublicFiles:
    """A public data set comes in these files, packed or not, in a data folder, a folder of these names, or their zip.

    `files` are names of the table of interactions, the first found counts; a final `*` means parts of one table.
    `items` is the file of items. `options` are for their reader, and weaker than the user's.
    """

    name: str
    public: Public
    holds: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    items: str | None = None
    listed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


SETS: tuple[PublicFiles, ...] = (
    PublicFiles(
        "yelp",
        Public("https://business.yelp.com/data/resources/open-dataset/", "Yelp Dataset Terms of Use: academic use"),
        "reviews of businesses, with stars and times",
        ("yelp", "yelp_dataset", "Yelp JSON"),
        ("yelp_academic_dataset_review.json",),
        "yelp_academic_dataset_business.json",
    ),
    PublicFiles(
        "gowalla",
        Public("https://snap.stanford.edu/data/loc-gowalla.html", f"{_NONE_STATED}; cite Cho et al. (2011)"),
        "6,442,890 check-ins of 196,591 users at places",
        ("gowalla", "loc-gowalla"),
        ("loc-gowalla_totalCheckins.txt", "Gowalla_totalCheckins.txt"),
        options={"header": ["user", "time", "latitude", "longitude", "item"]},
    ),
    PublicFiles(
        "kuairand",
        Public("https://kuairand.com", "CC BY-SA 4.0", "What was clicked is an interaction."),
        "clicks on short videos, with times (Pure, 1K or 27K)",
        ("kuairand", "KuaiRand-Pure", "KuaiRand-1K", "KuaiRand-27K"),
        ("log_standard_4_*",),
        options={"columns": {"rating": "is_click"}, "positive": 1},
    ),
    PublicFiles(
        "mind",
        Public("https://msnews.github.io", "Microsoft Research License Terms", "Clicks are interactions."),
        "clicks on news, with titles and times (small or large)",
        ("mind", "MINDsmall_train", "MINDlarge_train"),
        ("behaviors.tsv",),
        "news.tsv",
        ("id", "category", "subcategory", "title", "abstract", "url", "title entities", "abstract entities"),
    ),
    PublicFiles(
        "filmtrust",
        Public("https://guoguibing.github.io/librec/datasets.html", f"{_NONE_STATED}; cite Guo et al. (2013)"),
        "1,508 users' 35,497 ratings of films, without times",
        ("filmtrust", "FilmTrust"),
        ("ratings.txt",),
        options={"header": ["user", "item", "rating"], "repeats": "last"},
    ),
    PublicFiles(
        "citeulike",
        Public("https://github.com/js05212/citeulike-a", f"{_NONE_STATED}; cite Wang et al. (2013)"),
        "5,551 users' 204,986 articles, without times",
        ("citeulike", "citeulike-a", "citeulike-a-master", "citeulike-t"),
        ("users.dat",),
    ),
    PublicFiles(
        "steam",
        Public("https://cseweb.ucsd.edu/~jmcauley/datasets.html", f"{_NONE_STATED}; cite Kang and McAuley (2018)"),
        "7,793,069 reviews of games, with days and titles",
        ("steam",),
        ("steam_reviews.json", "steam_new.json"),
        "steam_games.json",
    ),
    PublicFiles(
        "book-crossing",
        Public(
            "http://www2.informatik.uni-freiburg.de/~cziegler/BX/",
            f"{_NONE_STATED}; cite Ziegler et al. (2005)",
            "A rating of 0 says that a book was had; times are not known.",
        ),
        "1,149,780 ratings of books, without times",
        ("book-crossing", "BX-CSV-Dump"),
        ("BX-Book-Ratings.csv",),
        "BX-Books.csv",
        options={"encoding": "latin-1", "errors": "drop"},
    ),
    PublicFiles(
        "tenrec",
        Public("https://tenrec0.github.io", "Tenrec's licence: research, not commercial", "Clicks are interactions."),
        "clicks on articles (QB-article), in order, without times",
        ("tenrec", "Tenrec"),
        ("QB-article.csv",),
        options={"columns": {"rating": "click"}, "positive": 1},
    ),
    PublicFiles(
        "tafeng",
        Public("https://www.kaggle.com/datasets/chiranjivdas09/ta-feng-grocery-dataset", _NONE_STATED),
        "817,741 purchases of groceries, with days",
        ("tafeng", "ta-feng-grocery-dataset"),
        ("ta_feng_all_months_merged.csv",),
        options={"time": "%m/%d/%Y"},
    ),
)
"""The data sets, in the order in which they are listed."""


def read(
    about: PublicFiles, data_dir: Path, options: files.FileOptions, seed: int, progress: Progress | None
) -> Dataset:
    """Read a data set. Raises `InputError` naming files, public page and licence where it is not there."""
    found, told, paths = find(about, data_dir, options)
    source = {"archive": str(data_dir), "url": about.public.url, "licence": about.public.licence}
    source |= {"sha256": files.digest_of(paths), "notes": about.public.notes}
    return files.build(about.name, found, told, source, progress)


def find(
    about: PublicFiles, data_dir: Path, options: files.FileOptions
) -> tuple[files.FoundColumns, files.FileOptions, list[Path]]:
    """Open the files of a data set; return its tables, all options that they are read by, and the files."""
    said = options.model_dump(exclude_unset=True)
    columns = {**about.options.get("columns", {}), **said.get("columns", {})}
    told = files.FileOptions.model_validate({**about.options, **said, "columns": columns})
    for place in _places(about, data_dir):
        there = {path.name: path for path in files_of(place)}
        for wanted in about.files:
            tables = _called(wanted, there)
            if tables:
                items = next(iter(_called(about.items, there)), None) if about.items else None
                paths = [*tables, *([] if items is None else [items])]
                return files.look_at(tables, items, told, about.listed), told, paths
    names, folders = " or ".join(about.files), ", ".join(about.folders)
    raise about.public.missing(f"{names} is not in {data_dir}, nor in a folder or zip of it called {folders}")


def _places(about: PublicFiles, data_dir: Path) -> Iterator[Path]:
    for place in (data_dir, *(data_dir / f"{name}{end}" for name in about.folders for end in ("", ".zip"))):
        if place.is_dir() or is_folder(place):
            yield place
            yield from (place / inner for inner in ("data", place.stem) if (place / inner).is_dir())


def _called(wanted: str, there: Mapping[str, Path]) -> list[Path]:
    if wanted.endswith("*"):
        return [there[name] for name in sorted(there) if name.startswith(wanted[:-1])]
    return [there[wanted + end] for end in ("", *PACKED) if wanted + end in there][:1]
