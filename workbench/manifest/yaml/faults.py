"""Faults and warnings of a manifest, gathered so that all are reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from workbench.errors import ManifestFault
from workbench.formats import printable
from workbench.manifest.yaml.nodes import SourceLocation
from workbench.values import dataclass

_FAULTS_MAX = 100
"""Nobody reads more, and a generated file could have a million."""


@dataclass(slots=True)
class Findings:
    """Faults and warnings found so far."""

    faults: list[ManifestFault] = field(default_factory=list)
    warnings: list[ManifestFault] = field(default_factory=list)

    def fault(self, location: SourceLocation, key: str, problem: str, hint: str = "") -> None:
        """Note something that makes the manifest unusable."""
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(
                ManifestFault(location.file, location.line, location.column, printable(key), problem, hint)
            )

    def warn(self, location: SourceLocation, key: str, problem: str, hint: str = "") -> None:
        """Note something that is doubtful but leaves the manifest usable."""
        if len(self.warnings) < _FAULTS_MAX:
            self.warnings.append(
                ManifestFault(location.file, location.line, location.column, printable(key), problem, hint)
            )

    def sorted(self) -> Findings:
        """Return the same in the order of the files, each finding once."""
        return Findings(_in_order(self.faults), _in_order(self.warnings))


def _in_order(found: Iterable[ManifestFault]) -> list[ManifestFault]:
    return sorted(dict.fromkeys(found), key=lambda fault: (fault.file, fault.line, fault.column))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that a mistyped one most likely stands for, or an empty text."""
    # Costs milliseconds to import and is needed only when something is mistyped.
    from difflib import get_close_matches

    by_form = {_form(candidate): candidate for candidate in known}
    matches = get_close_matches(_form(name), by_form, n=1, cutoff=0.6)
    return by_form[matches[0]] if matches else ""


def _form(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")[:80]
