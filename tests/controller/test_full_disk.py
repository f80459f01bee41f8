"""A home on a disk that is full, has no inodes or is read-only: jobs end and can be stopped, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.controllers import alive, answers, log_of
from tests.support.disks import FILES, fill, fill_files, read_only, remount, small_disk
from tests.support.naps import NAP
from tests.support.real_jobs import Ground
from tests.support.waiting import until
from workbench.controller.client.connect import status, stop_controller
from workbench.controller.client.requests import ask
from workbench.errors import CannotWrite, NoSpaceLeft
from workbench.job import State
from workbench.learner.journal.state import read
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.reserve import reserve_bytes
from workbench.store.queries.requests import requests

Make = Callable[..., Ground]

WAITS = NAP + 'trap "exit 0" TERM; echo ready; while :; do nap 0.05; done'
FILLS = 'head -c {size} /dev/zero > "$RESULT_DIR/x"; echo ended $?; exit 3'


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a home on a disk of so many megabytes."""
    found: list[tuple[Ground, Path]] = []
    disks = []

    def make(size: str, options: str = "") -> Ground:
        disk = small_disk(tmp_path / "disk", size=size, options=options)
        folder = disk.__enter__()
        disks.append(disk)
        monkeypatch.setenv("FABRIC_HOME", str(folder / "home"))
        found.append((Ground(Home(folder / "home"), own_agents=True), folder))
        return found[-1][0]

    yield make
    for ground, folder in found:
        remount(folder, "size=200m,nr_inodes=100k")
        (folder / "filling").unlink(missing_ok=True)
        ground.clean_up()
    for disk in disks:
        disk.__exit__(None, None, None)


def take_all(ground: Ground) -> None:
    """Take all room, and the reserve: whoever is quicker has eaten it."""
    ground.home.reserve.unlink(missing_ok=True)
    fill(ground.home.path.parent)


def running(ground: Ground, command: str = WAITS) -> str:
    """Start a job, and wait until it is known to run."""
    job_id = ground.submit(command)
    ground.prints(job_id, "ready")
    ground.reaches(job_id, State.PROCESSING)
    return job_id


def stop_of(ground: Ground, job_id: str) -> str:
    """Return how the job's learner was stopped, once its command has ended."""
    folder = str(ground.learner(job_id).path)

    def ended() -> bool:
        state = read(folder)
        return state["exit_code"] is not None or state["signal"] is not None

    until(
        ended,
        lambda: (
            f"{read(folder)} {sorted(path.name for path in Path(folder).iterdir())} {log_of(ground.home)}"
        ),
    )
    return str(read(folder)["stopped"])


@pytest.mark.parametrize("size", ["4m", "60m"])
def test_a_job_that_fills_the_disk_ends_and_is_recorded(make: Make, size: str) -> None:
    ground = make(size)
    job_id = ground.submit(FILLS.format(size=200_000_000))

    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)
    assert "ended 1" in ground.output(job_id)


def test_an_end_is_recorded_on_a_disk_that_was_full_before_its_agent_had_a_spare_file(
    make: Make, tmp_path: Path
) -> None:
    ground = make("6m")
    go = tmp_path / "go"
    job_id = running(ground, f"{NAP}echo ready; while [ ! -e {go} ]; do nap 0.02; done; echo done; exit 3")
    spare = ground.learner(job_id).path / "decision.json.spare"
    until(spare.exists)
    spare.unlink()
    fill(ground.home.path.parent)

    go.touch()
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3), log_of(ground.home)
    assert ground.output(job_id) == "ready\ndone\n"
    assert os.statvfs(ground.home.path).f_bavail * 4096 < 1 << 20


@pytest.mark.parametrize(
    ("size", "kind", "exit_code"),
    [
        ("4m", "kill", 137),
        pytest.param("4m", "halt", 143, marks=pytest.mark.soak("the gate has a halt on the larger disk")),
        pytest.param("60m", "kill", 137, marks=pytest.mark.soak("the gate has a kill on the smaller disk")),
        ("60m", "halt", 143),
    ],
)
def test_a_job_is_stopped_on_a_full_disk(make: Make, size: str, kind: str, exit_code: int) -> None:
    ground = make(size)
    job_id = running(ground)
    fill(ground.home.path.parent)

    ground.ask(job_id, kind)
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.HALTED, exit_code)
    assert os.statvfs(ground.home.path).f_bavail * 4096 < 1 << 20
    assert reserve_bytes(ground.home) > 0


def test_a_job_is_deleted_on_a_full_disk(make: Make) -> None:
    ground = make("6m")
    job_id = running(ground)
    fill(ground.home.path.parent)

    ground.ask(job_id, "delete")

    until(lambda: ground.row(job_id).deleted_us is not None)
    until(lambda: not ground.home.job(job_id).path.exists())


