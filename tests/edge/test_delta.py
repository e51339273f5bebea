"""Deltas: the file as documented, what is refused, and that hostile bytes end in one error."""

import json
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load, save

from edge.delta import HEADER_LIMIT, Delta, read_delta, write_delta
from edge.learning import Learning
from export.sign import generate, sign_delta
from privacy.errors import InputError

BASE = "ab" * 32
FACTS = {"schema": "edgefr.delta/1", "base_digest": BASE, "from_round": 2, "to_round": 5, "kind": "values"}
DENSE = {"dense.adapter.weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
ROWS = {
    "rows.item.items": np.array([1, 4], np.int64),
    "rows.item.values": np.array([[0.5, -1.0], [2.0, 0.0]], np.float32),
}


def file(tensors: dict[str, np.ndarray], facts: object = FACTS, metadata: dict[str, str] | None = None) -> bytes:
    return save(tensors, {"delta": json.dumps(facts)} if metadata is None else metadata)


def learning() -> Learning:
    """Of a program with one dense and one row-wise shared tensor, five items."""
    tensors = [("adapter.weight", [2, 3], "shared", "dense"), ("item", [5, 2], "shared", "rows")]
    tensors += [("user", [2], "private", "dense")]
    phase = {"name": "all", "graph": "onnx/step.onnx", "purpose": "p", "when": "round", "epochs": 1, "optimiser": "sgd"}
    return Learning.model_validate(
        {
            "tensors": [dict(zip(("name", "shape", "place", "kind"), t, strict=True)) for t in tensors],
            "phases": [phase | {"dense": ["user"], "tables": ["item"], "lr": {"user": 0.1, "item": 0.1}}],
            "score": "onnx/score.onnx",
            "negatives": 1,
            "batch_size": 8,
            "seed": 0,
            "round": 0,
            "release": {"clip": None, "norm": "l2", "noise": None, "scale": 0, "weights": "uniform"},
            "replay": None,
        }
    )


def header_of(content: bytes) -> dict:
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size])


def with_header(header: object, body: bytes) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def test_what_is_written_is_the_documented_file(tmp_path: Path) -> None:
    delta = Delta(BASE, 2, 5, {"adapter.weight": DENSE["dense.adapter.weight"]}, {"item": tuple(ROWS.values())})
    path = write_delta(tmp_path / "update.safetensors", delta)
    content = path.read_bytes()
    assert json.loads(header_of(content)["__metadata__"]["delta"]) == FACTS
    stored = load(content)
    assert {name: tensor.tolist() for name, tensor in stored.items()} == {
        "dense.adapter.weight": [[0, 1, 2], [3, 4, 5]],
        "rows.item.items": [1, 4],
        "rows.item.values": [[0.5, -1.0], [2.0, 0.0]],
    }
    assert write_delta(tmp_path / "again.safetensors", delta).read_bytes() == content
    found = read_delta(path, learning())
    assert (found.base_digest, found.from_round, found.to_round) == (BASE, 2, 5)
    assert found.signed_by is None
    assert found.dense["adapter.weight"].dtype == np.float32
    assert found.dense["adapter.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    items, values = found.rows["item"]
    assert (items.tolist(), values.tolist()) == ([1, 4], [[0.5, -1.0], [2.0, 0.0]])


shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
floats = st.floats(-1e6, 1e6, width=32)
names = st.text("ab._0", min_size=1, max_size=8)


@st.composite
def deltas(draw: st.DrawFn) -> Delta:
    rows = {}
    for name in draw(st.lists(names, unique=True, max_size=2)):
        items = np.array(sorted(draw(st.sets(st.integers(0, 2**62), max_size=4))), np.int64)
        rows[name] = items, draw(hnp.arrays(np.float32, (len(items), draw(st.integers(0, 3))), elements=floats))
    dense = draw(st.dictionaries(names, hnp.arrays(np.float32, shapes, elements=floats), max_size=3))
    first = draw(st.integers(0, 10))
    return Delta(BASE, first, first + draw(st.integers(1, 10)), dense, rows)


@settings(max_examples=60, deadline=None)
@given(deltas())
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, delta: Delta) -> None:
    path = write_delta(tmp_path_factory.mktemp("delta") / "update", delta)
    found = read_delta(path)
    assert (found.base_digest, found.from_round, found.to_round) == (BASE, delta.from_round, delta.to_round)
    assert found.dense.keys() == delta.dense.keys()
    assert found.rows.keys() == delta.rows.keys()
    for name, tensor in delta.dense.items():
        np.testing.assert_array_equal(found.dense[name], tensor, strict=True)
    for name, (items, values) in delta.rows.items():
        np.testing.assert_array_equal(found.rows[name][0], items, strict=True)
        np.testing.assert_array_equal(found.rows[name][1], values, strict=True)


