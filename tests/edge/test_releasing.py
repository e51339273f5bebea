"""A round that was charged ends in a release, whatever its graphs do with the device's data; and in one alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import edge.state
from edge import local_work
from edge.device import Device
from edge.graph import Stopped
from edge.policy import OPEN, Policy
from edge.release import BEGUN, Withheld
from edge.remote import unanswered
from edge.state import LEDGER, STATE, Store
from edge.update import ClientUpdate
from privacy.errors import InputError
from tests.contract import bundles
from tests.devices import open_device
from tests.edge.folders import edit_json, resign
from tests.edge.test_device import NOISED, delta
from tests.edge.test_life import Killed

SIGMA, CENTRAL = 2.0**13, {**NOISED, "noised": "server"}
NO_NOISE = {"clip": 1.0}
HAS, OTHERS = [1, 5, 9], [1, 2, 9]
WATCHED = 5


def failing_for(item: int, folder: Path, **release: object) -> Path:
    """Return a bundle whose step graph fails in onnxruntime where a user has an item, and trains where they have not.

    It knows the item by its row of the table, and a positive by its label; then it looks up what is not there.
    """
    bundle = shutil.copytree(bundles.bundle("fedmf", **release), folder / "bundle")
    step, row = bundle / "onnx" / "step.0.onnx", np.load(next((bundle / "index").glob("*.npy")), mmap_mode="r")[item]
    made = onnx.load(step)
    held = {"row": row.astype(np.float32), "near": np.float32(1e-4), "axis": np.array([1]), "far": np.float32(1e6)}
    held["one"] = np.zeros(1, np.float32)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in held.items())
    made.graph.node.extend(
        [
            helper.make_node("Sub", ["items.item", "row"], ["off"]),
            helper.make_node("Abs", ["off"], ["size"]),
            helper.make_node("ReduceSum", ["size", "axis"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "near"], ["is it"]),
            helper.make_node("Cast", ["is it"], ["it"], to=1),
            helper.make_node("Mul", ["it", "label"], ["had"]),
            helper.make_node("ReduceSum", ["had"], ["whether"], keepdims=0),
            helper.make_node("Mul", ["whether", "far"], ["place"]),
            helper.make_node("Cast", ["place"], ["at"], to=7),
            helper.make_node("Gather", ["one", "at"], ["nothing"]),
        ]
    )
    last = next(node for node in made.graph.node if "loss" in node.output)
    last.output[list(last.output).index("loss")] = "own loss"
    made.graph.node.append(helper.make_node("Add", ["own loss", "nothing"], ["loss"]))
    step.write_bytes(made.SerializeToString())
    resign(bundle)
    return bundle


def killed_in_training(device: Device, patch: pytest.MonkeyPatch, items: list[int], **options: Any) -> None:
    """Have a device learn until its process ends within training."""
    with patch.context() as here:
        here.setattr(local_work, "train", _dying)
        with pytest.raises(Killed):
            device.learn(items, **options)


def _dying(*given: Any) -> Any:
    raise Killed


def is_noise_alone(release: ClientUpdate) -> bool:
    """Say whether an update of the device's own noise has its deviation, and the update in it is too small to see."""
    return bool(abs(np.std(release.update) / SIGMA - 1) < 0.2)


def test_a_graph_that_fails_for_who_has_an_item_is_answered_and_charged_as_any(tmp_path: Path) -> None:
    bundle, found = failing_for(WATCHED, tmp_path, **NOISED), {}
    for name, items in (("has it", HAS), ("has it not", OTHERS)):
        device = open_device(bundle, tmp_path / name)
        before = device.state.part("private")
        release = device.learn(items)
        assert is_noise_alone(release)
        status = device.status()
        assert (status["releases"], status["waiting_release"]) == (1, release.round)
        assert device.learn().to_bytes() == release.to_bytes(), "asked again, the same bytes"
        found[name] = release, device.work["failed"], status["epsilon"]
        kept = all(np.array_equal(value, before[n]) for n, value in device.state.part("private").items())
        assert kept == (name == "has it")
    (one, failed, cost), (other, none, same) = found["has it"], found["has it not"]
    assert "fails in onnxruntime" in failed
    assert none is None, "the graph trains everybody else"
    assert (len(one.to_bytes()), one.facts(), cost) == (len(other.to_bytes()), other.facts(), same)


