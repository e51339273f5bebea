import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloud.losses import attention_loss, state_loss


def drawn(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random(shape))


def literal_attention(student: np.ndarray, teacher: np.ndarray, lengths: list[int]) -> float:
    """TransFR Eq. 2, one number at a time."""
    per_text = []
    for text, length in enumerate(lengths):
        heads = student.shape[1]
        total = 0.0
        for head in range(heads):
            for query in range(length):
                for key in range(length):
                    total += (student[text, head, query, key] - teacher[text, head, query, key]) ** 2
        per_text.append(total / heads / length)
    return sum(per_text) / len(per_text)


def literal_states(student: np.ndarray, teacher: np.ndarray, w: np.ndarray, lengths: list[int]) -> float:
    """TransFR Eq. 3, one number at a time."""
    per_text = []
    for text, length in enumerate(lengths):
        total = 0.0
        for token in range(length):
            for column in range(w.shape[1]):
                projected = sum(student[text, token, i] * w[i, column] for i in range(w.shape[0]))
                total += (projected - teacher[text, token, column]) ** 2
        per_text.append(total / length / w.shape[1])
    return sum(per_text) / len(per_text)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 99))
def test_terms_equal_literal_loops(lengths: list[int], heads: int, seed: int) -> None:
    texts, longest = len(lengths), max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    mine, its = (drawn((texts, heads, longest, longest), seed + i) * mask[:, None, None, :] for i in (0, 1))
    expected = literal_attention(mine.numpy(), its.numpy(), lengths)
    assert float(attention_loss(mine, its, mask.long())) == pytest.approx(expected, abs=1e-12)
    small, large, w = (
        drawn((texts, longest, 3), seed),
        drawn((texts, longest, 4), seed + 1),
        drawn((3, 4), seed + 2),
    )
    expected = literal_states(small.numpy(), large.numpy(), w.numpy(), lengths)
    assert float(state_loss(small @ w, large, mask.long())) == pytest.approx(expected, abs=1e-12)
