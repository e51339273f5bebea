"""A device's own ledger: never above its policy's epsilon, whatever is asked in whatever order, whatever the clock."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from edge.device_ledger import DAY, LATEST, Spending
from edge.policy import Policy
from privacy.accounting import without_libraries
from privacy.errors import InputError
from privacy.files import packed
from privacy.guarantee import Event

LAPLACE, WIDE = Event("discrete-laplace", "l1", 4.0, steps=100), Event("discrete-laplace", "l2", 6.0, steps=100)
LOUD, NOTHING = Event("discrete-laplace", "l1", 60.0, steps=2048), Event("none")
GAUSSIAN = Event("discrete-gaussian", "l2", 7.0)
EVENTS = (LAPLACE, WIDE, LOUD, GAUSSIAN)
NOW = 1_800_000_000


def hostile(events, policy, now=NOW, every=3600):
    """A server that asks again and again; the ledger after all that was allowed, and what was refused."""
    spending, refusals = Spending(), []
    for number, event in enumerate(events):
        at = now + number * every
        refused = spending.may(event, at, policy)
        if refused is None:
            spending = spending.after(number + 1, event, 1.0, at)
        else:
            refusals.append(refused)
    return spending, refusals


def test_200_rounds_of_a_hostile_server_never_pass_the_policy():
    policy = Policy(epsilon=1.0)
    spending, refusals = hostile([WIDE] * 200, policy)
    assert 0 < len(spending.releases) < 200
    assert spending.spent(policy.delta) <= policy.epsilon
    assert without_libraries([(WIDE, len(spending.releases) + 1)], policy.delta).epsilon > policy.epsilon
    assert refusals[0].startswith("policy epsilon: ")
    assert "of 1 is spent" in refusals[0]
    assert "\n" not in refusals[0]


@given(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=200), st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]))
@settings(deadline=None, max_examples=60)
def test_in_any_order_nothing_passes_the_policy_and_what_is_spent_only_grows(events, limit):
    policy = Policy(epsilon=limit)
    spending, _ = hostile(events, policy)
    assert spending.spent(policy.delta) <= limit
    growing = [Spending(spending.releases[:n]).spent(policy.delta) for n in range(0, len(spending.releases) + 1, 7)]
    assert growing == sorted(growing)
    backwards = Spending(tuple(reversed(spending.releases)))
    assert backwards.spent(policy.delta) == spending.spent(policy.delta)


@given(st.lists(st.integers(-3 * DAY, 3 * DAY), min_size=1, max_size=120), st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_in_any_24_hours_of_its_clock_no_more_leave_than_allowed(clock, most):
    policy, spending = Policy(epsilon=1e6, releases_per_day=most), Spending()
    for number, moved in enumerate(clock):
        if spending.may(LOUD, NOW + moved, policy) is None:
            spending = spending.after(number, LOUD, 1.0, NOW + moved)
    seconds = np.array([release.seconds for release in spending.releases])
    assert (np.diff(seconds) >= 0).all()
    assert all(((seconds > end - DAY) & (seconds <= end)).sum() <= most for end in seconds)


def test_a_clock_set_back_helps_nobody():
    policy, spending = Policy(releases_per_day=2), Spending()
    for number in (1, 2):
        spending = spending.after(number, LOUD, 1.0, NOW)
    for now in (NOW, NOW - 10 * DAY, 0, -5, NOW + DAY - 1):
        assert spending.may(LOUD, now, policy).startswith("policy releases_per_day: 2 updates have left")
    assert spending.may(LOUD, NOW + DAY, policy) is None
    assert spending.after(3, LOUD, 1.0, NOW - DAY).newest == NOW
    far = spending.after(3, LOUD, 1.0, 2**80)
    assert far.newest == LATEST
    assert "9999" in Spending(far.releases).may(LOUD, NOW, Policy(releases_per_day=1))
    assert Spending().may(LOUD, NOW, Policy(releases_per_day=0)) is not None


def test_a_clock_that_jumps_ahead_begins_another_day_and_buys_no_epsilon():
    """Releases a day are counted by the device's own clock, which somebody else may set: a rate, and no guarantee."""
    policy, spending, now = Policy(epsilon=10.0, releases_per_day=2), Spending(), NOW
    for day in range(200):
        while (refused := spending.may(GAUSSIAN, now, policy)) is None:
            spending = spending.after(len(spending.releases) + 1, GAUSSIAN, 1.0, now)
        if day < 3:
            assert (len(spending.releases), refused[:23]) == (2 * day + 2, "policy releases_per_day")
        now += DAY
    assert refused.startswith("policy epsilon: ")
    assert spending.spent(policy.delta) <= policy.epsilon


