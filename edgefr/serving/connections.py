"""Connections of a server are bounded in number and time: uvicorn's protocol with limits.

A connection counts from its acceptance, before any handshake, and is young until an enrolled key has signed a request
on it. Young ones have `SILENCE_S`, and of too many the oldest is cut, so slow sockets block nobody. Every connection
has one request, and ends after `REQUEST_S`.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

SILENCE_S = 15.0  # until an enrolled key has asked, a TLS handshake included
REQUEST_S = 180.0  # all of one connection
READ_BYTES = 1 << 11  # that a TLS connection reads at once; asyncio has 256 KiB ready for each
MOST_YOUNG = 2048  # at a time: a handshake that is under way takes 70 kB
AGAIN_S = 0.1  # until the next try to accept, where the system has no room for a connection
KNOWN, CUT = "known", "cut"
"""In a request's state: what is called when an enrolled key has signed it, and what ends its connection."""


_TLS: Any = SSLProtocol
_ended = _TLS._on_handshake_complete


def _told_why(protocol: Any, error: BaseException | None) -> None:
    """End a TLS handshake; send the alert of a failed one, which asyncio does not."""
    if error is not None:
        with suppress(OSError, AttributeError):
            protocol._process_outgoing()
    _ended(protocol, error)


@dataclass(eq=False)
class Visit:
    """This is one connection from when it was accepted until it is closed."""

    crowd: ConnectionPool
    transport: asyncio.Transport | None = None
    opening: asyncio.Task[Any] | None = None
    clocks: tuple[asyncio.TimerHandle, ...] = ()

    def cut(self) -> None:
        self.crowd.young.pop(self, None)
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def known(self) -> None:
        self.crowd.young.pop(self, None)

    def silent(self) -> None:
        """Cut a connection that has not asked in time."""
        if self in self.crowd.young:
            self.cut()

    def ended(self) -> None:
        """Count a closed connection no more."""
        for clock in self.clocks:
            clock.cancel()
        self.crowd.young.pop(self, None)
        self.crowd.all.discard(self)

    def opened(self, opening: asyncio.Task[Any]) -> None:
        """Note the end of a handshake; a failed one closes the connection."""
        if opening.cancelled() or opening.exception() is not None:
            self.ended()


@dataclass
class ConnectionPool:
    """These are a server's connections: `young` ones in order of arrival, and the most in all."""

    most: int
    all: set[Visit] = field(default_factory=set)
    young: dict[Visit, None] = field(default_factory=dict)

    def joined(self) -> Visit | None:
        """Count one more; the oldest young one is cut if that is too many. None: there is no room."""
        if len(self.all) >= self.most or len(self.young) >= MOST_YOUNG:
            if not self.young:
                return None
            next(iter(self.young)).cut()
        visit = Visit(self)
        self.all.add(visit)
        self.young[visit] = None
        return visit


class Guarded(H11Protocol):
    """This is one connection within its limits."""

    def __init__(self, *, visit: Visit, **given: Any):
        super().__init__(app_state={KNOWN: visit.known, CUT: visit.cut}, **given)
        self.visit = visit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note what carries it, after the handshake where there is one."""
        super().connection_made(transport)
        self.visit.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.visit.ended()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; during or after an answer end the connection."""
        if self.cycle is None:
            super().send_400_response(msg)
        else:
            self.transport.abort()


class Uvicorn(uvicorn.Server):
    """This is uvicorn with at most `most` connections, counted at acceptance; its pages hear when it stops."""

    def __init__(self, config: uvicorn.Config, pages: Any, most: int):
        super().__init__(config)
        self.pages, self.crowd = pages, ConnectionPool(most)
        self.accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.pages.loop = asyncio.get_running_loop()
        self.servers = []
        SSLProtocol.max_size = READ_BYTES
        _TLS._on_handshake_complete = _told_why
        for sock in sockets or []:
            sock.setblocking(False)
            sock.listen(self.config.backlog)
            self.accepting.append(asyncio.create_task(self._accept(sock)))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer waiting requests, and stop."""
        self.pages.stopping = True
        self.pages.wake()
        for one in self.accepting:
            one.cancel()
        await asyncio.gather(*self.accepting, return_exceptions=True)
        for visit in [*self.crowd.young]:
            if visit.transport is None:
                visit.cut()
        await super().shutdown(sockets)

    async def _accept(self, sock: socket.socket) -> None:
        """Take connections one by one, so that each is counted before the next."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                came, _ = await loop.sock_accept(sock)
            except OSError:  # it has gone already, or there is no room for it
                await asyncio.sleep(AGAIN_S)
                continue
            visit = self.crowd.joined()
            if visit is None:
                came.close()
            else:
                visit.opening = loop.create_task(self._open(visit, came))
                visit.opening.add_done_callback(visit.opened)
                visit.clocks = (loop.call_later(SILENCE_S, visit.silent), loop.call_later(REQUEST_S, visit.cut))
            await asyncio.sleep(0)  # what was cut is closed, and what was opened has begun

    async def _open(self, visit: Visit, came: socket.socket) -> None:
        """Carry out a connection's handshake where there is one; it is closed where that fails."""
        loop, secure, kind = asyncio.get_running_loop(), self.config.ssl, cast(Any, self.config.http_protocol_class)
        protocol = partial(kind, visit=visit, config=self.config, server_state=self.server_state)
        limit = SILENCE_S if secure is not None else None
        with suppress(OSError):  # `SSLError` is one: what a peer does wrong is nobody's else
            await loop.connect_accepted_socket(protocol, came, ssl=secure, ssl_handshake_timeout=limit)
            return
        visit.ended()
