"""The settings of a cluster: what each may be, and the message for those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.kubernetes.options import OPTIONS, checked_options
from tests.support.command import Fabric
from workbench.errors import ConfigError


def checked(**settings: Any) -> dict[str, Any]:
    return checked_options("lab", settings)


def test_every_setting_has_a_default_that_it_may_be_itself() -> None:
    defaults = checked()

    assert set(defaults) == {*OPTIONS, "default_memory_bytes"}
    assert defaults["run_as"] == "restricted" and defaults["gpu_resource"] == "nvidia.com/gpu"
    assert defaults["gang_seconds"] == defaults["journal_hold_seconds"] == 120.0
    assert checked(**{key: defaults[key] for key in OPTIONS if defaults[key] != ""}) == defaults


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("gang_seconds", "2m", 120.0),
        ("uid", "assigned", "assigned"),
        ("uid", "1234", 1234),
        ("default_memory", "16Gi", 16 << 30),
        ("gang_seconds", 3, 3.0),
        ("node_selector", "a=b, example.com/c=d", {"a": "b", "example.com/c": "d"}),
        ("node_selector", {"a": "b"}, {"a": "b"}),
        ("tolerations", "gpu", ({"key": "gpu", "operator": "Exists"},)),
        (
            "tolerations",
            "nvidia.com/gpu=present:NoSchedule",
            (
                {
                    "key": "nvidia.com/gpu",
                    "operator": "Equal",
                    "value": "present",
                    "effect": "NoSchedule",
                },
            ),
        ),
        ("tolerations", [{"operator": "Exists"}], ({"operator": "Exists"},)),
        ("image_pull_secrets", "one, two", ("one", "two")),
        ("gpu_types", '{"A100": "gpu=a100,size=80"}', {"a100": {"gpu": "a100", "size": "80"}}),
        ("gpu_types", {"h100": {"gpu": "h100"}}, {"h100": {"gpu": "h100"}}),
        ("claim_size", "500Gi", "500Gi"),
        ("priority_classes", {"90": "urgent", "70": "high"}, {70: "high", 90: "urgent"}),
        ("priority_classes", '{"0": "low"}', {0: "low"}),
        ("priority_classes", "70=high, 100=urgent", {70: "high", 100: "urgent"}),
        ("priority_classes", "", {}),
        ("pod_patch", '{"spec": {"hostNetwork": true}}', {"spec": {"hostNetwork": True}}),
    ],
)
def test_a_setting_may_be_text_or_a_value_of_toml(key: str, value: Any, meant: Any) -> None:
    assert checked(**{key: value})[key] == meant


def test_volumes_are_claims_and_folders_of_the_node() -> None:
    claim, folder = checked(volumes="data:/data:ro,/scratch/me:/scratch")["volumes"]

    assert claim["source"] == {"persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    assert (claim["path"], claim["read_only"]) == ("/data", True)
    assert folder["source"] == {"hostPath": {"path": "/scratch/me"}}
    table = {"secret": "keys", "path": "/keys", "sub_path": "one"}
    assert checked(volumes=[table])["volumes"][0]["source"] == {"secret": {"secretName": "keys"}}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("uid", "root", "number above 0"),
        ("uid", 0, "number above 0"),
        ("default_memory", "much", "not a size"),
        ("run_as", "root", "restricted or image"),
        ("gpu_resource", "gpu", "nvidia.com/gpu"),
        ("gang_seconds", "soon", "not a duration"),
        ("gang_seconds", 0, "more than 0"),
        ("node_selector", "a", "key=value"),
        ("node_selector", "a=b c", "not a label"),
        ("tolerations", "a=b:Sometimes", "NoSchedule"),
        ("tolerations", 5, "key=value:Effect"),
        ("gpu_types", "a100", "JSON"),
        ("claim_size", "big", "10Gi"),
        ("service_account", "Not A Name", "small letters"),
        ("image_pull_secrets", 5, "commas"),
        ("volumes", "data", "claim:/path"),
        ("volumes", "data:/job", "the job's own folder"),
        ("volumes", "data:relative", "absolute"),
        ("volumes", "a:/x,b:/x", "two volumes"),
        ("volumes", [{"claim": "a", "secret": "b", "path": "/x"}], "one of"),
        ("pod_patch", "spec", "JSON"),
        ("priority_classes", {"101": "high"}, "'101' is not a priority, a whole number from 0 to 100"),
        ("priority_classes", {"-1": "high"}, "'-1' is not a priority"),
        ("priority_classes", {"7.5": "high"}, "'7.5' is not a priority"),
        ("priority_classes", {"070": "high"}, "'070' is not a priority"),
        ("priority_classes", {"high": "70"}, "'high' is not a priority"),
        ("priority_classes", {"70": "Very High"}, "small letters"),
        ("priority_classes", {"70": ""}, "70 has no name"),
        ("priority_classes", {"70": 5}, "write a text"),
        ("priority_classes", "high", "70=high"),
        ("priority_classes", "70=high,70=urgent", "70 is there twice"),
        ("priority_classes", ["high"], "JSON"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(**{key: value})

    assert key in caught.value.message and words in caught.value.message
    assert caught.value.hint.startswith(f"{key} is ")


def test_a_setting_that_does_not_exist_is_refused_with_the_nearest(fabric: Fabric) -> None:
    ran = fabric("backend", "add", "lab", "k8s://lab/ml", "-o", "node_selecter=a=b", expect=78)

    assert "no setting 'node_selecter'" in ran.stderr and "did you mean node_selector?" in ran.stderr


def test_a_wrong_setting_is_found_when_the_configuration_is_used(
    fabric: Fabric, clean_environment: Path
) -> None:
    (clean_environment / "config.toml").write_text(
        '[backends.lab]\naddress = "k8s://a/b"\ngang_seconds = "soon"\n'
    )

    assert "gang_seconds = 'soon'" in fabric("gpus", "-b", "lab", expect=78).stderr
