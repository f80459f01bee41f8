"""Checks which agents of an attempt have begun: a launch starts only the others and waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchPlan, LaunchRequest
from runners.shared.environment import marker
from runners.shared.host_facts import HostFacts
from runners.shared.launch_document import ref_of
from runners.shared.staged_launch import Rendezvous
from workbench.errors import RunnerError, SlotsBusy
from workbench.learner.host.learners import is_begun
from workbench.paths import AttemptFolder, JobFolder
from workbench.spec import spec_to_json

SUBMITTED: Final = "submitted.json"
"""The file in a job's folder on a remote host with what was submitted."""

BEGIN_SECONDS: Final = 20.0
"""How long an agent may take to begin."""

LOOK_SECONDS: Final = 1.0
"""The interval of checks whether an agent that has not begun still runs."""


def submitted_file(plan: LaunchPlan, job: JobFolder) -> dict[str, str]:
    """Return the file, as text by path, from which ``fabric adopt`` on another machine takes the job over."""
    request = plan.request
    document = {
        "format": 1,
        "spec": spec_to_json(request.spec),
        "owner": request.owner,
        "attempt": request.attempt.attempt,
        "runner": plan.runner,
        "code_hash": request.code_hash,
        "recorded": dict(request.recorded),
        **({"hosts": _hosts_document(request)} if request.hosts else {}),
    }
    return {str(job.path / SUBMITTED): json.dumps(document) + "\n"}


def _hosts_document(request: LaunchRequest) -> dict[str, Any]:
    """Say that the host has a part of the job only; an older fabric does not know the runner of such a job."""
    return {"names": list(request.hosts), "part": list(request.attempt.part)}


class AgentStarts:
    """Which agents of one attempt have begun."""

    def __init__(
        self, plan: LaunchPlan, host: Host, site: HostFacts, attempt: AttemptFolder, subscriber: str
    ) -> None:
        self._plan = plan
        self._host = host
        self._site = site
        self._attempt = attempt
        self._subscriber = subscriber

    def pending(self) -> list[int]:
        """Return the learners whose agents must be started; waits for agents that are starting."""
        learners = [one.learner for one in self._plan.learners]
        facts = {learner: self._facts(learner) for learner in learners}
        cut_off = [one for one in learners if facts[one]["launched"] and not is_begun(facts[one])]
        if cut_off:
            self._wait([one for one in cut_off if self._may_run([one])])
            facts |= {learner: self._facts(learner) for learner in cut_off}
        return [learner for learner in learners if not is_begun(facts[learner])]

    def await_begun(self, learners: Sequence[int]) -> None:
        """Wait until the agents of these learners have begun.

        Raises:
            RunnerError: one ended before it began; the message has the last line of its log.
        """
        for learner in self._wait(learners):
            log = str(self._attempt.learner(learner).path / "guard.log")
            chunks = self._host.read({log: 0})
            lines = chunks[log].data.decode("utf-8", "replace").strip().splitlines() if log in chunks else []
            raise RunnerError(
                f"The agent of learner {learner} could not be started" + (f": {lines[-1]}" if lines else "."),
                hint=f"See {log}.",
            )

    def rendezvous(self) -> Rendezvous | None:
        """Return where learners that have begun here meet; None where none has."""
        for learner in self._begun():
            launch = self._host.call("read_object", path=str(self._attempt.learner(learner).launch)) or {}
            environment = launch.get("env") or {}
            if "MASTER_PORT" in environment:
                return Rendezvous(str(environment["MASTER_ADDR"]), int(environment["MASTER_PORT"]))
        return None

    def check_all_wait(self, learners: Sequence[int], busy: SlotsBusy) -> None:
        """Stop the others where only these learners find their slots busy: all must have slots, or none.

        Raises:
            RunnerError: others have begun.
        """
        if len(learners) < len(self._plan.learners):
            self.stop_begun()
            raise RunnerError(
                f"The launch was interrupted, and other jobs took what it still needs: {busy.message}"
            ) from busy

    def stop_begun(self) -> None:
        """Kill the learners that have begun here."""
        request = json.dumps({"kind": "kill", "grace_seconds": 0.0, "by": "an incomplete launch"}) + "\n"
        files = {str(self._attempt.learner(learner).stop): request for learner in self._begun()}
        self._host.call("write_files", files=files)

    def _begun(self) -> list[int]:
        return [one.learner for one in self._plan.learners if is_begun(self._facts(one.learner))]

    def _wait(self, learners: Sequence[int]) -> list[int]:
        """Wait until agents have begun; return those that have not begun and no longer run."""
        folders = {str(self._attempt.learner(learner).path): learner for learner in learners}
        known = dict.fromkeys(folders, "")
        until = time.monotonic() + BEGIN_SECONDS
        while known and time.monotonic() < until:
            answer = self._host.call(
                "observe", asker=self._subscriber, known=known, timeout_seconds=LOOK_SECONDS
            )
            for path, facts in answer["learners"].items():
                if is_begun(facts):
                    del known[path]
                else:
                    known[path] = facts["fingerprint"]
            if known and not answer["learners"] and not self._may_run([folders[path] for path in known]):
                break
        return [folders[path] for path in known]

    def _may_run(self, learners: Sequence[int]) -> bool:
        """Return whether any of these agents runs; True if the system cannot tell."""
        if self._site.system != "Linux":
            return True
        running = self._agents()
        return any(self._marker(learner) in running for learner in learners)

    def _facts(self, learner: int) -> dict[str, Any]:
        facts: dict[str, Any] = self._host.call("learner", folder=str(self._attempt.learner(learner).path))
        return facts

    def _agents(self) -> dict[str, list[int]]:
        running: dict[str, list[int]] = self._host.call("markers", variable="FABRIC_GUARD")
        return running

    def _marker(self, learner: int) -> str:
        return marker(ref_of(self._plan, learner))
