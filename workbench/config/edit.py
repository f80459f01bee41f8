"""Changes of ``config.toml`` that leave everything else in it as the user wrote it, comments included."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from workbench.config.model import LOCAL, NAME, parse, read_config, read_text, type_of_address
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
