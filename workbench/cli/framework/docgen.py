"""Makes ``docs/cli.md``, and the registry's lines of help, of the commands.

``python -m workbench.cli.framework.docgen --write`` does it, ``--check`` compares.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.cli.framework import registry
from workbench.cli.framework.declare import Command, Family
from workbench.cli.framework.dispatch import load

FILE = Path(__file__).parents[3] / "docs" / "cli.md"
REGISTRY = Path(registry.__file__)
WIDTH = 88

HEAD = """\
# The command line

Made from the commands by `python -m workbench.cli.framework.docgen --write`; a test compares.

## Conventions

* stdout is data, stderr is narration: the output of a job goes to stdout byte for byte, messages of
  fabric go to stderr. Colours and live status lines appear only on a terminal; `NO_COLOR` and `TERM=dumb` turn
  them off.
* A job is named by its id (`training-` may be left out), any unique beginning of it, its name (the newest job that
  has it), or `@last`; `@last~1` is the one before. `NAME[17]` is the 17th job of an array, of a search or of a sweep,
  and where several jobs may be named, `NAME[1..3,7]` is four of them.
* `--json` prints one document; commands that follow (`run`, `attach`, `logs -f`, `metrics -f`) print one line per
  event. Documents and the elements of an array have a field `schema`. Fields are only ever added.
* Commands that show open jobs start the background controller where none runs, once their answer is printed. Until it
  has looked, what they show is dated: a line `as of 14:02:10, 3 min 05 s ago: no controller ran since` on stderr, and
  `as_of` in `--json` (null: up to date). `FABRIC_NO_CONTROLLER=1` keeps them from starting it.
* A failure is a line `error: ...` and often a line `hint: ...` on stderr. `FABRIC_DEBUG=1` adds the
  traceback.
* On a terminal ctrl-c and a hang-up leave the job running (exit codes 130 and 129) and print how to follow it
  again.
  Without a terminal, or with `CI` set, SIGINT and SIGTERM halt the job and a second one kills it.
  `--on-interrupt detach|halt|kill` overrides this. A closed pipe ends the command silently (141).

## Exit codes

`run`, `rerun`, `attach` and `wait` end with the job's own exit code; `exit_by` in `--json` says where
it comes from.

| code | meaning |
|---|---|
| 0 | success |
| 1-255 | what the command of the job exited with; 128 + n when signal n ended it |
| 124 | stopped by `max_runtime`, or by `wait --timeout` |
| 126, 127 | the job's command is not executable, or not found |
| 129, 130 | detached by a hang-up or ctrl-c; the job keeps running |
| 137, 143 | the job was killed, or halted |
| 141 | stdout was closed; the job keeps running |
| 64 | usage error; no such job, backend or runner |
| 65 | manifest error, or a job that this one waits for did not complete |
| 66 | a file does not exist |
| 69 | a backend cannot be reached or lacks what the job asks for, or the job is not running |
| 70 | internal error (bug) |
| 73 | the home or the disk cannot be written |
| 75 | lost to the platform, busy, or the command had too little memory: try again |
| 77 | not allowed |
| 78 | configuration error |

## Commands
"""


def render() -> dict[Path, str]:
    """Return the whole text of each file that is made."""
    helps = {entry.name: load(entry).help for entry in registry.ENTRIES}
    return {FILE: _page(helps), REGISTRY: _registry(helps)}


def _registry(helps: Mapping[str, str]) -> str:
    lines = "".join(
        f"    {json.dumps(name)}: {json.dumps(line, ensure_ascii=False)},\n" for name, line in helps.items()
    )
    source = REGISTRY.read_text(encoding="utf-8")
    return re.sub(r"(?ms)^HELP = \{\n.*?^\}", lambda _: f"HELP = {{\n{lines}}}", source)


def _page(helps: Mapping[str, str]) -> str:
    parts = [HEAD, "\n", "```text\n", registry.overview(helps), "```\n"]
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


def main(arguments: list[str]) -> int:
    """Write the files or check them; return the exit code."""
    if arguments == ["--write"]:
        for file, text in render().items():
            file.write_text(text, encoding="utf-8")
        return 0
    if arguments == ["--check"]:
        old = [file for file, text in render().items() if file.read_text(encoding="utf-8") != text]
        for file in old:
            sys.stderr.write(f"{file} is not current; python -m workbench.cli.framework.docgen --write\n")
        return 1 if old else 0
    sys.stderr.write("python -m workbench.cli.framework.docgen --write | --check\n")
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
