"""Tuning under noise: what is searched at one epsilon, where a search begins, and what it would cost people.

Where every update is longer than the clip, clip and server rate matter by their product alone: how far a round may move
the model. So that product is searched, and the rate is what the clip leaves of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefr.config.documents import Document
from edgefr.experiment.experiment import Change, Experiment
from edgefr.experiment.unread_settings import read_values
from edgefr.studies.sweeps.grid import Range
from edgefr.studies.tuning.space import CLIP, RATE, STEP, Base, Space
from edgefr.studies.tuning.trial import ALL
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.example_plan import plan_examples
from privacy.guarantee import Event
from privacy.plan import plan
from privacy.report import in_words


@dataclass(frozen=True)
class Level:
    """A level says what is protected. `section`: where its clip and its epsilon are set."""

    name: str
    section: str
    protects: str


USER = Level("user level", "privacy", "a person's whole part in the rounds, with all that this person did")
INTERACTION = Level("interaction level", "privacy.examples", "one interaction of a person, not all of them together")

COMMON = (
    Range("rounds", "int", 5, 120),
    Range("model.dim", "int", 1, 16),
    Range("model.init_scale", "log", 0.01, 1.0),
)
"""What is searched at either level, where a method reads it: noise is paid for in every round and every coordinate."""
OF_LEVEL = {
    USER: (Range(CLIP, "log", 0.3, 30.0), Range(STEP, "log", 1.0, 100.0)),
    INTERACTION: (Range("privacy.examples.clip", "log", 0.03, 3.0), Range(RATE, "log", 0.3, 30.0)),
}
PLAIN = (
    Range(RATE, "log", 0.3, 30.0),
    Range("rounds", "int", 10, 200),
    Range("model.dim", "int", 4, 64),
    Range("model.init_scale", "log", 0.01, 1.0),
)
"""What is searched without clip and noise, where width and rounds cost nothing."""
WHY = "What matters under noise, around settings found on ml-100k."
BEGINNINGS: tuple[Mapping[str, float], ...] = (
    {STEP: 16.0, CLIP: 3.0, "rounds": 90, "model.dim": 12, "model.init_scale": 0.03},
    {STEP: 16.0, CLIP: 3.0, "rounds": 20, "model.dim": 2, "model.init_scale": 0.1},
    {STEP: 40.0, CLIP: 3.0, "rounds": 60, "model.dim": 8, "model.init_scale": 0.1},
    {STEP: 80.0, CLIP: 3.0, "rounds": 30, "model.dim": 4, "model.init_scale": 0.1},
)
"""The first trials of every search under noise; found on ml-100k, at epsilon 8 (the first) and up to 2 (the second)."""
PLAIN_BEGINNINGS: tuple[Mapping[str, float], ...] = (
    {RATE: 1.0, "rounds": 100, "model.dim": 32, "model.init_scale": 0.1},
    {RATE: 1.0, "rounds": 100, "model.dim": 16, "model.init_scale": 1.0},
    {RATE: 3.0, "rounds": 60, "model.dim": 16, "model.init_scale": 0.1},
    {RATE: 1.0, "rounds": 150, "model.dim": 32, "model.init_scale": 0.01},
)


def section_of(experiment: Path | Experiment | None, changes: Iterable[Change] = ()) -> dict[str, Any]:
    """Return the section `privacy` that an experiment and changes over it ask for, as they write it."""
    found = Document({}, "experiment")
    if isinstance(experiment, Experiment):
        found = Document(read_values(experiment), "experiment")
    elif experiment is not None:
        found = Document.read(experiment)
    section = Document({"privacy": copy.deepcopy(found.values.get("privacy")) or {}}, "experiment")
    for change in changes:
        if change.field.split(".")[0] == "privacy":
            section.put(change.field, copy.deepcopy(change.value), source=change.source)
    return dict(section.values["privacy"] or {})


def level_of(section: Mapping[str, Any]) -> Level:
    """Return the level of a section `privacy`: DP-SGD without a mechanism protects interactions, all else users."""
    return INTERACTION if section.get("examples") and section.get("mechanism", "none") == "none" else USER


def at_epsilon(section: Mapping[str, Any], epsilon: float | None) -> dict[str, Any]:
    """Return a section with noise for one epsilon (None: the one it has), and a clip that a search replaces.

    Raises `InputError` where no epsilon is given.
    """
    level = level_of(section)
    own = dict(section if level is USER else section["examples"])
    wanted = own.get("epsilon") if epsilon is None else epsilon
    if wanted is None:
        raise InputError(f"--private searches at one epsilon: add --set {level.section}.epsilon=8")
    own = {key: value for key, value in own.items() if key not in ("sigma", "scale")}
    own["epsilon"] = in_words(float(wanted))  # a record of the space is JSON
    own["clip"] = 1.0 if own.get("clip") is None else own["clip"]
    if level is INTERACTION:
        return {**section, "examples": own}
    return own | ({"mechanism": "gaussian"} if own.get("mechanism", "none") == "none" else {})


def private_space(base: Base, space: Space, section: Mapping[str, Any]) -> Space:
    """Return what is searched under noise in place of a space's ranges, of which those of the server are kept.

    What `base` sets by hand is held, and not searched; nor is what the method does not read. Without any privacy in
    `section` nothing is clipped. Raises `InputError` for what any experiment would be refused for, and where nothing is
    left to search.
    """
    held = {change.field: change.value for change in map(Change.parse, base.changes)}
    ours = PLAIN if not section else (*_of_level(level_of(section), held), *COMMON)
    named = {r.field for r in ours}
    own = [r for r in space.ranges if r.field.startswith("aggregation.") and r.field not in named]
    fixed = {field: value for field, value in space.fixed.items() if field not in {*named, "privacy"}}
    fixed["privacy"] = dict(section)
    base.of(replace(space, fixed=fixed), {}, 0)
    alone = ((r, replace(space, fixed=fixed, ranges=(r,))) for r in (*ours, *own) if r.field not in held)
    ranges = tuple(r for r, one in alone if _taken(base, one))
    if not ranges:
        raise InputError(f"{space.name}: all that a search under noise chooses is set by hand; leave some of it away")
    begun = BEGINNINGS if section else PLAIN_BEGINNINGS
    first = tuple({r.field: _beginning(r, values) for r in ranges} for values in begun)
    return replace(space, fixed=fixed, ranges=ranges, why=WHY, first=first)


def _of_level(level: Level, held: Mapping[str, Any]) -> Sequence[Range]:
    """Return the ranges of a level; where the clip is held, a step is a rate, and a rate by hand holds the step."""
    ranges = list(OF_LEVEL[level])
    if level is USER and RATE in held:
        return ranges[:1]
    if level is USER and isinstance(clip := held.get(CLIP), int | float) and clip > 0:
        return [Range(RATE, "log", ranges[1].low / clip, ranges[1].high / clip)]
    return ranges


def _taken(base: Base, space: Space) -> bool:
    try:
        base.ends(space)
    except InputError:
        return False
    return True


def _beginning(r: Range, values: Mapping[str, float]) -> float:
    """Return where a search begins: the value that is known for the field, else the middle; within the range."""
    middle = math.sqrt(r.low * r.high) if r.scale == "log" else (r.low + r.high) / 2
    value = min(max(values.get(r.field, middle), r.low), r.high)
    return int(value) if r.scale == "int" else value


@dataclass(frozen=True)
class Price:
    """This is what a search would have cost the people on whose data it was made.

    `whole`: the epsilon at `delta` of all trials and one run of the choice together; `more`: beyond that run alone.
    """

    more: float
    whole: float
    delta: float
    trials: int

    def __str__(self) -> str:
        return (
            f"tuning on these people's own data would have cost epsilon {self.more:.3g} more ({self.trials} trials and "
            f"one run together: {self.whole:.3g} at delta {self.delta:g}, and what was seen of validation items is not "
            "in it); on public or generated data nothing"
        )


def price(
    base: Base, space: Space, records: Sequence[Mapping[str, Any]], seeds: Sequence[int], chosen: Experiment | None
) -> Price | None:
    """Compose every trial as a release of its own, of a client in all its rounds; None where nothing is promised.

    A trial that failed counts with all its rounds. `chosen`: the experiment that the search came to.
    """
    if chosen is None or not (once := releases(chosen, chosen.rounds)):
        return None
    delta, made = chosen.privacy.delta, list(once)
    if math.isinf(alone := composed(once, delta).epsilon):
        return None
    for record in records:
        experiment = base.of(space, record["values"], seeds[0])
        ran = [experiment.rounds if run["ended"] == ALL else run["curve"][-1][0] for run in record["runs"]]
        for rounds in ran or [experiment.rounds] * len(seeds):
            made += releases(experiment, rounds)
    whole = composed(made, delta).epsilon
    return Price(whole - alone, whole, delta, len(records))


def releases(experiment: Experiment, rounds: int) -> list[tuple[Event, int]]:
    """Return what a client releases in so many of an experiment's rounds, with the noise that was meant for all.

    Of single interactions where nothing is promised of a client: noise for an epsilon goes with how often an
    interaction is used, so what their releases compose to does not depend on that. Nothing without clip and noise.
    """
    settings, all_rounds = experiment.privacy, max(experiment.total_rounds, 1)
    if settings.bounded:
        alone = settings.model_copy(update={"at_least": 1, "budget": None})
        found = plan(alone, all_rounds, 1, settings.apart, prototypes=experiment.prototypes)
        beside = found.prototypes
        sent = [] if beside is None else [(beside.event, min(rounds, beside.rounds))]
        return [(found.event, settings.releases(rounds)), *sent]
    if settings.examples is not None:
        return [(plan_examples(settings.examples, settings.delta, all_rounds, 1).event, rounds)]
    return []
