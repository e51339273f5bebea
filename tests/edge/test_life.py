"""A device's life in any order, beside a reference of plain numbers; any call may be cut off as by a kill.

What has to hold whatever happens: rounds fall by `undo` alone, what was released is never forgotten, a round is charged
once, released once, and asked again gives the same bytes, and what is refused changes nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge.delta import Delta
from edge.device import Device
from edge.release import BEGUN
from edge.rollback import NewestSeen
from edge.state import PREVIOUS, State, Store
from privacy import keyed
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import ITEMS
from tests.devices import open_device

BASE, CLIP = bundles.ROUND - 1, 1.0
NOISED = {"clip": CLIP, "noise": "discrete-gaussian", "scale": 0.25, "step": 2.0**-15, "noised": "here"}
FILE_OPERATIONS = ("open", "mkdir", "fsync", "chmod", "replace", "rename", "unlink", "remove")
some_items = st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=3)
cuts = st.sampled_from([None] * 24 + list(range(24)))
"""Before which of its file operations a call is cut off; none: it is not. The longest call has 20."""


class Killed(BaseException):
    """Nothing after this is done by the process that was killed."""


@contextmanager
def killed_before(operation: int | None) -> Iterator[None]:
    """Kill what runs inside before its file operation of that number: that one is not done, nor any after it."""
    done = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal done
            if operation is not None and done >= operation:
                raise Killed
            done += 1
            return real(*given, **named)

        return call

    with mock.patch.multiple(os, **{name: dying(getattr(os, name)) for name in FILE_OPERATIONS}):
        yield


@dataclass(frozen=True)
class Model:
    """What an update replaces and `undo` brings back: the round, the shared tensors, and the release that waits."""

    round: int
    shared: Mapping[str, npt.NDArray[np.float32]]
    waiting: int | None = None


class Life(RuleBasedStateMachine):
    """One device of a bundle that replays, clips, and adds its own noise."""

    device: Device
    now: Model
    before: Model | None = None
    begun: int | None = None
    """The round that was charged and is not released yet."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="life-")
        self.ledger: list[int] = []
        self.sent: dict[int, bytes] = {}
        self.own: list[int] = []
        self.past: list[int] = []
        self.block = self.highest = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize(variant=st.sampled_from(["transfr vector", "fedmf"]), user=st.sampled_from([None, bundles.user(7)]))
    def start(self, variant: str, user: str | None) -> None:
        self.bundle = bundles.bundle(variant, replay=True, **NOISED)
        self.device = open_device(self.bundle, self.folder, user=user)
        self.now = Model(BASE, self.shared())
        self.brought = self.now.shared  # by the bundle
        self.past = self.state().tensors["items.past"].tolist()
        assert not self.done(self.device.undo, None, refused=True), "there is nothing to undo"

    # --- what a device does ---------------------------------------------------------------------------------------

    @rule(new=st.one_of(st.just([]), some_items), cut=cuts)
    def learn(self, new: list[int], cut: int | None) -> None:
        number = self.now.round + 1
        again = number in (self.now.waiting, self.begun)
        refused = not again and number in self.ledger  # who has nothing to learn from sends noise
        if not self.done(lambda: self.device.learn(new), cut, refused):
            return
        self.add(new)
        if not again:
            self.ledger.append(number)
        if cut is not None and self.state().facts["learned"] != number:
            self.begun = number  # charged, and cut off before it was released
            return
        self.begun, self.now = None, replace(self.now, waiting=number)
        content = self.device.learn().to_bytes()
        assert self.sent.setdefault(number, content) == content, f"round {number} was released in two ways"

    @rule(new=some_items)
    def go_through_a_round(self, new: list[int]) -> None:
        self.learn(new, None)
        self.apply(self.now.round, self.now.round + 1, None, refused=self.now.round + 1 < self.highest)

    @rule(new=some_items, cut=cuts, personal=st.booleans())
    def learn_for_itself(self, new: list[int], cut: int | None, personal: bool) -> None:
        final = any(phase.when == "final" for phase in self.device.learning.phases)
        call = self.device.personalise if personal else self.device.note
        if self.done(lambda: call(new), cut, personal and not (final and {*self.own, *new})):
            self.add(new)

    @rule(cut=cuts)
    def next_block(self, cut: int | None) -> None:
        if self.done(self.device.next_block, cut):
            self.past, self.own, self.block = self.past + self.own, [], self.block + 1

    @rule(ahead=st.integers(1, 3), base=st.booleans(), cut=cuts)
    def take_an_update(self, ahead: int, base: bool, cut: int | None) -> None:
        to_round = self.now.round + ahead
        self.apply(BASE if base else self.now.round, to_round, cut, refused=to_round < self.highest)

    @precondition(lambda self: self.now.round > BASE)
    @rule(back=st.integers(0, 3), base=st.booleans(), cut=cuts)
    def take_an_older_update(self, back: int, base: bool, cut: int | None) -> None:
        to_round = max(self.now.round - back, BASE + 1)
        self.apply(BASE if base else to_round - 1, to_round, cut, refused=True)

    @rule(off=st.sampled_from([-1, 0, 1, 2]), cut=cuts)
    def take_an_update_from_elsewhere(self, off: int, cut: int | None) -> None:
        """From a round that this device is not at, or (0) of another bundle."""
        start = max(self.now.round + off, 0)
        other = {"base_digest": "0" * 64} if off == 0 else {}
        wrong = off == 0 or start not in (BASE, self.now.round)
        self.apply(start, self.now.round + 4, cut, refused=wrong or self.now.round + 4 < self.highest, **other)

    @precondition(lambda self: self.before is not None)
    @rule(cut=cuts)
    def undo(self, cut: int | None) -> None:
        if self.done(self.device.undo, cut):
            assert self.before is not None
            self.now, self.begun = self.before, None

    @rule()
    def open_again_and_recommend(self) -> None:
        self.device = open_device(self.bundle, self.folder)
        shown = {int(item.removeprefix("i")) for item, *_ in self.device.recommend(ITEMS)}
        assert not shown & {*self.own, *self.past}

    # --- what has to hold -----------------------------------------------------------------------------------------

    @invariant()
    def the_state_is_as_it_should_be(self) -> None:
        state = self.state()
        assert state.tensors["ledger.round"].tolist() == self.ledger
        assert state.tensors["ledger.clip"].tolist() == [CLIP] * len(self.ledger)
        assert len({*self.ledger}) == len(self.ledger), "a round was released twice"
        assert (state.tensors["items.own"].tolist(), state.tensors["items.past"].tolist()) == (self.own, self.past)
        facts = state.facts
        assert facts.get(BEGUN) == self.begun
        assert (facts["round"], facts["block"], facts["learned"]) == (self.now.round, self.block, self.now.waiting)
        for name, value in (state.part("shared") | state.part("table")).items():
            np.testing.assert_array_equal(value, self.now.shared[name], err_msg=name)

    # --- parts ----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        return Store(self.folder).read()

    def shared(self) -> dict[str, npt.NDArray[np.float32]]:
        state = self.state()
        return state.part("shared") | state.part("table")

    def add(self, new: list[int]) -> None:
        self.own += [item for item in dict.fromkeys(new) if item not in self.own]

    def done(self, call: Callable[[], object], cut: int | None, refused: bool = False) -> bool:
        """Whether the call has done what it is for; one that was cut off may have done so before it ended."""
        before = self.state().digest()
        try:
            with killed_before(cut):
                call()
        except InputError:
            assert refused, "refused for no reason"
            assert self.state().digest() == before, "a call that was refused has changed something"
            return False
        except Killed:
            self.device = open_device(self.bundle, self.folder)
            return self.state().digest() != before
        assert not refused, "not refused"
        return True

    def apply(self, start: int, to_round: int, cut: int | None, refused: bool = False, **other: str) -> None:
        """Take an update; the model beside it, unless it is `refused`."""
        shared = dict(self.brought if start == BASE else self.now.shared)
        name = sorted(shared)[to_round % len(shared)]
        draw = keyed.normal(to_round, np.arange(shared[name].size)).astype(np.float32).reshape(shared[name].shape)
        bundle = self.device.bundle
        facts: dict[str, Any] = {"base_digest": bundle.manifest.bundle_id, "from_round": start, "to_round": to_round}
        facts |= {"signed_by": bundle.signed_by}
        if name == "item":
            items = keyed.choose(to_round, np.arange(ITEMS), 5)
            delta = Delta(**(facts | other), rows={"item": (items, draw[items])})
            shared[name] = np.where(np.isin(np.arange(ITEMS), items)[:, None], draw, shared[name])
        else:
            delta = Delta(**(facts | other), dense={name: draw})
            shared[name] = draw
        kept = self.state().digest()
        taken = self.done(lambda: self.device.apply(delta), cut, refused)
        seen = NewestSeen.of(Store(self.folder).folder).round
        assert seen in ({to_round} if taken else {self.highest, to_round} if cut is not None else {self.highest})
        self.highest = seen  # noted ahead of the state, so it may be all that was done
        if taken:
            self.before, self.now, self.begun = self.now, Model(to_round, shared), None
        elif (Store(self.folder).folder / PREVIOUS).exists() and Store(self.folder).read(PREVIOUS).digest() == kept:
            self.before = self.now  # cut off between the two files


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
