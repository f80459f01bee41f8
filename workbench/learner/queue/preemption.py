"""Which jobs end for one of a higher priority that waits for their GPUs, and how each of them learns of it.

Who waits names each attempt that is to end, in its entry of the host's queue. The guards of such an attempt look for
that and ask their commands to end, and the next attempt waits in the queue. Nobody ends the job of another person. Root
has all of them end by a file, and so has an operator of the host.
"""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    AbstractSet,
    Any,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from workbench.learner.journal.launch_document import ASKED, BY_POLICY
from workbench.learner.platform import system
from workbench.learner.queue.allocation import PREEMPTION, PREEMPTION_SECONDS, PRIORITY
from workbench.learner.queue.entries import (
    DEFAULT_PRIORITY,
    QueueEntry,
    attempt_name,
    finite,
    priority_of,
    read_entries,
)
from workbench.learner.queue.policy import BadPolicy, Policy, read_policy, roots_drain_us
from workbench.learner.queue.root_files import DRAIN_FILE, POLICY_FILE
from workbench.learner.texts import clean_name

if TYPE_CHECKING:
    from workbench.learner.platform.lease_holders import Holding

PATIENCE_SECONDS = 60.0
"""One that has not ended so long after it should have is not counted on any more: it may be an older version's."""

LONGEST_SECONDS = 86400.0
"""One that may take longer to end is not waited for any longer either."""

_TO_BE_EMPTY = "its host is to be empty, by %s"

_NEVER = ((0, 0), 0)

_LOOK_SECONDS = {ASKED: 1.0, BY_POLICY: 5.0}


class PreemptibleJob(NamedTuple):
    """A job that holds GPUs and may be preempted."""

    key: Tuple[int, str]
    """Its person, for whom the kernel vouches, and the name of its attempt."""
    gpus: int
    """How many of its GPUs the job which waits could use."""
    priority: int = DEFAULT_PRIORITY
    since_us: int = 0
    """When it took them, by the host's clock."""
    seconds: float = 0.0
    """How long it may take to end."""


def preemptible_jobs(
    holdings: Mapping[str, Holding], usable: Set[str], policy: Policy, below: int, now_us: int = 0
) -> List[PreemptibleJob]:
    """Return the jobs whose leases say that they may be preempted, and whose priority is lower than another's.

    Args:
        holdings: who holds which GPU.
        usable: the GPUs that are of use to the job that waits.
        policy: the host's.
        below: the priority of that job, as the policy caps it.
        now_us: what time it is at the host: those that have run for less than the policy demands are none.
    """
    found: Dict[Tuple[int, str], PreemptibleJob] = {}
    if policy.kind != "priority":
        return []  # nobody waits for less because of a priority
    for uuid, holding in sorted(holdings.items()):
        document = holding.document
        job, attempt, seconds = (
            document.get("job"),
            document.get("attempt"),
            finite(document.get(PREEMPTION_SECONDS), -1.0),
        )
        # What several people claim, or nobody vouches for, is not certain to be who says so.
        if uuid not in usable or not job or len(holding.people) != 1 or seconds < 0:
            continue
        (person,) = holding.people
        priority = policy.priority(priority_of(document), system.user_name(person))
        if priority >= below or not is_preemptible(document.get(PREEMPTION), policy):
            continue
        if policy.min_run_seconds and now_us - (holding.since_us or 0) < 1e6 * policy.min_run_seconds:
            continue
        key = (person, attempt_name(job, attempt))
        known = found.get(
            key, PreemptibleJob(key, 0, priority, holding.since_us or 0, min(seconds, LONGEST_SECONDS))
        )
        found[key] = known._replace(gpus=known.gpus + 1)
    return list(found.values())


def is_preemptible(consent: Any, policy: Policy) -> bool:
    """Say whether a job may be preempted: its ``consent`` is what its lease has under ``PREEMPTION``."""
    if policy.preemption == "none":
        return False
    return consent == ASKED or (consent == BY_POLICY and policy.preemption == "all")


def jobs_that_end(jobs: Sequence[PreemptibleJob], entries: Sequence[QueueEntry], policy: Policy) -> Set[str]:
    """Return the names of the attempts that somebody who waits has asked to end, and that do."""
    asked: Dict[str, int] = {}
    for entry in entries:
        for name in entry.preempts:
            priority = policy.priority(entry.priority, system.user_name(entry.person))
            asked[name] = max(asked.get(name, 0), priority)
    return {job.key[1] for job in jobs if asked.get(job.key[1], 0) > job.priority}


