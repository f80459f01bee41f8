"""What a launch does for data stores: rclone is at the place, credentials are, and what is missing is refused.

rclone of this machine's own architecture goes up by the name of its content, like the agent; a host that has
one that is new enough uses its own.
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
from workbench.data.stores.model import JobDataStore, remote_of, stores_of
from workbench.data.stores.rclone import VERSION_MIN, find_rclone, parse_version
from workbench.errors import InputMissing, LaunchRefused, RunnerError
from workbench.learner.stores.config import REMOTES

PATIENCE: Final = "FABRIC_STORE_PATIENCE_SECONDS"
"""How long a store that does not answer is tried again, in the controller's environment, for tests."""

CACHE_BYTES: Final = "FABRIC_DATA_CACHE_BYTES"
"""How large a place's cache of data may grow, in the controller's environment, whatever a job's submit said."""

_SECRET_OPTIONS: Final = (
    "secret_access_key", "session_token", "key", "pass", "service_account_credentials", "sas_url", "bearer_token",
)  # fmt: skip
_VERSION_SECONDS: Final = 20.0


def refuse_stores(
    request: LaunchRequest, host: Host, site: HostFacts, *, runner: str, agent_kind: str
) -> None:
    """Refuse what of a job's stores cannot work at this place.

    Raises:
        LaunchRefused: a type that cannot be used, a folder that is not there, a missing credential.
    """
    for sentence in refusals(request, runner=runner, agent_kind=agent_kind):
        raise LaunchRefused(f"{sentence[0].upper()}{sentence[1:]}.", code="C104")
    folders = {path: store for store in stores_of(request.spec) for path in _folders_read(store)}
    there = set(host.call("existing", paths=list(folders)))
    for path, store in folders.items():
        if path not in there:
            where = "" if site.here else f" on {site.name}"
            raise LaunchRefused(
                f"The data store {store.id} is the folder {path}, and there is none{where}.",
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
    """Return a learner's launch document with what was left open of its stores."""
    if not document.get("stores"):
        return document
    stores = {**document["stores"], "rclone": upload_rclone(host, site)}
    if setting := os.environ.get(PATIENCE):
        stores["patience_seconds"] = float(setting)
    if setting := os.environ.get(CACHE_BYTES):
        stores["cache_bytes"] = int(setting)
    return {**document, "stores": stores}


def secrets_with(request: LaunchRequest, site: HostFacts) -> dict[str, str]:
    """Return what goes into a learner's file of secrets: the job's, and what rclone is told of stores."""
    if not used_remotes(request, site):
        return dict(request.secrets)
    return {**request.secrets, REMOTES: remotes_text(request, site)}


def remotes_text(request: LaunchRequest, site: HostFacts) -> str:
    """Return what rclone is told of a job's stores, credentials among it, as text.

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
    """Return the path of rclone at the place, put there unless it has one.

    Raises:
        LaunchRefused: there is none here that runs there.
    """
    if site.here:
        return _found()
    if path := host_rclone(host):
        return path
    identity = host.identity()
    if (identity.system, identity.architecture) != (platform.system(), platform.machine()):
        version = ".".join(str(part) for part in VERSION_MIN)
        raise LaunchRefused(
            f"Data stores need rclone {version} or newer on {site.name}, which is another kind of machine than this one"
            f" ({identity.system} {identity.architecture}).",
            hint="Install rclone there: https://rclone.org/install/",
            code="C104",
        )
    source, sha256 = local_rclone()
    path = str(site.home.agents / f"rclone-{sha256}")
    with translated(), source.open("rb") as stream:
        host.put(stream, path, sha256=sha256, mode=0o700)
    return path


@lru_cache(maxsize=4)  # 80 MB take a quarter of a second
def _hash_of(path: Path, changed_ns: int) -> str:
    """Return what names a file by its content, worked out once as long as it is not changed."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def local_rclone() -> tuple[Path, str]:
    """Return the file of this machine's rclone, and what names it by its content.

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
    """Return the path of the place's own rclone where it is new enough."""
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
    """Return how it went for each learner that has something at the place, as ``storing.json`` has it.

    Raises:
        RunnerError: an agent says nothing that can be read.
        BackendUnreachable: the backend does not answer.
        LaunchRefused: a credential has no value any more.
    """
    secrets = json.dumps(secrets_with(request, site)) + "\n"
    attempt = site.home.job(request.attempt.job_id).attempt(request.attempt.attempt)
    found: list[Mapping[str, Any]] = []
    for learner in range(1, request.attempt.learners + 1):
        folder = attempt.learner(learner)
        launch = host.call("read_object", path=str(folder.launch)) or {}
        guard, secrets_file = launch.get("guard") or [], launch.get("secrets_file")
        if not launch.get("stores") or len(guard) < 3 or not secrets_file:
            continue
        host.call("secret_folder")  # it may have gone with the memory that it was in
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
        raise RunnerError("The agent does not say whether the results are stored.") from error
    if not isinstance(document, dict):
        raise RunnerError("The agent does not say whether the results are stored.")
    return document
