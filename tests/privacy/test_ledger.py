"""The ledger: nobody exceeds the budget, nothing is forgotten, and another run's ledger is refused."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.accounting import composed, gaussian_epsilon
from privacy.errors import InputError
from privacy.guarantee import Event
from privacy.ledger import COLUMNS, Ledger
from privacy.report import ledger_report
from privacy.report_rows import render_ledger

DELTA = 1e-5
G4, G8 = Event("gaussian", multiplier=4.0), Event("gaussian", multiplier=8.0)
Z2 = Event("laplace", "l2", 2.0)
OTHER = Event("gaussian", multiplier=8.0, recipient="another client")
EVENTS = [G4, G8, Z2, OTHER]


def made(clients=5, **values):
    return Ledger(clients, **({"delta": DELTA, "adjacency": "zero-out", "run": "abc"} | values))


def literal(history):
    """Epsilon of a client from the plain list of its releases."""
    return composed([(event, 1) for event in history], DELTA).epsilon


COHORTS = st.lists(st.tuples(st.sets(st.integers(0, 4)).map(sorted), st.sampled_from(EVENTS)), min_size=1, max_size=25)


@given(COHORTS, st.floats(0.3, 6.0))
@settings(max_examples=40, deadline=None)
def test_the_filter_never_lets_a_client_exceed_the_budget_nor_refuses_without_need(cohorts, budget):
    ledger, history = made(budget=budget), [[] for _ in range(5)]
    for clients, event in cohorts:
        allowed = ledger.try_spend(np.asarray(clients, dtype=np.int64), event)
        for client, may in zip(clients, allowed.tolist(), strict=True):
            assert may == (literal([*history[client], event]) <= budget)
            if may:
                history[client].append(event)
    np.testing.assert_allclose(ledger.epsilon(), [literal(h) for h in history], rtol=1e-12)
    assert (ledger.epsilon() <= budget).all()
    assert ledger.worst()[0].epsilon == ledger.epsilon().max()
    assert ledger.releases().tolist() == [len(h) for h in history]
    assert ledger.refused().sum() == sum(len(c) for c, _ in cohorts) - sum(map(len, history))


@given(COHORTS, st.integers(0, 25))
@settings(max_examples=25, deadline=None)
def test_a_checkpoint_and_a_file_forget_nothing(cohorts, at):
    whole, cut = made(budget=2.0), made(budget=2.0)
    for clients, event in cohorts:
        whole.try_spend(np.asarray(clients, dtype=np.int64), event)
    for clients, event in cohorts[:at]:
        cut.try_spend(np.asarray(clients, dtype=np.int64), event)
    resumed = made(budget=2.0)
    resumed.load_state_dict(cut.state_dict())
    for clients, event in cohorts[at:]:
        resumed.try_spend(np.asarray(clients, dtype=np.int64), event)
    read = Ledger.from_columns(whole.facts(), whole.columns())
    for other in (resumed, read):
        np.testing.assert_array_equal(other.epsilon(), whole.epsilon())
        np.testing.assert_array_equal(other.refused(), whole.refused())
        assert {n: list(c) for n, c in other.columns().items()} == {n: list(c) for n, c in whole.columns().items()}


def test_the_budget_is_met_by_the_tight_bound_not_by_the_quick_one():
    """Forty Laplace rounds at b / sensitivity 4: RDP says 7.17, privacy-loss distributions 6.78."""
    laplace = Event("laplace", "l1", 4.0)
    ledger = made(budget=6.9)
    assert all(ledger.try_spend([0], laplace)[0] for _ in range(40))
    assert ledger.epsilon([0])[0] == pytest.approx(6.782, abs=1e-3)
    assert not all(ledger.try_spend([0], laplace)[0] for _ in range(3))
    assert ledger.epsilon([0])[0] <= 6.9


@pytest.mark.parametrize(("share", "third"), [(1 - 1e-6, False), (1.0, True), (1 + 1e-6, True)])
def test_a_budget_just_below_at_and_above_what_three_releases_cost(share, third):
    ledger = made(budget=gaussian_epsilon(4.0, 3, DELTA) * share)
    assert [ledger.try_spend([0], G4)[0] for _ in range(4)] == [True, True, third, False]


def test_golden_rounds_until_a_local_budget_of_8_at_sigma_four_clips():
    """The GDP filter of the handbook: mu**2 = 2.776 leaves 11 rounds."""
    ledger = made(budget=8.0, adjacency="replace-one")
    taken = sum(ledger.try_spend([3], Event("gaussian", multiplier=2.0))[0] for _ in range(20))
    assert taken == 11
    assert ledger.refused().tolist() == [0, 0, 0, 9, 0]


def test_amplification_and_a_ledger_exclude_each_other():
    with pytest.raises(InputError, match="amplification by sampling must hide"):
        made().try_spend([0], Event("gaussian", multiplier=1.0, sampling=0.1))
    assert made().events == []


@pytest.mark.parametrize(
    ("clients", "message"), [([1, 1], "named twice"), ([5], "clients 0 to 4"), ([-1], "clients 0")]
)
def test_refuses_impossible_clients(clients, message):
    ledger = made()
    with pytest.raises(ValueError, match=message):
        ledger.try_spend(clients, G4)
    assert not ledger.releases().any()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 0.0}, "budget must be above 0"),
        ({"budget": math.nan}, "budget must be above 0, got nan"),
        ({"delta": 1.0}, "delta must be between 0 and 1"),
        ({"adjacency": "replace"}, "replace-one or zero-out"),
    ],
)
def test_refuses_an_impossible_ledger(values, message):
    with pytest.raises(InputError, match=message):
        made(**values)


@pytest.mark.parametrize(
    "values", [{"run": "other"}, {"delta": 1e-6}, {"budget": 2.0}, {"adjacency": "replace-one"}, {"clients": 6}]
)
def test_refuses_the_state_of_another_run(values):
    other = made(**values)
    other.spend([0], G4)
    ledger = made()
    with pytest.raises(InputError, match=f"the ledger is of another run: its {next(iter(values))} is"):
        ledger.load_state_dict(other.state_dict())
    assert not ledger.releases().any()


@pytest.mark.parametrize(
    "damage",
    [
        {"released": np.full((1, 5), -1, np.int32)},
        {"released": np.full((1, 5), 2**31, np.int64)},
        {"released": np.zeros((1, 4), np.int32)},
        {"released": np.zeros((2, 5), np.int32)},
        {"released": np.zeros((1, 5))},
        {"released": None},
        {"refused": np.zeros((1, 4), np.int32)},
        {"events": [{"mechanism": "gausian"}]},
        {"events": [{"mechanism": "gaussian", "sigma": 1.0}]},
        {"events": None},
    ],
)
def test_refuses_a_damaged_state(damage):
    ledger = made()
    ledger.spend([0], G4)
    before = ledger.epsilon()
    with pytest.raises(InputError, match="the ledger is damaged"):
        ledger.load_state_dict({**ledger.state_dict(), **damage})
    np.testing.assert_array_equal(ledger.epsilon(), before)


@pytest.mark.parametrize(
    ("facts", "columns"),
    [
        ({"schema": "edgefr.ledger/2"}, {}),
        ({"clients": "-1"}, {}),
        ({"clients": "9" * 20}, {}),
        ({"clients": "1"}, {}),
        ({"delta": "nan"}, {}),
        ({"adjacency": "none"}, {}),
        ({}, {"releases": np.array([-1, 1])}),
        ({}, {"releases": np.array([0.5, 1.0])}),
        ({}, {"client": np.array([0, 0])}),
        ({}, {"client": np.array([0, 7])}),
        ({}, {"client": np.array([0])}),
        ({}, {"multiplier": np.array([4.0, math.nan])}),
        ({}, {"mechanism": ["gaussian", "magic"]}),
    ],
)
def test_refuses_a_damaged_file(facts, columns):
    ledger = made()
    ledger.spend([0, 2], G4)
    with pytest.raises(InputError, match="not a whole ledger"):
        Ledger.from_columns({**ledger.facts(), **facts}, {**ledger.columns(), **columns})


def test_an_empty_ledger_is_a_file_too():
    read = Ledger.from_columns(made().facts(), made().columns())
    assert (len(read), read.releases().sum(), read.worst()[0].epsilon) == (5, 0, 0.0)
    assert tuple(made().columns()) == COLUMNS


def test_report_names_the_worst_client_and_those_who_sat_out():
    ledger = made(budget=1.5)
    for clients in ([0, 1], [0], [0], [2]):
        ledger.try_spend(clients, G4)
    out = ledger_report(ledger)
    assert out["eps_guaranteed"] == pytest.approx(gaussian_epsilon(4.0, 2, DELTA), rel=1e-12)
    assert (out["clients_refused"], out["refusals"]) == (1, 1)
    assert out["releases_per_client"] == {"max": 2, "median": 1.0}
    assert [(row["mechanism"], row["releases"]) for row in out["composed"]] == [("gaussian", 2)]
    assert json.loads(json.dumps(out, allow_nan=False)) == out
    assert dict(render_ledger(out))["Sat out"] == "1 of 5 clients, 1 times; budget 1.5"


def test_to_be_admitted_costs_nothing_and_to_be_refused_is_counted():
    ledger = made(budget=1.5)  # two releases at 4
    ledger.spend([0, 1], G4)
    ledger.spend([0], G4)
    assert ledger.admit([2, 0, 1], G4).tolist() == [True, False, True]
    assert ledger.releases().tolist() == [2, 1, 0, 0, 0]
    assert ledger.refused().tolist() == [1, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="named twice"):
        ledger.admit([1, 1], G4)


def test_a_state_is_arrays_and_json():
    ledger = made()
    ledger.spend([0, 2], G4)
    state = ledger.state_dict()
    arrays = {name for name, value in state.items() if isinstance(value, np.ndarray)}
    assert arrays == {"released", "refused"}
    json.dumps({name: value for name, value in state.items() if name not in arrays}, allow_nan=False)
    state["released"][:] = 0  # a state is a copy
    assert ledger.releases().tolist() == [1, 0, 1, 0, 0]


def test_two_recipients_are_two_entries():
    ledger = made()
    ledger.spend([1], G8)
    ledger.spend([1], OTHER)
    assert ledger.epsilon([1])[0] == composed([(G8, 2)], DELTA).epsilon
    assert ledger.columns()["recipient"] == ["server", "another client"]
    guaranteed, made_of = ledger.worst()
    assert made_of == [(G8, 1), (OTHER, 1)]
    assert guaranteed.method == "GDP closed form"


def test_release_without_a_guarantee_is_infinite_and_never_within_a_budget():
    ledger = made(budget=100.0)
    assert not ledger.try_spend([0], Event("paper-laplace"))[0]
    ledger.spend([0], Event("paper-laplace"))
    ledger.spend([0], G4)
    assert ledger.epsilon().tolist() == [math.inf, 0, 0, 0, 0]
    assert not ledger.try_spend([0], G4)[0]


def test_refused_clients_are_not_charged_and_others_are():
    ledger = made(budget=1.0)
    assert ledger.try_spend([4, 1], G4).tolist() == [True, True]
    assert ledger.try_spend([1, 2, 4], G4).tolist() == [False, True, False]
    assert ledger.releases().tolist() == [0, 1, 1, 0, 1]
