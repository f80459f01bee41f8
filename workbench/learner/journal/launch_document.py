"""The launch document of a learner (``launch.json``) as values, with defaults for missing keys."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

ASKED, BY_POLICY = "asked", "by_policy"
"""In ``preemption``, and in the text of a lease: the job says that it may be preempted; or it may be where the host's
policy says so of all."""

NEVER = "never"
"""In ``preemption`` of a launch document alone: an operator of the host may have it end, and nobody else."""

PREEMPT = "preempt"
"""In a learner's state as ``stopped``: it ended for a job of a higher priority."""

AGENT_KILLED = "S202"
"""The code of the end of a learner whose agent was killed. One that is asked to end has it, too."""

TRIED_AGAIN_AT_HOST = ("S100", "S104", "S105")
"""Faults of the platform that leave the host as it was: its memory was full, somebody removed a container, GPUs went
away while a command ran."""

AUTO = "auto"
"""The collector of a job whose manifest says nothing of metrics."""


class LaunchDocument:
    """One learner's launch document; sizes in bytes, times in seconds."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        """As it was read, for collectors."""
        get = document.get
        self.home = str(get("home") or "")
        self.job = str(get("job") or "")
        self.attempt = int(get("attempt") or 1)
        self.learner = int(get("learner") or 1)
        self.learners = int(get("learners") or 1)
        self.command = str(get("command") or "")
        self.setup = str(get("setup") or "")
        self.shell = str(get("shell") or "sh")
        self.cwd = str(get("cwd") or "/")
        self.env: dict[str, str] = dict(get("env") or {})
        self.secrets_file = str(get("secrets_file") or "")
        self.grace_seconds = given_seconds(get("grace_seconds"), 30.0)
        self.settle_seconds = given_seconds(get("settle_seconds"), 60.0)
        self.ends_when: str | int = get("ends_when") or "first"
        self.max_runtime_seconds: float | None = get("max_runtime_seconds")
        self.memory_bytes: int | None = get("memory_bytes")
        self.cpus: list[int] = list(get("cpus") or ())
        self.slots: list[str] = list(get("slots") or ())
        self.usage_seconds = given_seconds(get("usage_seconds"), 2.0)
        self.attempt_dir = str(get("attempt_dir") or "")
        self.log_dir = str(get("log_dir") or "")
        self.log_dir_shared = bool(get("log_dir_shared"))
        self.metrics: dict[str, Any] | None = get("metrics")
        self.retention: dict[str, Any] | None = get("retention")
        """Which checkpoints are kept, where no result store takes them; with the keys of ``stores``."""
        self.stores: dict[str, Any] | None = get("stores")
        self.umask: int | None = get("umask")
        """The command's; None leaves it ours."""
        self.writable: list[str] = list(get("writable") or ())
        """Folders that the command's container writes in: what is in them is reached through ``beneath`` alone."""
        self.preemption: dict[str, Any] | None = get("preemption")
        """How the learner sees that others want it to end, and how long it may take for that; None without GPUs."""
        self.stop_when: list[dict[str, Any]] = list(get("stop_when") or ())
        """Rules by which the agent itself stops the learner for what it reports, each with its ``goal``."""
        self.restarts: dict[str, Any] | None = get("restarts")
        """How the host begins the next attempt should the command fail; None where it does not."""

    def follow_move(self, folder: str) -> None:
        """Name the attempt's folder where it is now: its home may have been moved since the learner began.

        ``folder`` is the learner's own.
        """
        before, now = self.attempt_dir, os.path.dirname(folder)
        if os.path.isdir(before) or os.path.basename(before) != os.path.basename(now):
            return
        self.attempt_dir = now
        if self.log_dir.startswith(before + "/"):
            self.log_dir = now + self.log_dir[len(before) :]

    @property
    def marker(self) -> str:
        """What every process of the learner carries in ``FABRIC_LEARNER``."""
        return "%s/%s/%d/%d" % (self.home, self.job, self.attempt, self.learner)

    def is_followed(
        self, found: Mapping[str, Any], why: Mapping[str, Any] | None, *, is_agent_killed: bool = False
    ) -> bool:
        """Say whether another attempt follows this end that is the host's to begin.

        Faults of the platform have restarts of their own. Who was stopped stays so, unless it was preempted.

        Args:
            found: the learner's state; of several that of the one whose end is the attempt's.
            why: why it failed; None where it did not.
            is_agent_killed: whether that is the death of its agent, which nobody had asked to end.
        """
        restarts = self.restarts
        if not restarts or why is None:
            return False
        stopped, code = found.get("stopped"), str(why.get("code") or "")
        if stopped == PREEMPT:
            return True
        exit_code = found.get("exit_code")
        if is_tried_again_at_host(exit_code, stopped, code, is_agent_killed=is_agent_killed):
            return _is_left(restarts.get("platform") or {})
        return _is_left(restarts) and has_failed_by_itself(
            found.get("exit_code"), found.get("signal"), stopped, code
        )

    def secret_values(self) -> dict[str, str]:
        """Return all that the file of secrets holds, credentials of data stores too; nothing where none is named.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a JSON object.
        """
        if not self.secrets_file:
            return {}
        document = _object(self.secrets_file)
        return {str(name): str(value) for name, value in document.items()}

    def secrets(self) -> dict[str, str]:
        """Return the secret values that the command sees, by name.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a JSON object.
        """
        return variables_of(self.secret_values())


def _is_left(restarts: Mapping[str, Any]) -> bool:
    return int(restarts.get("done") or 0) < int(restarts.get("allowed") or 0)


def is_tried_again_at_host(
    exit_code: int | None, stopped: str | None, reason_code: str, *, is_agent_killed: bool
) -> bool:
    """Say whether a learner has ended by a fault of the platform after which its host may try again by itself.

    With a fault that the next attempt would meet, too, or of a machine that goes down, the controller deals.
    """
    if stopped and not (stopped == "memory" and reason_code in TRIED_AGAIN_AT_HOST):
        return False
    if is_agent_killed and reason_code == AGENT_KILLED:
        return True
    return exit_code not in (None, 0) and reason_code in TRIED_AGAIN_AT_HOST


def has_failed_by_itself(
    exit_code: int | None, signal: int | None, stopped: str | None, reason_code: str
) -> bool:
    """Say whether a command has ended, failed, and is to blame itself: an attempt that its host begins may follow."""
    has_failed = (exit_code is not None or signal is not None) and exit_code != 0
    return has_failed and stopped in ("", "memory") and not reason_code.startswith("S")


def variables_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return of the values of a file of secrets those that are variables of the command."""
    return {name: value for name, value in values.items() if is_variable(name)}


def is_variable(name: str) -> bool:
    """Say whether a secret is a variable of the command; a store's is not: it is named by its path, with dots."""
    return "." not in name


def read(folder: str) -> LaunchDocument:
    """Read the launch document in a learner's folder.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not what a launch document should be.
    """
    try:
        return LaunchDocument(_object(os.path.join(folder, "launch.json")))
    except (TypeError, AttributeError) as error:
        raise ValueError("launch.json: %s" % error) from error


def _object(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        document = json.loads(file.read())
    if not isinstance(document, dict):
        raise ValueError("%s is not a JSON object" % os.path.basename(path))
    return document


def given_seconds(value: Any, default: float) -> float:
    """Return what a document says of a length of time, or the default where it says nothing."""
    return default if value is None else float(value)
