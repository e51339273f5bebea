"""`edgefr privacy` as a user runs it."""

import json
import math
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from edgefr.cli.app import app
from privacy.errors import InputError
from privacy.files import sha256_of
from privacy.guarantee import Event
from privacy.ledger import Ledger
from privacy.plan import plan
from privacy.report import report
from privacy.settings import PrivacySettings

GRID = ["--mechanism", "gaussian", "--rounds", "100", "--clients", "943", "--trust", "central", "--clip", "1"]
ASKED = [*GRID, "--sampler", "float"]


def asked(*arguments):
    """The JSON answer, in this process."""
    done = CliRunner().invoke(app, ["privacy", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments):
    """The message of a refusal, in this process."""
    done = CliRunner().invoke(app, ["privacy", *arguments])
    assert isinstance(done.exception, InputError), done.output
    assert "\n" not in str(done.exception)
    return str(done.exception)


def shell(*arguments):
    command = [sys.executable, "-m", "edgefr", "privacy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_sigma_answers_epsilon():
    done = shell(*ASKED, "--sigma", "4", "--delta", "1e-5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    out = json.loads(done.stdout)
    assert out["eps_guaranteed"] == pytest.approx(13.2484, abs=6e-5)
    assert out["eps_nominal"] == pytest.approx(48.45 * 0.1 / 4, abs=1e-3)
    assert (out["eps_hypothetical"], out["eps_lb95"]) == (None, None)
    assert (out["adjacency"], out["trust"], out["method"]) == ("zero-out", "central", "GDP closed form")
    [row] = out["composed"]
    assert (row["mechanism"], row["multiplier"], row["releases"]) == ("gaussian", pytest.approx(3.99004, abs=1e-5), 100)


def test_epsilon_answers_noise():
    out = asked(*ASKED, "--epsilon", "8")
    assert out["noise"]["sigma"] == pytest.approx(6.0173, abs=1e-3)
    assert 8 * (1 - 1e-4) <= out["eps_guaranteed"] <= 8
    on_grid = asked(*GRID, "--epsilon", "8")
    assert on_grid["noise"]["sigma"] == pytest.approx(6.0173, abs=1e-3)
    assert 8 * (1 - 1e-4) <= on_grid["eps_guaranteed"] <= 8
    local = asked(*ASKED, "--epsilon", "8", "--trust", "local")
    assert local["noise"]["sigma"] == pytest.approx(2 * out["noise"]["sigma"] / math.sqrt(1 + 2 / 20**2), rel=1e-5)
    assert local["adjacency"] == "replace-one"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0"], "epsilon: it should be greater than 0; got 0.0"),
        (["--epsilon", "nan"], "epsilon: it should be greater than 0; got nan"),
        (["--sigma", "4", "--epsilon", "8"], "exactly one of sigma, epsilon, scale; got sigma and epsilon"),
        ([], "exactly one of sigma, epsilon, scale; got none of them"),
        (["--sigma", "4", "--clip", "0"], "clip: it should be greater than 0; got 0.0"),
        (["--sigma", "4", "--mechanism", "gausian"], "mechanism: unknown mechanism 'gausian'; did you mean 'gaussian'"),
        (["--sigma", "4", "--trust", "nobody"], "trust: unknown trust 'nobody' (known: central, local)"),
        (["--sigma", "4", "--clients-per-round", "944"], "a cohort of 944 clients is more than the 943"),
        (["--sigma", "4", "--rounds", "0"], "rounds must be at least 1"),
        (["--sigma", "4", "--rounds", "1" + "0" * 400], "rounds must be at most 1000000000000"),
        (["--sigma", "1e-300"], "noise over sensitivity must lie between"),
        (
            ["--sigma", "1e300", "--sampler", "grid"],
            "and an upload of 32-bit numbers takes 16,777,216: raise privacy.grid",
        ),
        (["--sigma", "4", "--mechanism", "discrete-laplace"], "set sampler to grid"),
        (["runs/demo", "--sigma", "4"], "a run has its own settings: drop --mechanism"),
    ],
)
def test_refuses_in_one_line(arguments, message):
    assert message in refused(*ASKED, *arguments)


def test_refuses_a_question_that_is_none():
    assert "name a run, or settings" in refused()
    assert "nowhere is not a run folder" in refused("nowhere")


def test_a_refusal_exits_with_2_and_one_line():
    done = shell(*ASKED, "--epsilon", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: epsilon: it should be greater than 0; got nan\n"


def test_a_large_delta_is_warned_about_and_answered():
    done = shell(*ASKED, "--sigma", "4", "--delta", "0.01")
    assert done.returncode == 0
    assert done.stderr == "warning: delta 0.01 is not below 1/943 clients: set a smaller privacy.delta\n"


@pytest.fixture
def run(tmp_path):
    """A finished run's folder, as far as this command reads it, with a ledger of three clients."""
    settings = PrivacySettings(mechanism="gaussian", clip=1.0, sigma=4.0, sampler="float")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "experiment.yaml").write_text(yaml.safe_dump({"privacy": settings.model_dump()}))
    resolved = plan(settings, 10, 3, 3)
    (folder / "summary.json").write_text(json.dumps({"privacy": report(settings, resolved, 2, 1.0, 3)}))
    ledger = Ledger(3, delta=1e-5, adjacency="zero-out", budget=1.4, run=sha256_of(folder / "experiment.yaml"))
    for clients in ([0, 1], [0], [0, 2]):
        ledger.try_spend(clients, resolved.event)
    write(folder, ledger)
    return folder


def write(folder, ledger):
    table = pa.table(ledger.columns()).replace_schema_metadata(ledger.facts())
    pq.write_table(table, folder / "ledger.parquet")


def test_a_runs_report_and_its_ledger(run):
    out = asked(str(run))
    assert out["eps_guaranteed"] == out["ledger"]["eps_guaranteed"] == pytest.approx(1.3602, abs=1e-4)
    assert (out["ledger"]["clients_refused"], out["ledger"]["budget"]) == (1, 1.4)
    shown = shell(str(run)).stdout
    assert "1 of 3 clients, 1 times; budget 1.4" in shown
    assert "eps NOMINAL" in shown


def test_a_run_without_a_ledger_says_so(run):
    (run / "ledger.parquet").unlink()
    assert asked(str(run))["ledger"] is None
    assert "no ledger.parquet: the guarantee above" in shell(str(run)).stdout
    summary = json.loads((run / "summary.json").read_text())
    summary["privacy"]["eps_guaranteed"] = "inf"
    (run / "summary.json").write_text(json.dumps(summary))
    assert "no ledger.parquet: releases are counted where" in shell(str(run)).stdout


def test_refuses_the_ledger_of_another_run(run):
    write(run, Ledger(3, delta=1e-5, adjacency="zero-out", run="0" * 64))
    assert "is of another run" in refused(str(run))
    mine = sha256_of(run / "experiment.yaml")
    write(run, Ledger(3, delta=1e-6, adjacency="zero-out", run=mine))
    assert "is of another run" in refused(str(run))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x00" * 100])
def test_refuses_a_file_that_is_no_ledger(run, content):
    (run / "ledger.parquet").write_bytes(content)
    assert "is not a whole ledger" in refused(str(run))


def test_without_a_sampler_the_answer_is_for_what_devices_draw():
    out = asked(*GRID, "--sigma", "4")
    assert (out["eps_guaranteed"], out["method"]) == (pytest.approx(13.2484, abs=6e-5), "GDP closed form")
    [row] = out["composed"]
    assert (row["mechanism"], row["releases"]) == ("discrete-gaussian", 100)
    assert row["multiplier"] == pytest.approx(4.0 / math.sqrt(1 + 2 / 20**2))


def test_nothing_is_amplified_that_no_run_can_do():
    """A server knows who is in a cohort, so a smaller one buys nothing, and no other sampling can be claimed."""
    everyone, some = ([*ASKED, "--sigma", "4", *cohort] for cohort in ((), ("--clients-per-round", "94")))
    assert asked(*some)["eps_guaranteed"] == asked(*everyone)["eps_guaranteed"]
    assert asked(*some)["amplification"] == "none"
    done = CliRunner().invoke(app, ["privacy", *some, "--sampling", "poisson"])
    assert done.exit_code == 2
    assert "No such option" in done.output


def test_paper_noise_is_infinite_and_has_its_hypothetical():
    rest = ("--rounds", "40", "--clients", "943", "--trust", "local", "--scale", "0.5")
    out = asked("--mechanism", "paper-laplace", *rest, "--p90-norm", "1")
    assert (out["eps_guaranteed"], out["method"]) == ("inf", "no clip")
    assert out["eps_hypothetical"] == pytest.approx(439, rel=6e-3)


def test_a_grid_costs_laplace_noise_nothing_but_whole_steps():
    laplace = ["--mechanism", "laplace", "--norm", "l1", "--clip", "1", "--sigma", "4", "--rounds", "1"]
    plain = asked(*laplace, "--clients", "10", "--sampler", "float")["eps_guaranteed"]
    grid = asked(*laplace, "--clients", "10", "--sampler", "grid", "--grid-exponent", "-8")["eps_guaranteed"]
    assert plain == pytest.approx(2**0.5 / 4, abs=1e-3)
    assert grid == pytest.approx(256 / 725, rel=1e-9)  # b of 724.08 steps is 725
    assert asked(*laplace, "--clients", "10")["eps_guaranteed"] == pytest.approx(2**0.5 / 4, rel=1e-4)


def test_refuses_papers_noise_on_clipped_updates():
    assert "drop clip, or use laplace" in refused(*GRID, "--mechanism", "paper-laplace", "--scale", "0.5")


def test_refuses_a_table_with_other_columns_or_values(run):
    pq.write_table(pa.table({"client": [1]}), run / "ledger.parquet")
    assert "is not a whole ledger" in refused(str(run))
    ledger = Ledger(3, delta=1e-5, adjacency="zero-out", run=sha256_of(run / "experiment.yaml"))
    ledger.spend([0], Event("gaussian", multiplier=4.0))
    table = pa.table({**ledger.columns(), "releases": [-1]}).replace_schema_metadata(ledger.facts())
    pq.write_table(table, run / "ledger.parquet")
    assert "not a whole ledger: its counts are not whole numbers" in refused(str(run))
