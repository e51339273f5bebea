"""Planted clients are played often: how well they are told apart bounds epsilon from below.

    game        is this client there at all?   the mechanism alone, many draws of two neighbouring worlds
    canaries    the same from one run          many planted clients, each in or out by a coin of its own
    game-rows   which row did it change?       one row of an item table, in the sum that a server opens
    game-bytes  the same                       in the bytes of a device's upload
    game-steps  was this interaction there?    in what the steps of DP-SGD make of it

The last three know the law of the noise, and guess by the likelihood ratio; and they see what has no noise at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgefr.config import random_streams as purposes
from edgefr.studies.audits.canaries import Bools, Canary, Channel, Floats, SumChannel, flat, through
from edgefr.studies.audits.channels import StepChannel, UploadChannel
from edgefr.studies.audits.finding import Effort, Finding
from edgefr.studies.audits.target import AttackTarget
from export.program import TensorSpec
from privacy import keyed
from privacy.accounting import composed
from privacy.audits import game_bound, leak, one_run_bound
from privacy.guarantee import Event
from privacy.plan import PrivacyPlan
from privacy.progress import Progress

CANARIES = 1000
GUESSED = 4
"""One canary in so many is guessed; fixed before the run, as the bound wants it."""
WIDTH = 200
"""Worlds that are played side by side under central trust, one coordinate each."""
ROUNDS = 10_000
"""Rounds through the mechanism that one attack may take (of all canaries together: a twentieth, they cost more)."""
ROWS = 64
"""Rows of an item table that are played: what happens to a row does not depend on how many others there are."""
SURE = 1e9
"""Added to a score for a row without any noise, where there should be some: it was not touched."""
UPLOADS, STEPS = 4000, 1000
"""Draws of one upload, and of one client's steps, at most."""


