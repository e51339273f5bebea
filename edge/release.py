"""This lets a device's update of a round out: it is admitted, charged, made, and handed out once.

    its policy or ledger says no     nothing is charged, and nothing leaves
    charged, and written down        before any graph sees the device's data
    what training came to            or noise on zeros, where training failed or was cut off
    asked again                      the same bytes

Where anything is promised of an update, that it leaves must say nothing of what the graphs met: a round that was
charged always ends in a release, since a missing one would tell a bit that no noise covers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from edge import rollback as seen
from edge import session_state as streams
from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.device_ledger import Spending
from edge.learning import Learning
from edge.local_work import LocalWork
from edge.policy import Policy, event_of
from edge.state import BEGUN, State, Store
from edge.update import ClientUpdate
from privacy.errors import InputError
from privacy.guarantee import Event

CUT_OFF = "its training was cut off before it ended"


class Withheld(InputError):
    """A device lets nothing leave: its own policy or ledger says so."""


def may_be_clear(state: State) -> bool:
    """Say whether the release that a state has, or has begun, was made to leave without masks, and in no sum."""
    number = state.facts["learned"] or state.facts.get(BEGUN)
    return bool(state.facts.get("clear")) and state.facts.get("masked") != number


class Releaser:
    """This is the part of a device that lets its updates leave."""

    bundle: Bundle
    store: Store
    catalogue: Catalogue
    policy: Policy
    _work: LocalWork

    @property
    def learning(self) -> Learning:
        """Return what the bundle says about learning; `InputError` when it can only recommend."""
        if self.bundle.config.learning is None:
            raise InputError(f"bundle {self.bundle.root} only recommends: it was exported without step graphs")
        return self.bundle.config.learning

    @property
    def state(self) -> State:
        """Return the state as it is on the disk; `InputError` when it belongs to another bundle."""
        found = self.store.read()
        own = self.bundle.manifest.bundle_id
        if found.facts.get("bundle") != own:
            other = str(found.facts.get("bundle"))[:12]
            raise InputError(
                f"{self.store.folder} is the state of bundle {other}, not of {own[:12]}: go on under this one with "
                "`edgefr device update` or --renew, or give another --state"
            )
        return found

    def learn(
        self, interactions: Iterable[str | int] = (), times: Iterable[int] | None = None, *, masked: bool = False
    ) -> ClientUpdate:
        """Add interactions (item ids or numbers), do the local work of the next round, and release the update.

        `times`: when each of them was, unix seconds, for methods that read sessions (None: now). `masked`: it is going
        to leave under the masks of a secure sum (`edge.remote`).

        Asked again before the server's next update, it hands out the same release. It is in the device's own ledger
        before it is handed out, and where anything is promised before training begins; then a release comes whatever
        becomes of training (`work` says why it is noise alone). Raises `InputError` for unknown items, for a release
        that the device's policy or ledger refuses, for one in the clear that was made for a secure sum, and for a round
        that was released before an update was undone; without a guarantee also when there is nothing to learn
        from, and for training that fails or diverges.
        """
        learning = self.learning
        with self.store.locked():
            state = self.state
            self._add(state, interactions, times)
            number = state.facts["round"] + 1
            if not masked:
                self._allowed(self.policy.refuses_in_the_clear())
            begun = number in (state.facts["learned"], state.facts.get(BEGUN))
            if begun and not masked and not may_be_clear(state):
                raise Withheld(
                    f"the update of round {number} was made for a secure sum, and leaves under masks alone; "
                    "take the server's next update first"
                )
            if state.facts["learned"] == number:
                self.store.write(state)
                return ClientUpdate.of(state.facts["release"], state.part("outbox"))
            made = self._made(learning, state, number, masked)
            state.facts |= {"learned": number, "release": made.facts(), "clear": not masked}
            state.facts.pop(BEGUN, None)
            state.drop("outbox")
            state.put("outbox", made.arrays())
            self.store.write(state)
            self._settle()
            return made

    def has_left_masked(self, number: int) -> bool:
        """Say whether the update of a round was in a secure sum, and so may be in no other."""
        return bool(self.state.facts.get("masked") == number)

    def leave_masked(self, number: int) -> None:
        """Write down that the update of a round is about to leave in a secure sum; `Withheld` where it has before.

        Two totals that differ by one device would be its update.
        """
        with self._changed() as state:
            if state.facts.get("masked") == number:
                raise Withheld(f"the update of round {number} has left in a secure sum, and leaves in no other")
            state.facts["masked"] = number

    def refuses(self) -> str | None:
        """Return why no update may leave this device now, in one line, by its own policy and ledger; None: one may."""
        return self._refuses(self.state)

    def _made(self, learning: Learning, state: State, number: int, masked: bool) -> ClientUpdate:
        """Make the release of a round, charged in `state`; of a promise the charge is on the disk before training.

        A round that was charged and cut off is not trained again: what stopped it would stop it for ever.
        """
        if state.facts.get(BEGUN) == number:
            self._allowed(self._unfit())
            return self._work.nothing(learning, state, number, CUT_OFF)
        if number in state.tensors["ledger.round"][state.facts.get("renewed", 0) :]:
            raise InputError(
                f"round {number} was released before an update was undone or an older state was put back, and no "
                "round is released twice; take the server's next update first"
            )
        self._allowed(self._refuses(state))
        if not learning.release.promises:
            made = self._work.release(learning, state, number)
            self._charge(learning, state, number)
            return made
        self._work.load(learning)
        self._charge(learning, state, number)
        state.facts |= {BEGUN: number, "clear": not masked}
        self.store.write(state)
        return self._work.release(learning, state, number)

    def _charge(self, learning: Learning, state: State, number: int) -> None:
        spent = Spending.of(state.part("ledger")).after(number, self._event, learning.release.clip, int(time.time()))
        state.put("ledger", spent.arrays())

    def _allowed(self, why: str | None) -> None:
        if why is not None:
            raise Withheld(f"nothing leaves this device: {why}")

    def _refuses(self, state: State) -> str | None:
        return self._unfit() or Spending.of(state.part("ledger")).may(self._event, int(time.time()), self.policy)

    def _unfit(self) -> str | None:
        learning, bundle = self.learning, self.bundle
        return self.policy.refuses(learning.release, bundle.manifest.privacy, bundle.signed_by, learning.leaving)

    @contextmanager
    def _changed(self) -> Iterator[State]:
        with self.store.locked():
            state = self.state
            yield state
            self.store.write(state)

    def _take(self) -> None:
        manifest = self.bundle.manifest
        seen.note(self.store.folder, serial=manifest.serial, reached=(manifest.bundle_id, 0))

    def _settle(self) -> None:
        """Take no older bundle from now on, and drop the state under the one before; the caller holds the lock."""
        self._take()
        self.store.settle()

    def _add(self, state: State, interactions: Iterable[str | int], times: Iterable[int] | None) -> None:
        """Add new interactions to those of the block, where what is there changes nothing, and to the session."""
        items, own = self.catalogue.numbers(interactions), state.tensors["items.own"]
        known = set(own.tolist())
        new = [item for item in dict.fromkeys(items.tolist()) if item not in known]
        state.tensors["items.own"] = np.concatenate([own, np.array(new, np.int64)])
        config = self.bundle.config
        if config.window is not None:
            how = None if config.learning is None else config.learning.sessions
            moments = streams.moments(state, len(items), times, int(time.time()))
            streams.extend(state, items, moments, streams.GAP_S if how is None else how.gap_s, config.window)

    @property
    def _event(self) -> Event:
        return event_of(self.bundle.manifest.privacy)
