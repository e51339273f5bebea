"""Draws of a round over sessions against plain loops: windows, targets, negatives, and the numbers of the rows read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.exchange import reply_of
from edge.learning import Learning
from edge.ragged import Ragged
from edge.session_state import extend, moments, window
from edge.sessions import SessionSampler, Windows, windows
from edge.state import State
from privacy import keyed
from privacy.errors import InputError

ITEMS = 12
rows = st.lists(st.lists(st.integers(0, ITEMS - 1), max_size=9), min_size=1, max_size=6)
many = settings(max_examples=120, deadline=None)


def clocks(lists: list[list[int]], seed: int = 0) -> Ragged:
    """Times that never fall and now and then stand still."""
    rng = np.random.default_rng(seed)
    return Ragged.from_lists(
        [(10**9 + np.cumsum(rng.integers(0, 3, len(row)) * 40)).tolist() for row in lists], np.int64
    )


def sampler_of(
    lists: list[list[int]], current: list[int], length: int = 4, negatives: int = 2, **options
) -> SessionSampler:
    """Clients as many as `current`; each has had the items of its session, and the odd items are no negatives."""
    items, times = Ragged.from_lists(lists), clocks(lists)
    seen = Ragged.from_lists([sorted(set(lists[s])) if s >= 0 else [] for s in current])
    pool = np.arange(3 * ITEMS)
    given = (items, times, np.array(current), seen, pool, 3 * ITEMS, length, negatives)
    return SessionSampler(*given, options.pop("seed", 7), **options)


# --- windows ---------------------------------------------------------------------------------------------------------


@given(rows, st.integers(1, 6), st.integers(0, 4), st.data())
@many
def test_windows_are_the_newest_items(lists: list[list[int]], length: int, skip: int, data: st.DataObject) -> None:
    asked = data.draw(st.lists(st.integers(-1, len(lists) - 1), max_size=5))
    times = clocks(lists)
    found = windows(Ragged.from_lists(lists), times, np.array(asked, np.int64), length, skip)
    for row, session in enumerate(asked):
        whole = [] if session < 0 else lists[session]
        kept = whole[: max(len(whole) - skip, 0)][-length:]
        clock = [] if session < 0 else times[session].tolist()[: max(len(whole) - skip, 0)][-length:]
        blank = [0] * (length - len(kept))
        assert found.items[row].tolist() == blank + kept
        assert found.real[row].tolist() == [0.0] * len(blank) + [1.0] * len(kept)
        assert found.times[row].tolist() == [0.0] * len(blank) + [float(t - clock[0]) for t in clock]


# --- draws -----------------------------------------------------------------------------------------------------------


@given(rows, st.integers(1, 5), st.integers(0, 3), st.integers(1, 3), st.data())
@many
def test_a_position_stands_for_an_item_and_the_one_after_it(
    lists: list[list[int]], length: int, negatives: int, epochs: int, data: st.DataObject
) -> None:
    current = data.draw(st.lists(st.integers(-1, len(lists) - 1), min_size=1, max_size=5))
    draws = sampler_of(lists, current, length, negatives)
    clients = np.array(data.draw(st.permutations(range(len(current)))))
    draw = draws.draw(clients, "round", 3, epochs)
    pairs: set[tuple[int, int]] = set()
    for slot, client in enumerate(clients):
        whole = lists[current[client]] if current[client] >= 0 else []
        steps = list(pairwise(whole))[-length:]
        at = np.arange(length - len(steps), length)
        assert draw.real[slot].tolist() == [0.0] * (length - len(steps)) + [1.0] * len(steps)
        assert draw.touched[draw.inputs[slot, at]].tolist() == [a for a, _ in steps]
        assert draw.touched[draw.positives[slot, at]].tolist() == [b for _, b in steps]
        drawn = draw.touched[draw.negatives[:, slot, at]]
        assert drawn.shape == (epochs, len(steps), negatives)
        assert not set(drawn.ravel().tolist()) & set(whole)
        for numbers in (draw.inputs[slot, at], draw.positives[slot, at], draw.negatives[:, slot, at].ravel()):
            assert (draw.slots[numbers] == slot).all()
        pairs |= {(slot, item) for step in steps for item in step} | {(slot, item) for item in drawn.ravel().tolist()}
        assert draws.train[client].tolist() == [b for _, b in steps]
        assert draws.steps(clients)[slot] == bool(steps)
    assert list(zip(draw.slots.tolist(), draw.touched.tolist(), strict=True)) == sorted(pairs)
    rest = draw.real == 0
    assert (draw.times[rest] == 0).all()
    if len(pairs):  # padding reads a row of its own client, if that has any
        own = draws.train.counts[clients][np.nonzero(rest)[0]] > 0
        slot = np.nonzero(rest)[0][own]
        for numbers in (draw.inputs[rest], draw.positives[rest]):
            assert (draw.slots[numbers[own]] == slot).all()
            assert ((numbers >= 0) & (numbers < len(pairs))).all()


@given(rows, st.data())
@many
def test_a_client_draws_the_same_alone_and_in_any_company(lists: list[list[int]], data: st.DataObject) -> None:
    current = data.draw(st.lists(st.integers(-1, len(lists) - 1), min_size=1, max_size=6))
    draws, order = sampler_of(lists, current), np.array(data.draw(st.permutations(range(len(current)))))
    together = draws.draw(order, "round", 2, 2)
    for slot, client in enumerate(order):
        alone = draws.draw(np.array([client]), "round", 2, 2)
        some = np.nonzero(alone.real[0])[0]
        for name in ("inputs", "positives"):
            mine, theirs = getattr(alone, name)[0, some], getattr(together, name)[slot, some]
            assert (alone.touched[mine] == together.touched[theirs]).all()
        mine, theirs = alone.negatives[:, 0, some], together.negatives[:, slot, some]
        assert (alone.touched[mine] == together.touched[theirs]).all()
        assert (alone.real[0] == together.real[slot]).all()
        assert (alone.times[0] == together.times[slot]).all()


LONG = [list(range(9)), [3, 1, 4, 1, 5], list(range(2, 11))]


def negatives(draws: SessionSampler, clients: list[int], *path) -> np.ndarray:
    draw = draws.draw(np.array(clients), *path)
    return draw.touched[draw.negatives]


def test_negatives_that_are_drawn_once_are_those_of_the_first_epoch() -> None:
    each, once = (negatives(sampler_of(LONG, [0, 2], once=o), [0, 1], "round", 1, 4) for o in (False, True))
    assert (once == each[:1]).all()
    other = negatives(sampler_of(LONG, [0, 2], once=True), [0, 1], "round", 2, 4)
    assert (other != once).mean() > 0.5, "rounds"


def test_the_next_session_stands_beside_the_present_one_without_its_last_item() -> None:
    """Its items are rows of the client's, whether or not they are learned from; who has none asks about padding."""
    plain = sampler_of(LONG, [0, 1]).draw(np.arange(2), "round", 1, 2)
    draw = sampler_of(LONG, [0, 1], following=np.array([1, -1])).draw(np.arange(2), "round", 1, 2)
    assert plain.asked is None
    assert draw.asked is not None
    assert draw.touched[draw.asked.items[0]].tolist() == LONG[1][:-1]
    assert (draw.slots[draw.asked.items] == np.arange(2)[:, None]).all()
    assert draw.asked.real.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    codes, more = (set(zip(d.slots.tolist(), d.touched.tolist(), strict=True)) for d in (plain, draw))
    assert more == codes | {(0, item) for item in LONG[1][:-1]}
    assert (draw.touched[draw.negatives] == plain.touched[plain.negatives]).all()


