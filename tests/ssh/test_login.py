"""What must be typed is asked for once, where the user is, and kept in the controller's memory alone."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from functools import partial
from typing import ClassVar

import pytest

from backends.contract.prompts import CREDENTIALS
from backends.ssh.connection import SshConnection
from tests.ssh.seen import reason
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.sshd import set_password
from tests.support.terminal import OnTerminal
from tests.support.waiting import until
from workbench.errors import NeedsLogin
from workbench.paths import Home

SECRET = "correct horse"


@pytest.fixture
def fabric(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """The command line with a person at it."""
    monkeypatch.delenv("CI", raising=False)
    return fabric


class WithPassword:
    """Tests of a host that takes no key and asks for a password."""

    @pytest.fixture(autouse=True)
    def _password(self, box: Box) -> None:
        set_password(box.user, SECRET)
        (box.daemon.folder / "keys" / box.user.name).write_text("")

    def test_it_is_asked_for_once_and_never_written_down(self, box: Box, fabric: Fabric, home: Home) -> None:
        refused = fabric("run", "--backend", box.address, "--", "true", expect=77)
        assert f"needs login: `fabric backend login {box.address}`" in refused.stderr

        log_in(fabric, box, "wrong", SECRET)
        for _ in range(2):
            ran = fabric("run", "-q", "--backend", box.address, "--", "id", "-un")
            assert ran.stdout == f"{box.user.name}\n"
        assert not [
            path for path in home.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
        ]

    def test_a_job_waits_for_it_and_goes_on_once_it_was_typed(
        self, box: Box, fabric: Fabric, home: Home
    ) -> None:
        log_in(fabric, box, SECRET)
        fabric("run", "-q", "--backend", box.address, "--", "true")
        fabric("controller", "stop")
        job = fabric("run", "-d", "-q", "--backend", box.address, "--", "true").stdout.strip()
        until(lambda: "needs login" in reason(home, job), "the reason")
        tries = box.daemon.connections()
        fabric("list")
        assert box.daemon.connections() <= tries + 1

        log_in(fabric, box, SECRET)
        fabric("wait", job)


class TestPassword(WithPassword):
    @pytest.fixture
    def box_settings(self) -> list[str]:
        return ["PasswordAuthentication yes"]

    def test_what_is_typed_while_a_try_goes_on_is_tried_the_next_time(
        self, box: Box, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def open_and_type(connection: SshConnection) -> None:
            try:
                really_open(connection)
            finally:
                CREDENTIALS.update({f"Password of {box.user.name}@{box.daemon.address}": SECRET})

        really_open = SshConnection.open
        monkeypatch.setattr(SshConnection, "open", open_and_type)
        with pytest.raises(NeedsLogin):
            box.backend().open()
        box.backend().open().close()


class TestKeyboardInteractive(WithPassword):
    in_gate: ClassVar[Collection[str]] = ("test_it_is_asked_for_once_and_never_written_down",)
    why_soak: ClassVar[str] = "a second way to ask; the gate has each test with a password, and one with this"

    @pytest.fixture
    def box_settings(self) -> list[str]:
        return ["UsePAM yes", "KbdInteractiveAuthentication yes", "PasswordAuthentication no"]


class TestPasswordAfterTheKey:
    @pytest.fixture
    def box_settings(self) -> list[str]:
        return ["PasswordAuthentication yes", "AuthenticationMethods publickey,password"]

    def test_a_second_factor_is_asked_for_too(self, box: Box, fabric: Fabric) -> None:
        set_password(box.user, SECRET)
        log_in(fabric, box, SECRET)

        assert fabric("run", "-q", "--backend", box.address, "--", "id", "-un").stdout == f"{box.user.name}\n"


def test_a_passphrase_is_asked_for_where_a_backend_is_added_and_jobs_need_no_more(
    box: Box, fabric: Fabric
) -> None:
    argv = ["ssh-keygen", "-q", "-p", "-P", "", "-N", SECRET, "-f", str(box.key)]
    subprocess.run(argv, check=True, capture_output=True)
    terminal = OnTerminal(fabric.folder, "backend", "add", "box", box.address)
    terminal.read_until(b"Passphrase of")
    terminal.press(SECRET.encode() + b"\r")
    assert terminal.wait() == 0, terminal.shown
    assert SECRET.encode() not in terminal.shown

    assert fabric("run", "-q", "--backend", "box", "--", "id", "-un").stdout == f"{box.user.name}\n"


def log_in(fabric: Fabric, box: Box, *passwords: str) -> None:
    """Log in at a terminal, typing each of these when asked again."""
    terminal = OnTerminal(fabric.folder, "backend", "login", box.address)
    for number, password in enumerate(passwords, 1):
        until(partial(_asked, terminal, number), lambda: f"the question; {terminal.shown!r}")
        terminal.press(password.encode() + b"\r")
    code = terminal.wait()
    assert code == 0, terminal.shown
    assert b"logged in to" in terminal.shown
    assert terminal.shown.count(b"the last answer was not accepted") == len(passwords) - 1


def _asked(terminal: OnTerminal, times: int) -> bool:
    terminal.read_until(b"Password of")
    if terminal.shown.count(b"Password of") < times:
        before, terminal.shown = terminal.shown, b""
        terminal.shown = before + terminal.read_until(b"Password of")
    return terminal.shown.count(b"Password of") >= times
