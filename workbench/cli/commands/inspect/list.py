"""``fabric list``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from workbench.cli.framework.completion import column_names, sort_names, state_names
from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Backend, Json, Where
from workbench.terminal.console import is_terminal, narrate, state_style, width
from workbench.terminal.harmless import harmless, write_controls

if TYPE_CHECKING:
    from workbench.services.inspect.job_query import FoldedLines, FoundJobs, JobQuery
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentSummary

SHOWN = 50
"""How many jobs are shown by default."""

POLL_SECONDS: Final = 0.1
REDRAW_SECONDS: Final = 1.0
"""How often a watched list is redrawn where nothing but times changes."""

CURSOR_HOME: Final = "\x1b[H"
CLEAR_BELOW: Final = "\x1b[J"
CLEAR_LINE: Final = "\x1b[K"
SCREEN: Final = ("\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l")
"""The terminal's second screen without a cursor, and back."""

NARROW: Final = ("name", "why", "time", "backend", "exit", "submitted", "gpus")
"""The usual columns that a narrow terminal has no room for, the last one first."""

Text = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help="Only jobs with this in their name or id.")
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-s",
        metavar="STATE",
        help="Only this state (repeatable); `open`: jobs that have not ended.",
        autocompletion=state_names,
    ),
]
Label = Annotated[
    str | None, typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only jobs with this label.")
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="KEY",
        help="Sort by a field, params.NAME, label.NAME or a metric, ascending; `-KEY` sorts descending.",
        autocompletion=sort_names,
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        "-c",
        metavar="A,B,...",
        help="Columns to show: fields of the job, params.NAME, label.NAME, metrics; `+A` adds to the default ones.",
        autocompletion=column_names,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Redraw on every change, until ctrl-c.")]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, metavar="N", help=f"How many; default: {SHOWN}.")
]
All = Annotated[bool, typer.Option("--all", "-a", help="All jobs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only, one per line.")]


