"""Sets one value in a file of the configuration, or takes it out; the rest stays as the user wrote it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from workbench.config.edit import editing, key_text, toml_value, write_checked
from workbench.config.model import RETENTION, RUN_OPTIONS, TABLES, parse, reader_of
from workbench.errors import ConfigError, UnknownName, UsageError

_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
_PART: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^.\s]+")


def set_value(path: Path, key: str, text: str) -> Any:
    """Set a dotted key to a value, written as TOML or as a plain text; return the value.

    Raises:
        UnknownName: it is no key of the configuration.
        UsageError: the value cannot be one of that key.
        ConfigError: the file is at fault, or says this in a form that only its author can change.
        CannotWrite: it cannot be written.
    """
    parts = parts_of(key)
    value = _value_of(text, parts)
    with editing(path) as (file, before):
        expected = _with(parse(file, before), parts, value)
        after = _set_line(before, parts, f"{key_text(parts[-1])} = {toml_value(value)}")
        _check(file, after, key)
        write_checked(file, after, expected)
    return value


def unset_value(path: Path, key: str) -> None:
    """Take a dotted key out of a file.

    Raises:
        UnknownName: the file does not say it.
        ConfigError: the file is at fault, or says it in a form that only its author can change.
        CannotWrite: it cannot be written.
    """
    parts = parts_of(key)
    with editing(path) as (file, before):
        said = parse(file, before)
        if found(said, parts) is None:
            raise UnknownName(f"{file} says nothing of {key}", hint="`fabric config list` shows what is said")
        write_checked(file, _set_line(before, parts, ""), _with(said, parts, None))


def parts_of(key: str) -> list[str]:
    """Split a dotted key, and see that it begins with a table of the configuration.

    Raises:
        UnknownName: it does not; the hint names the nearest.
    """
    from workbench.manifest.yaml.faults import nearest

    parts = [part.strip("\"'") for part in _PART.findall(key)]
    if len(parts) > 1 and parts[0] in TABLES:
        return parts
    first = parts[0] if parts else key
    close = nearest(first, TABLES)
    hint = f"did you mean {close}.{'.'.join(parts[1:]) or '...'}? " if close and close != first else ""
    if not hint and _is_default(first):
        hint = f"did you mean defaults.{key}? "
    raise UnknownName(
        f"{key} is no key of the configuration", hint=f"{hint}keys begin with {', '.join(TABLES)}"
    )


def found(document: Mapping[str, Any], parts: Sequence[str]) -> Any:
    """Return what a document says at a path, or None."""
    node: Any = document
    for part in parts:
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def _is_default(name: str) -> bool:
    from workbench.manifest.keys.root import MANIFEST

    return name in (*MANIFEST.known(), *RUN_OPTIONS)


def _value_of(text: str, parts: Sequence[str]) -> Any:
    import tomllib

    if _kind(parts) is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _kind(parts: Sequence[str]) -> type | None:
    """Return what a value has to be, where the table of keys alone says so."""
    own = parts[2:] if parts[0] == "profiles" else parts
    if len(own) == 2 and own[0] in ("defaults", "retention"):
        return {**RUN_OPTIONS, **RETENTION}.get(own[1])
    if own[0] == "data":
        return str
    return str if own[0] == "backends" and own[-1] in ("type", "address") else None


def _with(document: dict[str, Any], parts: Sequence[str], value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(document)
    node = whole
    for part in parts[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UsageError(f"{part} is a value here, nothing is below it")
    if value is None:
        del node[parts[-1]]
    else:
        node[parts[-1]] = value
    return whole


def _check(file: Path, text: str, key: str) -> None:
    """See that the file would be one without faults, and that the key has an effect."""
    try:
        config = reader_of(file, text).config()
    except ConfigError as error:
        raise UsageError(error.message.partition(": ")[2] or error.message) from error
    for warning in config.warnings:
        if key == warning.key or key.startswith(f"{warning.key}."):
            raise UnknownName(f"{warning.key} {warning.problem}", hint=warning.hint)


def _set_line(text: str, parts: Sequence[str], line: str) -> str:
    """Replace a key's line, or put one at the end of its table, or a table at the end; no line takes it out."""
    rows = text.splitlines(keepends=True)
    header, last = _table(rows, parts[:-1])
    if header < 0:
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}[{'.'.join(key_text(part) for part in parts[:-1])}]\n{line}\n" if line else text
    own = re.compile(rf"\s*[\"']?{re.escape(parts[-1])}[\"']?\s*=")
    there = [number for number in range(header + 1, last + 1) if own.match(rows[number])]
    new = [f"{line}\n"] if line else []
    if there:
        rows[there[0] : there[0] + 1] = new
        return "".join(rows)
    if not rows[last].endswith("\n"):
        rows[last] += "\n"
    rows[last + 1 : last + 1] = new
    return "".join(rows)


def _table(rows: Sequence[str], path: Sequence[str]) -> tuple[int, int]:
    """Return the lines of a table's header and of the last thing it says; -1 where it has none."""
    header = last = -1
    for number, row in enumerate(rows):
        match = _HEADER.fullmatch(row.rstrip("\r\n"))
        if match or row.lstrip().startswith("[["):
            if header >= 0:
                break
            if match and [part.strip("\"'") for part in _PART.findall(match[1])] == list(path):
                header = last = number
        elif header >= 0 and row.strip() and not row.lstrip().startswith("#"):
            last = number
    return header, last
