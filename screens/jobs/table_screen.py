"""The first screen: the table of jobs, and a preview of the job under the cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widget import Widget

from screens.core import actions
from screens.core.app_protocol import Part
from screens.jobs.actions import JobActions
from screens.jobs.columns import COLUMNS, layout
from screens.jobs.preview import Preview
from screens.jobs.queries import TABLE_COUNTERS, JobRange, JobsPage, jobs_page, read_jobs, read_range
from screens.jobs.table import JobTable
from screens.style.status import look
from screens.widgets.chips import Chips
from screens.widgets.prompt import Prompt
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.errors import FabricError
from workbench.job import State
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import SORTS, JobList, Key
from workbench.store.queries.where import WhereError, parse

if TYPE_CHECKING:
    from workbench.services.control.requests import RequestKind

PROBLEMS: Final = "is:problem"
MOST_COMPARED: Final = 50
_COUNTED: Final = (State.PROCESSING, State.PENDING, State.QUEUED, State.FAILED)


class JobsScreen(JobActions):
    """All jobs, newest first unless sorted otherwise."""

    BINDINGS: ClassVar = actions.early_bindings("runs")

    def __init__(self) -> None:
        super().__init__()
        self.listing = JobList()
        self.filter_text = ""
        self.problems_only = False
        self._counts: tuple[Part, ...] = ()
        self._begun = False
        self._after_ranges: Callable[[Sequence[JobRow]], None] | None = None
        """What was asked for while a range was still to be marked."""
        self._last_read: tuple[Key | None, int | None] = (None, None)

    def body(self) -> Iterator[Widget]:
        """Make table and preview."""
        yield Chips()
        with Container(id="runs-body"):
            yield JobTable(id="runs")
            yield Preview(id="preview")
        yield Prompt(id="filter")

    @property
    def table(self) -> JobTable:
        """The table."""
        return self.query_one(JobTable)

    def begin(self) -> None:
        """Restore how it was left, and begin to read."""
        memory = self.fabric.memory
        sort = memory.text("sort", "submitted")
        self.listing = JobList(
            sort=sort if sort in SORTS else "submitted", descending=memory.flag("descending", True)
        )
        self.problems_only = memory.flag("problems")
        self.table.wanted_columns = tuple(memory.texts("columns"))
        self.query_one(Preview).display = memory.flag("preview", True)
        self.set_filter(memory.text("filter"))
        self._begun = True

    def on_mount(self) -> None:
        """Start with the focus on the table."""
        self.refresh_head()
        self.table.focus()

    def on_screen_resume(self) -> None:
        """Remember that this is where one is, and read on."""
        if self._begun:
            self.fabric.memory.put("screen", "runs")
            self._read(*self._last_read)
            self.query_one(Preview).read_again()

    def on_screen_suspend(self) -> None:
        """Read nothing while another screen is on top; a preview stays in sight under a window, and is read on."""
        self.fabric.reader.forget(self)
        if not isinstance(self.app.screen, ModalScreen):
            self.fabric.reader.forget(self.query_one(Preview))

    # Reading

    def _read(self, anchor: Key | None = None, offset: int | None = None) -> None:
        self._last_read = anchor, offset
        query = jobs_page(self.listing, anchor, offset, self.fabric.clock)
        self.fabric.reader.watch(self, "runs", query, counters=TABLE_COUNTERS, every_seconds=0.2)

    def _read_anew(self) -> None:
        """Read another listing from its top; what is shown stays until it is there."""
        self.table.begin_listing(self.listing)
        self._read()

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        page = answer.value
        if not isinstance(page, JobsPage) or page.listing != self.listing or not self.whole:
            return
        self._set_notice(page.window.jobs)
        self.table.show(page.window, page.figures, self.fabric.clock())
        self._counts = tuple(
            (f"{look(state).shape} {amount:,} {state.lower()}", state.lower())
            for state in _COUNTED
            if (amount := page.window.states.get(state, 0))
        )
        shown, all_ = page.window.total, page.window.jobs
        self._counts += ((f"{shown:,} of {all_:,}" if shown != all_ else formats.count(all_, "job"), "dim"),)
        self.refresh_head()

    def _set_notice(self, jobs: int) -> None:
        if jobs and (self.filter_text or self.problems_only):
            what = self.filter_text or "problems"
            self.table.notice = (
                (f"no job matches  {formats.printable(what)}", "text"),
                ("esc shows all", "dim"),
            )
        elif not jobs:
            self.table.notice = (
                ("No jobs yet", "text"),
                ("", "dim"),
                ("fabric run examples/digits/manifest.yml", "key"),
                ("fabric run -- python train.py", "key"),
                ("starts a job; it appears here", "dim"),
            )

    @on(JobTable.PageRequested)
    def _read_page(self, request: JobTable.PageRequested) -> None:
        self._read(request.anchor, request.offset)

    @on(JobTable.Moved)
    def _moved(self, moved: JobTable.Moved) -> None:
        self.query_one(Preview).show(moved.job)

    # Marks

    @on(JobTable.MarksChanged)
    def _marks_changed(self) -> None:
        self.refresh_head()

    @on(JobTable.RangeRequested)
    def _read_range(self, request: JobTable.RangeRequested) -> None:
        home, listing, now_us = self.fabric.home, self.listing, self.fabric.clock()

        def read() -> JobRange | FabricError:
            try:
                return read_range(home, listing, request.anchor, request.job, now_us)
            except FabricError as error:
                return error

        self.fabric.background.run(read, partial(self._take_range, request), owner=self)

    def _take_range(self, request: JobTable.RangeRequested, found: JobRange | FabricError) -> None:
        self.table.mark_range(request, () if isinstance(found, FabricError) else found.jobs)
        waiting, self._after_ranges = self._after_ranges, None
        if isinstance(found, FabricError):
            self.fabric.show_problem(found, "marking the range")
        elif found.missing is not None:
            name = formats.printable(found.missing.name)
            self.fabric.show_message(f"{name} is no longer in this list: no range was marked", "warning")
        elif waiting is not None:
            self.with_targets(waiting)

    def with_targets(self, then: Callable[[Sequence[JobRow]], None]) -> None:
        """Act on the marked jobs as the store has them now, once all ranges are marked."""
        table = self.table
        if table.ranges_pending:
            self._after_ranges = then
        elif table.marks_are_current:
            then(self.targets())
        else:
            read = partial(read_jobs, self.fabric.home, list(table.marks))
            self.fabric.background.run(read, partial(self._take_marked, then), owner=self, newest="marked")

    def _take_marked(self, then: Callable[[Sequence[JobRow]], None], marked: list[JobRow]) -> None:
        self.table.keep_marks(marked)
        if marked:
            then(marked)
        else:
            self.fabric.show_message("the marked jobs were deleted meanwhile", "warning")

    def requested(self, kind: RequestKind, jobs: Sequence[JobRow]) -> None:
        """Remove the marks of jobs that are deleted."""
        if kind == "delete":
            deleted = {job.id for job in jobs}
            self.table.keep_marks([job for job in self.table.marks.values() if job.id not in deleted])

    # Heading and time

    def refresh_head(self) -> None:
        """Say how many jobs there are, in which states."""
        marked = len(self.table.marks)
        marks: tuple[Part, ...] = ((f"{marked:,} marked", "accent"),) if marked else ()
        self.head(("jobs",), (*marks, *self._counts))

    def tick(self, now_us: int) -> None:
        """Let ages grow."""
        self.table.tick(now_us)
        self.query_one(Preview).tick(now_us)
        self.refresh_head()

    # Filter and order

    def set_filter(self, typed: str) -> bool:
        """Filter by a text; one that cannot be read says so, and what is shown stays."""
        try:
            where = parse(" ".join(filter(None, (PROBLEMS if self.problems_only else "", typed))))
            own = parse(typed)
        except WhereError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.query_one("#filter", Prompt).complain(f"{error}{hint}", error.start, error.end)
            return False
        self.filter_text = typed.strip()
        self.listing = replace(self.listing, where=where)
        terms = own.terms + (("only problems",) if self.problems_only else ())
        self.query_one(Chips).terms = terms
        self.fabric.memory.put("filter", self.filter_text)
        self.fabric.memory.put("problems", self.problems_only)
        self._read_anew()
        return True

    def action_runs_filter(self) -> None:
        """Open the line in which a filter is typed."""
        history = self.fabric.memory.texts("filters")
        self.query_one("#filter", Prompt).ask("filter", self.filter_text, history)

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        self.set_filter(typed.value)

    @on(Prompt.Entered)
    def _entered(self, entered: Prompt.Entered) -> None:
        if self.set_filter(entered.value):
            if entered.value.strip():
                self.fabric.memory.add_to_history("filters", entered.value.strip())
            self.query_one("#filter", Prompt).close()
            self.table.focus()

    @on(Prompt.Left)
    def _left(self, left: Prompt.Left) -> None:
        self.set_filter(left.before)
        self.table.focus()

    @on(Chips.Removed)
    def _chip_removed(self, removed: Chips.Removed) -> None:
        if removed.term == "only problems":
            self.problems_only = False
            self.set_filter(self.filter_text)
            return
        rest = [term for term in parse(self.filter_text).terms if term != removed.term]
        self.set_filter(" ".join(rest))

    def back(self) -> bool:
        """Take filter, then marks away."""
        if self.filter_text or self.problems_only:
            self.problems_only = False
            self.set_filter("")
            return True
        if self.table.marks:
            self.table.action_runs_unmark()
            return True
        return False

    def action_runs_problems(self) -> None:
        """Only what failed or waits with a fault, or all again."""
        self.problems_only = not self.problems_only
        self.set_filter(self.filter_text)

    def _sort(self, sort: str, descending: bool) -> None:
        self.listing = replace(self.listing, sort=sort, descending=descending)
        self.fabric.memory.put("sort", sort)
        self.fabric.memory.put("descending", descending)
        self._read_anew()

    def action_runs_columns(self) -> None:
        """Ask which columns are shown."""
        known = [column.heading for column in COLUMNS]
        shown = [column.heading for column, _ in layout(self.table.size.width - 2, self.table.wanted_columns)]
        purpose = f"columns ({' '.join(known)}; empty: automatic)"
        self.fabric.ask_line(
            purpose if self.size.width > 140 else "columns", " ".join(shown), known, self._set_columns
        )

    def _set_columns(self, line: str) -> None:
        typed = dict.fromkeys(line.replace(",", " ").split())
        known = {column.heading: column.title for column in COLUMNS}
        titles = tuple(dict.fromkeys(known.get(name, name) for name in typed))
        if unknown := [title for title in titles if title not in known.values()]:
            self.fabric.show_message(
                f"unknown column {unknown[0]!r}; columns are {', '.join(sorted(known))}", "warning"
            )
            return
        self.table.wanted_columns = titles
        self.fabric.memory.put("columns", list(titles))
        self.table.refresh()

    def action_runs_sort(self) -> None:
        """Sort by the next column."""
        names = list(SORTS)
        sort = names[(names.index(self.listing.sort) + 1) % len(names)]
        self._sort(sort, descending=sort not in ("name", "state", "place", "owner"))

    def action_runs_reverse(self) -> None:
        """Turn the order round."""
        self._sort(self.listing.sort, not self.listing.descending)

    @on(JobTable.SortBy)
    def _sort_by(self, clicked: JobTable.SortBy) -> None:
        same = clicked.sort == self.listing.sort
        self._sort(clicked.sort, not self.listing.descending if same else clicked.sort != "name")

    # Jobs

    def targets(self) -> list[JobRow]:
        """Return the marked jobs, or the one under the cursor."""
        marked = list(self.table.marks.values())
        if marked:
            return marked
        return [self.table.job] if self.table.job else []

    @on(JobTable.Open)
    def action_runs_open(self) -> None:
        """Open the job under the cursor where the last one was left."""
        self.show(self.fabric.memory.text("tab", "overview"))

    def show(self, tab: str) -> None:
        """Open the job under the cursor on a tab."""
        if self.table.job is not None:
            self.fabric.open_job(self.table.job, tab)

    def action_runs_preview(self) -> None:
        """Show or hide the preview."""
        preview = self.query_one(Preview)
        preview.display = not preview.display
        self.fabric.memory.put("preview", preview.display)
        preview.show(self.table.job)

    def action_runs_compare(self) -> None:
        """Compare the marked jobs side by side."""
        marked = list(self.table.marks.values())
        if len(marked) < 2:
            self.fabric.show_message("mark at least two jobs with space, then compare them", "warning")
            return
        if len(marked) > MOST_COMPARED:
            self.fabric.show_message(
                f"{len(marked):,} jobs are marked; at most {MOST_COMPARED} can be compared", "warning"
            )
            return
        from screens.jobs.compare_screen import CompareScreen

        self.app.push_screen(CompareScreen(marked))