@command(
    "list",
    "fabric list",
    "fabric list --state failed --limit 10",
    "fabric list digits --json",
    "fabric list --where 'state:done loss<0.3' --sort loss --columns id,name,params.lr,loss",
    "fabric list --where is:open --watch",
)
def list_jobs(
    text: Text = None,
    state: States = None,
    backend: Backend = "",
    label: Label = None,
    where: Where = None,
    sort: Sort = "",
    columns: Columns = "",
    watch: Watch = False,
    limit: Limit = None,
    all: All = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """List jobs, newest first.

    The trials of a search are one line, unless --all or anything else says which jobs are meant.
    `fabric help filters` explains --where. --json prints an array of all matching jobs (with --limit the
    first N), each with id, state, reason and exit_code; with --watch, one line for each job that changed.
    """
    from workbench.services.follow.full_disk import store_trouble
    from workbench.services.inspect.job_query import FoundJobs, JobQuery, find, find_folded, read_states
    from workbench.services.open_store import existing_store
    from workbench.terminal.errors import warn

    shown = limit or (None if all or json or quiet else SHOWN)
    states = read_states(state or [])
    query = JobQuery(states, backend, text or "", label or "", tuple(where or ()), sort, shown)
    names = _columns(columns)
    folds = not (all or quiet or json or columns or sort or query.is_filtered)
    with existing_store() as store:
        if watch and store is not None:
            _watch_list(store, lambda: _page(store, query, names, folds=folds), json=json)
            return
        folded = find_folded(store, shown) if store and folds and shown else None
        if store and folded:
            open_search = folded.has_open_search
            if trouble := store_trouble(store.home, folded.rows, shows_open_search=open_search):
                warn(trouble)
            sys.stdout.write(_table(store, folded.lines, names))
            if folded.count > len(folded.lines):
                narrate(f"{_cut_folded(folded)}; --all shows the rest")
            return
        found = find(store, query) if store else FoundJobs((), has_more=False)
        if store is not None and (trouble := store_trouble(store.home, found.rows)):
            warn(trouble)
        if json:
            from workbench.services.inspect.job_document import job_document
            from workbench.terminal.json_output import print_document

            print_document([job_document(row) for row in found.rows])
        elif quiet:
            sys.stdout.write("".join(f"{row.id}\n" for row in found.rows))
        else:
            _print_table(store, query, found, names)


def _columns(text: str) -> tuple[str, ...]:
    from workbench.services.inspect.list_columns import USUAL, column_field

    typed = [name for name in text.replace(" ", "").split(",") if name]
    plain = [name.removeprefix("+") for name in typed]
    names = [name if (field := column_field(name)) is None else field.name for name in plain]
    if any(name.startswith("+") for name in typed):
        return (*USUAL[:-1], *names, USUAL[-1])
    return tuple(names) or USUAL


def _print_table(store: Store | None, query: JobQuery, found: FoundJobs, names: tuple[str, ...]) -> None:
    if not found.rows:
        if query.is_filtered:
            narrate("no matching jobs; `fabric list --all` shows all jobs")
        else:
            narrate("no jobs; `fabric run MANIFEST` or `fabric run -- COMMAND` starts one")
        return
    sys.stdout.write(_table(store, found.rows, names))
    if store and found.has_more:
        narrate(f"{_cut(store, query)}; --all shows the rest")


def _cut(store: Store, query: JobQuery) -> str:
    from workbench.services.inspect.job_query import count_found

    return f"showing {query.limit or 0:,} of {count_found(store, query):,}"


def _cut_folded(folded: FoldedLines) -> str:
    return f"showing {len(folded.lines):,} of {folded.count:,}"


def _page(store: Store, query: JobQuery, names: tuple[str, ...], *, folds: bool) -> tuple[list[JobRow], str]:
    """Return what is watched: the jobs, and the table of them."""
    from workbench.services.inspect.job_query import find, find_folded

    if folds and query.limit and (folded := find_folded(store, query.limit)):
        more = f"{_cut_folded(folded)}\n" if folded.count > len(folded.lines) else ""
        return list(folded.rows), _table(store, folded.lines, names) + more
    found = find(store, query)
    if not found.rows:
        return [], "no matching jobs\n"
    more = f"{_cut(store, query)}\n" if found.has_more else ""
    return list(found.rows), _table(store, found.rows, names) + more


def _table(store: Store | None, lines: Sequence[JobRow | ExperimentSummary], names: tuple[str, ...]) -> str:
    from workbench.clock import now_us
    from workbench.services.inspect.list_columns import USUAL, cells_of, column_field, search_cells
    from workbench.store.db.rows import JobRow
    from workbench.terminal.table import Column, render

    now = now_us()
    states = [str(line.state if isinstance(line, JobRow) else line.row.state) for line in lines]
    may_drop = names == USUAL and (is_terminal(sys.stdout) or "COLUMNS" in os.environ)

    def paint(text: str, number: int) -> str:
        return state_style(states[number], text, sys.stdout)

    made = [
        Column(
            name if field is None else field.name.upper(),
            right=field is None or field.right,
            stretch=field is not None and field.stretch,
            paint=paint if name == "state" else None,
            drop=NARROW.index(name) + 1 if may_drop and name in NARROW else 0,
        )
        for name, field in ((name, column_field(name)) for name in names)
    ]
    jobs = iter(cells_of(store, names, [line for line in lines if isinstance(line, JobRow)], now))
    cells = [
        next(jobs) if isinstance(line, JobRow) or store is None else search_cells(store, names, line, now)
        for line in lines
    ]
    return render(made, cells, width=width(120))


def _watch_list(store: Store, page: Callable[[], tuple[list[JobRow], str]], *, json: bool) -> None:
    """Show what ``page`` returns until ctrl-c; with ``json`` one line for each job that changed."""
    if json:
        _watch_json(store, page)
        return
    drawn = is_terminal(sys.stdout)
    if drawn:
        write_controls(sys.stdout, SCREEN[0])
    try:
        shown = ""
        for _ in _moments(store, REDRAW_SECONDS if drawn else None):
            _, text = page()
            if drawn:
                _draw(text)
            elif text != shown:
                sys.stdout.write(text if not shown else f"\n{text}")
                sys.stdout.flush()
            shown = text
    finally:
        if drawn:
            write_controls(sys.stdout, SCREEN[1])
            sys.stdout.flush()


def _watch_json(store: Store, page: Callable[[], tuple[list[JobRow], str]]) -> None:
    from workbench.services.inspect.job_document import job_event
    from workbench.terminal.json_output import print_event

    shown: dict[str, int] = {}
    for _ in _moments(store, None):
        for row in page()[0]:
            if shown.get(row.id) != row.revision:
                shown[row.id] = row.revision
                print_event(job_event(row, "job"))


def _moments(store: Store, redraw_seconds: float | None) -> Iterator[None]:
    """Yield at once, when the store has changed, and where it is asked for when so much time has passed."""
    from contextlib import nullcontext

    from workbench.services.follow.keeper import Keeper
    from workbench.store.db.home_folder import is_home
    from workbench.store.queries.jobs import open_jobs

    with Keeper(store.home) if open_jobs(store) and is_home(store.home) else nullcontext():
        version, due = -1, 0.0
        while True:
            now = time.monotonic()
            if (found := store.data_version()) != version or (redraw_seconds is not None and now >= due):
                version, due = found, now + (redraw_seconds or 0.0)
                yield
            time.sleep(POLL_SECONDS)


def _draw(text: str) -> None:
    import shutil

    lines = text.splitlines()[: max(1, shutil.get_terminal_size().lines - 1)]
    drawn = "".join(f"{harmless(line)}{CLEAR_LINE}\n" for line in lines)
    write_controls(sys.stdout, CURSOR_HOME + drawn + CLEAR_BELOW)
    sys.stdout.flush()
