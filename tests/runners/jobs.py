"""Jobs over this machine, by a runner of their own."""

from __future__ import annotations

from typing import Any

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.process.runner import ProcessRunner

HOME = "00000000-0000-0000-0000-00000000000a"


class Jobs:
    """Makes jobs over this machine."""

    def __init__(self, host: LocalHost, home: str = HOME) -> None:
        self.host = host
        self.home = home
        self.made: list[LaunchedAttempt] = []

    def runner(self, home: str = "") -> ProcessRunner:
        """Make a runner of its own, as another thread or another controller has."""
        return ProcessRunner(self.host, home_uuid=home or self.home)

    def plan(self, command: str, **options: Any) -> LaunchedAttempt:
        """Plan a job."""
        options.setdefault("home", self.home)
        self.made.append(
            LaunchedAttempt.planned(self.runner(options["home"]), request_of(command, **options))
        )
        return self.made[-1]

    def run(self, command: str, **options: Any) -> LaunchedAttempt:
        """Plan a job and launch it."""
        return self.plan(command, **options).launch()
