"""The guard's side of the scribe: forks it, sends it commands, reads its messages, replaces it when it dies."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import time

from workbench.learner.platform import system
from workbench.learner.platform.process_table import ContainerTree
from workbench.learner.platform.processes import Tree
from workbench.learner.scribe.pump import Pump
from workbench.learner.scribe.scribe import RETRY_SECONDS, OutputChannel, Scribe, stall_text
from workbench.learner.scribe.transcriber import Transcriber

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Mapping

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.journal.state import HeldFolder
    from workbench.learner.journal.tail import JournalTails
    from workbench.learner.platform.process_table import ContainerTree
    from workbench.learner.scribe.masking import Mask
    from workbench.learner.scribe.orphan import BeginNextAttempt
    from workbench.learner.scribe.usage import Sampler

PIPE_BYTES = 1 << 20
_DIED_QUICKLY_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_MANY_DEATHS = 4


class Pipes:
    """The pipes that a learner prints into, by journal; the guard keeps the read ends open too."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.read_ends: dict[str, int] = {}
        self.write_ends: dict[str, int] = {}
        for name in names:
            self.read_ends[name], self.write_ends[name] = system.make_pipe(PIPE_BYTES)

    def close_write_end(self, name: str) -> None:
        """Close a pipe's write end here: only what prints into it holds it now."""
        if name in self.write_ends:
            os.close(self.write_ends.pop(name))

    def inode(self, name: str) -> int:
        """Return the inode of a pipe, by which processes that hold it are found."""
        return os.fstat(self.read_ends[name]).st_ino


class ScribeProcess:
    """The scribe's process, as the guard starts, commands and replaces it.

    Args:
        folder: the learner's folder.
        launch: its launch document.
        mask: finds its secrets.
        pipes: what it prints into.
        begin_next_attempt: what it calls where the guard is killed: see :class:`Orphan`.

    Where the folder's file system may lose the last that it was given, each scribe leaves that to the next one.
    """

    def __init__(
        self,
        folder: HeldFolder,
        launch: LaunchDocument,
        mask: Mask,
        pipes: Pipes,
        begin_next_attempt: BeginNextAttempt | None = None,
    ) -> None:
        self._tails: JournalTails | None = None
        if system.may_lose_writes(folder.path):
            from workbench.learner.journal.tail import JournalTails

            self._tails = JournalTails(pipes.names)
        self._folder = folder
        self._launch = launch
        self._mask = mask
        self._pipes = pipes
        self._begin_next_attempt = begin_next_attempt
        self._guard = os.getpid()
        self._control: int | None = None
        self.report: int | None = None
        """The pipe that its messages are read from."""
        self.not_inherited: set[int] = set()
        """Descriptors that it closes at its start: open in it, they would outlive the guard."""
        self.other_pids: tuple[int, ...] = ()
        """The guard's other processes, which do not belong to the learner: not counted in its usage."""
        self._partial = b""
        self._started_at = 0.0
        self._faults = 0
        self.pid = 0
        """0 while there is none."""

    def start(self) -> float:
        """Fork the scribe; return 0, or where there is no room for a process, the seconds until the next try."""
        control_read, control_write = os.pipe()
        report_read, report_write = os.pipe()
        for descriptor in (control_read, report_read):
            os.set_blocking(descriptor, False)
        try:
            self.pid = os.fork()
        except OSError:
            for descriptor in (control_read, control_write, report_read, report_write):
                os.close(descriptor)
            return _PAUSE_SECONDS
        if self.pid == 0:
            os.close(control_write)
            os.close(report_read)
            self._run(control_read, report_write)
        os.close(control_read)
        os.close(report_write)
        self._control, self.report = control_write, report_read
        self._started_at = time.monotonic()
        return 0.0

    def send(self, line: str) -> None:
        """Send a command. One that a dying scribe misses is sent again by the caller after the restart."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                os.write(self._control, line.encode() + b"\n")

    def received(self) -> list[str]:
        """Return the messages that have arrived since the last call, a line each."""
        if self.report is None:
            return []
        try:
            data = os.read(self.report, 4096)
        except BlockingIOError:
            return []
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]

    def ended(self, status: int) -> float:
        """Note that the scribe ended; return after how many seconds to start the next one.

        One that was killed is replaced at once. One that fails again and again is started after a pause.
        """
        for descriptor in (self._control, self.report):
            if descriptor is not None:
                os.close(descriptor)
        self._control = self.report = None
        self._partial = b""
        self.pid = 0
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        quickly = time.monotonic() - self._started_at < _DIED_QUICKLY_SECONDS
        self._faults = self._faults + 1 if quickly and not killed else 0
        return _PAUSE_SECONDS if self._faults else 0.0

    def kill(self) -> None:
        """Kill it, and wait until it is gone: what it wrote is whole, and the next one goes on from there."""
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        # The guard buries it as it does every other that was killed.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def release_gpus(self) -> None:
        """Release the GPUs' leases here and in the scribe, which inherited them: no process of the learner is left."""
        if self._launch.slots:
            from workbench.learner.platform import leases

            self.record_gpu_use()
            self.send("slots")
            leases.close_inherited(self._launch.slots)

    def record_gpu_use(self) -> None:
        """Record for how long the learner had its GPUs, unless they were released before."""
        if self._launch.slots:
            from workbench.learner.queue.gpu_use import record_use

            record_use(self._launch.slots)

    def await_end(self, patience_seconds: float) -> None:
        """Have it end, now that the learner's end is recorded, and wait until it has let go of the learner's lock."""
        if self._control is not None:
            os.close(self._control)
            self._control = None
        give_up = time.monotonic() + patience_seconds
        while self.report is not None and (left := give_up - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self.report, select.POLLIN)
            with contextlib.suppress(BlockingIOError):
                if poll.poll(left * 1000) and not os.read(self.report, 4096):
                    return

    def _run(self, control: int, report: int) -> None:
        """Run the scribe in the forked process; never returns."""
        code = 70
        gc.freeze()  # a collection would write into every page that is still shared with the guard
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # it outlives the command whose output it saves
            for name in self._pipes.names:
                self._pipes.close_write_end(name)
            for descriptor in self.not_inherited:
                os.close(descriptor)
            scribe = Scribe(
                self._folder,
                self._launch,
                self._channels(report),
                control=control,
                report=report,
                begin_next_attempt=self._begin_next_attempt,
            )
            if self._faults >= _MANY_DEATHS:
                scribe.give_up_collecting()
            elif self._launch.usage_seconds > 0:
                scribe.sample_with(self._sampler)
            scribe.run()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError):
                _let_go(report)
            os._exit(code)

    def _channels(self, report: int) -> list[OutputChannel]:
        """Open the journals, again and again while the disk takes nothing or the home was moved and is not bound yet.

        A learner whose folder was removed has none: nobody can read them, and the scribe ends with the learner.
        """
        stall = ""
        while True:
            try:
                channels = open_channels(
                    self._folder, self._launch, self._mask, self._pipes.read_ends, self._tails
                )
                break
            except OSError as error:
                if os.getppid() != self._guard:
                    self._folder.keep_lock()
                if self._folder.is_removed():
                    return []
                if stall != stall_text(error):
                    stall = stall_text(error)
                    with contextlib.suppress(
                        OSError
                    ):  # the guard is dead: the scribe notices when it listens
                        os.write(report, ("stall %s\n" % stall).encode())
                select.poll().poll(RETRY_SECONDS * 1000)
        if stall:
            with contextlib.suppress(OSError):
                os.write(report, b"stall \n")
        return channels

    def _sampler(self) -> Sampler:
        from workbench.learner.scribe.usage import Sampler

        tree: Tree | ContainerTree
        if os.path.exists(os.path.join(self._folder.path, "container.json")):
            tree = ContainerTree(self._folder.path)
        else:
            tree = Tree(self._guard, without=(os.getpid(), *self.other_pids))
        return Sampler(
            tree,
            self._launch.slots,
            self._launch.usage_seconds,
            folder=self._folder.held_path,
            mask=self._mask,
            is_network_own=is_network_own(self._launch),
        )


