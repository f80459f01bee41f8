"""Converts the facts that a host reports about a learner to its status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runners.interface import Followed, LearnerRef, LearnerStatus
from workbench.job import LearnerPhase, Reason
from workbench.learner.queue.home_waiter import LAPTOP


def status_of(ref: LearnerRef, facts: Mapping[str, Any], node: str) -> LearnerStatus | None:
    """Return a learner's status from its facts; None if it has not begun."""
    state = facts["state"]
    if state is None:
        if not facts["alive"]:
            return None
        stall = str(facts.get("stall") or "")
        return LearnerStatus(
            ref,
            LearnerPhase.STARTING,
            reason=Reason(stall, "S204") if stall else None,
            slots=tuple(facts["slots"]),
            node=node,
        )
    if is_waiting(facts):
        # Nobody there starts it any more where its waiter is gone: what its launch brought is brought again.
        alive = bool(facts["alive"])
        reason = reason_of(state) if alive else Reason(until_given_again(state, node), "S200")
        return LearnerStatus(
            ref, LearnerPhase.STARTING, reason=reason, node=node, waits=alive, cut_off=not alive
        )
    return LearnerStatus(
        ref,
        _phase(state, alive=facts["alive"]),
        exit_code=state.get("exit_code"),
        signal=state.get("signal"),
        reason=reason_of(state),
        started_us=state.get("started_us"),
        ended_us=state.get("ended_us"),
        decided=bool(state.get("decided")),
        stopped=state.get("stopped") or "",
        slots=tuple(facts["slots"]),
        node=node,
        doing=str(state.get("doing") or ""),
        stops_itself=bool(state.get("stop_rules")),
        followed_by=followed_by(state),
    )


def until_given_again(state: Mapping[str, Any], node: str) -> str:
    """Say what a learner waits for whose host's waiter was killed, or ended with the machine."""
    laptop = str(state.get(LAPTOP) or "the machine that it was submitted from")
    return f"waits until fabric runs on {laptop} again: what starts it at {node} has ended"


def is_waiting(facts: Mapping[str, Any]) -> bool:
    """Say whether a learner was given to its host's waiter and has not been started since."""
    state = facts["state"]
    return state is not None and state.get("phase") == LearnerPhase.STARTING and bool(state.get("waiting"))


def _phase(state: Mapping[str, Any], *, alive: bool) -> LearnerPhase:
    """Return a learner's phase; if the state file is damaged, derive it from whether the agent is alive."""
    try:
        return LearnerPhase(state["phase"])
    except (ValueError, KeyError):
        return LearnerPhase.RUNNING if alive else LearnerPhase.LOST


def followed_by(state: Mapping[str, Any]) -> Followed | None:
    """Return the next attempt that a state names; None where it names none."""
    found = state.get("followed_by")
    try:
        return (
            None
            if not found
            else Followed(int(found["attempt"]), int(found["begin_us"]), float(found["delay_seconds"]))
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # the job may have written it itself


def reason_of(state: Mapping[str, Any]) -> Reason | None:
    """Return why a learner waits or has failed, as its state says it; None where it says nothing."""
    if stall := state.get("stall"):
        return Reason(str(stall), "S204")
    reason = state.get("reason")
    if not isinstance(reason, Mapping) or not reason:
        return None
    return Reason(str(reason.get("text", "")), str(reason.get("code") or ""), str(reason.get("hint") or ""))
