"""What fabric says of itself now, for the frozen files to be compared with or written from."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.frozen import names
from tests.support.command import Fabric
from tests.support.waiting import patience

KEYS_PAGE: Final = Path(__file__).parents[2] / "docs" / "keys.md"
_KEYS_ROW: Final = re.compile(r"^\| (.+?) \| ([a-z]+\.[a-z-]+)[ ✎]* \|", re.MULTILINE)


def public_names(fabric: Fabric) -> dict[str, Any]:
    """Return what can be imported; a job says where training code finds ``fabric_learner``."""
    archive = fabric("run", "-q", "--", 'echo "$PYTHONPATH"').stdout.strip().rpartition(":")[2]
    rest = [module for module in names.CALLED if module != "fabric_learner"]
    return {
        **_asked(["fabric_learner"], archive),
        **_asked([*rest, *names.EXTENDED, *names.GROUPS], ""),
    }


def keys() -> dict[str, Any]:
    """Return the keys of every pane by the names of their actions, out of the page that is made of them."""
    panes = {}
    for part in KEYS_PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, table = part.partition("\n")
        panes[title] = {name: shown.replace("`", "").split() for shown, name in _KEYS_ROW.findall(table)}
    return panes


def keys_of_documents() -> dict[str, Any]:
    """Return the keys of every document that is published with a schema, each with the types that it may have."""
    from workbench.documents.catalogue import BY_MARK, JOB_FILE, schema, schema_of

    marked = {
        mark: {kind.__name__: _keys_of(schema_of([kind], mark)) for kind in kinds}
        for mark, kinds in BY_MARK.items()
    }
    return {JOB_FILE: _keys_of(schema(JOB_FILE)), **marked}


def _keys_of(rule: Any) -> Any:
    if "anyOf" in rule:
        return {str(number): _keys_of(option) for number, option in enumerate(rule["anyOf"])}
    if "properties" in rule:
        optional = set(rule["properties"]) - set(rule["required"])
        return {
            f"{name}{' (not always)' if name in optional else ''}": _keys_of(each)
            for name, each in rule["properties"].items()
        }
    words = {word: rule[word] for word in ("const", "enum", "type", "format") if word in rule}
    if "items" in rule:
        words["items"] = _keys_of(rule["items"])
    if isinstance(rule.get("additionalProperties"), dict):
        words["values"] = _keys_of(rule["additionalProperties"])
    return words


def _asked(args: list[str], path: str) -> Any:
    ran = subprocess.run(
        [sys.executable, str(Path(names.__file__)), *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=patience(120),
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
