"""The palette: finds what can be done here, pages, settings and jobs, with the key that does the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from screens.base.base import BaseScreen
from screens.base.dialog import Dialog
from screens.core import actions
from screens.core.app_protocol import AppProtocol
from screens.jobs.actions import JobActions
from screens.style import text
from screens.style.status import look
from screens.widgets.markup import heading, plain
from screens.widgets.tabs import TABS
from workbench import formats
from workbench.job import short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import find_jobs
from workbench.values import dataclass

if TYPE_CHECKING:
    from screens.core.keymap import KeyMap

JOBS: Final = 8
"""So many jobs are offered."""
TITLE_WIDTH: Final = 26
SCATTERED: Final = 1
"""The score of an entry that has the letters of a word in their order and others between them."""
_WORDS: Final = re.compile(r"[^\W_]+")
KINDS: Final = ("Commands", "Pages", "Settings", "Jobs")
_PAGES: Final = frozenset(
    {"app.places", "app.queue", "app.launch", "app.help", "app.tasks", "app.debug", "runs.compare"}
    | {"job.search"}
)
"""Actions that open a page."""
_SETTINGS: Final = frozenset(
    {"app.theme", "app.pause", "runs.columns", "runs.preview", "runs.sort", "runs.reverse", "log.wrap"}
    | {"log.times", "log.level", "log.follow", "chart.log", "chart.smooth", "chart.axis"}
)
"""Actions that change how something is shown."""
_TABS: Final = {"job.overview": "overview", "job.logs": "logs", "job.charts": "charts"}
_HIDDEN: Final = frozenset({"app.palette", *_TABS})
"""Offered as pages, or open already."""


class PaletteApp(AppProtocol, Protocol):
    """The app, as the palette sees it."""

    coloured: bool
    key_map: KeyMap

    @property
    def available_themes(self) -> Mapping[str, object]:
        """The themes by name."""

    def call_next(self, call: Callable[..., object], *values: object) -> None:
        """Call something once the message that is dealt with is done."""

    def go_home(self) -> None:
        """Go back to the table of jobs."""


@dataclass(frozen=True, slots=True)
class PaletteEntry:
    """One thing that can be found."""

    kind: str
    title: str
    help: str
    keys: str
    do: Callable[[], object]
    words: str = ""
    """What else it is found by."""

    def score(self, words: Sequence[str]) -> int:
        """Say how well it fits: 0 where a word is nowhere in it, :data:`SCATTERED` where its letters alone are."""
        scores = [self._score(word) for word in words]
        return min(scores) if min(scores, default=0) <= SCATTERED else sum(scores)

    def _score(self, word: str) -> int:
        title = self.title.lower()
        if any(part.startswith(word) for part in (title, *_WORDS.findall(title))):
            return 8 if title.startswith(word) else 6
        if word in title:
            return 4
        if word in f"{self.keys} {self.help} {self.words}".lower():
            return 2
        return SCATTERED if len(word) > 2 and _is_within(word, title) else 0


def _is_within(letters: str, title: str) -> bool:
    """Say whether letters stand in a text in their order, whatever is between them."""
    rest = iter(title)
    return all(letter in rest for letter in letters)


def rank(found: Iterable[PaletteEntry], words: Sequence[str]) -> dict[str, list[PaletteEntry]]:
    """Return what fits some words by kind, the best first; the kind with the best comes first.

    Of kinds that fit as well, commands come before settings. What has but the letters of a word, with others between
    them, is for slips and abbreviations: it is left out where anything fits better.
    """
    scored = [(entry.score(words) if words else SCATTERED, entry) for entry in found]
    best = max((score for score, _ in scored), default=0)
    least = SCATTERED + 1 if best > SCATTERED else SCATTERED
    by_kind: dict[str, list[tuple[int, PaletteEntry]]] = {}
    for score, entry in scored:
        if score >= least:
            by_kind.setdefault(entry.kind, []).append((score, entry))
    order = sorted(by_kind, key=lambda kind: (-max(s for s, _ in by_kind[kind]), KINDS.index(kind)))
    return {kind: [one for _, one in sorted(by_kind[kind], key=lambda each: -each[0])] for kind in order}


def entries(app: PaletteApp, screen: BaseScreen) -> Iterator[PaletteEntry]:
    """Name what can be done on a screen, the pages that can be opened, and what can be set."""
    panes = {screen.pane, *screen.panes()}
    for action in sorted(actions.ACTIONS, key=lambda one: one.panes == actions.ALL_PANES):  # its own first
        here = panes.intersection(action.panes)
        hidden = action.id.startswith("move.") or action.id in _HIDDEN or actions.takes_number(action)
        if here and not hidden and not (action.changes and app.readonly) and screen.can_do(action.id):
            kind = KINDS[1] if action.id in _PAGES else KINDS[2] if action.id in _SETTINGS else KINDS[0]
            do = partial(app.call_next, app.action_perform, action.id)
            yield PaletteEntry(kind, action.title, action.help, app.key_map.shown(action), do, action.id)
    yield PaletteEntry(KINDS[1], "jobs", "All jobs, with a preview.", "", app.go_home, "runs list home")
    yield from _tabs(app, screen)
    for theme in sorted(app.available_themes) if app.coloured else ():
        do = partial(setattr, app, "theme", theme)
        yield PaletteEntry(KINDS[2], f"theme {theme}", "Colours of all screens.", "", do)


def _tabs(app: PaletteApp, screen: BaseScreen) -> Iterator[PaletteEntry]:
    job = screen.in_view() if isinstance(screen, JobActions) else None
    if job is None:
        return
    by_digit = screen.pane in actions.BY_ID["run.tab"].panes
    letters = {tab: app.key_map.shown(actions.BY_ID[name]) for name, tab in _TABS.items()}
    for number, tab in enumerate(TABS, start=1):
        keys = str(number) if by_digit else letters.get(tab, "")
        about = f"Page of {formats.printable(job.name)}."
        yield PaletteEntry(KINDS[1], tab, about, keys, partial(app.open_job, job, tab), "job tab")


def job_entries(app: PaletteApp, rows: Sequence[JobRow]) -> Iterator[PaletteEntry]:
    """Return entries that open jobs."""
    for row in rows:
        labels = " ".join(f"{name}={value}" for name, value in row.labels.items())
        facts = [str(look(row.state)), short_id(row.id), row.target.backend, labels, " ".join(row.tags)]
        about = "  ".join(formats.printable(fact) for fact in facts if fact)
        yield PaletteEntry(
            KINDS[3],
            formats.printable(row.name),
            about,
            "",
            partial(app.open_job, row),
            row.id,
        )


def read_jobs(home: Home, words: Sequence[str]) -> tuple[JobRow, ...]:
    """Find jobs by name, id, labels and tags, the newest first."""
    with Store.open(home) as store:
        return find_jobs(store, words, limit=JOBS)


class Palette(Dialog[PaletteEntry]):
    """A line to type in, and what it finds, by kind."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,ctrl+p", "leave", "leave"),
        ("down", "move(1)", "down"),
        ("up", "move(-1)", "up"),
        ("pagedown", "move(10)", "page down"),
        ("pageup", "move(-10)", "page up"),
    ]

    def __init__(self, screen: BaseScreen) -> None:
        super().__init__()
        self.over = screen
        self._offered: Sequence[PaletteEntry] = ()
        self._jobs: Sequence[PaletteEntry] = ()
        self._shown: list[PaletteEntry | None] = []
        """What stands on each line; None for a title."""
        self._found_for: str | None = None

    def compose(self) -> ComposeResult:
        """Put the window together."""
        with Vertical(classes="dialog full palette"):
            line = Input(placeholder="find a command, a page, a setting or a job", select_on_focus=False)
            line.cursor_blink = False
            yield line
            listed = OptionList(markup=False)
            listed.can_focus = False
            yield listed
            yield Static(plain("enter does it, esc closes", "dim"), classes="keys")

    @property
    def _fabric(self) -> PaletteApp:
        return cast("PaletteApp", self.app)

    def on_mount(self) -> None:
        """Offer everything."""
        self._offered = tuple(entries(self._fabric, self.over))
        self.query_one(Input).focus()
        self._look_up()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the lines."""
        self.query_one(OptionList).styles.max_height = max(4, event.size.height * 9 // 10 - 7)
        self.call_after_refresh(self._write)

    @property
    def _words(self) -> list[str]:
        return self.query_one(Input).value.lower().split()

    @on(Input.Changed)
    def _look_up(self) -> None:
        """Write what is at hand, and look for jobs."""
        self._write()
        home, words = self._fabric.home, self._words
        self._fabric.background.run(
            lambda: read_jobs(home, words), self._take_jobs, owner=self, newest="palette"
        )

    def _take_jobs(self, rows: tuple[JobRow, ...]) -> None:
        self._jobs = tuple(job_entries(self._fabric, rows))
        self._write()

    def _write(self) -> None:
        """List what fits, kind by kind, the kind with the best hit first."""
        if not self.is_attached:
            return
        listed, words = self.query_one(OptionList), self._words
        before = self._highlighted
        self._shown = []
        options: list[Option] = []
        for kind, found in rank((*self._offered, *self._jobs), words).items():
            self._shown.append(None)
            options.append(Option(heading(kind), disabled=True))
            for entry in found:
                self._shown.append(entry)
                options.append(Option(self._line(entry)))
        if not options:
            options = [Option(plain(f"nothing is called {' '.join(words)!r}", "dim"), disabled=True)]
        listed.clear_options()
        listed.add_options(options)
        is_same = before is not None and before in self._shown and self._found_for == " ".join(words)
        self._found_for = " ".join(words)
        listed.highlighted = self._shown.index(before) if is_same else 1 if self._shown else None

    @property
    def _highlighted(self) -> PaletteEntry | None:
        at = self.query_one(OptionList).highlighted
        return self._shown[at] if at is not None and at < len(self._shown) else None

    def _line(self, entry: PaletteEntry) -> Content:
        room = max(40, self.query_one(OptionList).size.width - 4)
        title = text.shorten(entry.title, TITLE_WIDTH)
        about = text.shorten(entry.help, max(0, room - TITLE_WIDTH - len(entry.keys) - 5))
        used = TITLE_WIDTH + 2 + text.cells(about)
        blank = " " * max(1, room - used - len(entry.keys))
        padded = title + " " * (TITLE_WIDTH - text.cells(title))
        return (
            plain(f" {padded}  ")
            + plain(about, "dim")
            + Content(blank)
            + Content.styled(entry.keys, "bold $role-accent")
        )

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.dismiss(self._highlighted)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index])

    def action_move(self, by: int) -> None:
        """Move up or down, past titles."""
        listed = self.query_one(OptionList)
        there = [at for at, entry in enumerate(self._shown) if entry is not None]
        if there:
            now = listed.highlighted if listed.highlighted in there else there[0]
            listed.highlighted = there[max(0, min(len(there) - 1, there.index(now) + by))]

    def action_leave(self) -> None:
        """Do nothing."""
        self.dismiss(None)
