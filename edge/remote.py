"""A device at work for a server: fetch a round, learn, send the release, until there are no more rounds.

A task's body is a delta from the bundle to the tensors that the round starts from, with the publisher's signature
behind it, empty where those are the bundle's own; that of the end is the server's last word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge import session_state as streams
from edge.connection import Patience, Server, Task
from edge.delta import read_delta
from edge.device import Device
from edge.identity import Identity
from edge.learning import Learning
from edge.limited_process import NOW, timed
from edge.release import Withheld, may_be_clear
from edge.sealed_round import Sealing
from edge.secure_sum import SumRefused
from edge.signature import opened_seal, place
from edge.update import ClientUpdate
from privacy.errors import InputError
from privacy.files import write_atomic

UPDATE = "update.safetensors"  # the server's last update, in the device's state folder
HEADERS = 1 << 20  # bytes of a file of tensors that are not values


@dataclass
class TrafficCounts:
    """This counts what a device did for a server.

    Rounds whose release was taken, those that had closed, those it was told to sit out since its privacy budget is
    spent, those whose secure sum the device refused (`refused`: why, the last time), those whose training failed, which
    were answered with noise alone (`failure`: how, the last time), bytes of bodies. `stopped`: why the device let no
    more leave (None: it did to the end). `fruitless`: rounds in a row, up to now, of which nothing was taken.
    """

    taken: int = 0
    late: int = 0
    rested: int = 0
    unsafe: int = 0
    refused: str | None = None
    failed: int = 0
    failure: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    stopped: str | None = None
    fruitless: int = 0

    @property
    def asked(self) -> bool:
        """Return whether the server had a round for this device at all."""
        return bool(self.taken + self.late + self.rested + self.unsafe) or self.stopped is not None

    def failing(self, failure: str | None) -> None:
        """Count a round whose training failed, and how (None: it did not)."""
        if failure is not None:
            self.failed, self.failure = self.failed + 1, failure

    def ended(self, taken: bool) -> None:
        """Count a round whose release was taken, or came too late."""
        if taken:
            self.taken, self.fruitless = self.taken + 1, 0
        else:
            self.late += 1


Tell = Callable[[str, int, int, str], None]
"""Hears of a device's round by name, whether it is over for the device (1 of 1), and how it stands in words."""


def _silent(stage: str, done: int, total: int, note: str) -> None:
    """Tell nobody."""


def update_limit(learning: Learning) -> int:
    """Bytes that an update of all shared tensors of a bundle can have."""
    return HEADERS + _values(learning, {t.name for t in learning.tensors if t.place == "shared"})


def release_limit(learning: Learning) -> int:
    """Bytes that a release of a bundle's device can have."""
    return HEADERS + _values(learning, set(learning.trained("round", "shared")))


@dataclass
class Own:
    """These are a user's own interactions that a device is given: all at once, or with their `times` by session.

    Of a method that reads sessions every round meets the next one (FCUCR §4), and after the last that one again.
    """

    interactions: Sequence[str | int]
    times: Sequence[int] | None = None

    def of_round(self, device: Device, number: int) -> tuple[Sequence[str | int], Sequence[int] | None]:
        """Return what a device takes up in a round: nothing, where it has learned in it already.

        Raises `InputError` for times that no session is cut by, that are not one for each, or that fall.
        """
        if self.times is None:
            found, self.interactions = self.interactions, []
            return found, None
        how = device.learning.sessions
        times, state = np.array(self.times, np.int64), device.state
        if how is None:
            raise InputError(f"bundle {device.bundle.root} reads no sessions, so nothing reads times: leave them away")
        if len(times) != len(self.interactions) or (np.diff(times) < 0).any():
            raise InputError("give one time for each interaction, none before the one above it")
        if state.facts["learned"] == number:
            return [], []
        last = state.tensors["session.times"][-1:].tolist()
        place = streams.started(times, last[0] if last else None, how.gap_s)
        return self.interactions[place], self.times[place]


