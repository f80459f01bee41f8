"""A launch in stages, which the hosts of a multi-node attempt go through together: all get their slots, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from workbench.values import dataclass

LOOPBACK: Final = "127.0.0.1"
"""Where the learners of one host meet."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the learners of an attempt meet: ``MASTER_ADDR`` and ``MASTER_PORT``."""

    address: str
    port: int

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a learner's command that say so."""
        return {"MASTER_ADDR": self.address, "MASTER_PORT": str(self.port)}


class StagedLaunch(Protocol):
    """The launch of those learners of one attempt that are at one host.

    The order is :meth:`pending`, :meth:`prepare`, :meth:`lease`, :meth:`leave_line`, :meth:`choose_port` at the first
    learner's host alone, :meth:`start`, :meth:`release`, :meth:`await_begun`. It can be cut off at any instant and
    repeated.
    """

    def pending(self) -> list[int]:
        """Return the numbers of the learners whose agents must be started; waits for agents that are starting."""

    def rendezvous(self) -> Rendezvous | None:
        """Return where learners that have begun here meet; None where none has."""

    def prepare(self, waiting: Sequence[int]) -> None:
        """Bring what these learners need to the host: image, code, environment. Nothing is started.

        Raises:
            LaunchRefused: a retry cannot help.
        """

    def lease(self, waiting: Sequence[int]) -> None:
        """Lease the GPUs of these learners, and hold them until :meth:`start` or :meth:`release`.

        Raises:
            SlotsBusy: not enough are free; none is held then. Others may have begun, here too.
            LaunchRefused: the host does not have so many.
        """

    def refuse_too_few(self, waiting: Sequence[int]) -> None:
        """Refuse the job if the host never has the GPUs of these learners; nothing is leased.

        Raises:
            LaunchRefused: it has fewer.
        """

    def leave_line(self) -> None:
        """Leave the host's queue, once all hosts have leased what the job needs there."""

    def choose_port(self, port: int | None = None) -> int:
        """Choose a free ``MASTER_PORT`` at this host, and hold it until the first learner's agent inherits it.

        Args:
            port: the one that it has to be, where other learners have begun that look for it.

        Raises:
            RunnerError: it is not free, or none is.
        """

    def start(self, waiting: Sequence[int], rendezvous: Rendezvous | None) -> None:
        """Start the agents of these learners, with the slots that :meth:`lease` holds.

        Args:
            waiting: their numbers.
            rendezvous: where all learners meet; None at a host that has all of them, where processes choose a port of
                it, and containers have a network of their own.
        """

    def release(self) -> None:
        """Release slots and ports that no agent has inherited. May be repeated."""

    def await_begun(self, waiting: Sequence[int]) -> None:
        """Wait until the agents of these learners have begun.

        Raises:
            RunnerError: one ended before it began.
        """

    def stop_begun(self) -> None:
        """Kill the learners that have begun: those at another host cannot be started."""
