"""`fidelity: released` gives the numbers of the code that was published with F3CRec; README.md says how they were made.

A run goes through all of its blocks by the ordinary loop, with the golden file's first values, examples and orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edge import replay as device_replay
from edge.replay import ReplayRule
from edge.sampling import EVERYTHING, Examples, Sampler, Selection
from edgefr.data import datasets
from edgefr.data.interactions import Catalogue, assemble
from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import load_fleet
from edgefr.methods.f3crec.memory import ITEMS, LABELS
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.studies.reproductions.runs import ideal_fleet

BLOCKS, ROUNDS, KEPT, DIM, BATCH, LIST, NEGATIVES = 3, 3, (1, 3), 4, 16, 5, 4
USERS, ITEMS_OF = (9, 12, 14), (52, 56, 60)
"""How many there are, up to each block."""
RATES = {"fedmf": 1.0, "fedmlp": 0.02, "pfedrec": 0.02}
EPSILON, WEIGHT, BETA = 0.006, 0.5, 0.9
CASES = {f"{name} {how}": (name, how == "f3crec") for name in RATES for how in ("ft", "f3crec")}
"""The public code's backbone, and whether it runs F3CRec or fine-tuning."""
BACKBONES = {"fedmf": "fedmf", "fedmlp": "fedncf", "pfedrec": "pfedrec"}
EXACT = 1e-6
"""In float64, where our weights and labels of replayed items are float32."""
SINGLE = 1e-5
"""In float32 after nine rounds, beside values up to 7 and the public code in float32."""


@cache
def golden() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "golden.npz") as file:
        return dict(file)


class Given(Sampler):
    """Draws the examples of the golden file."""

    def epoch(self, clients: np.ndarray, purpose: str, *path: int, which: Selection = EVERYTHING) -> Examples:
        number, epoch = path
        assert epoch == 0
        block, at = divmod(number - 1, ROUNDS)
        e = golden()["examples"]
        own = [e[(e[:, 0] == block) & (e[:, 1] == at) & (e[:, 2] == user), 3:] for user in clients]
        every = np.concatenate(own)
        counts = np.array([len(part) for part in own])
        return Examples(every[:, 0].astype(np.int32), every[:, 1].astype(np.float32), counts)


class Orders:
    """Draws remembered items in the orders of the golden file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.at: tuple[Any, ...] = ()
        drawn = ReplayRule.chosen

        def chosen(rule: ReplayRule, lists: Any, now: Any, clients: Any, number: int, step: Any = None) -> Any:
            assert step is not None, "the released code draws in every step"
            self.at = (*divmod(number - 1, ROUNDS), clients, step.number - 1, step.phase)
            return drawn(rule, lists, now, clients, number, step)

        monkeypatch.setattr(ReplayRule, "chosen", chosen)
        monkeypatch.setattr(device_replay, "without_replacement", self.take)

    def take(self, keys: Any, lists: np.ndarray, sizes: np.ndarray, weight: Any = None) -> np.ndarray:
        orders = golden()["orders"][self.at].astype(int)
        return np.argsort(orders, axis=-1) < sizes[:, None]


def experiment(case: str, executor: str, *more: str) -> Experiment:
    backbone, continual = CASES[case]
    kept = [
        f"continual.shift_scale={EPSILON}",
        f"continual.kd_weight={WEIGHT}",
        f"continual.list_size={LIST}",
        f"aggregation.beta={BETA}",
    ]
    values = [
        "method=f3crec",
        "fidelity=released",
        f"backbone={BACKBONES[backbone]}",
        f"strategy={'f3crec' if continual else 'ft'}",
        f"model.lr={RATES[backbone]}",
        f"model.dim={DIM}",
        f"batch_size={BATCH}",
        f"negatives={NEGATIVES}",
        f"rounds={ROUNDS}",
        f"protocol.increments={BLOCKS - 1}",
        f"engine.executor={executor}",
        "engine.shard_size=4",
        *(kept if continual else []),
        *more,
    ]
    return load_experiment(overrides=values, data=datasets.GIVEN)


def prepared(chosen: Experiment) -> Prepared:
    rows = golden()["rows"].astype(np.int64)
    ids = np.arange(ITEMS_OF[-1]).astype(str)
    catalogue = Catalogue(ids, [""] * len(ids), [""] * len(ids), np.zeros(len(ids), np.uint8))
    users = np.arange(USERS[-1]).astype(str)
    columns = (rows[:, 2], rows[:, 3], np.arange(len(rows)))
    made = assemble("golden", users, catalogue, columns, ("items",), False, {}, part=rows[:, 1], block=rows[:, 0])
    return prepare(chosen, None, "cpu", given=made)


def first_values(monkeypatch: pytest.MonkeyPatch, wide: torch.dtype) -> None:
    """Let programs start from the golden file's first values."""
    g = {name: torch.from_numpy(golden()[f"first.{name}"]).to(wide) for name in ("user", "item", "one", "scorer")}

    def scorer(seed: int, width: int, clients: int) -> dict[str, torch.Tensor]:
        weight, bias = g["scorer"][:width].repeat(clients, 1), g["scorer"][width : width + 1].repeat(clients, 1)
        return {"scorer.weight": weight, "scorer.bias": bias}

    monkeypatch.setattr("edgefr.methods.item_table.init_rows", lambda *_: g["item"].clone())
    monkeypatch.setattr("edgefr.methods.fedmf.program.init_vectors", lambda seed, purpose, ids, *_: g["user"][ids])
    monkeypatch.setattr(
        "edgefr.methods.fedncf.program.init_vectors", lambda seed, purpose, ids, *_: _same(g["one"], ids)
    )
    for module in ("item_table", "fedncf.program"):
        monkeypatch.setattr(f"edgefr.methods.{module}.init_scorer", scorer)


