"""``fabric diff``: everything that differs between two jobs, of all that is recorded of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.services.inspect.compare import Sheet

EXIT_DIFFERENT: Final = 1
"""As diff does."""

Job = Annotated[str, typer.Argument(metavar="JOB", help="A job.", autocompletion=job_names)]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="Another one.", autocompletion=job_names)]


@command("diff", "fabric diff digits other", "fabric diff digits @last --json")
def diff(job: Job, other: Other, json: Json = False) -> int:
    """Show everything that differs between two jobs.

    Settings, place, code line by line, commit and uncommitted changes, interpreter, packages, machine, driver,
    image, seed, data, version of fabric. The exit code is 1 when something differs.
    """
    from workbench.job import nine
    from workbench.services.inspect.compare import sheet_of
    from workbench.services.open_store import store_with
    from workbench.store.jobs import resolve

    with store_with(job) as (store, row):
        one, two = sheet_of(store, row), sheet_of(store, resolve(store, other))
        parts = dict(_parts(one, two))
        code = _code(store.home, one, two)
    differs = any(parts.values()) or bool(code) or one.diff != two.diff
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.diff/1",
                "ids": [one.row.id, two.row.id],
                "differs": differs,
                **{
                    name: {key: list(values) for key, values in found.items()}
                    for name, found in parts.items()
                },
                "code": dict(code),
                "uncommitted": [one.diff, two.diff] if one.diff != two.diff else None,
            }
        )
    elif differs:
        sys.stdout.write(_text(one, two, parts, code))
    else:
        from workbench.terminal.console import narrate

        narrate(f"nothing that is known of differs between {nine(one.row.id)} and {nine(two.row.id)}")
    return EXIT_DIFFERENT if differs else 0


Found = dict[str, tuple[Any, Any]]


def _parts(one: Sheet, two: Sheet) -> Iterator[tuple[str, Found]]:
    from workbench.services.inspect.compare import packages_of, recorded_of, settings_of

    for name, read in (("settings", settings_of), ("recorded", recorded_of), ("packages", packages_of)):
        before, after = read(one), read(two)
        keys = dict.fromkeys((*before, *after))
        yield (
            name,
            {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)},
        )


def _code(home: Home, one: Sheet, two: Sheet) -> list[tuple[str, list[str]]]:
    from workbench.job import nine
    from workbench.services.inspect.compare import code_differences

    names = (nine(one.row.id), nine(two.row.id))
    return code_differences(home, one.detail.code_hash, two.detail.code_hash, names)


def _text(one: Sheet, two: Sheet, parts: dict[str, Found], code: list[tuple[str, list[str]]]) -> str:
    import difflib

    from workbench.job import nine
    from workbench.terminal.console import width
    from workbench.terminal.table import Column, render

    ids = [nine(one.row.id), nine(two.row.id)]
    columns = [Column(""), Column(ids[0], stretch=True), Column(ids[1], stretch=True)]
    sections = []
    for name, found in parts.items():
        if found:
            rows = [[key, *(_shown(value) for value in values)] for key, values in found.items()]
            sections.append(f"{name}\n" + render(columns, rows, width=width(160)))
    sections += ["\n".join(lines) + "\n" for _, lines in code]
    if one.diff != two.diff:
        names = [f"{name}/uncommitted" for name in ids]
        before, after = one.diff.splitlines(), two.diff.splitlines()
        lines = difflib.unified_diff(before, after, names[0], names[1], lineterm="")
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _shown(value: Any) -> str:
    if value in (None, "", {}, []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
