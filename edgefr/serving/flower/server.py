"""The ServerApp of a Flower fleet continues a run as `edgefr serve` does, with SuperNodes for devices.

Its run configuration has `run` (folder) and `rounds`, and may have `bundle-class` (names with commas between; default:
all), `timeout`, `min-answers` and `out`.

One thread carries tasks to the nodes and their releases to the round broker. A device's key identifies a node, not
Flower.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from edge.connection import ENROL, RELEASE, TASK, RoundTask
from edge.records import MOST_ROUNDS
from edge.update import ClientUpdate
from edgefr.serving.admission import Gate, RequestRefused, check_body, reading
from edgefr.serving.broker import RoundBroker
from edgefr.serving.flower.client import enrolment
from edgefr.serving.keys import Keys
from edgefr.serving.serve import serve
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError

app = ServerApp()
log = logging.getLogger(__name__)

PAUSE_S = 0.2  # between looks at the grid


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Continue a run for the configured number of rounds; the result is written as by `edgefr serve`."""
    told = {name: value for name, value in context.run_config.items() if value != ""}
    for name in sorted({"run", "rounds"} - told.keys()):
        raise InputError(f"the run configuration does not say {name}; give it in --run-config")
    served = serve(
        Run.open(str(told["run"])),
        str(told["bundle-class"]).split(",") if "bundle-class" in told else None,
        int(told["rounds"]),
        timeout_s=float(told.get("timeout", 600.0)),
        min_answers=int(told["min-answers"]) if "min-answers" in told else None,
        out=Path(str(told["out"])) if "out" in told else None,
        transport=partial(by_flower, grid),
        waits=True,
        ready=lambda where: log.info("rounds are handed out by %s", where),
    )
    log.info("result: %s", served.path)


@contextmanager
def by_flower(grid: Grid, broker: RoundBroker, keys: Keys) -> Iterator[str]:
    """Carry tasks and releases between a broker and a grid's nodes while inside."""
    nodes = Nodes(grid, broker, Gate(keys))
    thread = threading.Thread(target=nodes.work, daemon=True)
    thread.start()
    try:
        yield "a SuperLink"
    finally:
        nodes.stopping.set()
        thread.join()
    if nodes.problem is not None:
        raise nodes.problem


@dataclass(frozen=True)
class Sent:
    """This is a message that waits for its answer: to whom, and the task in it (None: it asked who the node is)."""

    node: int
    user: str | None = None
    task: RoundTask | None = None


@dataclass
class Nodes:
    """These are the nodes of a grid, and what each was sent last. `after`: the last round that a user was given."""

    grid: Grid
    broker: RoundBroker
    gate: Gate
    users: dict[int, str] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    waiting: dict[str, Sent] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)  # the last word
    stopping: threading.Event = field(default_factory=threading.Event)
    problem: Exception | None = None

    def work(self) -> None:
        try:
            while not self.stopping.wait(PAUSE_S):
                self._ask_newcomers()
                self._hand_out()
                self._take()
        except Exception as error:
            self.problem = error

    def _send(self, sent: Sent, kind: str, content: RecordDict) -> None:
        (number,) = self.grid.push_messages([Message(content, sent.node, kind)])
        self.waiting[number] = sent

    def _ask_newcomers(self) -> None:
        for node in sorted(set(self.grid.get_node_ids()) - self.asked):
            self.asked.add(node)
            asked = ConfigRecord({"session": self.gate.session})
            self._send(Sent(node), "query.identify", RecordDict({"asked": asked}))

    def _hand_out(self) -> None:
        """Give every idle node the round that is open for its user."""
        busy = {sent.node for sent in self.waiting.values()}
        for node, user in self.users.items():
            if node in busy or user in self.told:
                continue
            task = self.broker.task(user, self.after.get(user, 0))
            if task is None:
                continue
            self.after[user] = task.round
            if task.rest:
                continue
            said = {"round": task.round, "done": task.done, "user": user, "session": self.gate.session}
            file = Array(np.frombuffer(task.content, np.uint8))
            content = RecordDict({"task": ConfigRecord(said), "update": ArrayRecord({"file": file})})
            self._send(Sent(node, user, task), "train", content)
            if not task.done:
                self.broker.handed(user, task)

    def _take(self) -> None:
        """Take the answers that have come; refused ones are counted."""
        for answer in self.grid.pull_messages(list(self.waiting)):
            sent = self.waiting.pop(answer.metadata.reply_to_message_id)
            if sent.task is not None and sent.task.done and sent.user is not None:
                self.told.add(sent.user)
                self.broker.handed(sent.user, sent.task)
                continue
            try:
                self._heard(sent, answer)
            except (RequestRefused, InputError) as error:
                self.broker.refuse()
                log.warning("node %s is refused: %s", sent.node, error)

    def _heard(self, sent: Sent, answer: Message) -> None:
        """Take a node's identity or release. Raises `RequestRefused`, or `InputError` for a code.

        Any error while its bytes are read is `RequestRefused`; other errors end the server.
        """
        with reading("not an answer of a device"):
            if answer.has_error() or "said" not in answer.content:
                log.warning("node %s answered with nothing", sent.node)
                return
            said = answer.content["said"]
            header, code = str(said.get("authorization", "")), said.get("code")
            asked = None if code is None else enrolment(str(code))
        if sent.task is None:
            user = self._who(header, str(code), asked)
            self.broker.task(user, MOST_ROUNDS)  # which refuses a user whose device is of another class
            self.users = {node: other for node, other in self.users.items() if other != user} | {sent.node: user}
            return
        number = sent.task.round
        user, signed = self.gate.admit("POST", f"{RELEASE}?round={number}", header)
        with reading("not a release of this bundle"):
            arrays = {name: array.numpy() for name, array in answer.content["release"].items()}
            release = ClientUpdate.of(json.loads(str(said["facts"])), arrays).to_bytes()
        check_body(signed, release)
        self.broker.submit(user, number, release)

    def _who(self, header: str, code: str, asked: bytes | None) -> str:
        """Return whose device a node is, by its known key or by enrolling it with the code in `asked`."""
        if asked is None:
            return self.gate.admit("GET", f"{TASK}?after=0", header)[0]
        signed = self.gate.stranger("POST", ENROL, header)
        check_body(signed, asked)
        return self.gate.keys.enrol(code, signed.key)
