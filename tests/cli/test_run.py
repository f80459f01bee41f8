"""``fabric run`` for real: output, exit codes, settings, secrets, backends, and what is recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import EXECUTABLE, Fabric
from tests.support.waiting import until
from workbench.job import short_id
from workbench.paths import Home

MANIFEST = """\
name: small
learners: 1
framework:
  command: python3 train.py ${params.lr}
params:
  lr: 0.5
evaluation_metrics:
  type: regex_extractor
  groups:
    train:
      regex: 'step %{INT:step} loss %{FLOAT:loss}'
      scalars:
        loss: {type: FLOAT, value: $loss}
      etimes:
        step: {type: INT, value: $step}
"""
TRAIN = """\
import os, sys
print("lr", sys.argv[1], os.environ.get("MODE"), os.environ["FABRIC_PARAM_LR"])
for step in range(3):
    print(f"step {step} loss {0.5 / (step + 1)}")
open(os.environ["RESULT_DIR"] + "/model", "w").write("weights")
"""


@pytest.fixture
def fabric(module_fabric: Fabric, tmp_path: Path) -> Fabric:
    return module_fabric.within(tmp_path / "work")


@pytest.fixture
def home(module_fabric: Fabric) -> Home:
    return module_fabric.jobs_home


@pytest.fixture
def project(fabric: Fabric) -> Path:
    (fabric.folder / "manifest.yml").write_text(MANIFEST)
    (fabric.folder / "train.py").write_text(TRAIN)
    return fabric.folder


def test_output_goes_to_stdout_byte_for_byte_and_narration_to_stderr(fabric: Fabric) -> None:
    code = r"import os; os.write(1, b'\x00\xff\x1b[31m one\r two\n' + b'x' * 100000 + b'no end')"
    ran = subprocess.run(
        [EXECUTABLE, "run", "--", sys.executable, "-c", code],
        cwd=fabric.folder,
        env=fabric.variables,
        capture_output=True,
    )

    assert ran.stdout == b"\x00\xff\x1b[31m one\r two\n" + b"x" * 100_000 + b"no end"
    assert ran.returncode == 0
    assert b"completed" in ran.stderr
    assert b"results: " in ran.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("no-such-command", 127),
        ("./data", 126),
    ],
)
def test_the_exit_code_is_the_jobs_own(fabric: Fabric, command: str, code: int) -> None:
    (fabric.folder / "data").write_text("not to be executed")

    fabric("run", "--", command, expect=code)

    last = fabric.json("list", "--json")[0]
    assert (last["exit_code"], last["state"], last["exit_by"]) == (code, "FAILED", "job")


def test_a_manifest_with_flags_sets_and_variables(fabric: Fabric, project: Path) -> None:
    args = ["run", "manifest.yml", "--set", "params.lr=0.25", "-e", "MODE=fast", "--name", "quick"]
    ran = fabric(*args)

    assert ran.stdout.splitlines()[0] == "lr 0.25 fast 0.25"
    shown = fabric.json("show", "quick", "--json")
    assert shown["spec"]["params"] == {"lr": 0.25}
    assert shown["origins"]["params.lr"] == "--set"
    assert shown["origins"]["name"] == "flag --name"
    assert shown["origins"]["env.MODE"].startswith("flag")
    assert shown["origins"]["framework.command"] == "manifest.yml:4"
    assert shown["recorded"]["argv"] == ["fabric", *args]
    assert shown["metrics"] == {"train/loss": pytest.approx(0.5 / 3)}


def test_metrics_are_live_in_the_narration(fabric: Fabric, project: Path) -> None:
    narration = fabric("run", "manifest.yml").stderr

    assert "metrics: step 2 train/loss=0.166667" in narration


def test_the_last_line_names_the_results_and_commands_that_work(fabric: Fabric, project: Path) -> None:
    last = fabric("run", "manifest.yml").stderr.splitlines()[-1]

    assert last.startswith("results: ")
    assert (Path(last.split()[1]) / "model").read_text() == "weights"
    for command in last[last.index("(") + 1 : -1].split("; "):
        fabric(*command.split()[1:])
    assert [path.read_text() for path in project.glob("training-*/results/model")] == ["weights"]


def test_a_command_line_keeps_the_manifest_that_it_used(fabric: Fabric, project: Path) -> None:
    narration = fabric("run", "-e", "MODE=x", "--", "echo", "two words").stderr

    line = next(line for line in narration.splitlines() if line.startswith("manifest: "))
    kept = Path(line.removeprefix("manifest: "))
    again = fabric("run", str(kept), str(project))
    assert fabric.json("show", "@last", "--json")["spec"]["env"] == {"MODE": "x"}
    assert again.stdout == "two words\n"


def test_code_may_be_a_folder_or_an_archive(fabric: Fabric, project: Path) -> None:
    archive = fabric.folder.parent / "code.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", project, "train.py"], check=True)

    for code in (".", str(archive)):
        assert "lr 0.5" in fabric("run", "manifest.yml", code).stdout
    assert "lr 1" in fabric("run", str(archive), "-e", "FABRIC_PARAM_LR=1", "--", "python3 train.py 1").stdout


def test_a_secret_is_handed_over_and_is_in_no_row_log_or_record(separate_fabric: Fabric) -> None:
    fabric, home = separate_fabric, separate_fabric.jobs_home
    value = "s3cr3t-value-of-mine"
    ran = fabric("run", "-e", "MY_TOKEN", "--", "printf %s $MY_TOKEN | wc -c; echo $MY_TOKEN", MY_TOKEN=value)

    assert ran.stdout.split() == [str(len(value)), "*" * len(value)]
    shown = fabric("show", "@last", "--json").stdout
    assert value not in shown
    assert fabric.json("show", "@last", "--json")["spec"]["secrets"] == ["MY_TOKEN"]
    holders = [
        path for path in home.path.rglob("*")
        if path.is_file() and value.encode() in path.read_bytes() and path.parent != home.secrets
    ]  # fmt: skip
    assert holders == []


def test_detached_prints_the_id_and_goes_on(fabric: Fabric) -> None:
    ran = fabric("run", "-d", "--", "echo first; while [ ! -e $RESULT_DIR/go ]; do sleep 0.2; done; exit 4")
    job_id = ran.stdout.strip()
    shown = fabric.json("show", job_id, "--json")
    results = Path(shown["results"])
    until(results.is_dir, "the job to have its folder")
    (results / "go").write_text("")

    attached = fabric("attach", expect=4)

    assert f"fabric attach {short_id(job_id)}" in ran.stderr
    assert attached.stdout == "first\n"
    assert fabric("wait", job_id, expect=4).stdout.split()[2] == "FAILED"
    assert [each["exit_code"] for each in fabric.json("wait", job_id, job_id, "--json", expect=4)] == [4]


def test_json_is_a_stream_of_events(fabric: Fabric, project: Path) -> None:
    events = [json.loads(line) for line in fabric("run", "manifest.yml", "--json").stdout.splitlines()]

    kinds = [each["event"] for each in events]
    assert {each["schema"] for each in events} == {"fabric.event/1"}
    assert next(each["text"] for each in events if each["event"] == "output") == "lr 0.5 None 0.5"
    assert kinds[-1] == "end"
    assert (events[-1]["state"], events[-1]["exit_code"]) == ("COMPLETED", 0)
    losses = [each for each in events if each["event"] == "metric" and each["name"] == "train/loss"]
    assert losses[-1]["step"] == 2


def test_json_detached_is_one_document(fabric: Fabric) -> None:
    document = fabric.json("run", "-d", "--json", "--", "true")

    assert document["schema"] == "fabric.job/1"
    fabric("wait", document["id"])


def test_several_learners_are_distinguished(fabric: Fabric) -> None:
    (fabric.folder / "two.yml").write_text(
        "name: two\nlearners: 2\nends_when: all\nframework:\n  command: echo from $LEARNER_ID\n"
    )

    prefixed = fabric("run", "two.yml").stdout
    plain = fabric("run", "two.yml", "--no-prefix").stdout

    assert sorted(prefixed.splitlines()) == ["[1] from 1", "[2] from 2"]
    assert sorted(plain.splitlines()) == ["from 1", "from 2"]


def test_the_plan_shows_what_is_sent_and_starts_nothing(separate_fabric: Fabric, project: Path) -> None:
    fabric, home = separate_fabric.within(project), separate_fabric.jobs_home
    document = fabric.json("plan", "manifest.yml", "--json")
    text = fabric("run", "--plan", "manifest.yml").stdout

    assert document["schema"] == "fabric.plan/1"
    assert document["runner"] == "process"
    assert document["learners"][0]["native"]["launch"]["command"] == "python3 train.py 0.5"
    assert document["code"]["files"] == 2
    assert "python3 train.py 0.5" in text
    assert fabric.json("list", "--json") == []
    assert not list(home.path.glob("jobs/*"))


def test_a_job_that_names_an_image_says_that_it_is_not_used(fabric: Fabric) -> None:
    narration = fabric("run", "--image", "python:3.12", "--", "true").stderr

    assert "python:3.12" in narration
    assert "not used" in narration


def test_memory_that_the_machine_does_not_have_is_refused(fabric: Fabric) -> None:
    (fabric.folder / "huge.yml").write_text("name: huge\nmemory: 900TiB\nframework: {command: 'true'}\n")

    ran = fabric("run", "huge.yml", expect=69)
    planned = fabric("plan", "huge.yml")

    assert "900.0 TiB of memory" in ran.stderr
    assert "nothing was started" in ran.stderr
    assert "warning   The job asks for 900.0 TiB of memory" in planned.stdout


def test_the_active_environment_runs_the_job(fabric: Fabric) -> None:
    prefix = Path(sys.executable).parents[1]

    ran = fabric("run", "--", "command -v python", VIRTUAL_ENV=str(prefix))

    assert ran.stdout.strip() == str(prefix / "bin" / "python")
    recorded = fabric.json("show", "@last", "--json")["recorded"]
    assert recorded["python"] == str(prefix / "bin" / "python")
    assert any(each.startswith("pytest==") for each in recorded["packages"])


def test_git_is_recorded(fabric: Fabric, project: Path, home: Home) -> None:
    for args in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *args], cwd=project, check=True)
    (project / "train.py").write_text(TRAIN + "# changed\n")

    fabric("run", "manifest.yml")

    shown = fabric.json("show", "@last", "--json")
    assert len(shown["recorded"]["git"]["commit"]) == 40
    assert shown["recorded"]["git"]["dirty"] is True
    assert "+# changed" in home.job(shown["id"]).diff.read_text()


def test_a_run_in_the_persons_home_takes_no_code(clean_environment: Path) -> None:
    ran = subprocess.run(
        [EXECUTABLE, "run", "--", "true"], cwd=clean_environment, capture_output=True, text=True
    )

    assert ran.returncode == 64
    assert "is a whole home folder, which is not taken as code unasked" in ran.stderr


def test_nothing_of_a_job_is_left_when_it_has_ended(separate_fabric: Fabric) -> None:
    from tests.support.processes import belonging_to

    fabric, home = separate_fabric, separate_fabric.jobs_home
    fabric("run", "--", "true")
    fabric("controller", "stop")

    until(lambda: not belonging_to(home), "every process to be gone")
    left = sorted(
        path.name for path in home.job(fabric.json("list", "--json")[0]["id"]).attempt(1).path.iterdir()
    )

    assert belonging_to(home) == []
    assert left == ["decision.json", "environment.json", "job", "learner-1"]


def test_a_manifest_from_standard_input_and_the_other_name(fabric: Fabric, project: Path) -> None:
    ran = fabric("train", "-", ".", input=MANIFEST)

    assert ran.stdout.startswith("lr 0.5")


def test_a_command_goes_before_the_manifests(fabric: Fabric, project: Path) -> None:
    assert fabric("run", "manifest.yml", "--", "echo", "mine").stdout == "mine\n"


@pytest.mark.parametrize("address", ["slurm://login/queue", "cloud://context"])
def test_a_backend_that_nothing_installed_reaches_is_refused(separate_fabric: Fabric, address: str) -> None:
    ran = separate_fabric("run", "--backend", address, "--", "true", expect=64)

    assert "local" in ran.stderr
    assert separate_fabric.json("list", "--json") == []


@pytest.mark.parametrize(
    "mask", [0o022, pytest.param(0o002, marks=pytest.mark.soak("a third mask; the gate has two")), 0o027]
)
def test_what_a_job_writes_has_the_rights_that_the_caller_gives(fabric: Fabric, mask: int) -> None:
    script = f"umask; touch {fabric.folder}/file; mkdir {fabric.folder}/folder"
    started = subprocess.run(
        [EXECUTABLE, "run", "-q", "--", "sh", "-c", script],
        cwd=fabric.folder,
        env=fabric.variables,
        capture_output=True,
        text=True,
        umask=mask,
    )

    assert (started.stdout, started.stderr) == (f"{mask:04o}\n", "")
    assert (fabric.folder / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (fabric.folder / "folder").stat().st_mode & 0o777 == 0o777 & ~mask
