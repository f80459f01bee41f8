"""One job: its overview, log, charts, usage, configuration, files and events, each a tab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from textual import events, on
from textual.containers import Container
from textual.widget import Widget

from screens.charts.data import ChartsPage
from screens.charts.grid import ChartGrid
from screens.charts.keys import ChartKeys
from screens.charts.queries import Charted, charts_page
from screens.core import actions
from screens.jobs import text_pages
from screens.jobs.dashboard import OverviewPage
from screens.jobs.file_list import FileList
from screens.jobs.files import FoundFile
from screens.jobs.files_tab import FilesTab
from screens.jobs.preview import LastLines
from screens.jobs.queries import JOB_COUNTERS, JobPage, job_page
from screens.jobs.usage_page import UsagePage
from screens.logs.view import LogView
from screens.style import notices, status
from screens.style.notices import EmptyNotice
from screens.widgets.prompt import Prompt
from screens.widgets.tabs import TABS, TabBar, TabKeys
from screens.widgets.text_page import (
    ConfigPage,
    EventsPage,
    TextPage,
)
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.job import short_id
from workbench.services.inspect.job_times import run_seconds
from workbench.store.db.rows import JobRow

WIDE: Final = 160
"""From so many columns on, a second tab is shown next to the open one."""
SECOND_TABS: Final = {"logs": "charts", "charts": "logs"}


class JobScreen(FilesTab, TabKeys):
    """The screen of one job."""

    BINDINGS: ClassVar = actions.early_bindings("overview", "charts")

    def __init__(self, job: JobRow, tab: str) -> None:
        super().__init__(job)
        self.tab = tab if tab in TABS else TABS[0]
        self.job_name = job.name
        self._page: JobPage | None = None
        self._all_there = False

    def body(self) -> Iterator[Widget]:
        """Make the tabs."""
        yield TabBar(TABS)
        with Container(id="run-body"):
            yield OverviewPage(id="overview")
            yield LogView(id="logs")
            yield ChartGrid(id="charts")
            yield UsagePage(id="usage")
            yield ConfigPage(id="config")
            yield FileList(id="files")
            yield EventsPage(id="events")
        yield Prompt(id="run-prompt")

    def on_mount(self) -> None:
        """Begin to read."""
        self.fabric.memory.put("screen", "run")
        self.fabric.memory.put("job", self.job_id)
        self.fabric.reader.watch(
            self, "job", job_page(self.job_id, self.fabric.clock), counters=JOB_COUNTERS, every_seconds=0.2
        )
        self.query_one(LogView).restore(self.fabric.memory)
        if self.job is not None:
            self.query_one(LogView).show_job(self.fabric.home, self.job)
            self.query_one(LogView).return_to(self.fabric.memory)
        self._all_there = True
        self.refresh_head()
        self.show(self.tab)

    def on_unmount(self) -> None:
        """Stop reading."""
        self.fabric.reader.forget(self)

    # Tabs

    def show(self, tab: str) -> None:
        """Open a tab; what only another one needs is no longer read."""
        self.tab = tab
        if not self._all_there:
            return  # it is shown when all is there
        self.query_one(TabBar).active = tab
        shown = self.shown_tabs()
        for name in TABS:
            self.query_one(f"#{name}").display = name in shown
        pane = self.query_one(f"#{tab}")
        if not self.query_one(Prompt).display:
            pane.focus()
        self.fabric.memory.put("tab", tab)
        reader = self.fabric.reader
        for key in ("charts", "files"):
            reader.forget(self, key)
        self.query_one(LogView).rest(resting="logs" not in shown)
        if "overview" not in shown:
            self.query_one(OverviewPage).rest()
        if "usage" not in shown:
            self.query_one(UsagePage).rest()
        if self.job is None:
            self._say_deleted()
            return
        self.write_pages()
        if "charts" in shown:
            self._read_charts()
        if tab == "files":
            self.read_files()
        elif tab == "config":
            self.ask_plan()

    def shown_tabs(self) -> tuple[str, ...]:
        """Return the tabs in view: the open one and, where there is room, one next to it."""
        second = SECOND_TABS.get(self.tab)
        return (self.tab, second) if second and self.size.width >= WIDE else (self.tab,)

    def on_screen_resume(self) -> None:
        """Fit the tabs to the terminal."""
        self._fit()

    def on_resize(self, event: events.Resize) -> None:
        """Show another tab next to the open one, or remove it."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if self.whole and self._all_there and self._seen_tabs() != set(self.shown_tabs()):
            focused = self.focused
            self.show(self.tab)
            if focused is not None and focused.display:
                focused.focus()

    def _seen_tabs(self) -> set[str]:
        return {name for name in TABS if self.query_one(f"#{name}").display}

    @on(FileList.Chosen)
    def _open_file(self) -> None:
        self.action_files_open()

    # What was read

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        value = answer.value
        if self.job is None or not self.whole:
            return
        if isinstance(value, ChartsPage):
            self.query_one(ChartGrid).show(value, notices.no_metrics(self.job))
        elif answer.key == "files":
            self.take_files(value)
        elif answer.key == "job":
            self._take(value)

    def _take(self, page: JobPage | None) -> None:
        if page is None:
            self.job = None
            self._say_deleted()
            return
        started_again = self.job is not None and page.row.attempt != self.job.attempt
        self._page, self.job = page, page.row
        self.fabric.last_job = page.row
        self.query_one(LogView).job_changed(page.row, started_again=started_again)
        self.write_pages()
        self.refresh_head()

    def _say_deleted(self) -> None:
        """Say on every tab that the job was deleted; its log file may be readable as long as it is open here."""
        self.refresh_head()
        notice = EmptyNotice(f"{self.job_name} was deleted", "esc goes back to the jobs")
        for page in self.query(TextPage):
            page.say(notice)
        self.query_one(UsagePage).say(notice)
        self.query_one(FileList).show((), notice, self.fabric.clock())
        self.query_one(ChartGrid).show(ChartsPage((), {}, self.query_one(ChartGrid).view), notice)

    def write_pages(self) -> None:
        """Write the page that is in view; the others are written when they come into view."""
        page, now = self._page, self.fabric.clock()
        if page is None or self.job is None:
            return
        shown = self.shown_tabs()
        if "overview" in shown:
            self.query_one(OverviewPage).show_job(page.overview, now)
        match self.tab:
            case "usage":
                self.query_one(UsagePage).show_job(page.overview, now)
            case "config":
                self.query_one(ConfigPage).show(text_pages.config(page, self.native))
            case "files":
                self.show_files(page.overview.checkpoints, now)
            case "events":
                events = self.query_one(EventsPage)
                if page.transitions or page.requests:
                    events.show(text_pages.events(page, now))
                else:
                    events.say(
                        EmptyNotice("no events yet", "every step of the job and every request is listed here")
                    )

    def too_small(self) -> LastLines:
        """Show the last lines of the job in view where there is no room for more."""
        return LastLines()

    def tick(self, now_us: int) -> None:
        """Let ages grow."""
        self.query_one(LastLines).follow(self.job)
        self.write_pages()
        self.refresh_head()

    def refresh_head(self) -> None:
        """Say which job this is, and where it stands."""
        if self.job is None:
            self.head(("jobs", formats.printable(self.job_name)), (("deleted", "error"),))
            return
        look = status.look(self.job.state)
        seconds = run_seconds(self.job, self.fabric.clock())
        took = "" if seconds is None else formats.duration(seconds)
        crumbs = ("jobs", f"{formats.printable(self.job.name)} {short_id(self.job.id)}")
        self.head(crumbs, ((str(look), self.job.state.lower()), (took, "dim")))

    def targets(self) -> list[JobRow]:
        """Return this job."""
        return [self.job] if self.job else []

    # Charts

    @on(ChartGrid.SeriesRequested)
    def _read_charts(self) -> None:
        if "charts" not in self.shown_tabs() or self.job is None:
            return
        grid = self.query_one(ChartGrid)
        charted = Charted(self.job_id, self.job.name, self.job.started_us or self.job.submitted_us)
        query = charts_page((charted,), grid.metrics_in_view, grid.plot_width, grid.view, ("value",))
        self.fabric.reader.watch(self, "charts", query, counters=("series",), every_seconds=0.25)

    @on(ChartKeys.FilterRequested)
    def _ask_charts(self) -> None:
        self.query_one(Prompt).ask("metrics", self.query_one(ChartGrid).filter_text)

    # The line at the foot: for charts, else for the log

    @on(LogView.PromptRequested)
    def _ask_log(self, request: LogView.PromptRequested) -> None:
        history = self.fabric.memory.texts(f"log {request.purpose}")
        self.query_one(Prompt).ask(request.purpose, request.value, history)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        if typed.purpose == "metrics":
            self.query_one(ChartGrid).set_filter(typed.value)
        else:
            self.query_one(LogView).typing(typed.purpose, typed.value)

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        prompt = self.query_one(Prompt)
        if entered.purpose == "metrics":
            self.query_one(ChartGrid).set_filter(entered.value)
        elif fault := self.query_one(LogView).entered(entered.purpose, entered.value):
            prompt.complain(fault)
            return
        elif entered.value:
            self.fabric.memory.add_to_history(f"log {entered.purpose}", entered.value)
        prompt.close()
        self._focus_asker(entered.purpose)

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        if left.purpose == "metrics":
            self.query_one(ChartGrid).set_filter(left.before)
        else:
            self.query_one(LogView).typing(left.purpose, left.before)
        self._focus_asker(left.purpose)

    def _focus_asker(self, purpose: str) -> None:
        """Give the focus back to the pane that something was typed for."""
        self.query_one("#charts" if purpose == "metrics" else "#logs").focus()

    def back(self) -> bool:
        """Take away what narrows the view."""
        focused = self.focused
        if isinstance(focused, LogView):
            return focused.back()
        if isinstance(focused, ChartGrid):
            return focused.undo()
        return False

    # Others

    def can_do(self, action_id: str) -> bool:
        """Offer what does something with what is in view: no zoom where there is no chart."""
        kind = action_id.partition(".")[0]
        if kind == "chart":
            return bool(self.query_one(ChartGrid).page.names)
        if kind == "log":
            document = self.query_one(LogView).document
            return document is not None and document.lines > 0
        match action_id:
            case "usage.window":
                return self.query_one(UsagePage).has_curves
            case "files.open":
                return self.query_one(FileList).file is not None
            case "files.upload":
                return self.job is not None
            case _:
                return super().can_do(action_id)

    def chosen_file(self) -> FoundFile | None:
        """Return the file under the cursor, while files are in view."""
        return self.query_one(FileList).file if self.tab == "files" else None

    def manifest_text(self) -> str:
        """Return the job's manifest as it was written."""
        return (
            self._page.detail.manifest_text
            if self._page is not None and self._page.detail is not None
            else ""
        )
