"""A part of a table is asked for by its rows and backbones."""

import re
from dataclasses import replace

import pytest

from edgefr.studies.reproductions.cells import Chosen
from edgefr.studies.reproductions.exhibits import check_chosen
from edgefr.studies.reproductions.papers import PAPERS
from privacy.errors import InputError


def chosen(paper: str, rows: tuple[str, ...], backbones: tuple[str, ...] = (), *exhibits: str):
    entry = PAPERS[paper]
    ask = replace(entry.ask("released", range(1)), chosen=Chosen(rows, backbones))
    wanted = {name: entry.exhibits[name] for name in exhibits or ("table-2",)}
    data = {name: list(exhibit.data)[:1] for name, exhibit in wanted.items()}
    check_chosen(ask, wanted, data)
    return [
        c.part for name, exhibit in wanted.items() for c in exhibit.cells(ask, data[name][0]) if ask.chosen.has(c.part)
    ]


def test_rows_and_backbones_choose_cells() -> None:
    parts = chosen("f3crec", ("ft", "f3crec"), ("fedmf",))
    assert [(part.row, part.backbone) for part in parts] == [("ft", "fedmf"), ("f3crec", "fedmf")]
    assert {part.backbone for part in chosen("f3crec", ("ft",))} == {"fedmf", "fedncf", "pfedrec"}
    assert [part.row for part in chosen("fcucr", ("sasrec",))] == ["sasrec"]


@pytest.mark.parametrize(
    ("paper", "rows", "backbones", "exhibits", "problem"),
    [
        ("f3crec", ("f3crek",), (), (), "'f3crek'"),
        ("f3crec", (), ("fedmlp",), (), "'fedmlp'"),
        ("f3crec", ("kd",), (), ("table-2", "table-6"), "table-6 has nothing of kd: leave it out"),
        ("f3crec", ("ft",), (), ("figure-3",), "figure-3 is drawn of all of its rows"),
        ("fcucr", ("sasrek",), (), (), "sasrec"),
        ("fcucr", (), ("sasrec",), (), "unknown backbone of table-2"),
    ],
)
def test_what_no_table_has_is_refused(paper, rows, backbones, exhibits, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        chosen(paper, rows, backbones, *exhibits)
