"""``fabric list`` and ``fabric show`` over a store with jobs in every state."""

from __future__ import annotations

import json

import pytest

from tests.cli.jobs import PATHS, add_job
from tests.support.command import Fabric, lines_of
from workbench.job import Reason, State, short_id
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted


@pytest.fixture
def rows(home: Home) -> list[JobRow]:
    with Store.open(home) as store:
        made = [add_job(store, f"job-{state.lower()}", state) for state in PATHS]
        failed = add_job(
            store,
            "broken",
            State.FAILED,
            reason=Reason("the command ended with 3", "C201", "look at its last lines"),
            exit_code=3,
            exit_by="job",
            labels={"team": "vision"},
        )
    return [*made, failed]


def test_json_is_an_array_newest_first_with_the_promised_fields(fabric: Fabric, rows: list[JobRow]) -> None:
    listed = fabric.json("list", "--json")

    assert [each["id"] for each in listed] == [row.id for row in reversed(rows)]
    assert listed[0]["state"] == "FAILED"
    assert listed[0]["reason"] == "the command ended with 3"
    assert listed[0]["reason_code"] == "C201"
    assert listed[0]["exit_code"] == 3
    assert listed[0]["exit_by"] == "job"
    assert {each["schema"] for each in listed} == {"fabric.job/1"}


def test_the_table_says_what_and_why(fabric: Fabric, rows: list[JobRow]) -> None:
    heading, newest, *_ = lines_of(fabric("list", COLUMNS="200").stdout)

    assert heading.split() == ["ID", "NAME", "STATE", "BACKEND", "GPUS", "SUBMITTED", "TIME", "EXIT", "WHY"]
    assert newest.startswith(short_id(rows[-1].id))
    assert newest.endswith("3  C201 the command ended with 3")


def test_filters(fabric: Fabric, rows: list[JobRow]) -> None:
    def names(*words: str) -> list[str]:
        return [each["name"] for each in fabric.json("list", "--json", *words)]

    assert names("-s", "queued", "-s", "PROCESSING") == ["job-processing", "job-queued"]
    assert names("bro", "--label", "team=vision", "--state", "failed,open") == ["broken"]
    assert names("--backend", "nowhere") == []
    assert names("--limit", "2") == ["broken", "job-halted"]


@pytest.mark.parametrize("name", ["list", "ls", "ps"])
def test_other_names_list_too(fabric: Fabric, rows: list[JobRow], name: str) -> None:
    assert len(fabric(name, "-q").stdout.split()) == len(rows)


def test_what_is_cut_off_is_reported(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store, store.atomic():
        for number in range(60):
            add_job(store, f"job-{number}")

    some = fabric("list")
    few = fabric("list", "--limit", "3", "--state", "queued")
    every = fabric("list", "--all")

    assert len(some.stdout.splitlines()) == 51
    assert some.stderr == "showing 50 of 60; --all shows the rest\n"
    assert few.stderr == "showing 3 of 60; --all shows the rest\n"
    assert len(every.stdout.splitlines()) == 61
    assert every.stderr == ""


def test_deleted_jobs_are_not_listed(fabric: Fabric, home: Home, rows: list[JobRow]) -> None:
    with Store.open(home) as store:
        mark_deleted(store, rows[-1].id)

    assert "broken" not in fabric("list").stdout
    assert "there is no job" in fabric("show", short_id(rows[-1].id), expect=64).stderr


def test_a_line_fits_the_terminal(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "x" * 60, State.FAILED, reason=Reason("word " * 80))

    listed = fabric("list", COLUMNS="100")

    assert max(len(line) for line in listed.stdout.splitlines()) <= 100
    assert "…" in listed.stdout


def test_no_colour_where_no_terminal_is(fabric: Fabric, rows: list[JobRow]) -> None:
    assert "\x1b" not in fabric("list").stdout + fabric("show", "broken").stdout


def test_show_says_why_and_what_to_do(fabric: Fabric, rows: list[JobRow]) -> None:
    shown = fabric("show", "broken").stdout

    assert shown.startswith(f"{rows[-1].id}  broken  FAILED")
    for text in ("C201 the command ended with 3", "look at its last lines", "local, as process"):
        assert text in shown
    assert "team=vision" in shown
    assert "attempt 1: failed" in shown


def test_an_attempt_that_made_room_has_not_failed(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        add_job(store, "patient", State.FAILED, reason=Reason("preempted", "S106"), exit_by="preempt")

    assert "attempt 1: preempted" in fabric("show", "patient").stdout


def test_show_json_holds_the_whole_job(fabric: Fabric, rows: list[JobRow]) -> None:
    shown = fabric.json("show", short_id(rows[-1].id)[:6], "--json")

    assert shown["schema"] == "fabric.job/1"
    assert shown["spec"]["framework"]["command"] == "true"
    assert [each["state"] for each in shown["history"] if each["kind"] == "state"][-1] == "FAILED"
    assert shown["attempts"][0]["exit_code"] == 3


def test_show_origin_names_every_value_and_its_source(fabric: Fabric, rows: list[JobRow]) -> None:
    shown = [line.split() for line in fabric("show", "broken", "--origin", COLUMNS="200").stdout.splitlines()]

    assert ["name", "broken", "manifest.yml:1"] in shown
    assert ["learners", "1", "default"] in shown


def test_show_prints_the_manifest_as_it_was(fabric: Fabric, rows: list[JobRow]) -> None:
    assert fabric("show", "broken", "--manifest").stdout == "name: broken\n"


def test_a_name_that_jobs_share_is_the_newest_and_deletes_none(fabric: Fabric, home: Home) -> None:
    with Store.open(home) as store:
        first, second = add_job(store, "twin"), add_job(store, "twin")

    shown = fabric("show", "twin", "--json", FABRIC_NO_CONTROLLER="1")
    refused = fabric("delete", "twin", "--yes", expect=64).stderr

    assert json.loads(shown.stdout)["id"] == second.id
    assert f"note: 2 jobs have the name 'twin'; this is the newest, {short_id(second.id)}" in shown.stderr
    assert short_id(first.id) in refused
    assert short_id(second.id) in refused
    assert fabric.json("show", "@last~1", "--json", FABRIC_NO_CONTROLLER="1")["id"] == first.id


def test_last_is_the_newest(fabric: Fabric, rows: list[JobRow]) -> None:
    assert fabric.json("show", "@last", "--json")["name"] == "broken"


def test_the_backend_has_one_name_and_its_older_ones_still_work(fabric: Fabric, rows: list[JobRow]) -> None:
    for name in ("backend", "where", "place"):
        listed = lines_of(fabric("list", "--columns", f"name,{name}", "--sort", name).stdout)
        assert listed[0].split() == ["NAME", "BACKEND"]
        assert listed[1].split()[1] == "local"
        assert len(fabric("list", "-q", "--where", f"{name}:loc").stdout.split()) == len(rows)
    assert "place" not in fabric("list", "--columns", "nowhere", expect=64).stderr


def test_a_column_of_the_list_that_jobs_lack_is_last_in_both_directions(
    fabric: Fabric, rows: list[JobRow]
) -> None:
    for sort in ("exit", "-exit"):
        listed = lines_of(fabric("list", "--columns", "name,exit", "--sort", sort).stdout)
        assert listed[1].split() == ["broken", "3"]
    message = fabric("list", "--sort", "runer", expect=64).stderr
    assert "error: cannot sort by 'runer'" in message
    assert "did you mean runner? Sort keys are id, name, state, backend, runner," in message
