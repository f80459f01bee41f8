"""The one count of steps of a series: where code counts them from zero in each epoch, they go on from epoch to epoch.

Metrics that are reported together share one count. An attempt that was resumed goes on where its first epoch lies in
the attempts before it; where no epochs were reported, behind the last checkpoint before it. Whoever reads steps
(tables, charts, CSV, JSON, Python, SQL) gets these; the journal and the database have them as they were reported.
"""

from __future__ import annotations

import math
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from workbench.store.queries.reports import ReportRuns, report_runs
from workbench.values import dataclass

POINTS_MAX: Final = 2_000_000
"""A learner with more points keeps its steps as they were reported: counting them takes a second a million."""

_EPOCH: Final = "epoch"
_EXACT: Final = 20_000
"""So many points are looked at; of more the roll-ups tell first where steps may go back."""

_BITS: Final = 4
"""A bucket of level L of the roll-ups holds 16^L points."""

_BUCKETS_MAX: Final = 4096
_FEW: Final = 16
_LARGEST: Final = (1 << 63) - 1
HEAD: Final = 64
"""So many of its first reports tell how an attempt began."""

Report = tuple[int, int]
"""An attempt, and the number of a report in it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive points of a series whose steps are counted on by the same amount."""

    first: int
    """The number of its first point."""
    attempt: int
    offset: float
    low: float
    """Its least step, counted on."""
    high: float


@dataclass(frozen=True, slots=True)
class StepCourse:
    """How the steps of a series are counted on."""

    stretches: tuple[Stretch, ...] = ()
    """None where steps are as they were reported."""
    firsts: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stretches)

    def step(self, seq: int, step: float | None) -> float | None:
        """Return the step of a point that was reported with this one."""
        found = self._stretch(seq)
        return step if step is None or found is None else counted_on(step, found.offset)

    def spans(self) -> Iterator[tuple[Stretch, int]]:
        """Yield each stretch with the number of its last point."""
        ends = [each - 1 for each in self.firsts[1:]] + [_LARGEST]
        yield from zip(self.stretches, ends, strict=False)

    def _stretch(self, seq: int) -> Stretch | None:
        at = bisect_right(self.firsts, seq) - 1
        return self.stretches[at] if at >= 0 else None


AS_REPORTED: Final = StepCourse()


def counted_on(step: float, offset: float) -> float:
    """Return a step with what is added to it; a whole number that no 64 bits hold is a float, as everywhere."""
    found = step + offset if offset else step
    return float(found) if isinstance(found, int) and abs(found) > _LARGEST else found


def counted_on_sql(offset: float) -> str:
    """Return the SQL of a step of ``points`` that is counted on; floats where no 64 bits hold the sum, as elsewhere."""
    return f"step + {offset!r}" if abs(offset) < 1 << 62 else f"step + {float(offset)!r}"


@dataclass(slots=True)
class Pass:
    """One pass of an attempt that counts from zero each time."""

    offset: float
    """What is added to its steps within the attempt."""
    gap: float
    """From its greatest step to the one before: so far behind its last step the next pass begins."""
    greatest: float
    reports: list[int] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    @property
    def following(self) -> float:
        """What the first step of a next pass is counted as, within the attempt."""
        return self.offset + self.greatest + (self.gap or max(self.greatest, 1))


class Begun(NamedTuple):
    """How the attempts before counted from zero each time."""

    first: float
    """The least step that a pass of theirs began with."""
    gap: float


