"""How attempts end: state, exit code and whose code it is, from every way that learners can end."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.interface import LearnerStatus
from tests.quick.controller.values import exited, lost, those
from workbench.controller.decide.outcome import Outcome, judge
from workbench.job import TERMINAL, Intent, Reason, State


def ended(*learners: LearnerStatus, ends_when: object = "first", intent: Intent = Intent.NONE) -> Outcome:
    return judge(those(*learners), ends_when=ends_when, intent=intent, asked_by="me@box")  # type: ignore[arg-type]


def end_of(outcome: Outcome) -> tuple[State, int, str]:
    return outcome.state, outcome.exit_code, outcome.exit_by


def test_a_command_that_ends_with_0_completes() -> None:
    assert end_of(ended(exited(1))) == (State.COMPLETED, 0, "job")


def test_a_command_that_fails_keeps_its_own_exit_code() -> None:
    outcome = ended(exited(1, 3))

    assert end_of(outcome) == (State.FAILED, 3, "job")
    assert outcome.reason == Reason("the command ended with exit code 3", "C201")


def test_a_signal_becomes_128_and_its_number_and_is_named() -> None:
    outcome = ended(exited(1, None, signal=signal.SIGSEGV))

    assert end_of(outcome) == (State.FAILED, 139, "job")
    assert "SIGSEGV" in outcome.reason.text


@pytest.mark.parametrize(("code", "word"), [(127, "not found"), (126, "cannot be executed")])
def test_a_command_that_is_not_there_or_not_executable_is_distinguished(code: int, word: str) -> None:
    outcome = ended(exited(1, code))

    assert (outcome.exit_code, outcome.reason.code) == (code, "C202")
    assert word in outcome.reason.text


def test_the_agents_own_reason_is_kept() -> None:
    why = Reason("the job used 2.1 GiB, its limit is 2 GiB", "C203", "raise memory")

    outcome = ended(exited(1, None, signal=9, stopped="memory", reason=why))

    assert (outcome.reason, outcome.exit_code) == (why, 137)


PREEMPTED = Reason("preempted: bob's job training-x, of priority 70, needs its GPUs", "S106")


@pytest.mark.parametrize("code", [0, 1, 143, None])
def test_who_was_preempted_has_not_failed_by_itself_whatever_its_exit_code(code: int | None) -> None:
    outcome = ended(exited(1, code, stopped="preempt", reason=PREEMPTED))

    assert end_of(outcome) == (State.FAILED, 75, "preempt")
    assert (outcome.reason, outcome.final) == (PREEMPTED, False)


def test_what_else_is_known_of_a_preempted_end_is_kept() -> None:
    outcome = ended(exited(1, 0, stopped="preempt", reason=Reason("2 files are not stored", "S303")))

    assert outcome.reason.code == "S106"
    assert "2 files are not stored" in outcome.reason.text


@pytest.mark.parametrize("intent", [Intent.HALT, Intent.KILL])
def test_who_is_stopped_while_it_makes_room_is_halted(intent: Intent) -> None:
    assert ended(exited(1, 0, stopped="preempt", reason=PREEMPTED), intent=intent).state is State.HALTED


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param(exited(2, 1, decided=True), "preempt", id="that lost its peer"),
        pytest.param(lost(2), "preempt", id="that is lost"),
        pytest.param(exited(2, 0, stopped="settle"), "preempt", id="that was stopped with it"),
        pytest.param(exited(2, 0, decided=True), "job", id="whose success decided before"),
    ],
)
def test_a_learner_beside_one_that_was_preempted(other: LearnerStatus, expected: str) -> None:
    outcome = ended(exited(1, 0, stopped="preempt", reason=PREEMPTED), other)

    assert outcome.exit_by == expected
    assert outcome.state is (State.COMPLETED if expected == "job" else State.FAILED)
    if expected == "preempt":
        assert outcome.reason.text.startswith("learner 1: preempted: ")


def test_a_time_limit_is_124_and_final() -> None:
    outcome = ended(exited(1, 143, stopped="max_runtime"))

    assert end_of(outcome) == (State.FAILED, 124, "timeout")
    assert outcome.final and outcome.reason.code == "C204"


def test_a_lost_learner_fails_the_attempt_with_75_and_an_s_code() -> None:
    outcome = ended(lost(1))

    assert end_of(outcome) == (State.FAILED, 75, "lost")
    assert outcome.reason.code == "S104"


def test_an_agent_that_was_killed_is_the_platforms_fault() -> None:
    outcome = ended(exited(1, 137, reason=Reason("the agent was killed", "S202")))

    assert end_of(outcome) == (State.FAILED, 75, "lost")


@pytest.mark.parametrize(
    ("code", "end", "reason_code"),
    [(0, (State.COMPLETED, 0, "job"), "S206"), (7, (State.FAILED, 7, "job"), "C201")],
    ids=["success", "failure"],
)
def test_output_that_may_be_missing_is_reported_and_does_not_repeat_the_training(
    code: int, end: tuple[State, int, str], reason_code: str
) -> None:
    outcome = ended(exited(1, code, reason=Reason("output may be missing", "S206")))

    assert end_of(outcome) == end
    assert outcome.reason == Reason(
        f"the command ended with exit code {code}; output may be missing", reason_code
    )


@pytest.mark.parametrize(
    ("intent", "stopped", "code", "by", "words"),
    [
        (Intent.HALT, "halt", 143, "halt", "halted by me@box"),
        (Intent.KILL, "kill", 137, "kill", "killed by me@box"),
        (Intent.DELETE, "kill", 137, "kill", "killed by me@box, to be deleted"),
    ],
)
def test_what_was_stopped_for_a_person_is_halted_by_name(
    intent: Intent, stopped: str, code: int, by: str, words: str
) -> None:
    # A command that catches SIGTERM, saves and ends with 0 was halted, not completed.
    outcome = ended(exited(1, 0, stopped=stopped), intent=intent)

    assert end_of(outcome) == (State.HALTED, code, by)
    assert outcome.reason.text == words


@pytest.mark.parametrize(("code", "state"), [(0, State.COMPLETED), (3, State.FAILED)])
def test_what_ended_by_itself_before_the_stop_reached_it_is_not_called_halted(
    code: int, state: State
) -> None:
    assert end_of(ended(exited(1, code), intent=Intent.HALT)) == (state, code, "job")


def test_a_stop_from_outside_that_no_agent_could_note_is_a_halt_all_the_same() -> None:
    assert ended(lost(1), intent=Intent.KILL).state is State.HALTED
    assert ended(exited(1, None, signal=signal.SIGTERM), intent=Intent.HALT).state is State.HALTED


def test_a_halt_before_anything_was_started_needs_no_learner() -> None:
    assert end_of(ended(intent=Intent.HALT)) == (State.HALTED, 143, "halt")
    assert end_of(ended(intent=Intent.DELETE)) == (State.HALTED, 137, "kill")


def test_first_takes_the_first_to_end_and_blames_no_one_that_was_settled() -> None:
    outcome = ended(exited(1, 143, stopped="settle", ended_us=9), exited(2, 0, ended_us=5, decided=True))

    assert end_of(outcome) == (State.COMPLETED, 0, "job")
    assert outcome.reason.text.startswith("learner 2: ")


def test_the_first_failure_decides_whatever_ended_well_before() -> None:
    outcome = ended(
        exited(1, 0, ended_us=1), exited(2, 7, ended_us=2), exited(3, 8, ended_us=3), ends_when="all"
    )

    assert end_of(outcome) == (State.FAILED, 7, "job")


def test_what_the_agents_wrote_down_as_decision_goes_before_any_time() -> None:
    outcome = ended(exited(1, 5, ended_us=1), exited(2, 6, ended_us=2, decided=True))

    assert outcome.exit_code == 6


def test_a_failure_while_the_others_settle_after_a_success_is_not_blamed() -> None:
    outcome = ended(exited(1, 0, ended_us=1, decided=True), exited(2, 1, ended_us=2))

    assert outcome.state is State.COMPLETED


def test_a_number_waits_for_so_many() -> None:
    three = (exited(1, 0, ended_us=3), exited(2, 0, ended_us=1), exited(3, 0, ended_us=2))

    assert ended(*three, ends_when=2).reason.text.startswith("learner 3")
    assert ended(*three, ends_when="all").reason.text.startswith("learner 1")
    assert ended(*three, ends_when="first").reason.text.startswith("learner 2")


def test_a_job_of_which_not_all_had_ended_when_it_was_halted_is_halted() -> None:
    some = (exited(1, 0, stopped="halt", ended_us=2), exited(2, 0, ended_us=1))

    assert ended(*some, ends_when="all", intent=Intent.HALT).state is State.HALTED
    assert ended(*some, ends_when="first", intent=Intent.HALT).state is State.COMPLETED
    assert (
        ended(*some, ends_when="all").state is State.HALTED
    )  # by a rule that its host follows, or another laptop
    all_of_them = (exited(1, 0, ended_us=2), exited(2, 0, ended_us=1))
    assert ended(*all_of_them, ends_when="all", intent=Intent.HALT).state is State.COMPLETED


ends = st.builds(
    lambda number, code, sig, stopped, gone, decided, at: (
        lost(number)
        if gone
        else exited(number, None if sig else code, signal=sig, stopped=stopped, decided=decided, ended_us=at)
    ),
    st.integers(1, 5),
    st.sampled_from([0, 1, 126, 127, 143]),
    st.sampled_from([None, 9, 15, 64]),
    st.sampled_from(["", "halt", "kill", "settle", "max_runtime", "memory"]),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 9)),
)


@given(st.lists(ends, max_size=5), st.sampled_from(["first", "all", 1, 3]), st.sampled_from(list(Intent)))
def test_every_end_has_a_state_a_reason_in_words_and_a_code_that_fits(
    learners: list[LearnerStatus], ends_when: object, intent: Intent
) -> None:
    outcome = ended(*learners, ends_when=ends_when, intent=intent)

    assert outcome.state in TERMINAL
    assert outcome.reason.text
    assert (outcome.exit_code == 0) == (outcome.state is State.COMPLETED)
    assert (outcome.reason.fault is not None) == (outcome.state is State.FAILED)
    if outcome.state is State.HALTED:
        assert (outcome.exit_code, outcome.exit_by) in ((143, "halt"), (137, "kill"))


@pytest.mark.parametrize(("intent", "state"), [(Intent.KILL, State.HALTED), (Intent.NONE, State.FAILED)])
def test_a_kill_while_results_are_stored_is_a_kill_that_names_what_is_not_stored(
    intent: Intent, state: State
) -> None:
    unstored = Reason("2 of its files are not stored", "S303", "fabric store retry x")
    outcome = ended(exited(1), exited(2, reason=unstored), intent=intent)

    assert outcome.state is state
    assert unstored.text in outcome.reason.text
    assert outcome.reason.hint == unstored.hint
