"""Public data sets of a few rows, in the files in which they are published, are read by their names."""

import gzip
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefr.data.datasets import load
from edgefr.data.readers.public_files import SETS

Had = dict[str, list[str]]
HAD: Had = {"7": ["12", "11", "13"], "8": ["13", "12"]}
KUAI = "user_id,video_id,date,hourmin,time_ms,is_click,is_like\n"
STEAM = "{{u'username': u'{}', u'product_id': u'{}', u'date': u'{}', u'text': u\"it's\"}}\n"
FILES: dict[str, dict[str, str]] = {
    "yelp": {
        "yelp_academic_dataset_review.json": "".join(
            f'{{"user_id": "{u}", "business_id": "{i}", "stars": 4.0, "date": "2018-07-0{d} 22:09:11"}}\n'
            for u, i, d in (("7", "11", 2), ("7", "12", 1), ("8", "13", 3), ("7", "13", 4), ("8", "12", 5))
        ),
        "yelp_academic_dataset_business.json": "".join(
            f'{{"business_id": "{i}", "name": "Café {i}", "attributes": {{"a": "b"}}, "categories": "Food"}}\n'
            for i in (11, 12, 13)
        ),
    },
    "gowalla": {
        "loc-gowalla_totalCheckins.txt": "".join(
            f"{u}\t2010-10-{d}T23:55:27Z\t30.2\t-97.7\t{i}\n"
            for u, i, d in ((7, 13, 19), (7, 11, 18), (7, 12, 17), (8, 12, 19), (8, 13, 12))
        )
    },
    "kuairand": {
        "log_standard_4_08_to_4_21_pure.csv": KUAI
        + "7,11,20220409,100,1649437200002,1,0\n7,12,20220408,1700,1649437200001,1,0\n"
        + "8,99,20220408,1,1649437200009,0,0\n"
        + "8,13,20220408,1,1649437200001,1,0\n",
        "log_standard_4_22_to_5_08_pure.csv": KUAI
        + "7,13,20220422,1700,1650437200001,1,1\n8,12,20220422,1700,1650437200001,1,0\n",
        "log_random_4_22_to_5_08_pure.csv": KUAI + "7,98,20220422,1700,1650437200001,1,1\n",
    },
    "mind": {
        "behaviors.tsv": "1\t7\t11/13/2019 9:05:58 AM\t11\t13-1 14-0\n2\t7\t11/11/2019 9:05:58 PM\t\t12-1\n"
        "3\t7\t11/12/2019 12:00:01 AM\t12\t11-1\n4\t8\t11/11/2019 1:05:58 AM\t\t13-1\n"
        "5\t8\t11/11/2019 1:05:58 PM\t13\t11-0 12-1\n",
        "news.tsv": "".join(f'{i}\tsports\tgolf\tTitle "{i}" of\tAbstract\thttps://x\t[]\t[]\n' for i in (11, 12, 13)),
    },
    "filmtrust": {"ratings.txt": "7 12 2\n7 11 3.5\n7 13 4\n8 13 1\n8 12 .5\n"},
    "citeulike": {"users.dat": "3 12 11 13\n2 13 12\n"},
    "steam": {
        "steam_reviews.json": "".join(
            STEAM.format(u, i, f"2017-12-{d}")
            for u, i, d in ((7, 13, 19), (7, 11, 18), (7, 12, 17), (8, 12, 19), (8, 13, 12))
        ),
        "steam_games.json": "".join(
            f"{{u'id': u'{i}', u'title': u'Game {i}', u'tags': [u'a']}}\n" for i in (11, 12, 13)
        ),
    },
    "book-crossing": {
        "BX-Book-Ratings.csv": '"User-ID";"ISBN";"Book-Rating"\n'
        + "".join(f'"{u}";"{i}";"0"\n' for u, items in HAD.items() for i in items),
        "BX-Books.csv": '"ISBN";"Book-Title";"Book-Author"\n'
        + "".join(f'"{i}";"Das \\"Café\\" {i}; two";"A"\n' for i in (11, 12, 13)),
    },
    "tenrec": {
        "QB-article.csv": "user_id,item_id,click,follow,like\n"
        + "".join(f"{u},{i},1,0,0\n{u},99,0,0,0\n" for u, items in HAD.items() for i in items)
    },
    "tafeng": {
        "ta_feng_all_months_merged.csv": "TRANSACTION_DT,CUSTOMER_ID,AGE_GROUP,PRODUCT_ID,AMOUNT\n"
        + "".join(
            f"11/{d}/2000,{u},45-49,{i},2\n"
            for u, i, d in ((7, 13, 9), (7, 11, 8), (7, 12, 1), (8, 12, 30), (8, 13, 2))
        )
    },
}
WITHOUT_USERS = {"citeulike": {"0": HAD["7"], "1": HAD["8"]}}
ENCODING = {"book-crossing": "latin-1"}
TITLES = {
    "yelp": "Café 11",
    "mind": 'Title "11" of',
    "steam": "Game 11",
    "book-crossing": 'Das "Café" 11; two',
}


def read(name: str, folder: Path, **options: Any) -> Had:
    """Return which items everybody had, in the order of time."""
    found = load(name, folder, options=options)
    had: Had = {}
    for row in np.lexsort((np.arange(len(found.user)), found.moment)):
        had.setdefault(str(found.users[found.user[row]]), []).append(str(found.catalogue.ids[found.item[row]]))
    return had


@pytest.mark.parametrize("about", SETS, ids=lambda about: str(about.name))
@pytest.mark.parametrize("packed", ["folder", "gz", "zip"])
def test_a_public_data_set_is_read_by_its_name(about: Any, packed: str, tmp_path: Path) -> None:
    name, encoding = about.name, ENCODING.get(about.name, "utf-8")
    folder = tmp_path / about.folders[-1]
    folder.mkdir()
    for file, text in FILES[name].items():
        content = text.encode(encoding)
        if packed == "gz" and "*" not in about.files[0]:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / file).write_bytes(content)
    if packed == "zip":
        with zipfile.ZipFile(tmp_path / f"{folder.name}.zip", "w") as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"{folder.name}/{path.name}")
                path.unlink()
        folder.rmdir()
    assert read(name, tmp_path) == WITHOUT_USERS.get(name, HAD)
    found = load(name, tmp_path)
    assert any(found.catalogue.text) == (name in TITLES)
    assert found.source["url"] == about.public.url
    if name in TITLES:
        at = found.catalogue.ids.tolist().index("11")
        assert found.catalogue.title[at] == TITLES[name]


def test_what_is_said_by_hand_goes_before(tmp_path: Path) -> None:
    (tmp_path / "QB-article.csv").write_text("user_id,item_id,click,like\n7,11,1,0\n7,12,0,1\n7,13,1,1\n")
    assert read("tenrec", tmp_path) == {"7": ["11", "13"]}
    assert read("tenrec", tmp_path, columns={"rating": "like"}) == {"7": ["12", "13"]}
    assert read("tenrec", tmp_path, columns={"item": "like"}) == {"7": ["0", "1"]}