def passes_of(
    reports: Iterable[tuple[int, float]],
    epoch_of: Callable[[int], float | None] = lambda report: None,
    begun: Begun | None = None,
) -> list[Pass]:
    """Find where the steps of one attempt start over, in the order in which they were reported.

    They do where they are not greater though the epoch is. Without epochs a step that comes late, after greater ones,
    begins nothing: only one that lies nearer to where the count began does.
    """
    found: list[Pass] = []
    first: float = 0
    last_epoch = math.inf
    for report, step in reports:
        epoch = epoch_of(report)
        current = found[-1] if found else None
        if current is None:
            found.append(Pass(0, begun.gap if begun else 0, step))
            first = step if begun is None else min(step, begun.first)
        elif (epoch is not None and epoch > last_epoch and step <= current.greatest) or (
            current.greatest > first and step - first <= (current.greatest - first) / 2
        ):
            found.append(Pass(current.following - step, current.gap, step))
            first, last_epoch = step, math.inf
        elif step > current.greatest:
            current.gap, current.greatest = step - current.greatest, step
        if epoch is not None:
            last_epoch = epoch if last_epoch == math.inf else max(last_epoch, epoch)
        found[-1].reports.append(report)
        found[-1].steps.append(step)
    return found


_FAR: Final = 1.5
"""So many usual gaps behind a first step the second one shows that the first was no beginning."""


