"""Determined's experiment files: its own examples and test cases, and what each key becomes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.quick.manifest.support import faults_of, loaded
from workbench.errors import ManifestError
from workbench.manifest import convert, load_text
from workbench.manifest.builder.determined import laid_over_template, plain
from workbench.manifest.keys.credentials import put_back
from workbench.manifest.yaml.compose import compose
from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode
from workbench.search.config import SearchConfig
from workbench.spec import (
    DEFAULT_PRIORITY,
    BindMount,
    CheckpointsAtEnd,
    DataStore,
    JobSpec,
    spec_from_json,
    spec_to_json,
)

FOLDER = os.environ.get("FABRIC_DETERMINED_FILES", "")
needs_files = pytest.mark.skipif(
    not FOLDER, reason="FABRIC_DETERMINED_FILES names no folder of Determined's files"
)

SINGLE = "name: x\nentrypoint: python train.py\nsearcher: {name: single, metric: loss}\n"
TRIED = "x: {type: int, minval: 1, maxval: 8}"
FIRST_PREVIEWS = {
    "3_hpsearch": {25: 6, 100: 4},
    "iris_tf_keras": {25: 273, 100: 152, 400: 66, 1600: 17, 6400: 4},
}


def examples() -> list[Path]:
    return sorted(Path(FOLDER, "examples").rglob("*.yaml")) if FOLDER else []


def cases(name: str) -> list[dict[str, Any]]:
    return yaml.safe_load(Path(FOLDER, "test_cases", f"{name}.yaml").read_text()) if FOLDER else []


def spec_of(text: str) -> JobSpec:
    return loaded(text).spec


def search_of(searcher: str, hyperparameters: str = TRIED) -> SearchConfig:
    text = f"entrypoint: a\nhyperparameters: {{{hyperparameters}}}\nsearcher: {{metric: loss, {searcher}}}\n"
    search = spec_of(text).search
    assert search is not None
    return SearchConfig.from_json(search)


def outlook_of(searcher: str) -> dict[int, int]:
    return search_of(searcher).make_method().outlook(0)


def problems_of(text: str) -> str:
    return "\n".join(f"{fault}; {fault.hint}" for fault in faults_of(text))


def warnings_of(text: str) -> str:
    return "\n".join(str(warning) for warning in loaded(text).warnings)


def test_a_key_of_the_experiment_is_set_as_det_set_it() -> None:
    text = (
        "entrypoint: a\nhyperparameters: {net: {width: 4, x: {type: int, minval: 1, maxval: 8}}}\n"
        "searcher: {name: random, metric: loss, max_trials: 4}\nresources: {slots_per_trial: 0}\n"
    )

    def read(*overrides: str) -> JobSpec:
        return load_text(text, "e.yaml", environ={}, overrides=overrides).spec

    spec = read(
        "searcher.max_trials=20",
        "resources.slots_per_trial=2",
        "resources.priority=10",
        "hyperparameters.net.width=8",
        "hyperparameters.net.x={type: categorical, vals: [1, 2]}",
        "reproducibility.experiment_seed=7",
        "max_restarts=1",
    )
    assert spec.search is not None
    config = SearchConfig.from_json(spec.search)
    assert (config.max_trials, spec.gpus, spec.priority, spec.seed, spec.max_restarts) == (20, 2, 90, 7, 1)
    assert config.space().size() == 2
    written = json.loads(spec.env["DET_EXPERIMENT_CONFIG"])
    assert (written["searcher"]["max_trials"], written["hyperparameters"]["net"]["width"]) == (20, 8)
    assert read("gpus=3", "search.max_trials=5").gpus == 3
    with pytest.raises(ManifestError, match=r"--set searcher.max_trails: .*did you mean max_trials"):
        read("searcher.max_trails=3")
    with pytest.raises(ManifestError, match="searcher"):
        load_text(
            "name: a\nframework: {command: a}\n", "m.yml", environ={}, overrides=["searcher.max_trials=3"]
        )


def test_a_key_that_manifests_have_too_is_set_in_the_experiment() -> None:
    def read(*overrides: str, **environ: str) -> JobSpec:
        text = SINGLE + "labels: [old]\nmax_restarts: 4\n"
        return load_text(text, "e.yaml", environ=environ, overrides=overrides).spec

    spec = read(
        "labels=[a, b c]",
        "preemption_timeout=60",
        "bind_mounts=[{host_path: /d, container_path: /run/determined/workdir/x}]",
        "log_policies=[{name: CUDA OOM}]",
        "name=other",
        "description=about",
        "max_restarts=null",
    )

    assert spec.labels == {"a": "true", "b-c": "true"}
    assert (spec.preemption_seconds, spec.grace_seconds) == (60, 60)
    assert [each.container_path for each in spec.bind_mounts] == ["x"]
    assert [each["name"] for each in spec.log_policies] == ["ECC Error"]
    assert (spec.name, spec.description, spec.max_restarts) == ("other", "about", 5)
    written = json.loads(spec.env["DET_EXPERIMENT_CONFIG"])
    assert (written["labels"], written["preemption_timeout"]) == (["a", "b c"], 60)
    assert (written["name"], written["description"], written["log_policies"]) == (
        "other",
        "about",
        [{"name": "CUDA OOM"}],
    )
    # It goes before a variable as before the file.
    assert read("max_restarts=1", FABRIC_MAX_RESTARTS="2").max_restarts == 1
    assert read("gpus=1", FABRIC_MAX_RESTARTS="2").max_restarts == 2
    with pytest.raises(ManifestError, match=r"--set log_policies: .*did you mean pattern"):
        read("log_policies=[{patern: a}]")


def test_a_value_that_manifests_alone_have_is_set_in_the_manifest() -> None:
    def read(*overrides: str) -> JobSpec:
        text = SINGLE + "labels: [old]\nbind_mounts: [{host_path: /d, container_path: /e}]\n"
        return load_text(text, "e.yaml", environ={}, overrides=overrides).spec

    assert read("labels={team: vision}").labels == {"team": "vision"}
    assert read("labels.team=vision").labels == {"old": "true", "team": "vision"}
    spec = read("preemption_timeout=10m", "bind_mounts.0.read_only=true")
    assert (spec.preemption_seconds, spec.grace_seconds) == (600, 3600)
    assert [each.read_only for each in spec.bind_mounts] == [True]
    assert json.loads(spec.env["DET_EXPERIMENT_CONFIG"])["labels"] == ["old"]


@needs_files
@pytest.mark.parametrize("path", examples(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_its_examples_are_read_and_previewed_as_they_are(path: Path) -> None:
    written = yaml.safe_load(path.read_text())
    spec = load_text(path.read_text(), path.name, environ={}).spec

    assert spec.name == written["name"]
    assert spec.max_restarts == written.get("max_restarts", 5)
    assert spec.gpus == written.get("resources", {}).get("slots_per_trial", 1)
    if spec.search is None:
        assert json.loads(spec.env["DET_HPARAMS"]).keys() == written.get("hyperparameters", {}).keys()
    else:
        config = SearchConfig.from_json(spec.search)
        (first,) = config.first_trials(1, 42)
        assert first.hparams.keys() == written["hyperparameters"].keys()
        expected = next((counts for name, counts in FIRST_PREVIEWS.items() if name in str(path)), None)
        assert expected is None or config.make_method().outlook(42) == expected


@needs_files
def test_the_first_trials_of_a_seed_are_those_of_determined() -> None:
    text = Path(FOLDER, "examples/tutorials/core_api/3_hpsearch.yaml").read_text()
    search = spec_of(text).search
    assert search is not None

    first = SearchConfig.from_json(search).first_trials(3, 42)

    assert [each.hparams["increment_by"] for each in first] == [7, 5, 3]
    assert [each.seed for each in first] == [1201263687, 429389014, 613608295]
    assert first[0].trial == "b33deacb-5c03-42f3-8e95-f52e6af463bb"


@needs_files
def test_a_number_with_an_exponent_is_a_number() -> None:
    path = Path(FOLDER, "examples/hf_trainer_api/hf_language_modeling/deepspeed.yaml")

    assert (
        json.loads(spec_of(path.read_text()).env["DET_HPARAMS"])["training_arguments"]["learning_rate"]
        == 1e-5
    )


@pytest.mark.parametrize(
    ("mode", "max_time", "max_trials", "divisor", "max_rungs", "counts"),
    [
        ("standard", 100, 10, 4, 5, {25: 6, 100: 4}),
        ("conservative", 1000, 10, 3, 5, {111: 5, 333: 2, 1000: 3}),
        ("standard", 900, 10, 3, 10, {100: 5, 300: 3, 900: 2}),
        ("standard", 937, 16, 4, 5, {58: 9, 234: 5, 937: 2}),
        ("standard", 1000, 100, 4, 5, {15: 53, 62: 30, 250: 13, 1000: 4}),
        ("standard", 6400, 512, 4, 5, {25: 273, 100: 152, 400: 66, 1600: 17, 6400: 4}),
        ("aggressive", 6400, 512, 4, 5, {25: 384, 100: 96, 400: 24, 1600: 6, 6400: 2}),
        ("conservative", 6400, 512, 4, 5, {25: 262, 100: 147, 400: 64, 1600: 26, 6400: 13}),
    ],
)
def test_adaptive_searches_are_previewed_as_determined_does(
    mode: str, max_time: int, max_trials: int, divisor: int, max_rungs: int, counts: dict[int, int]
) -> None:
    assert counts == outlook_of(
        f"name: adaptive_asha, mode: {mode}, time_metric: batches, max_time: {max_time},"
        f" max_trials: {max_trials}, divisor: {divisor}, max_rungs: {max_rungs}"
    )


@needs_files
@pytest.mark.parametrize("case", cases("searchers"), ids=lambda case: case["name"])
def test_searchers_of_its_test_cases_are_read_or_refused_by_name(case: Mapping[str, Any]) -> None:
    searcher = dict(case["case"])
    document = {"entrypoint": "a", "searcher": searcher}
    if searcher["name"] in ("single", "random", "grid", "async_halving", "adaptive_asha"):
        spec = spec_of(yaml.safe_dump(document))
        assert searcher["name"] == "single" or spec.search is not None
    else:
        assert f"the text {searcher['name']!r}" in problems_of(yaml.safe_dump(document))


@needs_files
@pytest.mark.parametrize("case", cases("hyperparameters"), ids=lambda case: case["name"])
def test_hyperparameters_of_its_test_cases_are_read(case: Mapping[str, Any]) -> None:
    document = {
        "entrypoint": "a",
        "hyperparameters": {"tried": case["case"]},
        "searcher": {"name": "random", "metric": "loss", "max_trials": 2},
    }
    text = yaml.safe_dump(document)
    if "sanity_errors" in case:
        assert "hyperparameters.tried.one.a" in problems_of(text)
        return
    search = spec_of(text).search
    assert search is not None
    (first,) = SearchConfig.from_json(search).first_trials(1, 0)
    if "type" not in (case["case"] if isinstance(case["case"], dict) else {}):
        assert first.hparams == {"tried": case["case"]}


def nodes_of(value: Any) -> MapNode:
    node = compose(value if isinstance(value, str) else yaml.safe_dump(value), "x.yaml", Findings())
    assert isinstance(node, MapNode)
    return node


def merged_of(user: Any, template: Any) -> Any:
    return plain(laid_over_template(nodes_of(user), nodes_of(template)))


def schema_of(case: Mapping[str, Any], kind: str) -> str:
    schema = case[kind]
    return (
        str(schema if isinstance(schema, str) else next(iter(schema)))
        .rpartition("/")[2]
        .removesuffix(".json")
        .replace("-", "_")
    )


@needs_files
@pytest.mark.parametrize(
    "case",
    [case for name in ("merging", "log_policies") for case in cases(name) if "merge_as" in case],
    ids=lambda case: case["name"],
)
def test_templates_are_merged_as_in_its_test_cases(case: Mapping[str, Any]) -> None:
    key = schema_of(case, "merge_as")

    def document(value: Any) -> dict[str, Any]:
        if key == "hyperparameter":
            return {"hyperparameters": {"tried": value}}
        return {"resources": {key: value}} if key == "devices" else {key: value}

    merged = merged_of(document(case["case"]), document(case["merge_src"]))
    if key == "hyperparameter":
        assert _as_const(merged["hyperparameters"]["tried"]) == _as_const(case["merged"])
    else:
        found = merged["resources"][key] if key == "devices" else merged[key]
        assert _mapped(found) == _mapped(case["merged"])


def _as_const(value: Any) -> Any:
    """Return hyperparameters as Determined writes them down, without a count that is null."""
    if not isinstance(value, dict):
        return {"type": "const", "val": value}
    if "type" in value:
        return {name: item for name, item in value.items() if name != "count" or item is not None}
    return {name: _as_const(item) for name, item in value.items()}


def _mapped(value: Any) -> Any:
    """Return lists with devices as maps and actions by their names, however they are written; null is absent."""
    if isinstance(value, list):
        return [_mapped(item) for item in value]
    if isinstance(value, str) and value.startswith("/"):
        host, container, *mode = value.split(":")
        return {"host_path": host, "container_path": container, **({"mode": mode[0]} if mode else {})}
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if item is not None}
    return {**kept, "action": kept["action"]["type"]} if isinstance(kept.get("action"), dict) else kept


@needs_files
@pytest.mark.parametrize(
    "case",
    [case for case in cases("log_policies") if "merge_as" not in case],
    ids=lambda case: case["name"],
)
def test_log_policies_of_its_test_cases_are_read_or_refused_by_name(case: Mapping[str, Any]) -> None:
    (schema, *_) = case.get("sane_as") or case["sanity_errors"]
    written = case["case"]
    if "action" in schema:
        written = {"name": "n", "pattern": "a", "action": written}
    written = written if isinstance(written, list) else [written]
    text = SINGLE + yaml.safe_dump({"log_policies": written})

    if "sanity_errors" in case:
        (problem,) = faults_of(text)
        assert problem.key.startswith("log_policies.0")
        assert "cancel_retries" in str(problem) or "has no name" in str(problem)
    elif "defaulted" in case:
        # One with a name alone turns that of the name off, and is not one to look for.
        expected = [policy for policy in case["defaulted"] if "pattern" in policy]
        assert list(spec_of(text).log_policies) == expected
    else:
        assert list(spec_of(text).log_policies)[: len(written)] == [_mapped(policy) for policy in written]


NO_VALUE_HERE = {
    "name": "an experiment's keys name the method",
    "source_trial_id": "is looked for in the home when the job is submitted",
    "source_checkpoint_uuid": "is looked for in the home when the job is submitted",
    "image": "there is no default image: without one the code runs in the person's own Python",
    "environment_variables.rocm": "variables of rocm are those of GPUs where there are none of cuda",
    "ports": "is named by a warning; proxy_ports: are published",
    "add_capabilities": "is named by a warning",
    "drop_capabilities": "is named by a warning",
    "devices": "is named by a warning; a device is merged in templates, whatever its form",
    "native_parallel": "has no effect in Determined either",
    "resource_pool": "is named by a warning; --backend names where it runs",
    "is_single_node": "counts where a trial is submitted to a cluster",
}
"""Keys of Determined's defaults that no key of ours has a value for, and why."""


