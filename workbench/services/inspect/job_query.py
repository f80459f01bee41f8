"""Finds jobs: by state, backend, text, label and filter, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.job import State
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import ExperimentSummary


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs are meant; what is empty excludes none."""

    states: tuple[State, ...] = ()
    backend: str = ""
    text: str = ""
    """Part of the name, the id, or another text of the job."""
    label: str = ""
    """``key`` or ``key=value``."""
    where: tuple[str, ...] = ()
    """Filters, as ``--where`` takes them; all of them have to fit."""
    sort: str = ""
    """A field, param, label or metric, ``-`` before it for the greatest first; empty: the newest job first."""
    limit: int | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether jobs may be left out of the result, but for its limit."""
        return bool(self.states or self.backend or self.text or self.label or self.where)


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """The jobs that fit a query."""

    rows: tuple[JobRow, ...]
    """At most as many as the query's limit."""
    has_more: bool
    """Whether more fit; :func:`count_found` says how many."""


def find(store: Store, query: JobQuery) -> FoundJobs:
    """Find jobs.

    Raises:
        UsageError: a filter or the order cannot be read, or names a metric that no job has.
    """
    from workbench.services.follow.full_disk import with_stall

    rows = _read(store, query, None if query.limit is None else query.limit + 1)
    shown = tuple(with_stall(store.home, row) for row in rows[: query.limit])
    return FoundJobs(shown, query.limit is not None and len(rows) > query.limit)


@dataclass(frozen=True, slots=True)
class FoldedLines:
    """The newest jobs, where all trials of a search are one line that stands where the newest of them does."""

    lines: tuple[JobRow | ExperimentSummary, ...]
    count: int
    """How many lines there are without the limit."""

    @property
    def rows(self) -> tuple[JobRow, ...]:
        """The lines that are jobs."""
        from workbench.store.db.rows import JobRow

        return tuple(line for line in self.lines if isinstance(line, JobRow))

    @property
    def has_open_search(self) -> bool:
        """Whether a line is a search that is not over."""
        from workbench.store.queries.experiments import ExperimentSummary

        return any(isinstance(line, ExperimentSummary) and line.row.is_open for line in self.lines)


def find_folded(store: Store, limit: int) -> FoldedLines | None:
    """Find the newest jobs and searches, at most so many together; None where there is no search."""
    from workbench.services.follow.full_disk import with_stall
    from workbench.store.db.rows import JobRow
    from workbench.store.queries.experiments import summaries
    from workbench.store.queries.jobs import count_without_trials, list_jobs

    # One that has just been begun has no job yet; one that is over and whose jobs are deleted is not shown.
    searches = [each for each in summaries(store) if each.newest_seq is not None or each.row.is_open]
    if not searches:
        return None
    jobs = list_jobs(store, without_trials=True, limit=limit)
    lines: list[tuple[float, int, JobRow | ExperimentSummary]] = [(row.seq, 0, row) for row in jobs]
    for each in searches:
        at = float("inf") if each.newest_seq is None else each.newest_seq
        lines.append((at, each.row.created_us, each))
    lines.sort(key=lambda line: line[:2], reverse=True)
    shown = tuple(
        with_stall(store.home, line) if isinstance(line, JobRow) else line for _, _, line in lines[:limit]
    )
    return FoldedLines(shown, count_without_trials(store) + len(searches))


def _read(store: Store, query: JobQuery, limit: int | None) -> list[JobRow]:
    if not (query.where or query.sort):
        from workbench.store.queries.jobs import list_jobs

        return list_jobs(
            store,
            states=query.states or None,
            backend=query.backend or None,
            text=query.text or None,
            label=query.label or None,
            limit=limit,
        )
    from workbench.clock import now_us
    from workbench.services.filters import read_sort, read_where
    from workbench.store.queries.job_list import listed
    from workbench.store.queries.jobs import conditions

    key, descending = read_sort(store, query.sort)
    more, values = conditions(
        states=query.states or None,
        backend=query.backend or None,
        text=query.text or None,
        label=query.label or None,
    )
    where = read_where(store, list(query.where))
    return listed(
        store, more, values, where=where, sort=key, descending=descending, now_us=now_us(), limit=limit
    )


def count_found(store: Store, query: JobQuery) -> int:
    """Return how many jobs fit a query, whatever its limit."""
    if replace(query, states=()).is_filtered:
        return len(_read(store, query, None))
    from workbench.store.queries.jobs import count_jobs

    counts = count_jobs(store).items()
    return sum(count for state, count in counts if not query.states or state in query.states)


def read_states(texts: Sequence[str]) -> tuple[State, ...]:
    """Read names of states, several of them with commas or blanks between; ``open`` stands for those not ended.

    Raises:
        UnknownName: a name is none of a state; the hint names the nearest.
    """
    from workbench.errors import UnknownName
    from workbench.job import TERMINAL, State

    states: list[State] = []
    for text in ",".join(texts).replace(",", " ").split():
        if text.lower() == "open":
            states += [state for state in State if state not in TERMINAL]
        elif text.upper() in State.__members__:
            states.append(State[text.upper()])
        else:
            from workbench.manifest.yaml.faults import nearest

            known = [*(state.lower() for state in State), "open"]
            close = nearest(text, known)
            hint = f"did you mean {close}?" if close else f"states are {', '.join(known)}"
            raise UnknownName(f"there is no state '{text}'", hint=hint)
    return tuple(states)
