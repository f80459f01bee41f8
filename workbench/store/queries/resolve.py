"""From what a person types to a job: id, nine characters, a unique prefix of them, a name, ``@last``, ``@last~1``.

Where no job fits, a search may. ``NAME[17]`` is the 17th job of an array, of a search or of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from workbench.errors import AmbiguousName, UnknownName, UsageError
from workbench.job import ID_ALPHABET, ID_LENGTH, ID_PREFIX, short_id
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

_NUMBERS: Final = r"\d{1,9}(?:(?:\.\.|-)\d{1,9})?"
_LISTED: Final = rf"{_NUMBERS}(?:,{_NUMBERS})*"
_MEMBERS: Final = re.compile(rf"(.*\S)\[({_LISTED})\]")
_SLURM: Final = re.compile(
    rf"((?:{SEARCH_ID_PREFIX})?[{ID_ALPHABET}]{{{ID_LENGTH}}})_(?:(\d{{1,9}})|\[({_LISTED})\])"
)
"""As Slurm has it: no shell expands ``ID_17``. Only behind the whole id of a search, since names end like this, too."""

_MEMBERS_MOST: Final = 1000
"""So many jobs of an array at most are named by one word."""


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
    id or name, a job of an array by its number, the beginning of a job's id, that of a search's with at least three
    letters. So no name of a search stands for a job whose id begins alike.

    Raises:
        UnknownName: it stands for neither.
        AmbiguousName: it stands for several jobs, or for no job and several searches.
        NotMade: it is the job of an array or of a search whose turn has not come.
        UsageError: it stands for several jobs of an array.
    """
    name = text.strip()
    if name.startswith(SEARCH_ID_PREFIX) and (search := experiment(store, name)) is not None:
        return search
    if last := _LAST.fullmatch(name):
        return _nth_last(store, int(last[1] or 0))
    found = (
        _whole_job(store, name, one=one)
        or whole_experiment(store, name)
        or _member(store, name, one=one)
        or _begun_job(store, name)
        or begun_experiment(store, name, letters_min=_SEARCH_PREFIX_MIN)
    )
    if found is None:
        raise _unknown(store, name)
    return found


def each_name(store: Store, names: Iterable[str]) -> Iterator[str]:
    """Yield names of single jobs: ``NAME[1..3,5]`` stands for four jobs of an array.

    Raises:
        UsageError: a name stands for more jobs than may be named so, or a range goes down.
    """
    for text in names:
        found = _with_numbers(store, text.strip())
        if found is None or found[1].isdecimal():
            yield text
        elif _find(store, "name = ?", text.strip()) or whole_experiment(store, text.strip()):
            yield text  # one may be called like this
        else:
            yield from (f"{found[0]}[{number}]" for number in _numbers(text, found[1]))


def _with_numbers(store: Store, text: str) -> tuple[str, str] | None:
    """Return whose jobs a text means, and their numbers; None where it has no numbers."""
    if (found := _SLURM.fullmatch(text)) and whole_experiment(store, found[1]) is not None:
        return found[1], found[2] or found[3]
    return (found[1], found[2]) if (found := _MEMBERS.fullmatch(text)) else None


def _numbers(text: str, numbers: str) -> list[int]:
    found: list[int] = []
    for part in numbers.split(","):
        first, *last = map(int, re.split(r"\.\.|-", part))
        end = last[0] if last else first
        if end < first:
            raise UsageError(f"{text}: {part} has no numbers", hint=f"write {end}..{first}")
        if len(found) + end - first >= _MEMBERS_MOST:
            raise UsageError(
                f"{text} stands for more than {_MEMBERS_MOST:,} jobs",
                hint="`--label sweep=ID` means all jobs of an array that are made, its name the array",
            )
        found += range(first, end + 1)
    return found


