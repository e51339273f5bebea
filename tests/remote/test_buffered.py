"""Rounds that wait for nobody: devices end where the simulator does with the same uploads, each counted once."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from edge.bundle import open_bundle
from edge.connection import RoundTask, Server
from edge.sampling import Sampler
from edge.update import ClientUpdate, read_update
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.cohort import Group
from edgefr.engine.executors.inline import run as inline
from edgefr.serving.admission import RequestRefused
from edgefr.serving.devices import Devices
from edgefr.serving.fedbuff import BufferedBroker, Buffering
from edgefr.serving.origin import Origin, Origins
from edgefr.serving.releases import Answers
from edgefr.serving.serve import origins_of, serve
from edgefr.serving.training import plan_of, training_of
from edgefr.simulation.runs.lineage import Begun, Lineage, Opened, Started, sealed
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.runs.upload_trust import Collecting
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.contract import bundles
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.test_classes import OTHER
from tests.remote.worlds import CLASS, FEDMF, Twins, at_work, killable, known, serving, session, take_part

ASYNC = {"policy": "async", "buffer": 2, "over_select": 2.0, "max_staleness": 3}
ROUNDS = 6


@cache
def _world() -> Twins:
    fleet = {**IDEAL_FLEET, "share": {CLASS: 1.0}, "rounds": {**IDEAL_FLEET.get("rounds", {}), **ASYNC}}
    return Twins.of(FEDMF | {"fleet": str(fleet).replace("None", "null")}, worlds.kept())


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    return _world().own(tmp_path)


def test_devices_end_where_the_simulator_does_with_the_same_groups(
    twins: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lineage says which uploads of which rounds are in each sum; the simulator goes through the same."""
    hold(monkeypatch, next(iter(twins.users)), others=5)
    result = session(twins, tmp_path / "states", ROUNDS, tmp_path / "served")
    lineage = twins.begun.lineage
    sums = {opened.round: closed.summed for opened, closed in lineage.rounds if closed is not None}
    assert [len(pairs) for pairs in sums.values()] == [2] * ROUNDS
    assert max(number - began for number, pairs in sums.items() for _, began in pairs) >= 2, "none was stale"
    simulated = replayed(twins, sums)
    for name, value in result.shared.items():
        assert_same(value, simulated[name], name=name)
    before = twins.begun.read_tensors("model")["shared.item"]
    assert float((result.shared["item"] - before).abs().max()) > 1e-2
    assert result.summary["missing"] == [0] * ROUNDS
    starts = {(c, opened.round) for opened, _ in lineage.rounds for c in opened.clients}
    assert {pair for pairs in sums.values() for pair in map(tuple, pairs)} <= starts
    assert all(closed is not None and closed.clients == opened.clients for opened, closed in lineage.rounds)


def hold(monkeypatch: pytest.MonkeyPatch, slow: str, others: int, broken: bool = False) -> None:
    """Let a device start first, and keep its first upload back until others have sent so many.

    `broken`: its connection breaks then, before anything has left.
    """
    ask, send, sent = Server.task, Server.send, list[int]()
    began, enough, cut = Event(), Event(), Event()

    def asked(server: Server, after: int, limit: int) -> RoundTask | None:
        if server.identity.record.user == slow:
            task = ask(server, after, limit)
            if task is not None:
                began.set()
            return task
        assert began.wait(60)
        return ask(server, after, limit)

    def held(server: Server, number: int, content: bytes) -> bool:
        if server.identity.record.user == slow:
            assert enough.wait(60)
            if broken and not cut.is_set():
                cut.set()
                raise InputError(f"cannot reach {server.url}")
            return send(server, number, content)
        taken = send(server, number, content)
        sent.append(number)
        if len(sent) >= others:
            enough.set()
        return taken

    monkeypatch.setattr(Server, "task", asked)
    monkeypatch.setattr(Server, "send", held)


