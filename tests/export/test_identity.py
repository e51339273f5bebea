"""Two things have the same identity only where they compute the same, and none where that cannot be known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from edgefr.engine.optimisers import adam, sgd
from edgefr.methods.objectives import OBJECTIVES, Objective
from export import artifact_cache as kept
from export import graphs, identity
from export import trace as tracing
from export.identity import PACKAGES
from export.identity import identity as identity_of
from privacy.files import cache_dir
from tests.contract import programs
from tests.contract.sessions import program as of_sessions

KNOWN = {
    "text": "a",
    "another text": "b",
    "number": 1,
    "truth": True,
    "fraction": 1.0,
    "nothing": None,
    "list": [1, 2],
    "other order": [2, 1],
    "tuple": (1, 2),
    "nested": [1, [2]],
    "set": {1, 2},
    "mapping": {"a": 1, "b": 2},
    "mapping in another order": {"b": 2, "a": 1},
    "read-only": MappingProxyType({"a": 1, "b": 2}),
    "array": np.zeros(2, np.float32),
    "of another type": np.zeros(2),
    "days": np.zeros(2, "datetime64[D]"),
    "of another shape": np.zeros((2, 1), np.float32),
    "tensor": torch.zeros(2),
    "other values": torch.tensor([0.0, 1.0]),
    "half": torch.zeros(2, dtype=torch.bfloat16),
    "dtype": torch.float32,
    "path": Path("a"),
    "function": adam,
    "another function": sgd,
    "partial": partial(adam, beta_2=0.9),
    "partial of another value": partial(adam, beta_2=0.8),
    "class": torch.nn.Linear,
    "method": torch.nn.ReLU().forward,
    "module": torch.nn.Linear(1, 1),
}


def test_all_that_differs_has_another_identity() -> None:
    found = {name: identity_of(value) for name, value in KNOWN.items()}
    assert None not in found.values(), [name for name, said in found.items() if said is None]
    assert len(set(found.values())) == len(KNOWN)
    assert identity_of([1], [2]) not in (identity_of([1, 2]), identity_of([[1], [2]]), identity_of([1], [2], []))


def test_another_process_says_the_same() -> None:
    said = "from tests.contract import programs; from export.identity import identity; "
    script = said + "print(identity(programs.program('transfr mean')))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == identity_of(programs.program("transfr mean"))


@pytest.mark.parametrize("make", [programs.program, of_sessions])
def test_every_setting_of_a_program_is_in_it(make: Callable[..., Any]) -> None:
    names = ("fcucr", "sasrec") if make is of_sessions else ("fedmf", "fedncf", "transfr mean", "transfr lora")
    for name in names:
        local = make(name)
        before = identity_of(local)
        assert before == identity_of(make(name)) is not None
        for key, tensor in {**local.frozen, **local.constants}.items():
            with torch.no_grad():
                tensor.neg_()
                after = identity_of(local)
                tensor.neg_()
            assert after != before or not tensor.any(), key
        other = make(name)
        other.phases = tuple(replace(phase, epochs=phase.epochs + 1) for phase in other.phases)
        assert identity_of(other) != identity_of(local)


@dataclass
class Mine:
    """A class that no file of edgefr's says anything about."""

    size: int = 1


class Own(torch.nn.Linear):
    """The same, of a class that is known."""


def test_what_others_wrote_has_none() -> None:
    sparse = torch.eye(2).to_sparse()
    for thing in (Mine(), Mine, [Mine()], {"a": Mine}, Own(1, 1), lambda: 1, partial(KNOWN.get), object(), sparse):
        assert identity_of(thing) is None, thing
    local = programs.program("fedmf")
    local.score = lambda *given: given  # type: ignore[method-assign]
    assert identity_of(local) is None


def test_a_function_that_was_replaced_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    local = programs.program("fedmf")
    with monkeypatch.context() as patch:
        patch.setattr(type(local), "score", lambda *given: given)
        assert identity_of(local) is None
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "gathered", lambda *given: given)
        assert identity_of(1) is None
    assert identity_of(local) is not None


def test_an_entry_that_others_added_to_a_table_leaves_none() -> None:
    """A program looks its loss up by name as it runs, so the name does not say what is computed."""
    local = programs.program("fedmf")
    assert identity_of(local) is not None
    mine = Objective("mine", "nobody", compared=lambda positive, negative: positive)
    with OBJECTIVES.having(mine):
        assert identity_of(local) is None
    with OBJECTIVES.having(Objective("mine", "nobody", compared=partial(mine.compared))):  # type: ignore[arg-type]
        assert identity_of(local) is None
    assert identity_of(local) is not None


