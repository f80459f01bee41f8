"""Plans a container job: the container's configuration and the launch document of every learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from runners.container.environment import (
    AGENT,
    ENVIRONMENT,
    LEARNER,
    MODEL,
    PROGRAM,
    REPORT,
    SECRETS,
    container_environment,
    folders,
    inside_folder,
    outside,
    writable_folders,
)
from runners.container.limits import LIMITS
from runners.container.stores import container_retention, container_stores, store_mounts
from runners.interface import AttemptRef, LaunchPlan, LaunchRequest, LearnerPlan, LearnerRef
from runners.shared.bind_mounts import engine_mounts
from runners.shared.capabilities import CONTAINER
from runners.shared.container_defaults import DROPPED, SHM_BYTES, image_of
from runners.shared.data_stores import keeps_some, results_store
from runners.shared.data_stores import refusals as stores_refused
from runners.shared.environment import CHOSEN, job_folders
from runners.shared.host_facts import HostFacts
from runners.shared.launch_document import LearnerLaunch, check_memory, metrics_document, preemption_document
from runners.shared.registry_login import learner_secrets
from runners.shared.unsupported import not_built
from workbench.errors import LaunchRefused
from workbench.job import attempt_stem, learner_name
from workbench.learner.guard.container_creation import LABEL_ATTEMPT, LABEL_HOME

_PLATFORM = ("MODEL_DIR", "DATA_DIR", "RESULT_DIR", "JOB_STATE_DIR", "LOG_DIR", "CHECKPOINT_DIR")


def refusals(request: LaunchRequest) -> list[str]:
    """Return why the job cannot run in containers; empty if it can."""
    can = replace(CONTAINER, ports=not request.attempt.part)
    found = list(not_built(request.spec, "container", can))
    return found + list(stores_refused(request, runner="container", agent_kind="python"))


def warnings_of(request: LaunchRequest) -> Iterator[str]:
    """Yield warnings: what will not work, or differently from the manifest."""
    yield from refusals(request)
    store = results_store(request)
    if store is not None and store.is_volume and keeps_some(request):
        yield f"all checkpoints are kept: they are in the volume of {store.id}, which only the job can change"
    if hidden := sorted(set(request.spec.env) & set(_PLATFORM)):
        yield f"env: cannot change {', '.join(hidden)}: fabric sets it"


def notes_of(request: LaunchRequest, site: HostFacts) -> Iterator[str]:
    """Yield remarks that are shown once."""
    spec = request.spec
    if spec.kubernetes:
        yield "kubernetes: says what pods are like, and is not used here"
    if spec.cpus is not None and spec.cpus > len(site.processors):
        yield f"{spec.cpus:g} CPUs are asked for and {site.name} has {len(site.processors)}: it gets those"
    if spec.storage_bytes:
        yield "storage: is not limited: the job writes to the disk that its folder is on"
    if spec.python not in ("current", "PATH", "requirements"):
        yield f"python: {spec.python} is ignored: the image's own Python is used"


LEAST_MEMORY_BYTES: Final = 6 << 20
"""The least memory limit that engines accept."""

LOOPBACK: Final = "127.0.0.1"
"""Ports are published on the loopback address only."""

AGENT_FILE: Final = "<agent>"
"""The placeholder in plans for the agent's archive and, with ``/inside.sh``, for its program in the container."""

_NOT_OUTSIDE: Final = ("LD_", "BASH_", "ENV", "PATH", "PYTHON")
"""Variables for the command alone: they would change how its agent runs."""

LABEL_LEARNER: Final = "fabric.learner"


