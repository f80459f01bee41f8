"""The homes that use the simulated host: their jobs, and the process that does for each what its controller does."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.checks import Violation
from workbench.learner.host.operations import HostOperations
from workbench.learner.journal import state
from workbench.learner.platform import leases, run
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders, write_files
from workbench.learner.queue import allocation

if TYPE_CHECKING:
    from tests.simulation.host_queue.kernel import HostProcess
    from tests.simulation.host_queue.world import HostWorld

OVER: Final = "over"
EXPLAINED_SECONDS: Final = 15.0
"""So long after something went wrong a home may meet what comes of it."""
SHORTEST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 2.0
"""How often a client asks."""

WITHDRAWN_SECONDS: Final = 9.0
"""A withdrawal that takes longer may have had no answer of the waiter's."""

BEGIN_SECONDS: Final = 10.0
"""How long a launch waits for its agents."""

Facts = dict[str, Any]


class CutOff(Exception):
    """The connection was cut: nobody knows whether the host did what it was asked for."""


@dataclass(slots=True)
class QueuedJob:
    """A job as its home has it."""

    id: str
    number: int
    each: int
    learners: int
    priority: int
    position: float
    max_runtime_seconds: float | None
    consent: str
    runs_seconds: float
    line: int
    """Which connection of its home it waits by."""
    comes_at: float
    is_followed: bool
    """Whether its host begins the next attempt by itself."""
    weight: float = 1.0
    group: str = ""
    """What stands for the sweep that it is of; empty for none."""
    attempt: int = 1
    phase: str = "new"
    """``new``, ``queued``, ``launching``, ``handed``, ``running``, ``ending`` or ``over``."""
    tries: int = 0
    wish: str = ""
    """What somebody wants of it: ``withdraw`` or ``halt``; empty for nothing."""
    is_withdrawn: bool = False
    begin_us: int | None = None
    given_at: float = 0.0
    """When it was last launched, or handed over, by its client."""
    has_lost_waiter: bool = False
    """Whether the waiter that it was given to was killed, or asked to end."""
    highest: int = 0
    """The highest priority that it has had."""
    lowest: int = 0

    @property
    def gpus(self) -> int:
        """How many GPUs it needs for all learners."""
        return self.each * self.learners


@dataclass(slots=True)
class SimulatedHome:
    """A home, with what lasts when its client is killed."""

    uuid: str
    person: int
    folder: str
    leases_folder: str
    jobs: list[QueuedJob]
    lines: int
    """How many connections it has to the host."""
    hands_over: float
    """How often it hands over a job whose turn it is not, when it asks."""
    secrets: dict[str, str]
    keeps: bool
    away_until: float = 0.0
    client: HostClient | None = None
    starts: int = 0
    is_done: bool = False
    harmed_at: float = float("-inf")
    """When something went wrong last that may keep its jobs from what they were given to."""

    def learner_folder(self, job: str, attempt: int, learner: int) -> str:
        """Return the folder of a learner."""
        return os.path.join(self.folder, "jobs", job, f"attempt-{attempt}", f"learner-{learner}")

    def secrets_stem(self, job: str, attempt: int, learner: int) -> str:
        """Return the name of a learner's file of secrets, without its suffix."""
        return f"{self.uuid}.{job}-{attempt}-{learner}"


