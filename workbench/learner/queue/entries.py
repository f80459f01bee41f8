"""Entries of a host's queue: one small file each below the folder of leases, owned and locked by who waits.

Anybody can write into that folder, so nothing is believed but what the kernel vouches for: the person is the
file's owner, and an entry counts only while its owner's lock is held (``platform.owned_files``).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from workbench.learner.platform.owned_files import (
    is_held_by_owner,
    is_text_of_owner,
    lock_own,
    open_own,
    read_own,
    replace_own,
)
from workbench.learner.platform.system import now_us

FORMAT = 1
"""Of the text. A newer one has these keys, too, so it is shown and respected."""

PREFIX = "queue-"

ENTRIES_OF_A_PERSON = 1000
"""More entries of one person are not read: nobody can make the others wait for a long list."""

STALE_SECONDS = 86400.0
"""An entry of one's own is removed when nobody has held it for this long."""

_RENEW_SECONDS = 3600.0
"""The file of an entry that is held is touched as often: its age says for how long nobody has held it."""

PRIORITY_MAX = 100
DEFAULT_PRIORITY = 50

WEIGHT_MIN = 0.01
WEIGHT_MAX = 1000.0
DEFAULT_WEIGHT = 1.0

PREEMPTED_AT_ONCE = 32
"""A job asks so many others to end at once at most: an entry is a short text."""

LABELS_MAX = 16
"""More labels of a job are not looked at."""

NAME_MAX = 64
"""Characters of a job's name that others see."""

_MARK_LENGTH = 16
_NAME_LIMIT = 90
_READ_TRIES = 20
_GPUS_MAX = 1 << 16


class QueueEntry(NamedTuple):
    """One job that waits, as its file says it; ``person`` is the file's owner."""

    person: int
    home: str
    job: str
    gpus: int
    """For all learners together."""
    each: int = 1
    """For each learner."""
    priority: int = DEFAULT_PRIORITY
    position: float = 0.0
    """Orders a home's own jobs of one priority; smaller goes first."""
    since_us: int = 0
    """When it came to the host, by the host's clock."""
    weight: float = DEFAULT_WEIGHT
    """Its group's part of what the person gets, beside the weights of the person's other groups."""
    max_runtime_seconds: Optional[float] = None
    """How long it runs at most, with its grace period; None where nobody knows."""
    tries: int = 0
    """How often it tried to take its GPUs and found too few."""
    preempts: Tuple[str, ...] = ()
    """The attempts of jobs of a lower priority that are to end for it (:func:`attempt_name`)."""
    labels: Tuple[str, ...] = ()
    """What stands for its labels (:func:`label_mark`)."""
    group: str = ""
    """What stands for the sweep or search that it is of; empty for a job by itself, and for an older fabric's."""
    name: str = ""
    """The job's name, where its person shares it."""
    format: int = FORMAT

    @property
    def key(self) -> Tuple[int, str, str]:
        """What it is known by: nobody can speak for the job of another person."""
        return (self.person, self.home, self.job)


