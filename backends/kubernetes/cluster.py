"""One namespace of a Kubernetes cluster: its objects as plain documents, watches, logs and commands."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from backends.contract.cluster import (
    Absent,
    Cluster,
    ClusterStream,
    Conflict,
    Denied,
    Document,
    Listing,
    Log,
    LoginRejected,
    PatchType,
    Propagation,
    Watch,
)
from backends.kubernetes.api import Api, Query, Request
from backends.kubernetes.auth import Login
from backends.kubernetes.kubeconfig import Access
from backends.kubernetes.rbac import AccessReview, ResourceAccess
from backends.kubernetes.resources import GROUPS, NAMES, SERVED, ResourceKind, kind_of, kind_of_document
from backends.kubernetes.watch import ApiLog, ApiWatch
from workbench.errors import BackendError

PAGE: Final = 500
"""Objects in one page of a list; larger pages cost the API server memory."""

WATCH_GRACE_SECONDS: Final = 15.0
"""How much later than asked a server may end a watch before it is closed here."""

_LISTED: Final = frozenset({"Job", "Pod"})
"""Kinds that are read by a list of one, which needs no right besides the one that their watch needs."""

Stream = TypeVar("Stream")

_PATCHES: Final[Mapping[str, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class KubernetesCluster(Cluster):
    """See :class:`backends.contract.cluster.Cluster`."""

    def __init__(
        self, access: Access, options: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self.access = access
        self.namespace = access.namespace
        self.address = access.address
        self.options = options
        self._login = Login(access, environment or {})
        self._api = Api(self._login, access.address)
        self._lock = threading.Lock()
        self._version: tuple[int, int] | None = None
        self._review = AccessReview(self._api, self.namespace)
        self._served: dict[str, str] = {}
        """The version of each group that was found to be served."""
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def server(self) -> str:
        """The API's address."""
        return self._api.server

    @property
    def verified(self) -> bool:
        """Whether the server's certificate is checked."""
        return bool(self._login.credentials().configuration.verify_ssl)

    @property
    def version(self) -> tuple[int, int]:
        """The API's version."""
        if self._version is None:
            self._version = _numbers(self.version_document())
        return self._version

    def version_document(self, *, patience_seconds: float = 0.0) -> Document:
        """Return the API's version document; also used to check that the API answers."""
        request = Request("GET", "/version", "say its version", patience_seconds=patience_seconds)
        return self._api.call(request)

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """Create an object, or only check it."""
        kind = kind_of_document(document)
        name = str(document.get("metadata", {}).get("name") or "")
        what = f"create {kind.name} {name}".rstrip()
        path = kind.path(self.namespace)
        query = [("dryRun", "All")] if dry_run else []
        return self._api.call(Request("POST", path, what, query, document, creates=True))

    def read(self, kind: str, name: str) -> Document | None:
        """Return an object, None if it does not exist."""
        known = self._kind(kind)
        if kind in _LISTED:
            found = self._listed(known, known.path(self.namespace), "", f"metadata.name={name}").items
            return found[0] if found else None
        try:
            return self._api.call(
                Request("GET", known.path(self.namespace, name), f"read {known.name} {name}")
            )
        except Absent:
            return None

    def list(self, kind: str, selector: str = "", *, fields: str = "") -> Listing:
        """Return all objects that match the selectors; pages are of one version."""
        known = self._kind(kind)
        return self._listed(known, known.path(self.namespace), selector, fields)

    def list_everywhere(self, kind: str) -> tuple[Document, ...]:
        """Return all objects of a kind in all namespaces; few users have the right."""
        known = self._kind(kind)
        return self._listed(known, known.path_everywhere, "", "").items

    def _kind(self, name: str) -> ResourceKind:
        """Return a kind in the version that this cluster serves.

        Raises:
            Absent: the cluster does not serve its group; the hint says so.
        """
        kind = kind_of(name)
        if kind.group not in SERVED:
            return kind
        if kind.group not in self._served:
            self._served[kind.group] = self._discover(kind.group)
        return dataclasses.replace(kind, version=self._served[kind.group])

    def _discover(self, group: str) -> str:
        """Return the best version of a group that is served and understood."""
        try:
            found = self._api.call(Request("GET", f"/apis/{group}", f"say which {NAMES[group]} it serves"))
        except Absent as error:
            raise Absent(
                f"The cluster has no {NAMES[group]}.", hint=f"It serves nothing of {group}."
            ) from error
        versions = [str(one.get("version")) for one in found.get("versions") or ()]
        for version in SERVED[group]:
            if version in versions:
                return version
        raise Absent(
            f"The cluster's {NAMES[group]} serves {', '.join(versions) or 'no version'} of its API.",
            hint=f"{' and '.join(SERVED[group])} are understood here.",
        )

    def _listed(self, known: ResourceKind, path: str, selector: str, fields: str) -> Listing:
        query = [("limit", str(PAGE)), *_selectors(selector, fields)]
        items: list[Document] = []
        continue_token = ""
        while True:
            page_query = [*query, *([("continue", continue_token)] if continue_token else [])]
            page = self._api.call(Request("GET", path, f"list {known.plural}", query=page_query))
            named = {"apiVersion": known.api_version, "kind": known.name}
            items.extend({**named, **item} for item in page.get("items") or ())
            metadata = page.get("metadata") or {}
            continue_token = str(metadata.get("continue") or "")
            if not continue_token:
                return Listing(tuple(items), str(metadata.get("resourceVersion") or ""))

    def patch(
        self, kind: str, name: str, document: Any, *, type: PatchType = "merge", subresource: str = ""
    ) -> Document:
        """Change an object."""
        known = self._kind(kind)
        path = known.path(self.namespace, name, subresource)
        query = [("fieldManager", "fabric"), ("force", "true")] if type == "apply" else []
        request = Request(
            "PATCH", path, f"change {known.name} {name}", query, document, content_type=_PATCHES[type]
        )
        return self._api.call(request)

    def replace(self, document: Document) -> Document:
        """Replace the object of the same name."""
        kind = kind_of_document(document)
        name = str(document["metadata"]["name"])
        path = kind.path(self.namespace, name)
        return self._api.call(Request("PUT", path, f"replace {kind.name} {name}", body=document))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
        uid: str = "",
    ) -> bool:
        """Request the deletion of an object."""
        known = self._kind(kind)
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            path = known.path(self.namespace, name)
            self._api.call(Request("DELETE", path, f"delete {known.name} {name}", body=body))
        except Absent as error:
            return self._absent(error)
        except Conflict:
            if uid:  # another object has the name now
                return False
            raise
        return True

    def watch(
        self, kind: str, selector: str, version: str, *, timeout_seconds: float, fields: str = ""
    ) -> Watch:
        """Watch a kind from a version on."""
        known = self._kind(kind)
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(max(1, round(timeout_seconds)))),
            *_selectors(selector, fields),
        ]
        request = Request("GET", known.path(self.namespace), f"watch {known.plural}", query)
        response = self._api.stream(request, silent_seconds=timeout_seconds + WATCH_GRACE_SECONDS)
        return self._opened(ApiWatch(response, known, version, self._api.describe_call(request)))

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
        """Read what the cluster has kept of a container's log."""
        query = [("container", container)]
        query += [("follow", "true")] if follow else []
        query += [("sinceTime", since_time)] if since_time else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        query += [("timestamps", "true")] if timestamps else []
        query += [("previous", "true")] if previous else []
        path = kind_of("Pod").path(self.namespace, pod, "log")
        request = Request("GET", path, f"read the log of pod {pod}", query)
        response = self._api.stream(request, silent_seconds=None if follow else 60.0)
        return self._opened(ApiLog(response, self._api.describe_call(request)))

    def exec(
        self, pod: str, container: str, argv: Sequence[str], *, stdin: bool = False, terminal: bool = False
    ) -> ClusterStream:
        """Start a command in a running container."""
        from backends.kubernetes.exec import start

        query: Query = [
            ("container", container),
            ("stdout", "true"),
            ("stderr", "false" if terminal else "true"),
            ("stdin", "true" if stdin else "false"),
            ("tty", "true" if terminal else "false"),
            *(("command", word) for word in argv),
        ]
        path = kind_of("Pod").path(self.namespace, pod, "exec")
        call = self._api.describe_call(Request("GET", path, f"run a command in pod {pod}"))
        credentials = self._login.credentials()
        try:
            stream = start(credentials, path, query, call)
        except LoginRejected:
            renewed = self._login.renew(credentials)
            if renewed is None:
                raise
            stream = start(renewed, path, query, call)
        except Denied as error:
            if self._api.is_ready() is False:
                raise self._api.starting(error) from error
            stream = start(credentials, path, query, call)
        return self._opened(stream)

    def may(self, verb: str, resource: str, subresource: str = "", *, group: str = "") -> bool:
        """Return whether the user may do this in the namespace; only a right that is granted is kept, for a minute."""
        return self.may_anywhere(verb, resource, subresource, group=group, namespace=self.namespace)

    def may_anywhere(
        self, verb: str, resource: str, subresource: str = "", *, group: str = "", namespace: str = ""
    ) -> bool:
        """Return whether the user may do this in a namespace, or without one in the whole cluster."""
        group = group or GROUPS.get(resource, "")
        return self._review.may(ResourceAccess(verb, resource, subresource, group, namespace))

    def close(self) -> None:
        """Close all connections, watches and logs."""
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.close()
        self._api.close()

    def _opened(self, stream: Stream) -> Stream:
        with self._lock:
            self._streams.add(stream)
        return stream

    @staticmethod
    def _absent(error: Absent) -> bool:
        if error.hint:  # the namespace itself
            raise error
        return False


def _selectors(labels: str, fields: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value]


def _numbers(document: Document) -> tuple[int, int]:
    """Read ``1`` and ``34``; some providers write ``34+``."""
    try:
        major, minor = (int("".join(filter(str.isdigit, str(document[key])))) for key in ("major", "minor"))
    except (KeyError, ValueError) as error:
        raise BackendError(f"The cluster does not report its version: {dict(document)}.") from error
    return major, minor