def defaults_of_a_searcher(case: Mapping[str, Any]) -> dict[str, Any]:
    written = dict(case["case"])
    document = {
        "entrypoint": "a",
        "hyperparameters": {"x": {"type": "int", "minval": 1, "maxval": 8, "count": 2}},
    }
    found: dict[str, Any] = {}
    for key, value in {"time_metric": "batches", "max_time": 100}.items():
        if key in case["defaulted"]:
            # Determined, too, refuses it once the defaults are there.
            assert f"searcher.{key}: is missing" in problems_of(
                yaml.safe_dump({**document, "searcher": written})
            )
            found[key], written[key] = None, value
    loaded_case = loaded(yaml.safe_dump({**document, "searcher": written}))
    for key in ("source_trial_id", "source_checkpoint_uuid"):
        config = json.loads(loaded_case.spec.env["DET_EXPERIMENT_CONFIG"])
        assert config["searcher"].get(key) == case["defaulted"][key]
    assert loaded_case.spec.search is not None
    search = SearchConfig.from_json(loaded_case.spec.search)
    read = {
        "metric": search.metric.removeprefix("validation/"),
        "smaller_is_better": search.smaller_is_better,
        "max_concurrent_trials": search.max_concurrent,
        "max_trials": search.max_trials,
        "divisor": search.divisor,
        "mode": search.mode,
        "max_rungs": search.max_rungs,
        "bracket_rungs": list(search.brackets),
        "num_rungs": search.rungs,
    }
    return found | {key: value for key, value in read.items() if key in case["defaulted"]}


def defaults_of_a_bind_mount(case: Mapping[str, Any]) -> dict[str, Any]:
    (mount,) = spec_of(SINGLE + yaml.safe_dump({"bind_mounts": [case["case"]]})).bind_mounts
    return asdict(mount)


def defaults_of_an_environment(case: Mapping[str, Any]) -> dict[str, Any]:
    text = SINGLE + yaml.safe_dump({"environment": case["case"]})
    found = loaded(text)
    for key in ("ports", "add_capabilities", "drop_capabilities"):
        assert any(f"environment.{key}" in str(warning) for warning in found.warnings)
    on_cpu = spec_of(text + "resources: {slots_per_trial: 0}\n")
    assert found.spec.kubernetes == {}
    return {
        "environment_variables": {
            device: [f"{name}={value}" for name, value in spec.env.items() if not name.startswith("DET_")]
            for device, spec in (("cpu", on_cpu), ("cuda", found.spec))
        },
        "force_pull_image": found.spec.image_pull == "always",
        "proxy_ports": list(found.spec.ports),
        "pod_spec": "*",
        "registry_auth": {
            key: put_back(value, found.credentials)
            for key, value in found.spec.framework.image_location.items()
        },
    }


def defaults_of_resources(case: Mapping[str, Any]) -> dict[str, Any]:
    text = SINGLE + yaml.safe_dump({"resources": case["case"]})
    found = loaded(text)
    assert [str(warning).split(":")[3].strip() for warning in found.warnings] == ["resources.devices"]
    plainly = spec_of(SINGLE)
    tried = spec_of(f"{SINGLE}hyperparameters: {{{TRIED}}}\n".replace("single", "random, max_trials: 99"))
    assert tried.search is not None
    is_limited = SearchConfig.from_json(tried.search).max_concurrent != 16
    return {
        "slots_per_trial": found.spec.gpus,
        "shm_size": found.spec.shm_size_bytes,
        "max_slots": 1 if is_limited else None,
        "priority": None
        if found.spec.priority == plainly.priority == DEFAULT_PRIORITY
        else found.spec.priority,
        "weight": found.spec.weight,
    }


DEFAULTS_OF = {
    "bind_mount": defaults_of_a_bind_mount,
    "environment": defaults_of_an_environment,
    "searcher": defaults_of_a_searcher,
    "resources": defaults_of_resources,
}


@needs_files
@pytest.mark.parametrize("case", cases("defaults"), ids=lambda case: case["name"])
def test_what_a_file_does_not_name_has_the_default_of_its_test_cases(case: Mapping[str, Any]) -> None:
    expected = dict(case["defaulted"])

    found = DEFAULTS_OF[schema_of(case, "default_as")](case)

    if variables := expected.get("environment_variables"):
        expected["environment_variables"] = {
            device: lines
            for device, lines in variables.items()
            if f"environment_variables.{device}" not in NO_VALUE_HERE
        }
    assert found == {key: value for key, value in expected.items() if key in found}
    assert expected.keys() - found.keys() <= NO_VALUE_HERE.keys()


def test_nested_hyperparameters_are_merged_and_those_with_a_type_are_not() -> None:
    merged = merged_of(
        "hyperparameters: {a: {x: 1}, b: {type: int, minval: 1, maxval: 2}}",
        "hyperparameters: {a: {y: 2}, b: {type: int, minval: 5, maxval: 9, count: 3}}",
    )

    assert merged["hyperparameters"] == {
        "a": {"x": 1, "y": 2},
        "b": {"type": "int", "minval": 1, "maxval": 2},
    }


