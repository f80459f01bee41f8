"""Finds this machine's container engine in the same order as the ``docker`` command; sockets of podman come last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from workbench.errors import BackendUnreachable, ConfigError, FabricError, NotAllowed
from workbench.learner.platform.engine_client import (
    UNVERSIONED,
    EngineRefused,
    EngineRequest,
    ask,
    connected,
    newest_version,
    version_numbers,
)
from workbench.paths import Home, make_private_folder, write_private
from workbench.values import dataclass

SOCKET: Final = "/var/run/docker.sock"
PING_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0
CREATE_SECONDS: Final = 30.0
AS_PROCESS: Final = "or run the job as a process with --runner process"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a container engine."""

    address: str
    """``unix:///var/run/docker.sock``, ``tcp://...``, ``ssh://...``."""
    source: str = ""
    """What named the address: ``DOCKER_HOST``, ``the Docker context work``; empty for a default socket."""

    @property
    def path(self) -> str:
        """The path of the engine's unix socket.

        Raises:
            ConfigError: the address is not a unix socket, so the engine is on another machine.
        """
        if self.address.startswith("unix://"):
            return self.address.removeprefix("unix://")
        raise ConfigError(
            f"The container engine {self.address} ({self.source}) is not on this machine.",
            hint=_remote_hint(self.address),
        )


class EngineHangs(BackendUnreachable):
    """An engine that is there and does not answer now, or answers with a fault of its own: a launch waits for it."""


def find_engine(environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the address in ``DOCKER_HOST``, of the Docker context, or else the first default socket that exists."""
    if address := environ.get("DOCKER_HOST"):
        return Endpoint(address, "DOCKER_HOST")
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
    """Yield the default sockets of Docker, rootless Docker and podman; ``runtime`` is ``XDG_RUNTIME_DIR``."""
    yield SOCKET
    if runtime:
        yield f"{runtime}/docker.sock"
        yield f"{runtime}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def ping(path: str) -> None:
    """Check that an engine answers at a socket.

    Raises:
        EngineHangs: its socket takes connections, and it does not answer, or with a fault.
        BackendUnreachable: there is no socket, or nobody listens at it.
        NotAllowed: the user may not open the socket.
    """
    try:
        stream = connected(path, PING_SECONDS)
    except PermissionError as error:
        raise not_allowed(path) from error
    except (TimeoutError, BlockingIOError) as error:  # its line of connections is full
        raise _hangs(path, f"has not answered for {PING_SECONDS:g} s") from error
    except OSError as error:
        raise no_engine(path) from error
    with _answers(path, PING_SECONDS):
        EngineRequest(stream, "GET", "_ping", version=UNVERSIONED).answer()


@contextlib.contextmanager
def _answers(path: str, timeout_seconds: float) -> Iterator[None]:
    """Raise EngineHangs for what an engine that is there does not answer: only one that is not there is passed over."""
    try:
        yield
    except TimeoutError as error:
        raise _hangs(path, f"has not answered for {timeout_seconds:g} s") from error
    except OSError as error:
        raise _hangs(path, f"ended the connection: {error.strerror or error}") from error
    except (
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # well-formed, and something else than was asked for
        raise _hangs(path, "gives an answer that is not understood") from error
    except EngineRefused as error:
        raise _hangs(path, f"answers with an error: {error.message or error.status}") from error


def _hangs(path: str, what: str) -> EngineHangs:
    return EngineHangs(
        f"The container engine at {path} {what}.", hint=f"Start it again if it hangs, {AS_PROCESS}."
    )


def no_engine(path: str) -> FabricError:
    """Return the error for an engine that does not answer."""
    return BackendUnreachable(
        f"No container engine answers at {path}.",
        hint=f"Start Docker or podman, point DOCKER_HOST at it, {AS_PROCESS}.",
    )


def not_allowed(path: str) -> FabricError:
    """Return the error for a socket that the user may not open."""
    return NotAllowed(
        f"You may not use the container engine at {path}.",
        hint=f"Become a member of its group (sudo usermod -aG docker $USER, then log in again), {AS_PROCESS}.",
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
    """Check that jobs can run on an engine; version and files are checked once for each socket.

    Raises:
        EngineHangs: the engine is there and does not answer now.
        BackendUnreachable: the engine does not answer.
        NotAllowed: the user may not open its socket.
        ConfigError: it is on another machine, or its API is older than 1.40.
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
    with _answers(path, ANSWER_SECONDS):
        if newest_version(lambda: connected(path, ANSWER_SECONDS)) >= OLDEST_API:
            return
        version_info = ask(path, "GET", "version", timeout_seconds=ANSWER_SECONDS) or {}
        version = version_numbers(str(version_info.get("ApiVersion") or "0.0"))
    if version < OLDEST_API:
        raise ConfigError(
            f"The container engine at {path} is too old: {version_info.get('Version')}.",
            hint="Docker 19.03 and podman 4 are the oldest that work.",
        )


def _check_files(path: str, home: Home) -> None:
    """Check that the engine sees this machine's files: create a container that mounts a new folder; never start it."""
    with _answers(path, ANSWER_SECONDS):
        images = ask(path, "GET", "images/json", timeout_seconds=ANSWER_SECONDS)
        image = images[0]["Id"] if images else ""
    if not image:
        return  # without an image there is nothing to create; the first launch reports it
    make_private_folder(home.path)
    folder = tempfile.mkdtemp(prefix="seen-", dir=home.path)
    body = {
        "Image": image,
        "Cmd": ["true"],
        "Labels": {"fabric.probe": "files"},
        "HostConfig": {"Mounts": [{"Type": "bind", "Source": folder, "Target": "/seen", "ReadOnly": True}]},
    }
    name = f"fabric-probe-{os.urandom(6).hex()}"
    try:
        ask(path, "POST", f"containers/create?name={name}", body, timeout_seconds=CREATE_SECONDS)
        ask(path, "DELETE", f"containers/{name}?force=1", timeout_seconds=CREATE_SECONDS)
    except OSError as error:
        raise _hangs(path, f"does not create a container: {error.strerror or error}") from error
    except EngineRefused as error:
        if _MISSING in error.message:
            raise ConfigError(
                f"The container engine at {path} does not see this machine's files: it runs somewhere else.",
                hint="Add the machine that it runs on as a backend: fabric backend add NAME ssh://MACHINE",
            ) from error
        # Any other refusal concerns this image; the job's own container reports its own.
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
        make_private_folder(home.path)
    new = _memory(home).with_suffix(f".{os.getpid()}")
    write_private(new, json.dumps({**known, path: _stamp(path)}))
    new.rename(_memory(home))


def _stamp(path: str) -> list[int]:
    """Return the socket's device, inode and time of change: they differ for another engine at the same path."""
    found = Path(path).stat()
    return [found.st_dev, found.st_ino, int(found.st_mtime)]


def _memory(home: Home) -> Path:
    return home.path / "engines.json"
