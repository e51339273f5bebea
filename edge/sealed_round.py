"""A device takes part in the sum of a round: its update leaves under masks, and the server learns the total alone.

Its secrets live as long as the call. Before its vector leaves, its state says so, and no vector of a round leaves in
two sums: two totals that differ by one device would be its update. A device that is stopped within a sum is out of it,
and goes on with the next round; what it spent stays counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edge.connection import Server, Task
from edge.device import Device
from edge.secure_sum import Participant, SumRefused
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


@dataclass
class Traffic:
    """These are the bytes of a device's bodies in one sum."""

    up: int = 0
    down: int = 0


@dataclass
class Sealing:
    """This is a device in the sum of one round. `taken`: whether the server had all that it asked the device for."""

    device: Device
    server: Server
    task: Task
    traffic: Traffic = field(default_factory=Traffic)

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
        if (near := self._told(Neighbours, "keys", _written(KeysMessage.of(part.keys)))) is None:
            return False
        self._enough(len(near.keys))
        shares = part.share(near.near, near.signers, near.threshold)
        if (inbox := self._told(Shares, "shares", _written(Shares.of(shares)))) is None:
            return False
        masked = part.masked(vector, inbox.contents)
        device.leave_masked(self.task.round)
        if (asked := self._told(Asked, "vector", masked.astype("<u4").tobytes())) is None:
            return False
        self._enough(len(near.keys.keys() & set(asked.arrived)))
        signature = part.agree(set(asked.sent), set(asked.arrived))
        if (agreed := self._told(Agreed, "agree", _written(Agreeing(signature=signature.hex())))) is None:
            return False
        return self._sent("opening", _written(Opening.of(part.reveal(agreed.contents))))

    def _told(self, kind: type[Message], step: Step, content: bytes) -> Message | None:
        """Send what a step asks for and wait until it has ended; None: it goes on without this device."""
        if not self._sent(step, content):
            return None
        answer = self.server.told(step, self.task.round, LIMIT)
        if answer is None:
            return None
        self.traffic.down += len(answer)
        return opened(kind, answer)

    def _sent(self, step: Step, content: bytes) -> bool:
        taken = self.server.tell(step, self.task.round, content)
        self.traffic.up += len(content) if taken else 0
        return taken

    def _enough(self, others: int) -> None:
        """Raise `SumRefused` where this device sees fewer others in the sum than its policy asks for.

        It sees its neighbours alone, which in a large cohort are a part of it, and takes nobody's word for the rest.
        The round is left out, and the next may have enough.
        """
        policy = self.device.policy
        if policy.too_few(self.device.bundle.manifest.privacy, others + 1):
            raise SumRefused(
                f"policy least_cohort: this device sees {others} others in the sum of round {self.task.round}, and "
                f"{policy.least_cohort - 1} are asked for; more devices may be there next time, or allow it with "
                f"least_cohort: {others + 1}"
            )


def _written(message: KeysMessage | Shares | Agreeing | Opening) -> bytes:
    return message.model_dump_json().encode()
