"""The table of fields of jobs: every one of them sorts, and filters, columns and completion are made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.stored_jobs import SUBMITTED_US, add_job
from workbench.cli.framework import completion
from workbench.clock import now_us
from workbench.errors import UsageError
from workbench.job import Reason, State
from workbench.paths import Home
from workbench.services.filters import complete_filter, filter_words, read_sort
from workbench.services.inspect.job_query import JobQuery, find
from workbench.services.inspect.list_columns import cells_of, column_names
from workbench.store.db.database import Store
from workbench.store.queries import job_fields
from workbench.store.queries.job_fields import JOB_FIELDS, JobField, find_field, sort_keys
from workbench.store.queries.job_list import JobList, Window, known_values, listed, window
from workbench.store.queries.where import JobFilter, parse
from workbench.store.updates.jobs import step

NOW_US = SUBMITTED_US + 3600 * 1_000_000


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Eighteen jobs: a third of them lack whatever a job can lack. A store that tests only read."""
    with Store.open(Home(tmp_path_factory.mktemp("sparse") / "fabric")) as store:
        for number in range(18):
            lacks = number % 3 == 0
            more: dict[str, Any] = {} if lacks else {
                "tags": (f"tag{number * 7 % 5}",),
                "labels": {"team": f"Team{number * 5 % 7}"},
                "parent": f"training-parent{number * 5 % 7}",
                "params": {"lr": (number * 7 % 5) / 10, "net": {"kind": f"K{number % 4}"}},
            }  # fmt: skip
            job = add_job(store, f"job{number * 7 % 18}", **more)
            values: dict[str, Any] = {
                "cpus": None if lacks else number * 5 % 7,
                "memory_bytes": None if lacks else (number * 5 % 7) << 30,
                "started_us": None if lacks else SUBMITTED_US + number * 1000,
                "reason": "" if lacks else f"because {number * 5 % 7}",
                "reason_code": "" if lacks else f"C20{number % 4}",
                "note": "" if lacks else f"note {number * 5 % 7}",
                "owner": "" if lacks else f"owner{number % 4}",
            }
            if not lacks and number % 2:
                values |= {"exit_code": number % 5, "ended_us": NOW_US - number * 1000, "state": "FAILED"}
            settings = ", ".join(f"{name} = :{name}" for name in values)
            store.execute(f"UPDATE jobs SET {settings} WHERE id = :id", {**values, "id": job.id})
            if not lacks:
                sql = "INSERT INTO series (job_id, learner, name, kind, last, last_step) "
                sql += "VALUES (?, 1, ?, 'value', ?, ?)"
                last = -math.inf if number == 4 else math.inf if number == 5 else number * 5 % 7
                store.execute(sql, (job.id, "train/loss", last, number * 5 % 7))
        yield store


KEYS = [*sort_keys(), '"loss"', "max(train/loss)", "params.lr", "params.net.kind", "label.team"]


def shown(found: Window) -> list[str]:
    return [row.id for row in found.rows]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", KEYS)
def test_jobs_without_a_value_are_last_in_both_directions(sparse: Store, sort: str, descending: bool) -> None:
    listing = JobList(sort=sort, descending=descending)
    whole = window(sparse, listing, now_us=NOW_US, limit=100)
    printed = listed(
        sparse, ["jobs.deleted_us IS NULL"], {}, where=JobFilter(), sort=sort, descending=descending, now_us=NOW_US
    )  # fmt: skip
    other = window(sparse, JobList(sort=sort, descending=not descending), now_us=NOW_US, limit=100)

    assert shown(whole) == [row.id for row in printed]
    absent = {True: -math.inf, False: b""}
    lacking = [key[0] == absent[descending] for key in whole.keys]
    assert lacking == sorted(lacking)
    assert sum(lacking) == sum(key[0] == absent[not descending] for key in other.keys)
    having = lacking.count(False)
    assert shown(whole)[:having] == shown(other)[:having][::-1]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", KEYS)
