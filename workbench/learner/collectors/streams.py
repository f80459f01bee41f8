"""What collectors of growing streams share: reading, gathering points into batches, resuming after a restart."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from workbench.learner.collectors.batches import Batches, Position, note
from workbench.learner.collectors.blocks import BLOCK_POINTS, Blocks
from workbench.learner.collectors.folder_watch import FolderWatch
from workbench.learner.collectors.followed_file import (
    FollowedFile,
    Replaced,
    is_linked,
    is_remote_path,
    offset_of,
)
from workbench.learner.collectors.interface import Collector, Context, Record
from workbench.learner.collectors.lines import LINE_LIMIT, LineCutter
from workbench.learner.collectors.shared_files import (
    ReadingTurn,
    is_starting,
    label_of,
    named_learner,
    writer_by_host,
    writer_of,
)
from workbench.learner.platform.inotify import IN_CLOSE_WRITE
from workbench.learner.texts import short_hash

OUTPUT = ""
"""The key of the learner's own output among the streams."""

READ_BYTES = 1 << 20
POLL_BYTES = 4 << 20
"""Bytes of files that one poll reads at most."""

FIND_US = 500_000
"""The interval between searches for new files."""

FIND_SHARE = 50
"""Searching takes at most one part in this many of the time."""

WATCHED_FIND_US = 30_000_000
"""The same where all changes are reported."""

MADE_FIND_US = 10_000
MADE_FIND_SHARE = 10
"""The same while files or folders are made."""

FIND_LIMIT = 20
"""Searches in a row at most while each finds folders that were not watched before."""

UNDECIDED_US = 3_000_000
"""How long a file waits for the processes of containers that are starting: one of them may write it."""

AWAIT_SECONDS = 0.02
AWAIT_LIMIT_US = 60_000_000
"""How long a learner that has ended waits for another's last reading, in all."""

HELD_LIMIT = 128
"""Files that are kept open at most."""

NOTE_LIMIT = 20


class StreamSource(NamedTuple):
    """A file to read, and what its points belong to."""

    path: str
    name: str
    """Its path relative to the searched folder."""
    group: str = ""
    subid: str = ""
    learner: Optional[int] = None
    """Who writes it: 0 where that is not known, None where a learner's files are its own."""
    is_own: bool = False
    """Whether it lies in a folder of this learner alone, whatever other learners share."""