def test_another_version_of_a_package_or_another_file_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity_of(1)
    files = identity._code()
    assert {Path(name).parts[0] for name, _ in files} == set(identity.OURS)
    monkeypatch.setattr(identity, "_code", partial(list, [(files[0][0], "another"), *files[1:]]))
    assert identity_of(1) not in (None, before)
    monkeypatch.setattr(identity, "_code", partial(list, files))
    assert identity_of(1) == before
    for package in PACKAGES:
        monkeypatch.setattr(identity, "version", partial(dict.get, {package: "another"}))
        assert identity_of(1) not in (None, before)


def test_what_no_program_runs_is_not_counted_and_what_it_runs_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word in a command leaves every graph as it is; a number in a method does not."""
    rooms = [*identity.OURS, *(f"edgefr/{name}" for name in ("cli", "methods", "cli/methods"))]
    for room in rooms:
        (tmp_path / room).mkdir(parents=True)
        (tmp_path / room / "file.py").write_text("RATE = 1")
    monkeypatch.setattr(identity.importlib.util, "find_spec", lambda name: PathFinder.find_spec(name, [str(tmp_path)]))
    before = identity._code.__wrapped__()
    for room in rooms:
        (tmp_path / room / "file.py").write_text("RATE = 2")
        assert (identity._code.__wrapped__() == before) is room.startswith("edgefr/cli"), room
        (tmp_path / room / "file.py").write_text("RATE = 1")


def test_all_code_that_runs_while_a_program_is_traced_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = set[str]()
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path))
    sys.setprofile(lambda frame, event, value: ran.add(frame.f_code.co_filename))
    try:
        graphs.score_graph(programs.program("transfr mean"))
    finally:
        sys.setprofile(None)
    root = Path(identity.__file__).parents[1]
    ours = {Path(name).relative_to(root).as_posix() for name in ran if Path(name).is_relative_to(root)}
    assert {"export/trace.py", "edgefr/methods/transfr/program.py"} < ours
    assert {name for name in ours if not name.startswith("tests/")} <= {name for name, _ in identity._code()}


def converted_before(folder: Path) -> Path:
    """Return a cache in which what all tests have converted is there, and nothing that was checked."""
    common = cache_dir() / "graphs"
    common.mkdir(parents=True, exist_ok=True)
    (folder / "graphs").symlink_to(common.resolve(), target_is_directory=True)
    return folder


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep graphs in a folder of the test's own, and note what is traced."""
    monkeypatch.setenv("EDGEFR_CACHE", str(converted_before(tmp_path)))
    notes, before = list[str](), tracing.trace
    monkeypatch.setattr(identity, "_check_nothing_is_replaced", notes.copy)  # this test does

    def noted(what: str, *given: Any, **more: Any) -> Any:
        notes.append(what)
        return before(what, *given, **more)

    monkeypatch.setattr(tracing, "trace", noted)
    return notes


def test_a_graph_is_traced_and_checked_once(traced: list[str]) -> None:
    local = programs.program("fedmf")
    first, again = graphs.score_graph(local, {"item", "user"}), graphs.score_graph(local, {"user", "item"})
    assert first == again
    assert traced == ["score graph of fedmf"]
    assert graphs.score_graph(programs.program("fedncf")) != first
    assert traced == ["score graph of fedmf", "score graph of fedncf"]


def test_a_graph_that_was_damaged_is_made_anew(traced: list[str], tmp_path: Path) -> None:
    local = programs.program("fedmf")
    first = graphs.score_graph(local)
    (file,) = (tmp_path / "checked").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert graphs.score_graph(local) == first
    assert len(traced) == 2
    assert kept.read(file) is not None


@pytest.mark.skipif(os.name != "posix", reason="files have owners on POSIX alone")
@pytest.mark.parametrize("others", ["write it", "own it"])
def test_a_graph_that_others_may_have_written_is_made_anew(
    traced: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    local = programs.program("fedmf")
    first = graphs.score_graph(local)
    (file,) = (tmp_path / "checked").iterdir()
    kept.keep(file, graphs.score_graph(programs.program("fedncf")).SerializeToString())  # planted
    assert graphs.score_graph(local) != first
    if others == "write it":
        file.chmod(0o664)
    else:
        monkeypatch.setattr(os, "getuid", partial(int, os.getuid() + 1))
    assert graphs.score_graph(local) == first


def test_a_program_of_others_is_traced_each_time(traced: list[str], tmp_path: Path) -> None:
    local = programs.program("anchored fedmf")
    assert graphs.score_graph(local) == graphs.score_graph(local)
    assert len(traced) == 2
    assert not (tmp_path / "checked").exists()


def test_what_refers_to_itself_is_told() -> None:
    one, other = list[Any]([1]), list[Any]([1])
    one.append(one)
    other.append(other)
    assert identity_of(one) == identity_of(other) != identity_of([1, [1]])
