"""Whatever a run carries from round to round and from block to block survives a checkpoint, for every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from edgefr.data.prepared_data import Prepared
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import load_fleet
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.runs import checkpoint
from edgefr.simulation.simulate import fleet_overrides
from tests.cli.commands import ROOT
from tests.durable.test_checkpoint import OWNER, same
from tests.fleet.fleets import read
from tests.noises import KEY

BLOCKS = (
    "data_options={users: 40, items: 100, interactions: 25}",
    "protocol={name: blocks, min_interactions: 2, increments: 2}",
    "rounds=3",
    "model={dim: 4}",
    "clients_per_round=0.7",
    "engine.shard_size=16",
)
TIMES = ("seconds", "spent", "clients_per_second", "train_seconds", "eval_seconds")


class Stopped(Exception):
    pass


def untimed(state: Any) -> Any:
    """A state without what depends on the speed of the machine."""
    if isinstance(state, dict):
        return {key: untimed(value) for key, value in state.items() if key not in TIMES}
    return [untimed(value) for value in state] if isinstance(state, list) else state


def begun(experiment: Experiment, prepared: Prepared, log: list[Any]) -> Training:
    fleet = load_fleet(ROOT / "devices.yaml", fleet_overrides(experiment))
    return Training.start(experiment, prepared, fleet, torch.device("cpu"), lambda lines: log.extend(read(lines)), KEY)


def kept(simulation: Any, folder: Path) -> dict[str, Any]:
    """The state as a checkpoint gives it back."""
    checkpoint.write(folder, 1, simulation.state(), OWNER)
    found = checkpoint.newest(folder, OWNER, pytest.fail)
    assert found is not None
    return found.state


@pytest.mark.parametrize(
    "changes",
    [
        ("method=f3crec", "strategy=f3crec", "privacy={mechanism: laplace, clip: 0.5, scale: 0.05}"),
        ("method=f3crec", "strategy=spp", "privacy={mechanism: gaussian, clip: 0.5, sigma: 4, budget: 1.8}"),
        ("method=f3crec", "strategy=reg"),
        ("method=f3crec", "strategy=rlp2", "aggregation.rule=median"),
        ("method=fedncf", "strategy=kd", "fidelity=released"),
        ("method=pfedrec", "strategy=f3crec", "continual.carry=last"),
    ],
    ids=lambda changes: " ".join(changes[:2]),
)
def test_every_round_can_be_the_last_before_a_stop(changes: tuple[str, ...], tmp_path: Path) -> None:
    experiment = load_experiment(overrides=[*BLOCKS, *changes])
    prepared = prepare(experiment, None, "cpu", None)
    log: list[Any] = []
    whole = begun(experiment, prepared, log)
    states: dict[int, dict[str, Any]] = {}
    lengths: dict[int, int] = {}

    def boundary(run: Training) -> None:
        states[run.rounds], lengths[run.rounds] = kept(run, tmp_path), len(log)

    whole.train([boundary])
    assert len(states) >= 7
    expected = untimed(kept(whole, tmp_path))
    for rounds in sorted(states)[::2]:  # first and last of a block, and one within
        again: list[Any] = log[: lengths[rounds]]
        resumed = begun(experiment, prepared, again)
        resumed.restore(states[rounds])
        back = kept(resumed, tmp_path)
        assert [name for name in back if not same(back[name], states[rounds][name])] == [], "times included"
        resumed.train()
        assert again == log
        found = untimed(kept(resumed, tmp_path))
        assert [name for name in expected if not same(found[name], expected[name])] == []
        mine, theirs = whole.final.flat(), resumed.final.flat()
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
