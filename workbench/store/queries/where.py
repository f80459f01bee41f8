"""The filter language of lists: ``state:running (loss<0.3 or tag:a) not done params.lr=0.1 words``, as SQL.

``filter_syntax`` says how terms are joined. A term is

* ``field:text`` for a part of a text and ``field=text`` for the whole, where text may be ``/a regular
  expression/``, ``"quoted"`` or several with ``|`` between them. Fields are those of ``job_fields``; ``state`` is a
  state, or queued, running, done, failed, stopped; a label is ``labels:team=a`` or ``label.team:a``;
* ``name<0.3`` or ``min(name)<0.3`` with ``<``, ``<=``, ``>``, ``>=``, ``=`` (or ``==``) or ``!=``: a number of
  the job (``age<2h``, ``memory>=8GiB``) or else a metric, as ``metric_values`` says: its last, least (``min``) or
  greatest (``max``) value; ``"min(loss)"<0.3`` means the metric of that very name;
* ``params.lr<0.1``, ``params.optimizer=adam``: a param, a number or a text;
* ``submitted>=2026-11-20``: a time of the job and a day, a time, ``today``, or how long ago;
* ``is:problem`` (failed, or waiting with a fault) and ``is:open`` (something of it goes on or is to come);
* ``has:loss``, ``has:params.lr``, whether there is such a metric or param;
* a word, ``"several words"`` or ``/a regular expression/``, looked for in name, id, reason, tags and note;
  the word of a state is that state, too.

Upper and lower case are the same. The connection must know the functions of :func:`teach`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from workbench.clock import now_us
from workbench.errors import UsageError
from workbench.expression import expression_in_any_case, in_any_case
from workbench.job import State
from workbench.paths import Home
from workbench.store.queries import job_fields
from workbench.store.queries.filter_syntax import (
    FilterTerm,
    Junction,
    Negation,
    Node,
    WhereError,
    read_filter,
)
from workbench.store.queries.job_fields import COMPARED, LABEL, PARAM, JobField, filter_field
from workbench.store.queries.metric_values import (
    names_metric,
    read_metric,
    read_number,
    teach_values,
    unquoted,
    value_sql,
)
from workbench.store.queries.params import teach_params
from workbench.time_expressions import period_us
from workbench.values import dataclass

STATES: Final = {
    "queued": (State.QUEUED, State.PENDING),
    "running": (State.DOWNLOADING, State.PROCESSING, State.STORING),
    "done": (State.COMPLETED,),
    "stopped": (State.HALTED,),
    **{state.lower(): (state,) for state in State if state is not State.QUEUED},
}
"""Words of states, and which states they stand for."""

IS: Final = {
    "problem": "jobs.state = 'FAILED' OR jobs.reason_code GLOB '[CS]*'",
    "open": "jobs.state NOT IN ('COMPLETED', 'FAILED', 'HALTED') OR jobs.intent <> '' "
    "OR jobs.next_try_us IS NOT NULL",
}
"""What a job can be."""

SPECIAL: Final = ("has", "is")
"""What is written as a field and is none of a job."""

_ANYWHERE: Final = ("jobs.name", "jobs.id", "jobs.reason", "jobs.tags", "jobs.note")
_COMPARING: Final = re.compile(r"[<>]|[=!]=")
"""A text with one of these is meant as a comparison."""
_EQUAL: Final = (":", "=", "==")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter that was read."""

    sql: str = "1"
    """A condition on the table ``jobs``; it may name ``:now_us``, and the keys of ``values``."""
    values: tuple[tuple[str, str | float], ...] = ()
    terms: tuple[str, ...] = ()
    """Each part that must hold, as it was written, for chips."""
    metrics: tuple[tuple[str, int, int], ...] = ()
    """Each metric that is named, with begin and end of its term in the text."""
    params: tuple[tuple[str, int, int], ...] = ()
    """Each param that is named, likewise."""


def parse(text: str, *, values_from: int = 0) -> JobFilter:
    """Read a filter.

    Args:
        text: the filter.
        values_from: the number of its first value, so that filters can be joined; see :func:`joined`.

    Raises:
        WhereError: says which part is wrong, and why.
    """
    tree = read_filter(text)
    builder = _Builder(values_from)
    return JobFilter(
        builder.condition(tree),
        tuple(builder.values.items()),
        tuple(text[part.start : part.end] for part in tree.parts),
        tuple(builder.metrics),
        tuple(builder.params),
    )


