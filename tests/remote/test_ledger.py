"""One ledger for a run and all that is served from it: it is kept ahead of what it counts; who sits out is told."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from edge.bundle import open_bundle
from edge.connection import RoundTask, Server
from edgefr.serving.broker import RoundBroker
from edgefr.serving.keys import Keys
from edgefr.serving.ledger import ServingLedger
from edgefr.serving.origin import Origin
from edgefr.serving.serve import serve
from edgefr.serving.server import Access, listening
from edgefr.serving.status import status
from edgefr.serving.training import plan_of
from edgefr.simulation.runs.lineage import Journal
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from privacy.errors import InputError
from privacy.ledger import Ledger
from tests.cli.commands import COMMAND, ROOT, hear_interrupts
from tests.contract import bundles
from tests.devices import open_device
from tests.remote.worlds import (
    CLASS,
    FEDMF,
    NOISE,
    ROUNDS,
    experiment_of,
    known,
    noisy,
    serving,
    session,
    take_part,
    time_up,
)

TWO = {"privacy.budget": 15.0}  # epsilon of a release: 7.07


@contextmanager
def ledger_of(run: Run) -> Iterator[ServingLedger]:
    """The ledger of a run that is going to be served, under its lock."""
    users = open_model(run).model.names.users
    with Journal.locked(run.path) as journal:
        yield ServingLedger.of(run, journal, plan_of(run, len(users), ROUNDS), len(users), "0" * 64)


def releases(run: Run) -> dict[int, int]:
    """By client, as the files of the run and its lineage have them."""
    table = run.ledger
    return {c: n for c, n in zip(table["client"].tolist(), table["releases"].tolist(), strict=True) if n}


def test_devices_end_with_the_ledger_of_simulated_clients_and_sit_out_with_them(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__budget=15.0)
    told: list[tuple[str, int, int]] = []
    options = {"progress": lambda stage, done, total, note: told.append((stage, done, total))}
    result = session(twins, tmp_path / "states", out=tmp_path / "served", **options)
    assert [one for one in told if one[0] == "rounds"] == [("rounds", number, ROUNDS) for number in (1, 2, 3)]
    assert {stage for stage, _, _ in told} == {"rounds", "answers"}
    assert result.summary["missing"] == [0, 0, 0]
    served, simulated = twins.begun.ledger, twins.simulated.ledger
    assert served.to_dict() == simulated.to_dict()
    assert set(served["releases"].tolist()) == {2}
    assert served["refused"].tolist() == [1] * len(twins.users)
    assert result.summary["uploads"] == 2 * len(twins.users)
    spent = result.summary["privacy"]
    assert spent["eps_guaranteed"] == twins.simulated.summary["privacy"]["eps_guaranteed"] <= 15.0
    assert (spent["clients_refused"], spent["refusals"]) == (len(twins.users), len(twins.users))
    assert twins.begun.simulated_ledger(spent).releases().max() == 0  # type: ignore[union-attr]


def test_who_takes_up_work_is_charged_and_who_never_comes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = noisy(tmp_path)
    leaves, absent, *present = twins.users
    progress = time_up(monkeypatch, {1: len(present)})
    with serving(twins.begun, tmp_path / "served", rounds=1, timeout_s=9.0, progress=progress) as (url, future):
        identity = known(twins.begun, tmp_path / "states" / leaves, leaves)
        assert Server(url, identity).task(0, 1 << 20) is not None
        take_part(twins, url, tmp_path / "states", present)
        result = future.result(60)
    assert result.summary["missing"] == [2]
    noise, planned = result.summary["noise"], plan_of(twins.begun, len(twins.users), 1)
    assert noise["smallest_cohort"] == len(present)
    assert noise["std_on_mean"] == pytest.approx(planned.std_on_mean * len(twins.users) / len(present))
    expected = {twins.users[user]: 1 for user in (leaves, *present)}
    assert releases(twins.begun) == dict(sorted(expected.items()))
    assert twins.users[absent] not in expected


def test_who_sends_what_it_had_learned_is_charged_though_it_asked_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a device does that comes back after its answer was lost: one release, and its place in the ledger."""
    twins = noisy(tmp_path)
    user, *others = twins.users
    progress = time_up(monkeypatch, {1: 1})
    known(twins.begun, tmp_path / "states" / user, user)
    open_device(twins.bundle, tmp_path / "states" / user, user=user).learn(twins.items(user))
    with serving(twins.begun, tmp_path / "served", 1, min_answers=1, progress=progress) as (url, future):
        while not status(twins.begun).get("answers awaited"):
            time.sleep(0.02)
        assert take_part(twins, url, tmp_path / "states", [user])[user].taken == 1
        future.result(60)
    ((opened, closed),) = twins.begun.lineage.rounds
    assert closed is not None
    assert closed.clients == [twins.users[user]]
    assert len(opened.clients) == 1 + len(others)


