"""The battery that holds other people's methods to the contract catches each kind of broken program by its name."""

from __future__ import annotations

import pytest

from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.testing.battery import CHECKS, Broken, check_method, examine
from privacy.errors import InputError
from tests.testing.broken import BROKEN, Plain

SLOW = ("workers", "bundle", "device")
NEEDS = {"device": ("bundle",)}
"""Checks that have to be passed before another can tell more."""


def test_a_program_that_keeps_every_promise_passes() -> None:
    results = check_method(Plain())
    assert [result.name for result in results] == list(CHECKS)
    assert all(result.passed for result in results), [str(result) for result in results]


def test_a_catalogue_may_be_larger_than_what_clients_know() -> None:
    simulation = [name for name in CHECKS if name not in ("specs", "numbers", "bundle", "device")]
    results = check_method(FedMF(FedMFSettings(dim=4, item_lr=20.0), 300, 1), skip=simulation)
    assert [result.passed for result in results if result.name in ("bundle", "device")] == [True, True]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_program_is_caught_by_the_check_that_names_its_fault(what: str) -> None:
    make, check = BROKEN[what]
    with pytest.raises(Broken, match=f"breaks a promise of local programs, '{check}'") as caught:
        check_method(make(), skip=[name for name in SLOW if name not in (check, *NEEDS.get(check, ()))])
    message = str(caught.value)
    assert "  found: " in message
    assert "  mend:  " in message
    first = next(result for result in caught.value.results if result.passed is False)
    assert first.name == check


def test_nothing_more_is_asked_of_a_program_that_cannot_run() -> None:
    make, check = BROKEN["a tensor trained that is not declared"]
    first, *others = examine(make())
    assert (first.name, first.passed) == (check, False)
    assert all(result.passed is None and "'specs' has to be kept first" in str(result) for result in others)


def test_wrong_questions_are_refused_in_a_line() -> None:
    with pytest.raises(InputError, match="unknown check 'lop'; did you mean 'loop'"):
        check_method(Plain(), skip=["lop"])
    with pytest.raises(InputError, match="needs a catalogue of 12 or more"):
        check_method(FedMF(FedMFSettings(dim=2), 5, 1))
