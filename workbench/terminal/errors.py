"""Reports failures: ``error: ...`` and ``hint: ...`` on stderr, and their exit code."""

from __future__ import annotations

import errno
import os

from workbench.errors import FabricError, LaunchRefused, lacks
from workbench.job import refused_exit_code

DEBUG_VARIABLE = "FABRIC_DEBUG"
"""Set to anything, a failure also shows where in fabric it came from."""

EXIT_BUG = 70

EXIT_LACKING = 75
"""This process had too little memory, or too few threads or file descriptors: with more it would do."""

OS_EXIT_CODES = {
    errno.ENOENT: 66,
    errno.EISDIR: 66,
    errno.ENOTDIR: 66,
    errno.ENOSPC: 73,
    errno.EDQUOT: 73,
    errno.EROFS: 73,
    errno.EFBIG: 73,
    errno.EIO: 73,
    errno.EACCES: 77,
    errno.EPERM: 77,
}
"""sysexits of what the operating system refuses; everything else is a fault of ours."""


def report(error: BaseException) -> int:
    """Say what went wrong on stderr; return the exit code."""
    if os.environ.get(DEBUG_VARIABLE):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, FabricError):
        return fail(error.message, hint=error.hint, exit_code=_exit_code(error))
    if isinstance(error, OSError) and (gone := _gone(error)) is not None:
        return report(gone)
    if isinstance(error, OSError) and error.errno in OS_EXIT_CODES:
        file = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or type(error).__name__
        return fail(f"{file}{reason[:1].lower()}{reason[1:]}", exit_code=OS_EXIT_CODES[error.errno])
    if lacking := lacks(error):
        return fail(
            f"this command has {lacking} left",
            hint="the limits of this shell (`ulimit -a`) or of its container are low; a job that was submitted goes on",
            exit_code=EXIT_LACKING,
        )
    return fail(
        f"fabric itself failed: {type(error).__name__}: {error}",
        hint=f"this is a bug in fabric; {DEBUG_VARIABLE}=1 shows where it is",
        exit_code=EXIT_BUG,
    )


def _gone(error: OSError) -> FabricError | None:
    """Return the error of a file system that has ended under a command; None where it has not."""
    from workbench.paths import Home, default_home
    from workbench.store.db.errors import gone_failure, is_gone, require_reachable

    if is_gone(error) and error.filename:
        return gone_failure(error, os.fsdecode(error.filename))
    try:
        require_reachable(Home(default_home()))  # an open file says nothing of its path
    except FabricError as found:
        return found
    return None


def _exit_code(error: FabricError) -> int:
    if isinstance(error, LaunchRefused):
        return refused_exit_code(error.code)
    return error.exit_code


def fail(message: str, *, hint: str = "", exit_code: int) -> int:
    """Print a failure and its hint; return ``exit_code``."""
    from workbench.terminal.console import narrate, style

    narrate(style("error:", "red") + " " + message)
    if hint:
        narrate(style("hint:", "cyan") + " " + hint)
    return exit_code


def warn(message: str) -> None:
    """Print what is not valid, but does not stop the command."""
    from workbench.terminal.console import narrate, style

    narrate(style("warning:", "yellow") + " " + message)
