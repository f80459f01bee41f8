"""What ``--json`` prints: documents that carry ``schema``, to which fields are only ever added."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.formats import json_value

if TYPE_CHECKING:
    from workbench.documents.catalogue import Document
    from workbench.documents.events import Event

_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""What JSON may hold as it is, but some terminals obey."""


def print_document(document: Document | Sequence[Document]) -> None:
    """Print one whole document: an object indented, of an array one element a line."""
    print_json(document)


def print_json(document: Any) -> None:  # any value that JSON has
    """Print a value that is none of our documents, as a schema is."""
    if isinstance(document, list):
        # One line an element: the standard library indents ten times slower than it writes.
        body = ",\n".join(_dump(element) for element in document)
        sys.stdout.write(f"[\n{body}\n]\n" if document else "[]\n")
    else:
        sys.stdout.write(_dump(document, indent=2) + "\n")


def print_event(event: Event, *, flush: bool = True) -> None:
    """Print one line of a stream, at once unless more follow."""
    sys.stdout.write(_dump(event) + "\n")
    if flush:
        sys.stdout.flush()


def _dump(value: Any, *, indent: int | None = None) -> str:
    r"""Write JSON; NaN and infinities, which it does not have, are null and texts.

    A file name that is not UTF-8 makes it all ASCII: with ``\udce9`` in it, which Python reads back as that name. So
    does an output whose encoding lacks a character.
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        value = json_value(value)
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, allow_nan=False)
    return text if text.isascii() and "\x7f" not in text else text.translate(_CONTROLS)
