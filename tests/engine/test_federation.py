"""A round of the server: who is asked, what leaves a device, what the server makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cloud.aggregate import SealedSum
from cloud.rule import AggregationSettings
from edge.ragged import Ragged
from edge.sampling import Sampler
from edgefr.engine.backends.backend import blocks
from edgefr.engine.cohort import Group, Norms
from edgefr.engine.executors import inline
from edgefr.engine.federation import Federation
from edgefr.engine.noise import NoiseSource, SimulatedNoise
from edgefr.engine.work import Clients, LocalWork, RowUpdates, Updates
from edgefr.methods.fedmf.program import FedMF
from edgefr.methods.fedmf.settings import FedMFSettings
from export.program import Phase, Tensors, TensorSpec
from privacy.mechanism import Noise
from privacy.noise_key import NoiseKey
from privacy.plan import plan
from privacy.report import report
from privacy.settings import PrivacySettings
from tests.closeness import assert_same
from tests.noises import KEY

CLIENTS, ITEMS, DIM = 12, 30, 4
EVERYONE = np.arange(CLIENTS)


def interactions() -> Ragged:
    rng = np.random.default_rng(4)
    return Ragged.from_lists([rng.choice(ITEMS, n, replace=False) for n in rng.integers(1, 12, CLIENTS)])


def sampler() -> Sampler:
    return Sampler(interactions(), np.arange(ITEMS), ITEMS, negatives=2, batch_size=8, seed=0)


class Sent:
    """An executor whose clients upload given numbers: `dense` [C] fills tensor "w", `row` [C] is added to one row."""

    def __init__(self, dense: np.ndarray, row: np.ndarray):
        self.dense, self.row = torch.from_numpy(dense).float(), torch.from_numpy(row).float()

    def __call__(self, work: LocalWork, shared: Tensors, private: Tensors, clients: Clients) -> Updates:
        who = torch.from_numpy(clients)
        dense = {"w": self.dense[who].view(-1, 1, 1).expand(-1, 2, 3)}
        values = self.row[who].view(-1, 1).expand(-1, DIM)
        rows = {"item": RowUpdates(who % ITEMS, torch.arange(len(clients)), values)}
        return Updates(dense, rows, {"user": torch.ones(len(clients), DIM)})


class Shapes(FedMF):
    """FedMF's tensors and a dense one: only shapes matter, since `Sent` does the training."""

    def __init__(self) -> None:
        super().__init__(FedMFSettings(dim=DIM), ITEMS, 1)
        self.specs = {"w": TensorSpec((2, 3), "shared"), **self.specs}
        names = ("w", "item", "user")
        self.phases = (Phase("federated", names, names, 1, "sgd", dict.fromkeys(names, 1.0)),)

    def init_shared(self, seed: int) -> dict[str, torch.Tensor]:
        return {"w": torch.zeros(2, 3), **super().init_shared(seed)}


def federation(
    executor: object,
    shard_size: int = 5,
    weights: str = "uniform",
    server_lr: float = 1.0,
    seed: int = 0,
    **privacy: object,
) -> Federation:
    settings = PrivacySettings.model_validate(privacy)
    program = FedMF(FedMFSettings(dim=DIM, lr=0.5), ITEMS, 1) if executor is inline.run else Shapes()
    return Federation(
        program,
        clients=CLIENTS,
        seed=seed,
        executor=executor,  # type: ignore[arg-type]
        shard_size=shard_size,
        aggregation=AggregationSettings(weights=weights, server_lr=server_lr),  # type: ignore[arg-type]
        plan=plan(settings, 5, CLIENTS, CLIENTS, "uniform"),
        device=torch.device("cpu"),
        noise=SimulatedNoise(KEY, seed),
    )


def moved(made: Federation, number: int = 1, cohort: np.ndarray = EVERYONE) -> dict[str, torch.Tensor]:
    """What one round changes in the shared tensors."""
    before = {name: value.clone() for name, value in made.shared.items()}
    made.round(number, cohort, sampler(), interactions())
    return {name: (value - before[name]).double() for name, value in made.shared.items()}


