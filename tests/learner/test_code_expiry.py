"""What a host keeps of code goes when nobody has used it for a while, and never from a job that runs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.learner.test_code_store import HASH, archive, entry
from workbench.learner.host import code_expiry, code_store

DAY = 86400.0
OLD = 15 * DAY
KEEP = 14 * DAY


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one code that nobody has used for long, and one that shares a content with it."""
    folder = tmp_path / "code"
    code_store.keep(
        str(folder), HASH, [entry("a", b"one"), entry("b", b"two")], archive(tmp_path, b"one", b"two")
    )
    code_store.keep(str(folder), "new", [entry("b", b"two")], "")
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "new.list":
            age(path, OLD)
    return folder


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def learner(jobs: Path, name: str, phase: str, seconds: float) -> Path:
    folder = jobs / name / "attempt-1" / "learner-1"
    (folder / "model-code").mkdir(parents=True)
    (folder / "model-code" / "train.py").write_text("print()\n")
    (folder / "state.json").write_text(json.dumps({"phase": phase}))
    (folder / "agent.lock").write_text("")
    age(folder / "state.json", seconds)
    return folder


@pytest.fixture
def held(jobs: Path) -> Iterator[Path]:
    """A learner that ended long ago by its record, and whose agent still stores its results."""
    folder = learner(jobs, "held", "exited", OLD)
    with (folder / "agent.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def contents(store: Path) -> int:
    return len([path for path in (store / "files").rglob("*") if path.is_file()])


def test_what_nobody_used_for_long_goes_and_what_others_use_stays(
    store: Path, jobs: Path, tmp_path: Path
) -> None:
    found = code_expiry.expire(str(store), str(jobs), KEEP)

    assert found["count"] == 2  # a listing and a content
    assert found["size_bytes"] > 0
    assert contents(store) == 1
    assert not code_store.copy_code(str(store), HASH, [str(tmp_path / "job")])
    assert code_store.copy_code(str(store), "new", [str(tmp_path / "job")])


def test_a_dry_run_counts_and_removes_nothing(store: Path, jobs: Path, tmp_path: Path) -> None:
    learner(jobs, "old", "exited", OLD)
    found = code_expiry.expire(str(store), str(jobs), KEEP, dry_run=True)

    assert found["count"] == 3
    assert code_expiry.expire(str(store), str(jobs), KEEP, dry_run=True) == found
    assert code_store.copy_code(str(store), HASH, [str(tmp_path / "job")])


def test_use_keeps_code_from_expiring(store: Path, jobs: Path, tmp_path: Path) -> None:
    assert code_store.copy_code(str(store), HASH, [str(tmp_path / "job")])

    assert code_expiry.expire(str(store), str(jobs), KEEP)["count"] == 0


def test_a_content_that_is_about_to_be_used_stays(store: Path, jobs: Path) -> None:
    code_store.find_missing(str(store), [entry("a", b"one")[4]])

    code_expiry.expire(str(store), str(jobs), KEEP)

    assert contents(store) == 2


def test_only_code_of_jobs_that_ended_long_ago_goes_and_nothing_else_of_them(
    store: Path, jobs: Path, held: Path
) -> None:
    ended = learner(jobs, "ended", "exited", OLD)
    stay = [held, learner(jobs, "fresh", "exited", DAY), learner(jobs, "running", "running", OLD)]

    code_expiry.expire(str(store), str(jobs), KEEP)

    assert sorted(path.name for path in ended.iterdir()) == ["agent.lock", "state.json"]
    assert all((folder / "model-code" / "train.py").exists() for folder in stay)


def test_nothing_of_the_store_goes_while_a_job_is_started(store: Path, jobs: Path) -> None:
    with code_store.held(str(store), fcntl.LOCK_SH):
        assert code_expiry.expire(str(store), str(jobs), 0.0)["count"] == 0

    assert contents(store) == 2
    code_expiry.expire(str(store), str(jobs), 0.0)
    assert contents(store) == 0


def test_archives_of_older_versions_and_what_was_cut_off_go_too(store: Path, jobs: Path) -> None:
    (store / "parts").mkdir()
    (content,) = (store / "files").glob("*/" + entry("a", b"one")[4])
    names = ("abc.tar.gz", ".abc.tar.gz.0123.part", "parts/.x.part", "parts/x.tar.gz", ".gone-abc.list")
    paths = [*(store / name for name in names), content.with_name(f".gone-{content.name}")]
    for path in paths:
        path.write_text("x")
        age(path, OLD)
    fresh = store / "def.tar.gz"
    fresh.write_text("x")

    code_expiry.expire(str(store), str(jobs), KEEP)

    assert [path for path in (*paths, fresh) if path.exists()] == [fresh]


def test_code_expires_at_most_once_a_day(store: Path, jobs: Path) -> None:
    code_expiry.expire_sometimes(str(store), str(jobs), KEEP)
    assert contents(store) == 1
    for path in store.rglob("*"):
        if path.is_file() and path.name != "expired":
            age(path, OLD)

    code_expiry.expire_sometimes(str(store), str(jobs), KEEP)
    assert contents(store) == 1
    age(store / "expired", 2 * DAY)
    code_expiry.expire_sometimes(str(store), str(jobs), KEEP)
    assert contents(store) == 0
