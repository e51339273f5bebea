"""The knowledge base against the same thing written with lists and loops, and what no client may bring about."""

import math
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

import cloud.index
import cloud.prototypes
import cloud.search
from cloud.fusion import KnowledgeSettings
from cloud.prototypes import KnowledgeBase
from edgefr.simulation.runs.checkpoint import newest, write
from privacy import keyed
from privacy.errors import InputError

WIDTH = 4
Ints = npt.NDArray[np.int64]


@dataclass
class Literal:
    """Equations 4 and 5 on a list of (round, client, session, prototype)."""

    settings: KnowledgeSettings
    stored: list[tuple[int, int, int, list[float]]] = field(default_factory=list)

    def add(self, number: int, clients: Ints, prototypes: torch.Tensor, sessions: Ints) -> None:
        window = math.inf if self.settings.window is None else self.settings.window
        self.stored = [entry for entry in self.stored if entry[0] > number - window]
        for client, session, prototype in zip(clients.tolist(), sessions.tolist(), prototypes.tolist(), strict=True):
            if self.settings.replace:
                self.stored = [entry for entry in self.stored if entry[1:3] != (client, session)]
            self.stored.append((number, client, session, prototype))

    def nearest(self, client: int, query: list[float]) -> list[tuple[float, int, list[float]]]:
        """(cosine, whose, prototype) of the k nearest, the nearest first."""
        found = []
        for _, owner, _, prototype in self.stored:
            if owner != client:
                product = math.fsum(a * b for a, b in zip(query, prototype, strict=True))
                found.append((product / math.hypot(*query) / math.hypot(*prototype), owner, prototype))
        return sorted(found, key=lambda entry: -entry[0])[: self.settings.top_k]

    def answer(self, client: int, query: list[float]) -> list[float]:
        found = self.nearest(client, query)
        powers = [math.exp(cosine) if self.settings.fusion == "softmax" else 1.0 for cosine, _, _ in found]
        columns = zip(*(prototype for _, _, prototype in found), strict=True)
        weighted = [math.fsum(p * x for p, x in zip(powers, column, strict=True)) / sum(powers) for column in columns]
        return weighted or [0.0] * len(query)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(keyed.generator(seed, "prototypes").normal(size=shape).astype(np.float32))


def rounds(seed: int, count: int) -> list[tuple[int, Ints, torch.Tensor, Ints]]:
    """Calls of `add`: 3 to 6 of 8 clients a round, each with one of 3 sessions of its own."""
    generator, out = keyed.generator(seed, "rounds"), []
    for number in range(1, count + 1):
        clients = generator.permutation(8)[: generator.integers(3, 7)]
        sessions = clients * 3 + generator.integers(0, 3, len(clients))
        out.append((number, clients, drawn(seed * 100 + number, len(clients), WIDTH), sessions))
    return out


@pytest.mark.parametrize("fusion", ["mean", "softmax"])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("top_k", [1, 4, 50])
def test_it_is_the_same_as_with_lists(fusion: str, replace: bool, window: int | None, top_k: int) -> None:
    values = {"fusion": fusion, "replace": replace, "window": window, "top_k": top_k}
    settings = KnowledgeSettings(**values)  # type: ignore[arg-type]
    base, literal = KnowledgeBase(WIDTH, settings), Literal(settings)
    for call in rounds(5, 7):
        base.add(*call)
        literal.add(*call)
        assert len(base) == len(literal.stored)
        clients, queries = np.arange(10), drawn(900 + call[0], 10, WIDTH)
        found, answers = base.retrieve(clients, queries), base.answer(clients, queries)
        assert answers.dtype == torch.float32
        assert answers.shape == (10, WIDTH)
        for client, query in zip(clients.tolist(), queries.tolist(), strict=True):
            expected = literal.nearest(client, query)
            rest = [-1] * (top_k - len(expected))
            assert found.clients[client].tolist() == [owner for _, owner, _ in expected] + rest
            cosines = [cosine for cosine, _, _ in expected] + [0.0] * len(rest)
            np.testing.assert_allclose(found.cosines[client], cosines, atol=1e-12)
            assert found.owners[client] == len({owner for _, owner, _ in expected})
            np.testing.assert_allclose(answers[client], literal.answer(client, query), atol=1e-6)


