"""The status of the learners on a host: their state files and locks, reported when they change."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import zlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from workbench.learner.host.subscribers import Subscriber
from workbench.learner.journal import reasons
from workbench.learner.journal.state import (
    STALL,
    StateFile,
    is_kept,
    read,
    read_stop,
    take_lock,
    unwritten,
)
from workbench.learner.platform import leases, process_table, processes, run, system
from workbench.learner.platform.watch import Watcher
from workbench.learner.texts import clean

TYPE_CHECKING = False


def is_begun(status: Mapping[str, Any]) -> bool:
    """Say whether a learner's agent lives, or its command may have been started: not to be done again."""
    state = status["state"]
    return bool(status["alive"]) or (state is not None and state.get("phase") != "starting")


def is_dead(status: Mapping[str, Any]) -> bool:
    """Say whether a learner began, nobody keeps it any more, and its end is not recorded."""
    return not status["alive"] and status["state"] is not None and not is_over(status)


def is_over(status: Mapping[str, Any]) -> bool:
    """Say whether a learner's end is recorded."""
    state = status["state"]
    return state is not None and state.get("phase") == "exited"


LOCK = "agent.lock"
LOCK_SECONDS = 1.0
"""How often locks are checked: no event reports that one is free again."""

READ_ALL_SECONDS = 10.0
"""How often all files are read though nothing is reported: a mount may have ended without a word."""

UNREAD_SECONDS = 0.25
"""How often a learner is looked at again whose files cannot be read now."""

_STALL_CHARACTERS = 200

STOPPED_SECONDS = 30.0
"""How long an agent that is stopped by a signal may leave a kill undone before it is killed itself."""


