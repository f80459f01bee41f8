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
import socket
import struct
import time

from workbench.learner.determined_jobs import PEER_KEY_VARIABLE

from ._peers import MEET_SECONDS, RETRY_SECONDS, Peers, missing, not_those, read_exactly

PORT = 12360
"""Determined's for this purpose, where one has to be known beforehand."""
FOLDER_VARIABLE = "JOB_STATE_DIR"
GREET_SECONDS = 10.0
"""How long a stranger may keep rank 0 from hearing others."""
ANSWER_SECONDS = 60.0
SILENT_SECONDS = 30
PROBE_SECONDS = 10
PROBES = 6
"""A machine that answers none of so many probes is gone: a process that ends is known at once."""
_NONCE_BYTES = 32
_SUM_BYTES = 32
_WHO = struct.Struct("!QQ")
"""Rank and size, as a process comes."""


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
            until = time.monotonic() + MEET_SECONDS
            while len(peers) < size - 1:
                door.settimeout(max(until - time.monotonic(), 0.001))
                try:
                    peer, _ = door.accept()
                except socket.timeout:
                    raise missing([each for each in range(1, size) if each not in peers]) from None
                _greet(peer, key, size, peers)
        finally:
            if meeting:
                with contextlib.suppress(OSError):
                    os.unlink(meeting)
    return Peers(0, size, peers)


def _greet(peer: socket.socket, key: str, size: int, peers: dict[int, socket.socket]) -> None:
    """Let a process in that has the key; the connection of any other is closed."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    try:
        peer.settimeout(GREET_SECONDS)
        peer.sendall(nonce)
        shown = _read_in_time(peer, _NONCE_BYTES + _WHO.size + _SUM_BYTES)
        its_nonce, described = shown[:_NONCE_BYTES], shown[_NONCE_BYTES:-_SUM_BYTES]
        if not hmac.compare_digest(shown[-_SUM_BYTES:], _sum(key, b"peer", nonce, its_nonce, described)):
            raise ConnectionError("it has another key")
        peer.sendall(_sum(key, b"chief", its_nonce, nonce))
    except OSError:
        peer.close()
        return
    rank, its_size = _WHO.unpack(described)
    if its_size != size or not 0 < rank < size or (rank in peers and not _has_ended(peers[rank])):
        raise not_those(rank, its_size, size)
    peers[rank] = _watched(peer)


def _read_in_time(peer: socket.socket, count: int) -> bytes:
    """Return so many bytes of somebody who may send them one by one.

    Raises:
        OSError: they did not come in time.
    """
    until, data = time.monotonic() + GREET_SECONDS, b""
    while len(data) < count:
        peer.settimeout(max(until - time.monotonic(), 0.001))
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("it has ended")
        data += part
    return data


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
        door.listen(size)
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
        "TCP_USER_TIMEOUT": 1000 * (SILENT_SECONDS + PROBE_SECONDS * PROBES),
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
