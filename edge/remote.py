"""A device at work for a server: fetch a round, learn, send the release, until there are no more rounds.

A task's body is a delta from the bundle to the tensors that the round starts from, with the publisher's signature
behind it, empty where those are the bundle's own; that of the end is the server's last word.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge import session_state as streams
from edge.connection import Patience, RoundTask, Server
from edge.delta import read_delta
from edge.device import Device
from edge.identity import Identity
from edge.learning import Learning
from edge.limited_process import NOW, timed
from edge.records import Record
from edge.release import Withheld, may_be_clear
from edge.secure_sum import Participant, SumRefused
from edge.signature import opened_seal, place
from edge.sum_messages import (
    LIMIT,
    Agreed,
    Agreeing,
    Asked,
    KeysMessage,
    Message,
    Neighbours,
    Opening,
    Shares,
    Step,
    opened,
)
from edge.update import ClientUpdate, whole_steps
from privacy.errors import InputError
from privacy.files import write_atomic

UPDATE = "update.safetensors"  # the server's last update, in the device's state folder
HEADERS = 1 << 20  # bytes of a file of tensors that are not values


@dataclass
class TrafficCounts:
    """This counts what a device did for a server: bytes of bodies, and rounds by what became of them.

    Those whose release was taken, that had closed (`late`), that it sat out since its privacy budget is spent
    (`rested`), whose secure sum it refused (`unsafe`; `refused`: why, the last time), whose training failed (`failure`:
    how, the last time). `stopped`: why the device let no more leave. `fruitless`: rounds in a row, up to now, of which
    nothing was taken.
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


Tell = Callable[[str, int, int, str], None]
"""Hears of a device's round by name, whether it is over for the device (1 of 1), and how it stands in words."""


def _silent(stage: str, done: int, total: int, note: str) -> None: ...


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
            raise InputError(f"bundle {device.bundle.root} reads no sessions, so it reads no times: omit them")
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

    A device that was stopped goes on where it was: what it has learned of a round is sent first. It has to be enrolled
    there (`edge.connection.enrol`). It ends by itself where its own policy or ledger lets nothing more leave. `times`:
    when each interaction was, unix seconds, for methods that read sessions: each round meets the next session (None:
    all are of the newest). Raises `InputError` for a device that is not enrolled or lets nothing leave at all, a server
    that cannot be reached or refuses the device, one of another bundle or of other rounds, and as `Device.learn`.

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
        catch_up(device, task, url)
        if task.done:
            return counts
        progress(f"round {task.round}", 0, 1, "asked, learning and sending")
        try:
            with timed():
                release = device.learn(*own.of_round(device, task.round), masked=task.seat is not None)
            after = task.round
            if (failure := device.work.get("failed")) is not None:
                counts.failed, counts.failure = counts.failed + 1, failure
            taken = _sent(device, server, task, release, counts)
            counts.taken, counts.late = counts.taken + taken, counts.late + (not taken)
            counts.fruitless = 0 if taken else counts.fruitless
            progress(f"round {after}", 1, 1, f"{'answered' if taken else 'too late'}, waiting for the next")
        except SumRefused as refused:
            counts.unsafe, counts.refused = counts.unsafe + 1, str(refused)
            progress(f"round {task.round}", 1, 1, "its secure sum was refused, waiting for the next")
        except Withheld as refused:
            return replace(counts, stopped=str(refused))
    return replace(counts, stopped=f"of {counts.fruitless} rounds in a row nothing was taken; join again later")


def unanswered(device: Device) -> ClientUpdate | None:
    """Return the release of the round that the device is in, made to leave in the clear; None where there is none.

    A server that waits for nobody in particular takes it, though its rounds have gone on.
    """
    state = device.state
    may = may_be_clear(state) and device.policy.refuses_in_the_clear() is None
    if state.facts["learned"] is None or not may:
        return None
    with device.store.locked():
        device.store.write_ledger(state)  # a process that was cut off may have written the state alone
    return ClientUpdate.of(state.facts["release"], state.part("outbox"))