def make_plan(request: LaunchRequest, site: HostFacts) -> LaunchPlan:
    """Return the launch of a container job as a value; the engine is not called.

    Raises:
        LaunchRefused: the job has no image, or its memory limit is too large or too small.
    """
    spec = request.spec
    if not spec.image:
        raise LaunchRefused(
            "The job has no image; the runner container needs one.",
            hint="Name it with --image, or by framework: {name: custom, version: IMAGE}; or use --runner process.",
            code="C101",
        )
    check_memory(request, site)
    if spec.memory_bytes is not None and spec.memory_bytes < LEAST_MEMORY_BYTES:
        raise LaunchRefused(
            f"The job asks for {spec.memory_bytes} bytes of memory; a container needs at least 6 MiB.",
            hint="Ask for more with 'memory:' or --set memory=",
            code="C101",
        )
    attempt = request.attempt
    learners = tuple(
        LearnerPlan(
            number,
            learner_name(attempt.job_id, attempt.attempt, number),
            {
                "network": network_mode(attempt),
                "container": container_document(request, number, site),
                "launch": launch_document(request, number, site).to_json(),
            },
        )
        for number in attempt.numbers
    )
    return LaunchPlan(
        request=request,
        runner="container",
        learners=learners,
        slots_per_learner=spec.gpus,
        cpus_per_learner=min(spec.cpus or 0.0, float(len(site.processors))),
        warnings=tuple(warnings_of(request)),
        notes=tuple(notes_of(request, site)),
    )


def network_name(attempt: AttemptRef) -> str:
    """Return the name of an attempt's network; empty for a single learner, and where others are at other hosts."""
    return attempt_stem(attempt.job_id, attempt.attempt) if attempt.learners > 1 and not attempt.part else ""


def network_mode(attempt: AttemptRef) -> str:
    """Return which network the containers of an attempt use.

    It is the host's where others are at other hosts: those reach no network that only one engine has.
    """
    return "host" if attempt.part else network_name(attempt) or "bridge"


def ports_of(request: LaunchRequest, learner: int) -> tuple[int, ...]:
    """Return the ports that a learner publishes: the first learner those of the job, the others none."""
    return request.spec.ports if learner == 1 else ()


def acts_of(request: LaunchRequest) -> list[str]:
    """Return what is run in a container, in order: ``setup`` and ``command``."""
    return ["setup", "command"] if request.spec.setup else ["command"]


def container_document(request: LaunchRequest, learner: int, site: HostFacts) -> dict[str, Any]:
    """Return the configuration of a learner's container, with placeholders for what is chosen at launch."""
    spec, attempt = request.spec, request.attempt
    name = learner_name(attempt.job_id, attempt.attempt, learner)
    stem = attempt_stem(attempt.job_id, attempt.attempt)
    network = network_name(attempt)
    host: dict[str, Any] = {
        "AutoRemove": True,
        "Init": False,
        "Mounts": _mounts(request, learner, site),
        "NetworkMode": network_mode(attempt),
        "CapDrop": list(DROPPED),
        "SecurityOpt": ["no-new-privileges"],
        "ShmSize": spec.shm_size_bytes or SHM_BYTES,
        "Ulimits": [dict(limit) for limit in LIMITS],
        "LogConfig": {"Type": "none", "Config": {}},  # the agent keeps the output
    }
    if spec.cpus is not None:
        host["NanoCpus"] = round(min(spec.cpus, float(len(site.processors))) * 1e9)
    if spec.memory_bytes is not None:
        host |= {"Memory": spec.memory_bytes, "MemorySwap": spec.memory_bytes}
    if spec.gpus:
        host["DeviceRequests"] = [
            {"Driver": "", "DeviceIDs": [CHOSEN] * spec.gpus, "Capabilities": [["gpu"]]}
        ]
    if published := ports_of(request, learner):
        host["PortBindings"] = {
            f"{port}/tcp": [{"HostIp": LOOPBACK, "HostPort": str(port)}] for port in published
        }
    document: dict[str, Any] = {
        "Image": image_of(request),
        # With the host's network it has the host's name: that resolves, as libraries expect.
        **({} if attempt.part else {"Hostname": name}),
        "Entrypoint": ["sh", PROGRAM],
        "Cmd": acts_of(request),
        "WorkingDir": MODEL,
        "Env": [
            f"{key}={value}" for key, value in sorted(container_environment(request, learner, site).items())
        ],
        "Labels": labels(attempt, learner, request.owner),
        "Healthcheck": {"Test": ["NONE"]},
        "StopTimeout": int(spec.grace_seconds) + 5,
        "HostConfig": host,
    }
    if published:
        document["ExposedPorts"] = {f"{port}/tcp": {} for port in published}
    if network:
        aliases = [name, f"{name}.{stem}"]
        document["NetworkingConfig"] = {"EndpointsConfig": {network: {"Aliases": aliases}}}
    elif not attempt.part:
        host["ExtraHosts"] = [f"{name}.{stem}:127.0.0.1"]
    return document


