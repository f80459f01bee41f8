"""File access of containers: the image's user may write while a job runs; afterwards the user owns all files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backends.contract.host import Host
from runners.container.engine import Engine
from runners.container.plan import bind
from workbench.errors import RunnerError
from workbench.learner.platform.engine_client import EngineRefused

CHANGE_SECONDS: Final = 600.0
_ROOT: Final = ("", "0", "root", "0:0", "root:root")


def grant_access(
    host: Host, trees: Sequence[str], read_only: Sequence[str], below: Mapping[str, Sequence[str]]
) -> None:
    """Let an image's user write into folders and read files; the job's parent folder stays closed to others.

    Args:
        host: the host.
        trees: folders that it may change, with everything below them.
        read_only: files that it may read.
        below: more folders to change, relative to a shared folder into which other jobs write, too.
    """
    host.call("let_others_in", trees=list(trees), read_only=list(read_only), below=dict(below))


def needs_access(image: Mapping[str, Any], user: int) -> bool:
    """Say whether what runs in an image may do less with our user's files than our user.

    Root in the container has no DAC_OVERRIDE: it needs the same rights as any user.

    Args:
        image: the image's document.
        user: the id of our user on the host.
    """
    return user != 0 or str((image.get("Config") or {}).get("User") or "") not in _ROOT


def restore_ownership(host: Host, engine: Engine, paths: Sequence[str], image: str) -> None:
    """Make our user the owner of everything in these folders.

    Raises:
        RunnerError: the owner cannot be changed.
    """
    uid, gid = user_of(host)
    existing = list(host.call("existing", paths=list(paths)))
    if not host.call("is_foreign", paths=existing, uid=uid):
        return
    if uid == 0:
        host.run(["chown", "-R", "-h", f"{uid}:{gid}", *existing], deadline_seconds=CHANGE_SECONDS)
        return
    _change_inside(engine, existing, image, "0:0" if runs_rootless(engine) else f"{uid}:{gid}")


def _change_inside(engine: Engine, paths: Sequence[str], image: str, owner: str) -> None:
    """Change the owner in a container as root: our user has no right to do so."""
    targets = {path: f"/{number}" for number, path in enumerate(paths)}
    name = f"fabric-rights-{os.urandom(6).hex()}"
    document = {
        "Image": image,
        "User": "0:0",
        "Entrypoint": ["chown", "-R", "-h", owner, *targets.values()],
        "Cmd": [],
        "Labels": {"fabric.rights": owner},
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "SecurityOpt": ["no-new-privileges"],
            "CapDrop": ["ALL"],
            "CapAdd": ["CHOWN", "DAC_OVERRIDE", "FOWNER"],
            "LogConfig": {"Type": "none", "Config": {}},
            "Mounts": [bind(path, target) for path, target in targets.items()],
        },
    }
    try:
        engine.create(name, document)
        engine.ask("POST", f"containers/{name}/start")
        engine.is_removed(name, CHANGE_SECONDS)
    except EngineRefused as error:
        engine.remove(name)
        raise RunnerError(
            f"What the job wrote does not belong to you yet: {error.message}",
            hint=f"sudo chown -R {owner} {paths[0]}",
        ) from error


def relabelled(mounts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return mounts in the bind syntax: only it has the option ``z``, which relabels files for SELinux."""
    return [":".join((mount["Source"], mount["Target"], _bind_options(mount))) for mount in mounts]


def _bind_options(mount: Mapping[str, Any]) -> str:
    propagation = mount.get("BindOptions", {}).get("Propagation", "")
    parts = ("ro" if mount["ReadOnly"] else "rw", "z", propagation)
    return ",".join(part for part in parts if part)


def is_guarded(host: Host, engine: Engine) -> bool:
    """Return whether SELinux denies containers files without their label."""
    if not host.call("existing", paths=["/sys/fs/selinux/enforce"]):
        return False
    return any("selinux" in option for option in engine.info.get("SecurityOptions") or ())


def runs_rootless(engine: Engine) -> bool:
    """Return whether root in the engine's containers is our user on the host."""
    options = engine.info.get("SecurityOptions") or ()
    return bool(engine.info.get("Rootless")) or any("rootless" in option for option in options)


def user_of(host: Host) -> tuple[int, int]:
    """Return the ids of our user and group on a host."""
    if host.here:
        return os.getuid(), os.getgid()
    ids = host.run(["sh", "-c", "id -u; id -g"]).stdout.split()
    return int(ids[0]), int(ids[1])


def has_hosts_network(engine: Engine) -> bool:
    """Return whether containers can use the host's network; that of Docker without root is a network of its own."""
    return engine.is_podman or not runs_rootless(engine)
