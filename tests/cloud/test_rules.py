"""Server rules against the same rules written out on whole uploads, client by client and coordinate by coordinate."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

import cloud.uploads
from cloud.rule import RULES, AggregationSettings
from cloud.rules.temporal_mean import temporal_mean
from cloud.uploads import Uploads, joined
from privacy import keyed
from privacy.errors import InputError

ITEMS, WIDTH = 7, 3
SHARED = {"dense": torch.zeros(2, 4), "table": torch.zeros(ITEMS, WIDTH)}


def drawn(clients: int, seed: int, share: float = 0.6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dense updates [C, 2, 4], whole tables [C, items, width], and which rows each client touched [C, items]."""
    generator = keyed.generator(seed, "uploads", clients)
    touched = generator.random((clients, ITEMS)) < share
    dense = generator.normal(size=(clients, 2, 4)).astype(np.float32)
    tables = generator.normal(size=(clients, ITEMS, WIDTH)).astype(np.float32) * touched[:, :, None]
    tables = np.where(generator.random(tables.shape) < 0.1, np.float32(0), tables)  # a touched value may be 0
    return dense, tables, touched


def uploads(dense: np.ndarray, tables: np.ndarray, touched: np.ndarray) -> Uploads:
    """The same as a server gets them, rows in no order."""
    slot, item = np.nonzero(touched)
    order = keyed.generator(0, "order").permutation(len(slot))
    slot, item = torch.from_numpy(slot[order]), torch.from_numpy(item[order])
    values = torch.from_numpy(tables)[slot, item]
    return Uploads({"dense": torch.from_numpy(dense)}, {"table": (item, slot, values)}, len(dense))