def usual_gap(steps: Sequence[float]) -> float:
    """Return how far a step usually lies behind the one before; 0 where none does."""
    gaps = sorted(after - before for before, after in pairwise(steps) if after > before)
    return gaps[len(gaps) // 2] if gaps else 0


def beginning_of(steps: Sequence[float], gap: float) -> int:
    """Return the place of the step that an attempt began with: that of its first one, unless that stands alone.

    A step at the start (a baseline at 0, a first line) with the second one far behind it is none: the program had
    loaded what it had saved by then.

    Args:
        steps: What an attempt reported first.
        gap: What the usual gap is where these are too few to tell.
    """
    usual = usual_gap(steps[1:]) or gap
    return int(len(steps) > 1 and usual > 0 and steps[1] - steps[0] > _FAR * usual)


class Saved(NamedTuple):
    """A checkpoint: who saved it, and when."""

    attempt: int
    time_us: int


class _Series(NamedTuple):
    id: int
    name: str
    kind: str
    points: int


class _Seen(NamedTuple):
    """A point of a series."""

    seq: int
    attempt: int
    step: float | None
    time_us: int
    report: Report


_known: dict[tuple[Any, ...], tuple[tuple[Any, ...], dict[int, StepCourse]]] = {}
_ascending: dict[tuple[Any, ...], int] = {}
"""Up to which point the steps of a series were found never to go back within an attempt."""

_KNOWN_MAX: Final = 2000

_Found = TypeVar("_Found")


def course_of(connection: sqlite3.Connection, series_id: int) -> StepCourse:
    """Return how the steps of a stored series are counted on."""
    sql = "SELECT job_id, learner, kind FROM main.series WHERE id = ?"
    row = connection.execute(sql, (series_id,)).fetchone()
    if row is None or row[2] not in ("value", "etime"):
        return AS_REPORTED
    return courses_of(connection, row[0], row[1]).get(series_id, AS_REPORTED)


def courses_of(connection: sqlite3.Connection, job_id: str, learner: int) -> Mapping[int, StepCourse]:
    """Return how the steps of a learner's series are counted on, of those that are not as they were reported."""
    sql = (
        "SELECT count(*), sum(points), max(revision), (SELECT count(*) FROM main.checkpoints WHERE job_id = ?1) "
        "FROM main.series WHERE job_id = ?1 AND learner = ?2 AND kind IN ('value', 'etime')"
    )
    state = tuple(connection.execute(sql, (job_id, learner)).fetchone())
    key = database_of(connection), job_id, learner
    return remembered(_known, key, state, lambda: _Learner(connection, job_id, learner).courses())


def remembered(
    known: dict[tuple[Any, ...], tuple[tuple[Any, ...], _Found]],
    key: tuple[Any, ...],
    state: tuple[Any, ...],
    find: Callable[[], _Found],
) -> _Found:
    """Return what was found for a learner; it is found again where what it depends on is in another state."""
    held = known.get(key)
    if held is None or held[0] != state:
        if len(known) >= _KNOWN_MAX:
            known.clear()
        held = known[key] = state, find()
    return held[1]


class EpochOrder:
    """The epoch of each report of a learner; where it has none, the last one that its attempt had reported by then."""

    def __init__(self, connection: sqlite3.Connection, job_id: str, learner: int) -> None:
        read = _Learner(connection, job_id, learner)
        self._by_report = read.epochs()
        self._by_time = sorted(read.epoch_times)

    def epoch_of(self, report: Report, time_us: int) -> float:
        """Return it; minus infinity where there is none."""
        if (own := self._by_report.get(report)) is not None:
            return own
        at = bisect_right(self._by_time, (report[0], time_us, math.inf)) - 1
        return self._by_time[at][2] if at >= 0 and self._by_time[at][0] == report[0] else -math.inf


def database_of(connection: sqlite3.Connection) -> str:
    """Return what tells a database from others that this process has open."""
    try:
        rows = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.DatabaseError:
        # A connection that may only select: it was told its file before (``metric_values.teach_values``).
        return str(connection.execute("SELECT database_file()").fetchone()[0])
    return next((str(row[2]) for row in rows if row[1] == "main"), "") or str(id(connection))


class _Learner:
    """The series of one learner of a job."""

    def __init__(self, connection: sqlite3.Connection, job_id: str, learner: int) -> None:
        self._connection = connection
        self._job_id = job_id
        self._learner = learner
        sql = (
            "SELECT id, name, kind, points FROM main.series WHERE job_id = ? AND learner = ? "
            "AND kind IN ('value', 'etime') AND points ORDER BY id"
        )
        self._series = [_Series(*row) for row in connection.execute(sql, (job_id, learner))]
        self._runs: dict[int, ReportRuns] = {}
        self._epochs: dict[Report, float] | None = None
        self.epoch_times: list[tuple[int, int, float]] = []
        """The attempt and time at which each epoch was reported, once they are read."""

    def courses(self) -> dict[int, StepCourse]:
        if sum(each.points for each in self._series) > POINTS_MAX:
            return {}
        values = [each for each in self._series if each.kind == "value"]
        later = {each.id for each in values if self._has_later_epochs(each)}
        anew = later | {each.id for each in values if self._goes_back(each)}
        if not anew:
            return {}
        seen = {each.id: list(self._points(each)) for each in self._series}
        offsets: dict[Report, float] = {}
        for together in _together(values, seen):
            if not anew & set(together):
                continue
            offsets.update(self._offsets(together, seen, is_anew=bool(later & set(together))))
        found = {series_id: _stretches(column, offsets) for series_id, column in seen.items()}
        return {series_id: course for series_id, course in found.items() if course}

    def epochs(self) -> dict[Report, float]:
        if self._epochs is None:
            self._epochs = {}
            for each in self._series:
                if each.kind == "etime" and (each.name == _EPOCH or each.name.endswith("/" + _EPOCH)):
                    self._read_epochs(each, self._epochs)
        return self._epochs

    # Reading

    def _points(self, series: _Series) -> Iterator[_Seen]:
        runs = self._reports(series)
        sql = "SELECT seq, attempt, step, time FROM main.points WHERE series = ? ORDER BY seq"
        for seq, attempt, step, time_us in self._connection.execute(sql, (series.id,)):
            yield _Seen(seq, attempt, step, time_us, self._report(series, runs, seq, attempt))

    def _read_epochs(self, series: _Series, found: dict[Report, float]) -> None:
        runs = self._reports(series)
        sql = "SELECT seq, attempt, time, value FROM main.points WHERE series = ? AND value IS NOT NULL"
        for seq, attempt, time_us, value in self._connection.execute(sql, (series.id,)):
            if math.isfinite(value):
                self.epoch_times.append((attempt, time_us, value))
                if runs.report_of(seq) is not None:
                    found[self._report(series, runs, seq, attempt)] = value

    def _reports(self, series: _Series) -> ReportRuns:
        if series.id not in self._runs:
            self._runs[series.id] = report_runs(self._connection, self._job_id, series.id)
        return self._runs[series.id]

    @staticmethod
    def _report(series: _Series, runs: ReportRuns, seq: int, attempt: int) -> Report:
        """Return the report of a point; where an older version wrote it, one that no other series has."""
        number = runs.report_of(seq)
        return attempt, number if number is not None else -(series.id << 40) + seq

    # Whether steps start over

    def _goes_back(self, series: _Series) -> bool:
        """Say whether steps go back within an attempt; what was looked at once is not looked at again."""
        key = database_of(self._connection), self._job_id, series.id
        done = _ascending.get(key, 0)
        done = done if done <= series.points else 0
        ranges = [(done, series.points)]
        if series.points - done > _EXACT:
            ranges = self._suspicious(series, done)
        if any(self._goes_back_within(series, *each) for each in ranges):
            return True
        if len(_ascending) >= _KNOWN_MAX:
            _ascending.clear()
        _ascending[key] = series.points
        return False

    def _suspicious(self, series: _Series, done: int) -> list[tuple[int, int]]:
        """Return where, by the roll-ups, steps may go back; everything where that is at many points."""
        level = 1
        while series.points >> (_BITS * level) > _BUCKETS_MAX:
            level += 1
        sql = (
            "SELECT bucket, first_step, last_step, min_step, max_step, steps, n FROM main.rollups "
            "WHERE series = ? AND level = ? AND bucket >= ? ORDER BY bucket"
        )
        width = 1 << (_BITS * level)
        before = -math.inf
        found: list[tuple[int, int]] = []
        for bucket, first, last, low, high, steps, n in self._connection.execute(
            sql, (series.id, level, done // width)
        ):
            if low is None:
                continue
            if first != low or last != high or low < before or steps != n:
                found.append((bucket * width, (bucket + 1) * width))
            before = high
        return found if len(found) <= _FEW else [(done, series.points)]

    def _goes_back_within(self, series: _Series, after: int, last: int) -> bool:
        sql = (
            "SELECT 1 FROM (SELECT attempt, step, lag(attempt) OVER points AS attempt_before, "
            "lag(step) OVER points AS step_before FROM main.points WHERE series = ? AND seq >= ? AND seq <= ? "
            "AND step IS NOT NULL WINDOW points AS (ORDER BY seq)) "
            "WHERE attempt = attempt_before AND step < step_before LIMIT 1"
        )
        return self._connection.execute(sql, (series.id, after, last)).fetchone() is not None

    def _has_later_epochs(self, series: _Series) -> bool:
        """Say whether an attempt began with a later epoch than another ended with, and no greater step."""
        if not self._has_attempts() or not any(each.kind == "etime" for each in self._series):
            return False
        runs = self._reports(series)
        epochs, before = self.epochs(), list[tuple[float, float]]()
        for attempt, first, step, greatest, greatest_at in self._ends_of_attempts(series):
            begins = epochs.get(self._report(series, runs, first, attempt))
            if begins is not None and any(
                step <= high and math.floor(begins) > math.floor(epoch) for high, epoch in before
            ):
                return True
            ends = epochs.get(self._report(series, runs, greatest_at, attempt))
            if ends is not None:
                before.append((greatest, ends))
        return False

    def _has_attempts(self) -> bool:
        sql = "SELECT count(DISTINCT attempt) FROM main.journals WHERE job_id = ? AND learner = ?"
        return int(self._connection.execute(sql, (self._job_id, self._learner)).fetchone()[0]) > 1

    def _ends_of_attempts(self, series: _Series) -> Iterator[tuple[int, int, float, float, int]]:
        """Yield each attempt's first point, the step of that, its greatest step and the first point that has it."""
        where = "FROM main.points WHERE series = ? AND step IS NOT NULL"
        by_attempt = f"SELECT attempt, min(seq), max(step) {where} GROUP BY attempt ORDER BY attempt"
        at_number = f"SELECT step {where} AND seq = ?"
        with_step = f"SELECT min(seq) {where} AND attempt = ? AND step = ?"
        for attempt, first, greatest in self._connection.execute(by_attempt, (series.id,)).fetchall():
            (step,) = self._connection.execute(at_number, (series.id, first)).fetchone()
            (at,) = self._connection.execute(with_step, (series.id, attempt, greatest)).fetchone()
            yield attempt, first, step, greatest, at

    # Counting on

    def _offsets(
        self, together: Sequence[int], seen: Mapping[int, Sequence[_Seen]], *, is_anew: bool
    ) -> dict[Report, float]:
        """Return by report what is added to its step."""
        steps: dict[Report, float] = {}
        times: dict[Report, int] = {}
        for series_id in together:
            for point in seen[series_id]:
                if point.step is not None:
                    steps.setdefault(point.report, point.step)
                    times.setdefault(point.report, point.time_us)
        by_attempt: dict[int, list[tuple[int, float]]] = {}
        for (attempt, report), step in sorted(steps.items()):
            by_attempt.setdefault(attempt, []).append((report, step))
        passes: dict[int, list[Pass]] = {}
        for attempt, reports in by_attempt.items():
            passes[attempt] = passes_of(reports, partial(self._whole_epoch, attempt), _begun(passes.values()))
        if not is_anew and all(len(each) == 1 for each in passes.values()):
            return {}
        bases = _Bases(passes, self.epochs(), times, self._saved())
        found: dict[Report, float] = {}
        for attempt, each in passes.items():
            base = bases.of(attempt)
            for one in each:
                offset = one.offset + base
                found.update(((attempt, report), offset) for report in one.reports)
        return found

    def _whole_epoch(self, attempt: int, report: int) -> float | None:
        epoch = self.epochs().get((attempt, report))
        return None if epoch is None else math.floor(epoch)

    def _saved(self) -> list[Saved]:
        """Return the checkpoints of the learner; where it made none, those of all."""
        sql = "SELECT learner, attempt, time_us FROM main.checkpoints WHERE job_id = ? ORDER BY attempt, time_us"
        found = self._connection.execute(sql, (self._job_id,)).fetchall()
        own = [row for row in found if row[0] == self._learner]
        return [Saved(*row[1:]) for row in own or found]


class _Bases:
    """From which step on each attempt counts: where it went on in the attempts before."""

    def __init__(
        self,
        passes: Mapping[int, Sequence[Pass]],
        epochs: Mapping[Report, float],
        times: Mapping[Report, int],
        saved: Sequence[Saved],
    ) -> None:
        self._passes = passes
        self._epochs = epochs
        self._times = times
        self._saved = saved
        self._first = min((one.steps[0] for each in passes.values() for one in each[1:]), default=-math.inf)
        """What a pass begins with: a first one may have a baseline before it."""
        self._found: dict[int, float] = {}

    def of(self, attempt: int) -> float:
        """Return what is added to the steps of an attempt."""
        if attempt not in self._found:
            by_epoch = self._by_epoch(attempt)
            self._found[attempt] = self._by_checkpoint(attempt) if by_epoch is None else by_epoch
        return self._found[attempt]

    def _by_epoch(self, attempt: int) -> float | None:
        """Return it by the first epoch of the attempt; None where it, or those before, reported none."""
        begins = next(
            (
                (self._epochs[attempt, report], one.offset, one.offset + max(step, self._first))
                for one in self._passes[attempt]
                for report, step in zip(one.reports, one.steps, strict=True)
                if (attempt, report) in self._epochs
            ),
            None,
        )
        if begins is None:
            return None
        epoch, own_offset, own_step = begins
        nearest: tuple[float, float] | None = None
        """The last epoch of a pass before, and the offset that goes on behind it."""
        is_known = False
        for each in sorted((each for each in self._passes if each < attempt), reverse=True):
            spans = [(span, one) for one in self._passes[each] if (span := self._epochs_of_pass(each, one))]
            is_known = is_known or bool(spans)
            before = [(span, one) for span, one in spans if math.floor(span[0]) <= math.floor(epoch)]
            if not before:
                continue
            (_, last), one = before[-1]
            if math.floor(epoch) <= math.floor(last):
                return self.of(each) + one.offset - own_offset
            behind = self.of(each) + one.following - own_step
            if math.floor(epoch) <= math.floor(last) + 1:
                return behind
            if nearest is None or math.floor(last) > math.floor(nearest[0]):
                nearest = last, behind
        if nearest is not None:
            return nearest[1]
        return 0 if is_known else None

    def _epochs_of_pass(self, attempt: int, one: Pass) -> tuple[float, float] | None:
        found = [self._epochs[attempt, report] for report in one.reports if (attempt, report) in self._epochs]
        return (min(found), max(found)) if found else None

    def _by_checkpoint(self, attempt: int) -> float:
        """Return it by the last checkpoint before the attempt."""
        saved = [each for each in self._saved if each.attempt < attempt][-1:]
        if not saved or saved[0].attempt not in self._passes:
            return self._by_step(attempt)
        before, time_us = saved[0]
        base = self.of(before)
        done = [
            (one, number)
            for one in self._passes[before]
            for number, report in enumerate(one.reports)
            if self._times[before, report] <= time_us
        ]
        if not done:
            return base
        one, number = done[-1]
        begins = self._begins(attempt)
        if begins > one.steps[number] or number < len(one.reports) - 1:
            return base + one.offset
        return base + one.following - begins

    def _by_step(self, attempt: int) -> float:
        """Return it where only steps tell: an attempt that begins as another did began from the beginning.

        One that begins later in a pass went on in the last one, so that nothing is gone over that need not be.
        """
        before = max((each for each in self._passes if each < attempt), default=0)
        if not before:
            return 0
        first = max(min(one.steps[0] for one in self._passes[before]), self._first)
        if self._begins(attempt) <= first:
            return 0
        return self.of(before) + self._passes[before][-1].offset

    def _begins(self, attempt: int) -> float:
        """Return the step that an attempt went on with in its first pass."""
        first = self._passes[attempt][0]
        return max(first.steps[beginning_of(first.steps[:HEAD], first.gap)], self._first)


def _begun(before: Iterable[Sequence[Pass]]) -> Begun | None:
    """Return how attempts counted from zero each time; None where they did not."""
    anew = [each for each in before if len(each) > 1]
    if not anew:
        return None
    return Begun(min(one.steps[0] for each in anew for one in each), anew[-1][-1].gap)


def _together(values: Sequence[_Series], seen: Mapping[int, Sequence[_Seen]]) -> list[list[int]]:
    """Return the series that count together: those that have a report in common."""
    group = {each.id: each.id for each in values}

    def top(series_id: int) -> int:
        while group[series_id] != series_id:
            series_id = group[series_id]
        return series_id

    of_report: dict[Report, int] = {}
    for each in values:
        for point in seen[each.id]:
            other = of_report.setdefault(point.report, each.id)
            if other != each.id and (found := top(other)) != (own := top(each.id)):
                group[own] = found
    found_groups: dict[int, list[int]] = {}
    for each in values:
        found_groups.setdefault(top(each.id), []).append(each.id)
    return list(found_groups.values())


def _stretches(column: Sequence[_Seen], offsets: Mapping[Report, float]) -> StepCourse:
    found: list[Stretch] = []
    low, high = math.inf, -math.inf
    for point in column:
        offset = offsets.get(point.report, 0)
        last = found[-1] if found else None
        if last is None or (last.attempt, last.offset) != (point.attempt, offset):
            low, high = math.inf, -math.inf
            found.append(Stretch(point.seq, point.attempt, offset, low, high))
        if point.step is not None:
            step = counted_on(point.step, offset)
            if step < low or step > high:
                low, high = min(low, step), max(high, step)
                last = found[-1]
                found[-1] = Stretch(last.first, last.attempt, last.offset, low, high)
    if not any(each.offset for each in found):
        return AS_REPORTED
    return StepCourse(tuple(found), tuple(each.first for each in found))
