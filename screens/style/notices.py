"""What stands in the middle of a page that has nothing to show: what there is not, and what to do about it. Pure."""

from __future__ import annotations

from typing import Final

from workbench import formats
from workbench.job import TERMINAL, State
from workbench.store.db.rows import JobRow
from workbench.values import dataclass

WIDEST: Final = 76
"""A notice is wrapped at so many cells, however wide its page is."""


@dataclass(frozen=True, slots=True)
class EmptyNotice:
    """Two sentences."""

    what: str
    """What there is not, or why nothing can be shown."""
    hint: str = ""
    """What to do, with the key for it, or what it waits for."""

    def lines(self, width: int) -> list[tuple[str, str]]:
        """Return its lines, each with its role."""
        import textwrap

        room = max(10, min(WIDEST, width - 2))
        lines = [(line, "text") for line in textwrap.wrap(formats.printable(self.what), room)]
        return lines + [(line, "dim") for line in textwrap.wrap(formats.printable(self.hint), room)]

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.what, self.hint)))


NOTHING: Final = EmptyNotice("")
_WAITING: Final = (State.QUEUED, State.PENDING, State.DOWNLOADING)


def no_metrics(job: JobRow) -> EmptyNotice:
    """Say why a job has no charts."""
    if job.state in TERMINAL:
        return EmptyNotice(
            "no metrics", "numbers that a job prints or reports are charted; l shows what it printed"
        )
    return EmptyNotice(
        "no metrics yet",
        _waiting(job) or "they appear when the job prints or reports numbers; l shows its log",
    )


def no_usage(job: JobRow) -> EmptyNotice:
    """Say why nothing is known of what a job uses."""
    if job.state in TERMINAL:
        return EmptyNotice("no usage samples", "none were taken; d shows how the job ended")
    return EmptyNotice(
        "no usage samples yet", _waiting(job) or "one is taken every few seconds while the job runs"
    )


def no_files(job: JobRow) -> EmptyNotice:
    """Say why a job has no files."""
    if job.state in TERMINAL:
        return EmptyNotice(
            "no results", "the job wrote nothing to $RESULT_DIR or $CHECKPOINT_DIR; U copies a file into it"
        )
    return EmptyNotice(
        "no results yet",
        _waiting(job) or "what the job writes to $RESULT_DIR and $CHECKPOINT_DIR appears here",
    )


def no_output(job: JobRow, now_us: int, *, is_earlier: bool = False) -> EmptyNotice:
    """Say why a job's log is empty; ``is_earlier`` for that of an attempt before the last."""
    if is_earlier:
        return EmptyNotice("no output", "a shows the log of another attempt")
    if job.state in TERMINAL:
        return EmptyNotice("no output", "the job printed nothing; d shows how it ended")
    waited = formats.duration((now_us - job.changed_us) / 1e6)
    hint = job.reason.text or _waiting(job) or "what the job prints appears here at once"
    return EmptyNotice(f"waiting for the first output, {job.state.lower()} for {waited}", hint)


def _waiting(job: JobRow) -> str:
    """Say where it is explained why a job has not begun; empty for one that has."""
    return "the job has not begun; d shows what it waits for" if job.state in _WAITING else ""
