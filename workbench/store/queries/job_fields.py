"""What a job has that lists show, sort by and filter by: one table for all of them, so that a thing has one name.

Columns and sort keys of ``fabric list``, columns of the screens, terms of filters, what shells and the screens complete
and ``docs/finding.md`` come from :data:`JOB_FIELDS`: a field is added there. The names of older versions are read,
and never offered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from workbench.formats import MICROSECONDS, ago, duration, size, stamp
from workbench.job import short_id
from workbench.store.db.rows import EARLIER_US_SQL, RUN_US_SQL, JobRow
from workbench.store.queries.listed_series import IS_LOSS, LISTED_LAST, LISTED_STEP, LOSS_ORDER
from workbench.values import dataclass

Kind = Literal["text", "id", "state", "tags", "labels", "number", "seconds", "bytes", "time"]
"""How a field is compared: an ``id`` is a text whose beginning may be left out."""

COMPARED: Final = ("number", "seconds", "bytes")
"""Kinds that filters compare with a number."""

PARAM: Final = "params."
LABEL: Final = "label."
"""What the names of params and of labels stand behind: each is a field of the jobs that have it."""

_WITHOUT: Final = {"tags": "'[]'", "labels": "'{}'"}
"""What stands in the store where a job has none."""


@dataclass(frozen=True, slots=True)
class JobField:
    """One field."""

    name: str
    """What people type, and what stands above its column."""
    kind: Kind
    sql: str = ""
    """Its value in the field's own unit, within a query of ``jobs`` that may name ``:now_us``."""
    text: Callable[[JobRow, int], str] | None = None
    """The cell of a plain list; None where a row does not say it: ``list_columns`` adds what services compute."""
    former: tuple[str, ...] = ()
    """Its names in older versions."""
    order: str = ""
    """What it is sorted by, where that is not its value; see :attr:`order_sql`."""
    sorts_as: str = ""
    """The field with whose order this one's is the same."""
    is_turned: bool = False
    """Whether its values fall where those of that field rise: the oldest job was submitted first."""
    rises: bool = False
    """Whether a list on a screen that is sorted by it begins with the least, unless asked otherwise."""
    right: bool = False
    """Whether its column is aligned to the right."""
    stretch: bool = False
    """Whether its column gives way where a terminal is narrow."""
    all_have_it: bool = False
    """Whether it has a value in every job."""
    has_filter: bool = True
    is_proposed: bool = False
    """Whether the values that jobs have are proposed while a filter is typed."""

    @property
    def sort_key(self) -> str:
        """The name of the field by which a list is sorted that is sorted by this one."""
        return self.sorts_as or self.name

    @property
    def order_sql(self) -> str:
        """The SQL that lists are sorted by; NULL for a job that has no value. Texts are sorted in any case."""
        if self.order or self.kind in (*COMPARED, "time", "state"):
            return self.order or self.sql
        lowered = f"lower({self.sql})"
        return lowered if self.all_have_it else f"nullif({lowered}, {_WITHOUT.get(self.kind, repr(''))})"


_TIME: Final = f"(CASE WHEN jobs.started_us IS NOT NULL OR {EARLIER_US_SQL} > 0 THEN {RUN_US_SQL} / 1e6 END)"
_STEP: Final = f"(SELECT max({LISTED_STEP}) FROM series WHERE series.job_id = jobs.id AND kind = 'value')"
_LOSS: Final = (
    f"(SELECT {LISTED_LAST} FROM series WHERE series.job_id = jobs.id AND {IS_LOSS} "
    f"ORDER BY {LOSS_ORDER} LIMIT 1)"
)
_DONE: Final = "(SELECT max(fraction) FROM progress WHERE progress.job_id = jobs.id)"
_OPEN: Final = "jobs.ended_us IS NULL"
_LEFT: Final = f"CASE WHEN {_OPEN} THEN {_TIME} * (1 - {_DONE}) / nullif({_DONE}, 0) END"


def _shown_time(time_us: int | None) -> str:
    return "-" if time_us is None else stamp(time_us)


