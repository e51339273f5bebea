"""The rules of a tuning are the same for every method in its folder: budget, metric, seeds, when a trial ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgefr.studies.campaign import RecordFile, occupied
from privacy.errors import InputError
from privacy.files import write_json

RECORD = RecordFile("tuning.json", "edgefr.tuning/1", "tune again with another --out")
COMPARED = {
    "trials": "--trials",
    "metric": "--metric",
    "ranking": "--ranking",
    "seeds": "--seed or --seeds",
    "reported": "--reported",
    "patience": "--patience",
    "prune": "--prune",
    "experiment": "experiment, data set or --set",
    "fleet": "fleet",
    "space": "search space",
}
"""What of a record makes it another tuning, by what a refusal calls it."""
COLUMNS = ("trials", "metric", "ranking", "seeds", "patience", "prune")
"""What has to be the same for methods to be compared; the seeds of results may be fewer or more."""


@dataclass(frozen=True)
class Rules:
    """Every method gets `trials`, each made with all of `seeds`, by `metric` on validation items.

    `reported`: seeds of results, which no trial may use. A trial ends `patience` rounds after its best round, and, with
    `prune`, after a quarter and after half of its rounds where it is below the median of the trials of earlier batches.
    That is cheaper and the same for everybody, but not fair to methods that begin slowly, so it is not the default.
    """

    trials: int = 20
    metric: str = "NDCG@10"
    ranking: Literal["full", "sampled"] = "full"
    seeds: tuple[int, ...] = (1000,)
    reported: tuple[int, ...] = (0, 1, 2, 3, 4)
    patience: int = 30
    prune: bool = False

    def check(self) -> None:
        """Raises `InputError` where a seed of the search would be one that results are reported with."""
        both = sorted(set(self.seeds) & set(self.reported))
        if both:
            raise InputError(
                f"seed {both[0]} is one that results are reported with, and settings chosen with it would be chosen on "
                f"them; give --seed {max(self.reported) + 1} or more"
            )

    @property
    def laid(self) -> dict[str, Any]:
        """Return what every experiment is measured by, as in results: the best round by the metric of the search."""
        return {
            "evaluation.curve_ranking": self.ranking,
            "evaluation.keep": "best",
            "evaluation.judged_by": self.metric,
        }

    @property
    def columns(self) -> dict[str, str]:
        """Return the rules as a table of trials has them, by the names of `COLUMNS`."""
        values = [getattr(self, name) for name in COLUMNS]
        return {
            name: " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, value in zip(COLUMNS, values, strict=True)
        }

    def looks(self, rounds: int) -> tuple[int, ...]:
        """Return the rounds at which a trial is compared with earlier ones.

        >>> Rules(prune=True).looks(100), Rules().looks(100)
        ((25, 50), ())
        """
        return tuple(dict.fromkeys(look for look in (rounds // 4, rounds // 2) if look)) if self.prune else ()

    def lines(self) -> list[str]:
        """Return the rules in words, for pages."""
        seeds, reported = (", ".join(map(str, some)) for some in (self.seeds, self.reported))
        ended = f"a trial ends {self.patience} rounds after its best one"
        if self.prune:
            ended += (
                ", and after a quarter and half of its rounds where its best so far is below the median of what the "
                "trials of earlier batches had there"
            )
        ranked = "full ranking" if self.ranking == "full" else "sampled candidates"
        return [
            f"budget: {self.trials} trials of every method, none more where a range was widened",
            f"a trial is worth the best round's {self.metric} ({ranked}) on validation items; test items are not "
            "looked at by a trial",
            f"seeds of the search: {seeds}; seeds of results: {reported}; none is both",
            ended,
        ]


def begin(folder: Path, rules: Rules, common: Mapping[str, Any]) -> None:
    """Make the folder of a tuning, or check that it is one by the same rules.

    Raises `InputError` that says what differs. `common`: what else all methods share, as JSON values.
    """
    asked = {"schema": RECORD.schema, **asdict(rules), **common}
    if not (folder / RECORD.name).is_file():
        if occupied(folder):
            raise InputError(f"{folder} already holds other files; choose another --out (nothing was changed)")
        write_json(folder / RECORD.name, asked)
        return
    other = RECORD.difference(folder, asked, COMPARED)
    if other is not None:
        kept = json.dumps(other[1])
        raise InputError(
            f"{folder} is tuned by other rules: its {other[0]} differs "
            f"({kept if len(kept) <= 60 else f'{kept[:57]}...'}); methods are compared at equal budget, so give that, "
            "or another --out"
        )
