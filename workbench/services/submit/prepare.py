"""Prepares a job: reads the manifest, chooses the target, packs the code, records where it is submitted from."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from workbench.errors import FabricError, InputMissing
from workbench.services.submit.options import (
    RunOptions,
    read_manifest,
    refuse_unbuilt,
    resolve_arguments,
    templates_of,
)

if TYPE_CHECKING:
    from workbench.data.code.snapshot import Snapshot, SnapshotOptions
    from workbench.job import JobId
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.services.backends.placement import PassedOver
    from workbench.services.submit.dependencies import Parent
    from workbench.spec import JobSpec
    from workbench.store.db.rows import TargetRef


NO_CHAIN: Final[Mapping[str, Parent]] = {}


class PackedCode(Protocol):
    """Code in the home, ready for a job."""

    @property
    def code_hash(self) -> str:
        """Its content's."""

    @property
    def files(self) -> int:
        """How many."""

    @property
    def size_bytes(self) -> int:
        """Of the files."""

    @property
    def cached(self) -> bool:
        """Whether it was there already."""

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know of it."""


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """A job that is ready to be submitted: nothing has been started or written into the store yet."""

    loaded: Loaded
    target: TargetRef
    code: PackedCode | None
    recorded: Mapping[str, Any]
    """Interpreter, packages, environment, machine, git and arguments at this moment."""
    secrets: Mapping[str, str] = field(repr=False)
    diff: str = ""
    """What was not committed to git."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    """Runners that would have been preferred."""
    job_id: JobId | None = None
    """Chosen beforehand for a job that others of its chain name; else the store chooses one."""


def prepare(
    options: RunOptions,
    home: Home,
    *,
    launch: bool = False,
    chain: Mapping[str, Parent] = NO_CHAIN,
    job_id: JobId | None = None,
    code_options: SnapshotOptions | None = None,
    cancel: threading.Event | None = None,
) -> JobSubmission:
    """Prepare one job.

    Args:
        options: what the client asks for.
        home: where the code is packed and other jobs are known.
        launch: whether the job will be submitted: keys that are not implemented are refused, and result
            containers of a store that this machine serves are made. A preview shows such a job all the same.
        chain: by name, the jobs that are submitted together with this one and before it.
        job_id: the job's id, where it is one of a chain.
        code_options: how its code is taken; None asks nobody and shows no progress.
        cancel: ends the call within a second once it is set, however large the code is and whoever does not answer.

    Raises:
        Cancelled: ``cancel`` was set.
        UsageError: the options contradict each other.
        ManifestError: the manifest is invalid.
        InputMissing: the manifest, the code or a secret does not exist.
        UnknownName: there is no such backend or runner.
    """
    from workbench.services.cancel import call

    return call(
        lambda: _prepare(
            options, home, launch=launch, chain=chain, job_id=job_id, code_options=code_options, cancel=cancel
        ),
        cancel,
    )


def _prepare(
    options: RunOptions,
    home: Home,
    *,
    launch: bool,
    chain: Mapping[str, Parent],
    job_id: JobId | None,
    code_options: SnapshotOptions | None,
    cancel: threading.Event | None,
) -> JobSubmission:
    from workbench.config.secrets import find_secrets
    from workbench.controller.runtime.prewarm import request_prewarm
    from workbench.services.backends.placement import choose_target
    from workbench.services.cancel import check_cancelled
    from workbench.services.submit import submit_environment
    from workbench.services.submit.credentials import (
        inline_secrets,
        masked,
        with_values,
        without_credentials,
    )
    from workbench.services.submit.dependencies import check_target, with_parents
    from workbench.services.submit.store_checks import check_folders, check_stores, ready_stores

    options = resolve_arguments(options)
    git = _GitQuery(_likely_folder(options))
    git.start()
    manifest = read_manifest(options)
    loaded, passed_on = with_parents(manifest, home, chain, launch=launch)
    inline = inline_secrets(loaded)
    loaded, alias_notes = ready_stores(loaded, home)
    loaded, credential_warnings = with_values(loaded)
    check_cancelled(cancel)
    chosen = choose_target(
        options.backend, options.runner, loaded.spec, context=options.context, namespace=options.namespace
    )
    target = chosen.target
    check_cancelled(cancel)
    if launch and target.type == "ssh":
        request_prewarm(home, target)
    check_target(manifest, target, home, chain)
    check_folders([*options.data, *([options.results] if options.results else [])], target)
    check_stores(loaded.spec, target, home, launch=launch)
    check_cancelled(cancel)
    if launch:
        refuse_unbuilt(loaded, target.runner)
    code = _code_of(options, loaded, home)
    passed, proxies = submit_environment.passed_environment()
    secrets = {**proxies, **loaded.credentials, **passed_on, **find_secrets(loaded.spec.secrets)}
    packed = None
    if code:
        never, anyway = _files_with_passwords(loaded, inline, options), loaded.spec.code_anyway
        packed = _pack(code, home, code_options, never=never, anyway=anyway, cancel=cancel)
    recorded = submit_environment.record(
        submit_environment.active_interpreter(), masked(options.argv, secrets.values()), passed
    )
    recorded["seed"] = loaded.spec.seed
    recorded |= data_limit(loaded.spec, target.backend)
    if options.checkpoint:
        from workbench.services.submit.initial_checkpoint import initial_checkpoint

        recorded["from"] = initial_checkpoint(home, options.checkpoint, loaded.spec, target)
    recorded["git"] = described = git.of(code)
    diff = without_credentials(str(described.pop("diff", "") or ""), inline)
    warnings = [*(str(fault) for fault in loaded.warnings), *credential_warnings]
    if packed:
        warnings += [str(text) for text in packed.warnings]
        recorded["code"] = {"source": str(code), "files": packed.files, "size_bytes": packed.size_bytes}
    return JobSubmission(
        loaded=loaded,
        target=target,
        code=packed,
        recorded=recorded,
        secrets=secrets,
        diff=diff,
        notes=(*alias_notes, *chosen.notes),
        passed_over=chosen.passed_over,
        warnings=tuple(warnings),
        job_id=job_id,
    )


def _code_of(options: RunOptions, loaded: Loaded, home: Home) -> Path | None:
    if options.code:
        return Path(options.code)
    if loaded.spec.code:
        return (loaded.folder or Path.cwd()) / loaded.spec.code
    if options.manifest and options.manifest != "-":
        # What the screens keep for the command to read lies with other drafts, not with code.
        return None if loaded.folder == home.drafts else loaded.folder
    return Path.cwd() if options.command else None


def _files_with_passwords(loaded: Loaded, inline: Sequence[str], options: RunOptions) -> list[Path]:
    """Return the files of manifest and templates where they hold passwords: the code must not contain them."""
    if not inline:
        return []
    manifest = [loaded.folder / Path(loaded.source).name] if loaded.folder else []
    return [*manifest, *templates_of(options)]


def _pack(
    code: Path,
    home: Home,
    code_options: SnapshotOptions | None,
    *,
    never: Sequence[Path],
    anyway: bool,
    cancel: threading.Event | None,
) -> Snapshot:
    from workbench.config import load_config
    from workbench.config.code import limits
    from workbench.data.code.bounds import USUAL, Bounds
    from workbench.data.code.snapshot import SnapshotOptions, take_snapshot
    from workbench.services.cancel import cancellable

    if not code.exists():
        raise InputMissing(f"the code {code} is not there", hint="name a folder, a zip or a tar")
    size, files, seconds = limits(load_config().code)
    bounds = Bounds(size or USUAL.size_bytes, files or USUAL.files, seconds or USUAL.seconds)
    code_options = code_options or SnapshotOptions()
    progress = cancellable(code_options.progress, cancel)
    return take_snapshot(
        code, home, replace(code_options, never=tuple(never), anyway=anyway, bounds=bounds, progress=progress)
    )


def _likely_folder(options: RunOptions) -> Path:
    if options.code:
        return Path(options.code)
    return Path(options.manifest).parent if options.manifest not in ("", "-") else Path()


class _GitQuery(threading.Thread):
    """Asks git about a folder in a thread while the manifest is read: either takes as long."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="git", daemon=True)
        self._folder = folder.absolute()
        self._described: dict[str, Any] = {}

    def run(self) -> None:
        """Describe the folder."""
        with contextlib.suppress(FabricError, OSError, ValueError):
            self._described = _describe_git(self._folder)

    def of(self, code: Path | None) -> dict[str, Any]:
        """Return what git knows of the code; most often it is the folder that was asked about."""
        self.join()
        if code is None or not code.is_dir():
            return {}
        return self._described if code.absolute() == self._folder else _describe_git(code)


def _describe_git(folder: Path) -> dict[str, Any]:
    if not any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents)):
        return {}
    from workbench.data.code.git import describe

    return describe(folder)


def data_limit(spec: JobSpec, backend: str) -> dict[str, int]:
    """Return the configured limit of the data cache at a backend as ``data_cache_bytes``; empty without one."""
    if not spec.data_stores:
        return {}
    from workbench.config import load_config
    from workbench.config.stores import cache_bytes

    limit = cache_bytes(backend, load_config())
    return {"data_cache_bytes": limit} if limit else {}
