"""Determined's experiment files: their keys, how one lies over a template, and the manifest that one stands for.

The keys are checked as Determined's own schemas do it: an unknown key is a fault, null is absent. What a manifest has
no key for is named by a warning, so nothing is lost silently.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from workbench.formats import printable
from workbench.learner.determined_jobs import CONFIG_VARIABLE, DATA_SECRETS_VARIABLE, HPARAMS_VARIABLE
from workbench.manifest.builder.former_experiments import FORMER_SEARCHER_KEYS
from workbench.manifest.keys.containers import Key, KeyTable, ListOf, MapOf
from workbench.manifest.keys.credentials import DATA_SECRETS
from workbench.manifest.keys.kinds import (
    MultilineText,
    NameChoice,
    OneOf,
    Text,
    ValueKind,
    as_command,
    is_list,
    is_map,
)
from workbench.manifest.keys.registries import host_of, registry_of
from workbench.manifest.keys.root import LABEL_EXPECTED, LABEL_LENGTH_MAX, VARIABLE_NAME
from workbench.manifest.keys.scalars import Number, TruthValue, WholeNumber
from workbench.manifest.keys.search_keys import (
    PARAM_NAME_OF_EXPERIMENT,
    PARAM_NAME_OF_EXPERIMENT_EXPECTED,
    RUNGS_MAX,
    TRIALS_MAX,
)
from workbench.manifest.yaml.faults import Findings, nearest
from workbench.manifest.yaml.nodes import (
    ListNode,
    MapEntry,
    MapNode,
    Node,
    ScalarNode,
    SourceLocation,
    describe_node,
    from_value,
    leaves,
    node_at,
    shortened,
)
from workbench.spec import WEIGHT_MAX, WEIGHT_MIN

DEFAULT_ORIGIN: Final = "Determined's default"
"""The origin of values that a file does not name."""
SLOTS: Final = 1
MAX_RESTARTS: Final = 5
PREEMPTION_SECONDS: Final = 3600
MAX_CONCURRENT: Final = 16
PRIORITY_SUM: Final = 100
"""Determined's priorities go from 1 (first) to 99, ours from 0 to 100 (first): they add up to this."""
WHOLE_MAX: Final = 1 << 53
LAUNCHERS: Final = ("torch_distributed", "deepspeed", "horovod", "tensorflow", "wrap_rank")
"""Those of ``determined.launch`` that our package has."""
GROUP: Final = "validation/"
"""What a search goes by is reported in a validation, and training may report the same name."""
STORE_ID: Final = "checkpoint-storage"
LOG_POLICIES: Final = (
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
)
"""What Determined looks for by default: it only names the line."""
WORK_DIR: Final = "/run/determined/workdir"
"""Where Determined puts the code; here that folder has another path."""
AMAZON: Final = "https://s3.amazonaws.com"
_S3_KEYS: Final = {"access_key": "AWS_ACCESS_KEY_ID", "secret_key": "AWS_SECRET_ACCESS_KEY"}
AZURE_SUFFIX: Final = "core.windows.net"
GCS_SECRET: Final = "GCS_SERVICE_ACCOUNT_JSON"
"""Google's libraries name a file with this key; rclone takes its content."""
CONTAINER: Final = "determined-container"
"""The container of a ``pod_spec`` that is the training code's own."""
LEARNER: Final = "learner"
"""The same one's name in pods of ours."""
VOLUME_PREFIX: Final = "own-"
"""Before the names of a file's volumes: pods of ours have volumes such as ``data`` themselves."""
_DEVICES: Final = ("cpu", "cuda", "rocm")
"""What slots can be; images and variables may be given for each."""
GPU: Final = "gpu"
"""The older name of ``cuda``."""
PARAM_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

SEARCHERS: Final = ("single", "random", "grid", "async_halving", "adaptive_asha")
REMOVED_SEARCHERS: Final[Mapping[str, str]] = {
    "custom": "custom searchers were removed in 0.38; take random, grid or adaptive_asha",
    "adaptive": "take adaptive_asha, with max_trials: in the place of its budget",
    "adaptive_simple": "take adaptive_asha, which has the same keys",
    "sync_halving": "take async_halving with max_trials: and max_time:",
    "asha": "write async_halving",
    "pbt": "take adaptive_asha, or write search: {method: pbt} in a manifest",
}
HALVING: Final = ("async_halving", "adaptive_asha")
_COMMON_OF_SEARCHERS: Final = (
    "metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid", "max_length",
)  # fmt: skip
_COMMON_OF_STORAGE: Final = ("save_experiment_best", "save_trial_best", "save_trial_latest")
_USED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "max_trials": ("random", *HALVING),
    "max_concurrent_trials": ("random", "grid", *HALVING),
    "divisor": HALVING,
    "time_metric": HALVING,
    "max_time": HALVING,
    "stop_once": HALVING,
    "num_rungs": ("async_halving",),
    "mode": ("adaptive_asha",),
    "max_rungs": ("adaptive_asha",),
    "bracket_rungs": ("adaptive_asha",),
}

_DEPRECATED: Final[Mapping[str, str]] = {
    "min_validation_period": "its training code decides when it validates",
    "min_checkpoint_period": "its training code decides when it writes checkpoints",
    "records_per_epoch": "its training code counts",
    "scheduling_unit": "its training code counts",
    "optimizations": "set them in the training code",
}
_READ_BY_TRIAL_CLASSES: Final = (
    "min_validation_period", "min_checkpoint_period", "scheduling_unit", "optimizations", "checkpoint_policy",
    "perform_initial_validation", "debug",
)  # fmt: skip
_FUSION: Final = ("tensor_fusion_threshold", "tensor_fusion_cycle_time", "auto_tune_tensor_fusion")
"""Of ``optimizations`` what Horovod's launcher reads, whatever it starts."""
_HOROVOD: Final = re.compile(r"determined\.launch\.horovod\b")
_TRIAL_CLASS: Final = re.compile(r"[\w.]+:\w+")
_TRIAL_OPTION: Final = re.compile(r"""\s--trial(?:\s+|=)['"]?[\w.]+:\w+""")
_LAUNCHER: Final = re.compile(r"determined\.launch\.(\w+)")
_VARIABLE_BYTES: Final = 128 << 10
"""What Linux takes in one variable, its name and its end included."""
_DEAD: Final = (
    "tensorboard_storage", "security", "data_layer", "internal", "resources.native_parallel",
    "resources.agent_label",
)  # fmt: skip
_CAPABILITIES: Final = (
    f"in a cluster pod_patch of its backend has securityContext: of the container {LEARNER}; without"
    " environment.image the code is in no container"
)
_NOT_CARRIED: Final[Mapping[str, str]] = {
    "checkpoint_policy": "the training code decides when it writes checkpoints",
    "perform_initial_validation": "validate once before training, in its code",
    "retention_policy": "fabric prune removes old jobs",
    "profiling": "usage of CPU, memory and GPU is always recorded",
    "integrations.webhooks": "[notify] of the configuration names what is called when a job ends",
    "integrations.pachyderm.dataset.token": "secrets: of a manifest names it, and the code reads it as a variable",
    "debug": "set the level of the code's own logging: logging.basicConfig(level=logging.DEBUG)",
    "slurm": "Slurm is not available yet; fabric backend add names a host",
    "pbs": "PBS is not available yet; fabric backend add names a host",
    "resources.resource_pool": "--backend names where it runs",
    "resources.devices": "without environment.image the code has the machine's own; in a cluster"
    f" pod_spec names them in the resources of {CONTAINER}",
    "environment.add_capabilities": _CAPABILITIES,
    "environment.drop_capabilities": _CAPABILITIES,
    "environment.ports": "name what the code serves on in proxy_ports:",
}


_OF_PROXY: Final[Mapping[str, str]] = {
    "unauthenticated": "it is published on the machine itself alone, for whoever has a login there",
    "default_service_id": "its number is what it is reached by",
}
_POSIX_CLASS: Final = re.compile(r"\[[^\]]*(\[:\^?[a-z]+:\])")

_NOT_OF_POD: Final[Mapping[str, str]] = {
    "status": "leave it out",
    "metadata.name": "the job's id names its pods",
    "metadata.generateName": "the job's id names its pods",
    "metadata.namespace": "--backend names the cluster and its namespace",
    "metadata.ownerReferences": "leave it out",
    "metadata.finalizers": "leave it out",
    "spec.hostNetwork": "a setting of the backend has it: pod_patch",
    "spec.hostname": "learners find one another by their names",
    "spec.subdomain": "learners find one another by their names",
    "spec.setHostnameAsFQDN": "learners find one another by their names",
    "spec.restartPolicy": "max_restarts: says how often a trial is started again",
    "spec.activeDeadlineSeconds": "--max-runtime limits a job",
    "spec.terminationGracePeriodSeconds": "preemption_timeout: says how long a trial may take to end",
    "spec.ephemeralContainers": "write a container",
}
"""What a file cannot say of a pod, here as in Determined, and what says it instead."""
_OF_METADATA: Final = ("labels", "annotations")
_OF_CONTAINER: Final = ("name", "resources", "volumeMounts", "volumeDevices", "env", "envFrom")
_OF_RESOURCES: Final = ("requests", "limits", "claims")
_INSTEAD_IN_CONTAINER: Final[Mapping[str, str]] = {
    "image": "environment.image names it",
    "imagePullPolicy": "environment.force_pull_image has it pulled",
    "command": "entrypoint: is it",
    "args": "entrypoint: is it",
    "ports": "environment.proxy_ports names them",
    "securityContext": "pod_spec.spec.securityContext is the pod's",
}


_OF_LOGIN: Final = frozenset(
    {"username", "password", "auth", "email", "serveraddress", "identitytoken", "registrytoken"}
)
_TOKENS: Final[Mapping[str, str]] = {"registrytoken": "registry_token", "identitytoken": "identity_token"}
"""Keys of a login that stand for one by themselves, and those of a manifest."""
_OF_CONNECTION: Final[Mapping[str, tuple[str, ...]]] = {
    "user_name": ("access_key", "connection_string", "account_url"),
    "password": ("secret_key", "connection_string", "credential"),
    "token": ("connection_string", "credential"),
}
"""Keys of a store's connection, and those of ``checkpoint_storage`` that they are made of."""


class Plain(ValueKind):
    """Any value, as it is."""

    expected = "a value"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        """Return it as plain JSON."""
        return plain(node)

    def schema(self) -> dict[str, Any]:
        """Anything."""
        return {}


