"""Checkpoints: what was written is read back to the bit, and what is not whole is never read."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgefr.simulation.runs import checkpoint, keeper
from edgefr.simulation.runs.checkpoint import ARRAYS, STATE
from edgefr.simulation.runs.keeper import Keeper
from privacy.errors import InputError

OWNER = checkpoint.digest("this experiment")
TYPES = (np.bool_, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64)
FILES = (ARRAYS, STATE)

arrays = st.sampled_from(TYPES).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
ends = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | arrays
keys = st.text(max_size=5).filter(lambda key: key != "$array")
trees = st.recursive(
    ends, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


def same(found: Any, expected: Any) -> bool:
    """Equal to the bit: types, order of keys, NaNs and signs of zero as well."""
    if isinstance(expected, torch.Tensor):
        expected = expected.numpy()
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and (found.dtype, found.shape) == (expected.dtype, expected.shape)
            and found.tobytes() == expected.tobytes()
        )
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and not math.isnan(expected):
        return struct.pack("<d", found) == struct.pack("<d", expected)
    return math.isnan(found) if isinstance(expected, float) else found == expected


def read(folder: Path, owner: str = OWNER) -> tuple[int | None, list[str]]:
    """The rounds of the newest whole checkpoint, and the warnings on the way to it."""
    warnings: list[str] = []
    found = checkpoint.newest(folder, owner, warnings.append)
    return (None if found is None else found.rounds), warnings


def forge(folder: Path, at: int, state: Any, **body: Any) -> None:
    """A checkpoint without arrays whose checksums are right, whatever else it says."""
    checkpoint.write(folder, at, {}, OWNER)
    path = folder / f"round-{at:08d}"
    whole = {"rounds": at, "belongs_to": OWNER, "state": state}
    text = json.dumps(whole | {"arrays": hashlib.sha256((path / ARRAYS).read_bytes()).hexdigest()} | body)
    (path / STATE).write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}))


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A folder into which rounds 1, 2 and 3 were written."""
    for rounds in (1, 2, 3):
        checkpoint.write(tmp_path, rounds, {"n": rounds, "a": np.arange(rounds), "t": torch.ones(2)}, OWNER)
    return tmp_path


@settings(max_examples=150, deadline=None)
@given(state=st.dictionaries(keys, trees, max_size=4), rounds=st.integers(0, 10**9))
def test_a_tree_is_read_back_to_the_bit(state: dict[str, Any], rounds: int) -> None:
    with TemporaryDirectory() as folder:
        checkpoint.write(Path(folder), rounds, state, OWNER)
        found = checkpoint.newest(Path(folder), OWNER, pytest.fail)
    assert found is not None
    assert found.rounds == rounds
    assert same(found.state, state)


def test_tensors_and_odd_layouts_come_back_as_arrays_that_can_be_written_to(tmp_path: Path) -> None:
    grid = torch.arange(12, dtype=torch.float32).view(3, 4)
    state = {
        "turned": grid.T,
        "part": grid[:, 1:3],
        "learned": torch.nn.Parameter(torch.tensor([1.0, float("nan"), float("-inf")])),
        "flags": torch.tensor([True, False]),
        "one": torch.tensor(3, dtype=torch.int32),
        "none": torch.zeros(0, 5),
        "column": np.arange(12).reshape(3, 4)[:, 1],
        "both": (np.float64(0.1), np.int64(7)),
    }
    checkpoint.write(tmp_path, 1, state, OWNER)
    found = checkpoint.newest(tmp_path, OWNER, pytest.fail)
    assert found is not None
    for name in ("turned", "part", "learned", "flags", "one", "none"):
        tensor = state[name]
        assert same(found.state[name], tensor.detach().numpy()), name  # type: ignore[attr-defined]
        found.state[name][...] = 0
    assert found.state["column"].tolist() == [1, 5, 9]
    assert found.state["both"] == [0.1, 7]


def test_keys_that_look_like_paths_stay_apart(tmp_path: Path) -> None:
    state = {"a": {"b": np.zeros(1)}, "a/b": np.ones(2), "a.b": np.ones(3), "../../out": np.ones(4), "": np.ones(5)}
    checkpoint.write(tmp_path / "in" / "here", 1, state, OWNER)
    found = checkpoint.newest(tmp_path / "in" / "here", OWNER, pytest.fail)
    assert found is not None
    assert same(found.state, state)
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*")) if p.is_file()] == [
        f"in/here/round-00000001/{name}" for name in FILES
    ]


