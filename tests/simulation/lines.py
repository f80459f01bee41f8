"""The queue of a simulated host: who waits there for GPUs, by the real order of entries.

An entry counts while the connection that holds it is open, and keeps its time for who holds it next. Those that the
host's waiter has are known from its learners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from workbench.learner.queue import order
from workbench.learner.queue.entries import QueueEntry, entry_of
from workbench.learner.queue.line import OFFER_SECONDS

if TYPE_CHECKING:
    from tests.simulation.groups import MemberTarget
    from tests.simulation.targets import Holder

PERSON: Final = 1000


@dataclass(slots=True)
class _Held:
    """One entry's file."""

    entry: QueueEntry
    holder: Holder | None
    """None where it only says since when its job waits."""

    @property
    def counts(self) -> bool:
        """Whether somebody holds it."""
        return self.holder is not None and self.holder.is_open


class SimulatedLine:
    """The queue of one host."""

    def __init__(self, target: MemberTarget) -> None:
        self._target = target
        self._files: dict[tuple[str, str], _Held] = {}
        """By home and job."""
        self._offered: dict[QueueEntry, float] = {}
        self._passed: dict[order.Key, QueueEntry] = {}

    def line_up(
        self,
        holder: Holder,
        home: str,
        waiting: Sequence[Mapping[str, Any]],
        keep: Collection[str],
        aside: Collection[str],
    ) -> None:
        """Have exactly these jobs of a home wait by this connection, as the host's operation ``line_up`` does."""
        for job in aside:
            held = self._files.get((home, job))
            if held is not None and held.holder is holder:
                held.holder = None
        stays = {str(one["job"]) for one in waiting}.union(keep)
        for key, held in list(self._files.items()):
            if held.holder is holder and key[0] == home and key[1] not in stays:
                del self._files[key]
        for one in waiting:
            self._hold(holder, home, one)

    def _hold(self, holder: Holder, home: str, facts: Mapping[str, Any]) -> None:
        key = (home, str(facts["job"]))
        before = self._files.get(key)
        if before is not None and before.counts and before.holder is not holder:
            return
        entry = entry_of(PERSON, {**facts, "home": home}, self._target.now_us())
        if entry is not None and before is not None:
            entry = entry._replace(since_us=before.entry.since_us)
        if entry is not None:
            self._files[key] = _Held(entry, holder)

    def leave(self, holder: Holder, home: str, job: str) -> None:
        """Remove the entry of a job that this connection holds."""
        held = self._files.get((home, job))
        if held is not None and held.holder is holder:
            del self._files[home, job]

    def since(self, home: str, job: str) -> int | None:
        """Return since when a job waits by its entry, which the waiter takes over; None where it has none."""
        held = self._files.pop((home, job), None)
        return None if held is None else held.entry.since_us

    def waits_since(self, home: str, job: str) -> int | None:
        """Return since when a job waits by an entry that counts, by the host's clock; None where it does not."""
        held = self._files.get((home, job))
        return held.entry.since_us if held is not None and held.counts else None

    def held(self) -> Iterator[str]:
        """Yield the jobs that stand in the queue by a connection."""
        return (key[1] for key, held in self._files.items() if held.counts)

    def turns(self, wanted: QueueEntry | None = None) -> dict[order.Key, order.Turn]:
        """Return the turn of each; ``wanted`` comes last of its priority unless it has an entry."""
        entries = {held.entry.key: held.entry for held in self._files.values() if held.counts}
        entries |= {entry.key: entry for entry in self._target.entries_of_waiter()}
        if wanted is not None:
            entries.setdefault(wanted.key, wanted)
        now = self._target.scheduler.now
        late = (entry for entry, at in self._offered.items() if now - at > OFFER_SECONDS)
        self._passed.update((entry.key, entry) for entry in late)
        self._passed = {key: entry for key, entry in self._passed.items() if entries.get(key) == entry}
        gpus = order.FreeGpus(self._target.slots, whole_free=self._target.free())
        found = order.turns(list(entries.values()), gpus, set(self._passed))
        offered = (entries[key] for key, turn in found.items() if turn.start)
        self._offered = {entry: self._offered.get(entry, now) for entry in offered}
        return found

    def may_start(self, entry: QueueEntry) -> bool:
        """Say whether it is a job's turn, which is about to take its GPUs."""
        return self.turns(entry)[entry.key].start
