"""While the API does not answer: a run is left by a signal, and commands say why they wait and return."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.kubernetes.relay import Relay
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import DEBIAN
from tests.support.waiting import ended as has_ended
from tests.support.waiting import until
from workbench.paths import Home
from workbench.store.db.identity import make_home

Start = Callable[..., subprocess.Popen[bytes]]

RUN = ("run", "-b", "k8s", "--image", DEBIAN)
LESS_PATIENT = """
import sys
from backends.kubernetes import api
from workbench.services.follow import wait
api.ANSWER_SECONDS = wait.SILENCE_SECONDS = 4.0"""
"""How long a silent cluster is waited for is no matter of these tests."""
COMMAND = f"{LESS_PATIENT}; import fabric_workbench; sys.argv[0] = 'fabric'; fabric_workbench.command()"
CONTROLLER = (
    f"{LESS_PATIENT}; from workbench.controller.main import main; main(['--home', sys.argv[1], '--wait'])"
)


@pytest.fixture
def start(fabric: Fabric, home: Home) -> Iterator[Start]:
    """Start commands that have less patience; the controller that the first one finds has as little."""
    with ExitStack() as started:

        def start(*args: str) -> subprocess.Popen[bytes]:
            if not home.controller_lock.exists():
                make_home(home)
                argv = [sys.executable, "-P", "-c", CONTROLLER, str(home.path)]
                started.enter_context(ended(subprocess.Popen(argv, stdin=subprocess.DEVNULL)))
                until(lambda: "not running" not in fabric("controller", "status").stdout, "the controller")
            return subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND, *args],
                cwd=fabric.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )

        yield start


@pytest.fixture
def relay(space: Space, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """The user's way to the cluster."""
    relay = Relay("127.0.0.1", 6443)
    config = space.kubeconfig
    config.write_text(config.read_text().replace("127.0.0.1:6443", f"127.0.0.1:{relay.port}"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    yield relay
    relay.end()


@pytest.mark.parametrize(
    ("number", "policy"),
    [
        (signal.SIGTERM, "kill"),
        pytest.param(signal.SIGINT, "halt", marks=pytest.mark.soak("the gate kills the job by SIGTERM")),
    ],
)
def test_a_run_that_reached_no_cluster_ends_with_a_signal(
    fabric: Fabric,
    start: Start,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    policy: str,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(nowhere(clean_environment)))
    with ended(start(*RUN, "--on-interrupt", policy, "--", "true")) as process:
        until_stderr_has(process, b"cannot be reached")

        process.send_signal(number)

        assert has_ended(process) in (137, 143)
    assert fabric.json("show", "@last", "--json")["state"] == "HALTED"


@pytest.mark.parametrize(
    "policy", ["halt", pytest.param("kill", marks=pytest.mark.soak("the gate halts the job"))]
)
def test_a_run_whose_cluster_accepts_calls_and_answers_none_is_left_by_a_signal(
    fabric: Fabric, start: Start, clean_environment: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("KUBECONFIG", str(config_of(clean_environment, silent.getsockname()[1])))
        with ended(start(*RUN, "--on-interrupt", policy, "--", "true")) as process:
            until_stderr_has(process, b": starting")

            process.send_signal(signal.SIGTERM)

            assert has_ended(process) in (69, 137, 143)
    shown = fabric.json("show", "@last", "--json")
    assert shown["intent"] == policy or shown["state"] == "HALTED"


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param(True, id="silent"),
        pytest.param(
            False,
            id="refused",
            marks=pytest.mark.soak("the gate stops jobs of a cluster that refuses, by command"),
        ),
    ],
)
def test_a_run_is_left_by_a_signal_while_the_cluster_is_away_and_ends_when_it_is_back(
    start: Start, space: Space, relay: Relay, holds: bool
) -> None:
    args = ("--on-interrupt", "kill", "--", "sh", "-c", "echo begun; sleep 600")
    with ended(start(*RUN, *args)) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"begun\n"
        away(relay, holds)

        process.send_signal(signal.SIGTERM)

        assert has_ended(process) == 69
        message = process.stderr.read().decode()
    assert "the stop of" in message and "is recorded" in message
    assert holds or "cannot be reached" in message
    with ended(start("delete", "--yes", "@last")) as deletion:
        assert deletion.stderr is not None
        deletion_message = deletion.stderr.read().decode()
        assert has_ended(deletion) == 69
    assert "the deletion of" in deletion_message and "is recorded" in deletion_message
    if holds:
        relay.release()
        until(lambda: not space.admin.list("Job").items, "the job to be gone", seconds=90)


@pytest.mark.parametrize(
    "command", [pytest.param("halt", marks=pytest.mark.soak("the gate kills the job")), "kill"]
)
def test_commands_that_stop_say_why_they_wait_and_return_once_the_request_is_recorded(
    fabric: Fabric, relay: Relay, command: str
) -> None:
    fabric(*RUN, "--detach", "--accept-loss", "--", "sleep", "600")
    until(lambda: fabric.json("show", "@last", "--json")["state"] == "PROCESSING", "it to run")
    away(relay, holds=False)

    stopped = fabric(command, "@last", expect=69)

    assert f"the {command} of" in stopped.stderr and "is recorded" in stopped.stderr
    assert "cannot be reached" in stopped.stderr
    assert fabric.json("show", "@last", "--json")["intent"] == command


def away(relay: Relay, holds: bool) -> None:
    if holds:
        relay.hold()
    else:
        relay.end()


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process, and have it end whatever happens."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def nowhere(folder: Path) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return config_of(folder, taken.getsockname()[1])


def config_of(folder: Path, port: int) -> Path:
    config = folder / "nowhere.kubeconfig"
    config.write_text(
        f"""
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
    )
    return config


def until_stderr_has(process: subprocess.Popen[bytes], text: bytes) -> None:
    stream: IO[bytes] | None = process.stderr
    assert stream is not None
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")
