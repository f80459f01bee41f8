"""FfDL's examples as they meet: by name, by files in a shared folder; and the images and limits that it gave them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.local.host import LocalHost
from runners.container.plan import make_plan
from runners.interface import AttemptRef, LaunchRequest
from runners.shared.host_facts import read_host_facts
from tests.support.engine import MakeJob
from workbench.data.code.snapshot import take_snapshot
from workbench.manifest import load_text
from workbench.paths import Home

MB = 1024 * 1024
GB = 1000 * MB

LAUNCHER = """#!/usr/bin/env python3
# As the example's: the first PS_HOSTS_COUNT learners serve parameters, the others work.
import os, sys
count, prefix = int(os.environ["NUM_LEARNERS"]), os.environ["LEARNER_NAME_PREFIX"]
servers, number = int(os.environ["PS_HOSTS_COUNT"]), int(os.environ["LEARNER_ID"]) - 1
hosts = [f"{prefix}-{i}.{prefix}:2222" for i in range(count)]
job, task = ("ps", number) if number < servers else ("worker", number - servers)
os.execvp(sys.argv[1], sys.argv[1:] + [
    f"--ps_hosts={','.join(hosts[:servers])}", f"--worker_hosts={','.join(hosts[servers:])}",
    f"--job_name={job}", f"--task_index={task}"])
"""
TRAIN = """
import argparse, socket, time
options = argparse.ArgumentParser()
for name in ("ps_hosts", "worker_hosts", "job_name", "task_index", "data_dir", "model_dir"):
    options.add_argument("--" + name)
arguments = options.parse_args()
if arguments.job_name == "ps":
    server = socket.create_server(("", 2222))
    total = 0
    while True:  # as TensorFlow's server.join(): it never ends by itself
        client, _ = server.accept()
        total += int(client.recv(100))
        client.sendall(str(total).encode())
        print("total", total, flush=True)
host, port = arguments.ps_hosts.split(":")
while True:
    try:
        server = socket.create_connection((host, int(port)), 1)
        break
    except OSError:
        time.sleep(0.05)