class LearnerObserver(Subscriber):
    """Answers one caller with the status of learners. One call at a time; :meth:`interrupt` may come from any thread.

    A learner's status: ``fingerprint`` (equal as long as nothing changed), ``launched`` (its launch
    document is there), ``alive`` (its lock is held, or its agent runs), ``state`` (its state file, or None), ``stall``
    (why there is none yet though its agent lives).
    """

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._held: Dict[str, str] = {}
        self._seen: Dict[str, str] = {}
        """Fingerprints of learners that change only with a report, or with what is listed of their locks."""
        self._unread: Set[str] = set()
        """Learners whose files could not be read when they were looked at last."""
        self._known: Dict[str, str] = {}
        """By learner: the fingerprint that the caller has once it has the last answer."""
        self._unsettled: Set[str] = set()
        """Learners of which nothing tells that they are as the caller knows them: each call reads them."""
        self._answer = ""
        """The name of the last answer; empty where the last call failed."""
        self._locks_at = self._read_all_at = 0.0
        """When locks are checked again, and when all files are read again, on the monotonic clock."""
        self._calls = threading.Lock()
        self._interrupted = False

    def observe(
        self, known: Mapping[str, str], timeout_seconds: float, after: str = "", gone: Sequence[str] = ()
    ) -> Dict[str, Any]:
        """Return the status of learners whose fingerprint is not the known one; wait until there are any.

        What is asked counts, not what was asked before: a caller that lost an answer asks again and gets it.

        Args:
            known: fingerprints by learner; of a learner of which the caller knows nothing it is empty.
            timeout_seconds: how long to wait.
            after: the answer that ``known`` is the difference to, by its ``answer``; empty where it is all. Only who
                has that answer can name it. Where it is not the last one of this process, the reply is ``mismatch``,
                and nothing else: the caller has to send all.
            gone: with ``after``: learners that are watched no more.
        """
        until = time.monotonic() + timeout_seconds
        with self._calls:
            if after and after != self._answer:
                return {"mismatch": True}
            self._answer = ""  # a call that fails leaves nothing to go on from
            if after:
                self._renew(known, gone)
            else:
                self._renew(known, [folder for folder in self._known if folder not in known])
            if time.monotonic() >= self._read_all_at:
                self._read_all_at = time.monotonic() + READ_ALL_SECONDS
                folders: Set[str] = set(self._known)
            else:
                folders = {*self._unsettled, *self._wait(0.0), *self._unread, *self._unlocked()}
            while True:
                changed = self._changed(sorted(folders))
                now = time.monotonic()
                if changed or self._interrupted or now >= until:
                    self._interrupted = False
                    return self._answered(changed)
                next_look = min(until, self._locks_at, now + UNREAD_SECONDS if self._unread else until)
                folders = {*self._wait(next_look - now), *self._unread, *self._unlocked()}

    def _renew(self, known: Mapping[str, str], gone: Sequence[str]) -> None:
        """Take over what the caller knows, and watch those learners and no others."""
        self._watch(known, gone)
        for folder in gone:
            self._known.pop(folder, None)
            self._held.pop(folder, None)
            self._seen.pop(folder, None)
        self._unread.difference_update(gone)
        self._unsettled.difference_update(gone)
        self._known.update(known)
        self._settle(known)

    def _settle(self, folders: Iterable[str]) -> None:
        """Note which of these learners are known to the caller as they were seen last."""
        for folder in folders:
            if self._seen.get(folder) == self._known[folder]:
                self._unsettled.discard(folder)
            else:
                self._unsettled.add(folder)

    def _answered(self, changed: Mapping[str, Dict[str, Any]]) -> Dict[str, Any]:
        """Return the answer, which the caller may go on from."""
        self._known.update((folder, status["fingerprint"]) for folder, status in changed.items())
        self._settle(changed)
        self._answer = os.urandom(16).hex()
        answer = {"learners": changed, "boot_id": system.boot_id(), "now_us": system.now_us()}
        return {**answer, "answer": self._answer}

    def _unlocked(self) -> List[str]:
        """Return learners whose locks are not known to be held, once in a while."""
        if time.monotonic() < self._locks_at:
            return []
        self._locks_at = time.monotonic() + LOCK_SECONDS
        listed = leases.listed_locks()
        return [folder for folder in self._known if self._held.get(folder) not in listed]

    def _changed(self, folders: Sequence[str]) -> Dict[str, Dict[str, Any]]:
        """Read these learners; return the status of those that are not as the caller knows them."""
        listed = leases.listed_locks() if folders else set()
        for folder in folders:
            self._seen.pop(folder, None)  # its report is used up, whatever the reading comes to
            self._unsettled.add(folder)
        found = {}
        for folder in folders:
            try:
                found[folder] = status = learner(folder, listed)
                if status["alive"] and status["state"] is None and not status["stall"]:
                    self._unread.add(folder)  # an agent's first act is to write it: it may be there already
                else:
                    self._unread.discard(folder)
            except OSError:
                if not self._known[folder]:
                    raise  # nothing is known of it, which must not look as if it had not begun
                self._unread.add(folder)
        for folder, status in found.items():
            # As long as the kernel lists it, its lock need not be tested.
            self._held[folder] = leases.inode_of(os.path.join(folder, LOCK)) if status["alive"] else ""
            if status["state"] is not None and bool(status["alive"]) != is_over(status):
                self._seen[folder] = status["fingerprint"]
        self._settle(found)
        return {
            folder: status for folder, status in found.items() if status["fingerprint"] != self._known[folder]
        }

    def interrupt(self) -> None:
        """Make the call that waits, or the next one, return at once."""
        self._interrupted = True
        self._watcher.wake()

    def close(self) -> None:
        """Give everything back, once no call waits any more."""
        self.interrupt()
        with self._calls:
            self._watcher.close()

    def _wait(self, seconds: float) -> List[str]:
        folders = {os.path.dirname(path) for path in self._watcher.wait(max(0.0, seconds))}
        return sorted(folder for folder in folders if folder in self._known)

    def _watch(self, known: Iterable[str], gone: Iterable[str]) -> None:
        names = ("state.json", STALL)
        for folder in gone:
            if folder in self._known:
                for name in names:
                    self._watcher.remove(os.path.join(folder, name))
        for folder in known:
            if folder not in self._known:
                for name in names:
                    self._watcher.add(os.path.join(folder, name))


