import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from edgefr.data.datasets import load
from edgefr.data.protocol import ProtocolSettings
from edgefr.data.splits import candidates
from edgefr.data.splits import leave_one_out as protocols
from edgefr.data.splits.candidates import Candidates
from edgefr.data.splits.leave_one_out import CrossDomain, LeaveOneOut
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.ranking import evaluate
from privacy.errors import InputError
from tests.data.tables import dataset


def literal_leave_one_out(rows, users, clock, min_interactions):
    """(train, valid, test) by lists and loops. Rows are (user, item, time) in file order."""
    train, valid, test = [], [], []
    for u in range(users):
        mine = [(t, -n if clock else n, i) for n, (who, i, t) in enumerate(rows) if who == u]
        items = list(dict.fromkeys(i for _, _, i in sorted(mine)))
        enough = len(items) >= min_interactions
        test.append(items[-1] if enough else -1)
        valid.append(items[-2] if enough else -1)
        train.append(items[:-2] if enough else items)
    return train, valid, test


rows_of_many = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8), st.integers(0, 5)), max_size=50)


@given(rows_of_many, st.booleans(), st.integers(3, 5))
@settings(max_examples=150)
def test_leave_one_out_against_lists_and_loops(rows, clock, least):
    table = dataset(rows, users=6, items=20, clock=clock)
    train, valid, test = literal_leave_one_out(rows, 6, clock, least)
    protocol = LeaveOneOut(negatives=5, min_interactions=least)
    if max(test) < 0:
        with pytest.raises(InputError, match=f"no user of 'hand-made' has the {least} different items"):
            protocol.apply(table, 0)
        return
    (split,) = protocol.apply(table, 0)
    assert [split.train[u].tolist() for u in range(6)] == train
    assert split.valid.tolist() == valid
    assert split.test.tolist() == test
    assert split.users("test").tolist() == [u for u in range(6) if test[u] >= 0]
    assert split.pool.tolist() == list(range(20))
    assert split.history.counts.tolist() == [0] * 6


@given(rows_of_many, st.integers(0, 3))
@settings(max_examples=60)
def test_candidates_are_the_target_and_items_never_had(rows, seed):
    table = dataset([*rows, (5, 0, 1), (5, 1, 2), (5, 2, 3)], users=6, items=20)
    (split,) = LeaveOneOut(negatives=7).apply(table, seed)
    for which, target, found in (
        ("valid", split.valid, split.valid_candidates),
        ("test", split.test, split.test_candidates),
    ):
        users = split.users(which)
        assert found.shape == (len(users), 8)
        assert found.dtype == np.int32
        for u, row in zip(users.tolist(), found.tolist(), strict=True):
            had = set(table.item[table.user == u].tolist())
            assert row[0] == target[u]
            assert len(set(row)) == 8
            assert not had & set(row[1:])


def test_negatives_are_fixed_by_the_seed_and_differ_between_valid_and_test():
    table = load("demo", options={"users": 40})
    one, again, other = (LeaveOneOut().apply(table, seed)[0] for seed in (1, 1, 2))
    assert (one.test_candidates == again.test_candidates).all()
    assert (one.test_candidates[:, 1:] != other.test_candidates[:, 1:]).any()
    assert (one.test_candidates[:, 1:] != one.valid_candidates[:, 1:]).any()


@pytest.mark.parametrize("protocol", [LeaveOneOut(negatives=20), CrossDomain(source="books", target="films")])
def test_tables_too_large_to_keep_and_parts_of_rows_change_nothing(protocol, monkeypatch):
    table = load("demo", options={"users": 120})
    kept = protocol.apply(table, 3)
    monkeypatch.setattr(candidates, "_DRAWN_AT_ONCE", 100)
    monkeypatch.setattr(protocols, "_ROWS_AT_ONCE", 70)  # fewer than some users have
    assert np.diff(table.offsets).max() > 70
    for one, other in zip(kept, protocol.apply(table, 3), strict=True):
        assert isinstance(one.test_candidates, np.ndarray)
        assert isinstance(other.test_candidates, Candidates)
        for name in ("valid", "test", "pool", "valid_candidates", "test_candidates"):
            assert (getattr(one, name) == np.asarray(getattr(other, name))).all()
        assert (one.train.values == other.train.values).all()
        assert (one.train.offsets == other.train.offsets).all()
        some = one.users("test")[::-2]
        first, second = (
            evaluate(references.popularity(one), split, "test", "sampled", some, chunk=7) for split in (one, other)
        )
        assert (first.ranks == second.ranks).all()


