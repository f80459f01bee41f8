"""Files in the LOG_DIR that learners share: who reads them, and who wrote them.

One learner's agent reads at a time, until the last learner has ended.
The reader holds a lock in the attempt's folder. When its learner has ended, it says that its last reading begins, reads
to the end, and lets go; another learner goes on from the cursor in the records of the one before. A learner that ends
while another one reads leaves its files to that one, unless the last reading has begun: then it waits for its turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from workbench.learner.platform import process_table, system
from workbench.learner.texts import expression

LOCK_FILE = "metric-files.lock"
"""Held by the reader; each line is a turn: the learner, and how long its records were then."""
LAST_FILE = "metric-files.last"
"""There while the last reading of the reader is under way, or done and nobody else reads."""

_CHUNK_BYTES = 1 << 20

_EVENT_FILE = expression(r"tfevents\.\d+\.(?P<host>.+?)(?:\.(?P<pid>\d+)\.\d+)?(?:\.v2)?$")
_LEARNER = expression(r"(?:^|[._-])learner-(\d+)(?=[._-]|$)")
_CONTAINER_ID = expression(r"(?<![0-9a-f])[0-9a-f]{12,64}(?![0-9a-f])")
_ID_CHARACTERS = 12
"""Of a container's id its host name has as many."""


class ReadingTurn:
    """One learner's claim to read the files that all learners write."""

    def __init__(self, learner_dir: str, learner: int, name: str) -> None:
        self._folder = os.path.dirname(learner_dir)
        self._learner = learner
        self._name = name
        self._descriptor: Optional[int] = None
        self.lock_path = os.path.join(self._folder, LOCK_FILE)
        self.is_ours = False
        self._is_over = False
        self._turns: List[Tuple[int, int]] = []

    def take(self) -> bool:
        """Become the reader if nobody is; return whether this call did."""
        if self.is_ours or self._is_over or not os.path.isdir(os.path.join(self._folder, "learner-1")):
            return False  # without that folder the learners do not share their attempt's
        try:
            if self._descriptor is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self.lock_path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            text = os.pread(self._descriptor, 1 << 16, 0)
            self._turns = _turns_in(text)
            if not self._turns or self._turns[-1][0] != self._learner:
                line = b"%d %d\n" % (self._learner, _size_of(self._records_of(self._learner)))
                os.pwrite(self._descriptor, line, len(text))
        except OSError:
            return False  # another one reads, or the disk is full: the next poll tries again
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, LAST_FILE))
        self.is_ours = True
        return True

    def inherited(self) -> Any:
        """Return the cursor of the one who read last, if that was another learner; None if there is nothing."""
        for learner, begin in reversed(self._turns):
            cursor = _last_cursor(self._records_of(learner), begin, self._name)
            streams = {**(cursor.get("at") or {}), **(cursor.get("to") or {})}
            if any(streams):  # the key of a learner's own output is empty
                return None if learner == self._learner else cursor
        return None

    def begin_last(self) -> None:
        """Say that the last reading begins: what is written from now on is another's to read."""
        with contextlib.suppress(OSError):
            open(os.path.join(self._folder, LAST_FILE), "wb").close()

    def is_awaited(self) -> bool:
        """Whether a learner that has ended has to wait for its turn: the reader may be past its files."""
        return not self.is_ours and os.path.exists(os.path.join(self._folder, LAST_FILE))

    def _records_of(self, learner: int) -> str:
        return os.path.join(self._folder, "learner-%d" % learner, "records.jsonl")

    def close(self) -> None:
        """Let another learner read; to be called once the records are written."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self.is_ours = False
        self._is_over = True


def _turns_in(text: bytes) -> List[Tuple[int, int]]:
    turns = []
    for line in text.splitlines():
        learner, _, begin = line.partition(b" ")
        if learner.isdigit() and begin.isdigit():
            turns.append((int(learner), int(begin)))
    return turns


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _last_cursor(path: str, begin: int, name: str) -> Dict[str, Any]:
    """Return the last cursor of a collector among the records from an offset on."""
    try:
        with open(path, "rb", buffering=0) as file:
            for line in _backwards(file.fileno(), begin, os.fstat(file.fileno()).st_size):
                cursor = _cursor_in(line, name)
                if isinstance(cursor, dict):
                    # A collector that has other sources too keeps that of its files apart.
                    files = cursor.get("files", cursor)
                    return files if isinstance(files, dict) else {}
    except OSError:
        pass
    return {}


def _cursor_in(line: bytes, name: str) -> Any:
    if b'"cursor' not in line:
        return None
    try:
        record = json.loads(line)
        if record.get("source") == name and "cursor" in record:
            return record["cursor"]
        return (record.get("cursors") or {}).get(name)
    except (ValueError, AttributeError, RecursionError):
        return None  # a torn line, or garbage that somebody else wrote


def _backwards(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    carry = b""
    while end > begin:
        start = max(begin, end - _CHUNK_BYTES)
        lines = (os.pread(descriptor, end - start, start) + carry).split(b"\n")
        carry, end = lines[0], start
        yield from lines[:0:-1]
    yield carry


def writer_of(path: str, name: str, learner_dir: str, marker: str, learners: int) -> int:
    """Return the learner that writes a file; 0 where nothing says it.

    Said by: ``learner-N`` as a folder or in the file's name; the container in the file's name; the process that holds
    it open for writing; in an event file's name, the process on this machine.
    """
    named = named_learner(name, learners)
    if named:
        return named
    match = _EVENT_FILE.search(name)
    hosts = [match.group("host")] if match else _CONTAINER_ID.findall(os.path.basename(name))
    for host in hosts:
        found = _of_container(host, os.path.dirname(learner_dir), learners)
        if found:
            return found
    processes = _processes(os.path.dirname(learner_dir), marker, learners)
    holders = _holding(path, processes)
    if len(holders) == 1:
        return holders.pop()
    if match is not None and match.group("pid") and match.group("host") == os.uname().nodename:
        return processes.get(int(match.group("pid")), 0)
    return 0


def named_learner(name: str, learners: int) -> int:
    """Return the learner N that ``learner-N`` in a path or another name says; 0 for none."""
    for part in name.split(os.sep):
        for match in _LEARNER.finditer(part):
            if 1 <= int(match.group(1)) <= learners:
                return int(match.group(1))
    return 0


def writer_by_host(name: str, hosts: Sequence[str]) -> int:
    """Return the learner that writes a file where each has a machine of its own; 0 where the name does not say it."""
    match = _EVENT_FILE.search(name)
    host = match.group("host") if match else ""
    return named_learner(name, len(hosts)) or (hosts.index(host) + 1 if host in hosts else 0)


def is_starting(learner_dir: str, learners: int) -> bool:
    """Whether the processes of some learner's container are not known yet."""
    attempt_dir = os.path.dirname(learner_dir)
    return any(
        os.path.exists(os.path.join(attempt_dir, "learner-%d" % learner, "container.json"))
        and not os.path.exists(os.path.join(attempt_dir, "learner-%d" % learner, process_table.FILE))
        for learner in range(1, learners + 1)
    )