class EnvironmentLines(ValueKind):
    """Variables as a list of ``NAME=VALUE``, or a map of such lists by device."""

    expected = "a list of NAME=VALUE, or such lists by cpu, cuda and rocm"

    def read(self, node: Node, path: str, findings: Findings) -> Any:
        """Return the plain value."""
        if isinstance(node, MapNode):
            for name, entry in node.entries.items():
                below = f"{path}.{name}"
                if name not in (*_DEVICES, GPU):
                    hint = f"write {', '.join(_DEVICES[:-1])} or {_DEVICES[-1]}"
                    findings.fault(entry.location, below, "is not what slots can be", hint)
                elif not _is_null(entry.node):
                    self._check_lines(entry.node, below, findings)
        else:
            self._check_lines(node, path, findings)
        return plain(node)

    def _check_lines(self, node: Node, path: str, findings: Findings) -> None:
        if not isinstance(node, ListNode):
            self.wrong(node, path, findings)
            return
        for item in node.nodes:
            name = item.text.partition("=")[0].strip() if isinstance(item, ScalarNode) else ""
            if not name:
                findings.fault(item.location, path, f"found {describe_node(item)}; write NAME=VALUE")
            elif not re.fullmatch(VARIABLE_NAME, name):
                problem = (
                    f"the name {shortened(name)!r} cannot be used; write letters, digits and underscores"
                )
                findings.fault(item.location, path, problem)

    def schema(self) -> dict[str, Any]:
        """A list or a map."""
        return {"type": ["array", "object"]}


def _key(name: str, kind: ValueKind, *spellings: str, required: bool = False, hint: str = "") -> Key:
    return Key(name, kind, "", spellings=spellings, required=required, hint=hint)


def _table(what: str, *keys: Key, elsewhere: Mapping[str, str] | None = None) -> KeyTable:
    return KeyTable(*keys, what=what, elsewhere=elsewhere, is_strict=True)


_TEXT: Final = Text(length_max=10_000)
_WHOLE: Final = WholeNumber(0, WHOLE_MAX)
_FROM_ONE: Final = WholeNumber(1, WHOLE_MAX)
_RUNGS: Final = WholeNumber(1, RUNGS_MAX)
_NUMBER: Final = Number(-1e300, 1e300)
_PORT: Final = WholeNumber(0, 65_535)
_TRUTH: Final = TruthValue()
_PLAIN: Final = Plain()


class LengthTable(KeyTable):
    """A length in one of its units."""

    def read(self, node: Node, path: str, findings: Findings) -> dict[str, Any] | None:
        """Return the number by its unit; none, and two of them, are no length."""
        values = super().read(node, path, findings)
        written = [] if not isinstance(node, MapNode) else node.entries.values()
        count = sum(not _is_null(entry.node) for entry in written)
        if values is not None and count != 1:
            problem = f"has {'several units' if count else 'no unit'}"
            findings.fault(node.location, path, f"{problem}; write one of batches, records and epochs")
        return values


_LENGTH: Final = OneOf(
    "a number, or {batches: N}, {records: N} or {epochs: N}",
    (
        _WHOLE,
        LengthTable(
            _key("batches", _WHOLE),
            _key("records", _WHOLE),
            _key("epochs", _WHOLE),
            what="a length",
            is_strict=True,
        ),
    ),
    is_map,
)
_MODE: Final = NameChoice(("aggressive", "standard", "conservative"))

SEARCHER: Final = _table(
    "a searcher",
    _key("name", NameChoice(SEARCHERS, former=REMOVED_SEARCHERS), required=True, hint="such as name: single"),
    _key("metric", _TEXT, required=True, hint="the name of a metric that training code reports"),
    _key("smaller_is_better", _TRUTH),
    _key("source_trial_id", _WHOLE),
    _key("source_checkpoint_uuid", _TEXT),
    _key("max_length", _LENGTH),
    _key("max_trials", WholeNumber(1, TRIALS_MAX)),
    _key("max_concurrent_trials", _WHOLE),
    _key("divisor", Number(1.000001, 1e6)),
    _key("time_metric", _TEXT),
    _key("max_time", _FROM_ONE),
    _key("stop_once", _TRUTH),
    _key("num_rungs", _RUNGS),
    _key("mode", _MODE),
    _key("max_rungs", _RUNGS),
    _key("bracket_rungs", ListOf(_RUNGS, "a list of numbers of rungs")),
    elsewhere={
        "max_concurrent": "write max_concurrent_trials:",
        "goal": "write smaller_is_better:",
        **FORMER_SEARCHER_KEYS,
    },
)

DEVICE: Final = OneOf(
    "a device such as /dev/infiniband:/dev/infiniband, or {host_path: PATH, container_path: PATH}",
    (
        Text("HOST:CONTAINER, or HOST:CONTAINER:MODE", pattern=r"[^:]+:[^:]+(:[^:]+)?"),
        _table(
            "a device",
            _key("host_path", _TEXT, required=True),
            _key("container_path", _TEXT, required=True),
            _key("mode", _TEXT),
        ),
    ),
    is_map,
)

RESOURCES: Final = _table(
    "resources",
    _key("slots_per_trial", WholeNumber(0, 1 << 20)),
    _key("max_slots", _WHOLE),
    _key("weight", Number(0, 1e9)),
    _key("priority", WholeNumber(1, 99)),
    _key("resource_pool", _TEXT),
    _key("shm_size", _TEXT),
    _key("devices", ListOf(DEVICE, "a list of devices")),
    _key("is_single_node", _TRUTH),
    _key("native_parallel", _TRUTH),
    _key("agent_label", _TEXT),
    _key("slots", _WHOLE),
)

_IMAGES: Final = OneOf(
    "the name of an image, or images by cpu, cuda and rocm",
    (_TEXT, _table("images", _key("cpu", _TEXT), _key("cuda", _TEXT, GPU), _key("rocm", _TEXT))),
    is_map,
)

ENVIRONMENT: Final = _table(
    "environment",
    _key("image", _IMAGES),
    _key("environment_variables", EnvironmentLines()),
    _key("force_pull_image", _TRUTH),
    _key("registry_auth", MapOf(_TEXT, "a map such as {username: NAME, password: PASSWORD}")),
    _key("add_capabilities", ListOf(_TEXT, "a list of names")),
    _key("drop_capabilities", ListOf(_TEXT, "a list of names")),
    _key("ports", MapOf(_PORT, "a map of names and ports")),
    _key(
        "proxy_ports",
        ListOf(
            _table(
                "a proxied port",
                _key("proxy_port", _PORT, required=True),
                _key("proxy_tcp", _TRUTH),
                _key("unauthenticated", _TRUTH),
                _key("default_service_id", _TRUTH),
            ),
            "a list such as [{proxy_port: 8265}]",
        ),
    ),
    _key("pod_spec", _PLAIN),
    elsewhere={
        "docker_flags": "options of docker cannot be set: take bind_mounts:, resources.shm_size: or proxy_ports:",
        "slurm": "it was moved: write slurm: {sbatch_args: [...]} beside environment:",
        "pbs": "it was moved: write pbs: {pbsbatch_args: [...]} beside environment:",
    },
)

BIND_MOUNT: Final = _table(
    "a bind mount",
    _key("host_path", Text("an absolute path", pattern=r"/.*"), required=True),
    _key("container_path", Text('a path other than "."', pattern=r"(?!\.$).+"), required=True),
    _key("read_only", _TRUTH),
    _key("propagation", _TEXT),
)

_SAVED: Final = tuple(_key(name, _WHOLE) for name in _COMMON_OF_STORAGE)
_STORAGES: Final[Mapping[str, tuple[Key, ...]]] = {
    "shared_fs": (
        _key("host_path", Text("an absolute path", pattern=r"/.*"), required=True),
        _key("storage_path", _TEXT),
        _key("propagation", _TEXT),
        _key("container_path", _TEXT),
        _key("checkpoint_path", _TEXT),
        _key("tensorboard_path", _TEXT),
    ),
    "s3": (
        _key("bucket", _TEXT, required=True),
        _key("access_key", _TEXT),
        _key("secret_key", _TEXT),
        _key("prefix", Text("a prefix without ..", pattern=r"(?!.*\.\.).*")),
        _key("endpoint_url", _TEXT),
    ),
    "gcs": (_key("bucket", _TEXT, required=True), _key("prefix", _TEXT)),
    "azure": (
        _key("container", _TEXT, required=True),
        _key("connection_string", _TEXT),
        _key("account_url", _TEXT),
        _key("credential", _TEXT),
    ),
    "directory": (_key("container_path", _TEXT, required=True),),
}
_LEFT_OUT_OF_FOLDER: Final[Mapping[str, tuple[str, str]]] = {
    "propagation": ("rprivate", "bind_mounts: of the same folder has propagation:"),
    "container_path": ("", "code finds its checkpoints by det.core, wherever they are"),
    "checkpoint_path": ("", "write storage_path:"),
    "tensorboard_path": ("", "event files are kept with the job"),
}
"""Keys of a shared folder that nothing here goes by: the value that means nothing, and what to do."""
_TYPE_OF_STORAGE: Final = _key("type", NameChoice(tuple(_STORAGES)), required=True)
STORAGES: Final = {
    name: _table(f"{name} storage", _TYPE_OF_STORAGE, *keys, *_SAVED) for name, keys in _STORAGES.items()
}
_OF_NO_TYPE: Final = {key.name: replace(key, required=False) for keys in _STORAGES.values() for key in keys}
"""Keys that a storage may have before it is known which one it is: Determined merges it on its cluster's own."""
_STORAGE: Final = OneOf(
    "a store such as {type: shared_fs, host_path: /data}",
    (
        *STORAGES.values(),
        _table("checkpoint storage", _key("type", _PLAIN), *_OF_NO_TYPE.values(), *_SAVED),
    ),
    lambda node: _number_of_storage(node_at(node, "type")),
)


def _number_of_storage(kind: Node | None) -> int:
    """Return which of the tables a storage has; the last one is that of a storage without a type."""
    if kind is None or (isinstance(kind, ScalarNode) and kind.is_null):
        return len(STORAGES)
    names = list(STORAGES)
    return names.index(kind.text) if isinstance(kind, ScalarNode) and kind.text in names else 0


_ACTION: Final = NameChoice(("cancel_retries", "exclude_node"))
LOG_POLICY: Final = _table(
    "a log policy",
    _key("name", _TEXT),
    _key("pattern", MultilineText()),
    _key(
        "action",
        OneOf("an action", (_ACTION, _table("an action", _key("type", _ACTION, required=True))), is_map),
    ),
)

