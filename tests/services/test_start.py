"""What a command line asks for, started in the background by whoever has read it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from workbench.cli.framework.run_options import read_run_options
from workbench.errors import ManifestError, UsageError
from workbench.paths import Home
from workbench.services.cancel import Cancelled
from workbench.services.submit.start import StartReport, start_again, start_run
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail, list_jobs

MANIFEST = "name: digits\nframework: {command: 'true'}\nparams: {lr: 1}\n"
SEARCH = """\
name: tuned
framework: {command: 'true'}
search: {metric: loss, method: random, max_trials: 2, params: {lr: {choice: [1, 2]}}}
"""
QUIET = StartReport()


@pytest.fixture(autouse=True)
def folder(home: Home, clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a manifest; no controller is started."""
    folder = clean_environment / "work"
    folder.mkdir()
    (folder / "manifest.yml").write_text(MANIFEST)
    (folder / "search.yml").write_text(SEARCH)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("workbench.controller.client.connect.ensure_controller", lambda home: None)
    return folder


def start(*args: str, report: StartReport = QUIET) -> list[str]:
    return start_run(read_run_options(["--runner", "process", *args]), origin="tui", report=report)


def names(home: Home) -> list[str]:
    with Store.open(home) as store:
        return sorted(row.name for row in list_jobs(store))


def test_a_job_is_started_with_its_command_line_recorded(home: Home) -> None:
    narration: list[str] = []

    (job_id,) = start("manifest.yml", "--set", "params.lr=2", report=StartReport(narration.append))

    with Store.open(home) as store:
        job = detail(store, job_id)
    assert job.spec.params == {"lr": 2}
    assert job.recorded["argv"] == [
        "fabric", "run", "--runner", "process", "manifest.yml", "--set", "params.lr=2",
    ]  # fmt: skip
    assert any("digits: 1 learner on local, as process" in text for text in narration)


def test_a_sweep_is_one_job_for_each_value(home: Home) -> None:
    assert len(start("manifest.yml", "--set", "params.lr=1,2,3")) == 3
    assert names(home) == ["digits-1", "digits-2", "digits-3"]


def test_a_search_and_a_schedule_are_started_by_their_own_ids(home: Home) -> None:
    (search,) = start("search.yml")
    (schedule,) = start("manifest.yml", "--every", "@daily")

    assert search.startswith("experiment-")
    assert schedule.startswith("schedule-")


def test_what_only_somebody_who_waits_has_a_use_for_is_refused(home: Home) -> None:
    with pytest.raises(UsageError, match="--require: the job starts in the background"):
        start("manifest.yml", "--require", "loss<1")
    assert names(home) == []


def test_nothing_is_started_where_the_manifest_is_wrong(home: Home, folder: Path) -> None:
    (folder / "manifest.yml").write_text("name: digits\nnonsense: 1\n")

    with pytest.raises(ManifestError):
        start("manifest.yml")
    assert names(home) == []


def test_a_start_that_is_called_off_while_the_code_is_taken_starts_nothing(home: Home) -> None:
    cancel = threading.Event()
    steps: list[str] = []

    def progress(step: str, done: int, total: int) -> None:
        steps.append(step)
        cancel.set()

    with pytest.raises(Cancelled):
        start("manifest.yml", report=StartReport(progress=progress, cancel=cancel))
    assert steps
    assert names(home) == []


def test_a_job_is_run_again_as_it_was(home: Home) -> None:
    (first,) = start("manifest.yml", "--set", "params.lr=5")

    again = start_again(first, origin="tui", argv=("fabric", "rerun", first), report=QUIET)

    with Store.open(home) as store:
        job = detail(store, again)
    assert job.spec.params == {"lr": 5}
    assert job.recorded["rerun_of"] == first
    assert job.recorded["argv"] == ["fabric", "rerun", first]
