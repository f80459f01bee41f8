"""Decides how an attempt ended, from how its learners ended and what people asked for. Pure."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from runners.interface import LearnerStatus
from workbench.job import (
    EXIT_HALTED,
    EXIT_KILLED,
    EXIT_LOST,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_TIMED_OUT,
    PREEMPTED,
    FaultOwner,
    Intent,
    LearnerPhase,
    Reason,
    State,
    exit_code_of,
    refused_exit_code,
)
from workbench.learner.journal.launch_document import PREEMPT
from workbench.values import dataclass

ExitBy = Literal["job", "halt", "kill", "lost", "timeout", "preempt", ""]
"""What the exit code comes from; empty for fabric itself."""

OVER: Final = frozenset({LearnerPhase.EXITED, LearnerPhase.LOST})

_OWN_ENDS: Final = frozenset({"", "max_runtime", "memory", PREEMPT})
"""Values of ``stopped`` of a learner that was not stopped by a person or because of another learner."""

STOPS: Final = frozenset({"halt", "kill"})
"""Values of ``stopped`` of a learner that a person has stopped, or a rule for somebody."""

REFUSED: Final = ("C1", "C205")
"""Prefixes of reason codes: faults of the job that keep it from starting."""

UNSTORED: Final = "S303"
"""The reason code of results that could not be stored."""

UNSAVED: Final = "S206"
"""The reason code of a command whose end is known, while its last output may have gone with its killed agent."""

RESUMES: Final = "fabric resume continues from its last checkpoint"

_STOP_CODES: Final = frozenset({EXIT_HALTED, EXIT_KILLED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt."""

    state: State
    reason: Reason
    exit_code: int
    exit_by: ExitBy
    final: bool = False
    """Whether another attempt could not help."""


def judge(
    learners: Mapping[int, LearnerStatus],
    *,
    ends_when: Literal["first", "all"] | int,
    intent: Intent,
    asked_by: str,
) -> Outcome:
    """Return how an attempt ended; all of its learners are over or were never started.

    A learner that ended by itself before a stop reached it still decides: a job that had completed is not halted.

    Args:
        learners: the last status of each learner, by number.
        ends_when: which learners have to succeed.
        intent: what a person asked for.
        asked_by: who asked for it, as the reason shows it.
    """
    deciding = decider(learners.values(), ends_when=ends_when, intent=intent)
    if deciding is None:
        return _stopped(learners.values(), intent, asked_by)
    who = f"learner {deciding.ref.learner}: " if len(learners) > 1 else ""
    preempted = next((one for one in learners.values() if one.stopped == PREEMPT), None)
    if preempted is not None and intent is Intent.NONE and (deciding.stopped == PREEMPT or failed(deciding)):
        # One that fails beside it has lost its peer.
        who = f"learner {preempted.ref.learner}: " if len(learners) > 1 else ""
        return Outcome(State.FAILED, _prefixed(who, _of_preemption(preempted)), EXIT_LOST, "preempt")
    if deciding.phase is LearnerPhase.LOST:
        found = deciding.reason or Reason("the learner is gone and no exit is recorded", "S104")
        return Outcome(State.FAILED, _prefixed(who, found), EXIT_LOST, "lost", final=deciding.final)
    code = exit_code_of(deciding.exit_code, deciding.signal)
    if deciding.stopped == "max_runtime":
        found = deciding.reason or Reason("max_runtime is over", "C204")
        return Outcome(State.FAILED, _prefixed(who, found), EXIT_TIMED_OUT, "timeout", final=True)
    if intent in (Intent.KILL, Intent.DELETE) and code == 0 and any(map(_is_unstored, learners.values())):
        return _stopped(learners.values(), intent, asked_by)  # killed while it stored its results
    if deciding.reason is not None and deciding.reason.code == UNSAVED:
        return _with_unsaved_output(deciding.reason, who, deciding, code)
    if deciding.reason is not None and deciding.reason.fault is FaultOwner.PLATFORM:
        # The training is done: another attempt would repeat it.
        return Outcome(
            State.FAILED, _prefixed(who, deciding.reason), EXIT_LOST, "lost", final=_is_unstored(deciding)
        )
    if code == 0 and (unstored := next((one for one in learners.values() if _is_unstored(one)), None)):
        assert unstored.reason is not None
        return Outcome(State.FAILED, _prefixed(who, unstored.reason), EXIT_LOST, "lost", final=True)
    if code == 0:
        return Outcome(State.COMPLETED, Reason(who + "the command ended with exit code 0"), 0, "job")
    found = deciding.reason or _reason_of(deciding)
    if code is None and deciding.started_us is None and found.code.startswith(REFUSED):
        return Outcome(State.FAILED, _prefixed(who, found), refused_exit_code(found.code), "")
    fallback = EXIT_KILLED if deciding.stopped == "memory" else 1
    return Outcome(State.FAILED, _prefixed(who, found), fallback if code is None else code, "job")


