"""A sum has the noise that its uploads were charged for, however many rounds whichever server was started for."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgefr.engine.noise import RealNoise
from edgefr.serving.devices import Devices
from edgefr.serving.ledger import ServingLedger
from edgefr.serving.serve import ledger_of, origins_of, serve
from edgefr.serving.training import training_of
from edgefr.simulation.runs.lineage import Closed, Journal
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.upload_trust import Collecting
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from privacy.errors import InputError
from tests.cli.commands import edgefr
from tests.devices import open_device
from tests.remote import worlds
from tests.remote.test_buffered import ASYNC
from tests.remote.worlds import CLASS, FEDMF, NOISE, TRUSTED, Twins, known, noisy, session

PROMISED = 3.0  # for all rounds; one release has the noise of PROMISED over the rounds that its server counts on
SHARED_OUT = {"privacy.sigma": None, "privacy.epsilon": PROMISED}
MANY = 400


class Drawn:
    """The noise that was really drawn, over the clip, by round: that of a sum which nothing is published of too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.of: dict[int, float] = {}
        real = RealNoise.sums

        def noted(source: RealNoise, noise: Any, name: str, number: int, *rest: Any) -> Any:
            self.of[number] = min(noise.scale, self.of.get(number, np.inf))
            return real(source, noise, name, number, *rest)

        monkeypatch.setattr(RealNoise, "sums", noted)

    def true(self, run: Run) -> dict[int, float]:
        """By client the epsilon of what was published, as the noise that was drawn says; the clip is 1."""
        spent: dict[int, float] = defaultdict(float)
        for opened, closed in run.lineage.rounds:
            if closed is not None and not closed.burnt and opened.round in self.of:
                summed = [client for client, _ in closed.summed] if opened.buffered else closed.clients
                for client in summed:
                    spent[client] += 1 / self.of[opened.round]
        return spent

    def check(self, run: Run) -> float:
        """Return the largest true epsilon; for nobody does the ledger say less, and no more than is promised."""
        ledger, true = run.lineage.ledger(), self.true(run)
        assert ledger is not None
        clients = sorted(true)
        said = ledger.epsilon(np.array(clients, np.int64))
        for client, epsilon in zip(clients, said.tolist(), strict=True):
            assert true[client] <= epsilon * (1 + 1e-9), f"client {client} was charged {epsilon:.4g}"
        assert ledger.epsilon(np.arange(len(ledger))).max() <= PROMISED
        events = {opened.round: opened.event for opened, _ in run.lineage.rounds}
        for opened, closed in run.lineage.rounds:
            if closed is not None and opened.round in self.of:
                for number in {opened.round, *(began for _, began in closed.summed)}:
                    assert events[number].multiplier == self.of[opened.round]  # type: ignore[union-attr]
        return max(true.values(), default=0.0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


def leave_open(run: Run, rounds: int, collecting: Collecting = TRUSTED, buffered: bool = False) -> list[int]:
    """A server for so many rounds that was killed when its next round was on the disk; whom it was going to ask."""
    origins = origins_of(run, CLASS)
    clients = np.array(sorted(origins.users), np.int64)
    with Journal.locked(run.path) as journal:
        ledger = ledger_of(run, journal, origins, rounds, collecting, buffered)
        asked = ledger.open(ledger.round + 1, clients)
        if buffered:
            ledger.start(asked[:1].tolist())
    return asked.tolist()[: 1 if buffered else None]


def said(run: Run, cache: Path) -> float:
    """What the command says that the worst client has spent."""
    done = edgefr("privacy", run.path, "--json", cache=cache)
    return float(json.loads(done.stdout)["served"]["eps_guaranteed"])


# --- rounds that wait for their cohort --------------------------------------------------------------------------------


def test_a_round_that_was_charged_for_much_noise_is_not_summed_with_little(tmp_path: Path, drawn: Drawn) -> None:
    """It was opened for one round of 400, and the next server is started for one."""
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED)
    run, asked = twins.begun, leave_open(twins.begun, MANY)
    served = session(twins, tmp_path / "states", 1)
    (first, burnt), (second, closed) = run.lineage.rounds
    assert burnt == Closed(round=1, clients=asked, tensors=None, burnt=True)
    assert (second.round, closed.clients) == (2, asked)  # type: ignore[union-attr]
    assert drawn.of == {2: pytest.approx(2 / PROMISED, rel=1e-3)}, "the round that was given up counts among two"
    assert drawn.check(run) == pytest.approx(PROMISED / 2, rel=1e-3)
    spent = served.summary["privacy"]["eps_guaranteed"]
    assert first.event is not None
    assert spent == pytest.approx(PROMISED / 2 + 1 / first.event.multiplier, rel=1e-3)
    assert spent == said(run, tmp_path)
    session(twins, tmp_path / "states", 1)
    drawn.check(run)


