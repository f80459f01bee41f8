"""FfDL's ``tensorboard``: scalars from event files, read as they grow, without TensorBoard or TensorFlow."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from workbench.learner.collectors.batches import Position
from workbench.learner.collectors.blocks import BLOCK_POINTS
from workbench.learner.collectors.interface import Context, Record
from workbench.learner.collectors.sources import path_of, run_labels, subid_of, walk, without_learners
from workbench.learner.collectors.streams import READ_BYTES, Stream, StreamCollector, StreamSource, key_of
from workbench.learner.collectors.tensorboard.scalars import Damaged, ScalarScanner, ScalarSeries
from workbench.learner.collectors.values import as_step, as_time_us, number
from workbench.learner.texts import clean_name, expression

DEPTH = 12
"""Levels of folders that are searched for event files."""

_OTHERS = "#"
"""Key in positions: counts of what is in event files and not shown, by kind."""
_GROUPS = "#groups"
"""Key in positions: the groups of folders that are not called as the folder is, by the folder's key."""


_STAMPED = expression(r"\S{3,5}\d\d_\d\d-\d\d-\d\d_(.*)$")
_WRITER = expression(r"tfevents\.\d+\.(.+?)\.\d+\.\d+")
_ONLY_A_RUN = expression(r"(?:version_\d+|\d{8}[-_T]\d{4,6}|\d{4}-\d\d-\d\d[-_T]\d\d[-:]\d\d[-:]\d\d)$")


