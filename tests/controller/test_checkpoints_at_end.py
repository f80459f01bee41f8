"""What a job and a search keep of their checkpoints once they have completed, by a real loop on stored jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.controller.bench import Bench
from tests.quick.metrics.writing import Records
from tests.support.stored_jobs import make_detail
from tests.support.waiting import until
from workbench.controller.decide.requests import DONE, RETAIN
from workbench.controller.loop.retention import OF_JOB, OF_SEARCH, retain
from workbench.controller.runtime.initial_checkpoint import initial_checkpoint
from workbench.controller.runtime.job_checkpoints import is_gone
from workbench.errors import UsageError
from workbench.job import Reason, State
from workbench.learner.platform.beneath import Root
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.spec import Checkpoints, CheckpointsAtEnd, spec_to_json
from workbench.store.db.rows import JobRow
from workbench.store.queries.jobs import job, transitions
from workbench.store.queries.requests import add_request, request
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.experiments import insert_experiment, new_experiment_id, record_event
from workbench.store.updates.jobs import insert_job, new_attempt, step

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
    keep: Checkpoints = BEST,
    steps: bool = False,
    reported: Mapping[str, Sequence[float]] | None = None,
    at_steps: Sequence[int] = (1, 2, 3),
    **more: Any,
) -> JobRow:
    """Store a job that has ended, with checkpoints in its folder, of the steps 1, 2, ... if they have any."""
    store = bench.store
    detail = make_detail(**more)
    row = insert_job(
        store, replace(detail, spec=replace(detail.spec, checkpoints=keep)), who="me", origin="cli"
    )
    records = Records(folder / f"{row.id}.jsonl")
    files = bench.home.job(row.id)
    for number, (name, loss) in enumerate(losses.items(), 1):
        records.add(
            "checkpoint",
            path=f"{files.checkpoints}/{name}",
            metrics={} if loss is None else {"loss": loss},
            **({"step": number} if steps else {}),
        )
        (files.checkpoints / name).mkdir(parents=True, exist_ok=True)
    if reported:
        records.points(reported, steps=at_steps)
    ingest(store, row.id, 1, 1, records.file)
    for state in (*TO_THE_END, end):
        step(store, row.id, 1, state, Reason(""))
    found = job(store, row.id)
    assert found is not None
    return found


def searched(
    bench: Bench, *, goal: str = "minimize", keep: Checkpoints = BEST, origin: Mapping[str, Any] | None = None
) -> str:
    """Store a search; return its id."""
    search = {"method": "random", "max_trials": 3, "metric": "loss", "goal": goal, "params": {}}
    spec = replace(make_detail().spec, checkpoints=keep, search=search)
    experiment_id = new_experiment_id()
    insert_experiment(
        bench.store,
        experiment_id,
        {"spec": spec_to_json(spec), "recorded": {"from": origin} if origin else {}},
    )
    return experiment_id


def completed(bench: Bench, experiment_id: str, *trials: tuple[JobRow, str]) -> None:
    """Write down that a search has completed, with what became of each trial."""
    for number, (row, how) in enumerate(trials, 1):
        trial = {"trial": f"t{number}", "number": number, "job": row.id, "hparams": {}, "seed": 1}
        record_event(bench.store, experiment_id, {"do": "trials", "operations": [{"do": "create", **trial}]})
        record_event(bench.store, experiment_id, {"do": "end", "trial": f"t{number}", "how": how})
    record_event(bench.store, experiment_id, {"do": "close", "state": "COMPLETED", "reason": ""})


def notes(bench: Bench, row: JobRow) -> str:
    return "\n".join(each.text for each in transitions(bench.store, row.id))


def outcome(bench: Bench, row: JobRow, experiment_id: str = "") -> str:
    """Ask for what the job does not keep to be removed, before a controller is there; return what became of it."""
    payload = {OF_SEARCH: experiment_id} if experiment_id else {OF_JOB: row.id}
    number = add_request(bench.store, RETAIN, "", payload, "the job's end", "controller")
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
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1, "three": 0.3, "four": float("nan")})

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
    assert "all checkpoints are kept at the end: no checkpoint has the metric loss" in notes(bench, row)


def test_results_stay(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"one": 0.2, "two": 0.1})
    files = bench.home.job(row.id)
    files.results.mkdir()
    (files.checkpoints / "one").rename(files.results / "one")

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"two"}
    assert (files.results / "one").is_dir()


def test_what_a_link_points_at_stays_with_the_link(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.1, "s2": 0.2, "s3": 0.3, "s4": 0.4})
    folder = bench.home.job(row.id).checkpoints
    (folder / "latest").symlink_to("s3")
    (folder / "s1" / "shared").symlink_to("/mnt/checkpoints/s4/weights")  # as the container knows it
    (folder / "s2" / "own").symlink_to("weights")

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"s1", "latest", "s3", "s4"}


def test_a_link_that_was_reported_is_no_checkpoint_of_its_own(bench: Bench, tmp_path: Path) -> None:
    keep = replace(BEST, at_end=CheckpointsAtEnd(keep_last=1))
    row = saved(bench, tmp_path, {"s1": 0.1, "s2": 0.2, "s3": 0.3, "latest": None}, keep=keep)
    folder = bench.home.job(row.id).checkpoints
    (folder / "latest").rmdir()
    (folder / "latest").symlink_to("s3")
    (bench.home.job(row.id).results).mkdir()
    (bench.home.job(row.id).results / "best").symlink_to(folder / "s1")

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"s1", "s3", "latest"}


def test_no_folder_goes_with_one_that_stays_inside(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"run/s1": 0.1, "run/s2": 0.2, "run": 0.3, ".": 0.4})
    assert outcome(bench, row) == DONE
    assert (bench.home.job(row.id).checkpoints / "run" / "s1").is_dir()


def test_the_metric_reported_at_the_same_step_counts(bench: Bench, tmp_path: Path) -> None:
    losses = dict.fromkeys(("s1", "s2", "s3", "s4"))
    row = saved(bench, tmp_path, losses, steps=True, reported={"loss": [0.3, 0.1, 0.2]})

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"s2"}


@pytest.mark.parametrize(
    ("reported", "at_steps"),
    [
        ({"train/loss": [0.3, 0.1, 0.2], "validation/loss": [0.1, 0.3, 0.2]}, (1, 2, 3)),
        ({"loss": [0.3, 0.1, 0.2, 0.1], "epoch": [1, 1, 2, 2]}, (1, 2, 1, 2)),
    ],
)
def test_what_was_reported_does_not_count_where_it_may_be_of_another(
    bench: Bench, tmp_path: Path, reported: Mapping[str, Sequence[float]], at_steps: Sequence[int]
) -> None:
    losses = {"s1": None, "s2": None, "s3": 0.4, "s4": 0.5}
    row = saved(bench, tmp_path, losses, steps=True, reported=reported, at_steps=at_steps)

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"s1", "s2", "s3"}


def test_one_of_which_nothing_says_how_good_it_is_stays(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": None})

    assert outcome(bench, row) == DONE
    assert left(bench, row) == {"s2", "s3"}


def test_another_job_begins_with_the_newest_that_is_left(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3}, steps=True)
    assert outcome(bench, row) == DONE
    spec = make_detail().spec

    found = initial_checkpoint(bench.store, row, None, spec, row.target)

    assert found["local"] == str(bench.home.job(row.id).checkpoints / "s2")
    with pytest.raises(UsageError, match=r"step 3 of .* is gone") as refused:
        initial_checkpoint(bench.store, row, 3, spec, row.target)
    assert refused.value.hint == "it has those of 2"


def test_another_job_is_refused_where_none_is_left(bench: Bench, tmp_path: Path) -> None:
    keep = replace(BEST, at_end=CheckpointsAtEnd(keep_last=0))
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1}, keep=keep)
    assert outcome(bench, row) == DONE

    with pytest.raises(UsageError, match=r"every checkpoint of .* is gone"):
        initial_checkpoint(bench.store, row, None, make_detail().spec, row.target)


def test_what_was_removed_from_a_store_is_known_without_asking_it(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    assert outcome(bench, row) == DONE
    far = replace(row, target=replace(row.target, type="ssh"))

    names = {name: is_gone(bench.store, far, (name,), 1) for name in ("s1", "s2", "s3", "s4")}

    assert names == {"s1": True, "s2": False, "s3": True, "s4": False}
    assert not is_gone(bench.store, far, ("s1",), 1 << 60)  # saved again since


def test_of_a_search_the_best_stay_and_the_newest_of_what_may_go_on(bench: Bench, tmp_path: Path) -> None:
    keep = replace(BEST, smaller_is_better=False, at_end=CheckpointsAtEnd(0, 0, keep_best_of_search=1))
    first = saved(bench, tmp_path, {"s1": 0.9, "s2": 0.2}, keep=keep)
    second = saved(bench, tmp_path, {"s1": 0.3, "s2": 0.1}, keep=keep, end=State.FAILED)
    third = saved(bench, tmp_path, {"s1": 0.4}, keep=keep)
    mark_deleted(bench.store, third.id)
    experiment_id = searched(bench, goal="maximize", keep=keep)
    completed(bench, experiment_id, (first, "completed"), (second, "failed"), (third, "completed"))

    assert outcome(bench, first, experiment_id) == DONE
    assert [left(bench, row) for row in (first, second, third)] == [{"s1"}, {"s2"}, {"s1"}]


def test_all_stay_where_the_goal_of_the_search_says_something_else(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.9, "s2": 0.2})
    experiment_id = searched(bench, goal="maximize")
    completed(bench, experiment_id, (row, "completed"))

    assert "contradicts the search's goal" in outcome(bench, row, experiment_id)
    assert left(bench, row) == {"s1", "s2"}
    assert "contradicts the search's goal" in notes(bench, row)


def outcome_without_loop(bench: Bench, payload: Mapping[str, str]) -> str:
    events: list[Any] = []
    retain(bench.home, 1, payload, events.append)
    return str(events[0].outcome)


def test_what_a_search_that_is_open_begins_with_stays(bench: Bench, tmp_path: Path) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    searched(bench, origin={"job": row.id, "step": None, "name": "s3"})

    assert outcome_without_loop(bench, {OF_JOB: row.id}) == DONE
    assert left(bench, row) == {"s2", "s3"}


@pytest.mark.parametrize("of", ["job", "search"])
def test_all_stay_where_it_is_not_known_what_others_begin_with(bench: Bench, tmp_path: Path, of: str) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1})
    other = searched(bench) if of == "search" else saved(bench, tmp_path, {}).id
    home = bench.home
    file = home.experiment(other).experiment_file if of == "search" else home.job(other).job_file
    file.write_text("{")

    assert "cannot be read" in outcome_without_loop(bench, {OF_JOB: row.id})
    assert left(bench, row) == {"s1", "s2"}
    assert "cannot be read" in notes(bench, row)


def after_the_first_removal(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have something happen once the first checkpoint was removed."""
    remove = Root.remove
    happened: list[str] = []

    def remove_then_act(root: Root, path: str) -> None:
        remove(root, path)
        if not happened and not path.endswith(".metadata.json"):
            happened.append(path)
            act()

    monkeypatch.setattr(Root, "remove", remove_then_act)


