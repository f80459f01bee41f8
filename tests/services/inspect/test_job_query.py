"""Jobs are found by state, text, label and filter, in any order; what cannot be read is pointed at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cli.jobs import PATHS, add_job
from workbench.errors import UnknownName, UsageError
from workbench.job import Reason, State
from workbench.services.inspect.job_query import JobQuery, count_found, find, read_states
from workbench.store.db.database import Store
from workbench.store.updates.deletion import mark_deleted


def report(store: Store, job_id: str, name: str, last: float) -> None:
    store.execute(
        "INSERT INTO series (job_id, learner, name, kind, points, last_step, last, minimum, maximum) "
        "VALUES (?, 1, ?, 'value', 1, 7, ?, ?, ?)",
        (job_id, name, last, last, last),
    )


@pytest.fixture
def rows(store: Store) -> None:
    """Two of a sweep that completed, one that failed, and one that was halted and has no metric."""
    sweep = {"sweep": "lr"}
    good = add_job(store, "good", State.COMPLETED, exit_code=0, labels=sweep)
    params = {"lr": 0.1, "net": {"depth": 3}}
    worse = add_job(store, "worse", State.COMPLETED, exit_code=0, labels=sweep, params=params)
    failed = add_job(store, "broken", State.FAILED, reason=Reason("no memory", "C203"), exit_code=1)
    for row, loss in ((good, 0.1), (worse, 0.5), (failed, 3.0)):
        report(store, row.id, "train/loss", loss)
    add_job(store, "bare", State.HALTED)


FOUND: Sequence[tuple[JobQuery, list[str]]] = (
    (JobQuery(), ["bare", "broken", "worse", "good"]),
    (JobQuery(where=("loss<0.3",)), ["good"]),
    (JobQuery(where=("state:done loss>0.3",)), ["worse"]),
    (JobQuery(where=("state:failed", "exit=1")), ["broken"]),
    (JobQuery(where=("!has:loss",)), ["bare"]),
    (JobQuery(where=("loss < 0.3 or state = failed",), sort="name"), ["broken", "good"]),
    (JobQuery(where=("loss<0.3 or state:failed", "exit=1 or bare")), ["broken"]),
    (JobQuery(where=("(not loss<1) and submitted >= 2020-01-01 and not (bare)",)), ["broken"]),
    (JobQuery(where=("params.lr = 0.1",)), ["worse"]),
    (JobQuery(sort="loss"), ["good", "worse", "broken", "bare"]),
    (JobQuery(sort="-train/loss"), ["broken", "worse", "good", "bare"]),
    (JobQuery(sort="name"), ["bare", "broken", "good", "worse"]),
    (JobQuery(label="sweep=lr", sort="-loss"), ["worse", "good"]),
    (JobQuery(where=("is:problem",), sort="submitted", limit=1), ["broken"]),
    (JobQuery(text="GOO"), ["good"]),
    (JobQuery(backend="nowhere"), []),
    (JobQuery(states=(State.FAILED, State.HALTED)), ["bare", "broken"]),
    (JobQuery(states=(State.QUEUED,), where=("name:good",)), []),
    (JobQuery(limit=0), []),
    (JobQuery(limit=1 << 40), ["bare", "broken", "worse", "good"]),
)


def test_filters_and_orders(store: Store, rows: None) -> None:
    assert [(query, [row.name for row in find(store, query).rows]) for query, _ in FOUND] == list(FOUND)


def test_whether_more_fit_is_reported_and_counted(store: Store, rows: None) -> None:
    for query, fit, has_more in (
        (JobQuery(limit=2), 4, True),
        (JobQuery(limit=4), 4, False),
        (JobQuery(limit=1, label="sweep"), 2, True),
        (JobQuery(limit=1, states=(State.FAILED,)), 1, False),
        (JobQuery(where=("loss<1",), limit=1), 2, True),
    ):
        assert (count_found(store, query), find(store, query).has_more) == (fit, has_more)


def test_an_empty_store_and_deleted_jobs_have_none(store: Store) -> None:
    assert (find(store, JobQuery()).rows, count_found(store, JobQuery())) == ((), 0)
    row = add_job(store, "a")
    mark_deleted(store, row.id)
    assert (find(store, JobQuery()).rows, count_found(store, JobQuery())) == ((), 0)
    assert find(store, JobQuery(where=("name:a",))).rows == ()


WRONG: Sequence[tuple[JobQuery, str, str]] = (
    (JobQuery(where=("state:done los<0.3",)), "no job has a metric 'los'", "           ^^^^^^^"),
    (JobQuery(where=("x stat:failed",)), "there is no field 'stat'", "  ^^^^^^^^^^^"),
    (JobQuery(where=("state:faild",)), "", "^^^^^^^^^^^"),
    (JobQuery(where=('name:"a',)), "is not closed", "^^^^^^^"),
    (JobQuery(where=("name:/(/",)), "regular expression", "^^^^^^^^"),
    (JobQuery(where=("state:done or",)), "'or' must be followed by a term", "           ^^"),
    (JobQuery(where=("state:done", "(x or y")), "( is not closed", "^^^^^^^"),
    (JobQuery(where=("params.rl=1",)), "no job has a param 'rl'", "^^^^^^^^^^^"),
    (JobQuery(where=("params.net.depht=1",)), "", "^^^^^^^^^^^^^^^^^^"),
    (JobQuery(sort="lossy"), "lossy", ""),
)


def test_a_wrong_expression_is_pointed_at(store: Store, rows: None) -> None:
    for query, message, mark in WRONG:
        with pytest.raises(UsageError) as refused:
            find(store, query)
        lines = refused.value.message.splitlines()
        assert message in refused.value.message
        assert not mark or any(line.endswith(mark) and not line.strip(" ^") for line in lines), lines


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        (JobQuery(where=("state:faild",)), "did you mean failed?"),
        (JobQuery(where=("params.net.depht=1",)), "did you mean params.net.depth?"),
        (JobQuery(sort="lossy"), "did you mean loss?"),
    ],
)
def test_what_is_nearly_right_names_the_nearest(store: Store, rows: None, query: JobQuery, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        find(store, query)

    assert hint in refused.value.hint


def test_states_are_read_from_words() -> None:
    assert read_states(["failed"]) == (State.FAILED,)
    assert read_states(["completed,halted", "QUEUED processing"]) == (
        State.COMPLETED, State.HALTED, State.QUEUED, State.PROCESSING,
    )  # fmt: skip
    assert read_states([]) == read_states([""]) == ()
    assert set(read_states(["open"])) >= {State.QUEUED, State.PROCESSING}
    assert not {State.COMPLETED, State.FAILED, State.HALTED} & set(read_states(["OPEN"]))
    assert set(PATHS) <= set(read_states([state.lower() for state in State]))


@pytest.mark.parametrize(("text", "hint"), [("faild", "did you mean failed?"), ("\x1b", "states are queued")])
def test_what_is_no_state_is_refused(text: str, hint: str) -> None:
    with pytest.raises(UnknownName, match="there is no state") as refused:
        read_states(["queued", text])

    assert hint in refused.value.hint
