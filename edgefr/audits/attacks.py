"""An attacker looks at something in what leaves a device: this measures how well that tells members from others.

    sign-split         which items did this client have?   signs of an item table's changes along their main line
    membership         was this one interaction there?     against updates the attacker trained with and without it
    gradient-matching  which items did this client have?   cosine of known texts with the update of the first layer
    game               is this client there at all?        the mechanism alone, many draws of two neighbouring worlds
    canaries           the same from one run               many planted clients, each in or out by a coin of its own

The first three say how much an upload gives away of what the method really sends; only the last two bound epsilon,
since the clients they plant are the worst that the mechanism may meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefr import purposes
from edgefr.audits.target import AttackTarget, through
from edgefr.prepare import Progress
from privacy import keyed
from privacy.accounting import composed
from privacy.audits import Leak, game_bound, leak, one_run_bound
from privacy.plan import Plan

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
SHADOWS = 3
"""Updates that a membership attacker trains of each target."""
FIRST = "adapter.0.weight"
"""[text width, width]: the layer that reads the texts."""
CANARIES = 1000
GUESSED = 4
"""One canary in so many is guessed; fixed before the run, as the bound wants it."""
WIDTH = 200
"""Worlds that are played side by side under central trust, one coordinate each."""
ROUNDS = 10_000
"""Rounds through the mechanism that one attack may take (of all canaries together: a twentieth, they cost more)."""


@dataclass(frozen=True)
class Finding:
    """A finding is what one attack saw of `of` clients, draws or canaries.

    None where it does not say, `note` why it was not made.

    `unit`: what is told apart. `auc`, `tpr` (at 1 % FPR) beside what knowing nothing reaches at its 95 % quantile;
    `best_auc`: had somebody told the attacker the right sign for every client. `eps_lb95` bounds `releases` releases
    of a client, of which `claimed` is guaranteed.
    """

    attack: str
    unit: str
    auc: float | None = None
    auc_null: float | None = None
    tpr: float | None = None
    tpr_null: float | None = None
    best_auc: float | None = None
    best_auc_null: float | None = None
    eps_lb95: float | None = None
    claimed: float | None = None
    releases: int = 1
    of: int = 0
    note: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_leak(cls, attack: str, unit: str, apart: Leak, **rest: Any) -> Finding:
        """Make a finding from how well scores told members from others."""
        return cls(attack, unit, *apart[:4], **rest)

    @property
    def exceeds(self) -> bool:
        """Say whether more was found than is guaranteed: a fault of mechanism or accounting."""
        return self.eps_lb95 is not None and self.claimed is not None and self.eps_lb95 > self.claimed

    def row(self) -> dict[str, Any]:
        """Return this for JSON: infinity is the word "inf", nan is None."""
        values = asdict(self) | {"exceeds": self.exceeds}
        return {k: _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None
    return value


@dataclass(frozen=True)
class Effort:
    """This says how much an audit may try: clients that are attacked, draws of the game."""

    users: int = 50
    trials: int = 10_000


def sign_split(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Split a client's items by sign (F3CRec §5.6).

    Positives and negatives of its round push item rows to opposite sides along its own vector.

    The rows' main direction stands for that vector; of its two sides the one with fewer rows is called the positives'.
    """
    if target.table is None:
        return Finding("sign-split", "item of a client", note="no table of items leaves the device")
    groups = []
    for client in _each(target.chosen(effort.users), "sign-split", progress):
        groups.append(_split(target.upload(client, target.own[client], 0)[target.table], target.own[client]))
    return _finding("sign-split", "item of a client", groups, target, "sign-split", both=True)


def _split(change: Floats, own: Ints) -> tuple[Floats, Bools]:
    """Return scores of the rows that changed, higher for presumed positives, and which of them are the client's own."""
    touched = np.flatnonzero((change != 0).any(axis=1))
    rows = change[touched]
    _, directions = np.linalg.eigh(rows.T @ rows)
    along = rows @ directions[:, -1]
    sign = -1.0 if (along > 0).sum() > (along < 0).sum() else 1.0
    return sign * along, np.isin(touched, own)


