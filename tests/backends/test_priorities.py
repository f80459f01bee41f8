"""Calls go before bulk data on a slow link with large buffers; older peers are served as before."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, cast

import pytest

from backends.rpc.client import FrameClient
from tests.support.pipe_host import PipeHost
from tests.support.waiting import patience, until
from workbench.errors import BackendUnreachable
from workbench.learner.boot import archive
from workbench.learner.platform import frames

BYTES_PER_SECOND: Final = 500_000
HEADER: Final = struct.Struct(">IIB")
LINK: Final = f"""
import os, queue, subprocess, sys, threading, time
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def take(source, waiting):
    while data := os.read(source, 65536):
        waiting.put(data)
    waiting.put(b"")
def give(target, waiting):
    while data := waiting.get():
        for start in range(0, len(data), 4096):
            time.sleep(4096 / {BYTES_PER_SECOND})
            os.write(target, data[start : start + 4096])
    os.close(target)
for source, target in ((0, agent.stdin.fileno()), (agent.stdout.fileno(), 1)):
    waiting = queue.SimpleQueue()
    threading.Thread(target=take, args=(source, waiting), daemon=True).start()
    threading.Thread(target=give, args=(target, waiting), daemon=True).start()
agent.wait()
"""
"""A link of half a megabyte a second with buffers without end, as SSH's are for what an agent sends in a minute."""

FLOOD_BYTES: Final = 40_000_000
"""What takes 80 s there."""


@pytest.fixture
def agent(tmp_path: Path) -> str:
    return archive.build(str(tmp_path / "agents"))


@pytest.fixture
def far(agent: str, tmp_path: Path) -> Iterator[PipeHost]:
    """A host behind the slow link."""
    argv = [sys.executable, "-c", LINK, sys.executable, "-I", agent, "host"]
    with closing(PipeHost(argv, root=str(tmp_path / "place"))) as host:
        yield host


def answers_before_the_rest(host: PipeHost, carried: Callable[[], int]) -> None:
    """Make some calls, and see that most of the flood comes after their answers."""
    before = carried()
    for _ in range(3):
        host.call("existing", paths=["/"])
    assert carried() - before < FLOOD_BYTES / 5


def test_calls_are_answered_while_a_log_is_on_its_way(far: PipeHost, tmp_path: Path) -> None:
    log = tmp_path / "learner" / "output.log"
    log.parent.mkdir()
    log.write_bytes(bytes(FLOOD_BYTES))
    entries = b"".join(struct.pack("<QQQ", end, 0, 0) for end in range(0, FLOOD_BYTES + 1, 65_000))
    (log.parent / "output.idx").write_bytes(bytes(24) + entries + struct.pack("<QQQ", FLOOD_BYTES, 0, 0))
    reached = 0

    def early(folder: str, name: str, data: memoryview, offset: int) -> None:
        nonlocal reached
        reached = offset + len(data)

    def follow() -> None:
        while True:
            try:
                far.follow("a", {str(log.parent): {"output": reached}}, timeout_seconds=5.0, early=early)
            except BackendUnreachable:
                return  # closed by the test's end

    threading.Thread(target=follow, daemon=True).start()
    until(lambda: reached > 300_000, "the log to be on its way")

    answers_before_the_rest(far, lambda: reached)


def test_calls_are_answered_while_a_file_is_on_its_way_there(far: PipeHost, tmp_path: Path) -> None:
    target = tmp_path / "there" / "file"
    content = io.BytesIO(bytes(FLOOD_BYTES))

    def put() -> None:
        with pytest.raises(BackendUnreachable):  # closed by the test's end
            far.put(content, str(target))

    putting = threading.Thread(target=put)
    putting.start()
    until(lambda: content.tell() > 300_000, "the file to be on its way")

    answers_before_the_rest(far, content.tell)
    assert not target.exists()
    far.close()
    putting.join(patience())


