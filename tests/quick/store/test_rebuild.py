from __future__ import annotations

import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.disks import fill, small_disk
from tests.support.stored_jobs import add_job
from workbench.errors import CannotWrite, ConfigError
from workbench.job import LEGAL_STEPS, Intent, JobId, LearnerPhase, Reason, State
from workbench.metrics import checkpoints, ingest, series
from workbench.paths import Home
from workbench.store.db.database import Store, home_uuid
from workbench.store.db.rows import JobRow, LearnerRow
from workbench.store.queries.jobs import attempts, job, list_jobs, open_jobs
from workbench.store.queries.learners import save_learner
from workbench.store.queries.requests import add_request, pending_requests, settle_request
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import (
    NextAttempt,
    add_note,
    annotate,
    correct_end,
    new_attempt,
    set_intent,
    set_reason,
    step,
)
from workbench.store.updates.rebuild import rebuild, reconcile

TABLES = ("jobs", "attempts", "learners", "transitions", "requests")


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All that the job folders must be able to give back."""
    found = {}
    for table in TABLES:
        columns = [row[1] for row in store.rows(f"PRAGMA table_info({table})")]
        kept = ", ".join(name for name in columns if name not in ("seen_us", "revision"))
        found[table] = store.rows(f"SELECT {kept} FROM {table} ORDER BY 1, 2")
    found["counters"] = store.rows("SELECT * FROM counters WHERE name LIKE 'next_%'")
    return found


class Life:
    """Does one random thing after the other to a few jobs."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.random = random.Random(seed)

    def go(self, steps: int) -> None:
        things = (
            self.submit, self.step, self.step, self.step, self.reason, self.intent, self.learner, self.ask,
            self.settle, self.annotate, self.delete,
        )  # fmt: skip
        for _ in range(steps):
            self.random.choice(things)()

    def some_job(self) -> str:
        rows = list_jobs(self.store)
        return str(self.random.choice(rows).id) if rows else str(add_job(self.store, "first").id)

    def words(self) -> Reason:
        return Reason(
            self.random.choice(["", "waits", "übel\n\u2028x"]), self.random.choice(["", "C201"]), "hint"
        )

    def submit(self) -> None:
        add_job(self.store, self.random.choice("abc"), labels={"n": "1"}, learners=self.random.randint(1, 3))

    def step(self) -> None:
        row = job(self.store, self.some_job())
        assert row is not None
        if not LEGAL_STEPS[row.state]:
            if self.random.random() < 0.3:
                self.mend(row)
            else:
                new_attempt(self.store, row.id, self.words(), restarts=self.random.randint(0, 3))
            return
        state = self.random.choice(sorted(LEGAL_STEPS[row.state]))
        code = self.random.choice([None, 0, 3])
        at_host = NextAttempt(self.words(), 1, 2, 99, is_at_host=True)
        follows = [None, NextAttempt(self.words(), 1, 2, 99), at_host]
        then = self.random.choice(follows) if state is State.FAILED else None
        step(
            self.store,
            row.id,
            row.attempt,
            state,
            self.words(),
            exit_code=code,
            node="box",
            ended_us=5,
            then=then,
        )

    def mend(self, row: JobRow) -> None:
        state = self.random.choice([State.COMPLETED, State.HALTED])
        correct_end(
            self.store, row.id, row.attempt, state, self.words(), exit_code=0, exit_by="job", text="mended"
        )

    def reason(self) -> None:
        set_reason(self.store, self.some_job(), self.words(), self.random.choice([None, 12]))

    def intent(self) -> None:
        set_intent(self.store, self.some_job(), self.random.choice(list(Intent)), who="me")

    def learner(self) -> None:
        row = job(self.store, self.some_job())
        assert row is not None
        phase = self.random.choice(list(LearnerPhase))
        why = self.random.choice([None, self.words()])
        save_learner(
            self.store,
            LearnerRow(
                JobId(row.id), row.attempt, 1, phase, 3, None, why, 1, None, True, "halt", "box", ("a",), 0
            ),
        )

    def ask(self) -> None:
        add_request(self.store, "halt", self.some_job(), {"grace": 1.5}, "me@box", "cli")

    def settle(self) -> None:
        if pending := pending_requests(self.store):
            settle_request(self.store, self.random.choice(pending).id, "done")

    def annotate(self) -> None:
        annotate(self.store, self.some_job(), tags=["x", "y"], note=self.random.choice(["", "note"]))
        add_note(self.store, self.some_job(), "looked at")

    def delete(self) -> None:
        if self.random.random() < 0.3:
            job_id = self.some_job()
            mark_deleted(self.store, job_id)
            if self.random.random() < 0.5:
                shutil.rmtree(self.store.home.job(job_id).path)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 40))
