"""Calls of the Kubernetes API over a pool of connections, with retries; refusals are raised as FabricError."""

from __future__ import annotations

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from backends.contract.cluster import RETRY_SECONDS, Denied
from backends.kubernetes.auth import Credentials, Login
from backends.kubernetes.errors import BUSY, ApiCall, no_answer, refusal
from workbench.clock import elapsed_seconds
from workbench.errors import BackendError, BackendUnreachable, ConfigError, FabricError
from workbench.values import dataclass
from workbench.version import VERSION

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
NO_CONNECTION_SECONDS: Final = 3.0
"""How long a call is retried if the server does not answer at all; callers retry later."""

STARTING_SECONDS: Final = 5.0
"""How long a refusal is doubted where the user may not ask whether the API server is ready."""

KEEPALIVE_SECONDS: Final = 5
DEAD_AFTER_SECONDS: Final = 25
"""After this time without an answer to keepalive probes, the kernel ends a connection."""

AGENT: Final = f"fabric/{VERSION}"
_CONNECTIONS: Final = 32

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """One call."""

    method: str
    path: str
    what: str
    """What the call does, for error messages: ``create pods``."""
    query: Query = ()
    body: Any = None
    content_type: str = "application/json"
    creates: bool = False
    patience_seconds: float = RETRY_SECONDS


class Api:
    """The API of one cluster as one user. Thread-safe."""

    def __init__(self, login: Login, address: str) -> None:
        self._login = login
        self._address = address
        self._lock = threading.Lock()
        self._pool: tuple[Credentials, Any] | None = None

    @property
    def server(self) -> str:
        """The API's address, for messages."""
        return self._login.credentials().server

    def call(self, request: Request) -> dict[str, Any]:
        """Make a call and return the document of the answer.

        Raises:
            BackendUnreachable: the API does not answer, or stays busy.
            FabricError: the API refuses the call; see :mod:`backends.contract.cluster`.
        """
        response = self._answered(request, stream=False)
        data: bytes = response.data
        try:
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise BackendError(
                f"The server at {self.server} is not a Kubernetes API.", hint="Check the kubeconfig's server."
            )
        return document

    def stream(self, request: Request, *, silent_seconds: float | None) -> Any:
        """Make a call whose answer is read as it arrives; return urllib3's response.

        Args:
            request: the call.
            silent_seconds: the longest time without bytes; None for no limit.
        """
        return self._answered(request, stream=True, silent_seconds=silent_seconds)

    @property
    def login(self) -> Login:
        """The credentials of the user."""
        return self._login

    def describe_call(self, request: Request) -> ApiCall:
        """Return what a request does, for error messages."""
        return ApiCall(self.server, self._address, request.what, request.creates)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            if self._pool is not None:
                self._pool[1].clear()

    def _answered(self, request: Request, *, stream: bool, silent_seconds: float | None = None) -> Any:
        """Return a successful response; retry while the API is busy, and renew credentials once refused."""
        retrying = _Retrying(request.patience_seconds)
        is_confirmed, doubted_at = False, 0.0
        while True:
            credentials, pool = self._connected()
            response = self._sent(request, credentials, pool, stream, silent_seconds)
            if isinstance(response, BackendUnreachable):
                retrying.wait(response, 0.0, most_seconds=NO_CONNECTION_SECONDS)
                continue
            if 200 <= response.status < 300:
                return response
            error = refusal(self.describe_call(request), response.status, response.data)
            if response.status == 401:
                if self._login.renew(credentials) is None:
                    raise credentials.rejected(error)
            elif response.status in BUSY:
                retrying.wait(error, _seconds(response.headers.get("Retry-After")))
            elif isinstance(error, Denied) and not is_confirmed:
                doubted_at = doubted_at or elapsed_seconds()
                ready = self.is_ready()
                is_hidden = ready is None and elapsed_seconds() >= doubted_at + STARTING_SECONDS
                is_confirmed = ready is True or is_hidden
                if not is_confirmed:
                    retrying.wait(self.starting(error), 0.0)
            else:
                raise error

    def is_ready(self) -> bool | None:
        """Return whether the API server knows all roles: one that has just started refuses everything for a while.

        None: it does not tell this user.
        """
        credentials, pool = self._connected()
        request = Request("GET", "/readyz", "say whether it is ready")
        response = self._sent(request, credentials, pool, False, None)
        if isinstance(response, BackendUnreachable) or response.status >= 500:
            return False
        return None if response.status in (401, 403) else True

    def starting(self, refused: FabricError) -> BackendUnreachable:
        """Return the error for a refusal by an API server that is not ready."""
        return BackendUnreachable(f"The cluster at {self.server} is starting: {refused.message}")

    def _sent(
        self,
        request: Request,
        credentials: Credentials,
        pool: Any,
        stream: bool,
        silent_seconds: float | None,
    ) -> Any:
        """Make a call once; return the response, or the error if no response came."""
        import urllib3

        body = request.body
        headers = {"accept": "application/json", "user-agent": AGENT, **credentials.headers()}
        if body is not None:
            headers["content-type"] = request.content_type
        try:
            return pool.urlopen(
                request.method,
                credentials.server + request.path + (f"?{urlencode(request.query)}" if request.query else ""),
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=not stream,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(
                    connect=CONNECT_SECONDS, read=silent_seconds if stream else ANSWER_SECONDS
                ),
            )
        except (urllib3.exceptions.HTTPError, OSError) as failure:
            error = no_answer(self.describe_call(request), failure)
            if isinstance(error, BackendUnreachable):
                return error
            raise error from failure

    def _connected(self) -> tuple[Credentials, Any]:
        """Return the current credentials and their pool of connections."""
        credentials = self._login.credentials()
        with self._lock:
            if self._pool is None or self._pool[0] is not credentials:
                if self._pool is not None:
                    self._pool[1].clear()
                self._pool = (credentials, _new_pool(credentials))
            return self._pool


