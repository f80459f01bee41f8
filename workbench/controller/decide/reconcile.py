"""What to do next for one job, from its rows and what was seen of it: the heart of the controller. Pure.

Level-triggered: every decision is made from how things are, never from what happened, so it does not matter
how often it is made, in which order news came, or whether this controller or one before it began the work.

What holds at all times: a QUEUED attempt was never launched; an attempt ends only when every learner of it is
known to be over or never to have started.
"""

from __future__ import annotations

from typing import Final, Literal

from runners.interface import LearnerStatus
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
from workbench.controller.decide.outcome import EXIT_REFUSED, OVER, Outcome, decider, failed, judge
from workbench.controller.decide.restarts import Restart, next_attempt
from workbench.job import EXIT_LOST, TERMINAL, FaultOwner, Intent, LearnerPhase, Reason, State

SHOWN_AFTER_SECONDS: Final = 0.1
"""What lasts less is not worth a state of its own: it would cost more than it tells."""

SAID_EVERY_SECONDS: Final = 1.0
"""How often the reason of a long launch may change."""

SEEN_WITHIN_SECONDS: Final = 30.0
"""How long a learner that was launched may take to be seen, before it is launched again."""

LAUNCHES: Final = 3
"""After so many launches of which nothing was seen, the attempt has failed."""

AGENTS_PATIENCE_SECONDS: Final = 10.0
"""How much longer than they should the agents may take to stop each other before the controller does it."""

RECORDS_PATIENCE_SECONDS: Final = 5.0
"""How long a job that somebody stops waits until its records are in the store; the rest is taken in afterwards."""

KILL_AGAIN_SECONDS: Final = (2.0, 5.0, 10.0, 30.0)
HALT_AGAIN_SECONDS: Final = 5.0
"""A stop is asked for again after this, a halt after this and its grace period."""


def decide(view: JobSnapshot) -> Decision:
    """Say what to do next for a job."""
    if view.doing is Operation.LAUNCH:
        return _launching(view)
    if view.state in TERMINAL:
        return _closed(view)
    if view.state is State.QUEUED:
        return _queued(view)
    if _over(view):
        return _ending(view)
    if view.doing is not Operation.NOTHING:
        return Decision()
    if view.unbegun and view.trouble is not None:
        return Decision((Transition(State.QUEUED, view.trouble.reason),))
    if _is_storing(view):
        return _storing(view)
    if view.intent is not Intent.NONE:
        return _stop(view, "halt" if view.intent is Intent.HALT else "kill")
    if view.state in (State.PENDING, State.DOWNLOADING):
        return _starting(view)
    return _running(view)


def is_alive(learner: LearnerStatus) -> bool:
    """Say whether a learner may still do something."""
    return learner.phase not in OVER


def never_began(learner: LearnerStatus) -> bool:
    """Say whether a learner was lost before its command started."""
    return learner.phase is LearnerPhase.LOST and learner.started_us is None


def is_decided(view: JobSnapshot) -> bool:
    """Say whether some learner's end decides the job, though others may still run."""
    own = decider(view.seen.values(), ends_when=view.spec.ends_when, intent=view.intent)
    if own is None:
        return False
    if own.decided or failed(own):
        return True
    successes = sum(
        1 for one in view.seen.values() if one.phase in OVER and not failed(one) and not one.stopped
    )
    needed = {"first": 1, "all": view.spec.learners}.get(str(view.spec.ends_when)) or int(view.spec.ends_when)
    return successes >= min(needed, view.spec.learners)


def _launching(view: JobSnapshot) -> Decision:
    if view.intent is not Intent.NONE:
        call_off = () if view.calling_off else (CancelLaunch(),)
        return Decision((*call_off, *_say(view, _asked_to_stop(view))))
    doing = view.preparing
    if doing is None or not doing.text:
        return Decision()
    if view.now < doing.since + SHOWN_AFTER_SECONDS:
        return Decision(until=doing.since + SHOWN_AFTER_SECONDS)
    if doing.stage == "preparing" and view.state is State.PENDING:
        return Decision((Transition(State.DOWNLOADING, Reason(doing.text)),))
    if doing.text == view.reason.text:
        return Decision()
    if view.said_at is not None and view.now < view.said_at + SAID_EVERY_SECONDS:
        return Decision(until=view.said_at + SAID_EVERY_SECONDS)
    return Decision((SetReason(Reason(doing.text)),))


