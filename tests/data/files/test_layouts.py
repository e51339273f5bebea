"""Public data sets are laid out in many ways: files of a few rows in each of them are read, or refused with a way on.

A layout is a line of a table: the file's name, its header (None: it has none), how a row is written, and the options
that it needs. The rows are the same in all, so who had what in which order is the same too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefr.data.datasets import load
from privacy.errors import InputError

HAD = {"11": ["101", "102", "103", "104"], "12": ["102", "105", "101"], "13": ["103", "104", "106", "101", "102"]}
START, DAY = 1_593_898_000, 86_400
ROWS = [
    (user, item, START + DAY * (number + 3 * place) + 37 * place)
    for number, (user, items) in enumerate(HAD.items())
    for place, item in enumerate(items)
]
SHUFFLED = [ROWS[place] for place in (5, 0, 8, 3, 1, 10, 2, 7, 4, 11, 6, 9)]


@dataclass(frozen=True)
class Layout:
    """A file is laid out so. `inside`: times are in it, so its rows come in any order."""

    name: str
    header: str | None
    row: str
    options: dict[str, Any] = field(default_factory=dict)
    inside: bool = True
    encoding: str = "utf-8"

    def write(self, folder: Path) -> str:
        """Write the file; return its path."""
        head = [] if self.header is None else [self.header]
        rows = [self._row(*row) for row in (SHUFFLED if self.inside else ROWS)]
        (folder / self.name).write_text("\n".join([*head, *rows]) + "\n", self.encoding)
        return str(folder / self.name)

    def _row(self, user: str, item: str, time: int) -> str:
        moment = datetime.fromtimestamp(time, UTC)
        values = {
            "u": user,
            "i": item,
            "r": 3 + int(item) % 3,
            "t": time,
            "ms": 1000 * time + 7,
            "clock": 1000 * (time % DAY),
        }
        out = self.row
        for name, value in values.items():
            out = out.replace(f"<{name}>", str(value))
        return moment.strftime(out.replace("%%", "%")) if "%" in out else out


def named(*names: str) -> dict[str, Any]:
    return {"header": list(names)}


USUAL = named("user", "item", "rating", "time")
LONG = "%a %b %d %H:%M:%S +0000 %Y"
RIGHT = {
    "MovieLens 100k": Layout("u.data", None, "<u>\t<i>\t<r>\t<t>", USUAL),
    "MovieLens 1M": Layout("ratings.dat", None, "<u>::<i>::<r>::<t>", USUAL),
    "MovieLens 20M": Layout("ratings.csv", "userId,movieId,rating,timestamp", "<u>,<i>,<r>.0,<t>"),
    "MovieTweetings": Layout("ratings.dat", None, "<u>::<i>::<r>::<t>", USUAL),
    "Amazon 2014, ratings": Layout("ratings_Books.csv", None, "<u>,<i>,<r>.0,<t>", USUAL),
    "Amazon 2014, reviews": Layout(
        "reviews_Books_5.json",
        None,
        '{"reviewerID": "<u>", "asin": "<i>", "helpful": [2, 3], "reviewText": "so, \\"x\\"", "overall": <r>.0, '
        '"unixReviewTime": <t>, "reviewTime": "09 13, 2009"}',
    ),
    "Amazon 2023, reviews": Layout(
        "Books.jsonl",
        None,
        '{"rating": <r>.0, "title": "t", "images": [], "asin": "v<i>", "parent_asin": "<i>", "user_id": "<u>", '
        '"timestamp": <ms>, "verified_purchase": true}',
    ),
    "Amazon 2023, ratings": Layout("Books.csv", "user_id,parent_asin,rating,timestamp", "<u>,<i>,<r>.0,<ms>"),
    "Yelp": Layout(
        "yelp_academic_dataset_review.json",
        None,
        '{"review_id": "r", "user_id": "<u>", "business_id": "<i>", "stars": <r>.0, "text": "a\\nb", '
        '"date": "%Y-%m-%d %H:%M:%S"}',
    ),
    "Gowalla": Layout(
        "Gowalla_totalCheckins.txt",
        None,
        "<u>\t%Y-%m-%dT%H:%M:%SZ\t30.23\t-97.79\t<i>",
        named("user", "time", "latitude", "longitude", "item"),
    ),
    "Foursquare": Layout(
        "dataset_TSMC2014_NYC.txt",
        None,
        f"<u>\t<i>\t4bf5\tCafé\t40.7\t-74.0\t-240\t{LONG}",
        {**named("user", "item", "category", "name", "latitude", "longitude", "zone", "time"), "time": LONG}
        | {"encoding": "latin-1"},
        encoding="latin-1",
    ),
    "Last.fm 1k": Layout(
        "userid-timestamp-artid-artname-traid-traname.tsv",
        None,
        '<u>\t%Y-%m-%dT%H:%M:%SZ\ta\t"Weird Al" <i>\t<i>\t"Heroes',
        {**named("user", "time", "artistid", "artist", "trackid", "track"), "columns": {"item": "trackid"}},
    ),
    "Last.fm 360k": Layout(
        "usersha1-artmbid-artname-plays.tsv",
        None,
        '<u>\t<i>\t"<i>\t<r>',
        {**named("user", "item", "name", "plays"), "columns": {"rating": "plays"}},
        inside=False,
    ),
    "HetRec Last.fm": Layout("user_taggedartists.dat", "userID\tartistID\ttagID\ttimestamp", "<u>\t<i>\t13\t<ms>"),
    "Book-Crossing": Layout("BX-Book-Ratings.csv", '"User-ID";"ISBN";"Book-Rating"', '"<u>";"<i>";"<r>"', inside=False),
    "Anime": Layout("rating.csv", "user_id,anime_id,rating", "<u>,<i>,<r>", inside=False),
    "Steam 200k": Layout(
        "steam-200k.csv",
        None,
        '<u>,"<i>",purchase,1.0,0',
        {**named("user", "game", "behaviour", "hours", "zero"), "columns": {"item": "game"}},
        inside=False,
    ),
    "Steam reviews": Layout(
        "steam_reviews.json",
        None,
        "{u'username': u'<u>', u'product_id': u'<i>', u'date': u'%Y-%m-%d', u'text': u\"it's\", u'found_funny': None}",
    ),
    "BeerAdvocate": Layout(
        "beeradvocate.json",
        None,
        "{'beer/name': 'B', 'beer/beerId': '<i>', 'review/time': '<t>', 'review/profileName': '<u>'}",
    ),
    "Goodreads": Layout(
        "goodreads_interactions.json",
        None,
        f'{{"user_id": "<u>", "book_id": "<i>", "rating": <r>, "date_added": "{LONG}", "read_at": ""}}',
        {"time": LONG},
    ),
    "goodbooks-10k": Layout("ratings.csv", "user_id,book_id,rating", "<u>,<i>,<r>", inside=False),
    "KuaiRec": Layout(
        "small_matrix.csv", "user_id,video_id,play_duration,time,timestamp,watch_ratio", "<u>,<i>,5,%F %T.2,<t>.273,1.2"
    ),
    "KuaiRand": Layout(
        "log_standard.csv", "user_id,video_id,date,hourmin,time_ms,is_click", "<u>,<i>,%Y%m%d,%H%M,<ms>,1"
    ),
    "KuaiRand without milliseconds": Layout(
        "log_standard.csv", "user_id,video_id,date,hourmin,is_click", "<u>,<i>,%Y%m%d,%H%M,1"
    ),
    "Diginetica": Layout(
        "train-item-views.csv", "session_id;user_id;item_id;timeframe;eventdate", "1;<u>;<i>;<clock>;%Y-%m-%d"
    ),
    "a day and a time": Layout("log.csv", "user,item,date,time", "<u>,<i>,%Y-%m-%d,%H:%M:%S"),
    "a day and an hour": Layout("log.csv", "user,item,hour,day", "<u>,<i>,%H,%Y-%m-%d", inside=False),
    "RetailRocket": Layout("events.csv", "timestamp,visitorid,event,itemid,transactionid", "<ms>,<u>,view,<i>,"),
    "YooChoose": Layout(
        "yoochoose-clicks.dat", None, "<u>,%Y-%m-%dT%H:%M:%S.573Z,<i>,0", named("user", "time", "item", "category")
    ),
    "Taobao": Layout(
        "UserBehavior.csv", None, "<u>,<i>,25,pv,<t>", named("user", "item", "category", "behaviour", "time")
    ),
    "Tmall": Layout("user_log.csv", "user_id,item_id,cat_id,seller_id,time_stamp", "<u>,<i>,833,28,%m%d"),
    "Tenrec": Layout("QB-article.csv", "user_id,item_id,click,share,like", "<u>,<i>,1,0,0", inside=False),
    "TaFeng": Layout(
        "ta_feng.csv", "TRANSACTION_DT,CUSTOMER_ID,PRODUCT_ID,AMOUNT", "%m/%d/%Y,<u>,<i>,2", {"time": "%m/%d/%Y"}
    ),
    "Dunnhumby": Layout(
        "transaction_data.csv",
        "household_key,BASKET_ID,DAY,PRODUCT_ID,QUANTITY",
        "<u>,26,%j,<i>,1",
        {"columns": {"user": "household_key", "time": "DAY"}},
    ),
    "H&M": Layout("transactions_train.csv", "t_dat,customer_id,article_id,price", "%Y-%m-%d,<u>,<i>,0.05"),
    "Online Retail": Layout(
        "OnlineRetail.csv",
        "InvoiceNo,StockCode,Description,InvoiceDate,CustomerID",
        '5363,<i>,WHITE "HANGING" HEART,%m/%d/%Y %H:%M,<u>',
        {"time": "%m/%d/%Y %H:%M"},
    ),
    "Epinions": Layout("ratings_data.txt", None, "<u> <i> <r>", named("user", "item", "rating"), inside=False),
    "FilmTrust": Layout("ratings.txt", None, "<u> <i> <r>.5", named("user", "item", "rating"), inside=False),
    "Ciao": Layout(
        "rating_with_timestamp.txt",
        None,
        "<u>::<i>::1::<r>::4::<t>",
        named("user", "item", "category", "rating", "helpful", "time"),
    ),
    "RecBole": Layout("x.inter", "user_id:token\titem_id:token\ttimestamp:float", "<u>\t<i>\t<t>.5"),
    "Netflix": Layout("combined_data_1.txt", None, "<i>:\n<u>,4,%Y-%m-%d"),
    "MIND": Layout("behaviors.tsv", None, "7\t<u>\t%m/%d/%Y %I:%M:%S %p\tN1 N2\tN3-0 <i>-1 N4-0"),
    "ModCloth": Layout("modcloth.json", None, '{"item_id": "<i>", "size": 7, "user_id": "<u>"}', inside=False),
    "Twitch": Layout(
        "100k_a.csv",
        None,
        "<u>,7,<i>,<t>,<t>",
        {**named("user", "stream", "streamer", "start", "stop"), "columns": {"item": "streamer", "time": "start"}},
    ),
    "MicroLens": Layout("MicroLens-50k_pairs.csv", "user,item,timestamp", "<u>,<i>,<ms>"),
    "XING 2016": Layout("interactions.csv", "user_id\titem_id\tinteraction_type\tcreated_at", "<u>\t<i>\t1\t<t>"),
    "a spreadsheet's": Layout(
        "de.csv",
        "user;item;rating;time",
        "<u>;<i>;<r>,5;%d.%m.%Y %H:%M:%S",
        {"time": "%d.%m.%Y %H:%M:%S", "decimal": ","},
    ),
    "a spreadsheet's UTF-16": Layout(
        "x.csv", "user\titem\trating\ttime", "<u>\t<i>\t<r>\t<t>", {"encoding": "utf-16"}, encoding="utf-16"
    ),
    "a byte order mark and spaces": Layout(
        "w.csv", "\ufeffUser ID, Item ID, Rating, Timestamp", "<u>, <i>, <r>, <t>\r"
    ),
    "a data frame's index": Layout("p.csv", ",user_id,item_id,rating,timestamp", "0,<u>,<i>,<r>,<t>"),
}
REFUSED = {
    "Goodreads, no pattern": (
        Layout("g.json", None, f'{{"user_id": "<u>", "book_id": "<i>", "date_added": "{LONG}"}}'),
        "name its pattern by data_options.time",
    ),
    "Epinions, no header": (Layout("ratings_data.txt", None, "<u> <i> <r>"), "name all by data_options.header"),
    "decimal commas": (Layout("d.csv", "user;item;rating", "<u>;<i>;<r>,5"), "set data_options.decimal=,"),
    "latin-1": (Layout("l.csv", "user,item", "<u>,Café <i>", encoding="latin-1"), "data_options.encoding"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_layout_is_read_right(name: str, tmp_path: Path) -> None:
    layout = RIGHT[name]
    found = load(layout.write(tmp_path), options=layout.options)
    had: dict[str, list[str]] = {}
    for row in np.lexsort((np.arange(len(found.user)), found.moment)):
        had.setdefault(str(found.users[found.user[row]]), []).append(str(found.catalogue.ids[found.item[row]]))
    assert had == HAD


@pytest.mark.parametrize("name", REFUSED)
def test_a_layout_that_is_not_read_is_refused_with_a_way_on(name: str, tmp_path: Path) -> None:
    layout, words = REFUSED[name]
    with pytest.raises(InputError) as refused:
        load(layout.write(tmp_path), options=layout.options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lists_by_user_in_one_object_are_read(tmp_path: Path) -> None:
    path = tmp_path / "all_data.json"
    path.write_text(
        '{"users": ["11", "12"], "num_samples": [2, 1], "user_data": {"11": {"x": [102, 101], "y": [4, 3.5], '
        '"timestamp": [9, 8]}, "12": {"x": [101], "y": [5], "timestamp": [1]}}}'
    )
    found = load(str(path))
    rows = zip(found.users[found.user], found.catalogue.ids[found.item], found.moment.tolist(), strict=True)
    assert sorted(rows) == [("11", "101", 8), ("11", "102", 9), ("12", "101", 1)]
    path.write_text('{"users": ["11"], "user_data": {"11": {"x": [[1, 2]], "y": [4]}}}')
    with pytest.raises(InputError, match="an example has to be one item"):
        load(str(path))


def test_histories_are_not_taken_for_interactions(tmp_path: Path) -> None:
    path = tmp_path / "x.inter"
    path.write_text("user_id:token\titem_id_list:token_seq\titem_id:token\n1\t5 6 7\t8\n")
    with pytest.raises(InputError, match=r"its rows are histories \(column item_id_list\)"):
        load(str(path))


@pytest.mark.parametrize("rows", ["1 2 3\n4 5\n", "1:\n7,3,2005-09-06\n"])
def test_one_long_value_among_many_takes_no_memory(rows: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(rows * 40_000 + "9" * 2_000_000 + " 1\n")
    with pytest.raises(InputError, match=r"an id is 1 to 64|a line is user,rating,date"):
        load(str(path))


def test_a_running_number_beside_a_day_is_the_finer_one(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "user,item,timestamp,date\n1,5,1234569,2019-01-01\n1,6,1234568,2019-01-01\n1,7,1234567,2019-01-01\n"
    )
    found = load(str(path))
    assert found.catalogue.ids[found.item].tolist() == ["7", "6", "5"]