@pytest.mark.parametrize(
    ("user", "template", "merged"),
    [
        ("labels: [a, b]", "labels: [b, c]", {"labels": ["a", "b", "c"]}),
        ("labels: {a: true}", "labels: [a, b]", {"labels": ["a", "b"]}),
        ("labels: [a]", "labels: {b: true}", {"labels": ["a", "b"]}),
        ("labels: null", "labels: [a]", {"labels": ["a"]}),
        ("entrypoint: [a, b]", "entrypoint: [c]", {"entrypoint": ["a", "b"]}),
        (
            "searcher: {max_length: {batches: 10}}",
            "searcher: {max_length: {epochs: 1}}",
            {"searcher": {"max_length": {"batches": 10}}},
        ),
        (
            "searcher: {name: null, max_trials: 2}",
            "searcher: {name: random, max_trials: 3, metric: m}",
            {"searcher": {"name": "random", "max_trials": 2, "metric": "m"}},
        ),
        (
            "resources: {devices: ['/a:/x:r']}",
            "resources: {devices: [{host_path: /b, container_path: /x}, '/c:/y']}",
            {"resources": {"devices": ["/a:/x:r", "/c:/y"]}},
        ),
        (
            "log_policies: [{name: CUDA OOM}, {pattern: a, action: exclude_node}]",
            "log_policies: [{name: CUDA OOM, pattern: b}, {pattern: a, action: {type: exclude_node}}, {pattern: c}]",
            {
                "log_policies": [
                    {"name": "CUDA OOM"},
                    {"pattern": "a", "action": "exclude_node"},
                    {"pattern": "c"},
                ]
            },
        ),
    ],
)
def test_lists_of_a_template_are_replaced_unless_their_items_have_an_identity(
    user: str, template: str, merged: Mapping[str, Any]
) -> None:
    assert merged_of(user, template) == merged


@pytest.mark.parametrize(
    ("user", "template", "merged"),
    [
        (
            "environment_variables: [B=3]",
            "environment_variables: [A=1, B=2]",
            {"environment_variables": ["A=1", "B=2", "B=3"]},
        ),
        (
            "environment_variables: {cuda: [B=3]}",
            "environment_variables: [A=1]",
            {"environment_variables": {"cpu": ["A=1"], "cuda": ["A=1", "B=3"], "rocm": ["A=1"]}},
        ),
        (
            "environment_variables: [B=3]",
            "environment_variables: {gpu: [A=1], cpu: null}",
            {"environment_variables": {"cuda": ["A=1", "B=3"], "cpu": ["B=3"], "rocm": ["B=3"]}},
        ),
        (
            "environment_variables: {cpu: [B=3]}",
            "environment_variables: {cpu: [A=1], cuda: [C=1]}",
            {"environment_variables": {"cpu": ["A=1", "B=3"], "cuda": ["C=1"]}},
        ),
        ("image: own", "image: {cpu: a, cuda: b}", {"image": "own"}),
        ("image: {gpu: own}", "image: {cpu: a, cuda: b}", {"image": {"cpu": "a", "cuda": "own"}}),
        ("image: {cpu: own}", "image: all", {"image": {"cpu": "own", "cuda": "all", "rocm": "all"}}),
        (
            "proxy_ports: [{proxy_port: 1}]",
            "proxy_ports: [{proxy_port: 1, proxy_tcp: true}, {proxy_port: 2}]",
            {"proxy_ports": [{"proxy_port": 1}, {"proxy_port": 2}]},
        ),
        (
            "registry_auth: {username: me}",
            "registry_auth: {username: all, serveraddress: r}",
            {"registry_auth": {"username": "me", "serveraddress": "r"}},
        ),
        ("add_capabilities: [A]", "add_capabilities: [B]", {"add_capabilities": ["A"]}),
    ],
)
def test_images_variables_and_ports_of_a_template_are_joined_for_each_device(
    user: str, template: str, merged: Mapping[str, Any]
) -> None:
    found = merged_of(f"environment: {{{user}}}", f"environment: {{{template}}}")

    assert found == {"environment": merged}


TEMPLATE_POD = """\
metadata: {labels: {team: vision, tier: low}}
spec:
  tolerations: [{key: gpu, operator: Exists}]
  imagePullSecrets: [{name: first}, {name: second}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]
  nodeSelector: {disk: fast}
  volumes: [{name: data, hostPath: {path: /data, type: Directory}}, {name: cache, emptyDir: {}}]
  initContainers: [{name: fetch, image: busybox}]
  containers:
  - name: watcher
    image: busybox
    args: [a, b]
  - name: determined-container
    env: [{name: A, value: "1"}, {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]
    envFrom: [{configMapRef: {name: c}}]
    resources: {limits: {memory: 8Gi, cpu: 2}}
    volumeMounts: [{name: data, mountPath: /data, readOnly: true}, {name: cache, mountPath: /cache}]
"""
OWN_POD = """\
metadata: {labels: {tier: high}}
spec:
  tolerations: [{key: spot, operator: Exists}]
  imagePullSecrets: [{name: second}, {name: own}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [b]}]
  nodeSelector: null
  volumes: [{name: data, persistentVolumeClaim: {claimName: mine}}]
  containers:
  - name: determined-container
    env: [{name: KEY, value: plain}, {name: B, value: "2"}]
    envFrom: [{configMapRef: {name: d}}]
    resources: {limits: {memory: 16Gi}}
    volumeMounts: [{mountPath: /data, readOnly: false}]
  - {name: watcher, args: [c]}
"""


def test_a_pod_spec_lies_over_that_of_a_template_as_a_strategic_merge_patch() -> None:
    user, template = ({"environment": {"pod_spec": yaml.safe_load(text)}} for text in (OWN_POD, TEMPLATE_POD))

    merged = merged_of(user, template)["environment"]["pod_spec"]

    assert merged["metadata"] == {"labels": {"team": "vision", "tier": "high"}}
    spec = merged["spec"]
    own, watcher = spec.pop("containers")
    assert spec == {
        # Kubernetes has no key by which tolerations are the same one.
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "first"}, {"name": "second"}, {"name": "own"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}],
        "nodeSelector": {"disk": "fast"},
        # A volume has one source.
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}},
            {"name": "cache", "emptyDir": {}},
        ],
        "initContainers": [{"name": "fetch", "image": "busybox"}],
    }
    assert watcher == {"name": "watcher", "image": "busybox", "args": ["c"]}
    assert own == {
        "name": "determined-container",
        "env": [
            {"name": "A", "value": "1"},
            {"name": "KEY", "value": "plain"},
            {"name": "B", "value": "2"},
        ],
        "envFrom": [{"configMapRef": {"name": "d"}}],
        "resources": {"limits": {"memory": "16Gi", "cpu": 2}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": False},
            {"name": "cache", "mountPath": "/cache"},
        ],
    }


def test_a_template_may_be_what_has_the_searcher(tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    template.write_text("searcher: {name: single, metric: loss}\nmax_restarts: 2\n")

    spec = load_text("entrypoint: python train.py\n", "e.yaml", environ={}, templates=[template]).spec

    assert (spec.framework.command, spec.max_restarts) == ("python train.py", 2)


def test_a_template_that_is_no_map_is_refused(tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    template.write_text("- a\n")

    with pytest.raises(ManifestError, match="a template is a part of a manifest"):
        load_text(SINGLE, "e.yaml", environ={}, templates=[template])


def test_an_experiment_lies_over_a_template_of_its_own_kind(tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    template.write_text("max_restarts: 2\nenvironment: {environment_variables: [A=1, B=2]}\n")
    text = SINGLE + "environment: {environment_variables: [B=3]}\n"

    spec = load_text(text, "e.yaml", environ={}, templates=[template]).spec

    assert spec.max_restarts == 2
    assert (spec.env["A"], spec.env["B"]) == ("1", "3")


def test_a_single_experiment_is_one_job() -> None:
    spec = spec_of(
        SINGLE + "hyperparameters: {lr: 1e-5, layers: [1, 2], opt: {type: const, val: sgd}, deep: {}}\n"
    )

    assert spec.search is None
    assert spec.params == {"lr": 1e-5, "opt": "sgd"}
    assert json.loads(spec.env["DET_HPARAMS"]) == {"lr": 1e-5, "layers": [1, 2], "opt": "sgd", "deep": {}}
    assert spec.max_restarts == 5


def test_a_trial_of_a_file_that_names_no_slots_has_one() -> None:
    found = loaded(SINGLE)

    assert found.spec.gpus == 1
    assert found.origins["gpus"] == "Determined's default"
    assert found.warnings == ()
    assert spec_of(SINGLE + "resources: {slots_per_trial: 0}\n").gpus == 0


def test_null_is_absent() -> None:
    text = (
        SINGLE
        + "max_restarts: null\nhyperparameters: null\nresources: {priority: null, slots_per_trial: 1}\n"
    )

    assert spec_of(text) == spec_of(SINGLE + "resources: {slots_per_trial: 1}\n")


def test_keys_become_those_of_a_manifest() -> None:
    spec = spec_of(
        SINGLE + "description: about\nlabels: [a, b c]\nworkspace: w\nproject: p\npreemption_timeout: 60\n"
        "resources: {slots_per_trial: 2, priority: 30, weight: 2.5, shm_size: 1.5G}\n"
        "reproducibility: {experiment_seed: 7}\n"
        "environment: {image: {cpu: c, gpu: g}, force_pull_image: true,"
        " environment_variables: {cpu: [A=0], cuda: ['A=1', 'B=$A/${A}/$C']}}\n"
    )

    assert (spec.gpus, spec.priority, spec.weight) == (2, 70, 2.5)
    assert (spec.seed, spec.grace_seconds) == (7, 60)
    assert spec.shm_size_bytes == 3 << 29
    assert spec.image == "g"
    assert spec.image_pull == "always"
    assert (spec.env["A"], spec.env["B"]) == ("1", "1/1/$C")
    assert spec.labels == {"a": "true", "b-c": "true", "workspace": "w", "project": "p"}


@pytest.mark.parametrize(("weight", "becomes"), [(0, 0.01), (0.001, 0.01), (5000, 1000.0)])
def test_a_weight_out_of_range_becomes_the_nearest_and_is_named(weight: float, becomes: float) -> None:
    text = SINGLE + f"resources: {{weight: {weight}}}\n"

    assert spec_of(text).weight == becomes
    assert f"resources.weight: {weight} becomes {becomes:g}" in warnings_of(text)
    assert "resources.weight" not in warnings_of(SINGLE + "resources: {weight: 2}\n")


@pytest.mark.parametrize(
    ("entrypoint", "command"),
    [
        ("python train.py --x $Y", "python train.py --x $Y"),
        ("[python, -c, 'print(1)']", "python -c 'print(1)'"),
        ("model:Trial", "python3 -m determined.launch.torch_distributed -- --trial model:Trial"),
    ],
)
def test_an_entrypoint_is_a_command(entrypoint: str, command: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: x, max_length: {{batches: 9}}}}\n"

    assert spec_of(text).framework.command == command


def test_a_launcher_that_is_not_there_is_named() -> None:
    text = "entrypoint: python3 -m determined.launch.mxnet a.py\nsearcher: {name: single, metric: x}\n"

    assert "determined.launch.mxnet, which is not there" in warnings_of(text)
    for launcher in ("torch_distributed", "deepspeed", "horovod", "tensorflow"):
        assert "entrypoint" not in warnings_of(text.replace("mxnet", launcher))


@pytest.mark.parametrize(
    "entrypoint",
    [
        "model:Trial",
        "[python3, -m, determined.launch.torch_distributed, --trial, 'model:Trial']",
        "python3 -m determined.launch.horovod --trial=model:Trial",
    ],
)
def test_no_warning_calls_the_settings_of_a_trial_class_unused(entrypoint: str) -> None:
    settings = (
        "searcher: {name: single, metric: x, max_length: {batches: 100}}\n"
        "min_validation_period: {batches: 10}\nscheduling_unit: 10\n"
        "checkpoint_policy: all\nperform_initial_validation: true\nrecords_per_epoch: 100\ndebug: true\n"
    )

    warnings = warnings_of(f"entrypoint: {entrypoint}\n{settings}")
    of_code = warnings_of(f"entrypoint: python3 train.py\n{settings}")

    assert "runs a Trial class, which needs Determined's own wheel" in warnings
    for name in (
        "min_validation_period",
        "scheduling_unit",
        "checkpoint_policy",
        "perform_initial_validation",
        "debug: is not carried over",
    ):
        assert name not in warnings
        assert name in of_code
    assert "records_per_epoch" in warnings
    assert (
        "max_length: is deprecated since 0.38; a Trial class needs it, and is trained that long" in warnings
    )
    assert "the code decides how long it trains" in of_code


@pytest.mark.parametrize("entrypoint", ["model:Trial", "python3 -m determined.launch.deepspeed --trial a:T"])
@pytest.mark.parametrize(
    "searcher", ["name: single", "name: adaptive_asha, max_trials: 4, time_metric: batches, max_time: 9"]
)
def test_a_trial_class_without_a_length_is_refused(entrypoint: str, searcher: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{metric: x, {searcher}}}\n"

    (fault,) = faults_of(text)

    assert fault.key == "searcher.max_length"
    assert "is missing: a Trial class does not say itself how long it trains" in str(fault)
    assert fault.hint == "such as max_length: {batches: 1000}"
    assert spec_of(text.replace("}\n", ", max_length: {epochs: 1}}\n")).framework.command
    assert spec_of(text.replace(entrypoint, "python3 train.py")).framework.command


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python3 train.py --trial 3",
        "./tune.sh --trial=7",
        "python3 -m determined.launch.torch_distributed python3 train.py --trial 3",
    ],
)
def test_a_script_with_an_option_called_trial_decides_itself_how_long_it_trains(entrypoint: str) -> None:
    text = f"entrypoint: {entrypoint}\nsearcher: {{metric: x, name: single}}\n"

    assert spec_of(text).framework.command == entrypoint
    assert "scheduling_unit: is deprecated" in warnings_of(f"{text}scheduling_unit: 10\n")


