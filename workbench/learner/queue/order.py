"""The order of a host's queue, computed by each reader from the same entries: who starts now, who waits. Pure."""

from __future__ import annotations

import heapq
from typing import (
    AbstractSet,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from workbench.learner.queue.entries import QueueEntry
from workbench.learner.queue.limits import (
    NOTHING_HELD,
    Group,
    GroupFinder,
    GroupLimits,
    Held,
    groups_of,
    person_group,
    sweep_group,
)
from workbench.learner.queue.policy import SHARED, Policy, PolicyLimits

Key = Tuple[int, str, str]

_Placed = Tuple[int, QueueEntry]
"""An entry with its place in the order of all."""

NOBODY: Key = (-1, "", "")

DEFAULT_POLICY = Policy()

PASSING_AT_MOST = 100
"""Of so many that wait it is computed when they start at the latest; those after them pass nobody."""

FORESEEN_SECONDS = 366 * 86400.0
"""What is free after a year is as good as unknown."""

AROUND_SECONDS = 60.0
"""How long a job may hold its GPUs beside its ``max_runtime``: until its command starts, and while it is ended."""


class FreeGpus(NamedTuple):
    """How many GPUs and slices of GPUs (MIG) there are, and how many are free."""

    whole: int
    slices: int = 0
    whole_free: int = 0
    slices_free: int = 0

    def total(self, each: int) -> int:
        """Return how many there are for a job whose learners get so many each: a process uses one slice at most."""
        return self.whole + (self.slices if each == 1 else 0)

    def free(self, each: int) -> int:
        """Return how many of these are free."""
        return self.whole_free + (self.slices_free if each == 1 else 0)

    def without(self, entry: QueueEntry) -> FreeGpus:
        """Return what is free once this one has what it needs."""
        slices = min(self.slices_free, entry.gpus) if entry.each == 1 else 0
        return self._replace(
            slices_free=self.slices_free - slices, whole_free=self.whole_free - (entry.gpus - slices)
        )


class Ending(NamedTuple):
    """GPUs that are free in so many seconds at the latest: who holds them has a ``max_runtime``."""

    seconds: float
    whole: int = 0
    slices: int = 0
    at_us: int = 0
    """The same as a time of day, by the host's clock; 0 where nobody asks for it."""

    def usable(self, each: int) -> int:
        """Return how many of them serve a job whose learners get so many each."""
        return self.whole + (self.slices if each == 1 else 0)


class Turn(NamedTuple):
    """What the order means for one entry."""

    start: bool
    place: int
    """From 1 on."""
    of: int
    free: int
    """How many GPUs that it could use are free, before those ahead of it get theirs."""
    ahead: Key = NOBODY
    """Whom it waits for first: one that waits, too, else one that is about to start; nobody where nobody is ahead."""
    others_ahead: bool = False
    """Whether somebody is ahead that is not of its home."""
    limit: str = ""
    """Which limit of the host's policy keeps it waiting; empty where none does."""
    limit_since_us: Optional[int] = None
    """Since when that is so, by the host's clock, where somebody has ordered it."""
    lacks: int = 0
    """Of the first that waits: how many GPUs it lacks, once those ahead of it have theirs."""
    preempts: int = 0
    """Of the first that waits: how many jobs of a lower priority are to end for it."""
    free_at_us: Optional[int] = None
    """When another GPU that it could use is free at the latest; None: nobody knows, or it waits for something else."""
    is_enough_then: bool = False
    """Whether these are all that it lacks: known of the first that waits alone."""
    out_of_turn: str = ""
    """Of the first that waits: who has taken GPUs since it waits without being in the order; empty for nobody."""


def in_order(entries: Iterable[QueueEntry]) -> List[QueueEntry]:
    """Return entries as they come: by priority, then by time; a home's own jobs as that home placed them.

    Positions only exchange the turns of one home's jobs of one priority, so nobody passes others by them.
    """
    plain = sorted(entries, key=_by_time)
    own: Dict[Tuple[int, str, int], List[QueueEntry]] = {}
    for entry in plain:
        own.setdefault((entry.person, entry.home, entry.priority), []).append(entry)
    for placed in own.values():
        placed.sort(key=_by_position, reverse=True)
    return [own[entry.person, entry.home, entry.priority].pop() for entry in plain]


def _by_time(entry: QueueEntry) -> Tuple[int, int, int, str, str]:
    return (-entry.priority, entry.since_us, entry.person, entry.home, entry.job)


def _by_position(entry: QueueEntry) -> Tuple[float, int, int, str, str]:
    return (entry.position, entry.since_us, entry.person, entry.home, entry.job)


def turns(
    entries: Sequence[QueueEntry],
    gpus: FreeGpus,
    passed: AbstractSet[Key] = frozenset(),
    policy: Policy = DEFAULT_POLICY,
    held: Mapping[Group, Held] = NOTHING_HELD,
    name_of: Callable[[int], str] = str,
    endings: Sequence[Ending] = (),
) -> Dict[Key, Turn]:
    """Say of every entry whether it may take its GPUs now, in the order in which they come.

    One that waits keeps those behind it waiting, whatever they need: else small jobs starve a large one. By the policy
    ``priority`` one of these passes it all the same where, with every job as long as its ``max_runtime``, it is over
    before any of those could start that came before it (conservative backfill). One that asks for more than there are
    waits for nothing, and holds nobody up; nor does one whose person, home or label has all that the policy allows.

    Args:
        entries: those that count.
        gpus: what is there, and free.
        passed: who had enough free GPUs for a while and did not take them; nobody waits for these.
        policy: how the host is shared.
        held: what each person, home and label has of it.
        name_of: the name by which the policy knows a person.
        endings: when GPUs that are held are free at the latest.
    """
    found: Dict[Key, Turn] = {}
    future: Optional[_Future] = None
    started: List[Ending] = []
    left = gpus
    waits = starts = NOBODY
    homes: Set[Tuple[int, str]] = set()
    taken = dict(held)
    names = {person: name_of(person) for person in {entry.person for entry in entries}}
    finder = GroupFinder(policy, names)
    line = _Line(entries, policy, {person: policy.limits(name) for person, name in names.items()}, held)
    place, of = 0, len(entries)
    while True:
        entry = line.next()
        if entry is None:
            return found
        place += 1
        key = entry.key
        limits = finder.limits_of(entry.person, entry.home, entry.labels)
        why = _reason(entry, limits, taken)
        is_fit = left.free(entry.each) >= entry.gpus and not why
        is_aside = bool(why) or entry.gpus > gpus.total(entry.each) or key in passed
        start = is_fit and waits == NOBODY
        if not is_aside and not start and waits == NOBODY and may_pass(entries, left, policy):
            future = _Future(left, [*endings, *started])
        if not is_aside and future is not None and place <= PASSING_AT_MOST:
            # The first of them does not fit, so that it starts later, or nobody knows when.
            start = future.place(entry, may_pass=not limits)
        home = key[:2]
        others_ahead = len(homes) > (home in homes)
        ahead = starts if waits == NOBODY else waits
        found[key] = Turn(start, place, of, gpus.free(entry.each), ahead, others_ahead, why)
        if is_aside:
            continue
        if not start and waits == NOBODY:
            lacks = max(0, entry.gpus - left.free(entry.each))
            found[key] = found[key]._replace(lacks=lacks, preempts=len(entry.preempts))
        homes.add(home)
        line.counts(entry)
        if start:
            started += _ending_of(entry, left)
            left = left.without(entry)
            starts = key
            for group in groups_of(entry.person, entry.home, entry.labels):
                have = taken.get(group, Held())
                taken[group] = have._replace(gpus=have.gpus + entry.gpus, jobs=have.jobs + 1)
        elif waits == NOBODY:
            waits = key


def with_times(
    found: Mapping[Key, Turn], entries: Iterable[QueueEntry], endings: Iterable[Ending]
) -> Dict[Key, Turn]:
    """Return turns that say by when there are more GPUs for those that wait for them, as their holders promise."""
    coming = sorted(
        (one for one in endings if 0 < one.seconds < FORESEEN_SECONDS), key=lambda one: one.seconds
    )
    nearest = {
        is_alone: next((one.at_us for one in coming if one.usable(1 if is_alone else 2)), None)
        for is_alone in (True, False)
    }
    timed = dict(found)
    for entry in entries:
        turn = found[entry.key]
        if turn.start or turn.limit or turn.free >= entry.gpus:
            continue
        enough_at = _enough_at(coming, turn.lacks, entry.each) if turn.lacks else None
        timed[entry.key] = turn._replace(
            free_at_us=nearest[entry.each == 1] if enough_at is None else enough_at,
            is_enough_then=enough_at is not None,
        )
    return timed


def _enough_at(coming: Iterable[Ending], lacking: int, each: int) -> Optional[int]:
    freed = 0
    for one in coming:
        freed += one.usable(each)
        if freed >= lacking:
            return one.at_us
    return None


def may_pass(entries: Sequence[QueueEntry], gpus: FreeGpus, policy: Policy) -> bool:
    """Say whether anybody could pass another one by its ``max_runtime``: only then endings are worth their reading.

    Where a host has slices and whole GPUs, nobody knows which of them one that could use either takes. Where jobs end
    for one that waits, nobody knows when, and what they free is for that one.
    """
    is_free = gpus.whole_free + gpus.slices_free > 0
    return (
        is_free
        and not (gpus.whole and gpus.slices)
        and len(entries) > 1
        and policy.kind == "priority"
        and not any(entry.preempts for entry in entries)
        and any(entry.max_runtime_seconds is not None for entry in entries)
    )


def _ending_of(entry: QueueEntry, gpus: FreeGpus) -> List[Ending]:
    """Return when what an entry takes now is free again; nothing where nobody knows."""
    if entry.max_runtime_seconds is None:
        return []
    slices = min(gpus.slices_free, entry.gpus) if entry.each == 1 else 0
    return [Ending(entry.max_runtime_seconds + AROUND_SECONDS, entry.gpus - slices, slices)]


class _Future:
    """How many GPUs are free from now on, at the latest, with what those ahead take of them when their turn comes.

    It is kept as steps: from when on, in seconds from now, and what is free then until the next one.
    """

    def __init__(self, free: FreeGpus, endings: Sequence[Ending]) -> None:
        self._steps: List[Tuple[float, FreeGpus]] = [(0.0, free)]
        self._is_begun = False
        """Whether somebody was given a place who waits."""
        self._latest = 0.0
        """When the last of those so far starts, at the latest."""
        self._horizon = float("inf")
        """By when those who pass have to be over: of somebody before them it is only known that it starts later."""
        for seconds, whole, slices, _ in sorted(endings):
            free = free._replace(whole_free=free.whole_free + whole, slices_free=free.slices_free + slices)
            self._steps.append((max(seconds, 1.0), free))

    def place(self, entry: QueueEntry, *, may_pass: bool) -> bool:
        """Give an entry its GPUs as soon as it puts off nobody before it; return whether that is now."""
        runtime = entry.max_runtime_seconds
        seconds = float("inf") if runtime is None else runtime + AROUND_SECONDS
        begin = self._earliest(entry, seconds) if may_pass or not self._is_begun else None
        self._is_begun = True
        if begin is None or begin + seconds > self._horizon:
            # It passes nobody, so it starts after all of them.
            self._horizon = min(self._horizon, self._latest)
            return False
        self._take(entry, begin, begin + seconds)
        self._latest = max(self._latest, begin)
        return begin == 0.0 and runtime is not None

    def _earliest(self, entry: QueueEntry, seconds: float) -> Optional[float]:
        begin: Optional[float] = None
        for at, free in self._steps:
            if begin is not None and at >= begin + seconds:
                break
            if free.free(entry.each) < entry.gpus:
                begin = None
            elif begin is None:
                begin = at
        return begin

    def _take(self, entry: QueueEntry, begin: float, end: float) -> None:
        steps: List[Tuple[float, FreeGpus]] = []
        for number, (at, free) in enumerate(self._steps):
            after = self._steps[number + 1][0] if number + 1 < len(self._steps) else float("inf")
            steps.append((at, free.without(entry) if begin <= at < end else free))
            if at < end < after:
                steps.append((end, free))
        self._steps = steps


class _Line:
    """Gives entries one after the other: in their order, or each from the person with the least for the weight."""

    def __init__(
        self,
        entries: Sequence[QueueEntry],
        policy: Policy,
        people: Mapping[int, PolicyLimits],
        held: Mapping[Group, Held],
    ) -> None:
        self._weights = {person: limits.weight for person, limits in people.items()}
        self._is_shared = policy.kind == SHARED
        self._gpus = {person: held.get(person_group(person), Held()).gpus for person in people}
        is_by_time = policy.kind == "first_come"
        most = {person: 0 if is_by_time else limits.max_priority for person, limits in people.items()}
        capped = [
            entry._replace(priority=most[entry.person]) if entry.priority > most[entry.person] else entry
            for entry in entries
        ]
        self._lines: Dict[int, List[_Placed]] = {}
        """What is left of each person, or of all; the last one goes first."""
        for index, entry in reversed(list(enumerate(in_order(capped)))):
            self._lines.setdefault(entry.person if self._is_shared else -1, []).append((index, entry))
        self._by_weight: Dict[int, _WeightedLine] = {}
        """Of people whose jobs differ in their weights: what comes after the next one, which alone is in the line."""
        for person, line in self._lines.items() if self._is_shared else ():
            if differ_in_weight(entry for _, entry in line):
                following = self._by_weight[person] = _WeightedLine(line, held)
                self._lines[person] = following.next()
        self._taken_from = -1

    def next(self) -> Optional[QueueEntry]:
        """Return who comes next; None at the end."""
        if self._taken_from in self._by_weight:
            self._follow(self._taken_from)
        if not self._lines:
            return None
        line = self._taken_from = min(self._lines, key=self._rank) if self._is_shared else -1
        entry = self._lines[line].pop()[1]
        if not self._lines[line] and line not in self._by_weight:
            del self._lines[line]
        return entry

    def _follow(self, person: int) -> None:
        """Choose who is next of a person whose last one may count by now."""
        self._lines[person] = self._by_weight[person].next()
        if not self._lines[person]:
            del self._lines[person], self._by_weight[person]

    def _rank(self, person: int) -> Tuple[float, int]:
        share = self._gpus[person] / self._weights[person]
        return (share, self._lines[person][-1][0])

    def counts(self, entry: QueueEntry) -> None:
        """Count an entry for its person and its group: it starts, or is the next to."""
        self._gpus[entry.person] += entry.gpus
        if entry.person in self._by_weight:
            self._by_weight[entry.person].counts(entry)


class _WeightedLine:
    """The entries of one person whose jobs differ in their weights, one after the other.

    Those of the highest priority come first. Where these have one weight they come in their order; else the next one is
    the first of the group that has the least for that one's weight.
    """

    def __init__(self, line: List[_Placed], held: Mapping[Group, Held] = NOTHING_HELD) -> None:
        self._held = held
        self._levels: List[List[_Placed]] = []
        """By priority, the highest last; of each the last one goes first."""
        for placed in line:
            if not self._levels or self._levels[-1][-1][1].priority != placed[1].priority:
                self._levels.append([])
            self._levels[-1].append(placed)
        self._gpus: Dict[Group, int] = {}
        """What each group has, and was given here."""
        self._plain: List[_Placed] = []
        """What is left of the highest priority, where its weights are equal."""
        self._groups: Dict[Group, List[_Placed]] = {}
        """The same where they differ, by group."""
        self._heap: List[Tuple[float, int, Group]] = []
        self._weights: Dict[float, int] = {}
        """How many of these have which weight."""
        self._taken_from: Optional[Group] = None

    def next(self) -> List[_Placed]:
        """Return who comes next, with the place in the order of all; nothing at the end."""
        if self._taken_from is not None:
            self._line_up(self._taken_from)
            self._taken_from = None
        if not self._heap and not self._plain and self._levels:
            self._begin(self._levels.pop())
        if len(self._weights) == 1:
            self._plain = sorted((one for each in self._groups.values() for one in each), reverse=True)
            self._groups, self._heap, self._weights = {}, [], {}
        if self._plain or not self._heap:
            return [self._plain.pop()] if self._plain else []
        _, _, self._taken_from = heapq.heappop(self._heap)
        placed = self._groups[self._taken_from].pop()
        self._count_weight(placed[1], -1)
        return [placed]

    def counts(self, entry: QueueEntry) -> None:
        """Count the GPUs of an entry for its group."""
        group = _own_group(entry)
        self._gpus[group] = self._gpus_of(group) + entry.gpus

    def _begin(self, level: Sequence[_Placed]) -> None:
        for placed in level:
            self._groups.setdefault(_own_group(placed[1]), []).append(placed)
            self._count_weight(placed[1], 1)
        for group in self._groups:
            self._line_up(group)

    def _line_up(self, group: Group) -> None:
        """Have a group wait with what it has by now, for the weight of its next one."""
        if self._groups[group]:
            index, entry = self._groups[group][-1]
            heapq.heappush(self._heap, (self._gpus_of(group) / entry.weight, index, group))

    def _gpus_of(self, group: Group) -> int:
        found = self._gpus.get(group)
        return self._held.get(group, Held()).gpus if found is None else found

    def _count_weight(self, entry: QueueEntry, by: int) -> None:
        count = self._weights.get(entry.weight, 0) + by
        if count:
            self._weights[entry.weight] = count
        else:
            del self._weights[entry.weight]


def differ_in_weight(entries: Iterable[QueueEntry]) -> bool:
    """Say whether entries have more than one weight."""
    return len({entry.weight for entry in entries}) > 1


def by_weight(entries: Sequence[QueueEntry], held: Mapping[Group, Held], most: int) -> List[QueueEntry]:
    """Return the first of one person's entries, given in their order, as they come under ``fair_share``."""
    line = _WeightedLine(list(reversed(list(enumerate(entries)))), held)
    found: List[QueueEntry] = []
    while len(found) < most:
        following = line.next()
        if not following:
            break
        found.append(following[0][1])
        line.counts(found[-1])
    return found


def _own_group(entry: QueueEntry) -> Group:
    """Return the sweep or search of an entry; of a job by itself a group that is its own."""
    return sweep_group(entry.person, entry.group) if entry.group else ("job", entry.home, entry.job)


def _reason(entry: QueueEntry, limits: Sequence[GroupLimits], taken: Mapping[Group, Held]) -> str:
    """Say which limit keeps an entry waiting; empty where none does."""
    reasons = (one.reason(entry.gpus, taken.get(one.group, Held())) for one in limits)
    return next(filter(None, reasons), "")
