"""Finds the container engine that a person on this machine uses, as Docker's own command would, podman's after it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workbench.errors import BackendUnreachable, ConfigError, FabricError, NotAllowed
from workbench.learner.platform.engine_client import EngineRefused, ask
from workbench.paths import Home

SOCKET: Final = "/var/run/docker.sock"
PING_SECONDS: Final = 3.0
AS_PROCESS: Final = "or run the job as a process with --runner process"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine is."""

    address: str
    """``unix:///var/run/docker.sock``, ``tcp://...``, ``ssh://...``."""
    told_by: str = ""
    """``DOCKER_HOST``, ``the Docker context work``; empty for a usual place."""

    @property
    def path(self) -> str:
        """The socket's path.

        Raises:
            ConfigError: it is no socket of this machine.
        """
        if self.address.startswith("unix://"):
            return self.address.removeprefix("unix://")
        raise ConfigError(
            f"The container engine {self.address} ({self.told_by}) is not on this machine.",
            hint=_remote_hint(self.address),
        )


def find_engine(environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Return where the engine is: ``DOCKER_HOST``, the Docker context, else the first socket that is there."""
    if told := environ.get("DOCKER_HOST"):
        return Endpoint(told, "DOCKER_HOST")
    folder = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker")
    context = environ.get("DOCKER_CONTEXT") or str(
        _object(folder / "config.json").get("currentContext") or ""
    )
    if context and context != "default":
        meta = folder / "contexts" / "meta" / hashlib.sha256(context.encode()).hexdigest() / "meta.json"
        address = _object(meta).get("Endpoints", {}).get("docker", {}).get("Host")
        if address:
            return Endpoint(str(address), f"the Docker context {context}")
    found = next(
        (path for path in usual_sockets(environ.get("XDG_RUNTIME_DIR", "")) if Path(path).exists()), SOCKET
    )
    return Endpoint(f"unix://{found}")


def usual_sockets(runtime: str) -> Iterator[str]:
    """Name the sockets that engines usually have: Docker's, rootless Docker's, podman's."""
    yield SOCKET
    if runtime:
        yield f"{runtime}/docker.sock"
        yield f"{runtime}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def ping(path: str) -> None:
    """Ask an engine whether it is there.

    Raises:
        BackendUnreachable: nothing answers.
        NotAllowed: we may not ask.
    """
    try:
        ask(path, "GET", "_ping", timeout_seconds=PING_SECONDS)
    except PermissionError as error:
        raise not_allowed(path) from error
    except (OSError, EngineRefused) as error:
        raise no_engine(path) from error


def no_engine(path: str) -> FabricError:
    """Say that no engine answers."""
    return BackendUnreachable(
        f"No container engine answers at {path}.",
        hint=f"Start Docker or podman, point DOCKER_HOST at it, {AS_PROCESS}.",
    )


def not_allowed(path: str) -> FabricError:
    """Say that the engine is somebody else's."""
    return NotAllowed(
        f"You may not use the container engine at {path}.",
        hint=f"Become a member of its group (sudo usermod -aG docker $USER, then log in anew), {AS_PROCESS}.",
    )


def _remote_hint(address: str) -> str:
    if address.startswith("ssh://"):
        return f"Add that machine as a backend: fabric backend add NAME {address}"
    machine = address.partition("://")[2].partition(":")[0]
    return f"Add the machine that it is on as a backend: fabric backend add NAME ssh://{machine}"


def _object(path: Path) -> dict[str, dict[str, dict[str, str]]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


OLDEST_API: Final = (1, 40)
_MISSING: Final = "bind source path does not exist"


def check_engine(endpoint: Endpoint, home: Home) -> None:
    """Make sure that jobs can run on an engine.

    Raises:
        BackendUnreachable: nothing answers.
        NotAllowed: we may not use it.
        ConfigError: it is on another machine, or too old.
    """
    path = endpoint.path
    if not _is_known(path, home):
        ping(path)
        _check_version(path)
        _check_files(path, home)
        _remember(path, home)
        return
    ping(path)


def _check_version(path: str) -> None:
    said = ask(path, "GET", "version", timeout_seconds=10.0)
    told = str((said or {}).get("ApiVersion") or "0.0").split(".")
    version = tuple(int(part) for part in told[:2] if part.isdigit())
    if version < OLDEST_API:
        raise ConfigError(
            f"The container engine at {path} is too old: {said.get('Version')}.",
            hint="Docker 19.03 and podman 4 are the oldest that work.",
        )


def _check_files(path: str, home: Home) -> None:
    """Let the engine make a container of a folder that is only here; it looks for it at once, and is not started."""
    images = ask(path, "GET", "images/json", timeout_seconds=10.0)
    if not images:
        return  # the first launch finds it out
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="seen-", dir=home.path)
    body = {
        "Image": images[0]["Id"],
        "Cmd": ["true"],
        "Labels": {"fabric.probe": "files"},
        "HostConfig": {"Mounts": [{"Type": "bind", "Source": folder, "Target": "/seen", "ReadOnly": True}]},
    }
    name = f"fabric-probe-{os.urandom(6).hex()}"
    try:
        ask(path, "POST", f"containers/create?name={name}", body)
        ask(path, "DELETE", f"containers/{name}?force=1")
    except EngineRefused as error:
        if _MISSING in error.message:
            raise ConfigError(
                f"The container engine at {path} does not see this machine's files: it runs somewhere else.",
                hint="Add the machine that it runs on as a backend: fabric backend add NAME ssh://MACHINE",
            ) from error
        # What else it does not like about this image, the job's own will say.
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_known(path: str, home: Home) -> bool:
    try:
        return bool(json.loads(_memory(home).read_text()).get(path) == _stamp(path))
    except (OSError, ValueError, AttributeError):
        return False


def _remember(path: str, home: Home) -> None:
    known = {}
    try:
        known = json.loads(_memory(home).read_text())
    except (OSError, ValueError):
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = _memory(home).with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({**known, path: _stamp(path)}))
    new.rename(_memory(home))


def _stamp(path: str) -> list[int]:
    """Return what another engine at the same path would not have."""
    found = Path(path).stat()
    return [found.st_dev, found.st_ino, int(found.st_mtime)]


def _memory(home: Home) -> Path:
    return home.path / "engines.json"
