"""The operations of a host, by name: one table that every host calls, directly here or over a pipe.

Names, arguments and answers of operations are JSON, so that an operation is the same over every host.
What carries bytes (run, put, read, connect) is not among them: those are functions of the other modules
this one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from workbench.learner.host import journals, learners, machine
from workbench.learner.host.cpu_affinity import CpuChooser
from workbench.learner.host.machine import inventory, survey
from workbench.learner.host.machine import leases_folder as own_folder
from workbench.learner.host.subscribers import Subscribers
from workbench.learner.host.virtualenv import find_conda
from workbench.learner.journal import state
from workbench.learner.platform import files as host_files
from workbench.learner.platform import leases, run
from workbench.learner.platform.errors import Failure, of_os_error
from workbench.learner.platform.files import write_files
from workbench.learner.platform.processes import end
from workbench.learner.platform.watch import WatcherPool

if TYPE_CHECKING:
    from workbench.learner.host.probe import Meetings
    from workbench.learner.queue.line import HostQueue

Operation = Callable[..., Any]  # its arguments and its answer are JSON

CHANGEABLE = ("priority", "position", "weight", "tries", "begin_us", "after", "limit")
"""What may be changed of a job that was handed over."""

_unpacking = threading.Lock()  # the agent's own unpacking is for one thread at a time
_making = threading.Lock()  # a connection has one part in the queue


class HostOperations:
    """The table of operations of this host, and the state that they keep between calls."""

    def __init__(self) -> None:
        self.watches = WatcherPool()
        self.followers = Subscribers(journals.JournalFollower)
        self._observers = Subscribers(learners.LearnerObserver)
        self._cpus = CpuChooser()
        self._host_queue: "Optional[HostQueue]" = None
        self._meetings: "Optional[Meetings]" = None
        self._changed: Dict[Tuple[str, str], Tuple[Optional[int], Mapping[str, Any]]] = {}
        """By home and job: the facts of an attempt that the home's waiter was sent last."""
        self._handed_over: Dict[Tuple[str, str], Dict[str, Mapping[str, Any]]] = {}
        """By leases folder and home: the jobs that the home's waiter has, as they are to stand there."""
        self._operations: Dict[str, Operation] = {
            "identity": machine.identity,
            "survey": survey,
            "folder": machine.folder,
            "secret_folder": machine.secret_folder,
            "bindable": machine.bindable,
            "begin_meeting": self._begin_meeting,
            "join_meeting": _join_meeting,
            "end_meeting": self._end_meeting,
            "make_folders": host_files.make_folders,
            "touch": host_files.touch,
            "make_pipes": host_files.make_pipes,
            "let_others_in": host_files.open_to_all,
            "let_others_reach": _open_path_to_all,
            "is_foreign": host_files.is_foreign,
            "remove": host_files.remove,
            "existing": host_files.existing,
            "write_files": _write_files,
            "write_environment": _write_environment,
            "runnable": host_files.runnable,
            "find_conda": find_conda,
            "unpack": _unpack,
            "merge_sent": _merge_sent,
            "find_missing_code": _find_missing_code,
            "keep_code": _keep_code,
            "copy_code": _copy_code,
            "expire_code": _expire_code,
            "expire_code_sometimes": _expire_code_sometimes,
            "learner": learners.learner,
            "read_object": learners.read_object,
            "ask_to_stop": _ask_to_stop,
            "observe": self._observe,
            "interrupt": self._observers.interrupt,
            "forget": self._observers.forget,
            "interrupt_follow": self.followers.interrupt,
            "forget_follow": self.followers.forget,
            "list_tree": _list_tree,
            "locate": _locate,
            "children": host_files.children,
            "choose_cpus": self._cpus.choose,
            "watch": self.watches.wait,
            "is_free": lambda path: not leases.is_held(path),
            "markers": learners.markers,
            "end_marked": _end_marked,
            "kill_agents": run.kill_agents,
            "rouse_agents": learners.rouse_agents,
            "unpack_agent": _unpack_agent,
            "inventory": self._inventory,
            "line_up": self._line_up,
            "leave_line": self._leave_line,
            "hand_over": self._hand_over,
            "withdraw": _withdraw,
            "waiting_attempts": _waiting_attempts,
            "queue": self._read_queue,
            "drain": _drain,
            "end_job": _end_job,
            "prospects": _prospects,
            "data_copies": _data_copies,
            "drop_data_copies": _drop_data_copies,
        }

    def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do an operation.

        Raises:
            Failure: it failed, or this agent does not know it (the client is newer).
        """
        found = self._operations.get(operation)
        if found is None:
            raise Failure("failed", f"The agent on this host does not know {operation!r}: it is older.")
        return guarded(found, **arguments)

    def _observe(self, asker: str, **asked: Any) -> Dict[str, Any]:
        run.reap()
        return self._observers.of(asker).observe(**asked)

    def _inventory(
        self, leases_folder: str = "", home: str = "", wanted: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        """Return the machine; for a job that wants GPUs now also its turn in the host's queue."""
        found = inventory(leases_folder)
        if wanted is not None:
            folder = leases_folder or own_folder()
            found["turn"] = self._queue().turn(folder, found["slots"], home, wanted)
        return found

    def _line_up(
        self,
        home: str,
        waiting: List[Dict[str, Any]],
        keep: List[str],
        handed_over: Sequence[Mapping[str, Any]] = (),
        unchanged: Sequence[str] = (),
        leases_folder: str = "",
        sparing: Sequence[str] = (),
        aside: Sequence[str] = (),
    ) -> Dict[str, Any]:
        """Have these jobs of a home wait in the host's queue; return the turns of all that do, and the machine.

        Of jobs that were ``handed_over`` the home's waiter has the entries: it is sent what has changed. An entry that
        this connection still holds, since another one handed its job over, goes with that. Those that are ``unchanged``
        are as this connection sent them before; those that it did not send count as missed.

        Those in ``sparing`` preempt nobody, since another host keeps them from starting; ``has_room`` in the answer
        names those for which enough may be preempted. Those ``aside`` do not wait now, and keep their time for later.
        """
        folder = leases_folder or own_folder()
        before = self._handed_over.get((folder, home), {})
        forgotten = [job for job in unchanged if job not in before]
        there = {job: before[job] for job in unchanged if job in before}
        there.update((str(wanted["job"]), wanted) for wanted in handed_over)
        self._handed_over[folder, home] = there
        missed = [*forgotten, *self._pass_changes(folder, home, list(there.values()))]
        found = self._inventory(leases_folder)
        queue = self._queue()
        room: Set[str] = set()
        turns = queue.line_up(
            folder,
            found["slots"],
            home,
            waiting,
            [*keep, *there, *forgotten],  # what the waiter has not taken yet
            lambda job: job not in sparing,
            aside=aside,
            room=room,
        )
        answer = {"turns": turns, "machine": found, "missed": missed, "heeds_weights": queue.heeds_weights}
        return {**answer, "has_room": sorted(room)}

    def _pass_changes(self, folder: str, home: str, handed_over: Sequence[Mapping[str, Any]]) -> List[str]:
        """Send the home's waiter which jobs have another priority, position, weight or gates, or are to be tried again.

        An entry that this connection holds is passed on with its job's change. Return the jobs whose change did not
        reach the waiter: it is busy, or gone, which the states of its learners show.
        """
        missed: List[str] = []
        if not handed_over:
            return missed
        from workbench.learner.queue.channel import POKE_SECONDS, ask

        queue = self._queue()
        shown = queue.facts(folder, home)
        for wanted in handed_over:
            job, attempt = str(wanted["job"]), wanted.get("attempt")
            facts = _changeable(wanted)
            # One without an entry waits behind many others: the facts that were sent last are those that it has. What
            # was sent of the attempt before says nothing of this one, which the host itself may have given the waiter.
            last_attempt, last_facts = self._changed.get((home, job), (attempt, {}))
            sent = last_facts if last_attempt == attempt else {}
            known = {**sent, **shown.get(job, {})}
            if "weight" in sent:
                known["weight"] = sent["weight"]  # a waiter of an older fabric takes it, and shows none
            entry = queue.descriptor(folder, home, job)
            if entry is None and all(name in known and known[name] == value for name, value in facts.items()):
                continue
            if missed:
                missed.append(job)
                continue
            try:
                change = {"act": "change", "job": job, "attempt": attempt, "facts": facts}
                answer = ask(home, change, POKE_SECONDS, entry)
            except (Failure, OSError):  # a launch by this connection may have let go of the entry just now
                missed.append(job)
                continue
            self._changed[home, job] = (attempt, facts)
            if answer.get("waits", True):  # one of an older fabric does not say it, and finds the file
                queue.let_go(folder, home, job)
            else:
                queue.leave(folder, home, job)
        return missed

    def _hand_over(
        self,
        home: str,
        folder: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        ticket: Mapping[str, Any],
        secrets: Mapping[str, str],
    ) -> None:
        """Hand an attempt that waits over to the home's waiter, which is started where there is none.

        Args:
            home: the home's uuid.
            folder: its folder here, in which the waiter's log lies.
            argv: the agent's command ``waiter`` with that folder.
            env: the waiter's environment.
            ticket: the attempt, as :class:`workbench.learner.waiter.attempts.Ticket` reads it.
            secrets: the values of its secrets by name.

        Raises:
            Failure: ``not_supported`` where no waiter can be; else why this one does not take it.
        """
        from workbench.learner.queue.home_waiter import HomeWaiter

        leases_folder = str(ticket.get("leases_folder") or own_folder())
        waiter = HomeWaiter(home, folder, argv, env, leases_folder)
        waiter.reach()
        queue, job = self._queue(), str(ticket.get("job"))
        entry = queue.descriptor(leases_folder, home, job)
        facts = {"tries": 0, "begin_us": None, "after": [], "limit": None, **_changeable(ticket)}
        self._changed[home, job] = (ticket.get("attempt"), facts)
        waiter.give(ticket, secrets, entry)
        queue.let_go(leases_folder, home, job)

    def _leave_line(self, home: str, job: str, leases_folder: str = "") -> None:
        """Remove a job from the host's queue."""
        self._queue().leave(leases_folder or own_folder(), home, job)

    def _read_queue(self, leases_folder: str = "") -> Dict[str, Any]:
        """Return who waits at the host, in order, and the machine."""
        found = self._inventory(leases_folder)
        return {
            "waiting": self._queue().waiting(leases_folder or own_folder(), found["slots"]),
            "machine": found,
        }

    def _begin_meeting(self, port: int, seconds: float) -> Dict[str, Any]:
        """Have others try at which address they reach a port here."""
        from workbench.learner.host.probe import Meetings

        with _making:
            if self._meetings is None:
                self._meetings = Meetings()
        return self._meetings.begin(port, seconds)

    def _end_meeting(self, token: str) -> None:
        if self._meetings is not None:
            self._meetings.end(token)

    def _queue(self) -> "HostQueue":
        from workbench.learner.queue.line import HostQueue

        with _making:
            if self._host_queue is None:
                self._host_queue = HostQueue()
            return self._host_queue

    def close(self) -> None:
        """Give everything back; calls that wait return."""
        if self._host_queue is not None:
            self._host_queue.close()
        if self._meetings is not None:
            self._meetings.close()
        self.watches.close()
        self.followers.close()
        self._observers.close()


