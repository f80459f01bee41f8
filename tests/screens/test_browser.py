"""The screens in a browser: served by the command, guarded by a token, driven in headless Chromium."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from screens.app.web_server import address_of, is_loopback
from tests.screens import seeding
from tests.screens.support import journey
from tests.support.waiting import ended, patience
from workbench.errors import UsageError
from workbench.paths import Home
from workbench.store.db.database import Store

browsing = pytest.importorskip(
    "tests.screens.browser", reason="textual-serve is not installed: nothing serves to a browser"
)
FABRIC = Path(sys.executable).with_name("fabric")


class Served:
    """A server that runs, and the address that it printed."""

    def __init__(self, address: str, port: int, process: subprocess.Popen[str]) -> None:
        self.address = address
        self.port = port
        self.process = process

    def status(self, path: str, **headers: str) -> int:
        """Ask for a page, and return how that was answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience())
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def served(clean_environment: Path, home: Home) -> Iterator[Served]:
    with Store.open(home) as store:
        seeding.three_runs(store)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [FABRIC, "tui", "--web", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    made = Served(address, port, process)
    try:
        yield made
    finally:
        process.terminate()
        process.wait(patience())
        process.stdout.close()


def test_the_address_is_printed_when_it_can_be_opened_and_ctrl_c_stops(served: Served) -> None:
    assert served.status("/") == 403  # nobody waited for anything but the address

    served.process.send_signal(signal.SIGINT)

    assert ended(served.process) == 0


def test_a_port_that_is_taken_is_named_and_no_address_shown(clean_environment: Path, home: Home) -> None:
    Store.open(home).close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = subprocess.run(
            [FABRIC, "tui", "--web", f"127.0.0.1:{taken.getsockname()[1]}"],
            capture_output=True,
            text=True,
            timeout=patience(),
        )

    assert (ran.returncode, ran.stdout) == (73, "")
    assert "cannot listen on 127.0.0.1" in ran.stderr and "serving" not in ran.stderr


def test_only_the_token_lets_in_and_no_other_site_may_use_it(served: Served) -> None:
    token = served.address.partition("token=")[2]
    cookie = f"fabric-token={token}"

    assert served.address == f"http://127.0.0.1:{served.port}/?token={token}" and len(token) >= 32
    assert [served.status(path) for path in ("/", "/ws", "/static/js/textual.js", "/?token=wrong")] == [
        403
    ] * 4
    assert served.status(f"/?token={token}") == 302
    assert served.status("/", Cookie=cookie) == 200
    assert served.status("/ws", Cookie=cookie, Origin="http://elsewhere.example") == 403


@pytest.mark.skipif(
    browsing.CHROMIUM is None, reason="Chromium is not installed: no browser to show the screens in"
)
@journey
async def test_the_screens_are_shown_and_steered_in_a_browser(served: Served) -> None:
    async with browsing.browser() as browser:
        await browser.open(served.address)
        await browser.until(lambda shown: "mnist-wide" in shown and "1 overview" in shown)
        assert await browser.evaluate("location.href") == f"http://127.0.0.1:{served.port}/"
        assert await browser.evaluate("document.querySelectorAll('.xterm canvas, .xterm-rows').length") > 0
        blank = await browser.picture()
        await browser.until_focused()  # the terminal has the keys without a click
        await browser.type("l")
        await browser.until(lambda shown: "step 19 loss" in shown)
        await browser.picture(other_than=blank)
        await browser.type("q")
        await browser.until(lambda shown: "mnist-big" in shown)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("127.0.0.1", 8000)),
        ("9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("0.0.0.0", ("0.0.0.0", 8000)),
        ("gpubox:80", ("gpubox", 80)),
        ("[::1]:8000", ("::1", 8000)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["host:port", "a b", "http://x:1", "x:99999", "me@host:80", ":0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a valid address"):
        address_of(text)


def test_loopback_is_known_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "gpubox", "192.168.1.2"))
