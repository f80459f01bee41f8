"""From what a person types to a job: id, nine characters, a unique prefix of them, a name, ``@last``, ``@last~1``.

Where no job fits, a search may.
"""

from __future__ import annotations

import re
from typing import Final

from workbench.errors import AmbiguousName, UnknownName
from workbench.job import ID_PREFIX, short_id
from workbench.store.db.database import Store
from workbench.store.db.rows import JOB_COLUMNS, JobRow, job_row
from workbench.store.queries.experiments import (
    ID_PREFIX as SEARCH_ID_PREFIX,
)
from workbench.store.queries.experiments import (
    ExperimentRow,
    begun_experiment,
    experiment,
    experiments,
    short_experiment_id,
    whole_experiment,
)

_SHOWN: Final = 5
"""So many candidates are named."""

_SEARCH_PREFIX_MIN: Final = 3
"""So many letters of a search's id stand for it where a command takes jobs."""

_LAST: Final = re.compile(r"@last(?:~(\d{1,9}))?")


def resolve(store: Store, text: str, *, one: bool = False) -> JobRow:
    """Return the job that a text stands for. A whole id goes before a name, a name before a prefix.

    Of several jobs with one name it is the newest, which the store's note says; with ``one`` that is refused.

    Raises:
        UnknownName: it stands for none; the hint names the nearest, or how to get at the jobs of the search that it is.
        AmbiguousName: it is the beginning of several ids, or with ``one`` the name of several jobs; they are named.
    """
    found = resolve_any(store, text, one=one)
    if isinstance(found, JobRow):
        return found
    short = short_experiment_id(found.id)
    raise UnknownName(
        f"{text.strip()} is a search, not a job",
        hint=f"`fabric experiment trials {short}` lists its jobs; `--where labels:sweep={short}` and"
        f" `--label sweep={short}` mean all of them in commands that have one of these",
    )


def resolve_any(store: Store, text: str, *, one: bool = False) -> JobRow | ExperimentRow:
    """Return the job or the search that a text stands for.

    In this order: a search's whole id with what is in front of the nine letters, a job's id, a job's name, a search's
    id or name, the beginning of a job's id, that of a search's with at least three letters. So no name of a search
    stands for a job whose id begins alike.

    Raises:
        UnknownName: it stands for neither.
        AmbiguousName: it stands for several jobs, or for no job and several searches.
    """
    name = text.strip()
    if name.startswith(SEARCH_ID_PREFIX) and (search := experiment(store, name)) is not None:
        return search
    if last := _LAST.fullmatch(name):
        return _nth_last(store, int(last[1] or 0))
    found = (
        _whole_job(store, name, one=one)
        or whole_experiment(store, name)
        or _begun_job(store, name)
        or begun_experiment(store, name, letters_min=_SEARCH_PREFIX_MIN)
    )
    if found is None:
        raise _unknown(store, name)
    return found


def _whole_job(store: Store, name: str, *, one: bool) -> JobRow | None:
    """Return the job with such an id or name."""
    body = short_id(name.lower())
    if found := _find(store, "id = ?", ID_PREFIX + body):
        return found[0]
    if found := _find(store, "name = ? ORDER BY seq DESC", name):
        if len(found) > 1 and one:
            raise _ambiguous(name, found)
        if len(found) > 1:
            store.note(
                f"{len(found)} jobs have the name {name!r}; this is the newest, {short_id(found[0].id)}"
            )
        return found[0]
    return None


def _begun_job(store: Store, name: str) -> JobRow | None:
    """Return the job whose id begins so."""
    body = short_id(name.lower())
    found = _by_prefix(store, body) if body else []
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0] if found else None


def _nth_last(store: Store, back: int) -> JobRow:
    """Return the newest job, or one that was submitted so many before it."""
    if found := _find(store, "1 ORDER BY seq DESC LIMIT 1 OFFSET ?", back):
        return found[0]
    (count,) = store.row("SELECT count(*) FROM jobs WHERE deleted_us IS NULL") or (0,)
    if not count:
        raise UnknownName("there are no jobs yet", hint="fabric run starts one")
    raise UnknownName(f"there is no job @last~{back}", hint=f"the oldest is @last~{count - 1}")


def _find(store: Store, where: str, *values: str | int) -> list[JobRow]:
    rows = store.rows(f"SELECT {JOB_COLUMNS} FROM jobs WHERE deleted_us IS NULL AND {where}", values)
    return [job_row(row, store.looked_us) for row in rows]


def _by_prefix(store: Store, body: str) -> list[JobRow]:
    # A range, so that the index of ids is used.
    low = ID_PREFIX + body
    return _find(store, "id >= ? AND id < ? ORDER BY seq DESC", low, low + "\U0010ffff")


def _ambiguous(name: str, found: list[JobRow]) -> AmbiguousName:
    named = [f"{short_id(row.id)} ({row.name}, {row.state})" for row in found[:_SHOWN]]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return AmbiguousName(
        f"{name!r} fits {len(found)} jobs: {', '.join(named)}{more}", hint="give more characters of the id"
    )


def _unknown(store: Store, name: str) -> UnknownName:
    from difflib import get_close_matches

    rows = store.rows("SELECT id, name FROM jobs WHERE deleted_us IS NULL ORDER BY seq DESC LIMIT 1000")
    names = {short_id(job_id): short_id(job_id) for job_id, _ in rows} | {name: name for _, name in rows}
    names |= {each.name: each.name for each in experiments(store)}
    near = get_close_matches(short_id(name), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "fabric list shows the jobs there are"
    return UnknownName(f"there is no job {name!r}", hint=hint)
