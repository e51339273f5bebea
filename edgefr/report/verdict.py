"""A verdict says in a few words whether it was worth it to learn: beside the model not learned, and all references."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from edgefr.metrics.settings import UNLEARNED, UNLEARNED_IN_CONTEXT

RANKINGS = {"full": "full ranking", "sampled": "sampled candidates"}
UNTRAINED = (UNLEARNED, UNLEARNED_IN_CONTEXT)
KEYS = ("value", "difference", "low", "high")
UNTUNED = ("blocks", "cross-domain")
"""What protocols are called, in a summary's line of them, over which edgefr tune does not search."""
PARTS = ("against", "ceilings", "sampled")
FULL, SAMPLED = "full ranking", "sampled"


def ranking_of(summary: Mapping[str, Any]) -> str:
    """Return how the `metrics` of a summary were ranked, and with them its references and its device classes.

    >>> ranking_of({"protocol": "leave-one-out; sampled ranking: 99 fixed uniform negatives"})
    '1 + 99 sampled'
    >>> ranking_of({"protocol": "blocks of time", "continual": {}})
    'full ranking'
    """
    if "continual" in summary or summary.get("ranked") == FULL:
        return FULL
    found = re.search(r"sampled ranking: (\d+)", summary.get("protocol", ""))
    return SAMPLED if found is None else f"1 + {found[1]} {SAMPLED}"


def ranked(metric: str, how: str) -> str:
    """Write a metric with its ranking.

    >>> ranked("NDCG@10", "1 + 99 sampled")
    'NDCG@10 (1 + 99 sampled)'
    """
    return f"{metric} ({how})"


NOT_YET = "the model has not been trained yet"
BETTER, WORSE, UNCLEAR, FEW = "better", "WORSE", "no clear difference", "too few users"
NAMED = {"random": "random start", "chance": "chance (random order)"}
"""Rows that a reader would take for one another, in plain words."""
AFTER = {
    "federated": "after federated training",
    "finetune": "after federated training (finetune)",
    "localtrain": "after on-device training (localtrain)",
}
"""Models by the training they had, with the method's own word."""
YES, NO, UNKNOWN, NOTHING = "yes", "no", "unknown", "nothing"


def named(row: str) -> str:
    """Return what a table calls a stage or a reference.

    >>> named("random"), named("popularity")
    ('random start', 'popularity')
    """
    return NAMED.get(row, row)


class Worth(IntEnum):
    """This orders what learning came to, the worst first."""

    HURT = 0
    BEATEN = 1
    UNCLEAR = 2
    UNKNOWN = 3
    NOT_YET = 4
    HELPED = 5


@dataclass(frozen=True)
class VerdictRow:
    """This is one line of the comparison: what `name` reaches, and how much better the learned model is.

    `low`, `high`: ends of the interval over users; None where too few were asked.
    """

    name: str
    value: float
    difference: float
    low: float | None
    high: float | None

    @property
    def words(self) -> str:
        """Say whether the learned model is better."""
        if self.low is None or self.high is None:
            return FEW
        return BETTER if self.low > 0 else WORSE if self.high < 0 else UNCLEAR

    @property
    def beaten(self) -> bool:
        """Say whether the learned model is better by more than chance."""
        return self.words == BETTER

    @property
    def said(self) -> str:
        """Return the name as a sentence has it."""
        return f"the same model {self.name}" if self.name in UNTRAINED else named(self.name)

    def __str__(self) -> str:
        ends = "" if self.low is None or self.high is None else f" [{self.low:+.4f}, {self.high:+.4f}]"
        return f"{self.difference:+.4f}{ends}"


