"""Readers of event logs on generated files in the public layouts, and on files that are not."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from edgefr.data.datasets import load
from edgefr.data.splits.sessions import SessionsProtocol
from privacy.errors import InputError
from tests.data.tables import archive

EXPORT = "recsyschallenge_v2017_interactions_final_anonym_training_export."
NAMES = ("user_id", "item_id", "interaction_type", "created_at")
CHALLENGE = "7\t40\t0\t1486479600\n7\t40\t1\t1486479601\n7\t41\t4\t1486479600\n9\t41\t5\t1486400000\n"
VISITS = (
    "timestamp,visitorid,event,itemid,transactionid\n"
    "1433221332117,257597,view,355908,\n1433224214164,992329,view,248676,\n"
    "1433221999827,257597,transaction,355908,4000\n1433221955914,257597,addtocart,9,\n"
)
LOG = (
    "user_id,item_id,cat_id,seller_id,brand_id,time_stamp,action_type\n"
    "328862,323294,833,2882,2661,829,0\n328862,844400,1271,2882,,1112,3\n1,323294,833,2882,2661,101,2\n"
)
MOBILE = (
    "user_id,item_id,behavior_type,user_geohash,item_category,time\n"
    "98047837,232431562,1,,4245,2014-12-06 02\n98047837,383583590,4,9rj6l2i,5894,2014-12-09 20\n"
)
PLAYS = (
    "user_000001\t2009-05-04T23:08:57Z\tf1b1cf71\tDeep Dish\t\tFuck Me Im Famous (Pacha Ibiza)-09-28-2007\n"
    'user_000001\t2009-05-04T13:54:10Z\t\t"坂本 龍一"\te8fb2aa9\tComposition 0919\n'
    'user_000002\t2009-05-04T13:52:04Z\t\t"坂本 龍一"\te8fb2aa9\tComposition\n'
)
TSV = "userid-timestamp-artid-artname-traid-traname.tsv"


def columns(table):
    return [column.tolist() for column in (table.user, table.item, table.time)]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("prefix", ["", EXPORT])
def test_challenge_2017(tmp_path, zipped, prefix):
    header = "\t".join(prefix + name for name in NAMES) + "\n"
    archive(tmp_path, "recsys-challenge-2017", {"interactions.csv": header + CHALLENGE}, zipped)
    table = load("xing-2017", tmp_path)
    assert columns(table) == [[0, 0, 1], [1, 0, 1], [1486479600, 1486479601, 1486400000]]
    assert (table.users.tolist(), table.catalogue.ids.tolist()) == (["7", "9"], ["40", "41"])
    assert table.kinds.number.tolist() == [4, 1, 5]
    assert table.kinds.dropped == ("impression", "delete", "recruiter interest")
    assert len(load("xing-2017", tmp_path, options={"impressions": True}).user) == 4


def test_views_of_one_second_stand_by_their_milliseconds(tmp_path):
    head = "timestamp,visitorid,event,itemid,transactionid\n"
    rows = "1433221332900,5,view,30,\n1433221332117,5,view,10,\n1433221332500,5,view,20,\n"
    archive(tmp_path, "retailrocket", {"events.csv": head + rows})
    table = load("retailrocket", tmp_path)
    assert table.catalogue.ids[table.item].tolist() == ["10", "20", "30"]
    assert set(table.time.tolist()) == {1433221332}


@pytest.mark.parametrize("closing", ["", '"'])
def test_a_quote_in_a_column_that_nobody_reads_swallows_no_rows(tmp_path, closing):
    head = "timestamp,visitorid,event,itemid,transactionid\n"
    rows = f'1,5,view,30,"4\n2,5,view,10,4{closing}\n3,5,view,20,\n'
    archive(tmp_path, "retailrocket", {"events.csv": head + rows})
    with pytest.raises(InputError, match=r"events\.csv: \d line breaks stand between quotes|events\.csv: row \d"):
        load("retailrocket", tmp_path)


def test_retailrocket(tmp_path):
    archive(tmp_path, "retailrocket", {"events.csv": VISITS})
    table = load("retailrocket", tmp_path)
    assert columns(table) == [[0, 0, 0, 1], [2, 0, 2, 1], [1433221332, 1433221955, 1433221999, 1433224214]]
    assert [table.kinds.names[kind] for kind in table.kinds.number] == ["view", "addtocart", "transaction", "view"]
    assert "without addtocart, transaction;" in SessionsProtocol().describe(table)


@pytest.mark.parametrize("folder", ["", "data_format1/"])
def test_tmall_repeat_buyers(tmp_path, folder):
    archive(tmp_path, "tmall", {f"{folder}user_log_format1.csv": LOG})
    table = load("tmall", tmp_path)
    days = ["2014-01-01", "2014-08-29", "2014-11-12"]
    assert table.time.tolist() == np.array(days, "datetime64[s]").astype(np.int64).tolist()
    assert [table.kinds.names[kind] for kind in table.kinds.number] == ["purchase", "click", "favourite"]
    assert table.kinds.dropped == ()


def test_tmall_mobile(tmp_path):
    archive(tmp_path, "tmall", {"tianchi_mobile_recommend_train_user.csv": MOBILE})
    table = load("tmall", tmp_path)
    hours = ["2014-12-06T02", "2014-12-09T20"]
    assert table.time.tolist() == np.array(hours, "datetime64[s]").astype(np.int64).tolist()
    assert [table.kinds.names[kind] for kind in table.kinds.number] == ["click", "purchase"]


def test_lastfm_1k_artists_and_tracks(tmp_path):
    archive(tmp_path, "lastfm-dataset-1K", {TSV: PLAYS}, zipped=False)
    table = load("lastfm-1k", tmp_path)
    assert columns(table)[:2] == [[0, 0, 1], [1, 0, 1]]
    assert table.time.tolist() == [1241445250, 1241478537, 1241445124]
    assert table.catalogue.title == ["Deep Dish", '"坂本 龍一"']
    assert table.catalogue.ids[0] == "f1b1cf71"
    assert table.catalogue.ids[1].startswith("name-")
    tracks = load("lastfm-1k", tmp_path, options={"items": "track"})
    assert tracks.catalogue.title[0] == "Composition 0919"  # an id's first name in the file
    assert tracks.catalogue.ids[0] == "e8fb2aa9"
    assert len(tracks.catalogue) == 2


LOGS = {
    "xing-2017": "\t".join(NAMES) + "\n" + CHALLENGE.replace("\t0\t", "\t2\t"),
    "retailrocket": VISITS,
    "tmall": LOG,
    "tmall-mobile": MOBILE,
    "lastfm-1k": PLAYS,
}


XING = "\t".join(NAMES) + "\n"
NO_ID = "an id is 1 to 64 printable"
FAULTS = [
    ("xing-2017", "user_id\titem_id\tcreated_at\n", "row 1: the header must have interaction_type once"),
    ("xing-2017", XING.strip() + "\ta.user_id\n", "row 1: the header must have user_id once"),
    ("xing-2017", XING + "1\t2\t1\t9\n1\t2\t6\t9\n", r"row 3, column interaction_type: '6'; a kind is one of 0 \(impr"),
    ("xing-2017", XING + "1\t2\t1\tnow\n", "row 2, column created_at: 'now'; it is no number of s"),
    ("xing-2017", XING + "1\t2\t0\t9\n", "it has no rows"),
    ("xing-2017", XING, "it has no rows"),
    ("xing-2017", "", "the file is empty"),
    ("xing-2017", b"\xff\xfe\x00" * 99, "it is UTF-16"),
    ("retailrocket", VISITS + "1433221999827,1,buy,2,\n", "row 6, column event: 'buy'; a kind is one of .*view"),
    ("retailrocket", VISITS + "-5,1,view,2,\n", "row 6, column timestamp: '-5'; a time is from 1970"),
    ("retailrocket", VISITS + "99999999999999999,1,view,2,\n", "row 6, column timestamp: '9+'; a time is from 1970"),
    ("retailrocket", VISITS + "1,,view,2,\n", f"row 6, column visitorid: nothing is there; {NO_ID}"),
    ("tmall", LOG + "1,2,3,4,5,1301,0\n", "row 5, column time_stamp: '2014-13-01'; a time is"),
    ("tmall", LOG + "1,2,3,4,5,229,0\n", "row 5, column time_stamp: '2014-02-29'; a time is"),
    ("tmall", LOG + "1,2,3,4,5,-1,0\n", "row 5, column time_stamp: "),
    ("tmall", LOG + "1,2,3,4,5,1111,4\n", r"row 5, column action_type: '4'; a kind is one of 0 \(click\)"),
    ("tmall-mobile", MOBILE + "1,2,0,,3,2014-12-06 02\n", r"row 4, column behavior_type: '0'; a kind is one of 1 \(cl"),
    (
        "tmall-mobile",
        MOBILE + "1,2,1,,3,yesterday\n",
        "row 4, column time: 'yesterday'; a time is written as %Y-%m",
    ),
    ("tmall-mobile", MOBILE + "1,2,1,,3,1914-12-06 02\n", "row 4, column time: .*; a time is from 1970"),
    ("lastfm-1k", PLAYS + "u\t2009-05-04\ta\tb\tc\td\n", "row 4, column time: '2009-05-04'; a time is written as %Y"),
    ("lastfm-1k", PLAYS + "u\t2009-05-04T23:08:57Z\ta\tb\tc\n", "row 4: Expected 6 columns, got 5"),
    ("lastfm-1k", PLAYS + "\t2009-05-04T23:08:57Z\ta\tb\tc\td\n", f"row 4, column user: nothing is there; {NO_ID}"),
    ("lastfm-1k", PLAYS + f"u\t2009-05-04T23:08:57Z\t{'a' * 65}\tb\tc\td\n", f"row 4, column artist: 'a+'; {NO_ID}"),
    ("lastfm-1k", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "row 1: Expected 6 columns"),
]
MEMBERS = {
    "xing-2017": ("recsys-challenge-2017", "interactions.csv"),
    "retailrocket": ("retailrocket", "events.csv"),
    "tmall": ("tmall", "user_log_format1.csv"),
    "tmall-mobile": ("tmall", "tianchi_mobile_recommend_train_user.csv"),
    "lastfm-1k": ("lastfm-dataset-1K", TSV),
}


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_damaged_tables_are_refused_in_one_line(tmp_path, name, content, message):
    stem, member = MEMBERS[name]
    archive(tmp_path, stem, {member: content}, zipped=False)
    with pytest.raises(InputError, match=rf"{stem}/{member}: {message}") as error:
        load(name.removesuffix("-mobile"), tmp_path)
    assert "\n" not in str(error.value)


def test_tmall_needs_one_of_its_logs(tmp_path):
    archive(tmp_path, "tmall", {"user_info_format1.csv": "user_id\n"})
    with pytest.raises(InputError, match=r"has neither user_log_format1\.csv nor tianchi_mobile.*; get a whole copy"):
        load("tmall", tmp_path)


def released(folder, change=None, **columns):
    """A small table in the layout of the release, with columns replaced and rows changed."""
    table = {
        "user_id": [4, 4, 4, 2, 2, 2],
        "item_id": [1, 2, 2, 2, 1, 1],
        "interaction_type": [1, 1, 3, 1, 2, 1],
        "created_at": [50, 60, 9000, 10, 20, 9000],
        "session_id": [8, 8, 9, 5, 5, 6],
        "split": ["train", "train", "valid", "train", "train", "test"],
    }
    for name, at, value in change or []:
        table[name][at] = value
    table = {name: column for name, column in (table | columns).items() if column is not None}
    parquet.write_table(pa.table(table), folder / "xing-sessions.parquet")
    return folder


def test_xing_release_layout(tmp_path):
    table = load("xing", released(tmp_path))
    assert (table.users.tolist(), table.catalogue.ids.tolist()) == (["2", "4"], ["1", "2"])
    assert columns(table) == [[0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 1, 1], [10, 20, 9000, 50, 60, 9000]]
    assert (table.session.tolist(), table.part.tolist()) == ([5, 5, 6, 8, 8, 9], [0, 0, 2, 0, 0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([("split", 1, "valid")], "'xing': a session of user '4' has rows of two parts of the split"),
        ([("user_id", 1, 2)], "xing-sessions.parquet: session 8 is of two users"),
        ([("split", 0, "valid"), ("split", 1, "valid")], "xing-sessions.parquet: user 4 has two sessions of valid or"),
        ([("session_id", at, "s") for at in range(6)], "xing-sessions.parquet: a session_id is no whole number"),
        ([("split", 3, "best")], r"sessions\.parquet: row 4, column split: 'best'; a part is train, valid or test"),
        ([("interaction_type", 5, 9)], r"sessions\.parquet: row 6, column interaction_type: '9'; a kind is one of"),
        ([("created_at", 1, -1)], r"sessions\.parquet: row 2, column created_at: '-1'; a time is from 1970"),
        ([("session_id", 4, None)], r"sessions\.parquet: row 5, column session_id: nothing is there"),
    ],
)
def test_damaged_releases_are_refused(tmp_path, change, message):
    folder = released(tmp_path, change)
    with pytest.raises(InputError, match=message) as error:
        load("xing", folder)
    assert "\n" not in str(error.value)


def test_files_that_are_no_release_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"xing-sessions\.parquet: row 1: the header must have split once"):
        load("xing", released(tmp_path, split=None))
    empty = dict.fromkeys(("user_id", "item_id", "interaction_type", "created_at", "session_id"), pa.array([], "int64"))
    with pytest.raises(InputError, match="it has no rows"):
        load("xing", released(tmp_path, **empty, split=pa.array([], "string")))
    for content in (
        b"",
        b"PAR1" + bytes(99),
        gzip.compress(b"x"),
        (tmp_path / "xing-sessions.parquet").read_bytes()[:-9],
    ):
        (tmp_path / "xing-sessions.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"xing-sessions\.parquet") as error:
            load("xing", tmp_path)
        assert "\n" not in str(error.value)
