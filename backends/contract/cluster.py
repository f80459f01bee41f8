"""The contract of clusters: the API of one namespace; its objects are plain JSON documents.

Documents are as the API has them (``camelCase``, each with ``apiVersion`` and ``kind``). Temporary failures
(no connection, 429, 5xx, expired credentials) are retried for a while and then raised as
:class:`~workbench.errors.BackendUnreachable` (:class:`LoginRejected` is one). A refusal is raised as one of the errors
below, with the API's message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from workbench.errors import BackendError, BackendUnreachable, NotAllowed, TryAgain
from workbench.values import dataclass

Document = Mapping[str, Any]


class LoginRejected(BackendUnreachable):
    """401: the cluster does not accept the credentials. Running pods continue; a new login is needed."""

    exit_code: int = NotAllowed.exit_code


class NodeUnreachable(BackendUnreachable):
    """The API answers, and cannot reach the node of a pod: no command can be run there now."""


class Denied(NotAllowed):
    """403: the user lacks a right in the namespace; the hint names the Role to ask for."""


class OverQuota(TryAgain):
    """403 by a ResourceQuota: the namespace has no room for the object now."""


class Absent(BackendError):
    """404: no such object or namespace."""


class AlreadyThere(BackendError):
    """409 at create: an object of that name exists."""


class Conflict(BackendError):
    """409: the object was changed meanwhile, or another object has its name (another uid)."""


class Invalid(BackendError):
    """400, 422, or refused by admission (Pod Security, a webhook): a retry cannot help."""


class Expired(BackendError):
    """410: the ``resourceVersion`` of a watch is too old; list again."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind that match a selector."""

    items: tuple[Document, ...]
    version: str
    """The list's ``resourceVersion``: where a watch continues."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    kind: str
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Document


class Watch(Iterator[Change], Protocol):
    """An iterator of changes as they happen; ends after its timeout or when it is closed."""

    @property
    def version(self) -> str:
        """The ``resourceVersion`` where the next watch continues; bookmarks move it without a change."""

    def close(self) -> None:
        """End the stream, from any thread; a blocked reader returns."""


class Log(Iterator[bytes], Protocol):
    """A container's log as it arrives; pieces may end within a line."""

    def close(self) -> None:
        """End the stream, from any thread; a blocked reader returns."""


class ClusterStream(Protocol):
    """A running command in a container. It may be read and written from different threads."""

    def read(self, timeout_seconds: float) -> tuple[bytes, bytes] | None:
        """Return new bytes of stdout and stderr, both empty after the timeout, None at the end.

        Raises:
            BackendUnreachable: the connection broke; the command may still run.
        """

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input; blocks while the command does not read."""

    def close_input(self) -> None:
        """Close its standard input; clusters before 1.30 cannot and do nothing, see ``ends_input``."""

    @property
    def ends_input(self) -> bool:
        """Whether the cluster can close the command's standard input."""

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""

    def wait(self) -> int:
        """Discard the rest of the output and return the exit code (128 + n for signal n).

        Raises:
            BackendUnreachable: the connection broke before the exit code was known.
            BackendError: the command could not be started.
        """

    def close(self) -> None:
        """Close the connection, from any thread; the command runs until it notices."""


PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

RETRY_SECONDS: Final = 20.0
"""How long a call is retried while the API is busy or does not answer."""


class Cluster(ABC):
    """One namespace of a cluster, as one user. Calls may be made from several threads at once.

    A kind is the API's name: Pod, Job, Service, Secret, ConfigMap, PersistentVolumeClaim, Event,
    ResourceQuota, LimitRange, ServiceAccount, LocalQueue, Workload; and outside of namespaces Node,
    Namespace, StorageClass, PriorityClass.
    """

    namespace: str
    address: str = ""
    """The backend's address as a user writes it, for hints."""
    options: Mapping[str, Any]
    """The backend's settings, checked, defaults filled in: see ``backends.kubernetes.options``."""

    @property
    @abstractmethod
    def version(self) -> tuple[int, int]:
        """The API's version, e.g. (1, 34); requested once."""

    @abstractmethod
    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create an object and return it as the API stored it; with ``dry_run`` it is only checked.

        Raises:
            AlreadyThere: an object of that name exists, perhaps from a first try whose answer was lost.
        """

    @abstractmethod
    def read(self, kind: str, name: str) -> Document | None:
        """Return an object, None if it does not exist."""

    @abstractmethod
    def list(self, kind: str, selector: str = "", *, fields: str = "") -> Listing:
        """Return all objects that match a label selector and a field selector."""

    @abstractmethod
    def patch(
        self, kind: str, name: str, document: Any, *, type: PatchType = "merge", subresource: str = ""
    ) -> Document:
        """Change an object; a JSON patch is a list of operations."""

    @abstractmethod
    def replace(self, document: Document) -> Document:
        """Replace the object of the same name; a ``resourceVersion`` in the document must match.

        Raises:
            Conflict: the object has changed since that version.
        """

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
        """Request the deletion of an object; return False if it does not exist or has another ``uid``.

        The call does not wait: :meth:`read` or a watch show when the object is removed.
        """

    @abstractmethod
    def watch(
        self, kind: str, selector: str, version: str, *, timeout_seconds: float, fields: str = ""
    ) -> Watch:
        """Watch a kind from a ``resourceVersion`` on.

        Raises:
            Expired: the version is too old; list again. May also be raised by the iterator.
            BackendUnreachable: no connection. May also be raised by the iterator.
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
        """Read what the cluster has kept of a container's log, by default its last 10 MiB.

        Raises:
            Invalid: the container has not started.
            Absent: the pod does not exist.
        """

    @abstractmethod
    def exec(
        self, pod: str, container: str, argv: Sequence[str], *, stdin: bool = False, terminal: bool = False
    ) -> ClusterStream:
        """Start a command in a running container; with a terminal its stderr arrives as stdout.

        Raises:
            Denied: the right to ``pods/exec`` is missing.
            NodeUnreachable: the API cannot reach the pod's node.
            Absent: the pod or container does not exist.
        """

    @abstractmethod
    def may(self, verb: str, resource: str, subresource: str = "", *, group: str = "") -> bool:
        """Return whether the user may do this in the namespace; ``resource`` is the plural: ``pods``, ``jobs``.

        The API group of kinds that fabric uses need not be given (``batch`` for ``jobs``). A right that is missing is
        asked for each time: it may have been granted since.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections; open watches and logs end."""
