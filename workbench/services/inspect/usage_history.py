"""How a job's use of its machine went: of each learner CPU, memory, disk, network and GPUs, and its processes now."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from workbench.formats import printable
from workbench.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from workbench.paths import Home
    from workbench.services.backends.learner_access import LearnerAccess
    from workbench.spec import JobSpec
    from workbench.store.db.database import Store
    from workbench.store.db.rows import Bucket, JobRow, SeriesRow

_GPU_PARTS: Final = 3
"""``gpu/<uuid>/<what>``"""


_LIMITS: Final = {
    "memory_bytes": "memory_limit_bytes",
    "power_watts": "power_limit_watts",
    "temperature_celsius": "temperature_limit_celsius",
}
"""Which measure of a GPU says how much there is of another one; older agents and drivers do not say all of them."""

_NOT_DRAWN: Final = frozenset({"processes", *_LIMITS.values()})

HELD_US: Final = 90_000_000
"""So long a value holds until the next sample: processes that sleep are sampled every thirty seconds."""


@dataclass(frozen=True, slots=True)
class UsageHistory:
    """One measure of one learner's whole process tree."""

    learner: int
    gpu: str
    """The GPU's UUID; empty for what is the machine's."""
    measure: str
    """``cpu_percent`` (of one CPU), ``memory_bytes``, ``utilization_percent``, ..."""
    last: float
    last_time_us: int
    limit: float | None
    """What the learner asked for, or all that there is; None where that is not known."""
    values: tuple[float | None, ...]
    """The greatest values of equal stretches of time, the oldest first; None where nothing was sampled."""


def usage_histories(
    store: Store, job_id: str, spec: JobSpec | None, *, width: int, learners: int
) -> tuple[UsageHistory, ...]:
    """Read the histories of a job's first learners.

    Args:
        store: The store.
        job_id: The job.
        spec: What it asked for; None where that cannot be read.
        width: How many values a history has.
        learners: How many learners are read.
    """
    from workbench.metrics.chart_axis import TIME, chart_points
    from workbench.metrics.queries import series

    rows = [row for row in series(store, job_id, kinds=("usage",)) if row.learner <= learners]
    limits = _gpu_limits(rows)
    found = []
    for row in rows:
        gpu, measure = gpu_and_measure(row.name)
        if row.last is None or row.last_time_us is None or measure in _NOT_DRAWN:
            continue
        buckets = chart_points(store, row, TIME, width=width) or []
        found.append(
            UsageHistory(
                row.learner,
                gpu,
                measure,
                row.last,
                row.last_time_us,
                _limit(spec, limits, row),
                _stretches(buckets, width),
            )
        )
    return tuple(found)


def gpu_and_measure(name: str) -> tuple[str, str]:
    """Return the GPU's UUID, empty for what is the machine's, and the measure that a series of usage is named for."""
    parts = name.split("/")
    return (parts[1], parts[2]) if len(parts) == _GPU_PARTS and parts[0] == "gpu" else ("", name)


_Limits = dict[tuple[int, str, str], float]
"""What a learner's GPU has of a measure, by learner, GPU and measure."""


def _gpu_limits(rows: Iterable[SeriesRow]) -> _Limits:
    named = {limit: measure for measure, limit in _LIMITS.items()}
    found = {}
    for row in rows:
        gpu, measure = gpu_and_measure(row.name)
        if gpu and measure in named and row.last:
            found[row.learner, gpu, named[measure]] = row.last
    return found


def _limit(spec: JobSpec | None, limits: _Limits, row: SeriesRow) -> float | None:
    gpu, measure = gpu_and_measure(row.name)
    if measure == "utilization_percent":
        return 100.0
    if gpu:
        return limits.get((row.learner, gpu, measure))
    if spec is None:
        return None
    if measure == "cpu_percent":
        return spec.cpus * 100 if spec.cpus else None
    return float(spec.memory_bytes) if measure == "memory_bytes" and spec.memory_bytes else None


@dataclass(frozen=True, slots=True)
class UsageCurves:
    """What learners use over a stretch of time that all curves share."""

    measures: Mapping[int, Mapping[str, tuple[str, ...]]]
    """What is known of each learner: the measures of its machine (under an empty text) and of each GPU by its UUID."""
    last: Mapping[int, UsageSample]
    """When each learner was last sampled, and how many processes it had."""
    curves: Mapping[tuple[int, str, str], UsageHistory]
    """By learner, GPU and measure; of the learners that were asked for."""
    from_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class UsageSample:
    """The last sample of a learner."""

    time_us: int
    processes: int


@dataclass(slots=True)
class _KnownSeries:
    """What was read of a series, and how much of it."""

    buckets: list[Bucket]
    read_points: int
    """How many points it had when all its buckets were read."""
    points: int
    """How many it has now; what came since is a bucket each time."""


