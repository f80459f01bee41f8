"""Commands use the connection that a login made: one code serves all that is done while it stands."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.ssh.seen import printed
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.kept_ground import KeptGround
from tests.support.sshd import runs
from tests.support.terminal import OnTerminal
from tests.support.waiting import patience, until
from workbench.paths import Home, default_home

WAIT = "echo ready; while :; do sleep 0.1; done"


def running(box: Box, fabric: Fabric) -> str:
    """Log in, start a job, and return its id once it runs."""
    fabric("backend", "login", box.address)
    job = fabric("run", "-d", "-q", "--backend", box.address, "--", "sh", "-c", WAIT).stdout.strip()
    until(lambda: printed(Home(default_home()), job) == "ready\n", "the job to run")
    return job


@pytest.fixture(scope="module")
def started() -> list[str]:
    """The job that runs at the host which tests have in common, once there is one."""
    return []


@pytest.fixture
def kept_fabric(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """The command line of who has logged in there."""
    return kept_ground.fabric(monkeypatch)


@pytest.fixture
def job(kept_box: Box, kept_fabric: Fabric, started: list[str]) -> str:
    """That job: most tests look at the same, over the same login."""
    if not started:
        started.append(running(kept_box, kept_fabric))
    return started[0]


def controller_pid(fabric: Fabric) -> int:
    """Return the process of the controller."""
    return int(fabric.json("controller", "status", "--json")["pid"])


def test_bytes_streams_and_codes_are_as_over_a_connection_of_ones_own(
    kept_box: Box, kept_fabric: Fabric, job: str
) -> None:
    before = kept_box.daemon.connections()
    text = "".join(f"{number}\n" for number in range(400_000))

    assert kept_fabric("exec", job, "--", "cat", input=text).stdout == text
    ran = kept_fabric("exec", job, "--", "sh", "-c", "echo aside >&2; exit 7", expect=7)
    assert ran.stderr.endswith("aside\n")
    terminal = OnTerminal(kept_fabric.folder, "shell", job, columns=97)
    terminal.know_the_prompt()
    assert b"24 97" in terminal.ask(b"stty size")
    terminal.press(b"exit 5\r")
    assert terminal.wait() == 5
    assert kept_box.daemon.connections() == before


def test_what_asks_a_backend_asks_over_it_too(kept_box: Box, kept_fabric: Fabric, job: str) -> None:
    before = kept_box.daemon.connections()
    (kept_fabric.folder / "file").write_text("text\n")

    assert "reach" in kept_fabric("backend", "test", kept_box.address).stdout
    kept_fabric("backend", "add", "box", kept_box.address)
    kept_fabric("gc", "--backend", "box")
    kept_fabric("adopt", "box")
    kept_fabric("cp", "file", f"{job}:there")
    assert kept_fabric("exec", job, "--", "cat", "there").stdout == "text\n"
    assert "box" in kept_fabric("doctor", expect=None).stdout
    assert kept_box.daemon.connections() == before


def test_who_goes_away_ends_what_ran_for_them(kept_box: Box, kept_fabric: Fabric, job: str) -> None:
    command = kept_fabric.start("exec", job, "--", "sleep", "4712")
    until(lambda: runs(kept_box.user, b"4712"), "the command to run")
    command.kill()
    command.communicate()
    until(lambda: not runs(kept_box.user, b"4712"), "the command to end")


def test_a_command_ends_with_a_sentence_when_the_controller_goes_away(box: Box, fabric: Fabric) -> None:
    job = running(box, fabric)
    command = fabric.start("exec", job, "--", "sleep", "4713")
    until(lambda: runs(box.user, b"4713"), "the command to run")
    os.kill(controller_pid(fabric), signal.SIGKILL)
    _, stderr = command.communicate(timeout=patience())
    assert command.returncode == 69, stderr
    assert b"was lost" in stderr
    until(lambda: not runs(box.user, b"4713"), "the command to end")


def test_a_controller_that_is_stopped_holds_up_nobody(kept_box: Box, kept_fabric: Fabric, job: str) -> None:
    pid = controller_pid(kept_fabric)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert kept_fabric("exec", job, "--", "echo", "here").stdout == "here\n"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_after_the_connection_is_gone_commands_make_their_own(box: Box, fabric: Fabric) -> None:
    job = running(box, fabric)
    before = box.daemon.connections()
    assert box.daemon.kill_sessions()
    assert fabric("exec", job, "--", "echo", "here").stdout == "here\n"
    until(lambda: box.daemon.connections() >= before + 2, "one for the command, and one for the job")


class TestOneSession:
    @pytest.fixture
    def box_settings(self) -> list[str]:
        return ["MaxSessions 1"]

    def test_where_a_host_gives_no_second_session_commands_make_their_own(
        self, box: Box, fabric: Fabric
    ) -> None:
        job = running(box, fabric)
        before = box.daemon.connections()
        assert fabric("exec", job, "--", "echo", "here").stdout == "here\n"
        assert box.daemon.connections() == before + 1


def test_a_host_without_a_python_is_asked_over_it_as_well(bare: tuple[Box, Path], fabric: Fabric) -> None:
    box, _ = bare
    running(box, fabric)
    before = box.daemon.connections()
    assert "reach" in fabric("backend", "test", box.address, expect=None).stdout
    assert box.daemon.connections() == before
