"""Turns what a learner leaves behind into its journal: published output and records.

It works from the files alone, so a restarted one goes on exactly where the last one was killed, and a
reader can run it over what the ``sh`` agent left. Output comes first: collectors get what is published, a
slice of time at a time, and may lag behind.
"""

from __future__ import annotations

import os
import select
import time

from workbench.learner.journal import launch_document as launches
from workbench.learner.journal import output
from workbench.learner.journal.output import REPORT_FILE, records_header
from workbench.learner.platform import system
from workbench.learner.scribe.masking import Mask, texts_to_mask
from workbench.learner.scribe.publisher import Publisher

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Mapping

    from workbench.learner.collectors.interface import Collector
    from workbench.learner.journal.stop_rules import LearnerRules
    from workbench.learner.journal.tail import FileTail

POLL_SECONDS = 0.25
"""How often collectors look at files whose changes are not reported to them."""

IDLE_POLL_SECONDS = 1.0
"""How often once nothing has come for a while."""

WATCHED_POLL_SECONDS = 60.0
"""How often they look at files whose changes are reported: writing through a memory map is not."""

WAITING_SECONDS = 0.1
"""How often they are asked while points of theirs wait for others."""

REST_SECONDS = 0.02
"""How long they are left alone after a change of their files, longer while it brings them nothing."""

AUTO_SECONDS = 1.0
"""When files of metrics are first looked for though nothing was printed: a short job starts without."""

AUTO_LONGEST_SECONDS = 60.0
"""How often at last, as long as the job's folders are empty: collectors take megabytes that a silent job saves."""

_AUTO_FOLDERS = ("LOG_DIR", "RESULT_DIR", "CHECKPOINT_DIR")

SLICE_SECONDS = 0.004
"""How long collectors may work while output can be waiting."""

_FEED_BYTES = 1 << 16
_LINE_BYTES = 1 << 12
_LAST_RECORDS = 100

_PARTS_OF_AUTO = (
    "typing",
    "workbench.learner.collectors.streams",
    "workbench.learner.collectors.auto.line_values",
    "workbench.learner.collectors.auto.printed",
    "workbench.learner.collectors.auto.files.found",
)
"""Modules that are loaded one in each step when output first comes: together they would hold up the next lines."""


