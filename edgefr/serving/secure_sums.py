"""A round's uploads are summed so that the server learns their total alone, in the five steps of a secure sum.

keys (devices learn meanwhile) ─► shares ─► masked vectors, added at once ─► signatures ─► shares that open ─► total

A device that leaves before any step is left out; with too few devices to open the sum, or fewer than must answer, the
round is given up without any knowledge of uploads. A masked vector is added as it comes and never stored.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from cloud.secure_sum import SecureSum, Trust, neighbourhood
from edge.connection import CONFLICT
from edge.learning import Learning
from edge.sum_messages import (
    SALT,
    STEPS,
    Agreed,
    Agreeing,
    Asked,
    KeysMessage,
    Neighbours,
    Opening,
    Seat,
    Shares,
    Step,
    opened,
    vector_of,
)
from edgefr.serving.admission import RequestRefused, reading
from edgefr.serving.norm_bound import Reach
from edgefr.serving.round_status import Tell, awaited, untold
from privacy.errors import InputError
from privacy.masks import KEY, Keys, agreed

STEP_S = 60.0
"""How long the steps after the first wait, at most: devices have learned by then."""
FEWEST = 3
"""Uploads in a sum that is opened: of two, each would know the other's."""
KEYS_BYTES, MESSAGE_BYTES = 512, 1024
"""Bytes of a message with keys or a signature, and of one with shares beside the shares themselves, at most."""
SHARES_BYTES, OPENING_BYTES = 256, 128
"""Bytes that a message may have for each device in the sum: sealed shares of two secrets, and one that is revealed."""


@dataclass(frozen=True)
class SumTerms:
    """These are a round's vectors: `size` whole steps of a grid, none above `largest`.

    `length` bounds them in the norm of this `order`, in steps.
    """

    size: int
    grid: float
    largest: int
    length: float
    order: Literal[1, 2]

    @classmethod
    def of(cls, learning: Learning, cohort: int) -> SumTerms:
        """Return the terms for a bundle's devices. Raises `InputError` for uploads that cannot be summed masked."""
        terms, reach = learning.release, Reach.of(learning)
        if terms.clip is None or terms.grid is None:
            raise InputError("a secure sum adds whole steps of bounded length, and these uploads have no privacy.clip")
        if terms.weights != "uniform":
            raise InputError("a secure sum weighs all uploads alike: use aggregation.weights=uniform")
        if terms.own_noise is not None and reach is None:
            raise InputError(f"nobody knows how far {terms.noise} noise reaches, so sums of it may not fit 32 bits")
        steps, norm = terms.clip / terms.grid, terms.norm
        value, length = steps, steps
        if reach is not None:
            value, length, norm = reach.clip + reach.tail.value, reach.clip + reach.tail.length, reach.tail.norm
        found = cls(learning.uploaded, terms.grid, math.ceil(value) + 1, length + 1, 1 if norm == "l1" else 2)
        neighbourhood(cohort, Trust())
        if cohort * found.largest >= 1 << 31:
            raise InputError(
                f"a sum of {cohort:,} uploads with values up to {found.largest:,} does not fit 32 bits; invite fewer "
                "clients, or raise privacy.grid_exponent"
            )
        return found

    def holds(self, total: npt.NDArray[np.int32], clients: int) -> bool:
        """Say whether a total is possible for so many honest devices; single uploads are unknown."""
        steps = total.astype(np.float64)
        widest, length = float(np.abs(steps).max(initial=0.0)), float(np.linalg.norm(steps, self.order))
        return widest <= clients * self.largest and length <= clients * self.length


@dataclass(frozen=True)
class Total:
    """This is what a sum opened to: int32 [size], and how many uploads are in it."""

    steps: npt.NDArray[np.int32]
    clients: int


def _nobody() -> None: ...


