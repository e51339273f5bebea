"""What somebody made to break the Python device is refused by the one in TypeScript: the same cases, a line each."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest

from privacy.errors import InputError
from tests.contract import bundles
from tests.contract.bundles import fresh
from tests.contract.programs import interactions
from tests.devices import open_device
from tests.edge import test_bundle, test_delta, test_graph_check, test_hostile, test_tokenizer_check
from tests.edge.folders import edit_json, resign
from tests.edge.test_watch import model
from tests.edge_js.conftest import ROOT
from tests.export import worlds

pytestmark = pytest.mark.xdist_group("edge_js_people")
SLOWEST_MS = 3000
NO_DIFFERENCE_HERE = {"data_offsets": [0.0, 16.0]}
"""What JSON says of 0 and 0.0 is one number to JavaScript."""


def cases(test: Callable[..., object], which: int = 0) -> list[Any]:
    """What a test of the Python device is given."""
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    return list(marks[which].args[1])


@dataclass
class Corpus:
    """These are cases that are written to a folder, and what becomes of each in one process of Node."""

    folder: Path
    built: Path
    asked: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def file(self, name: str, what: str, content: bytes, **more: Any) -> None:
        path = self.folder / f"{len(self.asked)}"
        path.write_bytes(content)
        self._ask(name, {"what": what, "path": str(path), **more})

    def bundle(self, name: str, source: Path, change: Callable[[Path], object], *, signed_anew: bool = True) -> None:
        path = Path(shutil.copytree(source, self.folder / f"{len(self.asked)}"))
        ids = json.loads((path / "index" / "ids.json").read_text())["ids"]
        change(path)
        if signed_anew:
            resign(path)
        self._ask(name, {"what": "bundle", "path": str(path), "items": [ids[n] for n in interactions()[7]]})

    def _ask(self, name: str, asked: dict[str, Any]) -> None:
        self.names.append(name)
        self.asked.append(asked)

    def answers(self) -> dict[str, dict[str, Any]]:
        given = "".join(json.dumps(one) + "\n" for one in self.asked)
        line = ["node", self.built / "corpus.js"]
        done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return dict(zip(self.names, map(json.loads, done.stdout.splitlines()), strict=True))

    def refused(self, least: int) -> None:
        """All cases, of which there are so many, are refused at once, by an error of the device's own, in one line."""
        found = self.answers()
        assert len(found) == len(self.names) >= least
        odd = {name: one for name, one in found.items() if not one.get("ours") or one["lines"] != 1}
        slow = {name: one for name, one in found.items() if one["ms"] > SLOWEST_MS}
        assert (odd, slow) == ({}, {})


@pytest.fixture
def corpus(tmp_path: Path, built: Path) -> Corpus:
    return Corpus(tmp_path, built)


def test_learning_that_no_device_can_do(corpus: Corpus) -> None:
    def changed(path: Path, change: Callable[[Any], object], match: str) -> None:
        if "device's round" in match:
            edit_json(path / "config.json", lambda c: c["learning"].update(negatives=60, batch_size=1))
        edit_json(path / "config.json", lambda c: change(c["learning"]))

    for change, match in cases(test_hostile.test_learning_that_no_device_can_do):
        corpus.bundle(match, bundles.bundle("fedmf"), lambda path, c=change, m=match: changed(path, c, m))
    corpus.refused(18)


def test_folders_that_are_no_bundle(corpus: Corpus) -> None:
    """But for what a manifest asks of the runtime: here the runtime itself refuses a graph that it cannot read."""
    source = worlds.exported("transfr")[0] / "phone"
    for n, (change, match) in enumerate(cases(test_bundle.test_a_bad_folder_is_refused)):
        if "onnxruntime" not in match:
            corpus.bundle(f"{n} {match}", source, change, signed_anew=False)
    corpus.refused(35)


def test_names_of_files(corpus: Corpus) -> None:
    """Those that are other files elsewhere, and pairs that are one file somewhere."""
    pairs = cases(test_hostile.test_two_names_that_are_one_file_somewhere)
    for names in (*((name,) for name in test_hostile.ELSEWHERE), *pairs):

        def listed(path: Path, names: tuple[str, ...] = names) -> None:
            resign(path, lambda r: r["files"].extend(r["files"][0] | {"path": name} for name in names))

        corpus.bundle(repr(names), bundles.bundle("fedmf"), listed, signed_anew=False)
    corpus.refused(30)


def test_arrays_and_tensors_whose_headers_lie(corpus: Corpus) -> None:
    source = bundles.bundle("fedmf")
    for n, content in enumerate(cases(test_hostile.test_arrays_whose_header_lies)):
        table = next((source / "index").glob("*.npy")).relative_to(source)
        corpus.bundle(f"array {n}", source, lambda path, c=content, t=table: (path / t).write_bytes(c))
    dtypes, places = (cases(test_hostile.test_tensors_of_types_that_numpy_does_not_have, which) for which in (0, 1))
    for where, dtype in ((where, dtype) for where in places for dtype in dtypes):
        header = {"user": {"dtype": dtype, "shape": [8], "data_offsets": [0, 16]}}
        content = test_delta.with_header(header, bytes(16))
        corpus.bundle(f"{where} {dtype}", source, lambda path, w=where, c=content: (path / w).write_bytes(c))
    for n, header in enumerate(cases(test_hostile.test_headers_of_tensors_that_lie)):
        if not (isinstance(header, dict) and header.get("x") == test_hostile.ENTRY | NO_DIFFERENCE_HERE):
            corpus.file(f"header {n}", "tensors", test_delta.with_header(header, bytes(16)))
    corpus.refused(55)


