"""The first process of a learner's container: starts its agent, prints what the journal keeps, ends as it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time

from workbench.learner.journal import output, reasons, state
from workbench.learner.platform.watch import Watcher
from workbench.learner.pod import config

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

    from workbench.learner.pod.config import PodConfig

AGENTS = 4
"""How many agents are started for a learner whose agents are killed, before it is given up."""

_SLICE_BYTES = 1 << 20
_WAIT_SECONDS = 5.0
_RETRY_SECONDS = 0.1


def run_learner() -> int:
    """Run the learner to its end; return its exit code."""
    pod = config.read()
    if pod.prepared_by_sidecar:
        failure = config.await_prepared(pod)
        if failure:
            config.write_termination(failure)
            return 1
    write_launch(pod, dict(os.environ))
    if pod.launch.stores:
        from workbench.learner.pod.stores import limit_memory

        limit_memory()
    return PodInit(pod).run()


def write_launch(pod: PodConfig, environment: dict[str, str]) -> None:
    """Write the learner's launch document, unless it is there: what the image and the cluster say is in it."""
    path = pod.folder + "/launch.json"
    if os.path.exists(path):
        return
    document = dict(pod.launch.document)
    document["learner"] = pod.learner
    document["learner_hosts"] = [pod.host_of(learner) for learner in range(1, pod.learners + 1)]
    document["env"] = {**environment, **config.own_variables(pod)}
    given = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    document["slots"] = [one for one in given.split(",") if one.startswith(("GPU-", "MIG-"))]
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(document, file)
    os.rename(path + ".new", path)


class LogEcho:
    """Prints the published part of one log."""

    def __init__(self, folder: str, name: str) -> None:
        self.index = "%s/%s.idx" % (folder, name)
        self._path = "%s/%s.log" % (folder, name)
        self._log = -1
        self._at = 0

    def step(self) -> bool:
        """Print some of what is new; return whether there was anything."""
        end = output.published_end(self.index)
        if end <= self._at:
            return False
        if self._log < 0:
            self._log = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        count = min(_SLICE_BYTES, end - self._at)
        try:
            sent = os.sendfile(1, self._log, self._at, count)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            sent = os.write(1, os.pread(self._log, count, self._at))
        self._at += sent
        return bool(sent)


class PodInit:
    """The container's first process (pid 1): reaps children, handles the cluster's signals, and ends last."""

    def __init__(self, pod: PodConfig) -> None:
        self._pod = pod
        names = ["setup", "output"] if pod.launch.setup else ["output"]
        self._echoes = [LogEcho(pod.folder, name) for name in names]
        self._watcher = Watcher([echo.index for echo in self._echoes])
        self._agent = 0
        self._agents = 0
        self._is_agent_stopped = False
        """Whether a signal (SIGSTOP) keeps it from running."""
        self._agent_at = 0.0
        self._stop_requested = False

    def run(self) -> int:
        """Stay until the learner has ended and all that it printed is printed here."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: self._watcher.wake())
        while True:
            self._reap()
            self._forward_stop()
            self._rouse_agent()
            over = self._is_over()
            if not self._print() and over:
                return self._end()
            if not over:
                self._watcher.wait(_RETRY_SECONDS if not self._agent else _WAIT_SECONDS)

    def _on_signal(self, *_: object) -> None:
        self._stop_requested = True
        self._watcher.wake()

    def _forward_stop(self) -> None:
        """Request the learner's halt when the cluster ends the pod."""
        if not self._stop_requested:
            return
        self._stop_requested = False
        if not state.read_stop(self._pod.folder):
            grace = self._pod.launch.grace_seconds
            by = config.BY_CLUSTER
            state.ask_to_stop(self._pod.folder, {"kind": "halt", "grace_seconds": grace, "by": by})

    def _rouse_agent(self) -> None:
        """Let the agent go on that was stopped by a signal once it is to stop, so that it sees the request."""
        if self._agent and self._is_agent_stopped and state.read_stop(self._pod.folder):
            os.kill(self._agent, signal.SIGCONT)

    def _print(self) -> bool:
        moved = False
        for echo in self._echoes:
            try:
                moved = echo.step() or moved
            except OSError:
                continue  # nobody takes it: the journal has it
        return moved

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            if pid == self._agent:
                self._is_agent_stopped = os.WIFSTOPPED(status)
                if self._is_agent_stopped or os.WIFCONTINUED(status):
                    continue
                self._agent = 0
                self._agent_at = time.monotonic() + (_RETRY_SECONDS if self._agents else 0.0)
        if not self._agent and not self._is_over() and time.monotonic() >= self._agent_at:
            self._start_agent()

    def _start_agent(self) -> None:
        """Start the learner's agent; another one ends what the first has left, once that is gone altogether."""
        if self._agents and not _is_free(self._pod.folder):
            return  # its scribe goes on without it
        self._agents += 1
        if self._agents > AGENTS:
            return
        log = self._pod.folder + "/guard.log"
        argv = [sys.executable, "-I", "-S", config.AGENT + "/__main__.py", "guard", self._pod.folder]
        actions: list[Any] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        self._agent = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions)

    def _is_over(self) -> bool:
        if self._agent:
            return False
        return self._agents > AGENTS or state.read(self._pod.folder).get("phase") == "exited"

    def _end(self) -> int:
        """Say how it ended where the cluster keeps it, and return the exit code."""
        found = state.read(self._pod.folder)
        last = config.termination_document(found, state.read_stop(self._pod.folder))
        if found.get("phase") != "exited":
            last.update(phase="exited", reason=reasons.reason("its agent was killed again and again", "S202"))
        config.write_termination(last)
        if last["exit_code"] is not None:
            return int(last["exit_code"])
        return 128 + int(last["signal"]) if last["signal"] is not None else 1


def _is_free(folder: str) -> bool:
    """Say whether no agent holds the learner's lock."""
    import fcntl

    try:
        lock = os.open(folder + "/agent.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
