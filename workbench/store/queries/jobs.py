"""Reading jobs: one, many, those that are open, and what only a job's own page needs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from workbench.errors import UnknownName
from workbench.job import State
from workbench.store.db.database import Store
from workbench.store.db.rows import (
    ATTEMPT_COLUMNS,
    JOB_COLUMNS,
    TRANSITION_COLUMNS,
    AttemptRow,
    JobDetail,
    JobRow,
    TransitionRow,
    attempt_row,
    job_row,
    transition_row,
)
from workbench.store.db.schema import OF_EXTERNAL_TRIALS
from workbench.store.history.job_file import detail_from, read_job_document, with_changes

_OPEN: Final = "(state NOT IN ('COMPLETED', 'FAILED', 'HALTED') OR intent <> '' OR next_try_us IS NOT NULL)"
"""Exactly the condition of the index ``jobs_open``, else SQLite does not use it."""


def job(store: Store, job_id: str) -> JobRow | None:
    """Return a job by its whole id, a deleted one too; None when there never was one."""
    found = store.row(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,))
    return job_row(found, store.looked_us) if found else None


def jobs_by_id(store: Store, job_ids: Iterable[str]) -> list[JobRow]:
    """List those of the jobs that are not deleted, newest first."""
    sql = (
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE id IN (SELECT value FROM json_each(?)) "
        "AND deleted_us IS NULL ORDER BY seq DESC"
    )
    return [job_row(row) for row in store.rows(sql, (json.dumps(list(job_ids)),))]


def jobs_of_trial(store: Store, experiment_note: str, trial_note: str, *, limit: int) -> list[JobRow]:
    """List the newest jobs that have saved checkpoints and noted the external ids of an experiment and a trial.

    Found by what their code has noted, and not by what is known as they are submitted: that is what their checkpoints
    belong to, whatever the script seemed to say, and a job that has not noted it has saved none.
    """
    sql = (
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE deleted_us IS NULL"
        f" AND id IN (SELECT job_id FROM notes WHERE text = ? AND {OF_EXTERNAL_TRIALS})"
        " AND EXISTS (SELECT 1 FROM notes WHERE job_id = jobs.id AND text = ?)"
        " AND EXISTS (SELECT 1 FROM checkpoints WHERE job_id = jobs.id) ORDER BY seq DESC LIMIT ?"
    )
    return [job_row(row, store.looked_us) for row in store.rows(sql, (trial_note, experiment_note, limit))]


def find_jobs(store: Store, words: Iterable[str], *, limit: int) -> tuple[JobRow, ...]:
    """Return the newest jobs in whose name, id, labels or tags each of the words stands, whatever its case.

    A label is written as ``NAME=VALUE``.
    """
    wanted = [word for word in words if word]
    text = (
        "lower(name || ' ' || id || ' ' || replace(replace(labels, '\":\"', '='), '\"', ' ') || ' ' || tags)"
    )
    conditions = " AND ".join(["deleted_us IS NULL", *(f"instr({text}, ?)" for _ in wanted)])
    sql = f"SELECT {JOB_COLUMNS} FROM jobs WHERE {conditions} ORDER BY seq DESC LIMIT ?"
    return tuple(
        job_row(row, store.looked_us) for row in store.rows(sql, (*(word.lower() for word in wanted), limit))
    )


_ON_ITS_OWN: Final = f"""(
  trial IS NULL OR parent IS NULL OR parent NOT IN (SELECT id FROM experiments)
  OR ({_OPEN} AND parent NOT IN (SELECT id FROM experiments WHERE ended_us IS NULL)))"""
"""Jobs that no line of a search stands for: a trial is one, too, that a person resumed after its search was over."""


def count_without_trials(store: Store) -> int:
    """Count the jobs that :func:`list_jobs` lists without trials."""
    row = store.row(f"SELECT count(*) FROM jobs WHERE deleted_us IS NULL AND {_ON_ITS_OWN}")
    return int(row[0]) if row else 0


def list_jobs(
    store: Store,
    *,
    states: Iterable[State] | None = None,
    backend: str | None = None,
    text: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    parent: str | None = None,
    without_trials: bool = False,
    limit: int | None = None,
    before_seq: int | None = None,
) -> list[JobRow]:
    """List jobs, newest first, without the deleted ones.

    Args:
        store: The store.
        states: Only jobs in one of these states.
        backend: Only jobs of the backend with this name.
        text: Only jobs that have this somewhere in id, name, owner, backend, tags, labels or note, in any case.
        label: Only jobs with this label, ``key`` or ``key=value``.
        owner: Only jobs of this owner.
        parent: Only jobs that belong to this experiment or job.
        without_trials: Only jobs that are no trials of a search which is known, and trials that go on after it.
        limit: At most so many; the next page starts at ``before_seq`` of the last row.
        before_seq: Only jobs that were submitted before the one with this ``seq``.
    """
    where, values = conditions(
        states=states, backend=backend, text=text, label=label, owner=owner, parent=parent
    )
    if without_trials:
        where.append(_ON_ITS_OWN)
    if before_seq is not None:
        where.append("seq < :before_seq")
        values["before_seq"] = before_seq
    page = "" if limit is None else f" LIMIT {int(limit)}"
    sql = f"SELECT {JOB_COLUMNS} FROM jobs WHERE {' AND '.join(where)} ORDER BY seq DESC{page}"
    return [job_row(row, store.looked_us) for row in store.rows(sql, values)]


def conditions(
    *,
    states: Iterable[State] | None = None,
    backend: str | None = None,
    text: str | None = None,
    label: str | None = None,
    owner: str | None = None,
    parent: str | None = None,
) -> tuple[list[str], dict[str, Any]]:
    """Return what :func:`list_jobs` asks of the table ``jobs``, as conditions and the values they name."""
    where, values = ["deleted_us IS NULL"], dict[str, Any]()
    if states is not None:
        state_values = {f"state_{number}": state for number, state in enumerate(states)}
        where.append(f"state IN ({', '.join(f':{name}' for name in state_values)})")
        values |= state_values
    for column, value in (("backend", backend), ("owner", owner), ("parent", parent)):
        if value is not None:
            where.append(f"{column} = :is_{column}")
            values[f"is_{column}"] = value
    if text:
        where.append(
            "(id || char(10) || name || char(10) || owner || char(10) || backend || char(10) || tags "
            "|| char(10) || labels || char(10) || note) LIKE :has_text ESCAPE '\\'"
        )
        values["has_text"] = f"%{_escaped(text)}%"
    if label is not None:
        key, given, value = label.partition("=")
        more = " AND value = :label_value)" if given else ")"
        where.append("EXISTS (SELECT 1 FROM json_each(labels) WHERE key = :label_key" + more)
        values |= {"label_key": key, "label_value": value} if given else {"label_key": key}
    return where, values


def open_jobs(store: Store) -> list[JobRow]:
    """List the jobs that the controller has to look after, oldest first.

    Not ended, or with an intent or restart due.
    """
    sql = f"SELECT {JOB_COLUMNS} FROM jobs WHERE deleted_us IS NULL AND {_OPEN} ORDER BY seq"
    return [job_row(row, store.looked_us) for row in store.rows(sql)]


def has_open_jobs(store: Store) -> bool:
    """Say whether there is a job that the controller has to look after."""
    return store.row(f"SELECT 1 FROM jobs WHERE deleted_us IS NULL AND {_OPEN} LIMIT 1") is not None


def has_open_searches(store: Store) -> bool:
    """Say whether a search for hyper-parameters has not ended, or is to be deleted; most homes have never had one."""
    tables = store.rows("SELECT name FROM sqlite_master WHERE name IN ('experiments', 'deleted_experiments')")
    found = {str(name) for (name,) in tables}
    if "experiments" not in found:
        return False
    if store.row("SELECT 1 FROM experiments WHERE ended_us IS NULL LIMIT 1") is not None:
        return True
    # An older version has no such table, and ends a search that is to be deleted.
    return (
        "deleted_experiments" in found and store.row("SELECT 1 FROM deleted_experiments LIMIT 1") is not None
    )


def changed_jobs(store: Store, since: int) -> list[JobRow]:
    """List the jobs, deleted ones too, that changed after a :func:`revision` was read.

    Oldest change first.
    """
    sql = f"SELECT {JOB_COLUMNS} FROM jobs WHERE revision > ? ORDER BY revision"
    return [job_row(row, store.looked_us) for row in store.rows(sql, (since,))]


def count_jobs(store: Store) -> dict[State, int]:
    """Count the jobs that are not deleted, by state."""
    sql = "SELECT state, count(*) FROM jobs WHERE deleted_us IS NULL GROUP BY state"
    return {State(state): count for state, count in store.rows(sql)}


def deleted_jobs(store: Store) -> list[JobRow]:
    """List the tombstones."""
    sql = f"SELECT {JOB_COLUMNS} FROM jobs WHERE deleted_us IS NOT NULL ORDER BY seq"
    return [job_row(row, store.looked_us) for row in store.rows(sql)]


def counters(store: Store) -> dict[str, int]:
    """Return the revision counter of each table that a screen reads, by its name."""
    return dict(store.rows("SELECT name, value FROM counters"))


def revision(store: Store) -> int:
    """Return a number that grows whenever any job's row changes."""
    return store.counter("jobs")


