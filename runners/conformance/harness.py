"""Helpers of the conformance suite: plan and launch a job, and wait for statuses, output and records without sleeps."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from runners.interface import (
    AttemptRef,
    LaunchPlan,
    LaunchRequest,
    LearnerRef,
    LearnerStatus,
    Observation,
    Runner,
    StopRequest,
)
from workbench.job import LearnerPhase, new_job_id
from workbench.manifest.keys.credentials import taken_out
from workbench.spec import Framework, JobSpec
from workbench.values import dataclass

PATIENCE_SECONDS: Final = 60.0 * float(os.environ.get("FABRIC_TEST_PATIENCE", "1"))
"""How long a test waits for anything before it fails; longer where the environment says that the machine is busy."""

OVER: Final = frozenset({LearnerPhase.EXITED, LearnerPhase.LOST})


def request_of(
    command: str,
    *,
    home: str,
    recorded: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    attempt: AttemptRef | None = None,
    code: tuple[str, str] = ("", ""),
    image: str = "",
    names: Sequence[str] = (),
    location: Mapping[str, str] | None = None,
    **spec: Any,  # the fields of JobSpec
) -> LaunchRequest:
    """Return the request for a job's first attempt, or for ``attempt``.

    ``code`` is the hash and the file of a snapshot, ``names`` are the secrets that the job uses, ``location`` is the
    registry of its image with the login as a manifest has it.
    """
    spec.setdefault("secrets", tuple(names or secrets or ()))
    spec.setdefault("grace_seconds", 5.0)
    spec.setdefault("settle_seconds", 5.0)
    framework = Framework(command=command, version=image, image_location=location or {})
    made, login = taken_out(JobSpec(name="conformance", framework=framework, **spec))
    ref = attempt or AttemptRef(home, new_job_id(), 1, made.learners)
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return LaunchRequest(
        attempt=ref,
        spec=made,
        owner="tester@conformance",
        code_hash=code[0],
        code_file=code[1],
        recorded={"python": sys.executable, "environment": environment, **(recorded or {})},
        secrets={**(secrets or {}), **login},
    )


@dataclass(slots=True)
class LaunchLines:
    """Records the progress of a launch."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, text: str, *, stage: Literal["preparing", "waiting", "starting"]) -> None:
        """Record one line."""
        self.lines.append((stage, text))


@dataclass(slots=True)
class LaunchedAttempt:
    """An attempt in a test, with every status that was observed."""

    runner: Runner
    request: LaunchRequest
    plan: LaunchPlan
    progress: LaunchLines = field(default_factory=LaunchLines)
    transcribe: Callable[[LearnerRef], None] = field(default=lambda learner: None)
    """Prepares the journal before it is read; see ``ContractBase.transcribe``."""
    statuses: dict[int, LearnerStatus] = field(default_factory=dict)
    history: list[LearnerStatus] = field(default_factory=list)

    @classmethod
    def planned(cls, runner: Runner, request: LaunchRequest) -> LaunchedAttempt:
        """Plan a job with a runner."""
        return cls(runner, request, runner.plan(request))

    def launch(self) -> LaunchedAttempt:
        """Launch the attempt."""
        self.runner.launch(self.plan, self.progress)
        return self

    def ref(self, learner: int = 1) -> LearnerRef:
        """Return the reference of a learner."""
        attempt = self.request.attempt
        return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, learner)

    def until(
        self, holds: Callable[[Mapping[int, LearnerStatus]], bool], what: str
    ) -> Mapping[int, LearnerStatus]:
        """Observe until a condition holds for the statuses by learner; fail after PATIENCE_SECONDS."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds(self.statuses):
            if time.monotonic() > until:
                raise AssertionError(f"timed out waiting until {what}; observed: {self.statuses}")
            self.observe(1.0)
        return self.statuses

    def observe(self, timeout_seconds: float) -> Observation:
        """Observe once and record the statuses."""
        observation = self.runner.observe([self.request.attempt], timeout_seconds=timeout_seconds)
        for status in observation.seen:
            self.statuses[status.ref.learner] = status
            self.history.append(status)
        return observation

    def until_over(self) -> Mapping[int, LearnerStatus]:
        """Observe until all learners have ended."""
        count = self.request.attempt.learners
        return self.until(lambda found: len(found) == count and all(_over(found.values())), "all had ended")

    def until_running(self) -> Mapping[int, LearnerStatus]:
        """Observe until all learners run."""
        count = self.request.attempt.learners
        return self.until(
            lambda found: (
                len(found) == count and all(one.phase is LearnerPhase.RUNNING for one in found.values())
            ),
            "all ran",
        )

    def stop(self, kind: Literal["halt", "kill"] = "kill", grace_seconds: float = 0.0) -> LaunchedAttempt:
        """Ask the learners to stop."""
        self.runner.stop(self.request.attempt, StopRequest(kind, grace_seconds, "tester@conformance"))
        return self

    def output(self, learner: int = 1) -> bytes:
        """Read all of a learner's output that is published."""
        self.transcribe(self.ref(learner))
        parts: list[bytes] = []
        offset = 0
        while True:
            chunk = self.runner.journal(self.ref(learner), {"output": offset}).get("output")
            if chunk is None or not chunk.data:
                return b"".join(parts)
            parts.append(chunk.data)
            offset += len(chunk.data)

    def records(self, learner: int = 1) -> list[dict[str, Any]]:
        """Read all records of a learner."""
        self.transcribe(self.ref(learner))
        chunk = self.runner.journal(self.ref(learner), {"records": 0}).get("records")
        return [json.loads(line) for line in chunk.data.splitlines()] if chunk else []

    def until_recorded(self, kind: str, learner: int = 1) -> list[dict[str, Any]]:
        """Wait until a learner has records of a kind; return them."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := [one for one in self.records(learner) if one.get("kind") == kind]):
            if time.monotonic() > until:
                raise AssertionError(
                    f"timed out waiting for a {kind} record; there are: {self.records(learner)}"
                )
            self.observe(0.05)
        return found

    def until_printed(self, text: bytes, learner: int = 1) -> bytes:
        """Wait until a learner's output contains ``text``; return the output."""
        until = time.monotonic() + PATIENCE_SECONDS
        while text not in (output := self.output(learner)):
            if time.monotonic() > until:
                raise AssertionError(f"timed out waiting for {text!r}; printed: {output[-2000:]!r}")
            self.observe(0.05)
        return output


def _over(statuses: Iterable[LearnerStatus]) -> Sequence[bool]:
    return [one.phase in OVER for one in statuses]