class Stream(ABC):
    """One growing stream on its way into points.

    What lies before :attr:`until` belongs to a batch that a restart cut off and is drained first, by itself.
    """

    def __init__(self, offset: int, until: Optional[int]) -> None:
        self.read_offset = offset
        """From where on it is to be fed."""
        self.until = until

    @property
    @abstractmethod
    def position(self) -> int:
        """Where a restart has to read from when all points so far are written."""

    @property
    @abstractmethod
    def points(self) -> int:
        """How many points wait."""

    @abstractmethod
    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take the bytes that follow; where :attr:`read_offset` is set before the end, the rest is read again later."""

    @abstractmethod
    def finish(self, time_us: int) -> None:
        """No more bytes will come."""

    @abstractmethod
    def drain(self) -> List[Record]:
        """Return the points before :attr:`until` (all if there is none) as records, and forget ``until``."""

    def pending_bytes(self, available: int) -> int:
        """Return how many of the bytes that are there to read next."""
        return min(available, READ_BYTES)


class StreamCollector(Collector):
    """A collector of streams: the learner's output, files, or both."""

    reads_log_dir: bool = True
    """Whether its files lie in LOG_DIR, which learners may share."""
    has_own_files: bool = False
    """Whether some of its files are this learner's own though others lie in folders that learners share."""
    made_find_share: int = MADE_FIND_SHARE
    """While files are made, searching takes at most one part in this many of the time."""

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        self._streams: Dict[str, Stream] = {}
        self._sources: Dict[str, StreamSource] = {}
        self._missed = 0
        """How many folders and files lived too briefly to be read."""
        self._aliases: Set[str] = set()
        """Keys of files that are followed by another of their names."""
        self._undecided: Dict[str, int] = {}
        """Files of which the writer may become known soon, and since when; they are not read until then."""
        self._turn: Optional[ReadingTurn] = None
        if context.learners > 1 and self.reads_log_dir and not context.hosts:
            self._turn = ReadingTurn(context.learner_dir, context.learner, self.name)
        self._files: Dict[str, FollowedFile] = {}
        self._folders = FolderWatch(context.inotify)
        self._folders_grew = False
        self._were_made = False
        self._is_watched = False
        self._is_turn_watched = False
        self._batches = Batches(self.name)
        self._ending = False
        self._is_last_reading = False
        """Whether the learner has ended, and its files are read a last time."""
        self._last_ends: Dict[str, int] = {}
        """Where files ended when they were read a last time first: what is written later holds up no end."""
        self._awaiting_since_us = 0
        self._found_us = 0
        self._find_cost_us = 0
        self._notes: List[str] = []
        self._noted: Set[str] = set()

    @abstractmethod
    def find(self) -> Iterable[StreamSource]:
        """Name the files that there are to read."""

    @abstractmethod
    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Begin to read a file, or the learner's output (None), from an offset on."""

    def open_file(self, source: StreamSource, *, held: bool) -> FollowedFile:
        """Begin to follow a file; one that is held stays open."""
        return FollowedFile(source.path, self.context.writable, held=held)

    def note(self, text: str) -> None:
        """Tell a person something, once."""
        if text not in self._noted and len(self._noted) < NOTE_LIMIT:
            self._noted.add(text)
            self._notes.append(text)

    def watch(self, folder: str) -> None:
        """Search again as soon as something is made in a folder; for :meth:`find`."""
        self._note_watch(folder, self._folders.add(folder))

    def watch_file(self, path: str) -> None:
        """Read again as soon as a file is written that lies in no watched folder; for :meth:`find`."""
        self._note_watch(path, self._folders.add_file(path))

    def watch_failed(self) -> None:
        """Note that there is something to find that nothing reports; for :meth:`find`."""
        self._is_watched = False

    def _note_watch(self, path: str, is_new: Optional[bool]) -> None:
        self._folders_grew = self._folders_grew or bool(is_new)
        if is_new is None or is_remote_path(path):
            self.watch_failed()

    def may_read_files(self) -> bool:
        """Whether the files in LOG_DIR are this learner's to read now; for :meth:`find`."""
        return self.context.owns_log_dir if self._turn is None else self._turn.is_ours

    def _take_turn(self) -> None:
        """Read the files of all learners if nobody does, from where the one before left off."""
        if self._turn is None or not self._turn.take():
            return
        cursor = self._turn.inherited()
        if cursor is not None:
            if self.wants_output or self.has_own_files:  # what is its own goes on where it is
                files = {key: mark for key, mark in cursor["at"].items() if key != OUTPUT}
                cursor = {"at": {**self._batches.begin, **files}}
            self._batches.restore(cursor)
            self.resumed()
        self._found_us = 0

    def resumed(self) -> None:
        """Take over what else the position holds from which reading goes on."""

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when files or folders were made."""
        return self._folders.descriptor

    @property
    def is_watched(self) -> bool:
        """Whether every change of what it reads is reported."""
        return self._is_watched and not self._were_made and not self._undecided and not self._folders.has_news

    def close(self) -> None:
        """Close the files and the watch."""
        self._folders.close()
        self._close_files()
        if self._turn is not None:
            self._turn.close()

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()

    @property
    def output_offset(self) -> int:
        """Where in the output to go on."""
        if OUTPUT in self._streams:
            return self._streams[OUTPUT].read_offset
        return int(self._batches.begin.get(OUTPUT, 0))

    @property
    def waiting(self) -> bool:
        """Whether points wait for the next poll."""
        return bool(self._notes) or any(stream.points for stream in self._streams.values())

    def restore(self, cursor: Any) -> None:
        """Go on behind the record that has this cursor."""
        if cursor is not None:
            self._batches.restore(cursor)

    def cursor(self) -> Any:
        """Say where to go on; points that wait are read again."""
        return self._batches.cursor(self._batches.begin if self.waiting else self._position())

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Feed the learner's own output."""
        self._stream(OUTPUT, None).feed(data, end_offset, time_us)

    def search(self) -> None:
        """Look for new files at the next poll."""
        self._found_us = 0

    def poll(self, now_us: int) -> bool:
        """Read on in the files, and close the batch if it is time."""
        self._take_turn()
        more = self._read(now_us)
        self._flush(now_us)
        return more

    def take(self) -> List[Record]:
        """Give the records that are finished."""
        return self._batches.take()

    def finish(self, now_us: int) -> bool:
        """Read the files to their end, then what needs no more lines."""
        self._found_us = 0
        if self._turn is not None and not self._ending:
            self._take_turn()
            if self._turn.is_ours:
                self._turn.begin_last()
            elif self._turn.is_awaited() and self._may_await(now_us):
                time.sleep(AWAIT_SECONDS)
                return True
            self._ending = True
        self._is_last_reading = True
        if self._read(now_us):
            self._flush(now_us)
            return True
        self._close_files()
        if self._missed:
            self.note("%d folders or files of metrics were removed before they could be read" % self._missed)
            self._missed = 0
        for stream in self._streams.values():
            stream.finish(now_us)
        while self._batches.until is not None or self.waiting:
            self._close(now_us)
        return False

    def _may_await(self, now_us: int) -> bool:
        self._awaiting_since_us = self._awaiting_since_us or now_us
        if 0 <= now_us - self._awaiting_since_us < AWAIT_LIMIT_US:
            return True
        self.note(
            "the agent of another learner did not finish reading: files in LOG_DIR may not be read to their end"
        )
        return False

    def _stream(self, key: str, source: Optional[StreamSource]) -> Stream:
        stream = self._streams.get(key)
        if stream is None:
            offset = offset_of(self._batches.begin.get(key, 0))
            # Nothing of a stream that did not move belongs to the batch that was cut off.
            until = None if self._batches.until is None else offset_of(self._batches.until.get(key, offset))
            stream = self.open_stream(source, offset, until)
            self._streams[key] = stream
        return stream

    def _position(self) -> Position:
        position = {**self._batches.begin, **{key: stream.position for key, stream in self._streams.items()}}
        for key, file in self._files.items():
            if key in self._streams:
                position[key] = file.mark(position[key])
                writer = self._sources[key].learner
                if writer is not None and "." in str(position[key]):
                    position[key] += ".%d" % writer
        return position

    def _flush(self, now_us: int) -> None:
        until = self._batches.until
        if until is not None:
            if not all(self._reached(key, offset) for key, offset in until.items()):
                return
            self._close(now_us)
        points = sum(stream.points for stream in self._streams.values())
        if points >= BLOCK_POINTS or (self.waiting and self._batches.due(now_us)):
            self._close(now_us)

    def _reached(self, key: str, offset: Any) -> bool:
        """Whether a stream was read as far again as before the restart; a file that is gone never will be."""
        if key in self._streams:
            return self._streams[key].position >= offset_of(offset)
        return key != OUTPUT and key not in self._sources

    def _close(self, now_us: int) -> None:
        until = self._batches.until
        position = self._position() if until is None else {**self._batches.begin, **until}
        records: List[Record] = []
        for key, stream in self.in_order(self._streams):
            records += self._attributed(key, stream.drain())
        # Behind the points, since a restart may say a note again or not, and points are counted.
        records += [note(text, now_us) for text in self._notes]
        self._notes = []
        self._batches.close(records, position, now_us)

    def _attributed(self, key: str, records: List[Record]) -> List[Record]:
        """Name in the records of a shared file who wrote it: whom they name, or whose file it is, or learner 1."""
        source = self._sources.get(key)
        if source is not None and source.learner is not None:
            for record in records:
                named = named_learner(str(record.get("subid") or ""), self.context.learners)
                record["learner"] = named or source.learner or 1
        return records

    def in_order(self, streams: Mapping[str, Stream]) -> List[Tuple[str, Stream]]:
        """Return the streams in the order of their records, which must not depend on how they were read."""
        return sorted(streams.items(), key=lambda item: item[0])

    def _read(self, now_us: int) -> bool:
        """Read a bounded amount of the files; return whether there is more."""
        waited_us = now_us - self._found_us
        # Folders with many files are searched less often.
        may_find = not 0 <= waited_us < max(MADE_FIND_US, self._find_cost_us * self.made_find_share)
        every_us = WATCHED_FIND_US if self._is_watched else FIND_US
        is_due = not 0 <= waited_us < max(every_us, self._find_cost_us * FIND_SHARE)
        self._were_made = self._folders.take() or self._were_made
        if may_find and (self._were_made or is_due):
            self._were_made = False
            self._find(now_us)
        budget = POLL_BYTES
        for key, source in self._sources.items():
            while budget > 0:
                count = self._read_some(key, source, now_us)
                if count == 0:
                    break
                budget -= count
        return budget <= 0

    def _find(self, now_us: int) -> None:
        self._found_us = now_us
        self._watch_turn()
        for _again in range(FIND_LIMIT):
            begun = time.thread_time()
            self._folders_grew = False
            self._is_watched = self._turn is None or self._turn.is_ours or self._is_turn_watched
            # A name that was read before a restart comes before others of the same file.
            known = self._known_position()
            found = [(key_of(source.name), source) for source in self.find()]
            for key, source in sorted(found, key=lambda each: each[0] not in known):
                self._follow(key, source, now_us)
            self._find_cost_us = int((time.thread_time() - begun) * 1e6)
            if not self._folders_grew:
                break
        self._count_missed()

    def _count_missed(self) -> None:
        """Count what was made and is gone, and was never met: it may have held points."""
        gone = self._folders.vanished()
        if gone and self.may_read_files():
            met = {os.path.realpath(source.path) for source in self._sources.values()}
            self._missed += sum(
                path not in met and self.may_hold_points(path, is_folder=is_folder)
                for path, is_folder in gone.items()
            )

    def may_hold_points(self, _path: str, *, is_folder: bool) -> bool:
        """Whether something that was gone before it could be looked at is worth a note."""
        return False

    def _watch_turn(self) -> None:
        """Have the end of another learner's turn to read reported."""
        self._is_turn_watched = False
        if self._turn is not None and not self._turn.is_ours:
            is_new = self._folders.add_file(self._turn.lock_path, IN_CLOSE_WRITE)
            self._is_turn_watched = is_new is not None and not is_remote_path(self._turn.lock_path)
            if is_new:
                self._take_turn()  # it may have ended just before

    def _follow(self, key: str, source: StreamSource, now_us: int) -> None:
        if is_linked(source.path):
            self.watch_failed()  # it may be written under a name in another folder
        if key in self._sources or not self._is_ours(source) or self._is_alias(key, source.path):
            return
        self._sources[key] = source
        if self._turn is not None and self.may_read_files() and not source.is_own:
            self._undecided[key] = now_us
        held = sum(file.is_open for file in self._files.values()) < HELD_LIMIT
        file = self._files[key] = self.open_file(source, held=held)
        if key in self._batches.begin:
            file.resume(self._batches.begin[key])
        with contextlib.suppress(OSError):  # it is gone again, or the read says what is wrong
            file.hold()

    def _is_alias(self, key: str, path: str) -> bool:
        """Whether a file is followed by another of its names: its points would come twice."""
        if key in self._known_position() or not (key in self._aliases or is_linked(path)):
            return False
        identity = FollowedFile(path, self.context.writable).identity()
        if identity is None or all(file.identity() != identity for file in self._files.values()):
            return False
        self._aliases.add(key)
        return True

    def _known_position(self) -> Position:
        """Return how far all was read, with what a batch has that a restart cut off."""
        return {**self._batches.begin, **(self._batches.until or {})}

    def _is_ours(self, source: StreamSource) -> bool:
        """Whether a file is read here: of learners on several machines each reads its own, the first also the rest."""
        if not self.context.hosts or not self.reads_log_dir or source.is_own:
            return True
        writer = writer_by_host(source.name, self.context.hosts)
        if not writer and self.context.learner == 1 and key_of(source.name) not in self._known_position():
            self._note_unknown(source)
        return (writer or 1) == self.context.learner

    def _note_unknown(self, source: StreamSource) -> None:
        self.note("who wrote %s is not known: its points are shown as learner 1's" % source.name)

    def label(self, source: StreamSource) -> str:
        """Return a subid that keeps a file apart from others of which it is not known who wrote them."""
        return source.subid or label_of(source.name)

    def _with_writer(self, key: str, source: StreamSource, now_us: int) -> StreamSource:
        """Find out who writes a file that all learners may write; a restart keeps to what was found out."""
        parts = str(self._batches.begin.get(key, "")).split(".")
        is_known = len(parts) == 3  # a restart, or the learner that read before, has said it
        if is_known:
            writer = int(parts[2])
        else:
            context = self.context
            writer = writer_of(
                source.path, source.name, context.learner_dir, context.marker, context.learners
            )
            is_new = 0 <= now_us - self._undecided[key] < UNDECIDED_US
            if (
                not writer
                and is_new
                and not self._ending
                and is_starting(context.learner_dir, context.learners)
            ):
                return source
        del self._undecided[key]
        if writer:
            return source._replace(learner=writer)
        if not is_known:
            self._note_unknown(source)
        return source._replace(learner=0, subid=self.label(source))

    def _read_some(self, key: str, source: StreamSource, now_us: int) -> int:
        if key in self._undecided:
            source = self._sources[key] = self._with_writer(key, source, now_us)
            if key in self._undecided:
                return 0
        stream = self._stream(key, source)
        file = self._files[key]
        file.is_complete = self._is_last_reading
        try:
            part = file.read(stream.read_offset, lambda available: self._pending(key, stream, available))
        except Replaced as error:
            self._begin_again(key, source, str(error), now_us)
            return 1
        except OSError as error:
            self.note("%s cannot be read: %s" % (source.name, error.strerror))
            return 0
        if part is None:
            return 0
        end = stream.read_offset + len(part.data)
        stream.feed(part.data, end, min(now_us, part.modified_us))
        if stream.read_offset < end:
            file.await_change()
        return len(part.data)

    def _pending(self, key: str, stream: Stream, available: int) -> int:
        """Return how many of the bytes that are there to read next."""
        if self._is_last_reading and available > 0:
            end = self._last_ends.setdefault(key, stream.read_offset + available)
            available = max(0, min(available, end - stream.read_offset))
        return stream.pending_bytes(available)

    def _begin_again(self, key: str, source: StreamSource, what: str, now_us: int) -> None:
        """Read other content under a file's name from its beginning."""
        self._streams[key].finish(now_us)
        self._close(now_us)
        self._batches.begin = {**self._batches.begin, key: 0}
        del self._streams[key]
        self._files[key].forget()
        self.note("%s %s; it is read from its beginning again" % (source.name, what))


