"""A run signs with a key of its own; `recommend` and `device` take keys and zips, with one line for what is wrong."""

from __future__ import annotations

import json
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from edge.archive import opened
from edge.bundle import open_bundle
from edge.signature import key_id, load_public
from export.archive import pack
from export.sign import generate, load_private, sign_bundle
from tests.cli.conftest import Cli, Made

CLASS = "laptop_x86"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    generate(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def bundle(transfr: Made, tmp_path: Path) -> Path:
    return shutil.copytree(transfr.run.path / "bundles" / CLASS, tmp_path / CLASS)


def test_a_run_signs_its_bundles_with_a_key_of_its_own(transfr: Made, cli: Cli, tmp_path: Path) -> None:
    run = transfr.run.path
    private, public = run / "private" / "signing.pem", run / "publisher.pem"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (private, private.parent)] == [0o600, 0o700]
    name = key_id(load_private(private).public_key())
    assert key_id(load_public(public)) == name
    manifests = sorted((run / "bundles").glob("*/manifest.json"))
    assert manifests
    for path in manifests:
        found = open_bundle(path.parent, trusted=[public])
        assert (found.signed_by, found.manifest.model.users, found.config.users) == (name, 0, None)
    cli.done("export", "--run", run, "--out", tmp_path / "again", "--zip")
    for path in manifests:
        again = tmp_path / "again" / path.parent.name
        assert (again / "manifest.sig.json").read_bytes() == path.with_name("manifest.sig.json").read_bytes()
        with opened(again.with_suffix(".zip"), trusted=[public]) as zipped:
            assert zipped.signed_by == name
    secret = private.read_bytes()
    raw = load_private(private).private_bytes_raw()
    for path in (tmp_path / "again").rglob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            inside = b"".join(archive.read(entry) for entry in archive.namelist())
        assert not any(part in inside for part in (raw, raw.hex().encode(), secret.splitlines()[1]))


def test_another_key_signs_instead(transfr: Made, keys: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cli.done("export", "--run", transfr.run.path, "--out", out, "--key", keys / "private.pem")
    name = key_id(load_public(keys / "public.pem"))
    assert {open_bundle(path.parent).signed_by for path in out.glob("*/manifest.json")} == {name}
    cli.done("export", "--run", transfr.run.path, "--out", out)
    own = key_id(load_public(transfr.run.path / "publisher.pem"))
    assert {open_bundle(path.parent).signed_by for path in out.glob("*/manifest.json")} == {own}


@pytest.mark.parametrize("zipped", [False, True])
def test_recommend_takes_keys_and_zips(zipped: bool, transfr: Made, bundle: Path, keys: Path, cli: Cli) -> None:
    given, public = bundle, transfr.run.path / "publisher.pem"
    if zipped:
        given = pack(bundle, bundle.with_suffix(".zip"))
    shown = cli("recommend", bundle, "--k", "3")
    assert shown[::2] == (0, "")
    assert cli("recommend", given, "--k", "3", "--key", keys / "public.pem", "--key", public) == shown
    assert "which is not trusted" in cli.refused("recommend", given, "--key", keys / "public.pem")
    assert "cannot read key" in cli.refused("recommend", given, "--key", keys / "nothing")
    (bundle / "MODEL_CARD.md").write_text("changed")
    (bundle / "manifest.sig.json").unlink()
    broken = bundle
    if zipped:
        broken = given
        given.write_bytes(given.read_bytes()[:-40])
    line = cli.refused("recommend", broken)
    assert ("is not a plain zip" if zipped else "MODEL_CARD.md has") in line


@pytest.mark.parametrize("zipped", [False, True])
def test_a_device_takes_keys_and_zips(
    zipped: bool, transfr: Made, bundle: Path, keys: Path, cli: Cli, tmp_path: Path
) -> None:
    public, state = transfr.run.path / "publisher.pem", tmp_path / "state"
    items = json.loads((bundle / "index" / "ids.json").read_text())["ids"][:3]

    def given() -> Path:
        return pack(bundle, bundle.with_suffix(".zip")) if zipped else bundle

    learn = [word for item in items for word in ("--item", item)]
    others = (*learn, "--key", keys / "public.pem")
    assert "which is not trusted" in cli.refused("device", "learn", given(), "--state", state, *others)
    assert not (state / "state.safetensors").exists()
    (tmp_path / "policy.yaml").write_text("unprotected: true\n")
    learn += ["--policy", tmp_path / "policy.yaml"]
    cli.done("device", "learn", given(), "--state", state, *learn, "--key", public)
    cli.done("device", "recommend", given(), "--state", state, "-k", "2")
    cli.done("device", "status", given(), "--state", state)
    sign_bundle(bundle, keys / "private.pem")
    for command in ("learn", "recommend", "status"):
        assert "since its first use" in cli.refused("device", command, given(), "--state", state)
    (bundle / "manifest.sig.json").unlink()
    assert "is signed by nobody" in cli.refused("device", "recommend", given(), "--state", state)
    assert "is not signed" in cli.refused("device", "recommend", given(), "--state", tmp_path / "fresh")
