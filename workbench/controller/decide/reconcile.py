"""Decides what to do next for one job, from its snapshot: the heart of the controller. Pure.

Level-triggered: every decision is made from how things are, never from what happened, so it does not matter
how often it is made, in which order events came, or whether this controller or one before it began the work.

What holds at all times: a QUEUED attempt was never launched, unless it was handed over to its host; an attempt ends
only when every learner of it is known to be over or never to have started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from runners.interface import Followed, LearnerStatus
from workbench.controller.decide.log_policies import bar_to_restart
from workbench.controller.decide.model import (
    BackendTrouble,
    CancelLaunch,
    CleanUp,
    Decision,
    Drain,
    Finish,
    JobSnapshot,
    Operation,
    Probe,
    ProbePrevious,
    Purge,
    Remove,
    SetReason,
    StartLaunch,
    Stop,
    Transition,
    Untrack,
)
from workbench.controller.decide.outcome import OVER, STOPS, Outcome, decider, failed, judge
from workbench.controller.decide.restarts import Restart, begun_at_host, next_attempt
from workbench.controller.decide.scheduler import AT_ITS_HOST
from workbench.job import (
    BEFORE_THE_COMMAND,
    EXIT_FAULTY,
    EXIT_LOST,
    PREPARING,
    TERMINAL,
    FaultOwner,
    Intent,
    LearnerPhase,
    Reason,
    State,
    refused_exit_code,
)
from workbench.learner.journal.launch_document import PREEMPT
from workbench.learner.journal.stop_rules import BY

SHOWN_AFTER_SECONDS: Final = 0.1
"""A shorter phase gets no state of its own: writing it would cost more than it says."""

LEFT_THERE: Final = "; its last output and files stay on the backend"
STILL_COMING: Final = "; not all of its output and files had come after"
"""How an attempt's reason says that not all is here. Nothing comes behind it."""

AHEAD_SHOWN_AFTER_SECONDS: Final = 3.0
"""What is done for an attempt that waits anyway is shown where it takes long: until then the reason is why it waits."""

FAR_REASON_EVERY_SECONDS: Final = 10.0
"""How often the reason is changed at most of a job that waits behind many: each of them that starts changes it."""

REASON_EVERY_SECONDS: Final = 1.0
"""How often the reason of a long launch may change."""

APPEARS_WITHIN_SECONDS: Final = 30.0
"""How long a launched learner may take to appear on the backend before it is launched again."""

CUT_OFF_SECONDS: Final = 2.0
"""How long a learner that is there may wait for what its launch sends before it is launched again; after each launch
twice as long. A queue of the backend may have let it begin when its launch had returned."""

LAUNCHES: Final = 3
"""The attempt has failed after this many launches of which nothing appeared on the backend."""

AGENTS_PATIENCE_SECONDS: Final = 10.0
"""How much longer than they should the agents may take to stop each other before the controller does it."""

RECORDS_PATIENCE_SECONDS: Final = 5.0
"""How long a job that somebody stops waits until its records are in the store; the rest is taken in afterwards."""

FILES_PATIENCE_SECONDS: Final = {Intent.HALT: 15.0, Intent.KILL: 2.0, Intent.DELETE: 2.0}
"""How long a job that somebody stops waits for output and files that its backend does not give."""

COMING_PATIENCE_SECONDS: Final = {Intent.HALT: 600.0, Intent.KILL: 30.0, Intent.DELETE: 2.0}
"""How long a job that somebody stops waits for output and files that do come; the rest comes afterwards."""

KILL_AGAIN_SECONDS: Final = (2.0, 5.0, 10.0, 15.0)
HALT_AGAIN_SECONDS: Final = 5.0
"""A stop is asked for again after this, a halt after this and its grace period."""

UNCONFIRMED_TIMES: Final = {"halt": 2, "kill": 4}
"""One that was asked for more often than this counts as one that the backend does not confirm."""


NOT_BEGUN: Final = frozenset(
    {LearnerPhase.STARTING, LearnerPhase.DOWNLOADING, LearnerPhase.SETUP, LearnerPhase.STOPPING}
)
"""The phases of a learner whose command may not run yet: one that is stopped before it began is STOPPING, too."""