def test_who_has_had_everything_is_refused() -> None:
    had = Ragged.from_lists([[0], [0, 1, 2]])
    given = (Ragged.from_lists([[0, 1]]), clocks([[0, 1]]), np.array([0, -1]), had, np.arange(3), 3, 2)
    with pytest.raises(InputError, match=r"client 1 has had 3 of 3 items.*negatives=0"):
        SessionSampler(*given, 1, 0)
    assert SessionSampler(*given, 0, 0).draw(np.array([0]), "x", 1, 1).negatives.shape == (1, 1, 2, 0)


GAP, LENGTH = 60, 3


def begun(items: list[int] = [], times: list[int] = []) -> State:  # noqa: B006
    return State({}, {"session.items": np.array(items, np.int64), "session.times": np.array(times, np.int64)})


def kept(state: State) -> list[tuple[int, int]]:
    return list(zip(*(state.tensors[f"session.{name}"].tolist() for name in ("items", "times")), strict=True))


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 59, 60, 61, 500])), max_size=12), st.data())
def test_a_session_is_what_came_since_the_last_pause(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """However the interactions arrive: one by one, all at once, or anything between."""
    whole: list[tuple[int, int]] = []
    now = 100
    for item, pause in steps:
        now += pause
        whole = [*(whole if pause <= GAP else []), (item, now)]
    clock = np.cumsum([100, *(pause for _, pause in steps)])[1:]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(steps)), max_size=3)))
    state = begun()
    for start, stop in zip([0, *cuts], [*cuts, len(steps)], strict=True):
        items = np.array([item for item, _ in steps[start:stop]], np.int64)
        extend(state, items, clock[start:stop].astype(np.int64), GAP, LENGTH)
    assert kept(state) == whole[-LENGTH - 1 :]


