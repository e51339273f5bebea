"""Other people's entries work everywhere: a method, a metric, a rule and a mechanism from outside the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pyarrow.parquet as pq
import pytest

import edgefr
from edgefr.config import plugins
from edgefr.config.plugins import TABLES, load, register
from edgefr.experiment.method import METHODS
from edgefr.metrics.cutoffs import METRICS, Metric
from privacy.errors import InputError
from tests.cli import commands

SOURCE = Path(__file__).parent / "plugin" / "somebody.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the package with the plug-in and an experiment that uses it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "somebody.py").write_text(SOURCE.read_text())
    (folder / "mine.yaml").write_text(commands.TINY_FEDMF.replace("method: fedmf", "method: somebodys-mf"))
    return folder


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return commands.edgefr(*arguments, cache=home / "cache", cwd=home)


def done(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def simulated(home: Path) -> Path:
    """A run of the plug-in's method and rule in worker processes, with checkpoints and bundles."""
    devices, out = commands.ROOT / "devices.yaml", home / "run"
    chosen = ("--set", "aggregation.rule=somebodys-mean", "--executor", "processes", "--workers", "2")
    kept = ("--checkpoint-every", "1", "--out", out, "--devices", devices, "--experiment", "mine.yaml")
    done(run(home, "simulate", "--plugin", "somebody.py", *chosen, *kept))
    return out


def test_its_metric_is_measured_and_its_names_stand_in_the_summary(simulated: Path) -> None:
    summary = edgefr.Run(simulated).summary
    assert summary["method"] == "somebodys-mf"
    assert summary["metrics"]["SomebodysRank@10"] == pytest.approx(summary["metrics"]["NDCG@10"] / 1.5849625, rel=1e-4)
    rows = pq.read_table(simulated / "metrics.parquet").to_pylist()
    assert any(row["metric"] == "SomebodysRank@10" for row in rows)


def test_without_it_a_run_is_refused_and_says_what_is_missing(home: Path, simulated: Path) -> None:
    for arguments in (
        ("simulate", "--experiment", "mine.yaml"),
        ("export", "--run", simulated, "--out", home / "b"),
        ("audit", simulated),
    ):
        process = run(home, *arguments)
        line = commands.refused(process.returncode, process.stdout, process.stderr)
        assert "unknown method 'somebodys-mf'" in line
        assert "--plugin" in line


def test_its_run_is_resumed_from_a_checkpoint_to_the_same_tensors(home: Path, simulated: Path) -> None:
    stopped = home / "stopped"
    subprocess.run(["cp", "-r", simulated, stopped], check=True)
    for name in ("summary.json", "metrics.parquet", "checkpoint/model.safetensors"):
        (stopped / name).unlink()
    subprocess.run(["rm", "-r", stopped / "checkpoint" / "round-00000002", stopped / "bundles"], check=True)
    done(run(home, "simulate", "--plugin", "somebody", "--resume", stopped, "--executor", "inline"))
    model = Path("checkpoint") / "model.safetensors"
    assert (stopped / model).read_bytes() == (simulated / model).read_bytes()


def test_its_bundles_are_written_and_learn_without_it(home: Path, simulated: Path) -> None:
    done(run(home, "export", "--run", simulated, "--plugin", "somebody.py", "--out", home / "bundles"))
    (bundle, *_) = sorted((home / "bundles").glob("*/manifest.json"))
    items = [part for item in ("i0000003", "i0000005", "i0000008") for part in ("--item", item)]
    learn = ("device", "learn", bundle.parent, "--state", home / "state", "--user", "u0000007", *items)
    process = run(home, *learn)
    assert process.returncode == 0, process.stderr


def test_its_mechanism_is_swept_and_audited(home: Path) -> None:
    devices = commands.ROOT / "devices.yaml"
    noise = {"mechanism": "somebodys-coin", "trust": "local", "clip": "1.0", "norm": "l1"}
    chosen = [part for key, value in noise.items() for part in ("--set", f"privacy.{key}={value}")]
    mine = ("--plugin", "somebody.py", "--experiment", "mine.yaml", "--devices", devices)
    over = ("sweep", "--grid", "privacy.sigma=[1,2]", *mine)
    done(run(home, *over, *chosen, "--out", home / "sweep"))
    found = [edgefr.Run(path.parent).summary["privacy"] for path in (home / "sweep").rglob("summary.json")]
    stds = {report["noise"]["std"] for report in found if report.get("noise")}
    assert stds == {1.0, 2.0}
    (swept, *_) = sorted(
        path.parent for path in (home / "sweep").rglob("summary.json") if "privacy" in path.read_text()
    )
    audit = ("audit", swept, "--plugin", "somebody.py", "--attacks", "sign-split,membership", "--users", "6", "--json")
    assert json.loads(done(run(home, *audit)))["attacks"]


