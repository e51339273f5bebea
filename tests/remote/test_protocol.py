"""The page and the document of the protocol are what the server does: another client is written from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from edge.connection import Code, KeyOwner
from edge.delta import Delta, write_delta
from edge.identity import Identity, IdentityRecord, Signed
from edge.records import MOST_ROUNDS
from edge.tensors import parse
from edge.update import RELEASE_FACTS
from edgefr.serving import admission as gate
from edgefr.serving import connections, pages, protocol, server
from edgefr.serving import secure_sums as sealing
from export.sign import signature_of
from tests.export import worlds
from tests.remote.test_server import Broker
from tests.remote.test_server import broker as broker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def schema(name: str) -> Draft202012Validator:
    """What a reader of the document checks a message against."""
    found = json.loads((ROOT / protocol.PAGE).read_text())["components"]["schemas"]
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": found}})


def test_the_document_is_that_of_the_code() -> None:
    """Write it again with `python -m edgefr.serving.protocol`."""
    assert (ROOT / protocol.PAGE).read_text(encoding="utf-8") == protocol.written()


def test_a_server_gives_the_document_and_has_its_pages_alone(broker: Broker) -> None:
    status, body = broker.ask("GET", "/openapi.json")
    assert (status, json.loads(body)) == (200, json.loads(protocol.written()))
    declared = {(one.path, one.method) for one in protocol.OPERATIONS}
    routes: Any = broker.server.pages.app().routes
    assert {(route.path, method) for route in routes for method in route.methods} == declared
    for path, method in declared:
        assert f"`{path}`" in PAGE or f"{method} {path}" in PAGE, f"{path} is not told of"


def test_the_example_of_a_signature_is_right() -> None:
    content, header = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    said = Signed.of(header)
    assert said is not None
    _, method, path, session, nonce, now, _ = content.split("\n")
    assert said.content(method, path) == content.encode()
    assert said.holds(method, path)
    identity = Identity(Path("nowhere"), IdentityRecord(private=bytes(range(32)).hex()))
    assert identity.signed(method, path, b"hello", session, int(nonce), int(now)).header == header


def test_the_limits_are_those_of_the_code() -> None:
    table = PAGE.split("## Limits")[1]
    most = server.Access().connections
    for words in (
        f"head of a request | {server.HEADER_BYTES:,} bytes",
        f"body that enrols | {pages.LONGEST_CODE} bytes",
        f"TLS handshake | {connections.SILENCE_S:g} seconds",
        f"less {server.FILES}, and of more than {connections.MOST_YOUNG:,} on which",
        f"all in all | {connections.REQUEST_S:g} seconds",
        f"one key | {gate.PER_MINUTE} a minute, {gate.BURST} in one go",
        f"keys of a sum | {sealing.KEYS_BYTES} bytes",
        f"a signature of a sum | {sealing.KEYS_BYTES} bytes",
        f"shares of a sum | {sealing.MESSAGE_BYTES:,} bytes and {sealing.SHARES_BYTES} for each device",
        f"what opens a sum | {sealing.MESSAGE_BYTES:,} bytes and {sealing.OPENING_BYTES} for each device",
        f"connections | {most:,}; of more",
        f"number | {MOST_ROUNDS:,}",
    ):
        assert words in table, words
    assert f"more than {gate.CLOCK_S} seconds apart" in PAGE
    assert f"held for {pages.POLL_S:g} seconds" in PAGE
    for status in {status for one in protocol.OPERATIONS for status in one.replies}:
        assert re.search(rf"^\|.*\b{status}\b.*\|$", PAGE.split("## Statuses")[1], re.MULTILINE), status


def test_messages_are_as_the_schemas_have_them(broker: Broker, tmp_path: Path) -> None:
    path = write_delta(tmp_path / "update", Delta("0" * 64, 1, 3))
    sealed = {"schema": "edgefr.release/2", "bundle": "0" * 64, "round": 3}
    right = {
        "Code": Code(code="0" * 32).model_dump(),
        "KeyOwner": KeyOwner(user="ada").model_dump(),
        "Facts": json.loads(parse(path.read_bytes()).metadata["delta"]),
        "OpenFacts": broker.release.facts(),
        "SealedFacts": sealed,
        "KeysMessage": {"mask": "0" * 64, "share": "0" * 64, "sign": "0" * 64},
        "Neighbours": {
            "threshold": 2,
            "keys": {"7": {"mask": "0" * 64, "share": "0" * 64, "sign": "0" * 64}},
            "roster": {"7": "0" * 64},
        },
        "Shares": {"sealed": {"7": "0" * 188}},
        "Asked": {"sent": [7, 8], "arrived": [7]},
        "Agreeing": {"signature": "0" * 128},
        "Agreed": {"signatures": {"7": "0" * 128}},
        "Opening": {"own": {"7": "0" * 66}, "pairs": {}},
        "Signature": json.loads(signature_of("delta", b"x", worlds.KEY)),
    }
    schemas = json.loads(protocol.written())["components"]["schemas"]
    assert set(right) == set(schemas)
    for name, message in right.items():
        schema(name).validate(message)
        for wrong in ({**message, "more": 1}, {}, [message]):
            assert not schema(name).is_valid(wrong), (name, wrong)


@pytest.mark.parametrize(
    "change", [{"round": True}, {"round": -1}, {"round": 1.0}, {"round": 10**9}, {"bundle": "no"}, {"schema": "x"}]
)
def test_what_the_schema_refuses_of_a_release_the_server_does(change: dict[str, Any]) -> None:
    facts = {"schema": "edgefr.release/2", "bundle": "0" * 64, "round": 3}
    assert RELEASE_FACTS.validate_python(facts).round == 3
    with pytest.raises(ValueError):
        RELEASE_FACTS.validate_json(json.dumps(facts | change))
