"""Finds the value of a secret by its name: in the environment, in the user's ``secrets.toml``, in the keyring.

The file lies in the folder of ``config.toml``, holds ``NAME = "value"`` a line, and is refused if others may read it.
The keyring is asked only where the package ``keyring`` is installed, for the service ``fabric``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from workbench.config.model import parse, read_text
from workbench.errors import ConfigError, NotAllowed, UsageError
from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
from workbench.paths import config_file

SERVICE: Final = "fabric"
"""What the keyring knows our secrets by: ``keyring set fabric NAME``."""
_JOB_VARIABLE: Final = "TRAINING_ID"
"""What a process has that is part of a job."""


def secrets_file() -> Path:
    """Return where a user may keep secrets: in the folder of the configuration."""
    return config_file().with_name("secrets.toml")


def find_secrets(names: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the values of secrets.

    Args:
        names: what they are called.
        environ: searched first; the process's environment if None, without what is there of an experiment whose job
            this process is part of: a job that it submits has secrets of its own.

    Raises:
        UsageError: one is not set; all of these are named.
        NotAllowed: the file may be read by others.
        ConfigError: the file is not TOML, or a value in it is not a text.
    """
    around = _own_environment() if environ is None else environ
    found = {name: around[name] for name in names if name in around}
    for source in (_of_file, _of_keyring):
        if missing := [name for name in names if name not in found]:
            found |= source(missing)
    if missing := [name for name in dict.fromkeys(names) if name not in found]:
        raise UsageError(
            f"secret {missing[0]} is not set"
            if len(missing) == 1
            else f"secrets {', '.join(missing)} are not set",
            hint=f'export {missing[0]}=... before the command, or write {missing[0]} = "..." into'
            f" {secrets_file()} (mode 0600)" + _or_keyring(missing[0]),
        )
    return {name: found[name] for name in names}


def _own_environment() -> Mapping[str, str]:
    if _JOB_VARIABLE not in os.environ:
        return os.environ
    return {name: value for name, value in os.environ.items() if name != DATA_SECRETS_VARIABLE}


def _of_file(names: Sequence[str]) -> dict[str, str]:
    file = secrets_file()
    try:
        mode = file.stat().st_mode & 0o777
    except OSError:
        return {}
    if mode & 0o077:
        raise NotAllowed(
            f"{file} may be read by others (mode {mode:04o}), so no secret is taken from it",
            hint=f"chmod 600 {file}",
        )
    document = parse(file, read_text(file))
    found = {name: document[name] for name in names if name in document}
    for name, value in found.items():
        if not isinstance(value, str):
            raise ConfigError(f'{file}: {name} must be a text in quotes: {name} = "..."')
    return found


def _of_keyring(names: Sequence[str]) -> dict[str, str]:
    if find_spec("keyring") is None:
        return {}
    keyring = import_module("keyring")
    found: dict[str, str] = {}
    for name in names:
        try:
            value = keyring.get_password(SERVICE, name)
        except Exception:
            # A keyring that is locked or has no back end is one that does not know the secret.
            return found
        if isinstance(value, str):
            found[name] = value
    return found


def _or_keyring(name: str) -> str:
    return f", or keyring set {SERVICE} {name}" if find_spec("keyring") else ""
