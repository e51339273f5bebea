"""A held tensor is to the loop what a tensor is, wherever its rows lie, and refuses what would be lost."""

from __future__ import annotations

import operator
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edgefr.engine import held
from edgefr.engine.held import Held
from edgefr.engine.work import Clients


class Near:
    """Rows that lie in this process."""

    def __init__(self, rows: torch.Tensor):
        self.rows, self.asked = rows, list[int]()

    @property
    def like(self) -> torch.Tensor:
        return self.rows[:0]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, clients: Clients) -> torch.Tensor:
        self.asked.append(len(clients))
        return self.rows[torch.from_numpy(clients)].clone()

    def write(self, clients: Clients, rows: torch.Tensor) -> None:
        assert rows.shape == (len(clients), *self.rows.shape[1:])
        self.rows[torch.from_numpy(clients)] = rows

    def copied(self) -> Near:
        return Near(self.rows.clone())


def both(shape: tuple[int, ...] = (5, 3), dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, Held]:
    plain = torch.arange(int(np.prod(shape))).view(shape).to(dtype)
    return plain, Held(Near(plain.clone()))


CLIENTS = st.lists(st.integers(0, 4), unique=True, max_size=5).map(lambda found: torch.tensor(found, dtype=torch.int64))
WITHIN = st.sampled_from([(), (1,), (slice(1, None),), (slice(0, 2),)])


@given(CLIENTS, WITHIN)
def test_rows_are_read_and_written_as_those_of_a_tensor(clients: torch.Tensor, within: tuple) -> None:
    plain, there = both()
    at = (clients, *within) if within else clients
    assert torch.equal(there[at], plain[at])
    new = -torch.ones_like(plain[at])
    plain[at], there[at] = new, new
    assert torch.equal(there.whole(), plain)
    plain[at], there[at] = 7, 7
    assert torch.equal(there.whole(), plain)


@given(CLIENTS)
def test_selecting_and_copying_rows_are_those_of_a_tensor(clients: torch.Tensor) -> None:
    plain, there = both()
    assert torch.equal(there.index_select(0, clients), plain.index_select(0, clients))
    new = torch.full((len(clients), 3), -2.0)
    other = there.index_copy(0, clients, new)
    assert torch.equal(there.whole(), plain)  # another tensor
    assert torch.equal(torch.as_tensor(other[:]), plain.index_copy(0, clients, new))
    there.index_copy_(0, clients, new)
    assert torch.equal(there.whole(), plain.index_copy_(0, clients, new))


def test_clients_may_be_named_by_arrays_by_truth_and_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "AT_ONCE", 2)
    plain, there = both()
    for at in (np.array([3, 1]), np.array([True, False, True, False, True]), slice(1, 4), (slice(None), 0)):
        assert torch.equal(there[at], plain[at])
    lie = there.source
    assert isinstance(lie, Near)
    lie.asked.clear()
    assert torch.equal(there[:, 1], plain[:, 1])
    assert lie.asked == [2, 2, 1]  # never everybody's whole rows at a time


def test_its_shape_and_type_are_known_without_a_row() -> None:
    plain, there = both((4, 2), torch.int32)
    assert isinstance(there, torch.Tensor)
    for of in (plain, there):
        assert (of.shape, of.dtype, of.ndim, len(of), of.nbytes) == ((4, 2), torch.int32, 2, 4, 32)
        assert (of.size(0), of.dim(), of.numel(), of.device.type) == (4, 2, 8, "cpu")
    assert isinstance(there.source, Near)
    assert there.source.asked == []
    assert repr(there) == "Held([4, 2], torch.int32)"


def test_arithmetic_has_the_rows_come_and_leaves_them_as_they_are() -> None:
    plain, there = both()
    assert torch.equal(2 * there - torch.where(there > 3, there, 0 * there), 2 * plain - plain.where(plain > 3, 0.0))
    assert torch.equal(torch.cat([there, there]), torch.cat([plain, plain]))
    assert torch.equal(torch.zeros_like(there), torch.zeros_like(plain))
    assert torch.equal(there.whole(), plain)
    clone = there.detach().cpu().clone()
    clone[torch.tensor([0])] = 9.0
    assert torch.equal(there.whole(), plain)


def test_what_would_be_written_to_a_copy_and_lost_is_refused() -> None:
    _, there = both()
    ones = torch.ones(5, 3)
    for lost in (
        lambda: there.add_(1),
        lambda: there.copy_(ones),
        lambda: there.zero_(),
        lambda: operator.iadd(there, ones),
        lambda: operator.imul(there, 2),
        lambda: torch.add(ones, ones, out=there),
        lambda: setattr(there, "data", ones),
    ):
        with pytest.raises(RuntimeError, match="would write to a copy of rows that lie elsewhere"):
            lost()
    with pytest.raises(ValueError, match="read-only"):
        there.numpy()[0, 0] = 1.0
    with pytest.raises(TypeError, match="many clients at a time"):
        there[0]
    with pytest.raises(TypeError, match="by numbers and slices"):
        there[torch.tensor([0, 1]), torch.tensor([0, 1])]
    with pytest.raises(TypeError, match="dimension 0"):
        there.index_select(1, torch.tensor([0]))
    with pytest.raises(TypeError, match="do not travel as a whole"):
        pickle.dumps(there)
