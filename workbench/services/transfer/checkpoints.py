"""A job's checkpoints: what it told of them, where each is, and their end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.contract.errors import translated
from workbench.errors import FabricError, UnknownName
from workbench.formats import iso, number, size, stamp
from workbench.job import TERMINAL, short_id
from workbench.learner.platform.beneath import Root, relative
from workbench.terminal.console import narrate, width

if TYPE_CHECKING:
    from workbench.services.result_store import ResultStore
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow

_FOLDER: Final = re.compile(r".*/(?:_?checkpoints|_wml_checkpoints)/(.+)", re.DOTALL)
HERE, IN_STORE = "here", "store"


@dataclass(frozen=True, slots=True)
class Known:
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
    """``here``, ``store``, or the name of its place; empty when it is nowhere any more."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """What of a folder of checkpoints is this one."""
        return (self.name, f"{self.name}/**", f"{self.name}.metadata.json")


def known(store: Store, row: JobRow) -> list[Known]:
    """Return a job's checkpoints in the order of their time; one that was told of twice counts once."""
    from workbench.metrics import checkpoints
    from workbench.services.result_store import result_store
    from workbench.store.jobs import detail

    stored = result_store(detail(store, row.id).spec, row.id)
    in_store = _names_in_store(store, stored)
    found: dict[str, Known] = {}
    for each in checkpoints(store, row.id):
        name = name_of(each.path)
        size_bytes = each.metadata.get("size_bytes")
        found[name] = Known(
            name=name,
            step=each.step,
            attempt=each.attempt,
            time_us=each.time_us,
            size_bytes=size_bytes if isinstance(size_bytes, int) else None,
            sha256=str(each.metadata.get("sha256") or ""),
            metrics=each.metrics,
            where=_where(store, row, stored, name, in_store),
        )
    return sorted(found.values(), key=lambda each: (each.time_us, each.step or 0))


def name_of(path: str) -> str:
    """Return what a checkpoint is called below the folder for them, by the path that training code told."""
    match = _FOLDER.fullmatch(path)
    if match and ".." not in Path(match[1]).parts:
        return match[1]
    return Path(path).name


def _names_in_store(store: Store, stored: ResultStore | None) -> list[str]:
    if stored is None or stored.store.is_folder:
        return []
    try:
        return [each.path for each in stored.moving(store.home).files(stored.checkpoints)]
    except FabricError as error:
        narrate(f"what the store has of them is not known: {error.message}")
        return []


def _where(
    store: Store, row: JobRow, stored: ResultStore | None, name: str, in_store: Sequence[str]
) -> tuple[str, ...]:
    found = [HERE] if (_folder(store, row, stored) / name).exists() else []
    if any(path == name or path.startswith(f"{name}/") for path in in_store):
        found.append(IN_STORE)
    if not found and row.place.type != "local" and row.state not in TERMINAL:
        found.append(row.place.backend)
    return tuple(found)


def _folder(store: Store, row: JobRow, stored: ResultStore | None) -> Path:
    if stored is not None and stored.store.is_folder and row.place.type == "local":
        return Path(stored.checkpoints)
    return store.home.job(row.id).checkpoints


def chosen(found: Sequence[Known], steps: Sequence[int], row: JobRow) -> list[Known]:
    """Return the checkpoints of some steps.

    Raises:
        UnknownName: there is none of one of them; the hint names those there are.
    """
    there = sorted({each.step for each in found if each.step is not None})
    for step in steps:
        if step not in there:
            known_steps = ", ".join(map(str, there[-20:])) or "none"
            raise UnknownName(
                f"{short_id(row.id)} has no checkpoint of step {step}", hint=f"there are {known_steps}"
            )
    return [each for each in found if each.step in steps]


def remove(store: Store, row: JobRow, picked: Sequence[Known]) -> None:
    """Remove checkpoints, first from the store: what is left there would come back."""
    from workbench.services.result_store import result_store
    from workbench.store.jobs import detail

    stored = result_store(detail(store, row.id).spec, row.id)
    moving = stored.moving(store.home) if stored and any(IN_STORE in each.where for each in picked) else None
    folder = _folder(store, row, stored)
    is_bound = folder != store.home.job(row.id).checkpoints
    for each in picked:
        if moving is not None and stored is not None and IN_STORE in each.where:
            # The mark first: what is half removed does not exist.
            moving.remove(f"{stored.checkpoints}/{each.name}.metadata.json")
            moving.remove(f"{stored.checkpoints}/{each.name}")
        # A container may have put links into the way to it; where it mounts more than that, from there on.
        above = str(stored.store.results_path()) if is_bound and stored is not None else str(folder)
        with translated(), contextlib.suppress(FileNotFoundError), Root(above, follow=True) as root:
            for name in (f"{each.name}.metadata.json", each.name):
                root.remove(relative(str(folder / name), above))


def document_of(each: Known) -> dict[str, Any]:
    """Return a checkpoint as ``--json`` gives it."""
    return {
        "schema": "fabric.checkpoint/1",
        "name": each.name,
        "step": each.step,
        "attempt": each.attempt,
        "time": iso(each.time_us),
        "size_bytes": each.size_bytes,
        "sha256": each.sha256,
        "metrics": dict(each.metrics),
        "where": list(each.where),
    }


def table_of(found: Sequence[Known]) -> str:
    """Return checkpoints as a table."""
    from workbench.terminal.table import Column, render

    columns = [
        Column("STEP", right=True),
        Column("SAVED"),
        Column("SIZE", right=True),
        Column("WHERE"),
        Column("NAME"),
        Column("METRICS", stretch=True),
    ]
    rows = [
        [
            "-" if each.step is None else str(each.step),
            stamp(each.time_us),
            "-" if each.size_bytes is None else size(each.size_bytes),
            ", ".join(each.where) or "gone",
            each.name,
            " ".join(f"{name}={_value(value)}" for name, value in each.metrics.items()),
        ]
        for each in found
    ]
    return render(columns, rows, width=width(120))


def _value(value: object) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