class HeldEntries:
    """The entries that this process holds. All of them are free the moment it ends."""

    def __init__(self) -> None:
        self._held: Dict[Tuple[str, str], int] = {}
        self._written: Dict[Tuple[str, str], str] = {}

    def hold(self, folder: str, home: str, job: str, facts: Mapping[str, Any]) -> bool:
        """Make or renew an entry; one that was there keeps its time, and whom it preempts unless the facts say that.

        A new one has the time that the facts say, where that is not to come, else waits from now on.

        Return whether it is held.

        It is not where another process of the same person holds it, or where somebody else made its file.
        """
        name = os.path.join(folder, file_name(home, job))
        descriptor = self._held.get((folder, name))
        written, age_seconds = self._written.get((folder, name), ""), 0.0
        if descriptor is not None:
            found = os.fstat(descriptor)
            age_seconds = time.time() - found.st_mtime
            if not found.st_nlink:  # somebody emptied the folder: the job goes on waiting since when it did
                self.let_go(folder, home, job)
                descriptor = None
        if descriptor is None:
            descriptor = open_own(name)
            if descriptor is None:
                return False
            self._held[folder, name] = descriptor
            before = _document(read_own(descriptor)) or _document(written)
            written = ""
        else:
            before = _document(written or read_own(descriptor))
        kept = {"preempts": before["preempts"]} if before.get("preempts") else {}
        since_us = _since(before if "since_us" in before else facts)
        document = {**kept, **facts, "format": FORMAT, "home": home, "job": job, "since_us": since_us}
        text = json.dumps(document, sort_keys=True)
        if text == written:
            if age_seconds > _RENEW_SECONDS:
                with contextlib.suppress(OSError):  # nothing there can be changed now
                    os.utime(descriptor)
            return True
        # Another file takes its place: who reads it meanwhile must not find half a text, and pass its job.
        replaced = replace_own(name, text)
        if replaced is None:
            if (before.get("home"), before.get("job")) != (home, job):
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)  # else what somebody wrote there would count
            return False
        os.close(descriptor)
        self._held[folder, name], self._written[folder, name] = replaced, text
        return True

    def release(self, folder: str, home: str, job: str) -> None:
        """Remove an entry that is held; any other stays as it is."""
        name = os.path.join(folder, file_name(home, job))
        if (folder, name) in self._held:
            self._remove(folder, name)

    def _remove(self, folder: str, name: str) -> None:
        descriptor = self._held.pop((folder, name))
        self._written.pop((folder, name), None)
        with contextlib.suppress(OSError):  # it does not count any more once it is closed
            if os.fstat(descriptor).st_nlink:  # else another process has it now, or it is gone
                os.unlink(name)
        os.close(descriptor)

    def descriptor(self, folder: str, home: str, job: str) -> Optional[int]:
        """Return the descriptor that holds an entry; None where it is not held here."""
        return self._held.get((folder, os.path.join(folder, file_name(home, job))))

    def adopt(self, folder: str, home: str, job: str, descriptor: int) -> None:
        """Hold an entry by the descriptor of a process that holds it: there is no instant in which nobody does."""
        name = os.path.join(folder, file_name(home, job))
        try:
            is_its = os.path.samestat(os.fstat(descriptor), os.stat(name, follow_symlinks=False))
        except OSError:
            is_its = False
        if is_its and (folder, name) not in self._held:
            self._held[folder, name] = descriptor
        else:
            os.close(descriptor)

    def let_go(self, folder: str, home: str, job: str) -> None:
        """Let go of an entry and leave its file: who holds it next finds since when its job waits."""
        name = os.path.join(folder, file_name(home, job))
        descriptor = self._held.pop((folder, name), None)
        self._written.pop((folder, name), None)
        if descriptor is not None:
            os.close(descriptor)

    def keep_only(self, folder: str, home: str, jobs: Set[str]) -> None:
        """Remove the entries of a home whose jobs wait no more."""
        names = {os.path.join(folder, file_name(home, job)) for job in jobs}
        mine = os.path.join(folder, _stem(home))
        for held_in, name in list(self._held):
            if held_in == folder and name.startswith(mine) and name not in names:
                self._remove(held_in, name)

    def close(self) -> None:
        """Let go of all. The files stay: whoever goes on for these jobs finds since when they wait."""
        while self._held:
            os.close(self._held.popitem()[1])
        self._written.clear()


def read_entries(folder: str) -> List[QueueEntry]:
    """Return the entries that count, in no order; one that is not what it should be is left out."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        counts: Dict[int, int] = {}
        found: List[QueueEntry] = []
        for name in _files(descriptor):
            entry = _read_entry(descriptor, name, now_us())
            if entry is None:
                continue
            counts[entry.person] = counts.get(entry.person, 0) + 1
            if counts[entry.person] <= ENTRIES_OF_A_PERSON:
                found.append(entry)
        return found
    finally:
        os.close(descriptor)


def are_lockable(folder: str) -> bool:
    """Say whether entries can be held in a folder: its file system, and this system, know such locks."""
    import tempfile  # guards, which read entries, are to stay small

    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return lock_own(probe.fileno())
    except OSError:
        return False


def entry_of(person: int, document: Mapping[str, Any], now: int) -> Optional[QueueEntry]:
    """Return the entry that a text says; None where it says none. Numbers out of range become the nearest."""
    gpus, each = _whole(document.get("gpus")), _whole(document.get("each"), 1)
    if not 1 <= gpus <= _GPUS_MAX or not 1 <= each <= gpus:
        return None
    runtime = document.get("max_runtime_seconds")
    return QueueEntry(
        person=person,
        home=str(document.get("home") or "")[:64],
        job=str(document.get("job") or "")[:128],
        gpus=gpus,
        each=each,
        priority=priority_of(document),
        position=finite(document.get("position"), 0.0),
        since_us=max(0, min(now, _whole(document.get("since_us"), now))),
        weight=max(WEIGHT_MIN, min(WEIGHT_MAX, finite(document.get("weight"), DEFAULT_WEIGHT))),
        max_runtime_seconds=max(0.0, finite(runtime, 0.0)) or None,
        tries=_whole(document.get("tries")),
        preempts=_names(document.get("preempts"), min(gpus, PREEMPTED_AT_ONCE)),
        labels=marks_in(document.get("labels")),
        group=group_in(document.get("group")),
        name=shared_name(document.get("name")),
        format=_whole(document.get("format"), FORMAT),
    )


def attempt_name(job: Any, attempt: Any) -> str:
    """Return by which name an attempt is asked to end."""
    return "%s/%s" % (job, attempt)


def priority_of(document: Mapping[str, Any]) -> int:
    """Return the priority that a text says, or the nearest that there is."""
    return max(0, min(PRIORITY_MAX, _whole(document.get("priority"), DEFAULT_PRIORITY)))


def label_mark(label: str) -> str:
    """Return what stands for a label, ``NAME=VALUE``, where others can read it: its text is nobody's business."""
    return hashlib.sha256(label.encode("utf-8", "replace")).hexdigest()[:_MARK_LENGTH]


