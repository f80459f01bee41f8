"""Turns a learner's files, as a place tells them, into how it was seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runners.interface import LearnerRef, Seen
from workbench.job import LearnerPhase, Reason


def seen_of(ref: LearnerRef, facts: Mapping[str, Any], node: str) -> Seen | None:
    """Say how a learner is; None where nothing of it has begun."""
    state = facts["state"]
    if state is None:
        if not facts["alive"]:
            return None
        return Seen(ref, LearnerPhase.STARTING, slots=tuple(facts["slots"]), node=node)
    return Seen(
        ref,
        LearnerPhase(state["phase"]),
        exit_code=state.get("exit_code"),
        signal=state.get("signal"),
        reason=_reason(state),
        started_us=state.get("started_us"),
        ended_us=state.get("ended_us"),
        decided=bool(state.get("decided")),
        stopped=state.get("stopped") or "",
        slots=tuple(facts["slots"]),
        node=node,
        doing=str(state.get("doing") or ""),
    )


def lost(ref: LearnerRef, facts: Mapping[str, Any], boot_id: str, node: str) -> Seen:
    """Say of a learner that nobody keeps any more, and that left no end, that it is lost, and why."""
    state = facts["state"] or {}
    return Seen(
        ref,
        LearnerPhase.LOST,
        reason=_why_lost(state, boot_id),
        started_us=state.get("started_us"),
        slots=tuple(facts["slots"]),
        node=node,
    )


def _why_lost(state: Mapping[str, Any], boot_id: str) -> Reason:
    if not state.get("boot_id"):
        return Reason("the learner is gone and nobody knows why", "S104")
    if state["boot_id"] != boot_id:
        return Reason("the machine was restarted", "S203", "A restart of the job begins where it saved last.")
    return Reason("the learner's agent was killed, and what it kept with it", "S202")


def _reason(state: Mapping[str, Any]) -> Reason | None:
    if stall := state.get("stall"):
        return Reason(str(stall), "S204")
    said = state.get("reason")
    if not said:
        return None
    return Reason(str(said.get("text", "")), str(said.get("code") or ""), str(said.get("hint") or ""))
