"""A job's bind mounts: folders and files of a host at paths of a container, or as links where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from backends.contract.host import Host
from runners.interface import LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench.errors import LaunchRefused
from workbench.spec import BindMount

PRIVATE: Final = ("private", "rprivate")

_LINK: Final = """\
while [ $# -gt 0 ]; do
    mkdir -p "$(dirname "$2")" || exit 1
    if [ -L "$2" ]; then rm "$2" || exit 1; fi
    if [ -e "$2" ]; then echo "$2"; exit 3; fi
    ln -s "$1" "$2" || exit 1
    shift 2
done
"""
_TAKEN: Final = 3


def engine_mounts(request: LaunchRequest, work_dir: str) -> list[dict[str, Any]]:
    """Return the bind mounts for a container engine; relative paths are below ``work_dir``."""
    return [
        {
            "Type": "bind",
            "Source": mount.host_path,
            "Target": target_of(mount, work_dir),
            "ReadOnly": mount.read_only,
            **({} if mount.propagation in PRIVATE else {"BindOptions": {"Propagation": mount.propagation}}),
        }
        for mount in request.spec.bind_mounts
    ]


def target_of(mount: BindMount, work_dir: str) -> str:
    """Return the absolute path of a mount in the container."""
    return str(PurePosixPath(work_dir, mount.container_path))


def refusals_of_processes(request: LaunchRequest) -> Iterator[str]:
    """Yield why a job's bind mounts cannot be had by processes: they see the machine's own paths."""
    for mount in request.spec.bind_mounts:
        target = PurePosixPath(mount.container_path)
        if target.is_absolute() and target != PurePosixPath(mount.host_path):
            yield (
                f"the bind mount of {mount.host_path} at {target} needs a container; use --runner container, or have"
                f" the code read {mount.host_path} and leave the mount out"
            )


def notes_of_processes(request: LaunchRequest) -> Iterator[str]:
    """Yield what processes have in the place of bind mounts."""
    for mount in request.spec.bind_mounts:
        if not PurePosixPath(mount.container_path).is_absolute():
            guard = ", and can be written to there though it says read_only" if mount.read_only else ""
            yield f"{mount.host_path} is linked as {mount.container_path} in the code's folder{guard}"


def refuse_missing(request: LaunchRequest, host: Host, site: HostFacts) -> None:
    """Refuse a job whose bind mounts do not exist on the host.

    Raises:
        LaunchRefused: one does not.
    """
    paths = [mount.host_path for mount in request.spec.bind_mounts]
    there = set(host.call("existing", paths=paths)) if paths else set()
    for path in paths:
        if path not in there:
            where = "" if site.here else f" on {site.name}"
            raise LaunchRefused(
                f"The bind mount {path} does not exist{where}.",
                hint="A host_path is a folder or file of the machine that the job runs on.",
                code="C104",
            )


def linked_mounts(request: LaunchRequest) -> list[tuple[str, str]]:
    """List what is linked in the folder of the code: the path on the host, and that in the folder."""
    mounts = request.spec.bind_mounts
    return [
        (mount.host_path, mount.container_path)
        for mount in mounts
        if not PurePosixPath(mount.container_path).is_absolute()
    ]


def link_mounts(request: LaunchRequest, host: Host, folders: Sequence[str]) -> None:
    """Make links in folders of code to what is mounted at relative paths; doing it again changes nothing.

    Raises:
        LaunchRefused: the code has something at such a path, or the host refuses a link.
    """
    pairs = [
        part
        for folder in folders
        for source, name in linked_mounts(request)
        for part in (source, str(PurePosixPath(folder, name)))
    ]
    if not pairs:
        return
    done = host.run(["sh", "-c", _LINK, "sh", *pairs])
    if done.exit_code == _TAKEN:
        raise LaunchRefused(
            f"The code has {PurePosixPath(done.stdout.decode(errors='replace').strip()).name} already, where a bind"
            " mount is to be linked.",
            hint="--runner container hides it below the mount; or name another container_path.",
            code="C104",
        )
    if done.exit_code:
        problem = done.stderr.decode(errors="replace").strip()
        raise LaunchRefused(f"A bind mount cannot be linked: {problem}.", code="C104")
