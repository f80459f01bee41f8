"""Why a job is in its state, in one line: the same words in lists, on pages, in reports and on the screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workbench.formats import MICROSECONDS, duration, printable
from workbench.job import Intent
from workbench.services.inspect.job_times import unseen_seconds

if TYPE_CHECKING:
    from workbench.store.db.rows import JobRow

BETWEEN: Final = " · "

_ASKED: Final = {
    Intent.HALT: "halting: waits for the backend to confirm",
    Intent.KILL: "being killed: waits for the backend to confirm",
    Intent.DELETE: "being deleted: waits for the backend to confirm",
}


def why(row: JobRow, now_us: int, between: str = BETWEEN) -> str:
    """Say what is asked of a job, why it is in its state, when its backend was last seen and when it is tried again.

    Args:
        row: The job.
        now_us: Now.
        between: What stands between two of these.
    """
    parts = [_ASKED[row.intent]] if row.intent else []
    if row.reason.text:
        parts.append(printable(f"{row.reason.code} {row.reason.text}".lstrip()))
    if (unseen := unseen_seconds(row, now_us)) is not None:
        parts.append(f"last seen {duration(unseen)} ago")
    if row.next_try_us is not None and row.next_try_us > now_us:
        parts.append(f"tries again in {duration((row.next_try_us - now_us) / MICROSECONDS)}")
    return between.join(parts)