class _Retrying:
    """Waits between retries until the patience of a call is used up."""

    def __init__(self, patience_seconds: float) -> None:
        self._since = elapsed_seconds()
        self._patience_seconds = patience_seconds
        self._next_seconds = 0.1

    def wait(self, error: FabricError, asked_seconds: float, *, most_seconds: float = 1e9) -> None:
        """Wait before the next try, at least as long as the server asks; raise the error after the deadline."""
        # A random part: many clients are asked to retry at the same time.
        delay = max(asked_seconds, self._next_seconds) * random.uniform(1.0, 1.3)
        self._next_seconds = min(self._next_seconds * 2, 3.0)
        spent = elapsed_seconds() - self._since
        if spent + delay > min(self._patience_seconds, most_seconds):
            raise error
        time.sleep(delay)


def _new_pool(credentials: Credentials) -> Any:
    import urllib3
    from kubernetes.client.rest import RESTClientObject

    configuration = credentials.configuration
    configuration.connection_pool_maxsize = _CONNECTIONS
    configuration.socket_options = [
        *urllib3.connection.HTTPConnection.default_socket_options,
        *socket_options(),
    ]
    if not configuration.verify_ssl:  # the probe reports it; urllib3 would warn at every call
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    # More open watches and logs than the pool keeps are not a reason for a warning.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    try:
        return RESTClientObject(configuration).pool_manager
    except ImportError as error:
        raise ConfigError(
            "The kubeconfig names a SOCKS proxy, and the Python package for SOCKS is not installed.",
            hint="pip install pysocks",
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The certificates or the proxy of {credentials.server} cannot be used: {error}."
        ) from error


def socket_options() -> list[tuple[int, int, int]]:
    """Return socket options for TCP keepalive: they detect a lost connection that is idle."""
    options: list[tuple[int, str, int]] = [
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", KEEPALIVE_SECONDS),  # macOS's name for it
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", DEAD_AFTER_SECONDS // KEEPALIVE_SECONDS - 1),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_AFTER_SECONDS * 1000),
    ]
    named = [(level, getattr(socket, name, None), value) for level, name, value in options]
    return [(level, number, value) for level, number, value in named if number is not None]


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0  # a date; API servers send seconds