def literal_mean(sent: Sent, cohort: np.ndarray, weight: np.ndarray, clip: float | None) -> dict[str, np.ndarray]:
    """The aggregate, client by client."""
    w, item, total = np.zeros((2, 3)), np.zeros((ITEMS, DIM)), 0.0
    for client in cohort:
        dense, row = float(sent.dense[client]), float(sent.row[client])
        norm = np.sqrt(6 * dense**2 + DIM * row**2)
        factor = 1.0 if clip is None else min(1.0, clip / norm)
        w += weight[client] * factor * dense
        item[client % ITEMS] += weight[client] * factor * row
        total += weight[client]
    return {"w": w / total, "item": item / total}


UPLOADS = Sent(np.linspace(-3, 2, CLIENTS), np.linspace(1, 4, CLIENTS))


@given(st.integers(0, 2**31 - 1), st.integers(1, 1000), st.integers(0, 40))
@limits(max_examples=50, deadline=None)
def test_a_cohort_is_drawn_without_replacement_and_keyed_by_round(seed: int, number: int, size: int) -> None:
    population = np.arange(3, 40, 2)
    made = federation(UPLOADS, seed=seed)
    cohort = made.cohort(number, population, size)
    assert len(cohort) == min(size, len(population))
    assert len(set(cohort.tolist())) == len(cohort)
    assert set(cohort.tolist()) <= set(population.tolist())
    assert made.cohort(number, population, size).tolist() == cohort.tolist()


@pytest.mark.parametrize("weights", ["uniform", "size"])
@pytest.mark.parametrize("clip", [None, 2.0, 1e6])
@pytest.mark.parametrize("shard_size", [1, 5, 100])
def test_the_aggregate_is_the_literal_one(weights: str, clip: float | None, shard_size: int) -> None:
    cohort = np.array([0, 2, 3, 7, 8, 11])
    made = federation(UPLOADS, shard_size, weights, server_lr=0.5, **({} if clip is None else {"clip": clip}))
    found = moved(made, cohort=cohort)
    weight = interactions().counts.astype(float) if weights == "size" else np.ones(CLIENTS)
    for name, mean in literal_mean(UPLOADS, cohort, weight, clip).items():
        assert_same(found[name], 0.5 * mean, size=1.0, inputs=torch.float32, name=name)
    assert made.counters.clients == made.counters.norms.count == len(made.counters.norms.values) == 6
    assert made.counters.clipped == (6 if clip == 2.0 else 0)
    assert made.counters.participation.tolist() == np.isin(EVERYONE, cohort).astype(int).tolist()
    assert [int(value.abs().sum() == DIM) for value in made.private["user"]] == np.isin(EVERYONE, cohort).tolist()


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_client_moves_the_sum_by_more_than_the_clip(norm: str) -> None:
    for client in range(CLIENTS):
        made = federation(UPLOADS, clip=0.7, norm=norm)
        change = torch.cat([value.flatten() for value in moved(made, cohort=np.array([client])).values()])
        size = float(change.abs().sum() if norm == "l1" else change.norm())
        assert size == pytest.approx(0.7, rel=1e-4)
        assert made.counters.clipped == 1
    assert federation(UPLOADS, clip=1e6).counters.clipped == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["dense", "row"])
@pytest.mark.parametrize("clip", [None, 2.0])
def test_a_diverged_client_is_dropped_and_counted(bad: float, place: str, clip: float | None) -> None:
    dense, row = UPLOADS.dense.numpy().copy(), UPLOADS.row.numpy().copy()
    (dense if place == "dense" else row)[4] = bad
    made = federation(Sent(dense, row), **({} if clip is None else {"clip": clip}))
    found = moved(made)
    rest = np.delete(EVERYONE, 4)
    for name, mean in literal_mean(UPLOADS, rest, np.ones(CLIENTS), clip).items():
        assert_same(found[name], mean, size=1.0, inputs=torch.float32, name=name)
    assert made.counters.dropped == 1
    assert np.isfinite(made.counters.norms.values).all()
    assert (made.private["user"] == 1).all(1).tolist() == [client != 4 for client in EVERYONE], "it keeps what it had"


