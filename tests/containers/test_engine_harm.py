"""What a job lives through of its engine: killed, started again, hanging, cleaned up beside it, out of disk."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.conformance.harness import LaunchedAttempt, request_of
from runners.container.runner import ContainerRunner
from tests.containers.own_engine import OwnEngine, own_engine, why_not
from tests.support.command import Fabric
from tests.support.images import BUSYBOX
from tests.support.kept_agents import lend_agents
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, FabricError, SlotsBusy
from workbench.paths import Home

HOME = "c0ffee00-0000-4000-8000-0000000000e0"
COUNT = "i=0; while [ ! -e end ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo last $i"
HANGS_SECONDS = 6.0
"""Longer than anything here waits for an engine: a launch with this limit 1 s, a ping 3 s, an agent's 5 s."""

HANGS_LONG_SECONDS = 62.0
"""Longer than a launch waits by itself."""

Start = Callable[..., LaunchedAttempt]


@pytest.fixture(autouse=True)
def _engine(engine: None) -> None:
    """The machine's engine has the image; the others are made from it."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def start(home: Home) -> Iterator[Callable[[OwnEngine], Start]]:
    """Launch jobs on an engine of the test's own; removed afterwards where that engine still answers."""
    made: list[LaunchedAttempt] = []
    opened: list[LocalHost] = []

    def on(engine: OwnEngine) -> Start:
        host = LocalHost(lend_agents(home), engine=engine.address)
        opened.append(host)
        runner = ContainerRunner(host, home_uuid=HOME)

        def launch(command: str, **spec: Any) -> LaunchedAttempt:
            made.append(
                LaunchedAttempt.planned(runner, request_of(command, home=HOME, image=BUSYBOX, **spec))
            )
            return made[-1].launch()

        return launch

    yield on
    for job in made:
        job.stop()
        job.runner.close()
    for host in opened:
        host.close()


def is_whole(output: bytes) -> bool:
    """Say whether a counter's output has every line once, in order."""
    lines = output.decode().splitlines()
    return lines[:-1] == [f"line {number}" for number in range(1, len(lines))]


def finish(home: Home, job: LaunchedAttempt) -> None:
    """Let a counter end."""
    (home.job(job.ref().job_id).attempt(1).model(1) / "end").touch()


def test_a_job_goes_on_when_its_engine_is_killed_and_started_again_with_live_restore(
    home: Home, start: Callable[[OwnEngine], Start]
) -> None:
    with own_engine(1, live_restore=True) as engine:
        job = start(engine)(COUNT)
        job.until_printed(b"line 5\n")
        engine.kill()
        without = job.until_printed(b"line %d\n" % (job.output().count(b"\n") + 20))
        engine.start()
        job.until_printed(b"line %d\n" % (without.count(b"\n") + 20))
        finish(home, job)
        seen = job.until_over()[1]
        job.runner.remove(job.request.attempt)

        assert (seen.exit_code, seen.reason) == (0, None)
        assert is_whole(job.output())
        assert engine.docker("ps", "-aq") == ""


@pytest.mark.parametrize(
    "setup",
    ["", pytest.param("true", marks=pytest.mark.soak("with a setup command; the gate has one without"))],
)
def test_a_job_ends_with_an_engine_that_is_started_again_without_live_restore_and_has_that_as_its_reason(
    start: Callable[[OwnEngine], Start], setup: str, note_harm: Callable[[str], None]
) -> None:
    note_harm("engine killed and started again")
    with own_engine(12 if setup else 2) as engine:
        launch = start(engine)
        stubborn = launch(
            "trap '' TERM; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done", setup=setup
        )
        jobs = (launch(COUNT, setup=setup), stubborn)
        for job in jobs:
            job.until_printed(b"line 5\n")
        engine.kill()
        for job in jobs:
            job.until_printed(b"line %d\n" % (job.output().count(b"\n") + 20))
        engine.start()
        reasons = [job.until_over()[1].reason for job in jobs]
        for job in jobs:
            job.runner.remove(job.request.attempt)

        assert [reason and reason.code for reason in reasons] == ["S200", "S200"]
        assert reasons[0] is not None and reasons[0].text in (
            "the container was stopped from outside, by hand or with its engine",
            "the container ended with its engine",
        )
        assert reasons[1] is not None and "its engine" in reasons[1].text
        assert engine.docker("ps", "-a", "--format", "{{.Names}} {{.Status}}") == ""


def test_a_job_that_is_stopped_while_its_engine_is_gone_ends_all_the_same(
    home: Home, start: Callable[[OwnEngine], Start]
) -> None:
    with own_engine(3) as engine:
        job = start(engine)(COUNT)
        job.until_printed(b"line 5\n")
        engine.kill()
        seen = job.stop("halt", 1.0).until_over()[1]
        processes = subprocess.run(["pgrep", "-f", "sh /.fabric/inside.sh"], capture_output=True, text=True)

        assert seen.stopped == "halt"
        assert not any(_is_in(int(pid), job) for pid in processes.stdout.split())


def fill(path: Path) -> None:
    """Take all that a disk has left, to the last block."""
    with path.open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096):
            with pytest.raises(OSError, match="No space"):
                while filler.write(b"x" * size) == size:
                    pass
                raise OSError("No space for a whole block")


