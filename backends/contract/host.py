"""The contract of backends: ``Backend``, and the two kinds of connection that it opens: ``Host`` and ``Cluster``.

A backend is loaded by name through the entry points ``fabric.backends``; the built-in ones register there too.
Methods raise :class:`workbench.errors.BackendError`, :class:`workbench.errors.BackendUnreachable` or another
FabricError, never an exception of a library.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, BinaryIO, ClassVar, Final, Literal, Protocol

from backends.contract.cluster import Cluster as Cluster
from workbench.clock import now_us
from workbench.errors import ConfigError, FabricError
from workbench.learner.platform.files import CHUNK_BYTES
from workbench.values import dataclass

Level = Literal["ok", "lack", "wrong"]

BUSY_PERCENT: Final = 10.0
BUSY_BYTES: Final = 1 << 30
"""A GPU that is used more than this, or of which more memory is, is in use, though no process of it can be seen."""

SKEW_SECONDS: Final = 5.0
"""A clock that differs from ours by no more than this is as good as right."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a probe's report."""

    subject: str
    """``python``, ``gpu``, ``engine``, ``disk``, ..."""
    found: str
    level: Level = "ok"
    consequence: str = ""
    """What does not work because of it; empty for level ``ok``."""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A GPU or MIG slice that a learner can get, with its use when the inventory was taken."""

    uuid: str
    """The UUID of the GPU or MIG slice."""
    index: int
    model: str
    memory_bytes: int
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    holder: str = ""
    """Who holds its lease, for messages: ``ada@laptop``, or ``lab (ada@laptop)`` with the host's account; empty if it
    is not leased."""
    holder_job: str = ""
    """The id of the job that holds it, or empty."""
    foreign: str = ""
    """The process that uses it without a lease, for messages; empty if there is none."""
    held_since_us: int | None = None
    """When its lease was taken, by the host's clock; None if it is not leased."""
    idle: bool | None = None
    """Whether it is leased and nothing used it when the inventory was taken: its use is 0 %, and no process computes on
    it. None if it is not leased, or where that is not known."""
    holder_name: str = ""
    """The name of the job that holds it, where its person shares it."""

    @property
    def free(self) -> bool:
        """Whether a learner can get it now."""
        return not self.holder and not self.foreign

    @property
    def holder_person(self) -> str:
        """Who holds its lease, without the machine: ``ada``, ``lab (ada)``."""
        person = self.holder.partition("@")[0]
        return person + ")" * (person.count("(") - person.count(")"))

    @property
    def is_used_unseen(self) -> bool:
        """Whether somebody uses it who cannot be seen; a learner can get it, as nobody is known to hold it."""
        is_used = (self.utilization_percent or 0.0) >= BUSY_PERCENT
        return self.free and (is_used or (self.memory_used_bytes or 0) >= BUSY_BYTES)


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a backend."""

    name: str
    cpus: int
    memory_bytes: int
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    slots: tuple[Slot, ...] = ()
    driver: str = ""
    """GPU driver and CUDA versions, or why there is no driver."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The machines of a backend with their resources, at ``time_us``."""

    nodes: tuple[Node, ...]
    time_us: int
    note: str = ""
    """What could not be read, for people; empty if nothing is missing."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Identifies a machine and its boot: the same machine is recognised, and a reboot is noticed."""

    machine_id: str
    boot_id: str
    hostname: str
    user: str
    system: str
    """``Linux`` or ``Darwin``."""
    architecture: str
    python: str
    """The path of the interpreter that runs the agent; empty for a host without Python."""
    clock_skew_seconds: float = 0.0
    """Its clock minus this machine's."""

    @classmethod
    def from_reply(cls, found: Mapping[str, Any], now: float) -> HostIdentity:
        """Build it from the reply to the operation ``identity``.

        Args:
            found: the fields, and the host's clock as ``now_us``.
            now: this machine's clock at that instant, in seconds since 1970.
        """
        known = {name: value for name, value in found.items() if name != "now_us"}
        return cls(**known, clock_skew_seconds=found["now_us"] / 1e6 - now)


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command that ran to its end."""

    exit_code: int
    """128 + n for signal n."""
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of a file from an offset, and the end of what can be read of the file."""

    data: bytes
    offset: int
    end: int
    """How far the file could be read at that time; more than offset and data if the read was limited."""