server.sendall(b"42")
open(arguments.model_dir + "/saved", "w").write(server.recv(100).decode())
"""
BY_FILE = """
import fcntl, os, time
# As torch's file:// store: all append to one file under a lock, and wait until everybody has.
path = f"/job/{os.environ['TRAINING_ID']}"
with open(path, "r+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0, 2)
    file.write(os.environ["LEARNER_ID"] + "\\n")
while len(open(path).read().split()) < int(os.environ["NUM_LEARNERS"]):
    time.sleep(0.05)
print(sorted(open(path).read().split()))
"""
BY_ADDRESS = (
    "if [ $LEARNER_ID == 1 ]; then hostname -i > /job/new; mv /job/new /job/master_node.txt; fi;"
    " while [ ! -e /job/master_node.txt ]; do sleep 0.1; done; MASTER=$(cat /job/master_node.txt);"
    " if [ $LEARNER_ID == 1 ]; then python3 -c '{serve}'; else python3 -c '{call}' $MASTER; fi"
)
SERVE = 'import socket; c, _ = socket.create_server(("", 1234)).accept(); print(c.recv(9).decode())'
CALL = (
    "import socket, sys, time\nfor _ in range(200):\n"
    "    try: s = socket.create_connection((sys.argv[1], 1234), 1); break\n    except OSError: time.sleep(0.05)\n"
    's.sendall(b"joined")'
)


def test_tf_distributed_meets_by_name_and_ends_when_its_worker_has(
    make_job: MakeJob, home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / "launcher.py").chmod(0o755)
    (folder / "mnist_dist_savemodel.py").write_text(TRAIN)
    made = take_snapshot(folder, home)
    command = (
        "PS_HOSTS_COUNT=1 ./launcher.py python3 ${MODEL_DIR}/mnist_dist_savemodel.py --data_dir ${DATA_DIR}"
        " --model_dir ${RESULT_DIR}"
    )
    code = (made.code_hash, str(home.snapshot(made.code_hash)))
    job = make_job(command, learners=2, code=code, settle_seconds=1.0, memory_bytes=1 << 30, cpus=1).launch()

    seen = job.until_over()

    assert seen[2].exit_code == 0, job.output(2)
    assert seen[2].decided
    assert seen[1].stopped == "settle"
    assert job.output(1).startswith(b"total 42\n")
    assert (home.job(job.ref().job_id).results / "saved").read_text() == "42"


def test_learners_meet_through_the_file_that_torch_locks(make_job: MakeJob) -> None:
    job = make_job(
        f"cat > meet.py <<'END'\n{BY_FILE}END\npython3 meet.py", learners=3, ends_when="all"
    ).launch()
    job.until_over()

    assert [job.output(number) for number in (1, 2, 3)] == [b"['1', '2', '3']\n"] * 3


def test_learners_meet_at_the_address_that_the_first_writes_into_the_shared_folder(make_job: MakeJob) -> None:
    job = make_job(BY_ADDRESS.format(serve=SERVE, call=CALL), learners=2, ends_when="all").launch()
    seen = job.until_over()

    assert [one.exit_code for one in seen.values()] == [0, 0], job.output(1) + job.output(2)
    assert job.output(1) == b"joined\n"


EXAMPLES: dict[str, tuple[str, str, int | None, float | None, int, int]] = {
    # manifest: framework, memory, cpus; then image, bytes, cpus, gpus, learners as FfDL started it
    "tf-model": ("{name: tensorflow, version: '1.5.0-py3'}", "memory: 1Gb, cpus: 0.5", 1 * GB, 0.5, 0, 1),
    "tf-model gpu": (
        "{name: tensorflow, version: '1.5.0-gpu-py3'}", "memory: 2Gb, cpus: 2, gpus: 1", 2 * GB, 2, 1, 1),
    "tf-distributed": (
        "{name: tensorflow, version: '1.5.0-py3'}", "memory: 1GiB, cpus: 1, learners: 2", 1 << 30, 1, 0, 2),
    "caffe": ("{name: caffe, version: gpu}", "memory: 1000MiB, cpus: 2, gpus: 1", 1000 << 20, 2, 1, 1),
    "caffe2": (
        "{name: caffe2, version: c2v0.8.1.cpu.full.ubuntu14.04}", "memory: 300MiB, cpus: 1", 300 << 20, 1, 0, 1),
    "pytorch": ("{name: pytorch, version: latest}", "memory: 1000MiB, cpus: 1", 1000 << 20, 1, 0, 1),
    "pytorch-launch-dist": (
        "{name: custom, version: 'tomcli/pytorch:latest'}", "memory: 16Gb, cpus: 8, gpus: 1, learners: 2",
        16 * GB, 8, 1, 2),
    "h2o": ("{name: h2o3, version: latest}", "memory: 2Gb, cpus: 1, learners: 2", 2 * GB, 1, 0, 2),
    "fashion-mnist": (
        "{name: tensorflow, version: latest-gpu-py3}", "memory: 16GB, cpus: 8, gpus: 1", 16 * GB, 8, 1, 1),
    "private image": (
        "{name: custom, version: 'me/image:2', image_location: {registry: registry.example, namespace: team}}",
        "memory: 8Gb, cpus: 4", 8 * GB, 4, 0, 1),
}  # fmt: skip
IMAGES = {
    "tf-model": "tensorflow/tensorflow:1.5.0-py3",
    "tf-model gpu": "tensorflow/tensorflow:1.5.0-gpu-py3",
    "tf-distributed": "tensorflow/tensorflow:1.5.0-py3",
    "caffe": "bvlc/caffe:gpu",
    "caffe2": "caffe2ai/caffe2:c2v0.8.1.cpu.full.ubuntu14.04",
    "pytorch": "pytorch/pytorch:latest",
    "pytorch-launch-dist": "tomcli/pytorch:latest",
    "h2o": "opsh2oai/h2o3-ffdl:latest",
    "fashion-mnist": "tensorflow/tensorflow:latest-gpu-py3",
    "private image": "registry.example/team/me/image:2",
}


@pytest.fixture
def large(home: Home) -> Callable[[str], list[dict[str, Any]]]:
    """Plan a manifest on a machine that is large enough for any."""
    host = LocalHost(home, engine="unix:///nowhere")
    facts = replace(read_host_facts(host, "home"), processors=tuple(range(64)), memory_bytes=1 << 40)
    host.close()

    def plan(text: str) -> list[dict[str, Any]]:
        spec = load_text(text, "manifest.yml").spec
        attempt = AttemptRef("home", "training-abcdefghj", 1, spec.learners)
        planned = make_plan(LaunchRequest(attempt, spec, "me@box", "", ""), facts)
        return [one.native["container"] for one in planned.learners]

    return plan


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_given_the_image_and_limits_that_ffdl_gave_it(
    large: Callable[[str], list[dict[str, Any]]], example: str
) -> None:
    framework, limits, memory, cpus, gpus, learners = EXAMPLES[example]
    lines = limits.replace(", ", "\n")
    text = f"name: a\n{lines}\nframework: {framework[:-1]}, command: 'true'}}\n"

    planned = large(text)

    assert len(planned) == learners
    for container in planned:
        host = container["HostConfig"]
        assert container["Image"] == IMAGES[example]
        assert (host["Memory"], host["NanoCpus"]) == (memory, int((cpus or 0) * 1e9))
        assert sum(len(one["DeviceIDs"]) for one in host.get("DeviceRequests", ())) == gpus
        assert container["WorkingDir"] == "/job/model-code"
