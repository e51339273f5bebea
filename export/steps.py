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

A graph is shipped after one client's training in it and in torch, each going on from its own values, came to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from edge.optimiser import corrections
from export.program import LocalProgram, Phase
from export.step import ITEMS, Optimisers, Sizes, Step, Values
from export.trace import (
    Shape,
    example_rows,
    filled,
    hold,
    noise,
    open_session,
    refused,
    trace,
    without_stacks,
)
from privacy.errors import InputError

TOLERANCE = 1e-5  # largest allowed difference of a loss, a parameter or a moment; relative where they exceed 1
STEPS = 51
BATCHES, PASTS, PAIRS = (1, 40, 17, 5), (3, 1, 8), (2, 1, 9, 4, 30)  # of the steps in turn, from the second on
RATES = {"sgd": 0.1, "adam": 1e-4}
"""Of the steps that are checked: rates are an input, so any will do. Adam takes a whole step for a gradient that is of
rounding alone, which some of a wide layer's thousands are."""
GENTLE = 0.2  # of the rates, and of what changes it, where a language model is trained: it magnifies what rounds off


def check_step(what: str, graph: Any, step: Step) -> float:
    """Train 51 steps with the graph and with torch; the largest difference in losses and in what the phase changes.

    Raises `InputError` naming the tensor and the step that differ.
    """
    with refused(what):
        session = open_session(graph)
        wanted = {i.name for i in session.get_inputs()}

        def in_torch(inputs: Values) -> Values:
            return dict(zip(step.outputs(), step(*inputs.values()), strict=True))

        def in_onnx(inputs: Values) -> Values:
            feeds = {name: value.numpy() for name, value in inputs.items() if name in wanted}
            return dict(zip(step.outputs(), map(torch.from_numpy, session.run(step.outputs(), feeds)), strict=True))

        worst, (theirs, ours) = 0.0, (first_values(step), first_values(step))
        for number in range(1, STEPS + 1):
            expected, got = advance(step, theirs, in_torch, number), advance(step, ours, in_onnx, number)
            for name, value in got.items():
                error = _largest_difference(value, expected[name])
                if not error <= TOLERANCE:
                    raise InputError(
                        f"{what} differs from torch by {error:.2g} in '{name}' at step {number}: it cannot be shipped"
                    )
                worst = max(worst, error)
    return worst


def first_values(step: Step) -> Values:
    """Make all that a client holds: whole tables, dense tensors and rates by input name, keyed and always the same."""
    program, shapes = step.program, step.shapes()
    _, marks = kept_by(program)  # tensors that say yes: of no other number is a loss meant
    out: Values = {}
    for name, shape in shapes.items():
        role, _, rest = name.partition(".")
        if name.endswith((".first", ".second")) and name.rpartition(".")[0] in step.moving():
            out[name] = torch.zeros(filled(shape, {"n": ITEMS}))
        elif role == "lr":
            rate = RATES[step.phase.optimiser] * (GENTLE if program.constants else 1.0)
            out[name] = torch.full(filled(shape, {}), rate)
        elif name == "theta":
            calm = () if program.transformer is None else program.transformer.per_token
            parts = {part: noise(part, size) for part, size in step.dense.items()}
            out[name] = torch.cat([(GENTLE if n in calm else 1.0) * value.flatten() for n, value in parts.items()])
        elif role in ("shared", "private"):
            out[name] = torch.ones(filled(shape, {})) if rest in marks else noise(name, filled(shape, {}))
        elif role == "items":
            out[name] = example_rows(name, program.frozen.get(rest), filled(shape, {"n": ITEMS}))
    return out | dict(program.constants)


def kept_by(program: LocalProgram) -> tuple[dict[str, str], list[str]]:
    """Return what a client keeps of a round: private tensors by the tensor each is then set to, and those set to 1.

    Raises `InputError` for a program that keeps anything else.
    """
    numbers = dict(enumerate(program.specs, 2))  # a tensor that holds nothing but its number is found again
    given = program.remember({name: torch.tensor([float(number)]) for number, name in numbers.items()})
    values = {name: value.unique().tolist() for name, value in given.items()}
    if any(len(found) != 1 or found[0] not in {1.0, *map(float, numbers)} for found in values.values()):
        raise InputError(f"{program.name} remembers what no device does: a tensor that it has, or 1")
    keeps = {name: numbers[int(value)] for name, (value,) in values.items() if value != 1.0}
    return keeps, [name for name, (value,) in values.items() if value == 1.0]


def inputs_of(step: Step, client: Values, number: int, sizes: Sizes) -> tuple[Tensor, Values]:
    """Make the items of step `number` (from 1) and all its inputs by name, for so many examples."""
    items, examples = step.examples(client, number, sizes)
    factor, epsilon = (torch.tensor([float(value)]) for value in corrections(number, step.phase.beta_2))
    inputs = client | {name: value[items] for name, value in client.items() if name.startswith("items.")}
    inputs |= examples | {"factor": factor, "epsilon": epsilon}
    return items, {name: inputs[name] for name in step.shapes()}


def advance(step: Step, client: Values, run: Callable[[Values], Values], number: int) -> Values:
    """Take a step of a client, whose values are changed in place; what the step gave."""
    sizes = Sizes(*(some[number % len(some)] for some in (BATCHES, PASTS, PAIRS)))
    items, inputs = inputs_of(step, client, number, sizes)
    out = run(inputs)
    for name, value in out.items():
        before = name.removesuffix(".next")
        if before.startswith("items."):
            client[before] = client[before].index_copy(0, items, value)
        elif before != name:
            client[before] = value
    return out


def _largest_difference(a: Tensor, b: Tensor) -> float:
    same = a.shape == b.shape and bool(a.numel())
    return float((a - b).abs().max() / b.abs().max().clamp(min=1)) if same else float("inf")


def step_graph(
    program: LocalProgram, phase: Phase, optimisers: Optimisers, kind: Callable[..., Step] = Step
) -> tuple[Any, float]:
    """Return the ONNX graph of one optimiser step of a phase, and how near it stays to torch; n, h and p are free.

    `kind` makes the step of program, phase and optimisers. Raises `InputError` for a phase that cannot be traced, and,
    naming tensor and step, for a graph that does not train like torch.
    """
    step = kind(program, phase, optimisers)
    what = f"step graph of phase '{phase.name}' of {program.name}"
    shapes = step.shapes()
    example = list(inputs_of(step, first_values(step), 1, free_sizes(shapes))[1].values())
    # the gradient is traced first, with symbolic sizes: the exporter cannot see through torch.func
    with without_stacks():
        traced = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*example)
    # optimize=False: the exporter's own optimiser drops additions of 1e-8 and smaller, Adam's epsilon among them
    graph = hold(trace(what, traced, example, shapes, step.outputs(), optimize=False), program.constants)
    return graph, check_step(what, graph, step)


def free_sizes(shapes: Mapping[str, Shape]) -> Sizes:
    """Return sizes that no tensor of the graph has: tracing takes equal sizes for the same size.

    >>> free_sizes({"theta": (17,), "items.text": ("n", 19)})
    Sizes(examples=18, past=20, pairs=21)
    """
    fixed = {size for shape in shapes.values() for size in shape}
    free = (size for size in range(17, 64) if size not in fixed)
    return Sizes(next(free), next(free), next(free))
