"""A job once more: the same spec, code and interpreter, and in words what is not the same."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import InputMissing
from workbench.job import nine
from workbench.services.submit import submit_environment
from workbench.services.submit.prepare import Prepared, data_limit

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
class Again:
    """Code that is there already."""

    code_hash: str
    files: int
    size_bytes: int
    cached: bool = True
    warnings: tuple[str, ...] = ()


def prepare_again(store: Store, whole: JobDetail, *, name: str, argv: Sequence[str]) -> Prepared:
    """Make a submission of a job's own records; what interpreter and machine are like now is recorded anew.

    Raises:
        InputMissing: its code or its interpreter is not there any more.
    """
    from workbench.config.secrets import find_secrets
    from workbench.controller.runtime.secrets import read_secrets
    from workbench.data.stores.fingerprints import recorded_data
    from workbench.manifest import Loaded

    old = whole.recorded
    python = str(old.get("python") or submit_environment.active_interpreter())
    if whole.row.place.type == "local" and not Path(python).exists():
        raise InputMissing(
            f"the interpreter of {nine(whole.row.id)} is not there any more: {python}",
            hint="`fabric run` with its manifest takes the one that is active now",
        )
    if whole.code_hash and not store.home.snapshot(whole.code_hash).exists():
        raise InputMissing(f"the code of {nine(whole.row.id)} is not there any more: {whole.code_hash}")
    _, proxies = submit_environment.passed_environment()
    # Values that the environment does not give are those that the first job was given.
    kept_secrets = read_secrets(store.home, whole.row.id)
    missing = [name for name in whole.spec.secrets if name not in kept_secrets or name in os.environ]
    _see_credentials(whole, kept_secrets)
    recorded = submit_environment.record(python, list(argv), old.get("environment") or {})
    kept = {key: old[key] for key in ("git", "code", "seed", "cwd") if key in old}
    data = recorded_data(store.home.job(whole.row.id), whole.row.attempt)
    recorded |= data_limit(whole.spec, whole.row.place.backend)
    recorded |= {**kept, "rerun_of": whole.row.id, **({"data": dict(data)} if data else {})}
    loaded = Loaded(
        spec=replace(whole.spec, name=name) if name else whole.spec,
        text=whole.manifest_text,
        origins={**whole.origins, "name": "flag --name"} if name else whole.origins,
        warnings=(),
        source=whole.row.id,
        folder=None,
    )
    return Prepared(
        loaded=loaded,
        place=whole.row.place,
        snapshot=_code(whole),
        recorded=recorded,
        secrets={**kept_secrets, **proxies, **find_secrets(missing)},
    )


def _see_credentials(whole: JobDetail, kept: Mapping[str, str]) -> None:
    """See that the credentials of a job's stores are still kept.

    Raises:
        InputMissing: one is not.
    """
    from workbench.manifest.keys.credentials import paths_in

    for store in whole.spec.data_stores:
        if lost := [
            path for text in store.connection.values() for path in paths_in(text) if path not in kept
        ]:
            raise InputMissing(
                f"the {lost[0].rpartition('.')[2]} of the store {store.id} is not kept any more",
                hint="`fabric run` with the manifest takes it anew",
            )


def _code(whole: JobDetail) -> Again | None:
    if not whole.code_hash:
        return None
    code = whole.recorded.get("code") or {}
    return Again(whole.code_hash, int(code.get("files", 0)), int(code.get("size_bytes", 0)))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in words what is not as it was: fabric, interpreter, packages, machine."""
    found = []
    if old.get("fabric") != new.get("fabric"):
        found.append(f"fabric is {new.get('fabric')}, was {old.get('fabric')}")
    found += _packages(set(old.get("packages") or ()), set(new.get("packages") or ()))
    was, now = old.get("host") or {}, new.get("host") or {}
    for key, what in MACHINE_FACTS.items():
        if was.get(key) != now.get(key):
            found.append(f"{what} is {_plain(now.get(key))}, was {_plain(was.get(key))}")
    return found


def _packages(old: set[str], new: set[str]) -> list[str]:
    before = dict(each.split("==", 1) for each in old)
    after = dict(each.split("==", 1) for each in new)
    both = sorted(before.keys() & after.keys())
    changed = [f"{name} is {after[name]}, was {before[name]}" for name in both if after[name] != before[name]]
    gone = [f"{name} {before[name]} is gone" for name in before if name not in after]
    added = [f"{name} {after[name]} is new" for name in after if name not in before]
    found = changed + sorted(gone) + sorted(added)
    if len(found) > SHOWN_PACKAGES:
        return [*found[:SHOWN_PACKAGES], f"and {len(found) - SHOWN_PACKAGES} more packages"]
    return found


def _plain(value: Any) -> str:
    return "unknown" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
