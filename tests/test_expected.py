"""What utility can be expected: placed by noise-to-signal, between measured points, and never beyond them."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefr.cli.app import app
from edgefr.expected import expect as expecting
from edgefr.expected import show
from edgefr.expected.expect import Expected, Range, Setting, expect, held_out
from edgefr.expected.points import Curve, curves, noise_to_signal
from edgefr.expected.show import Plan, expected_utility
from privacy.errors import InputError

HEAD = (
    "method,data,seed,clients,items,values,rounds,epsilon,delta,clip,std_on_mean,rate,validation,test,chance,reference"
)
STD = {"inf": 0.0, "8": 0.01, "2": 0.04}


def table(path: Path, share: dict[str, tuple[float, float, float]], seeds: int = 2) -> Path:
    """A table of seeds .01 to both sides of these shares of a reference of .2 (chance .05), at epsilon inf, 8, 2."""
    rows = []
    for data, levels in share.items():
        for (epsilon, std), level in zip(STD.items(), levels, strict=True):
            for seed in range(seeds):
                test = 0.2 * (level + (0.01, -0.01)[seed % 2])
                rows.append(f"fedmf,{data},{seed},900,800,6400,16,{epsilon},1e-05,1.0,{std},10,0.1,{test},0.05,0.2")
                worse = f"fedmf,{data},{seed},900,800,6400,16,{epsilon},1e-05,1.0,{std},99,0.0,9,0.05,0.2"
                rows += [worse] if seed == 0 else []  # a rate that is not chosen
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Curve, ...]]:
    """Three data sets, of which one has a second size."""
    own = {'"a, large"': (1.4, 1.2, 0.8), '"a, small"': (1.4, 1.2, 0.8), "b": (1.5, 1.1, 0.6), "c": (1.3, 1.0, 0.7)}
    found = curves(table(tmp_path / "measured.csv", own))
    monkeypatch.setattr(expecting, "curves", lambda: found)
    return found


def test_the_noise_over_the_signal_is_that_of_all_rounds() -> None:
    assert noise_to_signal(std_on_mean=0.01, clip=1.0, values=6400, rounds=16) == 0.2  # .01 x 80 / 4


def test_rounds_cancel_out_of_it_at_one_epsilon_and_clients_do_not() -> None:
    few, many = (Setting("fedmf", 900, 800, rounds, 6400).noise(8.0) for rounds in (5, 80))
    assert few == pytest.approx(many, rel=0.02)
    assert Setting("fedmf", 1800, 800, 5, 6400).noise(8.0) == pytest.approx(few / 2)
    local = Setting("fedmf", 900, 800, 5, 6400, trust="local").noise(8.0)
    assert local == pytest.approx(2 * math.sqrt(900) * few)  # replace-one doubles, and noise is added 900 times
    assert Setting("fedmf", 900, 800, 5, 6400).noise(math.inf) == 0.0


def test_points_are_means_over_seeds_at_the_rate_chosen_on_validation(measured: dict[str, tuple[Curve, ...]]) -> None:
    points = measured["fedmf"][0].points
    assert [round(point.noise, 6) for point in points] == [0.0, 0.2, 0.8]
    assert [round(point.share.mean, 9) for point in points] == [1.4, 1.2, 0.8]
    assert points[1].share.sd == pytest.approx(0.02 / math.sqrt(2))
    assert points[0].kept.mean == 1.0
    expected = [(1.21 * 0.2 - 0.05) / (1.41 * 0.2 - 0.05), (1.19 * 0.2 - 0.05) / (1.39 * 0.2 - 0.05)]
    assert points[1].kept.mean == pytest.approx(sum(expected) / 2)


def test_between_points_the_logarithm_of_the_noise_counts(measured: dict[str, tuple[Curve, ...]]) -> None:
    curve = measured["fedmf"][0]
    assert curve.at(0.4, "share")[0] == pytest.approx(1.0)  # half way from .2 to .8 by factors
    assert curve.at(0.1, "share")[0] == pytest.approx(1.3)  # half way from 0 to .2
    assert not curve.covers(0.81)


def test_data_sets_count_once_each_and_are_held_out_whole(measured: dict[str, tuple[Curve, ...]]) -> None:
    found = held_out(measured["fedmf"])
    errors = [
        *[1.4 - 1.4, 1.2 - 1.05, 0.8 - 0.65] * 2,
        1.5 - 1.35,
        1.1 - 1.1,
        0.6 - 0.75,
        1.3 - 1.45,
        1.0 - 1.15,
        0.7 - 0.7,
    ]
    assert sorted(found.errors) == pytest.approx(sorted(errors))
    sd = 0.02 / math.sqrt(2)
    assert found.inside == 4  # a without noise, twice, b at epsilon 8 and c at epsilon 2
    assert found.outside(0.2) == pytest.approx(0.1 - sd)  # a at epsilon 8, above the highest of b and c


def test_an_interval_spans_the_curves_and_what_held_out_ones_missed(measured: dict[str, tuple[Curve, ...]]) -> None:
    setting = Setting("fedmf", 900, 800, 16, 6400)
    [one] = expect(setting, [math.inf])
    assert one.share is not None
    sd, outside = 0.02 / math.sqrt(2), held_out(measured["fedmf"]).outside(0.0)
    assert one.share.mean == pytest.approx(1.4)
    assert (one.share.low, one.share.high) == pytest.approx((1.3 - sd - outside, 1.5 + sd + outside))
    assert one.kept == Range(1.0, 1.0, 1.0)
    assert one.verdict == "usable"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cohort": 901}, "901 clients in a round, measured: 900 to 900"),
        ({"rounds": 17}, "17 rounds, measured: 16 to 16"),
        ({"items": 799}, "799 items, measured: 800 to 800"),
        ({"values": 6401}, "6,401 released values, measured: 6,400 to 6,400"),
    ],
)
def test_nothing_is_said_beyond_what_was_measured(
    changed: dict[str, int], why: str, measured: dict[str, tuple[Curve, ...]]
) -> None:
    values = {"cohort": 900, "items": 800, "rounds": 16, "values": 6400} | changed
    [one] = expect(Setting("fedmf", **values), [math.inf])
    assert (one.share, one.kept, one.verdict) == (None, None, "not measured")
    assert one.why == why
    assert [point.data for point in one.near] == ["a, large", "a, small", "b", "c"]


def test_other_numbers_of_rounds_are_another_matter() -> None:
    few = expected_utility("fedmf", 943, 1682, 6)  # five rounds were measured on one data set alone
    assert {one.verdict for one in few.expected} == {"not measured"}
    assert "about 6 rounds were measured on fewer than two data sets" in few.notes[0]
    json.dumps(few.record(), allow_nan=False)


def test_more_noise_than_two_data_sets_had_is_not_measured(measured: dict[str, tuple[Curve, ...]]) -> None:
    one, other = expect(Setting("fedmf", 900, 800, 16, 6400), [8.0, 0.05])
    assert one.share is not None
    assert other.share is None
    assert other.why.endswith("measured on two data sets: 0 to 0.8")


def test_where_all_lies_below_what_needs_no_learning_no_point_is_usable() -> None:
    def one(low: float, high: float) -> Expected:
        return Expected(1.0, 0.1, Range((low + high) / 2, low, high), None, ())

    setting = Setting("fedmf", 900, 800, 16, 6400)
    assert [one(*ends).verdict for ends in ((0.5, 1.0), (0.9, 1.1), (1.01, 2.0))] == [
        "no usable point",
        "not certain",
        "usable",
    ]
    assert Plan(setting, [one(0.5, 0.9)] * 2).verdict.startswith("no usable point: at no epsilon")


def test_the_table_that_ships_can_be_planned_by() -> None:
    for method, own in curves().items():
        assert len({curve.source for curve in own}) >= 2, method
        assert all(curve.points[0].epsilon == math.inf for curve in own)
        assert max(point.share.number for curve in own for point in curve.points) >= 2
        assert len(held_out(own).errors) >= 5
    with open(Path(show.__file__).parent / "measured.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(r["method"], r["data"], r["seed"], r["epsilon"], r["rate"]) for r in rows}) == len(rows)


def test_a_plan_is_printed_with_its_uncertainty() -> None:
    asked = ["privacy", "--plan", "--clients", "943", "--items", "1682", "--rounds", "20"]
    done = CliRunner().invoke(app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found == expected_utility("fedmf", 943, 1682, 20).record()
    assert (found["method"], found["cohort"], found["values"]) == ("fedmf", 943, 13456)
    assert [row["epsilon"] for row in found["expected"]] == [1.0, 4.0, 8.0, "inf"]
    assert found["held_out"]["points"] >= 5
    shares = [row["share_of_best_reference"] for row in found["expected"] if row["share_of_best_reference"]]
    assert len(shares) >= 3
    assert all(share["low"] <= share["mean"] <= share["high"] for share in shares)
    text = CliRunner().invoke(app, asked).output
    assert "each data set expected from the others: off by" in " ".join(text.split())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--plan", "--clients", "943"], "--plan needs --clients, --items and --rounds"),
        (["--plan", "--clients", "9", "--items", "9", "--rounds", "9", "--sigma", "3"], "does not read --sigma"),
        (["--plan", "--clients", "9", "--items", "9", "--rounds", "9", "--trust", "me"], "unknown trust 'me'"),
        (["--plan", "--clients", "9", "--items", "9", "--rounds", "9", "--method", "f"], "unknown measured method"),
        (["--plan", "--clients", "9", "--items", "9", "--rounds", "9", "--epsilon", "0"], "epsilon must be above 0"),
        (["--plan", "--clients", "9", "--clients-per-round", "10", "--items", "9", "--rounds", "9"], "1 to 9 clients"),
        (["--plan", "somewhere"], "drop the run, or drop --plan"),
        (["--items", "9"], "--items is read by --plan alone"),
    ],
)
def test_what_a_plan_does_not_read_is_refused(given: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, ["privacy", *given])
    assert isinstance(done.exception, InputError)
    assert problem in str(done.exception)
