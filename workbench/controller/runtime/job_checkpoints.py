"""A job's checkpoints: which it reported, where each is, and their removal from there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
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


def remove_checkpoints(store: Store, row: JobRow, picked: Sequence[Checkpoint]) -> None:
    """Remove checkpoints, first from the store: what is left there would come back."""
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