def test_under_a_guarantee_a_dropped_client_still_counts() -> None:
    """Who failed must not show in the divisor: the sum of the others is divided by the whole cohort."""
    dense, row = UPLOADS.dense.numpy().copy(), UPLOADS.row.numpy().copy()
    dense[4] = np.nan
    tiny = {"mechanism": "gaussian", "clip": 2.0, "sigma": 1e-9, "sampler": "float"}
    found = moved(federation(Sent(dense, row), **tiny))
    rest = np.delete(EVERYONE, 4)
    for name, mean in literal_mean(UPLOADS, rest, np.ones(CLIENTS), 2.0).items():
        assert_same(found[name], mean * (CLIENTS - 1) / CLIENTS, size=1.0, inputs=torch.float32, name=name)


def test_under_a_guarantee_a_dropped_client_still_counts_towards_the_least_number() -> None:
    """Whether a round opens must not show that somebody's update was no number; noise hides how few are in it."""
    dense, row = UPLOADS.dense.numpy().copy(), UPLOADS.row.numpy().copy()
    dense[4] = np.nan
    made = federation(Sent(dense, row), clip=2.0, at_least=CLIENTS, mechanism="gaussian", sigma=1.0)
    assert any(value.any() for value in moved(made).values())
    assert (made.counters.dropped, made.counters.closed) == (1, 0)


@pytest.mark.parametrize(("diverged", "closed"), [(0, 0), (1, 1), (CLIENTS - 1, 1)])
def test_without_noise_a_sum_holds_as_many_updates_as_was_promised(diverged: int, closed: int) -> None:
    """Who is dropped hides nobody: of twelve clients of whom eleven diverged, the sum was the twelfth's update."""
    dense, row = UPLOADS.dense.numpy().copy(), UPLOADS.row.numpy().copy()
    dense[:diverged] = np.nan
    made = federation(Sent(dense, row), clip=2.0, at_least=CLIENTS)
    assert any(value.any() for value in moved(made).values()) is not bool(closed)
    assert (made.counters.dropped, made.counters.closed) == (diverged, closed)


def test_a_long_run_keeps_a_share_of_its_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefr.engine.cohort.MOST_NORMS", 10)
    norms, rng = Norms(), np.random.default_rng(0)
    every = rng.random(137)
    for part in np.split(every, np.sort(rng.integers(0, 137, 20))):
        norms.add(part)
        norms = Norms.restored(norms.state())
    assert (norms.count, norms.stride) == (137, 16)
    np.testing.assert_array_equal(norms.values, every[::16])


def test_an_empty_cohort_changes_nothing() -> None:
    for privacy in ({}, {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0}):
        made = federation(UPLOADS, **privacy)
        assert all(bool((value == 0).all()) for value in moved(made, cohort=np.array([], np.int64)).values())
        assert made.counters.clients == 0


