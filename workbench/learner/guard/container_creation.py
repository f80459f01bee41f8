"""Creates a learner's container: fills in what is chosen when it starts, and asks the engine.

Who launches a learner creates its container. That of a learner which waited at its host is created by its agent, from
what the launch left in ``container.json`` under ``create``:

* ``document``: its configuration for Docker's API, but for the GPUs, and the path of its file of secrets;
* ``is_after``: whether it was prepared before jobs had ended that it comes after: they may have made another image of
  that name, which is what it was to run in;
* ``podman``: whether the engine is podman, whose own API alone can pass GPUs;
* ``home``: the uuid of the home, which its label names;
* ``network``: ``name`` and ``labels`` of the attempt's network, ``make``: whether this learner makes it, ``earlier``:
  the name of the last attempt's, where an agent has prepared this one, and ``peers``: the containers that are to run
  before the command does, so that names resolve; null without one.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from workbench.learner.journal import launch_document
from workbench.learner.platform.engine_client import EngineRefused
from workbench.learner.platform.engine_client import ask as ask_engine
from workbench.learner.queue.allocation import CHOSEN, gpu_variables

Ask = Callable[..., Any]
"""Calls the engine: a method, a target, and a document where there is one."""

Reason = Tuple[str, str, str]
"""Text, code and hint."""

LABEL_HOME = "fabric.home"
"""The label of containers and networks that names the home of their job by its uuid."""

LABEL_ATTEMPT = "fabric.attempt"
"""The label of containers and networks that says which attempt of its job they belong to."""

LABEL_SLOTS = "fabric.slots"
LABEL_PLAN = "fabric.plan"
NOT_FOUND = 404
CONFLICT = 409

SECRETS_SUFFIX = ".sh"
"""Of the file of secrets that a container's first process reads."""

_AGENT_SECRETS_SUFFIX = ".json"
_LIBPOD_CREATE = "libpod/containers/create"
_NAME_TRIES = 100
_NAME_PAUSE_SECONDS = 0.05
"""How often, and after which pause, a name is tried that is in use though there is no such container: an engine is just
removing one, or podman has lost it halfway."""

_CPU_PERIOD = 100_000
_UNLIMITED = 1 << 64
"""2^64: added to -1 it gives the unsigned number for no limit."""

_NANO = 1_000_000_000


class NameTaken(Exception):
    """A container of that name is another home's."""


class NotYet(OSError):
    """The engine cannot create it now, and may be able to in a moment."""

    def __init__(self, *reason: str) -> None:
        super().__init__(reason[0])
        self.reason = reason


def create_planned(folder: str, config: Mapping[str, Any]) -> Optional[Reason]:
    """Create the container of a learner that waited; return why that is not possible, None once there is one.

    Args:
        folder: the learner's.
        config: its ``container.json``.

    Raises:
        OSError: the engine does not answer, or cannot do it now.
    """
    create, engine, name = config["create"], str(config["engine"]), str(config["name"])
    launch = launch_document.read(folder)

    def ask(method: str, target: str, body: Any = None) -> Any:
        return ask_engine(engine, method, target, body)

    secrets = launch.secrets_file
    stem = secrets[: -len(_AGENT_SECRETS_SUFFIX)] if secrets.endswith(_AGENT_SECRETS_SUFFIX) else secrets
    document = filled(create["document"], launch.slots, stem)
    try:
        if create.get("is_after"):
            why_not = other_image(ask, str(config["image"]), str(document["Image"]))
            if why_not is not None:
                return why_not
        if create["network"]:
            prepare_network(ask, create["network"])
        ensure(
            ask,
            name,
            document,
            launch.slots,
            home=create["home"],
            is_podman=create["podman"],
            remove=lambda: _remove(ask, name),
        )
    except NameTaken:
        return taken(name)
    except EngineRefused as error:
        return refusal(error, str(config["image"]))
    return None


def other_image(ask: Ask, name: str, prepared: str) -> Optional[Reason]:
    """Return the reason where the name of an image does not mean the one any more that a job was prepared for."""
    found = _found(ask, "images/%s/json" % name)
    if found is None:
        return removed(name)
    if found["Id"] == prepared:
        return None
    text = "The image %s became another one while the job waited for those before it." % name
    return (text, "S101", "The next attempt runs in the new one: fabric resume.")


def filled(document: Mapping[str, Any], slots: Sequence[str], secrets: str) -> Dict[str, Any]:
    """Return a container's configuration with what is chosen when it starts.

    Args:
        document: the configuration without that.
        slots: UUIDs of the GPUs.
        secrets: the path of the learner's files of secrets without suffix, or empty.
    """
    found: Dict[str, Any] = json.loads(json.dumps(document))
    host = found["HostConfig"]
    for mount in host.get("Mounts") or ():
        if mount["Source"] == CHOSEN:
            mount["Source"] = secrets + SECRETS_SUFFIX
    if host.get("Binds"):
        host["Binds"] = [_with_secrets(bound, secrets) for bound in host["Binds"]]
    if slots and host.get("DeviceRequests"):
        host["DeviceRequests"][0]["DeviceIDs"] = list(slots)
    gpus = gpu_variables(slots)
    found["Env"] = [_with_gpus(entry, gpus) for entry in found["Env"]]
    digest = digest_of(found)
    found["Labels"].update({LABEL_SLOTS: ",".join(slots), LABEL_PLAN: digest})
    return found


