"""Measuring a run: one long table of what every model and every reference is worth, on whom and how it was asked.

A row is keyed by the block or split that the model was learned on (`after`) and the one whose held-out items are asked
for (`on`), the `stage` of the model or the name of a reference, the `group` of users, and the metric; `ranking` and
`mask` say what a held-out item was ranked against.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged, joined
from edgefr.config import random_streams as purposes
from edgefr.data.splits.blocks import Block
from edgefr.data.splits.split import Split, Task, Which
from edgefr.metrics.continual import MASKS
from edgefr.metrics.cutoffs import METRICS
from edgefr.metrics.settings import NOTHING, EvaluationSection
from edgefr.simulation.evaluation.beyond import About, Listed, ListMetric, top_lists
from edgefr.simulation.evaluation.lists import rank_lists
from edgefr.simulation.evaluation.ranking import Scorer, evaluate, left_out
from privacy import keyed

Users = npt.NDArray[np.int64]
PerUser = dict[str, npt.NDArray[np.float64]]
Groups = Mapping[str, npt.NDArray[np.bool_]]
Head = dict[str, Any]
Tested = tuple[Users, PerUser]
"""Users [n] and their metrics, float64 [n] each."""

MOST_USERS = 100_000
"""A run keeps the metrics of at most so many single users."""


@dataclass(frozen=True)
class MeasurementPlace:
    """This says what is measured: the model of a `stage` (or a reference), learned on `after`, and the round.

    The round is that of a learning curve (None: the model that the stage ended with).
    """

    stage: str
    after: str
    round: int | None = None


def _head(of: MeasurementPlace, on: str, which: Which, ranking: str, mask: str) -> Head:
    head: Head = {"after": of.after, "on": on, "stage": of.stage, "group": "all", "which": which}
    return {**head, "ranking": ranking, "mask": mask, "round": of.round}


@dataclass
class Measurements:
    """The table of a run, row by row in the order it was made.

    `users`: the metrics of every user behind the final test rows, by (stage, on, ranking): of blocks, those asked about
    the block that was just learned, under the first mask. `seconds`: spent measuring. `sealed`: test items are not
    looked at, as in a trial of a search. `about`: what is known of items, for metrics that read it.
    """

    settings: EvaluationSection
    seed: int
    about: About = field(default_factory=About)
    sealed: bool = field(default=False, kw_only=True)
    rows: list[dict[str, Any]] = field(default_factory=list)
    users: dict[tuple[str, str, str], Tested] = field(default_factory=dict)
    seconds: float = 0.0

    def candidates(
        self, of: MeasurementPlace, split: Split, score: Scorer, which: Which, full: bool = True
    ) -> dict[str, float]:
        """Ask for the held-out item of every user among sampled candidates and, `full`, among the whole pool.

        Validation items are ranked by one ranking, `evaluation.curve_ranking`, as a point of a learning curve is, which
        is measured on a sample of users. Of users with several items all are ranked, in the whole pool alone. Returns
        the metrics on sampled candidates, or those of the one ranking; none of test items that are sealed.
        """
        if self.sealed and which == "test":
            return {}
        with self._timed():
            users, several, ranking = split.users(which), split.several is not None, self.settings.curve_ranking
            if of.round is not None or (which == "valid" and ranking == "full"):
                users = self.sample(users, self.settings.curve_users, "curve users")
                return self._rank(of, split, score, which, "full" if several else ranking or "sampled", users)
            found = {} if several else self._rank(of, split, score, which, "sampled", users)
            if several or (full and self.settings.full_ranking_users):
                users = self.sample(users, self.settings.full_ranking_users, "full ranking users")
                in_full = self._rank(of, split, score, which, "full", users)
        return in_full if several else found

    def validation(self, of: MeasurementPlace, block: Block, score: Scorer) -> dict[str, float]:
        """Measure a point of a block's learning curve: its validation items by full ranking, on sampled users."""
        with self._timed():
            users = self.sample(block.users("valid"), self.settings.curve_users, "curve users")
            hidden, named = block.train.take(users), self.settings.metrics
            found = rank_lists(score, block.pool, users, block.valid.take(users), hidden, self.settings.k, named=named)
            return self._add(_head(of, block.name, "valid", "full", MASKS[0]), users, found)

    def lists(self, of: MeasurementPlace, after: Block, on: Block, score: Scorer) -> None:
        """Ask a model of block `after` for the held-out items of block `on` by full ranking, under either mask.

        Users of a later block are known from earlier ones, or new.
        """
        with self._timed():
            users = self.sample(on.users("test"), self.settings.full_ranking_users, f"test users {on.name}")
            current = joined(after.train.take(users), after.valid.take(users))
            known, named = on.known[users], self.settings.metrics
            groups = {"known": known, "new": ~known} if on.number else {}
            for mask in MASKS:
                hidden = current if mask == MASKS[0] else joined(after.past.take(users), current)
                targets = on.test.take(users)
                found = rank_lists(score, after.pool, users, targets, hidden, self.settings.k, named=named)
                head = _head(of, on.name, "test", "full", mask)
                found |= self._beyond(head, after, (users, found), score, hidden)
                self._add(head, users, found, groups)

    def groups(self, of: MeasurementPlace, split: Split, groups: Groups) -> None:
        """Add rows of groups of the users whom `candidates` tested, by name: bool [users of the test] each."""
        _, found = self.users[of.stage, split.name, "sampled"]
        head = _head(of, split.name, "test", "sampled", NOTHING)
        for group, members in groups.items():
            self._group(head, group, found, members)

    def sample(self, users: Users, size: int, purpose: str) -> Users:
        """Draw a keyed sample of users (all of them if there are no more than `size`)."""
        return keyed.choose(keyed.key(self.seed, purpose), users, size)

    # --- reading --------------------------------------------------------------------------------------------------

    def final(self, **wanted: str) -> dict[str, float]:
        """Return metrics of the final rows with these keys, of everybody on test items unless they say otherwise.

        Example: ``measured.final(stage="finetune", on="main", ranking="sampled")["HR@10"]``
        """
        wanted = {"which": "test", "group": "all", **wanted}
        some = (row for row in self.rows if row["round"] is None)
        return {row["metric"]: row["value"] for row in some if all(row[key] == value for key, value in wanted.items())}

    def table(self, which: Which = "test", ranking: str = "sampled") -> dict[str, dict[str, dict[str, float]]]:
        """Return the final metrics of everybody as {on: {stage: {metric: value}}}, in the order they were measured."""
        out: dict[str, dict[str, dict[str, float]]] = {}
        for row in self.rows:
            if (row["round"], row["which"], row["ranking"], row["group"]) == (None, which, ranking, "all"):
                out.setdefault(row["on"], {}).setdefault(row["stage"], {})[row["metric"]] = row["value"]
        return out

    def matrix(self, stage: str, blocks: Sequence[str], metric: str, mask: str = MASKS[0]) -> list[list[float]]:
        """Return a(t, s) for s <= t: row t holds the model after block t on blocks 0..t."""
        return [
            [self.final(stage=stage, after=after, on=on, mask=mask).get(metric, float("nan")) for on in blocks[: t + 1]]
            for t, after in enumerate(blocks)
        ]

    def per_user(self, stages: Sequence[str], most: int = MOST_USERS) -> dict[str, npt.NDArray[Any]]:
        """Return columns with a row per user, place it was asked about, stage and ranking: who, and every metric.

        `user` is the user's number; of more than `most` users it is a keyed sample. These are personal data.
        """
        chosen = [(key, *found) for key, found in self.users.items() if key[0] in stages and len(found[0])]
        if not chosen:
            return {}
        everybody = np.unique(np.concatenate([users for _, users, _ in chosen]))
        kept = self.sample(everybody, most, purposes.USERS_KEPT)
        columns: dict[str, list[npt.NDArray[Any]]] = {}
        names = list(dict.fromkeys(name for _, _, metrics in chosen for name in metrics))
        for (stage, on, ranking), users, metrics in chosen:
            own = np.isin(users, kept)
            place = {"on": on, "stage": stage, "ranking": ranking}
            row: dict[str, npt.NDArray[Any]] = {"user": users[own]} | {
                name: np.full(int(own.sum()), value) for name, value in place.items()
            }
            unknown = np.full(int(own.sum()), np.nan)
            row |= {name: metrics[name][own] if name in metrics else unknown for name in names}
            for name, values in row.items():
                columns.setdefault(name, []).append(values)
        return {name: np.concatenate(parts) for name, parts in columns.items()}

    # --- writing --------------------------------------------------------------------------------------------------

    def _rank(
        self,
        of: MeasurementPlace,
        split: Split,
        score: Scorer,
        which: Which,
        ranking: Literal["sampled", "full"],
        users: Users,
    ) -> dict[str, float]:
        ks, named = self.settings.k, self.settings.metrics
        if split.several is None:
            found = evaluate(score, split, which, ranking, users=users).per_user(ks, named)
        else:
            targets, hidden = split.lists(which).take(users), left_out(split, users, which)
            found = rank_lists(score, split.pool, users, targets, hidden, ks, named=named)
        mask = MASKS[1] if ranking == "full" and not split.repeats else NOTHING
        head = _head(of, split.name, which, ranking, mask)
        if ranking == "full" and which == "test" and of.round is None:
            hidden = left_out(split, users, which)
            found |= self._beyond(head, split, (users, found), score, hidden)
        return self._add(head, users, found)

    def _beyond(self, head: Head, task: Task, tested: Tested, score: Scorer, hidden: Ragged) -> PerUser:
        """Measure the recommended lists by the metrics that are named, and return those that every user has.

        Of the others rows are added: one number for all, or a mean over the users of whom something can be said.
        """
        metrics = [METRICS[name] for name in self.settings.metrics]
        metrics = [metric for metric in metrics if isinstance(metric, ListMetric)]
        out: PerUser = {}
        if not metrics or not len(tested[0]):
            return out
        users, found = tested
        lists = top_lists(score, task.pool, users, hidden, max(self.settings.k))
        for k in self.settings.k:
            own = {name.removesuffix(f"@{k}"): values for name, values in found.items() if name.endswith(f"@{k}")}
            listed = Listed(k, users, lists[:, :k], task, self.about, own)
            for metric in metrics:
                name, values = f"{metric.name}@{k}", np.asarray(metric.of(listed), np.float64)
                if values.ndim and np.isfinite(values).all():
                    out[name] = values
                    continue
                known = values[np.isfinite(values)]  # of one number for all: itself
                if len(known):
                    row = {"value": float(known.mean()), "users": len(known) if values.ndim else len(users)}
                    self.rows.append({**head, "metric": name, **row})
        return out

    def _add(self, head: Head, users: Users, found: PerUser, groups: Groups | None = None) -> dict[str, float]:
        """Add the rows of everybody asked and of every group; returns everybody's metrics."""
        if head["which"] == "test" and head["round"] is None:  # later blocks ask about it once more
            self.users.setdefault((head["stage"], head["on"], head["ranking"]), (users, found))
        means = self._group(head, "all", found, np.ones(len(users), np.bool_))
        for group, members in (groups or {}).items():
            self._group(head, group, found, members)
        return means

    def _group(self, head: Head, group: str, found: PerUser, members: npt.NDArray[np.bool_]) -> dict[str, float]:
        """Add one row per metric: the mean over the members of a group, NaN over nobody."""
        number = int(members.sum())
        whole = number == len(members)
        means = {
            name: float((values if whole else values[members]).mean()) if number else float("nan")
            for name, values in found.items()
        }
        head = {**head, "group": group}
        self.rows += [{**head, "metric": name, "value": value, "users": number} for name, value in means.items()]
        return means

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        users = [{"key": list(key), "users": users, "found": found} for key, (users, found) in self.users.items()]
        return {"rows": self.rows, "seconds": self.seconds, "users": users}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self.rows, self.seconds = state["rows"], state["seconds"]
        self.users = {tuple(each["key"]): (each["users"], each["found"]) for each in state["users"]}