def membership(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Was one interaction among those a client trained on? The attacker knows all else of the client but its chance.

    It trains the client itself with and without the interaction, with draws of its own, and looks where between the two
    an upload lies: the likelihood ratio under Gaussian noise.
    """
    scores, member = [], []
    for client in _each(target.chosen(effort.users), "membership", progress):
        own = target.own[client].astype(np.int64)
        out = int(keyed.integers(keyed.key(target.experiment.seed, purposes.LEFT_OUT, client), 0, len(own)))
        others = np.delete(own, out)
        worlds = {True: np.append(others, own[out]), False: others}  # put last, it hardly moves the others' draws
        mean = {there: _shadow(target, client, items) for there, items in worlds.items()}
        line = mean[True] - mean[False]
        length = float(line @ line) if target.plan.noise is None else 1.0
        for draw, (there, items) in enumerate(worlds.items()):
            seen = _flat(target.upload(client, items, draw))
            scores.append(float((seen - (mean[True] + mean[False]) / 2.0) @ line) / max(length, 1e-300))
            member.append(there)
    return _finding("membership", "interaction", [(np.array(scores), np.array(member, np.bool_))], target, "membership")


def _shadow(target: AttackTarget, client: int, items: Ints) -> Floats:
    """Return the mean of the attacker's own updates of a client with these items, without noise."""
    made = [_flat(target.upload(client, items, 2 + draw, noise=False)) for draw in range(SHADOWS)]
    return np.mean(made, axis=0)


def matching(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Which of a closed set of items were a client's? For methods that send a network over the items' known texts.

    An item's gradient in the network's first layer is its text's vector beside what comes down from the client's own
    vector. So all of an upload has one main line on the side of the texts, and an item counts by its text's cosine with
    that line, texts taken off their mean. Which end is the positives' shows in the skew: they are few and alike.
    """
    unit = "item of a client"
    if target.table is not None:
        return Finding("gradient-matching", unit, note="a table of items leaves the device: see sign-split")
    if FIRST not in target.sent or "text" not in target.program.frozen:
        return Finding("gradient-matching", unit, note=f"no {FIRST} over known texts leaves the device")
    texts = target.program.frozen["text"].double().numpy()[target.pool]
    texts = texts - texts.mean(axis=0)
    texts /= np.maximum(np.linalg.norm(texts, axis=1, keepdims=True), 1e-300)
    groups = []
    for client in _each(target.chosen(effort.users), "matching", progress):
        lines, _, _ = np.linalg.svd(target.upload(client, target.own[client], 0)[FIRST], full_matrices=False)
        along = texts @ lines[:, 0]
        skew = ((along - along.mean()) ** 3).sum()
        groups.append((-along if skew < 0 else along, np.isin(target.pool, target.own[client])))
    return _finding("gradient-matching", unit, groups, target, "matching", both=True)


def game(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Tell two neighbouring worlds apart from what the run's own mechanism lets through of a planted client."""
    return play(target.plan, bound_of(target), target.rounds, target.experiment.privacy.delta, effort.trials, progress)


def play(
    plan: Plan, bound: float, rounds: int, delta: float, trials: int, progress: Progress, seed: int = 0
) -> Finding:
    """The game of `trials` draws for a plan: a client at `bound` or absent (central), or at either end of it (local).

    As many of the run's `rounds` are released in each draw as the work allows.
    """
    width = 1 if plan.where == "each upload" else min(WIDTH, trials // 2)
    releases = max(1, min(rounds, ROUNDS * width // trials))
    batches = trials // 2 // width
    worlds = []
    for target in (1, 0):
        updates = _planted(plan, bound, np.full(width, target == 1))
        found = np.empty((batches, width))
        for batch in range(batches):
            numbers = range(batch * releases, (batch + 1) * releases)
            found[batch] = _passed(plan, updates, keyed.key(seed, purposes.GAME, target), numbers)
            progress("game", (1 - target) * batches + batch + 1, 2 * batches, "")
        worlds.append(found.ravel())
    lower, counts = game_bound(worlds[0], worlds[1], delta)
    group = (np.concatenate(worlds), np.repeat([True, False], [len(w) for w in worlds]))
    apart = leak([group], keyed.generator(seed, purposes.null("game")), deals=20)
    return Finding.of_leak(
        "game",
        "client",
        apart,
        eps_lb95=lower,
        claimed=_claimed(plan, releases, delta),
        releases=releases,
        of=len(group[0]),
        counts=counts,
    )


def canaries(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """One run with many planted clients, each there or not by a coin: how many coins does the attacker get right?"""
    return plant(target.plan, bound_of(target), target.rounds, target.experiment.privacy.delta, CANARIES, progress)


def plant(
    plan: Plan, bound: float, rounds: int, delta: float, count: int, progress: Progress, seed: int = 0
) -> Finding:
    """The canaries of a plan, in all of a run's `rounds` as far as the work allows (Steinke et al. 2023)."""
    coins = keyed.integers(keyed.key(seed, purposes.COINS), np.arange(count), 2) == 1
    updates = _planted(plan, bound, coins)
    together = plan.where != "each upload"
    releases = max(1, min(rounds, ROUNDS // (20 if together else count)))
    key, scores = keyed.key(seed, purposes.CANARIES), np.zeros(count)
    if together:
        for number in range(releases):
            scores += _passed(plan, updates, key, range(number, number + 1))
            progress("canaries", number, releases, "")
    else:  # every upload is seen by itself
        for canary in range(count):
            numbers = range(canary * releases, (canary + 1) * releases)
            scores[canary] = _passed(plan, updates[canary : canary + 1, canary : canary + 1], key, numbers)[0]
            progress("canaries", canary, count, "")
    order, each = np.argsort(scores, kind="stable"), count // GUESSED // 2
    correct = int((~coins[order[:each]]).sum() + coins[order[-each:]].sum())
    apart = leak([(scores, coins)], keyed.generator(seed, purposes.null("canaries")), deals=100)
    total = releases if together else count
    progress("canaries", total, total, "")
    return Finding.of_leak(
        "canaries",
        "client",
        apart,
        eps_lb95=one_run_bound(count, 2 * each, correct, delta),
        claimed=_claimed(plan, releases, delta),
        releases=releases,
        of=count,
        counts={"canaries": count, "guesses": 2 * each, "correct": correct},
    )


def bound_of(target: AttackTarget) -> float:
    """Return the norm of a planted update: the clip, or where nobody clips the run's 90th percentile."""
    return target.plan.clip or target.p90 or 1.0


def _planted(plan: Plan, bound: float, there: Bools) -> Floats:
    """Make uploads [C, C], one coordinate per client: at the bound if it is there, else at nothing or at the other end.

    Under a clip they are sent ten times too large, so that the bound is the clip's own doing.
    """
    size = bound if plan.clip is None else 10.0 * bound
    other = -size if plan.where == "each upload" else 0.0
    out: Floats = np.diag(np.where(there, size, other))
    return out


def _passed(plan: Plan, updates: Floats, key: int, numbers: range) -> Floats:
    """Return what the mechanism lets through of uploads [C, width], added up over rounds: [width]."""
    return through(plan, updates, key, numbers).sum(axis=0)


def _claimed(plan: Plan, releases: int, delta: float) -> float:
    """Return what the run's accounting guarantees for so many releases of one client."""
    return composed([(plan.event, releases)], delta).epsilon if plan.noise is not None else math.inf


def _each(clients: Ints, stage: str, progress: Progress) -> Iterator[int]:
    """Yield clients one after another, telling how far it is."""
    for number, client in enumerate(clients.tolist()):
        progress(stage, number, len(clients), "")
        yield client
    progress(stage, len(clients), len(clients), "")


def _flat(change: dict[str, Floats]) -> Floats:
    return np.concatenate([value.ravel() for value in change.values()])


def _finding(
    attack: str, unit: str, groups: list[tuple[Floats, Bools]], target: AttackTarget, purpose: str, both: bool = False
) -> Finding:
    apart = leak(groups, keyed.generator(target.experiment.seed, purposes.null(purpose)))
    if math.isnan(apart.auc):
        return Finding(attack, unit, note="no client has anything that could be told apart")
    if not both:  # one group of all clients: its sign is the attacker's own
        return Finding.of_leak(attack, unit, apart, of=len(groups[0][0]))
    best = {"best_auc": apart.best_auc, "best_auc_null": apart.best_auc_null}
    return Finding.of_leak(attack, unit, apart, of=len(groups), **best)


ATTACKS: dict[str, Callable[[AttackTarget, Effort, Progress], Finding]] = {
    "sign-split": sign_split,
    "membership": membership,
    "gradient-matching": matching,
    "game": game,
    "canaries": canaries,
}