@pytest.mark.parametrize(
    "error", [InputError("x"), Stopped("x", "time"), MemoryError(), ValueError("x"), KeyError("x")]
)
@pytest.mark.parametrize("where", ["edge.local_work.train", "edge.local_work.check_work", "edge.update.Change.of"])
def test_whatever_fails_after_the_charge_a_release_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    def fails(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(where, fails)
    device = open_device(bundles.bundle("fedmf", **NOISED), tmp_path)
    assert is_noise_alone(device.learn(HAS))
    assert (device.status()["releases"], device.work["dropped"]) == (1, True)
    assert device.work["failed"]


def test_more_interactions_than_a_round_takes_are_answered_with_noise(tmp_path: Path) -> None:
    """How many there are would be told else: a publisher says how often they are gone through."""
    bundle = shutil.copytree(bundles.bundle("fedmf", **NOISED), tmp_path / "bundle")

    def many(config: dict[str, Any]) -> None:
        config["learning"].update(negatives=59, batch_size=1)
        config["learning"]["phases"][0].update(epochs=10_000)

    edit_json(bundle / "config.json", many)
    resign(bundle)
    device = open_device(bundle, tmp_path / "state")
    assert is_noise_alone(device.learn([1, 2, 3]))
    assert "of a device's round" in device.work["failed"]


def test_where_nothing_is_promised_a_graph_that_fails_is_an_error_and_costs_nothing(tmp_path: Path) -> None:
    device = open_device(failing_for(WATCHED, tmp_path, **NO_NOISE), tmp_path / "state")
    before = (tmp_path / "state" / STATE).read_bytes()
    with pytest.raises(InputError, match="fails in onnxruntime"):
        device.learn(HAS)
    assert (tmp_path / "state" / STATE).read_bytes() == before


@pytest.mark.parametrize("terms", [NOISED, CENTRAL], ids=["here", "server"])
def test_a_release_is_on_the_disk_as_charged_before_training_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any]
) -> None:
    device, real, seen = open_device(bundles.bundle("fedmf", **terms), tmp_path), local_work.train, []

    def looking(*given: Any) -> Any:
        state = Store(tmp_path).read()
        seen.append((state.tensors["ledger.round"].tolist(), state.facts[BEGUN], state.facts["learned"]))
        return real(*given)

    monkeypatch.setattr(local_work, "train", looking)
    device.learn(HAS)
    assert seen == [([bundles.ROUND], bundles.ROUND, None)]
    assert BEGUN not in Store(tmp_path).read().facts


def test_a_round_that_was_cut_off_in_training_is_released_once_and_as_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that ends the process would else say what it has met; and nobody learns for nothing what came later."""
    path = bundles.bundle("fedmf", **NOISED)
    killed_in_training(open_device(path, tmp_path), monkeypatch, HAS)
    again = open_device(path, tmp_path)
    assert (again.status()["releases"], again.status()["waiting_release"]) == (1, None)
    assert unanswered(again) is None
    with monkeypatch.context() as here:
        here.setattr(local_work, "train", lambda *given: pytest.fail("it was trained again"))
        release = again.learn([30, 31])
        assert is_noise_alone(release)
        assert open_device(path, tmp_path).learn([32]).to_bytes() == release.to_bytes()
    assert (again.status()["releases"], again.work["failed"]) == (1, "its training was cut off before it ended")
    again.apply(delta(again, bundles.ROUND))
    assert again.learn().round == bundles.ROUND + 1
    assert (again.work["failed"], again.status()["releases"]) == (None, 2)


def test_a_round_that_was_cut_off_is_not_made_anew_after_going_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(bundles.bundle("fedmf", **NOISED), tmp_path)
    killed_in_training(device, monkeypatch, HAS)
    device.apply(delta(device, bundles.ROUND))
    assert BEGUN not in device.state.facts
    device.undo()
    for _ in range(2):
        with pytest.raises(InputError, match=f"round {bundles.ROUND} was released before an update was undone"):
            device.learn()
        device.undo()
    assert device.status()["releases"] == 1
    device.apply(delta(device, bundles.ROUND))
    killed_in_training(device, monkeypatch, [])
    device.undo()
    assert device.status()["releases"] == 2
    with pytest.raises(InputError, match="no round is released twice"):
        device.learn()


def test_what_was_cut_off_keeps_its_masks_and_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundles.bundle("fedmf", **CENTRAL)
    device = open_device(path, tmp_path)
    killed_in_training(device, monkeypatch, HAS, masked=True)
    with pytest.raises(Withheld, match=f"round {bundles.ROUND} was made for a secure sum, and leaves under masks"):
        device.learn()
    strict = open_device(path, tmp_path, policy=Policy(signed=False))
    with pytest.raises(Withheld, match="nothing leaves this device: policy "):
        strict.learn(masked=True)
    assert not device.learn(masked=True).update.any()
    assert unanswered(device) is None, "it was made for a sum"


def test_a_graph_that_cannot_be_loaded_is_an_error_before_anything_is_charged(tmp_path: Path) -> None:
    """Whether it can depends on nobody's data, nor on whether there are any."""
    bundle = shutil.copytree(bundles.bundle("fedmf", **NOISED), tmp_path / "bundle")
    (bundle / "onnx" / "step.0.onnx").write_bytes(b"no graph")
    resign(bundle)
    for items in ([], HAS):
        device = open_device(bundle, tmp_path / f"state {len(items)}")
        with pytest.raises(InputError, match=r"step\.0\.onnx"):
            device.learn(items)
        assert device.status()["releases"] == 0