def test_a_client_named_twice_is_refused_before_anything_is_released() -> None:
    made = federation(UPLOADS, mechanism="gaussian", clip=1.0, sigma=1.0)
    with pytest.raises(ValueError, match="a client is named twice in a cohort"):
        moved(made, cohort=np.array([0, 2, 0]))
    group = Group(np.array([1]), 1, made.shared)
    with pytest.raises(ValueError, match="a client is named twice in a cohort"):
        made.round(1, [group, group], sampler(), interactions())
    assert made.counters.clients == 0


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize(("trust", "draws"), [("central", 1), ("local", CLIENTS)])
@pytest.mark.parametrize("clip", [None, 8.0], ids=["in floating point", "on a grid"])
def test_the_noise_on_the_mean_has_its_law(mechanism: str, trust: str, draws: int, clip: float | None) -> None:
    """Central: one draw over the cohort's size. Local: one draw per upload, so sqrt(n) / n of one."""
    still = Sent(np.zeros(CLIENTS), np.zeros(CLIENTS))
    made = federation(still, mechanism=mechanism, trust=trust, scale=0.625, clip=clip)
    assert made.plan.noise is not None
    assert made.plan.noise.step == (None if clip is None else 2.0**-12)
    noise = torch.cat([torch.cat([v.flatten() for v in moved(made, number).values()]) for number in range(1, 40)])
    one = 0.625 if mechanism == "gaussian" else 0.625 * np.sqrt(2)
    expected = one * np.sqrt(draws) / CLIENTS
    assert float(noise.std()) == pytest.approx(
        expected, rel=5 / np.sqrt(len(noise)) * (1 if mechanism == "gaussian" else 2)
    )
    assert abs(float(noise.mean())) < 5 * expected / np.sqrt(len(noise))
    assert made.plan.std_on_mean == pytest.approx(expected)
    kurtosis = float((noise**4).mean() / (noise**2).mean() ** 2)
    assert kurtosis == pytest.approx(3 + (3 / draws if mechanism == "laplace" else 0), abs=0.9)


@pytest.mark.parametrize(("trust", "draws"), [("central", 1), ("local", 8)])
def test_the_noise_on_the_mean_is_told_for_the_smallest_cohort_there_was(trust: str, draws: int) -> None:
    still = Sent(np.zeros(CLIENTS), np.zeros(CLIENTS))
    made = federation(still, mechanism="gaussian", trust=trust, scale=0.6, clip=1.0)
    few = [moved(made, number, EVERYONE[: 8 if number % 2 else CLIENTS]) for number in range(1, 40)]
    noise = torch.cat([torch.cat([value.flatten() for value in one.values()]) for one in few[::2]])
    moved(made, 50, EVERYONE[:0])  # a round of nobody is none
    assert made.counters.smallest == 8
    settings = PrivacySettings(mechanism="gaussian", trust=trust, scale=0.6, clip=1.0)
    told = report(settings, made.plan, 1, 1.0, CLIENTS, smallest=made.counters.smallest)["noise"]
    assert told["std_on_mean"] == pytest.approx(0.6 * np.sqrt(draws) / 8, rel=0.02)
    assert float(noise.std()) == pytest.approx(told["std_on_mean"], rel=0.1)
    assert told["smallest_cohort"] == 8


def test_noise_is_keyed_by_round_and_reaches_every_coordinate() -> None:
    still = Sent(np.zeros(CLIENTS), np.zeros(CLIENTS))
    privacy = {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0}
    first, second = (moved(federation(still, **privacy), 3) for _ in range(2))
    other, unknown = federation(still, **privacy), federation(still, **privacy)
    unknown.noise = SimulatedNoise(NoiseKey.new(), 0)  # the seed without the key
    later, hidden = moved(other, 4), moved(unknown, 3)
    for name in first:
        assert torch.equal(first[name], second[name])
        assert not (first[name] == later[name]).all()
        assert not (first[name] == hidden[name]).all()
        assert bool((first[name] != 0).all())


def test_shards_hold_everyone_once_by_falling_activity() -> None:
    activity = interactions().counts
    shards = federation(UPLOADS, shard_size=5).shards(EVERYONE[::-1].copy(), activity)
    assert [len(shard) for shard in shards] == [5, 5, 2]
    order = np.concatenate(shards)
    assert sorted(order.tolist()) == EVERYONE.tolist()
    assert (np.diff(activity[order]) <= 0).all()


# --- cohorts of clients that started in different rounds --------------------------------------------------------------


def in_groups(made: Federation, parts: list[tuple[list[int], float]]) -> list[Group]:
    """Clients with their weights; all from the present broadcast, in rounds 1, 2, ..."""
    return [Group(np.array(ids), n, made.shared, weight) for n, (ids, weight) in enumerate(parts, 1)]


