"""The filter language of lists: ``state:running backend:gpubox loss<0.3 tag:a !done words``, as SQL.

Terms are separated by blanks and must all hold; ``!`` negates one. A term is

* ``field:text``, where text may be ``/a regular expression/``, ``"quoted"`` or several with ``|`` between
  them. Fields are those of :data:`TEXTS`, ``state`` (a state, or queued, running, done, failed, stopped),
  ``tag``, ``label`` (``label:team=a``);
* ``name<0.3`` or ``min(name)<0.3`` with ``<``, ``<=``, ``>``, ``>=``, ``=`` (or ``==``) or ``!=``: a number of
  the job (:data:`NUMBERS`; ``age<2h``) or else a metric, as ``metric_values`` says: its last, least (``min``) or
  greatest (``max``) value;
* ``is:problem`` (failed, or waiting with a fault) and ``is:open`` (something of it goes on or is to come);
* ``has:loss``, whether a metric of that name was reported;
* a word, ``"several words"`` or ``/a regular expression/``, looked for in name, id, reason, tags and note;
  the word of a state is that state, too.

Upper and lower case are the same. The connection must know ``REGEXP`` (:func:`teach`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from workbench.errors import UsageError
from workbench.job import State
from workbench.store.queries.metric_values import (
    names_metric,
    read_metric,
    read_number,
    teach_values,
    value_sql,
)

STATES: Final = {
    "queued": (State.QUEUED, State.PENDING),
    "running": (State.DOWNLOADING, State.PROCESSING, State.STORING),
    "done": (State.COMPLETED,),
    "stopped": (State.HALTED,),
    **{state.lower(): (state,) for state in State if state is not State.QUEUED},
}
"""Words of states, and which states they stand for."""

TEXTS: Final = {
    "name": "jobs.name",
    "id": "jobs.id",
    "backend": "jobs.backend",
    "runner": "json_extract(jobs.place, '$.runner')",
    "owner": "jobs.owner",
    "reason": "jobs.reason",
    "code": "jobs.reason_code",
    "note": "jobs.note",
    "parent": "coalesce(jobs.parent, '')",
}
"""Fields of text, and where they are."""

NUMBERS: Final = {
    "exit": "jobs.exit_code",
    "attempt": "jobs.attempt",
    "learners": "jobs.learners",
    "gpus": "jobs.gpus",
    "restarts": "jobs.restarts + jobs.platform_restarts",
    "age": "(:now_us - jobs.submitted_us) / 1e6",
    "time": "(coalesce(jobs.ended_us, :now_us) - jobs.started_us) / 1e6",
}
"""Fields of numbers; age and time are in seconds, and may be written ``90s``, ``5m``, ``2h``, ``3d``."""

IS: Final = {
    "problem": "jobs.state = 'FAILED' OR jobs.reason_code GLOB '[CS]*'",
    "open": "jobs.state NOT IN ('COMPLETED', 'FAILED', 'HALTED') OR jobs.intent <> '' "
    "OR jobs.next_try_us IS NOT NULL",
}
"""What a job can be."""

_ANYWHERE: Final = ("jobs.name", "jobs.id", "jobs.reason", "jobs.tags", "jobs.note")
_COMPARED = re.compile(r"((?:last|min|max)\([^()]+\)|[^\s<>=!:]+)(<=|>=|!=|==|<|>|=)([^\s<>=]+)")
_FUNCTION = re.compile(r"!*(?:last|min|max)\([^()]*\)", re.IGNORECASE)
_COMPARING = re.compile(r"[<>]|[=!]=")
"""A term with one of these is meant as a comparison, not as a text to search for."""


class WhereError(UsageError):
    """A filter that cannot be read; ``start`` and ``end`` say which part of its text is wrong."""

    def __init__(self, message: str, start: int, end: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = end


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter that was read."""

    sql: str = "1"
    """A condition on the table ``jobs``; it may name ``:now_us``, and the keys of ``values``."""
    values: tuple[tuple[str, str | float], ...] = ()
    terms: tuple[str, ...] = ()
    """Each term as it was written, for chips."""
    metrics: tuple[tuple[str, int, int], ...] = ()
    """Each metric that is named, with begin and end of its term in the text."""


def parse(text: str) -> JobFilter:
    """Read a filter.

    Raises:
        WhereError: says which part is wrong, and why.
    """
    builder = _Builder()
    conditions, terms = [], []
    named: list[tuple[str, int, int]] = []
    for start, term in _terms(text):
        terms.append(term)
        inverse = len(term) - len(term.lstrip("!"))
        body = term[inverse:]
        if not body:
            raise WhereError(
                f"{term!r} must be followed by a term",
                start,
                start + len(term),
                hint="write !done or !tag:old",
            )
        before = len(builder.metrics)
        try:
            condition = builder.condition(body)
            named += [(name, start, start + len(term)) for name in builder.metrics[before:]]
        except _Wrong as wrong:
            raise WhereError(wrong.message, start, start + len(term), hint=wrong.hint) from None
        conditions.append(f"NOT coalesce({condition}, 0)" if inverse % 2 else condition)
    sql = " AND ".join(f"({condition})" for condition in conditions) or "1"
    return JobFilter(sql, tuple(builder.values.items()), tuple(terms), tuple(named))


def teach(connection: sqlite3.Connection) -> None:
    """Define ``REGEXP`` on a connection: SQLite has the operator but no function for it."""
    teach_values(connection)
    connection.create_function("regexp", 2, _matches, deterministic=True)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _matches(pattern: str, value: object) -> bool:
    return value is not None and _compiled(pattern).search(str(value)) is not None


