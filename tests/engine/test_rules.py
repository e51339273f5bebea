"""Server rules in whole runs: what hostile clients do to a plain mean, and what robust rules leave of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from cloud.rules.temporal_mean import temporal_mean
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.program import Tensors
from privacy import keyed
from privacy.errors import InputError
from tests.closeness import assert_same
from tests.federations import federation as made_federation

CLIENTS, ITEMS, TASTES, ROUNDS = 120, 60, 4, 30
EVERYONE = np.arange(CLIENTS)
HOSTILE = keyed.choose(keyed.key(1, "hostile"), EVERYONE, CLIENTS // 5)
HONEST = np.setdiff1d(EVERYONE, HOSTILE)


@cache
def likes() -> tuple[Ragged, np.ndarray]:
    """Training items of every client, 11 of the 15 of its taste and 3 others, and 2 held-out ones [C, 2]."""
    train, held = [], []
    for client in range(CLIENTS):
        generator = keyed.generator(0, "likes", client)
        mine = generator.permutation(np.flatnonzero(np.arange(ITEMS) % TASTES == client % TASTES))
        others = generator.choice(np.flatnonzero(np.arange(ITEMS) % TASTES != client % TASTES), 3, replace=False)
        train.append(np.concatenate([mine[:11], others]))
        held.append(mine[11:13])
    return Ragged.from_lists(train), np.array(held)


def turned(kind: str, values: torch.Tensor, generator: np.random.Generator) -> torch.Tensor:
    """What a hostile client sends in place of `values`."""
    if kind == "flip":
        return -50 * values
    if kind == "random":
        return torch.from_numpy(20 * generator.normal(size=values.shape)).float()
    return torch.full_like(values, {"nan": np.nan, "inf": np.inf, "huge": 1e30}[kind])


class Attacked:
    """`inline` with some clients whose uploads are replaced on their way to the server."""

    def __init__(self, kind: str):
        self.kind = kind

    def __call__(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
        updates = inline.run(work, shared, private, clients)
        bad = torch.from_numpy(np.isin(clients, HOSTILE))
        generator = keyed.generator(0, "garbage", work.round, int(clients[0]))
        rows = {}
        for name, update in updates.rows.items():
            values = torch.where(
                bad[update.client].unsqueeze(1), turned(self.kind, update.values, generator), update.values
            )
            rows[name] = RowUpdates(update.rows, update.client, values)
        return Updates(updates.dense, rows, updates.private)


def federation(attack: str | None, privacy: dict[str, Any] | None = None, **aggregation: object) -> Federation:
    settings = FedMFSettings(dim=8, lr=2.0, item_lr=100.0, init_scale=0.1)
    executor = inline.run if attack is None else Attacked(attack)
    how: dict[str, Any] = {"rounds": ROUNDS, "executor": executor, "shard_size": 50}
    return made_federation(FedMF(settings, ITEMS, 1), CLIENTS, aggregation, privacy, **how)


def trained(made: Federation, rounds: int = ROUNDS, cohort: np.ndarray = EVERYONE) -> Federation:
    train, _ = likes()
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, negatives=4, batch_size=128, seed=3)
    for number in range(1, rounds + 1):
        made.round(number, cohort, sampler, train)
    return made


def quality(made: Federation) -> float:
    """Honest clients' chance that a held-out item is ranked above one they never had (area under the curve)."""
    train, held = likes()
    scores = (made.private["user"] @ made.shared["item"].T).numpy()
    found = []
    for client in HONEST:
        rest = np.setdiff1d(np.arange(ITEMS), np.concatenate([train[client], held[client]]))
        found.append((scores[client, held[client]][:, None] > scores[client, rest][None]).mean())
    return float(np.mean(found))


@cache
def clean() -> float:
    return quality(trained(federation(None)))


