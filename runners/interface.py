"""The contract of runners: methods that launch, observe, stop and remove the learners of an attempt on a backend.

A runner is loaded by name through the entry points ``fabric.runners``; the built-in ones register there too.
It gets an open :class:`~backends.contract.host.Host` or :class:`~backends.contract.host.Cluster`, and works over
every backend that opens one. It raises :class:`workbench.errors.RunnerError` or a subclass, or the backend's own
errors, never an exception of a library. ``runners.conformance`` tests what a runner promises; the tests of your own
runner subclass that suite.

What a runner promises:

1. Launching an attempt again starts no learner twice, wherever the first launch was cut off.
2. All learners of an attempt get their slots, or none does.
3. A learner continues when the runner, the controller or the connection dies.
4. Every learner that ended is observed as exited, with its exit code or signal and its times, or as lost with
a reason.
5. A stop ends every process of the learner, double-forked ones too.
6. The journal returns the bytes that were printed, from any offset, any number of times.
7. After ``remove`` only what the job's attempts share is left on the backend.
8. Objects and processes of another home are never touched.

What it does not promise: that a learner notices its stop before the grace period ends; that output
arrives in less than 10 ms; that usage samples are complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Protocol

from backends.contract.host import Chunk, Cluster, Host, HostGroup
from workbench.errors import RunnerError
from workbench.formats import clock_time
from workbench.job import LearnerPhase, Reason
from workbench.paths import Home, JobFolder
from workbench.spec import JobSpec
from workbench.time_expressions import about_text
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a runner can do. Clients read this, and check neither a runner's class nor its name."""

    needs: Literal["host", "cluster", "hosts"]
    uses_image: bool = False
    exec: bool = False
    shell: bool = False
    copy: bool = False
    ports: bool = False
    """Whether what a learner serves on its job's ``ports`` can be reached from outside."""
    usage: bool = True
    memory_limit: bool = True
    names_resolve: bool = False
    """Whether learners can reach each other by host name."""
    shared_job_folder: bool = True
    """Whether all learners of an attempt see the same ``JOB_STATE_DIR``."""
    builds_images: bool = False
    """Whether it builds the image of a job that names a Dockerfile; asked only where it uses images."""
    mounts_stores: bool = True
    """Whether a data store with ``mount: true`` is mounted; else such a job is refused."""
    hands_over: bool = False
    """Whether a job that waits is given to its host, where a process of ours starts it: its learners are seen as
    ``waits``."""
    heeds_wait: bool = False
    """Whether a launch whose request has a ``wait`` gives the attempt to its host and starts nothing, with
    ``hands_over``."""
    restarts: bool = False
    """Whether the host begins the next attempt of a job whose command failed, as ``LaunchRequest.restarts`` says."""
    finish: bool = False
    """Whether it knows the stop ``finish``: ``should_stop()`` says yes, and no signal is sent."""
    moves_in: bool = False
    """Whether a job that went on somewhere else before finds its results and checkpoints, as far as they came home."""


@dataclass(frozen=True, slots=True)
class LearnerRef:
    """Names one learner of an attempt."""

    home: str
    job_id: str
    attempt: int
    learner: int
    """The learner's number, from 1."""


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """Names one attempt of a job; ``home`` is the uuid of the home that the job belongs to."""

    home: str
    job_id: str
    attempt: int
    learners: int
    """How many it has in all."""
    part: tuple[int, ...] = ()
    """The numbers of those that one host has, where others are at other hosts; empty for all."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the learners that are meant, from 1."""
        return self.part or range(1, self.learners + 1)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An attempt of a job that another one comes after, at the same host."""

    attempt: AttemptRef
    may_fail: bool
    """Whether it need only end; else it has to complete."""
    restarts_left: int
    """How many attempts may follow a failure that is the user's fault."""
    platform_restarts_left: int


@dataclass(frozen=True, slots=True)
class SweepLimit:
    """How many attempts of a sweep may be under way at once, all of them at one host."""

    sweep: str
    at_most: int
    others: tuple[AttemptRef, ...] = ()
    """Those under way that the host's waiter may not have started: it does not count them by itself."""


