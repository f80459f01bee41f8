"""``fabric du`` and ``fabric prune``: what takes up space, what may go, and that nothing goes unsaid."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.cli.journals import folder_of, write_output
from tests.support.command import Fabric
from tests.support.engine import engine_that_answers
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


@pytest.fixture
def ended_job(home: Home) -> None:
    """A home with one job, which has ended."""
    with Store.open(home) as store:
        add_job(store, "ended", State.COMPLETED)


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


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
IN_USE = (
    b'HTTP/1.0 409 Conflict\r\nContent-Type: application/json\r\n\r\n{"message": "a container is using it"}'
)
IMAGES = b'[{"RepoTags": ["fabric-build:1"], "Size": 10}]'
ENDED = b'[{"State": "removing", "Labels": {"fabric.home": "one"}}]'
OF_SOMEBODY = b'[{"State": "exited", "Labels": {}}]'


def engine_with_image(removals: list[bytes], containers: bytes) -> AbstractContextManager[str]:
    """Serve an engine with one image that was built of a job's code, and containers that use it."""
    return engine_that_answers(
        HEAD + b'{"ApiVersion": "1.44", "MinAPIVersion": "1.24"}',
        {
            b"images/json": HEAD + IMAGES,
            b"containers/json": HEAD + containers,
            b"DELETE": removals,
            b"_ping": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nOK",
        },
    )


@pytest.mark.usefixtures("ended_job")
def test_an_image_whose_last_container_is_being_removed_goes_once_it_is(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_with_image([IN_USE, IN_USE, HEAD + b"[]"], ENDED) as path:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        removed = fabric.json("prune", "--caches", "--yes", "--json")

    assert [each["name"] for each in removed["caches"] if each["kind"] == "image"] == ["fabric-build:1"]


@pytest.mark.usefixtures("ended_job")
def test_an_image_that_somebody_uses_stays_and_is_not_counted_as_removed(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_with_image([IN_USE], OF_SOMEBODY) as path:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        as_text = fabric("prune", "--caches", "--yes", expect=75)
        as_json = fabric("prune", "--caches", "--yes", "--json", expect=75)

    assert "the image fabric-build:1 stays: a container is using it" in as_text.stderr
    assert as_text.stderr.endswith("nothing was removed\n")
    document = json.loads(as_json.stdout)
    assert (document["caches"], document["freed_bytes"]) == ([], 0)


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
