"""Messages that clients of sets send beside their updates are traced here, with what else is exchanged.

in   items.T       rows of table T for the newest positive, then for what came before it   [1 + context, width]
     pairs.there   1 where there is such an item, 0 where there is none                    [context]
     shared.X, private.X
out  prototype     the message                                                             [P]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from export.artifact_cache import checked
from export.batches import told
from export.graphs import Gathered, table_widths
from export.program import LocalProgram
from export.trace import Shape, example_rows, filled, gate, trace
from privacy.errors import InputError

MESSAGE = "prototype"


class _OfNewest(torch.nn.Module):
    """This is `program.publish` of a client's newest positive, as a function of the graph's inputs in order."""

    def __init__(self, program: LocalProgram, inputs: list[str]) -> None:
        super().__init__()
        self._program, self._inputs = program, inputs
        self._keys = {n: torch.empty(0) for n, s in program.specs.items() if s.kind == "rows"} | program.frozen

    def forward(self, *inputs: Tensor) -> Tensor:
        given, specs = dict(zip(self._inputs, inputs, strict=True)), self._program.specs
        tensors = {n: self._keys[n] if n in self._keys else given[f"{specs[n].place}.{n}"] for n in specs}
        places = torch.arange(1 + len(given["pairs.there"]))
        one = told(places, places, given["pairs.there"])
        tables = [(key, given[f"items.{name}"]) for name, key in self._keys.items()]
        message = self._program.publish(tensors, Gathered(tables, one.label, one.weight, pairs=one.pairs))
        if message is None:
            raise InputError(f"{self._program.name} says that it publishes messages, and makes none")
        return message.reshape(-1)


@checked
def message_graph(program: LocalProgram) -> Any:
    """Return the ONNX graph of a client's message. Raises `InputError` where it is more than 1e-4 from torch."""
    before = program.window or 0
    shapes: dict[str, Shape] = {f"items.{name}": (1 + before, width) for name, width in table_widths(program).items()}
    shapes |= {"pairs.there": (before,)}
    shapes |= {f"{s.place}.{name}": s.shape for name, s in program.specs.items() if s.kind == "dense"}

    def inputs(real: int) -> list[Tensor]:
        there = (torch.arange(before) >= before - real).float()
        rows = {n: example_rows(n, program.frozen.get(n.partition(".")[2]), filled(s, {})) for n, s in shapes.items()}
        return [there if name == "pairs.there" else value for name, value in rows.items()]

    module, what = _OfNewest(program, list(shapes)), f"message graph of {program.name}"
    model = trace(what, module, inputs(before), shapes, [MESSAGE], optimize=False)
    gate(what, model, module, shapes, [inputs(real) for real in {before, before // 2, 0}])
    return model


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
