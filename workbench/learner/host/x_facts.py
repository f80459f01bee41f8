"""What the facts of a learner mean, as a place tells them: the same for who looks there and who is told. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping


def is_begun(facts: Mapping[str, Any]) -> bool:
    """Say whether a learner's agent lives, or its command may have been started: not to be done again."""
    state = facts["state"]
    return bool(facts["alive"]) or (state is not None and state.get("phase") != "starting")


def is_dead(facts: Mapping[str, Any]) -> bool:
    """Say whether a learner began, nobody keeps it any more, and its end is not recorded."""
    return not facts["alive"] and facts["state"] is not None and not is_over(facts)


def is_over(facts: Mapping[str, Any]) -> bool:
    """Say whether a learner's end is recorded."""
    state = facts["state"]
    return state is not None and state.get("phase") == "exited"
