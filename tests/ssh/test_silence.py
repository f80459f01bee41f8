"""Hosts that take a connection and then say nothing, hang up, say half a word, or are no SSH: the message for each."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.contract.host import BackendOptions
from backends.ssh.backend import SshBackend
from tests.support.waiting import patience
from workbench.errors import BackendUnreachable

Says = Callable[[socket.socket], object]
"""What a host does with a connection before it falls silent; one that raises hangs up."""


@contextmanager
def listening(says: Says) -> Iterator[int]:
    """Take connections on a port, say something on each, and hold it; give the port."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the server is closed
                while True:
                    stream, _ = server.accept()
                    held.append(stream)
                    says(stream)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(patience(10))
            for stream in held:
                stream.close()


@pytest.mark.parametrize(
    ("says", "message", "hint"),
    [
        (lambda stream: None, r"accepts a connection, but says nothing for 1 s\.", "MaxStartups"),
        (lambda stream: stream.close(), r"accepts a connection and hangs up without a word\.", "MaxStartups"),
        (
            lambda stream: stream.sendall(b"SSH-2.0-slow\r\n"),
            r"begins to speak SSH, but does not go on for 1 s\.",
            "MaxStartups",
        ),
        (lambda stream: stream.sendall(b"SSH-2.0-sl"), r"says nothing more for 1 s\.", "MaxStartups"),
        (
            lambda stream: (
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
                stream.shutdown(socket.SHUT_WR),
            ),
            r"does not speak SSH: it says 'HTTP/1\.1 400 Bad Request'\.",
            "",
        ),
    ],
    ids=["silent", "hangs up", "silent behind its name", "half a name", "no SSH"],
)
def test_a_host_that_takes_a_connection_and_does_not_go_on_is_named(
    says: Says, message: str, hint: str, monkeypatch: pytest.MonkeyPatch, clean_environment: Path
) -> None:
    monkeypatch.setattr("backends.ssh.connection.BANNER_SECONDS", 1.0)
    with listening(says) as port:
        backend = SshBackend(BackendOptions("box", "ssh", f"ssh://ada@127.0.0.1:{port}", {}))
        with pytest.raises(BackendUnreachable, match=message) as raised:
            backend.open()

    assert hint in raised.value.hint
    assert "127.0.0.1" in str(raised.value)
