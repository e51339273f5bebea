"""The graph of what a candidate leans on is traced here: a program's `explain`, as its scores are (`export.graphs`).

in   items.T, history.T, label.history, times.history, shared.X, private.X, as of the score graph
out  weights   of each candidate, over the positions of the window   [n, L]
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from export.artifact_cache import checked
from export.graphs import Scores, score_inputs
from export.program import LocalProgram
from export.trace import gate, trace

EXPLAIN = "onnx/explain.onnx"
SIZES = ((1, 1), (2, 3), (5, 0), (33, 8))  # (candidates, past positives) the graph is compared on


class Weights(Scores):
    """One client's weights [n, L], the way a device computes them, as a function of the graph's inputs in order."""

    def forward(self, *inputs: Tensor) -> Tensor:
        tensors, items, past, vectors = self.seen(*inputs)
        return self._program.explain(tensors, items, past, vectors)


@checked
def explain_graph(program: LocalProgram, tensors: Collection[str]) -> Any:
    """Return the ONNX graph of what candidates lean on. Raises `InputError` where it is more than 1e-4 from torch."""
    names = [name for name in program.specs if name in tensors]
    shapes, inputs = score_inputs(program, names)
    module, what = Weights(program, names, list(shapes)), f"explaining graph of {program.name}"
    model = trace(what, module, inputs(5, 3), shapes, ["weights"], optimize=False)
    gate(what, model, module, shapes, [inputs(n, h) for n, h in SIZES])
    return model
