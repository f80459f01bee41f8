"""The processes of one trial on one machine: who is who, and what one gives to the others."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import json
import os
import pickle
import socket
import stat
import struct
import tempfile
import time

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

MEET_SECONDS = 600.0
"""How long the processes wait for one another at the beginning: they may import for minutes."""
RETRY_SECONDS = 0.05
PATH_MAX = 100
"""Of a socket's path, in bytes; the kernel takes 107."""
_LENGTH = struct.Struct("!Q")
_CREDENTIALS = struct.Struct("iII")
"""pid, uid and gid of the process at the other end of a socket: unix(7), SO_PEERCRED."""
_NAMED_BY = ("FABRIC_LEARNER", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
"""Variables that are alike in all processes of a trial and differ in those of another."""


class DistributedContext:
    """One process of a trial, which others meet at a socket of rank 0; with a size of 1 it is alone.

    Each call of a collective has to be made by all processes, in the same order.
    """

    _made = 0

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int = 0,
        pull_port: int = 0,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        """Meet the other processes.

        Ports and addresses of Determined are accepted and not used: the processes are on one machine.

        Raises:
            ValueError: the ranks and sizes contradict one another.
            NotImplementedError: the processes are on several machines.
            TimeoutError: another process did not come within ten minutes.
        """
        given = (local_rank, local_size, cross_rank, cross_size)
        if any(each is None for each in given) and any(each is not None for each in given):
            raise ValueError("local_rank, local_size, cross_rank and cross_size are given together, or none")
        self.rank = int(rank)
        self.size = int(size)
        self.local_rank = self.rank if local_rank is None else int(local_rank)
        self.local_size = self.size if local_size is None else int(local_size)
        self.cross_rank = int(cross_rank or 0)
        self.cross_size = 1 if cross_size is None else int(cross_size)
        if not 0 <= self.rank < self.size:
            raise ValueError("rank %d is not from 0 to %d, one less than the size" % (rank, self.size - 1))
        if self.cross_size != 1:
            raise NotImplementedError(
                "DistributedContext over several machines is not there; torch.distributed of the code itself works"
            )
        if self.local_size * self.cross_size != self.size:
            raise ValueError(
                "size %d is not local_size %d times cross_size %d"
                % (self.size, self.local_size, self.cross_size)
            )
        self._path = ""
        self._peers: dict[int, socket.socket] = {}
        number, DistributedContext._made = DistributedContext._made, DistributedContext._made + 1
        if self.size > 1:
            if self.rank == 0:
                self._wait_for_others(_name(number))
            else:
                self._join(_name(number))

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Return the context of a process that torch.distributed.run has started.

        Raises:
            ValueError: its variables are not there.
        """
        return cls._from_variables(
            "torch.distributed.run",
            ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
            chief_ip,
        )

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> DistributedContext:
        """Return the context of a process of Horovod, whose module is given."""
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=chief_ip,
        )

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Return the context of a process that DeepSpeed's launcher has started.

        Raises:
            ValueError: its variables are not there.
        """
        return cls._from_variables(
            "DeepSpeed's launcher",
            ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"),
            chief_ip,
        )

    @classmethod
    def _from_variables(cls, launcher: str, names: Sequence[str], chief_ip: str | None) -> DistributedContext:
        try:
            numbers = [int(os.environ[name]) for name in names]
        except KeyError as error:
            raise ValueError(
                "%s is not set: this process was not started by %s" % (error, launcher)
            ) from error
        rank, size, local_rank, local_size, cross_rank, cross_size = numbers
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            chief_ip=chief_ip,
        )

    @classmethod
    def from_tf_config(cls) -> tuple[DistributedContext, Any]:
        """Return the context of a process of TensorFlow, and the ``tf.distribute.Strategy`` that it is to use.

        By ``TF_CONFIG`` of several workers that is ``MultiWorkerMirroredStrategy``; without it of several GPUs
        ``MirroredStrategy``, else the default one.

        Raises:
            RuntimeError: ``TF_CONFIG`` is of another task than a worker.
            NotImplementedError: the workers are on several machines.
        """
        tf = importlib.import_module("tensorflow")
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        workers, task = (config.get("cluster") or {}).get("worker") or [], config.get("task") or {}
        if config and task.get("type") != "worker":
            raise RuntimeError(
                "DistributedContext.from_tf_config() knows workers alone, and TF_CONFIG has the task %r"
                % task.get("type")
            )
        if len(workers) > 1:
            index, machines = task["index"], {address.rpartition(":")[0] for address in workers}
            apart = {"local_rank": 0, "local_size": 1, "cross_rank": index, "cross_size": len(machines)}
            context = cls(rank=index, size=len(workers), **(apart if len(machines) > 1 else {}))
            return context, tf.distribute.MultiWorkerMirroredStrategy()
        several = len(tf.config.list_physical_devices("GPU")) > 1
        strategy = tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
        return cls(rank=0, size=1), strategy

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the others; what they were given before still reaches them."""
        for peer in self._peers.values():
            peer.close()
        self._peers = {}
        self._remove_socket()

    def get_rank(self) -> int:
        """Return the number of this process in the trial."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return the number of this process on its machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Return how many processes the trial has."""
        return self.size

    def get_num_agents(self) -> int:
        """Return how many machines the trial has."""
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return what all processes give, by rank, to rank 0; None to the others."""
        if self.size == 1:
            return [stuff]
        if self.rank:
            self._send(0, pickle.dumps(stuff))
            return None
        return [stuff, *(pickle.loads(self._receive(rank)) for rank in range(1, self.size))]

    def broadcast(self, stuff: Any) -> Any:
        """Return what rank 0 gives."""
        if self.size == 1:
            return stuff
        if self.rank:
            return pickle.loads(self._receive(0))
        data = pickle.dumps(stuff)
        for rank in range(1, self.size):
            self._send(rank, data)
        return stuff

    def allgather(self, stuff: Any) -> list[Any]:
        """Return what all processes give, by rank."""
        gathered: list[Any] = self.broadcast(self.gather(stuff))
        return gathered

    # On one machine, all are local.
    gather_local = gather
    broadcast_local = broadcast
    allgather_local = allgather

    def _wait_for_others(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            self._path = _bind(door, name)
            atexit.register(self._remove_socket)
            door.listen(self.size)
            until = time.monotonic() + MEET_SECONDS
            while len(self._peers) < self.size - 1:
                door.settimeout(max(until - time.monotonic(), 0.001))
                try:
                    peer, _ = door.accept()
                except socket.timeout:
                    missing = [str(each) for each in range(1, self.size) if each not in self._peers]
                    raise TimeoutError(
                        "these ranks did not come within %d seconds: %s" % (MEET_SECONDS, ", ".join(missing))
                    ) from None
                if _is_own(peer):
                    self._greet(peer)
                else:
                    peer.close()

    def _greet(self, peer: socket.socket) -> None:
        peer.settimeout(None)
        rank, size = pickle.loads(_read(peer, "a process that has just come"))
        if size != self.size or rank in self._peers or not 0 < rank < self.size:
            raise ValueError(
                "a process came as rank %d of %d; this is a trial of %d processes with one of each rank"
                % (rank, size, self.size)
            )
        self._peers[rank] = peer

    def _join(self, name: str) -> None:
        until = time.monotonic() + MEET_SECONDS
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.connect(os.path.join(_own_folder(), name))
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
                if time.monotonic() > until:
                    raise TimeoutError("rank 0 did not come within %d seconds" % MEET_SECONDS) from None
                time.sleep(RETRY_SECONDS)
                continue
            if not _is_own(peer):
                peer.close()
                raise PermissionError("the socket of rank 0 of this trial is another user's")
            self._peers[0] = peer
            self._send(0, pickle.dumps((self.rank, self.size)))
            return

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._peers[rank].sendall(_LENGTH.pack(len(data)) + data)
        except (OSError, KeyError) as error:
            raise ConnectionError("rank %d of the trial has ended" % rank) from error

    def _receive(self, rank: int) -> bytes:
        if rank not in self._peers:
            raise ConnectionError("the DistributedContext is closed")
        return _read(self._peers[rank], "rank %d of the trial" % rank)

    def _remove_socket(self) -> None:
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
                os.rmdir(os.path.dirname(self._path))  # refused while another trial's socket is there
            self._path = ""


class DummyDistributedContext(DistributedContext):
    """The context of a trial of one process, as code makes it itself."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)


