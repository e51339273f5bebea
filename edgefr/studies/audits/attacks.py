"""An attacker looks at something in what leaves a device: this measures how well that tells members from others.

    sign-split         which items did this client have?   signs of an item table's changes along their main line
    membership         was this one interaction there?     against updates the attacker trained with and without it
    gradient-matching  which items did this client have?   cosine of known texts with the update of the first layer
    game, canaries, …  is this client there at all?        planted clients: see `games`

The first three say how much an upload gives away of what the method really sends; only games bound epsilon, since the
clients they plant are the worst that the mechanism may meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from edgefr.config import random_streams as purposes
from edgefr.studies.audits.canaries import Bools, Floats, Ints, flat
from edgefr.studies.audits.finding import Effort, Finding
from edgefr.studies.audits.games import GAMES
from edgefr.studies.audits.target import AttackTarget
from privacy import keyed
from privacy.audits import leak
from privacy.progress import Progress

SHADOWS = 3
"""Updates that a membership attacker trains of each target."""
FIRST = "adapter.0.weight"
"""[text width, width]: the layer that reads the texts."""


def sign_split(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Split a client's items by sign: positives and negatives push item rows apart along its vector (F3CRec §5.6).

    The rows' main direction stands for that vector; of its two sides the one with fewer rows is called the positives'.
    """
    if target.unasked or target.table is None:
        note = target.unasked or "no table of items leaves the device"
        return Finding("sign-split", "item of a client", note=note)
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
    if target.unasked:
        return Finding("membership", "interaction", note=target.unasked)
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
            seen = flat(target.upload(client, items, draw))
            scores.append(float((seen - (mean[True] + mean[False]) / 2.0) @ line) / max(length, 1e-300))
            member.append(there)
    return _finding("membership", "interaction", [(np.array(scores), np.array(member, np.bool_))], target, "membership")


def _shadow(target: AttackTarget, client: int, items: Ints) -> Floats:
    made = [flat(target.upload(client, items, 2 + draw, noise=False)) for draw in range(SHADOWS)]
    return np.mean(made, axis=0)


def matching(target: AttackTarget, effort: Effort, progress: Progress) -> Finding:
    """Which of a closed set of items were a client's? For methods that send a network over the items' known texts.

    An item's gradient in the network's first layer is its text's vector beside what comes down from the client's own
    vector. So all of an upload has one main line on the side of the texts, and an item counts by its text's cosine with
    that line, texts taken off their mean. Which end is the positives' shows in the skew: they are few and alike.
    """
    unit = "item of a client"
    if target.unasked:
        return Finding("gradient-matching", unit, note=target.unasked)
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


def _each(clients: Ints, stage: str, progress: Progress) -> Iterator[int]:
    """Yield clients one after another, telling how far it is."""
    for number, client in enumerate(clients.tolist()):
        progress(stage, number, len(clients), "")
        yield client
    progress(stage, len(clients), len(clients), "")


def _finding(
    attack: str, unit: str, groups: list[tuple[Floats, Bools]], target: AttackTarget, purpose: str, both: bool = False
) -> Finding:
    apart = leak(groups, keyed.generator(target.experiment.seed, purposes.null(purpose)))
    if math.isnan(apart.auc):
        return Finding(attack, unit, note="no client has items that an attack could distinguish")
    if not both:  # one group of all clients: its sign is the attacker's own
        return Finding.of_leak(attack, unit, apart, of=len(groups[0][0]))
    best = {"best_auc": apart.best_auc, "best_auc_null": apart.best_auc_null}
    return Finding.of_leak(attack, unit, apart, of=len(groups), **best)


ATTACKS: dict[str, Callable[[AttackTarget, Effort, Progress], Finding]] = {
    "sign-split": sign_split,
    "membership": membership,
    "gradient-matching": matching,
    **GAMES,
}
