"""How the processes of a trial on several machines meet: at a port of rank 0, with a key that only this job's have.

What arrives is unpickled, so both ends show that they have the key before anything is read. In a cluster it is in the
variables of each learner, and the port is known beforehand. Learners of one host share a folder: there rank 0 leaves a
new key and the port that it was given.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import selectors
import socket
import struct
import time

from workbench.learner.determined_jobs import PEER_KEY_VARIABLE

from ._peers import MEET_SECONDS, RETRY_SECONDS, Peers, missing, not_those, read_exactly

PORT = 12360
"""Determined's for this purpose, where one has to be known beforehand."""
FOLDER_VARIABLE = "JOB_STATE_DIR"
GREET_SECONDS = 10.0
"""How long rank 0 waits for somebody to show the key."""
STRANGERS = 64
"""How many may be at the door besides the trial's processes: of more, who waits longest has to go."""
ANSWER_SECONDS = 60.0
SILENT_SECONDS = 30
PROBE_SECONDS = 10
PROBES = 6
"""A machine that answers none of so many probes is gone: a process that ends is known at once.

Only what waits for a machine probes it. There is no limit for what is sent: it would end the connection with a process
that is alive and does not read for a while as well.
"""
_NONCE_BYTES = 32
_SUM_BYTES = 32
_WHO = struct.Struct("!QQ")
"""Rank and size, as a process comes."""
_SHOWN_BYTES = _NONCE_BYTES + _WHO.size + _SUM_BYTES


def meet_over_network(rank: int, size: int, number: int, address: str, port: int) -> Peers:
    """Return the connections of one of all processes of a trial with the others.

    Args:
        rank: of this process.
        size: how many they are.
        number: which meeting of theirs it is, counted in each process.
        address: of rank 0's machine.
        port: the one that the code names; 0 for none.

    Raises:
        RuntimeError: there is no key: this is no job.
        ValueError: another process has this rank, too, or another size.
        TimeoutError: another process did not come within ten minutes.
        OSError: the port is taken.
    """
    if not os.environ.get(PEER_KEY_VARIABLE) and not os.environ.get(FOLDER_VARIABLE):
        raise RuntimeError(
            "DistributedContext over several machines is for a job of fabric's with several learners: %s and %s are"
            " not set" % (PEER_KEY_VARIABLE, FOLDER_VARIABLE)
        )
    if rank:
        return _joined(rank, size, number, address, port)
    return _waited_for(size, number, address, port)


def _waited_for(size: int, number: int, address: str, port: int) -> Peers:
    peers: dict[int, socket.socket] = {}
    key = os.environ.get(PEER_KEY_VARIABLE) or secrets.token_hex(_NONCE_BYTES)
    with _door(address, _known_port(port, number), size) as door:
        meeting = "" if os.environ.get(PEER_KEY_VARIABLE) else _meeting_file(number)
        if meeting:
            _write_own(meeting, {"key": key, "port": door.getsockname()[1]})
        try:
            _let_in(door, key, size, peers)
        finally:
            if meeting:
                with contextlib.suppress(OSError):
                    os.unlink(meeting)
    return Peers(0, size, peers)