def test_what_horovods_launcher_reads_for_a_script_is_not_called_unused() -> None:
    single = "searcher: {name: single, metric: x}\ndebug: true\noptimizations:"
    read = "{tensor_fusion_threshold: 8, tensor_fusion_cycle_time: 2, auto_tune_tensor_fusion: true}"
    launcher = "entrypoint: python3 -m determined.launch.horovod train.py\n"

    assert warnings_of(f"{launcher}{single} {read}\n") == ""
    of_both = warnings_of(f"{launcher}{single} {read[:-1]}, aggregation_frequency: 4}}\n")
    assert (
        "optimizations.aggregation_frequency: is deprecated since 0.38 and has no effect on a script"
        in of_both
    )
    assert "tensor_fusion" not in of_both
    of_code = warnings_of(f"entrypoint: python3 train.py\n{single} {read}\n")
    assert "optimizations: is deprecated" in of_code
    assert "debug: is not carried over" in of_code


def test_constants_of_any_kind_draw_nothing() -> None:
    bare = search_of("name: random, max_trials: 2", TRIED)
    with_constants = search_of(
        "name: random, max_trials: 2", f"a: [1, 2], b: null, c: {{}}, d: {{choice: x}}, e: text, {TRIED}"
    )

    first, other = bare.first_trials(2, 42), with_constants.first_trials(2, 42)

    assert [each.seed for each in first] == [each.seed for each in other]
    assert other[0].hparams == {"a": [1, 2], "b": None, "c": {}, "d": {"choice": "x"}, "e": "text", "x": 7}


def test_bounds_of_log_are_exponents() -> None:
    config = search_of("name: grid", "lr: {type: log, minval: -5, maxval: -1, base: 10, count: 3}")

    assert [each["lr"] for each in config.space().points()] == pytest.approx([1e-5, 1e-3, 1e-1], rel=1e-12)


def test_bounds_of_log_that_look_like_values_are_named() -> None:
    text = (
        "entrypoint: a\nsearcher: {name: random, max_trials: 1, metric: x}\n"
        "hyperparameters: {lr: {type: log, minval: 1e-4, maxval: 1.0, base: 10}}\n"
    )
    found = [each for each in loaded(text).warnings if each.key == "hyperparameters.lr.minval"]

    assert [each.hint for each in found] == ["if values from 0.0001 are meant, write minval: -4, maxval: 0"]


@pytest.mark.parametrize(
    ("bounds", "warning"),
    [
        (
            "minval: 0, maxval: 1e-2",
            "maxval: the bounds of log are exponents: this one ends at 10**0.01 = 1.023",
        ),
        (
            "minval: 0, maxval: 1e-2",
            "if values up to 0.01 are meant, write for example minval: -4, maxval: -2",
        ),
        ("minval: 0.1, maxval: 0.1001", "if values from 0.1 are meant, write minval: -1, maxval: -0.999566"),
        (
            "minval: 0.1, maxval: 0.9",
            "minval: the bounds of log are exponents: this one begins at 10**0.1 = 1.259",
        ),
        ("minval: 0, maxval: 1", ""),
        ("minval: 0.5, maxval: 2", ""),
        ("minval: -1, maxval: 0.5", ""),
    ],
)
def test_bounds_of_log_below_one_power_of_its_base_are_named(bounds: str, warning: str) -> None:
    found = warnings_of(f"{SINGLE}hyperparameters: {{lr: {{type: log, {bounds}, base: 10}}}}\n")

    assert warning in found
    assert bool(found) == bool(warning)


@pytest.mark.parametrize(
    "bounds", ["minval: 0, maxval: 1e-2", "minval: 1e-4, maxval: 0.5", "minval: 0.1, maxval: 0.9"]
)
def test_the_bounds_of_log_that_a_hint_names_are_taken(bounds: str) -> None:
    text = f"{SINGLE}hyperparameters: {{lr: {{type: log, {bounds}, base: 10}}}}\n"
    (hint,) = [each.hint for each in loaded(text).warnings]

    assert not loaded(text.replace(bounds, hint[hint.index("minval:") :])).warnings


def test_grids_have_determineds_points() -> None:
    config = search_of(
        "name: grid",
        "a: {type: int, minval: 0, maxval: 20, count: 3}, b: {type: int, minval: -4, maxval: -2, count: 5}",
    )

    assert [each["a"] for each in config.space().points()][::3] == [0, 10, 20]
    assert [each["b"] for each in config.space().points()][:3] == [-4, -3, -2]


def test_older_files_pause_and_promote_their_trials() -> None:
    search = "name: async_halving, num_rungs: 3, divisor: 3, max_trials: 12, max_length: {batches: 9000}"

    assert search_of(search).variant == "promotion"
    assert search_of(search).time_metric == "validation/batches"
    assert outlook_of(search) == {1000: 8, 3000: 3, 9000: 1}
    assert search_of(f"{search}, stop_once: true").variant == "stopping"


def test_a_single_trial_may_draw_its_hyperparameters() -> None:
    config = search_of("name: single")

    assert (config.method, config.max_trials) == ("random", 1)


def test_slots_of_all_trials_limit_how_many_run_at_once() -> None:
    text = (
        f"entrypoint: a\nhyperparameters: {{{TRIED}}}\nresources: {{slots_per_trial: 2, max_slots: 5}}\n"
        "searcher: {name: random, metric: x, max_trials: 9}\n"
    )
    search = spec_of(text).search

    assert search is not None
    assert search["max_concurrent"] == 2


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("seracher: {}\n", "did you mean searcher?"),
        (
            "startup_hook: pip install a\n",
            "startup-hook.sh at the root of the code: it is run before the command",
        ),
        ("workspace: w\n", "both, or neither"),
        ("hyperparameters: {x: {type: double, minval: 2, maxval: 2}}\n", "is not below"),
        ("hyperparameters: {a: {x: {type: integer, minval: 1, maxval: 2}}}\n", "did you mean int?"),
        ("hyperparameters: {x: {type: int, minval: 1}}\n", "maxval: is missing"),
        ("hyperparameters: {x: {type: log, minval: 1, maxval: 400, base: 10}}\n", "exponents"),
        ("checkpoint_storage: {type: s3}\n", "bucket: is missing"),
        ("checkpoint_storage: {type: hdfs}\n", "one of shared_fs, s3, gcs, azure, directory"),
        ("bind_mounts: [{host_path: data, container_path: /x}]\n", "an absolute path"),
        ("log_policies: [{pattern: a, action: invalid}]\n", "cancel_retries"),
        ("max_restarts: -1\n", "a whole number"),
    ],
)
def test_faults_are_named_by_their_keys(lines: str, problem: str) -> None:
    assert problem in problems_of(SINGLE + lines)


@pytest.mark.parametrize(
    ("searcher", "problem"),
    [
        ("name: custom", "custom searchers were removed in 0.38"),
        ("name: adaptive_simple, max_trials: 2", "take adaptive_asha"),
        ("name: asha", "write async_halving"),
        ("name: random", "max_trials: is missing; random needs it"),
        ("name: adaptive_asha, max_trials: 4", "time_metric: is missing"),
        ("name: async_halving, max_trials: 4, max_length: 10", "num_rungs: is missing"),
        ("name: grid, max_trials: 4", "is not a key of the searcher grid"),
        ("name: single, source_trial_id: 1, source_checkpoint_uuid: a", "cannot stand beside"),
    ],
)
def test_searchers_that_cannot_be_are_refused_by_name(searcher: str, problem: str) -> None:
    assert problem in problems_of(f"entrypoint: a\nsearcher: {{metric: x, {searcher}}}\n")


