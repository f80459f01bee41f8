"""The page of a search: how it stands, its trials, their curves, and which hyper-parameters make them good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from rich.segment import Segment
from textual import on
from textual.containers import Container
from textual.content import Content
from textual.events import Resize
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from screens.charts.data import ChartData
from screens.charts.plot import ChartView
from screens.charts.tile import Plots, style_of, tile
from screens.core import actions
from screens.core.app_protocol import JumpTarget, Part
from screens.jobs.actions import JobActions
from screens.jobs.compare_pages import ParameterValues
from screens.jobs.compare_screen import ParameterPlot
from screens.jobs.queries import read_jobs
from screens.jobs.search_pages import (
    NO_TRIALS,
    NO_VALUES,
    SORTS,
    ParallelPage,
    TrialTable,
    amount,
    curves_chart,
    facts,
    importance_lines,
    importance_width,
    in_order,
    parallel_page,
    ranked,
    role_of,
    scatter_values,
    trial_facts,
    trial_table,
)
from screens.style import text
from screens.style.glyphs import glyphs
from screens.style.notices import EmptyNotice
from screens.style.themes import overlay, paint_of
from screens.widgets.cached_style import MadeLines
from screens.widgets.cursor_list import CursorList
from screens.widgets.markup import plain
from screens.widgets.tabs import TabBar, TabKeys
from screens.workers.reader import QueryAnswer
from workbench import formats
from workbench.paths import Home
from workbench.services.inspect.search_importance import ImportanceRanking
from workbench.services.inspect.search_standing import SearchReader, SearchStanding, StandingTrial
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.experiments import ID_PREFIX, resolve_experiment
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.store.queries.experiments import ExperimentRow

TABS: Final = ("trials", "curves", "parameters", "parallel")
WIDE: Final = 160
"""From so many columns on trials, curves and one of the others stand side by side."""
HIGH: Final = 36
"""From so many lines on the curves stand below the trials."""
LIST_BESIDE: Final = 60
"""From so many columns on the list of what matters stands beside the plot."""
READ_SECONDS: Final = 0.5
"""How often what has changed is read."""


class TrialList(CursorList):
    """A line for each trial; the cursor stays on its trial."""

    PANE: ClassVar = "search"
    BINDINGS: ClassVar = actions.bindings("search")
    HEAD_LINES: ClassVar = 1

    class Moved(Message):
        """The cursor is on another trial."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.notice = EmptyNotice("reading the search")
        self._table = TrialTable((), ())

    @property
    def count(self) -> int:
        """How many trials there are."""
        return len(self._table.trials)

    @property
    def chosen(self) -> StandingTrial | None:
        """The trial under the cursor."""
        return self._table.trials[self._at] if self._at < self.count else None

    def show(self, table: TrialTable) -> None:
        """Take the trials over; the cursor stays on its trial."""
        before = self.chosen
        self.notice, self._table = NO_TRIALS, table
        self.offer_keys(has_content=bool(table.trials))
        self.virtual_size = Size(self.room, self.count + self.HEAD_LINES)
        numbers = [one.row.number for one in table.trials]
        is_there = before is not None and before.row.number in numbers
        # At the top it stays with the first one, whichever that is.
        at = numbers.index(before.row.number) if before is not None and is_there and self._at else self._at
        super()._move(at)

    def _move(self, at: int) -> None:
        super()._move(at)
        self.post_message(self.Moved())

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name those in view."""
        top = self.scroll_offset.y
        for at in range(top, min(self.count, top + self.size.height - self.HEAD_LINES)):
            y = self.region.y + self.HEAD_LINES + at - top
            yield JumpTarget(self.region.x + 1, y, partial(self._move, at))

    def render_line(self, y: int) -> Strip:
        """Draw the titles, a trial, or why there are none."""
        width = self.room
        if not self.count:
            return self.notice_strip(self.notice, y, (width, self.size.height))
        if y == 0:
            return self.text_strip([(" ", "dim", ""), *self._cells(None, width - 1)], width)
        at = self.scroll_offset.y + y - self.HEAD_LINES
        if at >= self.count:
            return Strip.blank(width, self.base)
        strip = self.text_strip([(" ", "text", ""), *self._cells(at, width - 1)], width)
        return overlay(strip, paint_of(self).cursor(focused=self.has_focus)) if at == self._at else strip

    def _cells(self, at: int | None, room: int) -> list[text.Part]:
        """Return the cells of a trial, or the titles: as many columns as fit, and a sign where there are more."""
        parts: list[text.Part] = []
        for column in self._table.columns:
            room -= column.width + 2
            if room < -2:
                parts.append((glyphs().more, "dim", ""))
                break
            shown = column.title if at is None else column.texts[at]
            role = "dim" if at is None else "text"
            if at is not None and column.is_state:
                role = role_of(shown.upper())
            elif at is not None and glyphs().best in shown:
                role = "completed"
            parts.append((column.cell(shown) + "  ", role, ""))
        return parts


class TrialPlot(MadeLines, can_focus=True):
    """A plot of all trials; the keys that move go through the trials."""

    PANE: ClassVar = "search"
    BINDINGS: ClassVar = actions.bindings("search")

    class MoveRequested(Message):
        """Another trial is to be lit: what the list of trials does for the same key."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def on_focus(self) -> None:
        """Mark its title."""
        self.redraw()

    def on_blur(self) -> None:
        """Take the mark away."""
        self.redraw()

    def action_move_down(self) -> None:
        """The next trial."""
        self.post_message(self.MoveRequested("down"))

    def action_move_up(self) -> None:
        """The trial before."""
        self.post_message(self.MoveRequested("up"))

    def action_move_page_down(self) -> None:
        """A page of trials on."""
        self.post_message(self.MoveRequested("page_down"))

    def action_move_page_up(self) -> None:
        """A page of trials back."""
        self.post_message(self.MoveRequested("page_up"))

    def action_move_top(self) -> None:
        """The first trial."""
        self.post_message(self.MoveRequested("top"))

    def action_move_bottom(self) -> None:
        """The last trial."""
        self.post_message(self.MoveRequested("bottom"))


