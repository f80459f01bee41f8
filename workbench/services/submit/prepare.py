"""From the words of ``run`` and ``plan`` to a job that only has to be submitted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from workbench.errors import FabricError, InputMissing, UsageError
from workbench.services.submit.options import Words, read_manifest, refuse_unbuilt, sort_out, templates_of

if TYPE_CHECKING:
    from workbench.data.code.snapshot import Snapshot
    from workbench.job import JobId
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.services.submit.dependencies import Parent
    from workbench.spec import JobSpec
    from workbench.store.db.rows import PlaceRef


NO_CHAIN: Final[Mapping[str, Parent]] = {}


class Code(Protocol):
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
class Prepared:
    """A job that only has to be submitted."""

    loaded: Loaded
    place: PlaceRef
    snapshot: Code | None
    recorded: Mapping[str, Any]
    secrets: Mapping[str, str] = field(repr=False)
    diff: str = ""
    """What was not committed."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    job_id: JobId | None = None
    """Chosen beforehand, for a job that others come after; else the store gives it one."""


def prepare(
    words: Words,
    home: Home,
    *,
    launch: bool = False,
    chain: Mapping[str, Parent] = NO_CHAIN,
    job_id: JobId | None = None,
) -> Prepared:
    """Read the manifest, find the place, snap the code, record where the command was given.

    ``launch`` refuses what a plan still shows: keys that are not built yet. ``chain`` names the jobs that are
    submitted together with this one and before it; ``job_id`` then is its own id.

    Raises:
        UsageError: the words contradict each other.
        ManifestError: the manifest is at fault.
        InputMissing: the manifest, the code or a secret is not there.
        UnknownName: there is no such backend or runner.
    """
    from workbench.config.secrets import find_secrets
    from workbench.controller.runtime.prewarm import announce
    from workbench.services.backends.placement import find_place
    from workbench.services.submit import submit_environment
    from workbench.services.submit.credentials import (
        plain_values,
        struck_out,
        with_values,
        without_credentials,
    )
    from workbench.services.submit.dependencies import check_place, with_parents
    from workbench.services.submit.store_checks import check_folders, check_stores, ready_stores

    words = sort_out(words)
    git = _GitLook(_likely_folder(words))
    git.start()
    said_of_parents = read_manifest(words)
    loaded, passed_on = with_parents(said_of_parents, home, chain)
    hidden = plain_values(loaded)
    loaded, reached = ready_stores(loaded, home)
    loaded, said = with_values(loaded)
    place, notes = find_place(
        words.backend, words.runner, loaded.spec, context=words.context, namespace=words.namespace
    )
    if launch and place.type == "ssh":
        announce(home, place)
    check_place(said_of_parents, place, home, chain)
    check_folders([*words.data, *([words.results] if words.results else [])], place)
    check_stores(loaded.spec, place, home, launch=launch)
    if launch:
        refuse_unbuilt(loaded, place.runner)
    code = _code_of(words, loaded)
    passed, proxies = submit_environment.passed_environment()
    secrets = {**proxies, **loaded.credentials, **passed_on, **find_secrets(loaded.spec.secrets)}
    snapshot = _snap(code, home, _with_passwords(loaded, hidden, words)) if code else None
    recorded = submit_environment.record(
        submit_environment.active_interpreter(), struck_out(words.argv, secrets.values()), passed
    )
    recorded["seed"] = loaded.spec.seed
    recorded |= data_limit(loaded.spec, place.backend)
    if words.checkpoint:
        from workbench.services.submit.initial_checkpoint import beginning

        recorded["from"] = beginning(home, words.checkpoint, loaded.spec, place)
    recorded["git"] = described = git.of(code)
    diff = without_credentials(str(described.pop("diff", "") or ""), hidden)
    warnings = [*(str(fault) for fault in loaded.warnings), *said]
    if snapshot:
        warnings += [str(text) for text in snapshot.warnings]
        recorded["code"] = {"source": str(code), "files": snapshot.files, "size_bytes": snapshot.size_bytes}
    return Prepared(
        loaded, place, snapshot, recorded, secrets, diff, (*reached, *notes), tuple(warnings), job_id
    )


def _code_of(words: Words, loaded: Loaded) -> Path | None:
    if words.code:
        return Path(words.code)
    if loaded.spec.code:
        return (loaded.folder or Path.cwd()) / loaded.spec.code
    if words.manifest and words.manifest != "-":
        return loaded.folder
    folder = Path.cwd()
    if words.command and folder in (Path.home(), Path(folder.anchor)):
        raise UsageError(
            f"without a manifest the working folder is the code, and {folder} is too much of it",
            hint="name the folder with the code: fabric run FOLDER -- COMMAND",
        )
    return folder if words.command else None


def _with_passwords(loaded: Loaded, hidden: Sequence[str], words: Words) -> list[Path]:
    """Name the manifest's file and its templates when passwords are written out: they are no part of the code then."""
    if not hidden:
        return []
    manifest = [loaded.folder / Path(loaded.source).name] if loaded.folder else []
    return [*manifest, *templates_of(words)]


def _snap(code: Path, home: Home, never: Sequence[Path]) -> Snapshot:
    from workbench.data.code.snapshot import snap

    if not code.exists():
        raise InputMissing(f"the code {code} is not there", hint="name a folder, a zip or a tar")
    return snap(code, home, never=never)


def _likely_folder(words: Words) -> Path:
    if words.code:
        return Path(words.code)
    return Path(words.manifest).parent if words.manifest not in ("", "-") else Path()


class _GitLook(threading.Thread):
    """Asks git about a folder while the manifest is read: its answer takes as long."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="git", daemon=True)
        self._folder = folder.absolute()
        self._described: dict[str, Any] = {}

    def run(self) -> None:
        """Ask."""
        with contextlib.suppress(FabricError, OSError, ValueError):
            self._described = _describe_git(self._folder)

    def of(self, code: Path | None) -> dict[str, Any]:
        """Return what git knows of the code, which most often is the folder that was asked about."""
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
    """Return how large a job may let the copies of data at its place grow, where the configuration says so."""
    if not spec.data_stores:
        return {}
    from workbench.config import load_config
    from workbench.config.stores import cache_bytes

    limit = cache_bytes(backend, load_config())
    return {"data_cache_bytes": limit} if limit else {}
