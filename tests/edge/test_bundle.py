"""Opening bundles: whatever is wrong with the folder, one line names the file."""

import json
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge.bundle
from edge import open_bundle
from edge.manifest_check import identity, reads, version
from privacy.errors import InputError
from tests.edge.folders import resign
from tests.export import worlds


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of a good bundle with an encoder."""
    return shutil.copytree(worlds.exported("transfr")[0] / "phone", tmp_path / "phone")


@pytest.fixture(scope="module")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a small bundle that a test may change if it changes it back."""
    return shutil.copytree(worlds.exported("fedmf")[0] / "speaker", tmp_path_factory.mktemp("spare") / "speaker")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_flipping_any_byte_of_any_file_is_refused(spare: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(p for p in spare.rglob("*") if p.is_file())))
    good = path.read_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    flipped = good[position] ^ data.draw(st.integers(1, 255))
    path.write_bytes(good[:position] + bytes([flipped]) + good[position + 1 :])
    try:
        with pytest.raises(InputError, match=path.name):
            open_bundle(spare)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw + b"\n",
        lambda raw: raw.replace(b'"serial": ', b'"serial":  '),
        lambda raw: json.dumps(json.loads(raw), ensure_ascii=False).encode(),
        lambda raw: json.dumps(dict(reversed(json.loads(raw).items())), indent=2, ensure_ascii=False).encode() + b"\n",
        lambda raw: raw.replace(b"{", b'{\n  "serial": 7,', 1),
    ],
    ids=["a line", "a space", "on one line", "another order", "a field twice"],
)
def test_a_manifest_has_one_form(change, spare: Path) -> None:
    path = spare / "manifest.json"
    good = path.read_bytes()
    path.write_bytes(change(good))
    assert path.read_bytes() != good
    try:
        with pytest.raises(InputError, match=r"manifest\.json was changed after it was written"):
            open_bundle(spare)
    finally:
        path.write_bytes(good)


def replace(record: dict, **values: object) -> None:
    record["files"][0].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: (b / "manifest.json").unlink(), r"has no manifest\.json"),
        (
            lambda b: (b / "manifest.json").write_bytes(b"\x00\xff\x80"),
            r"manifest\.json is not a edgefr\.bundle/3",
        ),
        (lambda b: (b / "manifest.json").write_text("[" * 100_000), r"manifest\.json is not a"),
        (lambda b: (b / "manifest.json").write_bytes(b" " * (1 << 20) + b"{}"), "more than 1,048,576"),
        (lambda b: resign(b, lambda r: r.update(schema="edgefr.bundle/1")), "another schema.* export it again"),
        (lambda b: resign(b, lambda r: r.update(schema="edgefr.bundle/4")), "another schema.* update edgefr"),
        (lambda b: resign(b, lambda r: r.update(schema="bundle")), "schema: Input should be"),
        (lambda b: resign(b, lambda r: r.update(schema=["edgefr.bundle/4"])), "schema: Input should be"),
        (lambda b: resign(b, lambda r: r["onnx"].update(opset=200)), "opset 200 and IR 8, .*update onnxruntime"),
        (lambda b: resign(b, lambda r: r["onnx"].update(ir=99)), "opset 18 and IR 99, .*update onnxruntime"),
        (lambda b: resign(b, lambda r: r["onnx"].update(opset=0)), "onnx.opset: Input should be"),
        (lambda b: resign(b, lambda r: r["onnx"].update(min_ort="9.1")), "needs onnxruntime 9.1 or newer, installed"),
        (lambda b: resign(b, lambda r: r["onnx"].update(min_ort="new")), "onnx.min_ort: String should match"),
        (lambda b: resign(b, lambda r: r.update(expires="2026-11-20T00:00:00+00:00")), "expired on 2026-11-20T"),
        (lambda b: resign(b, lambda r: r.update(expires="2126-11-20")), "expires: .*does not say its offset"),
        (lambda b: resign(b, lambda r: r.update(expires="soon")), "expires: .*Invalid isoformat"),
        (lambda b: resign(b, lambda r: r.update(variant="a\x1b[2Jb")), "variant: .*cannot be shown"),
        (lambda b: resign(b, lambda r: r.update(colour="red")), "colour: Extra inputs"),
        (lambda b: resign(b, lambda r: r.pop("serial")), "serial: Field required"),
        (lambda b: resign(b, lambda r: r.update(item_count=0)), "item_count: Input should be"),
        (lambda b: resign(b, lambda r: replace(r, path="../x")), "'../x' is not a plain relative path"),
        (lambda b: resign(b, lambda r: replace(r, path="/etc/passwd")), "'/etc/passwd' is not a plain"),
        (lambda b: resign(b, lambda r: replace(r, path="a//b")), "'a//b' is not a plain"),
        (lambda b: resign(b, lambda r: replace(r, path="c:\\x")), "is not a plain relative path"),
        (lambda b: resign(b, lambda r: replace(r, path="manifest.json")), "is not a plain relative path"),
        (lambda b: resign(b, lambda r: replace(r, path="Manifest.sig.JSON")), "is not a plain relative path"),
        (lambda b: resign(b, lambda r: replace(r, path="a /b.")), "is not a plain relative path"),
        (lambda b: resign(b, lambda r: replace(r, size=-1)), "size: Input should be greater"),
        (lambda b: resign(b, lambda r: replace(r, size=5 << 30)), "more than 4,294,967,296 allowed"),
        (lambda b: resign(b, lambda r: r["files"].append(r["files"][0])), r"lists MODEL_CARD\.md twice"),
        (
            lambda b: resign(b, lambda r: r["files"].append(r["files"][0] | {"path": "model_card.md"})),
            "lists model_card",
        ),
        (lambda b: resign(b, lambda r: r["files"].pop(0)), r"MODEL_CARD\.md is not listed"),
        (lambda b: (b / "index" / ".hidden").write_text(""), r"index/\.hidden is not listed"),
        (lambda b: (b / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
        (
            lambda b: os.truncate(b / "onnx" / "encoder.i8.onnx", 100),
            r"encoder\.i8\.onnx has 100 bytes instead of",
        ),
        (lambda b: (b / "index" / "ids.json").open("a").write(" "), r"index/ids\.json has"),
        (lambda b: os.mkfifo(b / "pipe"), "pipe is not a regular file"),
        (lambda b: resign(b, lambda r: [f.update(role="card") for f in r["files"]]), "role config, has 0"),
    ],
)
def test_a_bad_folder_is_refused(change, message: str, bundle: Path) -> None:
    change(bundle)
    with pytest.raises(InputError, match=message) as caught:
        open_bundle(bundle)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["tokenizer.json", "manifest.json", "index", "extra"])