def alone() -> DistributedContext:
    """Return the context of a trial of one process."""
    return DistributedContext(rank=0, size=1)


def merged_metadata(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a sharded checkpoint: maps are merged.

    Raises:
        RuntimeError: two processes give different values of one name.
    """
    merged: dict[str, Any] = {}
    for part in parts:
        _merge(merged, part, "")
    return merged


def _merge(into: dict[str, Any], part: Mapping[str, Any], path: str) -> None:
    for name, value in part.items():
        known = into.get(name)
        if name not in into:
            into[name] = dict(value) if isinstance(value, dict) else value
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value, "%s%s." % (path, name))
        elif known != value:
            raise RuntimeError(
                "the processes give different metadata of %s%s: %r and %r" % (path, name, known, value)
            )


def _read(peer: socket.socket, who: str) -> bytes:
    def exactly(count: int) -> bytes:
        parts = []
        while count:
            try:
                part = peer.recv(min(count, 1 << 20))
            except OSError:
                part = b""
            if not part:
                raise ConnectionError("%s has ended" % who)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    return exactly(int(_LENGTH.unpack(exactly(_LENGTH.size))[0]))


def _is_own(peer: socket.socket) -> bool:
    """Whether the other process is this user's, as far as the system tells: what it sends is unpickled."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is this user's alone
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.getuid())


def _bind(door: socket.socket, name: str) -> str:
    """Bind a socket in this user's folder, which another trial that ends may remove at any moment; return its path."""
    until = time.monotonic() + MEET_SECONDS
    while True:
        try:
            path = os.path.join(_own_folder(), name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            door.bind(path)
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