def filled(settings: KnowledgeSettings, seed: int = 1, width: int = WIDTH, count: int = 5) -> KnowledgeBase:
    base = KnowledgeBase(width, settings)
    for number in range(1, count + 1):
        base.add(number, np.arange(9), drawn(seed + number, 9, width))
    return base


@limits(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["mean", "softmax", "pca"]), st.booleans(), st.integers(1, 12))
def test_no_one_finds_its_own_and_order_does_not_matter(seed: int, fusion: str, replace: bool, top_k: int) -> None:
    settings = KnowledgeSettings(fusion=fusion, replace=replace, top_k=top_k)  # type: ignore[arg-type]
    one, other, width = KnowledgeBase(19, settings), KnowledgeBase(19, settings), 19
    generator = keyed.generator(seed, "order")
    for number in range(1, 4):
        clients, prototypes = np.arange(9), drawn(seed + number, 9, width)
        prototypes[generator.integers(9)] = prototypes[generator.integers(9)]  # some are equal
        order = generator.permutation(9)
        one.add(number, clients, prototypes)
        other.add(number, clients[order], prototypes[torch.from_numpy(order)])
    queries = drawn(seed + 50, 9, width)
    found, answers = one.retrieve(clients, queries), one.answer(clients, queries)
    assert not (found.clients == torch.arange(9).unsqueeze(1)).any()
    assert (found.clients >= 0).sum(1).tolist() == [min(top_k, 8 if replace else 24)] * 9
    order = generator.permutation(9)
    shuffled = other.answer(clients[order], queries[torch.from_numpy(order)])
    alone = torch.cat([one.answer(clients[at : at + 1], queries[at : at + 1]) for at in range(9)])
    assert torch.equal(shuffled, answers[torch.from_numpy(order)])
    assert torch.equal(alone, answers)


def test_a_window_forgets_and_wipes_and_takes_no_more_room() -> None:
    base = KnowledgeBase(2, KnowledgeSettings(window=2, replace=False, top_k=9))
    for number in (1, 2, 3, 4, 9):
        base.add(number, np.arange(3), torch.full((3, 2), float(number)))
        kept = base.state()
        expected = {1: {1}, 2: {1, 2}, 3: {2, 3}, 4: {3, 4}, 9: {9}}[number]
        assert set(kept["since"][kept["owner"] >= 0].tolist()) == expected
        assert set(kept["vectors"].ravel().tolist()) - {0.0} == expected
        assert len(kept["vectors"]) <= 6
    base.add(12, np.zeros(0, np.int64), torch.zeros(0, 2))
    assert len(base) == 0
    assert base.answer(np.array([5]), torch.ones(1, 2)).tolist() == [[0.0, 0.0]]


def test_fewer_than_k_and_none() -> None:
    base = KnowledgeBase(2, KnowledgeSettings(top_k=3, fusion="mean"))
    clients, queries = np.array([0, 1, 2]), torch.tensor([[1.0, 0.0]] * 3)
    assert base.answer(clients, queries).tolist() == [[0.0, 0.0]] * 3
    base.add(1, np.array([1]), torch.tensor([[2.0, 4.0]]))
    assert base.answer(clients, queries).tolist() == [[2.0, 4.0], [0.0, 0.0], [2.0, 4.0]]
    assert base.retrieve(clients, queries).rows.tolist() == [[0, -1, -1], [-1, -1, -1], [0, -1, -1]]
    assert base.answer(np.zeros(0, np.int64), torch.zeros(0, 2)).shape == (0, 2)


