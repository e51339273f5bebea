"""A bundle brings a list of items for somebody without history, where their order can be known.

    popular   how many people had them, where a run may tell what it counts of people
    mean      the model's scores for nobody in particular: what differs from client to client is 0, which is its mean,
              and where a user is what it had, in no order, it had everything

The second is made of the released model alone, so it tells of people what that does. Where all of its scores are the
same there is no list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from edge.catalogue import StartList, top
from edge.manifest import Start
from edge.ragged import Ragged
from export.model import TrainedModel
from export.parity import Reference
from export.shared_files import npy
from export.staged_files import Staging

START = "index/start.npy"
MOST = 100  # items of a list
FEWEST = 2  # people who had each of them: what one person alone had is in no list


def start_list(
    model: TrainedModel, seed: int, counted: bool, tables: Mapping[str, Tensor] | None = None
) -> StartList | None:
    """Return what somebody without history is shown, None where no order is known; `counted`: people may be counted."""
    return (_popular(model) if counted else None) or _mean(model, seed, tables)


def _popular(model: TrainedModel) -> StartList | None:
    rows = Ragged(np.asarray(model.seen.values, np.int64), np.asarray(model.seen.offsets, np.int64))
    pairs = np.unique(np.stack([rows.rows, rows.values]), axis=1)
    counts = np.bincount(pairs[1], minlength=len(model.names.items))[model.offered].astype(np.float32)
    best = top(counts, min(MOST, int((counts >= FEWEST).sum())))
    return StartList("popular", model.offered[best]) if len(best) else None


def _mean(model: TrainedModel, seed: int, tables: Mapping[str, Tensor] | None) -> StartList | None:
    if model.tables:  # of clients' own rows nobody holds the whole
        return None
    program, none = model.program, Ragged.empty(1, np.int64)
    first = program.init_private(seed, torch.arange(2))
    private = {n: first[n][:1] if torch.equal(*first[n]) else torch.zeros_like(first[n][:1]) for n in model.private}
    had = None
    if program.needs_history:
        had = none if program.window is not None else Ragged(model.offered, np.array([0, len(model.offered)]))
    nobody = replace(model, private=private, history=had, times=None, seen=none)
    scores = Reference(nobody, tables).scores(0)[model.offered]
    if np.ptp(scores) == 0:
        return None
    return StartList("mean", model.offered[top(scores, MOST)])


def stage_start(stage: Staging, found: StartList | None) -> Start | None:
    """Stage a list, and return what a bundle says of it."""
    if found is None:
        return None
    stage.add(START, "ids", npy(found.items.astype(np.int32)))
    return Start(path=START, count=len(found.items), basis=found.basis)
