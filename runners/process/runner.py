"""The runner ``process``: each learner is a process of a host, started and supervised by an agent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from backends.contract.host import Chunk, Cluster, Host
from runners.interface import (
    AttemptRef,
    Capabilities,
    EarlyBytes,
    ExecSession,
    FileEntry,
    LaunchPlan,
    LaunchProgress,
    LaunchRequest,
    LearnerRef,
    Observation,
    Runner,
    StopRequest,
)
from runners.shared.capabilities import PROCESS
from runners.shared.environment import marker, secrets_stem
from runners.shared.host_facts import HostFacts, read_host_facts
from runners.shared.learner_status import followed_by, is_waiting
from workbench.errors import FabricError, NotRunning, RunnerError
from workbench.learner.host.learners import is_over
from workbench.learner.queue.home_waiter import kept_file
from workbench.paths import AttemptFolder, JobFolder, LearnerFolder

if TYPE_CHECKING:
    from runners.process.launch import ProcessLaunch
    from runners.shared.earlier_files import FileChanges
    from runners.shared.interpreters import Interpreter
    from runners.shared.staged_launch import StagedLaunch


class ProcessExec:
    """A command on this machine, on this process's standard streams; making one starts it."""

    def __init__(self, launch: Mapping[str, Any], marker: str, argv: Sequence[str]) -> None:
        environment = exec_environment(launch, marker)
        try:
            self._process = subprocess.Popen(list(argv), cwd=str(launch["cwd"]), env=environment)
        except OSError as error:
            raise RunnerError(f"{argv[0]} cannot be started: {error.strerror}.") from error

    def wait(self) -> int:
        """Wait for its exit code; an interrupt from the terminal goes to the command alone."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            code = self._process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        return 128 - code if code < 0 else code


def exec_environment(launch: Mapping[str, Any], marker: str) -> dict[str, str]:
    """Return the environment of a command in a learner: the learner's own, and TERM of this terminal."""
    environment = {str(name): str(value) for name, value in (launch.get("env") or {}).items()}
    if "TERM" in os.environ:
        environment.setdefault("TERM", os.environ["TERM"])
    # The marker makes it a process of the learner: a stop of the learner ends it, too.
    environment["FABRIC_LEARNER"] = marker
    return environment


JOURNAL_BYTES = 4 << 20
"""The most that is read of each file of a journal at once."""


