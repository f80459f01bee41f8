"""Determined's experiment files in a cluster: their ``pod_spec`` for real, and their searches' trials as pods."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from tests.kubernetes.jobs import Pods
from tests.support import several_learners
from tests.support.cluster_health import KUBECONFIG, administrator
from tests.support.command import Fabric
from tests.support.pod_images import BUSYBOX, DEBIAN
from tests.support.waiting import until
from workbench.job import short_id

EXPERIMENT = f"""\
name: with a pod of its own
entrypoint: python3 train.py
searcher: {{name: single, metric: loss, max_length: {{batches: 1}}}}
max_restarts: 0
data: {{secrets: {{token: open-sesame}}}}
checkpoint_storage: {{type: directory, container_path: /tmp/checkpoints}}
environment:
  image: {DEBIAN}
  pod_spec:
    apiVersion: v1
    kind: Pod
    metadata: {{labels: {{team: vision}}, annotations: {{note: n}}}}
    spec:
      nodeSelector: {{kubernetes.io/os: linux}}
      initContainers:
      - name: first
        image: {BUSYBOX}
        command: [sh, -c, echo from the first >/shared/first]
        volumeMounts: [{{name: shared, mountPath: /shared}}]
      containers:
      - name: determined-container
        env:
        - {{name: POD_OWN_NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
        - {{name: PLAIN, value: as it is}}
        volumeMounts: [{{name: shared, mountPath: /mnt/shared}}]
        resources: {{limits: {{memory: 200Mi}}, requests: {{cpu: 100m}}}}
      - name: watcher
        image: {BUSYBOX}
        command: [sh, -c, "while :; do date >/shared/watched; sleep 0.2; done"]
        volumeMounts: [{{name: shared, mountPath: /shared}}]
      volumes: [{{name: shared, emptyDir: {{}}}}]
"""
CODE = """\
import os, time
import determined as det
while not os.path.exists("/mnt/shared/watched"):
    time.sleep(0.05)
print(open("/mnt/shared/first").read().strip(), os.environ["POD_OWN_NAME"], os.environ["PLAIN"], flush=True)
print("knows", det.get_cluster_info().user_data["secrets"]["token"], flush=True)
with det.core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 0.5})
"""
SHARDED = several_learners.TRAIN.replace(
    """\
            with core.checkpoint.store_path({"steps_completed": batch}) as (path, _):
                path.joinpath("state").write_text("%d %d" % (x, batch))
""",
    """\
        with core.checkpoint.store_path({"steps_completed": batch}, shard=True) as (path, _):
            path.joinpath("state-%d" % rank).write_text("%d %d" % (x, batch))
