"""So many neighbours must help to open a secret that no server with its helpers has both secrets of one device."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest

from privacy.neighbours import EVERYBODY, HELPERS, MOST, SECURITY, part_of, threshold


@pytest.mark.parametrize(("helpers", "exact"), [(HELPERS, Fraction(1, 10)), (0.05, Fraction(1, 20)), (0.0, Fraction())])
def test_of_a_few_all_are_in_view_and_the_shares_of_both_secrets_are_too_few(helpers: float, exact: Fraction) -> None:
    """An honest neighbour gives a share of one secret, a helper one of each, and both secrets take twice as many."""
    for neighbours in range(1, EVERYBODY):
        helping = ceil(exact * (neighbours + 1))
        assert part_of(helpers, neighbours + 1) == helping
        honest = neighbours - min(helping, neighbours)
        assert 2 * threshold(neighbours, helpers) > honest + 2 * min(helping, neighbours)
        assert 2 * (threshold(neighbours, helpers) - 1) <= honest + 2 * min(helping, neighbours), "and no more"


@pytest.mark.parametrize("neighbours", [100, 101, 130, 230, 310, 1000])
@pytest.mark.parametrize("helpers", [HELPERS, 0.05, 0.2])
def test_of_many_the_chance_of_too_many_helpers_is_small_whatever_they_were_drawn_from(
    neighbours: int, helpers: float
) -> None:
    """The law by scipy's hypergeometric one: neighbours are drawn from cohorts of all sizes that a sum can have."""
    from scipy.stats import hypergeom

    allowed = 2 * threshold(neighbours, helpers) - neighbours - 1  # helpers with which both secrets stay closed
    near = range(neighbours + 1, neighbours + 300)
    for devices in (*near, 500, 1000, 1999, 2000, 5001, 10_000, 30_001, MOST):
        if devices > neighbours:
            worst = hypergeom.sf(allowed, devices - 1, part_of(helpers, devices), neighbours)
            assert devices * worst <= 2.0**-SECURITY, (devices, worst)


def test_where_all_may_help_there_is_no_sum() -> None:
    assert threshold(2, 0.99) > 2
    assert threshold(200, 0.999) > 200
    assert threshold(200, 0.0) == 101
