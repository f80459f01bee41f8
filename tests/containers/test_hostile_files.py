"""A container that puts links and pipes where its agent and ``fabric`` read and write reaches no file of the host."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from runners.conformance.harness import LaunchedAttempt
from runners.container.runner import ContainerRunner
from tests.support.engine import MakeJob
from tests.support.images import USER
from workbench.errors import FabricError
from workbench.learner.platform import files
from workbench.spec import EvaluationMetrics

SECRET = "what is only the host's\n"
ON_TERM = "trap 'echo saved; exit 5' TERM"
FOREVER = "echo ready; while :; do sleep 0.1; done"
STAY = "echo ready; while [ ! -e /job/model-code/go ]; do sleep 0.1; done"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of the host that no container may reach."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "f").write_text(SECRET)
    return folder


@pytest.mark.parametrize("user", [False, True])
def test_folders_that_became_links_are_neither_listed_read_nor_written(
    make_job: MakeJob, runner: ContainerRunner, theirs: Path, user: bool
) -> None:
    work = (
        f"mv /job/logs /job/x; ln -s {theirs} /job/logs; ln -s {theirs} /mnt/results/inner;"
        f" ln -s {theirs}/f /mnt/results/f; mkdir /mnt/results/own; echo mine > /mnt/results/own/a;"
        f" ln -s own /mnt/results/link; {STAY}"
    )
    job = make_job(work, **({"image": USER} if user else {})).launch()
    job.until_printed(b"ready")
    ref = job.ref()

    assert "f" not in _listed(runner, job, "logs")
    for path in ("logs", "logs/f", "results/inner/f", "results/f"):
        assert SECRET.encode() not in _fetched(runner, job, path), path
    for path in ("logs/g", "results/inner/g", "results/f"):
        with pytest.raises(FabricError):
            runner.put(ref, path, io.BytesIO(b"written"), mode=0o644)
    kept = [entry.path for entry in runner.files(ref, "results/link")]
    runner.put(ref, "results/link/b", io.BytesIO(b"sent"))

    assert sorted(path.name for path in theirs.iterdir()) == ["f"]
    assert (theirs / "f").read_text() == SECRET
    assert "a" in kept
    assert "b" in [entry.path for entry in runner.files(ref, "results/own")]
    job.stop().until_over()


def test_a_pipe_of_the_agent_that_became_a_file_of_the_host_is_not_read(
    make_job: MakeJob, theirs: Path
) -> None:
    for name in ("output.command", "control.command", "exit.command"):
        (theirs / name).write_text(SECRET * 100)
        setup = f"rm /.fabric/learner/{name}; ln -s {theirs}/{name} /.fabric/learner/{name}"

        job = make_job("true", setup=setup).launch()
        seen = job.until_over()[1]

        assert SECRET.encode() not in job.output()
        assert seen.exit_code != 0
        assert seen.reason is not None
        assert f"replaced {name}" in seen.reason.text
        assert (theirs / name).read_text() == SECRET * 100


def test_a_pipe_of_the_agent_that_became_a_file_is_not_read_without_end(make_job: MakeJob) -> None:
    setup = "rm /.fabric/learner/output.command; echo own > /.fabric/learner/output.command"

    seen = make_job("true", setup=setup).launch().until_over()[1]

    assert seen.reason is not None
    assert "replaced output.command" in seen.reason.text


def test_a_stop_file_that_became_a_link_makes_nothing_at_the_host(make_job: MakeJob, theirs: Path) -> None:
    job = make_job(f"{ON_TERM}; ln -s {theirs}/made /.fabric/learner/stop; {FOREVER}").launch()
    job.until_printed(b"ready")

    seen = job.stop("halt", grace_seconds=20.0).until_over()[1]

    assert not (theirs / "made").exists()
    assert seen.exit_code == 5
    assert b"saved" in job.output()


def test_a_stop_file_that_became_a_pipe_keeps_no_signal_back(make_job: MakeJob) -> None:
    job = make_job(f"{ON_TERM}; mkfifo /.fabric/learner/stop; {FOREVER}").launch()
    job.until_printed(b"ready")

    seen = job.stop("halt", grace_seconds=20.0).until_over()[1]

    assert seen.exit_code == 5
    assert b"saved" in job.output()


def test_metrics_are_not_collected_from_files_of_the_host(make_job: MakeJob, theirs: Path) -> None:
    point = (
        '{"meta": {}, "grouplabel": "g", "etimes": {}, "values": {"leaked": {"type": 3, "value": "0.5"}}}\n'
    )
    own = point.replace("leaked", "own")
    (theirs / "evaluation-metrics.txt").write_text(point)
    work = (
        f"mkdir $LOG_DIR/a $LOG_DIR/b; ln -s {theirs}/evaluation-metrics.txt $LOG_DIR/a/evaluation-metrics.txt;"
        f" mkfifo $LOG_DIR/evaluation-metrics.txt; echo '{own.strip()}' > $LOG_DIR/b/evaluation-metrics.txt"
    )
    job = make_job(work, evaluation_metrics=EvaluationMetrics(type="emetrics_file")).launch()
    job.until_over()

    found = str([record for record in job.records() if record.get("kind") == "metrics"])
    assert "own" in found
    assert "leaked" not in found


def test_a_tree_is_not_opened_up_through_a_link(theirs: Path, tmp_path: Path) -> None:
    (theirs / "f").chmod(0o600)
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "training-1").symlink_to(theirs)
    (tmp_path / "tree").symlink_to(theirs)

    with pytest.raises(OSError, match=r"."):
        files.open_to_all([str(tmp_path / "tree")], [])
    with pytest.raises(OSError, match="out of its folder"):
        files.open_to_all([], [], {str(tmp_path / "bucket"): ["training-1"]})
    with pytest.raises(OSError, match="out of its folder"):
        files.make_folders([], {str(tmp_path / "bucket"): ["training-1/_checkpoints"]})

    assert (theirs / "f").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in theirs.iterdir()] == ["f"]


def _listed(runner: ContainerRunner, job: LaunchedAttempt, path: str) -> list[str]:
    try:
        return [entry.path for entry in runner.files(job.ref(), path)]
    except FabricError:
        return []


def _fetched(runner: ContainerRunner, job: LaunchedAttempt, path: str) -> bytes:
    """Return all that comes of a path, as one."""
    got: list[bytes] = []
    try:
        runner.fetch(job.ref(), path, lambda stream: got.append(stream.read()))
    except FabricError:
        return b""
    return b"".join(got)
