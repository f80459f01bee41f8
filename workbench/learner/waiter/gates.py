"""What holds an attempt back before it waits for GPUs or CPUs: a time of day, the jobs before it, its sweep's limit.

The controller hands an attempt over with its gates while they are closed. A gate is opened here only where it is
certain that the controller would open it, too, by what the predecessor's agents recorded at this host. In doubt it
stays closed, and the controller decides when it is back: it sends the gates anew, without those that are open.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from workbench.learner.journal import state
from workbench.learner.journal.launch_document import PREEMPT

State = Mapping[str, Any]
"""The content of a learner's ``state.json``; empty where there is none."""

_PLATFORM = "S"
"""The codes of what is the platform's fault begin so; such failures have restarts of their own."""

_BY_A_PERSON = ("halt", "kill")
"""Values of ``stopped`` of a learner that somebody asked to stop: a person, or the controller, whose attempt may be
followed by another."""


class AwaitedAttempt(NamedTuple):
    """An attempt of a job that comes before, with the folders of its learners at this host."""

    job: str
    attempt: int
    may_fail: bool
    """Whether it need only end; else it has to complete."""
    restarts_left: int
    """How many attempts may follow a failure that is the user's fault."""
    platform_restarts_left: int
    folders: Tuple[str, ...]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> AwaitedAttempt:
        """Return what a document says.

        Raises:
            KeyError: it lacks something.
            TypeError: something in it is of another kind.
            ValueError: the same.
        """
        return cls(
            job=str(document["job"]),
            attempt=int(document["attempt"]),
            may_fail=bool(document["ended"]),
            restarts_left=int(document.get("restarts_left", 1)),
            platform_restarts_left=int(document.get("platform_restarts_left", 1)),
            folders=tuple(str(folder) for folder in document["learners"]),
        )

    def to_json(self) -> Dict[str, Any]:
        """Return the document that says it."""
        return {
            "job": self.job,
            "attempt": self.attempt,
            "ended": self.may_fail,
            "restarts_left": self.restarts_left,
            "platform_restarts_left": self.platform_restarts_left,
            "learners": list(self.folders),
        }