@pytest.mark.parametrize(
    "lines",
    [
        "min_validation_period: {batches: 0}\n",
        "records_per_epoch: 100\n",
        "data_layer: {type: shared_fs}\n",
        "slurm: {sbatch_args: [--x]}\n",
        "checkpoint_storage: {type: azure, container: c}\n",
        "profiling: {enabled: true}\n",
        "integrations: {webhooks: {webhook_id: [1]}}\n",
        "integrations: {pachyderm: {dataset: {token: secret}}}\n",
        "environment: {ports: {ray: 6379}}\n",
        "environment: {proxy_ports: [{proxy_port: 8265}]}\n",
    ],
)
def test_what_is_left_out_is_named(lines: str) -> None:
    key = lines.partition(":")[0]

    assert key in warnings_of(SINGLE + lines)
    assert key not in warnings_of(SINGLE)


@pytest.mark.parametrize(
    ("written", "last", "best"),
    [
        ("", 0, 0),
        ("save_trial_latest: 3", 3, 1),
        ("save_trial_best: 0", 1, 0),
        ("save_trial_latest: 0, save_trial_best: 2", 1, 2),
        ("save_experiment_best: 4, save_trial_latest: 2, save_trial_best: 1", 2, 4),
    ],
)
def test_checkpoints_are_kept_as_the_file_says_and_all_without_a_word(
    written: str, last: int, best: int
) -> None:
    storage = f"{{type: directory, container_path: /c, {written}}}"
    searcher = "{name: single, metric: accuracy, smaller_is_better: false}"
    kept = spec_of(f"entrypoint: a\nsearcher: {searcher}\ncheckpoint_storage: {storage}\n").checkpoints

    assert (kept.keep_last, kept.keep_best) == (last, best)
    if best:
        assert (kept.metric, kept.smaller_is_better) == ("accuracy", False)


def test_a_storage_without_a_type_is_the_job_s_own_and_keeps_what_the_file_says() -> None:
    text = f"{SINGLE}checkpoint_storage: {{save_trial_latest: 5}}\n"
    ours = {"data_stores": [{"id": "mine", "type": "host_path", "training_results": {"container": "/r"}}]}

    assert spec_of(text).data_stores == ()
    assert (spec_of(text).checkpoints.keep_last, warnings_of(text)) == (5, "")
    assert [store.id for store in loaded(text, defaults=ours).spec.data_stores] == ["mine"]


def test_a_storage_without_a_type_names_the_keys_that_need_one_and_those_that_no_type_has() -> None:
    text = f"{SINGLE}checkpoint_storage: {{bucket: b, type: null, secret_key: hidden1}}\n"

    assert "checkpoint_storage.bucket: is not carried over without type:" in warnings_of(text)
    assert "hidden1" not in loaded(text).text
    assert [warning.hint for warning in loaded(text).warnings] == ["write type: s3 or gcs", "write type: s3"]
    assert "did you mean save_trial_best?" in problems_of(
        f"{SINGLE}checkpoint_storage: {{save_trial_bets: 5}}\n"
    )


@pytest.mark.parametrize(
    ("written", "at_end"),
    [
        ("save_trial_latest: 2, save_trial_best: 3, save_experiment_best: 3", None),
        ("save_trial_latest: 0", CheckpointsAtEnd(keep_last=0, keep_best=1)),
        ("save_trial_best: 0, save_trial_latest: 0", CheckpointsAtEnd(keep_last=0)),
        ("save_experiment_best: 4", CheckpointsAtEnd(keep_last=1, keep_best=1, keep_best_of_search=4)),
    ],
)
def test_what_a_file_keeps_less_of_once_all_has_completed_is_kept_apart(
    written: str, at_end: CheckpointsAtEnd | None
) -> None:
    spec = spec_of(f"{SINGLE}checkpoint_storage: {{type: directory, container_path: /c, {written}}}\n")

    assert spec.checkpoints.at_end == at_end
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))).checkpoints == spec.checkpoints


def store_of(storage: str, more: str = "") -> DataStore | None:
    """Return where an experiment's checkpoints go, its credentials put back."""
    found = loaded(f"{SINGLE}checkpoint_storage: {{{storage}}}\n{more}")
    for store in found.spec.data_stores:
        kept = {key: put_back(text, found.credentials) for key, text in store.connection.items()}
        return replace(store, connection=kept)
    return None


@pytest.mark.parametrize(
    ("storage", "kind", "container", "connection"),
    [
        ("type: shared_fs, host_path: /data", "host_path", "/data", {}),
        ("type: shared_fs, host_path: /data, storage_path: a/b", "host_path", "/data/a/b", {}),
        ("type: shared_fs, host_path: /data, storage_path: /data/a", "host_path", "/data/a", {}),
        ("type: directory, container_path: /ck", "host_path", "/ck", {}),
        (
            "type: s3, bucket: b, prefix: /p/q/, access_key: k, secret_key: s, endpoint_url: 'http://minio:9000'",
            "s3_datastore",
            "b/p/q",
            {"auth_url": "http://minio:9000", "user_name": "k", "password": "s"},
        ),
        (
            "type: s3, bucket: b",
            "s3_datastore",
            "b",
            {
                "auth_url": "https://s3.amazonaws.com",
                "user_name": "${AWS_ACCESS_KEY_ID}",
                "password": "${AWS_SECRET_ACCESS_KEY}",
            },
        ),
        ("type: gcs, bucket: b, prefix: p", "gcs", "b/p", {"password": "${GCS_SERVICE_ACCOUNT_JSON}"}),
        (
            "type: azure, container: c, account_url: 'https://me.blob.core.windows.net', credential: key==",
            "azure",
            "c",
            {"user_name": "me", "password": "key=="},
        ),
        (
            "type: azure, container: c, account_url: 'https://me.blob.core.windows.net/', credential: '?sv=1&sig=x'",
            "azure",
            "c",
            {"token": "https://me.blob.core.windows.net/c?sv=1&sig=x"},
        ),
        (
            "type: azure, container: c, account_url: 'https://me.blob.core.windows.net'",
            "azure",
            "c",
            {"user_name": "me", "password": "${AZURE_STORAGE_KEY}"},
        ),
        (
            "type: azure, container: c, connection_string: 'AccountName=me;AccountKey=k==;EndpointSuffix=core.x.cn'",
            "azure",
            "c",
            {"user_name": "me", "password": "k==", "auth_url": "https://me.blob.core.x.cn"},
        ),
        (
            "type: azure, container: c, connection_string: 'BlobEndpoint=https://h/me;SharedAccessSignature=sig=x'",
            "azure",
            "c",
            {"token": "https://h/me/c?sig=x"},
        ),
    ],
)
def test_checkpoints_go_to_the_store_of_the_file(
    storage: str, kind: str, container: str, connection: Mapping[str, str]
) -> None:
    store = store_of(storage)

    assert store is not None
    assert (store.type, store.training_results, store.training_data) == (kind, container, "")
    assert store.connection == connection