def game(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Tell two neighbouring worlds apart from what the run's own mechanism lets through of a planted client.

    It is at its bound or absent (central), or at either end of it (local). As many of the run's rounds are released in
    each draw as the work allows.
    """
    plan, delta = target.plan, target.experiment.privacy.delta
    width = 1 if plan.where == "each upload" else min(WIDTH, effort.trials // 2)
    releases = max(1, min(target.rounds, ROUNDS * width // effort.trials))
    batches = effort.trials // 2 // width
    worlds = np.empty((2, batches, width))
    for world in (0, 1):
        updates, key = _planted(target, np.full(width, world == 0)), keyed.key(effort.seed, purposes.GAME, 1 - world)
        for batch in range(batches):
            numbers = range(batch * releases, (batch + 1) * releases)
            worlds[world, batch] = through(plan, updates, key, numbers).sum(axis=0)
            progress("game", world * batches + batch + 1, 2 * batches, "")
    return _of_draws("game", worlds.reshape(2, -1), delta, effort.seed, _claimed(plan, releases, delta), releases)


def _of_draws(name: str, worlds: Floats, delta: float, seed: int, claimed: float, releases: int = 1) -> Finding:
    """Return what scores in two worlds [2, draws] come to."""
    lower, counts = game_bound(worlds[0], worlds[1], delta)
    group = (worlds.ravel(), np.repeat([True, False], worlds.shape[1]))
    return Finding.of_leak(
        name,
        "client",
        leak([group], keyed.generator(seed, purposes.null(name)), deals=20),
        eps_lb95=lower,
        claimed=claimed,
        releases=releases,
        of=worlds.size,
        counts=counts,
        bounded="rates",
        seed=seed,
    )


def canaries(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """One run with many planted clients, each there or not by a coin: how many coins does the attacker get right?

    They are in all of the run's rounds as far as the work allows (Steinke et al. 2023).
    """
    plan, delta, count = target.plan, target.experiment.privacy.delta, CANARIES
    coins = keyed.integers(keyed.key(effort.seed, purposes.COINS), np.arange(count), 2) == 1
    updates = _planted(target, coins)
    together = plan.where != "each upload"
    releases = max(1, min(target.rounds, ROUNDS // (20 if together else count)))
    key, scores, total = keyed.key(effort.seed, purposes.CANARIES), np.zeros(count), releases if together else count
    for number in range(total):
        progress("canaries", number, total, "")
        if together:
            scores += through(plan, updates, key, [number]).sum(axis=0)
        else:  # every upload is seen by itself
            numbers, one = range(number * releases, (number + 1) * releases), slice(number, number + 1)
            scores[number] = through(plan, updates[one, one], key, numbers).sum(axis=0)[0]
    progress("canaries", total, total, "")
    order, each = np.argsort(scores, kind="stable"), count // GUESSED // 2
    correct = int((~coins[order[:each]]).sum() + coins[order[-each:]].sum())
    return Finding.of_leak(
        "canaries",
        "client",
        leak([(scores, coins)], keyed.generator(effort.seed, purposes.null("canaries")), deals=100),
        eps_lb95=one_run_bound(count, 2 * each, correct, delta),
        claimed=_claimed(plan, releases, delta),
        releases=releases,
        of=count,
        counts={"canaries": count, "guesses": 2 * each, "correct": correct},
        bounded="coins",
        seed=effort.seed,
    )


def _planted(target: AttackTarget, there: Bools) -> Floats:
    """Make uploads [C, C], one coordinate per client: at the bound if it is there, else at nothing or at the other end.

    The bound is the clip, or where nobody clips the run's 90th percentile. Under a clip they are sent ten times too
    large, so that the bound is the clip's own doing.
    """
    size = 10.0 * target.plan.clip if target.plan.clip else target.p90 or 1.0
    other = -size if target.plan.where == "each upload" else 0.0
    out: Floats = np.diag(np.where(there, size, other))
    return out


def _claimed(plan: PrivacyPlan, releases: int, delta: float) -> float:
    return composed([(plan.event, releases)], delta).epsilon if plan.noise is not None else math.inf


Worlds = tuple[Canary, Canary]
"""What a planted client learned in world one, and in world zero."""


def game_rows(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Tell which row of an item table a client changed, or (central trust) whether it changed any."""
    if target.table is None:
        return Finding("game-rows", "client", note="no table of items leaves the device")
    channel = SumChannel(replace(target.plan, project=None, at_least=1), _short(target), effort.seed)
    worlds = _worlds(channel, other=target.plan.where == "each upload")
    return tell_apart("game-rows", channel, worlds, target.plan.event, target, min(effort.trials, UPLOADS), progress)


def game_bytes(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Tell which row (or value) a client changed by the bytes of its device's upload."""
    plan = replace(target.plan, project=None)
    if target.release is None or plan.where != "each upload":
        return Finding("game-bytes", "client", note="no device of this run adds noise to its upload")
    channel = UploadChannel(plan, target.release.model_copy(update={"project": None}), _short(target), effort.seed)
    worlds, trials = _worlds(channel, other=True), min(effort.trials, UPLOADS)
    return tell_apart("game-bytes", channel, worlds, plan.event, target, trials, progress)


def game_steps(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Tell whether one interaction was there by what a step of DP-SGD makes of it."""
    if target.examples is None:
        return Finding("game-steps", "interaction", note="the run has no DP-SGD")
    channel = StepChannel(target.examples, _short(target), effort.seed, records=1)
    worlds, trials = _worlds(channel, other=False), min(effort.trials, STEPS)
    found = tell_apart("game-steps", channel, worlds, target.examples.event, target, trials, progress)
    return replace(found, unit="interaction")


def tell_apart(
    name: str, channel: Channel, worlds: Worlds, event: Event, target: AttackTarget, trials: int, progress: Progress
) -> Finding:
    """Play `trials` releases, half of either world, and guess by the likelihood ratio of the noise's law."""
    means = [_clipped(channel, known) for known in worlds]
    scores = np.empty((2, trials // 2))
    for world in (0, 1):
        for draw in range(trials // 2):
            seen = channel.seen([worlds[world]], 1 + 2 * draw + world)
            scores[world, draw] = _score(channel, seen, means)
            progress(name, world * (trials // 2) + draw + 1, 2 * (trials // 2), "")
    delta = target.experiment.privacy.delta
    return _of_draws(name, scores, delta, channel.seed, composed([(event, 1)], delta).epsilon)


def _short(target: AttackTarget) -> dict[str, TensorSpec]:
    name = target.table or target.sent[0]
    spec = target.program.specs[name]
    return {name: replace(spec, shape=(min(ROWS, spec.shape[0]), *spec.shape[1:]))}


def _worlds(channel: Channel, other: bool) -> Worlds:
    """Return a client far beyond the clip in one row (or value), and one in another row, or with nothing there."""
    ((name, spec),) = channel.specs.items()
    size = 10.0 * (channel.clip or 1.0)
    if spec.kind == "rows":
        change = np.zeros((1, spec.shape[1]))
        change[0, 0] = size
        one, two = (Canary(rows={name: (np.array([row]), change)}) for row in (0, spec.shape[0] - 1))
    else:
        one, two = (Canary({name: np.zeros(spec.shape)}) for _ in range(2))
        one.dense[name].flat[0] = two.dense[name].flat[-1] = size
    return one, two if other else two.times(0.0)


def _clipped(channel: Channel, known: Canary) -> Floats:
    whole = flat(channel.meant([known], 1))
    norm = np.abs(whole).sum()  # one value alone is planted, so its norms are alike
    return whole if not norm or channel.clip is None else whole * min(1.0, channel.clip / norm)


def _score(channel: Channel, seen: dict[str, Floats], means: list[Floats]) -> float:
    """Return the likelihood ratio of world one, and whether a row that one world alone changes is without noise."""
    ((name, values),) = seen.items()
    places = np.flatnonzero((means[0] != 0) | (means[1] != 0))
    here, (one, zero) = values.ravel()[places], (mean[places] for mean in means)
    if channel.law is None:
        return float(here @ (one - zero))
    score = float((channel.law.log_density(here - one) - channel.law.log_density(here - zero)).sum())
    if channel.specs[name].kind == "rows":
        bare = ~(values != 0).any(axis=1)
        score += SURE * (float(bare[-1]) - float(bare[0]))
    return score


GAMES: dict[str, Callable[[AttackTarget, Effort, Progress], Finding]] = {
    "game": game,
    "canaries": canaries,
    "game-rows": game_rows,
    "game-bytes": game_bytes,
    "game-steps": game_steps,
}
