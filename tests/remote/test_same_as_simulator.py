"""What is simulated is what devices do: after the same rounds, the same tensors, scores and metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edge.bundle import open_bundle
from edge.device import Device
from edgefr.engine.model import part
from privacy.errors import InputError
from tests.caches import new_cache
from tests.cli.commands import COMMAND, ROOT
from tests.closeness import assert_all_same, assert_same
from tests.devices import open_device, policy_file
from tests.remote import worlds
from tests.remote.worlds import CLASS, FEDMF, ROUNDS, TRANSFR, WIDE, Twins, experiment_of

KEPT = 90  # values of a projection
HEAVY = ("torch", "transformers", "onnx", "pandas", "pyarrow", "matplotlib", "scipy")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One encoder for all tests of this file, and commands that find it."""
    monkeypatch.setenv("EDGEFR_CACHE", str(new_cache(tmp_path_factory.getbasetemp() / "remote-cache")))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def light(folder: Path) -> dict[str, str]:
    """Surroundings in which a heavy import ends the process: a device has none of these libraries."""
    for name in HEAVY:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('a device imports {name}')\n")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}


def processes(twins: Twins, folder: Path, *more: str) -> tuple[str, str]:
    """`edgefr serve` and an `edgefr device join` per user, as processes of this host; what the server says.

    That is its first line, and all that follows.
    """
    asked = (
        "--bundle-class",
        CLASS,
        "--rounds",
        str(ROUNDS),
        "--timeout",
        "90",
        "--out",
        str(folder / "served"),
        *more,
    )
    command = [*COMMAND, "serve", str(twins.begun.path), *asked]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    started, surroundings, policy = [server], light(folder / "light"), policy_file(folder)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.split()[-1]
        for user in twins.users:
            own = folder / f"{user}.txt"
            worlds.known(twins.begun, folder / "states" / user, user)
            own.write_text("item\n" + "\n".join(twins.items(user)) + "\n")
            given = {
                "--state": folder / "states" / user,
                "--url": url,
                "--interactions": own,
                "--policy": policy,
            }
            arguments = [str(text) for pair in given.items() for text in pair]
            command = [*COMMAND, "device", "join", str(twins.bundle), *arguments]
            started.append(subprocess.Popen(command, env=surroundings, stdout=subprocess.DEVNULL, text=True))
        assert [process.wait(120) for process in started[1:]] == [0] * len(twins.users)
        rest, _ = server.communicate(timeout=240)
        assert server.returncode == 0
        return line, rest
    finally:
        for process in started:
            process.kill()
            process.wait()


def compare_shared(twins: Twins, got: dict[str, np.ndarray]) -> None:
    """The server's tensors are the simulator's; they are not those the rounds began with."""
    simulated = part(twins.simulated.read_tensors("model"), "shared.")
    first = part(twins.begun.read_tensors("model"), "shared.")
    assert got.keys() == simulated.keys()
    assert_all_same(got, simulated, **trained(twins))
    assert max(np.abs(value - first[name].numpy()).max() for name, value in got.items()) > 1e-2


def trained(twins: Twins) -> dict[str, float]:
    """What `assert_same` has to know of all rounds, local training included: three batches an epoch."""
    rates = [rate for name, rate in TRANSFR.items() if name == "model.lr" and twins.begun.experiment.row.needs_text]
    epochs = ROUNDS * TRANSFR["local_epochs"] + TRANSFR["model.local_training_epochs"]
    return {"adam": 3 * epochs * max(rates, default=0.0)}


def compare_scores(twins: Twins, scores: np.ndarray, private: str, stage: str) -> None:
    assert_same(scores, twins.simulated_scores(private), **trained(twins))
    found, simulated = twins.metrics(scores), twins.simulated_metrics(stage)
    assert found.keys() >= {"HR@10", "NDCG@10"}
    assert found == pytest.approx(simulated, abs=1e-4)
    assert 0 < found[f"NDCG@{WIDE}"] < 1


def devices(twins: Twins, states: Path) -> list[Device]:
    return [open_device(twins.bundle, states / user) for user in twins.users]


def test_processes_of_fedmf_that_clip_end_where_the_simulator_does(tmp_path: Path) -> None:
    twins = worlds.fedmf().own(tmp_path)
    processes(twins, tmp_path)
    compare_shared(twins, load_file(tmp_path / "served" / "shared.safetensors"))
    own = devices(twins, tmp_path / "states")
    assert [device.status()["round"] for device in own] == [ROUNDS] * len(own)
    compare_scores(twins, np.stack([device.scores() for device in own]), "rounds", "federated")


def test_processes_whose_uploads_are_sealed_end_where_the_simulator_does(tmp_path: Path) -> None:
    """Whole steps of 2^-15 are what a sum under masks adds; nothing else is between the two."""
    twins = worlds.fedmf().own(tmp_path)
    first, rest = processes(twins, tmp_path, "--secure-sum")
    assert first.startswith("sealed by secure aggregation; listening on http://127.0.0.1:")
    assert "sealed by secure aggregation" in rest
    summary = json.loads((tmp_path / "served" / "summary.json").read_bytes())
    assert summary["collected"] == "sealed by secure aggregation"
    assert (summary["uploads"], summary["given_up"], summary["missing"]) == (
        ROUNDS * len(twins.users),
        {},
        [0] * ROUNDS,
    )
    got = load_file(tmp_path / "served" / "shared.safetensors")
    simulated, begun = (part(run.read_tensors("model"), "shared.") for run in (twins.simulated, twins.begun))
    for name, value in simulated.items():
        np.testing.assert_allclose(got[name], value.numpy(), rtol=0, atol=1e-4)
        assert np.abs(got[name] - begun[name].numpy()).max() > 1e-2
    own = devices(twins, tmp_path / "states")
    found, wanted = twins.metrics(np.stack([one.scores() for one in own])), twins.simulated_metrics("federated")
    assert found == pytest.approx(wanted, abs=1e-4)


def test_processes_of_transfr_end_where_the_simulator_does_local_training_included(tmp_path: Path) -> None:
    twins = Twins.of(TRANSFR, tmp_path)
    processes(twins, tmp_path)
    compare_shared(twins, load_file(tmp_path / "served" / "shared.safetensors"))
    own = devices(twins, tmp_path / "states")
    compare_scores(twins, np.stack([device.scores() for device in own]), "rounds", "finetune")
    for device in own:
        device.personalise()
    compare_scores(twins, np.stack([device.scores() for device in own]), "personal", "localtrain")


def test_the_interpreter_of_a_device_refuses_torch(tmp_path: Path) -> None:
    """The check of the processes above bites."""
    found = subprocess.run([sys.executable, "-c", "import torch"], env=light(tmp_path), capture_output=True, text=True)
    assert found.returncode == 1
    assert "a device imports torch" in found.stderr


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
