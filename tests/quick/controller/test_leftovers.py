"""Learners that should not be there are ended by a target that knows all of their job, and no other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runners.interface import AttemptRef, LearnerRef, StopRequest
from workbench.controller.decide.messages import LeftoversFound
from workbench.controller.loop import event_handler
from workbench.controller.loop.event_handler import EventHandler
from workbench.job import State
from workbench.store.db.rows import TargetRef

BOX = TargetRef("box1", "ssh", "process", "ssh://one")
GROUP = TargetRef("box1+box2", "multinode", "multinode-process", options={"members": []})


class _Worker:
    """Notes what it is asked to stop."""

    def __init__(self, ref: TargetRef) -> None:
        self.ref = ref
        self.stopped: list[tuple[str, int]] = []

    def stop(self, attempt: AttemptRef, request: StopRequest) -> None:
        self.stopped.append((attempt.job_id, attempt.attempt))


def _swept(
    monkeypatch: pytest.MonkeyPatch, found_by: TargetRef, of: TargetRef, state: State
) -> dict[str, Any]:
    """Have a target find a learner of a job; return what each target's worker was asked to stop."""
    workers = {ref.backend: _Worker(ref) for ref in (BOX, GROUP)}
    row = SimpleNamespace(target=of, attempt=1, state=state, deleted_us=None, learners=2)
    monkeypatch.setattr(event_handler, "job", lambda store, job_id: row)
    context = SimpleNamespace(
        workers=workers,
        worker=lambda ref: workers[ref.backend],
        store=None,
        uuid="home",
        log=SimpleNamespace(say=lambda text: None),
    )
    handler = EventHandler(cast(Any, context), cast(Any, None))
    handler.take(LeftoversFound(found_by.backend, (LearnerRef("home", "training-a", 1, 1),)))
    return {name: worker.stopped for name, worker in workers.items()}


@pytest.mark.parametrize("found_by", [BOX, GROUP], ids=["alone", "together"])
@pytest.mark.parametrize("of", [BOX, GROUP], ids=["of one", "of both"])
def test_what_runs_is_left_alone_whoever_sees_it(
    monkeypatch: pytest.MonkeyPatch, found_by: TargetRef, of: TargetRef
) -> None:
    assert _swept(monkeypatch, found_by, of, State.PROCESSING) == {"box1": [], "box1+box2": []}


def test_hosts_together_leave_the_end_of_a_job_of_one_of_them_to_its_own_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Together they would take its learner for one that the second of them has.
    stopped = _swept(monkeypatch, GROUP, BOX, State.HALTED)
    assert stopped == {"box1": [("training-a", 1)], "box1+box2": []}


def test_a_job_of_both_is_ended_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = _swept(monkeypatch, GROUP, GROUP, State.HALTED)
    assert stopped == {"box1": [], "box1+box2": [("training-a", 1)]}
