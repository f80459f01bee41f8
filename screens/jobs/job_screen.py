"""One job: its overview, log, charts, usage, configuration, files and events, each a tab."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from textual import events
from textual.containers import Container
from textual.widget import Widget

from screens.base.job_tab import JobPage, JobTab
from screens.charts.grid import ChartsTab
from screens.core import actions
from screens.jobs.actions import JobActions
from screens.jobs.dashboard import OverviewPage
from screens.jobs.file_actions import ShowsFiles
from screens.jobs.files import FoundFile
from screens.jobs.files_tab import FilesTab
from screens.jobs.preview import LastLines
from screens.jobs.queries import JOB_COUNTERS, job_page
from screens.jobs.text_pages import ConfigTab, EventsTab
from screens.jobs.usage_page import UsagePage
from screens.logs.view import LogView
from screens.style import status
from screens.style.notices import EmptyNotice
from screens.widgets.prompt import Prompt
from screens.widgets.tabs import TabBar, TabKeys
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.job import short_id
from workbench.services.inspect.job_times import run_seconds
from workbench.store.db.rows import JobRow

TABS: Final[tuple[type[JobTab], ...]] = (
    OverviewPage,
    LogView,
    ChartsTab,
    UsagePage,
    ConfigTab,
    FilesTab,
    EventsTab,
)
"""The tabs, in their order; ``JOB_TABS`` of the table of actions has their names, for keys, help and commands."""
WIDE: Final = 160
"""From so many columns on, a second tab is shown next to the open one."""


class JobScreen(JobActions, TabKeys):
    """The screen of one job: it reads the job, and says to its tabs which of them are in view."""

    BINDINGS: ClassVar = actions.early_bindings("overview", "charts")

    def __init__(self, job: JobRow, tab: str) -> None:
        super().__init__()
        self.tabs = {one.TAB: one(id=one.TAB) for one in TABS}
        self.tab = tab if tab in self.tabs else next(iter(self.tabs))
        self.job: JobRow | None = job
        """None when it was deleted while its screen is open."""
        self.job_id = job.id
        self.job_name = job.name
        self._page: JobPage | None = None
        self._all_there = False

    def body(self) -> Iterator[Widget]:
        """Put the tabs behind each other."""
        yield TabBar(tuple(self.tabs))
        yield Container(*self.tabs.values(), id="run-body")
        yield Prompt(id="run-prompt")

    def on_mount(self) -> None:
        """Begin to read."""
        self.fabric.memory.put("screen", "run")
        self.fabric.memory.put("job", self.job_id)
        self.fabric.reader.watch(
            self, "job", job_page(self.job_id, self.fabric.clock), counters=JOB_COUNTERS, every_seconds=0.2
        )
        self._give_job()
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
        for name, one in self.tabs.items():
            one.display = name in shown
        if not self.query_one(Prompt).display:
            self.tabs[tab].focus()
        self.fabric.memory.put("tab", tab)
        for name, one in self.tabs.items():
            if name not in shown:
                one.rest()
        if self.job is None:
            self._say_deleted()
            return
        self._show_job()
        for name in shown:
            self.tabs[name].opened()

    def shown_tabs(self) -> tuple[str, ...]:
        """Return the tabs in view: the open one and, where there is room, one next to it."""
        second = self.tabs[self.tab].BESIDE
        return (self.tab, second) if second and self.size.width >= WIDE else (self.tab,)

    def on_screen_resume(self) -> None:
        """Fit the tabs to the terminal."""
        self._fit()

    def on_resize(self, event: events.Resize) -> None:
        """Show another tab next to the open one, or remove it."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        if not self.whole or not self._all_there:
            return
        if {name for name, one in self.tabs.items() if one.display} != set(self.shown_tabs()):
            focused = self.focused
            self.show(self.tab)
            if focused is not None and focused.display:
                focused.focus()

    # What was read

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take the job as it is now."""
        page: JobPage | None = answer.value
        if self.job is None or not self.whole:
            return
        if page is None:
            self.job = None
            self._say_deleted()
            return
        self._page, self.job = page, page.row
        self.fabric.last_job = page.row
        self._give_job()
        self._show_job()
        self.refresh_head()

    def _give_job(self) -> None:
        if self.job is not None:
            for one in self.tabs.values():
                one.take_job(self.job)

    def _show_job(self) -> None:
        """Have the tabs in view show the job; the others do when they come into view."""
        if self._page is not None and self.job is not None:
            for name in self.shown_tabs():
                self.tabs[name].show_job(self._page, self.fabric.clock())

    def _say_deleted(self) -> None:
        """Say on every tab that the job was deleted; its log file may be readable as long as it is open here."""
        self.refresh_head()
        notice = EmptyNotice(f"{self.job_name} was deleted", "esc goes back to the jobs")
        for one in self.tabs.values():
            one.job_deleted(notice)

    def too_small(self) -> LastLines:
        """Show the last lines of the job in view where there is no room for more."""
        return LastLines()

    def tick(self, now_us: int) -> None:
        """Let ages grow."""
        self.query_one(LastLines).follow(self.job)
        self._show_job()
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

    # What is done with the job

    def targets(self) -> list[JobRow]:
        """Return this job."""
        return [self.job] if self.job else []

    def back(self) -> bool:
        """Take away what narrows the view."""
        focused = self.focused
        return isinstance(focused, JobTab) and focused.back()

    def can_do(self, action_id: str) -> bool:
        """Offer what does something with what is in view: no zoom where there is no chart."""
        said = (one.can_do(action_id) for one in self.tabs.values())
        return next((can for can in said if can is not None), super().can_do(action_id))

    def chosen_file(self) -> FoundFile | None:
        """Return the file under the cursor, while files are in view."""
        tab = self.tabs[self.tab]
        return tab.file if isinstance(tab, ShowsFiles) else None

    def manifest_text(self) -> str:
        """Return the job's manifest as it was written."""
        return (
            self._page.detail.manifest_text
            if self._page is not None and self._page.detail is not None
            else ""
        )