def _sent(device: Device, server: Server, task: RoundTask, release: ClientUpdate, counts: TrafficCounts) -> bool:
    """Send a round's release, under masks where its task has a seat in a secure sum; whether it was taken."""
    if task.seat is not None:
        return Sealing(device, server, task, counts).sent(release)
    content = release.to_bytes()
    taken = server.send(task.round, content)
    counts.bytes_up += len(content) if taken else 0
    return taken


def catch_up(device: Device, task: RoundTask, url: str) -> None:
    """Take a task's update unless the device has it; `InputError`, untaken, for one that leads elsewhere."""
    own, starts = device.bundle.manifest.bundle_id, task.round if task.done else task.round - 1
    if task.bundle not in (None, own):
        raise InputError(
            f"{url} takes this device to hold bundle {str(task.bundle)[:12]}, and it holds {own[:12]}: go on under "
            "that one with `edgefr device update --from` (nothing was learned)"
        )
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
    found = [t for t in learning.tensors if t.name in names]
    return sum(4 * math.prod(t.shape) + (8 * t.shape[0] if t.kind == "rows" else 0) for t in found)


@dataclass
class Sealing:
    """This is a device in the sum of one round: its update leaves under masks, and the server learns the total alone.

    Its secrets live as long as the call. Before its vector leaves, its state says so, and no vector of a round leaves
    in two sums: two totals that differ by one device would be its update. A device that is stopped within a sum is out
    of it; what it spent stays counted.
    """

    device: Device
    server: Server
    task: RoundTask
    counts: TrafficCounts

    def sent(self, update: ClientUpdate) -> bool:
        """Send an update under masks, and what opens the sum; whether all of it was taken.

        False: the sum went on without this device, or is given up. Raises `SumRefused` where the device refuses what
        it is told, and for a round in which it sees fewer others than its policy asks for.
        """
        device, seat = self.device, self.task.seat
        assert seat is not None
        if device.has_left_masked(self.task.round):
            return False
        vector = whole_steps(update, device.learning)
        part = Participant(seat.session(update.bundle, self.task.round), seat.number)
        if (near := self._told(Neighbours, "keys", KeysMessage.of(part.keys))) is None:
            return False
        self._enough(len(near.keys))
        shares = part.share(near.near, near.signers, near.threshold)
        if (inbox := self._told(Shares, "shares", Shares.of(shares))) is None:
            return False
        masked = part.masked(vector, inbox.contents)
        device.leave_masked(self.task.round)
        if (asked := self._told(Asked, "vector", masked.astype("<u4").tobytes())) is None:
            return False
        self._enough(len(near.keys.keys() & set(asked.arrived)))
        signature = part.agree(set(asked.sent), set(asked.arrived))
        if (agreed := self._told(Agreed, "agree", Agreeing(signature=signature.hex()))) is None:
            return False
        return self._sent("opening", Opening.of(part.reveal(agreed.contents)))

    def _told(self, kind: type[Message], step: Step, said: Record | bytes) -> Message | None:
        """Send what a step asks for and wait until it has ended; None: it goes on without this device."""
        answer = self.server.told(step, self.task.round, LIMIT) if self._sent(step, said) else None
        if answer is None:
            return None
        self.counts.bytes_down += len(answer)
        return opened(kind, answer)

    def _sent(self, step: Step, said: Record | bytes) -> bool:
        content = said if isinstance(said, bytes) else said.model_dump_json().encode()
        taken = self.server.tell(step, self.task.round, content)
        self.counts.bytes_up += len(content) if taken else 0
        return taken

    def _enough(self, others: int) -> None:
        """Raise `SumRefused` where this device sees fewer others in the sum than its policy asks for.

        It sees its neighbours alone, and takes nobody's word for the rest.
        """
        policy = self.device.policy
        if policy.too_few(self.device.bundle.manifest.privacy, others + 1):
            raise SumRefused(
                f"policy least_cohort: this device sees {others} others in the sum of round {self.task.round}, and "
                f"{policy.least_cohort - 1} are asked for; more devices may be there next time, or allow it with "
                f"least_cohort: {others + 1}"
            )
