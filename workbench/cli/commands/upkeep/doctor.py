"""``fabric doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json, Yes

if TYPE_CHECKING:
    from backends.contract.host import Finding

EXIT_WRONG = 78

Rebuild = Annotated[bool, typer.Option("--rebuild", help="Make the database anew from the job folders.")]


@command("doctor", "fabric doctor", "fabric doctor --json", "fabric doctor --rebuild --yes")
def doctor(rebuild: Rebuild = False, yes: Yes = False, json: Json = False) -> int:
    """Check this machine and fabric's own files; say what to do.

    The exit code is 78 when something is wrong. --rebuild restores a lost or damaged database and keeps the
    old file beside the new one.
    """
    if rebuild:
        from workbench.services.upkeep.rebuild import rebuild_store

        return rebuild_store(yes=yes, json=json)
    from workbench.services.upkeep.diagnostics import all_findings

    found = all_findings()
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
        from workbench.terminal.console import narrate

        print_findings(found)
        narrate("all is well" if _well(found) else "something is wrong; `do:` says what helps")
    return 0 if _well(found) else EXIT_WRONG


def _well(found: list[Finding]) -> bool:
    return not any(each.level == "wrong" for each in found)