def rows(items: object, values: object, kinds: tuple[type, type] = (np.int64, np.float32)) -> dict[str, np.ndarray]:
    return {"rows.item.items": np.array(items, kinds[0]), "rows.item.values": np.array(values, kinds[1])}


TWO = [[0.0, 0.0], [0.0, 0.0]]
BAD_TENSORS = {
    "items out of order": (rows([4, 1], TWO), "rows.item.items do not ascend"),
    "an item twice": (rows([1, 1], TWO), "rows.item.items do not ascend"),
    "a negative item": (rows([-1, 1], TWO), "rows.item.items do not ascend from 0"),
    "items in a square": (rows([[1, 2]], TWO), r"rows.item.items is int64 \[1, 2\] instead of int64 \[n\]"),
    "items as floats": (rows([1, 2], TWO, (np.float32, np.float32)), "rows.item.items is float32"),
    "values as integers": (rows([1, 2], TWO, (np.int64, np.int64)), "rows.item.values is int64 instead of float32"),
    "rows missing": (rows([1, 2], TWO[:1]), r"rows.item.values is \[1, 2\] instead of \[2, width\]"),
    "values in a line": (rows([1, 2], [0.0, 0.0]), r"rows.item.values is \[2\] instead of \[2, width\]"),
    "items alone": ({"rows.item.items": np.array([1])}, "'rows.item.items' alone"),
    "values alone": ({"rows.item.values": np.zeros((1, 2), np.float32)}, "'rows.item.values' alone"),
    "NaN": ({"dense.x": np.array([0, np.nan], np.float32)}, "dense.x has values that are not finite"),
    "infinity": (rows([1], [[0.0, np.inf]]), "rows.item.values has values that are not finite"),
    "a dense tensor of integers": ({"dense.x": np.zeros(2, np.int64)}, "dense.x is int64 instead of float32"),
    "another tensor": (
        DENSE | {"private.user": np.zeros(2, np.float32)},
        "'private.user', which is no part of a delta",
    ),
    "a tensor without name": ({"dense.": np.zeros(2, np.float32)}, "'dense.', which is no part"),
    "rows without a table": ({"rows.items": np.array([1])}, "'rows.items', which is no part"),
    "a name without end": ({"dense." + "x" * 200: np.zeros(2, np.float32)}, "too long or not plain"),
    "a name for the terminal": ({"dense.\x1b[2J": np.zeros(2, np.float32)}, "too long or not plain"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_tensors_that_are_no_delta_are_neither_read_nor_written(case: str, tmp_path: Path) -> None:
    tensors, message = BAD_TENSORS[case]
    path = tmp_path / "update"
    path.write_bytes(file(tensors))
    with pytest.raises(InputError, match=message) as caught:
        read_delta(path)
    assert "\n" not in str(caught.value)
    dense = {name.removeprefix("dense."): t for name, t in tensors.items() if name.startswith("dense.")}
    table = tuple(tensors.get(f"rows.item.{part}") for part in ("items", "values"))
    if len(dense) + 2 * all(part is not None for part in table) != len(tensors):
        return  # cannot be said with a Delta
    path.unlink()
    with pytest.raises(InputError, match=f"cannot write .*{message}"):
        write_delta(path, Delta(BASE, 0, 1, dense, {"item": table} if table[0] is not None else {}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (FACTS | {"schema": "edgefr.delta/2"}, "schema: Input should be 'edgefr.delta/1'"),
        (FACTS | {"base_digest": "ab"}, "base_digest: String should match"),
        (FACTS | {"from_round": -1}, "from_round: Input should be greater"),
        (FACTS | {"to_round": 2**63}, "to_round: Input should be less than or equal to 999999999"),
        (FACTS | {"to_round": 2}, "to_round 2 is not after from_round 2"),
        (FACTS | {"kind": "difference"}, "kind: Input should be 'values'"),
        (FACTS | {"colour": "red"}, "colour: Extra inputs"),
        ({}, "base_digest: Field required"),
        ([], "Input should be an object"),
        (None, "Input should be an object"),
    ],
)
def test_other_metadata_is_refused(facts: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "update").write_bytes(file(DENSE, facts))
    with pytest.raises(InputError, match=message):
        read_delta(tmp_path / "update")


BODY = DENSE["dense.adapter.weight"].tobytes()
META = {"__metadata__": {"delta": json.dumps(FACTS)}}


def entry(**changes: object) -> dict:
    return META | {"dense.x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | changes}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "header says"),
        (with_header(b" " * (HEADER_LIMIT + 1), b""), "header says it has 1,048,577 bytes"),
        (with_header(b"[" * 100_000, b""), "is not a edgefr.delta/1 file"),
        (with_header({}, b""), "metadata is not a delta's"),
        (with_header({"__metadata__": {"format": "pt"}}, b""), "metadata is not a delta's"),
        (with_header(entry(dtype="BF16"), BODY), "'BF16' instead of F32 or I64"),
    ],
)
def test_hostile_headers_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "update").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_delta(tmp_path / "update")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"dense.adapter.weight": np.zeros((3, 2), np.float32)},
            r"dense.adapter.weight is \[3, 2\], the bundle has \[2",
        ),
        ({"dense.adapter.bias": np.zeros(3, np.float32)}, r"dense.adapter.bias is \[3\], the bundle has none"),
        ({"dense.user": np.zeros(2, np.float32)}, r"dense.user is \[2\], the bundle has none"),
        ({"dense.item": np.zeros((5, 2), np.float32)}, r"dense.item is \[5, 2\], the bundle has none"),
        (rows([0, 5], TWO), r"rows.item has width 2 up to item 5, the bundle has \[5, 2\]"),
        (rows([0, 4], np.zeros((2, 3))), "rows.item has width 3 up to item 4"),
        (
            {k.replace("item.", "user."): v for k, v in ROWS.items()},
            "rows.user has width 2 up to item 4, the bundle has n",
        ),
    ],
)
def test_only_what_the_bundle_shares_may_change(tensors: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "update").write_bytes(file(tensors))
    read_delta(tmp_path / "update")
    with pytest.raises(InputError, match=message):
        read_delta(tmp_path / "update", learning())


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "update"
    path.write_bytes(file(DENSE))
    size = path.stat().st_size
    assert read_delta(path, limit=size).to_round == 5
    with pytest.raises(InputError, match=f"has {size:,} bytes, more than the {size - 1:,} that such a file may"):
        read_delta(path, limit=size - 1)
    with open(path, "wb") as sparse:
        sparse.truncate(1 << 40)  # would not fit into memory
    with pytest.raises(InputError, match="that such a file may have"):
        read_delta(path)


