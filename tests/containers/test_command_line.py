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

from tests.containers.test_images import containers_of
from tests.support import several_learners
from tests.support.command import Fabric
from tests.support.images import BUSYBOX, DEBIAN, USER, ensure_image_over
from tests.support.waiting import ended, until
from workbench.metrics import series
from workbench.paths import Home
from workbench.store.db.database import Store

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "manifest.yml"


@pytest.mark.soak("the gate has it as process and in a container at a host (tests/ssh/test_examples.py)")
def test_digits_gives_the_same_weights_by_process_and_by_container(
    fabric: Fabric, engine: None, home: Home
) -> None:
    args = ["run", str(DIGITS), "--set", "params.epochs=2", "--set", f"framework.version={DEBIAN}"]
    inside = fabric(*args, expect=None)
    outside = fabric(*args, "--runner", "process", "--set", "python=/usr/bin/python3", expect=None)
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no /usr/bin/python3 beside the image's")

    shown = json.loads(fabric("list", "--json", expect=None).stdout)
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


@pytest.mark.parametrize(("asked", "expected"), [({}, "refused"), ({"read_only": False}, "written")])
def test_data_in_a_folder_of_this_machine_can_be_written_only_on_request(
    fabric: Fabric, engine: None, tmp_path: Path, asked: dict[str, bool], expected: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("data\n")
    store = {
        "type": "host_path",
        "training_data": {"container": "data"},
        "training_results": {"container": "results"},
        "connection": {"path": str(tmp_path)},
        **asked,
    }
    command = (
        "cat $DATA_DIR/x; touch $DATA_DIR/w 2>/dev/null && echo written || echo refused; touch $RESULT_DIR/r"
    )
    framework = {"name": "custom", "version": BUSYBOX, "command": command}
    manifest = tmp_path / "manifest.yml"
    manifest.write_text(json.dumps({"name": "w", "framework": framework, "data_stores": [store]}))

    ran = fabric("run", str(manifest), expect=None)

    assert ran.stdout == f"data\n{expected}\n"
    assert (tmp_path / "data" / "w").exists() is (expected == "written")
    assert list((tmp_path / "results").glob("*/r"))


def test_checkpoints_are_kept_by_their_policy_without_a_data_store(
    fabric: Fabric, engine: None, home: Home, tmp_path: Path
) -> None:
    save = "import os\nfrom fabric_learner import checkpoint\nfor i in range(5):\n"
    save += " path = os.environ['CHECKPOINT_DIR'] + '/%d' % i; open(path, 'w').close(); checkpoint(path, i, loss=i)\n"
    (tmp_path / "save.py").write_text(save)
    framework = {"name": "custom", "version": USER, "command": "python3 save.py"}
    policy = {"keep_last": 1, "keep_best": 1, "metric": "loss"}
    manifest = tmp_path / "manifest.yml"
    manifest.write_text(json.dumps({"name": "w", "framework": framework, "checkpoints": policy}))

    ran = fabric("run", str(manifest), expect=None)

    assert ran.returncode == 0, ran.stderr
    (job,) = home.jobs.iterdir()
    kept = [path.name for path in home.job(job.name).checkpoints.iterdir() if path.suffix != ".json"]
    assert sorted(kept) == ["0", "4"]


@pytest.mark.parametrize(("acknowledges", "state"), [(True, "HALTED"), (False, "COMPLETED")])
def test_a_trial_of_determined_has_its_last_checkpoint_and_says_whether_it_goes_on(
    fabric: Fabric, engine: None, home: Home, acknowledges: bool, state: str
) -> None:
    code = f"""\
import os, subprocess, sys, time
import determined as det

print("latest", os.environ.get("DET_LATEST_CHECKPOINT"), os.environ["DET_STEPS_COMPLETED"], flush=True)
with det.core.init() as core:
    if det.get_cluster_info().latest_checkpoint is None:
        with core.checkpoint.store_path({{"steps_completed": 7}}) as (path, name):
            print("saved", name, flush=True)
        sys.exit(1)
    worker = subprocess.Popen(["sleep", "3600"])
    print("knows", det.get_cluster_info().user_data["secrets"]["token"], flush=True)
    print("waits", flush=True)
    while not core.preempt.should_preempt(auto_ack={acknowledges}):
        time.sleep(0.01)
    time.sleep(0.5)
    print("ends with", worker.poll(), flush=True)
"""
    experiment = {
        "name": "inside",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "x"},
        "environment": {"image": DEBIAN},
        "resources": {"slots_per_trial": 0},
        "max_restarts": 1,
        "data": {"secrets": {"token": "open-sesame"}},
    }
    (fabric.folder / "train.py").write_text(code)
    (fabric.folder / "experiment.json").write_text(json.dumps(experiment))

    job = fabric("run", "-d", "-q", "experiment.json").stdout.strip()
    second_output = home.job(job).attempt(2).learner(1).output
    until(
        lambda: second_output.exists() and "waits" in second_output.read_text(), "the second attempt to wait"
    )
    fabric("halt", "@last")

    saved = fabric("logs", "@last", "--attempt", "1").stdout.split("saved ")[1].strip()
    second = fabric("logs", "@last", "--attempt", "2").stdout
    assert second == f"latest {saved} 7\nknows ***********\nwaits\nends with None\n"
    assert fabric.json("show", "@last", "--json")["state"] == state


