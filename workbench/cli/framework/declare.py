"""How a command is declared: a typed function, its examples, and the Typer command that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import typer

from workbench.terminal.console import narrate
from workbench.values import dataclass

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
SEPARATOR = "--"

Function = Callable[..., int | None]
"""The function: gets the parsed arguments, returns the exit code (None is 0)."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``examples`` are whole command lines, run or at least parsed by the tests."""

    name: str
    function: Function
    examples: tuple[str, ...]
    takes_command_line: bool = False
    """Whether arguments after ``--`` are the user's own command line; they are in ``context.obj`` then."""
    former: Mapping[str, str] = field(default_factory=dict)
    """Short options by their former letters, which are still read, with a note."""

    @property
    def help(self) -> str:
        """The first line of its help."""
        return (self.function.__doc__ or "").partition("\n")[0]

    def add_to(self, app: typer.Typer, alias: str = "") -> None:
        """Register with an app, under another name where one is given, which help does not list."""
        app.command(
            alias or self.name,
            epilog=_epilog(self.examples),
            context_settings=dict(HELP_OPTIONS),
            hidden=bool(alias),
        )(self.function)

    def app(self) -> typer.Typer:
        """Return an app that holds this command alone."""
        app = new_app()
        self.add_to(app)
        return app

    def split(self, args: Sequence[str]) -> tuple[list[str], list[str] | None]:
        """Separate our own arguments from the user's command line; None where there is no ``--``."""
        if not self.takes_command_line or SEPARATOR not in args:
            return self._with_new_letters(args), None
        at = list(args).index(SEPARATOR)
        return self._with_new_letters(args[:at]), list(args[at + 1 :])

    def _with_new_letters(self, args: Sequence[str]) -> list[str]:
        end = list(args).index(SEPARATOR) if SEPARATOR in args else len(args)
        return [*map(self._with_new_letter, args[:end]), *args[end:]]

    def _with_new_letter(self, word: str) -> str:
        letter = self.former.get(word[:2])
        if letter is None:
            return word
        narrate(f"note: {word[:2]} is --label in other commands; write {letter} here")
        return letter + word[2:]


@dataclass(frozen=True, slots=True)
class Family:
    """Commands under one name; without arguments it runs ``default``."""

    name: str
    help: str
    commands: tuple[Command, ...]
    default: str

    @property
    def examples(self) -> tuple[str, ...]:
        """The examples of all its commands."""
        return tuple(example for command in self.commands for example in command.examples)

    def add_to(self, app: typer.Typer, alias: str = "") -> None:
        """Register with an app, under another name where one is given, which help does not list."""
        app.add_typer(self.app(), name=alias or self.name, hidden=bool(alias))

    def app(self) -> typer.Typer:
        """Return an app that holds the whole family."""
        app = new_app(help=self.help)
        # A callback keeps Typer from folding a family of one into a single command.
        app.callback()(_nothing)
        for command in self.commands:
            command.add_to(app)
        return app

    def split(self, args: Sequence[str]) -> tuple[list[str], None]:
        """Return the arguments; where they name no command, with the default one before them."""
        named = args and (not args[0].startswith("-") or args[0] in HELP_OPTIONS["help_option_names"])
        return (list(args) if named else [self.default, *args]), None


def command(
    name: str, *examples: str, takes_command_line: bool = False, former: Mapping[str, str] | None = None
) -> Callable[[Function], Command]:
    """Declare a function to be a command; its docstring is the command's help."""

    def declare(function: Function) -> Command:
        return Command(name, function, examples, takes_command_line, former or {})

    return declare


def new_app(help: str | None = None) -> typer.Typer:
    """Return an empty app that draws plain help and leaves failures to us."""
    settings: dict[str, Any] = dict(HELP_OPTIONS)
    return typer.Typer(
        help=help,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )


def _epilog(examples: Sequence[str]) -> str:
    # \b keeps Click from filling the lines into a paragraph.
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in examples)])


def _nothing() -> None:
    pass
