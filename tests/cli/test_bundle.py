"""`edgefr bundle` as used: what it says of good bundles, and one line for every bad one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest

from edge.archive import opened
from edge.bundle import open_bundle
from export.archive import pack
from export.sign import generate
from export.variants import ClassLimits
from tests.cli.conftest import Cli, Made
from tests.cli.test_bad_input import tree
from tests.edge.folders import edit_json, resign
from tests.export import worlds


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles that expire, of two classes: laptop and stick; read only."""
    out = tmp_path_factory.mktemp("bundles")
    classes = {"laptop": ClassLimits(8000, 20), "stick": ClassLimits(8000, 20)}
    users = {"laptop": [0, 4, 8], "stick": [1, 5, 9]}
    worlds.export(**worlds.arguments("fedmf", out) | {"classes": classes, "users_of": users}, expires_days=36_000)
    return out


@pytest.fixture
def bundle(source: Path, tmp_path: Path) -> Path:
    return shutil.copytree(source / "laptop", tmp_path / "laptop")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    generate(tmp_path / "keys")
    return tmp_path / "keys"


def lines(text: str) -> list[str]:
    """Lines with single spaces and without the borders of tables."""
    return [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]


def test_keygen_sign_verify(bundle: Path, cli: Cli, tmp_path: Path) -> None:
    out = cli.done("bundle", "keygen", "--out", tmp_path / "keys")
    key = out.split()[-1]
    assert out == f"made {tmp_path}/keys/private.pem and {tmp_path}/keys/public.pem, key {key}\n"
    private, public = tmp_path / "keys" / "private.pem", tmp_path / "keys" / "public.pem"
    what = f"{bundle} is good: laptop, fedmf, f32, serial 1795255200, 9 files, 0.01 MB; signature:"
    assert cli("bundle", "verify", bundle) == (0, f"{what} none\n", "")
    assert "laptop is not signed" in cli.refused("bundle", "verify", bundle, "--key", public)
    assert cli("bundle", "sign", bundle, "--key", private) == (0, f"signed {bundle} with key {key}\n", "")
    assert cli("bundle", "verify", bundle, "--key", public) == (0, f"{what} by {key}, a trusted key\n", "")
    unchecked = f"{what} by {key}, the key it brings; give --key for one you trust\n"
    assert cli("bundle", "verify", bundle) == (0, unchecked, "")
    assert open_bundle(bundle, trusted=[public]).signed_by == key


