"""Looks anew for the secrets of a job that came here without them: of one that was adopted, or whose file is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.manifest.model import JobSpec
    from workbench.paths import Home


def find_again(home: Home, job_id: str, spec: JobSpec) -> list[str]:
    """Keep those of a job's missing secrets that are found here; return the names of the others.

    Raises:
        NotAllowed: the user's file of secrets may be read by others.
        CannotWrite: the home takes no more.
    """
    from workbench.controller.secrets import forget_secrets, read_secrets, write_secrets
    from workbench.manifest.credentials import needed_by

    have = read_secrets(home, job_id)
    missing = [name for name in needed_by(spec) if name not in have]
    found = {name: value for name in missing if (value := _value_of(name, spec)) is not None}
    if found:
        forget_secrets(home, job_id)
        write_secrets(home, job_id, {**have, **found})
    return [name for name in missing if name not in found]


def _value_of(name: str, spec: JobSpec) -> str | None:
    """Find a secret by its name; what stood in the manifest itself has none."""
    from workbench.config.secrets import find_secrets

    if name not in spec.secrets:
        return None
    try:
        return find_secrets([name])[name]
    except UsageError:
        return None
