"""A job's checkpoints: which it reported, where each is, how good each is, and their removal from there."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.contract.errors import translated
from workbench.errors import FabricError
from workbench.job import TERMINAL
from workbench.learner.platform.beneath import Root, relative
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.controller.runtime.result_store import ResultStore
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

_FOLDER: Final = re.compile(r".*/(?:_?checkpoints|_wml_checkpoints)/(.+)", re.DOTALL)
HERE, IN_STORE = "here", "store"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint."""

    name: str
    """Below the folder for checkpoints."""
    step: int | None
    attempt: int
    time_us: int
    size_bytes: int | None
    sha256: str
    metrics: Mapping[str, Any]
    where: tuple[str, ...]
    """``here``, ``store``, or the name of its backend; empty when it is nowhere any more."""
    found: str = ""
    """How it was found where the code did not report it: ``unnumbered`` for one that it writes again and again."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that this one's files fit in a folder of checkpoints."""
        return (self.name, f"{self.name}/**", f"{self.name}.metadata.json")


def list_checkpoints(store: Store, row: JobRow, report: Callable[[str], object]) -> list[Checkpoint]:
    """Return a job's checkpoints in the order of their time; one that was reported twice counts once.

    At equal times one without a step is the last: it repeats the newest of the others.

    ``report`` takes a sentence where the job's store does not say which of them it has.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.metrics import checkpoints
    from workbench.store.queries.jobs import detail

    stored = result_store(detail(store, row.id).spec, row.id)
    in_store = _names_in_store(store, stored, report)
    found: dict[str, Checkpoint] = {}
    for each in checkpoints(store, row.id):
        name = name_of(each.path, row.id)
        size_bytes = each.metadata.get("size_bytes")
        found[name] = Checkpoint(
            name=name,
            step=each.step,
            attempt=each.attempt,
            time_us=each.time_us,
            size_bytes=size_bytes if isinstance(size_bytes, int) else _size_here(store, row, stored, name),
            sha256=str(each.metadata.get("sha256") or ""),
            metrics=each.metrics,
            where=_where(store, row, stored, name, in_store),
            found=str(each.metadata.get("found") or ""),
        )
    return sorted(found.values(), key=lambda each: (each.time_us, each.step is None, each.step or 0))


def name_of(path: str, job_id: str = "") -> str:
    """Return what a checkpoint is called below the folder for them, by the path that training code reported.

    One that lies in RESULT_DIR of this job is called by its path below that.
    """
    own = (
        re.search(rf"/{re.escape(job_id)}/(?:_?checkpoints|results)/(.+)", path, re.DOTALL)
        if job_id
        else None
    )
    match = own or _FOLDER.fullmatch(path)
    if match and ".." not in Path(match[1]).parts:
        return match[1]
    return Path(path).name


def _names_in_store(store: Store, stored: ResultStore | None, report: Callable[[str], object]) -> list[str]:
    if stored is None or stored.store.is_folder:
        return []
    try:
        return [each.path for each in stored.transfer(store.home).files(stored.checkpoints)]
    except FabricError as error:
        report(f"what the store has of them is not known: {error.message}")
        return []


def _size_here(store: Store, row: JobRow, stored: ResultStore | None, name: str) -> int | None:
    """Return how large a folder of a checkpoint is, which nobody has measured; None where it is not here."""
    for folder in _folders_here(store, row, stored):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            return sum(map(_file_bytes, path.rglob("*")))
    return None


def _file_bytes(path: Path) -> int:
    with contextlib.suppress(OSError):  # removed meanwhile
        return path.lstat().st_size if path.is_file() else 0
    return 0


def _where(
    store: Store, row: JobRow, stored: ResultStore | None, name: str, in_store: Sequence[str]
) -> tuple[str, ...]:
    found = [HERE] if any((each / name).exists() for each in _folders_here(store, row, stored)) else []
    if any(path == name or path.startswith(f"{name}/") for path in in_store):
        found.append(IN_STORE)
    if not found and row.target.type != "local" and row.state not in TERMINAL:
        found.append(row.target.backend)
    return tuple(found)


def _folders_here(store: Store, row: JobRow, stored: ResultStore | None) -> tuple[Path, Path]:
    """Return where a job's checkpoints may lie on this machine."""
    return _folder(store, row, stored), store.home.job(row.id).results


