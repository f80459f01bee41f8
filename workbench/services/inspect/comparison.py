"""Compares jobs: their settings, what was recorded of them, their packages, their metrics, their code.

Values are whole: whoever shows them cuts them.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import math
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import FabricError, InputMissing
from workbench.formats import number
from workbench.job import short_id
from workbench.services.inspect.job_overview import ran_with, runs_with_submitted_python
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow, SeriesRow

TEXT_BYTES: Final = 200_000
"""The lines of larger files are not compared."""

VALUES: Final = ("last", "min", "max")
"""Which value of a metric is compared."""
LABEL_VALUE_LENGTH: Final = 24
"""Settings with longer values name no job."""
_PARAMS: Final = "params."
_NO_LABELS: Final = ("name", "labels", "tags", "note")
"""Settings that do not say how jobs differ."""
_FEW: Final = 10

NOT_COMPARED: Final = ("argv", "packages", "rerun_of", "data", "data_cache_bytes")
"""Recorded, but no setting: how the command was worded. Packages are compared by themselves."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a comparison knows of one job."""

    row: JobRow
    detail: JobDetail | None
    """None where the job's folder is damaged: its settings are not known then."""
    series: Mapping[str, SeriesRow]
    """Metrics by name; of several learners the first one's."""
    uncommitted: str
    """The difference of its code from the last commit, as git prints it; empty where there is none."""
    environment: Mapping[str, Any]
    """What its backend recorded of the last attempt: packages that were resolved, the image with its digest."""
    data: Mapping[str, str]
    """The fingerprint of each store's data."""

    @property
    def code_hash(self) -> str:
        """The hash of its code's snapshot; empty where it has none."""
        return self.detail.code_hash if self.detail else ""

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What was recorded when it was submitted, nested."""
        return self.detail.recorded if self.detail else {}


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """One value of all jobs."""

    key: str
    values: tuple[Any, ...]
    """In the order of the jobs; None where a job has none."""

    @property
    def differs(self) -> bool:
        """Whether the jobs do not agree in it."""
        return len({repr(value) for value in self.values}) > 1


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """One metric of all jobs."""

    name: str
    series: tuple[SeriesRow | None, ...]
    """In the order of the jobs; None where a job has not reported it."""
    smaller_is_better: bool | None
    """None where the metric's name does not say."""

    def values(self, which: str) -> tuple[float | None, ...]:
        """Return each job's ``last``, ``min`` or ``max`` value; None where it has none that is a number."""
        field = {"last": "last", "min": "minimum", "max": "maximum"}[which]
        found = [None if each is None else getattr(each, field) for each in self.series]
        return tuple(value if value is not None and math.isfinite(value) else None for value in found)

    def best_of(self, values: Sequence[float | None]) -> tuple[bool, ...]:
        """Say of each of these values whether no other is better; of none where all are the same, or nobody knows."""
        from workbench.metric_names import best_value

        known = {value for value in values if value is not None}
        best = best_value(self.name, known) if len(known) > 1 else None
        return tuple(best is not None and value == best for value in values)

    def order(self, values: Sequence[float | None]) -> list[int]:
        """Return the places of jobs by these values, the best first; the largest where nobody knows which is best."""
        sign = 1.0 if self.smaller_is_better else -1.0
        return sorted(
            range(len(values)), key=lambda place: math.inf if (v := values[place]) is None else sign * v
        )

    def best_values(self) -> tuple[float | None, ...]:
        """Return each job's best value; None where it has none, or nobody knows which is the best."""
        if self.smaller_is_better is None:
            return tuple(None for _ in self.series)
        field = "minimum" if self.smaller_is_better else "maximum"
        return tuple(None if each is None else getattr(each, field) for each in self.series)

    def is_best(self) -> tuple[bool, ...]:
        """Say of each job whether no other has a better value; of none where only one has values."""
        from workbench.metric_names import best_value

        values = self.best_values()
        best = best_value(self.name, values) if sum(value is not None for value in values) > 1 else None
        return tuple(best is not None and value == best for value in values)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several jobs, each value of all of them together."""

    jobs: tuple[JobRecord, ...]
    settings: tuple[ComparedValue, ...]
    """Every setting by its dotted key, backend (``target``) and runner first."""
    recorded: tuple[ComparedValue, ...]
    """What was recorded at the launch by its dotted key: git, interpreter, machine, driver, seed, data, version."""
    packages: tuple[ComparedValue, ...]
    """The version of each package of the interpreters."""
    metrics: tuple[ComparedMetric, ...]

    @property
    def params(self) -> tuple[ComparedValue, ...]:
        """The params in which jobs differ."""
        return tuple(value for value in self.settings if value.differs and value.key.startswith(_PARAMS))

    @property
    def varied(self) -> tuple[ComparedValue, ...]:
        """The params in which jobs differ, then other settings of short values in which they do."""
        others = [
            value
            for value in self.settings
            if value.differs
            and not value.key.startswith((_PARAMS, *_NO_LABELS))
            and all(len(str(each)) <= LABEL_VALUE_LENGTH for each in value.values)
        ]
        return (*self.params, *others)

    def telling_keys(self) -> tuple[ComparedValue, ...]:
        """Return the fewest settings that tell all jobs apart, or as many of them as they can; params before others."""
        few = _fewest(self.params, len(self.jobs))
        if few and _distinct(few) == len(self.jobs):
            return few
        more = _fewest(self.varied, len(self.jobs))
        return more if _distinct(more) > _distinct(few) else few

    def labels(self) -> tuple[str, ...]:
        """Name each job by what tells it apart, ``lr=0.1``; by its name or id only as far as nothing else does."""
        told = self.telling_keys()
        ends = [value.key.rpartition(".")[2] for value in told]
        parts: list[list[str]] = [[] for _ in self.jobs]
        for value, end in zip(told, ends, strict=True):
            name = end if ends.count(end) == 1 else value.key
            for job_parts, shown in zip(parts, _texts(value.values), strict=True):
                job_parts.append(f"no {name}" if shown is None else f"{name}={shown}")
        labels = [" ".join(found) for found in parts]
        for own in ([job.row.name for job in self.jobs], [short_id(job.row.id) for job in self.jobs]):
            clear = [bool(label) and labels.count(label) == 1 for label in labels]
            helps = [not label or len(set(own)) > 1 for label in labels]
            labels = [
                f"{label} {more}".strip() if not is_clear and does_help else label
                for label, more, is_clear, does_help in zip(labels, own, clear, helps, strict=True)
            ]
        return tuple(labels)


def _distinct(values: Sequence[ComparedValue]) -> int:
    """Return how many jobs these settings tell apart."""
    return len(set(zip(*(_texts(value.values) for value in values), strict=True)))


def _fewest(among: Sequence[ComparedValue], jobs: int) -> tuple[ComparedValue, ...]:
    """Return the shortest set of settings that tells as many of the jobs apart as all of them do.

    Of a few settings sets of up to three are tried; larger ones grow from the best of these.
    """
    among = [value for value in among if len(set(_texts(value.values))) > 1]
    if not among:
        return ()
    most = min(jobs, _distinct(among))
    best: tuple[ComparedValue, ...] = ()
    for size in range(1, min(len(among), 3 if len(among) <= _FEW else 1) + 1):
        best = min(itertools.combinations(among, size), key=lambda few: (-_distinct(few), _width(few)))
        if _distinct(best) == most:
            return best
    while _distinct(best) < most:
        rest = [(*best, value) for value in among if value not in best]
        best = min(rest, key=lambda few: (-_distinct(few), _width(few)))
    return tuple(sorted(best, key=among.index))


def _width(values: Sequence[ComparedValue]) -> int:
    return sum(len(value.key) + max(len(str(each)) for each in value.values) for value in values)


def _texts(values: Sequence[Any]) -> list[str | None]:
    """Write the values of one setting shortly; different ones look the same only where they differ by noise."""
    exact = [
        None if each is None else f"{each:.12g}" if isinstance(each, float) else repr(each) for each in values
    ]
    short = [
        None if each is None else number(each) if isinstance(each, float) else str(each) for each in values
    ]
    return short if len(set(short)) == len(set(exact)) else exact


@dataclass(frozen=True, slots=True)
class FileDifference:
    """One file that is not the same in two snapshots."""

    name: str
    before_bytes: int | None
    """Its size; None where it is not there."""
    after_bytes: int | None
    lines: tuple[str, ...] | None
    """The unified difference; None where one of the files is not a text, or too large to be compared by lines."""


def compare(store: Store, rows: Sequence[JobRow]) -> Comparison:
    """Compare jobs, whose order the result keeps. Snapshots of code are compared by :func:`code_differences`."""
    jobs = tuple(_record(store, row) for row in rows)
    return Comparison(
        jobs,
        _compared(jobs, _settings),
        _compared(jobs, _recorded),
        _compared(jobs, _packages),
        _metrics(jobs),
    )


def _record(store: Store, row: JobRow) -> JobRecord:
    from workbench.data.stores.fingerprints import recorded_data
    from workbench.metrics import series
    from workbench.store.queries.jobs import detail

    found: dict[str, SeriesRow] = {}
    for each in series(store, row.id, kinds=("value",)):
        if each.points:
            found.setdefault(each.name, each)
    folder = store.home.job(row.id)
    text = folder.diff.read_text(encoding="utf-8", errors="replace") if folder.diff.exists() else ""
    try:
        known = detail(store, row.id)
    except FabricError:
        known = None
    return JobRecord(row, known, found, text, ran_with(store, row), recorded_data(folder, row.attempt))


def _compared(
    jobs: Sequence[JobRecord], read: Callable[[JobRecord], Mapping[str, Any]]
) -> tuple[ComparedValue, ...]:
    tables = [read(job) for job in jobs]
    keys = dict.fromkeys(key for table in tables for key in table)
    return tuple(ComparedValue(key, tuple(table.get(key) for table in tables)) for key in keys)


def _settings(job: JobRecord) -> dict[str, Any]:
    from workbench.services.inspect.settings import job_settings

    target = job.row.target
    return {
        "place": target.backend,
        "runner": target.runner,
        **(job_settings(job.detail) if job.detail else {}),
    }


def _recorded(job: JobRecord) -> dict[str, Any]:
    from workbench.services.inspect.settings import flatten

    kept = {key: value for key, value in job.recorded.items() if key not in NOT_COMPARED}
    environment = {key: value for key, value in job.environment.items() if key not in ("format", "packages")}
    return {
        **(flatten(kept) if kept else {}),
        **flatten(environment, prefix="there"),
        **flatten(job.data, prefix="data"),
    }


def _packages(job: JobRecord) -> dict[str, str]:
    ours = job.recorded if runs_with_submitted_python(job.row) else {}
    packages = job.environment.get("packages") or ours.get("packages") or ()
    pairs = (str(each).partition("==") for each in packages)
    return {name: version for name, _, version in pairs}


def _metrics(jobs: Sequence[JobRecord]) -> tuple[ComparedMetric, ...]:
    from workbench.metric_names import smaller_is_better

    names = dict.fromkeys(name for job in jobs for name in job.series)
    return tuple(
        ComparedMetric(name, tuple(job.series.get(name) for job in jobs), smaller_is_better(name))
        for name in names
    )


def code_differences(
    home: Home, before_hash: str, after_hash: str, labels: tuple[str, str] = ("a", "b")
) -> tuple[FileDifference, ...]:
    """Return each file that differs between two snapshots, by name.

    Args:
        home: Whose snapshots.
        before_hash: The hash of the first snapshot; empty stands for no code.
        after_hash: That of the second.
        labels: What the snapshots are called in the heads of differences.

    Raises:
        InputMissing: a snapshot is not there any more.
    """
    if before_hash == after_hash:
        return ()
    before, after = _files(home, before_hash), _files(home, after_hash)
    names = sorted(before.keys() | after.keys())
    return tuple(
        _difference(name, before.get(name), after.get(name), labels)
        for name in names
        if before.get(name) != after.get(name)
    )


@dataclass(frozen=True, slots=True)
class _SnapshotFile:
    size_bytes: int
    digest: bytes
    text: bytes | None
    """None where it is not a text, or too large."""


def _files(home: Home, code_hash: str) -> dict[str, _SnapshotFile]:
    if not code_hash:
        return {}
    try:
        with tarfile.open(home.snapshot(code_hash)) as archive:
            return {member.name: _read(archive, member) for member in archive if member.isfile()}
    except (OSError, tarfile.TarError) as error:
        raise InputMissing(f"the code {code_hash[:12]} no longer exists: {error}") from error


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> _SnapshotFile:
    stream = archive.extractfile(member)
    if stream is None:
        return _SnapshotFile(member.size, b"", b"")
    if member.size <= TEXT_BYTES:
        data = stream.read()
        return _SnapshotFile(member.size, hashlib.sha256(data).digest(), None if b"\0" in data else data)
    digest = hashlib.sha256()
    while block := stream.read(1 << 20):
        digest.update(block)
    return _SnapshotFile(member.size, digest.digest(), None)


def _difference(
    name: str, before: _SnapshotFile | None, after: _SnapshotFile | None, labels: tuple[str, str]
) -> FileDifference:
    sizes = [None if each is None else each.size_bytes for each in (before, after)]
    texts = [b"" if each is None else each.text for each in (before, after)]
    lines = None
    if (old := texts[0]) is not None and (new := texts[1]) is not None:
        paths = [
            "/dev/null" if each is None else f"{label}/{name}"
            for label, each in zip(labels, (before, after), strict=True)
        ]
        old_lines, new_lines = (data.decode(errors="replace").splitlines() for data in (old, new))
        lines = tuple(difflib.unified_diff(old_lines, new_lines, paths[0], paths[1], lineterm=""))
    return FileDifference(name, sizes[0], sizes[1], lines)
