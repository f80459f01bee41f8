"""Finds what belongs to no job: learners at backends, files of deleted jobs, code that no job uses."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from workbench.data.code.pack import remove_pack
from workbench.errors import CannotWrite, FabricError, NotAllowed
from workbench.job import short_id
from workbench.store.db.rows import is_over
from workbench.values import dataclass

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Cluster, Host, HostGroup
    from runners.interface import LearnerRef, Runner
    from workbench.store.db.database import Store


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that belongs to no job."""

    kind: str
    """``learner``, ``folder``, ``code``, ``secrets``."""
    backend: str
    """Where it is; :data:`HERE` for files of this home."""
    name: str
    why: str
    size_bytes: int | None = None
    remove: Callable[[], None] | None = None
    """None for what carries another home's mark: it is never removed."""


def remove_leftover(leftover: Leftover) -> FabricError | None:
    """Remove one thing of this home; return why it stays where it cannot be removed."""
    assert leftover.remove is not None
    try:
        leftover.remove()
    except FabricError as error:
        return error
    except OSError as error:
        kind = NotAllowed if isinstance(error, PermissionError) else CannotWrite
        return kind(f"{error.filename}: {error.strerror}")
    return None


def _job_folders(target: Host | Cluster | HostGroup, ours: str) -> Iterator[tuple[str, str]]:
    """Yield home and job of each job folder at a host; this machine's are the home's own."""
    from backends.contract.host import Host

    if not isinstance(target, Host) or target.here:
        return
    machine = PurePosixPath(target.folder(ours)).parent
    for home in target.call("children", folder=str(machine)):
        for job_id in target.call("children", folder=str(machine / home / "jobs")):
            yield home, job_id


def _leftover_folders(
    store: Store, options: BackendOptions, folders: Sequence[tuple[str, str]]
) -> Iterator[Leftover]:
    """Yield those that belong to no job here, the ones of this home with what removes them."""
    from workbench.store.db.database import home_uuid
    from workbench.store.queries.jobs import job

    ours = home_uuid(store.home)
    for home, job_id in folders:
        row = job(store, job_id)
        if home != ours:
            if row is None or row.target.home("") != home:
                yield Leftover("folder", options.name, short_id(job_id), f"of another home, {home}")
            continue
        if row is None and store.home.job(job_id).path.exists():
            continue  # a database that was lost may be made again from it
        if row is None or row.deleted_us is not None:
            why = "its job was deleted" if row else "the store knows no such job"
            action = partial(_remove_folder, options, job_id, ours)
            yield Leftover("folder", options.name, short_id(job_id), why, remove=action)


def _remove_folder(options: BackendOptions, job_id: str, ours: str) -> None:
    from backends.contract.host import Host
    from workbench.controller.client.sessions import load_client_backend

    with closing(load_client_backend(options).open()) as target:
        assert isinstance(target, Host)
        target.call("remove", paths=[str(PurePosixPath(target.folder(ours)) / "jobs" / job_id)])


HERE: Final = "this home"

SUBMIT_SECONDS: Final = 600.0
"""So long after its code was packed a job may be submitted."""

SETTLE_SECONDS: Final = 2.0
"""How long an agent may take to go after its learner has ended."""


@dataclass(frozen=True, slots=True)
class FoundLeftovers:
    """What belongs to no job."""

    leftovers: tuple[Leftover, ...]
    problems: tuple[str, ...]
    """Which backends could not be asked, in sentences."""


def find_leftovers(store: Store, backend: str = "") -> FoundLeftovers:
    """Find what belongs to no job: at one backend, or at all of them and in this home.

    Raises:
        FabricError: the one backend that was named could not be asked.
    """
    from backends.contract.host_group import member_options
    from workbench.services.backends.placement import backend_options, known_backends

    if backend:
        members = member_options(backend_options(backend))
        return FoundLeftovers(tuple(one for each in members for one in _learners(store, each)), ())
    found: list[Leftover] = []
    problems: list[str] = []
    for name in known_backends():
        try:
            found += _learners(store, backend_options(name))
        except FabricError as error:
            problems.append(f"{name} could not be asked: {error}")
    found += [*_folders(store), *_secrets(store), *_code(store)]
    return FoundLeftovers(tuple(found), tuple(problems))


