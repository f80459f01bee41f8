"""Whatever a file holds, it is a job or an error of ours, never a traceback.

A run makes a hundred and fifty files, the soak more; ``FABRIC_GENERATED_MANIFESTS=10000`` makes
so many.
"""

from __future__ import annotations

import json
import os
from typing import Any

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runners.shared.unsupported import not_built
from tests.gate.lanes import examples
from workbench.errors import FabricError
from workbench.manifest import load_text
from workbench.manifest.keys.containers import KeyTable
from workbench.manifest.keys.framework_keys import FRAMEWORK, IMAGE_LOCATION
from workbench.manifest.keys.metric_keys import EVALUATION_METRICS, GROUP, META, TYPED_VALUE
from workbench.manifest.keys.root import MANIFEST
from workbench.manifest.keys.store_keys import CONNECTION, DATA_STORE, STORE_TYPES, TRAINING_DATA
from workbench.spec import FRAMEWORKS, spec_from_json, spec_to_json

# Read when the tests are collected: a test itself sees a clean environment.
FILES = int(os.environ.get("FABRIC_GENERATED_MANIFESTS") or examples(600))
# What one file costs is measured elsewhere; here a busy machine must not fail the test.
MANY = settings(max_examples=-(-FILES // 3), deadline=None, suppress_health_check=[HealthCheck.too_slow])

TABLES: list[KeyTable] = [
    MANIFEST,
    FRAMEWORK,
    IMAGE_LOCATION,
    DATA_STORE,
    TRAINING_DATA,
    CONNECTION,
    EVALUATION_METRICS,
    GROUP,
    META,
    TYPED_VALUE,
]
KEYS = sorted({name for table in TABLES for name in table.known()})
WORDS = [
    *KEYS,
    *FRAMEWORKS,
    *STORE_TYPES,
    "1Gb",
    "1.5Gb",
    "1024",
    "1e-5",
    "0.5",
    "-1",
    "yes",
    "null",
    "~",
    "$x",
]
WORDS += [
    "${params.a}",
    "${params.",
    "<x>",
    "test",
    "%{INT:a}",
    "%{X",
    "(",
    "a{99999999999}",
    "../..",
    "/",
    "\x00",
]
WORDS += [
    "9" * 400,
    "1e999",
    ".nan",
    "secret:",
    "tensorboard",
    "regex_extractor",
    "first",
    "all",
    "requirements",
]

scalars = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
)
keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(["a", "A", "x.y", "", " "]), st.text(max_size=4))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=12,
)


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a document that is nearly a manifest: most keys are real ones, at their place."""
    document: dict[str, Any] = draw(table(MANIFEST))
    if draw(st.booleans()):
        document["name"] = "a"
    if draw(st.booleans()):
        document["framework"] = {**draw(table(FRAMEWORK)), "command": "x"}
    if draw(st.booleans()):
        document["data_stores"] = draw(st.lists(table(DATA_STORE), max_size=2))
    if draw(st.booleans()):
        group = draw(table(GROUP))
        document["evaluation_metrics"] = {**draw(table(EVALUATION_METRICS)), "groups": {"g": group}}
    return document


def table(of: KeyTable) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(of.known()), values, max_size=4)


overrides = st.lists(
    st.builds(
        "{}={}".format,
        st.one_of(
            st.sampled_from(KEYS),
            st.lists(st.one_of(keys, st.just("0")), min_size=1, max_size=4).map(".".join),
        ),
        st.one_of(scalars.map(str), values.map(lambda value: json.dumps(value, default=str))),
    ),
    max_size=2,
)


def read(text: str, sets: list[str] | None = None, flags: dict[str, Any] | None = None) -> None:
    """Read a manifest: it becomes a job that survives being stored, or an error of ours that can be printed."""
    try:
        found = load_text(text, "m.yml", overrides=sets or [], flags=flags or {}, environ={}, defaults={})
    except FabricError as error:
        assert str(error)
        assert 64 <= error.exit_code <= 78
        str(error).encode()
        return
    stored = json.loads(json.dumps(spec_to_json(found.spec), allow_nan=False))
    assert spec_from_json(stored) == found.spec
    assert all(str(warning) for warning in found.warnings)
    assert all(isinstance(sentence, str) for sentence in not_built(found.spec))
    again = load_text(found.text, "m.yml", overrides=sets or [], flags=flags or {}, environ={}, defaults={})
    assert again.spec == found.spec


@MANY
@given(manifests(), overrides)
def test_documents_that_are_nearly_manifests(document: dict[str, Any], sets: list[str]) -> None:
    read(yaml.safe_dump(document, allow_unicode=True), sets)


@given(
    manifests(),
    st.dictionaries(st.sampled_from([*MANIFEST.keys, "image", "framework.command"]), values, max_size=2),
)
@example({}, {"secrets": 1})
@example({}, {"secrets": 0})
def test_flags_of_any_kind(document: dict[str, Any], flags: dict[str, Any]) -> None:
    read(json.dumps(document), flags=flags)


PIECES = [
    "name: a\n",
    "framework:\n",
    "  command: x\n",
    "- ",
    "? ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    ">-\n",
    "\t",
    "[",
    "]",
]
PIECES += [
    "{",
    "}",
    ",",
    "'",
    '"',
    "\\",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "!!str ",
    "!x ",
    "\r",
    "\ufeff",
    "\u2028",
    "é",
]


@MANY
@given(st.lists(st.one_of(st.sampled_from([*PIECES, *WORDS]), st.text(max_size=3)), max_size=30).map("".join))
@example("a: &a [*a, *a]\n<<: *a\n")
@example("? [a]\n: 1\n")
@example("name: !!binary aGk=\n")
@example('name: "\\U00110000"\n')
def test_texts_that_are_hardly_yaml(text: str) -> None:
    read(text)
