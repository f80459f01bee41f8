"""Everything that can be done on the screens: the table that keys, help, palette and docs are made from.

A *pane* is what has the focus; a key means one thing in a pane. Who carries an action out is its ``owner``:
the pane itself, its screen, what the screen has for its jobs, or the app. Nothing here draws or acts.
"""

# ruff: noqa: E501 - one action a line reads as the table that it is
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from workbench.values import dataclass

if TYPE_CHECKING:
    from textual.binding import BindingType

RUNS_PANES: Final = ("runs", "preview")
JOB_TABS: Final = {
    "overview": "Job: overview",
    "logs": "Job: logs",
    "charts": "Job: charts",
    "usage": "Job: usage",
    "config": "Job: configuration",
    "files": "Job: files and checkpoints",
    "events": "Job: events",
}
"""The tabs of a job in their order, each a pane, and what help and docs call it."""
RUN_PANES: Final = tuple(JOB_TABS)
PAGES: Final = tuple(tab for tab in JOB_TABS if tab not in ("logs", "charts"))
"""Panes of one job that are read from top to bottom."""
FORM_PANES: Final = ("launch", "plan")
ALL_PANES: Final = (*RUNS_PANES, *RUN_PANES, "compare", "search", "queue", "places", *FORM_PANES)
TITLES: Final = {
    "runs": "Jobs: table",
    "preview": "Jobs: preview",
    **JOB_TABS,
    "compare": "Compare",
    "search": "Search",
    "queue": "Queue",
    "places": "Backends",
    "launch": "New job: form",
    "plan": "New job: plan",
}
"""What help and docs call each pane."""

EARLY: Final = "early."
"""Before the names of bindings that take a key while no pane has the focus yet."""

