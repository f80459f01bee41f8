from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import add_job
from workbench.errors import FabricError, PatternTooSlow
from workbench.job import JobId, Reason, State
from workbench.metrics import ingest, series
from workbench.metrics.conditions import judge
from workbench.metrics.conditions import parse as parse_conditions
from workbench.paths import Home
from workbench.services.inspect.list_columns import cells_of
from workbench.store.db.database import Store
from workbench.store.history.job_file import write_changed_spec
from workbench.store.queries import params
from workbench.store.queries.filter_syntax import WhereError
from workbench.store.queries.job_list import JobList, metric_values, window
from workbench.store.queries.jobs import list_jobs
from workbench.store.queries.metric_values import MetricName, read_metric
from workbench.store.queries.where import STATES, JobFilter, joined, parse
from workbench.store.updates.jobs import annotate, step

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
        ("/a{99999999999}/", "/a{99999999999}/", "is wrong"),
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist or resnet", {"mnist", "resnet"}),
        ("mnist OR resnet", {"mnist", "resnet"}),
        ("mnist | resnet", {"mnist", "resnet"}),
        ("mnist| resnet", {"mnist", "resnet"}),
        ("bert and big", {"bert big"}),
        ("bert && big", {"bert big"}),
        ("not mnist", ALL - {"mnist"}),
        ("not not mnist", {"mnist"}),
        ("! mnist", ALL - {"mnist"}),
        ("not (mnist or resnet)", ALL - {"mnist", "resnet"}),
        ("!(mnist or resnet)", ALL - {"mnist", "resnet"}),
        ("(mnist or resnet) state:failed", {"resnet"}),
        ("mnist or resnet state:failed", {"mnist", "resnet"}),
        ("mnist or resnet and state:queued", {"mnist"}),
        ("((mnist) or (bert and not (mnist)))", {"mnist", "bert big"}),
        ("(min(loss)<0.3 or exit=137)", {"resnet"}),
        ("not loss<0.3 and has:loss", {"bert big"}),
        ("loss < 0.3", {"mnist"}),
        ("loss <0.3", {"mnist"}),
        ("loss< 0.3", {"mnist"}),
        ("last(loss) >= 90%", {"bert big"}),
        ("(loss < 0.3) or exit != 0", {"mnist", "resnet"}),
        ("state : failed", {"resnet"}),
        ("state: failed", {"resnet"}),
        ("state=failed", {"resnet"}),
        ("state == failed", {"resnet"}),
        ("state!=failed", ALL - {"resnet"}),
        ("state = failed|queued", ALL),
        ("exit:137", {"resnet"}),
        ("name=mnist", {"mnist"}),
        ("name=mnis", set()),
        ('name = "bert big"', {"bert big"}),
        ("name = MNIST|resnet", {"mnist", "resnet"}),
        ("name=/^m/", {"mnist"}),
        ("name!=mnist", ALL - {"mnist"}),
        ("tag=a", {"mnist"}),
        ("tag=ol", set()),
        ("label=team=vision", {"mnist"}),
        ("label=team", {"mnist"}),
        ("label.team=vision", {"mnist"}),
        ("label.team=other", set()),
        ("parent=parent22", {"[red]x"}),
        ("is=problem", {"resnet"}),
        ("has=loss", {"mnist", "bert big"}),
        ("submitted:2023-11-14", ALL),
        ("submitted=2023-11", ALL),
        ("submitted=2023", ALL),
        ("submitted>2023-11-14", set()),
        ("submitted>=2023-11-14", ALL),
        ("submitted<2023-11-14", set()),
        ("submitted<=2023-11-14", ALL),
        ("submitted!=2023-11-14", set()),
        ("submitted = 2023-11-14T22:13", ALL),
        ('submitted:"2023-11-14 22:13:20"', ALL),
        ("submitted:2023-11-14T22:12Z", set()),
        ("submitted:yesterday", ALL),
        ("submitted:today", set()),
        ("submitted>3h", ALL),
        ("submitted<3h", set()),
        ("ended:today", set()),
        ('"or"', ALL),
    ],
)
def test_terms_are_joined_by_words_and_brackets_and_compared_with_blanks_around_the_sign(
    store: Store, text: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr("workbench.store.queries.where.now_us", lambda: NOW_US)

    assert names(store, text) == expected


@pytest.mark.parametrize(
    "text",
    ["a(b)", "(a", "a)", "x=y=z", "x=", "and-so", "order", "notes", "a|b", "r[0]", "a&b", "label:x= y"],
)
def test_a_text_with_brackets_and_words_within_means_what_it_meant(store: Store, text: str) -> None:
    annotate(store, store.rows("SELECT id FROM jobs LIMIT 1")[0][0], note=f"<{text}>")
    if text == "(a":
        text = '"(a"'

    assert len(names(store, text.replace("label:x= y", "y"))) >= 1


@pytest.mark.parametrize(
    ("text", "wrong", "why"),
    [
        ("mnist or", "or", "'or' must be followed by a term"),
        ("or", "or", "a term is missing before 'or'"),
        ("a and or b", "and", "'and' must be followed by a term"),
        ("a not", "not", "'not' must be followed by a term"),
        ("()", ")", "a term is missing before ')'"),
        ("a (b or c", "(b or c", "( is not closed"),
        ("(a) )", ")", "there is no '(' for this ')'"),
        ("(" * 51 + "a", "(", "more than 50 brackets"),
        ("a or state:x", "state:x", "there is no state 'x'"),
        ("(loss < x)", "loss < x", "'x' is not a number"),
        ("stat = done", "stat = done", "there is no field 'stat'"),
        ("submitted>gestern", "submitted>gestern", "'gestern' is not a time"),
        ("submitted:2023-02-31", "submitted:2023-02-31", "is not a time"),
        ("ended:2h", "ended:2h", "is a moment and no day"),
        ("submitted>2023-11-14 22:13", "22:13", "there is no field '22'"),
        ("params.=3", "params.=3", "the name of a param is missing"),
        ("params.lr<abc", "params.lr<abc", "'abc' is not a number"),
        ("tag=", "tag=", "tag= has no value"),
        ("name: (a)", "name:", "name: has no value"),
    ],
)
def test_a_wrong_junction_says_where_and_why(text: str, wrong: str, why: str) -> None:
    with pytest.raises(WhereError) as caught:
        parse(text)

    assert text[caught.value.start : caught.value.end] == wrong
    assert why in str(caught.value)


def test_parts_that_must_all_hold_are_kept_as_they_were_written() -> None:
    assert parse("(a or b) loss < 3 and not c").terms == ("(a or b)", "loss < 3", "not c")
    assert parse("a or b").terms == ("a or b",)
    assert parse("(a b)").terms == ("(a b)",)


def test_filters_are_joined_as_if_each_stood_in_brackets(store: Store) -> None:
    first = parse("mnist or resnet")
    second = parse("state:queued or bert", values_from=len(first.values))

    found = window(store, JobList(where=joined((first, JobFilter(), second))), now_us=NOW_US)

    assert {row.name for row in found.rows} == {"mnist"}
    assert joined((first, second)).terms == ("mnist or resnet", "state:queued or bert")


def test_a_thousand_alternatives_are_no_deep_statement(store: Store) -> None:
    assert names(store, " or ".join([*(f"nowhere{number}" for number in range(1000)), "mnist"])) == {"mnist"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("params.lr=0.1", {"low"}),
        ("params.lr == 1e-1", {"low"}),
        ("params.LR<0.5", {"low"}),
        ("params.lr >= 0.5", {"high"}),
        ("params.lr!=0.1", {"high"}),
        ("not params.lr=0.1", {"high", "none"}),
        ("params.lr:0.1", {"low"}),
        ("params.optimizer=Adam", {"low"}),
        ("params.optimizer:sg", {"high"}),
        ("params.optimizer=adam|sgd", {"low", "high"}),
        ("params.optimizer=/^a/", {"low"}),
        ("params.optimizer!=/^a/", {"high"}),
        ('params.optimizer="sgd"', {"high"}),
        ("params.optimizer>3", set()),
        ("params.amp=true", {"low"}),
        ("params.net.depth>2", {"high"}),
        ("has:params.net", {"high"}),
        ("params.lr<0.5 or params.net.depth=3", {"low", "high"}),
        ("(params.lr<0.5 or name:high) and name:low", {"low"}),
    ],
)
def test_jobs_are_found_by_their_params(home: Home, text: str, expected: set[str]) -> None:
    opened = Store.open(home)
    add_job(opened, "low", params={"lr": 0.1, "optimizer": "adam", "amp": True})
    add_job(opened, "high", params={"lr": 0.9, "optimizer": "sgd", "net": {"depth": 3}})
    add_job(opened, "none")

    assert names(opened, text) == expected


