import hashlib
import re
import zipfile

import numpy as np
import pytest

from edgefr.data.datasets import load, names
from edgefr.data.interactions import k_core
from edgefr.data.readers.public_files import SETS
from privacy.errors import InputError
from privacy.plain_text import plain
from tests.data.tables import archive

GENRES = "unknown|0\nAction|1\nComedy|2\n\n"
FILMS = "1|Toy Story (1995)|01-Jan-1995||http://x|0|1|1\n2|Hôtel du Nord (1938)|||http://y|0|0|1\n3|unknown||||1|0|0\n"
RATINGS = "196\t2\t3\t881250949\n22\t1\t5\t881250000\n196\t3\t1\t881250949\n"
ML_100K = {"u.genre": GENRES, "u.item": FILMS.encode("latin-1"), "u.data": RATINGS}
ML_SMALL = {
    "movies.csv": "movieId,title,genres\r\n"
    '1,"American President, The (1995)",Comedy|Drama\r\n7,X,(no genres listed)\r\n',
    "ratings.csv": "userId,movieId,rating,timestamp\r\n1,7,4.5,964982703\r\n1,1,4.0,964981247\r\n",
}
ML_1M = {
    "movies.dat": "1::Toy Story (1995)::Animation|Children's\n3::Mission: Impossible (1996)::Action\n"
    "2::Hôtel: du :Nord (1938)::Drama\n".encode("latin-1"),
    "ratings.dat": "196::2::3::978300760\n22::1::5::978302109\n196::3::1::978300760\n",
    "users.dat": "196::F::1::10::48067\n22::M::56::16::70072\n",
}
PAIRS = {
    "items.csv": 'item_id,domain,title,attributes\na,arts,Red "paint",arts paint\nb,office,,pens\nc,office,Desk,\n',
    "interactions.csv": "user_id,item_id,domain,position,split\nx,b,office,1,train\nx,a,arts,0,train\ny,b,office,0,t\n",
}


@pytest.mark.parametrize("zipped", [True, False])
def test_ml_100k_layout(tmp_path, zipped):
    archive(tmp_path, "ml-100k", ML_100K, zipped)
    table = load("ml-100k", tmp_path)
    assert table.users.tolist() == ["22", "196"]
    assert table.catalogue.ids.tolist() == ["1", "2", "3"]
    assert table.catalogue.title[1] == "Hôtel du Nord (1938)"
    assert table.catalogue.text == [
        "Action, Comedy. Toy Story (1995)",
        "Comedy. Hôtel du Nord (1938)",
        "unknown",
    ]
    assert list(zip(table.user.tolist(), table.item.tolist(), strict=True)) == [(0, 0), (1, 1), (1, 2)]
    assert table.time.tolist() == [881250000, 881250949, 881250949]
    assert table.clock
    assert "no redistribution" in table.source["licence"]
    if zipped:
        assert table.source["sha256"] == hashlib.sha256((tmp_path / "ml-100k.zip").read_bytes()).hexdigest()


@pytest.mark.parametrize("zipped", [True, False])
def test_ml_1m_layout(tmp_path, zipped):
    archive(tmp_path, "ml-1m", ML_1M, zipped)
    table = load("ml-1m", tmp_path)
    assert table.users.tolist() == ["22", "196"]
    assert table.catalogue.ids.tolist() == ["1", "2", "3"]
    assert table.catalogue.title == ["Toy Story (1995)", "Hôtel: du :Nord (1938)", "Mission: Impossible (1996)"]
    assert table.catalogue.text[0] == "Animation, Children's. Toy Story (1995)"
    assert list(zip(table.user.tolist(), table.item.tolist(), strict=True)) == [(0, 0), (1, 1), (1, 2)]
    assert table.time.tolist() == [978302109, 978300760, 978300760]
    assert table.clock
    assert "no redistribution" in table.source["licence"]


def test_ml_latest_small_layout(tmp_path):
    archive(tmp_path, "ml-latest-small", ML_SMALL)
    table = load("ml-latest-small", tmp_path)
    assert table.catalogue.text == ["Comedy, Drama. American President, The (1995)", "X"]
    assert table.item.tolist() == [0, 1]


def test_amazon_pairs_layout(tmp_path):
    archive(tmp_path, "amazon-arts-office", PAIRS, zipped=False)
    table = load("amazon-arts-office", tmp_path)
    assert table.domains == ("arts", "office")
    assert table.catalogue.text == ['arts paint. Red "paint"', "pens", "Desk"]
    assert table.catalogue.domain.tolist() == [0, 1, 1]
    assert table.item.tolist() == [0, 1, 1]
    assert not table.clock
    assert table.statistics()["time"] is None