@pytest.mark.parametrize("clip", [None, 2.0])
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_an_old_update_counts_less_but_the_divisor_stays(clip: float | None, weights: str) -> None:
    """FedBuff: the sum of s(t) times updates, over what their number (or their sizes) would have made of new ones."""
    made = federation(UPLOADS, 2, weights, **({} if clip is None else {"clip": clip}))
    parts = [([0, 3, 7], 1.0), ([2, 8], 0.5), ([11], 3**-0.5)]
    found = moved(made, 9, in_groups(made, parts))  # type: ignore[arg-type]
    size = interactions().counts.astype(float) if weights == "size" else np.ones(CLIENTS)
    everyone = [client for ids, _ in parts for client in ids]
    for name in ("w", "item"):
        expected = sum(
            discount * literal_mean(UPLOADS, np.array(ids), size, clip)[name] * size[ids].sum()
            for ids, discount in parts
        )
        assert_same(found[name], expected / size[everyone].sum(), size=1.0, inputs=torch.float32, name=name)
    assert made.counters.clients == 6
    assert np.flatnonzero(made.counters.participation).tolist() == sorted(everyone)


def test_one_group_of_today_is_a_plain_cohort() -> None:
    for privacy in ({}, {"mechanism": "gaussian", "clip": 1.0, "sigma": 1.0}):
        plain, grouped = federation(inline.run, **privacy), federation(inline.run, **privacy)
        grouped.round(3, [Group(EVERYONE, 3, grouped.shared)], sampler(), interactions())
        plain.round(3, EVERYONE, sampler(), interactions())
        assert torch.equal(plain.shared["item"], grouped.shared["item"])
        assert torch.equal(plain.private["user"], grouped.private["user"])


def test_a_group_learns_from_the_broadcast_and_with_the_draws_of_its_start() -> None:
    """Clients 6 to 11 start with the others in round 1, but their updates come a round later and count half."""
    late, early = EVERYONE[6:], EVERYONE[:6]
    alone = federation(inline.run)
    start = dict(alone.shared)
    alone.round(1, late, sampler(), interactions())
    theirs = alone.shared["item"] - start["item"]
    made = federation(inline.run)
    made.round(1, early, sampler(), interactions())
    before = made.shared["item"].clone()
    made.round(2, [Group(late, 1, start, 0.5)], sampler(), interactions())
    assert_same(made.shared["item"] - before, 0.5 * theirs, size=float(before.abs().max()))
    assert torch.equal(made.private["user"][6:], alone.private["user"][6:])
    assert float(theirs.abs().max()) > 1e-3


@pytest.mark.parametrize(("trust", "share"), [("central", 1.0), ("local", 6 + 6 * 0.25)])
def test_noise_of_uploads_is_weighted_like_them_and_noise_of_the_sum_is_not(trust: str, share: float) -> None:
    still = Sent(np.zeros(CLIENTS), np.zeros(CLIENTS))
    made = federation(still, mechanism="gaussian", trust=trust, scale=0.6)
    parts = [(list(range(6)), 1.0), (list(range(6, 12)), 0.5)]
    noise = torch.cat(
        [torch.cat([v.flatten() for v in moved(made, n, in_groups(made, parts)).values()]) for n in range(1, 40)]  # type: ignore[arg-type]
    )
    assert float(noise.std()) == pytest.approx(0.6 * np.sqrt(share) / CLIENTS, rel=5 / np.sqrt(len(noise)))


@pytest.mark.parametrize("weight", [1.0, 2.0**-0.5, 3.0**-0.5])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("executor", [UPLOADS, inline.run], ids=["sent", "trained"])
def test_a_sum_that_is_noised_in_whole_steps_holds_no_part_of_one(
    executor: object, mechanism: str, weight: float
) -> None:
    """What is between two steps has no noise on it: weighed after it was rounded, an old update was there to read."""
    made = federation(executor, mechanism=mechanism, clip=1.0, sigma=2.0)
    noise = made.plan.noise
    assert noise is not None
    assert noise.step is not None
    opened = []
    made._move = lambda changed, total, each: opened.append(total.sums)  # type: ignore[method-assign,assignment]
    made.round(2, [Group(EVERYONE, 1, made.shared, weight)], sampler(), interactions())
    steps = torch.cat([value.flatten() for value in opened[0].values()]) / noise.step
    assert torch.equal(steps, steps.round())


