"""Noise of a served round cannot be subtracted: whatever is drawn from public bytes is as far from it as chance."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from edge.sampling import Sampler
from edgefr.config import random_streams as purposes
from edgefr.engine.backends.backend import InProcess
from edgefr.engine.executors.inline import run as inline
from edgefr.engine.federation import Federation
from edgefr.engine.noise import NoiseSource, RealNoise
from edgefr.serving.devices import Devices
from edgefr.serving.serve import origins_of
from edgefr.serving.training import training_of
from edgefr.simulation.runs.lineage import Lineage
from privacy import keyed
from privacy.correlated_noise import coefficients
from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey, NoiseStream
from tests.remote.worlds import CLASS, Twins, noisy, served

TIMES, NULL = 200, 2000
TABLE = "item"
Floats = np.ndarray


@dataclass(frozen=True)
class OfTheSeed(NoiseSource):
    """Noise as it was once drawn: from the seed that every bundle carries."""

    seed: int

    def sums(
        self, noise: Noise, tensor: str, number: int, shape: tuple[int, ...], counts: Sequence[int]
    ) -> Iterator[Floats]:
        stream = NoiseStream(keyed.generator(self.seed, purposes.noise(tensor), number))
        for count in counts:
            yield noise.of_sum(count, shape, stream)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return noisy(tmp_path_factory.mktemp("noise"), privacy__sigma=2.0)


@dataclass
class World:
    """A round of all devices, in this process, again and again from the same tensors."""

    federation: Federation
    twins: Twins

    @classmethod
    def of(cls, twins: Twins) -> World:
        devices = Devices(None, origins_of(twins.begun, CLASS), 1.0)  # type: ignore[arg-type]
        federation = training_of(twins.begun, devices, 1).federation
        assert isinstance(federation.noise, RealNoise)
        federation.backend = InProcess(inline)
        return cls(federation, twins)

    def moved(self, number: int = 1) -> Floats:
        """How far a round moves the sum of the table."""
        f, e, train = self.federation, self.twins.begun.experiment, self.twins.train
        items, before = len(f.shared[TABLE]), dict(f.shared)
        private = {name: value.clone() for name, value in f.private.items()}
        sampler = Sampler(train, np.arange(items), items, e.negatives, e.batch_size, e.seed)
        clients = np.array(list(self.twins.users.values()))
        f.round(number, clients, sampler, train)
        step = (f.shared[TABLE] - before[TABLE]).double().numpy() * len(clients)
        f.shared, f.private = before, private
        return step.ravel()


def guesses(seed: int, bundle: str, noise: Noise, shape: tuple[int, ...]) -> Iterator[Floats]:
    """Noise that anybody can draw who has read every public byte of the run."""
    words = str(seed), bundle, f"{seed}{bundle}"
    keys = [NoiseKey(hashlib.blake2b(word.encode(), digest_size=16).digest()) for word in words]
    generators = [keyed.generator(seed, purposes.noise(TABLE), number) for number in range(4)]
    generators += [np.random.default_rng(seed), np.random.Generator(np.random.Philox(seed))]
    streams = [NoiseStream(g) for g in generators] + [key.stream(seed, purposes.noise(TABLE), 1) for key in keys]
    for stream in streams:
        yield noise.of_sum(1, shape, stream).ravel()


def likeness(left: Floats, update: Floats) -> float:
    return float(np.corrcoef(left, update)[0, 1])


def test_from_public_bytes_no_noise_of_a_served_round_can_be_subtracted(twins: Twins) -> None:
    world = World.of(twins)
    f, origin = world.federation, origins_of(twins.begun, CLASS)
    noise, shape = f.plan.noise, tuple(f.shared[TABLE].shape)
    assert noise is not None
    plain, f.plan = f.plan, replace(f.plan, noise=None)
    update, f.plan = world.moved(), plain
    drawn = list(guesses(origin.learning.seed, origin.bundle, noise, shape))
    another = NoiseStream(np.random.default_rng())  # of nobody
    chance = np.stack([noise.of_sum(1, shape, another).ravel() for _ in range(NULL)])
    served = np.stack([world.moved() for _ in range(TIMES)])
    assert len(np.unique(served, axis=0)) == TIMES, "noise was drawn twice"
    for guess in [np.zeros_like(update), *drawn]:
        null = np.sort([likeness(update + one - guess, update) for one in chance])
        low, high = null[NULL // 200], null[-NULL // 200 - 1]
        found = np.array([likeness(step - guess, update) for step in served])
        assert ((found < low) | (found > high)).sum() <= 12  # of 200 at 1 %: more by chance in one of 100 000
        assert found.max() < 0.9
    f.noise = OfTheSeed(origin.learning.seed)  # the attack finds what was wrong
    assert max(likeness(world.moved() - guess, update) for guess in drawn) > 0.99


def test_the_noise_of_two_rounds_has_nothing_in_common(twins: Twins) -> None:
    world = World.of(twins)
    steps = np.stack([world.moved() for _ in range(40)])
    common = np.corrcoef(steps - steps.mean(axis=0))
    np.fill_diagonal(common, 0.0)
    assert np.abs(common).max() < 0.3


APART = {"privacy__mechanism": "gaussian", "privacy__apart": 2, "privacy__correlated": True, "clients_per_round": 3}


def test_devices_that_come_apart_are_asked_in_every_second_round_at_most(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__sigma=2.0, **APART)
    served(twins, tmp_path, 4)
    asked = [set(opened.clients) for opened, _ in Lineage.of(twins.begun.path).rounds]
    assert [len(cohort) for cohort in asked] == [3, 3, 3, 3]
    assert all(before.isdisjoint(after) for before, after in pairwise(asked))
    released = Counter(client for cohort in asked for client in cohort)
    assert set(released.values()) == {2}


def test_a_served_round_takes_back_noise_of_the_one_before(tmp_path: Path) -> None:
    twins = noisy(tmp_path, privacy__sigma=50.0, **APART)
    world = World.of(twins)
    f, noise = world.federation, coefficients(2)[1]
    first, second = world.moved(1), world.moved(2)
    assert f.plan.noise is not None
    found = float(np.corrcoef(first, second)[0, 1])
    assert found == pytest.approx(-noise / math.hypot(1.0, noise), abs=0.15)
    assert first.std() == pytest.approx(f.plan.noise.std * len(twins.users) / f.plan.cohort, rel=0.15)
