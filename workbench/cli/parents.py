"""The jobs that a job comes after: names become ids, and stores of type ``job`` the folders of their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from workbench.errors import UsageError
from workbench.job import TERMINAL, JobId, State, nine

if TYPE_CHECKING:
    from workbench.manifest import Loaded
    from workbench.manifest.model import DataStore
    from workbench.paths import Home
    from workbench.store.rows import JobRow, PlaceRef

MODES: Final = ("completed", "ended")
JOB_STORE: Final = "job"


@dataclass(frozen=True, slots=True)
class Parent:
    """A job that comes before."""

    id: JobId
    row: JobRow | None
    """None for one that is submitted together with this one."""


def split_reference(text: str) -> tuple[str, str]:
    """Return the job that a reference names, and what it waits for: ``completed`` or ``ended``.

    Raises:
        UsageError: what follows the colon is nothing that can be waited for.
    """
    name, colon, mode = text.rpartition(":")
    if not colon:
        return text.strip(), MODES[0]
    if mode in MODES:
        return name.strip(), mode
    from workbench.manifest.findings import nearest

    close = nearest(mode, MODES)
    hint = f"did you mean {name}:{close}?" if close else f"write {name}:completed or {name}:ended"
    raise UsageError(f"after {text}: there is nothing such as '{mode}' to wait for", hint=hint)


def with_parents(loaded: Loaded, home: Home, chain: Mapping[str, JobId]) -> Loaded:
    """Return a manifest with every job that it names by its id.

    Args:
        loaded: the manifest.
        home: where those jobs are.
        chain: the jobs that are submitted together with this one, by name.

    Raises:
        UnknownName: there is no such job.
        UsageError: it has failed already, or a reference cannot be read.
    """
    stores = loaded.spec.data_stores
    if not loaded.spec.after and not any(store.type == JOB_STORE for store in stores):
        return loaded
    after: dict[str, str] = {}
    for reference in loaded.spec.after:
        name, mode = split_reference(reference)
        parent = _parent(name, home, chain)
        _refuse_failed(parent, mode)
        after[parent.id] = mode
    kept: list[DataStore] = []
    for store in stores:
        if store.type == JOB_STORE:
            parent = _parent(store.training_data, home, chain)
            _refuse_failed(parent, after.setdefault(parent.id, MODES[0]))
            store = _results_of(store, parent, home)
        kept.append(store)
    spec = replace(
        loaded.spec,
        after=tuple(f"{job_id}:{mode}" for job_id, mode in after.items()),
        data_stores=tuple(kept),
    )
    return replace(loaded, spec=spec)


def check_place(before: Loaded, place: PlaceRef) -> None:
    """See that the results of another job can be read where this one goes.

    Raises:
        UsageError: they lie on this machine, and it goes to another.
    """
    if place.type != "local" and any(store.type == JOB_STORE for store in before.spec.data_stores):
        raise UsageError(
            f"another job's results are read where they are kept, on this machine; this one goes to {place.backend}",
            hint="fabric download JOB results, and --data FOLDER, bring them there",
        )


def _parent(name: str, home: Home, chain: Mapping[str, JobId]) -> Parent:
    if name in chain:
        return Parent(chain[name], None)
    from workbench.errors import UnknownName
    from workbench.store.database import Store
    from workbench.store.jobs import resolve

    try:
        with Store.open(home) as store:
            row = resolve(store, name)
    except UnknownName as error:
        from workbench.manifest.findings import nearest

        close = nearest(name, chain)
        raise UnknownName(error.message, hint=f"did you mean {close}?" if close else error.hint) from None
    return Parent(row.id, row)


def _refuse_failed(parent: Parent, mode: str) -> None:
    row = parent.row
    if row is None or mode != MODES[0] or row.state not in TERMINAL or row.state is State.COMPLETED:
        return
    if row.next_try_us is None and not row.intent:
        raise UsageError(
            f"{nine(row.id)} {row.name} did not complete: it is {row.state.lower()}",
            hint=f"--after {nine(row.id)}:ended starts all the same; fabric resume {nine(row.id)} lets it go on",
        )


def _results_of(store: DataStore, parent: Parent, home: Home) -> DataStore:
    folder = home.job(parent.id)
    # What is checked before a launch is to be there, though the job has not begun.
    folder.results.mkdir(mode=0o700, parents=True, exist_ok=True)
    return replace(
        store,
        type="host_path",
        connection={"path": str(folder.path)},
        training_data=folder.results.name,
        read_only=True,
        mount=True,
    )
