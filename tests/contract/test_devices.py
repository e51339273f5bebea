"""What was simulated is what is shipped: a device's round is the simulator's, for every method of the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edge.delta import Delta
from edge.model import VectorCache
from edge.ragged import Ragged
from edge.update import ClientUpdate, read_update
from edgefr.engine.aggregate import SHORT, JointVector, ReleaseTerms
from edgefr.engine.executors import inline
from edgefr.engine.scoring import ModelScorer
from edgefr.engine.work import Updates
from edgefr.experiment.continual import ContinualSettings
from edgefr.methods.f3crec.memory import ITEMS as REMEMBERED
from edgefr.methods.f3crec.memory import ReplayMemory, empty, remember_best
from edgefr.serving.devices import released
from export.program import LocalProgram
from privacy.compress import Projection
from privacy.errors import InputError
from privacy.mechanism import Noise
from tests.closeness import after_training, assert_same
from tests.contract import bundles
from tests.contract.programs import CLIENTS, ITEMS, interactions, program, work
from tests.devices import open_device
from tests.export.worlds import literal
from tests.mostly_slow import mostly_slow

LEARNERS = (0, 7, 20)


def simulated(variant: str, when: str = "round") -> Updates:
    """The same clients' work in the simulator."""
    local, clients = program(variant), np.array(LEARNERS)
    shared, private = local.init_shared(bundles.SEED), local.init_private(bundles.SEED, torch.from_numpy(clients))
    return inline.run(work(local, when), shared, private, clients)


def bounds(local: LocalProgram, steps: int, when: str = "round") -> dict[str, float]:
    """What `assert_same` has to know of `steps` steps of a program from its first values on."""
    begun = local.init_shared(bundles.SEED), local.init_private(bundles.SEED, torch.arange(CLIENTS))
    return after_training([phase for phase in local.phases if phase.when == when], steps, *begun)


def compare(release: ClientUpdate, updates: Updates, slot: int, allowed: dict[str, float]) -> None:
    """One client's upload with its slot of the simulated shard."""
    dense = [value[slot].flatten() for value in updates.dense.values()]
    assert_same(release.update, torch.cat([torch.zeros(0), *dense]), **allowed)
    assert release.rows.keys() == updates.rows.keys()
    for name, rows in updates.rows.items():
        mine = rows.client == slot
        order = rows.rows[mine].argsort()
        np.testing.assert_array_equal(release.rows[name][0], rows.rows[mine][order].numpy())
        assert_same(release.rows[name][1], rows.values[mine][order], **allowed, name=name)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("variant", ["fedmf", "transfr mean by softmax"])
def test_a_device_projects_what_the_simulator_projects(variant: str, clip: float | None, tmp_path: Path) -> None:
    """Of a table's changed rows as of dense tensors; and the server takes it for what it is."""
    kept, local, updates = 12, program(variant), simulated(variant)
    path = bundles.bundle(variant, project=kept, clip=clip)
    changed = [name for name, spec in local.specs.items() if name in (*updates.dense, *updates.rows)]
    shapes = {name: local.specs[name].shape for name in changed}
    size = sum(local.specs[name].size for name in changed)
    joint = JointVector(shapes, Projection.of_round(bundles.LEARNING.seed, bundles.ROUND, size, kept))
    short = joint.short(updates, len(LEARNERS))
    if clip is not None:
        assert bool((short.norm(dim=1) > clip).all())
        short = short * (clip / short.norm(dim=1, keepdim=True))
    uploads = []
    for slot, client in enumerate(LEARNERS):
        device = open_device(path, tmp_path / str(client), user=bundles.user(client))
        made = device.learn(interactions()[client])
        assert not made.rows
        assert device.work["clipped"] == (clip is not None)
        steps = device.work["steps"]
        assert_same(made.update, short[slot], **bounds(local, steps))
        bundle = device.bundle
        assert bundle.config.learning is not None
        assert bundle.config.learning.uploaded == kept
        uploads.append(read_update(made.to_bytes(), bundle.config.learning, bundle.manifest.bundle_id))
    part = released(uploads, device.learning, ReleaseTerms(clip, "l2", False, True, joint=joint))
    assert_same(part.dense[SHORT].float(), short.sum(0), **bounds(local, steps))


NOISED = {"clip": 0.05, "noise": "discrete-laplace", "scale": 2.0**-9, "step": 2.0**-20, "noised": "here"}


def test_a_projected_upload_bears_exact_noise_and_nothing_else_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, client = 12, LEARNERS[1]
    device = open_device(
        bundles.bundle("fedmf", project=kept, **NOISED), tmp_path / "noised", user=bundles.user(client)
    )
    monkeypatch.setattr(Noise, "exact", lambda noise, size: np.arange(size) * noise.steps)
    made = device.learn(interactions()[client])
    quiet = open_device(bundles.bundle("fedmf", project=kept, clip=0.05), tmp_path / "quiet", user=bundles.user(client))
    expected = np.trunc(quiet.learn(interactions()[client]).update / NOISED["step"]) + np.arange(kept) * 2048
    np.testing.assert_array_equal(made.update, expected)
    assert made.update.dtype == np.int32
    assert made.facts().keys() == {"schema", "bundle", "round"}
    own = device.bundle.manifest.bundle_id
    for broken, words in (
        (replace(made, update=made.update[:-1]), r"instead of int32 \[12\]"),
        (replace(made, update=made.update.astype(np.float32)), r"is float32 \[12\] instead of int32"),
    ):
        with pytest.raises(InputError, match=words):
            read_update(broken.to_bytes(), device.learning, own)