def join(
    device: Device,
    url: str,
    interactions: Iterable[str | int] = (),
    times: Iterable[int] | None = None,
    *,
    ca: Path | None = None,
    patience: Patience | None = None,
    shown: tuple[Path, Path] | None = None,
    progress: Tell = _silent,
) -> TrafficCounts:
    """Work for the server at `url` until it has no more rounds, then take its last update.

    A device that was stopped at any moment goes on where it was when it joins again: what it has learned of a round is
    sent first, not learned again. It has to be enrolled there (`edge.connection.enrol`). It ends by itself where its
    own policy or ledger lets nothing more leave. `times`: when each interaction was, unix seconds, for methods that
    read sessions: each round meets the next session (None: all are of the newest). `progress` hears how each round
    stands.

    Raises `InputError` for a device that is not enrolled or lets nothing leave at all, a server that cannot be reached
    or refuses the device, one of another bundle, one whose rounds are not those that the device's state has come to,
    and as `Device.learn`.

    >>> join(Device("bundles/phone_sd680", "state"), "http://127.0.0.1:8080", ["318"]).taken  # doctest: +SKIP
    3
    """
    NOW.rest()  # what follows waits for the server
    server = Server(url, Identity.of(device.store.folder), ca, patience or Patience(), shown=shown)
    why = device.refuses()
    if why is not None:
        raise Withheld(f"nothing would leave this device: {why}")
    limit = update_limit(device.learning)
    counts, after = TrafficCounts(), 0
    if (waiting := unanswered(device)) is not None and server.send_again(waiting.round, waiting.to_bytes()):
        counts.taken, after = 1, waiting.round
        progress(f"round {after}", 1, 1, "answered, waiting for the next")
    own = Own(list(interactions), None if times is None else list(times))
    until = time.monotonic() + server.patience.idle_s
    while counts.fruitless < server.patience.fruitless:
        task = server.task(after, limit)
        if task is None:
            if time.monotonic() > until:
                raise InputError(f"{url} had no work for {server.patience.idle_s:g} s; join again later")
            continue
        if task.round <= after and not task.done:
            raise InputError(f"{url} answers with round {task.round} for one above {after}: not a server of edgefr")
        counts.fruitless, until = counts.fruitless + 1, time.monotonic() + server.patience.idle_s
        if task.rest:
            after, counts.rested = task.round, counts.rested + 1
            progress(f"round {after}", 1, 1, "sat out, the budget is spent; waiting for the next")
            continue
        counts.bytes_down += len(task.content)
        check_bundle(device, task, url)
        catch_up(device, task, url)
        if task.done:
            return counts
        progress(f"round {task.round}", 0, 1, "asked, learning and sending")
        try:
            with timed():
                release = device.learn(*own.of_round(device, task.round), masked=task.seat is not None)
            after = task.round
            counts.failing(device.work.get("failed"))
            taken = _sent(device, server, task, release, counts)
            counts.ended(taken)
            progress(f"round {after}", 1, 1, f"{'answered' if taken else 'too late'}, waiting for the next")
        except SumRefused as refused:
            counts.unsafe, counts.refused = counts.unsafe + 1, str(refused)
            progress(f"round {task.round}", 1, 1, "its secure sum was refused, waiting for the next")
        except Withheld as refused:
            return replace(counts, stopped=str(refused))
    return replace(counts, stopped=f"of {counts.fruitless} rounds in a row nothing was taken; join again later")


def unanswered(device: Device) -> ClientUpdate | None:
    """Return the release of the round that the device is in, made to leave in the clear; None where there is none.

    Rounds may have gone on without it, and it is still of the one that it was made for: a server that waits for nobody
    in particular takes it, though it would not hand out that round again.
    """
    state = device.state
    may = may_be_clear(state) and device.policy.refuses_in_the_clear() is None
    if state.facts["learned"] is None or not may:
        return None
    with device.store.locked():
        device.store.write_ledger(state)  # a process that was cut off may have written the state alone
    return ClientUpdate.of(state.facts["release"], state.part("outbox"))


def _sent(device: Device, server: Server, task: Task, release: ClientUpdate, counts: TrafficCounts) -> bool:
    """Send a round's release, under masks where its task has a seat in a secure sum; whether it was taken."""
    if task.seat is None:
        content = release.to_bytes()
        taken = server.send(task.round, content)
        counts.bytes_up += len(content) if taken else 0
        return taken
    sealing = Sealing(device, server, task)
    try:
        return sealing.sent(release)
    finally:
        counts.bytes_up += sealing.traffic.up
        counts.bytes_down += sealing.traffic.down


def check_bundle(device: Device, task: Task, url: str) -> None:
    """Raise `InputError` where a server takes the device to hold another bundle: nothing is learned for it then."""
    own = device.bundle.manifest.bundle_id
    if task.bundle not in (None, own):
        raise InputError(
            f"{url} takes this device to hold bundle {str(task.bundle)[:12]}, and it holds {own[:12]}: go on under "
            "that one with `edgefr device update --from` (nothing was learned)"
        )


def catch_up(device: Device, task: Task, url: str) -> None:
    """Take a task's update unless the device has it; `InputError` when it then is not where the task starts.

    An update that leads anywhere else is not taken: a number out of the air would be the device's round for good.
    """
    starts = task.round if task.done else task.round - 1
    if task.content:
        content, signature = opened_seal(task.content)
        path = write_atomic(device.store.folder / UPDATE, content, mode=0o600)
        place(path).unlink(missing_ok=True)
        if signature is not None:
            write_atomic(place(path), signature, mode=0o600)
        limit = update_limit(device.learning)
        delta = read_delta(path, device.learning, limit=limit, trusted=device.publisher)
        if delta.to_round != starts:
            raise InputError(
                f"{url} sent an update to round {delta.to_round} for one that starts at {starts}; nothing was changed"
            )
        if delta.to_round > device.state.facts["round"]:
            device.apply(delta)
    reached = device.state.facts["round"]
    if reached != starts:
        raise InputError(
            f"{url} is at round {starts}, this device's state at {reached}: they belong to different servers; give "
            "another --state"
        )


def _values(learning: Learning, names: set[str]) -> int:
    """Return the bytes of these tensors, whole, with an item number beside every row of a table."""
    size = 0
    for tensor in learning.tensors:
        if tensor.name in names:
            count = 4
            for extent in tensor.shape:
                count *= extent
            size += count + (8 * tensor.shape[0] if tensor.kind == "rows" else 0)
    return size
