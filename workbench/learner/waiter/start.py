"""The start of an attempt whose turn has come: it gets GPUs and a port, and its agents, which inherit them."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from workbench.learner.host import machine
from workbench.learner.host.agent_forks import ForkServer, own_program
from workbench.learner.host.cpu_affinity import CpuChooser
from workbench.learner.host.learners import markers, read_object
from workbench.learner.journal.state import LOCK_VARIABLE
from workbench.learner.platform import leases, run, system
from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import write_files
from workbench.learner.queue import allocation
from workbench.learner.queue.allocation import PRIORITY
from workbench.learner.queue.home_waiter import WAITER_LOG
from workbench.learner.waiter.attempts import AGENT_LOG, WaitingAttempt, WaitingLearner

_NEEDS_NONE = ("storing", "exited")
"""The phases of learners whose commands are over."""

_NOT_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What starting a process meets where the machine has no room for one: that passes."""


class Unstartable(Exception):
    """A learner that cannot be started, now or later: why."""

    def __init__(self, learner: WaitingLearner, text: str) -> None:
        super().__init__(text)
        self.learner = learner
        self.text = text


class AttemptStart:
    """Starts attempts of one home.

    Args:
        home: the home's uuid.
        folder: the home's folder at this host.
    """

    def __init__(self, home: str, folder: str) -> None:
        self._home = home
        self._folder = folder
        self._cpus = CpuChooser()
        self._fork_server = ForkServer(os.path.join(folder, WAITER_LOG), own_program())
        self.holders: List[str] = []
        """The folders of the learners that had reserved CPUs when that was looked at last."""
        self._sweeps: Dict[str, str] = {}
        """By folder: to which sweep a learner that lives belongs; empty for none."""

    def warm(self) -> None:
        """Make ready for the start of several attempts, one soon after the other."""
        self._fork_server.warm(os.environ)

    def close(self) -> None:
        """Give all back that starts need; agents go on."""
        self._fork_server.close()

    def fits(self, attempt: WaitingAttempt) -> bool:
        """Say whether what this home's learners have reserved leaves the CPUs that an attempt asks for."""
        if not attempt.ticket.cpus:
            return True
        needed = attempt.ticket.cpus * len(attempt.learners)
        reserved = self._reserved()
        if not attempt.ticket.each:
            # Some of its learners may run: without GPUs the others wait for nothing that those hold.
            reserved.pop(attempt.ticket.job, None)
        return allocation.fit_cpus(reserved.values(), needed, len(machine.processors()))

    def start(self, attempt: WaitingAttempt, uuids: Sequence[str]) -> bool:
        """Start all learners on these GPUs, if they get any, or none; return False where somebody else was faster.

        Raises:
            Failure: it cannot be started now.
            OSError: the same.
            Unstartable: nor later. Learners that have an agent were started.
        """
        ticket = attempt.ticket
        if not attempt.keep_locks():
            return False
        documents = {one.number: _document(one) for one in attempt.learners}
        with contextlib.ExitStack() as held:
            holder = _as_placed(ticket.holder, ticket.priority)
            text = allocation.lease_text(holder, 0)
            lease = leases.take(uuids, ticket.leases_folder, text) if uuids else None
            if lease is not None:
                held.callback(lease.release)
            elif uuids:
                return False
            port, port_lease = self._port(attempt, text) if ticket.needs_port else (0, None)
            if port_lease is not None:
                held.callback(port_lease.release)
            secrets = _secret_files(attempt)
            held.callback(_remove_unused, attempt, secrets)
            shares = allocation.shares(uuids, list(documents), ticket.each)
            for one in attempt.learners:
                documents[one.number].update(
                    slots=list(shares[one.number]), secrets_file=next(iter(secrets.get(one.number, ())), None)
                )
                variables = allocation.gpu_variables(shares[one.number])
                if ticket.needs_port:
                    variables["MASTER_PORT"] = str(port)
                documents[one.number]["env"].update(variables)
                if ticket.cpus:
                    documents[one.number][allocation.RESERVED_CPUS] = ticket.cpus
                if isinstance(documents[one.number].get("restarts"), dict):
                    # The next attempt waits where this one stood at last.
                    limit = ticket.gates.limit
                    documents[one.number]["restarts"]["ticket"].update(
                        priority=ticket.priority,
                        position=ticket.position,
                        weight=ticket.weight,
                        lease=holder,
                        limit=None if limit is None else limit.to_json(),
                    )
                preempted = documents[one.number].get("preemption")
                if isinstance(preempted, dict):
                    documents[one.number]["preemption"] = _as_placed(preempted, ticket.priority)
                if ticket.gates.limit is not None:
                    documents[one.number][allocation.SWEEP] = ticket.gates.limit.sweep
                if ticket.cpus and ticket.binds_cpus:
                    chosen = self._cpus.choose(max(1, math.ceil(ticket.cpus)), one.launch.marker)
                    documents[one.number]["cpus"] = chosen
            # The documents first: who finds them after a death of ours knows which secrets to remove.
            write_files(
                {_launch_path(one): json.dumps(documents[one.number]) + "\n" for one in attempt.learners}
            )
            _write_secrets(attempt, secrets)
            for one in attempt.learners:
                own: List[leases.Lease] = []
                if lease is not None:
                    own.append(lease.part(shares[one.number]))
                    held.callback(own[0].release)
                if port_lease is not None and one.number == 1:
                    own.append(port_lease)
                self._spawn(attempt, one, documents[one.number], own)
        return True

    def _spawn(
        self,
        attempt: WaitingAttempt,
        learner: WaitingLearner,
        document: Mapping[str, Any],
        held: Sequence[leases.Lease],
    ) -> None:
        environment = {
            **attempt.ticket.environment,
            "FABRIC_GUARD": learner.launch.marker,
            LOCK_VARIABLE: str(learner.lock),
        }
        key = document["env"].get("FABRIC_ENVIRONMENT")
        if key:
            environment["FABRIC_ENVIRONMENT"] = key
        descriptors = [learner.lock, *(number for one in held for number in one.descriptors())]
        output = os.path.join(learner.folder, AGENT_LOG)
        try:
            learner.agent = self._fork_server.start(
                document["guard"], environment, output, descriptors
            ) or run.spawn(document["guard"], environment, "/", output, descriptors)
        except (Failure, OSError, ValueError) as error:
            # Once one has an agent, the others must have theirs, or the attempt fails.
            if _passes(error) and not any(one.agent for one in attempt.learners):
                raise
            text = error.message if isinstance(error, Failure) else f"its agent cannot be started: {error}"
            raise Unstartable(learner, text) from error
        with contextlib.suppress(OSError):  # on a full disk they name no process
            for one in held:
                holder = _as_placed(attempt.ticket.holder, attempt.ticket.priority)
                one.write(allocation.lease_text(holder, learner.agent))

    def _port(self, attempt: WaitingAttempt, text: str) -> Tuple[int, Optional[leases.Lease]]:
        """Return a free port, with its lease unless the folder of leases cannot be used; that of learners that run.

        Raises:
            Failure: no port that was tried is free.
        """
        for number, (folder, _) in attempt.ticket.learners.items():
            if all(one.number != number for one in attempt.learners):
                begun = read_object(os.path.join(folder, "launch.json")) or {}
                named = str((begun.get("env") or {}).get("MASTER_PORT"))
                if named.isdigit():
                    return int(named), None
        for port in machine.bindable(allocation.candidate_ports(text)):
            try:
                lease = leases.take([allocation.port_lease(port)], attempt.ticket.leases_folder, text)
            except Failure:
                return port, None
            if lease is not None:
                return port, lease
        raise Failure(
            "try_again",
            f"No port for MASTER_PORT is free among {allocation.PORT_TRIES} from {allocation.PORTS.start} on.",
        )

    def _reserved(self) -> Dict[str, float]:
        """Return how many CPUs each job of this home that runs here has reserved.

        Learners whose commands are over need none: their agents store results, or end.
        """
        found: Dict[str, float] = {}
        self.holders = []
        for job, _, path in self._living():
            if _phase(path) in _NEEDS_NONE:
                continue
            number = _reserved_of(read_object(_document_path(path)) or {})
            if number:
                found[job] = found.get(job, 0.0) + number
                self.holders.append(path)
        return found

    def under_way(self, sweeps: Set[str]) -> Dict[str, Set[Tuple[str, int]]]:
        """Return the attempts of some sweeps of this home that have a living agent, whoever started them."""
        found: Dict[str, Set[Tuple[str, int]]] = {}
        known, self._sweeps = self._sweeps, {}
        for job, attempt, path in self._living():
            sweep = known.get(path)
            if sweep is None:
                document = read_object(_document_path(path))
                if document is None:
                    continue
                sweep = str(document.get(allocation.SWEEP) or "")
            self._sweeps[path] = sweep
            if sweep in sweeps and _phase(path) != "exited":
                found.setdefault(sweep, set()).add((job, attempt))
        return found

    def _living(self) -> Iterator[Tuple[str, int, str]]:
        """Yield the job, attempt and folder of each learner of this home that has an agent."""
        for marker in markers("FABRIC_GUARD"):
            home, _, rest = marker.partition("/")
            parts = rest.split("/")
            if home == self._home and len(parts) == 3 and parts[1].isdigit():
                job, attempt, learner = parts
                folder = os.path.join(self._folder, "jobs", job, f"attempt-{attempt}", f"learner-{learner}")
                yield job, int(attempt), folder


