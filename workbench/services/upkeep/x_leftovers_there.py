"""Finds the folders at hosts of jobs that are no job's of this home any more; whoever else's they are keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from workbench.job import nine

if TYPE_CHECKING:
    from backends.contract.host import BackendOptions, Cluster, Host
    from workbench.store.db.database import Store


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that belongs to nobody."""

    kind: str
    """``learner``, ``folder``, ``code``, ``secrets``."""
    place: str
    name: str
    why: str
    size_bytes: int | None = None
    remove: Callable[[], None] | None = None
    """None for what carries another home's mark."""


def job_folders(place: Host | Cluster, ours: str) -> Iterator[tuple[str, str]]:
    """Give the homes and jobs that have a folder at a host; this machine's are the home's own."""
    from backends.contract.host import Host

    if not isinstance(place, Host) or place.here:
        return
    machine = PurePosixPath(place.folder(ours)).parent
    for home in place.call("children", folder=str(machine)):
        for job_id in place.call("children", folder=str(machine / home / "jobs")):
            yield home, job_id


def folders_left(
    store: Store, options: BackendOptions, folders: Sequence[tuple[str, str]]
) -> Iterator[Leftover]:
    """Give those that belong to no job here, the ones of this home with what removes them."""
    from workbench.store.db.database import home_uuid
    from workbench.store.jobs import job

    ours = home_uuid(store.home)
    for home, job_id in folders:
        row = job(store, job_id)
        if home != ours:
            if row is None or row.place.home("") != home:
                yield Leftover("folder", options.name, nine(job_id), f"of another home, {home}")
            continue
        if row is None and store.home.job(job_id).path.exists():
            continue  # a database that was lost may be made anew from it
        if row is None or row.deleted_us is not None:
            why = "its job was deleted" if row else "the store knows no such job"
            action = partial(_remove_folder, options, job_id, ours)
            yield Leftover("folder", options.name, nine(job_id), why, remove=action)


def _remove_folder(options: BackendOptions, job_id: str, ours: str) -> None:
    from runners.registry import load_runner
    from workbench.controller.runtime.session_borrower import load_place

    with closing(load_place(options).open()) as place:
        runner = load_runner("process")(place, home_uuid=ours)
        with closing(runner):
            runner.remove_job(job_id)
