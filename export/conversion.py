"""A graph that torch traced becomes ONNX once, and is kept under the digest of all that was traced.

One that is read from there goes through the same gate as a new one: it is compared with torch before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import torch

from export import artifact_cache as kept
from privacy.files import cache_dir

MAKERS = ("torch", "onnx", "onnxscript")
"""Packages of which another version may make another graph."""

RECIPE = 2
"""Raise it when the same traced program would become another graph: it is part of the digest."""


def converted(traced: Any, names: Sequence[Sequence[str]], optimize: bool, convert: Callable[[], Any]) -> Any:
    """Return the ONNX model that `convert` makes of an exported program; one that was made before is read instead.

    `names` are those of inputs and outputs, which are in the graph beside what was traced. One that was damaged is made
    anew.
    """
    import onnx

    path = cache_dir() / "graphs" / f"{digest(traced, names, optimize)}.onnx"
    content = kept.read(path)
    if content is not None:
        return onnx.load_model_from_string(content)
    model = convert()
    kept.keep(path, model.SerializeToString(deterministic=True))
    return model


def digest(traced: Any, names: Sequence[Sequence[str]], optimize: bool) -> str:
    """Return the digest of an exported program: its operations, sizes, tensors, names, and what turns it into ONNX."""
    found = sha256()
    code = traced.graph_module.print_readable(print_output=False, include_stride=True)
    lines = [line.split("  #")[0] for line in code.splitlines() if not line.lstrip().startswith("#")]
    said = [*lines, traced.graph_signature, traced.range_constraints, *map(list, names), optimize]
    said += [RECIPE, *((name, version(name)) for name in MAKERS)]
    found.update("\n".join(map(str, said)).encode())
    for name, value in sorted({**traced.state_dict, **traced.constants}.items()):
        found.update(f"\n{name} {type(value).__name__}".encode())
        if isinstance(value, torch.Tensor):
            found.update(f" {value.dtype} {tuple(value.shape)}".encode())
            found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]
