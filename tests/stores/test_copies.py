"""Copies of stores' data here and at a host: no larger than the configuration says, listed and pruned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.real_jobs import Ground
from tests.support.store_servers import Server
from tests.support.waiting import until
from workbench.job import State
from workbench.paths import Home
from workbench.store.db.rows import TargetRef

LIMIT_BYTES = 1_000_000


@pytest.fixture
def ground(own_ground: Ground) -> Ground:
    """Real jobs in a home of the test's own: it counts copies."""
    return own_ground


@pytest.fixture
def there(home: Home, box: Box) -> Iterator[Ground]:
    """A home whose jobs run at the host."""
    made = Ground(home, TargetRef("box", "ssh", "process", address=box.address))
    yield made
    made.clean_up()


def read(ground: Ground, s3: Server, container: str) -> str:
    """Have a job read a container; return its output."""
    job_id = ground.submit(
        "wc -c <$DATA_DIR/file",
        data_stores=(s3.store(training_data=container, training_results=""),),
        recorded={"data_cache_bytes": LIMIT_BYTES},
    )
    row = ground.ends(job_id)
    assert row.state is State.COMPLETED, row.reason
    return ground.output(job_id)


def test_copies_at_a_host_keep_to_their_limit_and_are_listed_and_pruned_from_here(
    there: Ground, box: Box, s3: Server, clean_environment: Path
) -> None:
    names = ("first", "second", "third")
    for name in names:
        s3.write(f"{name}/file", name.encode() * (400_000 // len(name)))
    for name in names:
        assert int(read(there, s3, name)) > 390_000

    folder = clean_environment / "work"
    folder.mkdir()
    fabric = Fabric(folder)
    fabric("backend", "add", "box", box.address)
    listed = fabric.json("data", "list", "--backend", "box", "--json")
    # What was used longest ago had to go for the third.
    assert [each["container"] for each in listed] == ["third", "second"]
    assert {(each["backend"], each["in_use"], each["whole"]) for each in listed} == {("box", False, True)}
    assert all(each["folder"].startswith(str(box.user.home)) for each in listed)
    assert s3.address in fabric("data", "list").stdout
    assert [each["container"] for each in fabric.json("du", "--backend", "box", "--json")] == [
        "third",
        "second",
    ]
    (gone,) = fabric.json("data", "prune", "--backend", "box", "--to", "0.5MB", "--yes", "--json")
    assert gone["container"] == "second"
    assert fabric.json("data", "prune", "--backend", "local", "--yes", "--json") == []
    pruned = fabric.json("prune", "--caches", "--backend", "box", "--yes", "--json")
    assert pruned["caches"][0]["name"] == "1 at box"
    assert all(each["name"].endswith("parts at box") for each in pruned["caches"][1:])  # of the jobs' code
    assert fabric.json("data", "list", "--json") == []
    assert not (Path(gone["folder"])).exists()
    assert "'backend:NAME'" in fabric("prune", "--backend", "box", "--older-than", "1d", expect=64).stderr


def test_copies_here_are_pruned_but_for_those_that_a_job_reads(
    ground: Ground, s3: Server, clean_environment: Path
) -> None:
    for name in ("first", "second"):
        s3.write(f"{name}/file", name.encode() * 1000)
    read(ground, s3, "first")
    reading = ground.submit(
        "echo up; while [ ! -e end ]; do sleep 0.05; done; wc -c <$DATA_DIR/file",
        data_stores=(s3.store(training_data="second", training_results=""),),
    )
    until(lambda: ground.output(reading) == "up\n", lambda: ground.output(reading))
    folder = clean_environment / "work"
    folder.mkdir()
    fabric = Fabric(folder)

    shown = fabric.json("prune", "--caches", "--dry-run", "--json")
    there = fabric.json("data", "list", "--json")
    fabric("prune", "--caches", "--yes")
    kept = fabric.json("data", "list", "--json")
    (ground.home.job(reading).attempt(1).model(1) / "end").touch()
    row = ground.ends(reading)
    until(
        lambda: not any(each["in_use"] for each in fabric.json("data", "list", "--json")),
        "the agent to let go of its copy",
    )

    assert [(each["kind"], each["name"]) for each in shown["caches"]] == [("data", "1 at local")]
    assert {each["container"]: each["in_use"] for each in there} == {"first": False, "second": True}
    assert [each["container"] for each in kept] == ["second"]
    assert row.state is State.COMPLETED
    assert ground.output(reading) == "up\n6000\n"
    assert fabric.json("prune", "--caches", "--yes", "--json")["caches"] != []
    assert fabric.json("data", "list", "--json") == []
