"""A home on a FUSE mount: it has no hard links, and the mount may end and come back while jobs run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Fabric, end_everything
from tests.store.fuse import RcloneMount, rclone_mount
from tests.waiting import until
from workbench.paths import Home

WAITS = 'trap "exit 0" TERM; echo started; while :; do sleep 0.05; done'


@pytest.fixture
def mounted(fabric: Fabric, clean_environment: Path) -> Iterator[RcloneMount]:
    with rclone_mount(clean_environment / "mnt") as mount:
        yield mount


@pytest.fixture
def fuse(mounted: RcloneMount, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(mounted.point / "home")
    monkeypatch.setenv("FABRIC_HOME", str(home.path))
    yield home
    end_everything(home)


def runs(fabric: Fabric) -> None:
    until(lambda: fabric.json("show", "@last", "--json")["state"] == "PROCESSING", "the job to run")


def test_a_job_runs_and_its_output_is_read(fabric: Fabric, fuse: Home) -> None:
    ran = fabric("run", "--", "echo hello; exit 3", expect=3)

    assert ran.stdout == "hello\n"
    assert fabric("logs", "@last").stdout == "hello\n"
    assert [one["state"] for one in fabric.json("list", "--json")] == ["FAILED"]


def test_a_job_is_halted_resumed_killed_and_deleted(fabric: Fabric, fuse: Home) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    runs(fabric)
    assert fabric("halt", "@last").stderr.endswith("HALTED\n")
    fabric("resume", "@last")
    runs(fabric)
    assert fabric("kill", "@last").stderr.endswith("HALTED\n")
    fabric("delete", "@last", "--yes")

    assert fabric.json("list", "--json") == []


def test_the_learner_that_fails_first_decides(fabric: Fabric, fuse: Home) -> None:
    (fabric.folder / "manifest.yml").write_text(
        "name: two\nlearners: 2\nframework: {name: custom, version: any, command: "
        "'[ $LEARNER_ID = 1 ] && exit 4; while :; do sleep 0.05; done'}\n"
    )

    fabric("run", "--runner", "process", "manifest.yml", expect=4)


def test_the_store_is_rebuilt_from_the_job_folders(fabric: Fabric, fuse: Home) -> None:
    fabric("run", "-q", "--", "true")
    fabric("controller", "stop")

    fabric("doctor", "--rebuild", "--yes")

    assert [one["state"] for one in fabric.json("list", "--json")] == ["COMPLETED"]
    assert len(list(fuse.path.glob("fabric.db.before-*"))) >= 1
