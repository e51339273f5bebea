"""A record of learning has to agree with itself, with its bundle's tensors, and with what is learned from.

A name that is no tensor's, a phase without a learning rate, or a shape that no file has would else end a device in the
middle of its work; and counts that nobody can mean, such as 10^9 negatives, would take its memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.sampling import EVERYTHING
from edge.turns import turns
from privacy.errors import InputError

if TYPE_CHECKING:
    from edge.bundle import Bundle
    from edge.learning import ExchangeRecord, Learning, PhaseRecord

Shapes = Mapping[str, npt.NDArray[np.float32]]
MOST_VALUES = 1 << 30  # of all tensors together
MOST_EXAMPLES = 1 << 25  # of one round, all epochs
MOST_STEPS = 10**6  # of one round


def check_learning(learning: Learning) -> None:
    """Raise ValueError that names what does not agree within the record."""
    kinds = {tensor.name: (tensor.place, tensor.kind) for tensor in learning.tensors}
    if len(kinds) < len(learning.tensors):
        raise ValueError("a tensor is named twice")
    if len({phase.name for phase in learning.phases}) < len(learning.phases):
        raise ValueError("a phase is named twice")
    for tensor in learning.tensors:
        if tensor.kind == "rows" and (len(tensor.shape), tensor.place) != (2, "shared"):
            raise ValueError(f"rows of {tensor.name} are not shared [items, width]")
        if tensor.anew is not None and kinds[tensor.name] != ("private", "dense"):
            raise ValueError(f"{tensor.name} is made anew in every round, which a private dense tensor alone can be")
    if sum(math.prod(tensor.shape) for tensor in learning.tensors) > MOST_VALUES:
        raise ValueError(f"its tensors have more than {MOST_VALUES:,} values")
    for phase in learning.phases:
        _check_phase(phase, kinds)
    _check_draws(learning)
    if learning.vectors_data is not None and learning.vectors is None:
        raise ValueError("vectors_data belongs to no graph")
    for name in learning.prepared:
        if name in kinds or name == "vectors":
            raise ValueError(f"it prepares {name}, which it has already")
    if learning.sessions is not None and learning.messages is not None:
        raise ValueError("it has messages of a set beside those of its sessions")
    if learning.exchange is not None:
        _check_exchange(learning.exchange, learning)


def _check_phase(phase: PhaseRecord, kinds: Mapping[str, tuple[str, str]]) -> None:
    """Check that a phase trains tensors that there are, each once and with a learning rate."""
    for wanted, names in (("dense", phase.dense), ("rows", phase.tables)):
        for name in names:
            if name not in kinds or kinds[name][1] != wanted:
                raise ValueError(f"phase {phase.name} trains {name}, which is no {wanted} tensor of the program")
    trained = [*phase.dense, *phase.tables]
    if phase.accumulates and (phase.tables or phase.optimiser != "sgd"):
        raise ValueError(f"phase {phase.name} adds up gradients, which is for dense tensors that move by sgd")
    if len(set(trained)) < len(trained):
        raise ValueError(f"phase {phase.name} trains something twice")
    if set(phase.lr) != set(trained):
        odd = min(set(phase.lr) ^ set(trained))
        raise ValueError(f"phase {phase.name} has learning rates of other tensors than it trains: {odd}")


def _check_draws(learning: Learning) -> None:
    """Check that phases which take turns learn from the same, and that there is what each of them asks for."""
    for phase in learning.phases:
        if phase.context and not phase.pairs:
            raise ValueError(f"phase {phase.name} asks for a context, which belongs to pairs")
        if phase.which != EVERYTHING and learning.sessions is not None:
            raise ValueError(f"phase {phase.name} asks for pairs or parts of a session, which is one window, whole")
        if phase.pairs and learning.replay is not None:
            raise ValueError(f"phase {phase.name} compares items in pairs, and a replayed item has none")
    turns(learning.phases)


def _check_exchange(how: ExchangeRecord, learning: Learning) -> None:
    """Check that what is kept of a round are private tensors, set to tensors of their shape."""
    private = {t.name: t.shape for t in learning.tensors if t.place == "private"}
    dense = {t.name: t.shape for t in learning.tensors if t.kind == "dense"}
    reply = [] if how.reply is None else [how.reply]
    for name in (*how.keeps, *how.marks, *reply):
        if name not in private:
            raise ValueError(f"rounds keep {name}, which is no private tensor of the program")
    for name, source in how.keeps.items():
        if dense.get(source) != private[name]:
            raise ValueError(f"rounds keep {source} as {name}, which has another shape")
    if (how.publish is None) != (how.order is None) or (how.publish is not None and how.reply is None):
        raise ValueError("messages are published without saying when, or without a place for the reply")
    if learning.sessions is None and how.order == "received":
        raise ValueError("messages of the received model are sent of sessions alone")
    if how.publish is not None and learning.release.promises:
        raise ValueError("a run that promises something of its updates has messages beside them, which bear no noise")


def check_tensors(bundle: Bundle, learning: Learning, shared: Shapes, private: Shapes) -> None:
    """Check that the files of a bundle have the tensors that learning names, in their shapes.

    `shared` and `private`: what the files hold, a client's for private ones. Raises `InputError` naming the tensor.
    """
    items, tables = bundle.manifest.item_count, {table.name: table for table in bundle.config.tables}
    how = learning.exchange
    made_here = set() if how is None else {*how.keeps, *how.marks}  # bundles need not bring them
    for tensor in learning.tensors:
        if tensor.kind == "rows":
            table = tables.get(tensor.name)
            got: list[int] | None = None if table is None or table.dtype == "i32" else [items, table.width]
        else:
            found = {"shared": shared, "private": private}[tensor.place].get(tensor.name)
            kept = tensor.shape if tensor.name in made_here else None
            got = kept if found is None else list(found.shape)
        if got != tensor.shape:
            what = f"learning has {tensor.name} as {tensor.shape}, its files {got or 'none'}"
            raise InputError(f"bundle {bundle.root}: {what}; export again")
    if learning.negatives > items:
        raise InputError(
            f"bundle {bundle.root}: learning draws {learning.negatives:,} negatives of {items:,} items; export again"
        )


def check_work(learning: Learning, positives: int) -> None:
    """Check that a round of `positives` interactions fits a device. Raises `InputError` with what to change."""
    group, each = 1 + learning.negatives, positives * (1 + learning.negatives)
    of_pairs = max(learning.batch_size // group, 1) * group  # a batch of pairs parts none
    epochs = steps = 0
    for when in ("round", "final"):
        phases = [phase for phase in learning.phases if phase.when == when]
        epochs = max(epochs, sum(p.epochs for p in phases))
        steps = max(steps, sum(p.epochs * -(-each // (of_pairs if p.pairs else learning.batch_size)) for p in phases))
    if epochs * each > MOST_EXAMPLES or steps > MOST_STEPS:
        raise InputError(
            f"{positives:,} interactions with {learning.negatives:,} negatives each, {epochs:,} times over, are more "
            f"than the {MOST_EXAMPLES:,} examples and {MOST_STEPS:,} steps of a device's round; give fewer interactions"
        )