def labels(attempt: AttemptRef, learner: int, owner: str) -> dict[str, str]:
    """Return the labels of a container: home, owner, job, attempt and learner."""
    return {
        LABEL_HOME: attempt.home,
        "fabric.owner": owner,
        "fabric.job": attempt.job_id,
        LABEL_ATTEMPT: str(attempt.attempt),
        LABEL_LEARNER: str(learner),
    }


def ref_of_labels(labels: Mapping[str, str]) -> LearnerRef | None:
    """Return the learner of a container's labels, None for other containers."""
    attempt, learner = labels.get(LABEL_ATTEMPT, ""), labels.get(LABEL_LEARNER, "")
    if not (attempt.isdigit() and learner.isdigit()):
        return None
    return LearnerRef(labels.get(LABEL_HOME, ""), labels.get("fabric.job", ""), int(attempt), int(learner))


def ref_of_network(labels: Mapping[str, str]) -> LearnerRef | None:
    """Return the second learner of a network's attempt: attempts with a network have at least two."""
    ref = ref_of_labels(labels)
    return ref and LearnerRef(ref.home, ref.job_id, ref.attempt, 2)


def launch_document(request: LaunchRequest, learner: int, site: HostFacts) -> LearnerLaunch:
    """Return the launch document of a learner's agent, which runs outside the container.

    Its command is a program that runs the job's command in the container.
    """
    spec = request.spec
    _, folder = job_folders(request, site)
    stores = container_stores(request, learner, site)
    metrics = metrics_document(spec)
    if metrics is not None and metrics.get("source"):
        metrics["source"] = outside(metrics["source"], request, learner, site)
    # Collectors run on the host and read what the command writes in the container.
    inside = container_environment(request, learner, site)
    environment = {
        name: outside(value, request, learner, site)
        for name, value in inside.items()
        if not name.startswith(_NOT_OUTSIDE)
    }
    return LearnerLaunch(
        request=request,
        learner=learner,
        command=f"exec {AGENT_FILE} contain command",
        setup=f"exec {AGENT_FILE} contain setup" if spec.setup else "",
        shell="sh",
        cwd=str(folder.learner(learner).path),
        env=environment,
        secrets_file=CHOSEN if spec.secrets or learner_secrets(request) or stores else None,
        attempt_dir=str(folder.path),
        log_dir=str(folder.logs),
        slots=[CHOSEN] * spec.gpus,
        preemption=preemption_document(request, site),
        metrics=metrics,
        stores=stores,
        retention=container_retention(request, site),
        writable=writable_folders(request, learner, site),
    )


def bind(source: str, target: str, *, read_only: bool = False) -> dict[str, Any]:
    """Return a bind mount; the source must exist."""
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def _mounts(request: LaunchRequest, learner: int, site: HostFacts) -> list[dict[str, Any]]:
    folder = job_folders(request, site)[1].learner(learner).path
    mounts = [bind(source, target) for target, source in sorted(folders(request, learner, site).items())]
    mounts += store_mounts(request, learner, site)
    mounts += engine_mounts(request, MODEL)
    mounts += [
        bind(str(inside_folder(request, learner, site)), LEARNER),
        bind(str(folder / "report.jsonl"), REPORT),
        bind(f"{AGENT_FILE}/inside.sh", PROGRAM, read_only=True),
        bind(AGENT_FILE, AGENT, read_only=True),
    ]
    if request.spec.python == "requirements":
        mounts.append(bind(CHOSEN, ENVIRONMENT, read_only=True))
    if request.spec.secrets or learner_secrets(request):
        mounts.append(bind(CHOSEN, SECRETS, read_only=True))
    return mounts
