"""A device: it learns from its own interactions, releases updates, takes the server's, and recommends. No torch.

    with a bundle and a folder for its private state:
    learn(interactions) -> ClientUpdate     local work of a round; private tensors change, the update goes to the
                                       server, if the device's own policy and ledger let it
    practise(interactions)             the same work, and nothing leaves
    apply(delta)                       the server's new shared tensors
    prototype(), take(reply)           what a method that reads sessions tells the server of one, and is told
    next_block()                       what was learned so far is remembered and replayed from now on (continual runs)
    personalise()                      local training that never leaves the device
    update(bundle)                     a newer bundle of the same lineage; undo() goes back
    recommend(k), explain(items)       (`edge.recommendation`)

Every call leaves a whole state behind or the one from before it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge import exchange, publisher
from edge import rollback as seen
from edge import session_state as streams
from edge import undo as undoing
from edge.archive import kept
from edge.catalogue import Catalogue
from edge.clients import read_tensors
from edge.cold_start import StartList
from edge.delta import Delta, check_fits
from edge.device_ledger import Spending
from edge.enrol import first_state, renewed_state
from edge.learning import Learning
from edge.limits import Limits
from edge.local_work import LocalWork
from edge.migration import Carried, check_follows, migrated_state
from edge.model import Model, trained_mb
from edge.policy import Policy
from edge.recommendation import Adviser
from edge.release import BEGUN, Releaser
from edge.signature import KeyId, Trusted
from edge.state import Damaged, State, Store
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Device(Adviser, Releaser):
    """This is one device.

    `bundle`: a bundle, folder or zip; `state_dir`: where its private state lives, made when it is not there.

    `user`: the name that a server knows the device by (first use only), of a bundle with users one of these; None: no
    name. `max_ram_mb` and `max_seconds` bound training, which then stops within a step (None: the policy's); all else
    is bounded where a command runs in a child of its own (`edge.limited_process`), and not here. `trusted`: public
    keys, one of which must have signed the bundle; None: whichever key signed the first one is trusted, and from then
    on no other. `policy`: what may leave (None: policy.yaml in the state's folder, and strict defaults where there is
    none). `renew`: where the state is of another bundle of the same publisher, go on under this one; the ledger of all
    that has ever left goes on too.

    Raises `InputError` for a bundle that is refused, and for a state of another bundle.

    >>> device = Device("bundles/phone_sd680", "state")  # doctest: +SKIP
    >>> release = device.learn(["318", "50"])  # doctest: +SKIP
    >>> device.recommend(3)  # doctest: +SKIP
    [('527', "Schindler's List (1993)", 4.81), ...]
    """

    def __init__(
        self,
        bundle: str | Path,
        state_dir: str | Path,
        *,
        user: str | None = None,
        max_ram_mb: float | None = None,
        max_seconds: float | None = None,
        trusted: Trusted = None,
        now: datetime | None = None,
        policy: Policy | None = None,
        renew: bool = False,
    ):
        self.store = Store(state_dir)
        self.bundle = kept(bundle, self.store.folder, seen.terms(self.store, trusted, now))
        self.policy = Policy.of(self.store.folder) if policy is None else policy
        publisher.check(self.bundle, self.store, self.policy)  # before anything of it is given to a runtime
        limits = Limits(
            self.policy.max_ram_mb if max_ram_mb is None else max_ram_mb,
            self.policy.max_seconds if max_seconds is None else max_seconds,
        )
        limits.check_room(f"bundle {self.bundle.root}: its trained tables", trained_mb(self.bundle))
        self.catalogue, self._first = Catalogue(self.bundle), StartList.of(self.bundle)
        self._model = Model(self.bundle, self.store.folder)
        self._work = LocalWork(self.bundle, self.catalogue, self._model, limits)
        self._start(user, renew)
        seen.note(self.store.folder, seconds=seen.unix(now))
        if self.store.settled:
            self._take()

    @property
    def learning(self) -> Learning:
        """Return what the bundle says about learning; `InputError` when it can only recommend."""
        if self.bundle.config.learning is None:
            raise InputError(f"bundle {self.bundle.root} only recommends: it was exported without step graphs")
        return self.bundle.config.learning

    @property
    def publisher(self) -> list[KeyId] | None:
        """Return the keys whose updates this device takes; None where it was let to take what nobody signed."""
        return publisher.keys_of(self.bundle, self.store)

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

    def status(self) -> dict[str, Any]:
        """Return what the device knows of itself: plain numbers, nothing private but counts."""
        state = self.state
        return {
            "bundle": state.facts["bundle"],
            "variant": self.bundle.manifest.variant,
            "user": state.facts["user"],
            "round": state.facts["round"],
            "block": state.facts["block"],
            "interactions": len(state.tensors["items.own"]),
            "earlier_interactions": len(state.tensors["items.past"]),
            "remembered": int((state.tensors["memory.items"] >= 0).sum()) if "memory.items" in state.tensors else 0,
            "releases": len(state.tensors["ledger.round"]),
            "epsilon": Spending.of(state.part("ledger")).spent(self.policy.delta),
            "epsilon_limit": self.policy.epsilon,
            "withheld": self._refuses(state) if self.bundle.config.learning is not None else None,
            "last_work": state.facts.get("work"),
            "expires": self.bundle.manifest.expires,
            "publisher": self.bundle.signed_by,
            "waiting_release": state.facts["learned"],
            "state_bytes": sum(value.nbytes for value in state.tensors.values()),
        }

    @property
    def work(self) -> dict[str, Any]:
        """Return how the last round's work went (`edge.update.WorkRecord`), which leaves with no update."""
        found: dict[str, Any] = self.state.facts.get("work") or {}
        return found

    # --- learning -------------------------------------------------------------------------------------------------

    def practise(self, interactions: Iterable[str | int] = (), times: Iterable[int] | None = None) -> None:
        """Add interactions and do the local work of the next round as `learn` does it; nothing leaves the device."""
        learning = self.learning
        with self.store.locked():
            state = self.state
            self._add(state, interactions, times)
            self._work.round(learning, state, state.facts["round"] + 1)
            self.store.write(state)
            self._settle()

    @property
    def has_work(self) -> bool:
        """Return whether this device has interactions to learn from."""
        return self._work.has_work(self.learning, self.state)

    def note(self, interactions: Iterable[str | int], times: Iterable[int] | None = None) -> None:
        """Add interactions without learning from them yet; as `learn`."""
        with self.store.locked():
            state = self.state
            self._add(state, interactions, times)
            self.store.write(state)

    def personalise(self, interactions: Iterable[str | int] = ()) -> None:
        """Train locally after the rounds (the program's final phases); nothing leaves the device."""
        learning = self.learning
        with self.store.locked():
            state = self.state
            self._add(state, interactions, None)
            self._work.personal(learning, state)
            self.store.write(state)

    def apply(self, delta: Delta, reply: Floats | None = None) -> None:
        """Take the server's new shared tensors; the state before stays beside it until the next update.

        `reply`: the server's to the prototype that went with the last release.

        Raises `InputError`, state unchanged, for a delta that the publisher has not signed, of another bundle, one that
        does not start where this device is, is older than one before it or further ahead than can be,
        tensors the bundle does not have, and values that are not finite.
        """
        learning = self.learning
        with self.store.locked():
            state = self.state
            own, newest = self.bundle.manifest.bundle_id, state.facts["round"]
            base = delta.from_round == learning.round  # from what the bundle brought: any device can take it
            publisher.check_update(delta, self.publisher)
            if delta.base_digest != own:
                raise InputError(
                    f"the update is of bundle {delta.base_digest[:12]}, not of this one; nothing was changed"
                )
            if delta.to_round <= newest or not (base or delta.from_round == newest):
                raise InputError(
                    f"the update goes from round {delta.from_round} to {delta.to_round}, but this device is at round "
                    f"{newest}; fetch the one that fits"
                )
            seen.check_round(self.store.folder, own, delta.to_round, newest)
            tables = self._model.tables(learning) if base else state.part("table")
            check_fits(delta, learning, tables)
            if reply is not None:
                state.put("private", exchange.reply_of(reply, learning, state))
            for name, (items, values) in delta.rows.items():
                tables[name] = tables[name].copy()
                tables[name][items] = values
            state.put("table", tables)
            if base:
                state.put("shared", read_tensors(self.bundle, self.bundle.config.shared))
            state.put("shared", delta.dense)
            state.facts |= {"round": delta.to_round, "learned": None, "release": None}
            state.facts.pop(BEGUN, None)
            state.drop("outbox")
            seen.note(self.store.folder, reached=(own, delta.to_round))  # ahead of the state
            self.store.write(state, keep_previous=True)

    def prototype(self, before: streams.Before = "recommending") -> Floats:
        """Return what is told the server of the session by the encoder as received, to have a reply.

        Before recommending that is of all of the session, before learning of what will be trained on. It has no noise,
        so it is no release that the ledger could count. Raises `InputError` for methods that send none, and where the
        device's policy does not let unprotected things leave.
        """
        how = self.learning.sessions
        if how is None or how.publish is None:
            raise InputError(f"bundle {self.bundle.root} sends no prototypes")
        self._allowed(self._unfit())
        self._stays_sealed()
        return self._model.told(self.learning, how.publish, self.state, before)

    def take(self, reply: Floats) -> None:
        """Keep the server's reply for the next rounds and recommendations."""
        with self.store.locked():
            state = self.state
            state.put("private", exchange.reply_of(reply, self.learning, state))
            self.store.write(state)

    def undo(self) -> None:
        """Go back to the model before the last update, or to the bundle before. Raises `InputError` when there is none.

        Interactions, what is remembered and the ledger's releases stay; under the bundle before, the ledger alone. Of a
        damaged state only the ledger beside it is kept; where that is damaged too, nothing goes back.
        """
        with self.store.locked():
            undoing.undo(self.store, self.bundle.manifest.bundle_id)

    def update(self, bundle: str | Path, *, trusted: Trusted = None, now: datetime | None = None) -> Carried:
        """Go on under a newer bundle of the same lineage, with which the state is opened from then on.

        Private tensors, interactions, memory, name and ledger go on; shared tensors are the newer bundle's. The state
        before stays until the device has learned under the new one (`undo`). A bundle of a later block of time ends the
        device's block first. Raises `InputError`, state unchanged, for a bundle of another publisher, method or
        experiment, an older one, and other private tensors.
        """
        newer = kept(bundle, self.store.folder, seen.terms(self.store, trusted, now))
        publisher.check(newer, self.store, self.policy)
        check_follows(self.bundle, newer)
        learning, catalogue = newer.config.learning, Catalogue(newer)
        tables = {} if learning is None else Model(newer, self.store.folder).tables(learning)
        with self.store.locked():
            before = self.state
            if learning is not None and learning.block > before.facts["block"]:
                self._end_block(before, learning.block)
            state, carried = migrated_state(self.catalogue, newer, catalogue, tables, before)
            self.store.set_aside()
            self.store.write(state)
        return carried

    def next_block(self) -> None:
        """End the block and remember its best items and the model's predictions (F3CRec Eq. 1).

        They are replayed from now on; the block's interactions are past. Raises `InputError` when the bundle does not
        replay.
        """
        learning = self.learning
        if learning.replay is None:
            raise InputError(f"bundle {self.bundle.root} has no blocks: its strategy replays nothing")
        with self.store.locked():
            state = self.state
            self._end_block(state, state.facts["block"] + 1)
            self.store.write(state)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _end_block(self, state: State, number: int) -> None:
        """Remember what is replayed, where the client had anything, and make the block's interactions past."""
        replay = self.learning.replay
        if replay is not None and len(state.tensors["items.own"]):
            self._work.remember(replay.list_size, self.learning, state)
        state.tensors["items.past"] = np.concatenate([state.tensors["items.past"], state.tensors["items.own"]])
        state.tensors["items.own"] = np.empty(0, np.int64)
        state.facts["block"] = number

    def _take(self) -> None:
        manifest = self.bundle.manifest
        seen.note(self.store.folder, manifest.serial, reached=(manifest.bundle_id, 0))

    def _settle(self) -> None:
        """Take no older bundle from now on, and drop the state under the one before; the caller holds the lock."""
        self._take()
        self.store.settle()

    def _start(self, user: str | None, renew: bool) -> None:
        if self.store.exists:
            if renew:
                self._renew()
            try:
                facts = self.state.facts
            except Damaged:  # whoever asks for it is told; `undo` does without
                return
            if user is not None and user != facts["user"]:
                raise InputError(f"{self.store.folder} is the state of user {facts['user']!r}, not {user!r}")
            if facts.get(publisher.FACT) != self.bundle.signed_by:
                self._remember_publisher()
            return
        state = first_state(self.bundle, self._tables(), user)
        with self.store.locked():
            if not self.store.exists:
                self.store.write(state)

    def _tables(self) -> dict[str, Floats]:
        learning = self.bundle.config.learning
        return {} if learning is None else self._model.tables(learning)

    def _renew(self) -> None:
        with self.store.locked():
            before = self.store.read()
            if before.facts.get("bundle") != self.bundle.manifest.bundle_id:
                self.store.write(renewed_state(self.bundle, self._tables(), before), keep_previous=True)
                self.store.settle()

    def _remember_publisher(self) -> None:
        with self.store.locked():
            state = self.state
            state.facts[publisher.FACT] = self.bundle.signed_by
            self.store.write(state)

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
