"""One client's scores and a text encoder are traced to ONNX. No graph leaves here without matching torch.

The score graph has no numbers of its own: every tensor is an input, named by role and name.

    items.T         rows of table T for the items to score            [n, width]
    history.T       rows of table T for the client's past positives   [h, width]
    label.history   1 for each of them, 0 for padding                 [h]
    weight.history  1/h for each of them, 0 for padding               [h]
    shared.X        a shared dense tensor
    private.X       a private dense tensor

Of programs that read items in order, the past positives are a window of the newest, of `program.window` positions:
where there are fewer, the first are padding, labelled 0.

    times.history   seconds since the first real one                [h]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export import random_streams as purposes
from export.artifact_cache import checked
from export.batches import Batch, Pairs, Window
from export.program import LocalProgram
from export.trace import Shape, constants_of, example_rows, filled, gate, hold, trace
from privacy import keyed
from privacy.errors import InputError

VECTORS = "vectors"  # the table of finished item vectors, of clients that read texts
SIZES = (
    (1, 1),
    (2, 3),
    (5, 1),
    (33, 8),
)  # (items, past positives) or (texts, tokens) each graph is compared on


@dataclass(frozen=True)
class Gathered:
    """This is the batch of one client on a device: table rows come gathered, in the order of the items.

    `tables` pairs each whole table with its rows for these items; the program's `rows` and `frozen` find them
    by the table they ask for. `label` and `weight` are those of past positives: 1 and 1/n, 0 and 0 for
    padding; items to score have neither.
    """

    tables: Sequence[tuple[Tensor, Tensor]]
    label: Tensor = field(default_factory=lambda: torch.empty(0))
    weight: Tensor = field(default_factory=lambda: torch.empty(0))
    history: Gathered | Viewed | None = None
    training: bool = False
    pairs: Pairs | None = None

    def rows(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)

    def frozen(self, table: Tensor) -> Tensor:
        return gathered(self.tables, table)

    def beside(self, table: Tensor) -> Tensor | None:
        """Return rows of a prepared table for these items, [n, width]; None where the graph is given none."""
        return next((rows for whole, rows in self.tables if whole is table), None)

    def own(self, tensor: Tensor) -> Tensor:
        return tensor.unsqueeze(-2)

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.matmul(x, weight) + bias.unsqueeze(-2)

    def mean(self, values: Tensor) -> Tensor:
        """Take the mean over the client's examples; for batches with a weight."""
        return (values * self.weight).sum()

    def over_items(self, values: Tensor) -> Tensor:
        """Sum over the batch's items, which are all different."""
        return values.sum()


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


def window_of(program: LocalProgram) -> int | None:
    """Return the number of positions of the window that a program reads to score; None: it reads nothing in order."""
    return program.window


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
    window = window_of(program)
    size: str | int = "h" if window is None else window
    out: dict[str, Shape] = {f"history.{name}": (size, width) for name, width in widths.items()}
    return out | {"label.history": (size,), "weight.history" if window is None else "times.history": (size,)}


def example_history(program: LocalProgram, past: int) -> dict[str, Tensor]:
    """Return inputs beside the rows for `past` positives; of a window at most as many as it has positions."""
    window = window_of(program)
    if window is None:
        return {"label.history": torch.ones(past), "weight.history": torch.full((past,), 1 / past)}
    real = (torch.arange(window) >= window - past).float()
    return {"label.history": real, "times.history": real * (torch.arange(window) ** 2 // 3 * 60.0)}


class _Vectors(torch.nn.Module):
    def __init__(self, program: LocalProgram, inputs: list[str]) -> None:
        super().__init__()
        self._program, self._inputs = program, inputs

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self._inputs, inputs, strict=True))
        tensors = {name.removeprefix("shared."): value for name, value in given.items()}
        tables = [(key, given[f"items.{name}"]) for name, key in self._program.frozen.items()]
        vectors: Tensor = self._program.vectors(tensors, Gathered(tables))
        return vectors