def test_with_as_many_rounds_as_were_left_the_open_round_goes_on(tmp_path: Path, drawn: Drawn) -> None:
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED)
    leave_open(twins.begun, 2)
    session(twins, tmp_path / "states", 1 + 1)
    assert [(o.round, c is not None and c.burnt) for o, c in twins.begun.lineage.rounds] == [(1, False), (2, False)]
    assert drawn.check(twins.begun) == pytest.approx(PROMISED, rel=1e-3)


def test_rounds_that_the_promise_has_no_room_for_burn_nothing(tmp_path: Path, drawn: Drawn) -> None:
    """The open round is charged for all of it; it goes on where as many rounds are asked for as then."""
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED)
    leave_open(twins.begun, 1)
    head = twins.begun.lineage.head
    with pytest.raises(InputError, match=r"none fits any more.*round 1, which a killed server left, goes on where"):
        serve(twins.begun, CLASS, MANY, collecting=TRUSTED, ready=lambda url: None)
    assert twins.begun.lineage.head == head
    session(twins, tmp_path / "states", 1)
    assert [opened.round for opened, _ in twins.begun.lineage.rounds] == [1]
    assert drawn.check(twins.begun) == pytest.approx(PROMISED, rel=1e-3)


def test_what_a_round_was_charged_for_counts_in_a_budget_though_it_was_given_up(tmp_path: Path, drawn: Drawn) -> None:
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED, privacy__budget=PROMISED)
    leave_open(twins.begun, 2)
    session(twins, tmp_path / "states", 2)
    assert drawn.check(twins.begun) == pytest.approx(PROMISED, rel=1e-3)
    twins = noisy(tmp_path / "more", privacy__sigma=None, privacy__epsilon=PROMISED, privacy__budget=PROMISED)
    drawn.of.clear()
    leave_open(twins.begun, 2)  # half of it
    session(twins, tmp_path / "more", 3)  # of four rounds that is another quarter each, which two have room for
    rounds = [(c.burnt, len(c.clients), len(o.refused)) for o, c in twins.begun.lineage.rounds if c is not None]
    everybody = len(twins.users)
    assert rounds == [(True, everybody, 0), (False, everybody, 0), (False, everybody, 0), (False, 0, everybody)]
    assert drawn.check(twins.begun) == pytest.approx(PROMISED / 2, rel=1e-3)


def test_a_round_under_masks_is_not_opened_again_and_the_next_has_its_own_noise(tmp_path: Path, drawn: Drawn) -> None:
    twins = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED)
    leave_open(twins.begun, MANY, Collecting(sealed=True))
    session(twins, tmp_path / "states", 1, collecting=Collecting(sealed=True))
    assert [c is not None and c.burnt for _, c in twins.begun.lineage.rounds] == [True, False]
    assert drawn.check(twins.begun) == pytest.approx(PROMISED / 2, rel=1e-3)


def test_devices_that_add_the_noise_go_on_whatever_the_server_is_started_for(tmp_path: Path) -> None:
    asked = {"privacy__epsilon": PROMISED, "privacy__budget": 100.0, "privacy__sigma": None}
    twins = noisy(tmp_path, privacy__trust="local", **asked)
    leave_open(twins.begun, 5, collecting=Collecting())
    session(twins, tmp_path / "states", 1)
    ((_, closed),) = twins.begun.lineage.rounds
    assert closed is not None
    assert not closed.burnt


# --- rounds that wait for nobody in particular ------------------------------------------------------------------------


@cache
def _buffered(budget: float | None = None) -> Twins:
    fleet = {**IDEAL_FLEET, "share": {CLASS: 1.0}, "rounds": {**IDEAL_FLEET.get("rounds", {}), **ASYNC}}
    settings = {**FEDMF, **NOISE, **SHARED_OUT, "privacy.budget": budget, "fleet": str(fleet).replace("None", "null")}
    return Twins.of(settings, worlds.kept())


def started_in_a_round_that_is_over(twins: Twins, rounds: int, states: Path) -> int:
    """A device that took up work of the first of so many rounds and was slow: the round is closed without it."""
    (client,) = leave_open(twins.begun, rounds, buffered=True)
    origins = origins_of(twins.begun, CLASS)
    with Journal.locked(twins.begun.path) as journal:
        ledger = ledger_of(twins.begun, journal, origins, rounds, TRUSTED, True)
        assert ledger.resumed is not None
        ledger.close([])
    user = origins.users[client]
    known(twins.begun, states / user, user)
    open_device(twins.bundle, states / user, user=user).learn(twins.items(user))
    return client


def test_an_upload_that_was_charged_for_much_noise_is_not_summed_with_little(tmp_path: Path, drawn: Drawn) -> None:
    """Its device started in one round of 400, and the server that it comes back to was started for one."""
    twins = _buffered().own(tmp_path)
    late = started_in_a_round_that_is_over(twins, MANY, tmp_path / "states")
    served = session(twins, tmp_path / "states", 1)
    assert served.summary["refused_requests"] >= 1
    (opened, closed), (_, last) = twins.begun.lineage.rounds
    assert closed is not None
    assert last is not None
    assert (opened.clients, closed.clients) == ([late], [late]), "its start stays charged"
    assert (late, 1) not in last.summed
    assert len(last.summed) == 2
    drawn.check(twins.begun)
    assert served.summary["privacy"]["eps_guaranteed"] == said(twins.begun, tmp_path)


