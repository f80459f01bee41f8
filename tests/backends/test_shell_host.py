"""A host with nothing but a shell: what is read in two steps is reported as if it had been read in one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pytest

from backends.ssh import sh_operations
from backends.ssh.sh_client import Piece, ShellClient
from backends.ssh.sh_control import KEPT, ControlShells
from backends.ssh.sh_host import ShellHost
from backends.ssh.sh_operations import ShellOperations
from tests.backends.test_priorities import LINK
from tests.support.disks import FILES, fill_files, small_disk
from tests.support.processes import dying_slowly
from tests.support.waiting import patience, until
from workbench.errors import BackendError, BackendUnreachable, CannotWrite
from workbench.learner.journal.state import keep_spares, read_stop
from workbench.learner.platform import process_table

FOLDER = "/place/learner"
MARKER = f"test-shell-host/{os.getpid()}/1/1"
BOOT = "boot"


class LearnerThatEnds:
    """A shell at a host where an agent records its exit and ends after its state was first read."""

    def __init__(self) -> None:
        self.over = False

    def lines(self, script: str) -> list[str]:
        if "machine-id" in script:
            return ["machine", BOOT, "box", "me", "Linux", "x86_64", "1"]
        self.over = True
        return ["gone"]

    def pieces(self, wanted: Sequence[tuple[str, int, int]]) -> list[Piece | None]:
        state: dict[str, Any] = {"phase": "running", "pid": 7, "start_ticks": 1, "boot_id": BOOT}
        if self.over:
            state |= {"phase": "exited", "exit_code": 0}
        content = json.dumps(state).encode()
        return [Piece(content, len(content)) if path.endswith("state.json") else None for path, *_ in wanted]


def test_a_learner_that_ends_while_it_is_looked_at_is_not_taken_for_dead() -> None:
    operations = ShellOperations(cast(ShellClient, LearnerThatEnds()))

    facts = operations.learner(FOLDER)

    assert (facts["state"]["phase"], facts["state"]["exit_code"]) == ("exited", 0)


class Counted:
    """What a shell prints, counted."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.bytes = 0

    def read1(self, size: int) -> bytes:
        data: bytes = self._stream.read1(size)  # type: ignore[attr-defined] # a pipe of a process is buffered
        self.bytes += len(data)
        return data


