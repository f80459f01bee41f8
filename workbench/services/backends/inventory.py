"""Lists the GPUs of backends with their use and their holders, and who waits for them."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from workbench.clock import now_us
from workbench.errors import BackendUnreachable, FabricError
from workbench.services.backends import prompts
from workbench.services.backends.placement import backend_options
from workbench.services.backends.watch import BackendStatus, BackendWatch, KeptConnection
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Cluster, Host, HostGroup
    from workbench.documents.machines import QueuedEntry, QueueDocument
    from workbench.store.db.database import Store
    from workbench.store.queries.home_queue import WaitingJob


AT_ONCE: Final = 16
"""How many backends are asked at the same time."""

ANSWER_SECONDS: Final = 20.0
"""How long several backends together have; the time in which a person is asked for a password does not count."""

_POLL_SECONDS: Final = 0.05

Answer = TypeVar("Answer")


def inventories(
    backends: Sequence[BackendOptions], *, cancel: threading.Event | None = None
) -> Iterator[BackendStatus]:
    """Ask backends what they have, all at the same time; yield their answers in the order given.

    One that fails is a status with its error, as is one of several that has not answered after
    :data:`ANSWER_SECONDS`; its thread is left to itself. It ends early where ``cancel`` is set.
    """
    return ask_all(backends, _inventory, _silent, cancel=cancel)


def ask_all(
    backends: Sequence[BackendOptions],
    ask: Callable[[BackendOptions], Answer],
    silent: Callable[[BackendOptions], Answer],
    *,
    cancel: threading.Event | None = None,
) -> Iterator[Answer]:
    """Ask backends something, all at the same time; yield their answers in the order given.

    Args:
        backends: which ones; one alone is waited for.
        ask: asks one of them; it raises nothing.
        silent: makes the answer of one that has not answered after :data:`ANSWER_SECONDS`; its thread is left to
            itself.
        cancel: ends it early once it is set.
    """
    if len(backends) == 1:
        yield ask(backends[0])
        return
    turns, ended = threading.Semaphore(AT_ONCE), threading.Event()
    questions = [_Question(options, ask, turns, ended) for options in backends]
    until = time.monotonic() + ANSWER_SECONDS
    try:
        for question in questions:
            while not question.done.wait(_POLL_SECONDS):
                if cancel is not None and cancel.is_set():
                    return
                if prompts.is_asking():
                    until = time.monotonic() + ANSWER_SECONDS
                elif time.monotonic() > until:
                    break
            if cancel is not None and cancel.is_set():
                return
            yield silent(question.options) if question.answer is None else question.answer
    finally:
        ended.set()


class _Question(Generic[Answer]):
    """One of several backends, which a thread of its own asks when there is a turn for it."""

    def __init__(
        self,
        options: BackendOptions,
        ask: Callable[[BackendOptions], Answer],
        turns: threading.Semaphore,
        ended: threading.Event,
    ) -> None:
        self.options = options
        self.answer: Answer | None = None
        self.done = threading.Event()
        self._ask_backend, self._turns, self._ended = ask, turns, ended
        # A daemon: a connection that nobody waits for any more does not keep the process.
        context = contextvars.copy_context()  # has the chosen profile
        name = f"ask {options.name}"
        threading.Thread(target=context.run, args=(self._ask,), daemon=True, name=name).start()

    def _ask(self) -> None:
        with self._turns:
            if not self._ended.is_set():
                self.answer = self._ask_backend(self.options)
        self.done.set()


def _inventory(options: BackendOptions) -> BackendStatus:
    watch = BackendWatch(options, probes=False)
    try:
        (status,) = watch.ask()
        return status
    finally:
        watch.close()


def _silent(options: BackendOptions) -> BackendStatus:
    error = silent_error(options)
    return BackendStatus(options.name, options.type, None, error, ANSWER_SECONDS, (), now_us())


def silent_error(options: BackendOptions) -> FabricError:
    """Return what is wrong with one of several backends that has not answered in time."""
    return BackendUnreachable(
        f"it did not answer within {ANSWER_SECONDS:g} s",
        hint=f"fabric gpus --backend {options.name} waits longer",
    )


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What a host says of all who wait there for GPUs, of any home and person."""

    waiting: Sequence[Mapping[str, Any]] = ()
    """Entries in the order of their turns, as the agent's operation ``queue`` gives them."""
    is_known: bool = False
    trouble: str = ""
    """Why it could not be asked."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One that waits: a job of this home, or of another one, of which the person and the GPUs are shown.

    Its name is, too, where its person shares it.
    """

    job: WaitingJob | None
    """None where it is of another home."""
    person: str
    gpus: int
    """Of all learners together."""
    rank: int | None = None
    """Its place among all who wait for GPUs at the host, from 1 on; None where the host does not have it."""
    of: int | None = None
    shared_name: str = ""
    """What its person calls it, where it is of another home; empty where that is not shared."""

    @property
    def title(self) -> str:
        """Its name, with the person's where it is of another home."""
        return f"{self.person}'s {self.shared_name}".rstrip() if self.job is None else self.job.row.name

    def entry(self) -> QueuedEntry:
        """Return it as ``--json`` gives it."""
        from workbench.formats import iso

        job = self.job
        return {
            "id": None if job is None else job.row.id,
            "name": self.shared_name or None if job is None else job.row.name,
            "person": self.person,
            "gpus": self.gpus,
            "priority": None if job is None else job.stands.priority,
            "weight": None if job is None else job.stands.weight,
            "rank": self.rank,
            "of": self.of,
            "since": None if job is None else iso(job.row.changed_us),
            "reason": None if job is None else job.row.reason.text,
        }


