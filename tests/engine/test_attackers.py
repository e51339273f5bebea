"""Hostile clients: what each attack uploads, by hand, how it is bound, and what it comes to in small runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.config.attackers import ATTACKS
from edgefr.engine.attacks import fedrecattack, pieck
from edgefr.engine.attacks.attackers import Attackers, HostileBackend, Known
from edgefr.engine.cohort import Group
from edgefr.experiment.experiment import load_experiment
from edgefr.methods.pfedrec.program import PFedRec
from edgefr.methods.pfedrec.settings import PFedRecSettings
from edgefr.report.attack import attack_metrics, attacked
from edgefr.simulation.attackers import exposure
from privacy import keyed
from privacy.errors import InputError
from tests.engine.test_rules import EVERYONE, ITEMS, federation, likes
from tests.federations import begun
from tests.federations import federation as made_federation

TABLE = torch.tensor([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0], [1.0, -1.0]])
MOVED = torch.tensor([2.0, 1.0, 0.0, 9.0])
NOBODY = Ragged.empty(3)
KNOWN = Known(TABLE, MOVED, 3, NOBODY)


def test_popular_items_are_those_that_moved_and_never_the_target() -> None:
    items, far = pieck.popular(KNOWN)
    assert (items.tolist(), far.tolist()) == ([0, 1], [2.0, 1.0])
    assert not ATTACKS["pieck-ipe"].direction(replace(KNOWN, moved=torch.zeros(4))).any()
    assert not ATTACKS["pieck-uea"].direction(replace(KNOWN, moved=torch.zeros(4))).any()


def test_ipe_points_along_the_popular_rows_by_how_far_they_moved() -> None:
    """2 (.6, .8) + 1 (0, 1)."""
    assert ATTACKS["pieck-ipe"].direction(KNOWN).tolist() == pytest.approx([1.2, 2.6])


def test_uea_points_to_the_users_who_do_not_yet_like_the_target() -> None:
    """The target's scores are -1 and -2, so users (3, 4) and (0, 2) count 1 / (1 + exp(-1)) and 1 / (1 + exp(-2))."""
    one, two = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    assert ATTACKS["pieck-uea"].direction(KNOWN).tolist() == pytest.approx([3 * one, 4 * one + 2 * two])


def test_fedrecattack_solves_for_users_and_counts_their_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 1, 2 and -1; user 0 had item 1, user 2 had the target, item 2, and user 1 nothing.

    User 0 is (2 - 4/3 * 2) / (4 + 4/3 * 6 + .002): its list of one is item 0, since item 1 is its own.
    """
    monkeypatch.setattr(fedrecattack, "LIST", 1)
    table, had = torch.tensor([[1.0], [2.0], [-1.0]]), Ragged.from_lists([[1], [], [2]])
    user = (2 - 8 / 3) / (4 + 8 + 0.002)
    assert fedrecattack.guessed(table.double(), had.take(np.array([0]))).item() == pytest.approx(user)
    weight = math.exp(min(user * 1 - user * -1, 0.0))
    found = ATTACKS["fedrecattack"].direction(Known(table, torch.zeros(3), 2, had))
    assert found.tolist() == pytest.approx([weight * user])


def attackers(direction: tuple[float, ...], **more: Any) -> Attackers:
    return Attackers(np.array([1, 2]), lambda known: torch.tensor(direction), "item", 3, NOBODY, **more)


def test_what_is_wanted_is_a_row_so_many_times_the_longest_other_shared_among_attackers() -> None:
    """The longest other row is (3, 4): ten along (0, 1), from (1, -1), times three clients per attacker."""
    assert attackers((0.0, 7.0), times=3.0, strength=2.0).wanted(TABLE).tolist() == [-3.0, 33.0]
    assert attackers((0.0, 0.0), times=3.0).wanted(TABLE).tolist() == [0.0, 0.0]


def test_a_cohort_comes_apart_and_what_rows_moved_adds_up() -> None:
    made = attackers((0.0, 1.0))
    honest, hostile = made.apart(np.array([0, 2, 4]), 1, {"item": TABLE})
    assert (honest.clients.tolist(), honest.backend, hostile.clients.tolist()) == ([0, 4], None, [2])
    assert isinstance(hostile.backend, HostileBackend)
    old = Group(np.array([1, 5]), 1, {"item": TABLE}, weight=0.5)
    groups = made.apart([old], 2, {"item": TABLE + torch.tensor([3.0, 4.0])})
    assert [(group.clients.tolist(), group.number, group.weight) for group in groups] == [([5], 1, 0.5), ([1], 1, 0.5)]
    assert made.moved is not None
    assert made.moved.tolist() == [5.0] * 4
    made.apart(np.array([0]), 3, {"item": TABLE})
    assert made.moved.tolist() == [10.0] * 4


@pytest.mark.parametrize(("privacy", "beyond", "moves"), [(None, False, None), ({"clip": 0.5}, False, 0.5)])
def test_an_attackers_upload_is_bound_as_any(privacy: dict[str, Any] | None, beyond: bool, moves: float | None) -> None:
    """Two attackers want far more: each sends the length of its honest upload, or the clip, all in the target's row."""
    made = federation(None, privacy)
    moves = norm_alone(made) if moves is None else moves
    assert moved(made, beyond) == pytest.approx(moves, rel=1e-5)


