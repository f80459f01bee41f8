"""Finding jobs: filters, orders and columns of ``list``, ``grep``, ``sql``, ``events``, tags and notes."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.support.command import Fabric, lines_of
from tests.support.waiting import patience, until
from workbench.job import Reason, State, short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow


def add_series(store: Store, job_id: str, name: str, last: float) -> None:
    store.execute(
        "INSERT INTO series (job_id, learner, name, kind, points, last_step, last, minimum, maximum) "
        "VALUES (?, 1, ?, 'value', 1, 7, ?, ?, ?)",
        (job_id, name, last, last, last),
    )


@pytest.fixture
def rows(home: Home) -> list[JobRow]:
    with Store.open(home) as store:
        good = add_job(store, "good", State.COMPLETED, exit_code=0, labels={"sweep": "lr"})
        worse = add_job(
            store,
            "worse",
            State.COMPLETED,
            exit_code=0,
            labels={"sweep": "lr"},
            params={"lr": 0.1, "net": {"depth": 3}},
        )
        failed = add_job(store, "broken", State.FAILED, reason=Reason("no memory", "C203"), exit_code=1)
        for row, loss in ((good, 0.1), (worse, 0.5), (failed, 3.0)):
            add_series(store, row.id, "train/loss", loss)
        bare = add_job(store, "bare", State.HALTED)
    return [good, worse, failed, bare]


def test_filters_and_orders(fabric: Fabric, rows: list[JobRow]) -> None:
    def names(*words: str) -> list[str]:
        return [each["name"] for each in fabric.json("list", "--json", *words)]

    assert names("--where", "loss<0.3 or state:failed", "--where", "exit=1 or bare") == ["broken"]
    assert names("--label", "sweep=lr", "--sort", "-loss", "--limit", "1") == ["worse"]


def test_columns_are_of_the_job_its_settings_labels_and_metrics(fabric: Fabric, rows: list[JobRow]) -> None:
    shown = lines_of(
        fabric("list", "--columns", "name,loss,label.sweep,framework.command", "--sort", "loss").stdout
    )

    assert shown[0].split() == ["NAME", "loss", "label.sweep", "framework.command"]
    assert shown[1].split() == ["good", "0.1", "lr", "true"]
    assert "loss" in lines_of(fabric("list", "--columns", "+loss").stdout)[0].split()


@pytest.mark.parametrize(
    ("args", "message", "mark"),
    [
        (["--where", "state:done los<0.3"], "no job has a metric 'los'", "             ^^^^^^^"),
        (["--sort", "lossy"], "did you mean loss?", ""),
        (["--columns", "naem"], "did you mean name?", ""),
    ],
)
def test_a_wrong_expression_is_pointed_at(
    fabric: Fabric, rows: list[JobRow], args: list[str], message: str, mark: str
) -> None:
    stderr = fabric("list", *args, expect=64).stderr

    assert message in stderr
    assert mark in stderr.splitlines() or not mark


def test_a_list_is_watched_until_it_is_left(fabric: Fabric, home: Home, rows: list[JobRow]) -> None:
    watching = fabric.start("list", "--watch", "--json", "--where", "name:good")
    assert watching.stdout is not None
    try:
        first = json.loads(watching.stdout.readline())
        fabric("tag", "good", "best")
        second = json.loads(watching.stdout.readline())
    finally:
        watching.terminate()
        watching.communicate(timeout=patience())

    assert (first["tags"], second["tags"]) == ([], ["best"])


def test_tags_and_notes_are_written_found_and_taken_away(fabric: Fabric, rows: list[JobRow]) -> None:
    assert fabric("tag", "good", "best", "paper").stdout == "best paper\n"
    assert fabric("tag", "good", "--remove", "paper").stdout == "best\n"
    fabric("note", "good", "first", "look")
    fabric("note", "good", "--append", "second")

    assert fabric("note", "good").stdout == "first look\nsecond\n"
    assert [each["name"] for each in fabric.json("list", "--where", "tag:best", "--json")] == ["good"]
    assert "did you mean best?" in fabric("tag", "good", "--remove", "bset", expect=64).stderr
    fabric("note", "good", "--clear")
    assert fabric.json("note", "good", "--json")["note"] == ""


def test_events_say_who_did_what_from_where(fabric: Fabric, rows: list[JobRow]) -> None:
    fabric("tag", "good", "best")

    happened = fabric.json("events", "good", "--json")
    asked = fabric.json("events", "--kind", "annotate,request", "--json")

    assert [each["state"] for each in happened if each["kind"] == "state"][-1] == "COMPLETED"
    assert happened[-1]["text"] == "tagged best"
    assert happened[-1]["origin"] == "cli"
    assert "@" in happened[-1]["who"]
    assert {each["kind"] for each in asked} == {"annotate", "request"}
    assert fabric.json("events", "--who", "nobody-here", "--json") == []
    assert "did you mean request?" in fabric("events", "--kind", "requst", expect=64).stderr


@pytest.fixture
def logs(home: Home, rows: list[JobRow]) -> None:
    for number, row in enumerate(rows):
        folder = folder_of(home, row)
        write_output(folder, [f"line {i} of {row.name}\n".encode() for i in range(5)] + [b"Error: out\n"])
        if number == 0:
            write_output(folder, [b"a needle\n", b"next\n", b"last needle without end"])


def test_grep_finds_lines_of_all_jobs(fabric: Fabric, rows: list[JobRow], logs: None) -> None:
    found = fabric("grep", "line [13] of").stdout.splitlines()
    newest = short_id(rows[-1].id)

    assert found[:2] == [f"{newest}: line 1 of bare", f"{newest}: line 3 of bare"]
    assert len(found) == 6
    assert [each["name"] for each in fabric.json("grep", "Error", "--where", "state:failed", "--json")] == [
        "broken"
    ]
    assert len(fabric("grep", "-i", "-F", "ERROR: OUT", "--jobs").stdout.splitlines()) == 3
    assert fabric("grep", "needle", "--count").stdout.split() == [short_id(rows[0].id), "2", "good"]
    assert fabric("grep", "nothing of that", expect=1).stdout == ""


def test_a_wrong_pattern_is_refused(fabric: Fabric, rows: list[JobRow]) -> None:
    assert "not a regular expression" in fabric("grep", "(", expect=64).stderr


@pytest.mark.parametrize(
    "args",
    [
        ("grep", "(a|aa)+$"),
        pytest.param(
            ("logs", "slow", "--grep", "(a|aa)+$"),
            marks=pytest.mark.soak(
                "another way through the lines, which tests/quick/logs/test_grep.py has; the gate has what grep says"
            ),
        ),
        ("list", "--where", "name:/(a|aa)+$/"),
        ("sql", "select name from jobs where name regexp '(a|aa)+$'"),
    ],
)
def test_a_pattern_that_runs_on_is_given_up_by_its_name(
    fabric: Fabric, home: Home, args: tuple[str, ...]
) -> None:
    with Store.open(home) as store:
        row = add_job(store, "slow", State.COMPLETED, exit_code=0)
        add_job(store, "a" * 50 + "!", State.COMPLETED, exit_code=0)
    write_output(folder_of(home, row), [b"a" * 60 + b"!\n"])

    refused = fabric(*args, expect=64)

    assert "the regular expression /(a|aa)+$/ takes too long and was given up" in refused.stderr


def test_sql_reads_the_documented_views(fabric: Fabric, rows: list[JobRow]) -> None:
    query = "select jobs.name, setting(id, 'framework.command') c, last from jobs join metrics using (id)"

    found = list(csv.reader(io.StringIO(fabric("sql", query + " order by last", "--csv").stdout)))

    assert found == [
        ["name", "c", "last"],
        ["good", "true", "0.1"],
        ["worse", "true", "0.5"],
        ["broken", "true", "3.0"],
    ]
    views = {each["name"]: each["columns"] for each in fabric.json("sql", "--json")}
    for name, columns in views.items():
        fabric("sql", f"select {', '.join(columns)} from {name}")


def test_bytes_are_printed_and_no_column_takes_the_place_of_the_mark(
    fabric: Fabric, rows: list[JobRow]
) -> None:
    (row,) = fabric.json("sql", "select x'00ff' as bytes", "--json")

    assert row == {"schema": "fabric.row/1", "bytes": "00ff"}
    assert "another name" in fabric("sql", "select 1 as schema", "--json", expect=64).stderr


@pytest.mark.parametrize(
    "statement",
    [
        "delete from jobs",
        "update main.jobs set name = 'x'",
        "insert into main.meta values ('a', 'b')",
        "drop table main.points",
        "create table x (y)",
        "create temp table x (y)",
        "create temp trigger t after insert on main.jobs begin select 1; end",
        "attach database '/tmp/fab-other.db' as other",
        "detach database main",
        "pragma user_version = 7",
        "pragma query_only = 0",
        "vacuum into '/tmp/fab-copy.db'",
        "begin immediate",
        "select load_extension('x')",
        "reindex",
        "analyze",
        "with x as (select 1) delete from main.jobs",
        "select 1; delete from main.jobs",
    ],
)
def test_sql_cannot_write(fabric: Fabric, home: Home, rows: list[JobRow], statement: str) -> None:
    with sqlite3.connect(home.database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = home.database.read_bytes()

    ran = fabric("sql", statement, expect=None)

    assert ran.returncode in (64, 77)
    assert ran.stderr.startswith("error: ")
    assert home.database.read_bytes() == before
    assert not Path("/tmp/fab-copy.db").exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from jbos", "did you mean jobs?"),
        ("select nmae from jobs", "did you mean name?"),
        ("selct 1", "^^^^^"),
        ("select 1; select 2", "one statement at a time"),
    ],
)
def test_wrong_sql_names_the_nearest_or_the_place(
    fabric: Fabric, rows: list[JobRow], query: str, message: str
) -> None:
    assert message in fabric("sql", query, expect=64).stderr


@pytest.mark.unmade_home
def test_nothing_is_made_by_looking_where_no_home_is(fabric: Fabric, home: Home) -> None:
    fabric("list", "--where", "state:failed")
    fabric("grep", "x", expect=1)
    fabric("events")
    fabric("sql", "select 1", expect=66)

    assert not home.path.exists()


def test_events_are_followed(fabric: Fabric, rows: list[JobRow]) -> None:
    following = fabric.start("events", "-f", "--json", "-n", "1", "--kind", "annotate")
    assert following.stdout is not None
    try:
        os.set_blocking(following.stdout.fileno(), False)
        seen: list[bytes] = []

        def is_printed() -> bool:
            fabric("tag", "good", f"t{len(seen)}")
            seen.append(following.stdout.read() or b"")  # type: ignore[union-attr] # it is a pipe
            return b"tagged" in b"".join(seen)

        until(is_printed, "the event to be printed")
    finally:
        following.terminate()
        following.communicate(timeout=patience())
