"""Commands on a disk that is full, has no inodes or is read-only: they say so, they stop jobs, and none hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import WAITS, Fabric, until_runs
from tests.support.disks import (
    FILES,
    break_ext4,
    btrfs_quota,
    ext4_disk,
    fill,
    fill_files,
    is_remounted,
    read_only,
    small_disk,
)
from tests.support.processes import end_everything
from tests.support.waiting import patience, until
from workbench.paths import Home

FULL = "the disk is full"


@pytest.fixture
def small(fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with small_disk(tmp_path / "small", size="6m") as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        home = Home(folder / "home")
        yield home
        end_everything(home)


def take_all(home: Home) -> None:
    """Take all room, and the reserve: whoever is quicker has eaten it."""
    home.reserve.unlink(missing_ok=True)
    fill(home.path.parent)


def attached(fabric: Fabric, *args: str) -> subprocess.Popen[bytes]:
    """Start a job that is followed, and wait until it runs."""
    process = fabric.start("run", *args, "--", WAITS)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    until_runs(fabric)
    return process


def ends(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=patience())
    return process.returncode, stderr.decode()


def test_list_and_show_say_why_output_waits(fabric: Fabric, small: Home) -> None:
    fabric("run", "-q", "-d", "--", "yes")
    until(lambda: FULL in fabric("list").stdout, "the list to say so")

    shown = fabric("show", "@last")
    assert f"why         S204 {FULL}: the command's output waits until there is room" in shown.stdout
    assert "fabric prune" in shown.stdout
    document = fabric.json("show", "@last", "--json")
    # A command that fills the disk before it is recorded that it begins, or that it runs, leaves no room for that.
    assert document["state"] in {"PENDING", "DOWNLOADING", "PROCESSING"}
    assert document["reason_code"] == "S204"
    assert FULL in fabric.json("list", "--json")[0]["reason"]
    until(lambda: f"{FULL}; what is shown may be old" in fabric("list").stderr, "the controller to say so")

    assert fabric("kill", "@last").stderr.endswith("HALTED\n")
    assert fabric.json("show", "@last", "--json")["exit_code"] == 137


def test_a_run_that_is_stopped_on_a_full_disk_ends_with_its_own_code(fabric: Fabric, small: Home) -> None:
    process = attached(fabric)
    fill(small.path.parent)

    process.send_signal(signal.SIGTERM)

    assert ends(process)[0] == 143


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.soak("an interrupt; the gate has a stop")),
    ],
)
def test_a_run_that_is_stopped_where_nothing_can_be_written_ends_and_says_why(
    fabric: Fabric, small: Home, number: signal.Signals
) -> None:
    process = attached(fabric)
    take_all(small)

    process.send_signal(number)
    code, stderr = ends(process)

    assert code == 73
    assert f"{FULL}; the controller stops" in stderr
    (small.path.parent / "filling").unlink()
    assert fabric("wait", "@last", expect=143)


def test_several_jobs_that_are_stopped_where_nothing_can_be_written_end_and_say_why(
    fabric: Fabric, small: Home
) -> None:
    process = fabric.start("run", "--set", "seed=1,2", "--", WAITS)
    until(
        lambda: [one["state"] for one in fabric.json("list", "--json")] == ["PROCESSING"] * 2, "both to run"
    )
    take_all(small)

    process.send_signal(signal.SIGTERM)
    code, stderr = ends(process)

    assert code == 73
    assert FULL in stderr


def test_a_run_whose_output_finds_no_room_ends_after_it_was_stopped(fabric: Fabric, small: Home) -> None:
    process = fabric.start("run", "--", "yes", stdout=subprocess.DEVNULL)
    until(lambda: small.path.exists() and FULL in fabric("list").stdout, "the disk to be full")
    take_all(small)

    process.send_signal(signal.SIGTERM)
    code, stderr = ends(process)

    assert code == 73
    assert FULL in stderr


@pytest.mark.parametrize(
    "kind", ["halt", pytest.param("kill", marks=pytest.mark.soak("a kill; the gate has a halt"))]
)
def test_a_stop_that_cannot_be_recorded_says_so(fabric: Fabric, small: Home, kind: str) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until_runs(fabric)
    take_all(small)

    stderr = fabric(kind, "@last", expect=73).stderr

    assert f"records the {kind} when there is room" in stderr
    (small.path.parent / "filling").unlink()
    fabric("wait", "@last", expect=137 if kind == "kill" else 143)


def test_waiting_says_that_the_disk_is_full(fabric: Fabric, small: Home) -> None:
    fabric("run", "-q", "-d", "--", "seq 2000000")
    until(lambda: FULL in fabric("list").stdout, "the disk to be full")
    process = fabric.start("wait", "@last")
    assert process.stderr is not None
    assert FULL.encode() in process.stderr.readline()

    fabric("kill", "@last")

    assert ends(process)[0] == 137


def test_a_job_is_killed_without_inodes_and_a_controller(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "few", size="60m", options=FILES.replace("300", "600")) as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        home = Home(folder / "home")
        fabric("run", "-q", "-d", "--", WAITS)
        job_id = fabric.json("show", "@last", "--json")["id"]
        until((home.job(job_id).attempt(1).learner(1).path / "decision.json.spare").exists)
        fabric("controller", "stop")
        fill_files(folder)

        assert fabric("kill", "@last").stderr.endswith("HALTED\n")
        fabric("delete", "@last", "--yes")
        end_everything(home)


OTHER_STOP = pytest.mark.soak(
    "another stop; the gate has a halt, and all three on an ext4 that was made read-only"
)


@pytest.mark.parametrize(
    "kind",
    ["halt", pytest.param("kill", marks=OTHER_STOP), pytest.param("delete", marks=OTHER_STOP)],
)
def test_a_stop_in_a_read_only_home_says_so_at_once(fabric: Fabric, small: Home, kind: str) -> None:
    fabric("run", "-q", "-d", "--", WAITS)
    until_runs(fabric)
    with read_only(small.path.parent):
        stderr = fabric(kind, "@last", *(["--yes"] if kind == "delete" else []), expect=73).stderr

    assert "cannot be asked to stop" in stderr
    assert "read-only" in stderr


def test_an_attached_run_in_a_read_only_home_ends_when_it_is_stopped(fabric: Fabric, small: Home) -> None:
    process = attached(fabric)
    with read_only(small.path.parent):
        process.send_signal(signal.SIGTERM)
        code, stderr = ends(process)

    assert code == 73
    assert "read-only" in stderr
    fabric("wait", "@last", expect=143)


def test_what_keeps_a_home_from_being_repaired_is_reported(fabric: Fabric, small: Home) -> None:
    fabric("run", "-q", "-d", "--name", "gone", "--", "true")
    fabric("wait", "gone")
    gone = small.job(fabric.json("show", "gone", "--json")["id"]).path
    fabric("delete", "gone", "--yes")
    fabric("controller", "stop")
    with small_disk(gone):
        fabric("run", "-q", "-d", "--name", "stays", "--", WAITS)
        why = f"cannot be repaired: OSError: [Errno 16] Device or resource busy: '{gone}'"
        until(lambda: why in fabric("controller").stderr, "the controller to say so")
        assert why in fabric.json("controller", "--json")["trouble"]
        assert f"{why}; what is shown may be old" in fabric("status").stderr
        assert fabric("kill", "stays").stderr.endswith("HALTED\n")


def runs(fabric: Fabric, *names: str) -> None:
    """Start jobs, and wait until they run."""
    for name in names:
        fabric("run", "-q", "-d", "--name", name, "--", WAITS)
    for name in names:
        until_runs(fabric, name)


@pytest.mark.soak(
    "another file system; the gate stops jobs on a tmpfs without inodes, and where a quota is used up"
)
def test_jobs_stop_on_an_ext4_without_inodes(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ext4_disk(tmp_path / "ext4", files=1500) as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        runs(fabric, "one", "two", "three")
        fill_files(folder)

        assert fabric("kill", "one").stderr.endswith("HALTED\n")
        assert fabric("halt", "two").stderr.endswith("HALTED\n")
        fabric("delete", "three", "--yes")
        assert sorted(row["name"] for row in fabric.json("list", "--json")) == ["one", "two"]
        end_everything(Home(folder / "home"))


def test_jobs_stop_where_a_quota_is_used_up(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with btrfs_quota(tmp_path / "btrfs", size="40m") as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        runs(fabric, "one", "two", "three")
        with pytest.raises(OSError, match="quota exceeded"):
            fill(folder)
        with pytest.raises(OSError, match="quota exceeded"):
            (folder / "home" / "new").touch()

        assert fabric("kill", "one").stderr.endswith("HALTED\n")
        assert fabric("halt", "two").stderr.endswith("HALTED\n")
        fabric("delete", "three", "--yes")
        assert sorted(row["name"] for row in fabric.json("list", "--json")) == ["one", "two"]
        end_everything(Home(folder / "home"))


def test_an_ext4_that_its_kernel_made_read_only_is_named_by_a_stop_with_the_pid_and_is_read(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ext4_disk(tmp_path / "ext4") as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        home = Home(folder / "home")
        runs(fabric, "one")
        state = home.job(fabric.json("show", "one", "--json")["id"]).attempt(1).learner(1).state
        pid = json.loads(state.read_text())["command_pid"]
        break_ext4(folder)

        for args in (["kill", "one"], ["halt", "one"], ["delete", "one", "--yes"]):
            stderr = fabric(*args, expect=73).stderr
            assert "its file system is read-only" in stderr
            assert f"end the command yourself: kill {pid}\n" in stderr
        assert fabric.json("list", "--json")[0]["state"] == "PROCESSING"
        assert fabric("logs", "one").stdout == "started\n"
        for args in (["show", "one"], ["status"], ["controller"]):
            fabric(*args)
        os.kill(pid, signal.SIGKILL)
        fabric("controller", "stop")
        end_everything(home)


def test_a_home_that_was_closed_and_then_made_read_only_is_read(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ext4_disk(tmp_path / "ext4") as folder:
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        home = Home(folder / "home")
        fabric("run", "-q", "--name", "done", "--", "echo hello")
        fabric("controller", "stop")
        until(lambda: not home.path.joinpath("fabric.db-wal").exists(), "the store to be closed")
        until(lambda: is_remounted(folder, "ro"), "all to have closed their files")

        assert "done" in fabric("list").stdout
        assert "COMPLETED" in fabric("show", "done").stdout
        assert fabric("logs", "done").stdout == "hello\n"
        for args in (["metrics", "done"], ["status", "done"], ["controller"]):
            fabric(*args)
        assert "read-only" in fabric("delete", "done", "--yes", expect=73).stderr
