"""Changes of ``config.toml`` that leave everything else in it as the user wrote it, comments included."""

from __future__ import annotations

import copy
import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

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
from workbench.errors import CannotWrite, ConfigError, UnknownName, UsageError
from workbench.paths import config_file

_HEADER: Final = re.compile(r"\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


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
        reason = "is this machine and is always there" if name == LOCAL else "is no name of a backend"
        raise UsageError(f"{name!r} {reason}", hint="letters, digits, '-', '_' and '.'")
    if not kind:
        raise UsageError(
            f"{address!r} is no address", hint="such as ssh://me@gpubox or k8s://context/namespace"
        )
    if kind == LOCAL:
        raise UsageError("there is one backend of type local, this machine")
    if not _is_text((address, kind, *(options or {}).values())):
        raise UsageError("the address and options of a backend must be UTF-8 text")
    said = {"type": kind, **({"address": address} if address else {}), **(options or {})}
    with editing() as (path, text):
        if name in read_config(path).backends:
            raise UsageError(
                f"there is a backend {name!r} already",
                hint=f"fabric backend remove {name} takes it away first",
            )
        rows = [
            f"[backends.{key_text(name)}]",
            *(f"{key_text(key)} = {toml_value(value)}" for key, value in said.items()),
        ]
        gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        after = text + gap + "\n".join(rows) + "\n"
        expected = parse(path, text)
        expected.setdefault("backends", {})[name] = said
        write_checked(path, after, expected)


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
        write_checked(path, _without_table(text, name), expected)


def _without_table(text: str, name: str) -> str:
    """Leave out a backend's table and those below it, with the remarks right above it; others keep theirs."""
    kept: list[str] = []
    remarks: list[str] = []
    inside = False
    for row in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(row.rstrip("\r\n"))
        if header:
            goes_on = inside
            inside = [part.strip("\"'") for part in _parts(header["name"])][:2] == ["backends", name]
            if inside:
                _drop_remarks(kept)
            elif goes_on:
                kept += remarks
        if not inside:
            kept.append(row)
        elif _is_remark(row):
            remarks.append(row)
        else:
            remarks.clear()
    return "".join(kept + (remarks if inside and any(map(str.strip, remarks)) else []))


def _drop_remarks(kept: list[str]) -> None:
    while kept and kept[-1].lstrip().startswith("#"):
        kept.pop()
    while kept and not kept[-1].strip():
        kept.pop()


def _is_remark(row: str) -> bool:
    return not row.strip() or row.lstrip().startswith("#")


def _parts(name: str) -> list[str]:
    return re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", name)


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


def write_checked(path: Path, text: str, expected: Mapping[str, Any]) -> None:
    """Replace the file, once it is sure that it says what is expected."""
    try:
        said = parse(path, text)
    except ConfigError:
        said = {}
    if {**said, "backends": said.get("backends", {})} != {
        **expected,
        "backends": expected.get("backends", {}),
    }:
        raise ConfigError(
            f"{path} says its backends in a form that is not changed here", hint="edit the file by hand"
        )
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


def _is_text(values: Iterable[Any]) -> bool:
    try:
        "".join(map(str, values)).encode()
    except UnicodeEncodeError:
        return False
    return True


def key_text(name: str) -> str:
    """Write a key as TOML has it, in quotes where it needs them."""
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def toml_value(value: Any) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{key_text(str(key))} = {toml_value(item)}" for key, item in value.items()) + "}"
        )
    return _text(str(value))


def _text(value: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        character = found[0]
        return f"\\{character}" if character in '"\\' else f"\\u{ord(character):04x}"

    return '"' + re.sub(r'["\\\x00-\x1f\x7f]', escaped, value) + '"'


_TABLE_HEADER: Final = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?")
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
    if own[0] == "data" or own == ["code", "max_size"]:
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
        match = _TABLE_HEADER.fullmatch(row.rstrip("\r\n"))
        if match or row.lstrip().startswith("[["):
            if header >= 0:
                break
            if match and [part.strip("\"'") for part in _PART.findall(match[1])] == list(path):
                header = last = number
        elif header >= 0 and row.strip() and not row.lstrip().startswith("#"):
            last = number
    return header, last
