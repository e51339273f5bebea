"""A run without rounds, its users as real devices, and the same run simulated."""

from __future__ import annotations

import atexit
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from edge.identity import Identity
from edge.ragged import Ragged
from edge.remote import TrafficCounts, join
from edgefr import Experiment
from edgefr.engine.scoring import ModelScorer
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


def noisy(folder: Path, **more: float | None) -> Twins:
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


def time_up(monkeypatch: pytest.MonkeyPatch, answers: Mapping[int, int]) -> Progress:
    """Progress under which rounds with so many answers end, by number, as if their time were over.

    Who is waited for in vain then costs a test no time, and whoever comes has all the time it needs.
    """
    gone, ended = [0.0], set[int]()
    now = SimpleNamespace(monotonic=lambda: time.monotonic() + gone[0])
    monkeypatch.setattr(waiting, "time", now)

    def progress(stage: str, done: int, total: int, note: str) -> None:
        said = re.match(r"round (\d+),", note)
        if stage == waiting.STAGE and said is not None:
            number = int(said[1])
            if number not in ended and done >= answers.get(number, total + 1):
                ended.add(number)
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


def served(twins: Twins, folder: Path, **options: Any) -> Served:
    """All rounds with every user's device, in this process."""
    with serving(twins.begun, folder / "served", **options) as (url, future):
        take_part(twins, url, folder / "states", list(twins.users))
        return future.result(30)
