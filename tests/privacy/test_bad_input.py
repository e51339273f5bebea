"""What must not be asked of `edgefr sweep` and `audit`: exit code 2, one line, nothing written."""

import json

import pytest
import yaml

from tests.cli.commands import edgefr, refused
from tests.cli.conftest import cache, cli, inside, place

__all__ = ["cache", "cli", "inside", "place"]  # fixtures that are used here too

SWEPT = ("sweep", "--set", "method=fedmf", "--set", "privacy.mechanism=gaussian", "--set", "privacy.clip=1")
EPSILON = ("--grid", "privacy.epsilon=[8, {}]")
NOISE = ("--set", "privacy.sigma=4")


@pytest.fixture
def run(tmp_path):
    """As much of a finished run as is read before a question is looked at."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(yaml.safe_dump({"method": "fedmf"}))
    (folder / "summary.json").write_text(json.dumps({"privacy": {"delta": 1e-5, "adjacency": "zero-out"}}))
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("privacy", "nowhere"), "nowhere is not a run folder"),
        ((*SWEPT, *NOISE, "--grid", "ronds=[1, 2]"), "unknown key 'ronds'; did you mean 'rounds'"),
        ((*SWEPT, *NOISE, "--grid", "privacy.sgima=[1, 2]"), "privacy.sgima: unknown key"),
        ((*SWEPT, *NOISE, "--grid", "[1, 2]"), "--grid takes"),
        ((*SWEPT, *NOISE), "there is nothing to sweep over"),
        ((*SWEPT, EPSILON[0], EPSILON[1].format("0")), "privacy.epsilon: it should be greater than 0"),
        ((*SWEPT, EPSILON[0], EPSILON[1].format(".nan")), "privacy.epsilon: it should be greater than 0"),
        ((*SWEPT, *NOISE, EPSILON[0], EPSILON[1].format("4")), "exactly one of sigma, epsilon, scale"),
        ((*SWEPT, *NOISE, "--grid", "privacy.delta=[1.0e-5, 1]"), "privacy.delta: it should be less than 1"),
        ((*SWEPT, *NOISE, "--grid", "privacy.clip=[0, 1]"), "privacy.clip: it should be greater than 0"),
        (
            (*SWEPT, *NOISE, "--grid", "privacy.mechanism=[laplace, gausian]"),
            "unknown mechanism 'gausian'",
        ),
        (("audit", "nowhere"), "nowhere is not a run folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_one_line_and_nothing_written(arguments, says, cli, tmp_path):
    out = ("--out", tmp_path / "out") if arguments[0] == "sweep" else ()
    assert says in refused(*cli(*arguments, *out))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--attacks", "sign-spilt"), "unknown attack 'sign-spilt'; did you mean 'sign-split'"),
        (("--attacks", "game,,games"), "unknown attack 'games'; did you mean 'game'"),
        (("--users", "0"), "--users takes a whole number of at least 1, got 0"),
        (("--users", "all"), "--users"),
        (("--trials", "99"), "--trials takes a whole number from 100"),
        (("--trials", "-1"), "--trials takes a whole number from 100"),
    ],
)
def test_an_audit_that_cannot_be_made(arguments, says, run, cli):
    assert says in refused(*cli("audit", run, *arguments))
    assert not (run / "audit.json").exists()


@pytest.mark.parametrize("arguments", [(*SWEPT, *NOISE, "--grid", "ronds=[1]"), ("audit", "nowhere")])
def test_from_the_shell(arguments, tmp_path):
    done = edgefr(*arguments, cache=tmp_path)
    refused(done.returncode, done.stdout, done.stderr)
