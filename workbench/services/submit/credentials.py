"""Credentials of a job that is about to be submitted: ``${NAME}`` becomes a value, plain text gets a warning.

Temporary ones get a note of when they expire: a job that waits longer cannot reach its stores any more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from workbench.clock import now_us
from workbench.config.token_expiry import TOKEN_NAMES, TokenExpiry, session_expiry, signature_expiry
from workbench.errors import NotAllowed, UsageError, is_utf8
from workbench.formats import stamp
from workbench.learner.determined_jobs import DATA_SECRETS_VARIABLE
from workbench.learner.scribe.masking import values_of_data_secrets
from workbench.manifest.keys.credentials import (
    LOCATION,
    holds_credential,
    is_reference,
    named_in,
    paths_in,
    put_back,
    reference,
    resolved,
)
from workbench.manifest.keys.registries import decoded_auth
from workbench.manifest.yaml.nodes import ScalarNode, SourceLocation
from workbench.time_expressions import local_iso, until_text

if TYPE_CHECKING:
    from workbench.manifest import Loaded
    from workbench.spec import DataStore, JobSpec

STARS: Final = "********"
SHORTEST: Final = 8
TOKEN: Final = "AWS_SESSION_TOKEN"
_S3_KEYS: Final = {"user_name": "AWS_ACCESS_KEY_ID", "password": "AWS_SECRET_ACCESS_KEY"}
_S3_REFERENCES: Final = {key: f"${{{name}}}" for key, name in _S3_KEYS.items()}
KEYS: Final = "password|token|access_token|secret_access_key|identity_?token|registry_?token"
_S3_TYPES: Final = ("s3_datastore", "mount_cos")
_OPTION: Final = re.compile(rf"((?:^|\.)(?:{KEYS}|(?:image_?location|registry_auth)\.auth)=).*", re.DOTALL)
_LONG_OPTION: Final = re.compile(r"--[\w-]+=")
"""Before what it sets, in the same word: ``--set=``, and ``--config=`` of Determined's, which may be shortened."""


def with_values(loaded: Loaded) -> tuple[Loaded, list[str]]:
    """Return a manifest whose credentials are values, and warnings about those that are written out in it.

    In an address ``${NAME}`` is replaced in the job's records too; in a credential it stays a reference.

    Raises:
        UsageError: a secret is not set, or is no login.
        NotAllowed: the user's file of secrets may be read by others.
    """
    from workbench.config.secrets import find_secrets

    loaded = with_session_token(loaded)
    stores = loaded.spec.data_stores
    texts = [*loaded.credentials.values(), *(text for store in stores for text in store.connection.values())]
    names = list(dict.fromkeys(name for text in texts for name in named_in(text)))
    values = find_secrets(names) if names else {}
    kept = {path: _with_value(path, text, values) for path, text in loaded.credentials.items()}
    if (auth := kept.get(f"{LOCATION}auth")) and decoded_auth(auth) is None:
        raise UsageError(
            f"{LOCATION}auth is not the base64 of USER:PASSWORD",
            hint="write username: and password: in its stead",
        )
    open_stores = tuple(
        replace(
            store,
            connection={key: resolved(text, values.__getitem__) for key, text in store.connection.items()},
        )
        for store in stores
    )
    resolved_manifest = replace(loaded, spec=replace(loaded.spec, data_stores=open_stores), credentials=kept)
    return resolved_manifest, _warnings(loaded)


def _with_value(path: str, text: str, values: Mapping[str, str]) -> str:
    is_json = path == DATA_SECRETS_VARIABLE
    return resolved(text, lambda name: json.dumps(values[name])[1:-1] if is_json else values[name])


def with_session_token(loaded: Loaded) -> Loaded:
    """Add the session token of temporary keys to stores of S3 that take their keys from the same environment."""
    paths = session_token_paths(loaded) if os.environ.get(TOKEN) else {}
    if not paths:
        return loaded
    stores = tuple(
        replace(store, connection={**store.connection, "token": reference(paths[number])})
        if number in paths
        else store
        for number, store in enumerate(loaded.spec.data_stores)
    )
    kept = {**loaded.credentials, **dict.fromkeys(paths.values(), f"${{{TOKEN}}}")}
    return replace(loaded, spec=replace(loaded.spec, data_stores=stores), credentials=kept)


def session_token_paths(loaded: Loaded) -> dict[int, str]:
    """Return where the session token of the environment goes: by the numbers of the stores that have its keys."""
    if not all(os.environ.get(name) for name in _S3_KEYS.values()):
        return {}
    found = {}
    for number, store in enumerate(loaded.spec.data_stores):
        keys = {key: _text_of(store.connection.get(key, ""), loaded.credentials) for key in _S3_KEYS}
        if store.type in _S3_TYPES and not store.connection.get("token") and keys == _S3_REFERENCES:
            found[number] = f"data_stores.{number}.connection.token"
    return found


def _text_of(value: str, kept: Mapping[str, str]) -> str:
    """Return a value of a connection as its manifest has it."""
    return put_back(value, kept) if paths_in(value) else value


