"""A machine's own copy of a large array is believed by its digest alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefr.engine import mapped_files
from edgefr.engine.backends import shared_memory
from edgefr.engine.backends.ray import OnRay
from privacy.files import cache_dir
from tests.clusters import two_nodes
from tests.engine.test_processes import rounds

CONTENT = np.arange(200, dtype=np.uint8)
NAME = mapped_files.digest(CONTENT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path))
    return tmp_path / "mapped"


def fetched(content: np.ndarray = CONTENT) -> tuple[list[int], Callable[[], np.ndarray]]:
    times: list[int] = []
    return times, lambda: (times.append(1), content)[1]


def test_an_array_is_fetched_once_and_mapped_then(folder: Path) -> None:
    times, fetch = fetched()
    for _ in range(3):
        found = mapped_files.mapped(NAME, 200, fetch)
        assert isinstance(found, np.memmap)
        assert not found.flags.writeable
        assert found.tolist() == CONTENT.tolist()
    assert times == [1]
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [b"", bytes(CONTENT)[:-1], bytes(CONTENT[::-1]), bytes(CONTENT) + b"more"])
def test_a_file_that_is_not_what_its_name_says_is_written_anew(folder: Path, there: bytes) -> None:
    folder.mkdir()
    (folder / NAME).write_bytes(there)
    times, fetch = fetched()
    assert mapped_files.mapped(NAME, 200, fetch).tolist() == CONTENT.tolist()
    assert times == [1]
    assert (folder / NAME).read_bytes() == bytes(CONTENT)


def test_something_else_that_is_fetched_is_refused_and_not_written(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="is not what has the digest"):
        mapped_files.mapped(NAME, 200, fetched(CONTENT[::-1].copy())[1])
    assert not (folder / NAME).exists()


def test_what_a_killed_run_left_is_dropped_after_a_day_and_nothing_else(folder: Path) -> None:
    folder.mkdir()
    old, new, other = folder / ("0" * 64), folder / ("1" * 64), folder / "a note"
    for path in (old, new, other):
        path.write_bytes(b"x")
    before = time.time() - mapped_files.OLD - 60
    for path in (old, other):
        os.utime(path, (before, before))
    found = mapped_files.mapped(NAME, 200, fetched()[1])
    assert [path.exists() for path in (old, new, other)] == [False, True, True]
    mapped_files.drop([NAME, NAME])
    assert not (folder / NAME).exists()
    assert found.tolist() == CONTENT.tolist()  # who has it mapped keeps it


def test_a_file_that_another_run_drops_at_once_is_not_missed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = mapped_files.write_atomic

    def written_and_dropped(path: Path, content: Any, mode: int) -> Path:
        done = write(path, content, mode)
        mapped_files.drop([path.name])
        return done

    monkeypatch.setattr(mapped_files, "write_atomic", written_and_dropped)
    assert mapped_files.mapped(NAME, 200, fetched()[1]).tolist() == CONTENT.tolist()


@pytest.fixture
def cluster(folder: Path) -> Iterator[Any]:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with two_nodes() as made:
        yield made


@pytest.mark.slow
def test_machines_of_a_cluster_open_their_own_files_which_end_with_the_run(
    cluster: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "SMALL", 1)
    monkeypatch.setattr(mapped_files, "LARGE", 64)  # the driver says which arrays are large
    expected, _ = rounds("dense layers and text", None)
    backend = OnRay(cluster.address)
    found, _ = rounds("dense layers and text", backend)
    files = list(folder.iterdir())
    assert len(files) > 2
    assert all(mapped_files.digest(np.fromfile(path, np.uint8)) == path.name for path in files)
    for path in files:
        path.write_bytes(b"\0" * path.stat().st_size)
    monkeypatch.setattr(backend, "_setting", None)  # so that all is told, and opened, anew
    again, _ = rounds("dense layers and text", backend)
    for name, value in expected.shared.items():
        assert found.shared[name].numpy().tobytes() == again.shared[name].numpy().tobytes() == value.numpy().tobytes()
    backend.close()
    assert list(folder.iterdir()) == []
    assert cache_dir() == folder.parent