def test_a_trial_of_determined_is_two_containers_that_meet_by_name(
    fabric: Fabric, engine: None, home: Home
) -> None:
    text = f"{several_learners.EXPERIMENT}environment: {{image: {DEBIAN}}}\n"
    (fabric.folder / "experiment.yaml").write_text(text)
    (fabric.folder / "train.py").write_text(several_learners.TRAIN)

    job = fabric("run", "-d", "-q", "experiment.yaml", "--set", "learners=2").stdout.strip()
    with Store.open(home) as store:
        until(lambda: any("x" in one.name for one in series(store, job)), "a metric to be there")
    fabric("halt", job)
    assert fabric.json("show", job, "--json")["state"] == "HALTED"
    fabric("resume", job)
    fabric("wait", job)

    output = fabric("logs", job).stdout
    assert (output.count("goes on with True"), output.count("ends 2 2")) == (4, 4)
    *_, last = fabric("metrics", job).stdout.splitlines()
    learner, attempt, step, value = last.split()
    assert (learner, attempt, int(value)) == ("1", "2", int(step) * 18)


WITH_WHEEL = "fabric-test/with-determined"
PACKAGES = "usr/lib/python3/dist-packages"
WHEEL = {
    f"{PACKAGES}/determined/__init__.py": b"raise SystemExit('the package of the image looks for its master')\n",
    f"{PACKAGES}/determined/_trial_controller.py": b"",
    f"{PACKAGES}/determined/errors.py": b"BY = 'errors of the image'\n",
    f"{PACKAGES}/determined-0.38.1.dist-info/METADATA": b"Name: determined\nVersion: 0.38.1\n",
}
IN_IMAGE = """\
name: in an image
entrypoint: {entrypoint}
searcher: {{name: single, metric: x}}
environment: {{image: {image}}}
resources: {{slots_per_trial: 0}}
max_restarts: 0
"""


def test_the_package_of_a_trial_comes_before_that_of_its_image_which_brings_the_rest(
    fabric: Fabric, engine: None
) -> None:
    ensure_image_over(WITH_WHEEL, DEBIAN, WHEEL)
    text = IN_IMAGE.format(entrypoint="python3 train.py", image=WITH_WHEEL)
    (fabric.folder / "experiment.yaml").write_text(text)
    (fabric.folder / "train.py").write_text(
        "import determined as det\n"
        "from determined import errors\n"
        "with det.core.init() as core:\n"
        "    core.train.report_validation_metrics(steps_completed=1, metrics={'x': 3})\n"
        "print(errors.BY)\n"
    )

    assert fabric("run", "-q", "experiment.yaml").stdout == "errors of the image\n"
    assert fabric("metrics", "@last").stdout.split()[-2:] == ["1", "3"]


@pytest.mark.parametrize("image", [BUSYBOX, pytest.param(DEBIAN, marks=pytest.mark.soak("another shell"))])
def test_the_startup_hook_is_read_in_the_container_before_the_command_and_fails_the_job_if_it_fails(
    fabric: Fabric, engine: None, image: str
) -> None:
    text = IN_IMAGE.format(entrypoint="echo trained $HOOKED in $PWD", image=image)
    (fabric.folder / "experiment.yaml").write_text(text)
    hook = fabric.folder / "startup-hook.sh"

    hook.write_text("export HOOKED=by-hook\nfalse || echo hook in $PWD\n")
    assert fabric("run", "-q", "experiment.yaml").stdout == (
        "hook in /job/model-code\ntrained by-hook in /job/model-code\n"
    )

    hook.write_text("echo broken\nfalse\n")
    assert fabric("run", "-q", "experiment.yaml", expect=1).stdout == "broken\n"


