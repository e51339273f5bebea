"""What must not be asked of `edgefr privacy`, `sweep` and `audit`: exit code 2, one line, nothing written."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from privacy.ledger import Ledger
from tests.cli.commands import edgefr, refused
from tests.cli.conftest import cache, cli, inside, place

__all__ = ["cache", "cli", "inside", "place"]  # fixtures that are used here too

ASKED = (
    "privacy",
    "--mechanism",
    "gaussian",
    "--rounds",
    "100",
    "--clients",
    "943",
    "--trust",
    "central",
    "--clip",
    "1",
)
SWEPT = ("sweep", "--set", "method=fedmf", "--set", "privacy.mechanism=gaussian", "--set", "privacy.clip=1")
SIGMA, EPSILON = ("--sigma", "4"), ("--grid", "privacy.epsilon=[8, {}]")
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
        ((*ASKED, "--epsilon", "0"), "epsilon: it should be greater than 0; got 0.0"),
        ((*ASKED, "--epsilon", "-3"), "epsilon: it should be greater than 0; got -3.0"),
        ((*ASKED, "--epsilon", "nan"), "epsilon: it should be greater than 0; got nan"),
        ((*ASKED, *SIGMA, "--delta", "0"), "delta: it should be greater than 0"),
        ((*ASKED, *SIGMA, "--delta", "1"), "delta: it should be less than 1"),
        ((*ASKED, *SIGMA, "--delta", "-0.1"), "delta: it should be greater than 0"),
        ((*ASKED, *SIGMA, "--delta", "nan"), "delta: it should be"),
        ((*ASKED, *SIGMA, "--epsilon", "8"), "exactly one of sigma, epsilon, scale; got sigma and epsilon"),
        ((*ASKED, *SIGMA, "--clip", "0"), "clip: it should be greater than 0; got 0.0"),
        ((*ASKED, *SIGMA, "--mechanism", "gausian"), "mechanism: unknown mechanism 'gausian'; did you mean 'gaussian'"),
        ((*ASKED, "--sigma", "four"), "--sigma"),
        (("privacy", "nowhere"), "nowhere is not a run folder"),
        ((*SWEPT, *NOISE, "--grid", "ronds=[1, 2]"), "unknown key 'ronds'; did you mean 'rounds'"),
        ((*SWEPT, *NOISE, "--grid", "privacy.sgima=[1, 2]"), "privacy.sgima: unknown key"),
        ((*SWEPT, *NOISE, "--grid", "[1, 2]"), "--grid takes"),
        ((*SWEPT, *NOISE, "--grid", "=[1, 2]"), "--grid takes"),
        ((*SWEPT, *NOISE), "there is nothing to sweep over"),
        ((*SWEPT, EPSILON[0], EPSILON[1].format("0")), "privacy.epsilon: it should be greater than 0"),
        ((*SWEPT, EPSILON[0], EPSILON[1].format("-1")), "privacy.epsilon: it should be greater than 0"),
        ((*SWEPT, EPSILON[0], EPSILON[1].format(".nan")), "privacy.epsilon: it should be greater than 0"),
        ((*SWEPT, *NOISE, EPSILON[0], EPSILON[1].format("4")), "exactly one of sigma, epsilon, scale"),
        ((*SWEPT, *NOISE, "--grid", "privacy.delta=[1.0e-5, 1]"), "privacy.delta: it should be less than 1"),
        ((*SWEPT, *NOISE, "--grid", "privacy.delta=[0, 0.1]"), "privacy.delta: it should be greater than 0"),
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


def test_the_ledger_of_another_run(run, cli):
    ledger = Ledger(3, delta=1e-5, adjacency="zero-out", run="0" * 64)
    pq.write_table(pa.table(ledger.columns()).replace_schema_metadata(ledger.facts()), run / "ledger.parquet")
    assert "is of another run than" in refused(*cli("privacy", run))


def test_settings_beside_a_run(run, cli):
    assert "a run has its own settings: drop --sigma" in refused(*cli("privacy", run, *SIGMA))


@pytest.mark.parametrize(
    "arguments", [(*ASKED, "--epsilon", "nan"), (*SWEPT, *NOISE, "--grid", "ronds=[1]"), ("audit", "nowhere")]
)
def test_from_the_shell(arguments, tmp_path):
    done = edgefr(*arguments, cache=tmp_path)
    refused(done.returncode, done.stdout, done.stderr)


def test_a_delta_above_one_in_as_many_clients_is_answered_with_a_warning(cli):
    code, out, err = cli(*ASKED, *SIGMA, "--delta", "0.01", "--json")
    assert (code, json.loads(out)["delta"]) == (0, 0.01)
    assert err == "warning: delta 0.01 is not below 1/943 clients: set a smaller privacy.delta\n"
