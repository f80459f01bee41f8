"""Changes of ``config.toml`` that leave everything else in it as the user wrote it, comments included."""

from __future__ import annotations

import copy
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Comment, InlineTable, Item, Key, Table, Whitespace

from workbench.config.model import (
    LOCAL,
    NAME,
    RETENTION,
    RUN_OPTIONS,
    TABLES,
    parse,
    read_config,
    read_text,
    reader_of,
    type_of_address,
)
from workbench.errors import CannotWrite, ConfigError, UnknownName, UsageError, is_utf8, not_utf8
from workbench.paths import config_file

Entry = tuple[Key | None, Item]
"""A line of a TOML document: a key with its value, or a comment or blank line without one."""


def add_backend(
    name: str, type: str = "", address: str = "", options: Mapping[str, Any] | None = None
) -> None:
    """Add a named backend at the end of the file, which is made if it is not there.

    Args:
        name: letters, digits, dashes, underscores and dots.
        type: the backend's type; by its address if empty.
        address: such as ``ssh://me@gpubox``.
        options: what else that type of backend knows; texts, numbers, truth values and lists of them.

    Raises:
        UsageError: the name or the address cannot be used, or the name is taken.
        ConfigError: the file is at fault.
        CannotWrite: it cannot be written.
    """
    kind = type or type_of_address(address)
    if not NAME.fullmatch(name) or name == LOCAL:
        reason = (
            "is this machine and is always there" if name == LOCAL else "is not a valid name of a backend"
        )
        raise UsageError(f"{name!r} {reason}", hint="letters, digits, '-', '_' and '.'")
    if not kind:
        raise UsageError(
            f"{address!r} is not an address", hint="such as ssh://me@gpubox or k8s://context/namespace"
        )
    if kind == LOCAL:
        raise UsageError("there is one backend of type local, this machine")
    if not is_utf8("".join(map(str, (address, kind, *(options or {}).values())))):
        raise UsageError("the address and options of a backend must be UTF-8 text")
    settings = {"type": kind, **({"address": address} if address else {}), **(options or {})}
    with editing() as (path, text):
        if name in read_config(path).backends:
            raise UsageError(
                f"there is a backend {name!r} already",
                hint=f"fabric backend remove {name} takes it away first",
            )
        document = _document(path, text)
        _put(document, ("backends", name), _item(settings, table=True))
        expected = parse(path, text)
        expected.setdefault("backends", {})[name] = settings
        _replace(path, document, expected)


def remove_backend(name: str) -> None:
    """Take a named backend out of the file.

    Raises:
        UnknownName: there is none of that name; the hint names those there are.
        UsageError: it is ``local``.
        ConfigError: the file is at fault, or says it in a form that only its author can change.
        CannotWrite: it cannot be written.
    """
    if name == LOCAL:
        raise UsageError("the backend local is this machine and cannot be removed")
    with editing() as (path, text):
        config = read_config(path)
        if name not in config.backends:
            raise UnknownName(
                f"there is no backend {name!r}", hint=f"there are {', '.join(sorted(config.backends))}"
            )
        expected = parse(path, text)
        del expected["backends"][name]
        document = _document(path, text)
        _remove_table(document, ("backends", name))
        _replace(path, document, expected)


