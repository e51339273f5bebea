"""Graphs of what a program makes of a window of its client's session beside scores: a teacher's features, a prototype.

They read the window as the score graph does (`export.graphs`), and any dense tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from export.graphs import Viewed, example_history, history_shapes, table_widths
from export.program import LocalProgram
from export.trace import Shape, filled, gate, noise, trace

LENGTHS = (3, 1, 4, 0, 1000)
"""Real positions of the windows that a graph is compared on; as many as there are where there are fewer."""


class _OfWindow(torch.nn.Module):
    """This is `function(tensors, window)` of a client's window, as a function of the graph's inputs in order."""

    def __init__(self, program: LocalProgram, function: Callable[..., Tensor | None], inputs: list[str]) -> None:
        super().__init__()
        self._program, self._function, self._inputs = program, function, inputs
        self._keys = {n: torch.empty(0) for n, s in program.specs.items() if s.kind == "rows"}

    def found(self, *inputs: Tensor) -> Tensor | None:
        """As the function has it."""
        given, specs = dict(zip(self._inputs, inputs, strict=True)), self._program.specs
        tensors = {n: self._keys[n] if n in self._keys else given[f"{specs[n].place}.{n}"] for n in specs}
        tables = [(key, given[f"history.{name}"]) for name, key in self._keys.items()]
        label = given["label.history"]
        return self._function(tensors, Viewed.of(tables, label, given["times.history"]))

    def forward(self, *inputs: Tensor) -> Tensor:
        found = self.found(*inputs)
        assert found is not None
        return found


def window_graph(
    program: LocalProgram, function: Callable[..., Tensor | None], output: str
) -> tuple[Any, torch.Size] | None:
    """Trace `function(tensors, window)` to ONNX, inputs by name; return graph and shape, or None where it makes none.

    Raises `InputError` when the graph differs from torch by more than 1e-4 on windows of any length.

    >>> window_graph(program, program.publish, "prototype")  # doctest: +SKIP
    """
    shapes: dict[str, Shape] = history_shapes(program, table_widths(program))
    shapes |= {f"{s.place}.{name}": s.shape for name, s in program.specs.items() if s.kind == "dense"}

    def inputs(real: int) -> list[Tensor]:
        example = example_history(program, real)
        return [example.get(name, noise(name, filled(shape, {}))) for name, shape in shapes.items()]

    module, what = _OfWindow(program, function, list(shapes)), f"{output} graph of {program.name}"
    first = module.found(*inputs(LENGTHS[0]))
    if first is None:
        return None
    model = trace(what, module, inputs(LENGTHS[0]), shapes, [output], optimize=False)
    gate(what, model, module, shapes, [inputs(real) for real in LENGTHS])
    return model, first.shape
