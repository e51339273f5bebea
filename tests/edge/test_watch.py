"""A graph that runs is heard to: it ends when time or memory are up, within a step too, and every fault is one line."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edge import graph as graphs
from edge import graph as watch
from edge.graph import WATCH, Graph, Stopped, Watch
from edge.policy import OPEN
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import interactions
from tests.devices import open_device
from tests.edge.folders import resign

CLIENT = 7


def model(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list], held: list[onnx.TensorProto]) -> Path:
    """A graph of float inputs whose one output, y, is of any shape."""
    ends = [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()]
    out = [helper.make_tensor_value_info("y", 1, None)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ends, out, held), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    path.write_bytes(made.SerializeToString())
    return path


def slow(path: Path, nodes: int = 15_000) -> Path:
    """A graph that multiplies matrices for a long time."""
    chain = [helper.make_node("MatMul", [f"a{n}" if n else "x", "x"], [f"a{n + 1}"]) for n in range(nodes)]
    return model(path, [*chain, helper.make_node("Identity", [f"a{nodes}"], ["y"])], {"x": ["n", "n"]}, [])


def swollen(path: Path, times: int) -> Path:
    """A graph whose every third node has the square of its input's values."""
    nodes, last = [], "x"
    for n in range(times):
        nodes += [helper.make_node("Reshape", [last, side], [f"{side}{n}"]) for side in ("row", "column")]
        nodes.append(helper.make_node("Add", [f"row{n}", f"column{n}"], [f"a{n}"]))
        last = f"a{n}"
    nodes.append(helper.make_node("ReduceSum", [last], ["y"], keepdims=0))
    held = [helper.make_tensor("row", 7, [2], [1, -1]), helper.make_tensor("column", 7, [2], [-1, 1])]
    return model(path, nodes, {"x": ["n"]}, held)


def test_a_graph_without_end_is_ended_when_asked(tmp_path: Path) -> None:
    graph = Graph(slow(tmp_path / "m.onnx"))
    began = time.monotonic()
    with pytest.raises(Stopped, match="was ended: time above its limit") as ended:
        graph.run_all(
            {"x": np.ones((300, 300), np.float32)}, lambda: "time" if time.monotonic() > began + 0.2 else None
        )
    assert ended.value.reason == "time"
    assert time.monotonic() - began < 2


def test_training_hears_its_limit_within_a_step(tmp_path: Path) -> None:
    """A step that is ended leaves nothing behind: the device releases what was there before it."""
    bundle = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    step = bundle / "onnx" / "step.0.onnx"
    made = onnx.load(step)
    made.graph.initializer.append(numpy_helper.from_array(np.eye(400, dtype=np.float32), "held"))
    made.graph.node.append(helper.make_node("ReduceSum", ["label"], ["sum"], keepdims=0))
    made.graph.node.append(helper.make_node("Mul", ["held", "sum"], ["w0"]))
    made.graph.node.extend(helper.make_node("MatMul", [f"w{n}", "held"], [f"w{n + 1}"]) for n in range(3000))
    made.graph.node.append(helper.make_node("ReduceSum", ["w3000"], ["total"], keepdims=0))
    last = next(node for node in made.graph.node if "loss" in node.output)
    last.output[list(last.output).index("loss")] = "own loss"
    made.graph.node.append(helper.make_node("Add", ["own loss", "total"], ["loss"]))
    step.write_bytes(made.SerializeToString())
    resign(bundle)
    device = open_device(bundle, tmp_path / "state", user=bundles.user(CLIENT), max_seconds=0.3, policy=OPEN)
    began = time.monotonic()
    release = device.learn(interactions()[CLIENT])
    assert time.monotonic() - began < 5
    assert (device.work["stopped"], device.work["steps"]) == ("time", 0)
    assert all(not values.any() for _, values in release.rows.values())


def test_no_graph_takes_all_memory(tmp_path: Path) -> None:
    assert graphs.bounded()
    ten = np.ones(10, np.float32)
    assert Graph(swollen(tmp_path / "two.onnx", 2)).run({"x": ten}) == 40_000
    with pytest.raises(InputError, match="fails in onnxruntime; do not use this bundle"):
        Graph(swollen(tmp_path / "four.onnx", 4)).run({"x": ten})


def test_an_error_text_of_the_runtime_is_shown_to_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may hold a value that the graph worked out of private data: here the index 99."""
    wrong = helper.make_node("Gather", ["x", "at"], ["y"])
    graph = Graph(model(tmp_path / "m.onnx", [wrong], {"x": ["n"]}, [helper.make_tensor("at", 7, [1], [99])]))
    with pytest.raises(InputError, match="fails in onnxruntime") as error:
        graph.run({"x": np.ones(3, np.float32)})
    assert str(error.value) == f"{tmp_path / 'm.onnx'} fails in onnxruntime; do not use this bundle"
    assert error.value.__suppress_context__, "a traceback would show it"
    assert capfd.readouterr().err == "", "onnxruntime prints nothing of its own"


def test_the_watch_sleeps_while_nothing_runs_and_wakes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0.002)
    guard = Watch()

    class Options:
        terminate = False

    for _ in range(3):
        run = guard.begin(Options, lambda: "memory")
        deadline = time.monotonic() + 5
        while run.reason is None and time.monotonic() < deadline:
            time.sleep(0.001)
        guard.end(run)
        assert (run.reason, run.options.terminate) == ("memory", True)
        while guard._awake.is_set() and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not guard._awake.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_child_process_has_a_watch_of_its_own(tmp_path: Path) -> None:
    WATCH.end(WATCH.begin(type("Options", (), {"terminate": False})))
    assert WATCH._thread is not None
    child = os.fork()
    if child == 0:
        os._exit(0 if WATCH._thread is None and threading.active_count() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_graph_without_end_is_ended_where_nobody_set_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LONGEST_S", 0.2)
    monkeypatch.setattr(graphs, "LONGEST_S", 0.2)
    with pytest.raises(Stopped, match=r"was ended: time above 0\.2 s"):
        Graph(slow(tmp_path / "m.onnx")).run({"x": np.ones((300, 300), np.float32)})
