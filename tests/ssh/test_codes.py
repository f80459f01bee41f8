"""A second factor that works once is worth one connection: the controller makes it, and waits for the next login."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.ssh.auth import ONE_TIME
from tests.ssh.seen import Tries, printed, reason
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.sshd import SSHD
from tests.support.terminal import OnTerminal
from tests.support.waiting import until
from workbench.paths import Home

CHECK = """#!/bin/sh
# What PAM asks: is this code one that was not used yet?
read -r code
echo "$code" >> {folder}/tried
grep -qxF "$code" {folder}/codes && sed -i "/^$code\\$/d" {folder}/codes
"""
HOLD = "echo began; until [ -e ~/end ]; do sleep 0.1; done; echo ended"


@pytest.mark.parametrize(
    ("asked", "is_kept"),
    [
        ("Password", True),
        ("Verification code", False),
        ("Enter your OTP", False),
        ("Duo passcode or option (1-3)", False),
        ("One-time password (OATH) for `me'", False),
        ("Encode", True),
    ],
)
def test_what_works_once_is_not_kept(asked: str, is_kept: bool) -> None:
    assert bool(ONE_TIME.search(asked)) is not is_kept


@pytest.fixture
def codes(clean_environment: Path) -> Path:
    """Where the codes are that were not used yet, and those that were tried."""
    folder = clean_environment / "codes"
    folder.mkdir()
    (folder / "codes").write_text("111111\n222222\n333333\n")
    (folder / "check").write_text(CHECK.format(folder=folder))
    (folder / "check").chmod(0o755)
    return folder


@pytest.fixture
def box_settings() -> list[str]:
    return [
        "UsePAM yes",
        "KbdInteractiveAuthentication yes",
        "AuthenticationMethods publickey,keyboard-interactive",
    ]


@pytest.fixture
def box_program(clean_environment: Path, codes: Path) -> Iterator[str]:
    """An sshd of another name, for which PAM has rules of ours."""
    name = f"fabsshd{secrets.token_hex(3)}"
    rules = Path("/etc/pam.d") / name
    rules.write_text(
        f"auth required pam_exec.so quiet expose_authtok {codes}/check\n"
        "auth required pam_permit.so\naccount required pam_permit.so\nsession required pam_permit.so\n"
    )
    program = clean_environment / name
    program.symlink_to(SSHD)
    yield str(program)
    rules.unlink()


@pytest.fixture
def fabric(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """The command line with a person at it."""
    monkeypatch.delenv("CI", raising=False)
    return fabric


def log_in(fabric: Fabric, box: Box, code: str) -> None:
    """Log in at a terminal."""
    terminal = OnTerminal(fabric.folder, "backend", "login", box.address)
    terminal.read_until(b"Password of")
    terminal.press(code.encode() + b"\r")
    assert terminal.wait() == 0, (terminal.shown, box.daemon.log())
    assert b"logged in to" in terminal.shown


def test_a_job_goes_on_with_the_connection_of_each_login_and_knocks_no_more_without_one(
    box: Box, fabric: Fabric, home: Home, codes: Path
) -> None:
    refused = fabric("run", "--backend", box.address, "--", "true", expect=77)
    assert f"needs login: `fabric backend login {box.address}`" in refused.stderr
    assert not (codes / "tried").exists(), "an answer was sent that nobody gave"

    log_in(fabric, box, "111111")
    job = fabric("run", "-d", "-q", "--backend", box.address, "--", "sh", "-c", HOLD).stdout.strip()
    until(lambda: printed(home, job) == "began\n", "the first line")
    assert fabric("exec", job, "--", "cat", input="typed\n").stdout == "typed\n"
    fabric("exec", job, "--", "sh", "-c", "exit 7", expect=7)
    assert "reach" in fabric("backend", "test", box.address).stdout
    assert (codes / "tried").read_text() == "111111\n"

    assert box.daemon.kill_sessions()
    until(lambda: "needs login: `fabric backend login" in reason(home, job), "the reason")
    knocked, tried = box.daemon.connections(), (codes / "tried").read_text()
    assert tried.count("\n") <= 2, "an old code was tried more than once"
    tries = Tries(box)
    until(lambda: tries() >= 2, "the host to be thought of again and again")
    assert box.daemon.connections() == knocked
    refused = fabric("exec", job, "--", "true", expect=77)
    assert "needs login: `fabric backend login" in refused.stderr
    assert (codes / "tried").read_text() == tried

    log_in(fabric, box, "222222")
    until(lambda: "needs login" not in reason(home, job), "the job to go on")
    (box.user.home / "end").touch()
    fabric("wait", job)
    assert fabric("logs", job).stdout == "began\nended\n"
    assert (codes / "tried").read_text() == f"{tried}222222\n"
