"""A site gives a browser on this host static files from the address of a server, so that a page there is a device.

Pages of other origins can ask nothing: there are no CORS headers, and a request under another name than this host's
(DNS rebinding) or sent by another site is refused. All scripts are the site's own, by its content security policy.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.connection import FORBIDDEN, LOOPBACK
from edgefr.serving.admission import RequestRefused
from edgefr.serving.protocol import BUSY, NOT_ALLOWED
from privacy.errors import InputError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

HTTP = 80
"""The port that browsers leave out of a host's name."""
Answer = Callable[["Request"], Awaitable["Response"]]

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".css": "text/css"}
TYPES |= {".webmanifest": "application/manifest+json", ".html": "text/html; charset=utf-8"}


@dataclass(frozen=True)
class Site:
    """These are the files of a folder by their path, and `posts`: what answers to POST of a path."""

    folder: Path
    posts: Mapping[str, Answer] = field(default_factory=dict)

    def files(self) -> dict[str, Path]:
        """Return the folder's files by their path on the site; index.html is at `/` too."""
        found = {f"/{path.relative_to(self.folder).as_posix()}": path for path in self.folder.rglob("*")}
        files = {name: path for name, path in found.items() if path.is_file()}
        return files | ({"/": files["/index.html"]} if "/index.html" in files else {})

    def over(self, pages: Any) -> ASGIApp:
        """Return a server's pages with this site beside them; the pages' own paths stay theirs."""
        from starlette.requests import Request

        app, files = pages.app(), self.files()
        assert not {route.path for route in app.routes} & {*files, *self.posts}, "a file has the path of a page"

        async def sited(scope: Any, receive: Any, send: Any) -> None:
            path, request = scope["path"], Request(scope, receive)
            if path not in files and path not in self.posts and is_named(request):
                return await app(scope, receive, send)
            answer = await self._answered(request, files.get(path))
            answer.headers.update(HEADERS)
            await answer(scope, receive, send)

        return sited

    async def _answered(self, request: Request, file: Path | None) -> Response:
        from starlette.requests import ClientDisconnect
        from starlette.responses import PlainTextResponse

        try:
            return await self._answer(request, file)
        except RequestRefused as error:
            return PlainTextResponse(f"{error}\n", error.status)
        except (InputError, OSError, ClientDisconnect) as error:
            return PlainTextResponse(f"{error or 'the connection ended'}\n", BUSY)

    async def _answer(self, request: Request, file: Path | None) -> Response:
        from starlette.responses import FileResponse, PlainTextResponse

        if not is_own(request):
            return PlainTextResponse("ask from a page of this address\n", FORBIDDEN)
        if file is not None and request.method == "GET":
            file.stat()  # of a file that is gone nothing has been answered yet
            kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            return FileResponse(file, media_type=kind)
        if file is None and request.method == "POST":
            return await self.posts[request.url.path](request)
        return PlainTextResponse("there is no such page\n", NOT_ALLOWED)


def is_named(request: Request) -> bool:
    """Say whether a request asks this host by one of its own names, with the port that it came to."""
    port = (request.scope.get("server") or ("", 0))[1]
    names = {f"[{name}]" if ":" in name else name for name in LOOPBACK}
    allowed = {f"{name}:{port}" for name in names} | (names if port == HTTP else set())
    return request.headers.get("host", "") in allowed


def is_own(request: Request) -> bool:
    """Say whether a request is of this host by its own name, and no other site's page sent it.

    Whoever opens the address itself is let in (`none`); to POST takes a page of the same origin.
    """
    sent_by = request.headers.get("sec-fetch-site", "none")
    if not is_named(request) or request.headers.get("origin") not in (None, f"http://{request.headers['host']}"):
        return False
    return sent_by == "same-origin" if request.method == "POST" else sent_by in ("none", "same-origin")