@pytest.mark.parametrize("name", [n for n in names() if n != "demo"])
def test_missing_archives_name_file_page_and_licence(name, tmp_path, monkeypatch):
    monkeypatch.delenv("EDGEFR_DATA", raising=False)
    options = {"categories": ["Music"]} if name == "amazon" else {}
    with pytest.raises(InputError, match=r"https?://.*licence: .*--data-dir or EDGEFR_DATA"):
        load(name, options=options)
    other = {
        "amazon": "ratings_Music.csv",
        "lastfm-2k": "hetrec2011-lastfm-2k.zip",
        "hetrec2011": "hetrec2011-movielens-2k-v2.zip",
        "xing": "xing-sessions.parquet",
        "xing-2017": "recsys-challenge-2017.zip",
        "lastfm-1k": "lastfm-dataset-1K.zip",
    }
    own = {about.name: about.files[0].replace("*", r"\*") for about in SETS}
    file = {**other, **own}.get(name, f"{name}.zip")
    monkeypatch.setenv("EDGEFR_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"{file}.*https?://.*licence: .*--data-dir or EDGEFR_DATA"):
        load(name, options=options)


def test_unknown_name():
    with pytest.raises(InputError, match="unknown data set 'ml100k'; did you mean 'ml-100k'"):
        load("ml100k")
    with pytest.raises(InputError, match="option core of data set 'ml-100k': unknown key 'core'"):
        load("ml-100k", options={"core": 5})


NO_ID = "an id is 1 to 64 printable characters"
ARCHIVES: dict[str, dict[str, str | bytes]] = {
    "ml-100k": ML_100K,
    "ml-1m": ML_1M,
    "ml-latest-small": ML_SMALL,
    "amazon-arts-office": PAIRS,
}
HEAD, PAIR, BOTH = "userId,movieId,rating,timestamp\r\n", "amazon-arts-office", PAIRS["interactions.csv"]
LISTED = PAIRS["items.csv"]
FAULTS = [
    ("ml-100k", "u.data", "1\t2\t3\t881\n1\t2\t3\n", "row 2: Expected 4 columns, got 3"),
    ("ml-100k", "u.data", "1\t2\t3\t881\t5\n", "row 1: Expected 4 columns, got 5"),
    ("ml-100k", "u.data", "1\t2\t3\t881\n1\t9\t3\t881\n", "row 2, column item: '9'; an item must be among the listed"),
    ("ml-100k", "u.data", "1\t2\tnan\t881\n", "row 1, column rating: 'nan'; a rating is 0 to 5"),
    ("ml-100k", "u.data", "1\t2\t3\t-881\n", "row 1, column time: '-881'; a time is from 1970 to 9999"),
    ("ml-100k", "u.data", "1\t2\t3\tnow\n", "row 1, column time: 'now'; it is no number of s"),
    ("ml-100k", "u.data", "", "the file is empty"),
    ("ml-100k", "u.data", b"\x00\x01\x02\x03" * 2_000_000, "row 1 holds zero bytes"),
    ("ml-100k", "u.data", RATINGS.encode() + b"7\t" * 9_000_000, "a row is longer than 4,194,304 bytes"),
    ("ml-100k", "u.data", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "row 1: Expected 4 columns, got 1"),
    ("ml-100k", "u.item", FILMS + FILMS, "row 4, column id: '1'; it is listed in row 1 already"),
    ("ml-100k", "u.genre", "Action\nComedy\n", "genres must be numbered"),
    ("ml-1m", "ratings.dat", "1::2::3::9\n1:2::3::9\n", "row 2: Expected 4 columns, got 3"),
    ("ml-1m", "ratings.dat", "1::2::3::9\n1::2:::3::9\n", "row 2, column rating: ':3'; a rating is 0 to 5"),
    ("ml-1m", "ratings.dat", "1\x1f2\x1f5\x1f9\x1f\n", "row 1: Expected 4 columns, got 5"),
    ("ml-1m", "ratings.dat", "1::2::6::9\n", "row 1, column rating: '6'; a rating is 0 to 5"),
    ("ml-1m", "movies.dat", b"1::Toy\n", "row 1: Expected 3 columns, got 2"),
    ("ml-latest-small", "ratings.csv", "userId,movieId,rating\r\n1,7,4\r\n", "row 1: the header must have time"),
    ("ml-latest-small", "ratings.csv", HEAD + "1,7,4,5\r\n1,7,4\r\n", "row 3: Expected 4 columns"),
    ("ml-latest-small", "ratings.csv", HEAD, "it has no rows"),
    ("ml-latest-small", "movies.csv", b"movieId,title,genres\r\n7,X,Y\r\n1,\xff\xfe,Y\r\n", "row 3: it is not UTF-8"),
    ("ml-latest-small", "movies.csv", "movieId,title\r\n7,X\r\n", "row 1: genres is missing from the header"),
    (PAIR, "interactions.csv", BOTH + "x,q,arts,1,t\n", "row 5, column item_id: 'q'; an item must be among"),
    (PAIR, "interactions.csv", BOTH + "x,a,office,1,t\n", "row 5, column domain: 'office'; a domain is that"),
    (PAIR, "interactions.csv", BOTH + "x,a,books,1,t\n", "row 5, column domain: 'books'; a domain is that"),
    (PAIR, "interactions.csv", BOTH + ",a,arts,1,t\n", f"row 5, column user_id: nothing is there; {NO_ID}"),
    (PAIR, "interactions.csv", BOTH + "y" * 65 + ",a,arts,1,t\n", f"row 5, column user_id: 'y*'; {NO_ID}"),
    (PAIR, "interactions.csv", BOTH + "x\x1b[31m,a,arts,1,t\n", r"row 5, column user_id: 'x\?\[31m'"),
    (PAIR, "items.csv", LISTED + "a,arts,Again,\n", "row 5, column item_id: 'a'; it is listed"),
    (PAIR, "items.csv", LISTED + "d,books,B,\n", "row 5, column domain: 'books'; a domain is arts"),
]


@pytest.mark.parametrize(("name", "member", "content", "message"), FAULTS)
def test_damaged_rows_name_file_row_and_public_page(tmp_path, name, member, content, message):
    archive(tmp_path, name, {**ARCHIVES[name], member: content})
    with pytest.raises(InputError, match=rf"{name}\.zip/{name}/{member}:? {message}") as error:
        load(name, tmp_path)
    assert "\n" not in str(error.value)
    assert "data_options" not in str(error.value)
    assert re.search(r"; get a whole copy from https://\S+$", str(error.value))


def test_texts_keep_every_byte_of_iso_8859_1_and_titles_what_can_be_shown(tmp_path):
    """0x80 to 0x9f are control characters there and letters, or nothing, in the code pages of a desktop."""
    title = "".join(map(chr, range(0x80, 0x100)))
    films = f"1|{title}||||0|1|0\n2|A||||0|1|0\n3|B||||0|1|0\n".encode("latin-1")
    archive(tmp_path, "ml-100k", {**ML_100K, "u.item": films})
    found = load("ml-100k", tmp_path).catalogue
    assert found.text[0].endswith(title)
    assert found.title == [plain(title), "A", "B"]
    assert set(map(chr, range(0xA1, 0x100))) - {"\xad"} == set(found.title[0])


@pytest.mark.parametrize("size", [32, 48, 90])
def test_a_row_is_read_and_named_by_its_place_whatever_block_it_is_in(tmp_path, monkeypatch, size):
    """Ids are numbered across blocks."""
    rows = [f"{100 + n % 3}\t{1 + n % 2}\t3\t{881250940 - n}\n" for n in range(6)]
    archive(tmp_path, "ml-100k", {**ML_100K, "u.data": "".join(rows)})
    whole = load("ml-100k", tmp_path)
    monkeypatch.setattr("edgefr.data.files.lines.BLOCK", size)
    cut = load("ml-100k", tmp_path)
    assert (cut.users.tolist(), cut.catalogue.text) == (whole.users.tolist(), whole.catalogue.text)
    for column in ("user", "item", "time", "offsets"):
        assert (getattr(cut, column) == getattr(whole, column)).all()
    for n in range(6):
        wrong = [*rows[:n], rows[n].replace("\t3\t", "\t9\t"), *rows[n + 1 :]]
        archive(tmp_path, "ml-100k", {**ML_100K, "u.data": "".join(wrong)})
        with pytest.raises(InputError, match=rf"u\.data: row {n + 1}, column rating: '9'; a rating is 0 to 5"):
            load("ml-100k", tmp_path)


@pytest.mark.parametrize(("least", "most", "place"), [(0, 5, 2), (0, 253_402_300_799, 3)], ids=["rating", "time"])
def test_the_least_and_the_most_that_a_row_may_hold(tmp_path, least, most, place):
    """Both are taken, one less and one more are refused."""
    for value in (least, most, least - 1, most + 1):
        row = [7, 1, 3, 881250949]
        row[place] = value
        archive(tmp_path, "ml-100k", {**ML_100K, "u.data": "{}\t{}\t{}\t{}\n".format(*row)})
        if least <= value <= most:
            assert load("ml-100k", tmp_path).time.tolist() == [row[3]]
        else:
            with pytest.raises(InputError, match=r"u\.data: row 1, "):
                load("ml-100k", tmp_path)


def test_truncated_zip(tmp_path):
    archive(tmp_path, "ml-100k", ML_100K)
    path = tmp_path / "ml-100k.zip"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        InputError, match=r"ml-100k\.zip: not a whole zip: File is not a zip file; get a whole copy from https://"
    ):
        load("ml-100k", tmp_path)


