"""What a manifest says, once it has been read: frozen values that the whole of fabric works with.

Nothing here checks or converts (``workbench.manifest`` does), so that reading a stored job costs no import of
a YAML parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Final, Literal

from workbench.values import dataclass

IMAGES: Final[Mapping[str, str]] = {
    "caffe": "bvlc/caffe",
    "tensorflow": "tensorflow/tensorflow",
    "caffe2": "caffe2ai/caffe2",
    "pytorch": "pytorch/pytorch",
    "h2o3": "opsh2oai/h2o3-ffdl",
    "horovod": "uber/horovod",
    "pytorchmpi": "tomcli/pytorch",
}
"""FfDL's image repository of each framework name; ``custom`` takes the version as the whole reference."""

SWEEP_LABEL: Final = "sweep"
"""The label that jobs which were started together have in common."""

PRIORITY_MAX: Final = 100

DEFAULT_PRIORITY: Final = 50

WEIGHT_MIN: Final = 0.01

WEIGHT_MAX: Final = 1000

DEFAULT_WEIGHT: Final = 1.0

FRAMEWORKS: Final = (*IMAGES, "custom")


@dataclass(frozen=True, slots=True)
class Framework:
    """Which image, and what runs in it."""

    name: str = "custom"
    version: str = ""
    command: str = ""
    """As it is to be run: newlines of plain and folded scalars are blanks already, others are meant."""
    image_tag: str = ""
    image_location: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """The whole image reference, or empty when none is named."""
        if self.name == "custom":
            return self.version
        tag = self.image_tag or self.version
        return IMAGES[self.name] + (f":{tag}" if tag else "")


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """How a container's image is made of the code."""

    dockerfile: str = "Dockerfile"
    """Relative to the code."""
    args: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    """A stage; empty for the last one."""


@dataclass(frozen=True, slots=True)
class DataStore:
    """Where data comes from and results go: FfDL's ``data_stores[]``."""

    id: str
    type: str
    training_data: str = ""
    """The container (bucket or folder); empty for none."""
    training_results: str = ""
    connection: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    path: str = ""
    """A sub-path in the container."""
    mount: bool = False


@dataclass(frozen=True, slots=True)
class BindMount:
    """A folder or file of the host that a container sees at a path of its own."""

    host_path: str
    """Absolute."""
    container_path: str
    """Absolute, or relative to the folder of the code."""
    read_only: bool = False
    propagation: str = "rprivate"


@dataclass(frozen=True, slots=True)
class CheckpointsAtEnd:
    """Which checkpoints are kept of a job, or of the trials of a search, that has completed."""

    keep_last: int = 1
    """How many of the newest of each job."""
    keep_best: int = 0
    """How many of each job for their metric."""
    keep_best_of_search: int = 0
    """How many of all trials of a search together for their metric."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where checkpoints lie in a result store, and which are kept."""

    shared: bool = False
    """Whether all jobs of the result container share one folder, FfDL's ``_wml_checkpoints``."""
    keep_last: int = 0
    """How many of the newest are kept; 0 keeps all."""
    keep_best: int = 0
    """How many are kept beside them for their metric."""
    metric: str = ""
    smaller_is_better: bool = True
    """By the goal of the search, where the metric is the search's."""
    at_end: CheckpointsAtEnd | None = None
    """What is kept once the job and its search have completed; None for the same as before."""


