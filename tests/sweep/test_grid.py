"""How grids and ranges are written, which are refused, and what points are called."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefr.studies.sweeps.grid import Axis, Point, Range, product, shown
from privacy.errors import InputError


def test_numbers_that_yaml_reads_as_words_are_numbers():
    axis = Axis.parse("privacy.epsilon=[1, 2.5, 1e-3, inf, .inf, -INF]".replace(".inf, ", ""))
    assert axis == Axis("privacy.epsilon", (1, 2.5, 0.001, math.inf, -math.inf))
    assert Axis.parse("method = [fedmf, 'f3crec']") == Axis("method", ("fedmf", "f3crec"))
    assert Axis.parse("model.adapter=[[16, 8], [8]]").values == ([16, 8], [8])
    assert Axis.parse("privacy.clip=[null, 1]").values == (None, 1)
    assert Axis.parse("data=[info, e5]").values == ("info", "e5")


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Axis, "rounds", "--grid takes FIELD=..., got 'rounds'"),
        (Axis, "=[1]", "--grid takes FIELD=..."),
        (Axis, "a..b=[1]", "--grid takes FIELD=..."),
        (Axis, "rounds=[]", "the list is empty; give at least one value"),
        (Axis, "rounds=", "have to be a list; write rounds=[a, b]"),
        (Axis, "rounds=5", "have to be a list; write rounds=[5]"),
        (Axis, "rounds={a: 1}", "have to be a list"),
        (Axis, "rounds=[1, 2", "not a YAML list"),
        (Axis, "rounds=[*x]", "not a YAML list"),
        (Axis, "rounds=[!!python/object/apply:os.getcwd []]", "not a YAML list"),
        (Axis, "rounds=" + "[" * 2000, "not a YAML list"),
        (Axis, "rounds=[1, 2, 1.0]", "1 is given twice; keep one"),
        (Axis, "privacy.epsilon=[inf, .inf]", "inf is given twice"),
        (Axis, "data_options.users=[50, '50']", "50 is given twice"),
        (Range, "privacy.clip", "--search-space takes FIELD=..."),
        (Range, "a=5", "write log(low,high), uniform(low,high) or int(low,high)"),
        (Range, "a=log(1)", "write log(low,high)"),
        (Range, "a=log(1,2) or so", "write log(low,high)"),
        (Range, "a=lag(1,2)", "did you mean 'log'"),
        (Range, "a=exec(1,2)", "unknown scale"),
        (Range, "a=log(2,1)", "the lower bound comes first"),
        (Range, "a=int(3,3)", "the lower bound comes first"),
        (Range, "a=log(0,1)", "a logarithm needs bounds above 0"),
        (Range, "a=int(1,2.5)", "int takes whole numbers"),
        (Range, "a=log(1,inf)", "'inf' is no number to begin or end with"),
        (Range, "a=log(nan,1)", "'nan' is no number"),
        (Range, "a=log(x,1)", "'x' is no number"),
        (Range, "a=int(1,1e300)", "'1e300' is no number"),
    ],
)
def test_what_is_no_axis_or_range_is_refused(kind, text, says):
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        kind.parse(text)
    assert "\n" not in str(refused.value)


def test_the_product_has_every_combination_the_last_axis_fastest():
    points = product([Axis("a", (1, 2)), Axis("b", ("x", "y", "z"))])
    assert [dict(p.values) for p in points] == [{"a": a, "b": b} for a in (1, 2) for b in "xyz"]
    assert [p.name for p in points][:2] == ["a=1,b=x", "a=1,b=y"]
    assert product([]) == [Point((), "all")]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (["rounds", "rounds"], "rounds is given twice; put all its values into one"),
        (["privacy", "privacy.epsilon"], "privacy and privacy.epsilon speak of the same field"),
        (["model.lr", "model"], "model.lr and model speak of the same field"),
        (["seed"], "seed cannot be swept: every point is run with the same seeds; use --seeds"),
        (["name"], "name cannot be swept"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields, says):
    with pytest.raises(InputError, match=re.escape(says)):
        product([Axis(field, (1,)) for field in fields])


def test_fields_that_only_begin_alike_go_together_and_a_grid_nobody_can_run_is_refused():
    assert len(product([Axis("model.lr", (1,)), Axis("model.lr_items", (1,)), Axis("mod", (1,))])) == 1
    with pytest.raises(InputError, match="more than 10,000 points"):
        product([Axis(f"model.x{n}", tuple(range(100))) for n in range(30)])


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=200),
    st.lists(st.integers(), max_size=3),
)


@given(st.lists(st.tuples(st.sampled_from(["rounds", "privacy.epsilon", "../../x"]), VALUES), max_size=4))
def test_a_point_s_name_is_a_safe_folder(values):
    name = Point.of(values).name
    assert re.fullmatch(r"[A-Za-z0-9._=,-]{1,120}", name)
    assert name not in (".", "..")


@given(st.lists(VALUES, min_size=2, max_size=20))
def test_different_values_have_different_names_even_where_capitals_are_none(values):
    texts = {}
    for value in values:
        texts.setdefault(shown(value), Point.of([("field", value)]).name.casefold())
    assert len(set(texts.values())) == len(texts)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_are_shown_exactly(one, other):
    assert (shown(one) == shown(other)) == (one == other)


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
