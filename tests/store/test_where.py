from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.metrics.writing import Records
from tests.store.building import add_job
from workbench.job import Reason, State
from workbench.metrics import ingest, series
from workbench.metrics.conditions import judge
from workbench.metrics.conditions import parse as parse_conditions
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.jobs import annotate, step
from workbench.store.queries.job_list import JobList, metric_values, window
from workbench.store.queries.metric_values import MetricName
from workbench.store.queries.where import STATES, JobFilter, WhereError, parse

NOW_US = 1_700_000_000_000_000 + 2 * 3600 * 1_000_000
"""Two hours after the jobs were submitted."""


@pytest.fixture
def store(home: Home) -> Store:
    """A store with four jobs that differ in whatever can be asked for."""
    opened = Store.open(home)
    add_job(opened, "mnist", backend="gpubox", tags=("a", "old"), labels={"team": "vision"})
    add_job(opened, "bert big", owner="eve@box")
    add_job(opened, "[red]x", parent="training-parent22")
    failed = add_job(opened, "resnet")
    step(opened, failed.id, 1, State.FAILED, Reason("out of memory", "C203"), exit_code=137)
    for number, (job, name, last) in enumerate((("mnist", "train/loss", 0.2), ("bert big", "loss", 0.9))):
        sql = "INSERT INTO series (id, job_id, learner, name, kind, last) SELECT ?, id, 1, ?, 'value', ? FROM jobs "
        opened.execute(sql + "WHERE name = ?", (number, name, last, job))
    return opened


def names(store: Store, text: str) -> set[str]:
    return {row.name for row in window(store, JobList(where=parse(text)), now_us=NOW_US).rows}


ALL = {"mnist", "bert big", "[red]x", "resnet"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ALL),
        ("mnist", {"mnist"}),
        ("MNIST", {"mnist"}),
        ("!mnist", ALL - {"mnist"}),
        ("!!mnist", {"mnist"}),
        ('"bert big"', {"bert big"}),
        ("bert big", {"bert big"}),
        ("bert|mnist", {"bert big", "mnist"}),
        ("/^m.*t$/", {"mnist"}),
        ("/^M/", {"mnist"}),
        ("[red]", {"[red]x"}),
        ("name:net", {"resnet"}),
        ("name:/^re/", {"resnet"}),
        ("!name:/^re/", ALL - {"resnet"}),
        ("backend:gpubox", {"mnist"}),
        ("runner:process", ALL),
        ("owner:eve", {"bert big"}),
        ("tag:a", {"mnist"}),
        ("!tag:old", ALL - {"mnist"}),
        ("label:team=vision", {"mnist"}),
        ("parent:training-parent22", {"[red]x"}),
        ("state:failed", {"resnet"}),
        ("state:FAILED", {"resnet"}),
        ("state:queued", ALL - {"resnet"}),
        ("state:queued|failed", ALL),
        ("state:running", set()),
        ("failed", {"resnet"}),
        ("!queued", {"resnet"}),
        ("memory", {"resnet"}),
        ("reason:memory", {"resnet"}),
        ("code:C2", {"resnet"}),
        ("exit=137", {"resnet"}),
        ("exit==137", {"resnet"}),
        ("exit!=0", {"resnet"}),
        ("gpus>=2 learners=1", ALL),
        ("gpus>2", set()),
        ("age>1h", ALL),
        ("age<119m", set()),
        ("loss<0.3", {"mnist"}),
        ("loss>=0.9", {"bert big"}),
        ("train/loss<1", {"mnist"}),
        ("LOSS<1", {"mnist", "bert big"}),
        ("!loss<0.3", ALL - {"mnist"}),
        ("loss<3e-1 tag:a !done", {"mnist"}),
        ("has:loss", {"mnist", "bert big"}),
        ("!has:loss", {"[red]x", "resnet"}),
        ("is:problem", {"resnet"}),
        ("is:open", ALL - {"resnet"}),
        ("mnist resnet", set()),
    ],
)
def test_a_filter_lets_through_what_it_says(store: Store, text: str, expected: set[str]) -> None:
    assert names(store, text) == expected


@pytest.mark.parametrize(
    ("text", "wrong", "why"),
    [
        ("mnist state:x", "state:x", "there is no state 'x'"),
        ("stat:x", "stat:x", "there is no field 'stat'"),
        ("a !", "!", "must be followed by a term"),
        ("a /(/ b", "/(/", "the regular expression /(/ is wrong"),
        ("name:", "name:", "name: has no value"),
        ('a "b', '"b', "is not closed"),
        ("loss<abc", "loss<abc", "'abc' is not a number"),
        ("age<5w", "age<5w", "is not a number"),
        ("is:nice", "is:nice", "unknown value 'nice' for is:"),
        ("done loss<<0.3", "loss<<0.3", "is not a comparison"),
        ("loss<", "loss<", "is not a comparison"),
        ("done exit===0", "exit===0", "is not a comparison"),
        ("<0.3", "<0.3", "a metric or field is missing before '<0.3'"),
        (":a", ":a", "a field name is missing before"),
    ],
)
def test_a_wrong_filter_says_where_and_why(text: str, wrong: str, why: str) -> None:
    with pytest.raises(WhereError) as caught:
        parse(text)

    assert text[caught.value.start : caught.value.end] == wrong
    assert why in str(caught.value)
    assert caught.value.exit_code == 64