_IN_DATASET: Final = "it is a key of dataset:"
INTEGRATIONS: Final = _table(
    "integrations",
    _key(
        "pachyderm",
        _table(
            "pachyderm",
            _key("pachd", _table("pachd", _key("host", _TEXT), _key("port", _PORT))),
            _key("proxy", _table("proxy", _key("scheme", _TEXT), _key("host", _TEXT), _key("port", _PORT))),
            _key(
                "dataset",
                _table(
                    "a dataset",
                    *(_key(name, _TEXT) for name in ("project", "repo", "commit", "branch", "token")),
                ),
            ),
            elsewhere=dict.fromkeys(("project", "repo", "commit", "branch", "token"), _IN_DATASET),
        ),
    ),
    _key(
        "webhooks",
        _table(
            "webhooks",
            _key("webhook_id", ListOf(_WHOLE, "a list of numbers")),
            _key("webhook_name", ListOf(_TEXT, "a list of names")),
            _key("exclude", _TRUTH),
            elsewhere={"id": "write webhook_id:", "name": "write webhook_name:"},
        ),
    ),
)

_BELOW_ANOTHER_KEY: Final = {
    name: f"it is a key of {owner}:"
    for owner, table in (("environment", ENVIRONMENT), ("resources", RESOURCES), ("searcher", SEARCHER))
    for name in table.keys
    if name != "name"
}
"""Keys that stand one level too high, and where they belong."""

EXPERIMENT: Final = _table(
    "an experiment of Determined",
    _key("name", _TEXT),
    _key("description", MultilineText()),
    _key(
        "labels",
        OneOf(
            "a list of labels", (MapOf(_PLAIN, "a map of labels"), ListOf(_TEXT, "a list of labels")), is_list
        ),
    ),
    _key("workspace", _TEXT),
    _key("project", _TEXT),
    _key("data", MapOf(_PLAIN, "a map")),
    _key(
        "entrypoint",
        OneOf("a command", (MultilineText(), ListOf(MultilineText(), "a list of arguments")), is_list),
        required=True,
    ),
    _key("hyperparameters", MapOf(_PLAIN, "a map of hyperparameters")),
    _key("searcher", SEARCHER, required=True, hint="such as searcher: {name: single, metric: loss}"),
    _key("resources", RESOURCES),
    _key("environment", ENVIRONMENT),
    _key("bind_mounts", ListOf(BIND_MOUNT, "a list of bind mounts")),
    _key("checkpoint_storage", _STORAGE),
    _key("checkpoint_policy", NameChoice(("best", "all", "none"))),
    _key("min_validation_period", _LENGTH),
    _key("min_checkpoint_period", _LENGTH),
    _key("perform_initial_validation", _TRUTH),
    _key("records_per_epoch", _WHOLE),
    _key("scheduling_unit", _FROM_ONE),
    _key("max_restarts", _WHOLE),
    _key("preemption_timeout", _WHOLE),
    _key("log_policies", ListOf(LOG_POLICY, "a list of log policies")),
    _key(
        "retention_policy", _table("a retention policy", _key("log_retention_days", WholeNumber(-1, 32_767)))
    ),
    _key(
        "reproducibility", _table("reproducibility", _key("experiment_seed", WholeNumber(0, (1 << 31) - 1)))
    ),
    _key(
        "profiling",
        _table(
            "profiling",
            _key("enabled", _TRUTH),
            _key("begin_on_batch", _WHOLE),
            _key("end_after_batch", _WHOLE),
            _key("sync_timings", _TRUTH),
        ),
    ),
    _key(
        "optimizations",
        _table(
            "optimizations",
            _key("aggregation_frequency", _WHOLE),
            _key("average_aggregated_gradients", _TRUTH),
            _key("average_training_metrics", _TRUTH),
            _key("gradient_compression", _TRUTH),
            _key("mixed_precision", NameChoice(("O0", "O1", "O2", "O3"))),
            _key("tensor_fusion_threshold", _WHOLE),
            _key("tensor_fusion_cycle_time", _WHOLE),
            _key("auto_tune_tensor_fusion", _TRUTH),
            _key("grad_updates_size_file", _TEXT),
        ),
    ),
    _key("integrations", INTEGRATIONS),
    _key(
        "slurm",
        _table(
            "slurm",
            _key("slots_per_node", _FROM_ONE),
            _key("gpu_type", _TEXT),
            _key("sbatch_args", ListOf(_TEXT, "a list of options")),
        ),
    ),
    _key(
        "pbs",
        _table(
            "pbs",
            _key("slots_per_node", _FROM_ONE),
            _key("pbsbatch_args", ListOf(_TEXT, "a list of options")),
        ),
    ),
    _key("debug", _TRUTH),
    *(_key(name, _PLAIN) for name in ("tensorboard_storage", "security", "data_layer", "internal")),
    elsewhere={
        "startup_hook": "write it to a file startup-hook.sh at the root of the code: it is run before the command",
        "framework": "this file is Determined's: it has entrypoint:",
        "search": "this file is Determined's: it has searcher:",
        "params": "this file is Determined's: it has hyperparameters:",
        "batches_per_step": "write scheduling_unit:",
        **_BELOW_ANOTHER_KEY,
    },
)


def is_experiment(root: MapNode) -> bool:
    """Return whether a file is an experiment of Determined."""
    return "searcher" in root.entries and "framework" not in root.entries


def is_by_device(root: MapNode) -> bool:
    """Return whether an experiment says what the CPU has in place of what GPUs have."""
    written = (node_at(root, f"environment.{name}") for name in ("image", "environment_variables"))
    return any(isinstance(node, MapNode) for node in written)


def manifest_of(root: MapNode, findings: Findings, *, is_on_cpu: bool = False) -> MapNode:
    """Return the manifest that an experiment stands for; faults and what is left out go to ``findings``.

    Its keys are those of 0.38: :func:`~workbench.manifest.builder.former_experiments.renewed` gives older ones their
    names.

    With ``is_on_cpu`` its slots are processes on the CPU, for images and variables by device.
    """
    before = len(findings.faults)
    checked = EXPERIMENT.canonical(root, "", findings)
    values = EXPERIMENT.read(checked, "", findings) or {}
    _check_profiling(values.get("profiling") or {}, root, findings)
    _check_data_secrets(root, findings)
    _name_what_is_left_out(root, findings)
    made = _Manifest(root, values, findings, is_on_cpu=is_on_cpu)
    made.check_names()
    if len(findings.faults) > before:
        made.read_hyperparameters()
        found = MapNode(root.location)
    else:
        found = made.manifest()
    made.check_numbers()
    return found


