"""``fabric man``: the manual page, made of the texts of ``--help``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from workbench.cli.framework import registry
from workbench.cli.framework.declare import Command, Family, command


@command("man", "fabric man | man -l -", "fabric man > ~/.local/share/man/man1/fabric.1")
def man() -> None:
    """Print the manual page."""
    sys.stdout.write(manual())


def manual() -> str:
    """Return the page in the language of ``man``."""
    from workbench.version import VERSION

    parts = [
        f'.TH FABRIC 1 "" "fabric {VERSION}" "User Commands"',
        ".SH NAME",
        f"{registry.PROGRAM} \\- a terminal\\-first workbench for training jobs",
        ".SH SYNOPSIS",
        f".B {registry.PROGRAM}",
        "COMMAND [ARGUMENTS]",
        ".SH COMMANDS",
        *_commands(),
        *_topics(),
    ]
    return "\n".join(parts) + "\n"


def _commands() -> Iterator[str]:
    from workbench.cli.framework.dispatch import load

    for entry in registry.ENTRIES:
        target: Command | Family = load(entry)
        names = ", ".join((entry.name, *entry.aliases))
        yield f".SS {_escaped(names)}"
        members = target.commands if isinstance(target, Family) else (target,)
        if isinstance(target, Family):
            yield _escaped(target.help)
        for member in members:
            yield from _member(entry, member, own=not isinstance(target, Family))


def _member(entry: registry.Entry, member: Command, *, own: bool) -> Iterator[str]:
    from typer.main import get_command

    made = get_command(member.app())
    path = f"{registry.PROGRAM} {entry.name}" + ("" if own else f" {member.name}")
    with made.make_context(path, [], resilient_parsing=True) as context:
        usage = " ".join(made.collect_usage_pieces(context))
    yield ".PP"
    yield f".B {_escaped(path)}"
    yield _escaped(usage)
    for paragraph in _paragraphs(member.function.__doc__ or ""):
        yield ".PP"
        yield _escaped(paragraph)
    for parameter in made.params:
        text = ", ".join(parameter.opts) if parameter.param_type_name == "option" else parameter.metavar or ""
        shown = (
            f"{text} {parameter.metavar}"
            if parameter.param_type_name == "option" and parameter.metavar
            else text
        )
        yield ".TP"
        yield f"\\fB{_escaped(shown)}\\fR"
        yield _escaped(getattr(parameter, "help", "") or "")
    yield ".PP"
    yield "Examples:"
    yield ".nf"
    yield from (f"  {_escaped(example)}" for example in member.examples)
    yield ".fi"


def _topics() -> Iterator[str]:
    from workbench.cli.framework.help_topics import TOPICS

    for name, (line, page) in TOPICS.items():
        yield f".SH {_escaped(name.upper())}"
        yield _escaped(line)
        yield ".nf"
        yield from (_escaped(each) for each in page.rstrip().splitlines())
        yield ".fi"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _escaped(text: str) -> str:
    """Return a text that no line of is taken for a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain
