"""The contract of clusters: an API that objects of one namespace are asked of, as plain JSON documents.

Documents are as the API has them (``camelCase``, ``apiVersion`` and ``kind`` in each). What heals by itself
(no connection, 429, 5xx, credentials that ran out) is tried again for a while and then raised as
:class:`~workbench.errors.BackendUnreachable` (:class:`LoginRejected` is one); what the API refuses is one of the errors
below, with the API's own sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol

from workbench.errors import BackendError, BackendUnreachable, NotAllowed, TryAgain

Document = Mapping[str, Any]


class LoginRejected(BackendUnreachable):
    """401: the cluster does not accept the credentials. What runs there goes on, and a new login heals it."""

    exit_code: ClassVar[int] = NotAllowed.exit_code


class Denied(NotAllowed):
    """403: the user lacks a right there; the hint names the Role to ask for."""


class OverQuota(TryAgain):
    """403 by a ResourceQuota: the namespace has no room for the object now."""


class Absent(BackendError):
    """404: no such object or namespace."""


class AlreadyThere(BackendError):
    """409 at create: an object of that name is there."""


class Conflict(BackendError):
    """409: the object was changed or is not the one that was meant (another uid)."""


class Invalid(BackendError):
    """400, 422, or an admission's refusal (Pod Security, a webhook): it cannot work however often it is tried."""


class Expired(BackendError):
    """410: the version that a watch was to go on from is too old; list anew."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind that a selector fits."""

    items: tuple[Document, ...]
    version: str
    """The list's ``resourceVersion``: a watch goes on from it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch saw."""

    kind: str
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Document


class Watch(Iterator[Change], Protocol):
    """Changes as they happen; ends when its time is over or it is closed."""

    @property
    def version(self) -> str:
        """From where the next watch goes on; moves also when nothing changed that the selector fits."""

    def close(self) -> None:
        """End it, from any thread; a blocked reader returns."""


class Log(Iterator[bytes], Protocol):
    """A container's log as it comes, in pieces that end anywhere."""

    def close(self) -> None:
        """End it, from any thread; a blocked reader returns."""


class ClusterStream(Protocol):
    """A command that runs in a container. Reading and writing may be in different threads."""

    def read(self, timeout_seconds: float) -> tuple[bytes, bytes] | None:
        """Return what came on stdout and stderr, both empty when the time is over, None at the end.

        Raises:
            BackendUnreachable: the connection broke; whether the command ended is not known.
        """

    def write(self, data: bytes) -> None:
        """Send to its standard input; blocks while the other side does not read."""

    def close_input(self) -> None:
        """End its standard input, where the cluster can (1.30 on); else nothing happens, see ``ends_input``."""

    @property
    def ends_input(self) -> bool:
        """Whether the cluster can be told that the input ended."""

    def resize(self, rows: int, columns: int) -> None:
        """Say how large the terminal is now."""

    def wait(self) -> int:
        """Drop what still comes, and return its exit code (128 + n for signal n).

        Raises:
            BackendUnreachable: the connection broke before it was known.
            BackendError: it could not be started.
        """

    def close(self) -> None:
        """Leave it; the command goes on until it notices. From any thread."""


PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

RETRY_SECONDS: Final = 20.0
"""How long a call is tried again while the API says that it is busy or does not answer."""


class Cluster(ABC):
    """One namespace of a cluster, as one user. Calls may be made from several threads at once.

    A kind is the API's name for it: Pod, Job, Service, Secret, ConfigMap, PersistentVolumeClaim, Event,
    ResourceQuota, LimitRange, ServiceAccount, LocalQueue, Workload; and without a namespace Node,
    Namespace, StorageClass, PriorityClass.
    """

    namespace: str
    options: Mapping[str, Any]
    """The backend's options, checked and with their defaults: see ``backends.kubernetes.options``."""

    @property
    @abstractmethod
    def version(self) -> tuple[int, int]:
        """The API's version, asked once: (1, 34)."""

    @abstractmethod
    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create an object and return it as it is there, or as it would be: with ``dry_run`` nothing is made.

        Raises:
            AlreadyThere: an object of that name is there (also when a first try got through unheard).
        """

    @abstractmethod
    def read(self, kind: str, name: str) -> Document | None:
        """Return an object, None when there is none."""

    @abstractmethod
    def list(self, kind: str, selector: str = "", *, fields: str = "") -> Listing:
        """Return all objects that a label selector and a field selector fit."""

    @abstractmethod
    def patch(
        self, kind: str, name: str, document: Any, *, type: PatchType = "merge", subresource: str = ""
    ) -> Document:
        """Change an object; a JSON patch is a list of operations."""

    @abstractmethod
    def replace(self, document: Document) -> Document:
        """Put an object in the place of the one with its name; with its ``resourceVersion`` only of that one."""

    @abstractmethod
    def delete(
        self,
        kind: str,
        name: str,
        *,
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
        uid: str = "",
    ) -> bool:
        """Ask for an object's deletion; return False when there was none (or, with ``uid``, only another).

        That it is gone is seen by :meth:`read` or a watch.
        """

    @abstractmethod
    def watch(
        self, kind: str, selector: str, version: str, *, timeout_seconds: float, fields: str = ""
    ) -> Watch:
        """Follow a kind from a version on.

        Raises:
            Expired: the version is too old (also while it is read); list anew.
            BackendUnreachable: no connection (also while it is read).
        """

    @abstractmethod
    def logs(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since_time: str = "",
        tail_lines: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> Log:
        """Read a container's log as the cluster has it: at most its newest files, 10 MiB unless set otherwise there.

        Raises:
            Invalid: the container has not started.
            Absent: there is no such pod.
        """

    @abstractmethod
    def exec(
        self, pod: str, container: str, argv: Sequence[str], *, stdin: bool = False, terminal: bool = False
    ) -> ClusterStream:
        """Start a command in a container that runs; with a terminal all that it prints comes as stdout.

        Raises:
            Denied: the right to ``pods/exec`` is missing.
            Absent: there is no such pod or container.
        """

    @abstractmethod
    def may(self, verb: str, resource: str, subresource: str = "", *, group: str = "") -> bool:
        """Say whether the user may do this in the namespace; ``resource`` is the plural: ``pods``, ``jobs``.

        The group of ours (``batch`` for ``jobs``) is known. Asked once each, and remembered.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back; watches and logs end."""
