"""``fabric validate``, ``fabric init``, ``fabric convert`` and ``fabric schema``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Force, Json
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.documents.jobs import FaultEntry, ValidationDocument
    from workbench.errors import ManifestFault
    from workbench.manifest.builder.script_options import ScriptOptions
    from workbench.services.submit.validation import Validation

EXIT_FAULTY = 65

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Manifests; `-` for stdin.")]
Strict = Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")]
Foreign = Annotated[str, typer.Argument(metavar="FILE", help="A file of another tool; `-` for stdin.")]
File = Annotated[
    str,
    typer.Argument(
        metavar="[FILE]", help="Where to write it, `-` for stdout; or a script whose options it gets."
    ),
]
Target = Annotated[str, typer.Argument(metavar="[TARGET]", help="After a script: where to write it.")]
Document = Annotated[
    str, typer.Argument(metavar="[NAME]", help="A document, as --list names it; default: manifest.")
]
ListAll = Annotated[bool, typer.Option("--list", help="List the documents that have a schema.")]
Learners = Annotated[int, typer.Option("--learners", min=1, metavar="N", help="The number of learners.")]
Framework = Annotated[
    str, typer.Option("--framework", metavar="NAME", help="pytorch, tensorflow, custom, ...")
]
CommandLine = Annotated[str, typer.Option("--command", metavar="TEXT", help="The command to run.")]


@command("validate", "fabric validate manifest.yml", "fabric validate --json *.yml")
def validate(files: Files, strict: Strict = False, json: Json = False) -> int:
    """Check manifests and list every error.

    All errors in all files are listed, also what `fabric run` would refuse at once on this machine; a secret that
    is not set or GPUs that are not here are warnings. The exit code is 65 if a file has an error, 66 if a file
    does not exist.
    """
    from workbench.errors import InputMissing
    from workbench.paths import Home, default_home
    from workbench.services.submit.validation import validate as check

    results = check(files, Home(default_home()))
    if json:
        from workbench.terminal.json_output import print_document

        print_document([_document(each, strict=strict) for each in results])
    else:
        for each in results:
            _print_validation(each)
    if any(each.is_missing for each in results):
        return InputMissing.exit_code
    return EXIT_FAULTY if any(each.faults or (strict and each.warnings) for each in results) else 0


def _print_validation(found: Validation) -> None:
    for fault in found.faults:
        _print_fault(fault)
    for fault in found.warnings:
        _print_fault(fault, warning=True)
    if not found.faults:
        print(f"{found.file}: {'valid, with warnings' if found.warnings else 'valid'}")


def _print_fault(fault: ManifestFault, *, warning: bool = False) -> None:
    kind = "warning: " if warning else ""
    position = fault.file + (f":{fault.line}:{fault.column}" if fault.line else "")
    key = f"{fault.key}: " if fault.key else ""
    hint = f"\n  hint: {fault.hint}" if fault.hint else ""
    print(f"{position}: {kind}{key}{fault.problem}{hint}")


def _document(found: Validation, *, strict: bool) -> ValidationDocument:
    def fields(fault: ManifestFault) -> FaultEntry:
        return {
            "line": fault.line or None,
            "column": fault.column or None,
            "key": fault.key,
            "problem": fault.problem,
            "hint": fault.hint,
        }

    return {
        "schema": "fabric.validation/1",
        "file": found.file,
        "valid": not found.faults and not (strict and found.warnings),
        "faults": [fields(fault) for fault in found.faults],
        "warnings": [fields(fault) for fault in found.warnings],
    }


@command("init", "fabric init", "fabric init train.py train.yml", "fabric init two-gpus.yml --learners 2")
def init(
    file: File = "manifest.yml",
    target: Target = "",
    learners: Learners = 1,
    framework: Framework = "",
    command_line: CommandLine = "",
    force: Force = False,
) -> None:
    """Write a commented manifest to begin with.

    Given a Python script, `params:` and the command are made of its options (argparse, click, typer, fire, hydra),
    without running it; options that cannot be read are named.
    """
    from workbench.errors import CannotWrite, UsageError
    from workbench.manifest import command_in, template

    script = file if file.endswith(".py") else ""
    if target and not script:
        raise UsageError(f"{file} is not a Python script", hint="fabric init train.py manifest.yml")
    found = _script_options(Path(script)) if script else None
    file = target or "manifest.yml" if script else file
    folder = Path(file).absolute().parent if file != "-" else Path.cwd()
    text = template(
        name=Path(script).stem or "my-job",
        learners=learners,
        framework=framework or "custom",
        command=command_line or (found.command(_start_of(script)) if found else command_in(folder)),
        options=found.options if found and not command_line else (),
    )
    for line in found.left_out if found else ():
        narrate(f"note: not a parameter: {line}")
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


def _start_of(script: str) -> str:
    from workbench.manifest import interpreter_of

    return shlex.join([*(interpreter_of(script) or ()), script])


def _script_options(script: Path) -> ScriptOptions:
    """Read a script's options.

    Raises:
        InputMissing: there is no such file.
        ManifestError: it is not Python.
    """
    from workbench.errors import InputMissing, ManifestError, ManifestFault
    from workbench.manifest import read_script_options

    try:
        text = script.read_text(encoding="utf-8", errors="replace")
        return read_script_options(text, lambda path: _hydra_config(script.parent / path))
    except OSError as error:
        raise InputMissing(f"{script} cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0) or 0
        fault = ManifestFault(str(script), line, 1 if line else 0, "", f"is not Python: {error}")
        raise ManifestError([fault]) from error


def _hydra_config(path: Path) -> dict[str, Any] | None:
    from workbench.manifest import read_values

    try:
        return read_values(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError):
        return None


@command("convert", "fabric convert task.yaml", "fabric convert job.sbatch")
def convert(file: Foreign) -> None:
    """Turn a simple job file of another tool into a manifest.

    Files of Determined, SkyPilot, dstack, Slurm (#SBATCH), Docker Compose, MLflow (MLproject) and Ray are read. The
    manifest goes to stdout; what is not carried over is listed on stderr.
    """
    from workbench.manifest import convert as converted
    from workbench.manifest.yaml.source import read_manifest

    made = converted(read_manifest(file, None), file)
    sys.stdout.write(made.text)
    narrate(f"made of {made.format}")
    for note in made.notes:
        narrate(f"note: {note}")


@command("schema", "fabric schema", "fabric schema job", "fabric schema --list")
def schema(name: Document = "manifest", list_all: ListAll = False, json: Json = False) -> None:
    """Print the JSON schema of manifests, or of what --json prints.

    A document is named by its mark: `job` or `fabric.job/1`. Within a version keys are only added, so a schema
    lets keys pass that it does not have.
    """
    from workbench.documents.catalogue import documents
    from workbench.documents.catalogue import schema as schema_of
    from workbench.terminal.json_output import print_document, print_json

    if not list_all:
        print_json(schema_of(name))
    elif json:
        print_document(list(documents()))
    else:
        from workbench.terminal.table import Column, render

        columns = [Column("NAME"), Column("ABOUT", stretch=True)]
        rows = [[each["name"], each["about"]] for each in documents()]
        sys.stdout.write(render(columns, rows, width=width(100)))
