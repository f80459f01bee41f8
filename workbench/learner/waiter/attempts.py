"""What waits: attempts that were handed over, with the locks and states of their learners and their secrets."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from workbench.learner.host.learners import LOCK
from workbench.learner.journal import reasons, state
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.platform import leases, system
from workbench.learner.platform.errors import Failure, of_os_error
from workbench.learner.queue.allocation import GROUP, LABELS, NAME
from workbench.learner.queue.entries import DEFAULT_WEIGHT
from workbench.learner.queue.home_waiter import LAPTOP
from workbench.learner.waiter.gates import AwaitedAttempt, GateReader, OpenGates, TicketGates, remaining_us

Key = Tuple[str, int]
"""A job's id and the number of its attempt."""


AGENT_LOG = "guard.log"
"""In a learner's folder: what its agents say themselves."""


class Ticket(NamedTuple):
    """What is known of an attempt that waits, as it was handed over; see ``docs/design.md``."""

    home: str
    job: str
    attempt: int
    leases_folder: str
    each: int
    """How many GPUs each learner gets; 0 for an attempt that is in no host's queue and leases none."""
    gpu_type: str
    priority: int
    position: float
    tries: int
    max_runtime_seconds: Optional[float]
    cpus: float
    """How many CPUs are reserved for each learner; 0 for none."""
    holder: Mapping[str, Any]
    """Who holds its leases, for the text in them."""
    environment: Mapping[str, str]
    """That of its agents, without what each has of its own."""
    secrets_suffix: str
    shell_secrets_suffix: str
    """The suffix of a second file of secrets, as shell text that a container's user reads; empty for none."""
    needs_port: bool
    """Whether its learners share the host's ports, so that ``MASTER_PORT`` is chosen for them."""
    binds_cpus: bool
    """Whether the CPUs that are reserved are chosen, and the command is bound to them."""
    learners: Mapping[int, Tuple[str, str]]
    """By number: the folder, and the name of the file of secrets without its suffix."""
    gates: TicketGates = TicketGates()
    weight: float = DEFAULT_WEIGHT
    laptop: str = ""
    """The machine that gave it to the host; empty for this one, or an older fabric."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Ticket:
        """Return the ticket that a document says.

        Raises:
            Failure: it says none.
        """
        try:
            runtime = document.get("max_runtime_seconds")
            ticket = cls(
                home=str(document["home"]),
                job=str(document["job"]),
                attempt=int(document["attempt"]),
                leases_folder=str(document["leases_folder"]),
                each=int(document["each"]),
                gpu_type=str(document.get("gpu_type") or ""),
                priority=int(document["priority"]),
                position=float(document.get("position") or 0.0),
                tries=int(document.get("tries") or 0),
                max_runtime_seconds=None if runtime is None else float(runtime),
                cpus=float(document.get("cpus") or 0.0),
                holder=dict(document["lease"]),
                environment={str(name): str(value) for name, value in document["environment"].items()},
                secrets_suffix=str(document.get("secrets_suffix") or ""),
                shell_secrets_suffix=str(document.get("shell_secrets_suffix") or ""),
                needs_port=bool(document.get("needs_port", True)),
                binds_cpus=bool(document.get("binds_cpus", True)),
                learners={
                    int(one["learner"]): (str(one["folder"]), str(one["secrets_stem_name"]))
                    for one in document["learners"]
                },
                gates=TicketGates.parse(document),
                weight=float(document.get("weight") or DEFAULT_WEIGHT),
                laptop=str(document.get(LAPTOP) or ""),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Failure(
                "bad_input", f"What was handed over is not understood as a ticket ({type(error).__name__})."
            ) from None
        suffixes = (ticket.secrets_suffix, ticket.shell_secrets_suffix)
        names = [*suffixes, *(name for _, name in ticket.learners.values())]
        folders = [ticket.leases_folder, *(folder for folder, _ in ticket.learners.values())]
        folders += [folder for one in ticket.gates.awaited() for folder in one.folders]
        if ticket.each < 0 or not ticket.learners or any(os.sep in name for name in names):
            raise Failure("bad_input", f"The ticket of {ticket.job} says nonsense.")
        if not all(map(os.path.isabs, folders)):
            raise Failure("bad_input", f"The ticket of {ticket.job} names a folder that is none.")
        return ticket

    def changed(self, facts: Mapping[str, Any]) -> Ticket:
        """Return it with another priority, position, weight or number of tries, or behind other gates.

        Raises:
            Failure: those are none.
        """
        try:
            return self._replace(
                priority=int(facts.get("priority", self.priority)),
                position=float(facts.get("position", self.position)),
                weight=float(facts.get("weight", self.weight)),
                tries=int(facts.get("tries", self.tries)),
                gates=self.gates.changed(facts),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Failure(
                "bad_input", f"A fact of {self.job} is to become something that is not a number or a gate."
            ) from None


class _End(NamedTuple):
    """How a learner ends that never began."""

    why: Dict[str, Any]
    stopped: str
    has_failed: bool = False
    """Whether that decides the attempt."""


class WaitingLearner:
    """One learner that has not begun. Its lock is held until its agent has begun, or its end is recorded."""

    def __init__(
        self, number: int, folder: str, secrets_name: str, lock: int, launch: LaunchDocument, laptop: str
    ) -> None:
        self.number = number
        self.folder = folder
        self.secrets_name = secrets_name
        """The name of its file of secrets, in whichever folder there is for secrets when it begins."""
        self.lock = lock
        self.launch = launch
        """Who it is, and no more: what it is to do is read when it begins."""
        self.agent = 0
        """The process that is to keep it from now on, once it was started."""
        self._state = state.StateFile.begin(folder, launch)
        self._state.document.update({"waiting": True, LAPTOP: laptop})

    @property
    def is_removed(self) -> bool:
        """Whether its folder was removed: nobody wants anything of it any more."""
        return state.is_removed(self.folder, self.lock)

    def begin(self) -> bool:
        """Write its first state; return whether that worked."""
        return self._state.write(durable=False)

    def name_laptop(self, laptop: str) -> None:
        """Write into its state which machine gives it to the host once more, should this process end."""
        self._state.update(**{LAPTOP: laptop})

    def show(self, stall: str) -> None:
        """Write into its state why it waits for something else than its turn; empty where it does not."""
        self._state.update(stall=stall)

    def has_begun(self) -> bool:
        """Say whether its agent has: the state is no more the one that we wrote."""
        found = state.read(self.folder)
        return not found.get("waiting") or found.get("pid") != os.getpid()

    def renew_lock(self) -> bool:
        """Hold the lock that lies in the folder now; return False where somebody else does.

        Another one does where the mount that the folder lies on has ended and came back, or where somebody removed it.
        """
        if state.is_lock_of(self.folder, self.lock):
            return True
        lock = state.take_lock(self.folder)
        if lock is None:
            return False
        self.release()
        self.lock = lock
        return True

    def end(self, end: _End) -> bool:
        """Record its end, as a guard does that is stopped before its command began; return whether that worked."""
        document = self._state.document
        if document["phase"] != "exited":
            self._state.end_unbegun(end.why, end.stopped)
        try:
            if end.has_failed and not document["decided"]:
                document["decided"] = state.decide(self.launch, None, None, failed=True)
        except OSError:
            return False
        if not self._state.write(durable=True):
            return False
        self._state.clear()
        self.release()
        return True

    def forget(self) -> None:
        """Leave nothing of it: it was not handed over after all."""
        self._state.clear()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self.release()

    def release(self) -> None:
        """Let go of its lock: it is its agent's, or nobody's."""
        with contextlib.suppress(OSError):  # its mount has ended
            os.close(self.lock)

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, "state.json")


class WaitingAttempt:
    """An attempt of a job that waits for its GPUs: its ticket, its secrets, and its learners."""

    def __init__(self, ticket: Ticket, secrets: Mapping[str, str], number: int) -> None:
        self.ticket = ticket
        self.secrets = secrets
        self.number = number
        """Orders attempts by when they were handed over."""
        self.document: Optional[Mapping[str, Any]] = None
        """The ticket as it is kept for the waiter after this one; None where none is kept."""
        self.learners: List[WaitingLearner] = []
        self._ends: Dict[int, _End] = {}
        self._is_broken = False
        self.lacks_cpus = False
        """Whether it had its turn and too few CPUs were left."""
        self.closed_by: List[AwaitedAttempt] = []
        """The jobs that hold it back, as they were seen last."""
        self.begins_in_us = 0
        """For how long the time of day holds it back."""
        self.is_over_limit = False
        """Whether as many of its sweep are under way, or come before it, as may be at once."""
        self._gates = OpenGates()
        self._waits_since = time.monotonic()

    @property
    def key(self) -> Key:
        """What it is known by."""
        return (self.ticket.job, self.ticket.attempt)

    @property
    def gpus(self) -> int:
        """How many GPUs it needs for all learners together."""
        return self.ticket.each * len(self.learners)

    @property
    def order(self) -> Tuple[int, float, int]:
        """Its order among the attempts of its home."""
        return (-self.ticket.priority, self.ticket.position, self.number)

    @property
    def entry(self) -> Dict[str, Any]:
        """Its entry in the host's queue."""
        names = ("job", "each", "priority", "position", "weight", "max_runtime_seconds", "tries")
        marks = {name: self.ticket.holder.get(name, "") for name in (LABELS, GROUP, NAME)}
        return {"gpus": self.gpus, **marks, **{name: getattr(self.ticket, name) for name in names}}

    def read_gates(self, reader: GateReader, now_us: int) -> None:
        """See what holds it back before it waits for GPUs and CPUs."""
        self.closed_by = self._gates.closed_by(self.ticket.gates, reader)
        self.begins_in_us = remaining_us(self.ticket.gates, now_us, time.monotonic() - self._waits_since)

    @property
    def is_behind(self) -> bool:
        """Whether a time of day or a job before it held it back when the gates were read last."""
        return bool(self.closed_by or self.begins_in_us)

    @property
    def is_held_back(self) -> bool:
        """Whether a gate was closed when they were read last."""
        return self.is_behind or self.is_over_limit

    @property
    def as_awaited(self) -> AwaitedAttempt:
        """The attempt as those see it whose limit it counts for."""
        folders = tuple(folder for folder, _ in self.ticket.learners.values())
        return AwaitedAttempt(self.ticket.job, self.ticket.attempt, True, 0, 0, folders)

    @property
    def counts(self) -> bool:
        """Whether it waits in the queue: it does not while its end is to be recorded, or once it lost a learner."""
        return bool(self.learners) and not self._ends and not self._is_broken

    @property
    def is_away(self) -> bool:
        """Whether the folder of a learner cannot be reached now: its mount has ended and may come back."""
        return any(state.is_away(one.folder) for one in self.learners)

    def hold(self) -> None:
        """Hold all learners of the ticket that have not begun and show that they wait; all of them or none.

        Raises:
            Failure: the folder of one of them cannot be used.
        """
        held = {one.number for one in self.learners}
        new: List[WaitingLearner] = []
        try:
            for number, (folder, name) in sorted(self.ticket.learners.items()):
                if number not in held:
                    new += self._held(number, folder, name)
        except (OSError, Failure) as error:
            for one in new:
                one.forget()
            raise error if isinstance(error, Failure) else of_os_error(error) from error
        self.learners = sorted([*self.learners, *new], key=lambda one: one.number)
        for one in self.learners:
            one.name_laptop(self.ticket.laptop)

    def _held(self, number: int, folder: str, secrets_name: str) -> List[WaitingLearner]:
        """Return a learner that is held from now on; nothing where an agent keeps it or has kept it."""
        if not os.path.exists(os.path.join(folder, "launch.json")):
            raise Failure("missing", f"{folder} has no launch.json.")
        is_kept = leases.is_held(os.path.join(folder, LOCK))  # taking it would be tried for a while
        lock = None if is_kept else state.take_lock(folder)
        if lock is None:
            return []
        found = state.read(folder)
        has_begun = found.get("phase") != "starting" and os.path.exists(os.path.join(folder, "state.json"))
        if has_begun or (found.get("pid") != os.getpid() and state.is_kept(found)):
            os.close(lock)
            return []
        launch = self._launch(number, folder)
        learner = WaitingLearner(number, folder, secrets_name, lock, launch, self.ticket.laptop)
        if not learner.begin():
            learner.forget()
            raise Failure("cannot_write", f"{folder} takes no state: the disk is full, or cannot be written.")
        return [learner]

    def _launch(self, number: int, folder: str) -> LaunchDocument:
        return LaunchDocument(
            {
                "home": self.ticket.home,
                "job": self.ticket.job,
                "attempt": self.ticket.attempt,
                "learner": number,
                "learners": len(self.ticket.learners),
                "attempt_dir": os.path.dirname(folder),
            }
        )

    def obey(self) -> None:
        """Record its end where somebody asked for that, and let go of learners whose folders were removed."""
        self._drop_removed()
        for one in self.learners:
            request = state.read_stop(one.folder)
            if request and request.get("kind") != "finish":
                kind = "kill" if request.get("kind") == "kill" else "halt"
                self._end_all(_End(reasons.of_stop(kind, str(request.get("by") or "")), kind))
                break
        self._record_ends()

    def withdraw(self) -> None:
        """Record its end as one that was killed."""
        self._end_all(_End(reasons.of_stop("kill", ""), "kill"))
        self._record_ends()

    def fail(self, learner: WaitingLearner, text: str) -> None:
        """Record that a learner cannot be started, and that the others end with it; an agent sees that by itself."""
        learner.agent = 0
        others = reasons.of_settling({"learner": learner.number, "failed": True})
        self._ends.setdefault(learner.number, _End(reasons.reason(text, "S101"), "", has_failed=True))
        self._end_all(_End(others, "settle"))
        self._record_ends()

    def _end_all(self, end: _End) -> None:
        for one in self.learners:
            if not one.agent:
                self._ends.setdefault(one.number, end)

    def _record_ends(self) -> None:
        """Record the ends that are due; those that a disk does not take stay due."""
        for one in list(self.learners):
            end = self._ends.get(one.number)
            if end is not None and one.end(end):
                self.learners.remove(one)

    def follow_agents(self) -> None:
        """Let go of the learners whose agents have begun, and record the end of those whose agents ended before."""
        for one in list(self.learners):
            if one.agent and (one.has_begun() or one.is_removed):
                one.release()
                self.learners.remove(one)
            elif one.agent and not system.start_ticks(one.agent) and not one.has_begun():
                lines = system.read_text(os.path.join(one.folder, AGENT_LOG))[-4096:].strip().splitlines()
                self.fail(one, "its agent could not be started" + (": " + lines[-1] if lines else ""))
        self._record_ends()

    def keep_locks(self) -> bool:
        """Hold the locks that lie in the learners' folders now; return whether none is somebody else's.

        A learner whose lock somebody else has taken meanwhile has an agent, and is that one's.
        """
        lost = [one for one in self.learners if not one.renew_lock()]
        for one in lost:
            one.release()
            self.learners.remove(one)
        return not lost

    def _drop_removed(self) -> None:
        for one in list(self.learners):
            if one.is_removed:
                one.release()
                self.learners.remove(one)
                self._is_broken = True  # the others are not started without it

    def show(self, stall: str) -> None:
        """Show why it waits for something else than its turn; empty where it does not."""
        for one in self.learners:
            one.show(stall)