def test_pages_go_on_where_the_last_one_ended_with_and_without_values(
    sparse: Store, sort: str, descending: bool
) -> None:
    listing = JobList(sort=sort, descending=descending)
    whole = window(sparse, listing, now_us=NOW_US, limit=100)

    for place in range(18):
        found = window(sparse, listing, now_us=NOW_US, anchor=whole.keys[place], limit=6)
        assert found.start == max(0, place - 3)
        assert shown(found) == shown(whole)[found.start : found.start + len(found.rows)]
        assert whole.rows[place] in found.rows


def test_minus_infinity_is_a_value(sparse: Store) -> None:
    found = window(sparse, JobList(sort="loss"), now_us=NOW_US, limit=100)
    values = dict(sparse.rows("SELECT job_id, last FROM series"))

    assert [values.get(job_id) for job_id in shown(found)][11:13] == [-math.inf, None]


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        ("memory", lambda row: row.memory_bytes),
        ("cpus", lambda row: row.cpus),
        ("note", lambda row: row.note or None),
        ("tags", lambda row: row.tags or None),
        ("label.team", lambda row: row.labels.get("team", "").lower() or None),
        ("parent", lambda row: row.parent),
        ("started", lambda row: row.started_us),
        ("exit", lambda row: row.exit_code),
        ("why", lambda row: row.reason.text or None),
        ("age", lambda row: -row.seq),
        ("place", lambda row: row.target.backend),
        ("where", lambda row: row.target.backend),
        ("reason", lambda row: row.reason.text or None),
    ],
)
def test_a_list_is_sorted_by_any_column_and_by_former_names(
    sparse: Store, sort: str, value: Callable[[Any], Any]
) -> None:
    for sign in ("", "-"):
        found = find(sparse, JobQuery(sort=sign + sort)).rows
        values = [value(row) for row in found if value(row) is not None]
        assert len(found) == 18 and len(values) > 5
        assert values == sorted(values, reverse=bool(sign))
        assert all(value(row) is None for row in found[len(values) :])


def test_every_column_of_a_list_sorts(sparse: Store) -> None:
    assert len(column_names()) > 21
    for name in column_names():
        assert len(find(sparse, JobQuery(sort=name)).rows) == 18


def test_params_are_sorted_numbers_before_texts(home: Home) -> None:
    with Store.open(home) as store:
        values = (0.5, "adam", 10**40, 2, "SGD", None, -(10**40))
        for value in values:
            add_job(store, str(value), params={"x": value})
        add_job(store, "without")

        rising = [row.name for row in find(store, JobQuery(sort="params.x")).rows]
        falling = [row.name for row in find(store, JobQuery(sort="-params.x")).rows]

    assert rising == [str(-(10**40)), "0.5", "2", str(10**40), "adam", "SGD", "None", "without"]
    assert falling == ["SGD", "adam", str(10**40), "2", "0.5", str(-(10**40)), "without", "None"]


@pytest.mark.parametrize(
    ("sort", "near"),
    [
        ("runer", "did you mean runner?"),
        ("train/los", "did you mean train/loss?"),
        ("zzzzzzzz", "Sort keys are id, name, state, backend,"),
        ("params.net.kid", "did you mean params.net.kind?"),
        ("label.nobody", "no job has such a label"),
        ("env.HOME", "Sort keys are"),
    ],
)
def test_what_cannot_be_sorted_by_is_named_with_the_nearest(sparse: Store, sort: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"cannot sort by '{sort}'") as raised:
        read_sort(sparse, f"-{sort}")

    assert near in f"{raised.value} {raised.value.hint}"


def test_a_field_goes_before_a_metric_of_its_name_unless_that_is_quoted(home: Home) -> None:
    with Store.open(home) as store:
        for name, runs_on, metric in (("a", "zone", 1.0), ("b", "pod", 2.0)):
            job = add_job(store, name)
            store.execute(
                "UPDATE jobs SET place = json_set(place, '$.runner', ?) WHERE id = ?", (runs_on, job.id)
            )
            for series in ("runner", "loss"):
                sql = "INSERT INTO series (job_id, learner, name, kind, last) VALUES (?, 1, ?, 'value', ?)"
                store.execute(sql, (job.id, series, metric))

        assert [row.name for row in find(store, JobQuery(sort="runner")).rows] == ["b", "a"]
        assert [row.name for row in find(store, JobQuery(sort='"runner"')).rows] == ["a", "b"]
        # Lists show the metric as the column of that name, and filters mean it.
        assert read_sort(store, "loss") == ('"loss"', False)


