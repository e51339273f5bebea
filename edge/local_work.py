"""A device works locally in a round, after the rounds, and at the end of a block, on the state it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from edge import exchange
from edge import session_state as streams
from edge import update as outgoing
from edge.bundle import Bundle
from edge.catalogue import Catalogue
from edge.learning import Learning, PhaseRecord
from edge.limited_process import Limits
from edge.model import Model
from edge.ragged import Ragged
from edge.replay import PICKS, Replay, ReplayRule, best, ranks
from edge.round_init import Normal, seed_of
from edge.sampling import Sampler
from edge.state import State
from edge.training import LearningMaterial, Material, Trained, Work, train
from edge.update import Change, ClientUpdate, WorkRecord
from privacy.errors import InputError

Floats = npt.NDArray[np.float32]
DIVERGED = "training has diverged: values are not finite; nothing was changed"
NO_WORK = Trained({}, {}, 0, 0, None, None)
LINE = 300  # characters of what has failed that a device keeps


@dataclass(frozen=True)
class LocalResult:
    """A round's training ends with this: what was `trained`, of so many `examples`, and `private` tensors beside it.

    `prototype`: what goes with the update where a method sends one after training (None: nothing).
    """

    trained: Trained
    private: dict[str, Floats]
    examples: int
    prototype: Floats | None

    @property
    def sound(self) -> bool:
        """Say whether all that would be kept is finite."""
        return all(bool(np.isfinite(value).all()) for value in self.private.values())


@dataclass(frozen=True)
class LocalWork:
    """This works with a bundle's graphs on a device's state, within limits."""

    bundle: Bundle
    catalogue: Catalogue
    model: Model
    limits: Limits

    def load(self, learning: Learning) -> None:
        """Open what a round trains with, on nobody's data. Raises `InputError` for graphs that cannot be."""
        self.model.steps(learning, "round")

    def release(self, learning: Learning, state: State, number: int) -> ClientUpdate:
        """Train a round as `round` does, and make its release.

        Where a run promises something a release leaves in every case, with noise on zeros for a client that has nothing
        to learn from or whose training fails, since nobody may see which it was.
        """
        if not learning.release.promises:
            return self._released(learning, state, number)
        tried = State({**state.facts}, {**state.tensors})
        try:
            made = self._released(learning, tried, number)
        except Exception as error:  # a graph decides what fails and when, so no kind of error may keep a release back
            return self.nothing(learning, state, number, str(error) or type(error).__name__)
        state.facts, state.tensors = tried.facts, tried.tensors
        return made

    def nothing(self, learning: Learning, state: State, number: int, why: str) -> ClientUpdate:
        """Make the release of a round that came to nothing, noise on zeros; `why` stays in the work's record here."""
        bundle, none = self.bundle.manifest.bundle_id, Change.none(learning)
        made, record = outgoing.make(learning, bundle, none, NO_WORK, 0, number)
        state.facts["work"] = {**asdict(record), "dropped": True, "failed": why[:LINE]}
        return made

    def _released(self, learning: Learning, state: State, number: int) -> ClientUpdate:
        learned, bundle = self.round(learning, state, number), self.bundle.manifest.bundle_id
        change = Change.none(learning)
        if learned.sound and (learned.trained.dense or learned.trained.rows):
            change = Change.of(learning, state.part("shared"), state.part("table"), learned.trained)
        made, record = outgoing.make(
            learning, bundle, change, learned.trained, learned.examples, number, learned.prototype
        )
        state.facts["work"] = {**asdict(record), "dropped": record.dropped or not learned.sound}
        return made

    def round(self, learning: Learning, state: State, number: int) -> LocalResult:
        """Train a round; private tensors and the work's record in `state` are those after it.

        Raises `InputError` if training diverges without a guarantee, or there is nothing to learn from.
        """
        learned = self._learned(learning, state, number)
        if not learned.sound and not learning.release.promises:
            raise InputError(DIVERGED)
        if learned.sound:
            state.put("private", learned.private)
            state.drop("personal")
        trained = learned.trained
        record = WorkRecord(trained.steps, trained.planned, trained.stopped, clipped=False, dropped=not learned.sound)
        state.facts["work"] = asdict(record)
        return learned

    def personal(self, learning: Learning, state: State) -> None:
        """Train the program's final phases; what they make of the private tensors is put beside them in `state`.

        Raises `InputError` for a program that has none, and for training that diverges.
        """
        phases = [phase for phase in learning.phases if phase.when == "final" and phase.epochs]
        if not phases:
            raise InputError(f"{self.bundle.manifest.method} has no local training after the rounds")
        number = state.facts["round"] + 1
        material = self._material(learning, state, number, phases, replays=False)
        dense = state.part("shared") | begun(learning, state, number)
        trained = train(phases, self.model.steps(learning, "final"), learning, dense, material, self.limits.start())
        if not LocalResult(trained, trained.dense, 0, None).sound:
            raise InputError(DIVERGED)
        state.drop("personal")
        state.put("personal", state.part("private") | trained.dense)

    def _learned(self, learning: Learning, state: State, number: int) -> LocalResult:
        if learning.release.promises and not self.has_work(learning, state):
            return LocalResult(NO_WORK, {}, 0, None)
        phases = [phase for phase in learning.phases if phase.when == "round" and phase.epochs]
        material = self._material(learning, state, number, phases)
        dense = state.part("shared") | begun(learning, state, number)
        trained = train(phases, self.model.steps(learning, "round"), learning, dense, material, self.limits.start())
        private = {name: trained.dense[name] for name in learning.trained("round", "private")}
        examples = len(state.tensors["items.own"])
        if isinstance(material, LearningMaterial):
            examples = len(material.sampler.train.values)
        kept, message = exchange.after(learning, self.model.graph, dense, trained, material)
        return LocalResult(trained, private | kept, examples, message)

    def has_work(self, learning: Learning, state: State) -> bool:
        """Say whether there is anything to learn from."""
        if learning.sessions is None:
            return len(state.tensors["items.own"]) > 0
        return len(state.tensors["session.items"]) > 1

    def remember(self, size: int, learning: Learning, state: State) -> None:
        """Remember the `size` best items and their predictions, by the model as it is, in place of those before.

        Where something is promised and the graph fails, those before stay: a failure would tell what the graph met.
        """
        pool = self.catalogue.offered_items
        try:
            columns, labels = best(self.scores(learning, state)[None, pool], size)
        except Exception:  # as in `release`
            if learning.release.promises:
                return
            raise
        state.tensors["memory.items"] = pool[columns[0]].astype(np.int32)
        state.tensors["memory.labels"] = labels[0]

    def _material(
        self, learning: Learning, state: State, number: int, phases: Sequence[PhaseRecord], replays: bool = True
    ) -> Work:
        check_work(learning, max(len(state.tensors["items.own"]), self.bundle.config.window or 0))
        pool, items = self.catalogue.offered_items, self.catalogue.items
        if learning.sessions is not None and self.bundle.config.window is not None:
            drawn = streams.sampler(state, learning, self.bundle.config.window, pool, items)
            teach, whole = learning.sessions.teach, learning.sessions.whole_catalogue
            taught = None if teach is None else self.model.told(teach, state, "learning")
            return LearningMaterial(drawn, self.model.rows(state), number, taught, phases, whole)
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
        rule = ReplayRule(how.picks, how.list_size, how.shift_scale, how.weight, how.reduction, learning.seed)
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


