"""A value over every recipe may be a list, or several values by name, in the tables of every paper."""

from __future__ import annotations

from typing import Any

import pytest

from edgefr.experiment.experiment import Change
from edgefr.studies.reproductions.cells import Ask, Cell, label_parts
from edgefr.studies.reproductions.papers import PAPERS

LISTS = {"evaluation.k": [10, 20, 7]}


def asked(paper: str, extra: dict[str, Any]) -> Ask:
    return PAPERS[paper].ask("released", [9], extra, None, None)


def cells(paper: str, exhibit: str, extra: dict[str, Any]) -> list[Cell]:
    entry = PAPERS[paper]
    return list(entry.exhibits[exhibit].cells(asked(paper, extra), entry.exhibits[exhibit].data[0]))


@pytest.mark.parametrize(
    ("paper", "exhibit"),
    [
        *(("f3crec", "table-2"), ("fcucr", "table-2"), ("fedcar", "table-2")),
        *(("transfr", "table-4"), ("transfr", "figure-5")),
    ],
)
def test_a_list_reaches_every_experiment_and_names_its_folder(paper: str, exhibit: str) -> None:
    found, plain = cells(paper, exhibit, LISTS), cells(paper, exhibit, {})
    assert all(cell.experiment(9).evaluation.k == [10, 20, 7] for cell in found)
    assert len({cell.folder(9) for cell in found}) == len(set(found)) == len(set(plain))
    assert not {cell.folder(9) for cell in found} & {cell.folder(9) for cell in plain}
    assert all("_k=10-20-7" in cell.label and cell.label.isprintable() for cell in found)
    assert not {*"[]{}, '"} & set("".join(cell.label for cell in found))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("rounds=2", "rounds=2"),
        ("model.lr=0.00001", "lr=1e-05"),
        ("model.keep=-0.5", "keep=-0.5"),
        ("model.head=null", "head=None"),
        ("model.adapter=[128, 32]", "adapter=128-32"),
        ("fleet={dropout: 0.0}", "fleet=dropout-0.0"),
    ],
)
def test_what_differs_is_part_of_a_folders_name(text: str, name: str) -> None:
    change = Change.parse(text)
    assert label_parts([(change.field, change.value)]) == [name]