@dataclass(frozen=True, slots=True)
class HostGates:
    """What a host waits for before an attempt waits for its GPUs and CPUs."""

    begin_us: int | None = None
    """Not before this time of day."""
    after: tuple[Predecessor, ...] = ()
    limit: SweepLimit | None = None
    is_by_host_clock: bool = False
    """Whether the time of day is by the host's clock, as the end of a back-off there is; else it is by ours."""

    @property
    def are_closed(self) -> bool:
        """Whether a time of day or a job before it is waited for."""
        return self.begin_us is not None or bool(self.after)

    def at(self, host: Host) -> HostGates:
        """Return them with the time of day by the clock of this host, which may be wrong."""
        if self.begin_us is None or self.is_by_host_clock:
            return self
        return replace(self, begin_us=self.begin_us + host.clock_ahead_us(), is_by_host_clock=True)

    def to_json(self, home: Home) -> dict[str, Any]:
        """Return the gates as the host's waiter reads them: ``learner.waiter.gates.TicketGates``.

        Args:
            home: the home's folder at the host.
        """
        return {
            "begin_us": self.begin_us,
            "after": [_predecessor_document(one, home) for one in self.after],
            "limit": None if self.limit is None else _limit_document(self.limit, home),
        }


def _limit_document(limit: SweepLimit, home: Home) -> dict[str, Any]:
    others = [_predecessor_document(Predecessor(one, True, 0, 0), home) for one in limit.others]
    return {"sweep": limit.sweep, "at_most": limit.at_most, "others": others}


def _predecessor_document(one: Predecessor, home: Home) -> dict[str, Any]:
    attempt = one.attempt
    folder = home.job(attempt.job_id).attempt(attempt.attempt)
    return {
        "job": attempt.job_id,
        "attempt": attempt.attempt,
        "ended": one.may_fail,
        "restarts_left": one.restarts_left,
        "platform_restarts_left": one.platform_restarts_left,
        "learners": [str(folder.learner(number).path) for number in attempt.numbers],
    }


@dataclass(frozen=True, slots=True)
class HostWait:
    """Why an attempt is given to its host and not started, though its GPUs may be free or it needs none."""

    reason: str
    gates: HostGates = HostGates()


@dataclass(frozen=True, slots=True)
class HostRestarts:
    """How the host begins the next attempt of a job, should its command or its agent fail."""

    done: int
    """How many restarts after faults of the user there were before this attempt."""
    allowed: int
    delay_seconds: float
    """The back-off before the next attempt; before the one after it twice as long."""
    barred_by: tuple[str, ...] = ()
    """Expressions: none is begun after a failed command whose output has a line that one of them matches."""
    platform_done: int = 0
    """As ``done``, ``allowed`` and ``delay_seconds``, after faults of the platform, which are counted apart."""
    platform_allowed: int = 0
    platform_delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything that a runner gets to plan and launch an attempt."""

    attempt: AttemptRef
    spec: JobSpec
    owner: str
    code_hash: str
    code_file: str
    """The path of the code snapshot on *this* machine; empty for a job without code."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """What was recorded at submit: interpreter, environment variables, proxies, kind of code. Of a job that goes on at
    another backend also ``moved``: with which ``attempt``, and ``from`` which backend."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The values of secrets by name. They are in no plan and on no command line."""
    seq: int = 0
    """The job's order of submission among those of its home."""
    position: float | None = None
    """Where it stands among the jobs of its home and priority, smaller first; None: by its submission."""
    wait: HostWait | None = None
    """What the attempt waits for at its host: it is prepared and given to it. Only for runners with
    ``capabilities.heeds_wait``. None starts it."""
    limit: SweepLimit | None = None
    """The limit of its sweep, as its host counts it, should the launch find its GPUs taken; None for none."""
    restarts: HostRestarts | None = None
    """Given where the host may begin the next attempt; it does where it can. Only for runners with
    ``capabilities.restarts``."""
    search_best: float | None = None
    """Of a trial of an experiment of Determined: the best value of the searcher's metric in all trials of its search;
    None where there is none."""
    hosts: tuple[str, ...] = ()
    """The names of the hosts that have the attempt together, in order; empty where one has all of it."""