def is_metric_of_search(metric: str, searched: str | None) -> bool:
    """Say whether a metric of checkpoints is that of the search; one of them may lack the group before ``/``."""
    if not metric or not searched:
        return False
    return metric == searched or metric.endswith(f"/{searched}") or searched.endswith(f"/{metric}")


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value of a metric group: ``$bind`` or a literal, read as ``type``."""

    type: Literal["STRING", "JSONSTRING", "INT", "FLOAT"]
    value: str


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """One regular expression of ``regex_extractor`` and what its hits mean."""

    regex: str
    time: str = ""
    subid: str = ""
    scalars: Mapping[str, TypedValue] = field(default_factory=dict)
    etimes: Mapping[str, TypedValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationMetrics:
    """FfDL's ``evaluation_metrics``, all spellings made one."""

    type: str = "plain"
    """``plain``, ``tensorboard``, ``regex_extractor``, ``emetrics_file``, or an entry point."""
    source: str = ""
    """``in:`` as written, with variables still in it."""
    line_lookahead: int = 4
    event_types: tuple[str, ...] = ()
    groups: Mapping[str, MetricGroup] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """``auto``: metrics that it is known to report, as that of its search: their lines count from the first one on."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job, as its manifest, overrides and flags say it. Sizes in bytes, times in seconds."""

    name: str
    framework: Framework = field(default_factory=Framework)
    description: str = ""
    version: str = ""
    learners: int = 1
    gpus: int = 0
    """Per learner."""
    gpu_type: str = ""
    cpus: float | None = None
    """Per learner; None reserves nothing."""
    memory_bytes: int | None = None
    """Per learner; None sets no limit here and over SSH."""
    storage_bytes: int | None = None
    shm_size_bytes: int | None = None
    data_stores: tuple[DataStore, ...] = ()
    bind_mounts: tuple[BindMount, ...] = ()
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    upload_seconds: float = 30.0
    """How often new results are stored while the command runs; 0 stores them at its end."""
    fetch_results: bool = False
    """Whether results that go to a data store come to this machine at the end, too."""
    evaluation_metrics: EvaluationMetrics | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    """Names only."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name; those of a trial may be lists and maps, too."""
    search: Mapping[str, Any] | None = None
    """A search for hyper-parameters by the keys of ``workbench.search.config``; None for one job."""
    max_restarts: int = 0
    max_platform_restarts: int = 3
    max_runtime_seconds: float | None = None
    stop_when: tuple[Mapping[str, Any], ...] = ()
    """Rules by the keys of ``manifest.keys.stop_keys``."""
    log_policies: tuple[Mapping[str, Any], ...] = ()
    """What lines of a failed attempt's output mean, by the keys of ``manifest.keys.stop_keys``."""
    grace_seconds: float = 30.0
    settle_seconds: float = 60.0
    ends_when: Literal["first", "all"] | int = "first"
    priority: int = DEFAULT_PRIORITY
    """Which waiting job goes first: 0 to 100, larger first."""
    weight: float = DEFAULT_WEIGHT
    """Which part of its person's GPUs its sweep or search gets, or the job by itself, beside the person's others."""
    preemptible: bool = False
    """Whether it ends for a job of a higher priority that waits for its GPUs, and goes on later."""
    preemption_seconds: float = 300.0
    """How long it may take to end then."""
    labels: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Jobs that come before, each an id with ``:completed`` or ``:ended``; as written until it is submitted."""
    begin: str = ""
    """When it may start: as written until it is submitted, then local time in ISO 8601; empty for at once."""
    at_most: int | None = None
    """How many jobs with the same label ``sweep`` may be under way at once; None sets no limit."""
    seed: int | None = None
    python: str = "current"
    """``current``, ``PATH`` (the word), a path, ``conda:NAME`` or ``requirements``."""
    requirements: tuple[str, ...] = ()
    """pip requirement lines."""
    setup: str = ""
    launcher: str = "none"
    image_pull: Literal["missing", "always", "never"] = "missing"
    """When a container's image is pulled."""
    build: ImageBuild | None = None
    """How it is made of the code, instead of being pulled."""
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    """What pods are like in a cluster, in addition to the backend's settings: see ``manifest.keys.kubernetes_keys``."""
    ports: tuple[int, ...] = ()
    backend: str = ""
    """The backend that the manifest asks for, or several with commas; empty is the configuration's."""
    fit: Literal["best", "worst"] = "best"
    """Which of several backends it takes where its GPUs are free: the one with the fewest left, or with the most."""
    runner: str = ""
    code: str = ""
    """The folder, zip or tar with the code, relative to the manifest's folder; empty for that folder."""
    code_anyway: bool = False
    """Whether that code is taken though it is a home folder, a file system's root, or very large."""

    @property
    def longest_seconds(self) -> float | None:
        """How long an attempt runs at most, once its GPUs are there; None where nobody knows.

        That is its ``max_runtime``, and then its grace period. Data that is brought before has no limit.
        """
        if self.max_runtime_seconds is None or any(store.training_data for store in self.data_stores):
            return None
        return self.max_runtime_seconds + self.grace_seconds

    @property
    def may_be_preempted(self) -> bool:
        """Whether it may have to end for a job of a higher priority: it says so, or the policy of its host does of all.

        Others work with what serves on ports, so no policy ends that. What they work with by its command is known to
        ``workbench.manifest.builder.scripts_run``, which asks this first.
        """
        return bool(self.gpus) and (self.preemptible or not self.ports)

    @property
    def image(self) -> str:
        """The image that container and pod runners use, in words where it is built first."""
        return f"built by {self.build.dockerfile}" if self.build else self.framework.image


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Turn a job's spec into plain JSON values; :func:`spec_from_json` reads it back equal."""
    document = {f.name: _plain(getattr(spec, f.name)) for f in fields(spec)}
    # A version that knew no priorities stored the whole number 0 with every job.
    return document | {"priority": spec.priority or 0.0}