def _drain(act: str, leases_folder: str = "") -> Dict[str, Any]:
    """Say who wants this host to be empty, after it was ordered (``act`` is ``begin``) or taken back (``end``).

    Raises:
        Failure: ``not_allowed`` where this user is no operator; else why it cannot be ordered.
    """
    from workbench.learner.queue import operators

    folder = leases_folder or own_folder()
    if act == "begin":
        operators.drain(folder)
    elif act == "end":
        operators.end_drain(folder)
    return operators.drain_document(folder)


def _end_job(job: str, leases_folder: str = "") -> Dict[str, Any]:
    """Have a job that holds GPUs here end, as an operator of this host; return whose it is, and which attempt.

    Raises:
        Failure: ``not_allowed`` where this user is not an operator; ``missing`` where no such job holds a GPU.
    """
    from workbench.learner.queue import operators

    gpus = [str(slot["uuid"]) for slot in inventory(leases_folder)["slots"]]
    return operators.end_job(leases_folder or own_folder(), gpus, job)


def _join_meeting(addresses: Sequence[str], port: int, token: str, seconds: float) -> List[str]:
    from workbench.learner.host.probe import join

    return join(addresses, port, token, seconds)


def _changeable(facts: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: facts[name] for name in CHANGEABLE if name in facts}


