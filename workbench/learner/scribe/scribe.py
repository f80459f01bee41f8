"""Keeps what a learner prints: moves bytes from its pipes into files, publishes them, extracts records.

It is the guard's child and its witness. When the guard tells it to, it keeps what is left and ends; when the
guard dies, it ends the learner and records why. On a full disk it takes no more bytes, so the command waits.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import time

from workbench.learner.journal import reasons, state
from workbench.learner.journal.output import PROCESSES_FILE
from workbench.learner.platform import system
from workbench.learner.scribe.orphan import Orphan
from workbench.learner.scribe.publisher import PUBLISH_SECONDS

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.scribe.orphan import BeginNextAttempt
    from workbench.learner.scribe.pump import Pump
    from workbench.learner.scribe.transcriber import Transcriber
    from workbench.learner.scribe.usage import Sampler

RETRY_SECONDS = 0.2
"""How often a full disk is tried again."""

PATIENCE_SECONDS = 600.0
"""How long bytes of a learner that has ended wait for room on a full disk."""

STALE_SECONDS = 1.0
"""How long files fail whose folder answers, until they are opened again."""

SAMPLE_FROM_SECONDS = 0.5
"""How long a learner has run when its usage is first sampled."""

SAMPLE_AGAIN_SECONDS = 5.0
"""When it is tried again where that was not possible."""

_FINISH_SLICE_SECONDS = 0.2


class OutputChannel:
    """One pipe of the learner, or None once it is closed, and the journal that it is written to."""

    __slots__ = ("pump", "pumped_at", "rest_until", "stalled", "transcriber")

    def __init__(self, pump: Pump | None, transcriber: Transcriber) -> None:
        self.pump = pump
        self.transcriber = transcriber
        self.stalled = False
        self.pumped_at = 0.0
        self.rest_until = 0.0


class Scribe:
    """Serves channels until the learner has ended and all is kept.

    Args:
        folder: the learner's folder.
        launch: its launch document.
        channels: what it prints into, the command's own last; none where its folder was removed before.
        control: a pipe with the guard's commands; its end means that the guard is dead. None: it is dead.
        report: a pipe for messages to the guard.
        begin_next_attempt: what is called where the guard is killed: see :class:`Orphan`.
    """

    def __init__(
        self,
        folder: state.HeldFolder,
        launch: LaunchDocument,
        channels: list[OutputChannel],
        *,
        control: int | None = None,
        report: int | None = None,
        begin_next_attempt: BeginNextAttempt | None = None,
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._channels = channels
        self._control = control
        self._report = report
        self._begin_next_attempt = begin_next_attempt
        self._make_sampler: Callable[[], Sampler] | None = None
        self._sampler: Sampler | None = None
        self._sample_from = time.monotonic() + SAMPLE_FROM_SECONDS
        self._partial = b""
        self._stall = ""
        self._failing_since: float | None = None
        self._finishing_since: float | None = None
        self._given_up = False
        self._output_saved = False
        self._recorded = False
        self._loss_noted = False
        self._orphan: Orphan | None = None
        self._orphan_ended = False
        if control is None:
            self._guard_died()

    def sample_with(self, make_sampler: Callable[[], Sampler]) -> None:
        """Write usage samples too, by a sampler that is made once the learner has run for a while."""
        self._make_sampler = make_sampler

    def give_up_collecting(self) -> None:
        """Save the output only: collecting has failed again and again."""
        for channel in self._channels:
            channel.transcriber.give_up_collecting()
        text = "the agent failed again and again: metrics and usage are not collected any more"
        self._keep({"time": system.now_us(), "kind": "note", "level": "error", "text": text})

    def run(self) -> None:
        """Serve until all output is saved and the end is recorded: by the guard, or here when that is dead."""
        behind = True
        self._note_losses()
        while not self._recorded:
            self._wait(0.0 if behind else self._timeout())
            self._listen()
            self._end_orphan()
            if self._finishing_since is None:
                behind = self._serve()
                self._note_usage()
            else:
                behind = self._finish()

    def _note_losses(self) -> None:
        for channel in self._channels:
            if channel.pump is not None and channel.pump.lost_bytes:
                text = reasons.lost_with_mount(channel.pump.lost_bytes)
                self._keep({"time": system.now_us(), "kind": "note", "level": "warning", "text": text})

    # Waiting

    def _wait(self, timeout_seconds: float | None) -> None:
        poll = select.poll()
        for descriptor in self._descriptors():
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if timeout_seconds is None else max(0.0, timeout_seconds) * 1000)

    def _descriptors(self) -> list[int]:
        descriptors = [] if self._control is None else [self._control]
        if self._finishing_since is not None:
            return descriptors
        if self._sampler is not None:
            descriptors.append(self._sampler.pipe)
        now = time.monotonic()
        for channel in self._channels:
            pump = channel.pump
            if not channel.stalled:
                descriptors += channel.transcriber.descriptors()
            if pump is not None and not pump.ended and not channel.stalled and channel.rest_until <= now:
                descriptors.append(pump.pipe)
        return descriptors

    def _timeout(self) -> float | None:
        now = time.monotonic()
        times: list[float] = []
        for channel in self._channels:
            if channel.stalled:
                times.append(RETRY_SECONDS)
                continue
            due = None if self._output_saved else channel.transcriber.due_seconds()
            if due is not None:
                times.append(due)
            if channel.rest_until > now:
                times.append(channel.rest_until - now)
        if self._finishing_since is not None and not self._output_saved:
            times.append(RETRY_SECONDS)
        if self._sampler is None and self._make_sampler is not None and self._finishing_since is None:
            times.append(self._sample_from - now)
        if self._orphan is not None and not self._orphan_ended:
            times.append(self._orphan.due_seconds())
        return min(times, default=None)

    # Moving output and collecting

    def _serve(self) -> bool:
        """Move, publish and collect; return whether there is more at once."""
        behind = False
        stall = ""
        for channel in self._channels:
            try:
                behind = self._pump(channel) or behind
                channel.stalled = False
            except (ImportError, OSError) as error:  # the agent's files lie in the home, too
                channel.stalled = True
                stall = stall_text(error)
                self._renew(error)
        self._send_stall(stall)
        return behind

    def _pump(self, channel: OutputChannel) -> bool:
        now = time.monotonic()
        if channel.pump is not None and channel.rest_until <= now:
            moved = channel.pump.move()
            if moved:
                channel.rest_until = now + _rest(moved, now - channel.pumped_at, channel.pump.capacity)
                channel.pumped_at = now
        return channel.transcriber.step()

    def _note_usage(self) -> None:
        if self._sampler is None:
            if self._make_sampler is None or time.monotonic() < self._sample_from:
                return
            try:
                self._sampler = self._make_sampler()
            except (ImportError, OSError):  # the agent's files were moved with the home
                self._sample_from = time.monotonic() + SAMPLE_AGAIN_SECONDS
                return
        for sample in self._sampler.take():
            self._keep(sample)

    def _keep(self, record: dict[str, Any]) -> None:
        for channel in self._channels[-1:]:
            with contextlib.suppress(OSError):  # it stays in memory; the next turn meets the same and says so
                channel.transcriber.add(record)

    # Messages from and to the guard

    def _listen(self) -> None:
        if self._control is None:
            return
        try:
            data = os.read(self._control, 4096)
        except BlockingIOError:
            return
        if not data:
            os.close(self._control)
            self._control = None
            self._guard_died()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._handle(line.decode("utf-8", "replace"))

    def _handle(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        if command == "finish":
            self._output_saved = False
            # Where results are stored first, this process stays, and would keep one of the user's few instances.
            if self._finishing_since is None and not (self._launch.stores or self._launch.retention):
                for channel in self._channels:
                    channel.transcriber.leave_watches()
            self._finishing_since = time.monotonic()
        elif command == "give-up":
            self._given_up = True
        elif command == "reports":
            for channel in self._channels:
                channel.transcriber.look_for_reports()
        elif command == "slots":
            self._release_gpus()
        elif command == "record":
            self._keep(json.loads(rest))
        elif command == "records":
            self._send("recorded")  # each was written when it came
        elif command == "note":
            self._keep({"time": system.now_us(), "kind": "note", "level": "warning", "text": rest})

    def _release_gpus(self) -> None:
        """Let other jobs have the GPUs: nothing of the learner runs any more, only its results go to their store."""
        from workbench.learner.platform import leases

        leases.close_inherited(self._launch.slots)

    def _send(self, line: str) -> None:
        if self._report is not None and self._orphan is None:
            with contextlib.suppress(OSError):  # the guard is dead, and its own pipe says so too
                os.write(self._report, line.encode() + b"\n")

    def _renew(self, error: Exception) -> None:
        """Let the guard start another scribe where what is open is dead and its folder is not.

        sshfs comes back by itself (``reconnect``) within the same mount, and then fails only for files that were open.
        """
        now = time.monotonic()
        if not isinstance(error, OSError) or error.errno not in system.MOUNT_GONE or self._control is None:
            return
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= STALE_SECONDS and not state.is_away(self._folder.path):
            os.kill(os.getpid(), signal.SIGKILL)

    def _send_stall(self, stall: str) -> None:
        if not stall:
            self._failing_since = None
        if stall == self._stall:
            return
        self._stall = stall
        if self._orphan is not None:
            self._orphan.stalled(stall)
        else:
            self._send("stall " + stall)

    # The end

    def _guard_died(self) -> None:
        # The path may lead nowhere where the home is being moved.
        found = state.read_patiently(self._folder.held_path)
        if self._output_saved and found.get("phase") == "exited":
            state.StateFile(
                self._folder.held_path, found
            ).clear()  # it may have been killed just before it did
            self._recorded = True
            return
        self._output_saved = False
        # Of a state that could not be read, as of a mount that ends, nobody knows whether it records the end.
        begin = self._begin_next_attempt if found else None
        self._orphan = Orphan(self._folder, self._launch, begin)

    def _end_orphan(self) -> None:
        if self._orphan is None or self._orphan_ended or self._orphan.due_seconds() or self._orphan.step():
            return
        self._orphan_ended = True
        if self._finishing_since is None:
            self._finishing_since = time.monotonic()

    def _finish(self) -> bool:
        """Keep what is left; once all is kept, record the end or let the guard do it.

        Takes a slice of time at a time; returns whether there is more to do at once.
        """
        if self._output_saved:
            return False
        self._end_sampling()
        lost = 0
        for channel in self._channels:
            if not self._emptied(channel):
                if not self._patience_over():
                    return not self._stall
                lost += channel.pump.waiting_bytes() if channel.pump is not None else 0
        self._send_stall("")
        if self._orphan is None:
            self._output_saved = True
            self._send("kept %d" % lost)
        elif self._orphan_ended:
            is_pipe_gone = all(channel.pump is None for channel in self._channels)
            if is_pipe_gone and self._orphan.is_output_unsaved and not self._loss_noted:
                self._loss_noted = True
                self._note_unsaved()
            self._recorded = self._orphan.record(lost, is_pipe_gone=is_pipe_gone)
        return False

    def _end_sampling(self) -> None:
        """Sample no more; the list of processes goes, also that of a scribe which was killed."""
        if self._sampler is not None:
            self._sampler.end()
        elif self._launch.usage_seconds > 0:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder.held_path, PROCESSES_FILE))

    def _note_unsaved(self) -> None:
        text = reasons.UNSAVED
        with contextlib.suppress(OSError):
            if any(channel.transcriber.has_note(text) for channel in self._channels[-1:]):
                return
        self._keep({"time": system.now_us(), "kind": "note", "level": "warning", "text": text})

    def _emptied(self, channel: OutputChannel) -> bool:
        try:
            if channel.pump is not None:
                channel.pump.empty()
            done = channel.transcriber.finish_step(_FINISH_SLICE_SECONDS)
        except (ImportError, OSError) as error:
            self._send_stall(stall_text(error))
            self._renew(error)
            return False
        self._send_stall("")
        return done

    def _patience_over(self) -> bool:
        if not self._stall or self._finishing_since is None:
            return False
        waited = time.monotonic() - self._finishing_since
        if self._given_up or self._folder.is_removed():
            return True
        return waited > (state.HOME_SECONDS if state.is_away(self._folder.path) else PATIENCE_SECONDS)


def stall_text(error: Exception) -> str:
    """Return the sentence for the state file on why output waits."""
    if not isinstance(error, OSError):
        return "output waits: a part of the agent cannot be read (%s)" % error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: the command's output waits until there is room"
    return "output cannot be written and waits: %s" % (error.strerror or error)


def _rest(moved: int, seconds: float, capacity: int) -> float:
    """Return how long output may gather: a published entry's time, or until a quarter of the pipe is full."""
    rate = moved / max(seconds, 1e-6)
    rest = min(PUBLISH_SECONDS, capacity / 4 / rate)
    return rest if rest > 0.0005 else 0.0  # waiting is not finer than that
