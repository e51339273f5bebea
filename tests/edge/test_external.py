"""Weights beside a graph: what it refers to is found as onnx finds it, and nothing but the listed file is allowed."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge import Recommender
from edge.external import check_external, locations
from edge.graph import Graph
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


def nested() -> onnx.ModelProto:
    """A model that refers to a different file from every place a tensor may be in."""
    inner = helper.make_graph([], "inner", [], [], [outside("i", "subgraph")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner)
    node.attribute.append(helper.make_attribute("branches", [inner, helper.make_graph([], "g2", [], [], [])]))
    node.attribute[-1].graphs[1].initializer.append(outside("j", "second subgraph"))
    node.attribute.append(helper.make_attribute("value", outside("k", "attribute")))
    node.attribute.append(helper.make_attribute("values", [outside("l", "attributes"), outside("m", "more")]))
    graph = helper.make_graph([node], "g", [], [], [outside("n", "initializer"), outside("o", "twice")])
    sparse = graph.sparse_initializer.add()
    sparse.values.CopyFrom(outside("p", "sparse values"))
    sparse.indices.CopyFrom(outside("q", "sparse indices"))
    model = helper.make_model(graph)
    function = model.functions.add(name="f", domain="d")
    function.node.add().CopyFrom(helper.make_node("Constant", [], ["z"], value=outside("r", "function")))
    training = model.training_info.add()
    training.algorithm.initializer.append(outside("s", "training"))
    return model


def test_every_place_of_a_tensor_is_found(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(nested().SerializeToString())
    assert locations(tmp_path / "m.onnx") == {
        "subgraph",
        "second subgraph",
        "attribute",
        "attributes",
        "more",
        "initializer",
        "twice",
        "sparse values",
        "sparse indices",
        "function",
        "training",
    }


def test_a_shipped_graph_refers_to_its_own_weights_alone() -> None:
    folder = worlds.exported("transfr")[0] / "laptop" / "onnx"
    assert locations(folder / "encoder.f32.onnx") == {"encoder.f32.onnx.data"}
    assert locations(folder / "score.onnx") == set()
    check_external(folder / "encoder.f32.onnx", folder / "encoder.f32.onnx.data")
    with pytest.raises(InputError, match=r"refers to 'encoder\.f32\.onnx\.data', but may refer to no file"):
        check_external(folder / "encoder.f32.onnx", None)
    with pytest.raises(InputError, match="must lie in one folder"):
        check_external(folder / "encoder.f32.onnx", folder.parent / "encoder.f32.onnx.data")


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
    with pytest.raises(InputError, match=r"encoder\.f32\.onnx refers to .*, but may refer to encoder\.f32\.onnx\.data"):
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
    with pytest.raises(InputError, match="does not load in onnxruntime"):
        Recommender(bundle).encode("bar")


@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(nested().SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    path = tmp_path_factory.mktemp("fuzz") / "m.onnx"
    path.write_bytes(raw)
    try:
        found = locations(path)
    except InputError:
        with pytest.raises(InputError, match="is not an ONNX file"):
            Graph(path)
        return
    try:
        parsed = onnx.ModelProto.FromString(bytes(raw))
    except Exception:
        return
    named = {e.value for t in tensors(parsed.graph) for e in t.external_data if e.key == "location"}
    assert {as_text(name) for name in named} <= found


def as_text(name: str | bytes) -> str:
    """A name as `locations` gives it; onnx gives the bytes of one that is not UTF-8."""
    return name if isinstance(name, str) else name.decode(errors="replace")


def test_a_name_that_is_not_text_is_found(tmp_path: Path) -> None:
    raw = nested().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(raw.replace(b"attributes", b"\x80ttributes"))
    assert "\N{REPLACEMENT CHARACTER}ttributes" in locations(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="but may refer to no file"):
        check_external(tmp_path / "m.onnx", None)


def tensors(graph: onnx.GraphProto) -> list[TensorProto]:
    """All tensors of a graph, as onnx lists them."""
    own = [*graph.initializer, *(t for node in graph.node for a in node.attribute for t in (a.t, *a.tensors))]
    below = [g for node in graph.node for a in node.attribute for g in (a.g, *a.graphs)]
    sparse = [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
    return [*own, *sparse, *(t for g in below for t in tensors(g))]


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
    with pytest.raises(InputError, match="is not an ONNX file"):
        locations(tmp_path / "m.onnx")


def test_graphs_within_graphs_end_somewhere(tmp_path: Path) -> None:
    raw = b""
    for _ in range(200):  # attribute 6: graph, graph 1: node, node 5: attribute
        for field in (6, 5, 1):
            raw = bytes([field << 3 | 2]) + varint(len(raw)) + raw
    (tmp_path / "m.onnx").write_bytes(b"\x3a" + varint(len(raw)) + raw)
    with pytest.raises(InputError, match="nested too deeply"):
        locations(tmp_path / "m.onnx")


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_the_layout_of_the_files_is_in_the_config() -> None:
    config = json.loads((worlds.exported("transfr")[0] / "laptop" / "config.json").read_text())["encoder"]
    assert (config["path"], config["data"]) == ("onnx/encoder.f32.onnx", "onnx/encoder.f32.onnx.data")
    assert (config["layers"], config["hidden"], config["width"]) == (2, worlds.WIDTH, worlds.WIDTH)
