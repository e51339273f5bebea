"""A run without rounds, its users as real devices, and the same run simulated."""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import edgefr
from edge.connection import Patience
from edge.device import Device
from edge.identity import Identity
from edge.ragged import Ragged
from edge.remote import TrafficCounts, join
from edgefr import Experiment
from edgefr.engine.scoring import ModelScorer
from edgefr.serving import devices
from edgefr.serving import round_status as waiting
from edgefr.serving.keys import Keys
from edgefr.serving.serve import Served, serve
from edgefr.simulation.bundles import learning_of, signing_key
from edgefr.simulation.evaluation.ranking import evaluate
from edgefr.simulation.prepare import prepare
from edgefr.simulation.resolve import Releases
from edgefr.simulation.runs.device_users import users_of_class
from edgefr.simulation.runs.run import Run
from edgefr.simulation.runs.saved_model import open_model
from edgefr.simulation.runs.upload_trust import SEEN, Collecting
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from export.program import read_by
from export.variants import ClassLimits
from privacy.errors import InputError
from privacy.progress import Progress
from tests.cli.commands import ROOT
from tests.devices import open_device
from tests.export import worlds

CLASS, ROUNDS = "laptop_x86", 3
TRUSTED = Collecting(trusted="the server of the tests")
WIDE = 50  # a cut-off that some of so few users reach
COMMON = {
    "data_options.users": 6,
    "data_options.items": 160,
    "data_options.interactions": 14,
    "batch_size": 32,
    "evaluation.every": 3,
    "evaluation.k": f"[10, {WIDE}]",
    "evaluation.full_ranking_users": 0,
    "engine.shard_size": 3,
    "fleet": str({**IDEAL_FLEET, "share": {CLASS: 1.0}}).replace("None", "null"),
}
FEDMF = {"method": "fedmf", "local_epochs": 2, "model.dim": 4, "model.init_scale": 0.3, "model.lr": 0.5}
FEDMF |= {"model.item_lr": 2.0, "privacy.trust": "local", "privacy.clip": 1.0, "privacy.norm": "l1"}
NOISE = {"privacy.trust": "central", "privacy.mechanism": "laplace", "privacy.sigma": 0.2}  # on top of FEDMF's clip
TRANSFR = {
    "method": "transfr",
    "fidelity": "paper",
    "clients_per_round": 1.0,
    "local_epochs": 3,
    "model.adapter": "[16, 8]",
    "aggregation.server_lr": 0.05,
    "model.head_form": "plain",
    "model.head": "[8]",
    "model.lr": 0.01,
    "model.local_training_epochs": 2,
    "encoder.distill": "{layers: 1, layer_map: [3], hidden: 24, steps: 2, warmup: 0, max_tokens: 16}",
}


@dataclass(frozen=True)
class Twins:
    """The same experiment simulated for `ROUNDS` rounds, and with none so that devices do them."""

    simulated: Run
    begun: Run

    @classmethod
    def of(cls, settings: dict[str, Any], folder: Path) -> Twins:
        simulated, begun = (simulate(settings, rounds, folder / f"rounds-{rounds}") for rounds in (ROUNDS, 0))
        if begun.experiment.row.needs_text:
            ship(begun)
        return cls(simulated, begun)

    def own(self, folder: Path) -> Twins:
        """The same with a run of its own to be served: its lineage is that of one test."""
        return Twins(self.simulated, Run(shutil.copytree(self.begun.path, folder / "begun")))

    @property
    def bundle(self) -> Path:
        return self.begun.path / "bundles" / CLASS

    def bundle_of(self, user: str) -> Path:
        """The bundle of a user's class."""
        made = sorted((self.begun.path / "bundles").iterdir())
        return next(path for path in made if self.users[user] in users_of_class(self.begun, path.name))

    @property
    def train(self) -> Ragged:
        """The users' own items."""
        tensors = self.begun.read_tensors("model")
        return Ragged(tensors["train.values"].numpy(), tensors["train.offsets"].numpy())

    @property
    def users(self) -> dict[str, int]:
        """Ids and numbers of the users with a device."""
        ids, counts = open_model(self.begun).model.names.users, self.train.counts
        return {ids[u]: u for u in np.flatnonzero(counts).tolist()}

    def items(self, user: str) -> list[str]:
        """A user's own items by id, in the order of the simulation."""
        ids = open_model(self.begun).model.names.items
        return [ids[item] for item in self.train[self.users[user]]]

    def simulated_scores(self, private: str = "rounds") -> np.ndarray:
        """Scores of every user and item after the simulated rounds; `private` "personal": after local training."""
        model = open_model(self.simulated).model
        used = read_by(model.program.phases, "round")
        own = {n: v for n, v in model.private.items() if n in used or private == "personal"}
        device = next(iter(model.shared.values())).device
        score = ModelScorer.of(replace(model, private=own, history=self.train), device)
        return score(np.array(list(self.users.values())), None)

    def metrics(self, scores: np.ndarray) -> dict[str, float]:
        """Metrics of scores [users, items] on the run's own test candidates."""
        split = prepare(self.begun.experiment, None, "cpu").train_split
        users = np.array(list(self.users.values()))
        assert np.isin(split.users("test"), users).all()

        def score(asked: np.ndarray, items: np.ndarray | None) -> np.ndarray:
            assert items is not None
            return np.take_along_axis(scores[np.searchsorted(users, asked)], items.astype(np.int64), 1)

        return evaluate(score, split, "test", "sampled").metrics([10, WIDE])

    def simulated_metrics(self, stage: str) -> dict[str, float]:
        """What the simulator itself measured after the last round."""
        table = pq.read_table(self.simulated.path / "metrics.parquet").to_pylist()
        wanted = {"round": None, "stage": stage, "which": "test", "ranking": "sampled"}
        return {row["metric"]: row["value"] for row in table if wanted.items() <= row.items()}