def _plain(value: Any) -> Any:  # JSON has no narrower type
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def spec_from_json(document: Mapping[str, Any]) -> JobSpec:
    """Read a spec that :func:`spec_to_json` wrote; fields that this version does not know are left out."""
    known = {f.name for f in fields(JobSpec)}
    values = {key: value for key, value in document.items() if key in known}
    values["priority"] = _priority(values.get("priority"))
    values["framework"] = _build(Framework, values.get("framework") or {})
    values["build"] = _build(ImageBuild, values["build"]) if values.get("build") else None
    values["data_stores"] = tuple(_build(DataStore, item) for item in values.get("data_stores") or ())
    values["bind_mounts"] = tuple(_build(BindMount, item) for item in values.get("bind_mounts") or ())
    checkpoints = values.get("checkpoints") or {}
    at_end = _build(CheckpointsAtEnd, checkpoints["at_end"]) if checkpoints.get("at_end") else None
    values["checkpoints"] = _build(Checkpoints, {**checkpoints, "at_end": at_end})
    values["evaluation_metrics"] = _metrics(values.get("evaluation_metrics"))
    for key in ("secrets", "requirements", "ports", "after", "stop_when", "log_policies"):
        values[key] = tuple(values.get(key) or ())
    return JobSpec(**values)


def _priority(stored: object) -> int:
    """Return the priority that was stored; one that is absent, or the whole number 0, is from an older version."""
    if isinstance(stored, float) and not stored:
        return 0
    return stored if isinstance(stored, int) and 0 < stored <= PRIORITY_MAX else DEFAULT_PRIORITY


def _build(kind: Any, document: Mapping[str, Any]) -> Any:  # whatever dataclass kind is
    known = {f.name for f in fields(kind)}
    return kind(**{key: value for key, value in document.items() if key in known})


def _metrics(document: Mapping[str, Any] | None) -> EvaluationMetrics | None:
    if document is None:
        return None
    groups = {name: _group(group) for name, group in (document.get("groups") or {}).items()}
    plain = {key: value for key, value in document.items() if key != "groups"}
    plain |= {key: tuple(plain.get(key) or ()) for key in ("event_types", "names")}
    built: EvaluationMetrics = _build(EvaluationMetrics, {**plain, "groups": groups})
    return built


def _group(document: Mapping[str, Any]) -> MetricGroup:
    typed = {
        key: {name: _build(TypedValue, value) for name, value in (document.get(key) or {}).items()}
        for key in ("scalars", "etimes")
    }
    return _build(MetricGroup, {**document, **typed})  # type: ignore[no-any-return] # built of that type
