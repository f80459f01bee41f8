"""Keeps one learner: starts its command once, stops it, enforces its limits, says how it is and how it ended.

It holds the learner's lock for life and is the process that orphans of the command are given to. Its scribe
keeps the output; each notices the other's death.
"""

from __future__ import annotations

import os
import select
import signal

from workbench.learner import command, process_table, processes, reasons, state, system
from workbench.learner.launch import Launch
from workbench.learner.limits import MemoryWatch
from workbench.learner.masking import Mask
from workbench.learner.requests import Requests
from workbench.learner.scribe_process import Pipes, ScribeProcess

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any

LEFTOVER_SECONDS = 2.0
"""How long processes have to end that the command left behind."""

_RETRY_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 10.0
_LET_GO_SECONDS = 2.0


class Guard:
    """One learner's guard; the lock is held by its maker."""

    def __init__(self, folder: str, launch: Launch, secrets: dict[str, str]) -> None:
        self._folder = folder
        self._launch = launch
        self._environment = self._command_environment(secrets)
        self._state = state.StateFile.begin(folder, launch)
        self._requests = Requests(folder, launch)
        self._pipes = Pipes(["setup", "output"] if launch.setup else ["output"])
        self._scribe = ScribeProcess(folder, launch, Mask(secrets.values()), self._pipes)
        self._scribe_at = 0.0
        self._act = ""
        self._main: command.Held | None = None
        self._held_back = False
        self._began = system.elapsed_seconds()
        self._memory: MemoryWatch | None = None
        self._settle_at: float | None = None
        self._stopped = ""
        self._why: dict[str, Any] | None = None
        self._ending: processes.Ending | None = None
        self._ending_at = 0.0
        self._concluded = False
        self._deciding = False
        self._killed = False
        self._finishing = False
        self._kept = False
        self._out_of_reach = False
        self._lost_bytes = 0

    def run(self) -> None:
        """Keep the learner until it has ended and that is recorded."""
        system.become_subreaper()
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # the wakeup descriptor tells
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._state.write(durable=False)
        self._start_scribe()
        self._obey()
        self._enforce_limits()
        if not self._stopped:
            self._start("setup" if self._launch.setup else "command")
        while self._deciding or not self._kept:
            self._wait()
            self._turn()
        self._record_exit()

    # The loop

    def _wait(self) -> None:
        poll = select.poll()
        for descriptor in (self._woken, self._scribe.report, self._requests.fileno()):
            if descriptor is not None:
                poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, self._timeout()) * 1000)

    def _timeout(self) -> float:
        now = system.elapsed_seconds()
        # A waiting poll does not count sleep: time limits are looked at from time to time.
        limited = self._launch.max_runtime_seconds is not None or self._settle_at is not None
        times = [_LONGEST_WAIT_SECONDS if limited else 3600.0, self._requests.due_seconds()]
        if self._ending is not None:
            times.append(self._ending_at - now)
        if self._memory is not None and not self._concluded:
            times.append(self._memory.look_at - now)
        if not self._stopped and not self._concluded:
            times.extend(at - now for at in (self._settle_at, self._time_limit()) if at is not None)
        if not self._scribe.pid and not self._kept:
            times.append(self._scribe_at - now)
        if self._held_back or self._deciding or not self._state.written:
            times.append(_RETRY_SECONDS)
        return min(times)

    def _turn(self) -> None:
        self._hear_signals()
        self._reap()
        self._hear_scribe()
        self._obey()
        self._enforce_limits()
        self._step_ending()
        if self._held_back:
            self._let_go()
        if self._deciding:
            self._decide()
        if not self._state.written:
            self._state.write(durable=False)
        if not self._scribe.pid and not self._kept and system.elapsed_seconds() >= self._scribe_at:
            self._start_scribe()

    def _hear_signals(self) -> None:
        try:
            heard = os.read(self._woken, 4096)
        except BlockingIOError:
            return
        if (signal.SIGTERM in heard or signal.SIGINT in heard) and not self._concluded:
            self._why = self._why or reasons.reason(
                "the agent was told to end, as by a machine that shuts down", "S202"
            )
            self._end(self._launch.grace_seconds)

    # Starting

    def _command_environment(self, secrets: dict[str, str]) -> dict[str, str]:
        return {
            "FABRIC_REPORT": os.path.join(self._folder, "report.jsonl"),
            "FABRIC_STOP_FILE": os.path.join(self._folder, "stop.json"),
            **{str(name): str(value) for name, value in self._launch.env.items()},
            **secrets,
            processes.MARKER: self._launch.marker,
        }

    def _start(self, act: str) -> None:
        """Start the setup or the command: held first, let go once the state says so."""
        self._act = act
        name = "setup" if act == "setup" else "output"
        script = self._launch.setup if act == "setup" else self._launch.command
        path = self._environment.get("PATH", os.defpath)
        try:
            argv = command.shell_argv(self._launch, script, self._folder, act + ".sh", path)
            self._main = command.hold(argv, self._launch, self._environment, self._pipes.write_ends[name])
        except OSError as error:
            self._not_started("the command could not be started: %s" % (error.strerror or error))
            return
        if argv[0] != self._launch.shell:
            self._scribe.tell(
                "note %s is not here: the %s runs under %s" % (self._launch.shell, act, argv[0])
            )
        phase = "setup" if act == "setup" else "running"
        self._held_back = True
        self._scribe.not_its.add(self._main.go)
        self._state.update(
            phase=phase,
            command_pid=self._main.pid,
            command_ticks=self._main.ticks,
            output_pipe=self._pipes.inode(name),
            started_us=None if act == "setup" else system.now_us(),
        )
        self._pipes.close_write_end(name)
        self._let_go()

    def _let_go(self) -> None:
        if not self._state.written or self._main is None:
            return  # what is not written down is not done
        self._held_back = False
        self._scribe.not_its.discard(self._main.go)
        self._main.let_go()
        self._watch_memory()

    def _watch_memory(self) -> None:
        if self._launch.memory_bytes:
            tree = processes.Tree(os.getpid(), without=(self._scribe.pid,))
            self._memory = MemoryWatch(tree, self._launch.memory_bytes)

    def _not_started(self, text: str) -> None:
        self._why = self._why or reasons.reason(text, "S101")
        self._conclude(None, None)

    # Ending

    def _obey(self) -> None:
        self._requests.look()
        request, decision = self._requests.stop, self._requests.decision
        if (
            request
            and not self._killed
            and (request.get("kind") == "kill" or self._stopped not in ("halt", "kill"))
        ):
            kind = "kill" if request.get("kind") == "kill" else "halt"
            self._killed = kind == "kill"
            grace = (
                0.0 if self._killed else _seconds(request.get("grace_seconds"), self._launch.grace_seconds)
            )
            self._stop(kind, reasons.of_stop(kind, str(request.get("by") or "")), grace)
        if decision and self._settle_at is None:
            wait = 0.0 if decision.get("failed") else self._launch.settle_seconds
            self._settle_at = system.elapsed_seconds() + wait

    def _enforce_limits(self) -> None:
        if self._concluded or self._stopped:
            return
        now = system.elapsed_seconds()
        limit = self._time_limit()
        if self._settle_at is not None and now >= self._settle_at:
            self._stop("settle", reasons.of_settling(self._requests.decision), self._launch.grace_seconds)
        elif limit is not None and now >= limit:
            why = reasons.of_time_limit(self._launch.max_runtime_seconds or 0.0)
            self._stop("max_runtime", why, self._launch.grace_seconds)
        elif self._memory is not None and now >= self._memory.look_at:
            used = self._memory.look()
            if used:
                self._stop("memory", reasons.of_memory(used, self._memory.limit_bytes), 0.0)

    def _time_limit(self) -> float | None:
        seconds = self._launch.max_runtime_seconds
        return None if seconds is None else self._began + seconds

    def _stop(self, kind: str, why: dict[str, Any], grace_seconds: float) -> None:
        """Stop the learner for a reason; of several the first stands, but who kills has the last word."""
        if self._finishing and self._killed:
            self._scribe.tell("give-up")
        if not self._concluded and (not self._stopped or kind == "kill"):
            self._stopped, self._why = kind, why
        self._end(grace_seconds)
        if self._main is None and not self._concluded:
            self._conclude(None, None)

    def _end(self, grace_seconds: float) -> None:
        if self._finishing:
            return
        if self._ending is None:
            self._ending = processes.Ending(self._members, grace_seconds)
            self._ending_at = system.elapsed_seconds()
        else:
            self._ending.hasten(grace_seconds)
            self._ending_at = system.elapsed_seconds()
        self._state.update(phase="stopping", stopped=self._stopped, reason=self._why)

    def _members(self) -> dict[int, process_table.Process]:
        ours = (os.getpid(), self._scribe.pid)
        return processes.members(self._launch.marker, roots=ours[:1], without=ours)

    def _step_ending(self) -> None:
        if self._ending is None or system.elapsed_seconds() < self._ending_at:
            return
        wait_seconds = self._ending.step()
        self._ending_at = system.elapsed_seconds() + (wait_seconds or 0.01)
        if wait_seconds is None:
            self._reap()  # the command itself may be dead and not yet buried
            if self._concluded:
                self._out_of_reach = bool(self._ending.out_of_reach)
                self._finish()

    def _end_straggler(self) -> None:
        """End what was born while we looked for what was left, and keep what it printed."""
        self._finishing = False
        self._ending = processes.Ending(self._members, 0.0)
        self._ending_at = system.elapsed_seconds()

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
            elif self._main is not None and pid == self._main.pid:
                self._main_ended(status)

    def _main_ended(self, status: int) -> None:
        assert self._main is not None
        failure = self._main.failure()
        exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if failure and self._why is None:
            self._why = reasons.reason(failure, "S101")
        if self._act == "setup" and exit_code == 0:
            if self._why is None:
                self._start("command")
                return
            exit_code = None  # the command has none
        if self._why is None:
            setup = self._act == "setup"
            self._why = (
                reasons.of_setup(exit_code, number) if setup else reasons.of_command(exit_code, number)
            )
        self._conclude(exit_code, number)

    def _conclude(self, exit_code: int | None, number: int | None) -> None:
        """Take note of how the command ended, at once: the rest may take long, and we may be killed in it."""
        self._concluded = True
        self._state.update(
            phase="stopping",
            exit_code=exit_code,
            signal=number,
            ended_us=system.now_us(),
            stopped=self._stopped,
            reason=self._why,
        )
        self._deciding = self._stopped in ("", "max_runtime", "memory")
        if self._deciding:
            self._decide()
        if self._ending is None:
            if not self._left_something():
                self._finish()
                return
            self._ending = processes.Ending(self._members, LEFTOVER_SECONDS)
        self._ending_at = system.elapsed_seconds()

    def _left_something(self) -> bool:
        children = process_table.children(os.getpid())
        return children is None or bool(set(children) - {self._scribe.pid})

    def _decide(self) -> None:
        """Say that this learner's end decides the attempt, if it does; tried again while the disk is full."""
        failed = self._why is not None
        document = self._state.document
        try:
            decided = (failed or state.decides(self._launch)) and state.decide(
                self._launch, document["exit_code"], document["signal"], failed=failed
            )
        except OSError:
            return
        self._deciding = False
        self._state.update(decided=decided)

    # The scribe, and the end

    def _start_scribe(self) -> None:
        pause_seconds = self._scribe.start()
        self._scribe_at = system.elapsed_seconds() + pause_seconds
        if self._scribe.pid:
            self._state.update(scribe_pid=self._scribe.pid)
            if self._memory is not None:
                self._watch_memory()  # what is not the learner's has another pid now
            if self._finishing:
                self._scribe.tell("finish")

    def _scribe_ended(self, status: int) -> None:
        self._hear_scribe()
        self._scribe_at = system.elapsed_seconds() + self._scribe.ended(status)
        self._state.update(stall="")  # the next one says it again if it is still so

    def _hear_scribe(self) -> None:
        for line in self._scribe.heard():
            word, _, rest = line.partition(" ")
            if word == "stall":
                self._state.update(stall=rest)
            elif word == "kept":
                self._lost_bytes = int(rest)
                if self._left_something() and not self._out_of_reach:
                    self._end_straggler()
                else:
                    self._kept = True

    def _finish(self) -> None:
        """All processes are gone: let the scribe keep what is left."""
        self._ending = None
        self._finishing = True
        for name in self._pipes.names:
            self._pipes.close_write_end(name)
        self._scribe.tell("finish")
        if self._killed:
            self._scribe.tell("give-up")

    def _record_exit(self) -> None:
        why = self._why
        if self._lost_bytes:
            why = reasons.of_lost_output(self._lost_bytes)
        elif why is not None and why["code"] in ("C201", "C202", "C206"):
            why = reasons.with_last_line(why, self._folder, "setup" if self._act == "setup" else "output")
        self._state.document.update(phase="exited", stall="", reason=why)
        while not self._state.write(durable=True):
            select.poll().poll(_RETRY_SECONDS * 1000)
        self._state.clear()
        self._scribe.let_go(_LET_GO_SECONDS)


def _seconds(value: Any, default: float) -> float:
    """Read what somebody wrote into a request."""
    try:
        return default if value is None else max(0.0, float(value))
    except (TypeError, ValueError):
        return default
