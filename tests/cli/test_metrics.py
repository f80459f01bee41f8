"""``fabric metrics`` shows what was ingested, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from tests.cli.conftest import Fabric, lines_of
from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, points, write_records
from workbench.job import State
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobRow


@pytest.fixture
def row(home: Home) -> JobRow:
    with Store.open(home) as store:
        row = add_job(store, "measured", State.COMPLETED)
        folder = folder_of(home, row)
        records = [points([1, 2, 3], loss=[0.5, None, 0.25], accuracy=[0.1, 0.2, 0.3])]
        write_records(folder, row, records, home=home_uuid(home))
        while ingest(store, row.id, 1, 1, folder.records):
            pass
    return row


def test_the_table_has_a_row_a_step(fabric: Fabric, row: JobRow) -> None:
    heading, first, second, third = lines_of(fabric("metrics", "measured").stdout)

    assert sorted(heading.split()) == ["accuracy", "loss", "step"]
    assert sorted(first.split()) == ["0.1", "0.5", "1"]
    assert "nan" in second
    assert third.split()[0] == "3"


def test_what_is_cut_off_is_said(fabric: Fabric, row: JobRow) -> None:
    ran = fabric("metrics", "measured", "--tail", "1")

    assert len(ran.stdout.splitlines()) == 2
    assert ran.stderr == "showing the last 1 of 3; --all shows the rest\n"


def test_csv_holds_every_value(fabric: Fabric, row: JobRow) -> None:
    rows = list(csv.DictReader(fabric("metrics", "measured", "--csv").stdout.splitlines()))

    assert [each["step"] for each in rows] == ["1", "2", "3"]
    assert [each["loss"] for each in rows] == ["0.5", "nan", "0.25"]
    assert [float(each["accuracy"]) for each in rows] == [0.1, 0.2, 0.3]


def test_json_holds_series_and_rows(fabric: Fabric, row: JobRow) -> None:
    document = fabric.json("metrics", "measured", "--json")

    assert document["schema"] == "fabric.metrics/1"
    assert [each["values"]["loss"] for each in document["rows"]] == [0.5, None, 0.25]
    assert {each["name"]: each["points"] for each in document["series"]} == {"accuracy": 3, "loss": 3}


def test_latest_says_last_least_and_greatest(fabric: Fabric, row: JobRow) -> None:
    accuracy = next(
        line for line in fabric("metrics", "measured", "--latest").stdout.splitlines() if "acc" in line
    )

    assert accuracy.split() == ["accuracy", "1", "3", "0.3", "0.1", "0.3", "3"]


def test_following_an_ended_job_gives_all_and_ends(fabric: Fabric, row: JobRow) -> None:
    lines = fabric("metrics", "measured", "-f").stdout.splitlines()
    events = [json.loads(line) for line in fabric("metrics", "measured", "-f", "--json").stdout.splitlines()]

    assert len(lines) == 6
    assert [each["value"] for each in events if each["name"] == "loss"] == [0.5, None, 0.25]


def test_show_names_the_last_values(fabric: Fabric, row: JobRow) -> None:
    assert "loss=0.25" in fabric("show", "measured").stdout


def test_a_job_without_metrics_says_how_to_get_some(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "silent")

    ran = fabric("metrics", "silent")

    assert ran.stdout == ""
    assert "evaluation_metrics" in ran.stderr


def take(store: Store, home: Home, row: JobRow, records: list[dict[str, Any]], **which: int) -> None:
    """Let a learner of an attempt have reported records."""
    folder = folder_of(home, row, **which)
    write_records(folder, row, records, home=home_uuid(home))
    while ingest(store, row.id, which.get("attempt", 1), which.get("learner", 1), folder.records):
        pass


@pytest.fixture
def resumed(home: Home) -> JobRow:
    """A job of two learners whose second attempt went on from step 2; what it measures is a function of its step."""
    with Store.open(home) as store:
        row = add_job(store, "resumed", State.COMPLETED, learners=2)
        take(store, home, row, [points([1, 2, 3, 4], loss=[-1.0, -2.0, -300.0, -400.0])], attempt=1)
        take(store, home, row, [points([3, 4, 5], loss=[-3.0, -4.0, -5.0])], attempt=2)
        take(store, home, row, [points([1], loss=[-7.0])], learner=2)
        store.execute("UPDATE jobs SET attempt = 2")
    return row


def test_what_a_later_attempt_went_over_again_is_left_out_said_and_shown_on_request(
    fabric: Fabric, resumed: JobRow
) -> None:
    table = fabric("metrics", "resumed", "--learner", "1")
    rows = fabric.json("metrics", "resumed", "--superseded", "--json")["rows"]
    first = fabric.json("metrics", "resumed", "--attempt", "1", "--json")["rows"]
    followed = fabric("metrics", "resumed", "-f", "--learner", "1", "--json").stdout.splitlines()
    latest = fabric("metrics", "resumed", "--latest", "--learner", "1").stdout.splitlines()[1].split()

    assert [line.split()[2:] for line in lines_of(table.stdout)[1:]] == [
        ["1", "-1"], ["2", "-2"], ["3", "-3"], ["4", "-4"], ["5", "-5"],
    ]  # fmt: skip
    assert table.stderr == (
        "2 values of earlier attempts that a later one went over again are left out; --superseded shows them\n"
    )
    marked = [(each["attempt"], each["step"]) for each in rows if each["superseded"]]
    assert (len(rows), marked) == (8, [(1, 3), (1, 4)])
    assert [each["step"] for each in first if each["learner"] == 1] == [1, 2, 3, 4]
    assert [json.loads(line)["value"] for line in followed] == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert latest == ["loss", "1", "5", "-5", "-5", "-1", "5"]


def test_the_learner_whose_value_stands_for_a_job_is_named(fabric: Fabric, resumed: JobRow) -> None:
    listed = fabric("list", "--columns", "name,loss,min(loss)", "--where", "min(loss)<-4 loss=-5").stdout

    assert listed.splitlines()[1].split() == ["resumed", "-5", "[1]", "-5", "[1]"]
    assert "loss=-5 [1]" in fabric("show", "resumed").stdout
    assert fabric("list", "--where", "min(loss)<-300", "-q").stdout == ""


def test_a_plot_is_of_one_learner_and_one_course_of_the_training(fabric: Fabric, resumed: JobRow) -> None:
    every = fabric("metrics", "resumed", "--plot").stdout
    first = fabric("metrics", "resumed", "--plot", "--attempt", "1", "--learner", "1").stdout.splitlines()

    assert "loss  learner 1  last -5" in every and "loss  learner 2  last -7" in every
    assert "-400" not in every
    assert first[0] == "loss  learner 1  last -400"
    assert first[-2].split() == ["step", "1", "step", "4"]


def test_values_at_the_end_of_floats_and_beyond_are_drawn_or_counted(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "wild", State.COMPLETED)
        values: list[Any] = [1e308, -1e308, "inf", "-inf", None, 0.5]
        take(store, home, row, [points(range(6), loss=values)])

    drawn = fabric("metrics", "wild", "--plot").stdout.splitlines()

    assert drawn[0] == "loss  last 0.5  (1 is nan, 2 are inf)"
    assert drawn[1].split()[0] == "1e+308" and drawn[-3].split()[0] == "-1e+308"


def test_points_without_a_step_are_in_their_order(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "stepless", State.COMPLETED)
        record = {**points([1, 2, 3], loss=[3.0, 2.0, 1.0]), "steps": [100, None, 5]}
        take(store, home, row, [record])

    assert fabric("metrics", "stepless", "--plot").stdout.splitlines()[-2].split() == ["1", "3"]


def test_names_that_control_a_terminal_are_written_out(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, "odd", State.COMPLETED)
        take(store, home, row, [points([1], loss=[1.0])])
        # As an older version stored it.
        store.execute("UPDATE series SET name = ?", ("a\x1b[31m\r\nb\0",))

    shown = "a\\x1b[31m\\x0d\\x0ab\\x00"
    for words in (["--csv"], ["--latest"], ["--plot"], ["-f"], ["-f", "--csv"], []):
        text = fabric("metrics", "odd", *words).stdout
        assert shown in text and not set(text) & set("\x1b\r\0"), words
    csv_text = fabric("sql", "select name from metrics", "--csv").stdout
    assert "a\\x1b[31m\\x0d\nb\\x00" in csv_text
    assert shown in fabric("sql", "select name from metrics").stdout
