import gzip
import itertools
import json
import re

import pytest

from edgefr.data.datasets import load
from privacy.errors import InputError
from tests.data.tables import archive

CORE = {"user_core": 1, "item_core": 1}


def meta(rows, python=False):
    write = repr if python else json.dumps
    return gzip.compress("".join(write(row) + "\n" for row in rows).encode())


@pytest.fixture
def folder(tmp_path):
    """Music as ratings with new-style metadata, Books as reviews with the older Python-literal metadata."""
    (tmp_path / "reviews").mkdir()
    (tmp_path / "ratings_Music.csv").write_text("A1,M1,5.0,1300000000\nA2,M2,1.0,1200000000\nA1,M2,3.0,1100000000\n")
    (tmp_path / "meta_Music.json.gz").write_bytes(
        meta(
            [
                {
                    "asin": "M1",
                    "title": "Kind &amp; Blue",
                    "category": ["CDs", "Jazz"],
                    "description": ["<b>Modal</b>", "jazz."],
                },
                {"asin": "M9", "title": "nobody rated this"},
            ]
        )
    )
    reviews = [
        {
            "reviewerID": "A2",
            "asin": "B1",
            "overall": 4.0,
            "unixReviewTime": 1400000000,
            "reviewText": "good",
        },
        {"reviewerID": "A3", "asin": "B1", "unixReviewTime": 1400000001},
    ]
    (tmp_path / "reviews" / "reviews_Books_5.json.gz").write_bytes(meta(reviews))
    (tmp_path / "meta_Books.json.gz").write_bytes(
        meta(
            [{"asin": "B1", "title": "It's here", "categories": [["Books", "Sea"]], "price": 1.5}],
            python=True,
        )
    )
    return tmp_path


def test_official_layout(folder):
    table = load("amazon", folder, options={"categories": ["Music", "Books"], **CORE})
    assert table.domains == ("Music", "Books")
    assert table.users.tolist() == ["A1", "A2", "A3"]
    assert table.catalogue.ids.tolist() == ["B1", "M1", "M2"]
    assert table.catalogue.domain.tolist() == [1, 0, 0]
    assert table.catalogue.text == ["Books, Sea. It's here", "CDs, Jazz. Kind & Blue. Modal jazz.", ""]
    assert table.item.tolist() == [2, 1, 2, 0, 0]
    assert table.time.tolist() == [1100000000, 1300000000, 1200000000, 1400000000, 1400000001]
    assert table.clock
    assert len(table.source["sha256"]) == 64


