from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge.sampling as sampling
from edge.ragged import Ragged
from edge.round_init import Normal, seed_of
from edge.sampling import EVERYTHING, Sampler, Selection, before
from edge.steps import Packing, steps_of
from privacy.errors import InputError


def sampler(batch_size: int = 1000, negatives: int = 4, seed: int = 0) -> Sampler:
    rng = np.random.default_rng(1)
    train = Ragged.from_lists([rng.choice(50, n, replace=False) for n in (3, 0, 20, 1, 49)])
    return Sampler(train, np.arange(50), 50, negatives, batch_size, seed)


def rows(examples) -> list[tuple[np.ndarray, np.ndarray]]:
    ends = np.cumsum(examples.counts)
    return [(examples.items[a:b], examples.label[a:b]) for a, b in zip(ends - examples.counts, ends, strict=True)]


def test_every_positive_once_and_no_negative_is_a_positive() -> None:
    draws = sampler()
    for client, (items, label) in enumerate(rows(draws.epoch(np.arange(5), "federated", 1, 0))):
        own = draws.train[client]
        assert sorted(items[label == 1]) == sorted(own)
        assert not set(items[label == 0]) & set(own)
        assert (label == 0).sum() == 4 * len(own)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), st.sampled_from([3, 8, 1000]))
@settings(max_examples=40, deadline=None)
def test_a_client_draws_the_same_examples_in_any_company(clients: list[int], batch_size: int) -> None:
    draws = sampler(batch_size)
    together = rows(draws.epoch(np.array(clients), "federated", 3, 1))
    for client, (items, label) in zip(clients, together, strict=True):
        ((alone, alone_label),) = rows(draws.epoch(np.array([client]), "federated", 3, 1))
        assert (items == alone).all()
        assert (label == alone_label).all()


def test_negatives_are_uniform_over_the_rest() -> None:
    draws = Sampler(Ragged.from_lists([[0, 3]]), np.arange(10), 10, 4, 1000, 0)
    found = np.concatenate([draws.epoch(np.array([0]), "x", r, 0).items for r in range(3000)])
    counts = np.bincount(found, minlength=10)
    rest = np.delete(counts, [0, 3])
    expected = 3000 * 8 / 8
    assert ((rest - expected) ** 2 / expected).sum() < 24.3  # chi-squared, 7 degrees of freedom, p = 0.001


