"""Converts refusals of the API and failures of the network to fabric's errors."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from backends.contract.cluster import (
    Absent,
    AlreadyThere,
    Conflict,
    Denied,
    Expired,
    Invalid,
    LoginRejected,
    NodeUnreachable,
    OverQuota,
)
from backends.kubernetes.certificates import day_of, server_certificate_end
from workbench.errors import BackendError, BackendUnreachable, ConfigError, FabricError, NotAllowed
from workbench.values import dataclass

BUSY: Final = frozenset({429, 500, 502, 503, 504})
"""Status codes of temporary failures."""

_LACKS_RIGHT: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NODE_AWAY: Final = re.compile(r"error dialing backend|proxy error from|:10250\b")
"""In messages about a node's kubelet; its usual port is 10250."""

_NO_NAMESPACE: Final = re.compile(r'namespaces "(?P<name>[^"]*)" not found')


@dataclass(frozen=True, slots=True)
class ApiCall:
    """What a call does and where, for error messages."""

    server: str
    address: str
    """The backend's address as a user writes it: ``k8s://context/namespace``."""
    what: str
    """What the call does: ``create pods``, ``read jobs x``."""
    creates: bool = False


def refusal(call: ApiCall, status: int, body: bytes) -> FabricError:
    """Return the error for a response with an error status."""
    status_document = _status_document(body)
    message = _sentence(str(status_document.get("message") or "")) or _plain(body) or f"HTTP status {status}"
    reason = str(status_document.get("reason") or "")
    if status == 401:
        return LoginRejected(
            f"The cluster at {call.server} does not accept your credentials.",
            hint="Log in to it again (kubectl get pods shows whether that worked).",
        )
    if status == 403:
        return _forbidden(call, message)
    if missing := _NO_NAMESPACE.search(message):
        return Absent(
            f"There is no namespace {missing['name']} at {call.server}.",
            hint="kubectl get namespaces lists them; k8s://CONTEXT/NAMESPACE or --namespace names one.",
        )
    if status in BUSY:
        kind = NodeUnreachable if _NODE_AWAY.search(message) else BackendUnreachable
        return kind(f"The cluster at {call.server} cannot {call.what} now: {message}.")
    text = f"The cluster refuses to {call.what}: {message}."
    if status == 404:
        return Absent(text)
    if status == 409:
        is_there = call.creates and reason == "AlreadyExists"
        return AlreadyThere(text) if is_there else Conflict(text)
    if status == 410:
        return Expired(text)
    if status in (400, 405, 413, 415, 422):
        return Invalid(text)
    return BackendError(text)


def of_status_event(call: ApiCall, document: Mapping[str, Any]) -> FabricError:
    """Return the error for a watch's event of type ``ERROR``."""
    return refusal(call, int(document.get("code") or 500), json.dumps(document).encode())


def no_answer(call: ApiCall, failure: Exception) -> FabricError:
    """Return the error for a call without a response."""
    import urllib3.exceptions as http

    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None and cause.verify_code in (_HAS_EXPIRED, _IS_NOT_YET_VALID):
        return _not_valid_now(call.server, cause.verify_message)
    if cause is not None:
        return NotAllowed(
            f"The certificate of {call.server} is not trusted: {cause.verify_message or cause.reason}.",
            hint="The cluster's certificate-authority in the kubeconfig must be the one that signed it.",
        )
    if isinstance(failure, http.ProxyError):
        return BackendUnreachable(
            f"The proxy for {call.server} refuses the connection: {failure.original_error}.",
            hint="It is the cluster's proxy-url in the kubeconfig, or HTTPS_PROXY.",
        )
    if isinstance(failure, http.LocationParseError | http.LocationValueError | http.URLSchemeUnknown):
        return ConfigError(f"{call.server} is not the address of a cluster: {_sentence(str(failure))}.")
    return BackendUnreachable(
        f"The cluster at {call.server} does not answer: {_short(failure)}.",
        hint="Is it up, and is this machine on its network (VPN)?",
    )


_IS_NOT_YET_VALID: Final = 9
_HAS_EXPIRED: Final = 10
"""OpenSSL's codes of what is wrong with a certificate."""


def _not_valid_now(server: str, message: str) -> NotAllowed:
    end = server_certificate_end(server)
    until = f"; it ends on {day_of(end)}" if end is not None else ""
    return NotAllowed(
        f"The certificate of {server} is not valid now: {message}{until}.",
        hint="Who runs the cluster renews it; if this machine's clock is wrong, set that.",
    )


def _short(failure: Exception) -> str:
    """Return a short text for a network failure."""
    import socket

    import urllib3.exceptions as http

    if isinstance(failure, http.NameResolutionError | socket.gaierror):
        return "its name is not known"
    if isinstance(failure, http.ConnectTimeoutError) and not isinstance(failure, http.NewConnectionError):
        return "no connection in time"
    if isinstance(failure, http.ReadTimeoutError | TimeoutError):
        return "no answer in time"
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    if isinstance(failure, http.ProtocolError):
        return "the connection broke"
    return _sentence(str(failure))


def _forbidden(call: ApiCall, message: str) -> FabricError:
    if denied := _LACKS_RIGHT.search(message):
        where = f" in the namespace {denied['namespace']}" if denied["namespace"] else ""
        return Denied(
            f"{denied['user']} may not {denied['verb']} {denied['resource']}{where} at {call.server}.",
            hint=f"fabric backend role {call.address} prints the Role to ask for.",
        )
    if "exceeded quota" in message:
        return OverQuota(
            f"The namespace's quota has no room: {message.partition('exceeded quota: ')[2] or message}."
        )
    if "violates PodSecurity" in message:
        return Invalid(
            f"The cluster's Pod Security refuses the pod: {message.partition('violates ')[2]}.",
            hint="The option run_as of the backend is restricted or image; restricted passes the strictest policy.",
        )
    if "unable to create new content" in message or "is being terminated" in message:
        return Invalid(f"The namespace is being deleted: {message}.")
    return Invalid(f"The cluster refuses to {call.what}: {message}.")


def _status_document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _plain(body: bytes) -> str:
    """Return the text of a proxy's or load balancer's answer if it is short and not HTML."""
    text = _sentence(body.decode(errors="replace"))
    return text if len(text) <= 200 and not text.startswith(("<", "{")) else ""


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