def _learners(store: Store, options: BackendOptions) -> Iterator[Leftover]:
    from runners.registry import load_runner, runners_at
    from workbench.controller.client.sessions import load_client_backend
    from workbench.store.db.database import home_uuid

    ours = home_uuid(store.home)
    backend = load_client_backend(options)
    folders: dict[tuple[str, str], None] = {}
    found: dict[LearnerRef, str] = {}
    for runner_name in runners_at(backend):
        if backend.why_not(runner_name):
            continue  # no engine, so nothing of ours in it
        with closing(backend.open()) as target:
            if not folders:
                yield from _expired_code(target, options, ours)
            folders = folders or dict.fromkeys(_job_folders(target, ours))
            runner: Runner = load_runner(runner_name)(target, home_uuid=ours)
            with closing(runner):
                refs = _settled(store, runner, ours)
        # Runners that start processes see each other's: what a learner leaves is removed by its own runner.
        found |= {
            ref: runner_name for ref in refs if ref not in found or _runner_of(store, ref) == runner_name
        }
    for ref, runner_name in found.items():
        name = f"{short_id(ref.job_id)} attempt {ref.attempt} learner {ref.learner}"
        if ref.home != ours and not _is_adopted(store, ref):
            yield Leftover("learner", options.name, name, f"of another home, {ref.home}")
        elif why := _why_left(store, ref):
            action = partial(_remove_learner, options, runner_name, ref)
            yield Leftover("learner", options.name, name, why, remove=action)
    with_learners = {(ref.home, ref.job_id) for ref in found}
    yield from _leftover_folders(store, options, [one for one in folders if one not in with_learners])


def _expired_code(
    target: Host | Cluster | HostGroup, options: BackendOptions, ours: str
) -> Iterator[Leftover]:
    from backends.contract.host import Host
    from runners.shared.code import keep_seconds

    if isinstance(target, Host) and (unused := code_at(target, ours, keep_seconds(target))).count:
        days = keep_seconds(target) / 86400
        action = partial(expire_code_at, options, ours, keep_seconds(target))
        why = f"no job has used it for {days:g} days"
        yield Leftover("code", options.name, f"{unused.count} parts", why, unused.size_bytes, action)


@dataclass(frozen=True, slots=True)
class UnusedCode:
    """Code at a host that no job has used for a while, and that of jobs that have ended."""

    count: int
    size_bytes: int


def code_at(host: Host, ours: str, older_than_seconds: float, *, dry_run: bool = True) -> UnusedCode:
    """Return what code a host has that no job has used for so long, and remove it unless this is a dry run."""
    from runners.shared.code import folders_of
    from runners.shared.host_facts import read_host_facts

    site = read_host_facts(host, ours)
    if site.here or not site.python:
        return UnusedCode(0, 0)
    found = host.call(
        "expire_code", **folders_of(site), older_than_seconds=older_than_seconds, dry_run=dry_run
    )
    return UnusedCode(found["count"], found["size_bytes"])


def expire_code_at(options: BackendOptions, ours: str, older_than_seconds: float) -> None:
    """Remove the code that no job has used for so long at a host."""
    from backends.contract.host import Host
    from workbench.controller.client.sessions import load_client_backend

    with closing(load_client_backend(options).open()) as target:
        assert isinstance(target, Host)
        code_at(target, ours, older_than_seconds, dry_run=False)


def _runner_of(store: Store, ref: LearnerRef) -> str:
    from workbench.store.queries.jobs import job

    row = job(store, ref.job_id)
    return row.target.runner if row else ""


def _is_adopted(store: Store, ref: LearnerRef) -> bool:
    from workbench.store.queries.jobs import job

    row = job(store, ref.job_id)
    return row is not None and row.target.home("") == ref.home


def _settled(store: Store, runner: Runner, ours: str) -> list[LearnerRef]:
    """Ask twice where a learner has just ended: its agent needs a moment to go, and goes by itself."""
    from workbench.clock import elapsed_seconds

    deadline = elapsed_seconds() + SETTLE_SECONDS
    while True:
        refs = list(runner.leftovers())
        if (
            not any(ref.home == ours and _why_left(store, ref) for ref in refs)
            or elapsed_seconds() > deadline
        ):
            return refs
        time.sleep(0.05)


def _why_left(store: Store, ref: LearnerRef) -> str:
    from workbench.store.queries.jobs import job

    row = job(store, ref.job_id)
    if row is None:
        return "the store knows no such job; `fabric doctor --rebuild` may"
    if row.deleted_us is not None:
        return "its job was deleted"
    # Of an open job the host may have begun the next attempt.
    if ref.attempt < row.attempt or is_over(row):
        return "its attempt is over"
    return ""