TRIAL = JobField(
    "trial",
    "number",
    "jobs.trial",
    lambda row, now: "-" if row.trial is None else str(row.trial),
    ("attempt_of_search",),
    right=True,
)


def test_a_field_that_is_added_to_the_table_is_everywhere(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from screens.app.command import completions

    assert "trial" not in column_names()
    monkeypatch.setattr(job_fields, "JOB_FIELDS", (*JOB_FIELDS, TRIAL))
    with Store.open(home) as store:
        rows = [add_job(store, f"job{trial}", parent="experiment-x", trial=trial) for trial in (2, None, 1)]

        assert cells_of(store, ["name", "trial"], rows, now_us()) == [
            ["job2", "2"],
            ["jobNone", "-"],
            ["job1", "1"],
        ]
        for sort in ("trial", "attempt_of_search"):
            found = find(store, JobQuery(sort=sort)).rows
            assert [row.name for row in found] == ["job1", "job2", "jobNone"]
        assert [row.name for row in find(store, JobQuery(where=("trial>1",))).rows] == ["job2"]
        assert shown(window(store, JobList(sort="trial"), now_us=NOW_US)) == [
            rows[0].id,
            rows[2].id,
            rows[1].id,
        ]
    assert "trial" in complete_filter("tri", filter_words((), {}))
    assert completion.column_names("tri") == ["trial"]
    assert completion.sort_names("-tri") == ["-trial"]
    assert "sort trial" in completions()


def test_no_two_fields_share_a_name() -> None:
    names = [name for each in JOB_FIELDS for name in (each.name, *each.former)]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("memory>=2GiB cpus>0", {"b"}),
        ("memory=1073741824", {"a"}),
        ("cpus=1.5", {"a", "b"}),
        ("tags:best", {"b"}),
        ("tag:best", {"b"}),
        ("labels:team=vision", {"a"}),
        ("label=team", {"a"}),
        ("why:memory", {"b"}),
        ("reason:memory code=C203", {"b"}),
        ("where:local", {"a"}),
        ("place=gpubox", {"b"}),
        ("changed>=2023-11 changed<2023-12", {"a"}),
    ],
)
def test_filters_take_the_names_of_columns_and_former_names(home: Home, text: str, names: set[str]) -> None:
    with Store.open(home) as store:
        add_job(store, "a", labels={"team": "vision"})
        job = add_job(store, "b", backend="gpubox", tags=("best",))
        step(store, job.id, 1, State.FAILED, Reason("out of memory", "C203"), exit_code=137)
        store.execute("UPDATE jobs SET memory_bytes = ? WHERE id = ?", (4 << 30, job.id))

        assert {row.name for row in find(store, JobQuery(where=(text,))).rows} == names


def test_a_wrong_size_in_a_filter_is_pointed_at() -> None:
    from workbench.store.queries.filter_syntax import WhereError

    with pytest.raises(WhereError, match="not a size"):
        parse("memory>much")


def test_values_are_proposed_behind_former_names_too(home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, tags=("best",))
        words = filter_words((), known_values(store))

    assert complete_filter("tags:b", words) == ["tags:best"]
    assert complete_filter("!tag:b", words) == ["!tag:best"]
    assert complete_filter("tag:", words)[0] == "tag:"


def test_former_names_are_found() -> None:
    former = {name: each.name for each in JOB_FIELDS for name in each.former}

    assert former == {
        "where": "backend",
        "place": "backend",
        "reason": "why",
        "tag": "tags",
        "label": "labels",
        "column loss": "loss",
    }
    assert all((field := find_field(name)) and field.name == now for name, now in former.items())
