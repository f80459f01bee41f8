"""Handles people's requests from the store: they become intents, next attempts, or outcomes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from workbench.controller.decide.messages import CheckpointsRetained, EndRequested, StopAsked
from workbench.controller.decide.requests import (
    DONE,
    RETAIN,
    Intend,
    Reorder,
    Resume,
    Settle,
    StartNow,
    answer,
)
from workbench.controller.loop.context import ControllerContext
from workbench.controller.loop.job_state import TrackedJob
from workbench.controller.loop.retention import retain
from workbench.job import Intent, Reason
from workbench.store.db.rows import JobRow, RequestRow, TargetRef
from workbench.store.queries.home_queue import KIND as QUEUE
from workbench.store.queries.home_queue import queue_position
from workbench.store.queries.jobs import job
from workbench.store.queries.requests import add_request, pending_requests, settle_request
from workbench.store.updates.jobs import new_attempt, set_intent, set_reason

Track = Callable[[JobRow], TrackedJob]
"""Begins to track a job."""


class RequestHandler:
    """Answers the requests that are open in the store."""

    def __init__(self, context: ControllerContext, track: Track) -> None:
        self._context = context
        self._track = track
        self._unrecorded: list[StopAsked] = []
        self._touched: set[str] = set()
        self._retaining: set[int] = set()
        """The requests whose checkpoints are being removed."""

    @property
    def is_behind(self) -> bool:
        """Whether somebody asked for something that the store does not hold yet, or that is under way."""
        return bool(self._unrecorded or self._retaining)

    def take(self, event: StopAsked) -> set[str]:
        """Act on a stop that its client could not write down; it is written as soon as there is room."""
        intent = Intent.of(event.kind)
        if not intent:
            return set()
        if event not in self._unrecorded:
            self._unrecorded.append(event)
        tracked = self._context.jobs.get(event.job_id)
        if tracked is None:
            return set()
        if intent.replaces(tracked.row.intent):
            tracked.intent_changed(replace(tracked.row, intent=intent), event.who, self._context.now())
        return {event.job_id}

    def retained(self, event: CheckpointsRetained) -> None:
        """Write down what became of the checkpoints that a job or a search does not keep."""
        if event.outcome != DONE:
            self._context.log.say(f"checkpoints at the end: {event.outcome}")
        with self._context.atomic():
            settle_request(self._context.store, event.request_id, event.outcome)
        self._retaining.discard(event.request_id)

    def answer_pending(self) -> None:
        """Answer what can be answered now; :meth:`take_touched` says for which jobs something changed.

        Raises:
            FabricError: the store takes nothing now; what was answered stays so, the rest is asked again.
        """
        while self._unrecorded:
            self._record(self._unrecorded[0])
            del self._unrecorded[0]
        pending = pending_requests(self._context.store)
        for index, request in enumerate(pending):
            later = [one.kind for one in pending[index + 1 :] if one.job_id == request.job_id]
            if self._answer(request, later):
                self._touched.add(str(request.job_id))

    def take_touched(self) -> set[str]:
        """Return the jobs that something changed for since this was called last, also where an answer failed then."""
        touched, self._touched = self._touched, set()
        return touched

    def _record(self, event: StopAsked) -> None:
        context = self._context
        row = job(context.store, event.job_id)
        if row is not None and row.deleted_us is None:
            with context.atomic():
                add_request(context.store, event.kind, event.job_id, {}, event.who, "controller")

    def _answer(self, request: RequestRow, later: list[str]) -> bool:
        context, store = self._context, self._context.store
        job_id = request.job_id
        if request.kind == "restart_controller":
            with context.atomic():
                settle_request(store, request.id, DONE)
            context.post(EndRequested(f"{request.who} asked for another one"))
            return False
        if request.kind == RETAIN:
            self._retain(request)
            return False
        row = job(store, job_id) if job_id else None
        if request.kind == QUEUE and self._is_on_its_way(job_id):
            return False  # it is asked again once its host has it
        found = answer(request.kind, row, later)
        match found:
            case Settle(outcome):
                with context.atomic():
                    settle_request(store, request.id, outcome)
                if request.kind != "submit" or row is None:
                    return False
                if job_id not in context.jobs and row.ended_us is None:
                    self._track(row)
            case Intend(intent):
                with context.atomic():
                    set_intent(store, job_id, intent, who=request.who, origin=request.origin)
                self._intent_changed(job_id, request.who)
            case Resume():
                with context.atomic():
                    new_attempt(
                        store,
                        job_id,
                        _resumed(request),
                        request.who,
                        request.origin,
                        restarts=0,
                        platform_restarts=0,
                        target=_target_of(request),
                        changed=request.payload.get("changed"),
                    )
                    settle_request(store, request.id, DONE)
                self._begin(job_id)
            case StartNow():
                with context.atomic():
                    settle_request(store, request.id, DONE)
                    assert row is not None
                    set_reason(store, job_id, row.reason)  # the time of the next try goes with it
                if job_id in context.jobs:
                    context.jobs[job_id].restarts_now()
                    context.queue_stale = True  # a host that waits for that time gets the change
            case Reorder():
                with context.atomic():
                    settle_request(store, request.id, DONE)
                assert row is not None
                tracked = context.jobs.get(job_id) or self._track(row)
                tracked.stands_at(queue_position(store, row, tracked.spec))
            case _:
                self._restore_requester(job_id, request)
                return False
        return True

    def _is_on_its_way(self, job_id: str) -> bool:
        """Say whether a job that waits is just being given to its host."""
        tracked = self._context.jobs.get(job_id)
        return tracked is not None and tracked.is_on_its_way

    def _retain(self, request: RequestRow) -> None:
        if request.id in self._retaining:
            return
        context = self._context
        work = partial(retain, context.home, request.id, request.payload, context.post)
        with contextlib.suppress(RuntimeError, MemoryError):  # it is tried again with the next look
            context.concurrency.start_thread(work, "retain")
            self._retaining.add(request.id)

    def _intent_changed(self, job_id: str, who: str) -> None:
        row = job(self._context.store, job_id)
        assert row is not None
        tracked = self._context.jobs.get(job_id)
        if tracked is not None and tracked.row.attempt != row.attempt:
            # Its history was ahead of the rows. What is known of the attempt before says nothing of this one.
            self._context.drop(tracked)
            self._context.queue_stale = True
            tracked = None
        tracked = tracked or self._track(row)
        tracked.intent_changed(row, who, self._context.now())

    def _begin(self, job_id: str) -> None:
        row = job(self._context.store, job_id)
        assert row is not None
        tracked = self._context.jobs.get(job_id)
        if tracked is None:
            self._track(row)
        else:
            tracked.begin(row)

    def _restore_requester(self, job_id: str, request: RequestRow) -> None:
        """Restore who asked for the intent, after a restart of the controller."""
        tracked = self._context.jobs.get(job_id)
        if tracked is not None and tracked.row.intent == request.kind and not tracked.asked_by:
            tracked.asked_by = request.who


def _resumed(request: RequestRow) -> Reason:
    """Return why an attempt begins that somebody asked for: with what is different, and from which checkpoint."""
    text = f"resumed by {request.who}"
    if changes := request.payload.get("set"):
        text += f" with {', '.join(changes)}"
    if checkpoint := request.payload.get("checkpoint"):
        text += f" from the checkpoint {checkpoint}"
    return Reason(text)


def _target_of(request: RequestRow) -> TargetRef | None:
    """Return the target that a job continues at; None leaves it where it is."""
    fields = request.payload.get("place")
    return TargetRef(**fields) if fields else None