class Lock(Protocol):
    """Lock files on a host, held for this side of the connection until they are handed over or released."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the lock files that are held."""

    def part(self, names: Sequence[str]) -> Lock:
        """Split off a lock of some of these names, so that each process can inherit its own."""

    def write(self, text: str) -> None:
        """Replace the text in the files, which names the holder."""

    def release(self) -> None:
        """Release the locks; what a spawned process inherited stays locked. May be repeated."""


class HostStream(Protocol):
    """An interactive command on a host."""

    def read(self) -> tuple[int, bytes] | None:
        """Wait for output; return 1 (stdout) or 2 (stderr) and some bytes, None once the command has ended."""

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""

    def close_input(self) -> None:
        """Close its standard input."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""

    def wait(self) -> int:
        """Return its exit code (128 + n for signal n), once :meth:`read` has returned None."""

    def close(self) -> None:
        """Release it; a command that still runs is ended."""


EarlyBytes = Callable[[str, str, memoryview, int], None]
"""Takes a piece of a learner's log: the learner's folder, ``output`` or ``setup``, the bytes, and their offset."""


class Host(ABC):
    """A machine that runs processes and stores files, over an open connection. Runners work with nothing else.

    Paths are absolute paths of the host. Commands are argument lists, never shell text. Every call has a
    deadline and raises :class:`~workbench.errors.BackendUnreachable` when it passes. Calls may be made from
    several threads at once.
    """

    here: ClassVar[bool] = False
    """Whether the host is this machine and :meth:`folder` the home itself; journals are then not mirrored."""

    secrets_at_host: bool = False
    """Whether values of secrets may lie on its disk while a job waits there for its turn."""

    share_names: bool = False
    """Whether others there may read the names of this person's jobs that hold GPUs, or wait for them."""

    internal_address: str = ""
    """The address by which other hosts reach it, as the user says; empty where the user does not."""

    reached_at: str = ""
    """The name or address by which we reach it; empty for this machine."""

    _clock_ahead_us: int | None = None
    """How far its clock is ahead of ours; None before it was compared."""

    @property
    def lost(self) -> bool:
        """Whether the connection has ended; the backend must be opened again."""
        return False

    @abstractmethod
    def identity(self) -> HostIdentity:
        """Return which machine this is."""

    def compare_clock(self, host_us: int, begun_us: int) -> None:
        """Compare its clock with ours, by its time in an answer that has just come.

        What is known of it stays where no more than :data:`SKEW_SECONDS` and the time of the answer lie between: what
        was handed over by it would change with each answer.

        Args:
            host_us: its time.
            begun_us: when it was asked, by our clock.
        """
        if self.here:
            return
        ended_us = now_us()
        ahead_us = host_us - (begun_us + ended_us) // 2
        little_us = int(SKEW_SECONDS * 1e6) + (ended_us - begun_us) // 2
        known_us = self._clock_ahead_us
        if known_us is None or abs(ahead_us - known_us) > little_us:
            self._clock_ahead_us = ahead_us if abs(ahead_us) > little_us else 0

    def clock_ahead_us(self) -> int:
        """Return how far its clock is ahead of ours, 0 where it is as good as right; who asks first asks the host."""
        if self.here:
            return 0
        if self._clock_ahead_us is None:
            begun_us = now_us()
            self.compare_clock(int(self.call("identity")["now_us"]), begun_us)
        return self._clock_ahead_us or 0

    @abstractmethod
    def folder(self, home_uuid: str) -> str:
        """Return the folder on the host with the jobs, code, environments and agents of a home; it may not exist."""

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
        """Run a command to its end.

        Raises:
            BackendError: the deadline has passed; every process of its session was killed.
        """

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
        """Start a process in its own session, which outlives the connection; return its pid.

        Its output is appended to the file ``output``. It inherits the descriptors of the locks in
        ``holding``, so that a lease is never free between this side and the process.
        """

    @abstractmethod
    def put(
        self, stream: BinaryIO, path: str, *, sha256: str = "", mode: int = 0o600, within: str = ""
    ) -> None:
        """Write a file atomically (temporary name, fsync, rename); missing folders are created with mode 0700.

        With a ``sha256`` the upload is resumable, and a file that has that content already is not sent.
        ``within`` names a parent folder that the job can change: symbolic links must not lead out of it.
        """

    @abstractmethod
    def read(self, offsets: Mapping[str, int], *, limit_bytes: int = 1 << 20) -> Mapping[str, Chunk]:
        """Read files from these offsets on, at most ``limit_bytes`` of each; missing files are left out.

        A journal's ``output.log`` is read to the end that its index has published, other files to their last
        complete line.
        """

    @abstractmethod
    def follow(
        self,
        subscriber: str,
        known: Mapping[str, Mapping[str, int]],
        *,
        timeout_seconds: float,
        early: EarlyBytes | None = None,
    ) -> Mapping[str, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content, and return it by folder and file.

        Args:
            subscriber: an id of the caller; the operation ``interrupt_follow`` ends the call of a subscriber early.
            known: what is read already, by folder: the offset of each file by its name in
                ``workbench.learner.host.journals.FILES`` (left out: 0), and as ``state`` the checksum of the state.
            timeout_seconds: how long to wait for new content.
            early: called with pieces of logs while the reply still arrives; the chunk that is returned then
                begins where the last piece ended.
        """

    @abstractmethod
    def fetch(
        self, folder: str, paths: Sequence[str], receive: Callable[[BinaryIO], None], *, within: str = ""
    ) -> None:
        """Send files of a folder as one tar stream to ``receive``, which reads it to its end.

        ``within`` as for :meth:`put`.
        """

    @abstractmethod
    def watch(self, paths: Sequence[str], *, timeout_seconds: float) -> Sequence[str]:
        """Wait until one of these files changes or appears; return the changed ones, none after the timeout."""

    @abstractmethod
    def lock(self, names: Sequence[str], *, folder: str, text: str) -> Lock | None:
        """Lock all of these files in a folder on the host, without waiting; None if one of them is taken.

        ``text`` is written into each file, so that others see who holds it.
        """

    @abstractmethod
    def call(self, operation: str, **arguments: Any) -> Any:
        """Call an operation of ``workbench.learner.host.operations`` by name; arguments and result are JSON values.

        Examples: create, unpack and remove folders, list processes by their marker, take the inventory of GPUs.
        An operation is one function of the agent, the same for every kind of host.
        """

    def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, terminal: bool
    ) -> HostStream | None:
        """Start an interactive command, on a terminal if asked for; None if this host cannot run one."""
        return None

    @abstractmethod
    def connect(self, path: str) -> socket.socket:
        """Connect to a unix socket on the host, e.g. of a container engine."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection and release its locks; spawned processes continue."""


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Open connections to several hosts."""

    hosts: Mapping[str, Host]
    """By the names of their backends, in the user's order: the first learners are at the first."""

    @property
    def lost(self) -> bool:
        """Whether the connection to one of them has ended; the backend must be opened again."""
        return any(host.lost for host in self.hosts.values())

    def close(self) -> None:
        """Close all connections; spawned processes continue."""
        for host in self.hosts.values():
            with contextlib.suppress(FabricError):
                host.close()


class FrozenTarget(Protocol):
    """Where a job goes, as the store keeps it."""

    @property
    def backend(self) -> str:
        """The backend's name."""

    @property
    def type(self) -> str:
        """The entry point's name."""

    @property
    def address(self) -> str:
        """The backend's address."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The backend's settings."""


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """A backend of the configuration: its name, type, address and settings."""

    name: str
    type: str
    """The entry point's name: ``local``, ``ssh``, ``kubernetes``."""
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, target: FrozenTarget) -> BackendOptions:
        """Return those that a job's target has kept of its backend."""
        return cls(target.backend, target.type, target.address, target.options)


