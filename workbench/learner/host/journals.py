"""What is new in many learners' journals at once, from the offsets that the other side names: one answer for all."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from typing import Any, Callable, Dict, Mapping, Tuple

from workbench.learner.host.subscribers import Subscriber
from workbench.learner.platform import system
from workbench.learner.platform.files import published_end
from workbench.learner.platform.watch import Watcher

ANSWER_BYTES = 16 << 20
"""An answer that has grown to this is sent; the rest goes with the next. A slow link has smaller ones."""

SHARE_BYTES = 8 << 20
"""What one learner's file may take of an answer, so that no learner's output holds up the others'."""

MIN_SHARE_BYTES = 4 << 10

GATHER_SECONDS = 0.002
"""News comes in company: an answer waits so long for the rest of it."""

LOGS = (("output", "index"), ("setup", "setup_index"))
EARLY = ("output", "setup")
"""What may be written down while the rest is on its way."""

FILES = {
    "output": "output.log",
    "index": "output.idx",
    "setup": "setup.log",
    "setup_index": "setup.idx",
    "records": "records.jsonl",
    "state": "state.json",
    "processes": "processes.json",
}
"""The files of a journal, by what they are called in a call; the last one is read on request alone."""

_WATCHED = ("index", "setup_index", "records", "state")
_ENTRY = struct.Struct("<QQQ")
_HEADER_BYTES = 24

Known = Mapping[str, Mapping[str, int]]
"""By learner's folder: the offset of each file that is not at its start, and ``state``'s checksum."""

Part = Tuple[bytes, int, int]
"""Bytes, where they begin, and the published end of their file."""

News = Dict[str, Dict[str, Part]]


