"""The contract of places: what a backend must offer, and the two kinds of thing it opens: host, cluster.

A backend is loaded by name through the entry points ``fabric.backends``; ours register there too.
Everything here raises :class:`workbench.errors.BackendError`, :class:`workbench.errors.BackendUnreachable`
or another error of ours, never a foreign exception.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, Protocol

from backends.contract.cluster import Cluster as Cluster
from workbench.learner.platform.files import CHUNK_BYTES
from workbench.plugins import FormerNames

if TYPE_CHECKING:
    from workbench.errors import FabricError


Level = Literal["ok", "lack", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a probe found."""

    subject: str
    """``python``, ``gpu``, ``engine``, ``disk``, ..."""
    found: str
    level: Level = "ok"
    consequence: str = ""
    """What does not work because of it; empty when all is well."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One GPU that a learner can be given, by an opaque id, with its use at the time of asking."""

    uuid: str
    """A GPU's or MIG slice's UUID."""
    index: int
    model: str
    memory_bytes: int
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    holder: str = ""
    """Who holds its lease, in words (owner, job), or empty."""
    holder_job: str = ""
    """The id of the job that holds it, or empty."""
    foreign: str = ""
    """A process that is not ours and computes on it, in words, or empty."""

    @property
    def free(self) -> bool:
        """Whether a learner could be given it."""
        return not self.holder and not self.foreign


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a place."""

    name: str
    cpus: int
    memory_bytes: int
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    slots: tuple[Slot, ...] = ()
    driver: str = ""
    """GPU driver and CUDA versions, or why there are none."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a place has, at ``time_us``."""

    nodes: tuple[Node, ...]
    time_us: int
    note: str = ""
    """What could not be seen, in words."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Which machine this is, so that it is recognised again and a reboot is noticed."""

    machine_id: str
    boot_id: str
    hostname: str
    user: str
    system: str
    """``Linux`` or ``Darwin``."""
    architecture: str
    python: str
    """The interpreter that runs the agent there, a path; empty where there is none."""
    clock_skew_seconds: float = 0.0
    """Its clock minus ours."""

    @classmethod
    def told(cls, found: Mapping[str, Any], now: float) -> HostIdentity:
        """Make it of an agent's answer.

        Args:
            found: the fields, and the place's clock as ``now_us``.
            now: our clock at that instant, in seconds.
        """
        known = {name: value for name, value in found.items() if name != "now_us"}
        return cls(**known, clock_skew_seconds=found["now_us"] / 1e6 - now)


@dataclass(frozen=True, slots=True)
class Completed:
    """How a bounded command ended."""

    exit_code: int
    """128 + n for signal n."""
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a file from an offset, and how far the file is published."""

    data: bytes
    offset: int
    end: int
    """The published size of the file at the time of reading."""


class Lock(Protocol):
    """Locks held at a place by our side of the connection, until they are handed over or let go."""

    @property
    def names(self) -> Sequence[str]:
        """What is held."""

    def part(self, names: Sequence[str]) -> Lock:
        """Return a lock of some of these names, which leave this one: each process gets its own."""

    def write(self, text: str) -> None:
        """Say anew who holds them."""

    def release(self) -> None:
        """Let go; what a spawned process was handed stays held by it. Releasing again does nothing."""


class HostStream(Protocol):
    """A command at a place with somebody in front of it."""

    def read(self) -> tuple[int, bytes] | None:
        """Wait for output: 1 or 2 and some bytes; None once it has ended."""

    def write(self, data: bytes) -> None:
        """Give it input."""

    def close_input(self) -> None:
        """Say that no more input comes."""

    def resize(self, rows: int, columns: int) -> None:
        """Say how large the terminal is."""

    def wait(self) -> int:
        """Return its exit code (128 + n for signal n), once :meth:`read` has said that it ended."""

    def close(self) -> None:
        """Leave it; if it has not ended it is ended."""


EarlyBytes = Callable[[str, str, memoryview, int], None]
"""Takes some of a learner's ``output`` or ``setup``: its folder, which, the bytes and where they begin."""


