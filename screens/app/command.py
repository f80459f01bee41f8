"""The command line (``:``): ``run abc``, ``logs abc``, ``filter state:failed``, or any action's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from screens.core import actions
from screens.jobs.queries import Beginning, beginning
from screens.jobs.table_screen import JobsScreen
from screens.launch.draft import words_of
from screens.widgets.markup import plain
from screens.widgets.tabs import TABS
from screens.workers.command_runner import call
from screens.workers.reader import QueryAnswer
from workbench.errors import UsageError

if TYPE_CHECKING:
    from screens.app.app_actions import AppActions

JOB_WORDS: Final = {"run": "overview", "open": "overview", "log": "logs", "metrics": "charts"} | {
    tab: tab for tab in TABS
}
"""Words that a job may follow, and the tab that they open."""
PLAIN_WORDS: Final = ("runs", "filter ", "theme ", "help", "places", "pause", "fabric ", "q", "quit")
PLACES: Final = ("gpus", "hosts", "runners", "backends")
"""Other words for the places."""
LOOKING: Final = frozenset(
    {"list", "ls", "ps", "show", "logs", "metrics", "events", "grep", "compare", "diff", "files", "gpus"}
    | {"doctor", "version", "validate", "plan", "schema", "help"}
)
"""Commands of fabric's that change nothing, so that they may be given with --readonly, too."""


def completions() -> list[str]:
    """Return the words that a line may begin with."""
    return [*(action.id for action in actions.ACTIONS), *PLAIN_WORDS, *(f"{word} " for word in JOB_WORDS)]


def obey(app: AppActions, line: str) -> None:
    """Do what a line says, or say that nobody knows it."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word in ("q", "quit", "exit"):
        app.action_app_quit()
    elif word in JOB_WORDS:
        _open(app, word, rest)
    elif word == "runs":
        app.go_home()
    elif word == "filter":
        app.go_home()
        if isinstance(app.screen, JobsScreen):
            app.screen.set_filter(rest)
    elif word == "theme":
        _theme(app, rest)
    elif word in PLACES:
        app.action_app_places()
    elif word == "fabric":
        _command(app, rest)
    elif word in actions.BY_ID or f"app.{word}" in actions.BY_ID:
        action_id = word if word in actions.BY_ID else f"app.{word}"
        app.call_next(app.action_perform, action_id)
    else:
        app.show_message(f"{word!r} is no command; ctrl+p shows what can be done", "warning")


def _open(app: AppActions, word: str, name: str) -> None:
    tab = JOB_WORDS[word]
    if not name:
        job = app.job_in_view()
        if job is None:
            app.show_message(f"which job? :{word} NAME", "warning")
        else:
            app.open_job(job, tab)
        return
    _Opening(app, tab).look_up(name)


class _Opening:
    """Waits for the reader to find a job by its name, then opens it."""

    def __init__(self, app: AppActions, tab: str) -> None:
        self.app = app
        self.tab = tab

    def look_up(self, name: str) -> None:
        """Ask the reader."""
        self.app.reader.watch(self, "named", beginning(name), counters=())

    def post_message(self, message: object) -> bool:
        """Take the answer, from the reader's thread."""
        if isinstance(message, QueryAnswer):
            self.app.reader.forget(self)
            self.app.background.run(lambda: message.value, self._open)
        return True

    def _open(self, found: Beginning) -> None:
        if found.job is None:
            self.app.show_message(found.trouble, "error")
        else:
            self.app.open_job(found.job, self.tab)


def _command(app: AppActions, line: str) -> None:
    """Run any command of fabric's in the background and show what it prints; ``@`` is the job in view."""
    try:
        words = words_of(line)
    except UsageError as error:
        app.show_message(str(error), "warning")
        return
    if not words:
        app.show_message("which command? :fabric gpus, :fabric diff @ @last", "warning")
        return
    if app.readonly and words[0] not in LOOKING:
        app.show_message("nothing is changed here: it was started with --readonly", "warning")
        return
    job = app.job_in_view()
    told = [str(job.id) if word == "@" and job is not None else word for word in words]

    def show(printed: str) -> None:
        app.show_text((f"fabric {line}", plain(printed.rstrip() or "it printed nothing")))

    app.background.begin(f"fabric {words[0]}", lambda report: call(app.home, told, report), show)


def _theme(app: AppActions, name: str) -> None:
    if name in app.available_themes and app.coloured:
        app.theme = name
    else:
        app.show_message("themes: " + ", ".join(sorted(app.available_themes)), "warning")
