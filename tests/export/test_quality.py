"""What a variant keeps, against loops over every user and item."""

import numpy as np
import pytest
import torch

from export.model import HeldOut, Names, TrainedModel
from export.quality import Judge, Quality
from export.shared_files import item_tables
from privacy import keyed
from tests.contract.programs import program
from tests.export import worlds

SEED = 3
HELD = HeldOut(np.array([0, 1, 4, 7]), np.array([5, 9, 59, 30]))


NAMES = Names([f"u{n}" for n in range(worlds.USERS)], *([f"i{n}" for n in range(worlds.ITEMS)],) * 2)


def judge(kind: str, offered: list[int] | None = None) -> Judge:
    made, shared, private = worlds.trained(kind)
    history = worlds.column("history") if made.needs_history else None
    seen = worlds.column("seen")
    model = TrainedModel(made, shared, private, NAMES, seen, history=history, pool=offered, held_out=HELD)
    return Judge(model, item_tables(model), SEED)


def noisy(table: torch.Tensor, share: float) -> np.ndarray:
    return (table + share * worlds.weights("noise", tuple(table.shape))).numpy()


def open_items(user: int, target: int) -> list[int]:
    seen = set(worlds.column("seen").of(user).tolist())
    return [item for item in range(worlds.ITEMS) if item not in seen or item == target]


def best(scores: np.ndarray, items: list[int]) -> set[int]:
    return set(sorted(items, key=lambda item: (-scores[item], item))[:10])


@pytest.mark.parametrize(("kind", "table", "share"), [("fedmf", "item", 0.5), ("mean", "text", 0.3)])
def test_overlap_and_hits_are_those_of_plain_loops(kind: str, table: str, share: float) -> None:
    made, shared, private = worlds.trained(kind)
    whole = shared[table] if table in shared else made.frozen[table]
    other = noisy(whole, share)
    got = judge(kind).measure({table: other})
    shares, hits = [], {"whole": [], "other": []}
    for user, target in zip(HELD.users.tolist(), HELD.items.tolist(), strict=True):
        mine = {name: tensor[user] for name, tensor in private.items()}
        past = worlds.column("history").of(user)
        scores = {"whole": worlds.literal(made, shared | mine, past)}
        if table in shared:
            scores["other"] = worlds.literal(made, shared | {table: torch.from_numpy(other)} | mine, past)
        else:
            kept, made.frozen = made.frozen, made.frozen | {table: torch.from_numpy(other)}
            scores["other"] = worlds.literal(made, shared | mine, past)
            made.frozen = kept
        items = open_items(user, target)
        shares.append(len(best(scores["whole"], items) & best(scores["other"], items)) / 10)
        rest = np.array([item for item in items if item != target])
        rivals = keyed.choose(keyed.key(SEED, "quality negatives", user), rest, 99)
        for name, values in scores.items():
            hits[name].append(sum(values[rival] >= values[target] for rival in rivals.tolist()) < 10)
    assert got.users == 4
    assert got.overlap == pytest.approx(np.mean(shares))
    assert 0 < got.overlap < 1
    assert got.hit_rate == np.mean(hits["other"])
    expected = np.mean(hits["other"]) / np.mean(hits["whole"]) if any(hits["whole"]) else 1.0
    assert got.kept == pytest.approx(expected)


def test_only_offered_items_and_the_held_out_ones_are_looked_at() -> None:
    offered = list(range(40))
    looked = judge("fedmf", offered=offered)
    assert looked.items.tolist() == [*range(40), 59]
    _, shared, _ = worlds.trained("fedmf")
    table = shared["item"].numpy().copy()
    table[45:59] += 9.0  # nobody looks there
    assert looked.measure({"item": table}).overlap == 1.0


def test_large_catalogues_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.quality.ITEMS", 20)
    monkeypatch.setattr("export.quality.USERS", 2)
    looked = judge("fedmf")
    assert 20 <= len(looked.items) <= 22
    assert looked.measure({}).users == 2


def test_the_least_of_both_shares_counts_and_luck_does_not() -> None:
    assert Quality(9, 0.9, 0.5, 1.2).least == 0.9
    assert Quality(9, 0.99, 0.5, 0.7).least == 0.7
    assert Quality(9, 1.0, 0.5, 1.1).least == 1.0


@pytest.mark.parametrize(("kind", "table"), [("fedmf", "item"), ("mean", "text"), ("transfr", "text")])
def test_the_same_table_keeps_everything(kind: str, table: str) -> None:
    made, shared, _ = worlds.trained(kind)
    whole = shared[table] if table in shared else made.frozen[table]
    same = judge(kind).measure({table: whole.numpy()})
    assert (same.overlap, same.kept, same.least) == (1.0, 1.0, 1.0)
    assert judge(kind).measure({}) == same


def test_a_table_turned_round_keeps_next_to_nothing() -> None:
    _, shared, _ = worlds.trained("fedmf")
    assert judge("fedmf").measure({"item": -shared["item"].numpy()}).overlap < 0.1


def test_clients_that_read_texts_are_judged_by_their_finished_vectors() -> None:
    made = program("transfr lora")
    shared, private = made.init_shared(0), made.init_private(0, torch.arange(worlds.USERS))
    nobody = worlds.Column(np.empty(0, np.int32), np.zeros(worlds.USERS + 1, np.int64))
    held_out = HeldOut(np.arange(4), np.arange(4))
    model = TrainedModel(made, shared, private, NAMES, nobody, history=nobody, held_out=held_out)
    tables = item_tables(model)
    assert set(tables) == {"tokens", "vectors"}
    looked = Judge(model, tables, SEED)
    assert looked.measure({}).overlap == 1.0
    turned = -tables["vectors"]
    assert looked.measure({"vectors": turned}).overlap < 1.0
