"""The serving process is killed for good, again and again: no release goes uncounted, and no noise is drawn twice."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edge.bundle import open_bundle
from edge.connection import RoundTask, Server
from edge.delta import read_delta
from edge.learning import Learning
from edge.signature import opened_seal
from edgefr.simulation.runs.lineage import FOLDER, SHARED, Opened
from edgefr.simulation.runs.run import Run
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.kills import HOW, POINTS
from tests.remote.worlds import Twins, killable

KILLS = 30
MORE = 1000  # rounds that no server lives to see


class Watched:
    """What devices were offered and what they handed out, whatever became of the servers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.offered: dict[int, dict[str, bytes]] = defaultdict(dict)  # by round, the contents by their digest
        self.asked: dict[str, set[int]] = defaultdict(set)
        self.released: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        task, send = Server.task, Server.send

        def fetched(server: Server, after: int, limit: int) -> RoundTask | None:
            found, device = task(server, after, limit), str(server.identity.record.user)
            if found is not None and not found.done and not found.rest:
                self.offered[found.round][hashlib.sha256(found.content).hexdigest()] = found.content
                self.asked[device].add(found.round)
            return found

        def sent(server: Server, number: int, content: bytes) -> bool:
            self.released[str(server.identity.record.user)][number].add(hashlib.sha256(content).hexdigest())
            return send(server, number, content)

        monkeypatch.setattr(Server, "task", fetched)
        monkeypatch.setattr(Server, "send", sent)


def moments(kills: int) -> list[dict[str, object]]:
    """Every point in every way, in an order drawn once, and as many at any time."""
    draw = np.random.default_rng(14)
    named = [{"point": point, "how": how} for point in POINTS for how in HOW]
    draw.shuffle(named)  # type: ignore[arg-type]
    jobs: list[dict[str, object]] = []
    for number in range(kills):
        if number % 3 == 2:
            jobs.append({"after": float(draw.uniform(0.2, 1.2))})
        else:
            jobs.append({**named[(number - number // 3) % len(named)], "call": int(draw.integers(1, 6))})
    return [{**job, "rounds": MORE} for job in jobs]


@pytest.mark.slow
def test_a_server_that_is_killed_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = worlds.noisy(tmp_path, privacy__sigma=2.0)
    watched, spent = Watched(monkeypatch), [0.0]
    with killable(twins, tmp_path / "states") as told:
        for job in [*moments(KILLS), {"rounds": 1}]:
            assert told(job) == (-9 if job["rounds"] == MORE else 0), job
            spent.append(epsilon(twins.begun))
    assert spent == sorted(spent), "what was spent has become less"
    holds(twins, watched)


def epsilon(run: Run) -> float:
    ledger = run.lineage.ledger()
    return 0.0 if ledger is None else ledger.worst()[0].epsilon


def holds(twins: Twins, watched: Watched) -> None:
    """Every promise of a lineage, against what devices have seen."""
    lineage = twins.begun.lineage
    ledger = lineage.ledger()
    assert ledger is not None
    opened = [line for line in lineage.lines if isinstance(line, Opened)]
    assert [line.round for line in opened] == list(range(1, len(opened) + 1))
    assert lineage.open is None
    assert lineage.record()["burnt"] == 0
    assert not (twins.begun.path / "private" / "answers").exists()
    assert {number: len(contents) for number, contents in watched.offered.items()} == dict.fromkeys(watched.offered, 1)
    for user, client in twins.users.items():
        asked = {line.round for line in opened if client in line.clients}
        assert watched.asked[user] <= asked
        assert watched.released[user].keys() <= watched.asked[user]
        assert {len(contents) for contents in watched.released[user].values()} == {1}
        charged = int(ledger.releases()[client])
        assert len(watched.released[user]) <= charged <= len(asked)
    learning = open_bundle(twins.bundle).config.learning
    assert learning is not None
    steps = noise_of(twins, watched, learning)
    assert len(steps) > KILLS // 2
    worst = max(abs(np.corrcoef(a, b)[0, 1]) for a, b in combinations(steps, 2))
    assert worst < 0.3, "two rounds had the same noise"
    kept, result = (load_file(twins.begun.path / name / "shared.safetensors") for name in (FOLDER, "served"))
    np.testing.assert_array_equal(kept["shared.item"], result["item"])
    for user in twins.users:
        device = open_device(twins.bundle, twins.begun.path.parent / "states" / user, user=user)
        np.testing.assert_array_equal(device.state.tensors["table.item"], result["item"])
        assert device.state.facts["round"] == lineage.round
    assert (twins.begun.path / FOLDER / SHARED).exists()


def noise_of(twins: Twins, watched: Watched, learning: Learning) -> list[np.ndarray]:
    """How far the server's table moved from one offered round to the next: noise, nearly all of it."""
    first = twins.begun.read_tensors("model")["shared.item"].numpy()
    tables, path = {}, twins.begun.path.parent / "offered.safetensors"
    for number, contents in sorted(watched.offered.items()):
        (content,) = contents.values()
        tables[number] = first.copy()
        if content:
            path.write_bytes(opened_seal(content)[0])
            items, values = read_delta(path, learning).rows["item"]
            tables[number][items] = values
    moves = [(tables[n + 1] - tables[n]).ravel() for n in tables if n + 1 in tables]
    return [move for move in moves if move.any()]


ENDS = {
    "some answered, and all come again": ("an answer", 9, 3),
    "all had answered, and nobody comes": ("a round collected", 2, 2),
}
"""By what was going on in the second round when its server was killed: where, at which call, and how many rounds."""


@pytest.mark.parametrize("case", ENDS)
def test_a_round_that_was_cut_off_comes_to_the_same_tensors(tmp_path: Path, case: str) -> None:
    """Without noise, nothing but a lost answer could make them differ."""
    point, call, rounds = ENDS[case]
    whole, cut = (worlds.Twins.of(worlds.FEDMF, tmp_path / name) for name in ("whole", "cut"))
    expected = worlds.served(whole, tmp_path / "whole", rounds=rounds).shared
    with killable(cut, tmp_path / "states") as told:
        assert told({"point": point, "how": "after", "call": call, "rounds": rounds}) == -9
        if "nobody" in case:
            told.away()
        assert told({"rounds": rounds - 1}) == 0
    assert [(opened.round, closed is not None and closed.burnt) for opened, closed in cut.begun.lineage.rounds] == [
        (number, False) for number in range(1, rounds + 1)
    ]
    found = load_file(cut.begun.path / "served" / "shared.safetensors")
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value.numpy())