def _with_secrets(bound: str, secrets: str) -> str:
    source, colon, rest = bound.partition(":")
    return secrets + SECRETS_SUFFIX + colon + rest if source == CHOSEN else bound


def _with_gpus(entry: str, gpus: Mapping[str, str]) -> str:
    name = entry.partition("=")[0]
    return "%s=%s" % (name, gpus[name]) if name in gpus else entry


def digest_of(document: Mapping[str, Any]) -> str:
    """Return a hash of a container's configuration."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def ensure(
    ask: Ask,
    name: str,
    document: Mapping[str, Any],
    slots: Sequence[str],
    *,
    home: str,
    is_podman: bool,
    remove: Callable[[], None],
) -> bool:
    """Create a container; one from a start that was cut off is kept if it is equal or runs, else replaced.

    Returns:
        Whether the container is equal to the document: not one that runs with other limits.

    Raises:
        NameTaken: there is one of another home.
        EngineRefused: the engine refuses the configuration.
    """
    tries = 0
    while not create(ask, name, document, slots, is_podman=is_podman):
        found = _found(ask, "containers/%s/json" % name)
        if found is None:
            tries += 1
            if tries == _NAME_TRIES:
                raise EngineRefused(CONFLICT, "it has no container %s, and its name is in use" % name)
            time.sleep(_NAME_PAUSE_SECONDS)
            continue
        labels = found["Config"]["Labels"] or {}
        if labels.get(LABEL_HOME) != home:
            raise NameTaken(name)
        same: bool = labels.get(LABEL_PLAN) == document["Labels"][LABEL_PLAN]
        if same or found["State"]["Status"] == "running":
            return same
        remove()
    return True


def create(
    ask: Ask, name: str, document: Mapping[str, Any], slots: Sequence[str], *, is_podman: bool
) -> bool:
    """Create a container with the GPUs that the document requests; False if one of that name exists.

    Raises:
        EngineRefused: the engine refuses the configuration.
    """
    target, body = "containers/create?name=%s" % name, document
    if document["HostConfig"].get("DeviceRequests") and is_podman:
        target, body = _LIBPOD_CREATE, gpu_document(name, document, slots)
    try:
        ask("POST", target, body)
        return True
    except EngineRefused as error:
        # Podman answers with this message and another status if two are created at the same instant.
        if error.status == CONFLICT or "name is already in use" in error.message:
            return False
        raise


def create_network(ask: Ask, name: str, labels: Mapping[str, str]) -> None:
    """Create a network unless it exists.

    Raises:
        EngineRefused: the engine has no addresses left, or refuses the network.
    """
    if _found(ask, "networks/%s" % name) is not None:
        return
    try:
        ask("POST", "networks/create", {"Name": name, "Labels": dict(labels), "CheckDuplicate": True})
    except EngineRefused as error:
        if error.status != CONFLICT:
            raise


def remove_network(ask: Ask, name: str) -> bool:
    """Remove a network; return False while the engine keeps it, as where a container is attached."""
    try:
        ask("DELETE", "networks/%s" % name)
    except EngineRefused as error:
        return error.status == NOT_FOUND
    return True


def no_addresses(error: EngineRefused) -> bool:
    """Say whether a network was refused since all addresses are in use."""
    return "address pool" in error.message


def prepare_network(ask: Ask, network: Mapping[str, Any]) -> None:
    """Make the attempt's network, or see that the learner has that makes it: two at once might make two.

    That of the attempt before is removed: an agent that was killed at its end has left it.
    """
    name = network["name"]
    try:
        if network["make"]:
            if network.get("earlier"):
                remove_network(ask, network["earlier"])
            create_network(ask, name, network["labels"])
        elif _found(ask, "networks/%s" % name) is None:
            raise NotYet("the network %s was not made by its first learner" % name, "S101", "")
    except EngineRefused as error:
        if not no_addresses(error):
            raise
        raise NotYet(
            "the container engine has no addresses left for another network",
            "S100",
            "docker network prune removes those that nothing uses",
        ) from error


def is_running(engine: str, name: str) -> bool:
    """Say whether a container runs.

    Raises:
        OSError: the engine does not answer.
    """
    try:
        found = ask_engine(engine, "GET", "containers/%s/json" % name)
    except EngineRefused:
        return False
    return bool(found["State"]["Running"])


def _found(ask: Ask, target: str) -> Optional[Dict[str, Any]]:
    try:
        found: Dict[str, Any] = ask("GET", target)
        return found
    except EngineRefused as error:
        if error.status == NOT_FOUND:
            return None
        raise


def _remove(ask: Ask, name: str) -> None:
    try:
        ask("DELETE", "containers/%s?force=1&v=1" % name)
    except EngineRefused as error:
        if error.status == CONFLICT:
            raise NotYet(
                "the container %s of an earlier start is still being removed" % name, "S200", ""
            ) from error
        if error.status != NOT_FOUND:
            raise


def taken(name: str) -> Reason:
    """Return the reason where a container of another home has a learner's name."""
    return (
        "There is a container %s already, and it is not of this home." % name,
        "C104",
        "Remove it if nobody needs it (docker rm -f %s), then resume the job." % name,
    )