def guarded(function: Operation, *arguments: Any, **named: Any) -> Any:
    """Call a function; what the operating system refuses becomes a :class:`Failure`."""
    try:
        return function(*arguments, **named)
    except OSError as error:
        raise of_os_error(error) from error


def _ask_to_stop(folder: str, request: Dict[str, Any]) -> None:
    state.ask_to_stop(folder, request)
    found = state.read(folder)
    if found.get("waiting") and found.get("home"):
        from workbench.learner.queue.channel import poke

        poke(str(found["home"]))
        if learners.end_unkept(folder, request):
            _forget_kept(folder, found)


def _forget_kept(folder: str, status: Mapping[str, Any]) -> None:
    """Remove what is kept of an attempt that waited and has ended without a waiter; it may hold secrets."""
    from workbench.learner.queue.home_waiter import kept_file

    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(folder))))
    with contextlib.suppress(OSError):
        os.unlink(kept_file(home, str(status.get("job")), int(status.get("attempt") or 0)))


def _withdraw(home: str, job: str, attempt: int) -> None:
    """Have the waiter of a home start an attempt no more, if it waits there: it ends as one that was killed."""
    from workbench.learner.queue import channel

    with contextlib.suppress(Failure):  # there is no waiter, so it starts nothing
        channel.ask(home, {"act": "withdraw", "job": job, "attempt": attempt}, channel.REACH_SECONDS)


