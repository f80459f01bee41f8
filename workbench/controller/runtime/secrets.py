"""Values of secrets by job: a file each, 0600, in a folder of the home that is 0700; in no row and no log."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.errors import InputMissing
from workbench.manifest.keys.credentials import needed_by
from workbench.paths import Home, create_private
from workbench.spec import JobSpec
from workbench.store.db.errors import read_failure, write_failure


def secrets_file(home: Home, job_id: str) -> Path:
    """Return where the secret values of a job are kept."""
    return home.secrets / f"{job_id}.json"


def write_secrets(home: Home, job_id: str, secrets: Mapping[str, str]) -> None:
    """Keep the secret values of a new job; nothing is written where it has none.

    Raises:
        CannotWrite: the home takes no more.
    """
    if not secrets:
        return
    file = secrets_file(home, job_id)
    try:
        _write_new(file, secrets)
    except OSError as error:
        raise write_failure(error, file) from error


def replace_secrets(home: Home, job_id: str, secrets: Mapping[str, str]) -> None:
    """Keep other secret values of a job in place of those that are kept, all of them or none.

    Raises:
        CannotWrite: the home takes no more; what was kept is kept still.
    """
    file, new = secrets_file(home, job_id), _new_file(home, job_id)
    try:
        new.unlink(missing_ok=True)  # of a process that was killed
        _write_new(new, secrets)
        new.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise write_failure(error, file) from error


def read_secrets(home: Home, job_id: str) -> dict[str, str]:
    """Read the secret values of a job; none where it has none.

    Raises:
        InputMissing: the file is there and cannot be read.
    """
    file = secrets_file(home, job_id)
    try:
        document = json.loads(file.read_bytes())
        return {str(name): str(value) for name, value in document.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise read_failure(error, file) from error
    except (ValueError, AttributeError) as error:
        raise InputMissing(f"{file} no longer holds the job's secrets") from error


def all_secrets(home: Home, job_id: str, spec: JobSpec) -> dict[str, str]:
    """Read the secret values of a job, none of which may be missing.

    Raises:
        InputMissing: one is not there: an adopted job comes without them. Names it.
    """
    found = read_secrets(home, job_id)
    missing = [name for name in needed_by(spec) if name not in found]
    if missing:
        raise refusal_of(missing)
    return found


def refusal_of(missing: Sequence[str]) -> InputMissing:
    """Say that a job cannot be started without secrets that are not here."""
    what = "secret" if len(missing) == 1 else "secrets"
    verb = "is" if len(missing) == 1 else "are"
    return InputMissing(
        f"The {what} {', '.join(missing)} of this job {verb} not on this machine.",
        hint=f"export {missing[0]}=..., then fabric resume JOB: it looks for them again",
    )


def forget_secrets(home: Home, job_id: str) -> None:
    """Remove the secret values of a job, if there are any."""
    for file in (secrets_file(home, job_id), _new_file(home, job_id)):
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def unfinished(home: Home) -> list[Path]:
    """Return the files that were written to take the place of others, and did not: their process was killed."""
    return sorted(home.secrets.glob(".*.new"))


def _write_new(file: Path, secrets: Mapping[str, str]) -> None:
    """Write a file that is not there yet, down to the disk."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    with create_private(file) as stream:
        json.dump(dict(secrets), stream)
        stream.flush()
        os.fsync(stream.fileno())


def _new_file(home: Home, job_id: str) -> Path:
    """Return where values are written before they take the place of others."""
    return home.secrets / f".{job_id}.new"
