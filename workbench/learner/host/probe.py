"""Probes a machine before jobs are sent there: facts alone; the client turns them into findings.

Before a job starts that several hosts have together, it is tried at which address the others reach a port of one: it
listens, and they connect. Who is reached answers with a token, since another machine may have the same address in a
network of its own.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import secrets
import shutil
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict, List, Sequence

from workbench.learner.host import machine
from workbench.learner.platform import login_session, system
from workbench.learner.platform.errors import Failure, of_os_error

ENGINE_SECONDS = 3.0


def prospects(engine: str = "") -> Dict[str, Any]:
    """Return the machine and what there is for jobs, in one answer: each more would be a round trip.

    Args:
        engine: a socket that was named; empty looks at the usual ones.
    """
    home = os.path.expanduser("~")
    return {
        "identity": machine.identity(),
        **_machine(),
        "version": ".".join(str(part) for part in sys.version_info[:3]),
        "system": _system(),
        "home": home,
        "home_free_bytes": machine.free_bytes(home),
        "file_system": _file_system(home),
        "bash": shutil.which("bash") or "",
        "uv": shutil.which("uv") or "",
        "venv": _has_venv(),
        "engines": [name for name in ("docker", "podman") if shutil.which(name)],
        "sockets": [_socket(engine)] if engine else sockets(),
        "kills_processes": login_session.is_ended_with_session(),
        "lingers": login_session.lingers(),
    }


def _machine() -> Dict[str, Any]:
    """Return the inventory, or why there is none: the rest is worth telling without it."""
    try:
        return {"machine": machine.inventory()}
    except (Failure, OSError) as error:
        failure = of_os_error(error) if isinstance(error, OSError) else error
        return {"machine_problem": [failure.kind, failure.message, failure.hint]}


def sockets() -> List[Dict[str, Any]]:
    """List the sockets of container engines that are here, whether we may use them, and why not."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or "/run/user/%d" % os.getuid()
    usual = ["/var/run/docker.sock"]
    usual += [os.path.join(runtime, name) for name in ("docker.sock", "podman/podman.sock")]
    usual.append("/run/podman/podman.sock")
    return [_socket(path) for path in usual if os.path.exists(path)]


def _socket(path: str) -> Dict[str, Any]:
    from workbench.learner.platform.engine_client import UNVERSIONED, EngineRefused, EngineRequest, connected

    found = {"path": path, "usable": False, "hangs": False, "said": "", "version": "", "api": ""}
    try:
        stream = connected(path, ENGINE_SECONDS)
    except PermissionError:
        return {**found, "said": "not allowed"}
    except OSError as error:
        return {**found, "said": str(error) or "does not answer"}
    try:
        version = EngineRequest(stream, "GET", "version", version=UNVERSIONED).answer() or {}
        found.update(usable=True, version=str(version.get("Version")), api=str(version.get("ApiVersion")))
    except (OSError, EngineRefused, ValueError, AttributeError) as error:
        # It is there: a job that names an image waits for it, and does not run without.
        found.update(hangs=True, said=str(error) or "does not answer")
    return found


def _system() -> str:
    for line in system.read_text("/etc/os-release").splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip('"')
    return os.uname().sysname + " " + os.uname().release


def _has_venv() -> bool:
    from importlib.util import find_spec

    return find_spec("ensurepip") is not None and find_spec("venv") is not None


def _file_system(path: str) -> str:
    """Return the type of the file system that a path lies on; empty where it is not known."""
    best, kind = -1, ""
    for line in system.read_text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = fields[4]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), after.split()[0]
    return kind


_GREETING_SECONDS = 2.0
"""How long who has connected may take to hang up."""

_INTERFACES = 64
_SIOCGIFCONF = 0x8912
_IFREQ = struct.Struct("16sHH4s16x")