def test_a_folder_called_amazon_is_found_too(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("data")
    folder.rename(outside / "amazon")
    assert len(load("amazon", outside, options={"categories": ["Music"], **CORE}).item) == 3


def test_cores_drop_thin_users_and_items_within_a_category(folder):
    table = load("amazon", folder, options={"categories": ["Music", "Books"], "user_core": 1, "item_core": 2})
    assert table.catalogue.ids.tolist() == ["B1", "M2"]
    assert table.users.tolist() == ["A1", "A2", "A3"]
    with pytest.raises(InputError, match="no user and item of Music has 20 and 30 interactions; lower user_core"):
        load("amazon", folder, options={"categories": ["Music"]})


GOOD = b'{"reviewerID": "A", "asin": "B1", "unixReviewTime": 5}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json\n", "row 2 is not a JSON object"),
        (b'{"reviewerID": "A", "asin": "B1"}\n', "row 2, column unixReviewTime: nothing is there"),
        (b'{"reviewerID": "", "asin": "B1", "unixReviewTime": 5}\n', "row 2, column reviewerID: ''; an id is 1 to 64"),
        (b'{"reviewerID": "A", "asin": "B1", "unixReviewTime": -5}\n', "row 2, column unixReviewTime: '-5'"),
        (b'{"reviewerID": "A", "asin": "B1", "unixReviewTime": true}\n', "row 2"),
        (b"[" * 100_000 + b"\n", "row 2 is not a JSON object"),
        (b"x" * (1 << 22) + b"\n", "row 2: Invalid value"),
    ],
)
def test_damaged_reviews_name_file_and_line(folder, line, message):
    (folder / "reviews" / "reviews_Books_5.json.gz").write_bytes(gzip.compress(GOOD + line))
    with pytest.raises(InputError, match=f"reviews_Books_5.json.gz:? {message}"):
        load("amazon", folder, options={"categories": ["Books"], **CORE})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{'title': 'no asin'}\n", "line 1: not an item with an asin"),
        (b"{'asin': 'B1', 'title': open('x')}\n", "line 1: neither JSON nor a Python dict of plain values"),
        (b"{'asin': 'B1', 'title': " + b"(" * 5000 + b"}\n", "line 1: neither JSON nor a Python dict"),
        (b"['asin': 'B1']\n", "line 1: neither JSON nor a Python dict"),
        (b"{'asin': 'B1', 'title': {[]: 1}}\n", "line 1: neither JSON nor a Python dict of plain values"),
        (b"{'asin': 'B1', 'title': {{}}}\n", "line 1: neither JSON nor a Python dict of plain values"),
        *(
            (b'{"asin": "B1", "%s": %s}\n' % (field, b"[" * 900 + b"]" * 900), "line 1: lists in lists, more than 16")
            for field in (b"title", b"description", b"category")
        ),
    ],
)
def test_damaged_metadata_names_file_and_line(folder, line, message):
    (folder / "meta_Books.json.gz").write_bytes(gzip.compress(line))
    with pytest.raises(InputError, match=f"meta_Books.json.gz: {message}"):
        load("amazon", folder, options={"categories": ["Books"], **CORE})


USERS = ["A1KLRMWW2FWPL4", "A2L0G56BNOTX6S", "#oc-R103C0QSV1DF5E", "AAEVOFSN0B00X"]
ITEMS = ["B000GQG5MA", "0132793040", "B00I3MPDP4", "030758836X", "B0001"]
RATED = [(user, item, 1_300_000_000 + 7 * n) for n, (user, item) in enumerate(itertools.product(USERS, ITEMS[:4]))]


def rated(order, header=""):
    """Return a table of ratings alone with its columns in that order."""
    named = ({"user": user, "item": item, "when": when} for user, item, when in RATED)
    lines = [",".join([*(row[name] for name in order.split(",")), "4.0", str(row["when"])]) for row in named]
    return "\n".join([*([header] if header else []), *lines]) + "\n"