BACKBONES = ("fedmf", "fedncf", "pfedrec")


@pytest.mark.parametrize("variant", mostly_slow(BACKBONES))
def test_a_device_replays_what_the_simulator_replays(variant: str, tmp_path: Path) -> None:
    """Two blocks: a round on the first, the server's update, the memory, a round on the second."""
    client, how, pool = 7, bundles.REPLAY, np.arange(ITEMS)
    first, second = interactions(), interactions(seed=2)
    device = open_device(bundles.bundle(variant, replay=True), tmp_path, user=bundles.user(client))
    device.learn(first[client])
    table = device.state.tensors["table.item"] + 0.2 * np.sin(np.arange(ITEMS))[:, None].astype(np.float32)
    base, dense = device.bundle.manifest.bundle_id, device.state.part("shared")
    facts = {"base_digest": base, "from_round": bundles.ROUND - 1, "to_round": bundles.ROUND}
    device.apply(Delta(**facts, dense=dense, rows={"item": (pool, table)}, signed_by=device.bundle.signed_by))
    device.next_block()
    release = device.learn(second[client])

    local, everyone = program(variant), torch.arange(CLIENTS)
    shared, private = local.init_shared(bundles.SEED), local.init_private(bundles.SEED, everyone)
    one = np.array([client])
    begun = inline.run(work(local), shared, {n: v[one] for n, v in private.items()}, one)
    for name, value in begun.private.items():
        private[name][client] = value[0]
    shared["item"] = torch.from_numpy(table)
    memory = empty(CLIENTS, how.list_size)
    score = ModelScorer(local, shared, private, Ragged.empty(CLIENTS), pool, ITEMS, torch.device("cpu"))
    remember_best(memory, one, lambda users: score(users, None), pool, 0, how.list_size)
    np.testing.assert_array_equal(device.state.tensors["memory.items"], memory[REMEMBERED][client].numpy())

    settings = ContinualSettings(list_size=how.list_size, kd_weight=how.weight, shift_scale=how.shift_scale)
    replay = ReplayMemory(settings, how.picks, pool, ITEMS, bundles.LEARNING.seed)
    job = replace(work(local, train=second), memory=replay, round=bundles.ROUND + 1)
    own = {name: value[one] for name, value in (private | memory).items()}
    drawn = replay.replay(local, shared, own, one, job.round)
    assert drawn is not None
    assert 0 < len(drawn.items.values) <= how.list_size
    compare(release, inline.run(job, shared, own, one), 0, bounds(local, device.work["steps"]))


def test_a_device_that_reads_texts_reads_them_once_per_update(tmp_path: Path) -> None:
    """After an update its scores are those of the new encoder; titles are read again for the next update alone."""
    variant, client = "transfr lora", 7
    device = open_device(bundles.bundle(variant), tmp_path, user=bundles.user(client))
    device.learn(interactions()[client])
    before = device.scores()
    base, shared = device.bundle.manifest.bundle_id, device.state.part("shared")
    moved = {name: value + 0.05 * np.cos(np.arange(value.size)).reshape(value.shape) for name, value in shared.items()}
    moved = {name: value.astype(np.float32) for name, value in moved.items()}
    device.apply(Delta(base, bundles.ROUND - 1, bundles.ROUND, moved, signed_by=device.bundle.signed_by))
    after = device.scores()
    assert np.abs(after - before).max() > 1e-3

    local, own = program(variant), device.state.part("private")
    tensors = {name: torch.from_numpy(value) for name, value in (moved | own).items()}
    assert_same(after, literal(local, tensors, interactions()[client]))

    [kept] = tmp_path.glob("vectors-*.npy")
    device._model.graphs.clear()
    path = device.learning.vectors
    device._model.graphs[path] = None  # type: ignore[index,assignment]  # reading again would fail
    np.testing.assert_array_equal(device.scores(), after)
    whole = kept.read_bytes()
    for damaged in (whole[:50], whole[:-4] + np.float32(0.5).tobytes(), b""):
        kept.write_bytes(damaged)
        np.testing.assert_array_equal(open_device(bundles.bundle(variant), tmp_path).scores(), after)
        assert kept.read_bytes() == whole


def test_vectors_that_another_bundle_made_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    """Two bundles may have one set of tensors, and other titles or another graph that reads them."""
    shared, vectors = {"a": np.ones(3, np.float32)}, np.ones((4, 2), np.float32)
    one, other = (VectorCache(tmp_path, name * 64) for name in "ab")
    one.keep(shared, vectors)
    assert other.of(shared) is None
    np.testing.assert_array_equal(one.of(shared), vectors)
    other.keep(shared, 2 * vectors)
    assert one.of(shared) is None