MOST_EXAMPLES = 1 << 25  # of one round, all epochs
MOST_STEPS = 10**6  # of one round


def check_work(learning: Learning, positives: int) -> None:
    """Check that a round of `positives` interactions fits a device. Raises `InputError` with what to change."""
    group, each = 1 + learning.negatives, positives * (1 + learning.negatives)
    of_pairs = max(learning.batch_size // group, 1) * group  # a batch of pairs parts none
    epochs = steps = 0
    for when in ("round", "final"):
        phases = [phase for phase in learning.phases if phase.when == when]
        epochs = max(epochs, sum(p.epochs for p in phases))
        steps = max(steps, sum(p.epochs * -(-each // (of_pairs if p.pairs else learning.batch_size)) for p in phases))
    if epochs * each > MOST_EXAMPLES or steps > MOST_STEPS:
        raise InputError(
            f"{positives:,} interactions with {learning.negatives:,} negatives each, {epochs:,} times over, are more "
            f"than the {MOST_EXAMPLES:,} examples and {MOST_STEPS:,} steps of a device's round; give fewer interactions"
        )


def begun(learning: Learning, state: State, number: int) -> dict[str, Floats]:
    """Return the private tensors that local work of round `number` begins with: some are made anew whenever it does."""
    seed, client = seed_of(learning.seed, number), state.facts["number"]
    made = {
        t.name: Normal(t.anew.purpose, t.anew.scale).values(seed, client, tuple(t.shape))[0]
        for t in learning.tensors
        if t.anew is not None
    }
    return state.part("private") | made
