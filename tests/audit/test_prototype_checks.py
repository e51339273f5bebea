"""Prototypes that reach the server are clipped and noised as promised, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgefr.engine.noise import SimulatedNoise
from edgefr.studies.audits.channels import MessageChannel
from edgefr.studies.audits.checks import check
from privacy import prototypes
from privacy.mechanism import Noise
from privacy.plan import plan
from privacy.prototypes import Prototypes
from privacy.settings import PrivacySettings
from tests.audit import test_checks as faults

Patch = pytest.MonkeyPatch


def message(trust: str = "local") -> MessageChannel:
    settings = PrivacySettings(clip=1.0, prototype_clip=0.5, trust=trust, **faults.GAUSSIAN)
    resolved = plan(settings, 3, 10, 50, prototypes=Prototypes(64, 3))
    return MessageChannel(resolved.prototypes)


def prototypes_alike(patch: Patch) -> None:
    right = Noise.of_clients
    patch.setattr(Noise, "of_clients", lambda self, base, clients, size: right(self, base, 0 * clients, size))


def prototypes_with_one_key(patch: Patch) -> None:
    patch.setattr(SimulatedNoise, "of_clients", lambda self, purpose, number: self.key.base(self.seed, purpose))


def prototypes_unclipped(patch: Patch) -> None:
    patch.setattr(prototypes, "clip_factors", lambda norms, bound: np.where(np.isfinite(norms), 1.0, 0.0))


MESSAGES: list[tuple[Callable[[Patch], None], str]] = [
    (prototypes_alike, "clients"),
    (prototypes_with_one_key, "rounds"),
    (prototypes_unclipped, "clip"),
    (faults.noise_of_the_seed, "secret"),
]


def test_right_prototypes_pass() -> None:
    found = check([message()])
    assert {one.check for one in found} >= {"noise", "law", "secret", "rounds", "clients", "clip", "diverged"}
    assert all(one.ok for one in found)


@pytest.mark.parametrize(("plant", "name"), faults._named(MESSAGES))
def test_faults_of_prototypes_are_found(plant: Callable[[Patch], None], name: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    assert name in faults.violated(message())
