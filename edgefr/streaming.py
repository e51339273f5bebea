"""A run over sessions: in every round each client meets one of its sessions (FCUCR §4, Algorithm 1).

    one-pass: session t in round t, once, while there are sessions     cyclic: over and over, as released

Every round is measured on validation sessions; the model of the best one is tested. Owns: the order of sessions and
rounds, the best round, what is still known of first sessions. Does not own: rounds (engine), prototypes
(`engine.transfer`), what a client does (methods), metrics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cloud.prototypes import KnowledgeBase
from edge.ragged import Ragged
from edge.sampling import Sampler
from edge.sessions import SessionSampler, Windows, windows
from edgefr.cohorts import Log
from edgefr.data.sessions import Sessions, SessionsProtocol
from edgefr.data.split import Split
from edgefr.engine.sequences import SessionProgram, WindowScorer
from edgefr.engine.tables import Own, tables_of, tensors_of
from edgefr.engine.transfer import REPLY, Transfer
from edgefr.engine.work import Clients
from edgefr.experiment import Experiment
from edgefr.fleet import FleetFile
from edgefr.measure import reference_scorers
from edgefr.methods.fcucr.settings import FCUCRSettings
from edgefr.metrics import references
from edgefr.metrics.ranking import Ranking, Scorer
from edgefr.metrics.repeats import apart, had, repeats
from edgefr.prepare import Prepared, Progress
from edgefr.simulation import Boundary, Simulation
from privacy.errors import InputError

Which = Literal["valid", "test"]
HELD: tuple[Which, ...] = ("valid", "test")
FIRST = "first session"


@dataclass
class Streaming(Simulation):
    """State of a run over sessions.

    `best` is the model of the best round so far by validation HR + NDCG: tensors by `shared.<name>`, `private.<name>`,
    `tables.<name>` (rows of clients' own) and `reply.<which>`; `best_round` its number, `best_value` that sum.
    `groups`: test metrics by stage where the target was in the user's training items ("seen") and where it was not
    ("new").
    """

    best: dict[str, Tensor] = field(default_factory=dict)
    best_round: int = 0
    best_value: float = -math.inf
    groups: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @classmethod
    def start(
        cls, experiment: Experiment, prepared: Prepared, devices: FleetFile, device: torch.device, log: Log
    ) -> Streaming:
        """Everything as it is before round 1. Raises `InputError` for rounds that wait for no one."""
        if devices.rounds.policy == "async":
            raise InputError(
                "a round over sessions is about one session of each client, so none can be late for it: use another "
                "fleet.rounds.policy than async"
            )
        run = cast(Streaming, super().start(experiment, prepared, devices, device, log))
        model = run.experiment.row.settings.model_validate(run.experiment.model)
        if isinstance(model, FCUCRSettings) and model.prototypes != "none":
            base, terms = KnowledgeBase(model.reply, experiment.knowledge, device), run.federation.plan.prototypes
            assert terms is not None
            run.federation.transfer = Transfer(base, model.prototypes, terms, experiment.seed)
        return run

    # --- sessions ---------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> Sessions:
        """The data set's sessions."""
        assert self.prepared.sessions is not None
        return self.prepared.sessions

    @property
    def stream(self) -> str:
        """one-pass or cyclic."""
        return cast(SessionsProtocol, self.experiment.protocol).stream

    @property
    def last(self) -> int:
        """The round after which there is nothing more to meet; before it nobody may have a session that can teach."""
        rounds, longest = self.experiment.rounds, int(self.sessions.train.counts.max(initial=0))
        return rounds if self.stream == "cyclic" else min(rounds, longest)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to meet, or validation has not been better for too long."""
        patience = self.experiment.sessions.patience
        return self.round >= self.last or self.round - self.best_round >= (patience or math.inf)

    def current(self, number: int) -> npt.NDArray[np.int64]:
        """The session each client meets in round `number`, int64 [clients]; -1: none is left, or none can teach."""
        train = self.sessions.train
        turn = np.full(len(train), number - 1)
        if self.stream == "cyclic":
            turn %= np.maximum(train.counts, 1)
        some = turn < train.counts
        found = np.full(len(train), -1, np.int64)
        found[some] = train.values[train.offsets[:-1][some] + turn[some]]
        long = self.sessions.items.counts[np.maximum(found, 0)] > 1
        return np.where(long, found, -1)

    def turn(self, number: int) -> tuple[Clients, Sampler | SessionSampler]:
        """Who can be invited to round `number`, and the draws of its sessions."""
        e, s, split, current = self.experiment, self.sessions, self.prepared.train_split, self.current(number)
        catalogue, population = len(self.prepared.dataset.catalogue.ids), np.flatnonzero(current >= 0)
        if self.windowed:
            length = self.experiment.model["length"]
            drawn = (s.items, s.times, current, split.train, split.pool, catalogue, length, e.negatives, e.seed)
            return population, SessionSampler(*drawn)
        rows = s.items.take(np.maximum(current, 0))
        user, item = rows.rows[current[rows.rows] >= 0], rows.values[current[rows.rows] >= 0]
        code = np.unique(user * catalogue + item)
        own = Ragged.from_sorted(code // catalogue, (code % catalogue).astype(np.int32), len(current))
        return population, Sampler(own, split.pool, catalogue, e.negatives, e.batch_size, e.seed)

    @property
    def windowed(self) -> bool:
        """Whether clients read sessions in order; else they learn from the set of a session's items."""
        return self.row.reads == "sessions"

    @cached_property
    def views(self) -> dict[str, Windows]:
        """What a device sees of each held-out session: all but the item that is asked for, by which."""
        s = self.sessions
        held = {"valid": s.valid, "test": s.test, FIRST: self._first}
        return {w: windows(s.items, s.times, n, self.experiment.model["length"], skip=1) for w, n in held.items()}

    @cached_property
    def _first(self) -> npt.NDArray[np.int64]:
        """Every user's first training session, -1 for none of two items."""
        return self.current(1)

    # --- rounds -----------------------------------------------------------------------------------------------------

    def train(self, progress: Progress | None = None, boundary: Boundary | None = None) -> None:
        """The rounds that are left, until there are no more sessions or validation has stopped improving.

        A round after which there would be no other is measured too, whatever `evaluation.every` is: it may be the best.
        """
        while not self.over:
            self.round += 1
            population, sampler = self.turn(self.round)
            contributors = self.cohorts.meet(self.round, population, sampler) if len(population) else population
            if len(contributors):
                self.federation.round(self.round, contributors, sampler, self.prepared.train_split.train)
            note = self._measure() if self.round % self.experiment.evaluation.every == 0 or self.over else ""
            if progress is not None:
                speed = self.federation.counters.clients / max(self.federation.counters.seconds, 1e-9)
                progress("rounds", self.round, self.last, f"{speed:,.0f} clients/s{note}")
            if boundary is not None:
                boundary(self.round)
        self.cohorts.adjourn()

    def _measure(self) -> str:
        """Validation and test of the round; the best model is kept."""
        split, stage = self.prepared.train_split, self.row.stages[0]
        found: dict[str, float] = {}
        replies: dict[str, Tensor] = {}
        for which in HELD:
            replies |= self._asked(which)
            score = self.scorer(which, replies)
            values = self.measured.add(stage, split, score, which, self.round, full=False)
            found = found or values
        if self.experiment.sessions.first_session:
            first, asked = self.first_split, self._asked(FIRST)
            self.measured.add(stage, first, self.scorer(FIRST, asked), "valid", self.round, full=False)
        value = sum(v for name, v in found.items() if name.startswith(("HR", "NDCG")))
        if value > self.best_value:
            self.best_value, self.best_round = value, self.round
            self.best = self._snapshot() | replies
        return "".join(f", {name} {value:.4f}" for name, value in list(found.items())[:2])

    @cached_property
    def first_split(self) -> Split:
        """Every client's first session as something to be asked about (FCUCR Fig. 2a)."""
        protocol, split = cast(SessionsProtocol, self.experiment.protocol), self.prepared.train_split
        return protocol.at(self.prepared.dataset, self.sessions, split, self._first, FIRST, self.experiment.seed)

    def _snapshot(self) -> dict[str, Tensor]:
        f, used = self.federation, {name for phase in self.federation.program.phases for name in phase.uses}
        shared = {f"shared.{name}": value.clone() for name, value in f.shared.items()}
        own = {n: v for n, v in f.private.items() if n in used and not n.startswith("previous.")}
        tables = {f"tables.{name}": value for name, value in tensors_of(f.tables).items()}
        return shared | {f"private.{name}": value.clone() for name, value in own.items()} | tables

    def _part(self, place: str) -> dict[str, Tensor]:
        """Tensors of one place of the best model (of the present one before there is any)."""
        kept = self.best or self._snapshot()
        return {name.removeprefix(place): value for name, value in kept.items() if name.startswith(place)}

    def _asked(self, which: str) -> dict[str, Tensor]:
        """Replies to everybody at the held-out sessions `which`, where devices ask before they recommend."""
        transfer, f = self.federation.transfer, self.federation
        if transfer is None or not self.experiment.model["asks_when_recommending"]:
            return {}
        view = self.views[which]
        who = np.flatnonzero(view.real.any(axis=1))
        some = Windows(view.items[who], view.real[who], view.times[who])
        out = torch.zeros_like(f.private[REPLY])
        out[torch.from_numpy(who)] = transfer.asked(f.program, self.round + 1, f.shared, who, some, f.device)
        return {f"reply.{which}": out}

    def scorer(self, which: str, replies: dict[str, Tensor], best: bool = False) -> Scorer:
        """Scores at the held-out sessions `which`, of the present model or the best one."""
        f, split = self.federation, self.prepared.train_split
        shared = {n: v.to(f.device) for n, v in self._part("shared.").items()} if best else f.shared
        used = {n for phase in f.program.phases for n in phase.uses if not n.startswith("previous.")}
        private = self._part("private.") if best else {n: v for n, v in f.private.items() if n in used}
        if self.windowed:
            if f"reply.{which}" in replies:
                private = {**private, REPLY: replies[f"reply.{which}"]}
            program = cast(SessionProgram, f.program)
            score: Scorer = WindowScorer(program, shared, private, self.views[which], split.pool, f.device)
        else:
            tables = self.tables if best else f.tables
            score = self.measured.scorer(f.program, shared, private, split.train, split, tables)
        ours = self.experiment.sessions
        if ours.popularity_weight:
            score = references.with_popularity(score, ours.popularity_weight, split)
        if ours.history_bonus:
            score = references.with_history(score, ours.history_bonus, self._had(which), split)
        return score

    def _had(self, which: str) -> Ragged:
        """Items that every user had had when the session `which` asks."""
        if which == FIRST:  # nothing came before it
            return Ragged.empty(len(self.sessions.train))
        return had(self.prepared.train_split, self.sessions, cast(Which, which), "all")

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self, progress: Progress | None = None) -> None:
        """The best round's model and every reference, on validation and test sessions."""
        split = self.prepared.train_split
        if not self.best:
            self.best, self.best_round = self._snapshot(), self.round
            for which in HELD:
                self.best |= self._asked(which)
        for done, which in enumerate(HELD):
            if progress is not None:
                progress("measure", done, len(HELD), which)
            scores = {self.row.stages[0]: self.scorer(which, self.best, best=True), **self.references(which)}
            for name, score in scores.items():
                self.measured.add(name, split, score, which, None, full=which == "test")
                if which == "test":
                    self.groups[name] = self._apart(name)

    def references(self, which: Which) -> dict[str, Scorer]:
        """What learns nothing, at the held-out sessions `which`. Counts are often equal: ties fall by chance."""
        split, sessions, seed = self.prepared.train_split, self.sessions, self.experiment.seed
        counts = {
            "popularity": references.popularity(split),
            "seen, then popularity": references.seen_then_popularity(split),
            "seen or in session, then popularity": references.seen_then_popularity(split, had(split, sessions, which)),
            "all seen, then popularity": references.seen_then_popularity(split, had(split, sessions, which, "all")),
            "follows last item": references.last_item_cooccurrence(split, sessions, which),
        }
        ties = {name: references.ties_by_chance(score, seed, split) for name, score in counts.items()}
        return {**reference_scorers(split, self.prepared.text, seed), **ties}

    def _apart(self, stage: str) -> dict[str, dict[str, float]]:
        """Test metrics of a stage where the target is a repeat of the user's, and where it is new."""
        split = self.prepared.train_split
        ranking = Ranking(split.users("test"), self.measured.ranks[split.name, stage, "sampled"])
        return apart(ranking, repeats(split, self.sessions, "test"), self.experiment.evaluation.k)

    def probabilities(self) -> dict[str, list[float]]:
        """How often test targets and their negatives got which probability (FCUCR Fig. 2b, c): shares of 20 bins."""
        split, score = self.prepared.train_split, self.scorer("test", self.best, best=True)
        users, edges = split.users("test"), np.linspace(0.0, 1.0, 21)
        scores = np.asarray(score(users, np.asarray(split.test_candidates)), np.float64)
        chance = 1.0 / (1.0 + np.exp(-np.clip(scores, -60.0, 60.0)))
        shares = [np.histogram(part, edges)[0] / part.size for part in (chance[:, 0], chance[:, 1:])]
        return {"edges": edges.tolist(), "targets": shares[0].tolist(), "negatives": shares[1].tolist()}

    def shipped(self) -> tuple[Ragged, Ragged, npt.NDArray[np.integer], dict[str, Tensor], dict[str, Tensor]]:
        """As `Simulation.shipped`, of the best round."""
        split = self.prepared.train_split
        return split.history, split.train, split.pool, self._part("shared."), self._part("private.")

    @property
    def tables(self) -> dict[str, Own]:
        """As `Simulation.tables`, of the best round."""
        return tables_of(self.federation.program, self._part("tables."))

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        best = {"tensors": self.best, "round": self.best_round, "value": self.best_value}
        return {**super().state(), "best": best}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of the same experiment."""
        super().restore(state)
        self.best = {name: torch.from_numpy(value) for name, value in state["best"]["tensors"].items()}
        self.best_round, self.best_value = state["best"]["round"], state["best"]["value"]
