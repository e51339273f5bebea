"""Who gets whose message: a circle of a round's clients that only the server knows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefr.engine.transfer import senders


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=40))
@settings(max_examples=80)
def test_every_message_goes_to_exactly_one_other_client(draws: list[int]) -> None:
    whose = senders(np.array(draws, np.uint64))
    assert sorted(whose.tolist()) == list(range(len(draws)))  # each once: no message is released to two
    assert (whose != np.arange(len(draws))).all()  # nobody's own


def test_a_cohort_of_one_gets_nothing() -> None:
    assert senders(np.array([5], np.uint64)).tolist() == []
    assert senders(np.empty(0, np.uint64)).tolist() == []


def test_pairs_follow_the_draws_alone() -> None:
    draws = np.random.default_rng(0).integers(0, 2**63, 30).astype(np.uint64)
    order = np.random.default_rng(1).permutation(30)
    whose, shuffled = senders(draws), senders(draws[order])
    assert (order[shuffled] == whose[order]).all()