def _closed(view: JobSnapshot) -> Decision:
    if view.intent is not Intent.DELETE:
        return Decision((Untrack(),))
    if view.doing is not Operation.NOTHING:
        return Decision()
    if view.removed:
        return Decision((Purge(),))
    if _too_early(view):
        return Decision(_say_trouble(view), until=view.not_before)
    return Decision((Remove(),))


def _queued(view: JobSnapshot) -> Decision:
    if view.intent is not Intent.NONE:
        return Decision((Finish(_verdict(view)),))
    if view.doing is not Operation.NOTHING:
        return Decision()
    if _too_early(view):
        return Decision(_say_trouble(view), until=view.not_before)
    if not view.previous_gone:
        return Decision((ProbePrevious(end=view.previous_gone is False),))
    if view.verdict is None:
        return Decision(_unreachable(view))
    if view.verdict.never:
        reason = Reason(view.verdict.never, "C105", "fabric resume starts it once that job has completed")
        return Decision((Finish(Outcome(State.FAILED, reason, EXIT_REFUSED, "", final=True)),))
    if not view.verdict.start:
        return Decision(_say(view, Reason(view.verdict.reason)))
    return Decision((Transition(State.PENDING, Reason("is being started")), StartLaunch()))


def _over(view: JobSnapshot) -> bool:
    """Say whether every learner is known to be over, or never to have started."""
    if any(is_alive(learner) for learner in view.seen.values()):
        return False
    if view.stop_sent is not None and view.looked:
        return True
    fault = _fault(view)
    if fault is not None and not fault.started:
        return True
    return not _missing(view)


def _missing(view: JobSnapshot) -> list[int]:
    """List the learners that are still to be launched."""
    starting = view.state in (State.PENDING, State.DOWNLOADING)

    def absent(number: int) -> bool:
        learner = view.seen.get(number)
        if learner is None:
            return True
        # Cut off between its start and its first word: it is launched again, and its lock sorts out the rest.
        lost = never_began(learner) and not view.launches
        # A queue of the place may let it begin long after its launch: what it waits for is brought then.
        return starting and (lost or learner.cut_off)

    return [number for number in range(1, view.spec.learners + 1) if absent(number)]


def _ending(view: JobSnapshot) -> Decision:
    due = _records_due(view)
    if view.drained or not view.seen or (due is not None and view.now >= due):
        if _is_unclear(view) and not view.cleaned:
            return _clean_up(view)
        outcome = _verdict(view)
        return Decision(
            (Finish(outcome, None if view.intent is not Intent.NONE else _restart(view, outcome)),)
        )
    if view.draining_since is None:
        return Decision((Drain(),))
    if view.state is State.STORING:
        return Decision(_unreachable(view), until=due)
    shown = view.draining_since + SHOWN_AFTER_SECONDS
    if view.now < shown:
        return Decision(until=shown)
    return Decision((Transition(State.STORING, Reason("results and logs are put away")),))


def _records_due(view: JobSnapshot) -> float | None:
    """Return when a job that somebody stops ends though not all that it recorded is in the store."""
    if view.intent is Intent.NONE or view.collected_at is None:
        return None
    return view.collected_at + RECORDS_PATIENCE_SECONDS


def _is_unclear(view: JobSnapshot) -> bool:
    """Say whether something of the attempt may be left though nothing of it is seen."""
    fault = _fault(view)
    if fault is not None and not fault.started:
        return False
    return view.vanished or len(view.seen) < view.spec.learners


