import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cloud.aggregate import Accumulator, RowSum, SealedSum
from cloud.rule import AggregationSettings
from privacy import keyed
from privacy.errors import InputError

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def fleet(clients, items=7, width=3):
    """Dense updates of one tensor and row updates of a table, for some clients, with their sizes."""
    generator = keyed.generator(0, "updates", clients)
    dense = torch.from_numpy(generator.normal(size=(clients, width, 2))).float()
    sizes = generator.integers(1, 30, clients)
    rows = [torch.from_numpy(generator.integers(0, items, int(k))) for k in generator.integers(0, 6, clients)]
    values = [torch.from_numpy(generator.normal(size=(len(r), width))).float() for r in rows]
    shared = {
        "dense": torch.ones(width, 2),
        "table": torch.from_numpy(generator.normal(size=(items, width))).float(),
    }
    return shared, dense, rows, values, sizes


def streamed(shared, dense, rows, values, weights, clients, device="cpu"):
    total = Accumulator(shared, device)
    chosen = list(clients)
    total.add_dense("dense", torch.einsum("c,cij->ij", weights[chosen].float(), dense[chosen]))
    for client in chosen:
        total.add_rows("table", rows[client], values[client] * weights[client])
    total.add_weight(float(weights[chosen].sum()), len(chosen))
    return total


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["uniform", "size"])
def test_equals_the_mean_of_whole_tables_one_client_at_a_time(kind, device):
    shared, dense, rows, values, sizes = fleet(40)
    weights = torch.from_numpy(sizes if kind == "size" else np.ones(40))
    total = streamed(shared, dense, rows, values, weights, range(40), device)
    chosen = AggregationSettings(weights=kind, server_lr=0.7)
    out = total.apply(shared, chosen.server_lr)

    literal = {name: np.zeros(tensor.shape) for name, tensor in shared.items()}
    for client in range(40):
        table = shared["table"].double().numpy().copy()
        for row, value in zip(rows[client].tolist(), values[client].double().numpy(), strict=True):
            table[row] += value
        share = float(weights[client] / weights.sum())
        literal["table"] += share * (table - shared["table"].double().numpy())
        literal["dense"] += share * dense[client].double().numpy()
    for name, tensor in shared.items():
        np.testing.assert_allclose(out[name].numpy(), tensor.numpy() + 0.7 * literal[name], rtol=2e-6, atol=2e-6)
        assert out[name].dtype == torch.float32
        assert out[name].device == tensor.device


@given(st.integers(1, 39))
@settings(max_examples=10, deadline=None)
def test_partial_sums_merge_to_the_whole(cut):
    shared, dense, rows, values, _ = fleet(40)
    weights = torch.ones(40, dtype=torch.float64)
    whole = streamed(shared, dense, rows, values, weights, range(40))
    left = streamed(shared, dense, rows, values, weights, range(cut))
    left.merge(streamed(shared, dense, rows, values, weights, range(cut, 40)))
    assert (left.weight, left.clients) == (whole.weight, whole.clients) == (40.0, 40)
    for name in shared:
        torch.testing.assert_close(left.sums[name], whole.sums[name], rtol=1e-5, atol=1e-6)


def test_sums_are_exact_where_float32_would_lose_them():
    shared = {"w": torch.zeros(1)}
    total = Accumulator(shared)
    total.add_dense("w", torch.tensor([2.0**24]))
    for _ in range(4):
        total.add_dense("w", torch.tensor([1.0]))
    total.add_dense("w", torch.tensor([-(2.0**24)]))
    total.add_weight(4.0, 4)
    assert total.apply(shared, 1.0)["w"].item() == 1.0


def test_a_diverged_update_is_an_error_that_says_what_to_do():
    shared = {"w": torch.zeros(2)}
    total = Accumulator(shared)
    total.add_dense("w", torch.tensor([1.0, float("nan")]))
    total.add_weight(3.0, 3)
    with pytest.raises(InputError, match="mean update of w over 3 clients is not finite: lower the local"):
        total.apply(shared, 1.0)


def test_shapes_that_would_broadcast_are_refused():
    total = Accumulator({"w": torch.zeros(4, 3)})
    with pytest.raises(ValueError, match=r"update of w has shape \(3,\), not \(4, 3\)"):
        total.add_dense("w", torch.ones(3))
    with pytest.raises(ValueError, match="rows of w have shape"):
        total.add_rows("w", torch.tensor([0, 1]), torch.ones(2, 1))
    with pytest.raises(ValueError, match="do not belong together"):
        total.merge(Accumulator({"v": torch.zeros(4, 3)}))


