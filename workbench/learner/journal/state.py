"""Where a learner is, for everybody to read: ``state.json``, and ``decision.json`` of its attempt.

Both appear whole or not at all. A disk may have no block or no inode for a new file: beside each file that must be
written then lies a spare one of one block, made early, whose content and name are changed instead. Where there is no
room for the very first state, a link's target says so, which needs no block.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time

from workbench.learner.journal.launch_document import PREEMPT
from workbench.learner.platform import system

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from workbench.learner.journal.launch_document import LaunchDocument

FORMAT = 1
_SPARE_BYTES = 4096

_STEP_BYTES = 1024
"""Blanks make the size of each file that replaces another a multiple of it. On rclone's mount it may be read as far as
the size of the former one alone, for as long as it lies there, so both have to have the same size."""

STALL = "state.json.stall"
"""The link whose target says why the first state waits."""

AWAITS_ROOM = "the disk is full: the command starts once there is room"
"""Short enough for that."""

END_AWAITS_ROOM = "the disk is full: the command has ended, which is recorded once there is room"

_LINK_CHARACTERS = 59
"""A longer target takes a block of its own on most file systems."""

FINISH = "finish"
"""The kind of a ``stop.json`` that has ``should_stop()`` say yes, and ends nothing by itself."""

_STOP = "stop.json"
_DECISION = "decision.json"


HOME_SECONDS = 12 * 3600.0
"""How long a command that has ended waits for a home whose mount has ended: until somebody looks in the morning."""

LOCK_VARIABLE = "FABRIC_AGENT_LOCK"
"""Names the descriptor of a learner's lock that whoever started its agent holds, and the agent has inherited."""

READ_SECONDS = 10.0
"""How long a state that cannot be read is tried again."""

_READ_PAUSE_SECONDS = 0.05
_UNREADABLE = (errno.EIO, errno.ENOENT)
"""How a read fails of a file on rclone's mount that is being uploaded."""

_LOCK = "agent.lock"
_LOCK_TRIES = 50
_LOCK_PAUSE_SECONDS = 0.01


def take_lock(folder: str) -> Optional[int]:
    """Return the descriptor that holds a learner's lock; None when an agent holds it.

    Others hold it for a moment to see whether it is held: it is tried a few times.

    Raises:
        OSError: it cannot be opened.
    """
    import fcntl

    lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
    os.close(lock)
    return None


