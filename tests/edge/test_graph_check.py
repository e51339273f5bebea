"""Graphs that no device runs: whatever our exporter does not write is refused before onnxruntime sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cloud.pooling import POOLINGS
from edge.graph import Graph
from edge.graph_check import check_graph
from export.encoders import Reading, stage_encoders
from export.staged_files import Staging
from privacy.errors import InputError
from tests.edge.test_watch import model, swollen
from tests.export import worlds

X = {"x": ["n"]}


@pytest.fixture
def graph(tmp_path: Path) -> Callable[..., Path]:
    """Write a graph of these nodes, after a change of the whole."""

    def write(*nodes: onnx.NodeProto, change: Callable[[onnx.ModelProto], object] = lambda made: None, held=()) -> Path:
        path = model(tmp_path / "m.onnx", list(nodes), X, list(held))
        made = onnx.load(path)
        change(made)
        path.write_bytes(made.SerializeToString())
        return path

    return write


def refused(path: Path, match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge.ort import ort

    def seen(*arguments: object, **others: object) -> None:
        raise AssertionError("onnxruntime was given the graph")

    monkeypatch.setattr(ort, "InferenceSession", seen)
    with pytest.raises(InputError, match=match) as error:
        Graph(path)
    assert str(error.value).isprintable()


COPY = helper.make_node("Identity", ["x"], ["y"])
INNER = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "inner", [], [])


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Loop", ["m", "c"], ["y"], body=INNER),
        helper.make_node("If", ["x"], ["y"], then_branch=INNER, else_branch=INNER),
        helper.make_node("Scan", ["x"], ["y"], body=INNER, num_scan_inputs=1),
        helper.make_node("Tile", ["x", "x"], ["y"]),
        helper.make_node("RandomNormal", [], ["y"], shape=[9]),
        helper.make_node("Resize", ["x"], ["y"]),
        helper.make_node("OneHot", ["x", "x", "x"], ["y"]),
        helper.make_node("NonZero", ["x"], ["y"]),
        helper.make_node("SplitToSequence", ["x"], ["y"]),
        helper.make_node("SequenceAt", ["x", "x"], ["y"]),
        helper.make_node("Identity", ["x"], ["y"], domain="com.microsoft"),
        helper.make_node("Identity", ["x"], ["y"], domain="ai.onnx.contrib"),
        helper.make_node("Identity", ["x"], ["y"], domain="my.own"),
        helper.make_node("Identity", ["x"], ["y"], body=INNER),
        helper.make_node("Constant", [], ["y"], value_string="x"),
        helper.make_node("Constant", [], ["y"], sparse_value=onnx.SparseTensorProto()),
    ],
)
def test_operators_and_attributes_that_nobody_exports(
    node: onnx.NodeProto, graph: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(graph(node), "which no graph of a device has", monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.functions.add(name="f", domain="d"),
        lambda m: m.training_info.add(),
        lambda m: m.graph.sparse_initializer.add(),
        lambda m: m.opset_import.add(domain="my.own", version=1),
        lambda m: m.graph.node[0].attribute.append(helper.make_attribute("to", 1)),
        lambda m: m.graph.node.extend([COPY] * 30_000),
        lambda m: m.graph.initializer.append(TensorProto(name="w", dims=[2**40, 2**40], data_type=1)),
        lambda m: m.graph.initializer.append(TensorProto(name="w", dims=[1] * 50, data_type=1)),
        lambda m: m.ClearField("graph"),
    ],
)
def test_models_that_nobody_exports(
    change: Callable[[onnx.ModelProto], object], graph: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(graph(COPY, change=change), "is no graph for a device", monkeypatch)


def test_a_graph_that_is_given_twice_is_refused(graph: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = graph(COPY)
    path.write_bytes(path.read_bytes() * 2)
    refused(path, "it has not one graph", monkeypatch)


@pytest.mark.parametrize("times", [4])
def test_what_a_graph_would_compute_while_it_loads_is_left_to_its_runs(tmp_path: Path, times: int) -> None:
    """Neither time nor memory is heard while onnxruntime loads a graph: 1.7 GB in 4 s before this was asked."""
    path = swollen(tmp_path / "m.onnx", times)
    made = onnx.load(path)
    made.graph.initializer.append(numpy_helper.from_array(np.ones(11, np.float32), "held"))
    for node in made.graph.node[:2]:
        node.input[0] = "held"
    made.graph.node.append(helper.make_node("Add", ["y", "x"], ["z"]))
    made.graph.output[0].name = "z"
    path.write_bytes(made.SerializeToString())
    assert not check_graph(path.read_bytes()).small
    began = time.monotonic()
    graph = Graph(path)
    assert time.monotonic() - began < 1
    with pytest.raises(InputError, match="fails in onnxruntime"):
        graph.run({"x": np.ones(1, np.float32)})


@pytest.mark.parametrize("kind", ["ConstantOfShape", "Expand", "Range"])
def test_sizes_that_numbers_in_the_graph_say_are_followed(kind: str, graph: Callable[..., Path]) -> None:
    """Through what moves and joins them; numbers that are not known are taken for large."""
    end = 0 if kind == "Range" else [1 << 20, 1 << 20]
    held = [numpy_helper.from_array(np.array(end if end else 1 << 40), "much")]
    held += [numpy_helper.from_array(np.array(n), name) for name, n in (("none", 0), ("one", 1))]
    given = {"ConstantOfShape": ["same"], "Expand": ["one", "same"], "Range": ["none", "same", "one"]}[kind]
    nodes = [helper.make_node("Identity", ["much"], ["same"]), helper.make_node(kind, given, ["big"]), COPY]
    assert not check_graph(graph(*nodes, held=held).read_bytes()).small
    small = [numpy_helper.from_array(np.array((end and [2, 3]) or 6), "much"), *held[1:]]
    assert check_graph(graph(*nodes, held=small).read_bytes()).small


@pytest.mark.parametrize("pooling", sorted(POOLINGS))
def test_every_encoder_that_is_exported_is_on_the_list(pooling: str, tmp_path: Path) -> None:
    stage_encoders(Staging(tmp_path), {"": worlds.student()}, Reading(POOLINGS[pooling], 16, None, worlds.titles()))
    paths = list(tmp_path.rglob("*.onnx"))
    assert {path.name for path in paths} >= {f"encoder.{form}.onnx" for form in ("f32", "f16", "i8", "i4")}
    for path in paths:
        check_graph(path.read_bytes(), f"{path.name}.data")
