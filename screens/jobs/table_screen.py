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
from screens.jobs.list_header import BackendLines, Chips
from screens.jobs.marks import Act, Targets
from screens.jobs.preview import LastLines, Preview
from screens.jobs.queries import (
    read_filter_words,
    why_not_sorted_by,
)
from screens.jobs.table import JobTable
from screens.style.status import look
from screens.widgets.prompt import Prompt
from workbench import formats
from workbench.errors import FabricError
from workbench.job import TERMINAL, State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow
from workbench.store.queries.filter_syntax import WhereError
from workbench.store.queries.job_fields import find_field, sort_order
from workbench.store.queries.job_list import JobList
from workbench.store.queries.where import joined, parse

if TYPE_CHECKING:
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
        self.filter_text = ""
        self.problems_only = False
        self._counts: tuple[Part, ...] = ()
        self._amount = ""
        """How many jobs are listed."""
        self._begun = False
        self._filter_words: Sequence[str] = ()
        """What a term of a filter may begin with, once that was read."""
        self._backends_asked = False
        self._used_at = 0.0
        """When the list came into view or its cursor moved (``time.monotonic``)."""
        self._in_view = True
        self._something_open = False

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

    @property
    def is_narrowed(self) -> bool:
        """Whether some jobs are not listed."""
        return bool(self.filter_text or self.problems_only)

    def begin(self) -> None:
        """Restore how it was left, and begin to read."""
        memory = self.fabric.memory
        sort, descending = sort_order(
            memory.text("sort", "submitted") or "submitted", descending=memory.flag("descending", True)
        )
        self.table.listing = JobList(sort=sort, descending=descending, folds=memory.flag("folds", True))
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
            self.table.read_on()
            self.query_one(Preview).read_again()

    def on_screen_suspend(self) -> None:
        """Read nothing while another screen is on top; a preview stays in sight under a window, and is read on."""
        self._in_view = False
        self.table.rest()
        if not isinstance(self.app.screen, ModalScreen):
            self.fabric.reader.forget(self.query_one(Preview))

    @on(JobTable.Listed)
    def _listed(self, listed: JobTable.Listed) -> None:
        """Say how many jobs there are, and of which backends."""
        window = listed.window
        if not self.whole:
            return
        if not self._backends_asked:
            self._backends_asked = True
            self.set_timer(_BACKENDS_AFTER_SECONDS, self._ask_backends)
        self._something_open = any(window.states.get(state) for state in State if state not in TERMINAL)
        used = frozenset(row.target.backend for row in window.rows if row.state not in TERMINAL)
        self.query_one(BackendLines).use(used)
        if window.jobs and self.is_narrowed:
            self.query_one(Preview).notice = "no job matches: there is none to show"
        elif not window.jobs:
            self.query_one(Preview).notice = ""
        self._counts = tuple(
            (f"{look(state).shape} {amount:,} {state.lower()}", state.lower())
            for state in _COUNTED
            if (amount := window.states.get(state, 0))
        )
        shown, all_ = window.matching, window.jobs
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

    @on(JobTable.Moved)
    def _moved(self, moved: JobTable.Moved) -> None:
        self._used_at = time.monotonic()
        self.query_one(Preview).show(moved.job)
        self.refresh_keys()

    # Marks

    @on(JobTable.MarksChanged)
    def _marks_changed(self) -> None:
        self.refresh_head()

    def with_targets(self, then: Act) -> None:
        """Act on the jobs that are marked now, as the store has them, once all ranges are marked."""
        self.table.with_targets(then)

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
        listing = self.table.listing
        terms = own.terms + (("only problems",) if self.problems_only else ())
        self.query_one(Chips).terms = terms
        self.fabric.memory.put("filter", self.filter_text)
        self.fabric.memory.put("problems", self.problems_only)
        self.table.narrowed_by = self.filter_text or ("problems" if self.problems_only else "")
        # What is entered was read as it was typed: read again, it would take the cursor back to the top.
        if where != listing.where or self.table.window is None:
            self.table.read(replace(listing, where=where), keep=len(where.terms) < len(listing.where.terms))
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
        if self.is_narrowed:
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
        self.fabric.memory.put("sort", sort)
        self.fabric.memory.put("descending", descending)
        self.table.read(replace(self.table.listing, sort=sort, descending=descending))

    def action_runs_columns(self) -> None:
        """Ask which columns are shown."""
        known = [column.name for column in COLUMNS]
        shown = [column.name for column, _ in layout(self.table.size.width - 2, self.table.wanted_columns)]
        purpose = f"columns ({' '.join(known)}; empty: automatic)"
        self.fabric.ask_line(
            purpose if self.size.width > 140 else "columns", " ".join(shown), known, self._set_columns
        )

    def _set_columns(self, line: str) -> None:
        typed = dict.fromkeys(line.replace(",", " ").split())
        if unknown := [name for name in typed if column_named(name) is None]:
            known = ", ".join(sorted(column.name for column in COLUMNS))
            self.fabric.show_message(f"unknown column {unknown[0]!r}; columns are {known}", "warning")
            return
        found = [column.name for name in typed if (column := column_named(name)) is not None]
        titles = tuple(dict.fromkeys(found))
        self.table.wanted_columns = titles
        self.fabric.memory.put("columns", list(titles))
        self.table.refresh()

    def action_runs_sort(self) -> None:
        """Sort by the next column."""
        names = list(dict.fromkeys(["submitted", *(column.sort for column in COLUMNS)]))
        at = names.index(self.table.listing.sort) + 1 if self.table.listing.sort in names else 0
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
        self._sort(self.table.listing.sort, not self.table.listing.descending)

    # Sweeps

    def action_runs_fold(self) -> None:
        """Open the sweep under the cursor, or close it."""
        job = self.table.job
        sweep = job.labels.get(SWEEP_LABEL, "") if job is not None else ""
        listing = self.table.listing
        if not listing.folds:
            self.fabric.show_message("sweeps are not folded: F folds them")
        elif sweep in listing.opened or self.table.fold_of(job) is not None:
            self.table.read(replace(listing, opened=listing.opened ^ {sweep}), keep=True)
        else:
            self.fabric.show_message("under the cursor is not a sweep of several jobs")

    def action_runs_fold_all(self) -> None:
        """Fold all sweeps, or none."""
        folds = not self.table.listing.folds
        self.fabric.memory.put("folds", folds)
        self.table.read(replace(self.table.listing, folds=folds, opened=frozenset()), keep=True)

    @on(Chips.OrderClicked)
    def _order_clicked(self) -> None:
        self.action_runs_reverse()

    @on(JobTable.SortBy)
    def _sort_by(self, clicked: JobTable.SortBy) -> None:
        same = clicked.sort == self.table.listing.sort
        self._sort(clicked.sort, not self.table.listing.descending if same else not _rises(clicked.sort))

    # Jobs

    def can_do(self, action_id: str) -> bool:
        """Offer to compare two marked jobs or more, to narrow a list that has jobs, to go back from a filter."""
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
                return self.is_narrowed or self.table.job is not None
            case "app.back":
                return self.is_narrowed or bool(self.table.marks)
            case _:
                return super().can_do(action_id)

    def targets(self) -> list[JobRow]:
        """Return the marked jobs, or the one under the cursor."""
        return self.table.targets

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