@dataclass(frozen=True, slots=True)
class HostTurn:
    """What a host's queue says of one job that waits there for GPUs."""

    start: bool
    """Whether it may take them now."""
    place: int
    """In the order of all that wait there, from 1 on."""
    of: int
    free: int
    """How many GPUs that it could use are free."""
    ahead: str = ""
    """The first job ahead that waits, too; empty where none does."""
    ahead_owner: str = ""
    others_ahead: bool = False
    """Whether a job of another home is ahead."""
    limit: str = ""
    """Which limit of the host's policy keeps it waiting; empty where none does."""
    limit_since_us: int | None = None
    """Since when that is so, by this machine's clock, where somebody has ordered it."""
    preempts: int = 0
    """How many jobs of a lower priority are to end for it."""
    free_at_us: int | None = None
    """When another GPU that it could use is free at the latest, by this machine's clock; None: nobody knows."""
    is_enough_then: bool = False
    """Whether it has all that it lacks by then."""
    out_of_turn: str = ""
    """Who has taken GPUs since it waits, and is not in the order; empty where nobody has."""
    text: str = ""
    """The reason as it stands, for a job over several hosts: at which of them it waits, and for what. Else empty."""

    @classmethod
    def from_host(cls, document: Mapping[str, Any], ahead_us: int) -> HostTurn:
        """Read what a host says, whose clock is so far ahead of ours."""
        turn = cls(**document)
        return replace(
            turn,
            free_at_us=None if turn.free_at_us is None else turn.free_at_us - ahead_us,
            limit_since_us=None if turn.limit_since_us is None else turn.limit_since_us - ahead_us,
        )

    @property
    def is_special(self) -> bool:
        """Whether there is more to say than who holds the GPUs."""
        return bool(self.limit or self.preempts or self.out_of_turn or self.text)

    def until(self, now_us: int) -> str:
        """Say by when there are more GPUs for it; empty where nobody knows."""
        if self.free_at_us is None or self.free_at_us <= now_us or self.preempts:
            return ""
        which = "enough is" if self.is_enough_then else "the next is"
        return f"; {which} free by about {about_text(self.free_at_us, now_us)}"

    def reason(self, count: int, *, now_us: int, busy: str = "") -> str:
        """Say why a job that needs ``count`` GPUs waits; ``busy`` is who holds them."""
        if self.text:
            return self.text
        line = f"{ordinal(self.place)} of {self.of}"
        if self.ahead and self.free >= count:
            line += f", behind {self.ahead_owner}'s job {self.ahead}"
        ordered = ""
        if self.limit_since_us is not None:  # first, since it holds whoever is ahead and whatever is free
            ordered = f"{self.limit}, since {clock_time(self.limit_since_us, now_us=now_us)}; "
        elif self.limit:
            line += f"; {self.limit}"
        if self.preempts:
            line += f"; {self.preempts} job{'' if self.preempts == 1 else 's'} of a lower priority"
            line += f" end{'s' if self.preempts == 1 else ''} for it"
        if self.out_of_turn:
            line += f"; {self.out_of_turn} out of turn: an older fabric, or another program, knows no order"
        needs = f"waits: {ordered}needs {count} GPU{'' if count == 1 else 's'}, {self.free} free"
        return f"{needs}{self.until(now_us)}; {line}" + (f": {busy}" if busy else "")


def reason_for_busy(turn: HostTurn | None, count: int, alone: str, busy: str, now_us: int) -> str:
    """Say why a job waits for ``count`` GPUs that others hold: by its turn, unless it waits there alone.

    Args:
        turn: what the host's queue says of it; None where it has none.
        count: how many it needs.
        alone: what it waits for, where nobody else waits there.
        busy: who holds them.
        now_us: what time it is.
    """
    if turn is not None and (turn.of > 1 or turn.is_special):
        return turn.reason(count, now_us=now_us, busy=busy)
    return f"{alone}: {busy}" + ("" if turn is None else turn.until(now_us))


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``11th``."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


@dataclass(frozen=True, slots=True)
class LearnerPlan:
    """How one learner will be started, in the runner's own terms."""

    learner: int
    name: str
    native: Mapping[str, Any]
    """The launch document, the container's configuration or the pod, as JSON values without secrets."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A launch as a value: ``fabric plan`` shows it, ``launch`` carries it out."""

    request: LaunchRequest
    runner: str
    learners: tuple[LearnerPlan, ...]
    slots_per_learner: int
    cpus_per_learner: float
    """CPUs that each learner reserves on the host; 0 reserves none."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks for the user: the image is not used, the machine has fewer CPUs than requested."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """The cluster objects to create, in this order; ``fabric plan`` shows them as YAML."""
    results_lost_after_seconds: float = 0.0
    """How long the backend keeps results after the end unless they are fetched; 0: until the job is removed."""

    def of(self, number: int) -> LearnerPlan:
        """Return the plan of a learner by its number; one host may have some of an attempt's learners."""
        return next(one for one in self.learners if one.learner == number)


