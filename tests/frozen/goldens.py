"""The files that hold today's behaviour: read, compared and written in one way."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
HELP: Final = FOLDER / "help"
JSON: Final = FOLDER / "json"
OPTIONS: Final = FOLDER / "options.json"
NAMES: Final = FOLDER / "names.json"
KEYS: Final = FOLDER / "keys.json"
SCHEMAS: Final = FOLDER / "schemas.json"

PARAMETERS: Final = "parameters"
"""The key under which a function's parameters stand."""

_LINE: Final = 120


def read(file: Path) -> Any:
    """Return the document of a file."""
    return json.loads(file.read_text(encoding="utf-8"))


def text_of(document: Any) -> str:
    """Return a document as it is kept: what fits is one line, so that a diff shows what changed and little else."""
    return _drawn(document, "") + "\n"


def _drawn(value: Any, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not isinstance(value, dict | list) or len(line) + len(indent) <= _LINE:
        return line
    below = indent + " "
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {_drawn(each, below)}"
            for key, each in sorted(value.items())
        ]
        return "{\n" + ",\n".join(below + part for part in parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(below + _drawn(each, below) for each in value) + f"\n{indent}]"


def difference(expected: str, found: str) -> str:
    """Return what differs, as a diff; empty where nothing does."""
    before, after = (text.splitlines(keepends=True) for text in (expected, found))
    return "".join(difflib.unified_diff(before, after, "frozen", "now", n=2))


def holds(file: Path, document: Any) -> None:
    """Fail unless a document has all that the file has: fields, options and names are only added."""
    assert file.is_file(), f"{file.name} is not there: python -m tests.frozen.renew --help"
    gone = list(lost(read(file), json.loads(json.dumps(document))))
    assert not gone, f"{file.relative_to(FOLDER)}:\n" + "\n".join(gone)


def lost(frozen: Any, now: Any, where: str = "") -> Iterator[str]:
    """Give what is not as it was frozen; more fields may be there, but not more elements."""
    if isinstance(frozen, dict) and isinstance(now, dict):
        for key, value in frozen.items():
            if key not in now:
                yield f"{where} > {key}: was {value}, is gone"
            elif key == PARAMETERS:
                yield from _lost_parameters(value, now[key], where)
            else:
                yield from lost(value, now[key], f"{where} > {key}")
    elif isinstance(frozen, list) and isinstance(now, list) and len(frozen) == len(now):
        for number, (value, other) in enumerate(zip(frozen, now, strict=True)):
            yield from lost(value, other, f"{where} > {number}")
    elif frozen != now or type(frozen) is not type(now):
        yield f"{where}: was {frozen}, is {now}"


def _lost_parameters(frozen: list[str], now: list[str], where: str) -> Iterator[str]:
    """Give what of a function's parameters is gone; one may come that need not be given."""
    if [one for one in now if one in frozen or "=" not in one] != frozen:
        yield f"{where} > {PARAMETERS}: was {frozen}, is {now}"


def page_file(name: str) -> Path:
    """Return the file that holds the help of a command or a topic."""
    return HELP / f"{name.replace(' ', '-')}.txt"


def pages(asked: Mapping[str, Any]) -> dict[Path, str]:
    """Return every page of help by the file that holds it."""
    topics = {f"help {name}": page for name, page in asked["topics"].items()}
    return {page_file(name): page for name, page in {**asked["help"], **topics}.items()}
