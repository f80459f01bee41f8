"""Runs one command of the registry through Typer, and rewords Typer's complaints."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from workbench.cli.framework import registry

if TYPE_CHECKING:
    from backends.contract.prompts import LoginPrompt
    from workbench.paths import Home

EXIT_USAGE = 64

_UNATTENDED: list[Home] = []
"""Homes whose open jobs nobody looks after, as the command found out that read them."""

_NO_SUCH_COMMAND = re.compile(r"No such command '(.*?)'")


def load(
    entry: registry.Entry,
) -> Any:  # a Command or a Family; saying so here would import Typer for every reader
    """Import a command's module and return what the table names in it."""
    return _named(entry.target)


def _named(target: str) -> Any:
    """Import a module under ``workbench.cli`` and return what ``module:attribute`` names in it."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(f"workbench.cli.{module}"), attribute)


def invoke(entry: registry.Entry, args: list[str], *, is_translated: bool = False) -> int:
    """Parse the arguments, call the command, return its exit code; a FabricError passes through.

    A command line that is none of ours may be one of Determined's, unless it was translated already.
    """
    from workbench.errors import UnknownName
    from workbench.services import open_store
    from workbench.services.backends import prompts

    prompts.answer_by(_type_answer)
    open_store.report_copies_by(_warn_of_copy)
    open_store.note_by(_narrate_note)
    open_store.attend_by(_UNATTENDED.append)
    if entry.bare and not args:
        code: int = _named(entry.bare)()
        return code
    target = load(entry)
    import typer
    from typer.main import get_command

    own, after = target.split(args)
    command = get_command(target.app())
    try:
        with command.make_context(f"{registry.PROGRAM} {entry.name}", own, obj=after) as context:
            outcome = command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except typer.Abort:
        return 130
    except typer.TyperException as complaint:
        meant = None if is_translated else _translated([entry.name, *args])
        return _usage(complaint, entry.name) if meant is None else _invoke_each(meant)
    except UnknownName:
        meant = None if is_translated else _meant_as_verb(entry.name, args)
        if meant is None:
            raise
        return _invoke_each(meant)
    except UnicodeEncodeError as error:
        raise _not_utf8(args, error) from error
    return outcome if isinstance(outcome, int) else 0


def invoke_unknown(words: list[str]) -> int:
    """Do what a command line means that begins with no command of ours, or say which is meant."""
    from workbench.cli.framework.peer_verbs import NOUNS

    if entry := registry.find(NOUNS.get(words[0], "")):
        return invoke(entry, words[1:])
    meant = _translated(words)
    return unknown_command(words[0]) if meant is None else _invoke_each(meant)


def _translated(words: list[str]) -> list[list[str]] | None:
    """Return the command lines that stand for one of Determined's; None where it is none."""
    from workbench.cli.framework.peer_verbs import translate

    return translate(words)


def _meant_as_verb(noun: str, args: list[str]) -> list[list[str]] | None:
    """Return what a word stands for that no job is called, such as ``list`` of ``fabric shell list``; None: nothing."""
    from workbench.cli.framework.peer_verbs import JOB_NOUNS

    return _translated([noun, *args]) if noun in JOB_NOUNS and len(args) == 1 else None


def _invoke_each(lines: list[list[str]]) -> int:
    """Run command lines of ours; return the first exit code that is not 0."""
    codes = []
    for name, *args in lines:
        entry = registry.find(name)
        assert entry is not None
        codes.append(invoke(entry, args, is_translated=True))
    return next(filter(None, codes), 0)


def _not_utf8(args: list[str], error: UnicodeEncodeError) -> Exception:
    """Return the error of the argument that is not UTF-8, if there is one."""
    from workbench.errors import is_utf8, not_utf8

    return next((not_utf8(word) for word in args if not is_utf8(word)), error)


def attend_jobs() -> None:
    """Have a controller look after the open jobs that were read; for when the answer is printed.

    Until it does, what was printed may be old, and a sentence says how old.
    """
    if not _UNATTENDED:
        return
    from workbench.services.controller_watch import attend, stale_sentence
    from workbench.terminal.console import narrate

    home = _UNATTENDED[0]
    if text := stale_sentence(home):
        narrate(text)
    attend(home)