def test_terms_are_kept_as_they_were_written() -> None:
    assert parse('  state:failed   "a b"  !x ').terms == ("state:failed", '"a b"', "!x")
    assert parse("") == JobFilter()


def test_values_are_bound_and_never_part_of_the_statement(store: Store) -> None:
    annotate(store, store.rows("SELECT id FROM jobs LIMIT 1")[0][0], note="x'); DROP TABLE jobs; --")

    assert names(store, '"x\'); DROP TABLE jobs; --"') != set()
    assert names(store, "") == ALL


def test_every_state_has_a_word_and_the_words_of_the_field() -> None:
    assert {state for states in STATES.values() for state in states} == set(State)
    assert STATES["running"] == (State.DOWNLOADING, State.PROCESSING, State.STORING)
    assert STATES["queued"] == (State.QUEUED, State.PENDING)
    assert (STATES["done"], STATES["stopped"]) == ((State.COMPLETED,), (State.HALTED,))


WORDS = st.text(st.sampled_from("ab /|!:\"<>=0.1m_%\\ '(é\x00[") | st.characters(), max_size=20)


@given(text=WORDS)
@example("/a\\/")
@example('name:"')
@example("!" * 9)
def test_any_text_is_a_filter_or_is_refused_in_words(text: str) -> None:
    try:
        where = parse(text)
    except WhereError as error:
        assert 0 <= error.start <= error.end <= len(text) and str(error)
        return
    assert json.dumps(dict(where.values)) is not None
    assert len(where.terms) == len([term for term in where.terms if term])


def test_any_filter_that_is_read_can_be_asked(store: Store) -> None:
    @given(text=WORDS)
    def ask(text: str) -> None:
        try:
            where = parse(text)
        except WhereError:
            return
        window(store, JobList(where=where), now_us=NOW_US)

    ask()


def test_a_metric_means_the_same_in_filters_conditions_orders_and_columns(
    store: Store, tmp_path: Path
) -> None:
    """Of two learners the first counts, of two attempts what was not gone over again, and what is finite."""
    job = add_job(store, name="two").id
    add_points(
        store, tmp_path, job, learner=1, attempt=1, loss=[0.9, -math.inf, 0.1, 0.05], steps=[1, 2, 3, 4]
    )
    add_points(store, tmp_path, job, learner=1, attempt=2, loss=[0.7, 0.8], steps=[3, 4])
    add_points(store, tmp_path, job, learner=2, attempt=1, loss=[0.01], steps=[1])
    store.execute("UPDATE jobs SET attempt = 2 WHERE id = ?", (job,))
    rows = series(store, job)

    for text, holds in (
        ("loss<0.5", False),
        ("loss=0.8", True),
        ("min(loss)<0.6", False),
        ("min(loss)=70%", True),
        ("max(train/loss)>=0.9", True),
        ("last(loss)>0.75", True),
    ):
        (verdict,) = judge(parse_conditions(text), rows)
        assert ("two" in names(store, text), verdict.holds) == (holds, holds), text
        assert "of learner 1" in verdict.sentence
    assert metric_values(store, [job], MetricName("loss", "min")) == {job: (1, 0.7)}
    assert names(store, "!min(loss)<0.6 two") == {"two"}


def test_a_metric_that_is_nan_fits_nothing(store: Store, tmp_path: Path) -> None:
    job = add_job(store, name="odd").id
    add_points(store, tmp_path, job, learner=1, attempt=1, odd=[1.0, None], steps=[1, 2])

    for text in ("train/odd<1", "train/odd>=1", "train/odd!=1", "train/odd=1"):
        (verdict,) = judge(parse_conditions(text), series(store, job))
        assert (names(store, text), verdict.holds) == (set(), False)
    assert metric_values(store, [job], MetricName("odd")) == {job: (1, None)}


def add_points(
    store: Store,
    folder: Path,
    job: str,
    *,
    learner: int,
    attempt: int,
    steps: list[int],
    **values: list[Any],
) -> None:
    records = Records(folder / f"{job}-{learner}-{attempt}.jsonl")
    cells = {
        name: ["-inf" if value == -math.inf else value for value in column] for name, column in values.items()
    }
    records.points(cells, steps=steps, group="train")
    while ingest(store, job, attempt, learner, records.file):
        pass
