"""The contract of runners: methods that launch, observe, stop and remove the learners of an attempt on a backend.

A runner is loaded by name through the entry points ``fabric.runners``; ours register there too. It gets
an open :class:`~backends.contract.host.Host` or :class:`~backends.contract.host.Cluster` and is written once for
all of them. It raises :class:`workbench.errors.RunnerError` or a subclass, or the backend's own errors,
never a foreign exception. Its promises are written as tests in ``runners.conformance``; a runner of your
own subclasses that suite.

What a runner promises:

1. Launching the same attempt twice starts nothing twice, at whatever instant the first launch was cut off.
2. All learners of an attempt get their slots, or none does.
3. A learner goes on when the runner, the controller or the connection dies.
4. Every learner that ended is seen as exited, with its code or signal and its true times, or as lost with
a reason.
5. A stop that was asked for ends every process of the learner, double-forked ones too.
6. The journal gives the bytes that were printed, from any offset, as often as asked.
7. After remove nothing of the attempt is left at the place but what other attempts share.
8. What carries another home's uuid is never touched.

What it does not promise: that a learner notices its stop before the grace period ends; that output
arrives in less than 10 ms; that usage samples are complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Protocol

from backends.contract.host import Chunk, Cluster, Host
from workbench.errors import RunnerError
from workbench.job import LearnerPhase, Reason
from workbench.paths import JobFolder
from workbench.plugins import FormerNames
from workbench.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a runner can do: read by screens, docs and tests instead of its class."""

    needs: Literal["host", "cluster"]
    uses_image: bool = False
    exec: bool = False
    shell: bool = False
    copy: bool = False
    ports: bool = False
    usage: bool = True
    memory_limit: bool = True
    names_resolve: bool = False
    """Whether learners find each other by name."""
    shared_job_folder: bool = True


@dataclass(frozen=True, slots=True)
class LearnerRef:
    """Which learner, of which home."""

    home: str
    job_id: str
    attempt: int
    learner: int
    """From 1."""


@dataclass(frozen=True, slots=True)
class AttemptRef:
    """Which attempt, of which home."""

    home: str
    job_id: str
    attempt: int
    learners: int


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """All that a runner knows of an attempt."""

    attempt: AttemptRef
    spec: JobSpec
    owner: str
    code_hash: str
    code_file: str
    """The snapshot on *this* machine; empty when the job has no code."""
    recorded: Mapping[str, Any] = field(default_factory=dict)
    """What the client froze at submit: interpreter, environment variables that pass, proxies, code kind."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values; they are sent by standard input or a 0600 file, and are in no plan."""


