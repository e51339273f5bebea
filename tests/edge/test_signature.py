"""Signatures: the published test vectors of Ed25519, and a bundle that only its maker's key opens."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import edge.signature
from edge import Recommender, open_bundle
from edge.signature import END, NAMES, TRAILER, Signature, check, load_public, opened_seal, statement, verify
from export.sign import generate, load_private, sealed, sign_bundle, signature_of
from privacy.errors import InputError
from tests.edge.folders import resign
from tests.export import worlds


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two key pairs: mine/ and other/."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("mine", "other"):
        generate(folder / name)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A copy of a small bundle."""
    return shutil.copytree(worlds.exported("fedmf")[0] / "speaker", tmp_path / "speaker")


# RFC 8032 §7.1: TEST 1 (empty message) and TEST 3 (two bytes); public key, message, signature
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("public", "message", "signature"), VECTORS)
def test_published_signatures_are_right_and_others_are_not(public: str, message: str, signature: str) -> None:
    said = bytes.fromhex(message)
    record = {"schema": "edgefr.signature/3", "kind": "bundle", "public": public, "signature": signature}
    verify("x", said, Signature.model_validate(record))
    for content in (said + b"\0", b"other"):
        with pytest.raises(InputError, match="x: the signature is wrong, it was changed after it was signed"):
            verify("x", content, Signature.model_validate(record))
    wrong = record | {"signature": signature[:-2] + ("0a" if signature.endswith("0b") else "0b")}
    with pytest.raises(InputError, match="the signature is wrong"):
        verify("x", said, Signature.model_validate(wrong))


# DSSE, protocol.md: PAE(type, body), the second of a type and a body with their lengths in bytes
def test_what_is_signed_is_the_published_encoding_of_type_and_body() -> None:
    assert statement("bundle", b"") == b"DSSEv1 29 application/vnd.edgefr.bundle 0 "
    assert statement("delta", "hällo".encode()) == b"DSSEv1 28 application/vnd.edgefr.delta 6 h\xc3\xa4llo"


@pytest.mark.parametrize("signed", NAMES)
@pytest.mark.parametrize("asked", NAMES)
def test_a_signature_of_one_kind_of_thing_is_none_of_another(signed: Any, asked: Any, keys: Path) -> None:
    content, mine = b"the same bytes", [keys / "mine" / "public.pem"]
    raw = signature_of(signed, content, load_private(keys / "mine" / "private.pem"))
    if signed == asked:
        assert check(asked, "x", content, raw, mine)
        return
    for trusted in (mine, None):
        with pytest.raises(InputError, match=f"x has a signature of {NAMES[signed]}, not of {NAMES[asked]}; get"):
            check(asked, "x", content, raw, trusted)
        renamed = json.dumps(json.loads(raw) | {"kind": asked}).encode()
        with pytest.raises(InputError, match="x: the signature is wrong"):
            check(asked, "x", content, renamed, trusted)


def test_the_bytes_alone_are_never_what_is_signed(bundle: Path, keys: Path) -> None:
    """As it was before kinds were named: whoever signs any file at all would have signed a bundle."""
    key, content = load_private(keys / "mine" / "private.pem"), (bundle / "manifest.json").read_bytes()
    public = key.public_key().public_bytes_raw().hex()
    record = {"public": public, "signature": key.sign(content).hex()}
    path = bundle / "manifest.sig.json"
    path.write_text(json.dumps({"schema": "edgefr.signature/3", "kind": "bundle"} | record))
    for trusted in (None, [keys / "mine" / "public.pem"]):
        with pytest.raises(InputError, match="the signature is wrong"):
            open_bundle(bundle, trusted=trusted)