def test_the_numbers_of_a_seed_are_these():
    """Figures rest on them: a change of how data or candidates are drawn is a change of every published result."""
    table = load("demo", options={"users": 50, "items": 300}, seed=2)
    (split,) = LeaveOneOut(negatives=4).apply(table, 2)
    assert table.item[:5].tolist() == [35, 178, 26, 254, 176]
    assert table.time[:2].tolist() == [1675758473, 1680899565]
    assert len(table.item) == 1295
    assert split.train[3][:4].tolist() == [76, 29]
    assert split.valid_candidates[1].tolist() == [52, 220, 8, 103, 188]
    assert split.test_candidates[1].tolist() == [230, 286, 139, 272, 120]


@given(rows_of_many, st.integers(3, 6))
@settings(max_examples=100)
def test_users_with_few_items_are_dropped_as_if_they_had_not_been_there(rows, least):
    """The same rows without these users, by lists and loops, and the items that nobody else had; unlisted ones stay."""
    items = {u: {i for who, i, _ in rows if who == u} for u in range(6)}
    many = [u for u in range(6) if len(items[u]) >= least]
    protocol = LeaveOneOut(negatives=5, min_interactions=least, few="drop")
    table = dataset(rows, users=6, items=20)
    if not many:
        with pytest.raises(InputError, match=f"no user of 'hand-made' has the {least} different items"):
            protocol.restrict(table)
        return
    some = protocol.restrict(table)
    assert some.users.tolist() == [f"u{u}" for u in many]
    gone = set().union(*items.values()) - set().union(*(items[u] for u in many))
    assert some.catalogue.ids.tolist() == [f"i{i}" for i in range(20) if i not in gone]
    (split,) = protocol.apply(some, 0)
    assert split.users("test").tolist() == list(range(len(many)))
    train, valid, test = literal_leave_one_out([row for row in rows if row[0] in many], 6, True, least)
    ids = some.catalogue.ids
    assert [ids[split.train[n]].tolist() for n in range(len(many))] == [[f"i{i}" for i in train[u]] for u in many]
    assert ids[split.test].tolist() == [f"i{test[u]}" for u in many]
    assert ids[split.valid].tolist() == [f"i{valid[u]}" for u in many]
    assert "are dropped whole" in protocol.describe(some)


def two_domains():
    """User 0 in both domains, 1 in arts, 2 in office, 3 with too few in arts, 4 with nothing."""
    rows = [(0, 0, 1), (0, 6, 2), (0, 1, 3), (0, 7, 4), (0, 2, 5), (0, 8, 6), (0, 3, 7), (0, 9, 8)]
    rows += [(1, 0, 1), (1, 1, 2), (1, 2, 3)]
    rows += [(2, 6, 1), (2, 7, 2), (2, 8, 3)]
    rows += [(3, 4, 1), (3, 6, 2), (3, 7, 3), (3, 8, 4)]
    return dataset(rows, users=5, items=12, domain=[0] * 6 + [1] * 6, domains=("arts", "office"))


def test_cross_domain_splits():
    protocol = CrossDomain(source="arts", target="office", negatives=2)
    source, target = protocol.apply(two_domains(), 0)
    assert (source.name, target.name) == ("source", "target")
    assert [source.train[u].tolist() for u in range(5)] == [[0, 1], [0], [], [4], []]
    assert source.test.tolist() == [3, 2, -1, -1, -1]
    assert source.pool.tolist() == [0, 1, 2, 3, 4, 5]
    assert source.history.counts.tolist() == [0] * 5
    assert [target.train[u].tolist() for u in range(5)] == [[6, 7], [], [], [6], []]
    assert target.valid.tolist() == [8, -1, -1, 7, -1]
    assert target.test.tolist() == [9, -1, -1, 8, -1]
    assert target.pool.tolist() == [6, 7, 8, 9, 10, 11]
    # the source's train and validation items, never its test item
    assert [target.history[u].tolist() for u in range(5)] == [[0, 1, 2], [0, 1], [], [4], []]
    assert (target.test_candidates >= 6).all()


