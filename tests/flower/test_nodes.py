"""A node of a grid is whose device its key says, and what its device has not signed is no part of a round."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed; docs/howto-flower.md says which environment has it")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from edge.connection import RELEASE
from edge.identity import Identity
from edge.update import ClientUpdate
from edgefr.serving.admission import Gate
from edgefr.serving.broker import RoundBroker
from edgefr.serving.flower.client import app as client
from edgefr.serving.flower.server import Nodes, by_flower, main
from edgefr.serving.keys import Keys
from edgefr.serving.serve import Served, origins_of, serve
from privacy.errors import InputError
from tests.devices import POLICY, open_device
from tests.remote import worlds
from tests.remote.spread import measure
from tests.remote.test_classes import BOTH, mixed
from tests.remote.test_same_as_simulator import compare_shared
from tests.remote.worlds import CLASS, ROUNDS, Twins


class Grid:
    """A grid in this process: what is pushed to a node is answered by its function when answers are pulled."""

    def __init__(self, nodes: dict[int, Any]):
        self.nodes, self.sent = nodes, {}

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: list[Message]) -> list[str]:
        numbers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.sent)}"
            self.sent[f"m{len(self.sent)}"] = message
            numbers.append(message.metadata.message_id)
        return numbers

    def pull_messages(self, numbers: list[str]) -> list[Message]:
        asked = [self.sent[number] for number in numbers]
        return [self.nodes[message.metadata.dst_node_id](message) for message in asked]


class Node:
    """The ClientApp of one user, and what is changed of its releases before they leave."""

    def __init__(self, twins: Twins, folder: Path, user: str, code: str | None, change: Any = None):
        self.state, self.change = folder / user, change
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "policy.yaml").write_text(POLICY)
        own = folder / f"{user}.txt"
        own.write_text("\n".join(twins.items(user)))
        told = {"bundle": str(twins.bundle_of(user)), "state": str(self.state), "interactions": str(own)}
        self.context = Context(0, 0, told | ({} if code is None else {"code": code}), RecordDict(), {})

    def __call__(self, message: Message) -> Message:
        answer = client(message, self.context)
        if self.change is not None and "release" in answer.content:
            self.change(self, answer)
        return answer


@pytest.fixture(autouse=True)
def process_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are made where Flower has said whose process this is."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return worlds.fedmf().own(tmp_path)


def broker_of(twins: Twins) -> RoundBroker:
    origin = origins_of(twins.begun, CLASS)
    broker = RoundBroker(origin.bundles, origin.learning, origin.items)
    broker.open(1, {origin.bundle: b""}, set(origin.users.values()))
    return broker


def alone(twins: Twins, folder: Path, change: Any = None) -> tuple[str, Node, RoundBroker, Nodes]:
    """The first user's node, which has a code, and a server that knows no other."""
    user, keys, broker = next(iter(twins.users)), Keys(twins.begun.path), broker_of(twins)
    node = Node(twins, folder, user, keys.issue([user])[user], change)
    return user, node, broker, Nodes(Grid({7: node}), broker, Gate(keys))  # type: ignore[arg-type]


def played(nodes: Nodes) -> None:
    """Who they are, what they work on, what comes back."""
    for _ in range(2):
        nodes._ask_newcomers()
        nodes._take()
        nodes._hand_out()
        nodes._take()


def served(twins: Twins, folder: Path, classes: list[str] | None = None) -> Served:
    """All rounds with every user's ClientApp, a node each of a grid in this process."""
    codes = Keys(twins.begun.path).issue(list(twins.users))
    made = {n: Node(twins, folder / "states", user, codes[user]) for n, user in enumerate(twins.users, 1)}
    carried = partial(by_flower, Grid(made))  # type: ignore[arg-type]
    return serve(twins.begun, classes, ROUNDS, timeout_s=60.0, out=folder / "served", transport=carried, waits=True)


def test_nodes_of_two_classes_end_where_the_simulator_does(tmp_path: Path) -> None:
    twins = mixed().own(tmp_path)
    result = served(twins, tmp_path, BOTH)
    assert result.summary["classes"].keys() == set(BOTH)
    assert result.summary["uploads"] == ROUNDS * len(twins.users)
    compare_shared(twins, {name: value.numpy() for name, value in result.shared.items()})