def test_sorted_lookup_equals_the_bitmap(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bitmap = sampler().epoch(np.arange(5), "x", 1, 0)
    monkeypatch.setattr(sampling, "BITMAP_LIMIT", 0)
    assert (sampler().epoch(np.arange(5), "x", 1, 0).items == with_bitmap.items).all()


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(1, 9),
    st.integers(2, 12),
)
@settings(max_examples=60, deadline=None)
def test_steps_hold_every_example_with_its_weight(counts: list[int], batch_size: int, catalogue: int) -> None:
    counts = sorted(counts, reverse=True)
    rng = np.random.default_rng(0)
    items = rng.integers(0, catalogue, sum(counts))
    label = (items % 3 == 0).astype(np.float32)
    examples = sampling.Examples(items, label, np.array(counts))
    steps = steps_of([examples], batch_size, catalogue)
    offsets = np.cumsum([0, *counts])
    assert len(steps.lengths) == -(-counts[0] // batch_size)
    for number, (first, last) in enumerate(pairwise(steps.bounds)):
        slots = steps.slots[steps.row[first:last]]
        assert (np.bincount(slots, minlength=len(counts)) == steps.lengths[number]).all()
        assert (np.diff(slots) >= 0).all()
        for slot in range(len(counts)):
            at = np.flatnonzero(slots == slot) + first
            start = offsets[slot] + number * batch_size
            batch = items[start : max(start, min(start + batch_size, offsets[slot + 1]))]
            expected = {item: np.sum(batch == item) / len(batch) for item in batch}
            assert dict(zip(steps.items[at], steps.weight[at], strict=True)) == pytest.approx(expected)
            assert (steps.label[at] == (steps.items[at] % 3 == 0)).all()
    pairs = sorted({(s, i) for s in range(len(counts)) for i in items[offsets[s] : offsets[s + 1]]})
    assert list(zip(steps.slots, steps.touched, strict=True)) == pairs
    assert (steps.touched[steps.row] == steps.items).all()


def test_codes_have_room_for_millions_of_items_and_no_more_than_64_bits() -> None:
    packing = Packing.of(4096, 10**7, 50)
    slot, item, step = np.array([0, 4095]), np.array([10**7 - 1, 3]), np.array([49, 0])
    codes = packing.pack(slot, item, step)
    assert (packing.slot_of(codes) == slot).all()
    assert (packing.item_of(codes) == item).all()
    assert (packing.step_of(codes) == step).all()
    assert Packing.of(93, 1136, 5).dtype is np.uint32
    with pytest.raises(OverflowError, match="do not fit"):
        Packing.of(2**30, 2**30, 2**10)


@pytest.mark.parametrize("which", [EVERYTHING, Selection(pairs=True)])
def test_what_a_client_avoids_is_never_drawn_and_changes_nothing_for_others(which: Selection) -> None:
    train = Ragged.from_lists([[0, 1, 2], [3], [4, 5, 6]])
    avoid = Ragged.from_lists([[7, 8], [], [9, 0]])
    free, bound = (Sampler(train, np.arange(12), 12, 40, 16, seed=1, avoid=more) for more in (None, avoid))
    clients = np.array([2, 0, 1])
    found = bound.epoch(clients, "rounds", 3, 0, which=which)
    ends = np.cumsum(found.counts)
    drawn = {
        client: set(found.items[end - n : end][found.label[end - n : end] == 0].tolist())
        for client, end, n in zip(clients.tolist(), ends, found.counts, strict=True)
    }
    assert drawn == {0: {3, 4, 5, 6, 9, 10, 11}, 1: set(range(12)) - {3}, 2: {1, 2, 3, 7, 8, 10, 11}}
    alone = [sampler.epoch(np.array([1]), "rounds", 3, 0, which=which).items for sampler in (free, bound)]
    np.testing.assert_array_equal(*alone)


RULE = Normal("init user", 0.5)


def test_every_round_client_purpose_and_seed_has_values_of_its_own() -> None:
    made = [
        RULE.values(seed_of(seed, number), [client], (6,))
        for seed, number, client in ((3, 1, 7), (3, 2, 7), (3, 1, 8), (4, 1, 7))
    ]
    made.append(Normal("another purpose", 0.5).values(seed_of(3, 1), [7], (6,)))
    for place, one in enumerate(made):
        for other in made[place + 1 :]:
            assert not np.isclose(one, other).any()


def test_a_client_alone_has_what_it_has_among_others() -> None:
    everybody = RULE.values(seed_of(3, 1), [4, 7, 9], (2, 3))
    assert everybody.shape == (3, 2, 3)
    assert everybody.dtype == np.float32
    np.testing.assert_array_equal(RULE.values(seed_of(3, 1), [7], (2, 3))[0], everybody[1])


def test_values_are_normal_of_its_scale() -> None:
    values = RULE.values(0, np.arange(4000), (5,)).ravel()
    assert abs(values.mean()) < 4 * 0.5 / len(values) ** 0.5
    assert abs(values.std() / 0.5 - 1) < 4 / (2 * len(values)) ** 0.5
    assert abs((np.abs(values) < 0.5).mean() - 0.6827) < 4 * (0.6827 * 0.3173 / len(values)) ** 0.5


def test_draws_change_with_round_epoch_purpose_and_seed() -> None:
    base = sampler().epoch(np.array([2]), "federated", 1, 0).items
    others = [
        sampler().epoch(np.array([2]), "federated", 2, 0),
        sampler().epoch(np.array([2]), "federated", 1, 1),
        sampler().epoch(np.array([2]), "local", 1, 0),
        sampler(seed=1).epoch(np.array([2]), "federated", 1, 0),
    ]
    assert all((base != other.items).any() for other in others)


def test_a_client_that_has_everything_is_refused() -> None:
    with pytest.raises(InputError, match=r"client 0 has 3 positives of 3 items.*negatives=0"):
        Sampler(Ragged.from_lists([[0, 1, 2]]), np.arange(3), 3, 1, 8, 0)


def test_epochs_follow_each_other_and_share_their_pairs() -> None:
    counts = np.array([5, 2])
    epochs = [sampling.Examples(np.array(i, np.int32), np.zeros(7, np.float32), counts) for i in (range(7), [1] * 7)]
    steps = steps_of(epochs, 3, 10)
    assert steps.bounds.tolist() == [0, 5, 7, 9, 10]  # batches of 3 and 2, then of 2; with one item: 1 and 1, then 1
    assert steps.items.tolist() == [0, 1, 2, 5, 6, 3, 4, 1, 1, 1]
    assert steps.weight.tolist() == pytest.approx([1 / 3] * 3 + [1 / 2] * 4 + [1.0] * 3)
    assert list(zip(steps.slots, steps.touched, strict=True)) == [*((0, i) for i in range(5)), (1, 1), (1, 5), (1, 6)]


@given(st.lists(st.lists(st.integers(0, 99), max_size=8), min_size=1, max_size=5), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_what_was_before_stays_in_its_own_row(own: list[list[int]], length: int) -> None:
    found = before(Ragged.from_lists(own), np.arange(sum(map(len, own))), length).tolist()
    expected = [([-1] * length + row[:at])[-length:] for row in own for at in range(len(row))]
    assert found == expected


def test_a_client_that_avoids_all_that_is_left_is_told() -> None:
    train, avoid = Ragged.from_lists([[0, 1]]), Ragged.from_lists([[2, 3]])
    with pytest.raises(InputError, match="client 0 has 4 positives of 4 items"):
        Sampler(train, np.arange(4), 4, 1, 16, seed=1, avoid=avoid)
