"""Launches an attempt over several hosts: all of them get their slots, or none does; their learners can meet."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, TypeVar

from backends.contract.host import Host
from runners.interface import LaunchProgress
from runners.multinode.calls import CalledOff, answers_of, at_each, naming
from runners.shared.staged_launch import LOOPBACK, Rendezvous, StagedLaunch
from workbench.errors import FabricError, LaunchRefused, RunnerError, SlotsBusy
from workbench.learner.queue.allocation import PORTS

T = TypeVar("T")


class GroupProgress:
    """The progress of one launch at several hosts: it names the host, and ends all where one has failed."""

    def __init__(self, progress: LaunchProgress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._is_ended = False

    def call_off(self, _: BaseException) -> None:
        """Let every host that reports progress from now on go no further."""
        self._is_ended = True

    def of(self, host: str) -> LaunchProgress:
        """Return what takes the progress at one host."""

        def report(text: str, *, stage: Literal["preparing", "waiting", "starting"]) -> None:
            with self._lock:
                if self._is_ended:
                    raise CalledOff
                self._progress(f"{host}: {text}", stage=stage)

        return report


class GroupLaunch:
    """The launch of one attempt.

    Args:
        hosts: by name; the first learners are at the first.
        launches: the part of each host.
        learners: the numbers of all learners of each host.
        progress: that of the whole.
        gather: brings here what earlier attempts have made, where the hosts do not have it.
        attempt: its number.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        launches: Mapping[str, StagedLaunch],
        learners: Mapping[str, Sequence[int]],
        progress: GroupProgress,
        gather: Callable[[], None],
        *,
        attempt: int,
    ) -> None:
        self._hosts = hosts
        self._launches = launches
        self._learners = learners
        self._progress = progress
        self._gather = gather
        self._attempt = attempt

    def launch(self) -> None:
        """Start the learners that have not begun. It can be cut off at any instant and repeated."""
        pending = self._at(list(self._hosts), lambda launch, _: launch.pending())
        waiting = {host: numbers for host, numbers in pending.items() if numbers}
        if not waiting:
            return
        have_begun = any(len(pending[host]) < len(numbers) for host, numbers in self._learners.items())
        if not have_begun:  # what has begun writes its own
            self._gather()
        self._at(list(waiting), lambda launch, host: launch.prepare(waiting[host]))
        try:
            self._lease(waiting, have_begun)
            rendezvous = (self._rendezvous(waiting) if have_begun else None) or self._meet()
            self._at(list(waiting), lambda launch, host: launch.start(waiting[host], rendezvous))
        finally:
            for launch in self._launches.values():
                with contextlib.suppress(FabricError, OSError):  # a lost connection has released them
                    launch.release()
        self._at(list(waiting), lambda launch, host: launch.await_begun(waiting[host]))

    def _at(self, hosts: Sequence[str], call: Callable[[StagedLaunch, str], T]) -> dict[str, T]:
        return at_each(hosts, lambda host: call(self._launches[host], host), self._progress.call_off)

    def _lease(self, waiting: Mapping[str, Sequence[int]], have_begun: bool) -> None:
        """Lease the slots of all hosts, one after the other; the job stays in all their queues until it has all.

        Where one is busy the job waits for it, unless a later one could never run it.
        """
        for number, (host, numbers) in enumerate(waiting.items(), 1):
            try:
                with naming(host):
                    self._launches[host].lease(numbers)
            except SlotsBusy as busy:
                if have_begun:
                    self._give_up(busy)
                others = list(waiting)[number:]
                errors = answers_of(others, lambda name: self._launches[name].refuse_too_few(waiting[name]))[
                    1
                ]
                raise next((error for error in errors if isinstance(error, LaunchRefused)), busy) from None
        self._at(list(waiting), lambda launch, _: launch.leave_line())

    def _give_up(self, error: FabricError) -> NoReturn:
        """End what has begun of a launch that was cut off, since the rest cannot be started."""
        self._at(list(self._hosts), lambda launch, _: launch.stop_begun())
        raise RunnerError(
            f"The launch was interrupted, and other jobs took what it still needs: {error.message}"
        ) from error

    def _rendezvous(self, waiting: Mapping[str, Sequence[int]]) -> Rendezvous | None:
        """Return where learners meet that have begun; its port is free where the first one has not."""
        found = self._at(list(self._hosts), lambda launch, _: launch.rendezvous())
        rendezvous = next((one for one in found.values() if one is not None), None)
        first = next(iter(self._hosts))
        if rendezvous is not None and 1 in waiting.get(first, ()):
            try:
                with naming(first):
                    self._launches[first].choose_port(rendezvous.port)
            except RunnerError as error:
                self._give_up(error)
        return rendezvous

    def _meet(self) -> Rendezvous:
        """Choose where they are to meet: at the first host."""
        first = next(iter(self._hosts))
        with naming(first):
            port = self._launches[first].choose_port()
        return Rendezvous(find_address(self._hosts, port, is_final=self._attempt == 1), port)


