"""Devices that release projections end where the simulator does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edge.bundle import open_bundle
from edgefr.engine.model import part
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.remote import worlds
from tests.remote.worlds import FEDMF, Twins, experiment_of

KEPT = 90


def test_devices_that_project_end_where_the_simulator_does(tmp_path: Path) -> None:
    twins = Twins.of(FEDMF | {"privacy.project": KEPT}, tmp_path)
    learning = open_bundle(twins.bundle).config.learning
    assert learning is not None
    assert learning.release.project == KEPT
    result = worlds.served(twins, tmp_path)
    served = load_file(tmp_path / "served" / "shared.safetensors")["item"]
    simulated, first = (part(run.read_tensors("model"), "shared.")["item"] for run in (twins.simulated, twins.begun))
    assert_same(served, simulated)
    assert np.abs(served - first.numpy()).max() > 1e-2
    assert result.summary["privacy"] is None


def test_a_bundle_of_another_projection_is_not_served(tmp_path: Path) -> None:
    twins = worlds.fedmf().own(tmp_path)
    twins.begun.write_experiment(experiment_of(FEDMF | {"privacy.project": KEPT}, 0))
    with pytest.raises(InputError, match="release other projections than the run; export the run again"):
        worlds.served(twins, tmp_path)
