"""``fabric gc``."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, Yes
from workbench.formats import count, size
from workbench.terminal.console import confirm, narrate, person_present, width

if TYPE_CHECKING:
    from workbench.errors import FabricError
    from workbench.services.upkeep.orphans import Leftover


@command("gc", "fabric gc", "fabric gc --json", "fabric gc --yes")
def gc(backend: Backend = "", yes: Yes = False, json: Json = False) -> int:
    """List what belongs to no job, and remove it on request.

    These are learners that are not in the database, files of deleted jobs, and code that no job uses. What
    belongs to another home is listed and never touched. Without a terminal, only --yes removes anything.
    """
    from workbench.services.open_store import existing_store
    from workbench.services.upkeep.orphans import find_leftovers

    with existing_store(steers=True) as store:
        if store is None:
            narrate("nothing to do: no job was ever started from this home")
            return 0
        searched = find_leftovers(store, backend)
        for text in searched.problems:
            narrate(text)
        found = searched.leftovers
        if json and not yes:
            _print_document(found, removed=())
            return 0
        ours = [each for each in found if each.remove is not None]
        if not json:
            _print_table(found)
        if not ours:
            return 0
        if not yes and not person_present():
            narrate("--yes removes what belongs to this home")
            return 0
        if not confirm(f"Remove {count(len(ours), 'item')} of this home?", yes=yes):
            narrate("nothing was removed")
            return 0
        errors = _remove(ours)
        if json:
            _print_document(found, removed=set(ours) - errors.keys())
        elif len(errors) < len(ours):
            narrate(f"removed {count(len(ours) - len(errors), 'item')}")
        else:
            narrate("nothing was removed")
    return next((error.exit_code for error in errors.values()), 0)


def _remove(ours: Sequence[Leftover]) -> dict[Leftover, FabricError]:
    """Remove what is of this home; return what stays with the reason, which is printed, too."""
    from workbench.services.upkeep.orphans import remove_leftover
    from workbench.terminal.errors import warn

    errors: dict[Leftover, FabricError] = {}
    for each in ours:
        if error := remove_leftover(each):
            errors[each] = error
            warn(f"{each.kind} {each.name} stays: {error}")
    return errors


def _print_table(found: Sequence[Leftover]) -> None:
    from workbench.terminal.table import Column, render

    if not found:
        narrate("nothing is left over")
        return
    columns = [
        Column("WHAT"),
        Column("WHERE"),
        Column("NAME"),
        Column("SIZE", right=True),
        Column("WHY", stretch=True),
    ]
    rows = [
        [
            each.kind,
            each.backend,
            each.name,
            "" if each.size_bytes is None else size(each.size_bytes),
            each.why,
        ]
        for each in found
    ]
    sys.stdout.write(render(columns, rows, width=width(120)))


def _print_document(found: Sequence[Leftover], *, removed: Collection[Leftover]) -> None:
    from workbench.terminal.json_output import print_document

    print_document(
        [
            {
                "schema": "fabric.leftover/1",
                "kind": each.kind,
                "backend": each.backend,
                "name": each.name,
                "size_bytes": each.size_bytes,
                "why": each.why,
                "ours": each.remove is not None,
                "removed": each in removed,
            }
            for each in found
        ]
    )