def decide(job: JobSnapshot) -> Decision:
    """Say what to do next for a job."""
    if job.operation is Operation.LAUNCH:
        return _while_launching(job)
    if job.state in TERMINAL:
        return _after_end(job)
    if job.state is State.QUEUED and not job.is_handed_over:
        return _queued(job)
    if job.state is State.QUEUED and any(map(_has_left_line, job.statuses.values())):
        return Decision((Transition(State.PENDING, Reason("starting")),))
    if _is_over(job):
        return _await_observation(job) if job.may_be_followed else _ending(job)
    if job.operation is not Operation.NOTHING:
        # The call may hang until its time is up: meanwhile the reason says what keeps the stop from being confirmed.
        is_shown = job.intent is not Intent.NONE and bool(job.unreachable)
        return Decision(_set_reason(job, _stopping_reason(job)) if is_shown else ())
    if job.never_started and job.trouble is not None:
        return Decision((Transition(State.QUEUED, job.trouble.reason),))
    if _is_storing(job):
        return _storing(job)
    if job.intent is not Intent.NONE:
        return _stop(job, "halt" if job.intent is Intent.HALT else "kill")
    return _starting(job) if job.state in BEFORE_THE_COMMAND else _running(job)


def is_alive(learner: LearnerStatus) -> bool:
    """Say whether a learner may still do something."""
    return learner.phase not in OVER


def _has_left_line(learner: LearnerStatus) -> bool:
    """Say whether its host has started a learner that waited there."""
    return not learner.waits and not learner.cut_off and (is_alive(learner) or learner.started_us is not None)


def never_began(learner: LearnerStatus) -> bool:
    """Say whether a learner was lost before its command started."""
    return learner.phase is LearnerPhase.LOST and learner.started_us is None


def is_decided(job: JobSnapshot) -> bool:
    """Say whether some learner's end decides the job, though others may still run."""
    own = decider(job.statuses.values(), ends_when=job.spec.ends_when, intent=job.intent)
    if own is None:
        return False
    if own.decided or failed(own):
        return True
    successes = sum(
        1 for one in job.statuses.values() if one.phase in OVER and not failed(one) and not one.stopped
    )
    needed = {"first": 1, "all": job.spec.learners}.get(str(job.spec.ends_when)) or int(job.spec.ends_when)
    return successes >= min(needed, job.spec.learners)


def _while_launching(job: JobSnapshot) -> Decision:
    if job.intent is not Intent.NONE:
        call_off = () if job.is_cancelling else (CancelLaunch(),)
        return Decision((*call_off, *_set_reason(job, _stopping_reason(job))))
    preparing = job.preparing
    if preparing is None or not preparing.text:
        return Decision()
    verdict = job.verdict
    is_ahead = verdict is not None and not verdict.start and (verdict.hand_over or verdict.wait is not None)
    shown_at = preparing.since + (AHEAD_SHOWN_AFTER_SECONDS if is_ahead else SHOWN_AFTER_SECONDS)
    if job.now < shown_at:
        return Decision(until=shown_at)
    if preparing.stage == "preparing" and job.state is State.PENDING and not is_ahead:
        return Decision((Transition(State.DOWNLOADING, Reason(preparing.text)),))
    if preparing.text == job.reason.text:
        return Decision()
    if job.reason_changed_at is not None and job.now < job.reason_changed_at + REASON_EVERY_SECONDS:
        return Decision(until=job.reason_changed_at + REASON_EVERY_SECONDS)
    return Decision((SetReason(Reason(preparing.text)),))


def _after_end(job: JobSnapshot) -> Decision:
    # The tombstone of a job that is not forgotten whole has no intent, and nothing more is written of it.
    is_tombstone = job.intent is not Intent.DELETE
    if is_tombstone and not job.removed:
        return Decision((Untrack(),))
    if job.operation is not Operation.NOTHING:
        return Decision()
    if _waits_for_retry(job):
        return Decision(() if is_tombstone else _set_undeleted(job), until=job.not_before)
    return Decision((Purge() if job.removed else Remove(),))


