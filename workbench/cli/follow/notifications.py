"""Tells a person who looked away: the terminal's bell, its notice (OSC 9), and the desktop's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.job import short_id
from workbench.services.follow.job_text import VERBS, metrics_line
from workbench.terminal.console import is_terminal

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition
    from workbench.services.follow.follower import View
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow

BELL: Final = "\a"
DESKTOP_SECONDS: Final = 5.0


def notify(title: str, text: str) -> None:
    """Tell it by every way there is; one that fails is no failure."""
    for stream in (sys.stderr, sys.stdout):
        if stream is not None and is_terminal(stream):
            try:
                stream.write(terminal_notice(f"{title}: {text}"))
                stream.flush()
            except (OSError, ValueError):
                pass
            break
    _tell_desktop(title, text)


def terminal_notice(text: str) -> str:
    """Return the bell and the sequence by which a terminal shows a notice; within tmux it is passed through."""
    plain = "".join(c for c in text if c.isprintable())
    sequence = f"\x1b]9;{plain}\x07"
    if os.environ.get("TMUX"):
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return BELL + sequence


def _tell_desktop(title: str, text: str) -> None:
    command = _desktop_command(title, text)
    if not command:
        return
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=DESKTOP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return


def _desktop_command(title: str, text: str) -> list[str]:
    if sys.platform == "darwin":
        quoted = [part.replace("\\", "\\\\").replace('"', '\\"') for part in (text, title)]
        return ["osascript", "-e", f'display notification "{quoted[0]}" with title "{quoted[1]}"']
    has_desktop = any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS")
    )
    program = shutil.which("notify-send") if has_desktop else None
    return [program, "--app-name=fabric", "--", title, text] if program else []


class NotifyingView:
    """Shows what another view shows, and notifies once when a condition holds, and at the end."""

    def __init__(self, view: View, *, at_end: bool, when: Sequence[Condition] = ()) -> None:
        self._view = view
        self._at_end = at_end
        self._when = tuple(when)
        self._row: JobRow | None = None
        self._series: Sequence[SeriesRow] = ()

    def __getattr__(self, name: str) -> Any:  # whatever else the other view can do
        return getattr(self._view, name)

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Remember the job."""
        self._row = row
        self._view.state(row, history)

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Notify when what is waited for has come."""
        self._series = series
        self._view.metrics(series)
        if not self._when or self._row is None:
            return
        from workbench.metrics.conditions import judge

        verdicts = judge(self._when, series)
        if all(verdict.holds for verdict in verdicts):
            self._when = ()
            words = "; ".join(verdict.sentence for verdict in verdicts)
            self._view.trouble(f"{short_id(self._row.id)} {self._row.name}: {words}")
            notify(f"fabric: {self._row.name}", words)

    def ended(self, row: JobRow, results: str) -> None:
        """Notify of the end."""
        self._view.ended(row, results)
        if self._at_end:
            values = metrics_line(self._series)
            notify(f"fabric: {row.name} {VERBS[row.state]}", values or row.reason.text)
