"""Who is at work, who waits and who rests, by a clock that the test moves: nothing here waits for a time to pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edge.connection import RoundTask
from edge.update import ClientUpdate
from edgefr.serving import fedbuff as buffered
from edgefr.serving.broker import RoundBroker
from edgefr.serving.fedbuff import ASKED_S, BufferedBroker, Buffering

LEARNING: Any = SimpleNamespace(release=SimpleNamespace(own_noise=None))
PATIENCE_S = 60.0


class Clock:
    """It moves by `step` seconds whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now, self.step = 1000.0, 1.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def read(device: str, number: int, content: bytes) -> ClientUpdate:
    """Take any content for a release."""
    return SimpleNamespace(round=number)  # type: ignore[return-value]


class Alone:
    """A broker of devices a to d, of whom `hands` may be at work; `buffer` uploads fill a round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hands: int = 1, buffer: int = 1) -> None:
        self.clock, self.started = Clock(), list[str]()
        terms = Buffering(buffer, hands, 0.5, 3)
        self.broker = BufferedBroker(dict.fromkeys("abcd", "phone"), LEARNING, 9, terms, clock=self.clock)
        monkeypatch.setattr(self.broker, "_read", read)
        monkeypatch.setattr(buffered, "LOOK_S", 0.0)

    def round(self, number: int, asking: str, may: str = "abcd", then: Callable[[str], None] = lambda one: None) -> int:
        """Open a round, let devices ask, and lead it; the virtual seconds that it took. `then` hears who starts."""
        self.broker.open(number, {"phone": b"from"}, may)
        self.clock.step = 0.0
        for device in asking:
            self.broker.task(device, number - 1)
        self.clock.step, began = 1.0, self.clock.now

        def started(found: list[str]) -> None:
            self.started += found
            for device in found:
                then(device)

        self.uploads = [one.device for one in self.broker.gather(PATIENCE_S, 1, started)]
        return round(self.clock.now - began)


def test_a_silent_device_holds_up_a_round_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    assert alone.round(1, "ab") >= PATIENCE_S
    assert alone.started == ["a"], "one may be at work, and it was silent"
    alone.round(2, "b")
    assert alone.started == ["a", "b"], "the silent one holds its place no longer"


def test_a_device_that_is_at_work_for_less_than_a_round_holds_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.broker.resume({"a": 1}, {})
    alone.clock.now += PATIENCE_S / 2
    alone.broker.open(2, {"phone": b"from"}, "abcd")
    alone.broker.task("b", 1)
    assert alone.broker._next(PATIENCE_S) == []
    alone.clock.now += PATIENCE_S / 2
    alone.broker.task("b", 1)
    assert alone.broker._next(PATIENCE_S) == ["b"]


def test_who_asked_long_ago_is_not_there_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch, hands=4)
    alone.broker.open(1, {"phone": b"from"}, "abcd")
    for device in "cab":
        alone.broker.task(device, 0)
    alone.clock.now += ASKED_S / 2
    alone.broker.task("a", 0)
    assert alone.broker._next(PATIENCE_S) == ["c", "a", "b"], "first come, first served"
    alone.clock.now += ASKED_S / 2
    assert alone.broker._next(PATIENCE_S) == ["a"]


def test_a_device_that_lost_its_work_and_may_not_start_again_holds_up_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no budget left for another start, and asks: so nothing of it will come, and nobody is waited for."""
    alone = Alone(monkeypatch)
    alone.round(1, "a")
    assert alone.round(2, "a", may="") < PATIENCE_S / 2
    assert alone.started == ["a"]


def test_a_device_that_is_silent_and_may_not_start_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.round(1, "a")
    assert alone.round(2, "", may="") >= PATIENCE_S


def test_a_device_that_asks_for_the_round_it_is_at_work_in_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.round(1, "a")
    alone.broker.open(2, {"phone": b"from"}, "")
    alone.broker.task("a", 2)
    alone.broker.submit("a", 1, b"its release")
    assert alone.broker.gather(PATIENCE_S, 1, alone.started.append)[0].device == "a"


def waited_for(broker: RoundBroker) -> int:
    (found,) = re.findall(r"^edgefr_waited_for (\d+)$", broker.prometheus(), re.MULTILINE)
    return int(found)


def test_fewer_are_waited_for_with_every_release(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = RoundBroker(dict.fromkeys("abcd", "phone"), LEARNING, 9)
    monkeypatch.setattr(broker, "_read", read)
    broker.open(3, {"phone": b"from"}, "abc")
    assert waited_for(broker) == 3
    for left, device in ((2, "b"), (1, "a"), (0, "c")):
        broker.submit(device, 3, device.encode())
        assert waited_for(broker) == left
    broker.submit("c", 3, b"c")
    assert (waited_for(broker), broker.counts.uploads) == (0, 3)


def test_who_rests_is_told_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device asks with the round that it last heard of; the one in which it rests it has heard of then."""
    broker = RoundBroker(dict.fromkeys("abcd", "phone"), LEARNING, 9)
    for number in (3, 4):
        broker.open(number, {"phone": b"from"}, "a", resting="b")
        assert broker.task("b", number - 1) == RoundTask(number, b"", done=False, rest=True)
        assert broker.task("b", number) is None
        assert broker.task("c", number - 1) is None
