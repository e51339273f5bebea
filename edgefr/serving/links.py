"""A link stands between each rehearsing device and the server, on this host, and fails as the fleet says.

A device has an address of its own, and requests pass unchanged, so signatures hold. A round's failures are these:

refused, no network, lost while downloading   the device hears of no task until the round is over
lost while computing                          its process is killed when it has its task, and started again
lost while uploading                          the connection is cut, and the release held until the round is over
late                                          the release is held until the round is over
none                                          the release is held for as long as the fleet says, on a scaled clock
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from edge.connection import CONFLICT, DIGITS, DONE, OK, RELEASE, ROUND, TASK, WAIT
from edgefr.fleet import Failure
from edgefr.serving.shadow import Fate

HELD_S = 45.0  # for which a request is held at most: a device waits a minute
LOOK_S = 0.05  # between looks at the server's counts
HOST, METRICS = "127.0.0.1", "/metrics"
ABSENT = (Failure.MEMORY, Failure.UNAVAILABLE, Failure.BATTERY, Failure.DOWNLOAD)
NO_TASK = f"HTTP/1.1 {WAIT} No Content\r\nConnection: close\r\n\r\n".encode()


@dataclass(frozen=True)
class Request:
    """This is a request as it came, `raw`; `number` is the round in its path."""

    method: str
    path: str
    number: int
    raw: bytes


@dataclass
class Traffic:
    """These are the bytes of bodies that one device's link has passed on, and its releases that were late."""

    up: int = 0
    down: int = 0
    late: int = 0


@dataclass
class Links:
    """These are the links of some devices to the server at `url`, from `start` to `stop`.

    `fates` by round and device; `scale`: real seconds per virtual one; `first`: first round; `kill` ends a process.
    """

    url: str
    fates: Mapping[tuple[int, str], Fate]
    scale: float
    first: int
    kill: Callable[[str], None]
    traffic: dict[str, Traffic] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    gone: set[tuple[int, str]] = field(default_factory=set)  # lost in a round
    opened: dict[int, float] = field(default_factory=dict)  # when a round was first seen
    servers: list[asyncio.Server] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def start(self, devices: Sequence[str]) -> dict[str, str]:
        """Open a link for each device; their addresses."""
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        return asyncio.run_coroutine_threadsafe(self._open(devices), self.loop).result()

    def stop(self) -> None:
        """Close all links, and let go of the requests that they hold."""
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _close(self) -> None:
        for server in self.servers:
            server.close()
        held = asyncio.all_tasks() - {asyncio.current_task()}
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were closed just now are gone in the loop's next turn

    async def _open(self, devices: Sequence[str]) -> dict[str, str]:
        found = {}
        for device in devices:
            self.traffic[device] = Traffic()
            server = await asyncio.start_server(self._served(device), HOST, 0)
            self.servers.append(server)
            found[device] = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        return found

    def _served(self, device: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                request = await _read(reader)
                ways = {TASK: self._task, RELEASE: self._release}
                way = ways.get(urlsplit(request.path).path, self._any)
                await way(device, request, writer)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                pass  # one of both ends is gone
            finally:
                writer.close()

        return served

    async def _any(self, device: str, request: Request, writer: asyncio.StreamWriter) -> None:
        await _write(writer, (await self._passed_on(request.raw))[2])

    async def _task(self, device: str, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer a device that asks for the round above `request.number`; it hears only of its own rounds."""
        self.asked.add(device)
        until = time.monotonic() + HELD_S
        while self._away(device, await self._ahead(request.number)):
            if time.monotonic() > until:
                return await _write(writer, NO_TASK)
            await asyncio.sleep(LOOK_S)
        status, number, answer = await self._passed_on(request.raw)
        if status == OK and number is not None:
            if self._away(device, number):  # it opened while the server held the request
                return await _write(writer, NO_TASK)
            self.opened.setdefault(number, time.monotonic())
        if status in (OK, DONE):
            self.traffic[device].down += len(_body(answer))
        await _write(writer, answer)
        if status == OK and number is not None and self._fate(number, device).failure == Failure.CLIENT:
            self.gone.add((number, device))
            self.kill(device)

    async def _release(self, device: str, request: Request, writer: asyncio.StreamWriter) -> None:
        """Deliver a device's release at the time of its fate, or after the round."""
        fate, until = self._fate(request.number, device), time.monotonic() + HELD_S
        due = self.opened.get(request.number, 0.0) + self.scale * fate.seconds
        if fate.failure == Failure.UPLOAD and (request.number, device) not in self.gone:
            self.gone.add((request.number, device))
            return None
        while (fate.failure != Failure.OK or time.monotonic() < due) and await self._is_open(request.number):
            if time.monotonic() > until:
                return None
            await asyncio.sleep(LOOK_S)
        status, _, answer = await self._passed_on(request.raw)
        if status == OK:
            self.traffic[device].up += len(_body(request.raw))
        elif status == CONFLICT:
            self.traffic[device].late += 1
        await _write(writer, answer)

    def _fate(self, number: int, device: str) -> Fate:
        return self.fates.get((number, device), Fate())

    def _away(self, device: str, number: int) -> bool:
        """Say whether a device hears nothing of a round: absent, or lost while computing."""
        return self._fate(number, device).failure in ABSENT or (number, device) in self.gone

    async def _ahead(self, after: int) -> int:
        """Return the round above `after` that a device would get, now or when it opens."""
        number, waiting = await self._now()
        return number if number > after and waiting else max(number + 1, self.first)

    async def _is_open(self, number: int) -> bool:
        return await self._now() == (number, True)

    async def _now(self) -> tuple[int, bool]:
        said = _body((await self._passed_on(f"GET {METRICS} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(), True))[2])
        lines = dict(line.split(" ", 1) for line in said.decode().splitlines() if not line.startswith("#"))
        return int(lines["edgefr_round"]), int(lines["edgefr_waited_for"]) > 0

    async def _passed_on(self, raw: bytes, ours: bool = False) -> tuple[int, int | None, bytes]:
        """Forward a request; return the status, the round in the answer, and the whole answer."""
        parts = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            await _write(writer, raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1) if ours else raw)
            answer = await reader.read()
        finally:
            writer.close()
        head = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        named = {name.lower(): value for name, value in fields.items()}.get(ROUND.lower(), "")
        return int(head[0].split()[1]), int(named) if named.isdigit() and len(named) <= DIGITS else None, answer


async def _read(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    asked = parse_qs(urlsplit(path).query)
    number = int((asked.get("after") or asked.get("round") or ["0"])[0])
    return Request(method, path, number, head + await reader.readexactly(length))


async def _write(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(content)
    await writer.drain()


def _body(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[2]
