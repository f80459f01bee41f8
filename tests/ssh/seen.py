"""What is known here of jobs and of hosts, read from files: a command for each look would be a Python each time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.support.box import Box
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job


def printed(home: Home, job_id: str, attempt: int = 1) -> str:
    """Return what a job's first learner has printed, as far as it came home."""
    file = home.job(job_id).attempt(attempt).learner(1).output
    return file.read_text() if file.exists() else ""


def row(home: Home, job_id: str) -> JobRow:
    """Return what is known of a job."""
    with closing(Store.open(home)) as store:
        found = job(store, job_id)
    assert found is not None
    return found


def reason(home: Home, job_id: str) -> str:
    """Return why a job is as it is."""
    return row(home, job_id).reason.text


class Tries:
    """How often somebody was about to connect to a host: our ``~/.ssh/config`` is read each time, and counts."""

    def __init__(self, box: Box) -> None:
        self._file: Path = box.folder / "tries"
        with box.config.open("a") as config:
            config.write(f'Match exec "echo x >> {self._file}"\n')

    def __call__(self) -> int:
        return self._file.read_text().count("x") if self._file.exists() else 0