def test_links_are_refused(name: str, bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    if (bundle / name).exists():
        (bundle / name).rename(elsewhere)
    (bundle / name).symlink_to(elsewhere)
    with pytest.raises(InputError, match=f"{name} is a symbolic link" if name != "manifest.json" else "manifest.json"):
        open_bundle(bundle)


def test_nothing_is_hashed_before_names_and_sizes_are_known(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(path: Path) -> str:
        raise AssertionError(f"hashed {path}")

    monkeypatch.setattr(edge.bundle, "sha256_of", hashed)
    (bundle / "zzz").write_text("unlisted")
    with pytest.raises(InputError, match="zzz is not listed"):
        open_bundle(bundle)


def test_folders_without_end(bundle: Path) -> None:
    deep = bundle
    for _ in range(1100):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(InputError, match="nested too deeply"):
        open_bundle(bundle)
    while deep != bundle:  # deeper than pytest's own cleaning goes
        deep.rmdir()
        deep = deep.parent


def test_a_bundle_is_good_until_it_expires(bundle: Path) -> None:
    resign(bundle, lambda r: r.update(expires="2030-01-01T02:00:00+02:00"))
    last = datetime(2029, 12, 31, 23, 59, 59)
    assert open_bundle(bundle, now=last).manifest.expires == "2030-01-01T02:00:00+02:00"
    for late in (datetime(2030, 1, 1), datetime(2030, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))):
        with pytest.raises(InputError, match=r"expired on 2030-01-01T02:00:00\+02:00; get a newer one"):
            open_bundle(bundle, now=late)


def test_no_step_back_behind_what_was_seen(bundle: Path) -> None:
    serial = open_bundle(bundle).manifest.serial
    assert open_bundle(bundle, newest=serial).manifest.serial == serial
    with pytest.raises(InputError, match=rf"older than one before it \(serial {serial}, {serial + 1} was seen here\)"):
        open_bundle(bundle, newest=serial + 1)


def test_what_the_runtime_says_it_reads_it_reads() -> None:
    """The probe against the onnx package: the same graph to it, and the runtime's answer is that of a real graph."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(identity(8, 18))
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version, model.graph.node[0].op_type) == (8, 18, "Identity")
    assert reads(8, 18)
    assert not reads(8, 10_000)
    assert not reads(10_000, 18)


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_bundle(tmp_path / "nothing")


def test_no_graph_of_a_bundle_is_given_to_a_runtime_that_is_too_old(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge.ort import ort

    monkeypatch.setattr(ort, "__version__", "1.16.3")
    with pytest.raises(InputError, match=r"needs onnxruntime 1\.17 or newer, installed is 1\.16\.3; update"):
        open_bundle(bundle)


def test_all_of_the_manifest_counts(spare: Path) -> None:
    path = spare / "manifest.json"
    good = path.read_bytes()
    try:
        for position in range(0, len(good), 5):
            path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
            with pytest.raises(InputError, match=r"manifest\.json"):
                open_bundle(spare)
    finally:
        path.write_bytes(good)
    assert open_bundle(spare).manifest.method == "fedmf"


@pytest.mark.parametrize(("older", "newer"), [("1.9", "1.17"), ("1.17", "1.17.1"), ("1.17.1", "1.18.0.dev2+cpu")])
def test_versions_are_numbers(older: str, newer: str) -> None:
    assert version(older) < version(newer)