def test_a_place_without_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="is not there"):
            read_delta(path)


def test_tensors_that_are_views_are_written_as_they_look(tmp_path: Path) -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    items = np.array([9, 7, 5, 3, 1])[::-2]
    delta = Delta(BASE, 0, 1, {"x": whole.T[1:]}, {"item": (items, whole[:, ::2])})
    found = read_delta(write_delta(tmp_path / "update", delta))
    assert found.dense["x"].tolist() == [[1, 5, 9], [2, 6, 10], [3, 7, 11]]
    assert found.rows["item"][0].tolist() == [1, 5, 9]
    assert found.rows["item"][1].tolist() == [[0, 2], [4, 6], [8, 10]]


def test_signatures(tmp_path: Path) -> None:
    path = write_delta(tmp_path / "update.safetensors", Delta(BASE, 0, 1, {"x": np.ones(2, np.float32)}))
    key, other = (generate(tmp_path / name) for name in ("mine", "other"))
    mine = [tmp_path / "mine" / "public.pem"]
    with pytest.raises(InputError, match="is not signed"):
        read_delta(path, trusted=mine)
    assert sign_delta(path, tmp_path / "mine" / "private.pem") == key
    assert path.with_name("update.safetensors.sig.json").is_file()
    assert read_delta(path, trusted=mine).signed_by == key
    assert read_delta(path).signed_by == key, "whoever it was"
    assert other != key
    with pytest.raises(InputError, match=f"signed by key {key[:16]}.*not trusted"):
        read_delta(path, trusted=[tmp_path / "other" / "public.pem"])
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(InputError, match="the signature is wrong"):
        read_delta(path, trusted=mine)
    path.with_name("update.safetensors.sig.json").write_text("{}")
    with pytest.raises(InputError, match=r"its signature is not an edgefr\.signature/3 file"):
        read_delta(path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_never_do_anything_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(file(DENSE | ROWS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    path = tmp_path_factory.mktemp("damaged") / "update"
    path.write_bytes(content[:cut])
    with suppress(InputError):  # anything else fails; what is read is within the rules still
        found = read_delta(path, learning())
        assert np.isfinite(found.dense.get("adapter.weight", np.zeros(1))).all()
        assert all(len(items) == len(values) for items, values in found.rows.values())