def label_of(name: str) -> str:
    """Return what tells an event file apart from others in its folder: who wrote it, by its name."""
    match = _EVENT_FILE.search(name)
    if match is None:
        return ""
    return ".".join(part for part in (match.group("host"), match.group("pid")) if part)


def _of_container(host: str, attempt_dir: str, learners: int) -> int:
    if len(host) < _ID_CHARACTERS:
        return 0
    for learner in range(1, learners + 1):
        folder = os.path.join(attempt_dir, "learner-%d" % learner)
        # A host name is the container's name, or its id, which is in the path of its processes.
        for file in ("container.json", process_table.FILE):
            if host in system.read_text(os.path.join(folder, file)):
                return learner
    return 0


def _processes(attempt_dir: str, marker: str, learners: int) -> Dict[int, int]:
    """Return the learner of every process of the attempt; a process of somebody else's cannot be seen."""
    pattern = re.compile(rb"(?:^|\0)FABRIC_LEARNER=" + re.escape(os.fsencode(marker)) + rb"/(\d+)(?:\0|$)")
    found = {}
    for learner in range(1, learners + 1):
        tree = process_table.ContainerTree(os.path.join(attempt_dir, "learner-%d" % learner))
        found.update(dict.fromkeys(tree.pids(), learner))
    for pid in process_table.pids():
        match = pattern.search(system.read_bytes("/proc/%d/environ" % pid))
        if match:
            found[pid] = int(match.group(1))
    return found


def _holding(path: str, processes: Dict[int, int]) -> Set[int]:
    try:
        status = os.stat(path)
    except OSError:
        return set()
    wanted = (status.st_dev, status.st_ino)
    return {learner for pid, learner in processes.items() if wanted in set(_written_by(pid))}


def _written_by(pid: int) -> Iterator[Tuple[int, int]]:
    """Yield device and inode of the files that a process has open for writing."""
    folder = "/proc/%d/fd" % pid
    try:
        numbers = os.listdir(folder)
    except OSError:
        return
    for number in numbers:
        try:
            may_write = os.lstat(os.path.join(folder, number)).st_mode & 0o200
            status = os.stat(os.path.join(folder, number))
        except OSError:
            continue
        if may_write:
            yield status.st_dev, status.st_ino
