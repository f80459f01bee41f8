"""Where a job's files are fetched from: this machine, the store that they are in, or the place that it ran at."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import CannotWrite, FabricError, InputMissing, UsageError
from workbench.job import TERMINAL, short_id
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.result_store import ResultStore
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow

OURS = ("/learner-[0-9]*/**", "/_checkpoints/**")
"""What lies beside a job's results in a store and is no result of its."""

Write = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How files are wanted."""

    include: tuple[str, ...] = ()
    """Patterns; empty for all."""
    force: bool = False
    shown: bool = True
    """Whether progress is drawn."""


def fetch(store: Store, row: JobRow, kind: str, target: Path, wanted: Wanted) -> Path:
    """Fetch one kind of a job's files into a folder; return it.

    Raises:
        InputMissing: the job has none.
        CannotWrite: something is there already, or the disk takes no more.
        FabricError: they are in a store or at a place that does not give them.
    """
    from workbench.services.transfer.extract import write_folder

    if kind == "code":
        return write_folder(target, _code_of(store, row, wanted), force=wanted.force)
    if kind == "logs" and (write := _logs_of(store, row, wanted)):
        return write_folder(target, write, force=wanted.force)
    return _fetch_files(store, row, kind, target, wanted)


def _fetch_files(store: Store, row: JobRow, kind: str, target: Path, wanted: Wanted) -> Path:
    from workbench.services.result_store import result_store
    from workbench.services.transfer.extract import copy_folder, write_folder
    from workbench.store.jobs import detail

    whole = detail(store, row.id)
    stored = result_store(whole.spec, row.id)
    here = _here(store, whole, stored, kind)
    if here is not None:
        return copy_folder(here, target, force=wanted.force, include=wanted.include, within=_within(stored))
    troubles: list[FabricError] = []
    for write, going_on in _sources(store, row, stored, kind, wanted):
        try:
            return write_folder(target, write, force=wanted.force, going_on=going_on)
        except _Nothing:
            continue
        except FabricError as error:
            if target.exists() and not wanted.force:
                raise
            troubles.append(error)
    if troubles:
        raise troubles[0]
    raise InputMissing(f"{short_id(row.id)} has no {kind} yet")


def _sources(
    store: Store, row: JobRow, stored: ResultStore | None, kind: str, wanted: Wanted
) -> list[tuple[Write, str]]:
    """Return what fetches from elsewhere, the best source first, each with a word by which it can be gone on with."""
    found: list[tuple[Write, str]] = []
    if stored is not None and not stored.store.is_folder:
        found.append((lambda place: _from_store(store, stored, kind, place, wanted), short_id(row.id)))
    if row.place.type != "local" and kind != "logs":
        found.append((lambda place: _from_place(row, kind, place, wanted), ""))
    return found


class _Nothing(Exception):
    """There are no such files at a source."""


def _here(store: Store, whole: JobDetail, stored: ResultStore | None, kind: str) -> Path | None:
    """Return the folder of this machine that has the files as they are last; None where it is elsewhere."""
    row, folder = whole.row, store.home.job(whole.row.id)
    is_local = row.place.type == "local"
    if kind == "logs":
        return None
    if stored is not None and stored.store.is_folder:
        path = Path(stored.results if kind == "results" else stored.checkpoints)
        return path if is_local and path.is_dir() else None
    path = folder.results if kind == "results" else folder.checkpoints
    has_some = path.is_dir() and any(path.iterdir())
    if is_local and (has_some or (stored is None and path.is_dir())):
        return path
    return path if has_some and row.state in TERMINAL else None


def _within(stored: ResultStore | None) -> Path | None:
    """Return the folder of a bound store, which other jobs' containers write in, too."""
    if stored is None or not stored.store.is_folder:
        return None
    return Path(stored.store.results_path())


def _from_store(store: Store, stored: ResultStore, kind: str, place: Path, wanted: Wanted) -> None:
    from workbench.terminal.status_line import copy_line

    moving = stored.moving(store.home)
    source = stored.checkpoints if kind == "checkpoints" else stored.results
    exclude = OURS if kind == "results" else ()
    include = (
        wanted.include
        if kind != "logs"
        else tuple(f"/learner-*/**{each}" for each in wanted.include or ("",))
    )
    if not moving.files(source):
        raise _Nothing
    with copy_line(f"{kind} of {short_id(stored.job_id)}", shown=wanted.shown) as tell:
        moving.get(source, place, include=include, exclude=exclude, tell=tell)
    if not any(place.iterdir()):
        raise _Nothing


