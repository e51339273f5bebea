"""A round that waits says how many answers it has, and how many it needs, of whichever kind it is."""

from __future__ import annotations

import io
import threading
from pathlib import Path

from edgefr.config.progress import logged
from edgefr.serving.round_status import awaited
from tests.remote.test_buffered import Alone
from tests.remote.test_sealing import USERS, VECTORS, World
from tests.remote.worlds import fedmf, serving, take_part


def test_a_server_says_what_its_open_round_waits_for(tmp_path: Path) -> None:
    twins, told, file = fedmf().own(tmp_path), [], io.StringIO()

    def progress(*said: object) -> None:
        told.append(said)
        report(*said)  # type: ignore[arg-type]

    with (
        logged(file, first=0.05) as report,
        serving(twins.begun, tmp_path / "served", 1, progress=progress) as (url, future),
    ):
        while "answers" not in file.getvalue():
            threading.Event().wait(0.05)
        take_part(twins, url, tmp_path / "states", list(twins.users))
        future.result(60)
    assert "answers 0/6: round 1, 3 needed\n" in file.getvalue()
    counts = [said[1] for said in told if said[0] == "answers"]
    assert counts[0] == 0
    assert counts == sorted(set(counts)), "each count is told once, however often devices ask"
    assert {said[2:] for said in told if said[0] == "answers"} == {(6, "round 1, 3 needed")}


def test_a_sum_under_masks_says_which_step_it_waits_in() -> None:
    world, told = World(), []
    inner = world.round.collect
    world.round.collect = lambda timeout_s: inner(timeout_s, lambda *said: told.append(said))  # type: ignore[method-assign,assignment]
    assert world.collected(VECTORS) is not None
    assert told[0] == (0, len(USERS), " or more, step keys of a secure sum")
    assert {of for _, of, _ in told} == {len(USERS)}


def test_a_round_that_waits_for_nobody_says_who_is_at_work() -> None:
    alone = Alone()
    leader = alone.open(5)
    for device in "abc":
        assert alone.asks(device, 0)
        alone.broker.submit(device, 5, alone.release(5))
    leader.join(10)
    assert alone.told[0] == (0, 3, ", 0 at work")
    assert (0, 3, ", 1 at work") in alone.told


def test_what_hears_of_it_holds_no_lock() -> None:
    changed, there, free = threading.Condition(), [], []

    def tell(count: int) -> None:
        found = threading.Thread(target=lambda: free.append(changed.acquire(timeout=5)) or changed.release())
        found.start()
        found.join()
        there.append(count)

    awaited(changed, lambda: len(there) > 2, lambda: len(there), 10.0, tell)
    assert (there, free) == ([0, 1, 2], [True] * 3)
