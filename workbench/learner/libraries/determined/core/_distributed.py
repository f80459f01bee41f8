"""The processes of one trial: who is who, and what one gives to the others."""

from __future__ import annotations

import importlib
import json
import os

from . import _peers
from ._on_machine import connect_on_machine
from ._over_network import connect_over_network

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence


class DistributedContext:
    """One process of a trial, which others meet at a socket of rank 0; with a size of 1 it is alone.

    Each call of a collective has to be made by all processes, in the same order; of those whose names end with
    ``_local`` by all of one machine.
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

        Those of one machine need neither addresses nor ports. Those of several meet at ``chief_ip``, which is that of
        the first learner where it is not given.

        Args:
            rank: of this process in the trial.
            size: how many processes the trial has.
            local_rank: of this process on its machine; the first one of a machine has 0.
            local_size: how many processes each machine has.
            cross_rank: of this machine in the trial.
            cross_size: how many machines the trial has.
            chief_ip: the address of rank 0's machine.
            pub_port: the port to meet at; 0 for the job's own.
            pull_port: Determined's second port, which is not used.
            port_offset: added to ``pub_port``.
            force_tcp: not used: processes of one machine always meet without a port.

        Raises:
            ValueError: the ranks and sizes contradict one another.
            RuntimeError: there are several machines, and this is no job.
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
        _check_range("rank", self.rank, "size", self.size)
        _check_range("local_rank", self.local_rank, "local_size", self.local_size)
        _check_range("cross_rank", self.cross_rank, "cross_size", self.cross_size)
        if self.local_size * self.cross_size != self.size:
            raise ValueError(
                "size %d is not local_size %d times cross_size %d"
                % (self.size, self.local_size, self.cross_size)
            )
        if (self.rank == 0) != (self.local_rank == 0 and self.cross_rank == 0):
            raise ValueError(
                "rank 0 has local_rank 0 and cross_rank 0; here rank %d has %d and %d"
                % (self.rank, self.local_rank, self.cross_rank)
            )
        self._all = self._local = _peers.alone()
        if self.size > 1:
            number, DistributedContext._made = DistributedContext._made, DistributedContext._made + 1
            self._meet(number, chief_ip, pub_port and pub_port + port_offset)

    def _meet(self, number: int, chief_ip: str | None, port: int) -> None:
        if self.cross_size == 1:
            self._all = self._local = connect_on_machine(self.rank, self.size, number)
            return
        if self.local_size > 1:
            who = {"name": "local rank %d of this machine", "ranks": "local ranks"}
            self._local = connect_on_machine(self.local_rank, self.local_size, number, **who)
        address = chief_ip or os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR") or "127.0.0.1"
        self._all = connect_over_network(self.rank, self.size, number, address, port)

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
            RuntimeError: ``TF_CONFIG`` is of another task than a worker, or of several machines, and this is no job.
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
            index, machines = task["index"], [address.rpartition(":")[0] for address in workers]
            apart = {"local_rank": 0, "local_size": 1, "cross_rank": index, "cross_size": len(workers)}
            is_apart = len(set(machines)) > 1
            context = cls(rank=index, size=len(workers), chief_ip=machines[0], **(apart if is_apart else {}))
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
        self._all.close()
        self._local.close()

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
        return self._all.gather(stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Return what rank 0 gives."""
        return self._all.broadcast(stuff)

    def allgather(self, stuff: Any) -> list[Any]:
        """Return what all processes give, by rank."""
        return self._all.allgather(stuff)

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Return what the processes of this machine give, by local rank, to the first of them; None to the others."""
        return self._local.gather(stuff)

    def broadcast_local(self, stuff: Any) -> Any:
        """Return what the first process of this machine gives."""
        return self._local.broadcast(stuff)

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Return what the processes of this machine give, by local rank."""
        return self._local.allgather(stuff)

    def send(self, rank: int, data: bytes) -> None:
        """Give bytes to one process; of rank 0's with any other, and of any other with rank 0."""
        self._all.send(rank, data)

    def receive(self, rank: int) -> bytes:
        """Return what :meth:`send` of one process gives to this one."""
        return self._all.receive(rank)


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


def _check_range(name: str, rank: int, size_name: str, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(
            "%s %d is not from 0 to %d, one less than the %s" % (name, rank, size - 1, size_name)
        )
