from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.quick.manifest.support import SMALL, fault_of, faults_of, loaded, spec_of
from workbench.errors import ManifestError, UsageError
from workbench.manifest.builder.overrides import VARIABLES

STORES = """\
data_stores:
  - id: one
    type: mount_cos
    training_data: {container: a}
    connection: {auth_url: test, user_name: u, password: p}
"""


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("gpus=2", "gpus", 2),
        ("memory=2GB", "memory_bytes", 2000 << 20),
        ("name=other", "name", "other"),
        ("env.A=1", "env", {"A": "1"}),
        ("env={A: 1}", "env", {"A": "1"}),
        ("params.lr=1e-5", "params", {"lr": 1e-5}),
        ("labels.a.b/c=x", "labels", {"a.b/c": "x"}),
        ("secrets=[A, B]", "secrets", ("A", "B")),
        ("ports.0=80", "ports", (80,)),
        ("ends_when=first", "ends_when", "first"),
        ("data_stores=[]", "data_stores", ()),
        ("resources.shm_size=1Gi", "shm_size_bytes", 1 << 30),
        ("resources={gpus: 3}", "gpus", 3),
        ("grace=1m", "grace_seconds", 60.0),
        ("seed=", "seed", None),
        ("seed=null", "seed", None),
        ('name="1.0"', "name", "1.0"),
        ("description=a: b # c", "description", "a: b # c"),
    ],
)
def test_a_value_is_set_by_its_path(text: str, field: str, value: object) -> None:
    assert getattr(spec_of("", text), field) == value


def test_a_list_item_is_set_by_its_index_and_one_past_the_end_is_new() -> None:
    found = loaded(
        SMALL + STORES,
        sets=[
            "data_stores.0.connection.auth_url=https://s3.example.com",
            "data_stores.1.id=two",
            "data_stores.1.type=volume",
            "data_stores.1.connection.name=v",
            "data_stores.1.training_results.container=out",
        ],
    )

    assert found.warnings == ()
    assert [store.id for store in found.spec.data_stores] == ["one", "two"]
    assert found.spec.data_stores[0].connection["auth_url"] == "https://s3.example.com"


def test_setting_one_of_two_items_that_share_an_anchor_leaves_the_other() -> None:
    text = f"""{SMALL}data_stores:
  - {{id: a, type: host_path, training_data: {{container: x}}, connection: &c {{path: /data}}}}
  - {{id: b, type: host_path, training_data: {{container: y}}, connection: *c}}
"""

    stores = loaded(text, sets=["data_stores.0.connection.path=/other"]).spec.data_stores

    assert [store.connection["path"] for store in stores] == ["/other", "/data"]


def test_other_spellings_are_the_same_key() -> None:
    text = SMALL + "evaluation_metrics: {type: tensorboard, eventTypes: [images]}\n"

    metrics = loaded(text, sets=["evaluation_metrics.event_types=[scalars]"]).spec.evaluation_metrics

    assert metrics is not None
    assert metrics.event_types == ("scalars",)


def test_a_command_needs_no_quotes_of_yaml_s() -> None:
    command = """python -c 'print({"a": 1})' # not a remark"""

    assert spec_of("", f"framework.command={command}").framework.command == command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learnrs=2", "did you mean learners?"),
        ("lr=0.1", "params.lr"),
        ("gpus.x=1", "nothing can be set below gpus"),
        ("framework.command.x=1", "nothing can be set below framework.command"),
        ("data_stores.2.id=x", "write 0"),
        ("data_stores.x=1", "not an index"),
        ("env..A=1", "env"),
        (".gpus=1", "empty part"),
        ("gpus=[1", "not closed"),
        ("resources=7", "found the number 7; write a map"),
        ("gpus=0.5", "--set gpus: gpus: found the number 0.5"),
        ("gpus=\udcff", "UTF-8"),
    ],
)
def test_what_cannot_be_set_is_a_fault(text: str, message: str) -> None:
    assert message in fault_of("", text)


@pytest.mark.parametrize("text", ["gpus", "=1", " =1", ""])
def test_an_override_that_is_no_assignment_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="path=value"):
        spec_of("", text)


