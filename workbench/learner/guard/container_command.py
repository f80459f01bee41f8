"""Stands in for a command that runs in a container: starts it, relays its output, exits with its exit code.

The learner's guard, outside, keeps it like any command. Named pipes join it to the container's first process
(``inside.sh``): closing its end of ``control``, which its death does too, ends everything in there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shlex
import signal
import time

from workbench.learner.platform import beneath, system
from workbench.learner.platform.engine_client import EngineRefused, EngineRequest, ask, connected, version_at
from workbench.learner.platform.process_table import FILE, processes_file

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Sequence

EXIT_NOT_STARTED = 125
EXIT_REMOVED = 137
DOCUMENT = "container.json"
"""A runner writes it next to ``launch.json``: ``engine`` (a socket), ``name``, ``image``, ``memory_bytes``.

``create`` is there where the container is still to be created (``container_creation``).
"""

REASON = "reason.json"
"""The reason for a command's end, beyond its exit code; the guard reads it."""

_BYTES = 1 << 20
_SURVEY_BYTES = 1 << 20
_REMOVED_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_SHORTAGE_SECONDS = 30
"""How long before a container's end the kernel may have begun to kill in there for want of memory."""

_REPORTED_SECONDS = 2
"""How long after a container's end its engine may report that memory ran out in there."""

_ENGINE_BACK_SECONDS = 60.0
"""How long a start waits for an engine that went away: nothing has run yet, so it can be asked again."""

_ENGINE_PAUSE_SECONDS = 0.1
_PEERS_SECONDS = 10.0
"""How long a command waits for the containers of other learners, which may have failed or ended."""

_LATE = (404, 409)
"""What an engine says of a container whose start has failed already."""


def command_of(guard: Sequence[str], folder: str, act: str) -> str:
    """Return the shell's command that runs an act in a learner's container.

    Args:
        guard: what starts the learner's agent, which ends with ``guard`` and the folder.
        folder: the learner's.
        act: ``setup`` or ``command``.
    """
    return "exec %s" % shlex.join([*guard[:-2], "contain", folder, act])


def main(folder: str, act: str) -> int:
    """Run one act (``setup`` or ``command``) of a learner's container and return its exit code."""
    with open(os.path.join(folder, DOCUMENT), "rb") as file:
        config = json.loads(file.read())
    try:
        proxy = ContainerProxy(folder, config, act)
        return proxy.run(start=act == config["acts"][0])
    except PipeReplaced as error:
        write_reason(folder, str(error), "C201")
        return EXIT_NOT_STARTED


class PipeReplaced(Exception):
    """What ran in the container has put something else where a pipe of its agent was."""


