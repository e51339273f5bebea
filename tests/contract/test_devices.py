"""What was simulated is what is shipped: a device's round is the simulator's, for every method of the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edge.device import Device
from edge.release import Release
from edgefr.engine import inline
from edgefr.engine.work import Updates
from tests.contract import bundles
from tests.contract.programs import interactions, program, work

LEARNERS = (0, 7, 20)


def simulated(variant: str, when: str = "round") -> Updates:
    """The same clients' work in the simulator."""
    local, clients = program(variant), np.array(LEARNERS)
    shared, private = local.init_shared(bundles.SEED), local.init_private(bundles.SEED, torch.from_numpy(clients))
    return inline.run(work(local, when), shared, private, clients)


def close(got: np.ndarray, expected: torch.Tensor) -> None:
    scale = max(1.0, float(expected.abs().max()) if expected.numel() else 0.0)
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-5 * scale, rtol=1e-4)


def compare(release: Release, updates: Updates, slot: int) -> None:
    """One client's upload with its slot of the simulated shard."""
    dense = [value[slot].flatten() for value in updates.dense.values()]
    close(release.update, torch.cat([torch.zeros(0), *dense]))
    assert release.rows.keys() == updates.rows.keys()
    for name, rows in updates.rows.items():
        mine = rows.client == slot
        order = rows.rows[mine].argsort()
        np.testing.assert_array_equal(release.rows[name][0], rows.rows[mine][order].numpy())
        close(release.rows[name][1], rows.values[mine][order])


@pytest.mark.parametrize("variant", bundles.SHIPPED)
def test_a_device_learns_what_the_simulator_does(variant: str, tmp_path: Path) -> None:
    train, updates = interactions(), simulated(variant)
    for slot, client in enumerate(LEARNERS):
        device = Device(bundles.bundle(variant), tmp_path / str(client), user=bundles.user(client))
        release = device.learn(train[client])
        assert release.steps == release.planned > 0
        compare(release, updates, slot)
        own = device.state.part("private")
        for name, value in updates.private.items():
            close(own[name], value[slot])
        assert np.abs(release.update).max(initial=0) + sum(np.abs(v).max() for _, v in release.rows.values()) > 1e-3
