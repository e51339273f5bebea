"""Groups, losses and changes of ranks from kept models small enough to work out by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edge.ragged import Ragged
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.blocks import Block
from edgefr.studies.reproductions.f3crec.recipes import F3CRecCell
from edgefr.studies.reproductions.f3crec.saved_models import SavedModels, ends
from tests.data.tables import dataset


def block(number: int, train, test, past, pool: int, known: list[bool]) -> Block:
    tables = (Ragged.from_lists(rows) for rows in (train, [[], [], []], test, past))
    return Block(number, *tables, np.arange(pool, dtype=np.int32), np.array(known), 1)


def kept(tables: list[list[list[float]]], users: list[list[float]]) -> SavedModels:
    """Five items, the last of them new in D1; user 0 leaves after D0, user 1 stays, user 2 is new in D1."""
    blocks = (
        block(0, [[0], [1], []], [[1], [3], []], [[], [], []], 4, [False] * 3),
        block(1, [[], [0], [4]], [[], [], []], [[0, 1], [1, 3], []], 5, [True, True, False]),
    )
    data = dataset([(0, 0, 0), (1, 1, 1), (2, 4, 2)], users=3, items=5)
    tensors = {"block1.shift": torch.tensor([math.nan, 7.0, math.nan])}
    for t, table in enumerate(tables):
        tensors[f"block{t}.shared.item"] = torch.tensor(table)
        tensors[f"block{t}.private.user"] = torch.tensor(users)
    experiment = F3CRecCell("ml-100k", "f3crec", "fedmf", "released", (("model.dim", 2),)).experiment(0)
    return SavedModels(experiment, Prepared(data, {}, "blocks", None, blocks), tensors)


BEFORE = [[1.0, 0.0], [0.9, 0.0], [0.8, 0.0], [0.7, 0.0], [0.0, 0.0]]
AFTER = [[1.0, 0.0], [0.95, 0.0], [0.1, 0.0], [1.5, 0.0], [9.0, 0.0]]
USERS = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]


def test_losses_of_the_base_block():
    models = kept([BEFORE, AFTER], USERS)
    # after D0: user 0 trained on item 0, so its test item 1 is first; user 1 trained on 1, its test item 3 is third
    expected = [1.0, 1 / math.log2(4), math.nan]
    assert models.on_base(0, "as released") == pytest.approx(expected, nan_ok=True)
    assert models.on_base(0, "history") == pytest.approx(expected, nan_ok=True)
    # after D1, of 4 > 3 > 0 > 1 > 2: user 0 was away, nothing is masked; user 1 trained on item 0 and looks for 3
    expected = [1 / math.log2(5), 1 / math.log2(3), math.nan]
    assert models.on_base(1, "as released") == pytest.approx(expected, nan_ok=True)
    # all that user 0 had but for the target: item 0; then 4 > 3 > 1
    expected = [1 / math.log2(4), 1 / math.log2(3), math.nan]
    assert models.on_base(1, "history") == pytest.approx(expected, nan_ok=True)


def test_changes_of_ranks_of_static_and_dynamic_items():
    models = kept([BEFORE, AFTER], USERS)
    # phi of items 0 to 3: 0, 0.0025, 0.49, 0.64 over sqrt 2: one of four is a fifth, item 0 static, item 3 dynamic.
    # user 0 alone left: item 0 from rank 1 to 2 (without the new item 4), item 3 from rank 4 to 1
    assert models.rank_changes(1) == pytest.approx((1.0, 0.75))
    assert models.transitions() == pytest.approx((1.0, 0.75, -0.25))


def test_the_vector_of_the_block_before_is_used():
    models = kept([BEFORE, AFTER], USERS)
    models.tensors["block1.private.user"] *= -1
    assert models.rank_changes(1) == pytest.approx((1.0, 0.75))


def test_nobody_left():
    models = kept([BEFORE, AFTER], USERS)
    everybody = block(1, [[0], [0], [4]], [[], [], []], [[0, 1], [1, 3], []], 5, [True, True, False])
    same = Prepared(models.prepared.dataset, {}, "blocks", None, (models.prepared.blocks[0], everybody))
    models = SavedModels(models.experiment, same, models.tensors)
    assert models.rank_changes(1) is None
    assert all(map(math.isnan, models.transitions()))


@given(st.lists(st.one_of(st.just(math.nan), st.integers(0, 50).map(float)), max_size=60))
def test_ends_are_disjoint_and_ordered(values):
    low, high = ends(values)
    known = [value for value in values if not math.isnan(value)]
    assert len(low) == len(high) == min(max(1, len(known) // 5), len(known) // 2)
    assert not set(low) & set(high)
    rest = [v for i, v in enumerate(values) if not math.isnan(v) and i not in {*low, *high}]
    parts = [[values[i] for i in low], rest, [values[i] for i in high]]
    for smaller, larger in pairwise([part for part in parts if part]):
        assert max(smaller) <= min(larger)
