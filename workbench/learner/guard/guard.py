"""Keeps one learner: starts its command once, stops it, enforces its limits, records its state and its end.

It holds the learner's lock for life and is the process that orphans of the command are given to. Its scribe keeps
the output; each notices the other's death.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys

from workbench.learner.guard import spawn
from workbench.learner.guard.requests import LearnerLimits, LearnerStop, Requests
from workbench.learner.journal import reasons, state
from workbench.learner.journal.launch_document import PREEMPT, variables_of
from workbench.learner.journal.output import REPORT_FILE
from workbench.learner.platform import folder_signal, process_table, processes, system
from workbench.learner.scribe.masking import Mask, texts_to_mask
from workbench.learner.scribe.process import Pipes, ScribeProcess

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from workbench.learner.journal.launch_document import LaunchDocument
    from workbench.learner.stores.mount import Mount
    from workbench.learner.stores.retention import RetentionWorker
    from workbench.learner.stores.upload_process import UploadWorker

LOG = "guard.log"
"""What the agents say themselves, in the learner's folder, where whoever starts them wants it there."""

LEFTOVER_SECONDS = 2.0
"""How long processes have to end that the command left behind."""

_RETRY_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0
_SCRIBE_END_SECONDS = 2.0
_RECORDS_SECONDS = 5.0