def _as_placed(facts: Mapping[str, Any], priority: int) -> Dict[str, Any]:
    """Return the facts of a lease, or of a launch document, with the priority that the job had at last."""
    return {**facts, PRIORITY: priority} if PRIORITY in facts else dict(facts)


def forget_secrets(attempt: WaitingAttempt) -> None:
    """Remove the files of secrets that an earlier waiter may have left, which died in the middle of a start."""
    with contextlib.suppress(OSError, Failure):
        for path in (path for paths in _secret_files(attempt).values() for path in paths):
            if os.path.exists(path):
                os.unlink(path)


def _reserved_of(document: Mapping[str, Any]) -> float:
    """Return how many CPUs a learner has reserved: as its document says, else as many as it is bound to."""
    number = document.get(allocation.RESERVED_CPUS)
    return float(number) if isinstance(number, (int, float)) else float(len(document.get("cpus") or ()))


def _secret_files(attempt: WaitingAttempt) -> Dict[int, List[str]]:
    """Return the files of secrets of each learner: the agent's, and the container's where it has one."""
    if not attempt.secrets:
        return {}
    folder, shell = machine.secret_folder(), attempt.ticket.shell_secrets_suffix
    suffixes = [attempt.ticket.secrets_suffix, *([shell] if shell else [])]
    return {
        one.number: [os.path.join(folder, one.secrets_name + suffix) for suffix in suffixes]
        for one in attempt.learners
    }


