"""How ranges of a search are written and which are refused."""

import re

import pytest
from edgefr.studies.sweeps.space import Range

from privacy.errors import InputError


@pytest.mark.parametrize(
    ("text", "range_", "ends"),
    [
        ("privacy.clip=log(0.1,10)", Range("privacy.clip", "log", 0.1, 10.0), (0.1, 10.0)),
        ("rounds = int( 10 , 200 )", Range("rounds", "int", 10.0, 200.0), (10, 200)),
        ("aggregation.beta=uniform(-1e-1,1)", Range("aggregation.beta", "uniform", -0.1, 1.0), (-0.1, 1.0)),
    ],
)
def test_a_range_is_read(text, range_, ends):
    assert Range.parse(text) == range_
    assert [(type(a), a) for a in range_.ends] == [(type(b), b) for b in ends]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("privacy.clip", "--search-space takes FIELD=..."),
        ("a=5", "write log(low,high), uniform(low,high) or int(low,high)"),
        ("a=log(1)", "write log(low,high)"),
        ("a=log(1,2,3)", "write log(low,high)"),
        ("a=log(1,2) or so", "write log(low,high)"),
        ("a=lag(1,2)", "did you mean 'log'"),
        ("a=exec(1,2)", "unknown scale"),
        ("a=log(2,1)", "the lower bound comes first"),
        ("a=int(3,3)", "the lower bound comes first"),
        ("a=log(0,1)", "a logarithm needs bounds above 0"),
        ("a=int(1,2.5)", "int takes whole numbers"),
        ("a=log(1,inf)", "'inf' is no number to begin or end with"),
        ("a=log(nan,1)", "'nan' is no number"),
        ("a=log(x,1)", "'x' is no number"),
        ("a=int(1,1e300)", "'1e300' is no number"),
    ],
)
def test_what_is_no_range_is_refused(text, says):
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        Range.parse(text)
    assert "\n" not in str(refused.value)