class ContainerProxy:
    """Runs one act (``setup`` or ``command``) in a container, as the guard's child: output, signals and exit code."""

    def __init__(self, folder: str, config: dict[str, Any], act: str) -> None:
        self._folder = folder
        self._config = config
        self._act = act
        # The container can replace these files: only pipes are opened, and opening never blocks.
        self._inside = beneath.Root(os.path.join(folder, "inside"))
        self._output = self._open("output", os.O_RDONLY)
        # Both ways, so that it has no end before there is a writer.
        self._result = self._open("result", os.O_RDWR)
        os.close(self._open("exit", os.O_RDONLY))  # used in there alone
        self._control = -1
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # the wakeup descriptor tells
        self._began_at = time.time()
        self._ending: EngineRequest | None = None
        self._engine_was_lost = False
        self._full = False

    def run(self, *, start: bool) -> int:
        """Start the container if this is its first act, and stay until the act is over."""
        if start and not self._start():
            return EXIT_NOT_STARTED
        self._control = self._open("control", os.O_RDWR)
        self._send_control(b"begin\n")  # the first process in there waits for this, and then for nobody
        if start:
            self._find_processes()
        else:
            self._await_end()
        result = self._follow()
        while self._splice_output():
            pass  # what was printed before the end
        if not result:
            self._write_reason_removed()
            return EXIT_REMOVED
        if self._act == "command":
            self._record_python()
        code, ran_out_of_memory, peak_bytes, was_stopped = result
        if code and ran_out_of_memory:
            self._write_reason(*_memory(peak_bytes, self._config.get("memory_bytes")), stopped="memory")
        elif code and was_stopped:
            self._write_reason("the container was stopped from outside, by hand or with its engine", "S200")
        if self._act != "command" and code == 0:
            self._send_control(b"over\n")
        return code

    def _record_python(self) -> None:
        """Add the Python of the image, and what it has installed, to what is recorded of the attempt."""
        from workbench.learner.host.packages import distributions, version_in
        from workbench.learner.journal.state import read_object

        path = os.path.join(self._folder, "..", "environment.json")
        try:
            python, *entries = (
                self._inside.read("python", _SURVEY_BYTES).decode("utf-8", "replace").split("\n")
            )
            document = read_object(path)
            if not python or not document.get("image"):
                return
            if not document.get("packages"):
                document["packages"] = distributions(os.path.basename(entry) for entry in entries)
            document["python"] = document.get("python") or python
            document["python_version"] = next(filter(None, map(version_in, entries)), "")
            _replace(path, document)
        except (OSError, ValueError):
            return  # it is not worth failing for

    def _open(self, name: str, flags: int) -> int:
        pipe = "%s.%s" % (name, self._act)
        try:
            return system.enlarged(self._inside.open_pipe(pipe, flags))
        except OSError as error:
            why = error.strerror or str(error)
            raise PipeReplaced("what ran before in the container replaced %s: %s" % (pipe, why)) from error

    def _start(self) -> bool:
        """Create the container where nobody has, and start it; return whether it was started.

        What runs in there first waits for this agent.
        """
        until = system.elapsed_seconds() + _ENGINE_BACK_SECONDS
        is_created = "create" not in self._config
        while True:
            try:
                if not is_created:
                    from workbench.learner.guard.container_creation import create_planned

                    why_not = create_planned(self._folder, self._config)
                    if why_not is not None:
                        self._write_reason(*why_not)
                        return False
                    is_created = True
                self._ask_to_start()
                self._await_peers()
                return True
            except EngineRefused as error:
                # Another request to start it may have reported already why it failed.
                if error.status not in _LATE or not self._has_reason():
                    self._write_reason(*start_failure(error, self._config))
                return False
            except OSError as error:
                if system.elapsed_seconds() >= until or self._is_stopped_within(_ENGINE_PAUSE_SECONDS):
                    why = "the container engine does not answer: %s" % (error.strerror or error)
                    self._write_reason(*getattr(error, "reason", (why, "S200", "")))
                    return False

    def _ask_to_start(self) -> None:
        engine, name = self._config["engine"], self._config["name"]
        if self._ending is not None:
            self._ending.close()
        # Asked before: an end that comes at once is not missed.
        target = "containers/%s/wait?condition=next-exit" % name
        version = version_at(engine)
        self._ending = EngineRequest(connected(engine), "POST", target, version=version)
        ask(engine, "POST", "containers/%s/start" % name, timeout_seconds=None)

    def _await_peers(self) -> None:
        """Wait for the other learners' containers where agents create them: until then their names do not resolve."""
        network = (self._config.get("create") or {}).get("network")
        if not network:
            return
        from workbench.learner.guard.container_creation import is_running

        until = system.elapsed_seconds() + _PEERS_SECONDS
        with contextlib.suppress(OSError):  # an engine that went away: nobody can be waited for
            for name in network["peers"]:
                while not is_running(self._config["engine"], name):
                    if system.elapsed_seconds() >= until or self._is_stopped_within(_ENGINE_PAUSE_SECONDS):
                        return

    def _is_stopped_within(self, seconds: float) -> bool:
        """Wait for a moment; return whether the command was asked to end."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _await_end(self) -> None:
        """Ask for the end of a container that an act before has started."""
        target = "containers/%s/wait?condition=not-running" % self._config["name"]
        try:
            version = version_at(self._config["engine"], _CONNECT_SECONDS)
            stream = connected(self._config["engine"], _CONNECT_SECONDS)
            self._ending = EngineRequest(stream, "POST", target, version=version)
        except (OSError, EngineRefused):
            self._engine_was_lost = True

    def _has_reason(self) -> bool:
        """Wait a moment for another process to write a reason; return whether there is one."""
        until = system.elapsed_seconds() + _REMOVED_SECONDS
        path = os.path.join(self._folder, REASON)
        while not os.path.exists(path) and system.elapsed_seconds() < until:
            select.poll().poll(10)
        return os.path.exists(path)

    def _find_processes(self) -> None:
        """Write the path of the container's process list, for samples of usage."""
        try:
            found = ask(self._config["engine"], "GET", "containers/%s/json" % self._config["name"])
        except (EngineRefused, OSError):
            return  # it has ended already
        path = processes_file(int(found["State"]["Pid"] or 0))
        if path:
            with open(os.path.join(self._folder, FILE), "w", encoding="utf-8") as file:
                file.write(path)

    def _follow(self) -> tuple[int, int, int, int] | None:
        """Relay output and signals until the act ends.

        Returns exit code, whether it ran out of memory, its peak in bytes, and whether it was stopped from outside;
        None when the container vanished.
        """
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._result, select.POLLIN)
        if self._ending is not None:
            poll.register(self._ending.fileno(), select.POLLIN)
        removed_at = None
        while True:
            poll.register(self._output, 0 if self._full or removed_at is not None else select.POLLIN)
            poll.register(1, select.POLLOUT if self._full else 0)
            wait = None if removed_at is None else max(0.0, removed_at - system.elapsed_seconds()) * 1000
            events = dict(poll.poll(wait))
            if self._woken in events:
                self._pass_signals()
            if events.get(1, 0) & select.POLLOUT:
                self._full = False
            if events.get(self._output, 0) & select.POLLIN:
                self._splice_output()
            elif self._result in events:
                return self._read_result()
            elif removed_at is None and events.get(self._output, 0) & select.POLLHUP:
                # Nobody in there holds the output any more, and the first process says how it ended first.
                removed_at = system.elapsed_seconds()
            elif removed_at is not None and system.elapsed_seconds() >= removed_at:
                return None
            elif self._ending is not None and self._ending.fileno() in events and self._ending.receive():
                poll.unregister(self._ending.fileno())
                if self._ended():
                    removed_at = system.elapsed_seconds() + _REMOVED_SECONDS

    def _ended(self) -> bool:
        """Say whether the container has ended; False where the engine itself went away, which is kept in mind."""
        assert self._ending is not None
        ending, self._ending = self._ending, None
        try:
            # Engines send the head of their answer before they know: only what follows it says anything.
            if isinstance(ending.answer(), dict):
                return True
        except (EngineRefused, OSError):
            pass
        self._engine_was_lost = True
        return False

    def _read_result(self) -> tuple[int, int, int, int] | None:
        fields = os.read(self._result, 4096).split()
        if len(fields) < 4 or not all(field.isdigit() for field in fields[:4]):
            return None
        code, ran_out_of_memory, peak_bytes, was_stopped = map(int, fields[:4])
        return code, ran_out_of_memory, peak_bytes, was_stopped

    def _pass_signals(self) -> None:
        received = os.read(self._woken, 4096)
        if signal.SIGTERM in received or signal.SIGINT in received:
            with contextlib.suppress(OSError):  # a full disk, or a container that wants no such file
                self._inside.create("stop")  # should_stop() looks for it
            self._send_control(b"TERM\n")

    def _send_control(self, message: bytes) -> None:
        """Send a message to the container's first process; a full pipe is ignored: the container is ended later."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._control, message)

    def _splice_output(self) -> bool:
        """Move some output on; False when there is none, or its reader takes none now."""
        try:
            return bool(system.splice(self._output, 1, _BYTES))
        except BlockingIOError:
            self._full = bool(system.unread_bytes(self._output))
            return self._full and bool(select.select((), (1,), ())[1])
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS):
                raise
            return self._copy()

    def _copy(self) -> bool:
        """Where there is no splice."""
        try:
            data = os.read(self._output, 65536)
        except BlockingIOError:
            return False
        left = data
        while left:
            left = left[os.write(1, left) :]
        return bool(data)

    def _write_reason_removed(self) -> None:
        try:
            ask(self._config["engine"], "GET", "_ping", timeout_seconds=5.0)
        except (EngineRefused, OSError):
            self._engine_was_lost = True
        if self._engine_was_lost:
            # An engine that answers again may have ended it at its start.
            self._write_reason("the container ended with its engine", "S200")
            return
        if self._ran_out_of_memory():
            self._write_reason(*_memory(0, self._config.get("memory_bytes")), stopped="memory")
            return
        self._write_reason(
            "the container was killed or removed from outside",
            "S104",
            "The kernel kills a container that needs more memory than there is; docker events tells the rest.",
        )

    def _ran_out_of_memory(self) -> bool:
        """Ask the engine whether the kernel has just killed something in there for want of memory.

        Where the container's first process was killed, too, nobody else can say so. Podman does not. Where somebody had
        the engine kill the container it was that.
        """
        from urllib.parse import quote  # few containers end so; each guard would pay for it

        now = time.time()
        filters = json.dumps(
            {"type": ["container"], "event": ["oom", "kill"], "container": [self._config["name"]]},
            separators=(",", ":"),
        )
        target = "events?since=%d&until=%d&filters=%s" % (
            max(self._began_at, now - _SHORTAGE_SECONDS),
            now + _REPORTED_SECONDS,
            quote(filters),
        )
        engine = self._config["engine"]
        try:
            stream = connected(engine, _CONNECT_SECONDS)
            answer = EngineRequest(stream, "GET", target, version=version_at(engine)).answer()
        except (EngineRefused, OSError):
            return False
        events = [answer] if isinstance(answer, dict) else map(json.loads, str(answer or "").splitlines())
        return {str(event.get("Action")) for event in events} == {"oom"}

    def _write_reason(self, text: str, code: str, hint: str = "", stopped: str = "") -> None:
        write_reason(self._folder, text, code, hint, stopped)


def write_reason(folder: str, text: str, code: str, hint: str = "", stopped: str = "") -> None:
    """Write the reason for the command's end, which the guard reads."""
    _replace(os.path.join(folder, REASON), {"text": text, "code": code, "hint": hint, "stopped": stopped})