def detail(store: Store, job_id: str) -> JobDetail:
    """Return a job with all that was recorded when it was submitted, and what its attempt has instead.

    Raises:
        UnknownName: there is no such job.
        InputMissing: its ``job.json`` cannot be read.
    """
    row = job(store, job_id)
    if row is None:
        raise UnknownName(f"there is no job {job_id}", hint="fabric list shows those there are")
    document = read_job_document(store.home, job_id)
    return detail_from(with_changes(store.home, document, row.attempt), row)


def attempts(store: Store, job_id: str) -> list[AttemptRow]:
    """List a job's attempts, the first one first."""
    sql = f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE job_id = ? ORDER BY attempt"
    return [attempt_row(row) for row in store.rows(sql, (job_id,))]


def attempts_by_reason(store: Store, *parts: str) -> list[tuple[str, int]]:
    """List the attempts, by job and number, whose reason has one of these parts."""
    sql = f"SELECT job_id, attempt FROM attempts WHERE {' OR '.join(['instr(reason, ?) > 0'] * len(parts))}"
    return [(str(job_id), int(attempt)) for job_id, attempt in store.rows(sql, parts)]


def transitions(store: Store, job_id: str, *, after: int = 0) -> list[TransitionRow]:
    """List a job's history in order; ``after`` is the ``id`` of the last one that is known."""
    sql = f"SELECT {TRANSITION_COLUMNS} FROM transitions WHERE job_id = ? AND id > ? ORDER BY id"
    return [transition_row(row) for row in store.rows(sql, (job_id, after))]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