def inline_secrets(loaded: Loaded) -> list[str]:
    """Return the credentials that are written out in a manifest."""
    return [text for _, text in _written_out(loaded)]


def _written_out(loaded: Loaded) -> list[tuple[str, str]]:
    """Return the paths and the values of the credentials of a manifest that are no references."""
    found = [(path, text) for path, text in loaded.credentials.items() if path != DATA_SECRETS_VARIABLE]
    found += values_of_data_secrets(loaded.credentials.get(DATA_SECRETS_VARIABLE, ""))
    return [(path, text) for path, text in found if not is_reference(text)]


def masked(arguments: Sequence[str], values: Iterable[str]) -> list[str]:
    """Return a command line without secrets, for the job's records."""
    long_values = sorted({value for value in values if len(value) >= SHORTEST}, key=len, reverse=True)
    kept = []
    for argument in arguments:
        text = _OPTION.sub(lambda found: found[1] + STARS, argument)
        option = _LONG_OPTION.match(argument)
        path, equals, given = argument[option.end() if option else 0 :].partition("=")
        if equals and _sets_a_credential(path.strip(), given):
            text = argument[: len(argument) - len(given)] + STARS
        for value in long_values:
            text = text.replace(value, "*" * len(value))
        kept.append(text)
    return kept


def _sets_a_credential(path: str, value: str) -> bool:
    """Say whether a value, as ``--set`` reads it, is a credential at its path, or a map or list that holds one."""
    from workbench.manifest.yaml.compose import compose
    from workbench.manifest.yaml.faults import Findings

    plain = ScalarNode(value, SourceLocation("--set", 0, 0, "--set"))
    # Without a colon there is no map, and what is not UTF-8 is never read.
    may_be_map = ":" in value and is_utf8(value)
    read = compose(value, "--set", Findings(), lines=False) if may_be_map else None
    return holds_credential(plain, path) or (read is not None and holds_credential(read, path))


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
        path for path, _ in _written_out(loaded) if not (named and loaded.origins.get(path) == "flag --data")
    ]
    if not plain:
        return []
    more = f" (and {len(plain) - 1} more)" if len(plain) > 1 else ""
    return [
        f"{loaded.source}: {plain[0]}{more} is written out for all to read; write ${{NAME}} and give NAME by your"
        " environment, secrets.toml or keyring"
    ]


def expiry_notes(spec: JobSpec, secrets: Mapping[str, str], *, launch: bool) -> tuple[str, ...]:
    """Return a note of when a job's temporary credentials expire; nothing for a job without such.

    Args:
        spec: the job.
        secrets: the credentials that its stores refer to, and the secrets that it names.
        launch: whether it will be submitted.

    Raises:
        NotAllowed: some have expired, and the job will be submitted.
    """
    groups: dict[TokenExpiry, list[str]] = {}
    for name, expiry in _temporary(spec, secrets):
        names = groups.setdefault(expiry, [])
        if name not in names:
            names.append(name)
    if not groups:
        return ()
    now = now_us()
    return tuple(_note(expiry, names, now, launch=launch) for expiry, names in groups.items())


def _note(expiry: TokenExpiry, names: Sequence[str], now: int, *, launch: bool) -> str:
    what = f"its credentials of {' and '.join(names)}"
    lacks = "use them" if all(name in TOKEN_NAMES for name in names) else "reach the store"
    if expiry.time_us is None:
        return (
            f"{what} are temporary, and it is not known when they expire: "
            f"a job that waits longer than that cannot {lacks}"
        )
    if expiry.time_us > now:
        at = until_text(local_iso(expiry.time_us), now)
        return f"{what} expire at {at}: a job that waits longer cannot {lacks}"
    over = f"{what} expired at {stamp(expiry.time_us)}, as {expiry.source} says"
    if launch:
        raise NotAllowed(
            over, hint="get new ones (`aws sso login`, for example), set their variables, and submit it again"
        )
    return f"{over}: `fabric run` refuses the job"


def _temporary(spec: JobSpec, secrets: Mapping[str, str]) -> Iterator[tuple[str, TokenExpiry]]:
    """Yield what each of a job's temporary credentials is for, and when it expires."""
    for store in spec.data_stores:
        token = put_back(store.connection.get("token", ""), secrets)
        if not token:
            continue
        expiry: TokenExpiry | None = None
        if store.type in _S3_TYPES:
            expiry = session_expiry(token)
        elif store.type == "azure":
            expiry = signature_expiry(token)
        if expiry is not None:
            for name in _places(store):
                yield name, expiry
    for name in spec.secrets:
        if name in TOKEN_NAMES and secrets.get(name):
            yield name, session_expiry(secrets[name])


def _places(store: DataStore) -> list[str]:
    """Name what a job uses of a store."""
    containers = [name.strip("/") for name in (store.training_data, store.training_results)]
    scheme = "s3://" if store.type in _S3_TYPES else f"{store.id}:"
    return [f"{scheme}{name}" for name in containers if name] or [store.id]
