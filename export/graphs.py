"""A client's graphs are traced to ONNX here: its scores, and what else a device computes without training.

Graphs have no numbers of their own: every tensor is an input, named by role and name. The score graph takes

    items.T         rows of table T for the items to score            [n, width]
    history.T       rows of table T for the client's past positives   [h, width]
    label.history   1 for each of them, 0 for padding                 [h]
    weight.history  1/h for each of them, 0 for padding               [h]
    shared.X        a shared dense tensor
    private.X       a private dense tensor

Of programs that read items in order, the past positives are a window of the newest, of `program.window` positions:
where there are fewer, the first are padding, labelled 0.

    times.history   seconds since the first real one                [h]

The graph of what a candidate leans on takes the same, and gives `weights` over the positions of the window [n, L]. The
graph of a message takes the rows of the newest positive and of what came before it [1 + context, width], and
`pairs.there` [context], 1 where there is such an item.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from export.artifact_cache import checked
from export.batches import Batch, Pairs, Window, told
from export.program import LocalProgram
from export.trace import Shape, example_rows, filled, graph_of, noise
from privacy.errors import InputError

VECTORS = "vectors"  # the table of finished item vectors, of clients that read texts
EXPLAIN = "onnx/explain.onnx"
SIZES = ((1, 1), (2, 3), (5, 1), (33, 8))  # (items, past positives) each score graph is compared on
OF_WINDOWS = ((1, 1), (2, 3), (5, 0), (33, 8))  # and the graph of what candidates lean on
LENGTHS = (3, 1, 4, 0, 1000)
"""Real positions of the windows that a graph is compared on; as many as there are where there are fewer."""


@dataclass(frozen=True)
class Gathered(Batch):
    """This is the batch of one client on a device: table rows come gathered, in the order of the items.

    `tables` pairs each whole table with its rows for these items; the program's `rows` and `frozen` find them
    by the table they ask for. `label` and `weight` are those of past positives: 1 and 1/n, 0 and 0 for
    padding; items to score have neither.
    """

    tables: Sequence[tuple[Tensor, Tensor]]
    label: Tensor = field(default_factory=lambda: torch.empty(0))
    weight: Tensor = field(default_factory=lambda: torch.empty(0))
    history: Batch | None = None
    training: bool = False
    pairs: Pairs | None = None

    def rows(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)

    def frozen(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)

    def beside(self, table: Tensor) -> Tensor | None:
        return next((rows for whole, rows in self.tables if whole is table), None)

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.matmul(x, weight) + bias.unsqueeze(-2)

    def over_items(self, values: Tensor) -> Tensor:
        return values.sum()  # they are all different


def gathered(tables: Sequence[tuple[Tensor, Tensor]], table: Tensor) -> Tensor:
    """Return the rows that stand beside a whole table."""
    for whole, rows in tables:
        if whole is table:
            return rows
    raise InputError("the program reads a table that is neither in specs (kind 'rows') nor in frozen")


@dataclass(frozen=True)
class Viewed(Window):
    """A client's window of its session on a device, whose rows come gathered as `Gathered`'s do."""

    tables: Sequence[tuple[Tensor, Tensor]] = ()

    @classmethod
    def of(cls, tables: Sequence[tuple[Tensor, Tensor]], real: Tensor, times: Tensor) -> Viewed:
        """Make the window whose positions are `real` (1, or 0 for padding), `times` seconds after its first [L]."""
        nowhere = torch.empty(0, dtype=torch.int64)
        return cls(nowhere, nowhere, real, real, times=times, tables=tables)

    def rows(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)

    def frozen(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)


def table_widths(program: LocalProgram) -> dict[str, int]:
    """Width of every per-item table a program reads: its `rows` tensors, then its frozen tables."""
    rows = {name: spec.shape[1] for name, spec in program.specs.items() if spec.kind == "rows"}
    return rows | {name: int(table.shape[1]) for name, table in program.frozen.items()}


def scored_tables(program: LocalProgram) -> dict[str, int]:
    """Width of every table a score graph reads: the program's own, or finished item vectors where it reads texts.

    A client that runs a language model reads every title once per update of the model (`vectors_graph`), not whenever
    it recommends.
    """
    return table_widths(program) if program.transformer is None else {VECTORS: program.transformer.width}


def history_shapes(program: LocalProgram, widths: Mapping[str, int]) -> dict[str, Shape]:
    """Return a graph's inputs about the client's past positives, or its window; `widths` of the tables it reads."""
    window = program.window
    size: str | int = "h" if window is None else window
    out: dict[str, Shape] = {f"history.{name}": (size, width) for name, width in widths.items()}
    return out | {"label.history": (size,), "weight.history" if window is None else "times.history": (size,)}


def example_history(program: LocalProgram, past: int) -> dict[str, Tensor]:
    """Return inputs beside the rows for `past` positives; of a window at most as many as it has positions."""
    window = program.window
    if window is None:
        return {"label.history": torch.ones(past), "weight.history": torch.full((past,), 1 / past)}
    real = (torch.arange(window) >= window - past).float()
    return {"label.history": real, "times.history": real * (torch.arange(window) ** 2 // 3 * 60.0)}


_Function = Callable[[dict[str, Tensor]], Tensor]
"""What a graph computes of its inputs by name."""


Example = tuple[Mapping[str, int], Mapping[str, Tensor]]
"""Sizes, and the inputs that are not drawn."""


def _traced(
    program: LocalProgram,
    what: str,
    output: str,
    shapes: Mapping[str, Shape],
    function: _Function,
    examples: Sequence[Example],
) -> Any:
    """Trace a function of inputs of these `shapes`; `examples`: inputs to try.

    The first is traced, the others are compared. Raises `InputError` for a graph that differs from torch.
    """
    tables, cases = program.frozen, list[list[Tensor]]()
    for sizes, given in examples:
        drawn = {n: example_rows(n, tables.get(n.partition(".")[2]), filled(s, sizes)) for n, s in shapes.items()}
        cases.append([given.get(name, value) for name, value in drawn.items()])
    what = f"{what} of {program.name}"
    return graph_of(what, function, shapes, output, cases[0], cases[1:], program.constants)


def _of_rows(program: LocalProgram, what: str, output: str, shapes: dict[str, Shape], function: _Function) -> Any:
    """Trace what is made of rows of the frozen tables, `items.T`, and of tensors of these `shapes`; n is free."""
    rows: dict[str, Shape] = {f"items.{name}": ("n", int(table.shape[1])) for name, table in program.frozen.items()}
    shapes = rows | shapes | {name: tuple(constant.shape) for name, constant in program.constants.items()}
    return _traced(program, what, output, shapes, function, [({"n": n}, program.constants) for n in (5, 1, 2, 5, 33)])


@checked
def vectors_graph(program: LocalProgram) -> Any:
    """Return the ONNX graph of a client's item vectors: `items.T`, `shared.X` in, `vectors` [n, d] out; n is free.

    Raises `InputError` when the graph differs from torch by more than 1e-4 on any of four sizes.
    """

    def vectors(given: dict[str, Tensor]) -> Tensor:
        tensors = {name.removeprefix("shared."): value for name, value in given.items()}
        return program.vectors(tensors, Gathered([(key, given[f"items.{n}"]) for n, key in program.frozen.items()]))

    shared: dict[str, Shape] = {f"shared.{n}": s.shape for n, s in program.specs.items() if s.place == "shared"}
    return _of_rows(program, "vectors graph", VECTORS, shared, vectors)


@checked
def prepared_graph(program: LocalProgram, name: str) -> Any:
    """Return the ONNX graph that makes rows of a prepared table: `items.T` of frozen tables in, rows [n, width] out.

    The output is called as the table is. Raises `InputError` when the graph differs from torch by more than 1e-4.
    """

    def prepared(given: dict[str, Tensor]) -> Tensor:
        tables = [(key, given[f"items.{n}"]) for n, key in program.frozen.items()]
        return program.prepare(name, given, Gathered(tables))

    return _of_rows(program, f"graph of {name}", name, {}, prepared)


def keys_of_rows(program: LocalProgram) -> dict[str, Tensor]:
    """Return what stands for each `rows` tensor in a graph, by name: its gathered rows are the inputs."""
    return {name: torch.empty(0) for name, spec in program.specs.items() if spec.kind == "rows"}


def held(program: LocalProgram, keys: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all tensors of a program, of the inputs of a graph by name."""
    return {n: keys[n] if n in keys else given[f"{s.place}.{n}"] for n, s in program.specs.items()}


