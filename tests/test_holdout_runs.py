"""Runs over a hold-out learn nothing of what is held out, and go from a file to a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.data.interactions import Catalogue, Dataset, assemble, item_text
from edgefr.data.prepared_data import Prepared
from edgefr.data.splits.holdout import Holdout
from edgefr.methods.central.references import Draws, pooled
from edgefr.serving.serve import serve
from edgefr.simulation.protocols.protocol import protocol_of
from edgefr.simulation.runs.run import Run
from edgefr.studies.audits.attack_run import audit_run
from privacy.errors import InputError
from tests.contract.test_held_out import ran

USERS, USED, SPARE = 24, 60, 20
SMALL = ("rounds=2", "clients_per_round=1.0", "evaluation.k=[5]", "engine.shard_size=7")
TEXT = ("method=transfr", "encoder.kind=tfidf", "encoder.width=16", "model.adapter=[12,6]", "model.head=[6]", *SMALL)
METHODS = {
    "fedmf": ("method=fedmf", "model.dim=4", *SMALL),
    "transfr": TEXT,
    "fedsasrec": ("method=fedsasrec", "model.dim=4", "model.length=5", *SMALL),
    "mf": ("method=mf", "model.dim=4", "model.epochs=1", "evaluation.k=[5]"),
    "ease": ("method=ease", "evaluation.k=[5]"),
}


def made() -> Dataset:
    """Return users who like things of a colour, at one clock, with parts; the last `SPARE` items are nobody's."""
    draw, rows = np.random.default_rng(5), []
    for user in range(USERS):
        liked = np.where(np.arange(USED) % 3 == user % 3, 6.0, 1.0)
        items = draw.choice(USED, draw.integers(8, 16), replace=False, p=liked / liked.sum())
        rows += [(user, int(item), 1_600_000_000 + 100 * place) for place, item in enumerate(items)]
    names = [f"{('red', 'green', 'blue')[item % 3]} thing {item}" for item in range(USED + SPARE)]
    texts = [item_text(name.split()[0], name) for name in names]
    ids = np.array([f"i{item}" for item in range(USED + SPARE)])
    catalogue = Catalogue(ids, names, texts, np.zeros(USED + SPARE, np.uint8))
    users, (user, item, time) = np.array([f"u{user}" for user in range(USERS)]), np.array(rows).T
    found = assemble("made", users, catalogue, (user, item, time), ("things",), True, {})
    from_the_end = found.offsets[1:][found.user] - 1 - np.arange(len(found.user))
    return replace(found, part=np.where(from_the_end < 2, 2, np.where(from_the_end < 4, 1, 0)).astype(np.uint8))


def with_others_held_out(dataset: Dataset, by: str) -> Dataset:
    """Return the data set with other items in place of all that is held out: nobody's, or another cold one."""
    (split, _), item = Holdout(by=by).apply(dataset, 0), dataset.item.copy()
    if by == "cold-items":
        for which in ("valid", "test"):
            some = np.unique(split.lists(which).values)
            item[np.isin(dataset.item, some)] = np.roll(some, 1)[np.searchsorted(some, item[np.isin(item, some)])]
        return replace(dataset, item=item)
    width = len(dataset.catalogue)
    kept = np.isin(dataset.user * width + dataset.item, split.train.rows * width + split.train.values)
    item[~kept] = USED + np.arange((~kept).sum()) % SPARE
    return replace(dataset, item=item)


LEAKS = [(by, name) for by in ("ratio", "time", "column") for name in METHODS] + [("cold-items", "transfr")]


@pytest.mark.parametrize(("by", "name"), LEAKS)
def test_what_is_held_out_does_not_leak(by: str, name: str, tmp_path: Path) -> None:
    central = name in ("mf", "ease")  # whose learning validation ends in any case
    last = [] if central else ["evaluation.keep=last"]  # which round is best is what validation items are for
    values = [*METHODS[name], *last, "protocol.name=holdout", f"protocol.by={by}"]
    one, summary = ran(values, made(), tmp_path / "one")
    two, other = ran(values, with_others_held_out(made(), by), tmp_path / "two")
    assert one.keys() == two.keys()
    assert [key for key in one if one[key] != two[key]] == []
    assert (summary["metrics"], summary["references"]) != (other["metrics"], other["references"]), (
        "others are asked for"
    )


def run(folder: Path, *overrides: str, bundles: bool = False) -> dict[str, Any]:
    experiment = edgefr.load_experiment(overrides=["protocol.name=holdout", *overrides])
    edgefr.simulate(experiment, data=made(), out=folder, bundles=bundles, page=False)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.mark.parametrize(("by", "method"), [("time", "fedmf"), ("cold-items", "transfr")])
