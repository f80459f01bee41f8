"""The kinds of values that documents hold, with what JSON schema calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Final

from workbench.job import ID_ALPHABET, ID_LENGTH, ID_PREFIX, Intent, LearnerPhase, State
from workbench.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Annotates a value with words of JSON schema."""

    words: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class FieldsOf:
    """Annotates an object that has all fields of a dataclass, as ``asdict`` gives them, and others."""

    kind: Any
    others: Mapping[str, Any] = field(default_factory=dict)
    """Keys with types that are added, or are other than the field's."""


Time = Annotated[str, Rule({"format": "date-time"})]
"""ISO 8601 in UTC, with microseconds."""

Id = Annotated[str, Rule({"pattern": f"^{ID_PREFIX}[{ID_ALPHABET}]{{{ID_LENGTH}}}$"})]
"""A job's id."""

StateName = Annotated[str, Rule({"enum": [each.value for each in State]})]
IntentName = Annotated[str, Rule({"enum": [each.value for each in Intent]})]
PhaseName = Annotated[str, Rule({"enum": [each.value for each in LearnerPhase]})]

_MEASURED: Final = Rule({"anyOf": [{"type": ["number", "null"]}, {"enum": ["inf", "-inf"]}]})
Measured = Annotated[float | None, _MEASURED]
"""A value that was measured, or None: in JSON, NaN is null, and infinities are texts."""
Reading = Annotated[float, _MEASURED]
"""A value that was measured."""
