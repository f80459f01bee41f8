"""What belongs to no job: found, said why, and removed; and what is left alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.services.stored import submitted
from tests.services.upkeep.searches import begin_search
from workbench.controller.runtime.secrets import secrets_file, write_secrets
from workbench.errors import BackendUnreachable, UnknownName
from workbench.job import State
from workbench.paths import Home
from workbench.services.upkeep.orphans import (
    HERE,
    SUBMIT_SECONDS,
    Leftover,
    find_leftovers,
    remove_path,
    unused_code,
)
from workbench.store.db.database import Store
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import record_event

PLAIN = "name: {}\nframework: {{command: 'true'}}\n"
UNKNOWN = "training-zzzzzzzzz"
NOBODY = "ssh://me@127.0.0.1:1"


def ours(store: Store) -> list[Leftover]:
    """What is found of this home; this machine has learners of other tests' homes, too."""
    found = find_leftovers(store)
    assert found.problems == ()
    assert [each for each in found.leftovers if each.remove and each.backend != HERE] == []
    return [each for each in found.leftovers if each.backend == HERE]


def here(store: Store) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.why) for each in ours(store)]


def remove_all(found: Sequence[Leftover]) -> None:
    for each in found:
        assert each.remove is not None
        each.remove()


def folder(home: Home, job_id: str, *files: str) -> Path:
    made = home.jobs / job_id
    made.mkdir(parents=True, exist_ok=True)
    for name in files:
        (made / name).write_text("something")
    return made


def pack(home: Home, name: str, *, age_seconds: float = SUBMIT_SECONDS + 60) -> Path:
    """Make a snapshot of code that was used so long ago."""
    home.code.mkdir(parents=True, exist_ok=True)
    file = home.code / f"{name * 16}.tar.gz"
    file.write_bytes(b"z" * 100)
    touch(file, age_seconds)
    return file


def touch(file: Path, age_seconds: float = 0.0) -> None:
    os.utime(file)
    then = file.stat().st_mtime - age_seconds
    os.utime(file, (then, then))


def test_a_home_without_jobs_has_nothing_left_over(store: Store) -> None:
    assert here(store) == []


def test_what_belongs_to_jobs_is_not_left_over(store: Store) -> None:
    pack(store.home, "aaaa")
    for state in (State.QUEUED, State.COMPLETED):
        row = submitted(store, PLAIN.format("a"), state=state, code_hash="aaaa" * 16, secrets={"TOKEN": "x"})
        folder(store.home, row.id, "half")

    assert here(store) == []


def test_files_of_a_deleted_job_go(store: Store) -> None:
    row = submitted(store, PLAIN.format("a"), state=State.HALTED, secrets={"TOKEN": "x"})
    kept = submitted(store, PLAIN.format("b"), secrets={"TOKEN": "x"})
    made = folder(store.home, row.id, "half")
    mark_deleted(store, row.id)

    found = ours(store)
    remove_all(found)

    assert [(each.kind, each.name, each.why) for each in found] == [
        ("folder", row.id, "its job was deleted"),
        ("secrets", row.id, "its job no longer exists"),
    ]
    assert (found[0].size_bytes or 0) > len("something")
    assert not made.exists()
    assert not secrets_file(store.home, row.id).exists()
    assert secrets_file(store.home, kept.id).exists()
    assert here(store) == []


def test_a_folder_from_which_no_job_was_submitted_goes(store: Store) -> None:
    made = folder(store.home, UNKNOWN, "half")

    found = ours(store)
    remove_all(found)

    assert [(each.kind, each.name, each.why) for each in found] == [
        ("folder", UNKNOWN, "no job was ever submitted from it")
    ]
    assert not made.exists()


def test_a_folder_that_has_become_a_jobs_meanwhile_stays(store: Store) -> None:
    made = folder(store.home, UNKNOWN)
    found = ours(store)
    folder(store.home, UNKNOWN, "job.json")

    remove_all(found)

    assert (made / "job.json").exists()


def test_a_job_that_the_store_does_not_know_may_be_lost_and_all_of_it_stays(store: Store) -> None:
    folder(store.home, UNKNOWN, "job.json")
    write_secrets(store.home, UNKNOWN, {"TOKEN": "x"})
    pack(store.home, "aaaa")

    assert here(store) == []
    assert unused_code(store, set()) == []


def test_secrets_of_a_job_of_which_nothing_is_left_go(store: Store) -> None:
    write_secrets(store.home, UNKNOWN, {"TOKEN": "x"})

    assert here(store) == [("secrets", UNKNOWN, "its job no longer exists")]


