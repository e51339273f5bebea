"""Bundles as zip files: the same bundle gives the same bytes, and no zip reaches beyond its own new folder."""

import io
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from edge import Recommender
from edge.archive import opened, unpack
from edge.manifest_check import AdmissionTerms
from export.archive import pack
from export.sign import sign_bundle
from privacy.errors import InputError
from tests.edge.folders import resign, tree
from tests.edge.test_hostile import ELSEWHERE
from tests.export import worlds

DEFLATED, STORED = zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED


@pytest.fixture(scope="module")
def source() -> Path:
    """A small bundle; read only."""
    return worlds.exported("fedmf")[0] / "speaker"


@pytest.fixture
def bundle(source: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(source, tmp_path / "bundle")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """A folder to unpack into; at the end it is as it was, and so is everything around it."""
    outside = tmp_path / "outside"
    (outside / "within").mkdir(parents=True)
    (outside / "diary.txt").write_text("mine")
    yield outside / "within"
    assert tree(outside) == {"diary.txt": b"mine"}
    assert [p.name for p in sorted(outside.rglob("*"))] == ["diary.txt", "within"]


Member = tuple[zipfile.ZipInfo, bytes]


def members(folder: Path) -> dict[str, Member]:
    """What a zip of the folder has, to be tampered with."""
    out = {}
    for name, content in tree(folder).items():
        info = zipfile.ZipInfo(name)
        info.external_attr, info.create_system = (stat.S_IFREG | 0o644) << 16, 3
        out[name] = info, content
    return out


def zipped(parts: list[Member] | dict[str, Member]) -> bytes:
    """A zip of these members, however odd."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for info, content in parts.values() if isinstance(parts, dict) else parts:
            packed.writestr(info, content)
    return out.getvalue()


def changed(parts: dict[str, Member], name: str, **values: int) -> dict[str, Member]:
    for key, value in values.items():
        setattr(parts[name][0], key, value)
    return parts


def test_a_zip_is_the_bundle(source: Path, tmp_path: Path) -> None:
    archive = pack(source, tmp_path / "a.zip")
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
        assert names == ["manifest.json", *sorted(set(tree(source)) - {"manifest.json"})]
        assert {name: packed.read(name) for name in names} == tree(source)
        assert {i.date_time for i in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    bundle = unpack(archive, tmp_path / "new" / "folder")
    assert bundle.root == tmp_path / "new" / "folder"
    assert tree(bundle.root) == tree(source)
    assert stat.S_IMODE(bundle.root.stat().st_mode) == 0o755
    assert Recommender(bundle.root).recommend(3) == Recommender(source).recommend(3)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["folder"]


def test_a_zip_is_looked_at_without_leaving_anything(source: Path, tmp_path: Path, monkeypatch) -> None:
    import tempfile

    archive, scratch = pack(source, tmp_path / "a.zip"), tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with opened(archive) as bundle:
        assert bundle.root.is_relative_to(scratch)
        assert bundle.manifest.method == "fedmf"
    assert list(scratch.iterdir()) == []
    archive.write_bytes(archive.read_bytes()[:-40] + bytes(40))
    with pytest.raises(InputError), opened(archive):
        pass
    assert list(scratch.iterdir()) == []
    with opened(source) as bundle:
        assert bundle.root == source


def test_the_signature_travels(bundle: Path, keys: Path, tmp_path: Path) -> None:
    mine = [keys / "mine" / "public.pem"]
    with pytest.raises(InputError, match=r"a\.zip is not signed"):
        unpack(pack(bundle, tmp_path / "a.zip"), tmp_path / "new", AdmissionTerms(mine))
    key = sign_bundle(bundle, keys / "mine" / "private.pem")
    archive = pack(bundle, tmp_path / "a.zip")
    assert unpack(archive, tmp_path / "new", AdmissionTerms(mine)).signed_by == key
    with pytest.raises(InputError, match="not trusted"):
        unpack(archive, tmp_path / "newer", AdmissionTerms([keys / "other" / "public.pem"]))
    assert not (tmp_path / "newer").exists()


def test_a_folder_that_is_there_is_left_alone(source: Path, tmp_path: Path) -> None:
    archive = pack(source, tmp_path / "a.zip")
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "link"):
        with pytest.raises(InputError, match=f"{name} exists; choose another folder"):
            unpack(archive, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "link", "taken"]


def without(parts: dict[str, Member], name: str) -> dict[str, Member]:
    del parts[name]
    return parts


def more(parts: dict[str, Member], name: str) -> dict[str, Member]:
    return parts | {name: (zipfile.ZipInfo(name), b"boo")}


KINDS = {"link": stat.S_IFLNK, "pipe": stat.S_IFIFO, "device": stat.S_IFCHR, "folder": stat.S_IFDIR, "socket": 0xC000}
CARD = "MODEL_CARD.md"
TAMPERED: dict[str, tuple[Callable[[dict[str, Member]], bytes], str]] = {
    "no manifest": (lambda m: zipped(without(m, "manifest.json")), r"it has no manifest\.json"),
    "a file missing": (lambda m: zipped(without(m, CARD)), r"MODEL_CARD\.md is missing"),
    "a file too many": (lambda m: zipped(more(m, "index/zzz")), "index/zzz is not listed"),
    "a file twice": (lambda m: zipped([*m.values(), m[CARD]]), "holds MODEL_CARD.md twice"),
    "two manifests": (lambda m: zipped([*m.values(), m["manifest.json"]]), r"holds manifest\.json twice"),
    "a shorter file": (lambda m: zipped(m | {CARD: (m[CARD][0], b"short")}), "MODEL_CARD.md has 5 bytes instead of"),
    "another file": (
        lambda m: zipped(m | {CARD: (m[CARD][0], bytes(len(m[CARD][1])))}),
        r"MODEL_CARD\.md was changed \(its sha256 differs",
    ),
    "a large manifest": (
        lambda m: zipped(m | {"manifest.json": (m["manifest.json"][0], b" " * (5 << 20))}),
        "manifest.json has more than 1,048,576 bytes",
    ),
    "a large signature": (lambda m: zipped(more(m, "x") | big_signature()), "sig.json has more than 4,096 bytes"),
    "bzip2": (lambda m: zipped(changed(m, CARD, compress_type=zipfile.ZIP_BZIP2)), "packed in an unusual way"),
    "lzma": (lambda m: zipped(changed(m, CARD, compress_type=zipfile.ZIP_LZMA)), "packed in an unusual way"),
    "encrypted": (lambda m: patched(zipped(m), 8, 6, "<H", 1), "is encrypted or packed"),
    "patch data": (lambda m: patched(zipped(m), 8, 6, "<H", 0x20), "is encrypted or packed"),
    "a newer zip": (lambda m: patched(zipped(m), 6, 4, "<H", 99), "is a damaged zip"),
    "other local name": (lambda m: zipped(m).replace(b"MODEL_CARD.md", b"model_card.md", 1), "is a damaged zip"),
    "a comment": (lambda m: commented(zipped(m)), "is not a plain zip"),
    "bytes before": (lambda m: b"#!/bin/sh\n" + zipped(m), "has something beside its files"),
    "bytes behind": (lambda m: zipped(m) + b"more", "is not a plain zip"),
    "cut": (lambda m: zipped(m)[:-1], "is not a plain zip"),
    "half": (lambda m: zipped(m)[: len(zipped(m)) // 2], "is not a plain zip"),
    "empty": (lambda m: b"", "is not a plain zip"),
    "empty zip": (lambda m: zipped([]), r"it has no manifest\.json"),
    "not a zip": (lambda m: b"\x7fELF" * 100, "is not a plain zip"),
    "zip64": (lambda m: with_zip64(zipped(m)), "has something beside its files"),
    "a hidden zip64": (lambda m: zipped(noted(m, b"PK\x06\x07" + bytes(16))), "lists more files than a bundle has"),
    "many files": (lambda m: ended(zipped(m), "<H", 8, 10_001, "<H", 10, 10_001), "lists more files than a bundle has"),
    "a count too low": (lambda m: ended(zipped(m), "<H", 8, 1, "<H", 10, 2), "has something beside its files"),
}


def noted(parts: dict[str, Member], comment: bytes) -> dict[str, Member]:
    """With a comment on the last member: the last bytes of the list of members."""
    list(parts.values())[-1][0].comment = comment
    return parts


def big_signature() -> dict[str, Member]:
    return {"manifest.sig.json": (zipfile.ZipInfo("manifest.sig.json"), b" " * 5000)}


def patched(archive: bytes, central: int, local: int, form: str, value: int) -> bytes:
    """With a field of every member's two headers overwritten."""
    out = bytearray(archive)
    for mark, at in ((b"PK\x01\x02", central), (b"PK\x03\x04", local)):
        start = out.find(mark)
        while start >= 0:
            struct.pack_into(form, out, start + at, value)
            start = out.find(mark, start + 4)
    return bytes(out)


def ended(archive: bytes, *fields: object) -> bytes:
    """With fields of the end record overwritten: format, offset, value, ..."""
    out = bytearray(archive)
    for form, at, value in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        struct.pack_into(str(form), out, len(out) - 22 + int(str(at)), value)
    return bytes(out)


def commented(archive: bytes) -> bytes:
    return archive[:-2] + struct.pack("<H", 3) + b"boo"


def with_zip64(archive: bytes) -> bytes:
    """With a zip64 end record and its locator before the plain one, which alone would be right."""
    body, end = archive[:-22], archive[-22:]
    _, _, _, count, _, length, offset, _ = struct.unpack("<4s4H2LH", end)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, offset)
    return body + record + struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1) + end


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_zip_is_refused(case: str, source: Path, alone: Path, tmp_path: Path) -> None:
    make, message = TAMPERED[case]
    (tmp_path / "a.zip").write_bytes(make(members(source)))
    with pytest.raises(InputError, match=message) as caught:
        unpack(tmp_path / "a.zip", alone / "new")
    assert "\n" not in str(caught.value)
    assert str(alone) not in str(caught.value), "the user knows the zip, not where it was unpacked"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [CARD, "manifest.json"])
