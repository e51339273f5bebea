"""There is one way from torch to ONNX, one gate that compares with torch, one form of every graph that is shipped."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import config

from export import random_streams as purposes
from export.artifact_cache import graph_at
from privacy import keyed
from privacy.errors import InputError

MAKERS = ("torch", "onnx", "onnxscript")
"""Packages of which another version may make another graph."""

RECIPE = 2
"""Raise it when the same traced program would become another graph: it is part of the digest."""


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


OPSET = 18
IR = 8  # the file format of opset 18; the exporter writes a newer one without using anything of it
Shape = tuple[int | str, ...]  # a text names a dimension of any size
MOVES = {"Concat", "Gather", "Identity", "Range", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators whose output has the type of their first input."""
STACKS = "do_not_emit_stack_traces"  # a setting that torch 2.9 does not know yet, and ignores
TOLERANCE = 1e-4  # largest allowed difference from torch of a graph that computes values


def noise(name: str, shape: tuple[int, ...]) -> Tensor:
    """Keyed normal numbers, scaled down so that sums over the last dimensions stay near 1."""
    size = int(np.prod(shape, dtype=np.int64))
    values = keyed.normal(keyed.key(0, purposes.graph_gate(name)), np.arange(size)) / max(1, shape[0]) ** 0.5
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def example_rows(name: str, table: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Return rows to try a graph with: noise, or the frozen table's own where they are token numbers."""
    if table is None or table.is_floating_point():
        return noise(name, shape)
    return table.cpu()[torch.arange(shape[0]) % len(table)]


def filled(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with numbers in place of its named dimensions."""
    return tuple(sizes[d] if isinstance(d, str) else d for d in shape)


def open_session(model: Any) -> Any:
    """A graph in onnxruntime as devices run it: checked, default optimisation, one thread on the CPU."""
    import onnx

    from edge.ort import ort

    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, options.enable_mem_pattern = 1, 3, False
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Anything onnx or onnxruntime complains of is one `InputError`: they have no common class of their own."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what} is not a valid ONNX graph: {(str(error).splitlines() or ['?'])[0]}") from error


@contextmanager
def without_stacks() -> Iterator[None]:
    """Trace without noting which lines of code an operation came from: that takes a fifth of the time."""
    before = getattr(config, STACKS, False)
    setattr(config, STACKS, True)
    try:
        yield
    finally:
        setattr(config, STACKS, before)


def trace(
    what: str,
    module: torch.nn.Module,
    inputs: list[Tensor],
    shapes: Mapping[str, Shape],
    outputs: Sequence[str],
    optimize: bool,
    largest: Mapping[str, int] | None = None,
) -> Any:
    """Export to ONNX with the named dimensions free, without metadata and unused inputs.

    `shapes` names the module's arguments in order, `outputs` its results; `what` begins the message of an `InputError`.
    """
    largest = largest or {}
    dims = {
        d: torch.export.Dim(d, min=2, max=largest.get(d, 1 << 30))
        for shape in shapes.values()
        for d in shape
        if isinstance(d, str)
    }
    dynamic = tuple({k: dims[d] for k, d in enumerate(shape) if isinstance(d, str)} for shape in shapes.values())
    noisy = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = noisy.level
    noisy.setLevel(logging.ERROR)  # it warns of packages that none of this needs
    try:
        with warnings.catch_warnings(), torch.no_grad(), without_stacks():
            warnings.simplefilter("ignore")
            variadic = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values())
            traced = torch.export.export(
                module, tuple(inputs), dynamic_shapes=(dynamic,) if variadic else dynamic, strict=False
            )
            names = list(shapes), list(outputs)
            return graph_at(f"graphs/{digest(traced, names, optimize)}", partial(_onnx, traced, *names, optimize))
    except (torch._dynamo.exc.UserError, torch.onnx.errors.OnnxExporterError) as error:
        raise InputError(f"{what} cannot be traced: {str(error).splitlines()[0]}") from error
    finally:
        noisy.setLevel(level)


def _onnx(traced: Any, inputs: list[str], outputs: list[str], optimize: bool) -> Any:
    """Turn an exported program into ONNX as it is shipped (`export.trace.RECIPE` counts its versions)."""
    program = torch.onnx.export(
        traced,
        dynamo=True,
        opset_version=OPSET,
        input_names=inputs,
        output_names=outputs,
        optimize=optimize,
        verbose=False,
    )
    assert program is not None
    return _with_slices(_with_shifts(_with_long_places(_strip(program.model_proto))))


def _with_long_places(model: Any) -> Any:
    """Let places to scatter to be int64 where they were counted in int32, of which ONNX has no ScatterND."""
    from onnx import TensorProto, helper

    short: set[str] = set()
    nodes = []
    for node in model.graph.node:
        to = [attribute.i for attribute in node.attribute if attribute.name == "to"]
        if to == [TensorProto.INT32] or (node.op_type in MOVES and node.input[0] in short):
            short |= set(node.output)
        if node.op_type == "ScatterND" and node.input[1] in short:
            long = f"{node.output[0]}.places"
            nodes.append(helper.make_node("Cast", [node.input[1]], [long], to=TensorProto.INT64))
            node.input[1] = long
        nodes.append(node)
    return _of_nodes(model, nodes)


def _of_nodes(model: Any, nodes: list[Any]) -> Any:
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _strip(model: Any) -> Any:
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]
    used = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    kept = [i for i in graph.input if i.name in used]
    del graph.input[:]
    graph.input.extend(kept)
    model.ir_version = IR
    return model


def _with_shifts(model: Any) -> Any:
    """Give layer normalisations without a shift one of zeros: onnxruntime 1.17 looks for it in each, and aborts."""
    from onnx import helper

    nodes = []
    for node in model.graph.node:
        if node.op_type == "LayerNormalization" and len(node.input) == 2:
            scale, shift = node.input[1], f"{node.output[0]}.shift"
            nodes.append(helper.make_node("Sub", [scale, scale], [shift]))
            node.input.append(shift)
        nodes.append(node)
    return _of_nodes(model, nodes)


def _with_slices(model: Any) -> Any:
    """Cut tensors by Slice where a sequence of parts was made: no graph of a device has sequences."""
    from onnx import helper, numpy_helper

    known = {node.output[0]: node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"}
    known |= {tensor.name: tensor for tensor in model.graph.initializer}
    cut = {node.output[0]: node for node in model.graph.node if node.op_type == "SplitToSequence"}
    nodes = []
    for node in model.graph.node:
        if node.op_type != "SequenceAt":
            nodes += [] if node.op_type == "SplitToSequence" else [node]
            continue
        made, out = cut[node.input[0]], node.output[0]
        place = int(numpy_helper.to_array(known[node.input[1]]))
        sizes = numpy_helper.to_array(known[made.input[1]])  # of each part; one number: of every part
        begin = int(sizes * place if sizes.ndim == 0 else sizes[:place].sum())
        end = begin + int(sizes if sizes.ndim == 0 else sizes[place])
        axis = next((attribute.i for attribute in made.attribute if attribute.name == "axis"), 0)
        names = [f"{out}.{name}" for name in ("begin", "end", "axis")]
        for name, value in zip(names, (begin, end, axis), strict=True):
            nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array([value]))))
        nodes.append(helper.make_node("Slice", [made.input[0], *names], [out]))
    return _of_nodes(model, nodes)


def hold(model: Any, constants: Mapping[str, Tensor]) -> Any:
    """Return the graph with the inputs of these names as tensors of its own.

    Traced as inputs, since real tensors among symbolic ones fix the sizes of the example.
    """
    from onnx import numpy_helper

    inputs = {i.name for i in model.graph.input}
    kept = [i for i in model.graph.input if i.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    held = [numpy_helper.from_array(v.cpu().numpy(), name) for name, v in constants.items() if name in inputs]
    model.graph.initializer.extend(held)
    return model


def gate(
    what: str,
    model: Any,
    module: torch.nn.Module,
    shapes: Mapping[str, Shape],
    cases: list[list[Tensor]],
) -> None:
    """Check the graph and compare its first output with torch's on every case."""
    with refused(what):
        session = open_session(model)
        wanted = {i.name for i in session.get_inputs()}
        for case in cases:
            given = {name: x.numpy() for name, x in zip(shapes, case, strict=True) if name in wanted}
            with torch.no_grad():
                expected = module(*case).numpy()
            got = session.run(None, given)[0]
            error = float(np.abs(got - expected).max()) if got.shape == expected.shape else float("inf")
            if not error <= TOLERANCE:
                sizes = ", ".join(str(list(x.shape)) for x in case[:3])
                raise InputError(f"{what} differs from torch by {error:.2g} on inputs {sizes}: it cannot be shipped")


class _OfInputs(torch.nn.Module):
    def __init__(self, function: Callable[[dict[str, Tensor]], Tensor], names: list[str]) -> None:
        super().__init__()
        self._function, self._names = function, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._function(dict(zip(self._names, inputs, strict=True)))


def graph_of(
    what: str,
    function: Callable[[dict[str, Tensor]], Tensor],
    shapes: Mapping[str, Shape],
    output: str,
    example: list[Tensor],
    cases: list[list[Tensor]],
    constants: Mapping[str, Tensor] = MappingProxyType({}),
) -> Any:
    """Trace what `function` makes of its inputs by name; the graph holds `constants` and does as torch on all cases."""
    module = _OfInputs(function, list(shapes))
    # optimize=False: the exporter's own optimiser drops additions of 1e-8 and smaller
    model = hold(trace(what, module, example, shapes, [output], optimize=False), constants)
    gate(what, model, module, shapes, cases)
    return model