class UsageQuery:
    """The query for what some learners of a job use, asked again and again: only what would look another is read.

    Args:
        job_id: The job.
        spec: What it asked for; None where that cannot be read.
        width: How many values a curve has.
        learners: Whose curves are read; of the others only what there is of them.
        window_us: How long the stretch is, up to the last sample; None from the beginning.
    """

    def __init__(
        self,
        job_id: str,
        spec: JobSpec | None,
        *,
        width: int,
        learners: Collection[int],
        window_us: int | None = None,
    ) -> None:
        self._job_id = job_id
        self._spec = spec
        self._width = width
        self._learners = learners
        self._window_us = window_us
        self._known: dict[int, _KnownSeries] = {}

    def __call__(self, store: Store) -> UsageCurves:
        """Read the curves."""
        from workbench.metrics.queries import series

        rows = [row for row in series(store, self._job_id, kinds=("usage",)) if row.last is not None]
        limits = _gpu_limits(rows)
        to_us = max((row.last_time_us or 0 for row in rows), default=0)
        begin_us = None if self._window_us is None else to_us - self._window_us
        read = [(row, self._buckets(store, row, begin_us)) for row in rows if self._is_drawn(row)]
        firsts = [buckets[0].first_time_us for _, buckets in read if buckets]
        from_us = begin_us if begin_us is not None else min(firsts, default=to_us)
        curves = {}
        for row, buckets in read:
            gpu, measure = gpu_and_measure(row.name)
            values = _laid_out(buckets, from_us, to_us, self._width)
            last, last_time_us, limit = (
                row.last or 0.0,
                row.last_time_us or 0,
                _limit(self._spec, limits, row),
            )
            curves[row.learner, gpu, measure] = UsageHistory(
                row.learner, gpu, measure, last, last_time_us, limit, values
            )
        return UsageCurves(_measures(rows), _samples(rows), curves, from_us, to_us)

    def _is_drawn(self, row: SeriesRow) -> bool:
        return row.learner in self._learners and gpu_and_measure(row.name)[1] not in _NOT_DRAWN

    def _buckets(self, store: Store, row: SeriesRow, begin_us: int | None) -> list[Bucket]:
        from workbench.metrics.chart_axis import TIME, ChartRange, chart_points

        known = self._known.get(row.id)
        if known is None or not 0 <= row.points - known.read_points <= known.read_points / self._width:
            shown = ChartRange(begin_us, None if begin_us is None else row.last_time_us)
            buckets = chart_points(store, row, TIME, width=max(1, self._width // 2), shown=shown) or []
            self._known[row.id] = known = _KnownSeries(buckets, row.points, row.points)
        elif row.points > known.points:
            known.buckets.append(_last_bucket(row))
            known.points = row.points
        if begin_us is not None:
            known.buckets = [bucket for bucket in known.buckets if bucket.last_time_us >= begin_us]
        return known.buckets


def _last_bucket(row: SeriesRow) -> Bucket:
    from workbench.store.db.rows import Bucket

    at, value = row.last_time_us or 0, row.last
    return Bucket(row.points, 1, None, None, at, at, value, value, value, value, 0)


def _measures(rows: Iterable[SeriesRow]) -> dict[int, dict[str, tuple[str, ...]]]:
    found: dict[int, dict[str, tuple[str, ...]]] = {}
    for row in rows:
        gpu, measure = gpu_and_measure(row.name)
        known = found.setdefault(row.learner, {"": ()})
        if measure not in _NOT_DRAWN:
            known[gpu] = (*known.get(gpu, ()), measure)
    return found


def _samples(rows: Iterable[SeriesRow]) -> dict[int, UsageSample]:
    counts = {row.learner: round(row.last or 0) for row in rows if row.name == "processes"}
    times: dict[int, int] = {}
    for row in rows:
        times[row.learner] = max(times.get(row.learner, 0), row.last_time_us or 0)
    return {learner: UsageSample(time_us, counts.get(learner, 0)) for learner, time_us in times.items()}


def _laid_out(buckets: Sequence[Bucket], from_us: int, to_us: int, width: int) -> tuple[float | None, ...]:
    """Lay values out over a stretch of time; one holds until the next sample, unless that is missing."""
    span = max(1, to_us - from_us)
    values: list[float | None] = [None] * width
    before: Bucket | None = None

    def cell(time_us: int) -> int:
        return max(0, min(width - 1, (time_us - from_us) * width // span))

    def hold(until_us: int) -> None:
        if before is not None and until_us - before.last_time_us <= HELD_US:
            for index in range(cell(before.last_time_us) + 1, cell(until_us)):
                values[index] = before.last

    for bucket in buckets:
        if bucket.maximum is None:
            continue
        hold(bucket.first_time_us)
        for index in range(cell(bucket.first_time_us), cell(bucket.last_time_us) + 1):
            known = values[index]
            values[index] = bucket.maximum if known is None else max(known, bucket.maximum)
        before = bucket
    if before is not None and cell(before.last_time_us) < width - 1:
        hold(to_us + 1)
        if to_us - before.last_time_us <= HELD_US:
            values[-1] = before.last
    return tuple(values)


def _stretches(buckets: Sequence[Bucket], width: int) -> tuple[float | None, ...]:
    """Lay values out over equal stretches of time; a gap in sampling shows as one."""
    if not buckets:
        return ()
    begin, end = buckets[0].first_time_us, buckets[-1].last_time_us
    span = max(1, end - begin + 1)
    count = min(width, sum(bucket.count for bucket in buckets))
    values: list[float | None] = [None] * count
    for bucket in buckets:
        if bucket.maximum is None:
            continue
        index = (bucket.last_time_us - begin) * count // span
        known = values[index]
        values[index] = bucket.maximum if known is None else max(known, bucket.maximum)
    return tuple(values)


# The processes of a running job, as its agents list them at each sample

MOST_ROWS: Final = 200
"""More than an agent lists; what has more was not written by one."""
COMMAND_CHARACTERS: Final = 400


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """One process of a learner."""

    pid: int
    parent: int
    user: str
    cpu_percent: float
    """Since the sample before, of one CPU."""
    memory_bytes: int
    gpu_memory_bytes: int | None
    """None where it uses no GPU, or the driver does not say."""
    command: str


@dataclass(frozen=True, slots=True)
class ProcessList:
    """The processes of a learner when it was last sampled."""

    time_us: int
    processes: tuple[ListedProcess, ...]
    omitted: int = 0
    """How many more there are."""

    def tree(self) -> list[tuple[tuple[bool, ...], ListedProcess]]:
        """Return the processes, parents before their children; each with which of its ancestors are the last child."""
        known = {one.pid: one for one in self.processes}
        below: dict[int, list[ListedProcess]] = {}
        for one in sorted(self.processes, key=lambda process: process.pid):
            is_root = one.parent not in known or one.parent == one.pid
            below.setdefault(0 if is_root else one.parent, []).append(one)
        found: list[tuple[tuple[bool, ...], ListedProcess]] = []
        # What has no way to a root (a list that makes no sense) is not shown: nothing goes round.
        waiting: list[tuple[tuple[bool, ...], ListedProcess]] = [
            ((), one) for one in reversed(below.get(0, []))
        ]
        while waiting:
            branch, one = waiting.pop()
            found.append((branch, one))
            children = below.get(one.pid, [])
            waiting += [
                ((*branch, child is children[-1]), child) for child in reversed(children) if child is not one
            ]
        return found


def parse_processes(data: bytes) -> ProcessList | None:
    """Read an agent's list; None where there is none, or what is there makes no sense."""
    try:
        document = json.loads(data.split(b"\n", 1)[0])
        rows = [_process(row) for row in document["processes"][:MOST_ROWS]]
        return ProcessList(int(document["time"]), tuple(rows), max(0, int(document.get("omitted") or 0)))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _process(row: Mapping[str, Any]) -> ListedProcess:
    on_gpus = row.get("gpu_memory_bytes")
    return ListedProcess(
        int(row["pid"]),
        int(row["parent"]),
        printable(str(row.get("user") or ""))[:32],
        float(row.get("cpu_percent") or 0.0),
        int(row.get("memory_bytes") or 0),
        None if on_gpus is None else int(on_gpus),
        printable(str(row.get("command") or ""))[:COMMAND_CHARACTERS],
    )


class ProcessReader:
    """Reads the lists of a job's learners again and again: here, or over one connection to its backend."""

    def __init__(self, home: Home, row: JobRow) -> None:
        self._home = home
        self._row = row
        self._connection = ExitStack()
        self._access: LearnerAccess | None = None

    @property
    def job(self) -> tuple[str, int]:
        """The job and its attempt."""
        return self._row.id, self._row.attempt

    def read(self, learners: Iterable[int]) -> dict[int, ProcessList | None]:
        """Return the list of each learner; None for one whose agent keeps none.

        Raises:
            FabricError: the backend does not answer, or the job does not run.
        """
        return {learner: self._list_of(learner) for learner in learners}

    def close(self) -> None:
        """Give the connection back."""
        self._access = None
        self._connection.close()

    def _list_of(self, learner: int) -> ProcessList | None:
        file = self._home.job(self._row.id).attempt(self._row.attempt).learner(learner).processes
        try:
            return parse_processes(file.read_bytes())
        except OSError:
            if self._row.target.type == "local":
                return None
        access = self._reached()
        ref = replace(access.ref, attempt=self._row.attempt, learner=learner)
        chunk = access.runner.journal(ref, {"processes": 0}).get("processes")
        return parse_processes(chunk.data) if chunk is not None else None

    def _reached(self) -> LearnerAccess:
        if self._access is None:
            from workbench.services.backends.learner_access import reached

            self._access = self._connection.enter_context(reached(self._row.id, 1, running=True))
        return self._access