def _queued(job: JobSnapshot) -> Decision:
    if job.intent is not Intent.NONE:
        return Decision((Finish(_outcome(job)),))
    if job.operation is not Operation.NOTHING:
        return Decision()
    if _waits_for_retry(job):
        return Decision(_set_trouble(job), until=job.not_before)
    if not job.previous_is_over:
        return Decision((ProbePrevious(end=job.previous_is_over is False),))
    if job.verdict is None:
        return Decision(_set_unreachable(job))
    if job.verdict.never:
        return Decision((Finish(_never_comes(job.verdict.never)),))
    if not (job.verdict.start or job.verdict.hand_over):
        return _set_line_reason(job, Reason(job.verdict.reason))
    reason = Reason("starting" if job.verdict.start else job.verdict.reason)
    return Decision((Transition(State.PENDING, reason), StartLaunch()))


def _never_comes(why: str) -> Outcome:
    """Return the end of a job that comes after one which cannot complete."""
    reason = Reason(why, "C105", "fabric resume starts it once that job has completed")
    return Outcome(State.FAILED, reason, EXIT_FAULTY, "", final=True)


def _comes_in_vain(job: JobSnapshot) -> str:
    """Say why a job that waits at its host can never start; empty where it may, or has started there."""
    if not job.is_handed_over or job.verdict is None or job.intent is not Intent.NONE:
        return ""
    return "" if any(one.started_us is not None for one in job.statuses.values()) else job.verdict.never


def _is_over(job: JobSnapshot) -> bool:
    """Say whether every learner is known to be over, or never to have started."""
    if any(is_alive(learner) for learner in job.statuses.values()):
        return False
    if job.stop_sent is not None and job.is_observed:
        return True
    fault = _fault(job)
    if fault is not None and not fault.started:
        return True
    return not _missing(job)


def _await_observation(job: JobSnapshot) -> Decision:
    """Wait until the host says whether it has begun the next attempt: what was on record before may lack that."""
    asked = job.intent is not Intent.NONE
    return Decision(_set_reason(job, _stopping_reason(job)) if asked else _set_unreachable(job))


def _missing(job: JobSnapshot) -> list[int]:
    """List the learners that are still to be launched."""
    starting = job.state in BEFORE_THE_COMMAND

    def absent(number: int) -> bool:
        learner = job.statuses.get(number)
        if learner is None:
            return True
        # Cut off between start and first report: it is launched again, and its lock keeps it from running twice.
        lost = never_began(learner) and not job.launches
        # A queue of the backend may let it begin long after its launch: what it waits for is sent then.
        return starting and (lost or learner.cut_off)

    return [number for number in range(1, job.spec.learners + 1) if absent(number)]


def _ending(job: JobSnapshot) -> Decision:
    due = _wait_ends_at(job)
    # What is asked of the job concerns the next attempt, which may run: the rest of this one comes beside it.
    is_urgent = (
        job.intent is not Intent.NONE and job.draining_since is not None and _followed(job) is not None
    )
    if job.drained or not job.statuses or is_urgent or (due is not None and job.now >= due):
        if _is_unclear(job) and not job.cleaned:
            if job.state in PREPARING:
                # On record before it is removed: a controller after this one finds nothing there, and must not take
                # that for an attempt that was never launched.
                asked = job.intent is not Intent.NONE
                reason = _stopping_reason(job) if asked else Reason("removing what its launch left")
                return Decision((Transition(State.STORING, reason),))
            return _clean_up(job)
        plain = _outcome(job)
        followed = _followed(job)
        is_short = not (job.drained or is_urgent) and bool(job.statuses) and job.collected_at is None
        left = ""
        if is_short and _away_since(job) is None:
            left = f"{STILL_COMING} {COMING_PATIENCE_SECONDS[job.intent]:.0f} s: the rest comes later"
        elif is_short or job.collect_failure:
            left = f"{LEFT_THERE}: {_missing_files_text(job)}"
        outcome = _with_text(plain, left)
        if followed is not None:
            return Decision((Finish(outcome, _restart_at_host(job, outcome, followed), followed),))
        is_left = (
            job.intent is not Intent.NONE or job.is_watched
        )  # what is only watched is its laptop's to restart
        restart = None if is_left else _restart(job, outcome)
        if restart is not None and (bar := bar_to_restart(outcome, job.log_matches)):
            outcome, restart = _with_text(plain, f"; {bar}{left}"), None
        return Decision((Finish(outcome, restart),))
    if job.draining_since is None:
        return Decision((Drain(),))
    if job.state in (State.QUEUED, State.STORING):
        return Decision(_set_waiting_for_files(job), until=due)
    shown = job.draining_since + SHOWN_AFTER_SECONDS
    if job.now < shown:
        return Decision(until=shown)
    return Decision((Transition(State.STORING, Reason("storing results and logs")),))


