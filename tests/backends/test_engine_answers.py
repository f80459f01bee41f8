"""An engine that is there and answers badly is waited for; only one that is not there is passed over."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backends.contract.container_engines import EngineHangs, ping
from backends.contract.host import BackendOptions
from backends.local.backend import LocalBackend
from backends.ssh.host_cache import choose_engine
from workbench.errors import BackendUnreachable
from workbench.learner.host import probe

ERROR = b'HTTP/1.0 500 Internal Server Error\r\nContent-Type: application/json\r\n\r\n{"message": "no room"}'


@contextmanager
def engine_that_answers(answer: bytes | None) -> Iterator[str]:
    """Serve one answer at a socket, or none: connections stay open."""
    with tempfile.TemporaryDirectory(prefix="fab-") as folder, socket.socket(socket.AF_UNIX) as server:
        path = f"{folder}/engine.sock"
        server.bind(path)
        server.listen()
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    stream, _ = server.accept()
                except OSError:
                    return
                kept.append(stream)
                if answer is not None:
                    stream.recv(65536)
                    stream.sendall(answer)
                    stream.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for stream in kept:
                stream.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(None, "has not answered for 0.05 s", id="silent"),
        pytest.param(ERROR, "answers with an error: no room", id="an error"),
        pytest.param(b"", "ended the connection", id="no answer"),
    ],
)
def test_a_job_that_names_an_image_does_not_run_without_it_while_its_engine_answers_badly(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, words: str
) -> None:
    monkeypatch.setattr("backends.contract.container_engines.PING_SECONDS", 0.05)
    with engine_that_answers(answer) as path:
        backend = LocalBackend(BackendOptions("local", "local", options={"engine": f"unix://{path}"}))

        with pytest.raises(EngineHangs, match=words):
            ping(path)
        assert backend.why_not("container") is None
        finding = next(one for one in backend.probe() if one.subject == "engine")
        assert words in finding.found
        assert finding.consequence == "Jobs that name an image wait for it."


def test_an_engine_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(BackendUnreachable) as caught:
        ping(str(tmp_path / "none.sock"))

    assert not isinstance(caught.value, EngineHangs)


@pytest.mark.parametrize("answer", [None, ERROR, b""], ids=["silent", "an error", "no answer"])
def test_an_engine_of_a_host_that_answers_badly_is_chosen_where_no_other_works(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    monkeypatch.setattr("workbench.learner.host.probe.ENGINE_SECONDS", 0.05)
    with engine_that_answers(answer) as path:
        found = probe._socket(path)

    assert found["hangs"]
    assert choose_engine([found], "gpubox")[0] == path
