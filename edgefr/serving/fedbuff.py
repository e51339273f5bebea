"""Asynchronous rounds: a device that asks gets work, and a round closes with a buffer of uploads.

asks ─► written down as started ─► the round's tensors ─► upload, some rounds later ─► waits ─► in a sum, or too old

A fixed number of devices is at work, each from the tensors of the round it started in (FedBuff, Nguyen et al. 2022,
Algorithm 1); one that is done is replaced by the next that asks. A release is of the round its device started in, and
is in one sum at most, of a round up to `max_staleness` later.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.connection import CONFLICT, RoundTask
from edge.learning import Learning
from edge.update import ClientUpdate
from edgefr.fleet.spec import Rounds
from edgefr.serving.admission import RequestRefused
from edgefr.serving.broker import RoundBroker
from edgefr.serving.round_status import Tell, untold

ASKED_S = 30.0  # how long a device that has asked counts as there: it asks again within a poll
LOOK_S = 1.0  # between looks at who has been at work too long


@dataclass(frozen=True)
class Buffering:
    """These are the terms of asynchronous rounds, as the fleet's policy async has them.

    A round closes with `buffer` uploads, while `hands` devices are at work; one of age t counts (1 + t)^-`power`, and
    none is older than `max_staleness`.
    """

    buffer: int
    hands: int
    power: float
    max_staleness: int

    @classmethod
    def of(cls, rules: Rounds, cohort: int, clients: int) -> Buffering | None:
        """Return a fleet file's terms for so many clients; None for synchronous rounds."""
        if rules.waits:
            return None
        return cls(*rules.buffered(cohort, clients), rules.staleness_power, rules.max_staleness)

    def weight(self, staleness: int) -> float:
        return float((1.0 + staleness) ** -self.power)


@dataclass(frozen=True)
class Waiting:
    """This is an upload in no sum yet: whose, the round its device started in, and its content."""

    device: str
    round: int
    update: ClientUpdate


class BufferedBroker(RoundBroker):
    """This hands out asynchronous rounds; `terms` say how many are at work, and when a round has enough."""

    def __init__(
        self,
        bundles: Mapping[str, str],
        learning: Learning,
        items: int,
        terms: Buffering,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(bundles, learning, items)
        self._clock = clock
        self.terms, self.stale = terms, 0
        self._may: frozenset[str] = frozenset()
        self._left: set[str] = set()  # who has uploaded in this round, or waits in the buffer: one upload each
        self._asking: dict[str, float] = {}
        self._at_work: dict[str, tuple[int, float]] = {}  # the round it started in, and since when
        self._waiting: list[Waiting] = []
        self._old: list[Waiting] = []

    # --- the rounds' side -----------------------------------------------------------------------------------------

    def resume(self, started: Mapping[str, int], contents: Mapping[str, bytes]) -> None:
        """Continue after a kill: who had started in which round, and the uploads on the disk."""
        for device, number in started.items():
            content = contents.get(device)
            if content is None:
                self._at_work[device] = (number, self._clock())
            else:
                self._waiting.append(Waiting(device, number, self._read(device, number, content)))
                self._taken[device] = number, hashlib.sha256(content).digest()

    def _invited(self, number: int, cohort: frozenset[str]) -> frozenset[str]:
        """Return who is at work in the round; of the cohort whoever asks may start."""
        self._may, self._left = cohort, {one.device for one in self._waiting}
        return frozenset(device for device, (began, _) in self._at_work.items() if began == number)

    def gather(
        self, timeout_s: float, fewest: int, started: Callable[[list[str]], None], tell: Tell = untold
    ) -> list[Waiting]:
        """Hand out work until the buffer is full or after `timeout_s`; return the uploads of the round's sum.

        `started` is told of devices before they get work. Fewer uploads than `fewest` wait. `tell` hears the count.
        """
        until, said = self._clock() + timeout_s, (-1, -1)
        while True:
            if said != (now := (len(self._waiting), len(self._at_work))):
                said = now
                tell(now[0], self.terms.buffer, f", {now[1]} at work")
            with self._changed:
                left = until - self._clock()
                self._changed.wait_for(lambda: self._ended or bool(self._next(timeout_s)), max(min(left, LOOK_S), 0.0))
                if self._ended or self._clock() >= until:
                    self._all_kept()
                    return self._take(fewest)
                found = self._next(timeout_s)
            if found:
                started(found)
                with self._changed:
                    self._cohort |= frozenset(found)
                    self._at_work |= dict.fromkeys(found, (self._number, self._clock()))
                    self._asking = {device: at for device, at in self._asking.items() if device not in found}
                self.heard()

    @property
    def _number(self) -> int:
        assert self._task is not None
        return self._task.round

    @property
    def _ended(self) -> bool:
        """Say whether the buffer is full, or nobody is or may be at work."""
        return len(self._waiting) >= self.terms.buffer or not (self._at_work or self._may - self._left)

    def _next(self, patience_s: float) -> list[str]:
        """Return who gets work now: those that ask, in order, while fewer are at work than may be.

        A device at work beyond `patience_s` no longer counts, but its upload is taken.
        """
        now = self._clock()
        free = self.terms.hands - sum(now - since < patience_s for _, since in self._at_work.values())
        there = [device for device, at in self._asking.items() if now - at < ASKED_S and self._free(device)]
        return there[: max(free, 0)]

    def _free(self, device: str) -> bool:
        """Say whether a device may start in the open round; asking again gives up its earlier start."""
        began = self._at_work.get(device, (-1, 0.0))[0]
        return device in self._may and device not in self._left | self._keeping and began < self._number

    def _take(self, fewest: int) -> list[Waiting]:
        oldest = self._number - self.terms.max_staleness
        fresh = [one for one in self._waiting if one.round >= oldest]
        self._old += [one for one in self._waiting if one.round < oldest]
        self.stale += len(self._waiting) - len(fresh)
        taken = fresh[: self.terms.buffer] if len(fresh) >= min(fewest, self.terms.buffer) else []
        self._waiting = fresh[len(taken) :]
        self._cohort = frozenset()
        return taken

    def old(self) -> list[Waiting]:
        """Return the uploads that became too old since the last call."""
        with self._changed:
            found, self._old = self._old, []
            return found

    # --- the devices' side ----------------------------------------------------------------------------------------

    def task(self, device: str, after: int) -> RoundTask | None:
        """Return the open round at the device's turn, as `RoundBroker.task`; until then it is queued."""
        self._know(device)
        with self._changed:
            if self._task is not None and not self._task.done and self._number > after:
                if self._free(device):
                    self._asking[device] = self._clock()
                elif (
                    device not in self._may | self._keeping
                    and self._at_work.get(device, (self._number, 0.0))[0] < self._number
                ):
                    self._at_work.pop(device)  # it never heard of its work, or lost it, and may not start again
                self._changed.notify_all()
        return super().task(device, after)

    def _add(self, device: str, release: ClientUpdate) -> None:
        self._at_work.pop(device)
        self._left.add(device)
        self._waiting.append(Waiting(device, release.round, release))

    def _in_time(self, device: str, number: int) -> None:
        """Raise `RequestRefused` for a round that the device did not start, has uploaded, or that is too old."""
        if self._task is None or self._task.done or self._at_work.get(device, (-1, 0.0))[0] != number:
            raise RequestRefused(CONFLICT, f"this device is not at work in round {number}")
        if self._number - number > self.terms.max_staleness:
            self._at_work.pop(device)
            self.stale += 1
            raise RequestRefused(CONFLICT, f"round {number} is more than {self.terms.max_staleness} rounds ago")
