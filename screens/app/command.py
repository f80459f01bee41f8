"""The command line (``:``): ``job abc``, ``logs abc``, ``filter state:failed``, or any action's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from screens.core import actions
from screens.jobs.columns import COLUMNS
from screens.jobs.queries import Beginning, beginning
from screens.jobs.table_screen import JobsScreen
from screens.launch.draft import split_arguments
from screens.widgets.markup import plain
from screens.widgets.tabs import TABS
from screens.workers.command_runner import call
from screens.workers.reader import QueryAnswer
from workbench.errors import UsageError
from workbench.store.queries.job_fields import sort_keys

if TYPE_CHECKING:
    from screens.app.app_actions import AppActions

JOB_WORDS: Final = {
    "job": "overview",
    "run": "overview",
    "open": "overview",
    "log": "logs",
    "metrics": "charts",
} | {tab: tab for tab in TABS}
"""Commands that take a job's name, and the tab that each opens."""
PLAIN_WORDS: Final = (
    "jobs",
    "filter ",
    "sort ",
    "theme ",
    "help",
    "backends",
    "queue",
    "search ",
    "pause",
    "fabric ",
    "q",
    "quit",
)
BACKENDS: Final = ("backends", "places", "gpus", "hosts", "runners")
"""Commands that open the screen of backends."""
LOOKING: Final = frozenset(
    {"list", "ls", "ps", "show", "logs", "metrics", "events", "grep", "compare", "diff", "files", "gpus"}
    | {"doctor", "version", "validate", "plan", "schema", "help"}
)
"""Commands of fabric's that change nothing, so that they may be given with --readonly, too."""


def completions() -> list[str]:
    """Return what a line may begin with, the likeliest last."""
    columns = dict.fromkeys(f"sort {name}" for name in (*(column.name for column in COLUMNS), *sort_keys()))
    words = [f"{word} " for word in JOB_WORDS]
    return [*(action.id for action in actions.ACTIONS), *reversed(columns), *PLAIN_WORDS, *words]


def obey(app: AppActions, line: str) -> None:
    """Do what a line says, or say that nobody knows it."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word in ("q", "quit", "exit"):
        app.action_app_quit()
    elif word in JOB_WORDS:
        _open(app, word, rest)
    elif word in ("jobs", "runs"):
        app.go_home()
    elif word == "filter":
        app.go_home()
        if isinstance(app.screen, JobsScreen):
            app.screen.set_filter(rest)
    elif word == "sort":
        app.go_home()
        if isinstance(app.screen, JobsScreen):
            app.screen.sort_by(rest)
    elif word == "theme":
        _theme(app, rest)
    elif word in BACKENDS:
        app.action_app_places()
    elif word == "search" and rest:
        _open_search(app, rest)
    elif word == "fabric":
        _command(app, rest)
    elif word in actions.BY_ID or f"app.{word}" in actions.BY_ID:
        action_id = word if word in actions.BY_ID else f"app.{word}"
        app.call_next(app.action_perform, action_id)
    else:
        app.show_message(f"unknown command {word!r}; ctrl+p lists the actions", "warning")


def _open(app: AppActions, word: str, name: str) -> None:
    tab = JOB_WORDS[word]
    if not name:
        job = app.job_in_view()
        if job is None:
            app.show_message(f"no job is in view: give one, :{word} NAME", "warning")
        else:
            app.open_job(job, tab)
        return
    _Opening(app, tab).look_up(name)


def _open_search(app: AppActions, name: str) -> None:
    """Open the search of that name or id, or say that there is none."""
    from screens.jobs.search_screen import find_search

    app.background.run(lambda: find_search(app.home, name), app.open_search)


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
        arguments = split_arguments(line)
    except UsageError as error:
        app.show_message(str(error), "warning")
        return
    if not arguments:
        app.show_message("give a command, e.g. :fabric gpus or :fabric diff @ @last", "warning")
        return
    if app.readonly and arguments[0] not in LOOKING:
        app.show_message("read-only: the screens were started with --readonly", "warning")
        return
    job = app.job_in_view()
    argv = [str(job.id) if word == "@" and job is not None else word for word in arguments]

    def show(printed: str) -> None:
        app.show_text((f"fabric {line}", plain(printed.rstrip() or "(no output)")))

    app.background.begin(f"fabric {arguments[0]}", lambda report: call(app.home, argv, report), show)


def _theme(app: AppActions, name: str) -> None:
    if name in app.available_themes and app.coloured:
        app.theme = name
    else:
        app.show_message("themes: " + ", ".join(sorted(app.available_themes)), "warning")
