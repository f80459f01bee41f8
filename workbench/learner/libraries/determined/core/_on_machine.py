"""How the processes of a trial on one machine meet: at a socket in a folder that only their user can enter."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pickle
import socket
import stat
import struct
import tempfile
import time

from ._peers import RENDEZVOUS_SECONDS, RETRY_SECONDS, Peers, missing_peers, read_message, wrong_peer

PATH_MAX = 100
"""Of a socket's path, in bytes; the kernel takes 107."""
_CREDENTIALS = struct.Struct("iII")
"""pid, uid and gid of the process at the other end of a socket: unix(7), SO_PEERCRED."""
_NAMED_BY = ("FABRIC_LEARNER", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
"""Variables that are alike in all processes of a trial on a machine and differ in those of another."""


def connect_on_machine(
    rank: int, size: int, number: int, *, name: str = "rank %d of the trial", ranks: str = "ranks"
) -> Peers:
    """Return the connections of one of the processes on this machine with the others.

    Args:
        rank: of this process among them.
        size: how many they are.
        number: which rendezvous of theirs it is, counted in each process.
        name: of one of them, for messages.
        ranks: several of them, for messages.

    Raises:
        ValueError: another process has this rank, too, or another size.
        TimeoutError: another process did not come within ten minutes.
        PermissionError: somebody else is at the place where they meet.
    """
    socket_name = _name(number)
    return (
        _connect_to_chief(rank, size, socket_name, name)
        if rank
        else _accept_peers(size, socket_name, name, ranks)
    )


def _accept_peers(size: int, socket_name: str, name: str, ranks: str) -> Peers:
    peers: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path = _bind(listener, socket_name)

        def remove() -> None:
            atexit.unregister(remove)
            with contextlib.suppress(OSError):
                os.unlink(path)
                os.rmdir(os.path.dirname(path))  # refused while another trial's socket is there

        atexit.register(remove)
        listener.listen(size)
        until = time.monotonic() + RENDEZVOUS_SECONDS
        while len(peers) < size - 1:
            listener.settimeout(max(until - time.monotonic(), 0.001))
            try:
                peer, _ = listener.accept()
            except socket.timeout:
                raise missing_peers([each for each in range(1, size) if each not in peers], ranks) from None
            if _is_own(peer):
                _add_peer(peer, size, peers)
            else:
                peer.close()
    return Peers(0, size, peers, name, on_close=remove)


def _add_peer(peer: socket.socket, size: int, peers: dict[int, socket.socket]) -> None:
    peer.settimeout(None)
    rank, its_size = pickle.loads(read_message(peer, "a process that has just come"))
    if its_size != size or rank in peers or not 0 < rank < size:
        raise wrong_peer(rank, its_size, size)
    peers[rank] = peer


def _connect_to_chief(rank: int, size: int, socket_name: str, name: str) -> Peers:
    until = time.monotonic() + RENDEZVOUS_SECONDS
    while True:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(os.path.join(_own_folder(), socket_name))
        except (FileNotFoundError, ConnectionRefusedError):
            peer.close()
            if time.monotonic() > until:
                raise TimeoutError(
                    "%s did not come within %d seconds"
                    % (name.replace(" of the trial", "") % 0, RENDEZVOUS_SECONDS)
                ) from None
            time.sleep(RETRY_SECONDS)
            continue
        if not _is_own(peer):
            peer.close()
            raise PermissionError("the socket of rank 0 of this trial is another user's")
        peers = Peers(rank, size, {0: peer}, name)
        peers.send(0, pickle.dumps((rank, size)))
        return peers


def _is_own(peer: socket.socket) -> bool:
    """Whether the other process is this user's, as far as the system tells: what it sends is unpickled."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is this user's alone
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.getuid())


def _bind(listener: socket.socket, name: str) -> str:
    """Bind a socket in this user's folder, which another trial that ends may remove at any moment; return its path."""
    until = time.monotonic() + RENDEZVOUS_SECONDS
    while True:
        try:
            path = os.path.join(_own_folder(), name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
        else:
            return path


def _own_folder() -> str:
    """Return a folder that only this user can enter: what arrives there is unpickled.

    Raises:
        PermissionError: somebody else has made it.
        FileNotFoundError: another trial that ended has just removed it.
    """
    for parent in (tempfile.gettempdir(), "/tmp"):
        folder = os.path.join(parent, "fabric-trials-%d" % os.getuid())
        if len(os.fsencode(folder)) + 40 > PATH_MAX:
            continue
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError("%s is not this user's alone; set TMPDIR to another folder" % folder)
        return folder
    raise PermissionError("no folder for temporary files has a short enough name; set TMPDIR")


def _name(number: int) -> str:
    """Return the name of the socket of a trial's context with this number, counted in each process."""
    text = "\0".join(os.environ.get(name, "") for name in _NAMED_BY)
    return "%s-%d" % (hashlib.sha256(text.encode()).hexdigest()[:24], number)