class Guard:
    """The guard of one learner. Its caller holds the lock and has read the secrets."""

    def __init__(
        self,
        folder: state.HeldFolder,
        launch: LaunchDocument,
        secrets: dict[str, str],
        mounts: Sequence[Mount] = (),
        *,
        release_data: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._launch = launch
        self._environment = {
            "FABRIC_REPORT": os.path.join(folder.path, REPORT_FILE),
            "FABRIC_STOP_FILE": os.path.join(folder.path, "stop.json"),
            **{str(name): str(value) for name, value in launch.env.items()},
            **variables_of(secrets),
            processes.MARKER: launch.marker,
        }
        self._secrets = secrets
        self._mounts = mounts
        self._release_data = release_data
        self._state = state.StateFile.begin(folder, launch)
        if launch.stop_when:
            self._state.document["stop_rules"] = True
        self._requests = Requests(folder, launch)
        self._limits = LearnerLimits(launch)
        self._stopping = LearnerStop(folder.held_path, self._members)
        self._pipes = Pipes(["setup", "output"] if launch.setup else ["output"])
        self._scribe = ScribeProcess(
            folder,
            launch,
            Mask(texts_to_mask(secrets, launch.env)),
            self._pipes,
            self._begin_next_attempt,
        )
        self._upload_worker: UploadWorker | None = None
        self._retention_worker: RetentionWorker | None = None
        self._scribe_at = 0.0
        self._retry_at = 0.0
        self._act = ""
        self._child: spawn.HeldChild | None = None
        self._held_back = False
        self._unstarted = ""
        self._output_stall = ""
        self._decision_stall = ""
        self._command_ended = False
        self._deciding = False
        self._finishing = False
        self._output_saved = False
        self._is_removed = False
        self._has_reports = False
        self._lost_bytes = 0
        self._are_records_kept = True
        self._ended_at = 0.0

    def run(self) -> None:
        """Keep the learner until it has ended and that is recorded."""
        system.become_subreaper()
        self._listen_for_signals()
        self._follow_mount()  # what was fetched before may have taken long
        if self._launch.stores or self._launch.retention:
            self._state.write(durable=False)  # their workers may take long to start
            self._start_workers()
        self._start_scribe()
        self._follow_requests()
        if not self._stopping.begun:
            self._start("setup" if self._launch.setup else "command")
        while not self._output_saved or (self._deciding and not self._is_removed):
            self._wait()
            self._step()
            if self._is_home_given_up():
                self._scribe.kill()
                return
        self._record_exit()
        # Python gives its handlers up before the folders are closed, and by itself this signal ends a process.
        signal.signal(folder_signal.NUMBER, signal.SIG_IGN)

    # The loop

    def _wait(self) -> None:
        poll = select.poll()
        for descriptor in (self._woken, self._scribe.report, self._requests.fileno()):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, self._timeout()) * 1000)

    def _timeout(self) -> float:
        now = system.elapsed_seconds()
        # poll does not count time asleep: what is due at a time is checked now and then.
        times = [self._requests.due_seconds()]
        limits = None if self._command_ended or self._stopping.kind else self._limits.due_at()
        times.extend(
            min(at - now, _LONGEST_WAIT_SECONDS) for at in (self._stopping.due_at(), limits) if at is not None
        )
        if not self._scribe.pid and not self._output_saved:
            times.append(self._scribe_at - now)
        if self._refused():
            times.append(self._retry_at - now)
        elif self._output_stall:
            times.append(_RETRY_SECONDS)
        return min(times)

    def _step(self) -> None:
        self._follow_mount()
        self._read_signals()
        self._reap()
        self._read_scribe()
        self._follow_requests()
        if self._stopping.step():
            self._reap()  # the command itself may be dead and not yet buried
            if self._command_ended:
                self._finish()
        if self._refused() and system.elapsed_seconds() >= self._retry_at:
            self._try_again()
        if not self._scribe.pid and not self._output_saved and system.elapsed_seconds() >= self._scribe_at:
            self._start_scribe()

    def _refused(self) -> bool:
        """Say whether a full disk holds something back."""
        return self._held_back or self._deciding or not self._state.written or bool(self._unstarted)

    def _try_again(self) -> None:
        if not self._state.written:
            self._state.write(durable=False)
        if self._held_back:
            self._release_command()
        if self._unstarted and not self._stopping.begun:
            self._start(self._unstarted)
        if self._deciding:
            self._decide()
        # A try makes files and removes them, which wakes us: without a rest it would be tried without end.
        self._retry_at = system.elapsed_seconds() + _RETRY_SECONDS

    def _listen_for_signals(self) -> None:
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, folder_signal.NUMBER):
            signal.signal(number, lambda *_: None)  # the wakeup descriptor tells
        self._scribe.not_inherited.update((self._woken, wake))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _read_signals(self) -> None:
        try:
            received = os.read(self._woken, 4096)
        except BlockingIOError:
            return
        if folder_signal.NUMBER in received:
            self._requests.note_change()
        if (signal.SIGTERM in received or signal.SIGINT in received) and not self._command_ended:
            text = "the agent was asked to end, as when the machine shuts down"
            self._stopping.why = self._stopping.why or reasons.reason(text, "S202")
            # First, since the command may look as soon as it has its signal.
            state.announce_end(self._folder.held_path, "its machine")
            self._end(self._launch.grace_seconds)

    # Starting

    def _start(self, act: str) -> None:
        """Start the setup or the command: forked and held, released once the state records it.

        A script that is too long for an argument needs room: on a full disk it is tried again.
        """
        self._act = act
        setup = act == "setup"
        name = "setup" if setup else "output"
        script = self._launch.setup if setup else self._launch.command
        path = self._environment.get("PATH", os.defpath)
        try:
            argv = spawn.shell_argv(
                self._launch, script, self._folder.path, act + ".sh", path, self._folder.held_path
            )
            environment = {**self._environment, **self._start_variables(act)}
            self._child = spawn.hold(argv, self._launch, environment, self._pipes.write_ends[name])
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._unstarted = act
                self._record_stall()
                return
            self._stopping.why = reasons.of_failed_start(error.strerror or str(error))
            self._record_command_end(None, None)
            return
        if self._unstarted:
            self._unstarted = ""
            self._record_stall()
        if argv[0] != self._launch.shell:
            self._scribe.send(
                "note %s is not here: the %s runs under %s" % (self._launch.shell, act, argv[0])
            )
        self._held_back = True
        self._scribe.not_inherited.add(self._child.go)
        self._state.update(
            phase="setup" if setup else "running",
            command_pid=self._child.pid,
            command_ticks=self._child.ticks,
            output_pipe=self._pipes.inode(name),
            started_us=None if setup else system.now_us(),
        )
        self._pipes.close_write_end(name)
        self._release_command()

    def _start_variables(self, act: str) -> dict[str, str]:
        """Return the variables of a trial of Determined that are known only when its command starts."""
        if act == "setup" or not self._environment.get("DET_EXPERIMENT_CONFIG"):
            return {}
        if os.path.exists(os.path.join(self._folder.path, "container.json")):
            return {}  # its first process finds them: what a container has made is not for the machine to follow
        from workbench.learner.determined_jobs import start_variables

        return start_variables(self._environment)

    def _is_complete(self) -> bool:
        """Say whether a trial of Determined that was asked to halt has ended because it had nothing left to do."""
        if not self._environment.get("DET_EXPERIMENT_CONFIG"):
            return False
        from workbench.learner.determined_jobs import is_unacknowledged

        return is_unacknowledged(self._folder.path)

    def _release_command(self) -> None:
        if not self._state.written or self._child is None:
            return  # the command runs only once its start is recorded
        self._held_back = False
        self._scribe.not_inherited.discard(self._child.go)
        self._child.release()
        self._watch_memory()

    def _watch_memory(self) -> None:
        self._limits.watch_memory(processes.Tree(os.getpid(), without=self._own_pids()))

    def _start_workers(self) -> None:
        if self._launch.stores:
            from workbench.learner.stores.upload_process import UploadWorker

            self._upload_worker = UploadWorker(self._folder.path, self._launch, self._secrets)
            if self._upload_worker.is_own:
                self._upload_worker.start()
        if self._launch.retention:
            from workbench.learner.stores.retention import RetentionWorker

            self._retention_worker = RetentionWorker(self._folder.path, self._launch)
            self._retention_worker.start()

    def _own_pids(self) -> tuple[int, ...]:
        """Return the pids of the guard's own children, which do not belong to the learner."""
        workers = (
            worker.pid for worker in (self._upload_worker, self._retention_worker) if worker is not None
        )
        return (self._scribe.pid, *workers, *(mount.pid for mount in self._mounts))

    # Ending

    def _follow_mount(self) -> bool:
        """Go on in the folder that its path leads to, where its mount has ended and is there again; say whether it did.

        Its lock ended with the mount, and is taken first. Where another agent was faster, the learner is that one's: it
        ends what still runs, and we write nothing any more.
        """
        if self._is_removed or not self._folder.is_mounted_anew():
            return False
        # The scribe may still reach the files of the former mount. All that it knows is in the pipe and the tails.
        self._scribe.kill()
        try:
            if not self._folder.follow():
                os._exit(0)
        except OSError:
            return False  # it has ended again
        self._output_saved = False  # the next scribe looks whether the file system kept all of it
        self._follow_log()
        self._requests.watch_anew()
        self._state.write(durable=False)
        return True

    def _follow_log(self) -> None:
        """Let what the agents themselves say go to the log that is there now."""
        try:
            log = os.open(os.path.join(self._folder.held_path, LOG), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return  # it was started without one
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)

    def _is_home_given_up(self) -> bool:
        """Say whether the command ended long ago and its end cannot be recorded: the home did not come back."""
        if not self._command_ended or not state.is_away(self._folder.path) or self._is_removed:
            return False
        return system.elapsed_seconds() - self._ended_at > state.HOME_SECONDS

    def _follow_requests(self) -> None:
        """Act on requests to stop, on another learner's decision, and on limits."""
        # Read first: it takes the events of the watch, and a removal is reported once.
        request = self._requests.check()
        if self._requests.has_reports and not self._has_reports:
            self._has_reports = True
            self._scribe.send("reports")
        if not self._is_removed and self._folder.is_removed():
            self._is_removed = (
                True  # who removed it wants nothing of it any more, and could not stop it either
            )
            self._state.give_up()
            self._stop("kill", reasons.reason("its folder was removed"), 0.0)
        self._obey(request)
        self._limits.settle(self._requests.decision)
        if not self._command_ended and not self._stopping.kind:
            excess = self._limits.exceeded()
            if excess is not None and excess.kind in (PREEMPT, "halt"):
                self._reap()  # a command that has just ended by itself is neither preempted nor halted
            if excess is not None and not self._command_ended:
                if excess.kind in (PREEMPT, "max_runtime", "halt"):
                    # First, since the command may look as soon as it has its signal.
                    state.announce_end(self._folder.held_path, excess.why["text"])
                self._stop(excess.kind, excess.why, excess.grace_seconds)

    def _obey(self, request: dict[str, Any]) -> None:
        """Stop as a request says, if it is one."""
        # Of "finish" the file itself is the message: should_stop() looks for it.
        if request and request.get("kind") != state.FINISH:
            kind = "kill" if request.get("kind") == "kill" else "halt"
            grace_seconds = 0.0 if kind == "kill" else _seconds(request, self._launch.grace_seconds)
            self._stop(kind, reasons.of_stop(kind, str(request.get("by") or "")), grace_seconds)

    def _stop(self, kind: str, why: dict[str, Any], grace_seconds: float) -> None:
        if not self._command_ended:
            self._stopping.set_cause(kind, why)
        if self._finishing and kind == "kill":
            self._scribe.send("give-up")
        self._end(grace_seconds)
        if self._child is None and not self._command_ended:
            self._record_command_end(None, None)  # it was never started

    def _end(self, grace_seconds: float) -> None:
        if not self._finishing:
            self._stopping.end(grace_seconds)
            self._state.update(phase="stopping", stopped=self._stopping.kind, reason=self._stopping.why)

    def _members(self) -> dict[int, process_table.ProcessEntry]:
        own = (os.getpid(), *self._own_pids())
        known = (0, 0) if self._child is None else (self._child.pid, self._child.ticks)
        return processes.members(self._launch.marker, roots=own[:1], known=known, without=own)

    def _left_something(self) -> bool:
        children = process_table.children(os.getpid())
        return bool(self._members() if children is None else set(children) - set(self._own_pids()))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._scribe.pid:
                self._scribe_ended(status)
            elif self._upload_worker is not None and pid == self._upload_worker.pid:
                self._upload_worker.pid = 0  # all is stored at the end
            elif self._retention_worker is not None and pid == self._retention_worker.pid:
                self._retention_worker.pid = 0
            elif self._child is not None and pid == self._child.pid:
                self._main_ended(self._child, status)

    def _main_ended(self, main: spawn.HeldChild, status: int) -> None:
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        failure = main.failure()
        if not self._stopping.kind:
            self._obey(
                self._requests.check(now=True)
            )  # should_stop() may have seen the request before we have
        if self._act == "setup" and exit_code == 0:
            if self._stopping.why is None:
                self._start("command")
                return
            exit_code = None  # the command has none
        if exit_code == 0 and self._stopping.kind in ("halt", PREEMPT) and self._is_complete():
            self._stopping.withdraw_cause()
        if self._stopping.why is None:
            of_act = reasons.of_setup if self._act == "setup" else reasons.of_command
            self._stopping.why = reasons.reason(failure, "S101") if failure else of_act(exit_code, number)
        self._record_command_end(exit_code, number)

    def _record_command_end(self, exit_code: int | None, number: int | None) -> None:
        """Record how the command ended, at once: the rest may take long, and the guard may be killed meanwhile."""
        self._command_ended = True
        self._ended_at = system.elapsed_seconds()
        self._unstarted = ""
        self._state.update(
            phase="stopping",
            exit_code=exit_code,
            signal=number,
            ended_us=system.now_us(),
            stopped=self._stopping.kind,
            reason=self._stopping.why,
        )
        self._deciding = self._stopping.kind in ("", "max_runtime", "memory", PREEMPT)
        if self._deciding:
            self._decide()
        if not self._stopping.begun:
            if self._left_something():
                self._stopping.end(LEFTOVER_SECONDS)
            else:
                self._finish()

    def _decide(self) -> None:
        """Record that this learner's end decides the attempt, if it does; tried again while the disk is full."""
        if not self._is_removed and (state.is_away(self._folder.path) or self._folder.is_mounted_anew()):
            return  # how the others ended cannot be seen, or another agent may have our lock
        failed = self._stopping.why is not None
        ended = self._state.document["exit_code"], self._state.document["signal"]
        try:
            decided = (failed or state.decides(self._launch)) and state.decide(
                self._launch, *ended, failed=failed, folder=self._folder.held_path
            )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                # Where the home is, room is kept for this, and is given up for an end that says what it waits for.
                self._decision_stall = state.END_AWAITS_ROOM
                self._record_stall()
            return
        self._deciding = False
        self._decision_stall = ""
        self._record_stall()
        if self._launch.learners > 1 or self._own_pids()[1:]:
            self._state.update(decided=decided)
        else:
            self._state.document["decided"] = decided  # nobody waits for it, and the end is written next

    def _finish(self) -> None:
        """All processes have ended: let the scribe save the rest of the output."""
        self._stopping.over()
        self._finishing = True
        for name in self._pipes.names:
            self._pipes.close_write_end(name)
        self._request_finish()

    # The scribe, and the end

    def _start_scribe(self) -> None:
        self._scribe.other_pids = self._own_pids()[1:]
        self._scribe_at = system.elapsed_seconds() + self._scribe.start()
        if self._scribe.pid:
            self._state.update(scribe_pid=self._scribe.pid)
            self._watch_memory()  # what is not the learner's has another pid now
            if self._finishing:
                self._request_finish()

    def _request_finish(self) -> None:
        self._scribe.send("finish")
        if self._stopping.kind == "kill":
            self._scribe.send("give-up")

    def _scribe_ended(self, status: int) -> None:
        self._read_scribe()
        self._scribe_at = system.elapsed_seconds() + self._scribe.ended(status)
        self._output_stall = ""  # the next one says it again if it is still so
        self._record_stall()

    def _record_stall(self) -> None:
        """Record what waits for room: the command before its output, and that before its end."""
        begin = state.AWAITS_ROOM if self._unstarted else ""
        self._state.update(stall=begin or self._output_stall or self._decision_stall)

    def _read_scribe(self) -> None:
        for line in self._scribe.received():
            message, _, rest = line.partition(" ")
            if message == "stall":
                self._output_stall = rest
                self._record_stall()
            elif message == "recorded":
                self._are_records_kept = True
            elif message == "kept":
                self._lost_bytes = int(rest)
                self._output_saved = self._stopping.out_of_reach or not self._left_something()
                if not self._output_saved:
                    # Started while we looked for leftovers: it is ended, too, and its output is kept.
                    self._finishing = False
                    self._stopping.end(0.0)

    def _record_exit(self) -> None:
        if self._release_data is not None:
            self._release_data()  # who sees the end finds that nobody uses the data any more
        why = self._stopping.why
        if self._lost_bytes:
            why = reasons.of_lost_output(self._lost_bytes)
        elif why is not None and why["code"] in ("C201", "C202", "C206"):
            name = "setup" if self._act == "setup" else "output"
            found = reasons.read_reason(self._folder.path)
            has_gpus = bool(self._launch.slots)
            lost = reasons.of_lost_gpu(self._folder.path, name) if has_gpus else None
            last = reasons.with_last_line(why, self._folder.path, name, has_gpus=has_gpus)
            why = found.get("reason") or lost or last
            self._state.document.update(stopped=found.get("stopped") or self._state.document["stopped"])
        if self._retention_worker is not None or self._upload_worker is not None:
            # What follows may take long, and both agents may be killed in it.
            self._state.update(reason=why, output_saved=True)
        if self._retention_worker is not None:
            self._retain_checkpoints(self._retention_worker)
        if self._upload_worker is not None:
            why = self._upload_results(self._upload_worker, why)
        self._reach_folder()
        self._await_records()
        if self._launch.restarts and not self._is_removed:
            self._begin_next_attempt(self._state, why)
        self._state.document.update(phase="exited", stall="", reason=why)
        while not self._state.write(durable=True):
            if self._follow_mount():
                self._save_again()
                continue
            if self._folder.is_removed():
                break
            select.poll().poll(_RETRY_SECONDS * 1000)
            if self._is_home_given_up():
                return
        self._state.clear()
        self._scribe.record_gpu_use()
        self._scribe.await_end(_SCRIBE_END_SECONDS)

    def _begin_next_attempt(
        self, file: state.StateFile, why: dict[str, Any] | None, *, is_agent_killed: bool = False
    ) -> None:
        """Have the host begin the next attempt, where one follows that is the host's to begin.

        Its number is on the disk first: whoever sees it knows that this attempt is not the last one, and that the next
        one may have been given away. The scribe does it where the guard was killed: it is a copy of it, with the
        secrets in its memory.

        Args:
            file: the learner's state.
            why: why it failed; None where it did not.
            is_agent_killed: whether that is the death of its agent, which nobody had asked to end.
        """
        document = file.document
        try:
            # What its search had asked to finish is not tried again; one that is preempted is asked by its agent.
            is_preempted = document["stopped"] == PREEMPT
            if state.is_stop(self._folder.path) or (state.read_stop(self._folder.path) and not is_preempted):
                return
            found, failure = document, why
            if self._launch.learners > 1:
                if file is not self._state:
                    return  # in the scribe: where an agent was killed the controller compares their ends
                found = self._end_of_attempt(why)
                failure = found.get("reason")
            if not self._launch.is_followed(found, failure, is_agent_killed=is_agent_killed):
                return
            from workbench.learner.guard.next_attempt import following_attempt

            is_preempted = found["stopped"] == PREEMPT
            is_of_platform = not is_preempted and str((failure or {}).get("code")).startswith("S")
            following = following_attempt(
                self._folder.path,
                self._launch,
                self._secrets,
                is_preempted=is_preempted,
                is_of_platform=is_of_platform,
            )
            if following.is_barred:
                sys.stderr.write("a log policy may bar the next attempt: it is not begun from here\n")
                sys.stderr.flush()
                return
            if not following.is_claimed():
                return
            document.update(reason=why, followed_by=following.followed_by)
            if file.write(durable=True) and following.give_to_waiter():
                return
        except (
            Exception
        ) as error:  # whatever it is, this attempt's end is recorded, and the controller restarts it
            sys.stderr.write("the next attempt is not begun from here: %r\n" % error)
            sys.stderr.flush()
        document.pop("followed_by", None)

    def _end_of_attempt(self, why: dict[str, Any] | None) -> dict[str, Any]:
        """Say that nothing but the record of this learner's exit is left; return the state that is the attempt's end.

        It is empty as long as another learner is not so far: the last one begins the next attempt.
        """
        self._state.update(reason=why, complete=True)
        return state.end_of_attempt(self._launch) if self._state.written else {}

    def _save_again(self) -> None:
        """Have a scribe look whether the file system kept all of the output, where the mount has ended."""
        while not self._output_saved and not self._is_home_given_up():
            self._wait()
            self._step()

    def _upload_results(self, worker: UploadWorker, why: dict[str, Any] | None) -> dict[str, Any] | None:
        """Store what the learner leaves behind; return its reason, which says so where that failed."""
        from workbench.learner.stores.upload_process import upload_all

        worker.end()
        for mount in self._mounts:
            mount.end()
        self._scribe.release_gpus()
        found = upload_all(
            self._folder.path,
            self._launch,
            self._secrets,
            self._state,
            self._write_record,
            self._reach_folder,
        )
        return found or why

    def _reach_folder(self) -> str:
        """Return the folder to write into; what is there after the next mount is whole first."""
        self._follow_mount()
        self._save_again()
        return self._folder.held_path

    def _retain_checkpoints(self, worker: RetentionWorker) -> None:
        """Remove the checkpoints that the job does not keep; checksums of the last ones may take long."""
        from workbench.learner.stores.retention import retain_checkpoints

        worker.end()
        self._scribe.release_gpus()
        retain_checkpoints(self._folder.path, self._launch, self._write_record)

    def _write_record(self, record: dict[str, Any]) -> None:
        self._are_records_kept = False
        self._scribe.send("record " + json.dumps(record))

    def _await_records(self) -> None:
        """Wait until the scribe has written the records that it was sent: nobody reads any that follow an exit."""
        if not self._are_records_kept:
            self._scribe.send("records")
        until = system.elapsed_seconds() + _RECORDS_SECONDS
        while not self._are_records_kept and self._scribe.report is not None:
            left = until - system.elapsed_seconds()
            poll = select.poll()
            poll.register(self._scribe.report, select.POLLIN)
            if left <= 0 or any(event & ~select.POLLIN for _, event in poll.poll(left * 1000)):
                return  # it is dead, or a disk takes nothing
            self._read_scribe()


def _seconds(request: dict[str, Any], default: float) -> float:
    """Read what somebody wrote into a request."""
    try:
        return max(0.0, float(request["grace_seconds"]))
    except (KeyError, TypeError, ValueError):
        return default