def test_secrets_of_an_open_search_stay(store: Store) -> None:
    search = begin_search(store)
    write_secrets(store.home, search, {"TOKEN": "x"})

    assert here(store) == []


def test_secrets_that_a_killed_process_was_writing_go(store: Store) -> None:
    row = submitted(store, PLAIN.format("a"), secrets={"TOKEN": "x"})
    file = secrets_file(store.home, row.id)
    new = file.with_name(f".{row.id}.new")
    new.write_text('{"TOK')
    assert here(store) == [], "it is being written"
    touch(new, SUBMIT_SECONDS + 60)

    found = ours(store)
    remove_all(found)

    assert [(each.kind, each.name, each.why) for each in found] == [
        ("secrets", row.id, "whoever wrote it was killed")
    ]
    assert not new.exists()
    assert file.exists()


def test_what_vanishes_before_it_is_removed_is_gone(store: Store) -> None:
    made = folder(store.home, UNKNOWN, "half")
    write_secrets(store.home, UNKNOWN, {"TOKEN": "x"})
    file = pack(store.home, "aaaa")
    remove_path(made)
    found = ours(store)
    for path in (file, secrets_file(store.home, UNKNOWN)):
        path.unlink()

    remove_all(found)

    assert {each.kind for each in found} == {"code", "secrets"}


def test_a_link_out_of_a_folder_is_removed_and_not_what_it_leads_to(store: Store, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("precious")
    made = folder(store.home, UNKNOWN)
    (made / "data").symlink_to(tmp_path)
    (made / "gone").symlink_to(tmp_path / "nowhere")

    remove_all(ours(store))

    assert not made.exists()
    assert (tmp_path / "data").read_text() == "precious"


# Code


def test_code_that_no_job_was_made_of_goes(store: Store) -> None:
    used, unused = pack(store.home, "aaaa"), pack(store.home, "bbbb")
    submitted(store, PLAIN.format("a"), state=State.COMPLETED, code_hash="aaaa" * 16)

    found = ours(store)
    remove_all(found)

    assert [(each.kind, each.name, each.why, each.size_bytes) for each in found] == [
        ("code", "bbbb" * 3, "no job uses it", 100)
    ]
    assert (used.exists(), unused.exists()) == (True, False)


def test_code_of_a_job_that_is_about_to_be_submitted_stays(store: Store) -> None:
    just_packed, unused = pack(store.home, "aaaa", age_seconds=0), pack(store.home, "bbbb")
    ahead = pack(store.home, "cccc", age_seconds=-3600)  # by the clock of whoever made it

    found = ours(store)
    touch(unused)  # a job of the same code is being prepared by now
    remove_all(found)

    assert [each.name for each in found] == ["bbbb" * 3]
    assert just_packed.exists() and unused.exists() and ahead.exists()


def test_code_of_an_open_search_stays(store: Store) -> None:
    file = pack(store.home, "aaaa")
    search = begin_search(store, code_hash="aaaa" * 16)
    assert unused_code(store, set()) == []

    record_event(store, search, {"do": "over", "state": "COMPLETED"})

    assert unused_code(store, set()) == [file]


def test_no_code_goes_as_long_as_that_of_one_job_is_not_known(store: Store) -> None:
    pack(store.home, "aaaa")
    row = add_job(store, "a")
    store.home.job(row.id).job_file.unlink()

    assert unused_code(store, set()) == []
    assert unused_code(store, {row.id}) != []


# Backends


def test_a_backend_that_cannot_be_asked_is_a_problem_of_all_and_a_failure_of_its_own(
    store: Store, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text(f'[backends.box]\naddress = "{NOBODY}"\n')
    folder(store.home, UNKNOWN)

    found = find_leftovers(store)

    (problem,) = found.problems
    assert problem.startswith("box could not be asked: ")
    assert [each.name for each in found.leftovers if each.remove] == [UNKNOWN]
    for name in ("box", NOBODY):
        with pytest.raises(BackendUnreachable, match=r"127\.0\.0\.1"):
            find_leftovers(store, name)


def test_a_backend_that_there_is_not_is_named(store: Store) -> None:
    with pytest.raises(UnknownName, match="gpubox"):
        find_leftovers(store, "gpubox")


def test_of_one_backend_no_files_of_this_home_are_listed(store: Store) -> None:
    folder(store.home, UNKNOWN)

    assert [each for each in find_leftovers(store, "local").leftovers if each.remove] == []
