"""The committed search spaces: every one makes experiments over the shared protocol, and all are searched alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefr.experiment.experiment import load_experiment
from edgefr.experiment.method import METHODS
from edgefr.studies.reproductions.fcucr.recipes import SESSION_BASED
from edgefr.studies.reproductions.fcucr.recipes import FCUCRCell as SessionCell
from edgefr.studies.reproductions.fedcar.recipes import RECIPES, ROWS, FedCARCell
from edgefr.studies.reproductions.fedcar.tables import FEDCAR, TABLE_2, TABLE_3
from edgefr.studies.reproductions.leaderboard.tables import LISTED
from edgefr.studies.tuning.rules import Rules
from edgefr.studies.tuning.space import Base, Space

FOLDER = Path("experiments/spaces")
PROTOCOL, SESSIONS = Path("experiments/fedcar/protocol.yaml"), Path("experiments/fcucr/protocol.yaml")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
ALONE = {"transfr"}
"""What is in no table of FedCAR's: it can be searched on anybody's data."""
UNSEARCHED = {
    **dict.fromkeys(("f3crec", "fcucr", "fedsasrec"), "tuned by its paper's values"),
    **dict.fromkeys(("sasrec", "gru4rec", "tisasrec"), "encoders inside fcucr, with its values"),
    **dict.fromkeys(("cmf", "emcdr", "feddcsr", "pmf"), "central references with their papers' values"),
}
"""Methods without a space, and why."""
SHARED = {"min_interactions": 6, "few": "drop"}


@pytest.mark.parametrize("name", NAMES)
def test_a_space_makes_experiments_at_both_ends_of_all_its_ranges(name: str) -> None:
    space = Space.read(FOLDER, name)
    shared = load_experiment(PROTOCOL, ["method=fedmf"])
    for experiment in Base(PROTOCOL, (), Rules().laid, "ml-100k").ends(space):
        assert experiment.protocol == shared.protocol
        assert experiment.data == "ml-100k"
        assert experiment.model_dump()["protocol"].items() >= SHARED.items()
        assert (experiment.batch_size, experiment.negatives) == (256, 4)
        assert experiment.model.get("epochs", experiment.rounds) == 100 or name == "ease"
        assert experiment.model.get("dim", 32) == 32
        assert experiment.evaluation.curve_ranking == "full"
        assert experiment.evaluation.every == (1 if name == "ease" else 5), "a closed form has one epoch"
        assert experiment.evaluation.keep == ("best" if experiment.row.central is None else None), "which nobody reads"


@pytest.mark.parametrize("name", SESSION_BASED)
def test_a_space_of_sessions_makes_experiments_that_fcucrs_table_is_made_of(name: str) -> None:
    space = Space.read(FOLDER / "sessions", name)
    row = SessionCell("xing", name, fidelity="released").experiment(0)
    for experiment in Base(SESSIONS, (), Rules().laid, "xing").ends(space):
        assert (experiment.method, experiment.protocol) == (name, row.protocol)
        assert (experiment.rounds, experiment.local_epochs, experiment.negatives) == (40, 4, 1)
        assert experiment.aggregation == row.aggregation
        assert {f for f, value in experiment.model.items() if value != row.model[f]} == {
            r.field.removeprefix("model.") for r in space.ranges
        }


def test_every_method_has_a_space_or_a_reason_for_none() -> None:
    files = [*FOLDER.glob("*.yaml"), *(FOLDER / "sessions").glob("*.yaml")]
    searched = {str(Space.read(path.parent, path.stem).fixed["method"]) for path in files}
    assert searched | UNSEARCHED.keys() == METHODS.keys()
    assert not searched & UNSEARCHED.keys()


def test_every_method_is_searched_over_as_many_fields() -> None:
    assert {name: len(Space.read(FOLDER, name).ranges) for name in NAMES if name != "ease"} == {
        name: 3 for name in NAMES if name != "ease"
    }


def test_every_row_of_every_table_is_searched_by_a_space_or_has_its_recipe() -> None:
    assert {*TABLE_2, *TABLE_3, *LISTED} == {*ROWS}, "no row is in no table"
    for row in ROWS.values():
        if row.judged:
            assert Space.read(FOLDER, row.name).fixed["method"] in METHODS
        else:
            assert all(
                FedCARCell(data, row.name).experiment(0).fidelity == "released"
                for data in FEDCAR.exhibits["table-2"].data
            ), row.name
    assert {*NAMES} - ALONE == {row.name for row in ROWS.values() if row.judged}, "and no space is of nothing"


def test_committed_recipes_are_rows_and_searched_with_other_seeds_than_reported() -> None:
    found = sorted(RECIPES.glob("*/*.yaml"))
    assert found
    for path in found:
        cell = FedCARCell(path.parent.name, path.stem)
        experiment = cell.experiment(0)
        assert experiment.data == path.parent.name
        assert path.with_suffix(".csv").is_file() == ROWS[path.stem].judged, "all trials lie beside what was searched"
        assert experiment.fidelity == ("ours" if ROWS[path.stem].judged else "released")
