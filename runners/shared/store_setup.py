"""Prepares data stores for a launch: uploads rclone and credentials, and refuses what is missing.

A host with a recent rclone uses its own. Otherwise this machine's is uploaded if the architectures match; its
file name is the hash of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from backends.contract.errors import translated
from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.data_stores import refusals, used_remotes
from runners.shared.host_facts import HostFacts
from runners.shared.registry_login import learner_secrets
from workbench.data.stores.model import JobDataStore, remote_of, stores_of
from workbench.data.stores.rclone import VERSION_MIN, find_rclone, parse_version
from workbench.errors import InputMissing, LaunchRefused, RunnerError
from workbench.learner.stores.config import REMOTES

PATIENCE: Final = "FABRIC_STORE_PATIENCE_SECONDS"
"""Set in the controller's environment by tests: how long a store that does not answer is retried."""

CACHE_BYTES: Final = "FABRIC_DATA_CACHE_BYTES"
"""Set in the controller's environment: the size limit of hosts' data caches; overrides the value of the submit."""

_SECRET_OPTIONS: Final = (
    "secret_access_key", "session_token", "key", "pass", "service_account_credentials", "sas_url", "bearer_token",
)  # fmt: skip
_VERSION_SECONDS: Final = 20.0


def refuse_stores(
    request: LaunchRequest, host: Host, site: HostFacts, *, runner: str, agent_kind: str
) -> None:
    """Refuse a job whose stores cannot be used on this host.

    Raises:
        LaunchRefused: a store's type cannot be used, its folder does not exist, or a credential is missing.
    """
    for sentence in refusals(request, runner=runner, agent_kind=agent_kind):
        raise LaunchRefused(f"{sentence[0].upper()}{sentence[1:]}.", code="C104")
    folders = {path: store for store in stores_of(request.spec) for path in _folders_read(store)}
    there = set(host.call("existing", paths=list(folders)))
    for path, store in folders.items():
        if path not in there:
            where = "" if site.here else f" on {site.name}"
            raise LaunchRefused(
                f"The data store {store.id} is the folder {path}, which does not exist{where}.",
                hint="A host_path is a folder of the machine that the job runs on; --data PATH uses one"
                " of this machine's."
                if not site.here
                else "Check connection.path and training_data.container.",
                code="C104",
            )
    remotes_text(request, site)


def with_stores(
    request: LaunchRequest, host: Host, site: HostFacts, document: dict[str, Any]
) -> dict[str, Any]:
    """Return a learner's launch document with the stores' values that are chosen at launch."""
    if not document.get("stores"):
        return document
    stores = {**document["stores"], "rclone": upload_rclone(host, site)}
    if setting := os.environ.get(PATIENCE):
        stores["patience_seconds"] = float(setting)
    if setting := os.environ.get(CACHE_BYTES):
        stores["cache_bytes"] = int(setting)
    return {**document, "stores": stores}


def secrets_with(request: LaunchRequest, site: HostFacts) -> dict[str, str]:
    """Return the content of a learner's file of secrets: the job's secrets and rclone's configuration."""
    if not used_remotes(request, site):
        return dict(learner_secrets(request))
    return {**learner_secrets(request), REMOTES: remotes_text(request, site)}


def remotes_text(request: LaunchRequest, site: HostFacts) -> str:
    """Return the rclone configuration of a job's stores as JSON text; it contains credentials.

    Raises:
        LaunchRefused: a credential has no value.
    """
    document = {}
    for store in used_remotes(request, site):
        remote = remote_of(store, request.secrets)
        document[remote.name] = {
            "config": dict(remote.config),
            "obscured": list(remote.obscured),
            "secret": [option for option in _SECRET_OPTIONS if option in remote.config],
        }
    return json.dumps(document)


