"""Every planted fault fails the test that is named for it, in a copy of the source; the copy without it passes them.

What is quick holds that every fault still fits the present source. Those of the files that `EDGEFR_CHANGED` names are
planted then, too, or an even choice of `MOST` of them; all are by `pytest -m '' tests/mutants`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.mostly_slow import mostly_slow
from tests.mutants.faults import FAULTS
from tests.mutants.planted import Copy, Fault
from tests.mutants.table import README, table

MOST = 30


def of_changed_files() -> list[Fault]:
    """Return the faults that are planted in a changed file, or caught by one."""
    changed = set(os.environ.get("EDGEFR_CHANGED", "").split())
    found = [fault for fault in FAULTS if {fault.file, fault.caught_by.partition("::")[0]} & changed]
    return found[:: -(-len(found) // MOST) or 1]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    with Copy.made(tmp_path_factory.mktemp("planted") / "source") as made:
        yield made


def test_every_fault_can_be_planted_in_the_source_as_it_is() -> None:
    """A fault whose text has gone plants nothing: give it the text that took its place."""
    assert [stale for fault in FAULTS if (stale := fault.stale()) is not None] == []
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert len(FAULTS) >= 25


def test_the_table_is_that_of_the_faults() -> None:
    """Write it again with `python -m tests.mutants.table`."""
    assert README.read_text(encoding="utf-8") == table(FAULTS)


@pytest.mark.slow
def test_the_copy_as_it_is_passes_what_catches_faults(copy: Copy) -> None:
    """Each sixth of them: the source itself has passed them all in the suite, so this is about the copy."""
    answer = copy.run(sorted({fault.caught_by for fault in FAULTS})[::6])
    assert (answer.code, answer.failed, answer.strays) == (0, [], []), answer.log[-4000:]


@pytest.mark.parametrize("fault", mostly_slow(FAULTS, of_changed_files()), ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(copy: Copy, fault: Fault) -> None:
    with copy.with_fault(fault):
        answer = copy.run([fault.caught_by])
    assert answer.strays == [], "modules of another copy were used"
    assert fault.file in answer.used, f"{fault.caught_by} does not use {fault.file}"
    assert answer.code == 1, f"{fault.caught_by} does not fail:\n{answer.log[-4000:]}"
    kinds = {kind for _, _, kind, _ in answer.failed}
    assert kinds <= set(fault.error), f"it fails by {kinds}, and not by what the fault is:\n{answer.log[-4000:]}"


@pytest.mark.slow
def test_a_copy_is_whole_again_after_a_fault(copy: Copy) -> None:
    fault = FAULTS[0]
    before = (copy.folder / fault.file).read_text(encoding="utf-8")
    with copy.with_fault(fault):
        assert fault.stale(copy.folder) is not None
    assert (copy.folder / fault.file).read_text(encoding="utf-8") == before
