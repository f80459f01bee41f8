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

from ._peers import RENDEZVOUS_SECONDS, RETRY_SECONDS, Peers, missing_peers, read_exactly, wrong_peer

PORT = 12360
"""Determined's for this purpose, where one has to be known beforehand."""
FOLDER_VARIABLE = "JOB_STATE_DIR"
HANDSHAKE_SECONDS = 10.0
"""How long rank 0 waits for a connection to show the key."""
PENDING_MAX = 64
"""How many connections may be without the key beside the trial's own: of more, the oldest is closed."""
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
_MESSAGE_BYTES = _NONCE_BYTES + _WHO.size + _SUM_BYTES


def connect_over_network(rank: int, size: int, number: int, address: str, port: int) -> Peers:
    """Return the connections of one of all processes of a trial with the others.

    Args:
        rank: of this process.
        size: how many they are.
        number: which rendezvous of theirs it is, counted in each process.
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
        return _connect_to_chief(rank, size, number, address, port)
    return _accept_peers(size, number, address, port)


def _accept_peers(size: int, number: int, address: str, port: int) -> Peers:
    key = os.environ.get(PEER_KEY_VARIABLE) or secrets.token_hex(_NONCE_BYTES)
    with _listener_at(address, _known_port(port, number), size) as listener:
        rendezvous = "" if os.environ.get(PEER_KEY_VARIABLE) else _rendezvous_file(number)
        if rendezvous:
            _write_own(rendezvous, {"key": key, "port": listener.getsockname()[1]})
        try:
            return Peers(0, size, _Acceptor(listener, key, size).accept_all())
        finally:
            if rendezvous:
                with contextlib.suppress(OSError):
                    os.unlink(rendezvous)


class _Handshake:
    """A connection whose other end has not shown the key yet."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.nonce = secrets.token_bytes(_NONCE_BYTES)
        self.until = time.monotonic() + HANDSHAKE_SECONDS
        self._received = b""
        peer.setblocking(False)
        # Few bytes on a new connection: they never have to wait.
        peer.sendall(self.nonce)

    def receive(self) -> bool:
        """Take what has arrived; return whether it is the whole message.

        Raises:
            OSError: the connection has ended.
        """
        with contextlib.suppress(BlockingIOError):
            part = self.peer.recv(_MESSAGE_BYTES - len(self._received))
            if not part:
                raise ConnectionError("it has ended")
            self._received += part
        return len(self._received) == _MESSAGE_BYTES

    def verify(self, key: str) -> tuple[int, int]:
        """Return the rank and size of a process that has the key, and prove to it that this one has it, too.

        Raises:
            OSError: it has another key, or has ended.
        """
        its_nonce, described = self._received[:_NONCE_BYTES], self._received[_NONCE_BYTES:-_SUM_BYTES]
        expected = _sum(key, b"peer", self.nonce, its_nonce, described)
        if not hmac.compare_digest(self._received[-_SUM_BYTES:], expected):
            raise ConnectionError("it has another key")
        self.peer.sendall(_sum(key, b"chief", its_nonce, self.nonce))
        rank, size = _WHO.unpack(described)
        return rank, size