LISTEN_SECONDS: Final = 60.0
"""How long the first host listens at most, should nobody end it."""

TRY_SECONDS: Final = 4.0
"""How long an address may take to answer."""


TRIES: Final = 3
"""How often all addresses are tried: a network may fail for a moment."""

_PAUSE_SECONDS: Final = 0.5


def find_address(hosts: Mapping[str, Host], port: int, *, is_final: bool = True) -> str:
    """Return the first address at which every host reaches the first one on a port that is free there.

    The first host tries them, too: its learner connects to itself.

    Args:
        hosts: by name.
        port: the port.
        is_final: whether a retry cannot help; it may where they have met before.

    Raises:
        LaunchRefused: there is none.
        RunnerError: so, if it is not final.
    """
    first = next(iter(hosts))
    with naming(first):
        meeting = hosts[first].call("begin_meeting", port=port, seconds=LISTEN_SECONDS)
    try:
        candidates = _candidates(hosts[first], meeting["addresses"])
        for left in reversed(range(TRIES)):
            reached = at_each(list(hosts), lambda name: _reached(hosts[name], candidates, port, meeting))
            for address in candidates:
                if all(address in those for those in reached.values()):
                    return address
            if left:
                time.sleep(_PAUSE_SECONDS)
    finally:
        with contextlib.suppress(FabricError):  # it ends by itself
            hosts[first].call("end_meeting", token=meeting["token"])
    refused = _unreached(first, candidates, port, reached)
    raise refused if is_final else RunnerError(refused.message, hint=refused.hint)


def _candidates(host: Host, own: Sequence[str]) -> list[str]:
    """Return the addresses to try, the best first: the one that the user names, then the host's own."""
    return list(dict.fromkeys(filter(None, (host.internal_address, *own, host.reached_at, LOOPBACK))))


def _reached(host: Host, addresses: Sequence[str], port: int, meeting: Mapping[str, Any]) -> list[str]:
    found: list[str] = host.call(
        "join_meeting", addresses=list(addresses), port=port, token=meeting["token"], seconds=TRY_SECONDS
    )
    return found


def _unreached(
    first: str, candidates: Sequence[str], port: int, reached: Mapping[str, Sequence[str]]
) -> LaunchRefused:
    tried = ", ".join(address for address in candidates if address != LOOPBACK) or LOOPBACK
    none = [name for name, those in reached.items() if not those]
    who = " and ".join(none) if none else ", ".join(reached)
    common = "any" if none else "one and the same"
    return LaunchRefused(
        f"The learners cannot meet: {who} cannot reach {first} at {common} of its addresses ({tried})"
        f" on port {port}.",
        hint=f"Open its ports {PORTS.start} to {PORTS.stop - 1} for them in its firewall, and those of the framework"
        " (NCCL and gloo take any, at the interface that NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME name); or name the"
        f" address by which they reach it by the setting internal_address of {first}.",
        code="C104",
    )