def whole(dense: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """One long vector per client, float64 [C, D]."""
    return np.concatenate([dense.reshape(len(dense), -1), tables.reshape(len(dense), -1)], axis=1).astype(float)


def flat(update: dict[str, torch.Tensor]) -> np.ndarray:
    return torch.cat([update["dense"].flatten(), update["table"].flatten()]).numpy()


def literal_trimmed(column: np.ndarray, share: float) -> float:
    """Yin et al. 2018, Definition 2: without the largest and the smallest share of the values."""
    cut = min(math.ceil(round(share * len(column), 9)), (len(column) - 1) // 2)
    return float(np.mean(sorted(column)[cut : len(column) - cut]))


def literal_krum(vectors: np.ndarray, hostile: int, kept: int) -> np.ndarray:
    """Blanchard et al. 2017, section 4: the kept vectors with the smallest scores, averaged."""
    n, scores = len(vectors), []
    for i in range(n):
        others = sorted(float(((vectors[i] - vectors[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(others[: max(n - hostile - 2, 1)]))
    return vectors[np.argsort(scores, kind="stable")[:kept]].mean(axis=0)


def combine(given: Uploads, shared: dict[str, torch.Tensor], how: AggregationSettings) -> dict[str, torch.Tensor]:
    return how.entry.combine(how, given, shared)


@pytest.fixture(params=[1 << 23, 20], ids=["one piece", "many pieces"])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cloud.uploads,):
        monkeypatch.setattr(module, "PIECE", request.param)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("clients", [1, 2, 3, 8, 21])
@pytest.mark.parametrize("share", [0.15, 0.6, 1.0])
def test_median_and_trimmed_mean_of_the_whole_cohort(clients: int, share: float) -> None:
    dense, tables, touched = drawn(clients, 1, share)
    given_, vectors = uploads(dense, tables, touched), whole(dense, tables)
    found = flat(combine(given_, SHARED, AggregationSettings(rule="median", among="cohort")))
    np.testing.assert_allclose(found, np.median(vectors, axis=0), atol=1e-12)
    for trim in (0.0, 0.1, 0.3, 0.49):
        found = flat(combine(given_, SHARED, AggregationSettings(rule="trimmed-mean", trim=trim, among="cohort")))
        expected = [literal_trimmed(column, trim) for column in vectors.T]
        np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("rule", ["median", "trimmed-mean"])
def test_among_those_who_changed_a_row(rule: str) -> None:
    dense, tables, touched = drawn(12, 2, 0.4)
    chosen = AggregationSettings(rule=rule, among="changed", **({"trim": 0.2} if rule == "trimmed-mean" else {}))
    found = combine(uploads(dense, tables, touched), SHARED, chosen)["table"].numpy()
    for item in range(ITEMS):
        members = tables[touched[:, item], item].astype(float)
        for column in range(WIDTH):
            expected = 0.0
            if len(members):
                middle = np.median(members[:, column]) if rule == "median" else literal_trimmed(members[:, column], 0.2)
                expected = middle * len(members) / 12
            assert found[item, column] == pytest.approx(expected, abs=1e-7)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize("bound", [None, 2.5])
def test_norm_bounded_mean(bound: float | None) -> None:
    dense, tables, touched = drawn(9, 3)
    dense[4] *= 100
    vectors = whole(dense, tables)
    limit = np.median(np.linalg.norm(vectors, axis=1)) if bound is None else bound
    shortened = [v * min(1.0, limit / np.linalg.norm(v)) for v in vectors]
    found = flat(
        combine(uploads(dense, tables, touched), SHARED, AggregationSettings(rule="norm-bounded", norm_bound=bound))
    )
    np.testing.assert_allclose(found, np.mean(shortened, axis=0), atol=1e-7)
    assert np.linalg.norm(found) <= limit


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize(("clients", "byzantine", "keep"), [(9, 0.2, 1), (9, 0.2, None), (20, 0.3, 5), (2, 0.4, None)])
def test_krum_and_multi_krum(clients: int, byzantine: float, keep: int | None) -> None:
    dense, tables, touched = drawn(clients, 4)
    hostile = min(math.ceil(round(byzantine * clients, 9)), (clients - 1) // 2)
    dense[:hostile] = 30 + dense[:hostile] / 10  # close to each other, far from the rest
    vectors = whole(dense, tables)
    chosen = AggregationSettings(rule="krum", byzantine=byzantine, keep=keep)
    found = flat(combine(uploads(dense, tables, touched), SHARED, chosen))
    kept = clients - hostile if keep is None else keep
    np.testing.assert_allclose(found, literal_krum(vectors, hostile, kept), atol=1e-7)
    if clients > 2 * hostile + 2:
        assert np.abs(found).max() < 5


@pytest.mark.parametrize("clients", [5, 8, 13, 30])
def test_krum_of_cohorts_that_are_drawn(clients: int) -> None:
    """Updates of lengths between 0.03 and 30 times the usual: who is central hangs on how many neighbours count."""
    for seed in range(8):
        draw = keyed.generator(seed, "krum", clients)
        dense, tables, touched = drawn(clients, seed)
        lengths = np.exp(draw.normal(0, 1.2, clients)).astype(np.float32)
        dense, tables = dense * lengths[:, None, None], tables * lengths[:, None, None]
        hostile = int(draw.integers(0, (clients - 1) // 2 + 1))
        keep = None if seed % 2 else int(draw.integers(1, clients + 1))
        chosen = AggregationSettings(rule="krum", byzantine=hostile / clients, keep=keep)
        found = flat(combine(uploads(dense, tables, touched), SHARED, chosen))
        expected = literal_krum(whole(dense, tables), hostile, clients - hostile if keep is None else keep)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{seed=} {hostile=} {keep=}")


def test_krum_says_what_to_do_about_a_cohort_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud.uploads, "PAIRS_LIMIT", 8)
    with pytest.raises(InputError, match="at most 8 clients, but 9 took part; lower clients_per_round"):
        combine(uploads(*drawn(9, 0)), SHARED, AggregationSettings(rule="krum"))


ROBUST = [
    {"rule": "median"},
    {"rule": "median", "among": "cohort"},
    {"rule": "trimmed-mean"},
    {"rule": "trimmed-mean", "among": "cohort"},
    {"rule": "norm-bounded"},
    {"rule": "krum"},
    {"rule": "krum", "keep": 1},
]


@given(st.integers(1, 12), st.integers(0, 2**31), st.sampled_from(ROBUST), st.floats(0.1, 100))
@limits(max_examples=60, deadline=None)
def test_rules_follow_scale_sign_and_order_of_clients(clients: int, seed: int, rule: dict, scale: float) -> None:
    dense, tables, touched = drawn(clients, seed)
    scale = np.float32(scale)
    chosen = AggregationSettings(**rule)
    found = flat(combine(uploads(dense, tables, touched), SHARED, chosen))
    turned = flat(combine(uploads(-scale * dense, -scale * tables, touched), SHARED, chosen))
    np.testing.assert_allclose(turned, -scale * found, rtol=1e-5, atol=1e-5 * scale)
    if rule["rule"] == "krum" and clients < 6:
        return  # ties between the two of a pair are decided by their order
    order = keyed.generator(seed, "clients").permutation(clients)
    shuffled = flat(combine(uploads(dense[order], tables[order], touched[order]), SHARED, chosen))
    np.testing.assert_allclose(shuffled, found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", ROBUST)
def test_a_quarter_of_hostile_clients_cannot_pull_far(rule: dict) -> None:
    dense, tables, _ = drawn(20, 7, share=1.0)
    everything = np.ones((20, ITEMS), bool)
    clean = flat(combine(uploads(dense[5:], tables[5:], everything[5:]), SHARED, AggregationSettings(**rule)))
    dense[:5], tables[:5] = 1e5, -1e5
    found = flat(combine(uploads(dense, tables, everything), SHARED, AggregationSettings(**rule)))
    assert np.abs(found - clean).max() < 2.5
    assert np.abs(whole(dense, tables).mean(axis=0)).max() > 1e4


def test_shards_joined_are_the_cohort() -> None:
    dense, tables, touched = drawn(10, 8)
    parts = [uploads(dense[at], tables[at], touched[at]) for at in (slice(0, 4), slice(4, 5), slice(5, 10))]
    together, expected = joined(parts), uploads(dense, tables, touched)
    assert together.clients == 10
    assert torch.equal(together.dense["dense"], expected.dense["dense"])
    for one in (together, expected):
        rows, slots, values = one.rows["table"]
        table = torch.zeros(10, ITEMS, WIDTH).index_put((slots, rows), values)
        assert np.array_equal(table.numpy(), tables)
    assert joined([]).clients == 0


@pytest.mark.parametrize("itemwise", [True, False])
def test_temporal_mean_row_by_row(itemwise: bool) -> None:
    generator = keyed.generator(0, "tables")
    now, before = (generator.normal(size=(6, 5)).astype(np.float32) for _ in range(2))
    before[2] = now[2]
    known = np.array([True, True, True, False, True, False])
    found = temporal_mean(torch.from_numpy(now), torch.from_numpy(before), torch.from_numpy(known), 0.7, itemwise)
    for row in range(6):
        if not known[row]:
            assert found[row].tolist() == now[row].tolist()
            continue
        shift = sum((before[row, k] - now[row, k]) ** 2 for k in range(5)) / 5**0.5  # Eq. 8
        gamma = 0.7 / (1 + shift) if itemwise else 0.7  # Eq. 9
        np.testing.assert_allclose(found[row].numpy(), (1 - gamma) * now[row] + gamma * before[row], atol=1e-6)
    assert found.dtype == torch.float32


def test_updates_of_nothing_are_no_trouble_for_a_norm_bound() -> None:
    dense, tables, touched = (0 * part for part in drawn(5, 3))
    for bound in (None, 1.0):
        chosen = AggregationSettings(rule="norm-bounded", norm_bound=bound)
        assert (flat(combine(uploads(dense, tables, touched > 0), SHARED, chosen)) == 0).all()


@given(st.integers(0, 2**31), st.floats(0.01, 0.99))
@limits(max_examples=30, deadline=None)
def test_the_temporal_mean_lies_between_and_keeps_less_of_rows_that_moved_more(seed: int, beta: float) -> None:
    generator = keyed.generator(seed, "tables")
    before = torch.from_numpy(generator.normal(size=(4, 3)))
    step = torch.from_numpy(generator.normal(size=3))
    now = before + step * torch.tensor([[0.5], [1.0], [2.0], [4.0]])
    found = temporal_mean(now, before, torch.ones(4, dtype=torch.bool), beta, True)
    kept = ((now - found).norm(dim=1) / (now - before).norm(dim=1)).tolist()
    assert sorted(kept, reverse=True) == kept
    assert all(0 < share <= beta + 1e-12 for share in kept)


def test_which_rules_are_sums() -> None:
    assert {rule for rule in RULES if AggregationSettings(rule=rule).is_sum} == {"mean", "temporal-mean", "gram"}
    assert set(RULES) >= {"median", "trimmed-mean", "norm-bounded", "krum", "graph"}
