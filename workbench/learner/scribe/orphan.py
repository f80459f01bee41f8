"""What is done for a learner whose guard was killed: its processes are ended, its end is recorded truthfully.

By the scribe, or by the next guard when both were killed. The command is never started again: its start was
recorded before it was executed.
"""

from __future__ import annotations

import os
import select

from workbench.learner.journal import reasons, state
from workbench.learner.platform import process_table, processes, system

_CONTAINER_SECONDS = 10.0
"""How long a container may take to end after the agents that it belongs to."""

_LOOK_AGAIN_SECONDS = 0.1
_NOT_FOUND = 404

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Protocol

    from workbench.learner.journal.launch_document import LaunchDocument

    class BeginNextAttempt(Protocol):
        """What has the host begin the next attempt, where one follows: the guard's own, in a scribe."""

        def __call__(
            self, file: state.StateFile, why: dict[str, Any] | None, *, is_agent_killed: bool
        ) -> None:
            """Begin it before the end is recorded: by the state of the learner, and why it failed."""


class Orphan:
    """A learner without a guard, whose lock we hold.

    Args:
        folder: its folder.
        launch: its launch document.
        begin_next_attempt: has the host begin the next attempt; None in a process that has not the job's secrets.
    """

    def __init__(
        self,
        folder: state.HeldFolder,
        launch: LaunchDocument,
        begin_next_attempt: BeginNextAttempt | None = None,
    ) -> None:
        self._folder = folder
        self._launch = launch
        folder.keep_lock()
        self.file = state.StateFile.begin(folder, launch)
        self.file.document.update(state.read_patiently(folder.held_path))
        self._begin_next_attempt = begin_next_attempt if launch.restarts else None
        self._is_agent_killed = False
        self._end: tuple[dict[str, Any] | None, bool] | None = None
        self._rebooted = self.file.document.get("boot_id") != system.boot_id()
        self._ending = processes.Termination(self.members, launch.grace_seconds)

    def members(self) -> dict[int, Any]:
        """Return what still runs of the learner."""
        if self._rebooted:
            return {}
        document = self.file.document
        known = (document.get("command_pid") or 0, document.get("command_ticks") or 0)
        return processes.members(self._launch.marker, known=known, without=(os.getpid(),))

    def step(self) -> bool:
        """End what still runs; return whether anything is left."""
        if state.read_stop(self._folder.path).get("kind") == "kill" or self._folder.is_removed():
            self._ending.hasten(0.0)
        return self._ending.step()

    def due_seconds(self) -> float:
        """Return after how many seconds to :meth:`step` again."""
        return max(0.0, self._ending.due_at - system.elapsed_seconds())

    @property
    def is_output_unsaved(self) -> bool:
        """Whether something was started and the guard did not record that all of its output was saved."""
        document = self.file.document
        return document.get("command_pid") is not None and not document.get("output_saved")

    def record(self, lost_bytes: int, *, is_pipe_gone: bool = False) -> bool:
        """Record the end; return whether the disk took it. To be called again until it did.

        Args:
            lost_bytes: how much output a full disk did not take.
            is_pipe_gone: whether nobody holds the pipe any more that the learner printed into.
        """
        self._folder.keep_lock()
        if self._folder.is_removed():
            return True
        if self._end is None:
            self._end = self._conclude(lost_bytes, is_pipe_gone)
            self._folder.keep_lock()  # to store results may take long
        why, failed = self._end
        document = self.file.document
        decided = bool(document.get("decided"))
        if not document.get("stopped"):
            try:
                decided = self._decide(failed=failed)
            except OSError:
                return False
        self._follow(why)
        if self._launch.learners > 1:
            document["agent_killed"] = True  # what of it still runs in an engine nobody may know
        document.update(
            phase="exited",
            reason=why,
            decided=decided,
            stall="",
            ended_us=document.get("ended_us") or system.now_us(),
        )
        if not self.file.write(durable=True):
            return False
        self.file.clear()
        self._record_gpu_use()
        return True

    def _follow(self, why: dict[str, Any] | None) -> None:
        """Have the host begin the next attempt, once: nothing of this one runs any more.

        A guard that was killed meanwhile may have given it away.
        """
        begin, self._begin_next_attempt = self._begin_next_attempt, None
        document = self.file.document
        if begin is None or document.get("followed_by"):
            return
        if not _may_run_in_engine(self._folder.path):
            begin(self.file, why, is_agent_killed=self._is_agent_killed)

    def _record_gpu_use(self) -> None:
        if self._launch.slots:
            from workbench.learner.queue.gpu_use import record_use

            record_use(self._launch.slots)

    def _conclude(self, lost_bytes: int, is_pipe_gone: bool) -> tuple[dict[str, Any] | None, bool]:
        """Keep checkpoints and store results; return why the learner ended and whether it failed."""
        why, failed = self._judge_end(lost_bytes, is_pipe_gone)
        if self._launch.retention:
            from workbench.learner.stores.retention import retain_checkpoints

            retain_checkpoints(self._folder.path, self._launch, lambda _: None)
        if self._launch.stores:
            document = self.file.document
            document.update(reason=why, ended_us=document.get("ended_us") or system.now_us())
            unstored = self._store()
            if unstored is not None:
                return unstored, True
        return why, failed

    def _judge_end(self, lost_bytes: int, is_pipe_gone: bool) -> tuple[dict[str, Any] | None, bool]:
        """Return why the learner ended and whether it failed, before its results are stored."""
        document = self.file.document
        ended = document.get("exit_code") is not None or document.get("signal") is not None
        why = document.get("reason")
        if not ended and not document.get("stopped"):
            request = state.read_stop(self._folder.path)
            kind = request.get("kind", "")
            is_asked = bool(request) and kind != state.FINISH
            document["stopped"] = kind if is_asked else ""
            # Its guard may have been asked to end, as when the machine shuts down, and been killed for it.
            self._is_agent_killed = not is_asked and not why
            why = reasons.of_stop(kind, request.get("by", "")) if is_asked else self._missing_end_reason()
        if lost_bytes:
            why = reasons.of_lost_output(lost_bytes)
        failed = why is not None and why.get("code") != reasons.UNSAVED_CODE
        if not lost_bytes and ended and is_pipe_gone and self.is_output_unsaved:
            why = reasons.of_unsaved_output(why)
        return why, failed

    def _store(self) -> dict[str, Any] | None:
        """Store what the learner leaves behind; its records are left to who reads them."""
        from workbench.learner.platform import leases
        from workbench.learner.stores.upload_process import upload_all

        self._record_gpu_use()
        leases.close_inherited(self._launch.slots)
        try:
            values = self._launch.secret_values()
        except (OSError, ValueError):
            values = {}  # gone with the machine's restart
        return upload_all(
            self._folder.path, self._launch, values, self.file, lambda _: None, self._reach_folder
        )

    def _reach_folder(self) -> str:
        self._folder.keep_lock()
        return self._folder.held_path

    def stalled(self, text: str) -> None:
        """Say why output waits."""
        self.file.update(stall=text)

    def _decide(self, *, failed: bool) -> bool:
        document = self.file.document
        if not failed and not state.decides(self._launch):
            return False
        ended = document.get("exit_code"), document.get("signal")
        return state.decide(self._launch, *ended, failed=failed, folder=self._folder.held_path)

    def _missing_end_reason(self) -> dict[str, Any]:
        if self._rebooted:
            return reasons.reason("the machine was restarted while it ran", "S203")
        if self.file.document.get("command_pid") is None:
            return reasons.reason("the agent was killed before it started anything", "S202")
        what = "setup" if self.file.document.get("started_us") is None else "the command"
        return reasons.reason("the agent was killed while %s ran" % what, "S202")


