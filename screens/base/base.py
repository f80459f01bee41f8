"""What all screens have in common: heading, key bar, a focused pane, and a word when there is no room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, cast, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from screens.core import actions
from screens.core.app_protocol import AppProtocol, JumpTarget, Part, fabric_app
from screens.widgets.bars import Heading, KeyBar
from workbench import formats

if TYPE_CHECKING:
    from screens.base.dialogs import Choice

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 15


@runtime_checkable
class Pane(Protocol):
    """A widget whose keys are one pane's of the table of actions."""

    PANE: ClassVar[str]


@runtime_checkable
class HasJumpTargets(Protocol):
    """A widget with parts that one can jump to."""

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name the parts that are in view."""


class BaseScreen(Screen[None]):
    """A screen with a heading, a body, a key bar, and a notice instead when the terminal is too small."""

    AUTO_FOCUS = ""  # the pane that is to have the focus is not always the first

    def compose(self) -> ComposeResult:
        """Put the screen together."""
        yield Heading()
        yield Static(id="trouble", markup=False)
        yield from self.body()
        yield KeyBar()
        yield self.too_small()

    def too_small(self) -> Static:
        """Make what is shown instead of all else where the terminal is too small; it is updated with why."""
        return Static(id="too-small", markup=False)

    def body(self) -> Iterator[Widget]:
        """Make what stands between heading and key bar."""
        yield from ()

    @property
    def fabric(self) -> AppProtocol:
        """The app."""
        return fabric_app(self)

    @property
    def whole(self) -> bool:
        """Whether all parts are there: not before it was put together, nor while it is taken apart."""
        return self.is_running and self.query_one_optional("#too-small") is not None

    @property
    def pane(self) -> str:
        """Which pane has the focus; empty when none has."""
        focused = self.focused
        return focused.PANE if isinstance(focused, Pane) else ""

    async def on_event(self, event: events.Event) -> None:
        """Take an event; a screen that is taken apart before it was put together has no parts to set up."""
        if not (isinstance(event, events.Mount) and not self.children):
            await super().on_event(event)

    def on_mount(self) -> None:
        """Show the keys of whichever pane has the focus."""
        self.query_one(KeyBar).readonly = self.fabric.readonly
        self.watch(self, "focused", self._show_keys)

    def _show_keys(self) -> None:
        if pane := self.pane:
            self.query_one(KeyBar).pane = pane
            self.refresh_keys()

    def refresh_keys(self) -> None:
        """Offer in the key bar only what can be done now."""
        if self.whole:
            bar = self.query_one(KeyBar)
            bar.impossible = frozenset(one.id for one in actions.footer(bar.pane) if not self.can_do(one.id))

    def on_keys_changed(self) -> None:
        """Offer what can be done with what a page shows now."""
        self.refresh_keys()

    def can_do(self, action_id: str) -> bool:
        """Say whether an action that the key bar offers would do anything now."""
        del action_id
        return True

    async def action_early(self, action_id: str, number: int | None = None) -> None:
        """Take a key that was typed before any pane had the focus, so that none is lost while a screen opens."""
        if self.focused is None:
            await self.fabric.action_perform(action_id, number)

    def on_resize(self, event: events.Resize) -> None:
        """Say so when there is not room enough to be of use."""
        width, height = event.size.width, event.size.height
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        self.set_class(small, "-too-small")
        if small:
            message = f"fabric needs {LEAST_WIDTH}x{LEAST_HEIGHT}, this is {width}x{height}"
            self.query_one("#too-small", Static).update(message)

    def head(self, crumbs: tuple[str, ...], news: tuple[Part, ...]) -> None:
        """Set the heading; what the app itself has to say comes first."""
        if not self.whole:
            return
        self._say_trouble()
        heading = self.query_one(Heading)
        heading.crumbs = crumbs
        heading.news = (*self.fabric.news(), *news)
        self.refresh_keys()

    def _say_trouble(self) -> None:
        """Say in a line of its own why nothing new is shown, and how old what is shown is."""
        error, line = self.fabric.trouble, self.query_one("#trouble", Static)
        if line.display != (error is not None):
            line.display = error is not None
        if error is not None:
            hint = f" ({error.hint})" if error.hint else ""
            since = formats.clock_time(self.fabric.store_error_since_us)
            line.update(formats.printable(f" {error}{hint}. What is shown is from {since}"))

    def refresh_head(self) -> None:
        """Say again where one is; called when what the app has to say has changed."""

    def choose(self, title: str, choices: Sequence[Choice], then: Callable[[Choice], Any]) -> None:
        """Offer a few things, and do one."""
        from screens.base.dialogs import Choose

        def chosen(choice: Choice | None) -> None:
            if choice is not None:
                then(choice)

        self.app.push_screen(Choose(title, choices), chosen)

    def back(self) -> bool:
        """Undo the innermost thing (a filter, a zoom); return whether there was one."""
        return False

    def tick(self, now_us: int) -> None:
        """Draw again what depends on the time of day; called once a second."""

    def jump_targets(self) -> Iterator[JumpTarget]:
        """Name what one can jump to: every pane, and what panes and bars offer themselves."""
        shown = [widget for widget in self.query("*") if widget.display and widget.region]
        for widget in shown:
            if isinstance(widget, Pane):
                yield JumpTarget(widget.region.right - 4, widget.region.y, widget.focus)
        for widget in shown:
            if isinstance(widget, HasJumpTargets):
                yield from widget.jump_targets()

    def panes(self) -> set[str]:
        """Name the panes that are on this screen now."""
        return {w.PANE for w in self.query("*") if isinstance(w, Pane) and cast("Widget", w).display}

    def find_owner(self, action: actions.Action) -> Widget | None:
        """Return the widget that carries out a pane's action: the focused one, else the first that can."""
        focused = self.focused
        if isinstance(focused, Pane) and focused.PANE in action.panes:
            return focused
        return next((w for w in self.query("*") if isinstance(w, Pane) and w.PANE in action.panes), None)
