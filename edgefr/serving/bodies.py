"""Bodies of requests are read within bounds: the head is checked first, and of one key one is read at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request

from edge.connection import TOO_MANY
from edge.identity import Signed
from edgefr.serving.admission import RequestRefused, check_body
from edgefr.serving.protocol import NO_LENGTH, TOO_LARGE

DISCARDED, LINGER_S = 1 << 20, 1.0  # bytes and seconds for which a refused body is read, so that the refusal arrives


@dataclass
class Bodies:
    """These are the bodies that are being read, by the key that signed them."""

    under_way: dict[str, asyncio.Task[bytes]] = field(default_factory=dict)

    async def read(self, request: Request, signed: Signed, limit: int) -> bytes:
        """Return the signed body. Raises `RequestRefused`.

        It replaces an unfinished body of the same key: a device sends one at a time, and may return before the server
        notices a broken connection.
        """
        bound(request, limit)
        before = self.under_way.get(signed.key)
        if before is not None:
            before.cancel()
        mine = self.under_way[signed.key] = asyncio.ensure_future(_content(request, limit))
        try:
            content = await mine
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if asker is not None and asker.cancelling():
                raise
            raise RequestRefused(TOO_MANY, "a later body of this key took the place of this one") from None
        finally:
            if self.under_way.get(signed.key) is mine:
                del self.under_way[signed.key]
        check_body(signed, content)
        return content


def bound(request: Request, limit: int) -> None:
    """Refuse a body of unknown or excessive length before any of it is read."""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 16) or "transfer-encoding" in request.headers:
        raise RequestRefused(NO_LENGTH, "say how long the body is")
    if int(length) > limit:
        raise RequestRefused(TOO_LARGE, f"{int(length):,} bytes are more than the {limit:,} that are taken here")


async def discarded(request: Request) -> None:
    """Read on a little after a refusal: closing on unread bytes would lose the answer."""
    left = DISCARDED
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(LINGER_S):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return


async def _content(request: Request, limit: int) -> bytes:
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise RequestRefused(TOO_LARGE, f"more bytes than the {limit:,} that are taken here")
        return bytes(content)
    finally:
        content.clear()  # what was given up is not kept until its refusal has been sent