def test_updates_of_the_server(corpus: Corpus) -> None:
    learning = json.loads(test_delta.learning().model_dump_json())
    files = {name: test_delta.file(tensors) for name, (tensors, _) in test_delta.BAD_TENSORS.items()}
    for facts, match in cases(test_delta.test_other_metadata_is_refused):
        files[match + str(facts)] = test_delta.file(test_delta.DENSE, facts)
    files |= {
        match + str(len(content)): content for content, match in cases(test_delta.test_hostile_headers_are_refused)
    }
    for tensors, match in cases(test_delta.test_only_what_the_bundle_shares_may_change):
        files[match] = test_delta.file(tensors)
    for name, content in files.items():
        corpus.file(name, "delta", content, learning=learning)
    corpus.refused(40)


def test_graphs_that_nobody_exports(corpus: Corpus) -> None:
    def graph(node: onnx.NodeProto, change: Callable[[onnx.ModelProto], object] = lambda made: None) -> bytes:
        made = onnx.load(model(corpus.folder / "m.onnx", [node], test_graph_check.X, []))
        change(made)
        return made.SerializeToString()

    for n, node in enumerate(cases(test_graph_check.test_operators_and_attributes_that_nobody_exports)):
        corpus.file(f"{node.op_type} {n}", "graph", graph(node))
    for n, change in enumerate(cases(test_graph_check.test_models_that_nobody_exports)):
        corpus.file(f"model {n}", "graph", graph(test_graph_check.COPY, change))
    corpus.refused(25)


def test_no_tokenizer_is_read(corpus: Corpus) -> None:
    """This device reads words and tables alone: whatever the tokenizer of a bundle says changes nothing."""
    source = worlds.exported("transfr")[0] / "laptop"
    corpus.bundle("ours", source, lambda path: None)
    for name, change in test_tokenizer_check.HOSTILE.items():
        corpus.bundle(name, source, lambda path, c=change: edit_json(path / "tokenizer.json", c))
    found = corpus.answers()
    ours = found["ours"]["top"]
    assert len(ours) == 3
    assert {name: one.get("top") for name, one in found.items()} == dict.fromkeys(found, ours)


LEARNING = {
    "parts of a session": lambda how: how["phases"][0].update(part="support"),
    "pairs of a session": lambda how: how["phases"][0].update(pairs=True),
    "a context of a session": lambda how: how["phases"][0].update(pairs=True, context=3),
    "a sum over a session": lambda how: how["phases"][0].update(summed=True),
    "messages beside those of sessions": lambda how: how.update(messages=exchange_of(how["sessions"])),
    "noise beside what is told": lambda how: how["release"].update(
        clip=1.0, noise="discrete-gaussian", scale=1.0, step=2**-10, noised="here"
    ),
}
"""What `learning` may not ask of a device's session."""
SESSIONS = {
    "a negative pause": {"gap_s": -1},
    "a pause without end": {"gap_s": 1 << 40},
    "a pause that is no whole number": {"gap_s": 0.5},
    "keeping what is not there": {"keeps": {"nobody": "item"}},
    "keeping what everybody has": {"keeps": {"encoder.norm.scale": "encoder.norm.scale"}},
    "keeping another shape": {"keeps": {"prototype": "encoder.position"}},
    "a mark of everybody's": {"marks": ["encoder.norm.scale"]},
    "a reply that nobody keeps": {"reply": "nobody"},
    "telling without a reply": {"reply": None},
    "telling without saying when": {"order": None},
    "another order": {"order": "never"},
    "a teacher that is not there": {"teach": "onnx/nobody.onnx"},
    "a teacher of other inputs": {"teach": "onnx/step.0.onnx"},
    "noise below nothing": {"receiver_noise": -1.0},
    "more than there is": {"more": 1},
}
"""What `learning.sessions` may not say."""
WINDOWS = (None, -1, 0, 1025, 1 << 40, 2.5, 4, 6)
"""Lengths of a window that the graphs of the kit, which read 5 items, do not have, or no device has."""
REPLAYS: tuple[dict[str, object], ...] = (
    *({"picks": picks} for picks in ("discrepancy", "nobody", "__proto__")),
    *({"list_size": size} for size in (0, -1, (1 << 20) + 1, 1.5)),
    *({"shift_scale": scale} for scale in (-0.1, "much")),
    *({"weight": weight} for weight in (-1.0, None)),
    {"reduction": "median"},
    {"more": 1},
)


def exchange_of(sessions: dict[str, Any]) -> dict[str, Any]:
    """Say what a set would exchange as a session does."""
    return {name: sessions[name] for name in ("publish", "order", "reply", "receiver_noise", "keeps", "marks")}


def test_sessions_and_replays_that_no_device_can_do(corpus: Corpus) -> None:
    """Bundles of the kit, changed: the Python device refuses them too."""

    def tried(name: str, case: str, change: Callable[[Any], object]) -> None:
        corpus.bundle(name, ROOT / "conformance" / case, lambda path: edit_json(path / "config.json", change))
        path, items = corpus.asked[-1]["path"], corpus.asked[-1]["items"]
        with pytest.raises(InputError):
            open_device(path, fresh()).practise(items)

    for what, how in LEARNING.items():
        tried(what, "fcucr", lambda c, how=how: how(c["learning"]))
    for what, more in SESSIONS.items():
        tried(what, "fcucr", lambda c, more=more: c["learning"]["sessions"].update(more))
    for length in WINDOWS:
        tried(f"a window of {length}", "fcucr", lambda c, length=length: c.update(window=length))
    for more in REPLAYS:
        tried(f"a replay with {more}", "f3crec", lambda c, more=more: c["learning"]["replay"].update(more))
    tried("a replay of pairs", "f3crec", lambda c: c["learning"]["phases"][0].update(pairs=True))
    corpus.refused(40)
