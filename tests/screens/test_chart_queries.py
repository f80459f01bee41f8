"""What charts are drawn from: one x for all points of a chart, and every point once a job is quiet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from screens.charts import queries
from screens.charts.plot import ChartView
from screens.charts.queries import Charted, charts_page
from screens.workers.reader import StoreReader
from tests.quick.metrics.writing import Records
from workbench.metrics import ingest
from workbench.metrics.chart_axis import chart_points
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.db.rows import SeriesRow

JOB = "training-222222222"
CHARTED = (Charted(JOB, "job", 0),)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "records.jsonl")


def take_all(store: Store, records: Records, *, attempt: int = 1, learner: int = 1) -> None:
    while ingest(store, JOB, attempt, learner, records.file):
        pass


def drawn(store: Store, name: str, **view: Any) -> tuple[str, list[tuple[float, float]]]:
    """Return what x is, and the points of a chart's one curve."""
    data = charts_page(CHARTED, None, 80, ChartView(**view), ("value",))(store).charts[name]
    (curve,) = data.curves
    return data.axis, list(zip(curve.x, curve.value, strict=True))


def test_a_chart_is_over_steps_where_every_point_has_one(store: Store, records: Records) -> None:
    records.points({"loss": [4.0, 3.0, 2.0]}, steps=[0.5, 1, 1.5])
    take_all(store, records)

    assert drawn(store, "loss") == ("step", [(0.5, 4.0), (1.0, 3.0), (1.5, 2.0)])


def test_without_a_step_for_every_point_it_is_over_epochs_or_else_their_order(
    store: Store, records: Records
) -> None:
    records.points({"loss": [4.0, 3.0]}, steps=[100, 200], etimes={"epoch": [0.5, 1.0]})
    records.points({"other": [1.0]}, etimes={"epoch": [9.0]})
    records.points({"loss": [2.0]}, etimes={"epoch": [1.5]})
    records.points({"other": [2.0]})
    take_all(store, records)

    assert drawn(store, "loss") == ("epoch", [(0.5, 4.0), (1.0, 3.0), (1.5, 2.0)])
    assert drawn(store, "other") == ("number", [(1.0, 1.0), (2.0, 2.0)])
    assert drawn(store, "other", axis="epoch")[0] == "number"


def test_steps_that_begin_anew_are_continued(store: Store, records: Records) -> None:
    steps = [step for _ in range(2) for step in range(300)]
    records.points({"loss": [float(step) for step in steps]}, steps=steps)
    take_all(store, records)

    axis, found = drawn(store, "loss")

    assert axis == "step"
    assert all(value == x % 300 for x, value in found)
    assert max(x for x, _ in found) > 590


def test_superseded_points_are_in_no_chart(store: Store, records: Records, tmp_path: Path) -> None:
    records.points({"loss": [float(n) for n in range(1000)]}, steps=list(range(1000)))
    again = Records(tmp_path / "again.jsonl")
    again.points({"loss": [float(-n) for n in range(700, 900)]}, steps=list(range(700, 900)))
    take_all(store, records)
    take_all(store, again, attempt=2)

    page = charts_page(CHARTED, None, 80, ChartView(), ("value",))(store)
    (curve,) = page.charts["loss"].curves

    assert list(curve.x) == sorted(curve.x)
    assert [curve.x[-1], page.charts["loss"].points] == [899.0, 900]
    assert all(value == (x if x < 700 else -x) for x, value in zip(curve.x, curve.value, strict=True))
    assert (page.charts["loss"].least, page.charts["loss"].most) == (-899.0, 699.0)


def test_a_curve_that_misses_a_few_points_is_read_once_more_when_a_job_is_quiet(
    store: Store, records: Records, monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    records.points({"loss": [float(n) for n in range(1000)]}, steps=list(range(1000)))
    take_all(store, records)
    query = charts_page(CHARTED, None, 8, ChartView(), ("value",))
    query(store)
    assert query.again_at is None
    records.points({"loss": [5000.0]}, steps=[1000])
    take_all(store, records)

    behind = query(store).charts["loss"]

    assert (behind.most, behind.curves[0].x[-1]) == (5000.0, 999.0)
    assert query.again_at is not None
    monkeypatch.setattr(queries, "STALE_SECONDS", 0.0)
    whole = query(store).charts["loss"]
    assert (whole.most, whole.curves[0].x[-1]) == (5000.0, 1000.0)
    assert query.again_at is None


def test_new_points_go_behind_a_curve_as_if_all_of_it_were_read_anew(
    store: Store, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(store: Store, row: SeriesRow, axis: str, **options: Any) -> Any:
        read.append(row.name)
        return chart_points(store, row, axis, **options)

    monkeypatch.setattr(queries, "chart_points", noted)
    for axis in ("step", "time"):
        records.points({axis: [float(n) for n in range(20)]}, steps=list(range(20)), times=list(range(20)))
        take_all(store, records)
        query = charts_page(CHARTED, (axis,), 80, ChartView(axis=axis), ("value",))
        query(store)
        read.clear()
        for number in range(20, 25):
            value = None if number == 22 else float(number)
            records.points({axis: [value]}, steps=[number], times=[number])
            take_all(store, records)
            (curve,) = query(store).charts[axis].curves
        assert read == []

        (anew,) = (
            charts_page(CHARTED, (axis,), 80, ChartView(axis=axis), ("value",))(store).charts[axis].curves
        )
        assert repr(curve) == repr(anew)
        assert len(curve.x) == 25
        assert len(curve.gaps) == 1


@pytest.mark.parametrize(
    ("steps", "attempt"),
    [([5, 6], 1), ([30, 29], 1), ([0, 1], 1), ([20, 21], 2), (list(range(20, 600)), 1)],
    ids=["back", "back among themselves", "anew", "another attempt", "too many"],
)
def test_a_curve_is_read_anew_where_new_points_do_not_go_on_from_it(
    store: Store, records: Records, tmp_path: Path, steps: list[int], attempt: int
) -> None:
    records.points({"loss": [float(n) for n in range(20)]}, steps=list(range(20)))
    take_all(store, records)
    query = charts_page(CHARTED, None, 80, ChartView(), ("value",))
    query(store)
    behind = records if attempt == 1 else Records(tmp_path / "behind.jsonl")
    behind.points({"loss": [float(step) for step in steps]}, steps=steps)
    take_all(store, behind, attempt=attempt)

    known, anew = query(store), charts_page(CHARTED, None, 80, ChartView(), ("value",))(store)

    assert known.charts["loss"] == anew.charts["loss"]
    assert len(known.charts["loss"].curves[0].x) <= 200


def test_the_reader_runs_a_query_again_that_asks_for_it(home: Home) -> None:
    class Twice:
        def __init__(self) -> None:
            self.again_at: float | None = 0.0
            self.runs = 0

        def __call__(self, store: Store) -> int:
            self.runs += 1
            if self.runs == 2:
                self.again_at = None
            return self.runs

    class Nobody:
        def post_message(self, message: Any) -> bool:
            if message.value == 2:
                reader.watch(self, "end", lambda store: reader.close())
            return True

    reader = StoreReader(home, Nobody())
    query = Twice()
    reader.watch(Nobody(), "twice", query, every_seconds=0.0)
    reader.run()

    assert query.runs == 2
