"""``fabric convert``: simple files of other tools become manifests, and what is lost is named."""

from __future__ import annotations

import pytest

from workbench.errors import ManifestError
from workbench.manifest import convert, load_text

SKYPILOT = """\
name: train
num_nodes: 2
resources: {accelerators: "A100:4", cpus: 8+, memory: 32+, image_id: "docker:pytorch/pytorch:2.1", disk_size: 256}
envs: {EPOCHS: 3, DEBUG: true, WANDB_API_KEY: null}
setup: pip install -r requirements.txt
run: |
  cd x
  python train.py --rank $SKYPILOT_NODE_RANK
"""
DSTACK = """\
type: task
name: train
image: pytorch/pytorch
env: [HF_TOKEN, LR=0.1]
commands: [pip install x, python train.py]
nodes: 2
max_duration: 2h
resources: {gpu: "24GB:2", cpu: 8.., memory: 32GB.., shm_size: 16GB}
"""
SLURM = """\
#!/bin/bash
#SBATCH --job-name=digits
#SBATCH -N 2 --gres=gpu:a100:2
#SBATCH -c 4 --mem=32G --time=1-02:00:00  # a comment
#SBATCH --output=x.log
#SBATCH --array=1-10
srun python train.py $SLURM_ARRAY_TASK_ID
"""
COMPOSE = """\
services:
  train: {image: "python:3.12", command: [python, train.py], environment: {A: 1}, volumes: ["./x:/x"]}
"""
MLFLOW = """\
name: iris
conda_env: conda.yaml
entry_points:
  main:
    parameters: {alpha: {type: float, default: 0.5}, n: 3}
    command: "python train.py --alpha {alpha} -n {n}"
"""
RAY = """\
entrypoint: python train.py
runtime_env: {env_vars: {A: b}, pip: [torch]}
entrypoint_num_gpus: 1
"""


def test_a_skypilot_task_is_converted() -> None:
    made = convert(SKYPILOT, "sky.yaml")
    spec = load_text(made.text, "m").spec

    assert made.format == "a SkyPilot task"
    assert (spec.name, spec.learners, spec.gpus, spec.gpu_type, spec.cpus) == ("train", 2, 4, "A100", 8)
    assert (spec.memory_bytes, spec.image) == (32 << 30, "pytorch/pytorch:2.1")
    assert (dict(spec.env), spec.secrets) == ({"EPOCHS": "3", "DEBUG": "true"}, ("WANDB_API_KEY",))
    assert spec.framework.command == "cd x\npython train.py --rank $SKYPILOT_NODE_RANK"
    assert made.notes[0] == "resources.disk_size is not carried over"
    assert "SKYPILOT_NODE_RANK; learners have LEARNER_ID" in made.notes[1]


def test_a_dstack_task_is_converted() -> None:
    made = convert(DSTACK, "x.dstack.yml")
    spec = load_text(made.text, "m").spec

    assert (spec.learners, spec.gpus, spec.cpus, spec.memory_bytes) == (2, 2, 8, 32 << 30)
    assert spec.shm_size_bytes == 16 << 30
    assert (spec.max_runtime_seconds, dict(spec.env), spec.secrets) == (7200, {"LR": "0.1"}, ("HF_TOKEN",))
    assert spec.framework.command == "pip install x\npython train.py"
    assert made.notes == ("gpu.memory is not carried over",)


def test_a_batch_script_of_slurm_is_converted() -> None:
    made = convert(SLURM, "folder/job.sbatch")
    spec = load_text(made.text, "m").spec

    assert (spec.name, spec.learners, spec.gpus, spec.gpu_type, spec.cpus) == ("digits", 2, 2, "a100", 4)
    assert (spec.memory_bytes, spec.max_runtime_seconds) == (32 << 30, 26 * 3600)
    assert spec.framework.command == "bash job.sbatch"
    assert [note.split(";")[0] for note in made.notes] == [
        "array is not carried over",
        "the file reads SLURM_ARRAY_TASK_ID",
        "the script calls srun",
    ]


def test_a_compose_file_of_one_service_is_converted() -> None:
    made = convert(COMPOSE, "compose.yml")
    spec = load_text(made.text, "m").spec

    assert (spec.name, spec.image, dict(spec.env)) == ("train", "python:3.12", {"A": "1"})
    assert spec.framework.command == "python train.py"
    assert made.notes == ("services.train.volumes is not carried over",)


