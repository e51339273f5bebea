import hashlib
import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.data.datasets import load, names
from edgefr.data.interactions import k_core
from edgefr.data.readers import archive as blockwise
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


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("ratings.dat", "1::2::3::9\n1::2::3\n", r"ratings\.dat line 2: Expected 4 columns, got 3"),
        ("ratings.dat", "1::2::3::9\n1:2::3::9\n", r"ratings\.dat line 2: Expected 4 columns, got 3"),
        ("ratings.dat", "1::2::3::9\n1::2:::3::9\n", r"ratings\.dat line 2: .*invalid value ':3'"),
        ("ratings.dat", "1::2::3::9\n1::9::3::9\n", r"ratings\.dat line 2: an item must be among the listed films"),
        ("ratings.dat", "1::2::6::9\n", r"ratings\.dat line 1: a rating is 0 to 5"),
        ("ratings.dat", "1::2::5::-9\n", r"ratings\.dat line 1: a time must be unix seconds"),
        ("ratings.dat", "1\x1f2\x1f5\x1f9\x1f\n", r"ratings\.dat line 1: Expected 4 columns, got 5"),
        ("ratings.dat", b"\x00::" * 3_000_000, r"ratings\.dat.*"),
        ("movies.dat", b"1::Toy\n", r"movies\.dat line 1: Expected 3 columns, got 2"),
        ("movies.dat", ML_1M["movies.dat"] * 2, r"movies\.dat line 4: a film id must not repeat, not '1'"),
    ],
)
def test_damaged_rows_of_ml_1m(tmp_path, member, content, message):
    archive(tmp_path, "ml-1m", {**ML_1M, member: content})
    with pytest.raises(InputError, match=rf"ml-1m\.zip: {message}") as error:
        load("ml-1m", tmp_path)
    assert "\n" not in str(error.value)


@given(st.lists(st.sampled_from([b":", b"::", b":::", b"a", b"bc", b"\n"]), max_size=60), st.integers(1, 9))
def test_a_separator_of_two_signs_is_found_wherever_pieces_end(parts, size):
    """The literal rule is that of bytes.replace on the whole file."""
    whole = b"".join(parts)
    cut, out = blockwise._Cut(io.BytesIO(whole), b"::"), []
    while True:
        buffer = bytearray(size)
        got = cut.readinto(buffer)
        if not got:
            break
        out.append(bytes(buffer[:got]))
    assert b"".join(out) == whole.replace(b"::", b"\x1f")


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
    with pytest.raises(InputError, match="unknown option of data set 'ml-100k' 'core'"):
        load("ml-100k", options={"core": 5})


FAULTS = [
    ("u.data", "1\t2\t3\t881\n1\t2\t3\n", r"u\.data line 2: Expected 4 columns, got 3"),
    ("u.data", "1\t2\t3\t881\t5\n", r"u\.data line 1: Expected 4 columns, got 5"),
    ("u.data", "1\t2\t3\t881\n1\tx\t3\t881\n", r"u\.data line 2: .*invalid value 'x'"),
    (
        "u.data",
        "1\t2\t3\t881\n-4\t2\t3\t881\n",
        r"u\.data line 2: user id must be a whole number from 0.*'-4'",
    ),
    ("u.data", "1\t99999999999\t3\t881\n", r"u\.data line 1: item id must be a whole number.*'99999999999'"),
    (
        "u.data",
        "1\t2\t3\t881\n1\t9\t3\t881\n",
        r"u\.data line 2: an item must be among the listed films, not '9'",
    ),
    ("u.data", "1\t2\tnan\t881\n", r"u\.data line 1: a rating is 0 to 5"),
    ("u.data", "1\t2\t3\t-881\n", r"u\.data line 1: a time must be unix seconds, not '-881'"),
    ("u.data", "", r"u\.data: Empty CSV file"),
    ("u.data", b"\x00\x01\x02\x03" * 2_000_000, r"u\.data line 1: Expected 4 columns, got 1: \?\?\?"),
    ("u.data", RATINGS.encode() + b"7\t" * 9_000_000, r"u\.data: a row is longer than .*not a table of text"),
    ("u.data", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, r"u\.data line \d+: "),
    ("u.item", FILMS + FILMS, r"u\.item line 4: a film id must not repeat, not '1'"),
    ("u.genre", "Action\nComedy\n", r"u\.genre line 1: genres must be numbered"),
]


