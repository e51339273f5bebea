"""Sessions: one stage, in whose rounds each client meets one of its sessions (FCUCR §4, Algorithm 1).

    one-pass: session t in round t, once, while there are sessions     cyclic: over and over, as released

Every round is measured on validation sessions; the model of the best one is tested. Owns: which session is met when,
what a device sees of a held-out session, what is still known of first sessions. Does not own: prototypes
(`engine.transfer`), what a client does (methods), metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler, Windows, windows
from edgefr.data.interactions import Dataset
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.session_order import STREAMS
from edgefr.data.splits.sessions import Sessions, SessionsProtocol
from edgefr.data.splits.split import Split, Which
from edgefr.engine.executors.sessions import WindowScorer
from edgefr.engine.model import Model
from edgefr.engine.transfer import REPLY, Transfer
from edgefr.engine.work import Clients
from edgefr.experiment.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.fleet.policies import POLICIES
from edgefr.metrics.settings import UNLEARNED
from edgefr.simulation.evaluation import references
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.simulation.evaluation.references import had, repeats
from edgefr.simulation.stages.leave_one_out import Local, split_references, untrained
from edgefr.simulation.stages.stage import Stage
from export.program import SessionProgram
from privacy.errors import InputError
from privacy.progress import Progress

if TYPE_CHECKING:
    from edgefr.simulation.stages.stage import Running

HELD: tuple[Which, ...] = ("valid", "test")
FIRST = "first session"


def over_sessions(experiment: Experiment, prepared: Prepared) -> tuple[Stage, ...]:
    """Make one stage: as many rounds as there are sessions to meet, or as the experiment asks for."""
    assert prepared.sessions is not None
    protocol = cast(SessionsProtocol, experiment.protocol)
    longest = int(prepared.sessions.train.counts.max(initial=0))
    rounds = experiment.rounds if protocol.returns else min(experiment.rounds, longest)
    patience = experiment.sessions.patience or math.inf
    return (
        Met(
            prepared.train_split,
            rounds,
            patience=patience,
            dataset=prepared.dataset,
            sessions=prepared.sessions,
            experiment=experiment,
        ),
    )


@dataclass(frozen=True)
class Met(Stage):
    """All rounds of a run over sessions, to the tests of its best round."""

    task: Split
    dataset: Dataset = field(kw_only=True)
    sessions: Sessions = field(kw_only=True)
    experiment: Experiment = field(kw_only=True)

    keeps_best = True
    compared = (
        *Local.compared,
        "seen, then popularity",
        "seen or in session, then popularity",
        "all seen, then popularity",
        "follows last item",
    )

    def check(self, devices: FleetFile) -> None:
        if not POLICIES[devices.rounds.policy].waits:
            raise InputError(
                "a round over sessions is about one session of each client, so none can be late for it: use another "
                f"fleet.rounds.policy than {devices.rounds.policy}"
            )

    def value(self, found: Mapping[str, float]) -> float:
        return sum(value for name, value in found.items() if name.startswith(("HR", "NDCG")))

    # --- sessions -------------------------------------------------------------------------------------------------

    @property
    def protocol(self) -> SessionsProtocol:
        """Return the settings of the protocol."""
        return cast(SessionsProtocol, self.experiment.protocol)

    @property
    def windowed(self) -> bool:
        """Say whether clients read sessions in order; else they learn from the set of a session's items."""
        return self.experiment.row.reads == "sessions"

    def current(self, number: int) -> npt.NDArray[np.int64]:
        """The session each client meets in round `number`, int64 [clients]; -1: none is left, or none can teach."""
        train = self.sessions.train
        turn = STREAMS[self.protocol.stream].turn(number, train.counts)
        some = turn < train.counts
        met = np.full(len(train), -1, np.int64)
        met[some] = train.values[train.offsets[:-1][some] + turn[some]]
        long = self.sessions.items.counts[np.maximum(met, 0)] > 1
        return np.where(long, met, -1)

    def turn(self, run: Running, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        e, s, split, current = self.experiment, self.sessions, self.task, self.current(number)
        catalogue, population = len(self.dataset.catalogue), np.flatnonzero(current >= 0)
        if self.windowed:
            program = cast(SessionProgram, run.federation.program)
            following = self.current(number + 1) if program.asks == "next" else None
            drawn = (s.items, s.times, current, split.train, split.pool, catalogue, program.window)
            counts = (e.drawn_negatives, e.seed)
            return population, SessionSampler(*drawn, *counts, once=program.one_draw, following=following)
        rows = s.items.take(np.maximum(current, 0))
        real = current[rows.rows] >= 0
        own = self._distinct(rows.rows[real], rows.values[real])
        return population, run.sampler(split, own)

    def context(self, number: int) -> Ragged:
        """Give what each client has met by round `number`: a device does not know the sessions to come.

        Who reads sessions in order has its past in its window, and is given nothing else that takes time to make.
        """
        if self.windowed:
            return self.task.train
        train = self.sessions.train
        met = np.arange(len(train.values)) - train.offsets[:-1][train.rows] < number
        each = self.sessions.items.take(train.values[met])
        return self._distinct(train.rows[met][each.rows], each.values)

    def _distinct(self, user: npt.NDArray[np.int64], item: npt.NDArray[np.integer]) -> Ragged:
        catalogue = len(self.dataset.catalogue)
        code = np.unique(user * catalogue + item)
        return Ragged.from_sorted(code // catalogue, (code % catalogue).astype(np.int32), len(self.sessions.train))

    @cached_property
    def views(self) -> dict[str, Windows]:
        """Return what a device sees of each held-out session: all but the item that is asked for, by which."""
        s = self.sessions
        held = {"valid": s.valid, "test": s.test, FIRST: self.current(1)}
        return {w: windows(s.items, s.times, n, self.experiment.model["length"], skip=1) for w, n in held.items()}

    @cached_property
    def first_split(self) -> Split:
        """Return every client's first session as something to be asked about (FCUCR Fig. 2a)."""
        return self.protocol.at(self.dataset, self.sessions, self.task, self.current(1), FIRST, self.experiment.seed)

    def present(self) -> dict[str, Ragged]:
        """Give every user's newest training session in order, where clients read sessions."""
        if not self.windowed:
            return {}
        train, users = self.sessions.train, np.flatnonzero(self.sessions.train.counts)
        newest = train.values[train.offsets[users + 1] - 1]
        own = {"items": self.sessions.items.take(newest), "times": self.sessions.times.take(newest)}
        return {f"session.{n}": Ragged.from_sorted(users[p.rows], p.values, len(train)) for n, p in own.items()}

    # --- models ---------------------------------------------------------------------------------------------------

    def model(self, run: Running) -> Model:
        """The model as it now is, with the replies that devices get before they recommend in held-out sessions."""
        now, replies = run.together(), dict[str, Tensor]()
        for which in HELD:
            replies |= self.asked(run, which)
        return Model(now.shared, now.private, now.tables, replies)

    def asked(self, run: Running, which: str) -> dict[str, Tensor]:
        """Return replies to everybody at the held-out sessions `which`, where devices ask before they recommend."""
        f = run.federation
        if not isinstance(f.transfer, Transfer) or not self.experiment.model["asks_when_recommending"]:
            return {}
        view = self.views[which]
        who = np.flatnonzero(view.real.any(axis=1))
        some = Windows(view.items[who], view.real[who], view.times[who])
        out = torch.zeros_like(f.private[REPLY])
        number = run.position.round + 1
        out[torch.from_numpy(who)] = f.transfer.asked(f.program, number, f.shared, who, some, f.device)
        return {which: out}

    def score(self, run: Running, model: Model, which: str) -> Scorer:
        """Return scores of a model at the held-out sessions `which`."""
        split = self.task
        if self.windowed:
            private = model.private | ({REPLY: model.replies[which]} if which in model.replies else {})
            program, on = cast(SessionProgram, run.federation.program), run.federation.device
            score: Scorer = WindowScorer(program, model.shared, private, self.views[which], split.pool, on)
        else:
            score = run.scorer(model, split, split.train)
        ours = self.experiment.sessions
        if ours.popularity_weight:
            score = references.with_popularity(score, ours.popularity_weight, split)
        if ours.history_bonus:
            score = references.with_history(score, ours.history_bonus, self.had(which), split)
        return score

    def had(self, which: str) -> Ragged:
        """Items that every user had had when the session `which` asks."""
        if which == FIRST:  # nothing came before it
            return Ragged.empty(len(self.sessions.train))
        return had(self.task, self.sessions, cast(Which, which), "all")

    # --- measuring ------------------------------------------------------------------------------------------------

    def unlearned(self, run: Running, model: Model) -> None:
        for which in self.looked_at(run):
            score = self.score(run, model, which)
            run.measured.candidates(
                MeasurementPlace(UNLEARNED, self.task.name), self.task, score, which, full=which == "test"
            )
            if which == "test":
                self._apart(run, MeasurementPlace(UNLEARNED, self.task.name))

    def looked_at(self, run: Running) -> tuple[Which, ...]:
        """Return the held-out sessions that are measured: of a search those of validation alone."""
        return HELD[:1] if run.measured.sealed else HELD

    def validate(self, run: Running, model: Model) -> dict[str, float]:
        """Measure validation and test sessions of the round, and first sessions where that is asked."""
        name, at = run.stages[0], run.position.round
        asked, results = MeasurementPlace(name, self.task.name, at), {}
        for which in self.looked_at(run):
            score = self.score(run, model, which)
            results[which] = run.measured.candidates(asked, self.task, score, which, full=False)
        if at and self.experiment.sessions.first_session:
            first = Model(model.shared, model.private, model.tables, self.asked(run, FIRST))
            score = self.score(run, first, FIRST)
            run.measured.candidates(asked, self.first_split, score, "valid", full=False)
        return results["valid"]

    def end(self, run: Running, model: Model, progress: Progress | None) -> Model:
        """Test the best round's model and every reference, on validation and test sessions."""
        models = {run.stages[0]: model}
        if len(run.stages) > 1:
            models[run.stages[1]] = model = run.personal(self.task, model, self.experiment.rounds + 1)
        for done, which in enumerate(HELD):
            if progress is not None:
                progress("measure", done, len(HELD), which)
            scores = {name: self.score(run, of, which) for name, of in models.items()}
            for name, score in {**scores, **self.references(run, which)}.items():
                run.measured.candidates(
                    MeasurementPlace(name, self.task.name), self.task, score, which, full=which == "test"
                )
                if which == "test":
                    self._apart(run, MeasurementPlace(name, self.task.name))
        return model

    def references(self, run: Running, which: Which) -> dict[str, Scorer]:
        """Return the scorers that learn nothing, at the held-out sessions `which`.

        Counts are often equal: ties fall by chance.
        """
        split, sessions, seed = self.task, self.sessions, self.experiment.seed
        known = had(split, sessions, which, "all")
        counts = {
            "popularity": references.popularity(split),
            "seen, then popularity": references.seen_then_popularity(split),
            "seen or in session, then popularity": references.seen_then_popularity(split, had(split, sessions, which)),
            "all seen, then popularity": references.seen_then_popularity(split, known),
            "follows last item": references.last_item_cooccurrence(split, sessions, which),
        }
        ties = {name: references.ties_by_chance(score, seed, split) for name, score in counts.items()}
        plain = split_references(split, run.prepared, seed, clock=False, known=known)
        return {**untrained(run, split, split.train), **plain, **ties}

    def _apart(self, run: Running, asked: MeasurementPlace) -> None:
        """Test users whose target is a repeat of theirs ("seen"), and those whose target is new to them."""
        seen = repeats(self.task, self.sessions, "test").seen
        run.measured.groups(asked, self.task, {"seen": seen, "new": ~seen})

    def probabilities(self, run: Running, model: Model) -> dict[str, list[float]]:
        """Count how often test targets and negatives got which probability (FCUCR Fig. 2b, c): shares of 20 bins."""
        split, score = self.task, self.score(run, model, "test")
        users, edges = split.users("test"), np.linspace(0.0, 1.0, 21)
        scores = np.asarray(score(users, np.asarray(split.test_candidates)), np.float64)
        chance = 1.0 / (1.0 + np.exp(-np.clip(scores, -60.0, 60.0)))
        shares = [np.histogram(part, edges)[0] / part.size for part in (chance[:, 0], chance[:, 1:])]
        return {"edges": edges.tolist(), "targets": shares[0].tolist(), "negatives": shares[1].tolist()}
