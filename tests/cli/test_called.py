"""A shell's ``fabric`` whose commands are forked is like the real one to whoever starts it."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.called import forked_fabric
from tests.support.command import Fabric
from tests.support.forked import CONTROLLER, Controllers
from tests.support.waiting import ended, patience

NUMBER: Final = struct.Struct("=i")
"""The number of a forked process, and its exit code."""


@pytest.fixture
def called(fabric: Fabric, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which ``fabric`` is that program."""
    with forked_fabric(tmp_path / "bin"):
        yield {**fabric.variables, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_words_folder_streams_and_exit_code_are_the_commands(fabric: Fabric, called: dict[str, str]) -> None:
    (fabric.folder / "ok.yml").write_text("name: a\nframework: {name: custom, command: 'true'}\n")
    script = (
        "fabric validate ok.yml && echo $?; cat ok.yml | fabric validate - >/dev/null && echo $?;"
        "fabric show 'no such job'; echo $?"
    )

    ran = subprocess.run(
        ["sh", "-c", script],
        cwd=fabric.folder,
        env=called,
        capture_output=True,
        text=True,
        timeout=patience(),
    )

    assert [line for line in ran.stdout.splitlines() if line.isdecimal()] == ["0", "0", "64"]
    assert "no such job" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_command(fabric: Fabric, called: dict[str, str], number: signal.Signals) -> None:
    fabric("run", "-d", "-q", "--name", "long", "--", "echo begun; sleep 600")
    following = subprocess.Popen(
        ["fabric", "logs", "-f", "long"], cwd=fabric.folder, env=called, stdout=subprocess.PIPE
    )
    assert following.stdout is not None
    with following.stdout:
        assert following.stdout.readline() == b"begun\n"

        following.send_signal(number)

        assert following.stdout.read() == b""  # the command held it open, too
    assert ended(following) in (-number, 128 + number)


def test_with_another_locale_it_is_the_program_itself(fabric: Fabric, called: dict[str, str]) -> None:
    ran = subprocess.run(
        ["fabric", "--version"],
        env={**called, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=patience(),
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("fabric ")


def test_a_process_with_the_number_of_a_controller_that_nobody_waited_for_ends_as_itself() -> None:
    child = subprocess.Popen(["true"])

    def ask(_: dict[str, Any], line: int) -> None:
        os.write(line, NUMBER.pack(child.pid) + NUMBER.pack(-signal.SIGKILL))

    controllers = Controllers(ask, lambda _: True)
    argv = [sys.executable, "-P", f"/{CONTROLLER}"]
    assert controllers.spawn(sys.executable, argv, {}, file_actions=[]) == child.pid
    assert controllers.wait(child.pid, 0) == (child.pid, 0)
    child.returncode = 0  # it was waited for
