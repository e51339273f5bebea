"""A server's state is shown from the disk at any time, and by its counts while it runs.

RUN/private/serving.json has its address; a lock on the run says whether it runs.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from edge.connection import public_digest
from edge.records import Record
from edgefr.serving.keys import Keys
from edgefr.serving.releases import Answers
from edgefr.simulation.runs.lineage import LOCK, Lineage
from edgefr.simulation.runs.run import Run
from privacy.errors import InputError
from privacy.files import write_json
from privacy.machine import is_held
from privacy.report import ledger_report

FILE = "private/serving.json"
LIMIT = 1 << 16  # bytes of counts
WAIT_S = 5.0


class Serving(Record):
    """`serving.json` says where a server listens, since when, and the key of its certificate."""

    url: str
    since: int = Field(description="unix seconds")
    rounds: int = Field(description="rounds that it was asked for")
    pin: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="sha256 of its public TLS key; null: no TLS")


@contextmanager
def told(run: Path, url: str, rounds: int, pin: str | None) -> Iterator[None]:
    """Write a server's address to the run's folder while inside."""
    where = Serving(url=url, since=int(time.time()), rounds=rounds, pin=pin)
    write_json(run / FILE, where.model_dump(), mode=0o600)
    try:
        yield
    finally:
        (run / FILE).unlink(missing_ok=True)


def status(run: Run, shown: tuple[Path, Path] | None = None) -> dict[str, Any]:
    """Return what a run's server is doing, or what it left: plain values by name, in the order they are shown.

    `shown`: certificate and key (PEM) for a server that asks for one. Raises `InputError` for a changed lineage.
    """
    lineage, keys, opened = run.lineage, Keys(run.path), run.lineage.open
    keys.look()
    working = is_held(run.path / LOCK)
    found: dict[str, Any] = {"state": "at work" if working else "killed within a round" if opened else "stopped"}
    place = run.path / FILE
    if working and place.exists():
        serving = Serving.model_validate_json(place.read_bytes())
        found |= {"url": serving.url, "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(serving.since))}
        found |= _counts(serving, shown)
    found["rounds over"] = lineage.over
    if opened is not None:
        found |= {"block": opened.block} if opened.block else {}
        found |= {"open round": opened.round, "asked": len(opened.clients), "sat out": len(opened.refused)}
        found["answers on the disk"] = Answers(run.path).count(opened.round)
    found |= {
        "devices with a key": len(keys.keys),
        "open codes": len(keys.codes),
        "users who left": len(keys.forgotten),
    }
    found |= {f"rounds: {said}": count for said, count in lineage.collected.items()}
    return found | _spent(run, lineage)


def _spent(run: Run, lineage: Lineage) -> dict[str, Any]:
    """Return the worst client's epsilon in the run and all served rounds."""
    served = lineage.ledger()
    if served is None:
        return {"epsilon": "no guarantee" if lineage.begun else "nothing was served"}
    whole = run.read_ledger({"delta": served.delta, "adjacency": served.adjacency}) or served
    report = ledger_report(whole, lineage.seen)
    return {"epsilon of the worst client": report["eps_guaranteed"], "budget": report["budget"]}


def _counts(serving: Serving, shown: tuple[Path, Path] | None) -> dict[str, Any]:
    """Return the counts of a running server on this host, or why there are none."""
    try:
        lines = _asked(serving, shown).decode().splitlines()
    except (OSError, http.client.HTTPException, InputError) as error:
        return {"counts": f"not told ({' '.join(str(error).split())[:120] or type(error).__name__})"}
    said = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    names = {"waited_for": "answers awaited", "waiting": "requests held", "uploads_total": "uploads taken"}
    names |= {"refused_total": "requests refused", "bytes_up_total": "bytes up", "bytes_down_total": "bytes down"}
    return {shown: int(said[f"edgefr_{name}"]) for name, shown in names.items() if f"edgefr_{name}" in said}


def _asked(serving: Serving, shown: tuple[Path, Path] | None) -> bytes:
    """Return /metrics of a server, which must hold the key in its file."""
    parts = urlsplit(serving.url)
    host = parts.hostname or ""
    if serving.pin is None:
        connection = http.client.HTTPConnection(host, parts.port, timeout=WAIT_S)
    else:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            context.load_cert_chain(*shown)
        secure = http.client.HTTPSConnection(host, parts.port, timeout=WAIT_S, context=context)
        secure.connect()
        if public_digest(secure.sock.getpeercert(binary_form=True) or b"") != serving.pin:
            raise InputError("another server listens there")
        connection = secure
    try:
        connection.request("GET", "/metrics", headers={"Connection": "close"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise InputError(f"it answers {answer.status}")
        return answer.read(LIMIT)
    finally:
        connection.close()
