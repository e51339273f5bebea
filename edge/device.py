"""A device learns from its own interactions, releases updates, takes the server's, and recommends. No torch.

Every call leaves a whole state behind or the one from before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge import exchange, publisher
from edge import rollback as seen
from edge import session_state as streams
from edge.archive import kept
from edge.bundle import Bundle
from edge.catalogue import Catalogue, Recommendations, StartList, ranked, top
from edge.clients import read_tensors
from edge.delta import Delta, check_fits
from edge.device_ledger import Spending
from edge.enrol import Carried, check_follows, first_state, migrated_state, renewed_state
from edge.explain import Explanation, explained
from edge.limited_process import Limits
from edge.local_work import LocalWork
from edge.model import Model, trained_mb
from edge.policy import Policy
from edge.release import Releaser
from edge.scorer import placed
from edge.signature import KeyId, Trusted
from edge.state import BEGUN, Damaged, State, Store, undo
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


class Device(Releaser):
    """A device works with a bundle, a folder or zip, on the private state in `state_dir`, which is made where needed.

    `user`: the name that a server knows the device by (first use only), of a bundle with users one of these.
    `max_ram_mb` and `max_seconds` bound training, which stops within a step (None: the policy's); the rest is bounded
    where a command runs in a child of its own (`edge.limited_process`). `trusted`: public keys, one of which must have
    signed the bundle (None: the key that signed the first one, and no other). `policy`: what may leave (None:
    policy.yaml in the state's folder, strict defaults without one). `renew`: where the state is of another bundle of
    the same publisher, go on under this one, and with the ledger.

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
        # before anything of it is given to a runtime
        self._check_key(self.bundle)
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
    def publisher(self) -> list[KeyId] | None:
        """Return the keys whose updates this device takes; None where it was let to take what nobody signed."""
        return publisher.keys_of(self.bundle, self.store)

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
        with self._changed() as state:
            self._add(state, interactions, times)

    def personalise(self, interactions: Iterable[str | int] = ()) -> None:
        """Train locally after the rounds (the program's final phases); nothing leaves the device."""
        learning = self.learning
        with self._changed() as state:
            self._add(state, interactions, None)
            self._work.personal(learning, state)

    def apply(self, delta: Delta, reply: Floats | None = None) -> None:
        """Take the server's new shared tensors; the state before stays beside it until the next update.

        `reply`: the server's to the prototype that went with the last release. Raises `InputError`, state unchanged,
        for a delta that the publisher has not signed, of another bundle, that does not start where this device is, is
        older than one before it or too far ahead, and for tensors that are not the bundle's or not finite.
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
            check_fits(delta, learning)
            tables = self._model.tables() if base else state.part("table")
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
        self._allowed(self.policy.refuses_in_the_clear())
        return self._model.told(how.publish, self.state, before)

    def take(self, reply: Floats) -> None:
        """Keep the server's reply for the next rounds and recommendations."""
        with self._changed() as state:
            state.put("private", exchange.reply_of(reply, self.learning, state))

    def scores(self, reply: Floats | None = None) -> Floats:
        """Return the device's own score (logit) of every item, float32 [items]; `reply`: in place of the one kept."""
        state = self.state
        if reply is not None:
            state.put("private", exchange.reply_of(reply, self.learning, state))
        config = self.bundle.config
        if "personal" in {name.partition(".")[0] for name in state.tensors} or config.learning is None:
            private = state.part("personal") or state.part("private")
            return self._model.scores(config.score, state, private)
        if any(tensor.anew is not None for tensor in config.learning.tensors):
            raise InputError(
                "this method keeps nothing of a user from round to round: personalise first (edgefr device learn "
                "--personalise), which makes it anew of all that the user had"
            )
        return self._work.scores(config.learning, state)

    def recommend(self, k: int, exclude: Iterable[str | int] = (), reply: Floats | None = None) -> Recommendations:
        """Return the k best items, as (id, title, score), best first; ties in the catalogue's order.

        What the user has had is left out, but not where sessions are read, which may repeat themselves. `reply`: the
        server's to the prototype of the session, for this once. Who has had nothing yet is shown the bundle's own list,
        or nothing: the `basis` says so.
        """
        left_out, state = self.catalogue.numbers(exclude), self.state
        had = np.concatenate([state.tensors[f"items.{name}"] for name in ("own", "past", "seen")])
        if self.bundle.config.window is None:
            left_out = np.concatenate([had, left_out])
        left = self.catalogue.left(k, left_out)
        scores = self.scores(reply) if len(had) else None
        return ranked(left, k, scores, lambda: self._first, self.catalogue.named)

    def nearest(self, item: str | int, k: int = 3) -> list[tuple[str, str, float]]:
        """Return the user's own items that are nearest to an item: (id, title, cosine of their rows), nearest first.

        It compares the model's rows of items: how alike the model takes the items to be, not a proof of cause. Raises
        `InputError` where the user has had nothing else, and for a model without such rows.
        """
        state = self.state
        number = self.catalogue.numbers([item])[0]
        had = np.unique(np.concatenate([state.tensors["items.own"], state.tensors["items.past"]]))
        had = had[had != number]
        if not len(had):
            raise InputError("nothing to explain from: the device has no other items of its user")
        rows = self._model.compared(state)
        one, own = np.asarray(rows(np.array([number]))[0], float), np.asarray(rows(had), float)
        norms = np.linalg.norm(own, axis=1) * np.linalg.norm(one)
        alike = ((own @ one) / np.where(norms > 0, norms, 1)).astype(np.float32)
        return [self.catalogue.named(int(had[place]), float(alike[place])) for place in top(alike, k)]

    def explain(self, items: Iterable[str | int] | None = None, k: int = 3) -> list[Explanation]:
        """Return what items lean on among those that the user had last, by the method's own weights, which sum to 1.

        `items`: ids or numbers (None: the `k` best). Raises `InputError` for a method that says nothing of the kind,
        and where the user has had nothing.
        """
        state, asked = self.state, items
        if asked is None:
            asked = [item for item, *_ in self.recommend(k)]
        own = state.part("personal") or state.part("private")
        dense = placed(state.part("shared"), own)
        context, rows = self._model.context(state), self._model.rows(state)
        return explained(self.bundle, dense, context, rows, self.catalogue.numbers(asked))

    def undo(self) -> None:
        """Go back to the model before the last update, or to the bundle before; `InputError` when there is none.

        Interactions, what is remembered and the ledger's releases stay; under the bundle before, or of a damaged state,
        the ledger alone. Where the ledger is damaged too, nothing goes back.
        """
        with self.store.locked():
            undo(self.store, self.bundle.manifest.bundle_id)

    def update(self, bundle: str | Path, *, trusted: Trusted = None, now: datetime | None = None) -> Carried:
        """Go on under a newer bundle of the same lineage, with which the state is opened from then on.

        Private tensors, interactions, memory, name and ledger go on. The state before stays until the device has
        learned under the new bundle (`undo`). A bundle of a later block of time ends the device's block first. Raises
        `InputError`, state unchanged, for a bundle of another publisher, method or experiment, and an older one.
        """
        newer = kept(bundle, self.store.folder, seen.terms(self.store, trusted, now))
        self._check_key(newer)
        check_follows(self.bundle, newer)
        learning, catalogue = newer.config.learning, Catalogue(newer)
        tables = Model(newer, self.store.folder).tables()
        with self.store.locked():
            before = self.state
            if learning is not None and learning.block > before.facts["block"]:
                self._end_block(before, learning.block)
            state, carried = migrated_state(self.catalogue, newer, catalogue, tables, before)
            self.store.set_aside()
            self.store.write(state)
        return carried

    def next_block(self) -> None:
        """End the block: its best items and the model's predictions are replayed from now on (F3CRec Eq. 1).

        Raises `InputError` when the bundle does not replay.
        """
        learning = self.learning
        if learning.replay is None:
            raise InputError(f"bundle {self.bundle.root} has no blocks: its strategy replays nothing")
        with self._changed() as state:
            self._end_block(state, state.facts["block"] + 1)

    def _check_key(self, bundle: Bundle) -> None:
        publisher.check_key(f"bundle {bundle.root}", bundle.signed_by, self.store, self.policy)

    def _end_block(self, state: State, number: int) -> None:
        """Remember what is replayed, where the client had anything, and make the block's interactions past."""
        replay = self.learning.replay
        if replay is not None and len(state.tensors["items.own"]):
            self._work.remember(replay.list_size, self.learning, state)
        state.tensors["items.past"] = np.concatenate([state.tensors["items.past"], state.tensors["items.own"]])
        state.tensors["items.own"] = np.empty(0, np.int64)
        state.facts["block"] = number

    def _start(self, user: str | None, renew: bool) -> None:
        if not self.store.exists:
            state = first_state(self.bundle, self._model.tables(), user)
            with self.store.locked():
                if not self.store.exists:
                    self.store.write(state)
            return
        if renew:
            with self.store.locked():
                before = self.store.read()
                if before.facts.get("bundle") != self.bundle.manifest.bundle_id:
                    renewed = renewed_state(self.bundle, self._model.tables(), before)
                    self.store.write(renewed, keep_previous=True)
                    self.store.settle()
        try:
            facts = self.state.facts
        except Damaged:  # whoever asks for it is told; `undo` does without
            return
        if user is not None and user != facts["user"]:
            raise InputError(f"{self.store.folder} is the state of user {facts['user']!r}, not {user!r}")
        if facts.get(publisher.FACT) != self.bundle.signed_by:
            with self._changed() as state:
                state.facts[publisher.FACT] = self.bundle.signed_by
