"""Makes ``docs/cli.md`` of the commands: ``python -m workbench.cli.framework.docgen --write``, or ``--check``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.cli.framework import registry
from workbench.cli.framework.declare import Command, Family
from workbench.cli.framework.dispatch import load

FILE = Path(__file__).parents[3] / "docs" / "cli.md"
WIDTH = 88

HEAD = """\
# The command line

Made from the commands by `python -m workbench.cli.framework.docgen --write`; a test compares.

## Conventions

* stdout is data, stderr is narration: the output of a job goes to stdout byte for byte, everything that
  fabric says to stderr. Colour and lines that are drawn in place only on a terminal; `NO_COLOR` and
  `TERM=dumb` refuse them.
* A job is named by its id (`training-` may be left out), any unique beginning of it, its name, or `@last`.
* `--json` prints one document, or, where something is followed (`run`, `attach`, `logs -f`, `metrics -f`),
  one line an event. Documents, and the elements of an array, carry `schema`. Fields are only ever added.
* A failure is a line `error: ...` and often a line `hint: ...` on stderr. `FABRIC_DEBUG=1` also shows where
  in fabric it came from.
* On a terminal ctrl-c and a hang-up leave the job running (exit codes 130 and 129) and say how to come back.
  Without a terminal, or with `CI` set, SIGINT and SIGTERM halt the job and a second one kills it.
  `--on-interrupt detach|halt|kill` decides otherwise. A closed pipe leaves silently (141).

## Exit codes

`run`, `rerun`, `attach` and `wait` end with the job's own exit code; `exit_by` in `--json` says whose it is.

| code | meaning |
|---|---|
| 0 | all is well |
| 1-255 | what the command of the job exited with; 128 + n when signal n ended it |
| 124 | stopped by `max_runtime`, or `wait --timeout` is over |
| 126, 127 | the job's command is not executable, or not there |
| 129, 130 | left by a hang-up or ctrl-c; the job goes on |
| 137, 143 | the job was killed, or halted |
| 141 | nobody read stdout any more; the job goes on |
| 64 | the words are wrong; no such job, backend or runner |
| 65 | the manifest is at fault |
| 66 | a file that is not there |
| 69 | a place that cannot be reached |
| 70 | a fault of fabric |
| 73 | a home or a disk that cannot be written |
| 75 | lost to the platform, or busy: try again |
| 77 | not allowed |
| 78 | the configuration is at fault |

## Commands
"""


def render() -> str:
    """Return the whole page."""
    parts = [HEAD, "\n", "```text\n", registry.overview(), "```\n"]
    for entry in registry.ENTRIES:
        title = ", ".join(f"`{name}`" for name in (entry.name, *entry.aliases))
        parts.append(f"\n### {title}\n")
        parts += [f"\n```text\n{text.rstrip()}\n```\n" for text in _helps(entry)]
    return "".join(parts)


def _helps(entry: registry.Entry) -> Iterator[str]:
    from typer.main import get_command

    target: Command | Family = load(entry)
    command = get_command(target.app())
    yield _help(command, f"{registry.PROGRAM} {entry.name}")
    for name, member in getattr(command, "commands", {}).items():
        yield _help(member, f"{registry.PROGRAM} {entry.name} {name}")


def _help(command: Any, path: str) -> str:  # Typer's class of commands is not public
    with command.make_context(path, [], resilient_parsing=True, max_content_width=WIDTH) as context:
        context.terminal_width = WIDTH
        return str(command.get_help(context))


def main(words: list[str]) -> int:
    """Write the page or check it; return the exit code."""
    if words == ["--write"]:
        FILE.write_text(render(), encoding="utf-8")
        return 0
    if words == ["--check"]:
        if FILE.exists() and FILE.read_text(encoding="utf-8") == render():
            return 0
        sys.stderr.write(f"{FILE} is not current; python -m workbench.cli.framework.docgen --write\n")
        return 1
    sys.stderr.write("python -m workbench.cli.framework.docgen --write | --check\n")
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