def check_flag(options: BackendOptions, name: str) -> None:
    """Accept a setting that is true or false, or is not there.

    Raises:
        ConfigError: it is neither.
    """
    if str(options.options.get(name, False)).lower() not in ("true", "false"):
        raise ConfigError(f"{name} of {options.name} must be true or false")


def is_set(settings: Mapping[str, Any], name: str) -> bool:
    """Say whether a setting that is true or false is true."""
    return str(settings.get(name)).lower() == "true"


_ADDRESS: Final = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)?(?:%\w+)?"


def check_address(options: BackendOptions) -> None:
    """Accept the setting ``internal_address``, a name or an IP address, or its absence.

    Raises:
        ConfigError: it is neither.
    """
    address = options.options.get(INTERNAL_ADDRESS, "")
    if not isinstance(address, str) or not re.fullmatch(_ADDRESS, address):
        raise ConfigError(
            f"{INTERNAL_ADDRESS} of {options.name} is {address!r}, no address",
            hint="a name or an IP address, such as 10.0.0.5, without a port",
        )


INTERNAL_ADDRESS: Final = "internal_address"
"""The setting of a host with the address by which the other hosts of a job reach it."""

SHARE_NAMES: Final = "share_names"
"""The setting of a host with which others there may read the names of this person's jobs."""


