"""The app that the screens live in: what is shared by all of them, and how it starts and ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding
from textual.css.stylesheet import Stylesheet
from textual.events import Event, Key
from textual.notifications import Notification, Notify
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.theme import Theme
from textual.widget import Widget

from screens.app.app_actions import AppActions
from screens.app.terminal import print_last
from screens.base.base import BaseScreen
from screens.base.login import NEEDS_LOGIN, LoginPrompts, PersonAsked
from screens.core.app_protocol import AppProtocol, Part
from screens.core.keymap import key_map
from screens.core.memory import Memory
from screens.jobs.queries import Beginning, beginning, open_and_ended
from screens.jobs.table_screen import JobsScreen
from screens.style.glyphs import glyphs
from screens.style.status import is_open, look
from screens.style.themes import NO_COLOUR_THEME, OURS, THEMES, Paint, role_variables
from screens.widgets.lean_strips import use_lean_strips
from screens.workers.background import Background, DaemonThreads, Finished, start_loop
from screens.workers.reader import QueryAnswer, StoreReader, StoreTrouble
from screens.workers.writer import StoreWriter, Write, WriteDone
from workbench import formats
from workbench.clock import now_us
from workbench.config import load_config
from workbench.errors import FabricError
from workbench.job import State
from workbench.paths import Home
from workbench.services import open_store
from workbench.services.backends import prompts
from workbench.store.db.database import Store
from workbench.store.db.home_folder import BIND, why_not
from workbench.store.db.rows import JobRow
from workbench.store.queries.resolve import resolve

if TYPE_CHECKING:
    from screens.launch.preview_page import RunOptionsReader

MOST: Final = 10
"""So many jobs are named."""


def exit_summary(jobs: Sequence[JobRow]) -> str:
    """Return the lines, or nothing when nothing goes on."""
    going = [job for job in jobs if is_open(job)]
    if not going:
        return ""
    lines = [
        "1 job is still running or waiting:"
        if len(going) == 1
        else f"{len(going):,} jobs are still running or waiting:"
    ]
    lines += [f"  {job.id}  {job.state.lower():<11} {formats.printable(job.name)}" for job in going[-MOST:]]
    if len(going) > MOST:
        lines.append(f"  and {len(going) - MOST:,} more")
    return "\n".join([*lines, "fabric tui opens the screens again", ""])


def ended_notice(ended: Sequence[JobRow], earlier: int, *, failed: bool, seconds: float) -> Notification:
    """Return one message about jobs that have ended, the newest first, and so many more before them."""
    lines = [f"{look(job.state)}: {job.name}  {job.reason.text}".rstrip() for job in ended[:MOST_NOTICES]]
    if more := len(ended[MOST_NOTICES:]) + earlier:
        lines.append(f"and {formats.count(more, 'more job')} {'has' if more == 1 else 'have'} ended")
    text = "\n".join(formats.printable(line) for line in lines)
    return Notification(text, severity="error" if failed else "information", timeout=seconds, markup=False)


TICK_SECONDS: Final = 1.0
MOST_NOTICES: Final = 3
"""So many jobs that end at once are named."""
COLOURLESS_TERMINALS: Final = frozenset({"dumb", "vt100", "vt102", "vt220"})


class AsciiScrollBar(ScrollBarRender):
    """A scroll bar of blanks, which differs from its track by colour."""

    VERTICAL_BARS: ClassVar = [" "] * 8
    HORIZONTAL_BARS: ClassVar = [" "] * 8


class ParsedOnce(Stylesheet):
    """A style sheet that is parsed again only with other colours.

    Textual 8.2.8 parses all of it again whenever an app begins and whenever a theme is set: 20 ms of the first paint.
    """

    _has_others = False
    """Whether there are other colours than those it was parsed with."""

    def set_variables(self, variables: dict[str, str]) -> None:
        """Take colours; what was parsed with the same ones stays."""
        if variables != self._variables:
            super().set_variables(variables)
            self._has_others = True

    def reparse(self) -> None:
        """Parse all with the colours there are now, where that was done with others."""
        if self._has_others:
            super().reparse()
            self._has_others = False
        elif self._require_parse:
            self.parse()


_refresh: Final = Widget.refresh


def forget_boxes_on_refresh() -> None:
    """Have each refresh that asks for a layout forget the sizes that were worked out before it.

    Textual 8.2.8 keeps a widget's size by the number of its layouts, and counts further refreshes only when the widget
    has been idle since. Where something else lays the screen out in between, the size of the first content is kept
    for the second one: a complaint that follows an empty text has no width and is never seen.
    """
    Widget.refresh = _refresh_and_count  # type: ignore[method-assign, assignment]


def _refresh_and_count(widget: Widget, *regions: Any, layout: bool = False, **options: Any) -> Widget:
    if layout and widget._layout_required:
        widget._layout_updates += 1
    return _refresh(widget, *regions, layout=layout, **options)


class FabricApp(AppActions):
    """All screens of one home."""

    CSS_PATH = "fabric.tcss"
    TITLE = "fabric"
    ENABLE_COMMAND_PALETTE = False  # ours finds jobs too
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-normal"), (160, "-wide")]  # noqa: RUF012 - as Textual has it
    BINDINGS: ClassVar = [Binding("ctrl+q", "quit_anywhere", "quit", priority=True)]

    def __init__(
        self,
        home: Home,
        *,
        job: str | None = None,
        readonly: bool = False,
        keys: Mapping[str, Sequence[str]] | None = None,
        clock: Callable[[], int] = now_us,
        read_run_options: RunOptionsReader,
    ) -> None:
        if os.environ.get("TERM") in COLOURLESS_TERMINALS:
            os.environ.setdefault("NO_COLOR", "1")  # Textual asks for it, too
        colourless = "NO_COLOR" in os.environ
        ScrollBar.renderer = ScrollBarRender if glyphs().unicode else AsciiScrollBar
        use_lean_strips()
        forget_boxes_on_refresh()
        super().__init__(ansi_color=True if colourless else None)
        self.home = home
        self.readonly = readonly
        self.key_map = key_map(keys or {})
        self.read_run_options = read_run_options
        self.background = Background(self)
        self.logins = LoginPrompts(self)
        self.clock = clock
        self.asked_job = job
        self.coloured = not colourless
        self.paint = Paint({}, coloured=self.coloured)
        self.memory = Memory()
        self.reader = StoreReader(home, self)
        self.writer = StoreWriter(home)
        self.trouble: FabricError | None = None
        self.store_error_since_us = 0
        self.open_jobs: tuple[JobRow, ...] = ()
        self.last_job: JobRow | None = None
        self._notice: Notification | None = None
        """The message about jobs that have ended."""
        self._noticed: tuple[JobRow, ...] = ()
        self._noticed_earlier = 0
        self.watched: set[str] = set()
        """Jobs that were opened in this session."""
        self._typed_ahead: list[Key] | None = None if job is None else []
        """What was typed before the job that was asked for is opened; None once it is."""
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = OURS[0] if self.coloured else NO_COLOUR_THEME
        self.stylesheet = ParsedOnce(variables=self.get_css_variables())

    # Start and end

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Give every theme a colour for each of our roles."""
        return role_variables(self.current_theme)

    def on_mount(self) -> None:
        """Begin to read, and to draw what is read."""
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        prompts.ask_nobody()
        open_store.report_nothing()
        start_loop(self, "reader", self.reader.run)
        start_loop(self, "writer", self.writer.run)
        self.theme_changed_signal.subscribe(self, self._repaint)
        if self._has_few_colours:
            self.theme = NO_COLOUR_THEME
        self._repaint(self.current_theme)
        self.push_screen(JobsScreen())
        self.reader.watch(self, "beginning", beginning(self.asked_job), counters=())
        self.reader.watch(self, "open", open_and_ended(self.clock))
        self.set_keymap(self.key_map.for_textual())
        if faults := self.key_map.faults:
            self.notify("\n".join(map(formats.printable, faults)), severity="warning", markup=False)
        if (text := why_not(self.home)) is not None:
            self.show_message(f"{text} (see {BIND})", "warning")
        self.set_interval(TICK_SECONDS, self._tick)

    @property
    def _has_few_colours(self) -> bool:
        """Whether the terminal has but 16 colours: those of other themes would come out as whichever is nearest."""
        return not self.is_headless and not self.is_web and self.console.color_system == "standard"

    def _repaint(self, theme: Theme) -> None:
        del theme
        self.paint = Paint(self.get_css_variables(), coloured=self.coloured)
        for screen in self.screen_stack:
            for widget in screen.query("*"):
                widget.refresh()

    def _tick(self) -> None:
        self.remember()
        self._remove_empty_holders()
        if not self.screen_stack:
            return  # the app is closing
        screen = self.screen
        if not self.reader.paused and isinstance(screen, BaseScreen) and screen.whole:
            screen.tick(self.clock())

    async def on_event(self, event: Event) -> None:
        """Keep what is typed for the page of the job that was asked for: the list of jobs would take it."""
        if self._typed_ahead is not None and isinstance(event, Key) and event.is_printable:
            self._typed_ahead.append(event)
        else:
            await super().on_event(event)

    def on_query_answer(self, answer: QueryAnswer) -> None:
        """Take what the reader found; an app that ends takes its screens apart while answers still come."""
        if not self.is_running:
            return
        if answer.key == "open":
            self.open_jobs = answer.value.open
            self._show_ended(answer.value.ended)
            self._offer_logins()
        elif answer.key == "beginning":
            self._begin(answer.value)

    def _begin(self, start: Beginning) -> None:
        self.reader.forget(self, "beginning")
        self.memory.load(start.memory)
        theme = self.memory.text("theme")
        if self.coloured and not self._has_few_colours and theme in self.available_themes:
            self.theme = theme
        runs = self.screen_stack[1] if len(self.screen_stack) > 1 else None
        if isinstance(runs, JobsScreen):
            runs.begin()
        if start.trouble:
            self.show_message(start.trouble, "error")
        if start.job is not None:
            self.open_job(start.job, "" if self.asked_job else self.memory.text("tab"))
        typed, self._typed_ahead = self._typed_ahead or [], None
        for event in typed:
            self.post_message(Key(event.key, event.character))

    def _offer_logins(self) -> None:
        """Ask for the credentials that a backend asks for, where a job waits for them."""
        from backends.contract.host import BackendOptions

        for job in self.open_jobs:
            if job.reason.text.startswith(NEEDS_LOGIN):
                target = job.target
                self.logins.offer(BackendOptions.of(target))

    def on_person_asked(self, asked: PersonAsked) -> None:
        """Show the window that a thread waits for."""
        asked.show(asked.take)

    def _show_ended(self, ended: tuple[JobRow, ...]) -> None:
        """Say which jobs have ended; one that was opened in this session rings.

        Those that end while a message about others is still in sight are one message with them.
        """
        if not ended:
            return
        watched = any(job.id in self.watched for job in ended)
        failed, earlier = any(job.state is State.FAILED for job in ended), 0
        if self._notice is not None:
            if not self._notice.has_expired:
                ended, earlier = (*ended, *self._noticed), self._noticed_earlier
                failed |= self._notice.severity == "error"
            # An expired one, too: the next message takes it away before its own timer does, and leaves its holder.
            self._withdraw(self._notice)
        self._notice = ended_notice(ended, earlier, failed=failed, seconds=self.NOTIFICATION_TIMEOUT)
        # Only those that it names: where a job ends every few seconds, the message goes on for hours.
        self._noticed = ended[:MOST_NOTICES]
        self._noticed_earlier = earlier + len(ended) - len(self._noticed)
        self.post_message(Notify(self._notice))
        if watched:
            self.bell()

    def _remove_empty_holders(self) -> None:
        """Remove what held messages that Textual took away: where the next comes before a message's own timer ends.

        Textual 8.2.8 keeps those that it displayed and laid out together, long removed, until it does so again.
        """
        for screen in self.screen_stack:
            for rack in screen.query("ToastRack"):
                if not rack.displayed_children:  # asked for again, those before are forgotten
                    rack._clear_arrangement_cache()
                for holder in rack.children:
                    if holder.is_mounted and not holder.children:
                        holder.remove()

    def _withdraw(self, notice: Notification) -> None:
        """Take a message away from every screen.

        Textual 8.2.8 would take the message away and leave what holds it, with all its layouts, for as long as the
        screen lasts.
        """
        self._unnotify(notice, refresh=False)
        for screen in self.screen_stack:
            for holder in screen.query("ToastHolder"):
                if holder.id is not None and holder.id.endswith(notice.identity):
                    holder.remove()

    def on_unmount(self) -> None:
        """Remember how it was left."""
        self.reader.close()
        self.remember()
        self.writer.close()

    def remember(self) -> None:
        """Write down how the screens look, when that has changed."""
        if not self.memory.is_loaded:
            return
        if self.coloured and not self._has_few_colours:
            self.memory.put("theme", self.theme)
        if self.memory.changed:
            self.write("", self.memory.save())

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        """The screens that show through: none when the one on top is opaque.

        Textual 8.2.8 counts the one below in any case, and then draws all of the screen for each change down there.
        """
        opaque = bool(self._screen_stack) and self._screen_stack[-1].styles.background.a == 1
        return [] if opaque else super()._background_screens

    # The actions that show what is in this package

    def action_app_launch(self) -> None:
        """Open the form where it was left, or empty."""
        from screens.launch.draft import Draft, draft_from_json
        from screens.launch.form_screen import DRAFT_MEMORY, open_form

        open_form(self, draft_from_json(self.memory.mapping(DRAFT_MEMORY)) or Draft())

    def action_quit_anywhere(self) -> None:
        """Leave from any window, unless the user gave the key to another action."""
        self.action_app_quit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Say whether an action may be done now."""
        if action == "quit_anywhere":
            return self.key_map.leaves_free("ctrl+q", "app.quit")
        return super().check_action(action, parameters)

    def action_app_help(self) -> None:
        """Say what every key does here."""
        from screens.app.help import HelpWindow

        pane = self.screen.pane if isinstance(self.screen, BaseScreen) else ""
        if pane:
            self.push_screen(HelpWindow(pane, self.key_map, readonly=self.readonly))

    def action_app_command(self) -> None:
        """Type a command."""
        from screens.app.command import completions, obey

        memory = self.memory

        def typed(line: str) -> None:
            if line:
                memory.add_to_history("commands", line)
                obey(self, line)

        self.ask_line(":", "", [*completions(), *memory.texts("commands")], typed)

    def action_app_debug(self) -> None:
        """Say which versions run, and where everything is."""
        from screens.app.debug import debug_text

        terminal = (("size", f"{self.size.width}x{self.size.height}"), ("theme", self.theme))
        self.background.run(lambda: ("This installation", debug_text(self, terminal)), self.show_text)

    # What screens ask of it

    def news(self) -> tuple[Part, ...]:
        """Return what the heading of every screen shows in addition to its own."""
        parts: list[Part] = []
        if self.reader.paused:
            parts.append(("paused", "warning"))
        if self.readonly:
            parts.append(("read-only", "dim"))
        if running := self.background.running:
            task = running[-1]
            share = "" if task.fraction is None else f" {formats.percent(task.fraction)}"
            parts.append(
                (
                    formats.printable(task.title) + share if len(running) == 1 else f"{len(running)} tasks",
                    "accent",
                )
            )
        return tuple(parts)

    def write(self, label: str, write: Write) -> None:
        """Write to the store in the background; it is shown how that went."""
        self.writer.give(self, label, write)

    def on_write_done(self, done: WriteDone) -> None:
        """Show how a write went."""
        if done.error is not None:
            self._show_error(done.error, done.label)
        elif done.text:
            self.show_message(done.text)

    def on_finished(self, finished: Finished) -> None:
        """Go on with what was done in the background, or show why it failed."""
        error = self.background.deliver(finished)
        if finished.call.task is not None:
            self._refresh_heads()
        if error is not None:
            self._show_error(error, finished.call.task.title if finished.call.task else "")

    def _show_error(self, error: FabricError, title: str) -> None:
        """Show an error: in a window where it has a title, else as a short message."""
        if title:
            self.show_problem(error, title)
        else:
            hint = f" ({error.hint})" if error.hint else ""
            self.show_message(f"{error}{hint}", "error")

    def on_task_news(self) -> None:
        """Show how far tasks are."""
        self._refresh_heads()

    def _refresh_heads(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, BaseScreen) and screen.whole:
                screen.refresh_head()

    def on_store_trouble(self, trouble: StoreTrouble) -> None:
        """Say on every screen that the store cannot be read, or can be again."""
        self.trouble, self.store_error_since_us = trouble.error, trouble.since_us
        self._refresh_heads()


def _checked(app: FabricApp) -> AppProtocol:
    """Have the type checker see that the app is what screens take it for."""
    return app


def run(
    home: Home, *, read_run_options: RunOptionsReader, job: str | None = None, readonly: bool = False
) -> int:
    """Show the screens until the user leaves; return the exit code.

    Args:
        home: Whose jobs.
        read_run_options: Reads the arguments of ``fabric run`` as the command line does.
        job: Open this one first: an id, a prefix, a name, ``@last``.
        readonly: Change nothing.

    Raises:
        UnknownName, AmbiguousName: there is no such job, or more than one.
    """
    if job is not None:
        with Store.open(home) as store:
            job = resolve(store, job).id
    keys: Mapping[str, Sequence[str]] = {}
    trouble = None
    try:
        keys = load_config().keys
    except FabricError as error:  # the screens are of use without it
        trouble = error
    app = FabricApp(home, job=job, readonly=readonly, keys=keys, read_run_options=read_run_options)
    if trouble is not None:
        app.call_later(app.show_message, str(trouble), "error")
    code = app.run()
    app.background.finish(print_last)
    print_last(exit_summary(app.open_jobs))
    return code or app.return_code or 0
