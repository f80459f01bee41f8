"""``fabric doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Yes
from workbench.errors import UsageError
from workbench.terminal.console import confirm, narrate

if TYPE_CHECKING:
    from backends.contract.host import Finding
    from workbench.services.upkeep.bind_home import Bound

EXIT_WRONG = 78

Rebuild = Annotated[bool, typer.Option("--rebuild", help="Rebuild the database from the job folders.")]
Bind = Annotated[bool, typer.Option("--bind-home", help="Accept this folder as the home after a move.")]


@command(
    "doctor",
    "fabric doctor",
    "fabric doctor --json",
    "fabric doctor --rebuild --yes",
    "fabric doctor --bind-home",
)
def doctor(rebuild: Rebuild = False, bind_home: Bind = False, yes: Yes = False, json: Json = False) -> int:
    """Check this machine and fabric's own files, with remedies.

    The exit code is 78 if something is wrong. --rebuild restores a lost or damaged database and keeps the
    old file. --bind-home is for a home that was moved, or restored from a backup: its jobs
    are taken over again. A copy of a home that is still there is refused.
    """
    if rebuild and bind_home:
        raise UsageError("--rebuild or --bind-home, one after the other", hint="--bind-home first")
    if bind_home:
        return _bind_home(yes=yes, json=json)
    if rebuild:
        _rebuild(yes=yes, json=json)
        return 0
    from workbench.paths import Home, default_home
    from workbench.services.upkeep.diagnostics import diagnose

    found = list(diagnose(Home(default_home())))
    if json:
        from workbench.cli.commands.backends.backend import finding_document
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.doctor/1",
                "well": _well(found),
                "findings": [finding_document(each) for each in found],
            }
        )
    else:
        from workbench.cli.commands.backends.backend import print_findings

        print_findings(found)
        narrate(_verdict(found))
    return 0 if _well(found) else EXIT_WRONG


def _rebuild(*, yes: bool, json: bool) -> None:
    from workbench.formats import count
    from workbench.paths import Home, default_home
    from workbench.services.upkeep.rebuild import rebuild_database
    from workbench.terminal.errors import warn

    home = Home(default_home())
    question = f"Rebuild {home.database} from the job folders? The old file is kept next to it."
    if home.database.exists() and not confirm(question, yes=yes):
        narrate("nothing was changed")
        return
    rebuilt = rebuild_database(home)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.rebuild/1",
                "jobs": rebuilt.jobs,
                "events": rebuilt.events,
                "deleted": rebuilt.deleted_jobs,
                "open_jobs": rebuilt.open_jobs,
                "problems": list(rebuilt.problems),
                "old_database": rebuilt.kept or None,
            }
        )
        return
    for text in rebuilt.problems:
        warn(text)
    restored = f"{count(rebuilt.jobs, 'job')} from {count(rebuilt.events, 'event')}"
    narrate(f"restored {restored}; {rebuilt.open_jobs} still open")
    if rebuilt.kept:
        narrate(f"the old database is kept: {rebuilt.kept}")


def _verdict(found: list[Finding]) -> str:
    """Say in one sentence what the findings come to."""
    if not _well(found):
        return "problems found; `do:` shows the remedies"
    if any(each.level == "lack" for each in found):
        return "no problems found; `lack` marks what is missing, and `do:` shows the remedies"
    return "no problems found"


def _well(found: list[Finding]) -> bool:
    return not any(each.level == "wrong" for each in found)


def _bind_home(*, yes: bool, json: bool) -> int:
    from workbench.paths import Home, default_home
    from workbench.services.upkeep.bind_home import bind_home, look_at_home

    found = look_at_home(Home(default_home()))
    question = (
        f"{found.home.path} was bound to {found.before or 'another folder'} of another machine, which cannot be "
        "reached from here. Is it unused there? Two homes would end each other's jobs."
    )
    if found.is_elsewhere and not confirm(question, yes=yes):
        narrate("nothing was changed")
        return 0
    bound = bind_home(found)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.bind-home/1",
                "home": bound.home,
                "uuid": bound.uuid,
                "was": bound.was,
                "before": bound.before,
                "open_jobs": bound.open_jobs,
                "link": bound.link,
                "trouble": bound.trouble,
            }
        )
    else:
        _print_bound(bound)
    return 0


def _print_bound(bound: Bound) -> None:
    from workbench.formats import count
    from workbench.terminal.errors import warn

    if bound.was == "home":
        narrate(f"{bound.home} was the home already")
        return
    narrate(f"{bound.home} is the home")
    if bound.link:
        narrate(
            f"{bound.link} is a link to it now, for jobs that were started there; remove it when they are over"
        )
    if bound.trouble:
        warn(
            f"jobs that run look for their files under {bound.before}, where no link can be made: {bound.trouble}"
        )
    if bound.open_jobs:
        narrate(f"{count(bound.open_jobs, 'open job')} taken over")
