"""A job goes on at another backend with what came home of it: at a host, at home again, and back there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ssh.seen import printed, row
from tests.support.box import Box
from tests.support.command import Fabric
from tests.support.images import DEBIAN
from workbench.paths import Home

SMALL, LARGE = 1000, 5_000_000

TRAIN = f"""
n=$(cat $CHECKPOINT_DIR/last/step 2>/dev/null || echo 0); n=$((n+1))
mkdir -p $CHECKPOINT_DIR/step-$n
head -c {LARGE} /dev/zero | tr '\\0' $n >$CHECKPOINT_DIR/step-$n/weights
head -c {SMALL} /dev/zero | tr '\\0' $n >$CHECKPOINT_DIR/step-$n/optimizer
echo $n >$CHECKPOINT_DIR/step-$n/step
ln -sfn step-$n $CHECKPOINT_DIR/last
echo $n >>$RESULT_DIR/table
echo "step $n of $(wc -l <$RESULT_DIR/table)"
exit 3
"""
"""Each attempt goes on from the last checkpoint that it finds, and fails."""


def goes_on(fabric: Fabric, home: Home, job: str, *words: str) -> str:
    """Resume a job somewhere; return what the next attempt printed."""
    fabric("resume", job, *words)
    fabric("wait", job, expect=3)
    return printed(home, job, row(home, job).attempt)


def run(fabric: Fabric, *words: str) -> str:
    """Run a job that fails after its first checkpoint."""
    ran = fabric("run", "-d", "-q", *words, "--", "sh", "-c", TRAIN)
    job = ran.stdout.strip()
    fabric("wait", job, expect=3)
    return job


def content(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, and what its links say."""
    return {
        str(path.relative_to(folder)): str(path.readlink()).encode()
        if path.is_symlink()
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def folders_there(root: Path, job: str) -> list[Path]:
    """Return the job's folders at a host."""
    return list(root.glob(f".fabric/*/*/jobs/{job}"))


def test_a_job_goes_to_a_host_and_home_and_back_with_all_that_it_has_made(
    box: Box, fabric: Fabric, home: Home
) -> None:
    job, there = run(fabric, "--backend", "local", "--runner", "process"), ("-b", box.address)
    outside = home.job(job).checkpoints / "outside"
    outside.symlink_to("/etc/passwd")

    resumed = fabric("resume", job, *there, "--runner", "process")
    assert "what it has made goes to" in resumed.stderr
    fabric("wait", job, expect=3)
    assert printed(home, job, 2) == "step 2 of 2\n"
    (folder,) = folders_there(box.user.home, job)
    outside.unlink()
    assert content(folder / "checkpoints") == content(home.job(job).checkpoints)

    assert goes_on(fabric, home, job, "-b", "local", "--runner", "process") == "step 3 of 3\n"
    assert goes_on(fabric, home, job, *there, "--runner", "process") == "step 4 of 4\n"

    for name in ("results", "checkpoints"):
        assert content(folder / name) == content(home.job(job).path / name)
    weights = (
        folder / "checkpoints" / "step-3" / "weights",
        home.job(job).checkpoints / "step-3" / "weights",
    )
    assert weights[0].stat().st_mtime_ns == weights[1].stat().st_mtime_ns
    assert not list(folder.glob("attempt-*/earlier-*"))
    assert "from the checkpoint step-3" in fabric("events", job).stdout


def test_a_job_that_was_moved_is_deleted_wherever_it_was(box: Box, fabric: Fabric, home: Home) -> None:
    job = run(fabric, "--backend", box.address, "--runner", "process")
    goes_on(fabric, home, job, "-b", "local", "--runner", "process")
    assert folders_there(box.user.home, job)

    fabric("delete", job, "--yes")

    assert not folders_there(box.user.home, job)
    assert not home.job(job).path.exists()


def test_an_attempt_that_begins_by_itself_where_a_job_went_keeps_what_is_newer_there(
    box: Box, fabric: Fabric, home: Home
) -> None:
    job = run(fabric, "--backend", "local", "--runner", "process", "--set", "max_restarts=1")
    assert printed(home, job, 2) == "step 2 of 2\n"

    fabric("resume", job, "-b", box.address, "--runner", "process")
    fabric("wait", job, expect=3)

    assert (printed(home, job, 3), printed(home, job, 4)) == ("step 3 of 3\n", "step 4 of 4\n")
    (folder,) = folders_there(box.user.home, job)
    assert [path.parent.name for path in folder.glob("attempt-*/earlier.json")] == ["attempt-3"]


def test_a_job_goes_on_in_a_container_at_a_host_and_back_as_a_process(
    engine_box: Box, fabric: Fabric, home: Home
) -> None:
    job = run(fabric, "--backend", "local", "--runner", "process", "--image", DEBIAN)

    there = ("-b", engine_box.address, "--runner", "container")
    assert goes_on(fabric, home, job, *there) == "step 2 of 2\n"
    assert goes_on(fabric, home, job, "-b", "local", "--runner", "process") == "step 3 of 3\n"
    assert goes_on(fabric, home, job, *there) == "step 4 of 4\n"


def test_a_job_goes_on_at_a_host_without_python_and_home_again(
    bare: tuple[Box, Path], fabric: Fabric, home: Home
) -> None:
    box, _ = bare
    job = run(fabric, "--backend", "local", "--runner", "process")

    there = ("-b", box.address, "--runner", "process")
    assert goes_on(fabric, home, job, *there) == "step 2 of 2\n"
    assert goes_on(fabric, home, job, "-b", "local", "--runner", "process") == "step 3 of 3\n"
    assert goes_on(fabric, home, job, *there) == "step 4 of 4\n"


@pytest.mark.parametrize(
    "checkpoint",
    [
        "step-1",
        pytest.param("", marks=pytest.mark.soak("with a link to the last one; the gate has it without")),
    ],
)
def test_a_job_that_began_with_the_checkpoint_of_another_one_goes_to_a_host_without_that_one(
    box: Box, fabric: Fabric, home: Home, checkpoint: str
) -> None:
    first = run(fabric, "--backend", "local", "--runner", "process")
    if checkpoint:
        (home.job(first).checkpoints / "last").unlink()
    second = run(fabric, "--backend", "local", "--runner", "process", "--from", first)
    assert printed(home, second) == ("step 1 of 1\n" if checkpoint else "step 2 of 1\n")

    printed_there = goes_on(fabric, home, second, "-b", box.address, "--runner", "process")

    assert printed_there == ("step 2 of 2\n" if checkpoint else "step 3 of 2\n")