def _document(path: Path, text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise _not_editable(path) from error


def _not_editable(path: Path) -> ConfigError:
    return ConfigError(f"{path} has a form that is not changed here", hint="edit the file by hand")


def _item(value: Any, *, table: bool = False) -> Item:
    """Make a TOML item; a mapping is an inline table unless it is to have a header of its own."""
    if not isinstance(value, Mapping):
        item: Item = tomlkit.item(list(value) if isinstance(value, tuple) else value)
        return item
    made = tomlkit.table() if table else tomlkit.inline_table()
    for key, each in value.items():
        made.append(str(key), _item(each))
    return made


def _put(document: tomlkit.TOMLDocument, path: Sequence[str], item: Item) -> None:
    """Set the value at a path; tables that are missing on the way are made at the end of the file."""
    node: Any = document
    for depth, part in enumerate(path[:-1]):
        if part not in node:
            if document.as_string() and not document.as_string().endswith("\n"):
                document.add(tomlkit.nl())
            has_header = depth == len(path) - 2 and not isinstance(item, Table)
            node[part] = tomlkit.table(is_super_table=not has_header)
        node = node[part]
    # What lies in an inline table can have no header.
    node[path[-1]] = _item(item.unwrap()) if isinstance(node, InlineTable) else item


def _remove_table(document: tomlkit.TOMLDocument, path: Sequence[str]) -> None:
    """Remove a table with the comments right above its header; those that follow it belong to the next and stay."""
    node: Any = document
    for part in path[:-1]:
        node = node[part]
    table = node[path[-1]]
    if isinstance(table, Table):
        above = _lines_above(document, table)
        following = _comments_at_end(_last_lines(table))
        _comments_at_end(above)
        above += following
    del node[path[-1]]


def _lines_above(document: tomlkit.TOMLDocument, table: Table) -> list[Entry]:
    """Return the lines of the innermost table that ends where this one begins."""
    above: list[Entry] = document.body

    def visit(lines: list[Entry]) -> bool:
        nonlocal above
        for _, item in lines:
            if item is table:
                return True
            if isinstance(item, Table):
                above = item.value.body if not item.is_super_table() else above
                if visit(item.value.body):
                    return True
        return False

    visit(document.body)
    return above


def _last_lines(table: Table) -> list[Entry]:
    body: list[Entry] = table.value.body
    return _last_lines(body[-1][1]) if body and isinstance(body[-1][1], Table) else body


def _comments_at_end(lines: list[Entry]) -> list[Entry]:
    """Take the comments and blank lines at the end of a table out of it, and return them."""
    first = len(lines)
    while first and isinstance(lines[first - 1][1], Comment | Whitespace):
        first -= 1
    taken = lines[first:]
    del lines[first:]
    return taken


@contextmanager
def editing(path: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Hold the folder of the file locked, so that two commands do not undo each other's change."""
    path = Path(os.path.realpath(path or config_file()))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise CannotWrite(f"the folder {path.parent} cannot be made: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield path, read_text(path)
    finally:
        os.close(folder)


def _replace(path: Path, document: tomlkit.TOMLDocument, expected: Mapping[str, Any]) -> None:
    """Replace the file by an edited document, once it is sure that it says what is expected."""
    text = document.as_string()
    try:
        written = parse(path, text)
    except ConfigError:
        written = {}
    if {**written, "backends": written.get("backends", {})} != {
        **expected,
        "backends": expected.get("backends", {}),
    }:
        raise _not_editable(path)
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from error


_PART: Final = re.compile(r"\"[^\"]*\"|'[^']*'|[^.\s]+")


def set_value(path: Path, key: str, text: str) -> Any:
    """Set a dotted key to a value, written as TOML or as a plain text; return the value.

    Raises:
        UnknownName: it is not a configuration key.
        UsageError: the value cannot be one of that key.
        ConfigError: the file is at fault, or says this in a form that only its author can change.
        CannotWrite: it cannot be written.
    """
    if not is_utf8(key + text):
        raise not_utf8(f"{key}={text}")
    parts = parts_of(key)
    value = value_of(text, parts)
    with editing(path) as (file, before):
        expected = _with(parse(file, before), parts, value)
        document = _document(file, before)
        _put(document, parts, _item(value))
        _check(file, document.as_string(), key)
        _replace(file, document, expected)
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
        settings = parse(file, before)
        if found(settings, parts) is None:
            raise UnknownName(f"{key} is not set in {file}", hint="`fabric config list` shows what is set")
        document = _document(file, before)
        node: Any = document
        for part in parts[:-1]:
            node = node[part]
        del node[parts[-1]]
        _replace(file, document, _with(settings, parts, None))


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
    raise UnknownName(f"{key} is not a configuration key", hint=f"{hint}keys begin with {', '.join(TABLES)}")


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


def value_of(text: str, parts: Sequence[str]) -> Any:
    """Return the value that a text is for a key: as TOML where it is that, else the text."""
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
    if own[0] == "data" or own == ["code", "max_size"]:
        return str
    return str if own[0] == "backends" and own[-1] in ("type", "address") else None


def _with(document: dict[str, Any], parts: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the document with a value at a path, or without it where the value is None."""
    whole = copy.deepcopy(document)
    node = whole
    for part in parts[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UsageError(f"{part} is a plain value and has no keys")
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
