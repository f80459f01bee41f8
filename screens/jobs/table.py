"""The table of jobs: reads a window of a listing, draws its rows, and knows which jobs are marked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.core import actions
from screens.core.app_protocol import JumpTarget, fabric_app
from screens.jobs.columns import Figures, RowFacts, RowPainter
from screens.jobs.in_view import InView, RowDetails, RowDetailsReader
from screens.jobs.marks import Act, PendingAct, RangeToMark, Targets, read_targets
from screens.jobs.preview import SETTLE_SECONDS
from screens.jobs.queries import TABLE_COUNTERS, JobRange, JobsPage, jobs_page, read_jobs, read_range
from screens.style.glyphs import glyphs
from screens.style.themes import overlay, paint_of
from screens.widgets.cached_style import CachedStyle
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.errors import FabricError
from workbench.job import State
from workbench.spec import SWEEP_LABEL
from workbench.store.db.rows import JobRow
from workbench.store.queries.job_list import JobList, Key, Window
from workbench.store.queries.sweeps import Fold

if TYPE_CHECKING:
    from textual.timer import Timer

_NO_FIGURES: Final = Figures()
NO_JOBS: Final = (
    ("No jobs yet", "text"),
    ("n opens a form for the first one; a command line does as well:", "text"),
    ("", "dim"),
    ("fabric run examples/digits/manifest.yml", "key"),
    ("fabric run -- python train.py", "key"),
    ("starts a job; it appears here", "dim"),
)
"""What is shown while there are none at all."""


NEAR: Final = 40
"""So many rows before the end of what is at hand, more are asked for."""


class JobTable(CachedStyle, ScrollView, can_focus=True):
    """Rows of a listing, of which only a window is read; the cursor belongs to a job, not to a line."""

    PANE: ClassVar = "runs"
    BINDINGS: ClassVar = actions.bindings("runs")

    class Moved(Message):
        """The cursor stands on another job, or what is known of its job has changed."""

        def __init__(self, job: JobRow | None) -> None:
            super().__init__()
            self.job = job

    class SortBy(Message):
        """A heading was clicked."""

        def __init__(self, sort: str) -> None:
            super().__init__()
            self.sort = sort

    class Open(Message):
        """A row was clicked twice."""

    class MarksChanged(Message):
        """Other jobs are marked than before."""

    class Listed(Message):
        """The list was read."""

        def __init__(self, window: Window) -> None:
            super().__init__()
            self.window = window

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window: Window | None = None
        self.listing = JobList()
        self.marks: dict[str, JobRow] = {}
        self.notice: Sequence[tuple[str, str]] = (("loading the list of jobs", "dim"),)
        """What is shown while there are no rows: lines with their roles."""
        self.narrowed_by = ""
        """Which jobs the list has, as it was typed; empty where it has all."""
        self.wanted_columns: tuple[str, ...] = ()
        """Titles, in order; where it is empty, the columns are chosen by the width."""
        self.painter = RowPainter()
        self._figures: Mapping[str, Figures] = {}
        self._details = RowDetails()
        self._now_us = 0
        self._rank = 0
        self._announced: JobRow | None = None
        self._asked: tuple[Key | None, int | None] | None = None
        self._anew = False
        self._anchor: JobRow | None = None
        """The job that was marked last: a range begins there, wherever it stands by then."""
        self._in_view = InView()
        self.marking = 0
        """Which set of marks there is: after all were removed, another."""
        self.ranges_pending: list[RangeToMark] = []
        """Ranges that are still to be marked: until then, the marks are not what was asked for."""
        self.listing_in_view = self.listing
        """The listing of the rows at hand: another one may be on its way."""
        self._last_read: tuple[Key | None, int | None] = (None, None)
        self._details_reader = RowDetailsReader()
        self._settling: Timer | None = None
        """Until it ends, rows come into view and go."""
        self._after_ranges: PendingAct | None = None
        """What was asked for while a range was still to be marked."""

    # Drawing

    def begin_drawing(self) -> None:
        """Choose the columns for the width."""
        super().begin_drawing()
        self.painter.begin(self.room, self.wanted_columns, self.listing.sort, self.base, paint_of(self))

    def render_line(self, y: int) -> Strip:
        """Draw the heading, a row, or what is shown while there are no rows."""
        if y == 0:
            return self.painter.heading(self.listing)
        rank = self.scroll_offset.y + y - 1
        total = self.window.total if self.window else 0
        if not total:
            return self._notice_line(y)
        if rank >= total:
            return self.painter.line()
        job = self._row(rank)
        if job is None:
            return self.painter.to_come()
        strip = self.painter.row(self._facts(job), self._now_us)
        return overlay(strip, paint_of(self).cursor(focused=self.has_focus)) if rank == self._rank else strip

    def _notice_line(self, y: int) -> Strip:
        index = y - max(1, (self.size.height - len(self.notice)) // 2)
        return (
            self.painter.notice(*self.notice[index]) if 0 <= index < len(self.notice) else self.painter.line()
        )

    def _facts(self, job: JobRow) -> RowFacts:
        """Return what the row of a job shows."""
        fold = self.fold_of(job)
        return RowFacts(
            job,
            fold,
            self._mark_sign(job, fold),
            self._figures.get(job.id, _NO_FIGURES),
            self._details.trends.get(job.id, ()),
            self._details.outcomes.get(fold.sweep) if fold is not None else None,
            job.labels.get(SWEEP_LABEL) in self.listing.opened,
        )

    def _mark_sign(self, job: JobRow, fold: Fold | None) -> str:
        """Return what stands before a row: a fold of which some jobs are marked has a sign of its own."""
        if fold is None:
            return glyphs().mark if job.id in self.marks else " "
        marked = sum(job_id in self.marks for job_id in fold.job_ids) if self.marks else 0
        if not marked:
            return " "
        return glyphs().mark if marked == len(fold.job_ids) else glyphs().mark_some

    # Reading

    def read(self, listing: JobList, *, keep: bool = False) -> None:
        """Read another listing from its top, or around the job under the cursor; what is shown stays until then."""
        job = self.job if keep else None
        self.listing, self._anew, self._asked = listing, job is None, None
        self._watch(around=job.id if job is not None else "")

    def read_on(self) -> None:
        """Read on after a rest."""
        self._watch(*self._last_read)
        self._in_view = InView()
        self._look()

    def rest(self) -> None:
        """Read nothing while it is out of sight."""
        fabric_app(self).reader.forget(self)

    def _watch(self, anchor: Key | None = None, offset: int | None = None, around: str = "") -> None:
        self._last_read = anchor, offset
        app = fabric_app(self)
        query = jobs_page(self.listing, anchor, offset, app.clock, around)
        app.reader.watch(self, "runs", query, counters=TABLE_COUNTERS, every_seconds=0.2)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show what was read."""
        found = answer.value
        if isinstance(found, RowDetails):
            self._details = found
            self.refresh()
        elif isinstance(found, JobsPage) and found.listing == self.listing:
            self.post_message(self.Listed(found.window))
            self._set_notice(found.window.jobs)
            self._show(found.window, found.figures, fabric_app(self).clock())

    def _set_notice(self, jobs: int) -> None:
        if jobs and self.narrowed_by:
            what = formats.printable(self.narrowed_by)
            self.notice = ((f"no job matches  {what}", "text"), ("esc shows all", "dim"))
        elif not jobs:
            self.notice = NO_JOBS

    def _read_details(self) -> None:
        reader = fabric_app(self).reader
        if self._in_view == InView() or not self.screen.is_current:
            reader.forget(self, "details")
        else:
            query = self._details_reader.query(self._in_view)
            reader.watch(self, "details", query, counters=("series",), every_seconds=1.0)

    # What is at hand

    def _row(self, rank: int) -> JobRow | None:
        index = rank - self.window.start if self.window else -1
        return self.window.rows[index] if self.window and 0 <= index < len(self.window.rows) else None

    def fold_of(self, job: JobRow | None) -> Fold | None:
        """Return what the row of a job stands for, where that is several jobs."""
        return self.window.folds.get(job.id) if self.window is not None and job is not None else None

    @property
    def job(self) -> JobRow | None:
        """The job under the cursor."""
        return self._row(self._rank)

    def _show(self, window: Window, figures: Mapping[str, Figures], now_us: int) -> None:
        """Take new rows; the cursor stays on its job wherever that stands now."""
        held = self._announced.id if self._announced and not self._anew else None
        index = None if held is None else _index_of(window, held)
        if self._anew or (index is None and self.listing_in_view != self.listing):
            self._anew, self._rank = False, 0
            self.scroll_to(y=0, animate=False, force=True)
        self.window, self._figures, self._now_us, self._asked = window, figures, now_us, None
        self.listing_in_view = self.listing
        before = self._rank
        self._rank = window.start + index if index is not None else min(before, max(0, window.total - 1))
        for row in window.rows:
            if row.id in self.marks:
                self.marks[row.id] = row
        self.virtual_size = Size(self.room, window.total + 1)
        if self._rank != before:
            self.scroll_to(y=max(0, self.scroll_offset.y + self._rank - before), animate=False, force=True)
        self._tell()
        self._look()
        self.refresh()

    def _look(self) -> None:
        """Read what is shown of the rows in view alone as soon as the list rests, where these are others."""
        top = self.scroll_offset.y
        rows = [
            row for rank in range(top, top + self.size.height - 1) if (row := self._row(rank)) is not None
        ]
        folds = [fold for row in rows if (fold := self.fold_of(row)) is not None]
        running = [row.id for row in rows if row.state is State.PROCESSING and self.fold_of(row) is None]
        in_view = InView(tuple(running), tuple((fold.sweep, fold.job_ids) for fold in folds))
        if in_view != self._in_view:
            self._in_view = in_view
            if self._settling is not None:
                self._settling.stop()
            self._settling = self.set_timer(SETTLE_SECONDS, self._read_details)

    def tick(self, now_us: int) -> None:
        """Draw the rows again in which the time has changed a text: an age in days rarely does."""
        self._now_us = now_us
        top = self.scroll_offset.y
        for rank in range(top, top + self.size.height - 1):
            if (job := self._row(rank)) is None:
                continue
            before = self.painter.last(job.id)
            if before is None or self.painter.row(self._facts(job), now_us) is not before:
                self._refresh_row(rank)

    def _refresh_row(self, rank: int) -> None:
        y = rank - self.scroll_offset.y + 1
        if 1 <= y < self.size.height:
            self.refresh(Region(0, y, self.outer_size.width, 1))

    @property
    def sort_sign(self) -> str:
        """What the list is sorted by and in which direction."""
        if not self.painter.columns:
            return ""
        return f"by {self.listing.sort} {glyphs().down if self.listing.descending else glyphs().up}"

    # Moving

    def move(self, rank: int) -> None:
        """Put the cursor on the row of that rank, or the nearest there is."""
        if self.window is None or not self.window.total:
            return
        self._anew = (
            False  # who moves means the rows that are shown: a list that is on its way keeps the cursor there
        )
        before, self._rank = self._rank, max(0, min(rank, self.window.total - 1))
        page = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if self._rank < top or self._rank >= top + page:
            top = self._rank if self._rank < top else self._rank - page + 1
            self.scroll_to(y=top, animate=False, force=True)
            self.refresh()
        self._want(self._rank)
        self._tell()
        if self.listing_in_view != self.listing and self._announced is not None:
            # Who moves means the rows that are shown: the list that is on its way comes with the cursor on this job.
            self._anew = False
            self._watch(around=self._announced.id)
        self._refresh_row(before)
        self._refresh_row(self._rank)

    def _want(self, rank: int) -> None:
        """Ask for the rows around a rank when those at hand end near it."""
        window = self.window
        if window is None or self.listing_in_view != self.listing:
            return  # nothing is at hand, or another list is on its way
        end = window.start + len(window.rows)
        short_above = rank < window.start + NEAR and window.start > 0
        short_below = rank >= end - NEAR and end < window.total
        if not short_above and not short_below:
            return
        index = rank - window.start
        inside = 0 <= index < len(window.keys)
        asked = (window.keys[index], None) if inside else (None, max(0, rank - len(window.rows) // 2))
        if self._asked is None:
            self._asked = asked
            self._watch(*asked)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """See to it that what is scrolled to is at hand."""
        super().watch_scroll_y(old_value, new_value)
        self._look()
        self._want(round(new_value))
        self._want(round(new_value) + self.size.height)

    def _tell(self) -> None:
        job = self.job
        if job is None and self.window is not None and self.window.total:
            return  # its row is on the way
        if job != self._announced:
            self._announced = job
            self.post_message(self.Moved(job))

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name the rows in view."""
        top, total = self.scroll_offset.y, self.window.total if self.window else 0
        for rank in range(top, min(total, top + self.size.height - 1)):
            yield JumpTarget(self.region.x + 1, self.region.y + 1 + rank - top, partial(self._go_to, rank))

    def _go_to(self, rank: int) -> None:
        self.focus()
        self.move(rank)

    def action_move_down(self) -> None:
        """One row down."""
        self.move(self._rank + 1)

    def action_move_up(self) -> None:
        """One row up."""
        self.move(self._rank - 1)

    def action_move_page_down(self) -> None:
        """One page down."""
        self.move(self._rank + max(1, self.size.height - 2))

    def action_move_page_up(self) -> None:
        """One page up."""
        self.move(self._rank - max(1, self.size.height - 2))

    def action_move_top(self) -> None:
        """To the first row."""
        self.move(0)

    def action_move_bottom(self) -> None:
        """To the last row."""
        self.move(self.window.total - 1 if self.window else 0)

    # Marks

    def action_runs_mark(self) -> None:
        """Mark the job under the cursor, or remove its mark, and move to the next."""
        if (job := self.job) is None:
            return
        if (fold := self.fold_of(job)) is not None:
            self._mark_fold(job, fold)
        elif self.marks.pop(job.id, None) is None:
            self.marks[job.id] = self._anchor = job
        elif self._anchor is not None and self._anchor.id == job.id:
            self._anchor = None
        self.move(self._rank + 1)
        self.post_message(self.MarksChanged())

    def _mark_fold(self, job: JobRow, fold: Fold) -> None:
        """Mark all jobs of a fold, or remove their marks."""
        if self.marks.keys() >= set(fold.job_ids):
            self.keep_marks([marked for marked in self.marks.values() if marked.id not in fold.job_ids])
        else:
            self._anchor = job
            self._want_range(job, job, fold.job_ids)

    def action_runs_mark_range(self) -> None:
        """Mark all jobs from the one that was marked last to the cursor; without such a job, the one under it."""
        if (job := self.job) is None:
            if self.window is not None and self._rank < self.window.total:
                self._want_range(self._anchor, None)  # the row is on its way
            return
        anchor, self._anchor = self._anchor, job
        if anchor is not None and anchor.id != job.id:
            self._want_range(anchor, job)
        elif (fold := self.fold_of(job)) is not None:
            self._want_range(job, job, fold.job_ids)
        else:
            self._mark([job])

    def _want_range(self, anchor: JobRow | None, job: JobRow | None, job_ids: tuple[str, ...] = ()) -> None:
        wanted = RangeToMark(self.listing_in_view, anchor, job, self._rank, job_ids, self.marking)
        self.ranges_pending.append(wanted)
        app = fabric_app(self)
        home, now_us = app.home, app.clock()

        def read() -> JobRange | FabricError:
            try:
                if wanted.job_ids:
                    return JobRange(tuple(read_jobs(home, wanted.job_ids)))
                return read_range(home, wanted, now_us)
            except FabricError as error:
                return error
            except Exception as error:  # whatever it is, what waits for the range must not wait forever
                return FabricError(f"the jobs of the range cannot be read: {type(error).__name__}: {error}")

        app.background.run(read, partial(self._take_range, wanted), owner=self)

    def _take_range(self, wanted: RangeToMark, found: JobRange | FabricError) -> None:
        app = fabric_app(self)
        jobs, last = ((), None) if isinstance(found, FabricError) else (found.jobs, found.last)
        self._mark_range(wanted, jobs, last)
        pending, self._after_ranges = self._after_ranges, None
        if isinstance(found, FabricError):
            app.show_problem(found, "marking the range")
        elif found.missing is not None:
            name = formats.printable(found.missing.name)
            app.show_message(f"{name} is no longer in this list: no range was marked", "warning")
        elif pending is not None and pending.marking == self.marking:
            pending.take(wanted, jobs)
            if pending.ranges:
                self._after_ranges = pending
            else:
                self._read_targets(list(pending.job_ids), pending.act)

    def _mark_range(self, wanted: RangeToMark, jobs: Iterable[JobRow], last: JobRow | None = None) -> None:
        """Mark the jobs of a range; none where it has no end any more, or where all marks were removed meanwhile.

        ``last`` is where it ends, where that had to be read.
        """
        self.ranges_pending.remove(wanted)
        if wanted.marking != self.marking:
            return
        if not (found := list(jobs)):
            self._anchor = None
        elif last is not None:
            self._anchor = last
        self._mark(found)

    def _mark(self, jobs: Iterable[JobRow]) -> None:
        self.marks |= {job.id: job for job in jobs}
        self.post_message(self.MarksChanged())
        self.refresh()

    def keep_marks(self, jobs: Iterable[JobRow]) -> None:
        """Keep the marks of these jobs alone, and what is known of them now."""
        self.marks = {job.id: job for job in jobs}
        if self._anchor is not None and self._anchor.id not in self.marks:
            self._anchor = None
        self._mark(())

    def renew_marks(self, job_ids: Collection[str], jobs: Iterable[JobRow]) -> None:
        """Take what is known of some marked jobs now; those that are gone lose their marks, no job gets one."""
        known: dict[str, JobRow] = {job.id: job for job in jobs}
        kept = {job_id: known.get(job_id, job) for job_id, job in self.marks.items()}
        self.keep_marks(job for job_id, job in kept.items() if job_id in known or job_id not in job_ids)

    @property
    def targets(self) -> list[JobRow]:
        """The marked jobs, or the one under the cursor."""
        if self.marks:
            return list(self.marks.values())
        return [self.job] if self.job else []

    def with_targets(self, then: Act) -> None:
        """Act on the jobs that are marked now, as the store has them, once all ranges are marked."""
        fold = self.fold_of(self.job)
        if self.ranges_pending:
            ranges = list(self.ranges_pending)
            self._after_ranges = PendingAct(then, set(self.marks), ranges, self.marking)
        elif fold is not None and not self.marks:
            self._read_targets(fold.job_ids, then)
        elif self.marks_are_current:
            then(Targets(tuple(self.targets)))
        else:
            self._read_targets(list(self.marks), then)

    def _read_targets(self, job_ids: Sequence[str], then: Act) -> None:
        app = fabric_app(self)
        read = partial(read_targets, app.home, self.listing_in_view, job_ids, app.clock())
        take = partial(self._take_targets, frozenset(job_ids), then)
        app.background.run(read, take, owner=self, newest="targets")

    def _take_targets(self, job_ids: frozenset[str], then: Act, found: Targets) -> None:
        """Act on jobs that were read; marks may be others by now, and these stay."""
        self.renew_marks(job_ids, found.jobs)
        if not self.screen.is_current:
            fabric_app(self).show_message("nothing is asked: another screen is in view", "warning")
        elif found.jobs:
            then(found)
        else:
            fabric_app(self).show_message("the marked jobs were deleted meanwhile", "warning")

    @property
    def marks_are_current(self) -> bool:
        """Whether every marked job is at hand as it was marked, so that none has to be read."""
        rows = self.window.rows if self.window else ()
        at_hand: dict[str, JobRow] = {row.id: row for row in rows}
        return all(at_hand.get(job_id) == job for job_id, job in self.marks.items())

    def action_runs_unmark(self) -> None:
        """Remove all marks, those too that are still on their way."""
        self.marking += 1
        self.keep_marks(())

    # Events

    def on_resize(self, event: events.Resize) -> None:
        """Fit the scroll bar."""
        del event
        if self.window:
            self.virtual_size = Size(self.room, self.window.total + 1)
        self._look()

    def on_click(self, event: events.Click) -> None:
        """Sort by a heading, or put the cursor on a row; twice opens it."""
        if event.y == 0:
            if sort := self.painter.sort_at(event.x):
                self.post_message(self.SortBy(sort))
            return
        self.move(self.scroll_offset.y + event.y - 1)
        if event.chain == 2 or (self.fold_of(self.job) is not None and self.painter.is_fold_sign(event.x)):
            self.post_message(self.Open())


def _index_of(window: Window, job_id: str) -> int | None:
    """Return where a job stands among some rows: in its own one, or in that of its fold."""
    for index, row in enumerate(window.rows):
        if row.id == job_id:
            return index
    folded = (i for i, row in enumerate(window.rows) if row.id in window.folds)
    return next((i for i in folded if job_id in window.folds[window.rows[i].id].job_ids), None)
