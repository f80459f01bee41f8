"""The whole of a line: JSON set out, a traceback with all its lines; and saving what is shown to a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from textual.content import Content

from screens.logs.document import LogDocument
from workbench.errors import FabricError
from workbench.logs.levels import Level, behind_prefix, traceback_prefix
from workbench.logs.sanitise import plain
from workbench.store.db.errors import write_failure

MOST_BYTES: Final = 100_000
MOST_LINES: Final = 400


def detail(document: LogDocument, row: int) -> tuple[str, Content]:
    """Return a title and the whole text of a row."""
    line = document.line(row, timed=True)
    raw = document.raw(row, MOST_BYTES + 1)
    cut = f" (the first {MOST_BYTES:,} bytes)" if len(raw) > MOST_BYTES else ""
    title = f"line {line.number + 1:,} of learner {line.learner}{cut}"
    if line.level >= Level.TRACEBACK:
        return title, Content("\n".join(_traceback(document, row)))
    return title, Content(_set_out(plain(raw[:MOST_BYTES].decode("utf-8", "replace"))))


def texts(document: LogDocument, rows: Iterable[int]) -> list[str]:
    """Return the whole text of rows, without colours."""
    return [
        plain(document.raw(row, MOST_BYTES).decode("utf-8", "replace"))
        for row in rows
        if row < document.count
    ]


def _set_out(shown: str) -> str:
    """Set out JSON, also where something stands before it; leave anything else as it is."""
    start = min((at for at in (shown.find("{"), shown.find("[")) if at >= 0), default=-1)
    if start < 0:
        return shown
    try:
        document = json.loads(shown[start:])
    except (ValueError, RecursionError):
        return shown
    if not isinstance(document, dict | list):
        return shown
    laid_out = json.dumps(document, indent=2, ensure_ascii=False)
    return f"{shown[:start].rstrip()}\n{laid_out}".lstrip("\n")


def _traceback(document: LogDocument, row: int) -> list[str]:
    """Return the lines of the traceback that a row is of, without those of others that stand between them."""
    first, prefix = _head(document, row)
    lines = [plain(document.line(first).text)]
    for at in range(first + 1, min(document.count, first + MOST_LINES)):
        line = document.line(at)
        if prefix and behind_prefix(document.raw(at, MOST_BYTES), prefix) is None:
            continue
        if line.level not in (Level.DETAIL, Level.RAISED):
            break
        lines.append(plain(line.text))
        if line.level is Level.RAISED:
            break
    return lines


def _head(document: LogDocument, row: int) -> tuple[int, bytes]:
    """Return the row that begins the traceback a row is of, and what stands before each of its lines."""
    own = document.raw(row, MOST_BYTES)
    for at in range(row, max(-1, row - MOST_LINES), -1):
        if document.line(at).level is not Level.TRACEBACK:
            continue
        prefix = traceback_prefix(document.raw(at, MOST_BYTES))
        following = document.raw(at + 1, MOST_BYTES) if at + 1 < document.count else b""
        if prefix and following[:1] in (b" ", b"\t") and behind_prefix(following, prefix) is None:
            prefix = b""  # it stood before the first line alone
        if at == row or not prefix or behind_prefix(own, prefix) is not None:
            return at, prefix
    return row, b""


def save(document: LogDocument, path: str) -> str:
    """Write the rows that are shown to a file, whole and without colours; return what to say of it.

    Raises:
        CannotWrite: the file cannot be written.
        FabricError: there is a file of that name.
    """
    file = Path(path).expanduser()
    rows = document.count
    try:
        with file.open("x", encoding="utf-8") as stream:
            for row in range(rows):
                stream.write(plain(document.raw(row, 1 << 30).decode("utf-8", "replace")) + "\n")
    except FileExistsError:
        raise FabricError(f"{file} exists already", hint="choose another name") from None
    except OSError as error:
        raise write_failure(error, file) from error
    return f"saved {rows:,} lines to {file}"
