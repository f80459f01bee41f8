"""The files that hold today's behaviour: read, compared and written in one way."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
HELP: Final = FOLDER / "help"
JSON: Final = FOLDER / "json"
OPTIONS: Final = FOLDER / "options.json"
NAMES: Final = FOLDER / "names.json"
KEYS: Final = FOLDER / "keys.json"

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


def same(file: Path, document: Any) -> None:
    """Fail with a diff unless a document is the one that the file holds."""
    assert file.is_file(), f"{file.name} is not there: python -m tests.frozen.renew --help"
    differs = difference(file.read_text(encoding="utf-8"), text_of(document))
    assert not differs, f"{file.relative_to(FOLDER)}:\n{differs}"


def page_file(name: str) -> Path:
    """Return the file that holds the help of a command or a topic."""
    return HELP / f"{name.replace(' ', '-')}.txt"


def pages(asked: Mapping[str, Any]) -> dict[Path, str]:
    """Return every page of help by the file that holds it."""
    topics = {f"help {name}": page for name, page in asked["topics"].items()}
    return {page_file(name): page for name, page in {**asked["help"], **topics}.items()}