@dataclass(frozen=True, slots=True)
class BackendQueue:
    """Those that wait at one backend, in the order in which they start."""

    backend: str
    waiting: tuple[QueuedJob, ...]
    is_host_known: bool
    """Whether the host said who waits there."""
    trouble: str = ""
    """Why it could not be asked."""

    def document(self) -> QueueDocument:
        """Return the queue as ``--json`` gives it, schema ``fabric.queue/1``."""
        return {
            "schema": "fabric.queue/1",
            "backend": self.backend,
            "host_known": self.is_host_known,
            "trouble": self.trouble,
            "waiting": [one.entry() for one in self.waiting],
        }


def home_queues(store: Store | None, backend: str = "") -> list[BackendQueue]:
    """Return the queues, one a backend: the jobs of this home that wait, and others at the same hosts.

    Hosts are asked where a job of this home waits for GPUs, and where ``backend`` names one.

    Raises:
        UnknownName: there is no such backend.
    """
    from workbench.store.db.database import home_uuid
    from workbench.store.queries.home_queue import waiting_jobs

    found = waiting_jobs(store) if store is not None else []
    uuid = "" if store is None else home_uuid(store.home)
    if backend:
        options = backend_options(backend)
        mine = [one for one in found if one.row.target.backend == options.name]
        return [_merged(uuid, options.name, mine, found, _ask_once(options))]
    return queues(
        uuid, found, {machine: _ask_once(options) for machine, options in queue_hosts(found).items()}
    )


def queue_hosts(waiting: Sequence[WaitingJob]) -> dict[str, BackendOptions]:
    """Return the machines where one of these jobs waits for GPUs, and how each is reached."""
    from backends.contract.host import BackendOptions

    targets = {one.row.target.machine: one.row.target for one in reversed(waiting) if one.row.gpus}
    return {
        machine: BackendOptions.of(target)
        for machine, target in sorted(targets.items())
        if target.type != "kubernetes"  # a cluster's queue is its own
    }


def queues(
    home_uuid: str, waiting: Sequence[WaitingJob], answers: Mapping[str, HostAnswer]
) -> list[BackendQueue]:
    """Return the queues of a home, one a backend, by what hosts have answered. Pure.

    Args:
        home_uuid: Which home it is, as hosts know it.
        waiting: Its jobs that wait, each machine's in their order.
        answers: By machine, of those that were asked.
    """
    found = []
    for machine, group in groupby(waiting, key=lambda one: one.row.target.machine):
        mine = list(group)
        answer = answers.get(machine, HostAnswer())
        found.append(_merged(home_uuid, mine[0].row.target.backend, mine, waiting, answer))
    return found


class HostQuestion:
    """Who waits at a host, asked again and again over one connection."""

    def __init__(self, options: BackendOptions) -> None:
        self._connection = KeptConnection(options)

    def ask(self) -> HostAnswer:
        """Ask the host; after a failure the next question opens a connection again."""
        try:
            found = waiting_entries(self._connection.opened())
        except FabricError as error:
            self.close()
            return HostAnswer(trouble=f"{error}")
        if found is None:
            return HostAnswer()
        return HostAnswer(sorted(found, key=lambda entry: int(entry["place"])), is_known=True)

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


def waiting_entries(opened: Host | Cluster | HostGroup) -> Sequence[Mapping[str, Any]] | None:
    """Return the entries of all who wait for GPUs at an open host.

    None of a cluster, whose queue is its own, and of several hosts, each of which has one.

    Raises:
        FabricError: it cannot be reached.
    """
    from backends.contract.host import Host

    if not isinstance(opened, Host):
        return None
    found: Sequence[Mapping[str, Any]] = opened.call("queue")["waiting"]
    return found


def _ask_once(options: BackendOptions) -> HostAnswer:
    host = HostQuestion(options)
    try:
        return HostAnswer() if options.type == "kubernetes" else host.ask()
    finally:
        host.close()


def _merged(
    uuid: str, backend: str, mine: Sequence[WaitingJob], all_waiting: Sequence[WaitingJob], line: HostAnswer
) -> BackendQueue:
    """Put the jobs of this home between those of others; those that the host does not have come last.

    Of ``all_waiting`` the host may have more than ``mine``: those that wait there and at other hosts, too.
    """
    known = {(one.row.target.home(uuid), str(one.row.id)): one for one in all_waiting}
    keys = [(str(entry["home"]), str(entry["job"])) for entry in line.waiting]
    left = [one for one in mine if (one.row.target.home(uuid), str(one.row.id)) not in keys]
    entries = [
        QueuedJob(
            job=known.get(key),
            person=str(entry["owner"]),
            gpus=int(entry["gpus"]),
            rank=int(entry["place"]),
            of=int(entry["of"]),
            shared_name=str(entry.get("name") or ""),
        )
        for key, entry in zip(keys, line.waiting, strict=True)
    ]
    entries += [QueuedJob(one, one.row.owner, one.row.gpus * one.row.learners) for one in left]
    return BackendQueue(backend, tuple(entries), line.is_known, line.trouble)