@pytest.mark.parametrize("piece", [1, 64, 1 << 19])
def test_equal_prototypes_come_lowest_row_first(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more equal ones than are asked for, at either side of a nearer and a farther one, in pieces of any size."""
    monkeypatch.setattr(cloud.prototypes, "PIECE", piece)
    monkeypatch.setattr(cloud.search, "PIECE", piece)
    width, prototypes = 33, drawn(4, 1, 33).repeat(200, 1)
    query = drawn(5, 1, width).repeat(7, 1)
    prototypes[60], prototypes[70] = query[0], -query[0]
    base = KnowledgeBase(width, KnowledgeSettings(top_k=5))
    base.add(1, np.arange(200), prototypes)
    rows = base.retrieve(np.array([2, 60, 199, 500, 500, 0, 70]), query).rows.tolist()
    plain = [60, 0, 1, 2, 3]
    assert rows == [[60, 0, 1, 3, 4], [0, 1, 2, 3, 4], plain, plain, plain, [60, 1, 2, 3, 4], plain]


def test_ranks_are_finer_than_the_products_that_choose() -> None:
    """Cosines of 1 - 2e-10 and 1 - 5e-11 are both 1 in float32."""
    base = KnowledgeBase(2, KnowledgeSettings(top_k=1))
    base.add(1, np.arange(2), torch.tensor([[1.0, 2e-5], [1.0, 1e-5]]))
    assert base.retrieve(np.array([9]), torch.tensor([[1.0, 0.0]])).rows.tolist() == [[1]]


def test_what_is_no_prototype_is_refused_and_counted() -> None:
    base = KnowledgeBase(2, KnowledgeSettings(fusion="mean"))
    base.add(1, np.arange(3), torch.tensor([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]))
    hostile = [[math.nan, 1.0], [math.inf, 1.0], [3e38, 3e38], [0.0, 0.0], [-math.inf, math.nan], [7e5, 7e5]]
    base.add(2, np.arange(6), torch.tensor(hostile))
    assert base.refused == 4
    assert len(base) == 4  # two as before, the third in its older shape, nothing of zeros, the longest that is allowed
    answers = base.answer(np.arange(20, 26), torch.tensor(hostile))
    assert answers.isfinite().all()
    assert answers.any(1).tolist() == [False, False, False, False, False, True]


@pytest.mark.parametrize(
    ("clients", "shape", "sessions", "number", "says"),
    [
        ([0, 1], (2, 3), None, 1, "need prototypes"),
        ([0, 1], (3, 2), None, 1, "need prototypes"),
        ([0, 1], (2,), None, 1, "need prototypes"),
        ([[0, 1]], (2, 2), None, 1, "need prototypes"),
        ([0, -1], (2, 2), None, 1, "numbered from 0"),
        ([0, 1], (2, 2), [1], 1, "as many sessions"),
        ([1, 1], (2, 2), None, 1, "named twice"),
        ([1, 0, 1], (3, 2), [7, 7, 7], 1, "named twice"),
        ([0, 1], (2, 2), None, 0, "cannot come after"),
    ],
)
def test_what_does_not_fit_is_a_mistake_of_the_caller(
    clients: list[int], shape: tuple[int, ...], sessions: list[int] | None, number: int, says: str
) -> None:
    base = KnowledgeBase(2, KnowledgeSettings())
    base.add(1, np.array([3]), torch.ones(1, 2))
    with pytest.raises(ValueError, match=says):
        base.add(number, np.array(clients), torch.ones(shape), None if sessions is None else np.array(sessions))
    assert len(base) == 1


# --- privacy ---------------------------------------------------------------------------------------------------------


def test_with_one_neighbour_the_answer_is_its_prototype_and_is_counted() -> None:
    base = KnowledgeBase(WIDTH, KnowledgeSettings(top_k=1))
    prototypes = drawn(3, 4, WIDTH)
    base.add(1, np.arange(4), prototypes)
    answers = base.answer(np.arange(4), prototypes)
    assert {tuple(row) for row in answers.tolist()} <= {tuple(row) for row in prototypes.tolist()}
    assert base.lone == 4


def test_many_prototypes_of_one_client_are_one_client() -> None:
    sessions = {"top_k": 3, "fusion": "mean"}
    for least, expected in ((1, [1.0, 3.0]), (2, [0.0, 0.0])):
        base = KnowledgeBase(2, KnowledgeSettings(**sessions, least_clients=least))  # type: ignore[arg-type]
        base.add(1, np.array([8, 8]), torch.tensor([[1.0, 2.0], [1.0, 4.0]]), np.array([1, 2]))
        assert base.answer(np.array([0]), torch.ones(1, 2)).tolist() == [expected]
        assert base.lone == (least == 1)
        base.add(1, np.array([9]), torch.tensor([[1.0, 0.0]]), np.array([3]))
        assert base.answer(np.array([0]), torch.ones(1, 2)).tolist() == [[1.0, 2.0]]
        assert base.lone == (least == 1), "an answer made of two clients"


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replace", [True, False])
def test_a_restored_base_goes_on_as_if_nothing_had_happened(replace: bool, tmp_path: Path) -> None:
    settings = KnowledgeSettings(replace=replace, window=3, top_k=4)
    base, calls = KnowledgeBase(WIDTH, settings), rounds(8, 9)
    for call in calls[:5]:
        base.add(*call)
    base.add(5, np.array([1]), torch.full((1, WIDTH), math.nan))
    base.answer(np.arange(3), drawn(1, 3, WIDTH))
    write(tmp_path, 5, {"knowledge": base.state()}, "x")
    read = newest(tmp_path, "x", pytest.fail)
    assert read is not None
    again = KnowledgeBase(WIDTH, settings)
    again.restore(read.state["knowledge"])
    for upcoming in ([], *([call] for call in calls[5:])):
        for one in (base, again):
            for call in upcoming:
                one.add(*call)
        clients, queries = np.arange(8), drawn(7, 8, WIDTH)
        assert torch.equal(base.answer(clients, queries), again.answer(clients, queries))
        mine, other = base.state(), again.state()
        assert mine["counters"] == other["counters"]
        assert all(mine[name].tobytes() == other[name].tobytes() for name in mine if name != "counters")
        assert all(mine[name].dtype == other[name].dtype for name in mine if name != "counters")
    assert again.refused == 1


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    state, other = filled(KnowledgeSettings()).state(), filled(KnowledgeSettings(), seed=70)
    before = other.state()
    with pytest.raises(InputError, match="these have 5 numbers"):
        KnowledgeBase(5, KnowledgeSettings()).restore(state)
    with pytest.raises(InputError, match="go on from an older checkpoint"):
        other.restore({**state, "owner": state["owner"][:-1]})
    np.testing.assert_array_equal(other.state()["vectors"], before["vectors"])


# --- faiss -----------------------------------------------------------------------------------------------------------


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'edgefr\[faiss\]'"):
        KnowledgeBase(3, KnowledgeSettings(index="faiss"))
    base = filled(KnowledgeSettings(replace=False))
    before = base.answer(np.arange(3), drawn(1, 3, WIDTH))
    assert before.any(1).all()
    monkeypatch.setattr(cloud.index, "EXACT_MOST", len(base))
    assert torch.equal(base.answer(np.arange(3), drawn(1, 3, WIDTH)), before)
    monkeypatch.setattr(cloud.index, "EXACT_MOST", len(base) - 1)
    with pytest.raises(InputError, match=r"pip install 'edgefr\[faiss\]'.* or use index exact or a window"):
        base.answer(np.arange(3), drawn(1, 3, WIDTH))


def grouped(seed: int, count: int) -> torch.Tensor:
    """Prototypes around 12 centres."""
    centres, near = drawn(77, 12, 16), keyed.generator(seed, "near").integers(0, 12, count)
    return centres[torch.from_numpy(near)] + 0.1 * drawn(seed, count, 16)


def test_clusters_find_what_comparing_with_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud.search, "SCANNED", 3)
    bases = [
        KnowledgeBase(16, KnowledgeSettings(index=index, window=3, replace=False, top_k=6, fusion="mean"))  # type: ignore[arg-type]
        for index in ("exact", "faiss")
    ]
    restored = KnowledgeBase(16, bases[1].settings)
    clients, queries = np.arange(60), grouped(500, 60)
    for number in range(1, 7):
        for base in bases:
            base.add(number, np.arange(80), grouped(number, 80))
        wanted, found = (base.retrieve(clients, queries) for base in bases)
        assert not (found.clients == torch.from_numpy(clients).unsqueeze(1)).any()
        same = sum(len(set(a) & set(b)) for a, b in zip(wanted.rows.tolist(), found.rows.tolist(), strict=True))
        assert same >= 0.95 * wanted.rows.numel()
        restored.restore(bases[1].state())
        assert torch.equal(restored.answer(clients, queries), bases[1].answer(clients, queries))
    assert bases[1]._clustered == 160  # made of 80, anew of 160, and from then on the window keeps 240