def test_what_a_session_shows() -> None:
    state = begun([5, 6, 7, 8, 9], [10, 20, 40, 70, 75])
    seen = window(state, LENGTH)
    assert (seen.items.tolist(), seen.real.tolist(), seen.times.tolist()) == ([[7, 8, 9]], [[1, 1, 1]], [[0, 30, 35]])
    seen = window(state, LENGTH, "learning")
    assert (seen.items.tolist(), seen.times.tolist()) == ([[6, 7, 8]], [[0, 20, 50]])
    assert window(begun([5], [10]), LENGTH, "learning").real.tolist() == [[0, 0, 0]]
    assert window(begun(), LENGTH).real.tolist() == [[0, 0, 0]]


def test_moments() -> None:
    state = begun([5], [100])
    assert moments(state, 2, [3, 2], 0).tolist() == [3, 2]
    assert moments(state, 2, None, 170).tolist() == [170, 170]
    assert moments(state, 1, None, 20).tolist() == [100], "a clock that was set back"
    assert moments(begun(), 0, None, 20).tolist() == []
    with pytest.raises(InputError, match="1 times for 2 interactions"):
        moments(state, 2, [3], 0)
    with pytest.raises(InputError, match="at 99 s is before the last one at 100 s"):
        extend(state, np.array([4]), np.array([99]), GAP, LENGTH)
    assert kept(state) == [(5, 100)]


def learning(noise: float) -> Learning:
    tensors = [{"name": "prototype", "shape": [4], "place": "private", "kind": "dense"}]
    phase = {"name": "round", "graph": "a", "purpose": "round", "when": "round", "epochs": 1, "optimiser": "adam"}
    sessions: dict[str, object] = {
        "gap_s": GAP,
        "teach": None,
        "publish": "b",
        "order": "trained",
        "reply": "prototype",
        "marks": [],
    }
    return Learning.model_validate(
        {
            "tensors": tensors,
            "phases": [phase | {"dense": [], "tables": [], "lr": {}}],
            "score": "c",
            "negatives": 1,
            "batch_size": 2,
            "seed": 5,
            "round": 0,
            "release": {"clip": None, "norm": "l2", "noise": None, "scale": 0.0, "weights": "uniform"},
            "replay": None,
            "sessions": sessions | {"receiver_noise": noise, "keeps": {}},
        }
    )


def test_noise_on_replies_is_the_simulators() -> None:
    """Keyed by the round that is learned, then by the client, as `edgefr.engine.transfer` draws it for a cohort."""
    state, reply = State({"round": 6, "number": 11}, {}), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(reply_of(reply, learning(0.0), state)["prototype"], reply)
    cohort = keyed.fold(keyed.key(5, "received noise", 7), np.array([3, 11]))
    draws = keyed.normal(cohort[:, None], np.arange(4))[1]
    got = reply_of(reply, learning(0.5), state)["prototype"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, reply + (0.5 * draws).astype(np.float32), atol=0)
    assert np.abs(got - reply).max() > 0.01


