"""Amazon's tables of ratings alone stand in two orders: those of 2014 begin with user, item, those of 2018 item, user.

They have no header. Columns are told apart by the form of Amazon's ids, else by the layout of the file's name; where
only half of the ids fit, the file is refused. The data set's notes have the decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgefr.data.readers.archive import Archive, Numbering, Wanted, check_ids, check_times, read_table, refuse
from privacy.errors import unknown

if TYPE_CHECKING:
    import pyarrow as pa

Order = Literal["auto", "user,item", "item,user"]
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]

_ASIN = "^(B[0-9A-Z]{9}|[0-9]{9}[0-9X])$"
"""What an item's id looks like at Amazon: ten signs that start with B, or the ISBN of a book."""
_DRESSED = r"""^[\s"']|[\s"']$"""
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

    @property
    def said(self) -> str:
        """Return the line that the notes have of it."""
        return f"columns taken as {','.join(self.columns)} ({self.why})"


def read_ratings(
    archive: Archive, member: str, order: Order, users: Numbering, items: Numbering
) -> tuple[Columns, Layout]:
    """Return (user, item, time) of a table of ratings, and how it was read. Raises `InputError` naming file and row."""
    layout = _layout(archive, member, order)
    wanted: Wanted = {name: "str" if name in ("user", "item") else "float" for name in layout.columns}
    wanted["time"] = "int"
    parts = []
    table = read_table(archive, member, wanted, header=False, every_column=layout.columns, skip=int(layout.header))
    for line, block in table:
        for what in ("user", "item"):
            check_ids(archive, member, line, block.column(what), f"{what} id")
            _check_bare(archive, member, line, block.column(what), f"{what} id")
        stars = block.column("rating").to_numpy()
        refuse(archive, member, line, ~((stars >= 0) & (stars <= 5)), block.column("rating"), "a rating is 0 to 5")
        time = check_times(archive, member, line, block.column("time"))
        parts.append((users.add(block.column("user")), items.add(block.column("item")), time))
    if not parts:
        raise archive.fault(member, None, "it has no rows")
    user, item, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (user, item, times), layout


def _check_bare(archive: Archive, member: str, line: int, column: pa.Array, what: str) -> None:
    """Refuse ids that stand in quotes or beside spaces, naming the line: these look like none of Amazon's ids."""
    import pyarrow.compute as pc

    odd = pc.match_substring_regex(column, _DRESSED).to_numpy(zero_copy_only=False)
    rule = f"{what} must have no quote or space at an end (write the table without quotes)"
    refuse(archive, member, line, odd, column, rule)


def _layout(archive: Archive, member: str, order: Order) -> Layout:
    """Return how a table is laid out: as told, as its header says, or by the form of its ids."""
    header = _header(archive, member)
    if header:
        columns = _by_header(archive, member, header)
        if order not in ("auto", ",".join(name for name in columns if name in ("user", "item"))):
            raise archive.fault(member, 1, f"its header has another order than data_options.order={order}; drop that")
        return Layout(columns, True, "its header says so")
    if order != "auto":
        return _ordered(order, "data_options.order")
    first, second = _shares(archive, member)
    if max(first, second) >= _MOST and min(first, second) <= _FEW:
        return _ordered("item,user" if first > second else "user,item", "told by the look of Amazon's item ids")
    if max(first, second) > _FEW:
        raise archive.fault(
            member,
            None,
            f"{first:.0%} of its first column and {second:.0%} of its second look like Amazon's item ids, so users and "
            "items cannot be told apart; say data_options.order=user,item or item,user",
        )
    of_2014 = member.rpartition("/")[2].startswith("ratings_")
    why = f"the layout of {2014 if of_2014 else 2018}, which has files of this name; its ids are not Amazon's"
    return _ordered("user,item" if of_2014 else "item,user", why)


def _ordered(order: str, why: str) -> Layout:
    return Layout((*order.split(","), "rating", "time"), False, why)


def _header(archive: Archive, member: str) -> list[str]:
    with archive.open(member) as file, archive.faults(member):
        line = file.readline(_LONGEST_HEADER).decode("utf-8-sig", "replace")
    cells = [cell.strip().strip('"').lower() for cell in line.rstrip("\r\n").split(",")]
    known = {name for names in _NAMED.values() for name in names}
    return cells if any(cell in known for cell in cells) else []


def _by_header(archive: Archive, member: str, header: Sequence[str]) -> tuple[str, ...]:
    roles = [next((role for role, names in _NAMED.items() if cell in names), "") for cell in header]
    if sorted(roles) != sorted(_NAMED):
        raise archive.fault(member, 1, "a header must name user, item, rating and timestamp, once each and no more")
    return tuple(roles)


def _shares(archive: Archive, member: str) -> tuple[float, float]:
    """Return the shares of Amazon's item ids in the first and second column, in the first block."""
    import pyarrow.compute as pc

    names = ("first", "second", "rating", "time")
    table = read_table(archive, member, {"first": "str", "second": "str"}, header=False, every_column=names)
    for _, block in table:
        return _share(pc, block.column("first")), _share(pc, block.column("second"))
    return 0.0, 0.0


def _share(pc, column: pa.Array) -> float:
    return float(pc.mean(pc.match_substring_regex(column, _ASIN)).as_py() or 0.0)


def notes(layouts: Iterable[tuple[str, Layout]]) -> str:
    return "; ".join(f"{member}: {layout.said}" for member, layout in layouts)
