"""Checks what ``--json`` prints against the published schemas, which then take no key that they do not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import jsonschema

from workbench.documents.catalogue import BY_MARK, schema_of

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(\d{3}|\d{6})Z")
TIMES: Final = jsonschema.FormatChecker(())
TIMES.checks("date-time")(lambda text: not isinstance(text, str) or bool(_TIME.fullmatch(text)))


def documents_in(printed: str) -> list[Any]:
    """Return the documents that a command printed: one, an array, or one on each line."""
    try:
        found = json.loads(printed)
    except ValueError:
        found = [json.loads(line) for line in printed.splitlines()]
    return found if isinstance(found, list) else [found]


def faults(document: Any) -> Iterator[str]:
    """Yield what a document has that its schema has not, and the other way round."""
    mark = str(document.get("schema")) if isinstance(document, dict) else "a value"
    if mark not in BY_MARK:
        yield f"{mark} has no schema: {str(document)[:200]}"
        return
    if not any(fits(kind, document) for kind in BY_MARK[mark]):
        for kind in BY_MARK[mark]:
            for each in _validator(kind).iter_errors(document):
                yield f"{kind.__name__}: {each.json_path}: {each.message[:500]}"


def fits(kind: Any, document: Any) -> bool:
    """Whether a document is of a type."""
    return bool(_validator(kind).is_valid(document))


def check_printed(printed: str) -> None:
    """Fail where a printed document does not fit its schema, or has none."""
    for document in documents_in(printed):
        if isinstance(document, dict) and str(document.get("$schema", "")).startswith("http"):
            continue  # a schema itself
        found = list(faults(document))
        assert not found, "\n".join(found)


@cache
def _validator(kind: Any) -> jsonschema.Draft202012Validator:
    rule = schema_of([kind], kind.__name__, closed=True)
    jsonschema.Draft202012Validator.check_schema(rule)
    return jsonschema.Draft202012Validator(rule, format_checker=TIMES)