def test_an_override_mends_a_fault_of_the_manifest() -> None:
    assert spec_of("memory: 1024\n", "memory=1024MB").memory_bytes == 1024 << 20


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"gpus": 2}, "gpus", 2),
        ({"gpus": None}, "gpus", 0),
        ({"name": "1.0"}, "name", "1.0"),
        ({"env": {"A": "1", "B": "x: y"}}, "env", {"A": "1", "B": "x: y", "OLD": "o"}),
        ({"env": {"OLD": "new"}}, "env", {"OLD": "new"}),
        ({"secrets": ["S", "T"]}, "secrets", ("S", "T")),
        ({"secrets": ["OLD"]}, "env", {}),
        ({"env": {"S": "plain"}}, "secrets", ()),
        ({"max_runtime": "1h"}, "max_runtime_seconds", 3600.0),
        ({"backend": "ssh://a", "runner": "process"}, "backend", "ssh://a"),
    ],
)
def test_flags_go_over_the_manifest(flags: Mapping[str, Any], field: str, value: object) -> None:
    spec = loaded(SMALL + "env: {OLD: o}\nsecrets: [S]\n", flags=flags).spec

    assert getattr(spec, field) == value


def test_an_image_flag_replaces_the_framework_s_image_and_keeps_the_command() -> None:
    text = "name: a\nframework: {name: tensorflow, version: '1.5', image_tag: x, command: run}\n"

    spec = loaded(text, flags={"image": "mine:1.10"}).spec

    assert (spec.image, spec.framework.command) == ("mine:1.10", "run")


def test_every_layer_goes_over_the_one_below() -> None:
    flags, sets = {"gpus": 5}, ["gpus=4", "learners=4"]
    environ = {"FABRIC_GPUS": "3", "FABRIC_LEARNERS": "3", "FABRIC_CPUS": "3"}
    defaults = {"gpus": 1, "learners": 1, "cpus": 1, "memory": "1GB", "seed": 1, "detach": True}

    found = loaded(
        SMALL + "gpus: 2\nmemory: 2GB\n", flags=flags, sets=sets, environ=environ, defaults=defaults
    )

    assert (found.spec.gpus, found.spec.learners, found.spec.cpus) == (5, 4, 3.0)
    assert (found.spec.memory_bytes, found.spec.seed) == (2000 << 20, 1)
    assert {
        key: found.origins[key] for key in ("gpus", "learners", "cpus", "memory", "seed", "priority")
    } == {
        "gpus": "flag --gpus",
        "learners": "--set",
        "cpus": "FABRIC_CPUS",
        "memory": "m.yml:5",
        "seed": "config.toml",
        "priority": "default",
    }
    assert found.origins["framework.command"] == "m.yml:3"


def test_origins_of_maps_are_by_entry() -> None:
    found = loaded(
        SMALL + "env: {A: 1}\n", defaults={"env": {"B": 2}}, flags={"env": {"C": "3"}}, sets=["env.D=4"]
    )

    assert found.spec.env == {"A": "1", "B": "2", "C": "3", "D": "4"}
    assert {key: found.origins[f"env.{key}"] for key in "ABCD"} == {
        "A": "m.yml:4",
        "B": "config.toml",
        "C": "flag -e",
        "D": "--set",
    }


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ManifestError, match=r"^FABRIC_GPUS: gpus: found the text 'many'"):
        loaded(environ={"FABRIC_GPUS": "many"})


def test_variables_take_texts_as_they_are_and_empty_ones_are_not_set() -> None:
    spec = loaded(environ={"FABRIC_NAME": "a: b", "FABRIC_BACKEND": "", "FABRIC_SEED": "7"}).spec

    assert (spec.name, spec.backend, spec.seed) == ("a: b", "", None)


def test_variables_that_learners_see_set_nothing() -> None:
    assert not {"FABRIC_SEED", "FABRIC_LEARNER", "FABRIC_HOME", "FABRIC_CONFIG"} & set(VARIABLES)


def test_nothing_is_set_in_what_is_not_a_map() -> None:
    faults = faults_of("name: a\nframework: x\n", "framework.command=y")

    assert any("no map at framework" in fault.problem for fault in faults)
