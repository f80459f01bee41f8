"""A command beside a learner that is a process: in its folder, with its environment."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import RunnerError


class ProcessExec:
    """One command; it has begun when this is made, and has our own standard streams."""

    def __init__(self, launch: Mapping[str, Any], marker: str, argv: Sequence[str]) -> None:
        environment = environment_beside(launch, marker)
        try:
            self._process = subprocess.Popen(list(argv), cwd=str(launch["cwd"]), env=environment)
        except OSError as error:
            raise RunnerError(f"{argv[0]} cannot be started: {error.strerror}.") from error

    def wait(self) -> int:
        """Wait for its exit code; what is typed at the terminal is its business."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        return 128 - code if code < 0 else code


def environment_beside(launch: Mapping[str, Any], marker: str) -> dict[str, str]:
    """Return the environment of a command beside a learner: the learner's own, with our terminal's type."""
    environment = {str(name): str(value) for name, value in (launch.get("env") or {}).items()}
    if "TERM" in os.environ:
        environment.setdefault("TERM", os.environ["TERM"])
    # It is the learner's: a stop of the learner ends it, too.
    environment["FABRIC_LEARNER"] = marker
    return environment
