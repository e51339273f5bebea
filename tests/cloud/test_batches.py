import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.batches import Tokens, by_length, checked, corpus, digest_of, padded, visit
from privacy.errors import InputError


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 9))
def test_every_text_is_in_one_batch_of_its_length(lengths: list[int], size: int) -> None:
    batches = by_length(np.array(lengths), size)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)
    in_order = [lengths[i] for batch in batches for i in batch]
    assert in_order == sorted(in_order)


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 3))
def test_each_pass_visits_every_batch_once(count: int, epoch: int, seed: int) -> None:
    seen = [visit(count, epoch * count + i, seed, "order") for i in range(count)]
    assert sorted(seen) == list(range(count))


def test_rows_are_padded_and_masked() -> None:
    tokens = Tokens(np.array([5, 6, 7, 8]), np.array([0, 1, 4]), pad=9)
    ids, mask = padded(tokens, np.array([1, 0]), "cpu")
    assert ids.tolist() == [[6, 7, 8], [5, 9, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_corpus_is_distinct_and_not_empty() -> None:
    assert corpus(["b", " a ", "", "b"]) == ["b", "a"]
    with pytest.raises(InputError, match="no texts given"):
        corpus([])
    with pytest.raises(InputError, match="every text is empty"):
        corpus(["", "  \n"])


def test_texts_must_be_strings() -> None:
    with pytest.raises(InputError, match="text 1 is nan, not a string"):
        checked(["a", float("nan")])  # type: ignore[list-item]
    assert checked(["a\ud800b"]) == ["a?b"]


def test_digest_sees_borders_and_order() -> None:
    assert len({digest_of(texts) for texts in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"])}) == 4
