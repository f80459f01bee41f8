"""How a job's state looks: shape, word and colour, and what describes it in one line. Pure."""

from __future__ import annotations

from typing import Final

from screens.style.glyphs import glyphs
from workbench.job import FaultOwner, State
from workbench.services.inspect import why as inspect_why
from workbench.store.db.rows import JobRow, is_over
from workbench.values import dataclass

COLOURS: Final = {
    State.QUEUED: "$text-muted",
    State.PENDING: "$text-warning",
    State.DOWNLOADING: "$text-warning",
    State.PROCESSING: "$text-primary",
    State.STORING: "$text-primary",
    State.COMPLETED: "$text-success",
    State.FAILED: "$text-error",
    State.HALTED: "$text-muted",
}
"""Names of the theme's colours, so that each theme chooses its own."""


@dataclass(frozen=True, slots=True)
class StateLook:
    """A state as it is drawn."""

    shape: str
    word: str
    colour: str

    def __str__(self) -> str:
        return f"{self.shape} {self.word}"


def look(state: State) -> StateLook:
    """Return the look of a state."""
    return StateLook(glyphs().states[state], state.lower(), COLOURS[state])


def is_open(job: JobRow) -> bool:
    """Say whether something of a job runs or is to come."""
    return not is_over(job)


def is_problem(job: JobRow) -> bool:
    """Say whether a job failed, or waits with a fault."""
    return job.state is State.FAILED or job.reason.fault is not None


def why(job: JobRow, now_us: int) -> str:
    """Say in one line why a job is in its state, with the sign of this terminal between two facts."""
    return inspect_why.why(job, now_us, f" {glyphs().dot} ")


def fault_words(job: JobRow) -> str:
    """Say whose fault a failure is, or nothing."""
    match job.reason.fault:
        case FaultOwner.USER:
            return "job fault"
        case FaultOwner.PLATFORM:
            return "backend fault"
        case None:
            return ""