def _with_unsaved_output(reason: Reason, who: str, deciding: LearnerStatus, code: int | None) -> Outcome:
    """Return how a command ended whose last output may be missing: as it did, for another attempt would repeat it."""
    if code == 0:
        text = f"{who}the command ended with exit code 0; {reason.text}"
        return Outcome(State.COMPLETED, Reason(text, reason.code, reason.hint), 0, "job")
    found = _reason_of(deciding)
    text = f"{who}{found.text}; {reason.text}"
    return Outcome(State.FAILED, Reason(text, found.code, found.hint), 1 if code is None else code, "job")


def decider(
    learners: Iterable[LearnerStatus], *, ends_when: Literal["first", "all"] | int, intent: Intent
) -> LearnerStatus | None:
    """Return the learner whose end decides the job: the first failure, else the success that ``ends_when`` names.

    None when every learner was stopped, or so many that those which had ended before are not enough. A decision that an
    agent recorded goes before the order of times.
    """
    over = [learner for learner in learners if learner.phase in OVER]
    own = sorted((learner for learner in over if _ended_by_itself(learner, intent)), key=_order)
    for learner in own:
        if learner.decided:
            return learner
    for learner in own:
        if failed(learner):
            return learner
    if not own:
        return None
    needed = {"first": 1, "all": len(over)}.get(str(ends_when)) or int(ends_when)
    is_stopped = intent is not Intent.NONE or any(one.stopped in STOPS for one in over)
    if len(own) < needed and is_stopped:
        return None  # those that had ended when the others were stopped were not enough
    return own[min(needed, len(own)) - 1]


def failed(learner: LearnerStatus) -> bool:
    """Say whether a learner that is over ended badly."""
    if learner.stopped == PREEMPT:
        return True  # whatever its exit code is, its work is not done
    return learner.phase is LearnerPhase.LOST or exit_code_of(learner.exit_code, learner.signal) != 0


def _is_unstored(learner: LearnerStatus) -> bool:
    """Say whether a learner's command succeeded and its results could not be stored."""
    return learner.reason is not None and learner.reason.code == UNSTORED


def _ended_by_itself(learner: LearnerStatus, intent: Intent) -> bool:
    if learner.stopped not in _OWN_ENDS:
        return False
    if learner.stopped == PREEMPT:
        return intent is Intent.NONE  # else no other attempt follows, as was asked
    if intent is Intent.NONE or learner.stopped:
        return True
    # Runners whose agent is dead end its processes from outside, which leaves nobody to say "halt".
    return (
        learner.phase is LearnerPhase.EXITED
        and exit_code_of(learner.exit_code, learner.signal) not in _STOP_CODES
    )


def _order(learner: LearnerStatus) -> tuple[bool, int, int]:
    ended = learner.ended_us
    return (ended is None, ended or 0, learner.ref.learner)


def _stopped(learners: Collection[LearnerStatus], intent: Intent, asked_by: str) -> Outcome:
    killed = intent in (Intent.KILL, Intent.DELETE) or (
        intent is Intent.NONE and any(learner.stopped == "kill" for learner in learners)
    )
    verb = "killed" if killed else "halted"
    suffix = ", to be deleted" if intent is Intent.DELETE else ""
    text = f"{verb} by {asked_by}{suffix}" if asked_by else f"{verb}{suffix}"
    if intent is Intent.NONE:
        # Nobody here asked for it: its agent followed a rule, or another laptop did.
        reasons = [one.reason.text for one in learners if one.reason is not None and one.stopped]
        text = next((reason for reason in reasons if reason.startswith(f"{verb} by ")), text)
    hint = "" if intent is Intent.DELETE else RESUMES
    unstored = next((one.reason for one in learners if _is_unstored(one)), None)
    if unstored is not None and unstored.text not in text:
        text = unstored.text if unstored.text.startswith(text) else f"{text}; {unstored.text}"
        hint = unstored.hint
    if killed:
        return Outcome(State.HALTED, Reason(text, hint=hint), EXIT_KILLED, "kill", final=True)
    return Outcome(State.HALTED, Reason(text, hint=hint), EXIT_HALTED, "halt", final=True)


def _of_preemption(learner: LearnerStatus) -> Reason:
    """Return why a learner was preempted, and what else is known of its end."""
    found = learner.reason
    if found is not None and found.code == PREEMPTED:
        return found
    text = "preempted: a job of a higher priority needs its GPUs"
    return Reason(text if found is None else f"{text}; {found.text}", PREEMPTED)


def _reason_of(learner: LearnerStatus) -> Reason:
    if learner.stopped == "memory":
        return Reason("the job used more memory than its limit", "C203")
    if learner.signal is not None:
        return Reason(f"the command was ended by {_signal_name(learner.signal)}", "C201")
    if learner.exit_code == EXIT_NOT_FOUND:
        return Reason("the command was not found (exit code 127)", "C202")
    if learner.exit_code == EXIT_NOT_EXECUTABLE:
        return Reason("the command cannot be executed (exit code 126)", "C202")
    if learner.exit_code is None:
        return Reason("the command failed and left no exit code", "C201")
    return Reason(f"the command ended with exit code {learner.exit_code}", "C201")


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _prefixed(who: str, reason: Reason) -> Reason:
    return Reason(who + reason.text, reason.code, reason.hint) if who else reason