@pytest.mark.parametrize(
    ("written", "other", "variable"),
    [
        ("access_key", "secret_key", "AWS_SECRET_ACCESS_KEY"),
        ("secret_key", "access_key", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_one_key_of_a_bucket_without_the_other_is_named(written: str, other: str, variable: str) -> None:
    text = f"{SINGLE}checkpoint_storage: {{type: s3, bucket: b, {written}: hidden1}}\n"

    warning = warnings_of(text)

    assert f"checkpoint_storage.{written}: comes without {other}:, which is taken from {variable}" in warning
    assert "hidden1" not in warning
    assert warnings_of(text.replace("hidden1", f"hidden1, {other}: hidden2")) == ""
    assert warnings_of(f"{SINGLE}checkpoint_storage: {{type: s3, bucket: b}}\n") == ""


def test_a_folder_of_the_container_is_that_of_the_bind_mount_which_covers_it() -> None:
    image = "environment: {image: i}\n"
    mounts = "bind_mounts: [{host_path: /x, container_path: y}, {host_path: /h/a, container_path: /ck}]\n"
    storage = "type: directory, container_path: /ck/b"

    covered = store_of(storage, image + mounts)
    assert covered is not None
    assert covered.training_results == "/h/a/b"
    assert store_of(storage, image) is None
    assert "checkpoint_storage.container_path: is not carried over" in warnings_of(
        f"{SINGLE}checkpoint_storage: {{{storage}}}\n{image}"
    )


DEFAULT_POLICIES = (
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
)


@pytest.mark.parametrize(
    ("written", "policies"),
    [
        ("[]", DEFAULT_POLICIES),
        (
            "[{pattern: a, action: {type: exclude_node}}, {name: n, pattern: b, action: cancel_retries}]",
            (
                {"pattern": "a", "action": "exclude_node"},
                {"name": "n", "pattern": "b", "action": "cancel_retries"},
                *DEFAULT_POLICIES,
            ),
        ),
        ("[{name: CUDA OOM}, {name: ECC Error, pattern: e}]", ({"name": "ECC Error", "pattern": "e"},)),
    ],
)
def test_log_policies_join_those_that_determined_has_by_default(
    written: str, policies: tuple[dict[str, str], ...]
) -> None:
    assert spec_of(f"{SINGLE}log_policies: {written}\n").log_policies == policies


@pytest.mark.parametrize(
    ("policy", "warning"),
    [
        (
            "{name: x, action: exclude_node}",
            "log_policies.0: has no pattern, so it does nothing but turn off another policy called x",
        ),
        (
            "{name: CUDA OMM}",
            "log_policies.0: turns off no policy: none is called CUDA OMM (did you mean CUDA OOM?)",
        ),
        ("{name: CUDA OOM}", ""),
        ("{name: of the template}", ""),
        ("{name: x, pattern: a, action: exclude_node}", ""),
    ],
)
def test_a_log_policy_that_has_less_effect_than_it_seems_is_named(policy: str, warning: str) -> None:
    found = warnings_of(f"{SINGLE}log_policies: [{policy}]\n")

    assert warning in found
    assert bool(found) == bool(warning)


def test_a_log_policy_that_is_no_regular_expression_is_refused() -> None:
    assert "log_policies.0.pattern: is not a regular expression" in problems_of(
        SINGLE + "log_policies: [{pattern: 'a(', action: cancel_retries}]\n"
    )
    assert (
        "log_policies.0.pattern: has the class [:alpha:], which patterns here, Python's own"
        in problems_of(SINGLE + "log_policies: [{pattern: 'node [[:alpha:]]+'}]\n")
    )
    assert spec_of(SINGLE + "log_policies: [{pattern: 'at [:a-z:]+'}]\n").log_policies[0] == {
        "pattern": "at [:a-z:]+"
    }


def test_bind_mounts_are_carried_over_and_those_in_its_work_directory_are_in_the_code() -> None:
    spec = spec_of(
        SINGLE + "bind_mounts:\n- {host_path: /a, container_path: b, read_only: true, propagation: rslave}\n"
        "- {host_path: /tmp, container_path: /data}\n"
        "- {host_path: /c, container_path: /run/determined/workdir/d/e}\n"
    )

    assert spec.bind_mounts == (
        BindMount("/a", "b", read_only=True, propagation="rslave"),
        BindMount("/tmp", "/data"),
        BindMount("/c", "d/e"),
    )
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


@pytest.mark.parametrize(
    ("mount", "problem"),
    [
        ("host_path: /a, container_path: .", "bind_mounts.0.container_path"),
        ("host_path: /a, container_path: ../x", "a path without .."),
        ("host_path: /a, container_path: /run/determined/workdir", "is the folder of the code itself"),
        ("host_path: /a, container_path: /b, propagation: often", "bind_mounts.0.propagation"),
    ],
)
def test_bind_mounts_that_cannot_be_are_refused_by_name(mount: str, problem: str) -> None:
    assert problem in problems_of(f"{SINGLE}bind_mounts: [{{{mount}}}]\n")


@pytest.mark.parametrize(
    ("storage", "problem"),
    [
        ("type: shared_fs, host_path: data", "checkpoint_storage.host_path"),
        (
            "type: shared_fs, host_path: /data, storage_path: ../x",
            "storage_path: is not inside host_path /data",
        ),
        ("type: shared_fs, host_path: /data, storage_path: /other", "storage_path: is not inside host_path"),
        ("type: azure, container: c, connection_string: a, account_url: b", "cannot stand beside"),
        ("type: azure, container: c, connection_string: AccountName=me", "connection_string: names neither"),
        (
            "type: azure, container: c, account_url: 'https://me?sig=hidden1'",
            "account_url: holds a signature",
        ),
    ],
)
def test_storages_that_cannot_be_reached_are_refused_by_name(storage: str, problem: str) -> None:
    found = problems_of(f"{SINGLE}checkpoint_storage: {{{storage}}}\n")

    assert problem in found
    assert "hidden1" not in found


def test_a_converted_experiment_names_the_secrets_of_its_storage() -> None:
    storage = "{type: s3, bucket: b, access_key: AKIA1, secret_key: hidden1}"

    made = convert(f"{SINGLE}checkpoint_storage: {storage}\n", "e.yaml")

    assert "AKIA1" not in made.text
    assert "hidden1" not in made.text
    assert "${CHECKPOINT_STORAGE_PASSWORD}" in made.text
    assert any("set the secret CHECKPOINT_STORAGE_USER_NAME" in note for note in made.notes)


IMAGE = "reg.example.com:5000/team/image:1"


def login_of(written: str, image: str = IMAGE) -> tuple[dict[str, str], str]:
    """Return what a manifest has of a login, and the warnings about it."""
    found = loaded(f"{SINGLE}environment: {{image: '{image}', registry_auth: {written}}}\n")
    login = {
        key: put_back(value, found.credentials) for key, value in found.spec.framework.image_location.items()
    }
    return login, " ".join(str(warning) for warning in found.warnings)


@pytest.mark.parametrize(
    ("written", "login"),
    [
        ("{username: me, password: p}", {"username": "me", "password": "p"}),
        ("{username: me, password: p, email: a@b}", {"username": "me", "password": "p", "email": "a@b"}),
        ("{username: me, password: p, auth: bWU6cA==}", {"username": "me", "password": "p"}),
        ("{auth: bWU6cA==}", {"auth": "bWU6cA=="}),
        ("{username: me, auth: bWU6cA==}", {"auth": "bWU6cA=="}),
        ("{username: me, identitytoken: i}", {"username": "me", "identity_token": "i"}),
        ("{username: me, password: p, registrytoken: r}", {"registry_token": "r"}),
        ("{username: '${ME}', password: '${P}'}", {"username": "${ME}", "password": "${P}"}),
        (
            "{username: me, password: p, serveraddress: 'https://reg.example.com:5000/v2/'}",
            {"username": "me", "password": "p"},
        ),
        ("{username: me, password: null, auth: bWU6cA==}", {"auth": "bWU6cA=="}),
        ("{}", {}),
        ("null", {}),
    ],
)
def test_a_login_to_a_registry_is_that_of_the_image(written: str, login: dict[str, str]) -> None:
    assert login_of(written) == (login, "")


def test_a_login_to_docker_hub_is_named_by_any_of_its_addresses() -> None:
    written = "{username: me, password: p, serveraddress: 'https://index.docker.io/v1/'}"

    assert login_of(written, "me/private:1") == ({"username": "me", "password": "p"}, "")


def test_a_login_to_another_registry_than_the_images_is_named_and_not_sent_there() -> None:
    login, warnings = login_of("{username: me, password: p, serveraddress: ghcr.io}")

    assert login == {}
    assert f"it is a login to ghcr.io, and {IMAGE} comes from reg.example.com:5000" in warnings


@pytest.mark.parametrize("written", ["{username: me}", "{password: p}", "{serveraddress: ghcr.io}"])
def test_half_a_login_to_a_registry_is_named(written: str) -> None:
    login, warnings = login_of(written, "ghcr.io/team/image")

    assert login == {}
    assert "environment.registry_auth: is not a login" in warnings


def test_what_is_no_key_of_a_login_is_named() -> None:
    assert "environment.registry_auth.user: is not a key" in login_of("{user: me, auth: bWU6cA==}")[1]


def test_a_converted_experiment_names_the_secret_of_its_login() -> None:
    text = f"{SINGLE}environment: {{image: '{IMAGE}', registry_auth: {{username: me, password: hidden1}}}}\n"

    made = convert(text, "e.yaml")

    assert "hidden1" not in made.text
    assert loaded(made.text).credentials == {"framework.image_location.password": "${REGISTRY_PASSWORD}"}
    assert any("set the secret REGISTRY_PASSWORD" in note for note in made.notes)


def test_credentials_are_not_kept() -> None:
    kept = loaded(
        SINGLE + "data: {secrets: {key: hidden4, deep: [{pin: 70717273}, hidden5]}, root: /d}\n"
        "checkpoint_storage: {type: s3, bucket: b, access_key: AKIA1, secret_key: hidden1}\n"
        "environment: {registry_auth: {username: me, password: hidden2, auth: hidden3}}\n"
    )

    assert "bucket: b" in kept.text
    assert not any(
        secret in kept.text + str(kept.spec)
        for secret in ("AKIA1", "hidden1", "hidden2", "hidden3", "hidden4", "70717273", "hidden5")
    )


def test_secrets_of_the_data_are_a_secret_of_the_job(tmp_path: Path) -> None:
    template = tmp_path / "base.yaml"
    template.write_text("data: {secrets: {deep: {pin: 70717273}}}\n")
    text = SINGLE + "data: {secrets: {key: hidden4, 'a b': [hidden5, null], 'a-b': [hidden6]}, root: /d}\n"

    found = load_text(
        text,
        "e.yaml",
        environ={},
        templates=[template],
        overrides=["data.secrets.more=hidden7"],
        defaults={"secrets": ["TOKEN"]},
    )

    assert found.spec.secrets == ("TOKEN", "DET_DATA_SECRETS")
    assert json.loads(found.spec.env["DET_EXPERIMENT_CONFIG"])["data"] == {"root": "/d"}
    assert json.loads(found.credentials["DET_DATA_SECRETS"]) == {
        "key": "hidden4",
        "a b": ["hidden5", None],
        "a-b": ["hidden6"],
        "deep": {"pin": 70717273},
        "more": "hidden7",
    }
    assert list(found.credentials) == ["DET_DATA_SECRETS"]


@pytest.mark.parametrize("written", ["hidden4", "[hidden4]", "{key: hidden4}"])
def test_secrets_of_the_data_have_any_form(written: str) -> None:
    found = loaded(f"{SINGLE}data: {{secrets: {written}}}\n")

    assert json.loads(found.credentials["DET_DATA_SECRETS"]) == yaml.safe_load(written)
    assert "hidden4" not in found.text + str(found.spec)


@pytest.mark.parametrize("data", ["null", "{secrets: null}", "{root: /d}"])
def test_data_without_secrets_needs_none(data: str) -> None:
    found = loaded(f"{SINGLE}data: {data}\n")

    assert (found.spec.secrets, dict(found.credentials)) == ((), {})


def test_secrets_of_the_data_that_no_variable_can_hold_are_a_fault() -> None:
    text = f"{SINGLE}data: {{secrets: {{key: {'x' * (131_072 - 28)}}}}}\n"

    (fault,) = faults_of(text)

    assert "data.secrets: has 131,073 bytes as a variable, of which Linux takes 131,072" in str(fault)
    assert loaded(text.replace("key: x", "key: ")).spec.secrets == ("DET_DATA_SECRETS",)


def test_a_converted_experiment_names_the_secret_of_its_data() -> None:
    made = convert(SINGLE + "data: {secrets: {key: hidden4}, root: /d}\n", "e.yaml")

    assert "hidden4" not in made.text + "".join(made.notes)
    assert spec_of(made.text).secrets == ("DET_DATA_SECRETS",)
    assert "data.secrets: is not written out: set the secret DET_DATA_SECRETS to it, as JSON" in made.notes


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "description: n\nresources: {slots: 1}\nenvironment: {}\nidle_timeout: 2h\n",
            "task configuration of Determined",
        ),
        ("description: n\nresources: {slots: 1}\nidle_timeout: 2h\n", "task configuration of Determined"),
        ("description: n\nresources: {resource_pool: a, slots: 1}\n", "task configuration of Determined"),
        ("tensorboard_args: [--samples_per_plugin=1]\n", "task configuration of Determined"),
        ("notebook_idle_type: activity\nbind_mounts: []\n", "task configuration of Determined"),
        ("detVersion: 0.38\nmaxSlotsPerPod: 4\ndb: {}\n", "Determined's Helm chart"),
        ('{"pipe-parallel-size": 4, "model-parallel-size": 2, "optimizer": {"type": "Adam"}}\n', "GPT-NeoX"),
        ("entrypoint: a\nhyperparameters: {}\n", "it lacks searcher:"),
        ("entrypoint: a\nresources: {slots_per_trial: 1}\n", "it lacks searcher:"),
        ("entrypoint: [a]\nresources: {slots: 1}\nwork_dir: /w\n", "a generic task of Determined"),
        ("entrypoint: a\nresources: {slots: 1}\nhyperparameters: {}\n", "it lacks searcher:"),
        ("entrypoint: a\nresources: {slots: 1}\nmax_restarts: 1\n", "it lacks searcher:"),
    ],
)
def test_files_of_determined_that_are_no_experiments_are_named(text: str, name: str) -> None:
    assert name in problems_of(text)


