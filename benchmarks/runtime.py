"""What the device's runtime costs beside torch: a fresh process that trains an adapter or encodes a text, and its disk.

    python benchmarks/runtime.py [--repeat N] [--bundle DIR]

The adapter is TransFR's (312-128-64-32 and a user vector, 50k trained values) on 40 rows, the encoder a BERT of 4
layers of 312 with 30,522 pieces and random weights on 64 tokens, in int8 for onnxruntime. Every figure is the least of
`--repeat` processes of their own with one thread: cold start is wall time from launch to the first result, CPU time
and peak memory are those until then, milliseconds the median CPU time of a call. Disk is without the .pyc files that
pip adds. `--bundle` adds a whole device: the bundle checked and opened, draws, steps of all its phases. Limits are the
project's own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROWS, TOKENS, WIDTH, ITEMS = 40, 64, 312, 200
CALLS = 200
LIMITS = {  # seconds from cold, ms a call, MB at the peak
    "adapter step, numpy + onnxruntime": {"cold s": 0.5, "ms": 0.25, "peak MB": 60.0},
    "int8 encoder, numpy + onnxruntime": {"ms": 3.2, "peak MB": 90.0},
}
DISK_MB = 150.0
SHOWN = {"cold s": "load_s", "peak MB": "peak_mb"}


# --- in processes of their own: what is imported above counts for them ---


def step_onnx(folder: Path, kind: str = "sgd") -> Callable[[], object]:
    """A step of the adapter through the device's own graph runner."""
    import numpy as np

    from edge.graph import Graph

    graph = Graph(folder / f"{kind}.onnx")
    feeds = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in graph.inputs}
    return lambda: graph.run_all(feeds)


