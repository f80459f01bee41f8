"""Jobs in pods as a user meets them, with nothing but the documented Role."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from runners.pod.status import is_preparing
from tests.kubernetes.jobs import Pods, configure, configure_in
from tests.support.cluster import Space
from tests.support.command import Fabric
from tests.support.pod_images import BARE, BUSYBOX, DEBIAN, OWN_PYTHONPATH
from tests.support.waiting import until

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "manifest.yml"


LIBC_SIGNALS = 1 << 32 - 1 | 1 << 33 - 1
"""The two that the C library keeps for its threads: what the runtime of containers left of them nobody can change."""


@pytest.fixture
def pods(shared_pods: Pods) -> Pods:
    return shared_pods.anew()


@pytest.mark.soak("the gate runs this example in a process, and halts, stores and deletes jobs in pods")
def test_digits_gives_the_same_weights_in_a_pod_as_in_a_process_and_is_deleted_without_a_trace(
    pods: Pods,
) -> None:
    args = ["--set", "params.epochs=2", "--set", "cpus=0.5", str(DIGITS)]

    inside = pods.run(*args)
    outside = pods.fabric("run", "--runner", "process", "--set", "python=/usr/bin/python3", *args)

    jobs = [row["id"] for row in pods.fabric.json("list", "--json") if row["id"] not in pods.earlier]
    weights = [
        {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for folder in (pods.fabric.jobs_home.job(job).results, pods.fabric.jobs_home.job(job).checkpoints)
            for path in folder.rglob("*")
            if path.is_file()
        }
        for job in jobs
    ]
    assert weights[0]
    assert weights[0] == weights[1]
    assert inside.stdout == outside.stdout
    assert pods.objects() != []
    pods.fabric("delete", jobs[0], jobs[1], "--yes")
    assert pods.objects() == []


def test_the_plan_is_the_objects_that_are_made(pods: Pods) -> None:
    args = ["--set", "learners=2", "-e", "TOKEN=abc", "--", "true"]
    shown = pods.fabric("plan", "--native", "--backend", "cluster", "--image", "busybox", *args).stdout
    planned = list(yaml.safe_load_all(shown[shown.index("---\n") :]))

    assert [one["kind"] for one in planned] == ["Job", "Secret", "Service"]
    pod = planned[0]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert planned[2]["spec"]["publishNotReadyAddresses"] is True


def test_code_that_cannot_be_unpacked_is_the_reason_of_a_pod_that_its_side_car_prepares(pods: Pods) -> None:
    (pods.fabric.folder / "train.py").write_text("print(1)\n")

    pods.run("--", "true", image=BARE, expect=None)

    shown = pods.show()
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "C104")
    assert "neither Python 3.8 nor tar to unpack the code" in shown["reason"]


class TestOnePod:
    """What is seen of one job that prints a secret and fails."""

    @pytest.fixture(scope="class")
    @classmethod
    def ran(cls, shared_pods: Pods) -> subprocess.CompletedProcess[str]:
        command = "echo first; echo second >&2; echo $TOKEN | tr a-z b-za; echo $TOKEN; exit 3"
        args = ("run", "--backend", "cluster", "--image", DEBIAN, "-e", "TOKEN", "--", "sh", "-c", command)
        return shared_pods.fabric(*args, expect=3, TOKEN="correcthorse")

    def test_the_clusters_own_log_shows_what_the_learner_prints_and_its_exit_code_is_the_jobs(
        self, shared_pods: Pods, ran: subprocess.CompletedProcess[str]
    ) -> None:
        (pod,) = shared_pods.pods()
        assert ran.stdout == "first\nsecond\ndpssfduipstf\n************\n"
        assert shared_pods.log(pod["metadata"]["name"]) == ran.stdout.encode()
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3

    def test_secrets_are_in_no_log_and_not_in_the_job(
        self, shared_pods: Pods, ran: subprocess.CompletedProcess[str]
    ) -> None:
        assert ran.stdout.endswith("\ndpssfduipstf\n************\n")
        (pod,) = shared_pods.pods()
        assert b"correcthorse" not in shared_pods.log(pod["metadata"]["name"])
        job = shared_pods.space.admin.list("Job").items[0]
        assert "correcthorse" not in json.dumps(dict(job))


def test_a_secret_that_has_no_value_is_refused_before_anything_is_made(pods: Pods) -> None:
    ran = pods.run("-e", "TOKEN", "--", "true", expect=None)

    assert ran.returncode != 0
    assert pods.objects() == []


def test_two_learners_find_each_other_by_name(pods: Pods) -> None:
    script = (
        "import os, socket\n"
        "n, i = os.environ['LEARNER_NAME_PREFIX'], int(os.environ['LEARNER_ID'])\n"
        "if i == 1:\n"
        "    s = socket.create_server(('', int(os.environ['MASTER_PORT'])))\n"
        "    c, _ = s.accept(); print(c.recv(99).decode())\n"
        "else:\n"
        "    import time\n"
        "    while True:\n"
        "        try:\n"
        "            c = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.1)\n"
        "    c.sendall(f'hello from {n}-{i - 1}.{n}'.encode())\n"
    )
    (pods.fabric.folder / "meet.py").write_text(script)

    ran = pods.run("--no-prefix", "--set", "learners=2", "--set", "ends_when=all", "--", "python3", "meet.py")

    stem = f"learner-{pods.show()['id'].removeprefix('training-')}-a1"
    assert ran.stdout.strip() == f"hello from {stem}-1.{stem}"


def test_a_halted_job_goes_on_from_its_checkpoint(pods: Pods) -> None:
    command = (
        "trap 'exit 0' TERM; n=$(cat $CHECKPOINT_DIR/n 2>/dev/null || echo 0);"
        " echo $((n + 1)) > $CHECKPOINT_DIR/n; echo from $n; [ $n = 1 ] || while :; do sleep 0.1; done"
    )
    job = pods.start("--", "sh", "-c", command)
    pods.until_printed(job, "from 0")

    pods.fabric("halt", job)
    assert pods.until_state(job, "HALTED")["exit_code"] == 143
    pods.fabric("resume", job)

    assert pods.wait(job)["state"] == "COMPLETED"
    assert "from 1" in pods.fabric("logs", job).stdout


class TestOneThatRuns:
    """What is seen of one job that runs, and at last of its end."""

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, shared_pods: Pods) -> str:
        command = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
        job = shared_pods.start("--set", "ports=[6006]", "--", "sh", "-c", command)
        shared_pods.until_state(job, "PROCESSING")
        shared_pods.until_printed(job, "ready")
        return job

    def test_a_command_runs_beside_the_learner_with_its_environment(
        self, shared_pods: Pods, job: str
    ) -> None:
        args = ("exec", job, "--", "sh", "-c", "echo $LEARNER_ID $RESULT_DIR; pwd; cat; exit 7")

        ran = shared_pods.fabric(*args, input="in", expect=7)

        assert ran.stdout == "1 /mnt/results\n/job/model-code\nin"

    def test_show_says_how_ports_of_a_pod_are_forwarded(self, shared_pods: Pods, job: str) -> None:
        (pod,) = shared_pods.pods()
        assert pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 6006
        output = shared_pods.fabric("show", job).stdout
        forwarded = f"--namespace={shared_pods.space.namespace} port-forward job/learner-"
        assert forwarded in " ".join(output.split())
        assert "6006" in output

    def test_a_kill_ends_at_once_and_leaves_no_pod_running(self, shared_pods: Pods, job: str) -> None:
        shared_pods.fabric("kill", job)

        assert shared_pods.until_state(job, "HALTED")["exit_code"] == 137
        until(lambda: all(pod["status"]["phase"] != "Running" for pod in shared_pods.pods()), "no pod to run")


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(DEBIAN, id="python"),
        pytest.param(
            BUSYBOX,
            id="tar",
            marks=pytest.mark.soak("the gate sends files by tar in test_pod_files[busybox]"),
        ),
        pytest.param(BARE, id="base64"),
    ],
)
def test_code_that_is_too_large_for_a_secret_is_sent_to_the_waiting_pod(pods: Pods, image: str) -> None:
    deep = pods.fabric.folder / "a folder"
    deep.mkdir()
    (deep / "big.bin").write_bytes(os.urandom(3_000_000))
    (deep / "tool").write_text("#!/bin/sh\nsha256sum 'a folder/link'\n")
    (deep / "tool").chmod(0o755)
    (deep / "link").symlink_to("big.bin")
    expected = hashlib.sha256((deep / "big.bin").read_bytes()).hexdigest()

    command = "test -x 'a folder/tool' && 'a folder/tool'; echo $PYTHONPATH"
    ran = pods.run("--", "sh", "-c", command, image=image)

    printed, python_path = ran.stdout.splitlines()
    assert printed.split()[0] == expected
    # What its image sets goes on behind the job's.
    assert python_path.startswith("/job/model-code:") and python_path.endswith(f":{OWN_PYTHONPATH}") == (
        image == BARE
    )


def test_code_that_is_too_large_is_refused_where_nothing_can_be_sent_to_pods(
    fabric: Fabric, space: Space
) -> None:
    configure(space)
    pods = Pods(fabric, space)
    pods.space.take_rights("pods/exec")
    (pods.fabric.folder / "big.bin").write_bytes(os.urandom(3_000_000))

    ran = pods.run("--", "true", expect=77)

    assert "pods/exec" in ran.stderr
    assert "data store" in ran.stderr
    assert pods.objects() == []


class TestNobodyWatches:
    """What is seen of one job that is started detached, and that ends while no controller runs."""

    @pytest.fixture(scope="class")
    @classmethod
    def shown(cls, shared_pods: Pods) -> dict[str, Any]:
        configure_in(shared_pods.fabric.config_file, shared_pods.space, results_hold_seconds=3)
        lines = "i=0; while [ $i -lt 30000 ]; do echo line $i of this job; i=$((i+1)); done"
        job = shared_pods.start("--", "sh", "-c", f"echo kept > $RESULT_DIR/file; {lines}")
        until(shared_pods.pods, "the pod to be made")
        _stop_controller(shared_pods)
        until(
            lambda: any(pod["status"]["phase"] == "Succeeded" for pod in shared_pods.pods()),
            "the pod to end",
        )
        return shared_pods.wait(job)

    def test_a_detached_job_says_that_its_results_may_be_lost_and_is_refused_without_consent(
        self, shared_pods: Pods, shown: dict[str, Any]
    ) -> None:
        refused = shared_pods.run("-d", "--", "true", expect=64)

        assert "--accept-loss" in refused.stderr
        assert shown["state"] == "COMPLETED"

    def test_output_of_a_job_that_nobody_watched_is_whole(
        self, shared_pods: Pods, shown: dict[str, Any]
    ) -> None:
        assert shown["state"] == "COMPLETED"

        output = shared_pods.fabric("logs", shown["id"]).stdout
        assert output == "".join(f"line {n} of this job\n" for n in range(30000))


class TestTheControllerIsKilled:
    """What is seen of one job whose controller is killed as soon as the cluster has its pod."""

    @pytest.fixture(scope="class")
    @classmethod
    def shown(cls, shared_pods: Pods) -> dict[str, Any]:
        (shared_pods.fabric.folder / "big.bin").write_bytes(os.urandom(3_000_000))
        job = shared_pods.start("--", "sh", "-c", "wc -c <big.bin")
        # Asked before: on a busy machine the answer takes longer than the code.
        controller = int(until(lambda: _controller(shared_pods)["pid"], "the controller to begin"))
        until(shared_pods.pods, "the pod to be made")
        os.kill(controller, signal.SIGKILL)
        until(lambda: any(map(is_preparing, shared_pods.pods())), "the pod to wait for its code")
        return shared_pods.wait(job)

    def test_a_controller_that_is_killed_in_a_launch_starts_nothing_twice(
        self, shared_pods: Pods, shown: dict[str, Any]
    ) -> None:
        assert shown["state"] == "COMPLETED"

        assert shared_pods.fabric("logs", shown["id"]).stdout == "3000000\n"
        assert len(shared_pods.pods()) == 1

    def test_a_controller_that_is_killed_before_a_pod_has_its_code_sends_it_when_it_is_back(
        self, shared_pods: Pods, shown: dict[str, Any]
    ) -> None:
        assert shown["state"] == "COMPLETED"

        assert shared_pods.fabric("logs", shown["id"]).stdout == "3000000\n"


def _stop_controller(pods: Pods) -> None:
    pods.fabric("controller", "stop")
    until(lambda: not _controller(pods)["running"], "the controller to end")


def _controller(pods: Pods) -> dict[str, Any]:
    found: dict[str, Any] = pods.fabric.json("controller", "status", "--json", expect=None)
    return found


def test_a_command_ignores_no_signal_in_any_learner_nor_one_that_is_run_beside_it(pods: Pods) -> None:
    look = "grep SigIgn /proc/self/status"
    job = pods.start("--set", "learners=2", "--", f"{look}; until [ -e go ]; do sleep 0.1; done")
    until(lambda: pods.fabric("logs", job).stdout.count("SigIgn") == 2, "both learners to have looked")

    beside = pods.fabric("exec", job, "--", *look.split()).stdout
    for learner in ("1", "2"):
        pods.fabric("exec", job, "--learner", learner, "--", "touch", "go")
    pods.wait(job)

    printed = pods.fabric("logs", job).stdout + beside
    masks = re.findall("SigIgn:\\s*([0-9a-f]+)", printed)
    assert [int(mask, 16) & ~LIBC_SIGNALS for mask in masks] == [0] * 3