def experiment_of(settings: dict[str, Any], rounds: int) -> Experiment:
    """Settings on top of what all runs here have in common (None: without one of these)."""
    values = COMMON | settings | {"rounds": rounds}
    return edgefr.load_experiment(overrides=[f"{key}={value}" for key, value in values.items() if value is not None])


def simulate(settings: dict[str, Any], rounds: int, out: Path) -> Run:
    """A simulated run; one without rounds has a bundle with its users, unless `ship` makes it."""
    experiment = experiment_of(settings, rounds)
    run = edgefr.simulate(experiment, ROOT / "devices.yaml", out=out, bundles=False)
    if not (rounds or experiment.row.needs_text):
        edgefr.export(run, with_users=True)
    return run


@cache
def fedmf() -> Twins:
    """The one that several tests share; its folders are only read."""
    return Twins.of(FEDMF, kept())


def noisy(folder: Path, **more: float | str | None) -> Twins:
    """FedMF with the server's noise and more settings (None: without one), a run of its own to be served."""
    settings = FEDMF | NOISE | {name.replace("__", "."): value for name, value in more.items()}
    return _noisy(frozenset((name, value) for name, value in settings.items() if value is not None)).own(folder)


@cache
def _noisy(settings: frozenset[tuple[str, Any]]) -> Twins:
    return Twins.of(dict(sorted(settings)), kept())