@dataclass(frozen=True, slots=True)
class LearnerPlan:
    """What one learner will be started with, native to the runner."""

    learner: int
    name: str
    native: Mapping[str, Any]
    """The launch document, container configuration or pod objects, as plain JSON values without secrets."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Exactly what would be sent: ``fabric plan`` shows it, ``launch`` sends it, tests read it."""

    request: LaunchRequest
    runner: str
    learners: tuple[LearnerPlan, ...]
    slots_per_learner: int
    cpus_per_learner: float
    """CPUs reserved on the host; 0 reserves nothing."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Remarks to show once: the image is not used, more CPUs were asked for than there are."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """What a cluster is given for all learners together, in this order; shown as YAML."""
    results_lost_after_seconds: float = 0.0
    """How long after the end results are kept at the place unless they are fetched; 0 as long as the job is."""


@dataclass(frozen=True, slots=True)
class LearnerStatus:
    """The status of a learner. Times are microseconds since 1970, UTC, by the host's clock."""

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
    """Why it was stopped if it did not end by itself: ``halt``, ``kill``, ``settle``, ``max_runtime``, ``memory``."""
    slots: tuple[str, ...] = ()
    node: str = ""
    final: bool = False
    """Whether a retry cannot help: an image that does not exist."""
    doing: str = ""
    """What it does while it brings data in or stores results, in words."""
    cut_off: bool = False
    """Whether it waits for files that a launch uploads, and that launch may be over."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The learners on the backend: all of them first (``whole``), then those that changed."""

    seen: tuple[LearnerStatus, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class StopRequest:
    """How learners are to be stopped."""

    kind: Literal["halt", "kill"]
    grace_seconds: float
    """From SIGTERM to SIGKILL; 0 for kill."""
    by: str = ""
    """Who asked, in words."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, folder or link of a learner."""

    path: str
    """Relative to the path that was asked for; empty for that itself."""
    kind: Literal["file", "folder", "link"]
    size_bytes: int
    modified_us: int
    mode: int = 0o600
    target: str = ""
    """What a link says."""


class LaunchProgress(Protocol):
    """A callback that takes the progress of a launch."""

    def __call__(self, text: str, *, stage: Literal["preparing", "waiting", "starting"]) -> None:
        """Take one line of text."""


class ExecSession(Protocol):
    """A command that runs beside a learner."""

    def wait(self) -> int:
        """Wait for its exit code."""


EarlyBytes = Callable[[LearnerRef, str, memoryview, int], None]
"""Takes some of a learner's ``output`` or ``setup``: which, the bytes and where they begin."""


class Runner(FormerNames, ABC):
    """Starts learners on one backend. One instance serves all jobs there, each method from one thread at a time."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    former_names: ClassVar[Mapping[str, str]] = {
        "bring_home": "download",
        "bring_folder": "download_folder",
        "store_again": "retry_upload",
    }
    """Runners may still define the methods by these names, and callers may still call them."""

    def __init__(self, connection: Host | Cluster, *, home_uuid: str) -> None:
        """Make a runner; the backend is not reached yet.

        Args:
            connection: the backend, opened: a runner whose ``capabilities.needs`` is ``host`` gets a host.
            home_uuid: the home whose jobs it runs; it touches no learner of another home.
        """
        self.connection = connection
        self.place = connection
        """The former name of ``connection``, for runners that read it."""
        self.home_uuid = home_uuid

    @abstractmethod
    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Say exactly what would be sent; raises LaunchRefused for what this backend can never give."""

    @abstractmethod
    def launch(self, plan: LaunchPlan, progress: LaunchProgress) -> None:
        """Bring code and environment, then lease all slots or none, then start. Idempotent.

        Raises:
            SlotsBusy: slots are taken; nothing was started, what was prepared stays.
            LaunchRefused: trying again cannot mend it.
        """

    @abstractmethod
    def observe(self, attempts: Sequence[AttemptRef], *, timeout_seconds: float) -> Observation:
        """Say how these attempts' learners are: at once and whole the first time, then when something changes.

        Blocks until something changed since this runner's last answer, or the time is over (then nothing
        is seen). With attempts that were not asked for the last time it answers at once. One call covers
        the whole place.
        """

    @abstractmethod
    def journal(self, learner: LearnerRef, offsets: Mapping[str, int]) -> Mapping[str, Chunk]:
        """Read a learner's ``output``, ``index`` and ``records`` from these offsets; what is not there is left out."""

    @abstractmethod
    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        """Ask all learners of an attempt to stop; returns at once, is repeated until observe confirms it."""

    @abstractmethod
    def remove(self, attempt: AttemptRef) -> None:
        """Remove all of the attempt from the backend: processes, containers, remote folders. Idempotent.

        On this machine the journal is the job's own folder and is left to its owner.
        """

    def remove_job(self, job_id: str) -> None:
        """Remove what the attempts of a deleted job share at the place, after each was removed. Idempotent."""

    @abstractmethod
    def exec(self, learner: LearnerRef, argv: Sequence[str], *, terminal: bool) -> ExecSession:
        """Run a command beside a learner; raises RunnerError where ``capabilities.exec`` is false."""

    def files(self, learner: LearnerRef, path: str) -> Sequence[FileEntry]:
        """List what is at a path of a learner, running or ended, and all that is below; nothing where there is none.

        A path begins with ``results``, ``checkpoints``, ``logs``, ``data``, ``job`` (JOB_STATE_DIR) or ``code`` (the
        working folder), is absolute as the learner sees it, or else lies in the working folder.

        Raises:
            RunnerError: ``capabilities.copy`` is false, or it is none of the job's.
        """
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    def fetch(self, learner: LearnerRef, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Have what is at a path sent as one tar stream, names as in :meth:`files`; a file has its own name."""
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    def put(self, learner: LearnerRef, path: str, stream: BinaryIO, *, mode: int = 0o644) -> None:
        """Write one file at a path of a learner, whole or not at all; folders on the way are made."""
        raise RunnerError(f"Files of learners cannot be reached yet where they run as {self.name}.")

    @abstractmethod
    def close(self) -> None:
        """Release all resources; learners continue."""

    @property
    def journals_in_place(self) -> bool:
        """Whether journals at the place are the jobs' own folders in the home; else they are mirrored there."""
        return True

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it.

        ``known`` has for each learner the offsets of ``output``, ``index``, ``setup``, ``setup_index`` and
        ``records``, and the CRC-32 of the ``state`` that is known; what is left out is 0. An index never goes
        further than its log, and a state comes whole, with the last of all that was there before it.
        What a log has may be given to ``early``, piece by piece and from any thread, while the rest is on its way: the
        answer then begins where that ended.
        Only asked of a runner whose journals are not in place.
        """
        return {}

    def interrupt_follow(self) -> None:
        """Make a blocked :meth:`follow`, or the next one, return early, from any thread."""

    def download(self, attempt: AttemptRef, job: JobFolder) -> None:
        """Copy results, checkpoints and logs of an attempt that is over into the job's folder here. Idempotent.

        Only asked of a runner whose journals are not in place.
        """

    def download_folder(self, folder: str, target: Path) -> None:
        """Copy a folder of the place, which a job's data store is, into one here; what is only here stays.

        Raises RunnerError where this cannot be done.
        """
        raise RunnerError(f"The runner {self.name} cannot copy folders from its backend.")

    def retry_upload(self, request: LaunchRequest) -> Sequence[Mapping[str, Any]]:
        """Store what the learners of an attempt that is over could not store; return how it went for each.

        One that has left nothing at the place is not among them. Raises RunnerError where this cannot be done.
        """
        raise RunnerError(
            f"The runner {self.name} cannot store results a second time.",
            hint="`fabric download` fetches them.",
        )

    def interrupt(self) -> None:
        """Make a blocked :meth:`observe`, or the next one, return early, from any thread.

        The controller calls it when an attempt was launched while it waits for others. A runner that
        leaves this out is asked in short turns instead.
        """

    def leftovers(self) -> Iterator[LearnerRef]:
        """List every learner on the backend, of all homes, for ``fabric gc``; nothing where it cannot know."""
        return iter(())


Seen = LearnerStatus
"""The former name of :class:`LearnerStatus`, for runners that import it."""

Plan = LaunchPlan
"""The former name of :class:`LaunchPlan`, for runners that import it."""

Progress = LaunchProgress
"""The former name of :class:`LaunchProgress`, for runners that import it."""
