"""The runners of jobs whose learners are at several hosts: each host's own runner has some of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, cast

from backends.contract.host import Chunk, Cluster, Host, HostGroup
from backends.contract.host_group import learners_by_host
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
    LearnerStatus,
    Observation,
    Runner,
    StopRequest,
)
from runners.multinode.calls import GroupFollows, GroupObservations, answers_of, at_each, first_of, naming
from runners.registry import load_runner
from runners.shared.capabilities import MULTINODE_CONTAINER, MULTINODE_PROCESS
from runners.shared.data_stores import results_store
from workbench.errors import FabricError, LaunchRefused, RunnerError
from workbench.job import LearnerPhase
from workbench.learner.journal.launch_document import PREEMPT
from workbench.paths import Home, JobFolder, default_home

if TYPE_CHECKING:
    from runners.multinode.launch import GroupProgress
    from runners.process.runner import ProcessRunner


_STOPS: Final = ("halt", "kill")
_OWN_ENDS: Final = ("", "max_runtime", "memory", PREEMPT)


class Relay:
    """Passes on each decision, and each stop that a host has ordered by itself, once.

    It is passed on again where it failed, with the next statuses. What still does not arrive the controller makes good:
    it asks all learners to stop once those that should have ended by themselves have not.

    Args:
        hosts: by name.
        runners: theirs.
        parts_of: returns what of an attempt each host has.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        runners: Mapping[str, ProcessRunner],
        parts_of: Callable[[AttemptRef], Mapping[str, AttemptRef]],
    ) -> None:
        self._hosts = hosts
        self._runners = runners
        self._parts_of = parts_of
        self._done: set[tuple[AttemptRef, str, str]] = set()
        self._changing = threading.Lock()

    def take(self, attempts: Sequence[AttemptRef], statuses: Mapping[LearnerRef, LearnerStatus]) -> None:
        """Take the statuses of all learners of these attempts; it returns at once."""
        with self._changing:
            self._done = {one for one in self._done if one[0] in attempts}
        for attempt in attempts:
            parts = self._parts_of(attempt)
            seen = {
                name: [
                    status
                    for number in part.numbers
                    if (status := statuses.get(_ref(attempt, number))) is not None
                ]
                for name, part in parts.items()
            }
            for name, learners in seen.items():
                others = {
                    other: parts[other] for other in parts if other != name and not _is_over(seen[other])
                }
                if (one := _decider(learners)) is not None:
                    for other, part in others.items():
                        self._once(attempt, other, "decision", partial(self._decide, other, part, one))
                elif len(learners) == len(parts[name].numbers) and _is_over(learners):
                    stopped = next((one for one in learners if one.stopped in _STOPS), None)
                    for other, part in others.items() if stopped is not None else ():
                        assert stopped is not None
                        self._once(attempt, other, "stop", partial(self._stop, other, part, stopped))

    def _once(self, attempt: AttemptRef, host: str, what: str, call: Callable[[], None]) -> None:
        key = (attempt, host, what)
        with self._changing:
            if key in self._done:
                return
            self._done.add(key)

        def forget() -> None:
            with self._changing:
                self._done.discard(key)

        def run() -> None:
            try:
                call()
            except FabricError:
                forget()
            except BaseException:
                forget()
                raise

        # In a thread of its own: a host that hangs must not hold up what is seen of the others.
        try:
            threading.Thread(target=run, name=f"{what} for {host}", daemon=True).start()
        except (RuntimeError, MemoryError):  # there are none left for a while
            forget()

    def _decide(self, host: str, part: AttemptRef, learner: LearnerStatus) -> None:
        ended_us = learner.ended_us  # by our clock
        document: dict[str, Any] = {
            "learner": learner.ref.learner,
            "exit_code": learner.exit_code,
            "signal": learner.signal,
            "time_us": None if ended_us is None else ended_us + self._hosts[host].clock_ahead_us(),
            "failed": _has_failed(learner),
        }
        self._runners[host].decide(part, document)

    def _stop(self, host: str, part: AttemptRef, learner: LearnerStatus) -> None:
        text = "" if learner.reason is None else learner.reason.text
        by = text.partition(" by ")[2] or f"learner {learner.ref.learner}, which was stopped"
        self._runners[host].stop_with_others(part, learner.stopped, by)


