"""`edgefr device` as used: rounds, new keys, newer bundles; what is wrong is one line, and the state is left alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edge.bundle import open_bundle
from edge.delta import Delta, write_delta
from edge.device import Device
from edge.identity import Identity
from edge.signature import place
from edge.state import STATE
from edge.update import read_update
from export.sign import signature_of
from tests.cli import commands
from tests.cli.conftest import Cli
from tests.contract import bundles
from tests.contract.programs import ITEMS, interactions
from tests.devices import open_device, policy_file
from tests.edge.folders import edit_json, resign
from tests.export import worlds

CLIENT = 7


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("item\n" + "\n".join(f"i{item}" for item in interactions()[CLIENT]) + "\n\n")
    return path


def test_a_device_from_the_shell(tmp_path: Path, cache: Path, own: Path) -> None:
    path, state, out = bundles.bundle("fedmf", replay=True), tmp_path / "state", tmp_path / "release.safetensors"

    def device(command: str, *more: str | Path) -> str:
        return commands.done("device", command, path, "--state", state, *more, cache=cache)

    learned = device(*("learn", "--user", "u7", "--interactions", own, "--out", out, "--policy", policy_file(tmp_path)))
    assert "optimiser steps" in learned
    opened = open_bundle(path)
    assert opened.config.learning is not None
    release = read_update(out.read_bytes(), opened.config.learning, opened.manifest.bundle_id)
    assert release.round == bundles.ROUND
    assert release.rows["item"][1].any()

    update = tmp_path / "update.safetensors"
    rows = {"item": (np.arange(ITEMS), np.random.default_rng(0).normal(size=(ITEMS, 8)).astype(np.float32))}
    write_delta(update, Delta(opened.manifest.bundle_id, bundles.ROUND - 1, bundles.ROUND, rows=rows))
    place(update).write_bytes(signature_of("delta", update.read_bytes(), worlds.KEY))
    device("learn", "--update", update, "--new-block", "--item", "i3")
    assert "nearest of your own" in device("recommend", "-k", "2", "--explain")
    status = device("status")
    assert all(line in status for line in ("earlier interactions", "remembered", "waiting release"))


def test_what_is_wrong_is_one_line_and_changes_nothing(tmp_path: Path, cli: Cli) -> None:
    path, state = bundles.bundle("fedmf"), tmp_path / "state"
    cli.done("device", "recommend", path, "--state", state, "--user", "u7")
    before = (state / STATE).read_bytes()
    for arguments, message in (
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
    ):
        assert message in cli.refused("device", arguments[0], path, "--state", state, *arguments[1:])
        assert (state / STATE).read_bytes() == before, arguments
    assert "holds no state yet" in cli.refused("device", "status", path, "--state", tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("content", ["", "item\n", "\n\n"])
def test_a_file_without_interactions_spends_no_privacy(tmp_path: Path, cli: Cli, content: str) -> None:
    """Where something is promised, a release without anything to learn from would be noise that is charged."""
    path, state, empty = bundles.promising("fedmf", 8.0, 3), tmp_path / "state", tmp_path / "empty.txt"
    empty.write_text(content)
    common = (path, "--state", state, "--interactions", empty, "--policy", policy_file(tmp_path))
    assert "nothing to learn from" in cli.refused("device", "learn", *common)
    Identity.made(state).enrolled("u7", None)
    assert "nothing to learn from" in cli.refused("device", "join", *common, "--url", "http://127.0.0.1:9")
    assert open_device(path, state).status()["releases"] == 0
    open_device(path, state).note(["i3"])
    cli.done("device", "learn", *common)  # a device that has interactions goes on without new ones


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "edgefr.bundle/9"}, "another schema"),
        ({"onnx": {"opset": 99, "ir": 8, "min_ort": "1.17"}}, "opset"),
        ({"onnx": {"opset": 18, "ir": 8, "min_ort": "99.0"}}, "99.0"),
    ],
)
def test_a_bundle_this_device_cannot_run(tmp_path: Path, cli: Cli, change: dict, message: str) -> None:
    path = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "bundle")
    edit_json(path / "manifest.json", lambda manifest: manifest.update(change))
    resign(path)
    assert message in cli.refused("device", "learn", path, "--state", tmp_path / "state", "--item", "i1")
    assert not (tmp_path / "state" / STATE).exists()


def test_keys_are_handed_over_and_a_revoked_one_is_refused(cli: Cli, tmp_path: Path) -> None:
    bundle, state, file = shutil.copytree(bundles.bundle("fedmf"), tmp_path / "b"), tmp_path / "s", tmp_path / "k.json"
    for name in ("one", "two"):
        cli.done("bundle", "keygen", "--out", tmp_path / name)
    one, two = tmp_path / "one", tmp_path / "two"
    cli.done("bundle", "sign", bundle, "--key", one / "private.pem")
    Device(bundle, state)
    assert "nothing to do; give --key for a new set" in cli.refused("bundle", "keys", file)
    made = cli.done("bundle", "keys", file, "--key", two / "public.pem", "--sign", two / "private.pem")
    assert "set 1, whose next is signed by 1 of its keys: 1 in all" in made
    follow = ("device", "trust", file, "--state", state)
    assert "no set of keys is signed by a key that this device trusts" in cli.refused(*follow)
    signed = cli.done("bundle", "keys", file, "--sign", one / "private.pem")
    assert "set 1 is signed by 1 of 1 of its own" in signed
    assert cli.done(*follow).startswith("trusted: set 1, with the keys ")
    words = cli.refused("device", "status", bundle, "--state", state)
    assert "is not among its publisher's keys (set 1): it is revoked, or another's; get the bundle again" in words
    cli.done("bundle", "sign", bundle, "--key", two / "private.pem")
    said = cli.done("device", "status", bundle, "--state", state)
    assert "publisher" in said
    assert "expires" in said


def test_a_device_goes_on_under_a_newer_bundle_and_back(cli: Cli, tmp_path: Path) -> None:
    old, state = bundles.bundle("fedmf"), tmp_path / "s"
    new = shutil.copytree(old, tmp_path / "new")
    resign(new, lambda record: record.update(serial=record["serial"] + 1))
    assert "holds no state yet" in cli.refused("device", "update", old, "--to", new, "--state", state)
    cli.done("device", "learn", old, "--state", state, "--item", "i3", "--policy", policy_file(tmp_path))
    for wrong in ([], ["--to", new, "--undo"]):
        line = cli.refused("device", "update", old, "--state", state, *wrong)
        assert "give --to with the newer bundle, or --undo" in line
    said = cli.done("device", "update", old, "--to", new, "--state", state)
    assert "goes on under" in said
    assert "interactions kept: 1" in said
    assert "is the state of bundle" in cli.refused("device", "status", old, "--state", state)
    assert "is as it was before" in cli.done("device", "update", new, "--undo", "--state", state)
    cli.done("device", "status", old, "--state", state)
    cli.done("device", "update", old, "--to", new, "--state", state)
    cli.done("device", "learn", new, "--state", state, "--item", "i4")
    assert "is older than one before it" in cli.refused("device", "status", old, "--state", state)
    assert json.loads((state / "seen.json").read_bytes())["serial"] == 1795255201


NEW = "this device has no history"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pfedrec", f"for a new device: the model's default order for a new user, since {NEW}"),
        ("fedmf", f"for a new device: no ranking yet, since {NEW}"),
    ],
)
def test_a_new_device_is_told_what_a_list_is_ranked_by(kind: str, said: str, cli: Cli) -> None:
    out = cli.done("recommend", worlds.exported(kind)[0] / "laptop", "--k", "3")
    assert " ".join(out.split()).startswith(said)
    assert "score" not in out
    assert out.count("│ i") == (0 if kind == "fedmf" else 3)


def test_scores_are_shown_where_they_are_a_users_own(cli: Cli) -> None:
    code, out, _ = cli("recommend", worlds.exported("fedmf")[0] / "laptop", "--k", "3", "--user", "u4")
    assert code == 0
    assert out.splitlines()[0].strip() == "for u4"
    assert "score" in out


def test_a_device_has_no_ranking_until_it_has_learned(tmp_path: Path, cli: Cli) -> None:
    bundle, state = bundles.bundle("fedmf"), tmp_path / "state"
    arguments = ("device", "recommend", bundle, "--state", state, "-k", "2")
    state.mkdir()
    (state / "policy.yaml").write_bytes(policy_file(tmp_path).read_bytes())
    code, out, _ = cli(*arguments, "--explain")
    assert (code, out.strip()) == (0, f"for this device: no ranking yet, since {NEW}")
    assert cli("device", "learn", bundle, "--state", state, "--item", "i1", "--item", "i2")[0] == 0
    code, out, _ = cli(*arguments)
    assert code == 0
    assert out.splitlines()[0].strip() == "for this device"
    assert out.count("│ item ") == 2
