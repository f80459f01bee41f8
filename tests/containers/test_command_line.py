"""Containers as a user meets them: through the command, with the controller in between."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.images import BUSYBOX, DEBIAN, USER
from workbench.paths import Home

FABRIC = str(Path(sys.executable).with_name("fabric"))
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "manifest.yml"


@pytest.fixture(autouse=True)
def controller(clean_environment: Path) -> Iterator[None]:
    """Stop the controller that the commands have started."""
    yield
    fabric("controller", "stop")


def fabric(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    told = {**os.environ, **environment}
    return subprocess.run([FABRIC, *words], capture_output=True, text=True, env=told, timeout=120)


def test_digits_gives_the_same_weights_by_process_and_by_container(engine: None, home: Home) -> None:
    words = ["run", str(DIGITS), "--set", "params.epochs=2", "--set", f"framework.version={DEBIAN}"]
    inside = fabric(*words)
    outside = fabric(*words, "--runner", "process", "--set", "python=/usr/bin/python3")
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no /usr/bin/python3 beside the image's")

    shown = json.loads(fabric("list", "--json").stdout)
    jobs = shown["jobs"] if isinstance(shown, dict) else shown

    assert (inside.returncode, outside.returncode) == (0, 0), inside.stderr + outside.stderr
    assert len(jobs) == 2
    weights = [
        {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for folder in (home.job(job["id"]).results, home.job(job["id"]).checkpoints)
            for path in folder.rglob("*")
            if path.is_file()
        }
        for job in jobs
    ]
    assert weights[0]
    assert weights[0] == weights[1]
    assert inside.stdout == outside.stdout


def test_a_job_that_names_an_image_runs_in_a_container_and_ends_with_its_code(engine: None) -> None:
    ran = fabric("run", "--image", DEBIAN, "--", "sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '; exit 4")

    assert ran.returncode == 4
    assert "inside.sh" in ran.stdout
    assert "on local, as container" in ran.stderr


def test_without_an_engine_it_runs_as_a_process_and_says_so() -> None:
    ran = fabric("run", "--image", DEBIAN, "--", "echo", "ran", DOCKER_HOST="unix:///nowhere")

    assert (ran.returncode, ran.stdout) == (0, "ran\n")
    assert "no container engine answers at /nowhere" in ran.stderr


def test_asked_for_by_name_it_fails_without_an_engine_with_what_to_do() -> None:
    ran = fabric(
        "run", "--runner", "container", "--image", DEBIAN, "--", "true", DOCKER_HOST="unix:///nowhere"
    )

    assert ran.returncode == 69
    assert "No container engine answers at /nowhere" in ran.stderr
    assert "--runner process" in ran.stderr


def test_a_halted_job_goes_on_where_it_was(engine: None, home: Home) -> None:
    script = (
        "echo x >> $RESULT_DIR/starts; [ $(wc -l < $RESULT_DIR/starts) = 2 ] && exit 0; echo up; sleep 300"
    )
    started = fabric("run", "-d", "--image", DEBIAN, "--", "bash", "-c", script)
    job = started.stdout.strip()
    printed = home.job(job).attempt(1).learner(1).output
    argv = [FABRIC, "logs", "-f", job]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=os.environ.copy()) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"up\n"
        halted = fabric("halt", job)
        following.wait(60)
    fabric("wait", job)
    fabric("resume", job)
    ended = fabric("wait", job)

    assert halted.returncode == 0, halted.stderr
    assert printed.read_bytes().startswith(b"up\n")
    assert ended.returncode == 0, ended.stderr
    assert (home.job(job).results / "starts").read_text() == "x\nx\n"


def test_delete_leaves_no_container_and_no_folder(engine: None, home: Home) -> None:
    job = fabric("run", "-d", "--image", DEBIAN, "--", "sleep", "300").stdout.strip()
    fabric("kill", job)
    fabric("wait", job)
    deleted = fabric("delete", job, "--yes")

    assert deleted.returncode == 0, deleted.stderr
    argv = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job}"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == ""


def test_the_plan_shows_what_the_engine_is_told(engine: None) -> None:
    shown = fabric("plan", "--json", "--image", DEBIAN, "--gpus", "1", "--", "true")
    document = json.loads(shown.stdout)

    container = document["learners"][0]["native"]["container"]
    assert document["runner"] == "container"
    assert container["Image"] == DEBIAN
    assert container["HostConfig"]["DeviceRequests"][0]["Capabilities"] == [["gpu"]]


@pytest.mark.parametrize("runner", ["container", "process"])
def test_a_command_runs_beside_a_learner_and_its_code_is_ours(engine: None, runner: str) -> None:
    job = fabric(
        "run", "-d", "--runner", runner, "--image", DEBIAN, "-e", "ANSWER=42", "--", "sh", "-c",
        "touch here; echo up; sleep 300",
    ).stdout.strip()  # fmt: skip
    with subprocess.Popen(
        [FABRIC, "logs", "-f", job], stdout=subprocess.PIPE, env=os.environ.copy()
    ) as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == b"up\n"
        script = "cat; ls here; echo $ANSWER; echo err >&2; exit 7"
        ran = subprocess.run(
            [FABRIC, "exec", job, "--", "sh", "-c", script],
            input="typed\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
        fabric("kill", job)
        follow.wait(60)
    after = fabric("exec", job, "--", "true")

    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "typed\nhere\n42\n", "err\n")
    assert after.returncode == 70
    assert "is not running" in after.stderr


def test_images_come_from_files_too(engine: None, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    subprocess.run(["docker", "save", BUSYBOX, "-o", str(file)], check=True)
    wrong = tmp_path / "wrong.tar"
    wrong.write_text("nothing")

    loaded, refused = fabric("image", "load", str(file)), fabric("image", "load", str(wrong))
    missing = fabric("image", "load", str(tmp_path / "none"))

    assert (loaded.returncode, loaded.stdout) == (0, f"{BUSYBOX}:latest\n")
    assert refused.returncode == missing.returncode == 66
    assert "holds no images" in refused.stderr


def test_an_image_that_is_not_roots_runs_and_may_report_whatever_our_mask_is(
    engine: None, home: Home
) -> None:
    program = "from fabric_learner import report; report(loss=0.5, step=1); open('mine', 'w').write('x')"
    ran = fabric("run", "--image", USER, "--json", "--", "sh", "-c", f'id -u; python3 -c "{program}"')
    job = json.loads(ran.stdout.splitlines()[0])["id"]

    assert ran.returncode == 0, ran.stderr
    assert '"loss"' in home.job(job).attempt(1).learner(1).records.read_text()
    assert (home.job(job).attempt(1).model(1) / "mine").stat().st_uid == os.getuid()
