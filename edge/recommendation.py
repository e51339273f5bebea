"""A device tells its owner this: scores, the best items, and what they lean on. Nothing of it leaves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from edge import exchange
from edge.bundle import Bundle
from edge.catalogue import Catalogue, Recommendations, StartList, ranked, top
from edge.explain import Explanation, explained
from edge.learning import Learning
from edge.local_work import LocalWork
from edge.model import Model
from edge.state import State, Store
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


class Adviser:
    """This is the part of a device that recommends, by its state as it is on the disk."""

    bundle: Bundle
    store: Store
    catalogue: Catalogue
    _model: Model
    _work: LocalWork
    _first: StartList | None

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
        dense = {f"shared.{name}": value for name, value in state.part("shared").items()}
        dense |= {f"private.{name}": value for name, value in own.items()}
        context, rows = self._model.context(state), self._model.rows(state)
        return explained(self.bundle, dense, context, rows, self.catalogue.numbers(asked))
