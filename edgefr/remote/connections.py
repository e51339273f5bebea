"""Connections of a server are bounded in number and time, whoever opens them: uvicorn's protocol with limits.

A connection is young until the head of its first request is there. Young ones have `SILENCE_S`, and of too many the
oldest is cut: slow sockets keep nobody out. Every connection ends after `REQUEST_S`. Owns: when a connection is cut.
Does not own: requests (`pages`).
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import socket

    from edgefr.remote.pages import Pages

SILENCE_S = 15.0  # until a request's head is there; a TLS handshake may take as long before it
REQUEST_S = 180.0  # all of one connection
READ_BYTES = 1 << 11  # that a TLS connection reads at once; asyncio has 256 KiB ready for each


@dataclass
class Crowd:
    """These are the connections of a server: `young` ones in the order they came, and how many there may be at all."""

    most: int
    open: int = 0
    young: dict[Guarded, None] = field(default_factory=dict)

    def joined(self, connection: Guarded) -> None:
        """Count one more; where that is one too many, the oldest young one is cut, which may be itself."""
        self.open += 1
        self.young[connection] = None
        if self.open > self.most:
            oldest = next(iter(self.young))
            del self.young[oldest]
            oldest.transport.abort()


class Guarded(H11Protocol):
    """This is one connection within its limits."""

    crowd: Crowd

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clocks of a new connection."""
        super().connection_made(transport)
        self.clocks = (
            self.loop.call_later(SILENCE_S, self._silent),
            self.loop.call_later(REQUEST_S, transport.abort),
        )
        self.crowd.joined(self)

    def data_received(self, data: bytes) -> None:
        """Read on; a connection with a request is young no more."""
        super().data_received(data)
        if self.cycle is not None:
            self.crowd.young.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        for clock in self.clocks:
            clock.cancel()
        self.crowd.open -= 1
        self.crowd.young.pop(self, None)
        super().connection_lost(exc)

    def _silent(self) -> None:
        if self in self.crowd.young:
            self.transport.abort()


def guarded(most: int) -> type[Guarded]:
    """Return the protocol of a server that has so many connections at most."""
    return type("Guarded", (Guarded,), {"crowd": Crowd(most)})


class Uvicorn(uvicorn.Server):
    """This is uvicorn with a limit on TLS handshakes, and pages that hear when it stops."""

    def __init__(self, config: uvicorn.Config, pages: Pages):
        super().__init__(config)
        self.pages = pages

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen on sockets that are bound already."""
        self.pages.loop = loop = asyncio.get_running_loop()
        SSLProtocol.max_size = READ_BYTES
        limit = SILENCE_S if self.config.ssl is not None else None
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=sock,
                ssl=self.config.ssl,
                backlog=self.config.backlog,
                ssl_handshake_timeout=limit,
            )
            for sock in sockets or []
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer whoever waits, and stop."""
        self.pages.stopping = True
        self.pages.wake()
        await super().shutdown(sockets)

    def _protocol(self) -> Any:
        kind: Any = self.config.http_protocol_class
        return kind(config=self.config, server_state=self.server_state, app_state={})