def test_a_lost_database_comes_back_row_by_row(seed: int, steps: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        home = Home(Path(folder) / "home")
        with Store.open(home) as store:
            Life(store, seed).go(steps)
            wanted = contents(store)
        for suffix in ("", "-wal", "-shm"):
            home.database.with_name(f"fabric.db{suffix}").unlink(missing_ok=True)

        report = rebuild(home, ingest=ingest)

        assert report.problems == []
        with Store.open(home) as store:
            assert contents(store) == wanted


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 15), after=st.integers(1, 15))
def test_what_a_power_failure_undid_comes_back_row_by_row(seed: int, before: int, after: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fab-") as folder:
        home = Home(Path(folder) / "home")
        earlier = Path(folder) / "earlier.db"
        with Store.open(home) as store:
            life = Life(store, seed)
            life.go(before)
            store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(home.database, earlier)
            life.go(after)
            wanted = contents(store)
        earlier.rename(home.database)

        with Store.open(home) as store:
            assert reconcile(store).problems == []
            assert contents(store) == wanted


def journal(home: Home, job_id: str, attempt: int, learner: int, *records: dict[str, Any]) -> None:
    folder = home.job(job_id).attempt(attempt).learner(learner)
    folder.path.mkdir(parents=True)
    lines = [{"format": 1}, *({"seq": seq, "time": seq, **record} for seq, record in enumerate(records, 1))]
    folder.records.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.launch.write_text(json.dumps({"format": 1, "home": home_uuid(home)}))


def test_metrics_are_read_again_from_the_journals(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store, learners=2)
        points = {"kind": "metrics", "steps": [1, 2], "times": [5, 6], "values": {"loss": [0.5, None]}}
        journal(home, row.id, 1, 1, points, {"kind": "checkpoint", "path": "model.pt", "step": 2})
        journal(home, row.id, 1, 2, points)
        for learner in (1, 2):
            ingest(store, row.id, 1, learner, home.job(row.id).attempt(1).learner(learner).records)
        wanted = [(s.learner, s.name, s.points, s.last_step) for s in series(store, row.id)]
        saved = checkpoints(store, row.id)
        assert len(wanted) == 2
    home.database.write_bytes(b"lost" * 1000)

    report = rebuild(home, ingest=ingest)

    assert report.jobs == 1
    assert Path(report.kept).read_bytes() == b"lost" * 1000
    with Store.open(home) as store:
        assert [(s.learner, s.name, s.points, s.last_step) for s in series(store, row.id)] == wanted
        assert checkpoints(store, row.id) == saved
        assert not ingest(store, row.id, 1, 1, home.job(row.id).attempt(1).learner(1).records)


def test_an_old_log_is_not_applied_to_the_new_database(home: Home) -> None:
    store = Store.open(home)
    add_job(store, "kept")
    with Store.open(home) as other:  # a log that stays, since a reader is there
        other.execute("INSERT INTO ui_state VALUES ('key', '1')")
        shutil.copy(home.path / "fabric.db-wal", home.path / "log")
    store.close()
    shutil.copy(home.path / "log", home.path / "fabric.db-wal")

    rebuild(home, ingest=ingest)

    with Store.open(home) as again:
        assert [row.name for row in list_jobs(again)] == ["kept"]
        assert again.rows("SELECT * FROM ui_state") == []


def test_who_has_the_old_database_open_is_asked_to_restart(home: Home) -> None:
    with Store.open(home) as screen:
        rebuild(home, ingest=ingest)

        with pytest.raises(ConfigError, match="was rebuilt"):
            screen.data_version()


def test_a_lost_identity_is_taken_from_a_learner(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store)
    wanted = home_uuid(home)
    journal(home, row.id, 1, 1)
    home.identity.unlink()
    home.database.unlink()

    rebuild(home, ingest=ingest)

    assert home_uuid(home) == wanted


def test_a_rebuild_that_finds_no_room_leaves_the_old_database(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="6m") as disk:
        home = Home(disk / "home")
        with Store.open(home) as store:
            row = add_job(store, "kept")
            for number in range(300):
                add_note(store, row.id, "x" * 2000 + str(number))
        fill(disk, leave=100_000)
        before = home.database.read_bytes()

        with pytest.raises(CannotWrite):
            rebuild(home, ingest=ingest)

        assert home.database.read_bytes() == before
        assert not list(home.path.glob("*rebuilding*"))
        with Store.open(home) as store:
            assert [row.name for row in list_jobs(store)] == ["kept"]


def test_nothing_of_a_rebuilt_home_looks_finished_or_deleted_that_was_not(home: Home) -> None:
    with Store.open(home) as store:
        row = add_job(store)
        step(store, row.id, 1, State.PENDING, Reason(""))
        step(store, row.id, 1, State.PROCESSING, Reason(""))
    home.database.unlink()

    rebuild(home, ingest=ingest)

    with Store.open(home) as store:
        assert [(found.id, found.state) for found in open_jobs(store)] == [(row.id, State.PROCESSING)]
        assert [found.state for found in attempts(store, row.id)] == [State.PROCESSING]