class CurvePlot(TrialPlot):
    """The learning curves of all trials."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._data: ChartData | None = None
        self._view = ChartView()
        self._plots = Plots()

    def show(self, data: ChartData, view: ChartView) -> None:
        """Draw these curves."""
        if (data, view) != (self._data, self._view):
            self._data, self._view = data, view
            self.redraw()

    def make_lines(self) -> list[Strip]:
        """Make the title, the legend and the plot, or say why there is none."""
        width, height = self.size
        if self._data is None or not self._data.curves:
            return [self.notice_strip(NO_VALUES, y, (width, height)) for y in range(height)]
        size, focused = (width, height), self.has_focus
        return tile(
            self._data, self._view, size, paint_of(self), self.base, focused=focused, plots=self._plots
        )


class ParallelPlot(TrialPlot, inherit_bindings=False):
    """All trials across an axis for each hyper-parameter."""

    PANE: ClassVar = "search"
    BINDINGS: ClassVar = actions.bindings("search")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._page = ParallelPage("", "", None, EmptyNotice("reading the search"))
        self._first = 0
        """The first axis that is in view."""

    def show(self, page: ParallelPage) -> None:
        """Draw this."""
        if page != self._page:
            self._page = page
            self.offer_keys(has_content=page.plot is not None)
            self.redraw()

    @property
    def hidden(self) -> int:
        """How many axes have no room."""
        plot = self._page.plot
        return 0 if plot is None else len(plot.axes) - 1 - plot.shown(self.size.width)

    def scroll_axes(self, by: int) -> None:
        """Bring another axis into view."""
        first = max(0, min(self._at_first + by, self.hidden))
        if first != self._first:
            self._first = first
            self.redraw()

    @property
    def _at_first(self) -> int:
        return min(self._first, self.hidden)  # there may be more room now

    def make_lines(self) -> list[Strip]:
        """Make the title and the plot, or say why there is none."""
        width, height = self.size
        page, paint, first = self._page, paint_of(self), self._at_first
        if page.plot is None:
            return [self.notice_strip(page.notice, y, (width, height)) for y in range(height)]
        facts = page.facts
        if self.hidden:
            last = first + page.plot.shown(width)
            facts = f"axes {first + 1}-{last} of {len(page.plot.axes) - 1} {glyphs().dot} {facts}"
        mark = (glyphs().mark, "key", "") if self.has_focus else (" ", "text", "")
        strips = [self.text_strip([mark, (page.title, "text", "bold"), (f"  {facts}", "dim", "")], width)]
        for row in page.plot.draw(width, max(1, height - 1), first, marked=not paint.coloured):
            segments = [Segment(shown, self.base + style_of(colour, paint)) for shown, colour in row]
            strips.append(Strip(segments).adjust_cell_length(width, self.base))
        return strips


class TrialScatter(ParameterPlot, inherit_bindings=False):
    """The best value of each trial over a hyper-parameter, and beside it which of these matter.

    The keys that move go through the hyper-parameters.
    """

    PANE: ClassVar = "search"
    BINDINGS: ClassVar = actions.bindings("search")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ranking = ImportanceRanking(0, ())
        self._parameter = ""

    def rank(self, ranking: ImportanceRanking, parameter: str) -> None:
        """Show what matters; the parameter is the one that is drawn."""
        if (ranking, parameter) != (self._ranking, self._parameter):
            self._ranking, self._parameter = ranking, parameter
            self.redraw()

    def make_lines(self) -> list[Strip]:
        """Make the list and the plot, or say why there is none."""
        width, height = self.size
        listed = importance_width(self._ranking)
        if not self.has_points or width < LIST_BESIDE:
            return self.plot_lines(width, height)
        lines = importance_lines(self._ranking, self._parameter, listed)[:height]
        beside = [self.text_strip(parts, listed) for parts in lines]
        beside += [Strip.blank(listed, self.base)] * (height - len(beside))
        plot = self.plot_lines(width - listed, height)
        return [Strip.join(pair) for pair in zip(beside, plot, strict=False)]


class SearchScreen(JobActions, TabKeys):
    """One search."""

    BINDINGS: ClassVar = actions.early_bindings("search")

    def __init__(self, experiment_id: str) -> None:
        super().__init__()
        self.experiment_id = experiment_id
        self.tab = TABS[0]
        self._standing: SearchStanding | None = None
        self._sort = SORTS[0]
        self._is_reversed = False
        self._parameter = ""
        self._logarithmic = False
        self._ranked: tuple[SearchStanding, ImportanceRanking] | None = None
        """What matters, and how the search stood then: it is worked out once."""

    def body(self) -> Iterator[Widget]:
        """Make what is known of the search, its tabs, and what is known of the trial under the cursor."""
        yield Static(id="search-facts", markup=False)
        yield TabBar(TABS)
        with Container(id="search-body"):
            yield TrialList(id="trials")
            with Container(id="search-plots"):
                yield CurvePlot(id="curves")
                yield TrialScatter(id="parameters")
                yield ParallelPlot(id="parallel")
        yield Static(id="search-trial", classes="-empty", markup=False)

    @property
    def trials(self) -> TrialList:
        """The list of trials."""
        return self.query_one(TrialList)

    def on_mount(self) -> None:
        """Begin to read."""
        reader = SearchReader(self.experiment_id)
        self.fabric.reader.watch(self, "search", reader, counters=None, every_seconds=READ_SECONDS)
        self.show(self.tab)
        self.refresh_head()

    def on_unmount(self) -> None:
        """Read no more."""
        self.fabric.reader.forget(self)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Show how the search stands."""
        if not self.whole:
            return
        if answer.value is None:
            self.trials.notice = EmptyNotice("there is no such search", "esc goes back")
            self.trials.refresh()
            return
        self._standing = answer.value
        self._write_trials()
        self._write_plots()
        self.refresh_head()

    def on_resize(self, event: Resize) -> None:
        """Show as much as there is room for."""
        super().on_resize(event)
        self._lay_out(event.size)

    # What is in view

    def show(self, tab: str) -> None:
        """Open a tab; a trial's own are on its job's screen."""
        if tab not in TABS:
            return
        self.tab = tab
        self.query_one(TabBar).active = tab
        self._lay_out(self.app.size)
        self.query_one(f"#{tab}").focus()
        self.refresh_keys()

    def _lay_out(self, size: Size) -> None:
        if not self.whole:
            return
        is_wide, is_high = size.width >= WIDE, size.height >= HIGH
        in_view = {self.tab}
        if is_wide:
            in_view = {"trials", "curves", "parallel" if self.tab == "parallel" else "parameters"}
        elif is_high and self.tab in ("trials", "curves"):
            in_view = {"trials", "curves"}
        for name in TABS:
            self.query_one(f"#{name}").display = name in in_view
        self.query_one("#search-plots").display = in_view != {"trials"}
        self._write_plots()

    def _write_trials(self) -> None:
        if self._standing is None:
            return
        self.query_one("#search-facts", Static).update(_lines(facts(self._standing)))
        self.trials.show(trial_table(self._standing, self._sort, is_reversed=self._is_reversed))
        self._write_chosen()

    def _write_plots(self) -> None:
        if self._standing is None:
            return
        chosen = self.trials.chosen
        number = None if chosen is None else chosen.row.number
        curves, scatter = self.query_one(CurvePlot), self.query_one(TrialScatter)
        parallel = self.query_one(ParallelPlot)
        if curves.display:
            curves.show(curves_chart(self._standing, number), ChartView(logarithmic=self._logarithmic))
        if scatter.display:
            scatter.show(self._scatter(self._standing, number))
            scatter.rank(self._ranking(self._standing), self._parameter)
        if parallel.display:
            parallel.show(parallel_page(self._standing, number, logarithmic=self._logarithmic))

    def _scatter(self, standing: SearchStanding, number: int | None) -> ParameterValues:
        if self._parameter not in standing.params:  # it stays when another one comes to matter more
            self._parameter = next(iter(in_order(standing, self._ranking(standing))), "")
        return scatter_values(standing, number, self._parameter, logarithmic=self._logarithmic)

    def _ranking(self, standing: SearchStanding) -> ImportanceRanking:
        if self._ranked is None or self._ranked[0] is not standing:
            self._ranked = standing, ranked(standing)
        return self._ranked[1]

    def _write_chosen(self) -> None:
        shown, chosen = self.query_one("#search-trial", Static), self.trials.chosen
        shown.set_class(chosen is None, "-empty")
        if chosen is not None and self._standing is not None:
            shown.update(_lines([trial_facts(self._standing, chosen)]))
        self.refresh_keys()

    @on(TrialList.Moved)
    def _moved(self) -> None:
        if self.whole:
            self._write_chosen()
            self._write_plots()

    @on(TrialPlot.MoveRequested)
    def _move_requested(self, asked: TrialPlot.MoveRequested) -> None:
        getattr(self.trials, f"action_move_{asked.action}")()

    def refresh_head(self) -> None:
        """Say which search this is, and how much of it is done."""
        nine = self.experiment_id.removeprefix(ID_PREFIX)
        if self._standing is None:
            self.head(("search", nine), ())
            return
        name = f"{formats.printable(self._standing.row.name)}  {nine}"
        self.head(("search", name), ((amount(self._standing, self.fabric.clock()), "dim"),))

    def tick(self, now_us: int) -> None:
        """Let the time until the end pass."""
        self.refresh_head()

    # How it is shown

    def action_search_sort(self) -> None:
        """Sort by the next column."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self._write_trials()

    def action_search_reverse(self) -> None:
        """Turn the order round."""
        self._is_reversed = not self._is_reversed
        self._write_trials()

    def action_search_parameter(self) -> None:
        """Draw over the next hyper-parameter."""
        self._choose_parameter(1)

    @on(ParameterPlot.MetricRequested)
    def _parameter_requested(self, asked: ParameterPlot.MetricRequested) -> None:
        self._choose_parameter(asked.by)

    def _choose_parameter(self, by: int) -> None:
        standing = self._standing
        names = () if standing is None else in_order(standing, self._ranking(standing))
        if names:
            at = names.index(self._parameter) if self._parameter in names and by else 0
            self._parameter = names[(at + by) % len(names)]
            self._write_plots()

    def action_search_log(self) -> None:
        """Logarithmic or linear."""
        self._logarithmic = not self._logarithmic
        self._write_plots()

    def action_search_left(self) -> None:
        """Bring the axis before those in view into view."""
        self.query_one(ParallelPlot).scroll_axes(-1)

    def action_search_right(self) -> None:
        """Bring the next axis into view."""
        self.query_one(ParallelPlot).scroll_axes(1)

    # What is done

    def can_do(self, action_id: str) -> bool:
        """Offer what makes sense for the state of the search."""
        standing = self._standing
        state = standing.row.state if standing is not None else ""
        match action_id:
            case "search.open" | "search.sort":
                return self.trials.chosen is not None
            case "search.parameter":
                return standing is not None and len(standing.params) > 1
            case "search.log":
                return standing is not None and bool(standing.curves)
            case "search.left" | "search.right":
                parallel = self.query_one(ParallelPlot)
                return parallel.display and parallel.hidden > 0
            case "search.continue":
                return standing is not None and standing.can_go_on
            case "search.fork":
                return standing is not None
            case "search.archive":
                return self._is_over
            case "search.pause":
                return state == "RUNNING"
            case "search.resume":
                return state == "PAUSED"
            case "search.kill":
                return standing is not None and standing.row.is_open and state != "STOPPING"
            case _:
                return super().can_do(action_id)

    def targets(self) -> list[JobRow]:
        """Return no job: what is done here concerns the search."""
        return []

    @on(TrialList.Chosen)
    def action_search_open(self) -> None:
        """Open the trial under the cursor."""
        chosen = self.trials.chosen
        if chosen is not None:
            read = partial(read_jobs, self.fabric.home, [chosen.row.job_id])
            self.fabric.background.run(read, self._open_trial, owner=self, newest="trial")

    def _open_trial(self, found: list[JobRow]) -> None:
        if found:
            self.fabric.open_job(found[0], self.fabric.memory.text("tab", "overview"))
        else:
            self.fabric.show_message("the trial has no job: it has not begun, or was deleted", "warning")

    def action_search_pause(self) -> None:
        """Ask whether to halt the trials, and do it."""
        from workbench.services.submit.experiments import pause_experiment

        self._ask(
            "pause", pause_experiment, "Its trials save and stop, and no others begin; it can be resumed."
        )

    def action_search_resume(self) -> None:
        """Continue a search that is paused."""
        from workbench.services.submit.experiments import resume_experiment

        if self._standing is not None and not self.refused():
            self.fabric.write("resume", partial(_steer, self._standing.row, "goes on", resume_experiment))

    def action_search_kill(self) -> None:
        """Ask whether to end the search, and do it."""
        from workbench.services.submit.experiments import kill_experiment

        self._ask("kill", kill_experiment, "It and all its trials end at once; what they have stored stays.")

    @property
    def _is_over(self) -> bool:
        return self._standing is not None and not self._standing.row.is_open

    def _says_it_is_over(self, standing: SearchStanding) -> bool:
        """Return whether a search is over; where it is not, say so."""
        if standing.row.is_open:
            self.fabric.show_message(f"the search is {standing.row.state}, and not over", "warning")
        return not standing.row.is_open

    def action_search_archive(self) -> None:
        """Take a search that is over out of the list of experiments, or put it back."""
        from workbench.services.submit.experiments import archive_experiment

        standing = self._standing
        if standing is None or self.refused() or not self._says_it_is_over(standing):
            return
        undo = standing.is_archived
        change = partial(archive_experiment, undo=undo)
        done = "is in the list of experiments again" if undo else "is archived"
        self.fabric.write("archive", partial(_steer, standing.row, done, change))

    def action_search_continue(self) -> None:
        """Ask for limits, and have a search that is over go on."""
        standing = self._standing
        if standing is None or self.refused() or not self._says_it_is_over(standing):
            return
        row = standing.row
        limit = "" if row.method == "grid" else f"search.max_trials={standing.expected_trials}"
        self._ask_overrides("continue", limit, partial(_continue, self.fabric.home, row))

    def action_search_fork(self) -> None:
        """Ask for what is to differ, and begin another search."""
        standing = self._standing
        if standing is not None and not self.refused():
            self._ask_overrides(
                "fork", f"seed={standing.next_seed}", partial(_fork, self.fabric.home, standing.row)
            )

    def _ask_overrides(self, verb: str, before: str, work: Callable[[Sequence[str]], SteeredSearch]) -> None:
        """Ask for KEY=VALUE of what is to differ, and do it in the background."""
        assert self._standing is not None
        name = formats.printable(self._standing.row.name)

        def typed(line: str) -> None:
            from screens.launch.draft import split_arguments

            title, background = f"{verb} {name}", self.fabric.background
            background.begin(title, lambda report: work(split_arguments(line)), self._steered, is_kept=True)

        self.fabric.ask_line(f"{verb} {name} with", before, _LIMITS[verb], typed)

    def _steered(self, done: SteeredSearch) -> None:
        self.fabric.show_message(done.message)
        if done.begun and self.fabric.screen is self:
            self.fabric.open_search(done.begun)

    def _ask(self, verb: str, change: Callable[[Store, ExperimentRow], bool], consequence: str) -> None:
        from screens.base.dialogs import Confirm, Question

        standing = self._standing
        if standing is None or self.refused():
            return
        if not self.can_do(f"search.{verb}"):
            self.fabric.show_message(f"the search is {standing.row.state}", "warning")
            return
        name = formats.printable(standing.row.name)
        lines = (amount(standing, self.fabric.clock()),)
        write = partial(
            _steer, standing.row, f"is being {verb}d" if verb == "pause" else "is being ended", change
        )

        def decided(yes: bool | None) -> None:
            if yes:
                self.fabric.write(verb, write)

        question = Question(f"{verb.capitalize()} the search {name}?", lines, consequence, verb)
        self.app.push_screen(Confirm(question), decided)


def _steer(
    row: ExperimentRow, done: str, change: Callable[[Store, ExperimentRow], bool], store: Store
) -> str:
    name = formats.printable(row.name)
    return f"{name} {done}" if change(store, row) else f"{name} has changed meanwhile: nothing was done"


@dataclass(frozen=True, slots=True)
class SteeredSearch:
    """What has come of a search that was continued or forked."""

    message: str
    begun: str = ""
    """The id of the search that began."""


_LIMITS: Final = {
    "continue": ("search.max_trials=", "search.max_concurrent="),
    "fork": ("name=", "seed=", "search.max_trials=", "search.max_concurrent=", "search.max_time="),
}
"""What is offered to be typed."""


def _continue(home: Home, row: ExperimentRow, overrides: Sequence[str]) -> SteeredSearch:
    from workbench.services.submit.experiments import continue_experiment

    with Store.open(home) as store:
        count = continue_experiment(store, row, overrides)
    going = f": {formats.count(count, 'trial')} from where they ended" if count else ""
    return SteeredSearch(f"{formats.printable(row.name)} goes on{going}")


def _fork(home: Home, row: ExperimentRow, overrides: Sequence[str]) -> SteeredSearch:
    from workbench.services.submit.experiments import fork_experiment

    with Store.open(home) as store:
        begun = fork_experiment(store, row, overrides)
    return SteeredSearch(f"{formats.printable(begun.name)} has begun", begun.id)


def _lines(found: list[list[Part]]) -> Content:
    """Return lines of texts, each with its role."""
    lines = [Content("").join(plain(shown, role) for shown, role in parts) for parts in found]
    return Content("\n").join(lines)


def find_search(home: Home, name: str) -> str:
    """Return the id of the search that a person means.

    Raises:
        UnknownName: there is none, or there are several.
    """
    with Store.open(home) as store:
        return resolve_experiment(store, name).id
