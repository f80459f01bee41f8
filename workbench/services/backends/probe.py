"""Probes backends: whether jobs can run there, and what is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from workbench.errors import FabricError, NotAllowed
from workbench.services.cancel import Cancelled, call
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import Ask, BackendOptions, Finding

EXIT_UNREACHABLE: Final = 69
_MARKS: Final = {"ok": "ok   ", "lack": "lack ", "wrong": "wrong"}
"""What stands before a finding, by its level."""


@dataclass(frozen=True, slots=True)
class BackendReport:
    """What a probe found."""

    findings: tuple[Finding, ...]
    exit_code: int
    """0 where jobs can run, else why not: 69 not reached, 77 not allowed, 78 host key not known."""

    @property
    def usable(self) -> bool:
        """Whether jobs can run there."""
        return not any(each.level == "wrong" for each in self.findings)

    def verdict(self, name: str) -> str:
        """Say of the backend of that name whether it can be used."""
        return f"{name}: {'usable' if self.usable else 'cannot be used'}"


def finding_lines(
    findings: Sequence[Finding], paint: Callable[[str, str], str] = lambda level, mark: mark
) -> list[str]:
    """Return findings one a line, each lack with what follows from it and what to do.

    ``paint`` gets a finding's level and its mark, and returns the mark as it is shown.
    """
    wide = max((len(each.subject) for each in findings), default=0)
    lines = []
    for each in findings:
        lines.append(f"  {paint(each.level, _MARKS[each.level])}  {each.subject:{wide}}  {each.found}")
        lines += [
            f"  {'':5}  {'':{wide}}  {word}: {text}"
            for word, text in (("so", each.consequence), ("do", each.remedy))
            if text
        ]
    return lines


def probe(
    options: BackendOptions, accept: Ask | None = None, *, cancel: threading.Event | None = None
) -> BackendReport:
    """Probe a backend; that it cannot be reached is a finding, too.

    Args:
        options: the backend.
        accept: asks whether an unknown host key is accepted; without it an unknown host is a finding.
        cancel: ends the call once it is set.

    Raises:
        Cancelled: ``cancel`` was set.
    """
    from backends.contract.host import Finding

    try:
        found = call(partial(_findings, options, accept), cancel)
    except Cancelled:
        raise
    except FabricError as error:
        unreachable = Finding("reach", error.message, "wrong", "no job can run there", error.hint)
        return BackendReport((unreachable,), error.exit_code)
    wrong = {each.subject for each in found if each.level == "wrong"}
    code = 0 if not wrong else NotAllowed.exit_code if wrong == {"rights"} else EXIT_UNREACHABLE
    return BackendReport(found, code)


def _findings(options: BackendOptions, accept: Ask | None) -> tuple[Finding, ...]:
    from workbench.services.backends.placement import open_backend

    return tuple(open_backend(options).probe()) if accept is None else reach(options, accept)


def reach(options: BackendOptions, accept: Ask) -> tuple[Finding, ...]:
    """Connect to a backend, perhaps for the first time, and probe it; the controller may use what was typed.

    Raises:
        FabricError: it cannot be reached; the subclass says why.
    """
    from workbench.controller.client.login import hand_over
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import open_backend

    backend = open_backend(options)
    backend.introduce(accept)
    found = tuple(backend.probe())
    hand_over(Home(default_home()))
    return found
