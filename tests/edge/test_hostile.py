"""Files that somebody made to break a device: every one of them is refused in one line."""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge import tensors
from edge.archive import unpack
from edge.device import Device
from edge.policy import OPEN
from edge.recommender import Recommender
from edge.records import inside
from export.archive import pack
from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.programs import interactions
from tests.edge.folders import edit_json, resign
from tests.edge.test_delta import with_header


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")


def refused(bundle: Path, match: str) -> None:
    """Both ways to use the bundle end in one line."""
    resign(bundle)
    with pytest.raises(InputError, match=match) as error:
        Device(bundle, bundle.parent / "state", user="u7", policy=OPEN).learn(interactions()[7])
    assert "\n" not in str(error.value)


def phase(change: dict) -> Callable[[dict], object]:
    return lambda learning: learning["phases"][0].update(change)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c.update(negatives=10**9), "draws 1,000,000,000 negatives of 60 items"),
        (lambda c: c.update(negatives=2**63), "negatives: Input should be less"),
        (lambda c: c.update(batch_size=2**63), "batch_size: Input should be less"),
        (lambda c: c.update(seed=2**63), "seed: Input should be less"),
        (lambda c: c.update(round=2**63), "round: Input should be less"),
        (lambda c: c["tensors"][0].update(shape=[2**63]), "shape.0: Input should be less"),
        (lambda c: c["tensors"][0].update(shape=[3, 3]), "learning has .* its files"),
        (lambda c: c["tensors"].append(c["tensors"][0]), "named twice"),
        (lambda c: c["tensors"].append(c["tensors"][0] | {"name": "ghost"}), "ghost,? .*its files none"),
        (lambda c: c["phases"].append(c["phases"][0]), "a phase is named twice"),
        (phase({"epochs": 2**63}), "epochs: Input should be less"),
        (phase({"epochs": 10_000, "optimiser": "sgd"}), "more than the .* of a device's round"),
        (phase({"epochs": 0}), "epochs: Input should be greater"),
        (phase({"lr": {}}), "learning rates of other tensors"),
        (phase({"dense": ["ghost"]}), "trains ghost, which is no dense tensor"),
        (phase({"tables": ["ghost"]}), "trains ghost, which is no rows tensor"),
        (phase({"tables": ["item", "item"]}), "trains something twice"),
        (phase({"lr": {"user": 1.0, "item": 1e400}}), "lr.item: Input should be a finite number"),
        (lambda c: c.update(vectors_data="onnx/score.onnx"), "vectors_data belongs to no graph"),
    ],
)
def test_learning_that_no_device_can_do(bundle: Path, change: Callable, match: str) -> None:
    if "device's round" in match:
        edit_json(bundle / "config.json", lambda c: c["learning"].update(negatives=60, batch_size=1))
    edit_json(bundle / "config.json", lambda c: change(c["learning"]))
    refused(bundle, match)


@pytest.mark.parametrize("where", ["adapters/shared.safetensors", "private/init.safetensors"])
@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F8_E5M2", "F4", "F16", "BOOL", "U64", "C64", "Q"])
def test_tensors_of_types_that_numpy_does_not_have(bundle: Path, where: str, dtype: str) -> None:
    header = {"user": {"dtype": dtype, "shape": [8], "data_offsets": [0, 16]}}
    (bundle / where).write_bytes(with_header(header, bytes(16)))
    refused(bundle, f"is not a safetensors file .*'{dtype}' instead of F32")


ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "header",
    [
        {"x": ENTRY | {"data_offsets": [0, 2**63]}},
        {"x": ENTRY | {"data_offsets": [-16, 0]}},
        {"x": ENTRY | {"data_offsets": [0.0, 16.0]}},
        {"x": ENTRY | {"shape": [2**63, 2**63]}},
        {"x": ENTRY | {"shape": [True, 4]}},
        {"x": ENTRY | {"shape": [1] * 40 + [4]}},
        {"x": ENTRY | {"more": 1}},
        {"x": ENTRY, "y": ENTRY},  # two names for the same bytes
        {"x": ENTRY | {"data_offsets": [4, 20]}},
        {"\x1b[2J": ENTRY},
        *(
            {"x": ENTRY | odd}
            for odd in ({"shape": [5]}, {"shape": [-2, -2]}, {"data_offsets": [16, 0]}, {"dtype": None})
        ),
        *({"x": ENTRY | {"shape": [n], "data_offsets": [0, 4 * n]}} for n in (3, 5)),  # bytes too many, too few
        *(
            [],
            {},
            {"x": 3},
            {"__metadata__": []},
            {"__metadata__": {"k": 1}},
            b'{"__metadata__": {}, "__metadata__": {}}',
        ),
        {"x" * 500: ENTRY},
        {f"x{n}": ENTRY | {"shape": [0], "data_offsets": [0, 0]} for n in range(20_000)},
        b'{"x": 1, "x": 2}',
        b"[" * 50_000,
        b"\xff\xfe",
        b"{",
    ],
)
def test_headers_of_tensors_that_lie(header: object) -> None:
    with pytest.raises((ValueError, RecursionError)):
        tensors.parse(with_header(header, bytes(16)))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    from safetensors.numpy import save

    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.empty((0, 4)), "c": np.array(7, np.int64)}
    path = tmp_path / "x"
    path.write_bytes(save(arrays, {"k": "v"}))
    found = tensors.mapped(path)
    assert found.metadata == {"k": "v"}
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