def _wait_ends_at(job: JobSnapshot) -> float | None:
    """Return when a stopped job ends even if not all of its files are here, or not all of its records in the store."""
    if job.intent is Intent.NONE:
        return None
    if job.collected_at is not None:
        return job.collected_at + RECORDS_PATIENCE_SECONDS
    if (since := _away_since(job)) is not None:
        return since + FILES_PATIENCE_SECONDS[job.intent]
    if job.draining_since is None:
        return None
    # Fetched, or in the line of those that are: a long fetch, and the one before it, do not hold a stop either.
    return max(job.draining_since, job.stop_asked_at or 0.0) + COMING_PATIENCE_SECONDS[job.intent]


def _away_since(job: JobSnapshot) -> float | None:
    """Return since when it is known that the learners are over and their backend does not give what they left.

    A fetch that hangs may say so much later than the observation of the backend does.
    """
    times = [job.collect_failing_since]
    if job.draining_since is not None and job.unreachable_since is not None:
        times.append(max(job.draining_since, job.unreachable_since))
    return min((at for at in times if at is not None), default=None)


def _missing_files_text(job: JobSnapshot) -> str:
    return job.collect_failure or job.unreachable or "it has not answered since the controller was started"


def _with_text(outcome: Outcome, more: str) -> Outcome:
    if not more:
        return outcome
    return replace(outcome, reason=replace(outcome.reason, text=outcome.reason.text + more))


def without_left_output(text: str) -> str:
    """Return an attempt's reason without what was left at its backend: it has come since."""
    return min(text.partition(LEFT_THERE)[0], text.partition(STILL_COMING)[0], key=len)


def _set_waiting_for_files(job: JobSnapshot) -> tuple[SetReason, ...]:
    """Say what keeps the output and files of a job that is over from coming."""
    if not job.collect_failure and _away_since(job) is None:
        return ()
    text = f"its last output and files are waited for: {_missing_files_text(job)}"
    return _set_reason(job, Reason(text, "S200"))


def _is_unclear(job: JobSnapshot) -> bool:
    """Say whether something of the attempt may be left though no learner of it is known to be alive."""
    fault = _fault(job)
    if fault is not None and not fault.started:
        return False
    return job.vanished or len(job.statuses) < job.spec.learners


def _clean_up(job: JobSnapshot) -> Decision:
    if job.operation is not Operation.NOTHING:
        return Decision()
    if _waits_for_retry(job):
        asked = job.intent is not Intent.NONE
        reasons = _set_reason(job, _stopping_reason(job)) if asked else _set_trouble(job)
        return Decision(reasons, until=job.not_before)
    return Decision((CleanUp(),))


def _followed(job: JobSnapshot) -> Followed | None:
    """Return the next attempt, where the host of a job has begun it: what is asked of the job concerns that one."""
    if any(map(is_alive, job.statuses.values())):
        return None
    # The agent of the last one has begun it.
    found = (one.followed_by for one in job.statuses.values() if one.followed_by is not None)
    followed = next(found, None)
    if followed is None or followed.attempt != job.attempt + 1:
        return None
    if job.is_watched or _is_preempted(job):
        return followed
    learners = job.statuses.values()
    one = decider(learners, ends_when=job.spec.ends_when, intent=Intent.NONE) or next(iter(learners))
    if one.reason is not None and one.reason.fault is FaultOwner.PLATFORM:
        return followed if job.platform_restarts < job.spec.max_platform_restarts else None
    return followed if job.restarts < job.spec.max_restarts else None


def _outcome(job: JobSnapshot) -> Outcome:
    if _followed(job) is not None:
        ends_when = job.spec.ends_when
        outcome = judge(job.statuses, ends_when=ends_when, intent=Intent.NONE, asked_by="")
        return replace(outcome, state=State.FAILED)
    if why := _comes_in_vain(job):
        return _never_comes(why)
    fault = _fault(job)
    if fault is not None and job.intent is Intent.NONE and not _has_run(job):
        return _never_started(fault)
    return judge(job.statuses, ends_when=job.spec.ends_when, intent=job.intent, asked_by=job.asked_by)