@pytest.mark.parametrize("state", [{1: 2}, {"a": {None: 1}}, {"$array": "0"}, {"a": [{"$array": 1}]}])
def test_a_state_that_would_be_read_back_as_another_is_refused(state: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="key of a state"):
        checkpoint.write(tmp_path, 1, state, OWNER)
    with pytest.raises(TypeError):
        checkpoint.write(tmp_path, 1, {"a": object()}, OWNER)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_two_are_kept(three: Path) -> None:
    assert [p.name for p in sorted(three.iterdir())] == ["round-00000002", "round-00000003"]
    assert read(three) == (3, [])
    for rounds in (99_999_999, 100_000_000):  # one digit more
        checkpoint.write(three, rounds, {}, OWNER)
    assert len(list(three.iterdir())) == 2
    assert read(three) == (100_000_000, [])


@pytest.mark.parametrize("file", FILES)
def test_any_flipped_byte_or_cut_is_noticed(file: str, three: Path) -> None:
    path = three / "round-00000003" / file
    whole = path.read_bytes()
    for at in sorted({*range(0, len(whole), 7), len(whole) - 1}):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        rounds, warnings = read(three)
        assert (rounds, len(warnings)) == (2, 1), f"byte {at}"
        assert str(path.parent) in warnings[0]
        assert "is damaged" in warnings[0]
        path.write_bytes(whole[:at])
        assert read(three)[0] == 2, f"cut at {at}"
    path.write_bytes(whole)
    assert read(three) == (3, [])


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_noticed(file: str, three: Path) -> None:
    (three / "round-00000003" / file).unlink()
    assert read(three)[0] == 2
    (three / "round-00000003" / file).mkdir()
    assert read(three)[0] == 2


def test_arrays_of_another_checkpoint_are_noticed(three: Path) -> None:
    shutil.copy(three / "round-00000002" / ARRAYS, three / "round-00000003" / ARRAYS)
    rounds, warnings = read(three)
    assert rounds == 2
    assert f"{ARRAYS} does not match its checksum" in warnings[0]


def test_nothing_whole_is_nothing(three: Path) -> None:
    assert read(three / "elsewhere") == (None, [])
    for path in three.iterdir():
        (path / STATE).write_bytes(b"")
    rounds, warnings = read(three)
    assert rounds is None
    assert len(warnings) == 3
    assert warnings[-1].endswith("is whole; starting from the beginning")


def test_damaged_ones_do_not_crowd_out_those_that_are_written_after_them(three: Path) -> None:
    for path in three.iterdir():
        (path / STATE).write_bytes(b"")
    checkpoint.write(three, 1, {}, OWNER)
    assert read(three) == (1, [])
    assert [p.name for p in three.iterdir()] == ["round-00000001"]


def test_another_experiment_or_other_data_is_refused(three: Path) -> None:
    with pytest.raises(InputError, match="round-00000003 belongs to another experiment, fleet or data set; resume"):
        read(three, checkpoint.digest("another experiment"))


def test_digests_tell_parts_apart() -> None:
    parts: list[tuple[str | np.ndarray, ...]] = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("c", "ab"), ()]
    parts += [(np.arange(3),), (np.arange(3), np.arange(0)), (np.arange(3, dtype=np.int32),)]
    assert len({checkpoint.digest(*p) for p in parts}) == len(parts)
    assert checkpoint.digest(np.arange(6).reshape(2, 3).T) == checkpoint.digest(np.array([[0, 3], [1, 4], [2, 5]]))