def _folder(store: Store, row: JobRow, stored: ResultStore | None) -> Path:
    if stored is not None and stored.store.is_folder and row.target.type == "local":
        return Path(stored.checkpoints)
    return store.home.job(row.id).checkpoints


def is_inside(name: str, folder: str) -> bool:
    """Say whether what has one name is what has the other one, or lies in the folder of that."""
    name, folder = os.path.normpath(name), os.path.normpath(folder)
    return name == folder or name.startswith(f"{folder}/")


def is_linked_name(store: Store, row: JobRow, name: str) -> bool:
    """Say whether a link is on the way to a checkpoint here, or is what has its name."""
    parts = Path(name).parts
    return any(
        folder.joinpath(*parts[:count]).is_symlink()
        for folder in _all_folders_here(store, row)
        for count in range(1, len(parts) + 1)
    )


def link_targets(store: Store, row: JobRow) -> list[tuple[str, str]]:
    """Return each link in a job's folders of checkpoints and results with what it points at, both as names there.

    A link among the results has an empty name. One that points at another link counts for both.

    Raises:
        OSError: a folder cannot be read.
    """
    folders = _all_folders_here(store, row)
    found: list[tuple[str, str]] = []
    for folder in folders:
        for link in _links(folder):
            name = os.path.relpath(link, folder) if folder == folders[0] else ""
            hop = os.path.normpath(link.parent / link.readlink())
            end = os.path.realpath(link)
            targets = {os.path.relpath(path, each) for each in folders for path in (hop, end)}
            targets |= {os.path.relpath(end, os.path.realpath(each)) for each in folders}
            # A container knows the folder by another path, so the link may point nowhere here.
            targets.add(name_of(hop, row.id))
            found += [(name, each) for each in targets if each.split("/")[0] not in (".", "..")]
    return found