def marks_text(labels: Mapping[str, str]) -> str:
    """Return the labels of a job as entries and leases have them."""
    return " ".join(sorted(label_mark(f"{name}={value}") for name, value in labels.items())[:LABELS_MAX])


def marks_in(text: object) -> Tuple[str, ...]:
    """Return the marks that somebody wrote; what is none is left out."""
    words = text.split()[:LABELS_MAX] if isinstance(text, str) else ()
    marks = (word for word in words if len(word) == _MARK_LENGTH and word.isalnum())
    return tuple(dict.fromkeys(marks))  # each counts once


def group_mark(sweep: str) -> str:
    """Return what stands for a sweep, or a search, where others can read it; empty for none."""
    return label_mark(f"sweep={sweep}") if sweep else ""


def group_in(text: object) -> str:
    """Return the mark of a group that somebody wrote; empty where it is none."""
    return "".join(marks_in(text)[:1])


def shared_name(text: object) -> str:
    """Return a job's name as others read it: one short line, with nothing in it that controls a terminal."""
    if not isinstance(text, str):
        return ""
    plain = "".join(character if character.isprintable() else " " for character in text[: 4 * NAME_MAX])
    return " ".join(plain.split())[:NAME_MAX]


def file_name(home: str, job: str) -> str:
    """Return the name of an entry's file."""
    return f"{_stem(home)}{hashlib.sha256(job.encode()).hexdigest()[:16]}"


def _stem(home: str) -> str:
    return f"{PREFIX}{hashlib.sha256(home.encode()).hexdigest()[:12]}-"


def _files(folder: int) -> Iterator[str]:
    return (name for name in sorted(os.listdir(folder)) if name.startswith(PREFIX))


def _read_entry(folder: int, name: str, now: int) -> Optional[QueueEntry]:
    """Return the entry of a file; None where it does not count. One that is being renewed is read again."""
    for _ in range(_READ_TRIES):
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=folder)
        except OSError:
            return None
        try:
            entry = _entry_in(descriptor, folder, name, now)
            # While it is open no other file has its number: without a name, another one took its place.
            if entry is not None or os.fstat(descriptor).st_nlink:
                return entry
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            os.close(descriptor)
    return None


def _entry_in(descriptor: int, folder: int, name: str, now: int) -> Optional[QueueEntry]:
    found = os.fstat(descriptor)
    if not is_text_of_owner(found) or found.st_nlink != 1:
        return None
    text = read_own(descriptor)
    if not is_held_by_owner(descriptor):
        is_old = time.time() - found.st_mtime > STALE_SECONDS
        if is_old and found.st_uid == os.geteuid():
            _remove_stale(name, folder, descriptor)
        return None
    document = json.loads(text)
    return entry_of(found.st_uid, document, now) if isinstance(document, dict) else None


def _remove_stale(name: str, folder: int, descriptor: int) -> None:
    """Remove a file of one's own that nobody held a moment ago, unless somebody holds it now or has replaced it.

    It is not locked for that: whoever looks meanwhile would take it for an entry that counts. Nor is it opened for
    writing, which would be news to all who wait there.
    """
    is_there = os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(descriptor))
    if is_there and not is_held_by_owner(descriptor):
        os.unlink(name, dir_fd=folder)


def _document(text: str) -> Dict[str, Any]:
    """Return what an entry's text says; nothing where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _since(document: Mapping[str, Any]) -> int:
    """Return since when the job of an entry waits: as its text says, else from now on."""
    now = now_us()
    found = _whole(document.get("since_us"), now)
    return found if 0 < found <= now else now


def _names(value: Any, most: int) -> Tuple[str, ...]:
    """Return names of attempts, no more than so many."""
    found = value[:most] if isinstance(value, list) else ()
    return tuple(name for name in found if isinstance(name, str) and len(name) <= _NAME_LIMIT)


def _whole(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def finite(value: Any, otherwise: float) -> float:
    """Return a number that somebody wrote, if it is one, and not beyond all measure."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 else otherwise  # NaN is not less