def upload_rclone(host: Host, site: HostFacts) -> str:
    """Return the path of rclone on the host; upload it if the host has no recent one.

    Raises:
        LaunchRefused: this machine has none, or one for another architecture.
    """
    if site.here:
        return _found()
    if path := host_rclone(host):
        return path
    identity = host.identity()
    if (identity.system, identity.architecture) != (platform.system(), platform.machine()):
        version = ".".join(str(part) for part in VERSION_MIN)
        raise LaunchRefused(
            f"Data stores need rclone {version} or newer on {site.name}, whose platform differs from this machine's"
            f" ({identity.system} {identity.architecture}).",
            hint="Install rclone there: https://rclone.org/install/",
            code="C104",
        )
    source, sha256 = local_rclone()
    path = str(site.home.agents / f"rclone-{sha256}")
    with translated(), source.open("rb") as stream:
        host.put(stream, path, sha256=sha256, mode=0o700)
    return path


@lru_cache(maxsize=4)  # hashing 80 MB takes a quarter of a second
def _hash_of(path: Path, changed_ns: int) -> str:
    """Return the SHA-256 of a file, computed once for each version of it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def local_rclone() -> tuple[Path, str]:
    """Return the file of this machine's rclone and its SHA-256.

    Raises:
        LaunchRefused: this machine has none.
    """
    source = Path(_found()).resolve()
    with translated():
        return source, _hash_of(source, source.stat().st_mtime_ns)


def _found() -> str:
    try:
        return find_rclone().path
    except InputMissing as error:
        raise LaunchRefused(error.message, hint=error.hint, code="C104") from error


def host_rclone(host: Host) -> str:
    """Return the path of the host's own rclone; empty if it has none or an old one."""
    found = host.run(["sh", "-c", "command -v rclone && rclone version"], deadline_seconds=_VERSION_SECONDS)
    lines = found.stdout.decode("utf-8", "replace").splitlines()
    new_enough = found.exit_code == 0 and parse_version("\n".join(lines[1:])) >= VERSION_MIN
    return lines[0] if new_enough and lines[0].startswith("/") else ""


def _folders_read(store: JobDataStore) -> list[str]:
    if not store.is_folder:
        return []
    paths = [store.data_path] if store.container else []
    return [*paths, *([store.connection["path"]] if store.connection.get("path") else [])]


DEADLINE_SECONDS: Final = 12 * 3600.0


def retry_upload(request: LaunchRequest, host: Host, site: HostFacts) -> list[Mapping[str, Any]]:
    """Run the upload of an ended attempt again; return each learner's summary as in ``storing.json``, with ``learner``.

    Raises:
        RunnerError: an agent's reply is not valid.
        BackendUnreachable: the backend does not answer.
        LaunchRefused: a credential has no value.
    """
    secrets = json.dumps(secrets_with(request, site)) + "\n"
    attempt = site.home.job(request.attempt.job_id).attempt(request.attempt.attempt)
    found: list[Mapping[str, Any]] = []
    for learner in request.attempt.numbers:
        folder = attempt.learner(learner)
        launch = host.call("read_object", path=str(folder.launch)) or {}
        guard, secrets_file = launch.get("guard") or [], launch.get("secrets_file")
        if not launch.get("stores") or len(guard) < 3 or not secrets_file:
            continue
        host.call("secret_folder")  # creates the folder; it may be in memory and lost by a reboot
        host.call("write_files", files={secrets_file: secrets})
        try:
            done = host.run([*guard[:-2], "store", str(folder.path)], deadline_seconds=DEADLINE_SECONDS)
        finally:
            host.call("remove", paths=[secrets_file])
        found.append({**_read(done.stdout), "learner": learner})
    return found


def _read(output: bytes) -> dict[str, Any]:
    try:
        document = json.loads(output)
    except ValueError as error:
        raise RunnerError("The agent's reply about the upload is not valid.") from error
    if not isinstance(document, dict):
        raise RunnerError("The agent's reply about the upload is not valid.")
    return document
