"""The pod that is made of a job, without a cluster: what an experiment's ``pod_spec`` and ``pod_patch`` add to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runners.interface import AttemptRef, LaunchRequest
from runners.pod.options import options_for
from runners.pod.plan import refusals
from runners.pod.runner import PodRunner
from runners.pod.template import ResultVolume, job, patched, template
from tests.quick.manifest.support import loaded
from tests.support.waiting import ended, until

EXPERIMENT = """\
name: x
entrypoint: python3 train.py
resources: {slots_per_trial: 0}
searcher: {name: single, metric: loss}
environment:
  image: python:3.12
  pod_spec:
    metadata: {labels: {team: vision}, annotations: {note: n}}
    spec:
      priorityClassName: urgent
      tolerations: [{key: spot, operator: Exists}]
      securityContext: {supplementalGroups: [5]}
      containers:
      - name: determined-container
        volumeMounts: [{name: data, mountPath: /mnt/own}]
        resources: {limits: {memory: 1Gi, rdma/hca: 1}}
      - {name: watcher, image: busybox}
      volumes: [{name: data, persistentVolumeClaim: {claimName: mine}}]
"""
RESULTS = ResultVolume("hold")


def request_of(text: str) -> LaunchRequest:
    attempt = AttemptRef("home", "training-abc12", 1, 1)
    return LaunchRequest(attempt, loaded(text).spec, "me@box", "", "")


def pod_of(text: str, **settings: Any) -> dict[str, Any]:
    request = request_of(text)
    options = options_for(settings, request.spec)
    assert refusals(request, options) == []
    return template(request, options, RESULTS)


def names(items: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in items]


def test_a_pod_spec_is_merged_on_the_pod_that_the_job_gets() -> None:
    plain = pod_of("name: x\nframework: {name: custom, version: 'python:3.12', command: python3 train.py}\n")
    made = pod_of(EXPERIMENT, tolerations=[{"key": "gpu", "operator": "Exists"}])

    assert made["metadata"]["labels"] == {**plain["metadata"]["labels"], "team": "vision"}
    assert made["metadata"]["annotations"]["note"] == "n"
    spec, before = made["spec"], plain["spec"]
    assert spec["priorityClassName"] == "urgent"
    assert [one["key"] for one in spec["tolerations"]] == ["gpu", "spot"]
    assert spec["securityContext"] == {**before["securityContext"], "supplementalGroups": [5]}
    assert names(spec["volumes"]) == [*names(before["volumes"]), "own-data"]
    # The watcher ends with the learner: a pod with it as a container of its own would never be over.
    assert names(spec["initContainers"]) == ["prepare", "journal", "watcher"]
    assert spec["initContainers"][-1]["restartPolicy"] == "Always"
    (learner,) = spec["containers"]
    (former,) = before["containers"]
    assert learner["volumeMounts"] == [
        *former["volumeMounts"],
        {"name": "own-data", "mountPath": "/mnt/own"},
    ]
    assert learner["resources"]["limits"] == {"memory": str(1 << 30), "rdma/hca": 1}
    assert learner["command"] == former["command"]


JOB = "name: x\nframework: {name: custom, version: 'python:3.12', command: python3 train.py}\n"
CLASSES = {70: "high", 90: "urgent"}


@pytest.mark.parametrize(
    ("settings", "priority", "expected"),
    [
        ({"priority_classes": CLASSES}, 0, None),
        ({"priority_classes": CLASSES}, 69, None),
        ({"priority_classes": CLASSES}, 70, "high"),
        ({"priority_classes": CLASSES}, 89, "high"),
        ({"priority_classes": CLASSES}, 90, "urgent"),
        ({"priority_classes": CLASSES}, 100, "urgent"),
        ({"priority_classes": CLASSES, "priority_class": "usual"}, 69, "usual"),
        ({"priority_classes": CLASSES, "priority_class": "usual"}, 70, "high"),
        ({"priority_classes": {0: "low"}, "priority_class": "usual"}, 0, "low"),
        ({"priority_class": "usual"}, 50, "usual"),
        ({}, 50, None),
    ],
)
def test_a_priority_gets_the_class_of_the_largest_number_that_is_not_above_it(
    settings: dict[str, Any], priority: int, expected: str | None
) -> None:
    assert pod_of(f"{JOB}priority: {priority}\n", **settings)["spec"].get("priorityClassName") == expected


def test_the_class_that_a_manifest_names_goes_before_that_of_its_priority() -> None:
    text = JOB + "priority: 95\nkubernetes: {priority_class: own}\n"

    assert pod_of(text, priority_classes=CLASSES)["spec"]["priorityClassName"] == "own"


def test_the_order_in_a_queue_of_kueue_is_not_that_of_the_priority() -> None:
    request = request_of(JOB + "priority: 95\n")
    settings = {"priority_classes": CLASSES, "queue": "team", "queue_priority_class": "usual"}

    made = job(request, options_for(settings, request.spec), RESULTS)

    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "usual"
    assert made["spec"]["template"]["spec"]["priorityClassName"] == "urgent"


def test_a_priority_is_refused_where_the_backend_has_no_classes() -> None:
    request = request_of(JOB + "priority: 70\n")

    (found,) = refusals(request, options_for({"priority_class": "usual"}, request.spec))

    assert "priority_classes" in found


def test_a_volume_may_be_mounted_at_several_paths() -> None:
    mounts = [{"name": "a", "mountPath": "/1"}, {"name": "a", "mountPath": "/2"}]
    added = [{"name": "b", "mountPath": "/2"}, {"name": "a", "mountPath": "/3"}]

    assert patched({"volumeMounts": mounts}, {"volumeMounts": added})["volumeMounts"] == [
        {"name": "a", "mountPath": "/1"},
        {"name": "b", "mountPath": "/2"},
        {"name": "a", "mountPath": "/3"},
    ]


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ("{metadata: {name: x}}", "metadata.name cannot be set"),
        ("{metadata: {labels: {fabric.job: x}}}", "fabric.job is the platform's own label"),
        ("{spec: {restartPolicy: Always}}", "restartPolicy must stay Never"),
        ("{spec: {containers: [{name: journal}]}}", "journal is a container of the platform"),
        ("{spec: {initContainers: [{name: learner}]}}", "learner is a container of the platform"),
        ("{spec: {volumes: [{name: data, emptyDir: {}}]}}", "data is a volume of the platform"),
        ("{spec: {volumes: [{name: claim-0, emptyDir: {}}]}}", "claim-0 is a volume of the platform"),
        ("{spec: {containers: [{name: learner, args: [x]}]}}", "args of learner cannot be set"),
        (
            "{spec: {containers: [{name: learner, volumeMounts: [{name: x, mountPath: /mnt/results/}]}]}}",
            "/mnt/results is a folder of the platform",
        ),
        (
            "{spec: {containers: [{name: learner, volumeMounts: [{name: x, mountPath: /.fabric/journal}]}]}}",
            "/.fabric/journal is a folder of the platform",
        ),
        (
            "{spec: {containers: [{name: learner, volumeMounts: [{name: x, mountPath: /dev/shm}]}]}}",
            "shm_size: is its size",
        ),
    ],
)
def test_a_patch_that_would_break_the_platform_is_refused_by_name(patch: str, problem: str) -> None:
    framework = "framework: {name: custom, version: 'python:3.12', command: a}"
    request = request_of(f"name: x\n{framework}\nkubernetes: {{pod_patch: {patch}}}\n")

    (found,) = refusals(request, options_for({}, request.spec))

    assert problem in found


def test_a_type_of_gpu_is_the_labels_that_the_settings_name_and_its_taint_is_stood() -> None:
    text = "name: x\ngpus: 8\ngpu_type: A100\nframework: {name: custom, version: a, command: a}\n"
    stands = [{"key": "gpu", "operator": "Exists"}]

    spec = pod_of(text, gpu_types={"a100": {"kind": "a100", "size": "80"}}, tolerations=stands)["spec"]

    assert spec["nodeSelector"] == {"kind": "a100", "size": "80"}
    assert spec["tolerations"] == stands


@pytest.mark.usefixtures("home")
def test_a_folder_of_the_nodes_is_mounted_where_the_backend_allows_it() -> None:
    text = (
        "name: x\nframework: {name: custom, version: a, command: a}\ndata_stores:\n- id: node\n  type: host_path\n"
        "  connection: {path: /srv}\n  training_data: {container: train}\n  training_results: {container: out}\n"
    )

    plan = PodRunner.plan_unconnected(request_of(text), {"host_paths": True})

    spec = next(one for one in plan.objects if one["kind"] == "Job")["spec"]["template"]["spec"]
    paths = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {
        one["mountPath"]: (paths[one["name"]], one.get("subPath"))
        for one in spec["containers"][0]["volumeMounts"]
        if one["name"] in paths
    }
    assert mounts == {
        "/mnt/data/train": ("/srv/train", None),
        "/mnt/results": ("/srv/out", "training-abc12"),
        "/mnt/checkpoints": ("/srv/out", "training-abc12/_checkpoints"),
    }


BESIDE = """\
name: a
framework: {{command: "true"}}
kubernetes:
  pod_patch:
    spec:
      initContainers:
      - {{name: before, image: i, command: [sh, -c, "true"]}}
      - {{name: beside, image: i, restartPolicy: Always, command: {command}, args: [one word, two]}}
