"""All that happens by chance in a history, from one seed; and what went wrong by it, so that it can be left out.

Every place that draws has a stream of its own, made from the seed and the place's name: what one place draws does not
depend on how often others do. So one fault can be left out of a history, and the others stay what they were as far
as what they happen to does: this is what shrinking rests on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from zlib import crc32

Item = TypeVar("Item")

FAULTS: Final = {
    "kill": "the controller or a client is killed, at any of its writes",
    "second": "the lock file is removed and another controller starts",
    "disk": "the home's disk refuses a write",
    "link": "a connection is cut before a call, after it, or before its answer; calls hang",
    "refuse": "a backend refuses, is busy or fails (409, 429, 500)",
    "repeat": "the answer of an observation is late, or comes twice",
    "learner": "learners fail, hang, ignore SIGTERM, start late, lose their agent or their files",
    "machine": "hosts reboot, clusters evict, disks there are full",
    "clock": "clocks jump, here and on hosts",
    "sleep": "the laptop sleeps for hours",
    "capacity": "GPUs and CPUs come and go, others take them, nobody can say how many there are",
    "people": "somebody halts, kills, resumes, deletes, or changes what a job may do",
    "search": "a search has jobs made; somebody pauses, resumes, kills, deletes or continues it, or stops trials",
    "rules": "jobs are stopped for what they report, and not restarted for what they print",
    "group": "jobs run on several hosts together, beside jobs at each of these",
    "order": "threads take turns in any order, and lose the processor anywhere they may",
    "demand": "a host is started for jobs, and stopped when it idles, by commands that take long and fail",
    "queue": "jobs begin at a time; somebody changes their priority or that time, or has one go on at another target",
}
"""The kinds of faults, and what each does."""

FAULTS_AT_FIRST: Final = tuple(
    kind for kind in FAULTS if kind not in ("search", "rules", "group", "demand", "queue")
)
"""Those that there were when the first regressions were listed: such a line names no kinds."""

ORDER: Final = "order/turns#0"
"""The name of threads taking turns by chance, which happens all the time or never."""

NEVER_DRAWN: Final = 0.5
"""How often a kind of fault is left out of a history altogether (swarm testing)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong in a history."""

    number: int
    """How many had gone wrong before at this place, so that it can be named again."""
    kind: str
    place: str
    at: float = field(default=0.0, compare=False)
    """When, on the clock of the history that cannot jump."""

    @property
    def name(self) -> str:
        """What it is called in a list of faults to leave out."""
        return f"{self.kind}/{self.place}#{self.number}"


@dataclass(slots=True)
class Chance:
    """Draws for one history."""

    seed: int
    kinds: Collection[str] = tuple(FAULTS)
    """The kinds of faults that may be drawn at all."""
    only: Collection[str] | None = None
    """Names of the only faults that shall happen; None for all that are drawn."""
    rates: dict[str, float] = field(default_factory=dict)
    """How often each kind of fault happens where it can, in [0, 1)."""
    faults: list[Fault] = field(default_factory=list)
    """Those that have happened, in their order."""
    ended: bool = False
    """Whether nothing goes wrong any more."""
    known: Collection[str] = tuple(FAULTS)
    """The kinds of faults that there are."""
    clock: Callable[[], float] = lambda: 0.0
    """Says what time it is in the history."""
    _streams: dict[str, random.Random] = field(default_factory=dict)
    _happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Draw the rates."""
        for kind in self.known:
            draw = self.of(f"rate of {kind}")
            share = draw.random()
            rate = 0.0 if draw.random() < NEVER_DRAWN else 0.4 * share**2 + 0.02
            self.rates[kind] = rate if kind in self.kinds else 0.0
        if self.rates["order"] and self.only is not None and ORDER not in self.only:
            self.rates["order"] = 0.0
        if self.rates["order"]:
            self.faults.append(Fault(0, "order", "turns"))

    def of(self, place: str) -> random.Random:
        """Return the stream of a place."""
        stream = self._streams.get(place)
        if stream is None:
            stream = self._streams[place] = random.Random((self.seed << 32) ^ crc32(place.encode()))
        return stream

    def goes_wrong(self, kind: str, place: str, weight: float = 1.0) -> bool:
        """Say whether a fault of a kind happens at a place now; ``weight`` scales how often."""
        rate = self.rates[kind]
        if not rate or self.ended:
            return False
        if self.of(f"{kind} {place}").random() >= rate * weight:
            return False
        key = f"{kind}/{place}"
        fault = Fault(self._happened[key], kind, place, self.clock())
        self._happened[key] += 1
        if self.only is not None and fault.name not in self.only:
            return False
        self.faults.append(fault)
        return True

    def has_happened(self, kinds: Collection[str], since: float = float("-inf")) -> bool:
        """Say whether a fault of some kinds has happened from a time on; that the order is by chance always has."""
        return any(
            fault.kind in kinds and (fault.kind == "order" or fault.at >= since) for fault in self.faults
        )

    def is_active(self, kind: str) -> bool:
        """Say whether a kind of fault happens in this history."""
        return self.rates[kind] > 0

    def choose(self, place: str, items: Sequence[Item]) -> Item:
        """Return one of some items."""
        return items[int(self.of(place).random() * len(items))]

    def between(self, place: str, low: float, high: float) -> float:
        """Return a number between two."""
        return low + (high - low) * self.of(place).random()

    def below(self, place: str, count: int) -> int:
        """Return a whole number from 0 to below ``count``."""
        return int(self.of(place).random() * count)