def _waiting_attempts(home: str) -> List[Dict[str, Any]]:
    """Return the attempts of a home that wait here for their turn, each with its job; none where there is no waiter."""
    from workbench.learner.queue import channel

    try:
        waiting: List[Dict[str, Any]] = channel.ask(home, {"act": "list"}, channel.POKE_SECONDS)["waiting"]
    except Failure:
        return []
    return waiting


def _write_files(files: Mapping[str, str], mode: int = 0o600) -> None:
    write_files(files, mode)


def _write_environment(path: str, document: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    from workbench.learner.host.packages import write_environment

    write_environment(path, document, variables)


def _unpack(archive: str, folder: str) -> bool:
    from workbench.learner.host.unpack import unpack

    return unpack(archive, folder)


def _merge_sent(
    sent: str,
    into: Mapping[str, str],
    modified_ns: Mapping[str, int],
    deleted: Optional[Mapping[str, Sequence[str]]] = None,
) -> None:
    from workbench.learner.host.merge import merge_sent, remove_deleted

    remove_deleted(into, deleted or {})
    merge_sent(sent, into, modified_ns)


def _find_missing_code(store: str, digests: List[str]) -> List[int]:
    from workbench.learner.host.code_store import find_missing

    return find_missing(store, digests)


def _keep_code(store: str, code_hash: str, entries: List[List[Any]], part: str) -> None:
    from workbench.learner.host.code_store import keep

    keep(store, code_hash, entries, part)


def _copy_code(store: str, code_hash: str, folders: List[str]) -> bool:
    from workbench.learner.host.code_store import copy_code

    return copy_code(store, code_hash, folders)


def _expire_code(store: str, jobs: str, older_than_seconds: float, dry_run: bool) -> Dict[str, int]:
    from workbench.learner.host.code_expiry import expire

    return expire(store, jobs, older_than_seconds, dry_run)


def _expire_code_sometimes(store: str, jobs: str, older_than_seconds: float) -> None:
    from workbench.learner.host.code_expiry import expire_sometimes

    expire_sometimes(store, jobs, older_than_seconds)


def _list_tree(folder: str, within: str = "") -> Dict[str, List[Any]]:
    from workbench.learner.host.trees import list_tree

    return list_tree(folder, within)


def _locate(folder: str, path: str, within: str = "") -> List[Any]:
    from workbench.learner.host.trees import locate

    return locate(folder, path, within)


def _open_path_to_all(path: str, within: str) -> None:
    from workbench.learner.host.trees import open_path_to_all

    open_path_to_all(path, within)


def _end_marked(marker: str, grace_seconds: float) -> List[int]:
    return end(marker, grace_seconds)


def _unpack_agent(archive: str) -> str:
    from workbench.learner.boot.unpacked_copy import unpack

    with _unpacking:
        return unpack(archive)


def _prospects(engine: str = "") -> Dict[str, Any]:
    from workbench.learner.host.probe import prospects

    return prospects(engine)


def _data_copies(cache: str) -> List[Dict[str, Any]]:
    from workbench.learner.stores.cache import entries

    return entries(cache)


def _drop_data_copies(cache: str, keep_bytes: int) -> List[str]:
    from workbench.learner.stores.cache import evict

    return evict(cache, until=lambda used: used <= keep_bytes)
