"""The settings of a cluster in ``config.toml`` or ``-o``: meaning, default and validation of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from workbench.errors import ConfigError
from workbench.values import dataclass

_SOURCES: Final = ("claim", "host_path", "config_map", "secret")
_KEYS: Final = (*_SOURCES, "path", "read_only", "sub_path")
_SHORT: Final = (
    "write claim:/path, /host/path:/path, either with :ro, or a table with path and one of "
    + ", ".join(_SOURCES)
)


def volumes(value: Any) -> tuple[dict[str, Any], ...]:
    """Return each volume as ``source`` (as in a pod's spec), ``path``, ``read_only`` and ``sub_path``.

    Raises:
        ValueError: a volume is not valid; the message names the form to use.
    """
    items = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(_SHORT)
    found = tuple(_of_table(item) if isinstance(item, Mapping) else _of_text(item) for item in items)
    paths = [volume["path"] for volume in found]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"two volumes are mounted at {path}")
    return found


def _of_text(item: Any) -> dict[str, Any]:
    parts = item.strip().split(":") if isinstance(item, str) else []
    read_only = len(parts) == 3 and parts[2] == "ro"
    if len(parts) != 2 and not read_only:
        raise ValueError(f"{item!r} is not a volume; {_SHORT}")
    source = "host_path" if parts[0].startswith("/") else "claim"
    return _of_table({source: parts[0], "path": parts[1], "read_only": read_only})


def _of_table(item: Mapping[str, Any]) -> dict[str, Any]:
    named = [source for source in _SOURCES if source in item]
    if len(named) != 1 or any(key not in _KEYS for key in item):
        raise ValueError(f"{dict(item)} is not a volume; {_SHORT}")
    path, read_only = item.get("path", ""), item.get("read_only", False)
    if not isinstance(path, str) or not path.startswith("/") or path == "/" or ":" in path:
        raise ValueError(f"a volume's path must be absolute in the pod, not {path!r}")
    if path == "/job" or path.startswith(("/job/", "/fabric")):
        raise ValueError(f"{path} is the job's own folder; mount the volume somewhere else")
    if not isinstance(read_only, bool):
        raise ValueError("a volume's read_only is true or false")
    return {
        "source": _source(named[0], item[named[0]], read_only),
        "path": path.rstrip("/"),
        "read_only": read_only,
        "sub_path": str(item.get("sub_path", "")),
    }


def _source(kind: str, name: Any, read_only: bool) -> dict[str, Any]:
    text = name if isinstance(name, str) else ""
    if kind == "host_path":
        if not text.startswith("/"):
            raise ValueError(f"host_path is a folder of the node, an absolute path, not {name!r}")
        return {"hostPath": {"path": text}}
    if not _NAME.fullmatch(text):
        raise ValueError(f"{name!r} is not a valid name of a {kind.replace('_', ' ')}")
    if kind == "claim":
        return {"persistentVolumeClaim": {"claimName": text, **({"readOnly": True} if read_only else {})}}
    return {"configMap": {"name": text}} if kind == "config_map" else {"secret": {"secretName": text}}


Parse = Callable[[Any], Any]
"""Parses a value of the configuration; raises ValueError with the form to use."""

RUN_AS: Final = ("restricted", "image")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("write a text")
    return value.strip()


def _name(value: Any) -> str:
    text = _text(value)
    if text and not _NAME.fullmatch(text):
        raise ValueError("write the name of an object of the cluster: small letters, digits, '-' and '.'")
    return text


def _names(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError("write names with commas between them")
    return tuple(name for item in items if (name := _name(item)))


def _one_of(*choices: str) -> Parse:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"write {' or '.join(choices)}")
        return str(value)

    return parse


def _seconds(value: Any) -> float:
    from workbench.manifest.keys.units import duration_seconds

    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("write seconds, or such as 90s or 2m")
    seconds = duration_seconds(str(value))
    if seconds <= 0:
        raise ValueError("write more than 0 seconds")
    return seconds


def _seconds_or_none(value: Any) -> float:
    return 0.0 if str(value).strip() in ("0", "0s", "0.0") else _seconds(value)


def _quantity(value: Any) -> str:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not _QUANTITY.fullmatch(text):
        raise ValueError("write an amount such as 10Gi")
    return text


def _size(value: Any) -> int:
    from workbench.manifest.keys.units import size_bytes

    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 20:
        return value
    return size_bytes(_text(value))


def _uid(value: Any) -> int | str:
    if value == "assigned":
        return "assigned"
    text = str(value)
    if isinstance(value, bool) or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise ValueError("write a user's number above 0, or assigned")
    return int(text)


def _resource(value: Any) -> str:
    text = _text(value)
    if "/" not in text or not _LABEL_KEY.fullmatch(text):
        raise ValueError("write the name of an extended resource, such as nvidia.com/gpu or amd.com/gpu")
    return text


def _labels(value: Any) -> dict[str, str]:
    """Parse a table, JSON, or ``key=value,key=value``."""
    table = _table(value) if not isinstance(value, str) or value.lstrip().startswith("{") else None
    if table is None:
        parts = [part.strip() for part in str(value).split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise ValueError("write labels as key=value, with commas between them")
        table = dict(part.split("=", 1) for part in parts)
    labels = {str(key).strip(): str(found).strip() for key, found in table.items()}
    for key, found in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(found):
            raise ValueError(f"{key}={found} is not a label of Kubernetes")
    return labels


def _types(value: Any) -> dict[str, dict[str, str]]:
    """Parse the labels of the nodes with a GPU type: ``A100 = "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"``."""
    return {str(name).lower(): _labels(labels) for name, labels in _table(value).items()}


def _tolerations(value: Any) -> tuple[dict[str, Any], ...]:
    items = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError("write tolerations as key=value:Effect, with commas between them")
    return tuple(_toleration(item) for item in items)


def _toleration(item: Any) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return dict(item)
    key, _, effect = _text(item).partition(":")
    key, equals, value = key.partition("=")
    if (effect and effect not in EFFECTS) or (key and not _LABEL_KEY.fullmatch(key)):
        raise ValueError(
            f"{item!r} is not a toleration; write key=value:Effect, the effect {', '.join(EFFECTS)}"
        )
    toleration = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {**({"key": key} if key else {}), **toleration, **({"effect": effect} if effect else {})}


def _priority_classes(value: Any) -> dict[int, str]:
    """Parse the classes of priorities, the smallest first: a table, JSON, or ``70=high,90=urgent``."""
    from workbench.spec import PRIORITY_MAX

    if isinstance(value, str) and not value.lstrip().startswith("{"):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise ValueError("write priorities as 70=high, with commas between them")
        table: dict[Any, Any] = {}
        for key, name in (part.split("=", 1) for part in parts):
            if key.strip() in table:
                raise ValueError(f"{key.strip()} is there twice")
            table[key.strip()] = name
    else:
        table = _table(value)
    classes = {}
    for key, name in table.items():
        text = str(key)
        if not re.fullmatch("0|[1-9][0-9]{0,2}", text) or int(text) > PRIORITY_MAX:
            raise ValueError(f"{text!r} is not a priority, a whole number from 0 to {PRIORITY_MAX}")
        classes[int(text)] = _name(name)
        if not classes[int(text)]:
            raise ValueError(f"{text} has no name; write that of a PriorityClass")
    return dict(sorted(classes.items()))


def _yes(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return str(value).lower() == "true"


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except ValueError:
            raise ValueError("write a table, or JSON in quotes") from None
    if not isinstance(value, Mapping):
        raise ValueError("write a table, or JSON in quotes")
    return dict(value)


def _environment(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in _table(value).items()}


@dataclass(frozen=True, slots=True)
class Option:
    """One setting."""

    parse: Parse
    default: Any
    meaning: str


OPTIONS: Final[Mapping[str, Option]] = {
    "kubeconfig": Option(_text, "", "kubeconfig files instead of $KUBECONFIG, with ':' between them"),
    "context": Option(_text, "", "the context in it, instead of the address's"),
    "namespace": Option(_text, "", "the namespace, instead of the address's"),
    "run_as": Option(
        _one_of(*RUN_AS), "restricted", "restricted: the strictest Pod Security; image: the image's own user"
    ),
    "uid": Option(
        _uid, 1000, "the user of restricted pods; assigned takes what the namespace assigns (OpenShift)"
    ),
    "default_memory": Option(_size, 8 << 30, "what a learner gets whose manifest names no memory: 8Gi"),
    "gpu_resource": Option(_resource, "nvidia.com/gpu", "the resource that stands for a GPU"),
    "gpu_types": Option(_types, {}, "labels of the nodes that have a GPU type: a table type -> key=value"),
    "tolerations": Option(_tolerations, (), "taints that pods may stand: key=value:Effect, ..."),
    "node_selector": Option(_labels, {}, "labels that a node must have: key=value, ..."),
    "labels": Option(_labels, {}, "additional labels for every object: key=value, ..."),
    "service_account": Option(_name, "", "the service account that pods run as, without its token"),
    "image_pull_secrets": Option(_names, (), "Secrets with the logins of private registries"),
    "priority_class": Option(_name, "", "the PriorityClass of pods"),
    "priority_classes": Option(
        _priority_classes,
        {},
        "the PriorityClasses of jobs by their priority: a table number -> class, each from that priority on",
    ),
    "queue": Option(_name, "", "the Kueue LocalQueue that jobs wait in"),
    "queue_priority_class": Option(
        _name, "", "Kueue's WorkloadPriorityClass: the order of jobs in their queue"
    ),
    "volumes": Option(
        volumes, (), "claims and folders for every pod: claim:/path[:ro], /host/path:/path[:ro]"
    ),
    "host_paths": Option(
        _yes, False, "true lets data stores be folders of the nodes (host_path), which must all have them"
    ),
    "storage_class": Option(
        _name, "", "the StorageClass of claims that jobs make; the cluster's default if empty"
    ),
    "claim": Option(_name, "", "a PersistentVolumeClaim that jobs' results and checkpoints go to"),
    "data_claim": Option(
        _name, "", "a PersistentVolumeClaim that copies of stores' data are kept on, for all jobs to share"
    ),
    "claim_size": Option(_quantity, "10Gi", "the size of a claim that a job makes"),
    "gang_seconds": Option(_seconds, 120.0, "how long a learner waits for the others with its GPUs held"),
    "journal_hold_seconds": Option(
        _seconds, 120.0, "how long an ended pod is held for what its log cannot take"
    ),
    "results_hold_seconds": Option(
        _seconds, 600.0, "how long an ended pod is held for results without a store"
    ),
    "unfit_seconds": Option(
        _seconds, 120.0, "how long a pod may wait that no node could hold, for a cluster to add one"
    ),
    "code_seconds": Option(_seconds, 600.0, "how long a pod waits for code that is too large for a Secret"),
    "ttl_seconds": Option(
        _seconds_or_none,
        3600.0,
        "how long Job, Service and pods stay when a job has ended and all that it left is here; 0: not at all",
    ),
    "pod_patch": Option(_table, {}, "a strategic merge patch on every pod's template"),
    "environment": Option(_environment, {}, "variables that a credential plugin gets"),
}


def checked_options(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return every option parsed, with defaults filled in.

    Raises:
        ConfigError: an option is unknown or its value is not valid.
    """
    for key in settings:
        if key not in OPTIONS:
            from workbench.manifest.yaml.faults import nearest

            close = nearest(key, OPTIONS)
            raise ConfigError(
                f"the backend {name} has no setting {key!r}",
                hint=(f"did you mean {close}? " if close else "") + f"there are {', '.join(sorted(OPTIONS))}",
            )
    checked = {key: _checked(name, key, option, settings) for key, option in OPTIONS.items()}
    return {**checked, "default_memory_bytes": checked["default_memory"]}


def _checked(name: str, key: str, option: Option, settings: Mapping[str, Any]) -> Any:
    if key not in settings:
        return option.default
    try:
        return option.parse(settings[key])
    except ValueError as error:
        raise ConfigError(
            f"the backend {name} has {key} = {settings[key]!r}: {error}", hint=f"{key} is {option.meaning}"
        ) from error
