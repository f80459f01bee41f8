"""What keys, palette and commands do everywhere; each works on whichever screen is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from textual.content import Content
from textual.screen import Screen

from screens.app.terminal import TerminalApp
from screens.base.base import BaseScreen
from screens.core import actions
from screens.core.app_protocol import JumpTarget, Severity
from screens.core.keymap import KeyMap
from screens.core.memory import Memory
from screens.jobs.actions import JobActions
from screens.style.themes import OURS
from screens.workers.background import Background, TaskReport
from screens.workers.reader import StoreReader
from screens.workers.transfer_report import transfer_report
from workbench import formats
from workbench.errors import FabricError
from workbench.paths import Home
from workbench.store.db.rows import JobRow

T = TypeVar("T")
CREATE: Final = "--create"
"""Typed behind a store, it has a container made that is missing."""
LEAVE_SECONDS: Final = 2.0
"""How long leaving waits for a screen that is busy."""


class AppActions(TerminalApp):
    """The actions whose owner is the app; what they need of it is declared here, and set by the app itself."""

    home: Home
    key_map: KeyMap
    readonly: bool
    coloured: bool
    memory: Memory
    reader: StoreReader
    background: Background
    last_job: JobRow | None
    watched: set[str]

    def show_message(self, message: str, severity: Severity = "information") -> None:
        """Show a short message; it is never read as markup."""
        self.notify(formats.printable(message), severity=severity, markup=False)

    async def action_perform(self, action_id: str, number: int | None = None) -> None:
        """Do what a key of the focused pane would do; for the key bar, the palette and commands."""
        action = actions.BY_ID[action_id]
        screen = self.screen
        owner = screen.find_owner(action) if isinstance(screen, BaseScreen) else None
        if owner is None and action.owner == "pane":
            self.show_message(f"{action.title} does not work on this screen", "warning")
            return
        target = action.target if number is None else f"{action.target}({number})"
        await self.run_action(target, default_namespace=owner or screen)

    def show_text(self, shown: tuple[str, Content]) -> None:
        """Show a longer text in a window."""
        from screens.base.dialogs import TextView

        self.push_screen(TextView(*shown))

    def action_app_upload(self) -> None:
        """Ask for a folder and a store, and copy the one into the other in the background."""
        if self.readonly:
            self.show_message("read-only: the screens were started with --readonly", "warning")
            return
        known = self.memory.texts("uploads")
        self.ask_line("upload (FOLDER, then STORE:CONTAINER)", "", known, self._upload)

    def _upload(self, line: str) -> None:
        from screens.launch.draft import split_arguments

        try:
            arguments = split_arguments(line)
        except FabricError as error:
            self.show_message(str(error), "warning")
            return
        named = [word for word in arguments if word != CREATE]
        if len(named) != 2:
            self.show_message("give a folder and a target, e.g. ~/mnist lab:mnist", "warning")
            return
        folder, target = Path(named[0]).expanduser(), named[1]

        def upload(report: TaskReport) -> None:
            from workbench.services.transfer.store_upload import upload_folder

            create = CREATE in arguments
            upload_folder(folder, target, create=create, report=transfer_report(report), cancel=report.cancel)

        self.memory.add_to_history("uploads", line)
        message = f"copied {named[0]} to {target}"
        self.background.begin(
            f"upload {folder.name}", upload, lambda _: self.show_message(message), is_kept=True
        )

    def show_problem(self, error: FabricError, what: str) -> None:
        """Show in a window what went wrong; over another window, as a short message."""
        from screens.base.dialogs import Problem

        if isinstance(self.screen, BaseScreen):
            self.push_screen(Problem(error, f"{what} failed"))
        else:
            self.show_message(f"{error}" + (f" ({error.hint})" if error.hint else ""), "error")

    def action_app_tasks(self) -> None:
        """Show what is done in the background."""
        from screens.base.dialogs import TaskList

        self.push_screen(TaskList(self.background))

    def action_app_jump(self) -> None:
        """Label everything that can be jumped to with a letter."""
        from screens.base.dialogs import Jump

        def go(target: JumpTarget | None) -> None:
            if target is not None:
                target.go()

        if isinstance(self.screen, BaseScreen):
            self.push_screen(Jump(list(self.screen.jump_targets())), go)

    # Where one is

    def open_job(self, job: JobRow, tab: str = "") -> None:
        """Open a job's screen, instead of another job's."""
        from screens.jobs.job_screen import (
            JobScreen,  # not before it is needed: the table is to be there at once
        )

        self.last_job = job
        self.watched.add(job.id)
        screen = self.screen
        if isinstance(screen, JobScreen):
            if screen.job_id == job.id:
                screen.show(tab or screen.tab)
                return
            self.pop_screen()
        self.push_screen(JobScreen(job, tab))

    def open_search(self, experiment_id: str) -> None:
        """Open a search, or go back to it where its trial was opened from there."""
        from screens.jobs.search_screen import SearchScreen

        below = self.screen_stack[-2] if len(self.screen_stack) > 1 else None
        if isinstance(below, SearchScreen) and below.experiment_id == experiment_id:
            self.pop_screen()
        else:
            self.push_screen(SearchScreen(experiment_id))

    def go_home(self) -> None:
        """Go back to the table of runs."""
        while len(self.screen_stack) > 2:
            self.pop_screen()

    def job_in_view(self) -> JobRow | None:
        """Return the job that is open, or under the cursor."""
        screen = self.screen
        return screen.in_view() if isinstance(screen, JobActions) else None

    def action_app_back(self) -> None:
        """Undo the innermost thing, or go back one screen."""
        screen = self.screen
        if screen.maximized is not None:
            screen.minimize()
        elif isinstance(screen, BaseScreen) and not screen.back() and len(self.screen_stack) > 2:
            self.pop_screen()

    def action_app_close(self) -> None:
        """Go back one screen; on the first, leave."""
        if len(self.screen_stack) > 2:
            self.pop_screen()
        else:
            self.action_app_quit()

    def action_app_quit(self) -> None:
        """Leave, once each screen has dealt with what came before: what was just confirmed is done."""
        self.set_timer(LEAVE_SECONDS, partial(self.exit, 0))
        self._leave_behind(self.screen_stack[::-1])

    def _leave_behind(self, screens: Sequence[Screen[Any]]) -> None:
        """Leave behind all messages that these screens have, one screen after the other."""
        for at, screen in enumerate(screens, 1):
            if screen.call_later(self._leave_behind, screens[at:]):
                return
        self.exit(0)

    def action_app_last(self) -> None:
        """Back to the job that was open last, or from it to the table."""
        last = self.last_job
        if len(self.screen_stack) > 2:
            self.go_home()
        elif last is not None:
            self.open_job(last, self.memory.text("tab"))
        else:
            self.show_message("no other job was open before")

    # Windows and looks

    def action_app_palette(self) -> None:
        """Find a command, a page, a setting or a job, and do it or go there."""
        from screens.app.palette import Palette, PaletteEntry

        def chosen(entry: PaletteEntry | None) -> None:
            if entry is not None:
                self.call_later(entry.do)

        if isinstance(self.screen, BaseScreen):
            self.push_screen(Palette(self.screen), chosen)

    def ask_line(self, purpose: str, value: str, known: Sequence[str], then: Callable[[str], Any]) -> None:
        """Ask for a line, and go on with it."""
        from screens.base.dialogs import AskLine

        def typed(line: str | None) -> None:
            if line is not None:
                then(line)

        self.push_screen(AskLine(purpose, value, known), typed)

    def action_app_pause(self) -> None:
        """Hold the view still, or let it go on."""
        reader = self.reader
        reader.paused = not reader.paused
        for screen in self.screen_stack:
            if isinstance(screen, BaseScreen) and screen.whole:
                screen.refresh_head()

    def action_app_theme(self) -> None:
        """The next of our themes."""
        if not self.coloured:
            self.show_message("NO_COLOR is set: themes are off")
            return
        index = OURS.index(self.theme) if self.theme in OURS else -1
        self.theme = OURS[(index + 1) % len(OURS)]
        self.show_message(f"theme {self.theme}")

    def action_app_next_pane(self) -> None:
        """Give the next pane the focus."""
        self.screen.focus_next()

    def action_app_maximise(self) -> None:
        """Give the focused pane the whole screen, or take it back."""
        if self.screen.maximized is not None:
            self.screen.minimize()
        elif self.screen.focused is not None:
            self.screen.maximize(self.screen.focused)

    def action_app_places(self) -> None:
        """Show every backend."""
        from screens.backends.screen import BackendsScreen

        if not isinstance(self.screen, BackendsScreen):
            self.push_screen(BackendsScreen())

    def action_app_queue(self) -> None:
        """Show the jobs that wait."""
        from screens.jobs.queue_screen import QueueScreen

        if not isinstance(self.screen, QueueScreen):
            self.push_screen(QueueScreen())
