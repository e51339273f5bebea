"""This counts operations and bytes of a bundle's activities from its manifest: the weights of the two-part ratio.

Only their proportion matters: how long the host takes is measured.
"""

from __future__ import annotations

from math import prod

from edge.bundle import Bundle
from edge.learning import Learning, TensorRecord
from edge.manifest import Words
from edgefr.fleet.calibration import StepWork

FLOAT = 4  # bytes of a value while it is computed with


def of_recommending(bundle: Bundle) -> tuple[float, float]:
    """Return (operations, bytes) of scoring the catalogue: two per dense value and item; tables are read, and widened.

    Where a device reads texts itself, the weights in the score graph meet every token of every item.
    """
    sizes, items = bundle.manifest.model, bundle.manifest.item_count
    widths = sum(table.width for table in bundle.config.tables)
    stored = sum(_size(bundle, table.path) for table in bundle.config.tables)
    weights, tokens = _reading(bundle, [bundle.config.score])
    flops = 2.0 * items * (sizes.shared_parameters + sizes.private_parameters + widths + weights * tokens)
    return flops, stored + 2.0 * FLOAT * items * widths


def of_encoding(bundle: Bundle, tokens: int) -> tuple[float, float]:
    """Return (operations, bytes) of encoding a text of so many tokens: two per weight and token; every weight is read.

    The word table is counted whole; an encoder by words alone reads a row per token.
    """
    part = bundle.config.encoder
    if isinstance(part, Words):
        values = float(tokens * part.width)
        return 2.0 * values, 2.0 * values if part.table else 0.0
    weights = sum(file.size for file in bundle.manifest.files if file.role == "encoder")
    return 2.0 * tokens * bundle.manifest.model.encoder_parameters, float(weights)


def of_step(bundle: Bundle, examples: float) -> StepWork:
    """Return the work of one step of a round with so many examples, counted as `edgefr.engine.footprint` counts it.

    Where a device reads texts, the step graph's weights meet every token, word table included: an upper estimate.
    """
    learning = bundle.config.learning
    assert learning is not None
    phases = [phase for phase in learning.phases if phase.when == "round"]
    used = {name for phase in phases for name in (*phase.dense, *phase.tables)}
    widths = sum(tensor.shape[-1] for tensor in learning.tensors) + sum(t.width for t in bundle.config.tables)
    weights, tokens = _reading(bundle, [phase.graph for phase in phases])
    forward = sum(2.0 * (_values(t) if t.kind == "dense" else t.shape[-1]) for t in _read(learning))
    trained = sum(
        _values(t) if t.kind == "dense" else min(t.shape[0], examples) * t.shape[-1]
        for t in learning.tensors
        if t.name in used
    )
    return StepWork(
        examples=examples,
        flops_per_example=forward + 2.0 * weights * tokens,
        trained_parameters=trained,
        resident_parameters=sum(_values(tensor) for tensor in learning.tensors) + weights,
        activation_bytes=FLOAT * examples * widths,
        upload_bytes=FLOAT * learning.uploaded,
        optimiser=phases[0].optimiser if phases else "sgd",
        passes=2.0 if tokens else 3.0,
        width=max(tensor.shape[-1] for tensor in learning.tensors),
    )


def _read(learning: Learning) -> list[TensorRecord]:
    used = {name for phase in learning.phases if phase.when == "round" for name in (*phase.dense, *phase.tables)}
    return [tensor for tensor in learning.tensors if tensor.name in used or tensor.place == "shared"]


def _reading(bundle: Bundle, graphs: list[str]) -> tuple[float, float]:
    """Return (weights, tokens of a text) of the language model in the largest of these graphs; zeros without one."""
    tokens = float(sum(table.width for table in bundle.config.tables if table.dtype == "i32"))
    return (max((_size(bundle, path) for path in graphs), default=0.0) / FLOAT, tokens) if tokens else (0.0, 0.0)


def _values(tensor: TensorRecord) -> int:
    return prod(tensor.shape)


def _size(bundle: Bundle, path: str) -> float:
    return float(sum(file.size for file in bundle.manifest.files if file.path == path))