class Host(ABC):
    """A machine that files can be put on and processes started on: the seam between runners and places.

    Paths are absolute at the place. Commands are argument lists, never shell text. Every call has a
    deadline and raises :class:`~workbench.errors.BackendUnreachable` when it passes. Calls may be made from
    several threads at once.
    """

    here: ClassVar[bool] = False
    """Whether the place is this machine and its folder the home itself: journals are read in place."""

    @property
    def lost(self) -> bool:
        """Whether the connection is gone for good: the place has to be opened anew."""
        return False

    @abstractmethod
    def identity(self) -> HostIdentity:
        """Say which machine this is."""

    @abstractmethod
    def folder(self, home_uuid: str) -> str:
        """Return the folder at the place that a home's jobs, code, environments and agents lie in."""

    @abstractmethod
    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        deadline_seconds: float = 30.0,
    ) -> Completed:
        """Run a command to its end; past the deadline its whole session is killed and BackendError raised."""

    @abstractmethod
    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        output: str,
        holding: Sequence[Lock] = (),
    ) -> int:
        """Start a process that outlives the connection, in its own session; return its pid.

        Its output is appended to a file. The open descriptors of ``holding`` are inherited, so a lease
        never has a gap between us and the process.
        """

    @abstractmethod
    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file, whole or not at all (temporary name, fsync, rename); its folders are made 0700.

        Resumable: with a ``sha256`` a file that is there already with that content is not sent again. ``within``
        names a folder above it whose content is a job's to change: no link leads out of it.
        """

    @abstractmethod
    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Read files from offsets on, at most ``limit_bytes`` each; a file that is not there yet is left out.

        For a journal's ``output.log`` the end is the published one of its index; for others the last
        complete line.
        """

    @abstractmethod
    def follow(
        self,
        asker: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Say what is new in the journals of learners, by folder, and wait until something is.

        ``known`` has the offset of each file that is not at its start, by the names of
        ``workbench.learner.host.journals.FILES``, and as ``state`` the checksum of the state that is known.
        The operation ``interrupt_follow`` makes an asker's call return early. What a log has may be given to ``early``
        by folder and name, piece by piece, while the rest is on its way; the answer then begins where that ended.
        """

    @abstractmethod
    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Have files of a folder sent as one tar stream, which ``receive`` reads to its end.

        ``within`` as for :meth:`put`.
        """

    @abstractmethod
    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Block until one of these files changes or appears, or the time is over; return the changed ones."""

    @abstractmethod
    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Take all of these lock files in a folder at the place, or none (then None), without waiting.

        ``text`` is written into each file that is taken, so that others see who holds it.
        """

    @abstractmethod
    def call(self, operation: str, **arguments: Any) -> Any:
        """Do one of the operations of ``workbench.learner.host.operations`` by name, with JSON values in and out.

        The rest of what is done at a place (make, unpack and remove folders, list processes by their
        marker, inventory of GPUs): one function there, the same over every host.
        """

    def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, terminal: bool
    ) -> HostStream | None:
        """Start a command whose streams are ours, on a terminal if wanted; None where none can be."""
        return None

    @abstractmethod
    def connect(self, path: str) -> socket.socket:
        """Open a stream to a unix socket at the place (a container engine)."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; spawned processes live on."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """A named backend as the configuration has it."""

    name: str
    type: str
    """The entry point's name: ``local``, ``ssh``, ``kubernetes``."""
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class Ask(Protocol):
    """Asks a person whether a place that is not known is the right one."""

    def __call__(self, what: str, fingerprint: str) -> bool:
        """Show what it is and the fingerprint of its key; return what was answered."""


class Backend(FormerNames, ABC):
    """A place. Cheap to make; nothing is reached before a method is called."""

    type: ClassVar[str]
    former_names: ClassVar[Mapping[str, str]] = {"kept_open": "session_options", "get_to_know": "discover"}
    """Backends may still define the methods by these names, and callers may still call them."""

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    @property
    def name(self) -> str:
        """The name that the user gave it."""
        return self.options.name

    def introduce(self, ask: Ask) -> None:
        """Reach the place for the first time, where a person can be asked whether it is the right one."""

    @abstractmethod
    def probe(self) -> Iterator[Finding]:
        """Say what is there, each lack with its consequence and remedy."""

    @abstractmethod
    def inventory(self) -> Inventory:
        """Say what the place has and who uses it."""

    def inventory_of(self, opened: Host | Cluster) -> Inventory:
        """Say what the place has, where it is open already."""
        return self.inventory()

    @abstractmethod
    def open(self) -> Host | Cluster:
        """Reach the place."""

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options as a job of this runner keeps them: with what only the environment of its submit says."""
        return self.options

    @abstractmethod
    def runners(self) -> Sequence[str]:
        """Name the runners that can work here, the preferred first, without looking whether they do now."""

    def why_not(self, runner: str) -> FabricError | None:
        """Say what keeps one of :meth:`runners` from working here now, None when nothing does.

        One that is named and cannot work now is refused before a job is made; one that nobody named is
        passed over.
        """
        return None

    def session_options(self) -> BackendOptions | None:
        """Return what the controller is to open where a person logs in, since a login serves that connection alone.

        None where it is enough that the controller holds the answers.
        """
        return None

    def discover(self, opened: Host | Cluster) -> None:
        """Remember of the place, which is open, what giving jobs to it takes."""

    def why_not_gpus(self, count: int) -> FabricError | None:
        """Say why a job can never be given so many GPUs here, None where it can, or where that is not known."""
        return None


def skip(stream: BinaryIO, count: int) -> None:
    """Pass over the first bytes of a stream, also of one that cannot seek."""
    if stream.seekable():
        stream.seek(count, os.SEEK_CUR)
        return
    while count > 0 and (data := stream.read(min(count, CHUNK_BYTES))):
        count -= len(data)
