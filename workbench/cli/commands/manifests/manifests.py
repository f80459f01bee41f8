"""``fabric validate``, ``fabric init`` and ``fabric schema``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Force, Json

if TYPE_CHECKING:
    from workbench.errors import ManifestFault

EXIT_FAULTY = 65

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Manifests; `-` for stdin.")]
Strict = Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")]
File = Annotated[str, typer.Argument(metavar="[FILE]", help="Where to write it; `-` for stdout.")]
Learners = Annotated[int, typer.Option("--learners", min=1, metavar="N", help="The number of learners.")]
Framework = Annotated[
    str, typer.Option("--framework", metavar="NAME", help="pytorch, tensorflow, custom, ...")
]
CommandLine = Annotated[str, typer.Option("--command", metavar="TEXT", help="The command to run.")]


@command("validate", "fabric validate manifest.yml", "fabric validate --json *.yml")
def validate(files: Files, strict: Strict = False, json: Json = False) -> int:
    """Check manifests and list every error.

    All errors in all files are listed. The exit code is 65 if a file has an error, 66 if a file does not exist.
    """
    from workbench.errors import InputMissing
    from workbench.manifest import validate as check

    results = check(files)
    for file, faults, warnings in results:
        for text in faults if not json else []:
            _print_fault(text)
        for text in warnings if not json else []:
            _print_fault(text, warning=True)
        if not json and not faults:
            print(f"{file}: {'valid' if not warnings else 'valid, with warnings'}")
    if json:
        from workbench.terminal.json_output import print_document

        print_document([_document(*result, strict=strict) for result in results])
    if any(not Path(file).exists() for file, faults, _ in results if faults and file != "-"):
        return InputMissing.exit_code
    faulty = any(faults or (strict and warnings) for _, faults, warnings in results)
    return EXIT_FAULTY if faulty else 0


def _print_fault(fault: ManifestFault, *, warning: bool = False) -> None:
    kind = "warning: " if warning else ""
    position = fault.file + (f":{fault.line}:{fault.column}" if fault.line else "")
    key = f"{fault.key}: " if fault.key else ""
    hint = f"\n  hint: {fault.hint}" if fault.hint else ""
    print(f"{position}: {kind}{key}{fault.problem}{hint}")


def _document(
    file: str, faults: list[ManifestFault], warnings: list[ManifestFault], *, strict: bool
) -> dict[str, Any]:
    def fields(fault: ManifestFault) -> dict[str, Any]:
        return {
            "line": fault.line or None,
            "column": fault.column or None,
            "key": fault.key,
            "problem": fault.problem,
            "hint": fault.hint,
        }

    return {
        "schema": "fabric.validation/1",
        "file": file,
        "valid": not faults and not (strict and warnings),
        "faults": [fields(fault) for fault in faults],
        "warnings": [fields(fault) for fault in warnings],
    }


@command("init", "fabric init", "fabric init two-gpus.yml --learners 2", "fabric init - --framework pytorch")
def init(
    file: File = "manifest.yml",
    learners: Learners = 1,
    framework: Framework = "",
    command_line: CommandLine = "",
    force: Force = False,
) -> None:
    """Write a commented manifest to begin with."""
    from workbench.errors import CannotWrite
    from workbench.manifest import template
    from workbench.terminal.console import narrate

    text = template(
        learners=learners, framework=framework or "custom", command=command_line or "python train.py"
    )
    if file == "-":
        sys.stdout.write(text)
        return
    path = Path(file)
    if path.exists() and not force:
        raise CannotWrite(f"{file} already exists", hint="--force replaces it; another name keeps both")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(f"{file} cannot be written: {error.strerror}") from error
    narrate(f"wrote {file}; `fabric run {file}` runs it")


@command("schema", "fabric schema")
def schema(json: Json = True) -> None:
    """Print the manifest's JSON schema, for editors."""
    from workbench.manifest import schema as schema_of
    from workbench.terminal.json_output import print_document

    print_document(schema_of())
