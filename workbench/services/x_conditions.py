"""The conditions of ``--require`` and ``--notify-when``: read, with faults pointed at in their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.services.filters import pointing

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition


def read_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Read what was said, all of it.

    Raises:
        UsageError: a part of it cannot be read; it is pointed at.
    """
    from workbench.metrics.conditions import ConditionError, parse

    found: list[Condition] = []
    for text in texts:
        try:
            found += parse(text)
        except ConditionError as error:
            raise pointing(text, error.start, error.end, error.message, error.hint) from None
    return tuple(found)