@pytest.mark.parametrize("order", ["user,item", "item,user"])
@pytest.mark.parametrize("file", ["ratings_Digital_Music.csv", "Digital_Music.csv", "ratings_Digital_Music.csv.gz"])
def test_users_and_items_never_change_places(tmp_path, order, file):
    """Whatever the file is called and whichever column comes first; and the notes say what was taken."""
    content = rated(order).encode()
    (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
    table = load("amazon-digital-music", tmp_path)
    assert table.name == "amazon-digital-music"
    found = [
        (table.users[u], table.catalogue.ids[i], t) for u, i, t in zip(table.user, table.item, table.time, strict=True)
    ]
    assert sorted(found) == sorted(RATED)
    assert f"columns taken as {order},rating,time (told by the look of Amazon's item ids)" in table.source["notes"]


@pytest.mark.parametrize("header", ["item,user,rating,timestamp", "asin,reviewerID,overall,unixReviewTime"])
def test_a_header_says_which_column_is_which(tmp_path, header):
    (tmp_path / "Digital_Music.csv").write_text(rated("item,user", header))
    table = load("amazon-digital-music", tmp_path)
    assert (sorted(table.users), len(table.item)) == (sorted(USERS), len(RATED))
    assert "its header says so" in table.source["notes"]
    (tmp_path / "Digital_Music.csv").write_text(rated("item,user", header) + "B000GQG5MA,A1,9,5\n")
    with pytest.raises(InputError, match=r"row 18, column (rating|overall): '9'; a rating is 0 to 5"):
        load("amazon-digital-music", tmp_path)


def test_an_order_that_is_not_the_files_or_that_nothing_reads_is_refused(tmp_path, folder):
    (tmp_path / "Digital_Music.csv").write_text(rated("item,user", "item,user,rating,timestamp"))
    assert len(load("amazon-digital-music", tmp_path, options={"order": "item,user"}).item) == len(RATED)
    with pytest.raises(InputError, match=r"row 1: its header has another order than data_options\.order=user,item"):
        load("amazon-digital-music", tmp_path, options={"order": "user,item"})
    with pytest.raises(InputError, match=r"reviews_Books_5\.json\.gz has named fields, so nothing reads data_options"):
        load("amazon-books", folder, options={"order": "user,item"})


def test_ids_that_are_not_amazons_are_taken_as_files_of_that_name_have_them_and_it_is_said(tmp_path):
    (tmp_path / "ratings_Digital_Music.csv").write_text("u1,i1,5,9\nu1,i2,5,10\n")
    table = load("amazon-digital-music", tmp_path)
    assert table.users.tolist() == ["u1"]
    assert "user,item,rating,time (the layout of 2014, which has files of this name" in table.source["notes"]
    (tmp_path / "ratings_Digital_Music.csv").rename(tmp_path / "Digital_Music.csv")
    table = load("amazon-digital-music", tmp_path)
    assert table.catalogue.ids.tolist() == ["u1"]
    assert "item,user,rating,time (the layout of 2018" in table.source["notes"]
    assert load("amazon-digital-music", tmp_path, options={"order": "user,item"}).users.tolist() == ["u1"]


def test_columns_that_cannot_be_told_apart_are_refused(tmp_path):
    (tmp_path / "Digital_Music.csv").write_text("B000GQG5MA,B000GQG5MB,5,9\nB000GQG5MC,A1KLRMWW2FWPL4,5,10\n")
    with pytest.raises(
        InputError, match=r"100% of its first column and 50% of its second .* say data_options\.order="
    ) as error:
        load("amazon-digital-music", tmp_path)
    assert "\n" not in str(error.value)
    assert len(load("amazon-digital-music", tmp_path, options={"order": "item,user"}).users) == 2
    (tmp_path / "Digital_Music.csv").write_text("user,user,rating,timestamp\na,b,5,9\n")
    with pytest.raises(InputError, match=r"row 1: a header must name user, item, rating and timestamp"):
        load("amazon-digital-music", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"B000GQG5MA,A1KLRMWW2FWPL4,5\n", "row 1: Expected 4 columns, got 3"),
        (b"B000GQG5MA,A1KLRMWW2FWPL4,5,1500000000000\n", "row 1, column time: .*; a time is from 1970"),
        (b"B000GQG5MA,,5,15\n", "row 1, column user: nothing is there"),
        (b"\xff\xfe\x00B000GQG5MA,A1KLRMWW2FWPL4,5,15\n", "it is UTF-16"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40, "row 1"),
        (b"a" * (9 << 20), "row 1: field larger than"),
    ],
)
def test_hostile_tables_of_ratings_are_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "Digital_Music.csv").write_bytes(content)
    with pytest.raises(InputError, match=f"Digital_Music.csv: {message}") as error:
        load("amazon-digital-music", tmp_path)
    assert "data_options.errors" not in str(error.value), "an option that this reader does not have"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("header", ["", '"user","item","rating","timestamp"'])
@pytest.mark.parametrize("quote", ['"', "'", " "])
@pytest.mark.parametrize("file", ["ratings_Digital_Music.csv", "Digital_Music.csv"])
def test_a_quote_around_ids_hides_nothing_from_what_tells_the_columns_apart(tmp_path, file, quote, header):
    lines = rated("user,item", header).splitlines()
    quoted = [re.sub(r"^([^,\"]+),([^,\"]+)", rf"{quote}\1{quote},{quote}\2{quote}", line) for line in lines]
    (tmp_path / file).write_text("\n".join(quoted) + "\n")
    table = load("amazon-digital-music", tmp_path)
    assert {user.strip("'") for user in table.users} == set(USERS)
    assert {item.strip("'") for item in table.catalogue.ids} == set(ITEMS[:4])