def test_an_experiment_is_converted_into_a_manifest_that_means_the_same() -> None:
    text = (
        f"name: x\nentrypoint: [python, -c, 'print(1)']\nhyperparameters: {{l: [1], {TRIED}}}\nrecords_per_epoch: 5\n"
        "searcher: {name: adaptive_asha, metric: loss, time_metric: t, max_time: 9, max_trials: 4}\n"
    )

    made = convert(text, "e.yaml")

    assert spec_of(made.text) == spec_of(text)
    assert made.format == "an experiment of Determined"
    assert any("records_per_epoch" in note for note in made.notes)


def test_a_faulty_experiment_is_not_converted() -> None:
    with pytest.raises(ManifestError, match="max_trials"):
        convert("entrypoint: a\nsearcher: {name: random, metric: x}\n", "e.yaml")


POD = """\
metadata: {labels: {team: vision}, annotations: {note: n}}
spec:
  priorityClassName: urgent
  schedulerName: coscheduler
  nodeSelector: {disk: fast}
  tolerations: [{key: gpu, operator: Exists}]
  affinity: {nodeAffinity: null}
  restartPolicy: Never
  initContainers: [{name: first, image: busybox, volumeMounts: [{name: data, mountPath: /d}]}]
  containers:
  - name: watcher
    image: busybox
  - name: determined-container
    env: [{name: PLAIN, value: 1}, {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]
    envFrom: null
    resources:
      requests: {memory: 12Gi, cpu: 500m, rdma/hca: 1}
      limits: {memory: 16Gi, nvidia.com/gpu: 4}
    volumeMounts: [{name: data, mountPath: /mnt/own, readOnly: true}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: mine}}]
"""


def with_pod(lines: str) -> str:
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"{SINGLE}environment:\n  image: python:3.12\n  pod_spec:\n{indented}"


def test_a_pod_spec_is_kept_as_what_it_adds_to_the_pods_of_the_job() -> None:
    found = loaded(with_pod(POD))
    spec = found.spec

    assert spec.kubernetes["tolerations"] == ({"key": "gpu", "operator": "Exists"},)
    patch = spec.kubernetes["pod_patch"]
    assert patch["metadata"] == {"labels": {"team": "vision"}, "annotations": {"note": "n"}}
    own = {"name": "own-data", "mountPath": "/mnt/own", "readOnly": True}
    assert patch["spec"] == {
        "priorityClassName": "urgent",
        "schedulerName": "coscheduler",
        "nodeSelector": {"disk": "fast"},
        "affinity": {},
        "restartPolicy": "Never",
        "volumes": [{"name": "own-data", "persistentVolumeClaim": {"claimName": "mine"}}],
        "initContainers": [
            {
                "name": "first",
                "image": "busybox",
                "volumeMounts": [{"name": "own-data", "mountPath": "/d"}],
            },
            {"name": "watcher", "image": "busybox", "restartPolicy": "Always"},
        ],
        "containers": [
            {
                "name": "learner",
                "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"requests": {"rdma/hca": 1}},
                "volumeMounts": [own],
            }
        ],
    }
    assert (spec.cpus, spec.memory_bytes, spec.env["PLAIN"]) == (0.5, 16 << 30, "1")
    assert "resources.slots_per_trial: is the number of GPUs" in str(found.warnings[-1])
    # Training code reads the file's settings, and those of pods may name what is not for it.
    assert "pod_spec" not in json.loads(spec.env["DET_EXPERIMENT_CONFIG"])["environment"]
    kept = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))
    assert kept.kubernetes["pod_patch"] == patch


@pytest.mark.parametrize(
    "written", ["{}", "null", "{metadata: null, spec: null}", "{spec: {containers: null}}"]
)
def test_a_pod_spec_with_nothing_in_it_adds_nothing(written: str) -> None:
    assert spec_of(with_pod(written)).kubernetes == {}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("metadata: {name: x}", "pod_spec.metadata.name: cannot be set (the job's id names its pods"),
        ("metadata: {namespace: x}", "--backend names the cluster and its namespace"),
        ("spec: {hostNetwork: true}", "pod_spec.spec.hostNetwork: cannot be set"),
        ("spec: {restartPolicy: Always}", "max_restarts: says how often"),
        ("status: {phase: x}", "pod_spec.status: cannot be set"),
        ("metdata: {}", "pod_spec.metdata: is not a key of a pod"),
        ("metadata: {lables: {a: b}}", "pod_spec.metadata.lables: cannot be set (did you mean labels?)"),
        (
            "metadata: {uid: x}",
            "pod_spec.metadata.uid: cannot be set (a file gives pods labels and annotations)",
        ),
        ("metadata: text", "pod_spec.metadata: is 'text'; write a map"),
        (
            "spec: {containers: [{name: determined-container, resources: {limit: {memory: 8Gi}}}]}",
            "0.resources.limit: is not a key of resources (did you mean limits?)",
        ),
        (
            "spec: {containers: [{name: determined-container, resources: {limits: 4}}]}",
            "0.resources.limits: is 4; write a map such as {memory: 8Gi}",
        ),
        (
            "spec: {containers: [{name: determined-container, resources: {claims: {name: gpu}}}]}",
            "0.resources.claims: is {'name': 'gpu'}; write a list",
        ),
        (
            "spec: {containers: [{name: determined-container, resources: [memory]}]}",
            "0.resources: is ['memory']; write a map",
        ),
        ("spec: [a]", "pod_spec.spec: is ['a']; write a map"),
        ("- a", "write a pod: metadata and spec"),
        ("spec: {containers: [{image: x}]}", "spec.containers.0: has no name"),
        ("spec: {volumes: {name: x}}", "spec.volumes: is {'name': 'x'}; write a list"),
        (
            "spec: {containers: [{name: determined-container, image: x}]}",
            "containers.0.image: cannot be set of determined-container (environment.image names it)",
        ),
        ("spec: {containers: [{name: determined-container, livenessProbe: {exec: 1}}]}", "0.livenessProbe"),
        ("spec: {containers: [{name: determined-container, volumeMounts: [a]}]}", "0.volumeMounts: is not a"),
        (
            "spec: {containers: [{name: determined-container, resources: {limits: {memory: lots}}}]}",
            "lots is not an amount of memory",
        ),
    ],
)
def test_what_a_pod_spec_cannot_say_is_named_with_what_says_it(written: str, problem: str) -> None:
    assert problem in problems_of(with_pod(written))


def test_what_a_pod_claims_reaches_its_learner() -> None:
    own = "{name: determined-container, resources: {claims: [{name: gpu}], limits: {cpu: 2}}}"
    spec = spec_of(with_pod(f"spec: {{resourceClaims: [{{name: gpu}}], containers: [{own}]}}"))

    (learner,) = spec.kubernetes["pod_patch"]["spec"]["containers"]
    assert learner == {"name": "learner", "resources": {"claims": [{"name": "gpu"}]}}
    assert spec.cpus == 2


def test_proxied_ports_are_a_container_s_of_one_trial() -> None:
    ports = (
        "environment: {image: x, proxy_ports: [{proxy_port: 8265, proxy_tcp: true}, {proxy_port: 6379}]}\n"
    )
    searched = (
        f"entrypoint: a\nhyperparameters: {{{TRIED}}}\nsearcher: {{name: random, metric: x, max_trials: 2}}\n"
    )

    assert spec_of(SINGLE + ports).ports == (6379, 8265)
    assert spec_of(searched + ports).ports == ()
    assert "proxy_ports: is not carried over: trials of one machine" in warnings_of(searched + ports)
    assert warnings_of(SINGLE + ports) == ""
    of_proxy = warnings_of(
        SINGLE + ports.replace("8265,", "8265, unauthenticated: true, default_service_id: false,")
    )
    assert (
        "environment.proxy_ports.0.unauthenticated: has no effect: no proxy stands before the port"
        in of_proxy
    )
    assert "default_service_id" not in of_proxy


def test_code_reads_which_data_an_integration_gives_and_no_token() -> None:
    lineage = "integrations: {pachyderm: {pachd: {host: h, port: 1}, dataset: {project: p, token: t0ken}}}\n"
    found = loaded(SINGLE + lineage)

    config = json.loads(found.spec.env["DET_EXPERIMENT_CONFIG"])
    assert config["integrations"] == {
        "pachyderm": {"pachd": {"host": "h", "port": 1}, "dataset": {"project": "p"}}
    }
    assert "t0ken" not in json.dumps(spec_to_json(found.spec))


def hyperparameter(written: str) -> str:
    return f"hyperparameters: {{a: {{b: {written}}}}}"