@pytest.mark.parametrize(
    ("kind", "stopped"),
    [
        pytest.param("kill", "kill", marks=pytest.mark.soak("the gate halts it, and kills it by a deletion")),
        ("halt", "halt"),
        ("delete", "kill"),
    ],
)
def test_without_a_reserve_the_controller_stops_a_job_and_records_it_when_there_is_room(
    make: Make, kind: str, stopped: str
) -> None:
    ground = make("6m")
    job_id = running(ground)
    take_all(ground)

    with pytest.raises(NoSpaceLeft, match=r"the controller stops .* when there is room"):
        ask(ground.store, job_id, kind, origin="test")

    assert stop_of(ground, job_id) == stopped
    assert ground.row(job_id).state is State.PROCESSING
    found = status(ground.home)
    assert found is not None
    until(lambda: "the disk is full" in getattr(status(ground.home), "trouble", ""))
    (ground.home.path.parent / "filling").unlink()
    if kind == "delete":
        until(lambda: ground.row(job_id).deleted_us is not None)
        return
    row = ground.ends(job_id)
    assert row.state is State.HALTED
    assert row.reason.text.startswith(f"{'killed' if kind == 'kill' else 'halted'} by ")
    until(lambda: [one.kind for one in requests(ground.store, job_id)] == ["submit", kind])
    until(lambda: getattr(status(ground.home), "trouble", None) == "")


def test_without_a_controller_the_learners_files_stop_a_job(make: Make) -> None:
    ground = make("6m")
    job_id = running(ground)
    pid = answers(ground.home).pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    take_all(ground)

    with pytest.raises(NoSpaceLeft, match="was asked to stop, but the halt is not recorded"):
        ask(ground.store, job_id, "halt", origin="test")

    assert stop_of(ground, job_id) == "halt"


def test_without_a_reserve_deleting_a_job_that_has_ended_makes_the_room_for_it(make: Make) -> None:
    ground = make("6m")
    job_id = ground.submit('head -c 1000000 /dev/zero > "$RESULT_DIR/x"')
    ground.ends(job_id)
    take_all(ground)

    ground.ask(job_id, "delete")

    until(lambda: ground.row(job_id).deleted_us is not None)


def test_output_that_waited_for_room_is_complete(make: Make) -> None:
    ground = make("4m")
    job_id = ground.submit("seq 1000000")
    until(lambda: "disk is full" in str(read(str(ground.learner(job_id).path)).get("stall")))

    remount(ground.home.path.parent, "size=60m")
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.COMPLETED, 0)
    assert ground.output(job_id) == "".join(f"{number}\n" for number in range(1, 1_000_001))


def test_a_controller_that_starts_on_a_full_disk_is_found(make: Make) -> None:
    ground = make("6m")
    job_id = running(ground)
    pid = answers(ground.home).pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))
    fill(ground.home.path.parent)

    ground.ask(job_id, "kill")

    assert ground.ends(job_id).exit_code == 137


def running_without_inodes(make: Make) -> tuple[Ground, str]:
    """Start a job on a disk with room for few files, and take them."""
    ground = make("60m", FILES)
    job_id = running(ground)
    until((ground.learner(job_id).path / "decision.json.spare").exists)
    fill_files(ground.home.path.parent)
    return ground, job_id


@pytest.mark.parametrize(("kind", "exit_code"), [("kill", 137), ("halt", 143)])
def test_a_job_is_stopped_without_inodes(make: Make, kind: str, exit_code: int) -> None:
    ground, job_id = running_without_inodes(make)
    held = reserve_bytes(ground.home)

    ground.ask(job_id, kind)
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.HALTED, exit_code)
    assert reserve_bytes(ground.home) == held


def test_a_job_is_deleted_without_inodes(make: Make) -> None:
    ground, job_id = running_without_inodes(make)

    ground.ask(job_id, "delete")

    until(lambda: ground.row(job_id).deleted_us is not None)
    until(lambda: not ground.home.job(job_id).path.exists())


def test_a_job_ends_by_itself_without_inodes(make: Make, tmp_path: Path) -> None:
    ground = make("60m", FILES)
    job_id = running(ground, f"{NAP}echo ready; until [ -e {tmp_path}/go ]; do nap 0.05; done; exit 3")
    until((ground.learner(job_id).path / "decision.json.spare").exists)
    fill_files(ground.home.path.parent)

    (tmp_path / "go").touch()
    row = ground.ends(job_id)

    assert (row.state, row.exit_code) == (State.FAILED, 3)


def test_a_job_is_stopped_without_inodes_by_a_controller_that_is_started_for_it(make: Make) -> None:
    ground = make("60m", FILES)
    job_id = running(ground)
    until((ground.learner(job_id).path / "decision.json.spare").exists)
    pid = answers(ground.home).pid
    stop_controller(ground.home)
    until(lambda: not alive(pid))
    ground.store.close()
    assert not ground.home.database.with_name("fabric.db-wal").exists()  # who opens the database makes it
    fill_files(ground.home.path.parent)

    ground.store = Store.open(ground.home)
    ground.ask(job_id, "kill")

    assert ground.ends(job_id).exit_code == 137


def test_a_stop_that_a_read_only_home_does_not_take_says_so_at_once(make: Make) -> None:
    ground = make("60m")
    job_id = running(ground)

    with read_only(ground.home.path.parent):
        with (
            Store.open(ground.home) as store,
            pytest.raises(
                CannotWrite, match=r"cannot be asked to stop: .*; the controller tries it again"
            ) as caught,
        ):
            ask(store, job_id, "kill", origin="test")
        assert not isinstance(caught.value, NoSpaceLeft)
        pid = read(str(ground.learner(job_id).path))["command_pid"]
        assert caught.value.hint == f"make it writable again, or end the command yourself: kill {pid}"
        assert alive(pid)

    row = ground.ends(job_id)
    assert (row.state, row.exit_code) == (State.HALTED, 137)