class SealedRound:
    """This is the sum of one round: devices send and ask from any number of threads, one thread leads it.

    `bundle`: the id of their bundle, or of several classes', which they are `told` then. `users`: who is invited;
    `fewest`: uploads that open the sum. `heard` is called when a step ends. `given_up` says why there is no total.
    """

    def __init__(
        self, bundle: str, number: int, terms: SumTerms, users: Collection[str], fewest: int, *, told: bool = False
    ):
        numbers = list(range(1, len(users) + 1))
        secrets.SystemRandom().shuffle(numbers)  # neighbours are told numbers, which say nothing of who it is
        self.round, self.terms, self.fewest = number, terms, max(fewest, FEWEST)
        self.numbers = dict(zip(users, numbers, strict=True))
        self.salt, self.base = secrets.token_bytes(SALT), bundle if told else None
        self.sum = SecureSum(Seat(1, self.salt).session(bundle, number), terms.size, terms.largest)
        self.heard: Callable[[], None] = _nobody
        self.given_up: str | None = None
        self._tell: Tell = untold
        self._changed = threading.Condition()
        self._step: Step | None = "keys"
        self._taking = True  # and not between two steps
        self._near: dict[int, list[int]] = {}
        self._keys: dict[int, Keys] = {}
        self._taken: dict[Step, dict[int, bytes]] = {step: {} for step in STEPS}  # digests, by number

    # --- the rounds' side -----------------------------------------------------------------------------------------

    def collect(self, timeout_s: float, tell: Tell = untold) -> Total | None:
        """Lead devices through the steps; None if the sum is given up. Steps after the first end in `STEP_S`.

        `tell` hears how many have sent a step's message.
        """
        later, self._tell = min(timeout_s, STEP_S), tell
        try:
            self._lead("keys", timeout_s, self.numbers.values(), self._pair)
            self._lead("shares", later, self._near)
            self._lead("vector", later, self.sum.openable(self._taken["shares"].keys()), self._suffice)
            self._lead("agree", later, self._taken["vector"].keys(), self.sum.agreed)
            self._lead("opening", later, self._taken["agree"])
            steps, whose = self.sum.opened()
            if not self.terms.holds(steps, len(whose)):
                raise InputError("the sum is longer than these uploads can make it: a device sent what it may not")
            return Total(steps, len(whose))
        except InputError as error:
            self.given_up = str(error)
            return None
        finally:
            self.close()

    def _lead(self, step: Step, timeout_s: float, asked: Collection[int], ending: Callable[[], None] = _nobody) -> None:
        """Wait until all that are `asked` have sent a step's message, or `timeout_s`; then run `ending`.

        Raises `InputError` where too few have.
        """
        found = self._taken[step]
        awaited(
            self._changed,
            lambda: self._step is None or found.keys() >= set(asked),
            lambda: len(found),
            timeout_s,
            lambda there: self._tell(there, len(self.numbers), f" or more, step {step} of a secure sum"),
        )
        with self._changed:
            if self._step is None:
                raise InputError("the server stopped")
            if len(found) < self.fewest:
                raise InputError(f"{len(found)} devices were left after step {step}, and {self.fewest} must be")
            self._taking = False
        ending()  # without the lock, which devices' questions need
        with self._changed:
            following = STEPS.index(step) + 1
            if self._step is not None:
                self._step, self._taking = (STEPS[following] if following < len(STEPS) else None), True
        self.heard()

    def _pair(self) -> None:
        self._near = self.sum.pair(self._keys)

    def _suffice(self) -> None:
        """Raise `InputError` where the remaining devices could not open the sum."""
        arrived = self._taken["vector"].keys()
        if not arrived <= self.sum.openable(arrived):
            raise InputError(f"the {len(arrived)} devices that are left are too few to open the sum")

    def close(self) -> None:
        """End the sum, and tell waiting devices that it continued without them."""
        with self._changed:
            self._step = None
            self._changed.notify_all()
        self.heard()

    # --- the devices' side ----------------------------------------------------------------------------------------

    def seat(self, device: str) -> Seat:
        """Return a device's place in the sum."""
        return Seat(self.numbers[device], self.salt, self.base)

    def expects(self, device: str, step: Step, digest: bytes) -> int:
        """Return how many bytes a device may send in a step. Raises `RequestRefused` for an unexpected digest."""
        number, devices = self._number(device), len(self.numbers)
        with self._changed:
            self._is_new(number, step, digest)
        return {
            "keys": KEYS_BYTES,
            "shares": MESSAGE_BYTES + SHARES_BYTES * devices,
            "vector": 4 * self.terms.size,
            "agree": KEYS_BYTES,
            "opening": MESSAGE_BYTES + OPENING_BYTES * devices,
        }[step]

    def take(self, device: str, step: Step, content: bytes) -> bool:
        """Take a device's message of a step; False: it was taken before. Raises `RequestRefused`."""
        number, digest = self._number(device), hashlib.sha256(content).digest()
        with reading("not a message of a secure sum"):
            put = self._read(number, step, content)
        with self._changed:
            if not self._is_new(number, step, digest):
                return False
            try:
                put()
            except InputError as error:
                raise RequestRefused(CONFLICT, str(error)) from error
            self._taken[step][number] = digest
            self._changed.notify_all()
            return True

    def ended(self, device: str, step: Step) -> bool:
        """Say whether a step has ended for a device. Refuses a device outside it."""
        number = self._number(device)
        with self._changed:
            if self._step is None or step == "opening" or number not in self._taken[step]:
                raise RequestRefused(CONFLICT, f"the sum of round {self.round} goes on without this device")
            return STEPS.index(self._step) > STEPS.index(step)

    def answer(self, device: str, step: Step) -> bytes | None:
        """Return a step's result for a device, or None before its end. Refuses a device outside it."""
        if not self.ended(device, step):
            return None
        with self._changed:
            message = self._come_to(self._number(device), step)
        return message.model_dump_json().encode()

    def _is_new(self, number: int, step: Step, digest: bytes) -> bool:
        """Say whether a message is new. Raises `RequestRefused` where the step is over for its device."""
        if self._taken[step].get(number) == digest:
            return False
        if self._step != step or not self._taking or number in self._taken[step] or not self._in_time(number, step):
            raise RequestRefused(CONFLICT, f"step {step} of round {self.round}'s sum is over for this device")
        return True

    def _in_time(self, number: int, step: Step) -> bool:
        at = STEPS.index(step)
        return at == 0 or number in self._taken[STEPS[at - 1]]

    def _come_to(self, number: int, step: Step) -> Neighbours | Shares | Asked | Agreed:
        if step == "keys":
            near = {other: self._keys[other] for other in self._near[number]}
            return Neighbours.of(self.sum.threshold, near, self.sum.roster)
        if step == "shares":
            return Shares.of(self.sum.inbox(number))
        return Asked.of(*self.sum.sets) if step == "vector" else Agreed.of(self.sum.signatures)

    def _read(self, number: int, step: Step, content: bytes) -> Callable[[], None]:
        """Read a device's message, and return the function that takes it."""
        if step == "keys":
            keys = opened(KeysMessage, content).keys
            _check(keys)
            return partial(self._put_keys, number, keys)
        if step == "shares":
            return partial(self.sum.take_shares, number, opened(Shares, content).contents)
        if step == "vector":
            return partial(self.sum.take_masked, number, vector_of(content, self.terms.size))
        if step == "agree":
            return partial(self.sum.take_signature, number, bytes.fromhex(opened(Agreeing, content).signature))
        return partial(self.sum.take_revealed, number, opened(Opening, content).revealed)

    def _put_keys(self, number: int, keys: Keys) -> None:
        if any(keys.share == other.share or keys.sign == other.sign for other in self._keys.values()):
            raise InputError("another device has announced this key")
        self._keys[number] = keys

    def _number(self, device: str) -> int:
        if device not in self.numbers:
            raise RequestRefused(CONFLICT, f"the sum of round {self.round} goes on without this device")
        return self.numbers[device]

    @property
    def waiting(self) -> Set[int]:
        """Return the numbers of devices without a vector."""
        return set(self.numbers.values()) - self._taken["vector"].keys()


def _check(keys: Keys) -> None:
    """Raise `InputError` for weak keys, at which neighbours would refuse the whole sum."""
    own = secrets.token_bytes(KEY)
    for public in (keys.mask, keys.share):
        try:
            agreed(own, public, b"", "mask", (0, 0))
        except ValueError as error:
            raise InputError("these keys are none") from error