def refusal(error: EngineRefused, image: str) -> Reason:
    """Return the reason where the engine did not create a container."""
    message = error.message.strip()
    if "bind source path does not exist" in message:
        return (
            "The container engine does not see this machine's files: it runs somewhere else.",
            "C104",
            "Add the machine that it runs on as a backend (fabric backend add), or use --runner process.",
        )
    if error.status == NOT_FOUND and "No such image" in message:
        return removed(image)
    return ("The container engine refuses the container: %s." % message, "C104", "")


def removed(image: str) -> Reason:
    """Return the reason where an image is gone that was there when the job was prepared."""
    return ("The image %s was removed in the meantime." % image, "S101", "")


def gpu_document(name: str, document: Mapping[str, Any], slots: Sequence[str]) -> Dict[str, Any]:
    """Convert a container's configuration from Docker's API to podman's own API, which can pass GPUs by CDI.

    Args:
        name: the container's name.
        document: the configuration for Docker's API.
        slots: UUIDs of the GPUs; NVIDIA's toolkit has generated their CDI specification.
    """
    host = document["HostConfig"]
    network = host["NetworkMode"]
    podman_document: Dict[str, Any] = {
        "name": name,
        "image": document["Image"],
        **({"hostname": document["Hostname"]} if "Hostname" in document else {}),
        "entrypoint": document["Entrypoint"],
        "command": document["Cmd"],
        "work_dir": document["WorkingDir"],
        "env": dict(entry.split("=", 1) for entry in document["Env"]),
        "labels": document["Labels"],
        "stop_timeout": document["StopTimeout"],
        "remove": host["AutoRemove"],
        "mounts": [_mount(mount) for mount in host.get("Mounts") or map(_parsed, host["Binds"])],
        "netns": {"nsmode": "host" if network == "host" else "bridge"},
        "cap_drop": host["CapDrop"],
        "no_new_privileges": True,
        "shm_size": host["ShmSize"],
        "log_configuration": {"driver": "none"},
        "hostadd": host.get("ExtraHosts") or [],
        "portmappings": [_port(port, bound) for port, bound in (host.get("PortBindings") or {}).items()],
        "devices": [{"path": f"nvidia.com/gpu={slot}"} for slot in slots],
        "resource_limits": _limits(host),
        "r_limits": [
            {
                "type": f"RLIMIT_{limit['Name'].upper()}",
                "soft": limit["Soft"] % _UNLIMITED,
                "hard": limit["Hard"] % _UNLIMITED,
            }
            for limit in host.get("Ulimits") or ()
        ],
    }
    if network not in ("bridge", "host"):
        endpoint = document["NetworkingConfig"]["EndpointsConfig"][network]
        podman_document["networks"] = {network: {"aliases": endpoint["Aliases"]}}
    return podman_document


def _mount(mount: Mapping[str, Any]) -> Dict[str, Any]:
    propagation = mount.get("BindOptions", {}).get("Propagation")
    options = ["rbind", "ro" if mount["ReadOnly"] else "rw", *mount.get("Options", ())]
    options += [propagation] if propagation else []
    return {
        "type": "bind",
        "source": mount["Source"],
        "destination": mount["Target"],
        "options": options,
    }


def _parsed(bound: str) -> Dict[str, Any]:
    """Parse the bind syntax ``source:target:options``, which is used with SELinux."""
    source, target, options = bound.rsplit(":", 2)
    mode, *rest = options.split(",")
    return {"Source": source, "Target": target, "ReadOnly": mode == "ro", "Options": rest}


def _port(port: str, bound: Sequence[Mapping[str, str]]) -> Dict[str, Any]:
    number, _, protocol = port.partition("/")
    return {
        "container_port": int(number),
        "host_port": int(bound[0]["HostPort"]),
        "host_ip": bound[0]["HostIp"],
        "protocol": protocol,
    }


def _limits(host: Mapping[str, Any]) -> Dict[str, Any]:
    limits: Dict[str, Any] = {}
    if nano := host.get("NanoCpus"):
        limits["cpu"] = {"period": _CPU_PERIOD, "quota": nano * _CPU_PERIOD // _NANO}
    if memory := host.get("Memory"):
        limits["memory"] = {"limit": memory, "swap": host["MemorySwap"]}
    return limits
