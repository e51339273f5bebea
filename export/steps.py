"""Tracing a phase of local training to ONNX: one graph is one optimiser step of one client, for any batch size.

    in   theta            the phase's dense tensors, flat, one after another          [P]
         lr               learning rate of each of their values                       [P]
         items.T          rows of table T for the batch's items, all different         [n, width]
         lr.T             learning rate of the rows of a trained table T              [1]
         label, weight    of the examples; weights sum to 1                            [n]
         pairs.positive   places of positives among the items, int64                  [p]
         pairs.negative   and of the negatives drawn for each, int64                  [p, negatives]
         pairs.share      of the loss, sum 1; pairs for phases that ask for them      [p]
         pairs.context    and of what the client had before each, int64               [p, context]
         pairs.there      1 where there is such an item, 0 where there is none        [p, context]
         history.T, ...   the client's past positives, as in the score graph          [h, width]
         shared.X, ...    dense tensors that the loss reads and the phase leaves alone
    out  loss [1], theta.next, items.T.next for trained tables

Adam adds its moments, theta.first and theta.second (items.T.first, ...), each with its `.next`, and the corrections of
the step number, `factor` and `epsilon` [1] (`edge.optimiser.corrections`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from export.program import LocalProgram, Phase
from export.step import Layout, Optimisers, Sizes, Step
from export.step_check import StepCheck, check_step, first_values, inputs_of
from export.trace import Shape, constants_of, hold, trace, without_stacks


def step_graph(
    program: LocalProgram, phase: Phase, optimisers: Optimisers, kind: Callable[..., Step] = Step
) -> tuple[Any, StepCheck]:
    """Return the ONNX graph of one optimiser step of a phase, and how near it stays to torch; n, h and p are free.

    `kind` makes the step of program, phase, optimisers, layout and keys of tables. Raises `InputError` for a phase that
    cannot be traced, and, naming tensor and step, for a graph that does not train like torch (`export.step_check`).
    """
    step = kind(program, phase, optimisers, Layout.of(program, phase), keys_of(program))
    what = f"step graph of phase '{phase.name}' of {program.name}"
    shapes = step.shapes()
    example = list(inputs_of(step, first_values(step), 1, free_sizes(shapes))[1].values())
    # the gradient is traced first, with symbolic sizes: the exporter cannot see through torch.func
    with without_stacks():
        traced = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*example)
    # optimize=False: the exporter's own optimiser drops additions of 1e-8 and smaller, Adam's epsilon among them
    graph = hold(trace(what, traced, example, shapes, step.outputs(), optimize=False), constants_of(program))
    return graph, check_step(what, graph, step)


def keys_of(program: LocalProgram) -> dict[str, Tensor]:
    """Return every per-item table that a step's loss may ask its batch for, by name."""
    rows = {name: torch.empty(0) for name, spec in program.specs.items() if spec.kind == "rows"}
    return rows | program.frozen | dict(program.prepared)


def free_sizes(shapes: Mapping[str, Shape]) -> Sizes:
    """Return sizes that no tensor of the graph has: tracing takes equal sizes for the same size.

    >>> free_sizes({"theta": (17,), "items.text": ("n", 19)})
    Sizes(examples=18, past=20, pairs=21)
    """
    fixed = {size for shape in shapes.values() for size in shape}
    free = (size for size in range(17, 64) if size not in fixed)
    return Sizes(next(free), next(free), next(free))
