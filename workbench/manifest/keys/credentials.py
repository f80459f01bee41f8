"""Credentials written in a manifest, as in FfDL's: replaced by references in all that is kept or shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from workbench.manifest.keys.registries import LOGIN_CREDENTIALS
from workbench.manifest.yaml.nodes import MapNode, Node, ScalarNode, leaves
from workbench.spec import JobSpec

CREDENTIALS: Final = ("password", "token")
"""Keys of a connection that are credentials however they are written."""

_REFERENCE: Final = re.compile(r"\$\{secret:([^}]+)\}")

LOCATION: Final = "framework.image_location."
"""Before the keys of a login to the image's registry."""

_NAMES: Final = frozenset(
    {
        *("password", "access_token", "secret_access_key", "token"),
        *("identity_token", "identitytoken", "registry_token", "registrytoken"),
    }
)
_AUTHS: Final = (f"{LOCATION}auth", "framework.imagelocation.auth")
_DETERMINED_PARTS: Final = ("environment.registry_auth.", "checkpoint_storage.")
_DETERMINED_NAMES: Final = frozenset({"auth", "access_key", "secret_key", "connection_string", "credential"})
"""What else is a credential in an experiment of Determined, below those parts."""
DATA_SECRETS: Final = "data.secrets"
"""Where an experiment of Determined has the secrets of its code."""
_YAML_BLANKS: Final = " \t\r\n\x85\u2028\u2029"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def spans(root: Node | None) -> set[tuple[int, int]]:
    """Return where credentials stand in the text that a tree was composed of; ``${NAME}`` is none."""
    if not isinstance(root, MapNode):
        return set()
    return {
        node.span
        for path, node in leaves(root)
        if isinstance(node, ScalarNode)
        and _is_credential(path)
        and not node.is_null
        and not _VARIABLE.fullmatch(node.text.strip())
    }


def _is_credential(path: str) -> bool:
    name = path.rpartition(".")[2]
    return (
        name in _NAMES
        or f"{path}.".startswith(f"{DATA_SECRETS}.")
        or path in _AUTHS
        or (name in _DETERMINED_NAMES and path.startswith(_DETERMINED_PARTS))
    )


def holds_credential(root: Node, path: str) -> bool:
    """Say whether what is set at a path is a credential, or a map or list with one in it."""
    return any(_is_credential(below) for below, _ in leaves(root, path))


def plain_in(value: object, path: str = "") -> str:
    """Return the path of the first credential that is written out in plain values of TOML; empty where none is."""
    if isinstance(value, dict):
        for key, item in value.items():
            inside = f"{path}.{key}" if path else str(key)
            if (
                _is_credential(inside)
                and isinstance(item, str)
                and item
                and not _VARIABLE.fullmatch(item.strip())
            ):
                return inside
            if found := plain_in(item, inside):
                return found
    elif isinstance(value, list):
        return next((found for each in value if (found := plain_in(each, path))), "")
    return ""


def overwritten(text: str, found: Iterable[tuple[int, int]]) -> str:
    """Return a text whose credentials are stars; it reads as a manifest still."""
    for start, end in sorted(found, reverse=True):
        # The span of a block scalar reaches into the line of what follows. Other blanks are part of a plain one.
        end = start + len(text[start:end].rstrip(_YAML_BLANKS))
        text = text[:start] + '"********"' + text[end:]
    return text


def taken_out(spec: JobSpec, *, with_user_names: bool = False) -> tuple[JobSpec, dict[str, str]]:
    """Return a job in which credentials are references, and the values that they stand for.

    With ``with_user_names`` the user names of stores are credentials however they are written.
    """
    kept: dict[str, str] = {}
    more = ("user_name",) if with_user_names else ()
    stores = tuple(
        replace(store, connection=connection_without(store.connection, number, kept, more))
        for number, store in enumerate(spec.data_stores)
    )
    location = _location_without(spec.framework.image_location, kept)
    framework = replace(spec.framework, image_location=location)
    return replace(spec, data_stores=stores, framework=framework), kept


def _location_without(location: Mapping[str, str], kept: dict[str, str]) -> dict[str, str]:
    """Return the location of an image with references for its credentials, which go to ``kept``."""
    open_part = dict(location)
    for key, value in location.items():
        is_secret = key in LOGIN_CREDENTIALS or (key == "username" and is_reference(value))
        if value and is_secret and not _REFERENCE.fullmatch(value):
            kept[LOCATION + key] = value
            open_part[key] = reference(LOCATION + key)
    return open_part


def connection_without(
    connection: Mapping[str, str], number: int, kept: dict[str, str], more: Collection[str] = ()
) -> dict[str, str]:
    """Return the connection of a store, by its number, with references for its credentials, which go to ``kept``.

    A user name that refers to a variable is a credential too, and so are the keys in ``more``.
    """
    open_part = dict(connection)
    for key, value in connection.items():
        is_secret = key in CREDENTIALS or key in more or (key == "user_name" and is_reference(value))
        if value and is_secret and not _REFERENCE.fullmatch(value):
            path = f"data_stores.{number}.connection.{key}"
            kept[path] = value
            open_part[key] = reference(path)
    return open_part


def reference(path: str) -> str:
    """Return what stands in a job's spec for the credential at a path of its manifest."""
    return f"${{secret:{path}}}"


def put_back(text: str, kept: Mapping[str, str]) -> str:
    """Return a value with what its references stand for, nothing for one that is lost."""
    return _REFERENCE.sub(lambda found: kept.get(found[1], ""), text)


def paths_in(text: str) -> list[str]:
    """Return the paths of the credentials that a value of a spec refers to."""
    return _REFERENCE.findall(text)


def needed_by(spec: JobSpec) -> list[str]:
    """List what a job's secrets have to hold: those it names, and the paths of credentials that its manifest had."""
    texts = [text for store in spec.data_stores for text in store.connection.values()]
    texts += spec.framework.image_location.values()
    return list(dict.fromkeys([*spec.secrets, *(path for text in texts for path in paths_in(text))]))


def is_reference(text: str) -> bool:
    """Say whether a value names variables, as ``${NAME}``."""
    return _VARIABLE.search(text) is not None


def named_in(text: str) -> list[str]:
    """Return the names that ``${NAME}`` in a value asks for."""
    return _VARIABLE.findall(text)


def resolved(text: str, value_of: Callable[[str], str]) -> str:
    """Return a value in which every ``${NAME}`` is what it stands for."""
    return _VARIABLE.sub(lambda found: value_of(found[1]), text)
