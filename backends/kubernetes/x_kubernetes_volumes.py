"""Reads which volumes every pod of a cluster gets: ``claim:/path[:ro]``, ``/host/path:/path[:ro]``, or tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SOURCES: Final = ("claim", "host_path", "config_map", "secret")
_KEYS: Final = (*_SOURCES, "path", "read_only", "sub_path")
_SHORT: Final = (
    "write claim:/path, /host/path:/path, either with :ro, or a table with path and one of "
    + ", ".join(_SOURCES)
)


def volumes(value: Any) -> tuple[dict[str, Any], ...]:
    """Return each volume as ``source`` (the API's document of it), ``path``, ``read_only`` and ``sub_path``.

    Raises:
        ValueError: one cannot be; the message says what would be right.
    """
    items = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(_SHORT)
    found = tuple(_of_table(item) if isinstance(item, Mapping) else _of_text(item) for item in items)
    paths = [volume["path"] for volume in found]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"two volumes are mounted at {path}")
    return found


def _of_text(item: Any) -> dict[str, Any]:
    parts = item.strip().split(":") if isinstance(item, str) else []
    read_only = len(parts) == 3 and parts[2] == "ro"
    if len(parts) != 2 and not read_only:
        raise ValueError(f"{item!r} is no volume; {_SHORT}")
    source = "host_path" if parts[0].startswith("/") else "claim"
    return _of_table({source: parts[0], "path": parts[1], "read_only": read_only})


def _of_table(item: Mapping[str, Any]) -> dict[str, Any]:
    named = [source for source in _SOURCES if source in item]
    if len(named) != 1 or any(key not in _KEYS for key in item):
        raise ValueError(f"{dict(item)} is no volume; {_SHORT}")
    path, read_only = item.get("path", ""), item.get("read_only", False)
    if not isinstance(path, str) or not path.startswith("/") or path == "/" or ":" in path:
        raise ValueError(f"a volume's path must be absolute in the pod, not {path!r}")
    if path == "/job" or path.startswith(("/job/", "/fabric")):
        raise ValueError(f"{path} is the job's own folder; mount the volume somewhere else")
    if not isinstance(read_only, bool):
        raise ValueError("a volume's read_only is true or false")
    return {
        "source": _source(named[0], item[named[0]], read_only),
        "path": path.rstrip("/"),
        "read_only": read_only,
        "sub_path": str(item.get("sub_path", "")),
    }


def _source(kind: str, name: Any, read_only: bool) -> dict[str, Any]:
    text = name if isinstance(name, str) else ""
    if kind == "host_path":
        if not text.startswith("/"):
            raise ValueError(f"host_path is a folder of the node, an absolute path, not {name!r}")
        return {"hostPath": {"path": text}}
    if not _NAME.fullmatch(text):
        raise ValueError(f"{name!r} is no name of a {kind.replace('_', ' ')}")
    if kind == "claim":
        return {"persistentVolumeClaim": {"claimName": text, **({"readOnly": True} if read_only else {})}}
    return {"configMap": {"name": text}} if kind == "config_map" else {"secret": {"secretName": text}}
