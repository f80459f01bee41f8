"""Launches a process job: uploads what it needs, leases its slots, starts an agent for every learner.

A launch can be cut off at any instant and repeated: learners that have begun are not started again, and the
second of two agents for one learner exits at once. Its stages are those of ``runners.shared.staged_launch``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from backends.contract.host import Host, Lock
from runners.interface import LaunchPlan, LaunchProgress
from runners.process.plan import AGENT
from runners.shared.agents import Agent, upload_agent
from runners.shared.bind_mounts import link_mounts, linked_mounts, refusals_of_processes, refuse_missing
from runners.shared.code import deploy_code
from runners.shared.data_stores import folders_of
from runners.shared.earlier_files import bring_earlier_files
from runners.shared.environment import gpu_variables, job_folders, marker, secrets_stem
from runners.shared.gpu_leases import Leased, choose_port, lease, lease_text, leave_line, refuse_too_few
from runners.shared.hand_over import HandOver, restarts_document
from runners.shared.host_facts import HostFacts
from runners.shared.interpreters import find_interpreter
from runners.shared.launch_document import check_secrets, check_supported, ref_of
from runners.shared.staged_launch import LOOPBACK, Rendezvous, StagedLaunch
from runners.shared.startup import AgentStarts, submitted_file
from runners.shared.store_setup import refuse_stores, secrets_with, with_stores
from runners.shared.unsupported import not_built
from runners.shared.virtualenvs import ensure, environment_of
from workbench.errors import SlotsBusy
from workbench.learner.queue.allocation import RESERVED_CPUS


class ProcessLaunch(StagedLaunch):
    """The launch of those learners of one attempt that are at one host."""

    def __init__(
        self, plan: LaunchPlan, host: Host, site: HostFacts, progress: LaunchProgress, subscriber: str
    ) -> None:
        self._plan = plan
        self._request = plan.request
        self._host = host
        self._site = site
        self._progress = progress
        self._job, self._attempt = job_folders(plan.request, site)
        self._agent_starts = AgentStarts(plan, host, site, self._attempt, subscriber)
        self._leased: Leased | None = None
        self._ports: list[Lock] = []

    def launch(self) -> None:
        """Start the learners that have not begun, all of which are at this host."""
        waiting = self.pending()
        if not waiting:
            return
        wait = self._request.wait
        if wait is not None and self._plan.learners[0].native["agent"] != "python":
            raise SlotsBusy(wait.reason)  # nothing is prepared where nobody could start it
        self.prepare(waiting)
        if wait is not None:
            self._hand_over(waiting, SlotsBusy(wait.reason))
            return
        try:
            self.lease(waiting)
        except SlotsBusy as busy:
            self._agent_starts.check_all_wait(waiting, busy)
            self._hand_over(waiting, busy)
            return
        try:
            self.start(waiting, None)
        finally:
            self.release()
        self.await_begun(waiting)

    def pending(self) -> list[int]:
        """Return the learners whose agents must be started; waits for agents that are starting."""
        return self._agent_starts.pending()

    def rendezvous(self) -> Rendezvous | None:
        """Return where learners that have begun here meet; None where none has."""
        return self._agent_starts.rendezvous()

    def prepare(self, waiting: Sequence[int]) -> None:
        """Bring code, environment and agent to the host, unless it can never run the job."""
        self._refuse()
        self._bring(waiting)

    def lease(self, waiting: Sequence[int]) -> None:
        """Lease the GPUs of these learners."""
        self._leased = lease(self._request, waiting, self._host, self._site)

    def refuse_too_few(self, waiting: Sequence[int]) -> None:
        """Refuse the job if the host never has the GPUs of these learners."""
        refuse_too_few(self._request, waiting, self._host, self._site)

    def leave_line(self) -> None:
        """Leave the host's queue."""
        leave_line(self._request, self._host, self._site)

    def choose_port(self, port: int | None = None) -> int:
        """Choose a free port, or this one, and hold it until the first learner's agent inherits it."""
        text = lease_text(self._request, self._site, 0)
        return choose_port(self._host, self._site, text, self._ports, port)

    def start(self, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        """Write the launch documents of these learners, then start their agents."""
        if rendezvous is None:
            begun = self.rendezvous() if len(waiting) < len(self._plan.learners) else None
            rendezvous = begun or Rendezvous(LOOPBACK, self.choose_port())
        self._start(waiting, rendezvous)

    def release(self) -> None:
        """Release the slots and ports that no agent has inherited."""
        if self._leased is not None:
            self._leased.release()
        for lock in self._ports:
            lock.release()

    def await_begun(self, waiting: Sequence[int]) -> None:
        """Wait until the agents of these learners have begun."""
        self._agent_starts.await_begun(waiting)

    def stop_begun(self) -> None:
        """Kill the learners that have begun here."""
        self._agent_starts.stop_begun()

    def _refuse(self) -> None:
        """Refuse the job if a retry cannot help."""
        check_supported([*not_built(self._request.spec), *refusals_of_processes(self._request)])
        agent_kind = self._plan.learners[0].native["agent"]
        refuse_stores(self._request, self._host, self._site, runner="process", agent_kind=agent_kind)
        refuse_missing(self._request, self._host, self._site)
        check_secrets(self._request)

    # Before slots are leased

    @cached_property
    def _agent(self) -> Agent:
        return upload_agent(self._host, self._site, self._plan.learners[0].native["agent"])

    def _bring(self, waiting: Sequence[int]) -> None:
        attempt = self._attempt
        _ = self._agent  # nothing is uploaded while GPUs are held
        self._progress("downloading code", stage="preparing")
        self._host.call("make_folders", paths=[*self._folders(), str(attempt.logs)])
        # FfDL's scripts expect this file.
        self._host.call("touch", paths=[str(attempt.job_state / self._request.attempt.job_id)])
        models = [str(attempt.model(learner)) for learner in waiting]
        deploy_code(self._host, self._site, self._request, models, self._progress)
        link_mounts(self._request, self._host, models)
        bring_earlier_files(self._host, self._site, self._request, self._progress)
        self._bring_environment()

    def _folders(self) -> list[str]:
        """List the folders that all attempts of the job have in common."""
        job = self._job
        stores = folders_of(self._request, self._site)
        return [str(job.results), str(job.checkpoints), str(job.data), *stores]

    def _bring_environment(self) -> None:
        """Build the environment of ``requirements:``, and record the packages that the job uses."""
        native = self._plan.learners[0].native
        document = {
            "format": 1,
            "python": native["python"],
            "key": "",
            "packages": [],
            "host": self._site.hostname,
        }
        if self._request.spec.python == "requirements":
            base = find_interpreter(self._request, self._site, self._host)
            environment = environment_of(self._request, base, self._site, self._host)
            document["packages"] = ensure(environment, self._site, self._host, self._progress)
            document["key"] = environment.key
        path = self._attempt.path / "environment.json"
        variables = {"PATH": native["launch"]["env"].get("PATH", "")}
        self._host.call("write_environment", path=str(path), document=document, variables=variables)
        if not self._site.here:
            self._host.call("write_files", files=submitted_file(self._plan, self._job))

    # Waiting

    def _hand_over(self, waiting: Sequence[int], busy: SlotsBusy) -> None:
        """Give the attempt to the host's waiter, which starts it when its turn has come.

        Raises:
            SlotsBusy: the host has none: the controller keeps the job waiting.
        """
        agent = self._agent
        hand_over = HandOver(self._plan, self._host, self._site, agent, busy)
        self._progress(busy.message, stage="waiting")
        documents = {learner: self._document(learner, (), None, None) for learner in waiting}
        files: dict[str, str] = {}
        for learner, document in documents.items():
            files |= agent.files(self._attempt.learner(learner), document)
        self._host.call("write_files", files=files)
        hand_over.give(waiting, self._agent_environment(documents[waiting[0]]))

    # Starting the agents

    def _start(self, waiting: Sequence[int], rendezvous: Rendezvous) -> None:
        self._progress("starting", stage="starting")
        leased, agent = self._leased, self._agent
        assert leased is not None
        secrets = self._write_secrets(waiting, agent)
        documents = {
            learner: self._document(learner, leased.by_learner[learner], rendezvous, secrets.get(learner))
            for learner in waiting
        }
        files: dict[str, str] = {}
        for learner, document in documents.items():
            files |= agent.files(self._attempt.learner(learner), document)
        self._host.call("write_files", files=files)
        for learner, document in documents.items():
            slots = leased.part(learner)
            # The first learner listens on MASTER_PORT.
            locks = [lock for lock in (slots, *(self._ports if learner == 1 else ())) if lock is not None]
            pid = self._spawn(learner, document, locks)
            for lock in locks:
                lock.write(lease_text(self._request, self._site, pid))
            if slots is not None:
                slots.release()

    def _write_secrets(self, waiting: Sequence[int], agent: Agent) -> dict[int, str]:
        values = secrets_with(self._request, self._site)
        if not values:
            return {}
        folder = self._host.call("secret_folder")
        attempt = self._request.attempt
        paths = {
            learner: secrets_stem(folder, attempt, learner) + agent.secrets_suffix for learner in waiting
        }
        text = agent.secrets_text(values)
        self._host.call("write_files", files=dict.fromkeys(paths.values(), text))
        return paths

    def _document(
        self, learner: int, slots: tuple[str, ...], rendezvous: Rendezvous | None, secrets_file: str | None
    ) -> dict[str, Any]:
        """Return a learner's planned launch document with the values that are chosen at launch.

        Without a rendezvous the host's waiter chooses these values.
        """
        agent = self._agent
        planned: Mapping[str, Any] = self._plan.of(learner).native["launch"]
        document = {**planned, "secrets_file": secrets_file, "slots": list(slots)}
        environment = dict(planned["env"])
        if rendezvous is not None:
            if planned["cpus"] is not None:
                document["cpus"] = self._choose_cpus(learner)
            environment |= {**gpu_variables(slots), **rendezvous.variables}
        environment["PYTHONPATH"] = environment["PYTHONPATH"].replace(AGENT, agent.importable)
        if self._request.spec.cpus:
            document[RESERVED_CPUS] = self._request.spec.cpus
        document["env"] = environment
        document["guard"] = agent.argv(self._attempt.learner(learner))
        if self._request.restarts is not None and self._plan.learners[0].native["agent"] == "python":
            document["restarts"] = {
                **restarts_document(self._request, self._request.restarts, self._site),
                "links": linked_mounts(self._request),
                "folders": self._folders(),
            }
        return with_stores(self._request, self._host, self._site, document)

    def _choose_cpus(self, learner: int) -> list[int] | None:
        count = max(1, math.ceil(self._request.spec.cpus or 1))
        who = marker(ref_of(self._plan, learner))
        chosen: list[int] | None = self._host.call("choose_cpus", count=count, marker=who)
        return chosen

    def _agent_environment(self, document: Mapping[str, Any]) -> dict[str, str]:
        key = document["env"].get("FABRIC_ENVIRONMENT")
        return {**self._site.environment, **({"FABRIC_ENVIRONMENT": key} if key else {})}

    def _spawn(self, learner: int, document: Mapping[str, Any], locks: Sequence[Lock]) -> int:
        environment = self._agent_environment(document)
        environment["FABRIC_GUARD"] = marker(ref_of(self._plan, learner))
        output = str(self._attempt.learner(learner).path / "guard.log")
        return self._host.spawn(document["guard"], env=environment, cwd="/", output=output, holding=locks)
