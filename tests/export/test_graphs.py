"""The gate: graphs that do not do what torch does are refused."""

import numpy as np
import pytest
import torch

from edge.ort import ort
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from edgefr.methods.regularised import Anchored
from export.graphs import score_graph
from export.trace import IR, OPSET
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.export import worlds


def toy(score) -> FedMF:
    """A program of one shared table and one private vector with this score function."""
    made = FedMF(FedMFSettings(dim=4), items=9, local_epochs=1)
    made.name, made.score = "toy", score
    return made


def run(model, **inputs: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name.replace("_", "."): value for name, value in inputs.items()})[0]


def test_a_graph_takes_every_tensor_by_name_and_any_number_of_items() -> None:
    model = score_graph(worlds.program("mean"))
    names = [i.name for i in model.graph.input]
    assert names[:3] == ["items.text", "history.text", "label.history"]
    assert {n for n in names[3:]} == {
        *(f"shared.adapter.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")),
        *(f"private.head.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")),
    }
    assert not model.graph.initializer
    assert (model.opset_import[0].version, model.ir_version) == (OPSET, IR)
    assert len(model.SerializeToString()) < 10_000


@pytest.mark.parametrize(("kind", "own"), [("fedncf", ["user"]), ("pfedrec", [])])
def test_a_clients_scorer_is_an_input_and_its_constant_joins_every_score(kind: str, own: list[str]) -> None:
    program, shared, private = worlds.trained(kind)
    model = score_graph(program)
    inputs = [f"private.{name}" for name in (*own, "scorer.weight", "scorer.bias")]
    assert sorted(i.name for i in model.graph.input) == sorted(["items.item", *inputs])
    mine = {name: value[4] for name, value in private.items()}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"items.item": shared["item"].numpy()} | {f"private.{n}": value.numpy() for n, value in mine.items()}
    expected = worlds.literal(program, shared | mine, np.arange(3))
    assert_same(session.run(None, given)[0], expected)
    more = given | {"private.scorer.bias": given["private.scorer.bias"] + 1}
    assert_same(session.run(None, more)[0], expected + 1)


def test_the_past_of_an_anchored_program_is_no_input() -> None:
    model = score_graph(Anchored(worlds.program("pfedrec"), 0.1))
    assert sorted(i.name for i in model.graph.input) == ["items.item", "private.scorer.bias", "private.scorer.weight"]


def test_small_constants_survive_the_export() -> None:
    model = score_graph(toy(lambda t, b, v, u: (v * u).sum(-1) / (v.norm(dim=-1) + 1e-8)))
    zeros = np.zeros((1, 4), np.float32)
    assert run(model, items_item=zeros, private_user=np.ones(4, np.float32)).tolist() == [0.0]


def test_a_graph_that_fixes_a_size_is_refused() -> None:
    weights = torch.arange(5.0)
    program = toy(lambda t, b, v, u: (v * u).sum(-1) + (weights[: v.shape[0]] if v.shape[0] == 5 else 0))
    with pytest.raises(InputError, match=r"score graph of toy cannot be traced: .*"):
        score_graph(program)


def test_a_graph_that_differs_from_torch_is_refused() -> None:
    # onnxruntime's float32 sums differ from what this asks for: ten million times the score
    program = toy(lambda t, b, v, u: torch.sin((v * u).sum(-1) * 1e7 / 3))
    with pytest.raises(InputError, match=r"score graph of toy differs from torch by .* it cannot be shipped"):
        score_graph(program)


def test_a_table_nobody_declared_is_named() -> None:
    program = toy(lambda t, b, v, u: (b.frozen(torch.zeros(9, 4)) * u).sum(-1))
    with pytest.raises(InputError, match="neither in specs"):
        score_graph(program)