def _has_run(job: JobSnapshot) -> bool:
    """Say whether every learner ended but not for a failed launch: an earlier one had started them all."""
    ended = [one for one in job.statuses.values() if one.phase is LearnerPhase.EXITED]
    return len(ended) == job.spec.learners and not any(map(_is_ended_for_launch, ended))


def _is_ended_for_launch(learner: LearnerStatus) -> bool:
    """Say whether a learner was stopped as its launch failed: neither by its rules nor by the end of another one."""
    if learner.stopped not in STOPS:
        return False
    why = "" if learner.reason is None else learner.reason.text
    return f" by {BY}" not in why


def _never_started(fault: BackendTrouble) -> Outcome:
    refused = fault.kind == "refused"
    if fault.reason.fault is FaultOwner.USER:
        code = fault.exit_code or refused_exit_code(fault.reason.code)
        return Outcome(State.FAILED, fault.reason, code, "", final=refused)
    return Outcome(State.FAILED, fault.reason, EXIT_LOST, "lost", final=refused)


def _restart(job: JobSnapshot, outcome: Outcome) -> Restart | None:
    return next_attempt(
        outcome,
        restarts=job.restarts,
        platform_restarts=job.platform_restarts,
        max_restarts=job.spec.max_restarts,
        max_platform_restarts=job.spec.max_platform_restarts,
        draw=job.draw,
        is_preemptible=job.spec.preemptible or _is_preempted(job),
    )


def _is_preempted(job: JobSnapshot) -> bool:
    """Say whether its agents have ended it for a job of a higher priority."""
    return any(learner.stopped == PREEMPT for learner in job.statuses.values())


def _restart_at_host(job: JobSnapshot, outcome: Outcome, followed: Followed) -> Restart:
    return begun_at_host(
        followed,
        outcome,
        restarts=job.restarts,
        platform_restarts=job.platform_restarts,
        max_restarts=job.spec.max_restarts,
        max_platform_restarts=job.spec.max_platform_restarts,
    )


def _fault(job: JobSnapshot) -> BackendTrouble | None:
    """Return why the launch failed for good: the error, or that nothing appeared after several launches."""
    if job.fault is not None:
        return job.fault
    if job.state not in (State.PENDING, State.DOWNLOADING, State.STORING) or job.launches < LAUNCHES:
        return None
    if job.launched_at is None or job.now < job.launched_at + APPEARS_WITHIN_SECONDS or not _missing(job):
        return None
    text = f"was started {job.launches} times, but does not appear on the backend"
    return BackendTrouble("fault", Reason(text, "S101"), started=True)


def _starting(job: JobSnapshot) -> Decision:
    if _fault(job) is not None:
        return _stop(job, "kill")
    if job.trouble is not None and job.trouble.kind == "busy":
        return Decision((Transition(State.QUEUED, job.trouble.reason),))
    if _waits_for_retry(job):
        return Decision(_set_trouble(job), until=job.not_before)
    if not job.is_observed:
        return Decision(_set_unreachable(job))
    if job.learner_absent:
        return Decision((Probe(),))
    if _comes_in_vain(job):
        return _stop(job, "kill")  # once its host confirms that it starts it no more, it has failed
    missing = _missing(job)
    if missing and job.is_watched:
        return Decision(_set_reason(job, _reason_of_laptop(job, missing)))
    if missing:
        if job.launched_at is None:
            # One that a controller before this one was preparing may be held back.
            spec = job.spec
            may_be_held_back = spec.after or spec.begin or spec.cpus or spec.at_most is not None
            is_unjudged = job.verdict is None and bool(may_be_held_back)
            return Decision(() if is_unjudged else (StartLaunch(),))
        due = job.launched_at + _launched_again_after(job, missing)
        return Decision((StartLaunch(),)) if job.now >= due else Decision(until=due)
    if all(learner.waits for learner in job.statuses.values()):
        reason = _waiting_reason(job)
        if job.state is not State.QUEUED:
            return Decision((Transition(State.QUEUED, reason),))
        return _set_line_reason(job, reason)
    phases = {learner.phase for learner in job.statuses.values()}
    if phases - NOT_BEGUN:
        return Decision((Transition(State.PROCESSING, _running_reason(job)),))
    if job.unreachable:
        return Decision(_set_unreachable(job))
    if not phases & {LearnerPhase.DOWNLOADING, LearnerPhase.SETUP}:
        return Decision(_set_reason(job, _starting_reason(job)))
    reason = Reason(_doing(job, LearnerPhase.DOWNLOADING) or "the setup command runs")
    if job.state is State.PENDING:
        return Decision((Transition(State.DOWNLOADING, reason),))
    return Decision(_set_reason(job, reason))