class _Acceptor:
    """Accepts the trial's processes at rank 0. Connections without the key are closed, and delay nobody else."""

    def __init__(self, listener: socket.socket, key: str, size: int) -> None:
        self._listener = listener
        self._key = key
        self._size = size
        self._peers: dict[int, socket.socket] = {}
        self._pending: dict[int, _Handshake] = {}
        """By their descriptors, the one that waits longest first."""
        self._selector = selectors.DefaultSelector()

    def accept_all(self) -> dict[int, socket.socket]:
        """Return the connections of all other processes, by rank.

        Raises:
            TimeoutError: a process did not come in time.
            ValueError: one has the rank of another, or another size.
        """
        until = time.monotonic() + RENDEZVOUS_SECONDS
        self._listener.setblocking(False)
        with self._selector:
            self._selector.register(self._listener, selectors.EVENT_READ)
            try:
                while len(self._peers) < self._size - 1:
                    self._take_turn(until)
            finally:
                for handshake in self._pending.values():
                    handshake.peer.close()
        return self._peers

    def _take_turn(self, until: float) -> None:
        now = time.monotonic()
        if now >= until:
            raise missing_peers([each for each in range(1, self._size) if each not in self._peers])
        for handshake in [each for each in self._pending.values() if each.until <= now]:
            self._close(handshake)
        first = min([until, *(each.until for each in self._pending.values())])
        for ready, _ in self._selector.select(max(first - now, 0.001)):
            if ready.fileobj is self._listener:
                self._accept()
            else:
                self._proceed(self._pending[ready.fd])
        for handshake in list(self._pending.values())[: -(self._size + PENDING_MAX)]:
            self._close(handshake)

    def _accept(self) -> None:
        """Begin a handshake, unless the connection has ended again."""
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        try:
            handshake = _Handshake(peer)
        except OSError:
            peer.close()
            return
        self._pending[peer.fileno()] = handshake
        self._selector.register(peer, selectors.EVENT_READ)

    def _proceed(self, handshake: _Handshake) -> None:
        """Go on with a handshake; a process that has shown the key is a peer."""
        try:
            if not handshake.receive():
                return
            rank, size = handshake.verify(self._key)
        except OSError:
            self._close(handshake)
            return
        is_twice = rank in self._peers and not _has_ended(self._peers[rank])
        if size != self._size or not 0 < rank < size or is_twice:
            raise wrong_peer(rank, size, self._size)
        self._forget(handshake)
        self._peers[rank] = _with_keepalive(handshake.peer)

    def _close(self, handshake: _Handshake) -> None:
        self._forget(handshake)
        handshake.peer.close()

    def _forget(self, handshake: _Handshake) -> None:
        self._selector.unregister(handshake.peer)
        del self._pending[handshake.peer.fileno()]


def _connect_to_chief(rank: int, size: int, number: int, address: str, port: int) -> Peers:
    until = time.monotonic() + RENDEZVOUS_SECONDS
    while True:
        try:
            key, at = _where(number, port)
            return Peers(rank, size, {0: _connect(address, at, key, _WHO.pack(rank, size))})
        except (OSError, UnicodeError) as error:
            # Its name is not known yet, nobody listens, or it is somebody else who does.
            if time.monotonic() > until:
                raise TimeoutError(
                    "rank 0 at %s did not come within %d seconds: %s" % (address, RENDEZVOUS_SECONDS, error)
                ) from error
        time.sleep(RETRY_SECONDS)


def _connect(address: str, port: int, key: str, described: bytes) -> socket.socket:
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
    return _with_keepalive(peer)


def _where(number: int, port: int) -> tuple[str, int]:
    """Return the key, and rank 0's port.

    Raises:
        OSError: rank 0 has not come yet.
    """
    key = os.environ.get(PEER_KEY_VARIABLE)
    if key:
        return key, _known_port(port, number)
    try:
        with open(_rendezvous_file(number), encoding="utf-8") as file:
            document = json.load(file)
        return str(document["key"]), int(document["port"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError("what rank 0 left is not whole") from error


def _known_port(port: int, number: int) -> int:
    """Return the port to listen on; 0 for any, where the others are told which one it is."""
    if port:
        return port
    return PORT + number if os.environ.get(PEER_KEY_VARIABLE) else 0


def _listener_at(address: str, port: int, size: int) -> socket.socket:
    """Return what listens at a port: where the address is the machine's own one, for this machine alone."""
    is_local = address == "localhost" or address.startswith("127.")
    has_both = not is_local and socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
    listener = socket.socket(socket.AF_INET6 if has_both else socket.AF_INET)
    try:
        if has_both:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1" if is_local else "", port))
        listener.listen(size + PENDING_MAX)
    except BaseException:
        listener.close()
        raise
    return listener


def _with_keepalive(peer: socket.socket) -> socket.socket:
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


def _rendezvous_file(number: int) -> str:
    return os.path.join(os.environ.get(FOLDER_VARIABLE, ""), ".determined-rendezvous-%d" % number)


def _write_own(path: str, document: dict[str, object]) -> None:
    """Write a document that only this user can read; it is there whole or not at all."""
    new = "%s.%d" % (path, os.getpid())
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.replace(new, path)


def _sum(key: str, who: bytes, *parts: bytes) -> bytes:
    return hmac.new(key.encode(), b"\0".join((who, *parts)), hashlib.sha256).digest()