def jobs_to_preempt(
    jobs: Sequence[PreemptibleJob], lacking: int, ending: AbstractSet[str] = frozenset()
) -> List[PreemptibleJob]:
    """Return the jobs that are to end so that so many GPUs come free; none where all of them would not do. Pure.

    Those that end already count first. Of the others it is the set with the fewest jobs, then with the fewest GPUs
    beyond the need, then with the lowest priorities, then the one that has run for the least time.

    Args:
        jobs: those that may be preempted.
        lacking: how many GPUs the job that waits lacks.
        ending: the names of the attempts that were asked to end before.
    """
    asked = [job for job in jobs if job.key[1] in ending]
    lacking -= sum(job.gpus for job in asked)
    if lacking <= 0:
        return asked
    rest = sorted((job for job in jobs if job not in asked), key=lambda job: job.key)
    if sum(job.gpus for job in rest) < lacking:
        return asked
    # By how many jobs and GPUs: the cheapest set of that size.
    best: Dict[Tuple[int, int], Tuple[Tuple[int, int], Tuple[int, ...]]] = {(0, 0): ((0, 0), ())}
    most = _fewest(rest, lacking)
    for index, job in enumerate(rest):
        for (count, gpus), ((priorities, began), members) in list(best.items()):
            if count == most or gpus >= lacking:
                continue
            size = (count + 1, gpus + job.gpus)
            # Of sets of one size the one that began latest has run for the least time, whatever the time is.
            found = ((priorities + job.priority, began - job.since_us), (*members, index))
            if size not in best or found < best[size]:
                best[size] = found
    enough = [(size, found) for size, found in best.items() if size[1] >= lacking]
    _, (_, members) = min(enough)
    return [*asked, *(rest[index] for index in members)]


def _fewest(jobs: Sequence[PreemptibleJob], lacking: int) -> int:
    """Return how many jobs at least have so many GPUs together."""
    for count, gpus in enumerate(sorted((job.gpus for job in jobs), reverse=True), start=1):
        lacking -= gpus
        if lacking <= 0:
            return count
    return len(jobs)


def _changed_ns(path: str) -> int:
    """Return when a file or folder was changed last; 0 where it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _names_in(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _policy() -> Optional[Policy]:
    """Return the host's policy; None where its file is not understood: who may preempt whom is not known then."""
    try:
        return read_policy()
    except BadPolicy:
        return None


class PreemptionWatch:
    """Looks whether a job of a higher priority that waits wants an attempt to end, or its host is to be empty.

    Args:
        facts: ``preemption`` of its launch document.
        name: the attempt's, as of ``entries.attempt_name``.
        began_at: when it got its GPUs, on the clock that cannot jump.
    """

    def __init__(self, facts: Mapping[str, Any], name: str, began_at: float = 0.0) -> None:
        self._folder = str(facts["leases_folder"])
        self._priority = int(facts[PRIORITY])
        self._consent = facts[PREEMPTION]
        self._name = name
        self.seconds = float(facts[PREEMPTION_SECONDS])
        """How long the learner may take to end."""
        self._seen: Tuple[Tuple[int, int], int] = _NEVER
        self._began_at = began_at
        self.check_at = 0.0
        """When to check next, on the clock that cannot jump."""
        self.ended_by = ""
        """The operator who has ordered that this attempt ends, and is not begun again; empty where none has."""

    def check(self) -> str:
        """Say who wants the GPUs of this job; empty where nobody does, or nothing has changed."""
        self.check_at = system.elapsed_seconds() + _LOOK_SECONDS.get(self._consent, 5.0)
        is_drained, has_changed = roots_drain_us() is not None, self._has_changed()
        policy = _policy() if is_drained or has_changed else None
        if policy is None:
            return ""
        operator = self._operator(policy) if has_changed else ""
        if self.ended_by or not is_preemptible(self._consent, policy):
            return ""
        if is_drained:
            return _TO_BE_EMPTY % DRAIN_FILE
        if operator:
            return _TO_BE_EMPTY % operator
        entry = self._preemptor(policy)
        if entry is None:
            return ""
        who = system.user_name(entry.person)
        return "%s's job %s, of priority %d, needs its GPUs" % (who, clean_name(entry.job), entry.priority)

    def _has_changed(self) -> bool:
        """Say whether the folder of leases, or the policy, may say something else than when they were read last."""
        changes = (_changed_ns(self._folder), _changed_ns(POLICY_FILE))
        times = self._seen[1] + 1 if self._seen[0] == changes else 1
        if times > 2:  # twice, for a change in the moment in which it was read before has the same time
            return False
        self._seen = (changes, times)
        return True

    def _operator(self, policy: Policy) -> str:
        """Return the operator who wants the host to be empty, empty for none, and see who wants this attempt to end."""
        if not policy.operators or not any(
            name.startswith(("drain-", "end-")) for name in _names_in(self._folder)
        ):
            return ""
        from workbench.learner.queue import operators  # few hosts have operators: guards stay small

        self.ended_by = operators.who_ends(self._folder, policy.operators, self._name, os.getuid())
        drain = operators.drain_of(self._folder, policy.operators)
        return "" if drain is None else drain.by

    def _preemptor(self, policy: Policy) -> Optional[QueueEntry]:
        """Return the job of a higher priority that wants this attempt to end."""
        if policy.kind != "priority":
            return None
        ran_seconds = system.elapsed_seconds() - self._began_at
        if policy.min_run_seconds and ran_seconds < policy.min_run_seconds:
            self._seen = _NEVER
            return None
        own = policy.priority(self._priority, system.user_name())
        for entry in read_entries(self._folder):
            if self._name not in entry.preempts:
                continue
            if policy.priority(entry.priority, system.user_name(entry.person)) > own:
                return entry
        return None
