"""A learner whose folder lies on a mount that is taken away and mounted again: it goes on, and nothing is lost."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.learner.agent import Learner, kill, remove_folder
from tests.support.fuse import FuseMount, sshfs_mount
from tests.support.naps import NAP
from tests.support.waiting import ended, until
from workbench.learner.guard.requests import Requests
from workbench.learner.host.learners import LearnerObserver
from workbench.learner.journal import state
from workbench.learner.journal.launch_document import LaunchDocument
from workbench.learner.platform import process_table, system

Make = Callable[..., Learner]

COUNT = (
    NAP + 'cd /; n=0; until [ -e "$STAY/go" ]; do n=$((n+1)); echo "line $n"; nap 0.001; done; '
    'echo "$n" > "$STAY/count"; exit 3'
)

HOLDS = """
import os
from workbench.learner.guard import guard
follow = guard.Guard._follow_mount
def held(self):
    has_followed = follow(self)
    if os.path.exists({STAY} + "/hold"):
        os.mkdir({STAY} + "/held")
        open({STAY} + "/release").close()
    return has_followed
guard.Guard._follow_mount = held
"""
"""Lines of Python that hold a guard, where there is a file ``hold``, once it has seen that its mount has not ended."""

DOWNLOADS = """
import os
from workbench.learner.stores.download import DataDownload
def fetch(self):
    os.mkdir({STAY} + "/held")
    open({STAY} + "/release").close()
    raise OSError(5, "the store does not answer")
