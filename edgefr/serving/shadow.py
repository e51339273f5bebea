"""The coming rounds of real devices are simulated beside them: the same clients, start, seed and fleet.

A server waits for all invited, so the fleet's policy is that of its deadline, without extra invitations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.data.splits.split import Split
from edgefr.engine.federation import Federation
from edgefr.engine.footprint import round_work
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import Clients
from edgefr.fleet import Failure, Fleet, load_fleet
from edgefr.fleet.devices import REFUSALS
from edgefr.fleet.work import Amount
from edgefr.serving.ledger import ServingLedger
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import Saved, open_model
from export.model import TrainedModel
from export.program import read_by
from privacy.errors import InputError

Scores = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
"""Users [n] to their scores of every item of the catalogue [n, items]."""


@dataclass(frozen=True)
class Fate:
    """This is a client's fate in a round: how it ends, and its virtual seconds."""

    failure: Failure = Failure.OK
    seconds: float = 0.0


@dataclass
class Twin:
    """These are simulated rounds from `first` on.

    `shared`, `private`: tensors after them; `fates` by round and client; `answers`, `seconds` (virtual) by round;
    `bytes_up`, `bytes_down` by client; `withheld`: rounds with too few answers.
    """

    first: int
    shared: dict[str, torch.Tensor] = field(default_factory=dict)
    private: dict[str, torch.Tensor] = field(default_factory=dict)
    fates: dict[tuple[int, int], Fate] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    withheld: list[int] = field(default_factory=list)
    bytes_up: dict[int, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, int]:
        names = [fate.failure.name.lower() for fate in self.fates.values() if fate.failure != Failure.OK]
        return {name: names.count(name) for name in sorted(set(names))}


def simulate_rounds(run: Run, clients: Clients, rounds: int, ledger: ServingLedger, fewest: int) -> Twin:
    """Simulate the rounds after a run's lineage with `clients` alone, all of whom are invited.

    Rounds below `fewest` answers learn nothing. `ledger` (unchanged) has the lineage's end, and who may release.
    """
    saved, experiment = open_model(run), run.experiment
    federation = _federation(run, saved, ledger)
    model, counted = saved.model, deepcopy(ledger.ledger)
    own, pool = own_items(model), np.asarray(model.offered, np.int64)
    sampler = Sampler(own, pool, len(model.names.items), experiment.negatives, experiment.batch_size, experiment.seed)
    spec = load_fleet(run.path / "devices.yaml")  # whose server waits for all invited until the deadline
    waits = {"policy": "deadline", "over_select": 1.0, "min_fraction": 0.0}
    spec = spec.model_copy(update={"rounds": spec.rounds.model_copy(update=waits)})
    fleet = Fleet(spec, saved.activity, experiment.seed)
    twin, phases = Twin(ledger.round + 1), federation.phases("round")
    asked: dict[int, int] = {}
    events = () if ledger.event is None else (ledger.event,)
    for number in range(twin.first, twin.first + rounds):
        invited = ledger.rested(number, clients, asked)
        invited = invited if counted is None else invited[counted.admit(invited, *events)]
        asked |= dict.fromkeys(invited.tolist(), number)
        if not len(invited):
            twin.answers.append(0)
            twin.seconds.append(0.0)
            continue
        met = np.zeros(len(invited), np.bool_)  # a bundle has brought the frozen tables
        work = round_work(federation.program, phases, sampler, invited, met, federation.plan.project)
        outcome = fleet.round(number, invited, work)
        if counted is not None:
            counted.spend(invited[~np.isin(outcome.failure, REFUSALS)], *events)
        for at, client in enumerate(invited.tolist()):
            twin.fates[number, client] = Fate(Failure(int(outcome.failure[at])), float(outcome.seconds[at]))
        _add(twin.bytes_down, invited, outcome.fetched, work.bytes_down)
        _add(twin.bytes_up, invited, outcome.contributed, work.bytes_up)
        contributed = invited[outcome.contributed]
        twin.answers.append(len(contributed))
        twin.seconds.append(outcome.ended - outcome.started)
        if len(contributed) < fewest:
            twin.withheld.append(number)
        else:
            federation.round(number, contributed, sampler, own)
    used = read_by(phases)
    twin.shared, twin.private = federation.shared, {n: v for n, v in federation.private.items() if n in used}
    return twin


def own_items(model: TrainedModel) -> Ragged:
    """Return what every user of a run trains on."""
    assert model.own is not None
    return Ragged(model.own.values, model.own.offsets)


def scores_of(model: TrainedModel, twin: Twin) -> Scores:
    """Return the scores of the simulated model after its last round, as devices recommend."""
    at_end = replace(model, shared=twin.shared, private=twin.private, history=own_items(model), pool=None)
    scorer = ModelScorer.of(at_end, torch.device("cpu"))
    return lambda users: scorer(users, None)


def measured(run: Run, users: Clients, scores: Scores) -> dict[str, float]:
    """Return metrics of users' validation items among the whole pool but their training items.

    Raises `InputError` where none of them has a validation item.
    """
    model = open_model(run).model
    own, pool, held = own_items(model), np.asarray(model.offered, np.int32), model.held_out
    if held is None:
        raise InputError(f"{run.path} did not keep its validation items; run the experiment again")
    valid, never = np.full(len(own.counts), -1, np.int32), np.full(len(own.counts), -1, np.int32)
    valid[held.users] = held.items
    nobody = np.empty((0, 1), np.int32)
    split = Split("main", own, Ragged.empty(len(own.counts)), valid, never, pool, nobody, nobody)

    def score(asked: npt.NDArray[np.int64], items: Any) -> npt.NDArray[np.float32]:
        return scores(asked)[:, pool]

    asked = users[valid[users] >= 0]
    return evaluate(score, split, "valid", "full", asked).metrics(run.experiment.evaluation.k)


def difference(twin: Twin, shared: Mapping[str, torch.Tensor]) -> float:
    """Return the largest difference of the server's tensors from the simulated ones."""
    return max(float((twin.shared[name] - value).abs().max()) for name, value in shared.items())


def _add(counts: dict[int, int], clients: Clients, which: npt.NDArray[np.bool_], each: Amount) -> None:
    amounts = np.broadcast_to(np.asarray(each, np.int64), clients.shape)
    for client, amount in zip(clients[which].tolist(), amounts[which].tolist(), strict=True):
        counts[client] = counts.get(client, 0) + amount


def _federation(run: Run, saved: Saved, ledger: ServingLedger) -> Federation:
    """Return the server and its simulated clients at the start of the rounds."""
    experiment, model = run.experiment, saved.model
    assert experiment.engine.shard_size is not None
    federation = Federation(
        model.program,
        clients=len(model.names.users),
        seed=experiment.seed,
        shard_size=experiment.engine.shard_size,
        aggregation=experiment.aggregation,
        plan=ledger.plan,
        device=torch.device("cpu"),
    )
    used = read_by(federation.phases("round"))
    federation.shared = dict(model.shared)
    federation.private |= {name: value.clone() for name, value in model.private.items() if name in used}
    ledger.restore(federation)
    return federation
