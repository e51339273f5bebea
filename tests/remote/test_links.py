"""Links between rehearsing devices and a server fail as the fleet says, and tell neither side of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.connection import Patience, Server
from edgefr.fleet import Failure
from edgefr.serving.links import Links
from edgefr.serving.serve import by_http, origins_of
from edgefr.serving.server import Access
from edgefr.serving.shadow import Fate
from privacy.errors import InputError
from tests.remote.worlds import CLASS, Twins, fedmf, known, serving, take_part, time_up

HELD_S = 0.8
PATIENT = Patience(tries=5, pause_s=0.05)


@contextmanager
def linked(
    twins: Twins, folder: Path, rounds: int, fates: Mapping[tuple[int, str], Fate], **options: Any
) -> Iterator[tuple[str, Any, Links, list[str]]]:
    """A server behind links: its address, what it ends with, the links, and whose process they have killed."""
    killed: list[str] = []
    links = Links(fates, 1.0, 1, killed.append)
    carried = by_http(Access(), twins.begun, origins_of(twins.begun, CLASS), rounds, links.over)
    with serving(twins.begun, folder / "served", rounds, transport=carried, **options) as (url, future):
        yield url, future, links, killed


def test_every_failure_comes_to_what_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = fedmf().own(tmp_path)
    slow, cut, late, away, lost, sound = twins.users
    ends = {slow: Failure.OK, cut: Failure.UPLOAD, late: Failure.DEADLINE, away: Failure.UNAVAILABLE}
    fates = {(1, user): Fate(end, HELD_S) for user, end in (ends | {lost: Failure.CLIENT}).items()}
    options = {"min_answers": 2, "progress": time_up(monkeypatch, {1: 2})}
    with linked(twins, tmp_path, 2, fates, **options) as (url, future, links, killed):
        counts = take_part(twins, url, tmp_path / "states", list(twins.users), patience=PATIENT)
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
    first = twins.begun.lineage.rounds[0][1]
    assert first is not None
    charged = {user for user, number in twins.users.items() if number in first.clients}
    assert charged == set(twins.users) - {away}, "who never heard of a round has taken up no work"
    for user, count in counts.items():
        traffic = links.traffic[user]
        assert (traffic.up, traffic.down, traffic.late) == (count.bytes_up, count.bytes_down, count.late)


def test_a_release_arrives_when_the_fleet_says(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    slow = next(iter(twins.users))
    with linked(twins, tmp_path, 1, {(1, slow): Fate(Failure.OK, HELD_S)}) as (url, future, links, _):
        take_part(twins, url, tmp_path / "states", list(twins.users))
        assert time.monotonic() - links.opened[1] >= HELD_S
        assert future.result(60).summary["missing"] == [0]


def test_a_server_that_stops_lets_go_of_what_its_links_hold_and_strangers_are_refused(tmp_path: Path) -> None:
    twins = fedmf().own(tmp_path)
    user = next(iter(twins.users))
    away = {(1, user): Fate(Failure.UNAVAILABLE)}
    with linked(twins, tmp_path, 1, away, timeout_s=0.5) as (url, future, links, _), ThreadPoolExecutor(1) as pool:
        identity = known(twins.begun, tmp_path / "state", user)
        asking = pool.submit(Server(url, identity, patience=PATIENT).task, 0, 1 << 20)
        with pytest.raises(InputError, match="nothing was published"):
            future.result(60)
        assert not wait([asking], 20).not_done
    assert links.asked == {user}
