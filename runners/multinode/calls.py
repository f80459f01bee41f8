"""Calls to several hosts at once: one answer of each, or news of any; what fails says at which host."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

from backends.contract.absent_host import begins_with
from backends.contract.host import Chunk, Host
from runners.interface import AttemptRef, EarlyBytes, LearnerRef, LearnerStatus, Observation, Runner
from workbench.errors import FabricError
from workbench.values import dataclass

T = TypeVar("T")
Answer = TypeVar("Answer")


class CalledOff(Exception):
    """Raised where a call at another host has failed before; the caller gets that host's error."""


@contextlib.contextmanager
def naming(host: str) -> Iterator[None]:
    """Have an error say which host it comes from, unless it does so already."""
    try:
        yield
    except FabricError as error:
        if not begins_with(error.message, host):
            error.message = f"{host}: {error.message}"
            error.args = (error.message,)
        raise


def at_each(
    hosts: Sequence[str],
    call: Callable[[str], T],
    failed: Callable[[BaseException], Any] = lambda error: None,
) -> dict[str, T]:
    """Call something for each host at the same time; wait for all, then raise what failed first, if anything did.

    Args:
        hosts: their names.
        call: gets a name; it is called in a thread of its own for each but one.
        failed: gets each error as soon as it was raised.
    """
    answers, errors = answers_of(hosts, call, failed)
    if errors:
        raise first_of(errors)
    return answers


def first_of(errors: Sequence[BaseException]) -> BaseException:
    """Return the error to raise of those of several hosts, in the order in which they were raised."""
    return next((error for error in errors if not isinstance(error, CalledOff)), errors[0])


def answers_of(
    hosts: Sequence[str],
    call: Callable[[str], T],
    failed: Callable[[BaseException], Any] = lambda error: None,
) -> tuple[dict[str, T], list[BaseException]]:
    """As :func:`at_each`, but return what the hosts have answered, in their order, and what was raised."""
    answers: dict[str, T] = {}
    errors: list[BaseException] = []
    noting: Final = threading.Lock()

    def run(host: str) -> None:
        try:
            with naming(host):
                answer = call(host)
        except KeyboardInterrupt as error:  # in the caller's own thread: it does not wait for the others
            failed(error)
            raise
        except BaseException as error:
            with noting:
                errors.append(error)
            failed(error)
            return
        with noting:
            answers[host] = answer

    threads = [
        threading.Thread(target=copy_context().run, args=(run, host), name=f"at {host}", daemon=True)
        for host in hosts[1:]
    ]
    for thread in threads:
        thread.start()
    for host in hosts[:1]:
        run(host)
    for thread in threads:
        thread.join()
    return {host: answers[host] for host in hosts if host in answers}, errors


POLL_SECONDS: Final = 60.0
"""How long a host is asked for news at once; it goes on while the caller is back with those of another host."""

CLOSE_SECONDS: Final = 5.0
"""How long a host that does not answer may hold up the end of its thread, which then ends by itself."""