DataDownload._fetch = fetch
"""
"""The same with one that downloads data, which then fails."""


@pytest.fixture
def mount(clean_environment: Path) -> Iterator[FuseMount]:
    with sshfs_mount(clean_environment / "mnt") as mount:
        yield mount


@pytest.fixture
def stay(clean_environment: Path) -> Path:
    """A folder that stays while the mount is away; commands find it as STAY."""
    folder = clean_environment / "stay"
    folder.mkdir()
    return folder


@pytest.fixture
def remote(mount: FuseMount, stay: Path) -> Iterator[Make]:
    made: list[Learner] = []
    attempt = mount.point / "attempt-1"
    attempt.mkdir()

    def make(command: str, **document: Any) -> Learner:
        env = {"PATH": os.environ["PATH"], "STAY": str(stay)}
        made.append(Learner(attempt, command, env=env, **document))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None and one.process.poll() is None:
            kill(one.process.pid, signal.SIGCONT)
            one.process.kill()
            ended(one.process)
        until(lambda one=one: not one.clear(), "nothing to be left")  # type: ignore[misc] # mypy knows no default


def counted(stay: Path) -> bytes:
    count = int((stay / "count").read_text())
    return b"".join(b"line %d\n" % (n + 1) for n in range(count))


def pid_of(one: Learner) -> int:
    assert one.process is not None
    return one.process.pid


def is_locked(one: Learner) -> bool:
    descriptor = os.open(one.folder / "agent.lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.parametrize("ends", ["unmount", "end"])
def test_it_goes_on_when_its_folder_is_mounted_again(
    mount: FuseMount, remote: Make, stay: Path, ends: str
) -> None:
    one = remote(COUNT)
    one.start()
    for number in (100, 1000):
        before = len(one.until_printed(b"line %d\n" % number))
        getattr(mount, ends)()
        mount.unmount()
        mount.mount()
        until(lambda: len(one.output()) > before and is_locked(one), "it to go on")  # noqa: B023
    (stay / "go").touch()

    assert one.wait()["exit_code"] == 3
    assert one.output() == (one.folder / "output.log").read_bytes() == counted(stay)
    assert one.entries()[-1][2] == one.output().count(b"\n")
    assert one.records("note") == []


@pytest.mark.soak("the gate mounts it twice in each of two ways")
@pytest.mark.parametrize("seed", range(40))
def test_no_line_is_lost_or_doubled_however_often_it_is_mounted_again(
    mount: FuseMount, remote: Make, stay: Path, seed: int
) -> None:
    """A server may get a write that failed here, as its mount ended meanwhile: one remount in thirty."""
    one = remote(COUNT)
    one.start()
    for number in range(100, 1300, 200):
        before = len(one.until_printed(b"line %d\n" % (number + seed)))
        mount.unmount()
        mount.mount()
        until(lambda: len(one.output()) > before and is_locked(one), "it to go on")  # noqa: B023
    (stay / "go").touch()

    assert one.wait()["exit_code"] == 3
    assert one.output() == (one.folder / "output.log").read_bytes() == counted(stay)
    assert [entry[2] for entry in one.entries()] == [
        one.output()[: entry[0]].count(b"\n") for entry in one.entries()
    ]
    assert one.records("note") == []


def test_it_goes_on_when_its_mount_has_come_back_by_itself(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    mount.unmount()
    mount.mount("-o", "reconnect")
    one = remote(COUNT)
    one.start()
    before = len(one.until_printed(b"line 100\n"))
    mount.lose_connection()
    until(lambda: len(one.output()) > 2 * before, "it to go on", despite=(OSError, ValueError))
    (stay / "go").touch()

    assert one.wait()["exit_code"] == 3
    assert one.output() == counted(stay)


def test_a_request_to_stop_is_obeyed_after_the_next_mount(mount: FuseMount, remote: Make) -> None:
    one = remote(NAP + 'cd /; trap "exit 0" TERM; echo on; while :; do nap 0.05; done')
    one.start()
    one.until_printed(b"on\n")
    mount.end()
    mount.unmount()
    mount.mount()

    one.stop()

    assert one.wait()["stopped"] == "halt"
    assert one.output().startswith(b"on\n")


def test_a_mount_that_is_away_when_the_watch_would_begin_is_noticed(mount: FuseMount) -> None:
    folder = mount.point / "attempt-1" / "learner-1"
    folder.mkdir(parents=True)
    held = state.HeldFolder(str(folder))
    try:
        launch = LaunchDocument({"attempt_dir": str(folder.parent), "learners": 1})
        requests = Requests(held, launch)
        mount.unmount()
        until(lambda: requests.check() == {} and requests._is_away, "it to have looked")
        mount.mount()
        state.ask_to_stop(str(folder), {"kind": "halt"})

        assert until(requests.check, "the request") == {"kind": "halt"}
    finally:
        os.close(held.descriptor)


def test_a_command_that_ends_meanwhile_is_recorded_with_all_that_it_printed(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote(COUNT)
    one.start()
    one.until_printed(b"line 100\n")
    command = one.state()["command_pid"]
    mount.end()
    mount.unmount()
    (stay / "go").touch()
    until(lambda: not system.start_ticks(command), "the command to end")
    mount.mount()

    assert one.wait()["exit_code"] == 3
    assert one.output() == counted(stay)


def test_another_agent_leaves_a_learner_alone_whose_guard_has_not_taken_its_lock_again(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote(COUNT)
    one.start()
    one.until_printed(b"line 100\n")
    kill(pid_of(one), signal.SIGSTOP)
    mount.unmount()
    mount.mount()
    assert not is_locked(one)

    assert not one.run_again()

    kill(pid_of(one), signal.SIGCONT)
    until(lambda: is_locked(one), "it to be locked")
    (stay / "go").touch()
    assert one.wait()["exit_code"] == 3
    assert one.output() == counted(stay)


def test_it_writes_nothing_any_more_when_another_agent_has_its_lock(mount: FuseMount, remote: Make) -> None:
    one = remote(NAP + "cd /; while :; do echo line; nap 0.01; done")
    one.start()
    one.until_printed(b"line\n")
    scribe = one.scribe()
    kill(pid_of(one), signal.SIGSTOP)
    mount.end()
    mount.unmount()
    mount.mount()
    lock = state.take_lock(str(one.folder))
    assert lock is not None
    before = (one.folder / "output.log").read_bytes(), one.state()

    kill(pid_of(one), signal.SIGCONT)
    assert one.process is not None
    assert ended(one.process) == 0

    assert not system.start_ticks(scribe)
    assert ((one.folder / "output.log").read_bytes(), one.state()) == before
    os.close(lock)


@pytest.mark.parametrize("leave", ["unmount", "hide"])
def test_a_guard_that_was_stopped_after_its_look_leaves_another_agents_folder_as_it_is(
    mount: FuseMount, remote: Make, stay: Path, leave: str
) -> None:
    """As on a laptop that is suspended between the look at the mount and the write of the command's end."""
    one = remote(COUNT)
    os.mkfifo(stay / "release")
    process = one.start_with(HOLDS.replace("{STAY}", repr(str(stay))))
    one.until_printed(b"line 100\n")
    command = one.state()["command_pid"]
    (stay / "hold").touch()
    (stay / "go").touch()
    until((stay / "held").exists, "the guard to be held")
    until(lambda: not system.start_ticks(command), "the command to end")

    getattr(mount, leave)()
    mount.mount()
    lock = state.take_lock(str(one.folder))
    (one.folder / "state.json").write_text('{"phase": "exited", "reason": {"text": "another agent\'s"}}')
    names = sorted(path.name for path in one.folder.iterdir())
    before = (one.folder / "state.json").read_bytes()
    (stay / "hold").unlink()
    (stay / "release").write_bytes(b"")

    assert lock is not None
    assert ended(process) == 0
    assert (one.folder / "state.json").read_bytes() == before
    assert sorted(path.name for path in one.folder.iterdir()) == names
    assert not (one.folder.parent / "decision.json").exists()
    os.close(lock)


