"""Runs inside an agent: counts its operations on files, pipes and processes, and kills it at some of them.

It is imported by the agents alone, which have no other module of the tests: it needs the standard library only.

A point is a role, an operation, what it is done to, and how many times that was done before in this role: ``scribe1.1
pwrite output.idx 2``. The agent is killed before it, after it, or in the middle: half of the bytes are written.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any

SCRIBE = "workbench.learner.scribe.process"
"""The module that forks scribes."""

OUTPUT = "output.log"
PAGE_BYTES = 4096

_CHANGES = ("unlink", "remove", "rmdir", "truncate", "chmod")
_MAKES = ("symlink", "link", "rename", "replace")
_BY_DESCRIPTOR = ("write", "pwrite", "ftruncate", "fsync", "fdatasync", "fchmod")
_OTHERS = ("open", "mkdir", "fork", "kill", "waitpid", "splice")
_real = {name: getattr(os, name) for name in (*_CHANGES, *_MAKES, *_BY_DESCRIPTOR, *_OTHERS)}


class Operations:
    """The operations of one process of an agent.

    Args:
        folder: of the attempt; what is done elsewhere is not counted.
        learner: the learner's folder in it.
        log: the file that each operation is written to before it is done.
        states: the file that each state of the learner is written to.
        agent: which agent of the learner it is, from 1.
        kills: the points at which processes of this agent are killed.
    """

    def __init__(
        self, folder: str, learner: str, log: str, states: str, agent: int, kills: list[dict[str, Any]]
    ) -> None:
        self._folder = os.path.realpath(folder) + "/"
        self._state = os.path.join(learner, "state.json")
        self._log = log
        self._states = states
        self._agent = agent
        self._kills = kills
        self._role = f"guard{agent}"
        self._is_counting = True
        self._counts: dict[tuple[str, str], int] = {}
        self._scribes = 0
        self._scribe = 0
        self._guard = 0
        """Of a scribe: the guard that forked it."""
        self._last_state = b""

    def count(self) -> None:
        """Have this process, and those that it forks, count from here on."""
        for name in _CHANGES:
            self._replace(name, self._changed_path)
        for name in _MAKES:
            self._replace(name, self._made_path)
        self._replace("mkdir", lambda path, *_, **more: self._name(path))
        for name in _BY_DESCRIPTOR:
            self._replace(name, self._file_of)
        self._replace("open", self._written_by_open)
        self._replace("splice", self._spliced)
        self._replace("kill", lambda pid, number: "pid" if number else None)
        setattr(os, "fork", self._fork)  # noqa: B010  # mypy takes no other function for it
        setattr(os, "waitpid", self._wait)  # noqa: B010
        sys.addaudithook(self._note_unseen)

    def _replace(self, name: str, target_of: Callable[..., str | None]) -> None:
        real = _real[name]

        def counted(*args: Any, **more: Any) -> Any:
            target = target_of(*args, **more) if self._is_counting else None
            if target is None:
                return real(*args, **more)
            part = _part_of(name, target, args)
            kill = self._begin(name, target, is_torn=bool(part))
            if kill.get("mode") == "torn":
                _do_part(real, name, part, args, more)
                self._die(kill)
            result = real(*args, **more)
            self._end(target, kill)
            return result

        setattr(os, name, counted)

    # What an operation is done to; None where that does not count

    def _changed_path(self, path: Any, *_: Any, **more: Any) -> str | None:
        # What is not there is not removed either.
        return self._name(path) if os.path.lexists(path) or more.get("dir_fd") is not None else None

    def _made_path(self, _: Any, path: Any, **more: Any) -> str | None:
        return self._name(path)

    def _name(self, path: Any) -> str | None:
        found = _real_path(path)
        return os.path.basename(found) if found.startswith(self._folder) else None

    def _file_of(self, descriptor: int, *args: Any, **more: Any) -> str | None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith("pipe:"):
            data = bytes(args[0]) if args else b""
            return "pipe:" + data.split()[0].decode("utf-8", "replace")[:10] if data.strip() else None
        return os.path.basename(path) if path.startswith(self._folder) else None

    def _written_by_open(self, path: Any, flags: int, *args: Any, **more: Any) -> str | None:
        if not flags & (os.O_CREAT | os.O_TRUNC):
            return None
        if os.path.lexists(path) and not flags & os.O_TRUNC:
            return None  # nothing changes
        return self._name(path)

    def _spliced(self, source: int, target: int, count: int, **more: Any) -> str | None:
        return self._file_of(target) if _waiting(source) else None

    # Processes

    def _fork(self) -> int:
        is_scribe = sys._getframe(1).f_globals["__name__"] == SCRIBE
        what = "scribe" if is_scribe else "command"
        kill = self._begin("fork", what) if self._is_counting else {}
        guard = os.getpid()
        pid: int = _real["fork"]()
        self._scribes += is_scribe
        if pid == 0:
            self._is_counting = is_scribe
            self._role = f"scribe{self._agent}.{self._scribes}"
            self._guard = guard
            self._scribe = 0
            self._counts = {}
            return 0
        self._scribe = pid if is_scribe else self._scribe
        if self._is_counting:
            self._end(what, kill)
        return pid

    def _wait(self, pid: int, options: int) -> tuple[int, int]:
        """Count what was buried: its exit code is known here only."""
        found: tuple[int, int] = _real["waitpid"](pid, options)
        if found[0] and self._is_counting:
            what = "scribe" if found[0] == self._scribe else "command"
            self._scribe = 0 if found[0] == self._scribe else self._scribe
            self._end(what, self._begin("wait", what, only="after"))
        return found

    def _note_unseen(self, event: str, args: tuple[Any, ...]) -> None:
        """Note a file that is opened for writing by other means than are counted here: no point lies there."""
        if (
            event == "open"
            and self._is_counting
            and args[1] is not None
            and isinstance(args[0], (str, bytes))
        ):
            path = _real_path(args[0])
            if path.startswith(self._folder) and set(args[1]) & set("wxa+"):
                self._write(self._log, {"unseen": path})

    # Points

    def _begin(self, name: str, target: str, only: str = "", is_torn: bool = False) -> dict[str, Any]:
        """Count an operation; return the point at which to be killed, if it is one."""
        number = self._counts[name, target] = self._counts.get((name, target), 0) + 1
        point = {"role": self._role, "operation": name, "target": target, "number": number}
        self._write(self._log, {**point, "only": only, "is_torn": is_torn, "is_alone": not self._other()})
        kill = next((each for each in self._kills if point.items() <= each.items()), {})
        if kill.get("mode") == "before":
            self._die(kill)
        return kill

    def _end(self, target: str, kill: dict[str, Any]) -> None:
        if target.startswith("state.json"):
            self._look_at_state()
        if kill:
            self._die(kill)

    def _die(self, kill: dict[str, Any]) -> None:
        if kill["target"].startswith("state.json"):
            self._look_at_state()  # another process may write it while this one does something else
        self._write(self._log, {"killed": kill})
        if kill["both"] and (other := self._other()):
            with contextlib.suppress(ProcessLookupError):
                _real["kill"](other, signal.SIGKILL)
        _real["kill"](os.getpid(), signal.SIGKILL)

    def _other(self) -> int:
        """Return the pid of the agent's other process; 0 where there is none now."""
        if self._guard:
            return self._guard if os.getppid() == self._guard else 0
        return self._scribe

    def _look_at_state(self) -> None:
        """Note the state as anybody could read it now."""
        try:
            with open(self._state, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            content = b""
        if content != self._last_state:
            self._last_state = content
            self._write(self._states, {"role": self._role, "state": content.decode("utf-8", "replace")})

    def _write(self, path: str, document: dict[str, Any]) -> None:
        file = _real["open"](path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _real["write"](file, json.dumps(document).encode() + b"\n")
        os.close(file)


def _real_path(path: Any) -> str:
    """Return the path of a name; agents reach their folder by a descriptor."""
    folder, name = os.path.split(os.fsdecode(path))
    return os.path.join(os.path.realpath(folder), name)


def _part_of(name: str, target: str, args: tuple[Any, ...]) -> int:
    """Return how many bytes an operation may have written when it is cut; 0 where it writes all or nothing."""
    if target.startswith("pipe:") or name not in ("write", "pwrite", "splice"):
        return 0
    if name == "splice":
        return _waiting(args[0]) // 2
    count = len(bytes(args[1]))
    if name == "pwrite" and target == OUTPUT:
        # Bytes are overwritten there, which is whole on each page: the kernel looks for a signal between pages.
        first = PAGE_BYTES - args[2] % PAGE_BYTES
        return first if first < count else 0
    return count // 2


def _do_part(
    real: Callable[..., Any], name: str, part: int, args: tuple[Any, ...], more: dict[str, Any]
) -> None:
    """Write no more than the first bytes of what an operation would write."""
    if name == "splice":
        real(args[0], args[1], part, *args[3:], **more)
    else:
        real(args[0], bytes(args[1])[:part], *args[2:], **more)


def _waiting(pipe: int) -> int:
    """Return how many bytes wait in a pipe, or 1 at its end: that is moved, too."""
    import fcntl
    import select
    import struct
    import termios

    if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
        return 1
    count = int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return count or int(any(event & select.POLLHUP for _, event in poll.poll(0)))
