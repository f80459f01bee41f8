"""What a plan says is what would be sent: FfDL's images and limits, folders, ports, GPUs. No engine is needed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.container.permissions import relabelled
from runners.container.plan import bind
from runners.container.runner import ContainerRunner
from runners.interface import AttemptRef, LaunchPlan, LaunchRequest
from runners.shared.environment import CHOSEN
from workbench.errors import LaunchRefused
from workbench.learner.guard.container_creation import gpu_document
from workbench.manifest import load, load_text
from workbench.paths import Home
from workbench.spec import JobSpec

FOLDER = os.environ.get("FABRIC_FFDL_MANIFESTS", "")
FRAMEWORKS = {
    "tensorflow:1.5.0-gpu-py3": "tensorflow/tensorflow:1.5.0-gpu-py3",
    "caffe:gpu": "bvlc/caffe:gpu",
    "caffe2:c2v0.8.1.cpu.full.ubuntu14.04": "caffe2ai/caffe2:c2v0.8.1.cpu.full.ubuntu14.04",
    "pytorch:latest": "pytorch/pytorch:latest",
    "h2o3:latest": "opsh2oai/h2o3-ffdl:latest",
    "custom:registry.example/me/image:2": "registry.example/me/image:2",
}
IMAGES = {
    "caffe": "bvlc/caffe:",
    "tensorflow": "tensorflow/tensorflow:",
    "pytorch": "pytorch/pytorch:",
    "h2o3": "opsh2oai/h2o3-ffdl:",
    "horovod": "uber/horovod:",
    "custom": "",
}


def planned(home: Home, spec: JobSpec, part: tuple[int, ...] = ()) -> LaunchPlan:
    """Plan a job on an engine that is not there, or the part of it that one of several hosts has."""
    host = LocalHost(home, engine="unix:///nowhere")
    runner = ContainerRunner(host, home_uuid="home")
    attempt = AttemptRef("home", "training-abcdefghj", 1, spec.learners, part)
    request = LaunchRequest(attempt, spec, "me@box", "", "")
    try:
        return runner.plan(request)
    finally:
        runner.close()
        host.close()


def planned_text(home: Home, text: str) -> LaunchPlan:
    """Plan the job of a manifest."""
    return planned(home, load_text(text, "manifest.yml").spec)


def container(plan: LaunchPlan, learner: int = 1) -> dict[str, Any]:
    """Return the document that the engine would get."""
    found: dict[str, Any] = plan.learners[learner - 1].native["container"]
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_means_the_image_that_ffdl_took(home: Home, framework: str) -> None:
    name, _, version = framework.partition(":")
    text = f"name: a\nframework: {{name: {name}, version: '{version}', command: 'true'}}\n"

    assert container(planned_text(home, text))["Image"] == FRAMEWORKS[framework]


def test_the_plan_warns_of_checkpoints_that_cannot_be_removed(home: Home) -> None:
    text = (
        "name: a\nframework: {name: custom, version: image, command: 'true'}\ncheckpoints: {keep_last: 1}\n"
        "data_stores: [{id: lab, type: volume, training_results: {container: r}, connection: {name: v}}]\n"
    )

    assert [text for text in planned_text(home, text).warnings if "volume of lab" in text]


def test_limits_are_those_of_the_manifest(home: Home) -> None:
    text = (
        "name: a\ngpus: 2\ncpus: 0.5\nmemory: 1Gb\nshm_size: 1GiB\n"
        "framework: {name: custom, version: image, command: 'true'}\n"
    )
    host = container(planned_text(home, text))["HostConfig"]

    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (
        500_000_000,
        1_048_576_000,
        1_048_576_000,
    )
    assert host["ShmSize"] == 1 << 30
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert len(host["DeviceRequests"][0]["DeviceIDs"]) == 2


def test_a_job_without_gpus_sees_none_even_where_they_are_given_by_default(home: Home) -> None:
    text = "name: a\nframework: {name: custom, version: image, command: 'true'}\n"
    planned_ = container(planned_text(home, text))

    assert "NVIDIA_VISIBLE_DEVICES=void" in planned_["Env"]
    assert "DeviceRequests" not in planned_["HostConfig"]


def test_a_trial_of_an_experiment_has_the_variables_of_determined(home: Home) -> None:
    text = (
        "name: a\nentrypoint: python3 train.py\nhyperparameters: {lr: 0.5, deep: {n: 1}}\n"
        "searcher: {name: single, metric: loss}\nresources: {slots_per_trial: 2}\n"
        "environment: {image: image}\nreproducibility: {experiment_seed: 7}\n"
    )
    found = dict(entry.split("=", 1) for entry in container(planned_text(home, text))["Env"])

    assert found["DET_SLOT_IDS"] == "[0, 1]"
    assert found["DET_HPARAMS"] == '{"lr": 0.5, "deep": {"n": 1}}'
    assert found["DET_TRIAL_SEED"] == "7"
    assert found["DET_RESOURCES_TYPE"] == "docker-container"
    assert found["DET_AGENT_ID"] == os.uname().nodename
    assert (found["DET_WORKDIR"], found["C10D_PORT"]) == (found["MODEL_DIR"], found["MASTER_PORT"])


def test_only_several_learners_have_a_network_and_only_the_first_publishes(home: Home) -> None:
    text = "name: a\nlearners: 2\nports: [6006]\nframework: {name: custom, version: image, command: 'true'}\n"
    plan = planned_text(home, text)
    first, second = container(plan, 1), container(plan, 2)

    assert first["HostConfig"]["NetworkMode"] == "learner-abcdefghj-a1"
    endpoint = second["NetworkingConfig"]["EndpointsConfig"]["learner-abcdefghj-a1"]
    assert endpoint["Aliases"] == ["learner-abcdefghj-a1-1", "learner-abcdefghj-a1-1.learner-abcdefghj-a1"]
    assert first["HostConfig"]["PortBindings"] == {"6006/tcp": [{"HostIp": "127.0.0.1", "HostPort": "6006"}]}
    assert "PortBindings" not in second["HostConfig"]


def test_the_learners_of_one_of_several_hosts_use_its_network_and_its_name(home: Home) -> None:
    text = "name: a\nlearners: 3\nports: [6006]\nframework: {name: custom, version: image, command: 'true'}\n"
    plan = planned(home, load_text(text, "manifest.yml").spec, part=(2, 3))
    documents = [one.native["container"] for one in plan.learners]
    variables = dict(entry.split("=", 1) for entry in documents[1]["Env"])

    assert [one.name for one in plan.learners] == ["learner-abcdefghj-a1-1", "learner-abcdefghj-a1-2"]
    assert [one["HostConfig"]["NetworkMode"] for one in documents] == ["host", "host"]
    assert not any({"Hostname", "NetworkingConfig", "ExposedPorts"} & set(one) for one in documents)
    assert variables["MASTER_ADDR"] == variables["MASTER_PORT"] == CHOSEN
    assert (variables["RANK"], variables["WORLD_SIZE"]) == ("2", "3")
    assert [warning for warning in plan.warnings if "--set ports=[]" in warning]
    podman = gpu_document("a", documents[1], ())
    assert podman["netns"] == {"nsmode": "host"}
    assert not {"networks", "hostname"} & set(podman)


def test_bind_mounts_are_in_the_containers_configuration(home: Home) -> None:
    text = (
        "name: a\nframework: {name: custom, version: image, command: 'true'}\nbind_mounts:\n"
        "- {host_path: /tmp, container_path: /data}\n"
        "- {host_path: /opt, container_path: in/code, read_only: true, propagation: rslave}\n"
    )
    plan = planned_text(home, text)
    mounts = {each["Target"]: each for each in container(plan)["HostConfig"]["Mounts"]}

    assert mounts["/data"] == bind("/tmp", "/data")
    assert mounts["/job/model-code/in/code"] == {
        **bind("/opt", "/job/model-code/in/code", read_only=True),
        "BindOptions": {"Propagation": "rslave"},
    }
    assert not plan.warnings
    assert relabelled([mounts["/job/model-code/in/code"]]) == ["/opt:/job/model-code/in/code:ro,z,rslave"]


def test_secrets_are_in_no_plan(home: Home) -> None:
    text = "name: a\nsecrets: [TOKEN]\nframework: {name: custom, version: image, command: 'true'}\n"
    spec = load_text(text, "manifest.yml").spec
    host = LocalHost(home, engine="unix:///nowhere")
    runner = ContainerRunner(host, home_uuid="home")
    attempt = AttemptRef("home", "training-abcdefghj", 1, 1)
    request = LaunchRequest(attempt, spec, "me@box", "", "", secrets={"TOKEN": "never-shown"})

    assert "never-shown" not in repr(runner.plan(request))


def test_mounts_are_relabelled_where_selinux_guards_files() -> None:
    mounts = [bind("/here", "/there"), bind("/file", "/.fabric/file", read_only=True)]

    assert relabelled(mounts) == ["/here:/there:rw,z", "/file:/.fabric/file:ro,z"]


def test_more_memory_than_there_is_is_refused(home: Home) -> None:
    with pytest.raises(LaunchRefused, match="of memory"):
        planned_text(
            home, "name: a\nmemory: 900TiB\nframework: {name: custom, version: i, command: 'true'}\n"
        )


def test_all_of_ffdls_manifests_plan(home: Home) -> None:
    if not FOLDER:
        pytest.skip("FABRIC_FFDL_MANIFESTS names no folder of FfDL's manifests")
    for file in sorted(Path(FOLDER).glob("*.yml")):
        spec = load(file).spec
        plan = planned(home, replace(spec, memory_bytes=min(spec.memory_bytes or 1 << 30, 1 << 30)))
        assert len(plan.learners) == spec.learners
        document = container(plan)
        assert document["Image"].startswith(IMAGES[spec.framework.name]), file.name
        assert document["Image"] == spec.image
        assert (
            len(document["HostConfig"].get("DeviceRequests", [{"DeviceIDs": []}])[0]["DeviceIDs"])
            == spec.gpus
        )
