from __future__ import annotations

import pytest

from tests.quick.manifest.support import SMALL, fault_of, faults_of, loaded, spec_of, warnings_of
from workbench.manifest.keys.containers import Key
from workbench.manifest.keys.framework_keys import FRAMEWORK
from workbench.manifest.keys.root import MANIFEST
from workbench.spec import EvaluationMetrics, JobSpec

EXAMPLES = [key for key in MANIFEST.keys.values() if key.example and key.name != "name"]


def test_a_small_manifest_has_the_defaults_of_a_job() -> None:
    spec = loaded().spec

    assert spec == JobSpec(
        name="small", framework=spec.framework, evaluation_metrics=EvaluationMetrics(type="auto")
    )
    assert spec.framework.command == "python train.py"
    assert spec.framework.name == "custom"
    assert spec.image == ""


@pytest.mark.parametrize("key", EXAMPLES, ids=lambda key: str(key.name))
def test_every_documented_example_validates(key: Key) -> None:
    loaded(f"{SMALL}{key.name}: {key.example}\n")


@pytest.mark.parametrize("key", list(FRAMEWORK.keys.values()), ids=lambda key: str(key.name))
def test_every_documented_example_of_a_framework_validates(key: Key) -> None:
    text = "name: a\nparams: {lr: 1}\nframework:\n" + ("" if key.name == "command" else "  command: x\n")

    loaded(text + (f"  {key.name}: {key.example}\n" if key.example else ""))


def test_our_keys_are_read() -> None:
    spec = spec_of(
        "env: {A: 1.10, B: yes, C: }\nsecrets: [TOKEN]\nparams: {lr: 1e-5}\nmax_restarts: 2\n"
        "max_platform_restarts: 0\nends_when: all\npriority: 5\nlabels: {team: vision}\nseed: 42\n"
        "python: conda:torch\nsetup: make\nports: 6006\nbackend: ssh://gpubox\nrunner: process\ncode: src\n"
        "learners: 3\nlauncher: torchrun\ngpu_type: v100\n"
    )

    assert spec.env == {"A": "1.10", "B": "yes", "C": ""}
    assert spec.secrets == ("TOKEN",)
    assert spec.params == {"lr": 1e-5}
    assert (spec.max_restarts, spec.max_platform_restarts) == (2, 0)
    assert (spec.ends_when, spec.priority, spec.seed, spec.learners) == ("all", 5, 42, 3)
    assert (spec.labels, spec.python, spec.setup, spec.ports) == (
        {"team": "vision"},
        "conda:torch",
        "make",
        (6006,),
    )
    assert (spec.backend, spec.runner, spec.code) == ("ssh://gpubox", "process", "src")
    assert (spec.launcher, spec.gpu_type) == ("torchrun", "v100")


def test_what_a_learner_needs_may_stand_below_resources() -> None:
    spec = spec_of("resources: {shm_size: 1Gi, gpus: 2}\n")

    assert (spec.shm_size_bytes, spec.gpus) == (1 << 30, 2)


def test_the_same_key_in_two_spellings_is_refused() -> None:
    assert "keep one" in fault_of("gpus: 1\nresources: {gpus: 2}\n")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("learners: -1", "m.yml:4:11: learners: found the number -1; write a whole number from 0 to 10,000"),
        ("gpus: 0.5", "a GPU cannot be divided"),
        ("gpus: two", "found the text 'two'"),
        ('gpus: "1"', "without quotation marks"),
        ("gpus: true", "found the truth value true"),
        ("gpus: .nan", "found the number .nan"),
        (f"gpus: {'9' * 299}", "found the number 999"),
        ("cpus: -2", "from 0 to 100,000"),
        ("cpus: 500m", "write 0.5"),
        ("env: [A=1]", "found a list"),
        ("env: {1A: x}", "'1A' cannot be used"),
        ("env: {A: [1]}", "env.A: found a list"),
        ("env: {FABRIC_LEARNER: x}", "cannot be set"),
        ("secrets: TOKEN", "a list of names"),
        ("secrets: [a b]", "secrets.0"),
        ("env: {A: x}\nsecrets: [A]", "named below secrets as well"),
        ("params: {lr: [1, 2]}", "params.lr: found a list"),
        ("params: {lr: .inf}", "in quotes"),
        ("params: {lr: 1, LR: 2}", "FABRIC_PARAM_LR"),
        ("ends_when: 3", "there are 1"),
        ("ends_when: last", "first, all"),
        ("ends_when: 0", "whole number from 1"),
        ("seed: 4294967296", "4,294,967,295"),
        ("launcher: torchrn", "did you mean torchrun?"),
        ("ports: [70000]", "ports.0"),
        ("python: 3.11", "current, PATH"),
        ("python: requirements", "no requirements are given"),
        ("priority: high", "whole number"),
        ("labels: {' x': y}", "cannot be used"),
        ("labels: {x: [y]}", "labels.x"),
        ("backend: a b", "backend's name"),
        ('description: "a\\0b"', "NUL"),
        ("setup: [a]", "found a list"),
        ("resources: 7", "resources: found the number 7; write a map"),
        ("data_stores: {}", "found a map"),
        ("max_runtime: soon", "'soon' is not a duration"),
        ("checkpoints: {keep_last: 0}", "checkpoints.keep_last: is 0"),
        ("checkpoints: {keep_best: 1}", "checkpoints.metric: is missing"),
        ("checkpoints: {at_end: {keep_best_of_search: 1}}", "checkpoints.metric: is missing"),
        ("checkpoints: {shared: true, at_end: {keep_last: 1}}", "at_end: cannot stand beside shared"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(written: str, message: str) -> None:
    assert message in fault_of(written + "\n")


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("framework: {command: x}\n", "name", "is missing"),
        ("name:\nframework: {command: x}\n", "name", "is empty"),
        ("name: a\n", "framework", "is missing"),
        ("name: a\nframework:\n", "framework", "is empty"),
        ("name: a\nframework: {}\n", "framework.command", "is missing"),
        ("name: a\nframework: python train.py\n", "framework", "found the text"),
        ('name: "a\\e[31m"\nframework: {command: x}\n', "name", "control character"),
        (f"name: {'a' * 300}\nframework: {{command: x}}\n", "name", "300 characters"),
        (f"name: a\nframework: {{command: {'a' * 200_000}}}\n", "framework.command", "script file"),
    ],
)
def test_what_is_missing_is_named(text: str, key: str, message: str) -> None:
    (fault,) = faults_of(text)

    assert fault.key == key
    assert message in f"{fault.problem} {fault.hint}"