def _from_place(row: JobRow, kind: str, place: Path, wanted: Wanted) -> None:
    """Copy from where the job is, over the way that its runner has there."""
    from workbench.services.backends.learner_access import reached
    from workbench.services.transfer.extract import Received, copy_into, receive_folder

    got: list[Received] = []
    whole = place / ".whole" if wanted.include else place
    whole.mkdir(exist_ok=True)
    with reached(row.id, 1) as found:
        if not found.runner.files(found.ref, kind):
            raise _Nothing
        found.runner.fetch(found.ref, kind, lambda stream: got.append(receive_folder(stream, whole)))
    for name in (name for each in got for name in each.left_out):
        narrate(f"left out {name}: it leads out of the folder, or is no file")
    if wanted.include:
        import shutil

        copy_into(whole, place, wanted.include)
        shutil.rmtree(whole)


def _code_of(store: Store, row: JobRow, wanted: Wanted) -> Write:
    from workbench.data.code.snapshot import unpack
    from workbench.store.jobs import detail

    code_hash = detail(store, row.id).code_hash
    if not code_hash:
        raise InputMissing(f"{short_id(row.id)} has no code")
    snapshot = store.home.snapshot(code_hash)
    if not snapshot.exists():
        raise InputMissing(f"the code of {short_id(row.id)} is not there any more: {snapshot}")

    def write(place: Path) -> None:
        if not wanted.include:
            place.rmdir()  # it is to be made by who unpacks
            unpack(snapshot, place)
            return
        import shutil

        from workbench.services.transfer.extract import copy_into

        unpack(snapshot, place / ".whole")
        copy_into(place / ".whole", place, wanted.include)
        shutil.rmtree(place / ".whole")

    return write


def _logs_of(store: Store, row: JobRow, wanted: Wanted) -> Write | None:
    """Return what writes each learner's output, of every attempt, and LOG_DIR; None where this machine has none."""
    job = store.home.job(row.id)
    if not any(job.attempt(attempt).path.is_dir() for attempt in range(1, row.attempt + 1)):
        return None
    return lambda place: _write_logs(store, row, place, wanted)


def _write_logs(store: Store, row: JobRow, place: Path, wanted: Wanted) -> None:
    import shutil

    from workbench.services.transfer.extract import copy_into, fits, has_some

    for attempt in range(1, row.attempt + 1):
        folder = store.home.job(row.id).attempt(attempt)
        into = place / f"attempt-{attempt}" if row.attempt > 1 else place
        into.mkdir(parents=True, exist_ok=True)
        for learner in range(1, row.learners + 1):
            output, name = folder.learner(learner).output, f"learner-{learner}.log"
            if output.exists() and (not wanted.include or fits(name, wanted.include)):
                shutil.copyfile(output, into / name)
        within = folder.job_state if row.place.runner == "container" else None
        if has_some(folder.logs, within):
            (into / "log-dir").mkdir(exist_ok=True)
            copy_into(folder.logs, into / "log-dir", wanted.include, within)


def download_zips(
    job: str, chosen: Sequence[tuple[str, str]], filename: str, *, force: bool, json: bool
) -> None:
    """Write a zip for each part of a job: what is fetched, and FfDL's word for it.

    Raises:
        UsageError: one name is given for two files.
        CannotWrite: a file is there already, or cannot be written.
    """
    from workbench.services.open_store import store_with

    if filename and len(chosen) > 1:
        raise UsageError("--filename is one file; ask for one of them at a time")
    written: dict[str, Path] = {}
    with store_with(job) as (store, row), tempfile.TemporaryDirectory(prefix="fabric-zip-") as scratch:
        for kind, word in chosen:
            target = Path(filename or f"{row.id}-{word}.zip")
            if target.exists() and not force:
                raise CannotWrite(f"{target} is there already", hint="--force replaces it")
            folder = fetch(store, row, kind, Path(scratch) / kind, Wanted((), force=False, shown=not json))
            written[word] = _zipped(folder, target)
    if json:
        from workbench.terminal.json_output import print_document

        files = {word: str(path.absolute()) for word, path in written.items()}
        print_document({"schema": "fabric.download/1", "id": row.id, "files": files})
        return
    for path in written.values():
        print(path)


def _zipped(folder: Path, target: Path) -> Path:
    """Make the zip beside its place first, so that it is whole or not there."""
    try:
        with tempfile.TemporaryDirectory(prefix=".fabric-", dir=target.absolute().parent) as beside:
            made = shutil.make_archive(str(Path(beside) / "files"), "zip", root_dir=folder)
            Path(made).replace(target)
    except OSError as error:
        raise CannotWrite(f"{target} cannot be written: {error.strerror}") from error
    return target