def test_an_update_is_weighed_before_it_is_rounded_where_the_sum_is_noised() -> None:
    """Toward zero, so that an old one is no longer than its share of the clip; who is dropped counts as before."""
    made = federation(UPLOADS, clip=0.7, mechanism="gaussian", sigma=1.0)
    noise = made.plan.noise
    assert noise is not None
    step = float(noise.step or 0.0)
    made.noise = Silent()
    change = moved(made, 2, [Group(np.array([4]), 1, made.shared, 0.6)])  # type: ignore[arg-type]
    dense, row = float(UPLOADS.dense[4]), float(UPLOADS.row[4])
    factor = 0.6 * 0.7 / np.sqrt(6 * dense**2 + DIM * row**2)
    assert_same(change["w"], np.full((2, 3), np.trunc(dense * factor / step) * step), size=1.0, inputs=torch.float32)
    assert_same(change["item"][4], np.full(DIM, np.trunc(row * factor / step) * step), size=1.0, inputs=torch.float32)


class Silent(NoiseSource):
    """Noise that is zero."""

    def sums(
        self, noise: Noise, tensor: str, number: int, shape: tuple[int, ...], counts: Sequence[int]
    ) -> Iterator[np.ndarray]:
        yield from (np.zeros(shape) for _ in counts)


def test_a_robust_rule_sees_weighted_updates() -> None:
    made = federation(UPLOADS)
    made.aggregation = AggregationSettings(rule="median")
    made.rule = made.aggregation.entry
    made.terms = type(made.terms)(None, "l2", False, False, each=True)
    parts = [([0], 1.0), ([5], 0.5), ([11], 0.25)]
    found = moved(made, 1, in_groups(made, parts))  # type: ignore[arg-type]
    values = [float(UPLOADS.dense[ids[0]]) * weight for ids, weight in parts]
    assert_same(found["w"], np.full((2, 3), np.median(values)), size=1.0, inputs=torch.float32)


def test_the_order_of_a_round_begins_with_its_cohort() -> None:
    made, population = federation(UPLOADS), np.arange(3, 60, 2)
    for number in range(1, 20):
        order = made.order(number, population)
        assert sorted(order.tolist()) == population.tolist()
        for size in (1, 5, 29):
            assert sorted(order[:size].tolist()) == made.cohort(number, population, size).tolist()


def test_the_servers_adam_moves_tables_alone() -> None:
    row = np.linspace(0.1, 1.2, CLIENTS)
    how = AggregationSettings(optimiser="adam", optimises="tables", optimiser_lr=0.1, floor=1.0)
    made = federation(Sent(np.full(CLIENTS, 0.5), row))
    made.aggregation, made.optimiser = how, how.entry.optimiser(how)
    update = moved(made)
    assert update["w"].flatten().tolist() == pytest.approx([0.5] * 6)
    touched = np.arange(CLIENTS) % ITEMS
    mean = np.repeat((row / CLIENTS)[:, None], DIM, axis=1)  # and not the sum, of which a step would be another size
    assert update["item"].numpy()[touched] == pytest.approx(0.1 * mean / (mean + 1.0), abs=1e-6)
    assert not np.delete(update["item"].numpy(), touched, axis=0).any()