def test_nodes_with_exact_noise_are_within_the_spread_of_simulated_clients(tmp_path: Path) -> None:
    """At epsilon 8, and at 8 sd, as `tests/remote/test_spread.py` has devices that come by HTTP."""
    found = measure("local", tmp_path, simulated=10, repeats=1, users=16, served=served)
    assert len(set(found.simulated)) > 5, "the noise changes nothing, so nothing is tested"
    assert max(map(abs, found.apart)) < 8


def test_the_app_is_told_one_class_several_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "edgefr.serving.flower.server.serve", lambda run, classes, *rest, **more: asked.append(classes) or quit()
    )
    monkeypatch.setattr("edgefr.serving.flower.server.Run.open", Path)
    for said, wanted in (("a", ["a"]), ("a,b", ["a", "b"]), ("", None)):
        context = Context(0, 0, {}, RecordDict(), {"run": "r", "rounds": 1, "bundle-class": said})
        with pytest.raises(SystemExit):
            main(Grid({}), context)  # type: ignore[arg-type]
        assert asked.pop() == wanted


def test_a_node_is_whom_its_code_enrolled_and_its_release_is_taken_as_it_was_made(twins: Twins, tmp_path: Path) -> None:
    user, node, broker, nodes = alone(twins, tmp_path / "nodes")
    played(nodes)
    assert Identity.of(node.state).record.user == user
    taken = broker.collect(0.0)
    assert taken.keys() == {user}
    again = open_device(twins.bundle, tmp_path / "again", user=user).learn(twins.items(user))
    assert taken[user].to_bytes() == again.to_bytes()
    assert broker.counts.bytes_up == len(again.to_bytes())


def test_a_code_is_good_for_one_node(twins: Twins, tmp_path: Path) -> None:
    user, keys, broker = next(iter(twins.users)), Keys(twins.begun.path), broker_of(twins)
    code = keys.issue([user])[user]
    nodes = {n: Node(twins, tmp_path / str(n), user, code) for n in (1, 2)}
    found = Nodes(Grid(nodes), broker, Gate(keys))  # type: ignore[arg-type]
    played(found)
    assert (found.users, broker.counts.refused) == ({1: user}, 1)


def test_a_node_without_a_key_that_is_known_is_given_no_work(twins: Twins, tmp_path: Path) -> None:
    user, keys, broker = next(iter(twins.users)), Keys(twins.begun.path), broker_of(twins)
    node = Node(twins, tmp_path / "nodes", user, None)
    found = Nodes(Grid({7: node}), broker, Gate(keys))  # type: ignore[arg-type]
    played(found)
    assert (found.users, broker.counts.refused, broker.close()) == ({}, 1, frozenset())


def longer(node: Node, answer: Message) -> None:
    """Somebody on the way makes an update longer."""
    arrays = {name: array.numpy() for name, array in answer.content["release"].items()}
    arrays["rows.item.values"] = 100 * arrays["rows.item.values"]
    answer.content["release"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})


def signed_by_another(node: Node, answer: Message) -> None:
    """The release is another key's."""
    facts = json.loads(str(answer.content["said"]["facts"]))
    arrays = {name: array.numpy() for name, array in answer.content["release"].items()}
    content, other = ClientUpdate.of(facts, arrays).to_bytes(), Identity.made(node.state.parent / "other")
    before = str(answer.content["said"]["authorization"]).split()[2]
    signed = other.signed("POST", f"{RELEASE}?round=1", content, before, time.time_ns(), int(time.time()))
    answer.content["said"]["authorization"] = signed.header


def without_a_signature(node: Node, answer: Message) -> None:
    answer.content["said"] = ConfigRecord({"facts": answer.content["said"]["facts"]})


def with_facts_of_its_own(node: Node, answer: Message) -> None:
    answer.content["said"]["facts"] = "[]"


def with_facts_nested_deep(node: Node, answer: Message) -> None:
    answer.content["said"]["facts"] = "[" * 200_000


def with_an_array_that_is_none(node: Node, answer: Message) -> None:
    answer.content["release"] = ArrayRecord(
        {"update": Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"nothing")}
    )


