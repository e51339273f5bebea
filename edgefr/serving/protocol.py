"""The protocol between devices and a server is declared here: requests and all their answers.

`pages` serves what is declared, `python -m edgefr.serving.protocol` makes docs/openapi.json of it, and a server gives
the same at /openapi.json. docs/protocol.md explains it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from edge.connection import (
    BAD,
    BUNDLE,
    CONFLICT,
    DONE,
    ENROL,
    FILES,
    FORBIDDEN,
    MANIFEST,
    NO_PART,
    NONCE,
    OK,
    PART,
    RELEASE,
    ROUND,
    SESSION,
    SUM,
    SUMS,
    TASK,
    TOO_MANY,
    UNSIGNED,
    WAIT,
    Code,
    KeyOwner,
)
from edge.delta import Facts as DeltaFacts
from edge.records import MOST_ROUNDS
from edge.signature import Signature
from edge.sum_messages import SEAT, STEPS, Agreed, Agreeing, Asked, KeysMessage, Neighbours, Opening, Shares, Step
from edge.update import OpenFacts, SealedFacts

VERSION = "1"
"""Of the protocol: it is in the heading of what is signed, so a request of another version is refused as unsigned."""
UNKNOWN, NOT_ALLOWED, NO_LENGTH, TOO_LARGE, BUSY = 404, 405, 411, 413, 503
METRICS, OPENAPI = "/metrics", "/openapi.json"
BYTES, TEXT, JSON = "application/octet-stream", "text/plain", "application/json"
PAGE = Path("docs") / "openapi.json"

Asker = Literal["enrolled", "key", "anybody"]


@dataclass(frozen=True)
class Reply:
    """This is one answer: what it means, the media type of its body (None: it has none), its model and headers."""

    meaning: str
    media: str | None = TEXT
    model: type[BaseModel] | None = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """This is one request. `asker`: an enrolled key, any key, or nobody signs it.

    `query`: its one number. `named`: the part of its path that is a digest.
    """

    method: Literal["GET", "POST"]
    path: str
    name: str
    summary: str
    replies: dict[int, Reply]
    asker: Asker = "enrolled"
    query: str | None = None
    named: str | None = None
    media: str | None = None
    model: type[BaseModel] | None = None


RANGE = "Content-Range"
HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    ROUND: ("number of the round", {"type": "integer", "minimum": 0, "maximum": MOST_ROUNDS}),
    SESSION: ("session of this start of the server: sign for it", {"type": "string", "pattern": "^[0-9a-f]{32}$"}),
    BUNDLE: (
        "id of the bundle that the server takes the device to hold",
        {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    ),
    SUM: (
        "uploads of this round are summed under masks: the device's number in the sum, the sum's salt in hex and, "
        "where devices of several bundles are in the sum, what stands for them in its session",
        {"type": "string", "pattern": f"^{re.sub('[?]P<[a-z]+>', '', SEAT.pattern)}$"},
    ),
    NONCE: ("the key's last nonce that was taken: sign with a larger one", {"type": "integer", "minimum": 0}),
    RANGE: ("which bytes of how many", {"type": "string", "pattern": "^bytes ([0-9]+-[0-9]+|[*])/[0-9]+$"}),
}

SIGNED = {
    BAD: Reply("the request is malformed, or the clocks are too far apart"),
    UNSIGNED: Reply("not signed, for another session, or with a nonce that is not new", headers=(SESSION, NONCE)),
    FORBIDDEN: Reply("the key is not enrolled, was replaced or is revoked, or the signature is wrong"),
    TOO_MANY: Reply("this key asks too often, or a later body of it took the place of this one"),
    BUSY: Reply("the server cannot do that now; ask again"),
}
BODY = {NO_LENGTH: Reply("the body's length is not said"), TOO_LARGE: Reply("the body is too long; it is not read")}

SENT: dict[Step, type[BaseModel] | None] = {
    "keys": KeysMessage,
    "shares": Shares,
    "vector": None,
    "agree": Agreeing,
    "opening": Opening,
}
TOLD: dict[Step, type[BaseModel]] = {"keys": Neighbours, "shares": Shares, "vector": Asked, "agree": Agreed}
"""What a device sends in a step of a secure sum (None: a vector), and is told when it has ended."""


def send_of(step: Step) -> str:
    """Return the name of the operation that takes what a step asks for."""
    return f"send_{step}"


def told_of(step: Step) -> str:
    """Return the name of the operation that tells what a step came to."""
    return f"await_{step}"


def _steps(step: Step) -> list[Operation]:
    """Return the operations of one step of a round's secure sum."""
    path, sent = f"{SUMS}/{step}", SENT[step]
    unknown = {UNKNOWN: Reply("the server serves no device of this user")}
    over = {CONFLICT: Reply("the sum goes on without this device, or is given up")}
    taken = {OK: Reply("it is taken, or was before", headers=(ROUND,)), **SIGNED, **BODY, **unknown, **over}
    says, media = f"What a device sends in step {step} of a round's secure sum", BYTES if sent is None else JSON
    found = [Operation("POST", path, send_of(step), says, taken, query="round", media=media, model=sent)]
    if step in TOLD:
        told = {OK: Reply("the step has ended", JSON, TOLD[step], (ROUND,)), WAIT: Reply("it has not ended", None)}
        says = f"What step {step} of a round's secure sum came to, for which a request is held"
        found.append(Operation("GET", path, told_of(step), says, {**told, **SIGNED, **unknown, **over}, query="round"))
    return found


