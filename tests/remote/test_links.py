"""Links between rehearsing devices and a server fail as the fleet says, and tell neither side of it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edge.connection import Patience
from edge.remote import TrafficCounts, join
from edgefr.fleet import Failure
from edgefr.serving.links import Links
from edgefr.serving.shadow import Fate
from edgefr.simulation.runs.lineage import Lineage
from tests.devices import open_device
from tests.remote.worlds import fedmf, known, serving

HELD_S = 0.8


@pytest.fixture
def links() -> Iterator[list[Links]]:
    made: list[Links] = []
    yield made
    for one in made:
        one.stop()


def test_every_failure_comes_to_what_it_is_called(tmp_path: Path, links: list[Links]) -> None:
    twins, killed = fedmf().own(tmp_path), []
    slow, cut, late, away, lost, sound = twins.users
    fates = {
        (1, slow): Fate(Failure.OK, HELD_S),
        (1, cut): Fate(Failure.UPLOAD, 0.0),
        (1, late): Fate(Failure.DEADLINE, 0.0),
        (1, away): Fate(Failure.UNAVAILABLE, 0.0),
        (1, lost): Fate(Failure.CLIENT, 0.0),
    }
    began = time.monotonic()
    with serving(twins.begun, tmp_path / "served", rounds=2, timeout_s=4.0, min_answers=2) as (url, future):
        links.append(Links(url, fates, 1.0, 1, killed.append))
        addresses = links[0].start(list(twins.users))

        def one(user: str) -> TrafficCounts:
            known(twins.begun, tmp_path / user, user)
            device = open_device(twins.bundle, tmp_path / user, user=user)
            return join(device, addresses[user], twins.items(user), patience=Patience(tries=5, pause_s=0.05))

        with ThreadPoolExecutor(len(addresses)) as pool:
            counts = dict(zip(addresses, pool.map(one, addresses), strict=True))
        served = future.result(60)
    assert served.summary["missing"] == [4, 0]
    assert killed == [lost]
    assert {user: (count.taken, count.late) for user, count in counts.items()} == {
        slow: (2, 0),
        cut: (1, 1),
        late: (1, 1),
        away: (1, 0),
        lost: (1, 1),
        sound: (2, 0),
    }
    assert time.monotonic() - began > 4.0, "nobody waited for those who were lost"
    first = Lineage.of(twins.begun.path).rounds[0][1]
    assert first is not None
    charged = {user for user, number in twins.users.items() if number in first.clients}
    assert charged == set(twins.users) - {away}, "who never heard of a round has taken up no work"
    for user, count in counts.items():
        traffic = links[0].traffic[user]
        assert (traffic.up, traffic.down, traffic.late) == (count.bytes_up, count.bytes_down, count.late)


def test_a_release_arrives_when_the_fleet_says(tmp_path: Path, links: list[Links]) -> None:
    twins = fedmf().own(tmp_path)
    slow = next(iter(twins.users))
    with serving(twins.begun, tmp_path / "served", rounds=1, timeout_s=30.0) as (url, future):
        links.append(Links(url, {(1, slow): Fate(Failure.OK, 10 * HELD_S)}, 0.1, 1, lambda user: None))
        addresses = links[0].start(list(twins.users))

        def one(user: str) -> float:
            known(twins.begun, tmp_path / user, user)
            join(open_device(twins.bundle, tmp_path / user, user=user), addresses[user], twins.items(user))
            return time.monotonic()

        with ThreadPoolExecutor(len(addresses)) as pool:
            ended = min(pool.map(one, addresses))
        served = future.result(60)
    assert served.summary["missing"] == [0]
    assert ended - links[0].opened[1] >= HELD_S


def test_a_link_that_is_stopped_listens_no_more_and_lets_go_of_what_it_held() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a server that never answers
        made = Links(f"http://127.0.0.1:{silent.getsockname()[1]}", {}, 1.0, 1, lambda device: None)
        (address,) = made.start(["a"]).values()
        port = int(address.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as held:
            held.sendall(b"GET /v1/anything HTTP/1.1\r\n\r\n")
            passed_on, _ = silent.accept()
            with passed_on:
                made.stop()
                assert held.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
    assert made.loop.is_closed()
