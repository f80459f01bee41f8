"""What is said when the screens are left: which jobs go on without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from screens.style import text
from screens.style.status import is_open
from workbench.store.db.rows import JobRow

MOST: Final = 10
"""So many jobs are named."""


def farewell(jobs: Sequence[JobRow]) -> str:
    """Return the lines, or nothing when nothing goes on."""
    going = [job for job in jobs if is_open(job)]
    if not going:
        return ""
    lines = ["1 job goes on:" if len(going) == 1 else f"{len(going):,} jobs go on:"]
    lines += [f"  {job.id}  {job.state.lower():<11} {text.harmless(job.name)}" for job in going[-MOST:]]
    if len(going) > MOST:
        lines.append(f"  and {len(going) - MOST:,} more")
    shows = "it" if len(going) == 1 else "them"
    return "\n".join([*lines, f"fabric tui shows {shows} again", ""])