@dataclass(frozen=True)
class Verdict:
    """This is what a `stage` came to on a split, in a `metric` over `users`, beside what needs no learning.

    `ceilings`: beside what pools everybody's data, which decides nothing. `sampled`: beside what needs no learning
    among sampled candidates, where `against` is by full ranking.
    """

    split: str
    stage: str
    metric: str
    ranking: str
    users: int
    value: float
    against: tuple[VerdictRow, ...]
    learned: bool = True
    level: float = 0.95
    ceilings: tuple[VerdictRow, ...] = ()
    sampled: tuple[VerdictRow, ...] = ()

    @classmethod
    def of(cls, split: str, stage: str, record: Mapping[str, Any]) -> Verdict:
        """Read a record of `summary.json`, its section `learning`.

        >>> half = {"value": 0.5, "difference": 0.25, "low": 0.125, "high": 0.375}
        >>> of = {"metric": "NDCG@10", "ranking": "full", "users": 90, "value": 0.75, "against": {"popularity": half}}
        >>> Verdict.of("main", "federated", of).words
        'learning helped'
        """
        against, ceilings, sampled = (
            tuple(VerdictRow(name, *(other[key] for key in KEYS)) for name, other in record.get(part, {}).items())
            for part in PARTS
        )
        facts = {key: record[key] for key in ("metric", "ranking", "users", "value")}
        given = {key: record[key] for key in ("learned", "level") if key in record}
        return cls(split, stage, **facts, against=against, ceilings=ceilings, sampled=sampled, **given)

    def record(self) -> dict[str, Any]:
        """Return it as values of a summary."""
        names = ("learned", "helped", "metric", "ranking", "users", "value", "level")
        parts = {
            part: {row.name: {key: getattr(row, key) for key in KEYS} for row in getattr(self, part)} for part in PARTS
        }
        return {name: getattr(self, name) for name in names} | parts

    @cached_property
    def rows(self) -> list[VerdictRow]:
        """Return the comparisons, the best first.

        One that says again what another says is left out: a first stage in which nothing was learned.
        """
        seen: dict[tuple[float, float], VerdictRow] = {}
        for row in self.against:
            seen.setdefault((row.value, row.difference), row)
        return sorted(seen.values(), key=lambda row: -row.value)

    @property
    def beside(self) -> list[VerdictRow]:
        """Return the comparisons with what needs no learning and with central ceilings, the best first."""
        return sorted([*self.rows, *self.ceilings], key=lambda row: -row.value)

    @property
    def known(self) -> list[VerdictRow]:
        """Return the comparisons that have an interval, the best first."""
        return sorted((row for row in self.against if row.words != FEW), key=lambda row: -row.value)

    @property
    def unlearned(self) -> VerdictRow | None:
        """Return the comparison with the same model before any round."""
        return next((row for row in self.rows if row.name.startswith(UNLEARNED)), None)

    @property
    def ceiling(self) -> str | None:
        """Say that the best of the central ceilings is above the model, by more than chance; None where none is."""
        best = max(self.ceilings, key=lambda row: row.value, default=None)
        if best is None or best.words != WORSE or not self.learned:
            return None
        assert best.low is not None
        assert best.high is not None
        below = f"{-best.difference:.4f} [{-best.high:.4f}, {-best.low:.4f}]"
        return f"{best.name} reaches {best.value:.4f} on pooled data; the model is lower by {below}"

    @property
    def disagreement(self) -> str | None:
        """Say where sampled candidates give another verdict than full ranking, which counts; None where they do not."""
        if not self.learned:
            return None
        full = {row.name: row for row in self.against}
        pairs = [(full[row.name], row) for row in self.sampled if row.name in full]
        contrary = [pair for pair in pairs if {one.words for one in pair} == {BETTER, WORSE}]
        other = [pair for pair in pairs if pair[0].beaten != pair[1].beaten]
        helped = bool(pairs) and all(row.beaten for _, row in pairs)
        if not contrary and (not pairs or helped == self.helped):
            return None
        first, second = max(contrary or other, key=lambda pair: pair[0].value)
        more = ("better", "not better") if second.beaten else ("not better", "better")
        among = f"{more[0]} than {first.said} on sampled candidates ({second.difference:+.4f})"
        return f"{among}, {more[1]} in full ranking ({first.difference:+.4f}); full ranking decides"

    def advice(self, summary: Mapping[str, Any]) -> str | None:
        """Say what to change where the model is below what needs no learning, or below a ceiling; None elsewhere."""
        worse = [row.name for row in self.rows if row.words == WORSE]
        if not self.learned or "central" in summary or not (worse or self.ceiling):
            return None
        tuned = not summary["protocol"].startswith(UNTUNED)
        ways = ["tune the method with edgefr tune"] if tuned else []
        if self.worth is Worth.HURT:
            ways += ["lower the learning rate", *(["keep the best round (evaluation.keep=best)"] if tuned else [])]
        elif any(name.startswith(("TF-IDF mean", "text mean", "hybrid")) for name in worse):
            ways += ["run more rounds", "use a method that reads texts (transfr)"]
        elif worse:
            others = ", ".join(name for name in ("fedmf", "fcf") if name != summary.get("method"))
            ways += ["run more rounds", f"try another method ({others})"]
        else:
            ways += ["run more rounds"]
        return ", or ".join(ways)

    @property
    def helped(self) -> bool:
        """Say whether the model is better than everything that needs no learning, by more than chance.

        A model that beats itself untrained but not popularity has learned what a count would have said.
        """
        return self.learned and bool(self.against) and all(row.beaten for row in self.against)

    @property
    def answer(self) -> str:
        """Return whether learning helped: yes, no, nothing was learned, or unknown where nothing can be said."""
        if not self.learned:
            return NOTHING
        return (YES if self.helped else NO) if self.known else UNKNOWN

    @property
    def measure(self) -> str:
        """Return the metric and on what it is measured."""
        return f"{self.metric}, {RANKINGS.get(self.ranking, self.ranking)}, {self.users:,} users"

    @property
    def reached(self) -> str:
        """Return the metric with its ranking, and the value."""
        return f"{ranked(self.metric, RANKINGS.get(self.ranking, self.ranking))} {self.value:.4f}"

    @property
    def worth(self) -> Worth:
        """Say which of the outcomes it is."""
        if not self.learned:
            return Worth.NOT_YET
        if all(row.words == FEW for row in self.rows):
            return Worth.UNKNOWN
        worse = [row for row in self.rows if row.words == WORSE]
        if any(row.name.startswith(UNLEARNED) for row in worse):
            return Worth.HURT
        if worse:
            return Worth.BEATEN
        return Worth.HELPED if all(row.words == BETTER for row in self.rows) else Worth.UNCLEAR

    @property
    def words(self) -> str:
        """Say it in a few words."""
        rows = {words: [row.name for row in self.rows if row.words == words] for words in (WORSE, UNCLEAR)}
        return {
            Worth.HURT: "learning HURT",
            Worth.BEATEN: f"learning is NOT worth it: the baseline {_quoted(rows[WORSE])} is better",
            Worth.UNCLEAR: self._unclear(rows[UNCLEAR]),
            Worth.UNKNOWN: "too few users to say whether learning helped",
            Worth.NOT_YET: NOT_YET,
            Worth.HELPED: "learning helped",
        }[self.worth]

    def _unclear(self, names: Sequence[str]) -> str:
        """Say what is not beaten: the model itself as it was not learned, or else the best of the references."""
        if self.unlearned is None or self.unlearned.words == BETTER:
            return f"learning did NOT clearly beat the baseline {_quoted(names)}"
        same = (self.unlearned.difference, self.unlearned.low, self.unlearned.high) == (0, 0, 0)
        return "NOTHING was learned" if same else "learning did NOT clearly help"

    @property
    def model(self) -> str:
        """Return what a table calls the model."""
        return AFTER.get(self.stage, f"{self.stage}, trained") if self.learned else f"{self.stage}, before training"

    @property
    def figures(self) -> str:
        """Return the learned model's value and that of the model not learned, or of the best reference."""
        if not self.learned:
            return f"{self.metric} {self.value:.4f} before training"
        beside = self.unlearned or self.rows[0]
        name = "untrained" if self.unlearned else f"by {beside.name}"
        return f"{self.metric} {self.value:.4f} trained, {beside.value:.4f} {name}"

    def __str__(self) -> str:
        what = f"{self.metric} {self.value:.4f} ({RANKINGS[self.ranking]}, {self.users:,} users)"
        return f"{self.stage}: {self.words}: {what}{self._beside()}"

    def _beside(self) -> str:
        """Say what is not beaten, and whether the model is better than before any round; or the best that is beaten."""
        if not self.learned:
            return " is the value before training"
        if not self.known:
            return ""
        if self.helped:
            return f", {self.known[0]} over {self.known[0].said}, the best baseline"
        lines = [f"{row} against {row.said}" for row in self.against if not row.beaten]
        own = [f"{row} over {row.said}" for row in self.against if row.beaten and row.name in UNTRAINED]
        return f" is {', '.join(lines)}{''.join(f', but {line}' for line in own)}"


