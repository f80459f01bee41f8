"""Asks the controller to stop or to delete jobs, or to let them wait in another order.

A request is kept: to stop or delete until the backend has confirmed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from workbench.clock import elapsed_seconds, now_us
from workbench.errors import CannotWrite, ManifestError, ManifestFault, UnknownName, UsageError
from workbench.job import PREPARING, State, short_id
from workbench.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow, TargetRef
    from workbench.store.queries.experiments import ExperimentRow
    from workbench.store.queries.home_queue import QueuePosition, WaitingJob

StopKind = Literal["halt", "kill"]
RequestKind = Literal["halt", "kill", "resume", "delete"]

Side = Literal["ahead", "behind", "top"]
"""Where a job that waits is moved, of another one."""

_SETTABLE: Final = ("priority", "weight", "begin")

_FOLDER_SECONDS: Final = 20.0
_FOLDER_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What is to be changed of jobs that wait; None is left as it is."""

    priority: int | None = None
    begin: str | None = None
    """The time from which on they may start, ISO 8601; empty: at once."""
    weight: float | None = None

    @property
    def text(self) -> str:
        """The change in words, for their history."""
        from workbench.time_expressions import until_text

        words = [] if self.priority is None else [f"priority {self.priority}"]
        words += [] if self.weight is None else [f"weight {self.weight:g}"]
        if self.begin is not None:
            words.append(f"begins {until_text(self.begin, now_us())}" if self.begin else "begins now")
        return ", ".join(words)