@pytest.mark.parametrize("attack", ["nan", "inf", "huge"])
def test_garbage_is_dropped_and_counted_whatever_the_rule(attack: str) -> None:
    made = trained(federation(attack))
    assert made.counters.dropped == ROUNDS * len(HOSTILE)
    assert quality(made) > clean() - 0.03


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "norm-bounded", "krum"])
def test_robust_rules_end_near_the_clean_run(rule: str) -> None:
    """They cost little when nobody attacks, and hold when a fifth of the clients does, which a mean does not."""
    assert max(quality(trained(federation("flip"))), quality(federation(None)) + 0.2) < 0.8 < 0.95 < clean()
    for attack in (None, "flip", "random"):
        found = quality(trained(federation(attack, rule=rule)))
        assert found > clean() - 0.03, attack


def test_a_fixed_norm_bound_is_a_clip_and_equals_the_rule_on_whole_uploads() -> None:
    made = federation(None, rule="norm-bounded", norm_bound=0.5)
    assert not made.terms.each
    other = federation(None, {"clip": 1e5, "norm": "l1"}, rule="norm-bounded", norm_bound=0.5)
    assert other.terms.each  # an L1 clip and an L2 bound do not make one clip
    for clip, kept in ((0.3, 0.3), (0.9, 0.5)):  # the shorter of two L2 bounds holds
        both = federation(None, {"clip": clip}, rule="norm-bounded", norm_bound=0.5)
        assert (both.terms.clip, both.terms.norm) == (kept, "l2")
    for one in (made, other):
        trained(one, 2)
    assert_same(made.shared["item"], other.shared["item"])
    assert made.counters.clipped > 0


@pytest.mark.parametrize("rule", ["median", "krum", "norm-bounded"])
def test_noise_needs_a_sum(rule: str) -> None:
    noisy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0}
    with pytest.raises(InputError, match=f"which rule {rule} is not; use mean"):
        federation(None, noisy, rule=rule)
    federation(None, noisy, rule="temporal-mean")


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "norm-bounded", "krum"])
def test_nobody_left_and_nobody_asked(rule: str) -> None:
    made = federation("nan", rule=rule)
    before = made.shared["item"].clone()
    trained(made, 1, HOSTILE)
    trained(made, 1, np.empty(0, np.int64))
    assert torch.equal(made.shared["item"], before)
    assert made.counters.dropped == len(HOSTILE)


@pytest.mark.parametrize("itemwise", [True, False])
def test_temporal_mean_follows_every_round_once_there_is_a_previous_block(itemwise: bool) -> None:
    mean, mixed = federation(None), federation(None, rule="temporal-mean", beta=0.6, itemwise=itemwise)
    for one in (mean, mixed):
        trained(one, 1)
    assert torch.equal(mixed.shared["item"], mean.shared["item"])  # the first block has nothing before it
    before, known = torch.ones(ITEMS, 8), torch.arange(ITEMS) < 40
    mixed.previous = {"item": (before, known)}
    for one in (mean, mixed):
        trained(one, 1)
    expected = temporal_mean(mean.shared["item"], before, known, 0.6, itemwise)
    assert torch.equal(mixed.shared["item"], expected)
    assert torch.equal(mixed.shared["item"][40:], mean.shared["item"][40:])
    assert not torch.equal(mixed.shared["item"][:40], mean.shared["item"][:40])


def test_the_clean_run_learns() -> None:
    assert quality(federation(None)) < 0.6
    assert clean() > 0.95


@pytest.mark.parametrize(("attack", "ceiling"), [("flip", 0.8), ("random", 0.75)])
def test_a_plain_mean_does_not_survive_hostile_clients(attack: str, ceiling: float) -> None:
    """Whose own training diverges by it has what it had before, so a little is left."""
    assert quality(trained(federation(attack))) < ceiling


def test_why_a_median_is_taken_among_those_who_changed_a_row() -> None:
    """Most clients leave most rows alone, so the whole cohort's median hardly moves them."""
    changed, cohort = (quality(trained(federation("flip", rule="median", among=a))) for a in ("changed", "cohort"))
    assert cohort < changed - 0.15