def test_while_a_round_is_open_the_files_count_its_whole_cohort(tmp_path: Path) -> None:
    run, cohort = noisy(tmp_path, privacy__budget=15.0).begun, np.array([4, 1, 2])
    with ledger_of(run) as ledger:
        assert ledger.open(1, cohort).tolist() == [4, 1, 2]
        assert releases(run) == {1: 1, 2: 1, 4: 1}
        ledger.close({1})
        assert releases(run) == {1: 1}
        ledger.open(2, cohort)
        ledger.close({1, 4})
        assert ledger.open(3, cohort).tolist() == [4, 2], "client 1 has spent its budget"
        assert releases(run) == {1: 2, 2: 1, 4: 2}
    refused = run.ledger
    assert refused[refused["client"] == 1]["refused"].tolist() == [1]


def test_a_server_that_is_interrupted_leaves_the_ledger_of_who_took_up_work(tmp_path: Path) -> None:
    twins = noisy(tmp_path)
    asked = ("--bundle-class", CLASS, "--rounds", "2", "--timeout", "60", "--out", str(tmp_path / "served"))
    command = [*COMMAND, "serve", str(twins.begun.path), *asked]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=hear_interrupts,
    )
    try:
        assert server.stdout is not None
        url, user = server.stdout.readline().split()[-1], next(iter(twins.users))
        identity = known(twins.begun, tmp_path / "state", user)
        assert Server(url, identity).task(0, 1 << 20) is not None
        assert len(releases(twins.begun)) == len(twins.users), "while the round is open"
        server.send_signal(signal.SIGINT)
        assert server.wait(120) == 130
    finally:
        server.kill()
        server.wait()
    assert releases(twins.begun) == {twins.users[user]: 1}


def test_where_nobody_took_up_work_nobody_is_charged_and_the_number_is_gone(tmp_path: Path) -> None:
    run = noisy(tmp_path).begun
    with pytest.raises(InputError, match="in none of 1 rounds did 3 devices"):
        serve(run, CLASS, 1, timeout_s=0.1, out=tmp_path / "served", ready=lambda url: None)
    assert not (tmp_path / "served").exists()
    assert releases(run) == {}
    with ledger_of(run) as ledger:
        assert ledger.round == 1


def test_it_goes_on_with_the_ledger_of_the_run(tmp_path: Path) -> None:
    run = noisy(tmp_path, privacy__budget=15.0).begun
    with ledger_of(run) as ledger:
        assert ledger.ledger is not None
        ledger.ledger.spend([3, 5], ledger.event)
        ledger.ledger.spend([3], ledger.event)
        run.write_ledger(ledger.ledger)
    with ledger_of(run) as again:
        assert again.ledger is not None
        assert again.ledger.releases().tolist() == ledger.ledger.releases().tolist()
        assert again.open(1, np.array([3, 5, 0])).tolist() == [5, 0]


def test_a_run_whose_ledger_is_lost_or_of_another_is_refused(tmp_path: Path) -> None:
    run = noisy(tmp_path).begun
    with ledger_of(run) as ledger:
        assert ledger.ledger is not None
        delta = ledger.ledger.delta
    run.write_ledger(Ledger(3, delta=delta, adjacency="zero-out"))
    with pytest.raises(InputError, match="has 3 clients, the run 6"), ledger_of(run):
        pass
    run.write_ledger(Ledger(6, delta=0.5, adjacency="zero-out"))
    with pytest.raises(InputError, match="is of another run"), ledger_of(run):
        pass
    (run.path / "ledger.parquet").unlink()
    run.write_experiment(experiment_of(FEDMF | NOISE, 2))
    with pytest.raises(InputError, match=r"has no ledger\.parquet of its 2 rounds"), ledger_of(run):
        pass


def test_who_rests_is_told_so_and_its_release_is_not_taken(tmp_path: Path) -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    broker = RoundBroker(dict.fromkeys("ab", origin.bundle), origin.learning, origin.items)
    keys, run = Keys(tmp_path), Run(tmp_path)
    with listening(broker, keys, Access()) as server:
        a, b = (Server(server.url, known(run, tmp_path / user, user)) for user in "ab")
        broker.open(4, {origin.bundle: b"update"}, ["b"], resting=["a"])
        assert a.task(3, 1 << 20) == RoundTask(4, b"", done=False, rest=True)
        assert b.task(3, 1 << 20) == RoundTask(4, b"update", done=False, bundle=origin.bundle)
        assert broker.close() == {"b"}
        broker.finish(4, {origin.bundle: b"last"}, 0.0)
        assert a.task(4, 1 << 20) == RoundTask(4, b"last", done=True, bundle=origin.bundle)