class Peer:
    """The other end of a connection, played by the test, frame by frame."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer

    def send(self, call: int, kind: int, payload: bytes = b"") -> None:
        """Send a frame."""
        self._writer.write(HEADER.pack(len(payload), call, kind) + payload)
        self._writer.flush()

    def send_raw(self, data: bytes) -> None:
        """Send some bytes."""
        self._writer.write(data)
        self._writer.flush()

    def receive(self) -> tuple[int, int, bytes]:
        """Receive a frame."""
        length, call, kind = HEADER.unpack(self._reader.read(HEADER.size))
        return call, kind, self._reader.read(length)

    def hang_up(self) -> None:
        """End the connection."""
        self._writer.close()
        self._reader.close()


Connect = Callable[[dict[str, object]], tuple[FrameClient, Peer]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects a client with an agent that the test plays, which has greeted it so."""
    with contextlib.ExitStack() as opened:

        def make(hello: dict[str, object]) -> tuple[FrameClient, Peer]:
            ours, theirs = socket.socketpair()
            stream = opened.enter_context(cast(BinaryIO, ours.makefile("rwb", buffering=0)))
            peer = Peer(cast(BinaryIO, theirs.makefile("rb")), cast(BinaryIO, theirs.makefile("wb")))
            client = FrameClient(stream, stream, lambda: "")
            ours.close()
            theirs.close()
            opened.callback(client.join, patience())
            opened.callback(peer.hang_up)
            peer.send_raw(frames.GREETING)
            peer.send(0, frames.HELLO, json.dumps({"format": frames.FORMAT, **hello}).encode())
            client.await_greeting(patience())
            return client, peer

        yield make


def test_an_agent_that_acknowledges_nothing_is_sent_all_at_once(connect: Connect) -> None:
    client, peer = connect({})
    data = random.Random(1).randbytes(5 * frames.CHUNK_BYTES)
    results: list[bytes] = []
    calling = threading.Thread(
        target=lambda: results.append(client.exchange("run", {}, seconds=patience(), stdin=data)[1])
    )
    calling.start()
    received = [peer.receive() for _ in range(7)]
    assert [(call, kind) for call, kind, _ in received] == [
        (1, frames.CALL),
        *[(1, frames.DATA)] * 5,
        (1, frames.END),
    ]
    assert b"".join(payload for _, _, payload in received[1:6]) == data
    for start in range(0, len(data), frames.CHUNK_BYTES):
        peer.send(1, frames.DATA, data[start : start + frames.CHUNK_BYTES])
    peer.send(1, frames.RESULT, b"null")
    calling.join(patience())

    assert results == [data]


def test_a_client_that_acknowledges_nothing_is_sent_all_at_once(agent: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(random.Random(2).randbytes(5 * frames.CHUNK_BYTES - 1) + b"\n")
    with subprocess.Popen(
        [sys.executable, "-I", agent, "host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.read(len(frames.GREETING)) == frames.GREETING
        peer = Peer(cast(BinaryIO, process.stdout), cast(BinaryIO, process.stdin))
        assert peer.receive()[1] == frames.HELLO
        arguments = {"offsets": {str(file): 0}, "limit_bytes": 1 << 30}
        peer.send(1, frames.CALL, json.dumps({"do": "read", "with": arguments}).encode())
        received = [peer.receive() for _ in range(6)]
        process.stdin.close()

    assert [(call, kind) for call, kind, _ in received] == [*[(1, frames.DATA)] * 5, (1, frames.RESULT)]
    assert b"".join(payload for _, _, payload in received[:5]) == file.read_bytes()


def test_part_of_a_frame_is_a_sign_of_life(connect: Connect) -> None:
    client, peer = connect({})
    for data in (HEADER.pack(1000, 1, frames.DATA), b"some of it", b"more of it"):
        before = client.heard_at
        peer.send_raw(data)
        until(partial(_is_heard_after, client, before), "the sign of life to be seen")


def _is_heard_after(client: FrameClient, before: float) -> bool:
    return client.heard_at > before


@pytest.mark.parametrize("acknowledges", [False, True])
def test_a_reply_behind_bulk_data_is_late_only_where_it_would_have_gone_before(
    connect: Connect, acknowledges: bool
) -> None:
    client, peer = connect({frames.ACKNOWLEDGES: True} if acknowledges else {})
    call = client.open("existing", {}, seconds=0.2)
    call.end()
    results: list[object] = []

    def wait() -> None:
        try:
            results.append(call.result()[0])
        except BackendUnreachable:
            results.append("late")

    waiting = threading.Thread(target=wait)
    peer.send(99, frames.DATA, b"a log")
    waiting.start()
    if acknowledges:
        waiting.join(patience())
        assert results == ["late"]
        return
    waiting.join(1.0)  # five times as long as it may take
    peer.send(1, frames.RESULT, b'"here"')
    waiting.join(patience())

    assert results == ["here"]


def test_a_connection_that_ends_frees_who_waits_to_send(connect: Connect) -> None:
    client, peer = connect({frames.ACKNOWLEDGES: True})
    call = client.open("put", {}, seconds=patience())
    failed: list[BackendUnreachable] = []

    def send() -> None:
        try:
            while True:
                call.send(os.urandom(1024))
                call.take(frames.Frame(call.number, frames.CREDIT, b""))
        except BackendUnreachable as error:
            failed.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    while peer.receive()[1] != frames.DATA:
        pass
    peer.hang_up()
    sending.join(patience())

    assert len(failed) == 1