def test_a_job_that_names_an_image_runs_in_a_container_and_ends_with_its_code(
    fabric: Fabric, engine: None
) -> None:
    ran = fabric(
        "run", "--image", DEBIAN, "--", "sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '; exit 4", expect=None
    )

    assert ran.returncode == 4
    assert "inside.sh" in ran.stdout
    assert "on local, as container" in ran.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("kill",),
        pytest.param(
            ("rm", "-f"),
            marks=pytest.mark.soak("a removal; the gate has its reason in tests/containers/test_harm.py"),
        ),
    ],
)
def test_a_container_that_is_ended_by_hand_is_followed_by_another_attempt(
    fabric: Fabric, engine: None, home: Home, args: tuple[str, ...]
) -> None:
    command = "[ -e $RESULT_DIR/first ] && exit 0; touch $RESULT_DIR/first; while :; do sleep 0.1; done"
    asked = ("run", "-d", "--image", BUSYBOX, "--set", "max_platform_restarts=1", "--", "sh", "-c", command)
    job = fabric(*asked, expect=None).stdout.strip()
    until((home.job(job).results / "first").exists, "the first attempt to run")
    (name,) = containers_of(job)

    subprocess.run(["docker", *args, name], check=True, capture_output=True)
    fabric("wait", job, expect=None)

    shown = json.loads(fabric("show", job, "--json", expect=None).stdout)
    assert (shown["state"], shown["attempt"]) == ("COMPLETED", 2)
    assert (
        "since the container was killed or removed from outside"
        in fabric("events", job, "--json", expect=None).stdout
    )


def test_without_an_engine_it_runs_as_a_process_and_says_so(fabric: Fabric) -> None:
    ran = fabric("run", "--image", DEBIAN, "--", "echo", "ran", DOCKER_HOST="unix:///nowhere", expect=None)

    assert (ran.returncode, ran.stdout) == (0, "ran\n")
    assert "no container engine answers at /nowhere" in ran.stderr


def test_asked_for_by_name_it_fails_without_an_engine_with_what_to_do(fabric: Fabric) -> None:
    args = ("run", "--runner", "container", "--image", DEBIAN, "--", "true")
    ran = fabric(*args, DOCKER_HOST="unix:///nowhere", expect=69)

    assert "No container engine answers at /nowhere" in ran.stderr
    assert "--runner process" in ran.stderr


def test_a_halted_job_goes_on_where_it_was(fabric: Fabric, engine: None, home: Home) -> None:
    script = (
        "echo x >> $RESULT_DIR/starts; [ $(wc -l < $RESULT_DIR/starts) = 2 ] && exit 0; echo up; sleep 300"
    )
    started = fabric("run", "-d", "--image", DEBIAN, "--", "bash", "-c", script, expect=None)
    job = started.stdout.strip()
    printed = home.job(job).attempt(1).learner(1).output
    with fabric.start("logs", "-f", job, stderr=None) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"up\n"
        halted = fabric("halt", job, expect=None)
        ended(following)
    fabric("wait", job, expect=None)
    fabric("resume", job, expect=None)
    second = fabric("wait", job, expect=None)

    assert halted.returncode == 0, halted.stderr
    assert printed.read_bytes().startswith(b"up\n")
    assert second.returncode == 0, second.stderr
    assert (home.job(job).results / "starts").read_text() == "x\nx\n"