def kept() -> Path:
    """A folder for as long as the tests run."""
    folder = Path(tempfile.mkdtemp(prefix="remote-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def ship(run: Run) -> None:
    """The bundle of a run's one class with its texts' vectors unrounded, and without the encoder that made them.

    A rounded vector, as the variants of a smaller class have it, is not what was simulated.
    """
    experiment, saved = run.experiment, open_model(run)
    model, names = saved.model, saved.model.names
    everyone = list(range(len(names.users)))
    worlds.export(
        out=run.path / "bundles",
        program=model.program,
        shared=model.shared,
        private=model.private,
        users=names.users,
        history=None,
        seen=model.own,
        item_ids=names.items,
        titles=names.titles,
        encoder=None,
        pooling="mean",
        max_tokens=8,
        classes={CLASS: ClassLimits(8000, 20)},
        users_of={CLASS: everyone},
        created=saved.created,
        provenance={},
        seed=experiment.seed,
        learning=learning_of(experiment, Releases.of_run(run, len(everyone)).plan(experiment)),
        key=signing_key(run),
    )


@contextmanager
def serving(
    run: Run, out: Path, rounds: int = ROUNDS, classes: str | list[str] | None = CLASS, **options: Any
) -> Iterator[tuple[str, Any]]:
    """`serve` in a thread: its address, and a future of what it ends with.

    Under central trust the server is named as trusted, unless something else is said. `classes`: of the devices.
    """
    urls: queue.Queue[str] = queue.Queue()
    options = {"collecting": TRUSTED if run.experiment.privacy.trust == "central" else SEEN, **options}
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(serve, run, classes, rounds, out=out, ready=urls.put, **{"timeout_s": 60.0, **options})
        while urls.empty() and not future.done():
            threading.Event().wait(0.01)
        if urls.empty():
            future.result()  # says why it does not serve
        yield urls.get(), future


Moment = int | tuple[int, str]


def time_up(monkeypatch: pytest.MonkeyPatch, answers: Mapping[Moment, int]) -> Progress:
    """Progress under which rounds, or steps of their secure sums, end with so many answers as if their time were over.

    Who is waited for in vain then costs a test no time, and whoever comes has all the time it needs.
    """
    gone, ended = [0.0], set[Moment]()
    now = SimpleNamespace(monotonic=lambda: time.monotonic() + gone[0])
    monkeypatch.setattr(waiting, "time", now)
    monkeypatch.setattr(devices, "GRACE_S", 1.0)  # nor does it wait for who never comes for the last word

    def progress(stage: str, done: int, total: int, note: str) -> None:
        said = re.match(r"round (\d+),(?:.* step (\w+) )?", note)
        if stage == waiting.STAGE and said is not None:
            moment = int(said[1]) if said[2] is None else (int(said[1]), said[2])
            if moment not in ended and done >= answers.get(moment, total + 1):
                ended.add(moment)
                gone[0] += 3600.0

    return progress


def known(run: Run, state: Path, user: str) -> Identity:
    """The identity of a user's device, which its run's server knows from now on."""
    identity = Identity.made(state)
    if identity.record.user is not None:
        return identity
    keys = Keys(run.path)
    keys.enrol(keys.issue([user])[user], identity.key)
    return identity.enrolled(user, None)


def take_part(
    twins: Twins, url: str, states: Path, users: list[str], bundle: Path | None = None, **options: Any
) -> dict[str, TrafficCounts]:
    """These users' devices work for a server, a thread each, to the end; `bundle`: that they hold (None: the run's)."""
    quick = {"patience": Patience(tries=3, pause_s=0.05), **options}

    for user in users:
        known(twins.begun, states / user, user)

    def one(user: str) -> TrafficCounts:
        return join(
            open_device(bundle or twins.bundle_of(user), states / user, user=user), url, twins.items(user), **quick
        )

    with ThreadPoolExecutor(len(users)) as pool:
        return dict(zip(users, pool.map(one, users), strict=True))


def served(twins: Twins, folder: Path, rounds: int = ROUNDS, **options: Any) -> Served:
    """Rounds with every user's device, whose states and result are in the folder."""
    return session(twins, folder / "states", rounds, folder / "served", **options)


def session(twins: Twins, states: Path, rounds: int = ROUNDS, out: Path | None = None, **options: Any) -> Served:
    """Rounds with every user's device, in this process, each with the state that it has."""
    with serving(twins.begun, out, rounds, **options) as (url, future):  # type: ignore[arg-type]
        take_part(twins, url, states, list(twins.users))
        return future.result(60)


# --- servers that are killed ------------------------------------------------------------------------------------------

BETWEEN_KILLS = Patience(tries=2, pause_s=0.02, idle_s=60.0)


def at_work(device: Device, url: str, items: list[str], over: threading.Event) -> None:
    """A device that comes again to whatever server there is, until the last has said that it was the last."""
    while not over.is_set():
        try:
            join(device, url, items, patience=BETWEEN_KILLS)
            return
        except InputError as error:
            if "cannot reach" not in str(error):
                raise
            over.wait(0.02)


class Told:
    """A process that serves and is killed as it is told, an exit code a job; devices at work go `away` at the end."""

    def __init__(self, run: Run, classes: str = CLASS):
        self.over, self.working, port = threading.Event(), list[Future[None]](), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.remote.kills", str(run.path), classes, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def __call__(self, job: dict[str, object]) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def away(self) -> None:
        self.over.set()
        wait(self.working, 60)

    def close(self) -> None:
        self.over.set()
        with self.process:
            self.process.kill()


@contextmanager
def killable(
    twins: Twins, states: Path, classes: str = CLASS, held: Mapping[str, tuple[Device, list[str]]] | None = None
) -> Iterator[Told]:
    """Servers that are killed as they are told, with every user's device at work; `held`: devices and their items."""
    for user in twins.users:
        known(twins.begun, states / user, user)
    made = held or {
        user: (open_device(twins.bundle_of(user), states / user, user=user), twins.items(user)) for user in twins.users
    }
    with closing(Told(twins.begun, classes)) as told, ThreadPoolExecutor(len(made)) as pool:
        try:
            told.working += [
                pool.submit(at_work, device, told.url, items, told.over) for device, items in made.values()
            ]
            yield told
            for future in told.working:
                future.result(60)
        finally:
            told.over.set()


def free_port() -> int:
    """A port that no outgoing connection gets: one to a port nobody listens on could be answered by itself."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