class Ask(Protocol):
    """Asks a person whether an unknown host or cluster is the right one."""

    def __call__(self, what: str, fingerprint: str) -> bool:
        """Show what it is and the fingerprint of its key; return whether it was accepted."""


class Backend(ABC):
    """A configured backend. Making one connects to nothing; its methods do."""

    type: ClassVar[str]
    opens: ClassVar[Literal["host", "cluster", "hosts"]] = "host"
    """What :meth:`open` gives: any runner whose ``capabilities.needs`` is this works there."""

    def __init__(self, options: BackendOptions) -> None:
        self.options = options

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.options.name

    def introduce(self, ask: Ask) -> None:
        """Connect for the first time; ``ask`` confirms the key of a host that is not known yet."""

    @abstractmethod
    def probe(self) -> Iterator[Finding]:
        """Check the backend; each problem is yielded with its consequence and remedy."""

    @abstractmethod
    def inventory(self) -> Inventory:
        """Return the machines and GPUs of the backend, and who uses them."""

    def inventory_of(self, opened: Host | Cluster | HostGroup) -> Inventory:
        """Return the inventory over a connection that is open already."""
        return self.inventory()

    @abstractmethod
    def open(self) -> Host | Cluster | HostGroup:
        """Connect to the backend."""

    def frozen(self, runner: str) -> BackendOptions:
        """Return the options that a job of this runner stores, with values of the submit's environment filled in."""
        return self.options

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options, checked and with defaults, where a backend checks them."""
        return self.options.options

    def runners(self) -> Sequence[str]:
        """Return the names of the runners that it knows, the preferred one first; nothing is checked.

        A job that names no runner gets the first of these that works. Every other runner that needs what this
        backend :attr:`opens` is used where a job names it, or where this backend prefers none.
        """
        return ()

    def runner_named(self, name: str) -> str:
        """Return the runner here that a person means who names one; another name where it has a variant of its own."""
        return name

    def why_not(self, runner: str) -> FabricError | None:
        """Return why a runner cannot be used now, None if it can, or if this backend does not know it.

        If the user named the runner, the error refuses the submit; otherwise the next runner is tried.
        """
        return None

    def session_options(self) -> BackendOptions | None:
        """Return the options of the connection that the controller opens at a login and shares with clients.

        For backends whose login is valid for that one connection only. None if it is enough that the
        controller caches the answers.
        """
        return None

    def discover(self, opened: Host | Cluster | HostGroup) -> None:
        """Cache the facts of an open backend that a submit needs, so that a submit need not connect."""

    def why_not_gpus(self, count: int) -> FabricError | None:
        """Return why no job can ever get so many GPUs here, None if one can or if that is not known."""
        return None

    def why_not_learners(self, learners: int, gpus: int) -> FabricError | None:
        """Return why so many learners, each with so many GPUs, can never run here; None if they can, or nobody knows.

        A :class:`UsageError` says that it is not what is there: the words of the job and the backend do not fit.
        """
        return self.why_not_gpus(learners * gpus) if gpus else None

    def gpu_count(self) -> int | None:
        """Return how many GPUs there are in all, None if that is not known now."""
        return None

    def gpus_of_largest_machine(self) -> int | None:
        """Return how many GPUs the machine with the most has, None if that is not known now."""
        return None


def skip(stream: BinaryIO, count: int) -> None:
    """Skip the next ``count`` bytes of a stream, also of one that cannot seek."""
    if stream.seekable():
        stream.seek(count, os.SEEK_CUR)
        return
    while count > 0 and (data := stream.read(min(count, CHUNK_BYTES))):
        count -= len(data)
