"""The ClientApp of a Flower fleet opens a bundle, learns from its own interactions, and answers with the release.

A SuperNode's `--node-config` names its device:

bundle, state, interactions   a bundle; the folder of the device's private state; a file of item ids (with times)
code                          the one-time code of `edgefr enrol`, needed the first time

`policy.yaml` in the state decides what may leave. Where it forbids all, or anything is wrong before training, the
answer is empty; where training fails under a promise, it is noise alone. The reason is in this device's log alone.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from edge.connection import ENROL, RELEASE, TASK, RoundTask
from edge.device import Device
from edge.identity import Identity, opened_code
from edge.interaction_file import check_work, read_stream
from edge.remote import Own, catch_up
from edge.state import Store
from privacy.errors import InputError

app = ClientApp()
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeDevice:
    """This is what a SuperNode was told of its device."""

    bundle: Path
    state: Path
    interactions: Path
    code: str | None

    @classmethod
    def of(cls, context: Context) -> NodeDevice:
        told = {name: str(value) for name, value in context.node_config.items()}
        missing = sorted({"bundle", "state", "interactions"} - told.keys())
        if missing:
            raise InputError(f"this node does not say its {missing[0]}; give it in --node-config")
        return cls(Path(told["bundle"]), Path(told["state"]), Path(told["interactions"]), told.get("code"))


@app.query("identify")
def identify(message: Message, context: Context) -> Message:
    """Prove whose device this is: by a known key, or by a new key and a one-time code."""
    try:
        seat, session = NodeDevice.of(context), str(message.content["asked"]["session"])
        identity, said = Identity.made(seat.state), ConfigRecord()
        if identity.record.user is None and seat.code is not None:
            said["code"] = opened_code(seat.code)[0]
            said["authorization"] = _signed(identity, "POST", ENROL, enrolment(str(said["code"])), session)
        else:
            said["authorization"] = _signed(identity, "GET", f"{TASK}?after=0", b"", session)
        return Message(RecordDict({"said": said}), reply_to=message)
    except InputError as error:
        return _nothing(message, error)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Do a round's work from the server's update, and answer with the release; after the last round with none."""
    try:
        asked, seat = message.content["task"], NodeDevice.of(context)
        identity = Identity.of(seat.state)
        if identity.record.user is None:
            identity = identity.enrolled(str(asked["user"]), None)
        user = None if Store(seat.state).exists else identity.record.user
        device = Device(seat.bundle, seat.state, user=user)
        content = message.content["update"]["file"].numpy().tobytes()
        task = RoundTask(int(asked["round"]), content, bool(asked["done"]))
        catch_up(device, task, "Flower's server")
        if task.done:
            return Message(RecordDict(), reply_to=message)
        items, times = read_stream(seat.interactions)
        check_work(device, items)
        release = device.learn(*Own(items, times).of_round(device, task.round))
        if (failure := device.work.get("failed")) is not None:
            log.warning("training failed, and noise alone leaves this device: %s", failure)
        path = f"{RELEASE}?round={task.round}"
        header = _signed(identity, "POST", path, release.to_bytes(), str(asked["session"]))
        arrays = ArrayRecord({name: Array(value) for name, value in release.arrays().items()})
        said = ConfigRecord({"facts": json.dumps(release.facts()), "authorization": header})
        return Message(RecordDict({"release": arrays, "said": said}), reply_to=message)
    except InputError as error:
        return _nothing(message, error)


def enrolment(secret: str) -> bytes:
    return json.dumps({"code": secret}).encode()


def _signed(identity: Identity, method: str, path: str, body: bytes, session: str) -> str:
    return identity.signed(method, path, body, session, time.time_ns(), int(time.time())).header


def _nothing(message: Message, error: InputError) -> Message:
    """Answer with nothing; the error may name the device's own data, and stays here."""
    log.warning("nothing leaves this device: %s", error)
    return Message(RecordDict(), reply_to=message)