@checked
def vectors_graph(program: LocalProgram) -> Any:
    """Return the ONNX graph of a client's item vectors: `items.T`, `shared.X` in, `vectors` [n, d] out; n is free.

    Raises `InputError` when the graph differs from torch by more than 1e-4 on any of four sizes.
    """
    constants = constants_of(program)
    shapes: dict[str, Shape] = {f"items.{name}": ("n", int(t.shape[1])) for name, t in program.frozen.items()}
    shapes |= {f"shared.{name}": s.shape for name, s in program.specs.items() if s.place == "shared"}
    shapes |= {name: tuple(constant.shape) for name, constant in constants.items()}

    def inputs(n: int) -> list[Tensor]:
        sizes = {k: filled(shape, {"n": n}) for k, shape in shapes.items()}
        rows = {k: example_rows(k, program.frozen.get(k.partition(".")[2]), s) for k, s in sizes.items()}
        return [constants.get(k, value) for k, value in rows.items()]

    module, what = _Vectors(program, list(shapes)), f"vectors graph of {program.name}"
    model = hold(trace(what, module, inputs(5), shapes, [VECTORS], optimize=False), constants)
    gate(what, model, module, shapes, [inputs(n) for n, _ in SIZES])
    return model


class _Prepared(torch.nn.Module):
    """This is `program.prepare` of one table, as a function of the graph's inputs in order."""

    def __init__(self, program: LocalProgram, name: str, inputs: list[str]) -> None:
        super().__init__()
        self._program, self._name, self._inputs = program, name, inputs

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self._inputs, inputs, strict=True))
        tables = [(key, given[f"items.{name}"]) for name, key in self._program.frozen.items()]
        return self._program.prepare(self._name, given, Gathered(tables))


@checked
def prepared_graph(program: LocalProgram, name: str) -> Any:
    """Return the ONNX graph that makes rows of a prepared table: `items.T` of frozen tables in, rows [n, width] out.

    The output is called as the table is. Raises `InputError` when the graph differs from torch by more than 1e-4.
    """
    constants = constants_of(program)
    shapes: dict[str, Shape] = {f"items.{n}": ("n", int(t.shape[1])) for n, t in program.frozen.items()}
    shapes |= {n: tuple(constant.shape) for n, constant in constants.items()}

    def inputs(n: int) -> list[Tensor]:
        sizes = {k: filled(shape, {"n": n}) for k, shape in shapes.items()}
        rows = {k: example_rows(k, program.frozen.get(k.partition(".")[2]), s) for k, s in sizes.items()}
        return [constants.get(k, value) for k, value in rows.items()]

    module, what = _Prepared(program, name, list(shapes)), f"graph of {name} of {program.name}"
    model = hold(trace(what, module, inputs(5), shapes, [name], optimize=False), constants)
    gate(what, model, module, shapes, [inputs(n) for n, _ in SIZES])
    return model