def test_two_tables_of_one_name_are_refused(tmp_path):
    """In a zip of its own and in a folder: the last would have won."""
    table = "ratings_Digital_Music.csv"
    archive(tmp_path, "amazon-digital-music", {f"a/{table}": rated("user,item"), f"b/{table}": "u,i,5,1\n"})
    named = rf"{table} is there twice, as a/{table} and b/{table}; keep one"
    with pytest.raises(InputError, match=named):
        load("amazon-digital-music", tmp_path)
    (tmp_path / "amazon-digital-music.zip").unlink()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / table).write_text(rated("user,item"))
        (tmp_path / folder / "README.csv").write_text("of no category, so twice is as well")
    with pytest.raises(InputError, match=named):
        load("amazon-digital-music", tmp_path)
    (tmp_path / "b" / table).unlink()
    assert len(load("amazon-digital-music", tmp_path).item) == len(RATED)


def test_a_category_is_named_like_its_file(tmp_path):
    with pytest.raises(
        InputError, match="unknown category of Amazon as a data set 'amazon-vidoe'; did you mean 'amazon-video'"
    ):
        load("amazon-vidoe", tmp_path)
    with pytest.raises(
        InputError, match=r"amazon-video.zip is not there, nor ratings_Amazon_Instant_Video.csv \(2014\)"
    ):
        load("amazon-video", tmp_path)
    archive(tmp_path, "amazon-video", {"ratings_Amazon_Instant_Video.csv": rated("user,item")})
    table = load("amazon-video", tmp_path, options={"user_core": 2})
    assert (table.name, len(table.users)) == ("amazon-video", 4)
    assert not any(table.catalogue.text)


def test_an_archive_of_another_layout_is_read_or_said_to_be_there(tmp_path):
    table = rated("user,item")
    archive(tmp_path, "amazon-video", {"video.csv": table})
    assert len(load("amazon-video", tmp_path).item) == len(RATED)
    (tmp_path / "amazon-video.zip").unlink()
    archive(tmp_path, "amazon-video", {"video.csv": table}, zipped=False)
    assert len(load("amazon-video", tmp_path).item) == len(RATED)
    (tmp_path / "amazon-video" / "other.csv").write_text(table)
    there = (
        r"amazon-video is there, but has no ratings_Amazon_Instant_Video.csv \(2014\).*; it has: other.csv, video.csv"
    )
    with pytest.raises(InputError, match=there):
        load("amazon-video", tmp_path)
    with pytest.raises(InputError, match=r"amazon-baby\.zip is not there"):
        load("amazon-baby", tmp_path)


def test_what_is_missing_is_named(folder):
    with pytest.raises(
        InputError, match=r"has no ratings_Toys.csv \(or reviews_Toys.json.gz\).*; get it from https://"
    ):
        load("amazon", folder, options={"categories": ["Toys"], **CORE})
    with pytest.raises(InputError, match="option categories of data set 'amazon': is missing; add it"):
        load("amazon", folder)


def test_ratings_without_metadata_are_a_data_set_without_texts(folder):
    options = {"categories": ["Books"], **CORE}
    with_texts = load("amazon", folder, options=options)
    assert any(with_texts.catalogue.text)
    (folder / "meta_Books.json.gz").unlink()
    without = load("amazon", folder, options=options)
    assert (without.user.tolist(), without.item.tolist()) == (with_texts.user.tolist(), with_texts.item.tolist())
    assert not any(without.catalogue.text)


def test_titles_and_texts_have_nothing_that_no_file_takes_or_a_terminal_acts_on(folder):
    title = b'{"asin": "B1", "title": "\\u001b]0;a\\u0007 b\\ud800\\u0000\\tc", "description": "d\\udfff\\ne"}\n'
    (folder / "meta_Books.json.gz").write_bytes(gzip.compress(title))
    catalogue = load("amazon", folder, options={"categories": ["Books"], **CORE}).catalogue
    place = catalogue.ids.tolist().index("B1")
    assert (catalogue.title[place], catalogue.text[place]) == ("]0;a b c", "]0;a b c. d e")