def test_what_is_no_ordinary_file_is_refused(kind: str, name: str, source: Path, alone: Path, tmp_path: Path) -> None:
    parts = changed(members(source), name, external_attr=(KINDS[kind] | 0o777) << 16)
    (tmp_path / "a.zip").write_bytes(zipped(parts))
    with pytest.raises(InputError, match=f"{name} is a link, folder or device"):
        unpack(tmp_path / "a.zip", alone / "new")


def bomb(source: Path, bundle: Path, size: int, claimed: int) -> bytes:
    """A zip in which one listed file inflates to `size` bytes while both headers and the manifest say `claimed`."""
    name = "index/ids.json"
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    squeezed = b"".join(deflate.compress(bytes(1 << 20)) for _ in range(size >> 20)) + deflate.flush()
    resign(bundle, lambda r: [f.update(size=claimed) for f in r["files"] if f["path"] == name])
    parts = members(bundle)
    info = parts[name][0]
    parts[name] = info, squeezed  # stored for now; then both headers are made to say that it is deflated
    out = bytearray(zipped(parts))
    for mark, method, at in ((b"PK\x01\x02", 10, 46), (b"PK\x03\x04", 8, 30)):
        start = out.find(mark)
        while out[start + at : start + at + len(name)] != name.encode():
            start = out.find(mark, start + 4)
        struct.pack_into("<H", out, start + method, zipfile.ZIP_DEFLATED)
        struct.pack_into("<L", out, start + method + 14, claimed)
    return bytes(out)


