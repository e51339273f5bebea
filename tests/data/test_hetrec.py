import dataclasses
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgefr.data.datasets import load
from edgefr.data.interactions import Catalogue, Dataset, k_core
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.blocks import Blocks
from edgefr.data.splits.leave_one_out import LeaveOneOut
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet.spec import load_fleet
from edgefr.simulation.runs.keeper import owner
from privacy.errors import InputError
from tests.data.tables import archive

LASTFM, MOVIELENS = "hetrec2011-lastfm-2k", "hetrec2011-movielens-2k-v2"
TAGS = (
    "userID\tartistID\ttagID\ttimestamp\r\n"
    "2\t52\t13\t1238536800000\r\n2\t52\t15\t1238536800000\r\n2\t52\t13\t1241128800999\r\n"
    "9\t51\t1\t-428720400000\r\n9\t7777\t1\t1241128800000\r\n"
)
ARTISTS = (
    "id\tname\turl\tpictureURL\r\n"
    '51\tSigur Rós\thttp://x\thttp://y\r\n52\t"Weird Al" Yankovic\thttp://x\t\r\n53\tMúm\thttp://x\r\n'
)
RATINGS = (
    "userID\tmovieID\trating\ttimestamp\n"
    "75\t3\t1\t1162160236000\n75\t32\t4.5\t1162160624000\n78\t3\t0.5\t1162160236000\n"
)
MOVIES = "id\ttitle\timdbID\tyear\n32\tTwelve Monkeys\t01\t1995\n3\tHôtel du Nord\t02\t1938\n".encode("latin-1")
TWO_FILES = {"user_taggedartists-timestamps.dat": TAGS, "artists.dat": ARTISTS}


@pytest.mark.parametrize("zipped", [True, False])
def test_lastfm_layout(tmp_path, zipped):
    archive(tmp_path, LASTFM, TWO_FILES, zipped)
    table = load("lastfm-2k", tmp_path)
    assert table.users.tolist() == ["2", "9"]
    # the listed artists first; 7777 is tagged but not listed; 53 is listed and never tagged, so nobody's candidate
    assert table.catalogue.ids.tolist() == ["51", "52", "7777"]
    assert table.catalogue.title == ["Sigur Rós", '"Weird Al" Yankovic', ""]
    assert table.catalogue.text == table.catalogue.title
    assert table.domains == ("artists",)
    # every tag is a row; milliseconds become seconds; a time before 1970 is kept
    assert list(zip(table.user.tolist(), table.item.tolist(), table.time.tolist(), strict=True)) == [
        (0, 1, 1238536800),
        (0, 1, 1238536800),
        (0, 1, 1241128800),
        (1, 0, -428720400),
        (1, 2, 1241128800),
    ]
    assert table.clock
    assert "non-commercial" in table.source["licence"]


def test_two_tags_at_one_time_are_one_interaction_of_a_block(tmp_path):
    archive(tmp_path, LASTFM, TWO_FILES)
    stream = Blocks(min_interactions=1, increments=1).restrict(load("lastfm-2k", tmp_path))
    who, what = stream.users[stream.user].tolist(), stream.catalogue.ids[stream.item].tolist()
    assert list(zip(who, what, strict=True)) == [("2", "52"), ("2", "52"), ("9", "51"), ("9", "7777")]


def near_duplicates(seed: int) -> tuple[str, list[tuple[int, int, int]]]:
    """Return a table of tags, and its (user, artist, ms): many of one user and artist within a second, some at once."""
    draw = np.random.default_rng(seed)
    user, artist = (30 * draw.random(900) ** 2).astype(int), (25 * draw.random(900) ** 2).astype(int)
    ms = 1_238_536_800_000 + draw.choice([0, 0, 1, 999, 1000, 7000], 900)
    rows = list(zip(user.tolist(), artist.tolist(), ms.tolist(), strict=True))
    tags = [f"{user}\t{artist}\t{number}\t{ms}" for number, (user, artist, ms) in enumerate(rows)]
    return "userID\tartistID\ttagID\ttimestamp\r\n" + "".join(f"{line}\r\n" for line in tags), rows


def literal_core(records: list[tuple[int, int, int]], users: int, items: int) -> list[tuple[int, int, int]]:
    """Return what is left when thin users and items are dropped, again and again."""
    while True:
        by_user, by_item = Counter(user for user, _, _ in records), Counter(item for _, item, _ in records)
        left = [row for row in records if by_user[row[0]] >= users and by_item[row[1]] >= items]
        if len(left) == len(records):
            return left
        records = left