@pytest.mark.parametrize("text", ["name:/(a|aa)+$/", "/(a|aa)+$/", "params.text=/(a|aa)+$/"])
def test_an_expression_that_runs_on_is_given_up_by_its_name(home: Home, text: str) -> None:
    opened = Store.open(home)
    add_job(opened, "a" * 50 + "!", params={"text": "a" * 50 + "!"})

    for _ in range(2):
        with pytest.raises(PatternTooSlow, match=re.escape("/(a|aa)+$/ takes too long")):
            names(opened, text)
    with pytest.raises(FabricError, match="no such table"):  # what fails next has its own reason
        opened.rows("SELECT * FROM missing")


def test_params_are_those_of_the_attempt(home: Home) -> None:
    opened = Store.open(home)
    changed = add_job(opened, "changed", params={"lr": 0.1})
    assert names(opened, "params.lr=0.1") == {"changed"}

    document = json.loads(home.job(changed.id).job_file.read_bytes())
    document["spec"]["params"] = {"lr": 0.2}
    write_changed_spec(home, changed.id, 2, {"spec": document["spec"], "origins": {}})
    opened.execute("UPDATE jobs SET attempt = 2 WHERE id = ?", (changed.id,))

    assert names(opened, "params.lr=0.2") == {"changed"}
    assert names(opened, "params.lr=0.1") == set()