def test_no_negative_is_cold_or_of_a_time_to_come(by: str, method: str, tmp_path: Path, monkeypatch: Any) -> None:
    from edgefr.simulation.stages import stage

    pools, usual = [], stage.Sampler
    monkeypatch.setattr(
        stage, "Sampler", lambda own, pool, *rest, **more: pools.append(pool) or usual(own, pool, *rest, **more)
    )
    run(tmp_path / "run", *METHODS[method], f"protocol.by={by}")
    split, _ = Holdout(by=by).apply(made(), 0)
    later = np.setdiff1d(np.arange(USED + SPARE), split.drawn)
    assert pools
    assert len(later)
    pools.append(pooled(Draws(0, 8, 4), Prepared(made(), {"main": split}, "")).pool)
    for pool in pools:
        assert not np.isin(pool, later).any()


def test_rows_of_items_to_come_stay_as_they_were(tmp_path: Path) -> None:
    run(tmp_path / "none", *METHODS["fedmf"], "rounds=0", "protocol.by=time")
    run(tmp_path / "some", *METHODS["fedmf"], "protocol.by=time")
    before, after = (Run(tmp_path / name).read_tensors("model")["shared.item"].numpy() for name in ("none", "some"))
    split, _ = Holdout(by="time").apply(made(), 0)
    moved = np.flatnonzero((before != after).any(axis=1))
    assert len(moved) > 0
    assert np.isin(moved, split.drawn).all()


def test_a_cold_item_is_found_by_its_text(tmp_path: Path) -> None:
    found = run(tmp_path / "run", *TEXT, "rounds=12", "protocol.by=cold-items", "protocol.test=0.3")
    assert found["ranked"] == "full ranking"
    assert set(found["references"]["main"]) == {"before any round", "chance", "text mean", "TF-IDF mean"}, (
        "popularity would tie all"
    )
    assert found["references"]["main"]["text mean"]["NDCG@5"] > found["references"]["main"]["chance"]["NDCG@5"]


def test_texts_of_cold_items_can_be_left_out_of_the_reader(tmp_path: Path) -> None:
    split, _ = Holdout(by="cold-items").apply(made(), 0)
    for fit, texts in (("all", USED + SPARE), ("source", USED + SPARE - len(split.pool))):
        found = run(tmp_path / fit, *TEXT, f"encoder.fit={fit}", "protocol.by=cold-items")
        assert found["encoder"]["texts"] == texts


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("method=fedmf", "protocol.by=cold-items"), "fedmf knows items by number, and nothing is learned of a cold"),
        (("method=ease", "protocol.by=cold-items"), "use method=transfr, or another protocol.by"),
        (("method=fedmf", "protocol.by=column", "protocol.test=0.2"), "nothing reads it where by is column"),
        (("method=fedmf", "protocol.test=0.5"), "less than or equal to 0.4"),
        (("method=fedmf", "protocol.by=always"), "protocol.by"),
        (("method=fedmf", "protocol.negatives=50"), "negatives belongs to"),
        (("method=fedmf", "evaluation.curve_ranking=full"), "protocols that hold out one item of a user"),
        (("method=fedmf", "evaluation.full_ranking_users=0"), "held-out lists are tested by full ranking"),
        (("method=fedmf", "attackers={kind: fedrecattack, share: 0.2}"), "protocol leave-one-out"),
        (("method=sasrec",), "sasrec learns from sessions: set protocol.name=sessions"),
        (("method=f3crec", "strategy=kd"), "kd keeps knowledge between blocks: set protocol.name=blocks"),
        (("method=cmf",), "cmf learns from two domains: set protocol.name=cross-domain"),
        (("method=transfr", "model.adapter_fit=source"), "all items are learned from where protocol.by is ratio"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(InputError, match=why):
        edgefr.load_experiment(overrides=["protocol.name=holdout", *overrides])


def test_what_draws_apart_is_neither_served_nor_audited(tmp_path: Path) -> None:
    assert run(tmp_path / "run", *METHODS["fedmf"], "protocol.by=time", bundles=True)["bundles"]
    done = Run.open(tmp_path / "run")
    assert protocol_of(done.experiment).unserved(done.experiment)
    usual = edgefr.load_experiment(overrides=["protocol.name=holdout", "method=fedmf"])
    assert protocol_of(usual).unserved(usual) is None
    with pytest.raises(InputError, match="can learn; a device draws negatives from all that it recommends"):
        serve(done, None, 1)
    with pytest.raises(InputError, match=r"negatives are drawn from all that is recommended.*protocol.by=ratio"):
        audit_run(done)
