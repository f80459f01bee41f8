"""Plans a process job: the launch document of every learner."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runners.interface import LaunchPlan, LaunchRequest, LearnerPlan
from runners.shared.bind_mounts import notes_of_processes, refusals_of_processes
from runners.shared.data_stores import (
    keeps_some,
    refusals,
    results_store,
    retention_document,
    stores_document,
)
from runners.shared.environment import CHOSEN, job_folders, learner_environment, promises
from runners.shared.host_facts import HostFacts
from runners.shared.interpreters import Interpreter
from runners.shared.launch_document import (
    LearnerLaunch,
    check_memory,
    is_log_dir_shared,
    metrics_document,
    preemption_document,
)
from runners.shared.registry_login import learner_secrets
from runners.shared.unsupported import not_built
from workbench.job import learner_name

LOOKED_AT_BYTES: Final = 2_000_000
"""How much of the code is searched for names that do not work in process jobs."""

_FILE_BYTES: Final = 200_000
_TEXTS: Final = (".py", ".sh", ".bash", ".yml", ".yaml", ".json", ".cfg", ".toml")
_JOB_FOLDER: Final = re.compile(r"""(?:^|[\s"'=:,(\[{])/job(?=/|["'\s;,)\]}]|$)""", re.MULTILINE)
_PEER_NAMES: Final = "LEARNER_NAME_PREFIX"


def warnings_of(request: LaunchRequest, site: HostFacts) -> Iterator[str]:
    """Yield warnings: what will not work, or differently from the manifest."""
    yield from not_built(request.spec)
    yield from refusals(request, runner="process", agent_kind="python" if site.python else "sh")
    yield from refusals_of_processes(request)
    texts = list(_texts(request))
    if mentions := [name for name, text in texts if _JOB_FOLDER.search(text)]:
        yield (
            f"{_named(mentions)} names the folder /job, which a process job does not have: "
            "use $JOB_STATE_DIR, $MODEL_DIR or $LOG_DIR"
        )
    peers = [name for name, text in texts if _PEER_NAMES in text]
    if peers and request.spec.learners > 1:
        yield (
            f"{_named(peers)} reaches other learners by name ($LEARNER_NAME_PREFIX), which does not work "
            "between processes: use $MASTER_ADDR and $MASTER_PORT"
        )
    if hidden := sorted(set(request.spec.env) & set(promises(request, 1, site))):
        yield f"env: cannot change {', '.join(hidden)}: fabric sets it"


def notes_of(request: LaunchRequest, site: HostFacts, agent_kind: str) -> Iterator[str]:
    """Yield remarks that are shown once."""
    spec = request.spec
    if spec.kubernetes:
        yield "kubernetes: says what pods are like, and is not used here"
    if agent_kind == "sh":
        limits = " and no memory limit" if spec.memory_bytes else ""
        yield f"there is no Python on {site.name}: no usage samples, no report(){limits}"
        if not site.here:
            yield f"it starts only while this machine is on: without Python on {site.name} nothing there starts it"
        if keeps_some(request):
            yield f"all checkpoints are kept: without Python on {site.name} they cannot be reported"
        if spec.preemptible and spec.gpus:
            yield f"it is not preempted: without Python on {site.name} nobody looks for who waits"
    if spec.image:
        yield f"the image {spec.image} is not used: the command runs as a process on {site.name}"
    if spec.cpus is not None and spec.cpus > len(site.processors):
        yield f"{spec.cpus:g} CPUs are asked for and {site.name} has {len(site.processors)}: it gets those"
    if not site.bash:
        yield f"there is no bash on {site.name}: commands run under sh"
    if spec.storage_bytes:
        yield "storage: is not limited: the job writes to the disk that its folder is on"
    yield from notes_of_processes(request)
    if spec.shm_size_bytes:
        yield "shm_size: is ignored: a process uses the machine's own /dev/shm"


def _texts(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of short texts that a job runs: command, setup, scripts."""
    yield "the command", request.spec.framework.command
    yield "setup:", request.spec.setup
    if request.code_file and Path(request.code_file).exists():
        try:
            yield from _members(request.code_file)
        except (tarfile.TarError, OSError, EOFError, zlib.error):
            return  # unpacking reports it


def _members(archive: str) -> Iterator[tuple[str, str]]:
    left = LOOKED_AT_BYTES
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if not (member.isreg() and member.name.endswith(_TEXTS) and member.size <= _FILE_BYTES):
                left -= min(member.size, _FILE_BYTES)
            elif stream := tar.extractfile(member):
                left -= member.size
                yield member.name.removeprefix("./"), stream.read().decode("utf-8", "replace")
            if left < 0:
                return


def _named(names: list[str]) -> str:
    shown = names[:3]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(shown) + more


AGENT = "<agent>"
"""The placeholder in plans for the agent's path, which contains its hash."""


def make_plan(
    request: LaunchRequest, site: HostFacts, interpreter: Interpreter, agent_kind: str
) -> LaunchPlan:
    """Return the launch of a process job as a value.

    Raises:
        LaunchRefused: the job asks for more memory than the host has.
    """
    spec = request.spec
    check_memory(request, site)
    learners = tuple(
        LearnerPlan(
            number,
            learner_name(request.attempt.job_id, request.attempt.attempt, number),
            {
                "agent": agent_kind,
                "python": interpreter.python,
                "folder": str(job_folders(request, site)[1].learner(number).path),
                "launch": launch_document(request, number, site, interpreter, agent_kind).to_json(),
            },
        )
        for number in request.attempt.numbers
    )
    return LaunchPlan(
        request=request,
        runner="process",
        learners=learners,
        slots_per_learner=spec.gpus,
        cpus_per_learner=min(spec.cpus or 0.0, float(len(site.processors))),
        warnings=tuple(warnings_of(request, site)),
        notes=(*notes_of(request, site, agent_kind), *interpreter.notes),
    )


def launch_document(
    request: LaunchRequest, learner: int, site: HostFacts, interpreter: Interpreter, agent_kind: str
) -> LearnerLaunch:
    """Return a learner's ``launch.json`` with placeholders for what is chosen at launch."""
    spec = request.spec
    _, folder = job_folders(request, site)
    agent = AGENT if agent_kind == "python" else ""
    stores = stores_document(request, site)
    environment = learner_environment(request, learner, site, interpreter.variables, agent)
    if interpreter.key:
        environment["FABRIC_ENVIRONMENT"] = interpreter.key
    return LearnerLaunch(
        request=request,
        learner=learner,
        command=spec.framework.command,
        setup=spec.setup,
        shell="bash",
        cwd=environment["MODEL_DIR"],
        env=environment,
        secrets_file=CHOSEN if spec.secrets or learner_secrets(request) or stores else None,
        attempt_dir=str(folder.path),
        log_dir=str(folder.logs),
        log_dir_shared=is_log_dir_shared(request.attempt, learner),
        memory_bytes=spec.memory_bytes,
        umask=_umask(request),
        cpus=CHOSEN if spec.cpus is not None and spec.cpus < len(site.processors) else None,
        slots=[CHOSEN] * spec.gpus,
        preemption=preemption_document(request, site),
        metrics=metrics_document(spec),
        stores=stores,
        retention=None
        if results_store(request)
        else retention_document(request, str(site.home.job(request.attempt.job_id).checkpoints)),
    )


def _umask(request: LaunchRequest) -> int | None:
    """Return the umask of whoever submitted the job; the controller, which starts it here, has a stricter one."""
    text = str(request.recorded.get("umask") or "")
    return int(text, 8) & 0o777 if text and not text.strip("01234567") else None
