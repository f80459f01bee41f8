"""Notifies a person: by the terminal's bell and notice (OSC 9), and the desktop's notification."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from workbench.job import short_id
from workbench.services.follow.events import JobView
from workbench.services.follow.job_text import VERBS, metrics_line
from workbench.terminal.console import is_terminal
from workbench.terminal.harmless import write_controls

if TYPE_CHECKING:
    from workbench.metrics.conditions import Condition
    from workbench.services.follow.events import JobEvent
    from workbench.store.db.rows import JobRow, SeriesRow, TransitionRow

BELL: Final = "\a"
DESKTOP_SECONDS: Final = 5.0


def notify(title: str, text: str) -> None:
    """Notify by every means there is; one that fails is not a failure."""
    for stream in (sys.stderr, sys.stdout):
        if stream is not None and is_terminal(stream):
            try:
                write_controls(stream, terminal_notice(f"{title}: {text}"))
                stream.flush()
            except (OSError, ValueError):
                pass
            break
    _notify_desktop(title, text)


def terminal_notice(text: str) -> str:
    """Return the bell and the sequence by which a terminal shows a notice; within tmux it is passed through."""
    plain = "".join(c for c in text if c.isprintable())
    sequence = f"\x1b]9;{plain}\x07"
    if os.environ.get("TMUX"):
        sequence = "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return BELL + sequence


def _notify_desktop(title: str, text: str) -> None:
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


class NotifyingView(JobView):
    """Shows what another view shows, and notifies once when conditions hold, and at the end."""

    def __init__(self, view: JobView, *, at_end: bool, when: Sequence[Condition] = ()) -> None:
        self._view = view
        self._at_end = at_end
        self._when = tuple(when)
        self._row: JobRow | None = None
        self._series: Sequence[SeriesRow] = ()

    def take(self, event: JobEvent) -> None:
        """Have the other view show the event, then notify where it is due."""
        self._view.take(event)
        super().take(event)

    def descriptor(self) -> int | None:
        """Return the other view's."""
        return self._view.descriptor()

    def state(self, row: JobRow, history: Sequence[TransitionRow]) -> None:
        """Remember the job."""
        self._row = row

    def metrics(self, series: Sequence[SeriesRow]) -> None:
        """Notify when all conditions hold."""
        self._series = series
        if not self._when or self._row is None:
            return
        from workbench.metrics.conditions import judge

        verdicts = judge(self._when, series)
        if all(verdict.holds for verdict in verdicts):
            self._when = ()
            sentences = "; ".join(verdict.sentence for verdict in verdicts)
            self._view.notice(f"{short_id(self._row.id)} {self._row.name}: {sentences}")
            notify(f"fabric: {self._row.name}", sentences)

    def ended(self, row: JobRow, results: str) -> None:
        """Notify of the end."""
        if self._at_end:
            values = metrics_line(self._series)
            notify(f"fabric: {row.name} {VERBS[row.state]}", values or row.reason.text)
