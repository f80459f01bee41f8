"""The first screen: the table of jobs, and a preview of the job under the cursor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widget import Widget

from screens.core import actions
from screens.core.app_protocol import Part
from screens.jobs.actions import JobActions
from screens.jobs.columns import COLUMNS, column_named, layout
from screens.jobs.in_view import InView, RowDetails, RowDetailsReader
from screens.jobs.list_header import BackendLines, Chips
from screens.jobs.marks import Act, PendingAct, RangeToMark, Targets, read_targets
from screens.jobs.preview import SETTLE_SECONDS, LastLines, Preview
from screens.jobs.queries import (
    TABLE_COUNTERS,
    JobRange,
    JobsPage,
    jobs_page,
    read_filter_words,
    read_jobs,
    read_range,
    why_not_sorted_by,
)
from screens.jobs.table import JobTable
from screens.style.status import look
from screens.widgets.prompt import Prompt
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.errors import FabricError
from workbench.job import TERMINAL, State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow
from workbench.store.queries.filter_syntax import WhereError
from workbench.store.queries.job_fields import find_field, sort_order
from workbench.store.queries.job_list import JobList, Key
from workbench.store.queries.where import joined, parse

if TYPE_CHECKING:
    from textual.timer import Timer

    from screens.backends.watch import BackendAnswer, BackendAsked
    from workbench.services.control.requests import RequestKind

PROBLEMS: Final = "is:problem"
MOST_COMPARED: Final = 50
_BACKENDS_AFTER_SECONDS: Final = 0.3
"""The list must rest so long before the backends are asked for the first time."""
_BACKENDS_SLOWER: Final = 3
"""The list asks them so many times slower than their own page."""
_COUNTED: Final = (State.PROCESSING, State.PENDING, State.QUEUED, State.FAILED)


def _rises(sort: str) -> bool:
    """Say whether the least comes first, unless asked otherwise."""
    found = find_field(sort)
    return found is not None and found.rises


class JobsScreen(JobActions):
    """All jobs, newest first unless sorted otherwise."""

    BINDINGS: ClassVar = actions.early_bindings("runs")

    def __init__(self) -> None:
        super().__init__()
        self.listing = JobList()
        self.filter_text = ""
        self.problems_only = False
        self._counts: tuple[Part, ...] = ()
        self._amount = ""
        """How many jobs are listed."""
        self._begun = False
        self._after_ranges: PendingAct | None = None
        """What was asked for while a range was still to be marked."""
        self._last_read: tuple[Key | None, int | None] = (None, None)
        self._filter_words: Sequence[str] = ()
        """What a term of a filter may begin with, once that was read."""
        self._details = RowDetailsReader()
        self._backends_asked = False
        self._used_at = 0.0
        """When the list came into view or its cursor moved (``time.monotonic``)."""
        self._in_view = True
        self._something_open = False
        self._settling: Timer | None = None
        """Until it ends, rows come into view and go."""

    def body(self) -> Iterator[Widget]:
        """Make table and preview."""
        yield BackendLines()
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
        sort, descending = sort_order(
            memory.text("sort", "submitted") or "submitted", descending=memory.flag("descending", True)
        )
        self.listing = JobList(sort=sort, descending=descending, folds=memory.flag("folds", True))
        self.problems_only = memory.flag("problems")
        self.table.wanted_columns = tuple(memory.texts("columns"))
        self.query_one(Preview).display = memory.flag("preview", True)
        self.query_one(BackendLines).set_names(memory.texts("backends"))
        self.set_filter(memory.text("filter"))
        self._begun = True

    def on_mount(self) -> None:
        """Start with the focus on the table."""
        self.call_later(self.refresh_head)  # not all parts are there yet
        self.table.focus()

    def on_screen_resume(self) -> None:
        """Remember that this is where one is, and read on."""
        self._used_at, self._in_view = time.monotonic(), True
        if self._begun:
            self.fabric.memory.put("screen", "runs")
            self._read(*self._last_read)
            self.table.look_again()
            self.query_one(Preview).read_again()

    def on_screen_suspend(self) -> None:
        """Read nothing while another screen is on top; a preview stays in sight under a window, and is read on."""
        self._in_view = False
        self.fabric.reader.forget(self)
        if not isinstance(self.app.screen, ModalScreen):
            self.fabric.reader.forget(self.query_one(Preview))

    # Reading

    def _read(self, anchor: Key | None = None, offset: int | None = None, around: str = "") -> None:
        self._last_read = anchor, offset
        query = jobs_page(self.listing, anchor, offset, self.fabric.clock, around)
        self.fabric.reader.watch(self, "runs", query, counters=TABLE_COUNTERS, every_seconds=0.2)

    def _read_anew(self, *, keep: bool = False) -> None:
        """Read another listing from its top, or around the job under the cursor; what is shown stays until then."""
        job = self.table.job if keep else None
        self.table.begin_listing(self.listing, keep=job is not None)
        self._read(around=job.id if job is not None else "")

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        page = answer.value
        if isinstance(page, RowDetails):
            if self.whole:
                self.table.show_details(page)
            return
        if not isinstance(page, JobsPage) or page.listing != self.listing or not self.whole:
            return
        if not self._backends_asked:
            self._backends_asked = True
            self.set_timer(_BACKENDS_AFTER_SECONDS, self._ask_backends)
        self._something_open = any(page.window.states.get(state) for state in State if state not in TERMINAL)
        used = frozenset(row.target.backend for row in page.window.rows if row.state not in TERMINAL)
        self.query_one(BackendLines).use(used)
        self._set_notice(page.window.jobs)
        self.table.show(page.window, page.figures, self.fabric.clock())
        self._counts = tuple(
            (f"{look(state).shape} {amount:,} {state.lower()}", state.lower())
            for state in _COUNTED
            if (amount := page.window.states.get(state, 0))
        )
        shown, all_ = page.window.matching, page.window.jobs
        self._amount = (
            f"{shown:,} of {formats.count(all_, 'job')}" if shown != all_ else formats.count(all_, "job")
        )
        self.refresh_head()

    # The backends

    def _ask_backends(self) -> None:
        """Have every backend asked how it is, now that the list is there and rests: keys come first."""
        from workbench.config import load_config

        if time.monotonic() - self._used_at < _BACKENDS_AFTER_SECONDS:
            self.set_timer(_BACKENDS_AFTER_SECONDS, self._ask_backends)
            return

        def read() -> Mapping[str, Mapping[str, Any]]:
            try:
                return load_config().backends
            except FabricError:
                return {}  # the app has said so

        self.fabric.background.run(read, self._watch_backends, owner=self)

    def _watch_backends(self, backends: Mapping[str, Mapping[str, Any]]) -> None:
        from screens.backends.watch import watch_backends

        if self.whole:
            self.query_one(BackendLines).set_names(list(backends))
            self.fabric.memory.put("backends", list(backends))
            watch_backends(self, backends, wanted=self._wants_backends, slower=_BACKENDS_SLOWER)

    def _wants_backends(self, asked_at: float) -> bool:
        """Say whether the backends are to be asked again: called by other threads."""
        return (
            self._in_view
            and not self.fabric.reader.paused
            and (self._something_open or self._used_at > asked_at)
        )

    def on_backend_asked(self, asked: BackendAsked) -> None:
        """Note since when a backend is waited for."""
        if self.whole:
            self.query_one(BackendLines).ask(asked.name, asked.time_us)

    def on_backend_answer(self, answer: BackendAnswer) -> None:
        """Take an answer."""
        if self.whole:
            self.query_one(BackendLines).take(answer.status, self.fabric.clock())

    @on(BackendLines.Clicked)
    async def _backends_clicked(self) -> None:
        await self.fabric.action_perform("app.places")

    def _set_notice(self, jobs: int) -> None:
        if jobs and (self.filter_text or self.problems_only):
            what = self.filter_text or "problems"
            self.query_one(Preview).notice = "no job matches: there is none to show"
            self.table.notice = (
                (f"no job matches  {formats.printable(what)}", "text"),
                ("esc shows all", "dim"),
            )
        elif not jobs:
            self.query_one(Preview).notice = ""
            self.table.notice = (
                ("No jobs yet", "text"),
                ("n opens a form for the first one; a command line does as well:", "text"),
                ("", "dim"),
                ("fabric run examples/digits/manifest.yml", "key"),
                ("fabric run -- python train.py", "key"),
                ("starts a job; it appears here", "dim"),
            )

    @on(JobTable.ViewChanged)
    def _view_changed(self, view: JobTable.ViewChanged) -> None:
        """Read what is shown of these rows alone as soon as the list rests."""
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(SETTLE_SECONDS, partial(self._read_details, view.rows))

    def _read_details(self, rows: InView) -> None:
        if rows == InView() or not self.is_current:
            self.fabric.reader.forget(self, "details")
        else:
            query = self._details.query(rows)
            self.fabric.reader.watch(self, "details", query, counters=("series",), every_seconds=1.0)

    @on(JobTable.PageRequested)
    def _read_page(self, request: JobTable.PageRequested) -> None:
        self._read(request.anchor, request.offset)

    @on(JobTable.Moved)
    def _moved(self, moved: JobTable.Moved) -> None:
        self._used_at = time.monotonic()
        self.query_one(Preview).show(moved.job)
        self.refresh_keys()

    # Marks

    @on(JobTable.MarksChanged)
    def _marks_changed(self) -> None:
        self.refresh_head()

    @on(JobTable.RangeRequested)
    def _read_range(self, request: JobTable.RangeRequested) -> None:
        home, wanted, now_us = self.fabric.home, request.wanted, self.fabric.clock()

        def read() -> JobRange | FabricError:
            try:
                if wanted.job_ids:
                    return JobRange(tuple(read_jobs(home, wanted.job_ids)))
                return read_range(home, wanted, now_us)
            except FabricError as error:
                return error
            except Exception as error:  # whatever it is, what waits for the range must not wait forever
                return FabricError(f"the jobs of the range cannot be read: {type(error).__name__}: {error}")

        self.fabric.background.run(read, partial(self._take_range, wanted), owner=self)

    def _take_range(self, wanted: RangeToMark, found: JobRange | FabricError) -> None:
        jobs, last = ((), None) if isinstance(found, FabricError) else (found.jobs, found.last)
        self.table.mark_range(wanted, jobs, last)
        pending, self._after_ranges = self._after_ranges, None
        if isinstance(found, FabricError):
            self.fabric.show_problem(found, "marking the range")
        elif found.missing is not None:
            name = formats.printable(found.missing.name)
            self.fabric.show_message(f"{name} is no longer in this list: no range was marked", "warning")
        elif pending is not None and pending.marking == self.table.marking:
            pending.take(wanted, jobs)
            if pending.ranges:
                self._after_ranges = pending
            else:
                self._read_targets(list(pending.job_ids), pending.act)

    def with_targets(self, then: Act) -> None:
        """Act on the jobs that are marked now, as the store has them, once all ranges are marked."""
        table = self.table
        fold = table.fold_of(table.job)
        if table.ranges_pending:
            ranges = list(table.ranges_pending)
            self._after_ranges = PendingAct(then, set(table.marks), ranges, table.marking)
        elif fold is not None and not table.marks:
            self._read_targets(fold.job_ids, then)
        elif table.marks_are_current:
            then(Targets(tuple(self.targets())))
        else:
            self._read_targets(list(table.marks), then)

    def _read_targets(self, job_ids: Sequence[str], then: Act) -> None:
        home, listing, now_us = self.fabric.home, self.table.listing_in_view, self.fabric.clock()
        read = partial(read_targets, home, listing, job_ids, now_us)
        take = partial(self._take_targets, frozenset(job_ids), then)
        self.fabric.background.run(read, take, owner=self, newest="targets")

    def _take_targets(self, job_ids: frozenset[str], then: Act, found: Targets) -> None:
        """Act on jobs that were read; marks may be others by now, and these stay."""
        self.table.renew_marks(job_ids, found.jobs)
        if not self.is_current:
            self.fabric.show_message("nothing is asked: another screen is in view", "warning")
        elif found.jobs:
            then(found)
        else:
            self.fabric.show_message("the marked jobs were deleted meanwhile", "warning")

    def requested(self, kind: RequestKind, jobs: Sequence[JobRow]) -> None:
        """Remove the marks of jobs that are deleted."""
        if kind == "delete":
            self.table.renew_marks({job.id for job in jobs}, ())

    # Heading and time

    def refresh_head(self) -> None:
        """Say how many jobs there are, in which states."""
        self.head(("jobs",), self._counts)
        if not self.whole:
            return
        marked = len(self.table.marks)
        marks: tuple[Part, ...] = ((f"{marked:,} marked", "accent"),) if marked else ()
        status = self.query_one(Chips)
        status.order, status.facts = self.table.sort_sign, (*marks, (self._amount, "dim"))

    def too_small(self) -> LastLines:
        """Show the last lines of the job in view where there is no room for more."""
        return LastLines()

    def tick(self, now_us: int) -> None:
        """Let ages grow."""
        self.query_one(LastLines).follow(self.table.job)
        self.table.tick(now_us)
        self.query_one(BackendLines).tick(now_us)
        self.query_one(Preview).tick(now_us)
        self.refresh_head()

    # Filter and order

    def set_filter(self, typed: str, *, complains: bool = True) -> bool:
        """Filter by a text; one that cannot be read says so, and what is shown stays."""
        try:
            own = parse(typed)
            problems = parse(PROBLEMS if self.problems_only else "", values_from=len(own.values))
        except WhereError as error:
            if complains:
                hint = f" ({error.hint})" if error.hint else ""
                self.query_one("#filter", Prompt).complain(f"{error}{hint}", error.start, error.end)
            return False
        self.query_one("#filter", Prompt).complain("")
        self.filter_text = typed.strip()
        where = joined((problems, own))
        widened = len(where.terms) < len(self.listing.where.terms)
        self.listing = replace(self.listing, where=where)
        terms = own.terms + (("only problems",) if self.problems_only else ())
        self.query_one(Chips).terms = terms
        self.fabric.memory.put("filter", self.filter_text)
        self.fabric.memory.put("problems", self.problems_only)
        self._read_anew(keep=widened)
        return True

    def action_runs_filter(self) -> None:
        """Open the line in which a filter is typed."""
        history = self.fabric.memory.texts("filters")
        self.query_one("#filter", Prompt).ask("filter", self.filter_text, history, self._complete_filter)
        read = partial(read_filter_words, self.fabric.home, list(self.query_one(BackendLines).lines))
        self.fabric.background.run(read, self._take_words, owner=self, newest="filter words")

    def _take_words(self, words: Sequence[str]) -> None:
        self._filter_words = words

    def _complete_filter(self, typed: str) -> Sequence[str]:
        """Return what a filter may become; nothing where no term is begun."""
        from workbench.services.filters import complete_filter, filter_words

        if not typed[-1:].strip("(! "):
            return ()
        return complete_filter(typed, self._filter_words or filter_words((), {}))

    @on(Prompt.Changed)
    def _typing(self, typed: Prompt.Changed) -> None:
        # What is proposed behind an unended term says more than what is wrong with it so far.
        self.set_filter(typed.value, complains=not self._complete_filter(typed.value))

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
        known = [column.title for column in COLUMNS]
        shown = [column.title for column, _ in layout(self.table.size.width - 2, self.table.wanted_columns)]
        purpose = f"columns ({' '.join(known)}; empty: automatic)"
        self.fabric.ask_line(
            purpose if self.size.width > 140 else "columns", " ".join(shown), known, self._set_columns
        )

    def _set_columns(self, line: str) -> None:
        typed = dict.fromkeys(line.replace(",", " ").split())
        if unknown := [name for name in typed if column_named(name) is None]:
            known = ", ".join(sorted(column.title for column in COLUMNS))
            self.fabric.show_message(f"unknown column {unknown[0]!r}; columns are {known}", "warning")
            return
        found = [column.title for name in typed if (column := column_named(name)) is not None]
        titles = tuple(dict.fromkeys(found))
        self.table.wanted_columns = titles
        self.fabric.memory.put("columns", list(titles))
        self.table.refresh()

    def action_runs_sort(self) -> None:
        """Sort by the next column."""
        names = list(dict.fromkeys(["submitted", *(column.sort for column in COLUMNS)]))
        at = names.index(self.listing.sort) + 1 if self.listing.sort in names else 0
        sort = names[at % len(names)]
        self._sort(sort, descending=not _rises(sort))

    def sort_by(self, line: str) -> None:
        """Sort by a field, a param, a label or a metric: its name, and ``asc`` or ``desc``."""
        name, _, direction = line.partition(" ")
        asked = direction.strip()
        sort, descending = sort_order(name, descending=asked == "desc")
        if asked not in ("asc", "desc"):
            descending = not _rises(sort)
        if find_field(sort) is not None:
            self._sort(sort, descending)
            return

        def go(trouble: str) -> None:
            if trouble:
                self.fabric.show_message(trouble, "warning")
            else:
                self._sort(sort, descending)

        self.fabric.background.run(partial(why_not_sorted_by, self.fabric.home, sort), go, owner=self)

    def action_runs_reverse(self) -> None:
        """Turn the order round."""
        self._sort(self.listing.sort, not self.listing.descending)

    # Sweeps

    def action_runs_fold(self) -> None:
        """Open the sweep under the cursor, or close it."""
        job = self.table.job
        sweep = job.labels.get(SWEEP_LABEL, "") if job is not None else ""
        if not self.listing.folds:
            self.fabric.show_message("sweeps are not folded: F folds them")
        elif sweep in self.listing.opened or self.table.fold_of(job) is not None:
            self.listing = replace(self.listing, opened=self.listing.opened ^ {sweep})
            self._read_anew(keep=True)
        else:
            self.fabric.show_message("under the cursor is not a sweep of several jobs")

    def action_runs_fold_all(self) -> None:
        """Fold all sweeps, or none."""
        folds = not self.listing.folds
        self.listing = replace(self.listing, folds=folds, opened=frozenset())
        self.fabric.memory.put("folds", folds)
        self._read_anew(keep=True)

    @on(Chips.OrderClicked)
    def _order_clicked(self) -> None:
        self.action_runs_reverse()

    @on(JobTable.SortBy)
    def _sort_by(self, clicked: JobTable.SortBy) -> None:
        same = clicked.sort == self.listing.sort
        self._sort(clicked.sort, not self.listing.descending if same else not _rises(clicked.sort))

    # Jobs

    def can_do(self, action_id: str) -> bool:
        """Offer to compare two marked jobs or more, to narrow a list that has jobs, to go back from a filter."""
        is_narrowed = bool(self.filter_text or self.problems_only)
        fold = None if self.table.marks else self.table.fold_of(self.table.job)
        states = frozenset(state for state, _ in fold.states) if fold is not None else frozenset()
        match action_id:
            case "job.halt" | "job.kill" if states - TERMINAL:
                return True
            case "job.resume" if states & {State.HALTED, State.FAILED}:
                return True
            case "runs.compare":
                return len(self.table.marks) >= 2
            case "runs.filter" | "runs.problems" | "runs.sort":
                return is_narrowed or self.table.job is not None
            case "app.back":
                return is_narrowed or bool(self.table.marks)
            case _:
                return super().can_do(action_id)

    def targets(self) -> list[JobRow]:
        """Return the marked jobs, or the one under the cursor."""
        marked = list(self.table.marks.values())
        if marked:
            return marked
        return [self.table.job] if self.table.job else []

    def in_view(self) -> JobRow | None:
        """Return the job under the cursor."""
        return self.table.job

    @on(JobTable.Open)
    def action_runs_open(self) -> None:
        """Open the sweep under the cursor, or the job where the last one was left."""
        if self.table.fold_of(self.table.job) is not None:
            self.action_runs_fold()
            return
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
        """Compare the marked jobs side by side, or those of the sweep under the cursor."""
        self.with_targets(self._compare)

    def _compare(self, targets: Targets) -> None:
        marked = targets.jobs
        if len(marked) < 2:
            self.fabric.show_message("mark at least two jobs with space, then compare them", "warning")
            return
        if len(marked) > MOST_COMPARED:
            self.fabric.show_message(
                f"{len(marked):,} jobs are marked; at most {MOST_COMPARED} can be compared", "warning"
            )
            return
        from screens.jobs.compare_screen import CompareScreen

        self.app.push_screen(CompareScreen(list(marked)))
