"""A client in any language is held to the conformance kit: it is asked a line at a time, and its answers are compared.

    a question of the kit       its answer is the one that the kit has
    a bundle or update changed  it is refused

docs/bundle-format.md says what is asked, and how near numbers have to be.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge.manifest import MANIFEST, SIGNATURE
from privacy.errors import InputError
from privacy.progress import Progress

SCHEMA: Literal["edgefr.conformance/1"] = "edgefr.conformance/1"
KIT = Path("conformance")
NEAR = 1e-5
"""How far a trained value, a release or a score may be off, in units of the value where that is above 1."""
DRAWN = 1e-12
"""How far a drawn normal number may be off: logarithms and cosines of two libraries differ in the last bits."""
ANSWER_S = 600.0
"""How long a runner may take for one answer (seconds)."""
EXACT = ("examples", "open")
"""What is equal to the bit, numbers with a point among it; but for labels, since replayed ones are predictions."""
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """This is a question of `case`: what is `asked`, and the answer that is `expected` (None: to be refused)."""

    case: str
    what: str
    asked: Record
    expected: Record | None


@dataclass(frozen=True)
class Outcome:
    """This is what became of a question: `fault` says in a line what is wrong (None: nothing).

    `error`: the largest of its numbers with a point (None: it has none, or there is a fault of another kind).
    """

    question: Question
    fault: str | None
    error: float | None = None


def kit_at(folder: Path) -> Path:
    """Return the folder of the kit; where there is no such folder, and it is the usual one, that which ships."""
    within = Path(__file__).parents[1]
    if not folder.exists() and folder == KIT:
        folder = within / KIT if (within / KIT).exists() else within.parent / KIT
    if not (folder / "kit.json").is_file():
        raise InputError(f"{folder} is no conformance kit: it has no kit.json")
    return folder


def questions(folder: Path) -> list[Question]:
    """Read the questions of a kit; paths in them are made whole. Raises `InputError` for another file."""
    try:
        kit = json.loads((folder / "kit.json").read_text(encoding="utf-8"))
        if kit["schema"] != SCHEMA:
            raise ValueError(f"it is {kit['schema']} instead of {SCHEMA}")
        found = [Question(q["case"], q["what"], _placed(q["asked"], folder), q["expected"]) for q in kit["questions"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / 'kit.json'} is no conformance kit: {error}") from error
    return found


def _placed(asked: Record, folder: Path) -> Record:
    paths = {name: str((folder / asked[name]).resolve()) for name in ("bundle", "delta") if asked.get(name)}
    return {**asked, **paths}


def check(runner: str, kit: Path, progress: Progress | None = None) -> list[Outcome]:
    """Ask a runner, a command line, all of a kit and all that is to be refused; what became of each question.

    Raises `InputError` for a command that does not start, that ends or takes longer than `ANSWER_S` before it has
    answered, or answers no line of JSON.
    """
    asked = questions(kit)
    with tempfile.TemporaryDirectory() as scratch, _Runner(runner) as client:
        asked += list(changed(asked, Path(scratch)))
        out = []
        for done, question in enumerate(asked):
            if progress is not None:
                progress("questions", done, len(asked), f"{question.case}, {question.what}")
            out.append(judged(question, client.ask({"id": done, **question.asked})))
    return out


class _Runner:
    """This is a runner's process, and its lines."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        if not self._command:
            raise InputError("the runner is an empty command; give one that reads lines and answers lines")

    def __enter__(self) -> _Runner:
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise InputError(f"cannot start {self._command[0]}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, asked: Record) -> Record:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late, began = threading.Timer(ANSWER_S, self._process.kill), time.monotonic()
        late.start()
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        late.cancel()
        if not line and time.monotonic() - began >= ANSWER_S:
            raise InputError(f"the runner has not answered {asked['ask']} (question {asked['id']}) in {ANSWER_S:g} s")
        if not line:
            code = self._process.wait()
            raise InputError(f"the runner ended with code {code}, asked {asked['ask']} (question {asked['id']})")
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("id") != asked["id"]:
            raise InputError(f"the runner answers question {asked['id']} by no JSON of its id: {line[:100]!r}")
        return found


def judged(question: Question, found: Record) -> Outcome:
    """Compare an answer with what is expected of it."""
    if "unknown" in found:
        return Outcome(question, "not answered")
    if question.expected is None:
        taken = "refused" not in found
        return Outcome(question, "it was taken, and is to be refused" if taken else None)
    if "answer" not in found:
        return Outcome(question, f"refused: {str(found.get('refused'))[:200]}")
    try:
        return Outcome(question, *_compared(question.asked["ask"], question.expected, found["answer"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Outcome(question, f"its answer cannot be read ({type(error).__name__}: {error})"[:200])


def _compared(ask: str, expected: Record, found: Record) -> tuple[str | None, float | None]:
    """Return what differs, and the largest error of numbers."""
    if set(found) != set(expected):
        return f"it says {sorted(set(found) ^ set(expected))[0]!r} too much or too little", None
    largest = None
    for name, wanted in expected.items():
        if not isinstance(wanted, dict) or "data" not in wanted:
            near = isinstance(wanted, float) and abs(found[name] - wanted) <= NEAR * max(1.0, abs(wanted))
            if found[name] != wanted and not near:
                return f"{name} is {found[name]!r} instead of {wanted!r}"[:200], None
            continue
        one, other = unpacked(wanted), unpacked(found[name])
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{name} is {other.dtype} {list(other.shape)} instead of {one.dtype} {list(one.shape)}", None
        off = _off(one, other)
        most = _allowed(ask, name, one)
        if not off <= most:
            return f"{name} is off by {off:.3g}, more than {most:g}", None
        if one.dtype.kind == "f":
            largest = max(off, largest or 0.0)
    return None, largest


def _off(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    if one.dtype.kind in "iu":  # beyond 2 ** 53 no difference of floats would be seen
        differ = one != other
        return float(np.abs(one[differ].astype(float) - other[differ].astype(float)).clip(1).max(initial=0.0))
    wide, found = one.astype(np.float64), other.astype(np.float64)
    return float((np.abs(wide - found) / np.maximum(1.0, np.abs(wide))).max(initial=0.0))


def _allowed(ask: str, name: str, values: npt.NDArray[Any]) -> float:
    if ask == "release" and name == "update" and values.dtype.kind == "i":
        return 1.0  # step of the grid: a value beside its edge falls to either side
    exact = ask in EXACT and not name.endswith("/label")
    if values.dtype.kind != "f" or exact:
        return 0.0
    return DRAWN if ask == "draws" else NEAR


def unpacked(packed: Record) -> npt.NDArray[Any]:
    """Return an array of an answer; ValueError for bytes that are not its own."""
    dtype = np.dtype(packed["dtype"]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(packed["data"], validate=True), dtype).reshape(packed["shape"])


def changed(asked: list[Question], scratch: Path) -> Iterator[Question]:
    """Yield questions about bundles and updates that somebody has changed, each of which is to be refused."""
    for question in [one for one in asked if one.what == "open"]:
        bundle, case = Path(question.asked["bundle"]), question.case
        for name, change in _changes(bundle):
            copy = scratch / f"{case}-{len(list(scratch.iterdir()))}"
            shutil.copytree(bundle, copy)
            change(copy)
            yield Question(case, f"refuse: {name}", {**question.asked, "bundle": str(copy)}, None)
        other = {**question.asked, "trusted": ["0" * 64]}
        yield Question(case, "refuse: signed by another key", other, None)
    for question in [one for one in asked if one.asked.get("delta")]:
        delta = Path(question.asked["delta"])
        for name, content, signed in _deltas(delta):
            copy = scratch / f"delta-{len(list(scratch.iterdir()))}.safetensors"
            copy.write_bytes(content)
            if signed:
                shutil.copy(f"{delta}.sig.json", f"{copy}.sig.json")
            yield Question(question.case, f"refuse: {name}", {**question.asked, "delta": str(copy)}, None)


def _changes(bundle: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield what a stranger may do to a bundle: by name, what does it to a copy."""
    for path in sorted(file.relative_to(bundle) for file in bundle.rglob("*") if file.is_file()):
        yield f"{path.as_posix()} changed", lambda copy, path=path: _flip(copy / path)  # type: ignore[misc]
    listed = next(path for path in sorted(bundle.rglob("*.onnx")))
    yield "a file missing", lambda copy: (copy / listed.relative_to(bundle)).unlink()
    yield "a file longer", lambda copy: _append(copy / listed.relative_to(bundle))
    yield "a file that is not listed", lambda copy: _append(copy / "onnx" / "more.onnx")
    yield "no signature", lambda copy: (copy / SIGNATURE).unlink()
    yield "no manifest", lambda copy: (copy / MANIFEST).unlink()


def _deltas(delta: Path) -> Iterator[tuple[str, bytes, bool]]:
    content = delta.read_bytes()
    yield "an update changed", content[:-1] + bytes([content[-1] ^ 1]), True
    yield "an update that is not signed", content, False
    yield "an update cut off", content[:-4], True


def _flip(path: Path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def _append(path: Path) -> None:
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"\0")
