"""The order of a continual run: what is carried, what starts anew, what the server mixes in, when a block ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cloud.rules.temporal_mean import temporal_mean
from edgefr.data.splits.blocks import Block
from edgefr.engine.work import MEMORY
from edgefr.experiment.continual import STRATEGIES
from edgefr.metrics.continual import MASKS
from edgefr.simulation.evaluation.measure import MeasurementPlace
from edgefr.simulation.evaluation.ranking import Scorer
from edgefr.studies.reproductions.runs import base_of
from tests.closeness import assert_same
from tests.continual.runs import begun, experiment, read_by


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_learns_all_blocks(strategy: str) -> None:
    run = begun(f"strategy={strategy}", "rounds=2")
    run.train()
    assert [done["name"] for done in run.done] == ["D0", "D1", "D2", "D3"]
    matrix = run.measured.matrix("federated", ["D0", "D1", "D2", "D3"], "NDCG@20")
    assert [len(row) for row in matrix] == [1, 2, 3, 4]
    assert all(math.isfinite(value) for row in matrix for value in row)
    remembers = STRATEGIES[strategy].remembers != "nothing"
    assert any(name.startswith(MEMORY) for name in run.federation.private) == remembers


def test_no_model_reads_what_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After D3 the held-out items of D0 are in everybody's past: a mean over that past found them again."""
    run, read, told = begun("rounds=1"), [], 0
    scorer, lists = run.scorer, run.measured.lists
    monkeypatch.setattr(run, "scorer", lambda *given: read.append(given[-1]) or scorer(*given))

    def asked(of: MeasurementPlace, after: Block, on: Block, score: Scorer) -> None:
        nonlocal told
        if of.stage == "federated":
            held, past = (set(zip(t.rows.tolist(), t.values.tolist(), strict=True)) for t in (on.test, read[-1]))
            assert on.number == after.number or not held & past
            told += on.number < after.number and bool(past)
        lists(of, after, on, score)

    monkeypatch.setattr(run.measured, "lists", asked)
    run.train()
    assert told == 6


def test_strategies_differ_only_from_the_second_block_on() -> None:
    states = []
    for strategy in STRATEGIES:
        run = begun(f"strategy={strategy}", "rounds=2")
        run.learn()
        states.append(run.best.flat())
    assert all(same(states[0], other) for other in states[1:])
    bases = {base_of(experiment(f"strategy={s}", "rounds=2")).model_dump_json() for s in STRATEGIES}
    assert len(bases) == 1
    assert base_of(experiment("model.lr=0.5")) != base_of(experiment("model.lr=0.6"))


@pytest.mark.parametrize("strategy", ["kd", "f3crec", "reg", "spp", "rlp2"])
def test_strategies_change_what_is_learned(strategy: str) -> None:
    ends = []
    for name in ("ft", strategy):
        run = begun(
            f"strategy={name}",
            "rounds=3",
            *read_by(name, "continual.kd_weight=1", "continual.reg_weight=1", "continual.proxy_rate=0.5"),
        )
        run.train()
        ends.append(run.best.shared["item"])
    assert not torch.equal(*ends)


@pytest.mark.parametrize("carry", ["best", "last"])
def test_a_block_hands_on_its_best_or_its_last_round(carry: str) -> None:
    steep = ["model.lr=40", "rounds=30", "continual.patience=3"]  # learned so fast that the best is not the last round
    run = begun("strategy=ft", f"continual.carry={carry}", *steep)
    run.train_stage()
    best = {name: value.clone() for name, value in run.best.flat().items()}
    last = run.federation.shared["item"].clone()
    assert run.done[0]["best_round"] < run.done[0]["round"]
    old = torch.from_numpy(run.prepared.blocks[0].pool.astype(np.int64))
    run.engage()
    wanted = best["shared.item"] if carry == "best" else last
    assert torch.equal(run.federation.shared["item"][old], wanted[old])
    table, known = run.federation.previous["item"]
    assert torch.equal(table, best["shared.item"]), "the previous table is that of the best round in any case"
    assert known.nonzero().squeeze(1).tolist() == old.tolist()