def learner(folder: str, listed: Optional[Set[str]] = None) -> Dict[str, Any]:
    """Return the status of one learner.

    The lock is tested before the state is read: an agent records its exit and then releases it, so a free lock and
    after it no exit recorded mean that nobody will record one. But an agent may have begun between the two:
    only who wrote a state before the lock was found free is dead.

    Raises:
        OSError: nobody knows now: its mount has ended, say.
    """
    found = _read_status(folder, listed)
    return _read_status(folder) if is_dead(found) else found


def _read_status(folder: str, listed: Optional[Set[str]] = None) -> Dict[str, Any]:
    alive = leases.is_held(os.path.join(folder, LOCK), listed)
    content = system.content_of(os.path.join(folder, "state.json"))
    state = _object(content)
    if state is not None and not alive and state.get("phase") != "exited":
        # Its host has no flock, or its mount was ended and came back: the lock is held on the former one.
        alive = is_kept(state)
    launch = read_object(os.path.join(folder, "launch.json"))
    document = launch or {}
    stall = clean(unwritten(folder), _STALL_CHARACTERS) if alive and state is None else ""
    return {
        "fingerprint": f"{len(content)}-{zlib.crc32(content):x}-{alive:d}{launch is not None:d}{stall}",
        "launched": launch is not None,
        "alive": alive,
        "state": state,
        "stall": stall,
        "slots": list(document.get("slots") or ()),
        "secrets_file": document.get("secrets_file"),
    }


def end_unkept(folder: str, request: Mapping[str, Any]) -> bool:
    """Record a stop as the end of a learner that was handed over, where its waiter is gone: nobody else does.

    Returns:
        Whether it has ended by that.

    Raises:
        OSError: its folder takes nothing.
    """
    lock = take_lock(folder) if request.get("kind") in ("halt", "kill") else None
    if lock is None:
        return False
    try:
        found = read(folder)
        if not found.get("waiting") or is_kept(found):
            return False
        kind = "kill" if request.get("kind") == "kill" else "halt"
        file = StateFile(folder, found)
        file.end_unbegun(reasons.of_stop(kind, str(request.get("by") or "")), kind)
        is_written = file.write(durable=True)
        if is_written:
            file.clear()
        return is_written
    finally:
        os.close(lock)


def markers(variable: str = "FABRIC_LEARNER") -> Dict[str, List[int]]:
    """Return what processes here have in an environment variable, of all homes, each with their pids."""
    found: Dict[str, List[int]] = {}
    prefix = os.fsencode(variable) + b"="
    for pid in process_table.pids():
        content = process_table.environment(pid)
        for entry in content.split(b"\0") if b"\0" + prefix in content else ():
            if entry.startswith(prefix):
                found.setdefault(os.fsdecode(entry[len(prefix) :]), []).append(pid)
    return found


def rouse_agents(marker: str, folder: str) -> None:
    """Let the agents of a learner go on that were stopped by a signal, so that they see the request to stop.

    Those that were asked to kill the learner for long and are stopped still are killed, with its processes.
    """
    table = process_table.read()
    stopped = [pid for pid in process_table.carriers("FABRIC_GUARD", marker, table) if table[pid].stopped]
    state = read(folder)
    if state.get("waiting") and is_kept(state):
        # The waiter keeps it, and carries nothing of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(state["pid"], signal.SIGCONT)
    if not stopped:
        return
    if _is_kill_overdue(folder):
        run.kill_agents(marker)
        processes.end(marker, 0.0)
        return
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def _is_kill_overdue(folder: str) -> bool:
    if read_stop(folder).get("kind") != "kill":
        return False
    try:
        asked_at = os.lstat(os.path.join(folder, "stop.json")).st_mtime
    except OSError:
        return False
    return time.time() - asked_at >= STOPPED_SECONDS


def read_object(path: str) -> Optional[Dict[str, Any]]:
    """Read a JSON object; None where there is none to be read."""
    return _object(system.read_bytes(path))


def _object(content: bytes) -> Optional[Dict[str, Any]]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