def _replace(path: str, document: dict[str, Any]) -> None:
    """Write a document whole or not at all; several learners of an attempt may write the same one."""
    new = "%s.new-%d" % (path, os.getpid())
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")
    os.rename(new, path)


def _memory(peak_bytes: int, limit_bytes: int | None) -> tuple[str, str, str]:
    """Return text, code and hint; ``peak_bytes`` is 0 where what knows it was killed."""
    used = "it used up to %s" % _size(peak_bytes) if peak_bytes else "the kernel killed it"
    if not limit_bytes:
        return ("ran out of the machine's memory: " + used, "S100", "")
    text = "ran out of memory: its container's limit is %s, %s" % (_size(limit_bytes), used)
    return (text, "C203", "raise memory, or let the job use less")


def start_failure(error: EngineRefused, config: dict[str, Any]) -> tuple[str, str, str]:
    """Return text, code and hint for a container that the engine did not start."""
    message = (
        error.message.strip().splitlines()[0] if error.message.strip() else "the engine does not say why"
    )
    if "executable file not found" in message or ('exec: "sh"' in message and "no such file" in message):
        return (
            "the image %s has no sh, and without one nothing can be run in it" % config["image"],
            "C202",
            "take an image that has a shell",
        )
    if "port is already allocated" in message or "address already in use" in message:
        return ("a port that the job publishes is in use: %s" % message, "C104", "choose another with ports:")
    if "could not select device driver" in message or "nvidia-container" in message:
        return (
            "the engine cannot give GPUs to containers: %s" % message,
            "S101",
            "install NVIDIA's container toolkit, or use --runner process",
        )
    if error.status == 404:
        return ("the container was removed before it started", "S104", "")
    return ("the container could not be started: %s" % message, "S101", "")


def _size(count: int) -> str:
    return "%.2f GiB" % (count / (1 << 30)) if count >= 1 << 30 else "%.0f MiB" % (count / (1 << 20))
