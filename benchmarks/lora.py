"""Clients that train low-rank matrices in an encoder: what a step takes on a device and in the simulator.

    python benchmarks/lora.py [--layers 1 2 4] [--steps N]

An encoder of 4 layers of 312 values (1,200 inside, 30,522 words) with random weights, titles of 32 tokens, rank 8,
Adam. A step of 10 titles of one client: as a device takes it, in a process of its own that has read the titles before
with what lies under the trained layers (`reading ms`, 10 titles; once, not in every step), and as the simulator does
(the gradients, in torch). One thread, CPU time, the least of `--steps`; `peak MB` is that of the whole process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from edgefr.config.sheet import Sheet
from edgefr.engine.optimisers import adam, sgd
from edgefr.methods.transfr.bert import Bert, TitleReader
from edgefr.methods.transfr.lora import STATES, LoRATransFR
from edgefr.methods.transfr.settings import TransFRSettings
from export.batches import One
from export.graphs import prepared_graph
from export.step import Sizes, Step
from export.steps import first_values, inputs_of, step_graph
from export.weights import beside_all

ITEMS, TOKENS, TITLES = 64, 32, 10
MATHS = {"sgd": sgd, "adam": adam}
ON_DEVICE = """
import json, sys, time
from pathlib import Path
import numpy as np
from edge.graph import Graph
folder, steps = Path(sys.argv[1]), int(sys.argv[2])
feeds, out = dict(np.load(folder / "feeds.npz")), {}

def least(graph, fed):
    seconds = []
    for _ in range(steps):
        started = time.process_time()
        graph.run_all(fed)
        seconds.append(time.process_time() - started)
    return 1e3 * min(seconds)

if (folder / "prepared.onnx").exists():
    graph = Graph(folder / "prepared.onnx", folder / "weights")
    out["reading"] = least(graph, {"items.tokens": feeds["items.tokens"]})
out["step"] = least(Graph(folder / "step.onnx", folder / "weights"), feeds)
out["peak"] = next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps(out))
"""


def program(layers: int) -> LoRATransFR:
    """A client of an encoder with random weights, of whose layers the last so many have matrices."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(1000, 30_000, (ITEMS, TOKENS), dtype=np.int32))
    reader = TitleReader(tokens, Bert.of(BertModel(config).eval(), "mean"))
    return LoRATransFR(TransFRSettings(client="lora", lora_layers=layers), reader, torch.randn(ITEMS, 312), 1)


def on_device(made: LoRATransFR, folder: Path, steps: int) -> dict[str, str]:
    """What a device's process takes, and how far its graph is from torch."""
    phase = made.phases[0]
    graph, check = step_graph(made, phase, MATHS)
    graphs = {"step": graph}
    if made.prepared:
        graphs["prepared"] = prepared_graph(made, STATES)
    small, large = beside_all(list(graphs.values()), "weights")
    for name, content in zip(graphs, small, strict=True):
        (folder / f"{name}.onnx").write_bytes(content)
    (folder / "weights").write_bytes(large)
    step = Step(made, phase, MATHS)
    _, inputs = inputs_of(step, first_values(step), 1, Sizes(TITLES, 1, 1))
    wanted = {i.name for i in graph.graph.input}
    np.savez(folder / "feeds.npz", **{n: v.numpy() for n, v in inputs.items() if n in wanted})
    command = [sys.executable, "-c", ON_DEVICE, str(folder), str(steps)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout)
    row = {"step ms": f"{found['step']:.1f}", "reading ms": f"{found.get('reading', 0.0):.1f}"}
    row |= {"peak MB": f"{found['peak']:.0f}", "MB up": f"{4 * step.values / 2**20:.2f}"}
    return row | {"nodes": f"{len(graph.graph.node):,}", "error": f"{check.error:.1e}"}


def simulated(made: LoRATransFR, steps: int) -> float:
    """Milliseconds of the gradients of one client's step in the simulator."""
    items = torch.arange(TITLES)
    batch = One(items, items, (items % 5 == 0).float(), torch.full((TITLES,), 1 / TITLES))
    shared = made.init_shared(0)
    tensors = shared | {n: v[0] for n, v in made.init_private(0, torch.arange(1)).items()}
    seconds = []
    for _ in range(steps):
        started = time.process_time()
        made.gradients(tensors, batch, made.phases[0])
        seconds.append(time.process_time() - started)
    return 1e3 * min(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 4], help="trained layers, the last so many")
    parser.add_argument("--steps", type=int, default=40, help="how often a step is taken")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for layers in chosen.layers:
        made = program(layers)
        with tempfile.TemporaryDirectory() as folder:
            row = on_device(made, Path(folder), chosen.steps)
        row["simulated ms"] = f"{simulated(made, chosen.steps):.1f}"
        rows.append({"trained layers": str(layers), **row})
    Console(width=140).print(Sheet("a step of 10 titles of 32 tokens", rows, words=[]))


if __name__ == "__main__":
    main()
