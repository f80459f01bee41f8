"""What the controller knows of a job while its calls and the backend's news cross each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runners.interface import HostWait, LearnerStatus
from tests.quick.controller.values import HOME, LOCAL, exited, learner, lost, row, spec, those
from workbench.controller.decide.model import BackendTrouble, Operation, SetReason, StartLaunch, Stop
from workbench.controller.decide.reconcile import decide
from workbench.controller.loop.job_state import REFUSED_TRIES, TrackedJob
from workbench.job import LearnerPhase, Reason, State
from workbench.store.db.rows import OF_HOME

REFUSAL = BackendTrouble("refused", Reason("no rights now", "C104"))


def test_a_learner_that_is_launched_again_is_not_over_when_its_news_come_after_the_end_of_the_launch() -> (
    None
):
    tracked = TrackedJob.load(row(State.PENDING), spec(), HOME)
    tracked.observed([lost(1, started_us=None)], whole=True)
    assert decide(tracked.snapshot(0.0)).actions == (StartLaunch(),)

    tracked.call(Operation.LAUNCH)
    assert tracked.launched(1.0), "a backend that has reported one as lost does not report it again"

    assert decide(tracked.snapshot(1.0)).actions == ()
    tracked.observed([learner(1)], whole=False)
    assert tracked.statuses == those(learner(1))


def test_a_learner_that_falls_during_its_launch_is_lost() -> None:
    tracked = TrackedJob.load(row(State.PENDING), spec(), HOME)
    tracked.observed([], whole=True)
    tracked.call(Operation.LAUNCH)
    tracked.observed([lost(1, started_us=None)], whole=False)

    assert not tracked.launched(1.0)
    assert tracked.statuses[1].phase is LearnerPhase.LOST


def test_what_an_earlier_launch_began_is_not_forgotten_when_a_later_one_fails_before_it_starts_anything() -> (
    None
):
    tracked = TrackedJob.load(row(State.PENDING), spec(), HOME)
    tracked.observed([], whole=True)
    tracked.call(Operation.LAUNCH)
    tracked.call_failed(
        BackendTrouble("unreachable", Reason("the connection was lost", "S200"), started=True), 0.0
    )
    tracked.call(Operation.LAUNCH)
    tracked.call_failed(BackendTrouble("fault", Reason("the plan failed", "S101"), started=False), 1.0)

    assert tracked.fault is not None
    assert tracked.fault.started
    assert decide(tracked.snapshot(1.0)).actions == (Stop("kill", 0.0),)


CUT_OFF = learner(1, LearnerPhase.STARTING, cut_off=True, reason=Reason("waits until fabric runs on it"))


@pytest.mark.parametrize("elsewhere", [True, False], ids=["another laptop's", "our own"])
def test_a_job_that_its_host_starts_no_more_is_another_laptops_to_give_again_where_ours_cannot(
    elsewhere: bool,
) -> None:
    options = {OF_HOME: "theirs"} if elsewhere else {}
    tracked = TrackedJob.load(row(State.PENDING, target=replace(LOCAL, options=options)), spec(), HOME)
    tracked.observed([CUT_OFF], whole=True)
    assert decide(tracked.snapshot(0.0)).actions == (StartLaunch(),)
    tracked.call(Operation.LAUNCH)
    tracked.call_failed(REFUSAL, 0.0)

    actions = decide(tracked.snapshot(0.0)).actions
    if not elsewhere:
        assert tracked.fault is not None
        return
    (shown,) = actions
    assert isinstance(shown, SetReason)
    assert shown.reason.text == (
        "waits until fabric runs on it; from here it cannot be started: no rights now"
    )
    tracked.observed([learner(1, LearnerPhase.STARTING, waits=True)], whole=False)
    assert tracked.trouble is None
    assert decide(tracked.snapshot(0.0)).actions != actions


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param((exited(1, 3, decided=True), exited(2, stopped="settle")), True, id="one has failed"),
        pytest.param((exited(1, 3, decided=True),), False, id="the other one is not over"),
        pytest.param((exited(1, 0, decided=True), exited(2, stopped="settle")), False, id="it has completed"),
        pytest.param((exited(1, 3, stopped="halt"), exited(2, stopped="halt")), False, id="it was halted"),
    ],
)
def test_an_end_on_record_that_the_host_may_have_followed_waits_for_what_the_host_says(
    ends: tuple[LearnerStatus, ...], expected: bool
) -> None:
    tracked = TrackedJob.load(row(State.PROCESSING, learners=2), spec(learners=2, max_restarts=1), HOME)
    tracked.statuses = those(*ends)
    assert tracked.snapshot(0.0).may_be_followed is expected

    tracked.is_observed = True
    assert not tracked.snapshot(0.0).may_be_followed


def ahead(*, begun: bool) -> TrackedJob:
    """A job that is being given to its host; of a launch before it no answer may have come."""
    tracked = TrackedJob(row(State.PENDING), spec(), HOME)
    tracked.begun = begun
    tracked.call(Operation.LAUNCH)
    tracked.launching_wait = HostWait("waits for abc")
    return tracked


def test_a_host_that_refuses_a_job_ahead_of_its_turn_does_not_have_it() -> None:
    tracked = ahead(begun=False)
    tracked.call_failed(REFUSAL, 0.0)

    assert tracked.stays_here
    assert tracked.trouble is not None
    assert tracked.trouble.kind == "busy"


def test_a_refusal_says_nothing_of_a_launch_before_it_that_was_not_answered() -> None:
    """Its host may have started the job meanwhile."""
    tracked = ahead(begun=True)
    for _ in range(REFUSED_TRIES):
        tracked.operation, tracked.launching_wait = Operation.LAUNCH, HostWait("waits for abc")
        tracked.call_failed(REFUSAL, 0.0)
        assert not tracked.stays_here
        assert tracked.fault is None
        assert tracked.trouble is not None
        assert tracked.trouble.kind == "unreachable"

    tracked.operation, tracked.launching_wait = Operation.LAUNCH, HostWait("waits for abc")
    tracked.call_failed(REFUSAL, 0.0)

    assert tracked.fault is not None
    assert tracked.fault.started, "what it may have begun is ended first"
