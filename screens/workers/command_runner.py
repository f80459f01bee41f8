"""Runs commands of our own in processes: for the command line of the screens, and for shells."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from workbench.errors import FabricError
from workbench.paths import Home

ENTRY: Final = "import sys; from fabric_workbench import main; sys.exit(main())"
DEADLINE_SECONDS: Final = 120.0


def command_argv(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs this very command in a process of its own."""
    return [sys.executable, "-c", ENTRY, *arguments]


def command_environment(home: Home) -> dict[str, str]:
    """Return the environment that the command is given: this home, and no colours."""
    return {**os.environ, "FABRIC_HOME": str(home.path), "NO_COLOR": "1", "COLUMNS": "100"}


def _ignore(text: str) -> None:
    """Take what the command narrates, and do nothing with it."""


Narrate = Callable[[str], object]
"""Takes what a command narrates, line by line."""


def call(
    home: Home,
    arguments: Sequence[str],
    report: Narrate = _ignore,
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> str:
    """Run ``fabric`` with these arguments to its end and return what it printed; ``report`` gets what it narrates.

    Raises:
        FabricError: it refused; the message is its own.
    """
    process = subprocess.Popen(
        command_argv(arguments),
        env=command_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    narrated = _Narration(process, report)
    late = threading.Event()
    timer = threading.Timer(deadline_seconds, _end, (process, late))
    timer.start()
    try:
        with process:
            assert process.stdout is not None
            printed = process.stdout.read()
            narrated.join()
    finally:
        timer.cancel()
    if late.is_set():
        raise FabricError(f"fabric {arguments[0]} took longer than {deadline_seconds:.0f} s and was stopped")
    if process.returncode:
        message = narrated.text.strip().removeprefix("fabric: ")
        raise FabricError(message or f"fabric {arguments[0]} failed with exit code {process.returncode}")
    return printed.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _Narration(threading.Thread):
    """Reads what a command narrates, line by line; a carriage return ends a line, too."""

    def __init__(self, process: subprocess.Popen[bytes], report: Narrate) -> None:
        super().__init__(name="narration", daemon=True)
        assert process.stderr is not None
        self._stream = process.stderr
        self._report = report
        self.text = ""
        self.start()

    def run(self) -> None:
        """Read to the end."""
        while data := self._stream.read1(4096):  # type: ignore[attr-defined] # a pipe that is buffered has it
            self.text += data.decode("utf-8", "replace").replace("\r", "\n")
            if line := self.text.rstrip("\n").rpartition("\n")[2].strip():
                self._report(line)
