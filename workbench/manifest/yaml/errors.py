"""Explains errors of the YAML parser: a sentence that says what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import SourceLocation

_SENTENCES: Final = (
    (
        "mapping values are not allowed",
        "a colon is not expected here: this line is indented wrongly, the line above lacks its colon,"
        " or a text that holds ': ' must stand in quotes",
    ),
    (
        "did not find expected key",
        "this line does not fit the ones above it: look at its indentation and quotes",
    ),
    (
        "did not find expected '-' indicator",
        "this line does not fit the list above it: look at its indentation",
    ),
    ("could not find expected ':'", "a key must be followed by a colon and a blank"),
    (
        "block sequence entries are not allowed",
        "a list cannot start on this line; begin a new line for its first '-'",
    ),
    ("while scanning a quoted scalar", "the quotation mark that opens here is never closed"),
    ("did not find expected ',' or", "a list or map in brackets is not closed, or a comma is missing"),
    ("did not find expected node content", "a list or map in brackets is not closed, or a value is missing"),
    (
        "unknown escape character",
        "after a backslash in double quotes this character means nothing; use single quotes",
    ),
    ("did not find expected hexdecimal number", "\\x, \\u and \\U in double quotes need hexadecimal digits"),
    ("invalid Unicode character escape code", "this escape stands for no character"),
    ("undefined tag handle", "tags such as !name are not known here; put the text in quotes"),
)


def explain(
    error: Any, text: str, location_at: Callable[[int, int], SourceLocation], findings: Findings
) -> None:
    """Note a syntax error of the parser as a fault with an explanation."""
    mark = error.problem_mark or error.context_mark
    message = f"{error.context or ''} {error.problem or ''}"
    if "while scanning a quoted scalar" in message and "end of stream" in message and error.context_mark:
        mark = error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    location = location_at(line, column)
    character = _character(text, line, column)
    if "cannot start any token" in message:
        findings.fault(location, "", _bad_start(text, character))
        return
    tab = _tab_before(text, line, column)
    if tab is not None:
        findings.fault(location_at(line, tab), "", _bad_start(text, "\t"))
        return
    for part, sentence in _SENTENCES:
        if part in message:
            findings.fault(location, "", sentence)
            return
    findings.fault(location, "", f"this is not YAML: {error.problem or error.context}")


def _bad_start(text: str, character: str) -> str:
    if character == "\t":
        others = sum(1 for row in text.splitlines() if "\t" in row[: len(row) - len(row.lstrip())]) - 1
        more = f" ({others} more lines begin with one)" if others > 0 else ""
        return f"a tab cannot indent YAML; use blanks{more}"
    return f"a text cannot begin with {character!r}; put it in quotes"


def _character(text: str, line: int, column: int) -> str:
    rows = text.splitlines()
    return rows[line][column : column + 1] if line < len(rows) else ""


def _tab_before(text: str, line: int, column: int) -> int | None:
    """Find a tab in the indentation of the line that the parser gave up on."""
    rows = text.splitlines()
    if line >= len(rows):
        return None
    row = rows[line]
    indentation = row[: len(row) - len(row.lstrip())]
    return indentation.index("\t") if "\t" in indentation and column >= indentation.index("\t") else None