class TicketLimit(NamedTuple):
    """How many attempts of one sweep may be under way at once."""

    sweep: str
    """What all of them have in common."""
    at_most: int
    others: Tuple[AwaitedAttempt, ...] = ()
    """Those under way that others may have started; the waiter counts its own by itself."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> TicketLimit:
        """Return what a document says; raises as :meth:`AwaitedAttempt.parse` does."""
        others = tuple(AwaitedAttempt.parse(one) for one in document.get("others") or ())
        return cls(str(document["sweep"]), int(document["at_most"]), others)

    def to_json(self) -> Dict[str, Any]:
        """Return the document that says it."""
        others = [one.to_json() for one in self.others]
        return {"sweep": self.sweep, "at_most": self.at_most, "others": others}


class TicketGates(NamedTuple):
    """What has to be over before an attempt waits for GPUs and CPUs."""

    begin_us: Optional[int] = None
    """Not before this time of day, by the host's clock."""
    after: Tuple[AwaitedAttempt, ...] = ()
    limit: Optional[TicketLimit] = None
    longest_seconds: Optional[float] = None
    """How long the time of day holds it back at most, however the clock is set; None for no such limit."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> TicketGates:
        """Return the gates of a ticket, or of changed facts.

        Raises:
            KeyError: something is missing.
            TypeError: something is of another kind.
            ValueError: the same.
        """
        begin, longest = document.get("begin_us"), document.get("longest_seconds")
        after = tuple(AwaitedAttempt.parse(one) for one in document.get("after") or ())
        limit = document.get("limit")
        return cls(
            None if begin is None else int(begin),
            after,
            None if limit is None else TicketLimit.parse(limit),
            None if longest is None else float(longest),
        )

    def awaited(self) -> List[AwaitedAttempt]:
        """List the attempts whose ends are waited for."""
        return [*self.after, *(() if self.limit is None else self.limit.others)]

    def changed(self, facts: Mapping[str, Any]) -> TicketGates:
        """Return them as changed facts say; who is older than limits does not lift one.

        Raises:
            KeyError: something is missing; others as of :meth:`parse`.
        """
        if not {"begin_us", "after"} <= set(facts):
            return self
        gates = self.parse(facts)
        if gates.begin_us == self.begin_us:
            gates = gates._replace(longest_seconds=self.longest_seconds)
        return gates if "limit" in facts else gates._replace(limit=self.limit)


def lets_go(predecessor: AwaitedAttempt, states: Sequence[State]) -> bool:
    """Say whether what comes after this attempt may start, by the states of its learners. Pure.

    All of them have to be over. They have succeeded where every command ended by itself with exit code 0 and nothing is
    said against it, such as results that could not be stored. Where the job need only end, a failure counts that no
    other attempt can follow. One always follows who was preempted.
    """
    if not states or not all(_is_end_of(predecessor, one) for one in states):
        return False
    if all(map(_has_succeeded, states)):
        return True
    if not predecessor.may_fail or any(one.get("stopped") == PREEMPT for one in states):
        return False
    if not (predecessor.restarts_left or predecessor.platform_restarts_left):
        return True
    is_clear = not any(one.get("stopped") in _BY_A_PERSON or _is_of_platform(one) for one in states)
    return is_clear and not predecessor.restarts_left


def is_over(attempt: AwaitedAttempt, states: Sequence[State]) -> bool:
    """Say whether all learners of an attempt have ended, however they did. Pure."""
    return bool(states) and all(_is_end_of(attempt, one) for one in states)


def following_attempt(attempt: AwaitedAttempt, states: Sequence[State]) -> Optional[AwaitedAttempt]:
    """Return the attempt that its host has begun after this one, by the states of its learners. Pure."""
    followed = next((one["followed_by"] for one in states if one.get("followed_by")), None)
    number = followed.get("attempt") if isinstance(followed, Mapping) else None
    if number != attempt.attempt + 1 or not is_over(attempt, states):
        return None
    job_dir = os.path.dirname(os.path.dirname(attempt.folders[0]))
    following = [os.path.join(job_dir, f"attempt-{number}", os.path.basename(one)) for one in attempt.folders]
    left, platform_left = attempt.restarts_left, attempt.platform_restarts_left
    if not any(one.get("stopped") == PREEMPT for one in states):
        # Only of one learner does a host follow a fault of the platform.
        is_of_platform = len(states) == 1 and _is_of_platform(states[0])
        left = max(0, left - (not is_of_platform))
        platform_left = max(0, platform_left - is_of_platform)
    return attempt._replace(
        attempt=number, restarts_left=left, platform_restarts_left=platform_left, folders=tuple(following)
    )


def _is_end_of(predecessor: AwaitedAttempt, found: State) -> bool:
    """Say whether a state records the end of a learner of this very attempt."""
    is_its = found.get("job") == predecessor.job and found.get("attempt") == predecessor.attempt
    return is_its and found.get("phase") == "exited" and not found.get("waiting")


def _has_succeeded(found: State) -> bool:
    is_clean = found.get("exit_code") == 0 and found.get("signal") is None
    return is_clean and not found.get("stopped") and not found.get("reason")


def _is_of_platform(found: State) -> bool:
    """Say whether a failure is the platform's fault, or nobody can tell whose it is."""
    reason = found.get("reason")
    if found.get("exit_code") is None and found.get("signal") is None:
        return True
    return isinstance(reason, Mapping) and str(reason.get("code") or "").startswith(_PLATFORM)


class GateReader:
    """Reads each learner's state once a look, however many attempts come after it."""

    def __init__(self) -> None:
        self._states: Dict[str, State] = {}

    def closed(self, predecessors: Iterable[AwaitedAttempt]) -> List[Tuple[AwaitedAttempt, AwaitedAttempt]]:
        """Return those that do not let go yet, each with the attempt of the same job that is to end now."""
        last = [(one, self._last(one)) for one in predecessors]
        return [
            (one, now) for one, now in last if not lets_go(now, [self._read(path) for path in now.folders])
        ]

    def _last(self, attempt: AwaitedAttempt) -> AwaitedAttempt:
        """Return the last attempt of a job that its host has begun by itself after this one."""
        while True:
            following = following_attempt(attempt, [self._read(path) for path in attempt.folders])
            if following is None:
                return attempt
            attempt = following

    def is_over(self, attempt: AwaitedAttempt) -> bool:
        """Say whether all learners of an attempt have ended."""
        return is_over(attempt, [self._read(path) for path in attempt.folders])

    def _read(self, folder: str) -> State:
        if folder not in self._states:
            self._states[folder] = state.read(folder)
        return self._states[folder]


