"""``fabric du`` and ``fabric prune``: what takes up space, what may go, and that nothing goes unsaid."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.support.command import Fabric
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow

DAY_US = 86_400_000_000


@pytest.fixture
def rows(home: Home) -> dict[str, JobRow]:
    """Four jobs that ended long ago, and one that did not end."""
    made = {}
    with Store.open(home) as store:
        for name, state in (
            ("old", State.COMPLETED),
            ("failed", State.FAILED),
            ("kept", State.COMPLETED),
            ("open", State.PROCESSING),
            ("new", State.COMPLETED),
        ):
            row = add_job(store, name, state)
            write_output(folder_of(home, row), [b"x" * 100_000])
            results = home.job(row.id).results
            results.mkdir(parents=True)
            (results / "model").write_bytes(b"y" * 50_000)
            if name != "new":
                store.execute("UPDATE jobs SET ended_us = ended_us - ? WHERE id = ?", (40 * DAY_US, row.id))
            made[name] = row
    return made


def names(fabric: Fabric) -> set[str]:
    return {row["name"] for row in fabric.json("list", "--json")}


def test_du_measures_logs_results_and_caches(fabric: Fabric, home: Home, rows: dict[str, JobRow]) -> None:
    home.code.mkdir(parents=True)
    (home.code / "abc.tar.gz").write_bytes(b"z" * 10_000)

    found = fabric.json("du", "--json")
    old = next(each for each in found["jobs"] if each["name"] == "old")

    assert 100_000 <= old["logs_bytes"] < 120_000
    assert 50_000 <= old["results_bytes"] < 65_000
    assert old["total_bytes"] == sum(
        old[f"{part}_bytes"] for part in ("logs", "results", "checkpoints", "other")
    )
    assert {each["name"] for each in found["shared"]} >= {"code", "database"}
    assert [each["name"] for each in fabric.json("du", "old", "--json")["jobs"]] == ["old"]
    assert fabric("du").stdout.splitlines()[0].split() == [
        "ID", "NAME", "STATE", "LOGS", "RESULTS", "CHECKPOINTS", "OTHER", "TOTAL",
    ]  # fmt: skip


def test_a_dry_run_removes_nothing_and_what_it_lists_goes_then(
    fabric: Fabric, rows: dict[str, JobRow]
) -> None:
    fabric("tag", "kept", "keep")

    words = ("prune", "--older-than", "30d", "--keep-failed", "--keep-last", "1")
    shown = fabric.json(*words, "--dry-run", "--json")

    assert {each["name"] for each in shown["jobs"]} == {"old"}
    assert shown["removed"] is False
    assert shown["freed_bytes"] > 150_000
    assert names(fabric) == set(rows)
    assert "removed 1 job" in fabric(*words, "--yes").stderr
    assert names(fabric) == set(rows) - {"old"}
    fabric("controller", "stop")


def test_nothing_goes_without_being_asked_for(fabric: Fabric, rows: dict[str, JobRow]) -> None:
    asked = fabric("prune", "--older-than", "30d", expect=64)

    assert "--yes" in asked.stderr
    assert "job " in asked.stdout
    assert names(fabric) == set(rows)
    assert "nothing selects the jobs to remove" in fabric("prune", "--yes", expect=64).stderr


def test_retention_is_what_counts_when_no_rule_is_given(fabric: Fabric, rows: dict[str, JobRow]) -> None:
    fabric("config", "set", "retention.older_than", "30d")
    fabric("config", "set", "retention.keep_failed", "true")

    shown = fabric.json("prune", "--dry-run", "--json")

    assert {each["name"] for each in shown["jobs"]} == {"old", "kept"}


def test_only_logs_go_and_what_was_learnt_stays(fabric: Fabric, home: Home, rows: dict[str, JobRow]) -> None:
    ran = fabric("prune", "--where", "name:old", "--logs-only", "--yes")

    folder = home.job(rows["old"].id)
    assert (folder.results / "model").exists()
    assert not folder.attempt(1).learner(1).output.exists()
    assert fabric("logs", "old").stdout == ""
    assert "removed 1 job's log" in ran.stderr
    assert fabric.json("events", "old", "--kind", "note", "--json")[-1]["text"] == "its logs were removed"


def test_caches_that_no_job_uses_go(fabric: Fabric, home: Home) -> None:
    (fabric.folder / "a.txt").write_text("a")
    fabric("run", "-q", "--", "true")
    (fabric.folder / "a.txt").write_text("b")
    fabric("run", "-q", "--", "true")
    fabric("delete", "@last", "--yes")
    for file in home.code.glob("*.tar.gz"):  # what was used just now is not removed
        os.utime(file, (0, 0))
    stale = home.environments / ("e" * 64)
    stale.mkdir(parents=True)
    (stale / "big").write_bytes(b"x" * 10_000)

    shown = fabric.json("prune", "--caches", "--dry-run", "--json")
    fabric("prune", "--caches", "--yes")

    assert {each["kind"] for each in shown["caches"]} >= {"code", "environment"}
    assert not stale.exists()
    assert len(list(home.code.glob("*.tar.gz"))) == 1
    assert names(fabric) == {"true"}


def test_files_with_several_names_count_once(tmp_path: Path) -> None:
    from workbench.services.upkeep.disk_usage import disk_bytes

    (tmp_path / "a").write_bytes(b"x" * 100_000)
    one = disk_bytes(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")

    assert disk_bytes(tmp_path) == one


@pytest.mark.parametrize(
    "args", [["--older-than", "soon"], ["--where", "stat:x"], ["--caches", "--keep-last", "1"]]
)
def test_a_wrong_choice_removes_nothing(fabric: Fabric, rows: dict[str, JobRow], args: list[str]) -> None:
    fabric("prune", *args, "--yes", expect=64)

    assert names(fabric) == set(rows)
