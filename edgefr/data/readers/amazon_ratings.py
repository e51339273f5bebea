"""Amazon's tables of ratings alone stand in two orders: those of 2014 begin with user, item, those of 2018 item, user.

Most have no header. Columns are told apart by the form of Amazon's ids, else by the layout of the file's name; where
only half of the ids fit, the file is refused. The data set's notes have the decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgefr.data.files.arrow import pa, pc
from edgefr.data.files.delimited import CSV
from edgefr.data.files.options import FileOptions
from edgefr.data.files.rows import Published, Rows
from edgefr.data.files.streams import stream
from edgefr.data.readers.archive import interactions
from privacy.errors import InputError, unknown

Order = Literal["auto", "user,item", "item,user"]

_ASIN = r"""^[\s"']*(B[0-9A-Z]{9}|[0-9]{9}[0-9X])[\s"']*$"""
"""What an item's id looks like at Amazon: ten signs that start with B, or the ISBN of a book."""
_MOST, _FEW = 0.9, 0.1
_LONGEST_HEADER = 1 << 12  # bytes
_NAMED = {
    "user": ("user", "user_id", "userid", "reviewerid", "reviewer_id"),
    "item": ("item", "item_id", "itemid", "asin", "parent_asin", "productid", "product_id"),
    "rating": ("rating", "overall", "stars"),
    "time": ("timestamp", "time", "unixreviewtime"),
}

_CATEGORIES = (  # of 2014 and of 2018, as their files are called
    "AMAZON_FASHION All_Beauty Amazon_Instant_Video Appliances Apps_for_Android Arts_Crafts_and_Sewing Automotive Baby "
    "Beauty Books CDs_and_Vinyl Cell_Phones_and_Accessories Clothing_Shoes_and_Jewelry Digital_Music Electronics "
    "Gift_Cards Grocery_and_Gourmet_Food Health_and_Personal_Care Home_and_Kitchen Industrial_and_Scientific "
    "Kindle_Store Luxury_Beauty Magazine_Subscriptions Movies_and_TV Musical_Instruments Office_Products "
    "Patio_Lawn_and_Garden Pet_Supplies Prime_Pantry Software Sports_and_Outdoors Tools_and_Home_Improvement "
    "Toys_and_Games Video_Games"
)
_SHORT = {"amazon-video": "Amazon_Instant_Video", "amazon-fashion": "AMAZON_FASHION"}
"""Names of categories that the rule below does not give: FedCAR's Amazon-Video, and one that repeats the shop's."""

NAMES = _SHORT | {f"amazon-{name.lower().replace('_', '-')}": name for name in _CATEGORIES.split()}
"""Every category by its name as a data set."""


def category_of(name: str) -> str:
    """Return the category of a data set's name, as files have it. Raises `InputError` for one that Amazon has not.

    >>> category_of("amazon-digital-music"), category_of("amazon-video")
    ('Digital_Music', 'Amazon_Instant_Video')
    """
    if name.lower() not in NAMES:
        raise unknown("category of Amazon as a data set", name, NAMES)
    return NAMES[name.lower()]


def files_of(category: str) -> list[str]:
    return [f"{start}{category}.csv{end}" for start in ("ratings_", "") for end in ("", ".gz")]


@dataclass(frozen=True)
class Layout:
    """This is the order of a table's columns, whether it has a header, and why that order was taken."""

    columns: tuple[str, ...]
    header: bool
    why: str


def read_ratings(path: Path, order: Order) -> tuple[Rows, Layout]:
    """Return the rows of a table of ratings, and how it was read. Raises `InputError` naming file and row."""
    layout = _layout(path, order)
    table = CSV.open(path, FileOptions(separator=",", header=None if layout.header else list(layout.columns)))
    return interactions(
        table, dict(zip(layout.columns, table.columns, strict=True)), "s", Published(stars=True)
    ), layout


def _layout(path: Path, order: Order) -> Layout:
    """Return how a table is laid out: as told, as its header says, or by the form of its ids."""
    header = _header(path)
    if header:
        roles = [next((role for role, names in _NAMED.items() if cell in names), "") for cell in header]
        if sorted(roles) != sorted(_NAMED):
            raise InputError(f"{path}: row 1: a header must name user, item, rating and timestamp, and no more")
        if order not in ("auto", ",".join(name for name in roles if name in ("user", "item"))):
            raise InputError(f"{path}: row 1: its header has another order than data_options.order={order}; drop that")
        return Layout(tuple(roles), True, "its header says so")
    if order != "auto":
        return _ordered(order, "data_options.order")
    first, second = _shares(path)
    if max(first, second) >= _MOST and min(first, second) <= _FEW:
        return _ordered("item,user" if first > second else "user,item", "told by the look of Amazon's item ids")
    if max(first, second) > _FEW:
        raise InputError(
            f"{path}: {first:.0%} of its first column and {second:.0%} of its second look like Amazon's item ids, so "
            "users and items cannot be distinguished; say data_options.order=user,item or item,user"
        )
    of_2014 = path.name.startswith("ratings_")
    why = f"the layout of {2014 if of_2014 else 2018}, which has files of this name; its ids are not Amazon's"
    return _ordered("user,item" if of_2014 else "item,user", why)


def _ordered(order: str, why: str) -> Layout:
    return Layout((*order.split(","), "rating", "time"), False, why)


def _header(path: Path) -> list[str]:
    with stream(path) as file:
        line = file.readline(_LONGEST_HEADER).decode("utf-8-sig", "replace")
    cells = [cell.strip().strip('"').lower() for cell in line.rstrip("\r\n").split(",")]
    known = {name for names in _NAMED.values() for name in names}
    return cells if any(cell in known for cell in cells) else []


def _shares(path: Path) -> tuple[float, float]:
    """Return the shares of Amazon's item ids in the first and second column, in the first block."""
    table = CSV.open(path, FileOptions(separator=",", header=["first", "second", "rating", "time"]))
    with closing(table.read(["first", "second"])) as blocks:
        _, block = next(blocks)
    return _share(block["first"]), _share(block["second"])


def _share(column: pa.Array) -> float:
    return float(pc.mean(pc.match_substring_regex(column, _ASIN)).as_py() or 0.0)


def notes(layouts: Iterable[tuple[str, Layout]]) -> str:
    """Return what the data set's notes say of each table."""
    return "; ".join(f"{member}: columns taken as {','.join(of.columns)} ({of.why})" for member, of in layouts)