class OpenGates:
    """Which gates of one attempt are still closed. A predecessor that has let go once does not count again."""

    def __init__(self) -> None:
        self._over: Set[Tuple[str, int]] = set()

    def closed_by(self, gates: TicketGates, reader: GateReader) -> List[AwaitedAttempt]:
        """Return the predecessors that hold the attempt back."""
        left = [one for one in gates.after if (one.job, one.attempt) not in self._over]
        closed = dict(reader.closed(left)) if left else {}
        self._over |= {(one.job, one.attempt) for one in left if one not in closed}
        return list(closed.values())


class SweepCounts:
    """The attempts of each sweep that are under way at this host.

    Living agents are found by their launch documents, whoever started them. What this waiter has started is remembered
    all the same, since an agent may die before its command.
    """

    def __init__(self) -> None:
        self._under_way: Dict[str, Dict[Tuple[str, int], AwaitedAttempt]] = {}
        self._over: Dict[str, Set[Tuple[str, int]]] = {}
        """Those that were seen to be over: their folders may be gone since."""

    def begin(self, limit: TicketLimit, attempt: AwaitedAttempt) -> None:
        """Count an attempt that was started here."""
        self._under_way.setdefault(limit.sweep, {})[attempt.job, attempt.attempt] = attempt

    def count(
        self,
        limits: Iterable[TicketLimit],
        living: Mapping[str, Set[Tuple[str, int]]],
        waiting: Set[Tuple[str, int]],
        reader: GateReader,
    ) -> Dict[str, int]:
        """Return how many attempts of each sweep are under way; those that are ``waiting`` are not.

        A sweep of which nobody waits any more is forgotten. ``living``: by sweep, the attempts with a living agent.
        """
        named: Dict[str, Dict[Tuple[str, int], AwaitedAttempt]] = {}
        for limit in limits:
            named.setdefault(limit.sweep, {}).update({(one.job, one.attempt): one for one in limit.others})
        self._over = {sweep: self._over.get(sweep, set()) for sweep in named}
        for sweep in [*self._under_way]:
            self._drop_ended(sweep, reader)
            if not self._under_way[sweep] and sweep not in named:
                del self._under_way[sweep]
        found: Dict[str, int] = {}
        for sweep, others in named.items():
            over = self._over[sweep]
            over |= {key for key, one in others.items() if key not in over and reader.is_over(one)}
            own = self._under_way.get(sweep, {})
            found[sweep] = len(({*own, *others} - over | living.get(sweep, set())) - waiting)
        return found

    def _drop_ended(self, sweep: str, reader: GateReader) -> None:
        own = self._under_way[sweep]
        for key, one in list(own.items()):
            # One whose folders were removed was deleted, which follows its end.
            if reader.is_over(one) or not any(map(os.path.isdir, one.folders)):
                del own[key]
                if sweep in self._over:
                    self._over[sweep].add(key)

    def folders(self, limit: TicketLimit) -> Set[str]:
        """Return the folders of the learners whose ends let the next attempt of a sweep begin."""
        over = self._over.get(limit.sweep, set())
        own = self._under_way.get(limit.sweep, {}).values()
        left = [*own, *(one for one in limit.others if (one.job, one.attempt) not in over)]
        return {folder for one in left for folder in one.folders}


def remaining_us(gates: TicketGates, now_us: int, waited_seconds: float) -> int:
    """Return how long the time of day is still waited for; 0 where it is not.

    Args:
        gates: the gates.
        now_us: the time of day.
        waited_seconds: how long the attempt has waited.
    """
    if gates.begin_us is None:
        return 0
    left = gates.begin_us - now_us
    if gates.longest_seconds is not None:
        left = min(left, int((gates.longest_seconds - waited_seconds) * 1e6))
    return max(0, left)
