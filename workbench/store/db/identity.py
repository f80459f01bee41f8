"""The home's folder, and which home it is, so that its learners are told from those of others."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Final

from workbench.errors import ConfigError, InputMissing
from workbench.paths import Home, create_private, make_private_folder
from workbench.store.db.errors import write_failure
from workbench.store.db.home_folder import ensure_bound

FORMAT: Final = 1
_UUID_LENGTH: Final = 36


def make_home(home: Home, *, uuid_text: str = "") -> None:
    """Make the home's folder (0700) and its ``home.json`` where they are missing.

    Safe when two do it at once.

    ``uuid_text`` names the home again whose ``home.json`` was lost.

    Raises:
        CannotWrite: the folder cannot be made or written.
        ConfigError: the home is from a newer version of fabric.
    """
    if home.identity.is_file():
        return
    try:
        make_private_folder(home.path)
        import uuid  # 5 ms that only a new home needs

        chosen = uuid.UUID(uuid_text) if uuid_text else uuid.uuid4()
        _write_once(home.identity, {"format": FORMAT, "uuid": str(chosen)})
    except OSError as error:
        raise write_failure(error, home.path) from error


def require_made(home: Home) -> None:
    """Refuse a folder that is not a home: who works for one that was removed must not make it again.

    Raises:
        InputMissing: there is no ``home.json``.
    """
    if not home.identity.is_file():
        lost = (
            f"{home.identity} is missing" if home.path.is_dir() else f"the home {home.path} no longer exists"
        )
        raise InputMissing(lost, hint="the next command that starts a job makes a new home")


def home_uuid(home: Home, *, makes: bool = True) -> str:
    """Return the uuid of a home, which is bound if it never was; with ``makes`` the home is made where it is missing.

    Raises:
        InputMissing: it is missing and is not to be made, or it cannot be read.
    """
    make_home(home) if makes else require_made(home)
    ensure_bound(home)
    document = _read(home.identity)
    if document.get("format", 0) > FORMAT:
        raise ConfigError(
            f"{home.path} is from a newer version of fabric "
            f"(format {document['format']}, this one knows {FORMAT})",
            hint="upgrade fabric",
        )
    return str(document["uuid"])


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_bytes())
        if len(document["uuid"]) != _UUID_LENGTH:
            raise ValueError("no uuid")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputMissing(
            f"{file} does not name this home ({error})",
            hint="restore it from a backup: running learners carry its uuid",
        ) from error
    assert isinstance(document, dict)
    return document


def _write_once(file: Path, document: dict[str, Any]) -> None:
    """Write a file that keeps the content of whoever came first."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with create_private(temporary) as stream:
            json.dump(document, stream)
            stream.flush()
            os.fsync(stream.fileno())
        from workbench.learner.platform.system import name_once  # only a new home needs it

        name_once(str(temporary), str(file))
    finally:
        temporary.unlink(missing_ok=True)
