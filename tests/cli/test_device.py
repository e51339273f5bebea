"""`edgefr device` as used: a first round from the shell, and one line for what is wrong, with the state left alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edge.bundle import open_bundle
from edge.delta import Delta, write_delta
from edge.identity import Identity
from edge.signature import place
from edge.state import STATE
from edge.update import read_update
from export.sign import signature_of
from tests.cli import commands
from tests.contract import bundles
from tests.contract.programs import ITEMS, interactions
from tests.devices import open_device, policy_file
from tests.edge.folders import edit_json, resign
from tests.export import worlds

CLIENT = 7


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def refused(done: subprocess.CompletedProcess[str]) -> str:
    return commands.refused(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("item\n" + "\n".join(f"i{item}" for item in interactions()[CLIENT]) + "\n\n")
    return path


def test_a_device_from_the_shell(tmp_path: Path, cache: Path, own: Path) -> None:
    path, state, out = bundles.bundle("fedmf", replay=True), tmp_path / "state", tmp_path / "release.safetensors"
    common, open_policy = (path, "--state", state), ("--policy", policy_file(tmp_path))
    learned = commands.edgefr(
        "device", "learn", *common, "--user", "u7", "--interactions", own, "--out", out, *open_policy, cache=cache
    )
    assert learned.returncode == 0, learned.stderr
    assert "optimiser steps" in learned.stdout
    opened = open_bundle(path)
    assert opened.config.learning is not None
    release = read_update(out, opened.config.learning, opened.manifest.bundle_id)
    assert release.round == bundles.ROUND
    assert release.rows["item"][1].any()

    update = tmp_path / "update.safetensors"
    rows = {"item": (np.arange(ITEMS), np.random.default_rng(0).normal(size=(ITEMS, 8)).astype(np.float32))}
    write_delta(update, Delta(opened.manifest.bundle_id, bundles.ROUND - 1, bundles.ROUND, rows=rows))
    place(update).write_bytes(signature_of("delta", update.read_bytes(), worlds.KEY))
    again = commands.edgefr("device", "learn", *common, "--update", update, "--new-block", "--item", "i3", cache=cache)
    assert again.returncode == 0, again.stderr
    shown = commands.edgefr("device", "recommend", *common, "-k", "2", "--explain", cache=cache)
    assert shown.returncode == 0, shown.stderr
    assert "nearest of your own" in shown.stdout
    status = commands.edgefr("device", "status", *common, cache=cache)
    for line in ("earlier interactions", "remembered", "waiting release"):
        assert line in status.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["learn"], "nothing to learn from"),
        (["learn", "--item", "nosuch"], "unknown item 'nosuch'"),
        (["learn", "--interactions", "missing.txt"], "cannot read missing.txt"),
        (["learn", "--update", "missing.safetensors"], "missing.safetensors"),
        (["learn", "--item", "i1", "--max-seconds", "0"], "max_seconds must be above 0"),
        (["learn", "--item", "i1", "--new-block"], "has no blocks"),
        (["learn", "--item", "i1", "--personalise", "--out", "release"], "--personalise releases nothing"),
        (["recommend", "-k", "0"], "--k"),
        (["recommend", "--exclude", "nosuch"], "unknown item 'nosuch'"),
        (["recommend", "--user", "u3"], "is the state of user 'u7', not 'u3'"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    tmp_path: Path, cache: Path, own: Path, arguments: list[str], message: str
) -> None:
    path, state = bundles.bundle("fedmf"), tmp_path / "state"
    started = commands.edgefr("device", "recommend", path, "--state", state, "--user", "u7", cache=cache)
    assert started.returncode == 0, started.stderr
    before = (state / STATE).read_bytes()
    done = commands.edgefr("device", arguments[0], path, "--state", state, *arguments[1:], cache=cache)
    assert message in refused(done)
    assert (state / STATE).read_bytes() == before


@pytest.mark.parametrize("content", ["", "item\n", "\n\n"])
def test_a_file_without_interactions_spends_no_privacy(tmp_path: Path, cache: Path, content: str) -> None:
    """Where something is promised, a release without anything to learn from would be noise that is charged."""
    path, state, empty = bundles.promising("fedmf", 8.0, 3), tmp_path / "state", tmp_path / "empty.txt"
    empty.write_text(content)
    common = (path, "--state", state, "--interactions", empty, "--policy", policy_file(tmp_path))
    assert "nothing to learn from" in refused(commands.edgefr("device", "learn", *common, cache=cache))
    Identity.made(state).enrolled("u7", None)
    done = commands.edgefr("device", "join", *common, "--url", "http://127.0.0.1:9", cache=cache)
    assert "nothing to learn from" in refused(done)
    assert open_device(path, state).status()["releases"] == 0


def test_a_device_that_has_interactions_goes_on_without_new_ones(tmp_path: Path, cache: Path) -> None:
    path, state, empty = bundles.promising("fedmf", 8.0, 3), tmp_path / "state", tmp_path / "empty.txt"
    empty.write_text("")
    open_device(path, state, user="u7").note(["i3"])
    common = (path, "--state", state, "--interactions", empty, "--policy", policy_file(tmp_path))
    done = commands.edgefr("device", "learn", *common, cache=cache)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["enrol", "fetch"])
def test_a_server_that_is_not_there_is_waited_for_in_sight(tmp_path: Path, cache: Path, command: str) -> None:
    """Neither command has taken part in anything yet, so it is told to do the same again."""
    place, code = bundles.bundle("fedmf") if command == "enrol" else tmp_path / "new", "a" * 32
    common = ("--state", tmp_path / "state", "--url", "http://127.0.0.1:9", "--code", code)
    asked = [*commands.COMMAND, "device", command, *map(str, (place, *common))]
    done = subprocess.run(asked, env=commands.environment(cache), capture_output=True, text=True, timeout=100)
    assert "s] waiting for http://127.0.0.1:9" in done.stderr
    assert "cannot reach http://127.0.0.1:9 in 8 tries" in done.stderr
    assert ("do the same again" in done.stderr, "join" in done.stderr) == (True, False)


def test_a_state_that_is_not_there_yet(tmp_path: Path, cache: Path) -> None:
    done = commands.edgefr("device", "status", bundles.bundle("fedmf"), "--state", tmp_path / "none", cache=cache)
    assert "holds no state yet" in refused(done)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "edgefr.bundle/9"}, "another schema"),
        ({"onnx": {"opset": 99, "ir": 8, "min_ort": "1.17"}}, "opset"),
        ({"onnx": {"opset": 18, "ir": 8, "min_ort": "99.0"}}, "99.0"),
    ],
)
def test_a_bundle_this_device_cannot_run(tmp_path: Path, cache: Path, change: dict, message: str) -> None:
    path = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    edit_json(path / "manifest.json", lambda manifest: manifest.update(change))
    resign(path)
    done = commands.edgefr("device", "learn", path, "--state", tmp_path / "state", "--item", "i1", cache=cache)
    assert message in refused(done)
    assert not (tmp_path / "state" / STATE).exists()
