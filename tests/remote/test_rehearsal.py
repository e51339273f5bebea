"""A rehearsal sets a run's users as processes of this host beside the simulator, and leaves the run as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

import edgefr as toolkit
from edgefr.fleet import load_fleet
from edgefr.serving.rehearsal import table
from edgefr.simulation.runs.run import Run
from edgefr.studies.reproductions.runs import IDEAL_FLEET
from tests.caches import new_cache
from tests.cli.commands import ROOT, edgefr, refused
from tests.remote import worlds
from tests.remote.worlds import CLASS, FEDMF

SLOW = {
    "runtimes": {"python_ort": {"step_overhead_ms": 200.0}},
    "networks": {"wifi_home": {"bandwidth": {"rtt_ms": 0}}},
}
"""A fleet whose devices spend their time computing, so that who is lost is lost in that."""
LOSES_ONE = 1
"""A seed under which one of four clients is lost in the first of two rounds."""


def begun(folder: Path) -> Run:
    """A run of no rounds, whose fleet loses a client now and then."""
    fleet = {**IDEAL_FLEET, "share": {CLASS: 1.0}, "dropout": 0.15, "rounds": {"deadline_s": 60.0}}
    settings = FEDMF | {"fleet": str(fleet).replace("None", "null"), "seed": LOSES_ONE}
    devices = folder / "devices.yaml"
    spec = load_fleet(ROOT / "devices.yaml", SLOW).model_dump(mode="json", by_alias=True, exclude_none=True)
    devices.write_text(yaml.safe_dump(spec, sort_keys=False))
    run = toolkit.simulate(worlds.experiment_of(settings, 0), devices, out=folder / "begun", bundles=False)
    return Run(run.path)


def content(run: Run) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(run.path.rglob("*")) if path.is_file()}


def test_processes_come_to_what_the_simulator_said_and_fail_as_it_said(tmp_path: Path) -> None:
    run = begun(tmp_path)
    before = content(run)
    asked = ("--bundle-class", CLASS, "--rounds", "2", "--rehearse", "4", "--timeout", "12", "--out", tmp_path / "out")
    done = edgefr("serve", run.path, *asked, cache=new_cache(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert content(run) == before, "a rehearsal changes nothing of the run"
    found = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    said, happened = found["simulated"], found["happened"]
    assert (found["devices"], found["first_round"]) == (4, 1)
    assert said["answers"] == happened["answers"] == [3, 4]
    assert said["failures"] == {"client": 1}
    assert (happened["killed"], happened["late"], happened["ended_early"]) == (1, 0, [])
    assert happened["metrics"] == pytest.approx(said["metrics"], abs=1e-4)
    assert 0 < said["metrics"]["NDCG@50"] < 1
    assert 0 <= found["largest_difference"] < 1e-5
    assert found["time_scale"] == 0.2
    assert "unprotected" in found["default_policy"]
    sent = [client["up"] for client in found["clients"]]
    assert sum(sent) == happened["bytes_up"]
    assert min(sent) < max(sent)
    assert [client["simulated_up"] for client in found["clients"]].count(2 * 4 * 160 * 4) == 3
    for what, said_of_it, happened_of_it in table(found)[:8]:
        (line,) = (line for line in done.stdout.splitlines() if line.startswith(f"│ {what} "))
        assert [cell.strip() for cell in line.strip("│").split("│")] == [what, said_of_it, happened_of_it]


def test_what_cannot_be_rehearsed_says_so(tmp_path: Path) -> None:
    run = worlds.fedmf().begun
    given = ("serve", run.path, "--bundle-class", CLASS, "--rounds", "1", "--out", tmp_path / "out")
    for more, words in (
        (("--rehearse", "7"), "a number from 1 to 6"),
        (("--rehearse", "2"), "a round invites 2 clients, and 3 must answer"),
        (("--rehearse", "4", "--host", "0.0.0.0"), "stays on this host"),
        (("--rehearse", "4", "--timeout", "301"), "lower --timeout"),
    ):
        done = edgefr(*given, *more, cache=tmp_path)
        assert words in refused(done.returncode, done.stdout, done.stderr)
    assert not (tmp_path / "out").exists()


def test_a_run_without_bundles_is_rehearsed_all_the_same(tmp_path: Path) -> None:
    """Its bundle is made for the rehearsal, so nothing says here that there are none."""
    run = Run(shutil.copytree(worlds.fedmf().begun.path, tmp_path / "run"))
    shutil.rmtree(run.path / "bundles")
    asked = ("--bundle-class", "phone", "--rounds", "1", "--rehearse", "4")
    done = edgefr("serve", run.path, *asked, cache=tmp_path)
    assert "unknown device class 'phone'" in refused(done.returncode, done.stdout, done.stderr)
