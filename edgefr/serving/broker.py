"""The round broker stands between a server and its devices: one round lies open, takes releases, and closes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from edge.connection import BAD, CONFLICT, RoundTask
from edge.learning import Learning
from edge.sum_messages import Step
from edge.update import ClientUpdate, read_update
from edgefr.serving.admission import RequestRefused, reading
from edgefr.serving.norm_bound import Reach
from edgefr.serving.round_status import Tell, awaited, untold
from edgefr.serving.secure_sums import SealedRound

UNKNOWN = 404


@dataclass
class Counts:
    """These are releases taken, refused requests, bytes; `too_long`: refused beyond clip and noise."""

    uploads: int = 0
    refused: int = 0
    too_long: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


def _nobody() -> None: ...


def _nowhere(device: str, number: int, content: bytes) -> None: ...


class RoundBroker:
    """This hands rounds to devices and takes their releases, from any number of threads.

    `bundles`: the bundle of every device by its user's name; `learning`: how all of them learn; `items`: size of the
    catalogue, which bounds a client's interactions.

    One thread opens rounds and collects; others ask for tasks and submit releases. `heard` is called when a round
    opens, or the last has ended. `keep` is called with a release before its device is told that it was taken.
    `from_first`: a round's time begins with its first answer.
    """

    def __init__(self, bundles: Mapping[str, str], learning: Learning, items: int):
        self.bundles, self.learning, self.items = dict(bundles), learning, items
        self.counts, self.heard, self.keep = Counts(), _nobody, _nowhere
        self.from_first = False
        self.reach = Reach.of(learning)
        self._changed = threading.Condition()
        self._task: RoundTask | None = None
        self._updates: Mapping[str, bytes] = {}
        self._cohort: frozenset[str] = frozenset()
        self._resting: frozenset[str] = frozenset()
        self._sealed: SealedRound | None = None
        self._started: set[str] = set()
        self._arrived: dict[str, ClientUpdate] = {}
        self._keeping: set[str] = set()  # whose release is being put on the disk
        self._taken: dict[str, tuple[int, bytes]] = {}  # by device the last round taken and its digest
        self._seen: set[str] = set()
        self._told: set[str] = set()

    # --- the rounds' side -----------------------------------------------------------------------------------------

    def open(
        self,
        number: int,
        updates: Mapping[str, bytes],
        cohort: Collection[str],
        resting: Collection[str] = (),
        sealed: SealedRound | None = None,
    ) -> None:
        """Open a round for the devices in `cohort`; `updates`, by bundle, take them to its start.

        `resting` devices are told that it continues without them. `sealed` sums masked uploads; plain ones are refused
        then.
        """
        with self._changed:
            self._task, self._updates = RoundTask(number, b"", done=False), updates
            self._cohort, self._arrived = self._invited(number, frozenset(cohort)), {}
            self._resting, self._started, self._sealed = frozenset(resting), set(), sealed
        if sealed is not None:
            sealed.heard = lambda: self.heard()
        self.heard()

    def _invited(self, number: int, cohort: frozenset[str]) -> frozenset[str]:
        return cohort

    def put_back(self, contents: Mapping[str, bytes]) -> None:
        """Take releases of the open round that were taken before the server was killed."""
        with self._changed:
            task = self._task
            assert task is not None
            found = {device: content for device, content in contents.items() if device in self._cohort}
        for device, content in found.items():
            release = self._read(device, task.round, content)
            with self._changed:
                self._started.add(device)
                self._arrived[device] = release
                self._taken[device] = task.round, hashlib.sha256(content).digest()
                self._changed.notify_all()

    def collect(self, timeout_s: float, tell: Tell = untold) -> dict[str, ClientUpdate]:
        """Close the round when the whole cohort has answered or after `timeout_s`; return the releases by device.

        `tell` hears how many are there.
        """
        asked = len(self._cohort)
        awaited(
            self._changed,
            lambda: self._arrived.keys() == self._cohort,
            lambda: len(self._arrived),
            timeout_s,
            lambda there: tell(there, asked, ""),
            self.from_first,
        )
        with self._changed:
            self._all_kept()
            self._cohort = frozenset()
            return self._arrived

    def close(self) -> frozenset[str]:
        """End the round, if one is open; return the devices that took up its work."""
        with self._changed:
            self._cohort, sealed = frozenset(), self._sealed
        if sealed is not None:
            sealed.close()
        return frozenset(self._started)

    def finish(self, number: int, updates: Mapping[str, bytes], grace_s: float) -> None:
        """Send `updates` as the last word; wait until all that ever asked have theirs, or `grace_s`."""
        with self._changed:
            self._task, self._updates = RoundTask(number, b"", done=True), updates
            self.heard()
            self._changed.wait_for(lambda: self._seen <= self._told, grace_s)

    # --- the devices' side ----------------------------------------------------------------------------------------

    def task(self, device: str, after: int) -> RoundTask | None:
        """Return the open round, if it is above `after` and the device is in its cohort; else None.

        Resting devices get it without content.
        """
        self._know(device)
        with self._changed:
            self._seen.add(device)
            task = self._task
            if task is not None and (task.done or (task.round > after and device in self._cohort)):
                bundle = self.bundles[device]
                task = replace(task, content=self._updates[bundle], bundle=bundle)
                if task.done:
                    return task
                self._started.add(device)
                return task if self._sealed is None else replace(task, seat=self._sealed.seat(device))
            if task is not None and task.round > after and device in self._resting:
                return RoundTask(task.round, b"", done=False, rest=True)
            return None

    def handed(self, device: str, task: RoundTask) -> None:
        with self._changed:
            self.counts.bytes_down += len(task.content)
            if task.done:
                self._told.add(device)
                self._changed.notify_all()

    def in_the_clear(self, device: str) -> None:
        """Raise `RequestRefused` before reading where no plain release is taken."""
        self._know(device)
        if self._sealed is not None:
            raise RequestRefused(
                CONFLICT, "uploads of this round are summed under masks (POST /sum), and none is taken here"
            )

    def expects(self, device: str, number: int, digest: bytes) -> None:
        """Raise `RequestRefused` before reading where no release of this digest can be taken."""
        self.in_the_clear(device)
        with self._changed:
            if self._taken.get(device) != (number, digest):
                self._in_time(device, number)

    def take_step(self, device: str, number: int, step: Step, content: bytes) -> None:
        """Take what a device sends in a step of the open round's secure sum. Raises `RequestRefused`."""
        if self.sum_of(device, number).take(device, step, content):
            with self._changed:
                self.counts.uploads += step == "vector"
                self.counts.bytes_up += len(content)

    def told_step(self, content: bytes) -> None:
        """Count a step's result that was sent."""
        with self._changed:
            self.counts.bytes_down += len(content)

    def sum_of(self, device: str, number: int) -> SealedRound:
        """Return the open round's secure sum. Raises `RequestRefused` where there is none."""
        self._know(device)
        with self._changed:
            if self._sealed is None or self._sealed.round != number:
                raise RequestRefused(CONFLICT, f"no sum of round {number} is open")
            return self._sealed

    def submit(self, device: str, number: int, content: bytes) -> None:
        """Take a device's release of the open round; a repeated one is no fault. Raises `RequestRefused`."""
        self.in_the_clear(device)
        digest = hashlib.sha256(content).digest()
        with self._changed:
            if self._taken.get(device) == (number, digest):
                return
        release = self._read(device, number, content)
        with self._changed:
            self._changed.wait_for(lambda: device not in self._keeping)
            if self._taken.get(device) == (number, digest):  # the same one was being read at the same time
                return
            self._in_time(device, number)
            self._keeping.add(device)
        kept = False
        try:
            self.keep(device, number, content)  # without the lock, for which whoever asks would wait
            kept = True
        finally:
            with self._changed:
                self._keeping.discard(device)
                if kept:
                    self._add(device, release)
                    self._taken[device] = number, digest
                    self.counts.uploads += 1
                    self.counts.bytes_up += len(content)
                self._changed.notify_all()

    def _add(self, device: str, release: ClientUpdate) -> None:
        self._started.add(device)  # also one that comes back with what it had learned, and asks for nothing
        self._arrived[device] = release

    def _all_kept(self) -> None:
        """Wait until releases that are being kept are on the disk; the caller has the lock."""
        self._changed.wait_for(lambda: not self._keeping)

    def _in_time(self, device: str, number: int) -> None:
        """Raise `RequestRefused` for a round that is not open for a device, or of which it has sent a release."""
        if self._task is None or self._task.done or self._task.round != number or device not in self._cohort:
            raise RequestRefused(CONFLICT, f"round {number} is not open for this device")
        if device in self._arrived:
            raise RequestRefused(CONFLICT, f"another release of round {number} was taken from this device")

    @property
    def standing(self) -> tuple[int, int]:
        """Return the number of the last round that was opened (0: none yet), and how many it still waits for."""
        with self._changed:
            left = self._cohort - self._arrived.keys() if self._sealed is None else self._sealed.waiting
            return 0 if self._task is None else self._task.round, len(left)

    def prometheus(self) -> str:
        with self._changed:
            counts, now = asdict(self.counts), dict(zip(("round", "waited_for"), self.standing, strict=True))
        lines = [f"# TYPE edgefr_{name}_total counter\nedgefr_{name}_total {value}" for name, value in counts.items()]
        lines += [f"# TYPE edgefr_{name} gauge\nedgefr_{name} {value}" for name, value in now.items()]
        return "\n".join(lines) + "\n"

    def refuse(self) -> None:
        with self._changed:
            self.counts.refused += 1

    def _know(self, device: str) -> None:
        if device not in self.bundles:
            raise RequestRefused(UNKNOWN, "this server has no such device; its user has another class or none")

    def _read(self, device: str, number: int, content: bytes) -> ClientUpdate:
        with reading("not a release of this bundle"):
            release = read_update(content, self.learning, self.bundles[device])
        if release.round != number:
            raise RequestRefused(BAD, f"it is a release of round {release.round}, not of {number}")
        sized = self.learning.release.weights == "size"
        if sized and not 1 <= (release.examples or 0) <= self.items:
            raise RequestRefused(BAD, f"it says {release.examples} interactions, of {self.items} items there are")
        if self.reach is not None and not self.reach.holds(release):
            with self._changed:
                self.counts.too_long += 1
            raise RequestRefused(BAD, "it is longer than the clip and its noise can make it; nothing of it is taken")
        return release
