"""Every command has help, examples that parse, ``--json`` where it reads, and a page that is current."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.main import get_command

from workbench.cli.framework import docgen, registry
from workbench.cli.framework.declare import Command, Family
from workbench.cli.framework.dispatch import load

READS = (
    "attach", "backend list", "backend test", "compare", "config get", "config list", "config path",
    "controller status", "diff", "doctor", "du", "emetrics", "events", "gc", "gpus", "grep", "list",
    "loglines", "logs", "metrics", "note", "plan", "prune", "run", "schema", "show", "sql", "status",
    "tag", "validate", "version", "wait",
)  # fmt: skip


def commands() -> list[tuple[str, Command]]:
    """Return every command with its whole name."""
    found: list[tuple[str, Command]] = []
    for entry in registry.ENTRIES:
        target: Command | Family = load(entry)
        if isinstance(target, Family):
            found += [(f"{entry.name} {each.name}", each) for each in target.commands]
        else:
            found.append((entry.name, target))
    return found


def click_command(name: str) -> Any:
    """Return what Typer makes of a command."""
    first, _, second = name.partition(" ")
    entry = registry.find(first)
    assert entry is not None
    made = get_command(load(entry).app())
    return made.commands[second] if second else made  # type: ignore[attr-defined] # of a family it is a group


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_every_option_and_argument_is_explained(name: str) -> None:
    silent = [p.name for p in click_command(name).params if not getattr(p, "help", None)]

    assert silent == []


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_the_line_in_the_overview_begins_the_help(entry: registry.Entry) -> None:
    assert registry.HELP[entry.name] == load(entry).help
    assert registry.HELP[entry.name].endswith(".")
    assert entry.name in registry.overview()


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_examples_parse(name: str, command: Command) -> None:
    assert command.examples, f"{name} has no example"
    for example in command.examples:
        program, *args = shlex.split(example.split(" | ")[0].split(" > ")[0])
        called, rest = " ".join(args[: name.count(" ") + 1]), args[name.count(" ") + 1 :]
        own, _ = command.split(rest)
        made = click_command(name)

        assert program == registry.PROGRAM
        assert called == name
        with made.make_context(name, list(own)) as context:
            assert not context.args, f"{example}: words are left over"


@pytest.mark.parametrize("name", READS)
def test_every_read_speaks_json(name: str) -> None:
    options = {option for parameter in click_command(name).params for option in parameter.opts}

    assert "--json" in options


def test_names_are_unique() -> None:
    names = registry.names()

    assert sorted(set(names)) == sorted(names)


def test_the_documentation_is_current() -> None:
    for file, text in docgen.render().items():
        assert file.read_text() == text, "python -m workbench.cli.framework.docgen --write"


def test_no_command_has_more_than_one_meaning_for_an_option() -> None:
    for name, _ in commands():
        options = [option for parameter in click_command(name).params for option in parameter.opts]

        assert len(options) == len(set(options)), name