class JournalFollower(Subscriber):
    """Answers one caller with what is new in journals. One call at a time; any thread may :meth:`interrupt`."""

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._calls = threading.Lock()
        self._interrupted = False
        self._turn = 0
        self._settled: Dict[str, Dict[str, int]] = {}
        """Learners without news, and what was known of them then."""

    def follow(
        self, known: Known, timeout_seconds: float, budget_bytes: Callable[[], int] = lambda: ANSWER_BYTES
    ) -> News:
        """Return what is new, and wait until something is.

        Args:
            known: what the caller has.
            timeout_seconds: how long to wait for something new.
            budget_bytes: returns how much the answer may hold.
        """
        until = time.monotonic() + timeout_seconds
        with self._calls:
            self._watch(known)
            while True:
                news = self._collect(known, budget_bytes)
                left = until - time.monotonic()
                if news or self._interrupted or left <= 0:
                    self._interrupted = False
                    return news
                if self._wait(left) and not self._interrupted:
                    self._wait(GATHER_SECONDS)

    def interrupt(self) -> None:
        """Make the call that waits, or the next one, return at once."""
        self._interrupted = True
        self._watcher.wake()

    def close(self) -> None:
        """Give everything back, once no call waits any more."""
        self.interrupt()
        with self._calls:
            self._watcher.close()

    def _wait(self, seconds: float) -> bool:
        changed = {os.path.dirname(path) for path in self._watcher.wait(seconds)}
        for folder in changed:
            self._settled.pop(folder, None)
        return bool(changed)

    def _collect(self, known: Known, budget_bytes: Callable[[], int]) -> News:
        """Look at learners in turn, beginning with another one each time, until the answer is full.

        Left out are those that had nothing more when the same was known of them, and have not changed since.
        """
        self._wait(0.0)
        folders = [folder for folder in known if self._settled.get(folder) != known[folder]]
        news: News = {}
        budget = min(ANSWER_BYTES, budget_bytes())
        share = max(MIN_SHARE_BYTES, min(SHARE_BYTES, budget // max(1, len(folders))))
        self._turn += 1
        begin = self._turn % len(folders) if folders else 0
        for folder in folders[begin:] + folders[:begin]:
            found = new_in(folder, known[folder], share)
            if not found:
                self._settled[folder] = dict(known[folder])
                continue
            news[folder] = found
            budget -= sum(len(part[0]) for part in found.values())
            if budget <= 0:
                break
        return news

    def _watch(self, known: Known) -> None:
        paths = {os.path.join(folder, FILES[name]) for folder in known for name in _WATCHED}
        watched = set(self._watcher.paths())
        for path in watched - paths:
            self._watcher.remove(path)
        for path in paths - watched:
            self._watcher.add(path)
        for folder in set(self._settled) - set(known):
            del self._settled[folder]


def new_in(folder: str, known: Mapping[str, int], share_bytes: int = SHARE_BYTES) -> Dict[str, Part]:
    """Return what is new in one learner's journal, of each file at most ``share_bytes``.

    A log's index goes no further than the log itself, and the state comes only with the last of all, so that
    whoever appends the parts in this order never says more than is there.
    """
    found: Dict[str, Part] = {}
    state = system.read_bytes(os.path.join(folder, FILES["state"]))
    whole = True
    for log, index in LOGS:
        whole = _new_in_log(folder, log, index, known, found, share_bytes) and whole
    whole = _new_in_records(folder, known, found, share_bytes) and whole
    if state and whole and zlib.crc32(state) != known.get("state", 0):
        found["state"] = (state, 0, len(state))
    return found


def _new_in_log(
    folder: str, log: str, index: str, known: Mapping[str, int], found: Dict[str, Part], share_bytes: int
) -> bool:
    """Add what is new in a log and its index; return whether that is all there is."""
    try:
        entries = os.open(os.path.join(folder, FILES[index]), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        size = os.fstat(entries).st_size
        size -= size % _ENTRY.size
        published = _end_of(entries, size - _ENTRY.size) if size > _HEADER_BYTES else 0
        offset = known.get(log, 0)
        data = _read(os.path.join(folder, FILES[log]), offset, min(share_bytes, published - offset))
        if data:
            found[log] = (data, offset, published)
        reached = offset + len(data)
        start = known.get(index, 0)
        most = start + share_bytes - (start + share_bytes) % _ENTRY.size
        stop = _last_before(entries, start, min(size, most), reached)
        if stop > start:
            found[index] = (os.pread(entries, stop - start, start), start, size)
        return reached >= published and stop >= size
    finally:
        os.close(entries)


def _new_in_records(folder: str, known: Mapping[str, int], found: Dict[str, Part], share_bytes: int) -> bool:
    path, offset = os.path.join(folder, FILES["records"]), known.get("records", 0)
    try:
        with open(path, "rb") as stream:
            if os.fstat(stream.fileno()).st_size <= offset:
                return True
            end = published_end(path, stream)
            stream.seek(offset)
            data = stream.read(max(0, min(share_bytes, end - offset)))
    except OSError:
        return True
    if data:
        found["records"] = (data, offset, end)
    return offset + len(data) >= end


def _last_before(index: int, start: int, size: int, reached: int) -> int:
    """Return how far an index goes that tells of no more of its log than was reached."""
    start = min(start, size)
    if size <= _HEADER_BYTES or _end_of(index, size - _ENTRY.size) <= reached:
        return size
    low, high = max(start, _HEADER_BYTES) // _ENTRY.size, size // _ENTRY.size
    while low < high:
        middle = (low + high) // 2
        if _end_of(index, middle * _ENTRY.size) <= reached:
            low = middle + 1
        else:
            high = middle
    return max(start, low * _ENTRY.size)


def _end_of(index: int, position: int) -> int:
    end: int = _ENTRY.unpack(os.pread(index, _ENTRY.size, position))[0]
    return end


def _read(path: str, offset: int, count: int) -> bytes:
    if count <= 0:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, count, offset)
    finally:
        os.close(descriptor)


def sizes_of(news: News) -> Dict[str, Dict[str, Any]]:
    """Return news as JSON, their bytes left out: lengths, offsets and ends."""
    return {
        folder: {name: [len(data), offset, end] for name, (data, offset, end) in parts.items()}
        for folder, parts in news.items()
    }
