"""A job's metric points: those there are, then those that come, each once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.jobs import add_job
from tests.quick.metrics.writing import Records
from tests.services.stored import copied
from workbench.errors import HomeNotBound
from workbench.job import Reason, State
from workbench.metrics import ingest
from workbench.paths import Home
from workbench.services.follow import metric_points
from workbench.services.follow.metric_points import MetricPoint, follow_points
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.store.updates.deletion import mark_deleted
from workbench.store.updates.jobs import new_attempt, step

Value = tuple[str, int, int, float | None, float | None]


class Measured:
    """A job whose learners report what the test wants."""

    def __init__(self, store: Store, folder: Path, state: State, learners: int = 1) -> None:
        self.store = store
        self.row: JobRow = add_job(store, "digits", state, learners=learners)
        self._folder = folder
        self._records: dict[tuple[int, int], Records] = {}

    def report(
        self,
        steps: list[float | None],
        *,
        learner: int = 1,
        attempt: int = 1,
        at: int = 0,
        values: Mapping[str, list[float]],
    ) -> None:
        """Report values of metrics, at times that follow one another."""
        if (attempt, learner) not in self._records:
            file = self._folder / f"records-{attempt}-{learner}.jsonl"
            self._records[attempt, learner] = Records(file)
        records = self._records[attempt, learner]
        records.points(values, steps=steps, times=[at + number for number in range(len(steps))])
        while ingest(self.store, self.row.id, attempt, learner, records.file):
            pass

    def ends(self, state: State = State.FAILED, attempt: int = 1) -> None:
        step(self.store, self.row.id, attempt, state, Reason("x"))


@pytest.fixture
def over(store: Store, tmp_path: Path, woken: list[Home]) -> Measured:
    return Measured(store, tmp_path, State.COMPLETED, learners=2)


@pytest.fixture
def running(store: Store, tmp_path: Path, woken: list[Home]) -> Measured:
    return Measured(store, tmp_path, State.PROCESSING)


def short(points: Iterator[MetricPoint]) -> list[Value]:
    return [
        (each.name, each.learner, each.point.attempt, each.point.step, each.point.value) for each in points
    ]


def test_a_job_without_metrics_has_no_points(over: Measured) -> None:
    assert list(follow_points(over.store, over.row)) == []


def test_of_a_job_that_is_over_all_points_come_each_series_in_its_order(over: Measured) -> None:
    over.report([1, 2, 3], values={"loss": [0.5, 0.25, 0.125], "acc": [0.1, 0.2, 0.3]})
    over.report([1], learner=2, values={"loss": [9.0]})

    found = short(follow_points(over.store, over.row))

    assert sorted(found) == [
        *[("acc", 1, 1, step, value) for step, value in ((1, 0.1), (2, 0.2), (3, 0.3))],
        *[("loss", 1, 1, step, value) for step, value in ((1, 0.5), (2, 0.25), (3, 0.125))],
        ("loss", 2, 1, 1, 9.0),
    ]
    assert [each for each in found if each[:2] == ("loss", 1)] == sorted(
        each for each in found if each[:2] == ("loss", 1)
    )


def test_a_learner_or_an_attempt_may_be_meant_alone(over: Measured) -> None:
    over.report([1], values={"loss": [0.5]})
    over.report([1], learner=2, values={"loss": [9.0]})

    assert [each[1] for each in short(follow_points(over.store, over.row, learner=2))] == [2]
    assert len(short(follow_points(over.store, over.row, attempt=1))) == 2
    assert short(follow_points(over.store, over.row, attempt=2)) == []
    assert short(follow_points(over.store, over.row, learner=9)) == []


def test_values_at_the_end_of_floats_and_names_of_any_script_are_kept(over: Measured) -> None:
    values = [math.inf, -math.inf, 1.7976931348623157e308, 5e-324, -0.0]
    over.report([None] * 5, values={"größe/\x1b[2J": values})

    found = short(follow_points(over.store, over.row))

    assert [(step, value) for _, _, _, step, value in found] == [(None, value) for value in values]
    (name,) = {name for name, *_ in found}
    assert name.startswith("größe/\\x1b[2J-")  # what controls a terminal is written out


def test_more_points_than_are_read_at_once_come_once(over: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_points, "PAGE", 2)
    over.report([1, 2, 3, 4, 5], values={"loss": [5, 4, 3, 2, 1]})

    assert [each[4] for each in short(follow_points(over.store, over.row))] == [5, 4, 3, 2, 1]


def test_points_that_come_while_they_are_followed_come_once(running: Measured) -> None:
    running.report([1], values={"loss": [0.5]})
    found: list[Value] = []

    for point in follow_points(running.store, running.row):
        found += short(iter([point]))
        if len(found) == 1:
            running.report([2, 3], at=10, values={"loss": [0.25, 0.125]})
        elif len(found) == 3:
            running.report([1], at=20, values={"acc": [0.9]})
            running.ends()

    assert [(name, value) for name, _, _, _, value in found] == [
        ("loss", 0.5), ("loss", 0.25), ("loss", 0.125), ("acc", 0.9),
    ]  # fmt: skip


def test_following_ends_when_the_job_is_deleted(running: Measured) -> None:
    running.report([1], values={"loss": [0.5]})
    found = []

    for point in follow_points(running.store, running.row):
        found.append(point)
        running.ends(State.HALTED)
        mark_deleted(running.store, running.row.id)

    assert len(found) == 1


def test_what_a_later_attempt_went_over_again_is_left_out_unless_it_is_asked_for(running: Measured) -> None:
    running.report([1, 2, 3], values={"loss": [3, 2, 1]})
    running.ends()
    new_attempt(running.store, running.row.id, Reason("resumed"))
    running.report([2, 3], attempt=2, at=100, values={"loss": [20, 10]})
    for state in (State.PENDING, State.PROCESSING, State.STORING, State.COMPLETED):
        running.ends(state, attempt=2)

    def values(**more: object) -> list[tuple[float | None, bool]]:
        found = follow_points(running.store, running.row, **more)  # type: ignore[arg-type]
        return [(each.point.value, each.is_superseded) for each in found]

    assert values() == [(3, False), (20, False), (10, False)]
    assert values(superseded=True) == [(3, False), (2, True), (1, True), (20, False), (10, False)]
    assert values(attempt=1) == [(3, False), (2, True), (1, True)]
    assert values(attempt=2) == [(20, False), (10, False)]


def test_in_a_copy_of_a_home_nothing_is_followed(over: Measured) -> None:
    copy = copied(over.store.home, over.store.home.path.with_name("copy"))

    with Store.open(copy) as store, pytest.raises(HomeNotBound, match="is a copy of the home"):
        next(follow_points(store, over.row))