class ProcessRunner(Runner):
    """Starts learners as processes.

    Different methods may be called from different threads: what they share is created once and never changed.
    """

    name: ClassVar[str] = "process"
    capabilities: ClassVar[Capabilities] = PROCESS
    contained: ClassVar[bool] = False
    """Whether learners run in containers: their symbolic links must then not lead to other files of the host."""

    def __init__(self, connection: Host | Cluster, *, home_uuid: str) -> None:
        super().__init__(connection, home_uuid=home_uuid)
        if not isinstance(connection, Host):
            raise RunnerError("The runner 'process' needs a host, and this backend is a cluster.")
        self._host = connection
        self._facts_lock = threading.Lock()
        self._facts: HostFacts | None = None
        self._subscriber = uuid.uuid4().hex
        from runners.process.observe import ProcessObservations

        self._observing = ProcessObservations(connection, self._subscriber)

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the launch document of every learner; nothing is changed on the host."""
        from runners.process.plan import make_plan
        from runners.shared.agents import agent_kind

        site = self._site()
        plan = make_plan(request, site, self._interpreter(request, site), agent_kind(site))
        return plan if plan.runner == self.name else replace(plan, runner=self.name)

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Upload what learners need, lease all slots or none, and start the learners that have not begun."""
        self._launch(plan, progress).launch()

    def staged_launch(self, plan: LaunchPlan, progress: LaunchProgress) -> StagedLaunch:
        """Return the launch of the learners that a plan has, in stages that this host takes together with others."""
        return self._launch(plan, progress)

    def _launch(self, plan: LaunchPlan, progress: LaunchProgress) -> ProcessLaunch:
        from runners.process.launch import ProcessLaunch

        return ProcessLaunch(plan, self._host, self._site(), progress, f"{self._subscriber}-launch")

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed."""
        return self._observing.observe(attempts, self._site(), timeout_seconds)

    def interrupt(self) -> None:
        """Make a blocked observe, or the next one, return early."""
        self._observing.interrupt()

    def lacks_earlier_files(self, request: LaunchRequest) -> bool:
        """Whether what earlier attempts have made at other hosts is still to be brought here."""
        from runners.shared.earlier_files import are_brought

        return not self._host.here and not are_brought(self._host, self._site(), request)

    def changed_files(self, attempt: AttemptRef) -> FileChanges:
        """Return which results and checkpoints an attempt has deleted here, of those that it began with."""
        from runners.shared.earlier_files import changes_of

        return changes_of(self._host, self._site().home.job(attempt.job_id), attempt.attempt)

    def decide(self, attempt: AttemptRef, decision: Mapping[str, Any]) -> None:
        """Let the learners here know that one at another host has decided the attempt, unless they know of one."""
        path = str(self._folder(attempt).path / "decision.json")
        if not self._host.call("existing", paths=[path]):
            self._host.call("write_files", files={path: json.dumps(decision) + "\n"})

    def launched_learners(self, learner: LearnerRef) -> int:
        """Return how many learners the attempt of one has; 0 where this host has no launch document of that one."""
        launch = self._host.call("read_object", path=str(self._learner(learner).launch)) or {}
        return int(launch.get("learners") or 0)

    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        """Read a learner's output, index, records and processes from these offsets on."""
        folder = self._learner(learner)
        paths = {
            "output": folder.output,
            "index": folder.index,
            "records": folder.records,
            "processes": folder.processes,
        }
        offsets_by_path = {str(paths[name]): offset for name, offset in offsets.items()}
        chunks = self._host.read(offsets_by_path, limit_bytes=JOURNAL_BYTES)
        return {name: chunks[str(paths[name])] for name in offsets if str(paths[name]) in chunks}

    @property
    def journals_in_place(self) -> bool:
        """Whether the host is this machine and its folder the home."""
        return self._host.here

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it."""
        refs = {str(self._learner(ref).path): ref for ref in known}
        offsets = {folder: known[ref] for folder, ref in refs.items()}

        take = None if early is None else lambda folder, *some: early(refs[folder], *some)
        news = self._host.follow(self._subscriber, offsets, timeout_seconds=timeout_seconds, early=take)
        return {refs[folder]: parts for folder, parts in news.items() if folder in refs}

    def interrupt_follow(self) -> None:
        """Make a blocked follow, or the next one, return early."""
        with contextlib.suppress(FabricError):  # a lost connection makes it return by itself
            self._host.call("interrupt_follow", asker=self._subscriber)

    def download(self, attempt: AttemptRef, job: JobFolder, *, keep_newer: bool = False) -> None:
        """Download results, checkpoints and logs of an attempt into the job's folder here.

        With ``keep_newer`` files that are newer here stay: another host has them, too.
        """
        from runners.shared.download import download_attempt

        source = self._site().home.job(attempt.job_id)
        folder = source.attempt(attempt.attempt)
        numbers = attempt.numbers
        states = (
            self._host.call("learner", folder=str(folder.learner(one).path))["state"] for one in numbers
        )
        goes_on = any(followed_by(state or {}) is not None for state in states)
        download_attempt(
            self._host,
            source,
            job,
            attempt.attempt,
            contained=self.contained,
            goes_on=goes_on,
            keep_newer=keep_newer,
        )

    def download_folder(self, folder: str, target: Path, *, keep_newer: bool = False) -> None:
        """Download a folder of the host; ``keep_newer`` as for :meth:`download`."""
        from runners.shared.download import download_folder

        # Other jobs write into the store's folder, too; the folder itself may be a link that the user made.
        above = f"{folder.rpartition('/')[0]}/."
        within = above if self.contained else ""
        download_folder(self._host, folder, target, within=within, keep_newer=keep_newer)

    def retry_upload(self, request: LaunchRequest) -> Sequence[Mapping[str, Any]]:
        """Upload to the data store what the learners of an ended attempt could not upload."""
        from runners.shared.store_setup import retry_upload

        return retry_upload(request, self._host, self._site())

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask all learners to stop; a halt after a kill changes nothing."""
        self._ask_to_stop(attempt, request.kind, {"grace_seconds": request.grace_seconds, "by": request.by})

    def stop_with_others(self, attempt: AttemptRef, kind: str, by: str) -> None:
        """Ask the learners here to stop as those at another host did; they have their own grace period."""
        self._ask_to_stop(attempt, kind, {"by": by})

    def _ask_to_stop(self, attempt: AttemptRef, kind: str, more: Mapping[str, Any]) -> None:
        document = {"kind": kind, **more}
        for number in attempt.numbers:
            folder = self._folder(attempt).learner(number)
            facts = self._host.call("learner", folder=str(folder.path))
            current = self._host.call("read_object", path=str(folder.stop)) or {}
            if not facts["launched"] or is_over(facts):
                continue
            if current.get("kind") not in ("kill", kind):
                self._host.call("ask_to_stop", folder=str(folder.path), request=document)
            else:
                # It is asked again: its agent may have been stopped by a signal.
                who = marker(LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number))
                self._host.call("rouse_agents", marker=who, folder=str(folder.path))

    def remove(self, attempt: AttemptRef) -> None:
        """End an attempt's processes and remove its files; on this machine the files are the job's own and stay."""
        folder = self._folder(attempt)
        secrets = self._host.call("secret_folder")
        self._withdraw(attempt)
        paths = []
        if not self._host.here:
            home = str(self._site().home.path)
            paths += [str(folder.path), kept_file(home, attempt.job_id, attempt.attempt)]
        for number in attempt.numbers:
            self._end(LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number))
            stem = secrets_stem(secrets, attempt, number)
            paths += [f"{stem}.json", f"{stem}.sh"]
        self._host.call("remove", paths=paths)

    def _withdraw(self, attempt: AttemptRef) -> None:
        """Have its host start an attempt no more that waits there."""
        facts = self._host.call("learner", folder=str(self._folder(attempt).learner(1).path))
        if is_waiting(facts):
            self._host.call("withdraw", home=attempt.home, job=attempt.job_id, attempt=attempt.attempt)

    def remove_job(self, job_id: str) -> None:
        """Remove a job's folder on the host; on this machine it is the job's own folder and stays."""
        if not self._host.here:
            self._host.call("remove", paths=[str(self._site().home.job(job_id).path)])

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command in a learner's folder and environment, on this process's standard streams."""
        facts = self._host.call("learner", folder=str(self._learner(learner).path))
        if not facts["alive"] or is_waiting(facts):
            raise NotRunning("The job is not running.", hint="See its state: fabric show JOB")
        launch = self._host.call("read_object", path=str(self._learner(learner).launch)) or {}
        if self._host.here:
            return ProcessExec(launch, marker(learner), argv)
        from runners.shared.attach import JoinedExec

        environment = exec_environment(launch, marker(learner))
        stream = self._host.exec(argv, env=environment, cwd=str(launch["cwd"]), terminal=terminal)
        if stream is None:
            raise RunnerError(
                "This backend cannot run commands in a running job.", hint="Use a terminal on that machine."
            )
        return JoinedExec(stream, terminal=terminal)

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List a path of a learner and everything below it."""
        from runners.shared.job_files import JobFiles, folders_of, job_path_of

        folders = folders_of(learner, self._site())
        return JobFiles(self._host, folders).list_files(job_path_of(path, folders))

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path of a learner as one tar stream to ``receive``."""
        from runners.shared.job_files import JobFiles, folders_of, job_path_of

        folders = folders_of(learner, self._site())
        JobFiles(self._host, folders).fetch(job_path_of(path, folders), receive)

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file of a learner."""
        from runners.shared.job_files import JobFiles, folders_of, job_path_of

        folders = folders_of(learner, self._site())
        JobFiles(self._host, folders).put(job_path_of(path, folders), stream, mode)

    def close(self) -> None:
        """Remove this runner's subscriptions on the host."""
        with contextlib.suppress(FabricError):  # a lost connection has ended them
            for subscriber in (self._subscriber, f"{self._subscriber}-launch"):
                self._host.call("forget", asker=subscriber)
            self._host.call("forget_follow", asker=self._subscriber)

    def leftovers(self) -> Iterator[LearnerRef]:
        """Yield every learner that has processes on the host, of all homes, and those that its waiter is to start."""
        if self._site().python:  # no waiter is anywhere else
            for one in self._host.call("waiting_attempts", home=self.home_uuid):
                yield LearnerRef(self.home_uuid, str(one["job"]), int(one["attempt"]), 1)
        for text in self._host.call("markers"):
            parts = text.rsplit("/", 3)
            if len(parts) == 4 and parts[2].isdigit() and parts[3].isdigit():
                yield LearnerRef(parts[0], parts[1], int(parts[2]), int(parts[3]))

    def _end(self, ref: LearnerRef) -> None:
        """Kill a learner's agent and all processes of the learner."""
        self._host.call("kill_agents", marker=marker(ref))
        self._host.call("end_marked", marker=marker(ref), grace_seconds=0.0)

    def _interpreter(self, request: LaunchRequest, site: HostFacts) -> Interpreter:
        from runners.shared.interpreters import find_interpreter
        from runners.shared.virtualenvs import environment_of

        found = find_interpreter(request, site, self._host)
        if request.spec.python != "requirements":
            return found
        return environment_of(request, found, site, self._host).interpreter

    def _site(self) -> HostFacts:
        with self._facts_lock:
            if self._facts is None:
                self._facts = read_host_facts(self._host, self.home_uuid)
            return self._facts

    def _folder(self, attempt: AttemptRef) -> AttemptFolder:
        return self._site().home.job(attempt.job_id).attempt(attempt.attempt)

    def _learner(self, ref: LearnerRef) -> LearnerFolder:
        return self._site().home.job(ref.job_id).attempt(ref.attempt).learner(ref.learner)
