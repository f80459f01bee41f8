"""Determined's experiment files, planned: its own examples, and each construct that files of its releases have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.quick.manifest.support import faults_of, loaded
from tests.quick.manifest.test_determined import examples, needs_files
from workbench.manifest import convert
from workbench.paths import Home
from workbench.services.submit.batch import read_batch
from workbench.services.submit.options import RunOptions
from workbench.services.submit.preview import SubmissionPreview, preview_batch
from workbench.spec import JobSpec

LAUNCH = "python3 -m determined.launch"
SINGLE = "searcher: {name: single, metric: loss}\n"
GRID = "searcher: {name: grid, metric: loss}\n"


def planned(file: Path, home: Home, *templates: Path) -> SubmissionPreview:
    """Return what a run of a file would start on this machine."""
    options = RunOptions(manifest=str(file), backend="local", templates=tuple(map(str, templates)))
    (preview,) = preview_batch(read_batch(options), home)
    return preview


def planned_text(text: str, home: Home, folder: Path) -> SubmissionPreview:
    file = folder / "e.yaml"
    file.write_text(text)
    return planned(file, home)


def spec_of(preview: SubmissionPreview) -> JobSpec:
    return preview.searched or preview.submission.loaded.spec


def hparams_of(preview: SubmissionPreview) -> Any:
    """Return the hyperparameters of a lone trial, as its code reads them."""
    return json.loads(spec_of(preview).env["DET_HPARAMS"])


def slots_of(preview: SubmissionPreview) -> int:
    """Return how many slots a trial gets: GPUs, or processes on the CPU where there are none."""
    spec = preview.submission.loaded.spec
    return spec.gpus or len(json.loads(spec.env["DET_SLOT_IDS"]))


def warnings_of(text: str) -> str:
    return "\n".join(str(warning) for warning in loaded(text).warnings)


@needs_files
@pytest.mark.parametrize("path", examples(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_its_examples_are_planned_as_they_are(path: Path, home: Home, tmp_path: Path) -> None:
    file = tmp_path / path.name
    file.write_bytes(path.read_bytes())

    preview = planned(file, home)

    spec = spec_of(preview)
    (learner,) = preview.plan.learners
    assert learner.native["launch"]["command"] == spec.framework.command
    assert bool(preview.search_facts) == (spec.search is not None)
    assert list(home.path.rglob("*")) == []


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        # A folded launch of several lines, as most files with several slots have it.
        (
            f"entrypoint: >-\n   {LAUNCH}.torch_distributed\n   python3 a.py\n   --lr 1\n",
            f"{LAUNCH}.torch_distributed python3 a.py --lr 1",
        ),
        # Spaces at the ends of folded lines, and two between words.
        (
            "entrypoint: >-\n  python a.py \n  --name beans  \n  --eval \n",
            "python a.py  --name beans   --eval",
        ),
        (
            f"entrypoint: {LAUNCH}.torch_distributed -- python3 a.py\n",
            f"{LAUNCH}.torch_distributed -- python3 a.py",
        ),
        ("entrypoint:  python3 a.py \n", "python3 a.py"),
        (
            "entrypoint:\n  - python3\n  - -m\n  - determined.launch.deepspeed\n  - --trial\n  - a:T\n",
            f"{LAUNCH}.deepspeed --trial a:T",
        ),
        ("entrypoint: hub.vision:Trial\n", f"{LAUNCH}.torch_distributed -- --trial hub.vision:Trial"),
        (
            f"entrypoint: {LAUNCH}.horovod --autohorovod --trial a:T\n",
            f"{LAUNCH}.horovod --autohorovod --trial a:T",
        ),
    ],
)
def test_an_entrypoint_of_any_form_is_planned_as_one_command(
    lines: str, command: str, home: Home, tmp_path: Path
) -> None:
    # A Trial class needs a length.
    single = SINGLE.replace("}", ", max_length: {batches: 9}}")

    assert spec_of(planned_text(lines + single, home, tmp_path)).framework.command.strip() == command


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5), ("4.0e-05", 4e-05), (".03", 0.03), ("0.", 0.0), ("1.", 1.0), ("2147483647", 2147483647),
        ("10_000", 10_000), ("1_0.5", 10.5), ("'10_000'", "10_000"), ("_1", "_1"), ("None", "None"), ("''", ""),
        ("0.4 0.9", "0.4 0.9"), ("<a-token>", "<a-token>"), ("True", True), ("null", None),
        ("[0.08, 1.0]", [0.08, 1.0]),
        ("[a, [1]]", ["a", [1]]), ("{opt: {betas: null, lr: 1e-3}}", {"opt": {"betas": None, "lr": 1e-3}}),
        ("{a.b.c: 100, a._d_: true}", {"a.b.c": 100, "a._d_": True}), ("{min_val: 0.1}", {"min_val": 0.1}),
        ("{type: const, val: {loss: 1}}", {"loss": 1}),
    ],
)  # fmt: skip
def test_a_constant_of_any_kind_reaches_the_code_of_a_planned_trial(
    written: str, value: Any, home: Home, tmp_path: Path
) -> None:
    text = f"entrypoint: a\n{SINGLE}hyperparameters:\n  top: {written}\n  below:\n    it: {written}\n"

    assert hparams_of(planned_text(text, home, tmp_path)) == {"top": value, "below": {"it": value}}


def test_digits_in_groups_stay_in_names_and_labels(home: Home, tmp_path: Path) -> None:
    text = f"name: 2024_01_15\nlabels: [2023_10]\nentrypoint: a\n{SINGLE}"

    spec = spec_of(planned_text(text, home, tmp_path))

    assert (spec.name, dict(spec.labels)) == ("2024_01_15", {"2023_10": "true"})


@pytest.mark.parametrize(
    ("searcher", "hyperparameters", "facts"),
    [
        (GRID, "version: {type: categorical, vals: [1, 2, 3]}", "3"),
        (GRID, "net: {x: {type: int, minval: 8, maxval: 64, count: 2}, y: {type: categorical, vals: [a, b]}}", "4"),
        (GRID, "lr: {type: log, base: 10, minval: -2, maxval: -1, count: 2}, b: 1", "2"),
        (SINGLE, "lr: {type: log, base: 10, minval: -5, maxval: -3}", "1"),
        ("searcher: {name: random, metric: loss, max_trials: 15}\n", "a: {type: categorical, vals: [0]}", "15"),
        (
            "searcher: {name: adaptive_asha, metric: loss, max_trials: 64, max_length: 10}\n",
            "arguments: {lr: {type: double, minval: .0001, maxval: 1.0}}",
            "64",
        ),
        (
            "searcher: {name: adaptive_asha, metric: loss, max_trials: 20, max_length: {records: 60000},"
            " mode: aggressive, max_rungs: 2, divisor: 2, max_concurrent_trials: 2}\n",
            "lr: {type: double, maxval: 0.3, minval: 0.001}",
            "20",
        ),
    ],
)  # fmt: skip
def test_a_search_of_any_form_is_planned_with_its_first_trial(
    searcher: str, hyperparameters: str, facts: str, home: Home, tmp_path: Path
) -> None:
    text = f"entrypoint: a\nhyperparameters: {{{hyperparameters}}}\n{searcher}"

    preview = planned_text(text, home, tmp_path)

    assert facts in " ".join(value for _, value in preview.search_facts)
    assert "the first trial, with " in preview.search_facts[-1][1]


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("name: grid search\n", {"name": "grid search"}),
        ("name: stage-1.1 generic metrics \n", {"name": "stage-1.1 generic metrics"}),
        ("description: A model with AMP, always\n", {"name": "experiment"}),
        ("data:\n", {}),
        ("records_per_epoch:\n  50000\nmin_validation_period: {batches: 0}\n", {}),
        ("profiling: {enabled: false, begin_on_batch: 50, end_after_batch: 100, sync_timings: true}\n", {}),
        ("profiling: {enabled: true, end_after_batch: null}\n", {}),
        ("resources: {slots_per_trial: 96, shm_size: 824600000000}\n", {}),
        ("max_restarts: 1000\nreproducibility: {experiment_seed: 999}\n", {"max_restarts": 1000, "seed": 999}),
        ("environment: {image: {gpu: a/b:gpu-1}, force_pull_image: true}\n", {"image_pull": "always"}),
        ("environment: {image: {cuda: a/b:cuda-1}}\n", {}),
        ("environment: {image: a/b, registry_auth: {username: me, password: hidden}}\n", {}),
        ("environment: {environment_variables: ['A=x,y,z', B=1]}\n", {}),
        (
            "bind_mounts: [{host_path: /tmp, container_path: /a/}, {host_path: /tmp, container_path: /b}]\n",
            {},
        ),
        ("checkpoint_storage: {save_trial_best: 1, save_trial_latest: 5}\n", {}),
        ("data: {key: 'a=\"b '' c\"', deep: {urls: [http://x/y.csv], none: null}}\n", {}),
        ("perform_initial_validation: true\ncheckpoint_policy: none\nscheduling_unit: 2000\ndebug: false\n", {}),
        ("data_layer: {type: shared_fs}\n", {}),
        ("pbs: {pbsbatch_args: [-bad]}\n", {}),
        (
            "workspace: w\nproject: p\nresources: {resource_pool: cpus}\n",
            {"labels": {"workspace": "w", "project": "p"}},
        ),
    ],
)  # fmt: skip
def test_keys_that_files_have_are_planned(
    lines: str, kept: Mapping[str, Any], home: Home, tmp_path: Path
) -> None:
    preview = planned_text(f"entrypoint: python3 a.py\n{SINGLE}{lines}", home, tmp_path)

    spec = spec_of(preview)
    assert slots_of(preview) == (96 if "96" in lines else 1)
    assert {name: getattr(spec, name) for name in kept} == dict(kept)
    assert spec.env.get("A") in (None, "x,y,z")


def test_a_search_goes_by_a_metric_with_any_name(home: Home, tmp_path: Path) -> None:
    text = (
        "entrypoint: a\nhyperparameters: {x: {type: categorical, vals: [1, 2]}}\n"
        "searcher: {name: random, max_trials: 2, metric: 'mAP(bbox)/IoU=0.5:0.95', smaller_is_better: false}\n"
    )

    search = spec_of(planned_text(text, home, tmp_path)).search

    assert search is not None
    assert (search["metric"], search["goal"]) == ("validation/mAP(bbox)/IoU=0.5:0.95", "maximize")


def test_a_file_that_counts_in_steps_is_planned_in_batches(home: Home, tmp_path: Path) -> None:
    text = (
        "entrypoint: model:T\nbatches_per_step: 64\nmin_validation_period: 10\nmin_checkpoint_period: {batches: 5}\n"
        "searcher: {name: random, metric: loss, max_trials: 3, max_steps: 1_00}\n"
    )

    config = json.loads(spec_of(planned_text(text, home, tmp_path)).env["DET_EXPERIMENT_CONFIG"])

    assert config["searcher"] == {
        "name": "random", "metric": "loss", "max_trials": 3, "max_length": {"batches": 6400}
    }  # fmt: skip
    assert config["scheduling_unit"] == 64
    assert config["min_validation_period"] == {"batches": 640}
    assert config["min_checkpoint_period"] == {"batches": 5}
    warned = warnings_of(text)
    for key in ("batches_per_step", "searcher.max_steps", "min_validation_period"):
        assert key in warned


def test_a_file_that_counts_in_steps_is_converted_into_one_that_counts_in_batches() -> None:
    text = f"entrypoint: a\n{SINGLE.replace('}', ', max_steps: 3}')}"

    made = convert(text, "e.yaml")

    config = json.loads(loaded(made.text).spec.env["DET_EXPERIMENT_CONFIG"])
    assert config["searcher"]["max_length"] == {"batches": 300}
    assert any("searcher.max_steps" in note for note in made.notes)


def test_a_step_has_a_hundred_batches_unless_the_file_says_it() -> None:
    text = f"entrypoint: a\n{SINGLE.replace('}', ', max_steps: 3}')}"

    config = json.loads(loaded(text).spec.env["DET_EXPERIMENT_CONFIG"])

    assert config["searcher"]["max_length"] == {"batches": 300}
    assert "scheduling_unit" not in config
    assert "100 of them a step" in warnings_of(text)


def test_slots_of_a_task_have_no_effect_on_an_experiment_and_are_named(home: Home, tmp_path: Path) -> None:
    text = f"entrypoint: a\n{SINGLE}resources: {{slots: 0}}\n"

    assert slots_of(planned_text(text, home, tmp_path)) == 1
    assert "resources.slots: has no effect" in warnings_of(text)
    assert "slots_per_trial: 0" in warnings_of(text)


def test_a_template_of_tasks_and_experiments_is_one_of_an_experiment(home: Home, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        "description: both\nresources: {agent_label: '', slots: 8, slots_per_trial: 4, weight: 1}\n"
        "environment: {environment_variables: [A=1]}\n"
    )
    file = tmp_path / "e.yaml"
    file.write_text(f"entrypoint: a\n{SINGLE}environment: {{environment_variables: [B=2]}}\n")

    preview = planned(file, home, template)

    spec = spec_of(preview)
    assert (slots_of(preview), spec.description, spec.env["A"], spec.env["B"]) == (4, "both", "1", "2")


@pytest.mark.parametrize(
    ("lines", "key", "hint"),
    [
        (f"{SINGLE}image: a/b\n", "image", "it is a key of environment:"),
        (f"{SINGLE}slots_per_trial: 2\n", "slots_per_trial", "it is a key of resources:"),
        (f"{SINGLE}max_trials: 2\n", "max_trials", "it is a key of searcher:"),
        (f"{SINGLE}batches_per_step: many\n", "batches_per_step", "write scheduling_unit:"),
        (f"{SINGLE}batches_per_step: 0\n", "batches_per_step", "a step has 1 batch or more"),
        (f"{SINGLE}log_pattern_policies: []\n", "log_pattern_policies", "did you mean log_policies?"),
        ("searcher: {name: single, metric: x, max_steps: -1}\n", "searcher.max_steps", "max_length"),
        ("searcher: {name: single, metric: x, max_steps: 1, max_length: 1}\n", "searcher.max_steps", "max_length"),
        ("searcher: {name: adaptive, metric: x, budget: {batches: 9}}\n", "searcher.budget", "max_trials"),
        ("searcher: {name: adaptive, metric: x, step_budget: 48}\n", "searcher.step_budget", "max_trials"),
        ("searcher: {name: adaptive, metric: x}\n", "searcher.name", "adaptive_asha, with max_trials:"),
        ("searcher: {name: adaptive_simple, metric: x}\n", "searcher.name", "adaptive_asha, which has the same keys"),
        ("searcher: {name: pbt, metric: x, population_size: 9}\n", "searcher.population_size", "population:"),
        ("searcher: {name: custom, metric: x, unit: batches}\n", "searcher.unit", "custom searchers"),
    ],
)  # fmt: skip
def test_what_older_files_have_and_no_release_takes_is_refused_with_what_to_write(
    lines: str, key: str, hint: str
) -> None:
    hints = {fault.key: fault.hint for fault in faults_of(f"entrypoint: a\n{lines}")}

    assert hint in hints[key]


def test_a_policy_of_a_workspace_is_named_for_what_it_is() -> None:
    (fault,) = faults_of("constraints: {priority_limit: 10}\ninvariant_config: {max_restarts: 1}\n")

    assert "a configuration policy of Determined" in fault.problem
    assert "--template" in fault.hint
