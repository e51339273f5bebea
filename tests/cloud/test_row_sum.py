"""A sum over the touched rows of a table is that of the whole table, whatever comes in which order."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cloud.aggregate import Accumulator, RowSum
from cloud.rule import AggregationSettings

ROWS, WIDTH = 9, 2
PARTS = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=12), max_size=6)


@given(PARTS, st.integers(0, 1000))
@limits(max_examples=60, deadline=None)
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
@limits(max_examples=40, deadline=None)
def test_a_step_over_touched_rows_is_the_step_over_the_whole_table(parts: list[list[int]], asked: bool) -> None:
    shared, total = {"table": torch.linspace(-1, 1, ROWS * WIDTH).view(ROWS, WIDTH)}, RowSum((ROWS, WIDTH))
    made, settings = Accumulator(shared), AggregationSettings(server_lr=0.7)
    made.add_weight(3.0, 3)
    for number, part in enumerate(parts):
        rows, values = torch.tensor(part, dtype=torch.int64), torch.full((len(part), WIDTH), 0.1 + number)
        made.add_rows("table", rows, values)
        total.add(rows, values)
    literal = (shared["table"].double() + 0.7 * (total.whole() / 3.0)).float()
    if asked:  # for the sum of the whole table, which is then what the step is taken over
        assert torch.equal(made.sums["table"], total.whole())
    assert torch.equal(made.apply(shared, settings.server_lr)["table"], literal)
