"""The list for somebody without history is counted where nobody was promised anything, else of the model alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edge.manifest import Promise
from edge.ragged import Ragged
from edgefr.experiment.experiment import load_experiment
from edgefr.fleet.spec import Rounds
from edgefr.simulation.bundles import counted, promise_of
from edgefr.simulation.resolve import Releases
from export.bundle import Provenance
from export.cold_start import start_list
from export.model import Names, TrainedModel
from tests.export import worlds

HAD = [[5, 1, 1], [5, 2], [5, 1, 2, 3], [2, 7], [7]]
"""By so many people: 5 and 2 by three, 1 and 7 by two, 3 by one."""
PROMISE = Promise(
    trust="local",
    mechanism="gaussian",
    adjacency="replace-one",
    norm="l2",
    clip=1.0,
    multiplier=2.0,
    steps=0,
    epsilon=8.0,
    delta=1e-5,
    rounds=2,
    cohort=1,
)


def model(kind: str, had: list[list[int]] = HAD, **others: object) -> TrainedModel:
    program, shared, private = worlds.trained(kind)
    users = {name: value[: len(had)] for name, value in private.items()}
    names = Names([f"u{n}" for n in range(len(had))], [f"i{n}" for n in range(worlds.ITEMS)], worlds.titles())
    rows = Ragged.from_lists(had)
    made = TrainedModel(program, shared, users, names, rows, history=rows if program.needs_history else None)
    return replace(made, **others)


def test_popular_is_what_most_people_had() -> None:
    found = start_list(model("fedmf"), 0, counted=True)
    assert found is not None
    assert (found.basis, found.items.tolist()) == ("popular", [2, 5, 1, 7])  # ties by number, and nobody's alone
    some = start_list(model("fedmf", pool=[1, 3, 5]), 0, counted=True)
    assert some is not None
    assert some.items.tolist() == [5, 1]


def test_a_list_is_short() -> None:
    everything = [list(range(150))] * 2
    wide = replace(model("fedmf", everything), names=Names(["a", "b"], *([f"i{n}" for n in range(150)],) * 2))
    found = start_list(wide, 0, counted=True)
    assert found is not None
    assert found.items.tolist() == list(range(100))


@pytest.mark.parametrize("kind", ["mean", "pfedrec", "fedncf"])
def test_the_mean_is_what_the_model_scores_for_nobody(kind: str) -> None:
    """By the batch that simulation uses: drawn vectors are 0, and a user of what it had has had everything."""
    made = model(kind)
    first = {name: value[0] for name, value in made.program.init_private(0, torch.arange(1)).items()}
    if kind == "fedncf":
        first["user"] = torch.zeros_like(first["user"])
    scores = worlds.literal(made.program, {**made.shared, **first}, np.arange(worlds.ITEMS))
    found = start_list(made, 0, counted=False)
    assert found is not None
    assert found.basis == "mean"
    assert found.items.tolist() == np.argsort(-scores, kind="stable").tolist()
    assert np.ptp(scores) > 0.01


@pytest.mark.parametrize("kind", ["fedmf", "hash"])
def test_a_drawn_vector_orders_nothing(kind: str) -> None:
    assert start_list(model(kind), 0, counted=False) is None
    assert start_list(model(kind, [[3], [4]]), 0, counted=True) is None, "what one person alone had is in no list"


def test_where_nothing_can_be_counted_the_model_is_asked() -> None:
    found = start_list(model("pfedrec", [[], []]), 0, counted=True)
    assert found is not None
    assert found.basis == "mean"


def exported(out: Path, promise: Promise | None, had: list[list[int]]) -> Path:
    """A bundle of the same shared tensors, whoever had what: the people and their private tensors are others."""
    made = worlds.arguments("mean", out)
    rows, private = Ragged.from_lists(had), {n: v[: len(had)] + len(had) for n, v in made["private"].items()}
    people = {"users": [f"{len(had)}-{n}" for n in range(len(had))], "seen": rows, "history": rows}
    one = {"classes": {"laptop": worlds.CLASSES["laptop"]}, "users_of": {}, "with_users": False}
    worlds.export(**made | one | people | {"private": private, "promise": promise, "counted": promise is None})
    return out / "laptop"


def test_a_promised_bundle_is_the_same_whoever_had_what(tmp_path: Path) -> None:
    others = [[9, 8], [9, 8], [8, 30]]
    promised = [exported(tmp_path / f"promised-{len(had)}", PROMISE, had) for had in (HAD, others)]
    files = [{p.relative_to(b): p.read_bytes() for p in b.rglob("*") if p.is_file()} for b in promised]
    assert files[0] == files[1]
    assert json.loads((promised[0] / "config.json").read_text())["start"]["basis"] == "mean"
    told = [np.load(exported(tmp_path / f"{len(had)}", None, had) / "index" / "start.npy") for had in (HAD, others)]
    assert [items.tolist() for items in told] == [[2, 5, 1, 7], [8, 9]]


def test_counts_of_what_something_was_promised_of_are_a_fault() -> None:
    with pytest.raises(ValueError, match="not counted where something is promised of it"):
        Provenance(worlds.CREATED, promise=PROMISE, counted=True)


@pytest.mark.parametrize(
    ("overrides", "allowed"),
    [
        ([], True),
        (["privacy.clip=1"], True),
        (["privacy.mechanism=gaussian", "privacy.clip=1", "privacy.epsilon=8"], False),
        (["privacy.mechanism=gaussian", "privacy.trust=local", "privacy.clip=1", "privacy.epsilon=8"], False),
        (["privacy.mechanism=laplace", "privacy.scale=0.1"], False),  # which comes to no promise
        (["privacy.at_least=5"], False),
        (["privacy.examples={clip: 1, sigma: 1}"], False),
    ],
)
def test_people_are_counted_where_nothing_was_asked_for_that_hides_them(overrides: list[str], allowed: bool) -> None:
    experiment = load_experiment(overrides=["method=fedmf", *overrides])
    assert counted(experiment) == allowed
    promise = promise_of(Releases.of(experiment, Rounds.model_validate({}), 100).plan(experiment), experiment.privacy)
    assert not (allowed and promise is not None)