def test_delete_leaves_no_container_and_no_folder(fabric: Fabric, engine: None, home: Home) -> None:
    job = fabric("run", "-d", "--image", DEBIAN, "--", "sleep", "300", expect=None).stdout.strip()
    fabric("kill", job, expect=None)
    fabric("wait", job, expect=None)
    deleted = fabric("delete", job, "--yes", expect=None)

    assert deleted.returncode == 0, deleted.stderr
    argv = ["docker", "ps", "-aq", "--filter", f"label=fabric.job={job}"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == ""


@pytest.fixture
def equipped(engine: None) -> Iterator[str]:
    """An image whose Python has one package more than any other."""
    name = f"fabric-test/equipped-{os.getpid()}"
    folder = "/usr/local/lib/python3.11/dist-packages/imagined-4.2.dist-info"
    made = docker("create", DEBIAN, "mkdir", "-p", folder)
    docker("start", "-a", made)
    docker("commit", "--change", 'CMD ["/bin/bash"]', made, name)
    docker("rm", made)
    yield name
    docker("rmi", "-f", name)


def docker(*args: str) -> str:
    return subprocess.run(["docker", *args], capture_output=True, text=True, check=True).stdout.strip()


def test_show_says_which_python_and_packages_of_the_image_ran_a_job(fabric: Fabric, equipped: str) -> None:
    ran = fabric("run", "--image", equipped, "--", "true", expect=None)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(fabric("show", "@last", "--json", expect=None).stdout)["ran_with"]
    text = fabric("show", "@last", expect=None).stdout

    assert "imagined==4.2" in shown["packages"]
    assert not any(each.startswith("pytest==") for each in shown["packages"])
    assert (shown["python"], shown["python_version"]) == ("/usr/bin/python3", "3.11")
    assert f"/usr/bin/python3 (3.11) of the image {equipped} with " in text
    assert sys.executable not in text


def test_show_says_nothing_of_this_machines_python_for_an_image_that_has_none(
    fabric: Fabric, engine: None
) -> None:
    assert fabric("run", "--image", BUSYBOX, "--", "true", expect=None).returncode == 0
    shown = json.loads(fabric("show", "@last", "--json", expect=None).stdout)["ran_with"]

    assert (shown["python"], shown["packages"]) == ("", [])
    assert "python  " not in fabric("show", "@last", expect=None).stdout


def test_the_plan_shows_what_the_engine_is_asked_for(fabric: Fabric, engine: None) -> None:
    shown = fabric("plan", "--json", "--image", DEBIAN, "--gpus", "1", "--", "true", expect=None)
    document = json.loads(shown.stdout)

    container = document["learners"][0]["native"]["container"]
    assert document["runner"] == "container"
    assert container["Image"] == DEBIAN
    assert container["HostConfig"]["DeviceRequests"][0]["Capabilities"] == [["gpu"]]


@pytest.mark.parametrize(
    "runner",
    [
        "container",
        pytest.param(
            "process",
            marks=pytest.mark.soak("a process; the gate has it beside one in tests/ssh/test_beside.py"),
        ),
    ],
)
def test_a_command_runs_beside_a_learner_and_its_code_is_ours(
    fabric: Fabric, engine: None, runner: str
) -> None:
    job = fabric(
        "run", "-d", "--runner", runner, "--image", DEBIAN, "-e", "ANSWER=42", "--", "sh", "-c",
        "touch here; echo up; sleep 300", expect=None).stdout.strip()  # fmt: skip
    with fabric.start("logs", "-f", job, stderr=None) as follow:
        assert follow.stdout is not None
        assert follow.stdout.readline() == b"up\n"
        script = "cat; ls here; echo $ANSWER; echo err >&2; exit 7"
        ran = fabric("exec", job, "--", "sh", "-c", script, input="typed\n", expect=7)
        fabric("kill", job, expect=None)
        ended(follow)
    after = fabric("exec", job, "--", "true", expect=None)

    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "typed\nhere\n42\n", "err\n")
    assert after.returncode == 69
    assert "is not running" in after.stderr


def test_images_come_from_files_too(fabric: Fabric, engine: None, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    subprocess.run(["docker", "save", BUSYBOX, "-o", str(file)], check=True)
    wrong = tmp_path / "wrong.tar"
    wrong.write_text("nothing")

    loaded, refused = (
        fabric("image", "load", str(file), expect=None),
        fabric("image", "load", str(wrong), expect=None),
    )
    missing = fabric("image", "load", str(tmp_path / "none"), expect=None)

    assert (loaded.returncode, loaded.stdout) == (0, f"{BUSYBOX}:latest\n")
    assert refused.returncode == missing.returncode == 66
    assert "holds no images" in refused.stderr


def test_an_image_that_is_not_roots_runs_and_may_report_whatever_our_mask_is(
    fabric: Fabric, engine: None, home: Home
) -> None:
    program = "from fabric_learner import report; report(loss=0.5, step=1); open('mine', 'w').write('x')"
    ran = fabric(
        "run", "--image", USER, "--json", "--", "sh", "-c", f'id -u; python3 -c "{program}"', expect=None
    )
    job = json.loads(ran.stdout.splitlines()[0])["id"]

    assert ran.returncode == 0, ran.stderr
    assert '"loss"' in home.job(job).attempt(1).learner(1).records.read_text()
    assert (home.job(job).attempt(1).model(1) / "mine").stat().st_uid == os.getuid()