def is_network_own(launch: LaunchDocument) -> bool:
    """Say whether this is a pod with a network of its own: on its node's network it has the node's host name."""
    return os.uname().nodename in (launch.document.get("learner_hosts") or ())


def open_channels(
    folder: HeldFolder,
    launch: LaunchDocument,
    mask: Mask,
    read_ends: Mapping[str, int | None],
    tails: JournalTails | None = None,
) -> list[OutputChannel]:
    """Open the journals of a learner, each with the pipe that it is filled from, if there still is one.

    What they lost of their ``tails`` is written again.

    Raises:
        OSError: the disk takes no more; the pipes are as they were.
    """
    channels: list[OutputChannel] = []
    try:
        for name, read_end in read_ends.items():
            is_output = name == "output"
            tail = None if tails is None else tails.outputs[name]
            transcriber = Transcriber(
                folder.path,
                launch,
                mask=mask,
                name=name,
                collect=is_output,
                reports_announced=is_output,
                output_tail=tail,
                records_tail=None if tails is None else tails.records,
                judge=is_output,
                held_folder=folder.held_path,
            )
            channels.append(OutputChannel(None, transcriber))
            if read_end is not None:
                output = os.path.join(folder.held_path, name + ".log")
                channels[-1].pump = Pump(read_end, output, transcriber.publisher.end, tail)
    except OSError:
        for channel in channels:
            channel.transcriber.close()
        raise
    return channels


def _let_go(report: int) -> None:
    """Close all that others wait for, and ``report`` last: the process's end may take the kernel longer.

    It gives watches of folders up, which takes some 10 ms.
    """
    for name in os.listdir("/proc/self/fd"):
        path = "/proc/self/fd/" + name
        with contextlib.suppress(OSError):
            if int(name) > 2 and int(name) != report and os.readlink(path) != "anon_inode:inotify":
                os.close(int(name))
    os.close(report)
