"""Decides how a person's request is answered, given the state of its job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from workbench.job import TERMINAL, Intent, State
from workbench.store.db.rows import JobRow
from workbench.values import dataclass

DONE: Final = "done"
RETAIN: Final = "retain"
"""The kind of request by which the controller has itself apply ``checkpoints.at_end``."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the request open until the backend confirms."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Close the request with an outcome."""

    outcome: str
    """``done``, or why not."""


@dataclass(frozen=True, slots=True)
class Intend:
    """Write the intent down; the request stays open."""

    intent: Intent


@dataclass(frozen=True, slots=True)
class Resume:
    """Begin the next attempt."""


@dataclass(frozen=True, slots=True)
class StartNow:
    """Start the attempt that waits for its time at once."""


@dataclass(frozen=True, slots=True)
class Reorder:
    """Have the job stand where it was asked for."""


Answer = Keep | Settle | Intend | Resume | StartNow | Reorder


def answer(kind: str, row: JobRow | None, later: Sequence[str]) -> Answer:
    """Say what to do about a request for a job; ``later`` holds the kinds of those made for it afterwards."""
    if kind == "submit":
        return Settle(DONE)
    if row is None or row.deleted_us is not None:
        return Settle(DONE if kind == "delete" else "the job is gone")
    if intent := Intent.of(kind):
        return _stop(row, intent)
    if kind == "resume":
        return _resume(row, later)
    if kind == "queue":
        return _reorder(row)
    return Settle(f"this version of fabric does not know how to {kind} a job")


def _stop(row: JobRow, intent: Intent) -> Answer:
    if row.state in TERMINAL and intent is not Intent.DELETE:
        return Settle(DONE if row.state is State.HALTED else f"it had ended already: {row.state}")
    return Intend(intent) if intent.replaces(row.intent) else Keep()


def _reorder(row: JobRow) -> Answer:
    if row.intent is not Intent.NONE:
        return Settle(f"it does not wait for its turn: its {row.intent} was asked for")
    if row.state is not State.QUEUED:
        return Settle(f"it does not wait for its turn: it is {row.state}")
    return Reorder()


def _resume(row: JobRow, later: Sequence[str]) -> Answer:
    if row.intent is Intent.DELETE:
        return Settle("it is being deleted")
    if row.state is State.COMPLETED:
        return Settle("it has completed; fabric rerun starts it again")
    if row.state in TERMINAL:
        return Resume()
    if stopped := [kind for kind in later if Intent.of(kind)]:
        return Settle(f"taken back by a later {stopped[0]}")
    if row.intent is not Intent.NONE:
        return Keep()
    if row.next_try_us is not None:
        return StartNow()
    return Settle(f"nothing to do: it is {row.state}")
