"""A job's settings by their dotted keys, where each came from, and tables as data frames."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.services.stored import submitted
from workbench.errors import ConfigError
from workbench.services.inspect.data_frame import data_frame
from workbench.services.inspect.settings import flatten, job_settings, origin_of
from workbench.store.db.database import Store
from workbench.store.queries.jobs import detail

MANIFEST = """\
name: digits
framework: {command: "true"}
params: {lr: 0.1, opt: "ä"}
memory: 1GiB
max_runtime: 1h
labels: {team: a}
secrets: [ONE, TWO]
"""


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        ({}, {"": {}}),
        (3, {"": 3}),
        ({"a": {"b": {"c": 1}}, "d": None}, {"a.b.c": 1, "d": None}),
        ({"a": {}, "b": []}, {"a": {}, "b": []}),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}),
        ({1: {"größe": 2}}, {"1.größe": 2}),
    ],
)
def test_a_document_is_taken_apart_by_its_keys(value: Any, flat: dict[str, Any]) -> None:
    assert flatten(value) == flat


def test_lists_are_taken_apart_where_that_is_asked_for() -> None:
    assert flatten({"a": [1, {"b": [2]}], "c": []}, lists=True) == {"a.0": 1, "a.1.b.0": 2, "c": []}


def test_every_setting_of_a_job_is_given_in_the_order_of_its_keys(store: Store) -> None:
    found = job_settings(detail(store, submitted(store, MANIFEST).id))

    assert list(found) == sorted(found)
    assert {key: found[key] for key in ("name", "params.opt", "secrets.1", "memory_bytes", "learners")} == {
        "name": "digits", "params.opt": "ä", "secrets.1": "TWO", "memory_bytes": 1 << 30, "learners": 1,
    }  # fmt: skip


def test_a_setting_says_where_it_came_from(store: Store) -> None:
    job = detail(store, submitted(store, MANIFEST, overrides=["params.lr=0.2"]).id)

    found = {key: origin_of(job.origins, key) for key in job_settings(job)}

    assert found["name"] == "manifest.yml:1"
    assert found["memory_bytes"] == "manifest.yml:4"
    assert found["max_runtime_seconds"] == "manifest.yml:5"
    assert found["labels.team"] == "manifest.yml:6"
    assert found["secrets.1"] == "manifest.yml:7"
    assert found["params.lr"] == "--set"
    assert found["learners"] == "default"


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("memory_bytes", "m.yml:1"),
        ("cpus", "m.yml:2"),
        ("data_stores.0.connection.auth_url", "m.yml:4"),
        ("data_stores.1.id", "m.yml:3"),
        ("name", "default"),
        ("", "default"),
    ],
)
def test_a_manifests_key_stands_for_what_is_below_it_and_has_no_unit(key: str, origin: str) -> None:
    origins = {
        "memory": "m.yml:1", "resources.cpus": "m.yml:2", "data_stores": "m.yml:3", "data_stores.0": "m.yml:4",
    }  # fmt: skip

    assert origin_of(origins, key) == origin


def test_nothing_recorded_is_the_default() -> None:
    assert origin_of({}, "params.lr") == "default"


def test_without_pandas_a_data_frame_says_what_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed

    with pytest.raises(ConfigError, match="needs pandas, which is not installed") as refused:
        data_frame([{"a": 1}])

    assert refused.value.hint == (
        "pip install pandas; rows() and records() give the same as lists of dictionaries"
    )