class Transcriber:
    """One learner's journal in the making. One at a time: its maker holds the learner's lock, or nobody does.

    Raises:
        OSError: from every method, when the disk takes no more; the same can be tried again.
    """

    def __init__(
        self,
        folder: str,
        launch: launches.LaunchDocument | Mapping[str, Any],
        *,
        mask: Mask | None = None,
        name: str = "output",
        collect: bool = True,
        reports_announced: bool = False,
        output_tail: FileTail | None = None,
        records_tail: FileTail | None = None,
        judge: bool = False,
        held_folder: str = "",
    ) -> None:
        """Open the journal in a learner's folder.

        Args:
            folder: the learner's folder.
            launch: its launch document.
            mask: finds its secrets; by default those that its secrets file holds.
            name: of the output: that of the setup has a journal of its own.
            collect: whether there are records.
            reports_announced: whether :meth:`look_for_reports` is called once there are any.
            output_tail: the last bytes of the output, where its file system may lose them.
            records_tail: those of the records.
            judge: whether the learner is stopped by the rules of its launch document.
            held_folder: the learner's folder, as who holds its lock reaches it; by default by its path.
        """
        self.launch = (
            launch if isinstance(launch, launches.LaunchDocument) else launches.LaunchDocument(launch)
        )
        self._folder = folder
        self._held_folder = held = held_folder or folder
        self._collect = collect
        self._reports_announced = reports_announced
        self._mask = Mask(texts_to_mask(_secrets(self.launch), self.launch.env)) if mask is None else mask
        self.publisher = Publisher(
            os.path.join(held, name + ".log"), os.path.join(held, name + ".idx"), self._mask, output_tail
        )
        self._collectors: list[Collector] | None = None
        self._records: output.Records | None = None
        self._records_tail = records_tail
        self._waiting: list[dict[str, Any]] = []
        self._cursors: dict[str, Any] = {}
        self._fed = 0
        self._entry = 0
        self._has_passed_over = False
        self._poll_at: float | None = 0.0
        """When collectors look next, or reports are looked for; None for never."""
        self._rest_until = 0.0
        self._rest_seconds = REST_SECONDS
        self._pause_seconds = POLL_SECONDS
        self._more = False
        self._floors: dict[str, int] = {}
        self._finishing = False
        self._ending = False
        self._found_from = time.monotonic() + AUTO_SECONDS
        self._found_pause_seconds = 5 * AUTO_SECONDS
        self._is_loading = False
        """Whether collectors are asked for, and the next step goes on with loading them."""
        self._unloaded = list(reversed(_PARTS_OF_AUTO))
        self._rules: LearnerRules | None = None
        if judge and self.launch.stop_when:
            from workbench.learner.journal.stop_rules import LearnerRules

            self._rules = LearnerRules(held, self.launch)

    def step(self) -> bool:
        """Publish and collect what is new; return whether there may be more to do at once."""
        published = self.publisher.publish()
        return self.collect(SLICE_SECONDS) or published

    def finish(self) -> None:
        """Publish and collect all that is there: the learner has ended and nothing comes any more."""
        while not self.finish_step(3600.0):
            pass

    def finish_step(self, budget_seconds: float) -> bool:
        """Do some of :meth:`finish`; return whether all is done."""
        self.publisher.publish(final=True)
        if not self._collect:
            return True
        self._ending = True
        if not self._finishing:
            self._poll_at = 0.0
            if self.collect(budget_seconds):
                return False
            self._finishing = True
        self._write()
        more = False
        for collector in self._collectors or ():
            more = collector.finish(system.now_us()) or more
        self._write_taken()
        if not more:
            self._close_collectors()
        return not more

    def add(self, record: dict[str, Any]) -> None:
        """Write a record that no collector made, a usage sample say, after what was collected before it."""
        if not self._collect:
            return
        self._take()
        cursors = {
            collector.name: collector.cursor()
            for collector in self._collectors or ()
            if not collector.waiting
        }
        changed = {name: cursor for name, cursor in cursors.items() if self._cursors.get(name) != cursor}
        if changed:
            # Files without points are not read again after a restart.
            record = {**record, "cursors": changed}
            self._cursors.update(changed)
        self._waiting.append(self._masked(record))
        self._write()

    def has_note(self, text: str) -> bool:
        """Say whether a note is among the last records: an agent before may have been killed after it wrote it."""
        if self._records is None:
            self._open_records()
        assert self._records is not None
        for count, record in enumerate(self._records.backwards()):
            if record.get("kind") == "note" and record.get("text") == text:
                return True
            if count == _LAST_RECORDS:
                break
        return False

    def collect(self, budget_seconds: float) -> bool:
        """Let collectors work for so long; return whether they have more to do at once."""
        if not self._collect or not self._ready():
            return self._is_loading
        self._write()  # on a full disk nothing is collected: memory must not fill up instead
        until = time.monotonic() + budget_seconds
        fed = self._feed(until)
        were_made = self._files_were_made()
        if fed or self._more or self._is_due() or were_made:
            self._more = False
            for collector in self._collectors or ():
                self._more = collector.poll(system.now_us()) or self._more
            if were_made:
                self._rest()
            self._poll_later(WAITING_SECONDS if self._gathering() else 0.0)
        self._write_taken()
        return self._more or self._behind()

    def look_for_reports(self) -> None:
        """Collect what training code reports: the file of its reports is there."""
        self._poll_at = 0.0
        for collector in self._collectors or ():
            collector.search()

    def leave_watches(self) -> None:
        """Have the kernel give up the collectors' watches when this process ends, and not when they are closed.

        That takes it some 10 ms, in which others would wait for what is done between.
        """
        found = {collector.descriptor for collector in self._collectors or ()}  # they may share one
        for descriptor in found:
            if descriptor is not None:
                os.dup(descriptor)

    def give_up_collecting(self) -> None:
        """Go on without collectors; what is given to :meth:`add` is still written."""
        self._collectors = []

    def due_seconds(self) -> float | None:
        """Return after how many seconds to step again even if nothing is printed; None for never."""
        published = self.publisher.due_seconds()
        if not self._collect:
            return published
        now = time.monotonic()
        poll_at = self._rest_until if self._rest_until > now else self._poll_at
        if poll_at is None:
            return published
        polled = max(0.0, poll_at - now)
        return polled if published is None else min(polled, published)

    def descriptors(self) -> list[int]:
        """Return what is readable when collectors have new files to read; none while they rest."""
        if time.monotonic() < self._rest_until:
            return []
        found = {collector.descriptor for collector in self._collectors or ()}  # they may share one
        return [descriptor for descriptor in found if descriptor is not None]

    def close(self) -> None:
        """Give the descriptors back."""
        self._close_collectors()
        self.publisher.close()
        if self._records is not None:
            self._records.close()

    def _close_collectors(self) -> None:
        for collector in self._collectors or ():
            collector.close()

    def _ready(self) -> bool:
        """Make the collectors once there is something for them: a learner without metrics starts faster."""
        if self._records is None:
            self._open_records()
        if self._collectors is None:
            if not self._is_asked_for():
                return False
            if self._is_auto and self._unloaded:
                __import__(self._unloaded.pop())
                self._is_loading = True
                return False
            self._is_loading = False
            self._make_collectors()
        return True

    @property
    def _is_auto(self) -> bool:
        metrics = self.launch.metrics
        return metrics is not None and metrics.get("type") == launches.AUTO

    def _is_asked_for(self) -> bool:
        """Say whether there is something for collectors: named metrics, a report, or what may hold some."""
        metrics = self.launch.metrics
        if metrics and not self._is_auto:
            return True
        if self._is_auto and (self._ending or self.publisher.end > 0 or self._may_find_files()):
            return True
        if not self._is_due():
            return False
        if os.path.exists(os.path.join(self._folder, REPORT_FILE)):
            return True
        self._poll_later()
        if self._is_auto:
            self._poll_at = min(self._found_from, self._poll_at or self._found_from)
        return False

    def _may_find_files(self) -> bool:
        """Return whether files of metrics are to be looked for: not too soon, and not in folders without files."""
        now = time.monotonic()
        if now < self._found_from:
            return False
        if self._have_files_come():
            return True
        self._found_from = now + self._found_pause_seconds
        self._found_pause_seconds = min(2 * self._found_pause_seconds, AUTO_LONGEST_SECONDS)
        return False

    def _have_files_come(self) -> bool:
        """Return whether the job's folders hold something, or it was made where the command runs."""
        known = {**self.launch.env, "LOG_DIR": self.launch.log_dir or self.launch.env.get("LOG_DIR")}
        try:
            for name in _AUTO_FOLDERS:
                if known.get(name):
                    with os.scandir(str(known[name])) as entries:
                        if next(entries, None) is not None:
                            return True
            begun_ns = os.stat(os.path.join(self._folder, "launch.json")).st_mtime_ns
            code = known.get("MODEL_DIR")
            return bool(code) and os.stat(str(code)).st_mtime_ns > begun_ns
        except OSError:  # a container knows its folders by other paths
            return True

    def _files_were_made(self) -> bool:
        descriptors = self.descriptors()
        if not descriptors:
            return False
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def _is_due(self) -> bool:
        return self._poll_at is not None and time.monotonic() >= self._poll_at

    def _rest(self) -> None:
        """Leave the collectors alone for a moment, longer each time while what changes is nothing that they read."""
        self._rest_seconds = REST_SECONDS if self._gathering() else min(self._rest_seconds * 2, POLL_SECONDS)
        self._rest_until = time.monotonic() + self._rest_seconds

    def _poll_later(self, seconds: float = 0.0) -> None:
        if self._collectors is None and self._reports_announced:
            self._poll_at = None
            return
        if self._reports_announced and all(collector.is_watched for collector in self._collectors or ()):
            pause_seconds = WATCHED_POLL_SECONDS
        else:
            pause_seconds = self._pause_seconds = min(self._pause_seconds * 1.2, IDLE_POLL_SECONDS)
        self._poll_at = time.monotonic() + (seconds or pause_seconds)

    def _open_records(self) -> None:
        path = os.path.join(self._held_folder, "records.jsonl")
        self._records = output.Records(path, records_header(self.launch), self._records_tail)
        if self._rules is not None:
            self._rules.read(path)

    def _make_collectors(self) -> None:
        from workbench.learner import collectors
        from workbench.learner.collectors.plain import PlainCollector

        context = collectors.Context.from_launch(self.launch.document, self._folder)
        made = collectors.make(self.launch.metrics, context, is_over=self._ending)
        # The plain one collects nothing and never has a cursor: waiting for one would take all records.
        self._cursors = self._last_cursors({collector.name for collector in made} - {PlainCollector.name})
        for collector in made:
            if collector.name in self._cursors:
                collector.restore(self._cursors[collector.name])
        self._collectors = made
        self._floors = {
            collector.name: collector.output_offset for collector in made if collector.wants_output
        }
        self._fed = min(self._floors.values(), default=self.publisher.end)
        self._entry = self.publisher.index.first_behind(self._fed)

    def _last_cursors(self, names: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        assert self._records is not None
        for record in self._records.backwards():
            cursors = dict(record.get("cursors") or {})
            if "cursor" in record:
                cursors[record.get("source", "")] = record["cursor"]
            found = {**cursors, **found}
            if names <= set(found):
                break
        return found

    def _behind(self) -> bool:
        wants = any(collector.wants_output for collector in self._collectors or ())
        return wants and self._fed < self.publisher.end

    def _gathering(self) -> bool:
        return any(collector.waiting for collector in self._collectors or ())

    def _feed(self, until: float) -> bool:
        """Give collectors output, entry by entry with its time, until they have all or the time is over."""
        began = self._fed
        while self._behind() and self._feed_entries(self.publisher.index.entries(self._entry), until):
            pass
        return self._fed > began

    def _feed_entries(self, entries: list[output.IndexEntry], until: float) -> bool:
        """Give collectors the output of entries that follow each other; return whether there is time for more."""
        at = 0
        while at < len(entries):
            entry = entries[at]
            if entry.end <= self._fed:  # a lost disk gave it back after it had been collected
                at, self._entry = at + 1, self._entry + 1
                continue
            behind = at + 1  # what was printed at one moment is passed over at once
            while behind < len(entries) and entries[behind].time_us == entry.time_us:
                behind += 1
            if self._is_passed_over(entries[behind - 1].end, entry.time_us):
                self._fed = entries[behind - 1].end
                self._has_passed_over = True
                at, self._entry = behind, self._entry + behind - at
            elif not self._feed_from(entry):
                return False
            if time.monotonic() >= until:
                return False
        return True

    def _feed_from(self, entry: output.IndexEntry) -> bool:
        """Give collectors the next bytes of an entry; return whether there were any."""
        end = min(self._fed + _FEED_BYTES, entry.end)
        begin = self._line_begin() if self._has_passed_over else self._fed
        data = self.publisher.read(begin, end - begin)
        end = begin + len(data)
        if end <= self._fed:
            return False  # somebody cut the output off
        for collector in self._collectors or ():
            # After a restart one collector may be further on than another.
            known = max(0, self._floors.get(collector.name, 0) - begin)
            if collector.wants_output and known < len(data):
                collector.output(data[known:] if known else data, end, entry.time_us)
        self._fed = end
        self._has_passed_over = False
        return True

    def _line_begin(self) -> int:
        """Return where the line begins that the next byte belongs to; of a long one, where its last bytes do."""
        begin = max(0, self._fed - _LINE_BYTES)
        before = self.publisher.read(begin, self._fed - begin)
        return begin + max(before.rfind(b"\n"), before.rfind(b"\r")) + 1

    def _is_passed_over(self, end_offset: int, time_us: int) -> bool:
        """Return whether the output up to an offset is left unread: the one collector that it goes to needs none."""
        wanting = [collector for collector in self._collectors or () if collector.wants_output]
        if len(wanting) != 1 or self._floors.get(wanting[0].name, 0) > self._fed:
            return False
        return wanting[0].pass_over(end_offset, time_us)

    def _take(self) -> None:
        for collector in self._collectors or ():
            for record in collector.take():
                if "cursor" in record:
                    self._cursors[collector.name] = record["cursor"]
                self._waiting.append(self._masked(record))
                self._pause_seconds = POLL_SECONDS

    def _write_taken(self) -> None:
        self._take()
        self._write()

    def _write(self) -> None:
        if self._records is None:
            self._open_records()
        assert self._records is not None
        if self._waiting:
            try:
                self._records.append(self._waiting)
            except (TypeError, ValueError, RecursionError):
                # A foreign collector may make anything. What is left empty is counted by who reads it.
                self._waiting = [record if output.is_writable(record) else {} for record in self._waiting]
                self._records.append(self._waiting)
            if self._rules is not None:
                self._rules.take(self._waiting)
            self._waiting = []
        if self._rules is not None and not self._ending:
            self._rules.follow()

    def _masked(self, record: dict[str, Any]) -> dict[str, Any]:
        if not self._mask:
            return record
        masked: dict[str, Any] = {}
        try:
            for key, value in record.items():
                masked[key] = value if key in ("cursor", "cursors") else self._mask.value(value)
        except RecursionError:
            return {}  # nested without end: counted by who reads it
        return masked


def _secrets(launch: launches.LaunchDocument) -> dict[str, str]:
    try:
        return launch.secret_values()
    except FileNotFoundError:
        return {}  # dropped with the job; an agent that starts a command does not get here
