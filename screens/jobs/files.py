"""What files a job has left or is writing, never more of them than a person reads; and reading one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from textual.content import Content

from screens.widgets.markup import plain
from screens.workers.background import cancel_event
from workbench import formats
from workbench.errors import FabricError
from workbench.metrics.queries import CheckpointRow
from workbench.paths import Home, JobFolder
from workbench.services.transfer.job_files import ListedFile, files_here, list_files, read_beginning
from workbench.store.db.database import Store
from workbench.store.db.rows import JobRow
from workbench.values import dataclass

MOST: Final = 300
SHOWN_BYTES: Final = 200_000
"""So much of a text is shown; all of it can be downloaded."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a job, or a checkpoint that it reported."""

    path: str
    """As ``fabric cp`` takes it behind the job: ``results/model.pt``."""
    size: int | None
    changed_us: int
    step: int | None = None
    facts: str = ""
    """A checkpoint's metrics."""
    is_checkpoint: bool = False


def found_files(folder: JobFolder) -> Callable[[Store], list[FoundFile]]:
    """Return the query for the files under results and checkpoints here, the newest first."""

    def read(store: Store) -> list[FoundFile]:
        del store
        return _newest(files_here(folder, 10 * MOST))

    return read


def files_there(job_id: str) -> list[FoundFile]:
    """Ask the job's backend what files there are, which may take a moment.

    Raises:
        FabricError: the backend does not answer, or cannot list them.
    """
    return _newest(list_files(job_id, cancel=cancel_event()).files)


def _newest(files: Iterable[ListedFile]) -> list[FoundFile]:
    found = [FoundFile(one.path, one.size_bytes, one.modified_us) for one in files if one.kind == "file"]
    return sorted(found, key=lambda file: -file.changed_us)[:MOST]


def with_checkpoints(files: Sequence[FoundFile], checkpoints: Sequence[CheckpointRow]) -> list[FoundFile]:
    """Return checkpoints that the job reported, then its other files; one that is both stands once."""
    sizes = {file.path: file.size for file in files}
    saved = {path: _checkpoint(row, path, sizes) for row in checkpoints for path in (_in_job(row.path),)}
    first = sorted(saved.values(), key=lambda file: -file.changed_us)
    return [*first, *(file for file in files if file.path not in saved)]


def _in_job(path: str) -> str:
    """Return a path as ``fabric cp`` takes it: the learner names it as it sees it, ``/mnt/checkpoints/7.pt``."""
    at = path.rfind("/checkpoints/")
    return path[at + 1 :] if path.startswith("/") and at >= 0 else path


def _checkpoint(row: CheckpointRow, path: str, sizes: dict[str, int | None]) -> FoundFile:
    facts = "  ".join(
        f"{name} {formats.compact_number(value)}"
        for name, value in row.metrics.items()
        if isinstance(value, int | float)
    )
    return FoundFile(path, sizes.get(path), row.time_us, row.step, facts, True)


def read_file(home: Home, job: JobRow, path: str) -> tuple[str, Content]:
    """Return the beginning of a file as a title and a text, from here or from the job's backend.

    Raises:
        InputMissing: it is not there.
        FabricError: the backend does not answer.
    """
    found = read_beginning(home, job.id, path, SHOWN_BYTES, cancel=cancel_event())
    title = f"{path}  {formats.size(found.size_bytes)}" + (
        f", the first {formats.size(SHOWN_BYTES)}" if found.size_bytes > SHOWN_BYTES else ""
    )
    if b"\0" in found.data[:8192]:
        return title, plain("not a text file; ctrl+s downloads it", "dim")
    return title, plain(found.data.decode("utf-8", "replace"))


def refusal(error: FabricError) -> str:
    """Say in one line why there are no files to show."""
    return f"{error}".split("\n", 1)[0]