def counts(records: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    return len({user for user, _, _ in records}), len({item for _, item, _ in records}), len(records)


def found(table: Dataset) -> tuple[int, int, int]:
    return len(np.unique(table.user)), len(np.unique(table.item)), len(table.item)


def test_records_of_one_second_that_differ_in_milliseconds_are_not_one_record(tmp_path):
    """F3CRec counts distinct (user, artist, time), FedCAR every record; both by its own way and by the options."""
    tags, rows = near_duplicates(0)
    archive(tmp_path, LASTFM, {"user_taggedartists-timestamps.dat": tags})
    table = load("lastfm-2k", tmp_path)
    assert found(table) == counts(rows)
    distinct = literal_core(sorted(set(rows)), 14, 14)
    assert 0 < len(distinct) < len(set(rows)) < len(rows)
    assert len({(user, artist, ms // 1000) for user, artist, ms in rows}) < len(set(rows))
    stream = Blocks(min_interactions=14).restrict(table)
    assert found(stream) == counts(distinct)
    core = {"user_core": 14, "item_core": 14}
    assert found(load("lastfm-2k", tmp_path, options={"records": "distinct", **core})) == counts(distinct)
    many = literal_core(rows, 20, 1)  # FedCAR: users with enough records, every record counted
    assert counts(many)[0] < 30
    assert found(load("lastfm-2k", tmp_path, options={"user_core": 20})) == counts(many)


def test_records_of_one_second_stand_by_their_milliseconds(tmp_path):
    rows = ["2\t52\t1\t1238536800999", "2\t51\t1\t1238536800000", "2\t50\t1\t1238536800500"]
    archive(
        tmp_path,
        LASTFM,
        {"user_taggedartists-timestamps.dat": "\n".join(["userID\tartistID\ttagID\ttimestamp", *rows])},
    )
    table = load("lastfm-2k", tmp_path)
    assert table.catalogue.ids[table.item].tolist() == ["51", "50", "52"]
    assert table.time.tolist() == [1_238_536_800] * 3
    (split,) = LeaveOneOut(negatives=1, min_interactions=3).apply(dataclasses.replace(table, catalogue=five(table)), 0)
    assert table.catalogue.ids[[split.train[0][0], split.valid[0], split.test[0]]].tolist() == ["51", "50", "52"]
    stream = Blocks(min_interactions=1, increments=1).restrict(table)
    assert stream.catalogue.ids[stream.item].tolist() == ["51", "50", "52"]


def five(table: Dataset) -> Catalogue:
    """Return a catalogue with two items more, to draw from."""
    names = [*table.catalogue.title, "", ""]
    return Catalogue(np.append(table.catalogue.ids, ["x", "y"]), names, names, np.zeros(len(names), np.uint8))


def test_milliseconds_belong_to_what_a_run_is_told_apart_by(tmp_path):
    head = "userID\tartistID\ttagID\ttimestamp\n"
    tables = []
    for number, ms in enumerate((0, 1)):
        (tmp_path / str(number)).mkdir()
        tags = head + f"2\t52\t1\t1238536800000\n2\t52\t2\t{1238536800000 + ms}\n"
        archive(tmp_path / str(number), LASTFM, {"user_taggedartists-timestamps.dat": tags})
        tables.append(load("lastfm-2k", tmp_path / str(number)))
    one, two = tables
    assert one.time.tolist() == two.time.tolist()
    experiment = load_experiment(overrides=["data=lastfm-2k", "method=fedmf"])
    fleet = load_fleet(Path(__file__).parents[2] / "devices.yaml")
    assert owner(experiment, fleet, Prepared(one, {}, "")) != owner(experiment, fleet, Prepared(two, {}, ""))


def test_movielens_layout_without_a_folder_inside_the_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / f"{MOVIELENS}.zip", "w") as out:
        out.writestr("user_ratedmovies-timestamps.dat", RATINGS)
        out.writestr("movies.dat", MOVIES)
    table = load("hetrec2011", tmp_path)
    assert table.users.tolist() == ["75", "78"]
    assert table.catalogue.ids.tolist() == ["3", "32"]
    assert table.catalogue.title == ["Hôtel du Nord", "Twelve Monkeys"]
    assert table.item.tolist() == [0, 1, 0]
    assert table.time.tolist() == [1162160236, 1162160624, 1162160236]


ROWS, NAMES = "user_ratedmovies-timestamps.dat", "movies.dat"
HEAD = "userID\tmovieID\trating\ttimestamp\n"
FAULTS = [
    (ROWS, "userID\tmovieID\trating\n75\t3\t1\n", "row 1: the header must have timestamp once"),
    (ROWS, HEAD + "75\t3\t1\t11\n75\t3\t1\n", "row 3: Expected 4 columns, got 3"),
    (ROWS, HEAD + "75\t3\tfive\t11\n", "row 2, column rating: 'five'; a rating is 0 to 5"),
    (ROWS, HEAD + "75\t3\t6\t11\n", "row 2, column rating: '6'; a rating is 0 to 5"),
    (ROWS, HEAD + "75\t3\t1\t99999999999999999\n", "row 2, column timestamp: .*; a time is from"),
    (ROWS, HEAD, "it has no rows"),
    (ROWS, HEAD + '75\t3\t"1\t11\n75\t3\t1\t12\n75\t3\t1"\t13\n', "row 2, column rating: '\"1'; a rating is"),
    (NAMES, "id\tname\n3\tA\n", "row 1: the header must have id and title"),
    (NAMES, "", "row 1: the header must have id and title"),
    (NAMES, "id\ttitle\n3\tA\n4\n", "row 3, column id: ''; a whole number"),
    (NAMES, "id\ttitle\n3\tA\n²\tB\n", "row 3, column id: '²'; a whole number"),
    (NAMES, "id\ttitle\n3\tA\n" + "9" * 5000 + "\tB\n", "row 3, column id: '9+'; a whole number"),
    (NAMES, "id\ttitle\n3\tA\n3\tB\n", "row 3, column id: '3'; a whole number, each one once"),
    (NAMES, b"id\ttitle\n" + b"3" * (1 << 26), "longer than 67,108,864 bytes"),
]


@pytest.mark.parametrize(("member", "content", "message"), FAULTS, ids=[message for _, _, message in FAULTS])
def test_damaged_files_are_refused_in_one_line(tmp_path, member, content, message):
    archive(tmp_path, MOVIELENS, {ROWS: RATINGS, NAMES: MOVIES, member: content}, zipped=False)
    with pytest.raises(InputError, match=f"{MOVIELENS}/{member}: {message}") as error:
        load("hetrec2011", tmp_path)
    assert "\n" not in str(error.value)
    assert "get a whole copy from https://grouplens.org" in str(error.value)


def test_two_members_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / f"{MOVIELENS}.zip", "w") as out:
        out.writestr(f"{MOVIELENS}/{ROWS}", RATINGS)
        out.writestr(ROWS, HEAD + "1\t1\t1\t1\n")
    with pytest.raises(InputError, match=rf"{MOVIELENS}\.zip has {ROWS} twice"):
        load("hetrec2011", tmp_path)


@pytest.fixture
def real(archives):
    """Loads one of the two real sets, or skips where its archive is not among the others."""

    def read(name: str, stem: str):
        if not (archives / f"{stem}.zip").is_file():
            pytest.skip(f"{stem}.zip is not in {archives}")
        return load(name, archives)

    return read


def test_lastfm_counts(real):
    table = real("lastfm-2k", LASTFM)
    many = np.bincount(table.user) >= 5
    kept = many[table.user]
    # FedCAR's Table 1
    assert (many.sum(), len(np.unique(table.item[kept])), kept.sum()) == (1600, 12_454, 185_650)
    protocol = Blocks(min_interactions=5)
    stream = protocol.restrict(table)
    assert len(stream.item) == 69_025
    blocks = [block.statistics() for block in protocol.apply(stream, 0)]
    assert [row["interactions"] for row in blocks] == [41_415, 9_203, 9_203, 9_204]  # F3CRec's Table 1
    assert (blocks[-1]["accumulated_users"], blocks[-1]["accumulated_items"]) == (1165, 4259)


def test_movielens_2k_counts(real):
    table = real("hetrec2011", MOVIELENS)
    assert (len(table.users), len(table.item)) == (2113, 855_598)
    keep = k_core(table.user, table.item, 10, 10)
    assert (len(np.unique(table.user[keep])), len(np.unique(table.item[keep]))) == (2113, 6829)  # F3CRec's Table 1