def _type_answer(question: LoginPrompt) -> str | None:
    """Ask at the terminal; the import waits until a backend asks something."""
    from workbench.terminal.prompts import type_answer

    return type_answer(question)


def _narrate_note(text: str) -> None:
    from workbench.terminal.console import narrate

    narrate(f"note: {text}")


def _warn_of_copy(why: str) -> None:
    from workbench.store.db.home_folder import BIND
    from workbench.terminal.errors import warn

    warn(f"{why}, and what it knows of open jobs is old; `{BIND}` says what can be done")


def unknown_command(name: str, *, more: tuple[str, ...] = ()) -> int:
    """Say that there is no such command or topic (``more``), and which is meant; return the exit code.

    A verb of another tool means what that does; another word means the nearest one.
    """
    from workbench.cli.framework.peer_verbs import BEFORE_NOUNS, NOUNS, PEER_VERBS
    from workbench.terminal.errors import fail

    option = name.partition("=")[0] if name.startswith("--") else name[:2]
    if hint := BEFORE_NOUNS.get(option):
        return fail(f"there is no {option} before a command", hint=hint, exit_code=EXIT_USAGE)
    if noun := NOUNS.get(name):
        hint = f"`{registry.PROGRAM} {noun}` takes verbs of Determined's `det {noun}`: docs/coming-from.md has ours"
        return fail(f"there is no command '{_printable(name)}' of ours", hint=hint, exit_code=EXIT_USAGE)
    if peer := PEER_VERBS.get(name.lower()):
        entry = registry.find(peer.split()[0])
        what = f" {registry.HELP[entry.name]}" if entry and " " not in peer.removesuffix(" -d") else ""
        hint = f"did you mean `{registry.PROGRAM} {peer}`?{what}"
        return fail(f"there is no command '{_printable(name)}'", hint=hint, exit_code=EXIT_USAGE)
    near = _nearest(name, [*registry.names(), *more])
    word = f"help {near}" if near in more else near
    there = f"`{registry.PROGRAM} --help` lists the commands"
    if more:
        there += f", `{registry.PROGRAM} help topics` the topics"
    hint = f"did you mean `{registry.PROGRAM} {word}`?" if near else there
    what = "command or topic" if more else "command"
    return fail(f"there is no {what} '{_printable(name)}'", hint=hint, exit_code=EXIT_USAGE)


def _usage(complaint: Any, name: str) -> int:  # Typer's classes of complaints are not public
    from workbench.terminal.errors import fail

    message, hint = usage_message(complaint, name)
    return fail(message, hint=hint, exit_code=EXIT_USAGE)


def usage_message(
    complaint: Any, name: str
) -> tuple[str, str]:  # Typer's classes of complaints are not public
    """Return what is wrong with the words of a command, and the hint."""
    help_line = f"`{registry.PROGRAM} {name} --help` shows what it takes"
    if name == "run":
        help_line += "; a command to run goes after --"
    if option := getattr(complaint, "option_name", None):
        known = _options(complaint)
        if option not in known:
            near = _nearest(option, known)
            hint = f"did you mean {near}? {help_line}" if near else help_line
            return f"{name} has no option '{_printable(option)}'", hint
    text = complaint.format_message().rstrip(".")
    if found := _NO_SUCH_COMMAND.match(text):
        near = _nearest(found[1], list(getattr(complaint.ctx.command, "commands", {})))
        hint = f"did you mean `{registry.PROGRAM} {name} {near}`? {help_line}" if near else help_line
        return f"{name} has no command '{_printable(found[1])}'", hint
    return text[:1].lower() + text[1:], help_line


def _options(complaint: Any) -> list[str]:
    context = getattr(complaint, "ctx", None)
    if context is None:
        return []
    return [
        word
        for parameter in context.command.get_params(context)
        for word in parameter.opts
        if word[:1] == "-"
    ]


def _nearest(word: str, known: list[str]) -> str:
    import difflib

    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return matches[0] if matches else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