def test_a_zip_is_verified_and_signed_like_a_folder(
    bundle: Path, keys: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, scratch = pack(bundle, tmp_path / "laptop.zip"), tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert cli("bundle", "verify", archive)[0] == 0
    assert cli("bundle", "sign", archive, "--key", keys / "private.pem")[0] == 0
    code, out, _ = cli("bundle", "verify", archive, "--key", keys / "public.pem")
    assert code == 0
    assert "a trusted key" in out
    cli("bundle", "sign", bundle, "--key", keys / "private.pem")
    assert archive.read_bytes() == pack(bundle, tmp_path / "other.zip").read_bytes()
    archive.write_bytes(archive.read_bytes()[:-1])
    assert f"bundle {archive} is not a plain zip" in cli.refused("bundle", "verify", archive)
    assert list(scratch.iterdir()) == []


def test_inspect_shows_what_the_manifest_says(bundle: Path, keys: Path, cli: Cli) -> None:
    out = cli.done("bundle", "inspect", bundle)
    found = lines(out)
    for line in (
        "class laptop",
        "method fedmf",
        "variant f32",
        "made 2026-11-21T10:00:00+00:00, serial 1795255200",
        "expires 2125-06-15T10:00:00+00:00",
        "signature none",
        "graphs opset 18, IR 8, onnxruntime 1.17 or newer",
        "items 60",
        "parameters 0 shared, 8 private, 0 of the encoder",
        "simulated users 3",
        "from.data made up",
    ):
        assert line in found, found
    for entry in open_bundle(bundle).manifest.files:
        assert f"{entry.path} {entry.role} {entry.size:,} {entry.sha256[:12]}" in found
    assert max(map(len, out.splitlines())) <= 80
    cli("bundle", "sign", bundle, "--key", keys / "private.pem")
    assert "a trusted key" in " ".join(lines(cli("bundle", "inspect", bundle, "--key", keys / "public.pem")[1]))


def test_inspect_shows_learning_phases(bundle: Path, cli: Cli) -> None:
    dense = {"name": "user", "shape": [8], "place": "private", "kind": "dense"}
    rows = {"name": "item", "shape": [3, 8], "place": "shared", "kind": "rows"}
    phase = {"name": "all", "graph": "onnx/score.onnx", "purpose": "p", "when": "round", "epochs": 3}
    phase |= {"optimiser": "sgd", "dense": ["user"], "tables": ["item"], "lr": {"user": 0.25, "item": 2.0}}
    learning = {
        "tensors": [dense, rows],
        "phases": [phase],
        "score": "onnx/score.onnx",
        "negatives": 4,
        "batch_size": 32,
        "seed": 0,
        "round": 7,
        "release": {"clip": None, "norm": "l2", "noise": None, "scale": 0, "weights": "uniform"},
        "replay": None,
    }
    edit_json(bundle / "config.json", lambda record: record.update(learning=learning))
    resign(bundle)
    out = cli.done("bundle", "inspect", bundle)
    assert "batches of 32, 4 negatives per positive, after 7 rounds" in lines(out)
    text = " ".join(lines(out))
    assert "all round user, rows of item sgd 3" in text
    assert "0.25, 2" in text


def test_an_expired_bundle_is_shown_but_not_good(bundle: Path, cli: Cli) -> None:
    resign(bundle, lambda record: record.update(expires="2026-01-01T00:00:00+00:00"))
    assert "expires 2026-01-01T00:00:00+00:00 (EXPIRED)" in lines(cli("bundle", "inspect", bundle)[1])
    assert "expired on 2026-01-01T00:00:00+00:00; get a newer one" in cli.refused("bundle", "verify", bundle)
    assert cli("bundle", "diff", bundle, bundle)[0] == 0


def test_diff(source: Path, bundle: Path, keys: Path, cli: Cli, tmp_path: Path) -> None:
    one = open_bundle(source / "laptop").manifest
    archive = pack(bundle, tmp_path / "a.zip")
    same = (0, f"no difference: both are bundle {one.bundle_id}\n", "")
    assert cli("bundle", "diff", source / "laptop", archive) == same
    sizes = [(source / name / "private" / "users.json").stat().st_size for name in ("laptop", "stick")]
    out = cli.done("bundle", "diff", source / "laptop", source / "stick")
    assert "device_class laptop stick" in lines(out)
    assert f"private/users.json changed private {sizes[0]} {sizes[1]}" in lines(out)
    assert not any("score.onnx" in line or "serial" in line for line in lines(out)), "what is the same is not shown"
    (bundle / "notes.md").write_text("hello")
    (bundle / "MODEL_CARD.md").unlink()

    def change(record: dict) -> None:
        record["provenance"]["more"] = {"deep": [1, "\x1b[2J"]}
        record["serial"] += 1

    record = json.loads((bundle / "manifest.json").read_text())
    record["files"][0] |= {"path": "notes.md"}
    (bundle / "manifest.json").write_text(json.dumps(record))
    resign(bundle, change)
    cli("bundle", "sign", bundle, "--key", keys / "private.pem")
    out = cli.done("bundle", "diff", source / "laptop", bundle)
    assert "notes.md added card - 5" in lines(out)
    assert any(line.startswith("MODEL_CARD.md removed card") for line in lines(out))
    assert "serial 1795255200 1795255201" in lines(out)
    assert 'provenance.more.deep - [1, "\\u001b[2J"]' in lines(out)
    assert any(line.startswith("signed by nobody ") for line in lines(out))
    assert "\x1b" not in out


def test_what_is_wrong_is_one_line(bundle: Path, keys: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "noise.zip").write_bytes(os.urandom(500))
    newer = shutil.copytree(bundle, tmp_path / "newer")
    resign(newer, lambda record: record.update(schema="edgefr.bundle/9"))
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as odd:
        odd.writestr("manifest.json", "{}")
        odd.writestr("a\x1b[2J/../b", "")
    before = tree(tmp_path)
    for arguments, part in (
        (["verify", tmp_path / "nothing"], "no such folder; make one with `edgefr export`"),
        (["verify", tmp_path], "has no manifest.json"),
        (["verify", tmp_path / "noise.zip"], "is not a plain zip"),
        (["verify", tmp_path / "odd.zip"], "is not a plain relative path inside the bundle"),
        (["verify", newer], "another schema, edgefr.bundle/9; this edgefr reads edgefr.bundle/3; update edgefr"),
        (["verify", bundle, "--newest", "1795255201"], "older than one before it"),
        (["verify", bundle, "--key", tmp_path / "nokey"], "cannot read key"),
        (["verify", bundle, "--newest", "-1"], "greater than or equal to 0"),
        (["inspect", tmp_path / "noise.zip"], "is not a plain zip"),
        (["diff", bundle, tmp_path / "nothing"], "no such folder"),
        (["sign", bundle, "--key", keys / "public.pem"], "is a public key; signing takes the private one"),
        (["sign", tmp_path, "--key", keys / "private.pem"], "has no manifest.json"),
        (["sign", bundle], "--key"),
        (["keygen", "--out", keys], "exists; choose another folder"),
        (["verfy"], "No such command"),
    ):
        line = cli.refused("bundle", *arguments)
        assert part in line, line
        assert "\x1b" not in line
    assert tree(tmp_path) == before


def test_export_signs_zips_and_dates(fedmf: Made, keys: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "shipped"
    arguments = ["export", "--run", fedmf.run.path / "seed-0", "--out", out, "--key", keys / "private.pem", "--zip"]
    assert "is a public key" in cli.refused(*arguments[:-2], keys / "public.pem")
    assert not out.exists()
    _ = cli.done(*arguments, "--expires-days", "30")
    folders = sorted(p.name for p in out.iterdir() if p.is_dir())
    assert len(folders) > 1
    assert sorted(p.name for p in out.iterdir()) == sorted([*folders, *(f"{name}.zip" for name in folders)])
    for name in folders:
        with opened(out / f"{name}.zip", trusted=[keys / "public.pem"]) as found:
            assert tree(found.root) == tree(out / name)
            assert found.manifest.expires is not None
