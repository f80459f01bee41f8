"""Where in the attempts before it each attempt of a learner went on, and from when on those are therefore given up.

An attempt began with a checkpoint, the last one before it, or with none. What it did tells more than what there was to
load: its first step says where it went on if it does not fit the checkpoint. Steps are compared in one series that both
have, the one with most points, in the one count (:mod:`workbench.store.queries.step_course`), so epochs are never
compared with batches. Each attempt has one origin; what leads from the last attempt back to the beginning is the course
of the training, and what lies beside it is given up.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from workbench.store.queries.reports import report_runs
from workbench.store.queries.step_course import (
    HEAD,
    POINTS_MAX,
    StepCourse,
    beginning_of,
    counted_on_sql,
    courses_of,
    database_of,
    remembered,
    usual_gap,
)

BEFORE_ALL: Final = -(1 << 62)
"""A time before any point."""

_SLACK: Final = 1.25
"""A step is the next one if it lies no more than so many usual gaps behind another: fractions are rounded."""

_LEVEL: Final = 3
_WIDTH: Final = 1 << (4 * _LEVEL)
"""So many points have one bucket in that level of the roll-ups."""

_KNOWN_MAX: Final = 2000

_COMPARED_MAX: Final = 32
"""So many series are looked at for one that had come to a checkpoint's step: each new point asks for it again."""


NO_FIRSTS: Final[Mapping[int, int]] = MappingProxyType({})


class Moment(NamedTuple):
    """A moment in an attempt: what it reported from then on was given up."""

    time_us: int
    report: float | None = None
    """Of what came in that very microsecond: from this report on; None for none of it."""
    series: int = 0
    seq: int = 0
    """The point that the moment was found by, where it is one."""
    below: float | None = None
    """Steps below this one were done before the moment, whenever they arrived, in series that get so far. Files without
    times are read a while after they were written."""
    firsts: Mapping[int, int] = NO_FIRSTS
    """By series: the first point that is not below that."""

    def is_before(self, other: Moment) -> bool:
        """Say whether it comes before another moment of the attempt."""
        if self.series and self.series == other.series:
            return self.seq < other.seq
        return (self.time_us, _behind_all(self.report)) < (other.time_us, _behind_all(other.report))


def _behind_all(report: float | None) -> float:
    return float("inf") if report is None else report


class Origin(NamedTuple):
    """What an attempt went on from."""

    attempt: int
    until: Moment | None
    """None for the end of the attempt."""


class _SavedState(NamedTuple):
    """A checkpoint that an attempt may have begun with."""

    attempt: int
    time_us: int
    step: float | None


class _Place(NamedTuple):
    """A point of a series."""

    attempt: int
    seq: int
    step: float
    time_us: int


_LOW_BITS: Final = (1 << 31) - 1
"""Of times that are added up: the sum of 5,137 whole ones is more than an integer of SQLite's holds."""
_known: dict[tuple[Any, ...], tuple[tuple[Any, ...], dict[int, Moment]]] = {}
_runs: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
"""The attempt of the points of each series, as far as they were looked at: its first, its last one and the attempt."""


def has_attempts(connection: sqlite3.Connection, job_id: str) -> bool:
    """Say whether more than one attempt of a job has reported something."""
    sql = "SELECT count(DISTINCT attempt) FROM main.journals WHERE job_id = ?"
    return int(connection.execute(sql, (job_id,)).fetchone()[0]) > 1


def moments_of(connection: sqlite3.Connection, job_id: str, learner: int) -> Mapping[int, Moment]:
    """Return from when on the attempts of a learner were given up; those that were not are left out."""
    sql = (
        "SELECT count(*), sum(points), max(revision), "
        "(SELECT count(*) FROM main.checkpoints WHERE job_id = ?1), "
        f"(SELECT sum(time_us & {_LOW_BITS}) FROM main.checkpoints WHERE job_id = ?1) "
        "FROM main.series WHERE job_id = ?1 AND learner = ?2 AND kind IN ('value', 'etime')"
    )
    state = tuple(connection.execute(sql, (job_id, learner)).fetchone())
    key = database_of(connection), job_id, learner
    return remembered(_known, key, state, lambda: _Attempts(connection, job_id, learner).moments())