def scores_that_fail(*given: Any) -> Any:
    raise InputError("fails in onnxruntime")


@pytest.mark.parametrize(("terms", "refused"), [(NOISED, False), (NO_NOISE, True)], ids=["promised", "not promised"])
def test_a_block_ends_whatever_its_graph_does_where_anything_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any], refused: bool
) -> None:
    device = open_device(bundles.bundle("fedmf", replay=True, **terms), tmp_path)
    device.note(HAS)
    device.next_block()
    kept = device.state.tensors["memory.items"]
    device.note(OTHERS)
    monkeypatch.setattr(local_work.LocalWork, "scores", scores_that_fail)
    end: Callable[[], None] = device.next_block
    if refused:
        with pytest.raises(InputError, match="fails in onnxruntime"):
            end()
        assert device.status()["block"] == 1
        return
    end()
    assert device.status()["block"] == 2
    np.testing.assert_array_equal(device.state.tensors["memory.items"], kept)


def test_a_state_that_was_put_back_has_released_what_its_ledger_says(tmp_path: Path) -> None:
    """An older state beside a newer ledger made other bytes for a released round, and a shorter ledger of it."""
    device = open_device(bundles.bundle("fedmf", **NOISED), tmp_path)
    device.practise(HAS)
    older = (tmp_path / STATE).read_bytes()
    device.learn(HAS)
    ledger = (tmp_path / LEDGER).read_bytes()
    (tmp_path / STATE).write_bytes(older)
    again = open_device(bundles.bundle("fedmf", **NOISED), tmp_path)
    assert again.status()["releases"] == 1
    with pytest.raises(InputError, match="or an older state was put back, and no round is released twice"):
        again.learn(HAS)
    assert (tmp_path / LEDGER).read_bytes() == ledger


def test_a_ledger_is_on_the_disk_before_its_release_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was cut off between the two files leaves a state whose release is sent again, not made again."""
    device = open_device(bundles.bundle("fedmf", clip=1.0), tmp_path, policy=OPEN)
    real = edge.state.write_atomic

    def cut_off(path: Path, content: bytes, **how: Any) -> None:
        if path.name == LEDGER:
            raise KeyboardInterrupt
        real(path, content, **how)

    with monkeypatch.context() as here:
        here.setattr(edge.state, "write_atomic", cut_off)
        with pytest.raises(KeyboardInterrupt):
            device.learn(HAS)
    assert not (tmp_path / LEDGER).exists()
    again = open_device(bundles.bundle("fedmf", clip=1.0), tmp_path, policy=OPEN)
    assert unanswered(again) is not None
    assert Store(tmp_path).read(LEDGER).tensors["ledger.round"].tolist() == [bundles.ROUND]