def _may_run_in_engine(folder: str) -> bool:
    """Say whether a learner's container, if it has one, may still run: it ends in a moment after its agents.

    Only its engine knows that.
    """
    path = os.path.join(folder, "container.json")
    if not os.path.exists(path):
        return False
    from workbench.learner.platform.engine_client import EngineRefused, ask  # few learners need it

    config = state.read_object(path)
    until = system.elapsed_seconds() + _CONTAINER_SECONDS
    try:
        while ask(str(config["engine"]), "GET", "containers/%s/json" % config["name"])["State"]["Running"]:
            if system.elapsed_seconds() >= until:
                return True
            select.poll().poll(_LOOK_AGAIN_SECONDS * 1000)
    except EngineRefused as error:
        return error.status != _NOT_FOUND
    except (OSError, KeyError, TypeError, ValueError):
        return True
    return False


def rescued_pipes(folder: state.HeldFolder, launch: LaunchDocument) -> dict[str, int | None]:
    """Return by journal the pipe that a learner without agents prints into, opened from a process of its own.

    What was printed and not kept waits in it as long as a process of the learner holds it.
    """
    names = ["setup", "output"] if launch.setup else ["output"]
    pipes: dict[str, int | None] = dict.fromkeys(names)
    orphan = Orphan(folder, launch)
    document = orphan.file.document
    name = "output" if document.get("started_us") is not None else names[0]
    for path in process_table.holders(document.get("output_pipe") or 0, orphan.members()):
        try:
            pipes[name] = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError:
            continue
    return pipes