"""


def beside(command: str) -> dict[str, Any]:
    containers = pod_of(BESIDE.format(command=command))["spec"]["initContainers"]
    return next(one for one in containers if one["name"] == "beside")


def test_only_a_side_car_that_is_a_shell_runs_below_one_that_passes_its_signal_on() -> None:
    containers = pod_of(BESIDE.format(command="[python3, -c, '1']"))["spec"]["initContainers"]

    assert [one["command"] for one in containers if one["name"] in ("before", "beside")] == [
        ["sh", "-c", "true"],
        ["python3", "-c", "1"],
    ]


@pytest.mark.parametrize("shell", ["/bin/sh", "bash", "busybox"])
def test_a_shell_beside_the_learner_ends_on_the_signal_that_its_first_process_would_not_get(
    shell: str, tmp_path: Path
) -> None:
    script = 'echo "$0 $1 $2" >seen; while :; do sleep 0.1; done'
    command = ["sh" if shell == "busybox" else shell, "-c", script, "name"]
    container = beside(json.dumps(command))
    argv = [*(["busybox"] if shell == "busybox" else ()), *container["command"], *container["args"]]
    with subprocess.Popen(argv, cwd=tmp_path, start_new_session=True) as process:
        try:
            until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text())
            process.terminate()
            assert ended(process) == 128 + signal.SIGTERM
        finally:
            with contextlib.suppress(ProcessLookupError):  # the shell's own children have ended, too
                os.killpg(process.pid, signal.SIGKILL)

    assert (tmp_path / "seen").read_text() == "name one word two\n"


def test_a_shell_beside_the_learner_has_the_time_and_the_exit_code_that_it_takes(tmp_path: Path) -> None:
    script = "trap 'echo ends >seen; exit 3' TERM; echo begun >seen; while :; do sleep 0.05; done"
    container = beside(json.dumps(["sh", "-c", script]))
    with subprocess.Popen(container["command"], cwd=tmp_path) as process:
        until(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text())
        process.terminate()
        assert ended(process) == 3

    assert (tmp_path / "seen").read_text() == "ends\n"


def test_a_trial_of_an_experiment_has_the_variables_of_determined() -> None:
    pod = pod_of(EXPERIMENT)
    (learner,) = [one for one in pod["spec"]["containers"] if one["name"] == "learner"]

    variables = {one["name"]: one.get("value") for one in learner["env"]}
    number = str(int("abc12", 36))
    assert {name: value for name, value in variables.items() if name.startswith(("DET_", "C10D"))} == {
        "C10D_PORT": variables["MASTER_PORT"],
        "DET_ALLOCATION_ID": "training-abc12.1",
        "DET_CLUSTER_ID": "home",
        "DET_EXPERIMENT_CONFIG": variables["DET_EXPERIMENT_CONFIG"],
        "DET_EXPERIMENT_ID": number,
        "DET_HPARAMS": "{}",
        "DET_RESOURCES_TYPE": "k8s-job",
        "DET_SLOT_IDS": "[]",
        "DET_TASK_ID": "training-abc12",
        "DET_TASK_TYPE": "TRIAL",
        "DET_TRIAL_ID": number,
        "DET_TRIAL_RUN_ID": "1",
        "DET_TRIAL_SEED": "0",
        "DET_WORKDIR": variables["MODEL_DIR"],
    }
