"""The real command in real processes, and proof that a test leaves none behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import until
from workbench.paths import Home

Serve = Callable[..., dict[str, Any]]
"""Starts ``fabric store serve`` with some words, and returns what it says of itself, with its ``process``."""

EXECUTABLE = Path(sys.executable).with_name("fabric")
DEADLINE_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class Fabric:
    """Calls ``fabric`` as a user does, in ``folder``."""

    folder: Path

    def __call__(
        self, *words: str, input: str | None = None, expect: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        ran = subprocess.run(
            [EXECUTABLE, *words],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            cwd=self.folder,
            env={**os.environ, **env},
            timeout=DEADLINE_SECONDS,
        )
        if expect is not None:
            said = f"{words}: {ran.returncode}\n{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
            assert ran.returncode == expect, said
        assert "Traceback" not in ran.stderr
        if "--json" in words and ran.stdout:
            from tests.schemas import check_printed

            check_printed(ran.stdout)
        return ran

    def json(self, *words: str, expect: int | None = 0, **env: str) -> Any:
        """Return the one document that a command prints."""
        return json.loads(self(*words, expect=expect, **env).stdout)

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command and return at once; stdout and stderr are pipes unless told otherwise."""
        told = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([EXECUTABLE, *words], cwd=self.folder, **told)


@pytest.fixture
def fabric(clean_environment: Path, home: Home) -> Iterator[Fabric]:
    folder = clean_environment / "work"
    folder.mkdir()
    yield Fabric(folder)
    end_everything(home)


@pytest.fixture
def serve(fabric: Fabric, home: Home) -> Iterator[Serve]:
    from workbench.data.stores.rclone import find_rclone
    from workbench.errors import FabricError

    try:
        find_rclone()
    except FabricError as error:
        pytest.skip(f"{error}")
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> dict[str, Any]:
        server = fabric.start("store", "serve", *words, "--json")
        started.append(server)
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        assert isinstance(said, dict)
        return {**said, "process": server}

    yield start
    for server in started:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        code = server.wait(30)
        for stream in (server.stdout, server.stderr):
            if stream:
                stream.close()
        assert code == 0


def end_everything(home: Home) -> None:
    """Kill the controller and every process of this home, so that no test leaves one behind."""
    for process in belonging_to(home):
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    until(lambda: not belonging_to(home), "every process of the home to be gone")


def belonging_to(home: Home) -> list[psutil.Process]:
    """Return the processes that were started from this home, ourselves and our parents left out."""
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            command_line = b"\0".join(word.encode(errors="surrogateescape") for word in process.cmdline())
            if str(home.path).encode() in environment + b"\0" + command_line and process.status() != "zombie":
                found.append(process)
    return found


def lines_of(text: str) -> Sequence[str]:
    """Return the lines of an output, without blanks at their ends."""
    return [line.rstrip() for line in text.splitlines()]