def test_an_upload_with_the_noise_of_the_rounds_that_are_left_is_summed(tmp_path: Path, drawn: Drawn) -> None:
    twins = _buffered().own(tmp_path)
    late = started_in_a_round_that_is_over(twins, 3, tmp_path / "states")
    session(twins, tmp_path / "states", 2)
    pairs = [pair for _, closed in twins.begun.lineage.rounds if closed is not None for pair in closed.summed]
    assert (late, 1) in pairs
    drawn.check(twins.begun)


def test_an_open_buffer_that_was_charged_for_much_noise_is_given_up(tmp_path: Path, drawn: Drawn) -> None:
    twins = _buffered().own(tmp_path)
    asked = leave_open(twins.begun, MANY, buffered=True)
    session(twins, tmp_path / "states", 1)
    (_, burnt), (_, last) = twins.begun.lineage.rounds
    assert burnt == Closed(round=1, clients=asked, tensors=None, burnt=True)
    assert last is not None
    assert {began for _, began in last.summed} == {2}
    drawn.check(twins.begun)


def test_who_started_with_other_noise_is_at_work_no_more(tmp_path: Path) -> None:
    """Nor where the noise of its first start is drawn again: what it started later is what it is at."""
    run = _buffered(budget=100.0).own(tmp_path).begun
    origins, found = origins_of(run, CLASS), []
    for rounds in (MANY, 10, MANY - 2):  # of 400 rounds, of 11, of 400 again
        with Journal.locked(run.path) as journal:
            ledger = ledger_of(run, journal, origins, rounds, TRUSTED, True)
            found.append(ledger.started(0))
            ledger.open(ledger.round + 1, np.array(sorted(origins.users), np.int64))
            ledger.start([0, len(found)])
            ledger.close([])
    assert found == [{}, {}, {1: 1}]


# --- what holds whoever decides it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffered", [False, True])
def test_a_round_is_burnt_where_the_next_server_adds_other_noise(tmp_path: Path, buffered: bool) -> None:
    run = _buffered().own(tmp_path).begun
    asked, origins = leave_open(run, MANY, buffered=buffered), origins_of(run, CLASS)
    with Journal.locked(run.path) as journal:
        ledger = ledger_of(run, journal, origins, 1, TRUSTED, buffered)
        assert ledger.resumed is None
        assert journal.lineage.open is None
        assert journal.lineage.rounds[0][1] == Closed(round=1, clients=asked, tensors=None, burnt=True)
        assert ledger.ledger is not None
        assert ledger.ledger.releases().tolist() == [int(client in asked) for client in range(len(ledger.ledger))]


def test_the_noise_of_a_round_that_goes_on_is_that_of_its_line(tmp_path: Path) -> None:
    """A server for one more round goes on with the first of two: a round that was lost would have been one of two."""
    run = noisy(tmp_path, privacy__sigma=None, privacy__epsilon=PROMISED).begun
    leave_open(run, 2)
    with Journal.locked(run.path) as journal:
        ledger = ledger_of(run, journal, origins_of(run, CLASS), 1, TRUSTED)
        devices = Devices(None, origins_of(run, CLASS), 1.0, ledger)  # type: ignore[arg-type]
        training = training_of(run, devices, 1)
        assert ledger.resumed is not None
        assert training.federation.plan.event == ledger.resumed.event
        assert training.federation.plan.noise == ledger.plan.noise


@pytest.mark.parametrize("summed", [[], [(0, 1), (1, 2)]])
def test_tensors_with_another_noise_than_was_written_down_are_not_published(
    tmp_path: Path, summed: list[tuple[int, int]]
) -> None:
    """The line of the round and those of all in its sum say the noise: a server that has another fails."""
    twins = _buffered().own(tmp_path)
    run, origins = twins.begun, origins_of(twins.begun, CLASS)
    with Journal.locked(run.path) as journal:
        ledger: ServingLedger = ledger_of(run, journal, origins, MANY, TRUSTED, True)
        ledger.open(1, np.array([0, 1]))
        ledger.start([0])
        plan = ledger.plan
        if summed:
            ledger.close([])
            ledger.plan = plan = replace(plan, event=replace(plan.event, multiplier=2.0))
            ledger.open(2, np.array([0, 1]))
            ledger.start([1])
        else:
            plan = replace(plan, event=replace(plan.event, multiplier=2.0))
        federation: Any = SimpleNamespace(plan=plan, optimiser=None, shared={}, previous={})
        with pytest.raises(RuntimeError, match="has another noise than round 1 was charged for"):
            ledger.keep(journal.lineage.round, federation, summed)
        assert not ledger.path.exists()
