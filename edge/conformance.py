"""This device answers the conformance kit: `python -m edge.conformance` reads a question a line and answers a line.

docs/bundle-format.md says what is asked; a runner in another language answers the same.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edge import exchange
from edge import update as outgoing
from edge.bundle import open_bundle
from edge.delta import read_delta
from edge.device import Device
from edge.encoder import open_encoder
from edge.graph import Graph, Stop, Stopped
from edge.learning import Learning
from edge.local_work import begun
from edge.policy import OPEN
from edge.signature import KeyId
from edge.training import Trained, train
from edge.update import Change
from privacy import keyed
from privacy.errors import InputError

Question = Mapping[str, Any]
Answer = dict[str, Any]
Array = npt.NDArray[Any]


def packed(array: npt.ArrayLike) -> Answer:
    """Return an array as it stands in an answer: type, shape, and its bytes, low byte first, in base64."""
    found = np.asarray(array, order="C")
    little = found.astype(found.dtype.newbyteorder("<")).tobytes()
    return {"dtype": found.dtype.name, "shape": list(found.shape), "data": base64.b64encode(little).decode()}


def draws(asked: Question) -> Answer:
    base = keyed.key(int(asked["seed"]), asked["purpose"], *asked["path"])
    clients = np.array([int(client) for client in asked["clients"]], np.uint64)
    keys, index = keyed.fold(base, clients), np.arange(asked["count"])
    found = {"keys": keys, "bits": keyed.bits(keys[:, None], index), "normal": keyed.normal(keys[:, None], index)}
    found["integers"] = keyed.integers(keys[:, None], index, asked["bound"])
    return {"key": str(base)} | {name: packed(value) for name, value in found.items()}


def opened(asked: Question) -> Answer:
    found = open_bundle(asked["bundle"], trusted=[KeyId(key) for key in asked["trusted"]])
    return {"bundle_id": found.manifest.bundle_id, "method": found.manifest.method, "signed_by": found.signed_by}


def examples(asked: Question) -> Answer:
    _, learning, material, _ = _work(asked)
    found: dict[str, Array] = {}
    for phase in learning.phases:
        for number, (items, fed) in enumerate(material.steps(phase), 1):
            drawn = {"items": items, **{name: value for name, value in fed.items() if name != "window.taught"}}
            found |= {f"{phase.name}/{number}/{name}": value for name, value in drawn.items()}
    return {name: packed(value) for name, value in found.items()}


class _First(Graph):
    """A step graph that ends training once so many steps of all graphs were taken."""

    def __init__(self, graph: Graph, left: list[int]) -> None:
        self.__dict__ |= graph.__dict__
        self.left = left

    def run_all(self, feeds: Mapping[str, Array], stop: Stop | None = None) -> dict[str, Array]:
        if not self.left:
            raise Stopped("enough", "enough")
        self.left.pop()
        return super().run_all(feeds, stop)


def trained(asked: Question) -> Answer:
    found = _trained(asked)[2]
    rows: dict[str, Array] = {f"rows.{name}.items": items for name, (items, _) in found.rows.items()}
    rows |= {f"rows.{name}.values": values for name, (_, values) in found.rows.items()}
    dense: dict[str, Array] = {f"dense.{name}": value for name, value in found.dense.items()}
    return {"steps": found.steps, "loss": found.loss} | {name: packed(value) for name, value in (dense | rows).items()}


def released(asked: Question) -> Answer:
    device, learning, found = _trained(asked)
    state, terms = device.state, learning.release
    if terms.own_noise is not None:  # rounded to the grid as ever, but nothing is added
        learning = learning.model_copy(update={"release": terms.model_copy(update={"noised": "server"})})
    change = Change.of(learning, state.part("shared"), state.part("table"), found)
    own = len(state.tensors["items.own"])
    if learning.sessions is not None:
        own = int(_work(asked)[2].sampler.train.counts.sum())
    made, _ = outgoing.make(learning, device.bundle.manifest.bundle_id, change, found, own, asked["round"])
    return {"facts": made.facts()} | {name: packed(value) for name, value in made.arrays().items()}


def messaged(asked: Question) -> Answer:
    """Return what a round keeps and tells, beside its update or before it, without noise."""
    _, learning, material, dense = _work(asked)
    device, _, found = _trained(asked)
    kind, how = ("messages", learning.messages) if learning.sessions is None else ("sessions", learning.sessions)
    assert how is not None
    quietly = learning.model_copy(update={kind: how.model_copy(update={"sender_noise": 0.0})})
    kept, message = exchange.after(quietly, device._model.graph, dense, found, material)
    if message is None:
        message = device.prototype("learning")
    return {"message": packed(message)} | {f"kept.{name}": packed(value) for name, value in kept.items()}


def recommended(asked: Question) -> Answer:
    device = _device(asked)
    if asked["learn"]:
        device.practise()
    if asked["delta"] is not None:
        device.apply(read_delta(asked["delta"], device.learning, trusted=device.publisher))
    if asked["personal"]:
        device.personalise()
    found, scores = device.recommend(asked["k"]), device.scores()
    top = [item for item, _, _ in found]
    return {"round": device.status()["round"], "basis": found.basis, "top": top, "scores": packed(scores)}


def encoded(asked: Question) -> Answer:
    found = open_bundle(asked["bundle"])
    if found.config.encoder is None:
        raise InputError("the bundle has no text encoder")
    return {"vectors": packed(open_encoder(found.config.encoder, found.file, found.entry).encode(asked["texts"]))}


def explained(asked: Question) -> Answer:
    found = _device(asked).explain(asked["about"])
    return {"weights": packed([[lean.weight for lean in one.leans] for one in found])}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return where the states of this process's devices lie, until it ends."""
    return tempfile.TemporaryDirectory()


