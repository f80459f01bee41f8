"""Writes ``docs/documents.md``: ``python -m workbench.documents.docs --write``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from workbench.documents.catalogue import EVENT_MARK, JOB_FILE, MANIFEST, documents, schema

MANY: Final = 20
"""How many keys of a value inside a document are listed at most."""
FILE: Final = Path(__file__).parents[2] / "docs" / "documents.md"
PROSE: Final = Path(__file__).with_name("documents_page.md")
"""``{{documents}}`` stands where the tables go."""


def documents_page() -> str:
    """Return the whole page."""
    return PROSE.read_text(encoding="utf-8").replace("{{documents}}", "\n".join([*_list(), *_chapters()]))


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    if list(arguments) != ["--write"]:
        print("usage: python -m workbench.documents.docs --write", file=sys.stderr)
        return 64
    FILE.write_text(documents_page(), encoding="utf-8")
    return 0


def _list() -> Iterator[str]:
    yield "| name | mark | |"
    yield "|---|---|---|"
    for each in documents():
        mark = f"`{each['mark']}`" if each["mark"] else ""
        yield f"| `{each['name']}` | {mark} | {_cell(each['about'])} |"


def _chapters() -> Iterator[str]:
    for each in documents():
        if each["name"] == MANIFEST:
            continue
        yield f"\n## `{each['mark'] or JOB_FILE}`"
        whole = schema(each["name"])
        options = whole.get("anyOf", [whole])
        if each["mark"] == EVENT_MARK:
            yield f"\n{each['about']} It is one of:"
        for option in options:
            yield from _keys(option)


def _keys(option: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of one type of document; of one that extends a document, those that it has more."""
    mark = option["properties"].get("schema", {}).get("const")
    known: set[str] = set()
    extended = ""
    for name in ("job", "happening"):
        base = schema(name)
        short = base.get("anyOf", [base])[0]
        if set(short["required"]) <= set(option["required"]) and (mark, option["description"]) != (
            short["properties"]["schema"]["const"],
            base.get("description") or short["description"],
        ):
            known, extended = set(short["required"]), f" It has the keys of `fabric.{name}/1`, and:"
    yield f"\n{option['description']}{extended}\n"
    yield "| key | type | |"
    yield "|---|---|---|"
    for name, rule in option["properties"].items():
        if name not in known and name != "schema":
            seldom = "" if name in option["required"] else "Not always there. "
            yield f"| `{name}` | {_cell(_type(rule))} | {_cell(seldom + _about(rule))} |"


def _about(rule: Mapping[str, Any]) -> str:
    text = str(rule.get("description", "")).partition("\n")[0]
    keys = rule.get("items", rule).get("properties", {})
    if "schema" in keys:
        more = f"As `{keys['schema']['const']}`."
    elif len(keys) > MANY:
        more = "Its keys are in the schema."
    else:
        more = f"Keys: {', '.join(f'`{key}`' for key in keys)}." if keys else ""
    return f"{text} {more}".strip()


def _type(rule: Mapping[str, Any]) -> str:
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return ", ".join(f"`{each}`" if each else "empty" for each in rule["enum"])
    if "anyOf" in rule:
        options = [_type(each) for each in rule["anyOf"]]
        return " or ".join(dict.fromkeys(options))
    kinds = rule.get("type", "any value")
    if kinds == "array":
        return f"array of {_type(rule['items'])}"
    inner = rule.get("additionalProperties")
    if kinds == "object" and isinstance(inner, Mapping) and inner:
        return f"object of {_type(inner)}"
    text = kinds if isinstance(kinds, str) else " or ".join(kinds)
    return f"{text}, a time" if rule.get("format") == "date-time" else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
