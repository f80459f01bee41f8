"""Commands and shells beside learners at a host: its streams, exit code, terminal and size are as they are here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.ssh.seen import printed
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import DEBIAN, ensure_images
from tests.support.images import why_not as no_images
from tests.support.kept_ground import KeptGround
from tests.support.sshd import let_use_docker, runs
from tests.support.terminal import OnTerminal
from tests.support.waiting import until
from workbench.paths import Home

PROCESS = ("--runner", "process")
Running = Callable[..., str]
WAIT = "echo ready; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def kept_box(kept_box: Box) -> Box:
    """A host whose user may use the container engine, where there is one, from the first login on."""
    with pytest.MonkeyPatch.context() as here:
        here.delenv("DOCKER_HOST", raising=False)
        if not no_images():
            ensure_images()
            let_use_docker(kept_box.user)
    return kept_box


@pytest.fixture(scope="module")
def jobs() -> dict[tuple[str, ...], str]:
    """The jobs that run there, by how they were started: all tests look at the same."""
    return {}


@pytest.fixture
def fabric(kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    """The command line, with code in its working folder."""
    monkeypatch.delenv("DOCKER_HOST")
    fabric = kept_ground.fabric(monkeypatch)
    (fabric.folder / "here.txt").write_text("code\n")
    return fabric


@pytest.fixture(params=["process", "container"])
def words(request: pytest.FixtureRequest, fabric: Fabric) -> tuple[str, ...]:
    """How the job is run there."""
    if request.param == "process":
        return PROCESS
    if reason := no_images():
        pytest.skip(reason)
    return ("--runner", "container", "--image", DEBIAN)


@pytest.fixture
def running(fabric: Fabric, kept_ground: KeptGround, jobs: dict[tuple[str, ...], str]) -> Running:
    """Return the id of a job at the host that was started so, and runs."""

    def make(words: tuple[str, ...] = PROCESS) -> str:
        if words not in jobs:
            argv = ("run", "-d", "-q", "--backend", "ssh://box", *words, "--", "sh", "-c", WAIT)
            jobs[words] = fabric(*argv).stdout.strip()
        until(lambda: printed(home, jobs[words]) == "ready\n", "the job to run")
        return jobs[words]

    home = Home(kept_ground.root / "fabric")
    return make


def test_large_input_and_output_are_exact(fabric: Fabric, running: Running) -> None:
    job = running()
    text = "".join(f"{number}\n" for number in range(400_000))
    ran = fabric("exec", job, "--", "cat", input=text)

    assert ran.stdout == text


def test_a_shell_has_a_terminal_of_the_size_of_ours(
    fabric: Fabric, running: Running, words: tuple[str, ...]
) -> None:
    job = running(words)
    terminal = OnTerminal(fabric.folder, "shell", job, columns=97)
    terminal.know_the_prompt()
    assert b"24 97" in terminal.ask(b"stty size")
    assert b"on-a-terminal" in terminal.ask(b"tty >/dev/null && echo on-a-''terminal")
    terminal.resize(40, 120)
    until(lambda: b"40 120" in terminal.ask(b"stty size"), "the new size to arrive")
    terminal.press(b"exit 5\r")
    assert terminal.wait() == 5


def test_a_command_beside_a_process_ends_with_who_asked_for_it(
    kept_box: Box, fabric: Fabric, running: Running
) -> None:
    job = running()
    terminal = OnTerminal(fabric.folder, "exec", job, "--", "sleep", "4711")
    until(lambda: runs(kept_box.user, b"4711"), "the command to run")
    terminal.process.kill()
    terminal.wait()
    until(lambda: not runs(kept_box.user, b"4711"), "the command to end")


def test_a_command_whose_input_has_ended_ends_with_who_asked_for_it_too(
    kept_box: Box, fabric: Fabric, running: Running
) -> None:
    job = running()
    command = fabric.start("exec", job, "--", "sleep", "4710")
    until(lambda: runs(kept_box.user, b"4710"), "the command to run")
    command.kill()
    command.communicate()
    until(lambda: not runs(kept_box.user, b"4710"), "the command to end")


def test_a_command_has_our_streams_the_jobs_folder_and_its_own_exit_code(
    fabric: Fabric, running: Running, jobs: dict[tuple[str, ...], str], words: tuple[str, ...]
) -> None:
    job = running(words)
    script = "cat here.txt; cat; echo $LEARNER_ID; echo aside >&2; exit 7"
    ran = fabric("exec", job, "--", "sh", "-c", script, input="typed\n", expect=7)

    assert ran.stdout == "code\ntyped\n1\n"
    assert ran.stderr.endswith("aside\n")
    fabric("kill", jobs.pop(words))
    over = fabric("exec", job, "--", "true", expect=None)
    assert over.returncode != 0
    assert "is not running" in over.stderr