@pytest.mark.parametrize(
    "lines",
    [
        "checkpoint_storage: {type: s3, bucket: b, access_key: k, secret_key: '12', endpoint_url: 'http://m:9000'}",
        "checkpoint_storage: {type: gcs, bucket: b, save_experiment_best: 0, save_trial_best: 1}",
        "checkpoint_storage: {type: shared_fs, host_path: /h, storage_path: s, container_path: /c}",
        "checkpoint_storage: {type: shared_fs, host_path: /h, checkpoint_path: /x, tensorboard_path: /y}",
        "checkpoint_storage: {type: shared_fs, host_path: /h, storage_path: null, propagation: rprivate}",
        "checkpoint_storage: {type: azure, container: c, account_url: 'https://me.blob.core.windows.net'}",
        "checkpoint_storage: {type: azure, container: c}",
        "min_validation_period: {records: 1}",
        "min_validation_period: {batches: 0}",
        "min_checkpoint_period: {epochs: 1}",
        "min_checkpoint_period: {batches: null, epochs: 1}",
        "profiling: {enabled: true, begin_on_batch: 2, end_after_batch: 3}",
        "profiling: {enabled: true, begin_on_batch: 2, end_after_batch: 2}",
        "profiling: {enabled: true, begin_on_batch: 2, end_after_batch: null}",
        "environment: {image: {cpu: a, gpu: b, rocm: c}, environment_variables: {cpu: [A=1], gpu: [B=2]}}",
        "environment: {environment_variables: {}, pod_spec: null, ports: {a: 1}}",
        "environment: {pod_spec: {spec: {containers: [{name: other, securityContext: {privileged: true}}]}}}",
        "entrypoint: [python3, -m, determined.launch.torch_distributed, 'model_def:Trial']",
        "optimizations: {mixed_precision: O0, grad_updates_size_file: /tmp/sizes, tensor_fusion_threshold: 64}",
        "security: {kerberos: {config_file: x}}",
        "data_layer: {type: s3, bucket: b, bucket_directory_path: /p}",
        "resources: {devices: ['/dev/a:/dev/a', '/dev/a:/dev/b:rw', {host_path: /dev/a, container_path: /c}]}",
        "integrations: {pachyderm: {pachd: {host: h, port: 1}, proxy: {scheme: https, host: h, port: 443}}}",
        "integrations: {pachyderm: {dataset: {project: p, repo: r, commit: c, branch: b, token: t}}}",
        "integrations: {webhooks: {webhook_id: [1], webhook_name: [a], exclude: true}}",
        hyperparameter("{type: const, val: 0}"),
        hyperparameter("{type: int, minval: 2, maxval: 3}"),
        hyperparameter("{type: log, minval: 1, maxval: 10, base: 1}"),
        hyperparameter("{type: log, minval: 1, maxval: 10, base: 0.5, count: null}"),
        hyperparameter("[10, {type: const, val: 1}, {type: int, minval: 1, maxval: 2}]"),
    ],
)
def test_what_determineds_schemas_take_is_taken(lines: str) -> None:
    written = (
        SINGLE if not lines.startswith("entrypoint") else SINGLE.replace("entrypoint: python train.py\n", "")
    )

    assert spec_of(f"{written}{lines}\n").name == "x"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("bind_mounts: [{host_path: h, container_path: .}]", "bind_mounts.0.container_path: "),
        ("min_validation_period: {}", "min_validation_period: has no unit; write one of batches"),
        ("min_validation_period: {batches: null}", "min_validation_period: has no unit"),
        ("min_checkpoint_period: {batches: 10, records: 10}", "min_checkpoint_period: has several units"),
        ("min_checkpoint_period: {batches: -1}", "min_checkpoint_period.batches: found the number -1"),
        (
            "profiling: {enabled: true, begin_on_batch: 2, end_after_batch: 1}",
            "profiling.end_after_batch: 1 comes before begin_on_batch 2",
        ),
        ("checkpoint_storage: {type: azure, connection_string: a}", "container: is missing"),
        (
            "checkpoint_storage: {type: shared_fs, host_path: /tmp, storage_path: a/../../b}",
            "storage_path: is not inside host_path /tmp",
        ),
        (
            "checkpoint_storage: {type: shared_fs, host_path: /tmp, storage_path: /tmp/a/../../b}",
            "storage_path: is not inside host_path /tmp",
        ),
        ("checkpoint_storage: {type: directory}", "container_path: is missing"),
        (
            "environment: {docker_flags: [--init]}",
            "environment.docker_flags: is not a key of environment (options",
        ),
        (
            "environment: {slurm: [--mem=1]}",
            "environment.slurm: is not a key of environment (it was moved",
        ),
        (
            "environment: {pbs: [-l]}",
            "write pbs: {pbsbatch_args",
        ),
        (
            "environment: {pod_spec: {spec: {containers: [{name: determined-container, securityContext: {}}]}}}",
            "containers.0.securityContext: cannot be set",
        ),
        (
            "resources: {devices: [/dev/a]}",
            "resources.devices.0: found the text '/dev/a'; write HOST:CONTAINER",
        ),
        ("resources: {devices: [{host_path: /dev/a}]}", "resources.devices.0.container_path: is missing"),
        (
            "resources: {devices: [{host_path: a, container_path: b, mod: r}]}",
            "resources.devices.0.mod: is not a key of a device (did you mean mode?)",
        ),
        ("integrations: {pachyderm: {pach: 1}}", "integrations.pachyderm.pach: is not a key"),
        (
            "integrations: {pachyderm: {repo: r}}",
            "pachyderm.repo: is not a key of pachyderm (it is a key of dataset:)",
        ),
        (
            "integrations: {pachyderm: {pachd: {port: a}}}",
            "integrations.pachyderm.pachd.port: found the text 'a'",
        ),
        ("integrations: {pachyderm: {dataset: {token: [hidden1]}}}", "dataset.token: found a list"),
        (
            "integrations: {webhooks: {webhook_id: [a]}}",
            "integrations.webhooks.webhook_id.0: found the text 'a'",
        ),
        (
            "integrations: {webhooks: {name: [a]}}",
            "webhooks.name: is not a key of webhooks (write webhook_name:)",
        ),
        (
            "environment: {environment_variables: {tpu: [A=1]}}",
            "environment.environment_variables.tpu: is not what slots can be (write cpu, cuda or rocm)",
        ),
        (
            "environment: {environment_variables: {cuda: A=1}}",
            "environment.environment_variables.cuda: found the text 'A=1'; write a list of NAME=VALUE",
        ),
        (hyperparameter("{type: int, minval: 2, maxval: 1}"), "hyperparameters.a.b: minval 2 is not below"),
        (
            hyperparameter("{type: log, minval: 1, maxval: 10, base: 0}"),
            "a.b.base: the base 0 is not above 0",
        ),
        (hyperparameter("{type: log, minval: 1, maxval: 10, base: -2}"), "a.b.base: found the number -2"),
    ],
)
def test_what_determineds_schemas_refuse_is_named_by_its_key(lines: str, problem: str) -> None:
    assert problem in problems_of(f"{SINGLE}{lines}\n")


def test_powers_of_a_base_that_does_not_grow_are_tried_as_they_are() -> None:
    searcher = "name: random, max_trials: 3"
    drawn = search_of(searcher, "x: {type: log, minval: 1, maxval: 3, base: 0.5}").first_trials(3, 1)
    whole = f"{SINGLE}{hyperparameter('{type: log, minval: 1, maxval: 3, base: 1, count: 4}')}\n"

    assert all(0.125 <= trial.hparams["x"] <= 0.5 for trial in drawn)
    assert len({trial.hparams["x"] for trial in drawn}) == 3
    grid = search_of("name: grid", "x: {type: log, minval: 1, maxval: 3, base: 0.5, count: 3}")
    assert sorted(trial.hparams["x"] for trial in grid.first_trials(3, 1)) == pytest.approx(
        [0.125, 0.25, 0.5]
    )
    one = search_of(searcher, "x: {type: log, minval: 1, maxval: 3, base: 1}").first_trials(1, 1)
    assert one[0].hparams == {"x": 1.0}
    assert "hyperparameters.a.b.base: 1 to any power is 1, which each trial gets" in warnings_of(whole)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("container_path", "/c"),
        ("checkpoint_path", "c"),
        ("tensorboard_path", "t"),
        ("propagation", "rslave"),
    ],
)
def test_keys_of_a_shared_folder_that_nothing_goes_by_are_named(key: str, value: str) -> None:
    (warning,) = loaded(
        f"{SINGLE}checkpoint_storage: {{type: shared_fs, host_path: /h, {key}: {value}}}\n"
    ).warnings

    assert f"checkpoint_storage.{key}: is not carried over" in str(warning)
    assert warning.hint


@pytest.mark.parametrize(
    "lines",
    [
        "resources: {devices: ['/dev/a:/dev/a']}",
        "environment: {add_capabilities: [CAP_KILL]}",
        "environment: {drop_capabilities: [CAP_KILL]}",
    ],
)
def test_what_no_job_gets_is_named_with_what_to_do(lines: str) -> None:
    (warning,) = loaded(f"{SINGLE}{lines}\n").warnings

    assert "is not carried over" in str(warning)
    assert warning.hint


def test_variables_of_gpus_are_those_of_cuda_or_else_of_rocm() -> None:
    def variable(devices: str) -> str | None:
        return spec_of(f"{SINGLE}environment: {{environment_variables: {{{devices}}}}}\n").env.get("A")

    assert variable("rocm: [A=r], cpu: [A=c]") == "r"
    assert variable("cuda: [], rocm: [A=r]") == "r"
    assert variable("rocm: [A=r], gpu: [A=g]") == "g"
    assert variable("cpu: [A=c]") is None


@pytest.mark.parametrize(
    ("name", "written", "problem"),
    [
        ("grid", "{type: double, minval: 0, maxval: 1}", "a.b: is of type double without count:, and a grid"),
        ("grid", "{type: int, minval: 0, maxval: 1, count: null}", "a.b: is of type int without count:"),
        ("grid", "{type: log, minval: 0, maxval: 1, base: 10}", "a.b: is of type log without count:"),
        (
            "grid",
            "{type: double, minval: 0, maxval: .inf, count: 2}",
            "a.b.maxval: found the number .inf; write",
        ),
        (
            "grid",
            "{type: categorical, vals: [1, .inf]}",
            "a.b.vals.1: found the number .inf, which JSON does not",
        ),
        ("grid", "{type: categorical, vals: 5}", "a.b.vals: found the number 5; write a list of values"),
        ("grid", "{type: categorical, vals: 0}", "a.b.vals: found the number 0; write a list of values"),
        ("grid", "{type: categorical, vals: {choice: [1]}}", "a.b.vals: found a map; write a list of values"),
        ("grid", "{type: categorical, vals: []}", "a.b.vals: is empty; write a list of values"),
        ("single", "{type: const, val: .nan}", "a.b.val: found the number .nan, which JSON does not have"),
        ("single", "-.inf", "a.b: found the number -.inf, which JSON does not have"),
    ],
)
def test_hyperparameters_that_cannot_be_tried_are_named_as_the_file_names_them(
    name: str, written: str, problem: str
) -> None:
    text = f"entrypoint: a\nsearcher: {{name: {name}, metric: x}}\n{hyperparameter(written)}\n"

    (fault,) = faults_of(text)

    assert f"hyperparameters.{problem}" in str(fault)
