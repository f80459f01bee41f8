"""Asks the command line for the help and the parameters of every command: ``python -m tests.frozen.commands``.

It prints one JSON document. All commands are asked in one process by the public entry ``fabric_workbench.main``;
what Typer makes of each is taken where Typer hands it over, so no module of fabric is named here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

from tests.support.waiting import patience

COLUMNS: Final = "100"
"""How wide the terminal is that the help is written for."""

OVERVIEW: Final = "fabric"
"""The name under which ``fabric --help`` is kept."""

_ENTRY: Final = re.compile(r"^  ([a-z][a-z-]*)((?:, [a-z][a-z-]*)*)  ")


def ask() -> dict[str, Any]:
    """Return what every command says of itself, from a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.frozen.commands"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": COLUMNS, "LANG": "C.UTF-8"},
        timeout=patience(120),
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert isinstance(document, dict)
    return document


def main() -> int:
    """Print the document."""
    import typer.main

    made: list[Any] = []
    get_command = typer.main.get_command

    def keep(app: Any) -> Any:
        made.append(get_command(app))
        return made[-1]

    typer.main.get_command = keep  # type: ignore[assignment] # Any takes and gives the same
    overview = _output_of("--help")
    pages = {OVERVIEW: overview}
    parameters: dict[str, Any] = {}
    for name, aliases in _entries(overview, "Start a job:"):
        pages[name] = _output_of(name, "--help")
        command = made[-1]
        parameters[name] = {"aliases": aliases, **_of_command(command)}
        for below in getattr(command, "commands", {}):
            whole = f"{name} {below}"
            pages[whole] = _output_of(name, below, "--help")
            parameters[whole] = _of_command(command.commands[below])
    topics = {name: _output_of("help", name) for name, _ in _entries(_output_of("help", "topics"), "Topics")}
    json.dump({"help": pages, "topics": topics, "commands": parameters}, sys.stdout, default=repr)
    return 0


def _output_of(*args: str) -> str:
    import fabric_workbench

    output = io.StringIO()
    sys.argv = ["fabric", *args]
    with contextlib.redirect_stdout(output):
        code = fabric_workbench.main()
    assert code == 0, f"fabric {' '.join(args)} ended with {code}"
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def _entries(page: str, heading: str) -> Iterator[tuple[str, list[str]]]:
    """Give the names that a list has from a heading on, each with its other names; it ends before the examples."""
    listed = page[page.index(heading) :].partition("\nExamples:")[0]
    for line in listed.splitlines():
        if found := _ENTRY.match(line):
            yield found[1], found[2].split(", ")[1:]


def _of_command(command: Any) -> dict[str, Any]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    return {
        "arguments": [_of_parameter(one) for one in arguments],
        "options": {one.opts[0]: _of_parameter(one) for one in options},
    }


def _of_parameter(parameter: Any) -> dict[str, Any]:
    default = parameter.default
    kind: Any = parameter.type
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = []  # those are the names of variables; what a user reads is the metavar
    described = {
        "names": names,
        "type": kind.name,
        "choices": list(getattr(kind, "choices", ())),
        "range": [getattr(kind, "min", None), getattr(kind, "max", None)],
        "metavar": parameter.metavar or (parameter.name.upper() if not names else None),
        "default": default if isinstance(default, str | int | float | bool | list | tuple) else None,
        "required": parameter.required,
        "flag": getattr(parameter, "is_flag", False),
        "repeatable": getattr(parameter, "multiple", False) or parameter.nargs == -1,
        "hidden": getattr(parameter, "hidden", False),
        "variable": parameter.envvar,
    }
    return {key: value for key, value in described.items() if value not in (None, False, [], [None, None])}


if __name__ == "__main__":
    sys.exit(main())