def test_a_bomb_is_stopped_while_it_inflates(source: Path, bundle: Path, alone: Path, tmp_path: Path) -> None:
    content = bomb(source, bundle, 256 << 20, claimed=1000)
    assert len(content) < 1 << 20
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.zip is a damaged zip \(Bad CRC-32 for file 'index/ids\.json'\)"):
        unpack(tmp_path / "a.zip", alone / "new")


def test_headers_are_not_believed(source: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the zip reader ever hand out more than the header says, our own count stops it at the listed size."""
    (tmp_path / "a.zip").write_bytes(zipped(members(source)))
    asked: list[int] = []
    plain = zipfile.ZipFile.open
    for endless, message in (
        ("manifest.json", r"manifest\.json has more than"),
        (CARD, "does not inflate to .* bytes"),
    ):

        def swollen(self, info, endless=endless):
            return Endless(asked) if info.filename == endless else plain(self, info)

        monkeypatch.setattr(zipfile.ZipFile, "open", swollen)
        with pytest.raises(InputError, match=message):
            unpack(tmp_path / "a.zip", alone / "new")
        assert 0 < sum(asked) <= 5 << 20, "read on after the limit"
        asked.clear()


class Endless(io.BytesIO):
    """A member without end."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.asked = asked

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size > 0, "asked for all of it"
        self.asked.append(size)
        return bytes(size)


def test_a_folder_that_is_no_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    (bundle / "MODEL_CARD.md").unlink()
    with pytest.raises(InputError, match=r"MODEL_CARD\.md is missing"):
        pack(bundle, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def renamed(parts: dict[str, Member], name: str, to: str) -> dict[str, Member]:
    parts[name][0].filename = to
    return parts


def test_the_same_bundle_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    first = pack(bundle, tmp_path / "a.zip").read_bytes()
    for path in [bundle, *bundle.rglob("*")]:
        os.utime(path, (1e9, 1e9))
        os.chmod(path, 0o755 if path.is_dir() else 0o600)
    assert pack(bundle, tmp_path / "b.zip").read_bytes() == first


def test_stored_members_are_taken_too(source: Path, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(members(source)))
    with opened(tmp_path / "a.zip") as bundle:
        assert tree(bundle.root) == tree(source)


def test_rollback_and_expiry_are_asked_of_zips(bundle: Path, tmp_path: Path) -> None:
    resign(bundle, lambda r: r.update(expires="2126-01-01T00:00:00+00:00"))
    archive = pack(bundle, tmp_path / "a.zip")
    with opened(archive, newest=1795255200) as found:
        assert found.manifest.serial == 1795255200
    with pytest.raises(InputError, match="older than one before it"), opened(archive, newest=1795255201):
        pass
    with pytest.raises(InputError, match="expired on 2126"), opened(archive, now=datetime(2126, 1, 1)):
        pass


@pytest.mark.parametrize("name", [*filter(None, ELSEWHERE), "x\x00.npy", "MANIFEST.SIG.JSON"])
@pytest.mark.parametrize("listed", [False, True])
def test_odd_names_are_refused(name: str, listed: bool, source: Path, alone: Path, tmp_path: Path) -> None:
    """Whether as a member too many, or in place of one that the manifest lists."""
    parts = members(source)
    if listed:
        parts = renamed(parts, "MODEL_CARD.md", name)
    else:
        info = zipfile.ZipInfo("x")
        info.filename = name
        parts["more"] = info, b"boo"
    (tmp_path / "a.zip").write_bytes(zipped(parts))
    with pytest.raises(InputError) as caught:
        unpack(tmp_path / "a.zip", alone / "new")
    assert "plain relative path" in str(caught.value) or "twice" in str(caught.value), caught.value
    assert "\n" not in str(caught.value)


def test_a_manifest_that_lists_too_much_is_refused_before_anything_is_inflated(
    bundle: Path, alone: Path, tmp_path: Path
) -> None:
    resign(bundle, lambda r: r["files"][0].update(size=5 << 30))
    (tmp_path / "a.zip").write_bytes(zipped(members(bundle)))
    with pytest.raises(InputError, match=r"lists .* bytes, more than 4,294,967,296 allowed"):
        unpack(tmp_path / "a.zip", alone / "new")


def test_a_disk_that_is_full(source: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(source, tmp_path / "a.zip")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device; nothing was changed"):
        unpack(archive, alone / "new")
    before = archive.read_bytes()
    with pytest.raises(InputError, match="No space left on device; nothing was changed"):
        pack(source, archive)
    assert archive.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["a.zip"]
