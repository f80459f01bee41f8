"""``fabric shell`` and ``fabric exec`` on a terminal: keys, size and signals reach what runs inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.command import Fabric
from tests.support.images import DEBIAN
from tests.support.terminal import PROMPT, OnTerminal
from tests.support.waiting import until
from workbench.paths import Home


@pytest.fixture(params=["container", "process"])
def running(request: pytest.FixtureRequest, engine: None, fabric: Fabric, home: Home) -> Iterator[str]:
    """A job of two learners that runs."""
    args = ("run", "-d", "--runner", request.param, "--image", DEBIAN, "--set", "learners=2")
    job = fabric(*args, "--", "sh", "-c", "echo $LEARNER_ID > number; echo up; sleep 300").stdout.strip()
    for learner in (1, 2):
        output = home.job(job).attempt(1).learner(learner).output
        until(lambda: output.exists() and b"up" in output.read_bytes(), "the job to be up")  # noqa: B023 - called now
    yield job
    fabric("kill", job)
    fabric("wait", job, expect=None)


def test_a_shell_has_our_terminal_its_size_and_its_signals(fabric: Fabric, running: str) -> None:
    terminal = OnTerminal(fabric.folder, "shell", running, "-L", "2", columns=97)
    terminal.know_the_prompt()
    assert b"24 97" in terminal.ask(b"stty size")
    assert b"2\r\nxterm" in terminal.ask(b"cat number; echo $TERM")
    terminal.resize(30, 61)
    until(lambda: b"30 61" in terminal.ask(b"stty size"), "the new size to arrive")
    # What says this has the terminal already, so that one ctrl-c is enough; another might meet what is typed next.
    terminal.press(b"sh -c \"echo sle''eping; exec sleep 100\"\r")
    terminal.read_until(b"sleeping")
    terminal.shown = b""
    terminal.press(b"\x03")
    terminal.read_until(PROMPT)
    terminal.press(b"exit 9\r")

    assert terminal.wait() == 9


def test_a_command_that_is_not_there_says_so(fabric: Fabric, running: str) -> None:
    missing = fabric("exec", running, "--", "no-such-command", expect=None)
    beyond = fabric("exec", running, "-L", "3", "--", "true", expect=64)

    assert missing.returncode in (70, 126, 127)
    assert "no-such-command" in missing.stdout + missing.stderr
    assert "there is no learner 3" in beyond.stderr