def test_a_filter_on_params_does_not_read_whole_job_files(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Store.open(home)
    add_job(opened, "low", params={"lr": 0.1, "name": 'naïve "params": {"lr": 0.9}'})
    monkeypatch.setattr(params, "read_job_document", None)

    assert names(opened, "params.lr=0.1") == {"low"}
    assert names(opened, 'params.name:"naïve"') == {"low"}


@pytest.mark.parametrize("other", [{"env": {"params": "x"}}, {"code": "x" * 70_000}], ids=["env", "large"])
def test_params_of_an_odd_job_file_are_found(home: Home, other: dict[str, Any]) -> None:
    opened = Store.open(home)
    row = add_job(opened, "odd", params={"lr": 0.1})
    file = home.job(row.id).job_file
    document = json.loads(file.read_bytes())
    document["spec"] = {**other, **document["spec"], **other}
    file.write_text(json.dumps(document, separators=(",", ":")))

    assert names(opened, "params.lr=0.1") == {"odd"}


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


PARTS = "( ) and or not ! a b: c = <= 0.3 min(x) /z/ | state:done submitted 2023-11 params.p"
WORDS = st.text(st.sampled_from("ab /|!:\"<>=0.1m_%\\ '(é\x00[") | st.characters(), max_size=20) | st.lists(
    st.sampled_from(PARTS.split()), max_size=9
).map(" ".join)


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


@pytest.mark.parametrize("spelled", ['"{}"', 'last("{}")', 'min( "{}" )', 'MAX("{}")'])
@pytest.mark.parametrize("name", ["min(loss)", "name", "exit", "two words", "a=b", "f(x)<3", "or"])
def test_a_metric_of_any_name_is_asked_for_in_quotation_marks(store: Store, name: str, spelled: str) -> None:
    job = add_job(store, name="quoted").id
    insert = "INSERT INTO series (id, job_id, learner, name, kind, last, minimum, maximum, points, revision) VALUES"
    store.execute(f"{insert} (7, ?, 1, ?, 'value', 0.5, 0.5, 0.5, 1, 1)", (job, f"train/{name}"))
    store.execute(f"{insert} (8, ?, 1, 'loss', 'value', 0.7, 0.7, 0.7, 1, 1)", (job,))
    text = spelled.format(name)

    for comparison, holds in (("<0.6", True), (" >= 0.6", False)):
        (verdict,) = judge(parse_conditions(text + comparison), series(store, JobId(job)))
        assert (verdict.value, verdict.holds) == (0.5, holds)
        assert names(store, text + comparison) == ({"quoted"} if holds else set())
        assert names(store, f"(not {text + comparison} or mnist) name:quoted") == (
            set() if holds else {"quoted"}
        )
    assert metric_values(store, [job], read_metric(text)) == {job: (1, 0.5)}
    assert names(store, f'has:"{name}"') == {"quoted"}
    assert window(store, JobList(sort=text, descending=True), now_us=NOW_US).rows[0].name == "quoted"
    assert [row[-1] for row in cells_of(store, ["id", text], list_jobs(store)[:1], NOW_US)] == ["0.5"]


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
