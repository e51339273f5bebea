"""A device works locally in a round, after the rounds, and at the end of a block, on the state it is given.

Nothing is written here. Owns: what is trained on, and what becomes of it. Does not own:
files and the order of a device's life (`edge.device`), steps (`edge.training`), what leaves (`edge.update`), whether it
may (`edge.policy`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge import streams
from edge import update as outgoing
from edge.agreement import check_work
from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.learning import Learning
from edge.limits import Limits
from edge.model import Model
from edge.ragged import Ragged
from edge.replay import PICKS, Replay, Rule, best, ranks
from edge.sampling import Sampler
from edge.state import State
from edge.training import Material, Trained, Work, train
from edge.update import Change, ClientUpdate
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalWork:
    """This works with a bundle's graphs on a device's state, within limits."""

    bundle: Bundle
    catalogue: Catalogue
    model: Model
    limits: Limits

    def round(self, learning: Learning, state: State, number: int) -> ClientUpdate:
        """Train a round, and make its release; private tensors and the work's record in `state` are those after it.

        Of a run that promises something a release leaves in every case: who has nothing to learn from, and whose
        training diverges, sends noise on zeros, since nobody may see which it was.
        """
        promises = learning.release.promises
        trained, private, examples, prototype = self._trained(learning, state, number)
        sound = all(np.isfinite(value).all() for value in private.values())
        if not sound and not promises:
            raise InputError("training has diverged: values are not finite; nothing was changed")
        if sound:
            state.put("private", private)
            state.drop("personal")
        change = Change.none(learning)
        if sound and (trained.dense or trained.rows):
            change = Change.of(learning, state.part("shared"), state.part("table"), trained)
        made, record = outgoing.make(
            learning, self.bundle.manifest.bundle_id, change, trained, examples, number, prototype
        )
        state.facts["work"] = {**record.facts(), "dropped": record.dropped or not sound}
        return made

    def personal(self, learning: Learning, state: State) -> None:
        """Train the program's final phases; what they make of the private tensors is put beside them in `state`.

        Raises `InputError` for a program that has none.
        """
        phases = [phase for phase in learning.phases if phase.when == "final" and phase.epochs]
        if not phases:
            raise InputError(f"{self.bundle.manifest.method} has no local training after the rounds")
        material = self._material(learning, state, state.facts["round"] + 1, replays=False)
        dense = state.part("shared") | state.part("private")
        trained = train(phases, self.model.steps(learning, "final"), learning, dense, material, self.limits.start())
        state.drop("personal")
        state.put("personal", state.part("private") | trained.dense)

    def _trained(
        self, learning: Learning, state: State, number: int
    ) -> tuple[Trained, dict[str, Floats], int, Floats | None]:
        """Return what a round's training ends with: shared and private tensors, examples, and a prototype beside it."""
        if learning.release.promises and not self._has_work(learning, state):
            return Trained({}, {}, 0, 0, None, None), {}, 0, None
        phases = [phase for phase in learning.phases if phase.when == "round" and phase.epochs]
        material = self._material(learning, state, number)
        dense = state.part("shared") | state.part("private")
        trained = train(phases, self.model.steps(learning, "round"), learning, dense, material, self.limits.start())
        private, prototype = {name: trained.dense[name] for name in learning.trained("round", "private")}, None
        examples = len(state.tensors["items.own"])
        if learning.sessions is not None and isinstance(material, streams.LearningMaterial):
            examples = len(material.sampler.train.values)
            kept, prototype = streams.after(learning.sessions, learning, self.model.graph, dense, trained, material)
            private |= kept
        return trained, private, examples, prototype

    def _has_work(self, learning: Learning, state: State) -> bool:
        """Say whether there is anything to learn from."""
        if learning.sessions is None:
            return len(state.tensors["items.own"]) > 0
        return len(state.tensors["session.items"]) > 1

    def remember(self, size: int, learning: Learning, state: State) -> None:
        """Remember the `size` best items and their predictions, by the model as it is, in place of those before."""
        pool = self.catalogue.offered_items
        columns, labels = best(self.scores(learning, state)[None, pool], size)
        state.tensors["memory.items"] = pool[columns[0]].astype(np.int32)
        state.tensors["memory.labels"] = labels[0]

    def _material(self, learning: Learning, state: State, number: int, replays: bool = True) -> Work:
        """Return what is learned from in a round."""
        check_work(learning, max(len(state.tensors["items.own"]), self.bundle.config.window or 0))
        pool, items = self.catalogue.offered_items, self.catalogue.items
        if learning.sessions is not None and self.bundle.config.window is not None:
            drawn = streams.sampler(state, learning, self.bundle.config.window, pool, items)
            teach = learning.sessions.teach
            taught = None if teach is None else self.model.told(learning, teach, state, "learning")
            return streams.LearningMaterial(drawn, self.model.rows(state), number, taught)
        own = state.tensors["items.own"]
        if not len(own):
            raise InputError("nothing to learn from: this device has no interactions yet; give some to learn")
        draws = (learning.negatives, learning.batch_size, learning.seed, np.array([state.facts["number"]]))
        sampler = Sampler(Ragged(own, np.array([0, len(own)])), pool, items, *draws)
        replay = self._replay(learning, state, number) if replays else None
        return Material(sampler, own, replay, self.model.rows(state), number)

    def _replay(self, learning: Learning, state: State, number: int) -> Replay | None:
        """Return what is replayed in a round, drawn by the rule that the simulator draws with."""
        how = learning.replay
        if how is None or "memory.items" not in state.tensors:
            return None
        rule = Rule(how.picks, how.list_size, how.shift_scale, how.weight, how.reduction, learning.seed)
        lists, labels = state.tensors["memory.items"][None], state.tensors["memory.labels"][None]
        now = None
        if PICKS[how.picks].draw is not None:
            pool = self.catalogue.offered_items
            places = np.where(lists >= 0, np.searchsorted(pool, np.maximum(lists, 0)), -1)
            now = ranks(self.scores(learning, state)[None, pool], places)
        return rule.replay(lists, labels, rule.chosen(lists, now, np.array([state.facts["number"]]), number))

    def scores(self, learning: Learning, state: State) -> Floats:
        """Scores by the tensors that rounds train."""
        return self.model.scores(learning.score, state, state.part("private"))
