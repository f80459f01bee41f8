"""Data stores that the configuration names, and other addresses for those that manifests write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from workbench.errors import ConfigError, UnknownName
from workbench.manifest.keys.credentials import CREDENTIALS, is_reference
from workbench.manifest.keys.store_keys import CONNECTION, STORE_TYPES
from workbench.manifest.keys.units import size_bytes
from workbench.manifest.yaml.faults import nearest

if TYPE_CHECKING:
    from workbench.config.types import Config

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+")


def fault_of_store(table: Any) -> str:
    """Say what is wrong with a table of ``[stores]``; empty when nothing is."""
    if not isinstance(table, dict):
        return "must be a table of the type and what a manifest's connection says"
    known = (*CONNECTION.keys, "path")
    for key, value in table.items():
        if key not in known:
            close = nearest(key, known)
            return f"has no {key}" + (f"; did you mean {close}?" if close else "")
        if not isinstance(value, str):
            return f"has a {key} that is not a text in quotes"
        if key in CREDENTIALS and not is_reference(value):
            return f'holds a {key}; write {key} = "${{NAME}}", and NAME into secrets.toml, which nobody else reads'
    kind = table.get("type", "")
    if kind not in STORE_TYPES:
        close = nearest(kind, STORE_TYPES)
        return (f"has no type {kind!r}" if kind else "lacks a type") + (
            f"; did you mean {close}?" if close else f"; one of {', '.join(STORE_TYPES)}"
        )
    return ""


def fault_of_alias(address: str, target: Any) -> str:
    """Say what is wrong with an entry of ``[store_alias]``; empty when nothing is."""
    if not isinstance(target, str) or not target:
        return "must be another address or the name of a store, as a text in quotes"
    return (
        ""
        if _ADDRESS.fullmatch(address)
        else "is not an address as manifests write it, such as http://s3.example.com"
    )


def same_address(one: str, other: str) -> bool:
    """Say whether two addresses are written the same but for a slash at the end and the case."""
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def alias_of(address: str, config: Config) -> str:
    """Return the configuration's alias of an address; empty without one."""
    return next((target for known, target in config.store_alias.items() if same_address(known, address)), "")


def is_address(text: str) -> bool:
    """Say whether a text is an address and not the name of a store."""
    return _ADDRESS.fullmatch(text) is not None


def named_store(
    name: str, config: Config, *, more: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, str]:
    """Return a store of the configuration, or one of ``more``, by its name.

    Raises:
        UnknownName: there is none; the hint names those there are.
    """
    known = {**(more or {}), **config.stores}
    if name not in known:
        close = nearest(name, known)
        there = f"there are {', '.join(sorted(known))}" if known else "the configuration has none"
        raise UnknownName(
            f"there is no store {name!r}",
            hint=(f"did you mean {close}? " if close else "") + f"{there}; [stores.{name}] names one",
        )
    return dict(known[name])


def aliased(address: str, config: Config) -> dict[str, str] | None:
    """Return the connection that the configuration has for an address; None where it has none.

    Raises:
        ConfigError: the alias is neither an address nor a store.
    """
    target = alias_of(address, config)
    if not target:
        return None
    if is_address(target):
        return {"auth_url": target}
    try:
        return named_store(target, config)
    except UnknownName as error:
        raise ConfigError(
            f"store_alias maps {address} to {target!r}, which is neither an address nor a store",
            hint=error.hint,
        ) from error


CACHE: Final = "cache"
CACHE_AT: Final = "cache_at"
KEYS: Final = (CACHE, CACHE_AT)


def fault_of(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first key of ``[data]`` whose value cannot be, and what is wrong with it; empty when nothing is."""
    if (problem := _fault_of_size(data.get(CACHE))) and CACHE in data:
        return CACHE, problem
    limits = data.get(CACHE_AT, {})
    if not isinstance(limits, dict):
        return CACHE_AT, "must be a table of sizes by backend; write [data.cache_at]"
    for name, limit in limits.items():
        if problem := _fault_of_size(limit):
            return f"{CACHE_AT}.{name}", problem
    return "", ""


def cache_bytes(backend: str, config: Config) -> int:
    """Return the limit of a backend's data cache in bytes; 0 where none is set: half of its disk."""
    limit = config.data.get(CACHE_AT, {}).get(backend) or config.data.get(CACHE)
    return size_bytes(limit) if limit else 0


def _fault_of_size(value: Any) -> str:
    if not isinstance(value, str):
        return 'must be a size in quotes, such as "200GB"'
    try:
        size_bytes(value)
    except ValueError as error:
        return f"cannot be: {error}"
    return ""