def test_an_mlproject_is_converted() -> None:
    made = convert(MLFLOW, "MLproject")

    assert dict(load_text(made.text, "m").spec.params) == {"alpha": 0.5, "n": 3}
    assert load_text(made.text, "m").spec.framework.command == "python train.py --alpha 0.5 -n 3"
    assert made.notes == ("conda_env is not carried over",)


def test_a_ray_job_is_converted() -> None:
    made = convert(RAY, "ray.yaml")
    spec = load_text(made.text, "m").spec

    assert (spec.gpus, dict(spec.env), spec.framework.command) == (1, {"A": "b"}, "python train.py")
    assert made.notes == ("runtime_env.pip is not carried over",)


def test_no_accelerators_are_no_gpus() -> None:
    spec = load_text(convert("run: x\nresources: {accelerators: {}}\n", "sky.yaml").text, "m").spec

    assert (spec.gpus, spec.gpu_type) == (0, "")


@pytest.mark.parametrize(
    ("resources", "gpus", "notes"),
    [("gpu", 1, ()), ("gpu:2", 2, ()), ("nic:1", 0, ("gres.nic:1 is not carried over",))],
)
def test_of_slurm_s_resources_only_gpus_are_carried_over(
    resources: str, gpus: int, notes: tuple[str, ...]
) -> None:
    made = convert(f"#SBATCH --gres={resources}\n", "job.sbatch")

    assert load_text(made.text, "m").spec.gpus == gpus
    assert made.notes == notes


@pytest.mark.parametrize(
    ("option", "begin"),
    [
        ("--begin=22:00", "22:00"),
        ("-b 16:30:15", "16:30:15"),
        ("--begin now+1hour", "+3600s"),
        ("--begin=now+60", "+60s"),
        ("--begin=now+2days", "+172800s"),
        ("--begin=2030-01-20T12:34:00", "2030-01-20T12:34:00"),
        ("--begin=2030-01-20", "2030-01-20"),
        ("--begin=01/20/30", "2030-01-20"),
        ("--begin=012030", "2030-01-20"),
        ("--begin=midnight", "00:00"),
        ("--begin=tomorrow", "00:00"),
        ("--begin=noon", "12:00"),
        ("--begin=teatime", "16:00"),
        ("--begin=now", ""),
        ("--begin='5:00 PM'", "5:00 PM"),
    ],
)
def test_when_a_batch_script_begins_is_when_the_job_does(option: str, begin: str) -> None:
    made = convert(f"#SBATCH {option}\ntrue\n", "job.sbatch")

    assert load_text(made.text, "m").spec.begin == begin
    assert made.notes == ()


@pytest.mark.parametrize(
    "text", ["someday", "now+1fortnight", "25:00", "2030-13-01", "133030", "1735689600000"]
)
def test_a_begin_that_is_no_time_of_slurm_s_is_named(text: str) -> None:
    made = convert(f"#SBATCH --begin={text}\n", "job.sbatch")

    assert load_text(made.text, "m").spec.begin == ""
    assert made.notes == (f"begin.{text} is not carried over",)


def test_a_batch_script_without_a_name_cannot_be_run() -> None:
    with pytest.raises(ManifestError, match="must be a file"):
        convert(SLURM, "-")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("services: {a: {image: x}, b: {image: y}}\n", "this Docker Compose file has 2 services"),
        ("services: {a: {image: x}}\n", "this Docker Compose file has no command"),
        ("type: service\ncommands: [x]\n", "this dstack configuration is a service"),
        ("entry_points: {a: {command: x}, b: {command: y}}\n", "has 2 entry points"),
        ("entry_points: {main: {command: x, parameters: {p: path}}}\nname: a\n", "has no default for p"),
        ("entry_points: {main: {command: x, parameters: {p: {type: path}}}}\n", "has no default for p"),
        ("resources: 3\nrun: [x\n", "is not YAML"),
        ("name: x\nframework: {command: a}\n", "this is not a file that can be converted"),
        ("run: x\nresources: {accelerators: {A100: many}}\n", "is not a SkyPilot task as it should be"),
        ("run: x\nresources: {accelerators: {A100: 1, H100: 1}}\n", "names 2 kinds of GPUs"),
        ("run: x\nresources: {accelerators: ['A100:1', 'H100:1']}\n", "names 2 kinds of GPUs"),
        ("#SBATCH --time=soon\n", "the #SBATCH lines cannot be read"),
        ("- a\n", "this is not a file that can be converted"),
    ],
)
def test_what_is_no_simple_job_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ManifestError, match=why) as caught:
        convert(text, "file")
    assert caught.value.hint