def key_of(name: str) -> str:
    """Return a file's key in positions: short, since every record carries them."""
    return short_hash(name.encode("utf-8", "surrogatepass"), 6)


class _Gathered:
    """Points and other records of one stretch of a stream."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.records: List[Record] = []

    @property
    def points(self) -> int:
        return self.blocks.points + len(self.records)

    def drain(self) -> List[Record]:
        records, self.records = self.records, []
        return self.blocks.drain() + records


class BlockStream(Stream):
    """A stream whose points are gathered into blocks."""

    def __init__(self, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until)
        self._gathered = _Gathered()
        self._later = _Gathered()

    @property
    def points(self) -> int:
        """How many points and other records wait."""
        return self._gathered.points + self._later.points

    def blocks_at(self, offset: int) -> Blocks:
        """Return where a point goes that was read at this offset."""
        return self._part(offset).blocks

    def add_record(self, record: Record, offset: int) -> None:
        """Put a record that is not a block of points behind the blocks."""
        self.records_at(offset).append(record)

    def records_at(self, offset: int) -> List[Record]:
        """Return the records that are not blocks of points of the stretch in which an offset lies."""
        return self._part(offset).records

    def _part(self, offset: int) -> _Gathered:
        return self._gathered if self.until is None or offset < self.until else self._later

    def drain(self) -> List[Record]:
        """Return what lies before ``until``, or all if there is none, and forget ``until``."""
        records = self._gathered.drain()
        self._gathered, self._later = self._later, self._gathered
        self.until = None
        return records


class LineStream(BlockStream):
    """A stream in which every line stands for itself."""

    def __init__(self, offset: int, until: Optional[int], limit: int = LINE_LIMIT) -> None:
        super().__init__(offset, until)
        self._cutter = LineCutter(offset, limit)

    @property
    def position(self) -> int:
        """Where the first line begins that has no end yet."""
        return self._cutter.offset

    @abstractmethod
    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one line without its end."""

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Cut the bytes into lines."""
        begin = self._cutter.offset
        for text, end in self._cutter.feed(data, end_offset):
            self.line(text, begin, time_us)
            begin = end
        self.read_offset = end_offset

    def finish(self, time_us: int) -> None:
        """Take the last line as it is."""
        begin = self._cutter.offset
        for text, _end in self._cutter.finish(self.read_offset):
            self.line(text, begin, time_us)