def test_beyond_no_clip_binds() -> None:
    assert moved(federation(None, {"clip": 0.5}), True) > 10_000


def one(**more: Any) -> Attackers:
    wants = torch.ones(8)
    return Attackers(np.array([7]), lambda known: wants, "item", 5, Ragged.empty(len(EVERYONE)), times=1e6, **more)


def moved(made: Any, beyond: bool) -> float:
    """How far client 7, alone in a round and hostile, moves the target; no other row moves."""
    before, train = made.shared["item"].clone(), likes()[0]
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, negatives=4, batch_size=128, seed=3)
    made.round(1, one(beyond=beyond).apart(np.array([7]), 1, made.shared), sampler, train)
    change = made.shared["item"] - before
    assert set(change.abs().sum(1).nonzero().flatten().tolist()) == {5}
    return float(change.norm())


def norm_alone(made: Any) -> float:
    """How long the update of client 7 is when it is honest."""
    other, train = federation(None), likes()[0]
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, negatives=4, batch_size=128, seed=3)
    other.round(1, np.array([7]), sampler, train)
    return float((other.shared["item"] - made.shared["item"]).norm())


# --- runs ------------------------------------------------------------------------------------------------------------

SMALL = (
    *("method=fedmf", "model.dim=8", "rounds=30", "evaluation.every=100", "protocol.negatives=20"),
    *("data_options.users=200", "data_options.items=120", "attackers.kind=fedrecattack"),
)


@cache
def ran(*asked: str) -> tuple[dict[str, Any], bytes]:
    run = begun(load_experiment(overrides=[*SMALL, *asked]))
    run.train()
    run.federation.backend.close()
    return exposure(run), run.federation.shared["item"].numpy().tobytes()


def test_an_attack_raises_exposure_and_a_robust_rule_takes_it_away() -> None:
    (alone, _), (attacked, _) = ran("attackers.share=0"), ran("attackers.share=0.1")
    assert (alone["attackers"], attacked["attackers"]) == (0, 20)
    assert alone["target"] == attacked["target"]
    assert alone["ER@10"] < 0.1 < 0.8 < attacked["ER@10"]
    assert ran("attackers.share=0.1", "aggregation.rule=median")[0]["ER@10"] < 0.1
    assert attacked["users"] < alone["users"] <= 200
    assert 0 < attacked["honest"]["NDCG@10"] < 1


@cache
def beliked() -> Ragged:
    """80 clients with six of the items 0 to 9, and three of 10 to 58; nobody has item 59."""
    draws = [keyed.generator(0, "beliked", client) for client in range(80)]
    lists = [np.concatenate([d.choice(10, 6, replace=False), 10 + d.choice(49, 3, replace=False)]) for d in draws]
    return Ragged.from_lists(lists)