def test_worker_processes_of_a_sweep_have_it_too(home: Path) -> None:
    """Nothing in these experiments brings its module along: the method and the metric are names."""
    chosen = ("--plugin", "somebody.py", "--experiment", "mine.yaml", "--devices", commands.ROOT / "devices.yaml")
    done(run(home, "sweep", "--grid", "rounds=[1,2]", *chosen, "--workers", "2", "--out", home / "rounds"))
    runs = [edgefr.Run(path.parent).summary for path in (home / "rounds").rglob("events.jsonl")]
    assert [found["method"] for found in runs] == ["somebodys-mf"] * 2
    assert all("SomebodysRank@10" in found["metrics"] for found in runs)


def test_an_installed_package_needs_no_option(home: Path) -> None:
    """Entry points are found by the package's metadata alone."""
    info = home / "somebody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (home / "entries.py").write_text(
        "from edgefr.metrics.cutoffs import Metric\n\nmetric = Metric('Installed', lambda found: found.dcg)\n"
    )
    (info / "entry_points.txt").write_text("[edgefr.metrics]\ninstalled = entries:metric\n")
    asked = "from edgefr.metrics.cutoffs import METRICS; print(list(METRICS))"
    paths = {"PYTHONPATH": f"{commands.ROOT}:{home}"}
    command = [sys.executable, "-c", asked]
    environment = commands.environment(home / "cache") | paths
    process = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.startswith("['HR', 'NDCG', 'Recall', ")
    assert process.stdout.endswith(", 'Installed']\n")
    (info / "entry_points.txt").write_text("[edgefr.metrics]\ninstalled = entries:nothing\n")
    command = [*commands.COMMAND, "simulate", "--devices", str(commands.ROOT / "devices.yaml")]
    process = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    line = commands.refused(process.returncode, process.stdout, process.stderr)
    assert "the plug-in entries:nothing of somebody adds no metric" in line


def test_the_kind_of_an_entry_says_which_table_it_is_of() -> None:
    tables = [resolve_name(place) for place in TABLES]
    assert len({table.kind for table in tables}) == len(TABLES)
    assert [table.group for table in tables if table.group is not None and not table.group.startswith("edgefr.")] == []


CLOSED = {
    "edgefr.studies.audits.checks:CHECKS": "what an audit promises to have looked at",
    "edgefr.engine.optimisers:RULES": "devices have the same ones",
    "edge.replay:PICKS": "devices have the same ones",
    "privacy.trust:TRUSTS": "a guarantee is stated for these alone",
    "privacy.mechanism:SAMPLERS": "they come with a mechanism",
    "edgefr.studies.reproductions.papers:PAPERS": "papers",
    "edgefr.studies.reproductions.fedcar.recipes:ROWS": "rows of a paper",
    "edgefr.studies.reproductions.transfr.recipes:ROWS": "rows of a paper",
}
"""Tables that nobody adds to, and why."""


def test_every_table_can_be_added_to_or_is_closed_for_a_reason() -> None:
    found = set()
    for room in ("edgefr", "cloud", "export", "edge", "privacy"):
        for path in (commands.ROOT / room).rglob("*.py"):
            module = ".".join(path.relative_to(commands.ROOT).with_suffix("").parts).removesuffix(".__init__")
            names = re.findall(r"^(\w+)(?:: Table\[.*\])? = Table(?:\[.*\])?\(", path.read_text(), re.MULTILINE)
            found |= {f"{module}:{name}" for name in names}
    assert found == {*TABLES, *CLOSED}
    assert not {*TABLES} & {*CLOSED}


def test_register_finds_the_table_and_refuses_what_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MODULES", [])
    mine = Metric("Mine", lambda found: found.dcg)
    try:
        assert register(mine) is mine
        assert METRICS["Mine"] is mine
        assert [__name__] == plugins.MODULES
        with pytest.raises(InputError, match="there is a metric 'Mine' already"):
            register(mine)
    finally:
        METRICS.unregister("Mine")
    with pytest.raises(InputError, match=r"no table holds a str; what can be registered is one of .*Method"):
        register("fedmf")  # type: ignore[arg-type]
    assert "Mine" not in METRICS
    assert "fedmf" in METHODS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError"),
        ("def (", "cannot be imported: SyntaxError"),
        ("import edgefr\nedgefr.register(3)", "no table holds a int"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / f"broken_{abs(hash(text))}.py"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        load(str(path))
    with pytest.raises(InputError, match="there is no such file"):
        load(str(tmp_path / "nowhere.py"))
    (tmp_path / "json.py").write_text("")
    with pytest.raises(InputError, match="another module 'json' first"):
        load(str(tmp_path / "json.py"))
