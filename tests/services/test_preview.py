"""A preview: what a job would start, left at once when nobody waits for it, and nothing written."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stored_jobs import make_detail
from workbench.data.code.snapshot import SnapshotOptions
from workbench.errors import BackendUnreachable
from workbench.paths import Home
from workbench.services.cancel import Cancelled, call
from workbench.services.submit.batch import read_batch
from workbench.services.submit.options import RunOptions
from workbench.services.submit.prepare import prepare
from workbench.services.submit.preview import plan_of, preview_batch
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import OF_HOME

CHAIN = """\
name: one
framework: {command: "true"}
---
name: two
framework: {command: "true"}
data_stores:
  - {id: earlier, type: job, training_data: {container: one}}
"""
ADDRESSED = """\
name: reader
framework: {command: "true"}
data_stores:
  - id: lab
    type: s3_datastore
    training_data: {container: pictures}
    connection: {auth_url: "http://127.0.0.1:9", user_name: "${USER_NAME}", password: "${USER_NAME}"}
"""
NEVER_SECONDS = 3600.0
"""So long nobody answers: who comes back before does not wait for that."""
LIMITS = ("backends.ssh.connection.CONNECT_SECONDS", "backends.ssh.connection.BANNER_SECONDS")


@pytest.fixture
def code(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, which is the working folder; temporary folders lie in one that is empty."""
    folder, temporary = clean_environment / "code", clean_environment / "temporary"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return folder


@pytest.fixture
def silent_host() -> Iterator[socket.socket]:
    """A port that takes connections, where nobody ever says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def test_a_large_code_folder_is_left_within_a_second_and_leaves_nothing_behind(
    code: Path, home: Home
) -> None:
    for number in range(9):
        with (code / f"{number}.bin").open("wb") as stream:
            stream.truncate(100_000_000)
    cancel = threading.Event()
    steps: list[str] = []

    def progress(step: str, *_: int) -> None:
        steps.append(step)
        cancel.set()

    with pytest.raises(Cancelled):
        preview_batch(
            read_batch(RunOptions(command=("true",))),
            home,
            code_options=SnapshotOptions(progress=progress),
            cancel=cancel,
        )

    assert steps == ["read"]
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert not home.path.exists()


def test_a_host_that_does_not_answer_is_left_within_a_second(
    home: Home, code: Path, silent_host: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LIMITS:
        monkeypatch.setattr(name, NEVER_SECONDS)
    cancel = threading.Event()
    address = f"ssh://nobody@127.0.0.1:{silent_host.getsockname()[1]}"

    def wait_for_client() -> None:
        with closing(silent_host.accept()[0]) as connection:
            cancel.set()
            connection.recv(1 << 16)
            ended.wait(NEVER_SECONDS)

    ended = threading.Event()
    threading.Thread(target=wait_for_client, daemon=True).start()
    try:
        with pytest.raises(Cancelled):
            preview_batch(read_batch(RunOptions(command=("true",), backend=address)), home, cancel=cancel)
        assert cancel.is_set()
    finally:
        ended.set()


def test_a_store_that_does_not_answer_is_left_within_a_second(
    home: Home, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "m.yml").write_text(ADDRESSED)
    monkeypatch.setenv("USER_NAME", "me")
    cancel, ended = threading.Event(), threading.Event()

    def stall(*_: object, **__: object) -> socket.socket:
        cancel.set()
        ended.wait(NEVER_SECONDS)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", stall)
    try:
        with pytest.raises(Cancelled):
            prepare(RunOptions(manifest="m.yml"), home, launch=True, cancel=cancel)
        assert cancel.is_set()
    finally:
        ended.set()


def test_what_was_cancelled_before_does_not_begin(home: Home, code: Path) -> None:
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(Cancelled):
        call(lambda: pytest.fail("it began"), cancel)


def test_without_being_cancelled_result_and_failure_are_the_functions_own() -> None:
    def fail() -> None:
        raise BackendUnreachable("nobody answers")

    assert call(lambda: threading.current_thread().name, threading.Event()) == "cancellable"
    with pytest.raises(BackendUnreachable, match="nobody answers"):
        call(fail, threading.Event())


def test_a_preview_writes_nothing_not_even_the_folder_of_another_jobs_results(home: Home, code: Path) -> None:
    (code / "m.yml").write_text(CHAIN)

    one, two = preview_batch(read_batch(RunOptions(manifest="m.yml")), home, cancel=threading.Event())

    assert (one.submission.loaded.spec.name, two.submission.loaded.spec.name) == ("one", "two")
    assert list(home.path.rglob("*")) == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_a_preview_names_the_target_and_why_a_runner_was_passed_over(home: Home, code: Path) -> None:
    (chosen,) = preview_batch(read_batch(RunOptions(command=("true",), image="python:3.11")), home)
    (requested,) = preview_batch(
        read_batch(RunOptions(command=("true",), image="python:3.11", runner="process")), home
    )

    assert (chosen.target.backend, chosen.target.runner) == ("local", "process")
    (passed_over,) = chosen.passed_over
    assert passed_over.runner == "container"
    reason = passed_over.reason.rstrip(".")
    assert chosen.submission.notes == (
        f"the image python:3.11 is not used: learners are plain processes at 'local',"
        f" since {reason[0].lower()}{reason[1:]}",
    )
    assert requested.passed_over == ()


def test_the_plan_of_a_job_that_was_adopted_names_the_home_that_its_learners_carry(home: Home) -> None:
    theirs = "11111111-2222-3333-4444-555555555555"
    ours = make_detail("ours")
    target = replace(ours.row.target, options={OF_HOME: theirs})
    adopted = replace(ours, row=replace(ours.row, target=target))
    with closing(Store.open(home)):
        uuid = home_uuid(home)

    assert theirs in str(plan_of(adopted, home).learners[0].native)
    assert uuid in str(plan_of(ours, home).learners[0].native)
