"""Lends the terminal to another program for a while, an editor or a shell: the app steps aside and comes back."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from screens.core.app_protocol import AppProtocol

if TYPE_CHECKING:
    from collections.abc import Iterator


def editor() -> list[str]:
    """Return the command of the user's editor."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def lend_terminal(
    app: AppProtocol,
    argv: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    wait_on_failure: bool = False,
) -> int | None:
    """Run a program on the app's terminal and return its exit code; None when it could not be started, which is shown.

    With ``wait_on_failure`` what a failed program printed stays until Enter is pressed.
    """
    try:
        with app.suspend(), _unhurt_by_interrupts():
            ran = subprocess.run(list(argv), env=None if environ is None else dict(environ), check=False)
            if ran.returncode and wait_on_failure:
                print(f"\nexit code {ran.returncode}; press Enter to return", flush=True)
                _wait_for_enter()
            return ran.returncode
    except SuspendNotSupported:
        app.show_message("another program cannot run in this terminal", "warning")
    except OSError as error:
        app.show_message(f"cannot start {argv[0]}: {error.strerror}", "error")
    return None


def _wait_for_enter() -> None:
    try:
        input()
    except (EOFError, KeyboardInterrupt):
        return


@contextmanager
def _unhurt_by_interrupts() -> Iterator[None]:
    """Leave ctrl-c to the program; one that we ignored would be ignored by it, too."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def read_in_editor(app: AppProtocol, shown: str) -> None:
    """Open a text in the user's editor; what is written there is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.yml"
        file.write_text(shown, encoding="utf-8")
        lend_terminal(app, [*editor(), str(file)])


def edit(app: AppProtocol, file: Path, then: Callable[[], None]) -> None:
    """Open a file in the user's editor, and go on when that has ended well."""
    if lend_terminal(app, [*editor(), str(file)]) == 0:
        then()
