"""Weights beside a graph: what it refers to is found as onnx finds it, and nothing but the listed file is allowed."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge import Recommender
from edge.graph import Graph
from edge.graph_check import check_graph
from privacy.errors import InputError
from tests.edge.folders import edit_json, resign
from tests.export import worlds

HOSTILE = [
    "../../../etc/passwd",
    "/etc/passwd",
    "other.data",
    "./encoder.f32.onnx.data",
    "sub/encoder.f32.onnx.data",
    "*/_ORT_MEM_ADDR_/*",  # onnxruntime's own mark for a pointer into memory
    "",
]


def outside(name: str, location: str) -> TensorProto:
    """A tensor whose bytes lie in another file."""
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="length", value="16")
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_an_attribute_that_refers_to_a_file_is_refused() -> None:
    node = helper.make_node("Constant", [], ["y"], value=outside("k", "any"))
    with pytest.raises(ValueError, match="an attribute refers to a file"):
        check_graph(helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString(), "any")


def test_a_shipped_graph_refers_to_its_own_weights_alone() -> None:
    folder = worlds.exported("transfr")[0] / "laptop" / "onnx"
    content = (folder / "encoder.f32.onnx").read_bytes()
    assert check_graph(content, "encoder.f32.onnx.data").outside
    assert not check_graph((folder / "score.onnx").read_bytes()).outside
    with pytest.raises(ValueError, match=r"refers to 'encoder\.f32\.onnx\.data', but may refer to no file"):
        check_graph(content)
    with pytest.raises(InputError, match="must lie in one folder"):
        Graph(folder / "encoder.f32.onnx", folder.parent / "encoder.f32.onnx.data")


def test_weights_beside_a_graph_give_what_onnx_gives(tmp_path: Path) -> None:
    """They are handed over as arrays, each from where the graph says it begins."""
    path = worlds.exported("transfr")[0] / "laptop" / "onnx" / "encoder.f32.onnx"
    onnx.save(onnx.load(path), tmp_path / "whole.onnx")
    feeds = {"ids": np.array([[2, 5, 3]]), "mask": np.ones((1, 3), np.int64)}
    beside = Graph(path, path.with_name("encoder.f32.onnx.data")).run(feeds)
    np.testing.assert_array_equal(beside, Graph(tmp_path / "whole.onnx").run(feeds))


@pytest.mark.parametrize("location", HOSTILE)
def test_a_bundle_that_refers_elsewhere_is_refused_before_the_runtime_sees_it(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge.ort import ort

    bundle = shutil.copytree(worlds.exported("transfr")[0] / "laptop", tmp_path / "laptop")
    path = bundle / "onnx" / "encoder.f32.onnx"
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    resign(bundle)
    device = Recommender(bundle)

    def seen(*arguments: object, **others: object) -> None:
        raise AssertionError("onnxruntime was given the graph")

    monkeypatch.setattr(ort, "InferenceSession", seen)
    with pytest.raises(
        InputError, match=r"encoder\.f32\.onnx is no graph .* refers to .*, but may refer to encoder\.f32\.onnx\.data"
    ):
        device.encode("bar")


def test_a_config_that_names_other_weights_is_refused(tmp_path: Path) -> None:
    bundle = shutil.copytree(worlds.exported("transfr")[0] / "laptop", tmp_path / "laptop")
    edit_json(bundle / "config.json", lambda c: c["encoder"].update(data="index/text.f32.npy"))
    resign(bundle)
    with pytest.raises(InputError, match="must lie in one folder"):
        Recommender(bundle).encode("bar")
    edit_json(bundle / "config.json", lambda c: c["encoder"].update(data=None))
    resign(bundle)
    with pytest.raises(InputError, match="may refer to no file"):
        Recommender(bundle).encode("bar")


@pytest.mark.parametrize("cut", [0, 1000])
def test_weights_that_are_cut_short_or_gone_are_refused(cut: int, tmp_path: Path) -> None:
    bundle = shutil.copytree(worlds.exported("transfr")[0] / "laptop", tmp_path / "laptop")
    path = bundle / "onnx" / "encoder.f32.onnx.data"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"encoder\.f32\.onnx\.data has"):
        Recommender(bundle)
    resign(bundle)
    with pytest.raises(InputError, match="its weights end before its tensor"):
        Recommender(bundle).encode("bar")


def held() -> bytes:
    """A graph that holds two tensors, one of them outside."""
    inside = numpy_helper.from_array(np.arange(4, dtype=np.float32), "i")
    add = helper.make_node("Add", ["i", "o"], ["y"])
    ends = [helper.make_tensor_value_info("y", 1, [4])]
    graph = helper.make_graph([add], "g", [], ends, [inside, outside("o", "beside")])
    return bytes(helper.make_model(graph, ir_version=8).SerializeToString())


@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_are_read_as_onnx_reads_them_or_refused(data: st.DataObject) -> None:
    raw = bytearray(held())
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        found = check_graph(bytes(raw), "beside").outside
    except (IndexError, ValueError):
        return
    try:
        parsed = onnx.ModelProto.FromString(bytes(raw))
    except Exception:
        return
    named = {t.name for t in parsed.graph.initializer if t.external_data or t.data_location}
    assert named == set(found)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 12,  # a number without end
        b"\x3a\x7f",  # a field longer than the file
        b"\x3b",  # a group
        b"\x80\x80\x80\x80\x10\x00",  # a field number beyond what parsers agree on
        b"\x09\x00",  # eight bytes, one there
    ],
)
def test_odd_bytes_are_no_onnx_file(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(raw)
    with pytest.raises(InputError, match="is no graph for a device"):
        Graph(tmp_path / "m.onnx")
