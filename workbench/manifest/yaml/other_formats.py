"""Files of other systems, recognised by their keys or lines, so that they are named instead of picked to pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from workbench.manifest.yaml.faults import Findings
from workbench.manifest.yaml.nodes import MapNode, SourceLocation
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """Another system's file: it holds all of ``every``, one of ``any_of``, none of ``none_of``.

    ``a.b`` is a key of the map ``a``.
    """

    name: str
    every: frozenset[str]
    any_of: frozenset[str]
    hint: str
    none_of: frozenset[str] = frozenset()


_TASK: Final = "a task configuration of Determined"
_TASK_HINT: Final = (
    "fabric run -- COMMAND starts a command; environment.image goes to --image, its variables to -e,"
    " resources.slots to --gpus"
)
_COMMAND_HINT: Final = "fabric init writes a manifest to start from; its command goes to framework.command"

_OF_EXPERIMENTS: Final = frozenset(
    {
        "searcher", "hyperparameters", "checkpoint_storage", "checkpoint_policy", "min_validation_period",
        "min_checkpoint_period", "perform_initial_validation", "records_per_epoch", "scheduling_unit",
        "reproducibility", "log_policies", "profiling",
    }
)  # fmt: skip

FORMATS: Final = (
    Format(
        "a job of Anyscale or Ray",
        frozenset({"entrypoint"}),
        frozenset({"compute_config", "runtime_env", "working_dir", "image_uri", "submission_id"}),
        "fabric convert FILE prints a manifest of it; its entrypoint goes to framework.command, runtime_env.env_vars"
        " to env, runtime_env.pip to requirements",
    ),
    Format(
        "a generic task of Determined",
        frozenset({"entrypoint", "resources.slots"}),
        frozenset(),
        _TASK_HINT,
        # Old experiments have such slots, too.
        _OF_EXPERIMENTS | {"batches_per_step", "data", "max_restarts", "resources.slots_per_trial"},
    ),
    Format(
        "an experiment of Determined",
        frozenset(),
        _OF_EXPERIMENTS | {"entrypoint"},
        "it lacks searcher:; write searcher: {name: single, metric: loss} and entrypoint:, and it is read as it is",
    ),
    Format(
        _TASK,
        frozenset({"environment"}),
        frozenset(
            {
                "resources", "work_dir", "idle_timeout", "notebook_idle_type", "registry_auth", "debug",
                "bind_mounts",
            }
        ),
        _TASK_HINT,
    ),
    Format(
        _TASK,
        frozenset(),
        frozenset({"idle_timeout", "notebook_idle_type", "tensorboard_args", "resources.slots"}),
        _TASK_HINT,
    ),
    Format(
        "a configuration policy of Determined",
        frozenset(),
        frozenset({"invariant_config", "constraints.priority_limit", "constraints.resources"}),
        "write its invariant_config to a file and lay experiments over it: fabric run FILE --template policy.yaml",
    ),
    Format(
        "a values file of Determined's Helm chart",
        frozenset(),
        frozenset({"maxSlotsPerPod", "useNodePortForMaster", "enterpriseEdition", "determinedMasterConfig"}),
        "fabric needs no master: fabric backend add NAME k8s://CONTEXT names a cluster",
    ),
    Format(
        "a configuration of GPT-NeoX",
        frozenset(),
        frozenset({"pipe-parallel-size", "model-parallel-size", "pipe_parallel_size", "model_parallel_size"}),
        "GPT-NeoX's own training code reads it; write its command to framework.command of a manifest",
    ),
    Format(
        "a training definition of Watson Machine Learning",
        frozenset(),
        frozenset({"model_definition", "training_data_reference", "training_results_reference"}),
        "write its execution.command to framework.command, its framework to framework.name and version,"
        " and its two references to one entry of data_stores",
    ),
    Format("a Kubernetes object", frozenset({"apiVersion", "kind"}), frozenset(), _COMMAND_HINT),
    Format(
        "a Docker Compose file",
        frozenset({"services"}),
        frozenset(),
        "fabric convert FILE prints a manifest of it; a service's command goes to framework.command, its image to"
        " framework.version, its environment to env",
    ),
    Format(
        "a configuration of dstack",
        frozenset({"type"}),
        frozenset({"commands", "image", "python", "ide", "port", "nodes", "resources", "ssh_config", "backends"}),
        "fabric convert FILE prints a manifest of it; its commands go to framework.command, its nodes to learners,"
        " resources.gpu to gpus",
    ),
    Format(
        "an MLproject file of MLflow",
        frozenset({"entry_points"}),
        frozenset(),
        "fabric convert FILE prints a manifest of it; the command of an entry point goes to framework.command with"
        " ${params.NAME} for {NAME}, its parameters to params",
    ),
    Format(
        "a sweep of Weights & Biases",
        frozenset({"method"}),
        frozenset({"parameters", "program"}),
        "fabric init writes a manifest to start from; its program goes to framework.command, and each parameter's"
        " values to --set params.NAME=A,B,C of fabric run",
    ),
    Format(
        "a cluster of Ray",
        frozenset({"cluster_name"}),
        frozenset({"provider", "available_node_types", "head_node_type", "auth"}),
        "fabric needs no cluster: fabric backend add NAME ssh://HOST names a machine, fabric run -- COMMAND starts"
        " a job",
    ),
    Format(
        "an application of TorchX",
        frozenset({"roles"}),
        frozenset(),
        "fabric init writes a manifest to start from; a role's entrypoint and args go to framework.command, its"
        " num_replicas to learners, its image to framework.version",
    ),
    Format(
        "a SkyPilot task",
        frozenset({"run"}),
        frozenset(),
        "fabric convert FILE prints a manifest of it; run goes to framework.command, envs to env, num_nodes to"
        " learners, resources.accelerators to gpus and gpu_type",
    ),
)  # fmt: skip

_SCRIPTS: Final = (
    (
        re.compile(r"^#SBATCH\s", re.MULTILINE),
        "a batch script of Slurm",
        "fabric convert {file} prints a manifest of it, fabric run -- bash {file} runs it;"
        " --gpus, --set cpus=8, --set memory=32GiB and --set max_runtime=2h stand"
        " for its #SBATCH lines",
    ),
    (
        re.compile(r"^#PBS\s", re.MULTILINE),
        "a batch script of PBS",
        "fabric run -- bash {file} runs it; options of fabric run stand for its #PBS lines",
    ),
    (re.compile(r"\A#!"), "a script", "fabric run -- {file} runs it"),
    (
        re.compile(r"^\[[\w.]+\][ \t]*$(?:\n(?![ \t]*-).*)*\n?[ \t]*\w+[ \t]*=", re.MULTILINE),
        "a configuration file such as .torchxconfig",
        _COMMAND_HINT,
    ),
)


def recognised_text(text: str, file: str, findings: Findings) -> bool:
    """Note that a text is not YAML but a script or a configuration file; returns whether it is."""
    for pattern, name, hint in _SCRIPTS:
        if pattern.search(text):
            location = SourceLocation(file, 1, 1, file)
            findings.fault(location, "", f"this is {name}, not a manifest", hint.format(file=file))
            return True
    return False


def recognised(root: MapNode, findings: Findings) -> bool:
    """Note that a file is another system's; returns whether it is."""
    if "framework" in root.entries:
        return False
    keys = frozenset(_keys(root))
    for known in FORMATS:
        if known.every <= keys and (not known.any_of or known.any_of & keys) and not known.none_of & keys:
            findings.fault(root.location, "", f"this is {known.name}, not a manifest", known.hint)
            return True
    return False


def _keys(root: MapNode) -> Iterator[str]:
    """Yield the keys of a file, and those of the maps right below them."""
    for name, entry in root.entries.items():
        yield name
        if isinstance(entry.node, MapNode):
            yield from (f"{name}.{below}" for below in entry.node.entries)
