"""A headless Chromium, driven by its own remote debugging protocol: what it received, what it shows, keys for it."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import patience

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DEADLINE_SECONDS = patience()
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Browser:
    """One tab of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, dict[str, Any]] = {}
        self.received = b""
        """All that came to the page by its own websocket."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and return its result."""
        number = len(self._answers) + 1
        self._answers[number] = {}
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self._answers[number]:
            await self._take(deadline)
        return dict(self._answers[number].get("result", {}))

    async def _take(self, deadline: float) -> None:
        message = await self._socket.receive_json(timeout=max(0.01, deadline - time.monotonic()))
        if "id" in message:
            self._answers[message["id"]] = message
        elif message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            data = frame["payloadData"]
            self.received += base64.b64decode(data) if frame["opcode"] == 2 else data.encode()

    async def open(self, address: str) -> None:
        """Go to a page."""
        await self.ask("Network.enable")
        await self.ask("Page.enable")
        await self.ask("Page.navigate", url=address)

    async def until(self, holds: Callable[[str], bool]) -> None:
        """Wait until something holds of the text that was received."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds(_ESCAPES.sub(b"", self.received).decode("utf-8", "replace")):
            await self._take(deadline)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer.get("result", {}).get("value")

    async def type(self, words: str) -> None:
        """Type into the page."""
        for sign in words:
            await self.ask("Input.dispatchKeyEvent", type="keyDown", text=sign, key=sign)
            await self.ask("Input.dispatchKeyEvent", type="keyUp", key=sign)

    async def until_focused(self) -> None:
        """Wait until the terminal takes what is typed."""
        focused = "document.activeElement.classList.contains('xterm-helper-textarea')"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not await self.evaluate(focused):
            assert time.monotonic() < deadline, "the terminal never had the focus"
            await asyncio.sleep(0.05)

    async def click(self, x: int, y: int) -> None:
        """Click on a spot of the page, which gives it the keyboard, too."""
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def picture(self, *, other_than: bytes = b"") -> bytes:
        """Return the page as PNG, once it is another one than that: it is painted after the terminal has the text."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (found := await self._capture()) == other_than:
            assert time.monotonic() < deadline, "the page was never painted anew"
            await asyncio.sleep(0.05)
        return found

    async def _capture(self) -> bytes:
        return base64.b64decode((await self.ask("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    folder = tempfile.mkdtemp(prefix="fab-browser-")
    args = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]
    process = subprocess.Popen(
        [
            *args,
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "--window-size=1000,700",
            "about:blank",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await _port(Path(folder) / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        process.terminate()
        try:
            process.wait(patience())
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


async def _port(file: Path) -> int:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if file.is_file() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise AssertionError("the browser never said at which port it listens")