def verdicts(summary: Mapping[str, Any]) -> list[Verdict]:
    """Return for every split what the last learned stage came to there, the split that counts first."""
    last = [(split, *list(found.items())[-1]) for split, found in summary["learning"].items() if found]
    return [Verdict.of(*one) for one in sorted(last, key=lambda one: one[0] != summary.get("split", one[0]))]


def every_verdict(summary: Mapping[str, Any]) -> list[Verdict]:
    """Return the verdict of every stage on every split, that of the run's last stage on its last split first."""
    last = (summary.get("split", "main"), summary["stage"])
    found = [Verdict.of(split, *one) for split, of in (summary.get("learning") or {}).items() for one in of.items()]
    return sorted(found, key=lambda one: (one.split, one.stage) != last)


UNTESTED = "no user was tested, so nobody can say whether learning helped"


def headline(found: list[Verdict]) -> str:
    """Say in one sentence what the splits of a run came to, the worst first."""
    if not found:
        return UNTESTED
    if len(found) == 1:
        return f"{found[0].words} ({found[0].figures})"
    parts = [f"on {one.split} {one.words} ({one.figures})" for one in sorted(found, key=lambda one: one.worth)]
    return "; ".join(parts)


def over_seeds(found: Sequence[Verdict]) -> str:
    """Say how many seeds came to what, the worst first, and what they reach on average."""
    if not found:
        return UNTESTED
    words = Counter(one.words for one in sorted(found, key=lambda one: one.worth))
    beside = [one.unlearned or one.rows[0] for one in found]
    name = "untrained" if found[0].unlearned else f"by {beside[0].name}"
    means = [sum(values) / len(found) for values in ([one.value for one in found], [row.value for row in beside])]
    if not found[0].learned:
        return f"{NOT_YET} (mean {found[0].metric} {means[0]:.4f} before training)"
    parts = words if len(words) == 1 else [f"{line} in {times}" for line, times in words.items()]
    return f"{'; '.join(parts)} (mean {found[0].metric} {means[0]:.4f} trained, {means[1]:.4f} {name})"


def _quoted(names: Sequence[str]) -> str:
    return f"'{names[0]}'" if names else "a reference"
