"""Smaller weights against literal arithmetic, and the files they lie in."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from edge.ort import ort
from export.trace import IR, OPSET, open_session
from export.weights import WEIGHTS, beside, nibbles, stored_as
from privacy import keyed
from tests.closeness import assert_same

matrices = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 70), st.integers(1, 5)),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)


def weights(name: str, *shape: int) -> np.ndarray:
    return keyed.normal(keyed.key(0, name), np.arange(int(np.prod(shape)))).reshape(shape).astype(np.float32)


def model() -> onnx.ModelProto:
    """vectors = (table[ids] @ a + b) @ c for a table of 300 x 70; c is too small to be worth it."""
    held = {
        "table": weights("table", 300, 70),
        "a": weights("a", 70, 40),
        "b": weights("b", 40),
        "c": weights("c", 40, 8),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0),
        helper.make_node("MatMul", ["rows", "a"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("MatMul", ["sum", "c"], ["vectors"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)


IDS = np.array([0, 299, 7, 7], np.int64)


def exact() -> np.ndarray:
    return (weights("table", 300, 70)[IDS] @ weights("a", 70, 40) + weights("b", 40)) @ weights("c", 40, 8)


def unpacked(packed: np.ndarray, scale: np.ndarray, rows: int) -> np.ndarray:
    """What MatMulNBits multiplies by, value by value."""
    columns, blocks, _ = packed.shape
    out = np.zeros((rows, columns))
    for column in range(columns):
        for row in range(rows):
            block, place = divmod(row, 32)
            byte = int(packed[column, block, place // 2])
            nibble = byte >> 4 if place % 2 else byte & 15
            out[row, column] = (nibble - 8) * float(scale[column * blocks + block])
    return out


@given(matrices)
def test_four_bits_are_within_a_step_of_every_value(matrix: np.ndarray) -> None:
    packed, scale = nibbles(matrix)
    back = unpacked(packed, scale, len(matrix))
    for column in range(matrix.shape[1]):
        for start in range(0, len(matrix), 32):
            block = matrix[start : start + 32, column].astype(float)
            step = np.abs(block).max() / 8
            # the best scale is at least as good as the one that loses no extreme but an 8 on the other side
            assert ((back[start : start + 32, column] - block) ** 2).sum() <= len(block) * step**2 * (1 + 1e-4) + 1e-12


def test_four_bits_of_multiples_of_the_scale_are_exact() -> None:
    matrix = np.array([[-8.0], [7.0], [0.0], [3.0], [-1.0]], np.float32)
    packed, scale = nibbles(matrix)
    assert packed[0, 0, :3].tolist() == [0xF0, 0xB8, 0x87]
    np.testing.assert_array_equal(unpacked(packed, scale, 5), matrix)


@pytest.mark.parametrize(("form", "error"), [("f32", 1e-5), ("f16", 2e-3), ("i8", 0.03), ("i4", 0.2)])
def test_every_form_computes_the_same_within_its_precision(form: str, error: float, tmp_path: Path) -> None:
    made = stored_as(form, model(), tmp_path)
    assert made.ir_version == IR
    assert made.opset_import[0].version == OPSET
    got, expected = open_session(made).run(None, {"ids": IDS})[0], exact()
    assert np.abs(got - expected).max() <= error * np.abs(expected).max()
    if form != "f32":
        assert np.abs(got - expected).max() > 1e-6
    types = {t.name: t.data_type for t in made.graph.initializer}
    assert types["b"] == TensorProto.FLOAT
    assert ("c" in types) == (form != "i8")  # onnxruntime's own pass takes small ones too
    assert ("table" in types) == (form == "f32")
    assert list(tmp_path.iterdir()) == []


def test_only_the_product_in_four_bits_needs_more_than_standard_operators(tmp_path: Path) -> None:
    for form in WEIGHTS:
        made = stored_as(form, model(), tmp_path)
        custom = {(node.domain, node.op_type) for node in made.graph.node if node.domain}
        assert custom == ({("com.microsoft", "MatMulNBits")} if form == "i4" else set())


@pytest.mark.parametrize("form", WEIGHTS)
def test_large_tensors_lie_beside_the_graph_each_on_its_page(form: str, tmp_path: Path) -> None:
    made = stored_as(form, model(), tmp_path)
    before = made.SerializeToString(deterministic=True)
    small, large = beside(made, "w.data")
    assert made.SerializeToString(deterministic=True) == before
    assert beside(made, "w.data") == (small, large)
    (tmp_path / "m.onnx").write_bytes(small)
    (tmp_path / "w.data").write_bytes(large)
    read = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    outside = {t.name: {e.key: e.value for e in t.external_data} for t in read.graph.initializer if t.external_data}
    assert outside
    for place in outside.values():
        assert place["location"] == "w.data"
        assert int(place["offset"]) % 4096 == 0
        assert int(place["length"]) >= 16384
    for tensor in onnx.load(tmp_path / "m.onnx").graph.initializer:
        original = next(t for t in made.graph.initializer if t.name == tensor.name)
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(original))
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    expected = open_session(made).run(None, {"ids": IDS})[0]
    assert_same(session.run(None, {"ids": IDS})[0], expected)


def test_a_table_that_two_nodes_read_stays_for_the_other(tmp_path: Path) -> None:
    twice = model()
    twice.graph.node.add().CopyFrom(helper.make_node("ReduceSum", ["table"], ["total"], keepdims=0))
    twice.graph.output.add().CopyFrom(helper.make_tensor_value_info("total", TensorProto.FLOAT, []))
    made = stored_as("f16", twice, tmp_path)
    assert {"table", "table.f16"} <= {t.name for t in made.graph.initializer}
    got = open_session(made).run(["total"], {"ids": IDS})[0]
    assert got == pytest.approx(weights("table", 300, 70).sum(), rel=1e-4)