def test_all_faults_are_named_at_once_in_the_order_of_the_file() -> None:
    faults = faults_of("gpus: 0.5\nmemory: 1024\nlearners: -1\nframework:\n  name: mxnet\n")

    assert [fault.key for fault in faults] == [
        "name",
        "gpus",
        "memory",
        "learners",
        "framework.command",
        "framework.name",
    ]
    assert [fault.line for fault in faults] == sorted(fault.line for fault in faults)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("memroy: 1Gb", "did you mean memory?"),
        ("GPUs: 1", "did you mean gpus?"),
        ("learner: 2", "did you mean learners?"),
        ("environment: {A: 1}", "write env:"),
        ("image: python:3.12", "name: custom"),
        ("entirely_else: 1", "has no effect"),
        ("resources: {gpu: 1}", "write gpus:"),
        ("env: {API_TOKEN: abc}", "secrets: [API_TOKEN]"),
        ("env: {RANK: 0}", "your value replaces it"),
        ("checkpoints: {keep_last: 1, metric: loss}", "no effect without keep_best"),
    ],
)
def test_what_is_doubtful_is_a_warning_with_advice(written: str, message: str) -> None:
    (warning,) = warnings_of(written + "\n")

    assert warning.startswith("m.yml:4:")
    assert message in warning


def test_a_script_keeps_its_lines_and_a_folded_command_does_not() -> None:
    script = loaded("name: a\nframework:\n  command: |\n    if true; then\n      echo a\n    fi\n").spec
    folded = loaded("name: a\nframework:\n  command: >-\n    echo a\n      b\n\n    c\n").spec
    plain = loaded("name: a\nframework:\n  command: echo a\n    b\n\n    c\n").spec
    quoted = loaded('name: a\nframework:\n  command: "echo a\\necho b"\n').spec

    assert script.framework.command == "if true; then\n  echo a\nfi"
    assert folded.framework.command == plain.framework.command == "echo a b c"
    assert quoted.framework.command == "echo a\necho b"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hyperparameters: {lr: 1}\nname: x\n", "Determined"),
        ("model_definition: {name: a}\ntraining_data_reference: {}\n", "Watson Machine Learning"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", "Kubernetes"),
        ("services: {web: {image: x}}\n", "Docker Compose"),
        ("resources: {accelerators: V100}\nrun: python train.py\n", "SkyPilot"),
        ("name: x\nrun: python train.py\n", "SkyPilot"),
        ("name: x\nentrypoint: python train.py\nruntime_env: {pip: [torch]}\n", "Ray"),
        ("cluster_name: x\nprovider: {type: aws}\nmax_workers: 2\n", "cluster of Ray"),
        ("type: task\nname: x\npython: 3.11\ncommands: [python train.py]\n", "dstack"),
        ("name: x\nentry_points: {main: {command: python train.py}}\n", "MLproject"),
        ("program: train.py\nmethod: grid\nparameters: {lr: {values: [1]}}\n", "Weights & Biases"),
        ("name: x\nroles: [{name: trainer, image: x, entrypoint: python}]\n", "TorchX"),
        (
            "description: x\nenvironment: {image: y}\nresources: {slots: 1}\n",
            "task configuration of Determined",
        ),
        ("name: x\nmin_checkpoint_period: {batches: 10}\nmax_restarts: 0\n", "experiment of Determined"),
        (
            "#!/bin/bash\n#SBATCH --job-name=x\n#SBATCH --gres=gpu:2\npython train.py\n",
            "batch script of Slurm",
        ),
        ("#!/bin/bash\n#PBS -l select=1\npython train.py\n", "batch script of PBS"),
        ("#!/usr/bin/env python3\nimport sys\nprint(sys)\n", "script"),
        ("[dist.ddp]\nj = 1x2\n\n[local_cwd]\nlog_dir = /tmp\n", "torchxconfig"),
    ],
)
def test_files_of_other_systems_are_recognised_and_named(text: str, name: str) -> None:
    (fault,) = faults_of(text)

    assert name in fault.problem
    assert "fabric" in fault.hint or "write" in fault.hint


@pytest.mark.parametrize(
    "text",
    [
        "name: x\nframework: {command: a}\nlearners: x\nrun: python\n",
        "name: x\nlearners: 2\n",
        "- a\n- b = 3\n",
        "x\n",
    ],
)
def test_what_only_looks_alike_is_no_other_systems_file(text: str) -> None:
    assert not any("this is" in fault.problem for fault in faults_of(text))
