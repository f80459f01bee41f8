"""Whether a container engine sees this machine's files: tried once an engine, and remembered."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from backends.contract.container_engines import Endpoint, ping
from workbench.errors import ConfigError
from workbench.learner.platform.engine_client import EngineRefused, ask
from workbench.paths import Home

OLDEST_API: Final = (1, 40)
_MISSING: Final = "bind source path does not exist"


def check_engine(endpoint: Endpoint, home: Home) -> None:
    """Make sure that jobs can run on an engine.

    Raises:
        PlaceUnreachable: nothing answers.
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
                hint="Add the machine that it runs on as a place: fabric backend add NAME ssh://MACHINE",
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