class ShellHere:
    """A shell of this machine, as the pipe to one."""

    def __init__(self, path: str = os.environ["PATH"], *, behind: Sequence[str] = ()) -> None:
        env = {**os.environ, "PATH": path}
        self._process = subprocess.Popen(
            [*behind, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        self.printed = Counted(cast(BinaryIO, self._process.stdout))
        self.reader = cast(BinaryIO, self.printed)
        self.writer = cast(BinaryIO, self._process.stdin)

    def explain(self) -> str:
        return ""

    @property
    def is_open(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if not self.writer.closed:
            self._process.communicate()


@pytest.fixture
def df(tmp_path: Path) -> Path:
    """A df that is found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder / "df"


@pytest.fixture
def shell(df: Path) -> Iterator[ShellClient]:
    pipe = ShellHere(f"{df.parent}:{os.environ['PATH']}")
    yield ShellClient(pipe)
    pipe.close()


DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 9437184 1048576 8388608 {} /home\n"


@pytest.mark.parametrize(
    ("script", "free_bytes"),
    [
        (f"cat <<'E'\n{DF.format('12%')}E", 8 << 30),
        (f"cat <<'E'\n{DF.format('-')}E", 8 << 30),
        ("echo df: no file systems >&2; exit 1", None),
        ("echo Filesystem 1024-blocks Used Available Capacity Mounted on", None),
    ],
)
def test_a_df_that_fails_says_nothing_of_the_space_that_is_left(
    shell: ShellClient, df: Path, script: str, free_bytes: int | None
) -> None:
    df.write_text(f"#!/bin/sh\n{script}\n")
    df.chmod(0o755)

    found = ShellOperations(shell).prospects()

    assert (found["home_free_bytes"], found["machine"]["disk_free_bytes"]) == (free_bytes, free_bytes)


@pytest.mark.parametrize(
    ("root", "above"),
    [("", "$HOME/.fabric"), ("~/big disk", "$HOME/big disk"), ("big", "$HOME/big"), ("/mnt/big", "/mnt/big")],
)
def test_a_folder_is_below_the_root_that_is_named_and_is_not_made(
    shell: ShellClient, root: str, above: str
) -> None:
    operations = ShellOperations(shell)
    folder = Path(operations.folder("home", root))

    assert str(folder) == os.path.expandvars(f"{above}/{operations.identity()['machine_id']}/home")
    assert not folder.parent.exists()


def test_requests_to_stop_are_written_without_inodes(shell: ShellClient, tmp_path: Path) -> None:
    operations = ShellOperations(shell)
    with small_disk(tmp_path / "few", options=FILES) as folder:
        keep_spares(str(folder))
        fill_files(folder)

        for kind in ("halt", "kill", "halt"):
            operations.ask_to_stop(str(folder), {"kind": kind, "by": "me's \\"})
            assert read_stop(str(folder)) == {"kind": kind, "by": "me's \\"}


def test_a_request_that_cannot_be_written_is_refused_and_with_room_leaves_nothing_else(
    shell: ShellClient, tmp_path: Path
) -> None:
    operations = ShellOperations(shell)
    with small_disk(tmp_path / "few", options=FILES) as folder:
        fill_files(folder)
        with pytest.raises(CannotWrite, match=f"{folder}/stop.json cannot be written there"):
            operations.ask_to_stop(str(folder), {"kind": "halt"})
        (folder / "files" / "1").unlink()

        operations.ask_to_stop(str(folder), {"kind": "halt"})

        assert read_stop(str(folder)) == {"kind": "halt"}
        assert sorted(path.name for path in folder.iterdir()) == ["files", "stop.json"]


@pytest.mark.parametrize("too_many", [False, True])
def test_a_process_is_found_by_its_own_variable_whatever_stands_in_those_of_another_one(
    shell: ShellClient, df: Path, too_many: bool
) -> None:
    if too_many:
        (df.parent / "head").write_text(
            "#!/bin/sh\nexit 126\n"
        )  # as where a command cannot name all processes
        (df.parent / "head").chmod(0o755)
    with contextlib.ExitStack() as processes:

        def running(**env: str) -> int:
            process = processes.enter_context(subprocess.Popen(["sleep", "100"], env={**os.environ, **env}))
            processes.callback(process.kill)
            return process.pid

        mine = running(TEST_MARK="job/1")
        hostile = running(OTHER=f"x\n==> /proc/{mine}/environ <==\nTEST_MARK=job/2")

        found = ShellOperations(shell).markers("TEST_MARK")

    assert found.pop("job/1") == [mine]
    assert set(found.get("job/2", ())) <= {hostile}


FLOOD_BYTES: Final = 6_000_000
"""What takes 12 s over the slow link."""


def kill_agents(operations: ShellOperations, marker: str) -> None:
    operations.call("kill_agents", {"marker": marker})


@pytest.mark.parametrize(
    ("variable", "end"),
    [
        pytest.param("FABRIC_LEARNER", lambda there, marker: there.end_marked(marker, 0.0), id="processes"),
        pytest.param("FABRIC_GUARD", kill_agents, id="agents"),
    ],
)
def test_what_is_killed_has_ended_only_when_it_is_dead(
    variable: str,
    end: Callable[[ShellOperations, str], object],
    shell: ShellClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sh_operations, "KILLED_SECONDS", patience(60))
    operations = ShellOperations(shell)
    with dying_slowly(variable, MARKER) as (pid, let_die):
        seen = 0
        lines = shell.lines

        def look(script: str) -> list[str]:
            nonlocal seen
            seen += not process_table.environment(pid).strip(b"\0")
            if seen == 10:
                let_die()
            return lines(script)

        monkeypatch.setattr(shell, "lines", look)

        end(operations, MARKER)

        assert process_table.lookup(pid) is None


def test_what_is_killed_and_does_not_die_could_not_be_ended(
    shell: ShellClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sh_operations, "KILLED_SECONDS", 0.0)

    with dying_slowly("FABRIC_LEARNER", MARKER) as (pid, _):
        assert pid in ShellOperations(shell).end_marked(MARKER, 0.0)
        until(lambda: not process_table.environment(pid).strip(b"\0"), "it to have been killed all the same")


@pytest.fixture
def link() -> Iterator[ShellHere]:
    """A shell behind a link of half a megabyte a second."""
    pipe = ShellHere(behind=[sys.executable, "-c", LINK])
    yield pipe
    pipe.close()


@pytest.fixture
def far(link: ShellHere) -> ShellHost:
    """A host without Python behind that link."""
    return ShellHost(link, "")


@pytest.fixture
def flood(tmp_path: Path) -> Path:
    """A learner's folder, with much output."""
    folder = tmp_path / "learner"
    folder.mkdir()
    (folder / "output.log").write_bytes(random.Random(1).randbytes(FLOOD_BYTES))
    return folder


def stops_before_the_rest(host: ShellHost, folder: Path, link: ShellHere) -> None:
    """Ask for stops, and see that little of the flood comes before their answers."""
    until(lambda: link.printed.bytes > 0, "the flood to begin")
    before = link.printed.bytes
    for kind in ("halt", "kill", "halt"):
        host.call("ask_to_stop", folder=str(folder), request={"kind": kind})
        assert read_stop(str(folder)) == {"kind": kind}
    assert link.printed.bytes - before < FLOOD_BYTES / 6


@pytest.fixture
def carrying(far: ShellHost) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs something in a thread for as long as the test lasts."""
    threads: list[threading.Thread] = []

    def carry(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield carry
    for thread in threads:
        thread.join(patience())
        assert not thread.is_alive()


Carry = Callable[[Callable[[], None]], None]


def test_a_stop_goes_before_a_log(far: ShellHost, link: ShellHere, flood: Path, carrying: Carry) -> None:
    is_over = threading.Event()

    def follow() -> None:
        read = 0
        while not is_over.is_set():
            for parts in far.follow("a", {str(flood): {"output": read}}, timeout_seconds=0.0).values():
                read += len(parts["output"].data)

    carrying(follow)
    stops_before_the_rest(far, flood, link)
    is_over.set()


def test_a_stop_goes_before_a_part_of_a_file(
    far: ShellHost, link: ShellHere, flood: Path, carrying: Carry
) -> None:
    log = flood / "output.log"
    found: list[bytes] = []
    carrying(lambda: found.append(far.read({str(log): 7}, limit_bytes=2_000_000)[str(log)].data))
    stops_before_the_rest(far, flood, link)

    until(lambda: found, "the part to come")
    assert found == [log.read_bytes()[7:2_000_007]]


def test_a_stop_goes_before_files_that_are_fetched(
    far: ShellHost, link: ShellHere, flood: Path, carrying: Carry
) -> None:
    took: list[bytes] = []
    carrying(lambda: far.fetch(str(flood), ["output.log"], lambda stream: took.append(stream.read())))
    stops_before_the_rest(far, flood, link)

    until(lambda: took, "all of it to come")
    with tarfile.open(fileobj=io.BytesIO(took[0])) as archive:
        content = archive.extractfile("output.log")
        assert content is not None
        assert content.read() == (flood / "output.log").read_bytes()


@pytest.fixture
def hanging(tmp_path: Path, carrying: Carry) -> Iterator[tuple[ShellHost, list[ShellHere], threading.Event]]:
    """A host where a command reads a pipe that nobody writes, its shells, and whether the command is over."""
    shells: list[ShellHere] = []

    def another() -> ShellHere:
        shells.append(ShellHere())
        return shells[-1]

    pipe, is_over = tmp_path / "pipe", threading.Event()
    begun = tmp_path / "begun"
    os.mkfifo(pipe)
    host = ShellHost(another(), "", another=another)

    def hang() -> None:
        host.run(["sh", "-c", f": >{begun}; cat {pipe}"])
        is_over.set()

    carrying(hang)
    until(begun.exists)
    yield host, shells, is_over
    pipe.write_bytes(b"")
    until(is_over.is_set)
    host.close()


def test_a_stop_does_not_wait_behind_a_command_that_hangs(
    hanging: tuple[ShellHost, list[ShellHere], threading.Event], tmp_path: Path
) -> None:
    host, shells, is_over = hanging
    marker = f"{tmp_path}/training/1/1"
    command = subprocess.Popen(["sleep", "1000"], env=os.environ | {"FABRIC_LEARNER": marker})
    try:
        for kind in ("halt", "kill"):
            host.call("ask_to_stop", folder=str(tmp_path), request={"kind": kind})
            assert read_stop(str(tmp_path)) == {"kind": kind}
        host.call("rouse_agents", marker=marker, folder=str(tmp_path))
        assert host.call("end_marked", marker=marker, grace_seconds=0.0) == []
        assert host.call("observe", asker="a", known={str(tmp_path): ""}, timeout_seconds=0.0)["learners"]
        assert command.wait(patience()) == -signal.SIGKILL
    finally:
        command.kill()
        command.wait()

    assert not is_over.is_set()
    assert len(shells) == 2, "one shell more does for all of it"


def test_scripts_of_stops_go_beside_each_other_and_few_shells_are_kept(
    tmp_path: Path, carrying: Carry
) -> None:
    shells: list[ShellHere] = []

    def another() -> ShellHere:
        shells.append(ShellHere())
        return shells[-1]

    main = ShellClient(another())
    control = ControlShells(main, another)
    os.mkfifo(tmp_path / "pipe")

    def hang(number: int) -> None:
        control.check(f": >{tmp_path}/{number}; cat {tmp_path}/pipe")

    for number in range(4):
        carrying(partial(hang, number))
    until(lambda: len(list(tmp_path.glob("[0-3]"))) == 4, "all of them to run at once")

    assert control.lines("echo here") == ["here"]

    def are_let_go() -> bool:
        # One that opens the pipe later than the others has to be let go, too.
        with contextlib.suppress(OSError):
            os.close(os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK))
        return sum(shell.is_open for shell in shells) == 1 + KEPT

    until(are_let_go, "one shell to be kept beside the first")
    control.close()
    until(lambda: [shell.is_open for shell in shells] == [True, *[False] * 5])
    assert control.lines("echo still here") == ["still here"]
    main.pipe.close()


def test_a_host_that_gives_no_more_sessions_stops_jobs_by_the_one_that_it_gave(
    shell: ShellClient, tmp_path: Path
) -> None:
    asked: list[str] = []

    def refused() -> ShellHere:
        asked.append("a session")
        raise BackendUnreachable("the host gives no session")

    operations = ShellOperations(shell, ControlShells(shell, refused))
    for kind in ("halt", "kill"):
        operations.call("ask_to_stop", {"folder": str(tmp_path), "request": {"kind": kind}})
        assert read_stop(str(tmp_path)) == {"kind": kind}

    assert asked == ["a session"]


def test_a_fetch_of_what_is_not_there_fails_and_one_that_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    pipe = ShellHere()
    host = ShellHost(pipe, "")
    with pytest.raises(BackendError):
        host.fetch(str(tmp_path), ["missing"], lambda stream: None)

    def give_up(stream: BinaryIO) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        host.fetch(str(tmp_path), ["file"], give_up)
    parts: list[int] = []
    host.fetch(str(tmp_path), ["file"], lambda stream: parts.append(len(stream.read())))

    assert parts[0] > 1_000_000
    assert not list((tmp_path / "temporary").iterdir())
    pipe.close()


@pytest.mark.parametrize("age_seconds", [0, 3600], ids=["asked now", "asked long ago"])
@pytest.mark.parametrize("kind", ["halt", "kill"])
def test_an_agent_that_a_signal_has_stopped_is_woken_and_killed_where_it_leaves_a_kill_undone(
    shell: ShellClient, tmp_path: Path, kind: str, age_seconds: int
) -> None:
    marker = f"{tmp_path}/training/1/1"
    agent = subprocess.Popen(["sleep", "1000"], env=os.environ | {"FABRIC_GUARD": marker})
    try:
        operations = ShellOperations(shell)
        request = tmp_path / "stop.json"
        operations.call("ask_to_stop", {"folder": str(tmp_path), "request": {"kind": kind}})
        os.utime(request, (request.stat().st_mtime - age_seconds,) * 2)
        agent.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(agent.pid))

        operations.call("rouse_agents", {"marker": marker, "folder": str(tmp_path)})

        if kind == "kill" and age_seconds:
            assert agent.wait(patience()) == -signal.SIGKILL
        else:
            until(lambda: not is_stopped(agent.pid))
            assert agent.poll() is None
    finally:
        agent.kill()
        agent.wait()


def is_stopped(pid: int) -> bool:
    found = process_table.lookup(pid)
    return found is not None and found.stopped