class _Manifest:
    """Makes the keys of a manifest of one experiment."""

    def __init__(
        self, root: MapNode, values: Mapping[str, Any], findings: Findings, *, is_on_cpu: bool
    ) -> None:
        self._root = root
        self._values = values
        self._findings = findings
        self._slots: int = values.get("resources", {}).get("slots_per_trial", SLOTS)
        self._is_on_cpu = is_on_cpu or not self._slots
        self._default = replace(root.location, origin=DEFAULT_ORIGIN)

    def manifest(self) -> MapNode:
        """Return all keys that have a value."""
        values = self._values
        resources, environment = values.get("resources", {}), values.get("environment", {})
        keys: dict[str, Node | None] = {
            "name": self._put("name", values.get("name", "experiment")),
            "description": self._put("description", values.get("description")),
            "framework": self._framework(environment),
            "gpus": self._put("resources.slots_per_trial", self._slots),
            "shm_size": self._put("resources.shm_size", _binary(resources.get("shm_size", ""))),
            "priority": self._put("resources.priority", self._priority(resources.get("priority"))),
            "weight": self._put("resources.weight", self._weight(resources.get("weight"))),
            "max_restarts": self._put("max_restarts", values.get("max_restarts", MAX_RESTARTS)),
            "grace_seconds": self._put(
                "preemption_timeout", values.get("preemption_timeout", PREEMPTION_SECONDS)
            ),
            "preemption_timeout": self._put(
                "preemption_timeout", values.get("preemption_timeout", PREEMPTION_SECONDS)
            ),
            "log_policies": self._put("log_policies", self._log_policies() or None),
            "seed": self._put(
                "reproducibility.experiment_seed", values.get("reproducibility", {}).get("experiment_seed")
            ),
            "image_pull": self._put(
                "environment.force_pull_image", "always" if environment.get("force_pull_image") else None
            ),
            "labels": self._put("labels", self._labels()),
            "bind_mounts": self._put("bind_mounts", self._bind_mounts() or None),
            "ports": self._put("environment.proxy_ports", self._ports(environment) or None),
            "data_stores": self._data_stores(environment.get("image")),
            "checkpoints": self._put("checkpoint_storage", self._retention()),
            **self._search(),
        }
        pods = _Pods(self._root, environment.get("pod_spec"), self._findings)
        for name, value in pods.keys().items():
            keys[name] = self._put("environment.pod_spec", value)
        variables = self._put("environment.pod_spec", pods.variables)
        env = self._environment(environment.get("environment_variables"))
        env = _joined_maps(variables, env)
        config = from_value({CONFIG_VARIABLE: json.dumps(_config(self._root))}, self._default)
        keys["env"] = _joined_maps(config, _joined_maps(env, keys.get("env")))
        entries = {
            name: MapEntry(name, node.location, node) for name, node in keys.items() if node is not None
        }
        return MapNode(self._root.location, entries)

    def read_hyperparameters(self) -> tuple[MapNode, bool]:
        """Return what may be tried of each hyperparameter, and whether any has more than one value."""
        node = node_at(self._root, "hyperparameters")
        if not isinstance(node, MapNode):
            return MapNode(self._default), False
        names = node.entries
        tried = {name: self._tried(names[name].node, f"hyperparameters.{name}") for name in names}
        entries = {name: MapEntry(name, names[name].location, tried[name]) for name in names}
        return MapNode(node.location, entries), any(_is_searched(entry.node) for entry in names.values())

    def check_names(self) -> None:
        """Refuse hyperparameters whose names would drive the terminals on which they are shown."""

        def check(node: Node | None, path: str) -> None:
            for name, entry in node.entries.items() if isinstance(node, MapNode) else ():
                if re.fullmatch(PARAM_NAME_OF_EXPERIMENT, name):
                    check(entry.node, f"{path}.{name}")
                else:
                    problem = f"the name {name!r} cannot be used; write {PARAM_NAME_OF_EXPERIMENT_EXPECTED}"
                    self._findings.fault(entry.location, path, problem)

        check(node_at(self._root, "hyperparameters"), "hyperparameters")

    def check_numbers(self) -> None:
        """Refuse hyperparameters that are infinite or not a number, unless they are refused already.

        A trial gets its own as JSON.
        """
        known = {fault.key for fault in self._findings.faults}
        for path, node in leaves(self._root):
            value = node.value if isinstance(node, ScalarNode) else None
            is_one = path.startswith("hyperparameters.") and printable(path) not in known
            if is_one and isinstance(value, float) and not math.isfinite(value):
                problem = f"found {describe_node(node)}, which JSON does not have; write a number or a text"
                self._findings.fault(node.location, path, problem)

    def _at(self, path: str) -> SourceLocation:
        found = node_at(self._root, path)
        return found.location if found is not None else self._default

    def _put(self, path: str, value: Any) -> Node | None:
        return None if value is None or value == {} else from_value(value, self._at(path))

    def _framework(self, environment: Mapping[str, Any]) -> Node:
        entry = self._root.entries["entrypoint"].node
        if isinstance(entry, ListNode):
            command = shlex.join(str(plain(item)) for item in entry.nodes)
        else:
            command = as_command(entry) if isinstance(entry, ScalarNode) else ""
        if _TRIAL_CLASS.fullmatch(command):
            command = f"python3 -m determined.launch.torch_distributed -- --trial {command}"
        if not command.strip():
            self._findings.fault(entry.location, "entrypoint", "is empty; write a command")
        self._check_launcher(command, entry.location)
        parts: dict[str, Node] = {"command": from_value(command, entry.location)}
        image = environment.get("image")
        if isinstance(image, Mapping):
            first, second = ("cpu", "cuda") if self._is_on_cpu else ("cuda", "rocm")
            image = image.get(first) or image.get(second)
        if image:
            where = self._at("environment.image")
            parts |= {"name": from_value("custom", where), "version": from_value(image, where)}
        login = self._login(environment.get("registry_auth") or {}, str(image or ""))
        if login:
            parts["image_location"] = self._location(login)
        return MapNode(
            entry.location, {name: MapEntry(name, node.location, node) for name, node in parts.items()}
        )

    def _location(self, login: Mapping[str, str]) -> Node:
        """Return a login as a map whose values are where the file has them."""
        path = "environment.registry_auth"
        written = {key: name for name, key in _TOKENS.items()}
        entries = {}
        for key, value in login.items():
            where = self._at(f"{path}.{written.get(key, key)}")
            entries[key] = MapEntry(key, where, from_value(value, where))
        return MapNode(self._at(path), entries)

    def _login(self, written: Mapping[str, str], image: str) -> dict[str, str]:
        """Return the login to the image's registry, as ``framework.image_location`` has it; empty for none."""
        path = "environment.registry_auth"
        values = {name: text for name, text in written.items() if text}
        if not values:
            return {}
        for name in sorted(values.keys() - _OF_LOGIN):
            self._findings.warn(
                self._at(f"{path}.{name}"), f"{path}.{name}", "is not a key of a login", "leave it out"
            )
        server = values.get("serveraddress", "")
        if server and image and host_of(server) != registry_of(image):
            self._findings.warn(
                self._at(f"{path}.serveraddress"),
                path,
                f"is not used: it is a login to {host_of(server)}, and {image} comes from {registry_of(image)}",
                "name the registry of the image, or leave serveraddress: out",
            )
            return {}
        # In the order in which engines take them, should there be several.
        for name, key in _TOKENS.items():
            if token := values.get(name):
                user = values.get("username") if key == "identity_token" else ""
                return {**({"username": user} if user else {}), key: token}
        found: dict[str, str] = {}
        if "username" in values and "password" in values:
            found = {"username": values["username"], "password": values["password"]}
        elif "auth" in values:
            found = {"auth": values["auth"]}
        if not found:
            self._findings.warn(
                self._at(path), path, "is not a login", "write username: and password:, or auth:"
            )
        elif email := values.get("email"):
            found["email"] = email
        return found

    def _check_launcher(self, command: str, where: SourceLocation) -> None:
        found = _LAUNCHER.search(command)
        if found and found[1] not in LAUNCHERS:
            self._findings.warn(
                where,
                "entrypoint",
                f"calls determined.launch.{found[1]}, which is not there: the command will fail",
                "start its processes in the command itself, or by determined.launch.torch_distributed",
            )
        elif found and _TRIAL_OPTION.search(command):
            self._findings.warn(
                where,
                "entrypoint",
                "runs a Trial class, which needs Determined's own wheel and PyTorch where the job runs",
                "name determined==0.38.1 and torch in requirements:, or an image that has them",
            )

    def _priority(self, priority: int | None) -> int | None:
        if priority is None:
            return None
        self._findings.warn(
            self._at("resources.priority"),
            "resources.priority",
            f"{priority} becomes {PRIORITY_SUM - priority}: smaller went first, here larger does",
            "a file for Determined on Kubernetes, where larger went first, wants --set priority",
        )
        return PRIORITY_SUM - priority

    def _weight(self, weight: float | None) -> float | None:
        if weight is None:
            return None
        found = min(max(weight, WEIGHT_MIN), WEIGHT_MAX)
        if found != weight:
            self._findings.warn(
                self._at("resources.weight"),
                "resources.weight",
                f"{weight:g} becomes {found:g}: a weight is from {WEIGHT_MIN:g} to {WEIGHT_MAX:g} here",
            )
        return found

    def _retention(self) -> dict[str, Any] | None:
        """Return which checkpoints are kept, where the file says it; what none of its numbers counts is removed.

        The best of all trials are among the best of each, so as many of those are kept until all have ended.
        """
        storage = self._values.get("checkpoint_storage", {})
        if not any(storage.get(name) is not None for name in _COMMON_OF_STORAGE):
            return None
        best, latest = storage.get("save_trial_best", 1), storage.get("save_trial_latest", 1)
        best_of_all = storage.get("save_experiment_best", 0)
        searcher = self._values["searcher"]
        by_metric = {
            "keep_best": max(best, best_of_all),
            "metric": searcher["metric"],
            "smaller_is_better": searcher.get("smaller_is_better", True),
        }
        at_end = {"keep_last": latest, "keep_best": best, "keep_best_of_search": best_of_all}
        return {
            # A trial goes on at its newest, so that one stays while it runs.
            "keep_last": max(latest, 1),
            **(by_metric if best or best_of_all else {}),
            **({"at_end": at_end} if not latest or best_of_all > best else {}),
        }

    def _log_policies(self) -> list[dict[str, str]]:
        """Return the file's policies and those that Determined has by default, unless the file names them."""
        written = list(self._values.get("log_policies") or ())
        named = {policy.get("name") for policy in written}
        for number, policy in enumerate(written):
            parts = policy.get("name", ""), policy.get("pattern", ""), policy.get("action")
            self._check_log_policy(f"log_policies.{number}", *parts)
        found: list[dict[str, str]] = []
        for policy in (*written, *(each for each in LOG_POLICIES if each["name"] not in named)):
            action = policy.get("action")
            kind = action.get("type") if isinstance(action, Mapping) else action
            kept = {"name": policy.get("name"), "pattern": policy.get("pattern"), "action": kind}
            if kept["pattern"]:  # one with a name alone turns the default of that name off
                found.append({key: value for key, value in kept.items() if value})
        return found

    def _check_log_policy(self, key: str, name: str, pattern: str, action: Any) -> None:
        """Refuse a policy that says nothing or means something else here, and warn of one that has no effect."""
        usual = [each["name"] for each in LOG_POLICIES]
        if not name and not pattern:
            self._findings.fault(self._at(key), key, "has no name and no pattern", "write name:")
        elif found := _POSIX_CLASS.search(pattern):
            problem = f"has the class {found[1]}, which patterns here, Python's own, do not know"
            hint = "such as [A-Za-z] for [[:alpha:]]"
            self._findings.fault(self._at(key), f"{key}.pattern", problem, hint)
        elif not pattern and action:
            problem = f"has no pattern, so it does nothing but turn off another policy called {name}"
            self._findings.warn(self._at(key), key, problem, "write pattern:")
        elif not pattern and name not in usual and (close := nearest(name, usual)):
            problem = f"turns off no policy: none is called {name}"
            self._findings.warn(self._at(key), key, problem, f"did you mean {close}?")

    def _bind_mounts(self) -> list[dict[str, Any]]:
        found = []
        for number, mount in enumerate(self._values.get("bind_mounts") or ()):
            path = PurePosixPath(mount["container_path"])
            if path.is_relative_to(WORK_DIR):
                path = path.relative_to(WORK_DIR)
            if str(path) == ".":
                key = f"bind_mounts.{number}.container_path"
                self._findings.fault(self._at(key), key, "is the folder of the code itself", "name one in it")
            found.append({**mount, "container_path": str(path)})
        return found

    def _ports(self, environment: Mapping[str, Any]) -> list[int]:
        """Return the ports that a container publishes; those of a process and of many trials at once cannot be."""
        ports = sorted({each["proxy_port"] for each in environment.get("proxy_ports") or ()})
        if not ports:
            return []
        key = "environment.proxy_ports"
        _, is_searched = self.read_hyperparameters()
        if self._values["searcher"]["name"] != "single" or is_searched:
            why, hint = "trials of one machine would ask for the same ports", "run the trial alone"
        elif not environment.get("image"):
            why = "the code serves on the machine itself, and nothing stands between"
            hint = "with environment.image they are ports of a container"
        else:
            self._warn_of_proxy(environment["proxy_ports"])
            return ports
        self._findings.warn(self._at(key), key, f"is not carried over: {why}", hint)
        return []

    def _warn_of_proxy(self, ports: Sequence[Mapping[str, Any]]) -> None:
        """Warn of what a file says of Determined's proxy: ports are published as they are, without one."""
        for number, port in enumerate(ports):
            for name, hint in _OF_PROXY.items():
                if port.get(name):
                    key = f"environment.proxy_ports.{number}.{name}"
                    problem = "has no effect: no proxy stands before the port"
                    self._findings.warn(self._at(key), key, problem, hint)

    def _data_stores(self, image: Any) -> Node | None:
        """Return the stores of :meth:`_stores`, with their credentials where the file has them."""
        made = self._stores(image)
        if made is None:
            return None
        stores = []
        for store in made:
            node = from_value(store, where := self._at("checkpoint_storage"))
            if isinstance(node, MapNode) and "connection" in store:
                connection = {}
                for key, value in store["connection"].items():
                    paths = [f"checkpoint_storage.{name}" for name in _OF_CONNECTION.get(key, ())]
                    at = next((self._at(path) for path in paths if node_at(self._root, path)), where)
                    connection[key] = MapEntry(key, at, from_value(value, at))
                entry = MapEntry("connection", where, MapNode(where, connection))
                node = replace(node, entries={**node.entries, "connection": entry})
            stores.append(node)
        return ListNode(self._at("checkpoint_storage"), tuple(stores))

    def _stores(self, image: Any) -> list[dict[str, Any]] | None:
        """Return the store that takes the checkpoints, as ``data_stores`` has it; None where they stay with the job."""
        storage = self._values.get("checkpoint_storage", {})
        made: dict[str, Any] | None
        match storage.get("type"):
            case "shared_fs":
                made = self._shared_folder(storage)
            case "directory":
                made = self._directory(storage["container_path"], has_image=bool(image))
            case "s3":
                made = self._s3(storage)
            case "gcs":
                self._warn_of_storage(
                    "type",
                    f"is reached with the key of a service account, as JSON in the secret {GCS_SECRET}",
                    f"set {GCS_SECRET} in your environment, secrets.toml or keyring",
                )
                connection = {"password": f"${{{GCS_SECRET}}}"}
                made = _object_store("gcs", storage["bucket"], storage.get("prefix"), connection)
            case "azure":
                made = self._azure(storage)
            case _:
                self._name_what_needs_a_type(storage)
                return None
        return [{"id": STORE_ID, **made}] if made else None

    def _name_what_needs_a_type(self, storage: Mapping[str, Any]) -> None:
        """Warn of keys of one storage in a file that does not say which one it has."""
        for key in (key for key in storage if key in _OF_NO_TYPE):
            kinds = [name for name, keys in _STORAGES.items() if key in {each.name for each in keys}]
            self._warn_of_storage(
                key,
                "is not carried over without type:, as no cluster has a storage that it would be a part of",
                f"write type: {' or '.join(kinds)}",
            )

    def _warn_of_storage(self, key: str, problem: str, hint: str) -> None:
        key = f"checkpoint_storage.{key}"
        self._findings.warn(self._at(key), key, problem, hint)

    def _refuse_storage(self, key: str, problem: str, hint: str = "") -> None:
        key = f"checkpoint_storage.{key}"
        self._findings.fault(self._at(key), key, problem, hint)

    def _shared_folder(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        base = PurePosixPath(storage["host_path"])
        inside = base / (storage.get("storage_path") or "")
        if ".." in inside.parts or not inside.is_relative_to(base):
            self._refuse_storage("storage_path", f"is not inside host_path {base}", "write it relative to it")
        for key, (usual, hint) in _LEFT_OUT_OF_FOLDER.items():
            if storage.get(key) not in (None, usual):
                self._warn_of_storage(key, "is not carried over", hint)
        return _folder(str(inside))

    def _directory(self, path: str, *, has_image: bool) -> dict[str, Any] | None:
        """Return the folder of the host that a container's folder is: by a bind mount, or without an image itself."""
        wanted = PurePosixPath(path)
        for mount in self._values.get("bind_mounts") or ():
            target = PurePosixPath(mount["container_path"])
            if target.is_absolute() and wanted.is_relative_to(target) and ".." not in wanted.parts:
                return _folder(str(PurePosixPath(mount["host_path"]) / wanted.relative_to(target)))
        if wanted.is_absolute() and not has_image:
            return _folder(path)
        self._warn_of_storage(
            "container_path",
            "is not carried over: it is in the container and no bind mount covers it; checkpoints stay with the job",
            "add bind_mounts: with a folder of the host, or write type: shared_fs",
        )
        return None

    def _s3(self, storage: Mapping[str, Any]) -> dict[str, Any]:
        """Return a store that speaks S3; without keys it is reached with those of the environment, as boto3 does it."""
        written = [name for name in _S3_KEYS if storage.get(name)]
        if len(written) == 1:
            (other,) = (name for name in _S3_KEYS if name not in written)
            problem = f"comes without {other}:, which is taken from {_S3_KEYS[other]} of your environment"
            self._warn_of_storage(written[0], problem, f"write {other}:, or leave both out")
        user, password = (storage.get(name) or f"${{{variable}}}" for name, variable in _S3_KEYS.items())
        address = storage.get("endpoint_url") or AMAZON
        connection = {"auth_url": address, "user_name": user, "password": password}
        return _object_store("s3_datastore", storage["bucket"], storage.get("prefix"), connection)

    def _azure(self, storage: Mapping[str, Any]) -> dict[str, Any] | None:
        written, address = storage.get("connection_string"), storage.get("account_url")
        container = storage["container"]
        if written and address:
            self._refuse_storage("account_url", "cannot stand beside connection_string")
            return None
        if written:
            connection = _of_connection_string(written, container)
            if connection is None:
                self._refuse_storage(
                    "connection_string",
                    "names neither AccountName and AccountKey nor BlobEndpoint and SharedAccessSignature",
                    "write account_url: and credential:",
                )
                return None
        elif address:
            if "?" in address:
                # The address is not repeated: it holds a signature.
                self._refuse_storage("account_url", "holds a signature; write it as credential:")
                return None
            connection = _of_account(address, storage.get("credential") or "${AZURE_STORAGE_KEY}", container)
        else:
            self._warn_of_storage(
                "type",
                "is not carried over without connection_string or account_url: checkpoints stay with the job",
                "write account_url: https://ACCOUNT.blob.core.windows.net",
            )
            return None
        return _object_store("azure", container, "", connection)

    def _labels(self) -> dict[str, str]:
        written = [text for name in self._values.get("labels", ()) if (text := str(name).strip())]
        names = {text: _label(text) for text in written}
        if changed := {text: name for text, name in names.items() if name != text}:
            pairs = ", ".join(f"{shortened(text)!r} becomes {name}" for text, name in changed.items())
            shared = [name for name, times in Counter(names.values()).items() if times > 1]
            several = f"; several become one label, {' and '.join(shared)}" if shared else ""
            self._findings.warn(self._at("labels"), "labels", pairs + several, f"write {LABEL_EXPECTED}")
        found = dict.fromkeys(names.values(), "true")
        own = {name: self._values[name] for name in ("workspace", "project") if self._values.get(name)}
        if len(own) == 1:
            (name,) = own
            self._findings.fault(self._at(name), name, "needs workspace: and project: both, or neither")
        return {**found, **own}

    def _environment(self, written: Any) -> Node | None:
        where = "environment.environment_variables"
        if isinstance(written, Mapping):
            devices = ("cpu",) if self._is_on_cpu else ("cuda", GPU, "rocm")
            written = next((lines for name in devices if (lines := written.get(name))), None)
        found: dict[str, str] = {}
        for line in written or ():
            name, _, value = str(line).partition("=")
            found[name] = _with_variables(value, found)
        return self._put(where, found)

    def _search(self) -> dict[str, Node | None]:
        """Return ``search``, or ``params`` and the variable that holds all of them where one trial is all there is."""
        searcher = self._values["searcher"]
        params, is_searched = self.read_hyperparameters()
        name = searcher["name"]
        _check_searcher(searcher, self._root, self._findings)
        if name == "single" and not is_searched:
            node = node_at(self._root, "hyperparameters")
            hparams = _constants(node) if isinstance(node, MapNode) else {}
            simple = {
                key: value
                for key, value in hparams.items()
                if PARAM_NAME.fullmatch(key) and isinstance(value, (str, int, float))
            }
            variable = json.dumps(hparams)
            return {
                "params": self._put("hyperparameters", simple),
                "env": self._put("hyperparameters", {HPARAMS_VARIABLE: variable}),
            }
        keys = self._search_keys(name, searcher)
        made = from_value(
            {key: value for key, value in keys.items() if value is not None}, self._at("searcher")
        )
        assert isinstance(made, MapNode)
        return {"search": made.with_entry("params", MapEntry("params", params.location, params))}

    def _search_keys(self, name: str, searcher: Mapping[str, Any]) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "metric": GROUP + searcher["metric"],
            "goal": "minimize" if searcher.get("smaller_is_better", True) else "maximize",
            "max_concurrent": self._at_once(searcher.get("max_concurrent_trials", MAX_CONCURRENT)),
        }
        match name:
            case "single":
                return {"method": "random", "max_trials": 1, **keys, "max_concurrent": 1}
            case "random":
                return {"method": name, "max_trials": searcher.get("max_trials"), **keys}
            case "grid":
                return {"method": name, **keys}
        length, unit = _length(searcher.get("max_length"))
        is_older = length is not None and searcher.get("max_time") is None
        keys |= {
            "max_trials": searcher.get("max_trials"),
            "divisor": searcher.get("divisor"),
            "time_metric": GROUP + (searcher.get("time_metric") or unit),
            "max_time": searcher.get("max_time") or length,
            "variant": "promotion" if is_older and not searcher.get("stop_once") else None,
        }
        if name == "async_halving":
            return {"method": "asha", **keys, "rungs": searcher.get("num_rungs")}
        brackets = list(searcher.get("bracket_rungs") or ()) or None
        own = {"mode": searcher.get("mode"), "max_rungs": searcher.get("max_rungs"), "brackets": brackets}
        return {"method": "adaptive_asha", **keys, **own}

    def _at_once(self, trials: int) -> int:
        resources = self._values.get("resources", {})
        limit = resources.get("max_slots")
        trials = min(trials, TRIALS_MAX)
        if not limit or not self._slots:
            return trials
        fitting = max(int(limit // self._slots), 1)
        return min(trials, fitting) if trials else fitting

    def _tried(self, node: Node, path: str) -> Node:
        if isinstance(node, MapNode) and "type" in node.entries:
            return self._distribution(node, path)
        if isinstance(node, MapNode) and _is_searched(node):
            names = node.entries
            entries = {
                name: MapEntry(name, names[name].location, self._tried(names[name].node, f"{path}.{name}"))
                for name in names
            }
            return MapNode(node.location, entries)
        if isinstance(node, ScalarNode) and not node.is_null:
            return node
        if isinstance(node, MapNode):
            return _choice(from_value(_constants(node), node.location))
        return _choice(node)

    def _distribution(self, node: MapNode, path: str) -> Node:
        kind = plain(node.entries["type"].node)
        table = _HYPERPARAMETERS.get(kind) if isinstance(kind, str) else None
        if table is None:
            close = nearest(str(kind), _HYPERPARAMETERS)
            problem = f"is {kind!r}; write one of {', '.join(_HYPERPARAMETERS)}"
            self._findings.fault(
                node.entries["type"].location,
                f"{path}.type",
                problem,
                f"did you mean {close}?" if close else "",
            )
            return node
        before = len(self._findings.faults)
        checked = table.canonical(node, path, self._findings)
        values = table.read(checked, path, self._findings) or {}
        if len(self._findings.faults) > before:
            return node
        if kind == "const":
            value = values.get("val")
            simple = isinstance(value, (str, int, float))
            return from_value(value if simple else {"choice": [value]}, node.location)
        if kind == "categorical":
            vals = values["vals"]
            if not isinstance(vals, list) or not vals:
                found = describe_node(node.entries["vals"].node)
                problem = "is empty" if vals == [] else f"found {found}"
                self._findings.fault(node.location, f"{path}.vals", f"{problem}; write a list of values")
                return node
            return from_value({"choice": vals}, node.location)
        bounds = self._bounds(kind, values, node, path)
        if bounds is None:
            return node
        if bounds[0] == bounds[1]:
            is_of_base = kind == "log" and values["base"] == 1
            problem = "1 to any power is 1" if is_of_base else f"both of its bounds are {bounds[0]:g}"
            hint = (
                "write base: 10 to have it drawn"
                if is_of_base
                else "write bounds that differ to have it drawn"
            )
            at = f"{path}.{'base' if is_of_base else 'maxval'}"
            self._findings.warn(node.location, at, f"{problem}, which each trial gets", hint)
            return _choice(from_value(bounds[0], node.location))
        if not values.get("count") and self._values.get("searcher", {}).get("name") == "grid":
            problem = f"is of type {kind} without count:, and a grid needs to know how many values it tries"
            self._findings.fault(node.location, path, problem, "such as count: 3")
            return node
        count = {"count": values["count"]} if values.get("count") else {}
        name = {"int": "int", "double": "uniform", "log": "loguniform"}[kind]
        return from_value({name: bounds, **count}, node.location)

    def _bounds(self, kind: str, values: Mapping[str, Any], node: MapNode, path: str) -> list[float] | None:
        low, high = values["minval"], values["maxval"]
        if not low < high:
            self._findings.fault(node.location, path, f"minval {low:g} is not below maxval {high:g}")
            return None
        if kind != "log":
            return [low, high]
        base = values["base"]
        if base <= 0:
            problem = f"the base {base:g} is not above 0"
            self._findings.fault(node.location, f"{path}.base", problem, "write base: 10")
            return None
        # Less than one power of the base: most likely they are the values themselves.
        if base > 1 and (0 < low < 0.1 or (low >= 0 and high < 1)):
            top = math.log(high, base)
            if low:
                key, bound, verb, meant = "minval", low, "begins", f"from {low:g}"
                bottom = f"minval: {math.log(low, base):g}"
            else:
                key, bound, verb, meant = "maxval", high, "ends", f"up to {high:g}"
                bottom = f"for example minval: {math.floor(top) - 2}"
            hint = f"if values {meant} are meant, write {bottom}, maxval: {top:g}"
            problem = (
                f"the bounds of log are exponents: this one {verb} at {base:g}**{bound:g} = {base**bound:.4g}"
            )
            self._findings.warn(node.location, f"{path}.{key}", problem, hint)
        try:
            # Powers of a base below 1 fall as the exponent grows.
            found = sorted((float(base) ** low, float(base) ** high))
        except OverflowError:
            found = [0.0, math.inf]
        if not (found[0] > 0 and math.isfinite(found[1])):
            problem = f"{base:g} to the power of {low:g} and {high:g} are not numbers that can be tried"
            self._findings.fault(node.location, path, problem, "the bounds of log are exponents")
            return None
        return found


class _Pods:
    """What a ``pod_spec`` adds to the pods of a job, as ``kubernetes:``, ``cpus`` and ``memory`` of a manifest.

    The container of the training code is the learner. Other containers become side-cars that end with it: pods of
    ours wait for each of their containers.
    """

    def __init__(self, root: MapNode, written: Any, findings: Findings) -> None:
        self._root = root
        self._findings = findings
        self._pod = _without_null(written) if isinstance(written, Mapping) else {}
        self._spec: dict[str, Any] = {}
        self.variables: dict[str, str] = {}
        """Those of the training code's container that are plain values."""
        if written is not None and not isinstance(written, Mapping):
            self._refuse("", f"is {written!r}; write a pod: metadata and spec", "")

    def keys(self) -> dict[str, Any]:
        """Return the keys of a manifest; none without a ``pod_spec``."""
        if not self._is_sound():
            return {}
        metadata = self._pod.get("metadata") or {}
        self._spec = dict(self._pod.get("spec") or {})
        tolerations = self._spec.pop("tolerations", None)
        containers = self._spec.pop("containers", None) or []
        own: Mapping[str, Any] = next((one for one in containers if one["name"] == CONTAINER), {})
        amounts = dict(self._amounts(own))
        beside = [{**one, "restartPolicy": "Always"} for one in containers if one["name"] != CONTAINER]
        first = [*(self._spec.pop("initContainers", None) or ()), *beside]
        spec = {
            **self._spec,
            **({"initContainers": [_renamed(one) for one in first]} if first else {}),
            **self._learner(own),
        }
        if volumes := spec.get("volumes"):
            spec["volumes"] = [{**one, "name": VOLUME_PREFIX + one["name"]} for one in volumes]
        known = {key: metadata[key] for key in _OF_METADATA if metadata.get(key)}
        patch = {key: value for key, value in (("metadata", known), ("spec", spec)) if value}
        cluster = {
            **({"tolerations": tolerations} if tolerations else {}),
            **({"pod_patch": patch} if patch else {}),
        }
        return {**({"kubernetes": cluster} if cluster else {}), **amounts}

    def _refuse(self, key: str, problem: str, hint: str) -> None:
        path = f"environment.pod_spec{'.' if key else ''}{key}"
        node = node_at(self._root, path) or node_at(self._root, "environment.pod_spec") or self._root
        self._findings.fault(node.location, path, problem, hint)

    def _is_sound(self) -> bool:
        """Return whether it has the shape of a pod; name what a file cannot say of one."""
        before = len(self._findings.faults)
        for key in self._pod:
            if key not in ("apiVersion", "kind", "metadata", "spec", "status"):
                self._refuse(key, "is not a key of a pod", "write metadata and spec")
        for key in ("metadata", "spec"):
            if not isinstance(self._pod.get(key, {}), Mapping):
                self._refuse(key, f"is {self._pod[key]!r}; write a map", "")
        for path, hint in _NOT_OF_POD.items():
            value = _value_at(self._pod, path)
            if value not in (None, False, "", [], {}) and (path, value) != ("spec.restartPolicy", "Never"):
                self._refuse(path, "cannot be set", hint)
        metadata = self._pod.get("metadata")
        for key in metadata if isinstance(metadata, Mapping) else ():
            if key not in _OF_METADATA and f"metadata.{key}" not in _NOT_OF_POD:
                close = nearest(key, _OF_METADATA)
                hint = f"did you mean {close}?" if close else "a file gives pods labels and annotations"
                self._refuse(f"metadata.{key}", "cannot be set", hint)
        for key in ("containers", "initContainers", "volumes"):
            self._check_names(key, _value_at(self._pod, f"spec.{key}") or [])
        return len(self._findings.faults) == before

    def _check_names(self, key: str, items: Any) -> None:
        """See that a list is one of maps with names, and its containers have mounts of that form."""
        if not isinstance(items, list):
            self._refuse(f"spec.{key}", f"is {items!r}; write a list", "")
            return
        for number, item in enumerate(items):
            path = f"spec.{key}.{number}"
            if not _has_name(item):
                self._refuse(path, "has no name", "write name:")
                continue
            if key == "volumes":
                continue
            for name in ("volumeMounts", "volumeDevices", "env"):
                named = item.get(name, [])
                if not (isinstance(named, list) and all(_has_name(each) for each in named)):
                    self._refuse(f"{path}.{name}", "is not a list of items that have a name", "")
            for name in item if item["name"] == CONTAINER and key == "containers" else ():
                if name not in _OF_CONTAINER:
                    hint = _INSTEAD_IN_CONTAINER.get(name, f"{CONTAINER} has {', '.join(_OF_CONTAINER)}")
                    self._refuse(f"{path}.{name}", f"cannot be set of {CONTAINER}", hint)
                elif name == "resources":
                    self._check_resources(f"{path}.{name}", item[name])

    def _check_resources(self, path: str, resources: Any) -> None:
        """See that what the training code's container asks for has the shape of that: nothing of it may be lost."""
        if not isinstance(resources, Mapping):
            self._refuse(path, f"is {resources!r}; write a map", "")
            return
        for name, part in resources.items():
            if name not in _OF_RESOURCES:
                close = nearest(name, _OF_RESOURCES)
                self._refuse(
                    f"{path}.{name}",
                    "is not a key of resources",
                    f"did you mean {close}?" if close else f"write {', '.join(_OF_RESOURCES)}",
                )
            elif not isinstance(part, list if name == "claims" else Mapping):
                expected = "a list" if name == "claims" else "a map such as {memory: 8Gi}"
                self._refuse(f"{path}.{name}", f"is {part!r}; write {expected}", "")

    def _learner(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is added to the learner's container, as a part of a pod's ``spec``; nothing where nothing is."""
        variables = own.get("env") or ()
        self.variables = {
            one["name"]: str(one.get("value", "")) for one in variables if "valueFrom" not in one
        }
        amounts = {
            kind: {name: value for name, value in part.items() if not _is_ours(name)}
            for kind, part in _resources_of(own).items()
        }
        claims = (own.get("resources") or {}).get("claims")
        mounted = _renamed(own)
        parts = {
            "env": [one for one in variables if "valueFrom" in one],
            "envFrom": own.get("envFrom"),
            "resources": {kind: part for kind, part in {**amounts, "claims": claims}.items() if part},
            "volumeMounts": mounted.get("volumeMounts"),
            "volumeDevices": mounted.get("volumeDevices"),
        }
        found = {key: value for key, value in parts.items() if value}
        return {"containers": [{"name": LEARNER, **found}]} if found else {}

    def _amounts(self, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield ``cpus`` and ``memory``: a learner's request is its limit, so the larger one of a file counts."""
        amounts = _resources_of(own).values()
        for name, key in (("cpu", "cpus"), ("memory", "memory")):
            texts = [str(part[name]) for part in amounts if name in part]
            counted = [_amount(text) for text in texts]
            if None in counted:
                self._refuse(
                    "spec.containers",
                    f"{CONTAINER}: {texts[0]} is not an amount of {name}",
                    "such as 4 or 8Gi",
                )
            elif most := max((each for each in counted if each is not None), default=0.0):
                yield key, round(most, 3) if key == "cpus" else f"{max(round(most / 2**20), 1)}MiB"
        if gpus := sorted({name for part in amounts for name in part if _is_gpu(name)}):
            path = "environment.pod_spec"
            node = node_at(self._root, path)
            assert node is not None
            problem = f"{CONTAINER}: {gpus[0]} is not carried over"
            self._findings.warn(
                node.location, path, problem, "resources.slots_per_trial: is the number of GPUs"
            )


def _has_name(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)


def _resources_of(container: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what a container asks for and is limited to, by ``requests`` and ``limits``."""
    resources = container.get("resources")
    parts = resources if isinstance(resources, Mapping) else {}
    kinds = ("requests", "limits")
    return {kind: part for kind in kinds if isinstance(part := parts.get(kind), Mapping)}


def _is_gpu(resource: str) -> bool:
    return resource.endswith(".com/gpu")


def _is_ours(resource: str) -> bool:
    """Return whether a manifest has a key for a container's resource."""
    return resource in ("cpu", "memory") or _is_gpu(resource)


_SUFFIXES: Final[Mapping[str, float]] = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


def _amount(text: str) -> float | None:
    """Return a quantity of Kubernetes as a number, None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([a-zA-Z]*)", text)
    factor = _SUFFIXES.get(found[2]) if found else None
    return None if found is None or factor is None else float(found[1]) * factor


def _renamed(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container whose volumes have the names that they have in the pod."""
    lists = {key: container[key] for key in ("volumeMounts", "volumeDevices") if container.get(key)}
    named = {
        key: [{**one, "name": VOLUME_PREFIX + one["name"]} for one in items] for key, items in lists.items()
    }
    return {**container, **named}


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def _value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, None where there is none."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _folder(path: str) -> dict[str, Any]:
    """Return a store that is a folder of the machine on which the job runs."""
    return {"type": "host_path", "training_results": {"container": path}}


def _object_store(
    kind: str, bucket: str, prefix: str | None, connection: Mapping[str, str]
) -> dict[str, Any]:
    inside = (prefix or "").strip("/")
    container = f"{bucket}/{inside}" if inside else bucket
    return {"type": kind, "training_results": {"container": container}, "connection": dict(connection)}


def _of_connection_string(text: str, container: str) -> dict[str, str] | None:
    """Return what a connection string of Azure says, None where it names no account that can be reached."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    endpoint = parts.get("BlobEndpoint", "").rstrip("/")
    if (signature := parts.get("SharedAccessSignature")) and endpoint:
        return {"token": f"{endpoint}/{container}?{signature.lstrip('?')}"}
    account, key = parts.get("AccountName"), parts.get("AccountKey")
    if not (account and key):
        return None
    suffix = parts.get("EndpointSuffix", AZURE_SUFFIX)
    if not endpoint and suffix != AZURE_SUFFIX:
        endpoint = f"{parts.get('DefaultEndpointsProtocol', 'https')}://{account}.blob.{suffix}"
    return {"user_name": account, "password": key, **({"auth_url": endpoint} if endpoint else {})}


def _of_account(address: str, credential: str, container: str) -> dict[str, str]:
    """Return how an account of Azure is reached with a key, or with a signature (SAS)."""
    address = address.rstrip("/")
    if "sig=" in credential:
        return {"token": f"{address}/{container}?{credential.lstrip('?')}"}
    host = urlsplit(address).hostname or ""
    is_usual = host.endswith(f".blob.{AZURE_SUFFIX}")
    return {
        "user_name": host.partition(".")[0],
        "password": credential,
        **({} if is_usual else {"auth_url": address}),
    }


_COUNT: Final = _key("count", WholeNumber(1, 100_000))
_TYPE: Final = _key("type", _TEXT, required=True)
_HYPERPARAMETERS: Final[Mapping[str, KeyTable]] = {
    "const": _table("const", _TYPE, _key("val", _PLAIN)),
    "int": _table(
        "int",
        _TYPE,
        _key("minval", WholeNumber(-(1 << 62), 1 << 62), required=True),
        _key("maxval", WholeNumber(-(1 << 62), 1 << 62), required=True),
        _COUNT,
    ),
    "double": _table(
        "double",
        _TYPE,
        _key("minval", _NUMBER, required=True),
        _key("maxval", _NUMBER, required=True),
        _COUNT,
    ),
    "log": _table(
        "log",
        _TYPE,
        _key("minval", _NUMBER, required=True),
        _key("maxval", _NUMBER, required=True),
        _key("base", Number(0, 1e300), required=True, hint="such as base: 10"),
        _COUNT,
    ),
    "categorical": _table("categorical", _TYPE, _key("vals", _PLAIN, required=True)),
}


def _label(text: str) -> str:
    """Return a label, which is any text in Determined, as a job can have it."""
    name = re.sub(r"[^\w./-]", "-", text).lstrip("_./-")
    if not re.match("[A-Za-z0-9]", name):
        name = f"label-{name}".rstrip("-")
    return name[:LABEL_LENGTH_MAX]


def _choice(node: Node) -> MapNode:
    """Return the distribution of one value, which draws nothing."""
    only = ListNode(node.location, (node,))
    return MapNode(node.location, {"choice": MapEntry("choice", node.location, only)})


def _is_searched(node: Node) -> bool:
    """Return whether a hyperparameter, or one nested in it, has more than one value."""
    if not isinstance(node, MapNode):
        return False
    if "type" in node.entries:
        return bool(plain(node.entries["type"].node) != "const")
    return any(_is_searched(entry.node) for entry in node.entries.values())


def _constants(node: MapNode) -> dict[str, Any]:
    """Return hyperparameters that all are constants, as training code sees them."""
    found: dict[str, Any] = {}
    for name, entry in node.entries.items():
        below = entry.node
        if isinstance(below, MapNode):
            is_const = "type" in below.entries
            found[name] = plain(below).get("val") if is_const else _constants(below)
        else:
            found[name] = plain(below)
    return found


def _check_searcher(searcher: Mapping[str, Any], root: MapNode, findings: Findings) -> None:
    """Check the keys of a searcher against one another."""
    name, node = searcher["name"], root.entries["searcher"].node
    trains_class = _runs_trial_class(root)
    needed: tuple[str, ...] = ("max_trials",) if name in ("random", *HALVING) else ()
    if name == "async_halving":
        needed += ("num_rungs",)
    if name in HALVING and searcher.get("max_length") is None:
        needed += ("time_metric", "max_time")
    for key in needed:
        if not searcher.get(key):
            findings.fault(node.location, f"searcher.{key}", f"is missing; {name} needs it")
    if trains_class and searcher.get("max_length") is None:
        problem = "is missing: a Trial class does not say itself how long it trains"
        findings.fault(node.location, "searcher.max_length", problem, "such as max_length: {batches: 1000}")
    for key, users in _USED_BY.items():
        if key in searcher and name not in users:
            findings.fault(node.location, f"searcher.{key}", f"is not a key of the searcher {name}")
    if searcher.get("source_trial_id") is not None and searcher.get("source_checkpoint_uuid"):
        findings.fault(
            node.location, "searcher.source_trial_id", "cannot stand beside source_checkpoint_uuid"
        )
    older = node_at(root, "searcher.max_length")
    if older is not None and searcher.get("max_length") is not None:
        if name in HALVING and not searcher.get("max_time"):
            effect = "the searcher of 0.37, which pauses trials and promotes them, is meant"
            hint = "write time_metric: and max_time: for the one of 0.38"
        elif trains_class:
            effect, hint = "a Trial class needs it, and is trained that long", ""
        else:
            effect, hint = "the code decides how long it trains, and may ask for this", ""
        findings.warn(older.location, "searcher.max_length", f"is deprecated since 0.38; {effect}", hint)
    elif searcher.get("stop_once") is not None:
        findings.warn(
            node.location, "searcher.stop_once", "has no effect since 0.38: bad trials are always stopped"
        )


def _check_profiling(profiling: Mapping[str, Any], root: MapNode, findings: Findings) -> None:
    """Check that profiling does not end before it begins."""
    begin, end = profiling.get("begin_on_batch", 0), profiling.get("end_after_batch")
    if end is not None and begin > end:
        key = "profiling.end_after_batch"
        node = node_at(root, key) or root
        findings.fault(node.location, key, f"{end} comes before begin_on_batch {begin}")


def _check_data_secrets(root: MapNode, findings: Findings) -> None:
    """Check that the secrets of the code fit into a variable: a command with a larger one cannot be started."""
    size = len(f"{DATA_SECRETS_VARIABLE}={data_secrets(root)}") + 1  # JSON as we write it is ASCII
    if size > _VARIABLE_BYTES:
        node = node_at(root, DATA_SECRETS) or root
        problem = f"has {size:,} bytes as a variable, of which Linux takes {_VARIABLE_BYTES:,}"
        findings.fault(node.location, DATA_SECRETS, problem, "mount a file of it, or read it from a store")


def _length(value: Any) -> tuple[int | None, str]:
    """Return a length and the name of its unit; an older file's unitless one counts what its code counts."""
    if isinstance(value, Mapping):
        unit = next(iter(value), "batches")
        return value.get(unit), unit
    return value, "batches"


def _name_what_is_left_out(root: MapNode, findings: Findings) -> None:
    """Warn of each key that is deprecated, dead, or not carried over, by its name."""
    trained_by: tuple[str, ...] = _READ_BY_TRIAL_CLASSES if _runs_trial_class(root) else ()
    if not trained_by and _HOROVOD.search(_command_text(root)):
        trained_by = ("optimizations", "debug")
        found = node_at(root, "optimizations")
        for name, entry in found.entries.items() if isinstance(found, MapNode) else ():
            if name not in _FUSION and plain(entry.node) is not None:
                problem = "is deprecated since 0.38 and has no effect on a script"
                findings.warn(entry.location, f"optimizations.{name}", problem, _DEPRECATED["optimizations"])
    for path, hint in _DEPRECATED.items():
        if path not in trained_by and (node := node_at(root, path)) is not None and plain(node) is not None:
            findings.warn(node.location, path, "is deprecated since 0.38 and has no effect here", hint)
    if (node := node_at(root, "resources.slots")) is not None and plain(node) is not None:
        path = "resources.slots"
        problem = "has no effect on an experiment, whose trials have slots_per_trial: (1 without it)"
        findings.warn(node.location, path, problem, f"write slots_per_trial: {plain(node)}, or leave it out")
    for path in _DEAD:
        if (node := node_at(root, path)) is not None and plain(node) is not None:
            findings.warn(node.location, path, "has no effect, as in Determined itself", "leave it out")
    for path, hint in _NOT_CARRIED.items():
        node = None if path in trained_by else node_at(root, path)
        if node is not None and plain(node) not in (None, False, "", [], {}, {"enabled": False}):
            findings.warn(node.location, path, "is not carried over", hint)


def _runs_trial_class(root: MapNode) -> bool:
    """Return whether the command is a Trial class, or a launcher of one: the file's settings train it."""
    text = _command_text(root)
    # Scripts have options of that name, too.
    is_launched = bool(_LAUNCHER.search(text) and _TRIAL_OPTION.search(text))
    return is_launched or _TRIAL_CLASS.fullmatch(text) is not None


def _command_text(root: MapNode) -> str:
    entry = root.entries.get("entrypoint")
    command = plain(entry.node) if entry is not None else ""
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")


def plain(node: Node) -> Any:
    """Return a node as plain JSON."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, ListNode):
        return [plain(item) for item in node.nodes]
    return {name: plain(entry.node) for name, entry in node.entries.items()}


def _with_variables(value: str, known: Mapping[str, str]) -> str:
    """Return a variable's value in which earlier ones of the file, as ``$A`` or ``${A}``, are replaced."""

    def value_of(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2], found[0])

    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value_of, value)


def _binary(size: str) -> str | None:
    """Return a size, whose units are binary in Determined however they are written, as a manifest has it."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kKmMgGtT]?)(?:i?[bB])?\s*", str(size))
    if not size or found is None:
        return str(size) or None
    factor = 1024.0 ** " KMGT".index(found[2].upper() or " ")
    return f"{max(round(float(found[1]) * factor / 2**20), 1)}MiB"


def _config(root: MapNode) -> dict[str, Any]:
    """Return an experiment as training code may read it: as written, without null and credentials."""
    written: dict[str, Any] = plain(root)
    kept = {name: value for name, value in written.items() if value is not None and name not in _SECRET_PARTS}
    for name in ("searcher", "resources", "environment", "reproducibility"):
        if isinstance(kept.get(name), dict):
            kept[name] = {key: item for key, item in kept[name].items() if item is not None}
            for private in ("registry_auth", "environment_variables", "pod_spec"):
                kept[name].pop(private, None)
    if isinstance(lineage := _value_at(kept, "integrations.pachyderm"), dict):
        # Code reads from it which data it is given; who may read that is a secret.
        dataset = lineage.get("dataset")
        if isinstance(dataset, dict):
            lineage = {**lineage, "dataset": {key: item for key, item in dataset.items() if key != "token"}}
        kept["integrations"] = {"pachyderm": lineage}
    else:
        kept.pop("integrations", None)
    if isinstance(kept.get("data"), dict):
        kept["data"] = {key: item for key, item in kept["data"].items() if key != "secrets"}
    return kept


_SECRET_PARTS: Final = ("checkpoint_storage", "internal")


def data_secrets(root: MapNode) -> str:
    """Return ``data.secrets`` of an experiment as JSON; empty without it."""
    found = node_at(root, DATA_SECRETS)
    return "" if found is None or _is_null(found) else json.dumps(plain(found))


def _joined_maps(first: Node | None, second: Node | None) -> Node | None:
    if isinstance(first, MapNode) and isinstance(second, MapNode):
        return MapNode(first.location, {**first.entries, **second.entries})
    return first or second


def laid_over_template(user: MapNode, template: MapNode) -> MapNode:
    """Return an experiment laid over a template, by Determined's rules.

    Maps are merged key by key and null counts as absent; lists, lengths and hyperparameters with a ``type`` are
    replaced. Lists whose items have an identity are joined, the experiment's first to count, variables the template's
    first. A ``pod_spec`` is laid over the other one as a strategic merge patch of Kubernetes.
    """
    merged = _merged(user, template, "")
    assert isinstance(merged, MapNode)
    return merged


_UNIONS: Final = {
    "searcher": ("name", _COMMON_OF_SEARCHERS),
    "checkpoint_storage": ("type", _COMMON_OF_STORAGE),
}
_LENGTHS: Final = ("searcher.max_length", "min_validation_period", "min_checkpoint_period")
"""Maps that are one value: a number with its unit."""


def _merged(user: Node, template: Node, path: str) -> Node:
    is_hyperparameter = path.startswith("hyperparameters.")
    if _is_null(user) and not is_hyperparameter:
        return template
    if (join := _JOINS.get(path)) is not None:
        return user if _is_null(template) else join(user, template)
    if not (isinstance(user, MapNode) and isinstance(template, MapNode)) or path in _LENGTHS:
        return user
    if is_hyperparameter and ("type" in user.entries or "type" in template.entries):
        return user
    names = list(template.entries)
    if path in _UNIONS:
        tag, common = _UNIONS[path]
        kinds = {_text_of(each, tag) for each in (user, template)} - {""}
        names = names if len(kinds) < 2 else [name for name in names if name in common]
    entries = dict(user.entries)
    for name in names:
        below = template.entries[name]
        own = entries.get(name)
        where = f"{path}.{name}" if path else name
        entries[name] = below if own is None else replace(own, node=_merged(own.node, below.node, where))
    return MapNode(user.location, entries)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.is_null


def _joined_lists(user: Node, template: Node, identity: Callable[[Node], object]) -> Node:
    """Return the user's items, and those of the template that are none of them."""
    if not (isinstance(user, ListNode) and isinstance(template, ListNode)):
        return user
    known = {identity(item) for item in user.nodes}
    return ListNode(
        user.location, (*user.nodes, *(item for item in template.nodes if identity(item) not in known))
    )


def _container_path(item: Node) -> str:
    """Return where a mount or a device is in the container; a device may be ``HOST:CONTAINER:MODE``."""
    if isinstance(item, ScalarNode):
        return item.text.split(":")[1] if ":" in item.text else item.text
    return _text_of(item, "container_path")


def _text_of(item: Node, key: str) -> str:
    found = node_at(item, key)
    return "" if found is None or _is_null(found) else str(plain(found))


def _policy_identity(policy: Node) -> tuple[str, str, str]:
    """Return what tells a log policy from others: its name, or all of an older one that has no name."""
    if name := _text_of(policy, "name"):
        return name, "", ""
    return "", _text_of(policy, "pattern"), _text_of(policy, "action.type") or _text_of(policy, "action")


def _joined_labels(user: Node, template: Node) -> Node:
    """Return the labels of both, each of which may be a list, or a map whose keys are the labels."""
    lists = []
    for node in (user, template):
        if isinstance(node, MapNode):
            names = tuple(from_value(name, entry.location) for name, entry in node.entries.items())
            node = ListNode(node.location, names)
        lists.append(node)
    return _joined_lists(lists[0], lists[1], lambda item: str(plain(item)))


def _for_each_device(node: Node) -> dict[str, MapEntry]:
    """Return what is written for each device; what is no map is for all of them."""
    if not isinstance(node, MapNode):
        return {name: MapEntry(name, node.location, node) for name in _DEVICES}
    entries = {("cuda" if name == GPU else name): entry for name, entry in node.entries.items()}
    return {name: entry for name, entry in entries.items() if not _is_null(entry.node)}


def _joined_images(user: Node, template: Node) -> Node:
    if not isinstance(user, MapNode):
        return user
    return MapNode(user.location, {**_for_each_device(template), **_for_each_device(user)})


def _joined_variables(user: Node, template: Node) -> Node:
    """Return the variables of both, the template's first: of two with one name the later one counts."""
    if isinstance(user, ListNode) and isinstance(template, ListNode):
        return ListNode(user.location, (*template.nodes, *user.nodes))
    if not all(isinstance(each, (ListNode, MapNode)) for each in (user, template)):
        return user
    entries = _for_each_device(template)
    for name, entry in _for_each_device(user).items():
        below = entries.get(name)
        node = entry.node if below is None else _joined_variables(entry.node, below.node)
        entries[name] = replace(entry, node=node)
    return MapNode(user.location, entries)


_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}
"""By what Kubernetes merges the lists of a pod; it replaces others, such as ``tolerations`` and ``envFrom``."""
_OF_ONE_SOURCE: Final = ("volumes", "env")
"""Lists of items that have a source among their keys, which may be one only."""


def _patched(user: Node, template: Node, field: str = "") -> Node:
    """Return a part of a pod, laid over that of a template as a strategic merge patch."""
    if _is_null(user):
        return template
    if isinstance(user, ListNode) and isinstance(template, ListNode) and field in _MERGE_KEYS:
        return ListNode(user.location, tuple(_patched_items(user, template, field)))
    if not (isinstance(user, MapNode) and isinstance(template, MapNode)):
        return user
    entries = dict(template.entries)
    for name, own in user.entries.items():
        below = entries.get(name)
        entries[name] = own if below is None else replace(own, node=_patched(own.node, below.node, name))
    return MapNode(user.location, entries)


def _patched_items(user: ListNode, template: ListNode, field: str) -> Iterator[Node]:
    """Yield the items of both in Kubernetes' order: the user's as early as the template's own order allows."""
    key = _MERGE_KEYS[field]
    known = {_text_of(item, key): (number, item) for number, item in enumerate(template.nodes)}
    names = {_text_of(item, key) for item in user.nodes}
    left = [(number, item) for number, item in enumerate(template.nodes) if _text_of(item, key) not in names]
    for item in user.nodes:
        position, below = known.get(_text_of(item, key), (0, None))
        while left and left[0][0] < position:
            yield left.pop(0)[1]
        patched = item if below is None else _patched(item, below)
        if field in _OF_ONE_SOURCE and isinstance(patched, MapNode) and isinstance(item, MapNode):
            kept = {name: entry for name, entry in patched.entries.items() if name in item.entries}
            patched = MapNode(item.location, kept)
        yield patched
    yield from (item for _, item in left)


_JOINS: Final[Mapping[str, Callable[[Node, Node], Node]]] = {
    "labels": _joined_labels,
    "bind_mounts": lambda user, template: _joined_lists(user, template, _container_path),
    "resources.devices": lambda user, template: _joined_lists(user, template, _container_path),
    "environment.proxy_ports": lambda user, template: _joined_lists(
        user, template, lambda item: _text_of(item, "proxy_port")
    ),
    "log_policies": lambda user, template: _joined_lists(user, template, _policy_identity),
    "environment.image": _joined_images,
    "environment.environment_variables": _joined_variables,
    "environment.pod_spec": _patched,
}
