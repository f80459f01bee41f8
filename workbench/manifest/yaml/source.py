"""Reads the text of a manifest from a file, a pipe or standard input."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final, TextIO

from workbench.errors import InputMissing, ManifestError, ManifestFault

BYTES_MAX: Final = 1 << 20
STDIN_NAME: Final = "stdin"

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BYTE_ORDER_MARKS: Final = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip",
}
_MANIFEST_NAMES: Final = (".yml", ".yaml", ".json")


def read_manifest(source: str, stdin: TextIO | None) -> str:
    """Return the text of a manifest; ``-`` is standard input.

    Raises:
        InputMissing: there is no such file, or it cannot be read.
        ManifestError: it is not text, or too large.
    """
    if source == "-":
        return decoded(_from_stdin(stdin), STDIN_NAME)
    path = Path(source)
    try:
        if path.is_dir():
            raise _is_a_folder(source, path)
        with path.open("rb") as stream:
            return decoded(stream.read(BYTES_MAX + 1), source)
    except FileNotFoundError:
        raise InputMissing(f"there is no manifest {source}", hint=_others(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputMissing(f"the manifest {source} cannot be read: {reason}") from None


def _from_stdin(stdin: TextIO | None) -> bytes:
    stream = stdin or sys.stdin
    if stream is None:
        raise InputMissing("the manifest was to come from standard input, which is closed")
    try:
        raw = getattr(stream, "buffer", None)
        data: bytes | str = (raw or stream).read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise InputMissing(f"standard input cannot be read: {error}") from None
    return data if isinstance(data, bytes) else data.encode(errors="surrogateescape")


def _is_a_folder(source: str, path: Path) -> InputMissing:
    inside = next((name for name in ("manifest.yml", "manifest.yaml") if (path / name).is_file()), "")
    hint = f"write {path / inside}" if inside else "write the name of a file in it"
    return InputMissing(f"{source} is a folder, not a manifest", hint=hint)


def _others(path: Path) -> str:
    try:
        names = sorted(other.name for other in path.parent.iterdir() if other.suffix in _MANIFEST_NAMES)
    except OSError:
        return f"there is no folder {path.parent} either"
    if not names:
        return "fabric init writes one"
    return f"{path.parent} has {', '.join(names[:5])}" + (" and more" if len(names) > 5 else "")


def decoded(data: bytes, source: str) -> str:
    """Return the text of a manifest's bytes.

    Raises:
        ManifestError: they are too many, not UTF-8, or hold what no text holds.
    """
    for mark, kind in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            raise ManifestError(
                [ManifestFault(source, 1, 1, "", f"this is {kind}; a manifest is UTF-8 text")]
            )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError([_not_utf8(data, error, source)]) from None
    if len(data) > BYTES_MAX:
        problem = f"is larger than {BYTES_MAX:,} bytes; a manifest needs a few thousand"
        raise ManifestError([ManifestFault(source, 0, 0, "", problem)])
    if found := _FORBIDDEN.search(text):
        line, column = _line_and_column(text[: found.start()])
        problem = f"the character U+{ord(found[0]):04X} cannot stand in a manifest; leave it out"
        raise ManifestError([ManifestFault(source, line, column, "", problem)])
    return text


def _not_utf8(data: bytes, error: UnicodeDecodeError, source: str) -> ManifestFault:
    if len(data) > BYTES_MAX and error.start > BYTES_MAX - 4:
        return ManifestFault(
            source, 0, 0, "", f"is larger than {BYTES_MAX:,} bytes; a manifest needs a few thousand"
        )
    before = data[: error.start].decode("utf-8-sig", errors="replace")
    line, column = _line_and_column(before)
    return ManifestFault(
        source, line, column, "", f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
    )


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
