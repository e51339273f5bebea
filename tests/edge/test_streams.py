"""A device's session: how it goes on, against a plain loop; moments and replies that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.exchange import reply_of
from edge.learning import Learning
from edge.session_state import extend, moments, window
from edge.state import State
from privacy import keyed
from privacy.errors import InputError

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
