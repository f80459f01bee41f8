"""``fabric diff``: everything that differs between two jobs, of all that is recorded of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from workbench.cli.framework.completion import job_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.documents.jobs import DiffDocument
    from workbench.services.inspect.comparison import ComparedValue, Comparison, FileDifference

EXIT_DIFFERENT: Final = 1
"""As diff does."""

Job = Annotated[str, typer.Argument(metavar="JOB", help="A job.", autocompletion=job_names)]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="Another one.", autocompletion=job_names)]


@command("diff", "fabric diff digits other", "fabric diff digits @last --json")
def diff(job: Job, other: Other, json: Json = False) -> int:
    """Show every difference between two jobs.

    Settings, backend, code line by line, commit and uncommitted changes, interpreter, packages, machine,
    driver,
    image, seed, data, version of fabric. The exit code is 1 if something differs.
    """
    from workbench.job import short_id
    from workbench.services.inspect.comparison import code_differences, compare
    from workbench.services.open_store import store_with
    from workbench.store.queries.resolve import resolve

    with store_with(job) as (store, row):
        compared = compare(store, [row, resolve(store, other)])
        one, two = compared.jobs
        parts = _differing(compared)
        labels = (short_id(one.row.id), short_id(two.row.id))
        code = code_differences(store.home, one.code_hash, two.code_hash, labels)
    differs = any(parts.values()) or bool(code) or one.uncommitted != two.uncommitted
    if json:
        from workbench.terminal.json_output import print_document

        print_document(_document(compared, parts, code))
    elif differs:
        sys.stdout.write(_text(compared, parts, code))
    else:
        narrate(f"no known differences between {labels[0]} and {labels[1]}")
    return EXIT_DIFFERENT if differs else 0


def _differing(compared: Comparison) -> dict[str, list[ComparedValue]]:
    parts = {"settings": compared.settings, "recorded": compared.recorded, "packages": compared.packages}
    return {name: [each for each in values if each.differs] for name, values in parts.items()}


def _document(
    compared: Comparison, parts: dict[str, list[ComparedValue]], code: Sequence[FileDifference]
) -> DiffDocument:
    from workbench.cli.commands.inspect.compare import difference_lines

    one, two = compared.jobs
    differs = any(parts.values()) or bool(code) or one.uncommitted != two.uncommitted
    return {
        "schema": "fabric.diff/1",
        "ids": [one.row.id, two.row.id],
        "differs": differs,
        "settings": _values(parts["settings"]),
        "recorded": _values(parts["recorded"]),
        "packages": _values(parts["packages"]),
        "code": {each.name: difference_lines(each) for each in code},
        "uncommitted": [one.uncommitted, two.uncommitted] if one.uncommitted != two.uncommitted else None,
    }


def _values(compared: Sequence[ComparedValue]) -> dict[str, list[Any]]:
    return {each.key: list(each.values) for each in compared}


def _text(compared: Comparison, parts: dict[str, list[ComparedValue]], code: Sequence[FileDifference]) -> str:
    import difflib

    from workbench.cli.commands.inspect.compare import difference_lines
    from workbench.job import short_id
    from workbench.terminal.table import Column, render

    one, two = compared.jobs
    ids = [short_id(one.row.id), short_id(two.row.id)]
    columns = [Column(""), Column(ids[0], stretch=True), Column(ids[1], stretch=True)]
    sections = []
    for name, values in parts.items():
        if values:
            rows = [[each.key, *map(_shown, each.values)] for each in values]
            sections.append(f"{name}\n" + render(columns, rows, width=width(160)))
    sections += ["\n".join(difference_lines(each)) + "\n" for each in code]
    if one.uncommitted != two.uncommitted:
        names = [f"{name}/uncommitted" for name in ids]
        before, after = one.uncommitted.splitlines(), two.uncommitted.splitlines()
        lines = difflib.unified_diff(before, after, names[0], names[1], lineterm="")
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _shown(value: Any) -> str:
    if value in (None, "", {}, []):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