def points_at(
    connection: sqlite3.Connection, series_id: int, attempt: int, first_us: int, last_us: int
) -> list[tuple[int, float | None, int]]:
    """Return the points of an attempt between two moments: their numbers, steps as reported, and times."""
    (points,) = connection.execute("SELECT points FROM main.series WHERE id = ?", (series_id,)).fetchone()
    ranges = [(1, points)]
    if points > _WIDTH:
        sql = "SELECT bucket FROM main.rollups WHERE series = ? AND level = ? AND min_time <= ? AND max_time >= ?"
        found = connection.execute(sql, (series_id, _LEVEL, last_us, first_us)).fetchall()
        ranges = [(bucket * _WIDTH + 1, (bucket + 1) * _WIDTH) for (bucket,) in found]
    sql = (
        "SELECT seq, step, time FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? AND attempt = ? "
        "AND time BETWEEN ? AND ? ORDER BY seq"
    )
    return [
        row
        for first, last in ranges
        for row in connection.execute(sql, (series_id, first, last, attempt, first_us, last_us))
    ]


def is_next(last: float, before: float | None, bound: float) -> bool:
    """Say whether a bound is no further behind the last of some steps than the step that would come next."""
    return last + _SLACK * (0.0 if before is None else last - before) >= bound


class _Attempts:
    """The attempts of one learner of a job."""

    def __init__(self, connection: sqlite3.Connection, job_id: str, learner: int) -> None:
        self._connection = connection
        self._job_id = job_id
        sql = (
            "SELECT id, points, kind FROM main.series WHERE job_id = ? AND learner = ? "
            "AND kind IN ('value', 'etime') AND points ORDER BY id"
        )
        found = connection.execute(sql, (job_id, learner)).fetchall()
        self._points: dict[int, int] = {
            series_id: points for series_id, points, kind in found if kind == "value"
        }
        self._etimes = {series_id: points for series_id, points, kind in found if kind == "etime"}
        self._is_uncounted = sum(points for _, points, _ in found) > POINTS_MAX
        self._saved = self._read_saved(learner)
        self._courses = courses_of(connection, job_id, learner)
        self._spans = {series_id: self._spans_of(series_id) for series_id in self._points}
        """By series and attempt: the numbers of the first and last points of each run."""
        self._firsts: dict[tuple[int, int], list[float]] = {}
        self._apart: set[tuple[int, int]] = set()
        """Series and attempts whose first two steps are counted on by different amounts."""
        self._origins: dict[int, Origin | None] = {}

    def moments(self) -> dict[int, Moment]:
        attempts = sorted({attempt for spans in self._spans.values() for attempt in spans})
        saving = {saved.attempt for saved in self._saved if attempts and saved.attempt < attempts[-1]}
        attempts = sorted({*attempts, *saving})
        if len(attempts) < 2:
            return {}
        for place, attempt in enumerate(attempts):
            self._origins[attempt] = self._origin(attempt, attempts[place + 1 :]) if place else None
        course = {one.attempt: one.until for one in self._path(attempts[-1])}
        given_up = {attempt: course.get(attempt, Moment(BEFORE_ALL)) for attempt in attempts}
        return {
            attempt: moment._replace(firsts=self._firsts_not_below(attempt, moment))
            for attempt, moment in given_up.items()
            if moment is not None
        }

    def _firsts_not_below(self, attempt: int, moment: Moment) -> Mapping[int, int]:
        """Return the first point of each series that was not done before a moment by its step.

        A series that does not get so far counts something else, unless it ended with the step before.
        """
        if moment.below is None:
            return NO_FIRSTS
        found: dict[int, int] = {}
        for series_id in (*self._spans, *self._etimes):
            spans = (self._spans.get(series_id) or self._spans_of(series_id)).get(attempt, ())
            reaching = (self._reaching(series_id, attempt, *span, moment.below) for span in spans)
            place = next(filter(None, reaching), None)
            if place is not None:
                found[series_id] = place.seq
            elif spans and (last := self._one(series_id, attempt, *spans[-1], "DESC")) is not None:
                before = self._one(series_id, attempt, spans[-1][0], last.seq - 1, "DESC")
                if is_next(last.step, None if before is None else before.step, moment.below):
                    found[series_id] = spans[-1][1] + 1
        return found

    def _path(self, attempt: int) -> list[Origin]:
        """Return what led to the end of an attempt, from the beginning on."""
        found = [Origin(attempt, None)]
        while (before := self._origins.get(found[0].attempt)) is not None:
            found.insert(0, before)
        return found

    # Where an attempt went on

    def _origin(self, attempt: int, later: Sequence[int]) -> Origin | None:
        """Return what an attempt went on from; None for the beginning."""
        before = max(self._origins)
        saved = next((each for each in reversed(self._saved) if each.attempt < attempt), None)
        series_id = self._measure(attempt, saved)
        if series_id is None:
            return Origin(before, None) if saved is None else _at_checkpoint(saved)
        steps = self._first_steps(series_id, attempt)
        if is_alone := len(steps) == 1:
            # The attempt that follows shows whether a program reports a baseline when it starts.
            more = next(filter(None, (self._first_steps(series_id, each) for each in later)), ())
            steps = list(dict.fromkeys([*steps, *more]))
        earlier = self._steps_before(series_id, before)
        place = self._place_of_beginning(series_id, attempt, steps, earlier)
        gap = usual_gap(steps[place:]) or earlier
        begins = steps[place]
        if saved is not None and self._fits_checkpoint(series_id, begins, gap, saved, is_alone=is_alone):
            return _at_checkpoint(saved, begins if self._is_in_count(series_id, gap, saved) else None)
        return self._by_step(series_id, begins, gap, attempt)

    def _fits_checkpoint(
        self, series_id: int, begins: float, gap: float, saved: _SavedState, *, is_alone: bool
    ) -> bool:
        """Say whether an attempt began with a checkpoint, by the step that it began with.

        It did not where it went over a step again that was done by then, nor where it went on further behind it than
        with the next step: training code may save once more without a word. One step alone may be a baseline.
        """
        if self._is_uncounted and self._goes_back(series_id):
            return True
        path = self._path(saved.attempt)
        done = self._last_until(series_id, path, saved.time_us - 1)
        may_be_done = self._last_until(series_id, path, saved.time_us)
        if done is None or may_be_done is None:
            # What files without times hold is read later than it was written: what is below was done by then.
            first = self._first_reaching(series_id, path, -math.inf)
            return is_alone or first is None or first.step >= begins
        if begins <= done.step:
            return is_alone
        if begins <= may_be_done.step:
            return False
        if saved.step is None or not self._is_in_count(series_id, gap, saved):
            is_next = begins <= done.step + _SLACK * gap
            return is_next or not self._fits(series_id, path, begins, gap)
        if begins > saved.step + _SLACK * gap:
            return False
        following = self._next_in(series_id, done)
        return following is None or following.step > saved.step or following.step >= begins

    def _is_in_count(self, series_id: int, gap: float, saved: _SavedState) -> bool:
        """Say whether a checkpoint has a step of the count of a series: one between what was reported around it."""
        done = self._last_until(series_id, self._path(saved.attempt), saved.time_us - 1)
        if done is None or saved.step is None:
            return False
        following = self._next_in(series_id, done)
        most = done.step + _SLACK * gap if following is None else max(following.step, done.step)
        return done.step <= saved.step <= most

    def _fits(self, series_id: int, path: Sequence[Origin], begins: float, gap: float) -> bool:
        """Say whether a step is one that the attempts before reported, or would have reported next."""
        found = self._first_reaching(series_id, path, begins)
        if found is not None:
            return found.step == begins
        last = self._last_until(series_id, path, -BEFORE_ALL)
        return last is None or begins >= last.step + gap / _SLACK

    def _by_step(self, series_id: int, begins: float, gap: float, went_on: int) -> Origin | None:
        """Return the origin of an attempt by the step that it began with."""
        attempts = sorted(self._origins, reverse=True)
        for attempt in attempts:
            path = self._path(attempt)
            if self._first_reaching(series_id, path, begins - _SLACK * gap) is None:
                continue  # it did not get that far
            find = self._behind_last_below if self._is_uncounted else self._first_reaching
            place = find(series_id, path, begins)
            if place is not None and self._is_beginning(series_id, place, gap):
                return self._origins[place.attempt]
            done = (
                self._last_until(series_id, path, -BEFORE_ALL)
                if place is None
                else self._before(series_id, place)
            )
            moment = None if place is None else self._moment_of(series_id, place)
            if done is None or (place is None and done.attempt != attempt):
                return Origin(attempt if place is None else place.attempt, moment)
            return Origin(done.attempt, self._others_first(series_id, done, place, begins, went_on) or moment)
        return Origin(attempts[0], None)

    def _is_beginning(self, series_id: int, place: _Place, gap: float) -> bool:
        """Say whether an attempt began with a point: what it reported before is a baseline at most."""
        steps = self._first_steps(series_id, place.attempt)
        begins = steps[self._place_of_beginning(series_id, place.attempt, steps, gap)]
        return place.step <= begins and not any(
            self._reaching(series_id, place.attempt, first, place.seq - 1, place.step)
            for first, _ in self._spans[series_id][place.attempt]
        )

    def _others_first(
        self, series_id: int, done: _Place, place: _Place | None, begins: float, went_on: int
    ) -> Moment | None:
        """Return the first moment between two points of the series at which another one was gone over again.

        That is a step of it which the later attempt reported, too, or one that its own steps lie around.
        """
        until = -BEFORE_ALL if place is None else place.time_us
        found: Moment | None = None if place is None else self._moment_of(series_id, place)
        behind = self._moment_of(series_id, done)
        for other in self._points:
            if other == series_id or done.attempt not in self._spans[other]:
                continue
            course = self._courses.get(other)
            own = self._first_steps(other, went_on)
            low, high = begins, begins if place is None else place.step
            if own:
                low, high = own[self._place_of_beginning(other, went_on, own, 0)], math.inf
            for seq, raw, time_us in points_at(self._connection, other, done.attempt, done.time_us, until):
                step = raw if course is None else course.step(seq, raw)
                if step is None or not low <= step <= high:
                    continue
                moment = self._moment_of(other, _Place(done.attempt, seq, step, time_us))
                if behind.is_before(moment) and (found is None or moment.is_before(found)):
                    found = moment
        return found

    def _moment_of(self, series_id: int, place: _Place) -> Moment:
        report = report_runs(self._connection, self._job_id, series_id).report_of(place.seq)
        return Moment(place.time_us, report, series_id, place.seq, below=place.step)

    # Reading

    def _measure(self, attempt: int, saved: _SavedState | None) -> int | None:
        """Return the series that tells where an attempt went on, if need be one with a single step; None for none.

        One that had come to the very step with which the checkpoint was saved counts what the program counts; of
        others, such as those of progress bars that are printed beside it, it is the one with most points.
        """
        before = {
            series_id: earlier
            for series_id, spans in self._spans.items()
            if attempt in spans and (earlier := [each for each in spans if each in self._origins])
        }
        points = {
            series_id: sum(
                last - first + 1 for each in attempts for first, last in self._spans[series_id][each]
            )
            for series_id, attempts in before.items()
        }
        several: int | None = None
        alike: int | None = None
        for number, series_id in enumerate(sorted(before, key=lambda each: (-points[each], each))):
            if several is not None and number >= _COMPARED_MAX:
                break
            if self._first_steps(series_id, attempt):
                steps = max(len(self._first_steps(series_id, each)) for each in before[series_id])
                if steps > 1 and self._came_to(series_id, saved):
                    return series_id
                if steps > 1 and several is None:
                    several = series_id
                if steps and alike is None:
                    alike = series_id
        return alike if several is None else several

    def _came_to(self, series_id: int, saved: _SavedState | None) -> bool:
        """Say whether a series had come to the very step of a checkpoint when that was saved."""
        if saved is None or saved.step is None:
            return False
        done = self._last_until(series_id, self._path(saved.attempt), saved.time_us)
        return done is not None and done.step == saved.step

    def _read_saved(self, learner: int) -> list[_SavedState]:
        """Return the checkpoints of a learner in their order; where it made none, those of all."""
        sql = (
            "SELECT learner, attempt, time_us, step FROM main.checkpoints WHERE job_id = ? "
            "ORDER BY attempt, time_us, learner, seq"
        )
        found = self._connection.execute(sql, (self._job_id,)).fetchall()
        own = [row for row in found if row[0] == learner]
        return [_SavedState(*row[1:]) for row in own or found]

    def _spans_of(self, series_id: int) -> dict[int, list[tuple[int, int]]]:
        """Return which points of a series each attempt reported; only what is new of them is looked at."""
        key = database_of(self._connection), self._job_id, series_id
        points = self._points.get(series_id) or self._etimes[series_id]
        known = _runs.get(key, [])
        if known and known[-1][1] > points:
            known = []
        known = list(known)
        done = known[-1][1] if known else 0
        sql = "SELECT attempt FROM main.points WHERE series = ? AND seq = ?"
        other = (
            "SELECT seq FROM main.points WHERE series = ? AND seq > ? AND attempt <> ? ORDER BY seq LIMIT 1"
        )
        while done < points:
            (attempt,) = self._connection.execute(sql, (series_id, done + 1)).fetchone()
            changes = self._connection.execute(other, (series_id, done + 1, attempt)).fetchone()
            last = points if changes is None else changes[0] - 1
            if known and known[-1][2] == attempt:
                known[-1] = known[-1][0], last, attempt
            else:
                known.append((done + 1, last, attempt))
            done = last
        if len(_runs) >= _KNOWN_MAX:
            _runs.clear()
        _runs[key] = known
        found: dict[int, list[tuple[int, int]]] = {}
        for first, last, attempt in known:
            found.setdefault(attempt, []).append((first, last))
        return found

    def _place_of_beginning(self, series_id: int, attempt: int, steps: Sequence[float], gap: float) -> int:
        """Return the place of the step that an attempt began with; what lies in another pass lies not far behind."""
        return 0 if (series_id, attempt) in self._apart else beginning_of(steps, gap)

    def _first_steps(self, series_id: int, attempt: int) -> list[float]:
        """Return the first different steps of an attempt in a series, counted on."""
        sql = (
            "SELECT seq, step FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? AND step IS NOT NULL "
            "ORDER BY seq LIMIT ?"
        )
        if (series_id, attempt) in self._firsts:
            return self._firsts[series_id, attempt]
        course = self._courses.get(series_id)
        found: dict[float, float] = {}
        """By a step what was added to it."""
        for first, last in self._spans[series_id].get(attempt, ()):
            values = (series_id, first, min(last, first + _WIDTH), HEAD)
            for seq, step in self._connection.execute(sql, values):
                counted = _counted(course, seq, step)
                found.setdefault(counted, counted - step)
        self._firsts[series_id, attempt] = list(found)
        if len(found) > 1 and len(set(list(found.values())[:2])) > 1:
            self._apart.add((series_id, attempt))
        return self._firsts[series_id, attempt]

    def _steps_before(self, series_id: int, attempt: int) -> float:
        """Return the usual gap of the last attempt up to one that has some."""
        for each in sorted((one for one in self._origins if one <= attempt), reverse=True):
            if gap := usual_gap(self._first_steps(series_id, each)):
                return gap
        return 0

    def _first_reaching(self, series_id: int, path: Sequence[Origin], bound: float) -> _Place | None:
        """Return the first point on the way to an attempt whose step is not below a bound."""
        for attempt, until in path:
            for first, last in self._spans[series_id].get(attempt, ()):
                place = self._reaching(series_id, attempt, first, last, bound)
                if place is None:
                    continue
                if until is None or self._moment_of(series_id, place).is_before(until):
                    return place
                break
        return None

    def _reaching(self, series_id: int, attempt: int, first: int, last: int, bound: float) -> _Place | None:
        if last < first:
            return None
        course = self._courses.get(series_id)
        sql = (
            "SELECT seq, step, time FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? "
            "AND {} >= ? ORDER BY seq LIMIT 1"
        )
        for low, high, column in self._ranges(series_id, course, attempt, first, last, bound):
            row = self._connection.execute(sql.format(column), (series_id, low, high, bound)).fetchone()
            if row is not None:
                return _Place(attempt, row[0], _counted(course, row[0], row[1]), row[2])
        return None

    def _ranges(
        self, series_id: int, course: StepCourse | None, attempt: int, first: int, last: int, bound: float
    ) -> Iterator[tuple[int, int, str]]:
        """Yield where steps may reach a bound: the numbers of points, and the SQL of their steps."""
        if course:
            for stretch, ends in course.spans():
                low, high = max(first, stretch.first), min(last, ends)
                if stretch.attempt == attempt and stretch.high >= bound and low <= high:
                    yield low, high, counted_on_sql(stretch.offset)
            return
        if last - first < _WIDTH:
            yield first, last, "step"
            return
        sql = (
            "SELECT bucket FROM main.rollups WHERE series = ? AND level = ? AND bucket BETWEEN ? AND ? "
            "AND max_step >= ? ORDER BY bucket"
        )
        values = (series_id, _LEVEL, (first - 1) // _WIDTH, (last - 1) // _WIDTH, bound)
        for (bucket,) in self._connection.execute(sql, values).fetchall():
            yield max(first, bucket * _WIDTH + 1), min(last, (bucket + 1) * _WIDTH), "step"

    def _behind_last_below(self, series_id: int, path: Sequence[Origin], bound: float) -> _Place | None:
        """Return the point on the way to an attempt that follows the last one whose step is below a bound.

        So where steps of many points start over and are not counted on, no pass but the last one is gone over again.
        """
        sql = (
            "SELECT seq FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? AND step < ? "
            "ORDER BY seq DESC LIMIT 1"
        )
        behind: _Place | None = None
        for attempt, until in reversed(path):
            for first, last in reversed(self._spans[series_id].get(attempt, [])):
                row = self._connection.execute(sql, (series_id, first, last, bound)).fetchone()
                place = self._next(series_id, attempt, first if row is None else row[0] + 1, last)
                if place is not None and (
                    until is None or self._moment_of(series_id, place).is_before(until)
                ):
                    behind = place
                if row is not None:
                    return behind
        return behind

    def _last_until(self, series_id: int, path: Sequence[Origin], time_us: int) -> _Place | None:
        """Return the last point on the way to an attempt that was reported by a time."""
        sql = (
            "SELECT seq, step, time FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? AND time <= ? "
            "AND step IS NOT NULL ORDER BY seq DESC"
        )
        course = self._courses.get(series_id)
        for attempt, until in reversed(path):
            for first, last in reversed(self._spans[series_id].get(attempt, [])):
                bound = time_us if until is None else min(time_us, until.time_us)
                for seq, step, time in self._connection.execute(sql, (series_id, first, last, bound)):
                    place = _Place(attempt, seq, _counted(course, seq, step), time)
                    if until is None or self._moment_of(series_id, place).is_before(until):
                        return place
        return None

    def _next_in(self, series_id: int, place: _Place) -> _Place | None:
        """Return the point of a series that its attempt reported next."""
        for first, last in self._spans[series_id][place.attempt]:
            if last > place.seq and (
                found := self._next(series_id, place.attempt, max(first, place.seq + 1), last)
            ):
                return found
        return None

    def _next(self, series_id: int, attempt: int, first: int, last: int) -> _Place | None:
        return self._one(series_id, attempt, first, last, "ASC")

    def _before(self, series_id: int, place: _Place) -> _Place | None:
        for first, last in reversed(self._spans[series_id][place.attempt]):
            if first < place.seq and (
                found := self._one(series_id, place.attempt, first, min(last, place.seq - 1), "DESC")
            ):
                return found
        return None

    def _one(self, series_id: int, attempt: int, first: int, last: int, order: str) -> _Place | None:
        sql = (
            "SELECT seq, step, time FROM main.points WHERE series = ? AND seq BETWEEN ? AND ? "
            f"AND step IS NOT NULL ORDER BY seq {order} LIMIT 1"
        )
        row = self._connection.execute(sql, (series_id, first, last)).fetchone()
        if row is None:
            return None
        return _Place(attempt, row[0], _counted(self._courses.get(series_id), row[0], row[1]), row[2])

    def _goes_back(self, series_id: int) -> bool:
        """Say whether, by the roll-ups, steps go back within an attempt."""
        sql = (
            "SELECT 1 FROM main.rollups WHERE series = ? AND level = ? AND bucket BETWEEN ? AND ? "
            "AND (first_step <> min_step OR last_step <> max_step) LIMIT 1"
        )
        whole = (
            ((first - 1) // _WIDTH + 1, last // _WIDTH - 1)
            for spans in self._spans[series_id].values()
            for first, last in spans
        )
        return any(self._connection.execute(sql, (series_id, _LEVEL, *each)).fetchone() for each in whole)


def _counted(course: StepCourse | None, seq: int, step: float) -> float:
    found = step if course is None else course.step(seq, step)
    return step if found is None else found


def _at_checkpoint(saved: _SavedState, begins: float | None = None) -> Origin:
    """Go on from a checkpoint; ``begins`` is the first step behind it, in the count that the checkpoint has."""
    below = None
    if begins is not None and saved.step is not None:
        below = min(begins, math.nextafter(saved.step, math.inf))
    return Origin(saved.attempt, Moment(saved.time_us, below=below))
