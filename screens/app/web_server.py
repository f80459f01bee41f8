"""Serves the screens to a browser by textual-serve: to whoever has the token, and from nowhere but here.

A terminal in a browser can do what its user can do. So a token is asked for even on loopback, where another
user of the machine could open the same port, and a page of another site is not let in with the reader's cookie.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from screens.workers.command_runner import ENTRY
from workbench.errors import CannotWrite, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler
    from aiohttp.web import Request, StreamResponse
    from textual_serve.server import Server

    from workbench.paths import Home

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8000
TOKEN_VARIABLE: Final = "FABRIC_WEB_TOKEN"
"""Names the token where the user wants to choose it; else one is made."""
COOKIE: Final = "fabric-token"
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*))?(?::(?P<port>[0-9]{1,5}))?"
)
_FOCUS: Final = """<script>
const focusing = setInterval(() => {
  const line = document.querySelector(".xterm-helper-textarea");
  if (line) { line.focus(); clearInterval(focusing); }
}, 50);
</script>"""
"""Gives the terminal the keys as soon as it is there: else they do nothing until it is clicked."""
_ELSEWHERE: Final = re.compile(r"<link[^>]*https?://[^>]*>", re.DOTALL)
"""What the page would fetch from other machines: a font, which is not needed."""


def address_of(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``HOST``, ``:PORT`` or ``PORT``.

    Raises:
        UsageError: it is none of these.
    """
    found = _ADDRESS.fullmatch(f":{text}" if text.isdecimal() else text)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 1 << 16:
        raise UsageError(f"{text!r} is not a valid address", hint="give HOST:PORT, e.g. 127.0.0.1:8000")
    return (found["host"] or found["six"] or DEFAULT_HOST), port


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach a host's ports."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def serve(home: Home, address: str, *, readonly: bool) -> int:
    """Serve the screens until interrupted; each browser tab has its own.

    Raises:
        UsageError: the address is none, or textual-serve is not installed.
        CannotWrite: the port cannot be had.
    """
    host, port = address_of(address)
    try:
        from textual_serve.server import Server
    except ImportError:
        raise UsageError(
            "--web needs textual-serve, which is not installed",
            hint="pip install 'fabric-workbench[web]'",
        ) from None
    os.environ["FABRIC_HOME"] = str(home.path)
    argv = [sys.executable, "-c", ENTRY, "tui", *(["--readonly"] if readonly else [])]
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    server = _guarded(Server)(shlex.join(argv), host, port, title="fabric")
    shown = f"[{host}]" if ":" in host else host
    reach = "" if is_loopback(host) else ", reachable from other machines and not encrypted"
    listens = False

    def say() -> None:
        nonlocal listens
        listens = True
        print(f"http://{shown}:{port}/?token={token}", flush=True)
        print(f"serving the screens at {shown}:{port}{reach}; ctrl-c stops", file=sys.stderr, flush=True)

    server.token = token
    try:
        server.serve_and_say(say)
    except OSError as error:
        if listens:  # nobody reads what is printed
            raise
        raise CannotWrite(f"cannot listen on {shown}:{port}: {error.strerror or error}") from error
    return 0


def _guarded(base: type[Server]) -> type[Any]:
    """Return textual-serve's server with a guard in front; made here, since aiohttp is imported with it."""
    import aiohttp_jinja2
    from aiohttp import web

    class Guarded(base):  # type: ignore[misc, valid-type] # a class that is only known now
        token = ""

        def initialize_logging(self) -> None:
            """Leave the terminal to what we say."""

        async def on_startup(self, app: web.Application) -> None:
            """Print nothing: nobody can come yet."""

        def serve_and_say(self, say: Callable[[], None]) -> None:
            """Serve until a signal comes; ``say`` is called once browsers are let in."""
            # textual-serve's own method leaves a moment in which ctrl-c is a traceback, and says nothing.
            web.run_app(self._make_app(), host=self.host, port=self.port, print=lambda *_: say())

        async def _make_app(self) -> web.Application:
            made: web.Application = await super()._make_app()
            made.middlewares.append(self._guard)
            return made

        @web.middleware
        async def _guard(self, request: Request, handler: Handler) -> StreamResponse:
            if not _same_site(request.headers.get("Origin"), request.host):
                raise web.HTTPForbidden(text="requests from other sites are refused\n")
            token = request.query.get("token")
            if token is not None and self._fits(token):
                answer = web.HTTPFound("/")  # so that the token stays in no history
                answer.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict")
                return answer
            if not self._fits(request.cookies.get(COOKIE, "")):
                raise web.HTTPForbidden(
                    text="the token is missing or wrong: open the address that fabric printed\n"
                )
            return await handler(request)

        def _fits(self, token: str) -> bool:
            return secrets.compare_digest(token.encode(), self.token.encode())

        async def handle_index(self, request: Request) -> web.Response:
            """Serve the page; its addresses are those by which the browser came."""
            context = {
                "font_size": 16,
                "app_websocket_url": f"ws://{request.host}/ws",
                "config": {"static": {"url": "/static/"}},
                "application": {"name": self.title},
            }
            page = aiohttp_jinja2.render_string("app_index.html", request, context)
            page = _ELSEWHERE.sub("", page).replace("</body>", f"{_FOCUS}</body>")
            return web.Response(text=page, content_type="text/html")

    return Guarded


def _same_site(origin: str | None, host: str) -> bool:
    return origin is None or urlsplit(origin).netloc == host
