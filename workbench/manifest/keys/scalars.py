"""Kinds of values that are more than texts: numbers, truth values, sizes, durations, hyper-parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from workbench.manifest.keys import units
from workbench.manifest.keys.kinds import MultilineText, ValueKind
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import Node, ScalarNode

Measure = TypeVar("Measure", int, float)


class Number(ValueKind):
    """A number between two bounds."""

    noun: ClassVar[str] = "a number"

    def __init__(self, low: float, high: float, *, hint: Callable[[str], str] | None = None) -> None:
        self.low, self.high = low, high
        self._hint = hint
        self.expected = f"{self.noun} from {low:,} to {high:,}"

    def read(self, node: Node, path: str, findings: Findings) -> float | None:
        """Return the number."""
        value = node.value if isinstance(node, ScalarNode) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not self.fits(value):
            hint = "" if not isinstance(node, ScalarNode) else self._advice(node)
            self.wrong(node, path, findings, hint)
            return None
        return float(value)

    def fits(self, value: float) -> bool:
        """Say whether a number is allowed."""
        return math.isfinite(value) and self.low <= value <= self.high

    def _advice(self, node: ScalarNode) -> str:
        if self._hint and (hint := self._hint(node.text)):
            return hint
        quoted = node.style in ("single", "double") and re.fullmatch(r"\s*[-+.0-9eE]+\s*", node.text)
        return "without quotation marks" if quoted else ""

    def schema(self) -> dict[str, Any]:
        """A number with bounds."""
        return {"type": "number", "minimum": self.low, "maximum": self.high}


class WholeNumber(Number):
    """A whole number between two bounds; ``2.0`` is one."""

    noun = "a whole number"

    def read(self, node: Node, path: str, findings: Findings) -> int | None:
        """Return the number."""
        value = super().read(node, path, findings)
        if value is None or not isinstance(node, ScalarNode):
            return None
        exact = node.value
        return exact if isinstance(exact, int) else int(value)

    def fits(self, value: float) -> bool:
        """Say whether a number is allowed."""
        return super().fits(value) and value == int(value)

    def schema(self) -> dict[str, Any]:
        """An integer with bounds."""
        return {**super().schema(), "type": "integer"}


class TruthValue(ValueKind):
    """A truth value."""

    expected = "true or false"

    def read(self, node: Node, path: str, findings: Findings) -> bool | None:
        """Return it; ``yes`` and ``on`` are texts in YAML 1.2, and the fault says so."""
        value = node.value if isinstance(node, ScalarNode) else None
        if isinstance(value, bool):
            return value
        is_old = isinstance(value, str) and value.lower() in ("yes", "no", "on", "off", "y", "n")
        self.wrong(node, path, findings, "yes, no, on and off are plain texts in YAML 1.2" if is_old else "")
        return None

    def schema(self) -> dict[str, Any]:
        """A boolean."""
        return {"type": "boolean"}


class Size(ValueKind):
    """Bytes, with a unit."""

    expected = "a number and a unit, such as 512MiB, 1Gb, 1.5GB, 8G or 16GiB"

    def read(self, node: Node, path: str, findings: Findings) -> int | None:
        """Return bytes."""
        return _measured(self, units.size_bytes, node, path, findings)

    def schema(self) -> dict[str, Any]:
        """A text with a unit."""
        return {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*[mMgGtT][iI]?[bB]?\s*$"}


class Duration(ValueKind):
    """Seconds, bare or with units."""

    expected = "seconds, or such as 90s, 45m, 1h30m, 2d"

    def __init__(self, *, above_zero: bool = False) -> None:
        self._above_zero = above_zero

    def read(self, node: Node, path: str, findings: Findings) -> float | None:
        """Return seconds."""
        seconds = _measured(self, units.duration_seconds, node, path, findings)
        if seconds == 0 and self._above_zero:
            findings.fault(node.location, path, "must be above zero; leave the key out for no limit")
            return None
        return seconds

    def schema(self) -> dict[str, Any]:
        """A number or a text with units."""
        return {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*[0-9.].*$"}]}


class BeginTime(ValueKind):
    """When a job may start: a clock time, a date, or how much later."""

    expected = "a time such as 22:00, 2026-12-24T08:00 or +2h"

    def read(self, node: Node, path: str, findings: Findings) -> str | None:
        """Return the text as written: what it stands for depends on when the job is submitted."""
        from workbench.time_expressions import is_begin

        if not isinstance(node, ScalarNode) or not is_begin(node.text):
            self.wrong(
                node, path, findings, "10:30pm, 2026-12-24 and 2026-12-24T08:00+01:00 are such times, too"
            )
            return None
        return node.text.strip()

    def schema(self) -> dict[str, Any]:
        """A text; ``22:00`` is one in YAML 1.2."""
        return {"type": "string", "examples": ["22:00", "2026-12-24T08:00", "+2h"]}


def _measured(
    kind: ValueKind, measure: Callable[[str], Measure], node: Node, path: str, findings: Findings
) -> Measure | None:
    if not isinstance(node, ScalarNode) or isinstance(node.value, bool):
        kind.wrong(node, path, findings)
        return None
    try:
        return measure(node.text)
    except ValueError as error:
        findings.fault(node.location, path, str(error))
        return None


class AnyScalar(ValueKind):
    """A truth value, number or text with its type kept: a hyper-parameter."""

    expected = "a number, a text, true or false"

    def read(self, node: Node, path: str, findings: Findings) -> bool | int | float | str | None:
        """Return the value."""
        if not isinstance(node, ScalarNode):
            self.wrong(node, path, findings)
            return None
        value = node.value
        if isinstance(value, str):
            return MultilineText().read(node, path, findings)
        if value is None:
            self.wrong(node, path, findings)
            return None
        if not math.isfinite(value) or abs(value) >= 1 << 63:
            self.wrong(node, path, findings, "put it in quotes if it is meant as a text")
            return None
        return value

    def schema(self) -> dict[str, Any]:
        """Any scalar."""
        return {"type": ["string", "number", "boolean"]}
