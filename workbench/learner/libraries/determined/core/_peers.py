"""What processes of a trial give to one another once they have met: rank 0 is connected with each of the others."""

from __future__ import annotations

import errno
import pickle
import struct

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    import socket
    from typing import Any, Callable

RENDEZVOUS_SECONDS = 600.0
"""How long the processes wait for one another at the beginning: they may import for minutes."""
RETRY_SECONDS = 0.05
PART_BYTES = 1 << 20
_LENGTH = struct.Struct("!Q")


class Peers:
    """The connections of one process with others of a group, whose collectives all of them call in the same order."""

    def __init__(
        self,
        rank: int,
        size: int,
        sockets: dict[int, socket.socket],
        name: str = "rank %d of the trial",
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.rank = rank
        self.size = size
        self._sockets = sockets
        self._name = name
        """Of one of them, for messages."""
        self._on_close = on_close

    def close(self) -> None:
        """Leave the others; what they were given before still reaches them."""
        for each in self._sockets.values():
            each.close()
        self._sockets = {}
        self._on_close()

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return what all processes give, by rank, to rank 0; None to the others."""
        if self.size == 1:
            return [stuff]
        if self.rank:
            self.send(0, pickle.dumps(stuff))
            return None
        return [stuff, *(pickle.loads(self.receive(rank)) for rank in range(1, self.size))]

    def broadcast(self, stuff: Any) -> Any:
        """Return what rank 0 gives."""
        if self.size == 1:
            return stuff
        if self.rank:
            return pickle.loads(self.receive(0))
        data = pickle.dumps(stuff)
        for rank in range(1, self.size):
            self.send(rank, data)
        return stuff

    def allgather(self, stuff: Any) -> list[Any]:
        """Return what all processes give, by rank."""
        gathered: list[Any] = self.broadcast(self.gather(stuff))
        return gathered

    def send(self, rank: int, data: bytes) -> None:
        """Give bytes to one process: rank 0 to any, another one to rank 0 alone.

        Raises:
            ConnectionError: that process has ended, or its machine does not answer.
        """
        try:
            self._sockets[rank].sendall(_LENGTH.pack(len(data)) + data)
        except (OSError, KeyError) as error:
            raise _lost(self._name % rank, error) from error

    def receive(self, rank: int) -> bytes:
        """Return what one process has sent next.

        Raises:
            ConnectionError: that process has ended, or its machine does not answer.
        """
        if rank not in self._sockets:
            raise ConnectionError("the DistributedContext is closed")
        return read_message(self._sockets[rank], self._name % rank)


def alone() -> Peers:
    """Return the group of one process."""
    return Peers(0, 1, {})


def read_message(peer: socket.socket, who: str) -> bytes:
    """Return what the other end of a connection has sent next.

    Raises:
        ConnectionError: it has ended.
    """
    return read_exactly(peer, _LENGTH.unpack(read_exactly(peer, _LENGTH.size, who))[0], who)


def read_exactly(peer: socket.socket, count: int, who: str) -> bytes:
    """Return so many bytes of a connection.

    Raises:
        ConnectionError: it has ended before.
    """
    parts = []
    while count:
        try:
            part = peer.recv(min(count, PART_BYTES))
        except OSError as error:
            raise _lost(who, error) from error
        if not part:
            raise ConnectionError("%s has ended" % who)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _lost(who: str, error: Exception) -> ConnectionError:
    """Return the error for the other end of a connection that is gone."""
    is_silent = isinstance(error, OSError) and error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH)
    return ConnectionError("%s %s" % (who, "does not answer any more" if is_silent else "has ended"))


def wrong_peer(rank: int, size: int, of_size: int) -> ValueError:
    """Return the error for a process that is not one of the group, or is there twice."""
    return ValueError(
        "a process came as rank %d of %d; this is a trial of %d processes with one of each rank"
        % (rank, size, of_size)
    )


def missing_peers(ranks: list[int], name: str = "ranks") -> TimeoutError:
    """Return the error for processes that did not come."""
    listed = ", ".join(str(rank) for rank in ranks)
    return TimeoutError("these %s did not come within %d seconds: %s" % (name, RENDEZVOUS_SECONDS, listed))
