"""Commands and shells beside learners at a host: its streams, exit code, terminal and size are as they are here."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Fabric
from tests.cli.terminal import OnTerminal
from tests.containers.images import DEBIAN
from tests.ssh.conftest import Box
from tests.ssh.daemon import runs
from tests.waiting import until

WAIT = "echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def fabric(fabric: Fabric) -> Fabric:
    """The command line, with code in its working folder."""
    (fabric.folder / "here.txt").write_text("code\n")
    return fabric


def running(fabric: Fabric, *words: str) -> str:
    """Start a job at the host and return its id once it runs."""
    job = fabric("run", "-d", "-q", "--backend", "ssh://box", *words, "--", "sh", "-c", WAIT).stdout.strip()
    until(lambda: fabric("logs", job).stdout == "ready\n", "the job to run")
    return job


@pytest.fixture(params=["process", "container"])
def words(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """How the job is run there."""
    if request.param == "process":
        return ("--runner", "process")
    request.getfixturevalue("engine_box")
    return ("--runner", "container", "--image", DEBIAN)


def test_a_command_has_our_streams_the_jobs_folder_and_its_own_exit_code(
    fabric: Fabric, words: tuple[str, ...]
) -> None:
    job = running(fabric, *words)
    script = "cat here.txt; cat; echo $LEARNER_ID; echo aside >&2; exit 7"
    ran = fabric("exec", job, "--", "sh", "-c", script, input="typed\n", expect=7)

    assert ran.stdout == "code\ntyped\n1\n"
    assert ran.stderr.endswith("aside\n")
    fabric("kill", job)
    over = fabric("exec", job, "--", "true", expect=None)
    assert over.returncode != 0
    assert "is not running" in over.stderr


def test_large_input_and_output_are_exact(fabric: Fabric) -> None:
    job = running(fabric, "--runner", "process")
    text = "".join(f"{number}\n" for number in range(400_000))
    ran = fabric("exec", job, "--", "cat", input=text)

    assert ran.stdout == text
    fabric("kill", job)


def test_a_shell_has_a_terminal_of_the_size_of_ours(fabric: Fabric, words: tuple[str, ...]) -> None:
    job = running(fabric, *words)
    terminal = OnTerminal(fabric.folder, "shell", job, columns=97)
    terminal.know_the_prompt()
    assert b"24 97" in terminal.ask(b"stty size")
    assert b"on-a-terminal" in terminal.ask(b"tty >/dev/null && echo on-a-''terminal")
    terminal.resize(40, 120)
    until(lambda: b"40 120" in terminal.ask(b"stty size"), "the new size to arrive")
    terminal.press(b"exit 5\r")
    assert terminal.wait() == 5
    fabric("kill", job)


def test_a_command_beside_a_process_ends_with_who_asked_for_it(box: Box, fabric: Fabric) -> None:
    job = running(fabric, "--runner", "process")
    terminal = OnTerminal(fabric.folder, "exec", job, "--", "sleep", "4711")
    until(lambda: runs(box.user, b"4711"), "the command to run")
    terminal.process.kill()
    terminal.wait()
    until(lambda: not runs(box.user, b"4711"), "the command to end")
    fabric("kill", job)


def test_a_command_whose_input_has_ended_ends_with_who_asked_for_it_too(box: Box, fabric: Fabric) -> None:
    job = running(fabric, "--runner", "process")
    command = fabric.start("exec", job, "--", "sleep", "4710")
    until(lambda: runs(box.user, b"4710"), "the command to run")
    command.kill()
    command.communicate()
    until(lambda: not runs(box.user, b"4710"), "the command to end")
    fabric("kill", job)
