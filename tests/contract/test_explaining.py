"""What a recommendation leans on is the same in torch, on a device, and from a bundle: shares of what its user had."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from edge.explain import Explanation, checked
from edge.recommender import Recommender
from edge.sessions import Windows
from export.batches import One, Window
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import VARIANTS, interactions, program
from tests.devices import open_device
from tests.edge.folders import edit_json, resign
from tests.mostly_slow import mostly_slow

EXPLAINED = [name for name in VARIANTS if name.startswith("fedcar") and program(name).explains]
ASKED = [3, 41, 17, 3]
shapes = pytest.mark.parametrize("variant", mostly_slow(EXPLAINED))


def simulated(variant: str, client: int, had: np.ndarray) -> torch.Tensor:
    """Weights [items asked, L] by the program itself, of a client with its first tensors that had these items."""
    local = program(variant)
    length = local.window
    assert length is not None
    own = local.init_private(bundles.SEED, torch.tensor([client]))
    tensors = local.init_shared(bundles.SEED) | {name: value[0] for name, value in own.items()}
    seen = torch.zeros(length, dtype=torch.int64)
    last = torch.from_numpy(had[-length:].astype(np.int64))
    seen[length - len(last) :] = last
    real = (torch.arange(length) >= length - len(last)).float()
    asked = torch.tensor(ASKED)
    batch = One(asked, asked, asked, asked, history=Window(seen, seen, real, real))
    history = tensors["item"][seen]
    return local.explain(tensors, batch, history, local.vectors(tensors, batch))


def of(found: list[Explanation]) -> np.ndarray:
    return np.array([[lean.weight for lean in one.leans] for one in found])


def same(found: list[Explanation], variant: str, client: int, had: np.ndarray) -> None:
    """The items asked about, with the newest that the client had, and the simulator's weights of them."""
    length = program(variant).window
    assert length is not None
    last = had[-length:]
    assert [one.item for one in found] == [f"i{item}" for item in ASKED]
    assert [one.title for one in found] == [f"item {item}" for item in ASKED]
    for one in found:
        assert [lean.item for lean in one.leans] == [f"i{item}" for item in last]
    weights = simulated(variant, client, had)
    np.testing.assert_allclose(of(found), weights[:, length - len(last) :].numpy(), atol=1e-5)
    np.testing.assert_allclose(of(found).sum(1), 1, atol=1e-5)
    assert not weights[:, : length - len(last)].any()


@shapes
def test_a_device_explains_as_the_simulator_does(variant: str, tmp_path: Path) -> None:
    """Of a full window, of one that is not full, and of a user that the bundle carries."""
    for client, had in ((7, interactions()[7]), (20, np.array([9, 4])), (0, np.array([5]))):
        one = open_device(bundles.bundle(variant), tmp_path / str(client), user=bundles.user(client))
        one.note(had)
        same(one.explain(ASKED), variant, client, had)
    assert np.ptp(of(open_device(bundles.bundle(variant), tmp_path / "7").explain(ASKED)), axis=0).max() > 1e-4


@shapes
def test_a_bundle_explains_as_the_simulator_does(variant: str) -> None:
    found = Recommender(bundles.bundle(variant))
    same(found.explain(ASKED, user=bundles.user(7)), variant, 7, interactions()[7])
    best = [item for item, *_ in found.recommend(3, user=bundles.user(7))]
    assert [one.item for one in found.explain(user=bundles.user(7))] == best
    history = [f"i{item}" for item in (8, 2, 30)]
    same(found.explain(ASKED, user=bundles.user(7), history=history), variant, 7, np.array([8, 2, 30]))


def test_weights_follow_what_a_device_learns(tmp_path: Path) -> None:
    one = open_device(bundles.bundle("fedcar"), tmp_path, user=bundles.user(7))
    one.note(interactions()[7])
    before = of(one.explain(ASKED))
    one.note([55])
    after = one.explain(ASKED)
    assert [lean.item for lean in after[0].leans][-1] == "i55"
    assert np.abs(of(after) - before).max() > 1e-4


def test_who_cannot_be_explained_to_is_told_why(tmp_path: Path) -> None:
    plain = open_device(bundles.bundle("fedmf"), tmp_path / "plain", user=bundles.user(7))
    with pytest.raises(InputError, match=r"fedmf does not say what a recommendation leans on; a method .*: fedcar"):
        plain.explain([1])
    with pytest.raises(InputError, match="fedcar does not say what a recommendation leans on"):
        Recommender(bundles.bundle("fedcar, neither")).explain([1], user=bundles.user(7))
    with pytest.raises(InputError, match="its user has had no items yet"):
        open_device(bundles.bundle("fedcar"), tmp_path / "new").explain([1])
    with pytest.raises(InputError, match="unknown item 'nothing'"):
        open_device(bundles.bundle("fedcar"), tmp_path / "new").explain(["nothing"])


REAL = Windows(np.array([[0, 3, 4]]), np.array([[0.0, 1.0, 1.0]], np.float32), np.zeros((1, 3), np.float32))


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        ([[0.0, 0.4, 0.5]], "do not sum to 1"),
        ([[0.5, 0.2, 0.3]], "no shares of what the user had"),
        ([[0.0, -1.0, 2.0]], "no shares of what the user had"),
        ([[0.0, np.nan, 1.0]], "no shares of what the user had"),
        ([[0.4, 0.6]], r"float32 \[1, 2\] weights for 1 items"),
    ],
)
def test_weights_that_are_none_are_refused(weights: list[list[float]], match: str) -> None:
    with pytest.raises(InputError, match=match):
        checked(np.array(weights, np.float32), 1, REAL, "the graph")
    checked(np.array([[0.0, 0.25, 0.75]], np.float32), 1, REAL, "the graph")


def reversed_graph(path: Path) -> None:
    """Let the graph give minus its weights."""
    model = onnx.load(path)
    model.graph.node.append(onnx.helper.make_node("Neg", ["weights"], ["turned"]))
    model.graph.output[0].name = "turned"
    path.write_bytes(model.SerializeToString())


def with_score(path: Path) -> None:
    path.write_bytes((path.parent / "score.onnx").read_bytes())


@pytest.mark.parametrize(("spoil", "match"), [(reversed_graph, "no shares"), (with_score, "weights for 4 items")])
def test_graphs_that_explain_nothing_are_refused(spoil: Callable[[Path], None], match: str, tmp_path: Path) -> None:
    made = shutil.copytree(bundles.bundle("fedcar"), tmp_path / "bundle")
    spoil(made / "onnx" / "explain.onnx")
    resign(made)
    with pytest.raises(InputError, match=match):
        Recommender(made).explain(ASKED, user=bundles.user(7))
    edit_json(made / "config.json", lambda config: config.update(explain="onnx/none.onnx"))
    resign(made)
    with pytest.raises(InputError, match=r"none\.onnx"):
        Recommender(made).explain(ASKED, user=bundles.user(7))
