"""Where a job reads another one's results: in its folder on this machine, or in the store that they went to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.errors import InputMissing, UsageError
from workbench.job import JobId, nine

if TYPE_CHECKING:
    from workbench.data.stores.model import Store
    from workbench.paths import Home
    from workbench.services.submit.dependencies import Parent
    from workbench.spec import DataStore
    from workbench.store.db.rows import PlaceRef


def results_of(asked: DataStore, number: int, parent: Parent, home: Home) -> tuple[DataStore, dict[str, str]]:
    """Return the store that one of type ``job`` stands for, and the credentials that it takes.

    Args:
        asked: what the manifest says, the job's ``number``th store, from 0.
        number: as above.
        parent: the job whose results are meant.
        home: where it is known.

    Raises:
        UsageError: they lie in a volume.
        InputMissing: the credentials of their store are not kept any more.
    """
    store = _store_of(parent)
    if store is None:
        folder = home.job(parent.id)
        # What is checked before a launch is to be there, though the job has not begun.
        folder.results.mkdir(mode=0o700, parents=True, exist_ok=True)
        connection = {"path": str(folder.path)}
        return _read_only(asked, "host_path", connection, folder.results.name), {}
    connection, credentials = _passed_on(store, number, parent)
    return _read_only(asked, store.type, connection, f"{store.results_container}/{parent.id}"), credentials


def check_results(parent: Parent, place: PlaceRef) -> None:
    """See that the results of another job can be read where this one goes.

    Raises:
        UsageError: they lie on a machine, and it goes to another.
    """
    store = _store_of(parent)
    if store is None and place.type != "local":
        raise UsageError(
            f"another job's results are read where they are kept, on this machine; this one goes to {place.backend}",
            hint="fabric download JOB results, and --data FOLDER, bring them there",
        )
    if store is None or not store.is_folder:
        return
    theirs = parent.place
    if (theirs.type, theirs.address, theirs.backend) != (place.type, place.address, place.backend):
        raise UsageError(
            f"the results of {_name(parent)} lie in a folder at {theirs.backend}; this one goes to {place.backend}",
            hint=f"--backend {theirs.backend}, or a store that both reach",
        )


def _store_of(parent: Parent) -> Store | None:
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


def _passed_on(store: Store, number: int, parent: Parent) -> tuple[dict[str, str], dict[str, str]]:
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
    return f"{nine(parent.id)} {parent.spec.name}"