def test_a_private_key_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even between being written and being renamed."""
    modes, replace = [], os.replace

    def seen(source: str, target: Path) -> None:
        modes.append((Path(target).name, os.stat(source).st_mode & 0o777))
        replace(source, target)

    monkeypatch.setattr(os, "replace", seen)
    old = os.umask(0)
    try:
        generate(tmp_path)
    finally:
        os.umask(old)
    assert modes == [("private.pem", 0o600), ("public.pem", 0o644)]


def test_a_signed_bundle_opens_with_its_key_only(bundle: Path, keys: Path) -> None:
    mine, other = keys / "mine" / "public.pem", keys / "other" / "public.pem"
    assert open_bundle(bundle).signed_by is None
    with pytest.raises(InputError, match="speaker is not signed; get a signed one"):
        open_bundle(bundle, trusted=[mine])
    name = sign_bundle(bundle, keys / "mine" / "private.pem")
    record = json.loads((bundle / "manifest.sig.json").read_text())
    assert {key: len(value) for key, value in record.items()} == {
        "schema": 18,
        "kind": 6,
        "public": 64,
        "signature": 128,
    }
    assert hashlib.sha256(bytes.fromhex(record["public"])).hexdigest() == name
    assert open_bundle(bundle, trusted=[mine]).signed_by == name
    assert open_bundle(bundle, trusted=[other, mine]).signed_by == name
    assert open_bundle(bundle).signed_by == name, "whoever it was"
    assert Recommender(bundle).recommend(1, history=[0])
    for trusted in ([], [other]):
        with pytest.raises(InputError, match=rf"is signed by key {name[:16]}\.\.\., which is not trusted"):
            open_bundle(bundle, trusted=trusted)


def test_a_rewritten_bundle_with_true_digests_is_refused(bundle: Path, keys: Path) -> None:
    """What digests cannot find: everything is consistent, but not what was signed."""
    sign_bundle(bundle, keys / "mine" / "private.pem")
    (bundle / "MODEL_CARD.md").write_text("rewritten")
    signature = (bundle / "manifest.sig.json").read_bytes()
    resign(bundle)
    (bundle / "manifest.sig.json").write_bytes(signature)
    for trusted in (None, [keys / "mine" / "public.pem"]):
        with pytest.raises(InputError, match="the signature is wrong, it was changed after it was signed"):
            open_bundle(bundle, trusted=trusted)


@pytest.mark.parametrize("content", [b"", b"x", b"content" * 1000])
def test_what_is_sealed_comes_apart_again(content: bytes, keys: Path) -> None:
    whole = sealed(content, load_private(keys / "mine" / "private.pem"))
    found, signature = opened_seal(whole)
    assert found == content
    assert check("delta", "x", found, signature, [keys / "mine" / "public.pem"])
    assert opened_seal(content) == (content, None)
    cut, _ = opened_seal(b"more" + whole)
    with pytest.raises(InputError, match="the signature is wrong"):
        check("delta", "x", cut, signature, None)
    for damaged in (TRAILER, b"\xff" * 4 + TRAILER, whole[-END.size :], b"\xff\xff\0\0" + TRAILER):
        with pytest.raises(InputError, match="cut off, or its signature is too long"):
            opened_seal(damaged)


def test_the_signature_is_checked_before_the_manifest_is_parsed(bundle: Path, keys: Path) -> None:
    sign_bundle(bundle, keys / "mine" / "private.pem")
    (bundle / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="the signature is wrong"):
        open_bundle(bundle, trusted=[keys / "mine" / "public.pem"])


GOOD = {"schema": "edgefr.signature/3", "kind": "bundle", "public": "0" * 64, "signature": "0" * 128}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b"[" * 4000,
        json.dumps(GOOD | {"schema": "edgefr.signature/4"}).encode(),
        json.dumps(GOOD | {"public": "0" * 63}).encode(),
        json.dumps(GOOD | {"public": "G" * 64}).encode(),
        json.dumps(GOOD | {"signature": "0" * 126}).encode(),
        json.dumps(GOOD | {"signature": None}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(),
        json.dumps(GOOD | {"kind": "file"}).encode(),
        json.dumps({k: v for k, v in GOOD.items() if k != "kind"}).encode(),
    ],
)
def test_a_malformed_signature_is_refused_with_and_without_trust(content: bytes, bundle: Path, keys: Path) -> None:
    (bundle / "manifest.sig.json").write_bytes(content)
    for trusted in (None, [keys / "mine" / "public.pem"]):
        with pytest.raises(InputError, match=r"speaker: its signature is not an edgefr\.signature/3 file"):
            open_bundle(bundle, trusted=trusted)


def other_keys(folder: Path) -> dict[str, bytes]:
    """Key files of other kinds, by name."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    curve, mine = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    where, how = form.Encoding.PEM, form.PrivateFormat.PKCS8
    return {
        "curve": curve.private_bytes(where, how, form.NoEncryption()),
        "curve.pub": curve.public_key().public_bytes(where, form.PublicFormat.SubjectPublicKeyInfo),
        "locked": mine.private_bytes(where, how, form.BestAvailableEncryption(b"secret")),
        "noise": os.urandom(64),
        "empty": b"",
        "long": b"-" * 5000,
        "cut": (folder / "mine" / "private.pem").read_bytes()[:60],
    }


