"""The attackers on a run that projects, rounds to a grid and seals its sums."""

from __future__ import annotations

import numpy as np
import pytest

from edgefr.studies.audits.attacks import sign_split
from edgefr.studies.audits.finding import Effort
from edgefr.studies.audits.games import game
from edgefr.studies.audits.target import AttackTarget
from tests.audit.test_attacks import quiet, simulated

SHORT = ["privacy.mechanism=gaussian", "privacy.clip=1", "privacy.project=50"]
GRID = ["privacy.sampler=grid", "privacy.grid_exponent=-10", "privacy.at_least=20"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> AttackTarget:
    return AttackTarget.open(simulated(tmp_path_factory.mktemp("short") / "run", *SHORT, *GRID, "privacy.sigma=0.5"))


def test_an_upload_is_seen_as_the_server_takes_it_back(target: AttackTarget) -> None:
    client = int(target.chosen(1)[0])
    own = target.own[client].astype(np.int64)
    seen = target.upload(client, own, 0)["item"].ravel()
    assert len(np.unique(np.rint(np.abs(seen) * 2.0**10))) <= 50
    assert (seen != 0).mean() > 0.8  # all of it has noise, and of fifty values one in 1,300 is rounded to 0
    assert target.plan.values == 50
    plain = target.upload(client, own, 0, noise=False)["item"]
    assert (plain == 0).all(axis=1).any()  # what an attacker trains for itself is not projected


def test_the_mechanism_leaks_no_more_than_it_says_and_something(target: AttackTarget) -> None:
    found = game(target, Effort(users=5, trials=400), quiet)
    assert 0 < found.eps_lb95 <= found.claimed
    assert sign_split(target, Effort(users=5), quiet).auc is not None