@pytest.mark.parametrize("each", [False, True])
def test_shards_are_summed_block_by_block_and_no_block_holds_two_groups(
    monkeypatch: pytest.MonkeyPatch, each: bool
) -> None:
    asked: list[str] = []

    class Told(SealedSum):
        """A sum that writes down what it is asked for."""

        def add(self, *given: object, **named: object) -> None:
            asked.append("add")
            super().add(*given, **named)  # type: ignore[arg-type]

        def end_block(self) -> None:
            asked.append("end")
            super().end_block()

    monkeypatch.setattr("edgefr.engine.federation.SealedSum", Told)
    monkeypatch.setattr("edgefr.engine.backends.backend.BLOCKS", 3)
    made = federation(Sent(np.ones(CLIENTS), np.ones(CLIENTS)), shard_size=1)
    if each:
        made.terms = replace(made.terms, each=True)
    first, second = EVERYONE[:9], EVERYONE[9:]
    groups = [Group(first, 1, made.shared), Group(second, 1, made.shared, 0.5)]
    made.round(1, groups, sampler(), interactions())
    of_three = [*["add"] * 3, "end"]
    assert asked == [*of_three, *of_three, *of_three, "add", "end", "add", "end", "add", "end"]


def test_cohorts_differ_by_round_and_are_fair() -> None:
    made = federation(UPLOADS)
    cohorts = [made.cohort(number, np.arange(20), 5) for number in range(1, 801)]
    assert len({tuple(cohort) for cohort in cohorts}) > 700
    counts = np.bincount(np.concatenate(cohorts), minlength=20)
    assert abs(counts - 200).max() < 5 * np.sqrt(800 * 0.25 * 0.75)


def test_the_servers_adam_moves_by_the_mean_and_not_by_the_sum() -> None:
    """The size of a step hangs on that of the mean where the floor is large: the first is lr x mean / (|mean| + 1)."""
    adam, how = federation(UPLOADS), AggregationSettings(optimiser="adam", optimiser_lr=0.1, floor=1.0)
    adam.aggregation, adam.optimiser = how, how.entry.optimiser(how)
    found = moved(adam)
    for name, mean in literal_mean(UPLOADS, EVERYONE, np.ones(CLIENTS), None).items():
        mean = np.asarray(mean)
        np.testing.assert_allclose(found[name].numpy(), 0.1 * mean / (np.abs(mean) + 1.0), atol=1e-6)


def test_everybody_diverging_changes_nothing() -> None:
    made = federation(Sent(np.full(CLIENTS, np.nan), np.full(CLIENTS, np.nan)))
    assert all(bool((value == 0).all()) for value in moved(made).values())
    assert made.counters.dropped == CLIENTS


def test_rows_that_nobody_touched_have_noise_of_the_same_deviation() -> None:
    """Sums are held over touched rows alone until the noise comes, and that is on all of them."""
    made = federation(UPLOADS, mechanism="gaussian", clip=1.0, sigma=1.0)
    untouched = torch.cat([moved(made, number)["item"][CLIENTS:].flatten() for number in range(1, 60)])
    assert made.plan.std_on_mean is not None
    assert float(untouched.std()) == pytest.approx(made.plan.std_on_mean, rel=0.05)
    assert abs(float(untouched.mean())) < 5 * float(untouched.std()) / np.sqrt(len(untouched))


def test_a_real_round_does_not_depend_on_shards_beyond_rounding_and_repeats_to_the_bit() -> None:
    whole, again, parts = (moved(federation(inline.run, shard_size=size)) for size in (100, 100, 3))
    assert float(whole["item"].abs().max()) > 1e-3
    assert torch.equal(whole["item"], again["item"])
    assert_same(parts["item"], whole["item"], size=0.1, inputs=torch.float32)


def test_no_weighted_client_moves_the_sum_by_more_than_the_clip() -> None:
    for weight in (1.0, 0.7, 0.1):
        made = federation(UPLOADS, clip=0.7)
        change = moved(made, 2, [Group(np.array([4]), 1, made.shared, weight)])  # type: ignore[arg-type]
        size = float(torch.cat([value.flatten() for value in change.values()]).norm())
        assert size == pytest.approx(0.7 * weight, rel=1e-4)


def test_blocks_have_as_many_shards_as_results_were_made_with() -> None:
    assert [len(blocks(count)) for count in (0, 1, 16, 17, 32, 33, 256, 1000)] == [0, 1, 16, 9, 16, 11, 16, 63]
    assert max(len(block) for block in blocks(1000)) == 16
    assert [at for block in blocks(45) for at in block] == list(range(45))
