"""A container engine at a place, asked over the place's own connection: what a launch needs, and no library."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from backends.contract.container_engines import find_engine, no_engine, not_allowed, usual_sockets
from backends.contract.host import Host
from workbench.errors import BackendUnreachable, FabricError, NotAllowed, RunnerError
from workbench.learner.platform.engine_client import EngineRefused, EngineRequest

CREATE: Final = "libpod/containers/create"
CPU_PERIOD: Final = 100_000
_UNLIMITED: Final = 1 << 64
"""-1 as numbers without a sign have it."""

_NANO: Final = 1_000_000_000


def gpu_document(name: str, document: Mapping[str, Any], slots: Sequence[str]) -> dict[str, Any]:
    """Return what podman's own API is told of a container that Docker's API would be told of so.

    Args:
        name: the container's.
        document: as Docker's API has it.
        slots: GPUs by UUID, which NVIDIA's toolkit has written down for CDI.
    """
    host = document["HostConfig"]
    network = host["NetworkMode"]
    podman_document: dict[str, Any] = {
        "name": name,
        "image": document["Image"],
        "hostname": document["Hostname"],
        "entrypoint": document["Entrypoint"],
        "command": document["Cmd"],
        "work_dir": document["WorkingDir"],
        "env": dict(entry.split("=", 1) for entry in document["Env"]),
        "labels": document["Labels"],
        "stop_timeout": document["StopTimeout"],
        "remove": host["AutoRemove"],
        "mounts": [_mount(mount) for mount in host.get("Mounts") or map(_parsed, host["Binds"])],
        "netns": {"nsmode": "bridge"},
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
    if network != "bridge":
        endpoint = document["NetworkingConfig"]["EndpointsConfig"][network]
        podman_document["networks"] = {network: {"aliases": endpoint["Aliases"]}}
    return podman_document


def _mount(mount: Mapping[str, Any]) -> dict[str, Any]:
    options = ["rbind", "ro" if mount["ReadOnly"] else "rw", *mount.get("Options", ())]
    return {
        "type": "bind",
        "source": mount["Source"],
        "destination": mount["Target"],
        "options": options,
    }


def _parsed(bound: str) -> dict[str, Any]:
    """Read the older form of a mount, which is used where SELinux guards files."""
    source, target, options = bound.rsplit(":", 2)
    mode, *rest = options.split(",")
    return {"Source": source, "Target": target, "ReadOnly": mode == "ro", "Options": rest}


def _port(port: str, bound: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    number, _, protocol = port.partition("/")
    return {
        "container_port": int(number),
        "host_port": int(bound[0]["HostPort"]),
        "host_ip": bound[0]["HostIp"],
        "protocol": protocol,
    }


def _limits(host: Mapping[str, Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if nano := host.get("NanoCpus"):
        limits["cpu"] = {"period": CPU_PERIOD, "quota": nano * CPU_PERIOD // _NANO}
    if memory := host.get("Memory"):
        limits["memory"] = {"limit": memory, "swap": host["MemorySwap"]}
    return limits


ANSWER_SECONDS: Final = 60.0
REMOVE_SECONDS: Final = 3.0
REMOVE_TRIES: Final = 10
LOOK_SECONDS: Final = 3.0
"""How long it is believed that an engine will say when a container is gone, before it is looked for."""
NOT_FOUND: Final = 404
REPAIRED: Final = 25
"""The version of Docker that lets containers that remove themselves live through its own start."""

CONFLICT: Final = 409

LABEL_HOME: Final = "fabric.home"
"""The label of containers and networks that names the home of their job by its uuid."""


class Engine:
    """One engine, by its socket at a place. Calls may be made from several threads at once."""

    def __init__(self, host: Host, path: str, *, answer_seconds: float | None = None) -> None:
        self.host = host
        self.path = path
        self._answer_seconds = answer_seconds
        self._looking = threading.Lock()
        self._info: dict[str, Any] | None = None

    def ask(self, method: str, target: str, body: Any = None, *, seconds: float | None = None) -> Any:
        """Ask a question of the engine's API and return the answer.

        Raises:
            EngineRefused: it said no.
            BackendUnreachable: it does not answer.
            NotAllowed: we may not ask it.
        """
        seconds = self._answer_seconds or ANSWER_SECONDS if seconds is None else seconds
        try:
            return self.begin(method, target, body, seconds=seconds).answer()
        except TimeoutError as error:
            raise BackendUnreachable(
                f"The container engine has not answered for {seconds:g} seconds."
            ) from error
        except OSError as error:
            raise BackendUnreachable(f"The container engine at {self.path} ended the connection.") from error

    def begin(
        self, method: str, target: str, body: Any = None, *, seconds: float | None = None
    ) -> EngineRequest:
        """Ask a question and leave its answer for later."""
        try:
            stream = self.host.connect(self.path)
        except NotAllowed as error:
            raise not_allowed(self.path) from error
        except FabricError as error:
            raise no_engine(self.path) from error
        stream.settimeout(ANSWER_SECONDS if seconds is None else seconds)
        return EngineRequest(stream, method, target, body)

    def within(self, seconds: float) -> Engine:
        """Return the same engine, which is given up on sooner."""
        hurried = Engine(self.host, self.path, answer_seconds=seconds)
        hurried._info = self._info
        return hurried

    @property
    def info(self) -> Mapping[str, Any]:
        """What the engine says of itself, asked once."""
        with self._looking:
            if self._info is None:
                self._info = self.ask("GET", "info")
            return self._info

    # Images

    def image(self, name: str) -> dict[str, Any] | None:
        """Return what is known of an image that is here, or None."""
        return self._found("GET", f"images/{quote(name, safe='/:@')}/json")

    # Containers

    @property
    def is_podman(self) -> bool:
        """Whether it is podman, which understands the same API but for GPUs."""
        return "BuildahVersion" in self.info

    @property
    def may_remove_by_itself(self) -> bool:
        """Whether containers may be told to remove themselves.

        With live-restore, Docker before 25 kills those that do when it is started again.
        """
        version = str(self.info.get("ServerVersion") or "").partition(".")[0]
        return not self.info.get("LiveRestoreEnabled") or (version.isdigit() and int(version) >= REPAIRED)

    def create(self, name: str, body: Mapping[str, Any], slots: Sequence[str] = ()) -> bool:
        """Create a container, with GPUs where a document asks for any; False where one of that name is there already.

        Raises:
            EngineRefused: the engine does not take it.
        """
        target, document = f"containers/create?name={name}", body
        if body["HostConfig"].get("DeviceRequests") and self.is_podman:
            target, document = CREATE, gpu_document(name, body, slots)
        try:
            self.ask("POST", target, document)
            return True
        except EngineRefused as error:
            # Podman says so in words where two create one at the same instant.
            if error.status == CONFLICT or "name is already in use" in error.message:
                return False
            raise

    def inspect(self, name: str) -> dict[str, Any] | None:
        """Return how a container is, or None."""
        return self._found("GET", f"containers/{name}/json")

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """List the containers with all of these labels, running or not."""
        filters = quote(json.dumps({"label": list(labels)}))
        found: list[dict[str, Any]] = self.ask("GET", f"containers/json?all=1&filters={filters}")
        return found

    def remove_of(self, home: str, name: str) -> None:
        """Kill and remove the container with this name if its label names the home; else it is left alone."""
        # The list answers at once even while the container is being removed.
        if any(f"/{name}" in one["Names"] for one in self.containers(f"{LABEL_HOME}={home}")):
            self.remove(name)

    def remove(self, name: str) -> None:
        """Kill and remove a container, and wait until it is gone; one that is not there is no error."""
        for _ in range(REMOVE_TRIES):
            try:
                self.ask("DELETE", f"containers/{name}?force=1&v=1")
                return
            except EngineRefused as error:
                if error.status == NOT_FOUND:
                    return
                if error.status != CONFLICT:
                    raise RunnerError(f"The container {name} cannot be removed: {error.message}.") from error
            # Somebody is removing it already, or so the engine says.
            if self.is_removed(name, REMOVE_SECONDS):
                return
        raise RunnerError(f"The container {name} cannot be removed.", hint=f"docker rm -f {name}")

    def is_removed(self, name: str, seconds: float = ANSWER_SECONDS) -> bool:
        """Wait until a container is gone; False when it is still there after so long."""
        until = time.monotonic() + seconds
        while True:
            # An engine that is asked in the very moment in which it removes the container may never answer.
            slice_seconds = max(0.1, min(LOOK_SECONDS, until - time.monotonic()))
            try:
                self.begin(
                    "POST", f"containers/{name}/wait?condition=removed", seconds=slice_seconds
                ).answer()
            except EngineRefused as error:
                return error.status == NOT_FOUND
            except OSError:
                if self.inspect(name) is None:
                    return True
                if time.monotonic() >= until:
                    return False
            else:
                return True

    # Networks

    def networks(self, label: str) -> list[dict[str, Any]]:
        """List the networks with a label."""
        filters = quote(json.dumps({"label": [label]}))
        found: list[dict[str, Any]] = self.ask("GET", f"networks?filters={filters}")
        return found

    def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a network unless it is there.

        Raises:
            EngineRefused: the engine has no addresses left, or does not take it.
        """
        if self._found("GET", f"networks/{name}") is None:
            body = {"Name": name, "Labels": dict(labels), "CheckDuplicate": True}
            try:
                self.ask("POST", "networks/create", body)
            except EngineRefused as error:
                if error.status != CONFLICT:
                    raise

    def remove_network(self, home: str, name: str) -> bool:
        """Remove a network if its label names the home; False while something is still in it.

        One that is not there, or of another home, is no error.
        """
        if not any(one["Name"] == name for one in self.networks(f"{LABEL_HOME}={home}")):
            return True
        try:
            self.ask("DELETE", f"networks/{name}")
        except EngineRefused as error:
            return error.status == NOT_FOUND
        return True

    def _found(self, method: str, target: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.ask(method, target)
            return found
        except EngineRefused as error:
            if error.status == NOT_FOUND:
                return None
            raise RunnerError(f"The container engine says: {error.message}") from error


def engine_at(host: Host, environment: Mapping[str, str]) -> Engine:
    """Find the engine of a place: the one that the place was told of, else as its user would.

    Raises:
        ConfigError: it is on another machine.
    """
    if address := getattr(host, "engine", ""):
        return Engine(host, str(address).removeprefix("unix://"))
    if host.here:
        return Engine(host, find_engine().path)
    candidates: Sequence[str] = list(usual_sockets(environment.get("XDG_RUNTIME_DIR", "")))
    found = host.call("existing", paths=candidates)
    return Engine(host, next(iter(found), candidates[0]))
