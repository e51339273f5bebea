"""This breaks files on purpose, thousands of them, and counts what becomes of them.

    python -m tests.edge.fuzz [SHARE]      all cases, or a share of them such as 0.1

Every case has a number, which alone decides what is broken. It ends in one `InputError` of one line, or in what the
undamaged file says; files without a digest of their own (graphs, updates, YAML) may also come to something else within
the rules of the format, which is counted apart. Anything else is a fault: another error, or more than `LONGEST_S`.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge.archive import unpack
from edge.bundle import open_bundle
from edge.delta import Delta, read_delta, write_delta
from edge.device import Device
from edge.graph import Graph
from edge.graph_check import OPERATORS
from edge.policy import NAME, OPEN, Policy
from edge.state import STATE, Store
from edge.update import read_update
from edge.verified_files import mapped_array
from edgefr.experiment.experiment import load_experiment
from export.archive import pack
from privacy.errors import InputError
from tests.contract import bundles
from tests.edge.folders import resign, tree

LONGEST_S = 10.0
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**9, 0.5, -0.0, 1e308, 1e-320, "", "x"),
    *("../x", "CON", "a:b", "é", "\u202e", "\x00", "\n", "9" * 5000, [], {}, [[]], [0] * 50, {"a": {}}, "BF16", "F4"),
    *("F8_E4M3", "I64", "F32", float("nan"), float("inf"), "item", "user", "onnx/score.onnx", "1.17", "i8"),
)
TEXTS = (
    "0x" + "f" * 50_000,
    "1:2:3",
    "&a",
    "*a",
    "!!int 9",
    "[[[[",
    "{",
    "2020-13-45",
    ".inf",
    "- - -",
    "? :",
    "|\n",
    "\t",
)
Rng = np.random.Generator


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def flipped(rng: Rng, content: bytes) -> bytes:
    """Some bytes over others, cut out, put in or cut off; often where headers are."""
    made = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        near = min(len(made), 1500)
        spot = int(pick(rng, [rng.integers(len(made) + 1), rng.integers(near + 1), len(made) - rng.integers(near + 1)]))
        some = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
        kind = rng.integers(8)
        if kind < 4:
            made[spot : spot + len(some)] = some
        elif kind < 6:
            made[spot:spot] = some
        elif kind == 6:
            del made[spot : spot + len(some)]
        else:
            del made[spot:]
    return bytes(made)


def altered(rng: Rng, tree: Any) -> Any:
    """A JSON tree with something else somewhere, something less or something twice."""
    tree = json.loads(json.dumps(tree))
    spots, todo = [], [tree]
    while todo:
        node = todo.pop()
        pairs = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        spots += [(node, key) for key, _ in pairs]
        todo += [value for _, value in pairs if isinstance(value, dict | list)]
    for _ in range(int(rng.integers(1, 3))):
        node, key = pick(rng, spots)
        kind = rng.integers(6)
        if isinstance(node, list) and key >= len(node):
            continue
        if kind == 0:
            node.pop(key, None) if isinstance(node, dict) else node.pop(key)
        elif kind == 1 and isinstance(node, list):
            node.append(node[key])
        elif kind == 1:
            node[pick(rng, ["x", "", "é", "__metadata__", "item"])] = pick(rng, ODD)
        else:
            node[key] = pick(rng, ODD)
    return tree


def reheaded(rng: Rng, content: bytes) -> bytes:
    """A safetensors file whose header, or the JSON text in its metadata, says something else."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if rng.integers(2):
        header = altered(rng, header)
    else:
        key = next(iter(header["__metadata__"]))
        header["__metadata__"][key] = json.dumps(altered(rng, json.loads(header["__metadata__"][key])))
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + content[8 + size :]


def rewired(rng: Rng, content: bytes) -> bytes:
    """A graph with other operators, inputs, attributes or shapes somewhere."""
    made = onnx.ModelProto.FromString(content)
    names = [name for node in made.graph.node for name in node.output]
    for _ in range(int(rng.integers(1, 4))):
        node, kind = pick(rng, made.graph.node), rng.integers(6)
        if kind == 0:
            node.op_type = pick(rng, [*OPERATORS[""], "Loop", "If", "Tile", "é"])
        elif kind == 1 and node.input:
            node.input[int(rng.integers(len(node.input)))] = pick(rng, [*names, "", "theta", "nowhere"])
        elif kind == 2 and node.output:
            node.output[0] = pick(rng, [*names, "theta", ""])
        elif kind == 3 and node.attribute:
            attribute = pick(rng, node.attribute)
            attribute.i, attribute.type = int(pick(rng, [-(2**63), -1, 0, 7, 2**62])), int(rng.integers(1, 8))
        elif kind == 4:
            tensors = [a.t for n in made.graph.node for a in n.attribute if a.HasField("t")]
            tensor = pick(rng, tensors)
            tensor.dims.append(int(pick(rng, [0, 2, 2**31, 2**62])))
            tensor.data_type = int(rng.integers(0, 20))
        else:
            ends = pick(rng, [made.graph.input, made.graph.output])
            shape = pick(rng, ends).type.tensor_type.shape
            shape.dim.add(dim_value=int(pick(rng, [0, 1, 2**31, 2**62])))
    return made.SerializeToString()


