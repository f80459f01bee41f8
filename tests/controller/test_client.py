"""What clients write: whole jobs or nothing, secrets apart, requests with who asked and from where."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.quick.controller.values import LOCAL
from workbench.controller.client.requests import ask
from workbench.controller.client.submission import Submission, submit
from workbench.controller.runtime.secrets import forget_secrets, read_secrets, secrets_file
from workbench.errors import CannotWrite, InputMissing, UnknownName
from workbench.job import JobId, State
from workbench.paths import Home
from workbench.spec import Framework, JobSpec
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail, job, list_jobs
from workbench.store.queries.requests import pending_requests
from workbench.store.updates.jobs import who_am_i

SUBMISSION = Submission(
    spec=JobSpec(
        name="digits", framework=Framework(command="python train.py"), learners=2, labels={"team": "a"}
    ),
    manifest_text="name: digits\n",
    origins={"name": "manifest.yml:1"},
    target=LOCAL,
    code_hash="abc",
    recorded={"python": "/usr/bin/python3", "environment": {"PATH": "/usr/bin"}},
    secrets={"TOKEN": "hunter2"},
    diff="--- a\n+++ b\n",
    tags=("first",),
)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def test_a_submitted_job_is_there_with_all_that_a_rerun_needs(store: Store) -> None:
    row = submit(store, SUBMISSION, origin="cli")

    assert (row.state, row.attempt, row.learners, row.tags) == (State.QUEUED, 1, 2, ("first",))
    found = detail(store, row.id)
    assert (found.spec, found.manifest_text, found.code_hash) == (SUBMISSION.spec, "name: digits\n", "abc")
    assert (found.recorded, found.origins) == (SUBMISSION.recorded, SUBMISSION.origins)
    assert store.home.job(row.id).diff.read_text() == SUBMISSION.diff
    assert [(one.kind, one.job_id, one.who, one.origin) for one in pending_requests(store)] == [
        ("submit", row.id, who_am_i(), "cli")
    ]


def test_secrets_lie_in_a_file_of_their_own_and_nowhere_else(store: Store) -> None:
    row = submit(store, SUBMISSION, origin="cli")
    file = secrets_file(store.home, row.id)

    assert read_secrets(store.home, row.id) == {"TOKEN": "hunter2"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    others = [one for one in store.home.path.rglob("*") if one.is_file() and one != file]
    assert others and not [one for one in others if b"hunter2" in one.read_bytes()]
    assert "hunter2" not in repr(SUBMISSION)
    forget_secrets(store.home, row.id)
    assert read_secrets(store.home, row.id) == {}


def test_a_job_that_cannot_be_written_leaves_nothing(store: Store) -> None:
    chosen = JobId("training-bcdefghjk")
    store.home.job(chosen).diff.mkdir(parents=True)  # a folder where a file should be
    with pytest.raises(CannotWrite):
        submit(store, replace(SUBMISSION, job_id=chosen), origin="cli")

    assert list_jobs(store) == [] and pending_requests(store) == []
    assert list(store.home.secrets.iterdir()) == []
    assert not store.home.job(chosen).job_file.exists()


def test_a_job_id_that_was_chosen_beforehand_is_kept(store: Store) -> None:
    chosen = JobId("training-bcdefghjk")

    assert submit(store, replace(SUBMISSION, job_id=chosen), origin="cli").id == chosen


def test_asking_for_a_job_that_is_not_there_says_so(store: Store) -> None:
    with pytest.raises(UnknownName, match="there is no job training-nothing22"):
        ask(store, "training-nothing22", "halt", origin="cli")


def test_a_request_keeps_who_asked_and_what_for(store: Store) -> None:
    row = submit(store, SUBMISSION, origin="cli")
    request_id = ask(store, row.id, "halt", origin="tui", payload={"grace_seconds": 5})

    [_, asked] = pending_requests(store)
    assert (asked.id, asked.kind, asked.origin, asked.payload) == (
        request_id,
        "halt",
        "tui",
        {"grace_seconds": 5},
    )
    found = job(store, row.id)
    assert found is not None and found.state is State.QUEUED


def test_a_secrets_file_that_was_damaged_is_reported_in_a_sentence(store: Store) -> None:
    row = submit(store, SUBMISSION, origin="cli")
    secrets_file(store.home, row.id).write_text("[not an object")

    with pytest.raises(InputMissing, match="no longer holds the job's secrets"):
        read_secrets(store.home, row.id)
