"""What the controller does next for a job, case by case, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from runners.interface import Followed, HostWait, LearnerStatus
from tests.quick.controller.values import exited, learner, lost, those, view
from workbench.controller.decide.errors import classify_error
from workbench.controller.decide.log_policies import LogMatch
from workbench.controller.decide.model import (
    BackendTrouble,
    CancelLaunch,
    CleanUp,
    Decision,
    Drain,
    Finish,
    JobSnapshot,
    Operation,
    Preparing,
    Probe,
    ProbePrevious,
    Purge,
    Remove,
    SetReason,
    StartLaunch,
    Stop,
    StopSent,
    Transition,
    Untrack,
)
from workbench.controller.decide.reconcile import AGENTS_PATIENCE_SECONDS, APPEARS_WITHIN_SECONDS, decide
from workbench.controller.decide.scheduler import QueueVerdict
from workbench.errors import (
    AnswerPending,
    ConfigError,
    FabricError,
    LaunchRefused,
    NotAllowed,
    RunnerError,
    UsageError,
)
from workbench.job import Intent, LearnerPhase, Reason, State

NOW = 1000.0
BUSY = BackendTrouble("busy", Reason("GPU 0 is held by training-x"))
AWAY = BackendTrouble("unreachable", Reason("gpubox does not answer", "S200"))
RAISED = BackendTrouble("fault", Reason("KeyError: 'image'", "S101"), started=True)
REFUSED = BackendTrouble("refused", Reason("asks for 64 GiB, there are 24 GiB", "C104"))


def finish_of(decision: Decision) -> Finish:
    assert len(decision.actions) == 1 and isinstance(decision.actions[0], Finish), decision
    return decision.actions[0]


def reasons_of(decision: Decision) -> list[str]:
    return [action.reason.text for action in decision.actions if isinstance(action, SetReason)]


def test_a_queued_job_that_may_start_is_written_down_before_it_is_launched() -> None:
    assert decide(view(State.QUEUED)).actions == (
        Transition(State.PENDING, Reason("starting")),
        StartLaunch(),
    )


def test_a_queued_job_that_may_not_start_says_why_and_says_it_once() -> None:
    waiting = QueueVerdict(False, "waits for 1 CPU")

    assert decide(view(State.QUEUED, verdict=waiting)).actions == (SetReason(Reason("waits for 1 CPU")),)
    assert decide(view(State.QUEUED, verdict=waiting, reason=Reason("waits for 1 CPU"))).actions == ()


def test_the_next_attempt_waits_until_the_backend_confirms_that_the_last_one_is_gone() -> None:
    assert decide(view(State.QUEUED, previous_is_over=None)).actions == (ProbePrevious(end=False),)
    assert decide(view(State.QUEUED, previous_is_over=False)).actions == (ProbePrevious(end=True),)


def test_a_restart_waits_for_its_time() -> None:
    assert decide(view(State.QUEUED, not_before=NOW + 4)) == Decision(until=NOW + 4)


@pytest.mark.parametrize(("intent", "code"), [(Intent.HALT, 143), (Intent.KILL, 137), (Intent.DELETE, 137)])
def test_stopping_a_queued_job_ends_it_at_once_even_while_its_backend_is_away(
    intent: Intent, code: int
) -> None:
    found = finish_of(decide(view(State.QUEUED, intent=intent, trouble=AWAY, not_before=NOW + 9)))

    assert (found.outcome.state, found.outcome.exit_code) == (State.HALTED, code)


def test_after_a_restart_of_the_controller_a_pending_job_is_looked_at_before_it_is_launched() -> None:
    assert decide(view(State.PENDING, is_observed=False)).actions == ()
    assert decide(view(State.PENDING, is_observed=True)).actions == (StartLaunch(),)


def test_a_learner_that_is_there_already_is_adopted() -> None:
    found = decide(view(State.PENDING, statuses=those(learner(1))))

    assert found.actions == (Transition(State.PROCESSING, Reason("the command runs")),)


def test_a_launch_that_was_cut_off_between_two_learners_is_made_again() -> None:
    assert decide(view(State.PENDING, learners=2, statuses=those(learner(1)))).actions == (StartLaunch(),)


def test_a_learner_that_fell_before_its_first_word_is_launched_again_by_who_did_not_launch_it() -> None:
    fallen = those(lost(1, started_us=None))

    assert decide(view(State.PENDING, statuses=fallen)).actions == (StartLaunch(),)
    assert decide(view(State.PENDING, statuses=fallen, launches=1, launched_at=NOW)).actions == (Drain(),)


def test_a_learner_that_waits_for_what_its_launch_brings_is_launched_again_by_who_did_not_launch_it() -> None:
    waiting = those(learner(1, LearnerPhase.STARTING, cut_off=True))

    assert decide(view(State.PENDING, statuses=waiting)).actions == (StartLaunch(),)
    assert (
        StartLaunch()
        not in decide(view(State.PENDING, statuses=waiting, launches=1, launched_at=NOW)).actions
    )
    assert decide(view(State.PENDING, statuses=waiting, launches=1, launched_at=NOW - 60)).actions == (
        StartLaunch(),
    )
    assert decide(view(State.PENDING, statuses=waiting, trouble=AWAY, not_before=NOW + 9)).until == NOW + 9


def test_a_learner_that_waits_for_what_its_launch_brings_is_launched_again_ever_later_and_then_given_up() -> (
    None
):
    waiting = those(learner(1, LearnerPhase.STARTING, cut_off=True))

    def decided(launches: int, ago: float) -> Decision:
        return decide(view(State.PENDING, statuses=waiting, launches=launches, launched_at=NOW - ago))

    assert decided(1, 2.0).actions == (StartLaunch(),)
    assert decided(2, 2.0) == Decision(until=NOW + 2.0)
    assert decided(3, 2.0) == Decision(until=NOW + 6.0)
    assert decided(9, 2.0) == Decision(until=NOW + 28.0)
    assert decided(9, 30.0).actions == (Stop("kill", 0.0),)


def test_the_setup_command_is_shown_as_downloading() -> None:
    starting = those(learner(1, LearnerPhase.SETUP))

    assert decide(view(State.PENDING, statuses=starting)).actions == (
        Transition(State.DOWNLOADING, Reason("the setup command runs")),
    )


def test_a_launch_that_takes_long_shows_what_it_does_and_a_short_one_costs_no_state() -> None:
    at = NOW - 5
    long = view(
        State.PENDING, operation=Operation.LAUNCH, preparing=Preparing("unpacks the code", "preparing", at)
    )
    short = view(
        State.PENDING, operation=Operation.LAUNCH, preparing=Preparing("unpacks the code", "preparing", NOW)
    )

    assert decide(long).actions == (Transition(State.DOWNLOADING, Reason("unpacks the code")),)
    assert decide(short) == Decision(until=NOW + 0.1)


def test_the_words_of_a_launch_are_not_written_more_than_once_a_second() -> None:
    def says(text: str, reason_changed_at: float) -> JobSnapshot:
        preparing = Preparing(text, "preparing", NOW - 9)
        return view(
            State.DOWNLOADING,
            operation=Operation.LAUNCH,
            preparing=preparing,
            reason_changed_at=reason_changed_at,
        )

    assert decide(says("50 %", NOW - 0.25)) == Decision(until=NOW + 0.75)
    assert decide(says("50 %", NOW - 2)).actions == (SetReason(Reason("50 %")),)


def test_a_launch_that_found_the_slots_taken_goes_back_to_the_queue() -> None:
    assert decide(view(State.PENDING, trouble=BUSY)).actions == (Transition(State.QUEUED, BUSY.reason),)


def test_a_launch_that_was_refused_fails_at_once_and_for_good() -> None:
    found = finish_of(decide(view(State.PENDING, fault=REFUSED, max_restarts=5)))

    assert found.outcome.reason == REFUSED.reason
    assert (found.outcome.state, found.outcome.exit_code, found.restart) == (State.FAILED, 69, None)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(NotAllowed("no"), 77), (ConfigError("no"), 78), (UsageError("no"), 65), (LaunchRefused("no"), 69)],
)
def test_a_launch_that_was_refused_ends_with_the_code_of_a_command_that_meets_the_same(
    error: FabricError, exit_code: int
) -> None:
    found = finish_of(decide(view(State.PENDING, fault=classify_error(error, started=False))))

    assert found.outcome.exit_code == exit_code


def test_a_launch_that_raised_ends_what_it_started_before_it_fails_with_the_sentence() -> None:
    raised = view(State.PENDING, fault=RAISED)

    stopped: dict[str, Any] = {"fault": RAISED, "stop_sent": StopSent("kill", NOW, 1)}
    assert decide(raised).actions == (Stop("kill", 0.0),)
    removing = Transition(State.STORING, Reason("removing what its launch left"))
    assert decide(view(State.PENDING, **stopped)).actions == (removing,), (
        "a controller after this one must not launch it again"
    )
    assert decide(view(State.STORING, **stopped)).actions == (CleanUp(),)
    found = finish_of(decide(view(State.PENDING, **stopped, cleaned=True)))
    assert found.outcome.reason == RAISED.reason
    assert found.restart is not None and found.restart.platform_restarts == 1


@pytest.mark.parametrize(
    ("stopped", "text", "state"),
    [
        ("halt", "halted by stop_when: loss is 0.5, below 0.6 at step 2", State.HALTED),
        ("settle", "stopped, since learner 1 has ended", State.COMPLETED),
        ("kill", "killed by the controller", State.FAILED),
    ],
)
def test_learners_of_an_earlier_launch_that_something_else_ended_decide_though_a_later_launch_failed(
    stopped: str, text: str, state: State
) -> None:
    first = exited(1) if stopped == "settle" else exited(1, 1, stopped=stopped, reason=Reason(text))
    both = those(first, exited(2, 143, stopped=stopped, reason=Reason(text)))
    over = view(
        State.STORING,
        learners=2,
        ends_when="first",
        fault=RAISED,
        statuses=both,
        drained=True,
        max_restarts=1,
    )

    found = finish_of(decide(over))

    assert found.outcome.state is state
    assert (found.outcome.reason == RAISED.reason) == (found.restart is not None) == (state is State.FAILED)


def test_a_backend_that_is_away_is_tried_again_later_and_the_reason_says_so() -> None:
    assert decide(view(State.PENDING, trouble=AWAY, not_before=NOW + 3)) == Decision(
        (SetReason(AWAY.reason),), NOW + 3
    )
    assert decide(view(State.PENDING, trouble=AWAY, not_before=NOW)).actions == (StartLaunch(),)


def test_an_attempt_that_a_backend_could_not_even_be_asked_for_waits_as_one_never_launched() -> None:
    waits = (Transition(State.QUEUED, AWAY.reason),)

    assert decide(view(State.PENDING, trouble=AWAY, never_started=True)).actions == waits
    assert decide(view(State.PENDING, trouble=AWAY, never_started=True, intent=Intent.KILL)).actions == waits


def test_a_backend_that_goes_while_a_learner_is_being_started_is_reported() -> None:
    for phase in (LearnerPhase.STARTING, LearnerPhase.SETUP):
        away = view(State.PENDING, statuses=those(learner(1, phase)), unreachable="gpubox does not answer")

        assert decide(away).actions == (SetReason(Reason("gpubox does not answer", "S200")),)


def test_a_backend_that_is_away_leaves_the_state_of_a_running_job_alone() -> None:
    away = view(statuses=those(learner(1)), unreachable="gpubox does not answer")

    assert decide(away).actions == (SetReason(Reason("gpubox does not answer", "S200")),)


def test_a_launched_learner_that_is_not_seen_is_launched_again_three_times_and_then_given_up() -> None:
    launched: dict[str, Any] = {
        "launched_at": NOW - APPEARS_WITHIN_SECONDS,
        "reason": Reason("starting"),
    }

    assert decide(view(State.PENDING, launches=1, launched_at=NOW)).actions == ()
    assert decide(view(State.PENDING, launches=1, **launched)).actions == (StartLaunch(),)
    assert decide(view(State.PENDING, launches=3, **launched)).actions == (Stop("kill", 0.0),)


def test_a_halt_gives_the_grace_period_and_a_kill_none() -> None:
    running = those(learner(1))
    halt = decide(view(statuses=running, intent=Intent.HALT, asked_by="me@box", grace_seconds=12.0))
    kill = decide(view(statuses=running, intent=Intent.KILL))

    words = Reason("is being halted by me@box: it has 12 s to end by itself")
    assert halt.actions == (SetReason(words), Stop("halt", 12.0))
    assert kill.actions[-1] == Stop("kill", 0.0)


def test_a_stop_is_asked_for_again_until_the_backend_confirms_but_not_before_the_grace_is_over() -> None:
    halting: dict[str, Any] = {
        "intent": Intent.HALT,
        "statuses": those(learner(1)),
        "stop_sent": StopSent("halt", NOW - 20, 1),
    }

    assert decide(view(**halting)).until == NOW - 20 + 30 + 5
    assert decide(view(**halting, grace_seconds=1.0)).actions[-1] == Stop("halt", 1.0)


def test_a_kill_overtakes_a_halt_that_is_under_way() -> None:
    found = decide(view(statuses=those(learner(1)), intent=Intent.KILL, stop_sent=StopSent("halt", NOW, 1)))

    assert found.actions[-1] == Stop("kill", 0.0)


def test_a_halt_calls_off_a_launch_and_says_so_once() -> None:
    halting = decide(view(State.PENDING, operation=Operation.LAUNCH, intent=Intent.HALT))
    cancelling = view(
        State.PENDING, operation=Operation.LAUNCH, is_cancelling=True, intent=Intent.HALT, reason=Reason("x")
    )

    assert halting.actions[0] == CancelLaunch()
    assert CancelLaunch() not in decide(cancelling).actions


def test_a_halt_before_anything_was_seen_stops_first_so_that_nothing_wakes_up_later() -> None:
    assert decide(view(State.PENDING, intent=Intent.HALT)).actions[-1] == Stop("halt", 30.0)
    stopped: dict[str, Any] = {"intent": Intent.HALT, "stop_sent": StopSent("halt", NOW, 1)}
    (recorded,) = decide(view(State.PENDING, **stopped)).actions
    assert isinstance(recorded, Transition)
    assert recorded.state is State.STORING
    assert decide(view(State.STORING, **stopped)).actions == (CleanUp(),)
    assert finish_of(decide(view(State.PENDING, **stopped, cleaned=True))).outcome.state is State.HALTED


def test_the_end_waits_until_all_records_are_in_the_store() -> None:
    over: dict[str, Any] = {"statuses": those(exited(1))}

    assert decide(view(**over)).actions == (Drain(),)
    assert decide(view(**over, draining_since=NOW)) == Decision(until=NOW + 0.1)
    assert decide(view(**over, draining_since=NOW - 1)).actions == (
        Transition(State.STORING, Reason("storing results and logs")),
    )
    assert finish_of(decide(view(**over, drained=True))).outcome.state is State.COMPLETED


@pytest.mark.parametrize("intent", [Intent.HALT, Intent.KILL, Intent.DELETE])
def test_who_stops_a_job_does_not_wait_for_its_records_for_ever(intent: Intent) -> None:
    over: dict[str, Any] = {"state": State.STORING, "statuses": those(exited(1)), "draining_since": NOW - 600}

    assert decide(view(**over, collected_at=NOW - 600)).actions == ()
    on_their_way = over | {"draining_since": NOW - 1}
    assert decide(view(**on_their_way, intent=intent)).actions == ()
    assert decide(view(**over, intent=intent, collected_at=NOW - 1)) == Decision(until=NOW + 4)
    assert finish_of(decide(view(**over, intent=intent, collected_at=NOW - 600))).outcome.state is not None


FAILING: dict[str, Any] = {
    "state": State.STORING,
    "statuses": those(exited(1)),
    "draining_since": NOW - 600,
    "collect_failure": "node-1 does not answer",
}


@pytest.mark.parametrize(("intent", "patience"), [(Intent.HALT, 15), (Intent.KILL, 2), (Intent.DELETE, 2)])
def test_who_stops_a_job_does_not_wait_for_ever_for_files_that_its_backend_does_not_give(
    intent: Intent, patience: int
) -> None:
    waiting = decide(view(**FAILING, intent=intent, collect_failing_since=NOW - 1))
    ended = finish_of(decide(view(**FAILING, intent=intent, collect_failing_since=NOW - patience))).outcome

    assert waiting.until == NOW - 1 + patience
    assert ended.reason.text.endswith(
        "; its last output and files stay on the backend: node-1 does not answer"
    )


@pytest.mark.parametrize(("intent", "patience"), [(Intent.HALT, 600), (Intent.KILL, 30), (Intent.DELETE, 2)])
def test_a_stop_does_not_wait_for_ever_for_files_that_come(intent: Intent, patience: int) -> None:
    coming = FAILING | {"collect_failure": "", "intent": intent}
    asked_later = decide(view(**coming, stop_asked_at=NOW - 1))
    ended = finish_of(decide(view(**coming, stop_asked_at=NOW - patience))).outcome

    assert asked_later.until == NOW - 1 + patience
    assert ended.reason.text.endswith(
        f"; not all of its output and files had come after {patience} s: the rest comes later"
    )


def test_a_stop_that_an_earlier_controller_was_asked_for_waits_from_the_end_of_the_command() -> None:
    coming = FAILING | {"collect_failure": "", "intent": Intent.KILL}

    assert decide(view(**coming | {"draining_since": NOW - 1})).until == NOW + 29
    assert finish_of(decide(view(**coming))).outcome.reason.text.endswith("the rest comes later")


def test_files_that_come_are_waited_for_without_limit_where_nobody_stops_the_job() -> None:
    assert decide(view(**FAILING | {"collect_failure": ""})) == Decision()


def test_a_job_that_nobody_stops_waits_for_its_files_and_says_for_what() -> None:
    found = decide(view(**FAILING, collect_failing_since=NOW - 600))

    assert found.actions == (
        SetReason(Reason("its last output and files are waited for: node-1 does not answer", "S200")),
    )
    assert found.until is None


@pytest.mark.parametrize(("intent", "patience"), [(Intent.HALT, 15), (Intent.KILL, 2), (Intent.DELETE, 2)])
def test_a_stop_waits_for_the_files_of_a_backend_that_is_away_from_when_both_were_known(
    intent: Intent, patience: int
) -> None:
    away = FAILING | {"collect_failure": "", "intent": intent, "unreachable": "node-1 is away"}
    ended_later = away | {"draining_since": NOW - 1, "unreachable_since": NOW - 600}
    away_later = away | {"unreachable_since": NOW - 1}
    over = finish_of(decide(view(**away, unreachable_since=NOW - patience))).outcome

    for waits in (ended_later, away_later):
        found = decide(view(**waits))
        assert found.until == NOW - 1 + patience
        assert found.actions == (
            SetReason(Reason("its last output and files are waited for: node-1 is away", "S200")),
        )
    assert over.reason.text.endswith("; its last output and files stay on the backend: node-1 is away")


def test_a_new_controller_waits_no_longer_for_files_of_a_backend_that_was_away_before() -> None:
    restarted = FAILING | {"collect_failure": "", "intent": Intent.HALT, "draining_since": NOW - 1}
    found = decide(view(**restarted, unreachable_since=NOW - 1))

    assert found.until == NOW + 14
    assert reasons_of(found) == [
        "its last output and files are waited for: it has not answered since the controller was started"
    ]


@pytest.mark.parametrize("operation", [Operation.STOP, Operation.PROBE])
def test_a_stop_that_hangs_says_that_its_backend_does_not_answer(operation: Operation) -> None:
    found = decide(
        view(
            statuses=those(learner(1)),
            intent=Intent.KILL,
            asked_by="me",
            operation=operation,
            unreachable="node-1 is away",
        )
    )

    assert found.actions == (SetReason(Reason("is being killed by me; node-1 is away", "S200")),)


@pytest.mark.parametrize(("kind", "times"), [("halt", 3), ("kill", 5)])
def test_a_stop_that_was_repeated_often_says_that_it_is_not_confirmed(
    kind: Literal["halt", "kill"], times: int
) -> None:
    stopping: dict[str, Any] = {"statuses": those(learner(1)), "intent": Intent(kind), "asked_by": "me"}
    before = decide(view(**stopping, stop_sent=StopSent(kind, NOW, times - 1)))
    often = decide(view(**stopping, stop_sent=StopSent(kind, NOW, times)))
    text = f"is being {kind}ed by me; asked again, since the backend has not confirmed that it has ended"

    assert not reasons_of(before)[0].endswith("has ended")
    assert often.actions == (SetReason(Reason(text, "S200")),)


def test_files_that_came_after_all_leave_no_word_about_them() -> None:
    found = decide(view(**FAILING | {"collect_failure": ""}, drained=True, collected_at=NOW - 1))

    assert "stay on the backend" not in finish_of(found).outcome.reason.text


def test_files_that_were_given_up_are_named_in_the_reason() -> None:
    found = decide(view(**FAILING, drained=True, collected_at=NOW - 1))

    assert finish_of(found).outcome.reason.text.endswith(
        "; its last output and files stay on the backend: node-1 does not answer"
    )


def test_a_failure_with_restarts_left_begins_the_next_attempt() -> None:
    again = finish_of(decide(view(statuses=those(exited(1, 1)), drained=True, max_restarts=2, draw=0.5)))

    assert again.restart is not None
    assert (again.restart.restarts, again.restart.delay_seconds) == (1, 1.0)


def test_a_halted_job_is_not_restarted_even_if_it_failed_just_before() -> None:
    found = view(statuses=those(exited(1, 1)), drained=True, max_restarts=2, intent=Intent.HALT)

    assert finish_of(decide(found)).restart is None


def test_others_of_a_lost_learner_are_stopped_since_no_agent_tells_them() -> None:
    found = decide(view(learners=2, statuses=those(lost(1), learner(2))))

    assert found.actions == (Stop("halt", 30.0),)


def test_the_agents_have_their_time_to_settle_before_the_controller_steps_in() -> None:
    settling: dict[str, Any] = {"learners": 2, "statuses": those(exited(1), learner(2))}

    patient = decide(view(**settling, decided_since=NOW))
    assert patient.until == NOW + 60 + 30 + 10
    assert "60 s to end by themselves" in patient.actions[0].reason.text  # type: ignore[union-attr] # a Say
    assert decide(view(**settling, decided_since=NOW - 101)).actions == (Stop("halt", 30.0),)
    failed: dict[str, Any] = {"learners": 2, "statuses": those(exited(1, 1), learner(2))}
    assert decide(view(**failed, decided_since=NOW)).until == NOW + 30 + 10


def test_all_waits_for_all_without_impatience() -> None:
    waiting = view(learners=2, ends_when="all", statuses=those(exited(1), learner(2)), decided_since=None)

    assert decide(waiting) == Decision((SetReason(Reason("the command runs")),))


def test_why_output_waits_is_shown() -> None:
    full = Reason("the disk is full: output waits", "S204")

    assert decide(view(statuses=those(learner(1, reason=full)))).actions == (SetReason(full),)


def test_a_learner_that_should_be_there_and_is_not_is_looked_for_once_more() -> None:
    assert decide(view(statuses=those(learner(1)), learner_absent=True)).actions == (Probe(),)
    starting: dict[str, Any] = {"state": State.PENDING, "launches": 1}
    starting["statuses"] = those(learner(1, LearnerPhase.STARTING))
    assert decide(view(**starting, learner_absent=True)).actions == (Probe(),)


def test_an_attempt_of_which_a_learner_vanished_is_cleaned_up_before_it_ends() -> None:
    gone: dict[str, Any] = {"statuses": those(lost(1)), "vanished": True, "drained": True}

    assert decide(view(**gone)).actions == (CleanUp(),)
    assert decide(view(**gone, operation=Operation.REMOVE)).actions == ()
    assert decide(view(**gone, trouble=AWAY, not_before=NOW + 2)).until == NOW + 2
    assert finish_of(decide(view(**gone, cleaned=True))).outcome.exit_code == 75


def test_a_stop_that_waits_for_the_removal_of_a_vanished_learner_says_so() -> None:
    gone: dict[str, Any] = {"statuses": those(lost(1)), "vanished": True, "drained": True}
    waiting = decide(view(**gone, intent=Intent.KILL, asked_by="me", trouble=AWAY, not_before=NOW + 2))

    assert waiting.actions == (SetReason(Reason("is being killed by me; gpubox does not answer", "S200")),)


def test_a_learner_that_is_stopped_before_its_command_runs_is_not_shown_as_running() -> None:
    stopping = those(learner(1, LearnerPhase.STOPPING))

    decision = decide(view(State.PENDING, launches=1, statuses=stopping))

    assert decision.actions == (SetReason(Reason("a learner is being stopped by its backend")),)


def test_deleting_removes_at_the_backend_first_and_forgets_last() -> None:
    deleted: dict[str, Any] = {"state": State.HALTED, "intent": Intent.DELETE}

    assert decide(view(**deleted)).actions == (Remove(),)
    assert decide(view(**deleted, operation=Operation.REMOVE)).actions == ()
    assert decide(view(**deleted, trouble=AWAY, not_before=NOW + 5)).until == NOW + 5
    assert decide(view(**deleted, removed=True)).actions == (Purge(),)


def test_a_deleted_job_of_which_the_tombstone_is_written_is_looked_after_until_the_rest_is_gone() -> None:
    assert decide(view(State.HALTED, removed=True)).actions == (Purge(),)
    waiting = decide(view(State.HALTED, removed=True, trouble=AWAY, not_before=NOW + 5))
    assert (waiting.actions, waiting.until) == ((), NOW + 5)


def test_a_deleted_job_that_cannot_be_forgotten_now_is_tried_again_after_a_while() -> None:
    waiting = decide(view(State.HALTED, intent=Intent.DELETE, removed=True, trouble=AWAY, not_before=NOW + 5))

    assert waiting.until == NOW + 5
    assert Purge() not in waiting.actions


def test_a_stop_that_still_waits_for_its_answer_is_not_one_whose_backend_is_out_of_reach() -> None:
    pending = classify_error(AnswerPending("Pod x has not answered for 5 s"), started=False)
    waiting = decide(view(intent=Intent.HALT, asked_by="me", trouble=pending, not_before=NOW + 2))

    text = "is being halted by me; Pod x has not answered for 5 s"
    assert waiting.actions == (SetReason(Reason(text, "")),), "a command that waits for the halt waits on"


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.HALTED])
def test_nothing_is_left_to_do_for_what_has_ended(state: State) -> None:
    assert decide(view(state)).actions == (Untrack(),)


def test_learners_that_an_earlier_launch_started_and_that_have_ended_decide_though_a_later_launch_failed() -> (
    None
):
    fault = classify_error(RunnerError("the server failed"), started=True)
    ended = view(State.PENDING, fault=fault, statuses=those(exited(1)), drained=True)

    assert finish_of(decide(ended)).outcome.state is State.COMPLETED


AT_HOST = QueueVerdict(False, "waits: needs 2 GPUs, 1 free; 2nd of 3")


def waiting(number: int = 1, **what: Any) -> LearnerStatus:
    return learner(number, LearnerPhase.STARTING, waits=True, **what)


def handed_over(*statuses: LearnerStatus, **what: Any) -> JobSnapshot:
    return view(State.QUEUED, is_handed_over=True, statuses=those(*statuses), verdict=AT_HOST, **what)


def test_a_job_that_its_host_is_to_start_is_prepared_though_it_waits() -> None:
    verdict = QueueVerdict(False, "waits for 2 GPUs", hand_over=True)

    assert decide(view(State.QUEUED, verdict=verdict)).actions == (
        Transition(State.PENDING, Reason("waits for 2 GPUs")),
        StartLaunch(),
    )


@pytest.mark.parametrize("there", [{}, {"statuses": those(learner(1, LearnerPhase.STARTING, waits=True))}])
def test_the_reason_of_a_job_behind_many_changes_only_now_and_then(there: dict[str, Any]) -> None:
    near, far = QueueVerdict(False, "waits behind b"), QueueVerdict(False, "waits behind b", is_far=True)
    before = {"reason": Reason("waits behind a"), "is_handed_over": bool(there), **there}

    def decided(verdict: QueueVerdict, seconds: float | None) -> Decision:
        changed_at = None if seconds is None else NOW - seconds
        return decide(view(State.QUEUED, verdict=verdict, reason_changed_at=changed_at, **before))

    change = (SetReason(Reason("waits behind b")),)
    assert decided(near, 4.0).actions == change
    assert decided(far, 4.0) == Decision(until=NOW + 6.0)
    assert [decided(far, 11.0).actions, decided(far, None).actions] == [change, change]
    assert decide(
        view(State.QUEUED, verdict=far, reason_changed_at=NOW, **{**before, "reason": change[0].reason})
    ) == (Decision())


@pytest.mark.parametrize("state", [State.PENDING, State.DOWNLOADING])
def test_a_job_all_of_whose_learners_wait_at_their_host_is_queued_again(state: State) -> None:
    both = those(waiting(1), waiting(2))

    found = decide(view(state, learners=2, statuses=both, verdict=AT_HOST, launches=1, launched_at=NOW))

    assert found.actions == (Transition(State.QUEUED, Reason(AT_HOST.reason)),)


def test_a_job_that_waits_at_its_host_says_how_it_stands_there_and_that_nobody_can_ask() -> None:
    assert decide(handed_over(waiting())).actions == (SetReason(Reason(AT_HOST.reason)),)
    assert decide(handed_over(waiting(), reason=Reason(AT_HOST.reason))).actions == ()
    away = decide(handed_over(waiting(), unreachable="gpubox cannot be reached"))
    assert reasons_of(away) == ["waits at its host, which starts it; gpubox cannot be reached"]


def test_a_job_that_its_host_cannot_start_yet_says_why() -> None:
    full = Reason("the disk is full", "S204")

    assert decide(handed_over(waiting(reason=full))).actions == (SetReason(full),)


def test_a_job_that_its_host_has_started_is_pending_then_runs() -> None:
    started = learner(1)

    assert decide(handed_over(started)).actions == (Transition(State.PENDING, Reason("starting")),)
    assert decide(view(State.PENDING, statuses=those(started))).actions == (
        Transition(State.PROCESSING, Reason("the command runs")),
    )


def test_a_job_that_came_and_went_at_its_host_unseen_is_taken_for_one_that_ran() -> None:
    over = exited(1, 0)

    assert decide(handed_over(over)).actions == (Transition(State.PENDING, Reason("starting")),)
    assert decide(view(State.PENDING, statuses=those(over))).actions == (Drain(),)


@pytest.mark.parametrize("kind", ["halt", "kill"])
def test_a_stop_of_a_job_that_waits_at_its_host_is_asked_of_the_host_and_not_taken_for_granted(
    kind: Literal["halt", "kill"],
) -> None:
    intent = Intent.HALT if kind == "halt" else Intent.KILL
    asked = decide(handed_over(waiting(), intent=intent))
    away = handed_over(
        waiting(), intent=intent, unreachable="gpubox cannot be reached", stop_sent=StopSent(kind, NOW, 1)
    )

    assert any(isinstance(action, Stop) and action.kind == kind for action in asked.actions)
    assert not any(isinstance(action, Finish) for action in decide(away).actions)
    assert "gpubox cannot be reached" in reasons_of(decide(away))[0]


def test_a_job_that_was_stopped_while_it_waited_at_its_host_ends_without_having_run() -> None:
    stopped = exited(1, None, stopped="halt", started_us=None, signal=9)
    sent = StopSent("halt", NOW, 1)
    asked = handed_over(stopped, intent=Intent.HALT, stop_sent=sent, draining_since=NOW, drained=True)

    found = finish_of(decide(asked))

    assert (found.outcome.state, found.outcome.exit_code) == (State.HALTED, 143)


def test_a_job_whose_waiter_died_is_given_to_its_host_again() -> None:
    cut_off = learner(1, LearnerPhase.STARTING, cut_off=True)

    assert decide(handed_over(cut_off)).actions == (StartLaunch(),)
    again = handed_over(cut_off, launches=1, launched_at=NOW)
    assert decide(again) == Decision(until=NOW + 2.0)


NEVER = QueueVerdict(False, never="it comes after abc, which failed")


@pytest.mark.parametrize("cut_off", [False, True])
def test_a_job_that_waits_at_its_host_in_vain_fails_once_its_host_confirms_that_it_starts_it_no_more(
    cut_off: bool,
) -> None:
    there = learner(1, LearnerPhase.STARTING, waits=not cut_off, cut_off=cut_off)
    asked = decide(replace(handed_over(there), verdict=NEVER))
    assert asked.actions == (Stop("kill", 0.0),)

    ended = exited(1, None, stopped="kill", started_us=None)
    sent = StopSent("kill", NOW, 1)
    confirmed = handed_over(ended, stop_sent=sent, draining_since=NOW, drained=True, max_restarts=3)
    found = finish_of(decide(replace(confirmed, verdict=NEVER)))

    assert (found.outcome.state, found.outcome.reason.code) == (State.FAILED, "C105")
    assert found.outcome.reason.text == NEVER.never
    assert found.restart is None


def test_a_job_that_its_host_has_started_meanwhile_does_not_fail_for_the_one_before_it() -> None:
    started = replace(handed_over(learner(1)), verdict=NEVER)

    assert decide(started).actions == (Transition(State.PENDING, Reason("starting")),)


def test_a_job_that_somebody_halts_while_it_waits_in_vain_is_halted() -> None:
    stopped = exited(1, None, stopped="halt", started_us=None)
    sent = StopSent("halt", NOW, 1)
    asked = handed_over(stopped, intent=Intent.HALT, stop_sent=sent, draining_since=NOW, drained=True)

    assert finish_of(decide(replace(asked, verdict=NEVER))).outcome.state is State.HALTED


@pytest.mark.parametrize(
    "wait",
    [pytest.param(HostWait("waits for abc"), id="a gate"), pytest.param(None, id="GPUs")],
)
def test_what_is_done_for_a_job_ahead_of_its_turn_is_shown_where_it_takes_long(wait: HostWait | None) -> None:
    verdict = QueueVerdict(False, "waits for abc", hand_over=True, wait=wait)
    early = view(
        State.PENDING,
        operation=Operation.LAUNCH,
        verdict=verdict,
        preparing=Preparing("downloading code", "preparing", NOW - 1.0),
    )

    assert decide(early) == Decision(until=NOW + 2.0)
    later = replace(early, now=NOW + 2.0)
    assert decide(later).actions == (SetReason(Reason("downloading code")),), "it has not begun"


def test_a_job_that_waits_at_its_host_keeps_its_reason_until_the_host_was_asked() -> None:
    assert decide(handed_over(waiting(), is_observed=False)).actions == ()


@pytest.mark.parametrize(
    "keys", [{"after": ("a:completed",)}, {"begin": "2090-01-01T00:00:00"}, {"cpus": 2.0}]
)
@pytest.mark.parametrize("state", [State.PENDING, State.DOWNLOADING])
def test_what_a_controller_before_prepared_is_launched_once_it_is_known_whether_it_is_held_back(
    state: State, keys: dict[str, Any]
) -> None:
    found = view(state, verdict=None, **keys)

    assert decide(found) == Decision()
    assert decide(replace(found, verdict=AT_HOST)).actions == (StartLaunch(),)
    assert decide(view(state, verdict=None)).actions == (StartLaunch(),)


FOLLOWED = Followed(attempt=2, begin_us=5_000, delay_seconds=1.2)


@pytest.mark.parametrize("intent", [Intent.NONE, Intent.HALT, Intent.KILL, Intent.DELETE])
def test_an_attempt_that_its_host_has_followed_by_another_fails_and_hands_on_to_that(intent: Intent) -> None:
    """Whatever is asked of the job concerns the next attempt, which may run."""
    failed = exited(1, 3, followed_by=FOLLOWED)
    job = view(statuses=those(failed), drained=True, intent=intent, max_restarts=2)

    finish = finish_of(decide(job))

    assert (finish.outcome.state, finish.outcome.exit_code, finish.followed) == (State.FAILED, 3, FOLLOWED)
    assert finish.restart is not None
    assert (finish.restart.restarts, finish.restart.platform_restarts) == (1, 0)
    assert finish.restart.text == "restart 1 of 2 in 1 s, since the command ended with exit code 3"


def test_the_next_attempt_of_several_learners_is_named_by_the_last_of_them() -> None:
    failed = exited(1, 3, ended_us=1, decided=True)
    settled = exited(2, stopped="settle", ended_us=2, followed_by=FOLLOWED)
    job = view(statuses=those(failed, settled), drained=True, max_restarts=2, learners=2)

    finish = finish_of(decide(job))

    assert finish.followed == FOLLOWED
    assert finish.restart is not None
    assert finish.restart.text == "restart 1 of 2 in 1 s, since learner 1: the command ended with exit code 3"


def test_no_attempt_follows_beyond_the_restarts_that_there_may_be() -> None:
    """The state may have been written by the job itself."""
    failed = exited(1, 3, followed_by=FOLLOWED)
    job = view(statuses=those(failed), drained=True, restarts=1, max_restarts=1)

    assert finish_of(decide(job)).followed is None
    watched = finish_of(decide(replace(job, is_watched=True)))
    assert watched.followed == FOLLOWED, "a laptop that only watches does not know the limit"


KILLED_AGENT = Reason("the agent was killed while the command ran", "S202")


def test_what_a_host_has_followed_after_a_fault_of_the_platform_counts_as_one_of_those() -> None:
    ended = exited(1, None, reason=KILLED_AGENT, followed_by=FOLLOWED)
    job = view(statuses=those(ended), drained=True, max_platform_restarts=3, platform_restarts=1, restarts=2)

    finish = finish_of(decide(job))

    assert (finish.outcome.state, finish.followed) == (State.FAILED, FOLLOWED)
    assert finish.restart is not None
    assert (finish.restart.restarts, finish.restart.platform_restarts) == (2, 2)
    text = "platform restart 2 of 3 in 1 s, since the agent was killed while the command ran"
    assert finish.restart.text == text
    assert finish_of(decide(replace(job, platform_restarts=3))).followed is None


PREEMPTED = Reason("preempted: bob's job needs its GPUs", "S106")


def test_the_next_attempt_of_who_was_preempted_is_its_hosts_though_no_restart_is_left() -> None:
    ended = exited(1, 0, stopped="preempt", reason=PREEMPTED, followed_by=FOLLOWED)

    finish = finish_of(decide(view(statuses=those(ended), drained=True)))

    assert finish.followed == FOLLOWED
    assert finish.restart is not None
    assert (finish.restart.restarts, finish.restart.platform_restarts) == (0, 0)


def test_several_learners_that_were_preempted_begin_again_unless_the_job_is_only_watched() -> None:
    ended = (exited(number, 0, stopped="preempt", reason=PREEMPTED) for number in (1, 2))
    job = view(statuses=those(*ended), drained=True, learners=2)

    finish = finish_of(decide(job))
    assert finish.restart is not None and finish.restart.platform_restarts == 0
    assert finish_of(decide(replace(job, is_watched=True))).restart is None


def test_no_log_policy_keeps_who_was_preempted_from_beginning_again() -> None:
    ended = exited(1, 1, stopped="preempt", reason=PREEMPTED)
    match = LogMatch("oom", "exclude_node", "out of memory", 1, "box")

    assert finish_of(decide(view(statuses=those(ended), drained=True, log_matches=(match,)))).restart


def test_that_a_job_makes_room_is_shown_while_it_saves_and_is_no_fault() -> None:
    saving = learner(1, LearnerPhase.STOPPING, stopped="preempt", reason=PREEMPTED)

    (action,) = decide(view(statuses=those(saving))).actions

    assert action == SetReason(Reason(PREEMPTED.text))


def test_learners_that_make_room_have_all_of_their_time() -> None:
    ended = exited(1, 0, stopped="preempt", reason=PREEMPTED, decided=True)
    job = view(
        statuses=those(ended, learner(2)), learners=2, grace_seconds=1.0, preemption_seconds=300.0,
        decided_since=NOW,
    )  # fmt: skip

    assert reasons_of(decide(job)) == ["learner 1 was preempted; the others are being stopped"]
    assert decide(job).until == NOW + AGENTS_PATIENCE_SECONDS + 300.0


def test_what_is_asked_of_a_job_does_not_wait_for_the_files_of_an_attempt_that_was_followed() -> None:
    failed = exited(1, 3, followed_by=FOLLOWED)
    draining = view(State.STORING, statuses=those(failed), draining_since=NOW, max_restarts=2)

    assert decide(draining).actions == ()
    finish = finish_of(decide(replace(draining, intent=Intent.KILL)))
    assert (finish.followed, finish.outcome.reason.text) == (FOLLOWED, "the command ended with exit code 3")


def test_a_laptop_that_only_watches_starts_nothing() -> None:
    lost_there = view(State.QUEUED, is_handed_over=True, is_watched=True, statuses={}, verdict=AT_HOST)

    (action,) = decide(lost_there).actions
    assert isinstance(action, SetReason)
    assert "the laptop that it belongs to" in action.reason.text


def test_another_attempt_than_the_next_one_is_not_taken_for_it() -> None:
    failed = exited(1, 3, followed_by=Followed(7, 5_000, 1.0))
    finish = finish_of(decide(view(statuses=those(failed), drained=True, max_restarts=1)))

    assert finish.followed is None


@pytest.mark.parametrize("intent", [Intent.NONE, Intent.KILL])
def test_an_end_on_record_is_no_end_before_the_host_shows_whether_it_has_begun_the_next_attempt(
    intent: Intent,
) -> None:
    known = view(
        statuses=those(exited(1, 3)), may_be_followed=True, is_observed=False, drained=True, intent=intent
    )
    away = decide(replace(known, unreachable="gpubox cannot be reached"))

    assert not [one for one in decide(known).actions if not isinstance(one, SetReason)]
    assert [reason for reason in reasons_of(away) if "gpubox cannot be reached" in reason]