def _reason_of_laptop(job: JobSnapshot, missing: Sequence[int]) -> Reason:
    """Say what a job waits for that another laptop starts: where its host starts it no more, that laptop."""
    for number in missing:
        learner = job.statuses.get(number)
        if learner is not None and learner.cut_off and learner.reason is not None:
            return learner.reason
    return Reason("waits for the laptop that it belongs to, which starts it", "S200")


def _set_line_reason(job: JobSnapshot, reason: Reason) -> Decision:
    """Say how a job stands in its queue; of one behind many others only now and then."""
    is_far = job.verdict is not None and job.verdict.is_far and not reason.code
    due = (job.reason_changed_at or 0.0) + FAR_REASON_EVERY_SECONDS
    if is_far and job.reason_changed_at is not None and job.now < due and reason.text != job.reason.text:
        return Decision(until=due)
    return Decision(_set_reason(job, reason))


def _waiting_reason(job: JobSnapshot) -> Reason:
    """Say why a job waits at its host: how it stood there when the host last answered."""
    if job.unreachable:
        return Reason(f"{AT_ITS_HOST}; {job.unreachable}", "S200")
    for learner in job.statuses.values():
        if learner.reason is not None:
            return learner.reason  # what keeps its host from starting it: a full disk there, say
    return Reason(job.verdict.reason if job.verdict and job.verdict.reason else AT_ITS_HOST)


def _launched_again_after(job: JobSnapshot, missing: Sequence[int]) -> float:
    """Return for how many seconds after a launch the learners that it lacks are waited for."""
    if all((learner := job.statuses.get(number)) is not None and learner.cut_off for number in missing):
        return min(CUT_OFF_SECONDS * 2.0 ** max(job.launches - 1, 0), APPEARS_WITHIN_SECONDS)
    return APPEARS_WITHIN_SECONDS


def _is_storing(job: JobSnapshot) -> bool:
    """Say whether every learner that is alive stores its results, and nobody asked for the job to be killed."""
    alive = {learner.phase for learner in job.statuses.values() if is_alive(learner)}
    return (
        alive == {LearnerPhase.STORING}
        and job.intent in (Intent.NONE, Intent.HALT)
        and not job.unreachable
        and not job.learner_absent
        and not _missing(job)
    )


def _storing(job: JobSnapshot) -> Decision:
    reason = Reason(_doing(job, LearnerPhase.STORING) or "storing results and logs")
    if job.state is not State.STORING:
        return Decision((Transition(State.STORING, reason),))
    return Decision(_set_reason(job, reason))


def _doing(job: JobSnapshot, phase: LearnerPhase) -> str:
    """Return what the first learner in a phase reports that it does."""
    return next(
        (one.doing for _, one in sorted(job.statuses.items()) if one.phase is phase and one.doing), ""
    )


def _running(job: JobSnapshot) -> Decision:
    if job.unreachable:
        return Decision(_set_unreachable(job))
    if job.learner_absent:
        return Decision((Probe(),))
    if _missing(job):
        return Decision()
    ended = [learner for learner in job.statuses.values() if not is_alive(learner)]
    lost = any(learner.phase is LearnerPhase.LOST for learner in ended)
    if not ended or not (lost or is_decided(job)):
        return Decision(_set_reason(job, _running_reason(job)))
    if lost:
        # Its agent is gone, so the agents of the others may not know.
        return _stop(job, "halt")
    success = not any(failed(learner) for learner in ended if learner.stopped in ("", PREEMPT))
    grace_seconds = job.spec.preemption_seconds if _is_preempted(job) else job.spec.grace_seconds
    patience = AGENTS_PATIENCE_SECONDS + grace_seconds + (job.spec.settle_seconds if success else 0.0)
    due = (job.now if job.decided_since is None else job.decided_since) + patience
    if job.now >= due:
        return _stop(job, "halt")
    return Decision(_set_reason(job, _settling_reason(job, success)), until=due)


