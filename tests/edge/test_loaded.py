"""What is loaded of a bundle is what was checked, whoever swaps its files after it was opened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge.bundle import Bundle, open_bundle
from edge.catalogue import Catalogue, open_table
from edge.clients import read_tensors
from edge.encoder import open_encoder
from edge.graph import Graph
from edge.recommender import Recommender
from privacy.errors import InputError
from tests.export import worlds

LOADS: dict[str, Callable[[Bundle], object]] = {
    "onnx/score.onnx": lambda b: Graph(b.file(b.config.score), entry=b.entry),
    "onnx/encoder.f32.onnx": lambda b: open_encoder(b.config.encoder, b.file, b.entry),
    "onnx/encoder.f32.onnx.data": lambda b: open_encoder(b.config.encoder, b.file, b.entry),
    "tokenizer.json": lambda b: open_encoder(b.config.encoder, b.file, b.entry),
    "adapters/shared.safetensors": lambda b: read_tensors(b, b.config.shared),
    "index/ids.json": Catalogue,
    "index/text.f32.npy": lambda b: [open_table(b, table) for table in b.config.tables],
}


def swapped(path: Path) -> None:
    """Put another file of the same size in its place, as `mv` does."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.with_suffix(".new").write_bytes(content)
    os.replace(path.with_suffix(".new"), path)


def written(path: Path) -> None:
    """Write into the file itself."""
    with path.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))


def longer(path: Path) -> None:
    """Write behind its end."""
    with path.open("ab") as file:
        file.write(b"x")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return open_bundle(shutil.copytree(worlds.exported("transfr")[0] / "laptop", tmp_path / "laptop"))


@pytest.mark.parametrize("change", [swapped, written, longer])
@pytest.mark.parametrize("name", LOADS)
def test_a_file_that_was_swapped_after_the_check_is_not_loaded(
    name: str, change: Callable[[Path], None], bundle: Bundle
) -> None:
    LOADS[name](bundle)
    change(bundle.file(name))
    with pytest.raises(InputError, match="was changed after it was checked"):
        LOADS[name](bundle)


def test_a_file_that_is_swapped_after_it_was_loaded_is_not_seen(bundle: Bundle) -> None:
    device = Recommender(bundle.root)
    before, vectors = device.scores(), device.encode("bar")
    for entry in bundle.manifest.files:
        swapped(bundle.root / entry.path)
    np.testing.assert_array_equal(device.scores(), before)
    np.testing.assert_array_equal(device.encode("bar"), vectors)
