"""What every host does alike, called directly or through a pipe."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import struct
import tarfile
import threading
from pathlib import Path

import pytest

from backends.contract.host import Host
from backends.local.host import LocalHost
from tests.backends.alive import is_alive, wait_until_dead
from tests.backends.counting import Counting
from tests.support.disks import fill, small_disk
from tests.support.waiting import patience, until
from workbench.errors import BackendError, CannotWrite, InputMissing
from workbench.learner.platform.files import Upload, remove

HOME = "00000000-0000-0000-0000-000000000001"


def wait_for(path: Path) -> str:
    """Return a file's text once there is any."""
    until(lambda: path.exists() and path.read_text(), f"{path} to be written")
    return path.read_text()


def test_identity_names_the_machine(host: Host) -> None:
    identity = host.identity()

    assert identity.machine_id
    assert identity.hostname == socket.gethostname()
    assert Path(identity.python).name.startswith("python")
    assert abs(identity.clock_skew_seconds) < 1


def test_the_folder_is_private_and_is_not_brought_back_by_being_asked_for(host: Host) -> None:
    folder = Path(host.folder(HOME))
    host.call("write_files", files={str(folder / "jobs" / "a"): ""})

    assert folder.stat().st_mode & 0o777 == 0o700
    host.call("remove", paths=[str(folder)])
    assert host.folder(HOME) == str(folder)
    assert host.here or not folder.exists()


def test_a_folder_is_removed_though_a_file_is_made_in_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "attempt-1"
    (folder / "learner-1").mkdir(parents=True)
    late = [folder / "decision.json"]
    rmdir = os.rmdir

    def write_and_remove(path: str, *, dir_fd: int | None = None) -> None:
        if late and path.endswith(folder.name):
            late.pop().write_text("{}")
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", write_and_remove)

    remove([str(folder)])

    assert not late
    assert not folder.exists()


def test_run_gives_code_output_and_errors(host: Host) -> None:
    script = 'cat; printf %s "$A"; pwd; printf e >&2; exit 7'

    ended = host.run(["sh", "-c", script], stdin=b"abc", env={"A": "!"}, cwd="/")

    assert (ended.exit_code, ended.stdout, ended.stderr) == (7, b"abc!/\n", b"e")


def test_run_carries_megabytes(host: Host) -> None:
    data = os.urandom(3_000_000)

    assert host.run(["cat"], stdin=data).stdout == data


def test_run_tells_a_signal_as_a_shell_does(host: Host) -> None:
    assert host.run(["sh", "-c", "kill -TERM $$"]).exit_code == 143


