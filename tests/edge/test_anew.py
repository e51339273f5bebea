"""What a client makes anew in a round is its own, another in every round, and the same whoever else is asked about."""

import numpy as np

from edge.round_init import Normal, seed_of

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
