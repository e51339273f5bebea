"""The Pareto front and the axis it is drawn on."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.studies.sweeps.tradeoff import Scale, pareto

EPSILONS = st.one_of(st.sampled_from([0.0, 1.0, 8.0, math.inf, math.nan]), st.floats(0, 100))
PLACES = st.lists(st.tuples(EPSILONS, st.one_of(st.sampled_from([0.1, 0.2, math.nan]), st.floats(0, 1))), max_size=12)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and (one[0] < other[0] or one[1] > other[1])


@given(PLACES)
def test_nobody_beats_the_front_and_the_front_beats_the_rest(places):
    front = pareto(places)
    known = [at for at, (epsilon, worth) in enumerate(places) if not (math.isnan(epsilon) or math.isnan(worth))]
    assert set(front) <= set(known)
    assert bool(front) == bool(known)
    for at in known:
        beaten = [other for other in front if beats(places[other], places[at])]
        assert (at in front) == (not beaten)


def test_equals_share_the_front():
    assert pareto([(1, 0.2), (1, 0.2), (2, 0.2), (math.inf, 0.3)]) == [0, 1, 3]


@pytest.mark.parametrize(
    ("epsilons", "labels"),
    [
        ([1, 8, math.inf], ["1", "8", "inf"]),
        ([math.inf], ["inf"]),
        ([0.0, 2.0], ["2", "0"]),
        ([5.0], ["5"]),
        ([], []),
        ([1.0, 1.01, 100.0], ["1", "100"]),
        ([1, 2, 4, 8, 16, math.inf], ["1", "2", "4", "8", "16", "inf"]),
        ([0.1417, 0.243, 0.459, 2.488, math.inf], ["0.14", "0.46", "2.5", "inf"]),  # two labels would touch
        ([373.6, 1.82e3, 3.625e5, 1.856e7], ["374", "3.6e5", "1.9e7"]),
    ],
)
def test_ticks_are_where_the_epsilons_are(epsilons, labels):
    assert list(Scale.of(epsilons).ticks.values()) == labels


@given(st.lists(st.one_of(st.floats(1e-6, 1e6), st.sampled_from([0.0, math.inf])), min_size=1, max_size=10))
def test_every_epsilon_has_a_place_within_the_limits_and_in_order(epsilons):
    scale = Scale.of(epsilons)
    places = [scale.place(epsilon) for epsilon in sorted(set(epsilons))]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert all(scale.limits[0] < place < scale.limits[1] for place in places)