def header_of(text: bytes, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text


PLAIN = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n"


@pytest.mark.parametrize(
    "content",
    [
        header_of(PLAIN) + bytes(23),  # a value is missing
        header_of(PLAIN) + bytes(25),
        header_of(PLAIN.replace(b"2, 3", b"999999999999, 999999999999")) + bytes(24),
        header_of(PLAIN.replace(b"2, 3", b"-2, -3")) + bytes(24),
        header_of(PLAIN.replace(b"<f4", b"|O")) + bytes(24),
        header_of(PLAIN.replace(b"<f4", b">f4")) + bytes(24),
        header_of(PLAIN.replace(b"False", b"True")) + bytes(24),
        header_of(PLAIN.replace(b"(2, 3)", b"(" * 200 + b"2" + b")" * 200)) + bytes(24),
        header_of(b"{'descr': '<f4', 'fortran_order': False, 'shape': " + b"-" * 60_000 + b"1, }\n"),
        header_of(b"[" * 65_000),
        header_of(PLAIN.replace(b"'descr'", "'déscr'".encode())) + bytes(24),
        header_of(PLAIN, b"\x02\x00") + bytes(24),
        b"\x93NUMPY\x01\x00",
        b"",
        b"PK\x03\x04" + bytes(30),
    ],
)
def test_arrays_whose_header_lies(bundle: Path, content: bytes) -> None:
    table = next((bundle / "index").glob("*.npy"))
    table.write_bytes(content)
    refused(bundle, r"is not a \.npy array")


ELSEWHERE = [
    "CON",
    "nul.txt",
    "a/Aux.npy",
    "COM1",
    "lpt9.onnx.data",
    "x.",
    "x ",
    "a /b",
    "a:b",
    "é",
    "ﬁle",
    "ſ",
    "\u212a",
]
ELSEWHERE += ["./x", "a/./b", "a/../b", "~", "a\u202eb", "x" * 101, "a/" * 20 + "b", "-\t", "", "a//b", "/a", "\\a"]
ELSEWHERE += ["../x", "a/../../x", "//x", "..", ".", "folder/", "..\\x", "C:/x", "c:x", "x\ny", "a?", "Manifest.json"]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_names_that_are_other_files_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a plain relative path"):
        inside(name)
    path = pack(bundles.bundle("fedmf"), tmp_path / "a.zip")
    with zipfile.ZipFile(path, "a", allowZip64=False) as packed:
        packed.writestr(zipfile.ZipInfo(name or "x"), b"x")
    with pytest.raises(InputError):
        unpack(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a/b"), ("i", "I"), ("a/b", "A/B/c")])
def test_two_names_that_are_one_file_somewhere(bundle: Path, pair: tuple[str, str]) -> None:
    resign(bundle, lambda record: record["files"].extend(record["files"][0] | {"path": name} for name in pair))
    with pytest.raises(InputError, match=r"lists .* (twice|in another file)"):
        Recommender(bundle)