def test_run_that_is_late_kills_its_whole_session(host: Host, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"(set -m; sleep 300 & echo $! >> {pids}) ; echo $$ >> {pids}; sleep 300"

    with pytest.raises(BackendError, match=r"within 0\.5 seconds"):
        host.run(["sh", "-c", script], deadline_seconds=0.5)

    for pid in wait_for(pids).split():
        assert wait_until_dead(int(pid))


def test_run_does_not_wait_for_what_is_left_in_the_background(host: Host) -> None:
    ended = host.run(["sh", "-c", "sleep 300 & echo $!"])

    assert is_alive(int(ended.stdout))
    os.kill(int(ended.stdout), 9)


def test_run_of_a_missing_command_is_refused(host: Host) -> None:
    with pytest.raises(InputMissing, match="no-such-command cannot be started"):
        host.run(["no-such-command"])


def test_spawn_outlives_the_host(host: Host, tmp_path: Path) -> None:
    output = tmp_path / "folder" / "output"
    pid = host.spawn(["sh", "-c", "echo $A; exec sleep 300"], env={"A": "hello"}, cwd="/", output=str(output))

    assert wait_for(output) == "hello\n"
    host.close()
    assert is_alive(pid)
    assert os.getsid(pid) == pid
    os.kill(pid, 9)
    assert wait_until_dead(pid)


def test_put_writes_whole_files_with_their_mode(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    host.put(io.BytesIO(b"x" * 1_000_001), str(path), mode=0o640)

    assert path.read_bytes() == b"x" * 1_000_001
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["file", "{}", "tool-{}"])
def test_put_does_not_send_again_what_is_there(host: Host, tmp_path: Path, name: str) -> None:
    data = b"content"
    sha256 = hashlib.sha256(data).hexdigest()
    path = tmp_path / name.format(sha256)
    host.put(io.BytesIO(data), str(path), sha256=sha256)
    stream = io.BytesIO(data)

    host.put(stream, str(path), sha256=sha256)

    assert stream.tell() == 0


def test_put_goes_on_where_it_was_cut_off(host: Host, tmp_path: Path) -> None:
    path, data = tmp_path / "file", os.urandom(2_000_000)
    sha256 = hashlib.sha256(data).hexdigest()

    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() >= 1_000_000:
                raise EOFError("cut")
            return super().read(size)

    with pytest.raises(EOFError):
        host.put(Breaking(data), str(path), sha256=sha256)
    (part,) = tmp_path.glob(".file.*.part")
    until(lambda: part.stat().st_size >= 1_000_000, "what was sent to be written at the other end")
    host.close()
    assert not path.exists()

    stream = Counting(data)
    LocalHost().put(stream, str(path), sha256=sha256)

    assert path.read_bytes() == data
    assert 0 < stream.count < 1_500_000


def test_put_goes_on_with_what_an_agent_holds_that_does_not_know_that_its_link_was_cut(
    host: Host, tmp_path: Path
) -> None:
    path, data = tmp_path / "file", os.urandom(2_000_000)
    sha256 = hashlib.sha256(data).hexdigest()
    stream = Counting(data)

    with Upload(str(path), sha256) as held:
        held.write(data[:1_500_000])
        host.put(stream, str(path), sha256=sha256)
        assert path.read_bytes() == data
        assert stream.count == 500_000

        held.write(data[1_500_000:])
        held.finish()

    assert path.read_bytes() == data
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["file"]


def test_put_refuses_what_is_not_what_was_announced(host: Host, tmp_path: Path) -> None:
    with pytest.raises(InputMissing, match="not what was sent"):
        host.put(io.BytesIO(b"other"), str(tmp_path / "file"), sha256="0" * 64)

    assert list(tmp_path.iterdir()) in ([], [tmp_path / "place"])


def test_put_of_a_file_whose_end_has_no_room_fails_and_leaves_no_file(host: Host, tmp_path: Path) -> None:
    data = os.urandom(60_000)
    with small_disk(tmp_path / "small") as small:
        fill(small, leave=20_480)

        with pytest.raises(CannotWrite, match="No space left"):
            host.put(io.BytesIO(data), str(small / "file"), sha256=hashlib.sha256(data).hexdigest())

        assert not (small / "file").exists()


def test_read_stops_at_the_last_whole_line(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"seq": 1}\n{"seq": 2}\n{"se')

    chunks = host.read({str(path): 11, str(tmp_path / "missing"): 0})

    assert list(chunks) == [str(path)]
    assert (chunks[str(path)].data, chunks[str(path)].offset, chunks[str(path)].end) == (
        b'{"seq": 2}\n',
        11,
        22,
    )


def test_read_of_output_stops_where_its_index_says(host: Host, tmp_path: Path) -> None:
    output, index = tmp_path / "output.log", tmp_path / "output.idx"
    output.write_bytes(b"published, not yet")
    index.write_bytes(struct.pack("<8sQQ", b"FABRIDX1", 1, 0) + struct.pack("<QQQ", 9, 1, 0) + b"torn")

    chunks = host.read({str(output): 3, str(index): 0}, limit_bytes=4)

    assert (chunks[str(output)].data, chunks[str(output)].end) == (b"lish", 9)
    assert chunks[str(index)].end == 48


def test_read_of_output_without_an_index_gives_nothing_yet(host: Host, tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_bytes(b"nobody has published this\n")

    assert host.read({str(output): 0})[str(output)].data == b""


def test_watch_waits_for_a_change_and_misses_none_between_calls(host: Host, tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    assert host.watch([str(path), str(other)], timeout_seconds=0.05) == []

    path.write_text("x")

    assert host.watch([str(path), str(other)], timeout_seconds=patience()) == [str(path)]


def test_a_call_that_waits_blocks_no_other(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "file"
    seen: list[str] = []
    waiting = threading.Thread(target=lambda: seen.extend(host.watch([str(path)], timeout_seconds=3600)))
    waiting.start()
    for _ in range(20):
        host.run(["true"])
    assert waiting.is_alive()

    def changed() -> bool:
        """Change the file again: it may not have begun to wait yet."""
        path.unlink() if path.exists() else path.write_text("x")
        return not waiting.is_alive()

    until(changed, "the change to be seen")
    assert seen == [str(path)]


def test_lock_is_all_or_nothing(host: Host, tmp_path: Path) -> None:
    folder = str(tmp_path / "leases")
    first = host.lock(["b"], folder=folder, text='{"owner": "anna"}')
    assert first is not None

    assert host.lock(["a", "b"], folder=folder, text="{}") is None
    second = host.lock(["a"], folder=folder, text="{}")

    assert second is not None
    first.release()
    first.release()
    again = host.lock(["b"], folder=folder, text="{}")
    assert again is not None
    again.release()
    second.release()


def test_a_spawned_process_holds_its_part_of_a_lock_without_a_gap(host: Host, tmp_path: Path) -> None:
    folder = str(tmp_path / "leases")
    lock = host.lock(["a", "b"], folder=folder, text="{}")
    assert lock is not None
    mine = lock.part(["a"])
    output = str(tmp_path / "output")
    pid = host.spawn(["sleep", "300"], env={}, cwd="/", output=output, holding=[mine])
    mine.release()
    lock.release()

    assert host.lock(["a"], folder=folder, text="{}") is None
    free = host.lock(["b"], folder=folder, text="{}")
    assert free is not None
    free.release()
    os.kill(pid, 9)
    assert wait_until_dead(pid)
    freed = until(lambda: host.lock(["a"], folder=folder, text="{}"), "the lock")
    assert freed is not None
    freed.release()


def test_a_closed_host_has_let_go_of_its_locks(host: Host, tmp_path: Path) -> None:
    from workbench.learner.platform import leases

    folder = str(tmp_path / "leases")
    lock = host.lock(["a"], folder=folder, text="{}")
    assert lock is not None
    lock.release()
    host.close()

    taken = leases.take(["a"], folder, "{}")
    assert taken is not None
    taken.release()


def test_unpack_puts_a_folder_into_place_once(host: Host, tmp_path: Path) -> None:
    archive = tmp_path / "code.tar.gz"
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "train.py").write_text("print(1)")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("sub/train.py")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, ".")
    folder = tmp_path / "model-code"

    assert host.call("unpack", archive=str(archive), folder=str(folder)) is True
    (folder / "sub" / "train.py").write_text("changed")
    assert host.call("unpack", archive=str(archive), folder=str(folder)) is False

    assert (folder / "link").read_text() == "changed"
    assert os.access(folder / "run.sh", os.X_OK)


def test_a_stream_is_carried_both_ways(host: Host, clean_environment: Path) -> None:
    path = str(clean_environment / "socket")
    data = os.urandom(3_000_000)
    received = bytearray()

    def serve(listening: socket.socket) -> None:
        stream, _ = listening.accept()
        with stream:
            while chunk := stream.recv(65536):
                received.extend(chunk)
            stream.sendall(bytes(received[::-1]))

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        serving = threading.Thread(target=serve, args=(listening,))
        serving.start()
        with host.connect(path) as stream:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            back = bytearray()
            while chunk := stream.recv(65536):
                back.extend(chunk)
        serving.join(patience())

    assert bytes(received) == data
    assert bytes(back) == data[::-1]


def test_a_socket_that_is_not_there_is_reported(host: Host, clean_environment: Path) -> None:
    with pytest.raises(InputMissing):
        host.connect(str(clean_environment / "no-socket"))


def test_an_unknown_operation_is_reported(host: Host) -> None:
    with pytest.raises(BackendError, match="does not know 'fly'"):
        host.call("fly")
