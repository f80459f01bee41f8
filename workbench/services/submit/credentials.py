"""Credentials of a job that is about to be submitted: ``${NAME}`` becomes a value, plain text gets a warning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.manifest.keys.credentials import is_reference, named_in, resolved

if TYPE_CHECKING:
    from workbench.manifest import Loaded

STARS: Final = "********"
SHORTEST: Final = 8
KEYS: Final = "password|token|access_token|secret_access_key"
_OPTION: Final = re.compile(rf"((?:^|\.)(?:{KEYS})=).*", re.DOTALL)


def with_values(loaded: Loaded) -> tuple[Loaded, list[str]]:
    """Return a manifest whose credentials are values, and warnings about those that are written out in it.

    In an address ``${NAME}`` is replaced in the job's records too; in a credential it stays a reference.

    Raises:
        UsageError: a secret is not set.
        NotAllowed: the user's file of secrets may be read by others.
    """
    from workbench.config.secrets import find_secrets

    stores = loaded.spec.data_stores
    texts = [*loaded.credentials.values(), *(text for store in stores for text in store.connection.values())]
    names = list(dict.fromkeys(name for text in texts for name in named_in(text)))
    values = find_secrets(names) if names else {}
    kept = {path: resolved(text, values.__getitem__) for path, text in loaded.credentials.items()}
    open_stores = tuple(
        replace(
            store,
            connection={key: resolved(text, values.__getitem__) for key, text in store.connection.items()},
        )
        for store in stores
    )
    resolved_manifest = replace(loaded, spec=replace(loaded.spec, data_stores=open_stores), credentials=kept)
    return resolved_manifest, _warnings(loaded)


def inline_secrets(loaded: Loaded) -> list[str]:
    """Return the credentials that are written out in a manifest."""
    return [text for text in loaded.credentials.values() if not is_reference(text)]


def masked(arguments: Sequence[str], values: Iterable[str]) -> list[str]:
    """Return a command line without secrets, for the job's records."""
    long_values = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
    kept = []
    for argument in arguments:
        text = _OPTION.sub(lambda found: found[1] + STARS, argument)
        for value in long_values:
            text = text.replace(value, "*" * len(value))
        kept.append(text)
    return kept


def without_credentials(text: str, values: Sequence[str]) -> str:
    """Return a text, such as a diff, without the credentials of a manifest that stand in it after their keys."""
    for value in values:
        pattern = rf"((?:{KEYS})[\"']?\s*:\s*[\"']?){re.escape(value)}"
        text = re.sub(pattern, lambda found: found[1] + STARS, text)
        if len(value) >= SHORTEST:
            text = text.replace(value, STARS)
    return text


def _warnings(loaded: Loaded) -> list[str]:
    # A store that the command line names comes from the configuration, which holds no password.
    named = STARS not in loaded.text or loaded.source == "command line"
    plain = [
        path
        for path, text in loaded.credentials.items()
        if not is_reference(text) and not (named and loaded.origins.get(path) == "flag --data")
    ]
    if not plain:
        return []
    more = f" (and {len(plain) - 1} more)" if len(plain) > 1 else ""
    return [
        f"{loaded.source}: {plain[0]}{more} is written out for all to read; write ${{NAME}} and give NAME by your"
        " environment, secrets.toml or keyring"
    ]