def _links(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for path, folders, files in os.walk(folder, onerror=fail):
        yield from (each for name in (*folders, *files) if (each := Path(path, name)).is_symlink())


def _all_folders_here(store: Store, row: JobRow) -> tuple[Path, ...]:
    from workbench.controller.runtime.result_store import result_store
    from workbench.store.queries.jobs import detail

    return _folders_here(store, row, result_store(detail(store, row.id).spec, row.id))


def is_gone(store: Store, row: JobRow, names: Sequence[str], time_us: int) -> bool:
    """Say whether a reported checkpoint is known to be gone, without asking a store for it.

    Args:
        store: where the job is.
        row: the job.
        names: what the checkpoint may be called.
        time_us: when it was reported.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.store.queries.jobs import detail

    stored = result_store(detail(store, row.id).spec, row.id)
    if any((folder / name).exists() for folder in _folders_here(store, row, stored) for name in names):
        return False
    if row.target.type == "local" and (stored is None or stored.store.is_folder):
        return True
    removed = _removed(store, row)
    return any(removed.get(name, -1) >= time_us for name in names)


def _removed(store: Store, row: JobRow) -> dict[str, int]:
    import json

    with contextlib.suppress(OSError, ValueError):
        found = json.loads(store.home.job(row.id).removed_checkpoints.read_bytes())
        return {str(name): int(time_us) for name, time_us in found.items()}
    return {}


def _record_removed(store: Store, row: JobRow, each: Checkpoint) -> None:
    import json

    from workbench.learner.platform.files import write_files

    text = json.dumps({**_removed(store, row), each.name: each.time_us})
    with contextlib.suppress(OSError):  # a full disk is a reason to remove
        write_files({str(store.home.job(row.id).removed_checkpoints): text})


@dataclass(frozen=True, slots=True)
class MetricAtCheckpoints:
    """The values of a metric at checkpoints: those saved with one, else those reported for its step."""

    store: Store
    metric: str
    reported: dict[str, Mapping[tuple[int, float | None], float]] = field(default_factory=dict)
    """By job, what was reported by attempt and step."""
    is_exact: bool = False
    """Whether no reported value counts where it may be another's.

    So it is where several could be meant (``training/loss`` and ``validation/loss``), and where the steps of the
    metric are not those that the code counts.
    """

    def of(self, row: JobRow, checkpoint: Checkpoint) -> float | None:
        """Return the value at a checkpoint of a job; None where there is none, or none that is finite."""
        for name in (self.metric, self.metric.rpartition("/")[2]):
            value = checkpoint.metrics.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value) if math.isfinite(value) else None
        if checkpoint.step is None:
            return None
        value = self._of_job(row).get((checkpoint.attempt, checkpoint.step))
        return value if value is not None and math.isfinite(value) else None

    def is_unknown(self, row: JobRow, checkpoint: Checkpoint) -> bool:
        """Say whether a checkpoint without a value may be a good one all the same.

        It may not where a value was saved that is not finite, or where values were reported at steps of the job's
        last attempt, in which it was saved, and none at its step.
        """
        if self.of(row, checkpoint) is not None:
            return False
        if any(name in checkpoint.metrics for name in (self.metric, self.metric.rpartition("/")[2])):
            return False
        attempts = {attempt for attempt, step in self._of_job(row) if step is not None}
        return checkpoint.step is None or checkpoint.attempt != row.attempt or row.attempt not in attempts

    def _of_job(self, row: JobRow) -> Mapping[tuple[int, float | None], float]:
        if row.id not in self.reported:
            self.reported[row.id] = self._reported(row)
        return self.reported[row.id]

    def _reported(self, row: JobRow) -> Mapping[tuple[int, float | None], float]:
        from workbench.metrics import points
        from workbench.store.queries.metric_values import find_series

        series = find_series(self.store, row.id, self.metric)
        if series is None or (self.is_exact and self._is_ambiguous(row, series)):
            return {}
        return {
            (point.attempt, point.step): point.value
            for point in points(self.store, series)
            if point.value is not None
        }

    def _is_ambiguous(self, row: JobRow, series: int) -> bool:
        from workbench.store.queries.metric_values import metric_names
        from workbench.store.queries.step_course import course_of

        if course_of(self.store.connection, series):
            return True
        if self.store.row("SELECT name FROM series WHERE id = ?", (series,)) == (self.metric,):
            return False
        return sum(name.endswith(f"/{self.metric}") for name in metric_names(self.store, row.id)) > 1


def remove_checkpoints(
    store: Store,
    row: JobRow,
    picked: Sequence[Checkpoint],
    *,
    may_go: Callable[[Checkpoint], bool] | None = None,
) -> None:
    """Remove checkpoints, first from the store: what is left there would come back.

    ``may_go`` is asked right before each; what it refuses stays.
    """
    from workbench.controller.runtime.result_store import result_store
    from workbench.store.queries.jobs import detail

    stored = result_store(detail(store, row.id).spec, row.id)
    transfer = (
        stored.transfer(store.home) if stored and any(IN_STORE in each.where for each in picked) else None
    )
    folder = _folder(store, row, stored)
    results = store.home.job(row.id).results
    is_bound = folder != store.home.job(row.id).checkpoints
    for each in picked:
        if may_go is not None and not may_go(each):
            continue
        _record_removed(store, row, each)
        if transfer is not None and stored is not None and IN_STORE in each.where:
            # The mark first: what is half removed does not exist.
            transfer.remove(f"{stored.checkpoints}/{each.name}.metadata.json")
            transfer.remove(f"{stored.checkpoints}/{each.name}")
        if (results / each.name).exists() and not (folder / each.name).exists():
            with (
                translated(),
                contextlib.suppress(FileNotFoundError),
                Root(str(results), follow=True) as root,
            ):
                root.remove(each.name)  # one that was found among the results
            continue
        # A container may have put links into the way to it; where it mounts more than that, from there on.
        above = str(stored.store.results_path()) if is_bound and stored is not None else str(folder)
        with translated(), contextlib.suppress(FileNotFoundError), Root(above, follow=True) as root:
            for name in (f"{each.name}.metadata.json", each.name):
                root.remove(relative(str(folder / name), above))