def replayed(twins: Twins, sums: dict[int, list[tuple[int, int]]]) -> dict[str, torch.Tensor]:
    """Simulated rounds of the same groups, each from the tensors of its round."""
    run, train, e = twins.begun, twins.train, twins.begun.experiment
    how = Buffering(2, 4, 0.5, 3)
    devices = Devices(None, origins_of(run, CLASS), 1.0)  # type: ignore[arg-type]
    federation = training_of(run, devices, ROUNDS).federation
    federation.backend = InProcess(inline)
    items = len(open_model(run).model.names.items)
    sampler = Sampler(train, np.arange(items), items, e.negatives, e.batch_size, e.seed)
    broadcasts = {}
    for number, pairs in sorted(sums.items()):
        broadcasts[number] = dict(federation.shared)
        groups = [
            Group(
                np.array([c for c, began in pairs if began == start]),
                start,
                broadcasts[start],
                how.weight(number - start),
            )
            for start in sorted({began for _, began in pairs})
        ]
        federation.round(number, groups, sampler, train)
    return dict(federation.shared)


def test_what_was_learned_when_a_connection_broke_is_in_a_later_sum(
    twins: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device comes back two rounds later: its upload is of the round it began in, and it is not asked twice."""
    slow, *others = twins.users
    hold(monkeypatch, slow, others=5, broken=True)
    known(twins.begun, tmp_path / "states" / slow, slow)
    device = open_device(twins.bundle, tmp_path / "states" / slow, user=slow)
    with serving(twins.begun, tmp_path / "served", ROUNDS) as (url, future), ThreadPoolExecutor(1) as pool:
        working = pool.submit(at_work, device, url, twins.items(slow), Event())
        take_part(twins, url, tmp_path / "states", others)
        result = future.result(60)
        working.result(60)
    lineage, client = twins.begun.lineage, twins.users[slow]
    sums = {opened.round: closed.summed for opened, closed in lineage.rounds if closed is not None}
    (number,) = [number for number, pairs in sums.items() if (client, 1) in pairs]
    assert number >= 3
    assert all(closed is not None and not closed.burnt for _, closed in lineage.rounds)
    simulated = replayed(twins, sums)
    for name, value in result.shared.items():
        assert_same(value, simulated[name], name=name)


# --- noise, budgets and several classes -------------------------------------------------------------------------------

RELEASES = 2  # that the budget has room for


@cache
def _noisy(trust: str) -> Twins:
    """Laptops and phones, exact noise, and a budget for two releases each (Laplace of 2: .707 central, twice local)."""
    fleet = {**IDEAL_FLEET, "share": {CLASS: 0.5, OTHER: 0.5}, "rounds": {**IDEAL_FLEET.get("rounds", {}), **ASYNC}}
    asked = {"trust": trust, "mechanism": "laplace", "sigma": 2.0, "budget": {"central": 2.0, "local": 4.0}[trust]}
    settings = FEDMF | {"fleet": str(fleet).replace("None", "null"), "aggregation.weights": "uniform"}
    return Twins.of(settings | {f"privacy.{key}": value for key, value in asked.items()}, worlds.kept())


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["central", "local"])
def test_every_start_is_charged_and_the_noise_is_that_of_the_sums(
    trust: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices of two classes, one of them late: nobody starts beyond the budget, and the tensors are what was sent."""
    twins, sent = _noisy(trust).own(tmp_path), dict[tuple[int, int], bytes]()
    hold(monkeypatch, next(iter(twins.users)), others=5)
    send = Server.send

    def noted(server: Server, number: int, content: bytes) -> bool:
        sent[twins.users[str(server.identity.record.user)], number] = content
        return send(server, number, content)

    monkeypatch.setattr(Server, "send", noted)
    with serving(twins.begun, tmp_path / "served", ROUNDS, classes=[CLASS, OTHER]) as (url, future):
        counts = take_part(twins, url, tmp_path / "states", list(twins.users))
        result = future.result(60)
    lineage = twins.begun.lineage
    starts = Counter(client for opened, _ in lineage.rounds for client in opened.clients)
    assert max(starts.values()) == RELEASES
    assert any(opened.refused for opened, _ in lineage.rounds), "nobody had spent the budget"
    assert sum(found.rested for found in counts.values()) > 0
    one = result.summary["privacy"]["budget"] / 2 / math.sqrt(2)
    ledger = lineage.ledger()
    assert ledger is not None
    for client, number in starts.items():
        assert ledger.epsilon(np.array([client]))[0] == pytest.approx(number * one, rel=1e-3)
    wanted, variance, stale = table_of(twins, sent)
    assert stale, "none was late"
    away = result.shared["item"].double().numpy() - wanted
    if trust == "local":  # the devices' noise is in what they sent
        np.testing.assert_allclose(away, 0, rtol=0, atol=1e-5)
    else:
        assert np.mean(away**2) / variance == pytest.approx(1, abs=0.35)


def table_of(twins: Twins, sent: dict[tuple[int, int], bytes]) -> tuple[np.ndarray, float, bool]:
    """The item table as the lineage's sums of what devices sent make it; how much server's noise varies beside it.

    And whether any upload was older than its round.
    """
    how, experiment = Buffering(2, 4, 0.5, 3), twins.begun.experiment
    table = twins.begun.read_tensors("model")["shared.item"].numpy().astype(np.float64)
    names, variance, stale = {client: user for user, client in twins.users.items()}, 0.0, False
    noise = plan_of(twins.begun, len(twins.users), ROUNDS).noise
    assert noise is not None
    for opened, closed in twins.begun.lineage.rounds:
        assert closed is not None
        whole = np.zeros_like(table)
        for client, began in closed.summed:
            bundle = open_bundle(twins.bundle_of(names[client]))
            assert bundle.config.learning is not None
            update = read_update(sent[client, began], bundle.config.learning, bundle.manifest.bundle_id)
            step = bundle.config.learning.release.step
            assert step is not None
            weighed = how.weight(opened.round - began) * update.update.reshape(table.shape)
            by_server = bundle.config.learning.release.noised == "server"
            whole += step * (np.trunc(weighed) if by_server else weighed)
            stale = stale or began < opened.round
        if closed.summed:
            table = table + whole / len(closed.summed)
            variance += (noise.std / len(closed.summed)) ** 2
    assert experiment.privacy.clip == 1.0
    return table, variance, stale


@pytest.mark.slow
def test_killed_servers_count_each_upload_once(twins: Twins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tensors are is what the uploads that the lineage names come to, whenever the server was killed."""
    sent: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    send = Server.send

    def noted(server: Server, number: int, content: bytes) -> bool:
        sent[twins.users[str(server.identity.record.user)], number].add(content)
        return send(server, number, content)

    monkeypatch.setattr(Server, "send", noted)
    points = ["an answer", "the tensors", "a line", "a round closed", "a file", "a round offered"]
    jobs = [
        {"point": point, "how": how, "call": 2 + at % 3, "rounds": 99}
        for at, (point, how) in enumerate((point, how) for point in points for how in ("before", "after"))
    ]
    with killable(twins, tmp_path / "states") as told:
        for job in jobs:
            assert told(job) == -9, job
        assert told({"rounds": 2}) == 0
    summed(twins, sent)


def summed(twins: Twins, sent: dict[tuple[int, int], set[bytes]]) -> None:
    """The lineage's sums, made again of what devices sent, come to the server's tensors."""
    bundle, lineage, how = open_bundle(twins.bundle), twins.begun.lineage, Buffering(2, 4, 0.5, 3)
    learning = bundle.config.learning
    assert learning is not None
    table = twins.begun.read_tensors("model")["shared.item"].numpy().astype(np.float64)
    seen: set[tuple[int, int]] = set()
    for opened, closed in lineage.rounds:
        assert closed is not None
        assert not closed.burnt
        pairs = [(client, began) for client, began in closed.summed]
        assert not seen & set(pairs), "an upload is in two sums"
        seen |= set(pairs)
        whole = np.zeros_like(table)
        for client, began in pairs:
            (content,) = sent[client, began]
            items, values = read_update(content, learning, bundle.manifest.bundle_id).rows["item"]
            whole[items] += how.weight(opened.round - began) * values
        table = (table + whole / max(len(pairs), 1)).astype(np.float32).astype(np.float64)
    assert len(seen) >= 12
    found = twins.begun.path / "lineage" / "shared.safetensors"
    np.testing.assert_allclose(load_file(found)["shared.item"], table, rtol=0, atol=1e-5)


def test_secure_sums_are_refused_with_the_reason(twins: Twins, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="under masks is of devices that are asked at once"):
        serve(twins.begun, CLASS, 1, collecting=Collecting(sealed=True), out=tmp_path / "served")


def test_nobody_starts_who_is_not_written_down_first(tmp_path: Path) -> None:
    lineage, head = Lineage.of(tmp_path), ""
    assert lineage.open is None
    begun = Begun(run="0" * 64, model="0" * 64, ledger=None, round=0, clients=4, terms=None)
    opened = Opened(round=1, bundle="0" * 64, event=None, clients=[], refused=[], buffered=True)
    for one in (begun, opened, Started(round=1, clients=[2]), Started(round=1, clients=[0, 3])):
        line, head = sealed(one, head)
        lineage.add(line)
    assert lineage.open is not None
    assert lineage.open.clients == [2, 0, 3]
    for wrong, words in ((Started(round=1, clients=[2]), "starts twice"), (Started(round=2, clients=[1]), "can start")):
        line, _ = sealed(wrong, head)
        with pytest.raises(ValueError, match=words):
            lineage.add(line)


# --- the broker alone -------------------------------------------------------------------------------------------------


class Alone:
    """A broker of four devices, of which two may be at work and three uploads fill a round.

    `told` has what its rounds said of how far they are; `ends` puts its clock ahead.
    """

    def __init__(self) -> None:
        self.ahead, self.timeout_s = 0.0, 0.0
        self.told: list[tuple[int, int, str]] = []
        origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
        self.bundle = origin.bundle
        self.broker = BufferedBroker(
            dict.fromkeys("abcd", origin.bundle),
            origin.learning,
            origin.items,
            Buffering(3, 2, 0.5, 1),
            clock=lambda: monotonic() + self.ahead,
        )
        self.started: list[list[str]] = []
        self.found: list[tuple[str, int]] | None = None

    def release(self, number: int, value: float = 1.0) -> bytes:
        rows = {"item": (np.array([2]), np.full((1, 8), value, np.float32))}
        return ClientUpdate(self.bundle, number, np.zeros(0, np.float32), rows, examples=5).to_bytes()

    def open(self, number: int, timeout_s: float = 5000.0, fewest: int = 1) -> Thread:
        self.broker.open(number, {self.bundle: b"from"}, "abcd")
        self.timeout_s, begun = timeout_s, Event()

        def tell(*said: Any) -> None:
            self.told.append(said)
            begun.set()

        def lead() -> None:
            taken = self.broker.gather(timeout_s, fewest, self.started.append, tell)
            self.found = [(one.device, one.round) for one in taken]

        thread = Thread(target=lead)
        thread.start()
        assert begun.wait(60)
        return thread

    def ends(self, leader: Thread) -> None:
        """Let the time of the round go by."""
        self.ahead += self.timeout_s
        leader.join(60)
        assert not leader.is_alive()

    def asks(self, device: str, after: int) -> bool:
        for _ in range(50):
            if (task := self.broker.task(device, after)) is not None:
                assert task.content == b"from"
                return True
            Event().wait(0.01)
        return False

    def refused(self, call: Callable[[], None]) -> str:
        with pytest.raises(RequestRefused) as found:
            call()
        assert found.value.status == 409
        return str(found.value)


def test_who_is_done_is_replaced_and_works_once_a_round() -> None:
    alone = Alone()
    leader = alone.open(5)
    assert alone.asks("a", 0)
    assert alone.asks("b", 0)
    assert not alone.asks("c", 0), "two are at work"
    assert "not at work" in alone.refused(lambda: alone.broker.submit("c", 5, alone.release(5)))
    alone.broker.submit("a", 5, alone.release(5))
    assert alone.asks("c", 0)
    alone.broker.submit("a", 5, alone.release(5))
    assert "not at work" in alone.refused(lambda: alone.broker.submit("a", 5, alone.release(5, 2.0)))
    assert not alone.asks("a", 5), "once a round"
    alone.broker.submit("c", 5, alone.release(5))
    assert alone.asks("d", 0)
    alone.broker.submit("d", 5, alone.release(5))
    alone.ends(leader)
    assert alone.found == [("a", 5), ("c", 5), ("d", 5)]
    assert alone.started == [["a"], ["b"], ["c"], ["d"]]


def test_an_upload_is_of_the_round_its_device_started_in_and_none_is_too_old() -> None:
    alone = Alone()
    for number in (5, 6):
        leader = alone.open(number, 100)
        if number == 5:
            assert alone.asks("a", 0)
            assert alone.asks("b", 0)
        alone.ends(leader)
        assert alone.found == []
    leader = alone.open(6, 500)
    assert "not at work" in alone.refused(lambda: alone.broker.submit("a", 6, alone.release(6)))
    alone.broker.submit("a", 5, alone.release(5))
    alone.ends(leader)
    assert alone.found == [("a", 5)]
    leader = alone.open(7, 100)
    assert "more than 1 rounds ago" in alone.refused(lambda: alone.broker.submit("b", 5, alone.release(5)))
    assert "not at work" in alone.refused(lambda: alone.broker.submit("b", 5, alone.release(5)))
    alone.ends(leader)
    assert alone.broker.stale == 1


def test_too_few_uploads_wait_for_the_next_round_and_their_devices_with_them() -> None:
    alone = Alone()
    leader = alone.open(5, 300, fewest=2)
    assert alone.asks("a", 0)
    alone.broker.submit("a", 5, alone.release(5))
    alone.ends(leader)
    assert alone.found == []
    leader = alone.open(6, 600, fewest=2)
    assert not alone.asks("a", 5), "its upload waits"
    assert alone.asks("b", 0)
    alone.broker.submit("b", 6, alone.release(6))
    alone.ends(leader)
    assert alone.found == [("a", 5), ("b", 6)]


def test_a_killed_server_goes_on_with_who_had_started() -> None:
    alone = Alone()
    alone.broker.resume({"a": 4, "b": 5, "c": 5}, {"a": alone.release(4)})
    leader = alone.open(5, 600, fewest=1)
    assert alone.asks("b", 0), "the same round again"
    assert not alone.asks("d", 0), "two are at work"
    alone.broker.submit("a", 4, alone.release(4))
    alone.broker.submit("c", 5, alone.release(5))
    alone.ends(leader)
    assert alone.found == [("a", 4), ("c", 5)]


class Counting:
    """A ledger that lets everybody release, and writes nothing down; `began` says who had started when it ended."""

    def __init__(self, over: int, began: dict[int, int] | None = None):
        self.round, self.began = over, began or {}

    def open(self, number: int, cohort: np.ndarray) -> np.ndarray:
        return cohort

    def start(self, clients: list[int]) -> None:
        pass

    def close(self, started: object, summed: object) -> None:
        self.round += 1

    def started(self, since: int) -> dict[int, int]:
        return {client: number for client, number in self.began.items() if number >= since}


def in_rounds(alone: Alone, ledger: Counting, answers: Answers) -> Devices:
    """The backend of four devices, whose rounds last a moment and need two answers."""
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), dict(enumerate("abcd")))
    alone.broker.keep = answers.keep
    how, origins = alone.broker.terms, Origins({"only": origin})
    return Devices(alone.broker, origins, 0.3, ledger, 2, answers, buffering=how)  # type: ignore[arg-type]


def test_an_upload_that_is_too_old_leaves_the_disk_when_its_round_is_over(tmp_path: Path) -> None:
    alone, answers = Alone(), Answers(tmp_path)
    devices, left = in_rounds(alone, Counting(4), answers), []
    (origin,) = devices.origins.classes.values()
    shared = {name: torch.from_numpy(value) for name, value in {**origin.dense, **origin.tables}.items()}
    with ThreadPoolExecutor(1) as pool:
        for number in (5, 6, 7):  # an upload waits for one round
            gathered = pool.submit(devices.gather, number, np.arange(4), shared)
            if number == 5:
                while alone.broker.task("a", 0) is None:
                    Event().wait(0.01)
                alone.broker.submit("a", 5, alone.release(5))
            assert gathered.result(10) == []
            assert answers.count(5) == 1, "the round is not over"
            devices.close()
            left.append(answers.count(5))
    assert left == [1, 1, 0]


def test_a_server_that_goes_on_keeps_the_uploads_alone_that_wait(tmp_path: Path) -> None:
    """A server was killed after it had closed a round, and before it deleted what was in its sum or too old."""
    alone, answers = Alone(), Answers(tmp_path)
    for number, device in ((4, "a"), (5, "b"), (5, "c"), (6, "d")):
        answers.keep(device, number, alone.release(number))
    in_rounds(alone, Counting(5, {0: 4, 2: 5, 3: 6}), answers).resume()  # b's is in a sum
    assert [answers.count(number) for number in (4, 5, 6)] == [0, 1, 1]
    assert answers.of(5, "bc").keys() == {"c"}
