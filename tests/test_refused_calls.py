"""Whatever a user hands over wrongly in Python is one line, in a notebook too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefr
from edgefr.config.arguments import checked
from privacy.errors import InputError, unknown
from tests import answers

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a value of an experiment": (lambda: edgefr.Experiment(rounds=-1), r"^Experiment: rounds: .*; got -1"),
    "a key of an experiment": (lambda: edgefr.Experiment(roundz=1), "unknown key 'roundz'; did you mean 'rounds'"),
    "an override": (lambda: edgefr.load_experiment(overrides=["rounds=x"]), "--set rounds=x: rounds"),
    "overrides as one text": (lambda: edgefr.load_experiment(overrides="rounds=3"), "overrides should be Sequence"),
    "a named value": (lambda: edgefr.load_experiment(rounds="x"), "rounds: it should be a valid integer"),
    "no file": (lambda: edgefr.load_experiment("none.yaml"), "cannot read none.yaml"),
    "a number for a file": (lambda: edgefr.load_experiment(5), "load_experiment: path should be"),
    "a file for an experiment": (
        lambda: edgefr.simulate("a.yaml"),
        "experiment should be Experiment | None, got 'a.yaml'",
    ),
    "a mapping for an experiment": (lambda: edgefr.simulate({"rounds": 1}), "experiment should be Experiment"),
    "nothing at all": (lambda: edgefr.compare(), "compare: missing a required argument: 'runs'"),
    "an argument": (lambda: edgefr.simulate(answers.experiment(), dta=1), "'dta'; did you mean 'data'"),
    "devices": (lambda: edgefr.simulate(answers.experiment(), 5), "devices should be str | Path | FleetFile, got 5"),
    "a flag": (
        lambda: edgefr.simulate(answers.experiment(), bundles="no"),
        r"bundles should be bool \| None, got 'no'",
    ),
    "no devices": (lambda: edgefr.simulate(answers.experiment(), "none.yaml"), "cannot read none.yaml"),
    "no run": (lambda: edgefr.Run.open("none"), "none is not a run folder"),
    "a number for a run": (lambda: edgefr.Run(5), r"RunFolder: path should be str \| Path, got 5"),
    "no run to go on with": (lambda: edgefr.resume("none"), "no experiment.yaml"),
    "a user's type": (lambda: edgefr.Run("none").recommend(5.5), r"user should be str \| int \| None, got 5.5"),
    "how many": (lambda: edgefr.Run("none").recommend("a", k="3"), "k should be int, got '3'"),
    "how few": (lambda: edgefr.Run("none").recommend("a", k=0), "k is a whole number of at least 1, got 0"),
    "no fleet": (lambda: edgefr.load_fleet("none.yaml"), "cannot read none.yaml"),
    "fleet overrides": (lambda: edgefr.load_fleet(answers.DEVICES, {"fleet": {"dropout": 2}}), "fleet.dropout"),
    "a fleet by hand": (lambda: edgefr.FleetFile(devices={}), r"^FleetFile: "),
    "a data set": (lambda: edgefr.load_data("nothing"), "unknown data set 'nothing'"),
    "a frame": (lambda: edgefr.Dataset.from_frame(5), "data frame"),
    "no frame": (lambda: edgefr.Dataset.from_frame(), "missing a required argument: 'interactions'"),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_value_is_one_line(call: str) -> None:
    wrong, said = WRONG[call]
    with pytest.raises(edgefr.InputError, match=said.replace(" | ", r" \| ")) as caught:
        wrong()
    assert "\n" not in str(caught.value)


def test_what_is_right_goes_through() -> None:
    @checked
    def some(number: int, share: float = 0.5, where: str | Path | None = None, **more: int) -> tuple[object, ...]:
        return number, share, where, more

    assert some(np.int64(3), np.float32(0.5), Path("a"), b=1) == (3, 0.5, Path("a"), {"b": 1})
    assert some(1, 1) == (1, 1, None, {})
    with pytest.raises(edgefr.InputError, match="number should be int, got '3'"):
        some("3")
    with pytest.raises(edgefr.InputError, match="too many positional arguments"):
        some(1, 1.0, None, 4)


def test_a_fault_of_a_file_keeps_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("method: fedmf\nrounds: -3\n")
    with pytest.raises(edgefr.InputError, match=r"a.yaml:2: rounds: "):
        edgefr.load_experiment(tmp_path / "a.yaml")


def test_a_notebook_shows_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A real shell of IPython, which notebooks run too, shows the message and no traceback."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    for line in ("edgefr.Experiment(rounds=-1)", "edgefr.simulate('a.yaml')", "edgefr.load_fleet('none.yaml')"):
        capsys.readouterr()
        assert shell.run_cell(f"import edgefr\n{line}").error_in_exec is not None
        caught = capsys.readouterr()
        (shown,) = [line for line in (caught.out + caught.err).splitlines() if line]
        assert shown.startswith("InputError: ")


def test_the_hook_is_one_line_whatever_the_message_is() -> None:
    assert edgefr.InputError("two\nlines")._render_traceback_() == ["InputError: two lines"]


def test_an_unknown_name_lists_few_of_many() -> None:
    assert str(unknown("user", "u7x", [f"u{n}" for n in range(600)])) == (
        "unknown user 'u7x'; did you mean 'u7' or 'u97'? (known: u0, u1, u10, u100, u101, and 595 more)"
    )


def test_more_clients_a_round_than_there_are_is_refused_before_the_first() -> None:
    changes = ["method=fedmf", "rounds=1", "data_options.users=20", "clients_per_round=21"]
    with pytest.raises(InputError, match=r"^clients_per_round is 21 and only 20 clients train; give at most 20"):
        edgefr.simulate(edgefr.load_experiment(overrides=changes), "devices.yaml", bundles=False, page=False)