def test_zip_with_damaged_bytes_inside(tmp_path):
    rows = "".join(f"{u}\t{1 + u % 3}\t3\t{u * 7919 % 100003}\n" for u in range(20_000))
    archive(tmp_path, "ml-100k", {**ML_100K, "u.data": rows})
    path = tmp_path / "ml-100k.zip"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = b"\xaa" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"ml-100k\.zip.*u\.data.*get a whole copy"):
        load("ml-100k", tmp_path)


def test_zip_bomb_is_refused_unread(tmp_path):
    archive(tmp_path, "ml-100k", ML_100K)
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for name in ("u.genre", "u.item"):
            out.writestr(f"ml-100k/{name}", ML_100K[name])
        with out.open("ml-100k/u.data", "w", force_zip64=True) as member:
            for _ in range(80):
                member.write(b"1\t1\t3\t9\n" * (1 << 17))
    with pytest.raises(InputError, match=r"u\.data: it unpacks to more than 67,108,864 bytes"):
        load("ml-100k", tmp_path)


# The real archives


def test_ml_100k(archives):
    table = load("ml-100k", archives)
    found = table.statistics()
    assert (found["users"], found["items"], found["interactions"]) == (943, 1682, 100_000)
    assert found["time"] == [874724710, 893286638]
    assert len(set(table.catalogue.title)) == 1664
    assert table.catalogue.text[0] == "Animation, Children's, Comedy. Toy Story (1995)"
    assert table.source["sha256"] == "4542c8ce12536ea7b949150735b1c26d9f31b1456380a49de054d06d704d25e3"