class HostClient:
    """The process at the host that a home's controller has there, and what the controller decides."""

    def __init__(self, world: HostWorld, home: SimulatedHome, process: HostProcess) -> None:
        self._world = world
        self._home = home
        self.process = process
        self._lines: list[HostOperations] = []
        self._sent: list[dict[str, Facts]] = [{} for _ in range(home.lines)]
        """By connection and job: what the host was sent last of those that were handed over."""
        self._threads: set[str] = set()
        """The jobs that are being launched by a thread of this process."""

    def run(self) -> None:
        """Look after the jobs until none is left."""
        home = self._home
        self._lines = [HostOperations() for _ in range(home.lines)]
        while not self._is_over():
            for step in (self._observe, self._obey_people, self._line_up):
                began = self._world.scheduler.now
                try:
                    step()
                except (CutOff, Failure, OSError) as error:
                    self._was_explained(error, began)
            self._world.kernel.sleep(self._world.chance.between("pause", SHORTEST_SECONDS, LONGEST_SECONDS))
        for number in range(len(self._lines)):
            try:
                self._line_up_by(number)
            except (CutOff, Failure, OSError) as error:
                self._was_explained(error, self._world.scheduler.now)
                return  # another client tries it again
        for line in self._lines:
            line.close()
        self._world.checks.has_given_back(self.process)
        home.is_done = True

    def _was_explained(self, error: Exception, began: float) -> None:
        """See that what a step met is what has gone wrong."""
        if self._home.harmed_at >= began - EXPLAINED_SECONDS:
            return
        raise Violation(f"{self.process.name} meets what nothing explains: {type(error).__name__}: {error}")

    def _is_over(self) -> bool:
        return all(job.phase == OVER for job in self._home.jobs) and not self._threads

    def _call(self, number: int, operation: str, **arguments: Any) -> Any:
        """Call an operation of the host; the connection may be cut.

        Raises:
            CutOff: it was.
            Failure: the host says why not.
        """
        chance = self._world.chance
        if chance.goes_wrong("cut", f"before {operation}", 0.3):
            self._home.harmed_at = max(self._home.harmed_at, self._world.scheduler.now)
            raise CutOff
        answer = self._lines[number].call(operation, arguments)
        if chance.goes_wrong("cut", f"after {operation}", 0.3):
            self._home.harmed_at = max(self._home.harmed_at, self._world.scheduler.now)
            raise CutOff
        return answer

    # What became of them

    def _observe(self) -> None:
        now = self._world.scheduler.now
        for job in self._home.jobs:
            if job.phase == "new" and now >= job.comes_at:
                job.phase = "queued"
                self._world.say(
                    f"{job.id} is submitted: {job.learners} x {job.each} GPUs, priority {job.priority}, "
                    f"position {job.position:g}, {job.runs_seconds:.0f} s"
                )
            if job.phase in ("handed", "running", "launching", "ending") and job.id not in self._threads:
                self._observe_one(job)

    def _observe_one(self, job: QueuedJob) -> None:
        home = self._home
        folders = [home.learner_folder(job.id, job.attempt, one) for one in range(1, job.learners + 1)]
        # The locks first: who lets go of one has written what comes after.
        held = [leases.is_held(os.path.join(folder, "agent.lock")) for folder in folders]
        found = [state.read(folder) for folder in folders]
        if all(one.get("phase") == "exited" for one in found):
            self._attempt_is_over(job, found)
        elif any(one.get("phase") == "running" for one in found) and any(held):
            job.phase = "running" if job.phase != "ending" else "ending"
            if not all(held):
                self._stop_rest(job, folders, found, held)
        elif any(held):
            if all(one.get("waiting") for one in found if one.get("phase") == "starting") and (
                job.phase == "launching"
            ):
                job.phase = "handed"
        elif any(one.get("phase") in ("running", "exited") for one in found):
            self._world.say(f"attempt {job.attempt} of {job.id} has lost its agents")
            self._next_attempt(job)
        elif job.phase == "ending":
            self._is_over_now(job)
        else:
            self._world.say(f"{job.id} waits nowhere any more: it is given to its host once more")
            self._world.seen["given once more"] += 1
            if self._home.harmed_at < job.given_at:
                raise Violation(f"{job.id} waits nowhere any more, and nothing has gone wrong")
            self._world.checks.is_given_back(job.id, job.attempt)
            job.phase = "queued"

    def _stop_rest(self, job: QueuedJob, folders: list[str], found: list[Facts], held: list[bool]) -> None:
        for folder, one, is_held in zip(folders, found, held, strict=True):
            if is_held and one.get("phase") == "running" and not state.read_stop(folder):
                over = [other for other in found if other is not one]
                if any(other.get("phase") != "exited" for other in over):
                    state.ask_to_stop(folder, {"kind": "kill", "by": state.BY_CONTROLLER})

    def _attempt_is_over(self, job: QueuedJob, found: list[Facts]) -> None:
        if job.phase == "ending" or job.wish:
            followed = next((one["followed_by"] for one in found if one.get("followed_by")), None)
            if followed is not None:
                job.attempt = int(followed["attempt"])
                job.wish = job.wish or "halt"
                job.phase = "handed"
                return
            self._is_over_now(job)
            return
        if any(one.get("stopped") in ("halt",) for one in found):
            self._is_over_now(job)
        elif any(one.get("followed_by") for one in found):
            job.attempt += 1
            job.phase = "handed"
        elif all(one.get("exit_code") == 0 for one in found):
            self._is_over_now(job)
        else:
            self._next_attempt(job)

    def _next_attempt(self, job: QueuedJob) -> None:
        if job.phase == "ending" or job.wish:
            self._is_over_now(job)
            return
        job.attempt += 1
        job.phase = "queued"
        job.tries = 0

    def _is_over_now(self, job: QueuedJob) -> None:
        job.phase = OVER
        self._world.checks.leaves(self._home, job.id)
        self._world.say(f"{job.id} is over")

    # What people want

    def _obey_people(self) -> None:
        for job in self._home.jobs:
            if job.wish and job.phase not in ("ending", OVER) and job.id not in self._threads:
                self._end(job)

    def _end(self, job: QueuedJob) -> None:
        home, checks = self._home, self._world.checks
        checks.leaves(home, job.id)
        folders = [home.learner_folder(job.id, job.attempt, one) for one in range(1, job.learners + 1)]
        is_launched = any(os.path.exists(os.path.join(folder, "launch.json")) for folder in folders)
        if job.phase in ("new", "queued") and not is_launched:
            self._is_over_now(job)
            return
        if job.wish == "withdraw":
            began = self._world.scheduler.now
            self._call(job.line, "withdraw", home=home.uuid, job=job.id, attempt=job.attempt)
            if self._world.scheduler.now - began < WITHDRAWN_SECONDS:  # else nobody knows
                job.is_withdrawn = True
                checks.withdrawn(job.id, job.attempt)
            self._world.end_agents(job)
        else:
            for folder in folders:
                if os.path.isdir(folder):
                    self._call(job.line, "ask_to_stop", folder=folder, request={"kind": "halt", "by": "ada"})
        self._world.say(f"{job.id} was asked to end: {job.wish}")
        job.phase = "ending"

    # Waiting

    def _line_up(self) -> None:
        for number in range(len(self._lines)):
            self._line_up_by(number)

    def _facts(self, job: QueuedJob) -> Facts:
        facts: Facts = {
            "job": job.id,
            "gpus": job.gpus,
            "each": job.each,
            "priority": job.priority,
            "position": job.position,
            "max_runtime_seconds": job.max_runtime_seconds,
            "tries": job.tries,
            "labels": "",
            "group": job.group,
            "name": "",
            "weight": job.weight,
        }
        return facts

    def _line_up_by(self, number: int) -> None:
        home, checks = self._home, self._world.checks
        here = [job for job in home.jobs if job.line == number]
        for job in here:
            if job.wish:
                checks.leaves(home, job.id)
        waiting = [job for job in here if job.phase == "queued" and not job.wish]
        keep = [job.id for job in here if job.phase == "launching"]
        handed = [job for job in here if job.phase == "handed" and not job.wish]
        facts = {job.id: {**self._facts(job), "attempt": job.attempt, **self._gates(job)} for job in handed}
        sent = self._sent[number]
        self._sent[number] = {}
        changed = [facts[job.id] for job in handed if sent.get(job.id) != facts[job.id]]
        answer = self._call(
            number,
            "line_up",
            home=home.uuid,
            waiting=[self._facts(job) for job in waiting],
            keep=keep,
            handed_over=changed,
            unchanged=[job.id for job in handed if sent.get(job.id) == facts[job.id]],
            leases_folder=home.leases_folder,
        )
        self._sent[number] = {job: one for job, one in facts.items() if job not in answer["missed"]}
        for job in handed:
            if sent.get(job.id) == facts[job.id] and job.id not in answer["missed"]:
                checks.is_shown(home, job.id, facts[job.id])
        turns: Mapping[str, Facts] = answer["turns"]
        for job in waiting:
            if job.id in turns:
                checks.waits(home, job.id)
        for job in waiting:
            turn = turns.get(job.id)
            if job.phase != "queued" or job.wish:
                continue
            if turn is None or turn["start"]:  # without an entry it is tried as one that comes last
                self._begin(job)
            elif self._world.chance.of("hand over").random() < home.hands_over:
                self._hand_over(number, job)

    def _begin(self, job: QueuedJob) -> None:
        """Launch a job whose turn it is, by a thread of its own or before anything else."""
        job.phase = "launching"
        job.given_at = self._world.scheduler.now
        if self._world.chance.of("thread").random() < 0.5:
            self._threads.add(job.id)
            self._world.kernel.start_thread(self.process, partial(self._launch_apart, job))
        else:
            self._launch(job)

    def _launch_apart(self, job: QueuedJob) -> None:
        began = self._world.scheduler.now
        try:
            self._launch(job)
        except (CutOff, Failure, OSError) as error:
            self._was_explained(error, began)
        finally:
            self._threads.discard(job.id)

    def _launch(self, job: QueuedJob) -> None:
        """Take GPUs and start the agents; a job for which there are none is queued again, or handed over."""
        home = self._home
        pending = self._prepare(job)
        if not pending:
            return
        uuids = self._choose(job)
        lease = None
        if uuids is not None:
            text = allocation.lease_text(self._holder(job), 0)
            lease = leases.take(uuids, home.leases_folder, text)
        if uuids is None or lease is None:
            job.phase = "queued"
            job.tries += 1
            if self._world.chance.of("hand over busy").random() < home.hands_over:
                self._hand_over(job.line, job)
            return
        try:
            self._call(job.line, "leave_line", home=home.uuid, job=job.id, leases_folder=home.leases_folder)
            shares = allocation.shares(uuids, pending, job.each)
            self._write_documents(job, {one: shares[one] for one in pending})
            for one in pending:
                folder = home.learner_folder(job.id, job.attempt, one)
                part = lease.part(shares[one])
                try:
                    pid = run.spawn(
                        self._world.guard_argv(folder), {}, "/", f"{folder}/guard.log", part.descriptors()
                    )
                    part.write(allocation.lease_text(self._holder(job), pid))
                finally:
                    part.release()
        finally:
            lease.release()
        self._await_begun(job)

    def _await_begun(self, job: QueuedJob) -> None:
        """Wait until its agents have their locks, as a launch does."""
        folders = [self._home.learner_folder(job.id, job.attempt, one) for one in range(1, job.learners + 1)]
        until = self._world.scheduler.now + BEGIN_SECONDS
        while self._world.scheduler.now < until:
            if all(state.read(folder) for folder in folders):
                return
            self._world.kernel.sleep(0.05)

    def _choose(self, job: QueuedJob) -> list[str] | None:
        home = self._home
        wanted = {
            "job": job.id,
            "gpus": job.gpus,
            "each": job.each,
            "priority": job.priority,
            "labels": "",
            "weight": job.weight,
            "group": job.group,
        }
        found = self._call(
            job.line, "inventory", leases_folder=home.leases_folder, home=home.uuid, wanted=wanted
        )
        chosen = allocation.choose_gpus(found["slots"], job.gpus, job.each, "")
        return chosen if found["turn"]["start"] else None

    def _prepare(self, job: QueuedJob) -> list[int]:
        """Make the folders of an attempt; return its learners if none of them has begun or waits, else none."""
        home = self._home
        numbers = list(range(1, job.learners + 1))
        folders = [home.learner_folder(job.id, job.attempt, one) for one in numbers]
        make_folders(folders)
        for folder in folders:
            is_begun = state.read(folder).get("phase") not in (None, "starting")
            if is_begun or leases.is_held(os.path.join(folder, "agent.lock")):
                return []
        return numbers

    def _write_documents(self, job: QueuedJob, slots: Mapping[int, tuple[str, ...]]) -> None:
        home = self._home
        files = {}
        for one, uuids in slots.items():
            folder = home.learner_folder(job.id, job.attempt, one)
            document = {
                "home": home.uuid,
                "job": job.id,
                "attempt": job.attempt,
                "learner": one,
                "learners": job.learners,
                "attempt_dir": os.path.dirname(folder),
                "guard": self._world.guard_argv(folder),
                "env": {},
                "ends_when": "all",
                "slots": list(uuids),
                "preemption": self._preemption(job) or None,
                "restarts": {"ticket": self._ticket(job)} if job.is_followed else None,
            }
            files[os.path.join(folder, "launch.json")] = json.dumps(document) + "\n"
        write_files(files)

    def _preemption(self, job: QueuedJob) -> Facts:
        if not job.consent:
            return {}
        return {
            "leases_folder": self._home.leases_folder,
            allocation.PREEMPTION: job.consent,
            allocation.PRIORITY: job.priority,
            allocation.PREEMPTION_SECONDS: 5.0,
        }

    def _holder(self, job: QueuedJob) -> Facts:
        preemption = self._preemption(job)
        preemption.pop("leases_folder", None)
        runtime = job.max_runtime_seconds
        return {
            "owner": f"person{self._home.person}",
            "job": job.id,
            "attempt": job.attempt,
            "home": self._home.uuid,
            allocation.GROUP: job.group,
            **({} if runtime is None else {allocation.MAX_RUNTIME: runtime}),
            **preemption,
        }

    def _ticket(self, job: QueuedJob) -> Facts:
        return {
            "home": self._home.uuid,
            **self._facts(job),
            "attempt": job.attempt,
            "leases_folder": self._home.leases_folder,
            "gpu_type": "",
            "cpus": 0.0,
            "lease": self._holder(job),
            "secrets_suffix": ".json",
            **({"secrets_at_host": True} if self._home.keeps else {}),
        }

    def _gates(self, job: QueuedJob) -> Facts:
        """Return what holds a job back at its host."""
        return {"begin_us": job.begin_us, "after": [], "limit": None}

    def _hand_over(self, number: int, job: QueuedJob) -> None:
        """Hand a job over that waits for its turn."""
        home = self._home
        job.given_at = self._world.scheduler.now
        pending = self._prepare(job)
        if not pending:
            job.phase = "launching"
            return
        self._write_documents(job, dict.fromkeys(pending, ()))
        learners = [
            {
                "learner": one,
                "folder": home.learner_folder(job.id, job.attempt, one),
                "secrets_stem_name": home.secrets_stem(job.id, job.attempt, one),
            }
            for one in pending
        ]
        gates = self._gates(job) if job.begin_us is not None else {}
        ticket = {**self._ticket(job), "environment": {}, "learners": learners, **gates}
        if job.begin_us is not None:
            self._world.checks.leaves(home, job.id)
        job.phase = "launching"
        by = self._world.chance.below("connection of a hand-over", len(self._lines))
        try:
            self._call(
                by,
                "hand_over",
                home=home.uuid,
                folder=home.folder,
                argv=self._world.waiter_argv(home.folder),
                env={},
                ticket=ticket,
                secrets=home.secrets,
            )
        except Failure as error:
            self._world.say(f"{job.id} is not taken: {error.message}")
            if error.kind != "unanswered":
                job.phase = "queued"
            return
        job.phase = "handed"
        job.has_lost_waiter = False
        self._world.say(f"{job.id} is handed over")
        self._world.seen["handed over"] += 1
        if job.begin_us is None:
            self._world.checks.waits(home, job.id)