# fmt: off
JOB_FIELDS: tuple[JobField, ...] = (
    JobField("id", "id", "jobs.id", lambda row, now: short_id(row.id), rises=True, all_have_it=True),
    JobField("name", "text", "jobs.name", lambda row, now: row.name, rises=True, stretch=True, all_have_it=True),
    JobField("state", "state", "jobs.state", lambda row, now: row.state, rises=True, all_have_it=True),
    JobField("backend", "text", "jobs.backend", lambda row, now: row.target.backend, ("where", "place"),
             rises=True, all_have_it=True, is_proposed=True),
    JobField("runner", "text", "json_extract(jobs.place, '$.runner')", lambda row, now: row.target.runner, rises=True,
             is_proposed=True),
    JobField("owner", "text", "jobs.owner", lambda row, now: row.owner, rises=True, is_proposed=True),
    JobField("gpus", "number", "jobs.gpus", lambda row, now: str(row.gpus * row.learners or "-"), right=True,
             all_have_it=True),
    JobField("cpus", "number", "jobs.cpus", lambda row, now: "-" if row.cpus is None else f"{row.cpus:g}", right=True),
    JobField("memory", "bytes", "jobs.memory_bytes",
             lambda row, now: "-" if row.memory_bytes is None else size(row.memory_bytes), right=True),
    JobField("learners", "number", "jobs.learners", lambda row, now: str(row.learners), right=True, all_have_it=True),
    JobField("attempt", "number", "jobs.attempt", lambda row, now: str(row.attempt), right=True, all_have_it=True),
    JobField("restarts", "number", "(jobs.restarts + jobs.platform_restarts)",
             lambda row, now: str(row.restarts + row.platform_restarts), right=True, all_have_it=True),
    JobField("submitted", "time", "jobs.submitted_us", lambda row, now: ago(row.submitted_us, now), right=True,
             order="jobs.seq", all_have_it=True),
    JobField("age", "seconds", "((:now_us - jobs.submitted_us) / 1e6)",
             lambda row, now: duration((now - row.submitted_us) / MICROSECONDS), right=True,
             sorts_as="submitted", is_turned=True, all_have_it=True),
    JobField("started", "time", "jobs.started_us", lambda row, now: _shown_time(row.started_us), right=True),
    JobField("ended", "time", "jobs.ended_us", lambda row, now: _shown_time(row.ended_us), right=True),
    JobField("changed", "time", "jobs.changed_us", lambda row, now: _shown_time(row.changed_us), right=True,
             all_have_it=True),
    JobField("time", "seconds", _TIME, right=True),
    JobField("exit", "number", "jobs.exit_code",
             lambda row, now: "" if row.exit_code is None else str(row.exit_code), right=True),
    JobField("why", "text", "jobs.reason", None, ("reason",), rises=True, stretch=True),
    JobField("code", "text", "jobs.reason_code", lambda row, now: row.reason.code, rises=True),
    JobField("tags", "tags", "jobs.tags", lambda row, now: " ".join(row.tags), ("tag",), rises=True, stretch=True,
             is_proposed=True),
    JobField("labels", "labels", "jobs.labels",
             lambda row, now: " ".join(f"{key}={value}" for key, value in row.labels.items()), ("label",),
             rises=True, stretch=True, is_proposed=True),
    JobField("note", "text", "jobs.note", lambda row, now: row.note, rises=True, stretch=True),
    JobField("parent", "id", "coalesce(jobs.parent, '')", lambda row, now: short_id(row.parent or ""), rises=True),
    JobField("step", "number", _STEP, right=True, has_filter=False),
    JobField("step/s", "number", f"CASE WHEN {_OPEN} THEN 1.0 * {_STEP} / nullif({_TIME}, 0) END", right=True,
             has_filter=False),
    JobField("loss", "number", _LOSS, None, ("column loss",), right=True, has_filter=False),
    JobField("trend", "number", right=True, sorts_as="loss", has_filter=False),
    JobField("done", "number", _DONE, right=True, has_filter=False),
    JobField("left", "seconds", _LEFT, rises=True, right=True, has_filter=False),
    JobField("end", "time", right=True, sorts_as="left", has_filter=False),
)
# fmt: on
"""All there are, those of a plain list in the order in which it would show them."""


def find_field(name: str) -> JobField | None:
    """Return the field of a name, or of one that an older version had."""
    return next((each for each in JOB_FIELDS if name == each.name or name in each.former), None)


def filter_field(name: str) -> JobField | None:
    """Return the field that a term of a filter means by a name; None for a metric."""
    found = find_field(name)
    return found if found is not None and found.has_filter else None


def sort_keys() -> list[str]:
    """Return the name of every field that lists can be sorted by: all."""
    return [each.name for each in JOB_FIELDS]


def sort_order(name: str, *, descending: bool) -> tuple[str, bool]:
    """Return the name that stands for an order, and whether that falls: age rises where the time of submission falls.

    A name that is not a field's, a metric's say, stays as it is.
    """
    found = find_field(name)
    return (name, descending) if found is None else (found.sort_key, descending != found.is_turned)