@pytest.mark.parametrize("moment", ["fsync", "rename"])
def test_a_kill_while_writing_leaves_nothing_that_is_read(
    moment: str, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stops for good at each call of the kind in turn; nothing after it runs."""
    calls, real = 0, getattr(os, moment)

    class Killed(BaseException):
        pass

    for stop in range(10):
        calls = 0

        def dying(*given: Any, stop: int = stop) -> None:
            nonlocal calls
            calls += 1
            if calls > stop:
                raise Killed
            real(*given)

        monkeypatch.setattr(os, moment, dying)
        try:
            checkpoint.write(three, 4, {"n": 4, "a": np.arange(4)}, OWNER)
        except Killed:
            monkeypatch.undo()
            renamed = (three / "round-00000004").exists()
            assert read(three) == (4 if renamed else 3, [])
            shutil.rmtree(three / "round-00000004", ignore_errors=True)
            continue
        monkeypatch.undo()
        break
    assert stop == {"fsync": 4, "rename": 1}[moment]
    assert read(three) == (4, [])
    assert [p.name for p in sorted(three.iterdir())] == ["round-00000003", "round-00000004"]


def test_a_folder_that_was_never_renamed_is_not_read(three: Path) -> None:
    shutil.copytree(three / "round-00000003", three / ".round-00000009.part")
    for name in ("round-00000009.part", "round-9", "round-0000000x", "round-00000009-old", "model.safetensors"):
        shutil.copytree(three / "round-00000003", three / name)
    assert read(three) == (3, [])
    checkpoint.write(three, 9, {}, OWNER)
    assert read(three) == (9, [])
    assert not (three / ".round-00000009.part").exists()


def test_a_full_disk_is_told_in_one_line_and_leaves_the_others_alone(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write checkpoint .*round-00000004: No space left .* --resume"):
        checkpoint.write(three, 4, {"a": np.arange(4)}, OWNER)
    assert [p.name for p in sorted(three.iterdir())] == ["round-00000002", "round-00000003"]
    assert read(three) == (3, [])


HOSTILE: list[dict[str, Any]] = [
    *({"state": {"a": {"$array": name}}} for name in ("nothing", "../../../../etc/passwd", ["0"], 0)),
    *({"state": state} for state in ([1, 2], None)),
    *({"state": {}, "rounds": rounds} for rounds in (None, "x", [], math.inf, {})),
]
"""Arrays that are missing or have no name, states that are no mapping, and rounds that are no number."""


@pytest.mark.parametrize("body", HOSTILE, ids=str)
def test_hostile_states_are_damaged_ones(body: dict[str, Any], three: Path) -> None:
    forge(three, 9, **body)
    rounds, warnings = read(three)
    assert rounds == 3
    assert "round-00000009 is damaged" in warnings[0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"body": 5, "sha256": 5}',
        b'{"body": null, "sha256": ""}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"body": ' + b"1" * 5000 + b', "sha256": ""}',
        b"cos\nsystem\n(S'true'\ntR.",
    ],
    ids=lambda content: repr(content[:20]),
)
def test_hostile_files_are_damaged_ones(content: bytes, three: Path) -> None:
    (three / "round-00000003" / STATE).write_bytes(content)
    assert read(three)[0] == 2


def test_nested_without_end_is_damage(three: Path) -> None:
    forge(three, 9, {})
    path = three / "round-00000009" / STATE
    text = json.dumps({"rounds": 9, "belongs_to": OWNER, "arrays": "", "state": 0}).replace('"state": 0', "")
    text = text.rstrip("}") + '"state": ' + "[" * 50_000 + "]" * 50_000 + "}"
    path.write_text(json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "body": text}))
    assert read(three)[0] == 3


def test_a_ledger_is_written_before_the_checkpoint_that_knows_its_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed between the two goes on from the older checkpoint, and its ledger lacks no release."""
    written = list[str]()
    monkeypatch.setattr(keeper, "keep_ledger", lambda *given: written.append("ledger"))
    monkeypatch.setattr(checkpoint, "write", lambda *given: written.append("checkpoint"))
    run = SimpleNamespace(log=SimpleNamespace(flush=lambda: 0), closed=lambda name: name)
    Keeper(run, "a run", 1)(SimpleNamespace(rounds=1, state=dict))  # type: ignore[arg-type]
    assert written == ["ledger", "checkpoint"]


def test_the_same_round_may_be_written_again(three: Path) -> None:
    checkpoint.write(three, 3, {"n": "again"}, OWNER)
    found = checkpoint.newest(three, OWNER, pytest.fail)
    assert found is not None
    assert found.state == {"n": "again"}
    assert len(list(three.iterdir())) == 2
