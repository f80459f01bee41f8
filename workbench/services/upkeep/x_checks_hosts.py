"""What ``fabric doctor`` says of configured SSH hosts: all asked at once, none for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backends.contract.host import Finding
from workbench.errors import FabricError, PlaceUnreachable
from workbench.paths import Home

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions

ANSWER_SECONDS: Final = 10.0
"""How long all of them together have."""


def hosts(home: Home) -> Iterator[Finding]:
    """Say which hosts can be reached, and what each lacks."""
    from workbench.services.backends.placement import backend_options, known_backends

    asked = [options for name in known_backends() if (options := backend_options(name)).type == "ssh"]
    found: dict[str, list[Finding]] = {}
    threads = [
        threading.Thread(target=_ask, args=(options, found), daemon=True, name=f"ask {options.name}")
        for options in asked
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + ANSWER_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    for options in asked:
        yield from found.get(options.name) or [_silent(options)]


def _ask(options: BackendOptions, found: dict[str, list[Finding]]) -> None:
    from workbench.controller.runtime.session_borrower import load_place

    subject = f"place {options.name}"
    try:
        told = list(load_place(options).probe())
    except PlaceUnreachable as error:
        found[options.name] = [
            Finding(subject, error.message, "lack", "no job can run there now", error.hint)
        ]
    except FabricError as error:
        found[options.name] = [Finding(subject, error.message, "wrong", "no job can run there", error.hint)]
    else:
        reach = next((each.found for each in told if each.subject == "reach"), "it answers")
        lacks = [each for each in told if each.level != "ok"]
        found[options.name] = [
            Finding(subject, reach),
            *(replace(each, subject=subject, found=f"{each.subject}: {each.found}") for each in lacks),
        ]


def _silent(options: BackendOptions) -> Finding:
    return Finding(
        f"place {options.name}",
        f"it has not said all within {ANSWER_SECONDS:g} s",
        "lack",
        "jobs there may be slow to start",
        f"fabric backend test {options.name}",
    )


CHECKS: Final[tuple[Callable[[Home], Iterator[Finding]], ...]] = (hosts,)