class TensorboardCollector(StreamCollector):
    """Reads all event files under LOG_DIR, or under the folder (or the one file) that ``in:`` names.

    The group is the name of a file's folder (:func:`group_of`), with those above it where another folder has that
    name; a folder above it named ``learner-N`` or by a number is the subid.
    """

    name = "tensorboard"

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        self._path = path_of(str(metrics.get("source") or ""), context)
        self._since_us = context.begin_us()
        self._others: Dict[str, int] = {}
        self._groups: Dict[str, str] = {}
        """The group of each folder, by its path below LOG_DIR."""
        self._changed_groups: Dict[str, str] = {}

    def restore(self, cursor: Any) -> None:
        """Resume after the record with this cursor."""
        super().restore(cursor)
        self.resumed()

    def resumed(self) -> None:
        """Go on counting what is not shown, and keep the groups that were given."""
        self._others = dict(self._batches.begin.get(_OTHERS) or {})
        self._changed_groups = dict(self._known_position().get(_GROUPS) or {})

    def find(self) -> Iterator[StreamSource]:
        """Yield the event files that exist now."""
        if not self.may_read_files():
            return
        walked = walk(self._path, self.context, _is_event_file, depth=DEPTH, watch=self.watch)
        found = sorted(
            (file for file in walked if not self._is_of_another_attempt(file[0])),
            key=lambda file: (file[2].split(os.sep), file[1]),
        )
        self._name_groups(found)
        for path, name, below in found:
            yield StreamSource(path, name, self._groups[below], subid_of(below))

    def may_hold_points(self, path: str, *, is_folder: bool) -> bool:
        """Whether it is a folder or an event file."""
        name = os.path.basename(path)
        return not name.startswith(".") if is_folder else _is_event_file(name)

    def _name_groups(self, found: Sequence[Tuple[str, str, str]]) -> None:
        """Give each folder a group of its own; one that points were read from keeps its group."""
        new: Dict[str, str] = {}
        known = self._known_position()
        for path, name, below in found:
            if below in self._groups:
                continue
            if key_of(name) in known:
                self._groups[below] = self._changed_groups.get(key_of(below)) or group_of(path)
            else:
                new[below] = path
        new = {below: path for below, path in new.items() if below not in self._groups}
        for below, path in new.items():
            group = self._groups[below] = self._free_group(below, path, new)
            self._changed_groups.pop(key_of(below), None)
            if group != group_of(path):
                self._changed_groups[key_of(below)] = group

    def _free_group(self, below: str, path: str, new: Mapping[str, str]) -> str:
        subid, plain, folder = subid_of(below), group_of(path), os.path.dirname(path)
        alike = [other for other in {**self._groups, **new} if other != below and subid_of(other) == subid]
        taken = {self._groups[other] for other in alike if other in self._groups}
        # Of runs whose folders are others at each start the first one has the plain name.
        is_plain = plain == os.path.basename(folder)
        clashes = is_plain and any(group_of(new[other]) == plain for other in alike if other in new)
        if plain not in taken and not clashes:
            return plain
        others = [without_learners(other) for other in alike]
        for label in (*run_labels(without_learners(below), others), below, *run_labels(folder, ())):
            if label and label not in taken:
                return label
        return plain  # the path of another folder, from its root on: there is none

    def _is_of_another_attempt(self, path: str) -> bool:
        """Say whether a file was last written before the command began: a folder of results outlives an attempt."""
        with contextlib.suppress(OSError):
            return os.stat(path).st_mtime_ns // 1000 < self._since_us
        return False

    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Open an event file at an offset."""
        assert source is not None, "it does not want the output"
        return EventStream(source, offset, until, self.note, self._count)

    def in_order(self, streams: Mapping[str, Stream]) -> List[Tuple[str, Stream]]:
        """Return the streams in the order of their oldest points, as FfDL does."""
        return sorted(super().in_order(streams), key=lambda item: getattr(item[1], "oldest", 0.0))

    def finish(self, now_us: int) -> bool:
        """Read all files to their ends, then note what is not shown."""
        more = super().finish(now_us)
        if not more and self._others:
            counts = ", ".join("%d %s" % (self._others[kind], kind) for kind in sorted(self._others))
            self.note("not shown from event files: " + counts)
            self._close(now_us)
        return more

    def _position(self) -> Position:
        position = super()._position()
        position = {**position, _OTHERS: dict(self._others)} if self._others else position
        return {**position, _GROUPS: dict(self._changed_groups)} if self._changed_groups else position

    def _reached(self, key: str, offset: Any) -> bool:
        return key in (_OTHERS, _GROUPS) or super()._reached(key, offset)

    def _count(self, kind: str, count: int, name: str) -> None:
        if kind not in self._others:
            self.note("%s in event files are not shown (the first in %s)" % (kind, name))
        self._others[kind] = self._others.get(kind, 0) + count


def group_of(path: str) -> str:
    """Return the group of an event file: the name of its folder, without what is another at each start.

    That are the time and machine with which ``SummaryWriter`` names the folder of a run (what its ``comment`` says
    stays), a time alone, and the number of Lightning's versions. So an attempt that goes on has the series of the one
    before.
    """
    folder, name = os.path.split(path)
    run = os.path.basename(folder)
    if _ONLY_A_RUN.match(run):
        return ""
    stamped = _STAMPED.match(run)
    if stamped is None:
        return run
    written = _WRITER.search(name)
    rest = str(stamped.group(1))
    host = str(written.group(1)) if written else ""
    return rest[len(host) :].strip("_-.") if host and rest.startswith(host) else rest


def _is_event_file(name: str) -> bool:
    return "tfevents" in name


class EventStream(Stream):
    """One event file."""

    def __init__(
        self,
        source: StreamSource,
        offset: int,
        until: Optional[int],
        note: Callable[[str], None],
        count: Callable[[str, int, str], None],
    ) -> None:
        super().__init__(offset, until)
        self._source = source
        self._note = note
        self._count = count
        self._scanner = ScalarScanner()
        self._damaged = False
        self._before: Optional[Dict[str, ScalarSeries]] = (
            {} if until is not None and until <= offset else None
        )
        """The points before ``until``, once reading has reached it."""
        self._time_us = 0

    @property
    def position(self) -> int:
        """The offset of the first record that is not complete yet."""
        return self.read_offset - self._scanner.held

    @property
    def points(self) -> int:
        """The number of scalars to take."""
        return self._scanner.points + sum(len(series.steps) for series in (self._before or {}).values())

    @property
    def oldest(self) -> float:
        """The time of the oldest point to take, in seconds."""
        waiting = self._before or self._scanner.waiting
        return min((series.wall_times[0] for series in waiting.values()), default=0.0)

    def pending_bytes(self, available: int) -> int:
        """Return how many bytes to read next: none of a damaged file; after a restart first the cut-off batch's."""
        if self._damaged:
            return 0
        if self.until is not None and self._before is None and self.read_offset < self.until:
            return min(available, READ_BYTES, self.until - self.read_offset)
        return min(available, READ_BYTES)

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take the next bytes and read the records that are complete."""
        self._time_us = time_us
        self.read_offset = end_offset
        try:
            self._scanner.feed(data)
        except Damaged as error:
            self._damaged = True
            self._note(
                "%s: %s at byte %d; what follows is not read" % (self._source.name, error, self.position)
            )
        if not self._damaged:
            self.read_offset -= self._scanner.give_back_zeros()
        while self._scanner.others:
            self._count(*self._scanner.others.popitem(), self._source.name)
        if self.until is not None and self._before is None and self.position >= self.until:
            self._before = self._scanner.take()

    def finish(self, time_us: int) -> None:
        """Do nothing: an incomplete record at the end stays unread."""

    def drain(self) -> List[Record]:
        """Return the points before ``until``, or all if it is None, as records, and clear ``until``."""
        series = self._scanner.take() if self._before is None else self._before
        self._before, self.until = None, None
        return list(_blocks(series, self._source, self._time_us))


def _blocks(series: Mapping[str, ScalarSeries], source: StreamSource, time_us: int) -> Iterator[Record]:
    """Yield records: tags that were written at the same steps share one."""
    alike: Dict[Tuple[int, ...], List[Tuple[ScalarSeries, List[str]]]] = {}
    for tag in sorted(series):  # the order of writing depends on where reading began
        found = series[tag]
        key = (len(found.steps), found.steps[0], found.steps[-1])
        for first, tags in alike.setdefault(key, []):
            if first.steps == found.steps:
                tags.append(tag)
                break
        else:
            alike[key].append((found, [tag]))
    for blocks in alike.values():
        for first, tags in blocks:
            yield from _slices(first, {tag: series[tag].values for tag in tags}, source, time_us)


def _slices(
    first: ScalarSeries, columns: Mapping[str, List[float]], source: StreamSource, time_us: int
) -> Iterator[Record]:
    rows = max(1, BLOCK_POINTS // len(columns))
    for begin in range(0, len(first.steps), rows):
        times = [as_time_us(wall_time, time_us) for wall_time in first.wall_times[begin : begin + rows]]
        yield {
            "kind": "metrics",
            "time": times[-1],
            "group": clean_name(source.group),
            "subid": clean_name(source.subid),
            "steps": [as_step(step) for step in first.steps[begin : begin + rows]],
            "times": times,
            "values": {
                clean_name(tag): [number(value) for value in values[begin : begin + rows]]
                for tag, values in columns.items()
            },
        }


def read_points(path: str) -> Dict[str, ScalarSeries]:
    """Read all scalars of one event file into memory, by tag.

    Raises:
        Damaged: the file is not an event file from some point on.
    """
    scanner = ScalarScanner()
    with open(path, "rb", buffering=0) as file:
        while True:
            data = file.read(READ_BYTES)
            if not data:
                return scanner.take()
            scanner.feed(data)
