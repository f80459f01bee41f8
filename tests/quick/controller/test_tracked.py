"""What the controller knows of a job while its calls and the backend's news cross each other."""

from __future__ import annotations

from tests.quick.controller.values import HOME, learner, lost, row, spec, those
from workbench.controller.decide.model import BackendTrouble, Operation, StartLaunch, Stop
from workbench.controller.decide.reconcile import decide
from workbench.controller.loop.job_state import TrackedJob
from workbench.job import LearnerPhase, Reason, State


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
