"""Protocol sessions against a literal reading of it, and the invariants that runs rely on."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from edgefr.data.datasets import load
from edgefr.data.interactions import Kinds
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits.sessions import SessionsProtocol
from edgefr.experiment.experiment import load_experiment
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.prepare import prepare
from privacy.errors import InputError
from tests.data.tables import dataset


def literal(rows, users, gap, min_length, min_sessions):
    """(training sessions, validation, test) of every user as lists of items, by lists and loops."""
    found = []
    for u in range(users):
        mine = sorted((t, n, i) for n, (who, i, t) in enumerate(rows) if who == u)
        cut, before = [], None
        for t, _, i in mine:
            if before is None or t - before > gap:
                cut.append([])
            cut[-1].append(i)
            before = t
        cut = [session for session in cut if len(session) >= min_length]
        found.append(cut if len(cut) >= min_sessions else [])
    seen = {i for cut in found for session in cut[:-2] for i in session}

    def held(cut, at):
        kept = [i for i in cut[at] if i in seen] if cut else []
        return kept if len(kept) >= 2 else None

    return [(cut[:-2], held(cut, -2), held(cut, -1)) for cut in found]


def rows_of(draw_users=3, items=6, longest=60):
    event = st.tuples(st.integers(0, draw_users - 1), st.integers(0, items - 1), st.integers(0, longest))
    return st.lists(event, min_size=1, max_size=60)


def listed(sessions, number):
    return None if number < 0 else sessions.items[int(number)].tolist()


@given(rows_of(), st.integers(2, 3), st.integers(3, 4))
@settings(max_examples=150, deadline=None)
def test_sessions_are_those_of_a_literal_reading(rows, min_length, min_sessions):
    table = dataset(rows, users=3, items=6)
    protocol = SessionsProtocol(gap_minutes=3 / 60, min_length=min_length, min_sessions=min_sessions, negatives=1)
    protocol = protocol.model_copy(update={"candidates": "any"})
    expected = literal(rows, 3, 3, min_length, min_sessions)
    pool = sorted({i for train, _, _ in expected for session in train for i in session})
    if len(pool) < 2 or all(test is None for _, _, test in expected):
        with pytest.raises(InputError, match="no user of" if len(pool) != 1 else "no user of|leaves only 0 of 1"):
            protocol.apply(table, 0)
        return
    split, sessions = protocol.apply(table, 0)
    for u, (train, valid, test) in enumerate(expected):
        assert [sessions.items[s].tolist() for s in sessions.train[u]] == train
        assert (listed(sessions, sessions.valid[u]), listed(sessions, sessions.test[u])) == (valid, test)
        assert split.train[u].tolist() == list(dict.fromkeys(i for session in train for i in session))
        assert split.valid[u] == (-1 if valid is None else valid[-1])
        assert split.test[u] == (-1 if test is None else test[-1])
    assert split.pool.tolist() == pool
    assert (np.diff(sessions.times.values)[np.diff(sessions.times.rows) == 0] >= 0).all()
    # the restricted data set has the same sessions under new numbers
    small = protocol.restrict(table)
    again, same = protocol.apply(small, 0)
    assert small.catalogue.ids[same.items.values].tolist() == table.catalogue.ids[sessions.items.values].tolist()
    assert (same.times.values == sessions.times.values).all()
    assert (same.items.offsets == sessions.items.offsets).all()
    assert small.users[same.user].tolist() == table.users[sessions.user].tolist()
    assert len(small.users) == len(np.unique(sessions.user))
    assert again.pool.tolist() == list(range(len(small.catalogue)))


def two_users():
    """User 0 trains on the sessions 0 1 2 and 3 4 0, validates on 1 3 and is tested on 2 5 4; and the rows of it."""
    sessions = [(0, [0, 1, 2]), (0, [3, 4, 0]), (0, [1, 3]), (0, [2, 5, 4])]
    sessions += [(1, [5, 6]), (1, [7, 8, 9]), (1, [9, 8]), (1, [6, 7])]
    rows = [(u, i, 6000 * n + 60 * at) for n, (u, session) in enumerate(sessions) for at, i in enumerate(session)]
    return dataset(rows, users=2, items=12), rows


def test_candidates_leave_out_own_training_items_or_the_target_alone():
    table, _ = two_users()
    unseen = SessionsProtocol(negatives=5).apply(table, 0)[0]
    assert sorted(unseen.test_candidates[0, 1:].tolist()) == [5, 6, 7, 8, 9]  # never had 0..4; 10, 11 never trained
    assert unseen.test_candidates[:, 0].tolist() == [4, 7]
    everything = SessionsProtocol(negatives=9, candidates="any").apply(table, 0)[0]
    assert sorted(everything.test_candidates[0, 1:].tolist()) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sorted(everything.valid_candidates[1, 1:].tolist()) == [0, 1, 2, 3, 4, 5, 6, 7, 9]
    with pytest.raises(InputError, match=r"protocol\.negatives is 6 but user 'u0' of 'hand-made' leaves only 5 of 10"):
        SessionsProtocol(negatives=6).apply(table, 0)
    with pytest.raises(InputError, match="leaves only 9 of 10"):
        SessionsProtocol(negatives=10, candidates="any").apply(table, 0)


def test_half_of_the_negatives_may_be_own_training_items():
    table, _ = two_users()
    drawn = [SessionsProtocol(negatives=5, candidates="own").apply(table, seed)[0].test_candidates for seed in range(9)]
    for rows in drawn:
        assert rows[:, 0].tolist() == [4, 7]
        for row, own, unseen in zip(
            rows, ({0, 1, 2, 3}, {5, 6, 8, 9}), ({5, 6, 7, 8, 9}, {0, 1, 2, 3, 4}), strict=True
        ):
            assert own > set(row[1:3].tolist())
            assert unseen > set(row[3:].tolist())
            assert len(set(row.tolist())) == 6
    assert len({tuple(rows[0, 1:3].tolist()) for rows in drawn}) > 3
    # few own items: all of them, and no more
    rows = [(u, 3 * u + i, 6000 * (3 * u + n) + i) for u in range(3) for n in range(3) for i in range(3)]
    wide = SessionsProtocol(negatives=6, candidates="own").apply(dataset(rows, users=3, items=9), 0)[0]
    assert sorted(wide.test_candidates[0, 1:3].tolist()) == [0, 1]
    assert {3, 4, 5, 6, 7, 8} > set(wide.test_candidates[0, 3:].tolist())


@pytest.mark.parametrize(
    ("candidates", "negatives", "among", "left"),
    [("unseen", 4, {3, 4, 5, 6}, 4), ("own", 4, {1, 2, 3, 4, 5, 6}, 4), ("any", 6, {1, 2, 3, 4, 5, 6}, 6)],
)
def test_the_first_item_of_the_catalogue_is_no_negative_of_its_own(candidates, negatives, among, left):
    """Item 0 is what both held-out sessions of user 0 ask for, and all that may be drawn beside it is asked for too."""
    sessions = [[1, 2], [1, 0], [2, 0]], [[0, 3], [3, 0], [0, 3]], [[4, 5], [5, 4], [4, 5]], [[6, 4], [4, 6], [6, 4]]
    rows = [(u, i, 6000 * n + at) for u in range(4) for n, some in enumerate(sessions[u]) for at, i in enumerate(some)]
    table = dataset(rows, users=4, items=7)
    split, _ = SessionsProtocol(negatives=negatives, candidates=candidates).apply(table, 0)
    for drawn in (split.valid_candidates, split.test_candidates):
        assert drawn[0, 0] == 0
        assert among >= set(drawn[0, 1:].tolist())
        assert len(set(drawn[0, 1:].tolist())) == negatives
    with pytest.raises(InputError, match=f"user 'u0' of 'hand-made' leaves only {left} of 7"):
        SessionsProtocol(negatives=7, candidates=candidates).apply(table, 0)


def test_candidates_depend_on_the_seed_and_the_user_alone():
    table, _ = two_users()
    one, again, other = (SessionsProtocol(negatives=3).apply(table, seed)[0] for seed in (1, 1, 2))
    assert (one.test_candidates == again.test_candidates).all()
    assert (one.test_candidates != other.test_candidates).any()


def test_full_ranking_leaves_nothing_out():
    table, _ = two_users()
    split = SessionsProtocol(negatives=2).apply(table, 0)[0]
    scores = -np.arange(10.0)  # the items 0, 1, 2, ... are ranked in this order
    found = evaluate(lambda users, items: np.tile(scores, (len(users), 1)), split, "test", "full")
    assert found.ranks.tolist() == [5, 8]  # user 0 has trained on 0..3, which stand before the target 4
    assert evaluate(
        lambda users, items: np.tile(scores, (len(users), 1)), replace(split, repeats=False), "test", "full"
    ).ranks.tolist() == [1, 6]


def test_released_sessions_and_parts_are_used_as_they_are():
    """Sessions that pauses would not cut so, out of order and overlapping, with one of a single item."""
    rows = [(0, 0, 10), (0, 1, 20), (0, 2, 25), (0, 1, 30), (0, 0, 40), (0, 2, 41), (1, 3, 5), (1, 0, 9), (1, 3, 11)]
    session = np.array([7, 7, 9, 9, 3, 3, 1, 2, 2])
    part = np.array([0, 0, 0, 0, 2, 2, 0, 1, 1], np.uint8)
    table = replace(dataset(rows, users=2, items=4), session=session, part=part)
    split, sessions = SessionsProtocol(negatives=1, min_length=8, min_sessions=9).apply(table, 0)
    assert [sessions.items[s].tolist() for s in sessions.train[0]] == [[0, 1], [2, 1]]
    assert [sessions.items[s].tolist() for s in sessions.train[1]] == [[3]]
    assert (split.test.tolist(), split.valid.tolist()) == ([2, -1], [-1, 3])
    assert sessions.statistics() == {
        "users": 2,
        "items": 4,
        "sessions": 5,
        "interactions": 9,
        "avg_length": 1.8,
        "train": 3,
        "valid": 1,
        "test": 1,
    }


def test_a_restricted_data_set_goes_by_time_where_sessions_overlap():
    rows = [(0, 0, 10), (0, 1, 20), (0, 2, 30), (0, 1, 40), (0, 0, 50), (0, 2, 60)]
    part = np.array([0, 0, 0, 0, 2, 2], np.uint8)
    table = replace(dataset(rows, users=1, items=3), session=np.array([7, 9, 7, 9, 3, 3]), part=part)
    protocol = SessionsProtocol(negatives=1, candidates="any")
    small = protocol.restrict(table)
    assert small.time.tolist() == [10, 20, 30, 40, 50, 60]
    assert small.item.tolist() == [0, 1, 2, 1, 0, 2]
    assert small.session.tolist() == [0, 1, 0, 1, 2, 2]
    again = protocol.apply(small, 0)[1]
    assert [again.items[s].tolist() for s in range(3)] == [[0, 2], [1, 1], [0, 2]]


def test_released_sessions_without_parts_are_held_out_by_time():
    table, rows = two_users()
    session = np.array([time // 6000 for _, _, time in rows]) * 5 + 3
    cut = SessionsProtocol(negatives=1).apply(table, 0)[1]
    own = SessionsProtocol(gap_minutes=0.001, negatives=1).apply(replace(table, session=session), 0)[1]
    assert own.items.values.tolist() == cut.items.values.tolist()
    assert (own.valid == cut.valid).all()
    with pytest.raises(InputError, match=r"no user of 'hand-made'.*3 sessions.*trained; lower protocol\.min_sess"):
        SessionsProtocol(negatives=1, min_length=4).apply(replace(table, session=session), 0)


def test_where_nobody_can_be_tested_the_error_says_what_would_help():
    table, _ = two_users()
    with pytest.raises(InputError, match=r"raise protocol\.gap_minutes \(30\), lower protocol\.min_sessions"):
        SessionsProtocol(negatives=1, min_length=4).apply(table, 0)
    session, train = np.zeros(len(table.user), np.int64), np.zeros(len(table.user), np.uint8)
    with pytest.raises(InputError, match=r"parts are as released: drop fewer .*\(protocol\.drop\), or use more data"):
        SessionsProtocol(negatives=1).apply(replace(table, session=session, part=train), 0)


def test_kinds_are_dropped_by_name_number_or_default():
    table, rows = two_users()
    number = np.zeros(len(rows), np.int8)
    number[2], number[4] = 1, 2  # the 2 of session 0 1 2, the 4 of session 3 4 0
    table = replace(table, kinds=Kinds(number, ("click", "delete", "look"), dropped=("delete",)))

    def items(**fields):
        _, sessions = SessionsProtocol(negatives=1, candidates="any", **fields).apply(table, 0)
        return [sessions.items[s].tolist() for s in sessions.train[0]]

    assert items() == items(drop=[1]) == items(drop=["delete"]) == [[0, 1], [3, 4, 0]]
    assert items(drop=[]) == [[0, 1, 2], [3, 4, 0]]
    assert items(drop=["look"]) == [[0, 1, 2], [3, 0]]
    assert items(drop=["look", 1]) == [[0, 1], [3, 0]]
    for wrong in ("deleted", 3, -1):
        with pytest.raises(InputError, match=r"unknown kind of interaction in protocol\.drop"):
            items(drop=[wrong])
    with pytest.raises(InputError, match=r"no kinds of interaction to drop; leave protocol\.drop out"):
        SessionsProtocol(drop=["delete"]).apply(replace(table, kinds=None), 0)
    assert SessionsProtocol(negatives=1, drop=[1]).restrict(table).kinds.number.tolist().count(1) == 0
    assert "; without delete;" in SessionsProtocol().describe(table)
    assert "without" not in SessionsProtocol(drop=[]).describe(table)


def test_order_alone_cannot_be_cut():
    table = dataset([(0, 0, 0), (0, 1, 1)], users=1, items=2, clock=False)
    with pytest.raises(InputError, match="'hand-made' has no clock times"):
        SessionsProtocol().apply(table, 0)


def test_the_line_says_what_was_done():
    table, _ = two_users()
    line = SessionsProtocol(min_length=4, candidates="any", stream="cyclic").describe(table)
    assert "\n" not in line
    for said in (
        "30 minutes",
        "from 4 interactions",
        "own training items among them",
        "100 fixed",
        "over and over",
        "repeat",
    ):
        assert said in line
    released = replace(table, session=np.zeros(len(table.user), np.int64), part=np.zeros(len(table.user), np.uint8))
    assert SessionsProtocol().describe(released).startswith("sessions and parts as released;")


def test_settings_are_checked():
    read = TypeAdapter(ProtocolSettings).validate_python
    assert read({"name": "sessions", "drop": [4, "click"]}).drop == [4, "click"]
    for wrong in ({"gap_minutes": 0}, {"min_length": 1}, {"stream": "twice"}, {"negatives": 0}, {"gap": 30}):
        with pytest.raises(ValidationError):
            read({"name": "sessions", **wrong})


def test_xing_has_the_counts_of_the_release(archives):
    """expected_stats.json, xing_file_here."""
    table = load("xing", archives)
    assert (len(table.users), len(table.catalogue), len(table.item)) == (877, 24_390, 83_907)
    split, sessions = SessionsProtocol().apply(table, 0)
    found = sessions.statistics()
    assert (found["sessions"], found["train"], found["valid"], found["test"]) == (5_982, 4_411, 857, 714)
    by_part = [
        sum(len(sessions.items[s]) for s in numbers[numbers >= 0])
        for numbers in (sessions.train.values, sessions.valid, sessions.test)
    ]
    assert by_part == [70_237, 7_944, 5_726]
    assert split.test_candidates.shape == (714, 101)
    own = [np.isin(row, split.train[u]) for u, row in zip(split.users("test"), split.test_candidates, strict=True)]
    assert not np.array(own)[:, 1:].any()
    assert round(float(np.array(own)[:, 0].mean()), 3) == 0.211  # targets that the user had in training


def test_a_run_prepares_sessions(archives):
    experiment = load_experiment(method="fedmf", data="xing", overrides=["protocol.name=sessions"])
    prepared = prepare(experiment, archives, "cpu")
    assert prepared.sessions is not None
    assert prepared.sessions.train.values.tolist() == sorted(prepared.sessions.train.values.tolist())
    assert prepared.train_split.repeats
    assert prepared.protocol.startswith("sessions and parts as released;")