def step_torch(folder: Path) -> Callable[[], object]:
    """A step of the same adapter in eager torch."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    layers = [torch.nn.Linear(a, b) for a, b in ((WIDTH, 128), (128, 64), (64, 32))]
    adapter = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])
    user = torch.nn.Parameter(torch.zeros(32))
    optimiser = torch.optim.SGD([*adapter.parameters(), user], lr=1e-3, foreach=False)
    rows, label = torch.randn(ROWS, WIDTH), (torch.arange(ROWS) % 5 == 0).float()

    def step() -> None:
        optimiser.zero_grad()
        F.binary_cross_entropy_with_logits((adapter(rows) * user).sum(-1), label).backward()
        optimiser.step()

    return step


def encode_onnx(folder: Path) -> Callable[[], object]:
    """One text through the int8 encoder."""
    import numpy as np

    from edge.graph import Graph

    graph = Graph(folder / "encoder.i8.onnx", folder / "encoder.i8.onnx.data")
    ids = (np.arange(TOKENS, dtype=np.int64) * 97 % 30_000)[None]
    return lambda: graph.run({"ids": ids, "mask": np.ones_like(ids)})


def encode_torch(folder: Path) -> Callable[[], object]:
    """One text through the same encoder in transformers, fp32."""
    import torch
    from transformers import BertModel

    torch.set_num_threads(1)
    model = BertModel.from_pretrained(folder / "bert", local_files_only=True).eval()
    ids = (torch.arange(TOKENS) * 97 % 30_000)[None]

    def run() -> None:
        with torch.inference_mode():
            model(input_ids=ids, attention_mask=torch.ones_like(ids))

    return run


WORK: dict[str, Callable[[Path], Callable[[], object]]] = {
    "adapter step, numpy + onnxruntime": step_onnx,
    "the same with Adam": partial(step_onnx, kind="adam"),
    "adapter step, torch": step_torch,
    "int8 encoder, numpy + onnxruntime": encode_onnx,
    "fp32 encoder, torch + transformers": encode_torch,
}


def child(asked: dict[str, Any]) -> None:
    """Do one kind of work and print its figures."""
    from privacy.machine import peak_mb  # the standard library alone

    call = WORK[asked["work"]](Path(asked["folder"]))
    call()
    cold, cpu, peak = time.monotonic() - asked["started"], time.process_time(), peak_mb()
    samples = []
    for _ in range(CALLS):
        began = time.process_time()
        call()
        samples.append(time.process_time() - began)
    print(json.dumps({"cold s": cold, "CPU s": cpu, "peak MB": peak, "ms": 1e3 * sorted(samples)[len(samples) // 2]}))


# --- the parent ---


def prepare(folder: Path) -> None:
    """Graphs, inputs and weights for the children."""
    import numpy as np
    import torch
    from transformers import BertConfig, BertModel

    from edgefr.engine.optimisers import adam, sgd
    from edgefr.methods.transfr.program import TransFR
    from edgefr.methods.transfr.settings import TransFRSettings
    from export.steps import step_graph

    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for kind in ("sgd", "adam"):
        settings = TransFRSettings(optimiser=kind, adapter_init="random")
        program = TransFR(settings, torch.zeros(ITEMS, WIDTH), local_epochs=1)
        graph, _ = step_graph(program, program.phases[0], {"sgd": sgd, "adam": adam})
        (folder / f"{kind}.onnx").write_bytes(graph.SerializeToString())
        for value in graph.graph.input:
            shape = [d.dim_value or ROWS for d in value.type.tensor_type.shape.dim]
            feeds[value.name] = (0.05 * rng.standard_normal(shape)).astype(np.float32)
    feeds |= {"label": (np.arange(ROWS) % 5 == 0).astype(np.float32), "weight": np.full(ROWS, 1 / ROWS, np.float32)}
    feeds |= {name: np.abs(value) for name, value in feeds.items() if name.endswith((".second", "factor", "epsilon"))}
    for name, value in feeds.items():
        np.save(folder / f"{name}.npy", value)
    config = BertConfig(
        vocab_size=30_522, hidden_size=WIDTH, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200
    )
    torch.manual_seed(0)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder / "bert")
    quantised(folder)


def quantised(folder: Path) -> None:
    """The encoder in int8 at folder/encoder.i8.onnx, as bundles carry it."""
    from cloud.pooling import POOLINGS
    from export.torch_encoder import encoder_graph, load_encoder
    from export.weights import beside, stored_as

    module = load_encoder(folder / "bert", POOLINGS["mean"].pool)
    graph = stored_as("i8", encoder_graph(folder / "bert", module, module.words, module.longest), folder)
    small, large = beside(graph, "encoder.i8.onnx.data")
    (folder / "encoder.i8.onnx").write_bytes(small)
    (folder / "encoder.i8.onnx.data").write_bytes(large)


def measured(work: str, folder: Path, repeat: int) -> dict[str, float]:
    """The least of each figure over `repeat` fresh processes."""
    import subprocess

    from edgefr.fleet.calibrations.trial import one_thread

    found = []
    for _ in range(repeat):
        asked = {"work": work, "folder": str(folder), "started": time.monotonic()}
        command = [sys.executable, __file__, "--child", json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=one_thread(), check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: min(f[name] for f in found) for name in ("cold s", "CPU s", "peak MB", "ms")}


def whole_device(bundle: Path, repeat: int) -> dict[str, str]:
    """A row for a bundle that learns, as `edgefr calibrate` measures it."""
    from edgefr.fleet.calibrations.trial import Limits, run

    found = [run("learn", Limits(), 0.2, bundle) for _ in range(repeat)]
    bad = [result.outcome for result in found if not result.figures]
    if bad:
        raise SystemExit(f"{bundle} was not measured: {bad[0]}")
    figures = [result.figures for result in found]
    step = min(point[1] for f in figures for point in f["phases"][0]["points"][:1])
    row = {"process": f"a whole device, {figures[0]['phases'][0]['points'][0][0]:g} rows", "CPU s": "-"}
    row |= {column: _beside(min(f[name] for f in figures), None) for column, name in SHOWN.items()}
    return row | {"ms": _beside(step, None)}


def installed_mb(distribution: str) -> tuple[dict[str, float], float]:
    """Disk of a distribution and all that it needs without extras, MB by name, and in all."""
    from importlib.metadata import PackageNotFoundError, files, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    sizes: dict[str, float] = {}
    waiting = [distribution]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in sizes:
            continue
        try:
            paths = [Path(str(part.locate())) for part in files(name) or [] if part.suffix != ".pyc"]
            sizes[name] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
            needs = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            continue
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return sizes, sum(sizes.values())


def main() -> None:
    import argparse
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bundle", type=Path)
    arguments = parser.parse_args()
    from rich.console import Console

    from edgefr.config.sheet import Sheet

    rows = []
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for work in WORK:
            figures, limits = measured(work, Path(name), arguments.repeat), LIMITS.get(work, {})
            rows.append(
                {"process": work} | {column: _beside(value, limits.get(column)) for column, value in figures.items()}
            )
    if arguments.bundle is not None:
        rows.append(whole_device(arguments.bundle, arguments.repeat))
    console = Console()
    console.print(Sheet("fresh processes, one thread (limit)", rows, words=["process"]))
    sizes, total = installed_mb("edgefr")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    console.print(f"installed without torch: {_beside(total, DISK_MB)} MB in {len(sizes)} distributions")
    console.print(", ".join(f"{name} {size:.0f}" for name, size in largest))


def _beside(value: float, limit: float | None) -> str:
    """A figure, and the limit it is held to."""
    return f"{value:.3g}" + ("" if limit is None else f" ({limit:g}{'' if value <= limit else ', OVER'})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