def _device(asked: Question) -> Device:
    """Return a new device of the number that keys its draws, which has had these items.

    `earlier`: items of a block that has ended. `times`: when it had the items. `reply`: the server's last. `practised`:
    it did a round's work before.
    """
    device = Device(asked["bundle"], tempfile.mkdtemp(dir=_folder().name), policy=OPEN)
    with device._changed() as state:
        state.facts["number"] = int(asked["number"])
    if asked.get("earlier") is not None:
        device.note(asked["earlier"])
        device.next_block()
    device.note(asked["items"], asked.get("times"))
    if asked.get("reply") is not None:
        device.take(np.array(asked["reply"], np.float32))
    if asked.get("practised"):
        device.practise()
    return device


def _work(asked: Question) -> tuple[Device, Learning, Any, dict[str, Any]]:
    """Return a new device, its learning with the phases that are asked for, what they train on, and from where."""
    device = _device(asked)
    learning, state, number = device.learning, device.state, asked["round"]
    some = [phase for phase in learning.phases if phase.when == asked["when"]]
    some = [phase.model_copy(update={"epochs": asked["epochs"] or phase.epochs}) for phase in some]
    material = device._work._material(learning, state, number, some)
    dense = state.part("shared") | begun(learning, state, number)
    return device, learning.model_copy(update={"phases": some}), material, dense


def _trained(asked: Question) -> tuple[Device, Learning, Trained]:
    device, learning, material, dense = _work(asked)
    left = [0] * (asked["steps"] or 10**6)
    graphs = {name: _First(graph, left) for name, graph in device._model.steps(learning, asked["when"]).items()}
    return device, learning, train(learning.phases, graphs, learning, dense, material)


ANSWERS: Mapping[str, Callable[[Question], Answer]] = {
    "draws": draws,
    "open": opened,
    "examples": examples,
    "train": trained,
    "release": released,
    "message": messaged,
    "recommend": recommended,
    "encode": encoded,
    "explain": explained,
}


def answer(asked: Question) -> Answer:
    """Return the line that answers a question: its answer, why it is refused, or that it is not known."""
    if asked["ask"] not in ANSWERS:
        return {"id": asked["id"], "unknown": asked["ask"]}
    try:
        return {"id": asked["id"], "answer": ANSWERS[asked["ask"]](asked)}
    except InputError as error:
        return {"id": asked["id"], "refused": str(error)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
