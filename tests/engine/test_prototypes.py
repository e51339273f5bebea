"""What a round really hands the server of prototypes: bounded, noised on the device, counted by round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cloud.fusion import KnowledgeSettings
from cloud.prototypes import KnowledgeBase
from edge.ragged import Ragged
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.engine.noise import SimulatedNoise
from edgefr.engine.transfer import Transfer
from privacy.prototypes import Prototypes
from tests.contract.sessions import CLIENTS, program, sampler
from tests.federations import federation as made_federation
from tests.noises import KEY

EVERYONE = np.arange(CLIENTS)
CLIP = 0.5
ORDERS = {"received": "fcucr", "trained": "fcucr, trained prototypes"}


class Spy(KnowledgeBase):
    """A base that keeps a copy of what it was given, by round."""

    def __init__(self, width: int, how: KnowledgeSettings):
        super().__init__(width, how)
        self.given: dict[int, np.ndarray] = {}

    def add(self, number: int, clients: Any, prototypes: torch.Tensor, sessions: Any = None) -> None:
        self.given[number] = prototypes.numpy()[np.argsort(clients)].copy()
        super().add(number, clients, prototypes, sessions)


def federation(order: str, interval: int = 1, seed: int = 7, **privacy: Any) -> tuple[Federation, Spy]:
    made, how = program(ORDERS[order]), KnowledgeSettings(interval=interval)
    asked = {"trust": "local", "clip": CLIP, **privacy}
    sent = Prototypes(made.settings.reply, -(-4 // interval))
    more: dict[str, Any] = {"prototypes": sent, "seed": seed, "noise": SimulatedNoise(KEY, seed)}
    found = made_federation(made, CLIENTS, privacy=asked, rounds=4, executor=inline.run, **more)
    base, terms = Spy(made.settings.reply, how), found.plan.prototypes
    assert terms is not None
    found.transfer = Transfer(base, order, terms, seed, KEY)  # type: ignore[arg-type]
    return found, base


def ran(order: str, rounds: int = 1, times: float = 1.0, **options: Any) -> np.ndarray:
    """What the server was given in each round that gave it something: [rounds, clients, values]."""
    found, base = federation(order, **options)
    found.shared = {name: value * times for name, value in found.shared.items()}
    for number in range(1, rounds + 1):
        found.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    return np.stack(list(base.given.values()))


@pytest.mark.parametrize("order", list(ORDERS))
@settings(max_examples=15, deadline=None)
@given(
    times=st.sampled_from([0.0, 1e-4, 1.0, 30.0, 1e18, float("nan"), float("inf")]),
    norm=st.sampled_from(["l1", "l2"]),
    own=st.sampled_from([None, 1e-3, 4.0]),
)
def test_no_prototype_leaves_a_device_beyond_its_clip(order: str, times: float, norm: str, own: float | None) -> None:
    (sent,) = ran(order, times=times, norm=norm, prototype_clip=own)
    assert np.isfinite(sent).all()
    norms = np.linalg.norm(sent.astype(np.float64), 1 if norm == "l1" else 2, axis=1)
    assert (norms <= (own or CLIP)).all()
    if np.isfinite(times) and 1 <= times < 100 and own == 1e-3:
        assert norms == pytest.approx(np.full(CLIENTS, 1e-3), rel=1e-4), "they were longer than that"


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize(("mechanism", "norm"), [("gaussian", "l2"), ("laplace", "l1")])
def test_what_is_added_to_a_prototype_has_the_law_that_is_accounted(order: str, mechanism: str, norm: str) -> None:
    noise: Any = {"mechanism": mechanism, "norm": norm, "sigma": 3.0, "prototype_clip": 2.0}
    found, _ = federation(order, **noise)
    terms = found.plan.prototypes
    assert terms is not None
    assert terms.noise is not None
    assert terms.noise.step == 2.0**-14
    assert 0 <= terms.noise.std - 6.0 < 1.5 * terms.noise.step
    assert 2 * 2.0 * terms.event.multiplier == pytest.approx(terms.noise.scale, rel=1e-12)
    quiet: Any = {"norm": norm, "prototype_clip": 2.0}  # no noise comes before the first round's prototypes
    draws = np.concatenate([(ran(order, seed=s, **noise) - ran(order, seed=s, **quiet)).ravel() for s in range(6)])
    law = stats.norm(scale=6.0) if mechanism == "gaussian" else stats.laplace(scale=6.0 / 2**0.5)
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3
    assert draws.std() == pytest.approx(6.0, rel=0.2)
    assert len(np.unique(draws)) > 0.99 * draws.size, "no two values share a draw"


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_round_without_a_transfer_sends_and_costs_no_prototype(order: str) -> None:
    found, base = federation(order, interval=2, mechanism="gaussian", sigma=4.0)
    for number in range(1, 5):
        found.round(number, EVERYONE, sampler(), Ragged.empty(CLIENTS))
    assert list(base.given) == [1, 3]
    assert [len(found.events(number)) for number in range(1, 5)] == [2, 1, 2, 1]
    assert found.plan.prototypes is not None
    assert found.plan.prototypes.release[1] == 2


def test_a_client_that_diverged_sends_noise_alone() -> None:
    """Who failed may not be seen: zeros are noised like everything else."""
    (sent,) = ran("trained", times=float("nan"), mechanism="gaussian", sigma=4.0)
    assert np.isfinite(sent).all()
    assert (np.abs(sent).sum(axis=1) > 0).all()


def test_clipped_prototypes_are_not_asked_with() -> None:
    found, _ = federation("received")
    assert found.transfer is not None
    with pytest.raises(ValueError, match="unclipped beside clipped"):
        found.transfer.asked(found.program, 2, found.shared, EVERYONE, sampler().window(EVERYONE), torch.device("cpu"))


@pytest.mark.parametrize("order", list(ORDERS))
def test_noise_is_new_every_round(order: str) -> None:
    quiet: Any = {"mechanism": "gaussian", "sigma": 500.0, "prototype_clip": 1e-3}  # what is sent is nearly all noise
    first, second, third = ran(order, rounds=3, **quiet)
    for one, other in ((first, second), (second, third), (first, third)):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.5


def test_without_a_clip_prototypes_leave_as_they_are() -> None:
    plain, noisy = ran("received", clip=None), ran("received", clip=None, mechanism="paper-laplace", scale=1.0)
    assert (plain == noisy).all(), "the paper's noise is on parameters"
    assert (np.linalg.norm(plain[0], axis=1) > CLIP).all()