class Meetings:
    """The ports that this host listens on for a moment, by token."""

    def __init__(self) -> None:
        self._open: Dict[str, socket.socket] = {}
        self._changing = threading.Lock()

    def begin(self, port: int, seconds: float) -> Dict[str, Any]:
        """Listen on a port; return the token that who connects is given, and this host's addresses.

        Args:
            port: the port.
            seconds: after how long it ends by itself.
        """
        token = secrets.token_hex(16)
        listening = _listen(port)
        with self._changing:
            self._open = {kept: one for kept, one in self._open.items() if one.fileno() >= 0}
            self._open[token] = listening
        answer = threading.Thread(target=_answer, args=(listening, token, seconds), daemon=True)
        answer.start()
        return {"token": token, "addresses": addresses()}

    def end(self, token: str) -> None:
        """Listen no more."""
        with self._changing:
            listening = self._open.pop(token, None)
        if listening is not None:
            # A close alone would leave the port to the thread that waits in accept.
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def close(self) -> None:
        """End all."""
        with self._changing:
            tokens = list(self._open)
        for token in tokens:
            self.end(token)


def join(addresses: Sequence[str], port: int, token: str, seconds: float) -> List[str]:
    """Return those addresses at which a port answers with a token, in the same order."""
    found: List[str] = []

    def greet(address: str) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            with socket.create_connection((address, port), seconds) as connection:
                data = b""
                while len(data) < len(token) and (more := connection.recv(len(token))):
                    data += more
            if data == token.encode():
                found.append(address)

    threads = [threading.Thread(target=greet, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    reached = set(found)
    return [address for address in addresses if address in reached]


def addresses() -> List[str]:
    """Return the addresses of this host that others may know: IPv4 before IPv6, without those of one link or host."""
    found = [*_ipv4(), *_ipv6(), *_of_name()]
    return [address for address in dict.fromkeys(found) if not _is_own(address)]


def _listen(port: int) -> socket.socket:
    """Listen by IPv4 and IPv6; by IPv4 alone where the other one cannot be had."""
    if _has_ipv6():
        try:
            return _listen_by(socket.AF_INET6, port)
        except Failure:
            return _listen_by(socket.AF_INET, port)
    return _listen_by(socket.AF_INET, port)


def _listen_by(family: int, port: int) -> socket.socket:
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(("", port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        raise of_os_error(error) from error
    return listening


def _answer(listening: socket.socket, token: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    try:
        while (left := until - time.monotonic()) > 0:
            listening.settimeout(left)
            connection, _ = listening.accept()
            threading.Thread(target=_greet, args=(connection, token), daemon=True).start()
    except OSError:
        return  # it was ended, or its time is over
    finally:
        listening.close()


def _greet(connection: socket.socket, token: str) -> None:
    """Send the token, and let the other side hang up first: else the port would be taken for a while."""
    with contextlib.suppress(OSError), connection:
        connection.settimeout(_GREETING_SECONDS)
        connection.sendall(token.encode())
        if connection.recv(1):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _ipv4() -> List[str]:
    """Return the IPv4 addresses of all interfaces, where the system tells them."""
    if sys.platform != "linux":
        return []
    names = array.array("B", bytes(_INTERFACES * _IFREQ.size))
    place, length = names.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            asked = struct.pack("iL", length, place)
            filled, _ = struct.unpack("iL", fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, asked))
    except OSError:
        return []
    entries = _IFREQ.iter_unpack(names.tobytes()[: filled - filled % _IFREQ.size])
    return [socket.inet_ntoa(address) for _, _, _, address in entries]


def _ipv6() -> List[str]:
    """Return the global IPv6 addresses of all interfaces, where the system tells them."""
    lines = (line.split() for line in system.read_text("/proc/net/if_inet6").splitlines())
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0])) for fields in lines if fields[3] == "00"
    ]


def _of_name() -> List[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for _, _, _, _, address in found]


def _is_own(address: str) -> bool:
    """Say whether an address means this host, or this link, to everybody."""
    return address.startswith(("127.", "169.254.", "0.", "fe80:")) or address in ("::1", "::")


def _has_ipv6() -> bool:
    return socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
