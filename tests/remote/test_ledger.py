"""The ledger of a run that devices go on with: the simulator's, kept ahead of what it counts; who sits out is told."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest

from edge.bundle import open_bundle
from edge.remote import Server, Task
from edgefr.remote.broker import RoundBroker
from edgefr.remote.devices import Origin
from edgefr.remote.ledger import ServingLedger
from edgefr.remote.server import Access, listening
from edgefr.remote.serving import serve
from edgefr.remote.training import plan_of
from edgefr.run import Run
from edgefr.trained import open_model
from privacy.errors import InputError
from privacy.ledger import Ledger
from tests.cli.commands import COMMAND, ROOT
from tests.closeness import assert_same
from tests.contract import bundles
from tests.remote import worlds
from tests.remote.worlds import CLASS, FEDMF, NOISE, ROUNDS, Twins, experiment_of, serving, take_part

TWO = {"privacy.budget": 15.0}  # epsilon of a release: 7.07


def noisy(folder: Path, **more: float) -> Twins:
    """Twins with the server's noise; what leaves a device is the same, so the bundle serves again."""
    settings, shared = FEDMF | NOISE | {key.replace("__", "."): value for key, value in more.items()}, worlds.fedmf()
    begun = Run(shutil.copytree(shared.begun.path, folder / "begun"))
    begun.write_experiment(experiment_of(settings, 0))
    return Twins(worlds.simulate(settings, ROUNDS, folder / "simulated"), begun)


def book_of(run: Run, path: Path) -> ServingLedger:
    users = open_model(run).model.names.users
    found = ServingLedger.of(run, plan_of(run, len(users), ROUNDS), len(users), path)
    assert found is not None
    return found


def releases(path: Path) -> dict[int, int]:
    """By client, as the file has them."""
    table = pq.read_table(path)
    return dict(zip(table["client"].to_pylist(), table["releases"].to_pylist(), strict=True))


def test_devices_end_with_the_ledger_of_simulated_clients_and_sit_out_with_them(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__budget=15.0)
    told: list[tuple[str, int, int]] = []
    options = {"progress": lambda stage, done, total, note: told.append((stage, done, total))}
    with serving(twins.begun, tmp_path / "served", **options) as (url, future):
        take_part(twins, url, tmp_path / "states", list(twins.users))
        result = future.result(30)
    assert told == [("rounds", number, ROUNDS) for number in (1, 2, 3)]
    assert result.summary["missing"] == [0, 0, 0]
    served, simulated = (pq.read_table(p / "ledger.parquet") for p in (tmp_path / "served", twins.simulated.path))
    assert served.to_pydict() == simulated.to_pydict()
    assert set(served["releases"].to_pylist()) == {2}
    assert served["refused"].to_pylist() == [1] * len(twins.users)
    assert result.summary["uploads"] == 2 * len(twins.users)
    expected = twins.simulated.read_tensors("model")["shared.item"].numpy()
    assert_same(result.shared["item"], expected)
    spent = result.summary["privacy"]
    assert spent["eps_guaranteed"] == twins.simulated.summary["privacy"]["eps_guaranteed"] <= 15.0
    assert (spent["clients_refused"], spent["refusals"]) == (len(twins.users), len(twins.users))
    assert not (twins.begun.path / "ledger.parquet").exists()


def test_who_takes_up_work_is_charged_and_who_never_comes_is_not(tmp_path: Path) -> None:
    twins = noisy(tmp_path)
    leaves, absent, *present = twins.users
    with serving(twins.begun, tmp_path / "served", rounds=1, timeout_s=3.0) as (url, future):
        with urlopen(f"{url}/task?device={leaves}&after=0") as answer:
            assert answer.status == 200
        take_part(twins, url, tmp_path / "states", present)
        result = future.result(60)
    assert result.summary["missing"] == [2]
    expected = {twins.users[user]: 1 for user in (leaves, *present)}
    assert releases(tmp_path / "served" / "ledger.parquet") == dict(sorted(expected.items()))
    assert twins.users[absent] not in expected