@pytest.mark.parametrize(("member", "content", "message"), FAULTS)
def test_damaged_rows_name_file_and_line(tmp_path, member, content, message):
    archive(tmp_path, "ml-100k", {**ML_100K, member: content})
    with pytest.raises(InputError, match=rf"ml-100k\.zip: {message}") as error:
        load("ml-100k", tmp_path)
    assert "\n" not in str(error.value)
    assert "get a whole copy from https://grouplens.org" in str(error.value)


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        (
            "ratings.csv",
            "userId,movieId,rating\r\n1,7,4\r\n",
            r"line 1: Column 'timestamp' is missing from the header",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating,timestamp\r\n1,7,4,5\r\n1,7,4\r\n",
            "line 3: Expected 4 columns",
        ),
        (
            "ratings.csv",
            "userId,movieId,rating,timestamp\r\n1,7,4,5\r\n1,-7,4,5\r\n",
            "line 3: movieId must be",
        ),
        ("ratings.csv", "userId,movieId,rating,timestamp\r\n", "it has no rows"),
        ("movies.csv", b"movieId,title,genres\r\n7,X,Y\r\n1,\xff\xfe,Y\r\n", "line 3: .*invalid UTF8"),
    ],
)
def test_damaged_rows_below_a_header(tmp_path, member, content, message):
    archive(tmp_path, "ml-latest-small", {**ML_SMALL, member: content})
    with pytest.raises(InputError, match=rf"ml-latest-small\.zip: {member}.*{message}"):
        load("ml-latest-small", tmp_path)


@pytest.mark.parametrize(
    ("member", "row", "message"),
    [
        ("interactions.csv", "x,q,arts,1,train\n", "line 5: item_id must be listed in items.csv, not 'q'"),
        (
            "interactions.csv",
            "x,a,office,1,train\n",
            "line 5: domain must be that of items.csv, not 'office'",
        ),
        ("interactions.csv", "x,a,books,1,train\n", "line 5: domain must be arts or office, not 'books'"),
        (
            "interactions.csv",
            ",a,arts,1,train\n",
            "line 5: user_id must be 1 to 64 printable characters, not ''",
        ),
        (
            "interactions.csv",
            "y" * 65 + ",a,arts,1,train\n",
            "line 5: user_id must be 1 to 64 printable characters, not 'yyy",
        ),
        ("interactions.csv", "x\x1b[31m,a,arts,1,train\n", r"line 5: user_id must be .*, not 'x\?\[31m'"),
        ("items.csv", "a,arts,Again,\n", "line 5: item_id must not repeat, not 'a'"),
    ],
)
def test_rows_that_contradict_each_other(tmp_path, member, row, message):
    archive(tmp_path, "amazon-arts-office", {**PAIRS, member: PAIRS[member] + row})
    with pytest.raises(InputError, match=f"{member} {message}"):
        load("amazon-arts-office", tmp_path)


def test_texts_keep_every_byte_of_iso_8859_1_and_titles_what_can_be_shown(tmp_path):
    """0x80 to 0x9f are control characters there and letters, or nothing, in the code pages of a desktop."""
    title = "".join(map(chr, range(0x80, 0x100)))
    films = f"1|{title}||||0|1|0\n2|A||||0|1|0\n3|B||||0|1|0\n".encode("latin-1")
    archive(tmp_path, "ml-100k", {**ML_100K, "u.item": films})
    found = load("ml-100k", tmp_path).catalogue
    assert found.text[0].endswith(title)
    assert found.title == [plain(title), "A", "B"]
    assert set(map(chr, range(0xA1, 0x100))) - {"\xad"} == set(found.title[0])


RATED = "".join(f"{100 + n % 3}\t{1 + n % 2}\t3\t{881250940 - n}\n" for n in range(6))
SMALL_FILES = {
    "ml-100k": ({"u.genre": GENRES, "u.item": FILMS.encode("latin-1")}, "u.data", "", RATED),
    "ml-latest-small": (
        {"movies.csv": "movieId,title,genres\n1,A,X\n2,B,Y\n"},
        "ratings.csv",
        "userId,movieId,rating,timestamp\n",
        RATED.replace("\t", ","),
    ),
}


@pytest.mark.parametrize("name", SMALL_FILES)
@pytest.mark.parametrize("size", [90, 120])
def test_blocks_of_a_few_rows_are_read_as_one_block_is(tmp_path, monkeypatch, name, size):
    """Ids are numbered across blocks, and a wrong row is named by its line in the file."""
    others, member, head, ratings = SMALL_FILES[name]
    archive(tmp_path, name, {**others, member: head + ratings})
    whole = load(name, tmp_path)
    monkeypatch.setattr(blockwise, "_BLOCK", size)
    cut = load(name, tmp_path)
    assert cut.users.tolist() == whole.users.tolist()
    assert (cut.catalogue.ids.tolist(), cut.catalogue.text) == (whole.catalogue.ids.tolist(), whole.catalogue.text)
    for column in ("user", "item", "time", "offsets"):
        assert (getattr(cut, column) == getattr(whole, column)).all()


