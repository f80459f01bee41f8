"""Where a job may be given to its host before it can start."""

from __future__ import annotations

from runners.registry import capabilities_of
from workbench.store.db.rows import WATCHED, TargetRef


def can_wait_at_host(target: TargetRef) -> bool:
    """Say whether the host of a job may have it before it can start; a machine that starts on demand is not woken."""
    if target.options.get(WATCHED) or target.options.get("on_demand"):
        return False
    can = capabilities_of(target.runner)
    return can is not None and can.hands_over and can.heeds_wait