def _is_in(pid: int, job: LaunchedAttempt) -> bool:
    try:
        return job.ref().job_id.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("seconds", "answer_seconds"),
    [
        pytest.param(HANGS_SECONDS, 1.0, id="with a shorter limit"),
        pytest.param(
            HANGS_LONG_SECONDS,
            None,
            id="as long as it waits",
            marks=pytest.mark.soak("an engine that hangs for a minute; the gate waits less for one"),
        ),
    ],
)
def test_an_engine_that_hangs_stops_no_job_and_no_output_and_a_launch_says_so(
    home: Home,
    start: Callable[[OwnEngine], Start],
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    answer_seconds: float | None,
    note_harm: Callable[[str], None],
) -> None:
    note_harm("engine hangs")
    with own_engine(4 if answer_seconds else 14) as engine:
        launch = start(engine)
        job, unwanted = launch(COUNT), launch(COUNT)
        for one in (job, unwanted):
            one.until_printed(b"line 5\n")
        engine.hang()
        deadline = time.monotonic() + seconds
        with monkeypatch.context() as patched:
            if answer_seconds:
                patched.setattr("runners.container.engine.ANSWER_SECONDS", answer_seconds)
            other = LaunchedAttempt.planned(job.runner, request_of("true", home=HOME, image=BUSYBOX))
            with pytest.raises(BackendUnreachable, match="has not answered for"):
                other.runner.launch(other.plan, other.progress)
            killed = unwanted.stop("kill").until_over()[1]
            while time.monotonic() < deadline:
                job.until_printed(b"line %d\n" % (job.output().count(b"\n") + 5))
        engine.resume()
        finish(home, job)
        seen = job.until_over()[1]
        again = launch("echo after")
        again.until_over()
        # The engine may have made the container of the launch that it did not answer.
        for one in (job, again, unwanted, other):
            one.runner.remove(one.request.attempt)

        assert (seen.exit_code, seen.reason) == (0, None)
        assert is_whole(job.output())
        assert killed.stopped == "kill"
        assert again.output() == b"after\n"
        assert engine.docker("ps", "-aq") == ""


@pytest.mark.parametrize(
    "args",
    [
        (),
        pytest.param(
            ("--runner", "container"),
            marks=pytest.mark.soak("a runner that is named; the gate lets it be chosen"),
        ),
    ],
)
def test_a_job_that_is_submitted_while_the_engine_hangs_waits_for_it(
    fabric: Fabric, args: tuple[str, ...], note_harm: Callable[[str], None]
) -> None:
    note_harm("engine hangs")
    with own_engine(13 if args else 10) as engine:
        engine.hang()
        asked = ("run", "-d", *args, "--image", BUSYBOX, "--", "cat", "/proc/1/cmdline")
        job = fabric(*asked, DOCKER_HOST=engine.address).stdout.strip()
        tested = fabric("backend", "test", "local", expect=None, DOCKER_HOST=engine.address)
        waiting = fabric.json("show", job, "--json")["state"]
        engine.resume()
        fabric("wait", job)

        assert waiting in ("QUEUED", "PENDING", "DOWNLOADING")
        assert "has not answered for" in tested.stdout + tested.stderr
        assert "inside.sh" in fabric("logs", job).stdout


def test_cleaning_up_beside_a_job_and_removing_its_image_touch_nothing_of_it(
    home: Home, start: Callable[[OwnEngine], Start]
) -> None:
    with own_engine(5) as engine:
        job = start(engine)(COUNT, learners=2, ends_when="all")
        for learner in (1, 2):
            job.until_printed(b"line 5\n", learner)
        engine.docker("system", "prune", "-af", "--volumes")
        engine.docker("rmi", "-f", BUSYBOX)
        for learner in (1, 2):
            job.until_printed(b"line %d\n" % (job.output(learner).count(b"\n") + 5), learner)
            (home.job(job.ref().job_id).attempt(1).model(learner) / "end").touch()
        seen = job.until_over()
        job.runner.remove(job.request.attempt)

        assert [one.exit_code for one in seen.values()] == [0, 0]
        assert is_whole(job.output(1))
        assert is_whole(job.output(2))
        assert engine.docker("ps", "-aq") == ""
        assert "learner-" not in engine.docker("network", "ls")


def test_a_job_waits_while_the_engine_has_no_addresses_for_another_network(
    start: Callable[[OwnEngine], Start],
) -> None:
    with own_engine(7, pool="base=10.214.0.0/24,size=24") as engine:
        launch = start(engine)
        first = launch("while :; do sleep 0.1; done", learners=2)
        first.until_running()
        second = LaunchedAttempt.planned(
            first.runner, request_of("echo ran", home=HOME, image=BUSYBOX, learners=2)
        )
        with pytest.raises(SlotsBusy, match="waits for a network") as caught:
            second.launch()
        left = engine.docker("ps", "-aq", "--filter", f"label=fabric.job={second.ref().job_id}")
        alone = launch("echo alone")
        alone.until_over()
        first.stop().until_over()
        second.launch().until_over()
        for job in (first, second, alone):
            job.runner.remove(job.request.attempt)

        assert "docker network prune" in caught.value.hint
        assert left == ""
        assert alone.output() == b"alone\n"
        assert second.output(1) == b"ran\n"


def test_an_engine_whose_disk_is_full_refuses_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, start: Callable[[OwnEngine], Start]
) -> None:
    image = tmp_path / "disk.img"
    folder = Path(
        tempfile.mkdtemp(prefix="fab-d", dir="/var/tmp")
    )  # a short path: sockets allow 100 characters
    with image.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        with own_engine(6, disk=folder) as engine:
            launch = start(engine)
            launch("true").until_over()
            # What is still being removed would make room.
            until(lambda: engine.docker("ps", "-aq") == "", "the containers to be gone")
            fill(folder / "filler")
            with pytest.raises(FabricError, match="no space left") as caught:
                launch("true").until_over()
            (folder / "filler").unlink()
            after = launch("echo after")
            after.until_over()

            assert "container engine" in caught.value.message
            assert after.output() == b"after\n"
            until(lambda: engine.docker("ps", "-aq") == "", "the containers to be gone")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
