"""This finds columns by the names they usually have.

Owns: usual names of users, items, ratings and so on. Does not own: the columns' values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from edgefr.data.files.options import LEFT, Columns
from privacy.errors import InputError, unknown

_USUAL = {
    "user": "userid user uid username reviewerid reviewer customerid customer custid memberid member visitorid visitor "
    "accountid account profileid profile personid person clientid client buyerid buyer shopperid listenerid "
    "listener readerid reader viewerid playerid raterid subscriberid userno usernumber usr profilename "
    "reviewprofilename",
    "item": "itemid item iid productid product parentasin asin sku movieid movie filmid film showid trackid track "
    "songid song albumid artistid artist bookid book isbn articleid article newsid news videoid video gameid game "
    "appid businessid business poiid poi venueid restaurantid recipeid recipe courseid course jobid job postingid adid "
    "animeid anime beerid contentid content documentid hotelid listingid offerid goodid goods itemno "
    "itemnumber stockcode restaurant hotel streamer beerbeerid mid",
    "rating": "rating ratings score stars star overall reviewrating reviewscore preference rate grade bookrating "
    "reviewoverall",
    "time": "timestamp timems time utctimestamp unixreviewtime unixtime unixtimestamp datetime date ts createdat "
    "created eventtime eventtimestamp ratingtimestamp ratingtime ratedat reviewtime reviewdate orderdate purchasedate "
    "invoicedate transactiondt transactiondate eventdate playedat watchedat listenedat viewedat tdat dateadded "
    "day when",
    "clock": "timeofday hourmin hhmm hour hours hourofday orderhourofday timeframe milliseconds clock",
    "session": "sessionid session sessid visitid",
    "split": "split partition subset",
    "block": "block blockid blockno",
    "domain": "domain domainid",
}
USUAL: Mapping[str, Sequence[str]] = {role: names.split() for role, names in _USUAL.items()}
"""The usual names of every column, lower case and without signs, the first before the second."""

_TEXTS = {
    "category": "categories category genres genre class classes maincategory tags topic subject",
    "title": "title name itemname itemtitle movietitle movie producttitle productname product tracktitle trackname "
    "track songtitle songname song artistname booktitle book gamename headline",
    "description": "description desc abstract overview summary plot text body details review",
}
TEXTS: Mapping[str, Sequence[str]] = {kind: names.split() for kind, names in _TEXTS.items()}
"""The usual names of columns of texts, most telling first."""


def plain(name: str) -> str:
    """Return a name in lower case without spaces and signs.

    >>> plain(" User ID ")
    'userid'
    """
    return re.sub(r"[\W_]+", "", name).casefold()


def find(role: str, told: str | None, there: Sequence[str], where: str) -> str | None:
    """Return the column of a role, or None; `told` is the name from the options.

    Raises `InputError` if that is missing.

    >>> find("user", None, ["Customer ID", "asin"], "ratings.csv")
    'Customer ID'
    """
    if told == LEFT:
        return None
    if told is not None:
        return named(told, there, f"column of {where} (data_options.columns.{role})")
    return next(iter(usual(role, there)), None)


def usual(role: str, there: Sequence[str]) -> list[str]:
    """Return the columns that have a usual name of a role, the most telling first.

    >>> usual("time", ["date", "user_id", "time_ms"])
    ['time_ms', 'date']
    """
    by_name = {plain(name): name for name in reversed(there)}
    return [by_name[name] for name in USUAL[role] if name in by_name]


def named(told: str, there: Sequence[str], what: str) -> str:
    """Return the column of exactly this name, or else of this name but for case and spaces around it."""
    if told in there:
        return told
    near = [name for name in there if name.strip().casefold() == told.strip().casefold()]
    if len(near) != 1:
        raise unknown(what, told, shown(there))
    return near[0]


def interactions(columns: Columns, there: Sequence[str], where: str) -> dict[str, str]:
    """Return the column of every role that the table has. Raises `InputError` where user or item is not found."""
    found = {role: find(role, getattr(columns, role), there, where) for role in USUAL}
    found["clock"] = None if columns.clock is None else found["clock"]  # `clocks` looks for it beside a day
    for role in ("user", "item"):
        if found[role] is None:
            raise InputError(
                f"{where}: no column has a usual name of the {role}; say which by data_options.columns.{role}=NAME "
                f"(it has: {', '.join(shown(there))}), or name all by data_options.header if it has no header"
            )
    out = {role: name for role, name in found.items() if name is not None}
    for role, name in out.items():
        twin = next(other for other, same in out.items() if same == name)
        if twin != role:
            raise InputError(f"{where}: column '{name}' cannot be both {twin} and {role}; name another for one of them")
        if there.count(name) > 1:
            raise InputError(f"{where}: row 1, column {name}: the header has it {there.count(name)} times; rename one")
    return out


def listed(told: str | None, item: str, there: Sequence[str], where: str) -> str:
    """Return the column of items' ids in a file of items; `item` is its name in the interactions."""
    if told is not None:
        return named(told, there, f"column of {where} (data_options.columns.listed)")
    same = [name for name in there if plain(name) == plain(item)]
    by_name = {plain(name): name for name in reversed(there)}
    usual = [by_name[name] for name in (*USUAL["item"], "id") if name in by_name]
    if not same + usual:
        raise InputError(
            f"{where}: no column has a usual name of the item's id; say which by data_options.columns.listed=NAME (it "
            f"has: {', '.join(shown(there))})"
        )
    return (same + usual)[0]


def texts(told: Sequence[str] | None, there: Sequence[str], where: str, taken: Collection[str]) -> list[str]:
    """Return the columns of texts, most telling first; those in `taken` are something else."""
    if told is not None:
        return [named(name, there, f"column of {where} (data_options.texts)") for name in told]
    by_name = {plain(name): name for name in reversed(there) if name not in taken}
    found = (next((by_name[name] for name in usual if name in by_name), None) for usual in TEXTS.values())
    return [name for name in found if name is not None]


def title(columns: Sequence[str]) -> str | None:
    return next((name for name in columns if plain(name) in TEXTS["title"]), columns[0] if columns else None)


def shown(there: Sequence[str], most: int = 20) -> list[str]:
    """Return names of columns that can be shown on one line."""
    cut = ["".join(c if c.isprintable() else "?" for c in name[:40]) for name in there[:most]]
    return cut + (["..."] if len(there) > most else [])