def joined(filters: Iterable[JobFilter]) -> JobFilter:
    """Return the filter that lets through what fits all; the values of each must have names of their own."""
    every = tuple(filters)
    return JobFilter(
        _tree("AND", [each.sql for each in every if each.terms]),
        tuple(value for each in every for value in each.values),
        tuple(term for each in every for term in each.terms),
        tuple(metric for each in every for metric in each.metrics),
        tuple(param for each in every for param in each.params),
    )


def filter_names() -> list[str]:
    """Return the names that a term may begin with, but for params, single labels and metrics."""
    return [*(each.name for each in job_fields.JOB_FIELDS if each.has_filter), *SPECIAL]


def teach(connection: sqlite3.Connection, home: Home) -> None:
    """Define on a connection what filters call.

    SQLite has the operator ``REGEXP`` but no function for it; params stand in the folders of jobs.
    """
    teach_values(connection)
    teach_params(connection, home)
    connection.create_function("regexp", 2, _matches, deterministic=True)
    connection.create_function("time_bound", 3, _time_bound, deterministic=True)


def _matches(pattern: str, value: object) -> bool:
    return value is not None and in_any_case(pattern, str(value))


def _time_bound(which: int, text: str, now: int) -> int:
    """Return when a time begins (0) or ends (1)."""
    return _period(text, now)[which]


@lru_cache(maxsize=64)
def _period(text: str, now: int) -> tuple[int, int]:
    return period_us(text, now)