@pytest.mark.parametrize("name", SMALL_FILES)
@pytest.mark.parametrize("size", [32, 48])
def test_a_wrong_row_is_named_by_its_line_whatever_block_it_is_in(tmp_path, monkeypatch, name, size):
    others, member, head, ratings = SMALL_FILES[name]
    rows = ratings.splitlines(keepends=True)  # of 18 bytes each
    monkeypatch.setattr(blockwise, "_BLOCK", size)
    for n, row in enumerate(rows):
        wrong = [*rows[:n], row[:5] + row[5:].replace("3", "9", 1), *rows[n + 1 :]]
        folder = tmp_path / str(n)
        folder.mkdir()
        archive(folder, name, {**others, member: head + "".join(wrong)})
        line = len(head.splitlines()) + n + 1
        with pytest.raises(InputError, match=rf"{member} line {line}: a rating is 0 to 5, not '9\.0'"):
            load(name, folder)


def read_row(folder, row, film=1):
    films = f"{film}|A||||0|1|0\n"
    archive(folder, "ml-100k", {**ML_100K, "u.item": films, "u.data": "{}\t{}\t{}\t{}\n".format(*row)})
    return load("ml-100k", folder)


@pytest.mark.parametrize(
    ("least", "most", "place"),
    [(0, 2**31 - 1, 0), (0, 2**31 - 1, 1), (0, 5, 2), (0, 253_402_300_799, 3)],
    ids=["user", "item", "rating", "time"],
)
def test_the_least_and_the_most_that_a_row_may_hold(tmp_path, least, most, place):
    """Both are taken, one less and one more are refused."""
    for n, value in enumerate((least, most, least - 1, most + 1)):
        row, folder = [7, 1, 3, 881250949], tmp_path / str(n)
        row[place] = value
        folder.mkdir()
        if least <= value <= most:
            table = read_row(folder, row, row[1])
            assert (table.users.tolist(), table.catalogue.ids.tolist()) == ([str(row[0])], [str(row[1])])
            assert table.time.tolist() == [row[3]]
        else:
            with pytest.raises(InputError, match=r"u\.(data|item) line 1: "):
                read_row(folder, row, row[1])


def test_an_id_of_64_characters_is_the_longest(tmp_path):
    name = "y" * 64
    archive(
        tmp_path,
        "amazon-arts-office",
        {**PAIRS, "interactions.csv": PAIRS["interactions.csv"] + f"{name},a,arts,9,t\n"},
    )
    assert load("amazon-arts-office", tmp_path).users.tolist() == ["x", "y", name]


def test_truncated_zip(tmp_path):
    archive(tmp_path, "ml-100k", ML_100K)
    path = tmp_path / "ml-100k.zip"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match=r"ml-100k\.zip is not a whole zip file .* fresh copy from https://"):
        load("ml-100k", tmp_path)


def test_zip_with_damaged_bytes_inside(tmp_path):
    rows = "".join(f"{u}\t{1 + u % 3}\t3\t{u * 7919 % 100003}\n" for u in range(20_000))
    archive(tmp_path, "ml-100k", {**ML_100K, "u.data": rows})
    path = tmp_path / "ml-100k.zip"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = b"\xaa" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"ml-100k\.zip: u\.data"):
        load("ml-100k", tmp_path)


def test_zip_without_a_member(tmp_path):
    archive(tmp_path, "ml-100k", {k: v for k, v in ML_100K.items() if k != "u.item"})
    with pytest.raises(InputError, match=r"ml-100k\.zip has no u\.item; get a whole copy"):
        load("ml-100k", tmp_path)


def test_zip_bomb_is_refused_unread(tmp_path):
    archive(tmp_path, "ml-100k", ML_100K)
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for name in ("u.genre", "u.item"):
            out.writestr(f"ml-100k/{name}", ML_100K[name])
        with out.open("ml-100k/u.data", "w", force_zip64=True) as member:
            for _ in range(80):
                member.write(b"\n" * (1 << 20))
    with pytest.raises(InputError, match=r"u\.data claims to unpack to 83,886,080 bytes from"):
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