@dataclass(frozen=True)
class Kind:
    """This is one kind of file: `run(rng)` breaks one, uses it, and says "same" or "rules"; `cases` in all."""

    name: str
    cases: int
    run: Callable[[Rng], str]


class World:
    """These are undamaged files of every kind, and what reading a broken one of each comes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle = shutil.copytree(bundles.bundle("fedmf"), folder / "bundle")
        (self.bundle / "manifest.sig.json").unlink(missing_ok=True)  # who can sign again needs no other way in
        self.whole = tree(self.bundle)
        self.archive = pack(self.bundle, folder / "a.zip").read_bytes()
        device = Device(self.bundle, folder / "state", policy=OPEN)
        self.learning, self.id = device.learning, device.bundle.manifest.bundle_id
        self.update = device.learn(["i1", "i2", "i3", "i4"]).to_bytes()
        self.state = (folder / "state" / STATE).read_bytes()
        change = Delta(self.id, 1, 2, rows={"item": (np.array([2, 5]), np.ones((2, 8), np.float32))})
        self.delta = write_delta(folder / "delta", change).read_bytes()
        self.graph = self.whole["onnx/step.0.onnx"]
        self.table = next(content for name, content in self.whole.items() if name.endswith(".npy"))
        self.experiment = "method: fedmf\nrounds: 3\nmodel:\n  dim: 8\n  lr: 0.5\nprivacy: {clip: 1.0, epsilon: 8}\n"
        self.policy = "signed: false\nepsilon: 4\n"

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def kinds(self) -> list[Kind]:
        return [
            Kind("zips", 1000, self.zips),
            Kind("manifests", 1000, self.manifests),
            Kind("configs, signed again", 700, self.configs),
            Kind("graphs", 1500, self.graphs),
            Kind("deltas", 1500, self.deltas),
            Kind("client updates", 1000, self.updates),
            Kind("states", 1000, self.states),
            Kind("arrays", 700, self.arrays),
            Kind("YAML", 1000, self.yaml),
        ]

    def zips(self, rng: Rng) -> str:
        path, new = self.write("b.zip", flipped(rng, self.archive)), self.folder / "new"
        try:
            unpack(path, new)
            assert tree(new) == self.whole
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return "same"

    def manifests(self, rng: Rng) -> str:
        path, good = self.bundle / "manifest.json", self.whole["manifest.json"]
        try:
            signed_again = bool(rng.integers(2))
            if signed_again:
                path.write_text(json.dumps(altered(rng, json.loads(good))))
                resign(self.bundle)
            else:
                path.write_bytes(flipped(rng, good))
            open_bundle(self.bundle)
            assert signed_again or path.read_bytes() == good
        except (KeyError, TypeError, AttributeError, OSError, ValueError) as error:
            if isinstance(error, InputError) or "folders.py" not in traceback.format_exc():
                raise
            raise InputError("it cannot even be signed") from error
        finally:
            same = path.read_bytes() == good
            path.write_bytes(good)
        return "same" if same else "rules"

    def configs(self, rng: Rng) -> str:
        path, good = self.bundle / "config.json", self.whole["config.json"]
        try:
            path.write_text(json.dumps(altered(rng, json.loads(good))))
            resign(self.bundle)
            shutil.rmtree(self.folder / "fresh", ignore_errors=True)
            device = Device(self.bundle, self.folder / "fresh", policy=OPEN, max_seconds=5)
            device.learn(["i1", "i2"])
            shown = device.recommend(3)
            scores = [score for *_, score in shown if shown.basis == "model"]
            assert len({item for item, *_ in shown} & set(device.catalogue.ids)) == len(shown)
            assert np.isfinite(scores).all()
            assert scores == sorted(scores, reverse=True)
        finally:
            path.write_bytes(good)
            (self.bundle / "manifest.json").write_bytes(self.whole["manifest.json"])
        return "rules"

    def graphs(self, rng: Rng) -> str:
        content = pick(rng, [flipped, rewired, rewired])(rng, self.graph)
        graph = Graph(self.write("m.onnx", content))
        sizes = {name: [3 if isinstance(n, str) else n for n in shape] for name, shape in graph.inputs.items()}
        if all(np.prod(shape, dtype=float) < 1e6 for shape in sizes.values()):
            graph.run_all({name: np.ones(shape, np.float32) for name, shape in sizes.items()})
        return "same" if content == self.graph else "rules"

    def deltas(self, rng: Rng) -> str:
        content = pick(rng, [flipped, reheaded])(rng, self.delta)
        found = read_delta(self.write("d", content), self.learning)
        assert all(np.isfinite(values).all() for _, values in found.rows.values())
        return "same" if content == self.delta else "rules"

    def updates(self, rng: Rng) -> str:
        content = pick(rng, [flipped, reheaded])(rng, self.update)
        found = read_update(content, self.learning, self.id)
        assert found.bundle == self.id
        return "same" if content == self.update else "rules"

    def states(self, rng: Rng) -> str:
        path = self.folder / "state" / STATE
        good = Store(path.parent).read().digest() if path.exists() else ""
        try:
            path.write_bytes(pick(rng, [flipped, reheaded])(rng, self.state))
            assert Store(path.parent).read().digest() == good
        finally:
            path.write_bytes(self.state)
        return "same"

    def arrays(self, rng: Rng) -> str:
        content = self.table
        if rng.integers(2):
            head = pick(rng, [b"<f4", b"(", b"False", b"shape", b"\x93", b"\x01\x00", b"}", b","])
            content = content.replace(
                head, pick(rng, [b"", b"|O", b"((((", b"-1", b"True", b">f8", b"9" * 30, b"\xff"]), 1
            )
        content = flipped(rng, content[:200]) + content[200:]
        found = mapped_array(self.write("x.npy", content))
        assert found.nbytes <= len(content)
        return "same" if content == self.table else "rules"

    def yaml(self, rng: Rng) -> str:
        text = pick(rng, [self.experiment, self.policy])
        good = text
        for _ in range(int(rng.integers(1, 4))):
            spot = int(rng.integers(len(text) + 1))
            text = text[:spot] + str(pick(rng, [*TEXTS, *ODD])) + text[spot + int(rng.integers(0, 6)) :]
        if good == self.policy:
            Policy.read(self.write(NAME, text.encode("utf-8", "replace")))
        else:
            load_experiment(self.write("e.yaml", text.encode("utf-8", "replace")))
        return "same" if text == good else "rules"


def fuzz(share: float = 1.0) -> dict[str, Counter[str]]:
    """Run a share of the cases of every kind; how many were refused, the same, within the rules, faults."""
    out: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in World(Path(folder)).kinds():
            found = out[kind.name] = Counter[str]()
            for number in range(round(kind.cases * share)):
                began = time.monotonic()
                found[one(kind, number)] += 1
                if time.monotonic() - began > LONGEST_S:
                    found["hangs"] += 1
                    print(f"{kind.name} {number} took {time.monotonic() - began:.1f} s")
    return out


def one(kind: Kind, number: int) -> str:
    """Run one case, and say what became of it."""
    try:
        return kind.run(np.random.default_rng([number, *kind.name.encode()]))
    except InputError as error:
        if len(str(error).splitlines()) == 1:
            return "refused"
        print(f"{kind.name} {number}: several lines")
    except ValueError as error:
        if kind.name == "arrays":  # its caller makes the one line of it
            return "refused"
        print(f"{kind.name} {number}: {error!r:.200}")
        traceback.print_exc(limit=-3)
    except Exception as error:
        print(f"{kind.name} {number}: {error!r:.200}")
        traceback.print_exc(limit=-3)
    return "faults"


def table(found: dict[str, Counter[str]]) -> str:
    """The counts as text."""
    columns = ("refused", "same", "rules", "faults", "hangs")
    lines = [f"{'':24}" + "".join(f"{name:>10}" for name in ("cases", *columns))]
    for name, counts in [*found.items(), ("all", sum(found.values(), Counter[str]()))]:
        cases = sum(counts[c] for c in columns[:-1])
        lines.append(f"{name:24}" + "".join(f"{n:>10,}" for n in (cases, *(counts[c] for c in columns))))
    return "\n".join(lines)


if __name__ == "__main__":
    counts = fuzz(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
    print(table(counts))
    sys.exit(any(each["faults"] or each["hangs"] for each in counts.values()))
