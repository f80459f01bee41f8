"""``requirements:`` and ``setup:`` in pods: made by the image's own Python before the command starts, or refused."""

from __future__ import annotations

import json

import pytest

from tests.containers.index import make_wheel
from tests.kubernetes.jobs import Pods
from tests.support.pod_images import BUSYBOX, DEBIAN, PIP

SAYS = "import fabric_sample, sys; print(fabric_sample.VERSION, sys.prefix)"
WANTED = ("--set", "python=requirements", "--set", 'requirements=["fabric_sample==1.0"]')
PYTHONPATH = "/job/model-code:/.fabric/journal/agent"
"""The code and the agent: what the image sets would come before the environment of requirements."""
FROM_CODE = ("--set", "env.PIP_NO_INDEX=1", "--set", "env.PIP_FIND_LINKS=/job/model-code")


@pytest.fixture
def pods(shared_pods: Pods) -> Pods:
    pods = shared_pods.anew()
    make_wheel(pods.fabric.folder)
    return pods


class TestOneJob:
    """What is seen of one job with requirements, while it runs and at its end."""

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, shared_pods: Pods) -> str:
        make_wheel(shared_pods.fabric.folder)
        command = f"python3 -c '{SAYS}'; echo $PYTHONPATH; while [ ! -e $RESULT_DIR/go ]; do sleep 0.1; done"
        job = shared_pods.start(*WANTED, *FROM_CODE, "--", "sh", "-c", command, image=PIP)
        shared_pods.until_printed(job, "\n/")
        return job

    def test_a_command_beside_the_learner_has_the_same_environment(self, shared_pods: Pods, job: str) -> None:
        ran = shared_pods.fabric("exec", job, "--", "sh", "-c", f"python3 -c '{SAYS}'; echo $PYTHONPATH")

        assert ran.stdout.startswith("1.0 ")
        assert ran.stdout.splitlines()[1] == PYTHONPATH

    def test_requirements_are_there_when_the_command_starts_and_are_recorded(
        self, shared_pods: Pods, job: str
    ) -> None:
        shared_pods.fabric("exec", job, "--", "touch", "/mnt/results/go")

        assert shared_pods.wait(job)["state"] == "COMPLETED"
        assert shared_pods.printed(job) == f"1.0 /.fabric/journal/env\n{PYTHONPATH}\n"
        folder = shared_pods.fabric.jobs_home.job(job).attempt(1).path
        document = json.loads((folder / "environment.json").read_text())
        assert [line.replace("_", "-") for line in document["packages"]] == ["fabric-sample==1.0"]


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (PIP, "the environment of requirements could not be built"),
        pytest.param(
            DEBIAN,
            "could not be built",
            marks=pytest.mark.soak("an image without pip; the gate has one without Python"),
        ),
        (BUSYBOX, "the image has no Python 3.8 or newer, and requirements need it"),
    ],
    ids=["no such package", "no pip", "no Python"],
)
def test_what_cannot_be_installed_is_refused_in_one_sentence_and_no_pod_runs(
    pods: Pods, image: str, words: str
) -> None:
    ran = pods.run(*WANTED, "--set", "env.PIP_NO_INDEX=1", "--", "true", image=image, expect=65)

    shown = pods.show()
    assert (shown["state"], shown["reason_code"], shown["attempt"]) == ("FAILED", "C205", 1)
    assert words in shown["reason"]
    assert {PIP: "fabric_sample", DEBIAN: "there is no pip", BUSYBOX: "setup:"}[image] in ran.stderr
    assert all(pod["status"]["phase"] == "Failed" for pod in pods.pods())


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(DEBIAN, id="debian"),
        pytest.param(
            BUSYBOX,
            id="busybox",
            marks=pytest.mark.soak("the agent in sh runs setups in learner/test_sh_agent"),
        ),
    ],
)
def test_setup_runs_before_the_command_and_its_failure_is_distinguished_from_the_commands(
    pods: Pods, image: str
) -> None:
    ran = pods.run(
        "--set", "setup=echo prepares; echo made > made", "--", "sh", "-c", "cat made", image=image
    )
    assert ran.stdout.splitlines()[-1] == "made"

    pods.run("--set", "setup=echo no; exit 3", "--", "true", image=image, expect=3)
    shown = pods.show()
    assert (shown["state"], shown["reason_code"]) == ("FAILED", "C206")