def request(store: Store, jobs: Sequence[JobRow], kind: RequestKind, *, origin: str) -> tuple[int, ...]:
    """Write a request for each job, wake the controller, and return the requests' ids.

    Args:
        store: where the jobs are.
        jobs: the jobs, in the order in which they are to be treated.
        kind: what is asked for.
        origin: which client asks: ``cli``, ``python``, ``tui``.

    Raises:
        CannotWrite: a request cannot be written; all the others were, or their jobs were told to stop all the same.
        UnknownName: a job no longer exists; all the others were asked for.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.controller.client.requests import STOPS

    ids: list[int] = []
    failures: list[CannotWrite | UnknownName] = []
    for row in jobs:
        try:
            ids.append(record_request(store, row, kind, origin=origin))
        except (CannotWrite, UnknownName) as error:
            failures.append(error)
    if ids and kind in STOPS:
        have_stop_heard(store, jobs, kind, store.note)
    elif ids:
        ensure_controller(store.home)
    if failures:
        failures.sort(
            key=lambda error: isinstance(error, UnknownName)
        )  # what was not written is the worse news
        raise type(failures[0])("\n".join(str(error) for error in failures), hint=failures[0].hint)
    return tuple(ids)


def record_request(store: Store, row: JobRow, kind: RequestKind, *, origin: str) -> int:
    """Write a request for a job, and return its id. Nothing is woken: :func:`request` does that, too.

    Raises:
        CannotWrite: it cannot be written; the message says whether the job stops all the same.
        UnknownName: the job no longer exists.
    """
    from workbench.controller.client.requests import ask

    return ask(store, row.id, kind, origin=origin)


def have_stop_heard(
    store: Store, jobs: Sequence[JobRow], kind: RequestKind, say: Callable[[str], None]
) -> None:
    """Have a controller carry out a stop that is written down, also where the one that is there hangs.

    That one is ended and another one started; where it cannot be ended, learners on this machine are asked directly.
    ``say`` gets what is done about it.
    """
    from workbench.controller.client.connect import ensure_heard
    from workbench.controller.client.requests import stop_learners
    from workbench.store.db.rows import is_over
    from workbench.store.updates.jobs import who_am_i

    if ensure_heard(store.home, say):
        return
    stop: StopKind = "halt" if kind == "halt" else "kill"
    for row in jobs:
        if is_over(row):
            continue
        learners = stop_learners(store.home, row, stop, who_am_i())
        if learners.refusal:
            say(f"{short_id(row.id)}: cannot be asked to stop: {learners.refusal}; {learners.hint}")
        elif learners.asked:
            say(f"{short_id(row.id)}: asked to stop without it")


def request_stop(store: Store, jobs: Sequence[JobRow], kind: StopKind, *, origin: str) -> tuple[JobRow, ...]:
    """Ask for jobs to be halted or killed, the newest first; return those that have not ended already.

    The newest go first since a job that waits must not begin because one before it has ended.

    Raises:
        UnknownName: a job no longer exists.
    """
    from workbench.store.db.rows import is_over

    running = tuple(row for row in reversed(jobs) if not is_over(row))
    request(store, running, kind, origin=origin)
    return running


def wait_until_stopped(
    store: Store,
    jobs: Sequence[JobRow],
    kind: StopKind,
    *,
    warn: Callable[[str], None] | None = None,
    report: Callable[[str], None] | None = None,
) -> list[JobRow]:
    """Wait until jobs that were asked to stop are over; return their rows.

    ``warn`` gets what hinders them, or their being recorded; ``report`` gets why a backend does not confirm it.

    Raises:
        NoSpaceLeft: their end cannot be recorded.
        BackendUnreachable: a backend cannot confirm it now; the request is recorded.
        NotAllowed: the right to stop a job is missing; the request is recorded.
    """
    from workbench.services.follow.wait import request_check, wait_until
    from workbench.store.db.rows import is_over

    check = request_check(store.home, kind, warn=warn, report=report)
    rows, _ = wait_until(store, jobs, lambda now: all(map(is_over, now)), check=check, stops=True)
    return rows


def stopped_first(jobs: Sequence[JobRow]) -> str:
    """Say which of the jobs a deletion stops before it removes them: a sentence, or nothing where none runs."""
    from workbench.store.db.rows import is_running

    running = sum(is_running(job) for job in jobs)
    if not running:
        return ""
    if len(jobs) == 1:
        return "It runs: it is stopped first."
    which = f"All {running:,}" if running == len(jobs) else f"{running:,} of them"
    return f"{which} run: they are stopped first." if running > 1 else f"{which} runs: it is stopped first."


def running_first(jobs: Sequence[JobRow]) -> list[JobRow]:
    """Return the jobs in their order, those that run before the others, so that a short list names these."""
    from workbench.store.db.rows import is_running

    return sorted(jobs, key=lambda job: not is_running(job))


def wait_until_deleted(
    store: Store, jobs: Sequence[JobRow], report: Callable[[str], None] | None = None
) -> list[Path]:
    """Wait until deletion is confirmed; return the folders that the controller still removes after a while.

    A job's folder is removed after its rows, which takes long where it holds much. ``report`` gets why it waits.
    """
    wait_until_forgotten(store, jobs, report)
    folders = [store.home.job(row.id).path for row in jobs]
    deadline = elapsed_seconds() + _FOLDER_SECONDS
    while left := [folder for folder in folders if folder.exists()]:
        if elapsed_seconds() > deadline:
            break
        time.sleep(_FOLDER_POLL_SECONDS)
    return left


def wait_until_forgotten(
    store: Store, jobs: Sequence[JobRow], report: Callable[[str], None] | None = None
) -> None:
    """Wait until the store knows that jobs are deleted; their folders are removed after that.

    Raises:
        CannotWrite: the store cannot be written, or a backend has no room for the request.
        BackendUnreachable: a backend cannot confirm it now; the request is recorded.
        NotAllowed: the right to remove a job from its backend is missing; the request is recorded.
    """
    from workbench.services.follow.wait import request_check, wait_until

    check = request_check(store.home, "deletion", report=report)
    wait_until(
        store, jobs, lambda rows: all(row.deleted_us is not None for row in rows), check=check, stops=True
    )


def parse_change(settings: Sequence[str]) -> QueueChange:
    """Return what settings of the form ``priority=70``, ``weight=2`` and ``begin=22:00`` ask for.

    Raises:
        UsageError: there is none, or another key, or a time that is over.
        ManifestError: a priority or weight is out of range, or a time is none; the message has what is accepted.
    """
    from workbench.time_expressions import BEGIN_FORMS, begin_us, is_begin, local_iso

    values = dict(text.partition("=")[::2] for text in settings)
    if not values:
        raise UsageError(
            "what is to be set?",
            hint="priority=70, say (0 to 100, larger goes first), weight=2, or begin=22:00",
        )
    if others := [key for key in values if key not in _SETTABLE]:
        raise UsageError(
            f"a waiting job has no {others[0]} to set", hint="it is priority=N, weight=N or begin=TIME"
        )
    priority = parse_priority(values["priority"]) if "priority" in values else None
    weight = parse_weight(values["weight"]) if "weight" in values else None
    begin = None
    if "begin" in values:
        text, now = values["begin"], now_us()
        if not is_begin(text):
            problem = f"'{text[:60]}' is not a time to begin at; {BEGIN_FORMS}"
            raise ManifestError([ManifestFault("queue set", 0, 0, "begin", problem)])
        at = begin_us(text, now)
        begin = local_iso(at) if at > now else ""
    return QueueChange(priority, begin, weight)


def parse_priority(text: str) -> int:
    """Return a priority.

    Raises:
        ManifestError: it is out of range; the message has the range.
    """
    from workbench.spec import PRIORITY_MAX

    if not (text.isascii() and text.isdigit() and int(text[:9]) <= PRIORITY_MAX):
        problem = f"'{text}' is not a whole number from 0 to {PRIORITY_MAX}"
        raise ManifestError([ManifestFault("queue set", 0, 0, "priority", problem)])
    return int(text)


def parse_weight(text: str) -> float:
    """Return a weight.

    Raises:
        ManifestError: it is none, or out of range; the message has the range.
    """
    from workbench.spec import WEIGHT_MAX, WEIGHT_MIN

    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not WEIGHT_MIN <= found <= WEIGHT_MAX:
        problem = f"'{text[:60]}' is not a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
        raise ManifestError([ManifestFault("queue set", 0, 0, "weight", problem)])
    return found


def change(
    store: Store,
    jobs: Sequence[JobRow],
    asked: QueueChange,
    *,
    searches: Sequence[ExperimentRow] = (),
    origin: str,
) -> dict[int, JobRow]:
    """Ask that jobs that wait get another priority, weight or time, and the trials of searches a priority or weight.

    Trials that are made later get it, too. The controller is woken, which answers the requests.

    Returns:
        The requests for jobs that wait now by their ids, with their jobs.

    Raises:
        UsageError: a job does not wait, its cluster has no PriorityClasses for priorities, or it is for a cluster and
            gets a weight; a search is over, or gets a time. Nothing is changed then.
        HomeNotBound: the home is a copy, or was moved, and there are searches.
    """
    with store.atomic():
        _check_searches(store, searches, asked)
        known = _by_id(store)
        for row in jobs:
            _check_waiting(store, row, known)
            _check_target(f"{short_id(row.id)} {row.name}", row.target, asked)
        waiting = [known[row.id] for row in jobs] + _waiting_trials(store, searches, known, asked)
        _record_change(store, searches, asked)
        places: dict[str, tuple[WaitingJob, QueuePosition]] = {}
        for one in waiting:
            priority = one.stands.priority if asked.priority is None else asked.priority
            weight = one.stands.weight if asked.weight is None else asked.weight
            begin = one.stands.begin if asked.begin is None else asked.begin
            places[one.row.id] = (one, replace(one.stands, priority=priority, weight=weight, begin=begin))
        requests = _ask(store, places, dict.fromkeys(places, asked.text), origin)
    _wake(store, requests)
    return requests


def _check_searches(store: Store, searches: Sequence[ExperimentRow], asked: QueueChange) -> None:
    from workbench.store.db.home_folder import require_home
    from workbench.store.db.rows import TargetRef
    from workbench.store.queries.experiments import experiment, read_experiment_file, short_experiment_id
    from workbench.store.updates.experiments import catch_up_experiment

    if not searches:
        return
    require_home(store.home)
    if asked.begin is not None:
        raise UsageError(
            f"{searches[0].name} is a search, and only a job has a time from which on it may begin",
            hint="`fabric experiment pause` has a search begin no more trials, and `resume` has it go on",
        )
    for each in searches:
        catch_up_experiment(store, each.id)
        now = experiment(store, each.id)
        which = f"{short_experiment_id(each.id)} {each.name}"
        if now is None or not now.is_open:
            raise UsageError(f"{which} is over: none of its trials waits")
        document = read_experiment_file(store.home, each.id)
        for place in document.get("places") or [{"target": document["place"]}]:
            _check_target(which, TargetRef(**place["target"]), asked)


def _waiting_trials(
    store: Store, searches: Sequence[ExperimentRow], known: Mapping[str, WaitingJob], asked: QueueChange
) -> list[WaitingJob]:
    from workbench.store.queries.experiments import trial_job_ids

    found = [known[one] for each in searches for one in trial_job_ids(store, each.id) if one in known]
    for one in found:
        _check_target(f"{short_id(one.row.id)} {one.row.name}", one.row.target, asked)
    return found


def _record_change(store: Store, searches: Sequence[ExperimentRow], asked: QueueChange) -> None:
    """Record in the histories of searches what their trials get; their files have it whatever is refused after that."""
    from workbench.store.updates.experiments import record_event
    from workbench.store.updates.jobs import who_am_i

    for each in searches:
        event = {"do": "reorder", "who": who_am_i(), "priority": asked.priority, "weight": asked.weight}
        record_event(store, each.id, event)


def waiting_among(store: Store, rows: Sequence[JobRow]) -> list[JobRow]:
    """Return those of some jobs that wait for their turn."""
    known = _by_id(store)
    return [row for row in rows if row.id in known]


def move(store: Store, row: JobRow, side: Side, anchor: JobRow | None, *, origin: str) -> dict[int, JobRow]:
    """Ask that a job that waits stand ahead of or behind another one, or first; return the requests with their jobs.

    It gets the other one's priority, since that comes before the position. The controller is woken, which answers them.

    Raises:
        UsageError: one of them does not wait, or they wait at different backends.
    """
    with store.atomic():
        known = _by_id(store)
        _check_waiting(store, row, known)
        line = [one for one in known.values() if one.row.target.machine == known[row.id].row.target.machine]
        if anchor is not None:
            _check_waiting(store, anchor, known)
            if anchor.id == row.id:
                raise UsageError(f"{short_id(row.id)} cannot go ahead of itself, or behind itself")
            if known[anchor.id] not in line:
                raise UsageError(
                    f"{short_id(row.id)} waits at {row.target.backend}, {short_id(anchor.id)} at "
                    f"{anchor.target.backend}: each backend has a queue of its own"
                )
        found = moved(line, row.id, side, "" if anchor is None else anchor.id)
        words = "moved to the top" if anchor is None else f"moved {side} {_of(side)}{short_id(anchor.id)}"
        texts = {job_id: words if job_id == row.id else "positions counted again" for job_id in found}
        places = {job_id: (known[job_id], stands) for job_id, stands in found.items()}
        requests = _ask(store, places, texts, origin)
    _wake(store, requests)
    return requests


def move_past(
    store: Store,
    row: JobRow,
    side: Literal["ahead", "behind"],
    among: Collection[str] | None = None,
    *,
    origin: str,
) -> dict[int, JobRow]:
    """Ask that a job that waits go ahead of the one before it, or behind the next one; do nothing where there is none.

    The order is that which was asked for last, of the jobs of this home at its backend; with ``among`` of those that
    it has the ids of.

    Raises:
        UsageError: it does not wait.
    """
    known = _by_id(store)
    _check_waiting(store, row, known)
    machine = known[row.id].row.target.machine
    line = [one.row for one in known.values() if one.row.target.machine == machine]
    if among is not None:
        line = [one for one in line if one.id in among or one.id == row.id]
    at = [one.id for one in line].index(row.id) + (-1 if side == "ahead" else 1)
    return move(store, row, side, line[at], origin=origin) if 0 <= at < len(line) else {}


def moved(
    line: Sequence[WaitingJob], job_id: str, side: Side, anchor_id: str = ""
) -> dict[str, QueuePosition]:
    """Return where jobs stand once one of them was moved: that one's, and all others' that have to give way. Pure.

    Args:
        line: the jobs that wait at one machine.
        job_id: the job that is moved.
        side: ``ahead`` or ``behind`` of the anchor, or ``top``.
        anchor_id: the other job.
    """
    others = sorted((one for one in line if one.row.id != job_id), key=lambda one: one.order)
    mine = next(one for one in line if one.row.id == job_id)
    if not others:
        return {job_id: mine.stands}
    anchor = others[0] if side == "top" else next(one for one in others if one.row.id == anchor_id)
    priority = anchor.stands.priority
    if side == "top" and mine.stands.priority > priority:
        return {job_id: mine.stands}
    group = [one for one in others if one.stands.priority == priority]
    at = group.index(anchor) + (side == "behind")
    before = group[at - 1].stands.position if at else None
    after = group[at].stands.position if at < len(group) else None
    if before is None or after is None:
        position = before + 1 if before is not None else (after or 0.0) - 1
        return {job_id: replace(mine.stands, priority=priority, position=position)}
    if before < (middle := (before + after) / 2) < after:
        return {job_id: replace(mine.stands, priority=priority, position=middle)}
    # No number is left between them: all are numbered again, up to the last one's, so that later jobs stay behind.
    first = group[-1].stands.position - len(group)
    return {
        one.row.id: replace(one.stands, priority=priority, position=first + index)
        for index, one in enumerate([*group[:at], mine, *group[at:]])
    }


def _wake(store: Store, requests: Mapping[int, JobRow]) -> None:
    from workbench.controller.client.connect import ensure_controller

    if requests:
        ensure_controller(store.home)


def _by_id(store: Store) -> dict[str, WaitingJob]:
    from workbench.store.queries.home_queue import waiting_jobs

    return {one.row.id: one for one in waiting_jobs(store, asked=True)}


def _check_waiting(store: Store, row: JobRow, known: Mapping[str, WaitingJob]) -> None:
    from workbench.store.queries.jobs import job

    if row.id in known:
        return
    now = job(store, row.id) or row  # it may have begun since it was named
    is_leaving = now.state is State.QUEUED
    has_pods = now.target.type == "kubernetes" and now.state in PREPARING
    raise UsageError(
        f"{short_id(row.id)} {row.name} does not wait for its turn: "
        + ("it is being stopped" if is_leaving else f"it is {now.state}"),
        hint="what its pods wait for is the cluster's to order, by the PriorityClass that they were created with"
        if has_pods
        else "`fabric queue` lists the jobs that wait",
    )


def _check_target(which: str, target: TargetRef, asked: QueueChange) -> None:
    """Refuse a priority that a job's launch would refuse there, and a weight where nothing comes of it."""
    from runners.registry import capabilities_of
    from runners.shared.unsupported import refused_priority

    if asked.priority is not None:
        has_classes = bool(target.options.get("priority_classes"))
        capabilities = capabilities_of(target.runner)
        if refused := refused_priority(asked.priority, capabilities, has_classes=has_classes):
            problem, _, hint = refused.partition("; ")
            raise UsageError(f"{which}: {problem}", hint=hint)
    if asked.weight is not None and target.type == "kubernetes":
        raise UsageError(
            f"{which} is for a cluster, which knows no weights",
            hint="its scheduler orders pods by their PriorityClass: priority=N, where the backend has priority_classes",
        )


def _of(side: Side) -> str:
    return "of " if side == "ahead" else ""


def _ask(
    store: Store,
    places: Mapping[str, tuple[WaitingJob, QueuePosition]],
    texts: Mapping[str, str],
    origin: str,
) -> dict[int, JobRow]:
    """Write the requests for the jobs that do not stand there already."""
    from workbench.store.queries.home_queue import ask_for_position
    from workbench.store.updates.jobs import who_am_i

    return {
        ask_for_position(store, one.row, stands, texts[job_id], who_am_i(), origin): one.row
        for job_id, (one, stands) in places.items()
        if stands != one.stands
    }
