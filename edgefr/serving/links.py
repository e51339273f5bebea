"""Links stand between rehearsing devices and the pages of their server, and fail as the fleet says.

Requests pass unchanged, so signatures hold. A round's failures are these:

refused, no network, lost while downloading   the device hears of no task until the round is over
lost while computing                          its process is killed when it has its task, and started again
lost while uploading                          the connection is cut, and the release held until the round is over
late                                          the release is held until the round is over
none                                          the release is held for as long as the fleet says, on a scaled clock
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from edge.connection import CONFLICT, DIGITS, DONE, OK, RELEASE, ROUND, TASK, WAIT
from edge.identity import Signed
from edgefr.fleet import Failure
from edgefr.serving.shadow import Fate

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from edgefr.serving.pages import Pages

HELD_S = 45.0  # for which a request is held at most: a device waits a minute
LOOK_S = 0.05  # between looks at the open round
ABSENT = (Failure.MEMORY, Failure.UNAVAILABLE, Failure.BATTERY, Failure.DOWNLOAD)
NO_TASK = ({"type": "http.response.start", "status": WAIT, "headers": []}, {"type": "http.response.body"})


@dataclass
class Traffic:
    """These are the bytes of bodies that one device's link has passed on, and its releases that were late."""

    up: int = 0
    down: int = 0
    late: int = 0


@dataclass
class Links:
    """These are the links of devices to one server.

    `fates` by round and device; `scale`: real seconds per virtual one; `first`: first round; `kill` ends a process.
    """

    fates: Mapping[tuple[int, str], Fate]
    scale: float
    first: int
    kill: Callable[[str], None]
    traffic: defaultdict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    asked: set[str] = field(default_factory=set)
    gone: set[tuple[int, str]] = field(default_factory=set)  # lost in a round
    opened: dict[int, float] = field(default_factory=dict)  # when a round was first seen

    def over(self, pages: Pages) -> ASGIApp:
        """Return a server's pages behind these links; what no enrolled key asks for passes at once."""
        from edgefr.serving.connections import CUT, KNOWN

        self.pages, self.app = pages, pages.app()

        async def linked(scope: Scope, receive: Receive, send: Send) -> None:
            signed = Signed.of(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
            device = None if signed is None else pages.gate.keys.user_of(signed.key)
            asked = parse_qs(scope["query_string"].decode("latin-1"))
            number = (asked.get("after") or asked.get("round") or [""])[0]
            way = {TASK: self._task, RELEASE: self._release}.get(scope["path"])
            if way is None or device is None or not number.isdecimal() or len(number) > DIGITS:
                return await self.app(scope, receive, send)
            scope["state"][KNOWN]()  # its connection waits here, and is not silent
            try:
                await way(device, int(number), scope, receive, send)
            except ConnectionAbortedError:
                scope["state"][CUT]()
                while (await receive())["type"] != "http.disconnect":
                    pass

        return linked

    async def _task(self, device: str, after: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a device that asks for the round above `after`; it hears only of its own rounds."""
        self.asked.add(device)
        until = time.monotonic() + HELD_S
        while self._away(device, self._ahead(after)):
            if time.monotonic() > until or self.pages.stopping:
                return await _send(send, NO_TASK)
            await asyncio.sleep(LOOK_S)
        status, number, answer = await self._passed_on(scope, receive)
        if status == OK:
            if self._away(device, number):  # it opened while the server held the request
                return await _send(send, NO_TASK)
            self.opened.setdefault(number, time.monotonic())
        if status in (OK, DONE):
            self.traffic[device].down += sum(len(message.get("body", b"")) for message in answer)
        await _send(send, answer)
        if status == OK and self._fate(number, device).failure == Failure.CLIENT:
            self.gone.add((number, device))
            self.kill(device)

    async def _release(self, device: str, number: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Deliver a device's release at the time of its fate, or after the round."""
        fate, until = self._fate(number, device), time.monotonic() + HELD_S
        due = self.opened.get(number, 0.0) + self.scale * fate.seconds
        if fate.failure == Failure.UPLOAD and (number, device) not in self.gone:
            self.gone.add((number, device))
            raise ConnectionAbortedError
        while (fate.failure != Failure.OK or time.monotonic() < due) and self._is_open(number):
            if time.monotonic() > until or self.pages.stopping:
                raise ConnectionAbortedError
            await asyncio.sleep(LOOK_S)
        status, _, answer = await self._passed_on(scope, receive)
        if status == OK:
            self.traffic[device].up += int(dict(scope["headers"])[b"content-length"])
        elif status == CONFLICT:
            self.traffic[device].late += 1
        await _send(send, answer)

    def _fate(self, number: int, device: str) -> Fate:
        return self.fates.get((number, device), Fate())

    def _away(self, device: str, number: int) -> bool:
        """Say whether a device hears nothing of a round: absent, or lost while computing."""
        return self._fate(number, device).failure in ABSENT or (number, device) in self.gone

    def _ahead(self, after: int) -> int:
        """Return the round above `after` that a device would get, now or when it opens."""
        number, waiting = self.pages.broker.standing
        return number if number > after and waiting else max(number + 1, self.first)

    def _is_open(self, number: int) -> bool:
        found, waiting = self.pages.broker.standing
        return found == number and waiting > 0

    async def _passed_on(self, scope: Scope, receive: Receive) -> tuple[int, int, list[Message]]:
        """Pass a request on; return the status, the round in the answer (0: none), and the whole answer."""
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await self.app(scope, receive, keep)
        return answer[0]["status"], int(dict(answer[0]["headers"]).get(ROUND.lower().encode(), 0)), answer


async def _send(send: Send, answer: Sequence[Message]) -> None:
    for message in answer:
        await send(message)
