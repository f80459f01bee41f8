"""The jobs that a job comes after: names become ids, and stores of type ``job`` the folders of their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.job import TERMINAL, JobId, State, short_id
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.data.stores.model import JobDataStore
    from workbench.manifest import Loaded
    from workbench.paths import Home
    from workbench.spec import DataStore, JobSpec
    from workbench.store.db.rows import JobRow, TargetRef

MODES: Final = ("completed", "ended")
JOB_STORE: Final = "job"


@dataclass(frozen=True, slots=True)
class Parent:
    """A job that another one waits for, or reads."""

    id: JobId
    spec: JobSpec
    target: TargetRef
    secrets: Mapping[str, str] = field(repr=False)
    row: JobRow | None = None
    """None for one that is submitted together with this one."""


def split_reference(text: str) -> tuple[str, str]:
    """Return the job that a reference names, and what it waits for: ``completed`` or ``ended``.

    Raises:
        UsageError: what follows the colon is neither.
    """
    name, colon, mode = text.rpartition(":")
    if not colon:
        return text.strip(), MODES[0]
    if mode in MODES:
        return name.strip(), mode
    from workbench.manifest.yaml.faults import nearest

    close = nearest(mode, MODES)
    hint = f"did you mean {name}:{close}?" if close else f"write {name}:completed or {name}:ended"
    raise UsageError(f"after {text}: unknown condition '{mode}'", hint=hint)


def with_parents(
    loaded: Loaded, home: Home, chain: Mapping[str, Parent], *, launch: bool
) -> tuple[Loaded, dict[str, str]]:
    """Return a manifest with every job that it names by its id, and the credentials that it has from those.

    Args:
        loaded: the manifest.
        home: where those jobs are.
        chain: the jobs that are submitted together with this one, by name.
        launch: whether the job will be submitted: the folder of results that it reads is made then.

    Raises:
        UnknownName: there is no such job.
        UsageError: it has failed already, a reference cannot be read, or its results cannot.
        InputMissing: the credentials of the store of its results are not kept any more.
    """
    stores = loaded.spec.data_stores
    if not loaded.spec.after and not any(store.type == JOB_STORE for store in stores):
        return loaded, {}
    after: dict[str, str] = {}
    for reference in loaded.spec.after:
        name, mode = split_reference(reference)
        parent = _parent(name, home, chain)
        _refuse_failed(parent, mode)
        after[parent.id] = mode
    kept: list[DataStore] = []
    credentials: dict[str, str] = {}
    for number, store in enumerate(stores):
        if store.type == JOB_STORE:
            parent = _parent(store.training_data, home, chain)
            _refuse_failed(parent, after.setdefault(parent.id, MODES[0]))
            store, passed_on = results_of(store, number, parent, home, launch=launch)
            credentials |= passed_on
        kept.append(store)
    spec = replace(
        loaded.spec,
        after=tuple(f"{job_id}:{mode}" for job_id, mode in after.items()),
        data_stores=tuple(kept),
    )
    return replace(loaded, spec=spec), credentials


def check_target(before: Loaded, target: TargetRef, home: Home, chain: Mapping[str, Parent]) -> None:
    """Check that this job can read the results of the jobs that it names.

    Raises:
        UsageError: they are on one machine, and the job runs on another.
    """
    for store in before.spec.data_stores:
        if store.type == JOB_STORE:
            check_results(_parent(store.training_data, home, chain), target)


def backends_before(before: Loaded, home: Home, chain: Mapping[str, Parent]) -> dict[str, str]:
    """Return by backend which of the jobs are there that this one names, as a clause.

    Those whose results it reads come first, then those that it waits for: their host sees when they are over.
    """
    read = [store.training_data for store in before.spec.data_stores if store.type == JOB_STORE]
    awaited = [split_reference(reference)[0] for reference in before.spec.after]
    found: dict[str, str] = {}
    for name in (*read, *awaited):
        found.setdefault(_parent(name, home, chain).target.backend, f"{name} is, which comes before it")
    return found


def _parent(name: str, home: Home, chain: Mapping[str, Parent]) -> Parent:
    if name in chain:
        return chain[name]
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.services import open_store
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import detail
    from workbench.store.queries.resolve import resolve

    try:
        with Store.open(home) as store:
            store.note_by(open_store.note)
            row = resolve(store, name)
            spec = detail(store, row.id).spec
    except UnknownName as error:
        from workbench.manifest.yaml.faults import nearest

        close = nearest(name, chain)
        raise UnknownName(error.message, hint=f"did you mean {close}?" if close else error.hint) from None
    return Parent(JobId(row.id), spec, row.target, read_secrets(home, row.id), row)


def _refuse_failed(parent: Parent, mode: str) -> None:
    row = parent.row
    if row is None or mode != MODES[0] or row.state not in TERMINAL or row.state is State.COMPLETED:
        return
    if row.next_try_us is None and not row.intent:
        raise UsageError(
            f"{short_id(row.id)} {row.name} did not complete: it is {row.state.lower()}",
            hint=f"--after {short_id(row.id)}:ended starts anyway; fabric resume {short_id(row.id)} continues that job",
        )


def results_of(
    asked: DataStore, number: int, parent: Parent, home: Home, *, launch: bool
) -> tuple[DataStore, dict[str, str]]:
    """Return the store that one of type ``job`` stands for, and the credentials that it takes.

    Args:
        asked: what the manifest says, the job's ``number``th store, from 0.
        number: as above.
        parent: the job whose results are meant.
        home: where it is known.
        launch: whether the folder is made where it is not there yet.

    Raises:
        UsageError: they lie in a volume.
        InputMissing: the credentials of their store are not kept any more.
    """
    store = _store_of(parent)
    if store is None:
        folder = home.job(parent.id)
        if launch:
            # A launch checks that it is there, and the other job may not have begun.
            folder.results.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = {"path": str(folder.path)}
        return _read_only(asked, "host_path", connection, folder.results.name), {}
    connection, credentials = _passed_on(store, number, parent)
    return _read_only(asked, store.type, connection, f"{store.results_container}/{parent.id}"), credentials


def check_results(parent: Parent, target: TargetRef) -> None:
    """Check that a job at this target can read the results of another one.

    Raises:
        UsageError: they are on one machine, and the job runs on another.
    """
    store = _store_of(parent)
    if store is None and target.type != "local":
        raise UsageError(
            f"another job's results are read where they are kept, on this machine; this job runs on {target.backend}",
            hint="fabric download JOB results, and --data FOLDER, copy them there",
        )
    if store is None or not store.is_folder:
        return
    theirs = parent.target
    if (theirs.type, theirs.address, theirs.backend) != (target.type, target.address, target.backend):
        raise UsageError(
            f"the results of {_name(parent)} are in a folder on {theirs.backend}; this job runs on {target.backend}",
            hint=f"--backend {theirs.backend}, or a store that both reach",
        )


def _store_of(parent: Parent) -> JobDataStore | None:
    """Return the store of a job's results; None where they are kept with the job."""
    from workbench.data.stores.model import stores_of

    store = next((each for each in stores_of(parent.spec) if each.results_container), None)
    if store is not None and store.is_volume:
        raise UsageError(
            f"the results of {_name(parent)} lie in the volume {store.results_container}",
            hint="name the volume itself, in a store of type volume",
        )
    return store


def _read_only(asked: DataStore, kind: str, connection: Mapping[str, str], container: str) -> DataStore:
    is_bound = kind in ("host_path", "mount_volume")
    return replace(
        asked,
        type=kind,
        connection=dict(connection),
        training_data=container,
        training_results="",
        read_only=True,
        mount=is_bound or asked.mount,
    )


def _passed_on(store: JobDataStore, number: int, parent: Parent) -> tuple[dict[str, str], dict[str, str]]:
    """Return a connection whose references are those of another job, and the values that they stand for."""
    from workbench.manifest.keys.credentials import paths_in, put_back, reference

    connection, values = dict(store.connection), dict[str, str]()
    for key, text in store.connection.items():
        if paths := paths_in(text):
            if any(path not in parent.secrets for path in paths):
                raise InputMissing(
                    f"the {key} of the store that has the results of {_name(parent)} is not kept any more",
                    hint="name that store itself in the manifest",
                )
            path = f"data_stores.{number}.connection.{key}"
            values[path] = put_back(text, parent.secrets)
            connection[key] = reference(path)
    return connection, values


def _name(parent: Parent) -> JobId | str:
    return f"{short_id(parent.id)} {parent.spec.name}"
