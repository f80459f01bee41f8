"""Leases: shared by all people of a machine, all or nothing, free the moment their last holder is gone."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.waiting import patience
from workbench.learner.platform import leases
from workbench.learner.platform.errors import Failure


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "leases")


def compete(folder: str, names: list[str], rounds: int, counter: str) -> None:
    """Take and let go again and again; note every time that somebody else was inside too."""
    for _ in range(rounds):
        lease = leases.take(names, folder, "{}")
        if lease is None:
            continue
        inside = os.open(counter, os.O_CREAT | os.O_EXCL | os.O_WRONLY)  # fails when somebody is inside
        os.close(inside)
        Path(counter).unlink()
        lease.release()


def this_process() -> str:
    command = Path("/proc/self/comm").read_text().strip()
    return f"{pwd.getpwuid(os.getuid()).pw_name} ({command}, pid {os.getpid()})"


def test_the_folder_is_for_everybody_and_sticky(folder: str) -> None:
    previous = os.umask(0o077)
    try:
        lease = leases.take(["GPU-1"], folder, "{}")
    finally:
        os.umask(previous)
    assert lease is not None
    lease.release()

    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o1777
    assert stat.S_IMODE((Path(folder) / "GPU-1").stat().st_mode) == 0o666


def test_holders_are_named_and_a_free_lock_has_none_whatever_it_says(folder: str) -> None:
    lease = leases.take(["GPU-1", "GPU-2"], folder, '{"owner": "anna", "job": "training-x", "pid": 7}')
    assert lease is not None

    holders = leases.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])
    lease.release()

    document = {"owner": "anna", "job": "training-x", "pid": 7}
    assert holders == {"GPU-1": document, "GPU-2": document}
    assert "anna" in (Path(folder) / "GPU-1").read_text()
    assert leases.holders(folder, ["GPU-1", "GPU-2"]) == {}


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", '{"owner": ["a"]}', "\x00" * 5000])
def test_what_a_holder_says_is_not_believed(folder: str, text: str) -> None:
    lease = leases.take(["GPU-1"], folder, text)
    assert lease is not None

    assert leases.holders(folder, ["GPU-1"]) == {"GPU-1": {"owner": this_process()}}
    lease.release()


def test_a_part_that_was_handed_over_is_no_longer_ours_to_release(folder: str) -> None:
    lease = leases.take(["a", "b"], folder, "{}")
    assert lease is not None
    part = lease.part(["a"])
    lease.release()

    assert leases.holders(folder, ["a", "b"]) == {"a": {"owner": this_process()}}
    part.write('{"owner": "b"}')
    assert leases.holders(folder, ["a"]) == {"a": {"owner": "b"}}
    part.release()


def test_many_processes_never_hold_the_same(folder: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    counter = str(tmp_path / "inside")
    orders = (["a", "b", "c"], ["c", "b"], ["b", "a"])
    running = [context.Process(target=compete, args=(folder, order, 100, counter)) for order in orders]
    for process in running:
        process.start()
    for process in running:
        process.join(patience())

    assert [process.exitcode for process in running] == [0, 0, 0]


def test_names_with_slashes_are_files_of_their_own(folder: str) -> None:
    first = leases.take(["MIG-GPU-1/1/0"], folder, "{}")
    second = leases.take(["MIG-GPU-1_1_0"], folder, "{}")

    assert first is not None
    assert second is not None
    assert (Path(folder) / leases.file_name("MIG-GPU-1/1/0")).is_file()
    first.release()
    second.release()


def test_a_link_or_a_pipe_in_the_folder_is_refused(folder: str, tmp_path: Path) -> None:
    leases.make_folder(folder)
    (tmp_path / "precious").write_text("precious")
    (Path(folder) / "GPU-1").symlink_to(tmp_path / "precious")
    os.mkfifo(Path(folder) / "GPU-2")

    for name in ("GPU-1", "GPU-2"):
        with pytest.raises(Failure) as failure:
            leases.take([name], folder, "{}")
        assert failure.value.kind == "not_allowed"
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("")

    with pytest.raises(Failure, match="not a folder"):
        leases.take(["GPU-1"], str(tmp_path / "leases"), "{}")


def test_a_folder_of_somebody_else_is_refused() -> None:
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    (parent / "leases").mkdir(mode=0o555)

    def refused() -> bool:
        with pytest.raises(Failure, match="cannot be written to"):
            leases.take(["GPU-1"], str(parent / "leases"), "{}")
        return True

    assert as_another(refused) if os.getuid() == 0 else refused()
    shutil.rmtree(parent)


def test_somebody_who_keeps_the_turn_for_good_stops_nobody(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MUTEX_SECONDS", 0.1)
    leases.make_folder(folder)
    kept = os.open(Path(folder) / leases.MUTEX, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(kept, fcntl.LOCK_EX)
    try:
        first = leases.take(["GPU-1", "GPU-2"], folder, '{"owner": "anna"}')
        assert first is not None
        assert leases.take(["GPU-2", "GPU-3"], folder, "{}") is None, "a lease was taken twice"
        assert list(leases.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])) == ["GPU-1", "GPU-2"]
        first.release()
    finally:
        os.close(kept)


def test_many_processes_never_hold_the_same_while_somebody_keeps_the_turn(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases.make_folder(folder)
    with (Path(folder) / leases.MUTEX).open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        monkeypatch.setattr(leases, "MUTEX_SECONDS", 0.0)
        counter = str(tmp_path / "inside")
        orders = (["a", "b", "c"], ["c", "b"], ["b", "a"])
        context = multiprocessing.get_context("fork")  # the shortened wait goes along
        running = [context.Process(target=compete, args=(folder, order, 100, counter)) for order in orders]
        for process in running:
            process.start()
        for process in running:
            process.join(patience())

    assert [process.exitcode for process in running] == [0, 0, 0]


def test_who_locks_a_gpu_without_a_word_is_named_by_user_and_process(folder: str) -> None:
    leases.make_folder(folder)
    with (Path(folder) / "GPU-1").open("w") as silent:
        fcntl.flock(silent, fcntl.LOCK_EX)
        (holder,) = leases.holders(folder, ["GPU-1"]).values()

    assert holder == {"owner": this_process()}


def test_a_link_in_the_place_of_a_lease_is_named_with_who_made_it_and_hides_no_other(
    folder: str, tmp_path: Path
) -> None:
    leases.make_folder(folder)
    (Path(folder) / "GPU-1").symlink_to(tmp_path / "elsewhere")
    lease = leases.take(["GPU-2"], folder, '{"owner": "me"}')
    assert lease is not None

    found = leases.holders(folder, ["GPU-1", "GPU-2", "GPU-3"])

    maker = pwd.getpwuid(os.getuid()).pw_name
    assert found == {
        "GPU-1": {"owner": f"{maker} ({folder}/GPU-1 is not a lease file)"},
        "GPU-2": {"owner": "me"},
    }
    lease.release()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_in_which_others_may_remove_leases_is_refused_with_its_owner(mode: int) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    (parent / "leases").mkdir()
    (parent / "leases").chmod(mode)

    def refused() -> bool:
        with pytest.raises(Failure, match="belongs to root and is not sticky") as failure:
            leases.take(["GPU-1"], str(parent / "leases"), "{}")
        return "chmod 1777" in failure.value.hint and not list((parent / "leases").iterdir())

    assert as_another(refused)
    shutil.rmtree(parent)


@pytest.mark.parametrize(("mode", "then"), [(0o777, 0o1777), (0o770, 0o1770), (0o700, 0o700)])
def test_our_own_folder_is_made_sticky_where_others_may_write_and_opened_no_further(
    folder: str, mode: int, then: int
) -> None:
    Path(folder).mkdir()
    Path(folder).chmod(mode)

    lease = leases.take(["GPU-1"], folder, "{}")

    assert lease is not None
    assert stat.S_IMODE(Path(folder).stat().st_mode) == then
    lease.release()


def test_a_link_in_place_of_the_folder_is_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(folder).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Failure, match="not a folder"):
        leases.take(["GPU-1"], folder, "{}")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_hard_link_to_a_file_from_elsewhere_is_refused_and_not_written_to(
    folder: str, tmp_path: Path
) -> None:
    leases.make_folder(folder)
    (tmp_path / "precious").write_text("precious")
    (Path(folder) / "GPU-1").hardlink_to(tmp_path / "precious")

    with pytest.raises(Failure, match="2 hard links") as failure:
        leases.take(["GPU-1"], folder, "{}")

    assert pwd.getpwuid(os.getuid()).pw_name in failure.value.message
    assert (tmp_path / "precious").read_text() == "precious"


def as_another(holds: Callable[[], bool]) -> bool:
    """Ask something in the place of another person, which only root can."""
    pid = os.fork()
    if pid == 0:
        held = False
        try:
            os.setuid(12346)
            held = holds()
        finally:
            os._exit(0 if held else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_another_users_lease_file_can_be_taken_when_it_is_free() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else")
    parent = Path(tempfile.mkdtemp(prefix="fab-"))
    parent.chmod(0o755)
    folder = str(parent / "leases")
    lease = leases.take(["GPU-1"], folder, "{}")
    assert lease is not None
    lease.release()
    for path in Path(folder).iterdir():
        os.chown(path, 12345, 12345)

    # For another person the kernel refuses O_CREAT on a file that is not his.
    assert as_another(lambda: leases.take(["GPU-1"], folder, "{}") is not None)
    shutil.rmtree(parent)
