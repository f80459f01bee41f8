"""Prepares a job again with the same spec, code and interpreter, and names what differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputMissing, UnknownName, UsageError
from workbench.job import short_id
from workbench.services.submit import submit_environment
from workbench.services.submit.prepare import JobSubmission, data_limit
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail

SHOWN_PACKAGES = 5

MACHINE_FACTS = {
    "name": "the machine",
    "architecture": "its architecture",
    "release": "its kernel",
    "cpus": "its CPUs",
    "gpu_driver": "its GPU driver",
    "gpus": "its GPUs",
}


@dataclass(frozen=True, slots=True)
class EarlierCode:
    """Code of an earlier job, which the home still has."""

    code_hash: str
    files: int
    size_bytes: int
    cached: bool = True
    warnings: tuple[str, ...] = ()


def prepare_rerun(store: Store, job: JobDetail, *, name: str, argv: Sequence[str]) -> JobSubmission:
    """Prepare a job from an earlier one's records; packages and machine are recorded as they are now.

    Args:
        store: where the earlier job is.
        job: the earlier job.
        name: the new job's name; empty keeps the old one.
        argv: the client's command line, for the job's records.

    Raises:
        InputMissing: its code, its interpreter, a credential, or the checkpoint that it began with, no longer exists.
        NotAllowed: its temporary credentials have expired.
    """
    from workbench.config.secrets import find_secrets
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.data.stores.fingerprints import recorded_data
    from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
    from workbench.manifest import Loaded
    from workbench.services.submit.credentials import expiry_notes
    from workbench.services.submit.secrets_refresh import renewed_credentials

    old = job.recorded
    python = str(old.get("python") or submit_environment.active_interpreter())
    if job.row.target.type == "local" and not Path(python).exists():
        raise InputMissing(
            f"the interpreter of {short_id(job.row.id)} no longer exists: {python}",
            hint="`fabric run` with its manifest takes the one that is active now",
        )
    if job.code_hash and not store.home.snapshot(job.code_hash).exists():
        raise InputMissing(f"the code of {short_id(job.row.id)} no longer exists: {job.code_hash}")
    _, proxies = submit_environment.passed_environment()
    # Values that the environment lacks are those of the first job. The secrets of an experiment's data always are:
    # that variable is another experiment's where a job of one calls this.
    kept_secrets = read_secrets(store.home, job.row.id)
    around = os.environ.keys() - {DATA_SECRETS_VARIABLE}
    missing = [name for name in job.spec.secrets if name not in kept_secrets or name in around]
    _check_credentials(job, kept_secrets)
    secrets = {**renewed_credentials(job, kept_secrets), **proxies, **find_secrets(missing)}
    recorded = submit_environment.record(python, list(argv), old.get("environment") or {})
    if "umask" in old:
        recorded["umask"] = old["umask"]
    kept = {key: old[key] for key in ("git", "code", "seed", "cwd") if key in old}
    data = recorded_data(store.home.job(job.row.id), job.row.attempt)
    recorded |= data_limit(job.spec, job.row.target)
    beginning, beginning_notes = _beginning(store, job)
    recorded |= beginning
    recorded |= {**kept, "rerun_of": job.row.id, **({"data": dict(data)} if data else {})}
    loaded = Loaded(
        spec=replace(job.spec, name=name) if name else job.spec,
        text=job.manifest_text,
        origins={**job.origins, "name": "flag --name"} if name else job.origins,
        warnings=(),
        source=job.row.id,
        folder=None,
    )
    return JobSubmission(
        loaded=loaded,
        target=job.row.target,
        code=_code(job),
        recorded=recorded,
        secrets=secrets,
        notes=(*beginning_notes, *expiry_notes(job.spec, secrets, launch=True)),
    )


def _beginning(store: Store, job: JobDetail) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a job records to begin with the same checkpoint of another one as the first, and a note of it.

    Where that checkpoint is may have changed since, so it is looked for anew.

    Raises:
        InputMissing: it is gone, or cannot be got at.
    """
    from workbench.controller.runtime.initial_checkpoint import checkpoint_text, initial_checkpoint
    from workbench.store.queries.jobs import job as find_job

    origin = job.recorded.get("from")
    if not origin:
        return {}, ()
    of, name = str(origin["job"]), str(origin.get("name") or "")
    try:
        row = find_job(store, of)
        if row is None or row.deleted_us is not None:
            raise UnknownName(f"{short_id(of)} is not here any more")
        found = initial_checkpoint(store, row, origin.get("step"), job.spec, job.row.target, name=name)
    except (UsageError, InputMissing) as error:
        raise InputMissing(
            f"{short_id(job.row.id)} began with {checkpoint_text(name, of)}: {error.message}",
            hint="`fabric run` with its manifest and --from JOB[@STEP] begins with another one",
        ) from None
    note = f"it begins with {checkpoint_text(found['name'], of)}, as {short_id(job.row.id)} did"
    return {"from": found}, (note,)


def _check_credentials(job: JobDetail, kept: Mapping[str, str]) -> None:
    """Check that the credentials of a job's stores, and of its image's registry, are still kept.

    Raises:
        InputMissing: one is not.
    """
    from workbench.manifest.keys.credentials import paths_in

    for store in job.spec.data_stores:
        if lost := [
            path for text in store.connection.values() for path in paths_in(text) if path not in kept
        ]:
            raise InputMissing(
                f"the {lost[0].rpartition('.')[2]} of the store {store.id} is not kept any more",
                hint="`fabric run` with the manifest supplies it again",
            )
    location = job.spec.framework.image_location
    if lost := [path for text in location.values() for path in paths_in(text) if path not in kept]:
        raise InputMissing(
            f"the {lost[0].rpartition('.')[2]} of the image's registry is not kept any more",
            hint="`fabric run` with the manifest supplies it again",
        )


def _code(job: JobDetail) -> EarlierCode | None:
    if not job.code_hash:
        return None
    code = job.recorded.get("code") or {}
    return EarlierCode(job.code_hash, int(code.get("files", 0)), int(code.get("size_bytes", 0)))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], *, uses_packages: bool = True) -> list[str]:
    """Return one sentence for each difference between two jobs' records: fabric, packages, machine.

    ``uses_packages`` is False where the jobs run with the packages of another machine or of an image.
    """
    found = []
    if old.get("fabric") != new.get("fabric"):
        found.append(f"fabric is {new.get('fabric')}, was {old.get('fabric')}")
    if uses_packages:
        found += _packages(set(old.get("packages") or ()), set(new.get("packages") or ()))
    was, now = old.get("host") or {}, new.get("host") or {}
    for key, what in MACHINE_FACTS.items():
        if was.get(key) != now.get(key):
            found.append(f"{what} is {_text(now.get(key))}, was {_text(was.get(key))}")
    return found


def _packages(old: set[str], new: set[str]) -> list[str]:
    before = dict(each.split("==", 1) for each in old)
    after = dict(each.split("==", 1) for each in new)
    both = sorted(before.keys() & after.keys())
    changed = [f"{name} is {after[name]}, was {before[name]}" for name in both if after[name] != before[name]]
    removed = [f"{name} {before[name]} was removed" for name in before if name not in after]
    added = [f"{name} {after[name]} is new" for name in after if name not in before]
    found = changed + sorted(removed) + sorted(added)
    if len(found) > SHOWN_PACKAGES:
        return [*found[:SHOWN_PACKAGES], f"and {len(found) - SHOWN_PACKAGES} more packages"]
    return found


def _text(value: Any) -> str:
    return "unknown" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
