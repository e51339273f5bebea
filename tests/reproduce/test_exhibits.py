"""What a page says about how it was made, which fleet its runs may ask for, and a part of a table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefr.experiment.experiment import Experiment, load_experiment
from edgefr.fleet import load_fleet
from edgefr.studies.reproductions.cells import Ask, Cell, FinishedRuns, Values
from edgefr.studies.reproductions.exhibits import about, check_chosen
from edgefr.studies.reproductions.papers import PAPERS
from edgefr.studies.reproductions.runs import Job, JobSetting, ideal_fleet, run_all
from privacy.errors import InputError

FLEET = load_fleet(Path("devices.yaml"), ideal_fleet())


class Row(Cell):
    """A cell that is nothing but a name on a data set."""

    @property
    def title(self) -> str:
        return self.row.upper()

    @property
    def values(self) -> Values:
        return {"method": "fedmf"}

    def experiment(self, seed: int) -> Experiment:
        return load_experiment(overrides=["method=fedmf"], seed=seed)


ASK = Ask(Row, "released", (0, 1))


def protocols(said: dict[Row, str]) -> list[str]:
    summaries = {row: {seed: {"protocol": text, "versions": {}} for seed in (0, 1)} for row, text in said.items()}
    return [line for line in about(ASK, FinishedRuns(summaries), list(said)) if line.startswith("protocol")]


def test_a_protocol_that_all_rows_share_is_one_line_without_names() -> None:
    said = {Row("demo", "a"): "99 negatives", Row("demo", "b"): "99 negatives", Row("xing", "c"): "all items"}
    assert protocols(said) == ["protocol, demo: 99 negatives", "protocol, xing: all items"]


@pytest.mark.parametrize("leaking", ["a", "b", "c"])  # the first row, one between, and the last
def test_no_row_speaks_for_another(leaking: str) -> None:
    leak = "99 negatives; training knew which items are held out"
    lines = protocols({Row("demo", row): leak if row == leaking else "99 negatives" for row in "abc"})
    others = ", ".join(f"demo_{row}" for row in "abc" if row != leaking)
    assert sorted(lines) == sorted([f"protocol, demo_{leaking}: {leak}", f"protocol, {others}: 99 negatives"])


def asked(**fleet: Any) -> Experiment:
    return load_experiment(overrides=["method=fedmf", "rounds=1"]).model_copy(update={"fleet": fleet})


@pytest.mark.parametrize(
    ("fleet", "named"),
    [
        ({"dropout": 0.9}, "fleet.dropout"),
        ({"dropout": 0.0, "rounds": {"over_select": 1.0, "min_fraction": 0.5}}, "fleet.rounds.min_fraction"),
        ({"cost": {"mode": "host-ratio"}}, "fleet.cost.mode"),
        ({"droput": 0.0}, "fleet.droput"),
        ({"availability": {"by": "always"}}, "fleet.availability"),
    ],
)
def test_a_fleet_that_no_run_of_a_page_has_is_refused(fleet: dict[str, Any], named: str, tmp_path: Path) -> None:
    jobs = [Job(asked(), tmp_path / "runs" / "a"), Job(asked(**fleet), tmp_path / "runs" / "b")]
    with pytest.raises(InputError, match=rf"^{named} ") as refused:
        next(run_all(jobs, JobSetting(FLEET, None, tmp_path / "bases")))
    assert "edgefr simulate" in str(refused.value)
    assert list(tmp_path.iterdir()) == [], "nothing is run before it"


def test_a_recipe_that_says_what_the_fleet_is_anyway_is_run(tmp_path: Path) -> None:
    own = asked(availability=None, dropout=0.0, battery=None, rounds={"over_select": 1, "deadline_s": 604800.0})
    place = tmp_path / "run"
    place.mkdir()
    (place / "summary.json").write_text("{}")  # finished, so that nothing is trained here
    ((job, run),) = run_all([Job(own, place)], JobSetting(FLEET, None, tmp_path / "bases"))
    assert (job.out, not isinstance(run, str)) == (place, True)


def chosen(paper: str, rows: tuple[str, ...], backbones: tuple[str, ...] = (), *exhibits: str):
    entry = PAPERS[paper]
    ask = replace(entry.ask("released", range(1)), rows=rows, backbones=backbones)
    wanted = {name: entry.exhibits[name] for name in exhibits or ("table-2",)}
    data = {name: list(exhibit.data)[:1] for name, exhibit in wanted.items()}
    check_chosen(ask, wanted, data)
    return [c for name, exhibit in wanted.items() for c in exhibit.cells(ask, data[name][0]) if ask.has(c)]


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
        ("f3crec", (), ("fedncf",), ("table-2", "table-6"), "table-6 has nothing of fedncf: leave it out"),
        ("f3crec", ("ft",), (), ("figure-3",), "figure-3 is drawn of all of its rows"),
        ("fcucr", ("sasrek",), (), (), "sasrec"),
        ("fcucr", (), ("sasrec",), (), "unknown backbone of table-2"),
    ],
)
def test_what_no_table_has_is_refused(paper, rows, backbones, exhibits, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        chosen(paper, rows, backbones, *exhibits)