def test_without_noise_epsilon_is_infinite_and_only_unprotected_allows_it():
    for event in (NOTHING, Event("unclipped")):
        refused = Spending().may(event, NOW, Policy(epsilon=1e9))
        assert refused.startswith("policy unprotected: this one has no bound")
        assert Spending().may(event, NOW, Policy(unprotected=True)) is None
        after = Spending().after(1, event, None, NOW)
        assert after.spent(1e-5) == math.inf
        assert "an earlier one" in after.may(LAPLACE, NOW, Policy(epsilon=1e9))
    spent, _ = hostile([LAPLACE] * 40, Policy(epsilon=1.0, unprotected=True))
    assert spent.spent(1e-5) <= 1.0  # unprotected lifts no limit of what is protected


def test_a_ledger_comes_back_from_its_arrays_as_it_was():
    spending, _ = hostile(EVENTS * 5, Policy())
    spending = spending.after(77, NOTHING, None, NOW - DAY)
    arrays = load(packed(spending.arrays(), {}))
    assert Spending.of(arrays) == spending
    assert {name: array.dtype.kind for name, array in arrays.items() if array.dtype.kind not in "iuf"} == {}


def damages():
    yield "a column is missing", lambda a: a.pop("steps")
    yield "there is another column", lambda a: a.update(other=a["steps"])
    yield "one is shorter", lambda a: a.update(steps=a["steps"][:-1])
    yield "all but one are shorter", lambda a: a.update({n: v[:-1] for n, v in a.items() if n != "round"})
    yield "another type", lambda a: a.update(multiplier=a["multiplier"].astype(np.float32))
    yield "a matrix", lambda a: a.update(clip=a["clip"][None])
    yield "no axis", lambda a: a.update(round=np.int64(3))
    yield "names cut", lambda a: a.update(mechanism=a["mechanism"][:, :5])
    yield "an unknown mechanism", lambda a: a["mechanism"].__setitem__((0, 0), 88)
    yield "a name that is no text", lambda a: a["mechanism"].__setitem__((0, 0), 255)
    yield "no name", lambda a: a["mechanism"].fill(0)
    yield "an unknown norm", lambda a: a["norm"].fill(2)
    yield "noise that is no number", lambda a: a["multiplier"].fill(np.nan)
    yield "endless noise", lambda a: a["multiplier"].fill(np.inf)
    yield "negative noise", lambda a: a["multiplier"].fill(-1)
    yield "no noise though it is named", lambda a: a["multiplier"].fill(0)
    yield "no steps", lambda a: a["steps"].fill(0)
    yield "negative steps", lambda a: a["steps"].fill(-4)
    yield "a clip of zero", lambda a: a["clip"].fill(0)
    yield "a clip that is no number", lambda a: a["clip"].fill(np.nan)
    yield "a negative round", lambda a: a["round"].fill(-1)
    yield "a negative time", lambda a: a["seconds"].fill(-1)
    yield "a time without a date", lambda a: a["seconds"].fill(2**62)
    yield "times that go back", lambda a: a["seconds"].__setitem__(0, a["seconds"][-1] + 1)


@pytest.mark.parametrize("damage", [pytest.param(change, id=name) for name, change in damages()])
def test_damaged_arrays_are_refused_in_one_line(damage):
    arrays = {name: array.copy() for name, array in hostile(EVENTS * 2, Policy())[0].arrays().items()}
    damage(arrays)
    with pytest.raises(InputError, match=r"ledger of releases is damaged .* restore its state from a copy") as caught:
        Spending.of(arrays)
    assert "\n" not in str(caught.value)


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_a_flipped_byte_is_refused_or_is_another_ledger(data):
    arrays = {name: array.copy() for name, array in hostile(EVENTS, Policy())[0].arrays().items()}
    name = data.draw(st.sampled_from(sorted(arrays)))
    content = arrays[name].view(np.uint8).reshape(-1)
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = Spending.of(arrays)
    except InputError:
        return
    assert found.spent(1e-5) >= 0
    assert {name: array.tolist() for name, array in found.arrays().items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_an_empty_ledger_has_spent_nothing():
    assert Spending().spent(1e-5) == 0.0
    assert Spending.of(Spending().arrays()) == Spending()
    with pytest.raises(ValueError, match="took part"):
        Spending().after(1, Event("gaussian", multiplier=4.0, sampling=0.5), 1.0, NOW)


def test_a_policy_and_a_ledger_need_nothing_heavy():
    heavy = ["torch", "pandas", "scipy", "dp_accounting", "transformers", "pyarrow", "matplotlib", "opendp"]
    program = f"""
import json, sys
sys.modules |= dict.fromkeys({heavy!r})
from edge.policy import Policy
from edge.device_ledger import Spending
from privacy.guarantee import Event
spending = Spending()
for number in range(20):
    event = Event("discrete-gaussian", "l2", 6.0)
    if spending.may(event, 1_800_000_000, Policy(epsilon=2.0)) is None:
        spending = spending.after(number, event, 1.0, 1_800_000_000)
print(json.dumps([len(spending.releases), spending.spent(1e-5)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    count, spent = json.loads(done.stdout)
    assert count > 3
    assert spent <= 2.0