class _Wrong(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class _Builder:
    """Turns a tree of terms into SQL, keeping what they name as values and never in the statement."""

    def __init__(self, values_from: int) -> None:
        self.values: dict[str, str | float] = {}
        self.metrics: list[tuple[str, int, int]] = []
        self.params: list[tuple[str, int, int]] = []
        self._values_from = values_from
        self._names: dict[tuple[type, str | float], str] = {}
        self._term = FilterTerm(0, 0, "", "", "")

    def condition(self, node: Node) -> str:
        """Return the condition of a part of the tree."""
        if isinstance(node, Junction):
            parts = [self.condition(part) for part in node.parts]
            return _tree(node.word, sorted(parts, key=_reads_files))
        if isinstance(node, Negation):
            return f"NOT coalesce({self.condition(node.inner)}, 0)"
        self._term = node
        try:
            return f"({self._condition(node)})"
        except _Wrong as wrong:
            raise WhereError(wrong.message, node.start, node.end, hint=wrong.hint) from None

    def _condition(self, term: FilterTerm) -> str:
        if not term.sign:
            return self._text(term.value)
        name = term.name.lower()
        field = filter_field(name)
        if term.sign == ":" and not term.value:
            raise _Wrong(f"{name}: has no value", f"write {name}:something")
        if term.sign in (*_EQUAL, "!=") and (equal := self._equal(name, field, term)):
            return f"NOT ({equal})" if term.sign == "!=" else equal
        if term.value and field is not None and field.kind == "time":
            return self._time(field.sql, name, term)
        if term.value and name.startswith(PARAM):
            return self._param(term)
        is_number = field is not None and field.kind in COMPARED
        if term.sign == ":" and not is_number:
            raise _Wrong(f"there is no field {name!r}", _field_hint(name, term.value))
        return self._compared(field if is_number else None, term)

    def _equal(self, name: str, field: JobField | None, term: FilterTerm) -> str:
        """Return the condition that a text is equal to a value, or has it as a part; empty for other fields."""
        value, whole = term.value, term.sign != ":"
        if field is not None and field.kind in (*COMPARED, "time"):
            return ""
        if field is None and name not in SPECIAL and not name.startswith(LABEL):
            return ""
        if not value:
            raise _Wrong(f"{name}{term.sign} has no value", f"write {name}{term.sign}something")
        if field is not None:
            return self._text_field(field, value, whole=whole)
        if name.startswith(LABEL):
            key = self._value(name.removeprefix(LABEL))
            labels = f"SELECT 1 FROM json_each(jobs.labels) WHERE lower(key) = {key} AND "
            return f"EXISTS ({labels}{self._like('value', value, whole=whole)})"
        if name == "has":
            return self._has(value)
        if value.lower() not in IS:
            raise _Wrong(f"unknown value {value!r} for is:", f"use {' or '.join(IS)}")
        return IS[value.lower()]

    def _text_field(self, field: JobField, value: str, *, whole: bool) -> str:
        """Return the condition that a field of text is equal to a value, or has it as a part."""
        match field.kind:
            case "state":
                return _tree("OR", [_state(name) for name in value.strip('"').split("|")])
            case "tags":
                tags = f"SELECT 1 FROM json_each({field.sql}) WHERE "
                return f"EXISTS ({tags}{self._like('value', value, whole=whole)})"
            case "labels":
                return self._label(value, whole=whole)
            case "id" if whole:  # `training-` may be left out
                short = f"substr({field.sql}, instr({field.sql}, '-') + 1)"
                return _tree("OR", [self._like(text, value, whole=True) for text in (field.sql, short)])
        return self._like(field.sql, value, whole=whole)

    def _label(self, value: str, *, whole: bool) -> str:
        labels = "SELECT 1 FROM json_each(jobs.labels) WHERE "
        both = self._like("key || '=' || value", value, whole=whole)
        return f"EXISTS ({labels}{both}{' OR ' + self._like('key', value, whole=True) if whole else ''})"

    def _has(self, value: str) -> str:
        if value.lower().startswith(PARAM):
            self.params.append((value[len(PARAM) :], self._term.start, self._term.end))
            return self._param_fits(value[len(PARAM) :], "", "")
        return f"EXISTS (SELECT 1 FROM series WHERE job_id = jobs.id AND {self._metric(unquoted(value))})"

    def _text(self, text: str) -> str:
        if text[0] == ":":
            raise _Wrong("a field name is missing before ':'", "write state:running or tag:a")
        if text[0] not in '"/' and _COMPARING.search(text):
            raise _Wrong(_bad_comparison(text), _COMPARISON_HINT)
        condition = _tree("OR", [self._like(column, text) for column in _ANYWHERE])
        if (name := text.lower()) in STATES:
            return f"{_state(name)} OR {condition}"
        return condition

    def _like(self, column: str, value: str, *, whole: bool = False) -> str:
        """Return the condition that a text holds, or is, one of the alternatives of a value."""
        kind, texts = _alternatives(value)
        if kind == "regex":
            return f"{column} REGEXP {self._value(texts[0])}"
        bound = [self._value(text.lower()) for text in texts]
        if whole:
            return f"lower({column}) IN ({', '.join(bound)})"
        return _tree("OR", [f"instr(lower({column}), {one})" for one in bound])

    def _metric(self, name: str) -> str:
        """Return the condition on a series' name: whole, or its last part."""
        self.metrics.append((name, self._term.start, self._term.end))
        return names_metric(self._value(name))

    def _compared(self, field: JobField | None, term: FilterTerm) -> str:
        """Return the condition that a number of the job, or else a metric, compares with a number."""
        written = term.name + term.sign + term.value
        if "=" in term.value and term.sign == "=" and not _COMPARING.search(written):
            return self._text(written)  # `a=b=c` compares nothing
        if not term.value or any(sign in term.value for sign in "<>="):
            if term.sign == "=" and not term.value and field is None:
                return self._text(written)
            raise _Wrong(_bad_comparison(written), _COMPARISON_HINT)
        number = self._value(_bytes(term) if field is not None and field.kind == "bytes" else _number(term))
        operator = "=" if term.sign in _EQUAL else term.sign
        if field is not None:
            return f"{field.sql} {operator} {number}"
        metric = read_metric(term.name)
        self.metrics.append((metric.name, self._term.start, self._term.end))
        return f"{value_sql(metric.which, self._value(metric.name))} {operator} {number}"

    def _time(self, column: str, field: str, term: FilterTerm) -> str:
        """Return the condition that a time lies before, in or after what a text stands for."""
        text = term.value.strip('"')
        try:
            begin, end = period_us(text, now_us())
        except UsageError as error:
            raise _Wrong(str(error), f"write {field}>=2026-01-31, {field}:today or {field}>2h") from None
        if begin == end and term.sign in (*_EQUAL, "!="):
            raise _Wrong(f"{text!r} is a moment and no day", f"write {field}>{text} or {field}:today")
        bound = self._value(text)
        first, after = (f"time_bound({which}, {bound}, :now_us)" for which in (0, 1))
        within = f"{column} >= {first} AND {column} < {after}"
        return {
            "<": f"{column} < {first}",
            "<=": f"{column} < {after}",
            ">": f"{column} >= {after}",
            ">=": f"{column} >= {first}",
            "!=": f"NOT ({within})",
        }.get(term.sign, within)

    def _param(self, term: FilterTerm) -> str:
        name = term.name[len(PARAM) :]
        if not name:
            raise _Wrong("the name of a param is missing", "write params.lr=0.1")
        self.params.append((name, term.start, term.end))
        sign = "=" if term.sign == "==" else term.sign
        kind, texts = _alternatives(term.value)
        if sign not in (":", "=", "!="):
            if kind != "words" or len(texts) > 1:
                raise _Wrong(f"{sign} compares with one number", "write params.lr<0.1")
            _number(term)
            return self._param_fits(name, sign, texts[0])
        if kind == "regex":
            sign = "!~" if sign == "!=" else "~"
        found = _tree("OR", [self._param_fits(name, sign.replace("!", "") or "=", text) for text in texts])
        return f"NOT ({found})" if sign.startswith("!") else found

    def _param_fits(self, name: str, sign: str, text: str) -> str:
        bound = (self._value(each) for each in (name, sign, text))
        return f"param_fits(jobs.id, jobs.attempt, {', '.join(bound)})"

    def _value(self, value: str | float) -> str:
        # A command's argument may hold bytes that are no text, which SQLite refuses.
        value = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        key = (type(value), value)
        if key not in self._names:
            self._names[key] = f"v{self._values_from + len(self.values)}"
            self.values[self._names[key]] = value
        return f":{self._names[key]}"


_COMPARISON_HINT: Final = "write loss<0.3 or exit=0; to search for the text, put it in quotes"


def _tree(word: str, conditions: list[str]) -> str:
    """Join conditions; as a balanced tree, since SQLite refuses one that is 1,000 deep."""
    if not conditions:
        return "1"
    while len(conditions) > 1:
        pairs = zip(conditions[::2], [*conditions[1::2], ""], strict=False)
        conditions = [f"({one} {word} {other})" if other else one for one, other in pairs]
    return f"({conditions[0]})"


def _reads_files(condition: str) -> bool:
    """Say whether a condition is slow, so that it is asked last."""
    return "param_fits(" in condition


def _alternatives(value: str) -> tuple[str, list[str]]:
    """Take a value apart: into a ``regex``, a ``quoted`` text, or ``words`` of which any will do.

    Raises:
        _Wrong: the regular expression is wrong.
    """
    if len(value) > 1 and value[0] == value[-1] == "/":
        pattern = value[1:-1]
        try:
            expression_in_any_case(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise _Wrong(f"the regular expression /{pattern}/ is wrong: {error}") from None
        return "regex", [pattern]
    if len(value) > 1 and value[0] == value[-1] == '"':
        return "quoted", [value[1:-1]]
    return "words", value.split("|")


def _bad_comparison(term: str) -> str:
    if _COMPARING.match(term):
        return f"a metric or field is missing before {term!r}"
    return f"{term!r} is not a comparison of a field or metric with a number"


def _state(name: str) -> str:
    states = STATES.get(name.lower())
    if states is None:
        raise _Wrong(f"there is no state {name!r}", _hint(name, STATES, "states"))
    return "jobs.state IN (" + ", ".join(f"'{state}'" for state in states) + ")"


def _field_hint(field: str, value: str) -> str:
    if field.isdecimal() and value[:2].isdecimal():
        return f"write a day and a time with a T between them: 2026-01-31T{field}:{value}"
    return _hint(field, sorted(filter_names()), "fields")


def _hint(name: str, known: Iterable[str], what: str) -> str:
    from workbench.manifest.yaml.faults import nearest

    close = nearest(name, known)
    return f"did you mean {close}?" if close else f"{what} are {', '.join(known)}"


def _number(term: FilterTerm) -> float:
    try:
        return read_number(term.value)
    except ValueError:
        from workbench.manifest.yaml.faults import nearest

        known = [each.name for each in job_fields.JOB_FIELDS if each.has_filter and each.kind not in COMPARED]
        close = nearest(term.name, known) if term.sign in _EQUAL else ""
        if close:
            raise _Wrong(f"there is no field {term.name!r}", f"did you mean {close}?") from None
        hint = "write 0.3, 1e-4 or 2h; to search for the text, put it in quotes"
        raise _Wrong(f"{term.value!r} is not a number", hint) from None


def _bytes(term: FilterTerm) -> float:
    from workbench.manifest.keys.units import size_bytes

    try:
        return size_bytes(term.value)
    except ValueError as error:
        if term.value.isdecimal():
            return int(term.value)
        raise _Wrong(str(error), f"write {term.name}>=8GiB") from None