def _clean_up(view: JobSnapshot) -> Decision:
    if view.doing is not Operation.NOTHING:
        return Decision()
    if _too_early(view):
        return Decision(_say_trouble(view), until=view.not_before)
    return Decision((CleanUp(),))


def _verdict(view: JobSnapshot) -> Outcome:
    fault = _fault(view)
    if fault is not None and view.intent is Intent.NONE:
        return _never_started(fault)
    return judge(view.seen, ends_when=view.spec.ends_when, intent=view.intent, asked_by=view.asked_by)


def _never_started(fault: BackendTrouble) -> Outcome:
    refused = fault.kind == "refused"
    if fault.reason.fault is FaultOwner.USER:
        return Outcome(State.FAILED, fault.reason, EXIT_REFUSED, "", final=refused)
    return Outcome(State.FAILED, fault.reason, EXIT_LOST, "lost", final=refused)


def _restart(view: JobSnapshot, outcome: Outcome) -> Restart | None:
    return next_attempt(
        outcome,
        restarts=view.restarts,
        platform_restarts=view.platform_restarts,
        max_restarts=view.spec.max_restarts,
        max_platform_restarts=view.spec.max_platform_restarts,
        draw=view.draw,
    )


def _fault(view: JobSnapshot) -> BackendTrouble | None:
    """Return why the launch failed for good: as it said, or since nothing comes of it however often."""
    if view.fault is not None:
        return view.fault
    if view.state not in (State.PENDING, State.DOWNLOADING) or view.launches < LAUNCHES:
        return None
    if view.launched_at is None or view.now < view.launched_at + SEEN_WITHIN_SECONDS or not _missing(view):
        return None
    text = f"was started {view.launches} times, but is not to be seen at the place"
    return BackendTrouble("fault", Reason(text, "S101"), started=True)


def _starting(view: JobSnapshot) -> Decision:
    if _fault(view) is not None:
        return _stop(view, "kill")
    if view.trouble is not None and view.trouble.kind == "busy":
        return Decision((Transition(State.QUEUED, view.trouble.reason),))
    if _too_early(view):
        return Decision(_say_trouble(view), until=view.not_before)
    if not view.looked:
        return Decision(_unreachable(view))
    if _missing(view):
        due = None if view.launched_at is None else view.launched_at + SEEN_WITHIN_SECONDS
        return Decision((StartLaunch(),)) if due is None or view.now >= due else Decision(until=due)
    phases = {learner.phase for learner in view.seen.values()}
    if phases - {LearnerPhase.STARTING, LearnerPhase.DOWNLOADING, LearnerPhase.SETUP}:
        return Decision((Transition(State.PROCESSING, _runs(view)),))
    if view.unreachable:
        return Decision(_unreachable(view))
    if not phases & {LearnerPhase.DOWNLOADING, LearnerPhase.SETUP}:
        return Decision(_say(view, _waits(view)))
    doing = Reason(_doing(view, LearnerPhase.DOWNLOADING) or "the setup command runs")
    if view.state is State.PENDING:
        return Decision((Transition(State.DOWNLOADING, doing),))
    return Decision(_say(view, doing))


def _is_storing(view: JobSnapshot) -> bool:
    """Say whether all that still lives of a job puts its results away, and nobody wants it to end at once."""
    alive = {learner.phase for learner in view.seen.values() if is_alive(learner)}
    return (
        alive == {LearnerPhase.STORING}
        and view.intent in (Intent.NONE, Intent.HALT)
        and not view.unreachable
        and not view.doubt
        and not _missing(view)
    )


def _storing(view: JobSnapshot) -> Decision:
    doing = Reason(_doing(view, LearnerPhase.STORING) or "results and logs are put away")
    if view.state is not State.STORING:
        return Decision((Transition(State.STORING, doing),))
    return Decision(_say(view, doing))


def _doing(view: JobSnapshot, phase: LearnerPhase) -> str:
    """Return what the first learner that is in a phase does."""
    return next((one.doing for _, one in sorted(view.seen.items()) if one.phase is phase and one.doing), "")