def _ref(attempt: AttemptRef, number: int) -> LearnerRef:
    return LearnerRef(attempt.home, attempt.job_id, attempt.attempt, number)


def _is_over(learners: Sequence[LearnerStatus]) -> bool:
    return bool(learners) and all(one.phase in (LearnerPhase.EXITED, LearnerPhase.LOST) for one in learners)


def _decider(learners: Sequence[LearnerStatus]) -> LearnerStatus | None:
    """Return the learner of a host whose end its agent says decides the attempt; of one that is lost nobody knows."""
    return next(
        (
            one
            for one in learners
            if one.phase is LearnerPhase.EXITED and one.stopped in _OWN_ENDS and one.decided
        ),
        None,
    )


def _has_failed(learner: LearnerStatus) -> bool:
    return learner.exit_code != 0 or learner.stopped != ""


class MultiNodeRunner(Runner):
    """Starts the learners of a job at several hosts.

    The first learners are at the first host, and none has more than one more than another: which host has a learner
    follows from how many learners and hosts there are.
    """

    of_each: ClassVar[str]
    """The name of the runner of each host."""

    def __init__(self, connection: Host | Cluster | HostGroup, *, home_uuid: str) -> None:
        super().__init__(connection, home_uuid=home_uuid)
        if not isinstance(connection, HostGroup):
            raise RunnerError(f"The runner {self.name!r} needs several hosts.")
        self._group = connection
        self._names = list(connection.hosts)
        member = cast("type[ProcessRunner]", load_runner(self.of_each))
        self._runners = {name: member(host, home_uuid=home_uuid) for name, host in connection.hosts.items()}
        hosts = connection.hosts
        self._observations = GroupObservations(hosts, self._runners, home_uuid, self._part)
        self._relay = Relay(hosts, self._runners, self._parts)
        away = {name: runner for name, runner in self._runners.items() if not runner.journals_in_place}
        self._follows = GroupFollows(away)
        self._host_of: dict[LearnerRef, str] = {}
        """Which host has a learner, as far as it was looked for."""

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the launch at all hosts; nothing is changed on them."""
        learners, hosts = request.attempt.learners, len(self._names)
        if learners < hosts:
            raise LaunchRefused(
                f"The job has {learners} learner{'' if learners == 1 else 's'}, and it is to run on {hosts} hosts.",
                hint=f"Give each host one or more: --set learners={hosts}",
                code="C104",
            )
        plans = at_each(self._names, lambda name: self._runners[name].plan(self._request(request, name)))
        for name, plan in plans.items():
            if plan.learners[0].native.get("agent") == "sh":
                raise LaunchRefused(
                    f"{name} has no Python 3.8 or newer, without which no job runs there together with other hosts.",
                    hint=f"Install python3 on {name}.",
                    code="C104",
                )
        return LaunchPlan(
            request=request,
            runner=self.name,
            learners=tuple(learner for plan in plans.values() for learner in plan.learners),
            slots_per_learner=request.spec.gpus,
            cpus_per_learner=min(plan.cpus_per_learner for plan in plans.values()),
            warnings=_merged({name: plan.warnings for name, plan in plans.items()}),
            notes=(*_merged({name: plan.notes for name, plan in plans.items()}), *_notes_of_stores(request)),
        )

    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Bring what is needed to all hosts, lease all slots or none, and start the learners that have not begun."""
        from runners.multinode.launch import GroupLaunch, GroupProgress

        reports = GroupProgress(progress)
        parts = {name: self._plan_at(plan, name) for name in self._names}
        launches = {
            name: self._runners[name].staged_launch(part, reports.of(name)) for name, part in parts.items()
        }
        learners = {name: part.request.attempt.numbers for name, part in parts.items()}
        GroupLaunch(
            self._group.hosts,
            launches,
            learners,
            reports,
            lambda: self._gather(plan.request, reports),
            attempt=plan.request.attempt.attempt,
        ).launch()

    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed, at any host."""
        try:
            return self._observations.observe(attempts, timeout_seconds)
        finally:  # while one host is away the others learn of each other
            self._relay.take(attempts, self._observations.statuses())

    def interrupt(self) -> None:
        """Make a blocked observe, or the next one, return early."""
        self._observations.interrupt()

    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        """Read a learner's output, index, records and processes from these offsets on."""
        with self._at(learner) as runner:
            return runner.journal(learner, offsets)

    @property
    def journals_in_place(self) -> bool:
        """Whether all hosts are this machine and their folder the home."""
        return all(runner.journals_in_place for runner in self._runners.values())

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content at any host, and return it.

        The error of a host that does not answer is raised where the others have nothing new.
        """
        if timeout_seconds > 0:
            return self._follows.follow(known, timeout_seconds, early)
        found: dict[LearnerRef, Mapping[str, Chunk]] = {}
        away = [name for name in self._names if not self._runners[name].journals_in_place]
        answers, errors = answers_of(
            away, lambda name: self._runners[name].follow(known, timeout_seconds=0.0, early=early)
        )
        for answer in answers.values():
            for ref, parts in answer.items():
                found[ref] = {**found.get(ref, {}), **parts}
        if errors and not found:
            raise first_of(errors)
        return found

    def interrupt_follow(self) -> None:
        """Make a blocked follow, or the next one, return early."""
        self._follows.interrupt()

    def download(self, attempt: AttemptRef, job: JobFolder) -> None:
        """Download results, checkpoints and logs from all hosts; of files with one name the newest stays.

        Where one fails those of the others come all the same, before its error is raised.
        """
        self._download(attempt, job, lambda name: None)

    def _download(self, attempt: AttemptRef, job: JobFolder, begins: Callable[[str], None]) -> None:
        from runners.shared.earlier_files import note_changes

        errors: list[BaseException] = []
        changes = []
        for name, part in self._parts(attempt).items():
            try:
                with naming(name):
                    changes.append(self._runners[name].changed_files(part))
            except FabricError as error:
                errors.append(error)
        # First: a host whose folder is the home may have deleted what comes from another.
        note_changes(job, changes)
        # One after the other, and the first host last: what only one can have, as the list of packages, is its.
        for name, part in reversed(self._parts(attempt).items()):
            if self._runners[name].journals_in_place:
                continue
            begins(name)
            try:
                with naming(name):
                    self._runners[name].download(part, job, keep_newer=True)
            except FabricError as error:
                errors.append(error)
        if errors:
            raise first_of(errors)

    def release(self, attempt: AttemptRef) -> None:
        """Let all hosts drop what they kept of an ended attempt."""
        self._all(attempt, lambda runner, part: runner.release(part))

    def drop_secrets(self, attempt: AttemptRef) -> None:
        """Let all hosts drop the secrets of an ended attempt."""
        self._all(attempt, lambda runner, part: runner.drop_secrets(part))

    def download_folder(self, folder: str, target: Path) -> None:
        """Download a folder of all hosts; of files with one name the newest stays."""
        for name, runner in self._runners.items():
            with naming(name):
                runner.download_folder(folder, target, keep_newer=True)

    def retry_upload(self, request: LaunchRequest) -> Sequence[Mapping[str, object]]:
        """Upload to the data store what the learners of an ended attempt could not upload."""
        found: list[Mapping[str, object]] = []
        for name in self._parts(request.attempt):
            with naming(name):
                found += self._runners[name].retry_upload(self._request(request, name))
        return found

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask all learners to stop; those at a host that does not answer do not delay the others."""
        self._all(attempt, lambda runner, part: runner.stop(part, request))

    def remove(self, attempt: AttemptRef) -> None:
        """Remove everything of the attempt from all hosts."""
        self._all(attempt, lambda runner, part: runner.remove(part))

    def remove_job(self, job_id: str) -> None:
        """Remove what the attempts of a deleted job share on all hosts."""
        at_each(self._names, lambda name: self._runners[name].remove_job(job_id))

    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command in the environment of a running learner, on this process's standard streams."""
        with self._at(learner) as runner:
            return runner.exec(learner, argv, terminal=terminal)

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List a path of a learner and everything below it."""
        with self._at(learner) as runner:
            return runner.files(learner, path)

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path of a learner as one tar stream to ``receive``."""
        with self._at(learner) as runner:
            runner.fetch(learner, path, receive)

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file of a learner."""
        with self._at(learner) as runner:
            runner.put(learner, path, stream, mode=mode)

    def close(self) -> None:
        """End the threads, and close the runners of all hosts; learners continue."""
        self._observations.close()
        self._follows.close()
        at_each(self._names, lambda name: self._runners[name].close())

    def leftovers(self) -> Iterator[LearnerRef]:
        """Yield every learner that has processes on any of the hosts, of all homes.

        The error of a host that does not answer is raised after all.
        """
        known: set[LearnerRef] = set()
        errors: list[BaseException] = []
        for name, runner in self._runners.items():
            found: list[LearnerRef] = []
            try:
                with naming(name):
                    found = [ref for ref in runner.leftovers() if ref not in known]
            except FabricError as error:
                errors.append(error)
            known.update(found)
            yield from found
        if errors:
            raise first_of(errors)

    def _gather(self, request: LaunchRequest, progress: GroupProgress) -> None:
        """Have what the attempt before this one has made at all hosts here, from where each host gets it."""
        before = replace(request.attempt, attempt=request.attempt.attempt - 1)
        job = Home(default_home()).job(before.job_id)
        if before.attempt < 1 or not job.path.is_dir():
            return
        lacking = at_each(
            self._names,
            lambda name: self._runners[name].lacks_earlier_files(self._request(request, name)),
            progress.call_off,
        )
        if any(lacking.values()):
            text = f"downloading what attempt {before.attempt} made"
            self._download(before, job, lambda name: progress.of(name)(text, stage="preparing"))

    def _parts(self, attempt: AttemptRef) -> dict[str, AttemptRef]:
        """Return what of an attempt each host has, by name; of fewer learners than hosts the last ones have none."""
        blocks = zip(self._names, learners_by_host(attempt.learners, len(self._names)), strict=True)
        return {name: replace(attempt, part=tuple(numbers)) for name, numbers in blocks if numbers}

    def _part(self, name: str, attempt: AttemptRef) -> AttemptRef | None:
        return self._parts(attempt).get(name)

    def _request(self, request: LaunchRequest, name: str) -> LaunchRequest:
        return replace(request, attempt=self._parts(request.attempt)[name], hosts=tuple(self._names))

    def _plan_at(self, plan: LaunchPlan, name: str) -> LaunchPlan:
        request = self._request(plan.request, name)
        return replace(
            plan, request=request, learners=tuple(plan.of(number) for number in request.attempt.numbers)
        )

    def _all(self, attempt: AttemptRef, call: Callable[[ProcessRunner, AttemptRef], None]) -> None:
        parts = self._parts(attempt)
        at_each(list(parts), lambda name: call(self._runners[name], parts[name]))

    @contextlib.contextmanager
    def _at(self, learner: LearnerRef) -> Iterator[ProcessRunner]:
        """Give the runner of the host that has a learner; an error says which host that is."""
        name = self._host_of.get(learner) or self._find(learner)
        with naming(name):
            yield self._runners[name]

    def _find(self, learner: LearnerRef) -> str:
        """Return which host has a learner; the first one where none has.

        Where the hosts have one home, all have its launch document: which one it is follows from how many there are.
        """
        failure: FabricError | None = None
        for name, runner in self._runners.items():
            try:
                with naming(name):
                    learners = runner.launched_learners(learner)
            except FabricError as error:
                failure = failure or error
                continue
            for index, numbers in enumerate(learners_by_host(learners, len(self._names))):
                if learner.learner in numbers:
                    self._host_of[learner] = self._names[index]
                    return self._names[index]
        if failure is not None:
            raise failure
        return self._names[0]


def _notes_of_stores(request: LaunchRequest) -> Iterator[str]:
    store = results_store(request)
    if store is not None and store.is_folder:
        yield (
            f"results go to the folder {store.results_path()} of each host: one attempt finds those of all hosts of"
            " the attempts before where it is the same folder on all of them"
        )


def _merged(lines: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the lines of all hosts: one that all have once, another with the hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for name, those in lines.items():
        for line in those:
            hosts.setdefault(line, []).append(name)
    return tuple(
        line if len(names) == len(lines) else f"{', '.join(names)}: {line}" for line, names in hosts.items()
    )


class MultiNodeProcessRunner(MultiNodeRunner):
    """Starts the learners as processes."""

    name: ClassVar[str] = "multinode-process"
    capabilities: ClassVar[Capabilities] = MULTINODE_PROCESS
    of_each: ClassVar[str] = "process"


class MultiNodeContainerRunner(MultiNodeRunner):
    """Starts the learners in containers."""

    name: ClassVar[str] = "multinode-container"
    capabilities: ClassVar[Capabilities] = MULTINODE_CONTAINER
    of_each: ClassVar[str] = "container"