def test_each_of_several_targets_is_split_as_if_it_were_the_only_one():
    domain = [0] * 6 + [1] * 6 + [2] * 6
    rows = [(u, i, 20 * u + i) for u in range(4) for i in range(18) if (u + i) % 6]
    table = dataset(rows, users=4, items=18, domain=domain, domains=("arts", "office", "games"))
    source, *targets = CrossDomain(source="arts", target=("office", "games"), negatives=1).apply(table, 7)
    assert [split.name for split in (source, *targets)] == ["source", "target office", "target games"]
    for split, name in zip(targets, ("office", "games"), strict=True):
        first, alone = CrossDomain(source="arts", target=(name,), negatives=1).apply(table, 7)
        assert alone.name == "target"
        assert alone.pool.tolist() == split.pool.tolist()
        assert np.array_equal(first.test, source.test)
        for part in ("valid", "test"):
            assert np.array_equal(getattr(alone, part), getattr(split, part))
        for user in range(4):
            assert alone.train[user].tolist() == split.train[user].tolist()
            assert alone.history[user].tolist() == split.history[user].tolist()


def test_cross_domain_names_are_checked():
    with pytest.raises(InputError, match="unknown domain of data set 'hand-made' 'ofice'; did you mean 'office'"):
        CrossDomain(source="arts", target="ofice").apply(two_domains(), 0)
    for target in ("arts", ("office", "arts")):
        with pytest.raises(InputError, match="name 'arts' twice; name a domain once"):
            CrossDomain(source="arts", target=target).apply(two_domains(), 0)
    with pytest.raises(InputError, match="name 'office' twice"):
        CrossDomain(source="arts", target=("office", "office")).apply(two_domains(), 0)
    with pytest.raises(ValidationError, match="at least 1 item"):
        CrossDomain(source="arts", target=())


def test_more_negatives_than_items_is_refused():
    rows = [(0, i, i) for i in range(6)] + [(1, i, i) for i in range(3)]
    table = dataset(rows, users=2, items=10)
    assert LeaveOneOut(negatives=4).apply(table, 0)[0].test_candidates.shape == (2, 5)
    with pytest.raises(InputError, match="negatives is 5 but user 'u0' of 'hand-made' leaves only 4 of 10 items"):
        LeaveOneOut(negatives=5).apply(table, 0)


def test_settings_are_told_apart_by_name_and_refuse_unknown_keys():
    read = TypeAdapter(ProtocolSettings).validate_python
    assert read({"name": "leave-one-out", "negatives": 50}) == LeaveOneOut(negatives=50)
    assert isinstance(read({"name": "cross-domain", "source": "a", "target": "b"}), CrossDomain)
    for wrong in (
        {"name": "leave-two-out"},
        {"name": "leave-one-out", "negative": 5},
        {"name": "cross-domain"},
    ):
        with pytest.raises(ValidationError):
            read(wrong)
    for wrong in ({"negatives": 0}, {"min_interactions": 2}):
        with pytest.raises(ValidationError):
            LeaveOneOut(**wrong)


def test_descriptions_say_how_the_numbers_are_made():
    table = two_domains()
    line = CrossDomain(source="arts", target="office", negatives=50).describe(table)
    for part in (
        "arts -> office",
        "50 fixed uniform negatives",
        "ties count against",
        "as history",
        "clock time",
    ):
        assert part in line
    assert "\n" not in line
    assert "file order" in LeaveOneOut().describe(dataset([], 1, 1, clock=False))


def test_ml_100k_leave_one_out(archives):
    (split,) = LeaveOneOut().apply(load("ml-100k", archives), 0)
    assert len(split.train.values) == 98_114
    assert len(split.users("valid")) == len(split.users("test")) == 943
    assert split.test_candidates.shape == (943, 100)


def test_arts_office_cross_domain(archives):
    protocol = CrossDomain(source="arts", target="office")
    source, target = protocol.apply(load("amazon-arts-office", archives), 0)
    assert len(source.pool) == 18_639
    assert len(target.pool) == 19_757
    # 1,880 repeats leave four users with fewer than three different office items
    assert len(target.users("test")) == 9_573
    assert (target.history.counts > 0).all()


def test_training_knows_what_is_held_out_only_where_that_is_asked_and_said() -> None:
    table = dataset([(0, n, n) for n in range(4)] + [(1, 5, 0)] + [(2, n, n) for n in (7, 3, 1)], users=3, items=12)
    clean, known = LeaveOneOut(negatives=5), LeaveOneOut(negatives=5, negatives_avoid_held_out=True)
    (split,), (leaking,) = clean.apply(table, 0), known.apply(table, 0)
    assert split.avoid is None
    assert leaking.avoid is not None
    assert [sorted(leaking.avoid[user].tolist()) for user in range(3)] == [[2, 3], [], [3, 7]]
    np.testing.assert_array_equal(np.asarray(split.test_candidates), np.asarray(leaking.test_candidates))
    assert "training knew" not in clean.describe(table)
    assert known.describe(table).endswith("; " + protocols.KNOWN)