def test_while_a_round_is_open_the_file_counts_its_whole_cohort(tmp_path: Path) -> None:
    run, path = noisy(tmp_path, privacy__budget=15.0).begun, tmp_path / "served" / "ledger.parquet"
    book, cohort = book_of(run, path), np.array([4, 1, 2])
    assert book.admit(cohort).tolist() == [4, 1, 2]
    assert releases(path) == {1: 1, 2: 1, 4: 1}
    book.charge({1})
    assert releases(path) == {1: 1}
    book.admit(cohort)
    book.charge({1, 4})
    assert book.admit(cohort).tolist() == [4, 2], "client 1 has spent its budget"
    assert releases(path) == {1: 2, 2: 1, 4: 2}
    book.close()
    assert path.exists()


def test_a_server_that_is_interrupted_leaves_the_ledger_of_who_took_up_work(tmp_path: Path) -> None:
    twins = noisy(tmp_path)
    asked = ("--bundle-class", CLASS, "--rounds", "2", "--timeout", "60", "--out", str(tmp_path / "served"))
    command = [*COMMAND, "serve", str(twins.begun.path), *asked]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        assert server.stdout is not None
        url, user = server.stdout.readline().split()[-1], next(iter(twins.users))
        with urlopen(f"{url}/task?device={user}&after=0") as answer:
            assert answer.status == 200
        assert len(releases(tmp_path / "served" / "ledger.parquet")) == len(twins.users), "while the round is open"
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 130
    finally:
        server.kill()
        server.wait()
    assert releases(tmp_path / "served" / "ledger.parquet") == {twins.users[user]: 1}


def test_where_nobody_took_up_work_no_file_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of 6 devices"):
        serve(noisy(tmp_path).begun, CLASS, 1, timeout_s=0.1, out=tmp_path / "served", ready=lambda url: None)
    assert not (tmp_path / "served").exists()


def test_it_goes_on_with_the_ledger_of_the_run(tmp_path: Path) -> None:
    run = noisy(tmp_path, privacy__budget=15.0).begun
    book = book_of(run, tmp_path / "ledger.parquet")
    book.ledger.spend([3, 5], book.event)
    book.ledger.spend([3], book.event)
    run.write_ledger(book.ledger)
    again = book_of(run, tmp_path / "ledger.parquet")
    assert again.ledger.releases().tolist() == book.ledger.releases().tolist()
    assert again.admit(np.array([3, 5, 0])).tolist() == [5, 0]


def test_a_run_whose_ledger_is_lost_or_of_another_is_refused(tmp_path: Path) -> None:
    run = noisy(tmp_path).begun
    book = book_of(run, tmp_path / "ledger.parquet")
    run.write_ledger(Ledger(3, delta=book.ledger.delta, adjacency="zero-out"))
    with pytest.raises(InputError, match="has 3 clients, the run 6"):
        book_of(run, tmp_path / "ledger.parquet")
    run.write_ledger(Ledger(6, delta=0.5, adjacency="zero-out"))
    with pytest.raises(InputError, match="is of another run"):
        book_of(run, tmp_path / "ledger.parquet")
    (run.path / "ledger.parquet").unlink()
    run.write_experiment(experiment_of(FEDMF | NOISE, 2))
    with pytest.raises(InputError, match=r"has no ledger\.parquet of its 2 rounds"):
        book_of(run, tmp_path / "ledger.parquet")


def test_who_rests_is_told_so_and_its_release_is_not_taken() -> None:
    origin = Origin.of(open_bundle(bundles.bundle("fedmf")), bundles.USERS)
    broker = RoundBroker(origin.bundle, origin.learning, ["a", "b"], origin.items)
    with listening(broker, Access()) as server:
        device = Server(server.url)
        broker.open(4, b"update", ["b"], resting=["a"])
        assert device.task("a", 3, 1 << 20) == Task(4, b"", done=False, rest=True)
        assert device.task("b", 3, 1 << 20) == Task(4, b"update", done=False)
        assert (broker.started(4), broker.started(3)) == ({"b"}, set())
        broker.finish(4, b"last", 0.0)
        assert device.task("a", 4, 1 << 20) == Task(4, b"last", done=True)
        assert broker.started(4) == {"b"}