@dataclass(frozen=True, slots=True)
class Followed:
    """The next attempt of a job, which its host begins."""

    attempt: int
    begin_us: int
    """When its back-off is over, by the host's clock, in microseconds since 1970, UTC."""
    delay_seconds: float
    """How long that is."""


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """The status of a learner. Times are microseconds since 1970, UTC, by the host's clock; of several by ours."""

    ref: LearnerRef
    phase: LearnerPhase
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    started_us: int | None = None
    """When its command started."""
    ended_us: int | None = None
    decided: bool = False
    """Whether this learner's exit decided the job."""
    stopped: str = ""
    """What stopped it: ``halt``, ``kill``, ``settle``, ``max_runtime`` or ``memory``; empty if it ended by itself."""
    slots: tuple[str, ...] = ()
    node: str = ""
    final: bool = False
    """Whether a retry cannot help, e.g. if the image does not exist."""
    doing: str = ""
    """What it does while it downloads data or uploads results, for people."""
    cut_off: bool = False
    """Whether it waits for what its launch brings; if the launch was cut off, it must be repeated."""
    waits: bool = False
    """Whether it waits in its host's queue: nothing of it runs, and the host starts it when its turn comes."""
    stops_itself: bool | None = None
    """Whether its agent stops it by the rules of ``stop_when``; None where that is not known (yet)."""
    followed_by: Followed | None = None
    """The next attempt, where the host has begun it, or was about to; only of a learner whose command has failed."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The reply of ``observe``."""

    seen: tuple[LearnerStatus, ...]
    """The statuses: of all learners if ``whole``, else of those that changed since the last reply."""
    whole: bool


@dataclass(frozen=True, slots=True)
class StopRequest:
    """How to stop the learners of an attempt."""

    kind: Literal["finish", "halt", "kill"]
    """``finish`` has ``should_stop()`` say yes and sends no signal; only for runners with ``capabilities.finish``."""
    grace_seconds: float
    """The time between SIGTERM and SIGKILL; 0 for kill."""
    by: str = ""
    """Who asked for it, for people."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, folder or link of a learner."""

    path: str
    """Relative to the requested path; empty for that path itself."""
    kind: Literal["file", "folder", "link"]
    size_bytes: int
    modified_us: int
    mode: int = 0o600
    target: str = ""
    """Where a symbolic link points; empty for files and folders."""


class LaunchProgress(Protocol):
    """A callback for the progress of a launch."""

    def __call__(self, text: str, *, stage: Literal["preparing", "waiting", "starting"]) -> None:
        """Report one line of text; ``stage`` says which part of the launch it belongs to."""


class ExecSession(Protocol):
    """A command in the environment of a running learner."""

    def wait(self) -> int:
        """Wait until the command has ended; return its exit code."""


EarlyBytes = Callable[[LearnerRef, str, memoryview, int], None]
"""Takes a piece of a learner's log: the learner, ``output`` or ``setup``, the bytes, and their offset."""


