"""A search under noise is at one epsilon, over what matters there, and says what it would cost people.

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
from edgefr.config.sheet import count
from edgefr.experiment.experiment import Change, Experiment
from edgefr.experiment.unread_settings import read_values
from edgefr.studies.sweeps.grid import Range
from edgefr.studies.sweeps.results import INTERACTION, USER
from edgefr.studies.tuning.space import CLIP, RATE, STEP, Base, Space
from edgefr.studies.tuning.trial import ALL
from privacy.accounting import composed
from privacy.errors import InputError
from privacy.example_plan import plan_examples
from privacy.guarantee import Event
from privacy.plan import plan
from privacy.report import in_words

LEVELS = {USER: "privacy", INTERACTION: "privacy.examples"}
"""The levels of a guarantee, and where their clip and their epsilon are set."""
INIT = Range("model.init_scale", "log", 0.01, 1.0)
NARROW = (Range("rounds", "int", 5, 120), Range("model.dim", "int", 1, 32), INIT)
"""What is searched at either level, where a method reads it: noise is paid for in every round and every coordinate."""
OF_LEVEL = {
    USER: (Range(CLIP, "log", 0.3, 30.0), Range(STEP, "log", 1.0, 100.0)),
    INTERACTION: (Range("privacy.examples.clip", "log", 0.03, 3.0), Range(RATE, "log", 0.3, 30.0)),
}
PLAIN = (Range(RATE, "log", 0.3, 30.0), Range("rounds", "int", 10, 200), Range("model.dim", "int", 4, 64), INIT)
"""What is searched without clip and noise, where rounds and width cost nothing."""
FIRST = [
    {STEP: 16.0, RATE: 3.0, CLIP: 3.0, "rounds": 90, "model.dim": 12, "model.init_scale": 0.03},
    {STEP: 16.0, RATE: 3.0, CLIP: 3.0, "rounds": 20, "model.dim": 2, "model.init_scale": 0.1},
    {STEP: 40.0, RATE: 10.0, CLIP: 3.0, "rounds": 60, "model.dim": 8, "model.init_scale": 0.1},
    {STEP: 80.0, RATE: 10.0, CLIP: 3.0, "rounds": 30, "model.dim": 4, "model.init_scale": 0.1},
]
"""The trials after the first of a search under noise; found on ml-100k: for epsilon 8, and the second for up to 2."""
FIRST_PLAIN = [
    {RATE: 1.0, "rounds": 100, "model.dim": 32, "model.init_scale": 0.1},
    {RATE: 1.0, "rounds": 100, "model.dim": 16, "model.init_scale": 1.0},
    {RATE: 3.0, "rounds": 60, "model.dim": 16, "model.init_scale": 0.1},
    {RATE: 1.0, "rounds": 150, "model.dim": 32, "model.init_scale": 0.01},
]
WHY = "What matters under noise, around settings found on ml-100k."


def section_of(experiment: Path | Experiment | None, changes: Iterable[Change] = ()) -> dict[str, Any]:
    """Return the section `privacy` that an experiment and changes over it ask for, as they write it."""
    values: Mapping[str, Any] = {}
    if experiment is not None:
        values = read_values(experiment) if isinstance(experiment, Experiment) else Document.read(experiment).values
    section = Document({"privacy": copy.deepcopy(values.get("privacy")) or {}}, "experiment")
    for change in changes:
        if change.field.split(".")[0] == "privacy":
            section.put(change.field, copy.deepcopy(change.value), source=change.source)
    return dict(section.values["privacy"] or {})


def level_of(section: Mapping[str, Any]) -> str:
    """Return the level of a section `privacy`: DP-SGD without a mechanism protects interactions, all else users."""
    return INTERACTION if section.get("examples") and section.get("mechanism", "none") == "none" else USER


def at_epsilon(section: Mapping[str, Any], epsilon: float | None = None) -> dict[str, Any]:
    """Return a section with noise for one epsilon (None: the one it has), and a clip that a search replaces.

    Raises `InputError` where no epsilon is given.
    """
    level = level_of(section)
    own = dict(section if level == USER else section["examples"])
    wanted = own.get("epsilon") if epsilon is None else epsilon
    if wanted is None:
        raise InputError(f"--private searches at one epsilon: add --set {LEVELS[level]}.epsilon=8")
    own = {key: value for key, value in own.items() if key not in ("sigma", "scale")}
    own |= {"epsilon": in_words(float(wanted)), "clip": own.get("clip") or 1.0}  # a record of the space is JSON
    if level == INTERACTION:
        return {**section, "examples": own}
    return own | ({"mechanism": "gaussian"} if own.get("mechanism", "none") == "none" else {})


def private_space(base: Base, space: Space, section: Mapping[str, Any]) -> Space:
    """Return what is searched under noise in place of a space's ranges, of which those of the server are kept.

    What `base` sets by hand is held, and not searched; nor is what the method does not read. Without any privacy in
    `section` nothing is clipped. Raises `InputError` for what any experiment would be refused for, and where nothing is
    left to search.
    """
    held = {change.field for change in map(Change.parse, base.changes)}
    ours: tuple[Range, ...] = (*OF_LEVEL[level_of(section)], *NARROW) if section else PLAIN
    if held & {CLIP, RATE}:  # then a step is that of the other alone
        ours = tuple(OF_LEVEL[INTERACTION][1] if r.field == STEP else r for r in ours)
    named = {r.field for r in ours}
    own = [r for r in space.ranges if r.field.startswith("aggregation.") and r.field not in named]
    fixed = {field: value for field, value in space.fixed.items() if field not in {*named, "privacy"}}
    fixed |= {"privacy": dict(section)} if section else {"privacy": {}, RATE: 1.0}  # an automatic rate needs a clip
    space = replace(space, fixed=fixed, ranges=())
    plain = base.of(space, {}, 0)
    free = [r for r in (*ours, *own) if r.field not in held]
    ranges = tuple(r for r in free if _taken(base, replace(space, ranges=(r,))))
    if not ranges:
        raise InputError(f"{space.name}: all that a search under noise chooses is set by hand; omit some of it")
    begun = FIRST if section else FIRST_PLAIN
    first = tuple({r.field: _beginning(r, values) for r in ranges} for values in (_as_it_comes(plain, ranges), *begun))
    return replace(space, ranges=ranges, why=WHY, first=first)


def _as_it_comes(experiment: Experiment, ranges: Iterable[Range]) -> dict[str, float]:
    """Return what is searched as the method comes, under a clip and a rate of 1: no search ends below that unseen."""
    values, out = experiment.model_dump(), {STEP: 1.0, CLIP: 1.0, RATE: 1.0}
    for field in (r.field for r in ranges if r.field not in out):
        found: Any = values
        for part in field.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, int | float):
            out[field] = found
    return out


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
        made = f"{count(self.trials, 'trial')} and one run together: {self.whole:.3g} at delta {self.delta:g}"
        return (
            f"tuning on these people's own data would have cost epsilon {self.more:.3g} more ({made}, and what was "
            "seen of validation items is not in it); on public or generated data nothing"
        )


def price(
    base: Base, space: Space, records: Sequence[Mapping[str, Any]], seeds: Sequence[int], chosen: Experiment | None
) -> Price | None:
    """Compose every trial as a release of its own, of a client in all its rounds; None without a guarantee.

    A trial that failed counts with all its rounds. `chosen`: the experiment that the search came to.
    """
    made = [] if chosen is None else releases(chosen, chosen.rounds)
    if chosen is None or not made:
        return None
    delta = chosen.privacy.delta
    if math.isinf(alone := composed(made, delta).epsilon):
        return None
    for record in records:
        experiment = base.of(space, record["values"], seeds[0])
        ran = [experiment.rounds if run["ended"] == ALL else run["curve"][-1][0] for run in record["runs"]]
        made += [one for rounds in ran or [experiment.rounds] * len(seeds) for one in releases(experiment, rounds)]
    whole = composed(made, delta).epsilon
    return Price(whole - alone, whole, delta, len(records))


def releases(experiment: Experiment, rounds: int) -> list[tuple[Event, int]]:
    """Return what a client releases in so many of an experiment's rounds, with the noise that was meant for all.

    Of an interaction, where a client has no guarantee: its noise grows with how often a round uses it, so what
    its releases compose to does not depend on that. Nothing without clip and noise.
    """
    settings, all_rounds = experiment.privacy, max(experiment.total_rounds, 1)
    if settings.bounded:
        alone = settings.model_copy(update={"at_least": 1, "budget": None})
        found = plan(alone, all_rounds, 1, settings.apart, prototypes=experiment.prototypes)
        beside = found.prototypes
        sent = [] if beside is None else [(beside.event, min(rounds, beside.rounds))]
        return [(found.event, settings.releases(rounds)), *sent]
    if settings.examples is None:
        return []
    return [(plan_examples(settings.examples, settings.delta, all_rounds, 1).event, rounds)]
