"""Two or more jobs side by side: their charts overlaid, their values, only what differs, and how the code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from textual import on
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from screens.charts.data import ChartsPage
from screens.charts.grid import ChartGrid
from screens.charts.keys import ChartKeys
from screens.charts.queries import Charted, charts_page
from screens.core import actions
from screens.jobs.actions import JobActions
from screens.jobs.compare_pages import code_page, compare_query, differences_page, titles, values_page
from screens.jobs.queries import JOB_COUNTERS
from screens.widgets.prompt import Prompt
from screens.widgets.tabs import TabBar
from screens.widgets.text_page import ComparePage
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.services.inspect.comparison import Comparison
from workbench.store.db.rows import JobRow

TABS: Final = ("charts", "values", "differences", "code")


class CompareScreen(JobActions):
    """Several jobs."""

    BINDINGS: ClassVar = actions.early_bindings("compare", "charts")

    def __init__(self, jobs: Sequence[JobRow]) -> None:
        super().__init__()
        self.jobs = list(jobs)
        self.tab = TABS[0]
        self._comparison: Comparison | None = None
        self._diffed: tuple[str, ...] = ()

    def body(self) -> Iterator[Widget]:
        """Make the tabs."""
        yield TabBar(TABS)
        with Container(id="run-body"):
            yield ChartGrid(id="charts")
            for name in TABS[1:]:
                yield ComparePage(id=name)
        yield Prompt(id="run-prompt")

    def on_mount(self) -> None:
        """Begin to read."""
        query = compare_query([job.id for job in self.jobs])
        self.fabric.reader.watch(self, "jobs", query, counters=JOB_COUNTERS, every_seconds=0.5)
        self.show(self.tab)
        self.refresh_head()

    def on_unmount(self) -> None:
        """Stop reading."""
        self.fabric.reader.forget(self)

    def show(self, tab: str) -> None:
        """Open a tab; the log and the overview are each job's own, and open on its own screen."""
        if tab not in TABS:
            if self.jobs:
                self.fabric.open_job(self.jobs[0], tab)
            return
        self.tab = tab
        self.query_one(TabBar).active = tab
        for name in TABS:
            self.query_one(f"#{name}").display = name == tab
        self.query_one(f"#{tab}").focus()
        if tab == "charts":
            self._read_charts()
        else:
            self.fabric.reader.forget(self, "charts")
        self._write()

    @on(TabBar.Chosen)
    def _chosen(self, chosen: TabBar.Chosen) -> None:
        self.show(chosen.tab)

    def action_run_next_tab(self) -> None:
        """The next tab."""
        self.show(self.query_one(TabBar).neighbour(1))

    def action_run_previous_tab(self) -> None:
        """The tab before."""
        self.show(self.query_one(TabBar).neighbour(-1))

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        if not self.whole:
            return
        if isinstance(answer.value, ChartsPage):
            self.query_one(ChartGrid).show(answer.value, "none of these jobs reported metrics")
        elif answer.key == "jobs":
            self._comparison = answer.value
            self.jobs = [job.row for job in answer.value.jobs]
            self._write()
            self.refresh_head()

    def _write(self) -> None:
        if self._comparison is None or not self._comparison.jobs:
            return
        comparison = self._comparison
        now = self.fabric.clock()
        self.query_one("#values", ComparePage).show(values_page(comparison, now))
        self.query_one("#differences", ComparePage).show(differences_page(comparison))
        hashes = tuple(job.code_hash for job in comparison.jobs)
        if self.tab == "code" and hashes != self._diffed:
            self._diffed = hashes
            home = self.fabric.home
            self.fabric.background.run(
                lambda: code_page(home, comparison.jobs), self._show_code, owner=self, newest="code"
            )

    def _show_code(self, shown: Content) -> None:
        if self.whole:
            self.query_one("#code", ComparePage).show(shown)

    @on(ChartGrid.SeriesRequested)
    def _read_charts(self) -> None:
        if self.tab != "charts":
            return
        grid = self.query_one(ChartGrid)
        names = (
            titles(self._comparison.jobs)
            if self._comparison
            else [formats.printable(job.name) for job in self.jobs]
        )
        charted = [
            Charted(job.id, name, job.started_us or job.submitted_us)
            for job, name in zip(self.jobs, names, strict=True)
        ]
        query = charts_page(charted, grid.metrics_in_view, grid.plot_width, grid.view, ("value",))
        self.fabric.reader.watch(self, "charts", query, counters=("series",), every_seconds=0.25)

    @on(ChartKeys.FilterRequested)
    def _ask_charts(self) -> None:
        self.query_one(Prompt).ask("metrics", self.query_one(ChartGrid).filter_text)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        self.query_one(ChartGrid).set_filter(typed.value)

    @on(Prompt.Entered)
    def _entered(self) -> None:
        self.query_one(Prompt).close()
        self.query_one(ChartGrid).focus()

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        self.query_one(ChartGrid).set_filter(left.before)
        self.query_one(ChartGrid).focus()

    def refresh_head(self) -> None:
        """Say how many are compared."""
        self.head(("jobs", f"compare {formats.count(len(self.jobs), 'job')}"), ())

    def targets(self) -> list[JobRow]:
        """Return all of them."""
        return self.jobs

    def back(self) -> bool:
        """Take away what narrows the view of the charts."""
        return self.tab == "charts" and self.query_one(ChartGrid).undo()