def take_inherited_lock(folder: str) -> Optional[int]:
    """Return the descriptor of a learner's lock that was held for us until now; None where none was.

    The variable that names it is taken out of the environment: nothing that we start has it.
    """
    import fcntl

    named = os.environ.pop(LOCK_VARIABLE, "")
    if not named.isdigit() or not is_lock_of(folder, int(named)):
        return None
    try:
        # It succeeds for who shares the open file with the holder, and for nobody else.
        fcntl.flock(int(named), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return int(named)


def is_lock_of(folder: str, lock: int) -> bool:
    """Say whether a descriptor is that of the lock which lies in a learner's folder now."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(os.path.join(folder, _LOCK)))
    except OSError:
        return False


class HeldFolder:
    """A learner's folder that this process, or the one that it was forked from, holds: open, and with its lock.

    Its path is where others look. Its mount may end and be there again while the learner runs, and the home that it
    lies in may be moved, removed or replaced by a copy: who keeps the learner writes through the folder that is open.

    Its descriptors have the same numbers for as long as it lives, in forks too, also where they lead elsewhere.

    Args:
        path: where others find it.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.held_path = system.held_path(self.descriptor, path)
        """A path to what is open, which this process alone can use, and its forks."""
        self.lock: Optional[int] = None
        """The descriptor that holds the learner's lock; None as long as it is not taken."""
        self._agent: tuple[Any, ...] = (None,)
        """Which agent the state in it names."""

    def take_inherited_lock(self) -> bool:
        """Go on with the lock of the learner that was held for us until now; return whether one was."""
        self.lock = take_inherited_lock(self.held_path)
        return self.lock is not None

    def take_lock(self) -> bool:
        """Take the learner's lock; return False where an agent holds it.

        Raises:
            OSError: it cannot be opened.
        """
        self.lock = take_lock(self.held_path)
        return self.lock is not None

    def keep(self, document: Optional[dict[str, Any]] = None) -> None:
        """Note that this process keeps the learner.

        Args:
            document: its state, where another agent has begun it and was killed.
        """
        pid = os.getpid()
        own = {"pid": pid, "start_ticks": system.start_ticks(pid), "boot_id": system.boot_id()}
        self._agent = _agent_of(own if document is None else document)

    def is_removed(self) -> bool:
        """Say whether the folder was removed, and no copy of it has taken its place: nobody can read its state."""
        return is_removed(self.path, self.descriptor) and not self._is_copied()

    def is_mounted_anew(self) -> bool:
        """Say whether the path leads to another mount than the folder that is open, whose own has ended.

        Or to a copy of the folder that took its place: its state names the same agent.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        try:
            own = os.fstat(self.descriptor)
        except OSError as error:
            return error.errno in system.MOUNT_ENDED
        if own.st_dev != found.st_dev:
            return True
        return own.st_ino != found.st_ino and self._is_copied()

    def follow(self) -> bool:
        """Have folder and lock be those to which the path leads now; return whether they are.

        They are not where another agent holds the lock: the learner is that one's, and they are as they were.

        Raises:
            OSError: the mount has ended again.
        """
        found = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            held_path = system.held_path(found, self.path)
            if self.lock is None or not is_lock_of(held_path, self.lock):
                taken = take_lock(held_path)
                if taken is None:
                    return False
                if self.lock is None:
                    self.lock = taken
                else:  # else that of a folder to which the path may lead again would stay taken
                    os.dup2(taken, self.lock, inheritable=False)
                    os.close(taken)
            os.dup2(found, self.descriptor, inheritable=False)
            return True
        finally:
            os.close(found)

    def keep_lock(self) -> bool:
        """Take the lock again where it has ended with its mount; end this process where another agent has it.

        As long as the mount is away nothing changes. Return whether another folder is open now.
        """
        if self.is_mounted_anew():
            with contextlib.suppress(OSError):
                if not self.follow():
                    os._exit(0)
                return True
        return False

    def _is_copied(self) -> bool:
        """Say whether the state at the path is that of the learner whose folder this is."""
        return self._agent[0] is not None and _agent_of(read(self.path)) == self._agent


def _agent_of(document: dict[str, Any]) -> tuple[Any, ...]:
    return document.get("pid"), document.get("start_ticks"), document.get("boot_id")


class StateFile:
    """The writer of ``state.json``. One process at a time writes: the guard, or who took over from it.

    Args:
        folder: the learner's folder: of who holds its lock for long as that holds it. Its mount may end at any moment
            and be there again, and what lies at its path is then another agent's, should that have been faster to
            take the lock.
        document: the state.
    """

    def __init__(self, folder: Union[str, HeldFolder], document: dict[str, Any]) -> None:
        self.document = document
        self._held = None if isinstance(folder, str) else folder
        path = folder if isinstance(folder, str) else folder.held_path
        self._path = os.path.join(path, "state.json")
        self._new = os.path.join(path, "state.json.new")
        self._folder = path
        self._stall = os.path.join(path, STALL)
        self._may_be_first = True
        self._is_given_up = False
        self.written = True
        """Whether the file says what the document says: it does not while the disk takes nothing."""

    @classmethod
    def begin(cls, folder: Union[str, HeldFolder], launch: LaunchDocument) -> StateFile:
        """Start the state of a learner that has not been started before."""
        document = {
            "format": FORMAT,
            "phase": "starting",
            "home": launch.home,
            "job": launch.job,
            "attempt": launch.attempt,
            "learner": launch.learner,
            "pid": os.getpid(),
            "start_ticks": system.start_ticks(os.getpid()),
            "boot_id": system.boot_id(),
            "scribe_pid": None,
            "command_pid": None,
            "command_ticks": None,
            "output_pipe": None,
            "started_us": None,
            "ended_us": None,
            "exit_code": None,
            "signal": None,
            "decided": False,
            "stopped": "",
            "reason": None,
            "stall": "",
            "doing": "",
        }
        return cls(folder, document)

    def update(self, **fields: Any) -> bool:
        """Change fields and write the state if any changed; return whether the file says so now."""
        changed = {key: value for key, value in fields.items() if self.document.get(key) != value}
        self.document.update(changed)
        if changed or not self.written:
            self.written = self._write(durable=False)
        return self.written

    def write(self, *, durable: bool) -> bool:
        """Write the state, down to the disk if it is to be durable; return whether that worked."""
        self.written = self._write(durable=durable)
        return self.written

    def end_unbegun(self, why: dict[str, Any], stopped: str) -> None:
        """Say that the learner ended while it waited for its turn; :meth:`write` records it."""
        self.document.pop("waiting", None)
        self.document.update(phase="exited", stall="", ended_us=system.now_us(), reason=why, stopped=stopped)

    def give_up(self) -> None:
        """Write nothing more: the folder was removed.

        What lies at its path later, as in a copy of the home that took its place, is not this agent's. Its learner
        would seem to have been killed by a person.
        """
        self._is_given_up = True

    def clear(self) -> None:
        """Leave only the state itself, and what others wrote."""
        if self._is_given_up:
            return
        for path in (self._new, self._stall):
            _remove(path)
        for path in (self._path, *_spared(self._folder)):
            for end in (_SPARE, _OLD):
                _remove(path + end)

    def _write(self, *, durable: bool) -> bool:
        if self._is_given_up:
            return True
        if self._held is not None and self._held.is_mounted_anew():
            # A mount that is only out of sight would take it, and the lock that counts is the next one's.
            return False
        data = _filled(self.document)
        try:
            self._replace(self._new, data, durable)
        except OSError as error:
            if error.errno in system.MOUNT_ENDED:
                return False  # no other file there takes it either, and the next mount has room
            if not _replace_by_spare(self._path, data, durable):
                if self._may_be_first and not os.path.exists(self._path):
                    self._link_stall(error)
                return False
        if self._may_be_first:
            self._may_be_first = False
            _remove(self._stall)
        return True

    def _replace(self, path: str, data: bytes, durable: bool) -> None:
        try:
            _write_file(path, data, durable, os.O_CREAT | os.O_TRUNC)
            os.rename(path, self._path)
        except OSError:
            _remove(path)
            raise
        _keep_spare(self._path + _SPARE)

    def _link_stall(self, error: OSError) -> None:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        text = AWAITS_ROOM if is_full else "its state cannot be written: %s" % error.strerror
        with contextlib.suppress(OSError):  # it says so already, or the folder takes nothing at all
            os.symlink(text[:_LINK_CHARACTERS], self._stall)


def _filled(document: dict[str, Any]) -> bytes:
    data = json.dumps(document).encode()
    return data + b" " * (-(len(data) + 1) % _STEP_BYTES) + b"\n"


_SPARE = ".spare"
_OLD = ".old"


def keep_spares(folder: str) -> None:
    """Make the spare files that two requests to stop and a decision of this learner are written into on a full disk."""
    stop, decision = _spared(folder)
    for spare in (stop + _SPARE, stop + _OLD, decision + _SPARE):
        _keep_spare(spare)


def _spared(folder: str) -> tuple[str, str]:
    return os.path.join(folder, _STOP), os.path.join(folder, _DECISION)


def _keep_spare(spare: str) -> None:
    """Have a spare file, if the disk takes one."""
    if os.path.exists(spare):
        return
    try:
        _write_file(spare, b" " * _SPARE_BYTES, False, os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    except OSError:
        _remove(spare)


def _write_spare(path: str, data: bytes, durable: bool) -> str:
    """Write into the spare file beside a path and return its name: its block takes new content on any full disk.

    Raises:
        OSError: there is none, or the disk takes nothing at all.
    """
    spare = path + _SPARE
    _write_file(spare, data.ljust(_SPARE_BYTES), durable, os.O_NOFOLLOW)
    return spare


def _replace_by_spare(path: str, data: bytes, durable: bool) -> bool:
    """Let a path's spare file take its place, and what was there be the next spare; return whether that worked."""
    old = path + _OLD
    try:
        spare = _write_spare(path, data, durable)
        if os.path.exists(path):
            # Others would take its block and its inode before there is a next spare.
            _remove(old)
            try:
                os.link(path, old)
            except (
                OSError
            ):  # there are no hard links, or they count as files, and there is no room for another
                if system.exchange(spare, path):
                    return True
        os.rename(spare, path)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.rename(old, spare)
    _keep_spare(spare)
    return True


def read(folder: str) -> dict[str, Any]:
    """Return a learner's state; empty when there is none that can be read."""
    return read_object(os.path.join(folder, "state.json"))


def read_patiently(folder: str) -> dict[str, Any]:
    """Return a learner's state as :func:`read` does, but of a file that cannot be read now only once it can be.

    It is for who acts on what is not in it. On rclone's mount a file that has just replaced another one can be opened,
    and a read of it fails for up to a second.

    Raises:
        OSError: it cannot be read for ``READ_SECONDS``.
    """
    give_up = system.elapsed_seconds() + READ_SECONDS
    while True:
        try:
            return _object(system.content_of(os.path.join(folder, "state.json")))
        except OSError as error:
            if error.errno not in _UNREADABLE:
                return {}
            if system.elapsed_seconds() > give_up:
                raise
        time.sleep(_READ_PAUSE_SECONDS)


def unwritten(folder: str) -> str:
    """Return why a learner's first state cannot be written, and its command waits; empty where it does not."""
    try:
        return os.readlink(os.path.join(folder, STALL))
    except OSError:
        return ""


def is_removed(folder: str, descriptor: Optional[int] = None) -> bool:
    """Say whether a learner's folder was removed: nobody can read its state any more.

    Args:
        folder: its path.
        descriptor: the folder, open since the learner began: with it a folder that was only moved, with the whole home,
            is not taken for removed, and one that was removed is, though another has taken its place. A file in the
            folder does for the former.
    """
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        try:
            return descriptor is None or os.fstat(descriptor).st_nlink == 0
        except OSError as error:
            # A network file system that knows the folder no more; where its mount has ended it may come back.
            is_unknown = error.errno in (errno.ESTALE, errno.ENOENT)
            return descriptor is not None and is_unknown and system.is_mounted(descriptor)
    except OSError:
        return False  # a disk that does not answer now
    return descriptor is not None and _is_replaced(descriptor, found)


def _is_replaced(descriptor: int, found: os.stat_result) -> bool:
    """Say whether an open folder was removed, where its path leads to another."""
    try:
        own = os.fstat(descriptor)
    except OSError:
        return False
    return stat.S_ISDIR(own.st_mode) and own.st_nlink == 0 and not os.path.samestat(own, found)


def is_away(folder: str) -> bool:
    """Say whether a learner's folder cannot be reached now: its mount has ended and may come back."""
    try:
        os.stat(folder)
    except OSError:
        return True
    return False


def is_kept(document: dict[str, Any]) -> bool:
    """Say whether the agent that wrote a state runs. Its lock says that better, where there is one that holds.

    A lock ends with the mount that its file lies on, and its agent takes it again a moment after the next mount.
    """
    pid, ticks = document.get("pid"), document.get("start_ticks")
    return (
        isinstance(pid, int)
        and document.get("boot_id") == system.boot_id()
        and system.start_ticks(pid) == ticks
        and bool(ticks)
    )


def refuse(folder: str, launch: LaunchDocument, text: str) -> None:
    """Record that a learner cannot be started, as its end.

    Raises:
        OSError: the disk takes no more.
    """
    file = StateFile.begin(folder, launch)
    decided = decide(launch, None, None, failed=True)
    reason = {"text": text, "code": "S101", "hint": ""}
    file.document.update(phase="exited", ended_us=system.now_us(), reason=reason, decided=decided)
    file.write(durable=True)
    file.clear()


def ask_to_stop(folder: str, request: dict[str, Any]) -> None:
    """Write a request to stop into a learner's folder, whole.

    On a disk that takes no new file it is written into the learner's spare one. Where there is none, its kind alone
    becomes the target of a link, which needs no block.

    Raises:
        OSError: the folder takes nothing at all; it says why the file could not be written.
    """
    path = os.path.join(folder, _STOP)
    new = "%s.new-%d" % (path, os.getpid())
    data = _filled(request)
    try:
        _write_file(new, data, False, os.O_CREAT | os.O_TRUNC)
    except OSError as error:
        _remove(new)
        if _replace_by_spare(path, data, False):
            if read(folder).get("phase") == "exited":
                # It may have ended, and removed its spare files, before its next one was made.
                _remove(path + _SPARE)
            return
        try:
            os.symlink(str(request.get("kind")), new)
        except OSError:
            error.filename = path
            raise error from None
    os.rename(new, path)


def announce_end(folder: str, by: str) -> None:
    """Let ``should_stop()`` say yes in a learner that is about to be ended; a request to stop that is there stays.

    Nobody is asked for anything by it. A folder that takes nothing is let be: the command gets its signal all the same.
    """
    path = os.path.join(folder, _STOP)
    new = "%s.new-%d" % (path, os.getpid())
    data = json.dumps({"kind": FINISH, "by": by}).encode() + b"\n"
    try:
        _write_file(new, data, False, os.O_CREAT | os.O_TRUNC)
        system.name_once(new, path)
    except OSError:
        with contextlib.suppress(OSError):  # it is there, or there is no room for a name either
            os.symlink(FINISH, path)
    finally:
        _remove(new)


def read_stop(folder: str) -> dict[str, Any]:
    """Return the request to stop; empty when there is none, or when nobody knows: its mount has ended, say.

    One that is there and cannot be read is a halt.
    """
    path = os.path.join(folder, _STOP)
    try:
        return {"kind": os.readlink(path)}
    except OSError as error:
        if error.errno != errno.EINVAL:  # it is not a file either
            return {}
    try:
        return _object(system.content_of(path)) or {"kind": "halt"}
    except OSError as error:
        is_unknown = error.errno == errno.ENOENT or error.errno in system.MOUNT_GONE
        return {} if is_unknown else {"kind": "halt"}


BY_CONTROLLER = "the controller"
"""In a request to stop, as ``by``: nobody has asked for it, it ends what is left of an attempt."""


def is_stop(folder: str) -> bool:
    """Say whether somebody has asked for this learner to be stopped; to finish is no such request."""
    request = read_stop(folder)
    return bool(request) and request.get("kind") != FINISH


def read_decision(attempt_dir: str) -> dict[str, Any]:
    """Return which learner's exit decided the attempt; empty as long as none has."""
    return read_object(os.path.join(attempt_dir, _DECISION))


def decide(
    launch: LaunchDocument, exit_code: int | None, number: int | None, *, failed: bool, folder: str = ""
) -> bool:
    """Say that this learner's exit decides the attempt, unless another's did before; return whether it does.

    It is down on the disk before any other learner is stopped for it. Of a learner without others it may be lost with
    the machine's power: its end says the same, and each job would wait for the disk.

    Args:
        launch: its launch document.
        exit_code: what the command ended with, if it did.
        number: the signal that ended it, if one did.
        failed: whether that is a failure.
        folder: the learner's folder, as its agent reaches it; by default the launch document's.

    Raises:
        OSError: the disk takes no more; nothing was decided.
    """
    is_alone = launch.learners == 1
    attempt = os.path.join(folder, os.pardir) if folder else launch.attempt_dir
    path = os.path.join(attempt, _DECISION)
    new = "%s.learner-%d" % (path, launch.learner)
    document = {
        "learner": launch.learner,
        "exit_code": exit_code,
        "signal": number,
        "time_us": system.now_us(),
        "failed": failed,
    }
    data = json.dumps(document).encode() + b"\n"
    stop, own = _spared(folder or learner_folder(launch, launch.learner))
    written = new
    try:
        try:
            _write_file(new, data, not is_alone, os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            try:
                written = _write_spare(own, data, not is_alone)
            except OSError:
                raise error from None  # that there is no spare file says nothing of the disk
        try:
            system.name_once(written, path)
        except OSError:
            # tmpfs counts links as inodes, and a command that has ended is stopped at most once.
            _remove(stop + _OLD)
            system.name_once(written, path)
    finally:
        _remove(new)
    return is_alone or read_decision(attempt).get("learner") == launch.learner


def decides(launch: LaunchDocument) -> bool:
    """Say whether with this learner's end so many have ended by themselves as ``ends_when`` wants."""
    needed = {"first": 1, "all": launch.learners}.get(str(launch.ends_when)) or int(launch.ends_when)
    ended = 1
    for learner in range(1, launch.learners + 1):
        if learner != launch.learner:
            found = read(learner_folder(launch, learner))
            exited = found.get("exit_code") is not None or found.get("signal") is not None
            ended += exited and not found.get("stopped")
    return ended >= min(needed, launch.learners)


def end_of_attempt(launch: LaunchDocument) -> dict[str, Any]:
    """Return the state of the learner whose end is that of the attempt, once nothing is left of any but its record.

    It is empty before, and where the controller has to compare their ends: one was stopped, the agent of one was
    killed, or none has decided. One that fails beside another that was preempted has lost its peer.
    """
    states = [read(learner_folder(launch, learner)) for learner in range(1, launch.learners + 1)]
    if not all(one.get("complete") or one.get("phase") == "exited" for one in states):
        return {}
    decision = read_decision(launch.attempt_dir)
    own = next((one for one in states if one.get("learner") == decision.get("learner")), {})
    is_unclear = any(one.get("stopped") in ("halt", "kill") or one.get("agent_killed") for one in states)
    if not own.get("decided") or is_unclear:
        return {}
    preempted = next((one for one in states if one.get("stopped") == PREEMPT), None)
    has_failed = own.get("stopped") == PREEMPT or own.get("exit_code") != 0 or own.get("signal") is not None
    return own if preempted is None or not has_failed else preempted


def learner_folder(launch: LaunchDocument, learner: int) -> str:
    """Return the folder of a learner of the attempt."""
    return os.path.join(launch.attempt_dir, "learner-%d" % learner)


def read_object(path: str) -> dict[str, Any]:
    """Return a JSON object from a file; empty when there is none."""
    return _object(system.read_bytes(path))


def _object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _write_file(path: str, data: bytes, durable: bool, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