class Runner(ABC):
    """Starts learners on one backend, for all jobs there. Each method is called by one thread at a time."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def __init__(self, connection: Host | Cluster | HostGroup, *, home_uuid: str) -> None:
        """Make a runner; the backend is not reached yet.

        Args:
            connection: the backend, opened: a runner whose ``capabilities.needs`` is ``host`` gets a host, and one
                that needs ``hosts`` gets several.
            home_uuid: the home whose jobs it runs; it touches no learner of another home.
        """
        self.connection = connection
        self.home_uuid = home_uuid

    @abstractmethod
    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Return the launch as a value; nothing is changed on the backend.

        Raises:
            LaunchRefused: this backend can never run the job.
        """

    @classmethod
    def plan_unconnected(cls, request: LaunchRequest, settings: Mapping[str, Any]) -> LaunchPlan | None:
        """Return the launch as far as it is known without the backend; None where nothing is.

        Args:
            request: the job.
            settings: the checked options of its backend.
        """
        return None

    @abstractmethod
    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Upload code and environment, lease all slots or none, then start the learners. Idempotent.

        Where slots are taken a runner with ``capabilities.hands_over`` gives the attempt to its host, which starts it.
        With ``capabilities.heeds_wait`` so it does with one that has a ``wait``, whatever is free.

        Raises:
            SlotsBusy: not enough slots are free, or its host takes no attempt that waits; no learner was started. The
                launch can be repeated.
            LaunchRefused: a retry cannot help.
        """

    @abstractmethod
    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Return the status of the learners of these attempts; the first reply has all, later ones the changes.

        A call waits until a status has changed since the last reply, at most ``timeout_seconds`` (then ``seen``
        is empty). If the attempts differ from those of the last call, it returns all statuses at once. One
        call covers all attempts on the backend.
        """

    @abstractmethod
    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        """Read a learner's ``output``, ``index`` and ``records`` from these offsets on; missing files are left out.

        ``processes``, from 0 on, are those of the last sample of its usage; a runner without them leaves them out.
        """

    @abstractmethod
    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask all learners of an attempt to stop. Returns at once; repeated until observe confirms the end."""

    @abstractmethod
    def remove(self, attempt: AttemptRef) -> None:
        """Remove everything of the attempt from the backend: processes, containers, remote folders. Idempotent.

        On this machine the files are kept: they are in the job's own folder, which the home manages.
        """

    def remove_job(self, job_id: str) -> None:
        """Remove what the attempts of a deleted job share on the backend; called after each was removed. Idempotent."""

    @abstractmethod
    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command in the environment of a running learner, on this process's standard streams.

        Raises:
            NotRunning: the learner does not run.
            RunnerError: ``capabilities.exec`` is false.
        """

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List a path of a learner, running or ended, and everything below it; empty if it does not exist.

        Args:
            learner: whose file system.
            path: begins with ``results``, ``checkpoints``, ``logs``, ``data``, ``job`` (JOB_STATE_DIR) or ``code``
                (the working folder), or is absolute as the learner sees it; else it is relative to the working folder.

        Raises:
            RunnerError: ``capabilities.copy`` is false.
            UsageError: the path is outside of the job's folders, and this runner reaches nothing else.
        """
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send a path of a learner as one tar stream; names are as in :meth:`files`, a file has its own name."""
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file of a learner atomically; missing folders are created."""
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    @abstractmethod
    def close(self) -> None:
        """Release all resources; learners continue."""

    @property
    def journals_in_place(self) -> bool:
        """Whether journals are written into the home itself; else the controller mirrors them by :meth:`follow`."""
        return True

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it.

        An index never ends behind its log. A state is returned whole, and not before all that was written earlier.
        Called only if ``journals_in_place`` is false.

        Args:
            known: for each learner the offsets of ``output``, ``index``, ``setup``, ``setup_index`` and ``records``
                that are read already, and the CRC-32 of the known ``state``; what is left out is 0.
            timeout_seconds: how long to wait for new content; 0 returns everything that there is now.
            early: called from any thread with pieces of logs while the reply still arrives; the chunk that is
                returned then begins where the last piece ended.
        """
        return {}

    def interrupt_follow(self) -> None:
        """Make a blocked :meth:`follow`, or the next one, return early. May be called from any thread."""

    def download(self, attempt: AttemptRef, job: JobFolder) -> None:
        """Download results, checkpoints and logs of an ended attempt into the job's folder here. Idempotent.

        Called only if ``journals_in_place`` is false.
        """

    def release(self, attempt: AttemptRef) -> None:
        """Let the backend drop what it kept of an ended attempt: all of it is here now. Idempotent.

        Called only if ``journals_in_place`` is false, after :meth:`download`.
        """

    def drop_secrets(self, attempt: AttemptRef) -> None:
        """Let the backend drop the secrets of an ended attempt whose files could not be brought here. Idempotent.

        Called only if ``journals_in_place`` is false, in place of :meth:`release`, which would drop the files too.
        """

    def download_folder(self, folder: str, target: Path) -> None:
        """Download a folder of the backend's machine, which is a job's data store; local files are not deleted.

        Raises:
            RunnerError: this runner cannot do it.
        """
        raise RunnerError(f"The runner {self.name} cannot copy folders from its backend.")

    def retry_upload(self, request: LaunchRequest) -> Sequence[Mapping[str, Any]]:
        """Upload to the data store what the learners of an ended attempt could not upload.

        Returns:
            The summary of each upload as in ``storing.json``, with ``learner``; learners that left no files are
            not included.

        Raises:
            RunnerError: this runner cannot do it.
        """
        raise RunnerError(
            f"The runner {self.name} cannot store results a second time.",
            hint="`fabric download` fetches them.",
        )

    def interrupt(self) -> None:
        """Make a blocked :meth:`observe`, or the next one, return early. May be called from any thread.

        The controller calls it when an attempt was launched while it waits for others. A runner without it is
        observed with short timeouts.
        """

    def leftovers(self) -> Iterator[LearnerRef]:
        """Yield every learner on the backend, of all homes, for ``fabric gc``; none if the runner cannot list them."""
        return iter(())
