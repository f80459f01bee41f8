"""The learners of the simulated host: each is an agent that does with its locks, state and GPUs what a guard does."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workbench.learner.journal import reasons, state
from workbench.learner.journal.launch_document import PREEMPT, LaunchDocument
from workbench.learner.platform import system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders, write_files
from workbench.learner.queue.entries import attempt_name
from workbench.learner.queue.home_waiter import HomeWaiter
from workbench.learner.queue.preemption import PreemptionWatch

if TYPE_CHECKING:
    from tests.simulation.host_queue.world import HostWorld

LOOK_SECONDS: Final = 1.0
"""How often a learner looks whether it is to end."""

FULL_SECONDS: Final = 1.0


class SimulatedAgent:
    """One learner's agent, from its start to the end of its process."""

    def __init__(self, world: HostWorld, folder: str, lock: int | None) -> None:
        self._world = world
        self._folder = folder
        self._lock = lock

    def run(self) -> None:
        """Keep the learner until it has ended and that is recorded."""
        lock = self._take_lock()
        if lock is None:
            return
        found = state.read(self._folder)
        was_started = bool(found) and found.get("phase") != "starting"
        if found.get("phase") == "exited":
            return
        launch = LaunchDocument(state.read_object(os.path.join(self._folder, "launch.json")))
        if was_started:
            self._record(state.StateFile(self._folder, found), None, "", agent_killed=True)
            return
        if launch.secrets_file:
            launch.secret_values()
            os.unlink(launch.secrets_file)
        file = state.StateFile.begin(self._folder, launch)
        if state.is_stop(self._folder):
            self._record(file, None, str(state.read_stop(self._folder).get("kind")))
            return
        while not file.update(phase="running", started_us=system.now_us()):
            self._world.kernel.sleep(FULL_SECONDS)
        checks, key = self._world.checks, (launch.job, launch.attempt, launch.learner)
        process = self._world.kernel.running()
        assert process is not None
        checks.begins(process, *key, tuple(launch.slots))
        stopped = self._live(launch)
        checks.ends(process)
        followed = self._follow(launch) if stopped == PREEMPT else {}
        file.document.update(followed)
        self._record(file, None if stopped else 0, stopped)

    def _take_lock(self) -> int | None:
        if self._lock is not None and state.is_lock_of(self._folder, self._lock):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return None
            return self._lock
        return state.take_lock(self._folder)

    def _live(self, launch: LaunchDocument) -> str:
        """Run for as long as it was drawn; return why it was stopped, empty where it has ended by itself."""
        kernel, job = self._world.kernel, self._world.jobs[launch.job]
        began = system.elapsed_seconds()
        watch = None
        if launch.preemption is not None:
            watch = PreemptionWatch(launch.preemption, attempt_name(launch.job, launch.attempt), began)
        ends_at = began + job.runs_seconds
        while (left := ends_at - system.elapsed_seconds()) > 0:
            kernel.sleep(min(LOOK_SECONDS, left))
            request = state.read_stop(self._folder)
            if request and request.get("kind") != state.FINISH:
                return str(request.get("kind"))
            if watch is not None and system.elapsed_seconds() >= watch.check_at:
                looked_at = system.elapsed_seconds()
                why = watch.check()
                if why:
                    now = system.elapsed_seconds()
                    self._world.checks.preempted(launch.job, launch.attempt, why, looked_at, now - began)
                    kernel.sleep(self._world.chance.between("end of a preempted one", 0.0, 3.0))
                    return PREEMPT
        return ""

    def _record(
        self, file: state.StateFile, exit_code: int | None, stopped: str, *, agent_killed: bool = False
    ) -> None:
        """Record the end, once the disk takes it."""
        document = file.document
        document.pop("waiting", None)
        document.update(phase="exited", exit_code=exit_code, stopped=stopped, ended_us=system.now_us())
        if agent_killed:
            document["reason"] = reasons.reason("its agent was killed", "S202")
        while not file.write(durable=True):
            self._world.kernel.sleep(FULL_SECONDS)
        file.clear()

    def _follow(self, launch: LaunchDocument) -> Mapping[str, Any]:
        """Give the next attempt to the waiter, as the guard of a lone learner does; return what its state is to say."""
        restarts = launch.restarts
        if restarts is None:
            return {}
        number = launch.attempt + 1
        ticket: dict[str, Any] = dict(restarts["ticket"])
        home = self._world.homes_by_uuid[launch.home]
        folder = home.learner_folder(launch.job, number, launch.learner)
        waiter = HomeWaiter(
            launch.home,
            home.folder,
            self._world.waiter_argv(home.folder),
            {},
            str(ticket["leases_folder"]),
        )
        document = {
            **launch.document,
            "attempt": number,
            "attempt_dir": os.path.dirname(folder),
            "guard": self._world.guard_argv(folder),
            "slots": [],
            "secrets_file": None,
            "env": {},
        }
        try:
            waiter.reach()
            make_folders([folder])
            lock = state.take_lock(folder)
            if lock is None:
                return {}
            try:
                if os.path.exists(os.path.join(folder, "state.json")):
                    return {}
                write_files({os.path.join(folder, "launch.json"): json.dumps(document) + "\n"})
            finally:
                os.close(lock)
            if state.is_stop(self._folder):
                return {}
            waiter.give(
                {
                    **ticket,
                    "attempt": number,
                    "lease": {**ticket["lease"], "attempt": number},
                    "begin_us": system.now_us(),
                    "longest_seconds": 0.0,
                    "environment": {},
                    "learners": [
                        {
                            "learner": launch.learner,
                            "folder": folder,
                            "secrets_stem_name": home.secrets_stem(launch.job, number, launch.learner),
                        }
                    ],
                },
                home.secrets,
            )
        except Failure as error:
            if error.kind != "unanswered":
                return {}
        except OSError:
            return {}
        else:
            self._world.checks.waits(home, launch.job, number)
        if state.is_stop(self._folder):
            state.ask_to_stop(folder, state.read_stop(self._folder))
        return {"followed_by": {"attempt": number, "begin_us": system.now_us(), "delay_seconds": 0.0}}