def _write_secrets(attempt: WaitingAttempt, files: Mapping[int, Sequence[str]]) -> None:
    write_files(dict.fromkeys((paths[0] for paths in files.values()), json.dumps(attempt.secrets) + "\n"))
    if files and attempt.ticket.shell_secrets_suffix:
        from workbench.learner.boot.sh_launch import render_secrets

        exports = render_secrets(attempt.secrets)
        # Others may read it, since a container's user is one; the folder is closed to them.
        write_files(dict.fromkeys((paths[1] for paths in files.values()), exports), 0o644)


def _document(learner: WaitingLearner) -> Dict[str, Any]:
    """Return a learner's launch document.

    Raises:
        Unstartable: there is none that could be used.
        OSError: nobody knows now.
    """
    content = system.content_of(_launch_path(learner))
    try:
        document = json.loads(content)
        if all(isinstance(word, str) for word in document["guard"]):
            return {**document, "env": dict(document["env"])}
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise Unstartable(learner, "its launch.json cannot be read")


def _passes(error: Exception) -> bool:
    """Say whether what kept an agent from being started may be over later: want of memory, processes or disk."""
    if isinstance(error, Failure):
        cause = error.__cause__
        return error.kind == "cannot_write" or (isinstance(cause, OSError) and cause.errno in _NOT_NOW)
    return isinstance(error, OSError)


def _launch_path(learner: WaitingLearner) -> str:
    return _document_path(learner.folder)


def _document_path(folder: str) -> str:
    return os.path.join(folder, "launch.json")


def _phase(folder: str) -> str:
    return str((read_object(os.path.join(folder, "state.json")) or {}).get("phase") or "")


def _remove_unused(attempt: WaitingAttempt, files: Mapping[int, Sequence[str]]) -> None:
    """Remove the files of secrets of learners that were not started after all."""
    for one in attempt.learners:
        for path in () if one.agent else files.get(one.number, ()):
            with contextlib.suppress(OSError):
                os.unlink(path)