def _dense(program: LocalProgram, names: Collection[str]) -> dict[str, Shape]:
    """Return the inputs that dense tensors of these names are."""
    specs = program.specs
    return {f"{specs[n].place}.{n}": specs[n].shape for n in names if specs[n].kind == "dense"}


def _seen(program: LocalProgram, names: Collection[str], use: Callable[..., Tensor]) -> _Function:
    """Return `use(tensors, candidates, past vectors, the candidates' own)` as a function of a score graph's inputs."""
    keys, specs = keys_of_rows(program) | program.frozen, program.specs

    def tables(role: str, given: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        return [(key, given[f"{role}.{name}"]) for name, key in keys.items() if f"{role}.{name}" in given]

    def vectors(role: str, tensors: dict[str, Tensor], batch: Batch, given: dict[str, Tensor]) -> Tensor:
        ready = given.get(f"{role}.{VECTORS}")
        return program.vectors(tensors, batch) if ready is None else ready

    def function(given: dict[str, Tensor]) -> Tensor:
        tensors = {n: keys[n] if n in keys else given[f"{specs[n].place}.{n}"] for n in names}
        history: Batch | None = None
        past = None
        if program.needs_history:
            had, label = tables("history", given), given["label.history"]
            if program.window is None:
                history = Gathered(had, label, given["weight.history"])
            else:
                history = Viewed.of(had, label, given["times.history"])
            past = vectors("history", tensors, history, given)
        items = Gathered(tables("items", given), history=history)
        return use(tensors, items, past, vectors("items", tensors, items, given))

    return function


@checked
def score_graph(program: LocalProgram, tensors: Collection[str] | None = None) -> Any:
    """Return the ONNX graph of one client's scores: all tensors in by name, `scores` [n] out; n and h are free.

    Traces `vectors`, `user` and `score` for a client that has the named `tensors` (None: all; a client
    without personal layers lacks those). Inputs the scores do not depend on are left out. Raises `InputError`
    when the graph differs from torch by more than 1e-4 on any of four sizes.
    """

    def score(tensors: dict[str, Tensor], items: Gathered, past: Tensor | None, vectors: Tensor) -> Tensor:
        return program.score(tensors, items, vectors, program.user(tensors, items, past, vectors)).reshape(-1)

    names = list(program.specs) if tensors is None else [name for name in program.specs if name in tensors]
    return _scored(program, "score graph", "scores", names, score, SIZES)


@checked
def explain_graph(program: LocalProgram, tensors: Collection[str]) -> Any:
    """Return the ONNX graph of what candidates lean on. Raises `InputError` where it is more than 1e-4 from torch."""
    names = [name for name in program.specs if name in tensors]
    return _scored(program, "explaining graph", "weights", names, program.explain, OF_WINDOWS)


def _scored(
    program: LocalProgram,
    what: str,
    output: str,
    names: Sequence[str],
    use: Callable[..., Tensor],
    sizes: Sequence[tuple[int, int]],
) -> Any:
    widths = scored_tables(program)
    shapes: dict[str, Shape] = {f"items.{name}": ("n", width) for name, width in widths.items()}
    if program.needs_history:
        shapes |= history_shapes(program, widths)
    had: Callable[[int], dict[str, Tensor]]
    had = partial(example_history, program) if program.needs_history else lambda past: {}
    examples = [({"n": n, "h": h}, had(h)) for n, h in ((5, 3), *sizes)]
    return _traced(program, what, output, shapes | _dense(program, names), _seen(program, names, use), examples)


def window_graph(
    program: LocalProgram, function: Callable[..., Tensor | None], output: str
) -> tuple[Any, torch.Size] | None:
    """Trace `function(tensors, window)` to ONNX, inputs by name; return graph and shape, or None where it makes none.

    Raises `InputError` when the graph differs from torch by more than 1e-4 on windows of any length.
    """
    keys = keys_of_rows(program)
    shapes = history_shapes(program, table_widths(program)) | _dense(program, program.specs)

    def of_window(given: dict[str, Tensor]) -> Any:
        tables = [(key, given[f"history.{name}"]) for name, key in keys.items()]
        window = Viewed.of(tables, given["label.history"], given["times.history"])
        return function(held(program, keys, given), window)

    drawn = {name: noise(name, filled(shape, {})) for name, shape in shapes.items()}
    first = of_window(drawn | example_history(program, LENGTHS[0]))
    if first is None:
        return None
    lengths = (LENGTHS[0], *LENGTHS)
    examples: list[Example] = [({}, example_history(program, real)) for real in lengths]
    return _traced(program, f"{output} graph", output, shapes, of_window, examples), first.shape


@checked
def message_graph(program: LocalProgram) -> Any:
    """Return the ONNX graph of a client's message. Raises `InputError` where it is more than 1e-4 from torch."""
    keys, before = keys_of_rows(program) | program.frozen, program.window or 0
    shapes: dict[str, Shape] = {f"items.{name}": (1 + before, width) for name, width in table_widths(program).items()}
    shapes |= {"pairs.there": (before,)} | _dense(program, program.specs)

    def message(given: dict[str, Tensor]) -> Tensor:
        tensors = held(program, keys, given)
        places = torch.arange(1 + len(given["pairs.there"]))
        one = told(places, places, given["pairs.there"])
        tables = [(key, given[f"items.{name}"]) for name, key in keys.items()]
        made = program.publish(tensors, Gathered(tables, one.label, one.weight, pairs=one.pairs))
        if made is None:
            raise InputError(f"{program.name} says that it publishes messages, and makes none")
        return made.reshape(-1)

    there = [(torch.arange(before) >= before - real).float() for real in (before, before, before // 2, 0)]
    examples: list[Example] = [({}, {"pairs.there": real}) for real in there]
    return _traced(program, "message graph", "prototype", shapes, message, examples)