def _same(one: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """One vector for all clients, who ask for that of client 0."""
    assert not ids.any()
    return one.repeat(len(ids), 1)


@pytest.fixture
def wide(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    """The type in which everything is computed."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def run(monkeypatch: pytest.MonkeyPatch, wide: torch.dtype, case: str, executor: str, *more: str) -> dict[str, Any]:
    """What a run gives, by the names of the golden file."""
    chosen = experiment(case, executor, *more)
    first_values(monkeypatch, wide)
    Orders(monkeypatch)
    monkeypatch.setattr(
        Training,
        "sampler",
        lambda self, task: Given(task.train, task.pool, ITEMS_OF[-1], NEGATIVES, BATCH, seed=0),
    )
    training = Training.start(
        chosen, prepared(chosen), load_fleet(Path("devices.yaml"), ideal_fleet()), torch.device("cpu"), lambda _: None
    )
    found: dict[str, Any] = {}

    def keep(training: Training) -> None:
        number, at = training.position.stage, training.position.round
        found.setdefault(f"valid.{number}", []).append(training.curve["NDCG@20"])
        if at in KEPT:
            found[f"item.{number}.{at}"] = training.federation.shared["item"][: ITEMS_OF[number]].clone()
            for name in ("user", "scorer.weight", "scorer.bias"):
                if name in training.federation.private:
                    own = training.federation.private[name][: USERS[number]]
                    found[f"{name}.{number}.{at}"] = own.clone()

    end = type(training.schedule[0]).end

    def ended(stage: Any, of: Training, model: Any, progress: Any) -> Any:
        out = end(stage, of, model, progress)
        if ITEMS in of.federation.private and stage.task.number < BLOCKS - 1:
            found[f"lists.{stage.task.number}"] = of.federation.private[ITEMS].clone()
            found[f"labels.{stage.task.number}"] = of.federation.private[LABELS].clone()
        return out

    monkeypatch.setattr(type(training.schedule[0]), "end", ended)
    training.train([keep])
    found["tested"] = after_blocks(training)
    return found


def after_blocks(training: Training) -> np.ndarray:
    """NDCG@20 on block s after block t, [t, s]."""
    names = [f"D{number}" for number in range(BLOCKS)]
    found = training.measured.matrix(training.stages[0], names, "NDCG@20")
    return np.array([row + [0.0] * (len(names) - len(row)) for row in found])


def assert_golden(found: dict[str, Any], case: str, close: float, kind: str = "float64") -> None:
    expected = {name.partition("/")[2]: v for name, v in golden().items() if name.startswith(f"{kind} {case}/")}
    compared = 0
    for name, value in expected.items():
        if name.startswith(("item.", "user.", "scorer.")):
            own = found[name].double().numpy().reshape(value.shape)
            there = ~np.isnan(value)
            assert np.abs(own - value)[there].max() < close, name
            compared += 1
        elif name.startswith("valid.") or name == "tested":
            np.testing.assert_allclose(np.asarray(found[name]), value, atol=1.1e-5, err_msg=name)  # printed to 5 digits
    assert compared >= 2 * BLOCKS * len(KEPT) - 6
    if CASES[case][1]:
        for block in range(BLOCKS - 1):
            lists, targets = expected[f"lists.{block}"], expected[f"targets.{block}"]
            own = found[f"lists.{block}"][: len(lists)].numpy()
            assert own.tolist() == lists.tolist()
            label = 1 / (1 + np.exp(-np.take_along_axis(targets, lists, axis=1)))
            assert np.abs(found[f"labels.{block}"][: len(lists)].double().numpy() - label).max() < max(close, 1e-7)


@pytest.mark.parametrize("wide", [torch.float64], indirect=True, ids=["float64"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("executor", ["debug"])
def test_the_plain_loop_gives_the_released_numbers(
    monkeypatch: pytest.MonkeyPatch, wide: torch.dtype, case: str, executor: str
) -> None:
    assert_golden(run(monkeypatch, wide, case, executor), case, EXACT)


@pytest.mark.parametrize("wide", [torch.float32], indirect=True, ids=["float32"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("executor", ["inline", "debug"])
def test_in_single_precision(monkeypatch: pytest.MonkeyPatch, wide: torch.dtype, case: str, executor: str) -> None:
    assert_golden(run(monkeypatch, wide, case, executor), case, SINGLE, "float32")


@pytest.mark.parametrize("wide", [torch.float64], indirect=True, ids=["float64"])
@pytest.mark.parametrize(
    "change",
    [
        "continual.labels=kept",
        "continual.item_rate=catalogue",
        "continual.carry=best",
        "aggregation.beta=0.89",
        "continual.kd_weight=0.49",
        "continual.shift_scale=0.007",
    ],
)
def test_other_choices_give_other_numbers(monkeypatch: pytest.MonkeyPatch, wide: torch.dtype, change: str) -> None:
    """A golden value that does not follow from a choice would hold nothing to it."""
    found = run(monkeypatch, wide, "fedmf f3crec", "debug", change)
    with pytest.raises(AssertionError):
        assert_golden(found, "fedmf f3crec", EXACT)