def _stop(job: JobSnapshot, kind: Literal["halt", "kill"]) -> Decision:
    """Ask for a stop, again and again until the backend confirms that it is over."""
    grace = job.spec.grace_seconds if kind == "halt" else 0.0
    sent = job.stop_sent
    asked = job.intent is not Intent.NONE
    reasons = _set_reason(job, _stopping_reason(job)) if asked else ()
    if _waits_for_retry(job):
        return Decision(reasons if asked else _set_trouble(job), until=job.not_before)
    if sent is None or (sent.kind == "halt" and kind == "kill"):
        return Decision((*reasons, Stop(kind, grace)))
    wait = KILL_AGAIN_SECONDS[min(sent.times, len(KILL_AGAIN_SECONDS)) - 1]
    due = sent.at + (grace + HALT_AGAIN_SECONDS if kind == "halt" else wait)
    if job.now >= due:
        return Decision((*reasons, Stop(kind, grace)))
    return Decision(reasons, until=due)


def _stopping_reason(job: JobSnapshot) -> Reason:
    """Say that the job is being stopped, by whom, and what keeps the backend from confirming it."""
    by = f" by {job.asked_by}" if job.asked_by else ""
    text = f"is being {'halted' if job.intent is Intent.HALT else 'killed'}{by}"
    if job.intent is Intent.DELETE:
        text += ", to be deleted"
    if job.unreachable:
        return Reason(f"{text}; {job.unreachable}", "S200")
    if job.trouble is not None:
        return Reason(f"{text}; {job.trouble.reason.text}", job.trouble.reason.code, job.trouble.reason.hint)
    if job.stop_sent is not None and job.stop_sent.times > UNCONFIRMED_TIMES[job.stop_sent.kind]:
        return Reason(f"{text}; asked again, since the backend has not confirmed that it has ended", "S200")
    if job.intent is Intent.HALT:
        return Reason(f"{text}: it has {job.spec.grace_seconds:g} s to end by itself")
    return Reason(text)


def _running_reason(job: JobSnapshot) -> Reason:
    for learner in job.statuses.values():
        if is_alive(learner) and learner.reason is not None:
            # Why its output waits, or that it makes room for another job, which is no fault.
            return replace(learner.reason, code="") if learner.stopped == PREEMPT else learner.reason
    return Reason("the command runs" + (f"; {job.note}" if job.note else ""))


def _starting_reason(job: JobSnapshot) -> Reason:
    """Return why launched learners do not run yet: the backend's own reason where it gives one."""
    for learner in job.statuses.values():
        if learner.phase is LearnerPhase.STARTING and learner.reason is not None:
            return learner.reason
    if any(learner.phase is LearnerPhase.STOPPING for learner in job.statuses.values()):
        return Reason("a learner is being stopped by its backend")
    return Reason("starting")


def _settling_reason(job: JobSnapshot, success: bool) -> Reason:
    own = decider(job.statuses.values(), ends_when=job.spec.ends_when, intent=job.intent)
    who = f"learner {own.ref.learner}" if own is not None else "a learner"
    if success:
        return Reason(
            f"{who} has decided; the others have {job.spec.settle_seconds:g} s to end by themselves"
        )
    ended = "was preempted" if own is not None and own.stopped == PREEMPT else "has failed"
    return Reason(f"{who} {ended}; the others are being stopped")


def _set_unreachable(job: JobSnapshot) -> tuple[SetReason, ...]:
    return _set_reason(job, Reason(job.unreachable, "S200")) if job.unreachable else ()


def _waits_for_retry(job: JobSnapshot) -> bool:
    return job.not_before is not None and job.now < job.not_before


def _set_trouble(job: JobSnapshot) -> tuple[SetReason, ...]:
    return _set_reason(job, job.trouble.reason) if job.trouble is not None else ()


def _set_undeleted(job: JobSnapshot) -> tuple[SetReason, ...]:
    """Say why a job that has ended is not deleted yet."""
    if job.trouble is None:
        return ()
    why = job.trouble.reason
    return _set_reason(job, Reason(f"is being deleted; {why.text}", why.code, why.hint))


def _set_reason(job: JobSnapshot, reason: Reason) -> tuple[SetReason, ...]:
    """Change the reason, unless it says so already."""
    return () if reason.text == job.reason.text else (SetReason(reason),)
