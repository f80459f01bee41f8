"""A command in a container over the API's websocket: channels, terminal size, exit code."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from backends.contract.cluster import Absent
from backends.kubernetes.api import CONNECT_SECONDS, Query, socket_options
from backends.kubernetes.auth import Credentials
from backends.kubernetes.errors import ApiCall, no_answer, refusal
from backends.kubernetes.shared_tls import SharedTlsSocket
from workbench.clock import elapsed_seconds
from workbench.errors import BackendError, BackendUnreachable

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE: Final = 255
"""The channel of protocol v5 that closes another channel."""

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
PIECE_BYTES: Final = 1 << 16
SILENT_SECONDS: Final = 30.0
"""The time limit for the rest of a message that has begun, and for sending one."""

PING_SECONDS: Final = 5.0
"""The interval of pings: load balancers cut idle connections."""

_CANNOT_START: Final = re.compile(r"unable to start container process: (.*?)(?:: unknown)?$")


class ExecStream:
    """A running command; see :class:`backends.contract.cluster.ClusterStream`."""

    def __init__(self, websocket: Any, call: ApiCall) -> None:
        self._websocket = websocket
        self._call = call
        self._status: Mapping[str, Any] | None = None
        self._ended = False
        self._closed = False
        self._pinged = elapsed_seconds()
        self._reading = threading.Lock()

    @property
    def ends_input(self) -> bool:
        """Whether the cluster can close the command's standard input."""
        return bool(self._websocket.subprotocol == V5)

    def read(self, timeout_seconds: float) -> tuple[bytes, bytes] | None:
        """Return new bytes of stdout and stderr; None at the end."""
        deadline = elapsed_seconds() + timeout_seconds
        with self._reading:
            while not self._ended:
                if self._closed:
                    self._end()
                    return None
                left = deadline - elapsed_seconds()
                if self._readable(max(0.0, min(left, PING_SECONDS))):
                    found = self._receive()
                    if found != (b"", b""):
                        return found
                elif left <= 0:
                    return b"", b""
                else:
                    self._ping()
        return None

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._send(bytes([STDIN]) + view[start : start + PIECE_BYTES])

    def close_input(self) -> None:
        """Close its standard input, if the cluster can."""
        if self.ends_input:
            self._send(bytes([CLOSE, STDIN]))

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of its terminal."""
        self._send(bytes([RESIZE]) + json.dumps({"Width": columns, "Height": rows}).encode())

    def wait(self) -> int:
        """Discard the rest of the output and return the exit code."""
        while self.read(3600.0) is not None:
            pass
        return self._exit_code()

    def close(self) -> None:
        """Close the connection, from any thread."""
        self._closed = True
        stream = self._websocket.sock
        if isinstance(stream, socket.socket):
            # Wakes the reading thread. On the bare socket: a TLS shutdown would first send data.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(stream, socket.SHUT_RDWR)
        if self._reading.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._reading.release()

    def _readable(self, seconds: float) -> bool:
        stream = self._websocket.sock
        if stream is None or (isinstance(stream, ssl.SSLSocket) and stream.pending()):
            return True
        waiting = select.poll()
        waiting.register(stream, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def _receive(self) -> tuple[bytes, bytes] | None:
        """Receive one message; return its output, None at the end."""
        import websocket

        try:
            opcode, data = self._websocket.recv_data(control_frame=True)
        except (websocket.WebSocketException, OSError, ValueError) as failure:
            self._end()
            if self._status is not None or self._closed:
                return None
            raise self._broken(failure) from failure
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            self._end()
            if self._status is None and not self._closed:
                raise self._broken(None)
            return None
        if opcode not in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) or not data:
            return b"", b""
        channel, payload = data[0], bytes(data[1:])
        if channel == STDOUT:
            return payload, b""
        if channel == STDERR:
            return b"", payload
        if channel == ERROR:
            with contextlib.suppress(ValueError):
                self._status = json.loads(payload)
            self._end()
            return None
        return b"", b""

    def _send(self, data: bytes) -> None:
        import websocket

        try:
            self._websocket.send_binary(data)
        except (websocket.WebSocketException, OSError, ValueError, AttributeError) as failure:
            raise self._broken(failure) from failure

    def _ping(self) -> None:
        import websocket

        if elapsed_seconds() < self._pinged + PING_SECONDS:
            return
        self._pinged = elapsed_seconds()
        # A lost connection is noticed by the next read.
        with contextlib.suppress(websocket.WebSocketException, OSError, AttributeError):
            self._websocket.ping()

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(Exception):  # the connection is over anyway
            self._websocket.shutdown()

    def _broken(self, failure: Exception | None) -> BackendUnreachable:
        why = no_answer(self._call, failure).message if failure else ""
        return BackendUnreachable(f"The connection to a command in the cluster broke. {why}".rstrip())

    def _exit_code(self) -> int:
        status = self._status
        if status is None:
            raise self._broken(None)
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or ()
        for cause in causes:
            if cause.get("reason") == "ExitCode":
                return int(cause.get("message") or 1)
        message = " ".join(str(status.get("message") or status.get("reason") or "no reason").split())
        if "container not found" in message:
            raise Absent("The container is not running.")
        if found := _CANNOT_START.search(message):
            message = found[1]
        raise BackendError(f"The command could not be started in the container: {message.rstrip('.')}.")


def start(
    credentials: Credentials,
    path: str,
    query: Query,
    call: ApiCall,
    *,
    connect_seconds: float = CONNECT_SECONDS,
) -> ExecStream:
    """Start a command and return its stream.

    Raises:
        BackendUnreachable: the API does not answer.
        FabricError: the API refuses it; see :mod:`backends.contract.cluster`.
    """
    import websocket
    from kubernetes.stream.ws_client import websocket_proxycare

    configuration = credentials.configuration
    url = urlsplit(credentials.server)
    scheme = "wss" if url.scheme == "https" else "ws"
    address = urlunsplit((scheme, url.netloc, url.path + path, urlencode(query), ""))
    connection: Any = websocket.WebSocket(
        sslopt=_tls(configuration), sockopt=socket_options(), skip_utf8_validation=True
    )
    options: dict[str, Any] = {
        "header": [f"{name}: {value}" for name, value in credentials.headers().items()],
        "subprotocols": [V5, V4],
        "timeout": connect_seconds,
    }
    if configuration.proxy or configuration.proxy_headers:
        options = websocket_proxycare(options, configuration, address, {})
    try:
        connection.connect(address, **options)
    except websocket.WebSocketBadStatusException as error:
        raise refusal(call, error.status_code, error.resp_body or b"") from error
    except (websocket.WebSocketException, OSError, ValueError) as error:
        raise no_answer(call, error) from error
    connection.settimeout(SILENT_SECONDS)
    if isinstance(connection.sock, SharedTlsSocket):
        connection.sock.share(SILENT_SECONDS)
    return ExecStream(connection, call)


def _tls(configuration: Any) -> dict[str, Any]:
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data or None
    )
    context.sslsocket_class = SharedTlsSocket
    options: dict[str, Any] = {"context": context}
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        options |= {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if configuration.tls_server_name:
        options["server_hostname"] = configuration.tls_server_name
    return options