def _running(view: JobSnapshot) -> Decision:
    if view.unreachable:
        return Decision(_unreachable(view))
    if view.doubt:
        return Decision((Probe(),))
    if _missing(view):
        return Decision()
    ended = [learner for learner in view.seen.values() if not is_alive(learner)]
    lost = any(learner.phase is LearnerPhase.LOST for learner in ended)
    if not ended or not (lost or is_decided(view)):
        return Decision(_say(view, _runs(view)))
    if lost:
        # No agent of the others may know: its own is gone.
        return _stop(view, "halt")
    success = not any(failed(learner) for learner in ended if not learner.stopped)
    patience = (
        AGENTS_PATIENCE_SECONDS + view.spec.grace_seconds + (view.spec.settle_seconds if success else 0.0)
    )
    due = (view.now if view.decided_since is None else view.decided_since) + patience
    if view.now >= due:
        return _stop(view, "halt")
    return Decision(_say(view, _settling(view, success)), until=due)


def _stop(view: JobSnapshot, kind: Literal["halt", "kill"]) -> Decision:
    """Ask for a stop, and again until the place confirms that it is over."""
    grace = view.spec.grace_seconds if kind == "halt" else 0.0
    sent = view.stop_sent
    words = _say(view, _asked_to_stop(view)) if view.intent is not Intent.NONE else ()
    if _too_early(view):
        return Decision(_say_trouble(view), until=view.not_before)
    if sent is None or (sent.kind == "halt" and kind == "kill"):
        return Decision((*words, Stop(kind, grace)))
    wait = KILL_AGAIN_SECONDS[min(sent.times, len(KILL_AGAIN_SECONDS)) - 1]
    due = sent.at + (grace + HALT_AGAIN_SECONDS if kind == "halt" else wait)
    if view.now >= due:
        return Decision((*words, Stop(kind, grace)))
    return Decision(words, until=due)


def _asked_to_stop(view: JobSnapshot) -> Reason:
    by = f" by {view.asked_by}" if view.asked_by else ""
    if view.intent is Intent.HALT:
        return Reason(f"is being halted{by}: it has {view.spec.grace_seconds:g} s to end by itself")
    return Reason(f"is being killed{by}" + (", to be deleted" if view.intent is Intent.DELETE else ""))


def _runs(view: JobSnapshot) -> Reason:
    for learner in view.seen.values():
        if is_alive(learner) and learner.reason is not None:
            return learner.reason  # why its output waits
    return Reason("the command runs" + (f"; {view.note}" if view.note else ""))


def _waits(view: JobSnapshot) -> Reason:
    """Say why learners that were launched do not run yet: as their place says it, where it says anything."""
    for learner in view.seen.values():
        if learner.phase is LearnerPhase.STARTING and learner.reason is not None:
            return learner.reason
    return Reason("is being started")


def _settling(view: JobSnapshot, success: bool) -> Reason:
    own = decider(view.seen.values(), ends_when=view.spec.ends_when, intent=view.intent)
    who = f"learner {own.ref.learner}" if own is not None else "a learner"
    if success:
        return Reason(
            f"{who} has decided; the others have {view.spec.settle_seconds:g} s to end by themselves"
        )
    return Reason(f"{who} has failed; the others are being stopped")


def _unreachable(view: JobSnapshot) -> tuple[SetReason, ...]:
    return _say(view, Reason(view.unreachable, "S200")) if view.unreachable else ()


def _too_early(view: JobSnapshot) -> bool:
    return view.not_before is not None and view.now < view.not_before


def _say_trouble(view: JobSnapshot) -> tuple[SetReason, ...]:
    return _say(view, view.trouble.reason) if view.trouble is not None else ()


def _say(view: JobSnapshot, reason: Reason) -> tuple[SetReason, ...]:
    """Change the reason, unless it says so already."""
    return () if reason.text == view.reason.text else (SetReason(reason),)