class _Guest:
    """Somebody at the door who has not shown the key yet."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.nonce = secrets.token_bytes(_NONCE_BYTES)
        self.until = time.monotonic() + GREET_SECONDS
        self._shown = b""
        peer.setblocking(False)
        # Few bytes on a new connection: they never have to wait.
        peer.sendall(self.nonce)

    def read(self) -> bool:
        """Take what has arrived; return whether all is there that a process shows.

        Raises:
            OSError: the connection has ended.
        """
        with contextlib.suppress(BlockingIOError):
            part = self.peer.recv(_SHOWN_BYTES - len(self._shown))
            if not part:
                raise ConnectionError("it has ended")
            self._shown += part
        return len(self._shown) == _SHOWN_BYTES

    def greet(self, key: str) -> tuple[int, int]:
        """Return its rank and size, once it has shown the key.

        Raises:
            OSError: it has another key, or has ended.
        """
        its_nonce, described = self._shown[:_NONCE_BYTES], self._shown[_NONCE_BYTES:-_SUM_BYTES]
        expected = _sum(key, b"peer", self.nonce, its_nonce, described)
        if not hmac.compare_digest(self._shown[-_SUM_BYTES:], expected):
            raise ConnectionError("it has another key")
        self.peer.sendall(_sum(key, b"chief", its_nonce, self.nonce))
        rank, size = _WHO.unpack(described)
        return rank, size


def _let_in(door: socket.socket, key: str, size: int, peers: dict[int, socket.socket]) -> None:
    """Let all processes in that have the key; the connections of others are closed, and keep nobody waiting.

    Raises:
        TimeoutError: a process did not come in time.
        ValueError: one has the rank of another, or another size.
    """
    until = time.monotonic() + MEET_SECONDS
    guests: dict[int, _Guest] = {}
    """By their descriptors, the one that waits longest first."""
    door.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)

        def dismiss(guest: _Guest) -> None:
            selector.unregister(guest.peer)
            del guests[guest.peer.fileno()]

        try:
            while len(peers) < size - 1:
                now = time.monotonic()
                if now >= until:
                    raise missing([each for each in range(1, size) if each not in peers])
                for guest in [each for each in guests.values() if each.until <= now]:
                    dismiss(guest)
                    guest.peer.close()
                first = min([until, *(each.until for each in guests.values())])
                for chosen, _ in selector.select(max(first - now, 0.001)):
                    if chosen.fileobj is door:
                        new = _come(door)
                        if new is not None:
                            guests[new.peer.fileno()] = new
                            selector.register(new.peer, selectors.EVENT_READ)
                        continue
                    guest = guests[chosen.fd]
                    try:
                        if not guest.read():
                            continue
                        rank, its_size = guest.greet(key)
                    except OSError:
                        dismiss(guest)
                        guest.peer.close()
                        continue
                    if (
                        its_size != size
                        or not 0 < rank < size
                        or (rank in peers and not _has_ended(peers[rank]))
                    ):
                        raise not_those(rank, its_size, size)
                    dismiss(guest)
                    peers[rank] = _watched(guest.peer)
                for guest in list(guests.values())[: -(size + STRANGERS)]:
                    dismiss(guest)
                    guest.peer.close()
        finally:
            for guest in guests.values():
                guest.peer.close()


def _come(door: socket.socket) -> _Guest | None:
    """Return who has come; None where the connection has ended again."""
    try:
        peer, _ = door.accept()
    except OSError:
        return None
    try:
        return _Guest(peer)
    except OSError:
        peer.close()
        return None


def _joined(rank: int, size: int, number: int, address: str, port: int) -> Peers:
    until = time.monotonic() + MEET_SECONDS
    while True:
        try:
            key, at = _where(number, port)
            return Peers(rank, size, {0: _connected(address, at, key, _WHO.pack(rank, size))})
        except (OSError, UnicodeError) as error:
            # Its name is not known yet, nobody listens, or it is somebody else who does.
            if time.monotonic() > until:
                raise TimeoutError(
                    "rank 0 at %s did not come within %d seconds: %s" % (address, MEET_SECONDS, error)
                ) from error
        time.sleep(RETRY_SECONDS)


def _connected(address: str, port: int, key: str, described: bytes) -> socket.socket:
    """Return the connection with rank 0, which has the key as well.

    Raises:
        OSError: nobody is there, or somebody without the key.
    """
    who = "rank 0"
    peer = socket.create_connection((address, port), ANSWER_SECONDS)
    try:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        its_nonce = read_exactly(peer, _NONCE_BYTES, who)
        peer.sendall(nonce + described + _sum(key, b"peer", its_nonce, nonce, described))
        if not hmac.compare_digest(
            read_exactly(peer, _SUM_BYTES, who), _sum(key, b"chief", nonce, its_nonce)
        ):
            raise ConnectionError("who listens at %s port %d is not of this job" % (address, port))
    except BaseException:
        peer.close()
        raise
    return _watched(peer)


def _where(number: int, port: int) -> tuple[str, int]:
    """Return the key, and rank 0's port.

    Raises:
        OSError: rank 0 has not come yet.
    """
    key = os.environ.get(PEER_KEY_VARIABLE)
    if key:
        return key, _known_port(port, number)
    try:
        with open(_meeting_file(number), encoding="utf-8") as file:
            document = json.load(file)
        return str(document["key"]), int(document["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError("what rank 0 left is not whole") from error


def _known_port(port: int, number: int) -> int:
    """Return the port to listen on; 0 for any, where the others are told which one it is."""
    if port:
        return port
    return PORT + number if os.environ.get(PEER_KEY_VARIABLE) else 0


def _door(address: str, port: int, size: int) -> socket.socket:
    """Return what listens at a port: where the address is the machine's own one, for this machine alone."""
    is_local = address == "localhost" or address.startswith("127.")
    has_both = not is_local and socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
    door = socket.socket(socket.AF_INET6 if has_both else socket.AF_INET)
    try:
        if has_both:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1" if is_local else "", port))
        door.listen(size + STRANGERS)
    except BaseException:
        door.close()
        raise
    return door


def _watched(peer: socket.socket) -> socket.socket:
    """Return a connection that ends once the other machine does not answer any more."""
    peer.settimeout(None)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limits = {
        "TCP_KEEPIDLE": SILENT_SECONDS,
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": PROBES,
    }
    for name, value in limits.items():
        if hasattr(socket, name):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return peer


def _has_ended(peer: socket.socket) -> bool:
    """Whether the other end of a connection is gone: that process tries again."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _meeting_file(number: int) -> str:
    return os.path.join(os.environ.get(FOLDER_VARIABLE, ""), ".determined-meeting-%d" % number)


def _write_own(path: str, document: dict[str, object]) -> None:
    """Write a document that only this user can read; it is there whole or not at all."""
    new = "%s.%d" % (path, os.getpid())
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(new, path)


def _sum(key: str, who: bytes, *parts: bytes) -> bytes:
    return hmac.new(key.encode(), b"\0".join((who, *parts)), hashlib.sha256).digest()
