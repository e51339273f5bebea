"""FedDCSR as a reference: what its server does, what a domain learns, and who is scored by what."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cloud.references.feddcsr import Domain, FedDCSR, How, Sequences, contrast, divergence
from cloud.references.pooling import Pooled

USERS, ITEMS, LENGTH, RING, DIM = 24, 60, 5, 30, 16
HOW = How(
    dim=DIM,
    scale=0.3,
    lr=0.02,
    size=8,
    negatives=3,
    apart=2.0,
    exclusive=1.0,
    contrast=1.0,
    margin=0.3,
    temperature=1.0,
    annealing=10**6,
)


def ring(first: int, domain: str, users: np.ndarray) -> Sequences:
    """Users go round a ring of 30 items, from `first` on; those who are not in the domain have nothing."""
    rows = {user: [first + (3 * user + place) % RING for place in range(7)] for user in users.tolist()}
    user, item = np.repeat(list(rows), 7), np.concatenate([*rows.values()])
    inputs, number, newest = (np.full((USERS, LENGTH), -1) for _ in range(3))
    for at, (one, items) in enumerate(rows.items()):
        inputs[one], newest[one] = items[1:6], items[2:7]
        number[one] = 7 * at + np.arange(2, 7)
    pooled = Pooled(user, item, USERS, ITEMS, np.arange(first, first + RING), 3, domain)
    return Sequences(pooled, inputs, number, newest)


def pair(target: np.ndarray | None = None) -> tuple[Sequences, Sequences]:
    everybody = np.arange(USERS)
    return ring(0, "source", everybody), ring(RING, "target", everybody if target is None else target)


def learned(rounds: int = 1, target: np.ndarray | None = None) -> FedDCSR:
    made = FedDCSR([pair(target)], np.zeros(USERS, np.int64), 2 * (DIM + 1), HOW, (rounds, 5))
    for number in range(1, rounds + 1):
        made.epoch(number)
    return made


def test_domains_begin_with_the_same_shared_encoder_and_all_else_is_their_own() -> None:
    one, other = learned(0).domains[0]
    assert all(torch.equal(value, other.sent[name]) for name, value in one.sent.items())
    assert {name.split(".")[1] for name in one.sent} == {"mean", "spread"}
    assert not torch.equal(one.tensors["item"], other.tensors["item"])
    assert not torch.equal(one.tensors["exclusive.mean.key"], other.tensors["exclusive.mean.key"])


def test_the_server_averages_shared_encoders_by_sequences_and_representations_by_user() -> None:
    made = learned(0, np.arange(8))
    source, target = made.domains[0]
    for domain in (source, target):
        domain.epoch(1)
    before = [{name: value.detach().clone() for name, value in d.sent.items()} for d in (source, target)]
    seen = [domain.represented(("shared",)) for domain in (source, target)]
    made.served((source, target))
    for name in source.sent:
        expected = 0.75 * before[0][name] + 0.25 * before[1][name]  # 24 sequences, and 8
        torch.testing.assert_close(source.sent[name].detach(), expected)
        assert torch.equal(source.sent[name], target.sent[name])
    assert source.known is not None
    torch.testing.assert_close(source.known[3], (seen[0][3] + seen[1][3]) / 2)
    torch.testing.assert_close(source.known[20], seen[0][20])


def test_what_follows_is_learned_in_both_domains() -> None:
    made = learned(40)
    item, user = (part[name] for part, name in zip(made.tensors(), ("item", "user"), strict=True))
    scores = user @ item.T
    for first in (0, RING):
        following = [first + (3 * u + 7) % RING for u in range(USERS)]
        own = scores[torch.arange(USERS), following].unsqueeze(1)
        ranks = (scores[:, first : first + RING] >= own).sum(1)
        assert ranks.float().median() <= 4, "of 30; chance is 15"


def test_a_user_without_a_sequence_in_the_target_is_scored_by_what_the_source_shares() -> None:
    made = learned(3, np.arange(8))
    source, target = made.domains[0]
    user = made.tensors()[1]["user"]
    cold, warm = (user[at, DIM + 1 : -1] for at in (20, 3))
    torch.testing.assert_close(cold, source.represented(("shared",))[20])
    torch.testing.assert_close(warm, target.represented(("shared", "exclusive"))[3])
    assert user[:, [DIM, -1]].eq(1).all()


def test_no_position_sees_what_follows() -> None:
    domain = Domain("source", pair()[0], HOW)
    items, real = torch.tensor([[1, 2, 3, 4, 5]]), torch.ones(1, 5)
    later = items.clone()
    later[0, 3:] = 9
    one, two = (domain.encoded("shared", x, real)[0] for x in (items, later))
    assert torch.equal(one[0, :3], two[0, :3])
    assert not torch.equal(one[0, 3], two[0, 3])


def test_the_newest_position_alone_comes_to_what_it_is_among_all() -> None:
    domain = Domain("source", pair()[0], HOW)
    items, real = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 7, 8, 9]]), torch.tensor([[1.0] * 5, [0.0, 0.0, 1.0, 1.0, 1.0]])
    for side in ("shared", "exclusive"):
        for whole, newest in zip(
            domain.encoded(side, items, real), domain.encoded(side, items, real, True), strict=True
        ):
            assert newest.shape == (2, 1, DIM)
            torch.testing.assert_close(newest, whole[:, -1:])
    own = domain.own.newest
    mean, _ = domain.encoded("shared", domain.own.local(own), torch.from_numpy((own >= 0).astype(np.float32)))
    torch.testing.assert_close(domain.represented(("shared",)), mean[:, -1])


def test_divergence_from_the_prior_is_a_mean_over_real_positions() -> None:
    mean, spread = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]), torch.tensor([[[0.0, 1.0], [5.0, 5.0]]])
    expected = 0.5 * (1.0 + 4.0 + np.e - 1.0 - 1.0)  # of N(mu, s^2) from N(0, 1): (mu^2 + s^2 - ln s^2 - 1) / 2
    assert float(divergence(mean, spread, torch.tensor([[1.0, 0.0]]))) == pytest.approx(expected)


def test_contrast_is_as_written_out() -> None:
    draws = np.random.default_rng(0)
    one, other = (torch.from_numpy(draws.standard_normal((3, 4))) for _ in range(2))
    unit = [row / row.norm() for row in (*one, *other)]
    by_hand = 0.0
    for at in range(6):
        others = [float(unit[at] @ unit[n]) / 0.5 for n in range(6) if n != at]
        partner = float(unit[at] @ unit[(at + 3) % 6]) / 0.5
        by_hand += float(np.log(np.exp(others).sum()) - partner) / 6
    assert float(contrast(one, other, 0.5)) == pytest.approx(by_hand)
