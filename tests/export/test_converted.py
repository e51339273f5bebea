"""A graph is made once of what was traced: the same bytes come back, and nothing else takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from export import trace as tracing
from export.trace import Shape, gate, trace

SHAPES: dict[str, Shape] = {"x": ("n", 3)}


class Scaled(torch.nn.Module):
    def __init__(self, by: float, weight: float = 1.0):
        super().__init__()
        self.by, self.weight = by, torch.nn.Parameter(torch.full((3,), weight))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.by * self.weight).sum(-1)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep graphs in a folder of the test's own, and note each that is made anew."""
    monkeypatch.setenv("EDGEFR_CACHE", str(tmp_path))
    notes: list[str] = []
    before = tracing._onnx

    def noted(*arguments: Any) -> Any:
        notes.append("made")
        return before(*arguments)

    monkeypatch.setattr(tracing, "_onnx", noted)
    return notes


def graph(module: Scaled, outputs: tuple[str, ...] = ("y",), wide: int = 3) -> Any:
    shapes: dict[str, Shape] = {"x": ("n", wide)}
    return trace("a graph", module, [torch.ones(5, wide)], shapes, outputs, optimize=False)


def test_it_is_made_once_and_comes_back_as_it_was(made: list[str]) -> None:
    first, second = graph(Scaled(2.0)), graph(Scaled(2.0))
    assert made == ["made"]
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    gate("a graph", second, Scaled(2.0), SHAPES, [[torch.rand(7, 3)]])


def test_whatever_differs_is_another_graph(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    graph(Scaled(2.0))
    graph(Scaled(2.0000001))  # a number in the code
    graph(Scaled(2.0, weight=3.0))  # a tensor
    graph(Scaled(2.0), outputs=("z",))
    monkeypatch.setattr("export.trace.version", lambda name: "another")
    graph(Scaled(2.0))
    assert len(made) == 5


def test_a_damaged_file_is_made_anew(made: list[str], tmp_path: Path) -> None:
    first = graph(Scaled(2.0)).SerializeToString(deterministic=True)
    (file,) = (tmp_path / "graphs").iterdir()
    for broken in (b"y" * 4000, file.read_bytes()[:-1]):
        file.write_bytes(broken)
        assert graph(Scaled(2.0)).SerializeToString(deterministic=True) == first
    assert len(made) == 3
