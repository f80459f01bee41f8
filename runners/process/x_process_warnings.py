"""What a process job cannot keep of what its manifest or code expects, said before it is started."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runners.interface import LaunchRequest
from runners.shared.data_stores import refusals
from runners.shared.environment import promises
from runners.shared.host_facts import Site
from workbench.manifest.build.unsupported import not_built

LOOKED_AT_BYTES: Final = 2_000_000
"""How much of the code is looked through."""

_FILE_BYTES: Final = 200_000
_TEXTS: Final = (".py", ".sh", ".bash", ".yml", ".yaml", ".json", ".cfg", ".toml")
_JOB_FOLDER: Final = re.compile(r"""(?:^|[\s"'=:,(\[{])/job(?=/|["'\s;,)\]}]|$)""", re.MULTILINE)
_PEER_NAMES: Final = "LEARNER_NAME_PREFIX"


def warnings_of(request: LaunchRequest, site: Site) -> Iterator[str]:
    """Say what will not work, or not as the manifest means it."""
    yield from not_built(request.spec)
    yield from refusals(request, runner="process", agent_kind="python" if site.python else "sh")
    texts = list(_texts(request))
    if places := [name for name, text in texts if _JOB_FOLDER.search(text)]:
        yield (
            f"{_named(places)} names the folder /job, which a process job does not have: "
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


def notes_of(request: LaunchRequest, site: Site, agent_kind: str) -> Iterator[str]:
    """Say what is worth knowing once."""
    spec = request.spec
    if agent_kind == "sh":
        limits = " and no memory limit" if spec.memory_bytes else ""
        yield f"there is no Python on {site.name}: no usage samples, no report(){limits}"
    if spec.image:
        yield f"the image {spec.image} is not used: the command runs as a process on {site.name}"
    if spec.cpus is not None and spec.cpus > len(site.processors):
        yield f"{spec.cpus:g} CPUs are asked for and {site.name} has {len(site.processors)}: it gets those"
    if not site.bash:
        yield f"there is no bash on {site.name}: commands run under sh"
    if spec.storage_bytes:
        yield "storage: is not limited: the job writes to the disk that its folder is on"
    if spec.shm_size_bytes:
        yield "shm_size: is not looked at: a process uses the machine's own /dev/shm"


def _texts(request: LaunchRequest) -> Iterator[tuple[str, str]]:
    """Give the texts that a job runs, each with its name, as far as they are short enough to look through."""
    yield "the command", request.spec.framework.command
    yield "setup:", request.spec.setup
    if request.code_file and Path(request.code_file).exists():
        try:
            yield from _members(request.code_file)
        except (tarfile.TarError, OSError, EOFError, zlib.error):
            return  # unpacking it says so


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