def test_new_items_and_reset_private_tensors_start_from_their_first_values() -> None:
    many = ["data_options.items=1000", "data_options.users=40"]  # so many that some appear late
    noise = ["privacy.mechanism=laplace", "privacy.scale=0.1"]
    run = begun("strategy=ft", "continual.reset_private=true", *noise, *many)
    first = run.federation.shared["item"].clone()
    users = run.federation.private["user"].clone()
    run.train_stage()
    new = np.setdiff1d(run.prepared.blocks[1].pool, run.prepared.blocks[0].pool).astype(np.int64)
    assert len(new), "the data has no new items, so nothing is tested"
    assert not torch.equal(run.federation.shared["item"][new], first[new]), "noise reaches every row"
    learned = run.best.private["user"].clone()
    run.engage()
    assert torch.equal(run.federation.shared["item"][new], first[new])
    here = np.isin(np.arange(len(users)), run.prepared.blocks[1].users("train"))
    assert 0 < here.sum() < len(here), "everybody is there, or nobody, so nothing is tested"
    assert torch.equal(run.federation.private["user"][here], users[here])
    assert torch.equal(run.federation.private["user"][~here], learned[~here]), "whoever is away keeps what it has"


def test_where_something_is_promised_a_block_does_not_tell_which_items_anybody_has() -> None:
    """Every row of every table carries noise into the next block; none is back at its public first value."""
    noise = ["privacy.mechanism=gaussian", "privacy.clip=0.5", "privacy.sigma=1", "aggregation.weights=uniform"]
    run = begun("strategy=f3crec", *noise, "data_options.items=1000", "data_options.users=40")
    first = run.plain_program().init_shared(run.experiment.seed)["item"]
    run.train_stage()
    run.engage()
    assert bool((run.federation.shared["item"] != first).any(1).all())
    _, known = run.federation.previous["item"]
    assert bool(known.all()), "rows that are not pulled back would tell too"


def test_released_and_paper_fidelity_resolve() -> None:
    kept = {"carry": "best", "reset_private": False, "redraw": "round", "labels": "kept", "item_rate": "catalogue"}
    for fidelity in ("ours", "paper"):
        assert experiment(f"fidelity={fidelity}").over_blocks.model_dump(include=set(kept)) == kept
    released = experiment("fidelity=released").over_blocks
    assert (released.carry, released.reset_private) == ("last", False)
    assert (released.redraw, released.labels, released.item_rate) == ("step", "anew", "present")
    other = experiment("fidelity=released", "backbone=pfedrec")
    assert (other.over_blocks.carry, other.over_blocks.reset_private) == ("best", True)
    assert experiment("fidelity=released", "continual.carry=best").over_blocks.carry == "best"
    assert other.model["turns"] == "batches"
    assert experiment("backbone=pfedrec").model["turns"] == "phases"
    starts = {
        kind: experiment(f"fidelity={kind}", "backbone=fedncf").model["user_start"] for kind in ("released", "paper")
    }
    assert starts == {"released": "same", "paper": "own"}


def test_the_server_mixes_the_previous_block_in_from_the_second_block_on() -> None:
    mean, mixed = begun("strategy=ft", "rounds=1"), begun("strategy=f3crec-no-client", "rounds=1")
    for run in (mean, mixed):
        run.train_stage()
        run.learn()
    table, known = mixed.federation.previous["item"]
    expected = temporal_mean(mean.federation.shared["item"], table, known, 0.9, True)  # F3CRec Eq. 13
    assert_same(mixed.federation.shared["item"], expected)
    assert not torch.equal(expected, mean.federation.shared["item"])


def test_a_block_ends_when_validation_stops_improving() -> None:
    run = begun("strategy=ft", "rounds=30", "continual.patience=3", "model.lr=40")
    run.train_stage()
    done = run.done[0]
    assert done["round"] == done["best_round"] + 3 < 30
    curve = [r["value"] for r in run.measured.rows if r["which"] == "valid" and r["metric"] == "NDCG@20"]
    assert np.argmax(curve[1:]) + 1 == done["best_round"]  # the curve begins before any round
    assert done["best"] == max(curve)


def test_masks_hide_what_they_say() -> None:
    run = begun("strategy=ft", "rounds=1")
    run.train_stage()
    after, on = run.prepared.blocks[1], run.prepared.blocks[0]
    asked: list[np.ndarray] = []

    def favourites(users: np.ndarray, items: None) -> np.ndarray:
        """Everything the user had in D0 scores high, so a mask over it makes room for the targets."""
        asked.append(users)
        out = np.zeros((len(users), len(after.pool)), np.float32)
        own = after.past.take(users)
        out[own.rows, np.searchsorted(after.pool, own.values)] = 1.0
        return out

    run.measured.lists(MeasurementPlace("favourites", "D1"), after, on, favourites)
    values = [run.measured.final(stage="favourites", after="D1", on="D0", mask=mask)["NDCG@20"] for mask in MASKS]
    assert values[1] == pytest.approx(1.0), "with all past items but the targets hidden, the targets come first"
    assert values[0] < values[1]
    assert len(asked) == 2