OPERATIONS = (
    Operation(
        "GET",
        TASK,
        "task",
        "The open round, for which a request is held until there is one, or for some seconds",
        {
            OK: Reply("a round: an update from the bundle to where it starts", BYTES, headers=(ROUND, BUNDLE, SUM)),
            WAIT: Reply("none yet; with a round, that goes on without this device", None, headers=(ROUND,)),
            DONE: Reply("there are no more rounds: the last update", BYTES, headers=(ROUND, BUNDLE)),
            **SIGNED,
            UNKNOWN: Reply("the server serves no device of this user"),
        },
        query="after",
    ),
    Operation(
        "POST",
        RELEASE,
        "release",
        "A device's release of a round; the same bytes may be sent again",
        {
            OK: Reply("it is taken", headers=(ROUND,)),
            **SIGNED,
            **BODY,
            UNKNOWN: Reply("the server serves no device of this user"),
            CONFLICT: Reply("the round is not open for this device, is sealed, or another release of it was taken"),
        },
        query="round",
        media=BYTES,
    ),
    *(step for name in STEPS for step in _steps(name)),
    Operation(
        "POST",
        ENROL,
        "enrol",
        "Enrol the key that signs this with a one-time code",
        {OK: Reply("the key is enrolled", JSON, KeyOwner), **SIGNED, **BODY},
        asker="key",
        media=JSON,
        model=Code,
    ),
    Operation(
        "GET",
        MANIFEST,
        "bundle",
        "The manifest of the bundle that the server has for the device, its signature behind it",
        {OK: Reply("the manifest", BYTES), **SIGNED, UNKNOWN: Reply("the server has no bundle for this device")},
    ),
    Operation(
        "GET",
        f"{FILES}/{{sha256}}",
        "file",
        "A file of that bundle, or one range of its bytes",
        {
            OK: Reply("the file", BYTES),
            PART: Reply("the bytes that were asked for", BYTES, headers=(RANGE,)),
            **SIGNED,
            UNKNOWN: Reply("the device's bundle has no such file"),
            NO_PART: Reply("the file has no such range of bytes", headers=(RANGE,)),
        },
        named="sha256",
    ),
    Operation(
        "GET",
        METRICS,
        "metrics",
        "Counts in the text format of Prometheus",
        {OK: Reply("counts"), UNKNOWN: Reply("whoever asks is on another host")},
        asker="anybody",
    ),
    Operation("GET", OPENAPI, "openapi", "This document", {OK: Reply("this document", JSON, None)}, asker="anybody"),
)


def document() -> dict[str, Any]:
    """Return the protocol as an OpenAPI 3.1 document, whose schemas are JSON Schemas."""
    known: list[type[BaseModel]] = [Code, KeyOwner, Signature, SealedFacts, OpenFacts, DeltaFacts]
    known += [model for model in SENT.values() if model is not None and model is not Shares]
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (model, "validation") for model in known + list(TOLD.values())
    ]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    about = "Devices and the server of a federated run. In words: docs/protocol.md."
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgefr", "version": VERSION, "summary": about},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas["$defs"].items())),
            "securitySchemes": {"signed": {"type": "apiKey", "in": "header", "name": "Authorization"}},
        },
    }


def written() -> str:
    """Return the document as its file has it."""
    return json.dumps(document(), indent=1) + "\n"


def _operation(one: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": one.name, "summary": one.summary}
    found["security"] = [] if one.asker == "anybody" else [{"signed": []}]
    if one.query is not None:
        number = {"type": "integer", "minimum": 0, "maximum": MOST_ROUNDS}
        found["parameters"] = [{"name": one.query, "in": "query", "required": True, "schema": number}]
    if one.named is not None:
        digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
        span = {"type": "string", "pattern": "^bytes=[0-9]{1,15}-[0-9]{0,15}$"}
        found["parameters"] = [
            {"name": one.named, "in": "path", "required": True, "schema": digest},
            {"name": "Range", "in": "header", "required": False, "schema": span},
        ]
    if one.media is not None:
        found["requestBody"] = {"required": True, "content": _content(one.media, one.model)}
    found["responses"] = {str(status): _reply(reply) for status, reply in sorted(one.replies.items())}
    return found


def _reply(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = {"description": reply.meaning}
    if reply.headers:
        heads = {name: HEADERS[name] for name in reply.headers}
        found["headers"] = {n: {"description": said, "schema": form} for n, (said, form) in heads.items()}
    if reply.media is not None:
        found["content"] = _content(reply.media, reply.model)
    return found


def _content(media: str, model: type[BaseModel] | None) -> dict[str, Any]:
    if model is not None:
        return {media: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    return {media: {"schema": {"type": "string"}} if media == TEXT else {}}


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
