"""What is known of the job under the cursor: its state and why, a small chart, and the end of its log."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.content import Content
from textual.strip import Strip
from textual.timer import Timer
from textual.visual import VisualType
from textual.widgets import Static

from screens.core import actions
from screens.core.app_protocol import fabric_app
from screens.style import status, text
from screens.style.glyphs import glyphs
from screens.style.notices import no_output
from screens.style.themes import paint_of
from screens.widgets.cached_style import MadeLines
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
TAIL_SECONDS: Final = 1.0
"""How often the end of the log is read: a new line writes all that are shown, and the log's own page is near."""
CHART_HEIGHT: Final = 8
CHART_LEAST_HEIGHT: Final = 16
"""A lower preview shows the chart next to the log, or none where it is narrow too."""
_LINES: Final = 100


class Preview(MadeLines, can_focus=True):
    """Follows the cursor of the table."""

    PANE: ClassVar = "preview"
    BINDINGS: ClassVar = actions.bindings("preview")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.job: JobRow | None = None
        self.notice = ""
        """Why there is no job to show."""
        self._tail: Tail | None = None
        self._chart: ChartData | None = None
        self._shared = ""
        """What the names of all metrics begin with, and are shown without."""
        self._now_us = 0
        self._settling: Timer | None = None
        self._params = ""
        self._up = 0
        self._read_for: tuple[str, int, int] | None = None

    def show(self, job: JobRow | None) -> None:
        """Show a job; its log and chart follow as soon as the cursor rests."""
        if job is None or self.job is None or job.id != self.job.id:
            self._tail, self._chart, self._up, self._read_for, self._params = None, None, 0, None, ""
        self.job, self._now_us = job, fabric_app(self).clock()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_SECONDS, self._read) if self.display else None
        self.redraw()

    def tick(self, now_us: int) -> None:
        """Let ages grow, and read where the wait for the cursor to rest did not lead to it."""
        self._now_us = now_us
        if self._read_for is None and self.job is not None and self.display:
            self._read()
        self.redraw_changed()

    def read_again(self) -> None:
        """Read on after a while in which nothing was read."""
        self._read_for = None
        self.show(self.job)

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
        reader.watch(self, "tail", query, counters=None, every_seconds=TAIL_SECONDS)
        reader.watch(self, "params", params_of(job.id), counters=())
        charted = Charted(job.id, job.name, job.started_us or job.submitted_us)
        charts = charts_page((charted,), None, max(8, self.size.width), ChartView(), ("value",))
        reader.watch(self, "charts", charts, counters=("series",), every_seconds=0.5)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take the end of the log, or the chart."""
        if answer.key == "charts":
            self._chart = _chosen(answer.value)
            self._shared = _shared_folder(answer.value)
        elif answer.key == "params":
            if self.job is not None and answer.value.job_id == self.job.id:
                self._params = answer.value.line
        elif self.job is not None and answer.value.job_id == self.job.id:
            self._tail = answer.value
        self.redraw()

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
        self.redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Earlier lines."""
        self._scroll(2)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Later lines."""
        self._scroll(-2)

    # Drawing

    def make_lines(self) -> list[Strip]:
        """Make the head, the chart and the end of the log: as many lines as the pane has."""
        width, height = self.size
        blank = [Strip.blank(width, self.base)] * height
        if self.job is None:
            return [self._line(self.notice, "dim", width), *blank][:height]
        lines = self._head(self.job, width)
        lines += self._body(width, height - len(lines))
        return [*lines, *blank][:height]

    def _line(self, shown: str, role: str, width: int, attributes: str = "") -> Strip:
        return self.text_strip([(shown, role, attributes)], width)

    def _head(self, job: JobRow, width: int) -> list[Strip]:
        look = status.look(job.state)
        seconds = run_seconds(job, self._now_us)
        facts = [str(look)]
        if job.exit_code is not None and job.state in TERMINAL:
            facts.append(f"exit {job.exit_code}")
        facts += [short_id(job.id), formats.printable(job.target.backend)]
        if seconds is not None:
            facts.append(formats.duration(seconds))
        between = f" {glyphs().dot} "
        while len(facts) > 1 and text.cells(between.join(facts)) > width:
            facts.pop()
        lines = [
            self._line(formats.printable(job.name), "text", width, "bold"),
            self._line(between.join(facts), job.state.lower(), width),
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
            drawn = tile(self._chart, ChartView(), (width, CHART_HEIGHT), paint, base, shared=self._shared)
            return [*drawn, *self._log(width, height - CHART_HEIGHT)]
        side = min(40, width // 2)
        if side < 24:
            return self._log(width, height)
        drawn = tile(self._chart, ChartView(), (side, height), paint, base, shared=self._shared)
        left = self._log(width - side - 1, height)
        gap = Strip.blank(1, base)
        return [Strip.join([one, gap, other]) for one, other in zip(left, drawn, strict=False)]

    def _log(self, width: int, height: int) -> list[Strip]:
        """Return the last lines that fit, or a short notice while there are none."""
        base = self.base
        rule = self._line(glyphs().ruler * width, "dim", width)
        if self._tail is None or not self._tail.lines:
            is_known = self._tail is not None and self.job is not None
            notice = no_output(self.job, self._now_us).what if is_known and self.job is not None else ""
            return [rule, self._line(notice, "dim", width), *[Strip.blank(width, base)] * max(0, height - 2)]
        lines = self._tail.lines[: len(self._tail.lines) - self._up][-max(1, height - 1) :]
        strips = [line.strip(width, paint_of(self), base) for line in lines]
        blank = [Strip.blank(width, base)] * max(0, height - 1 - len(strips))
        return [rule, *strips, *blank]


def _chosen(page: ChartsPage) -> ChartData | None:
    """Return the chart that a person looks at first."""
    from workbench.metric_names import main_metrics

    names = main_metrics(page.charts, 1)
    return page.charts[names[0]] if names else None


def _shared_folder(page: ChartsPage) -> str:
    from workbench.metrics.short_names import shared_folder

    return shared_folder(page.names)


class LastLines(Static):
    """What a job printed last, below what a terminal has too little room for."""

    def __init__(self) -> None:
        super().__init__(id="too-small", markup=False)
        self._why = ""
        self._read_for: tuple[str, int, int] | None = None
        self._tail: Tail | None = None

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """Take why there is too little room, which stands above the lines."""
        del layout
        self._why = str(content)
        self._draw()

    def follow(self, job: JobRow | None) -> None:
        """Show the last lines of a job, as long as this is in sight; to be called each second."""
        key = (job.id, job.attempt, self.size.height) if job is not None and self.display else None
        if key == self._read_for:
            return
        self._read_for, self._tail = key, None
        app = fabric_app(self)
        app.reader.forget(self)
        if job is not None and key is not None:
            from screens.jobs.log_tail import tail

            query = tail(app.home, job, max(1, self.size.height - 1))
            app.reader.watch(self, "tail", query, counters=None, every_seconds=0.5)
        self._draw()

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show the lines that were read."""
        self._tail = answer.value
        self._draw()

    def _draw(self) -> None:
        lines = [line.text for line in self._tail.lines] if self._tail is not None else []
        self.set_class(bool(lines), "-lines")
        super().update(Content("\n".join([self._why, *lines])))