def test_ml_latest_small(archives):
    found = load("ml-latest-small", archives).statistics()
    assert (found["users"], found["items"], found["listed_items"]) == (610, 9724, 9742)
    assert found["interactions"] == 100_836
    assert found["time"] == [828124615, 1537799250]


def test_ml_1m(archives):
    if not (archives / "ml-1m.zip").is_file():
        pytest.skip(f"ml-1m.zip is not in {archives}")
    table = load("ml-1m", archives)
    assert (len(table.users), len(table.item)) == (6040, 1_000_209)  # FedCAR's Table 1, which prints 100,000,209
    assert table.catalogue.ids.astype(int).max() == 3952  # what it prints as the number of items


def test_amazon_video(archives):
    files = ("amazon-video.zip", "ratings_Amazon_Instant_Video.csv", "amazon/ratings_Amazon_Instant_Video.csv")
    if not any((archives / file).is_file() for file in files):
        pytest.skip(f"the ratings of Amazon Instant Video are not in {archives}")
    table = load("amazon-video", archives, options={"user_core": 5})
    # FedCAR's Table 1, which exchanges users and items
    assert (len(table.users), len(table.catalogue), len(table.item)) == (8072, 11_830, 63_836)


def test_ten_core_of_movielens_is_as_published(archives):
    for name, users, items, interactions in (
        ("ml-100k", 943, 1152, 97_953),
        ("ml-latest-small", 609, 2269, 81_109),
    ):
        table = load(name, archives)
        keep = k_core(table.user, table.item, 10, 10)
        left = (len(np.unique(table.user[keep])), len(np.unique(table.item[keep])), int(keep.sum()))
        assert left == (users, items, interactions)


def test_amazon_arts_office(archives):
    found = load("amazon-arts-office", archives).statistics()
    assert (found["users"], found["interactions"], found["listed_items"]) == (9577, 208_541, 38_396)
    assert found["users_in_several_domains"] == 9577
    assert found["repeated_pairs"] == 1880
    assert found["domains"]["arts"] == {"users": 9577, "items": 18_639, "interactions": 110_877}
    assert found["domains"]["office"] == {"users": 9577, "items": 15_780, "interactions": 97_664}


def test_amazon_movie_book(archives):
    table = load("amazon-movie-book", archives)
    found = table.statistics()
    assert (found["users"], found["interactions"], found["listed_items"]) == (20_502, 269_443, 39_883)
    assert found["users_in_several_domains"] == 8317
    assert found["domains"]["movie"]["items"] == 12_875
    assert found["domains"]["book"]["items"] == 27_008
    titled = np.array([bool(t) for t in table.catalogue.title])
    assert titled[table.catalogue.domain == 0].all()
    assert titled[table.catalogue.domain == 1].sum() == 6327


def test_a_path_to_a_public_archive_is_that_data_set(tmp_path):
    archive(tmp_path, "ml-100k", ML_100K)
    found, path = load("ml-100k", tmp_path), tmp_path / "ml-100k.zip"
    for again in (load(str(path)), load("ml-100k", path)):
        assert (again.name, again.source["sha256"]) == ("ml-100k", found.source["sha256"])
        assert again.item.tolist() == found.item.tolist()