def _remove_learner(options: BackendOptions, runner_name: str, ref: LearnerRef) -> None:
    from runners.interface import AttemptRef, StopRequest
    from runners.registry import load_runner
    from workbench.controller.client.sessions import load_client_backend

    attempt = AttemptRef(ref.home, ref.job_id, ref.attempt, ref.learner)
    with closing(load_client_backend(options).open()) as target:
        runner: Runner = load_runner(runner_name)(target, home_uuid=ref.home)
        with closing(runner):
            runner.stop(attempt, StopRequest("kill", 0.0, "gc"))
            runner.remove(attempt)


def _folders(store: Store) -> Iterator[Leftover]:
    """Folders of jobs that were deleted; one that the store does not know may be a lost job and is left."""
    from workbench.store.queries.jobs import deleted_jobs, job

    for row in deleted_jobs(store):
        folder = store.home.job(row.id).path
        if folder.exists():
            yield _files("folder", row.id, "its job was deleted", folder)
    if store.home.jobs.is_dir():
        for folder in sorted(store.home.jobs.iterdir()):
            if job(store, folder.name) is None and not (folder / "job.json").exists():
                action = partial(_remove_unsubmitted, folder)
                why = "no job was ever submitted from it"
                yield Leftover("folder", HERE, folder.name, why, _size(folder), action)


def _remove_unsubmitted(folder: Path) -> None:
    """Remove a folder without a job, unless it has one by now."""
    if not (folder / "job.json").exists():
        remove_path(folder)


def _secrets(store: Store) -> Iterator[Leftover]:
    from workbench.controller.runtime.secrets import unfinished
    from workbench.store.queries.experiments import experiments
    from workbench.store.queries.jobs import job

    if not store.home.secrets.is_dir():
        return
    searches = {search.id for search in experiments(store, only_open=True)}
    for file in sorted(store.home.secrets.glob("*.json")):
        if file.stem in searches:
            continue
        row = job(store, file.stem)
        if row is None and store.home.job(file.stem).path.exists():
            continue
        if row is None or row.deleted_us is not None:
            yield _files("secrets", file.stem, "its job no longer exists", file)
    for file in unfinished(store.home):
        if not _was_just_used(file):  # else it takes its job's place in a moment
            job_id = file.name[1 : -len(file.suffix)]
            yield _files("secrets", job_id, "whoever wrote it was killed", file)


def _code(store: Store) -> Iterator[Leftover]:
    for file in unused_code(store, set()):
        code_hash = file.name.removesuffix(".tar.gz")
        yield Leftover(
            "code", HERE, code_hash[:12], "no job uses it", _size(file), partial(remove_unused_code, file)
        )


def unused_code(store: Store, removed: set[str]) -> list[Path]:
    """Return the snapshots that no job was made of, but perhaps the ``removed`` ones, and that no open search needs.

    None while there are job folders that the store does not know. One that was used a moment ago may be that of a job
    which is about to be submitted: it is none of them.
    """
    from workbench.store.queries.experiments import experiments, read_experiment_file
    from workbench.store.queries.jobs import detail, job, list_jobs

    folders = list(store.home.jobs.iterdir()) if store.home.jobs.is_dir() else []
    if not store.home.code.is_dir() or any(job(store, folder.name) is None for folder in folders):
        return []
    try:
        used = {detail(store, row.id).code_hash for row in list_jobs(store) if row.id not in removed}
        for search in experiments(store, only_open=True):
            used.add(read_experiment_file(store.home, search.id).get("code_hash") or "")
    except FabricError:
        return []
    files = sorted(store.home.code.glob("*.tar.gz"))
    return [
        file for file in files if file.name.removesuffix(".tar.gz") not in used and not _was_just_used(file)
    ]


def remove_unused_code(file: Path) -> None:
    """Remove a snapshot that :func:`unused_code` has returned, unless a job that is being submitted uses it by now."""
    if not _was_just_used(file):
        remove_pack(file)


def _was_just_used(file: Path) -> bool:
    """Say whether a file was made or taken so recently that who needs it may not be in the store yet."""
    try:
        return time.time() - file.stat().st_mtime < SUBMIT_SECONDS
    except FileNotFoundError:
        return False


def _files(kind: str, name: str, why: str, path: Path) -> Leftover:
    return Leftover(kind, HERE, name, why, _size(path), partial(remove_path, path))


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)


def remove_path(path: Path) -> None:
    """Remove a file or a folder with all that is in it; what has gone meanwhile is no error.

    Raises:
        OSError: something in it cannot be removed; all else is.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    errors: list[OSError] = []

    def note(function: object, name: str, raised: tuple[type[BaseException], BaseException, object]) -> None:
        error = raised[1]
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            error.filename = name  # it is relative to the folder that is open
            errors.append(error)

    shutil.rmtree(path, onerror=note)
    if errors:
        raise errors[0]