""",
).replace(
    """path.joinpath("state").read_text().split())""",
    """path.joinpath("state-%d" % rank).read_text().split())
            print("finds", *sorted(each.name for each in path.glob("state-*")))""",
)
"""The same training, where each process saves a part of the checkpoint, and goes on from that."""


@pytest.fixture
def pods(shared_pods: Pods) -> Pods:
    return shared_pods.anew()


def test_a_pod_spec_s_containers_and_volumes_run_beside_the_trial_and_end_with_it(pods: Pods) -> None:
    (pods.fabric.folder / "experiment.yaml").write_text(EXPERIMENT)
    (pods.fabric.folder / "train.py").write_text(CODE)

    pods.fabric("run", "-d", "experiment.yaml", "--accept-loss", "--backend", "cluster")
    ended = pods.wait()

    assert ended["state"] == "COMPLETED", json.dumps(ended["reason"])
    line, secret = pods.fabric("logs", ended["id"]).stdout.splitlines()[:2]
    assert secret == "knows ***********"
    assert line.startswith("from the first ") and line.endswith(" as it is")
    (name,) = line.removeprefix("from the first ").removesuffix(" as it is").split()
    assert short_id(ended["id"]) in name
    assert pods.fabric.json("metrics", ended["id"], "--json")
    until(
        lambda: [pod["status"]["phase"] for pod in pods.pods()] == ["Succeeded"],
        lambda: f"the pod to end with its learner: {json.dumps(pods.pods())}",
    )


def test_a_container_of_the_pod_spec_that_fails_before_the_trial_is_named_with_its_last_line(
    pods: Pods,
) -> None:
    # The pod runs as a user that may not change the mode of a volume.
    failing = EXPERIMENT.replace("echo from the first >/shared/first", "echo begins; chmod 777 /shared")
    (pods.fabric.folder / "experiment.yaml").write_text(failing)
    (pods.fabric.folder / "train.py").write_text(CODE)

    ran = pods.fabric("run", "experiment.yaml", "--backend", "cluster", expect=None)

    ended = pods.show()
    assert (ended["state"], ended["reason_code"], len(ended["attempts"])) == ("FAILED", "C205", 1)
    assert "the container first, which runs before the learner, ended with exit code 1: " in ran.stderr
    assert "chmod: /shared: " in ran.stderr


def test_the_startup_hook_is_read_in_the_pod_before_the_command(pods: Pods) -> None:
    (pods.fabric.folder / "experiment.yaml").write_text(
        "name: hook\nentrypoint: echo trained $HOOKED\nsearcher: {name: single, metric: x}\n"
        f"environment: {{image: {BUSYBOX}}}\nresources: {{slots_per_trial: 0}}\nmax_restarts: 0\n"
    )
    (pods.fabric.folder / "startup-hook.sh").write_text("export HOOKED=by-hook\nfalse || echo hook\n")

    ran = pods.fabric("run", "-q", "experiment.yaml", "--backend", "cluster")

    assert ran.stdout == "hook\ntrained by-hook\n"


def trained_by_two_pods(pods: Pods, code: str) -> str:
    """Train in two processes of each of two pods, halt it, have it go on to its end; return the output of that."""
    text = f"{several_learners.EXPERIMENT}environment: {{image: {DEBIAN}}}\n"
    (pods.fabric.folder / "experiment.yaml").write_text(text)
    (pods.fabric.folder / "train.py").write_text(code)
    args = ("--set", "learners=2", "--set", "gpus=0", "--set", 'env.DET_SLOT_IDS="[0, 1]"')

    pods.fabric("run", "-d", "experiment.yaml", "--accept-loss", "--backend", "cluster", *args)
    until(lambda: "x" in pods.fabric("metrics", "@last", expect=None).stdout, every=0.5)
    pods.fabric("halt", "@last")
    halted = pods.wait()
    assert (halted["state"], halted["exit_code"]) == ("HALTED", 143), json.dumps(halted["reason"])
    pods.fabric("resume", "@last")
    ended = pods.wait()

    assert ended["state"] == "COMPLETED", json.dumps(ended["reason"])
    return str(pods.fabric("logs", ended["id"]).stdout)


def test_a_trial_of_two_pods_is_halted_and_goes_on_in_both_from_the_firsts_checkpoint(pods: Pods) -> None:
    output = trained_by_two_pods(pods, several_learners.TRAIN)

    assert (output.count("goes on with True"), output.count("ends 2 2")) == (4, 4)


@pytest.mark.soak("another trial of two pods; the gate has shards of several machines in processes")
def test_a_checkpoint_of_shards_of_two_pods_is_whole_in_both_of_them_when_the_trial_goes_on(
    pods: Pods,
) -> None:
    output = trained_by_two_pods(pods, SHARDED)

    assert (output.count("goes on with True"), output.count("ends 2 2")) == (4, 4)
    assert output.count("finds state-0 state-1 state-2 state-3\n") == 4


def test_slots_are_divided_among_pods_as_it_is_configured_and_wait_for_a_node_else(
    fabric: Fabric, pods: Pods
) -> None:
    with closing(administrator(pods.space.namespace)) as admin:
        allocatable = [node["status"].get("allocatable") or {} for node in admin.list("Node").items]
    most = max(int(each.get("nvidia.com/gpu", 0)) for each in allocatable)
    if not most:
        pytest.skip("no node of the cluster has GPUs, pretended or real")
    text = several_learners.EXPERIMENT.replace("slots_per_trial: 4", f"slots_per_trial: {2 * most}")
    (fabric.folder / "experiment.yaml").write_text(f"{text}environment: {{image: {DEBIAN}}}\n")
    args = ("plan", "experiment.yaml", "--backend", "k8s")

    def planned() -> str:
        return " ".join(fabric(*args, KUBECONFIG=KUBECONFIG).stdout.split())

    gpus = f"{most} GPU{'s' if most > 1 else ''}"
    note = f"no node has more than {gpus} now: the trial waits for one with {2 * most}"
    # A node whose heartbeat comes late, as on a busy machine, does not count for a moment.
    until(lambda: note in planned(), planned)

    fabric("config", "set", "experiments.max_slots_per_pod", "1")
    assert (
        f"the {2 * most} slots are {2 * most} learners with 1 GPU each: [experiments] max_slots" in planned()
    )