def test_a_guard_whose_download_fails_after_the_next_mount_leaves_another_agents_folder_as_it_is(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote("true", stores={"upload_seconds": 30})
    os.mkfifo(stay / "release")
    process = one.start_with(DOWNLOADS.replace("{STAY}", repr(str(stay))))
    until((stay / "held").exists, "the guard to be held")

    mount.unmount()
    mount.mount()
    lock = state.take_lock(str(one.folder))
    (one.folder / "state.json").write_text('{"phase": "running"}')
    (stay / "release").write_bytes(b"")

    assert lock is not None
    assert ended(process) == 0
    assert (one.folder / "state.json").read_text() == '{"phase": "running"}'
    assert not (one.folder.parent / "decision.json").exists()
    os.close(lock)


def test_a_scribe_without_its_guard_leaves_another_agents_folder_as_it_is(
    mount: FuseMount, remote: Make
) -> None:
    one = remote(NAP + "cd /; while :; do echo line; nap 0.01; done")
    process = one.start()
    one.until_printed(b"line\n")
    scribe = one.scribe()
    kill(scribe, signal.SIGSTOP)
    process.kill()
    process.wait()
    mount.unmount()
    mount.mount()
    lock = state.take_lock(str(one.folder))
    (one.folder / "state.json").write_text('{"phase": "running"}')

    kill(scribe, signal.SIGCONT)
    until(lambda: not system.start_ticks(scribe), "the scribe to end")

    assert lock is not None
    assert (one.folder / "state.json").read_text() == '{"phase": "running"}'
    os.close(lock)


def test_a_scribe_without_its_guard_records_the_end_in_the_next_mount(mount: FuseMount, remote: Make) -> None:
    one = remote(NAP + "cd /; while :; do echo line; nap 0.01; done")
    process = one.start_with("from workbench.learner.scribe import scribe", "scribe.PATIENCE_SECONDS = 0.1")
    one.until_printed(b"line\n")
    scribe, command = one.scribe(), one.state()["command_pid"]
    kill(scribe, signal.SIGSTOP)
    process.kill()
    process.wait()
    mount.unmount()
    mount.mount()

    kill(scribe, signal.SIGCONT)
    until(lambda: not system.start_ticks(scribe), "the scribe to end")

    found = one.state()
    assert (found["phase"], found["command_pid"]) == ("exited", command)
    assert not system.start_ticks(command)
    assert not is_locked(one)


FETCHES = """
import os
from workbench.learner.stores.download import DataDownload
def fetch(self):
    self._write({"time": 0, "kind": "note", "level": "info", "text": "before"})
    os.mkdir({STAY} + "/held")
    open({STAY} + "/release").close()
    data = {"store": "s", "address": "a", "path": "p", "fingerprint": "f", "files": 1, "bytes": 2}
    self._record_data([data])
    return {}
DataDownload._fetch = fetch
"""
"""Lines of Python that hold an agent in the middle of a download that ends well."""

HAS_FETCHED = """
import os
from workbench.learner.stores.download import DataDownload
def run(self):
    os.mkdir({STAY} + "/held")
    open({STAY} + "/release").close()
    return {}
DataDownload.run = run
"""
"""The same at the end of one."""

ENDS = """
import os
from workbench.learner.guard import guard
record_exit = guard.Guard._record_exit
def held(self):
    os.mkdir({STAY} + "/held")
    open({STAY} + "/release").close()
    record_exit(self)
def begin_next_attempt(self, file, why):
    open({STAY} + "/written", "w").write(str(file.write(durable=True)))
guard.Guard._record_exit = held
guard.Guard._begin_next_attempt = begin_next_attempt
"""
"""The same of one whose command has ended: what it then does for the next attempt is noted."""

TAKES_OVER = """
import os
from workbench.learner.scribe import process
opening = process.open_channels
def held(*args, **more):
    if not os.path.exists({STAY} + "/held"):
        os.mkdir({STAY} + "/held")
        open({STAY} + "/release").close()
    return opening(*args, **more)
process.open_channels = held
"""
"""The same of one that takes a learner over whose agents were killed."""

STORES = """
import os
from workbench.learner.guard import guard
from workbench.learner.stores import upload_process
from workbench.learner.stores.download import DataDownload
from workbench.learner.stores.upload import ResultUpload
def last(self):
    os.mkdir({STAY} + "/held")
    open({STAY} + "/release").close()
remotes_of = upload_process.remotes_of
upload_process.remotes_of = lambda secrets: {**remotes_of(secrets), "r": {}}
ResultUpload.last = last
DataDownload.run = lambda self: {}
guard.Guard._start_workers = lambda self: setattr(self, "_upload_worker", guard_worker(self))
def guard_worker(self):
    return upload_process.UploadWorker(self._folder.path, self._launch, self._secrets)
"""
"""The same of one that stores what its learner leaves behind."""

FULL = """
import os
from workbench.learner.stores.download import DataDownload
def fetch(self):
    raise OSError(28, "No space left on device", os.path.join(self._folder.held_path, "data.json"))
DataDownload._fetch = fetch
"""
"""Lines of Python with which there is no room for what an agent has downloaded."""

RESULTS = {
    "results": {"id": "s", "remote": "r", "path": "p", "address": "a"},
    "upload_seconds": 30,
    "learner_path": "l",
}


def held(one: Learner, stay: Path, lines: str) -> subprocess.Popen[bytes]:
    """Start an agent, and return once it is held."""
    os.mkfifo(stay / "release")
    process = one.start_with(lines.replace("{STAY}", repr(str(stay))))
    until((stay / "held").exists, "the agent to be held")
    return process


def released(mount: FuseMount, stay: Path) -> None:
    """Let an agent that is held go on, in the next mount."""
    mount.unmount()
    mount.mount()
    (stay / "release").write_bytes(b"")


def test_a_download_that_ends_well_after_the_next_mount_is_recorded_there(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote("echo on", stores={"upload_seconds": 30})
    held(one, stay, FETCHES)
    released(mount, stay)

    assert one.wait()["exit_code"] == 0
    assert state.read_object(str(one.folder / "data.json"))["stores"][0]["fingerprint"] == "f"
    assert [record["fingerprint"] for record in one.records("data")] == ["f"]
    assert [record["text"] for record in one.records("note")] == ["before"]


def test_a_long_script_is_written_to_the_next_mount_where_the_data_was_brought_before(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote("#" * 150_000 + "\necho on", stores={"upload_seconds": 30})
    held(one, stay, HAS_FETCHED)
    released(mount, stay)

    assert one.wait()["exit_code"] == 0
    assert one.output() == b"on\n"


def test_the_next_attempt_begins_after_the_next_mount_too(mount: FuseMount, remote: Make, stay: Path) -> None:
    one = remote("echo on; exit 3", restarts=1)
    held(one, stay, ENDS)
    released(mount, stay)

    assert one.wait()["exit_code"] == 3
    assert (stay / "written").read_text() == "True"


def test_results_that_are_stored_after_the_next_mount_have_their_summary_there(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote("echo on", stores=RESULTS)
    held(one, stay, STORES)
    released(mount, stay)

    assert one.wait()["exit_code"] == 0
    assert (one.folder / "storing.json").exists()


def test_an_agent_that_has_stored_results_leaves_another_agents_folder_as_it_is(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote("echo on", stores=RESULTS)
    process = held(one, stay, STORES)
    mount.unmount()
    mount.mount()
    lock = state.take_lock(str(one.folder))
    names = sorted(path.name for path in one.folder.iterdir())
    (stay / "release").write_bytes(b"")

    assert lock is not None
    assert ended(process) == 0
    assert sorted(path.name for path in one.folder.iterdir()) == names
    os.close(lock)


def test_an_agent_that_takes_over_goes_on_in_the_next_mount(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote(NAP + "cd /; while :; do echo line; nap 0.01; done")
    process = one.start()
    one.until_printed(b"line\n")
    scribe, command = one.scribe(), one.state()["command_pid"]
    kill(scribe, signal.SIGSTOP)
    process.kill()
    process.wait()
    kill(scribe)
    until(lambda: not system.start_ticks(scribe), "the scribe to end")
    held(one, stay, TAKES_OVER)
    released(mount, stay)

    found = one.wait()
    assert (found["command_pid"], found["reason"]["code"]) == (command, "S202")


def test_a_scribe_that_has_opened_nothing_records_the_end_in_the_next_mount(
    mount: FuseMount, remote: Make
) -> None:
    one = remote(NAP + "cd /; while :; do echo line; nap 0.01; done")
    process = one.start()
    one.until_printed(b"line\n")
    known = before, _ = one.scribe(), one.state()["command_pid"]
    mount.unmount()
    kill(before)
    scribe = until(
        lambda: next((pid for pid in process_table.children(process.pid) or () if pid not in known), 0),
        "the next scribe",
    )
    process.kill()
    process.wait()
    mount.mount()

    until(lambda: not system.start_ticks(scribe), "the scribe to end")

    assert one.state()["phase"] == "exited"
    assert not is_locked(one)


MOVES = """
import os
from workbench.learner.journal import state

attempt, write = {ATTEMPT}, state.StateFile.write

def moved_first(file, **options):
    if file.document["phase"] == "exited" and os.path.exists(attempt):
        os.rename(attempt, os.path.join(os.path.dirname(attempt), "moved"))
    return write(file, **options)

state.StateFile.write = moved_first
"""
"""Has the home moved in the instant before an agent records the end of its learner."""


WATCHES_LATE = """
import os
from workbench.learner.platform import folder_signal
open_signalling = folder_signal.open_signalling
def late(path):
    if not os.path.exists({STAY} + "/held"):
        os.mkdir({STAY} + "/held")
        open({STAY} + "/release").close()
    return open_signalling(path)
folder_signal.open_signalling = late
"""
"""Lines of Python that hold a guard just before it watches its folder for the first time."""


def copy_takes_the_place(one: Learner) -> Path:
    """Put a copy of a learner's attempt into the place of it, with the same work folder; return where it was moved."""
    attempt = one.folder.parent
    shutil.copytree(attempt, attempt.with_name("copy"), symlinks=True)
    old = attempt.rename(attempt.with_name("old"))
    attempt.with_name("copy").rename(attempt)
    one.work.rmdir()
    one.work.symlink_to(old / one.work.name)
    return old


@pytest.mark.parametrize("is_old_removed", [False, True])
def test_it_goes_on_in_a_copy_of_its_home_that_takes_the_homes_place(
    learner: Make, is_old_removed: bool
) -> None:
    """As where a home is copied, or a backup of it is put back."""
    one = learner(NAP + 'echo begun; until [ -e "$WORK/go" ]; do nap 0.01; done; echo over; exit 3')
    process = one.start()
    one.until_printed(b"begun\n")
    until(lambda: (one.folder / "stop.json.spare").exists(), "its folder to be watched")
    attempt = one.folder.parent
    scribe = one.scribe()
    old = copy_takes_the_place(one)
    if is_old_removed:
        remove_folder(old / one.folder.name)
        # What it prints until then is in the former home.
        until(lambda: one.scribe() not in (0, scribe), "its agent to go on in the copy")

    (old / one.work.name / "go").touch()

    assert ended(process) == 0
    found = one.state()
    assert (found["phase"], found["exit_code"], found["stopped"]) == ("exited", 3, "")
    if is_old_removed:  # else nothing tells before the command ends
        assert one.output() == b"begun\nover\n"
    assert state.read_decision(str(attempt))["exit_code"] == 3
    assert not (old / "decision.json").exists()


def test_it_goes_on_in_a_copy_that_took_its_homes_place_before_it_watched(learner: Make, stay: Path) -> None:
    one = learner(NAP + 'echo begun; until [ -e "$WORK/go" ]; do nap 0.01; done; exit 3')
    os.mkfifo(stay / "release")
    process = one.start_with(WATCHES_LATE.replace("{STAY}", repr(str(stay))))
    one.until_printed(b"begun\n")
    until((stay / "held").exists, "it to be about to watch its folder")
    scribe = one.scribe()
    old = copy_takes_the_place(one)
    remove_folder(old / one.folder.name)

    (stay / "release").write_bytes(b"")

    until(lambda: one.scribe() not in (0, scribe), "its agent to go on in the copy")
    (old / one.work.name / "go").touch()
    assert ended(process) == 0
    assert one.state()["exit_code"] == 3


def test_a_scribe_without_its_guard_records_the_end_in_a_copy_of_the_home(learner: Make) -> None:
    one = learner("sleep 1000")
    process = one.start()
    found = one.until_phase("running")
    until(lambda: (one.folder / "output.idx").exists(), "its journal to be open")
    kill(one.scribe(), signal.SIGSTOP)
    process.kill()
    process.wait()
    attempt = one.folder.parent
    shutil.copytree(attempt, attempt.with_name("copy"))
    old = attempt.rename(attempt.with_name("old"))
    attempt.with_name("copy").rename(attempt)
    shutil.rmtree(old)

    kill(found["scribe_pid"], signal.SIGCONT)
    until(lambda: not system.start_ticks(found["scribe_pid"]), "the scribe to end")

    assert (one.state()["phase"], one.state()["reason"]["code"]) == ("exited", "S202")
    assert not system.start_ticks(found["command_pid"])


def test_the_end_that_an_agent_records_while_its_home_is_moved_is_the_only_one(learner: Make) -> None:
    """Its scribe would take it for killed, since the path leads nowhere until the home is bound again."""
    one = learner("exit 3", learners=2)
    attempt = one.folder.parent
    process = one.start_with(MOVES.replace("{ATTEMPT}", repr(str(attempt))))

    assert ended(process) == 0
    moved = attempt.with_name("moved")
    until(lambda: not one.left(), "its scribe to end")
    found = state.read(str(moved / one.folder.name))
    assert (found["phase"], found["exit_code"], found.get("agent_killed")) == ("exited", 3, None)
    moved.rename(attempt)


def test_a_path_in_a_message_is_the_one_that_people_know(learner: Make) -> None:
    one = learner("true", stores={"upload_seconds": 30})
    one.start_with(FULL)
    full = one.wait()["reason"]["text"]
    other = learner("true")
    (other.folder / "agent.lock").mkdir()

    assert ended(other.start()) == 66
    assert full == f"the disk of {one.folder}/data.json is full"
    assert f"'{other.folder}/agent.lock'" in other.log()


def test_agents_stay_in_their_folder_where_another_lies_at_its_path(learner: Make) -> None:
    """All that they write from then on goes to it, by the next scribe, too: the state there does not name them."""
    one = learner(NAP + 'until [ -e "$WORK/go" ]; do nap 0.01; done; echo over; exit 3')
    process = one.start()
    scribe = one.until_phase("running")["scribe_pid"]
    until(lambda: (one.folder / "stop.json.spare").exists(), "its folder to be watched")
    attempt = one.folder.parent
    moved = attempt.rename(attempt.with_name("moved"))
    one.folder.mkdir(parents=True)
    (one.folder / "state.json").write_text('{"phase": "running"}')
    one.work.symlink_to(moved / one.work.name)

    kill(scribe)
    (moved / one.work.name / "go").touch()

    assert ended(process) == 0
    found = state.read(str(moved / one.folder.name))
    assert (found["phase"], found["exit_code"], found["decided"]) == ("exited", 3, True)
    assert (moved / one.folder.name / "output.log").read_bytes() == b"over\n"
    assert state.read_decision(str(moved))["exit_code"] == 3
    assert [path.name for path in one.folder.iterdir()] == ["state.json"]
    assert (one.folder / "state.json").read_text() == '{"phase": "running"}'
    assert not (attempt / "decision.json").exists()


def test_it_does_not_wait_without_end_for_a_home_that_never_comes_back(
    mount: FuseMount, remote: Make, stay: Path
) -> None:
    one = remote(COUNT)
    process = one.start_with(
        "from workbench.learner.journal import state",
        "state.HOME_SECONDS = 0.2",
    )
    one.until_printed(b"line 100\n")
    found = one.state()
    mount.end()
    mount.unmount()
    (stay / "go").touch()

    assert ended(process) == 0
    assert not system.start_ticks(found["scribe_pid"])
    assert (stay / "count").exists(), "the command was not left to end by itself"
    assert list(mount.point.iterdir()) == []


def test_files_that_lost_their_end_are_as_they_were(mount: FuseMount, remote: Make, stay: Path) -> None:
    """What sshfs had acknowledged, and the server never got, is written again from memory."""
    one = remote(COUNT, usage_seconds=0)
    one.start()
    one.until_printed(b"line 500\n")
    mount.end()
    mount.unmount()
    kept = mount.kept / "attempt-1" / "learner-1"
    size = (kept / "output.log").stat().st_size
    os.truncate(kept / "output.log", size // 2)
    mount.mount()
    until(lambda: (kept / "output.log").stat().st_size >= size, "it to be written again")
    (stay / "go").touch()
    one.wait()

    assert one.output() == counted(stay)
    assert one.records("note") == []


def test_no_second_process_is_needed_to_see_that_a_mount_is_another(mount: FuseMount) -> None:
    folder = mount.point / "learner-1"
    folder.mkdir()
    held = state.HeldFolder(str(folder))
    try:
        assert not held.is_mounted_anew()
        mount.unmount()
        assert state.is_away(str(folder))
        assert not held.is_mounted_anew()
        mount.mount()
        assert held.is_mounted_anew()
    finally:
        os.close(held.descriptor)


def test_a_state_says_whether_its_agent_runs() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    document = {
        "pid": process.pid,
        "start_ticks": system.start_ticks(process.pid),
        "boot_id": system.boot_id(),
    }
    try:
        assert state.is_kept(document)
        assert not state.is_kept({**document, "boot_id": "another"})
        assert not state.is_kept({**document, "start_ticks": 1})
    finally:
        process.kill()
        process.wait()
    assert not state.is_kept(document)


def test_a_state_that_a_mount_did_not_have_yet_is_looked_for_though_nothing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = os.open(tmp_path / "agent.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    observer = LearnerObserver()
    content_of, looks = system.content_of, []

    def misses_it(path: str) -> bytes:
        looks.append(path)
        return b"" if len(looks) < 4 else content_of(path)

    (tmp_path / "state.json").write_text('{"phase": "running"}')
    monkeypatch.setattr(system, "content_of", misses_it)
    monkeypatch.setattr(observer, "_wait", lambda _: [])
    folder = str(tmp_path)
    first = observer.observe({folder: ""}, 10.0)["learners"][folder]
    second = observer.observe({folder: first["fingerprint"]}, 10.0)["learners"]
    observer.close()
    os.close(lock)

    assert (first["alive"], first["state"]) == (True, None)
    assert second[folder]["state"] == {"phase": "running"}
