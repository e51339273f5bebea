"""The pages of a server are a thin layer over its round broker: they check who asks, wait, read and answer.

A waiting device holds a connection and no thread. Every refusal is one line of plain text.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from edge.connection import (
    BAD,
    BUNDLE,
    DIGITS,
    DONE,
    FORBIDDEN,
    LOOPBACK,
    OK,
    PART,
    ROUND,
    SUM,
    WAIT,
    Code,
    KeyOwner,
    RoundTask,
)
from edge.identity import Signed
from edge.sum_messages import STEPS, Step
from edgefr.serving.admission import Gate, RequestRefused, check_body, reading
from edgefr.serving.bodies import Bodies, bound, discarded
from edgefr.serving.broker import UNKNOWN, RoundBroker
from edgefr.serving.connections import KNOWN
from edgefr.serving.delivery import Delivery
from edgefr.serving.keys import CodeRefused
from edgefr.serving.log import Log
from edgefr.serving.protocol import BUSY, OPERATIONS, document, send_of, told_of
from privacy.errors import InputError

POLL_S = 20.0  # how long a request for a task is held
LONGEST_CODE = 256  # bytes of a body that enrols
PIECE = 1 << 15  # bytes that are handed to a connection at once
PATHS = frozenset(one.path for one in OPERATIONS)
MOST_METHOD = 10  # characters of a method that are logged
FORWARDED = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
MOST_NOTES = 1000  # lines of the log that wait to be written; where more would, they are lost
NOTED_S = 5.0  # for which a server that stops waits for them

Found = TypeVar("Found", RoundTask, bytes, bool)
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass
class Pages:
    """These are the pages over one round broker. `limit`: bytes of a release."""

    broker: RoundBroker
    gate: Gate
    limit: int
    delivery: Delivery = field(default_factory=Delivery)
    log: Log = field(default_factory=Log)
    bodies: Bodies = field(default_factory=Bodies)
    waiting: int = 0  # requests that are held
    stopping: bool = False
    loop: asyncio.AbstractEventLoop | None = None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    enrolling: asyncio.Lock = field(default_factory=asyncio.Lock)
    writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "log"))
    notes: set[Future[None]] = field(default_factory=set)

    def app(self) -> Starlette:
        """Return them as an application."""
        answers = {
            "task": self.task,
            "release": self.release,
            "enrol": self.enrol,
            "bundle": self.bundle,
            "file": self.file,
            "metrics": self.metrics,
            "openapi": self.openapi,
            **{send_of(step): self._taken(step) for step in STEPS},
            **{told_of(step): self._told(step) for step in STEPS[:-1]},
        }
        routes = [Route(one.path, answers.pop(one.name), methods=[one.method]) for one in OPERATIONS]
        assert not answers, "every page is declared"
        for route, one in zip(routes, OPERATIONS, strict=True):
            route.methods = {one.method}  # without HEAD
        handlers = {RequestRefused: self._refused, HTTPException: self._no_page, ClientDisconnect: self._gone}
        handlers |= dict.fromkeys((InputError, OSError), self._out_of_order)
        app = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]
        app.router.redirect_slashes = False  # to a place that the request names
        return app

    def wake(self) -> None:
        """Wake waiting requests, from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.woken.set()
        self.woken = asyncio.Event()

    async def task(self, request: Request) -> Response:
        """Answer with the open round, when there is one for this device."""
        device = self._asker(request)
        after = _asked(request, "after")
        task = await self._waited(lambda: self.broker.task(device, after))
        if task is None:
            return Response(status_code=WAIT)
        headers = {ROUND: str(task.round), "Content-Length": str(len(task.content))}
        if task.bundle is not None:
            headers[BUNDLE] = task.bundle
        if task.seat is not None:
            headers[SUM] = task.seat.header
        if task.rest:
            return Response(status_code=WAIT, headers={ROUND: str(task.round)})
        status = DONE if task.done else OK
        told = BackgroundTask(self._handed, device, task)
        return StreamingResponse(_pieces(task.content), status, headers, "application/octet-stream", told)

    async def release(self, request: Request) -> Response:
        bound(request, self.limit)
        device, signed = self._admitted(request)
        number = _asked(request, "round")
        self.broker.expects(device, number, bytes.fromhex(signed.digest))
        content = await self.bodies.read(request, signed, self.limit)
        await run_in_threadpool(self.broker.submit, device, number, content)
        self._note(self.log.write, "taken", user=device, round=number, bytes=len(content))
        return PlainTextResponse("taken\n", headers={ROUND: str(number)})

    def _taken(self, step: Step) -> Endpoint:
        """Return the page that takes a step's messages of a secure sum."""

        async def page(request: Request) -> Response:
            bound(request, self.limit)
            device, signed = self._admitted(request)
            number = _asked(request, "round")
            limit = self.broker.sum_of(device, number).expects(device, step, bytes.fromhex(signed.digest))
            content = await self.bodies.read(request, signed, limit)
            await run_in_threadpool(self.broker.take_step, device, number, step, content)
            return PlainTextResponse("taken\n", headers={ROUND: str(number)})

        return page

    def _told(self, step: Step) -> Endpoint:
        """Return the page that answers with a step's result, when it has ended."""

        async def page(request: Request) -> Response:
            device = self._asker(request)
            number = _asked(request, "round")
            ended = await self._waited(lambda: self.broker.sum_of(device, number).ended(device, step) or None)
            if not ended:
                return Response(status_code=WAIT)
            content = await run_in_threadpool(self.broker.sum_of(device, number).answer, device, step)
            if content is None:
                return Response(status_code=WAIT)
            self.broker.told_step(content)
            return Response(content, OK, {ROUND: str(number)}, "application/json")

        return page

    async def enrol(self, request: Request) -> Response:
        """Enrol a key with a one-time code."""
        bound(request, LONGEST_CODE)
        signed = self.gate.stranger(*_signature(request))
        content = await self.bodies.read(request, signed, LONGEST_CODE)
        with reading("the body is no code"):
            asked = Code.model_validate_json(content)
        try:
            async with self.enrolling:  # who waits holds no thread
                user = await run_in_threadpool(self.gate.keys.enrol, asked.code, signed.key, 0.0)
        except CodeRefused as error:
            raise RequestRefused(FORBIDDEN, str(error)) from error
        self._note(self.log.write, "enrolled", user=user)
        return JSONResponse(KeyOwner(user=user).model_dump())

    async def bundle(self, request: Request) -> Response:
        """Answer with the manifest of a device's bundle."""
        device = self._asker(request)
        return Response(self.delivery.manifest(device), OK, media_type="application/octet-stream")

    async def file(self, request: Request) -> Response:
        """Answer with a file of a device's bundle, or with the bytes asked for."""
        device, asked = self._asker(request), request.headers.get("range")
        part = self.delivery.part(device, request.path_params["sha256"], asked)
        headers = {"Content-Length": str(part.stop - part.start), "Accept-Ranges": "bytes"}
        if asked is not None:
            headers["Content-Range"] = part.told
        status = OK if asked is None else PART
        return StreamingResponse(part.pieces(), status, headers, "application/octet-stream")

    async def metrics(self, request: Request) -> Response:
        """Answer with counts in Prometheus' text format, to this host alone."""
        proxied = FORWARDED & set(request.headers.keys())  # of a proxy on this host, for whoever asks it
        if request.client is None or request.client.host not in LOOPBACK or proxied:
            raise RequestRefused(UNKNOWN, "there is no such page")
        waiting = f"# TYPE edgefr_waiting gauge\nedgefr_waiting {self.waiting}\n"
        return PlainTextResponse(self.broker.prometheus() + waiting, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Response(_document(), media_type="application/json")

    def _asker(self, request: Request) -> str:
        """Return the user whose device asks, and sends nothing."""
        device, signed = self._admitted(request)
        check_body(signed, b"")
        if request.headers.get("content-length", "0").strip("0") or "transfer-encoding" in request.headers:
            raise RequestRefused(BAD, "this request has a body, and none was signed")
        return device

    def _admitted(self, request: Request) -> tuple[str, Signed]:
        """Return the user who signed a request, and its signature; the connection is young no more."""
        device, signed = self.gate.admit(*_signature(request))
        known = request.scope.get("state", {}).get(KNOWN)  # none where no connection carries it
        if known is not None:
            known()
        return device, signed

    async def _waited(self, ask: Callable[[], Found | None]) -> Found | None:
        until = time.monotonic() + POLL_S
        while True:
            woken, found, left = self.woken, ask(), until - time.monotonic()
            if found is not None or left <= 0 or self.stopping:
                return found
            self.waiting += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await woken.wait()
            finally:
                self.waiting -= 1

    async def _handed(self, device: str, task: RoundTask) -> None:
        self.broker.handed(device, task)

    def _note(self, write: Callable[..., None], *what: str, **told: Any) -> None:
        """Write a line of the log in a thread, so that a lock on it delays no device."""
        if len(self.notes) < MOST_NOTES:
            noted = self.writer.submit(write, *what, **told)
            self.notes.add(noted)
            noted.add_done_callback(self.notes.discard)

    def close(self) -> None:
        """Wait a little for lines of the log that are not written yet."""
        wait([*self.notes], NOTED_S)
        self.writer.shutdown(wait=False, cancel_futures=True)

    async def _refused(self, request: Request, refused: RequestRefused, why: str | None = None) -> Response:
        """Answer a refusal with its one line; the log has `why` instead."""
        self.broker.refuse()
        line = " ".join(str(refused).split())
        known = request.url.path if request.url.path in PATHS else "another"
        told = {"method": request.method[:MOST_METHOD], "path": known, "why": why or line}
        self._note(self.log.refused, status=refused.status, **told)
        await discarded(request)
        return PlainTextResponse(f"{line}\n", refused.status, refused.headers)

    async def _out_of_order(self, request: Request, error: Exception) -> Response:
        """Answer where the server's disk fails; the operator alone gets the reason."""
        return await self._refused(
            request, RequestRefused(BUSY, "the server cannot do that now; ask again"), str(error)
        )

    async def _no_page(self, request: Request, error: HTTPException) -> Response:
        return await self._refused(request, RequestRefused(error.status_code, "there is no such page"))

    async def _gone(self, request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=BAD)


@cache
def _document() -> bytes:
    return json.dumps(document()).encode()


def _signature(request: Request) -> tuple[str, str, str]:
    """Return what a signature covers of a request's head, and the header it is in."""
    query = request.scope["query_string"].decode("latin-1")
    path = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
    return request.method, path, request.headers.get("authorization", "")


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """Yield bytes piece by piece, so that a slow reader has little of them in memory."""
    for at in range(0, len(content), PIECE):
        yield content[at : at + PIECE]


def _asked(request: Request, number: str) -> int:
    """Return the number of a query."""
    try:
        query = parse_qs(request.scope["query_string"].decode("latin-1"), strict_parsing=True, max_num_fields=1)
        (value,) = query[number]
    except (ValueError, KeyError):
        raise RequestRefused(BAD, f"ask with {number}, once") from None
    if not (value.isascii() and value.isdigit() and len(value) <= DIGITS):
        raise RequestRefused(BAD, f"{number} is a whole number")
    return int(value)