class HostPoll(Generic[Answer]):
    """One host's thread, and the call that it makes: one at a time.

    Args:
        host: its name.
        changed: notified when a call has ended; all but the constructor is called with its lock held.
        interrupt: makes the call, or the next one, return early; called in a thread of its own.
    """

    def __init__(self, host: str, changed: threading.Condition, interrupt: Callable[[], None]) -> None:
        self.host = host
        self._changed = changed
        self._interrupt = interrupt
        self._call: Callable[[], Answer] | None = None
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._is_ended = False
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or its answer was not taken."""
        return self._call is not None or self._answer is not None or self._error is not None

    def ask(self, call: Callable[[], Answer]) -> None:
        """Make a call; the poll is not busy."""
        self._call = call
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=f"poll {self.host}", daemon=True)
            try:
                thread.start()
            except BaseException:
                self._call = None
                raise
            self._thread = thread
        self._changed.notify_all()

    def take(self, troubles: dict[str, BaseException]) -> Answer | None:
        """Return the answer once; None where there is none yet.

        Args:
            troubles: gets what the call has raised, by the host's name.
        """
        error, self._error = self._error, None
        if error is not None:
            troubles[self.host] = error
        answer, self._answer = self._answer, None
        return answer

    def hurry(self) -> None:
        """Let a call that is under way return early."""
        if self._call is not None:
            threading.Thread(target=self._interrupted, name=f"interrupt {self.host}", daemon=True).start()

    def end(self) -> threading.Thread | None:
        """Make no more calls; return the thread, which ends soon."""
        self._is_ended = True
        self.hurry()
        self._changed.notify_all()
        return self._thread

    def _interrupted(self) -> None:
        with contextlib.suppress(FabricError):  # a lost connection ends the call by itself
            self._interrupt()

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._call is None and not self._is_ended:
                    self._changed.wait()
                if self._is_ended or self._call is None:
                    return
                call = self._call
            answer, error = None, None
            try:
                with naming(self.host):
                    answer = call()
            except BaseException as raised:
                error = raised
            with self._changed:
                self._call = None
                self._answer, self._error = answer, error
                self._changed.notify_all()


class _Polling(Generic[Answer]):
    """The polls of one kind of several hosts."""

    def __init__(self, interrupts: Mapping[str, Callable[[], None]]) -> None:
        self._changed = threading.Condition()
        self._is_interrupted = False
        self._polls = {
            host: HostPoll[Answer](host, self._changed, interrupt) for host, interrupt in interrupts.items()
        }

    def interrupt(self) -> None:
        """Make a blocked call, or the next one, return early."""
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads."""
        with self._changed:
            threads = [poll.end() for poll in self._polls.values()]
        until = time.monotonic() + CLOSE_SECONDS
        for thread in threads:
            if thread is not None:
                thread.join(max(0.0, until - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Returned:
    """What was returned last of several hosts."""

    attempts: frozenset[AttemptRef]
    statuses: Mapping[LearnerRef, LearnerStatus]


_returned: Final[dict[tuple[str, ...], _Returned]] = {}
"""By home and hosts. Runners come and go, at each failure; what changes at one host while another is away is seen by
comparison with it."""


class GroupObservations(_Polling[Observation]):
    """The observations of several hosts as those of one.

    A host that does not answer hides no news of the others: they are returned first, and its error is raised where
    there are none. A first answer has to be complete: then those at this host are as they were returned last, and where
    they never were, as after a start of the controller, nothing is returned before it answers.

    Args:
        hosts: by name.
        runners: their runners.
        home_uuid: whose learners they are.
        part_of: returns which learners of an attempt a host has, None for none.
    """

    def __init__(
        self,
        hosts: Mapping[str, Host],
        runners: Mapping[str, Runner],
        home_uuid: str,
        part_of: Callable[[str, AttemptRef], AttemptRef | None],
    ) -> None:
        super().__init__({host: runner.interrupt for host, runner in runners.items()})
        self._hosts = hosts
        self._runners = runners
        self._key = (home_uuid, *hosts)
        self._part_of = part_of
        self._attempts: tuple[AttemptRef, ...] | None = None
        self._parts: dict[str, tuple[AttemptRef, ...]] = {}
        self._asked: dict[str, frozenset[AttemptRef]] = {}
        self._statuses: dict[str, dict[LearnerRef, LearnerStatus]] = {}
        """By host; of the learners of those attempts that it was asked for when it last returned all."""
        self._whole: dict[str, frozenset[AttemptRef]] = {}
        """By host, those attempts."""
        self._news: dict[LearnerRef, LearnerStatus] = {}
        self._troubles: dict[str, BaseException] = {}
        """By host; it is asked again once its trouble was raised."""
        self._has_returned = False

    def observe(self, attempts: Sequence[AttemptRef], timeout_seconds: float) -> Observation:
        """Return the statuses of these attempts' learners when one has changed, at any host."""
        until = time.monotonic() + timeout_seconds
        with self._changed:
            whole = self._attempts is None or set(self._attempts) != set(attempts)
            if whole:
                self._attempts = None
                self._want(attempts)
            while True:
                self._take()
                self._ask()
                if whole:
                    if self._is_answered():
                        return self._return_all(attempts)
                    # The next call returns all. A first answer is complete, whoever waits for it.
                    if self._has_returned and self._is_interrupted:
                        self._is_interrupted = False
                        return Observation((), False)
                elif self._news or self._is_interrupted or time.monotonic() >= until:
                    break
                elif self._troubles:
                    self._raise()
                self._changed.wait(None if whole else max(0.0, until - time.monotonic()))
            self._is_interrupted = False
            news, self._news = self._news, {}
            if news:
                self._remember(attempts, {**self._before(), **news})
            return Observation(tuple(news.values()), False)

    def statuses(self) -> Mapping[LearnerRef, LearnerStatus]:
        """Return the last status of each learner that has one."""
        with self._changed:
            return self._found(self._parts)

    def _is_answered(self) -> bool:
        """Say whether each host has returned all, or cannot."""
        return all(
            not parts or host in self._troubles or self._whole.get(host) == frozenset(parts)
            for host, parts in self._parts.items()
        )

    def _return_all(self, attempts: Sequence[AttemptRef]) -> Observation:
        """Return all statuses; while hosts are away, only where others have changed, and theirs as they were.

        Raises:
            Exception: the trouble of such a host.
        """
        away = [host for host, parts in self._parts.items() if parts and host in self._troubles]
        found = self._found([host for host in self._parts if host not in away])
        if away:
            before = self._before()
            theirs = [ref for host in away for ref in self._refs(host)]
            others = [ref for host in self._parts if host not in away for ref in self._refs(host)]
            begun = {(ref.job_id, ref.attempt) for ref in (*found, *before)}
            known = _returned.get(self._key)
            if (
                known is None
                or not known.attempts >= set(attempts)
                # One that is left out of all is taken for lost.
                or any(ref not in before and (ref.job_id, ref.attempt) in begun for ref in theirs)
                or found == {ref: before[ref] for ref in others if ref in before}
            ):
                self._raise()
            found |= {ref: before[ref] for ref in theirs if ref in before}
        self._is_interrupted, self._has_returned = False, True
        self._attempts, self._news = tuple(attempts), {}
        self._remember(attempts, found)
        return Observation(tuple(found.values()), True)

    def _raise(self) -> NoReturn:
        """Raise the first trouble, and ask all hosts again with the next call."""
        troubles, self._troubles = self._troubles, {}
        raise first_of(list(troubles.values()))

    def _before(self) -> Mapping[LearnerRef, LearnerStatus]:
        known = _returned.get(self._key)
        return {} if known is None else known.statuses

    def _remember(self, attempts: Sequence[AttemptRef], statuses: Mapping[LearnerRef, LearnerStatus]) -> None:
        _returned[self._key] = _Returned(frozenset(attempts), statuses)

    def _refs(self, host: str) -> list[LearnerRef]:
        return [
            LearnerRef(part.home, part.job_id, part.attempt, number)
            for part in self._parts[host]
            for number in part.numbers
        ]

    def _found(self, hosts: Collection[str]) -> dict[LearnerRef, LearnerStatus]:
        known = (self._statuses[host] for host in hosts if self._parts[host] and host in self._statuses)
        return {ref: status for found in known for ref, status in found.items()}

    def _want(self, attempts: Sequence[AttemptRef]) -> None:
        for host in self._runners:
            parts = tuple(part for one in attempts if (part := self._part_of(host, one)) is not None)
            self._parts[host] = parts
            if self._asked.get(host) != frozenset(parts):
                self._polls[host].hurry()

    def _ask(self) -> None:
        for host, poll in self._polls.items():
            parts = self._parts[host]
            if parts and not poll.is_busy and host not in self._troubles:
                self._asked[host] = frozenset(parts)
                poll.ask(partial(self._ask_one, host, parts))

    def _ask_one(self, host: str, parts: Sequence[AttemptRef]) -> Observation:
        """Ask one host, in its thread; times are by our clock, by which those of several hosts can be compared."""
        ahead_us = self._hosts[host].clock_ahead_us()  # before: what was observed comes once
        observation = self._runners[host].observe(parts, timeout_seconds=POLL_SECONDS)
        seen = tuple(_by_our_clock(replace(status, node=host), ahead_us) for status in observation.seen)
        return replace(observation, seen=seen)

    def _take(self) -> None:
        for host, poll in self._polls.items():
            answer = poll.take(self._troubles)
            if not self._parts[host]:
                self._troubles.pop(host, None)
            if answer is None:
                continue
            found = {status.ref: status for status in answer.seen}
            if answer.whole:
                self._statuses[host], self._whole[host] = found, self._asked[host]
            else:
                self._statuses.setdefault(host, {}).update(found)
            if self._asked[host] == frozenset(self._parts[host]):
                self._news |= found


def _by_our_clock(status: LearnerStatus, ahead_us: int) -> LearnerStatus:
    if not ahead_us:
        return status
    started_us, ended_us = (
        None if time_us is None else time_us - ahead_us for time_us in (status.started_us, status.ended_us)
    )
    return replace(status, started_us=started_us, ended_us=ended_us)


OTHERS_SECONDS: Final = 5.0
"""How long the other hosts are waited for once one cannot be followed: the caller begins again after its error."""


class GroupFollows(_Polling[Mapping[LearnerRef, Mapping[str, Chunk]]]):
    """The journals of several hosts as those of one; which host has a learner it finds out by itself."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        super().__init__({host: runner.interrupt_follow for host, runner in runners.items()})
        self._runners = runners
        self._asked: dict[str, frozenset[LearnerRef]] = {}

    def follow(
        self,
        known: Mapping[LearnerRef, Mapping[str, int]],
        timeout_seconds: float,
        early: EarlyBytes | None,
    ) -> Mapping[LearnerRef, Mapping[str, Chunk]]:
        """Wait until journals of learners have new content at any host, and return it.

        Raises:
            Exception: what one of them has raised, where the others have nothing new.
        """
        until = time.monotonic() + timeout_seconds
        troubles: dict[str, BaseException] = {}
        news: dict[LearnerRef, Mapping[str, Chunk]] = {}
        refs = frozenset(known)
        with self._changed:
            for host, poll in self._polls.items():
                if self._asked.get(host) != refs:
                    poll.hurry()
            while True:
                for poll in self._polls.values():
                    answer = poll.take(troubles)
                    for ref, parts in (answer or {}).items():
                        if ref in known:
                            news[ref] = {**news.get(ref, {}), **parts}
                if troubles:
                    until = min(until, time.monotonic() + OTHERS_SECONDS)
                if troubles and not news and (time.monotonic() >= until or len(troubles) == len(self._polls)):
                    raise first_of(list(troubles.values()))
                if news or self._is_interrupted or time.monotonic() >= until:
                    self._is_interrupted = False
                    return news
                for host, poll in self._polls.items():
                    if not poll.is_busy and host not in troubles:
                        self._asked[host] = refs
                        poll.ask(self._question(host, known, early))
                self._changed.wait(max(0.0, until - time.monotonic()))

    def _question(
        self, host: str, known: Mapping[LearnerRef, Mapping[str, int]], early: EarlyBytes | None
    ) -> Callable[[], Mapping[LearnerRef, Mapping[str, Chunk]]]:
        runner, asked = self._runners[host], {ref: dict(offsets) for ref, offsets in known.items()}
        return partial(runner.follow, asked, timeout_seconds=POLL_SECONDS, early=early)