Owner = Literal["pane", "screen", "jobs", "app"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done, by key, palette or command."""

    id: str
    """``job.halt``: unique; a user's configuration names it to give it other keys."""
    keys: tuple[str, ...]
    """Textual's names of keys, the first of which is shown."""
    panes: tuple[str, ...]
    """Where the keys work."""
    owner: Owner
    title: str
    """A short title, as footer and palette show it."""
    help: str
    """One sentence."""
    footer: int = 0
    """Place in the footer, from 1; 0 is not shown there."""
    changes: bool = False
    """Whether it changes a job: such actions are off with ``--readonly``."""

    @property
    def method(self) -> str:
        """The name of the owner's ``action_`` method."""
        return self.id.replace(".", "_").replace("-", "_")

    @property
    def target(self) -> str:
        """The action as Textual writes it for a binding of the pane."""
        if self.owner == "jobs":
            return f"screen.jobs('{self.method}')"
        return self.method if self.owner == "pane" else f"{self.owner}.{self.method}"


def _move(panes: tuple[str, ...]) -> tuple[Action, ...]:
    return (
        Action("move.down", ("j", "down"), panes, "pane", "down", "Move one line or row down."),
        Action("move.up", ("k", "up"), panes, "pane", "up", "Move one line or row up."),
        Action("move.page-down", ("ctrl+d", "pagedown"), panes, "pane", "page down", "Move one page down."),
        Action("move.page-up", ("ctrl+u", "pageup"), panes, "pane", "page up", "Move one page up."),
        Action("move.top", ("g", "home"), panes, "pane", "top", "Go to the first line or row."),
        Action("move.bottom", ("G", "end"), panes, "pane", "bottom", "Go to the last line or row."),
    )


_JOB: Final = (*RUNS_PANES, *RUN_PANES)
_JOB_THAT_WAITS: Final = (*_JOB, "queue")
_TABBED: Final = (*RUN_PANES, "compare", "search")

ACTIONS: Final[tuple[Action, ...]] = (
    # Everywhere
    Action("app.help", ("question_mark", "f1"), ALL_PANES, "app", "help", "Show what every key does here.", 90),
    Action("app.palette", ("ctrl+p",), ALL_PANES, "app", "palette", "Find a command, a page, a setting or a job by name.", 91),
    Action("app.command", ("colon",), ALL_PANES, "app", "command", "Type a command, e.g. :job abc, :logs abc or :q."),
    Action("app.back", ("escape",), ALL_PANES, "app", "back", "Clear the filter, or go back one screen.", 80),
    Action("app.close", ("q",), ALL_PANES, "app", "close", "Go back one screen; on the first screen, leave."),
    Action("app.quit", ("ctrl+q",), ALL_PANES, "app", "quit", "Leave the screens; jobs keep running and are listed.", 92),
    Action("app.pause", ("p",), ALL_PANES, "app", "pause", "Pause the view; collection continues."),
    Action("app.theme", ("T",), ALL_PANES, "app", "theme", "Switch to the next theme; one is for colour-blind eyes."),
    Action("app.next-pane", ("tab",), ALL_PANES, "app", "next pane", "Move the focus to the next pane."),
    Action("app.jump", ("ctrl+o",), ALL_PANES, "app", "jump", "Label every pane, tab and row with a letter; typing the letter goes there."),
    Action("app.tasks", ("B",), ALL_PANES, "app", "background", "Show background tasks and their progress."),
    Action("app.maximise", ("z",), ALL_PANES, "app", "maximise", "Maximise the focused pane, or restore it."),
    Action("app.last", ("minus",), tuple(p for p in ALL_PANES if p not in ("charts", *FORM_PANES)), "app", "last job", "Go back to the job that was open last."),
    Action("app.launch", ("n",), tuple(p for p in ALL_PANES if p not in ("logs", *FORM_PANES)), "app", "new job", "Open a form for a new job, with its plan and the equivalent command.", 30, True),
    Action("app.upload", ("U",), (*RUNS_PANES, "places"), "app", "upload", "Copy a local folder into a data store, where jobs can read it.", 0, True),
    Action("app.places", ("P",), ALL_PANES, "app", "backends", "Show every backend with its machines and GPUs, and who uses them."),
    Action("app.queue", ("Q",), ALL_PANES, "app", "queue", "Show the jobs that wait at each backend, in the order in which they start."),
    Action("app.redraw", ("ctrl+l",), ALL_PANES, "app", "redraw", "Draw the whole screen again, where another program wrote over it."),
    Action("app.debug", ("f12",), ALL_PANES, "app", "debug", "Show versions, paths, and where the configuration comes from."),
    # The table of jobs
    *_move(ALL_PANES),
    Action("runs.open", ("enter",), RUNS_PANES, "screen", "open", "Open the job under the cursor, or the sweep.", 1),
    Action("runs.filter", ("slash",), RUNS_PANES, "screen", "filter", "Show only jobs that match, e.g. state:running name:mnist loss<0.3 !tag:old.", 5),
    Action("runs.problems", ("exclamation_mark",), RUNS_PANES, "screen", "problems", "Show only jobs that failed or wait because of a fault, or all jobs again.", 6),
    Action("runs.sort", ("s",), RUNS_PANES, "screen", "sort", "Sort by the next column; clicking a column heading sorts too.", 7),
    Action("runs.reverse", ("S",), RUNS_PANES, "screen", "reverse", "Reverse the order."),
    Action("runs.mark", ("space",), ("runs",), "pane", "mark", "Mark the job under the cursor, or all of a folded sweep; actions apply to all marked jobs.", 8),
    Action("runs.mark-range", ("v",), ("runs",), "pane", "mark range", "Mark all jobs from the last mark to the cursor."),
    Action("runs.unmark", ("ctrl+backslash",), ("runs",), "pane", "unmark", "Remove all marks."),
    Action("runs.fold", ("f",), RUNS_PANES, "screen", "fold", "Open the sweep under the cursor, of which all jobs are one line, or close it."),
    Action("runs.fold-all", ("F",), RUNS_PANES, "screen", "fold all", "Show the jobs of each sweep as one line, or every job as its own."),
    Action("runs.compare", ("c",), RUNS_PANES, "screen", "compare", "Compare the marked jobs side by side.", 9),
    Action("runs.columns", ("C",), RUNS_PANES, "screen", "columns", "Choose the columns of the table and their order."),
    Action("runs.preview", ("i",), RUNS_PANES, "screen", "preview", "Show or hide the preview."),
    # One job, from the table or its own screen
    Action("job.halt", ("x",), _JOB_THAT_WAITS, "jobs", "halt", "Ask the job to save and stop; it can be resumed.", 10, True),
    Action("job.kill", ("X",), _JOB_THAT_WAITS, "jobs", "kill", "Stop the job now.", 11, True),
    Action("job.resume", ("u",), _JOB, "jobs", "resume", "Start a halted or failed job again from its results and checkpoints.", 12, True),
    Action("job.rerun", ("r",), _JOB, "jobs", "run again", "Open the form to run the job again, unchanged or with changes.", 0, True),
    Action("job.delete", ("D",), _JOB, "jobs", "delete", "Remove the job, its files and what is left of it on its backend.", 0, True),
    Action("job.logs", ("l",), tuple(p for p in _JOB_THAT_WAITS if p != "logs"), "jobs", "logs", "Show the job's log.", 2),
    Action("job.charts", ("m",), tuple(p for p in _JOB if p != "charts"), "jobs", "charts", "Show the job's metrics as charts.", 3),
    Action("job.overview", ("d",), tuple(p for p in _JOB_THAT_WAITS if p != "overview"), "jobs", "overview", "Show state, reason, times, command and where results are.", 4),
    Action("job.search", ("E",), tuple(p for p in _JOB if p != "logs"), "jobs", "search", "Show the search for hyper-parameters that the job is a trial of."),
    Action("job.new-search", ("O",), _JOB, "jobs", "search from this", "Open the form with a search for hyper-parameters around those of the job.", 0, True),
    Action("job.tags", ("t",), (*RUNS_PANES, *PAGES), "jobs", "tags", "Set the job's tags; filter by them with tag:NAME.", 0, True),
    Action("job.copy", ("y",), (*RUNS_PANES, *PAGES), "jobs", "copy", "Copy the job's name, id, folder or command."),
    Action("job.note", ("N",), (*RUNS_PANES, *PAGES), "jobs", "note", "Write a note on the job.", 0, True),
    Action("job.shell", ("dollar_sign",), _JOB, "jobs", "shell", "Open a shell in a running job; the screens return when it ends.", 0, True),
    Action("job.download", ("ctrl+s",), tuple(p for p in _JOB if p != "logs"), "jobs", "download", "Download the job's results, checkpoints, logs or code."),
    Action("job.open", ("o",), (*RUNS_PANES, *PAGES), "jobs", "open folder", "Open the job's folder, or an address it serves."),
    Action("job.editor", ("e",), (*RUNS_PANES, *PAGES), "jobs", "editor", "Read the job's manifest in $EDITOR."),
    Action("usage.window", ("w",), ("usage",), "pane", "time", "Show the whole job, the last hour, or the last ten minutes.", 1),
    Action("files.open", ("enter",), ("files",), "jobs", "read", "Read the file under the cursor.", 1),
    Action("files.upload", ("U",), ("files",), "jobs", "upload", "Copy a local file into the job.", 5, True),
    Action("run.next-tab", ("right_square_bracket",), _TABBED, "screen", "next tab", "Show the next tab of the job.", 20),
    Action("run.previous-tab", ("left_square_bracket",), _TABBED, "screen", "previous tab", "Show the previous tab."),
    Action("run.tab", tuple(str(number) for number in range(1, len(JOB_TABS) + 1)), _TABBED, "screen", "tab", "Show the tab with that number."),
    # Several jobs
    Action("compare.metric", ("s",), ("compare",), "screen", "metric", "Choose the next metric: values are sorted by it, and drawn over a parameter.", 1),
    Action("compare.value", ("v",), ("compare",), "screen", "last, min, max", "Show the last, the smallest or the largest values.", 2),
    Action("compare.parameter", ("a",), ("compare",), "screen", "parameter", "Draw values over the next parameter in which the jobs differ.", 3),
    Action("compare.log", ("y",), ("compare",), "screen", "log axis", "Draw values on a logarithmic or a linear axis.", 4),
    Action("compare.equal", ("e",), ("compare",), "screen", "equal values", "Show the values that are equal in all jobs too, or hide them.", 5),
    # A new job
    Action("form.edit", ("enter",), FORM_PANES, "screen", "edit", "Edit the value under the cursor.", 1),
    Action("form.start", ("ctrl+r",), FORM_PANES, "screen", "start", "Start the job.", 2, True),
    Action("form.source", ("t",), FORM_PANES, "screen", "start from", "Start from a file, an example, an earlier job, or a command.", 3),
    Action("form.editor", ("e",), FORM_PANES, "screen", "editor", "Edit a copy of the manifest in $EDITOR.", 4),
    Action("form.find", ("slash",), FORM_PANES, "screen", "find a key", "Show only keys whose name or meaning has the words that are typed.", 5),
    Action("form.fold", ("space",), FORM_PANES, "screen", "fold", "Open the group under the cursor, or fold it.", 7),
    Action("form.fold-all", ("a",), FORM_PANES, "screen", "all groups", "Open all groups of keys, or fold all."),
    Action("form.reset", ("backspace",), FORM_PANES, "screen", "undo", "Undo the change of this value.", 6),
    # A search
    Action("search.open", ("enter",), ("search",), "screen", "open", "Open the trial under the cursor.", 1),
    Action("search.sort", ("s",), ("search",), "screen", "sort", "Sort the trials by best value, number, state, units or last value, in turn.", 2),
    Action("search.reverse", ("S",), ("search",), "screen", "reverse", "Reverse the order of the trials."),
    Action("search.parameter", ("a",), ("search",), "screen", "parameter", "Draw the best values over the next hyper-parameter in which trials differ.", 3),
    Action("search.log", ("y",), ("search",), "screen", "log axis", "Draw values on a logarithmic or a linear axis.", 4),
    Action("search.left", ("h", "left"), ("search",), "screen", "axes left", "Bring the axis to the left into view, of parallel coordinates with more axes than have room."),
    Action("search.right", ("l", "right"), ("search",), "screen", "more axes", "Bring the axis to the right into view.", 5),
    Action("search.pause", ("x",), ("search",), "screen", "pause", "Halt the trials of the search and begin no others; it can be resumed.", 10, True),
    Action("search.kill", ("X",), ("search",), "screen", "kill", "End the search and all its trials now.", 11, True),
    Action("search.resume", ("u",), ("search",), "screen", "resume", "Continue the paused search, its trials from their checkpoints.", 12, True),
    Action("search.continue", ("c",), ("search",), "screen", "go on", "Have a random or grid search that is over go on: trials that failed or were ended, and further ones.", 13, True),
    Action("search.fork", ("F",), ("search",), "screen", "fork", "Begin another search with the job and code of this one; what is typed may differ.", 0, True),
    Action("search.archive", ("A",), ("search",), "screen", "archive", "Take the search, once it is over, out of the list of experiments, or put it back.", 14, True),
    # The queue
    Action("queue.open", ("enter",), ("queue",), "screen", "open", "Open the job under the cursor.", 1),
    Action("queue.up", ("K", "shift+up"), ("queue",), "screen", "move up", "Have the job start ahead of your job above it; it gets that one's priority.", 2, True),
    Action("queue.down", ("J", "shift+down"), ("queue",), "screen", "move down", "Have the job start behind your job below it; it gets that one's priority.", 3, True),
    Action("queue.top", ("t",), ("queue",), "screen", "to the top", "Have the job start ahead of all your others at its backend.", 4, True),
    Action("queue.priority", ("equals_sign",), ("queue",), "screen", "priority", "Give the job another priority, from 0 to 100; larger goes first.", 5, True),
    Action("queue.begin", ("b",), ("queue",), "screen", "begin at", "Have the job wait until a time, or begin now.", 6, True),
    # Backends
    Action("places.test", ("t",), ("places",), "screen", "test", "Test a backend: what it offers and what is missing.", 1),
    Action("places.login", ("L",), ("places",), "screen", "log in", "Enter the credentials that a backend asks for: a passphrase, a code.", 2),
    # The log
    Action("log.follow", ("f",), ("logs",), "pane", "follow", "Follow the end of the log; scrolling up stops it.", 1),
    Action("log.find", ("slash",), ("logs",), "pane", "find", "Find a text or /regular expression/.", 2),
    Action("log.next", ("n",), ("logs",), "pane", "next", "Go to the next match."),
    Action("log.previous", ("N",), ("logs",), "pane", "previous", "Go to the previous match."),
    Action("log.filter", ("backslash",), ("logs",), "pane", "filter", "Show only lines that match; an empty text shows all again.", 3),
    Action("log.error", ("e",), ("logs",), "pane", "next error", "Go to the next error or traceback.", 4),
    Action("log.error-back", ("E",), ("logs",), "pane", "previous error", "Go to the previous error or traceback."),
    Action("log.wrap", ("w",), ("logs",), "pane", "wrap", "Wrap long lines, or cut them off.", 5),
    Action("log.times", ("t",), ("logs",), "pane", "times", "Show times: none, since the start, or time of day.", 6),
    Action("log.level", ("L",), ("logs",), "pane", "level", "Show all lines, warnings and errors, or errors only."),
    Action("log.learner", ("R",), ("logs",), "pane", "learner", "Show all learners merged by time, or one learner at a time."),
    Action("log.attempt", ("a",), ("logs",), "pane", "attempt", "Show the log of the previous attempt; after the first, the newest again."),
    Action("log.window", ("W",), ("logs",), "pane", "window", "Show the last 1, 5, 15, 30 or 60 minutes, or all lines."),
    Action("log.goto", ("ctrl+g",), ("logs",), "pane", "go to", "Go to a line (1200), a step (step 300), a time (14:05) or an age (-5m)."),
    Action("log.mark", ("space",), ("logs",), "pane", "mark", "Mark this line, or remove its mark."),
    Action("log.detail", ("enter",), ("logs",), "pane", "detail", "Show the whole line, with JSON formatted."),
    Action("log.save", ("ctrl+s",), ("logs",), "pane", "save", "Save the shown lines to a file."),
    Action("log.select", ("v",), ("logs",), "pane", "select", "Select lines from here to the cursor, to copy them."),
    Action("log.copy", ("y",), ("logs",), "pane", "copy line", "Copy the selected lines, or the line under the cursor."),
    Action("log.left", ("left",), ("logs",), "pane", "left", "Scroll to the left."),
    Action("log.right", ("right",), ("logs",), "pane", "right", "Scroll to the right."),
    # Charts
    Action("chart.open", ("enter",), ("charts",), "pane", "one chart", "Show one chart in the whole pane, or all charts again.", 1),
    Action("chart.log", ("y",), ("charts",), "pane", "log axis", "Show values on a logarithmic or a linear axis.", 2),
    Action("chart.smooth", ("tilde",), ("charts",), "pane", "smooth", "Smooth by 0, 0.6, 0.9 or 0.97; the measured values stay dim.", 3),
    Action("chart.axis", ("a",), ("charts",), "pane", "x axis", "Draw over steps, over time since the start, or over what the job reports, such as epochs.", 4),
    Action("chart.inspect", ("i",), ("charts",), "pane", "inspect", "Show a cursor at the same step in all charts, with the values under it.", 5),
    Action("chart.left", ("left",), ("charts",), "pane", "left", "Move the cursor, or the view, to the left."),
    Action("chart.right", ("right",), ("charts",), "pane", "right", "Move the cursor, or the view, to the right."),
    Action("chart.zoom-in", ("plus", "equals_sign"), ("charts",), "pane", "zoom in", "Show half of the range, larger."),
    Action("chart.zoom-out", ("minus",), ("charts",), "pane", "zoom out", "Show twice the range."),
    Action("chart.reset", ("0",), ("charts",), "pane", "reset", "Show the whole range of every chart again."),
    Action("chart.fewer-columns", ("less_than_sign",), ("charts",), "pane", "fewer columns", "Show fewer charts side by side, each larger."),
    Action("chart.more-columns", ("greater_than_sign",), ("charts",), "pane", "more columns", "Show more charts side by side."),
    Action("chart.pin", ("space",), ("charts",), "pane", "pin", "Pin this chart at the top, or unpin it."),
    Action("chart.filter", ("slash",), ("charts",), "pane", "filter", "Show only metrics whose name matches.", 6),
)  # fmt: skip

GROUPS: Final = {
    "runs": "List of jobs",
    "job": "Job",
    "log": "Log",
    "chart": "Charts",
    "files": "Files",
    "form": "Form",
    "search": "Search",
    "queue": "Queue",
    "places": "Backends",
    "compare": "Compare",
    "usage": "Usage",
    "run": "Tabs",
    "move": "Moving",
    "app": "Everywhere",
}
"""What help calls actions of a kind, by how their ids begin."""


def group_title(action: Action) -> str:
    """Return what help calls the kind of an action."""
    kind = action.id.partition(".")[0]
    return GROUPS.get(kind, kind.capitalize())


BY_ID: Final = {action.id: action for action in ACTIONS}


def of_pane(pane: str) -> Iterator[Action]:
    """Name every action whose keys work while that pane has the focus."""
    return (action for action in ACTIONS if pane in action.panes)


_TABS_BY_KEY: Final = frozenset({"job.logs", "job.charts"})
"""Tabs that have a key: next to a log or charts the bar of tabs shows them already."""


def footer(pane: str) -> list[Action]:
    """Return what the footer shows for a pane, the most useful first."""
    shown = (
        a for a in of_pane(pane) if a.footer and not (pane in ("logs", "charts") and a.id in _TABS_BY_KEY)
    )
    return sorted(shown, key=lambda action: action.footer)


def key_name(key: str) -> str:
    """Name a key as people do: ``question_mark`` is ``?``."""
    modifiers, _, name = key.rpartition("+")
    return (modifiers + "+" if modifiers else "") + KEY_NAMES.get(name, name)


KEY_NAMES: Final = {
    "dollar_sign": "$",
    "comma": ",",
    "full_stop": ".",
    "question_mark": "?",
    "exclamation_mark": "!",
    "slash": "/",
    "backslash": "\\",
    "colon": ":",
    "minus": "-",
    "plus": "+",
    "equals_sign": "=",
    "tilde": "~",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
}
"""How people name keys for which Textual has another name."""


def bindings(pane: str) -> list[BindingType]:
    """Make Textual's bindings of a pane; an action with a digit for a key is given that digit."""
    from textual.binding import Binding

    made: list[BindingType] = []
    for action in of_pane(pane):
        if takes_number(action):
            made += [
                Binding(key, f"{action.target}({key})", action.title, show=False, id=f"{action.id}.{key}")
                for key in action.keys
            ]
        elif action.keys:
            made.append(Binding(",".join(action.keys), action.target, action.title, show=False, id=action.id))
    return made


def early_bindings(*panes: str) -> list[BindingType]:
    """Make the bindings of a screen, for keys that are typed while it opens and none of its panes has the focus."""
    from textual.binding import Binding

    shared = {action.id: action for pane in panes for action in of_pane(pane)}.values()
    made: list[BindingType] = []
    for action in shared:
        if action.owner == "pane":
            continue
        if takes_number(action):
            made += [
                Binding(key, f"early('{action.id}', {key})", action.title, show=False) for key in action.keys
            ]
        else:
            keys = ",".join(action.keys)
            made.append(
                Binding(keys, f"early('{action.id}')", action.title, show=False, id=EARLY + action.id)
            )
    return made


def takes_number(action: Action) -> bool:
    """Say whether the action's keys are digits, one of which it is given."""
    return bool(action.keys) and all(key.isdigit() for key in action.keys) and len(action.keys) > 1


def keys_shown(action: Action) -> str:
    """Name the keys of an action as help and docs show them: ``j, down``; ``1-9`` for digits."""
    if takes_number(action):
        return f"{action.keys[0]}-{action.keys[-1]}"
    return ", ".join(key_name(key) for key in action.keys)
