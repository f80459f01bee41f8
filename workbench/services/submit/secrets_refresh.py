"""Finds the secrets of a job again: of one that was adopted, or whose file of secrets was lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.errors import ManifestError, UsageError

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.spec import JobSpec
    from workbench.store.db.rows import JobDetail


def find_again(home: Home, job_id: str, spec: JobSpec) -> list[str]:
    """Keep those of a job's missing secrets that are found here; return the names of the others.

    Raises:
        NotAllowed: the user's file of secrets may be read by others.
        CannotWrite: the home takes no more.
    """
    from workbench.controller.runtime.secrets import read_secrets, replace_secrets
    from workbench.manifest.keys.credentials import needed_by

    have = read_secrets(home, job_id)
    missing = [name for name in needed_by(spec) if name not in have]
    found = {name: value for name in missing if (value := _value_of(name, spec)) is not None}
    if found:
        replace_secrets(home, job_id, {**have, **found})
    return [name for name in missing if name not in found]


def renew_credentials(home: Home, whole: JobDetail) -> None:
    """Keep what ``${NAME}`` in a job's connections stands for now, where that is found: keys may be others by now.

    Raises:
        NotAllowed: the user's file of secrets may be read by others.
        CannotWrite: the home takes no more.
    """
    from workbench.controller.runtime.secrets import read_secrets, replace_secrets

    have = read_secrets(home, whole.row.id)
    renewed = renewed_credentials(whole, have)
    if renewed != have:
        replace_secrets(home, whole.row.id, renewed)


def renewed_credentials(whole: JobDetail, have: Mapping[str, str]) -> dict[str, str]:
    """Return a job's secrets with what ``${NAME}`` in its connections stands for now, where that is found.

    What ``--set`` gave stays as it was.

    Raises:
        NotAllowed: the user's file of secrets may be read by others.
    """
    from workbench.manifest.builder.overrides import SET

    # What the command line set is not what the manifest names; --data of a command line is in its text, too.
    now = {path: value for path, value in _now(whole) if path in have and whole.origins.get(path) != SET}
    return {**have, **now}


def _now(whole: JobDetail) -> Iterator[tuple[str, str]]:
    """Yield by path what each credential of the manifest stands for now, where it is a reference that is found."""
    from workbench.config.secrets import find_secrets
    from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
    from workbench.manifest import load_text
    from workbench.manifest.keys.credentials import named_in, resolved
    from workbench.services.submit.credentials import session_token_paths, with_session_token

    try:
        read = load_text(whole.manifest_text, "manifest", environ={}, defaults={})
    except ManifestError:
        return  # incomplete without a template or a flag
    if [store.id for store in read.spec.data_stores] != [store.id for store in whole.spec.data_stores]:
        return  # --data or --results replaced them
    # Keys of the environment come with its session token, or without one: then those are keys that last.
    yield from dict.fromkeys(session_token_paths(read).values(), "").items()
    read = with_session_token(read)
    for path, text in read.credentials.items():
        # Those of an experiment's code are one text with what was written out, which is nowhere but in the first job.
        if (names := named_in(text)) and path != DATA_SECRETS_VARIABLE:
            try:
                values = find_secrets(names)
            except UsageError:
                continue
            yield path, resolved(text, values.__getitem__)


def _value_of(name: str, spec: JobSpec) -> str | None:
    """Find a secret by its name; what stood in the manifest itself has none."""
    from workbench.config.secrets import find_secrets

    if name not in spec.secrets:
        return None
    try:
        return find_secrets([name])[name]
    except UsageError:
        return None