def rank_of_the_target(kind: str, hostile: int) -> float:
    """The median rank of item 59 among the items that an honest client never had, after 10 rounds of PFedRec."""
    settings = PFedRecSettings(dim=8, lr=0.5, item_lr=20.0, init_scale=0.3)
    made, train = made_federation(PFedRec(settings, ITEMS, 1), 80), beliked()
    who, public = np.arange(80 - hostile, 80), train
    attack = Attackers(who, ATTACKS[kind].direction, "item", 59, public, 80 / max(hostile, 1))
    sampler = Sampler(train, np.arange(ITEMS), ITEMS, negatives=4, batch_size=128, seed=3)
    for number in range(1, 11):
        made.round(number, attack.apart(np.arange(80), number, made.shared), sampler, train)
    scores = made.private["scorer.weight"][:72] @ made.shared["item"].T
    scores[torch.from_numpy(train.rows[train.rows < 72]), torch.from_numpy(train.values[train.rows < 72])] = -torch.inf
    return float((1 + (scores > scores[:, 59:]).sum(1)).float().median())


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_tenth_of_the_clients_lifts_the_target(kind: str) -> None:
    assert 2 * rank_of_the_target(kind, 8) <= rank_of_the_target(kind, 0)


def test_who_works_changes_no_bit() -> None:
    asked = ("rounds=3", "attackers.share=0.1", "engine.shard_size=16", "clients_per_round=0.5")
    inline = ran(*asked)
    for workers in (1, 2):
        assert ran(*asked, "engine.executor=processes", f"engine.workers={workers}") == inline


def test_a_run_says_what_attackers_came_to() -> None:
    found = {"kind": "pieck-uea", "attackers": 9, "clients": 943, "beyond": True, "target": "7", "known_by": 2}
    found |= {"users": 900, "ER@10": 0.025, "rank": 1610.0, "honest": {"HR@10": 0.1, "NDCG@10": 0.05}}
    assert attacked({"attack": found}) == (
        "9 of 943 clients by pieck-uea, at any length: item 7 (had by 2) is in the top 10 of 2.5% of 900 honest users, "
        "median rank 1,610; their own NDCG@10 0.0500 (full ranking)"
    )
    assert attacked({}) is None
    assert attack_metrics({"attack": found}) == {"ER@10": 0.025, "rank": 1610.0} | {
        "honest HR@10": 0.1,
        "honest NDCG@10": 0.05,
    }
    assert attack_metrics({}) == {}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["method=f3crec"], "belongs to protocol leave-one-out, and protocol is blocks"),
        (["method=mf"], "belongs to federated methods"),
        (["attackers.kind=pieck"], "unknown attack 'pieck'; did you mean"),
        (["attackers.share=0.5"], "less than 0.5"),
        (["privacy={mechanism: gaussian, clip: 1, sigma: 1, trust: local}"], "attackers would add none; use central"),
        (["privacy.examples={clip: 1.0, sigma: 1.0}"], "clients learn without DP-SGD"),
        (["evaluation.full_ranking_users=0"], "attackers are measured by full ranking"),
        (
            ["attackers.beyond=true", "aggregation.rule=norm-bounded", "aggregation.norm_bound=1"],
            "cuts every upload to its own bound",
        ),
    ],
)
def test_attackers_that_cannot_be_are_refused(asked: list[str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        load_experiment(overrides=["method=fedmf", "attackers.kind=pieck-ipe", *asked])


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["method=fedrap"], "one shared item table, and fedrap by these settings has others"),
        (["method=fcf"], "one shared item table, and fcf by these settings has others"),
        (["attackers.target=nothing"], "no item 'nothing' can be recommended"),
    ],
)
def test_attackers_that_a_program_or_data_set_does_not_fit_are_refused_before_round_1(
    asked: list[str], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        begun(load_experiment(overrides=[*SMALL, *asked]))
