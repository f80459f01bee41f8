"""From a command line to an exit code: finds the command, runs it, prints failures as sentences on stderr."""

from __future__ import annotations

import os
import sys

from workbench.cli.framework import registry

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost `fabric --help` a quarter of its start
    from typing import TextIO

SHOW_ONLY = {"-h", "--help", "--plan"}
"""Options that make a command show something instead of starting a job."""

EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141


def main(arguments: list[str]) -> int:
    """Run one command line (without the program's name); return the exit code of the process."""
    _open_missing_streams()
    _print_any_text()
    try:
        code = _run_and_report(arguments)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    _attend_jobs()
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        _flush_or_abandon(stream, descriptor)
    return code


def _run_and_report(arguments: list[str]) -> int:
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return EXIT_CLOSED_PIPE
    except Exception as error:
        from workbench.terminal.errors import report

        return report(error)
    return code


def _run(arguments: list[str]) -> int:
    if registry.COMPLETE_VARIABLE in os.environ:
        from workbench.cli.framework.completion import complete

        return complete(registry.COMPLETE_VARIABLE)
    if arguments[:1] == ["help"]:
        if arguments[1:2] and registry.find(arguments[1]) is None:
            return _help_on(arguments[1])
        arguments = [*arguments[1:2], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(registry.overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        arguments = ["version", *arguments[1:]]
    entry = registry.find(arguments[0])
    if entry is not None and entry.starts_jobs and not SHOW_ONLY.intersection(arguments):
        _start_controller()
    from workbench.cli.framework.dispatch import invoke, invoke_unknown

    if entry is None:
        return invoke_unknown(arguments)
    return invoke(entry, arguments[1:])


def _attend_jobs() -> None:
    dispatch = sys.modules.get("workbench.cli.framework.dispatch")
    if dispatch is not None:
        try:  # noqa: SIM105  # importing contextlib would cost `fabric --help` a third of its start
            dispatch.attend_jobs()
        except (BrokenPipeError, KeyboardInterrupt):
            pass


def _help_on(name: str) -> int:
    """Print a topic's page, or say that there is none."""
    from workbench.cli.framework.help_topics import TOPICS, overview_of_topics, show_topic

    if name == "topics":
        sys.stdout.write(overview_of_topics())
        return 0
    if show_topic(name):
        return 0
    from workbench.cli.framework.dispatch import unknown_command

    return unknown_command(name, more=tuple(TOPICS))


def _start_controller() -> None:
    """Start the controller before anything else: it takes as long as the parsing and preparing of a job."""
    from workbench.paths import Home, default_home
    from workbench.services.controller import start_early

    start_early(Home(default_home()))


def _open_missing_streams() -> None:
    # A shell's `>&-` leaves no file at all; writing to nothing must not be a traceback.
    if sys.stdout is None or sys.stderr is None:
        nothing = open(os.devnull, "w")  # noqa: SIM115, PTH123 - lives as long as the process
        sys.stdout = sys.stdout or nothing
        sys.stderr = sys.stderr or nothing


def _print_any_text() -> None:
    """Let a text that the terminal's encoding does not have, or that controls it, be written with escapes.

    The name of a file may be any bytes, and so may that of a job that came from elsewhere.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    from workbench.terminal.harmless import make_streams_harmless

    make_streams_harmless()


def _flush_or_abandon(stream: TextIO, descriptor: int) -> None:
    try:
        stream.flush()
    except OSError:
        # Python flushes once more when it ends, complains, and changes the exit code.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
