"""The attackers of a run are drawn here, with their target; exposure is measured on the clients that are honest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge.ragged import Ragged
from edgefr.config import random_streams as purposes
from edgefr.config.attackers import ATTACKS
from edgefr.data.splits.split import Split
from edgefr.engine.attacks.attackers import Attackers
from edgefr.engine.work import trained
from edgefr.simulation.evaluation.ranking import ranks_of
from export.program import LocalProgram, ScoreForm
from privacy import keyed
from privacy.errors import InputError

if TYPE_CHECKING:
    from edgefr.data.interactions import Catalogue
    from edgefr.experiment.experiment import Experiment
    from edgefr.simulation.stages.stage import Running

PUBLIC = 0.01
"""Share of all training interactions that anybody can read."""


def attackers_of(experiment: Experiment, split: Split, catalogue: Catalogue, program: LocalProgram) -> Attackers | None:
    """Return a run's attackers, drawn by its seed among the clients that train; None where none are asked for.

    Raises `InputError` for a program whose shared tensors are not one table that vectors of users are multiplied with.
    """
    asked, seed = experiment.attackers, experiment.seed
    if asked is None:
        return None
    form = program.score_form
    rounds = [phase for phase in program.phases if phase.when == "round" and phase.epochs]
    if not isinstance(form, ScoreForm) or trained(program, rounds, "shared") != [form.rows]:
        raise InputError(
            f"attackers: they know scores w_u . q_i of one shared item table, and {program.name} by these settings has "
            "others; use method=fedmf or method=pfedrec"
        )
    able = np.flatnonzero(split.train.counts)
    count = min(len(able), max(1, round(asked.share * len(able)))) if asked.share else 0
    clients = keyed.choose(keyed.key(seed, purposes.ATTACKERS), able, count)
    told = _public(split.train, seed)
    target = _target(asked.target, split, catalogue.ids, seed)
    times = len(able) / max(count, 1)
    return Attackers(
        clients, ATTACKS[asked.kind].direction, form.rows, target, told, times, asked.strength, asked.beyond
    )


def _target(named: str | None, split: Split, ids: npt.NDArray[Any], seed: int) -> int:
    if named is not None:
        found = np.flatnonzero(ids.astype(str) == named)
        if not len(found) or found[0] not in split.pool:
            raise InputError(f"attackers.target: no item '{named}' can be recommended; give an id of the data set")
        return int(found[0])
    held = np.bincount(split.train.values, minlength=len(ids))[split.pool]
    return int(keyed.choose(keyed.key(seed, purposes.TARGET), split.pool[held == held.min()], 1)[0])


def _public(train: Ragged, seed: int) -> Ragged:
    total = len(train.values)
    at = keyed.choose(keyed.key(seed, purposes.PUBLIC), np.arange(total), round(PUBLIC * total))
    return Ragged.from_sorted(train.rows[at], train.values[at], len(train))


def exposure(run: Running) -> dict[str, Any]:
    """Return the section `attack` of a summary: who attacked, and what honest users then find on their lists.

    `ER@k`: share of the honest users who do not have the target among whose k best items it is, by full ranking.
    `rank`: its median rank; `honest`: metrics of their own test items, by full ranking.
    """
    attackers, asked, model = run.attackers, run.experiment.attackers, run.final
    stage = run.schedule[-1]
    assert attackers is not None
    assert asked is not None
    assert model is not None
    split = stage.task
    assert isinstance(split, Split)
    users, found = run.measured.users[run.stages[-1], split.name, "full"]
    honest = ~np.isin(users, attackers.clients)
    has = split.train.rows[split.train.values == attackers.target]
    without = honest & ~np.isin(users, has) & (split.valid[users] != attackers.target)
    ranks = ranks_of(run.scorer(model, split, split.train), split, users[without], attackers.target)
    return {
        "kind": asked.kind,
        "share": asked.share,
        "attackers": len(attackers.clients),
        "clients": len(run.clients),
        "strength": asked.strength,
        "beyond": asked.beyond,
        "target": str(run.prepared.dataset.catalogue.ids[attackers.target]),
        "known_by": len(has),
        "users": len(ranks),
        **{f"ER@{k}": float((ranks <= k).mean()) for k in run.experiment.evaluation.k if len(ranks)},
        "rank": float(np.median(ranks)) if len(ranks) else None,
        "honest": {name: float(values[honest].mean()) for name, values in found.items() if honest.any()},
    }