def test_what_begins_while_others_are_removed_keeps_its_checkpoint(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    origin = {"from": {"job": row.id, "step": None, "name": "s3"}}
    after_the_first_removal(monkeypatch, lambda: saved(bench, tmp_path, {}, recorded=origin))

    assert outcome_without_loop(bench, {OF_JOB: row.id}) == DONE
    assert left(bench, row) == {"s2", "s3"}


def test_nothing_more_goes_once_the_job_goes_on(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    after_the_first_removal(monkeypatch, lambda: new_attempt(bench.store, row.id, Reason("")))

    assert outcome_without_loop(bench, {OF_JOB: row.id}) == "it goes on"
    assert left(bench, row) == {"s2", "s3"}


def test_nothing_more_goes_once_the_search_goes_on(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    experiment_id = searched(bench)
    completed(bench, experiment_id, (row, "completed"))
    go_on = {"do": "note", "reason": "", "state": "RUNNING"}
    after_the_first_removal(monkeypatch, lambda: record_event(bench.store, experiment_id, dict(go_on)))

    assert outcome_without_loop(bench, {OF_SEARCH: experiment_id}) == "it goes on"
    assert left(bench, row) == {"s2", "s3"}


def test_a_job_deleted_meanwhile_is_left_alone_and_the_others_go_on(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1, "s3": 0.3})
    second = saved(bench, tmp_path, {"s1": 0.2, "s2": 0.1})
    experiment_id = searched(bench)
    completed(bench, experiment_id, (first, "completed"), (second, "completed"))
    after_the_first_removal(monkeypatch, lambda: mark_deleted(bench.store, first.id))

    assert outcome_without_loop(bench, {OF_SEARCH: experiment_id}) == DONE
    assert [left(bench, row) for row in (first, second)] == [{"s2", "s3"}, {"s2"}]
