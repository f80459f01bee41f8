"""The second arrival at a host goes by what the first one found, and by nothing that has changed since."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest

from backends.contract.host import Host
from backends.rpc.client import FrameClient
from backends.ssh import bootstrap
from backends.ssh.bootstrap import HERE, AgentRequest, start_agent
from tests.support.box import Box
from tests.support.kept_ground import KeptGround
from tests.support.waiting import patience, until
from workbench.controller.runtime import connections as sharing
from workbench.controller.runtime import prewarm as prewarming
from workbench.controller.runtime.connections import SHARED, SharedConnections
from workbench.errors import BackendUnreachable, NotAllowed
from workbench.learner.host.remote_loader import GREETING
from workbench.learner.platform import frames
from workbench.paths import default_home
from workbench.store.db.rows import TargetRef

pytestmark = pytest.mark.new_host


def location_files() -> list[Path]:
    """List the files that say where the agent is at a host."""
    return sorted(Path(default_home()).glob("places/*.way.json"))


@pytest.fixture
def known_box(kept_box: Box, kept_ground: KeptGround, monkeypatch: pytest.MonkeyPatch) -> Box:
    """A host that we may have arrived at before, from the home that other tests here have used for that."""
    kept_ground.environment(monkeypatch)
    return kept_box


def change(**values: str) -> None:
    """Have something remembered that is not so."""
    (path,) = location_files()
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def words_of(host: Host) -> list[str]:
    """Return the words that the agent there was started with."""
    ran = host.run(["sh", "-c", "tr '\\0' '\\n' </proc/$PPID/cmdline"])
    return ran.stdout.decode().split()


def at_once(count: int, work: Callable[[], object]) -> None:
    """Have so many threads begin the same at the same moment, and wait for all."""
    gate = threading.Barrier(count)

    def one() -> None:
        gate.wait()
        work()

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class GreetedPipe:
    """A pipe to a host that has sent its whole greeting before anybody reads it."""

    reader: BinaryIO
    writer: BinaryIO

    def explain(self) -> str:
        """Say nothing."""
        return ""

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


@pytest.mark.parametrize("first_words", [HERE, b'{"here": true}'], ids=["known", "found"])
def test_an_agent_that_greets_before_we_have_read_what_comes_first_is_heard(
    first_words: bytes, tmp_path: Path
) -> None:
    end, other = os.pipe()
    frames_follow = io.BytesIO()
    agent = frames.Channel(io.BytesIO(), frames_follow)
    agent.greet()
    agent.send_json(0, frames.HELLO, {"format": frames.FORMAT})
    os.write(other, b"welcome" + GREETING + first_words + b"\n" + frames_follow.getvalue())
    pipe = GreetedPipe(os.fdopen(end, "rb"), os.fdopen(other, "wb"))

    start_agent(pipe, AgentRequest(tmp_path, "uuid"), "box")
    client = FrameClient(pipe.reader, pipe.writer, pipe.explain)
    client.await_greeting(5.0)
    assert not client.lost
    pipe.close()
    client.join(patience())
    pipe.reader.close()


@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_the_second_arrival_starts_the_agent_at_once(box: Box, transport: str) -> None:
    backend = box.backend("ssh://box", transport=transport, config=str(box.config))
    with closing(backend.open()) as host:
        first = words_of(host)
    (path,) = location_files()
    path.chmod(0o400)
    remembered = path.read_text()
    with closing(backend.open()) as host:
        again = words_of(host)
        assert host.run(["sh", "-c", "command -v python"]).exit_code == 0

    assert first[-1] == again[-1] == "host"
    assert again[-2].endswith("/__main__.py"), "it did not start from the unpacked copy"
    assert path.read_text() == remembered


@pytest.mark.parametrize(
    "changed",
    [
        {"machine": "0" * 32},
        {"python": "/nowhere/python3"},
        {"folder": "/nowhere/agents"},
        {"home_uuid": "another"},
    ],
    ids=str,
)
def test_what_is_not_as_it_was_is_found_out_anew(known_box: Box, changed: dict[str, str]) -> None:
    known_box.backend().open().close()
    (path,) = location_files()
    right = path.read_text()
    change(**changed)
    with closing(known_box.backend().open()) as host:
        assert host.identity().user == known_box.user.name

    assert path.read_text() == right


def test_an_interpreter_that_does_not_start_any_more_costs_one_try(known_box: Box) -> None:
    known_box.backend().open().close()
    broken = known_box.user.home / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    change(python=str(broken))

    with pytest.raises(BackendUnreachable):
        known_box.backend().open()
    known_box.backend().open().close()


def test_what_a_shell_would_read_otherwise_is_never_sent_to_one(known_box: Box) -> None:
    known_box.backend().open().close()
    change(python="/bin/sh -c 'touch ~/oops';")
    known_box.backend().open().close()

    assert not (known_box.user.home / "oops").exists()


def test_several_who_come_to_a_new_host_at_once_all_arrive(box: Box) -> None:
    arrived = []

    def come() -> None:
        with closing(box.backend().open()) as host:
            arrived.append(host.identity().user)

    at_once(4, come)

    assert arrived == [box.user.name] * 4


def test_what_is_sent_to_hosts_is_made_once_and_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    makers = []

    def make() -> str:
        makers.append(threading.get_ident())
        return "loader"

    monkeypatch.setattr(bootstrap, "_made", [])
    monkeypatch.setattr(bootstrap, "_loader", make)
    at_once(4, bootstrap._packed_loader)

    assert len(makers) == 1


def test_an_expected_host_is_open_when_its_job_comes(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    over, held = threading.Event(), []

    def hold(seconds: float) -> None:
        held.append(seconds)
        assert over.wait(patience())

    monkeypatch.setattr(sharing, "time", SimpleNamespace(sleep=hold))
    target: dict[str, Any] = {"backend": "box", "type": "ssh", "runner": "process", "address": box.address}
    prewarming.prewarm(target)
    until(lambda: "Accepted publickey" in box.daemon.log(), "the host to be reached")
    shared = SHARED.open(TargetRef(**target), box.backend())
    SHARED.close(shared)

    assert box.daemon.log().count("Accepted publickey") == 1
    until(lambda: held == [sharing.HELD_SECONDS], "it to be held")
    assert box.daemon.sessions()
    over.set()
    until(lambda: not box.daemon.sessions(), "it to be given back when no job came")


def test_who_waits_for_a_host_that_lets_nobody_in_does_not_knock_again(box: Box) -> None:
    (box.daemon.folder / "keys" / box.user.name).write_text("")
    connections, refused = SharedConnections(), []
    ref = TargetRef("box", "ssh", "process", address=box.address)
    backend = box.backend()

    def knock() -> None:
        try:
            connections.open(ref, backend)
        except NotAllowed as error:
            refused.append(error.message)

    at_once(3, knock)

    assert len(refused) == 3
    assert box.daemon.log().count("Failed publickey") <= 1
