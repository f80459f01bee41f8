"""A home on a mount that is taken away and mounted again while jobs run, as a server's that is rebooted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import WAITS, Fabric, until_runs
from tests.support.controllers import alive, answers
from tests.support.fuse import FuseMount, sshfs_mount
from tests.support.processes import end_everything
from tests.support.waiting import until
from workbench.controller.client.connect import stop_controller
from workbench.paths import Home


@pytest.fixture
def mounted(fabric: Fabric, clean_environment: Path) -> Iterator[FuseMount]:
    with sshfs_mount(clean_environment / "mnt") as mount:
        yield mount


@pytest.fixture
def remote(mounted: FuseMount, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(mounted.point / "home")
    monkeypatch.setenv("FABRIC_HOME", str(home.path))
    monkeypatch.delenv("FABRIC_NO_CONTROLLER")
    yield home
    end_everything(home)


OTHER_END = pytest.mark.soak("the other end of a mount; the gate has each, with a controller or with a job")


@pytest.mark.parametrize("ends", ["unmount", pytest.param("end", marks=OTHER_END)])
def test_a_controller_whose_home_is_gone_ends_and_the_next_one_finds_its_jobs(
    fabric: Fabric, mounted: FuseMount, remote: Home, ends: str
) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until_runs(fabric)
    pid = answers(remote).pid

    getattr(mounted, ends)()
    until(lambda: not alive(pid), "the controller to end")
    mounted.unmount()
    left = list(mounted.point.rglob("*"))
    mounted.mount()

    assert list(map(str, left)) == []
    until_runs(fabric)
    assert answers(remote).pid != pid
    stop_controller(remote)


@pytest.mark.parametrize("ends", [pytest.param("unmount", marks=OTHER_END), "end"])
def test_a_job_goes_on_when_its_home_is_mounted_again(
    fabric: Fabric, mounted: FuseMount, remote: Home, clean_environment: Path, ends: str
) -> None:
    go = clean_environment / "go"
    command = f"n=0; until [ -e {go} ]; do n=$((n+1)); echo line $n; sleep 0.05; done; exit 3"
    fabric("run", "-q", "-d", "--", command)
    until(lambda: "line 20\n" in fabric("logs", "@last").stdout, "20 lines")

    getattr(mounted, ends)()
    mounted.unmount()
    mounted.mount()
    printed = len(fabric("logs", "@last").stdout)
    until(lambda: len(fabric("logs", "@last").stdout) > printed, "the job to go on")
    go.touch()

    assert fabric("wait", "@last", expect=3)
    numbers = [int(line.split()[1]) for line in fabric("logs", "@last").stdout.splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_job_is_halted_after_its_home_was_mounted_again(
    fabric: Fabric, mounted: FuseMount, remote: Home
) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until(lambda: fabric("logs", "@last").stdout == "started\n", "the job to print")
    until_runs(fabric)
    mounted.end()
    mounted.unmount()
    mounted.mount()

    halted = fabric("halt", "@last").stderr
    assert halted.endswith("HALTED\n"), fabric("events", "@last").stdout
    assert fabric("logs", "@last").stdout.startswith("started\n")