def test_windows_by_hand() -> None:
    items = Ragged.from_lists([[5, 6, 7, 8], [9], [], [3, 3]])
    times = Ragged.from_lists([[100, 130, 130, 190], [50], [], [7, 9]], np.int64)
    found = windows(items, times, np.array([3, 0, 2, -1, 1, 0]), 3)
    assert found.items.tolist() == [[0, 3, 3], [6, 7, 8], [0, 0, 0], [0, 0, 0], [0, 0, 9], [6, 7, 8]]
    assert found.real.tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 1], [1, 1, 1]]
    assert found.times.tolist() == [[0, 0, 2], [0, 0, 60], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 60]]
    asked = windows(items, times, np.array([0, 1]), 3, skip=1)
    assert asked.items.tolist() == [[5, 6, 7], [0, 0, 0]]
    assert asked.times.tolist() == [[0, 30, 30], [0, 0, 0]]
    assert (found.items.dtype, found.real.dtype, found.times.dtype) == (np.int64, np.float32, np.float32)


def test_a_device_draws_with_its_number_among_all() -> None:
    fleet = sampler_of(LONG, [0, 1, 2])
    device = sampler_of([LONG[2]], [0], ids=np.array([2]))
    assert (negatives(device, [0], "round", 5, 3) == negatives(fleet, [2], "round", 5, 3)).all()
    stranger = sampler_of([LONG[2]], [0], ids=np.array([1]))
    assert (negatives(stranger, [0], "round", 5, 3) != negatives(fleet, [2], "round", 5, 3)).any()


def test_every_part_of_the_key_changes_the_negatives() -> None:
    base = negatives(sampler_of(LONG, [0, 2]), [0, 1], "round", 1, 2)
    others = [
        negatives(sampler_of(LONG, [0, 2]), [0, 1], "round", 2, 2),
        negatives(sampler_of(LONG, [0, 2]), [0, 1], "first", 1, 2),
        negatives(sampler_of(LONG, [0, 2], seed=8), [0, 1], "round", 1, 2),
    ]
    assert all((base != other).mean() > 0.5 for other in others)
    assert (base[0] != base[1]).mean() > 0.5, "epochs"
    assert (base[:, 0] != base[:, 1]).mean() > 0.5, "clients"
    assert (base[..., 0] != base[..., 1]).mean() > 0.5, "the negatives of a position"
    assert (negatives(sampler_of(LONG, [0, 2]), [0, 1], "round", 1, 3)[:2] == base).all(), "more epochs"


def test_negatives_are_uniform_over_the_pool_without_what_was_had() -> None:
    items, had, pool = Ragged.from_lists([[1, 2, 3, 1, 2]]), Ragged.from_lists([[1, 2, 3, 8]]), np.arange(0, 24, 2)
    draws = SessionSampler(items, clocks([[1, 2, 3, 1, 2]]), np.array([0]), had, pool, 24, 4, 5, 0)
    found = np.concatenate([negatives(draws, [0], "x", number, 1).ravel() for number in range(500)])
    allowed = [item for item in pool if item not in (2, 8)]
    counts = np.bincount(found, minlength=24)
    assert counts.sum() == counts[allowed].sum() == 500 * 4 * 5
    expected = counts.sum() / len(allowed)
    assert ((counts[allowed] - expected) ** 2 / expected).sum() < 27.9  # chi-squared, 9 degrees of freedom, p = 0.001


def test_the_last_item_that_was_not_had_is_found() -> None:
    had, pool = Ragged.from_lists([list(range(39))]), np.arange(40)
    draws = SessionSampler(Ragged.from_lists([[0, 1, 2]]), clocks([[0, 0, 0]]), np.array([0]), had, pool, 40, 3, 8, 0)
    assert (negatives(draws, [0], "x", 1, 2)[:, :, 1:] == 39).all()


def test_windows_of_no_session_at_all() -> None:
    nothing = windows(Ragged.empty(0), Ragged.empty(0, np.int64), np.array([-1, -1]), 3)
    assert isinstance(nothing, Windows)
    assert not nothing.real.any()
    assert nothing.items.shape == nothing.times.shape == (2, 3)
