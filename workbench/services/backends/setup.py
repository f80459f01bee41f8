"""Reaches a place for the first time, where a person can be asked, and leaves one for good."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workbench.errors import ConfigError, FabricError, NotAllowed, TryAgain
from workbench.terminal.console import confirm, is_terminal, narrate, person_present

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Finding, Host
    from backends.contract.prompts import Question

UNREACHABLE: Final = 69


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of trying a place."""

    findings: tuple[Finding, ...]
    exit_code: int

    @property
    def usable(self) -> bool:
        """Whether jobs can run there."""
        return not any(each.level == "wrong" for each in self.findings)


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks whether a place that nobody here knows is the right one; its key may have been named beforehand."""

    accepted: str = ""

    def __call__(self, what: str, fingerprint: str) -> bool:
        """Return whether the key is accepted."""
        if self.accepted:
            return self.accepted == fingerprint
        if not (person_present() and sys.stdin is not None and is_terminal(sys.stdin)):
            return False
        narrate(f"{what} is not known here. It shows the key {fingerprint}")
        return confirm("Is that what its owner says it is?", yes=False)


def type_answer(question: Question) -> str | None:
    """Ask for what a place wants typed; None where nobody sits at a terminal."""
    if not (person_present() and sys.stdin is not None and is_terminal(sys.stdin)):
        return None
    if question.shown:
        sys.stderr.write(f"{question.text}: ")
        sys.stderr.flush()
        return sys.stdin.readline().rstrip("\n") or None
    from getpass import getpass

    return getpass(f"{question.text}: ", stream=sys.stderr) or None


def reach(options: BackendOptions, accept_key: str = "") -> list[Finding]:
    """Reach a place and return what was found there.

    Raises:
        FabricError: it cannot be reached, and why.
    """
    from workbench.controller.runtime.login_client import hand_over
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import open_backend

    backend = open_backend(options)
    backend.introduce(Asking(accept_key))
    found = list(backend.probe())
    hand_over(Home(default_home()))
    return found


def try_place(options: BackendOptions, accept_key: str = "") -> Tried:
    """Try a place; that it cannot be reached is a finding, too."""
    from backends.contract.host import Finding

    try:
        found = reach(options, accept_key)
    except FabricError as error:
        lack = Finding("reach", error.message, "wrong", "no job can run there", error.hint)
        return Tried((lack,), error.exit_code)
    wrong = {each.subject for each in found if each.level == "wrong"}
    code = 0 if not wrong else NotAllowed.exit_code if wrong == {"rights"} else UNREACHABLE
    return Tried(tuple(found), code)


def purge(options: BackendOptions) -> None:
    """Remove all that this home has at a place; its jobs keep what came home.

    Raises:
        TryAgain: jobs of this home run there.
        ConfigError: the place keeps nothing of ours but jobs.
    """
    from backends.contract.host import Host
    from workbench.paths import Home, default_home
    from workbench.services.backends.placement import open_backend
    from workbench.store.db.database import home_uuid

    if options.type == "local":
        raise ConfigError("this machine keeps the home itself, which is not removed", hint="see fabric gc")
    with closing(open_backend(options).open()) as place:
        if isinstance(place, Host):
            _purge(place, home_uuid(Home(default_home())), options.name)


def _purge(host: Host, ours: str, name: str) -> None:
    from pathlib import PurePosixPath

    running = sorted({text.split("/")[1] for text in host.call("markers") if text.startswith(f"{ours}/")})
    if running:
        raise TryAgain(
            f"{name} still runs {', '.join(running)}",
            hint="halt or kill what runs there, or leave --purge out",
        )
    folder = PurePosixPath(host.folder(ours))
    secrets = host.call("secret_folder")
    host.call("remove", paths=[str(folder)])
    # Each only if nobody else has anything in it: another home of the same person, another machine.
    for empty in (folder.parent, folder.parent.parent, PurePosixPath(secrets)):
        host.run(["rmdir", str(empty)])