# --- sums over touched rows

ROWS, WIDTH = 9, 2
PARTS = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=12), max_size=6)


@given(PARTS, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_it_is_the_sum_of_the_whole_table_to_the_bit_also_when_its_room_is_used_again(
    parts: list[list[int]], seed: int
) -> None:
    rng, total = np.random.default_rng(seed), RowSum((ROWS, WIDTH))
    for _ in range(2):
        literal = np.zeros((ROWS, WIDTH))
        for part in parts:
            values = rng.normal(size=(len(part), WIDTH))
            total.add(torch.tensor(part, dtype=torch.int64), torch.from_numpy(values))
            np.add.at(literal, np.array(part, np.int64), values)
        assert np.array_equal(total.whole().numpy(), literal)
        assert sorted(total.rows.tolist()) == sorted({row for part in parts for row in part})
        total.clear()
        assert not total.whole().any()


@given(PARTS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_step_over_touched_rows_is_the_step_over_the_whole_table(parts: list[list[int]], asked: bool) -> None:
    shared, total = {"table": torch.linspace(-1, 1, ROWS * WIDTH).view(ROWS, WIDTH)}, RowSum((ROWS, WIDTH))
    made = Accumulator(shared)
    made.add_weight(3.0, 3)
    for number, part in enumerate(parts):
        rows, values = torch.tensor(part, dtype=torch.int64), torch.full((len(part), WIDTH), 0.1 + number)
        made.add_rows("table", rows, values)
        total.add(rows, values)
    literal = (shared["table"].double() + 0.7 * (total.whole() / 3.0)).float()
    if asked:  # for the sum of the whole table, which is then what the step is taken over
        assert torch.equal(made.sums["table"], total.whole())
    assert torch.equal(made.apply(shared, 0.7)["table"], literal)


# --- what a server can and cannot do with a sealed sum ---------------------------------------------------------------


def sealed(clients, at_least=1):
    total = SealedSum({"w": (2,), "table": (3, 1)}, at_least=at_least)
    for _ in range(clients):
        rows = {"table": (torch.tensor([2, 0, 2]), torch.tensor([[1.0], [2.0], [3.0]]))}
        assert total.add({"w": torch.tensor([12345.5, 1.0])}, rows, weight=1.0, clients=1) is None
    return total


def test_a_sealed_sum_opens_once_with_its_noise_and_takes_nothing_after():
    total = sealed(3)
    opened = total.open([("w", np.array([0.5, 0.0])), ("table", np.ones((3, 1)))])
    assert opened.sums["w"].tolist() == [3 * 12345.5 + 0.5, 3.0]
    assert opened.sums["table"].tolist() == [[7.0], [1.0], [13.0]]
    assert (opened.weight, opened.clients) == (3.0, 3)
    with pytest.raises(ValueError, match="opened before"):
        total.open()
    with pytest.raises(ValueError, match="opened before"):
        total.add({}, {}, 1.0, 1)


def test_it_stays_closed_below_its_smallest_cohort():
    total = sealed(2, at_least=3)
    drawn = []

    def noise():
        drawn.append(1)
        yield "w", np.zeros(2)

    assert total.open(noise()) is None
    assert not drawn
    total.add({}, {}, 1.0, 1)
    assert total.open(noise()).clients == 3
    assert SealedSum({"w": (2,)}, at_least=3).open().clients == 0  # of nobody: nothing to hide


def test_no_name_reaches_a_part_or_the_sum():
    total = sealed(2, at_least=3)
    assert [name for name in dir(total) if not name.startswith("_")] == ["add", "count", "end_block", "open"]
    assert not hasattr(total, "__dict__")
    for name in dir(total):
        assert not isinstance(getattr(total, name), torch.Tensor | Accumulator | dict)
    assert "24691" not in repr(total)
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            take(total)
    for take in (list, float, len):
        with pytest.raises(TypeError):
            take(total)
    with pytest.raises(AttributeError):
        total.parts = []


def test_what_is_added_to_a_sealed_sum_is_not_shared_with_it():
    mine = torch.ones(2)
    total = SealedSum({"w": (2,)})
    total.add({"w": mine}, {}, 1.0, 1, times=0.5)
    mine[:] = 99.0
    assert total.open().sums["w"].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"update of w has shape \(3,\), not \(2,\)"):
        SealedSum({"w": (2,)}).add({"w": torch.zeros(3)}, {}, 1.0, 1)


@pytest.mark.parametrize("touched", [3, 40])
def test_blocks_are_summed_by_themselves_and_then_in_order(touched):
    shapes, draw = {"w": (4,), "table": (50, 2)}, torch.Generator().manual_seed(touched)

    def part():
        rows = torch.randperm(50, generator=draw)[:touched], torch.randn(touched, 2, generator=draw).double()
        return {"w": torch.randn(4, generator=draw).double()}, {"table": rows}

    blocks = [[part() for _ in range(count)] for count in (3, 3, 2)]
    literal = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    flat, total, sums = SealedSum(shapes), SealedSum(shapes), SealedSum(shapes)
    for block in blocks:
        own = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
        for dense, rows in block:
            own["w"] += 0.1 * dense["w"]
            own["table"].index_add_(0, rows["table"][0], 0.1 * rows["table"][1])
            for one in (flat, total):
                one.add(dense, rows, weight=1.0, clients=2, times=0.1)
        literal = {name: literal[name] + own[name] for name in shapes}
        total.end_block()
        places = own["table"].any(1).nonzero().squeeze(1)
        table = {"table": (places, own["table"][places])}
        sums.add({"w": own["w"]}, table, weight=float(len(block)), clients=2 * len(block), whole=True)
    found, other, whole = total.open(), flat.open(), sums.open()
    assert all(torch.equal(found.sums[name], literal[name]) for name in shapes)
    assert all(torch.equal(whole.sums[name], literal[name]) for name in shapes)
    assert not all(torch.equal(other.sums[name], literal[name]) for name in shapes), "blocks make a difference"
    assert (found.weight, found.clients) == (other.weight, other.clients) == (8.0, 16)


def test_what_was_added_after_the_last_block_is_in_the_sum():
    total = sealed(2, at_least=5)
    total.end_block()
    assert total.open() is None
    for clients in (1, 2):
        for _ in range(clients):
            total.add({"w": torch.ones(2)}, {}, 1.0, 1)
        total.end_block()
        total.end_block()
    total.add({"w": torch.ones(2)}, {}, 1.0, 1)
    opened = total.open()
    assert opened.sums["w"].tolist() == [2 * 12345.5 + 4, 6.0]
    assert (opened.weight, opened.clients) == (6.0, 6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_order_gives_the_same_bits(device):
    generator = keyed.generator(0, "many")
    rows = torch.from_numpy(generator.integers(0, 50, 20_000)).to(device)
    values = torch.from_numpy(generator.normal(size=(20_000, 16))).to(device)
    sums = []
    for _ in range(3):
        total = Accumulator({"table": torch.zeros(50, 16)}, device)
        total.add_rows("table", rows, values)
        sums.append(total.sums["table"])
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])
    literal = np.zeros((50, 16))
    np.add.at(literal, rows.cpu().numpy(), values.cpu().numpy())
    np.testing.assert_allclose(sums[0].cpu().numpy(), literal, rtol=1e-12, atol=1e-12)


def test_noise_joins_the_sum_before_the_mean():
    shared = {"w": torch.zeros(2, 2)}
    total = Accumulator(shared)
    total.add_dense("w", torch.full((2, 2), 3.0))
    total.noise("w", np.array([[1.0, 0.0], [0.0, -3.0]]))
    total.add_weight(2.0, 2)
    assert total.apply(shared, 1.0)["w"].tolist() == [[2.0, 1.5], [1.5, 0.0]]


def test_the_broadcast_itself_is_left_alone():
    shared = {"w": torch.zeros(2)}
    total = Accumulator(shared)
    total.add_dense("w", torch.ones(2))
    total.add_weight(1.0, 1)
    total.apply(shared, 1.0)
    assert shared["w"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("values", [{"server_lr": 0.0}, {"server_lr": float("nan")}, {"weights": "sizes"}, {"lr": 1.0}])
def test_settings_refuse(values):
    with pytest.raises(ValidationError):
        AggregationSettings(**values)