class Scores(torch.nn.Module):
    """One client's scores [n], the way a device computes them, as a function of the graph's inputs in order."""

    def __init__(self, program: LocalProgram, tensors: Collection[str], inputs: list[str]) -> None:
        super().__init__()
        self._program, self._tensors, self._inputs = program, tensors, inputs
        # a rows tensor is only a key here: its gathered rows are the inputs
        self._keys = {n: torch.empty(0) for n, s in program.specs.items() if s.kind == "rows"} | program.frozen

    def forward(self, *inputs: Tensor) -> Tensor:
        tensors, items, past, vectors = self.seen(*inputs)
        user = self._program.user(tensors, items, past, vectors)
        scores: Tensor = self._program.score(tensors, items, vectors, user).reshape(-1)
        return scores

    def seen(self, *inputs: Tensor) -> tuple[dict[str, Tensor], Gathered, Tensor | None, Tensor]:
        """Return what a program's `user` is asked with: tensors, candidates, past vectors and the candidates' own."""
        given = dict(zip(self._inputs, inputs, strict=True))
        specs = self._program.specs
        tensors = {n: self._keys[n] if n in self._keys else given[f"{specs[n].place}.{n}"] for n in self._tensors}
        history = past = None
        if self._program.needs_history:
            history = self._history(given)
            past = self._vectors("history", tensors, history, given)
        items = Gathered(self._tables("items", given), history=history)
        return tensors, items, past, self._vectors("items", tensors, items, given)

    def _history(self, given: Mapping[str, Tensor]) -> Gathered | Viewed:
        tables, label = self._tables("history", given), given["label.history"]
        if window_of(self._program) is None:
            return Gathered(tables, label, given["weight.history"])
        return Viewed.of(tables, label, given["times.history"])

    def _tables(self, role: str, given: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        return [(key, given[f"{role}.{name}"]) for name, key in self._keys.items() if f"{role}.{name}" in given]

    def _vectors(self, role: str, tensors: dict[str, Tensor], batch: Batch, given: dict[str, Tensor]) -> Tensor:
        ready = given.get(f"{role}.{VECTORS}")
        vectors: Tensor = self._program.vectors(tensors, batch) if ready is None else ready
        return vectors


@checked
def score_graph(program: LocalProgram, tensors: Collection[str] | None = None) -> Any:
    """Return the ONNX graph of one client's scores: all tensors in by name, `scores` [n] out; n and h are free.

    Traces `vectors`, `user` and `score` for a client that has the named `tensors` (None: all; a client
    without personal layers lacks those). Inputs the scores do not depend on are left out. Raises `InputError`
    when the graph differs from torch by more than 1e-4 on any of four sizes.
    """
    names = list(program.specs) if tensors is None else [name for name in program.specs if name in tensors]
    shapes, inputs = score_inputs(program, names)
    module = Scores(program, names, list(shapes))
    # optimize=False: the exporter's own optimiser drops additions of 1e-8 and smaller
    what = f"score graph of {program.name}"
    model = trace(what, module, inputs(5, 3), shapes, ["scores"], optimize=False)
    gate(what, model, module, shapes, [inputs(n, h) for n, h in SIZES])
    return model


def score_inputs(
    program: LocalProgram, names: Sequence[str]
) -> tuple[dict[str, Shape], Callable[[int, int], list[Tensor]]]:
    """Return the inputs of a score graph by name, and a function that makes some for n items and h past positives."""
    widths = scored_tables(program)
    shapes: dict[str, Shape] = {f"items.{name}": ("n", width) for name, width in widths.items()}
    if program.needs_history:
        shapes |= history_shapes(program, widths)
    dense = {name: program.specs[name] for name in names if program.specs[name].kind == "dense"}
    shapes |= {f"{spec.place}.{name}": spec.shape for name, spec in dense.items()}

    def inputs(n: int, h: int) -> list[Tensor]:
        sizes = {"n": n, "h": h}
        numbers = {k: filled(shape, sizes) for k, shape in shapes.items()}
        given = example_history(program, h) if program.needs_history else {}
        return [
            given[k] if k in given else example_rows(k, program.frozen.get(k.partition(".")[2]), s)
            for k, s in numbers.items()
        ]

    return shapes, inputs


class TorchEncoder(torch.nn.Module):
    """This is a transformers model and a pooling of its states: ids, mask int64 [B, L] -> vectors [B, hidden].

    `words` is the size of its vocabulary, `longest` the most tokens it can read.
    """

    def __init__(self, model: Any, pool: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self._pool = model, pool
        self.words, self.longest = int(model.config.vocab_size), int(model.config.max_position_embeddings)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return self._pool(hidden, mask)


def load_encoder(folder: Path, pool: Callable[[Tensor, Tensor], Tensor]) -> TorchEncoder:
    """Load the text encoder in a transformers folder, in fp32 for inference.

    `pool` makes vectors [B, f] of states [B, L, f] and the mask [B, L]. Raises `InputError` for a folder that does not
    load.
    """
    from safetensors import SafetensorError
    from transformers import AutoModel

    try:
        with _no_bars():
            model = AutoModel.from_pretrained(folder, attn_implementation="eager", local_files_only=True)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{folder} does not load as a transformers folder: {str(error).splitlines()[0]}") from error
    return TorchEncoder(model.eval().float(), pool)


@contextmanager
def _no_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def encoder_graph(folder: Path, module: torch.nn.Module, words: int, longest: int) -> Any:
    """Return the ONNX graph of a text encoder: `ids`, `mask` int64 [B, L] in, `vectors` float32 [B, width] out.

    `module` is the encoder from `folder`, which knows `words` pieces and reads at most `longest` of them. Raises
    `InputError` when the graph differs from torch by more than 1e-4 on any of four sizes.
    """

    def inputs(batch: int, length: int) -> list[Tensor]:
        bits = keyed.integers(keyed.key(0, purposes.ENCODER_GATE, batch), np.arange(batch * length), words)
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length // 2 + 1 :] = 0
        return [torch.from_numpy(bits.reshape(batch, length)), mask]

    shapes: dict[str, Shape] = {"ids": ("B", "L"), "mask": ("B", "L")}
    # optimize=True: folds the weights' transposes, without which they would not be quantised
    what = f"encoder graph of {folder}"
    traced = trace(what, module, inputs(3, 6), shapes, ["vectors"], optimize=True, largest={"L": longest})
    gate(what, traced, module, shapes, [inputs(b, n) for b, n in SIZES])
    return traced
