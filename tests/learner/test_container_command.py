"""The agent's command for a container, beside an engine that dies while it is asked."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import ended, until

ROOT = Path(__file__).resolve().parents[2]
PIPES = ("control", "output", "result", "exit")
CONTAIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from workbench.learner.main import main;"
    " main(['contain', sys.argv[2], 'command'])"
)


class StubEngine:
    """Answers on a socket; the first ``dies`` requests to start a container get no answer."""

    def __init__(self, path: Path, *, dies: int) -> None:
        self.starts = 0
        self._dies = dies
        self._waits: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for stream in (self._listening, *self._waits):
            stream.close()

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listening.accept()
            except OSError:
                return
            target = stream.recv(65536).split()[1].rpartition(b"/")[2]
            if target.startswith(b"wait"):
                self._waits.append(stream)  # no answer as long as the container runs
                continue
            with stream:
                if target == b"start":
                    self.starts += 1
                    if self.starts > self._dies:
                        stream.sendall(b"HTTP/1.0 204 No Content\r\n\r\n")
                else:
                    stream.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"State": {"Pid": 0}}')


@contextmanager
def engine_at(folder: Path, *, dies: int) -> Iterator[StubEngine]:
    """Make a learner's folder with its pipes, and the engine of its container."""
    inside = folder / "inside"
    inside.mkdir(parents=True)
    for name in PIPES:
        os.mkfifo(inside / f"{name}.command")
    # A short path: sockets allow 100 characters.
    path = Path(tempfile.mkdtemp(prefix="fab-stub-", dir="/tmp")) / "engine.sock"
    document = {"engine": str(path), "name": "c", "image": "i", "memory_bytes": None, "acts": ["command"]}
    (folder / "container.json").write_text(json.dumps(document))
    engine = StubEngine(path, dies=dies)
    try:
        yield engine
    finally:
        engine.close()
        shutil.rmtree(path.parent)


@pytest.fixture
def learner(tmp_path: Path) -> Path:
    return tmp_path / "attempt-1" / "learner-1"


def start(learner: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-c", CONTAIN, str(ROOT), str(learner)])


def test_a_start_that_the_death_of_the_engine_cut_off_is_asked_for_again(learner: Path) -> None:
    with engine_at(learner, dies=2) as engine, start(learner) as process:
        # The container's first process: it waits for the agent, and then says how the command ended.
        with (learner / "inside" / "control.command").open("rb"):
            (learner / "inside" / "result.command").write_bytes(b"7 0 0 0\n")
            code = ended(process)

        assert (code, engine.starts) == (7, 3)
    assert not (learner / "reason.json").exists()


def test_a_command_that_is_stopped_does_not_wait_for_an_engine_that_went_away(learner: Path) -> None:
    with engine_at(learner, dies=1_000_000) as engine, start(learner) as process:
        until(lambda: engine.starts >= 2 or process.poll() is not None)
        assert process.poll() is None
        process.terminate()

        assert ended(process) == 125
    assert json.loads((learner / "reason.json").read_text())["code"] == "S200"
