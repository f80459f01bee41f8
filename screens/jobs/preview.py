"""What is known of the job under the cursor: its state and why, a small chart, and the end of its log."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual import events
from textual.strip import Strip
from textual.timer import Timer

from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.themes import paint_of
from screens.widgets.cached_style import CachedStyle
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.job import TERMINAL, short_id
from workbench.services.inspect.job_times import run_seconds
from workbench.store.db.rows import JobRow

# What charts and logs need is imported when the first one is read: the table is to be there at once.
if TYPE_CHECKING:
    from screens.charts.data import ChartData, ChartsPage
    from screens.jobs.log_tail import Tail

SETTLE_SECONDS: Final = 0.12
"""How long the cursor must rest on a job before its log and chart are read, so that scrolling stays light."""
CHART_HEIGHT: Final = 8
CHART_LEAST_HEIGHT: Final = 16
"""A lower preview shows the chart next to the log, or none where it is narrow too."""
_LINES: Final = 100


class Preview(CachedStyle, can_focus=True):
    """Follows the cursor of the table."""

    PANE: ClassVar = "preview"
    BINDINGS: ClassVar = actions.bindings("preview")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.job: JobRow | None = None
        self._tail: Tail | None = None
        self._chart: ChartData | None = None
        self._now_us = 0
        self._settling: Timer | None = None
        self._params = ""
        self._up = 0
        self._read_for: tuple[str, int, int] | None = None
        self._changes = 0
        self._made_for: object = None
        self._made: list[Strip] = []

    def show(self, job: JobRow | None) -> None:
        """Show a job; its log and chart follow as soon as the cursor rests."""
        if job is None or self.job is None or job.id != self.job.id:
            self._tail, self._chart, self._up, self._read_for, self._params = None, None, 0, None, ""
        self.job, self._now_us = job, fabric_app(self).clock()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_SECONDS, self._read) if self.display else None
        self._redraw()

    def tick(self, now_us: int) -> None:
        """Let ages grow, and read where the wait for the cursor to rest did not lead to it."""
        self._now_us = now_us
        if self._read_for is None and self.job is not None and self.display:
            self._read()
        self._redraw()

    def read_again(self) -> None:
        """Read on after a while in which nothing was read."""
        self._read_for = None
        self.show(self.job)

    def _redraw(self) -> None:
        self._changes += 1
        self.refresh()

    def _read(self) -> None:
        from screens.charts.plot import ChartView
        from screens.charts.queries import Charted, charts_page
        from screens.jobs.log_tail import tail
        from screens.jobs.queries import params_of

        reader, job = fabric_app(self).reader, self.job
        key = (job.id, job.attempt, self.size.width) if job else None
        if key == self._read_for:
            return
        self._read_for = key
        reader.forget(self)
        if job is None:
            return
        query = tail(fabric_app(self).home, job, _LINES)
        reader.watch(self, "tail", query, counters=None, every_seconds=0.25)
        reader.watch(self, "params", params_of(job.id), counters=())
        charted = Charted(job.id, job.name, job.started_us or job.submitted_us)
        charts = charts_page((charted,), None, max(8, self.size.width), ChartView(), ("value",))
        reader.watch(self, "charts", charts, counters=("series",), every_seconds=0.5)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take the end of the log, or the chart."""
        if answer.key == "charts":
            self._chart = _chosen(answer.value)
        elif answer.key == "params":
            if self.job is not None and answer.value.job_id == self.job.id:
                self._params = answer.value.line
        elif self.job is not None and answer.value.job_id == self.job.id:
            self._tail = answer.value
        self._redraw()

    # Moving, within the log

    def action_move_up(self) -> None:
        """Earlier lines."""
        self._scroll(1)

    def action_move_down(self) -> None:
        """Later lines."""
        self._scroll(-1)

    def action_move_page_up(self) -> None:
        """Earlier lines."""
        self._scroll(self.size.height // 2)

    def action_move_page_down(self) -> None:
        """Later lines."""
        self._scroll(-self.size.height // 2)

    def action_move_top(self) -> None:
        """The first of the lines that are at hand."""
        self._scroll(_LINES)

    def action_move_bottom(self) -> None:
        """The last line."""
        self._scroll(-_LINES)

    def _scroll(self, by: int) -> None:
        most = len(self._tail.lines) - 1 if self._tail else 0
        self._up = max(0, min(most, self._up + by))
        self._redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Earlier lines."""
        self._scroll(2)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Later lines."""
        self._scroll(-2)

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Draw a line of the pane; all are made at once, for their numbers depend on each other."""
        made_for = (self.size, self.base, id(paint_of(self)), self._changes)
        if made_for != self._made_for:
            self._made_for = made_for
            self._made = self._all_lines()
        return self._made[y]

    def _all_lines(self) -> list[Strip]:
        width, height = self.size
        blank = [Strip.blank(width, self.base)] * height
        if self.job is None:
            return blank
        lines = self._head(self.job, width)
        lines += self._body(width, height - len(lines))
        return [*lines, *blank][:height]

    def _line(self, shown: str, role: str, width: int, attributes: str = "") -> Strip:
        base = self.base
        style = base + paint_of(self).style(role, attributes)
        return Strip([Segment(text.shorten(shown, width), style)]).adjust_cell_length(width, base)

    def _head(self, job: JobRow, width: int) -> list[Strip]:
        look = status.look(job.state)
        seconds = run_seconds(job, self._now_us)
        facts = [str(look), short_id(job.id), formats.printable(job.target.backend)]
        if seconds is not None:
            facts.append(formats.duration(seconds))
        if job.exit_code is not None and job.state in TERMINAL:
            facts.append(f"exit {job.exit_code}")
        lines = [
            self._line(formats.printable(job.name), "text", width, "bold"),
            self._line(f" {glyphs().dot} ".join(facts), job.state.lower(), width),
        ]
        if why := status.why(job, self._now_us):
            role = "error" if status.is_problem(job) else "dim"
            roomy = self.size.height >= CHART_LEAST_HEIGHT
            shown = textwrap.wrap(why, max(10, width))[:3] if roomy else [why]
            lines += [self._line(line, role, width) for line in shown]
        if self._params and self.size.height >= CHART_LEAST_HEIGHT:
            shown = textwrap.wrap(formats.printable(self._params), max(10, width))[:2]
            lines += [self._line(line, "key", width) for line in shown]
        if job.reason.hint and self.size.height >= CHART_LEAST_HEIGHT:
            lines.append(self._line(formats.printable(job.reason.hint), "dim", width))
        return lines

    def _body(self, width: int, height: int) -> list[Strip]:
        from screens.charts.plot import ChartView
        from screens.charts.tile import tile

        if self._chart is None or height < 4:
            return self._log(width, height)
        base, paint = self.base, paint_of(self)
        if height >= CHART_LEAST_HEIGHT - 3:
            drawn = tile(self._chart, ChartView(), (width, CHART_HEIGHT), paint, base)
            return [*drawn, *self._log(width, height - CHART_HEIGHT)]
        side = min(40, width // 2)
        if side < 24:
            return self._log(width, height)
        drawn = tile(self._chart, ChartView(), (side, height), paint, base)
        left = self._log(width - side - 1, height)
        gap = Strip.blank(1, base)
        return [Strip.join([one, gap, other]) for one, other in zip(left, drawn, strict=False)]

    def _log(self, width: int, height: int) -> list[Strip]:
        """Return the last lines that fit, or a short notice while there are none."""
        from screens.widgets.ansi import decoded, strip_of

        base = self.base
        rule = self._line(glyphs().ruler * width, "dim", width)
        if self._tail is None or not self._tail.lines:
            notice = "" if self._tail is None else _no_output(self.job, self._now_us)
            return [rule, self._line(notice, "dim", width), *[Strip.blank(width, base)] * max(0, height - 2)]
        lines = self._tail.lines[: len(self._tail.lines) - self._up][-max(1, height - 1) :]
        strips = [strip_of(decoded(line[: width * 4]), width, base) for line in lines]
        blank = [Strip.blank(width, base)] * max(0, height - 1 - len(strips))
        return [rule, *strips, *blank]


def _chosen(page: ChartsPage) -> ChartData | None:
    """Return the chart that says most: a loss if there is one, else the first."""
    names = [name for name in page.charts if "loss" in name.lower()] or list(page.charts)
    return page.charts[names[0]] if names else None


def _no_output(job: JobRow | None, now_us: int) -> str:
    if job is None:
        return ""
    if job.state in TERMINAL:
        return "no output"
    waited = formats.duration((now_us - job.changed_us) / 1e6)
    return f"waiting for the first output, {job.state.lower()} for {waited}"