def _member(store: Store, name: str, *, one: bool) -> JobRow | None:
    """Return the job of an array, of a search or of a sweep that its number stands for."""
    found = _with_numbers(store, name)
    if found is None:
        return None
    from workbench.store.queries.members import member  # few names are such, and it costs each command 2 ms

    whose, numbers = found
    if not numbers.isdecimal():
        raise UsageError(f"{name} stands for several jobs, and one is asked for", hint="name one of them")
    number = int(numbers)
    if whose == "@last":
        newest = next(iter(experiments(store)), None)
        if newest is None:
            raise UnknownName("there is no array and no search yet", hint="fabric help run says what is one")
        return member(store, newest, number)
    if (search := whole_experiment(store, whose)) is not None:
        if one and search.name == whose:
            _refuse_other(store, search, whose, number)
        return member(store, search, number)
    if (swept := _of_sweep(store, whose, number, one=one)) is not None:
        return swept
    if (search := begun_experiment(store, whose, letters_min=_SEARCH_PREFIX_MIN)) is not None:
        return member(store, search, number)
    if (job := _whole_job(store, whose, one=False) or _begun_job(store, whose)) is not None:
        raise UnknownName(
            f"{whose} is a job ({short_id(job.id)}), and has no others",
            hint="[N] is a job of an array or sweep",
        )
    raise _unknown(store, whose)


def _of_sweep(store: Store, sweep: str, number: int, *, one: bool) -> JobRow | None:
    """Return the job of a sweep with a number, by what the names of its jobs begin with, or by its label.

    Of several sweeps whose jobs are called so it is the newest: numbers of one command are never of two.
    """
    from workbench.store.queries.sweeps import SWEEP  # it costs 10 ms, and few names are such

    begins = f"{sweep}-"
    sql = (
        f"SELECT {SWEEP}, max(seq) FROM jobs WHERE deleted_us IS NULL AND name > ? AND name < ?"
        f" AND substr(name, ?) NOT GLOB '*[^0-9]*' AND labels <> '{{}}' AND {SWEEP} <> '' GROUP BY 1 ORDER BY 2 DESC"
    )
    named = [label for label, _ in store.rows(sql, (begins, begins + "\U0010ffff", len(begins) + 1))]
    rows = _find(store, f"labels <> '{{}}' AND {SWEEP} = ? ORDER BY seq DESC", named[0] if named else sweep)
    if not rows:
        return None
    if len(named) > 1:
        several = f"{len(named)} sweeps have jobs that are called {begins}N"
        if one:
            which = ", ".join(f"{label}[{number}]" for label in named[:_SHOWN])
            raise AmbiguousName(several, hint=f"their labels tell them apart: {which}")
        store.note(f"{several}; this is the newest, with the label sweep={named[0]}")
    numbered = [re.fullmatch(r"(.*-)(\d+)", row.name) for row in rows]
    bases = {begins} if named else {"" if each is None else each[1] for each in numbered}
    if len(bases) > 1 or "" in bases:
        raise UnknownName(
            f"the jobs of the sweep {sweep} have no numbers of one kind",
            hint=f"`fabric list --label sweep={sweep}` lists them",
        )
    found = [
        row
        for row, each in zip(rows, numbered, strict=True)
        if each is not None and each[1] in bases and int(each[2]) == number
    ]
    if not found:
        raise UnknownName(
            f"no job of the sweep {sweep} has the number {number}",
            hint=f"`fabric list --label sweep={named[0] if named else sweep}` lists them",
        )
    if len(found) > 1 and one:
        raise _ambiguous(f"{sweep}[{number}]", found)
    if len(found) > 1:
        store.note(f"{len(found)} jobs fit {sweep}[{number}]; this is the newest, {short_id(found[0].id)}")
    return found[0]


def _refuse_other(store: Store, search: ExperimentRow, name: str, number: int) -> None:
    """Refuse a number behind the name of a search where a job of a sweep is called so, too.

    Raises:
        AmbiguousName: there is such a job.
    """
    names = [f"{name}-{number:0{digits}}" for digits in range(1, 5)]
    marks = ", ".join("?" * len(names))
    others = _find(
        store, f"name IN ({marks}) AND labels <> '{{}}' AND ifnull(parent, '') <> ?", *names, search.id
    )
    if others:
        short = short_experiment_id(search.id)
        raise AmbiguousName(
            f"'{name}[{number}]' fits a job of {short} and {short_id(others[0].id)} ({others[0].name})",
            hint=f"write {short}[{number}], or {others[0].name}",
        )


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
