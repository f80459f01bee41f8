from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.quick.manifest.support import SMALL, loaded
from workbench.manifest import schema, template
from workbench.manifest.keys.root import MANIFEST

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def mismatches(value: Any, rule: dict[str, Any], path: str = "") -> Iterator[str]:
    """Check a value by the part of JSON schema that ours uses; fails on any other word."""
    known = {"type", "anyOf", "enum", "pattern", "minimum", "maximum", "items", "properties", "required"}
    known |= {"additionalProperties", "propertyNames", "description", "examples", "$schema", "title"}
    assert set(rule) <= known, set(rule) - known
    if "anyOf" in rule and all(list(mismatches(value, option, path)) for option in rule["anyOf"]):
        yield f"{path}: none of the alternatives"
    if "enum" in rule and value not in rule["enum"]:
        yield f"{path}: {value!r} is not in the list"
    if "type" in rule and not any(is_a(value, name) for name in as_list(rule["type"])):
        yield f"{path}: {value!r} is no {rule['type']}"
        return
    if "pattern" in rule and isinstance(value, str) and not re.search(rule["pattern"], value):
        yield f"{path}: {value!r} does not fit {rule['pattern']}"
    if isinstance(value, (int, float)) and not rule.get("minimum", value) <= value <= rule.get(
        "maximum", value
    ):
        yield f"{path}: {value!r} is out of bounds"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from mismatches(item, rule.get("items", {}), f"{path}.{index}")
    if isinstance(value, dict):
        yield from of_object(value, rule, path)


def of_object(value: dict[str, Any], rule: dict[str, Any], path: str) -> Iterator[str]:
    for name in rule.get("required", ()):
        if name not in value:
            yield f"{path}: {name} is missing"
    for name, item in value.items():
        yield from mismatches(name, rule.get("propertyNames", {}), f"{path} key")
        below = rule.get("properties", {}).get(name, rule.get("additionalProperties", {}))
        if below is False:
            yield f"{path}: {name} is unknown"
        else:
            yield from mismatches(item, below, f"{path}.{name}")


def as_list(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def is_a(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, (int, float)) and value == int(value)
    return isinstance(value, TYPES[name])


GOOD = [
    "",
    "version: 1.10\ncpus:\nmemory: 1.5Gb\nends_when: 1\nends_when_: x\n".replace("ends_when_: x\n", ""),
    "evaluation_metrics: {type: tensorboard, eventTypes: [scalars], in: $LOG_DIR}\n",
    "evaluation_metrics: {groups: {g: {regex: a, values: {x: {type: INT, value: $x}}, meta: {time: $t}}}}\n",
    "data_stores: [{id: a, type: volume, training_data: {container: b}, connection: {name: v}}]\n",
    "resources: {shm_size: 8G}\nports: 80\nrequirements: [numpy]\nmax_runtime: 90\ngrace: 2m\n",
    "env: {A: 1, B: true, C: }\nparams: {lr: 0.1, n: x}\nlabels: {a: 1}\nsecrets: [X]\n",
]
BAD = [
    "gpus: 0.5\n",
    "gpus: many\n",
    "memory: 1024\n",
    "memroy: 1Gb\n",
    "learners: -1\n",
    "launcher: torch\n",
    "env: [A=1]\n",
    "env: {1A: x}\n",
    "data_stores: {}\n",
    "data_stores: [{type: nfs}]\n",
    "params: {a: [1]}\n",
    "evaluation_metrics: {groups: {g: {}}}\n",
]


def core(text: str) -> Any:
    """Read YAML as editors do: PyYAML's 1.1 differs in nothing that these texts hold."""
    return yaml.safe_load(text)


@pytest.mark.parametrize("extra", GOOD)
def test_what_validates_fits_the_schema(extra: str) -> None:
    assert loaded(SMALL + extra).spec
    assert list(mismatches(core(SMALL + extra), schema())) == []


@pytest.mark.parametrize("extra", BAD)
def test_what_is_wrong_does_not_fit_the_schema(extra: str) -> None:
    assert list(mismatches(core(SMALL + extra), schema()))


@pytest.mark.parametrize("text", ["", "name: a\n", "framework: {command: x}\n", "name: a\nframework: {}\n"])
def test_what_is_missing_does_not_fit_the_schema(text: str) -> None:
    assert list(mismatches(core(text) or {}, schema()))


def test_the_template_fits_the_schema() -> None:
    assert list(mismatches(core(template(learners=2)), schema())) == []


def test_the_schema_is_json_and_describes_every_key_in_every_spelling() -> None:
    document = json.loads(json.dumps(schema()))

    assert set(document["properties"]) == set(MANIFEST.known())
    assert all(rule.get("description") for rule in document["properties"].values())
    assert document["required"] == ["framework", "name"]
