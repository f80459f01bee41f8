"""``fabric metrics`` shows what was ingested, as a table, CSV and JSON."""

from __future__ import annotations

import csv
import json

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