def _terms(text: str) -> Iterator[tuple[int, str]]:
    """Split at blanks outside quotes and /regular expressions/, and name where each term starts."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end = _end(text, at)
        yield at, text[at:end]
        at = end


def _end(text: str, start: int) -> int:
    closing = ""
    function = _FUNCTION.match(text, start)  # a metric's name may have blanks in it
    for at in range(function.end() if function else start, len(text)):
        sign = text[at]
        if closing:
            if sign == closing and text[at - 1] != "\\":
                closing = ""
        elif sign.isspace():
            return at
        elif sign == '"' or (sign == "/" and (at == start or text[at - 1] in ":!|")):
            closing = sign
    if closing:
        raise WhereError(f"{closing} is not closed", start, len(text), hint=f"end it with {closing}")
    return len(text)


class _Wrong(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class _Builder:
    """Turns terms into SQL, keeping what they name as values and never in the statement."""

    def __init__(self) -> None:
        self.values: dict[str, str | float] = {}
        self.metrics: list[str] = []

    def condition(self, term: str) -> str:
        if compared := _COMPARED.fullmatch(term):
            return self._compared(*compared.groups())
        field, colon, value = term.partition(":")
        if not colon or term[0] in '"/':
            if term[0] not in '"/' and _COMPARING.search(term):
                raise _Wrong(
                    _bad_comparison(term),
                    "write loss<0.3 or exit=0; to search for the text, put it in quotes",
                )
            return self._free(term)
        return self._field(field.lower(), value)

    def _field(self, field: str, value: str) -> str:
        if not field:
            raise _Wrong("a field name is missing before ':'", "write state:running or tag:a")
        if not value:
            raise _Wrong(f"{field}: has no value", f"write {field}:something")
        if field == "state":
            return " OR ".join(_state(name) for name in value.split("|"))
        if field == "tag":
            tags = "SELECT 1 FROM json_each(jobs.tags) WHERE " + self._like("value", value)
            return f"EXISTS ({tags})"
        if field == "label":
            labels = "SELECT 1 FROM json_each(jobs.labels) WHERE " + self._like("key || '=' || value", value)
            return f"EXISTS ({labels})"
        if field == "is":
            if value.lower() not in IS:
                raise _Wrong(f"unknown value {value!r} for is:", f"use {' or '.join(IS)}")
            return IS[value.lower()]
        if field == "has":
            return f"EXISTS (SELECT 1 FROM series WHERE job_id = jobs.id AND {self._metric(value)})"
        if field in TEXTS:
            return self._like(TEXTS[field], value)
        known = sorted({*TEXTS, "state", "tag", "label", "has", "is"})
        raise _Wrong(f"there is no field {field!r}", _hint(field, known, "fields"))

    def _free(self, term: str) -> str:
        condition = " OR ".join(self._like(column, term) for column in _ANYWHERE)
        if (name := term.lower()) in STATES:
            return f"{_state(name)} OR {condition}"
        return condition

    def _like(self, column: str, value: str) -> str:
        """Return the condition that a text holds one of the alternatives of a value."""
        if len(value) > 1 and value[0] == value[-1] == "/":
            pattern = value[1:-1]
            try:
                _compiled(pattern)
            except re.error as error:
                raise _Wrong(f"the regular expression /{pattern}/ is wrong: {error}") from None
            return f"{column} REGEXP {self._value(pattern)}"
        alternatives = [value[1:-1]] if len(value) > 1 and value[0] == value[-1] == '"' else value.split("|")
        return (
            "("
            + " OR ".join(f"instr(lower({column}), {self._value(one.lower())})" for one in alternatives)
            + ")"
        )

    def _metric(self, name: str) -> str:
        """Return the condition on a series' name: whole, or its last part."""
        self.metrics.append(name)
        return names_metric(self._value(name))

    def _compared(self, name: str, operator: str, value: str) -> str:
        number = self._value(_number(value))
        operator = "=" if operator == "==" else operator
        if name.lower() in NUMBERS:
            return f"{NUMBERS[name.lower()]} {operator} {number}"
        metric = read_metric(name)
        self.metrics.append(metric.name)
        return f"{value_sql(metric.which, self._value(metric.name))} {operator} {number}"

    def _value(self, value: str | float) -> str:
        name = f"v{len(self.values)}"
        # A command's argument may hold bytes that are no text, which SQLite refuses.
        self.values[name] = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        return f":{name}"


def _bad_comparison(term: str) -> str:
    if _COMPARING.match(term):
        return f"a metric or field is missing before {term!r}"
    return f"{term!r} is not a comparison of a field or metric with a number"


def _state(name: str) -> str:
    states = STATES.get(name.lower())
    if states is None:
        raise _Wrong(f"there is no state {name!r}", _hint(name, STATES, "states"))
    return "jobs.state IN (" + ", ".join(f"'{state}'" for state in states) + ")"


def _hint(name: str, known: Iterable[str], what: str) -> str:
    from workbench.manifest.yaml.faults import nearest

    close = nearest(name, known)
    return f"did you mean {close}?" if close else f"{what} are {', '.join(known)}"


def _number(value: str) -> float:
    try:
        return read_number(value)
    except ValueError:
        raise _Wrong(f"{value!r} is not a number", "write 0.3, 1e-4 or 2h") from None