@pytest.mark.parametrize(
    ("name", "private", "public"),
    [
        ("curve", "a private key, but not of Ed25519", "is a private key, which never leaves who signs"),
        ("curve.pub", "is a public key; signing takes the private", "is a public key, but not of Ed25519"),
        ("locked", "has a password; give the key without", "is a private key"),
        ("noise", "not a private key in PEM", "not a public key in PEM"),
        ("empty", "not a private key in PEM", "not a public key in PEM"),
        ("long", "too large for a key file", "too large for a key file"),
        ("cut", "not a private key in PEM", "is a private key"),
        ("missing", "cannot read key .*missing: No such file", "cannot read key .*missing: No such file"),
        (".", "cannot read key .*: Is a directory", "cannot read key .*: Is a directory"),
    ],
)
def test_files_that_are_not_the_right_key(name: str, private: str, public: str, keys: Path, tmp_path: Path) -> None:
    for file, content in other_keys(keys).items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=private):
        load_private(tmp_path / name)
    with pytest.raises(InputError, match=public):
        load_public(tmp_path / name)


def test_what_a_device_would_refuse_is_not_signed(bundle: Path, keys: Path) -> None:
    (bundle / "MODEL_CARD.md").write_text("changed")
    with pytest.raises(InputError, match=r"MODEL_CARD\.md has"):
        sign_bundle(bundle, keys / "mine" / "private.pem")
    assert not (bundle / "manifest.sig.json").exists()


def test_a_key_pair(tmp_path: Path) -> None:
    name = generate(tmp_path / "keys")
    private, public = tmp_path / "keys" / "private.pem", tmp_path / "keys" / "public.pem"
    assert private.stat().st_mode & 0o777 == 0o600
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert public.read_text().startswith("-----BEGIN PUBLIC KEY-----\n")
    assert name == hashlib.sha256(load_public(public).public_bytes_raw()).hexdigest()
    assert load_private(private).public_key() == load_public(public)
    before = private.read_bytes()
    with pytest.raises(InputError, match=r"private\.pem exists; choose another folder"):
        generate(tmp_path / "keys")
    private.unlink()
    with pytest.raises(InputError, match=r"public\.pem exists"):
        generate(tmp_path / "keys")
    assert generate(tmp_path / "more") != name
    assert (tmp_path / "more" / "private.pem").read_bytes() != before


def test_signing_again_replaces_the_signature(bundle: Path, keys: Path) -> None:
    first = sign_bundle(bundle, keys / "mine" / "private.pem")
    content = (bundle / "manifest.sig.json").read_bytes()
    assert sign_bundle(bundle, keys / "mine" / "private.pem") == first
    assert (bundle / "manifest.sig.json").read_bytes() == content
    second = sign_bundle(bundle, keys / "other" / "private.pem")
    assert open_bundle(bundle, trusted=[keys / "other" / "public.pem"]).signed_by == second != first


def test_a_signature_with_somebody_elses_key_in_it_is_refused(bundle: Path, keys: Path) -> None:
    sign_bundle(bundle, keys / "mine" / "private.pem")
    path = bundle / "manifest.sig.json"
    other = load_public(keys / "other" / "public.pem").public_bytes_raw().hex()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"public": other}))
    for trusted in (None, [keys / "mine" / "public.pem"], [keys / "other" / "public.pem"]):
        with pytest.raises(InputError, match="the signature is wrong"):
            open_bundle(bundle, trusted=trusted)


def test_a_signature_that_is_large_or_a_link_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = bundle / "manifest.sig.json"
    path.write_bytes(json.dumps(GOOD).encode() + b" " * edge.signature.LIMIT)
    with pytest.raises(InputError, match=r"manifest\.sig\.json has more than 4,096 bytes"):
        open_bundle(bundle)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"manifest\.sig\.json is a symbolic link"):
        open_bundle(bundle)


def test_a_signature_of_another_bundle_is_refused(keys: Path, tmp_path: Path) -> None:
    source = worlds.exported("fedmf")[0]
    one, two = (shutil.copytree(source / name, tmp_path / name) for name in ("speaker", "stick"))
    sign_bundle(one, keys / "mine" / "private.pem")
    shutil.copy(one / "manifest.sig.json", two)
    with pytest.raises(InputError, match="the signature is wrong"):
        open_bundle(two, trusted=[keys / "mine" / "public.pem"])
