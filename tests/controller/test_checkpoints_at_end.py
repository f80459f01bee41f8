"""What a job and a search keep of their checkpoints once they have completed, by a real loop on stored jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.controller.bench import Bench
from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import make_detail
from tests.support.waiting import until
from workbench.controller.decide.requests import DONE, RETAIN
from workbench.controller.loop.retention import OF_JOB
from workbench.job import Reason, State
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.spec import Checkpoints, CheckpointsAtEnd
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job
from workbench.store.queries.requests import add_request, request
from workbench.store.updates.jobs import insert_job, step

BEST = Checkpoints(keep_last=1, keep_best=1, metric="loss", at_end=CheckpointsAtEnd(keep_last=0, keep_best=1))
TO_THE_END = (State.PENDING, State.PROCESSING, State.STORING)


@pytest.fixture
def bench(home: Home) -> Iterator[Bench]:
    made = Bench(home)
    yield made
    made.stop()
    made.store.close()
    assert "defect" not in made.log()


def saved(
    bench: Bench,
    folder: Path,
    losses: Mapping[str, float | None],
    *,
    end: State = State.COMPLETED,
    **more: Any,
) -> JobRow:
    """Store a job that has ended, with checkpoints in its folder."""
    store = bench.store
    detail = make_detail(**more)
    row = insert_job(
        store, replace(detail, spec=replace(detail.spec, checkpoints=BEST)), who="me", origin="cli"
    )
    records = Records(folder / f"{row.id}.jsonl")
    files = bench.home.job(row.id)
    for name, loss in losses.items():
        records.add(
            "checkpoint", path=f"{files.checkpoints}/{name}", metrics={} if loss is None else {"loss": loss}
        )
        (files.checkpoints / name).mkdir(parents=True)
    ingest(store, row.id, 1, 1, records.file)
    for state in (*TO_THE_END, end):
        step(store, row.id, 1, state, Reason(""))
    found = job(store, row.id)
    assert found is not None
    return found


def outcome(bench: Bench, row: JobRow) -> str:
    """Ask for what the job does not keep to be removed, before a controller is there; return what became of it."""
    number = add_request(bench.store, RETAIN, "", {OF_JOB: row.id}, "the job's end", "controller")
    bench.start()

    def answered() -> str:
        found = request(bench.store, number)
        assert found is not None
        return found.outcome

    until(lambda: bool(answered()), "an outcome")
    return answered()


def left(bench: Bench, row: JobRow) -> set[str]:
    return {path.name for path in bench.home.job(row.id).checkpoints.iterdir()}


def test_what_was_asked_for_when_the_controller_was_killed_is_removed_by_the_next_one(
    bench: Bench, tmp_path: Path
) -> None:
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1, "three": 0.3, "four": None})

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"two"}


def test_what_another_job_began_with_stays(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1, "three": 0.3})
    saved(bench, tmp_path, {}, recorded={"seed": 7, "from": {"job": row.id, "step": None, "name": "three"}})

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"two", "three"}


@pytest.mark.parametrize("end", [State.FAILED, State.HALTED])
def test_a_job_that_has_not_completed_keeps_what_it_has(bench: Bench, tmp_path: Path, end: State) -> None:
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1}, end=end)

    assert outcome(bench, row) == "it goes on"
    assert left(bench, row) == {"one", "two"}


def test_without_a_value_of_the_metric_none_is_removed(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"one": None, "two": None})

    assert outcome(bench, row) == "no checkpoint has the metric loss"
    assert left(bench, row) == {"one", "two"}


def test_results_stay(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1})
    files = bench.home.job(row.id)
    files.results.mkdir()
    (files.checkpoints / "one").rename(files.results / "one")

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"two"}
    assert (files.results / "one").is_dir()
