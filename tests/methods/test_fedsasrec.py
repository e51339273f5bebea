"""FedSASRec: all that a user has to learn from, in its order, is one sequence; the newest items are what counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgefr
from edgefr.data.interactions import Catalogue, Dataset, assemble
from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import load_fleet
from edgefr.simulation.loop import Training
from edgefr.simulation.prepare import prepare
from edgefr.simulation.stages.leave_one_out import Rounds, whole_sequences
from privacy.errors import InputError
from tests.federations import begun as begun_run

USERS, ITEMS, EACH = 30, 24, 9


def ring() -> Dataset:
    """Everybody goes round the same ring of items from a place of its own; one user has too few to be tested."""
    rows = [(user, (user * 5 + place) % ITEMS, 10**9 + place) for user in range(USERS) for place in range(EACH)]
    rows.append((USERS, 3, 10**9))
    user, item, time = np.array(rows).T
    names = [f"i{number}" for number in range(ITEMS)]
    catalogue = Catalogue(np.array(names), names, names, np.zeros(ITEMS, np.uint8))
    people = np.array([f"u{number}" for number in range(USERS + 1)])
    return assemble("ring", people, catalogue, (user, item, time), ("things",), True, {})


def experiment(*overrides: str) -> Experiment:
    values = ("method=fedsasrec", "protocol.negatives=12", "model={dim: 12, length: 5, lr: 0.01}", "local_epochs=4")
    return load_experiment(overrides=[*values, "rounds=12", "clients_per_round=1.0", "evaluation.k=[3]", *overrides])


def begun(*overrides: str) -> Training:
    chosen = experiment(*overrides).model_copy(update={"data": "data frame"})
    prepared = prepare(chosen, None, "cpu", given=ring())
    fleet = load_fleet(Path("devices.yaml"), {"fleet": {"availability": None, "dropout": 0.0, "battery": None}})
    return begun_run(chosen, prepared, fleet)


def test_a_round_is_about_the_newest_items_before_those_held_out() -> None:
    run = begun()
    stage = run.schedule[0]
    assert isinstance(stage, Rounds)
    population, sampler = stage.turn(run, 1)
    assert population.tolist() == list(range(USERS)), "one item has nothing before it"
    drawn = sampler.draw(np.array([2]), "round", 1, 2)
    items = drawn.touched
    assert items[drawn.inputs][0].tolist() == [11, 12, 13, 14, 15], "10 to 16 train, 17 validates, 18 is the test"
    assert items[drawn.positives][0].tolist() == [12, 13, 14, 15, 16]
    assert not {17, 18} & set(items[drawn.positives][0].tolist())
    assert not set(range(10, 17)) & set(items[drawn.negatives].ravel().tolist())


def test_the_order_is_learned_and_the_validation_item_is_the_newest_of_the_test() -> None:
    run = begun()
    run.train()
    found, others = (run.measured.final(stage=s, on="main", ranking="sampled") for s in ("federated", "popularity"))
    assert found["HR@3"] > 0.9 > others["HR@3"] + 0.3
    assert run.final is not None
    split = run.prepared.train_split
    score = run.scorer(run.final, split, split.train)
    before = np.asarray(score(np.array([2]), None))[0]
    assert before[17] > before[18], "without the validation item, what follows is the validation item"


def test_a_sequence_has_no_times_and_nothing_of_what_is_held_out() -> None:
    run = begun()
    split = run.prepared.train_split
    other = replace(split, test=np.roll(split.test, 1), valid=np.roll(split.valid, 1))
    one, two = (whole_sequences(run, task).draw(np.arange(USERS), "round", 3, 2) for task in (split, other))
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ("positives", "negatives", "touched"))
    assert not one.times.any()


def test_negatives_avoid_held_out_items_where_the_protocol_says_so() -> None:
    held = {}
    for avoids in ("true", "false"):
        run = begun(f"protocol.negatives_avoid_held_out={avoids}")
        drawn = whole_sequences(run, run.prepared.train_split).draw(np.array([2]), "round", 1, 40)
        held[avoids] = {17, 18} & set(drawn.touched[drawn.negatives].ravel().tolist())
    assert held == {"true": set(), "false": {17, 18}}


def test_no_bundle_is_made_of_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fedsasrec reads all that a user has as one; leave bundles out"):
        edgefr.simulate(experiment(), "devices.yaml", out=tmp_path / "run", bundles=True)
    with pytest.raises(InputError, match=r"fedsasrec learns from sequence: set protocol\.name="):
        load_experiment(overrides=["method=fedsasrec", "protocol.name=sessions"])
