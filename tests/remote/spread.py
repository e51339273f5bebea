"""Devices with exact noise are set beside simulated ones by how well both learn.

Simulated runs differ by their noise keys alone; devices draw real noise, so no two of their runs are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import edgefr
from edgefr.serving.serve import Served
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.upload_trust import Collecting
from privacy.noise_key import NoiseKey
from privacy.plan import plan
from privacy.settings import PrivacySettings
from tests.cli.commands import ROOT
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.worlds import ROUNDS, WIDE, Twins

EPSILON, USERS = 8.0, 40
METRIC = f"NDCG@{WIDE}"


@dataclass(frozen=True)
class Spread:
    """These are the metrics of simulated runs and of runs of devices, under one noise."""

    scale: float
    simulated: list[float]
    devices: list[float]

    @property
    def apart(self) -> list[float]:
        """Return how many standard deviations of the simulated ones each run of devices is from their mean."""
        mean, sd = np.mean(self.simulated), np.std(self.simulated, ddof=1)
        return [float((value - mean) / sd) for value in self.devices]


def settings_of(trust: str, users: int = USERS) -> dict[str, Any]:
    """Return an experiment whose clients are promised an epsilon of 8 over all rounds."""
    private = PrivacySettings(mechanism="gaussian", trust=trust, clip=1.0, epsilon=EPSILON)
    noise = plan(private, ROUNDS, users, users).noise
    assert noise is not None
    asked = {"mechanism": "gaussian", "trust": trust, "clip": 1.0, "scale": noise.scale, "norm": "l2"}
    own = {"data_options.users": users, "aggregation.weights": "uniform", "clients_per_round": 1.0}
    return worlds.FEDMF | own | {f"privacy.{key}": value for key, value in asked.items()}


def measure(
    trust: str,
    folder: Path,
    simulated: int,
    repeats: int,
    users: int = USERS,
    sealed: bool = False,
    served: Callable[..., Served] = worlds.served,
) -> Spread:
    """Simulate with so many noise keys, and let devices do the same rounds so many times; once more under masks.

    `served` has the devices of a world, in a folder, do all rounds.
    """
    settings, found = settings_of(trust, users), []
    experiment = worlds.experiment_of(settings, ROUNDS)
    for number in range(simulated):
        key, out = NoiseKey.new(), folder / f"simulated-{number}"
        run = edgefr.simulate(experiment, ROOT / "devices.yaml", out=out, bundles=False, page=False, noise_key=key)
        found.append(Twins(run, run).simulated_metrics("federated")[METRIC])
    learned = [_on_devices(run, folder / f"run-{n}", settings, served) for n in range(repeats)]
    if sealed:
        masked = partial(served, collecting=Collecting(sealed=True))
        learned.append(_on_devices(run, folder / "sealed", settings, masked))
    return Spread(settings["privacy.scale"], found, learned)


def _on_devices(simulated: Run, folder: Path, settings: dict[str, Any], served: Callable[..., Served]) -> float:
    """Return the metric of one run of devices, each of which recommends for itself after the last round."""
    fresh = Twins(simulated, worlds.simulate(settings, 0, folder / "begun"))
    served(fresh, folder)
    scores = [open_device(fresh.bundle, folder / "states" / user).scores() for user in fresh.users]
    return fresh.metrics(np.stack(scores))[METRIC]