def with_arrays_for_words(node: Node, answer: Message) -> None:
    answer.content["said"] = answer.content["release"]


STRANGE = [with_facts_of_its_own, with_facts_nested_deep, with_an_array_that_is_none, with_arrays_for_words]


@pytest.mark.parametrize("change", [longer, signed_by_another, without_a_signature])
def test_what_a_device_has_not_signed_is_no_part_of_a_round(twins: Twins, tmp_path: Path, change: Any) -> None:
    _, _, broker, nodes = alone(twins, tmp_path / "nodes", change)
    played(nodes)
    assert broker.collect(0.0) == {}
    assert broker.counts.refused == 1


@pytest.mark.parametrize("change", STRANGE)
def test_no_answer_of_a_node_ends_the_server(twins: Twins, tmp_path: Path, change: Any) -> None:
    """What one node sends is refused, and the next is served as if it had sent nothing."""
    (bad, good, *_), keys, broker = twins.users, Keys(twins.begun.path), broker_of(twins)
    codes = keys.issue([bad, good])
    nodes = {
        1: Node(twins, tmp_path / "nodes", bad, codes[bad], change),
        2: Node(twins, tmp_path / "nodes", good, codes[good]),
    }
    with by_flower(Grid(nodes), broker, keys):  # type: ignore[arg-type]
        until = time.monotonic() + 60.0
        while (broker.counts.uploads, broker.counts.refused) != (1, 1) and time.monotonic() < until:
            time.sleep(0.05)
    assert broker.collect(0.0).keys() == {good}


def test_a_fault_that_no_node_sent_ends_the_server(twins: Twins, tmp_path: Path) -> None:
    _, _, broker, nodes = alone(twins, tmp_path / "nodes")

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    broker.keep = full
    with pytest.raises(OSError, match="No space left"):
        played(nodes)


def test_what_is_wrong_on_a_device_is_not_told(twins: Twins, tmp_path: Path) -> None:
    """An item that the bundle does not know, and a policy that lets nothing leave: the answer is as empty."""
    user, keys, broker = next(iter(twins.users)), Keys(twins.begun.path), broker_of(twins)
    node = Node(twins, tmp_path / "nodes", user, keys.issue([user])[user])
    (tmp_path / "nodes" / f"{user}.txt").write_text("a secret of mine\n")
    answers: list[Message] = []

    def heard(message: Message) -> Message:
        answers.append(node(message))
        return answers[-1]

    played(Nodes(Grid({7: heard}), broker, Gate(keys)))  # type: ignore[arg-type]
    (tmp_path / "nodes" / f"{user}.txt").write_text("\n".join(twins.items(user)))
    (node.state / "policy.yaml").write_text("epsilon: 1.0\n")
    strict = node(Message(a_task(), 7, "train"))
    assert [list(answer.content) for answer in (answers[-1], strict)] == [[], []]
    (node.state / "policy.yaml").write_text(POLICY)
    assert set(node(Message(a_task(), 7, "train")).content) == {"release", "said"}, "nothing else kept it back"
    assert not answers[-1].has_error()
    assert broker.collect(0.0) == {}


def test_where_training_fails_under_a_promise_noise_alone_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one the answer is empty, and either way the device's own log alone says why."""

    def fails(*given: Any) -> Any:
        raise InputError("the graph fails")

    monkeypatch.setattr("edge.local_work.train", fails)
    for name, twins, answered in (
        ("promised", worlds.noisy(tmp_path / "a", privacy__trust="local"), {"release", "said"}),
        ("not promised", worlds.fedmf().own(tmp_path / "b"), set()),
    ):
        user, node, broker, nodes = alone(twins, tmp_path / name)
        played(nodes)
        assert broker.collect(0.0).keys() == ({user} if answered else set())
        assert set(node(Message(a_task(), 7, "train")).content) == answered
    assert "training failed, and noise alone leaves this device: the graph fails" in caplog.text
    assert "nothing leaves this device: the graph fails" in caplog.text


def a_task() -> RecordDict:
    """The first round, as a server sends it."""
    said = ConfigRecord({"round": 1, "done": False, "user": "nobody", "session": "0" * 32})
    return RecordDict({"task": said, "update": ArrayRecord({"file": Array(np.zeros(0, np.uint8))})})
