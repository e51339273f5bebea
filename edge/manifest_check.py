"""A manifest must satisfy this before anything else of its bundle is looked at."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import PurePosixPath

from pydantic import ValidationError

from edge.limited_process import NOW
from edge.manifest import MANIFEST, SCHEMA, Manifest, Onnx, canonical, identify
from edge.signature import KeyId, Trusted, check
from privacy.errors import InputError

MANIFEST_LIMIT = CONFIG_LIMIT = 1 << 20  # bytes
TOTAL_LIMIT = 4 << 30  # bytes of all listed files
ALWAYS = datetime.min.replace(tzinfo=UTC)  # before every expiry: for looking at a bundle, not for using it


@dataclass(frozen=True)
class AdmissionTerms:
    """These are the terms on which a device accepts a bundle.

    `trusted`: public keys, one of which must have signed it (None: whichever did). `now`: for its expiry (None: the
    clock's; without an offset: UTC). `newest`: the highest serial seen so far; an older bundle is refused. `since`: the
    latest time seen so far; a clock that is behind it is not believed.
    """

    trusted: Trusted = None
    now: datetime | None = None
    newest: int | None = None
    since: datetime | None = None


def admit(where: str, raw: bytes, signature: bytes | None, terms: AdmissionTerms) -> tuple[Manifest, KeyId | None]:
    """Return the manifest of these bytes, and the id of the key that signed it, if one did.

    Checked, in order: signature, schema, form and own digest, names and total size, serial, expiry, onnxruntime.
    `where` names the bundle in errors. Raises `InputError`.
    """
    signed_by = check("bundle", where, raw, signature, terms.trusted)
    manifest = _parse(where, raw)
    _check_listing(where, manifest)
    if terms.newest is not None and manifest.serial < terms.newest:
        seen = f"serial {manifest.serial}, {terms.newest} was seen here"
        raise InputError(f"{where} is older than one before it ({seen}); get a newer one")
    _check_expiry(where, manifest, terms)
    check_runtime(where, manifest.onnx)
    return manifest, signed_by


def _check_expiry(where: str, manifest: Manifest, terms: AdmissionTerms) -> None:
    if manifest.expired(terms.now or datetime.now(UTC)):
        raise InputError(f"{where} expired on {manifest.expires}; get a newer one")
    if terms.since is not None and manifest.expired(terms.since):
        before = f"{terms.since:%Y-%m-%d %H:%M} UTC"
        raise InputError(
            f"{where} expired on {manifest.expires}: the clock has been set back, since it was {before} here before; "
            "get a newer one"
        )


def reason(error: Exception) -> str:
    """The first thing a validation error complains of, in one line.

    Names come out of the file that is refused, so what a terminal would obey is written as an escape.
    """
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        at = ".".join(str(part) for part in first["loc"])
        said = f"{at}: {first['msg']}" if at else first["msg"]
    else:
        said = (str(error) or type(error).__name__).splitlines()[0]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in said)


def _parse(where: str, raw: bytes) -> Manifest:
    try:
        _check_schema(where, raw)
        manifest = Manifest.model_validate_json(raw)
        intact = canonical(manifest) == raw and identify(manifest) == manifest.bundle_id
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: {MANIFEST} is not a {SCHEMA} manifest ({reason(error)})") from error
    if not intact:
        raise InputError(f"{where}: {MANIFEST} was changed after it was written; export or copy it again")
    return manifest


def _check_schema(where: str, raw: bytes) -> None:
    record = json.loads(raw)
    named = record.get("schema") if isinstance(record, dict) else None
    found = re.fullmatch(r"edgefr\.bundle/(\d{1,6})", named) if isinstance(named, str) else None
    if found and named != SCHEMA:
        newer = int(found[1]) > int(SCHEMA.rpartition("/")[2])
        mend = "update edgefr" if newer else "export it again with `edgefr export`"
        raise InputError(f"{where} is a bundle for another schema, {named}; this edgefr reads {SCHEMA}; {mend}")


def _check_listing(where: str, manifest: Manifest) -> None:
    """Every file is listed once, on file systems that do not tell capitals apart too, and not too much of them."""
    listed: set[str] = set()
    for entry in manifest.files:
        if entry.path.casefold() in listed:
            raise InputError(f"{where}: {MANIFEST} lists {entry.path} twice; export again")
        listed.add(entry.path.casefold())
    for path in listed:
        if any(folder.as_posix() in listed for folder in PurePosixPath(path).parents):
            raise InputError(f"{where}: {MANIFEST} lists {path} as a file in another file; export again")
    total = sum(entry.size for entry in manifest.files)
    if total > TOTAL_LIMIT:
        raise InputError(f"{where}: {MANIFEST} lists {total:,} bytes, more than {TOTAL_LIMIT:,} allowed")


def check_runtime(where: str, onnx: Onnx) -> None:
    """Raise `InputError` when the installed onnxruntime is older than `min_ort` or cannot read `opset` and `ir`.

    >>> check_runtime("bundle x", Onnx(opset=18, ir=8, min_ort="1.17"))
    """
    from edge.ort import ort

    if version(ort.__version__) < version(onnx.min_ort):
        raise InputError(
            f"{where} needs onnxruntime {onnx.min_ort} or newer, installed is {ort.__version__}; update onnxruntime"
        )
    if not reads(onnx.ir, onnx.opset):
        raise InputError(
            f"{where} has graphs of opset {onnx.opset} and IR {onnx.ir}, which onnxruntime {ort.__version__} does not "
            "read; update onnxruntime, or export for an older one"
        )


def version(text: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, missing ones 0.

    >>> version("1.9") < version("1.17") < version("1.17.1") < version("1.31.0.dev2")
    True
    """
    found = [int(number) for number in re.findall(r"\d+", text)[:3]]
    return tuple(found + [0] * (3 - len(found)))


@cache
def reads(ir: int, opset: int) -> bool:
    """Say whether the installed onnxruntime loads the smallest graph of this file format and operator set."""
    from edge.ort import ort

    if max(ir, opset) > 127:
        return False
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        ort.InferenceSession(identity(ir, opset), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class of their own
        if NOW.ram_mb is not None and not any(words in str(error) for words in ("opset", "IR version")):
            raise MemoryError from error
        return False
    return True


def identity(ir: int, opset: int) -> bytes:
    """Return y = x as an ONNX file: a protobuf of few fields (onnx.proto: ModelProto, GraphProto, NodeProto)."""
    kind = b"\x12\x0a\x0a\x08\x08\x01\x12\x04\x0a\x02\x10\x01"  # tensor(float) of shape [1]
    node = b"\x0a\x10" + b"\x0a\x01x" + b"\x12\x01y" + b"\x22\x08Identity"
    graph = node + b"\x12\x05probe" + b"\x5a\x0f\x0a\x01x" + kind + b"\x62\x0f\x0a\x01y" + kind
    return bytes([8, ir, 58, len(graph)]) + graph + bytes([66, 2, 16, opset])
